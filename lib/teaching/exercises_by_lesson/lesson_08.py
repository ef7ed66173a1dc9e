"""Exercises of recorded outcomes: the luck of an oracle, a check that errs, another router's log, when to escalate."""

import numpy as np

from lib.teaching.exercises_by_lesson import Exercise, Exercises

STUB = '''def stop_or_escalate(
    spent: list[float],
    correct: list[int],
    expensive_correct: list[int],
    expensive_cost: list[float],
    limit: float,
) -> tuple[float, float]:
    """Mean accuracy and mean cost where a cheap agent is stopped that needs more than `limit`.

    Args:
        spent: What the cheap agent needs for each issue.
        correct: Whether it solves the issue, 1 or 0, if it is not stopped.
        expensive_correct: The same of the expensive agent.
        expensive_cost: What the expensive agent needs.
        limit: What the cheap agent may spend on an issue.

    Returns:
        Mean accuracy, mean cost.
    """
    raise NotImplementedError


# The check compares your function with the rule on 200 random issues, at three limits: they stop
# the cheap agent on all issues, on half of them, and on none.
answer = stop_or_escalate'''


def stop_or_escalate(spent, correct, expensive_correct, expensive_cost, limit):
    """Mean accuracy and mean cost where the cheap agent is stopped that needs more than `limit`."""
    finishes = np.asarray(spent) <= limit
    # A stopped agent has spent the limit, and the expensive one is paid on top.
    cost = np.where(finishes, spent, limit + np.asarray(expensive_cost))
    accuracy = np.where(finishes, correct, expensive_correct)
    return float(accuracy.mean()), float(cost.mean())


def forget_limit(spent, correct, expensive_correct, expensive_cost, limit):
    """The mistake: what was spent before the stop is not counted."""
    finishes = np.asarray(spent) <= limit
    cost = np.where(finishes, spent, expensive_cost)
    accuracy = np.where(finishes, correct, expensive_correct)
    return float(accuracy.mean()), float(cost.mean())


def _compare_with_rule(answer) -> bool | str:
    """Compares a function with `stop_or_escalate` where all issues, half of them and none are escalated.

    Args:
        answer: The student's solution, from costs, correctness and limit to accuracy and cost.

    Returns:
        True, or what is wrong.
    """
    rng = np.random.default_rng(0)
    spent = rng.gamma(2.0, 0.1, 200)
    expensive_cost = rng.gamma(2.0, 0.5, 200)
    correct = rng.random(200) < 0.6
    expensive_correct = rng.random(200) < 0.9
    for limit in (0.0, float(np.median(spent)), float(spent.max())):
        items = (spent, correct, expensive_correct, expensive_cost)
        result = tuple(map(float, answer(*items, limit)))
        if not np.allclose(result, stop_or_escalate(*items, limit)):
            return f"at a limit of {limit:.3f} you return {result}; who is asked, and what is paid altogether?"
    return True


EXERCISES = Exercises(
    Exercise(
        "08.1",
        "easy",
        3,
        "Three models are each correct on an item with probability one half, independently of each other. An "
        "oracle knows the outcomes and asks a correct model if there is one. By how much does it beat the best "
        "constant, which asks one model for every item, in accuracy?",
        nudge="the oracle is correct wherever at least one of them is",
        hint="how often is none of the three correct?",
        answer=0.375,
        worked="None is correct on 1/8 of the items, so the oracle is correct on 0.875 of them. No router can gain any "
        "of the 0.375: nothing that is known beforehand predicts the outcomes.",
        wrong=0.875,
        important=True,
        tolerance=1e-3,
    ),
    Exercise(
        "08.2",
        "medium",
        5,
        "A cheap agent costs 1 and is correct on 0.7 of the issues, an expensive one costs 10. A check of the cheap "
        "agent's patch lets 20 % of the wrong patches pass and refuses 10 % of the correct ones. Where it refuses, the "
        "expensive agent is asked. What does an issue cost on average?",
        nudge="the expensive agent is paid for every patch that is refused, correct or not",
        hint="which share of all patches does the check refuse?",
        answer=4.1,
        worked="It refuses 0.7 x 0.1 + 0.3 x 0.8 = 0.31, so that an issue costs 1 + 0.31 x 10.",
        wrong=4.0,
        important=True,
        tolerance=1e-3,
    ),
    Exercise(
        "08.3",
        "medium",
        6,
        "A log of four items says whether it chose the model that your router would choose, the probability of the "
        "logged choice, and whether the reply was correct: (yes, 0.5, 1), (no, 0.5, 1), (yes, 0.25, 0), (yes, 0.5, 1). "
        "Estimate the accuracy of your router by inverse propensity scoring (IPS) and by its normalized form, which "
        "divides by the mean weight (SNIPS), as [ips, snips].",
        nudge="an item on which the log made another choice has weight 0",
        hint="the weights are 2, 0, 4 and 2",
        answer=[1.0, 0.5],
        worked="IPS divides 2 + 2 by the four items, SNIPS by the sum of the weights, 8. The improbable third choice "
        "has a large weight, and IPS moves with it; a normalised estimate never leaves [0, 1].",
        wrong=[0.5, 0.5],
        tolerance=1e-3,
    ),
    Exercise(
        "08.4",
        "hard",
        12,
        "Write the rule *stop or escalate*: a cheap agent that needs more US dollars than a limit is stopped there, "
        "and the expensive agent is asked. What the cheap agent spent before the stop is paid, too.",
        nudge="np.where on spent <= limit",
        hint="what was spent before the stop is lost, and is paid all the same",
        answer=stop_or_escalate,
        worked="Within the limit the cheap agent's work is accepted, correct or not; beyond it the limit is lost and "
        "the expensive agent is paid in full.",
        wrong=forget_limit,
        important=True,
        judge=_compare_with_rule,
        start=STUB,
    ),
)
check = EXERCISES.check
