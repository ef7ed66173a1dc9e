"""What the Conductor costs: operations counted from the tokens of a training, and seconds measured in it.

A model of P weights takes 2 P operations per token forward and 4 P backward (Kaplan et al. 2020). A GRPO step runs
prompt and completion through the policy to generate, to be read, and to learn; through the reference model; and through
the reward model; and prompt, thought and reference through the policy once more.
"""

import pandas as pd

from lib.conductor.rewards import COMPONENTS
from lib.config import Params
from lib.language_models import checkpoints
from lib.language_models.training.model_folders import ensure_models

FORWARD, BACKWARD = 2, 4  # operations per weight and token
# Over prompt and completion: generate, read, learn, reference model, reward model; and the gradient. Then over prompt,
# thought and reference, which count as long as prompt and completion.
OPERATIONS_PER_WEIGHT = 5 * FORWARD + BACKWARD + FORWARD


def count_policy_weights(params: Params) -> tuple[int, int]:
    """The number of weights of the released policy, and the width of its hidden states."""
    folder = ensure_models(params.lab, names=[params.conductor.policy]) / params.conductor.policy
    policy = checkpoints.load(folder)
    num_weights = sum(parameter.numel() for parameter in policy.parameters())
    return num_weights, policy.config.hidden_size


def count_operations(rollouts: pd.DataFrame, num_weights: int, width: int) -> pd.DataFrame:
    """Operations of trainings.

    Args:
        rollouts: Columns method, seed, tokens_in, tokens_out, action.
        num_weights: Number of weights of the policy; the reward model has as many.
        width: Width of the policy's hidden states.

    Returns:
        One row per method and seed, with grpo, operations without the head, and conductor, what the head adds.
    """
    head_weights = (width + 1) * len(COMPONENTS)
    # For sampling, for the mean weights, and for one update.
    head_operations = head_weights * (2 * FORWARD + FORWARD + BACKWARD)
    rows = []
    for (method, seed), run in rollouts.groupby(["method", "seed"], sort=False):
        num_tokens = run["tokens_in"].sum() + run["tokens_out"].sum()
        num_emphases = (run["action"] != "").sum()
        rows.append(
            {
                "method": method,
                "seed": seed,
                "grpo": float(num_weights * OPERATIONS_PER_WEIGHT * num_tokens),
                "conductor": float(head_operations * num_emphases),
            }
        )
    return pd.DataFrame(rows)


def compare_operations(operations: pd.DataFrame, method: str, baseline: str) -> pd.DataFrame:
    """Compare the number of operations of a training with the Conductor and of one without (Table 2).

    Args:
        operations: What `count_operations` returned.
        method: The one with the Conductor.
        baseline: The one without.

    Returns:
        By seed: head, what the head adds over the rest of its own training; whole, operations of the method over those
        of the baseline, which also holds what longer or shorter replies do.
    """
    table = operations.set_index(["method", "seed"])
    treated, base = table.loc[method], table.loc[baseline]
    columns = {
        "head": treated["conductor"] / treated["grpo"],
        "whole": (treated["grpo"] + treated["conductor"]) / base["grpo"],
    }
    return pd.DataFrame(columns).reset_index()


def summarize_timings(timings: pd.DataFrame) -> pd.DataFrame:
    """Summarize the wall time of a GRPO step by method, and how much of it the weighting of rewards takes.

    Args:
        timings: Columns method, steps, training, weighing, num_unparsed. A training that was interrupted counts what it
            did after it was resumed.

    Returns:
        One row per method, with column titles for a table.
    """
    trained = timings[timings["steps"] > 0]
    by_method = trained.groupby("method", sort=False)
    sums = by_method[["steps", "training", "weighing"]].sum()
    table = pd.DataFrame({"seconds per step": sums["training"] / sums["steps"]})
    table["weighing, ms per step"] = 1000 * sums["weighing"] / sums["steps"]
    table["weighing over the rest"] = sums["weighing"] / (sums["training"] - sums["weighing"])
    table["judgements without a number"] = by_method["num_unparsed"].sum()
    return table.reset_index()
