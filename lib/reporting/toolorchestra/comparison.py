"""Everybody on the same test questions: single tools, simple rules, the start and the trained, by four measures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.reporting.toolorchestra import benchmark as scored
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import (
    MEASURES,
    MONEY,
    PAPER,
    TIME,
    Rows,
    gap,
    in_units,
    interval,
    label,
    matrix,
    measured,
    share,
    trained,
)
from lib.reporting.words import NOTHING, clearly, number, there
from lib.routing.toolorchestra import benchmark
from lib.routing.toolorchestra.benchmark import ALWAYS, BEST, BY_KIND, ORACLE, RANDOM
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

CRITERIA = ("execution", "fidelity", "completeness")
OWN = MEASURES["own_micro"]
SCORE = "preference score"


def rivals(results: Results) -> dict[str, pd.DataFrame]:
    """What would have come of it without an orchestrator, by name; empty where there is no test question."""
    questions = common.exam(results, START)
    return benchmark.baselines(results.tried, questions, results.tools) if len(questions) else {}


def best_tool(results: Results) -> str:
    """The tool behind `best always`."""
    return benchmark.best(results.tried[results.tried["split"] == "train"])


def rows(results: Results, others: Mapping[str, pd.DataFrame]) -> Rows:
    """Everybody's means with intervals, by name."""
    out: Rows = {}
    for name, table in others.items():
        units = in_units(table.assign(own=0.0, seed=0))
        alias = ALWAYS + best_tool(results) if name == BEST else name  # one quantity, one interval
        row = measured(units, "rival", alias, columns=("right", "micro", "own_micro", "ms"))
        out[_named(results, name)] = row | {SCORE: interval(scored.rival_scores(results, others, name), "score", alias)}
    for arm in (START, *trained(results)):
        part = common.exam(results, arm)
        row = measured(part, "test", arm, columns=("right", "micro", "own_micro", "ms"))
        out[label(arm)] = row | {SCORE: interval(scored.scores(results, arm), "score", arm)}
    return {name: row for name, row in out.items() if there(row["accuracy"])}


def table(points: Rows) -> pd.DataFrame:
    """Everybody's means, as narrow as may be; the orchestrator's own tokens as plain numbers."""
    digits = {"accuracy": 2, MONEY: 1, TIME: 1, SCORE: 2}
    out = []
    for name, row in points.items():
        told = {column: number(row[column], n) for column, n in digits.items()}
        own = f"{row[OWN].value:.1f}"
        out.append({"who": name, "accuracy": told["accuracy"], "$ per million": told[MONEY], "own": own,
                    "ms": told[TIME], "score": told[SCORE]})  # fmt: skip
    return pd.DataFrame(out)


def _named(results: Results, name: str) -> str:
    return f"{BEST} ({best_tool(results)})" if name == BEST else name


def plane(points: Rows, results: Results) -> Figure:
    """Cost against accuracy; orchestrators are held against mixtures of what needs none."""
    judged = [label(arm) for arm in (START, *trained(results)) if label(arm) in points]
    double = ALWAYS + best_tool(results)
    rows = {name.split(" (")[0]: {column: row[column] for column in (MONEY, "accuracy")}
            for name, row in points.items() if name not in (double, ORACLE)}  # fmt: skip
    return draw.plane(rows, None, plane_claim(points, results), line="mixtures",
                      through=[name for name in rows if name not in judged])  # fmt: skip


def plane_claim(points: Rows, results: Results) -> str:
    """Start and trained beside the best single tool, as a sentence."""
    names = [label(START), label(PAPER), f"{BEST} ({best_tool(results)})", BY_KIND]
    told = [
        f"{name} {points[name]['accuracy'].value:.2f} for ${points[name][MONEY].value:.0f}"
        for name in names
        if name in points
    ]
    return f"Accuracy and dollars per million questions: {', '.join(told) or 'nobody was tested'}"


def gaps(results: Results, others: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Interval]]:
    """ToolOrchestra minus others on the same questions: accuracy, money, time."""
    mine = common.exam(results, PAPER)
    them = {label(START): common.exam(results, START)}
    for name in (BEST, BY_KIND, RANDOM, ORACLE):
        if name in others:
            them[_named(results, name)] = in_units(others[name].assign(own=0.0, seed=0))
    return {
        name: {
            MEASURES[c]: gap(mine, part, c, *(["test"] if name == label(START) else ["rival", name]))
            for c in ("right", "micro", "ms")
        }
        for name, part in them.items()
    }


def words(results: Results, others: Mapping[str, pd.DataFrame]) -> str:
    """Where ToolOrchestra stands beside each of them, a line each."""
    told = [
        f"{label(PAPER)} beside {name}: {clearly(row['accuracy'])} often right ({number(row['accuracy'], 3, True)}), "
        f"{clearly(row[MONEY], 'dearer', 'cheaper')} ({number(row[MONEY], 1, True)} dollars per million), "
        f"{clearly(row[TIME], 'slower', 'faster')} ({number(row[TIME], 1, True)} ms)."
        for name, row in gaps(results, others).items()
    ]
    return "\n".join(told)


def own_words(results: Results) -> str:
    """How much of the money goes to the orchestrator itself, as a sentence."""
    part = common.exam(results, PAPER)
    found = common.ratio_share(part, "own_micro", "micro", "own share")
    if not there(found):
        return "There is no test question."
    calls = np.nan_to_num(part["micro"] - part["own_micro"]).mean()
    return (
        f"Of what {label(PAPER)} spends on test questions, {number(found)} goes to its own tokens; calls alone cost "
        f"${calls:.1f} per million questions, which is what stands to compare with tools that nobody orchestrates."
    )


def offices(results: Results) -> Rows:
    """Office tasks, orchestrators only: accuracy and the rest, by criterion and by difficulty."""
    out: Rows = {}
    for arm in (START, *trained(results)):
        part = common.exam(results, arm, offices=True)
        part = part[part["kind"] == "office"]
        part = part.assign(wild=(part["malformed"] > 0).astype(float))
        row = measured(part, "office", arm, columns=("right", "micro", "ms", "calls"))
        out[label(arm)] = row | {"a malformed turn": share(matrix(part, "wild"), "office wild", arm)}
        for name in CRITERIA:
            out[label(arm)][name] = share(matrix(part, name), "office", arm, name) if name in part else NOTHING
        for level, some in part.groupby("difficulty"):
            out[label(arm)][f"accuracy, difficulty {level}"] = share(matrix(some, "right"), "office", arm, str(level))
    return out


def offices_words(results: Results) -> str:
    """Whether training helped with office tasks, as a sentence."""
    after, before = (
        (lambda part: part[part["kind"] == "office"])(common.exam(results, arm, offices=True)) for arm in (PAPER, START)
    )
    found = gap(after, before, "right", "office")
    if not there(found):
        return "There is no office task in the exam."
    return (
        f"Office tasks, accuracy after minus before training: {number(found, 3, True)}, {clearly(found, 'up', 'down')}."
    )


def kinds(results: Results) -> pd.DataFrame:
    """Accuracy and money by kind of question, start to ToolOrchestra, and whom the latter calls."""
    before, after = (common.exam(results, arm) for arm in (START, PAPER))
    out = []
    for kind in dict.fromkeys(before["kind"]):
        some = {arm: part[part["kind"] == kind] for arm, part in ((START, before), (PAPER, after))}
        first = some[PAPER]["first"].replace("", "nobody").value_counts(normalize=True).head(3)
        out.append(
            {
                "kind": kind,
                "questions": some[START]["item"].nunique(),
                "accuracy": _ends(some, "right", 2),
                MONEY: _ends(some, "micro", 1),
                TIME: _ends(some, "ms", 1),
                "gained": str(gap(some[PAPER], some[START], "right", "kind", kind)) if len(some[PAPER]) else "-",
                "called first": ", ".join(f"{who} {part:.0%}" for who, part in first.items()),
            }
        )
    return pd.DataFrame(out)


def _ends(some: Mapping[str, pd.DataFrame], column: str, digits: int) -> str:
    return " to ".join(f"{some[arm][column].mean():.{digits}f}" for arm in (START, PAPER))
