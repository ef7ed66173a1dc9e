"""What is done after or instead of PPO: SFT on the elite, DPO on pairs, group-relative advantages (ARC, table 4).

SFT and DPO start from the same trained policy of a seed, and read its buffer alone. On test questions all policies
take their likeliest choices, so what SFT can add is another choice, not less dice.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib import stats
from lib.configuration.study import Results
from lib.page.words import NOTHING, there
from lib.reporting.configuration.common import DPO, GRPO, MONEY, PAPER, PLAIN
from lib.reporting.configuration.everybody import Everybody
from lib.reporting.estimates import Rows
from lib.stats import Interval

NAMES = {PLAIN: "PPO", GRPO: "GRPO", PAPER: "PPO, then SFT", DPO: "PPO, then DPO"}
PAIRS = {"sft": (PAPER, PLAIN), "dpo": (DPO, PLAIN), "grpo": (GRPO, PLAIN), "sft_dpo": (PAPER, DPO)}
SHOWN = ("accuracy", "reward", "tokens", MONEY, "tools used")


def before_after(everyone: Everybody) -> Rows:
    """ARC before and after SFT and DPO, and what each of the two changes."""
    out: Rows = {everyone.labels[arm]: {title: everyone.mean(arm, title) for title in SHOWN}
                 for arm in (PLAIN, PAPER, DPO) if arm in everyone.arms}  # fmt: skip
    for key in ("sft", "dpo"):
        found = everyone.minus(*PAIRS[key])
        if there(found["accuracy"]):
            out[f"{key.upper()} minus before"] = {title: found[title] for title in SHOWN}
    return out


def elite_table(results: Results) -> pd.DataFrame:
    """The buffers: threshold, elite and its reward, and pairs, seed by seed."""
    rows = results.refined[results.refined["arm"] == PAPER]
    played = results.rollouts[results.rollouts["arm"] == PAPER].groupby("seed").size()
    out = []
    for seed, part in rows.groupby("seed"):
        told = part.drop(columns=["arm", "seed", "how"]).max()
        out.append(
            {
                "seed": seed, "episodes": int(played.get(seed, 0)), "elite": _whole(told.get("elite")),
                "tau": told.get("tau", np.nan), "reward of the elite": told.get("reward", np.nan),
                "pairs": _whole(told.get("pairs")),
            }
        )  # fmt: skip
    return pd.DataFrame(out, columns=["seed", "episodes", "elite", "tau", "reward of the elite", "pairs"])


def _whole(value: float | None) -> int:
    return int(value) if value is not None and np.isfinite(value) else 0


def threshold(results: Results) -> Interval:
    """tau of SFT, over seeds."""
    rows = results.refined
    rows = rows[(rows["arm"] == PAPER) & (rows["how"] == "sft")] if len(rows) else rows
    tau = rows["tau"].dropna().to_numpy(float) if "tau" in rows else np.zeros(0)
    return stats.t_interval(tau) if tau.size else NOTHING


def objectives(everyone: Everybody) -> Rows:
    """Accuracy by kind of question, and reward, of every way to train; differences to PPO alone (table 4)."""
    out: Rows = {}
    for arm, name in NAMES.items():
        if arm in everyone.arms:
            row = {kind: told["accuracy"] for kind, told in everyone.rows[arm].items()}
            row["reward"] = everyone.mean(arm, "reward")
            out[name] = row | ({"all, minus PPO": everyone.minus(arm, PLAIN)["accuracy"]} if arm != PLAIN else {})
    return out


def measured_gaps(everyone: Everybody) -> dict[str, Interval]:
    """The differences that metrics keep, by key."""
    found = {key: everyone.minus(*pair) for key, pair in PAIRS.items()}
    return {f"refinement.{key}.{name}": row[name] for key, row in found.items() for name in ("accuracy", "reward")}
