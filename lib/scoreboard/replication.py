"""Two runs of the lessons held against each other: do the intervals of one hold what the other found?

With x1, x2 an estimate of the two runs and h1, h2 the half-widths that point to each other:

    coverage        share of pairs with |x2 - x1| <= sqrt(h1^2 + h2^2); honest 95 % intervals give .95
    disjoint        share of pairs whose intervals do not meet, |x2 - x1| > h1 + h2
    captured        share of pairs whose new value lies inside the old interval, |x2 - x1| <= h1
    contradictions  verdicts that go from holds to does not hold or back
    changed         all verdicts that are another word now

What to expect of `disjoint` and `captured` follows from h1 and h2 where errors are normal. Left out are numbers without
`_ci_low` and `_ci_high` (counts, prices, sizes), intervals that have no width in either run (nothing was drawn), and
what only one of the runs names, which is counted (`unpaired`). A pure function of two folders: nothing is run here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from lib.config import from_yaml
from lib.experiment import artifacts
from lib.stats.verdicts import FAILS, HOLDS, NOT_OPEN, UNDECIDED

EXPECTED = 0.95  # of coverage
_Z = float(norm.ppf(0.975))
_ROUNDING = 1e-9  # numbers that differ by less, in half-widths, are equal
_FAR = 99.0  # half-widths, where one point stands beside another
_WORST = 20  # metrics that are named
_OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS}
_OLD = {"fails": FAILS, "closed": NOT_OPEN, "not told apart": UNDECIDED}  # words of earlier runs

Metrics = Mapping[str, Any]


class ReplicationError(ValueError):
    """Two runs that cannot be held against each other; the message says why."""


@dataclass(frozen=True)
class Run:
    """What a run left: {lesson: metrics}, the profile of each lesson, and a hash of its lab zoo."""

    lessons: Mapping[str, Metrics]
    profiles: Mapping[str, str]
    zoo: str


def read(root: Path) -> Run:
    """The run that a project's folder holds. Raises ReplicationError naming a file that cannot be read."""
    lessons, profiles = {}, {}
    usual = from_yaml((root / "params.yaml").read_text(encoding="utf-8"))[
        "profile"
    ]  # of metrics that git holds
    for path in sorted((root / "reports/metrics").glob("[0-9]*.json")):
        try:
            lessons[path.stem] = artifacts.read_json(path)
            card = root / "reports/lessons" / path.name
            profiles[path.stem] = artifacts.read_json(card)["profile"] if card.exists() else usual
        except (OSError, ValueError, KeyError) as error:
            raise ReplicationError(
                f"what lesson {path.stem} left in {root} cannot be read: {error}"
            ) from error
    zoo = [
        (path.name, artifacts.sha256_file(path))
        for path in sorted((root / "data/lab").glob("*.safetensors"))
    ]
    return Run(lessons, profiles, artifacts.sha256_json(zoo))


def compared(first: Run, second: Run) -> dict[str, Any]:
    """The metrics of a replication, flat, over the lessons of the second run.

    Raises ReplicationError where runs are of different profiles or lab zoos, or the first one lacks a lesson.
    """
    comparable(first, second.profiles)
    if first.zoo != second.zoo:
        raise ReplicationError(
            "the runs have different lab zoos (data/lab): a replication keeps the zoo"
        )
    names = sorted(second.lessons)
    pairs = pd.concat([_pairs(first.lessons[n], second.lessons[n]).assign(lesson=n) for n in names])
    words = pd.concat([_words(first.lessons[n], second.lessons[n]).assign(lesson=n) for n in names])
    told = {"profile": second.profiles[names[0]], "lessons": len(names)} | _summary(pairs, words)
    for name in names:
        part = _summary(pairs[pairs["lesson"] == name], words[words["lesson"] == name])
        told |= {
            f"{key}.{name}": value for key, value in part.items() if not key.endswith("_expected")
        }
        told[f"unpaired.{name}"] = len(
            set(_sampled(first.lessons[name])) ^ set(_sampled(second.lessons[name]))
        )
    turned = words[words["one"] != words["two"]]
    told |= {f"changed.{w.lesson}.{w.key}": f"{w.one} -> {w.two}" for w in turned.itertuples()}
    worst = pairs[pairs["apart"] > 1].nlargest(_WORST, "apart")
    return told | {f"worst.{w.lesson}.{w.key}": round(w.apart, 2) for w in worst.itertuples()}


def comparable(first: Run, profiles: Mapping[str, str]) -> None:
    """Raises ReplicationError where lessons to come, {lesson: profile}, have no match in the first run."""
    missing = sorted(set(profiles) - set(first.lessons))
    if missing or not profiles:
        raise ReplicationError(
            f"no metrics of {', '.join(missing) or 'any lesson'} to compare with: `make repro` first"
        )
    for name, profile in sorted(profiles.items()):
        if first.profiles[name] != profile:
            raise ReplicationError(
                f"lesson {name}: the first run is of profile {first.profiles[name]}, not {profile}"
            )


def _sampled(metrics: Metrics) -> list[str]:
    """Keys of numbers that stand between their ends."""
    ends = [
        [key, f"{key}_ci_low", f"{key}_ci_high"]
        for key in metrics
        if f"{key}_ci_low" in metrics and f"{key}_ci_high" in metrics
    ]
    return [names[0] for names in ends if all(_finite(metrics[name]) for name in names)]


def _finite(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))
    )


def _pairs(first: Metrics, second: Metrics) -> pd.DataFrame:
    """Metrics of two runs of a lesson: key, half-widths one and two that point to each other, gap, and apart, which is
    the gap in units of both."""
    rows = []
    for key in sorted(set(_sampled(first)) & set(_sampled(second))):
        up = second[key] >= first[key]
        one, two = (abs(run[key + end] - run[key]) for run, end in _facing(first, second, up))
        width = sum(run[f"{key}_ci_high"] - run[f"{key}_ci_low"] for run in (first, second))
        if width > 0:
            gap, both = abs(second[key] - first[key]), float(np.hypot(one, two))
            apart = gap / both if both else _FAR if gap > _ROUNDING * width else 0.0
            rows.append((key, one, two, gap, min(apart, _FAR)))
    return pd.DataFrame(rows, columns=["key", "one", "two", "gap", "apart"]).astype(
        {"apart": float}
    )


def _facing(
    first: Metrics, second: Metrics, up: bool
) -> tuple[tuple[Metrics, str], tuple[Metrics, str]]:
    return (
        ((first, "_ci_high"), (second, "_ci_low"))
        if up
        else ((first, "_ci_low"), (second, "_ci_high"))
    )


def _words(first: Metrics, second: Metrics) -> pd.DataFrame:
    """Verdicts of two runs of a lesson: key, one, two."""
    keys = [key for key in first if key.endswith("_verdict") or key.startswith("claims.by_id.")]
    rows = [
        (key, *(_OLD.get(run[key], run[key]) for run in (first, second)))
        for key in keys
        if key in second
    ]
    return pd.DataFrame(rows, columns=["key", "one", "two"])


def _summary(pairs: pd.DataFrame, words: pd.DataFrame) -> dict[str, Any]:
    """Shares over pairs, with what to expect of them, and counts of verdicts. Shares of no pairs are left out."""
    one, two, gap = (pairs[name].to_numpy(float) for name in ("one", "two", "gap"))
    both, slack = np.hypot(one, two), _ROUNDING * (one + two)
    told: dict[str, Any] = {"pairs": len(pairs)}
    if len(pairs):
        spread = np.where(both > 0, both / _Z, 1.0)  # deviation of the difference
        told |= {
            "coverage": float((gap <= both + slack).mean()),
            "coverage_expected": EXPECTED,
            "disjoint": float((gap > one + two + slack).mean()),
            "disjoint_expected": float((2 * norm.sf((one + two) / spread)).mean()),
            "captured": float((gap <= one + slack).mean()),
            "captured_expected": float((1 - 2 * norm.sf(one / spread)).mean()),
        }
    turned = words["one"].map(_OPPOSITE) == words["two"]
    changed = words["one"] != words["two"]
    return told | {
        "verdicts": len(words),
        "changed": int(changed.sum()),
        "contradictions": int(turned.sum()),
    }
