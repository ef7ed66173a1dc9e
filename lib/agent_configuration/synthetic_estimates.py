"""What lesson 07 estimates from the rows of its synthetic environment, by metric key.

glass.headroom                            reward of the optimum above the best constant
glass.above_flat.<policy>                 reward of ARC above a flat policy (bandit, autoregressive, mdp)
glass.above_constant, glass.masks         reward of ARC above the best constant, and above ARC without masks
glass.even.<the same>                     the same of ARC without a discount, above what has no discount either
glass.sft, glass.sft.tau_per_kind         reward after imitation of the elite minus before, with one tau or several
glass.gamma                               instructions with the discount minus without
glass.theorem.margin, .outside            reward after imitation minus tau, and share of choices outside the elite
<key>.drawn                               the same for sampled choices in place of the likeliest
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lib import stats
from lib.agent_configuration.synthetic_benchmark import ARC, UNDISCOUNTED

OPTIMUM, BEST_CONSTANT = "optimum", "best constant"
ONE_TAU, TAU_PER_KIND = "SFT, one tau", "SFT, tau per kind"
IMITATIONS = {ONE_TAU: "glass.sft", TAU_PER_KIND: "glass.sft.tau_per_kind"}
# What ARC is compared with, and the last part of the metric's key.
BASELINES = {
    "flat bandit": "above_flat.bandit",
    "flat autoregressive": "above_flat.autoregressive",
    "flat MDP": "above_flat.mdp",
    BEST_CONSTANT: "above_constant",
    "ARC without masks": "masks",
}
# Policies of several steps, which have the discount: ARC without it would differ from them in two things.
DISCOUNTED = ("flat MDP", "ARC without masks")
LIKELIEST, SAMPLED = "likeliest choices", "sampled choices"
COLUMNS = {LIKELIEST: "reward", SAMPLED: "drawn"}  # of the rows, by how choices are made
MARGIN = 0.1  # of reward, where a right answer has 5: smaller differences count as none


def estimate_synthetic_metrics(final_rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate the metrics of lesson 07 that come from its synthetic worlds.

    Args:
        final_rows: Rows of the split `test` after the last training episode.

    Returns:
        Estimates by metric key, see the head of this module; `glass.backend` says what decides.
    """
    estimates: dict[str, Any] = {
        "glass.headroom": estimate_headroom(final_rows),
        "glass.backend": "policy",
    }

    # ARC above its baselines
    prefixes = {ARC.name: "glass", UNDISCOUNTED.name: "glass.even"}
    for (choices, method, baseline), estimate in compare_with_baselines(final_rows).iterrows():
        key = f"{prefixes[method]}.{BASELINES[baseline]}"
        estimates[_add_choices_to_key(key, choices)] = estimate

    # Imitation of the elite, and what theorem 3.2 says about it
    for (imitation, choices), estimate in estimate_imitation(final_rows).iterrows():
        estimates[_add_choices_to_key(IMITATIONS[imitation], choices)] = estimate
    floor = estimate_floor(final_rows)
    estimates["glass.theorem.margin"] = floor["reward minus tau"].loc[TAU_PER_KIND]
    estimates["glass.theorem.outside"] = floor["share outside the elite"].loc[TAU_PER_KIND]

    estimates["glass.gamma"] = _estimate_difference(
        final_rows, "instructions", ARC.name, UNDISCOUNTED.name
    )
    return estimates


def _estimate_difference(rows: pd.DataFrame, column: str, method: str, baseline: str) -> pd.Series:
    """Estimate the mean of a column under a method minus under a baseline, in the same worlds."""
    pair = {"method": method}, {"method": baseline}
    return stats.paired_difference(rows, column, *pair).iloc[0]


def estimate_headroom(final_rows: pd.DataFrame) -> pd.Series:
    """Estimate the headroom: what a policy can gain at most by choosing by the kind of question.

    Args:
        final_rows: Rows after the last episode.

    Returns:
        Reward of the optimum (the best configuration for each kind) minus the best constant (one for all kinds).
    """
    return _estimate_difference(final_rows, "reward", OPTIMUM, BEST_CONSTANT)


def compare_with_baselines(
    final_rows: pd.DataFrame, methods: Sequence[str] = (ARC.name, UNDISCOUNTED.name)
) -> pd.DataFrame:
    """Estimate the reward of ARC minus that of each baseline, in the same worlds.

    Two comparisons are left out. The best constant samples nothing. ARC without a discount is not compared with
    policies that have one, which would differ from it in two things.

    Args:
        final_rows: Rows after the last episode.
        methods: Names of ARC with the discount and without.

    Returns:
        Estimates indexed by choices (LIKELIEST or SAMPLED), method and minus (the baseline).
    """
    differences = {}
    for choices, column in COLUMNS.items():
        for method in methods:
            for baseline in BASELINES:
                if choices == SAMPLED and baseline == BEST_CONSTANT:
                    continue
                if method == UNDISCOUNTED.name and baseline in DISCOUNTED:
                    continue
                difference = _estimate_difference(final_rows, column, method, baseline)
                differences[choices, method, baseline] = difference
    return pd.DataFrame(differences).T.rename_axis(["choices", "method", "minus"])


def estimate_imitation(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate what imitation of the elite changes: the reward of ARC after it minus before.

    Args:
        rows: Rows after one number of episodes.

    Returns:
        Estimates indexed by imitation (ONE_TAU or TAU_PER_KIND: one threshold for all kinds of questions, or one for
        each) and choices (LIKELIEST or SAMPLED).
    """
    differences = {}
    for imitation in IMITATIONS:
        for choices, column in COLUMNS.items():
            difference = _estimate_difference(rows, column, imitation, ARC.name)
            differences[imitation, choices] = difference
    return pd.DataFrame(differences).T.rename_axis(["imitation", "choices"])


def estimate_floor(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Estimate how far imitation keeps the reward above tau, the threshold of the elite.

    Theorem 3.2 says of a perfect imitation that its reward is at least tau, and that it chooses nothing outside the
    elite. Networks imitate less than perfectly.

    Args:
        rows: Rows after one number of episodes.

    Returns:
        Estimates by imitation of "reward minus tau" and of "share outside the elite", both for sampled choices.
    """
    after_imitation = rows[rows["method"].isin(list(IMITATIONS))]
    return {
        "reward minus tau": stats.mean(after_imitation, "margin", "method"),
        "share outside the elite": stats.mean(after_imitation, "outside", "method"),
    }


def _add_choices_to_key(key: str, choices: str) -> str:
    """Make the metric key of an estimate for likeliest or for sampled choices."""
    return f"{key}.drawn" if choices == SAMPLED else key
