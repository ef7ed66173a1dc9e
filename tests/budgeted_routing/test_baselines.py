"""Baselines of CoRL: what each chooses, what it pays, and that none but the oracle uses the test's outcomes."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from lib.budgeted_routing import baselines
from lib.budgeted_routing.baselines import ROUTERS, OutcomeMatrix
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE

# Two experts, and for each a strategy that calls it several times ("in pieces"), which a cascade does not use.
STRATEGIES = (CONTROLLER_ALONE, "small", "small in pieces", "large", "large in pieces")
EXPERT_COLUMNS = (1, 3)
COSTS = np.array([0.0, 1.0, 3.0, 8.0, 20.0])
BUDGETS = {"low": 1.0, "medium": 9.0, "high": 1000.0}


# Outcomes -----------------------------------------------------------------------------------------


def make_matrix(correct, cost_usd=COSTS, prompts=None, expert_replies=None) -> OutcomeMatrix:
    """Outcomes with scores `correct`, (questions, strategies); the replies of the controller are empty."""
    correct = np.asarray(correct, dtype=float)
    num_questions = len(correct)
    if prompts is None:
        prompts = [f"question {i}" for i in range(num_questions)]
    if expert_replies is None:
        expert_replies = np.full((num_questions, len(EXPERT_COLUMNS)), "so it is")
    return OutcomeMatrix(
        strategies=STRATEGIES,
        expert_columns=EXPERT_COLUMNS,
        correct=correct,
        cost_usd=np.broadcast_to(cost_usd, correct.shape).astype(float),
        prompts=tuple(prompts),
        replies=np.column_stack([np.full(num_questions, ""), np.asarray(expert_replies)]),
    )


def draw_random_matrix(num_questions: int = 60, seed: int = 0) -> OutcomeMatrix:
    """Scores, costs, words and replies at random; the more expensive strategies are better."""
    rng = np.random.default_rng(seed)
    correct = rng.random((num_questions, len(STRATEGIES))) < [0.1, 0.4, 0.5, 0.6, 0.7]
    prompts = [" ".join(rng.choice(list("abcdef"), size=4)) for _ in range(num_questions)]
    replies = rng.choice(["yes", "no", "perhaps"], size=(num_questions, len(EXPERT_COLUMNS)))
    costs = COSTS * rng.uniform(0.5, 1.5, size=(num_questions, 1))
    return make_matrix(correct, costs, prompts, replies)


def make_specialists(num_questions: int, seed: int) -> OutcomeMatrix:
    """The first word of a question decides which expert is correct: the small one adds, the large one proves."""
    rng = np.random.default_rng(seed)
    is_sum = np.arange(num_questions) % 2 == 0
    correct = np.zeros((num_questions, len(STRATEGIES)))
    correct[is_sum, 1] = 1
    correct[~is_sum, 3] = 1
    prompts = [f"{'add' if flag else 'prove'} {rng.integers(2)}" for flag in is_sum]
    return make_matrix(correct, prompts=prompts)


def make_ladder(num_questions: int, seed: int) -> OutcomeMatrix:
    """The large expert is correct wherever the small one is, and on hard questions besides; the controller never is."""
    rng = np.random.default_rng(seed)
    is_hard = rng.permutation(np.arange(num_questions) % 2) == 1
    small = (~is_hard).astype(float)
    zeros, ones = np.zeros(num_questions), np.ones(num_questions)
    prompts = ["hard" if flag else "easy" for flag in is_hard]
    return make_matrix(np.column_stack([zeros, small, zeros, ones, zeros]), prompts=prompts)


def make_telling_replies(num_questions: int, seed: int) -> OutcomeMatrix:
    """The small expert is correct on half of the questions, and its reply shows on which; the large one always is."""
    rng = np.random.default_rng(seed)
    correct = np.tile([0.0, 0, 0, 1, 1], (num_questions, 1))
    correct[:, 1] = rng.permutation(np.arange(num_questions) % 2)
    replies = [["surely" if score else "hm", "surely"] for score in correct[:, 1]]
    prompts = [f"q {rng.integers(5)}" for _ in range(num_questions)]
    return make_matrix(correct, prompts=prompts, expert_replies=replies)


def make_able_controller(num_questions: int, seed: int) -> OutcomeMatrix:
    """The controller is correct on easy questions, whose text says so; the small expert never is, the large always."""
    rng = np.random.default_rng(seed)
    easy = rng.permutation(np.arange(num_questions) % 2)
    zeros, ones = np.zeros(num_questions), np.ones(num_questions)
    prompts = ["easy" if flag else "hard" for flag in easy]
    return make_matrix(np.column_stack([easy, zeros, zeros, ones, ones]), prompts=prompts)


def compare_one(
    train: OutcomeMatrix, test: OutcomeMatrix, method: str, budget: str = "high"
) -> pd.DataFrame:
    """The rows of one method under one budget."""
    rows = baselines.compare_baselines(train, test, BUDGETS)
    is_selected = (rows["method"] == method) & (rows["condition"] == budget)
    return rows[is_selected].reset_index(drop=True)


@pytest.mark.parametrize(("split", "base_cost"), [("train", 0.0), ("test", 100.0)])
def test_measured_outcomes_become_a_row_per_question_and_a_column_per_strategy(split, base_cost):
    """Every value is different; questions are in any order."""
    rows = []
    for part in ("train", "test"):
        for column, name in enumerate(STRATEGIES):
            is_controller = column == 0
            for item in (3, 1, 0, 2):
                row = {"split": part, "item": item, "sample": 0, "prompt": f"{part} {item}"}
                row["method"] = name
                row["correct"] = float(item == 3) if is_controller else (item + column) % 2
                row["cost_usd"] = 100.0 * (part == "test") + 10 * item + column
                row["reply"] = "" if is_controller else f"{name} to {item}"
                rows.append(row)
    table = pd.DataFrame(rows)
    is_controller = table["method"] == CONTROLLER_ALONE
    matrix = baselines.make_outcome_matrix(
        table[~is_controller], table[is_controller], split, ["small", "large"]
    )

    assert matrix.strategies == STRATEGIES
    assert matrix.expert_columns == EXPERT_COLUMNS
    assert matrix.prompts == tuple(f"{split} {i}" for i in range(4))
    assert matrix.cost_usd.tolist() == [
        [base_cost + 10 * i + column for column in range(5)] for i in range(4)
    ]
    assert matrix.correct[:, 0].tolist() == [0, 0, 0, 1]
    assert matrix.correct[:, 1:].tolist() == [
        [(i + column) % 2 for column in range(1, 5)] for i in range(4)
    ]
    assert matrix.replies.tolist() == [["", f"small to {i}", f"large to {i}"] for i in range(4)]
    cascade = [matrix.strategies[column] for column in matrix.cascade_columns]
    assert cascade == [CONTROLLER_ALONE, "small", "large"]


def test_partial_scores_of_the_controller_are_not_rounded():
    """Though the experts' scores are whole numbers."""
    rows = pd.DataFrame(
        {
            "split": "test",
            "item": [0, 0],
            "sample": 0,
            "prompt": "q",
            "method": [CONTROLLER_ALONE, "small"],
            "correct": [0.5, 1],
            "cost_usd": [0, 1],
            "reply": ["a long reply", "b"],
        }
    )
    expert_rows = rows[1:].astype({"correct": int})
    matrix = baselines.make_outcome_matrix(expert_rows, rows[:1], "test", ["small"])
    assert matrix.correct.tolist() == [[0.5, 1.0]]
    assert matrix.replies.tolist() == [["a long reply", "b"]]


def test_reward_is_the_score_within_the_budget_and_a_cost_equal_to_it_is_within():
    matrix = make_matrix([[1, 1, 1, 1, 0]])
    assert matrix.compute_rewards(0.0).tolist() == [[1, 0, 0, 0, 0]]
    assert matrix.compute_rewards(3.0).tolist() == [[1, 1, 1, 0, 0]]
    assert matrix.compute_rewards(1000.0).tolist() == [[1, 1, 1, 1, 0]]


# The comparison -----------------------------------------------------------------------------------


def test_every_method_has_a_row_per_question_and_budget_with_what_its_choice_scores_and_costs():
    test = draw_random_matrix(17, 1)
    rows = baselines.compare_baselines(draw_random_matrix(), test, BUDGETS)
    assert set(rows["method"]) == {*STRATEGIES, *ROUTERS}
    assert rows["condition"].unique().tolist() == list(BUDGETS)
    for _, method_rows in rows.groupby(["method", "condition"]):
        assert method_rows["item"].tolist() == list(range(17))
    assert len(rows) == 3 * 17 * (len(STRATEGIES) + len(ROUTERS))
    for row in rows[rows["method"] != "cascade"].itertuples():
        column = STRATEGIES.index(row.chosen)
        assert row.method in (*ROUTERS, row.chosen)
        assert row.correct == test.correct[row.item, column]
        assert row.cost_usd == test.cost_usd[row.item, column]


def test_equal_seeds_give_equal_tables_and_another_seed_changes_random_choice_only():
    train, test = draw_random_matrix(), draw_random_matrix(40, 1)
    first = baselines.compare_baselines(train, test, BUDGETS, seed=3)
    pd.testing.assert_frame_equal(first, baselines.compare_baselines(train, test, BUDGETS, seed=3))
    second = baselines.compare_baselines(train, test, BUDGETS, seed=4)
    is_random = first["method"] == "random"
    pd.testing.assert_frame_equal(first[~is_random], second[~is_random])
    assert (first[is_random]["chosen"] != second[is_random]["chosen"]).any()


def test_only_the_oracle_uses_the_outcomes_of_the_test():
    train, test = draw_random_matrix(), draw_random_matrix(40, 1)
    inverted = dataclasses.replace(test, correct=1 - test.correct)
    rows = baselines.compare_baselines(train, test, BUDGETS)
    inverted_rows = baselines.compare_baselines(train, inverted, BUDGETS)
    is_oracle = rows["method"] == "oracle"
    assert rows[~is_oracle]["chosen"].tolist() == inverted_rows[~is_oracle]["chosen"].tolist()
    assert rows[is_oracle]["chosen"].tolist() != inverted_rows[is_oracle]["chosen"].tolist()


# Routers that choose one strategy -----------------------------------------------------------------


def test_random_choice_uses_each_expert_about_equally_often_and_nothing_else():
    rows = compare_one(draw_random_matrix(), draw_random_matrix(400, 1), "random")
    counts = rows["chosen"].value_counts()
    assert set(counts.index) == {"small", "large"}
    assert counts.min() > 160


def test_the_best_constant_has_the_highest_training_reward_under_its_budget():
    train, test = draw_random_matrix(), draw_random_matrix(17, 1)
    best_strategies = set()
    for name, budget in BUDGETS.items():
        (strategy,) = set(compare_one(train, test, "best constant", name)["chosen"])
        assert strategy == STRATEGIES[train.compute_rewards(budget).mean(0).argmax()]
        best_strategies.add(strategy)
    assert len(best_strategies) > 1  # the budget decides


def test_of_equally_good_constants_the_cheapest_is_used():
    costs = np.array([0, 9, 3, 5, 20])
    matrix = make_matrix([[0, 1, 1, 1, 0], [0, 0, 0, 0, 1]], costs)
    assert set(compare_one(matrix, matrix, "best constant")["chosen"]) == {"small in pieces"}
    nothing = make_matrix(np.zeros((4, 5)))
    assert set(compare_one(nothing, nothing, "best constant")["chosen"]) == {CONTROLLER_ALONE}


@pytest.mark.parametrize("router", ["nearest neighbours", "logistic"])
def test_a_router_learns_which_word_decides_under_the_budget_it_is_tested_at(router):
    """The low budget never affords the large expert, so that the router does not use it there."""
    train, test = make_specialists(80, 0), make_specialists(30, 1)
    high = compare_one(train, test, router, "high")
    expected = ["small" if prompt.startswith("add") else "large" for prompt in test.prompts]
    assert high["chosen"].tolist() == expected
    assert high["reward"].eq(1).all()

    low = compare_one(train, test, router, "low")
    assert low["chosen"][::2].eq("small").all()
    assert not low["chosen"].isin(["large", "large in pieces"]).any()


@pytest.mark.parametrize("router", ["nearest neighbours", "logistic"])
def test_where_a_larger_expert_is_better_on_all_questions_a_router_gets_what_its_budget_affords(
    router,
):
    """Nothing in a router needs experts that differ in what they are good at."""
    train, test = make_ladder(80, 0), make_ladder(30, 1)
    is_easy = [prompt == "easy" for prompt in test.prompts]
    high = compare_one(train, test, router, "high")
    assert high["reward"].eq(1).all()
    low = compare_one(train, test, router, "low")  # affords the small expert only
    assert low["reward"].tolist() == [float(flag) for flag in is_easy]


@pytest.mark.parametrize("router", ["nearest neighbours", "logistic"])
def test_a_router_sees_how_long_a_question_is_whatever_its_words(router):
    """No word of the test occurs in a training question."""
    lengths = np.arange(60) % 2 * 4 + 2
    correct = np.zeros((60, len(STRATEGIES)))
    correct[lengths == 2, 1] = 1
    correct[lengths == 6, 3] = 1
    prompts = [" ".join(f"w{i}.{j}" for j in range(length)) for i, length in enumerate(lengths)]
    train = make_matrix(correct, prompts=prompts)
    test_prompts = ["brief question", "a question that goes on longer"]
    test = make_matrix(correct[:2], prompts=test_prompts)
    assert compare_one(train, test, router)["chosen"].tolist() == ["small", "large"]


def test_features_are_fitted_on_training_texts_alone():
    train, test = baselines.extract_features(["add 1", "add 2"], ["add 9 unheard"])
    assert train.shape[1] == test.shape[1] == 6  # three words, two pairs, the length
    assert np.count_nonzero(test) == 2
    other_train, _ = baselines.extract_features(["add 1", "add 2"], ["other"])
    assert (other_train == train).all()


def test_pairs_of_words_count_too():
    """Single words do not separate these texts."""
    train_texts = ["a b c", "c a b", "b c a", "a c b"] * 10
    rewards = np.array([[1.0], [1.0], [1.0], [0.0]] * 10)
    train, test = baselines.extract_features(train_texts, ["a b c", "a c b"])
    high, low = baselines.predict_rewards(train, rewards, test)[:, 0]
    assert high > 0.8
    assert low < 0.5


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_strategy_whose_score_never_changes_is_predicted_to_have_that_score(value):
    features = np.eye(4)
    predicted = baselines.predict_success(features, np.full(4, value), features[:3])
    assert predicted.tolist() == [value] * 3
    constant = make_matrix(np.full((12, 5), value))
    rows = baselines.compare_baselines(constant, constant, BUDGETS)
    assert rows[rows["method"].isin(["logistic", "cascade"])]["correct"].eq(value).all()


# The cascade --------------------------------------------------------------------------------------


def test_a_cascade_stops_where_the_reply_is_trusted_and_pays_for_all_its_calls():
    test = make_telling_replies(30, 1)
    rows = compare_one(make_telling_replies(80, 0), test, "cascade", "medium")
    is_sure = test.correct[:, 1] == 1
    assert rows["chosen"].tolist() == np.where(is_sure, "small", "large").tolist()
    assert rows["cost_usd"].tolist() == np.where(is_sure, 1.0, 1.0 + 8.0).tolist()
    assert rows["calls"].tolist() == np.where(is_sure, 1, 2).tolist()
    assert rows["correct"].eq(1).all()
    assert rows["reward"].eq(1).all()


def test_a_cascade_begins_with_the_controller_and_leaves_out_an_expert_that_does_not_help():
    train, test = make_able_controller(80, 0), make_able_controller(30, 1)
    rows = compare_one(train, test, "cascade")
    is_easy = test.correct[:, 0] == 1
    assert rows["chosen"].tolist() == np.where(is_easy, CONTROLLER_ALONE, "large").tolist()
    assert rows["correct"].eq(1).all()
    # The small expert, at a cost of 1, is not asked.
    assert rows["cost_usd"].tolist() == np.where(is_easy, 0.0, 8.0).tolist()
    assert rows["calls"].tolist() == np.where(is_easy, 0, 1).tolist()


def test_a_cascade_does_not_ask_an_expert_beyond_its_budget():
    train, test = make_able_controller(80, 0), make_able_controller(30, 1)
    rows = baselines.compare_baselines(train, test, {"little": 2.0})
    assert rows[rows["method"] == "cascade"]["chosen"].eq(CONTROLLER_ALONE).all()


def test_stages_and_threshold_are_chosen_by_training_rewards_with_trust_from_other_folds(
    monkeypatch,
):
    """Every question and reply is a word of its own: a scorer that was fitted on a reply would know its score."""
    rng = np.random.default_rng(0)
    correct = np.tile([0.0, 0, 0, 1, 1], (40, 1))
    correct[:, 1] = rng.permutation(np.arange(40) % 2)
    prompts = [f"p{i}" for i in range(40)]
    replies = [[f"s{i}", f"l{i}"] for i in range(40)]
    train = make_matrix(correct, prompts=prompts, expert_replies=replies)
    test = make_telling_replies(10, 1)

    calls = []
    run_stages = baselines._run_stages

    def record_call(outcomes, trust, plan):
        result = run_stages(outcomes, trust, plan)
        rewards = result.correct * (result.cost_usd <= 1000.0)
        calls.append((outcomes, trust, (plan.stages, plan.threshold), rewards.mean()))
        return result

    monkeypatch.setattr(baselines, "_run_stages", record_call)
    baselines.run_cascade(train, test, 1000.0, 0)

    *training_calls, (last_outcomes, _, last_plan, _) = calls
    assert last_outcomes is test
    assert all(outcomes is train for outcomes, _, _, _ in training_calls)
    selections = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    all_plans = [(stages, t) for stages in selections for t in baselines.TRUST_THRESHOLDS]
    assert [plan for _, _, plan, _ in training_calls] == all_plans
    assert last_plan == max(training_calls, key=lambda call: call[3])[2]

    is_correct = correct[:, 1] == 1
    features, _ = baselines.extract_features([f"p{i} s{i}" for i in range(40)], ["x"])
    fitted_trust = baselines.predict_success(features, correct[:, 1], features)
    assert fitted_trust[is_correct].min() > fitted_trust[~is_correct].max()  # must not be used
    trust = training_calls[0][1][1]
    assert trust[is_correct].mean() - trust[~is_correct].mean() < 0.05


# The oracle ---------------------------------------------------------------------------------------


def test_the_oracle_gets_the_highest_reward_of_all_strategies_on_every_question():
    for seed in range(3):
        train, test = draw_random_matrix(seed=seed), draw_random_matrix(40, seed + 10)
        rows = baselines.compare_baselines(train, test, BUDGETS)
        for _, budget_rows in rows.groupby("condition"):
            rewards = budget_rows.pivot(index="item", columns="method", values="reward")
            assert (rewards["oracle"].to_numpy()[:, None] >= rewards.to_numpy()).all()
            assert rewards["oracle"].tolist() == rewards[list(STRATEGIES)].max(axis=1).tolist()


def test_the_oracle_uses_the_cheapest_rewarded_strategy_and_the_cheapest_of_all_without_one():
    test = make_matrix(
        [[0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 0]],
        np.array([[0, 1, 3, 8, 20], [0, 1, 3, 8, 20], [2, 1, 3, 8, 20], [0, 1, 9, 8, 20]]),
    )
    high = compare_one(test, test, "oracle")
    assert high["chosen"].tolist() == ["small in pieces", "large", "small", "large"]
    low = compare_one(test, test, "oracle", "low")
    assert low["chosen"].tolist() == [CONTROLLER_ALONE, CONTROLLER_ALONE, "small", CONTROLLER_ALONE]
    assert low["reward"].eq(0).all()
