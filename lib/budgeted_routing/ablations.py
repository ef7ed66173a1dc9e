"""Ablations of CoRL: how the budget is put into words, what its parts are worth, and what a single budget teaches."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lib.budgeted_routing import experiment, synthetic_benchmark, synthetic_job, synthetic_training
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.variants import VARIANTS_BY_NAME
from lib.config import Params
from lib.experiment import results_table
from lib.stats.ablation_comparison import Comparison, Measure

MILLION = 1e6
REWARD = Measure("reward", "reward")
ACCURACY = Measure("correct", "accuracy")
COST = Measure("cost_usd", "$ per million questions", "lower")
CALLS = Measure("calls", "calls", "")
# Of rows of the synthetic environment, which have means over queries.
SYNTHETIC_MEASURES = (
    REWARD,
    ACCURACY,
    Measure("within", "share within the budget"),
    Measure("cost_usd", "price of its calls", "lower"),
    Measure("mean_calls", "calls", ""),
    Measure("mean_expensive_calls", "calls of the most expensive expert", ""),
)


def compare_prompts(params: Params, results: experiment.BudgetedRoutingResults) -> Comparison:
    """Compare soft prompts, which name the budget, with hard ones, which also say what to do under it.

    Each before and after training, under the low budget: is it the words or the reward that saves money?

    Args:
        params: Says which models stand behind the experts.
        results: Of `run_controllers`.
    """
    methods = {
        "soft, start": (START, "soft"),
        "hard, start": (START, "hard"),
        "soft, trained": ("corl", "soft"),
        "hard, trained": ("hard", "hard"),
    }
    tables = []
    for variant, (method, style) in methods.items():
        rows = select_tests(results, method, style, "low")
        tables.append(rows.assign(variant=variant))
    baselines = {
        "hard, start": "soft, start",
        "soft, trained": "soft, start",
        "hard, trained": "hard, start",
    }
    return Comparison(
        "corl_prompt",
        "how the low budget is put into words",
        pd.concat(tables, ignore_index=True),
        baselines,
        (CALLS, COST, REWARD, ACCURACY),
        params.llm.describe_backend(params.routing.experts.values()),
    )


def compare_budgets(params: Params, results: experiment.BudgetedRoutingResults) -> Comparison:
    """Compare the high budget with the low one, after training under soft and under hard prompts (Figure 3).

    Args:
        params: Says which models stand behind the experts.
        results: Of `run_controllers`.
    """
    tables = []
    baselines = {}
    for style, method in {"soft": "corl", "hard": "hard"}.items():
        for budget in ("low", "high"):
            rows = select_tests(results, method, style, budget)
            tables.append(rows.assign(variant=f"{style}, {budget}"))
        baselines[f"{style}, high"] = f"{style}, low"
    return Comparison(
        "corl_budgets",
        "the budget, by style of prompt",
        pd.concat(tables, ignore_index=True),
        baselines,
        (CALLS, COST, ACCURACY),
        params.llm.describe_backend(params.routing.experts.values()),
    )


def compare_fixed_budgets(rows: pd.DataFrame) -> dict[str, Comparison]:
    """Trainings with one budget for all episodes, which is not in the prompt, in lesson 05's synthetic environment.

    Args:
        rows: The results table `corl_synthetic` at the central grid point.

    Returns:
        `low` and `high`: a training with that budget beside the initial policy under it; `both`: the training with the
        high budget beside that with the low one. All at temperature 1.

    Source: CoRL, section 5.
    """
    rows = rows[(rows["step"] == results_table.AFTER) & (rows["temperature"] == 1.0)]
    start = rows[rows["role"] == "start"]
    comparisons = {}
    trained_by_budget = {}
    for variant in synthetic_training.FIXED_BUDGET_VARIANTS:
        budget = variant.fixed_budget
        trained = rows[(rows["method"] == variant.name) & (rows["condition"] == budget)]
        trained_by_budget[f"{budget} budget"] = trained
        comparisons[budget] = _compare_synthetic(
            f"corl_fixed.{budget}",
            f"a {budget} budget that never changes",
            {"start": start[start["condition"] == budget], "trained": trained},
            {"trained": "start"},
        )
    comparisons["both"] = _compare_synthetic(
        "corl_fixed",
        "which budget never changes",
        trained_by_budget,
        {"high budget": "low budget"},
    )
    return comparisons


def compare_parts(rows: pd.DataFrame) -> Comparison:
    """CoRL without the budget in its prompt, without it in the reward, and with advantages whitened over all budgets.

    In lesson 05's synthetic environment, at temperature 0, as means over all budgets.

    Args:
        rows: The results table `corl_synthetic` at the central grid point.
    """
    rows = rows[(rows["step"] == results_table.AFTER) & (rows["temperature"] == 0.0)]
    corl_name = synthetic_training.CORL.name
    ablated_names = [variant.name for variant in synthetic_training.ABLATIONS]
    rows = rows[rows["method"].isin([corl_name, *ablated_names])]
    return _compare_synthetic(
        "corl_parts",
        "the budget in prompt, reward and advantages",
        dict(iter(rows.groupby("method", sort=False))),
        dict.fromkeys(ablated_names, corl_name),
    )


def _compare_synthetic(
    name: str,
    about: str,
    rows_by_variant: Mapping[str, pd.DataFrame],
    baselines: Mapping[str, str],
) -> Comparison:
    """Compares variants in the synthetic environment, where a seed is an environment with a row for every budget.

    Args:
        name: The prefix of the metrics.
        about: What is changed.
        rows_by_variant: Rows of the results table.
        baselines: The variant that each other one is compared with.
    """
    columns = [measure.column for measure in SYNTHETIC_MEASURES]
    means = []
    for variant, rows in rows_by_variant.items():
        mean_by_seed = rows.groupby("seed")[columns].mean()
        means.append(mean_by_seed.assign(variant=variant))
    frame = pd.concat(means).reset_index()
    frame["unit"] = frame["seed"]
    return Comparison(name, about, frame, baselines, SYNTHETIC_MEASURES, "policy")


def select_tests(
    results: experiment.BudgetedRoutingResults, method: str, style: str, budget: str
) -> pd.DataFrame:
    """Select test episodes without sampling, of the seeds that all methods have.

    Args:
        results: Of `run_controllers`.
        method: START or the name of a variant.
        style: Of the prompt.
        budget: A budget word.

    Returns:
        Episodes with the column unit (the question) and costs in US dollars per million questions.
    """
    episodes = results.episodes
    last_seed = episodes.loc[episodes["method"] == "hard", "seed"].max()
    is_selected = (
        (episodes["method"] == method)
        & (episodes["style"] == style)
        & (episodes["condition"] == budget)
        & (episodes["seed"] <= last_seed)
    )
    rows = episodes[is_selected]
    rows = rows[rows["temperature"] == rows["temperature"].min()]
    return rows.assign(unit=rows["item"], cost_usd=rows["cost_usd"] * MILLION)


def read_synthetic_rows(params: Params, runs: str | Path = synthetic_job.RUNS) -> pd.DataFrame:
    """The results table of lesson 05's synthetic environment at its central grid point.

    The job behind it is run by lesson 05 or 09, whichever comes first.

    Args:
        params: All settings.
        runs: Folder of the job.
    """
    rows = synthetic_job.run(params.routing, runs)
    results = results_table.make_results(synthetic_benchmark.SYSTEM, rows)
    return results_table.select(results, **params.routing.synthetic.central)


def run_controllers(params: Params, **folders: str | Path) -> experiment.BudgetedRoutingResults:
    """Run the trainings of lesson 05 that the ablations are about, as far as they are not done yet.

    Args:
        params: All settings.
        folders: models and runs, as `experiment.run` takes them.
    """
    compared = [VARIANTS_BY_NAME[name] for name in ("corl", "hard")]
    return experiment.run(params, compared, **folders)
