"""What there is to choose from: the dimensions of a structure, what the mask leaves, and the nine workflows as graphs.

Nothing here was measured: numbers are counted, and graphs are read off the programs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import draw
from lib.configuration import space
from lib.configuration.graph import Graph, graph
from lib.configuration.questions import KINDS, questions
from lib.configuration.search import BASE
from lib.configuration.space import AGENTS, DIMENSIONS, SINGLE, TIERS, TOOLS, WORKFLOWS
from lib.page.tables import listed
from lib.params import Params

ORDINALS = ("first agent", "second agent", "third agent")
_HEADS = dict(
    zip(DIMENSIONS, ("", "tools of the first", "tools of the second", "1st", "2nd", "3rd budget"), strict=True)
)
_BETWEEN = 1  # empty columns between two dimensions of the mask
_LANE = 1.15  # between the lanes of two agents
_APART = 0.75  # between calls of one agent at the same time
_NEAR = 0.25  # an arrow that passes a call so close is bent
_WIDE = 3.0  # calls after one another that fit into a panel, at the least
_ALLOWED, _MASKED = "#0072B2", "#e4e4e4"


def left_by_mask() -> dict[str, int]:
    """Valid structures of each workflow."""
    rest = np.prod([space.mask()[name].sum(1) for name in list(DIMENSIONS)[1:]], axis=0)
    return dict(zip(WORKFLOWS, rest.tolist(), strict=True))


def dimensions_table(params: Params) -> pd.DataFrame:
    """Every part of a structure: how many choices, and which."""
    tiers = ", ".join(f"{name} {n}" for name, n in zip(TIERS, params.configuration.tiers, strict=True))
    which = {
        "workflow": ", ".join(WORKFLOWS), "tools1": f"any of {', '.join(TOOLS)}", "tools2": "the same",
        "budget1": f"{tiers} tokens a call", "budget2": "the same", "budget3": "the same",
    }  # fmt: skip
    return pd.DataFrame([{"part": name, "choices": n, "which": which[name]} for name, n in DIMENSIONS.items()])


def mask_table() -> pd.DataFrame:
    """Structures with and without the mask, workflow by workflow, and in all."""
    each = space.total() // len(WORKFLOWS)
    rows = [
        {"workflow": name, "agents": ", ".join(AGENTS[a] for a in space.agents(name)), "structures": f"{each:,}",
         "valid": f"{valid:,}"}
        for name, valid in left_by_mask().items()
    ]  # fmt: skip
    return pd.DataFrame(
        [*rows, {"workflow": "all", "agents": "", "structures": f"{space.total():,}", "valid": f"{space.valid():,}"}]
    )


@draw.theme()
def mask_figure() -> Figure:
    """Which choices each workflow leaves open, and how many structures that makes."""
    note = f"Blue: may be chosen. Grey: masked. Each column is one of {space.SUBSETS} sets of tools, or a budget."
    total, valid = space.total(), space.valid()
    title = f"The mask leaves {valid:,} of {total:,} structures: {listed(list(SINGLE))} have no second agent"
    sheet = draw.sheet(title, draw.WIDTH + 1.6, 3.3, note)
    told = "; ".join(f"{name} {rest:,}" for name, rest in left_by_mask().items())
    sheet.alt_text = f"A row for each workflow, a column for each choice of tools and budgets. {title}. Left: {told}."
    axes, left = sheet.subplots(), 0
    for name, size in list(DIMENSIONS.items())[1:]:
        allowed = space.mask()[name]
        for row, choice in np.ndindex(allowed.shape):
            shade = _ALLOWED if allowed[row, choice] else _MASKED
            axes.barh(row, 0.84, 0.72, left=left + choice, color=shade, align="center")
        axes.text(left + size / 2, -0.75, _HEADS[name], ha="center", va="bottom", fontsize=9)
        left += size + _BETWEEN
    for row, valid in enumerate(left_by_mask().values()):
        axes.text(left + 0.5, row, f"{valid:,}", va="center", fontsize=9.5)
    axes.text(left + 0.5, -0.75, "valid", va="bottom", fontsize=9)
    axes.set_yticks(range(len(WORKFLOWS)), WORKFLOWS)
    axes.set(xlim=(-0.5, left + 4.5), ylim=(len(WORKFLOWS) - 0.4, -1.6), xticks=[])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return sheet


def example_words() -> str:
    """A structure as numbers, and what it means."""
    told = ", ".join(f"{name} {value}" for name, value in zip(DIMENSIONS, BASE.structure, strict=True))
    return f"{told}: {BASE}. Allocated tools: {BASE.allocated}."


def questions_table() -> pd.DataFrame:
    """The kinds of questions: what each stands in for, and one of its test questions with solution and answer."""
    rows = []
    for kind in KINDS:
        (item,) = questions(kind.name, "test", 1)
        rows.append(
            {"kind": kind.name, "stands in for": kind.paper, "for example": item.prompt,
             "worked out": item.reference, "answer": item.answer}
        )  # fmt: skip
    return pd.DataFrame(rows)


# Graphs -------------------------------------------------------------------------------------------


def depths(one: Graph) -> list[int]:
    """After how many calls each call can be made at the earliest."""
    found = [0] * len(one.nodes)
    for _ in one.nodes:  # as often as the longest way has calls
        for source, target, _ in one.edges:
            found[target] = max(found[target], found[source] + 1)
    return found


def places(one: Graph) -> np.ndarray:
    """Where each call is drawn, (calls, 2): by depth, and in the lane of its agent; calls that are made at the same
    time beside each other."""
    deep, out = depths(one), np.zeros((len(one.nodes), 2))
    cells: dict[tuple[int, int], list[int]] = {}
    for i, (_, agent) in enumerate(one.nodes):
        cells.setdefault((deep[i], agent), []).append(i)
    for (depth, agent), calls in cells.items():
        for place, i in enumerate(calls):
            out[i] = depth, -agent * _LANE + ((len(calls) - 1) / 2 - place) * _APART
    return out


def short(role: str) -> str:
    """Two letters of a role, for the inside of a circle."""
    return role[:2].capitalize()


@draw.theme()
def graphs_figure() -> Figure:
    """All workflows as small graphs: calls from left to right, one lane and colour for each agent."""
    every = {name: graph(name) for name in WORKFLOWS}
    roles = dict.fromkeys(role for g in every.values() for role, _ in g.nodes)
    told = ", ".join(f"{short(role)} {role}" for role in roles)
    note = f"{told}. Solid: is shown what the other left. Dashed: waits for it, and is shown nothing."
    blind = listed([name for name, one in every.items() if not all(shown for *_, shown in one.edges)], "none")
    title = f"{len(every)} workflows; a call waits without being shown anything in {blind}"
    sheet = draw.sheet(title, draw.WIDTH + 2.2, 6.4, note)
    sheet.alt_text = f"Who is shown what in each workflow. {'; '.join(map(_told, every, every.values()))}."
    for place, (axes, (name, one)) in enumerate(zip(draw.tiles(sheet, len(every)), every.items(), strict=True)):
        least, most = one.calls
        axes.set_title(f"{name}: {f'{least} to {most}' if most > least else least} call{'s' * (most > 1)}")
        _draw(axes, one, place % 3 == 0)
    return sheet


def _told(name: str, one: Graph) -> str:
    """A graph in words."""
    edges = [f"{one.nodes[a][0]} to {one.nodes[b][0]}{'' if shown else ' (waits only)'}"
             for a, b, shown in sorted(one.edges)]  # fmt: skip
    return f"{name}: {', '.join(edges) or one.nodes[0][0] + ' alone'}"


def _draw(axes: Axes, one: Graph, named: bool) -> None:
    """named: whether the lanes' names stand beside it."""
    at = places(one)
    for source, target, shown in sorted(one.edges):
        bend = -0.35 if _passes(at, source, target) else 0
        axes.annotate(
            "", at[target], at[source], zorder=1,
            arrowprops={
                "arrowstyle": "-|>", "color": draw.GREY, "lw": 1.1, "linestyle": "-" if shown else (0, (3, 2)),
                "shrinkA": 9, "shrinkB": 9, "connectionstyle": f"arc3,rad={bend}",
            },
        )  # fmt: skip
    for (role, agent), (x, y) in zip(one.nodes, at, strict=True):
        shade = draw.colour(ORDINALS[agent])
        axes.plot(x, y, "o", markersize=18, markerfacecolor="white", markeredgecolor=shade, markeredgewidth=2, zorder=2)
        axes.text(x, y, short(role), ha="center", va="center", fontsize=8, color=draw.ink(shade), zorder=3)
    lanes = [-agent * _LANE for agent in range(len(ORDINALS))]
    axes.set_yticks(lanes, ORDINALS if named else [""] * len(lanes))
    for text, name in zip(axes.get_yticklabels(), ORDINALS, strict=True):
        text.set_color(draw.ink(draw.colour(name)))
    axes.tick_params(length=0)
    axes.set(xlim=(-0.5, max(at[:, 0].max(), _WIDE) + 0.5), ylim=(lanes[-1] - 0.5, 1.25), xticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _passes(at: np.ndarray, source: int, target: int) -> bool:
    """Whether a straight arrow would run through another call."""
    way = at[target] - at[source]
    for i, place in enumerate(at):
        along = (place - at[source]) @ way / (way @ way)
        if i not in (source, target) and 0 < along < 1 and np.hypot(*(at[source] + along * way - place)) < _NEAR:
            return True
    return False
