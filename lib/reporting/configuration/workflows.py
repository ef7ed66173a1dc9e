"""What each workflow is worth on each kind of question, from configurations that were sampled without learning.

Rows are those of the sampled set on test questions: workflows in turn, with tools, budgets and atoms drawn at random.
Means are over the configurations of a workflow, intervals over these and over questions. Which workflow is best is
picked by the very numbers that are shown, so a lead is told with its interval, and leads are not corrected for how
many are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.configuration import baselines
from lib.configuration.space import WORKFLOWS
from lib.configuration.study import Results
from lib.page.tables import listed
from lib.reporting.configuration import common
from lib.reporting.configuration.common import ALL, Rows, apart, kinds_of, matrix, named, share
from lib.reporting.words import number
from lib.stats import Interval

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"


def sampled(results: Results, split: str = "test") -> pd.DataFrame:
    """Rows of the sampled set on one split."""
    rows = results.searched
    return common.prepared(rows[(rows["set"] == "sampled") & (rows["split"] == split)])


def parts_of(rows: pd.DataFrame, together: bool = True) -> dict[str, pd.DataFrame]:
    """Rows by kind of question, and all of them."""
    parts = {kind: rows[rows["kind"] == kind] for kind in kinds_of(rows)}
    return parts | ({ALL: rows} if together else {})


def accuracies(results: Results) -> Rows:
    """Accuracy by workflow and kind of question."""
    rows, out = sampled(results), {}
    for kind, part in parts_of(rows).items():
        for workflow in WORKFLOWS:
            mine = part[part["workflow"] == workflow]
            if len(mine):
                found = share(matrix(mine, "right", "number"), "workflow", workflow, kind)
                out.setdefault(workflow, {})[kind] = found
    return out


# Does one win everywhere? --------------------------------------------------------------------------


@dataclass(frozen=True)
class Winner:
    """The best workflow of one kind of question. lead: over the next best; behind: for every other workflow, how far
    the best is ahead of it."""

    kind: str
    workflow: str
    accuracy: float
    next: str
    lead: Interval
    behind: dict[str, Interval]

    @property
    def clear(self) -> bool:
        return self.lead.excludes(0)


@dataclass(frozen=True)
class Compared:
    """Accuracies by workflow and kind of question (or `ALL`), and the winner of every kind."""

    rows: Rows
    winners: list[Winner]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(kind for row in self.rows.values() for kind in row))


def compared(results: Results) -> Compared:
    """All that this part of the lesson tells of accuracy, computed once."""
    return Compared(accuracies(results), winners(results))


def winners(results: Results) -> list[Winner]:
    """The best workflow of every kind of question, by accuracy."""
    out = []
    for kind, part in parts_of(sampled(results), together=False).items():
        tables = {w: matrix(part[part["workflow"] == w], "right", "number") for w in WORKFLOWS}
        ranked = sorted((w for w in tables if tables[w].size), key=lambda w: -round(tables[w].mean(), 12))
        if len(ranked) < 2:
            continue
        best = ranked[0]
        behind = {w: apart(tables[best], tables[w], "workflow", kind, best, w) for w in ranked[1:]}
        out.append(Winner(kind, best, float(tables[best].mean()), ranked[1], behind[ranked[1]], behind))
    return out


def nowhere_behind(found: Compared) -> list[str]:
    """Workflows that no winner is clearly ahead of, on any kind of question."""
    beaten = {w for winner in found.winners for w, lead in winner.behind.items() if lead.excludes(0)}
    tried = {w for winner in found.winners for w in (winner.workflow, *winner.behind)}
    return [w for w in WORKFLOWS if w in tried - beaten]


def verdict(found: Compared) -> str:
    """Of the paper's claim that no workflow is best everywhere: it holds if every workflow is clearly behind another
    one somewhere; it does not if one has the highest mean on all kinds, alone; otherwise it is open."""
    if len({one.workflow for one in found.winners}) == 1 and all(one.lead.value > 0 for one in found.winners):
        return FAILS
    return OPEN if nowhere_behind(found) or not found.winners else HOLDS


def winners_table(found: Compared) -> pd.DataFrame:
    """The best workflow of each kind of question, and how far it is ahead."""
    return pd.DataFrame(
        [
            {
                "kind": one.kind, "best": one.workflow, "accuracy": f"{one.accuracy:.2f}", "next best": one.next,
                "lead": number(one.lead, 2, True), "lead is clear": one.clear,
                "clearly behind": listed([w for w, lead in one.behind.items() if lead.excludes(0)], "none"),
            }
            for one in found.winners
        ],
        columns=["kind", "best", "accuracy", "next best", "lead", "lead is clear", "clearly behind"],
    )  # fmt: skip


def winners_words(compared_: Compared) -> str:
    """Whether one workflow wins everywhere, as sentences."""
    found = compared_.winners
    if not found:
        return "Fewer than two workflows were sampled: there is nothing to compare."
    clear = sum(one.clear for one in found)
    said = verdict(compared_)
    if said == FAILS:
        one = found[0].workflow
        return (
            f"One workflow wins everywhere: {one} has the highest mean on all {len(found)} kinds of questions, clearly "
            f"so on {clear}. That none wins everywhere does not hold here: these questions are too easy to tell "
            "workflows apart, or too much alike."
        )
    told = "; ".join(f"{one.kind}: {one.workflow}{' (clearly)' if one.clear else ''}" for one in found)
    left = nowhere_behind(compared_)
    more = (
        f"Every workflow is clearly behind another one on some kind: that none wins everywhere {said}."
        if said == HOLDS
        else f"{listed(left)} {'is' if len(left) == 1 else 'are'} nowhere clearly behind: that none wins everywhere is "
        f"{said}."
    )
    return f"Best by kind, {told}; {clear} of {len(found)} leads over the next best are clear. {more}"


# Figure 12 ----------------------------------------------------------------------------------------


def accuracy_figure(found: Compared) -> Figure:
    """Accuracy by workflow, a panel for each kind of question and one for all."""
    heads = {kind: f"accuracy, {named(kind)}" for kind in found.kinds}
    return draw.points(found.rows, accuracy_claim(found), heads, limits=(-0.05, 1.05))


def accuracy_claim(found: Compared) -> str:
    """Who is best where, as a sentence."""
    if not found.winners:
        return "Fewer than two workflows were sampled"
    told = ", ".join(f"{one.kind} {one.workflow} {one.accuracy:.2f}" for one in found.winners)
    same = "one workflow everywhere" if verdict(found) == FAILS else "not one workflow everywhere"
    return f"Best by kind of question, {same}: {told}"


# The best of each ----------------------------------------------------------------------------------


def best_table(results: Results) -> pd.DataFrame:
    """Of each workflow the configuration that was paid best on training questions, on test questions."""
    out = []
    for workflow in WORKFLOWS:
        rows = results.searched[results.searched["workflow"] == workflow]
        if rows.empty:
            continue
        row = common.measured(common.prepared(baselines.constant(rows)), "best of", workflow)
        out.append({"workflow": workflow, "tried": rows["number"].nunique()} | {
            title: common.cell(title, found) for title, found in row.items()
        })  # fmt: skip
    return pd.DataFrame(out)
