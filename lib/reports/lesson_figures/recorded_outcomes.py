"""Tables, titles and metrics of lesson 08, recorded outcomes, and of its appendix."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from lib import stats
from lib.experiment import results_table
from lib.plots.tables import listed
from lib.recorded_outcomes import headroom
from lib.recorded_outcomes.model_selection import HALF_COST, MAX_SPENDING_RATIO, Choices
from lib.routers import experiment
from lib.routers.experiment import RecordedResults
from lib.routers.methods import (
    ARC,
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    CORL,
    LOGISTIC,
    METRIC_NAMES,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
    RANDOM_MODEL,
    READERS,
    ROLES,
    STOP_OR_ESCALATE,
)

# Methods that the lesson compares with the constants: all but the constants themselves and random choices.
COMPARED = tuple(
    method for method in ROLES if method not in (BEST_CONSTANT, RANDOM_MODEL, CONSTANT_MIXTURES)
)
TRADEOFF_METHODS = (CONSTANT_MIXTURES, LOGISTIC, CORL, PERFECT_CHECK, ORACLE)
AGENT_METHODS = (LOGISTIC, CORL, STOP_OR_ESCALATE, POOR_CHECK, PERFECT_CHECK, ORACLE)
AGENT_TABLES = ("swe-bench", "swt-bench", "gaia")
# Benchmarks with common models: a router learns on the first and is used on the second.
TRANSFERS = (
    ("swe-bench", "gaia"),
    ("swe-bench", "swe-multimodal"),
    ("gaia", "swt-bench"),
    ("mmlu", "gsm8k"),
)
# Which agents a table has, by the variants of `tables.VARIANTS`; each adds agents to the one before.
AGENT_VARIANTS = {
    "measured": "agents whose costs were recorded",
    "rebuilt": "also those whose costs were rebuilt",
    "all": "also the model whose outcomes are doubted",
}
KNOWN_TASKS, NEW_TASKS = "llmrouter", "llmrouter-new"
TASK_LABELS = {KNOWN_TASKS: "tasks met before", NEW_TASKS: "new tasks"}
# Of the description of a table, by column; see `headroom.describe_table`.
DESCRIPTION_HEADINGS = {
    "money": "costs are",
    "items": "items",
    "groups": "groups",
    "models": "models",
    "best": "best constant",
    "constant": "its accuracy",
    "constant_cost_usd": "its cost, $ per item",
    "oracle": "oracle's accuracy",
    "phi": "correlation of errors",
}
QUESTION_LABELS = {
    "accuracy": "accuracy gained",
    "money": "fraction of cost saved",
    "check": "the same, with a check",
}
COMPARISON_LABELS = {
    "quality": "accuracy minus the constant's, equal quality",
    "cost_ratio": "cost over the constant's, equal quality",
    "gain_over_mixtures": "accuracy minus mixtures', half the money",
    "half_quality": "accuracy minus the constant's, half the money",
    "verdict": "verdict",
}
# By the last part of a metric's key, the column of `experiment.compare_methods` that it holds.
METRIC_COLUMNS = {
    "cost_usd_at_constant_quality": "cost_ratio",
    "quality_gap": "quality",
    "half_gap": "gain_over_mixtures",
}
_USD_PER_1K = 1e3
_POINTS = 100  # of accuracy


# The tables and what can be gained ----------------------------------------------------------------


def collect_gate_metrics(gate: pd.DataFrame) -> dict[str, object]:
    """Collects the metrics of headroom by table and question, and whether it is enough.

    Args:
        gate: A row per table and question: headroom with its interval, and in `question is` whether it is enough.
    """
    metrics = {}
    for _, row in gate.iterrows():
        key = f"gate.{row['table']}.{row['question']}"
        metrics[f"{key}.headroom"] = row
        metrics[f"{key}.is"] = row["question is"]
    return metrics


def style_by_gate(gate: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Chooses the style of each row of the headroom figure: blue where there is headroom, grey where there is not.

    Args:
        gate: Whether each question on each table has headroom.

    Returns:
        Name of the style by (table, panel).
    """
    styles = {}
    for _, row in gate.iterrows():
        is_open = row["question is"] == headroom.OPEN
        panel = QUESTION_LABELS[row["question"]]
        styles[row["table"], panel] = "holds" if is_open else headroom.NOT_OPEN
    return styles


# Constants, mixtures, routers, oracle -------------------------------------------------------------


def label_largest_budgets(accuracy: pd.DataFrame) -> dict[tuple[str, float], str]:
    """Names every method at its largest budget; accuracy by method and level of the budget."""
    largest = accuracy.index.get_level_values("level").max()
    return {(method, largest): method for method in accuracy.index.unique("method")}


def summarize_tradeoff(accuracy: pd.DataFrame) -> str:
    """Writes the title of the tradeoff: gains over mixtures at half the money, as lesson 08 defines it.

    Args:
        accuracy: Mean accuracy (value) by method and level of the budget.
    """
    at_half = accuracy["value"].xs(0.5, level="level")
    gains = (at_half - at_half[CONSTANT_MIXTURES]) * _POINTS
    return (
        f"At half the money: {LOGISTIC} gains {gains[LOGISTIC]:.1f} points over mixtures, a {PERFECT_CHECK} "
        f"{gains[PERFECT_CHECK]:.1f}, the oracle {gains[ORACLE]:.1f}"
    )


# Comparisons of methods ---------------------------------------------------------------------------


def summarize_gains_by_novelty(gains: pd.DataFrame) -> str:
    """Writes the title of the figure of known and new tasks: how many routers gain, with the whole interval above 0.

    Args:
        gains: Gains over mixtures with intervals, by table (known or new tasks) and router.
    """
    is_gain = (gains["ci_low"] > 0).groupby("table").sum()
    return (
        f"{is_gain[TASK_LABELS[KNOWN_TASKS]]} of {len(READERS)} routers clearly beat mixtures on tasks they have met, "
        f"{is_gain[TASK_LABELS[NEW_TASKS]]} on new tasks"
    )


def summarize_agents(ratios: pd.DataFrame) -> str:
    """Writes the title of the figure of agents: what a check costs at equal quality, by table.

    Args:
        ratios: Cost over that of the best agent at equal quality (value), by table and method.
    """
    table_names = list(dict.fromkeys(ratios.index.get_level_values("table")))
    phrases = [
        f"{ratios.loc[(table, PERFECT_CHECK), 'value']:.0%} ({table})" for table in table_names
    ]
    return f"With a perfect check, the best agent's quality costs {listed(phrases)} of its price"


def tabulate_comparison(comparison: pd.DataFrame, table: str) -> pd.DataFrame:
    """All methods on one table, with headings in words."""
    return comparison.loc[table].rename(columns=COMPARISON_LABELS)


def collect_comparison_metrics(comparison: pd.DataFrame) -> dict[str, object]:
    """Collects the metrics of every method on every table.

    Args:
        comparison: A row per table and method.

    Returns:
        Values by key, such as "TABLE.METHOD.NAME".
    """
    metrics = {}
    for (table, method), row in comparison.iterrows():
        if method in (CONSTANT_MIXTURES, RANDOM_MODEL):
            continue
        key = f"{table}.{METRIC_NAMES[method]}"
        for name, column in METRIC_COLUMNS.items():
            metrics[f"{key}.{name}"] = row[column]
        metrics[f"{key}_verdict"] = row["verdict"]
    return metrics


# The appendix -------------------------------------------------------------------------------------


def collect_aiq_metrics(aiq: pd.DataFrame) -> dict[str, pd.Series]:
    """AIQ minus that of mixtures, by table and method."""
    metrics = {}
    for _, row in aiq.iterrows():
        metrics[f"{row['table']}.{METRIC_NAMES[row['method']]}.aiq_gap"] = row
    return metrics


def arrange_aiq(aiq: pd.DataFrame) -> pd.DataFrame:
    """AIQ minus that of mixtures, (tables, methods), of methods that play on all tables and tables that have all."""
    values = aiq.set_index(["table", "method"])["value"].unstack("method")
    return values[[method for method in COMPARED if method != STOP_OR_ESCALATE]].dropna()


def summarize_aiq(gaps: pd.DataFrame) -> str:
    """Writes the title of the figure of AIQ.

    Args:
        gaps: AIQ minus that of mixtures, (tables, methods).
    """
    readers = gaps[list(READERS)].max(axis=1)
    return (
        f"The best router that reads the item adds at most {readers.max():.3f} of AIQ to mixtures, a perfect check up "
        f"to {gaps[PERFECT_CHECK].max():.3f}"
    )


def tabulate_regret(
    results: RecordedResults, rows: pd.DataFrame, table_names: Iterable[str]
) -> pd.DataFrame:
    """Tabulates the accuracy of the oracle minus that of four methods at half the money, by table.

    Args:
        results: Results of methods on all tables, with averages per repeat.
        rows: The same as a results table, a row per method and item.
        table_names: Tables to compare on.
    """
    half_rows = results_table.select(rows, condition=HALF_COST)
    half_averages = results.repeat_averages[results.repeat_averages["condition"] == HALF_COST]
    regret = {}
    for table in table_names:
        table_rows = results_table.select(half_rows, group=table)
        table_averages = half_averages[half_averages["table"] == table]
        regret[table] = {}
        for method in (CONSTANT_MIXTURES, ARC, CORL, PERFECT_CHECK):
            pair = experiment.compare_pair(table_rows, table_averages, ORACLE, method)
            regret[table][method] = pair["quality"]
    return pd.DataFrame(regret).T.rename_axis("table")


def count_ranking_changes(cost_ratios: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Finds the cheapest method under changed prices of the best constant, and counts how often it changes.

    Args:
        cost_ratios: Columns table, factor (of the best constant's price), method and cost_ratio.

    Returns:
        (tables, factors), the cheapest method; and by table, at how many factors it is another than at factor 1.
    """
    by_method = cost_ratios.pivot(index=["table", "factor"], columns="method", values="cost_ratio")
    cheapest = by_method.idxmin(axis=1).unstack("factor")
    num_changes = cheapest.ne(cheapest[1.0], axis=0).sum(axis=1)
    return cheapest, {table: int(num) for table, num in num_changes.items()}


def summarize_spending(spending: pd.DataFrame, agent: str) -> str:
    """Writes the title of the figure of spending: how accuracy falls from the cheapest to the most expensive issues.

    Args:
        spending: Share of solved issues (value) by table and `spent`, the rank of an issue by cost from 0 to 1.
        agent: Its name.
    """
    phrases = []
    for table, estimates in spending.groupby("table", sort=False):
        by_spending = estimates.set_index("spent")["value"]
        phrases.append(f"{by_spending.loc[0.0]:.0%} to {by_spending.loc[1.0]:.0%} ({table})")
    return f"The more {agent} spends, the less it solves: from {listed(phrases)}"


def find_undominated(choices: Mapping[str, Choices]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Finds the Pareto-optimal choices of each kind by mean cost and accuracy, without intervals.

    Args:
        choices: By kind, such as pairs with a check.

    Returns:
        Estimates of cost, in USD, and of accuracy, by kind and point.
    """
    points_by_kind = {}
    for kind, kind_choices in choices.items():
        cost = kind_choices.cost_usd.mean(1)
        accuracy = kind_choices.correct.mean(1)
        undominated = stats.pareto_front(np.column_stack([-cost, accuracy]))
        points = pd.DataFrame({"cost": cost, "accuracy": accuracy})
        points_by_kind[kind] = points[undominated]
    points = pd.concat(points_by_kind, names=["method", "point"])
    points = points.assign(ci_low=np.nan, ci_high=np.nan)
    cost = points.rename(columns={"cost": "value"}).drop(columns="accuracy")
    accuracy = points.rename(columns={"accuracy": "value"}).drop(columns="cost")
    return cost, accuracy


def summarize_check(
    cost: pd.DataFrame, accuracy: pd.DataFrame, kind: str, alone: str, misses: float, refuses: float
) -> str:
    """Says what pairs of agents with a check cost where they are as accurate as the best agent.

    Args:
        cost: Mean costs from `find_undominated`.
        accuracy: Accuracies from it.
        kind: The name of the pairs with a check.
        alone: The name of single agents.
        misses: Fraction of wrong answers that the check lets pass.
        refuses: Fraction of correct answers that it refuses.
    """
    accuracy_alone = accuracy["value"].loc[alone]
    best_accuracy = accuracy_alone.max()
    best_cost = cost["value"].loc[alone].loc[accuracy_alone.idxmax()]
    as_accurate = cost["value"].loc[kind][accuracy["value"].loc[kind] >= best_accuracy]
    check = f"{misses:.0%} of the wrong pass, {refuses:.0%} of the correct are refused"
    if as_accurate.empty:
        return f"{check}: no pair is as accurate as the best agent"
    return f"{check}: a pair is as accurate as the best agent for {as_accurate.min() / best_cost:.0%} of its cost"


def tabulate_overspending(transfers: pd.DataFrame) -> pd.DataFrame:
    """Tabulates dollars spent over dollars promised at half the money, after a change of benchmark.

    Args:
        transfers: Columns table (pair of benchmarks), method, level (budget) and overspending.

    Returns:
        (pairs of benchmarks, methods), with pairs in words, and a dash where a method cannot be used.
    """
    at_half_cost = transfers[transfers["level"] == 0.5]
    overspending = at_half_cost.pivot(index="table", columns="method", values="overspending")
    labels = {}
    for source, target in TRANSFERS:
        labels[f"{source}_to_{target}"] = f"{source}, then {target}"
    overspending = overspending.astype(object).where(overspending.notna(), "-")
    return overspending.rename(index=labels).rename_axis(index="learned on, then used on")


def summarize_appendix(
    transfers: pd.DataFrame, num_changes: Mapping[str, int], num_price_changes: int
) -> str:
    """Writes the conclusion of the appendix from its numbers.

    Args:
        transfers: Columns table (pair of benchmarks) and overspending (cost over budget), a row per budget.
        num_changes: By table, price changes after which another method is cheapest.
        num_price_changes: Price changes per table.
    """
    is_broken = transfers["overspending"] > MAX_SPENDING_RATIO
    broken = is_broken.groupby(transfers["table"]).mean()
    transfer_phrases = []
    for source, target in TRANSFERS:
        transfer_phrases.append(f"{broken[f'{source}_to_{target}']:.0%} from {source} to {target}")
    return (
        f"Budgets that were chosen on one benchmark are overspent on another one: {listed(transfer_phrases)}. When the "
        f"best constant's price changes, another method is cheapest after {sum(num_changes.values())} of "
        f"{num_price_changes * len(num_changes)} changes."
    )


def collect_appendix_metrics(
    aiq: pd.DataFrame, transfers: pd.DataFrame, num_changes: Mapping[str, int]
) -> dict[str, object]:
    """Collects the metrics of the appendix, by key.

    Args:
        aiq: AIQ minus that of mixtures with intervals, a row per table and method.
        transfers: Columns table (pair of benchmarks) and overspending (cost over budget), a row per budget.
        num_changes: By table, price changes after which another method is cheapest.
    """
    metrics: dict[str, object] = dict(collect_aiq_metrics(aiq))
    is_broken = transfers["overspending"] > MAX_SPENDING_RATIO
    for table, fraction in is_broken.groupby(transfers["table"]).mean().items():
        metrics[f"budget.{table}.violations"] = float(fraction)
    for table, num in num_changes.items():
        metrics[f"prices.{table}.flips"] = num
    return metrics
