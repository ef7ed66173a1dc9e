"""Exercises of budgeted routing: a hard budget, an advantage, a mixture, and a reward of one's own."""

from itertools import pairwise

from lib import stats
from lib.rl.budget_reward import compute_budget_reward
from lib.teaching.exercises_by_lesson import Exercise, Exercises

BUDGET = 0.006


def thrifty(correct: float, cost_usd: float, budget: float) -> float:
    """CoRL's reward, and half of it only for what is left of the budget."""
    return compute_budget_reward(correct, cost_usd, budget) * (1 - 0.5 * cost_usd / budget)


def sign_error(correct: float, cost_usd: float, budget: float) -> float:
    """The mistake: of two right answers the more expensive one is rewarded more."""
    return compute_budget_reward(correct, cost_usd, budget) * (1 + cost_usd / budget) / 2


def _saves(answer) -> bool | str:
    """Checks that only right answers within the budget are rewarded, and cheaper ones more."""
    costs_within = [0.0, 0.001, 0.003, BUDGET]
    costs_beyond = [0.0061, 1.0]
    if any(answer(0.0, cost, BUDGET) != 0 for cost in costs_within + costs_beyond):
        return "a wrong answer was paid"
    if any(answer(1.0, cost, BUDGET) != 0 for cost in costs_beyond):
        return "an answer beyond the budget was paid"
    rewards = [answer(1.0, cost, BUDGET) for cost in costs_within]
    if not all(0 < value <= 1 for value in rewards):
        return "a right answer within the budget is paid more than 0 and at most 1, the limit itself included"
    is_decreasing = all(cheaper > dearer for cheaper, dearer in pairwise(rewards))
    return is_decreasing or "of two right answers the cheaper is paid more"


EXERCISES = Exercises(
    Exercise(
        "05.1",
        "easy",
        3,
        "A budget of 10 and two experts: one is right in 6 of 10 questions for a price of 8, the other in 9 of 10 for "
        "a price of 12. What is the expected reward of always calling the second one?",
        hint="what is 1[c <= B]?",
        answer=compute_budget_reward(0.9, 12, 10),
        worked="Every call costs 12, more than the budget, so every reward is 0. The worse expert earns 0.6.",
        wrong=0.9,
        important=True,
    ),
    Exercise(
        "05.2",
        "medium",
        5,
        r"With $\gamma = \lambda = 1$ and the reward only at the last token, what is the advantage of a token before "
        r"which "
        "the value head says 0.7, in an episode with reward 1, with 50 expert tokens behind it?",
        hint="write the sum of the deltas out; which terms cancel?",
        answer=0.3,
        worked="All values but the first cancel, so that the advantage is 1 - 0.7. Expert tokens, which are "
        "compressed away, change nothing.",
        wrong=1.0,
        important=True,
    ),
    Exercise(
        "05.3",
        "medium",
        8,
        "Three constants cost 1, 4 and 9 and are right in 0.40, 0.60 and 0.90 of the questions. You may mix them by "
        "lot. What is the best accuracy at a mean cost of 5? `stats.hull_at(costs, qualities, 5)` computes it, with "
        "`from lib import stats`. Then lower the middle one to 0.55 and say why it drops out.",
        hint="a share of 1/5 to the dearest and the rest to the middle one costs 5",
        answer=stats.hull_at([1, 4, 9], [0.4, 0.6, 0.9], 5),
        worked="0.6 + (0.9 - 0.6) / 5 = 0.66. At 0.55 the middle one lies below the line between its neighbours, "
        "0.5875 at a cost of 4, so that a coin between those is better.",
        wrong=0.65,
        tolerance=1e-3,
    ),
    Exercise(
        "05.4",
        "hard",
        15,
        "Write a reward: a function of right (0 or 1), dollars and budget. As in the paper, a wrong answer and one "
        "beyond the budget are paid 0, the limit itself included in the budget. Unlike in the paper, of two right "
        "answers the cheaper one is paid more, and any within the budget more than 0 and at most 1.",
        hint="multiply the paper's reward by something that falls with dollars / budget, but not to 0",
        answer=thrifty,
        worked="A factor that falls from 1 to 1/2. A plus in place of the minus would teach to squander.",
        wrong=sign_error,
        important=True,
        judge=_saves,
        start="answer = None  # a function of right, dollars and budget",
    ),
)
check = EXERCISES.check
