"""What was found, in one place: the metrics that are kept, the finding, and what did not work in this run."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from lib.configuration import baselines, space
from lib.configuration.study import Results
from lib.page.tables import listed
from lib.params import Params
from lib.reporting import backends
from lib.reporting.configuration import (
    comparison,
    diversity,
    errors,
    refinement,
    theory,
    transfer,
    workflows,
)
from lib.reporting.configuration.common import ALL, MONEY, PAPER, PROMPTED, THOUSAND, TIME
from lib.reporting.configuration.everybody import CONSTANT, ORACLE, Everybody
from lib.reporting.configuration.transfer import DIFFERENCE, Abroad
from lib.reporting.configuration.workflows import Compared
from lib.reporting.words import changed, finite, number, signed, there
from lib.stats import Interval

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
    theorem: pd.DataFrame | None = None,
    encoders: Scores | None = None,
) -> dict[str, object]:
    """The lesson's numbers by key; where there was nothing to measure, there is no key. theorem: `theory.checks`;
    encoders: `encoders.scores`."""
    own = params.configuration
    out: dict[str, object] = {
        "backend": backends.backend(params.llm, {"agents": own.model, "larger": own.larger}),
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
    out |= theory.metrics(theorem) if theorem is not None else {}
    for name, row in (encoders or {}).items():
        out |= {f"encoders.{_key(name)}.{metric}": value for metric, value in row.items()}
    scripted = backends.backend(params.llm, {"prompted": own.prompted})
    return finite(out | {f"{arm}.backend": scripted for arm in PROMPTED if arm in everyone.arms})


def scaled(found: Interval, by: float) -> Interval:
    """An interval in units that are `by` times as large."""
    return Interval(found.value / by, found.lo / by, found.hi / by)


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
    above, below, open_ = comparison.beside(everyone)
    mine, fixed = everyone.mean(PAPER), everyone.gaps.get(CONSTANT)
    told = [f"ARC answers {number(mine)} of the test questions right"]
    if fixed:
        told[0] += (
            f", {changed(fixed['accuracy'], 3)} beside the best constant configuration, with reward "
            f"{changed(fixed['reward'], 2)}"
        )
    told[0] += (
        f"; of {len(above) + len(below) + len(open_)} others it is clearly above {len(above)}, not clearly above or "
        f"below {listed(open_, 'none')}, and clearly below {listed(below, 'none')}."
    )
    told.append(f"That no workflow wins everywhere: {workflows.verdict(compared)}.")
    gained = refinement.gap_of(everyone, PAPER)
    if there(gained["reward"]):
        told.append(f"SFT changes reward by {changed(gained['reward'], 2)}.")
    mean, clear, n = transfer.mean_drop(abroad)
    if n:
        told.append(
            f"Away from home accuracy changes by {signed(mean)} on average, clearly down in {clear} of {n} pairs."
        )
    return " ".join(told)
