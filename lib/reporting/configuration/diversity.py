"""How many workflows everybody chooses, how evenly, and how far the kind of question decides which (ARC, table 2).

Diversity alone is no merit: random choices have most of it. What adapts is told by the information (in bits) that the
kind of question holds about the workflow. With few questions there is some of it by chance: it is told beside what is
left when kinds are dealt out anew.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.configuration import baselines
from lib.configuration.space import WORKFLOWS
from lib.page.words import NOTHING
from lib.reporting.configuration.common import KINDS, PAPER, by_kind
from lib.reporting.configuration.everybody import Everybody
from lib.stats import Interval

MEASURED = {"unique": "workflows", "entropy": "entropy, bits", "gini": "Gini", "told": "told by the kind, bits"}
MOST = {
    "unique": len(WORKFLOWS), "entropy": np.log2(len(WORKFLOWS)), "gini": 1.0,
    "told": min(np.log2(len(WORKFLOWS)), np.log2(len(KINDS))),
}  # fmt: skip
DEALS = 50  # of kinds, to see what chance gives


def informed(rows: pd.DataFrame, dealt: np.random.Generator | None = None) -> float:
    """Bits that the kind of question tells of the workflow: entropy over all minus mean entropy within a kind.

    dealt: deals kinds out anew, so that what they tell is chance.
    """
    workflow, kind = (pd.factorize(rows[name])[0] for name in ("workflow", "kind"))
    if dealt is not None:
        kind = dealt.permutation(kind)
    joint = np.zeros((kind.max() + 1, workflow.max() + 1))
    np.add.at(joint, (kind, workflow), 1 / len(rows))
    inside = sum(part.sum() * _entropy(part / part.sum()) for part in joint)
    return max(0.0, float(_entropy(joint.sum(0)) - inside))


def _entropy(shares: np.ndarray) -> float:
    """In bits."""
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum())


def by_chance(everyone: Everybody, arm: str) -> float:
    """What `informed` would be of an arm's choices if kinds had nothing to do with them; nan where there are none."""
    parts = [part for _, part in everyone.of(arm).groupby("seed")]
    rng = seeds.rng("report", "configuration", "by chance", arm)
    return float(np.mean([informed(part, rng) for part in parts for _ in range(DEALS)])) if parts else float("nan")


def measures(everyone: Everybody, arm: str) -> dict[str, Interval]:
    """Table 2 of an arm, over seeds; of one run without an interval."""
    rows = everyone.of(arm)
    if rows.empty:
        return dict.fromkeys(MEASURED, NOTHING)
    found = [baselines.diversity(part["workflow"]) | {"told": informed(part)} for _, part in rows.groupby("seed")]
    out = {name: stats.t_interval(np.array([one[name] for one in found])) for name in MEASURED}
    return {name: _possible(x, MOST[name]) for name, x in out.items()}


def _possible(found: Interval, most: float) -> Interval:
    """An interval of what lies between 0 and `most`."""
    return Interval(found.value, *np.clip([found.lo, found.hi], 0, most).tolist())


def commonest(rows: pd.DataFrame) -> str:
    """The workflow that is chosen most, with its share."""
    shares = rows["workflow"].value_counts(normalize=True)
    return f"{shares.index[0]} {shares.iloc[0]:.0%}" if len(shares) else ""


def table(everyone: Everybody) -> pd.DataFrame:
    """Workflow diversity of everybody on test questions."""
    return pd.DataFrame(
        [
            {"who": everyone.labels[arm]}
            | {MEASURED[name]: x for name, x in measures(everyone, arm).items()}
            | {
                "by chance": by_chance(everyone, arm),
                "chosen most": commonest(everyone.of(arm)).replace(" ", "\u00a0"),
            }
            for arm in everyone.arms
        ]
    )


def kinds_table(everyone: Everybody) -> pd.DataFrame:
    """What ARC chooses for each kind of question, all seeds together."""
    out = []
    for kind, rows in by_kind(everyone.of(PAPER), together=False).items():
        shares = rows["workflow"].value_counts(normalize=True).head(3)
        out.append(
            {
                "kind": kind,
                "workflows": ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
                "entropy, bits": baselines.diversity(rows["workflow"])["entropy"],
                "tools allocated": rows["allocated"].mean(),
                "tools used": rows["used"].mean(),
                "tokens": rows["tokens"].mean(),
            }
        )
    return pd.DataFrame(out)
