"""What did not work in this run, and how much the run could see: sentences that are there only if the data say so."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.configuration.study import Results
from lib.page.tables import listed
from lib.params import Params
from lib.reporting.configuration import diversity, refinement, theory, training, workflows
from lib.reporting.configuration.common import ALL, DPO, GRPO, PAPER, PLAIN, PROMPTED
from lib.reporting.configuration.everybody import BY_KIND, CONSTANT, Everybody
from lib.reporting.configuration.transfer import DIFFERENCE, Abroad
from lib.reporting.configuration.workflows import Compared
from lib.reporting.words import number, there

RIVALS = (CONSTANT, BY_KIND, "grid", "greedy", "base", "random", "bandit", "episodes", *PROMPTED)
_HARDLY = 0.05  # bits above chance that are as good as none
_IDLE = 0.25  # share of episodes without use of what was allocated from which it is told


def negatives(
    results: Results, everyone: Everybody, compared: Compared, abroad: Abroad, theorem: pd.DataFrame | None = None
) -> list[str]:
    """Findings against the method, or against this run; each is there only if the data say so."""
    told = [
        *_beaten(everyone), *_unrefined(everyone), *_unadapted(everyone), *_unused(everyone),
        *_untrained(results), *_misread(everyone, compared), *_elsewhere(abroad),
    ]  # fmt: skip
    if theorem is not None:
        loud = float(theorem["noise"].max())
        if not theory.holds(theorem, loud):
            kept = theorem.loc[(theorem["noise"] == loud) & (theorem["covered"] > 0), "kept"].mean()
            told.append(
                f"The floor of theorem 3.2 is kept on {kept:.0%} of the questions where outcomes are drawn: the elite "
                "was lucky."
            )
    return told


def _beaten(everyone: Everybody) -> list[str]:
    """Where ARC is not clearly above what anyone could write down, or above random choices."""
    told = []
    for other in RIVALS:
        row = everyone.gaps.get(other)
        if not row or not there(row["reward"]) or (row["reward"].excludes(0) and row["reward"].value > 0):
            continue
        side = "clearly below" if row["reward"].excludes(0) else "not clearly above"
        told.append(
            f"ARC is {side} {everyone.labels[other]}: reward {number(row['reward'], 2, True)}, accuracy "
            f"{number(row['accuracy'], 3, True)}."
        )
    return told


def _unrefined(everyone: Everybody) -> list[str]:
    """SFT and DPO that gain nothing clearly, and rivals of PPO that do not lose."""
    told = []
    for arm, name in ((PAPER, "SFT"), (DPO, "DPO")):
        found = refinement.gap_of(everyone, arm)["reward"]
        if there(found) and not (found.excludes(0) and found.value > 0):
            told.append(f"{name} has no clear gain over PPO alone: reward {number(found, 2, True)}.")
    found = refinement.gap_of(everyone, PLAIN, GRPO)["accuracy"]
    if there(found) and not (found.excludes(0) and found.value > 0):
        told.append(f"PPO is not clearly above GRPO: accuracy {number(found, 3, True)}.")
    return told


def _unadapted(everyone: Everybody) -> list[str]:
    """Policies that choose alike whatever is asked."""
    told = []
    for arm in (PAPER, PLAIN, GRPO, "bandit", "episodes"):
        found = diversity.measures(everyone, arm)["told"]
        chance = diversity.by_chance(everyone, arm)
        if there(found) and found.value < chance + _HARDLY:
            told.append(
                f"{everyone.labels[arm]} hardly adapts its workflow: the kind of question tells {found.value:.2f} bits "
                f"of it, by chance {chance:.2f} (chosen most: {diversity.commonest(everyone.of(arm))})."
            )
    return told


def _unused(everyone: Everybody) -> list[str]:
    """Tools that were allocated and hardly used, or never."""
    rows = everyone.of(PAPER)
    if rows.empty or not rows["allocated"].sum():
        return []
    idle = float(((rows["allocated"] > 0) & (rows["used"] == 0)).mean())
    if not rows["used"].sum():
        return ["ARC allocates tools and its agents never use one."]
    if idle <= _IDLE:
        return []
    return [f"In {idle:.0%} of ARC's test episodes tools are allocated and none is used, which the reward fines."]


def _untrained(results: Results) -> list[str]:
    """Trainings that end with no more than they began with, in some seed."""
    flat = [training.label(arm) for arm in training.trained(results) if not training.rises(results, arm)]
    return [f"Reward does not rise over the episodes in every seed of {listed(flat)}."] if flat else []


def _misread(everyone: Everybody, compared: Compared) -> list[str]:
    """The claim about workflows where this run does not bear it out, and replies that could not be read."""
    told = []
    said = workflows.verdict(compared)
    if said != workflows.HOLDS:
        told.append(f"That no workflow wins everywhere {'is ' if said == workflows.OPEN else ''}{said} here.")
    for arm in PROMPTED:
        rows = everyone.of(arm)
        failed = float(np.nan_to_num(rows["failed"]).mean()) if len(rows) and "failed" in rows else 0.0
        if failed:
            told.append(f"{failed:.0%} of the replies of {everyone.labels[arm]} held no configuration.")
    return told


def _elsewhere(abroad: Abroad) -> list[str]:
    """A larger model that makes nothing of it, and learning everything at once that loses to learning one thing."""
    told = []
    if abroad.larger:
        found = abroad.larger[ALL][DIFFERENCE]["accuracy"]
        if not (found.excludes(0) and found.value > 0):
            told.append(f"The larger model is not clearly better under ARC's choices: {number(found, 3, True)}.")
    lost = {kind: x for (origin, kind), x in abroad.drops.items() if origin == ALL}
    below = [kind for kind, x in lost.items() if x.excludes(0) and x.value < 0]
    if below:
        told.append(f"Learned from all kinds, ARC is clearly below what learned from one alone on {listed(below)}.")
    return told


def limits(
    results: Results,
    params: Params,
    everyone: Everybody,
    compared: Compared,
    abroad: Abroad,
    theorem: pd.DataFrame | None = None,
) -> str:
    """The same as lines, with how much this run could see at all."""
    own = params.configuration
    n = everyone.tests["item"].nunique()
    size = (
        f"{own.episodes} episodes a training, {own.seeds} seeds, {n} test questions, {own.search_items} training "
        "questions of each kind for searches and constants."
    )
    return "\n".join([*negatives(results, everyone, compared, abroad, theorem), size])
