"""`python -m lib router evaluate TABLE`: a sentence first, a page and tables, or a reason in one line."""

import json

import numpy as np
import pandas as pd
import pytest

from lib.experiment.seeds import rng
from lib.plots import accessibility_check
from lib.recorded_outcomes import headroom
from lib.routers.compare_methods import LABELS, MATRIX
from lib.routers.evaluate_command import main, make_parser
from lib.routers.methods import (
    CONSTANT_MIXTURES,
    CORL,
    LOGISTIC,
    NEAREST,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
    STOP_OR_ESCALATE,
)
from tests.recorded_outcomes.small import long, made

FILES = {
    "report.html", "accuracy-cost.png", "methods.csv", "budgets.csv", "headroom.csv", "models.csv", "summary.json",
}  # fmt: skip


def run(path, *options: str) -> int:
    return main([str(path), "--profile", "smoke", *options])


def write_rows(path, rows):
    rows.to_csv(path, index=False)
    return path


def make_planted_rows(num_items: int, seed: int):
    """Two models, each of which is right on its half of the feature: a router that sees it is always right."""
    feature = rng("test", "planted", num_items, seed=seed).normal(size=num_items)
    correct = np.column_stack([feature > 0, feature <= 0]).astype(int)
    columns = {
        "item": np.repeat([f"q{index}" for index in range(num_items)], 2),
        "model": np.tile(["small", "large"], num_items),
        "correct": correct.ravel(),
        "cost_usd": np.tile([0.001, 0.02], num_items),
        "e0": np.repeat(feature, 2),
    }
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """The folder of a table on which a router wins."""
    folder = tmp_path_factory.mktemp("evaluation")
    path = write_rows(folder / "mine.csv", long(made(400)))
    assert run(path) == 0
    return folder / "mine-evaluation"


def test_the_first_line_says_what_choosing_gains_and_over_whom(evaluation):
    sentence = json.loads((evaluation / "summary.json").read_text())["sentence"]
    assert sentence.startswith("Choosing gains ")
    assert " points [" in sentence and "over always dear at the same money" in sentence


def test_the_page_loads_nothing_and_begins_with_the_sentence(evaluation):
    assert {path.name for path in evaluation.iterdir()} == FILES
    page = (evaluation / "report.html").read_text()
    assert accessibility_check.problems(page) == []
    sentence = json.loads((evaluation / "summary.json").read_text())["sentence"]
    assert page.index(sentence) < page.index("data:image/png") < page.index("<h2>Methods</h2>")
    for heading in ("Were budgets kept?", "What could be won", "Models", "What was read, and how"):
        assert f"<h2>{heading}</h2>" in page
    assert (evaluation / "accuracy-cost.png").read_bytes().startswith(b"\x89PNG")


def test_the_tables_hold_every_method_with_intervals_and_budgets(evaluation):
    methods = pd.read_csv(evaluation / "methods.csv")
    expected = (
        CONSTANT_MIXTURES,
        NEAREST,
        LOGISTIC,
        MATRIX,
        CORL,
        STOP_OR_ESCALATE,
        PERFECT_CHECK,
        POOR_CHECK,
        ORACLE,
    )
    assert {LABELS[method] for method in expected} <= set(methods["method"])
    assert (methods["gain_ci_low"] <= methods["gain"]).all()
    assert (methods["gain"] <= methods["gain_ci_high"]).all()
    budgets = pd.read_csv(evaluation / "budgets.csv")
    np.testing.assert_allclose(
        budgets["ratio"], budgets["spent_usd"] / budgets["promised_usd"], rtol=1e-9
    )
    questions = pd.read_csv(evaluation / "headroom.csv")["question"].tolist()
    assert questions == list(headroom.MIN_WORTHWHILE_GAIN)


@pytest.mark.parametrize("num_items", [12, 24, 48])
@pytest.mark.parametrize("seed", range(2))
def test_few_items_never_say_that_there_is_nothing_to_win(tmp_path, capsys, num_items, seed):
    path = write_rows(tmp_path / "mine.csv", make_planted_rows(num_items, seed))
    assert run(path) == 0
    first_line = capsys.readouterr().out.splitlines()[0]
    assert "too little to win" not in first_line
    allowed = ["items are too few", "Choosing gains", "Choosing saves", "there is something to win"]
    assert any(text in first_line for text in allowed)


def test_models_that_are_coins_of_one_price_leave_too_little_to_win(tmp_path, capsys):
    rows = long(made(3_000, dice=True)).assign(cost_usd=1.0)
    assert run(write_rows(tmp_path / "mine.csv", rows)) == 0
    first_line = capsys.readouterr().out.splitlines()[0]
    assert first_line.startswith("Choosing does not pay here, because there is too little to win")


def test_several_samples_missing_cells_and_no_groups_are_accepted(tmp_path, capsys):
    rows = long(made(60)).drop(columns="group")
    samples = pd.concat([rows.assign(sample=0), rows.iloc[3:].assign(sample=1)])
    assert run(write_rows(tmp_path / "mine.csv", samples.iloc[1:])) == 0
    output = capsys.readouterr().out
    assert "Of 60 items, 1 were left out" in output
    assert "averaged, 1 to 2 of each" in output
    assert "There is no column group" in output


@pytest.mark.parametrize(
    ("correct", "text"), [(1, "is right on 100.0%"), (0, "no model is right on any")]
)
def test_outcomes_of_one_class_are_answered(tmp_path, capsys, correct, text):
    rows = long(made(40)).assign(correct=correct)
    assert run(write_rows(tmp_path / "mine.csv", rows)) == 0
    first_line = capsys.readouterr().out.splitlines()[0]
    assert first_line.startswith("Choosing does not pay here") and text in first_line


def test_a_shipped_table_is_evaluated_by_its_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["routerarena", "--profile", "smoke"]) == 0
    first_line = capsys.readouterr().out.splitlines()[0]
    assert "one model dominates: gemini-2.0-flash-001 is the cheapest" in first_line
    assert (tmp_path / "routerarena-evaluation" / "report.html").is_file()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.assign(cost_usd=-1), "0 or more"),
        (lambda rows: rows.assign(cost_usd=0), "all models are free"),
        (lambda rows: rows.assign(cost_usd="a few cents"), "'a few cents'"),
        (lambda rows: rows[rows["model"] == "dear"], "one model, 'dear'"),
        (lambda rows: rows[rows["item"] < "i0003"], "3 items"),
        (lambda rows: rows.drop(columns=["group", "e0", "e1"]), "nothing describes the items"),
        (lambda rows: rows.assign(e0=range(len(rows))), "differs"),
    ],
    ids=["negative", "free", "text costs", "one model", "few items", "no features", "differs"],
)
def test_a_table_that_cannot_be_used_is_named_with_its_reason(tmp_path, capsys, change, reason):
    path = write_rows(tmp_path / "mine.csv", change(long(made(30))))
    assert run(path) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1
    assert [found.name for found in tmp_path.iterdir()] == ["mine.csv"]


@pytest.mark.parametrize("num_items", [6, 7, 9])
def test_the_fewest_items_that_are_read_are_evaluated(tmp_path, num_items):
    rows = make_planted_rows(num_items, seed=0)
    assert run(write_rows(tmp_path / "mine.csv", rows)) == 0


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    path = write_rows(tmp_path / "mine.csv", long(made(30)))
    monkeypatch.setattr(headroom, "estimate_headroom", lambda *_: pytest.fail("the work began"))
    assert run(path, "--out", str(path)) == 2
    assert "is a file; name a folder" in capsys.readouterr().err


@pytest.mark.parametrize("repeats", ["0", "-1", "x"])
def test_a_number_of_repeats_below_one_is_refused(tmp_path, capsys, repeats):
    with pytest.raises(SystemExit) as error:
        main([str(tmp_path / "mine.csv"), f"--repeats={repeats}"])
    assert error.value.code == 2 and "give 1 or more" in capsys.readouterr().err


def test_the_help_names_every_published_format_and_shipped_table():
    text = make_parser().format_help()
    for name in (
        "RouterBench",
        "RouteLLM",
        "LLMRouter",
        "RouterArena",
        "lm-evaluation-harness",
        "routerarena",
    ):
        assert name in text
