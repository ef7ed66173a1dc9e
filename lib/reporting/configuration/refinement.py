"""What is done after or instead of PPO: SFT on the elite, DPO on pairs, group-relative advantages (ARC, table 4).

SFT and DPO start from the same trained policy of a seed, and read its buffer alone. On test questions all policies
take their likeliest choices, so what SFT can add is another choice, not less dice.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib import stats
from lib.configuration.study import Results
from lib.reporting.configuration.common import DIGITS, DPO, GRPO, MEASURES, MONEY, PAPER, PLAIN, Rows, kinds_of
from lib.reporting.configuration.everybody import Everybody, gaps
from lib.reporting.words import NOTHING, clearly, number, there, verdict
from lib.stats import Interval

SFT = "sft"
NAMES = {PLAIN: "PPO", GRPO: "GRPO", PAPER: "PPO, then SFT", DPO: "PPO, then DPO"}
SHOWN = ("accuracy", "reward", "tokens", MONEY, "tools used")


def gap_of(everyone: Everybody, arm: str, base: str = PLAIN) -> dict[str, Interval]:
    """One training minus another on the same questions and seeds, by measure."""
    if base == PAPER and arm in everyone.gaps:
        return {title: Interval(-x.value, -x.hi, -x.lo) for title, x in everyone.gaps[arm].items()}
    if arm == PAPER and base in everyone.gaps:
        return everyone.gaps[base]
    return gaps(everyone.of(arm), everyone.of(base))


def before_after(everyone: Everybody) -> Rows:
    """ARC before and after SFT and DPO, and both differences."""
    out: Rows = {
        everyone.labels[arm]: {title: everyone.mean(arm, title) for title in SHOWN}
        for arm in (PLAIN, PAPER, DPO)
        if arm in everyone.arms
    }
    for arm, name in ((PAPER, "SFT"), (DPO, "DPO")):
        found = gap_of(everyone, arm)
        if there(found["accuracy"]):
            out[f"{name} minus before"] = {title: found[title] for title in SHOWN}
    return out


def refinement_table(everyone: Everybody) -> pd.DataFrame:
    """The same as text."""
    return pd.DataFrame(
        [
            {"policy": name} | {title: number(x, DIGITS[title], " minus " in name) for title, x in row.items()}
            for name, row in before_after(everyone).items()
        ]
    )


def elite(results: Results, arm: str = PAPER, how: str = SFT) -> pd.DataFrame:
    """What the refinements of an arm's trainings started from, a row for each seed."""
    rows = results.refined
    if rows.empty:
        return rows
    return rows[(rows["arm"] == arm) & (rows["how"] == how)].dropna(axis=1, how="all").reset_index(drop=True)


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
    rows = elite(results)
    return stats.t_interval(rows["tau"].to_numpy(float)) if len(rows) and "tau" in rows else NOTHING


def relative(everyone: Everybody) -> float:
    """By how much SFT changes mean reward, as a share of what it was before; nan where that was not above 0."""
    before, after = (everyone.mean(arm, "reward") for arm in (PLAIN, PAPER))
    return after.value / before.value - 1 if there(before) and there(after) and before.value > 0 else float("nan")


def refinement_words(results: Results, everyone: Everybody) -> str:
    """Whether SFT helps, DPO does, and whether the floor of theorem 3.2 is reached on new questions, as sentences."""
    told = []
    for arm, name in ((PAPER, "SFT"), (DPO, "DPO")):
        found = gap_of(everyone, arm)
        if not there(found["reward"]):
            told.append(f"{name} was not tried.")
            continue
        told.append(
            f"{name} changes accuracy by {number(found['accuracy'], 3, True)} and reward by "
            f"{number(found['reward'], 2, True)}. That it gains: accuracy {verdict(found['accuracy'])}, reward "
            f"{verdict(found['reward'])}."
        )
    tau, after = threshold(results), everyone.mean(PAPER, "reward")
    if there(tau) and there(after):
        side = "reaches" if after.value >= tau.value else "does not reach"
        told.append(
            f"The elite's threshold tau is {number(tau)}; the refined policy's mean reward on new questions, "
            f"{number(after)}, {side} it."
        )
    share = relative(everyone)
    if np.isfinite(share):
        told.append(f"Relative to before, SFT changes mean reward by {share:+.0%} (ARC: 5% to 35% more).")
    return "\n".join(told)


# Table 4 --------------------------------------------------------------------------------------------


def objectives_table(everyone: Everybody) -> pd.DataFrame:
    """Accuracy by kind of question, and reward, of every way to train; differences to PPO alone."""
    kinds = kinds_of(everyone.tests)
    out = []
    for arm, name in NAMES.items():
        if arm not in everyone.arms:
            continue
        row = {"training": name} | {kind: number(everyone.mean(arm, kind=kind)) for kind in kinds}
        row |= {"all kinds": number(everyone.mean(arm)), "reward": number(everyone.mean(arm, "reward"))}
        found = gap_of(everyone, arm)["accuracy"] if arm != PLAIN else NOTHING
        out.append(row | {"all kinds, minus PPO": number(found, 2, True)})
    return pd.DataFrame(out)


def objectives_words(everyone: Everybody) -> str:
    """PPO beside GRPO and SFT beside DPO, as sentences."""
    told = []
    for arm, other, claim in ((PLAIN, GRPO, "PPO is above GRPO"), (PAPER, DPO, "SFT is above DPO")):
        found = gap_of(everyone, arm, other)
        if not there(found["accuracy"]):
            told.append(f"That {claim} cannot be told: one of them was not trained.")
            continue
        told.append(
            f"{NAMES[arm]} beside {NAMES[other]}: {clearly(found['accuracy'])} often right "
            f"({number(found['accuracy'], 3, True)}), reward {clearly(found['reward'], 'higher', 'lower')} "
            f"({number(found['reward'], 2, True)}). That {claim}: {verdict(found['accuracy'])}."
        )
    return "\n".join(told)


def measured_gaps(everyone: Everybody) -> dict[str, Interval]:
    """The differences that metrics keep, by key."""
    pairs = {"sft": (PAPER, PLAIN), "dpo": (DPO, PLAIN), "grpo": (GRPO, PLAIN), "sft_dpo": (PAPER, DPO)}
    names = {"accuracy": MEASURES["right"], "reward": MEASURES["reward"]}
    out = {}
    for key, (arm, base) in pairs.items():
        found = gap_of(everyone, arm, base)
        out |= {f"refinement.{key}.{name}": found[title] for name, title in names.items()}
    return out
