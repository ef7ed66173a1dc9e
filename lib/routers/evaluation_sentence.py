"""One sentence that says whether choosing a model for each item pays, against always asking the same model.

    answer = answer_question(table, headroom_table, comparison, settings)
    answer.sentence    # "Choosing gains 3.1 points [1.0, 5.2] over always M at the same money ..."

The sentence compares with the *best constant*: the most accurate single model, asked for every item. A gain is claimed
for a router that a user could run, where the interval of the best one, widened for all comparisons, excludes 0.
"Does not pay" needs a measured reason: one model dominates, no model leaves anything to add, or the *headroom*, which
is what a router could gain at most (`headroom`), is less than is worth having and could have been detected. Otherwise
the sentence says that it cannot be told, with the minimum detectable effect and the number of items that would do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib import stats
from lib.config import RecordedSettings
from lib.recorded_outcomes import headroom
from lib.recorded_outcomes.model_selection import (
    EQUAL_QUALITY,
    MAX_SPENDING_RATIO,
    find_best_constant,
)
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers.compare_methods import (
    LABELS,
    SAME_MONEY,
    MethodComparison,
    widen_for_comparisons,
    widen_ratio_for_comparisons,
)
from lib.routers.methods import PERFECT_CHECK, POOR_CHECK
from lib.stats import Interval
from lib.stats.random_effects import mde_from_interval

# Verdicts on a question of `headroom.estimate_headroom` that leaves too little to gain; see `decide_question`.
WORSE, TOO_FEW, CLOSE = "worse", "too few items", "close"
# Verdicts on a table; see `RoutingAnswer`.
GAINS, SAVES, DOMINATED, CEILING, ALL_WRONG, NOT_WON, NOTHING_TO_WIN = (
    "gains", "saves", "one model dominates", "ceiling", "all wrong", "not won", "nothing to win",
)  # fmt: skip
NUM_CONDITIONS = 2  # conditions in which a router may win: at the same money, or at equal quality
_NO = "Choosing does not pay here, because"


@dataclass(frozen=True)
class RoutingAnswer:
    """The answer to the question whether choosing a model for each item pays on a table.

    Attributes:
        verdict: GAINS: accuracy at the same money. SAVES: money at equal quality. DOMINATED: one model is the cheapest
            and the most accurate. CEILING: one model is nearly always right. ALL_WRONG: no model is ever right.
            NOT_WON: there is something to gain, but no router gained it. NOTHING_TO_WIN: there is too little to gain.
            WORSE, TOO_FEW and CLOSE: see `decide_question`.
        sentence: The answer with its reason.
        details: More sentences, such as what a check of the first answer would save.
    """

    verdict: str
    sentence: str
    details: tuple[str, ...] = ()


def answer_question(
    table: OutcomeTable,
    headroom_table: pd.DataFrame,
    comparison: MethodComparison,
    settings: RecordedSettings,
) -> RoutingAnswer:
    """Decides whether choosing a model for each item pays, with a verdict and a sentence.

    Args:
        table: The recorded outcomes.
        headroom_table: What a router could gain at most, by question, as `headroom.estimate_headroom` returns it.
        comparison: Estimates of all methods, as `compare_methods` returns them.
        settings: equivalence_margin is read.

    Returns:
        The first answer that applies, in this order: a router won; outcomes leave nothing to choose; one model
        dominates; what the headroom says.
    """
    best_model = headroom.name_best_constant(table)
    wins = estimate_wins(comparison)
    verdict = decide_win(wins, settings.equivalence_margin)
    if verdict is not None:
        answer = _describe_win(best_model, wins, settings.equivalence_margin, comparison)
    else:
        answer = (
            _describe_constant_outcomes(table, best_model)
            or _describe_dominance(table, headroom_table)
            or _describe_headroom(table, headroom_table, best_model, comparison)
        )
    return replace(answer, details=(*answer.details, *_describe_checks(comparison)))


def _describe_checks(comparison: MethodComparison) -> list[str]:
    """Describes what a cascade saves whose first answer is checked for free.

    Args:
        comparison: Estimates of all methods.

    Returns:
        A sentence for the perfect check and one for the poor check, each only where the whole interval of its saving at
        equal quality is worth having.
    """
    sentences = []
    least_saving = headroom.MIN_WORTHWHILE_GAIN["money"]
    for method in (PERFECT_CHECK, POOR_CHECK):
        ratio = comparison.at(method, EQUAL_QUALITY).cost_ratio
        if ratio.ci_high <= 1 - least_saving:
            saving = convert_ratio_to_saving(ratio)
            sentences.append(
                f"If answers could be checked for free, a {LABELS[method]} would save {_format_share(saving)} of the "
                "money at equal quality."
            )
    return sentences


def convert_ratio_to_saving(cost_ratio: Interval) -> Interval:
    """Converts a ratio of costs r into the fraction that is saved, 1 - r.

    The ends of the interval change places: the largest ratio is the smallest saving.
    """
    return Interval(
        value=1 - cost_ratio.value,
        ci_low=1 - cost_ratio.ci_high,
        ci_high=1 - cost_ratio.ci_low,
    )


# Won -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WinEstimate:
    """What a router does beside the best constant, with intervals that hold together for all routers and conditions.

    Attributes:
        router: One of `compare_methods.ROUTERS`.
        gain: Accuracy minus the best constant's, at the same money.
        spending_ratio: Cost divided by the best constant's, at the same money; its interval is not widened.
        quality: Accuracy minus the best constant's, at equal quality.
        cost_ratio: Cost divided by the best constant's, at equal quality.
    """

    router: str
    gain: Interval
    spending_ratio: Interval
    quality: Interval
    cost_ratio: Interval

    @property
    def gains(self) -> bool:
        """Whether accuracy is higher, and no more than the best constant's cost is spent."""
        return self.gain.ci_low > 0 and self.spending_ratio.value <= MAX_SPENDING_RATIO

    def saves(self, equivalence_margin: float) -> bool:
        """Whether a saving is worth having, and accuracy is not lower by the margin."""
        least_saving = headroom.MIN_WORTHWHILE_GAIN["money"]
        saves_enough = self.cost_ratio.ci_high <= 1 - least_saving
        return saves_enough and self.quality.ci_low > -equivalence_margin


def estimate_wins(comparison: MethodComparison) -> list[WinEstimate]:
    """Estimates what each router wins over the best constant, corrected for the number of comparisons (Bonferroni).

    Args:
        comparison: Estimates of all methods, each with a 95 % interval of its own.

    Returns:
        For each router its gain, spending and saving, with intervals that hold for all comparisons together.
    """
    num_comparisons = _count_comparisons(comparison)
    num_groups = comparison.num_groups
    wins = []
    for router in comparison.routers:
        same_money = comparison.at(router, SAME_MONEY)
        equal_quality = comparison.at(router, EQUAL_QUALITY)
        wins.append(
            WinEstimate(
                router=router,
                gain=widen_for_comparisons(same_money.gain, num_comparisons, num_groups),
                spending_ratio=same_money.cost_ratio,
                quality=widen_for_comparisons(equal_quality.gain, num_comparisons, num_groups),
                cost_ratio=widen_ratio_for_comparisons(
                    equal_quality.cost_ratio, num_comparisons, num_groups
                ),
            )
        )
    return wins


def _count_comparisons(comparison: MethodComparison) -> int:
    """Number of comparisons among which the best one is named: every router in every condition."""
    return NUM_CONDITIONS * len(comparison.routers)


def decide_win(wins: Sequence[WinEstimate], equivalence_margin: float) -> str | None:
    """Decides whether any router wins over the best constant.

    Args:
        wins: One for each router, as `estimate_wins` returns them.
        equivalence_margin: Difference of accuracies that is too small to matter.

    Returns:
        GAINS where one is more accurate at the same money; else SAVES where one saves money at equal quality; or None.
    """
    if any(win.gains for win in wins):
        return GAINS
    if any(win.saves(equivalence_margin) for win in wins):
        return SAVES
    return None


def _describe_win(
    best_model: str,
    wins: Sequence[WinEstimate],
    equivalence_margin: float,
    comparison: MethodComparison,
) -> RoutingAnswer:
    """Writes the answer for a table on which a router gains accuracy or saves money.

    Args:
        best_model: Name of the best constant.
        wins: One for each router, at least one of which gains or saves.
        equivalence_margin: As for `decide_win`.
        comparison: The comparison that they come from.

    Returns:
        The verdict, a sentence about the largest gain and the largest saving, and a detail.
    """
    gaining = [win for win in wins if win.gains]
    saving = [win for win in wins if win.saves(equivalence_margin)]
    clauses = []
    if gaining:
        best = max(gaining, key=lambda win: win.gain.value)
        clauses.append(
            f"gains {format_points(best.gain)} over always {best_model} at the same money ({LABELS[best.router]}, "
            f"which spends {best.spending_ratio.value:.0%} of it)"
        )
    if saving:
        cheapest = min(saving, key=lambda win: win.cost_ratio.value)
        saved = convert_ratio_to_saving(cheapest.cost_ratio)
        # The model is named once.
        quality = "its quality" if gaining else f"the quality of always {best_model}"
        clauses.append(
            f"saves {_format_share(saved)} of the money at {quality} ({LABELS[cheapest.router]})"
        )
    detail = (
        f"The intervals hold together for all {_count_comparisons(comparison)} comparisons "
        f"({len(comparison.routers)} routers, at the same money and at equal quality), so that the best of them may be "
        "named."
    )
    verdict = GAINS if gaining else SAVES
    return RoutingAnswer(verdict, f"Choosing {' and '.join(clauses)}.", (detail,))


def format_points(gain: Interval) -> str:
    """Formats a difference of accuracies in percentage points: "3.1 points [1.0, 5.2]"."""
    return f"{100 * gain.value:.1f} points [{100 * gain.ci_low:.1f}, {100 * gain.ci_high:.1f}]"


# Not won -------------------------------------------------------------------------------------------


def _describe_constant_outcomes(table: OutcomeTable, best_model: str) -> RoutingAnswer | None:
    """Answers for a table on which all models are wrong, or one is right on nearly all items.

    Args:
        table: The recorded outcomes.
        best_model: Name of the most accurate model.

    Returns:
        The answer, with verdict ALL_WRONG or CEILING; None for any other table.
    """
    accuracy = float(table.correct.mean(0).max())
    if accuracy == 0:
        return RoutingAnswer(
            ALL_WRONG, f"{_NO} no model is right on any of the {len(table):,} items."
        )
    if accuracy > headroom.MAX_CONSTANT_ACCURACY:
        return RoutingAnswer(
            CEILING,
            f"{_NO} always {best_model} is right on {accuracy:.1%} of the {len(table):,} items, to which choosing can "
            "hardly add.",
        )
    return None


def _describe_dominance(table: OutcomeTable, headroom_table: pd.DataFrame) -> RoutingAnswer | None:
    """Answers for a table on which one model dominates: it is the cheapest, and clearly the most accurate.

    Args:
        table: The recorded outcomes.
        headroom_table: As `headroom.estimate_headroom` returns it.

    Returns:
        DOMINATED where the interval of the model's lead over the second most accurate one excludes 0, else None.
    """
    best = find_best_constant(table, np.arange(len(table)))
    accuracy = table.correct.mean(0)  # (models,)
    mean_cost = table.cost_usd.mean(0)  # (models,)
    if mean_cost.argmin() != best:
        return None

    other_models = np.delete(np.arange(len(table.models)), best)
    runner_up = other_models[accuracy[other_models].argmax()]
    difference = table.correct[:, best] - table.correct[:, runner_up]  # (items,)
    lead = stats.grouped_interval(difference, table.groups)
    if not lead.ci_low > 0:
        return None

    is_beaten = table.correct[:, other_models].max(1) > table.correct[:, best]  # (items,)
    price_ratio = mean_cost[best] / mean_cost[runner_up]
    sentence = (
        f"{_NO} one model dominates: {table.models[best]} is the cheapest and the most accurate, right on "
        f"{accuracy[best]:.1%} of the items, {format_points(lead)} more than {table.models[runner_up]}, at "
        f"{price_ratio:.2g} of its cost; another model does better on {is_beaten.mean():.1%} of "
        "the items only."
    )
    accuracy_headroom = _read_interval(headroom_table, "accuracy")
    detail = (
        "With no regard to money, a router that sees more than any of these adds "
        f"{format_points(accuracy_headroom)} of accuracy by asking the others, too."
    )
    return RoutingAnswer(DOMINATED, sentence, (detail,))


def _describe_headroom(
    table: OutcomeTable, headroom_table: pd.DataFrame, best_model: str, comparison: MethodComparison
) -> RoutingAnswer:
    """Answers for a table on which no router won, by the headroom: what a router could gain at most.

    Args:
        table: The recorded outcomes.
        headroom_table: As `headroom.estimate_headroom` returns it.
        best_model: Name of the best constant, the most accurate single model.
        comparison: Estimates of all methods.

    Returns:
        The verdict and a sentence.
    """
    amounts = _format_headroom(headroom_table)
    # "question is" is OPEN where the gain is large enough to be worth having.
    is_open = headroom_table["question is"] == headroom.OPEN
    if is_open["money"] or is_open["accuracy"]:
        routers = comparison.routers
        best = max(routers, key=lambda name: comparison.at(name, SAME_MONEY).gain.value)
        gain = comparison.at(best, SAME_MONEY).gain
        return RoutingAnswer(
            NOT_WON,
            f"{_NO} none of {len(routers)} routers beats always {best_model}, though there is something to win "
            f"({amounts}); {LABELS[best]} comes closest, {format_points(gain)} at the same money.",
        )

    verdicts = {
        question: decide_question(headroom_table, question) for question in ("accuracy", "money")
    }
    undetectable = [question for question, verdict in verdicts.items() if verdict == TOO_FEW]
    if undetectable:
        num_items_by_question = [
            count_items_needed(len(table), headroom_table, question) for question in undetectable
        ]
        effects = [_format_detectable_effect(headroom_table, question) for question in undetectable]
        return RoutingAnswer(
            TOO_FEW,
            f"Whether choosing pays here cannot be told, because {len(table):,} items are too few: the minimum "
            f"detectable effect is {'; and '.join(effects)}; about {max(num_items_by_question):,} items would do.",
        )
    if CLOSE in verdicts.values():
        return RoutingAnswer(
            CLOSE,
            "Whether choosing pays here is undecided, because the most that could be won lies near the least that is "
            f"worth having: {amounts}.",
        )
    if WORSE in verdicts.values():
        return RoutingAnswer(
            WORSE,
            f"{_NO} money can be saved only with fewer right answers than always {best_model} gives: {amounts}.",
        )
    return RoutingAnswer(
        NOTHING_TO_WIN, f"{_NO} there is too little to win over always {best_model}: {amounts}."
    )


def _format_headroom(headroom_table: pd.DataFrame) -> str:
    """Formats the most that could be gained, in accuracy and in money, beside the least worthwhile gain.

    Args:
        headroom_table: As `headroom.estimate_headroom` returns it.

    Returns:
        Part of a sentence.
    """
    accuracy = _read_interval(headroom_table, "accuracy")
    saving = _read_interval(headroom_table, "money")
    least_points = 100 * headroom.MIN_WORTHWHILE_GAIN["accuracy"]
    least_saving = headroom.MIN_WORTHWHILE_GAIN["money"]
    return (
        f"what could be won is {format_points(accuracy)} of accuracy, worth having from {least_points:.0f}, and "
        f"{_format_share(saving)} of the money, worth having from {least_saving:.0%}"
    )


def _read_interval(headroom_table: pd.DataFrame, question: str) -> Interval:
    """Reads the gain of one question (accuracy, money or check) from the table of headroom."""
    value, ci_low, ci_high = headroom_table.loc[question, ["value", "ci_low", "ci_high"]]
    return Interval(float(value), float(ci_low), float(ci_high))


def _format_share(share: Interval) -> str:
    """Formats a fraction as a percentage with its interval: "40% [30%, 50%]"."""
    return f"{share.value:.0%} [{share.ci_low:.0%}, {share.ci_high:.0%}]"


def _format_detectable_effect(headroom_table: pd.DataFrame, question: str) -> str:
    """Formats the minimum detectable effect of a question beside the least worthwhile gain.

    Args:
        headroom_table: As `headroom.estimate_headroom` returns it.
        question: accuracy or money.

    Returns:
        Part of a sentence.
    """
    effect = find_mde(headroom_table, question)
    least = headroom.MIN_WORTHWHILE_GAIN[question]
    if question == "accuracy":
        return (
            f"{100 * effect:.1f} points of accuracy, where {100 * least:.0f} would be worth having"
        )
    return f"{effect:.0%} of the money, where {least:.0%} would be worth having"


def decide_question(headroom_table: pd.DataFrame, question: str) -> str:
    """Decides why a question of `headroom.estimate_headroom` is not open, that is, leaves too little to gain.

    Args:
        headroom_table: By question, what a router could gain at most: value, ci_low, ci_high.
        question: "accuracy" (that it could add) or "money" (fraction of cost that it could save).

    Returns:
        WORSE: enough money would be saved, but accuracy fell.
        TOO_FEW: the minimum detectable effect is larger than the least gain that is worth having.
        CLOSE: such a gain could be detected, and the interval contains it.
        `headroom.NOT_OPEN`: the gain is smaller than what is worth having.
    """
    least = headroom.MIN_WORTHWHILE_GAIN[question]
    if headroom_table.loc[question, "ci_low"] >= least:
        return WORSE
    if find_mde(headroom_table, question) >= least:
        return TOO_FEW
    return CLOSE if headroom_table.loc[question, "ci_high"] >= least else headroom.NOT_OPEN


def find_mde(headroom_table: pd.DataFrame, question: str) -> float:
    """Computes the minimum detectable effect of a question of `headroom.estimate_headroom`, at 80 % power."""
    return mde_from_interval(
        headroom_table.loc[question, "ci_low"], headroom_table.loc[question, "ci_high"]
    )


def count_items_needed(num_items: int, headroom_table: pd.DataFrame, question: str) -> int:
    """Estimates how many items are needed to detect the least gain that is worth having.

    The minimum detectable effect falls with the square root of the number of items.

    Args:
        num_items: Number of items of the table.
        headroom_table: As `headroom.estimate_headroom` returns it.
        question: "accuracy", "money" or "check".

    Returns:
        The number of items, larger than that of the table, rounded up to two significant digits.
    """
    effect = find_mde(headroom_table, question)
    ratio = effect / headroom.MIN_WORTHWHILE_GAIN[question]
    needed = max(num_items * ratio**2, num_items + 1)

    # Rounded up to two digits: 4,321 items are 4,400.
    num_digits = math.floor(math.log10(needed)) + 1
    unit = 10 ** max(0, num_digits - 2)
    return math.ceil(needed / unit) * unit
