import importlib
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib import stats
from lib.experiment.seeds import rng

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


@pytest.mark.parametrize(
    "points, expected", [([(1, 1, 0)], 4), ([(0, 1, 0.5)], 3), (TWO_POINT_FRONT, 7.91)]
)
def test_hypervolume_of_the_paper_s_minigrid_corners(points, expected):
    assert round(stats.hypervolume(points, BELOW), 2) == expected


def test_sparsity_of_the_paper_s_two_point_front():
    assert round(stats.sparsity(TWO_POINT_FRONT), 2) == 0.25


def test_sparsity_sorts_each_objective_separately():
    # front sorted by objective: 0 1 3 and 0 2 3; squared gaps 1 + 4 + 4 + 1, over |S| - 1 = 2
    assert stats.sparsity([(0, 3), (1, 2), (3, 0)]) == 5


@given(grids())
def test_front_is_exactly_what_nothing_dominates(points):
    front = points[stats.pareto_front(points)]

    def dominated(p):
        return any((q >= p).all() and (q > p).any() for q in points)

    assert {tuple(p) for p in front} == {tuple(p) for p in points if not dominated(p)}
    assert len(np.unique(front, axis=0)) == len(front)


@given(grids())
def test_hypervolume_equals_inclusion_exclusion(points):
    assert stats.hypervolume(points, BELOW) == pytest.approx(
        inclusion_exclusion(points, BELOW), abs=1e-9
    )


def test_one_objective_is_a_length():
    assert stats.hypervolume([[0.5], [2.0]], [-1.0]) == 3
    assert stats.pareto_front([[0.5], [2.0]]).tolist() == [False, True]


def test_union_hypervolume_grows_with_the_number_of_episodes():
    episodes = rng("test", "union").random((200, 3))
    values = [
        stats.hv_union(episodes, BELOW, n, rng("test", "subsets")) for n in (1, 5, 25, 100, 200)
    ]
    assert values == sorted(values) and values[-1] > 1.3 * values[0]
    assert values[-1] == stats.hypervolume(episodes, BELOW)


def test_union_flatters_a_method_that_is_seldom_good():
    steady = np.full((50, 2), 0.5)
    lottery = np.where(np.arange(50)[:, None] % 10 == 0, 1.0, 0.0) * np.ones(2)
    assert stats.hv_union(lottery, (-1, -1)) > stats.hv_union(steady, (-1, -1))
    mean_of_lottery = lottery.mean(axis=0, keepdims=True)  # (1, 2)
    mean_of_steady = steady.mean(axis=0, keepdims=True)
    assert stats.hypervolume(mean_of_lottery, (-1, -1)) < stats.hypervolume(
        mean_of_steady, (-1, -1)
    )


@pytest.mark.parametrize("runs", [3, 5, 40])
def test_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says(runs):
    source = rng("test", "coverage")
    inside = [
        not stats.mean_interval(source.normal(1.0, 2.0, size=runs), source).excludes(1.0)
        for _ in range(400)
    ]
    assert 0.91 <= np.mean(inside) <= 0.98


def test_few_runs_have_student_s_interval_and_many_a_bootstrap():
    values = rng("test", "few").normal(size=stats.FEW)
    few, many = values[: stats.FEW - 1], values
    assert stats.mean_interval(few, rng("test", "a")) == stats.t_interval(few)
    interval = stats.mean_interval(many, rng("test", "a"))
    assert interval == stats.mean_interval(many, rng("test", "a")) != stats.t_interval(many)
    assert interval.ci_low < interval.value == many.mean() < interval.ci_high


def test_memory_limit_of_the_bootstrap_does_not_show_in_its_size(monkeypatch):
    monkeypatch.setattr(importlib.import_module("lib.stats.intervals"), "_CELLS", 100)
    interval = stats.mean_interval(np.arange(30.0), rng("test", "chunks"))
    assert interval.ci_low < 14.5 < interval.ci_high


def test_one_run_has_no_interval():
    interval = stats.mean_interval([0.3], rng("test", "one"))
    assert interval.value == 0.3 and not interval.known and not interval.excludes(9)
    assert str(interval) == "0.30 (one run, no interval)"
    assert interval.as_metrics("hv") == {"hv": 0.3}


def test_interval_becomes_flat_metrics():
    assert stats.Interval(2.0, 1.0, 3.0).as_metrics("hv") == {
        "hv": 2.0,
        "hv_ci_low": 1.0,
        "hv_ci_high": 3.0,
    }


def test_student_s_interval_covers_the_truth_as_often_as_it_says():
    runs = rng("test", "student").normal(0, 1, size=(4_000, 3))
    covered = np.mean([not stats.t_interval(three).excludes(0.0) for three in runs])
    assert covered == pytest.approx(0.95, abs=0.015)
    assert not stats.t_interval([1.0]).known
    with pytest.raises(ValueError, match="shape"):
        stats.t_interval([[1.0, 2.0]])


# Routers -------------------------------------------------------------------------------------------

COSTS, QUALITIES = [4.0, 1.0, 2.0, 3.0, 5.0], [0.8, 0.2, 0.6, 0.6, 0.7]  # hull: 1, 2, 4


def curve(rows: int = 7):
    """Costs and qualities on a coarse grid, so that ties, duplicates and points on one line are common."""
    coordinate = st.integers(0, 6).map(float)
    return st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=rows).map(
        lambda points: np.array(points).T
    )


def best_mixture(costs: np.ndarray, qualities: np.ndarray, cost: float) -> float:
    """Best quality over single points and over mixtures of two that cost at most `cost`, by trying all."""
    qualities_within_cost = [q for c, q in zip(costs, qualities, strict=True) if c <= cost]
    for i, j in combinations(range(len(costs)), 2):
        if min(costs[i], costs[j]) <= cost < max(costs[i], costs[j]):
            share = (cost - costs[i]) / (costs[j] - costs[i])
            qualities_within_cost.append(qualities[i] + share * (qualities[j] - qualities[i]))
    return max(qualities_within_cost)


def test_hull_by_hand():
    assert stats.hull(COSTS, QUALITIES).tolist() == [1, 2, 0]
    assert stats.hull([1, 2, 3], [0.25, 0.5, 0.75]).tolist() == [
        0,
        2,
    ]  # what lies on a line adds nothing
    assert stats.hull([1, 1, 1], [0.1, 0.3, 0.3]).tolist() == [1]
    assert stats.hull([2, 1], [0.5, 0.5]).tolist() == [1]
    assert stats.hull([1, 2, 3], [0.5, 0.1, 0.6]).tolist() == [0, 2]


def test_height_of_the_hull_by_hand():
    heights = {1: 0.2, 1.5: 0.4, 2: 0.6, 3: 0.7, 4: 0.8, 9: 0.8}
    for cost, height in heights.items():
        assert stats.hull_at(COSTS, QUALITIES, cost) == pytest.approx(height)


def test_aiq_by_hand():
    # from 1 to 2 on average 0.4, from 2 to 4 0.7, then flat at 0.8
    assert stats.aiq(COSTS, QUALITIES, 1, 4) == pytest.approx((0.4 + 2 * 0.7) / 3)
    assert stats.aiq(COSTS, QUALITIES, 1, 6) == pytest.approx((0.4 + 2 * 0.7 + 2 * 0.8) / 5)
    assert stats.aiq(COSTS, QUALITIES, 1.5, 2) == pytest.approx(0.5)
    assert stats.aiq([1], [0.3], 2, 5) == pytest.approx(0.3)


@given(curve())
def test_hull_rises_with_falling_slopes_from_the_cheapest_point(points):
    costs, qualities = points
    at = stats.hull(costs, qualities)
    assert costs[at[0]] == costs.min() and qualities[at[0]] == qualities[costs == costs.min()].max()
    assert qualities[at[-1]] == qualities.max()
    runs, rises = np.diff(costs[at]), np.diff(qualities[at])
    assert (runs > 0).all() and (rises > 0).all() and (np.diff(rises / runs) < 0).all()


@given(curve(), st.floats(0, 8))
def test_hull_is_the_best_that_any_mixture_of_two_reaches(points, cost):
    costs, qualities = points
    if cost < costs.min():
        with pytest.raises(ValueError, match="cheapest point costs"):
            stats.hull_at(costs, qualities, cost)
    else:
        assert stats.hull_at(costs, qualities, cost) == pytest.approx(
            best_mixture(costs, qualities, cost)
        )


@given(curve(), st.tuples(st.floats(0, 6), st.floats(0, 6)))
def test_another_point_never_lowers_aiq_and_units_of_cost_do_not_matter(points, extra):
    costs, qualities = np.append(points[0], 0), np.append(points[1], 0)
    before = stats.aiq(costs, qualities, 0, 6)
    assert (
        stats.aiq(np.append(costs, extra[0]), np.append(qualities, extra[1]), 0, 6) >= before - 1e-9
    )
    assert stats.aiq(costs * 1e-6, qualities, 0, 6e-6) == pytest.approx(before)
    assert qualities.min() - 1e-9 <= before <= qualities.max() + 1e-9


def test_pgr_is_0_for_the_weak_model_and_1_for_the_strong_model():
    assert stats.pgr(np.array([0.6, 0.7, 0.8, 0.9]), 0.6, 0.8) == pytest.approx([0, 0.5, 1, 1.5])


def test_apgr_and_cpt_by_hand():
    shares, qualities = [0.5, 0, 1], [0.75, 0.6, 0.8]  # PGR 0.75, 0, 1
    assert stats.apgr(shares, qualities, 0.6, 0.8) == pytest.approx(0.5 * 0.375 + 0.5 * 0.875)
    thresholds = {0: 0, 0.375: 0.25, 0.5: 1 / 3, 0.75: 0.5, 0.8: 0.6, 1: 1}
    for target, share in thresholds.items():
        assert stats.cpt(shares, qualities, 0.6, 0.8, target) == pytest.approx(share)


def test_calls_thrown_at_random_recover_half_of_the_gap():
    shares = np.linspace(0, 1, 11)
    assert stats.apgr(shares, 0.6 + 0.2 * shares, 0.6, 0.8) == pytest.approx(0.5)
    assert stats.cpt(shares, 0.6 + 0.2 * shares, 0.6, 0.8, 0.8) == pytest.approx(0.8)


def test_points_with_one_share_count_with_their_mean():
    assert stats.apgr([0, 0.5, 0.5, 1], [0, 0.4, 0.8, 1], 0, 1) == stats.apgr(
        [0, 0.5, 1], [0, 0.6, 1], 0, 1
    )


def test_cpt_refuses_a_curve_that_falls_and_names_the_fall():
    shares, qualities = [0, 0.25, 0.5, 0.75, 1], [0.6, 0.7, 0.65, 0.62, 0.8]
    with pytest.raises(
        ValueError, match=r"falls by 0\.05 between the shares 0\.25 and 0\.5.*more prompts"
    ):
        stats.cpt(shares, qualities, 0.6, 0.8, 0.5)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.floats(0, 1))
def test_cpt_is_the_least_share_that_recovers_the_target(steps, target):
    qualities = np.cumsum([0, *steps, 1]).astype(float)
    shares = np.linspace(0, 1, len(qualities))
    threshold = stats.cpt(shares, qualities, 0, qualities[-1], target)
    recovered = np.interp(threshold, shares, qualities / qualities[-1])
    assert recovered >= target - 1e-6
    if threshold > 1e-3:
        assert np.interp(threshold - 1e-3, shares, qualities / qualities[-1]) < target


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: stats.pareto_front([1.0, 2.0]), "shape (2,)"),
        (lambda: stats.pareto_front([[np.nan, 1.0]]), "finite"),
        (lambda: stats.hypervolume([[1.0, 2.0]], BELOW), "2 objectives"),
        (lambda: stats.hv_union([[1.0], [2.0]], [0.0], 3), "between 1 and the 2 episodes"),
        (lambda: stats.hv_union([[1.0], [2.0]], [0.0], 1), "needs a generator"),
        (lambda: stats.mean_interval([], rng("test")), "shape (0,)"),
        (lambda: stats.mean_interval([[1.0], [2.0]], rng("test")), "shape (2, 1)"),
        (lambda: stats.hull([1.0], [1.0, 2.0]), "shapes (1,) and (2,)"),
        (lambda: stats.hull([], []), "n > 0"),
        (lambda: stats.hull([1.0, np.inf], [1.0, 2.0]), "infinite"),
        (lambda: stats.hull_at([2.0], [1.0], 1.5), "the cheapest point costs 2; ask for that much"),
        (
            lambda: stats.aiq([2.0, 3.0], [1.0, 2.0], 1.5, 3),
            "begins at cost 2, above min_cost = 1.5; add the cheapest model",
        ),
        (lambda: stats.aiq([2.0, 3.0], [1.0, 2.0], 3, 3), "min_cost < max_cost, got 3 and 3"),
        (lambda: stats.pgr(0.7, 0.8, 0.8), "the strong model scores 0.8, the weak one 0.8"),
        (
            lambda: stats.apgr([0.0, 0.9], [0.1, 0.2], 0.1, 0.2),
            "must hold the shares 0 and 1, got 0 to 0.9",
        ),
        (lambda: stats.apgr([0.0, 1.1], [0.1, 0.2], 0.1, 0.2), "lie in [0, 1], got 0 to 1.1"),
        (
            lambda: stats.cpt([0.0, 1.0], [0.1, 0.2], 0.1, 0.2, 50),
            "target of a CPT must lie in [0, 1], got 50",
        ),
        (
            lambda: stats.cpt([0.0, 1.0], [0.1, 0.2], 0.1, 0.3, 0.8),
            "PGR ends at 0.5 and never reaches 0.8",
        ),
    ],
)
def test_errors_name_the_value_and_what_would_be_right(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


# Groups -------------------------------------------------------------------------------------------


def test_items_that_are_their_own_groups_have_student_s_interval():
    values = rng("test", "grouped").normal(size=40)
    grouped = stats.grouped_interval(values, np.arange(40))
    student = stats.t_interval(values)
    assert np.allclose(
        [grouped.value, grouped.ci_low, grouped.ci_high],
        [student.value, student.ci_low, student.ci_high],
    )


def test_groups_that_vary_whole_widen_the_interval_until_it_covers():
    """Twenty groups of ten alike values: intervals over items cover far too seldom, those over groups as they say."""
    draw, covered = rng("test", "grouped", "coverage"), {"groups": 0, "items": 0}
    groups = np.repeat(np.arange(20), 10)
    for _ in range(300):
        values = draw.normal(size=20)[groups] + 0.3 * draw.normal(size=200)
        covered["groups"] += not stats.grouped_interval(values, groups).excludes(0)
        covered["items"] += not stats.t_interval(values).excludes(0)
    assert covered["groups"] > 0.91 * 300 and covered["items"] < 0.7 * 300


def test_one_group_gives_no_interval_and_unequal_shapes_are_refused():
    assert not stats.grouped_interval(np.arange(5.0), np.zeros(5)).known
    with pytest.raises(ValueError, match="equal"):
        stats.grouped_interval(np.arange(5.0), np.zeros(4))
