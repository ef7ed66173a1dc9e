"""The results table `conductor`: how every variant did on test items, and every rollout of its training.

There are two kinds of rows. A test row is one item that a trained policy replied to (step -1, split `dev` or `test`); a
training row is one rollout (step 0 and up, split `train`). Columns of both:

    method      label of the variant, such as "Equal"
    role        paper, router, oracle or start; constant for every other variant
    seed        of the training
    split       train, dev or test
    step        of the training; -1 after it
    item        number of the question within its split, as text
    sample      number of the rollout within its step; 0 in test rows
    group       category of the question
    correct     score by the task's verifier, in [0, 1]; in test rows the mean over the replies to the item
    reward      the same as correct: the reward of the task, never the weighted sum that the policy was trained with
    tokens_in   tokens of the prompt; 0 in test rows
    tokens_out  tokens of the reply; in test rows the mean over the replies to the item, rounded
    malformed   1 where a reply to the test item breaks the required form; 0 in training rows
    calls       1
    fmt, ppl, ent, len, pref   the five rewards as measured (ppl and ent in nats); in test rows of the first reply
    w_NAME      mean weight that the variant gives the reward NAME; in test rows at the first reply
    style       name of the experiment
    backend     lab

Columns of test rows alone:

    verified     mean score by the verifier, where `correct` counts a repeated story as 0
    novel        fraction of the replies that repeat no earlier reply to the item
    has_thought  whether the first reply contains <think>

Columns of training rows alone:

    advantage   group-relative advantage that the policy was trained with
    action      the reward whose weight was raised in this rollout, "" for variants that sample none
    r_NAME      the reward NAME after its normalisation, in [0, 1]; of every reward of the variant
    anchor, judge   further rewards as measured, where the variant has them
    truncated   whether the reply was cut off at the limit of tokens
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from lib.conductor.rewards import COMPONENTS
from lib.conductor.variants import ABLATIONS, AFTER_TRAINING, ROLES, VARIANTS

if TYPE_CHECKING:
    from lib.conductor.experiment import ConductorResults

_INTEGER_COLUMNS = ["tokens_in", "tokens_out", "step", "sample", "calls"]
_LABELS = {variant.name: variant.label for variant in (*VARIANTS, *ABLATIONS)}


def make_results_table(results: ConductorResults, style: str = "mixed") -> pd.DataFrame:
    """Put the tests and the training rollouts of all variants into one table.

    Args:
        results: Tables of all jobs, as `experiment.run` returns them.
        style: Name of the experiment, for the column `style`.

    Returns:
        Test rows, then training rows; the columns are listed at the top of this module.
    """
    test_rows = _make_test_rows(results.items, results.components)
    training_rows = _make_training_rows(results.rollouts)
    rows = pd.concat([test_rows, training_rows], ignore_index=True)

    # Jobs write the name of a variant; tables and figures show its role and its label.
    rows["role"] = rows["method"].map(ROLES).fillna("constant")
    # An item is malformed if any reply to it is. Rollouts have no `well_formed`: NaN < 1 is False.
    rows["malformed"] = (rows["well_formed"] < 1).astype(int)
    rows = rows.drop(columns="well_formed")
    rows["method"] = rows["method"].map(_LABELS).fillna(rows["method"])

    # What the schema of all results tables asks for.
    rows["item"] = rows["item"].astype(str)
    rows["calls"] = 1
    rows["reward"] = rows["correct"]
    rows[_INTEGER_COLUMNS] = rows[_INTEGER_COLUMNS].fillna(0).round().astype(int)
    return rows.assign(style=style, backend="lab")


def _make_test_rows(items: pd.DataFrame, first_replies: pd.DataFrame) -> pd.DataFrame:
    """Join the score of every test item with the rewards of the first reply to it.

    Args:
        items: One row per variant, seed, split and item, of `evaluation.score_items`.
        first_replies: The same rows, of `evaluation.measure_rewards`.

    Returns:
        One row per row of `items`.
    """
    key = ["method", "seed", "split", "item"]
    measured = [*COMPONENTS, "has_thought", *(f"w_{name}" for name in COMPONENTS)]
    # There are no weights where no variant was trained with rewards.
    present = [column for column in measured if column in first_replies]
    rows = items.merge(first_replies[[*key, *present]], on=key, validate="one_to_one")
    return rows.assign(step=AFTER_TRAINING, tokens_in=0, action="", sample=0)


def _make_training_rows(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Number the rollouts within every step of a training; empty where nothing was trained with rewards."""
    if rollouts.empty:
        return rollouts
    number_in_step = rollouts.groupby(["method", "seed", "step"]).cumcount()
    return rollouts.assign(split="train", sample=number_in_step)
