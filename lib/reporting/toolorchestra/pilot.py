"""The pilot study: whom an orchestrator calls that is only prompted, and whom one that was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.page.tables import listed
from lib.params import Params
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import PAPER, called, label, matrix, ratio_share, share
from lib.reporting.words import NOTHING, number, there
from lib.routing.toolorchestra.study import AGENT, START, Results
from lib.stats import Interval

WHO = (AGENT, START, PAPER)


def tools_of(results: Results) -> list[str]:
    """The tools that are on any menu of the pilot study, models last."""
    part = results.episodes[results.episodes["exam"] == "pilot"]
    there_ = {name for names in part["menu"] for name in names.split()}
    return [name for name in results.tools if name in there_]


def counted(results: Results, arm: str) -> pd.DataFrame:
    """Episodes of the pilot study with calls to each tool, of all to tools, whether there was none, and what an even
    choice from the menu would give."""
    part, tools = common.exam(results, arm, "pilot"), tools_of(results)
    more = {f"to {tool}": called(part, [tool]) for tool in tools}
    even = {
        f"even {tool}": part["menu"].str.split().map(lambda names, t=tool: (t in names) / len(names)) for tool in tools
    }
    return part.assign(
        **more, **even, whole=sum(more.values()) if more else 0.0, one=1.0, none=(part["calls"] == 0).astype(float)
    )


def shares(results: Results) -> dict[str, dict[str, Interval]]:
    """By orchestrator the share of its calls that went to each tool."""
    out = {}
    for arm in WHO:
        part = counted(results, arm)
        out[arm] = {
            tool: ratio_share(part, f"to {tool}", "whole", "pilot", arm) if len(part) else NOTHING
            for tool in tools_of(results)
        }
    return out


def rights(results: Results) -> dict[str, Interval]:
    """Accuracy in the pilot study."""
    return {arm: share(matrix(common.exam(results, arm, "pilot"), "right"), "pilot", arm, "right") for arm in WHO}


def even_shares(results: Results) -> dict[str, float]:
    """What an even choice from every menu would give."""
    part = counted(results, AGENT)
    return {tool: float(part[f"even {tool}"].mean()) for tool in tools_of(results)}


def figure(results: Results) -> Figure:
    """Shares of calls, one bar for each orchestrator and one for an even choice."""
    found, rows = shares(results), {}
    for arm in WHO:
        called_any = any(there(x) for x in found[arm].values())
        name = f"{label(arm)}{_only(arm)}" + ("" if called_any else ": no call")
        rows[name] = {tool: x.value if called_any else 0.0 for tool, x in found[arm].items()}
    rows["an even choice"] = even_shares(results)
    note = "Of all calls, all seeds together."
    if not tools_of(results):
        return draw.sheet(claim(results), height=1.5, note=note)
    return draw.shares(pd.DataFrame.from_dict(rows, orient="index"), claim(results), "share of calls, %", note=note)


def _only(arm: str) -> str:
    return {AGENT: ", only prompted", START: ", before any reward"}.get(arm, "")


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


def claim(results: Results) -> str:
    """Shares of the dearest model, as a sentence."""
    tool, found = dearest(results), shares(results)
    told = [f"{label(arm)} {found[arm][tool].value:.0%}" for arm in WHO if tool and there(found[arm][tool])]
    if not told:
        return "Nobody calls any tool in the pilot study"
    return f"Share of calls that go to {tool}: {', '.join(told)}; an even choice {even_shares(results)[tool]:.0%}"


def table(results: Results) -> dict[str, dict[str, Interval]]:
    """Accuracy, calls, questions without a call and share of calls to the dearest tool, by orchestrator."""
    rows, found, right = {}, shares(results), rights(results)
    for arm in WHO:
        part = counted(results, arm)
        rows[label(arm)] = {
            "accuracy": right[arm],
            "no call at all": share(matrix(part, "none"), "pilot none", arm),
            "calls per question": common.interval(matrix(part, "calls"), "pilot calls", arm),
        } | ({f"calls to {dearest(results)}": found[arm][dearest(results)]} if dearest(results) else {})
    return rows


def words(results: Results, params: Params) -> str:
    """Both biases, computed: of models of the orchestrator's own size, and of the dearest one."""
    own, strong = kin(results, params), [dearest(results)] if dearest(results) else []
    told = []
    for bias, tools in (("Self-enhancement", own), ("Other-enhancement", strong)):
        if not tools:
            told.append(f"{bias}: no such model is on the menus.")
            continue
        told.append(f"{bias}, calls to {listed(tools)}: {_against_even(results, tools)}.")
    return "\n".join(told)


def _against_even(results: Results, tools: Sequence[str]) -> str:
    even = sum(even_shares(results)[tool] for tool in tools)
    told = []
    for arm in WHO:
        part = counted(results, arm)
        part = part.assign(them=sum(part[f"to {tool}"] for tool in tools))
        found = ratio_share(part, "them", "whole", "pilot bias", arm, *tools)
        if not there(found):
            told.append(f"{label(arm)} calls nobody")
            continue
        side = "more" if found.value > even else "less"
        how = f"clearly {side}" if found.excludes(even) else "not clearly more or less"
        told.append(f"{label(arm)} {number(found)}, {how} than the {even:.2f} of an even choice")
    return "; ".join(told)


def metrics(results: Results) -> Mapping[str, object]:
    """Shares of calls and accuracy by key."""
    names = {AGENT: "agent", START: "start", PAPER: "trained"}
    out: dict[str, object] = {}
    for arm, row in shares(results).items():
        out |= {f"pilot.{names[arm]}.{tool}": found for tool, found in row.items()}
    return out | {f"pilot.{names[arm]}.accuracy": found for arm, found in rights(results).items()}
