"""What the appendix of lesson 05 measures, by metric key: the same of a reader's run and of the recorded full run.

    splitting.BUDGET.phrasing         reward of CoRL minus that of the same training with the user's question passed on
    splitting.BUDGET.gain             minus that of its start
    splitting.BUDGET.minus_one_call   minus that of the best single call, chosen in hindsight
    splitting.BUDGET.written          share of the questions with a query that the controller wrote
    samples.WORLD.BUDGET.reward       of CoRL, mean of several samples of every answer
    samples.WORLD.BUDGET.minus_...    the same minus the reward of a baseline

BUDGET is low, medium or high. Differences are paired by seed and question.
"""

import pandas as pd

from lib import stats
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.lesson_estimates import BASELINES, CORL, PREFIXES, Estimates
from lib.budgeted_routing.variants import (
    FIXED_BUDGET_VARIANTS,
    MEAN_OF_SAMPLES,
    QUESTION_PASSED_ON,
)
from lib.budgeted_routing.worlds import SPLITTING
from lib.config import RoutingSettings
from lib.experiment import results_table
from lib.rl.call_protocol import BUDGET_WORDS

MILLION = 1e6
# What CoRL is compared with where a query can pay: the end of a metric key, and the method.
SPLITTING_BASELINES = {
    "phrasing": QUESTION_PASSED_ON.label,
    "gain": START,
    "minus_logistic": "logistic",
    "minus_one_call": "oracle",  # the best single call in hindsight
}
SAMPLES_BASELINES = ("best_constant", "logistic")
FIXED_LABELS = tuple(variant.label for variant in FIXED_BUDGET_VARIANTS)


def collect_estimates(rows: pd.DataFrame, settings: RoutingSettings) -> Estimates:
    """Estimate everything that the appendix measures on test questions.

    Args:
        rows: Rows of `appendix_run.make_rows`, or of the recorded full run.
        settings: CoRL's settings; the temperature of tests is read.

    Returns:
        Estimates by metric key. Samples are in the full run only.
    """
    estimates = {}
    tests = results_table.select(rows, split="test", style="soft")
    greedy = results_table.select(tests, world=SPLITTING, temperature=settings.test_temperature)
    for budget in BUDGET_WORDS:
        budget_rows = results_table.select(greedy, condition=budget)
        for key, baseline in SPLITTING_BASELINES.items():
            estimates[f"splitting.{budget}.{key}"] = stats.paired_difference(
                budget_rows, "reward", {"method": CORL}, {"method": baseline}
            ).iloc[0]
        corl_rows = results_table.select(budget_rows, method=CORL)
        has_query = (corl_rows["written_queries"] > 0).astype(float)
        estimates[f"splitting.{budget}.written"] = stats.mean(
            corl_rows.assign(has_query=has_query), "has_query", bounds=stats.UNIT
        ).iloc[0]
    return estimates | estimate_samples(tests)


def estimate_samples(tests: pd.DataFrame) -> Estimates:
    """Estimate CoRL's reward as the mean of several samples, and the same minus that of baselines.

    Args:
        tests: Test rows with soft prompts.

    Returns:
        Estimates by metric key; none where no rows are of MEAN_OF_SAMPLES.
    """
    estimates = {}
    for world, prefix in PREFIXES.items():
        sampled = results_table.select(tests, world=world, method=MEAN_OF_SAMPLES.label)
        if sampled.empty:
            continue
        # One row per question: the mean over its samples.
        unit = ["seed", "item", "condition"]
        rewards = sampled.groupby(unit, as_index=False, sort=False)["reward"].mean()
        rewards = rewards.assign(method=MEAN_OF_SAMPLES.label, sample=0)
        columns = [*unit, "method", "sample", "reward"]
        baselines = results_table.select(tests, world=world, role=["constant", "router"])
        compared = pd.concat([rewards[columns], baselines[columns]], ignore_index=True)
        for budget in BUDGET_WORDS:
            budget_rows = results_table.select(compared, condition=budget)
            name = f"samples.{prefix}.{budget}"
            mean_rows = results_table.select(budget_rows, method=MEAN_OF_SAMPLES.label)
            estimates[f"{name}.reward"] = stats.mean(mean_rows, "reward").iloc[0]
            for key in SAMPLES_BASELINES:
                estimates[f"{name}.minus_{key}"] = stats.paired_difference(
                    budget_rows,
                    "reward",
                    {"method": MEAN_OF_SAMPLES.label},
                    {"method": BASELINES[key]},
                ).iloc[0]
    return estimates


def trace_fixed_budgets(rows: pd.DataFrame, num_bins: int = 10) -> pd.DataFrame:
    """Trace trainings of language models whose episodes all have one budget (CoRL, Figures 4 to 7).

    Args:
        rows: Rows of `appendix_run.make_rows`, training episodes among them.
        num_bins: Successive updates are averaged, so many bins for the whole training.

    Returns:
        A row per method, seed, bin and quantity: method, seed, update (the last one of the bin), measured (calls,
        correct answers, within the budget, or $ per million questions) and mean.
    """
    training = results_table.select(rows, split="train", method=list(FIXED_LABELS))
    updates_per_bin = max(1, (int(training["step"].max()) + 1) // num_bins)
    last_update = (training["step"] // updates_per_bin + 1) * updates_per_bin
    column_by_label = {
        "calls per question": training["calls"],
        "correct answers": training["correct"],
        "within the budget": training["within"],
        "$ per million questions": MILLION * training["cost_usd"],
    }
    table = training[["method", "seed"]].assign(update=last_update, **column_by_label)
    keys = ["method", "seed", "update"]
    means = table.groupby(keys, as_index=False, sort=False)[list(column_by_label)].mean()
    return means.melt(id_vars=keys, var_name="measured", value_name="mean")


def tabulate_fixed_budgets(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate what a training with one budget ends with, on test questions under that budget.

    Args:
        rows: Rows of `appendix_run.make_rows`, or of the recorded full run.

    Returns:
        A row per budget, with means over seeds and questions: calls, correct, within, dollars per million questions and
        reward.
    """
    tests = results_table.select(rows, split="test", method=list(FIXED_LABELS))
    table = tests.assign(usd_per_million=MILLION * tests["cost_usd"])
    columns = ["calls", "correct", "within", "usd_per_million", "reward"]
    means = table.groupby("condition")[columns].mean().reindex(list(BUDGET_WORDS))
    return means.rename_axis("the only budget")
