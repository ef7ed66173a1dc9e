"""The picture of everybody, and what its sentences say, from made-up meetings that can be worked out on paper."""

import math
from dataclasses import astuple

import numpy as np
import pandas as pd
import pytest

from lib import stats
from lib.draw import png
from lib.meeting.chains import EXPERT, ORACLE, PAPER, ROUTER
from lib.page.lesson import _KEY
from lib.reporting import meeting
from lib.stats import Interval

UNITS = 10


def rows(maker: str, point: str, kind: str, right, dollars: float, seeds: int = 1) -> list[dict]:
    """right: on how many of ten questions in each seed, the first ones; or a quality for all of them."""
    told = right if isinstance(right, list) else [right] * seeds
    return [
        {"maker": maker, "point": point, "kind": kind, "seed": seed, "unit": unit, "dollars": float(dollars),
         "quality": float(unit < many) if isinstance(many, int) else many}
        for seed, many in enumerate(told)
        for unit in range(UNITS)
    ]  # fmt: skip


def chains() -> pd.DataFrame:
    """Experts are right on 2 of 10 for 10 dollars and on 8 of 10 for 100; nobody is right on nothing for nothing."""
    parts = [
        rows("lab-nano", "", EXPERT, 2, 10), rows("lab-large", "", EXPERT, 8, 100),
        rows("CoRL", "low", PAPER, [9, 9, 9], 10), rows("CoRL", "high", PAPER, [8, 8, 8], 100),
        rows("ARC", "", PAPER, [1, 1, 1], 55), rows("logistic", "low", ROUTER, 5, 55),
        rows("oracle", "low", ORACLE, 10, 20),
    ]  # fmt: skip
    return pd.DataFrame([row for part in parts for row in part])


def students(paid=(0.40, 0.41, 0.42), free=(0.30, 0.31, 0.32)) -> pd.DataFrame:
    """Three seeds; a random control, the best that is free, an oracle that is better, and two that pay."""
    parts = [
        rows("SO-d1", "", EXPERT, list(free), 0), rows("random", "", ROUTER, [0.1, 0.1, 0.1], 0),
        rows("oracle look-ahead", "", ORACLE, [0.9, 0.9, 0.9], 0),
        rows("RO scripted-large", "", PAPER, list(paid), 0.02),
        rows("RO scripted-large, with a budget", "$0.01", PAPER, [0.2, 0.21, 0.22], 0.01),
        rows("RO scripted-large, with a budget", "$0.3", PAPER, [0.3, 0.31, 0.32], 0.3),
    ]  # fmt: skip
    return pd.DataFrame([row for part in parts for row in part])


# Chains -------------------------------------------------------------------------------------------


def test_what_is_above_mixtures_is_worked_out_on_paper():
    """For 10 dollars the mixture of experts is right on 0.2; for 55, halfway between them, on 0.5; for 100 on 0.8."""
    gaps = meeting.above_mixtures(chains())
    assert {key: round(gap.value, 9) for key, gap in gaps.items()} == {
        ("CoRL", "low"): 0.7, ("CoRL", "high"): 0.0, ("ARC", ""): -0.4, ("logistic", "low"): 0.0
    }  # fmt: skip
    assert gaps["CoRL", "low"].excludes(0) and not gaps["CoRL", "high"].excludes(0)


def test_below_the_cheapest_expert_a_mixture_with_nobody_is_what_counts():
    """Half of the small expert's price, half of its answers."""
    cheap = pd.concat([chains(), pd.DataFrame(rows("CoRL", "none", PAPER, [0, 0, 0], 5))])
    assert meeting.above_mixtures(cheap)["CoRL", "none"].value == pytest.approx(-0.1)


# Students -----------------------------------------------------------------------------------------


def test_the_best_free_control_is_no_oracle_and_nobody_who_pays():
    best, paid = meeting.worth(students())
    assert best == ("SO-d1", "") and set(paid) == {
        ("RO scripted-large", ""), ("RO scripted-large, with a budget", "$0.01"),
        ("RO scripted-large, with a budget", "$0.3"),
    }  # fmt: skip
    found = paid["RO scripted-large", ""]
    assert (found.value, found.lo, found.hi) == pytest.approx((0.1, 0.1, 0.1))  # the same in every seed


def test_an_orchestrator_that_was_never_funded_is_no_control():
    broke = pd.DataFrame(rows("RO scripted-large, with a budget", "$0.001", PAPER, [0.8] * 3, 0))
    best, paid = meeting.worth(pd.concat([students(), broke]))
    assert best == ("SO-d1", "") and ("RO scripted-large, with a budget", "$0.001") not in paid


def test_pairs_are_of_one_seed_in_whatever_order_the_record_has_them():
    table = students()
    turned = pd.concat([table[table["kind"] != PAPER], table[table["kind"] == PAPER].iloc[::-1]])
    assert meeting.worth(turned)[1]["RO scripted-large", ""].lo == pytest.approx(0.1)


# Tables and metrics ---------------------------------------------------------------------------------


def test_intervals_of_students_are_over_seeds_and_of_questions_over_both():
    found = meeting.measured(students(), False)["RO scripted-large", ""]["quality"]
    assert astuple(found) == pytest.approx(astuple(stats.t_interval([0.40, 0.41, 0.42])))
    assert meeting.measured(chains(), True)["CoRL", "low"]["quality"].lo < 0.8  # seeds agree, questions do not


def test_metrics_have_legal_keys_of_their_own():
    told = meeting.metrics(chains(), students())
    assert all(_KEY.fullmatch(key) for key in told) and all(math.isfinite(value) for value in told.values())
    assert told["meeting.chains.CoRL_low.above_mixtures"] == pytest.approx(0.7)
    assert told["meeting.students.RO_scripted-large_with_a_budget_0p01.dollars"] == pytest.approx(0.01)
    points = chains().groupby(["maker", "point"]).ngroups + students().groupby(["maker", "point"]).ngroups
    assert sum(key.endswith(".quality") for key in told) == points  # none hides another


# What a smoke run may hold ----------------------------------------------------------------------------


def test_one_seed_of_students_has_no_intervals_and_nothing_is_clear():
    alone = students()[students()["seed"] == 0]
    assert "0 are clearly above" in meeting.zoo_finding(alone) and png(meeting.picture(chains(), alone))


def holds(found: Interval, value: float) -> None:
    """A value worked out by hand, inside its own interval."""
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.lo <= found.value <= found.hi


# The best blind mixture for as much ---------------------------------------------------------------

OTHERS = np.array([[0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]], float), np.tile([1.0, 2.0, 4.0], (4, 1))


def test_the_gap_is_the_mean_above_the_hull_at_the_same_mean_cost():
    """Others are right in 1/4, 3/4 and 4/4 for 1, 2 and 4; own cost is 3, where the hull is at 7/8."""
    right, dollars = np.array([[1, 0, 1, 1], [1, 1, 1, 1.0]]), np.array([[0, 6, 4, 2], [2, 4, 0, 6.0]])
    gap = meeting.gap_to_mixtures(right, dollars, *OTHERS, "by hand")
    holds(gap, 7 / 8 - stats.hull_at(np.array([1.0, 2.0, 4.0]), np.array([0.25, 0.75, 1.0]), 3.0))
    holds(meeting.gap_to_mixtures(right, dollars - 1.5, *OTHERS, "by hand"), 7 / 8 - 1 / 2)
    holds(meeting.gap_to_mixtures(right, dollars + 9, *OTHERS, "by hand"), 7 / 8 - 1)  # dearer than all: flat


def test_below_the_cheapest_it_is_the_cheapest():
    right, dollars = np.array([[1, 0, 1, 0], [0, 0, 1, 1.0]]), np.full((2, 4), 0.25)
    holds(meeting.gap_to_mixtures(right, dollars, *OTHERS, "cheap"), 1 / 2 - 1 / 4)


def test_the_gap_to_oneself_is_0_in_every_resample():
    """Who answers and costs as the only other one does resamples along with it, however noisy both are."""
    one = np.array([[1], [0], [1], [0], [0], [1.0]]), np.array([[2], [9], [4], [1], [7], [3.0]])
    gap = meeting.gap_to_mixtures(*(np.tile(column.T, (2, 1)) for column in one), *one, "itself")
    assert (gap.lo, gap.value, gap.hi) == (0, 0, 0)


def test_the_gap_s_interval_widens_with_questions_and_with_seeds_that_differ():
    n = 60
    others, dollars = (np.full((n, 1), 0.25), np.full((n, 1), 1.0)), np.ones((2, n))

    def gap(right) -> Interval:
        found = meeting.gap_to_mixtures(right, dollars, *others, "noise")
        holds(found, 0.25)
        return found

    calm, half = gap(np.full((2, n), 0.5)), np.tile(np.arange(n) < n / 2, (2, 1)).astype(float)
    assert calm.hi - calm.lo < 1e-9
    noisy = gap(half)  # by hand: 2 * 1.96 * sqrt(0.25 / 60), by sqrt(2 / 1) for two seeds
    assert noisy.hi - noisy.lo == pytest.approx(2 * 1.96 * (0.25 / n) ** 0.5 * 2**0.5, rel=0.1)
    seeds = gap(np.repeat([[0.4], [0.6]], n, axis=1))  # a quarter of resamples holds but one seed, deviation 0.1
    assert (seeds.lo, seeds.hi) == pytest.approx((0.25 - 0.1 * 2**0.5, 0.25 + 0.1 * 2**0.5), abs=0.02)
    both = gap(half * [[1.2], [0.8]])
    assert both.hi - both.lo > max(noisy.hi - noisy.lo, seeds.hi - seeds.lo)
