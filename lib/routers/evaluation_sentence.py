"""One sentence first: does choosing pay on this table, over always the same model?

    answer = answer_question(table, headroom_table, comparison, settings)
    answer.sentence    # "Choosing gains 3.1 points [1.0, 5.2] over always M at the same money ..."

A gain is claimed for a router that a user could run, where the interval of the best one, widened for all comparisons
that were made, excludes nothing. "Does not pay" needs a measured reason: one model dominates, no model leaves anything
to add, or what could be won at most (`headroom`) is less than is worth having and could have been detected. Otherwise
the sentence says that it cannot be told, with the minimum detectable effect and the number of items that would do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib import stats
from lib.config import RecordedSettings
from lib.recorded_outcomes import headroom
from lib.recorded_outcomes.model_selection import EQUAL_QUALITY, find_best_constant
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers.compare_methods import (
    LABELS,
    MAX_SPENDING_RATIO,
    SAME_MONEY,
    Comparison,
    widen_for_comparisons,
    widen_ratio_for_comparisons,
)
from lib.routers.methods import PERFECT_CHECK, POOR_CHECK
from lib.stats import Interval
from lib.stats.random_effects import mde_from_interval

# What is known of a question of the gate that is not open, beside `headroom.NOT_OPEN`; see `decide_question`.
WORSE, TOO_FEW, CLOSE = "worse", "too few items", "close"
# What a sentence says.
GAINS, SAVES, DOMINATED, CEILING, ALL_WRONG, NOT_WON, NOTHING_TO_WIN = (
    "gains", "saves", "one model dominates", "ceiling", "all wrong", "not won", "nothing to win",
)  # fmt: skip
NUM_CONDITIONS = 2  # in which a router may win: at the same money, or at equal quality
_NO = "Choosing does not pay here, because"


@dataclass(frozen=True)
class Answer:
    """What is said of a table.

    Attributes:
        verdict: One of GAINS, SAVES, DOMINATED, CEILING, ALL_WRONG, NOT_WON, NOTHING_TO_WIN, WORSE, TOO_FEW and CLOSE.
        sentence: The answer, with its reason.
        details: What else belongs to it, in sentences.
    """

    verdict: str
    sentence: str
    details: tuple[str, ...] = ()


def answer_question(
    table: OutcomeTable,
    headroom_table: pd.DataFrame,
    comparison: Comparison,
    settings: RecordedSettings,
) -> Answer:
    """Says whether choosing pays.

    Args:
        table: The outcomes.
        headroom_table: Of `headroom.estimate_headroom`.
        comparison: Of `compare_methods`.
        settings: equivalence_margin is read.
    """
    best_model = headroom.name_best_constant(table)
    answer = (
        _describe_wins(best_model, comparison, settings.equivalence_margin)
        or _describe_constant_outcomes(table, best_model)
        or _describe_dominance(table, headroom_table)
        or _describe_headroom(table, headroom_table, best_model, comparison)
    )
    return replace(answer, details=(*answer.details, *_describe_checks(comparison)))


def _describe_checks(comparison: Comparison) -> list[str]:
    """What a check of the first answer would save, where that is worth having."""
    sentences = []
    for method in (PERFECT_CHECK, POOR_CHECK):
        ratio = comparison.at(method, EQUAL_QUALITY).cost_ratio
        if ratio.ci_high <= 1 - headroom.MIN_WORTHWHILE_GAIN["money"]:
            saving = Interval(1 - ratio.value, 1 - ratio.ci_high, 1 - ratio.ci_low)
            sentences.append(
                f"If answers could be checked for free, a {LABELS[method]} would save {_format_share(saving)} of the "
                "money at equal quality."
            )
    return sentences


# Won -----------------------------------------------------------------------------------------------


def _describe_wins(
    best_model: str, comparison: Comparison, equivalence_margin: float
) -> Answer | None:
    """The answer where a router gains at the same money, or saves at equal quality; None where none does."""
    num_comparisons = NUM_CONDITIONS * len(comparison.routers)
    num_groups = comparison.num_groups
    gains: dict[str, Interval] = {}
    savings: dict[str, Interval] = {}
    for router in comparison.routers:
        same_money = comparison.at(router, SAME_MONEY)
        gain = widen_for_comparisons(same_money.gain, num_comparisons, num_groups)
        if gain.ci_low > 0 and same_money.cost_ratio.value <= MAX_SPENDING_RATIO:
            gains[router] = gain

        equal_quality = comparison.at(router, EQUAL_QUALITY)
        ratio = widen_ratio_for_comparisons(equal_quality.cost_ratio, num_comparisons, num_groups)
        quality = widen_for_comparisons(equal_quality.gain, num_comparisons, num_groups)
        saves_enough = ratio.ci_high <= 1 - headroom.MIN_WORTHWHILE_GAIN["money"]
        if saves_enough and quality.ci_low > -equivalence_margin:
            savings[router] = Interval(1 - ratio.value, 1 - ratio.ci_high, 1 - ratio.ci_low)
    if not gains and not savings:
        return None

    clauses = []
    if gains:
        router = max(gains, key=lambda name: gains[name].value)
        share_spent = comparison.at(router, SAME_MONEY).cost_ratio.value
        clauses.append(
            f"gains {format_points(gains[router])} over always {best_model} at the same money ({LABELS[router]}, "
            f"which spends {share_spent:.0%} of it)"
        )
    if savings:
        router = max(savings, key=lambda name: savings[name].value)
        quality = "its quality" if gains else f"the quality of always {best_model}"
        clauses.append(
            f"saves {_format_share(savings[router])} of the money at {quality} ({LABELS[router]})"
        )
    details = (
        f"The intervals hold together for all {num_comparisons} comparisons ({len(comparison.routers)} routers, at the "
        "same money and at equal quality), so that the best of them may be named.",
    )
    return Answer(GAINS if gains else SAVES, f"Choosing {' and '.join(clauses)}.", details)


def format_points(gain: Interval) -> str:
    """A difference of accuracies in points: "3.1 points [1.0, 5.2]"."""
    return f"{100 * gain.value:.1f} points [{100 * gain.ci_low:.1f}, {100 * gain.ci_high:.1f}]"


# Not won -------------------------------------------------------------------------------------------


def _describe_constant_outcomes(table: OutcomeTable, best_model: str) -> Answer | None:
    """The answer where no model leaves anything to add, or all are always wrong."""
    accuracy = float(table.correct.mean(0).max())
    if accuracy == 0:
        return Answer(ALL_WRONG, f"{_NO} no model is right on any of the {len(table):,} items.")
    if accuracy > headroom.MAX_CONSTANT_ACCURACY:
        return Answer(
            CEILING,
            f"{_NO} always {best_model} is right on {accuracy:.1%} of the {len(table):,} items, to which choosing can "
            "hardly add.",
        )
    return None


def _describe_dominance(table: OutcomeTable, headroom_table: pd.DataFrame) -> Answer | None:
    """The answer where one model is the cheapest, and clearly more accurate than each of the others."""
    best = find_best_constant(table, np.arange(len(table)))
    accuracy = table.correct.mean(0)
    mean_cost = table.cost_usd.mean(0)
    if mean_cost.argmin() != best:
        return None
    rivals = np.delete(np.arange(len(table.models)), best)
    runner_up = rivals[accuracy[rivals].argmax()]
    difference = table.correct[:, best] - table.correct[:, runner_up]
    lead = stats.grouped_interval(difference, table.groups)
    if not lead.ci_low > 0:
        return None
    share_missed = (table.correct[:, rivals].max(1) > table.correct[:, best]).mean()
    price_ratio = mean_cost[best] / mean_cost[runner_up]
    sentence = (
        f"{_NO} one model dominates: {table.models[best]} is the cheapest and the most accurate, right on "
        f"{accuracy[best]:.1%} of the items, {format_points(lead)} more than {table.models[runner_up]}, at "
        f"{price_ratio:.2g} of its cost; another model does better on {share_missed:.1%} of "
        "the items only."
    )
    headroom_gain = _read_interval(headroom_table, "accuracy")
    detail = (
        "With no regard to money, a router that sees more than any of these adds "
        f"{format_points(headroom_gain)} of accuracy by asking the others, too."
    )
    return Answer(DOMINATED, sentence, (detail,))


def _describe_headroom(
    table: OutcomeTable, headroom_table: pd.DataFrame, best_model: str, comparison: Comparison
) -> Answer:
    """The answer by what could be won at most, where no router won anything."""
    amounts = (
        f"what could be won is {format_points(_read_interval(headroom_table, 'accuracy'))} of accuracy, worth having from "
        f"{100 * headroom.MIN_WORTHWHILE_GAIN['accuracy']:.0f}, and {_format_share(_read_interval(headroom_table, 'money'))} of the money, "
        f"worth having from {headroom.MIN_WORTHWHILE_GAIN['money']:.0%}"
    )
    is_open = headroom_table["question is"] == headroom.OPEN
    if is_open["money"] or is_open["accuracy"]:
        routers = comparison.routers
        best = max(routers, key=lambda name: comparison.at(name, SAME_MONEY).gain.value)
        gain = comparison.at(best, SAME_MONEY).gain
        return Answer(
            NOT_WON,
            f"{_NO} none of {len(routers)} routers beats always {best_model}, though there is something to win "
            f"({amounts}); {LABELS[best]} comes closest, {format_points(gain)} at the same money.",
        )

    decisions = {
        question: decide_question(headroom_table, question) for question in ("accuracy", "money")
    }
    too_few = [question for question, word in decisions.items() if word == TOO_FEW]
    if too_few:
        num_needed = max(
            count_items_needed(len(table), headroom_table, question) for question in too_few
        )
        effects = "; and ".join(
            _format_detectable_effect(headroom_table, question) for question in too_few
        )
        return Answer(
            TOO_FEW,
            f"Whether choosing pays here cannot be told, because {len(table):,} items are too few: the minimum "
            f"detectable effect is {effects}; about {num_needed:,} items would do.",
        )
    if CLOSE in decisions.values():
        return Answer(
            CLOSE,
            "Whether choosing pays here is undecided, because the most that could be won lies near the least that is "
            f"worth having: {amounts}.",
        )
    if WORSE in decisions.values():
        return Answer(
            WORSE,
            f"{_NO} money can be saved only with fewer right answers than always {best_model} gives: {amounts}.",
        )
    return Answer(
        NOTHING_TO_WIN, f"{_NO} there is too little to win over always {best_model}: {amounts}."
    )


def _read_interval(headroom_table: pd.DataFrame, question: str) -> Interval:
    value, ci_low, ci_high = headroom_table.loc[question, ["value", "ci_low", "ci_high"]]
    return Interval(float(value), float(ci_low), float(ci_high))


def _format_share(share: Interval) -> str:
    return f"{share.value:.0%} [{share.ci_low:.0%}, {share.ci_high:.0%}]"


def _format_detectable_effect(headroom_table: pd.DataFrame, question: str) -> str:
    effect = find_mde(headroom_table, question)
    least = headroom.MIN_WORTHWHILE_GAIN[question]
    if question == "accuracy":
        return (
            f"{100 * effect:.1f} points of accuracy, where {100 * least:.0f} would be worth having"
        )
    return f"{effect:.0%} of the money, where {least:.0%} would be worth having"


def decide_question(headroom_table: pd.DataFrame, question: str) -> str:
    """What is known of a question of `headroom.estimate_headroom` that is not open.

    Args:
        headroom_table: Of `headroom.estimate_headroom`.
        question: One of `headroom.MIN_WORTHWHILE_GAIN`.

    Returns:
        WORSE (enough would be saved, but quality fell), TOO_FEW (the least gain worth having could not have been
        detected), CLOSE (it could, and the interval holds it), or `headroom.NOT_OPEN` (less could be won).
    """
    least = headroom.MIN_WORTHWHILE_GAIN[question]
    if headroom_table.loc[question, "ci_low"] >= least:
        return WORSE
    if find_mde(headroom_table, question) >= least:
        return TOO_FEW
    return CLOSE if headroom_table.loc[question, "ci_high"] >= least else headroom.NOT_OPEN


def find_mde(headroom_table: pd.DataFrame, question: str) -> float:
    """The minimum detectable effect of one question of `headroom.estimate_headroom` at 80 % power."""
    return mde_from_interval(
        headroom_table.loc[question, "ci_low"], headroom_table.loc[question, "ci_high"]
    )


def count_items_needed(num_items: int, headroom_table: pd.DataFrame, question: str) -> int:
    """Items at which the least gain worth having could be detected.

    Args:
        num_items: Of the table.
        headroom_table: Of `headroom.estimate_headroom`.
        question: One of `headroom.MIN_WORTHWHILE_GAIN`.

    Returns:
        Items, rounded up to two digits and more than the table has: the detectable effect falls with their square root.
    """
    ratio = find_mde(headroom_table, question) / headroom.MIN_WORTHWHILE_GAIN[question]
    needed = max(num_items * ratio**2, num_items + 1)

    # Rounded up to two digits: 4,321 items are 4,400.
    num_digits = math.floor(math.log10(needed)) + 1
    unit = 10 ** max(0, num_digits - 2)
    return math.ceil(needed / unit) * unit
