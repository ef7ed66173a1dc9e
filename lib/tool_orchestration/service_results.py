"""Results of customer service (tau2-bench): an outcome table, pass^k and pass@k with intervals, dollars and seconds.

    pass^k   the probability that k trials of a task all succeed:       C(c, k) / C(n, k)
    pass@k   the probability that one of k trials succeeds:         1 - C(n - c, k) / C(n, k)

with n scored trials of a task, c of them successful (Yao et al. 2024; Chen et al. 2021), averaged over tasks. Trials of
which a reply was lost are not scored: they are counted, and a task with fewer than k scored trials stands in no number
for k. The table has the columns of `python -m lib router collect`, so that `router evaluate` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from lib.experiment import artifacts
from lib.stats import estimates
from lib.tool_orchestration.service_episodes import ServiceEpisode

VERSION = 2  # of the columns and estimates; calls are those that were made
KEY = ("item", "model", "sample")
COLUMNS = (
    "item", "group", "model", "sample", "correct", "score", "cost_usd", "seconds", "tokens_in", "tokens_out",
    "prompt_hash", "failure", "setting", "expert_cost_usd", "user_cost_usd", "ending", "turns", "calls", "expert_calls",
    "errors", "database", "assertions", "actions", "communication", "chosen",
)  # fmt: skip


def make_row(
    episode: ServiceEpisode, method: str, setting: str, experts: Sequence[str]
) -> dict[str, Any]:
    """Make the row of an episode.

    Args:
        episode: Episode that has ended.
        method: Name of the team, which stands in the column `model`.
        setting: "functions" or "functions and models".
        experts: Names of the tools that ask models.

    Returns:
        Values of COLUMNS; correct, score and the criteria are nan where the episode is not scored.
    """
    item = episode.item
    verdict = episode.verdict
    criteria = {}
    for name in ("database", "assertions", "actions", "communication"):
        criteria[name] = np.nan if verdict is None else float(getattr(verdict, name))
    return {
        "item": f"{item.group}: {item.id}",
        "group": item.group,
        "model": method,
        "sample": episode.sample,
        "correct": episode.correct,
        "score": episode.correct,
        "cost_usd": episode.cost_usd,
        "seconds": episode.seconds,
        "tokens_in": episode.tokens_in,
        "tokens_out": episode.tokens_out,
        "prompt_hash": artifacts.sha256_json(write_prompt(episode)),
        "failure": episode.failure,
        "setting": setting,
        "expert_cost_usd": episode.expert_cost_usd,
        "user_cost_usd": episode.user_cost_usd,
        "ending": episode.ending,
        "turns": episode.turns["agent"],
        "calls": sum(episode.counts.values()),
        "expert_calls": sum(episode.counts.get(name, 0) for name in experts),
        "errors": episode.environment.num_errors,
        **criteria,
        "chosen": " ".join(f"{name}:{count}" for name, count in sorted(episode.counts.items())),
    }


def write_prompt(episode: ServiceEpisode) -> list[dict[str, str]]:
    """What a router may look at: the reason why the user calls."""
    return [{"role": "user", "content": episode.item.prompt}]


def estimate_passes(rows: pd.DataFrame, largest_k: int) -> pd.DataFrame:
    """Estimate pass^k and pass@k of every team and domain.

    Args:
        rows: Rows of the outcome table.
        largest_k: Number of trials of a task.

    Returns:
        A row per team (model), domain (group), measure ("pass^1", "pass@2", ...), with the columns of
        `lib.stats.estimates`; num_items is the number of tasks with at least k scored trials.
    """
    scored = rows[rows["correct"].notna()]
    counts = scored.groupby(["model", "group", "item"], sort=False)["correct"].agg(
        ["size", "sum"]
    )  # trials, successes
    values = []
    for (model, group, item), (num_trials, num_successes) in counts.iterrows():
        for k in range(1, largest_k + 1):
            if num_trials < k:
                continue
            for measure, value in compute_passes(int(num_trials), int(num_successes), k).items():
                values.append(
                    {
                        "model": model,
                        "group": group,
                        "item": item,
                        "measure": measure,
                        "correct": value,
                    }
                )
    if not values:
        return pd.DataFrame()
    table = pd.DataFrame(values).assign(seed=0, sample=0)
    return estimates.mean(table, "correct", by=["model", "group", "measure"], bounds=(0.0, 1.0))


def compute_passes(num_trials: int, num_successes: int, k: int) -> dict[str, float]:
    """Compute pass^k and pass@k of one task; pass@1 is left out, since it is pass^1.

    Args:
        num_trials: Scored trials of the task, at least k.
        num_successes: Those among them that succeeded.
        k: Number of trials of which all, or one, must succeed.

    Returns:
        By measure, such as "pass^2".

    Example:
        >>> compute_passes(4, 2, 2)["pass^2"]
        0.16666666666666666
    """
    all_trials = comb(num_trials, k)
    passes = {f"pass^{k}": comb(num_successes, k) / all_trials}
    if k > 1:
        passes[f"pass@{k}"] = 1 - comb(num_trials - num_successes, k) / all_trials
    return passes


def summarize(rows: pd.DataFrame, largest_k: int) -> pd.DataFrame:
    """Summarize the outcome table by team and domain.

    Args:
        rows: Rows of the outcome table.
        largest_k: Number of trials of a task.

    Returns:
        A row per team and domain: tasks, trials, those not scored, pass^k and pass@k with intervals, dollars (of the
        team, and of the user's model) and seconds per trial, turns, calls, and questions to models.
    """
    passes = estimate_passes(rows, largest_k)
    lines = []
    for (model, group), trials in rows.groupby(["model", "group"], sort=False):
        line: dict[str, Any] = {
            "team": model,
            "domain": group,
            "tasks": trials["item"].nunique(),
            "trials": len(trials),
            "not scored": int(trials["correct"].isna().sum()),
        }
        line |= _format_passes(passes, model, group)
        # A trial that is not scored broke off early, so that its cost would make the team look cheap.
        scored = trials[trials["correct"].notna()]
        line["$ per trial"] = f"{scored['cost_usd'].mean():.3g}"
        line["of it models"] = f"{scored['expert_cost_usd'].mean():.3g}"
        line["user $"] = f"{scored['user_cost_usd'].mean():.3g}"
        line["s per trial"] = f"{scored['seconds'].mean():.1f}"
        line["turns"] = f"{scored['turns'].mean():.1f}"
        line["calls"] = f"{scored['calls'].mean():.1f}"
        line["asks models"] = f"{scored['expert_calls'].mean():.1f}"
        lines.append(line)
    return pd.DataFrame(lines)


def _format_passes(passes: pd.DataFrame, model: str, group: str) -> dict[str, str]:
    """Format the estimates of one team and domain, such as "0.42 [0.30, 0.55]".

    Args:
        passes: Estimates by team, domain and measure.
        model: Name of the team.
        group: Name of the domain.

    Returns:
        Texts by measure.
    """
    if passes.empty:
        return {"pass^1": "no trial is scored"}
    texts = {}
    for (name, domain, measure), estimate in passes.iterrows():
        if (name, domain) == (model, group):
            interval = f"[{estimate['ci_low']:.2f}, {estimate['ci_high']:.2f}]"
            texts[measure] = f"{estimate['value']:.2f} {interval}"
    return texts or {"pass^1": "no trial is scored"}


def count_endings(rows: pd.DataFrame) -> pd.DataFrame:
    """Count why conversations ended; failures of the infrastructure and of users are reasons, too.

    Args:
        rows: A row per trial.

    Returns:
        A row per team and domain, a column per reason.
    """
    reasons = rows["ending"].where(rows["failure"] == "", "not scored, " + rows["failure"])
    return pd.crosstab([rows["model"], rows["group"]], reasons, rownames=["team", "domain"])


def find_settings_difference(
    earlier: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """Find the first setting in which two runs differ.

    Args:
        earlier: Settings of the earlier run.
        settings: Settings of this run.

    Returns:
        Its name and both values; None where the runs agree.
    """
    for name, value in settings.items():
        if earlier.get(name) != value:
            return name, earlier.get(name), value
    return None
