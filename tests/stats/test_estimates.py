"""Estimates from records: by hand, by simulation, and inside pairs."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from lib import stats
from lib.experiment.seeds import rng
from lib.stats import random_effects
from tests.stats import coverage


def rows(values: dict[str, np.ndarray], own_items: bool = False, **columns) -> pd.DataFrame:
    """A record of arms: values (runs, items) of `right`."""
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
    rest = GRID - by_run[:, None] - by_item + mean
    squares = np.array([by_run.var(ddof=1) * 6, by_item.var(ddof=1) * 4, -(rest**2).sum() / 15])
    if squares.sum() < squares[:2].max():  # one of the effects is not seen
        squares = np.where(squares == squares[:2].max(), squares, 0)
    freedom = squares.sum() ** 2 / (squares**2 / [3, 5, 15]).sum()
    half = scipy_stats.t.ppf(0.975, freedom) * (squares.sum() / 24) ** 0.5
    found = stats.mean(rows({"a": GRID}), "correct", "method").loc["a"]
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx(
        (mean, mean - half, mean + half)
    )
    assert (found["num_runs"], found["num_items"]) == (4, 6)


def test_where_one_effect_is_all_there_is_crossed_is_student_s_interval_of_it():
    by_run, by_item = GRID[:, :1] + 0 * GRID, GRID[:1] + 0 * GRID
    for grid, values in ((by_run, GRID[:, 0]), (by_item, GRID[0])):
        found, known = random_effects.crossed(grid).row(), stats.t_interval(values)
        assert (found["value"], found["ci_low"], found["ci_high"]) == pytest.approx(
            (known.value, known.ci_low, known.ci_high)
        )


def test_runs_with_items_of_their_own_have_student_s_interval_of_their_means():
    found = stats.mean(rows({"a": GRID}, own_items=True), "correct", "method").loc["a"]
    expected = scipy_stats.ttest_1samp(GRID.mean(1), 0)
    interval = expected.confidence_interval(0.95)
    assert (found.ci_low, found.ci_high, found.p_value) == pytest.approx(
        (interval.low, interval.high, expected.pvalue)
    )


def test_a_gap_is_taken_inside_pairs():
    shared = np.linspace(-5, 5, 6)  # items differ far more than arms do
    made = rows({"a": GRID + shared + 1, "b": GRID + shared})
    found = stats.gap(made, "correct", {"method": "a"}, {"method": "b"}).iloc[0]
    assert found.value == pytest.approx(1) and found.ci_high - found.ci_low < 1e-9
    shuffled = made.sample(frac=1, random_state=1)
    assert stats.gap(shuffled, "correct", {"method": "a"}, {"method": "b"}).iloc[
        0
    ].value == pytest.approx(1)


def test_one_run_that_all_share_is_paired_with_each():
    made = pd.concat([rows({"a": GRID}), rows({"b": GRID[:1]})])
    found = stats.gap(made, "correct", {"method": "a"}, {"method": "b"}).iloc[0]
    assert found.value == pytest.approx((GRID - GRID[:1]).mean()) and found.num_runs == 4
    turned = stats.gap(made, "correct", {"method": "b"}, {"method": "a"}).iloc[0]
    assert (turned.value, turned.ci_low) == pytest.approx((-found.value, -found.ci_high))


def test_tries_of_an_item_are_averaged():
    twice = pd.concat([rows({"a": GRID}), rows({"a": GRID + 1}).assign(**{"sample": 1})])
    assert stats.mean(twice, "correct").iloc[0].value == pytest.approx(GRID.mean() + 0.5)
    assert stats.mean(twice, "correct").iloc[0]["num_items"] == 6


def test_a_change_less_that_of_a_control_is_a_difference_in_differences():
    made = pd.concat(
        [rows({"m": GRID, "c": GRID}, step=0), rows({"m": GRID + 3, "c": GRID + 1}, step=-1)]
    )
    steps = {"step": 0}, {"step": -1}
    assert stats.change(made[made["method"] == "m"], "correct", *steps).iloc[
        0
    ].value == pytest.approx(3)
    assert stats.change(made, "correct", *steps, against={"method": "c"}).iloc[
        0
    ].value == pytest.approx(2)


def test_a_ratio_and_its_ends_do_not_depend_on_the_unit():
    made = rows({"a": np.exp(GRID), "b": np.exp(GRID[:, ::-1]) * 2})
    one, thousand = (
        stats.ratio(
            made.assign(correct=made["correct"] * unit), "correct", {"method": "a"}, {"method": "b"}
        )
        for unit in (1, 1000)
    )
    pd.testing.assert_frame_equal(one, thousand)
    assert one.iloc[0].value == pytest.approx(np.exp(GRID).mean() / (2 * np.exp(GRID).mean()))
    assert one.iloc[0].ci_low < 0.5 < one.iloc[0].ci_high


def test_a_mixture_lies_on_the_hull_and_what_is_better_above_it():
    made = rows(
        {
            "cheap": GRID * 0 + 0.2,
            "dear": GRID * 0 + 0.8,
            "poor": GRID * 0 + 0.1,
            "router": GRID * 0 + 0.6,
        }
    )
    made["cost_usd"] = made["method"].map({"cheap": 1.0, "dear": 4.0, "poor": 2.0, "router": 2.0})
    among = {"method": ["cheap", "dear", "poor"]}
    found = stats.above_mixtures(made, "correct", "cost_usd", {"method": "router"}, among)
    assert found.iloc[0].value == pytest.approx(0.6 - 0.4)
    assert stats.above_mixtures(made, "correct", "cost_usd", {"method": "dear"}, among).iloc[
        0
    ].value == pytest.approx(0)
    made.loc[made["method"] == "router", "cost_usd"] = 0.5
    with pytest.raises(ValueError, match="below that of every method"):
        stats.above_mixtures(made, "correct", "cost_usd", {"method": "router"}, among)


def test_shares_have_exact_intervals():
    made = rows({"a": np.array([[1.0] * 9 + [0.0]])})
    expected = scipy_stats.binomtest(9, 10).proportion_ci(0.95, method="exact")
    found = stats.mean(made, "correct").iloc[0]
    assert (found.ci_low, found.ci_high) == pytest.approx((expected.low, expected.high))
    assert stats.share(rows({"a": np.ones((10, 2))}), "correct", 0.5).iloc[
        0
    ].ci_low == pytest.approx(0.025 ** (1 / 10))


def test_a_statistic_of_one_run_has_a_bootstrap_of_its_own_stream():
    made = rows({"a": GRID[:1], "b": GRID[1:2]})
    found = stats.statistic(made, ["correct"], np.median, "method")
    again = stats.statistic(made[made["method"] == "b"], ["correct"], np.median, "method")
    assert found.loc["b"].equals(again.loc["b"]) and found.loc["b"].ci_low < found.loc["b"].value


def test_pooling_lends_few_runs_the_variance_of_all_arms():
    made = rows({name: rng("test", "pool", name).normal(size=(3, 6)) for name in "abcdef"})
    alone, together = (stats.mean(made, "correct", "method", pool=pool) for pool in (False, True))
    assert np.allclose(alone["value"], together["value"])
    widths = together["ci_high"] - together["ci_low"]
    assert np.allclose(widths, widths.iloc[0])
    with pytest.raises(ValueError, match="equal numbers"):
        stats.mean(made.drop(made.index[-6:]), "correct", "method", pool=True)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda made: made.assign(correct=np.nan), "missing in"),
        (lambda made: pd.concat([made, made]), "stands there twice"),
        (lambda made: made[made["method"] == "z"], "misspelled"),
        (lambda made: made.drop(made.index[-1]), "no partner"),
    ],
)
def test_errors_name_what_is_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        stats.gap(change(rows({"b": GRID, "a": GRID})), "correct", {"method": "b"}, {"method": "a"})


def test_runs_that_share_some_items_only_are_refused():
    with pytest.raises(ValueError, match="share items"):
        stats.mean(rows({"a": GRID}).drop(index=0), "correct")


# Coverage ------------------------------------------------------------------------------------------

DRAWS = 3_000


def covered(spreads, truth: float = 0.0) -> float:
    found = [spread.row() for spread in spreads]
    return float(np.mean([row["ci_low"] <= truth <= row["ci_high"] for row in found]))


def study(stream, runs: int, items: int = 40, by_run: float = 0.1) -> np.ndarray:
    effects = stream.normal(0, by_run, (runs, 1)) + stream.normal(0, 0.3, (1, items))
    return effects + stream.normal(0, 0.4, (runs, items))


@pytest.mark.parametrize("runs", coverage.RUNS)
@pytest.mark.parametrize("by_run", [0.0, 0.1, 0.6])
def test_crossed_intervals_cover_whichever_effect_rules(runs, by_run):
    stream = rng("test", "crossed", runs, str(by_run))
    assert (
        covered(random_effects.crossed(study(stream, runs, by_run=by_run)) for _ in range(DRAWS))
        >= 0.93
    )


@pytest.mark.parametrize("runs", coverage.RUNS)
def test_intervals_of_means_of_normal_numbers_cover_as_they_say(runs):
    stream = rng("test", "student", runs)
    kept = covered(
        random_effects.sample(stream.normal(size=runs), "runs", runs, 1) for _ in range(DRAWS)
    )
    assert 0.93 <= kept <= 0.97


@pytest.mark.parametrize("runs", coverage.RUNS)
def test_pooled_intervals_cover_where_arms_are_alike(runs):
    stream = rng("test", "pooled", runs)
    arms = (
        [random_effects.crossed(study(stream, runs)) for _ in range(4)] for _ in range(DRAWS // 3)
    )
    assert 0.93 <= covered(random_effects.pooled(each)[0] for each in arms) <= 0.99


@pytest.mark.parametrize("n", coverage.RUNS)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_exact_shares_never_cover_too_little(n, p):
    chances = scipy_stats.binom.pmf(range(n + 1), n, p)
    ends = [random_effects.exact_share(k, n) for k in range(n + 1)]
    assert (
        sum(c for c, (ci_low, ci_high) in zip(chances, ends, strict=True) if ci_low <= p <= ci_high)
        >= 0.95
    )


@pytest.mark.parametrize("kind", list(coverage.KINDS))
def test_every_kind_of_interval_covers_through_records_too(kind):
    assert coverage.coverage(kind, 5, 120) >= 0.9  # 120 studies tell .95 from .88, no finer
