"""What lesson 05 measures, by metric key: the same estimates of a reader's run and of the recorded full run.

    WORLD.BUDGET.gain                 reward of the trained controller (CoRL) minus that of its start
    WORLD.BUDGET.minus_BASELINE       reward of CoRL minus that of a baseline, on the same questions
    WORLD.BUDGET.accuracy, .calls     of CoRL
    WORLD.control...                  whether budgets are kept (`budget_control`)
    order.QUANTITY.MORE_LESS          what training adds to the difference between two budgets

WORLD is corl (complementary experts), ladder or two (two experts), as `worlds.py` describes them; BUDGET is low, medium
or high. A reward is 1 for a correct answer whose calls cost no more than the budget, else 0. Differences are paired by
seed and question.
"""

import pandas as pd

from lib import stats
from lib.budgeted_routing import budget_control
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.variants import VARIANTS_BY_NAME
from lib.budgeted_routing.worlds import COMPLEMENTARY, LADDER, TWO_EXPERTS
from lib.config import RoutingSettings
from lib.experiment import results_table
from lib.rl.call_protocol import BUDGET_WORDS

Estimate = pd.Series  # a row of `lib.stats`
Estimates = dict[str, Estimate]  # by metric key

CORL = VARIANTS_BY_NAME["corl"].label
NUMERIC = VARIANTS_BY_NAME["number"].label
PREFIXES = {COMPLEMENTARY: "corl", LADDER: "ladder", TWO_EXPERTS: "two"}  # of metric keys, by world
# What CoRL is compared with: the last part of a metric key, and the method.
BASELINES = {
    "best_expert": "best expert",
    "best_constant": "best constant",
    "logistic": "logistic",
    "knn": "nearest neighbours",
    "cascade": "cascade",
    "random": "random",
    "oracle": "oracle",
}
# Pairs of budgets that are compared, the larger one first.
BUDGET_PAIRS = (("medium", "low"), ("high", "medium"), ("high", "low"))


def collect_estimates(rows: pd.DataFrame, settings: RoutingSettings) -> Estimates:
    """Estimate everything that the lesson on CoRL measures on its test questions.

    Args:
        rows: The results table of all worlds, each a set of experts and questions: complementary (each expert is best
            on its own kind of question), ladder (the more expensive expert is better everywhere) and two experts.
        settings: The section `routing` of params.yaml; its temperatures of test and of training are read.

    Returns:
        Estimates, rows of `lib.stats` (value, ci_low, ci_high, p_value, ...), by metric key such as
        "corl.low.gain": see the module. A world without rows has none.
    """
    if "world" not in rows:
        return {}  # a run that was recorded before there were several worlds
    tests = results_table.select(rows, split="test")
    greedy = results_table.select(tests, temperature=settings.test_temperature)

    estimates = {}
    for world, prefix in PREFIXES.items():
        world_rows = results_table.select(greedy, world=world)
        if world_rows.empty:
            continue
        for key, estimate in estimate_rewards(world_rows).items():
            estimates[f"{prefix}.{key}"] = estimate
        # The complementary world is the lesson's main one: keys about budgets that are kept have no prefix there.
        control_prefix = "" if world == COMPLEMENTARY else f"{prefix}."
        for key, estimate in budget_control.estimate_control(world_rows, CORL, NUMERIC).items():
            estimates[f"{control_prefix}{key}"] = estimate

    # What training adds, sampled as in training.
    complementary = results_table.select(tests, world=COMPLEMENTARY)
    return estimates | estimate_budget_response(complementary, settings.temperature)


def estimate_rewards(rows: pd.DataFrame) -> Estimates:
    """Estimate, under each budget word, CoRL's reward minus that of its start and of each baseline, and its accuracy.

    The start is the controller before training. The reward is 1 for a correct answer whose calls cost no more than the
    budget (low, medium or high), else 0. Differences are paired by seed and question.

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding (temperature 0).

    Returns:
        Estimates, rows of `lib.stats` (value, ci_low, ci_high, ...), by metric key: for each BUDGET `BUDGET.gain`
        (minus the start), `BUDGET.minus_BASELINE` for each key of BASELINES, `BUDGET.accuracy`, `BUDGET.calls` (mean
        number of calls) and `BUDGET.minus_hull` (of `estimate_gain_over_mixture`).
    """
    word_rows = results_table.select(rows, style="soft")  # the prompt names the budget as a word
    estimates = {}
    for budget in BUDGET_WORDS:
        budget_rows = results_table.select(word_rows, condition=budget)
        estimates[f"{budget}.gain"] = _estimate_difference(budget_rows, START)
        for key, method in BASELINES.items():
            estimates[f"{budget}.minus_{key}"] = _estimate_difference(budget_rows, method)

        corl_rows = results_table.select(budget_rows, method=CORL)
        estimates[f"{budget}.accuracy"] = stats.mean(corl_rows, "correct").iloc[0]
        estimates[f"{budget}.calls"] = stats.mean(corl_rows, "calls").iloc[0]
        estimates[f"{budget}.minus_hull"] = estimate_gain_over_mixture(budget_rows)
    return estimates


def estimate_gain_over_mixture(rows: pd.DataFrame) -> Estimate:
    """Estimate CoRL's accuracy minus that of a random mixture of constants at the same mean cost.

    A constant lets one expert, or the controller's base model alone, answer all questions. By mixing two of them at
    random any cost in between is reached without reading a question; only accuracy above that is gained by choosing.

    Args:
        rows: Test rows of one world under one budget, greedy decoding.

    Returns:
        One estimate, a row of `lib.stats` (value, ci_low, ci_high, ...).
    """
    experts = results_table.select(rows, role="expert")["method"].unique()
    constants = [CONTROLLER_ALONE, *experts]
    compared = results_table.select(rows, method=[CORL, *constants])
    return stats.gain_over_mixture(
        compared, "correct", "cost_usd", {"method": CORL}, {"method": constants}
    ).iloc[0]


def estimate_budget_response(rows: pd.DataFrame, temperature: float) -> Estimates:
    """Estimate what training adds to the difference between two budgets (the paper's Figure 3).

        (CoRL under the larger budget - CoRL under the smaller) - (the same of the start, before training)

    Args:
        rows: Test rows of one world (one set of experts and questions): the experts, and CoRL and its start at the
            temperature of training.
        temperature: The temperature of training, at which controllers are compared.

    Returns:
        Estimates, rows of `lib.stats` (value, ci_low, ci_high, ...), by metric key `order.QUANTITY.LARGER_SMALLER`,
        such as "order.calls.high_low". Quantities are cost_usd (US dollars per million questions), calls (number),
        expensive_calls (calls of the most expensive expert) and correct (accuracy).
    """
    most_expensive = find_most_expensive_expert(rows)
    word_rows = results_table.select(
        rows, style="soft", method=[CORL, START], temperature=temperature
    )
    expensive_calls = []
    for called_experts in word_rows["chosen"]:
        expensive_calls.append(float(list(called_experts).count(most_expensive)))
    word_rows = word_rows.assign(
        cost_usd=1e6 * word_rows["cost_usd"], expensive_calls=expensive_calls
    )

    estimates = {}
    for larger, smaller in BUDGET_PAIRS:
        pair_rows = results_table.select(word_rows, condition=[larger, smaller])
        for quantity in ("cost_usd", "calls", "expensive_calls", "correct"):
            estimate = stats.diff_in_diff(
                pair_rows,
                quantity,
                before={"method": START},
                after={"method": CORL},
                baseline={"condition": smaller},
            ).iloc[0]
            estimates[f"order.{quantity}.{larger}_{smaller}"] = estimate
    return estimates


def find_most_expensive_expert(rows: pd.DataFrame) -> str:
    """Find the expert whose calls cost most on average.

    Args:
        rows: Rows of the results table, with those of the role "expert": every expert on every question.

    Returns:
        The expert's name.
    """
    experts = results_table.select(rows, role="expert")
    return experts.groupby("method")["cost_usd"].mean().idxmax()


def _estimate_difference(rows: pd.DataFrame, baseline: str) -> Estimate:
    """Estimate CoRL's mean reward minus that of a baseline, paired by seed and question.

    Args:
        rows: Test rows of one world under one budget.
        baseline: Name of the method that CoRL is compared with.

    Returns:
        One estimate, a row of `lib.stats` (value, ci_low, ci_high, ...).
    """
    estimates = stats.paired_difference(rows, "reward", {"method": CORL}, {"method": baseline})
    return estimates.iloc[0]
