"""Exercises of budgeted routing: a hard budget, an advantage, a mixture, a reward of one's own, and a cascade."""

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
    """Checks a reward: only right answers within the budget are rewarded, and cheaper ones more.

    Args:
        answer: The student's solution, from performance, cost and budget (dollars) to a reward.

    Returns:
        True, or what is wrong.
    """
    costs_within = [0.0, 0.001, 0.003, BUDGET]
    costs_beyond = [0.0061, 1.0]
    if any(answer(0.0, cost, BUDGET) != 0 for cost in costs_within + costs_beyond):
        return "a wrong answer was paid"
    if any(answer(1.0, cost, BUDGET) != 0 for cost in costs_beyond):
        return "an answer beyond the budget was paid"
    rewards = [answer(1.0, cost, BUDGET) for cost in costs_within]
    if not all(0 < value <= 1 for value in rewards):
        return "a right answer within the budget is paid more than 0 and at most 1, the limit itself included"
    is_decreasing = all(first > second for first, second in pairwise(rewards))
    return is_decreasing or "of two right answers the cheaper is paid more"


THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 1.0)
CASCADE_STUB = """\
def choose_threshold(
    trust: list[float],
    cheap_correct: list[int],
    expensive_correct: list[int],
    thresholds: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0),
) -> float:
    \"\"\"Choose how much trust in the cheap model's reply is enough to keep it.

    Args:
        trust: Of the cheap model's reply to each training question, 0 to 1.
        cheap_correct: Whether that reply is correct, 1 or 0.
        expensive_correct: The same of the expensive model's reply.
        thresholds: Candidates, ascending.

    Returns:
        The candidate with the highest share of correct replies; of equal ones the lowest, which costs least.
    \"\"\"
    raise NotImplementedError


answer = choose_threshold"""


def choose_threshold(trust, cheap_correct, expensive_correct, thresholds=THRESHOLDS) -> float:
    """Chooses the threshold of a cascade that gives the highest share of correct replies.

    The cheap model's reply is used where its trust reaches the threshold, else that of the expensive model.

    Args:
        trust: (n,) trust in the cheap model's reply to each question.
        cheap_correct: (n,) whether that reply is correct.
        expensive_correct: (n,) whether the expensive model's reply is correct.
        thresholds: Candidates, ascending.

    Returns:
        The best candidate, the lowest of equal ones.
    """
    best_threshold, best_share = thresholds[0], -1.0
    for threshold in thresholds:
        num_correct = 0
        for value, cheap, expensive in zip(trust, cheap_correct, expensive_correct, strict=True):
            num_correct += cheap if value >= threshold else expensive
        share = num_correct / len(trust)
        if share > best_share:
            best_threshold, best_share = threshold, share
    return best_threshold


def choose_highest_threshold(
    trust, cheap_correct, expensive_correct, thresholds=THRESHOLDS
) -> float:
    """The mistake: of equally good thresholds the highest one, which calls the expensive model most."""
    reversed_thresholds = thresholds[::-1]
    return choose_threshold(trust, cheap_correct, expensive_correct, reversed_thresholds)


def _check_threshold(answer) -> bool | str:
    """Checks the chosen threshold where trust is informative, where it misleads, and where all are equal.

    Args:
        answer: The student's solution, as `choose_threshold`.

    Returns:
        True, or what is wrong.
    """
    trust = [0.1, 0.3, 0.6, 0.9]
    cases = {
        "trust separates correct replies from wrong ones": ([0, 0, 1, 1], [1, 1, 0, 1]),
        "the expensive model is always right": ([0, 0, 0, 0], [1, 1, 1, 1]),
        "both models are right on the same questions": ([1, 0, 1, 0], [1, 0, 1, 0]),
    }
    for case, (cheap_correct, expensive_correct) in cases.items():
        expected = choose_threshold(trust, cheap_correct, expensive_correct)
        threshold = answer(trust, cheap_correct, expensive_correct)
        if threshold != expected:
            return f"where {case}, the threshold is not {threshold}"
    return True


EXERCISES = Exercises(
    Exercise(
        "05.1",
        "easy",
        3,
        "A budget of 10 and two experts: one is right in 6 of 10 questions for a price of 8, the other in 9 of 10 for "
        "a price of 12. What is the expected reward of always calling the second one?",
        nudge="compare the price with the budget before you look at accuracy",
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
        nudge="the expert's tokens have no deltas",
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
        "Three constants cost 1, 4 and 9 and are right in 0.40, 0.60 and 0.90 of the questions. You may mix them at "
        "random. What is the best accuracy at a mean cost of 5? `stats.hull_at(costs, qualities, 5)` computes it, with "
        "`from lib import stats`. Then lower the middle one to 0.55 and say why it drops out.",
        nudge="a mixture lies on the line between two constants; which two?",
        hint="which share of the most expensive one brings a mean cost of 5 with the middle one?",
        answer=stats.hull_at([1, 4, 9], [0.4, 0.6, 0.9], 5),
        worked="0.6 + (0.9 - 0.6) / 5 = 0.66. At 0.55 the middle one lies below the line between its neighbours, "
        "0.5875 at a cost of 4, so that a random mixture of those is better.",
        wrong=0.65,
        tolerance=1e-3,
    ),
    Exercise(
        "05.4",
        "medium",
        10,
        "A cascade of two models: the cheap one replies first, and its reply is kept where the *trust* in it, an "
        "estimated probability that it is correct, is at least a threshold. Otherwise the expensive model is called "
        "too, and its reply counts. The budget affords both. Write the function that chooses the threshold on training "
        "questions.",
        nudge="only trusts that occur can change whose reply counts",
        hint="for each candidate, whose reply counts on each question, and how many of these replies are correct?",
        answer=choose_threshold,
        worked="For each candidate, count the correct replies: the cheap one's where trust reaches the candidate, the "
        "expensive one's elsewhere. Replace the best so far only where the share is strictly higher, so that of equal "
        "candidates the lowest stays.",
        wrong=choose_highest_threshold,
        judge=_check_threshold,
        start=CASCADE_STUB,
    ),
    Exercise(
        "05.5",
        "hard",
        15,
        "Write a reward: a function of right (0 or 1), dollars and budget. As in the paper, a wrong answer and one "
        "beyond the budget are paid 0, the limit itself included in the budget. Unlike in the paper, of two right "
        "answers the cheaper one is paid more, and any within the budget more than 0 and at most 1.",
        nudge="begin with the paper's reward, and change what is paid within the budget",
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
