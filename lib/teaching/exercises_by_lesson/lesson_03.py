"""Exercises of the model zoo: chains of steps, mixtures, votes, and a router of one's own."""

from lib import tasks
from lib.tasks import Item
from lib.teaching.exercises_by_lesson import Exercise, Exercises

# Operations up to which a model is right, in this exercise.
REACH = {"nano": 2, "mini": 4, "large": 8}
PRICE = {"nano": 1.0, "mini": 3.0, "large": 9.0}


def by_length(prompt: str) -> str:
    """The cheapest model that can do as many operations as the prompt has."""
    operations = sum(word in "+-*" for word in prompt.split())
    return next((name for name, reach in REACH.items() if operations <= reach), "large")


def always_large(prompt: str) -> str:
    """The mistake: everything to the most expensive one."""
    return "large"


def questions() -> list[Item]:
    """Chains of one to eight operations."""
    return [
        item
        for difficulty in range(1, 9)
        for item in tasks.draw_items("chain", "test", 10, difficulty=difficulty)
    ]


def _routes_well(answer) -> bool | str:
    """Checks that a router sends every question to a model that can do it, at a low mean cost.

    Args:
        answer: The student's solution, from a question to the name of a model.

    Returns:
        True, or what is wrong.
    """
    items = questions()
    num_correct = 0
    mean_cost = 0.0
    for item in items:
        name = answer(item.prompt)
        if name not in REACH:
            return f"{name!r} is no model; there are {', '.join(REACH)}"
        num_correct += item.difficulty <= REACH[name]
        mean_cost += PRICE[name] / len(items)
    if num_correct < len(items):
        return f"{len(items) - num_correct} of {len(items)} questions went to a model that cannot do them"
    return mean_cost < 6 or f"all right at a mean cost of {mean_cost:.2f}; 6 is enough"


EXERCISES = Exercises(
    Exercise(
        "03.1",
        "easy",
        3,
        "A model is right with 0.95 per step. How often is a chain of 8 operations right?",
        nudge="the probabilities of independent steps multiply",
        hint="every step must be right",
        answer=0.95**8,
        worked="0.95 to the power of 8: small weaknesses multiply, which is why accuracy jumps while loss glides.",
        wrong=0.95,
        important=True,
        tolerance=0.005,
    ),
    Exercise(
        "03.2",
        "medium",
        5,
        "A cheap model costs 1 and is right half of the time, an expensive one costs 9 and is always right. At what "
        "mean cost does a random mixture of the two reach 0.75?",
        nudge="find the share of questions that has to go to the expensive model",
        hint="half of the questions go to either",
        answer=5.0,
        worked="Half of the questions to each: 0.5 x 0.5 + 0.5 x 1 = 0.75 at (1 + 9) / 2. Any router has to beat this "
        "line.",
        wrong=0.75 * 9,
    ),
    Exercise(
        "03.3",
        "medium",
        6,
        "A model is right with probability 0.6 and you ask it three times, independently; the majority counts. How "
        "often is it right, if wrong answers agree with each other? And at how many times the price? Answer with a "
        "pair.",
        nudge="list the ways in which the majority is right",
        hint="all three, or exactly two of three",
        answer=(0.6**3 + 3 * 0.6**2 * 0.4, 3.0),
        worked="0.216 + 0.432 = 0.648, for three times the price. Compare with what a better model costs.",
        wrong=(1 - 0.4**3, 3.0),
        tolerance=0.002,
    ),
    Exercise(
        "03.4",
        "hard",
        15,
        "Write a router: a function from a prompt such as `3 + 4 * 2 = ?` to `nano`, `mini` or `large`. Suppose they "
        "do chains of up to 2, 4 and 8 operations and cost 1, 3 and 9. It is run on 80 test questions of 1 to 8 "
        "operations; all must be right, at a mean cost below 6.",
        nudge="the prompt shows how long its chain is",
        hint="count the signs among prompt.split()",
        answer=by_length,
        worked="How many operations there are stands in the prompt, so that nobody needs to be asked to know.",
        wrong=always_large,
        important=True,
        judge=_routes_well,
        start="answer = None  # a function of a prompt",
    ),
)
check = EXERCISES.check
