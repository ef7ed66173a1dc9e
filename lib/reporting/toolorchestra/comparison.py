"""Everybody on the same test questions: single tools, simple rules, the start and the trained, by four measures."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.reporting.estimates import Rows, gap, gaps, mean, means
from lib.reporting.toolorchestra import benchmark as scored
from lib.reporting.toolorchestra.common import BOTH, GAP, MEASURES, MONEY, PAPER, TIME, exam, in_units, label, trained
from lib.routing.toolorchestra import benchmark
from lib.routing.toolorchestra.benchmark import ALWAYS, BEST, BY_KIND, ORACLE, RANDOM
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

CRITERIA = ("execution", "fidelity", "completeness")
OWN, SCORE = "of it its own tokens", "preference score"
SHOWN = {"right": "accuracy", "micro": MONEY, "own_micro": OWN, "ms": TIME, "score": SCORE}
Answers = dict[str, pd.DataFrame]


def rivals(results: Results) -> Answers:
    """What would have come of it without an orchestrator, by name; empty where there is no test question."""
    questions = exam(results, START)
    return benchmark.baselines(results.tried, questions, results.tools) if len(questions) else {}


def everybody(results: Results, others: Mapping[str, pd.DataFrame]) -> Answers:
    """Rows of the test questions, with `score`, by name; of `best always` the name says which tool it is."""
    out: Answers = {}
    for name, table in others.items():
        scores = scored.rival_scores(results, others, name)[0]
        tool = f" ({benchmark.best(results.tried[results.tried['split'] == 'train'])})" if name == BEST else ""
        out[name + tool] = in_units(table.assign(own=0.0, seed=0)).assign(score=scores)
    for arm in (START, *trained(results)):
        part = exam(results, arm)
        if len(part):
            out[label(arm)] = part.assign(score=scored.scores(results, arm).ravel())
    return out


def rows(every: Answers) -> Rows:
    """Everybody's means, by name."""
    return {name: means(part, SHOWN) for name, part in every.items()}


def plane(points: Rows, results: Results) -> Figure:
    """Cost against accuracy; orchestrators are held against mixtures of what needs none."""
    judged = [label(arm) for arm in (START, *trained(results))]
    best = next((name for name in points if name.startswith(BEST)), "")
    double = ALWAYS + best.removeprefix(f"{BEST} (").removesuffix(")")
    shown = {name.split(" (")[0]: {column: row[column] for column in (MONEY, "accuracy")}
             for name, row in points.items() if name not in (double, ORACLE)}  # fmt: skip
    told = [f"{name} {points[name]['accuracy'].value:.2f} for ${points[name][MONEY].value:.0f}"
            for name in (label(START), label(PAPER), best, BY_KIND) if name in points]  # fmt: skip
    title = f"Accuracy and dollars per million questions: {', '.join(told) or 'nobody was tested'}"
    through = [name for name in shown if name not in judged]
    return draw.plane(shown, None, title, line="mixtures", through=through)


def minus(every: Answers) -> dict[str, dict[str, Interval]]:
    """ToolOrchestra minus the start, rules and the oracle on the same questions."""
    columns = {column: title for column, title in SHOWN.items() if column != "own_micro"}
    them = [name for name in every if name.split(" (")[0] in (label(START), BEST, BY_KIND, RANDOM, ORACLE)]
    mine = every.get(label(PAPER))
    return {} if mine is None else {name: gaps(mine, every[name], columns) for name in them}


def offices(results: Results) -> Rows:
    """Office tasks, orchestrators only: accuracy and the rest, by criterion and by difficulty."""
    columns = MEASURES | {"calls": "calls", "wild": "a malformed turn"} | {name: name for name in CRITERIA}
    parts = {arm: exam(results, arm, office=True) for arm in (START, *trained(results))}
    out: Rows = {}
    for arm, part in parts.items():
        out[label(arm)] = means(part, {column: title for column, title in columns.items() if column in part})
        for level, some in part.groupby("difficulty"):
            out[label(arm)][f"accuracy, difficulty {level}"] = mean(some, "right")
    if PAPER in parts:
        out[GAP] = gaps(parts[PAPER], parts[START], MEASURES)
    return out


def kinds(results: Results) -> pd.DataFrame:
    """Accuracy and money by kind of question, start to ToolOrchestra, and whom the latter calls."""
    before, after = (exam(results, arm) for arm in BOTH)
    out = []
    for kind in dict.fromkeys(before["kind"]):
        a, b = (part[part["kind"] == kind] for part in (before, after))
        first = b["first"].replace("", "nobody").value_counts(normalize=True).head(3)
        row = {"kind": kind, "questions": a["item"].nunique()}
        for column, digits in (("right", 2), ("micro", 1), ("ms", 1)):
            row[MEASURES[column]] = f"{a[column].mean():.{digits}f} to {b[column].mean():.{digits}f}"
        row |= {"gained": gap(b, a, "right"), "called first": ", ".join(f"{w} {n:.0%}" for w, n in first.items())}
        out.append(row)
    return pd.DataFrame(out)
