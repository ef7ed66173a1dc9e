"""Estimates of lesson 06 and its appendix: steering, and what each part is worth, in the synthetic environment.

    estimate_spending_by_weight what is spent, by the user's weight on cost or on latency
    estimate_spending_slopes    the same as one slope for each method
    estimate_lesson_metrics     what the lesson keeps of the synthetic environment, by metric key
    subtract_variants           ToolOrchestra minus variants with one part changed
    estimate_malformed_calls    what the filter of malformed rollouts unlearns
    estimate_synthetic_metrics  what the appendix keeps of the synthetic environment, by metric key

Left out: estimates of the lab world, which are `lab_estimates`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib import stats
from lib.config import ToolSyntheticSettings
from lib.experiment import results_table
from lib.tool_orchestration.lab_estimates import MARGIN
from lib.tool_orchestration.synthetic_environment import NEW_TOOL, UNSEEN_PRICES, USUAL
from lib.tool_orchestration.synthetic_evaluation import OPTIMUM, compute_slope
from lib.tool_orchestration.synthetic_training import MALFORMED_VARIANTS, TOOLORCHESTRA

Metrics = dict[str, pd.Series | float | str]

# Variants with one part changed, and the baseline that knows the environment.
SIGN_ERROR = "sign error"
WHOLE_BATCH, AGREEING_KEPT = "whole batch", "agreeing groups kept"
NAMES_ONLY, LIST_PRICES_ONLY = "names only", "list prices only"
BEST_CONSTANT = "best constant"
CHANGED_PARTS = (
    SIGN_ERROR,
    WHOLE_BATCH,
    AGREEING_KEPT,
    NAMES_ONLY,
    LIST_PRICES_ONLY,
    BEST_CONSTANT,
)
# Methods that are compared under prices that training never had.
TRANSFER_BASELINES = (NAMES_ONLY, LIST_PRICES_ONLY, BEST_CONSTANT)
# By objective, the column of what a user spends, relative to the menu's mean tool.
SPENDING_COLUMNS = {"cost": "cost_usd", "latency": "seconds"}


# Steering ------------------------------------------------------------------------------------------


def select_users_of_grid(rows: pd.DataFrame, objective: str) -> pd.DataFrame:
    """Select the users who weigh accuracy with 1 and one objective with 0 to 1 (`list_users_of_grid`).

    Args:
        rows: Rows of the results table of `synthetic_benchmark.run`.
        objective: "cost" or "latency".

    Returns:
        The rows of these users. The one with weight 0 weighs accuracy alone and stands in both grids; it is called
        "cost 0".
    """
    weighs_objective = rows["group"] == objective
    weighs_accuracy_alone = rows["item"] == "cost 0"
    return rows[weighs_objective | weighs_accuracy_alone]


def estimate_spending_by_weight(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate what is spent on an objective, by the user's weight on it.

    Args:
        rows: Rows of the results table at one step and under one condition.

    Returns:
        A row of `stats.mean` for each objective, method and weight; cost and latency are relative to the menu's mean
        tool.
    """
    spending = {}
    for objective, column in SPENDING_COLUMNS.items():
        users = select_users_of_grid(rows, objective)
        spending[f"weight on {objective}"] = stats.mean(users, column, ["method", "weight"])
    return pd.concat(spending, names=["objective"])


def estimate_spending_slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate how spending on an objective changes as the user's weight on it rises from 0 to 1.

    Args:
        rows: Rows of the results table at one step and under one condition.

    Returns:
        A row of `stats.statistic` for each objective ("weight on") and method: the slope of the least-squares line,
        below 0 where spending falls.
    """
    slopes = {}
    for objective, column in SPENDING_COLUMNS.items():
        users = select_users_of_grid(rows, objective)
        slopes[objective] = stats.statistic(users, ["weight", column], compute_slope, "method")
    return pd.concat(slopes, names=["weight on"])


def estimate_lesson_metrics(rows: pd.DataFrame) -> Metrics:
    """Estimate what lesson 06 keeps of the synthetic environment.

    Args:
        rows: Rows of the results table after the last update, under usual menus.

    Returns:
        By metric key, an estimate:
        headroom            reward of the optimum minus that of the best constant
        above_constant      reward of ToolOrchestra minus that of the best constant
        regret              largest expected utility of a menu minus ToolOrchestra's
        steer.cost, steer.latency               slopes of spending of ToolOrchestra (`estimate_spending_slopes`)
        sign_error.cost, sign_error.latency     the same of the sign error
        All keys begin with "synthetic.".
    """
    drawn_users = results_table.select(rows, group="user")
    constant = {"method": BEST_CONSTANT}
    trained = {"method": TOOLORCHESTRA.name}
    optimum = {"method": OPTIMUM}
    headroom = stats.paired_difference(drawn_users, "reward", optimum, constant)
    above_constant = stats.paired_difference(drawn_users, "reward", trained, constant)
    regret = stats.mean(drawn_users, "regret", "method")
    metrics: Metrics = {
        "synthetic.headroom": headroom.iloc[0],
        "synthetic.above_constant": above_constant.iloc[0],
        "synthetic.regret": regret.loc[TOOLORCHESTRA.name],
    }
    slopes = estimate_spending_slopes(rows)
    for objective in SPENDING_COLUMNS:
        metrics[f"synthetic.steer.{objective}"] = slopes.loc[(objective, TOOLORCHESTRA.name)]
        metrics[f"synthetic.sign_error.{objective}"] = slopes.loc[(objective, SIGN_ERROR)]
    return metrics


# Parts of the method -------------------------------------------------------------------------------


def select_trained(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> pd.DataFrame:
    """Select the rows of randomly drawn users after the last update, under all conditions.

    Args:
        rows: The results table of `synthetic_benchmark.run`.
        settings: The settings of the synthetic environment that the table was made with.

    Returns:
        The rows of the split "test" whose users are drawn as in training.
    """
    return results_table.select(rows, split="test", step=settings.updates[-1], group="user")


def subtract_variants(
    rows: pd.DataFrame, column: str, variants: Sequence[str] = CHANGED_PARTS
) -> pd.DataFrame:
    """Estimate ToolOrchestra minus each variant, in pairs of the same environment, question, menu and user.

    Args:
        rows: Rows of the results table under one condition.
        column: The measure that is compared, such as "reward".
        variants: Names of the methods that are subtracted.

    Returns:
        One row for each variant, which is the index: the mean difference, its interval and its p value, with the
        columns of `stats.paired_difference`.
    """
    treatment = {"method": TOOLORCHESTRA.name}
    differences = []
    for variant in variants:
        differences.append(
            stats.paired_difference(rows, column, treatment, {"method": variant}).iloc[0]
        )
    return pd.DataFrame(differences, index=list(variants)).infer_objects()


def estimate_malformed_calls(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> pd.DataFrame:
    """Estimate the probability of a malformed call after training with and without the filter.

    "Failures" are rollouts with a malformed call. ToolOrchestra leaves them out of the training, so that nothing
    lowers their probability.

    Args:
        rows: The results table of `synthetic_benchmark.run`.
        settings: The settings of the synthetic environment that the table was made with.

    Returns:
        Three rows of estimates, indexed "failures left out" and "failures kept" (mean probabilities), and "left out
        minus kept" (their paired difference).
    """
    left_out, kept = (variant.name for variant in MALFORMED_VARIANTS)
    selected = results_table.select(
        rows,
        split="test",
        condition=USUAL,
        step=settings.malformed_updates,
        method=[left_out, kept],
        group="user",
    )
    column = "malformed_probability"
    difference = stats.paired_difference(selected, column, {"method": left_out}, {"method": kept})
    means = stats.mean(selected, column, "method")
    return pd.concat([means, difference.set_axis(["left out minus kept"])])


def estimate_synthetic_metrics(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> Metrics:
    """Estimate what each part of ToolOrchestra contributes in the synthetic environment.

    Every difference is paired: the same environment (seed), menus and users. Rewards are expected utilities, costs are
    relative to the mean tool of the menu.

    Args:
        rows: The results table of `synthetic_benchmark.run`.
        settings: The settings of the synthetic environment that the table was made with.

    Returns:
        By metric key, an estimate (a row of `stats.mean` or `stats.paired_difference`) or a verdict (text):
        gain                      reward after training minus before
        sign_error                cost for a user with weight 1 on cost: trained with the sign error minus without it
        batch, batch.cost_usd     reward, and cost: normalized within groups minus over the whole batch
        filter                    reward: agreeing groups left out minus kept
        ..._verdict               whether that difference of rewards is equivalent to 0 within MARGIN
        failures                  probability of a malformed call: malformed rollouts left out minus kept
        unseen_tools              called held-out tools where they are best, minus where they are not
        unseen_tools.names        reward with a held-out tool on the menu: reading descriptions minus names only
        unseen_prices             reward under unseen prices: reading descriptions minus names only
        varied_prices             reward under unseen prices: varied prices in training minus list prices only
        All keys begin with "synthetic.".
    """
    metrics: Metrics = {}
    trained = select_trained(rows, settings)
    at_usual_menus = results_table.select(trained, condition=USUAL)
    with_new_tool = results_table.select(trained, condition=NEW_TOOL)
    at_unseen_prices = results_table.select(trained, condition=UNSEEN_PRICES)

    # Training, against the initial policy, which calls every tool with the same probability.
    before_and_after = results_table.select(
        rows,
        split="test",
        condition=USUAL,
        group="user",
        method=TOOLORCHESTRA.name,
        step=[0, settings.updates[-1]],
    )
    gain = stats.diff_in_diff(before_and_after, "reward", {"role": "start"}, {"role": "paper"})
    metrics["synthetic.gain"] = gain.iloc[0]

    # The sign error in the normalization, where it matters most: for a user with weight 1 on cost.
    cost_users = results_table.select(
        rows, split="test", condition=USUAL, step=settings.updates[-1], item="cost 1"
    )
    additional_cost = stats.paired_difference(
        cost_users, "cost_usd", {"method": SIGN_ERROR}, {"method": TOOLORCHESTRA.name}
    )
    metrics["synthetic.sign_error"] = additional_cost.iloc[0]

    # Over which rollouts outcomes are normalized, and whether groups whose rewards agree are left out.
    reward_differences = subtract_variants(at_usual_menus, "reward")
    cost_differences = subtract_variants(at_usual_menus, "cost_usd")
    verdicts = stats.verdict(reward_differences, MARGIN)
    metrics["synthetic.batch"] = reward_differences.loc[WHOLE_BATCH]
    metrics["synthetic.batch.cost_usd"] = cost_differences.loc[WHOLE_BATCH]
    metrics["synthetic.batch_verdict"] = verdicts[WHOLE_BATCH]
    metrics["synthetic.filter"] = reward_differences.loc[AGREEING_KEPT]
    metrics["synthetic.filter_verdict"] = verdicts[AGREEING_KEPT]

    # The filter of malformed rollouts; the last row is the difference.
    metrics["synthetic.failures"] = estimate_malformed_calls(rows, settings).iloc[-1]

    # A tool that was on no menu in training.
    new_tool_calls = stats.mean(with_new_tool, "newcomer", "method")
    reward_over_names = subtract_variants(with_new_tool, "reward", [NAMES_ONLY])
    metrics["synthetic.unseen_tools"] = new_tool_calls.loc[TOOLORCHESTRA.name]
    metrics["synthetic.unseen_tools.names"] = reward_over_names.iloc[0]

    # Prices that were on no menu in training.
    reward_over_baselines = subtract_variants(at_unseen_prices, "reward", TRANSFER_BASELINES)
    metrics["synthetic.unseen_prices"] = reward_over_baselines.loc[NAMES_ONLY]
    metrics["synthetic.varied_prices"] = reward_over_baselines.loc[LIST_PRICES_ONLY]
    return metrics
