"""Estimates from results: by hand, by simulation, and inside pairs."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from lib import stats
from lib.experiment.seeds import rng
from lib.stats import random_effects
from tests.stats import coverage


def rows(values: dict[str, np.ndarray], own_items: bool = False, **columns) -> pd.DataFrame:
    """Results of several methods, with values (runs, items) of `correct`."""
    frames = []
    for method, grid in values.items():
        s, n = np.shape(grid)
        items = [f"{run}-{i}" if own_items else f"{i}" for run in range(s) for i in range(n)]
        frame = {
            "method": method,
            "seed": np.repeat(range(s), n),
            "item": items,
            "sample": 0,
            "correct": np.ravel(grid),
        }
        frames.append(pd.DataFrame(frame | columns))
    return pd.concat(frames, ignore_index=True)


GRID = rng("test", "measure").normal(size=(4, 6))


def test_runs_that_share_items_are_crossed_by_hand():
    by_run, by_item, mean = GRID.mean(1), GRID.mean(0), GRID.mean()
    residuals = GRID - by_run[:, None] - by_item + mean
    squares = np.array(
        [by_run.var(ddof=1) * 6, by_item.var(ddof=1) * 4, -(residuals**2).sum() / 15]
    )
    if squares.sum() < squares[:2].max():  # one of the effects is not seen
        squares = np.where(squares == squares[:2].max(), squares, 0)
    freedom = squares.sum() ** 2 / (squares**2 / [3, 5, 15]).sum()
    half = scipy_stats.t.ppf(0.975, freedom) * (squares.sum() / 24) ** 0.5
    estimate = stats.mean(rows({"a": GRID}), "correct", "method").loc["a"]
    assert (estimate.value, estimate.ci_low, estimate.ci_high) == pytest.approx(
        (mean, mean - half, mean + half)
    )
    assert (estimate["num_runs"], estimate["num_items"]) == (4, 6)


def test_the_crossed_interval_of_a_single_effect_is_student_s():
    by_run, by_item = GRID[:, :1] + 0 * GRID, GRID[:1] + 0 * GRID
    for grid, values in ((by_run, GRID[:, 0]), (by_item, GRID[0])):
        estimate = random_effects.crossed_variance_components(grid).to_row()
        expected = stats.t_interval(values)
        assert (estimate["value"], estimate["ci_low"], estimate["ci_high"]) == pytest.approx(
            (expected.value, expected.ci_low, expected.ci_high)
        )


def test_runs_with_separate_items_have_student_s_interval_of_their_means():
    estimate = stats.mean(rows({"a": GRID}, own_items=True), "correct", "method").loc["a"]
    expected = scipy_stats.ttest_1samp(GRID.mean(1), 0)
    interval = expected.confidence_interval(0.95)
    assert (estimate.ci_low, estimate.ci_high, estimate.p_value) == pytest.approx(
        (interval.low, interval.high, expected.pvalue)
    )


def test_a_paired_difference_is_taken_inside_pairs():
    shared = np.linspace(-5, 5, 6)  # items differ far more than methods do
    results = rows({"a": GRID + shared + 1, "b": GRID + shared})
    estimate = stats.paired_difference(results, "correct", {"method": "a"}, {"method": "b"}).iloc[0]
    assert estimate.value == pytest.approx(1) and estimate.ci_high - estimate.ci_low < 1e-9
    shuffled = results.sample(frac=1, random_state=1)
    assert stats.paired_difference(shuffled, "correct", {"method": "a"}, {"method": "b"}).iloc[
        0
    ].value == pytest.approx(1)


def test_one_run_that_all_share_is_paired_with_each_run():
    results = pd.concat([rows({"a": GRID}), rows({"b": GRID[:1]})])
    estimate = stats.paired_difference(results, "correct", {"method": "a"}, {"method": "b"}).iloc[0]
    assert estimate.value == pytest.approx((GRID - GRID[:1]).mean()) and estimate.num_runs == 4
    turned = stats.paired_difference(results, "correct", {"method": "b"}, {"method": "a"}).iloc[0]
    assert (turned.value, turned.ci_low) == pytest.approx((-estimate.value, -estimate.ci_high))


def test_samples_of_an_item_are_averaged():
    twice = pd.concat([rows({"a": GRID}), rows({"a": GRID + 1}).assign(**{"sample": 1})])
    assert stats.mean(twice, "correct").iloc[0].value == pytest.approx(GRID.mean() + 0.5)
    assert stats.mean(twice, "correct").iloc[0]["num_items"] == 6


def test_a_change_minus_that_of_a_baseline_is_a_difference_in_differences():
    results = pd.concat(
        [rows({"m": GRID, "c": GRID}, step=0), rows({"m": GRID + 3, "c": GRID + 1}, step=-1)]
    )
    steps = {"step": 0}, {"step": -1}
    assert stats.diff_in_diff(results[results["method"] == "m"], "correct", *steps).iloc[
        0
    ].value == pytest.approx(3)
    assert stats.diff_in_diff(results, "correct", *steps, baseline={"method": "c"}).iloc[
        0
    ].value == pytest.approx(2)


def test_a_ratio_and_its_ends_do_not_depend_on_the_unit():
    results = rows({"a": np.exp(GRID), "b": np.exp(GRID[:, ::-1]) * 2})
    in_units, in_thousandths = (
        stats.ratio(
            results.assign(correct=results["correct"] * unit),
            "correct",
            {"method": "a"},
            {"method": "b"},
        )
        for unit in (1, 1000)
    )
    pd.testing.assert_frame_equal(in_units, in_thousandths)
    assert in_units.iloc[0].value == pytest.approx(np.exp(GRID).mean() / (2 * np.exp(GRID).mean()))
    assert in_units.iloc[0].ci_low < 0.5 < in_units.iloc[0].ci_high


def test_a_mixture_lies_on_the_hull_and_a_better_method_above_it():
    results = rows(
        {
            "cheap": GRID * 0 + 0.2,
            "expensive": GRID * 0 + 0.8,
            "poor": GRID * 0 + 0.1,
            "router": GRID * 0 + 0.6,
        }
    )
    results["cost_usd"] = results["method"].map(
        {"cheap": 1.0, "expensive": 4.0, "poor": 2.0, "router": 2.0}
    )
    mixed_methods = {"method": ["cheap", "expensive", "poor"]}
    estimate = stats.gain_over_mixture(
        results, "correct", "cost_usd", {"method": "router"}, mixed_methods
    )
    assert estimate.iloc[0].value == pytest.approx(0.6 - 0.4)
    assert stats.gain_over_mixture(
        results, "correct", "cost_usd", {"method": "expensive"}, mixed_methods
    ).iloc[0].value == pytest.approx(0)
    results.loc[results["method"] == "router", "cost_usd"] = 0.5
    with pytest.raises(ValueError, match="below that of every method"):
        stats.gain_over_mixture(results, "correct", "cost_usd", {"method": "router"}, mixed_methods)


def test_shares_have_exact_intervals():
    results = rows({"a": np.array([[1.0] * 9 + [0.0]])})
    expected = scipy_stats.binomtest(9, 10).proportion_ci(0.95, method="exact")
    estimate = stats.mean(results, "correct").iloc[0]
    assert (estimate.ci_low, estimate.ci_high) == pytest.approx((expected.low, expected.high))
    assert stats.success_rate(rows({"a": np.ones((10, 2))}), "correct", 0.5).iloc[
        0
    ].ci_low == pytest.approx(0.025 ** (1 / 10))


def test_a_statistic_of_one_run_has_a_bootstrap_of_its_own_stream():
    results = rows({"a": GRID[:1], "b": GRID[1:2]})
    estimate = stats.statistic(results, ["correct"], np.median, "method")
    again = stats.statistic(results[results["method"] == "b"], ["correct"], np.median, "method")
    assert (
        estimate.loc["b"].equals(again.loc["b"])
        and estimate.loc["b"].ci_low < estimate.loc["b"].value
    )


def test_pooling_lends_few_runs_the_variance_of_all_methods():
    results = rows({name: rng("test", "pool", name).normal(size=(3, 6)) for name in "abcdef"})
    separate, pooled = (
        stats.mean(results, "correct", "method", pool=pool) for pool in (False, True)
    )
    assert np.allclose(separate["value"], pooled["value"])
    widths = pooled["ci_high"] - pooled["ci_low"]
    assert np.allclose(widths, widths.iloc[0])
    with pytest.raises(ValueError, match="equal numbers"):
        stats.mean(results.drop(results.index[-6:]), "correct", "method", pool=True)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda table: table.assign(correct=np.nan), "missing in"),
        (lambda table: pd.concat([table, table]), "stands there twice"),
        (lambda table: table[table["method"] == "z"], "misspelled"),
        (lambda table: table.drop(table.index[-1]), "no partner"),
    ],
)
def test_errors_name_what_is_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        stats.paired_difference(
            change(rows({"b": GRID, "a": GRID})), "correct", {"method": "b"}, {"method": "a"}
        )


def test_runs_that_share_some_items_only_are_refused():
    with pytest.raises(ValueError, match="share items"):
        stats.mean(rows({"a": GRID}).drop(index=0), "correct")


# Coverage ------------------------------------------------------------------------------------------

DRAWS = 3_000


def compute_coverage(components, truth: float = 0.0) -> float:
    estimates = [method.to_row() for method in components]
    return float(np.mean([row["ci_low"] <= truth <= row["ci_high"] for row in estimates]))


def study(stream, runs: int, items: int = 40, by_run: float = 0.1) -> np.ndarray:
    effects = stream.normal(0, by_run, (runs, 1)) + stream.normal(0, 0.3, (1, items))
    return effects + stream.normal(0, 0.4, (runs, items))


@pytest.mark.parametrize("runs", coverage.RUNS)
@pytest.mark.parametrize("by_run", [0.0, 0.1, 0.6])
def test_crossed_intervals_cover_whichever_effect_rules(runs, by_run):
    stream = rng("test", "crossed", runs, str(by_run))
    assert (
        compute_coverage(
            random_effects.crossed_variance_components(study(stream, runs, by_run=by_run))
            for _ in range(DRAWS)
        )
        >= 0.93
    )


@pytest.mark.parametrize("runs", coverage.RUNS)
def test_intervals_of_means_of_normal_numbers_cover_as_they_say(runs):
    stream = rng("test", "student", runs)
    covered = compute_coverage(
        random_effects.sample_variance_components(stream.normal(size=runs), "runs", runs, 1)
        for _ in range(DRAWS)
    )
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("runs", coverage.RUNS)
def test_pooled_intervals_cover_where_methods_vary_alike(runs):
    stream = rng("test", "pooled", runs)
    studies = (
        [random_effects.crossed_variance_components(study(stream, runs)) for _ in range(4)]
        for _ in range(DRAWS // 3)
    )
    assert (
        0.93
        <= compute_coverage(
            random_effects.pool_variance_components(methods)[0] for methods in studies
        )
        <= 0.99
    )


@pytest.mark.parametrize("n", coverage.RUNS)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_exact_shares_never_cover_too_little(n, p):
    chances = scipy_stats.binom.pmf(range(n + 1), n, p)
    ends = [random_effects.clopper_pearson_interval(k, n) for k in range(n + 1)]
    assert (
        sum(c for c, (ci_low, ci_high) in zip(chances, ends, strict=True) if ci_low <= p <= ci_high)
        >= 0.95
    )


@pytest.mark.parametrize("kind", list(coverage.KINDS))
def test_every_kind_of_interval_covers_through_records_too(kind):
    assert coverage.coverage(kind, 5, 120) >= 0.9  # 120 studies tell .95 from .88, no finer


# Ranges


def test_the_interval_of_a_share_never_leaves_the_range_and_never_its_value():
    rows = pd.DataFrame(
        [
            {
                "seed": seed,
                "item": item,
                "sample": 0,
                "correct": float(seed + item > 0),
                "score": 1.0,
            }
            for seed in range(3)
            for item in range(4)
        ]
    )
    row = stats.mean(rows, "correct").iloc[0]
    assert 0 <= row["ci_low"] < row["value"] < row["ci_high"] == 1


def test_a_percentage_is_not_taken_for_a_share_by_its_name():
    rows = pd.DataFrame(
        {"seed": [0, 1, 2], "item": [0, 1, 2], "sample": 0, "accuracy": [99.0, 60.0, 80.0]}
    )
    assert stats.mean(rows, "accuracy")["ci_high"].item() > 100


def test_a_statistic_ends_its_interval_where_its_range_ends():
    rows = pd.DataFrame({"seed": [0, 1, 2], "item": [0, 1, 2], "sample": 0, "x": [0.0, 0.1, 0.9]})
    free = stats.statistic(rows, ["x"], np.mean)
    bounded = stats.statistic(rows, ["x"], np.mean, bounds=(0, 1))
    assert free["ci_low"].item() < 0 == bounded["ci_low"].item() and bounded["ci_high"].item() == 1


def test_a_bootstrap_that_leaves_out_its_own_statistic_gives_no_interval():
    rows = pd.DataFrame({"seed": 0, "item": range(8), "sample": 0, "x": np.arange(8.0)})
    num_different = stats.statistic(rows, ["x"], lambda points: len(np.unique(points)))
    assert num_different["value"].item() == 8 and num_different["ci_low"].isna().all()


@pytest.mark.parametrize(
    ("key", "bounds"),
    [
        ("KO.accuracy", (0, 1)),
        ("accuracy", (0, 1)),
        ("KO.cost_usd", (0, np.inf)),
        ("gap.KO.accuracy", (-np.inf, np.inf)),
        ("KO.accuracy_minus.random", (-np.inf, np.inf)),
        ("KO.gain_accuracy", (-np.inf, np.inf)),
        ("KO.reward", (-np.inf, np.inf)),
    ],
)
def test_the_range_of_a_metric_follows_from_the_last_part_of_its_key(key, bounds):
    assert stats.range_of_name(key) == bounds


def test_two_runs_have_few_runs_and_the_items_of_one_run_do_not():
    assert [stats.has_few_runs(n) for n in (0, 1, 2, 3)] == [False, False, True, False]
    assert str(stats.t_interval(np.array([1.0, 2.0]))) == "1.50 (n = 2 seeds)"
