"""Tables, titles and a figure of lesson 06: a menu and its user, scores, steering, contrasts."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from lib import plots, stats
from lib.config import Params
from lib.language_models.checkpoints import MODELS
from lib.tool_orchestration import (
    lab_estimates,
    lab_world,
    synthetic_evaluation,
)
from lib.tool_orchestration.lab_menus import LabAssignment
from lib.tool_orchestration.lab_results import TRAINED
from lib.tool_orchestration.rewards import MICRO_USD_PER_USD, MS_PER_SECOND

# What estimates are called in tables, by metric key. How orchestrators choose tools:
CHOICE_LABELS = {
    "steer.cost": "cost-only users save, ToolOrchestra",
    "steer.latency": "latency-only users wait less, ToolOrchestra",
    "start.steer.cost": "cost-only users save, start",
    "no_preferences.steer.cost": "cost-only users save, no preferences",
    "no_preferences.steer.latency": "latency-only users wait less, no preferences",
    "sign_error.cost": "cost-only users pay more, sign error minus ToolOrchestra",
    "heldout_tools.called_where_best": "new tools where they are best, above an even choice",
    "start.heldout_tools.called_where_best": "new tools where they are best, start",
    "unseen_prices.shift": "moves to what a new price list made cheap",
    "start.unseen_prices.shift": "moves to what a new price list made cheap, start",
}
CONTRAST_LABELS = {
    name: f"{TRAINED} minus {reference}" for name, reference in lab_estimates.CONTRASTS.items()
}


def draw_spending_by_weight(
    spending: pd.DataFrame, title: str, xlabel: str, panels: str | None = None
) -> Figure:
    """Draw what is spent, relative to the menu's mean tool, along a user's weight: a line for each method.

    Args:
        spending: Estimates with the index levels method, weight and, for small multiples, `panels`.
        title: The message of the figure.
        xlabel: Which weight runs along the x axis.
        panels: The index level whose values get a panel each.
    """
    return plots.line_plot(
        spending.reset_index(),
        x="weight",
        y="value",
        by="method",
        title=title,
        xlabel=xlabel,
        ylabel="spent, as a share of a mean tool",
        seed=None,
        panels=panels,
        like={synthetic_evaluation.OPTIMUM: "oracle"},
    )


def _compute_spending_changes(spending: pd.DataFrame) -> pd.Series:
    """By method, spending at the largest weight on cost minus that at the smallest, in shares of a mean tool."""
    by_weight = spending["value"].loc["weight on cost"].unstack("weight")
    return by_weight[by_weight.columns.max()] - by_weight[by_weight.columns.min()]


def summarize_spending_changes(spending: pd.DataFrame) -> str:
    """Says how spending changes from the smallest weight on cost to the largest, by method.

    Args:
        spending: Rows of `synthetic_estimates.estimate_spending_by_weight`.
    """
    changes = _compute_spending_changes(spending)
    numbers = [f"{method} {change:+.0%}" for method, change in changes.items()]
    return f"What the full weight on cost changes, in shares of a mean tool: {', '.join(numbers)}"


def summarize_price_map(spending: pd.DataFrame, prices: float, updates: int) -> str:
    """Writes the title of one position of the sliders: what the weight on cost changes, beside the optimum.

    Args:
        spending: Rows of `synthetic_estimates.estimate_spending_by_weight`, of ToolOrchestra and the optimum.
        prices: How many times the highest price is the lowest one.
        updates: After which ToolOrchestra is evaluated.
    """
    changes = _compute_spending_changes(spending)
    return (
        f"Prices up to {prices:g} times apart, {updates} updates: the weight on cost changes spending by "
        f"{changes[TRAINED]:+.0%} of a mean tool, with the optimum by {changes[synthetic_evaluation.OPTIMUM]:+.0%}"
    )


def choose_example_menu(params: Params) -> LabAssignment:
    """Chooses an example: a test menu of tools whose user weighs cost fully and accuracy, too.

    Args:
        params: Settings.
    """
    settings = params.tools.lab_world
    tools = lab_world.read_tools(params.llm, settings.models, str(MODELS))
    menus = lab_world.draw_menus(lab_world.TEST_MENUS, 48, tools, settings.held_out)

    def rank_example(menu: LabAssignment) -> tuple[bool, float]:
        user = menu.user
        return user.cost == 1.0, min(user.accuracy, user.cost)

    return max(menus, key=rank_example)


def tabulate_menu(menu: LabAssignment) -> pd.DataFrame:
    """Tabulates the tools of a menu: what the orchestrator reads, and the model behind each.

    Args:
        menu: Tools that are on offer for a question.
    """
    rows = []
    for entry in menu.entries:
        rows.append(
            {
                "name on this menu": entry.name,
                "reads": "   ".join(entry.list_facts(menu.item.group)),
                "model behind it": entry.tool.name,
                "measured accuracy": entry.tool.get_accuracy(menu.item),
                "$ per million tokens": entry.usd_per_token * MICRO_USD_PER_USD,
                "ms per token": entry.seconds_per_token * MS_PER_SECOND,
            }
        )
    return pd.DataFrame(rows).set_index("name on this menu")


def summarize_steering(estimates: Mapping[str, pd.Series]) -> str:
    """A title that says what the weights of users change."""
    cost, latency = (estimates[name] for name in lab_estimates.STEERING)
    return (
        f"Users who care for cost only save {_percent(cost)} of a mean tool, "
        f"for latency only {_percent(latency)}"
    )


def _percent(estimate: pd.Series) -> str:
    """An estimate with its interval in percent: "44 % [31, 57]"."""
    if pd.isna(estimate["ci_low"]):
        return f"{estimate['value']:.0%}"
    return f"{estimate['value']:.0%} [{estimate['ci_low']:.0%}, {estimate['ci_high']:.0%}]"


def tabulate_estimates(
    estimates: Mapping[str, pd.Series], names: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulate estimates in words: value with interval, verdict, minimum detectable effect, seeds.

    Args:
        estimates: By metric key.
        names: What each key is called in the table; keys that were not measured are left out.

    Returns:
        A row for each name.
    """
    present = {key: name for key, name in names.items() if key in estimates}
    table = pd.DataFrame({key: estimates[key] for key in present}).T.infer_objects()
    return pd.DataFrame(
        {
            "estimate": stats.intervals(table),
            "above 0": stats.verdict(table),
            "minimum detectable effect": table["mde"].astype(float).round(3),
            "seeds": table["num_runs"].astype(int),
        }
    ).set_axis(list(present.values()))


def summarize_lesson(estimates: Mapping[str, pd.Series], contrasts: pd.DataFrame) -> str:
    """Writes the conclusion in two sentences, negative results first.

    Args:
        estimates: By key.
        contrasts: Differences of score, by what they are called (CONTRAST_LABELS).
    """
    # Estimates as rows, named by what they say, which the summary repeats.
    steering = pd.DataFrame({key: estimates[key] for key in lab_estimates.STEERING})
    sentences = ("what cost-only users save", "what latency-only users wait less")
    steering = stats.summary_sentence(steering.T.infer_objects().set_axis(list(sentences)))
    return f"Score of a user's wishes: {stats.summary_sentence(contrasts)} Steering: {steering}"


def collect_verdicts(contrasts: pd.DataFrame) -> dict[str, str | float]:
    """Collects the verdict and the minimum detectable effect of every contrast, by metric key.

    Args:
        contrasts: A row per contrast with verdict and mde (minimum detectable effect), by what it is called
            (CONTRAST_LABELS).
    """
    values: dict[str, str | float] = {}
    for key, label in CONTRAST_LABELS.items():
        if label in contrasts.index:
            values[f"{key}_verdict"] = contrasts.loc[label, "verdict"]
            values[f"{key}_mde"] = float(contrasts.loc[label, "mde"])
    return values


def collect_recorded_only(
    recorded: Mapping[str, pd.Series], this_run: Mapping[str, pd.Series]
) -> dict[str, pd.Series]:
    """Collects the estimates that only the recorded full run has, such as those of its controls, by metric key.

    Args:
        recorded: Estimates of the recorded run.
        this_run: Estimates of the reader's run.
    """
    only_recorded = [key for key in recorded if key not in this_run]
    return {f"full.{key}": recorded[key] for key in only_recorded}
