"""What the Conductor costs: operations counted from the tokens of a training, and seconds measured in it.

A model of P weights takes 2 P operations per token forward and 4 P backward (Kaplan et al. 2020). A GRPO step
runs prompt and completion through the policy to generate, to be read, and to learn; through the reference
model; and through the reward model; and prompt, thought and reference through the policy once more.
"""

import pandas as pd

from lib.conductor.rewards import COMPONENTS

FORWARD, BACKWARD = 2, 4  # operations per weight and token
PASSES = 5 * FORWARD + BACKWARD  # generate, read, learn, reference, reward model; and the gradient


def operations(rollouts: pd.DataFrame, weights: int, width: int) -> pd.DataFrame:
    """Operations of a training, one row per method and seed: `grpo`, and `conductor`, what its head adds.

    rollouts: with columns method, seed, tokens_in, tokens_out, action; weights: of the policy, which the reward model
    shares; width: of its states. Thought and reference are counted as long as the completion.
    """
    head = (width + 1) * len(COMPONENTS)
    per_rollout = head * (
        2 * FORWARD + FORWARD + BACKWARD
    )  # drawn from, looked at, and one update (once each)
    rows = []
    for (method, seed), part in rollouts.groupby(["method", "seed"], sort=False):
        tokens = part["tokens_in"].sum() + part["tokens_out"].sum()
        grpo = weights * (PASSES + FORWARD) * tokens
        conducted = (part["action"] != "").sum()
        rows.append(
            {
                "method": method,
                "seed": seed,
                "grpo": float(grpo),
                "conductor": float(per_rollout * conducted),
            }
        )
    return pd.DataFrame(rows)


def overhead(counted: pd.DataFrame, method: str, without: str) -> pd.DataFrame:
    """By seed: `head`, what the head adds to its own training; `whole`, operations of `method` over those of `without`,
    which also holds what longer or shorter replies do (Table 2)."""
    table = counted.set_index(["method", "seed"])
    ours, theirs = table.loc[method], table.loc[without]
    whole = (ours["grpo"] + ours["conductor"]) / theirs["grpo"]
    return pd.DataFrame({"head": ours["conductor"] / ours["grpo"], "whole": whole}).reset_index()


def clocked(clock: pd.DataFrame) -> pd.DataFrame:
    """Wall time per GRPO step by method, and what of it the weighting took; not for a report's bytes.

    A training that was interrupted counts what it did after it was resumed. `no opinion`: replies on which a judge
    had none.
    """
    trained = clock[clock["steps"] > 0]
    sums = trained.groupby("method", sort=False)[["steps", "training", "weighing"]].sum()
    out = pd.DataFrame({"seconds per step": sums["training"] / sums["steps"]})
    out["weighing, ms per step"] = 1000 * sums["weighing"] / sums["steps"]
    out["weighing over the rest"] = sums["weighing"] / (sums["training"] - sums["weighing"])
    out["no opinion"] = trained.groupby("method", sort=False)["no opinion"].sum()
    return out.reset_index()
