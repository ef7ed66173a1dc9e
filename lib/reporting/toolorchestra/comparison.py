"""Everybody on the same test questions, and the preference benchmark: its sums, its units, the tools that users like.

R^e = M_norm . P if right, else 0;    M_norm[k] = M_s[k] / max(1, M_0[k]), of cost and latency M_0[k] / max(1, M_s[k])
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.reporting.estimates import Rows, gap, gaps, mean, means, ratio, ratio_gap
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import BOTH, EVEN, GAP, LABELS, MEASURES, MONEY, PAPER, arms_of, exam
from lib.routing.toolorchestra import benchmark, rewards
from lib.routing.toolorchestra.benchmark import ALWAYS, BEST, BY_KIND, ORACLE, RANDOM
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

CRITERIA = ("execution", "fidelity", "completeness")
OWN, SCORE = "of it its own tokens", "preference score"
SHOWN = {"right": "accuracy", "micro": MONEY, "own_micro": OWN, "ms": common.TIME, "score": SCORE}
UNITS = {  # per dollar and per second
    "micro-dollars and ms": (rewards.MICRO, rewards.MILLI), "dollars and seconds": (1.0, 1.0),
    "as printed, amounts negative": (-1.0, -1.0),
}  # fmt: skip
Answers = dict[str, pd.DataFrame]


def everybody(results: Results) -> Answers:
    """Rows of the test questions, with `score`, by name; of `best always` the name says which tool it is."""
    train = results.tried[results.tried["split"] == "train"]
    out: Answers = {}
    for name, table in benchmark.baselines(results.tried, exam(results, START), results.tools).items():
        tool = f" ({benchmark.ordered(train)[0]})" if name == BEST else ""
        out[name + tool] = common.in_units(table.assign(own=0.0, seed=0))
    return out | {LABELS[arm]: scored(results, arm, office=False) for arm in arms_of(results)}


def rows(every: Answers) -> Rows:
    """Everybody's means, by name."""
    return {name: means(part, SHOWN) for name, part in every.items()}


def plane(points: Rows, results: Results) -> Figure:
    """Cost against accuracy; orchestrators are held against mixtures of what needs none."""
    judged = [LABELS[arm] for arm in arms_of(results)]
    best = next(name for name in points if name.startswith(BEST))
    double = ALWAYS + best.removeprefix(f"{BEST} (").removesuffix(")")
    shown = {name.split(" (")[0]: {column: row[column] for column in (MONEY, "accuracy")}
             for name, row in points.items() if name not in (double, ORACLE)}  # fmt: skip
    told = [f"{name} {points[name]['accuracy'].value:.2f} for ${points[name][MONEY].value:.0f}"
            for name in (LABELS[START], LABELS[PAPER], best, BY_KIND)]  # fmt: skip
    title = f"Accuracy and dollars per million questions: {', '.join(told)}"
    through = [name for name in shown if name not in judged]
    return draw.plane(shown, None, title, line="mixtures", through=through)


def minus(every: Answers) -> Rows:
    """ToolOrchestra minus the start, rules and the oracle on the same questions."""
    columns = {column: title for column, title in SHOWN.items() if column != "own_micro"}
    them = [name for name in every if name.split(" (")[0] in (LABELS[START], BEST, BY_KIND, RANDOM, ORACLE)]
    return {name: gaps(every[LABELS[PAPER]], every[name], columns) for name in them}


def offices(results: Results) -> Rows:
    """Office tasks, orchestrators only: accuracy and the rest, by criterion and by difficulty."""
    columns = MEASURES | {"calls": "calls", "wild": "a malformed turn"} | {name: name for name in CRITERIA}
    parts = {arm: exam(results, arm, office=True) for arm in arms_of(results)}
    out: Rows = {}
    for arm, part in parts.items():
        levels = {f"accuracy, difficulty {level}": mean(some, "right") for level, some in part.groupby("difficulty")}
        out[LABELS[arm]] = means(part, {column: title for column, title in columns.items() if column in part}) | levels
    return out | {GAP: gaps(parts[PAPER], parts[START], MEASURES)}


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


# The preference benchmark --------------------------------------------------------------------------


def scored(
    results: Results, arm: str, units: tuple[float, float] = UNITS["micro-dollars and ms"], dearer: float = 1.0,
    weigh: tuple[float, float] = (1.0, 1.0), office: bool | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Examples of the exam with `score`, R^e by one reading of the formula. dearer: what the orchestrator spends, times
    so much; weigh: factors on users' weights of cost and latency; office: as of `exam`."""
    part, start = (exam(results, who, office=office) for who in (arm, START))
    m, wanted = np.stack(part["m"]), np.stack(part["p"])
    m[:, -2] *= dearer
    wanted[:, -2:] *= weigh
    before = np.tile(np.stack(start["m"]), (part["seed"].nunique(), 1))
    return part.assign(score=rewards.score(m, before, wanted, units))


def table(results: Results, every: Answers) -> pd.DataFrame:
    """Mean and sum of R^e over questions for everybody, and over all examples for orchestrators; sums over seeds are
    means."""
    whole = {LABELS[arm]: scored(results, arm) for arm in arms_of(results)}
    out = {}
    for name, part in every.items():
        parts = {"questions": part} | ({"all": whole[name]} if name in whole else {})
        out[name] = {f"mean, {what}": mean(some, "score") for what, some in parts.items()}
        out[name] |= {f"sum, {what}": some.groupby("seed")["score"].sum().mean() for what, some in parts.items()}
    columns = [f"{how}, {what}" for what in ("questions", "all") for how in ("mean", "sum")]
    found = pd.DataFrame.from_dict(out, orient="index").reindex(columns=columns).rename_axis("who")
    found.loc[GAP, "mean, all"] = gains(results)
    return found.astype({"sum, questions": float, "sum, all": float})


def gains(results: Results) -> Interval:
    """Mean R^e of ToolOrchestra minus the start's, on the same examples."""
    return gap(scored(results, PAPER), scored(results, START), "score")


def spending_share(results: Results) -> float:
    """Which part of ToolOrchestra's score comes from cost and latency; 0 where nothing was scored."""
    whole, blind = (scored(results, PAPER, weigh=weigh)["score"].sum() for weigh in ((1.0, 1.0), (0.0, 0.0)))
    return 1 - float(blind / whole) if whole else 0.0


def units_table(results: Results) -> pd.DataFrame:
    """Mean score of orchestrators by reading of the formula, and what it would be had ToolOrchestra spent double."""
    who = [(LABELS[arm], arm, 1.0) for arm in arms_of(results)]
    who.append((f"{LABELS[PAPER]}, had it spent double", PAPER, 2.0))
    return pd.DataFrame(
        [
            {"who": name} | {what: scored(results, arm, units, dearer)["score"].mean() for what, units in UNITS.items()}
            for name, arm, dearer in who
        ]
    )


LIKED = {False: "calls to liked tools", True: "confidential: calls to models"}


def liking(results: Results, arm: str, confidential: bool) -> pd.DataFrame:
    """Questions of users who like tools on their menu, by name or for their data's sake: `wanted` calls (to liked
    tools; of confidential users to models, which they want to avoid), `whole` calls, and what an even choice would
    give."""
    part = exam(results, arm)
    part = part[(part["liked"] != "") & (part["confidential"].astype(bool) == confidential)]
    models = {name for name, offer in results.offers.items() if not offer.local}
    aims = [models if confidential else set(names.split()) for names in part["liked"]]
    calls, menus = part["called"].str.split(), part["menu"].str.split()
    return part.assign(
        wanted=[float(sum(n in aim for n in names)) for names, aim in zip(calls, aims, strict=True)],
        whole=calls.str.len().astype(float),
        even=[float(np.mean([n in aim for n in menu])) for menu, aim in zip(menus, aims, strict=True)],
    )


def liked_rows(results: Results) -> Rows:
    """Share of calls that users like, and of calls that confidential users do not, by orchestrator."""
    parts = {arm: {name: liking(results, arm, secret) for secret, name in LIKED.items()} for arm in arms_of(results)}
    before, after = (parts[arm] for arm in BOTH)
    out = {LABELS[arm]: {name: ratio(part, "wanted", "whole") for name, part in of.items()}
           for arm, of in parts.items()}  # fmt: skip
    out[GAP] = {name: ratio_gap(after[name], before[name], "wanted", "whole") for name in before}
    return out | {EVEN: {name: Interval(float(part["even"].mean()), np.nan, np.nan) for name, part in before.items()}}
