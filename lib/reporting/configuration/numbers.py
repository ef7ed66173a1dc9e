"""What was found, in one place: the metrics that are kept, the finding, and what did not work in this run."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.configuration import baselines, space
from lib.configuration.study import Results
from lib.page.tables import listed
from lib.params import Params
from lib.reporting.configuration import (
    comparison,
    diversity,
    errors,
    refinement,
    theory,
    training,
    transfer,
    workflows,
)
from lib.reporting.configuration.common import ALL, GRPO, MONEY, PAPER, PLAIN, PROMPTED, THOUSAND, TIME
from lib.reporting.configuration.everybody import CONSTANT, ORACLE, Everybody
from lib.reporting.configuration.transfer import DIFFERENCE, Abroad
from lib.reporting.configuration.workflows import Compared
from lib.reporting.words import changed, finite, number, scaled, signed, there, told
from lib.stats import Interval

_HARDLY = 0.05  # bits above chance that are as good as none
Scores = Mapping[str, Mapping[str, float]]  # appendix D by encoder
_KEPT = {"accuracy": ("accuracy", 1.0), "reward": ("reward", 1.0), "tokens": ("tokens", 1.0),
         "dollars": (MONEY, THOUSAND)}  # fmt: skip
_MORE = {"seconds": (TIME, THOUSAND), "tools": ("tools used", 1.0)}  # over all kinds alone


def metrics(
    results: Results,
    params: Params,
    everyone: Everybody,
    compared: Compared,
    abroad: Abroad,
    theorem: pd.DataFrame,
    encoders: Scores,
) -> dict[str, object]:
    """The lesson's numbers by key; where there was nothing to measure, there is no key. theorem: `theory.checks`;
    encoders: `encoders.scores`."""
    own = params.configuration
    out: dict[str, object] = {
        "backend": params.llm.decided_by([own.model, own.larger]),
        "space.total": space.total(), "space.valid": space.valid(),
    }  # fmt: skip
    for arm in everyone.arms:
        out |= _means(everyone, arm)
    for other, row in everyone.gaps.items():
        out |= {f"gap.{other}.{key}": scaled(row[title], by) for key, (title, by) in _KEPT.items()}
    out |= refinement.measured_gaps(everyone) | _workflows(compared) | _transfer(abroad) | _errors(everyone)
    out["arc.verdict.accuracy"] = comparison.verdict(everyone)
    out["arc.verdict.reward"] = comparison.verdict(everyone, "reward")
    if len(results.searched) and ORACLE in everyone.arms:
        out["oracle.foreseen"] = float(baselines.foreseen(results.searched)["reward"].mean())
        out["oracle.dominates"] = baselines.dominates(everyone.tests)
    out["sft.tau"] = refinement.threshold(results)
    out |= theory.metrics(theorem)
    for name, row in encoders.items():
        out |= {f"encoders.{_key(name)}.{metric}": value for metric, value in row.items()}
    scripted = params.llm.decided_by([own.prompted])
    return finite(out | {f"{arm}.backend": scripted for arm in PROMPTED if arm in everyone.arms})


def _key(name: str) -> str:
    """A name as part of a metric's key."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")


def _means(everyone: Everybody, arm: str) -> dict[str, object]:
    """Under the names of `comparison.table`, so that one quantity has one interval."""
    out: dict[str, object] = {}
    for kind, row in everyone.rows[arm].items():
        key = arm if kind == ALL else f"{arm}.{kind}"
        columns = _KEPT | _MORE if kind == ALL else _KEPT
        out |= {f"{key}.{name}": scaled(row[title], by) for name, (title, by) in columns.items()}
    found = diversity.measures(everyone, arm)
    return out | {f"{arm}.workflow_{name}": found[name] for name in ("unique", "entropy", "gini", "told")}


def _workflows(compared: Compared) -> dict[str, object]:
    out: dict[str, object] = {}
    for workflow, row in compared.rows.items():
        out |= {
            f"workflows.{workflow}.{'' if kind == ALL else kind + '.'}accuracy": found for kind, found in row.items()
        }
    for one in compared.winners:
        out |= {f"workflows.best.{one.kind}": one.workflow, f"workflows.lead.{one.kind}": one.lead}
    return out | {"workflows.none_wins_everywhere": workflows.verdict(compared)}


def _transfer(abroad: Abroad) -> dict[str, object]:
    out: dict[str, object] = {}
    for origin, row in abroad.accuracies.items():
        out |= {f"transfer.{origin}.{kind}.accuracy": found for kind, found in row.items()}
    out |= {f"transfer.{origin}.{kind}.gap": found for (origin, kind), found in abroad.drops.items()}
    for kind, rows in abroad.larger.items():
        key = "larger" if kind == ALL else f"larger.{kind}"
        out |= {f"{key}.{name}": scaled(rows[abroad.bigger][title], by) for name, (title, by) in _KEPT.items()}
        out[f"{key}.gap"] = rows[DIFFERENCE]["accuracy"]
    return out


def _errors(everyone: Everybody) -> dict[str, object]:
    out: dict[str, object] = {"errors.wrong": errors.count(everyone)[0]}
    out |= {f"errors.{_category(name)}": found for name, found in errors.shares(everyone).items()}
    out |= {
        f"errors.{kind}.configuration": errors.misconfigured(everyone, kind=kind)
        for kind in everyone.rows.get(PAPER, {})
        if kind != ALL
    }
    return out


def _category(name: str) -> str:
    return {"policy configuration": "configuration", "knowledge gap": "knowledge"}.get(name, name)


def key_metrics(found: Mapping[str, object]) -> list[str]:
    """For the front page, as far as they are there."""
    wanted = ("arc.accuracy", "best_constant.accuracy", "oracle.accuracy", "arc.dollars")
    return [key for key in wanted if key in found]


def finding(everyone: Everybody, compared: Compared, abroad: Abroad) -> str:
    """What came of it, a sentence for each question that the lesson asks."""
    if PAPER not in everyone.arms:
        return "ARC was not trained in this study."
    out = [f"ARC answers {number(everyone.mean(PAPER))} of the test questions right."]
    fixed, gained = everyone.gaps.get(CONSTANT), everyone.minus(*refinement.PAIRS["sft"])
    if fixed:
        out.append(
            f"Beside the best constant configuration accuracy changes by {changed(fixed['accuracy'], 3)}, reward by "
            f"{changed(fixed['reward'], 2)}."
        )
    out.append(f"Its accuracy minus that of others: {told(comparison.beside(everyone))}")
    out.append(f"That no workflow wins everywhere: {workflows.verdict(compared)}.")
    if there(gained["reward"]):
        out.append(f"SFT changes reward by {changed(gained['reward'], 2)}.")
    mean, clear, n = transfer.mean_drop(abroad)
    if n:
        out.append(
            f"Away from home accuracy changes by {signed(mean)} on average, clearly down in {clear} of {n} pairs."
        )
    return " ".join(out)


def limits(
    results: Results, params: Params, everyone: Everybody, compared: Compared, abroad: Abroad, theorem: pd.DataFrame
) -> str:
    """Findings against the method, or against this run, and the size of the run."""
    own, loud = params.configuration, float(theorem["noise"].max())
    lines = [
        *_without_gain("ARC's reward minus that of others", comparison.beside(everyone, "reward")),
        *_without_gain("What SFT and DPO add to reward, and GRPO instead of PPO", {
            key: everyone.minus(*refinement.PAIRS[key])["reward"] for key in ("sft", "dpo", "grpo")
        }),
        *_without_gain("Accuracy with larger agents minus the own", {
            kind: rows[DIFFERENCE]["accuracy"] for kind, rows in abroad.larger.items()
        }),
        *_without_gain("Learned from all kinds minus from one alone, in accuracy", {
            kind: x for (origin, kind), x in abroad.drops.items() if origin == ALL
        }),
        *_policies(results, everyone),
        f"No workflow wins everywhere: {workflows.verdict(compared)}.",
    ]  # fmt: skip
    if not theory.holds(theorem, loud):
        lines.append(f"At noise {loud:g} the floor of theorem 3.2 is not kept on every question: the elite was lucky.")
    size = (
        f"{own.episodes} episodes a training, {own.seeds} seeds, {everyone.tests['item'].nunique()} test questions, "
        f"{own.search_items} training questions of each kind for searches and constants."
    )
    return "\n".join([*lines, size])


def _without_gain(what: str, differences: dict[str, Interval]) -> list[str]:
    """A line on differences of which some are not clearly above 0."""
    known = [x for x in differences.values() if there(x)]
    return [f"{what}: {told(differences)}"] if any(not x.excludes(0) or x.value < 0 for x in known) else []


def _policies(results: Results, everyone: Everybody) -> list[str]:
    """Policies that choose alike whatever is asked, that learned nothing, or wrote no configuration; idle tools."""
    out = []
    policies = [arm for arm in (PAPER, PLAIN, GRPO, "bandit", "episodes") if arm in everyone.arms]
    beyond = {arm: diversity.measures(everyone, arm)["told"].value - diversity.by_chance(everyone, arm)
              for arm in policies}  # fmt: skip
    alike = [everyone.labels[arm] for arm, bits in beyond.items() if bits < _HARDLY]
    if alike:
        out.append(f"Their workflow hardly depends on the kind of question: {listed(alike)}.")
    flat = [training.label(arm) for arm in training.trained(results) if not training.rises(results, arm)]
    if flat:
        out.append(f"Reward does not rise over the episodes in every seed of {listed(flat)}.")
    rows = everyone.of(PAPER)
    if len(rows):
        idle = ((rows["allocated"] > 0) & (rows["used"] == 0)).mean()
        out.append(f"In {idle:.0%} of ARC's test episodes tools are allocated and none is used.")
    for arm in PROMPTED:
        rows = everyone.of(arm)
        failed = float(np.nan_to_num(rows["failed"].astype(float)).mean()) if len(rows) and "failed" in rows else 0.0
        if failed:
            out.append(f"{failed:.0%} of the replies of {everyone.labels[arm]} held no configuration.")
    return out
