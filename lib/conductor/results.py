"""Rows of the results table `conductor`, from the tables that the jobs wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from lib.conductor.rewards import COMPONENTS
from lib.conductor.variants import ABLATIONS, AFTER_TRAINING, ROLES, VARIANTS

if TYPE_CHECKING:
    from lib.conductor.experiment import ConductorResults

_INTEGER_COLUMNS = ["tokens_in", "tokens_out", "step", "sample", "calls"]


def make_results_table(results: ConductorResults, style: str = "mixed") -> pd.DataFrame:
    """Rows of the results table: what every variant replied to test items, and every rollout of its training.

    Args:
        results: Of `experiment.run`.
        style: Which experiment the rows are of.

    Returns:
        On a test split (step -1) one row per variant, seed and item: correct, the mean score of its replies;
        tokens_out; novel; verified (by the verifier alone, a repeated story counted each time); of the first reply the
        five rewards as measured, has_thought, and the mean weights w_NAME. In training (split `train`) one row per
        rollout: correct, the verifier's score; advantage, the policy's; r_NAME, normalised rewards; action, the reward
        that was emphasised. In both, reward is correct: the reward of the task, not the weighted one.
    """
    key = ["method", "seed", "split", "item"]
    measured = [*COMPONENTS, "has_thought", *(f"w_{name}" for name in COMPONENTS)]
    present = [name for name in measured if name in results.components]
    first_replies = results.components[[*key, *present]]
    test = results.items.merge(first_replies, on=key, validate="one_to_one")
    test = test.assign(step=AFTER_TRAINING, tokens_in=0, action="", sample=0)

    rollouts = results.rollouts
    if len(rollouts):
        number = rollouts.groupby(["method", "seed", "step"]).cumcount()
        rollouts = rollouts.assign(split="train", sample=number)
    rows = pd.concat([test, rollouts], ignore_index=True)

    # Columns that every results table has.
    rows["role"] = rows["method"].map(ROLES).fillna("constant")
    rows["malformed"] = 0
    if "well_formed" in rows:
        rows["malformed"] = (rows["well_formed"] < 1).astype(int)
        rows = rows.drop(columns="well_formed")
    rows["method"] = rows["method"].map(_list_labels()).fillna(rows["method"])
    rows["item"] = rows["item"].astype(str)
    rows["calls"] = 1
    rows["reward"] = rows["correct"]
    rows[_INTEGER_COLUMNS] = rows[_INTEGER_COLUMNS].fillna(0).round().astype(int)
    return rows.assign(style=style, backend="lab")


def _list_labels() -> dict[str, str]:
    """Labels of the variants by name."""
    return {variant.name: variant.label for variant in (*VARIANTS, *ABLATIONS)}
