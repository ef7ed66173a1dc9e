"""Estimates of the appendix of lesson 06: what each part of the method is worth in the synthetic environment.

    subtract_variants           ToolOrchestra minus variants with one part changed
    estimate_malformed_calls    what the filter of malformed rollouts unlearns
    estimate_synthetic_metrics  all of it by metric key

Left out: estimates of the lab world, which are `lab_estimates`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib import stats
from lib.config import ToolSyntheticSettings
from lib.experiment import results_table
from lib.tool_orchestration.lab_estimates import MARGIN
from lib.tool_orchestration.synthetic_environment import NEWCOMER, UNSEEN_PRICES, USUAL
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
# Methods that are compared where a tool or the prices are new.
TRANSFER_BASELINES = (NAMES_ONLY, LIST_PRICES_ONLY, BEST_CONSTANT)


def select_trained(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> pd.DataFrame:
    """Select what drawn users get after the last update, under all conditions.

    Args:
        rows: Of `synthetic_benchmark.run`.
        settings: Those that the rows were made with.

    Returns:
        The rows of the split "test" whose users are drawn as in training.
    """
    return results_table.select(rows, split="test", step=settings.updates[-1], group="user")


def subtract_variants(
    rows: pd.DataFrame, column: str, variants: Sequence[str] = CHANGED_PARTS
) -> pd.DataFrame:
    """Estimate ToolOrchestra minus each variant, in pairs of the same environment, question, menu and user.

    Args:
        rows: Of one condition.
        column: What is compared.
        variants: Methods.

    Returns:
        One row for each variant.
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

    Args:
        rows: Of `synthetic_benchmark.run`.
        settings: Those that the rows were made with.

    Returns:
        Rows "failures left out", "failures kept" and "left out minus kept".
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
    """Estimate what each part of the method is worth in the synthetic environment.

    Args:
        rows: Of `synthetic_benchmark.run`.
        settings: Those that the rows were made with.

    Returns:
        By metric key: estimates, and verdicts against the margin of the lab world.
    """
    trained = select_trained(rows, settings)
    usual = results_table.select(trained, condition=USUAL)
    reward = subtract_variants(usual, "reward")
    cost = subtract_variants(usual, "cost_usd")
    verdicts = stats.verdict(reward, MARGIN)

    # What training adds to the policy that calls every tool with the same probability.
    ours = results_table.select(rows, split="test", condition=USUAL, group="user")
    ours = results_table.select(ours, method=TOOLORCHESTRA.name, step=[0, settings.updates[-1]])
    gain = stats.diff_in_diff(ours, "reward", {"role": "start"}, {"role": "paper"})

    # A user with weight 1 on cost.
    cost_users = results_table.select(
        rows, split="test", condition=USUAL, step=settings.updates[-1], item="cost 1"
    )
    more_spent = stats.paired_difference(
        cost_users, "cost_usd", {"method": SIGN_ERROR}, {"method": TOOLORCHESTRA.name}
    )

    new_tool = results_table.select(trained, condition=NEWCOMER)
    new_prices = results_table.select(trained, condition=UNSEEN_PRICES)
    called = stats.mean(new_tool, "newcomer", "method")
    under_new_prices = subtract_variants(new_prices, "reward", TRANSFER_BASELINES)
    return {
        "synthetic.gain": gain.iloc[0],
        "synthetic.sign_error": more_spent.iloc[0],
        "synthetic.batch": reward.loc[WHOLE_BATCH],
        "synthetic.batch.cost_usd": cost.loc[WHOLE_BATCH],
        "synthetic.batch_verdict": verdicts[WHOLE_BATCH],
        "synthetic.filter": reward.loc[AGREEING_KEPT],
        "synthetic.filter_verdict": verdicts[AGREEING_KEPT],
        "synthetic.failures": estimate_malformed_calls(rows, settings).iloc[-1],
        "synthetic.unseen_tools": called.loc[TOOLORCHESTRA.name],
        "synthetic.unseen_tools.names": subtract_variants(new_tool, "reward", [NAMES_ONLY]).iloc[0],
        "synthetic.unseen_prices": under_new_prices.loc[NAMES_ONLY],
        "synthetic.varied_prices": under_new_prices.loc[LIST_PRICES_ONLY],
    }
