"""Tools that training never offered, prices that it never saw, and tools that fail in the middle: start and trained."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.page.tables import listed
from lib.params import ROOT, ToolSettings
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import (
    MONEY,
    PAPER,
    TIME,
    Rows,
    called,
    gap,
    interval,
    label,
    matrix,
    ratio_gap,
    ratio_share,
    share,
)
from lib.reporting.words import NOTHING, clearly, number, there
from lib.routing.toolorchestra import menu
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

BOTH = (START, PAPER)
GAP = "after minus before"


def _rows(parts: Mapping[str, pd.DataFrame], columns: Mapping[str, str], *name: str) -> Rows:
    """Means of columns (column: title) before and after training, and the paired difference."""
    out: Rows = {}
    for arm in BOTH:
        row = {}
        for column, title in columns.items():
            money = column in ("micro", "ms", "calls")
            row[title] = (interval if money else share)(matrix(parts[arm], column), *name, arm, column)
        out[label(arm)] = row
    out[GAP] = {title: gap(parts[PAPER], parts[START], column, *name) for column, title in columns.items()}
    return out


# Unseen tools -------------------------------------------------------------------------------------


def unseen_tools(results: Results, settings: ToolSettings, arm: str) -> pd.DataFrame:
    """Episodes of the exam: `newcomer` (the first call goes to an unseen tool), `only` (no other tool on the menu is
    good at the question by its card)."""
    part = common.exam(results, arm, "unseen_tools")
    fit = [bool(set(names.split()) - set(settings.unseen)) for names in part["good"]]
    newcomer = part["first"].isin(settings.unseen).astype(float)
    even = [len(set(names.split()) & set(settings.unseen)) / len(names.split()) for names in part["menu"]]
    return part.assign(newcomer=newcomer, only=~np.array(fit, dtype=bool), even=even)


def newcomers(results: Results, settings: ToolSettings) -> Rows:
    """Accuracy and first calls to the unseen tool, where it is the only good one and where it is not."""
    parts = {arm: unseen_tools(results, settings, arm) for arm in BOTH}
    out = _rows(parts, {"right": "accuracy", "newcomer": "unseen tool first"}, "unseen_tools")
    for only, where in ((True, "only good one"), (False, "one of several")):
        some = {arm: part[part["only"] == only] for arm, part in parts.items()}
        columns = {"right": f"accuracy, {where}", "newcomer": f"unseen tool first, {where}"}
        for who, row in _rows(some, columns, "unseen_tools", where).items():
            out[who] |= row
    return out


def newcomers_words(results: Results, settings: ToolSettings) -> str:
    """Whether an unseen tool is chosen for what its description says, as sentences."""
    told = []
    for arm in BOTH:
        part = unseen_tools(results, settings, arm)
        needed, spare = (matrix(part[part["only"] == only], "newcomer") for only in (True, False))
        if not needed.size or not spare.size:
            continue
        found = _difference(needed, spare, "needed", arm)
        told.append(
            f"{label(arm)}: it calls the unseen tool first in {needed.mean():.0%} of the questions where nothing else "
            f"is good, in {spare.mean():.0%} of the others ({number(found, 3, True)}, {clearly(found)}; "
            f"an even choice: {part['even'].mean():.0%})."
        )
    return "\n".join(told) or "Not both kinds of question are in the exam."


def _difference(a: np.ndarray, b: np.ndarray, *name: str) -> Interval:
    """Mean of a (s, n) minus that of b (s, m), other questions under the same seeds."""
    rng = common.generator("difference", *name)
    runs = common.drawn_shares(len(a), rng)
    sums = []
    for values in (a, b):
        sums.append(np.einsum("dr,ri,di->d", runs, values, common.drawn_shares(values.shape[1], rng)))
    found = sums[0] - sums[1]
    return common.around(float(found[0]), found[1:], len(a))


# Unseen prices ------------------------------------------------------------------------------------


def cheaper_now(results: Results, settings: ToolSettings) -> list[str]:
    """Tools that cost less on the second price list than on the first."""
    one, two = (menu.price_list(ROOT / path) for path in (settings.prices, settings.unseen_prices))
    rates = {"calls": (one.calls, two.calls), "models": (one.models, two.models)}
    return [
        name
        for old, new in rates.values()
        for name in old
        if name in results.tools and name in new and new[name].dollars < old[name].dollars
    ]


def _shifted(results: Results, settings: ToolSettings, arm: str, name: str) -> pd.DataFrame:
    part = common.exam(results, arm, name)
    tools = cheaper_now(results, settings)
    return part.assign(wanted=called(part, tools), whole=called(part, results.tools))


def prices(results: Results, settings: ToolSettings) -> Rows:
    """The same work at other prices: accuracy, money, time, and the share of calls to what has become cheaper."""
    columns = {"right": "accuracy", "micro": MONEY, "ms": TIME}
    parts = {arm: common.exam(results, arm, "unseen_prices") for arm in BOTH}
    out = _rows(parts, columns, "unseen_prices")
    for arm in BOTH:
        there_, here = (_shifted(results, settings, arm, name) for name in ("unseen_prices", "test"))
        out[label(arm)]["to cheaper ones, old prices"] = ratio_share(here, "wanted", "whole", "prices", arm)
        out[label(arm)]["to cheaper ones, new prices"] = ratio_share(there_, "wanted", "whole", "new prices", arm)
        out[label(arm)]["shift"] = ratio_gap(there_, here, "wanted", "whole", "prices", arm)
    return out


def prices_words(results: Results, settings: ToolSettings) -> str:
    """Whether calls follow prices, as a sentence."""
    found = prices(results, settings)
    told = [
        f"{label(arm)} {number(found[label(arm)]['shift'], 3, True)}, {clearly(found[label(arm)]['shift'])}"
        for arm in BOTH
    ]
    tools = cheaper_now(results, settings)
    return (
        f"Cheaper on the second list: {listed(tools, 'nothing')}. Share of calls that go there, new prices "
        f"minus old, same questions: {'; '.join(told)}."
    )


# Outages ------------------------------------------------------------------------------------------


def outage(results: Results, arm: str) -> pd.DataFrame:
    """Episodes of the exam: `met` (a call met the outage), and among those `right_met`, `switched` (another tool was
    called as well)."""
    part = common.exam(results, arm, "outage")
    begins = np.where((part["kind"] == "facts") & (part["difficulty"] > 1), 2, 1)
    names = part["called"].str.split()
    hits = np.array([called_.count(first) for called_, first in zip(names, part["first"], strict=True)])
    met = ((hits >= begins) & (part["first"] != "")).astype(float)
    others = np.array([len(set(called_)) > 1 for called_ in names], dtype=float)
    return part.assign(met=met, right_met=part["right"] * met, switched=others * met)


def outages(results: Results) -> Rows:
    """Completed in spite of an outage, how many met one, and what those did."""
    parts = {arm: outage(results, arm) for arm in BOTH}
    out = _rows(parts, {"right": "completed", "met": "met the outage", "calls": "calls"}, "outage")
    names = {"switched": "of these switched", "right_met": "of these right"}
    for arm in BOTH:
        for column, name in names.items():
            out[label(arm)][name] = ratio_share(parts[arm], column, "met", "outage", arm)
    for column, name in names.items():
        out[GAP][name] = ratio_gap(parts[PAPER], parts[START], column, "met", "outage")
    return out


def outages_words(results: Results) -> str:
    """What is left of accuracy, as a sentence."""
    found = outages(results)
    done = found[GAP]["completed"]
    told = []
    for arm in BOTH:
        plain, now = (
            share(matrix(common.exam(results, arm), "right"), "test", arm, "right"),
            found[label(arm)]["completed"],
        )
        if there(now):
            told.append(f"{label(arm)} completes {now.value:.0%} (all test questions, no outage: {plain.value:.0%})")
    return (
        f"With the first tool out of order {' and '.join(told)}; after minus before training {number(done, 3, True)}, "
        f"{clearly(done)}."
        if told
        else "There is no outage in the exam."
    )


# Together -----------------------------------------------------------------------------------------

EXAMS = {"test": "test", "unseen_tools": "unseen tools", "unseen_prices": "unseen prices", "outage": "outage"}


def accuracies(results: Results) -> Rows:
    """Accuracy of start and trained on every exam, and the paired difference."""
    out: Rows = {label(arm): {} for arm in BOTH}
    for name, title in EXAMS.items():
        for arm in BOTH:
            found = share(matrix(common.exam(results, arm, name), "right"), name, arm, "right")
            if there(found):
                out[label(arm)][title] = found
    return out


def gaps(results: Results, column: str = "right") -> dict[str, Interval]:
    """After minus before training by exam."""
    return {
        title: gap(common.exam(results, PAPER, name), common.exam(results, START, name), column, name)
        for name, title in EXAMS.items()
    }


def figure(results: Results) -> Figure:
    """Accuracy before and after by exam, all panels from 0 to 1."""
    rows = accuracies(results)
    titles = [title for title in EXAMS.values() if any(title in row for row in rows.values())]
    return draw.points(rows, claim(results), {title: f"accuracy, {title}" for title in titles}, limits=(-0.05, 1.05))


def claim(results: Results) -> str:
    """Where training is worth something, as a sentence."""
    told = [f"{title} {found.value:+.2f}" for title, found in gaps(results).items() if there(found)]
    return f"Accuracy, after minus before training: {', '.join(told) or 'no exam was sat'}"


def metrics(results: Results, settings: ToolSettings) -> dict[str, object]:
    """Exams by key, the start's under `start.`."""
    out: dict[str, object] = {}
    tools, money, broken = newcomers(results, settings), prices(results, settings), outages(results)
    for arm, before in ((PAPER, ""), (START, "start.")):
        who = label(arm)
        out[f"{before}unseen_tools.accuracy"] = tools[who]["accuracy"]
        out[f"{before}unseen_tools.share"] = tools[who]["unseen tool first"]
        out[f"{before}unseen_prices.accuracy"] = money[who]["accuracy"]
        out[f"{before}unseen_prices.dollars"] = scaled(money[who][MONEY], common.MILLION)
        out[f"{before}unseen_prices.seconds"] = scaled(money[who][TIME], common.MILLI)
        out[f"{before}unseen_prices.shift"] = money[who]["shift"]
        out[f"{before}outage.completed"] = broken[who]["completed"]
        out[f"{before}outage.switched"] = broken[who]["of these switched"]
    return out


def scaled(found: Interval, by: float) -> Interval:
    """An interval in other units."""
    return Interval(found.value / by, found.lo / by, found.hi / by) if there(found) else NOTHING
