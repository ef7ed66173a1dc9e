"""Numbers from the results table of lesson 02: headroom, Table 2, contrasts, and what deciding took."""

from collections.abc import Sequence

import pandas as pd

from lib import stats
from lib.config import OrchestrationSettings
from lib.experiment import results_table
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm import reply_shares
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.experiment import BEST_POLICY, UPPER_BOUND
from lib.policy_zoo import evaluate
from lib.stats.verdicts import NOT_OPEN

OBJECTIVE_COLUMNS = ["d1", "d2", "d3"]
# Quantities of Table 2 that are means over episodes, by domain: name -> column.
MEANS_OF_TABLE_2 = {
    "education": {
        "length": "length",
        "aptitude": "d1",
        "gap": "d2",
        "performance": "d3",
        "tokens": "tokens",
        "cost_usd": "cost_usd",
    },
    "minigrid": {
        "length": "length",
        "success": "d1",
        "no_lava": "d2",
        "gold": "d3",
        "tokens": "tokens",
        "cost_usd": "cost_usd",
    },
}
FRONTS_OF_TABLE_2 = ("hv_mean", "hv_union", "sparsity")
PRICE = ("calls", "tokens_in", "tokens_out", "cost_usd")  # per episode
_KEYS = ["group", "condition"]


# Is the question open? -------------------------------------------------------------------------------


def estimate_headroom(rows: pd.DataFrame) -> pd.DataFrame:
    """What planning ahead on fresh copies gains over the best single policy on training students.

    Plans see no random number that will fall, so what they win could be earned.

    Args:
        rows: Of `experiment.run`.

    Returns:
        Estimates by domain and world, with the column `is_open`.
    """
    headroom = stats.paired_difference(
        rows, "reward", {"method": UPPER_BOUND}, {"method": BEST_POLICY}, _KEYS
    )
    return headroom.assign(is_open=stats.is_open(headroom))


# Contrasts -------------------------------------------------------------------------------------------


def estimate_contrasts(
    rows: pd.DataFrame, settings: OrchestrationSettings, model: str | None = None
) -> pd.DataFrame:
    """The questions of `orchestration.contrasts`, written down before any run, in every world.

    Args:
        rows: Of `experiment.run`.
        settings: Of the orchestrators.
        model: Whose KO, TO and RO are asked about; None for `orchestration.model`.

    Returns:
        Estimates of the difference of utility, paired by student or room, by domain, world and contrast (such as
        "RO_best-policy"). Columns beside those of `lib.stats.estimates`: is_significant (by Holm over the contrasts of
        open worlds) and verdict, which is "not open" where too little can be won.
    """
    model = model or settings.model
    headroom = estimate_headroom(rows)
    tables = {}
    for domain, world in headroom.index:
        world_rows = results_table.select(rows, group=domain, condition=world)
        for first, second in settings.contrasts:
            estimate = stats.paired_difference(
                world_rows,
                "reward",
                {"method": name_method(first, model)},
                {"method": name_method(second, model)},
            )
            tables[domain, world, name_contrast(first, second)] = estimate.iloc[0]
    names = ["group", "condition", "contrast"]
    contrasts = pd.DataFrame(tables).T.rename_axis(names)
    contrasts = contrasts.astype(float).astype({"num_runs": int, "num_items": int})

    is_open = headroom["is_open"].reindex(contrasts.index.droplevel("contrast")).to_numpy()
    verdicts = stats.verdict(contrasts, settings.equivalence_margin)
    significant = stats.holm(contrasts[is_open]).reindex(contrasts.index, fill_value=False)
    return contrasts.assign(is_significant=significant, verdict=verdicts.where(is_open, NOT_OPEN))


def name_method(short_name: str, model: str) -> str:
    """The method behind a name in `orchestration.contrasts`: "RO" is "RO MODEL", others are what they are called."""
    return f"{short_name} {model}" if short_name in SYSTEMS else short_name


def name_contrast(first: str, second: str) -> str:
    """A contrast as part of a metric's key, such as "RO_best-policy"."""
    return f"{first}_{second}".replace(" ", "-")


# Table 2 ---------------------------------------------------------------------------------------------


def estimate_table_2(rows: pd.DataFrame, domain: str, num_episodes: int) -> pd.DataFrame:
    """The paper's Table 2 in one domain: a row per method, in the paper's world.

    Args:
        rows: Of `experiment.run`, and of prompted models.
        domain: education or minigrid.
        num_episodes: Per seed, the first ones, the same for all: the hypervolume of a union grows with their number.

    Returns:
        Estimates by method and quantity. tokens: in prompts and replies, per episode. The hypervolume stands in two
        versions: of the mean vector, and of the union of single episodes (the paper's).
    """
    table = results_table.select(rows, group=domain, condition="paper")
    table = table.assign(tokens=table["tokens_in"] + table["tokens_out"])
    number = table["item"].str.split("-").str[1].astype(int)
    table = table[number < num_episodes]

    estimates = {}
    for quantity, column in MEANS_OF_TABLE_2[domain].items():
        estimates[quantity] = stats.mean(table, column, "method")
    for quantity in FRONTS_OF_TABLE_2:
        front = evaluate.FRONTS[quantity]
        estimates[quantity] = stats.statistic(table, OBJECTIVE_COLUMNS, front, "method")
    by_quantity = pd.concat(estimates, names=["quantity"])
    return by_quantity.swaplevel().loc[list(dict.fromkeys(table["method"]))]


def name_row_of_table_2(method: str) -> str:
    """A method's part of a metric's key: "RO.lab-orchestrator", "policy.SO-d1", "baseline.random"."""
    first, _, rest = method.partition(" ")
    if first in SYSTEMS:
        return f"{first}.{rest.replace(', ', '.').replace(' ', '-')}"
    kind = "policy" if method.startswith(("SO-", "MO-")) else "baseline"
    return f"{kind}.{method.replace(' ', '-')}"


# What deciding took -----------------------------------------------------------------------------------


def count_replies(rows: pd.DataFrame) -> pd.DataFrame:
    """How many calls of each method's model gave no answer (`lib.llm.reply_shares.count_replies`).

    Args:
        rows: Episodes; methods that ask no model are not counted.
    """
    asked = rows[rows["model"] != ""]
    calls = asked.assign(
        failed=asked["replies_failed"],
        truncated=asked["replies_truncated"],
        unusable=asked["replies_unusable"],
        fallback=asked["malformed"] + asked["failures"],
    )
    return reply_shares.count_replies(calls)


def count_judge_replies(judged: pd.DataFrame) -> pd.DataFrame:
    """How many calls of a judge gave no scores.

    Args:
        judged: Of `llm_judge.judge`.

    Returns:
        Counts by judge (column `judge`), see `lib.llm.reply_shares.count_replies`.
    """
    calls = judged.assign(
        model=judged["judge"], failed=judged["failures"], unusable=judged["malformed"]
    )
    return reply_shares.count_replies(calls, keys=["judge"])


def estimate_price(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Calls, tokens and dollars per episode, by method: estimates by quantity.

    Args:
        rows: Episodes of methods that ask a model.
    """
    asked = rows[rows["model"] != ""]
    return {quantity: stats.mean(asked, quantity, "method") for quantity in PRICE}


def list_unusable_shares(rows: pd.DataFrame) -> dict[str, float]:
    """By method, the share of calls without an answer; only of methods that are marked."""
    if UNUSABLE_SHARE not in rows:
        return {}
    shares = rows.groupby("method", sort=False)[UNUSABLE_SHARE].max()
    return shares[shares > 0].to_dict()


# Courses ----------------------------------------------------------------------------------------------


def tabulate_course(
    rows: pd.DataFrame, horizon: int, by: Sequence[str] = ("method",)
) -> pd.DataFrame:
    """Mean mastery by step (Figures 4 to 6); a student who is done keeps the last mastery.

    Args:
        rows: Episodes, with the course of mastery in `outcomes`.
        horizon: Steps of an episode at the most.
        by: Columns that define the curves.

    Returns:
        One row per curve, seed and step: columns `by`, seed, step, mastery.
    """
    courses = [[*course, *[course[-1]] * (horizon - len(course))] for course in rows["outcomes"]]
    table = pd.DataFrame(courses).assign(seed=rows["seed"].to_numpy())
    for name in by:
        table[name] = rows[name].to_numpy()
    table = table.melt(["seed", *by], var_name="step", value_name="mastery")
    means = table.groupby([*by, "seed", "step"], sort=False)["mastery"].mean()
    return means.reset_index()


def share_in_flow_zone(steps: pd.DataFrame, delta: float) -> pd.DataFrame:
    """How near the student's mastery questions lie (Figures 4 and 5, lower halves).

    Args:
        steps: Of education.
        delta: Half-width of the flow zone around mastery.

    Returns:
        One row per episode: method, model, backend, seed, item, distance (mean difficulty less mastery), in_zone.
    """
    digits = steps["levels"].map(lambda levels: [int(level) for level in levels])
    difficulty = digits.map(lambda levels: (sum(levels) / len(levels) - 1) / 5)
    distance = difficulty - steps["mastery"]
    table = steps.assign(distance=distance, in_zone=(distance.abs() <= delta + 1e-9).astype(float))
    keys = ["method", "model", "backend", "seed", "item"]
    return table.groupby(keys, sort=False)[["distance", "in_zone"]].mean().reset_index()
