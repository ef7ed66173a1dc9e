from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib import stats
from lib.seeds import rng

BELOW = (-1.0, -1.0, -1.0)  # reference point of the policy orchestration paper
TWO_POINT_FRONT = [(0.98, 1, 0.5), (0.97, 1, 1)]


def grids(rows: int = 6, objectives: int = 3):
    """Small sets of points on a coarse grid, so that ties and duplicates are common."""
    shape = st.tuples(st.integers(1, rows), st.just(objectives))
    return arrays(float, shape, elements=st.integers(-2, 4).map(float))


def inclusion_exclusion(points: np.ndarray, reference: np.ndarray) -> float:
    """Exact volume of a union of boxes: sum over subsets T of (-1)^(|T|+1) vol(intersection of T)."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for subset in combinations(points, size):
            corner = np.min(subset, axis=0)
            total += (-1) ** (size + 1) * np.prod(np.clip(corner - reference, 0, None))
    return total


@pytest.mark.parametrize("points, expected", [([(1, 1, 0)], 4), ([(0, 1, 0.5)], 3), (TWO_POINT_FRONT, 7.91)])
def test_hypervolume_of_the_paper_s_minigrid_corners(points, expected):
    assert round(stats.hypervolume(points, BELOW), 2) == expected


def test_sparsity_of_the_paper_s_two_point_front():
    assert round(stats.sparsity(TWO_POINT_FRONT), 2) == 0.25


def test_sparsity_sorts_each_objective_on_its_own():
    # front sorted by objective: 0 1 3 and 0 2 3; squared gaps 1 + 4 + 4 + 1, over |S| - 1 = 2
    assert stats.sparsity([(0, 3), (1, 2), (3, 0)]) == 5


def test_sparsity_of_one_point_is_zero_and_so_misleads():
    narrow, wide = [(1.0, 0.0)], [(3.0, 1.0), (1.0, 3.0)]
    assert stats.sparsity(narrow) == 0 < stats.sparsity(wide)
    assert stats.hypervolume(narrow, (-1, -1)) < stats.hypervolume(wide, (-1, -1))


def test_front_keeps_equal_points_once_and_drops_dominated_ones():
    points = [(1, 2), (1, 2), (0, 1), (2, 0), (1, 1)]
    assert stats.pareto_front(points).tolist() == [True, False, False, True, False]
    assert stats.cardinality(points) == 2


@given(grids())
def test_front_is_exactly_what_nothing_dominates(points):
    front = points[stats.pareto_front(points)]

    def dominated(p):
        return any((q >= p).all() and (q > p).any() for q in points)

    assert {tuple(p) for p in front} == {tuple(p) for p in points if not dominated(p)}
    assert len(np.unique(front, axis=0)) == len(front)


@given(grids())
def test_hypervolume_equals_inclusion_exclusion(points):
    assert stats.hypervolume(points, BELOW) == pytest.approx(inclusion_exclusion(points, BELOW), abs=1e-9)


@given(grids(), grids(rows=1))
def test_adding_a_point_never_lowers_hypervolume(points, extra):
    before = stats.hypervolume(points, BELOW)
    assert stats.hypervolume(np.vstack([points, extra]), BELOW) >= before - 1e-9


@given(grids())
def test_dominated_points_do_not_change_hypervolume(points):
    front = points[stats.pareto_front(points)]
    assert stats.hypervolume(front, BELOW) == pytest.approx(stats.hypervolume(points, BELOW), abs=1e-9)


def test_points_not_above_the_reference_contribute_nothing():
    assert stats.hypervolume([(-1, 5, 5), (3, -2, 3)], BELOW) == 0
    assert stats.hypervolume([(1, 1, 0), (-1, 5, 5)], BELOW) == 4
    assert stats.hypervolume(np.empty((0, 3)), BELOW) == 0


def test_one_objective_is_a_length():
    assert stats.hypervolume([[0.5], [2.0]], [-1.0]) == 3
    assert stats.pareto_front([[0.5], [2.0]]).tolist() == [False, True]


def test_union_hypervolume_grows_with_the_number_of_episodes():
    episodes = rng("test", "union").random((200, 3))
    values = [stats.hv_union(episodes, BELOW, n, rng("test", "subsets")) for n in (1, 5, 25, 100, 200)]
    assert values == sorted(values) and values[-1] > 1.3 * values[0]
    assert values[-1] == stats.hypervolume(episodes, BELOW)


def test_mean_hypervolume_does_not_grow_with_the_number_of_seeds():
    means = rng("test", "means").random((5, 3))
    assert stats.hv_mean(np.tile(means, (7, 1)), BELOW) == pytest.approx(stats.hv_mean(means, BELOW))
    assert stats.hv_mean([(1, 1, 0), (0, 1, 0.5)], BELOW) == 3.5


def test_mean_hypervolume_of_a_front_per_seed():
    fronts = [[(1, 1, 0), (0, 0, 0)], TWO_POINT_FRONT]
    assert stats.hv_by_seed(fronts, BELOW) == pytest.approx([4, 7.91])


def test_union_flatters_a_method_that_is_seldom_good():
    steady = np.full((50, 2), 0.5)
    lottery = np.where(np.arange(50)[:, None] % 10 == 0, 1.0, 0.0) * np.ones(2)
    assert stats.hv_union(lottery, (-1, -1)) > stats.hv_union(steady, (-1, -1))
    assert stats.hv_mean([lottery.mean(0)], (-1, -1)) < stats.hv_mean([steady.mean(0)], (-1, -1))


def test_iqm_is_the_mean_of_the_middle_half():
    assert stats.iqm([0, 0, 1, 2, 3, 4, 100, -100]) == pytest.approx((0 + 1 + 2 + 3) / 4)
    assert stats.iqm([1.0, 3.0]) == 2


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    source = rng("test", "coverage")
    inside = [not stats.mean_interval(source.normal(1.0, 2.0, size=40), source).excludes(1.0) for _ in range(400)]
    assert 0.90 <= np.mean(inside) <= 0.98


def test_bootstrap_exchanges_runs_only_within_a_stratum():
    strata = np.array([[0.0, 100.0], [0.0, 100.0], [0.0, 100.0]])  # nothing varies within a column
    interval = stats.mean_interval(strata, rng("test", "strata"))
    assert (interval.value, interval.lo, interval.hi) == (50, 50, 50)


def test_bootstrap_draws_each_stratum_on_its_own():
    # two columns with opposite runs: drawn together their mean would always be 0.5
    strata = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    interval = stats.mean_interval(strata, rng("test", "own"))
    assert interval.lo < 0.5 < interval.hi


def test_bootstrap_takes_any_statistic_with_an_axis_and_repeats_under_the_same_generator():
    values = rng("test", "repeat").random((12, 3))
    first, again = (stats.bootstrap_interval(values, stats.iqm, rng("test", "draws"), 0.9) for _ in range(2))
    assert first == again and first.lo < first.value < first.hi


def test_memory_limit_of_the_bootstrap_does_not_show_in_its_size(monkeypatch):
    monkeypatch.setattr(stats, "_CELLS", 100)
    interval = stats.mean_interval(np.arange(30.0), rng("test", "chunks"))
    assert interval.lo < 14.5 < interval.hi


def test_one_run_has_no_interval():
    interval = stats.mean_interval([0.3], rng("test", "one"))
    assert interval.value == 0.3 and not interval.known and not interval.excludes(9)
    assert str(interval) == "0.30 (one run, no interval)"
    assert interval.as_metrics("hv") == {"hv": 0.3}


def test_interval_becomes_flat_metrics():
    assert stats.Interval(2.0, 1.0, 3.0).as_metrics("hv") == {"hv": 2.0, "hv_lo": 1.0, "hv_hi": 3.0}


def test_pairing_finds_a_difference_that_the_seeds_would_drown():
    seeds = rng("test", "pairs").normal(0, 10, size=20)
    better = seeds + 0.5 + rng("test", "noise").normal(0, 0.1, size=20)
    assert stats.paired_difference(better, seeds, rng("test", "paired")).excludes(0)
    assert not stats.mean_interval(better, rng("test", "alone")).excludes(0)


def test_crossed_intervals_admit_other_runs_and_other_items():
    draw = rng("test", "crossed")
    runs, items = draw.normal(0, 1.0, size=(6, 1)), draw.normal(0, 1.0, size=(1, 50))
    both = stats.crossed_interval(runs + items, rng("test", "both"))
    only_runs = stats.crossed_interval(runs + 0 * items, rng("test", "runs"))
    only_items = stats.crossed_interval(0 * runs + items, rng("test", "items"))
    assert both.value == pytest.approx((runs + items).mean())
    assert both.hi - both.lo > max(only_runs.hi - only_runs.lo, only_items.hi - only_items.lo)
    assert only_items.hi - only_items.lo == pytest.approx(2 * 1.96 * items.std() / 50**0.5, rel=0.15)
    assert not stats.crossed_interval(items, rng("test", "one")).known
    with pytest.raises(ValueError, match="shape"):
        stats.crossed_interval([1.0, 2.0], rng("test"))


def test_student_s_interval_covers_the_truth_as_often_as_it_says():
    runs = rng("test", "student").normal(0, 1, size=(4_000, 3))
    covered = np.mean([not stats.t_interval(three).excludes(0.0) for three in runs])
    assert covered == pytest.approx(0.95, abs=0.015)
    assert not stats.t_interval([1.0]).known
    with pytest.raises(ValueError, match="shape"):
        stats.t_interval([[1.0, 2.0]])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: stats.pareto_front([1.0, 2.0]), "shape (2,)"),
        (lambda: stats.pareto_front([[np.nan, 1.0]]), "finite"),
        (lambda: stats.hypervolume([[1.0, 2.0]], BELOW), "2 objectives"),
        (lambda: stats.hv_union([[1.0], [2.0]], [0.0], 3), "between 1 and the 2 episodes"),
        (lambda: stats.hv_union([[1.0], [2.0]], [0.0], 1), "needs a generator"),
        (lambda: stats.hv_mean([1.0, 2.0], [0.0]), "(s, k)"),
        (lambda: stats.mean_interval([], rng("test")), "shape (0,)"),
        (lambda: stats.mean_interval([1.0, 2.0], rng("test"), level=95), "got 95"),
        (lambda: stats.paired_difference([1.0], [1.0, 2.0], rng("test")), "(1,) and (2,)"),
    ],
)
def test_errors_name_the_value_and_what_would_be_right(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
