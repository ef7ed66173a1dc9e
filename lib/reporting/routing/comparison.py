"""CoRL beside everybody else: Table 2, the plane of Figure 2, rewards, its own cost."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.params import RoutingSettings
from lib.reporting.routing.common import (
    MILLION,
    MONEY,
    Rows,
    clear,
    gap_to_mixtures,
    interval,
    known,
    listed,
    matrix,
    share,
    tests_of,
)
from lib.routing import baselines, protocol
from lib.routing.baselines import BLIND, ITSELF, ROUTERS
from lib.routing.study import Results

AIMED = (*(name for name in ROUTERS if name not in BLIND), "CoRL")  # they know the budget


def compared(results: Results) -> pd.DataFrame:
    """Every baseline on the test questions under every word's budget."""
    return baselines.compare(known(results, "train"), known(results, "test"), results.budgets.words)


def _with_corl(results: Results, rivals: pd.DataFrame, word: str) -> dict[str, pd.DataFrame]:
    """Test rows under one budget by name: baselines have one run, CoRL one per seed."""
    mine = rivals[rivals["label"] == word].assign(seed=0)
    named = {name: part for name, part in mine.groupby("router", sort=False)}
    own = tests_of(results, "corl")
    named["CoRL"] = own[own["label"] == word]
    return named


def table_2(results: Results, rivals: pd.DataFrame, settings: RoutingSettings) -> pd.DataFrame:
    """Table 2 of the paper, measured here: accuracy (and mean cost) by family; first whatever knows no budget, then,
    budget by budget, routers and CoRL."""
    kinds = dict(enumerate(_kinds(results)))
    rows = []
    for name, part in _all_of(results, rivals).items():
        part = part.assign(kind=part["item"].map(kinds))
        row: dict[str, object] = {"model": name}
        for which in settings.questions:
            some = part[part["kind"] == which]
            row[which] = f"{some['right'].mean():.2f} ({some['dollars'].mean() * MILLION:.1f})" if len(some) else "-"
        row["all"] = str(share(matrix(part, "right"), "table 2", name))
        row["$"] = f"{part['dollars'].mean() * MILLION:.1f}"
        rows.append(row)
    return pd.DataFrame(rows)


def _all_of(results: Results, rivals: pd.DataFrame, aimed: Sequence[str] = AIMED) -> dict[str, pd.DataFrame]:
    """Test rows of everybody: constants and random routing once, what knows the budget once for each, as far as it is
    among `aimed`."""
    named = {word: _with_corl(results, rivals, word) for word in protocol.WORDS}
    blind = {name: part for name, part in named[protocol.WORDS[-1]].items() if name not in AIMED}
    return blind | {f"{name}, {word}": part for word in protocol.WORDS
                    for name, part in named[word].items() if name in aimed}  # fmt: skip


def _kinds(results: Results) -> list[str]:
    """Of the test questions, in order."""
    mine = results.experts[results.experts["split"] == "test"].drop_duplicates("item").sort_values("item")
    return mine["kind"].tolist()


def reward_rows(results: Results, rivals: pd.DataFrame) -> Rows:
    """Mean reward of everybody under every budget."""
    rows: Rows = {}
    for word in protocol.WORDS:
        for name, part in _with_corl(results, rivals, word).items():
            rows.setdefault(name, {})[word] = share(matrix(part, "reward"), "reward", name, word)
    order = [*(n for n in rows if n not in (*ROUTERS, "CoRL")), *ROUTERS, "CoRL"]
    return {name: rows[name] for name in order}


def rewards_figure(rows: Rows) -> Figure:
    """Rewards side by side, all panels from 0 to 1."""
    heads = {word: f"reward, {word}" for word in protocol.WORDS}
    return draw.points(rows, reward_claim(rows), heads, limits=(-0.05, 1.05))


def reward_claim(rows: Rows) -> str:
    """Where CoRL stands under each budget, the oracle left out."""
    told = []
    for word in protocol.WORDS:
        rival = max((n for n in rows if n not in ("CoRL", "oracle")), key=lambda n: rows[n][word].value)
        told.append(f"{word} {rows['CoRL'][word].value:.2f} (best baseline: {rival}, {rows[rival][word].value:.2f})")
    return f"Mean reward of CoRL: {', '.join(told)}"


def reward_alt(rows: Rows) -> str:
    """The figure in words."""
    told = [f"{n} " + ", ".join(f"{w} {row[w].value:.2f}" for w in protocol.WORDS) for n, row in rows.items()]
    return "Mean reward by budget. " + "; ".join(told) + "."


def plane_points(results: Results, rivals: pd.DataFrame) -> Rows:
    """Cost and accuracy of constants and random routing, and of CoRL under each budget."""
    return {
        name: {
            MONEY: interval(matrix(part.assign(dollars=part["dollars"] * MILLION), "dollars"), "plane $", name),
            "accuracy": share(matrix(part, "right"), "plane", name),
        }
        for name, part in _all_of(results, rivals, ["CoRL"]).items()
    }


def plane_claim(points: Rows) -> str:
    """What CoRL buys, as a sentence."""
    own = {word: points[f"CoRL, {word}"] for word in protocol.WORDS}
    told = ", ".join(f"{word} {row['accuracy'].value:.2f} for ${row[MONEY].value:.1f}" for word, row in own.items())
    return f"Accuracy and cost per million questions of CoRL: {told}"


def plane_alt(points: Rows) -> str:
    """The plane in words."""
    told = [f"{name}: {row['accuracy'].value:.2f} right for ${row[MONEY].value:.1f}" for name, row in points.items()]
    return "Cost per million questions against accuracy. " + "; ".join(told) + "."


def own_cost(results: Results) -> pd.DataFrame:
    """What CoRL costs when its own tokens are charged like everybody's, beside blind mixtures of experts,
    which need no controller, for the same money. Every token is charged once, as if nothing were read twice.
    """
    test, own = known(results, "test"), tests_of(results, "corl")
    free = [m for m, name in enumerate(test.strategies) if name != ITSELF]
    rows = []
    for word in protocol.WORDS:
        mine = own[own["label"] == word]
        itself = mine["tokens"] * results.token_price
        charged = mine.assign(together=mine["dollars"] + itself)
        right, together = matrix(charged, "right"), matrix(charged, "together")
        gap = gap_to_mixtures(right, together, test.right[:, free], test.dollars[:, free], "own cost", word)
        rows.append(
            {
                "budget": word,
                "tokens": f"{mine['tokens'].mean():.1f}",
                "to experts": float(mine["dollars"].mean()) * MILLION,
                "to itself": float(itself.mean()) * MILLION,
                "together": float(together.mean()) * MILLION,
                "accuracy": float(right.mean()),
                "minus mixed experts": gap,
            }
        )
    return pd.DataFrame(rows)


def own_cost_words(table: pd.DataFrame) -> str:
    """Whether the controller pays for itself, as a sentence."""
    gaps = dict(zip(table["budget"], table["minus mixed experts"], strict=True))
    return (
        f"With its own tokens charged, CoRL is clearly above a blind mixture of experts for as much under "
        f"{listed(clear(gaps))}, clearly below under {listed(clear(gaps, above=False))}."
    )
