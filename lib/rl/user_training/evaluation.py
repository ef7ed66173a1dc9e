"""The controller before and after training beside baselines, on held-out questions, with intervals.

Every method answers the same questions, so that differences are taken inside a question. A question under several
conditions, such as three budgets, counts once: its mean over the conditions. One training is one training: intervals
are over questions, and say nothing of what another seed would give.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd

from lib import stats
from lib.stats.verdicts import FAILS, HOLDS, UNTESTABLE

START = "before training"
TRAINED = "after training"
_UNIT = ["item", "sample"]


@dataclass(frozen=True)
class HeldOutComparison:
    """What the evaluation says.

    Attributes:
        rows: A row per method, question and condition; complete questions only.
        means: By measure, estimates by method.
        differences: Reward after training minus that of every other method, estimates by method.
        best_baseline: Of all that know no answer beforehand, the one with the most reward on these questions; empty
            where there is none. It is chosen on the questions that it is compared on, which favours it.
        num_questions: That are compared.
        num_incomplete: Questions that were left out, since a reply or a judgement was lost.
    """

    rows: pd.DataFrame
    means: dict[str, pd.DataFrame]
    differences: pd.DataFrame
    best_baseline: str
    num_questions: int
    num_incomplete: int


def compare_methods(
    rows: pd.DataFrame, measures: Sequence[str], train_ids: Collection[str]
) -> HeldOutComparison:
    """Compare everything that answered the held-out questions.

    Args:
        rows: A row per method, item, sample and condition, as the results table has them, with the measures; methods
            START and TRAINED among them. `reward` is nan where a reply was lost.
        measures: Columns that are averaged; "reward" is one of them.
        train_ids: Ids of the questions that were learned from.

    Returns:
        The comparison.

    Raises:
        ValueError: A question of the training is among the rows, or no question has a score of every method.
    """
    trained_on = sorted(set(rows["item"]) & set(train_ids))
    if trained_on:
        raise ValueError(
            f"question {trained_on[0]!r} is in the training and in the evaluation; hold it out in a new --out"
        )
    num_questions = rows["item"].nunique()
    rows = _select_complete_items(rows)
    if rows.empty:
        raise ValueError(
            f"none of {num_questions} held-out questions has a score of every method; check the experts' servers and "
            "run again"
        )
    by_question = average_over_conditions(rows, measures)
    means = {measure: estimate_means(by_question, measure) for measure in measures}

    differences = {}
    for method in dict.fromkeys(rows["method"]):
        if method != TRAINED:
            selections = {"method": TRAINED}, {"method": method}
            differences[method] = stats.paired_difference(by_question, "reward", *selections)
    baselines = set(rows.loc[~rows["role"].isin(["start", "paper", "oracle"]), "method"])
    rewards = means["reward"]["value"]
    rewards = rewards[[method for method in rewards.index if method in baselines]]
    num_complete = rows["item"].nunique()
    return HeldOutComparison(
        rows=rows,
        means=means,
        differences=pd.concat(differences, names=["method"]).droplevel(1),
        best_baseline=rewards.idxmax() if len(rewards) else "",
        num_questions=num_complete,
        num_incomplete=num_questions - num_complete,
    )


def estimate_means(
    rows: pd.DataFrame, measure: str, by: str | Sequence[str] = "method"
) -> pd.DataFrame:
    """Means of a measure with intervals.

    Args:
        rows: A row per method and question.
        measure: A column.
        by: What the means are grouped by.

    Returns:
        Estimates. What is no share and is 0 on every question has an interval of no width: that of a proportion, which
        zeros and ones look like, would say that it may well be 0.7 dollars.
    """
    estimates = stats.mean(rows, measure, by)
    if stats.range_of_name(measure) != stats.NONNEGATIVE:
        return estimates
    largest = rows.groupby(by, sort=False)[measure].max().reindex(estimates.index)
    is_zero = (largest == 0).to_numpy()
    estimates.loc[is_zero, ["ci_low", "ci_high"]] = 0.0
    return estimates


def _select_complete_items(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the questions that have a score of every method under every condition."""
    by_item = rows.assign(is_scored=rows["reward"].notna()).groupby("item")
    num_methods = by_item["method"].nunique()
    has_all_methods = num_methods == rows["method"].nunique()
    has_all_scores = by_item["is_scored"].all()
    is_complete = has_all_scores & has_all_methods
    return rows[rows["item"].map(is_complete)].reset_index(drop=True)


def average_over_conditions(rows: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """A row per method and question, with the means over conditions."""
    groups = rows.groupby(["method", *_UNIT], sort=False)
    return groups[list(measures)].mean().reset_index()


def describe_outcome(comparison: HeldOutComparison) -> str:
    """What came of the training, in one sentence that says what went wrong first.

    >>> describe_outcome(comparison)
    'No significant gain: after training +0.04 [-0.02, 0.10] reward over the start; ... (40 held-out questions).'
    """
    gain = comparison.differences.loc[[START]]
    failures: list[str] = []
    successes: list[str] = []
    gain_verdict = stats.verdict(gain).iloc[0]
    amount = format_difference(gain.iloc[0])
    if gain_verdict == HOLDS:
        successes.append(f"after training {amount} reward over the start")
    elif gain_verdict == FAILS:
        failures.append(f"training made it worse, {amount} reward over the start")
    elif gain_verdict == UNTESTABLE and gain["value"].iloc[0] == 0:
        failures.append(f"training changed no reward: {amount} over the start")
    elif gain_verdict == UNTESTABLE:
        failures.append(f"no verdict, all questions changed alike: {amount} over the start")
    else:
        failures.append(f"no significant gain: after training {amount} reward over the start")

    if comparison.best_baseline:
        advantage = comparison.differences.loc[[comparison.best_baseline]]
        advantage_verdict = stats.verdict(advantage).iloc[0]
        amount = format_difference(advantage.iloc[0])
        clause = f"the best baseline, {comparison.best_baseline}: {amount}"
        if advantage_verdict == HOLDS:
            successes.append(f"better than {clause}")
        elif advantage_verdict == FAILS:
            failures.append(f"worse than {clause}")
        else:
            failures.append(f"not significantly better than {clause}")

    sentence = "; ".join([*failures, *successes])
    counts = f"{comparison.num_questions} held-out questions, 95 % intervals"
    return f"{sentence[0].upper()}{sentence[1:]} ({counts})."


def format_difference(estimate: pd.Series) -> str:
    """A difference with its interval, such as +0.04 [-0.02, 0.10]."""
    value, ci_low, ci_high = (estimate[name] for name in ("value", "ci_low", "ci_high"))
    if pd.isna(ci_low):
        return f"{value:+.2f} (one question, no interval)"
    return f"{value:+.2f} [{ci_low:+.2f}, {ci_high:+.2f}]"
