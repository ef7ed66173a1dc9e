"""Ablations of CoRL: how its budget is put into words, what its parts are worth, and what one budget for all
teaches."""

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
RIGHT = Measure("correct", "accuracy")
MONEY = Measure("cost_usd", "$ per million questions", "lower")
CALLS = Measure("calls", "calls", "")
# Of rows of the synthetic environment, which have means over queries.
SYNTHETIC_MEASURES = (
    REWARD,
    RIGHT,
    Measure("within", "share within the budget"),
    Measure("cost_usd", "price of its calls", "lower"),
    Measure("mean_calls", "calls", ""),
    Measure("mean_expensive_calls", "calls of the most expensive expert", ""),
)


def prompts(params: Params, results: experiment.BudgetedRoutingResults) -> Comparison:
    """Soft prompts name the budget, hard ones also say what to do under it. Each before and after training, on
    questions with the low budget: is it the words or the reward that saves?"""
    arms = {
        ("soft", "start"): START,
        ("hard", "start"): START,
        ("soft", "trained"): "corl",
        ("hard", "trained"): "hard",
    }
    parts = [
        _tests(results, method, style, "low").assign(variant=f"{style}, {when}")
        for (style, when), method in arms.items()
    ]
    against = {
        "hard, start": "soft, start",
        "soft, trained": "soft, start",
        "hard, trained": "hard, start",
    }
    frame = pd.concat(parts, ignore_index=True)
    return Comparison(
        "corl_prompt",
        "how the low budget is put",
        frame,
        against,
        (CALLS, MONEY, REWARD, RIGHT),
        params.llm.describe_backend(params.routing.experts.values()),
    )


def budgets(params: Params, results: experiment.BudgetedRoutingResults) -> Comparison:
    """Trained under soft and under hard prompts: the high budget held against the low one (Figure 3)."""
    arms = {"soft": "corl", "hard": "hard"}
    parts = [
        _tests(results, method, style, word).assign(variant=f"{style}, {word}")
        for style, method in arms.items()
        for word in ("low", "high")
    ]
    against = {f"{style}, high": f"{style}, low" for style in arms}
    frame = pd.concat(parts, ignore_index=True)
    return Comparison(
        "corl_budgets",
        "the budget, by prompt",
        frame,
        against,
        (CALLS, MONEY, RIGHT),
        params.llm.describe_backend(params.routing.experts.values()),
    )


def fixed(rows: pd.DataFrame) -> dict[str, Comparison]:
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


def parts(rows: pd.DataFrame) -> Comparison:
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


def _tests(
    results: experiment.BudgetedRoutingResults, method: str, style: str, word: str | None
) -> pd.DataFrame:
    """Test episodes without dice, of the seeds that every method has."""
    part = results.episodes[results.episodes["method"] == method]
    part = part[
        part["seed"] <= results.episodes.loc[results.episodes["method"] == "hard", "seed"].max()
    ]
    part = part[(part["temperature"] == part["temperature"].min()) & (part["style"] == style)]
    if word is not None:
        part = part[part["condition"] == word]
    return part.assign(unit=part["item"], cost_usd=part["cost_usd"] * MILLION)


def play_synthetic(params: Params, runs: str | Path = synthetic_job.RUNS) -> pd.DataFrame:
    """The results table of lesson 05's synthetic environment at its central grid point.

    The job behind it is run by lesson 05 or 09, whichever comes first.

    Args:
        params: All settings.
        runs: Folder of the job.
    """
    rows = synthetic_job.run(params.routing, runs)
    results = results_table.make_results(synthetic_benchmark.SYSTEM, rows)
    return results_table.select(results, **params.routing.synthetic.central)


def controllers(params: Params, **where) -> experiment.BudgetedRoutingResults:
    """The trainings of lesson 05 that the ablations are about. where: of study.run."""
    return experiment.run(params, [VARIANTS_BY_NAME[name] for name in ("corl", "hard")], **where)
