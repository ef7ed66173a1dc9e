"""The experiment on recorded outcomes: what rows hold, how budgets are counted, how verdicts follow intervals."""

import numpy as np
import pandas as pd
import pytest

from lib import config, stats
from lib.config.recorded_outcomes import PriceSettings
from lib.experiment import artifacts, results_table, seeds
from lib.recorded_outcomes import headroom, model_selection, tables
from lib.recorded_outcomes.tables import TableError
from lib.routers import experiment, methods
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    LOGISTIC,
    NEAREST,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
)
from lib.stats import Interval
from lib.tool_orchestration import rewards
from tests.recorded_outcomes.small import made

SETTINGS = config.load("smoke").recorded.model_copy(update={"updates": 20, "draws": 20, "seeds": 5})
OPEN = pd.Series(dict.fromkeys(headroom.MIN_WORTHWHILE_GAIN, headroom.OPEN))


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return experiment.replay_table(
        made(),
        SETTINGS,
        [CONSTANT_MIXTURES, NEAREST, LOGISTIC, methods.CORL, POOR_CHECK, PERFECT_CHECK, ORACLE],
    )


def compare(frames: dict[str, pd.DataFrame], gate: pd.Series) -> pd.DataFrame:
    rows = results_table.make_results("recorded", frames["rows"])
    margin = SETTINGS.equivalence_margin
    return experiment.compare_methods(rows, frames["repeat_averages"], margin, gate)


def test_every_item_has_one_row_per_method_and_condition_averaged_over_repeats(frames):
    rows = results_table.make_results("recorded", frames["rows"])
    counts = rows.groupby(["method", "condition"])["item"].agg(["size", "nunique"])
    assert (counts == len(made())).all().all() and set(rows["role"]) <= set(results_table.ROLES)
    assert rows["correct"].between(0, 1).all() and (rows["cost_usd"] > 0).all()


def test_a_router_with_skill_is_cheaper_than_the_best_constant_and_random_mixtures_are_not(frames):
    comparison = compare(frames, OPEN)
    assert comparison.loc[LOGISTIC, "verdict"] == experiment.CHEAPER
    assert comparison.loc[PERFECT_CHECK, "verdict"] == experiment.CHEAPER
    assert comparison.loc[CONSTANT_MIXTURES, "verdict"] != experiment.CHEAPER
    assert comparison.loc[LOGISTIC, "cost_ratio"].ci_high < 0.6
    assert comparison.loc[LOGISTIC, "gain_over_mixtures"].ci_low > 0
    assert BEST_CONSTANT not in comparison.index


def test_a_question_that_is_not_open_gets_no_other_verdict(frames):
    money_not_open = OPEN.where(OPEN.index != "money", headroom.NOT_OPEN)
    comparison = compare(frames, money_not_open)
    assert comparison.loc[LOGISTIC, "verdict"] == headroom.NOT_OPEN
    assert comparison.loc[PERFECT_CHECK, "verdict"] == experiment.CHEAPER


def test_a_pair_that_met_different_items_is_refused(frames):
    rows = frames["rows"].query("condition == @model_selection.EQUAL_QUALITY")
    lacking = rows[(rows["method"] != LOGISTIC) | (rows["item"] != rows["item"].iloc[0])]
    with pytest.raises(ValueError, match="'logistic' and 'best constant' have not met the same"):
        experiment.compare_pair(lacking, frames["repeat_averages"], LOGISTIC, BEST_CONSTANT)


@pytest.mark.parametrize(
    "quality, cost_ratio, verdict",
    [
        ((0.0, -0.01, 0.01), (0.5, 0.4, 0.6), "cheaper"),
        ((0.0, -0.03, 0.03), (0.5, 0.4, 0.6), "undecided"),
        ((0.0, -0.01, 0.01), (0.95, 0.93, 0.97), "undecided"),
        ((-0.1, -0.12, -0.08), (0.5, 0.4, 0.6), "worse"),
        ((0.1, 0.08, 0.12), (1.5, 1.4, 1.6), "more expensive"),
    ],
)
def test_verdicts_by_hand(quality, cost_ratio, verdict):
    intervals = Interval(*quality), Interval(*cost_ratio)
    assert experiment.decide_verdict(*intervals, equivalence_margin=0.02) == verdict


def test_budgets_are_promised_on_dev_and_broken_ones_are_counted(frames):
    means = frames["budgets"].dropna(subset="level")
    # All methods promise the same in a repeat.
    assert (means.groupby("level")["promised"].nunique() <= SETTINGS.seeds).all()
    assert means["groups_over_budget"].between(0, 1).all()
    by_item = frames["budgets"].dropna(subset="items_over_budget").sort_values("promised")
    lowest, highest = by_item["items_over_budget"].iloc[[0, -1]]
    # No model costs as little as the lowest budget.
    assert lowest == 1.0
    assert highest < 0.5


def test_a_transfer_scores_the_second_table_alone_and_leaves_out_common_items():
    source, target = made(), made(120)
    target.items[60:] = [f"x{i}" for i in range(60)]
    table, (fold,) = experiment.join_for_transfer(source, target)
    assert len(table) == 240 + 60
    assert fold.test.tolist() == list(range(240, 300))
    assert set(table.groups[fold.train]).isdisjoint(table.groups[fold.dev])
    assert table.items[fold.test].tolist() == target.items[60:].tolist()
    frames = experiment.replay_table(table, SETTINGS, [CONSTANT_MIXTURES, LOGISTIC], [fold])
    assert set(frames["rows"]["item"]) == set(target.items[60:].tolist())
    assert frames["aiq"].empty


def test_a_transfer_between_tables_without_common_models_is_refused():
    with pytest.raises(TableError, match="share 1 models"):
        experiment.join_for_transfer(made(), made().select_models(["dear"]))


def test_the_curve_of_strong_calls_runs_from_one_model_alone_to_the_other():
    table = made().select_models(["cheap", "dear"])
    folds = model_selection.make_cross_validation_folds(model_selection.assign_folds(table, 4, 0))
    choices = methods.make_choices(table, SETTINGS, 0, folds, [LOGISTIC])[LOGISTIC]
    curve = experiment.trace_strong_calls(table, choices, folds)
    assert curve["share"].iloc[[0, -1]].tolist() == [0, 1]
    assert curve["share"].is_monotonic_increasing
    assert curve["correct"].iloc[-1] == table.correct[:, 1].mean()


def test_a_curve_that_falls_has_no_call_threshold():
    curve = pd.DataFrame({"share": [0.0, 0.5, 0.6, 1.0], "correct": [0.2, 0.6, 0.4, 0.8]})
    assert "refused: quality falls" in experiment.find_call_threshold(curve)
    assert experiment.find_call_threshold(curve.drop(index=2)) == pytest.approx(0.375)


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


def test_a_table_whose_file_changed_is_replayed(monkeypatch):
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
def test_a_version_that_is_raised_replays_every_table(module, monkeypatch):
    before = find_keys()
    monkeypatch.setattr(module, "VERSION", 99)
    assert not set(before.values()) & set(find_keys().values())


def test_a_job_runs_once(tmp_path):
    def find_write_times() -> dict:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("done.json")}

    small = SETTINGS.model_copy(update={"items": 60, "updates": 2, "seeds": 1, "jobs": 1})
    first = experiment.run(small, ["swe-multimodal"], tmp_path)
    write_times = find_write_times()
    second = experiment.run(small, ["swe-multimodal"], tmp_path)
    assert len(write_times) == 1
    assert find_write_times() == write_times
    pd.testing.assert_frame_equal(first.rows, second.rows)
    assert first.descriptions.loc["swe-multimodal", "money"] == tables.RECORDED_COSTS
    assert set(first.gate["question"]) == set(headroom.MIN_WORTHWHILE_GAIN)
    assert np.isfinite(first.aiq["value"]).all()
