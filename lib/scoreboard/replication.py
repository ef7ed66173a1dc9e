"""Two runs of the lessons compared: do the intervals of one hold what the other found?

With x1, x2 an estimate of the two runs and h1, h2 the half-widths that point to each other:

    coverage        fraction of pairs with |x2 - x1| <= sqrt(h1^2 + h2^2); honest 95 % intervals give .95
    disjoint        fraction of pairs whose intervals do not meet, |x2 - x1| > h1 + h2
    captured        fraction of pairs whose new value lies inside the old interval, |x2 - x1| <= h1
    contradictions  verdicts that go from holds to does not hold or back
    changed         all verdicts that are another word now

What to expect of `disjoint` and `captured` follows from h1 and h2 where errors are normal. Left out are numbers without
`_ci_low` and `_ci_high` (counts, prices, sizes), intervals that have no width in either run (nothing was sampled), and
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
from lib.scoreboard import lesson_metrics
from lib.stats.verdicts import FAILS, HOLDS, NOT_OPEN, UNDECIDED

EXPECTED_COVERAGE = 0.95
_Z = float(norm.ppf(0.975))
_ROUNDING = 1e-9  # numbers that differ by less, in half-widths, are equal
_MAX_DISTANCE = 99.0  # in half-widths, where one point stands beside another
_NUM_WORST = 20  # metrics that are named
# Only holds and does not hold contradict each other; undecided is compatible with both.
_OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS}
_EARLIER_WORDS = {
    "fails": FAILS,
    "closed": NOT_OPEN,
    "not told apart": UNDECIDED,
}  # of earlier runs

Metrics = Mapping[str, Any]


class ReplicationError(ValueError):
    """Two runs that cannot be compared; the message says why."""


@dataclass(frozen=True)
class Run:
    """What a run left: {lesson: metrics}, the profile of each lesson, and a hash of its lab zoo."""

    lessons: Mapping[str, Metrics]
    profiles: Mapping[str, str]
    zoo: str


def read_run(root: Path) -> Run:
    """Reads the run that a project's folder holds.

    Args:
        root: The project's folder.

    Returns:
        Metrics and profiles of the lessons that ran, and the hash of the lab zoo.

    Raises:
        ReplicationError: A file cannot be read; the message names it.
    """
    # Metrics that git holds come without the lesson's card; they are of the profile in params.yaml.
    default_profile = from_yaml((root / "params.yaml").read_text(encoding="utf-8"))["profile"]
    lessons, profiles = {}, {}
    for path in sorted((root / "reports/metrics").glob("[0-9]*.json")):
        card_path = root / "reports/lessons" / path.name
        try:
            lessons[path.stem] = artifacts.read_json(path)
            profiles[path.stem] = default_profile
            if card_path.exists():
                profiles[path.stem] = artifacts.read_json(card_path)["profile"]
        except (OSError, ValueError, KeyError) as error:
            raise ReplicationError(
                f"what lesson {path.stem} left in {root} cannot be read: {error}"
            ) from error
    zoo = [
        (path.name, artifacts.sha256_file(path))
        for path in sorted((root / "data/lab").glob("*.safetensors"))
    ]
    return Run(lessons, profiles, artifacts.sha256_json(zoo))


def compare_runs(first: Run, second: Run) -> dict[str, Any]:
    """Compares two runs over the lessons of the second one.

    Args:
        first: The run that is replicated.
        second: The replication.

    Returns:
        The metrics of the replication, flat: over all lessons, by lesson, verdicts that changed, and the metrics that
        lie farthest apart.

    Raises:
        ReplicationError: The runs are of different profiles or lab zoos, or the first one lacks a lesson.
    """
    check_comparable(first, second.profiles)
    if first.zoo != second.zoo:
        raise ReplicationError(
            "the runs have different lab zoos (data/lab): a replication keeps the zoo"
        )
    lessons = sorted(second.lessons)
    estimates = pd.concat(
        [
            _pair_estimates(first.lessons[lesson], second.lessons[lesson]).assign(lesson=lesson)
            for lesson in lessons
        ]
    )
    verdicts = pd.concat(
        [
            _pair_verdicts(first.lessons[lesson], second.lessons[lesson]).assign(lesson=lesson)
            for lesson in lessons
        ]
    )

    # Over all lessons, then lesson by lesson.
    metrics: dict[str, Any] = {"profile": second.profiles[lessons[0]], "lessons": len(lessons)}
    metrics |= _summarize(estimates, verdicts)
    for lesson in lessons:
        lesson_summary = _summarize(
            estimates[estimates["lesson"] == lesson], verdicts[verdicts["lesson"] == lesson]
        )
        for key, value in lesson_summary.items():
            if not key.endswith("_expected"):
                metrics[f"{key}.{lesson}"] = value
        first_keys = set(_list_sampled_keys(first.lessons[lesson]))
        second_keys = set(_list_sampled_keys(second.lessons[lesson]))
        metrics[f"unpaired.{lesson}"] = len(first_keys ^ second_keys)
        # By this a reader sees later whether the lesson still measures the same.
        metrics[f"names_hash.{lesson}"] = lesson_metrics.hash_compared_names(first.lessons[lesson])

    # Verdicts that changed, and estimates beyond the expected distance, are named.
    changed = verdicts[verdicts["first"] != verdicts["second"]]
    for row in changed.itertuples():
        metrics[f"changed.{row.lesson}.{row.key}"] = f"{row.first} -> {row.second}"
    uncovered = estimates[estimates["distance"] > 1]
    for row in uncovered.nlargest(_NUM_WORST, "distance").itertuples():
        metrics[f"worst.{row.lesson}.{row.key}"] = round(row.distance, 2)
    return metrics


def check_comparable(first: Run, profiles: Mapping[str, str]) -> None:
    """Checks that a replication can be compared with the first run.

    Args:
        first: The run that is replicated.
        profiles: {lesson: profile} of the replication.

    Raises:
        ReplicationError: The first run lacks a lesson, or ran it at another profile.
    """
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


def _list_sampled_keys(metrics: Metrics) -> list[str]:
    """Lists the metrics that have a confidence interval, with finite ends."""
    sampled_keys = []
    for key in metrics:
        keys = (key, f"{key}_ci_low", f"{key}_ci_high")
        has_interval = all(name in metrics for name in keys)
        if has_interval and all(_is_finite_number(metrics[name]) for name in keys):
            sampled_keys.append(key)
    return sampled_keys


def _is_finite_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return bool(np.isfinite(value))


def _pair_estimates(first: Metrics, second: Metrics) -> pd.DataFrame:
    """Compares the estimates that two runs of a lesson have in common.

    Args:
        first: Metrics of the first run by key; intervals stand under KEY_ci_low and KEY_ci_high.
        second: Metrics of the second run.

    Returns:
        A row per metric: key, both half-widths on the sides that face each other, the absolute difference, and the
        distance, which is the difference over the root sum of squares of the half-widths.
    """
    rows = []
    for key in sorted(set(_list_sampled_keys(first)) & set(_list_sampled_keys(second))):
        low_key = f"{key}_ci_low"
        high_key = f"{key}_ci_high"
        total_width = first[high_key] - first[low_key] + (second[high_key] - second[low_key])
        if not total_width > 0:
            continue  # nothing was sampled in either run

        # The half-widths on the sides that face the other run.
        if second[key] >= first[key]:
            first_half_width = abs(first[high_key] - first[key])
            second_half_width = abs(second[low_key] - second[key])
        else:
            first_half_width = abs(first[low_key] - first[key])
            second_half_width = abs(second[high_key] - second[key])
        joint_half_width = float(np.hypot(first_half_width, second_half_width))

        difference = abs(second[key] - first[key])
        # Two points of no width facing each other have no scale: apart or equal.
        if joint_half_width:
            distance = min(difference / joint_half_width, _MAX_DISTANCE)
        elif difference > _ROUNDING * total_width:
            distance = _MAX_DISTANCE
        else:
            distance = 0.0
        rows.append((key, first_half_width, second_half_width, difference, distance))
    columns = ["key", "first_half_width", "second_half_width", "difference", "distance"]
    return pd.DataFrame(rows, columns=columns).astype({"distance": float})


def _pair_verdicts(first: Metrics, second: Metrics) -> pd.DataFrame:
    """Compares the verdicts that two runs of a lesson have in common: a row per verdict, with key, first, second."""
    rows = []
    for key in first:
        # Lessons keep verdicts under *_verdict, the scoreboard by id of the claim.
        is_verdict = key.endswith("_verdict") or key.startswith("claims.by_id.")
        if is_verdict and key in second:
            first_word = _EARLIER_WORDS.get(first[key], first[key])
            second_word = _EARLIER_WORDS.get(second[key], second[key])
            rows.append((key, first_word, second_word))
    return pd.DataFrame(rows, columns=["key", "first", "second"])


def _summarize(estimates: pd.DataFrame, verdicts: pd.DataFrame) -> dict[str, Any]:
    """Summarizes pairs of estimates and of verdicts.

    Args:
        estimates: Result of `_pair_estimates`.
        verdicts: Result of `_pair_verdicts`.

    Returns:
        Fractions of the pairs, with what to expect of them, and counts of verdicts. Fractions of no pairs are left out.
    """
    summary: dict[str, Any] = {"pairs": len(estimates)}
    if len(estimates):
        h1 = estimates["first_half_width"].to_numpy(float)  # (pairs,)
        h2 = estimates["second_half_width"].to_numpy(float)
        difference = estimates["difference"].to_numpy(float)
        joint_half_width = np.hypot(h1, h2)
        slack = _ROUNDING * (h1 + h2)
        # The difference of two independent normal estimates has this standard deviation.
        std = np.where(joint_half_width > 0, joint_half_width / _Z, 1.0)
        # What was observed, and what independent normal errors give.
        is_covered = difference <= joint_half_width + slack
        summary["coverage"] = float(is_covered.mean())
        summary["coverage_expected"] = EXPECTED_COVERAGE
        is_disjoint = difference > h1 + h2 + slack
        summary["disjoint"] = float(is_disjoint.mean())
        p_disjoint = 2 * norm.sf((h1 + h2) / std)  # (pairs,)
        summary["disjoint_expected"] = float(p_disjoint.mean())
        is_captured = difference <= h1 + slack
        summary["captured"] = float(is_captured.mean())
        p_captured = 1 - 2 * norm.sf(h1 / std)
        summary["captured_expected"] = float(p_captured.mean())
    is_changed = verdicts["first"] != verdicts["second"]
    is_contradiction = verdicts["first"].map(_OPPOSITE) == verdicts["second"]
    summary["verdicts"] = len(verdicts)
    summary["changed"] = int(is_changed.sum())
    summary["contradictions"] = int(is_contradiction.sum())
    return summary
