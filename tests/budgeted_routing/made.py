"""A study that is made up so that its means can be worked out on paper: six questions of difficulty 1 to 6, two seeds,
experts that cost 1, 2 and 4 micro-dollars a question, the same in pieces for 3, 5 and 9."""

import json

import pandas as pd

from lib.budgeted_routing.experiment import BudgetedRoutingResults
from lib.budgeted_routing.variants import Budgets

KINDS = ("short", "short", "middle", "middle", "long", "long")  # of the six questions
PRICE = {"lab-nano": 1e-6, "lab-mini": 2e-6, "lab-large": 4e-6}
PIECES = {"lab-nano": 3e-6, "lab-mini": 5e-6, "lab-large": 9e-6}
REACH = {"lab-nano": 2, "lab-mini": 4, "lab-large": 5}  # the hardest question that each is right on
REACH_IN_PIECES = {"lab-nano": 4, "lab-mini": 6, "lab-large": 6}
WORDS = {"low": 1e-6, "medium": 2e-6, "high": 1000.0}
N, M, L = PRICE
# word -> for each seed whom CoRL calls, and whether it is right, by question
ACTS = {
    "low": (
        [["", N, N, "", "", ""], ["", N, N, N, "", ""]],
        [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]],
    ),
    "medium": (
        [["", M, M, M, M, M], ["", M, M, M, M, f"{M} {M}"]],
        [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1]],
    ),
    "high": (
        [["", L, L, L, L, L], [L, L, L, L, L, f"{L} {L}"]],
        [[1, 1, 1, 1, 0, 1], [1, 1, 1, 1, 1, 1]],
    ),
}
IDLE = {word: ([[""] * 6] * 2, [[0] * 6] * 2) for word in WORDS}
NUMBERS = {
    "001": 0,
    "008": 2,
    "040": 5,
}  # label -> questions on which it calls the large expert, and is right
AT_FIRST = dict.fromkeys(NUMBERS, 1)  # the same before training: above the budget of 1


def episode(item: int, word: str, called: str, correct: float, budget: float, **more) -> dict:
    """A row as of `study.episode_rows`."""
    names = called.split()
    cost_usd = float(sum(PRICE[name] for name in names))
    within = float(cost_usd <= budget)
    spoken = [("prompt", f"<s> budget {word}", 0.0)]
    for name in names:
        spoken += [
            ("controller", f"<call> {name} <t> 1 + 1 = ?", 0.0),
            (name, "<response> 2", PRICE[name]),
        ]
    spoken.append(("controller", "<answer> 2 </answer>", 0.0))
    row = {
        "item": item,
        "group": KINDS[item % 6],
        "difficulty": item + 1,
        "condition": word,
        "budget": budget,
        "correct": float(correct),
        "within": within,
        "reward": correct * within,
        "cost_usd": cost_usd,
        "calls": len(names),
        "chosen": called,
        "malformed": 0,
        "failures": 0,
        "turns": 1 + len(names),
        "written": 5,
        "tokens": 20 + 10 * len(names),
        "spoken": json.dumps(spoken),
        "temperature": 0.0,
        "style": "soft",
    }
    return row | more


def examined(acts, method: str, seeds: int, **more) -> list[dict]:
    return [
        episode(i, word, called[s][i], correct[s][i], WORDS[word], method=method, seed=s, **more)
        for word, (called, correct) in acts.items()
        for s in range(seeds)
        for i in range(6)
    ]


def all_tests(acts, seeds: int) -> list[dict]:
    rows = []
    for temperature in (0.0, 1.0):  # with draws nobody is ever right, so that a mix-up shows
        shown = (
            acts
            if temperature == 0
            else {word: (called, [[0] * 6] * 2) for word, (called, _) in acts.items()}
        )
        rows += examined(shown, "corl", seeds, temperature=temperature)
        rows += examined(shown, "hard", seeds, temperature=temperature, style="hard")
        for style in ("soft", "hard"):
            rows += examined(IDLE, "start", 1, temperature=temperature, style=style)
    for method, runs, calls in (("start", 1, AT_FIRST), ("number", seeds, NUMBERS)):
        acts = {
            w: ([[L if i < n else "" for i in range(6)]] * 2, [[i < n for i in range(6)]] * 2)
            for w, n in calls.items()
        }
        rows += in_numbers(acts, method, runs)
    return rows


def in_numbers(acts, method: str = "number", seeds: int = 2) -> list[dict]:
    """Test episodes under budgets of so many micro-dollars; acts: as ACTS."""
    return [
        episode(
            i,
            word,
            called[s][i],
            correct[s][i],
            int(word) * 1e-6,
            method=method,
            seed=s,
            style="number",
        )
        for word, (called, correct) in acts.items()
        for s in range(seeds)
        for i in range(6)
    ]


def trained(seeds: int, late: str, updates: int = 10) -> list[dict]:
    """Rollouts: nobody calls in the first half, and `late` is called in the second, where half are right."""
    rows = []
    for method in ("corl", "hard"):
        for s in range(seeds):
            for update in range(updates):
                called = late if update >= updates / 2 else ""
                rows += [
                    episode(
                        i,
                        word,
                        called,
                        float(bool(called) and i == 1),
                        budget,
                        method=method,
                        seed=s,
                        step=update,
                    )
                    for word, budget in WORDS.items()
                    for i in range(2)
                ]
    return rows


def strategies(correct: bool = True) -> pd.DataFrame:
    rows = []
    for split, each in (("train", 3), ("test", 1)):
        for name in PRICE:
            for suffix, price, reach in (
                ("", PRICE, REACH),
                (" in pieces", PIECES, REACH_IN_PIECES),
            ):
                for item in range(6 * each):
                    hard = item % 6 + 1
                    rows.append(
                        {
                            "split": split,
                            "item": item,
                            "group": KINDS[hard - 1],
                            "difficulty": hard,
                            "sample": 0,
                            "prompt": f"{split} d{hard} {item} = ?",
                            "method": name + suffix,
                            "correct": float(correct and hard <= reach[name]),
                            "cost_usd": price[name],
                            "calls": 1 + bool(suffix),
                            "reply": f"r{hard % 2}",
                        }
                    )
    return pd.DataFrame(rows)


def study(acts=ACTS, seeds: int = 2, late: str = L, correct: bool = True) -> BudgetedRoutingResults:
    own = [
        episode(
            i,
            "low",
            "",
            float(correct and i % 6 == 0),
            1e-6,
            split=split,
            reply="",
            **{"sample": 0},
        )
        for split, n in (("train", 18), ("test", 6))
        for i in range(n)
    ]
    frames = (pd.DataFrame(rows) for rows in (all_tests(acts, seeds), trained(seeds, late), own))
    empty = pd.DataFrame()
    return BudgetedRoutingResults(
        strategies(correct), *frames, empty, Budgets(WORDS, PRICE, 1e-6), 1e-8
    )
