"""Tools that training never offered, prices that it never saw, and tools that fail in the middle: start and trained."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.params import ROOT, ToolSettings
from lib.reporting.estimates import Rows, gap, mean, ratio, ratio_gap
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import BOTH, GAP, LABELS, PAPER, exam
from lib.reporting.words import scaled, there
from lib.routing.toolorchestra import menu
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

EXAMS = {"test": "test", "unseen_tools": "unseen tools", "unseen_prices": "unseen prices", "outage": "outage"}


def unseen_tools(results: Results, settings: ToolSettings, arm: str) -> pd.DataFrame:
    """Episodes of the exam: `newcomer` (the first call goes to an unseen tool), `only` (no other tool on the menu is
    good at the question by its card), `even` (what an even choice would give)."""
    part, new = exam(results, arm, "unseen_tools"), set(settings.unseen)
    only = [not set(names.split()) - new for names in part["good"]]
    even = [len(set(names.split()) & new) / len(names.split()) for names in part["menu"]]
    return part.assign(newcomer=part["first"].isin(new).astype(float), only=np.array(only, dtype=bool), even=even)


def newcomers(results: Results, settings: ToolSettings) -> Rows:
    """Accuracy and first calls to the unseen tool, where it is the only good one and where it is not."""
    parts = {arm: unseen_tools(results, settings, arm) for arm in BOTH}
    titles = {"right": "accuracy", "newcomer": "unseen tool first"}
    out = common.change(parts, titles)
    for only, where in ((True, "only good one"), (False, "one of several")):
        some = {arm: part[part["only"] == only] for arm, part in parts.items()}
        for who, row in common.change(some, {column: f"{title}, {where}" for column, title in titles.items()}).items():
            out[who] |= row
    even = Interval(float(parts[START]["even"].mean()), np.nan, np.nan)
    return out | {common.EVEN: {"unseen tool first": even}}


def cheaper_now(results: Results, settings: ToolSettings) -> list[str]:
    """Tools that cost less on the second price list than on the first."""
    lists = (menu.price_list(ROOT / path) for path in (settings.prices, settings.unseen_prices))
    one, two = ({**told.calls, **told.models} for told in lists)
    return [name for name in one if name in results.tools and two[name].dollars < one[name].dollars]


def prices(results: Results, settings: ToolSettings) -> Rows:
    """The same work at other prices: accuracy, money, time, and the share of calls to what has become cheaper."""
    tools = cheaper_now(results, settings)
    out = common.change({arm: exam(results, arm, "unseen_prices") for arm in BOTH}, common.MEASURES)
    for arm in BOTH:
        abroad, here = (
            part.assign(wanted=common.calls_to(part, tools), whole=common.calls_to(part, results.tools))
            for part in (exam(results, arm, name) for name in ("unseen_prices", "test"))
        )
        out[LABELS[arm]] |= {
            "to cheaper ones, old prices": ratio(here, "wanted", "whole"),
            "to cheaper ones, new prices": ratio(abroad, "wanted", "whole"),
            "shift": ratio_gap(abroad, here, "wanted", "whole"),
        }
    return out


def outage(results: Results, arm: str) -> pd.DataFrame:
    """Episodes of the exam: `met` (a call met the outage), and among those `right_met`, `switched` (another tool was
    called as well)."""
    part = exam(results, arm, "outage")
    begins = np.where((part["kind"] == "facts") & (part["difficulty"] > 1), 2, 1)
    names = part["called"].str.split()
    hits = np.array([called.count(first) for called, first in zip(names, part["first"], strict=True)])
    met, others = (hits >= begins).astype(float), names.map(lambda called: len(set(called)) > 1)
    return part.assign(met=met, right_met=part["right"] * met, switched=others * met)


def outages(results: Results) -> Rows:
    """Completed in spite of an outage, how many met one, and what those did."""
    parts = {arm: outage(results, arm) for arm in BOTH}
    out = common.change(parts, {"right": "completed", "met": "met the outage", "calls": "calls"})
    for column, name in {"switched": "of these switched", "right_met": "of these right"}.items():
        for arm, part in parts.items():
            out[LABELS[arm]][name] = ratio(part, column, "met")
        out[GAP][name] = ratio_gap(parts[PAPER], parts[START], column, "met")
    return out


def changes(results: Results) -> dict[str, Interval]:
    """Accuracy after minus before training by exam."""
    return {
        title: gap(exam(results, PAPER, name), exam(results, START, name), "right") for name, title in EXAMS.items()
    }


def figure(results: Results) -> Figure:
    """Accuracy before and after by exam, all panels from 0 to 1."""
    rows = {LABELS[arm]: {title: mean(exam(results, arm, name), "right") for name, title in EXAMS.items()}
            for arm in BOTH}  # fmt: skip
    rows = {who: {title: found for title, found in row.items() if there(found)} for who, row in rows.items()}
    told = [f"{title} {found.value:+.2f}" for title, found in changes(results).items() if there(found)]
    panels = {title: f"accuracy, {title}" for title in EXAMS.values() if any(title in row for row in rows.values())}
    return draw.points(rows, f"Accuracy, after minus before training: {', '.join(told)}", panels, limits=(-0.05, 1.05))


def metrics(results: Results, settings: ToolSettings) -> dict[str, object]:
    """Exams by key, the start's under `start.`."""
    out: dict[str, object] = {}
    tools, money, broken = newcomers(results, settings), prices(results, settings), outages(results)
    for arm, before in zip(BOTH, ("start.", ""), strict=True):
        who = LABELS[arm]
        out |= {
            f"{before}unseen_tools.accuracy": tools[who]["accuracy"],
            f"{before}unseen_tools.share": tools[who]["unseen tool first"],
            f"{before}unseen_prices.accuracy": money[who]["accuracy"],
            f"{before}unseen_prices.dollars": scaled(money[who][common.MONEY], common.MILLION),
            f"{before}unseen_prices.seconds": scaled(money[who][common.TIME], common.MILLI),
            f"{before}unseen_prices.shift": money[who]["shift"],
            f"{before}outage.completed": broken[who]["completed"],
            f"{before}outage.switched": broken[who]["of these switched"],
        }
    return out
