"""Verdicts on our own run: is each single-objective policy best at what it was paid for?

A statement holds only if the paired interval over seeds is clear of zero. Sentences are made from
the numbers, so that a negative result is printed like a positive one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.params import Params
from lib.zoo.evaluate import actors, episodes, evaluate
from lib.zoo.policies import Policy
from lib.zoo.recipes import OBJECTIVES, SINGLE, recipes


def own_objective(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One line per domain and single-objective policy: its return in its own objective, the best of
    the other two, the paired difference over seeds, and whether it is best (yes / no / tie).

    tables: episode tables by domain. `yes` and `no` need an interval clear of zero.
    """
    lines = []
    for domain, table in tables.items():
        for i, policy in enumerate(SINGLE):
            objective = OBJECTIVES[domain][i]
            by_seed = table[table["method"].isin(SINGLE)].pivot_table(objective, "seed", "method")
            rival = by_seed.drop(columns=policy).mean().idxmax()
            rng = seeds.rng("verdict", domain, policy)
            difference = stats.paired_difference(by_seed[policy].to_numpy(), by_seed[rival].to_numpy(), rng)
            lines.append(
                {
                    "domain": domain,
                    "policy": policy,
                    "objective": objective,
                    "own return": float(by_seed[policy].mean()),
                    "rival": rival,
                    "rival return": float(by_seed[rival].mean()),
                    "difference": str(difference),
                    "verdict": _verdict(difference),
                }
            )
    return pd.DataFrame(lines)


def _verdict(difference: stats.Interval) -> str:
    if not difference.known:
        return "one seed: undecided"
    if not difference.excludes(0):
        return "tie"
    return "yes" if difference.value > 0 else "no"


def explain(judged: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[str]:
    """A sentence for each line of `own_objective`; where it is not a yes, what the numbers say why."""
    return [_sentence(row, tables[row["domain"]]) for row in judged.to_dict("records")]


def _sentence(row: dict, table: pd.DataFrame) -> str:
    who, rival = f"{row['domain']}, {row['policy']}", row["rival"]
    scores = f"{row['own return']:.2f} against {row['rival return']:.2f} of {rival}"
    if row["verdict"] == "yes":
        return f"{who}: best at {row['objective']}, {scores}."
    lengths = table.groupby("method")["length"].mean()
    own, other = lengths[row["policy"]], lengths[rival]
    per_step = table[row["objective"]].groupby(table["method"]).sum() / table.groupby("method")["length"].sum()
    rate = f"per step it earns {per_step[row['policy']]:.3f}, {rival} {per_step[rival]:.3f}"
    return (
        f"{who}: not clearly best at {row['objective']} ({row['verdict']}), {scores}. Its episodes last "
        f"{own:.0f} steps, those of {rival} {other:.0f}; {rate}."
    )


def home_and_away(params: Params, zoo: Mapping[str, Sequence[Policy]], table: pd.DataFrame) -> pd.DataFrame:
    """What each minigrid policy earns at home, in the room it was trained in, and in the composite room.

    table: episodes in the composite room. Columns: policy, room, objective (what it was paid for most),
    home, composite (intervals over seeds).
    """
    lines = []
    for recipe in recipes(params, "minigrid"):
        objective = {"empty": "goal", "lava_gap": "no-lava", "gold_room": "gold"}.get(recipe.task, "gold")
        actor = actors({recipe.name: zoo[recipe.name]})
        at_home = episodes(evaluate(params, actor, "minigrid", recipe.task), "minigrid")
        away = table[table["method"] == recipe.name]
        home, composite = (_by_seed(rows, objective, recipe.name) for rows in (at_home, away))
        room = recipe.task.replace("_", " ")
        lines.append(
            {"policy": recipe.name, "room": room, "objective": objective, "home": home, "composite": composite}
        )
    return pd.DataFrame(lines)


def _by_seed(rows: pd.DataFrame, objective: str, name: str) -> stats.Interval:
    return stats.mean_interval(rows.groupby("seed")[objective].mean().to_numpy(), seeds.rng("home", name))


def finding(judged: pd.DataFrame, results: dict[str, dict[str, dict[str, stats.Interval]]]) -> str:
    """The lesson's finding in a sentence."""
    yes, total = int((judged["verdict"] == "yes").sum()), len(judged)
    grid = results["minigrid"]
    balance = grid["MO-pseudoS"]
    best_single = max((grid[name]["success"].value + grid[name]["gold"].value) / 2 for name in SINGLE)
    reached = np.mean([balance["success"].value, balance["gold"].value])
    return (
        f"{yes} of {total} single-objective policies are clearly best at their own objective; in the room with "
        f"everything, the best of them averages {best_single:.0%} of goal and gold, the reference trained there "
        f"{reached:.0%}."
    )
