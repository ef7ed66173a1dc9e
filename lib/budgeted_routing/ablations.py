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

    A controller is a language model that answers a question itself or calls experts, models that cost money. It is
    tested under the low budget, before training (start) and after training with the prompt: is it the words or the
    reward that saves money?

    Args:
        params: `routing.experts` and `llm` say which models stand behind the experts.
        results: Episodes of the trainings, from `run_controllers`.

    Returns:
        A comparison with four variants ("soft, start", "hard, start", "soft, trained", "hard, trained"), by calls,
        cost, reward and accuracy.
    """
    methods = {
        "soft, start": (START, "soft"),
        "hard, start": (START, "hard"),
        "soft, trained": ("corl", "soft"),
        "hard, trained": ("hard", "hard"),
    }
    tables = []
    for variant, (method, style) in methods.items():
        rows = select_test_episodes(results, method, style, "low")
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
    """Compare trained controllers under the high budget with the same under the low one (the paper's Figure 3).

    Each was trained and is tested with one style of prompts: soft ones name the budget, hard ones also say what to do
    under it.

    Args:
        params: `routing.experts` and `llm` say which models stand behind the experts.
        results: Episodes of the trainings, from `run_controllers`.

    Returns:
        A comparison with four variants ("soft, low", "soft, high", "hard, low", "hard, high"), by calls, cost and
        accuracy.
    """
    tables = []
    baselines = {}
    method_by_style = {"soft": "corl", "hard": "hard"}
    for style, method in method_by_style.items():
        for budget in ("low", "high"):
            rows = select_test_episodes(results, method, style, budget)
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
    """Compare trainings whose episodes all have one budget, which is not in the prompt (CoRL, section 5).

    They are run in the synthetic environment, whose optimum is computed, and sampled at temperature 1.

    Args:
        rows: The results table `corl_synthetic`, from `read_synthetic_rows`.

    Returns:
        "low" and "high": the controller trained with that budget, compared with itself before training, under that
        budget; "both": the one trained with the high budget compared with the one trained with the low budget.
    """
    is_final = (rows["step"] == results_table.AFTER) & (rows["temperature"] == 1.0)
    final_rows = rows[is_final]
    start_rows = final_rows[final_rows["role"] == "start"]

    comparisons = {}
    trained_by_budget = {}
    for variant in synthetic_training.FIXED_BUDGET_VARIANTS:
        budget = variant.fixed_budget
        budget_rows = final_rows[final_rows["condition"] == budget]
        trained_rows = budget_rows[budget_rows["method"] == variant.name]
        trained_by_budget[f"{budget} budget"] = trained_rows
        comparisons[budget] = _compare_synthetic_rows(
            name=f"corl_fixed.{budget}",
            about=f"a {budget} budget that never changes",
            rows_by_variant={
                "start": start_rows[start_rows["condition"] == budget],
                "trained": trained_rows,
            },
            baselines={"trained": "start"},
        )
    comparisons["both"] = _compare_synthetic_rows(
        name="corl_fixed",
        about="which budget never changes",
        rows_by_variant=trained_by_budget,
        baselines={"high budget": "low budget"},
    )
    return comparisons


def compare_parts(rows: pd.DataFrame) -> Comparison:
    """Compare CoRL with the same training without one of its parts, in the synthetic environment.

    The parts: the budget in the prompt, the budget in the reward, and advantages that are whitened for each budget
    instead of over all budgets. Greedy decoding; means over the three budgets.

    Args:
        rows: The results table `corl_synthetic`, from `read_synthetic_rows`.

    Returns:
        A comparison of each changed training with CoRL, by SYNTHETIC_MEASURES.
    """
    is_final = (rows["step"] == results_table.AFTER) & (rows["temperature"] == 0.0)
    final_rows = rows[is_final]
    corl_name = synthetic_training.CORL.name
    ablated_names = [variant.name for variant in synthetic_training.ABLATIONS]
    compared_rows = final_rows[final_rows["method"].isin([corl_name, *ablated_names])]
    rows_by_variant = {
        method: method_rows for method, method_rows in compared_rows.groupby("method", sort=False)
    }
    return _compare_synthetic_rows(
        name="corl_parts",
        about="the budget in prompt, reward and advantages",
        rows_by_variant=rows_by_variant,
        baselines=dict.fromkeys(ablated_names, corl_name),
    )


def _compare_synthetic_rows(
    name: str,
    about: str,
    rows_by_variant: Mapping[str, pd.DataFrame],
    baselines: Mapping[str, str],
) -> Comparison:
    """Compare variants in the synthetic environment, where each seed is an environment of its own.

    Args:
        name: Prefix of the comparison's metrics.
        about: What is changed, in a few words.
        rows_by_variant: For each variant, rows of the results table, one per seed and budget.
        baselines: For each variant that is compared, the variant that it is compared with.

    Returns:
        A comparison of means over budgets, paired by seed, by SYNTHETIC_MEASURES.
    """
    columns = [measure.column for measure in SYNTHETIC_MEASURES]
    means = []
    for variant, rows in rows_by_variant.items():
        mean_by_seed = rows.groupby("seed")[columns].mean()
        means.append(mean_by_seed.assign(variant=variant))
    frame = pd.concat(means).reset_index()
    frame["unit"] = frame["seed"]  # what variants are paired by
    return Comparison(name, about, frame, baselines, SYNTHETIC_MEASURES, "policy")


def select_test_episodes(
    results: experiment.BudgetedRoutingResults, method: str, style: str, budget: str
) -> pd.DataFrame:
    """Select the greedy test episodes of one controller under one budget, of the seeds that all controllers have.

    Args:
        results: Episodes of the trainings, from `run_controllers`.
        method: START for the controller before training, or the name of a variant of training.
        style: Style of the prompt: "soft" names the budget, "hard" also says what to do under it.
        budget: A budget word: low, medium or high.

    Returns:
        A row per seed and question with the columns of `lib.budgeted_routing.budget_episodes.make_episode_rows`, unit
        (the question) and cost_usd in US dollars per million questions.
    """
    episodes = results.episodes
    # Hard prompts were trained with fewer seeds than soft ones.
    last_seed = episodes.loc[episodes["method"] == "hard", "seed"].max()
    is_selected = (
        (episodes["method"] == method)
        & (episodes["style"] == style)
        & (episodes["condition"] == budget)
        & (episodes["seed"] <= last_seed)
    )
    rows = episodes[is_selected]
    is_greedy = rows["temperature"] == rows["temperature"].min()
    greedy_rows = rows[is_greedy]
    return greedy_rows.assign(unit=greedy_rows["item"], cost_usd=greedy_rows["cost_usd"] * MILLION)


def read_synthetic_rows(params: Params, runs: str | Path = synthetic_job.RUNS) -> pd.DataFrame:
    """Read the results of CoRL in the synthetic environment at its central grid point, or compute them.

    Args:
        params: All settings; `routing` decides environments and trainings.
        runs: Folder of the job that computes the results, which lesson 05 shares.

    Returns:
        Rows of the results table `corl_synthetic`: means over queries, a row per method, seed, budget, temperature and
        training step.
    """
    rows = synthetic_job.run(params.routing, runs)
    results = results_table.make_results(synthetic_benchmark.SYSTEM, rows)
    return results_table.select(results, **params.routing.synthetic.central)


def run_controllers(params: Params, **folders: str | Path) -> experiment.BudgetedRoutingResults:
    """Run the trainings with soft and with hard prompts, as far as they are not done yet.

    Soft prompts name the budget, hard ones also say what to do under it. Lesson 05 runs the same trainings.

    Args:
        params: All settings.
        folders: `models` and `runs`, folders as `lib.budgeted_routing.experiment.run` takes them.

    Returns:
        Tables of the trainings and their tests.
    """
    compared = [VARIANTS_BY_NAME[name] for name in ("corl", "hard")]
    return experiment.run(params, compared, **folders)
