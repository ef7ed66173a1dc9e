"""A log of choices with their probabilities tells what every model would be worth, and what it does not tell."""

import numpy as np
import pandas as pd
import pytest

from lib.experiment.seeds import rng
from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.user_tables import read_choice_table
from lib.routers.evaluate_command import main
from lib.routers.log_evaluation import ESTIMATORS, ROUTER, estimate_policies, write_sentence
from tests.recorded_outcomes.small import made


def write_log(path, num_items=2_000, changes=None):
    """Choices of `made` that ask the model that is wrong more often; returns the table of all outcomes, too."""
    table = made(num_items, groups=num_items)
    is_first = table.features[:, :1] > 0
    probabilities = np.where(is_first, [0.2, 0.6, 0.2], [0.6, 0.2, 0.2])
    draws = rng("test", "log", num_items).random(num_items)
    chosen = (probabilities.cumsum(1) > draws[:, None]).argmax(1)
    items = np.arange(num_items)
    rows = pd.DataFrame(
        {
            "item": table.items,
            "model": np.array(table.models)[chosen],
            "correct": table.correct[items, chosen],
            "cost_usd": table.cost_usd[items, chosen],
            "propensity": probabilities[items, chosen],
            "e0": is_first[:, 0].astype(float),
        }
    )
    rows.assign(**(changes or {})).to_parquet(path)
    return table


def test_estimates_are_the_truth_that_the_mean_of_the_log_is_not(tmp_path):
    table = write_log(tmp_path / "log.parquet")
    log = read_choice_table(tmp_path / "log.parquet")
    estimates = estimate_policies(log).set_index("policy")
    truth = dict(zip(table.models, table.correct.mean(0), strict=True))
    for model, accuracy in truth.items():
        for name in ESTIMATORS:
            low, high = estimates.loc[model, [f"{name}_ci_low", f"{name}_ci_high"]]
            assert low < accuracy < high and high - low < 0.25
        naive = log.correct[log.chosen == log.models.index(model)].mean()
        if model != "dear":
            assert abs(naive - accuracy) > 0.2
    assert estimates.loc["dear", "cost_usd"] == pytest.approx(20, rel=0.1)
    assert estimates.loc["dear", "gain"] == 0  # the best of the models
    assert (
        0.08 < estimates.loc[ROUTER, "gain_ci_low"] < estimates.loc[ROUTER, "gain_ci_high"] < 0.25
    )
    assert estimates.loc[ROUTER, "dr_ci_low"] > 0.85  # .95 where the prompt tells who is right


def test_the_command_says_whether_choosing_pays(tmp_path, capsys):
    write_log(tmp_path / "log.parquet")
    assert main([str(tmp_path / "log.parquet"), "--profile", "smoke"]) == 0
    first_line = capsys.readouterr().out.splitlines()[0]
    assert first_line.startswith("Choosing gains ") and "points [" in first_line
    assert "over always dear (DR)" in first_line
    folder = tmp_path / "log-evaluation"
    assert {path.name for path in folder.iterdir()} == {
        "report.html",
        "policies.csv",
        "summary.json",
    }
    assert first_line in (folder / "report.html").read_text()
    policies = pd.read_csv(folder / "policies.csv")
    assert {"ips", "snips", "dr", "gain_ci_low"} <= set(policies.columns)


@pytest.mark.parametrize(
    ("gain", "ci_low", "ci_high", "matches", "start"),
    [
        (0.03, 0.01, 0.05, 500, "Choosing gains 3.0 points [1.0, 5.0] over always b (DR)"),
        (0.00, -0.02, 0.02, 500, "Choosing does not pay here, because a router gains 0.0 points"),
        (0.02, -0.01, 0.06, 500, "Whether choosing pays cannot be told from this log"),
        (-0.05, -0.2, 0.1, 500, "Whether choosing pays cannot be told from this log"),
        (
            0.03,
            0.01,
            0.05,
            5,
            "Whether choosing pays cannot be told from this log, because it made",
        ),
    ],
)
def test_the_sentence_of_a_log_says_no_only_where_enough_was_seen(
    gain, ci_low, ci_high, matches, start
):
    rows = [("a", 100, 0.5, 0.0, 0.0, 0.0), ("b", 100, 0.7, 0.0, 0.0, 0.0)]
    rows.append((ROUTER, matches, 0.7 + gain, gain, ci_low, ci_high))
    columns = ["policy", "matches", "dr", "gain", "gain_ci_low", "gain_ci_high"]
    assert write_sentence(pd.DataFrame(rows, columns=columns)).startswith(start)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"propensity": 0.0}, "propensity of row 1 is 0"),
        ({"propensity": 1.5}, "at most 1"),
        ({"propensity": None}, "propensity of row 1 is empty"),
        ({"item": "same"}, "one choice for each item"),
        ({"model": "same"}, "one model"),
    ],
)
def test_a_log_that_cannot_be_used_is_named(tmp_path, changes, reason):
    write_log(tmp_path / "log.parquet", 30, changes)
    with pytest.raises(TableError, match=reason):
        read_choice_table(tmp_path / "log.parquet")
