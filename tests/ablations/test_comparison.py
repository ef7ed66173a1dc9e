"""What an ablation leaves: pairs by seed and unit, worked by hand; intervals over what was sampled."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import stats
from lib.ablations.comparison import Comparison, Measure, metrics, slug
from lib.page.lesson import _KEY

SCORE = Measure("score", "score")


def rows(variant: str, values, seeds=None, units=None) -> pd.DataFrame:
    """values: (seeds, units)."""
    values = np.asarray(values, dtype=float)
    seeds, units = seeds or range(values.shape[0]), units or range(values.shape[1])
    told = [
        {"variant": variant, "seed": seed, "unit": unit, "score": value}
        for (seed, unit), value in zip(product(seeds, units), values.ravel(), strict=True)
    ]
    return pd.DataFrame(told)


def compared(*parts: pd.DataFrame, shared: bool = True, against=None, name: str = "test", backend="lab") -> Comparison:
    against = {"new": "old"} if against is None else against
    return Comparison(name, "a test", pd.concat(parts), against, (SCORE,), shared, backend)


def gain(made: Comparison, variant: str = "new"):
    return made.gains[variant]["score"]


# Pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_a_gain_is_the_mean_of_differences_of_pairs(shared):
    old, new = [[1, 2], [3, 4]], [[2, 4], [3, 8]]  # 1, 2, 0, 4
    made = compared(rows("old", old), rows("new", new), shared=shared)
    assert gain(made).value == 7 / 4 and gain(made).lo <= 7 / 4 <= gain(made).hi
    assert made.levels["old"]["score"].value == 2.5 and made.levels["new"]["score"].value == 4.25


@pytest.mark.parametrize("shared", [True, False])
def test_rows_are_paired_by_seed_and_unit_and_not_by_their_place(shared):
    """Seeds differ by 100 and units by 10, so that any other pairing has an interval; the gain is always 1."""
    old = rows("old", [[0, 10, 20], [100, 110, 120]])
    new = rows("new", [[1, 11, 21], [101, 111, 121]]).iloc[::-1]
    found = gain(compared(new, old, shared=shared))
    assert (found.value, found.lo, found.hi) == pytest.approx((1, 1, 1))


@pytest.mark.parametrize("shared", [True, False])
def test_variants_that_do_the_same_gain_exactly_nothing(shared):
    values = np.random.default_rng(0).random((3, 7)) / 3
    found = gain(compared(rows("old", values), rows("new", values), shared=shared))
    assert (found.value, found.lo, found.hi) == (0, 0, 0) and not found.excludes(0)


def test_one_run_stands_against_each_of_several():
    """A start that is not trained has one seed: 5 and 6 against 1 and 2, 7 and 9 against the same."""
    found = gain(compared(rows("old", [[1, 2]]), rows("new", [[5, 6], [7, 9]])))
    assert found.value == (4 + 4 + 6 + 7) / 4 and found.lo < 4.5 and found.hi > 6
    turned = gain(compared(rows("new", [[1, 2]]), rows("old", [[5, 6], [7, 9]])))
    assert turned.value == -found.value


# Intervals ----------------------------------------------------------------------------------------


def test_intervals_of_shared_units_are_over_seeds_and_units():
    """Seeds agree and questions do not: only questions spread; and the other way round."""
    zero = rows("old", np.zeros((3, 8)))
    by_unit = np.tile(np.arange(8.0), (3, 1))
    by_seed = by_unit.mean() + np.tile([[-1.0], [0.0], [1.0]], 8)
    over_units, over_seeds = (gain(compared(zero, rows("new", v))) for v in (by_unit, by_seed))
    assert over_units.value == over_seeds.value == 3.5
    assert over_units.lo < 2.6 and over_units.hi > 4.4
    assert over_seeds.lo < 2.8 and over_seeds.hi > 4.2


def test_intervals_of_units_of_ones_own_are_over_the_means_of_seeds():
    """However its episodes differ, a seed counts once."""
    zero = rows("old", np.zeros((3, 8)))
    found = gain(compared(zero, rows("new", np.tile(np.arange(8.0), (3, 1))), shared=False))
    assert (found.value, found.lo, found.hi) == (3.5, 3.5, 3.5)
    apart = gain(compared(zero, rows("new", np.tile([[1.0], [2.0], [6.0]], 8)), shared=False))
    assert apart == stats.t_interval(np.array([1.0, 2.0, 6.0]))


def test_one_run_has_an_interval_over_questions_and_none_over_its_own_episodes():
    old, new = rows("old", np.zeros((1, 20))), rows("new", np.arange(20.0)[None])
    assert gain(compared(old, new)).known
    assert not gain(compared(old, new, shared=False)).known and gain(compared(old, new, shared=False)).value == 9.5


def test_the_same_comparison_has_the_same_intervals():
    parts = rows("old", np.zeros((3, 8))), rows("new", np.random.default_rng(1).random((3, 8)))
    assert gain(compared(*parts)) == gain(compared(*parts))


# What is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_a_variant_that_was_tried_on_other_things_is_refused(shared):
    with pytest.raises(ValueError, match="test: 'new' and 'old' were not tried on the same things"):
        compared(rows("old", [[1, 2]] * 2), rows("new", [[1, 2]] * 2, units=[0, 2]), shared=shared)


@pytest.mark.parametrize("seeds", [[0, 2], [0, 1, 2]])
def test_a_variant_under_other_seeds_is_refused(seeds):
    with pytest.raises(ValueError, match="'new' and 'old'"):
        compared(rows("old", [[1, 2]] * 2), rows("new", [[1, 2]] * len(seeds), seeds))


def test_seeds_that_share_no_units_are_refused_where_they_should():
    parts = [pd.concat([rows(v, [[1, 2]], [0], [0, 1]), rows(v, [[1, 2]], [1], [2, 3])]) for v in ("old", "new")]
    with pytest.raises(ValueError, match="test: the seeds of 'old' share no units"):
        compared(*parts)
    assert gain(compared(*parts, shared=False)).value == 0


def test_a_variant_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"test: no rows of \['new'\]; there are \['old'\]"):
        compared(rows("old", [[1, 2]]))


# Metrics ------------------------------------------------------------------------------------------


NAMES = ["KO, no short-term", "steps_per_level 1", "initial 0.2", "lab:lab-team", "no masks, SFT", "kappa 0.05",
         "always a call to lab-nano", "look-ahead (5 steps)", "$ per episode", "Equal + 1"]  # fmt: skip


@given(st.text("aB7 ,.:$()'/_+-").filter(lambda text: any(map(str.isalnum, text))))
def test_any_words_make_a_legal_key(text):
    assert _KEY.fullmatch(f"test.{slug(text)}.score"), text


def test_variants_that_differ_in_a_number_have_keys_of_their_own():
    assert len({slug(name) for name in NAMES}) == len(NAMES) and slug("initial 0.2") == "initial_0p2"


def test_metrics_have_levels_and_gains_with_both_ends_and_a_backend():
    more = Measure("dollars", "dollars", better="lower")
    frame = pd.concat([rows("old", [[1, 2]] * 2), rows("new, 0.5", [[2, 3]] * 2)]).assign(dollars=3.0)
    made = Comparison("arc.x", "a test", frame, {"new, 0.5": "old"}, (SCORE, more), True, "scripted")
    told = metrics(made)
    assert told["arc.x.new_0p5.gain"] == 1 and told["arc.x.new_0p5.gain_dollars"] == 0
    assert told["arc.x.old.score"] == 1.5 and told["arc.x.new_0p5.dollars"] == 3
    assert told["arc.x.backend"] == "scripted" and "arc.x.old.gain" not in told
    numbers = [key for key in told if key != "arc.x.backend"]
    assert all(_KEY.fullmatch(key) for key in told)
    assert {key for key in numbers if not key.endswith(("_lo", "_hi"))} == {
        key.removesuffix("_lo") for key in numbers if key.endswith("_lo")
    }
