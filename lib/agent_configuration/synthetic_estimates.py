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


def estimate_synthetic_metrics(end: pd.DataFrame) -> dict[str, Any]:
    """Estimate what the lesson keeps.

    Args:
        end: Rows of the split `test` after the last episode.

    Returns:
        Estimates by metric key.
    """
    estimates: dict[str, Any] = {
        "glass.headroom": estimate_headroom(end),
        "glass.backend": "policy",
    }
    prefixes = {ARC.name: "glass", UNDISCOUNTED.name: "glass.even"}
    for (choices, method, baseline), estimate in compare_with_baselines(end).iterrows():
        key = f"{prefixes[method]}.{BASELINES[baseline]}"
        estimates[_name_choices(key, choices)] = estimate
    for (imitation, choices), estimate in estimate_imitation(end).iterrows():
        estimates[_name_choices(IMITATIONS[imitation], choices)] = estimate
    floor = estimate_floor(end)
    estimates["glass.theorem.margin"] = floor["reward minus tau"].loc[TAU_PER_KIND]
    estimates["glass.theorem.outside"] = floor["share outside the elite"].loc[TAU_PER_KIND]
    pair = {"method": ARC.name}, {"method": UNDISCOUNTED.name}
    estimates["glass.gamma"] = stats.paired_difference(end, "instructions", *pair).iloc[0]
    return estimates


def estimate_headroom(end: pd.DataFrame) -> pd.Series:
    """Reward of the optimum above the best constant: what choosing by the kind of question can win."""
    pair = {"method": OPTIMUM}, {"method": BEST_CONSTANT}
    return stats.paired_difference(end, "reward", *pair).iloc[0]


def compare_with_baselines(
    end: pd.DataFrame, methods: Sequence[str] = (ARC.name, UNDISCOUNTED.name)
) -> pd.DataFrame:
    """ARC minus each baseline in reward, inside an environment.

    Args:
        end: Rows after the last episode.
        methods: ARC, with the discount or without.

    Returns:
        Estimates indexed by choices (LIKELIEST or SAMPLED), method and minus. The best constant samples nothing, and
        ARC without a discount is compared with what has none.
    """
    differences = {}
    for choices, column in COLUMNS.items():
        for method in methods:
            for baseline in BASELINES:
                if choices == SAMPLED and baseline == BEST_CONSTANT:
                    continue
                if method == UNDISCOUNTED.name and baseline in DISCOUNTED:
                    continue
                pair = {"method": method}, {"method": baseline}
                difference = stats.paired_difference(end, column, *pair).iloc[0]
                differences[choices, method, baseline] = difference
    return pd.DataFrame(differences).T.rename_axis(["choices", "method", "minus"])


def estimate_imitation(rows: pd.DataFrame) -> pd.DataFrame:
    """Reward after imitation of the elite minus before.

    Args:
        rows: Rows after one number of episodes.

    Returns:
        Estimates indexed by imitation (one threshold for all kinds, or one for each) and choices.
    """
    differences = {}
    for imitation in IMITATIONS:
        for choices, column in COLUMNS.items():
            pair = {"method": imitation}, {"method": ARC.name}
            difference = stats.paired_difference(rows, column, *pair).iloc[0]
            differences[imitation, choices] = difference
    return pd.DataFrame(differences).T.rename_axis(["imitation", "choices"])


def estimate_floor(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What theorem 3.2 promises of a perfect imitation, measured on networks: estimates by imitation."""
    imitating = rows[rows["method"].isin(list(IMITATIONS))]
    return {
        "reward minus tau": stats.mean(imitating, "margin", "method"),
        "share outside the elite": stats.mean(imitating, "outside", "method"),
    }


def _name_choices(key: str, choices: str) -> str:
    return f"{key}.drawn" if choices == SAMPLED else key
