"""Baselines that need no orchestrator, and the score that each has on the preference benchmark.

They answer the questions of the test set `test` from what every tool did by itself, at the same menus and prices
(`tool_environment.try_single_tools`). They pay for no orchestrator's tokens, which is a difference to keep in mind.
Office tasks are not for single tools.

    always T            tool T where it can be asked, and elsewhere the next one in the order of correct answers to
                        training questions: so it is not a single tool, as it is in `menu_baselines`
    best single tool    the tool with the most correct answers to training questions, and then the others in that order
    best by kind        for each kind and difficulty the first tool on the menu, in the order of the share of correct
                        answers to training questions, the cheaper one first where they are equal; kind and difficulty
                        are labels
    random              any of the tools on the menu that can be asked at all, in expectation
    oracle              the cheapest tool that is correct, known afterwards
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.tool_orchestration import rewards

VERSION = 1  # of the baselines of orchestrators and their scores
ALWAYS = "always "
BEST, BY_KIND, RANDOM, ORACLE = "best single tool", "best by kind", "random", "oracle"
_NOTHING = {"correct": 0.0, "cost_usd": 0.0, "seconds": 0.0, "calls": 0, "score": 0.0, "tool": ""}


def apply_baselines(
    tried: pd.DataFrame, start: pd.DataFrame, tools: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """By name one row per question of the exam: item, right, dollars, seconds, calls, score (R^e), tool ("" for none).

    tried: `Results.tried`; start: the start's rows on `test`, office tasks aside, for the questions and their scores.
    """
    train, test = (tried[tried["split"] == split] for split in ("train", "test"))
    told = add_scores(test, start, tools)[list(_NOTHING)].to_dict("records")
    held = {(item, row["tool"]): row for item, row in zip(test["item"], told, strict=True)}
    order, ranked = (
        order_tools(train),
        {key: order_tools(part, "mean") for key, part in train.groupby(["group", "difficulty"])},
    )

    def first(item: int, names: Sequence[str]) -> Mapping:
        return next((held[item, name] for name in names if (item, name) in held), _NOTHING)

    def each(question) -> list[Mapping]:
        return [
            held[question.item, name]
            for name in question.offered.split()
            if (question.item, name) in held
        ]

    def table(chosen) -> pd.DataFrame:
        return pd.DataFrame([{"item": q.item} | chosen(q) for q in start.itertuples()])

    asked = [tool for tool in tools if tool in set(test["tool"])]
    out = {ALWAYS + tool: table(lambda q, t=tool: first(q.item, [t, *order])) for tool in asked}
    out[BEST] = table(lambda q: first(q.item, order))
    out[BY_KIND] = table(lambda q: first(q.item, ranked.get((q.group, q.difficulty), ())))
    out[RANDOM] = table(lambda q: _mean(each(q)))
    out[ORACLE] = table(
        lambda q: min(
            (x for x in each(q) if x["correct"]), key=lambda x: x["cost_usd"], default=_NOTHING
        )
    )
    return out


def order_tools(train: pd.DataFrame, by: str = "sum") -> list[str]:
    """Tools by how many training questions they answered right, the most first, of equals the cheaper; where a tool was
    not on the menu it has no right answer. by: "mean" goes by the share of those that it was asked."""
    found = train.groupby("tool").agg(correct=("correct", by), cost_usd=("cost_usd", "mean"))
    return found.sort_values(
        ["correct", "cost_usd"], ascending=[False, True], kind="stable"
    ).index.tolist()


def _mean(rows: Sequence[Mapping]) -> Mapping:
    return (
        {k: float(np.mean([row[k] for row in rows])) if k != "tool" else "" for k in _NOTHING}
        if rows
        else _NOTHING
    )


def add_scores(tried: pd.DataFrame, start: pd.DataFrame, tools: Sequence[str]) -> pd.DataFrame:
    """Rows of single tools with `score`: R^e of an orchestrator that calls nothing else; start: the start's rows of the
    same exam."""
    base = start.set_index("item").loc[tried["item"]]
    calls = tried["calls"].to_numpy()[:, None] * (
        tried["tool"].to_numpy()[:, None] == np.array(tools)
    )
    m = rewards.make_outcome_vectors(calls, tried["correct"], tried["cost_usd"], tried["seconds"])
    return tried.assign(
        score=rewards.compute_preference_scores(m, np.stack(base["m"]), np.stack(base["p"]))
    )
