"""CoRL's training on recorded outcomes: what is learned, what is never seen, and what the rows say."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

from lib import config, stats
from lib.budgeted_routing import recorded_benchmark as benchmark
from lib.config import ParamsError
from lib.experiment import results_table
from lib.recorded_outcomes import model_selection
from lib.recorded_outcomes.tables import OutcomeTable, TableError
from lib.stats.verdicts import NOT_OPEN

PARAMS = config.load("smoke")
ROUTING = PARAMS.routing
PRICES = PARAMS.recorded.prices
SMALL = ROUTING.recorded.model_copy(
    update={
        "tables": ["gsm8k"],
        "items": 120,
        "gate_seeds": 2,
        "neighbours": [5, 20],
        "inverse_penalties": [1e-2],
    }
)
# Long enough to learn a rule that is plain to see.
TRAINED = SMALL.model_copy(
    update={
        "updates": 60,
        "batch": 120,
        "minibatch": 60,
        "learning_rate": 1e-2,
        "eval_every": 10,
    }
)


def make_table(num_items: int = 240, has_kinds: bool = True) -> OutcomeTable:
    """Two kinds of questions, visible in the features, and three experts for 1, 2 and 10 cents.

    The first expert is correct on a third of the questions. With kinds the second is always correct on one kind, and
    the third on the other and on half of the first. Without kinds the third is always correct.
    """
    rng = np.random.default_rng(0)
    kind = np.arange(num_items) % 2
    features = rng.standard_normal((num_items, 3))
    features[:, 0] += 4 * kind
    lucky = rng.random(num_items) < 1 / 3
    if has_kinds:
        middle = (kind == 0) | lucky
        large = (kind == 1) | (rng.random(num_items) < 1 / 2)
    else:
        middle = lucky | (rng.random(num_items) < 1 / 3)
        large = np.ones(num_items, dtype=bool)
    correct = np.column_stack([lucky, middle, large]).astype(float)
    items = np.array([f"question {number:03d}" for number in range(num_items)])
    return OutcomeTable(
        name="made up",
        items=items,
        groups=items,
        models=("cheap", "middle", "large"),
        correct=correct,
        cost_usd=np.tile([0.01, 0.02, 0.1], (num_items, 1)),
        features=features,
        privileged_features=kind[:, None].astype(float),
    )


@cache
def partition_of(has_kinds: bool = False) -> benchmark.Partition:
    table = make_table(has_kinds=has_kinds)
    fold_of_item = model_selection.assign_folds(table, 4, 0)
    fold = model_selection.make_cross_validation_folds(fold_of_item)[0]
    return benchmark.make_partition(table, table.models, fold, 0, ROUTING)


@cache
def rows_of(has_kinds: bool) -> pd.DataFrame:
    return benchmark.evaluate_table(make_table(has_kinds=has_kinds), TRAINED, ROUTING)


def mean_rewards(rows: pd.DataFrame, condition: str) -> pd.Series:
    selected = results_table.select(rows, condition=condition, split=benchmark.TEST)
    return selected.groupby("method")["reward"].mean()


# Partitions and budgets ----------------------------------------------------------------------------


def test_low_affords_the_cheapest_expert_medium_the_middle_one_and_high_any():
    partition = partition_of()
    assert partition.budgets == {"low": 0.01, "medium": 0.02, "high": ROUTING.high_budget_usd}
    correct = partition.ladder.correct
    low, medium, high = partition.rewards
    assert np.array_equal(low, correct * [1, 0, 0])
    assert np.array_equal(medium, correct * [1, 1, 0])
    assert np.array_equal(high, correct)


def test_every_question_is_tested_once_in_each_seed_and_never_by_what_learned_from_it():
    table = make_table()
    partitions = benchmark.make_partitions(table, SMALL, ROUTING)
    for seed in range(SMALL.seeds):
        folds = [partition.fold for partition in partitions if partition.seed == seed]
        tested = np.concatenate([fold.test for fold in folds])
        assert sorted(tested) == list(range(len(table)))
        for fold in folds:
            assert not set(fold.test) & set(fold.train_and_dev)
            assert not set(fold.train) & set(fold.dev)


def test_the_cost_frontier_leaves_out_models_that_a_cheaper_one_equals():
    table = make_table()
    worse = replace(
        table,
        models=("cheap", "middle", "large", "useless"),
        correct=np.column_stack([table.correct, table.correct[:, 0]]),
        cost_usd=np.column_stack([table.cost_usd, np.full(len(table), 0.05)]),
    )
    frontier = benchmark.find_cost_frontier(worse, np.arange(len(table)))
    assert "useless" not in [worse.models[column] for column in frontier]
    assert frontier[0] == 0


def test_a_ladder_is_never_longer_than_the_settings_say_and_keeps_both_ends():
    table = make_table(has_kinds=False)
    for partition in benchmark.make_partitions(
        table, SMALL.model_copy(update={"ladder": 2}), ROUTING
    ):
        assert len(partition.ladder.models) == 2
        assert partition.ladder.models == ("cheap", "large")


# What is learned -----------------------------------------------------------------------------------


def test_outcomes_of_test_questions_change_no_choice_of_any_method():
    table = make_table()
    partition = partition_of(has_kinds=True)
    changed = partition.rewards.copy()
    changed[:, partition.fold.test] = 1 - changed[:, partition.fold.test]
    other = replace(partition, rewards=changed)
    assert not np.array_equal(other.rewards, partition.rewards)

    for choose in (benchmark.choose_by_neighbours, benchmark.choose_by_logistic_regression):
        assert np.array_equal(choose(partition, SMALL), choose(other, SMALL))
    constant = benchmark.choose_best_constant
    assert np.array_equal(constant(partition), constant(other))
    informed = benchmark.choose_by_informed_router
    assert np.array_equal(informed(partition, table), informed(other, table))
    choices, other_choices = (
        benchmark.train_controllers([each], SMALL, ROUTING.learn)[0] for each in (partition, other)
    )
    assert np.array_equal(choices, other_choices)


def test_an_episode_yields_the_outcome_of_the_expert_that_was_called_on_a_train_question():
    partition = partition_of(has_kinds=True)
    # The number of question, budget and expert as its reward, to tell which was read.
    coded = np.arange(partition.rewards.size, dtype=np.float32).reshape(partition.rewards.shape)
    num_budgets, num_items, num_experts = coded.shape
    data = benchmark.TrainingData(
        features=torch.tensor(partition.features[None], dtype=torch.float32),
        rewards=torch.tensor(coded[None]),
        train_rows=[torch.tensor(partition.fold.train)],
    )
    controllers = benchmark.RecordedControllers("made up", 3, num_experts, [partition], SMALL)
    uniforms = torch.rand(1, 60, 2, generator=torch.Generator().manual_seed(0))
    episodes = benchmark.sample_episodes(controllers, data, uniforms)

    assert episodes.rewards.shape == (1, 60)
    budgets, questions, experts = np.unravel_index(
        episodes.rewards[0].long().numpy(), (num_budgets, num_items, num_experts)
    )
    assert np.array_equal(budgets, np.arange(60) % 3)
    assert np.array_equal(experts, episodes.experts[0].numpy())
    assert set(questions) <= set(partition.fold.train)
    # Untrained, all experts are equally likely and V is 0.
    assert torch.allclose(episodes.old_logprobs.exp(), torch.tensor(1 / num_experts))
    assert (episodes.values == 0).all()


def test_a_controller_learns_to_choose_by_question_and_budget_where_that_wins():
    rows = rows_of(has_kinds=True)
    high = mean_rewards(rows, "high")
    assert high[benchmark.CORL] > high[benchmark.CONSTANT] + 0.1
    assert high[benchmark.CORL] > high[benchmark.RANDOM] + 0.15
    calls = results_table.select(rows, method=benchmark.CORL, condition="low")["chosen"]
    assert calls.map(lambda names: names[0] == "cheap").mean() > 0.9


def test_no_method_beats_the_oracle_on_any_question():
    rows = results_table.select(rows_of(has_kinds=True), split=benchmark.TEST)
    wide = rows.pivot(index=["seed", "condition", "item"], columns="method", values="reward")
    assert (wide.sub(wide[benchmark.ORACLE], axis=0) <= 0).all(axis=None)


def test_training_again_gives_the_same_choices():
    partitions = benchmark.make_partitions(make_table(), SMALL, ROUTING)
    first = benchmark.train_controllers(partitions, SMALL, ROUTING.learn)
    second = benchmark.train_controllers(partitions, SMALL, ROUTING.learn)
    for choices, same_choices in zip(first, second, strict=True):
        assert np.array_equal(choices, same_choices)


# Rows and verdicts ---------------------------------------------------------------------------------


def test_rows_fit_the_results_table_and_their_reward_is_that_of_equation_7():
    routing = ROUTING.model_copy(update={"recorded": SMALL})
    rows = benchmark.run(routing, PRICES)
    results = results_table.make_results(benchmark.SYSTEM, rows)
    assert set(results["method"]) == {*benchmark.BASELINES, benchmark.CORL, benchmark.INFORMED}
    assert set(results["condition"]) == {"low", "medium", "high"}
    single = results[results["method"] != benchmark.RANDOM]
    assert np.array_equal(single["reward"], single["correct"] * single["within"])
    assert (single["chosen"].map(len) == 1).all()
    tested = results_table.select(results, split=benchmark.TEST)
    counts = tested.groupby(["method", "condition", "seed"])["item"].agg(["size", "nunique"])
    assert (counts == SMALL.items).all(axis=None)


def test_contrasts_are_paired_differences_and_an_open_question_gets_a_verdict():
    rows = rows_of(has_kinds=True)
    headroom = benchmark.estimate_headroom(rows)
    assert headroom.loc[("made up", "high"), "is_open"]
    contrasts = benchmark.estimate_contrasts(rows, 0.03)
    assert len(contrasts) == 3 * len(benchmark.BASELINES)
    means = mean_rewards(rows, "high")
    for baseline in benchmark.BASELINES:
        difference = contrasts.loc[("made up", "high", baseline), "value"]
        assert difference == pytest.approx(means[benchmark.CORL] - means[baseline])
    assert {"ci_low", "ci_high", "mde", "verdict"} <= set(contrasts)
    assert contrasts.loc[("made up", "high", benchmark.CONSTANT), "verdict"] != NOT_OPEN


def test_where_one_model_is_best_everywhere_the_question_is_not_open():
    rows = rows_of(has_kinds=False)
    headroom = benchmark.estimate_headroom(rows)
    assert not headroom["is_open"].any()
    assert (headroom["oracle_headroom"] < stats.MIN_HEADROOM).all()
    verdicts = benchmark.estimate_contrasts(rows)["verdict"].unstack("baseline")
    assert (verdicts[[benchmark.CONSTANT, benchmark.NEAREST, benchmark.LOGISTIC]] == NOT_OPEN).all(
        axis=None
    )
    assert (verdicts[benchmark.RANDOM] != NOT_OPEN).all()


def test_intervals_are_over_groups_where_groups_are_left_out_whole():
    rows = rows_of(has_kinds=True)
    subjects = rows["item"].str[-2:]
    estimates = benchmark.estimate_contrasts(rows.assign(context="subject " + subjects))
    assert (estimates["num_items"] == subjects.nunique()).all()


def test_settings_and_tables_that_cannot_work_are_refused_with_a_reason():
    for changes, message in (
        ({"batch": 99, "minibatch": 50}, "multiple of minibatch"),
        ({"batch": 100}, "multiple of 3"),
        ({"updates": 5, "eval_every": 10}, "eval_every"),
    ):
        with pytest.raises(ParamsError, match=message):
            config.settings(profile="smoke", routing={"recorded": changes})
    with pytest.raises(TableError, match="no table 'gsm9k'"):
        benchmark.load_table("gsm9k", PRICES, SMALL)


def test_the_length_of_a_question_is_read_only_where_costs_are_listed():
    with_length = SMALL.model_copy(update={"with_question_length": True})
    num_features = benchmark.load_table("gsm8k", PRICES, SMALL).features.shape[1]
    assert benchmark.load_table("gsm8k", PRICES, with_length).features.shape[1] == num_features + 1
    assert benchmark.load_table("gsm", PRICES, with_length).features.shape[1] == num_features
