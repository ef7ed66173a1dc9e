"""The study of recorded outcomes: rows fit the record, promises are counted, verdicts say what intervals say."""

import numpy as np
import pandas as pd
import pytest

from lib import config, stats
from lib.config.recorded_outcomes import PriceSettings
from lib.experiment import artifacts, results_table, seeds
from lib.recorded_outcomes import headroom, model_selection, tables
from lib.recorded_outcomes.tables import TableError
from lib.routers import experiment, methods
from lib.routers.methods import CHECK, CONSTANT, LOGISTIC, MIXTURES, NEAREST, ORACLE, POOR
from lib.stats import Interval
from lib.tool_orchestration import rewards
from tests.recorded_outcomes.small import made

SETTINGS = config.load("smoke").recorded.model_copy(update={"updates": 20, "draws": 20, "seeds": 5})
OPEN = pd.Series(dict.fromkeys(headroom.QUESTIONS, headroom.OPEN))


@pytest.fixture(scope="module")
def played() -> dict[str, pd.DataFrame]:
    return experiment.replayed(
        made(), SETTINGS, [MIXTURES, NEAREST, LOGISTIC, methods.CORL, POOR, CHECK, ORACLE]
    )


def test_rows_are_a_record_with_every_item_once_averaged_over_repeats(played):
    rows = results_table.make_results("recorded", played["rows"])
    counts = rows.groupby(["method", "condition"])["item"].agg(["size", "nunique"])
    assert (counts == len(made())).all().all() and set(rows["role"]) <= set(results_table.ROLES)
    assert rows["correct"].between(0, 1).all() and (rows["cost_usd"] > 0).all()


def test_skill_is_cheaper_than_the_best_constant_and_a_coin_is_not(played):
    found = experiment.compared(
        results_table.make_results("recorded", played["rows"]),
        played["drawn"],
        SETTINGS.equivalence_margin,
        OPEN,
    )
    assert found.loc[LOGISTIC, "verdict"] == found.loc[CHECK, "verdict"] == experiment.CHEAPER
    assert (
        found.loc[LOGISTIC, "ratio"].ci_high < 0.6
        and found.loc[MIXTURES, "verdict"] != experiment.CHEAPER
    )
    assert CONSTANT not in found.index


def test_a_closed_question_gets_no_verdict(played):
    closed = OPEN.where(OPEN.index != "money", headroom.NOT_OPEN)
    found = experiment.compared(
        results_table.make_results("recorded", played["rows"]),
        played["drawn"],
        SETTINGS.equivalence_margin,
        closed,
    )
    assert (
        found.loc[LOGISTIC, "verdict"] == headroom.NOT_OPEN
        and found.loc[CHECK, "verdict"] == experiment.CHEAPER
    )


@pytest.mark.parametrize(
    "quality, ratio, said",
    [
        ((0.0, -0.01, 0.01), (0.5, 0.4, 0.6), "cheaper"),
        ((0.0, -0.03, 0.03), (0.5, 0.4, 0.6), "undecided"),
        ((0.0, -0.01, 0.01), (0.95, 0.93, 0.97), "undecided"),
        ((-0.1, -0.12, -0.08), (0.5, 0.4, 0.6), "worse"),
        ((0.1, 0.08, 0.12), (1.5, 1.4, 1.6), "dearer"),
    ],
)
def test_verdicts_by_hand(quality, ratio, said):
    assert experiment.verdict(Interval(*quality), Interval(*ratio), 0.02) == said


def test_promises_are_made_on_dev_and_broken_ones_are_counted(played):
    means = played["levels"].dropna(subset="level")
    assert (
        means.groupby("level")["promised"].nunique() <= 5
    ).all()  # everybody promises the same in a repeat
    assert means["over_groups"].between(0, 1).all()
    items = played["levels"].dropna(subset="over_items")
    tight, loose = items.sort_values("promised")["over_items"].iloc[[0, -1]]
    assert tight == 1.0 and loose < 0.5  # nothing costs as little as the least budget


def test_a_shift_scores_the_second_table_alone_and_leaves_out_what_both_have():
    here, there = made(), made(120)
    there.items[60:] = [f"x{i}" for i in range(60)]
    table, (fold,) = experiment.shifted(here, there)
    assert len(table) == 240 + 60 and (fold.test >= 240).all() and len(fold.test) == 60
    assert set(table.groups[fold.train]).isdisjoint(table.groups[fold.dev])
    assert table.items[fold.test].tolist() == there.items[60:].tolist()
    found = experiment.replayed(table, SETTINGS, [MIXTURES, LOGISTIC], [fold])
    assert set(found["rows"]["item"]) == set(there.items[60:].tolist()) and found["aiq"].empty


def test_tables_without_common_models_cannot_be_shifted():
    with pytest.raises(TableError, match="share 1 models"):
        experiment.shifted(made(), made().select_models(["dear"]))


def test_shares_of_strong_calls_begin_and_end_with_the_models_alone():
    table = made().select_models(["cheap", "dear"])
    folds = model_selection.make_cross_validation_folds(model_selection.assign_folds(table, 4, 0))
    choices = methods.make_choices(table, SETTINGS, 0, folds, [LOGISTIC])[LOGISTIC]
    curve = experiment.shares(table, choices, folds)
    assert (
        curve["share"].iloc[[0, -1]].tolist() == [0, 1] and curve["share"].is_monotonic_increasing
    )
    assert curve["correct"].iloc[-1] == table.correct[:, 1].mean()
    falls = pd.DataFrame({"share": [0.0, 0.5, 0.6, 1.0], "correct": [0.2, 0.6, 0.4, 0.8]})
    assert "refused: quality falls" in experiment.threshold(falls)
    assert experiment.threshold(falls.drop(index=2)) == pytest.approx(0.375)


def find_keys(settings=SETTINGS) -> dict[str, str]:
    """The key of the job of each shipped table."""
    return {name: experiment.make_job(settings, name).key for name in tables.SHIPPED}


def find_changed_tables(settings) -> set[str]:
    before, after = find_keys(), find_keys(settings)
    return {name for name in before if before[name] != after[name]}


def test_a_setting_changes_the_keys_of_the_tables_that_it_decides():
    def priced(**prices):
        return SETTINGS.model_copy(update={"prices": SETTINGS.prices.model_copy(update=prices)})

    assert not find_changed_tables(
        SETTINGS.model_copy(update={"jobs": 7, "equivalence_margin": 0.5})
    )
    assert find_changed_tables(SETTINGS.model_copy(update={"updates": 7})) == set(tables.SHIPPED)
    assert find_changed_tables(priced(exponent=2.0)) == {"gsm", "crux"}
    assert find_changed_tables(priced(reply_tokens=7)) == {
        "llmrouter",
        "llmrouter-new",
        "mmlu",
        "gsm8k",
    }


def test_a_table_whose_file_changed_is_played_again(monkeypatch):
    before, hash_file = find_keys(), artifacts.sha256_file
    changed = tables.OUTCOMES_FOLDER / "gsm.parquet"
    monkeypatch.setattr(
        artifacts, "sha256_file", lambda path: "-" if path == changed else hash_file(path)
    )
    assert {name for name, key in find_keys().items() if key != before[name]} == {"gsm", "gsm8k"}


def test_a_shipped_table_reads_the_files_and_the_prices_that_its_job_holds(monkeypatch):
    read = []
    for module, reader in ((artifacts, "read_parquet"), (pd, "read_csv")):
        keep = getattr(module, reader)
        monkeypatch.setattr(
            module, reader, lambda path, keep=keep: read.append(path.name) or keep(path)
        )
    for name, fields in tables.PRICED_BY.items():
        read.clear()
        tables.SHIPPED[name](
            PriceSettings.from_job_settings(SETTINGS.prices.to_job_settings(*fields))
        )
        assert sorted(read) == sorted(tables.FILES[name])
    assert list(tables.FILES) == list(tables.PRICED_BY) == list(tables.SHIPPED)


@pytest.mark.parametrize(
    "module", [model_selection, methods, headroom, experiment, rewards, seeds, stats, tables]
)
def test_a_version_that_is_raised_plays_every_table_again(module, monkeypatch):
    before = find_keys()
    monkeypatch.setattr(module, "VERSION", 99)
    assert not set(before.values()) & set(find_keys().values())


def test_a_job_runs_once(tmp_path):
    brief = SETTINGS.model_copy(update={"items": 60, "updates": 2, "seeds": 1, "jobs": 1})
    first = experiment.run(brief, ["swe-multimodal"], tmp_path)
    marks = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("done.json")}
    again = experiment.run(brief, ["swe-multimodal"], tmp_path)
    assert len(marks) == 1 and marks == {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("done.json")
    }
    pd.testing.assert_frame_equal(first.rows, again.rows)
    assert first.told.loc["swe-multimodal", "money"] == tables.RECORDED
    assert (
        set(first.gate["question"]) == set(headroom.QUESTIONS)
        and np.isfinite(first.aiq["value"]).all()
    )
