"""Baselines of CoRL: constants, random choice, trained routers, a cascade, and an oracle.

CoRL trains a small language model, the controller, which answers a question itself or pays larger models, the experts.
The reward of a question is 1 if the answer is correct and the calls cost no more than the budget, else 0.

A baseline meets the same questions under the same budget, the limit on the cost. It chooses one *strategy* for every
question: the controller's base model answers by itself, before any training of CoRL, or one expert answers. What every
strategy scores and costs on every question was measured before (`expert_outcomes`), so that choosing is a look-up in an
`OutcomeMatrix`:

- a constant always uses the same strategy, random choice uses any expert;
- routers predict from the words of a question which strategy will be rewarded;
- the cascade asks one strategy after another until a scorer trusts a reply (FrugalGPT, Chen et al. 2023), and pays for
  all that it asked;
- the oracle sees the outcomes of the test, which bounds everything that chooses one strategy.

Nothing is assumed about the experts: each may be best on questions of its own, or one may be best on all.

`lib.routers.methods` has routers of the same names for any table of items and models, which know correctness and cost
only. Those here also know the controller, the replies and the budget.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE
from lib.experiment import seeds
from lib.rl.budget_reward import compute_budget_reward, compute_cost_reward

VERSION = 1  # of what routers choose
NUM_NEIGHBOURS = 15
NUM_FOLDS = 5
TRUST_THRESHOLDS = np.linspace(0, 1, 21)  # the cascade stops where P(correct) reaches its threshold


# Outcomes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OutcomeMatrix:
    """What every strategy scored and cost on every question.

    A strategy is one way to answer: an expert, a model whose calls cost money, or the controller alone, which is the
    model that CoRL trains, before its training and for free. In a cascade, strategies are asked one after another.

    Attributes:
        strategies: Names of the strategies, the controller alone among them.
        expert_columns: Columns of the strategies that are one call to an expert, the cheapest expert first.
        correct: (questions, strategies), score of the answer in [0, 1].
        cost_usd: (questions, strategies), US dollars that the calls to experts cost.
        prompts: (questions,), the questions' texts.
        replies: (questions, stages of a cascade), text of the reply of each strategy in `cascade_columns`.
    """

    strategies: tuple[str, ...]
    expert_columns: tuple[int, ...]
    correct: np.ndarray
    cost_usd: np.ndarray
    prompts: tuple[str, ...]
    replies: np.ndarray

    @property
    def num_questions(self) -> int:
        """Number of questions, the rows of `correct` and `cost_usd`."""
        return len(self.prompts)

    @property
    def cascade_columns(self) -> tuple[int, ...]:
        """Columns of the strategies that a cascade may ask, in its order: the controller (it is free), then experts."""
        controller_column = self.strategies.index(CONTROLLER_ALONE)
        return (controller_column, *self.expert_columns)

    @property
    def columns_by_cost(self) -> np.ndarray:
        """Columns of all strategies, (strategies,), in order of their mean cost, the cheapest first."""
        return np.argsort(self.cost_usd.mean(axis=0), kind="stable")

    def compute_rewards(self, budget: float) -> np.ndarray:
        """Compute CoRL's reward (eq. 7) of every strategy: the score where the cost is within the budget, else 0.

        Args:
            budget: B, the most that a question's calls to experts may cost, in US dollars.

        Returns:
            (questions, strategies) in [0, 1].
        """
        return compute_budget_reward(self.correct, self.cost_usd, budget)


def make_outcome_matrix(
    expert_outcomes: pd.DataFrame,
    controller_outcomes: pd.DataFrame,
    split: str,
    experts: Sequence[str],
) -> OutcomeMatrix:
    """Arrange what experts and controller scored and cost on a set of questions as a matrix, which baselines choose by.

    Experts are models whose calls cost money; the controller is the model that CoRL trains, here before its training.
    A question of which any expert's reply was lost is left out, so that all strategies meet the same questions.

    Args:
        expert_outcomes: A row per expert, question and sample (an independent reply), with the columns split, item
            (number of the question), sample, prompt, method (the expert), correct (nan where the reply was lost),
            cost_usd and reply (`lib.budgeted_routing.expert_outcomes.measure_experts`).
        controller_outcomes: The same of the controller by itself (`measure_controller_alone`), on the same questions.
        split: train, dev or test; other rows are left out.
        experts: Methods of `expert_outcomes` that a cascade may ask, in that order: cheap ones first.

    Returns:
        The matrix. A row is one sample of a question, sorted by item and sample; the first column is the controller
        alone, the others are the methods of `expert_outcomes`.
    """
    expert_rows = expert_outcomes[expert_outcomes["split"] == split]
    controller_rows = controller_outcomes[controller_outcomes["split"] == split]
    lost_items = set(expert_rows.loc[expert_rows["correct"].isna(), "item"])
    if lost_items:
        expert_rows = expert_rows[~expert_rows["item"].isin(lost_items)]
        controller_rows = controller_rows[~controller_rows["item"].isin(lost_items)]

    methods = list(dict.fromkeys(expert_rows["method"]))
    strategies = (CONTROLLER_ALONE, *methods)

    # A row of the matrix is one sample of a question.
    expert_rows = expert_rows.sort_values(["item", "sample"])
    controller_rows = controller_rows.sort_values(["item", "sample"])
    prompts = expert_rows.drop_duplicates(["item", "sample"])["prompt"]

    correct = _stack_columns(controller_rows, expert_rows, methods, "correct")
    cost_usd = _stack_columns(controller_rows, expert_rows, methods, "cost_usd")
    return OutcomeMatrix(
        strategies=strategies,
        expert_columns=tuple(strategies.index(expert) for expert in experts),
        correct=correct.astype(float),
        cost_usd=cost_usd.astype(float),
        prompts=tuple(prompts),
        replies=_stack_columns(controller_rows, expert_rows, experts, "reply"),
    )


def _stack_columns(
    controller_rows: pd.DataFrame,
    expert_rows: pd.DataFrame,
    methods: Sequence[str],
    column: str,
) -> np.ndarray:
    """Arrange one column of the outcomes as a matrix with a row per question and a column per method.

    Args:
        controller_rows: A row per question, identified by item and sample, in their order.
        expert_rows: A row per question and method, with the column method.
        methods: The methods of `expert_rows` that are wanted.
        column: Name of the column.

    Returns:
        (questions, 1 + methods), of objects: the controller's values, then those of each method.
    """
    table = expert_rows.pivot(index=["item", "sample"], columns="method", values=column)
    # As objects, since numpy would cut off or pad texts to a common width.
    controller_values = controller_rows[column].to_numpy(dtype=object)  # (questions,)
    method_values = table[list(methods)].to_numpy(dtype=object)  # (questions, methods)
    return np.column_stack([controller_values, method_values])


# Comparison ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RouterResult:
    """What a router, which chooses for each question who answers, achieved on the test questions.

    Attributes:
        correct: (questions,), score of its answer in [0, 1].
        cost_usd: (questions,), what all its calls to experts cost.
        calls: (questions,), how many experts it called.
        chosen: (questions,), name of the strategy whose answer it gave: an expert, or the controller alone.
    """

    correct: np.ndarray
    cost_usd: np.ndarray
    calls: np.ndarray
    chosen: np.ndarray


# Called with training outcomes, test outcomes, a budget in US dollars and a seed. Not every router reads all four.
Router = Callable[[OutcomeMatrix, OutcomeMatrix, float, int], RouterResult]
_COLUMNS = (
    "method", "condition", "item", "correct", "cost_usd", "calls", "within", "reward", "chosen",
)  # fmt: skip
ROUTERS: dict[str, Router] = {}  # every router by its name, in the order of the tables


def register_router(name: str) -> Callable[[Router], Router]:
    """Decorate a function that routes questions to add it to ROUTERS, and thereby to every table and figure.

    >>> @register_router("always the largest")
    ... def choose_largest(train, test, budget, seed) -> RouterResult: ...

    Args:
        name: What tables call the router.

    Returns:
        The decorator, which returns the function unchanged.
    """

    def register(router: Router) -> Router:
        ROUTERS[name] = router
        return router

    return register


def compare_baselines(
    train: OutcomeMatrix,
    test: OutcomeMatrix,
    budgets: Mapping[str, float],
    router_names: Sequence[str] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Evaluate every baseline of CoRL on the test questions under every budget.

    A strategy is one way to answer a question: an expert, a model whose calls cost money, or the controller alone.
    Baselines use one strategy for all questions, or are routers, which choose a strategy for each question. A budget
    limits what the calls of a question may cost.

    Args:
        train: Scores and costs of all strategies on training questions, from which routers learn.
        test: The same on the test questions, with the same strategies.
        budgets: US dollars a question, by the name of the budget.
        router_names: The routers of ROUTERS that are run; None for all.
        seed: Seed of random choices.

    Returns:
        A row per method, budget and question: method (a strategy or a router), condition (name of the budget), item
        (row of `test`), correct, cost_usd, calls (number of experts that were called), within (1 where the cost is
        within the budget, else 0), reward (the score where the cost is within the budget, else 0), chosen (the strategy
        whose answer was given).
    """
    tables = []
    with threadpool_limits(1):  # fits this small only wait for a second thread
        for condition, budget in budgets.items():
            for column, strategy in enumerate(test.strategies):
                result = score_choices(test, np.full(test.num_questions, column))
                tables.append(_tabulate_result(result, strategy, condition, budget))
            for name in ROUTERS if router_names is None else router_names:
                result = ROUTERS[name](train, test, budget, seed)
                tables.append(_tabulate_result(result, name, condition, budget))
    if not tables:  # no budgets
        return pd.DataFrame(columns=_COLUMNS)
    return pd.concat(tables, ignore_index=True)


def _tabulate_result(
    result: RouterResult, method: str, condition: str, budget: float
) -> pd.DataFrame:
    """Tabulate what a baseline achieved under one budget.

    Args:
        result: Score, cost and chosen strategy of each question.
        method: Name of the baseline.
        condition: Name of the budget.
        budget: B, US dollars a question.

    Returns:
        A row per question: method, condition, item (number of the question), correct, cost_usd, calls, within (1 where
        the cost is within the budget, else 0), reward (eq. 7 of CoRL) and chosen.
    """
    return pd.DataFrame(
        {
            "method": method,
            "condition": condition,
            "item": np.arange(len(result.correct)),
            "correct": result.correct,
            "cost_usd": result.cost_usd,
            "calls": result.calls,
            "within": compute_cost_reward(result.cost_usd, budget),
            "reward": compute_budget_reward(result.correct, result.cost_usd, budget),
            "chosen": result.chosen,
        }
    )


def score_choices(test: OutcomeMatrix, columns: np.ndarray) -> RouterResult:
    """Look up what the strategies that were chosen for the questions scored and cost.

    Args:
        test: Score and cost of every strategy (an expert, or the controller alone) on every question.
        columns: (questions,), column of the strategy that was chosen for each question.

    Returns:
        Score, cost and name of the strategy, each (questions,).
    """
    rows = np.arange(len(columns))
    chosen = np.array(test.strategies)[columns]
    return RouterResult(
        correct=test.correct[rows, columns],
        cost_usd=test.cost_usd[rows, columns],
        calls=(chosen != CONTROLLER_ALONE).astype(int),
        chosen=chosen,
    )


def choose_highest(values: np.ndarray, columns_by_cost: np.ndarray) -> np.ndarray:
    """Choose for each question the strategy of the highest value, and of several with that value the cheapest.

    Args:
        values: (questions, strategies), such as predicted rewards; higher is better.
        columns_by_cost: (strategies,), the columns of `values` from the cheapest to the most expensive strategy.

    Returns:
        (questions,), column of the chosen strategy.
    """
    # argmax takes the first of equal values, so the cheapest has to come first.
    values_by_cost = values[:, columns_by_cost]
    ranks = values_by_cost.argmax(axis=1)  # (questions,), positions in the order of cost
    return columns_by_cost[ranks]


# Routers that choose one strategy -----------------------------------------------------------------


@register_router("random")
def choose_at_random(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "random": an expert drawn at random answers each question (the random assignment of CoRL's paper).

    Args:
        train: Not used, but an argument of all routers: the choice learns nothing.
        test: What every expert scores and costs on the test questions.
        budget: Not used, but an argument of all routers: the choice is the same under all budgets.
        seed: Seed of the random choice.

    Returns:
        Score, cost and name of the chosen strategy, each (test questions,).
    """
    rng = seeds.rng("routing", "baselines", "random", seed=seed)
    expert_columns = np.array(test.expert_columns)
    expert_indices = rng.integers(len(expert_columns), size=test.num_questions)
    return score_choices(test, expert_columns[expert_indices])


@register_router("best constant")
def choose_best_constant(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "best constant": the strategy of the highest mean reward in training answers all test questions.

    A strategy is an expert, or the controller alone. The reward is the score if the cost is within the budget, else 0.

    Args:
        train: What every strategy scores and costs on the training questions.
        test: The same on the test questions.
        budget: B, the most that a question may cost, in US dollars.
        seed: Not used, but an argument of all routers: nothing is random.

    Returns:
        Score, cost and name of the chosen strategy, each (test questions,).
    """
    mean_rewards = train.compute_rewards(budget).mean(axis=0, keepdims=True)  # (1, strategies)
    (best_column,) = choose_highest(mean_rewards, train.columns_by_cost)
    return score_choices(test, np.full(test.num_questions, best_column))


@register_router("best expert")
def choose_best_expert(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "best expert": the expert of the highest mean reward in training answers all test questions.

    The reward is the score if the cost is within the budget, else 0.

    Args:
        train: What every expert scores and costs on the training questions.
        test: The same on the test questions.
        budget: B, the most that a question may cost, in US dollars.
        seed: Not used, but an argument of all routers: nothing is random.

    Returns:
        Score, cost and name of the chosen strategy, each (test questions,).
    """
    mean_rewards = train.compute_rewards(budget).mean(axis=0)  # (strategies,)
    # From cheap to expensive: max takes the first of equal experts, which is the cheapest.
    best_column = max(train.expert_columns, key=lambda column: mean_rewards[column])
    return score_choices(test, np.full(test.num_questions, best_column))


@register_router("nearest neighbours")
def choose_by_neighbours(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "nearest neighbours": the strategy that was rewarded most on the most similar training questions.

    A strategy is an expert, or the controller alone. The reward is the score if the cost is within the budget, else 0.
    Similar questions have similar words and lengths.

    Args:
        train: What every strategy scores and costs on the training questions, and their texts.
        test: The same on the test questions.
        budget: B, the most that a question may cost, in US dollars.
        seed: Not used, but an argument of all routers: nothing is random.

    Returns:
        Score, cost and name of the chosen strategy, each (test questions,).
    """
    train_features, test_features = extract_features(train.prompts, test.prompts)
    rewards = train.compute_rewards(budget)
    predicted_rewards = average_over_neighbours(train_features, rewards, test_features)
    return score_choices(test, choose_highest(predicted_rewards, train.columns_by_cost))


@register_router("logistic")
def choose_by_logistic(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "logistic": the strategy whose reward is predicted to be highest, by logistic regression on words.

    A strategy is an expert, or the controller alone. The reward is the score if the cost is within the budget, else 0.

    Args:
        train: What every strategy scores and costs on the training questions, and their texts.
        test: The same on the test questions.
        budget: B, the most that a question may cost, in US dollars.
        seed: Not used, but an argument of all routers: nothing is random.

    Returns:
        Score, cost and name of the chosen strategy, each (test questions,).
    """
    train_features, test_features = extract_features(train.prompts, test.prompts)
    rewards = train.compute_rewards(budget)
    predicted_rewards = predict_rewards(train_features, rewards, test_features)
    return score_choices(test, choose_highest(predicted_rewards, train.columns_by_cost))


def extract_features(
    train_texts: Sequence[str], test_texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Describe texts by their words: counts of words and of pairs of words, and the number of words.

    Vocabulary and scales come from the training texts. The length of a question says how hard it is, so it weighs as
    much as all counts together; as one of many features it would be lost in a distance.

    Args:
        train_texts: n training texts.
        test_texts: k test texts.

    Returns:
        Features of the training texts, (n, d + 1), and of the test texts, (k, d + 1): d standardized counts of words
        and of pairs of words, then the weighted length.
    """
    count_words = make_pipeline(
        CountVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), max_features=512),
        StandardScaler(with_mean=False),
    )
    train_counts = count_words.fit_transform(train_texts).toarray()  # (n, d)
    test_counts = count_words.transform(test_texts).toarray()  # (k, d)

    scaler = StandardScaler().fit(_measure_lengths(train_texts))
    length_weight = train_counts.shape[1] ** 0.5  # squared distances add up over d counts
    train_lengths = length_weight * scaler.transform(_measure_lengths(train_texts))
    test_lengths = length_weight * scaler.transform(_measure_lengths(test_texts))
    return np.hstack([train_counts, train_lengths]), np.hstack([test_counts, test_lengths])


def _measure_lengths(texts: Sequence[str]) -> np.ndarray:
    """Count the words of each text; for n texts the result is (n, 1), floats."""
    num_words = [float(len(text.split())) for text in texts]
    return np.array(num_words).reshape(-1, 1)


def average_over_neighbours(
    train_features: np.ndarray,
    train_values: np.ndarray,
    test_features: np.ndarray,
    num_neighbours: int = NUM_NEIGHBOURS,
) -> np.ndarray:
    """Average values over the training questions that are nearest to each test question.

    Args:
        train_features: (n, d), d features of n training questions.
        train_values: (n, strategies), such as the reward of each strategy on each training question.
        test_features: (k, d), the same features of k test questions.
        num_neighbours: How many training questions are averaged; all n if there are fewer.

    Returns:
        Means, (k, strategies).
    """
    num_neighbours = min(num_neighbours, len(train_features))
    search = NearestNeighbors(n_neighbors=num_neighbours).fit(train_features)
    neighbours = search.kneighbors(test_features, return_distance=False)  # (k, num_neighbours)
    neighbour_values = train_values[neighbours]  # (k, num_neighbours, strategies)
    return neighbour_values.mean(axis=1)


def predict_rewards(
    train_features: np.ndarray, train_rewards: np.ndarray, test_features: np.ndarray
) -> np.ndarray:
    """Predict the reward of each strategy (an expert, or the controller alone) by a logistic regression of its own.

    Args:
        train_features: (n, d), d features of n training questions.
        train_rewards: (n, strategies), in [0, 1].
        test_features: (k, d), the same features of k test questions.

    Returns:
        Predicted rewards, (k, strategies).
    """
    predictions = [
        predict_success(train_features, rewards, test_features) for rewards in train_rewards.T
    ]
    return np.column_stack(predictions)


def predict_success(
    train_features: np.ndarray, train_scores: np.ndarray, test_features: np.ndarray
) -> np.ndarray:
    """Predict by logistic regression with which probability an answer succeeds, such as that it is correct.

    Args:
        train_features: (n, d), d features of n training questions.
        train_scores: (n,), in [0, 1]; from .5 on a score counts as success.
        test_features: (k, d), the same features of k test questions.

    Returns:
        P(success), (k,); 1 everywhere if all training scores are successes, 0 if none is.
    """
    is_success = train_scores >= 0.5
    if is_success.all() or not is_success.any():
        return np.full(len(test_features), float(is_success.mean()))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=0.1, max_iter=300).fit(train_features, is_success)
        return model.predict_proba(test_features)[:, 1]


# The cascade --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CascadePlan:
    """Which strategies a cascade asks one after another, and when it stops.

    Attributes:
        stages: Indices of `OutcomeMatrix.cascade_columns`, in order.
        threshold: The cascade takes a reply whose estimated probability of being correct is at least this.
    """

    stages: tuple[int, ...]
    threshold: float


@register_router("cascade")
def run_cascade(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "cascade": ask one model after another until a reply is probably correct, and pay for all calls.

    The controller comes first, since it is free, then the experts from cheap to expensive. A classifier of question and
    reply estimates the probability that the reply is correct (its trust). Which models are asked at all, and how much
    trust is enough, is chosen for the highest mean reward (score within the budget, else 0) on the training questions;
    of equally rewarded plans the cheapest.

    Args:
        train: What controller and experts score, cost and reply on the training questions.
        test: The same on the test questions.
        budget: B, the most that a question may cost, in US dollars.
        seed: Not used, but an argument of all routers: nothing is random.

    Returns:
        Per test question, each (test questions,): score of the last reply, cost of all calls, and who replied last.

    Source: FrugalGPT, Chen et al. 2023, which learns list and thresholds too.
    """
    train_trust, test_trust = _score_replies(train, test)  # (stages, questions)

    # Try every plan on the training questions.
    best_plan = None
    best_value = (-np.inf, -np.inf)
    for plan in _list_cascade_plans(len(train.cascade_columns)):
        result = _run_stages(train, train_trust, plan)
        rewards = compute_budget_reward(result.correct, result.cost_usd, budget)
        value = (rewards.mean(), -result.cost_usd.mean())
        if value > best_value:  # of equal plans the first one stays
            best_plan = plan
            best_value = value
    return _run_stages(test, test_trust, best_plan)


def _list_cascade_plans(num_stages: int) -> list[_CascadePlan]:
    """List all cascades: every non-empty selection of stages with every threshold, short selections first.

    Args:
        num_stages: How many models a cascade may ask, one after another.

    Returns:
        (2 ** num_stages - 1) * len(TRUST_THRESHOLDS) plans.
    """
    plans = []
    for length in range(1, num_stages + 1):
        for stages in combinations(range(num_stages), length):
            for threshold in TRUST_THRESHOLDS:
                plans.append(_CascadePlan(stages, threshold))
    return plans


@lru_cache(4)  # computed once for all budgets: trust depends on questions and replies only
def _score_replies(train: OutcomeMatrix, test: OutcomeMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Estimate for a cascade the probability that each model's reply to each question is correct (trust in the reply).

    One classifier per model of the cascade (a stage) reads question and reply. Trust in a training reply comes from a
    classifier that was fitted on other questions (cross-validation): one that had seen the reply's score would make
    cascades look better than they are when one of them is chosen.

    Args:
        train: Questions, replies and scores that the classifiers are fitted on.
        test: Questions and replies; the scores are not read.

    Returns:
        Trust in training replies, (stages, training questions), and in test replies, (stages, test questions).
    """
    train_trust = []
    test_trust = []
    for stage, column in enumerate(train.cascade_columns):
        train_texts = _join_replies(train, stage)
        train_features, test_features = extract_features(train_texts, _join_replies(test, stage))
        correct = train.correct[:, column]  # (training questions,)

        # Training replies: fitted on all folds but one, predicted for that one.
        stage_trust = np.zeros(train.num_questions)
        folds = KFold(min(NUM_FOLDS, train.num_questions))
        for fit_rows, other_rows in folds.split(train_features):
            stage_trust[other_rows] = predict_success(
                train_features[fit_rows], correct[fit_rows], train_features[other_rows]
            )
        train_trust.append(stage_trust)

        # Test replies: fitted on all training questions.
        test_trust.append(predict_success(train_features, correct, test_features))
    return np.array(train_trust), np.array(test_trust)


def _join_replies(outcomes: OutcomeMatrix, stage: int) -> list[str]:
    """Join each question with a reply to it, as the text by which a cascade judges the reply.

    Args:
        outcomes: Questions and replies.
        stage: Column of `outcomes.replies`, which model of the cascade replied.

    Returns:
        A text per question.
    """
    replies = outcomes.replies[:, stage]
    return [f"{prompt} {reply}" for prompt, reply in zip(outcomes.prompts, replies, strict=True)]


def _run_stages(outcomes: OutcomeMatrix, trust: np.ndarray, plan: _CascadePlan) -> RouterResult:
    """Run a cascade: ask the models of a plan one after another, until trust in a reply reaches the threshold.

    Args:
        outcomes: What every model (a stage) scores and costs on every question.
        trust: (stages, questions), estimated probability that the reply is correct.
        plan: Which stages are asked, and the threshold.

    Returns:
        Each (questions,): score of the last reply, cost and number of all calls, and the name of the model that replied
        last.
    """
    num_questions = outcomes.num_questions
    is_unanswered = np.ones(num_questions, dtype=bool)  # no reply was trusted yet
    correct = np.zeros(num_questions)
    cost_usd = np.zeros(num_questions)
    calls = np.zeros(num_questions, dtype=int)
    chosen = np.full(num_questions, "", dtype=object)
    for stage in plan.stages:
        column = outcomes.cascade_columns[stage]
        is_expert = outcomes.strategies[column] != CONTROLLER_ALONE
        calls += is_unanswered & is_expert
        cost_usd += is_unanswered * outcomes.cost_usd[:, column]
        correct = np.where(is_unanswered, outcomes.correct[:, column], correct)
        chosen[is_unanswered] = outcomes.strategies[column]
        is_unanswered = is_unanswered & (trust[stage] < plan.threshold)
    return RouterResult(correct, cost_usd, calls, chosen)


# The upper bound ----------------------------------------------------------------------------------


@register_router("oracle")
def choose_with_oracle(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Choose for each test question the strategy with the highest reward in hindsight (an upper bound).

    A strategy is an expert, or the controller alone. The reward is the score if the cost is within the budget, else 0.
    Of equally rewarded strategies it takes the cheapest. No router that chooses one strategy per question gets more.

    Args:
        train: Not used, but an argument of all routers: the oracle learns nothing.
        test: What every strategy scores and costs on the test questions.
        budget: B, the most that a question may cost, in US dollars.
        seed: Not used, but an argument of all routers: nothing is random.

    Returns:
        Score, cost and name of the chosen strategy, each (test questions,).
    """
    rewards = test.compute_rewards(budget)  # (questions, strategies)
    best_rewards = rewards.max(axis=1, keepdims=True)
    # Of the strategies with the highest reward the one that costs least on this question.
    costs_of_best = np.where(rewards == best_rewards, test.cost_usd, np.inf)
    return score_choices(test, choose_highest(-costs_of_best, test.columns_by_cost))
