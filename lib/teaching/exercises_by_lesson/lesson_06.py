"""Exercises of tool orchestration: the sign of a term, units, a tool and a reward of one's own."""

import numpy as np

from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises
from lib.tool_orchestration import rewards
from lib.tools import Tool

GROUP = rewards.make_outcome_vectors(
    np.zeros((3, 0)), np.ones(3), np.array([1.0, 2.0, 5.0]), np.zeros(3)
)


def compute_steering(accuracy_user: np.ndarray, cost_user: np.ndarray, prices: np.ndarray) -> float:
    """What a user who cares for cost only saves, over the menu's mean tool.

    Args:
        accuracy_user: (n, M) probabilities of the tools on n menus for a user who cares for accuracy only.
        cost_user: (n, M) the same for a user who cares for cost only.
        prices: (n, M) price of each tool.

    Returns:
        Expected relative price for the first user minus that for the second, averaged over menus.
    """
    relative_prices = prices / prices.mean(axis=1, keepdims=True)
    return float(((accuracy_user - cost_user) * relative_prices).sum(1).mean())


def compute_steering_in_dollars(
    accuracy_user: np.ndarray, cost_user: np.ndarray, prices: np.ndarray
) -> float:
    """The mistake: prices are not divided by the menu's mean, so that expensive menus decide alone."""
    return float(((accuracy_user - cost_user) * prices).sum(1).mean())


def fahrenheit(factor: float) -> Tool:
    """A thermometer for agents; with the factor 1 it is wrong."""
    about = {"celsius": {"type": "number"}}
    return Tool(
        "fahrenheit", "Converts degrees.", about, lambda celsius: f"{celsius * factor + 32:.2f}"
    )


def _measures_steering(answer) -> bool | str:
    """Checks a function that measures how much less a user who cares for cost spends than one who cares for accuracy.

    Args:
        answer: The student's solution, from two arrays of probabilities (menus, tools) and prices (menus, tools) to a
            number.

    Returns:
        True, or what is wrong.
    """
    rng = seeds.rng("exercise", "steering", seed=0)
    prices = rng.random((5, 4)) + 0.1
    accuracy_user = rng.dirichlet(np.ones(4), size=5)
    cost_user = rng.dirichlet(np.ones(4), size=5)
    if abs(float(answer(accuracy_user, accuracy_user, prices))) > 1e-9:
        return "two users with the same probabilities spend the same: 0"
    measured = float(answer(accuracy_user, cost_user, prices))
    in_cents = float(answer(accuracy_user, cost_user, 100 * prices))
    if not np.isclose(measured, in_cents):
        return (
            "in cents instead of dollars the result changes; divide by the mean price of each menu"
        )
    if np.isclose(measured, -compute_steering(accuracy_user, cost_user, prices)):
        return "above 0 the user who cares for cost saves; yours has the other sign"
    expected = compute_steering(accuracy_user, cost_user, prices)
    return bool(np.isclose(measured, expected)) or f"{measured:.4f} in place of {expected:.4f}"


def _is_a_tool(answer) -> bool | str:
    """Checks a tool that converts degrees Celsius to Fahrenheit.

    Args:
        answer: The student's solution, a Tool.

    Returns:
        True, or what is wrong.
    """
    if not isinstance(answer, Tool):
        return f"a Tool of lib.tools, not a {type(answer).__name__}"
    names = list(answer.schema["function"]["parameters"]["properties"])
    if answer.parameters.get("celsius", {}).get("type") != "number" or names != ["celsius"]:
        return f"it takes one number, celsius; yours takes {names}"
    for celsius, expected in ((100, 212), (-40, -40), (36.6, 97.88)):
        if abs(float(answer(f'{{"celsius": {celsius}}}')) - expected) > 0.01:
            return f"{celsius} degrees Celsius are {expected} degrees Fahrenheit"
    return True


EXERCISES = Exercises(
    Exercise(
        "06.1",
        "easy",
        3,
        "Three correct rollouts cost 1, 2 and 5 micro-dollars; the user gives cost the weight 1 and everything else 0. "
        "What is $R$ of the second one under the paper's formula?",
        nudge="entries of the vector are negative: less cost is more",
        hint="the smallest of -1, -2, -5 is -5, and the largest is -1",
        answer=float(rewards.normalize_within_groups(GROUP, [0] * 3)[1, -2]),
        worked="(-2 + 5) / (-1 + 5) = 0.75.",
        wrong=0.25,
        important=True,
    ),
    Exercise(
        "06.2",
        "medium",
        5,
        "Take the same three rollouts and the same user as in 06.1. What is $R$ of the second rollout under the "
        "formula with the sign error?",
        nudge="the bounds stay as they were, and c loses its sign",
        hint="(c + c_max) / (c_max - c_min)",
        answer=float(rewards.normalize_with_sign_error(GROUP, [0] * 3)[1, -2]),
        worked="(2 + 5) / (5 - 1) = 1.75: above 1, and the most expensive one gets 2.5. It rewards spending.",
        wrong=0.75,
        important=True,
    ),
    Exercise(
        "06.3",
        "medium",
        5,
        "The paper's evaluation compares a trained orchestrator with its start on the same example. Its entry for cost "
        r"is $M_{\text{norm}} = c_0 / \max(1, c_s)$, with $c_0$ the cost of the start and $c_s$ that of the trained "
        "orchestrator. Amounts are in dollars: $c_0$ is 0.00004 and $c_s$ is 0.00002. By how much does the entry rise "
        "if the trained orchestrator spends nothing at all?",
        nudge="compare the costs with the 1 in the denominator",
        hint="what is max(1, 0.00002), and what is max(1, 0)?",
        answer=0.0,
        worked="Both are 1, so that saving never counts. In micro-dollars it would: the unit decides.",
        wrong=1.0,
    ),
    Exercise(
        "06.4",
        "medium",
        10,
        "Make a tool with `from lib.tools import Tool` and `Tool(name, description, parameters, run)`. It takes one "
        "number, `celsius`, and returns degrees Fahrenheit as text. The check calls it with JSON, as a model would.",
        nudge="a schema names the argument and its type",
        hint='parameters are {"celsius": {"type": "number"}}, and run is a function of celsius that returns a text',
        answer=fahrenheit(1.8),
        worked='Tool("fahrenheit", "...", {"celsius": {"type": "number"}}, lambda celsius: f"{celsius * 1.8 + 32}")',
        wrong=fahrenheit(1.0),
        judge=_is_a_tool,
        start="answer = None  # a Tool",
    ),
    Exercise(
        "06.5",
        "hard",
        15,
        "Write a function that measures steering on n menus of M tools. It takes three arrays (n, M): the "
        "probabilities of the tools for a user who cares for accuracy only, those for a user who cares for cost only, "
        "and the prices. It returns how much less the second user is expected to spend, in units of the menu's mean "
        "price, averaged over menus.",
        nudge="what does each user pay on one menu, on average?",
        hint="divide the prices of each menu by their mean, then take expectations",
        answer=compute_steering,
        worked="Expected relative price of the one user minus that of the other, menu by menu: users are compared in "
        "pairs, so that it does not matter which menus are expensive.",
        wrong=compute_steering_in_dollars,
        judge=_measures_steering,
        start="answer = None  # a function of accuracy_user, cost_user, prices",
    ),
)
check = EXERCISES.check
