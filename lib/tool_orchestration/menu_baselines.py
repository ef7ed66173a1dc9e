"""What an orchestrator of the lab world is compared with: choices of one tool per menu, without an orchestrator.

Every baseline is a matrix of probabilities over the tools of each menu, so that what it earns is an expectation over
measured outcomes of all tools on all menus (`lab_episodes.measure_tool_outcomes`). A baseline that cannot choose on a
menu has nan there, and is compared on the other menus alone.

    choose_single_tool              one tool, where it is on the menu; nothing where it is not
    choose_best_tool                one order of tools for all users, by their scores on dev menus
    choose_best_by_kind             the same for each kind of question, which is a label that it is given
    choose_by_logistic_regression   accuracy is predicted from the words of the question and the tool's description
    choose_by_type_and_price        the first step of a type-aware cascade: the cheapest tool that its description calls
                                    good at the kind of the question, which is a label that it is given
    choose_by_objective             the ablest tool of the menu, or the cheapest, or the fastest, whoever the user is
    choose_by_largest_wish          the ablest, cheapest or fastest tool, by what the user weighs most
    choose_at_random                every tool with the same probability
    choose_oracle                   the tool with the highest score in the outcomes themselves: no choice is better

`compute_menu_scores` is the score of all of them and of an orchestrator's episodes: bounded by 0 and 1.

Letters of shapes: n menus, M tools on a menu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from lib.tool_orchestration.lab_menus import (
    CAPABLE_ACCURACY,
    LabAssignment,
    MenuEntry,
    list_wishes,
)
from lib.tool_orchestration.tool_menu import OBJECTIVES

VERSION = 1  # of the baselines of the lab world
# The digit of an ability (tenths of questions answered) from which a tool counts as good.
GOOD_ABILITY = int(10 * CAPABLE_ACCURACY)


@dataclass(frozen=True)
class MenuOutcomes:
    """What every tool on every menu does with the menu's question, in one sample of replies.

    Attributes:
        assignments: n questions with menus and users.
        correct: (n, M) whether the tool's reply is correct.
        cost_usd: (n, M) US dollars of the call.
        seconds: (n, M) latency of the call.
    """

    assignments: Sequence[LabAssignment]
    correct: np.ndarray
    cost_usd: np.ndarray
    seconds: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """The weights of accuracy, cost and latency of the user of each menu, (n, 3)."""
        users = [assignment.user for assignment in self.assignments]
        return np.array([[user.accuracy, user.cost, user.latency] for user in users])

    def compute_scores(self) -> np.ndarray:
        """Compute the score of calling each tool once, without an orchestrator; (n, M) (`compute_menu_scores`)."""
        return compute_menu_scores(self, self.correct, self.cost_usd, self.seconds)


def compute_menu_scores(
    outcomes: MenuOutcomes, correct: np.ndarray, cost_usd: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """Compute the preference score of the lab world, which is bounded.

        score = (P_accuracy + P_cost cheap + P_latency fast) / (P_accuracy + P_cost + P_latency),  0 if not correct

    cheap is 1 at the cost of the cheapest tool of the menu and 0 at that of the most expensive one, fast likewise; what
    lies outside of the menu's range counts as its nearer end. So no saving can be worth more than the user's weight.

    Args:
        outcomes: Outcomes of every tool, which give the range of costs and latencies of each menu.
        correct: (n, m) outcomes of m choices on every menu.
        cost_usd: (n, m) their cost.
        seconds: (n, m) their latency.

    Returns:
        (n, m) scores in [0, 1].
    """
    cheap = _scale_to_menu(cost_usd, outcomes.cost_usd)
    fast = _scale_to_menu(seconds, outcomes.seconds)
    weights = outcomes.weights[:, None, :]  # (n, 1, 3)
    wishes = weights[..., 0] + weights[..., 1] * cheap + weights[..., 2] * fast
    return correct * wishes / weights.sum(-1)


def _scale_to_menu(amounts: np.ndarray, amounts_of_menu: np.ndarray) -> np.ndarray:
    """Scale amounts to savings, relative to the tools of each menu.

    Args:
        amounts: (n, m) cost or latency of m choices on each of n menus.
        amounts_of_menu: (n, M) the same of the M tools of each menu.

    Returns:
        (n, m) 1 at the lowest amount of the menu and below, 0 at the highest and above, linear between.
    """
    lowest = amounts_of_menu.min(1, keepdims=True)
    highest = amounts_of_menu.max(1, keepdims=True)
    return np.clip((highest - amounts) / (highest - lowest), 0, 1)


def average_choices(probabilities: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Compute the expected value of a choice on each menu: sum over tools m of probability_nm value_nm.

    Args:
        probabilities: (n, M) of choosing each of M tools on n menus; nan on menus where there is no choice.
        values: (n, M) value of each tool, such as its score.

    Returns:
        (n,) expected values; nan on menus where there is no choice.
    """
    return (probabilities * values).sum(1)


# Choices -------------------------------------------------------------------------------------------


def choose_at_random(outcomes: MenuOutcomes) -> np.ndarray:
    """Choose each of the M tools of n menus with the same probability; (n, M) probabilities."""
    return np.full(outcomes.correct.shape, 1 / outcomes.correct.shape[1])


def choose_oracle(outcomes: MenuOutcomes) -> np.ndarray:
    """Choose the tool with the highest score in hindsight.

    Args:
        outcomes: n menus of M tools with their outcomes.

    Returns:
        (n, M) 1 at the choice, which of tools with equal scores is the cheapest, else 0.
    """
    scores = outcomes.compute_scores()
    is_best = scores == scores.max(1, keepdims=True)
    cost_of_best = np.where(is_best, outcomes.cost_usd, np.inf)
    return _choose_largest(-cost_of_best)


def choose_single_tool(outcomes: MenuOutcomes, name: str) -> np.ndarray:
    """Choose one tool wherever it is on the menu.

    Args:
        outcomes: Menus with the outcomes of their tools.
        name: Name of the lab model.

    Returns:
        (n, M) 1 at the tool; nan on menus without it.
    """
    rows = []
    for assignment in outcomes.assignments:
        rows.append([entry.tool.name == name for entry in assignment.entries])
    is_tool = np.array(rows)  # (n, M)
    is_on_menu = is_tool.any(1, keepdims=True)
    return np.where(is_on_menu, is_tool.astype(float), np.nan)


def choose_best_tool(dev: MenuOutcomes, test: MenuOutcomes) -> np.ndarray:
    """Choose by one order of tools for all users: the tool on the menu whose mean score on dev menus is highest.

    Args:
        dev: Menus with outcomes, from which the order is learned.
        test: n menus of M tools, on which choices are made.

    Returns:
        (n, M) 1 at the choice, else 0.
    """
    mean_scores = _average_scores_by_tool(dev, np.ones(len(dev.assignments), bool))
    return _choose_largest(_look_up(test, mean_scores))


def choose_best_by_kind(dev: MenuOutcomes, test: MenuOutcomes) -> np.ndarray:
    """Choose by an order of tools for each kind of question: the tool of highest mean score at this kind on dev menus.

    The kind is given as a label; it is not read from the question.

    Args:
        dev: Menus with outcomes, from which the orders are learned.
        test: n menus of M tools, on which choices are made.

    Returns:
        (n, M) 1 at the choice, else 0.
    """
    dev_kinds = np.array([assignment.item.group for assignment in dev.assignments])
    test_kinds = np.array([assignment.item.group for assignment in test.assignments])
    choices = np.full(test.correct.shape, np.nan)
    for kind in dict.fromkeys(test_kinds):
        mean_scores = _average_scores_by_tool(dev, dev_kinds == kind)
        is_kind = test_kinds == kind
        choices[is_kind] = _choose_largest(_look_up(test, mean_scores))[is_kind]
    return choices


def choose_by_objective(outcomes: MenuOutcomes, objective: str) -> np.ndarray:
    """Choose the tool that its description calls best in one objective.

    Args:
        outcomes: Menus with outcomes; only the menus are read.
        objective: One of OBJECTIVES.

    Returns:
        (n, M) probabilities: equal for tools that are equally good.
    """
    values = np.array(
        [_list_values(assignment, objective) for assignment in outcomes.assignments]
    )  # (n, M), higher is better
    is_best = values == values.max(1, keepdims=True)
    return is_best / is_best.sum(1, keepdims=True)


def choose_by_largest_wish(outcomes: MenuOutcomes) -> np.ndarray:
    """Choose the tool that its description calls best in the objective that the user weighs most.

    Args:
        outcomes: n menus of M tools; only menus and users are read.

    Returns:
        (n, M) probabilities: equal for tools that are equally good.
    """
    choices_by_objective = {name: choose_by_objective(outcomes, name) for name in OBJECTIVES}
    rows = []
    for index, assignment in enumerate(outcomes.assignments):
        largest_wish = list_wishes(assignment.user)[0]
        rows.append(choices_by_objective[largest_wish][index])
    return np.array(rows)


def _list_values(assignment: LabAssignment, objective: str) -> list[int]:
    """List what the menu says of each tool in one objective.

    Args:
        assignment: A question with its menu.
        objective: accuracy, cost or latency.

    Returns:
        Ability, -price level or -latency level of each tool; higher is better.
    """
    kind = assignment.item.group
    values_by_objective = {
        "accuracy": [entry.tool.describe_ability(kind) for entry in assignment.entries],
        "cost": [-entry.price_level for entry in assignment.entries],
        "latency": [-entry.latency_level for entry in assignment.entries],
    }
    return values_by_objective[objective]


def choose_by_type_and_price(outcomes: MenuOutcomes) -> np.ndarray:
    """Choose the cheapest tool that its description calls good at the kind of the question, which is a label.

    This is the first step of a type-aware cascade. Where no description is good, it is the best of them.

    Args:
        outcomes: Menus with outcomes; only the menus are read.

    Returns:
        (n, M) 1 at the choice.
    """
    preference_order = []
    for assignment in outcomes.assignments:
        kind = assignment.item.group
        abilities = np.array([entry.tool.describe_ability(kind) for entry in assignment.entries])
        price_levels = np.array([entry.price_level for entry in assignment.entries])
        is_good = abilities >= min(GOOD_ABILITY, abilities.max())
        preference_order.append(np.where(is_good, -price_levels, -np.inf))
    return _choose_largest(np.array(preference_order))


def choose_by_logistic_regression(dev: MenuOutcomes, test: MenuOutcomes) -> np.ndarray:
    """Choose the tool with the highest expected score, from accuracies that a logistic regression predicts.

    It reads what an orchestrator reads: the words of the question and the digits of the description, every word times
    every ability. The user's weights and the levels of the menu enter by the formula of the score. It learns from as
    many outcomes as there are tools on the dev menus, where an orchestrator sees the outcomes of its own calls alone.

    Args:
        dev: Menus with outcomes, from which accuracies are learned.
        test: n menus of M tools, on which choices are made; their outcomes are not read.

    Returns:
        (n, M) 1 at the choice.
    """
    vectorizer = CountVectorizer(
        token_pattern=r"\S+", binary=True, lowercase=False, max_features=60
    )
    vectorizer.fit([assignment.item.prompt for assignment in dev.assignments])
    model = LogisticRegression(C=0.3, max_iter=1_000)
    model.fit(_make_features(dev, vectorizer), dev.correct.ravel() > 0)
    predicted = model.predict_proba(_make_features(test, vectorizer))[:, 1]
    predicted = predicted.reshape(test.correct.shape)  # (n, M) accuracy

    # What a call of an average length costs and takes on this menu, from what the menu says.
    prices = []
    latencies = []
    for assignment in test.assignments:
        prices.append([entry.usd_per_token for entry in assignment.entries])
        latencies.append([entry.seconds_per_token for entry in assignment.entries])

    # The score that each tool would have if it were correct, times the probability that it is.
    if_correct = MenuOutcomes(
        test.assignments,
        correct=np.ones_like(predicted),
        cost_usd=np.array(prices),
        seconds=np.array(latencies),
    )
    return _choose_largest(predicted * if_correct.compute_scores())


def _make_features(outcomes: MenuOutcomes, vectorizer: CountVectorizer) -> np.ndarray:
    """Make the features of the regression: a tool's abilities, and their products with the words of the question.

    Args:
        outcomes: n menus of M tools.
        vectorizer: Says whether each of its words is in a question.

    Returns:
        (n M, 3 + 3 words): a row for each tool on each menu, with its ability at 3 kinds of questions.
    """
    prompts = [assignment.item.prompt for assignment in outcomes.assignments]
    words = vectorizer.transform(prompts).toarray()  # (n, words)
    rows = []
    for assignment, words_of_question in zip(outcomes.assignments, words, strict=True):
        for entry in assignment.entries:
            abilities = _list_abilities(entry) / 10
            rows.append(np.concatenate([abilities, np.outer(words_of_question, abilities).ravel()]))
    return np.array(rows)


def _list_abilities(entry: MenuEntry) -> np.ndarray:
    """List the digits of a tool's description, its ability at each kind of question."""
    kinds = dict.fromkeys(kind for kind, _ in entry.tool.accuracy)
    return np.array([entry.tool.describe_ability(kind) for kind in kinds], float)


def _average_scores_by_tool(outcomes: MenuOutcomes, is_counted: np.ndarray) -> dict[str, float]:
    """Average the score of each tool over the menus that have it.

    Args:
        outcomes: n menus with the outcomes of their tools.
        is_counted: (n,) whether a menu counts.

    Returns:
        Mean score by the tool's name.
    """
    scores = outcomes.compute_scores()
    scores_by_tool: dict[str, list[float]] = {}
    for index in np.flatnonzero(is_counted):
        entries = outcomes.assignments[index].entries
        for entry, score in zip(entries, scores[index], strict=True):
            # A tool may be on some menus only; its mean is over those.
            scores_by_tool.setdefault(entry.tool.name, []).append(score)

    mean_scores = {}
    for name, tool_scores in scores_by_tool.items():
        mean_scores[name] = float(np.mean(tool_scores))
    return mean_scores


def _look_up(outcomes: MenuOutcomes, value_by_tool: dict[str, float]) -> np.ndarray:
    """Look up a value, such as a mean score, of each of M tools on n menus; (n, M), -1 for a tool without a value."""
    rows = []
    for assignment in outcomes.assignments:
        rows.append([value_by_tool.get(entry.tool.name, -1.0) for entry in assignment.entries])
    return np.array(rows)


def _choose_largest(values: np.ndarray) -> np.ndarray:
    """Choose the largest of (n, M) values in each row, the first of equal ones; (n, M) 1 at the choice, else 0."""
    return np.eye(values.shape[1])[values.argmax(1)]
