"""Exercises of tool orchestration: the sign of a term, units, a tool and a reward of one's own."""

import numpy as np

from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises
from lib.tool_orchestration import rewards
from lib.tools import Tool

GROUP = rewards.make_outcome_vectors(
    np.zeros((3, 0)), np.ones(3), np.array([1.0, 2.0, 5.0]), np.zeros(3)
)


def saved(costs: np.ndarray) -> np.ndarray:
    """The cheapest of a group gets 1, the most expensive 0; all 0 where they cost the same."""
    cost_range = costs.max() - costs.min()
    if cost_range == 0:
        return np.zeros(len(costs))
    return (costs.max() - costs) / cost_range


def squandered(costs: np.ndarray) -> np.ndarray:
    """The mistake: normalises +cost with the bounds of -cost."""
    return (costs + costs.max()) / (costs.max() - costs.min())


def fahrenheit(factor: float) -> Tool:
    """A thermometer for agents; with the factor 1 it is wrong."""
    about = {"celsius": {"type": "number"}}
    return Tool(
        "fahrenheit", "Converts degrees.", about, lambda celsius: f"{celsius * factor + 32:.2f}"
    )


def _rewards_saving(answer) -> bool | str:
    for seed in range(5):
        costs = seeds.rng("exercise", "saving", seed=seed).random(6).round(3)
        scores = np.asarray(answer(costs), dtype=float)
        if scores.shape != costs.shape or not ((scores >= 0) & (scores <= 1)).all():
            return f"costs {costs.tolist()} need six numbers in [0, 1]"
        if (np.diff(scores[np.argsort(costs, kind="stable")]) > 1e-12).any():
            return f"of costs {costs.tolist()} a dearer one scores more"
        if scores.max() < 1 - 1e-9 or scores.min() > 1e-9:
            return "the cheapest scores 1 and the dearest 0"
        if not np.allclose(answer(100 * costs), scores):
            return "in cents instead of dollars the scores change"
    same = np.asarray(answer(np.ones(3)), dtype=float)
    return (
        bool(np.allclose(same, 0)) or "where all cost the same there is nothing to tell: 0 for all"
    )


def _is_a_tool(answer) -> bool | str:
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
        "Three right rollouts cost 1, 2 and 5 micro-dollars; the user weighs cost with 1 and nothing else. What is "
        "$R$ of the second one under the paper's formula?",
        hint="the least of -1, -2, -5 is -5, and the most is -1",
        answer=float(rewards.normalize_within_groups(GROUP, [0] * 3)[1, -2]),
        worked="(-2 + 5) / (-1 + 5) = 0.75.",
        wrong=0.25,
        important=True,
    ),
    Exercise(
        "06.2",
        "medium",
        5,
        "And under the published formula?",
        hint="(c + c_max) / (c_max - c_min)",
        answer=float(rewards.normalize_with_sign_error(GROUP, [0] * 3)[1, -2]),
        worked="(2 + 5) / (5 - 1) = 1.75: above 1, and the dearest gets 2.5. It pays for spending.",
        wrong=0.75,
        important=True,
    ),
    Exercise(
        "06.3",
        "medium",
        5,
        "In the evaluation the start spent 0.00004 dollars on an example and the trained orchestrator 0.00002. By how "
        r"much does $M_{\text{norm}}$ of cost rise if amounts are in dollars and the trained one spends nothing at "
        r"all?",
        hint="what is max(1, 0.00002), and what is max(1, 0)?",
        answer=0.0,
        worked="Both are 1, so that saving never counts. In micro-dollars it would: the unit decides.",
        wrong=1.0,
    ),
    Exercise(
        "06.4",
        "medium",
        10,
        "Make a tool: `from lib.tools import Tool`, then a `Tool(name, description, parameters, run)` that takes one "
        "number, `celsius`, and returns degrees Fahrenheit as text. It is called with JSON, as a model would.",
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
        "Write the normalisation of cost without a sign error: a function from the costs of a group (n,) to scores "
        "(n,). The cheapest scores 1, the dearest 0, a dearer one never more than a cheaper one; dollars or cents "
        "make no difference; where all cost the same, all score 0.",
        hint="(most - cost) / (most - least), and mind a gap of 0",
        answer=saved,
        worked="Bounds and values must have the same sign. Properties like these find the error that a look does not.",
        wrong=squandered,
        judge=_rewards_saving,
        start="answer = None  # a function of costs (n,)",
    ),
)
check = EXERCISES.check
