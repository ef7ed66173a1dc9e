"""Exercises of recorded outcomes: an oracle's luck, a check that errs, a log of another router, a rule to stop by."""

import numpy as np

from lib.teaching.exercises_by_lesson import Exercise, Exercises


def stopping(spent, correct, dear_right, dear_dollars, limit):
    """Mean right and mean dollars where the cheap agent is stopped once it has spent `limit`."""
    finished = np.asarray(spent) <= limit
    # A stopped agent has spent the limit, and the expensive one is paid on top.
    cost = np.where(finished, spent, limit + np.asarray(dear_dollars))
    accuracy = np.where(finished, correct, dear_right)
    return float(accuracy.mean()), float(cost.mean())


def forgetful(spent, correct, dear_right, dear_dollars, limit):
    """The mistake: the money spent before the stop is forgotten."""
    finished = np.asarray(spent) <= limit
    cost = np.where(finished, spent, dear_dollars)
    accuracy = np.where(finished, correct, dear_right)
    return float(accuracy.mean()), float(cost.mean())


def _stops(answer) -> bool | str:
    """Compares an answer with `stopping` where all agents, half of them and none are stopped."""
    rng = np.random.default_rng(0)
    spent = rng.gamma(2.0, 0.1, 200)
    expensive_cost = rng.gamma(2.0, 0.5, 200)
    correct = rng.random(200) < 0.6
    expensive_correct = rng.random(200) < 0.9
    for limit in (0.0, float(np.median(spent)), float(spent.max())):
        items = (spent, correct, expensive_correct, expensive_cost)
        result = tuple(map(float, answer(*items, limit)))
        if not np.allclose(result, stopping(*items, limit)):
            return f"at a limit of {limit:.3f} you say {result}; think of who is asked, and of everything that is paid"
    return True


EXERCISES = Exercises(
    Exercise(
        "08.1",
        "easy",
        3,
        "Three models are each right on half of all items, by a coin of their own on every item. By how much does an "
        "oracle that sees the coins beat the best constant?",
        hint="when is nobody right?",
        answer=0.375,
        worked="Nobody is right in 1/8 of the items, so the oracle is right in 0.875 of them. No router can earn any "
        "of the 0.375: there is nothing to know beforehand.",
        wrong=0.875,
        important=True,
        tolerance=1e-3,
    ),
    Exercise(
        "08.2",
        "medium",
        5,
        "A cheap agent costs 1 and is right on 0.7 of the issues, a dear one costs 10. A check between them lets 20 % "
        "of the wrong patches pass and refuses 10 % of the right ones. What does an issue cost on average?",
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
        "A log of four items holds whether the author asked the model that your router would ask, the chance of "
        "that, and whether the reply was right: (yes, 0.5, 1), (no, 0.5, 1), (yes, 0.25, 0), (yes, 0.5, 1). Estimate "
        "what your router is worth by IPS and by SNIPS, as [ips, snips].",
        hint="the weights are 2, 0, 4 and 2",
        answer=[1.0, 0.5],
        worked="IPS divides 2 + 2 by the four items, SNIPS by the sum of the weights, 8. One item was luckily cheap to "
        "log, and IPS moves with it; a normalised estimate never leaves [0, 1].",
        wrong=[0.5, 0.5],
        tolerance=1e-3,
    ),
    Exercise(
        "08.4",
        "hard",
        12,
        "Write the rule *stop or escalate*: a function of spent (n,), what the cheap agent would spend, right (n,), "
        "whether it would be right, dear_right (n,), dear_dollars (n,), and a limit. An agent that needs more than the "
        "limit is stopped there and the dear one is asked. It returns mean right and mean dollars.",
        hint="np.where on spent <= limit; what was spent before the stop is gone",
        answer=stopping,
        worked="Below the limit the cheap agent's work stands, whatever it is worth; above it the limit is lost and "
        "the dear agent is paid in full.",
        wrong=forgetful,
        important=True,
        judge=_stops,
        start="answer = None  # a function of spent, right, dear_right, dear_dollars, limit",
    ),
)
check = EXERCISES.check
