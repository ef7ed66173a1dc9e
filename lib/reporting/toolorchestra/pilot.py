"""The pilot study: whom an orchestrator calls that is only prompted, and whom one that was trained."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.page.tables import listed
from lib.params import Params
from lib.reporting.estimates import Rows, mean, means, ratio
from lib.reporting.toolorchestra.common import EVEN, LABELS, PAPER, calls_to, exam
from lib.reporting.words import there
from lib.routing.toolorchestra.study import AGENT, START, Results
from lib.stats import Interval

WHO = {AGENT: ", only prompted", START: ", before any reward", PAPER: ""}
KEYS = {AGENT: "agent", START: "start", PAPER: "trained"}


def tools_of(results: Results) -> list[str]:
    """The tools that are on any menu of the pilot study, models last."""
    menus = exam(results, AGENT, "pilot")["menu"]
    return [name for name in results.tools if name in set(" ".join(menus).split())]


def share(part: pd.DataFrame, tools: list[str], results: Results) -> Interval:
    """Share of calls to any of some tools, of all calls to tools."""
    return ratio(part.assign(them=calls_to(part, tools), whole=calls_to(part, tools_of(results))), "them", "whole")


def shares(results: Results) -> Rows:
    """By orchestrator the share of its calls that went to each tool."""
    parts = {arm: exam(results, arm, "pilot") for arm in WHO}
    return {arm: {tool: share(part, [tool], results) for tool in tools_of(results)} for arm, part in parts.items()}


def even_shares(results: Results) -> dict[str, float]:
    """What an even choice from every menu would give."""
    menus = exam(results, AGENT, "pilot")["menu"].str.split()
    return {tool: float(menus.map(lambda names, t=tool: (t in names) / len(names)).mean())
            for tool in tools_of(results)}  # fmt: skip


def figure(results: Results) -> Figure:
    """Shares of calls, one bar for each orchestrator and one for an even choice."""
    found, even, rows = shares(results), even_shares(results), {}
    for arm, how in WHO.items():
        name = LABELS[arm] + how + ("" if any(there(x) for x in found[arm].values()) else ": no call")
        rows[name] = {tool: x.value if there(x) else 0.0 for tool, x in found[arm].items()}
    tool = dearest(results)
    told = [f"{LABELS[arm]} {found[arm][tool].value:.0%}" for arm in WHO if there(found[arm][tool])]
    if not told:
        return draw.sheet("Nobody calls any tool in the pilot study", height=1.5)
    title = f"Share of calls that go to {tool}: {', '.join(told)}; an even choice {even[tool]:.0%}"
    table = pd.DataFrame.from_dict(rows | {EVEN: even}, orient="index")
    return draw.shares(table, title, "share of calls, %", note="Of all calls, all seeds together.")


def dearest(results: Results) -> str:
    """The dearest tool of the pilot study, which is its strongest model."""
    return max(tools_of(results), key=lambda tool: results.offers[tool].typical_dollars)


def kin(results: Results, params: Params) -> list[str]:
    """Models on the menu that have the size of the orchestrators' base."""

    def size(name: str) -> tuple[int, ...]:
        shape = params.lab.models[name]
        return shape.hidden, shape.layers, shape.heads, shape.intermediate

    models = {word: params.llm.models[name] for word, name in params.tools.models.items() if word in tools_of(results)}
    lab = {word: about.model or word for word, about in models.items() if about.backend == "lab"}
    return [word for word, name in lab.items() if size(name) == size(params.tools.base)]


def table(results: Results, params: Params) -> Rows:
    """Accuracy, calls, and both biases: shares of calls to models of the orchestrators' own size and to the dearest
    one, beside those of an even choice."""
    even, rows = even_shares(results), {}
    biases = {f"calls to {listed(them)}": them for them in (kin(results, params), [dearest(results)]) if them}
    for arm in WHO:
        part = exam(results, arm, "pilot")
        part = part.assign(none=(part["calls"] == 0).astype(float))
        columns = {"right": "accuracy", "none": "no call at all", "calls": "calls per question"}
        rows[LABELS[arm]] = means(part, columns) | {title: share(part, t, results) for title, t in biases.items()}
    flat = {title: Interval(sum(even[t] for t in them), np.nan, np.nan) for title, them in biases.items()}
    return rows | {EVEN: flat}


def metrics(results: Results) -> dict[str, object]:
    """Shares of calls and accuracy by key."""
    out: dict[str, object] = {}
    for arm, row in shares(results).items():
        out |= {f"pilot.{KEYS[arm]}.{tool}": found for tool, found in row.items()}
        out[f"pilot.{KEYS[arm]}.accuracy"] = mean(exam(results, arm, "pilot"), "right")
    return out
