"""Baselines of CoRL: constants, random choice, trained routers, a cascade, and an oracle.

CoRL trains a small language model, the controller, which answers a question itself or pays larger models, the experts.
The reward of a question is 1 if the answer is correct and the calls cost no more than the budget, else 0.

A baseline meets the same questions under the same budget. It chooses one *strategy* for every question: the
controller's base model answers by itself, before any training of CoRL, or one expert answers. What every strategy
scores and costs on every question was measured before (`expert_outcomes`), so that choosing is a look-up in an
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

    Attributes:
        strategies: Names of the strategies, the controller alone among them.
        expert_columns: Columns of the single calls of an expert, in the order in which a cascade may ask them.
        correct: (questions, strategies), score of the answer in [0, 1].
        cost_usd: (questions, strategies), what the calls of experts cost.
        prompts: (questions,), the questions' texts.
        replies: (questions, stages), text of the reply at every stage of a cascade; see `cascade_columns`.
    """

    strategies: tuple[str, ...]
    expert_columns: tuple[int, ...]
    correct: np.ndarray
    cost_usd: np.ndarray
    prompts: tuple[str, ...]
    replies: np.ndarray

    @property
    def num_questions(self) -> int:
        """How many questions there are."""
        return len(self.prompts)

    @property
    def cascade_columns(self) -> tuple[int, ...]:
        """Columns of the strategies that a cascade may ask, in its order: the controller (it is free), then experts."""
        return (self.strategies.index(CONTROLLER_ALONE), *self.expert_columns)

    @property
    def columns_by_cost(self) -> np.ndarray:
        """Columns (strategies,) in order of mean cost, the cheapest first."""
        return np.argsort(self.cost_usd.mean(axis=0), kind="stable")

    def compute_rewards(self, budget: float) -> np.ndarray:
        """The reward (questions, strategies) of CoRL, eq. 7: the score where the cost is within the budget, else 0.

        Args:
            budget: B, US dollars a question.
        """
        return compute_budget_reward(self.correct, self.cost_usd, budget)


def make_outcome_matrix(
    expert_outcomes: pd.DataFrame,
    controller_outcomes: pd.DataFrame,
    split: str,
    experts: Sequence[str],
) -> OutcomeMatrix:
    """Arrange measured outcomes of one split as a matrix of questions and strategies.

    A question of which any expert's reply was lost is left out, so that all strategies meet the same questions.

    Args:
        expert_outcomes: The table of `lib.budgeted_routing.expert_outcomes.measure_experts`.
        controller_outcomes: The table of `measure_controller_alone`, on the same questions.
        split: train, dev or test.
        experts: Methods of `expert_outcomes` that a cascade may ask, in that order: cheap ones first.

    Returns:
        The matrix; a row is a question in one of its samples, sorted by item and sample.
    """
    rows = expert_outcomes[expert_outcomes["split"] == split]
    controller_rows = controller_outcomes[controller_outcomes["split"] == split]
    lost_items = set(rows.loc[rows["correct"].isna(), "item"])
    if lost_items:
        rows = rows[~rows["item"].isin(lost_items)]
        controller_rows = controller_rows[~controller_rows["item"].isin(lost_items)]

    methods = list(dict.fromkeys(rows["method"]))
    strategies = (CONTROLLER_ALONE, *methods)
    questions = rows.drop_duplicates(["item", "sample"]).sort_values(["item", "sample"])
    return OutcomeMatrix(
        strategies=strategies,
        expert_columns=tuple(strategies.index(expert) for expert in experts),
        correct=_stack_columns(controller_rows, rows, methods, "correct").astype(float),
        cost_usd=_stack_columns(controller_rows, rows, methods, "cost_usd").astype(float),
        prompts=tuple(questions["prompt"]),
        replies=_stack_columns(controller_rows, rows, experts, "reply"),
    )


def _stack_columns(
    controller_rows: pd.DataFrame, rows: pd.DataFrame, methods: Sequence[str], name: str
) -> np.ndarray:
    """Values (questions, 1 + methods) of one column: those of the controller, then those of each method."""
    controller_rows = controller_rows.sort_values(["item", "sample"])
    values = rows.pivot(index=["item", "sample"], columns="method", values=name)
    # As objects, since texts of a common width would be cut off or padded.
    return np.column_stack(
        [controller_rows[name].to_numpy(dtype=object), values[list(methods)].to_numpy(dtype=object)]
    )


# Comparison ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RouterResult:
    """What a router achieved on the test questions.

    Attributes:
        correct: (questions,), score of its answer.
        cost_usd: (questions,), what all its calls cost.
        chosen: (questions,), name of the strategy whose answer it gave.
    """

    correct: np.ndarray
    cost_usd: np.ndarray
    chosen: np.ndarray


# From training outcomes, test questions, a budget in US dollars and a seed to a result on the test questions.
Router = Callable[[OutcomeMatrix, OutcomeMatrix, float, int], RouterResult]
_COLUMNS = ("method", "condition", "item", "correct", "cost_usd", "within", "reward", "chosen")
ROUTERS: dict[str, Router] = {}  # every router by its name, in the order of the tables


def register_router(name: str) -> Callable[[Router], Router]:
    """Decorate a router to add it to ROUTERS, and thereby to every table and figure.

    Args:
        name: How tables call it.
    """

    def register(router: Router) -> Router:
        ROUTERS[name] = router
        return router

    return register


def compare(
    train: OutcomeMatrix,
    test: OutcomeMatrix,
    budgets: Mapping[str, float],
    router_names: Sequence[str] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Run every strategy and every router of ROUTERS on the test questions, under every budget.

    Args:
        train: Outcomes that routers learn from.
        test: Outcomes that they are scored on, with the same strategies.
        budgets: US dollars a question, by the budget's name.
        router_names: The routers that are run; None for all.
        seed: Of random choices.

    Returns:
        A row per method, budget and question: method (a strategy or a router), condition (name of the budget), item
        (row of `test`), correct, cost_usd, within (1 where the cost is within the budget), reward, chosen (the
        strategy whose answer was given).
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
    """A row per question, with the columns of `compare`."""
    return pd.DataFrame(
        {
            "method": method,
            "condition": condition,
            "item": np.arange(len(result.correct)),
            "correct": result.correct,
            "cost_usd": result.cost_usd,
            "within": compute_cost_reward(result.cost_usd, budget),
            "reward": compute_budget_reward(result.correct, result.cost_usd, budget),
            "chosen": result.chosen,
        }
    )


def score_choices(test: OutcomeMatrix, columns: np.ndarray) -> RouterResult:
    """Look up what comes of using one strategy for each question.

    Args:
        test: Outcomes.
        columns: (questions,), column of the strategy that is used for each question.
    """
    rows = np.arange(len(columns))
    return RouterResult(
        correct=test.correct[rows, columns],
        cost_usd=test.cost_usd[rows, columns],
        chosen=np.array(test.strategies)[columns],
    )


def choose_highest(values: np.ndarray, columns_by_cost: np.ndarray) -> np.ndarray:
    """The column (questions,) of the highest value in each row; of equal ones that of the cheapest strategy.

    Args:
        values: (questions, strategies), higher is better.
        columns_by_cost: (strategies,), columns from cheap to expensive.
    """
    # argmax takes the first of equal values, so the cheapest has to come first.
    return columns_by_cost[values[:, columns_by_cost].argmax(axis=1)]


# Routers that choose one strategy -----------------------------------------------------------------


@register_router("random")
def choose_at_random(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "random": every expert is equally likely for every question, as in the paper's random assignment.

    Args:
        train: Not used.
        test: Outcomes on the test questions.
        budget: Not used.
        seed: Of the random choice.
    """
    rng = seeds.rng("routing", "baselines", "random", seed=seed)
    expert_columns = np.array(test.expert_columns)
    expert_indices = rng.integers(len(expert_columns), size=test.num_questions)
    return score_choices(test, expert_columns[expert_indices])


@register_router("best constant")
def choose_best_constant(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "best constant": for all questions the strategy of the highest mean reward in training at this budget.

    Args:
        train: Outcomes on the training questions.
        test: Outcomes on the test questions.
        budget: B, US dollars a question.
        seed: Not used.
    """
    mean_rewards = train.compute_rewards(budget).mean(axis=0)  # (strategies,)
    (column,) = choose_highest(mean_rewards[None], train.columns_by_cost)
    return score_choices(test, np.full(test.num_questions, column))


@register_router("best expert")
def choose_best_expert(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "best expert": for all questions the expert of the highest mean reward in training at this budget.

    Args:
        train: Outcomes on the training questions.
        test: Outcomes on the test questions.
        budget: B, US dollars a question.
        seed: Not used.
    """
    mean_rewards = train.compute_rewards(budget).mean(axis=0)  # (strategies,)
    columns = np.array(train.expert_columns)  # from cheap to expensive: of equal ones the cheapest
    column = columns[mean_rewards[columns].argmax()]
    return score_choices(test, np.full(test.num_questions, column))


@register_router("nearest neighbours")
def choose_by_neighbours(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "nearest neighbours": the strategy that was rewarded most on the most similar training questions.

    Args:
        train: Outcomes on the training questions.
        test: Outcomes on the test questions.
        budget: B, US dollars a question.
        seed: Not used.
    """
    train_features, test_features = extract_features(train.prompts, test.prompts)
    rewards = train.compute_rewards(budget)
    predicted_rewards = average_over_neighbours(train_features, rewards, test_features)
    return score_choices(test, choose_highest(predicted_rewards, train.columns_by_cost))


@register_router("logistic")
def choose_by_logistic(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "logistic": the strategy whose reward logistic regression predicts to be highest.

    Args:
        train: Outcomes on the training questions.
        test: Outcomes on the test questions.
        budget: B, US dollars a question.
        seed: Not used.
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
    much as all d counts together; as one of many features it would be lost in a distance.

    Args:
        train_texts: n texts.
        test_texts: k texts.

    Returns:
        Features of the training texts, (n, d + 1), and of the test texts, (k, d + 1).
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
    """Number of words of each text, (n, 1)."""
    return np.array([[float(len(text.split()))] for text in texts])


def average_over_neighbours(
    train_features: np.ndarray,
    train_values: np.ndarray,
    test_features: np.ndarray,
    num_neighbours: int = NUM_NEIGHBOURS,
) -> np.ndarray:
    """Average values over the training questions that are nearest to each test question.

    Args:
        train_features: (n, d).
        train_values: (n, strategies).
        test_features: (k, d).
        num_neighbours: How many are averaged; all n if there are fewer.

    Returns:
        Means, (k, strategies).
    """
    num_neighbours = min(num_neighbours, len(train_features))
    search = NearestNeighbors(n_neighbors=num_neighbours).fit(train_features)
    neighbours = search.kneighbors(test_features, return_distance=False)  # (k, num_neighbours)
    return train_values[neighbours].mean(axis=1)


def predict_rewards(
    train_features: np.ndarray, train_rewards: np.ndarray, test_features: np.ndarray
) -> np.ndarray:
    """Predict the reward of each strategy by a logistic regression of its own.

    Args:
        train_features: (n, d).
        train_rewards: (n, strategies).
        test_features: (k, d).

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
    """Predict the probability of success by logistic regression.

    Args:
        train_features: (n, d).
        train_scores: (n,), in [0, 1]; from .5 on it counts as success.
        test_features: (k, d).

    Returns:
        P(success), (k,); constant where all training questions agree.
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
    """Which stages a cascade asks, in order, and from which trust on it takes a reply."""

    stages: tuple[int, ...]
    threshold: float


@register_router("cascade")
def run_cascade(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Baseline "cascade": ask one strategy after another until a scorer trusts the reply; all calls are paid for.

    The controller comes first, since it is free, then experts in the order of `OutcomeMatrix.expert_columns`. Which of
    them are asked at all, and how much trust is enough, is chosen for the highest mean reward on the training questions
    at this budget; of equally rewarded plans the cheapest.

    Args:
        train: Outcomes on the training questions.
        test: Outcomes on the test questions.
        budget: B, US dollars a question.
        seed: Not used.

    Source: FrugalGPT, Chen et al. 2023, which learns list and thresholds too.
    """
    train_trust, test_trust = _score_replies(train, test)
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
    """Every non-empty selection of stages with every threshold, short selections first."""
    plans = []
    for length in range(1, num_stages + 1):
        for stages in combinations(range(num_stages), length):
            plans += [_CascadePlan(stages, threshold) for threshold in TRUST_THRESHOLDS]
    return plans


@lru_cache(4)  # budgets share it: trust depends on questions and replies only
def _score_replies(train: OutcomeMatrix, test: OutcomeMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Estimate P(correct) of every stage's reply, by a scorer that reads question and reply.

    Trust in a training reply comes from a scorer that was fitted on the other folds: one that had seen the reply's
    score would be trusted too much when the plan is chosen.

    Args:
        train: Outcomes that the scorers are fitted on.
        test: Outcomes of which only questions and replies are read.

    Returns:
        Trust in training replies, (stages, train questions), and in test replies, (stages, test questions).
    """
    train_trust = []
    test_trust = []
    for stage, column in enumerate(train.cascade_columns):
        train_texts = _join_replies(train, stage)
        train_features, test_features = extract_features(train_texts, _join_replies(test, stage))
        correct = train.correct[:, column]

        stage_trust = np.zeros(train.num_questions)
        folds = KFold(min(NUM_FOLDS, train.num_questions))
        for fit_rows, other_rows in folds.split(train_features):
            stage_trust[other_rows] = predict_success(
                train_features[fit_rows], correct[fit_rows], train_features[other_rows]
            )
        train_trust.append(stage_trust)
        test_trust.append(predict_success(train_features, correct, test_features))
    return np.array(train_trust), np.array(test_trust)


def _join_replies(outcomes: OutcomeMatrix, stage: int) -> list[str]:
    """Each question with the reply of a stage behind it."""
    replies = outcomes.replies[:, stage]
    return [f"{prompt} {reply}" for prompt, reply in zip(outcomes.prompts, replies, strict=True)]


def _run_stages(outcomes: OutcomeMatrix, trust: np.ndarray, plan: _CascadePlan) -> RouterResult:
    """Ask the stages of a plan in order, each question until trust in a reply reaches the threshold.

    Args:
        outcomes: What every stage scores and costs.
        trust: (stages, questions), P(correct) of every reply.
        plan: Stages and threshold.

    Returns:
        Score of the last reply, cost of all calls, and the strategy that was asked last.
    """
    num_questions = outcomes.num_questions
    is_open = np.ones(num_questions, dtype=bool)  # no reply has been trusted so far
    correct = np.zeros(num_questions)
    cost_usd = np.zeros(num_questions)
    chosen = np.full(num_questions, "", dtype=object)
    for stage in plan.stages:
        column = outcomes.cascade_columns[stage]
        cost_usd += is_open * outcomes.cost_usd[:, column]
        correct = np.where(is_open, outcomes.correct[:, column], correct)
        chosen[is_open] = outcomes.strategies[column]
        is_open = is_open & (trust[stage] < plan.threshold)
    return RouterResult(correct, cost_usd, chosen)


# The upper bound ----------------------------------------------------------------------------------


@register_router("oracle")
def choose_with_oracle(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    """Upper bound "oracle": the cheapest strategy that is rewarded, of each question; it sees the test's outcomes.

    No router that chooses one strategy per question gets more. Where none is rewarded, it uses the cheapest of all.

    Args:
        train: Not used.
        test: Outcomes on the test questions.
        budget: B, US dollars a question.
        seed: Not used.
    """
    order = test.columns_by_cost
    rewards = test.compute_rewards(budget)[:, order]
    costs = test.cost_usd[:, order]
    # lexsort sorts by its last key first: the highest reward, then the lowest cost, then the lowest mean cost.
    ranking = np.lexsort((costs, -rewards), axis=1)
    return score_choices(test, order[ranking[:, 0]])
