"""The controller before and after training beside baselines, on held-out questions, with intervals.

Every method answers the same questions, so that differences are taken inside a question. A question under several
conditions, such as three budgets, counts once: its mean over the conditions. One training is one training: intervals
are over questions, and say nothing of what another seed would give.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lib import stats
from lib.stats.ranges import UNBOUNDED, Range
from lib.stats.verdicts import FAILS, HOLDS, UNTESTABLE

START = "before training"
TRAINED = "after training"
MIN_QUESTIONS = 3  # below which nothing has an interval: two questions leave one degree of freedom
FEW_QUESTIONS = 10  # below which nothing is decided, whatever the intervals say
TOO_FEW = "too few questions"  # in place of a verdict
_UNIT = ["item", "sample"]
_ENDS = ["ci_low", "ci_high"]


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
        ranges: By measure, the least and the largest value that it can have, where its name does not say so.
    """

    rows: pd.DataFrame
    means: dict[str, pd.DataFrame]
    differences: pd.DataFrame
    best_baseline: str
    num_questions: int
    num_incomplete: int
    ranges: Mapping[str, Range]


def compare_methods(
    rows: pd.DataFrame,
    measures: Sequence[str],
    train_ids: Collection[str],
    ranges: Mapping[str, Range] | None = None,
) -> HeldOutComparison:
    """Compare everything that answered the held-out questions.

    Args:
        rows: A row per method, item, sample and condition, as the results table has them, with the measures; methods
            START and TRAINED among them. `reward` is nan where a reply was lost.
        measures: Columns that are averaged; "reward" is one of them.
        train_ids: Ids of the questions that were learned from.
        ranges: By measure, the least and the largest value, where the measure's name does not say so; intervals end
            there.

    Returns:
        The comparison.

    Raises:
        ValueError: A question of the training is among the rows, or no question has a score of every method.
    """
    # Before anything is measured: a number on questions of the training would say nothing of new ones.
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

    # Three budgets of one question are no three questions: intervals are over questions.
    by_question = average_over_conditions(rows, measures)
    ranges = dict(ranges or {})
    means = {
        measure: estimate_means(by_question, measure, range_=ranges.get(measure))
        for measure in measures
    }

    lowest, highest = ranges.get("reward", UNBOUNDED)
    differences = {}
    for method in dict.fromkeys(rows["method"]):
        if method != TRAINED:
            differences[method] = estimate_difference(
                by_question,
                "reward",
                {"method": TRAINED},
                {"method": method},
                largest=highest - lowest,
            )

    # The oracle is no baseline, since it knows the answers.
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
        ranges=ranges,
    )


def estimate_means(
    rows: pd.DataFrame,
    measure: str,
    by: str | Sequence[str] = "method",
    range_: Range | None = None,
) -> pd.DataFrame:
    """Estimates means of a measure, with intervals inside of its range; without intervals below MIN_QUESTIONS
    questions.

    Args:
        rows: A row per method and question.
        measure: A column.
        by: What the means are grouped by.
        range_: The least and the largest value that the measure can have; None for what its name says.

    Returns:
        Estimates. What is no share and the same on every question has an interval of no width: that of a proportion,
        which zeros and ones look like, would say that 0 dollars may well be 0.7.
    """
    estimates = stats.mean(rows, measure, by, bounds=range_)
    if stats.range_of_name(measure) == stats.NONNEGATIVE:
        groups = rows.groupby(by, sort=False)[measure]
        is_constant = (groups.max() == groups.min()).reindex(estimates.index).to_numpy()
        estimates.loc[is_constant, "ci_low"] = estimates.loc[is_constant, "value"]
        estimates.loc[is_constant, "ci_high"] = estimates.loc[is_constant, "value"]
    return _drop_intervals_of_few(estimates)


def estimate_difference(
    rows: pd.DataFrame,
    measure: str,
    treatment: Mapping[str, str],
    baseline: Mapping[str, str],
    by: str | Sequence[str] = (),
    largest: float = math.inf,
) -> pd.DataFrame:
    """Estimates paired mean differences on the same questions; without intervals below MIN_QUESTIONS questions.

    Args:
        rows: A row per method, question and condition.
        measure: A column.
        treatment: Selects the rows of interest, such as {"method": TRAINED}.
        baseline: Selects the rows that are subtracted.
        by: What the differences are grouped by.
        largest: Difference that there can be, in either direction.

    Returns:
        Estimates.
    """
    estimates = stats.paired_difference(rows, measure, treatment, baseline, by)
    estimates[_ENDS] = estimates[_ENDS].clip(-largest, largest)
    return _drop_intervals_of_few(estimates)


def _drop_intervals_of_few(estimates: pd.DataFrame) -> pd.DataFrame:
    estimates.loc[estimates["num_items"] < MIN_QUESTIONS, _ENDS] = math.nan
    return estimates


def decide_verdicts(estimates: pd.DataFrame) -> pd.Series:
    """Whether each estimate is above 0: a word of `lib.stats.verdicts`, or TOO_FEW below FEW_QUESTIONS questions."""
    verdicts = stats.verdict(estimates)
    return verdicts.mask(estimates["num_items"] < FEW_QUESTIONS, TOO_FEW)


def _select_complete_items(rows: pd.DataFrame) -> pd.DataFrame:
    """Selects the rows of the questions that every method was scored on, under every condition.

    Args:
        rows: Results with the columns item, method and reward.
    """
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
    """Summarizes the result of a training in one sentence, failures first.

    Args:
        comparison: The trained model against its start and the best baseline on held-out questions.

    >>> describe_outcome(comparison)
    'No significant gain: after training +0.04 [-0.02, 0.10] reward over the start; ... (40 held-out questions).'
    """
    if comparison.num_questions < FEW_QUESTIONS:
        return _describe_small_sample(comparison)
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


def _describe_small_sample(comparison: HeldOutComparison) -> str:
    """Summarizes a result on too few held-out questions: differences without intervals and without a verdict.

    Args:
        comparison: The trained model against its start and the best baseline.
    """
    differences = comparison.differences
    gain = f"after training {format_difference(differences.loc[START])} reward over the start"
    clauses = [gain]
    if comparison.best_baseline:
        amount = format_difference(differences.loc[comparison.best_baseline])
        clauses.append(f"{amount} against the best baseline, {comparison.best_baseline}")
    num_questions = comparison.num_questions
    return f"Too few held-out questions to tell ({num_questions}): {'; '.join(clauses)}."


def format_difference(estimate: pd.Series) -> str:
    """A difference with its interval, such as +0.04 [-0.02, +0.10]; without one where there is none."""
    value, ci_low, ci_high = (estimate[name] for name in ("value", "ci_low", "ci_high"))
    if pd.isna(ci_low):
        return f"{value:+.2f} (no interval)"
    return f"{value:+.2f} [{ci_low:+.2f}, {ci_high:+.2f}]"


def format_dollars(estimate: pd.Series) -> str:
    """Dollars with their interval, such as $0.002 [0.001, 0.003]; without one where there is none."""
    value, ci_low, ci_high = (estimate[name] for name in ("value", "ci_low", "ci_high"))
    if pd.isna(ci_low):
        return f"${value:.3g} (no interval)"
    return f"${value:.3g} [{ci_low:.3g}, {ci_high:.3g}]"
