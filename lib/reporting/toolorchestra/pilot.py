"""The pilot study: whom an orchestrator calls that is only prompted, and whom one that was trained."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.page.tables import listed
from lib.page.words import there
from lib.params import Params
from lib.reporting.estimates import Rows, mean, means, ratio
from lib.reporting.toolorchestra.common import PAPER, called, exam, label
from lib.routing.toolorchestra.study import AGENT, START, Results
from lib.stats import Interval

WHO = {AGENT: ", only prompted", START: ", before any reward", PAPER: ""}
KEYS = {AGENT: "agent", START: "start", PAPER: "trained"}
EVEN = "an even choice"


def tools_of(results: Results) -> list[str]:
    """The tools that are on any menu of the pilot study, models last."""
    part = results.episodes[results.episodes["exam"] == "pilot"]
    there_ = {name for names in part["menu"] for name in names.split()}
    return [name for name in results.tools if name in there_]


def counted(results: Results, arm: str) -> pd.DataFrame:
    """Episodes of the pilot study with calls to each tool, of all to tools, and whether there was none."""
    part = exam(results, arm, "pilot")
    more = {f"to {tool}": called(part, [tool]) for tool in tools_of(results)}
    return part.assign(**more, whole=called(part, tools_of(results)), none=(part["calls"] == 0).astype(float))


def shares(results: Results) -> Rows:
    """By orchestrator the share of its calls that went to each tool."""
    parts = {arm: counted(results, arm) for arm in WHO}
    return {arm: {tool: ratio(part, f"to {tool}", "whole") for tool in tools_of(results)}
            for arm, part in parts.items()}  # fmt: skip


def even_shares(results: Results) -> dict[str, float]:
    """What an even choice from every menu would give."""
    menus = exam(results, AGENT, "pilot")["menu"].str.split()
    return {tool: float(menus.map(lambda names, t=tool: (t in names) / len(names)).mean())
            for tool in tools_of(results)}  # fmt: skip


def figure(results: Results) -> Figure:
    """Shares of calls, one bar for each orchestrator and one for an even choice."""
    found, even, rows = shares(results), even_shares(results), {}
    for arm, how in WHO.items():
        name = label(arm) + how + ("" if any(there(x) for x in found[arm].values()) else ": no call")
        rows[name] = {tool: x.value if there(x) else 0.0 for tool, x in found[arm].items()}
    tool = dearest(results)
    told = [f"{label(arm)} {found[arm][tool].value:.0%}" for arm in WHO if tool and there(found[arm][tool])]
    if not told:
        return draw.sheet("Nobody calls any tool in the pilot study", height=1.5)
    title = f"Share of calls that go to {tool}: {', '.join(told)}; an even choice {even[tool]:.0%}"
    table = pd.DataFrame.from_dict(rows | {EVEN: even}, orient="index")
    return draw.shares(table, title, "share of calls, %", note="Of all calls, all seeds together.")


def dearest(results: Results) -> str:
    """The dearest tool of the pilot study, which is its strongest model."""
    return max(tools_of(results), key=lambda tool: results.offers[tool].typical_dollars, default="")


def kin(results: Results, params: Params) -> list[str]:
    """Models on the menu that have the size of the orchestrators' base."""

    def size(name: str) -> tuple[int, ...] | None:
        shape = params.lab.models.get(name)
        return shape and (shape.hidden, shape.layers, shape.heads, shape.intermediate)

    own = size(params.tools.base)
    models = {word: params.llm.models[name] for word, name in params.tools.models.items()}
    return [
        tool
        for tool in tools_of(results)
        if tool in models and models[tool].backend == "lab" and size(models[tool].model or tool) == own
    ]


def table(results: Results, params: Params) -> Rows:
    """Accuracy, calls, and both biases: shares of calls to models of the orchestrators' own size and to the dearest
    one, beside those of an even choice."""
    even, own = even_shares(results), kin(results, params)
    biases = {f"calls to {listed(tools)}": tools for tools in (own, [dearest(results)]) if any(tools)}
    rows: Rows = {}
    for arm in WHO:
        part = counted(results, arm)
        columns = {"right": "accuracy", "none": "no call at all", "calls": "calls per question"}
        rows[label(arm)] = means(part, columns) | {
            title: ratio(part.assign(them=called(part, tools)), "them", "whole") for title, tools in biases.items()
        }
    nan = float("nan")
    flat = {title: Interval(sum(even[tool] for tool in tools), nan, nan) for title, tools in biases.items()}
    return rows | {EVEN: flat}


def metrics(results: Results) -> dict[str, object]:
    """Shares of calls and accuracy by key."""
    out: dict[str, object] = {}
    for arm, row in shares(results).items():
        out |= {f"pilot.{KEYS[arm]}.{tool}": found for tool, found in row.items()}
        out[f"pilot.{KEYS[arm]}.accuracy"] = mean(exam(results, arm, "pilot"), "right")
    return out
