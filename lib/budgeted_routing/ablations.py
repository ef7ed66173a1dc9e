"""Ablations of CoRL: how its budget is put into words, what its parts are worth, and what one budget for all
teaches."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lib.budgeted_routing import experiment as corl
from lib.budgeted_routing import synthetic_benchmark, synthetic_job
from lib.budgeted_routing.variants import NAMED
from lib.config import Params
from lib.experiment import results_table
from lib.stats.ablation_comparison import Comparison, Measure

MILLION = 1e6
REWARD = Measure("reward", "reward")
RIGHT = Measure("correct", "accuracy")
MONEY = Measure("cost_usd", "$ per million questions", "lower")
CALLS = Measure("calls", "calls", "")
BOXED, WITHIN = Measure("reward", "reward"), Measure("within", "share within the budget")
SPENT, ASKED = Measure("cost_usd", "price of its calls", "lower"), Measure("asked", "calls", "")
DEAR = Measure("dear", "calls to the dearest expert", "")


def prompts(params: Params, results: corl.BudgetedRoutingResults) -> Comparison:
    """Soft prompts name the budget, hard ones also say what to do under it. Each before and after training, on
    questions with the low budget: is it the words or the reward that saves?"""
    arms = {
        ("soft", "start"): corl.START,
        ("hard", "start"): corl.START,
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


def budgets(params: Params, results: corl.BudgetedRoutingResults) -> Comparison:
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
    """Trainings with one budget for all episodes, which the controller is not told (section 5), in the glass box of
    lesson 05, by budget: beside the start under that budget; and the high one beside the low one, both with dice.

    rows: the record `corl_glass`.
    """
    rows = rows[(rows["step"] == results_table.AFTER) & (rows["temperature"] == 1.0)]
    start = rows[rows["role"] == "start"]
    own = {
        method.fixed: rows[(rows["method"] == method.name) & (rows["condition"] == method.fixed)]
        for method in synthetic_benchmark.FIXED
    }
    out = {
        budget: _boxed(
            f"corl_fixed.{budget}",
            f"a {budget} budget that never changes",
            {"start": start[start["condition"] == budget], "trained": part},
            {"trained": "start"},
        )
        for budget, part in own.items()
    }
    both = {f"{budget} budget": part for budget, part in own.items()}
    low, high = both
    return out | {"both": _boxed("corl_fixed", "which budget never changes", both, {high: low})}


def parts(rows: pd.DataFrame) -> Comparison:
    """What the budget in prompt and reward, and advantages whitened under each, are worth in the glass box of lesson
    05, over all budgets. rows: the record `corl_glass`."""
    rows = rows[(rows["step"] == results_table.AFTER) & (rows["temperature"] == 0.0)]
    rows = rows[rows["method"].isin([method.name for method in synthetic_benchmark.PARTS])]
    changed = [method.name for method in synthetic_benchmark.PARTS[1:]]
    kinds = {name: part for name, part in rows.groupby("method", sort=False)}
    return _boxed(
        "corl_parts",
        "the budget in prompt, reward and advantages",
        kinds,
        dict.fromkeys(changed, "CoRL"),
    )


def _boxed(
    name: str, about: str, variants: Mapping[str, pd.DataFrame], against: Mapping[str, str]
) -> Comparison:
    """Rows of the glass box by variant; a seed is a world of its own, of which every budget has a row."""
    parts = [
        part.groupby("seed")[["reward", "correct", "within", "cost_usd", "asked", "dear"]]
        .mean()
        .assign(variant=variant)
        for variant, part in variants.items()
    ]
    frame = pd.concat(parts).reset_index()
    measures = (BOXED, RIGHT, WITHIN, SPENT, ASKED, DEAR)
    return Comparison(name, about, frame.assign(unit=frame["seed"]), against, measures, "policy")


def _tests(
    results: corl.BudgetedRoutingResults, method: str, style: str, word: str | None
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
    """The rows of lesson 05's synthetic environment at its central place; who asks first computes them for both.

    Args:
        params: All settings.
        runs: Folder of the job.
    """
    rows = synthetic_job.run(params.routing, runs)
    results = results_table.make_results(synthetic_benchmark.SYSTEM, rows)
    return results_table.select(results, **params.routing.glass.central)


def controllers(params: Params, **where) -> corl.BudgetedRoutingResults:
    """The trainings of lesson 05 that the ablations are about. where: of study.run."""
    return corl.run(params, [NAMED[name] for name in ("corl", "hard")], **where)
