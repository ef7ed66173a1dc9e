"""What a controller has to beat: constants, random, cascade, routers that are trained on outcomes, the oracle.

All of them choose, for every question, one of the same strategies: answer it yourself (the controller's base, before
it was taught anything else), or give it to one expert. Where they learn, they learn the reward
of CoRL at the budget that they are tested at, from outcomes on training questions. The cascade begins with the
controller, which is free, and asks experts from cheap to dear until a scorer trusts the reply; whom it asks at all
and how much trust is enough it learns (FrugalGPT, Chen et al. 2023), and it pays for all asked.

`lib.routers.methods` has rivals of the same names on any table of items and models, where nothing but right and cost
is known; these know strategies and replies, and each chooses for one budget.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

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

from lib.budgeted_routing.expert_outcomes import ITSELF
from lib.experiment import seeds

VERSION = 1  # of what routers choose
NEIGHBOURS = 15
THRESHOLDS = np.linspace(0, 1, 21)  # of the cascade's trust
FOLDS = 5  # a scorer is not tried on what it learned from


@dataclass(frozen=True, eq=False)
class Tried:
    """What every strategy made of n questions: correct, cost_usd (n, m); prompts (n,); experts: columns of whole
    questions to experts, cheap to dear; replies (n, stages): the text that each stage of the cascade gave."""

    strategies: tuple[str, ...]
    experts: tuple[int, ...]
    correct: np.ndarray
    cost_usd: np.ndarray
    prompts: tuple[str, ...]
    replies: np.ndarray

    def reward(self, budget: float) -> np.ndarray:
        """r of eq. 7, (n, m)."""
        return self.correct * (self.cost_usd <= budget)

    @property
    def stages(self) -> tuple[int, ...]:
        """Columns that the cascade asks, in order: the controller costs nothing, so it comes before any expert."""
        return (self.strategies.index(ITSELF), *self.experts)

    @property
    def cheap_first(self) -> np.ndarray:
        """Strategies by mean price."""
        return np.argsort(self.cost_usd.mean(0), kind="stable")


Route = Callable[[Tried, Tried, float, int], "RouterResult"]  # train, test, budget in dollars, seed
ROUTERS: dict[str, Route] = {}  # every router by its name, in the order of the tables


@dataclass(frozen=True)
class RouterResult:
    """What a router made of n test questions: right, dollars (n,), and the strategy chosen for each."""

    correct: np.ndarray
    cost_usd: np.ndarray
    chosen: np.ndarray


def router(name: str) -> Callable[[Route], Route]:
    """Adds a function to the routers that every table and figure shows."""

    def add(route: Route) -> Route:
        ROUTERS[name] = route
        return route

    return add


def asked(test: Tried, columns: np.ndarray) -> RouterResult:
    """What comes of asking one strategy for each question; columns: (n,) places of strategies."""
    at = np.arange(len(columns)), columns
    return RouterResult(test.correct[at], test.cost_usd[at], np.array(test.strategies)[columns])


def tried_on(tried: pd.DataFrame, alone: pd.DataFrame, split: str, experts: Sequence[str]) -> Tried:
    """One split of the tables of a study.

    Args:
        tried: Of `expert_outcomes.try_experts`.
        alone: Of `expert_outcomes.try_alone`: the base that answers itself.
        split: train, dev or test.
        experts: Methods of `tried`, cheap to expensive.

    Returns:
        A row per question and sample; questions of which a reply was lost are left out.
    """
    outcomes = tried[tried["split"] == split]
    own_outcomes = alone[alone["split"] == split]
    # Nothing may be learned from, or scored on, what only some strategies were asked.
    lost_items = set(outcomes.loc[outcomes["correct"].isna(), "item"])
    if lost_items:
        outcomes = outcomes[~outcomes["item"].isin(lost_items)]
        own_outcomes = own_outcomes[~own_outcomes["item"].isin(lost_items)]

    own_outcomes = own_outcomes.sort_values(["item", "sample"])
    names = (ITSELF, *dict.fromkeys(outcomes["method"]))
    wide = {
        column: outcomes.pivot(index=["item", "sample"], columns="method", values=column)
        for column in ("correct", "cost_usd", "reply")
    }
    # (questions, strategies) each
    correct = np.column_stack([own_outcomes["correct"], wide["correct"][list(names[1:])]])
    cost_usd = np.column_stack([own_outcomes["cost_usd"], wide["cost_usd"][list(names[1:])]])
    questions = outcomes.drop_duplicates(["item", "sample"]).sort_values(["item", "sample"])
    columns = tuple(names.index(expert) for expert in experts)
    own_replies = own_outcomes["reply"].to_numpy(dtype=object)
    replies = np.column_stack([own_replies, wide["reply"][list(experts)]])
    return Tried(
        names,
        columns,
        correct.astype(float),
        cost_usd.astype(float),
        tuple(questions["prompt"]),
        replies,
    )


def compare(train: Tried, test: Tried, budgets: Mapping[str, float], seed: int = 0) -> pd.DataFrame:
    """Every strategy and every router on the test questions under every budget: columns router, label, item, right,
    dollars, within, reward, chosen."""
    n, tables = len(test.prompts), []
    with threadpool_limits(1):  # fits this small only wait for a second thread
        for label, budget in budgets.items():
            for m, name in enumerate(test.strategies):
                tables.append(_rows(asked(test, np.full(n, m)), name, label, budget))
            for name, route in ROUTERS.items():
                tables.append(_rows(route(train, test, budget, seed), name, label, budget))
    return pd.concat(tables, ignore_index=True)


def _rows(found: RouterResult, name: str, label: str, budget: float) -> pd.DataFrame:
    within = (found.cost_usd <= budget).astype(float)
    columns = {
        "correct": found.correct,
        "cost_usd": found.cost_usd,
        "within": within,
        "reward": found.correct * within,
    }
    columns |= {"chosen": found.chosen}
    return pd.DataFrame(
        {"method": name, "condition": label, "item": np.arange(len(found.correct))} | columns
    )


@router("random")
def _random(train: Tried, test: Tried, budget: float, seed: int) -> RouterResult:
    """Among experts, as the paper's random assignment."""
    rng = seeds.rng("routing", "baselines", "random", seed=seed)
    return asked(
        test, np.array(test.experts)[rng.integers(len(test.experts), size=len(test.prompts))]
    )


@router("best constant")
def _constant(train: Tried, test: Tried, budget: float, seed: int) -> RouterResult:
    """The strategy that is paid best on the training questions."""
    column = best(train.reward(budget).mean(0)[None], train.cheap_first)[0]
    return asked(test, np.full(len(test.prompts), column))


@router("nearest neighbours")
def _nearest(train: Tried, test: Tried, budget: float, seed: int) -> RouterResult:
    """The strategy that was paid best on the training questions most similar to each."""
    learn, new = features(train.prompts, test.prompts)
    return asked(test, best(neighbours(learn, train.reward(budget), new), train.cheap_first))


@router("logistic")
def _by_logistic(train: Tried, test: Tried, budget: float, seed: int) -> RouterResult:
    """The strategy whose reward is predicted to be highest."""
    learn, new = features(train.prompts, test.prompts)
    return asked(test, best(_logistic(learn, train.reward(budget), new), train.cheap_first))


def best(values: np.ndarray, cheap_first: np.ndarray) -> np.ndarray:
    """The strategy of highest value in each row; of equal ones the cheapest."""
    return cheap_first[values[:, cheap_first].argmax(1)]


def features(train: Sequence[str], test: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of words and of pairs of words, and last the number of words, scaled on the training texts: (n, d + 1),
    (k, d + 1). How long a question is says how hard it is, so it weighs as much as all d counts together: as one of
    many it would be lost in a distance."""
    words = make_pipeline(
        CountVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), max_features=512),
        StandardScaler(with_mean=False),
    )
    counts = words.fit_transform(train).toarray(), words.transform(test).toarray()
    scaler = StandardScaler().fit(_lengths(train))
    weight = counts[0].shape[1] ** 0.5
    seen, unseen = (
        np.hstack([part, weight * scaler.transform(_lengths(texts))])
        for part, texts in zip(counts, (train, test), strict=True)
    )
    return seen, unseen


def _lengths(texts: Sequence[str]) -> np.ndarray:
    """Words of each text, (n, 1)."""
    return np.array([[float(len(text.split()))] for text in texts])


def neighbours(
    learn: np.ndarray, wanted: np.ndarray, asked: np.ndarray, k: int = NEIGHBOURS
) -> np.ndarray:
    """Mean of wanted (n, m) over the k training questions most similar to each asked, (questions asked, m)."""
    near = NearestNeighbors(n_neighbors=min(k, len(learn))).fit(learn)
    return wanted[near.kneighbors(asked, return_distance=False)].mean(1)


def _logistic(learn: np.ndarray, wanted: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Predicted reward of each strategy, (k, m)."""
    return np.column_stack([chance(learn, wanted[:, m], asked) for m in range(wanted.shape[1])])


def chance(learn: np.ndarray, good: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """P(good) by logistic regression, (k,); a constant where all examples agree."""
    good = good >= 0.5
    if good.all() or not good.any():
        return np.full(len(asked), float(good.mean()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=0.1, max_iter=300).fit(learn, good).predict_proba(asked)[:, 1]


@lru_cache(4)  # the same for every budget
def _trust(train: Tried, test: Tried) -> tuple[np.ndarray, np.ndarray]:
    """P(right) of every stage's reply by a scorer that reads question and reply, (stages, n) each: on training
    questions from other folds, so that the scorer is not asked what it learned."""
    held, applied = [], []
    for e, m in enumerate(train.stages):
        texts, others = (
            [f"{p} {r}" for p, r in zip(part.prompts, part.replies[:, e], strict=True)]
            for part in (train, test)
        )
        learn, new = features(texts, others)
        out = np.zeros(len(texts))
        for some, rest in KFold(min(FOLDS, len(texts))).split(learn):
            out[rest] = chance(learn[some], train.correct[some, m], learn[rest])
        held.append(out)
        applied.append(chance(learn, train.correct[:, m], new))
    return np.array(held), np.array(applied)


@router("cascade")
def _cascade(train: Tried, test: Tried, budget: float, seed: int) -> RouterResult:
    """With the list of stages and the threshold, as FrugalGPT learns both, that the training questions are paid best
    for at this budget; of equals the cheapest."""
    trust, numbers = _trust(train, test), range(len(train.stages))
    lists = [some for length in numbers for some in combinations(numbers, length + 1)]
    ways = list(product(lists, THRESHOLDS))
    learned = [_escalated(train, trust[0], *way, budget) for way in ways]
    best = max(range(len(ways)), key=lambda i: (learned[i][2].mean(), -learned[i][1].mean()))
    correct, cost_usd, _, last = _escalated(test, trust[1], *ways[best], budget)
    return RouterResult(correct, cost_usd, last)


def _escalated(
    part: Tried, trust: np.ndarray, stages: Sequence[int], threshold: float, budget: float
):
    """Ask some stages in order until trust (stages, n) reaches the threshold: right, dollars, reward, last asked."""
    n = len(part.prompts)
    asking, correct, cost_usd, last = (
        np.ones(n, bool),
        np.zeros(n),
        np.zeros(n),
        np.full(n, "", dtype=object),
    )
    for e in stages:
        m = part.stages[e]
        cost_usd += asking * part.cost_usd[:, m]
        correct = np.where(asking, part.correct[:, m], correct)
        last[asking] = part.strategies[m]
        asking = asking & (trust[e] < threshold)
    return correct, cost_usd, correct * (cost_usd <= budget), last


@router("oracle")
def _oracle(train: Tried, test: Tried, budget: float, seed: int) -> RouterResult:
    """The cheapest strategy that is paid, for every question; the cheapest of all where none is."""
    paid, order = test.reward(budget), test.cheap_first
    rows = zip(paid, test.cost_usd, strict=True)
    return asked(
        test, np.array([min(order, key=lambda m: (-row[m], cost[m])) for row, cost in rows])
    )
