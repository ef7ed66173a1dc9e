"""What `router evaluate` leaves in its folder: one page that loads nothing, a picture, and the numbers as tables.

    write_evaluation(folder, table, headroom_table, comparison, answer)

    report.html          the sentence, accuracy against cost, methods, budgets, what could be won, what was read
    accuracy-cost.png    the picture of the page
    methods.csv          every method in every condition, with intervals
    budgets.csv          what was promised on dev and spent on held-out items
    headroom.csv         what could be won at most
    models.csv           every model for all items
    summary.json         the sentence and what was read

A log with propensities has policies.csv instead of the four tables. Left out: what the numbers mean
(`evaluation_sentence`), and the style of the page (`lib.plots.pages`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import plots, stats
from lib.experiment import artifacts
from lib.plots import pages
from lib.plots.tables import NOTHING, table_html, with_interval
from lib.recorded_outcomes import headroom
from lib.recorded_outcomes.model_selection import EQUAL_QUALITY, HALF_COST
from lib.recorded_outcomes.tables import OutcomeTable
from lib.recorded_outcomes.user_tables import ChoiceTable
from lib.routers.compare_methods import (
    BROKEN,
    KEPT,
    LABELS,
    SAME_MONEY,
    MethodComparison,
)
from lib.routers.evaluation_sentence import RoutingAnswer, find_mde
from lib.routers.log_evaluation import ESTIMATORS
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    ORACLE,
    PERFECT_CHECK,
    RANDOM_MODEL,
    ROLES,
)
from lib.stats import Interval
from lib.stats.verdicts import UNDECIDED

REPORT = "report.html"
PICTURE = "accuracy-cost.png"
SUMMARY = "summary.json"
_PER_THOUSAND = (
    1_000  # costs are shown per thousand items, which reads more easily than fractions of a cent
)
_SHOWN_BUDGETS = (0.1, 0.5, 1.0)  # of `model_selection.LEVELS`; all are in the file
_QUESTION_LABELS = {
    "accuracy": "accuracy, by choosing without a check",
    "money": "share of the money at equal quality, without a check",
    "check": "share of the money at equal quality, with a perfect check",
}


def write_evaluation(
    folder: Path,
    table: OutcomeTable,
    headroom_table: pd.DataFrame,
    comparison: MethodComparison,
    answer: RoutingAnswer,
) -> Path:
    """Writes the page and the tables.

    Args:
        folder: Created if it does not exist; files of the same names are replaced.
        table: The recorded outcomes.
        headroom_table: What a router could gain at most, as `headroom.estimate_headroom` returns it.
        comparison: Estimates of all methods, as `compare_methods` returns them.
        answer: The answer and its sentence, as `answer_question` returns them.

    Returns:
        Path of the page.
    """
    figure = draw_tradeoff(comparison, table.name)
    picture = plots.render_png(figure)
    frames = {
        "methods.csv": comparison.to_frame(),
        "budgets.csv": comparison.budgets,
        "headroom.csv": _make_headroom_frame(headroom_table),
        "models.csv": describe_models(table),
    }
    body = [
        f"<h1>{escape(table.name)}: does choosing a model for each item pay?</h1>",
        _render_answer(answer),
        _render_picture(picture, figure.alt_text),
        "<h2>Methods</h2>",
        table_html(format_methods(comparison), _describe_methods_table(comparison)),
        *(f"<p>{escape(sentence)}</p>" for sentence in explain_unavailable(comparison)),
        "<h2>Were budgets kept?</h2>",
        table_html(format_budgets(comparison), _BUDGETS_CAPTION),
        "<h2>What could be won</h2>",
        table_html(format_headroom(headroom_table), _HEADROOM_CAPTION),
        "<h2>Models</h2>",
        table_html(format_models(table), "Every model for all items, with 95 % intervals"),
        "<h2>What was read, and how</h2>",
        _render_list([describe_table(table), *table.notes, *_METHOD_NOTES]),
    ]
    summary = {
        "sentence": answer.sentence,
        "answer": answer.verdict,
        "details": list(answer.details),
        "table": table.name,
        "items": len(table),
        "models": list(table.models),
        "notes": list(table.notes),
    }
    return _write_folder(folder, table.name, body, frames, summary, picture)


def write_log_evaluation(
    folder: Path, log: ChoiceTable, estimates: pd.DataFrame, sentence: str
) -> Path:
    """Writes the page and the table for a log of choices with propensities, the probabilities of the choices.

    Args:
        folder: Created if it does not exist; files of the same names are replaced.
        log: The log, one choice for each item.
        estimates: Estimates of all policies, as `log_evaluation.estimate_policies` returns them.
        sentence: The answer, as `log_evaluation.write_sentence` returns it.

    Returns:
        Path of the page.
    """
    caption = (
        "Accuracy of every policy by inverse propensities (IPS), self-normalized (SNIPS) and doubly robust (DR), with "
        "95 % intervals over groups; matches: items on which the log made the policy's choice"
    )
    body = [
        f"<h1>{escape(log.name)}: does choosing a model for each item pay?</h1>",
        _render_answer(RoutingAnswer("", sentence)),
        "<h2>Policies, estimated from the log</h2>",
        table_html(format_policies(estimates), caption),
        "<h2>What was read, and how</h2>",
        _render_list(
            [f"{len(log):,} items with one choice each, of {len(log.models)} models.", *log.notes]
        ),
    ]
    summary = {
        "sentence": sentence,
        "table": log.name,
        "items": len(log),
        "models": list(log.models),
        "notes": list(log.notes),
    }
    return _write_folder(folder, log.name, body, {"policies.csv": estimates}, summary)


def _write_folder(
    folder: Path,
    name: str,
    body: Sequence[str],
    frames: dict[str, pd.DataFrame],
    summary: dict,
    picture: bytes | None = None,
) -> Path:
    """Writes all files of an evaluation into a folder.

    Args:
        folder: Created if it does not exist.
        name: Name of the table, for the title of the page.
        body: HTML of the page, in pieces.
        frames: Tables by file name, written as CSV.
        summary: Written as JSON.
        picture: PNG of the figure, where there is one.

    Returns:
        Path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, frame in frames.items():
        artifacts.write_text(folder / file_name, frame.to_csv(index=False))
    artifacts.write_json(folder / SUMMARY, summary)
    if picture is not None:
        artifacts.write_bytes(folder / PICTURE, picture)
    page = pages.side_page("\n".join(body), f"{name}: does choosing pay?")
    return artifacts.write_text(folder / REPORT, page)


# Parts of the page ---------------------------------------------------------------------------------

_BUDGETS_CAPTION = (
    "What was spent on held-out items over what was promised on dev, by the budget: 0% is the cheapest model's cost, "
    "100% the best constant's; kept: budgets whose interval ends at 1.05 or below, broken: it begins above"
)
_HEADROOM_CAPTION = (
    "What a router wins that sees more than any method, the outcomes of other models on the same item among it; mde: "
    "the minimum detectable effect; where that router asked the best constant everywhere, the interval is as wide as "
    "that of an oracle's gain"
)
_METHOD_NOTES = (
    "Every method learns on train, chooses its knob on dev and is scored on test; whole groups stay together. "
    "Intervals are at 95 %, over groups of items and repeats of the cross-validation.",
    "A cascade with a check assumes that a check exists and costs nothing; a poor one lets some wrong answers pass and "
    "refuses some right ones (rates: lib/routers/methods.py). An oracle knows all outcomes, luck among them. Neither "
    "is a router that could be run.",
)


def _render_answer(answer: RoutingAnswer) -> str:
    details = "".join(f"<p>{escape(detail)}</p>" for detail in answer.details)
    return f'<section class="answer-box"><p><strong>{escape(answer.sentence)}</strong></p>{details}</section>'


def _render_picture(picture: bytes, alt_text: str) -> str:
    content = base64.b64encode(picture).decode()
    return f'<figure><img class="figure" src="data:image/png;base64,{content}" alt="{escape(alt_text)}"></figure>'


def _render_list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>"


def explain_unavailable(comparison: MethodComparison) -> list[str]:
    """Names the methods that the table does not allow, with the reason, in a sentence each."""
    return [
        f"Not compared: {LABELS[method]}, because {reason}."
        for method, reason in comparison.unavailable.items()
    ]


def describe_table(table: OutcomeTable) -> str:
    """Describes the size of a table, its costs and its features in a sentence."""
    num_groups = len(np.unique(table.groups))
    return (
        f"{len(table):,} items in {num_groups:,} groups, {len(table.models)} models; costs are {table.money}; a router "
        f"sees an item as a vector of length {table.features.shape[1]}."
    )


def _describe_methods_table(comparison: MethodComparison) -> str:
    """The caption of the table of methods."""
    return (
        "Accuracy minus always the best constant's, in points, and cost as a multiple of its; at half the money "
        "(midway between the cheapest model's cost and the best constant's) points are minus those of mixtures of "
        f"constants; 95 % intervals over {comparison.num_groups:,} groups"
    )


def format_methods(comparison: MethodComparison) -> pd.DataFrame:
    """Formats the table of methods: accuracy and cost relative to the best constant, the most accurate single model.

    Args:
        comparison: Estimates of all methods in each condition: at the best constant's cost, at half the money, and
            at equal quality.

    Returns:
        Texts, a row for each method. Differences of accuracies are in percentage points.
    """
    rows = []
    for method in comparison.methods:
        same_money = comparison.at(method, SAME_MONEY)
        half_cost = comparison.at(method, HALF_COST)
        equal_quality = comparison.at(method, EQUAL_QUALITY)
        # One model, or a random one, costs the same at every budget.
        has_budget = method not in (BEST_CONSTANT, RANDOM_MODEL)
        points_at_half = NOTHING
        if has_budget:
            points_at_half = _format_points(half_cost.gain_over_mixtures)
        rows.append(
            {
                "method": LABELS[method],
                "accuracy": f"{same_money.accuracy.value:.3f}",
                "points at the same money": _format_points(same_money.gain),
                "points at half the money": points_at_half,
                "points at equal quality": _format_points(equal_quality.gain),
                "cost at equal quality": _format_interval(equal_quality.cost_ratio, digits=2),
            }
        )
    return pd.DataFrame(rows).set_index("method")


def format_budgets(comparison: MethodComparison) -> pd.DataFrame:
    """Formats the table of budgets: cost on held-out items, divided by the cost that was promised on dev.

    Args:
        comparison: `comparison.budgets` is read; a budget's level is a fraction of the way from the cheapest model's
            cost to the best constant's.

    Returns:
        Texts, a row for each router and for mixtures of single models; a column for each level of _SHOWN_BUDGETS, and
        the number of budgets with each verdict: kept, broken, undecided.
    """
    rows = []
    for method in (CONSTANT_MIXTURES, *comparison.routers):
        budgets = comparison.budgets[comparison.budgets["method"] == LABELS[method]]
        row = {"method": LABELS[method]}
        displayed = budgets[budgets["level"].isin(_SHOWN_BUDGETS)]
        for budget in displayed.to_dict("records"):
            # The ends are absent where there is no interval.
            ratio = Interval(
                value=budget.get("ratio", np.nan),
                ci_low=budget.get("ratio_ci_low", np.nan),
                ci_high=budget.get("ratio_ci_high", np.nan),
            )
            row[f"{budget['level']:.0%}"] = _format_interval(ratio, digits=2)
        for verdict in (KEPT, BROKEN, UNDECIDED):
            num_budgets = (budgets["budget"] == verdict).sum()
            row[verdict] = f"{num_budgets} of {len(budgets)}"
        rows.append(row)
    return pd.DataFrame(rows).set_index("method")


def _make_headroom_frame(headroom_table: pd.DataFrame) -> pd.DataFrame:
    """Adds the column mde, the minimum detectable effect of each question at 80 % power, for the CSV file."""
    mde = [find_mde(headroom_table, question) for question in headroom_table.index]
    return headroom_table.assign(mde=mde).reset_index()


def format_headroom(headroom_table: pd.DataFrame) -> pd.DataFrame:
    """Formats the table of headroom, what a router could gain at most, for the page.

    Args:
        headroom_table: A row for each question (accuracy, money, check) with value, ci_low, ci_high and "question is"
            (open or not open), as `headroom.estimate_headroom` returns it.

    Returns:
        Texts, a row for each question: the gain with its interval, the least gain that is worth having, the minimum
        detectable effect (mde) at 80 % power, and whether the question is open.
    """
    rows = []
    for question, row in headroom_table.iterrows():
        gain = Interval(row["value"], row["ci_low"], row["ci_high"])
        least_gain = headroom.MIN_WORTHWHILE_GAIN[question]
        mde = find_mde(headroom_table, question)
        rows.append(
            {
                "what": _QUESTION_LABELS[question],
                "could be won": _format_interval(gain, digits=3),
                "worth having from": f"{least_gain:.2f}",
                "mde": f"{mde:.3f}",
                "question": row["question is"],
            }
        )
    return pd.DataFrame(rows).set_index("what")


def describe_models(table: OutcomeTable) -> pd.DataFrame:
    """Estimates accuracy and cost of every model on all items, the most accurate model first.

    Args:
        table: The recorded outcomes.

    Returns:
        A row for each model: model, accuracy, accuracy_ci_low, accuracy_ci_high, cost_usd (mean per item), only_correct
        (fraction of items on which it does better than every other model).
    """
    rows = []
    for index, model in enumerate(table.models):
        correct = table.correct[:, index]
        # The best of all other models on each item: where a model beats it, no other can replace it.
        best_alternative = np.delete(table.correct, index, axis=1).max(1)
        rows.append(
            {
                "model": model,
                **stats.grouped_interval(correct, table.groups).as_metrics("accuracy"),
                "cost_usd": float(table.cost_usd[:, index].mean()),
                "only_correct": float((correct > best_alternative).mean()),
            }
        )
    return pd.DataFrame(rows).sort_values(["accuracy", "cost_usd"], ascending=[False, True])


def format_models(table: OutcomeTable) -> pd.DataFrame:
    """Formats accuracy and cost of every model as a table for the page.

    Args:
        table: The recorded outcomes.

    Returns:
        Text by model and column.
    """
    rows = []
    for model in describe_models(table).to_dict("records"):
        accuracy = Interval(
            model["accuracy"],
            model.get("accuracy_ci_low", np.nan),
            model.get("accuracy_ci_high", np.nan),
        )
        rows.append(
            {
                "model": model["model"],
                "accuracy": _format_interval(accuracy, digits=3),
                "dollars per thousand items": f"{model['cost_usd'] * _PER_THOUSAND:.4g}",
                "better than all others on": f"{model['only_correct']:.1%}",
            }
        )
    return pd.DataFrame(rows).set_index("model")


def format_policies(estimates: pd.DataFrame) -> pd.DataFrame:
    """Formats the policies that were estimated from a log as a table for the page.

    Args:
        estimates: As `log_evaluation.estimate_policies` returns them.

    Returns:
        Text by policy: matching choices, accuracy by each estimator, and cost.
    """
    rows = []
    for policy in estimates.to_dict("records"):
        row = {"policy": policy["policy"], "matches": f"{policy['matches']:,}"}
        for name in ESTIMATORS:
            interval = Interval(policy[name], policy[f"{name}_ci_low"], policy[f"{name}_ci_high"])
            row[name.upper()] = _format_interval(interval, digits=3)
        row["dollars per thousand items"] = f"{policy['cost_usd'] * _PER_THOUSAND:.4g}"
        rows.append(row)
    return pd.DataFrame(rows).set_index("policy")


def _format_points(gain: Interval) -> str:
    """Formats a difference of accuracies in percentage points, with its interval."""
    points = Interval(100 * gain.value, 100 * gain.ci_low, 100 * gain.ci_high)
    return _format_interval(points, digits=1)


def _format_interval(interval: Interval, digits: int) -> str:
    """Formats a value and its interval, rounded to some digits after the point."""
    ends = (interval.value, interval.ci_low, interval.ci_high)
    # Adding 0 turns a negative zero into zero.
    value, ci_low, ci_high = (round(end, digits) + 0.0 for end in ends)
    return with_interval(value, ci_low, ci_high, digits)


# Picture -------------------------------------------------------------------------------------------


def draw_tradeoff(comparison: MethodComparison, name: str) -> Figure:
    """Draws accuracy against cost: a curve over budgets for each method, and a point for each method without a budget.

    Args:
        comparison: Estimates of all methods.
        name: Name of the table of outcomes.

    Returns:
        The figure, with its description for screen readers as `alt_text`.
    """
    curves = [CONSTANT_MIXTURES, *comparison.routers, PERFECT_CHECK, ORACLE]
    labels = [LABELS[method] for method in curves]
    points = comparison.budgets[comparison.budgets["method"].isin(labels)]
    points = points.rename(
        columns={"spent_usd": "cost_usd"} | _rename_interval("spent_usd", "cost_usd")
    )
    # One model for every item, or a random one, has no budget and is one point.
    constants = comparison.to_frame()
    is_point = constants["method"].isin([LABELS[BEST_CONSTANT], LABELS[RANDOM_MODEL]])
    is_point &= constants["condition"] == SAME_MONEY
    points = pd.concat([points, constants[is_point].assign(level=1.0)]).set_index(
        ["method", "level"]
    )

    cost_usd = _PER_THOUSAND * points[["cost_usd", "cost_usd_ci_low", "cost_usd_ci_high"]]
    accuracy = points[["accuracy", "accuracy_ci_low", "accuracy_ci_high"]]
    interval_columns = ["value", "ci_low", "ci_high"]
    roles = {
        LABELS[method]: ROLES.get(method, "router")
        for method in (*curves, BEST_CONSTANT, RANDOM_MODEL)
    }
    return plots.tradeoff_plot(
        cost_usd.set_axis(interval_columns, axis=1),
        accuracy.set_axis(interval_columns, axis=1),
        f"{name}: accuracy for money on held-out items",
        "US dollars per thousand items",
        "accuracy",
        roles=roles,
        names={(label, 1.0): label for label in roles},
        size=(9, 5.5),
        note="A curve has a point for each budget that was promised on dev.",
    )


def _rename_interval(old: str, new: str) -> dict[str, str]:
    """Maps the column names of an interval's ends to new ones, for `DataFrame.rename`."""
    return {f"{old}_ci_low": f"{new}_ci_low", f"{old}_ci_high": f"{new}_ci_high"}
