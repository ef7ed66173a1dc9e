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
_CORL = {"method": CORL.name}


def select_final_rows(rows: pd.DataFrame, settings: RoutingSyntheticSettings) -> pd.DataFrame:
    """The rows of finished trainings and of baselines at the central grid point."""
    return results_table.select(rows, step=results_table.AFTER, **settings.central)


def estimate_gates(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate what choosing can gain, what training gains, and what is lost against the optimum, by budget.

    Args:
        rows: Of `select_final_rows`.

    Returns:
        Estimates with verdicts by quantity and budget. Where the headroom is below `stats.MIN_HEADROOM`, differences
        from baselines are "not open".
    """
    greedy = results_table.select(rows, temperature=0.0)
    sampled = results_table.select(rows, temperature=1.0)
    optimum = {"method": OPTIMUM}
    quantities = {
        "headroom": (greedy, optimum, {"method": BEST_WITHOUT_QUERY}),
        "gain": (sampled, _CORL, {"method": INITIAL_POLICY}),
        "regret": (greedy, optimum, _CORL),
        "minus_best_constant": (greedy, _CORL, {"method": BEST_CONSTANT}),
        "minus_best_without_query": (greedy, _CORL, {"method": BEST_WITHOUT_QUERY}),
    }
    blocks = {
        name: stats.paired_difference(part, "reward", first, second, "condition").loc[list(BUDGETS)]
        for name, (part, first, second) in quantities.items()
    }
    is_open = stats.is_open(blocks["headroom"])
    table = pd.concat(blocks, names=["quantity"])
    table["verdict"] = stats.verdict(table)
    names = table.index.get_level_values("quantity")
    needs_headroom = names.str.startswith("minus_")
    is_closed = ~table.index.get_level_values("condition").map(is_open).astype(bool)
    table.loc[needs_headroom & is_closed, "verdict"] = NOT_OPEN
    return table


def estimate_overspending(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate the share of episodes over the budget, of trained controllers and of the optimum, by budget.

    Args:
        rows: Of `select_final_rows`.

    Returns:
        Estimates by method and budget.
    """
    greedy = results_table.select(rows, temperature=0.0, method=[CORL.name, OPTIMUM])
    overspending = greedy.assign(over_budget=1.0 - greedy["within"])
    return stats.mean(overspending, "over_budget", ["method", "condition"], bounds=stats.UNIT)


def estimate_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate what training adds to the difference in spending and calls between two budgets.

    Args:
        rows: Of `select_final_rows`.

    Returns:
        Estimates with verdicts by pair of budgets, such as "medium_low", and quantity.
    """
    sampled = results_table.select(rows, temperature=1.0)
    estimates = {}
    for more, less in (("medium", "low"), ("high", "medium")):
        both = results_table.select(sampled, condition=[more, less])
        for quantity, column in (("cost_usd", "cost_usd"), ("calls", "mean_calls")):
            estimates[f"{more}_{less}", quantity] = stats.diff_in_diff(
                both,
                column,
                before={"method": INITIAL_POLICY},
                after=_CORL,
                baseline={"condition": less},
            ).iloc[0]
    table = pd.DataFrame(estimates).T.infer_objects().rename_axis(["budgets", "quantity"])
    table["verdict"] = stats.verdict(table)
    return table


def estimate_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate what each part of the training is worth: reward of CoRL minus that with one part changed.

    Args:
        rows: Of `select_final_rows`.

    Returns:
        Estimates with verdicts by changed part and budget.
    """
    greedy = results_table.select(rows, temperature=0.0)
    blocks = {}
    for variant in ABLATIONS:
        pair = _CORL, {"method": variant.name}
        blocks[variant.name] = stats.paired_difference(greedy, "reward", *pair, "condition")
    table = pd.concat(blocks, names=["changed"])
    table["verdict"] = stats.verdict(table, EQUIVALENCE_MARGIN)
    return table


def collect_estimates(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimates of the environment by metric key, with verdicts as `KEY_verdict`.

    Args:
        rows: Of `select_final_rows`.
    """
    estimates = {}
    for (name, budget), row in estimate_gates(rows).iterrows():
        estimates[f"synthetic.{budget}.{name}"] = row
    for (method, budget), row in estimate_overspending(rows).iterrows():
        if method == CORL.name:
            estimates[f"synthetic.{budget}.over_budget"] = row
    for (budgets, quantity), row in estimate_order(rows).iterrows():
        estimates[f"synthetic.order.{budgets}.{quantity}"] = row
    for (changed, budget), row in estimate_parts(rows).iterrows():
        estimates[f"synthetic.part.{budget}.{changed.replace(' ', '_')}"] = row
    return estimates
