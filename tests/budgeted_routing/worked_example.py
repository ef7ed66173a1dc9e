"""Results of a CoRL experiment that are small enough to work out every mean on paper.

Six test questions of difficulty 1 to 6, two seeds, and three experts: a call costs 1, 2 or 4 micro-dollars, and each
expert solves the questions up to a difficulty. A strategy "in pieces" calls an expert twice on one question.
"""

import json
from collections.abc import Mapping

import pandas as pd

from lib.budgeted_routing.experiment import BudgetedRoutingResults
from lib.budgeted_routing.variants import Budgets

NUM_QUESTIONS = 6
QUESTION_GROUPS = ("short", "short", "middle", "middle", "long", "long")
CALL_PRICES = {"lab-nano": 1e-6, "lab-mini": 2e-6, "lab-large": 4e-6}
HARDEST_SOLVED = {"lab-nano": 2, "lab-mini": 4, "lab-large": 5}
PRICES_IN_PIECES = {"lab-nano": 3e-6, "lab-mini": 5e-6, "lab-large": 9e-6}
HARDEST_SOLVED_IN_PIECES = {"lab-nano": 4, "lab-mini": 6, "lab-large": 6}
BUDGETS = {"low": 1e-6, "medium": 2e-6, "high": 1000.0}
TOKEN_PRICE = 1e-8
NANO, MINI, LARGE = CALL_PRICES

# By budget what CoRL does in tests, both as (seeds, questions): the experts that it calls, and whether it is correct.
CallsAndScores = Mapping[str, tuple[list[list[str]], list[list[int]]]]
CALLS_AND_SCORES: CallsAndScores = {
    "low": (
        [["", NANO, NANO, "", "", ""], ["", NANO, NANO, NANO, "", ""]],
        [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]],
    ),
    "medium": (
        [["", MINI, MINI, MINI, MINI, MINI], ["", MINI, MINI, MINI, MINI, f"{MINI} {MINI}"]],
        [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1]],
    ),
    "high": (
        [
            ["", LARGE, LARGE, LARGE, LARGE, LARGE],
            [LARGE, LARGE, LARGE, LARGE, LARGE, f"{LARGE} {LARGE}"],
        ],
        [[1, 1, 1, 1, 0, 1], [1, 1, 1, 1, 1, 1]],
    ),
}
NO_CALLS: CallsAndScores = {
    budget: ([[""] * NUM_QUESTIONS] * 2, [[0] * NUM_QUESTIONS] * 2) for budget in BUDGETS
}
# By numeric budget: on so many questions the trained controller calls the large expert, and is correct.
NUM_LARGE_CALLS = {"001": 0, "008": 2, "040": 5}
# The same before training: one call under each budget, which the smallest does not afford.
NUM_LARGE_CALLS_AT_START = dict.fromkeys(NUM_LARGE_CALLS, 1)


def make_study(
    calls_and_scores: CallsAndScores = CALLS_AND_SCORES,
    num_seeds: int = 2,
    late_calls: str = LARGE,
    correct: bool = True,
) -> BudgetedRoutingResults:
    """Make the results of the whole experiment.

    Args:
        calls_and_scores: What CoRL does in tests.
        num_seeds: Trainings of each variant.
        late_calls: Experts that are called in the second half of training.
        correct: Whether experts and controller are ever correct by themselves.
    """
    controller_rows = []
    for split, num_items in (("train", 3 * NUM_QUESTIONS), ("test", NUM_QUESTIONS)):
        for item in range(num_items):
            score = correct and item % NUM_QUESTIONS == 0
            row = make_episode(item, "low", "", score, BUDGETS["low"])
            controller_rows.append(row | {"split": split, "reply": "", "sample": 0})
    return BudgetedRoutingResults(
        experts=make_expert_outcomes(correct),
        episodes=pd.DataFrame(make_all_tests(calls_and_scores, num_seeds)),
        rollouts=pd.DataFrame(make_rollouts(num_seeds, late_calls)),
        alone=pd.DataFrame(controller_rows),
        learning=pd.DataFrame(),
        budgets=Budgets(BUDGETS, CALL_PRICES, 1e-6),
        token_price=TOKEN_PRICE,
    )


def make_episode(
    item: int, condition: str, calls: str, correct: float, budget: float, **columns
) -> dict:
    """Make a row as of `budget_episodes.make_episode_rows`.

    Args:
        item: Number of the question.
        condition: Name of the budget.
        calls: Experts that are called, separated by blanks.
        correct: Score of the answer.
        budget: US dollars.
        columns: Further columns, or other values of the same.
    """
    experts = calls.split()
    cost_usd = float(sum(CALL_PRICES[expert] for expert in experts))
    within = float(cost_usd <= budget)
    segments = [("prompt", f"<s> budget {condition}", 0.0)]
    for expert in experts:
        segments.append(("controller", "<call> " + expert + " <t> 1 + 1 = ?", 0.0))
        segments.append((expert, "<response> 2", CALL_PRICES[expert]))
    segments.append(("controller", "<answer> 2 </answer>", 0.0))
    row = {
        "item": item,
        "group": QUESTION_GROUPS[item % NUM_QUESTIONS],
        "difficulty": item + 1,
        "condition": condition,
        "budget": budget,
        "correct": float(correct),
        "within": within,
        "reward": correct * within,
        "cost_usd": cost_usd,
        "calls": len(experts),
        "chosen": calls,
        "malformed": 0,
        "failures": 0,
        "turns": 1 + len(experts),
        "written": 5,
        "tokens": 20 + 10 * len(experts),
        "spoken": json.dumps(segments),
        "temperature": 0.0,
        "style": "soft",
    }
    return row | columns


def make_tests(
    calls_and_scores: CallsAndScores, budgets: Mapping[str, float], num_seeds: int, **columns
) -> list[dict]:
    """Make the test episodes of one method: every question under every budget, for every seed."""
    rows = []
    for condition, (calls, scores) in calls_and_scores.items():
        for seed in range(num_seeds):
            for item in range(NUM_QUESTIONS):
                row = make_episode(
                    item, condition, calls[seed][item], scores[seed][item], budgets[condition]
                )
                rows.append(row | {"seed": seed} | columns)
    return rows


def make_all_tests(calls_and_scores: CallsAndScores, num_seeds: int) -> list[dict]:
    """Make the test episodes of CoRL, of its variants and of the controller before training."""
    no_scores = {
        budget: (calls, [[0] * NUM_QUESTIONS] * 2)
        for budget, (calls, _) in calls_and_scores.items()
    }
    rows = []
    # Sampled answers are never correct, so that a test which mixes them with greedy ones fails.
    for temperature, acts in ((0.0, calls_and_scores), (1.0, no_scores)):
        for method, style in (("corl", "soft"), ("hard", "hard")):
            rows += make_tests(
                acts, BUDGETS, num_seeds, method=method, style=style, temperature=temperature
            )
        for style in ("soft", "hard"):
            rows += make_tests(
                NO_CALLS, BUDGETS, 1, method="start", style=style, temperature=temperature
            )

    rows += make_numeric_tests(NUM_LARGE_CALLS_AT_START, "start", 1)
    rows += make_numeric_tests(NUM_LARGE_CALLS, "number", num_seeds)
    return rows


def make_numeric_tests(num_calls: Mapping[str, int], method: str, num_seeds: int) -> list[dict]:
    """Make test episodes under budgets in micro-dollars.

    Args:
        num_calls: By budget, on how many questions the large expert is called, and the answer correct.
        method: Name of the controller.
        num_seeds: Trainings.
    """
    acts = {}
    for condition, count in num_calls.items():
        calls = [LARGE if item < count else "" for item in range(NUM_QUESTIONS)]
        scores = [int(item < count) for item in range(NUM_QUESTIONS)]
        acts[condition] = ([calls] * 2, [scores] * 2)
    budgets = {condition: int(condition) * 1e-6 for condition in num_calls}
    return make_tests(acts, budgets, num_seeds, method=method, style="number")


def make_rollouts(num_seeds: int, late_calls: str, num_updates: int = 10) -> list[dict]:
    """Make training episodes: without calls in the first half; with calls in the second, where half are correct."""
    rows = []
    for method in ("corl", "hard"):
        for seed in range(num_seeds):
            for step in range(num_updates):
                calls = late_calls if step >= num_updates / 2 else ""
                for condition, budget in BUDGETS.items():
                    for item in range(2):
                        correct = bool(calls) and item == 1
                        row = make_episode(item, condition, calls, correct, budget)
                        rows.append(row | {"method": method, "seed": seed, "step": step})
    return rows


def make_expert_outcomes(correct: bool = True) -> pd.DataFrame:
    """Make a table as of `expert_outcomes.measure_experts`: 18 training and 6 test questions."""
    rows = []
    for split, num_items in (("train", 3 * NUM_QUESTIONS), ("test", NUM_QUESTIONS)):
        for expert in CALL_PRICES:
            strategies = (
                (expert, CALL_PRICES, HARDEST_SOLVED, 1),
                (f"{expert} in pieces", PRICES_IN_PIECES, HARDEST_SOLVED_IN_PIECES, 2),
            )
            for method, prices, hardest_solved, num_calls in strategies:
                for item in range(num_items):
                    difficulty = item % NUM_QUESTIONS + 1
                    rows.append(
                        {
                            "split": split,
                            "item": item,
                            "group": QUESTION_GROUPS[difficulty - 1],
                            "difficulty": difficulty,
                            "sample": 0,
                            "prompt": f"{split} d{difficulty} {item} = ?",
                            "method": method,
                            "correct": float(correct and difficulty <= hardest_solved[expert]),
                            "cost_usd": prices[expert],
                            "calls": num_calls,
                            "reply": f"r{difficulty % 2}",
                        }
                    )
    return pd.DataFrame(rows)
