"""What lesson 06 estimates from the rows of the lab world, of its own run and of the recorded one.

gate.tools.headroom                 score of the best choice for each menu above the best single tool
gate.tools.wish                     score of choosing by what the user weighs most above the best choice by one
                                    objective for everybody: what there is to win by reading users
gate.tools.signal                   trained for accuracy alone: share of correct answers above the start
steer.cost, steer.latency           what users who care for cost, or latency, only spend less than those who care
                                    for accuracy only: expected, over that of the menu's mean tool
trained.gain                        score above the start
trained.minus_...                   score above a baseline
sign_error.cost                     what a user who cares for cost only spends more under the sign error
heldout_tools.called_where_best     probability of tools that training never had, above an even choice, where they
                                    are the best choice
unseen_prices.shift                 probability of the tools that an unseen price list made cheap, above that at
                                    usual prices
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib import stats
from lib.experiment import results_table
from lib.tool_orchestration import lab_results
from lib.tool_orchestration.lab_experiment import START
from lib.tool_orchestration.lab_results import TRAINED
from lib.tool_orchestration.lab_training import LIST_PRICES, NO_PREFERENCES, SIGN_ERROR

# Compared with the trained orchestrator in score; the first three were named before the run and are tested together.
PRIMARY = {
    "trained.gain": START,
    "trained.minus_best_single": lab_results.BEST_SINGLE,
    "trained.minus_no_preferences": NO_PREFERENCES.label,
}
SECONDARY = {
    "trained.minus_random": lab_results.RANDOM,
    "trained.minus_largest_wish": lab_results.LARGEST_WISH,
    "trained.minus_type_aware_cascade": lab_results.CASCADE,
    "trained.minus_logistic": lab_results.LOGISTIC,
    "trained.minus_oracle": lab_results.ORACLE,
}
CONTRASTS = PRIMARY | SECONDARY
MARGIN = 0.02  # differences of score within it count as equivalent; written down before the run
# Compared with the trained orchestrator in accuracy, US dollars and seconds.
SPENDING_CONTRASTS = {
    "start": START,
    "best_single": lab_results.BEST_SINGLE,
    "ablest_tool": lab_results.BY_OBJECTIVE["accuracy"],
}
STEERING = ("steer.cost", "steer.latency")


def estimate_metrics(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate all metrics of the lab world, which the head of the module lists.

    Estimates that need a method which was not trained are left out.

    Args:
        rows: The results table of `lab_results.make_rows`.

    Returns:
        By metric name an estimate: mean, interval and p value. The names without a prefix are those of ToolOrchestra;
        "start." and "no_preferences." stand before the same estimates of these methods.
    """
    metrics = estimate_gates(rows)
    prefixes = {TRAINED: "", START: "start.", NO_PREFERENCES.label: "no_preferences."}
    for method, prefix in prefixes.items():
        of_method = results_table.select(rows, method=method)
        if len(of_method):
            for name, estimate in estimate_choices(of_method).items():
                metrics[f"{prefix}{name}"] = estimate

    tests = results_table.select(rows, split=lab_results.TEST)
    present = set(tests["method"])
    for name, reference in CONTRASTS.items():
        if {TRAINED, reference} <= present:
            metrics[name] = estimate_difference(tests, "score", TRAINED, reference)
            metrics[f"{name}.of_calls"] = estimate_difference(
                tests, "score_of_calls", TRAINED, reference
            )
    # What the score is made of: a gain in one may be bought with another.
    for column in ("correct", "cost_usd", "seconds"):
        for name, reference in SPENDING_CONTRASTS.items():
            metrics[f"trained.{column}_minus_{name}"] = estimate_difference(
                tests, column, TRAINED, reference
            )
    return (
        metrics
        | estimate_training_effects(rows)
        | estimate_sign_error(rows)
        | estimate_list_prices(rows)
    )


def estimate_gates(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate how much choosing could gain on these menus, and whether training learns anything at all.

    Args:
        rows: The results table of `lab_results.make_rows`.

    Returns:
        gate.tools.headroom, gate.tools.wish, gate.tools.form and, if a training without preferences is in the rows,
        gate.tools.signal.
    """
    gates = results_table.select(rows, split=lab_results.GATE)
    estimates = {f"gate.tools.{name}": estimate_mean(gates, name) for name in ("headroom", "wish")}
    spending = results_table.select(rows, split=lab_results.STEERING, method=START)
    # A menu is shown to several users: average them, so that menus are the sample.
    by_menu = spending.groupby(["method", "seed", "item"], as_index=False)["covered"].mean()
    estimates["gate.tools.form"] = estimate_mean(by_menu, "covered")
    tests = results_table.select(rows, split=lab_results.TEST)
    if NO_PREFERENCES.label in set(tests["method"]):
        estimates["gate.tools.signal"] = estimate_difference(
            tests, "correct", NO_PREFERENCES.label, START
        )
    return estimates


def estimate_choices(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate how one orchestrator chooses: by the user's preferences, among held-out tools, at unseen prices.

    Args:
        rows: Rows of one method, of all splits.

    Returns:
        Estimates by name.
    """
    return {name: estimate_mean(table, name) for name, table in measure_choices(rows).items()}


def estimate_training_effects(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate how far training moved each quantity of `estimate_choices`, in pairs of seed and menu."""
    compared = results_table.select(rows, method=[START, TRAINED])
    effects = {}
    for name, table in measure_choices(compared).items():
        effects[f"trained.{name}_minus_start"] = estimate_difference(table, name, TRAINED, START)
    return effects


def measure_choices(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Measure how orchestrators choose on each menu, from their probabilities of calling each tool.

    Args:
        rows: Rows of one or several methods, of all splits.

    Returns:
        Tables with the columns method, seed, item and a quantity, by the quantity's name.
    """
    users = compare_users(results_table.select(rows, split=lab_results.STEERING))
    held_out = results_table.select(rows, split=lab_results.HELD_OUT)
    # Above what a call at random would give, on menus where an unknown tool is the best choice.
    where_best = held_out[held_out["is_best"] > 0]
    called = where_best["probability"] - where_best["chance"]
    prices = results_table.select(rows, split=lab_results.PRICES)
    return {
        "steer.cost": users,
        "steer.latency": users,
        "heldout_tools.called_where_best": where_best.assign(
            **{"heldout_tools.called_where_best": called}
        ),
        "unseen_prices.shift": prices.assign(**{"unseen_prices.shift": prices["shift"]}),
    }


def compare_users(spending: pd.DataFrame) -> pd.DataFrame:
    """Compare users who care for one objective only, on the same menus.

    Args:
        spending: Rows of the split STEERING.

    Returns:
        A row for each method, seed and menu (item) with `steer.cost` and `steer.latency`: what the accuracy-only user
        spends more than the user who cares for cost, or for latency, only. Above 0 the weights steer as they should.
    """
    key = ["method", "seed", "item"]
    cost = spending.pivot(index=key, columns="style", values="expected_cost")
    latency = spending.pivot(index=key, columns="style", values="expected_latency")
    differences = {
        "steer.cost": cost["accuracy"] - cost["cost"],
        "steer.latency": latency["accuracy"] - latency["latency"],
    }
    return pd.DataFrame(differences).reset_index()


def estimate_sign_error(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate how much more is spent under the reward with the sign error than under ToolOrchestra's.

    Args:
        rows: The results table of `lab_results.make_rows`.

    Returns:
        sign_error.cost for users who care for cost only, and sign_error.latency for users who care for latency only;
        empty where the variant was not trained.
    """
    spending = results_table.select(rows, split=lab_results.STEERING)
    if SIGN_ERROR.label not in set(spending["method"]):
        return {}
    cost_users = results_table.select(spending, style="cost")
    latency_users = results_table.select(spending, style="latency")
    sign_error = SIGN_ERROR.label
    return {
        "sign_error.cost": estimate_difference(cost_users, "expected_cost", sign_error, TRAINED),
        "sign_error.latency": estimate_difference(
            latency_users, "expected_latency", sign_error, TRAINED
        ),
    }


def estimate_list_prices(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate how much better a training with varied prices adapts to an unseen price list than one at list prices.

    Args:
        rows: The results table of `lab_results.make_rows`.

    Returns:
        varied_prices.shift; empty where the variant with list prices was not trained.
    """
    prices = results_table.select(rows, split=lab_results.PRICES)
    if LIST_PRICES.label not in set(prices["method"]):
        return {}
    return {"varied_prices.shift": estimate_difference(prices, "shift", TRAINED, LIST_PRICES.label)}


def estimate_mean(rows: pd.DataFrame, column: str) -> pd.Series:
    """Estimate the mean of a column over seeds and menus, which are crossed, with its interval."""
    return stats.mean(rows, column).iloc[0]


def estimate_difference(
    rows: pd.DataFrame, column: str, treatment: str, reference: str
) -> pd.Series:
    """Estimate the difference of two methods, in pairs of the same seed and menu.

    Only seeds that both methods have are compared. A method with a single seed is a rule that is not trained, and is
    paired with every seed.

    Args:
        rows: A row per method, seed and menu (item).
        column: The measure that is compared.
        treatment: Name of the first method.
        reference: Name of the method that is subtracted.

    Returns:
        The mean difference with its interval and p value.
    """
    seeds = rows.groupby("method")["seed"].unique()
    pair: tuple[Mapping, Mapping] = {"method": treatment}, {"method": reference}
    if min(len(seeds[treatment]), len(seeds[reference])) > 1:
        shared_seeds = set(seeds[treatment]) & set(seeds[reference])
        rows = rows[rows["seed"].isin(shared_seeds)]
    return stats.paired_difference(rows, column, *pair).iloc[0]
