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

from collections.abc import Callable, Mapping
from functools import partial

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
from lib.stats.verdicts import NOT_OPEN

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
# The primary contrasts, named before any result was seen: they are tested together (Holm).
PRIMARY = {
    COMPLEMENTARY: ("best_constant", "logistic", "random"),
    LADDER: ("best_expert", "logistic", "random"),
}
# Differences between two budgets, the larger one first.
BUDGET_PAIRS = (("medium", "low"), ("high", "medium"), ("high", "low"))


def collect_estimates(rows: pd.DataFrame, settings: RoutingSettings) -> Estimates:
    """Estimate everything that the lesson measures on the test questions, by metric key.

    Args:
        rows: The results table of all worlds.
        settings: The section `routing` of params.yaml.

    Returns:
        Estimates with intervals; of worlds that the rows hold.
    """
    tests = results_table.select(rows, split="test")
    greedy = results_table.select(tests, temperature=settings.test_temperature)
    estimates = {}
    for world, prefix in PREFIXES.items():
        world_rows = results_table.select(greedy, world=world)
        if world_rows.empty:
            continue
        for key, estimate in estimate_rewards(world_rows).items():
            estimates[f"{prefix}.{key}"] = estimate
        for key, estimate in budget_control.estimate_control(world_rows, CORL, NUMERIC).items():
            # The complementary world is the lesson's main one: its keys have no prefix.
            control_key = key if world == COMPLEMENTARY else f"{prefix}.{key}"
            estimates[control_key] = estimate
    sampled = results_table.select(tests, world=COMPLEMENTARY, temperature=settings.temperature)
    return estimates | estimate_order(sampled)


def estimate_rewards(rows: pd.DataFrame) -> Estimates:
    """Estimate gains and differences in reward of one world, by metric key without the world.

    Args:
        rows: Test rows of one world, without sampling (temperature 0).
    """
    word_rows = results_table.select(rows, style="soft")
    estimates = {}
    for budget in BUDGET_WORDS:
        under_budget = results_table.select(word_rows, condition=budget)
        estimates[f"{budget}.gain"] = _estimate_difference(under_budget, START)
        for key, method in BASELINES.items():
            estimates[f"{budget}.minus_{key}"] = _estimate_difference(under_budget, method)
        of_corl = results_table.select(under_budget, method=CORL)
        estimates[f"{budget}.accuracy"] = stats.mean(of_corl, "correct").iloc[0]
        estimates[f"{budget}.calls"] = stats.mean(of_corl, "calls").iloc[0]
        estimates[f"{budget}.minus_hull"] = estimate_gain_over_mixture(under_budget)
    return estimates


def estimate_gain_over_mixture(rows: pd.DataFrame) -> Estimate:
    """Estimate how far CoRL's accuracy lies above that of a random mixture of constants at the same mean cost.

    Args:
        rows: Test rows of one world under one budget. Constants are the experts and the controller alone.
    """
    experts = results_table.select(rows, role="expert")["method"].unique()
    constants = [CONTROLLER_ALONE, *experts]
    compared = results_table.select(rows, method=[CORL, *constants])
    return stats.gain_over_mixture(
        compared, "correct", "cost_usd", {"method": CORL}, {"method": constants}
    ).iloc[0]


def estimate_order(rows: pd.DataFrame) -> Estimates:
    """Estimate what training adds to the difference between two budgets (the paper's Figure 3), by metric key.

    Args:
        rows: Test rows of the complementary world, sampled at the temperature of training.

    Returns:
        `order.QUANTITY.MORE_LESS`: quantities are cost_usd (US dollars per million questions), calls, expensive_calls
        (calls of the most expensive expert) and correct.
    """
    word_rows = results_table.select(rows, style="soft", method=[CORL, START])
    most_expensive = find_most_expensive_expert(rows)
    word_rows = word_rows.assign(
        cost_usd=1e6 * word_rows["cost_usd"],
        expensive_calls=[float(list(names).count(most_expensive)) for names in word_rows["chosen"]],
    )
    estimates = {}
    for more, less in BUDGET_PAIRS:
        both = results_table.select(word_rows, condition=[more, less])
        for quantity in ("cost_usd", "calls", "expensive_calls", "correct"):
            estimates[f"order.{quantity}.{more}_{less}"] = stats.diff_in_diff(
                both,
                quantity,
                before={"method": START},
                after={"method": CORL},
                baseline={"condition": less},
            ).iloc[0]
    return estimates


def find_most_expensive_expert(rows: pd.DataFrame) -> str:
    """The expert whose calls cost most on average."""
    experts = results_table.select(rows, role="expert")
    return experts.groupby("method")["cost_usd"].mean().idxmax()


def make_estimators(
    keys: Mapping[str, object], settings: RoutingSettings
) -> dict[str, Callable[[pd.DataFrame], Estimate | None]]:
    """Make functions that compute one estimate from a results table, by metric key.

    Args:
        keys: Metric keys.
        settings: The section `routing` of params.yaml.

    Returns:
        By key, a function from rows to the estimate (None where the rows have none), as
        `lib.reports.full_and_run.compare_with_full_run` takes them. All estimates of one table are computed once.
    """
    estimates_by_rows: dict[int, Estimates] = {}

    def read_estimate(key: str, rows: pd.DataFrame) -> Estimate | None:
        """The estimate of a key on a results table."""
        if id(rows) not in estimates_by_rows:
            estimates_by_rows[id(rows)] = collect_estimates(rows, settings)
        return estimates_by_rows[id(rows)].get(key)

    return {key: partial(read_estimate, key) for key in keys}


def tabulate_primary(
    estimates: Mapping[str, Estimate], world: str, open_budgets: Mapping[str, bool], margin: float
) -> pd.DataFrame:
    """Arrange the primary contrasts of a world: CoRL's reward minus baselines', with verdicts.

    Args:
        estimates: Of `collect_estimates`.
        world: COMPLEMENTARY or LADDER.
        open_budgets: By budget word, whether choosing could gain anything there.
        margin: Differences within it count as equivalent.

    Returns:
        Estimates by baseline and budget, with verdict, and significant_together (whether the difference remains when
        all of the table are tested at once, by Holm's correction).
    """
    rows = {}
    for key in PRIMARY[world]:
        for budget in BUDGET_WORDS:
            estimate = estimates[f"{PREFIXES[world]}.{budget}.minus_{key}"]
            rows[BASELINES[key], budget] = estimate
    table = pd.DataFrame(rows).T.rename_axis(["baseline", "budget"])
    table = table.infer_objects()
    is_open = table.index.get_level_values("budget").map(open_budgets)
    table["significant_together"] = stats.holm(table)
    table["verdict"] = stats.verdict(table, margin).where(is_open, NOT_OPEN)
    return table


def _estimate_difference(rows: pd.DataFrame, baseline: str) -> Estimate:
    """CoRL's mean reward minus that of a baseline, paired by seed and question."""
    return stats.paired_difference(rows, "reward", {"method": CORL}, {"method": baseline}).iloc[0]
