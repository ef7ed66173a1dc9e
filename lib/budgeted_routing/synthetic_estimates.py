"""What lesson 05 measures in CoRL's synthetic environment, whose optimum is computed, by metric key.

    synthetic.BUDGET.headroom     reward of the optimum minus that of the best strategy that does not read the query
    synthetic.BUDGET.gain         reward of trained controllers minus that of their start, both sampled
    synthetic.BUDGET.regret       reward of the optimum minus that of trained controllers
    synthetic.BUDGET.minus_...    reward of trained controllers minus that of baselines
    synthetic.BUDGET.over_budget  share of episodes whose calls cost more than the budget
    synthetic.order.MORE_LESS.QUANTITY    what training adds to the difference between two budgets (cost_usd, calls)
    synthetic.part.BUDGET.PART    reward of CoRL minus that of the same training with one part changed

Seeds are environments of their own; all differences are taken inside one, on the same queries.
"""

import pandas as pd

from lib import stats
from lib.budgeted_routing.synthetic_benchmark import INITIAL_POLICY
from lib.budgeted_routing.synthetic_environment import BUDGETS
from lib.budgeted_routing.synthetic_strategies import (
    BEST_CONSTANT,
    BEST_WITHOUT_QUERY,
    OPTIMUM,
)
from lib.budgeted_routing.synthetic_training import ABLATIONS, CORL
from lib.config import RoutingSyntheticSettings
from lib.experiment import results_table
from lib.stats.verdicts import NOT_OPEN

EQUIVALENCE_MARGIN = 0.02  # of rewards; fixed before the run


def select_final_rows(rows: pd.DataFrame, settings: RoutingSyntheticSettings) -> pd.DataFrame:
    """Selects the rows of finished trainings and of baselines at the central grid point.

    Args:
        rows: Rows of the results table of the synthetic environment, at all grid points (settings of complementarity,
            spread and noise) and training steps.
        settings: `central` has the central values of complementarity, spread and noise.

    Returns:
        The selected rows.
    """
    return results_table.select(rows, step=results_table.AFTER, **settings.central)


def estimate_reward_differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates, by budget, what choosing per query can gain, what training gains, and what is lost to the optimum.

    Differences of mean reward (correct and within the budget) are taken inside an environment:
    headroom: optimum minus the best strategy that does not read the query; what choosing could gain;
    gain: CoRL after training minus its start, both sampled;
    regret: optimum minus CoRL;
    minus_best_constant, minus_best_without_query: CoRL minus the baseline;
    minus_hull: accuracy of CoRL minus that of a random mixture of single strategies at the same mean cost.

    Args:
        rows: Rows of `select_final_rows`.

    Returns:
        A row per quantity and condition (budget word: low, medium, high): the columns of `lib.stats` (value, ci_low,
        ci_high, ...) and verdict. Where the headroom is less than .05 (`lib.stats.MIN_HEADROOM`), the verdicts on CoRL
        minus baselines are "not open": too little could be gained to tell methods apart.
    """
    greedy = results_table.select(rows, temperature=0.0)
    sampled = results_table.select(rows, temperature=1.0)

    # (rows, minuend, subtrahend) of every difference.
    compared = {
        "headroom": (greedy, OPTIMUM, BEST_WITHOUT_QUERY),
        "gain": (sampled, CORL.name, INITIAL_POLICY),
        "regret": (greedy, OPTIMUM, CORL.name),
        "minus_best_constant": (greedy, CORL.name, BEST_CONSTANT),
        "minus_best_without_query": (greedy, CORL.name, BEST_WITHOUT_QUERY),
    }
    estimates = {}
    for quantity, (method_rows, method, baseline) in compared.items():
        differences = stats.paired_difference(
            method_rows, "reward", {"method": method}, {"method": baseline}, "condition"
        )
        estimates[quantity] = differences.loc[list(BUDGETS)]
    mixtures = stats.gain_over_mixture(
        greedy,
        "correct",
        "cost_usd",
        {"method": CORL.name},
        {"role": ["expert", "constant"]},
        "condition",
    )
    estimates["minus_hull"] = mixtures.loc[list(BUDGETS)]
    table = pd.concat(estimates, names=["quantity"])
    table["verdict"] = stats.verdict(table)

    # Without headroom a comparison with baselines says nothing.
    is_open = stats.is_open(estimates["headroom"])
    for budget in BUDGETS:
        if not is_open[budget]:
            for quantity in ("minus_best_constant", "minus_best_without_query", "minus_hull"):
                table.loc[(quantity, budget), "verdict"] = NOT_OPEN
    return table


def estimate_overspending(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates the share of episodes whose calls cost more than the budget, of CoRL and of the optimum.

    Args:
        rows: Rows of `select_final_rows`.

    Returns:
        A row per method and condition (budget word), with the columns of `lib.stats` (value, ci_low, ci_high, ...).
    """
    greedy = results_table.select(rows, temperature=0.0, method=[CORL.name, OPTIMUM])
    overspending = greedy.assign(over_budget=1.0 - greedy["within"])
    return stats.mean(overspending, "over_budget", ["method", "condition"], bounds=stats.UNIT)


def estimate_budget_response(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates what training adds to the difference in spending and calls between two budgets.

        (CoRL under the larger budget - CoRL under the smaller) - (the same of the start, before training)

    Args:
        rows: Rows of `select_final_rows`.

    Returns:
        A row per pair of budgets, "medium_low" or "high_medium", and quantity, cost_usd or calls: the columns of
        `lib.stats` (value, ci_low, ci_high, ...) and verdict.
    """
    sampled = results_table.select(rows, temperature=1.0)
    column_by_quantity = {"cost_usd": "cost_usd", "calls": "mean_calls"}
    estimates = {}
    for larger, smaller in (("medium", "low"), ("high", "medium")):
        pair_rows = results_table.select(sampled, condition=[larger, smaller])
        for quantity, column in column_by_quantity.items():
            estimates[f"{larger}_{smaller}", quantity] = stats.diff_in_diff(
                pair_rows,
                column,
                before={"method": INITIAL_POLICY},
                after={"method": CORL.name},
                baseline={"condition": smaller},
            ).iloc[0]
    table = pd.DataFrame(estimates).T.infer_objects().rename_axis(["budgets", "quantity"])
    table["verdict"] = stats.verdict(table)
    return table


def estimate_ablations(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates what each part of the training is worth: reward of CoRL minus that of CoRL with one part changed.

    Args:
        rows: Rows of `select_final_rows`.

    Returns:
        A row per changed part, such as "budget not in the prompt", and condition (budget word): the columns of
        `lib.stats` (value, ci_low, ci_high, ...) and verdict; differences within EQUIVALENCE_MARGIN are equivalent.
    """
    greedy = results_table.select(rows, temperature=0.0)
    estimates = {}
    for variant in ABLATIONS:
        estimates[variant.name] = stats.paired_difference(
            greedy, "reward", {"method": CORL.name}, {"method": variant.name}, "condition"
        )
    table = pd.concat(estimates, names=["changed"])
    table["verdict"] = stats.verdict(table, EQUIVALENCE_MARGIN)
    return table


def collect_estimates(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Collects all estimates of the synthetic environment by metric key.

    Args:
        rows: Rows of `select_final_rows`.

    Returns:
        Rows of `lib.stats` (value, ci_low, ci_high, ..., verdict where there is one) by keys such as
        "synthetic.low.gain"; the module lists them.
    """
    estimates = {}
    for (quantity, budget), row in estimate_reward_differences(rows).iterrows():
        estimates[f"synthetic.{budget}.{quantity}"] = row
    for (method, budget), row in estimate_overspending(rows).iterrows():
        if method == CORL.name:
            estimates[f"synthetic.{budget}.over_budget"] = row
    for (budgets, quantity), row in estimate_budget_response(rows).iterrows():
        estimates[f"synthetic.order.{budgets}.{quantity}"] = row
    for (changed, budget), row in estimate_ablations(rows).iterrows():
        estimates[f"synthetic.part.{budget}.{changed.replace(' ', '_')}"] = row
    return estimates
