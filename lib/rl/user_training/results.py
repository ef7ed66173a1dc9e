"""What a run leaves: tables, a summary in JSON, and the report.

evaluation.parquet  a row per method, held-out question and condition, as the results table has them
episodes.parquet    held-out episodes of the controller in words
rollouts.parquet    a row per training episode
learning.parquet    a row per update
summary.json        the outcome in one sentence, estimates with intervals, cost and settings
report.html         all of it to read
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib import stats
from lib.experiment import artifacts, results_table
from lib.rl.heap import measure_peak_memory
from lib.rl.user_training.evaluation import (
    START,
    TRAINED,
    HeldOutComparison,
    compare_methods,
    decide_verdicts,
    describe_outcome,
    estimate_means,
)
from lib.rl.user_training.page import (
    NUM_PRICED,
    ORACLE_OF_BASELINES,
    Report,
    render_page,
    scale_estimates,
)
from lib.rl.user_training.training import TrainingOutcome
from lib.stats.ranges import Range

REPORT = "report.html"
SUMMARY = "summary.json"
_CURVES = {
    "reward": "reward",
    "correct": "share correct",
    "cost_usd": f"dollars for {NUM_PRICED:,} episodes",
    "calls": "calls an episode",
    "malformed": "malformed turns an episode",
    "kl": "KL to the start",
}


@dataclass(frozen=True)
class RunDescription:
    """What a system says of its run.

    Attributes:
        system: Its name in the results table.
        title: Title of the report.
        measures: Titles of the columns of the evaluation that are compared, "reward" and "correct" among them.
        notes: Sentences for the report.
        settings: By name.
        planned_memory: Bytes at the peak, as computed before the run.
        details: Further tables by caption.
        costs: By name, what the run took; None for what a controller and its experts took.
        baseline_note: Which baselines may exceed which, in a sentence.
    """

    system: str
    title: str
    measures: Mapping[str, str]
    notes: Sequence[str]
    settings: Mapping[str, Any]
    planned_memory: int = 0
    details: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    costs: Mapping[str, object] | None = None
    baseline_note: str = ORACLE_OF_BASELINES


def compare_outcome(
    system: str,
    outcome: TrainingOutcome,
    measures: Sequence[str],
    train_ids: Collection[str],
    reward_range: Range,
) -> HeldOutComparison:
    """Compare the controller with its start and with all baselines.

    Args:
        system: Its name in the results table.
        outcome: Outcome of the training.
        measures: Columns that are averaged.
        train_ids: Ids of the questions that were learned from.
        reward_range: The least and the largest reward that there can be.

    Returns:
        The comparison, on the rows of the results table.
    """
    tables = [outcome.start, outcome.trained, outcome.baselines]
    # One by one: what a baseline does not know, such as malformed turns, is filled as the schema says.
    rows = pd.concat(
        [results_table.make_results(system, table) for table in tables], ignore_index=True
    )
    return compare_methods(rows, measures, train_ids, {"reward": reward_range})


def write_results(
    folder: Path, outcome: TrainingOutcome, comparison: HeldOutComparison, run: RunDescription
) -> str:
    """Write everything that a run leaves.

    Args:
        folder: Folder of the run.
        outcome: Outcome of the training.
        comparison: Comparison of `compare_outcome`.
        run: What the system says of it.

    Returns:
        The outcome in one sentence.
    """
    sentence = describe_outcome(comparison)
    costs = run.costs
    if costs is None:
        costs = describe_costs(outcome, run.planned_memory)
    notes = list(run.notes)
    if comparison.num_incomplete:
        notes.insert(
            0,
            f"{comparison.num_incomplete} held-out questions are in no comparison, because a reply or a judgement was "
            "lost.",
        )
    episodes = pd.concat([outcome.start, outcome.trained], ignore_index=True)
    artifacts.write_parquet(folder / "evaluation.parquet", comparison.rows.drop(columns="spoken"))
    artifacts.write_parquet(folder / "episodes.parquet", episodes)
    artifacts.write_json(
        folder / SUMMARY,
        {
            "outcome": sentence,
            "notes": notes,
            "best baseline": comparison.best_baseline,
            "held-out questions": comparison.num_questions,
            "means": {name: _list_estimates(frame) for name, frame in comparison.means.items()},
            "reward after training minus": _list_estimates(comparison.differences),
            "verdicts": decide_verdicts(comparison.differences).to_dict(),
            "cost": dict(costs),
            "settings": dict(run.settings),
        },
    )
    report = Report(
        title=run.title,
        outcome=sentence,
        notes=notes,
        settings=flatten_settings(run.settings),
        costs=costs,
        learning=outcome.learning,
        curves=_CURVES,
        comparison=comparison,
        measures=run.measures,
        details=run.details,
        baseline_note=run.baseline_note,
        episodes=episodes,
    )
    artifacts.write_text(folder / REPORT, render_page(report))
    return sentence


def describe_costs(outcome: TrainingOutcome, planned_memory: int) -> dict[str, object]:
    """Collects the costs of a run: dollars, episodes, tokens, minutes and memory.

    Args:
        outcome: The finished training with its evaluations.
        planned_memory: Bytes that the memory plan expected.

    Returns:
        {description with unit: number}.
    """
    rollouts = outcome.rollouts
    evaluated = pd.concat([outcome.start, outcome.trained], ignore_index=True)
    costs: dict[str, object] = {
        "dollars for experts in training": round(float(rollouts["cost_usd"].sum()), 6),
        "dollars for experts in the evaluation": round(float(evaluated["cost_usd"].sum()), 6),
        "training episodes": len(rollouts),
        "tokens that the controller wrote in training": int(rollouts["written"].sum()),
        "minutes of this call": round(outcome.seconds / 60, 2),
    }
    return costs | {
        "GiB of memory at the peak, as planned": round(planned_memory / 2**30, 2),
        "GiB of memory at the peak, measured (programs included)": round(
            measure_device_memory() / 2**30, 2
        ),
    }


def measure_device_memory() -> int:
    """Bytes that this process has had at most: on the GPU where there is one, else in all."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return measure_peak_memory()


def _list_estimates(frame: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """Converts a frame of estimates for JSON, with null in place of nan.

    Args:
        frame: A row per method.

    Returns:
        {method: {"value": ..., "ci_low": ..., "ci_high": ...}}.
    """
    estimates = {}
    for method, row in frame.iterrows():
        estimates[str(method)] = {
            name: None if math.isnan(row[name]) else float(row[name])
            for name in ("value", "ci_low", "ci_high")
        }
    return estimates


def summarize_by_condition(comparison: HeldOutComparison, measure: str) -> pd.DataFrame:
    """Tabulates the mean of a measure for every method under every condition, such as each budget.

    Args:
        comparison: Comparison of all methods on the held-out questions.
        measure: A column of its rows; dollars are shown for NUM_PRICED questions, since those of one are too small to
            read.

    Returns:
        A row per method, the controller before and after the training first; the column `method`, and a column of
        intervals per condition.
    """
    rows = comparison.rows
    means = estimate_means(
        rows, measure, ["method", "condition"], range_=comparison.ranges.get(measure)
    )
    intervals = stats.intervals(scale_estimates(means, measure))
    table = intervals.unstack("condition")  # (methods, conditions)

    # In the order in which a reader meets them: `unstack` sorts by name.
    methods = list(dict.fromkeys([START, TRAINED, *rows["method"]]))
    conditions = list(dict.fromkeys(rows["condition"]))
    return table.reindex(methods)[conditions].reset_index()


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings to one level with dotted names, such as learn.kl.

    Args:
        settings: Nested dictionaries.
        prefix: Put before every name.
    """
    values = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            values |= flatten_settings(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values
