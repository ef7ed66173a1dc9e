"""Choosing: whole groups stay together, dev chooses and test scores, and no promise is made of test items."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import stats
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import Choices, Fold
from lib.recorded_outcomes.tables import TableError
from lib.stats import Interval
from tests.recorded_outcomes.small import made

TABLE = made()
FOLDS = model_selection.make_cross_validation_folds(model_selection.assign_folds(TABLE, 4, 0))


@given(st.integers(3, 6), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_parts_keep_groups_whole_and_every_item_is_scored_once(folds, seed):
    of = model_selection.assign_folds(TABLE, folds, seed)
    for group in set(TABLE.groups.tolist()):
        assert len(set(of[group == TABLE.groups])) == 1
    rotated = model_selection.make_cross_validation_folds(of)
    assert sorted(np.concatenate([fold.test for fold in rotated])) == list(range(len(TABLE)))
    for fold in rotated:
        sets = [set(TABLE.groups[rows]) for rows in (fold.train, fold.dev, fold.test)]
        assert all(sets) and not (sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2])


def test_another_seed_parts_otherwise_and_two_groups_are_too_few():
    assert (
        model_selection.assign_folds(TABLE, 4, 0) != model_selection.assign_folds(TABLE, 4, 1)
    ).any()
    with pytest.raises(TableError, match="2 groups cannot be parted"):
        model_selection.assign_folds(
            replace(TABLE, groups=np.where(np.arange(len(TABLE)) % 2, "a", "b")), 4, 0
        )
    with pytest.raises(TableError, match="at least 3"):
        model_selection.assign_folds(TABLE, 2, 0)


def test_outcomes_of_test_items_change_no_choice():
    fold = FOLDS[0]
    choices = headroom.choose_with_checker(TABLE)
    turned = replace(
        TABLE,
        correct=np.where(np.isin(np.arange(len(TABLE)), fold.test)[:, None], 0.0, TABLE.correct),
    )
    one, other = (
        model_selection.score_choices(table, [fold], [headroom.choose_with_checker(table)], 0.01)
        for table in (TABLE, turned)
    )
    assert (
        one.picked == other.picked
        and (one.promised[:, fold.test] == other.promised[:, fold.test]).all()
    )
    assert choices.correct.shape == (3, len(TABLE))


def test_mixtures_of_constants_promise_what_their_hull_buys_on_dev():
    fold, alone = FOLDS[0], model_selection.constant_choices(TABLE)
    everywhere = Fold(fold.train, fold.dev, fold.train_and_dev)  # scored where it was chosen
    found = model_selection.score_choices(TABLE, [everywhere], [alone], 0.0)
    correct, cost_usd = (
        TABLE.correct[fold.train_and_dev].mean(0),
        TABLE.cost_usd[fold.train_and_dev].mean(0),
    )
    for level, budget in enumerate(model_selection.promised_costs(TABLE, fold.train_and_dev)):
        reached = found.correct[level, fold.train_and_dev].mean()
        assert reached == pytest.approx(stats.hull_at(cost_usd, correct, budget))
        assert found.cost_usd[level, fold.train_and_dev].mean() <= budget + 1e-9


def test_at_equal_quality_the_best_constant_stays_where_nothing_beats_it_on_dev():
    worse = Choices(np.zeros((1, len(TABLE))), np.full((1, len(TABLE)), 0.1), ("never right",))
    found = model_selection.score_choices(TABLE, FOLDS, [worse] * 4, 0.01)
    for fold in FOLDS:
        top = model_selection.find_best_constant(TABLE, fold.train_and_dev)
        assert (found.at_equal_quality.correct[fold.test] == TABLE.correct[fold.test, top]).all()
        assert (found.at_equal_quality.cost_usd[fold.test] == TABLE.cost_usd[fold.test, top]).all()


def test_a_cheaper_play_that_is_as_right_replaces_the_constant_and_one_that_is_dearer_does_not():
    top = model_selection.find_best_constant(TABLE, np.arange(len(TABLE)))
    for price, kept in ((0.1, False), (10.0, True)):
        choices = Choices(
            TABLE.correct[:, top][None] + 0.05, TABLE.cost_usd[:, top][None] * price, ("twin",)
        )
        found = model_selection.score_choices(TABLE, FOLDS, [choices] * 4, 0.04)
        ratio = found.at_equal_quality.cost_usd.mean() / TABLE.cost_usd[:, top].mean()
        assert (ratio < 0.2) != kept, ratio


def test_what_learns_from_train_chooses_no_knob_there():
    fold = FOLDS[0]
    on_train = np.isin(np.arange(len(TABLE)), fold.train).astype(float)
    lucky = Choices(
        on_train[None], np.full((1, len(TABLE)), 1e-3), ("right on train alone",), learned=True
    )
    found = model_selection.score_choices(TABLE, [fold], [lucky], 0.0)
    assert found.picked[0] in TABLE.models


def test_aiq_is_the_mean_height_and_a_curve_against_itself_has_no_gap():
    assert model_selection.curve_height(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.0, 1.0)[
        0
    ] == pytest.approx(0.5)
    assert model_selection.curve_height(np.array([0.2, 0.2]), np.array([1.0, 0.0]), 0.0, 1.0)[
        0
    ] == pytest.approx(0.2)
    found = model_selection.score_choices(
        TABLE, FOLDS, [model_selection.constant_choices(TABLE)] * 4, 0.01
    )
    gap = model_selection.aiq_gap(TABLE, [found], [found], 20)
    assert (gap.value, gap.ci_low, gap.ci_high) == (0, 0, 0)


def test_an_interval_holds_what_repeated_cross_validation_adds():
    items = Interval(0.5, 0.4, 0.6)
    assert (
        model_selection.add_repeat_variance(items, [0.3]) == items
    )  # one repeat says nothing of others
    assert model_selection.add_repeat_variance(items, [0.5] * 5) == items
    values = np.array([0.4, 0.5, 0.6, 0.45, 0.55])
    half_width = 2.776 * values.std(ddof=1) / 5**0.5  # Student's t with 4 degrees of freedom
    found = model_selection.add_repeat_variance(items, values)
    assert found.value == 0.5 and found.ci_high - 0.5 == pytest.approx(
        (0.1**2 + half_width**2) ** 0.5, rel=1e-3
    )
    assert found.ci_high - 0.5 == pytest.approx(0.5 - found.ci_low)
