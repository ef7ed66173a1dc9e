"""Numbers from the results table of lesson 02: headroom, Table 2, contrasts, and what deciding took."""

import math
from collections.abc import Sequence

import pandas as pd

from lib import stats
from lib.config import OrchestrationSettings
from lib.envs.education import LEVELS
from lib.experiment import results_table
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm import reply_shares
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.llm_judge import CRITERIA
from lib.orchestration.methods import BEST_POLICY, UPPER_BOUND
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
        "utility": "reward",
    },
    "minigrid": {
        "length": "length",
        "success": "d1",
        "no_lava": "d2",
        "gold": "d3",
        "tokens": "tokens",
        "cost_usd": "cost_usd",
        "utility": "reward",
    },
}
# What is computed of the reward vectors of a seed, with its range: with the reference point (-1, -1, -1) and rewards in
# [0, 1], a front encloses 8 at the most.
BOUNDS_OF_FRONTS = {"hv_mean": (0.0, 8.0), "hv_union": (0.0, 8.0), "sparsity": stats.NONNEGATIVE}
FRONTS_OF_TABLE_2 = tuple(BOUNDS_OF_FRONTS)
PRICE = ("calls", "tokens_in", "tokens_out", "cost_usd")  # per episode
ROUNDING_ERROR = 1e-9  # of a difference that would be exactly the limit in exact arithmetic
_KEYS = ["group", "condition"]


# Is the question open? -------------------------------------------------------------------------------


def estimate_headroom(rows: pd.DataFrame) -> pd.DataFrame:
    """What choosing policies can gain: utility of planning ahead minus that of the best single policy, by world.

    A world is an environment together with a kind of query, the weights of the objectives.

    Planning ahead tries many sequences of policies on copies with fresh random numbers, so what it gains could be
    earned. The best single policy is the one that was best on training episodes.

    Args:
        rows: A row per method, seed and episode.

    Returns:
        Paired differences by domain and world, with the column `is_open`: whether there is anything to gain.
    """
    headroom = stats.paired_difference(
        rows, "reward", {"method": UPPER_BOUND}, {"method": BEST_POLICY}, _KEYS
    )
    return headroom.assign(is_open=stats.is_open(headroom))


# Contrasts -------------------------------------------------------------------------------------------


def estimate_contrasts(
    rows: pd.DataFrame, settings: OrchestrationSettings, model: str | None = None
) -> pd.DataFrame:
    """The difference in utility of each pair of methods that `orchestration.contrasts` lists, in every world.

    A world is an environment together with a kind of query, the weights of the objectives.

    The pairs were written down before any run.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.
        model: Name of the model whose orchestrators are compared; None for `orchestration.model`.

    Returns:
        Estimates of the difference of utility, paired by student or room, by domain, world and contrast (such as
        "RO_best-policy"). Columns beside those of `lib.stats.estimates`: is_significant (by Holm over the contrasts of
        open worlds) and verdict, which is "not open" where choosing can gain too little.
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
    """Summarize episodes by method: length, objectives, utility, tokens, dollars, hypervolume (the paper's Table 2).

    The hypervolume is the volume that vectors of the three objectives dominate, above a reference point. That of all
    single episodes together grows with their number, so every method is cut to the same number.

    Args:
        rows: A row per method, seed and episode; those of the domain's world "paper" are read.
        domain: education or minigrid.
        num_episodes: Number of episodes per seed that count: 0 to num_episodes - 1, for every method.

    Returns:
        Estimates with intervals by method and quantity. tokens: in prompts and replies, per episode. hv_union: the
        hypervolume of single episodes (the paper's); hv_mean: that of their mean vector; sparsity: mean squared gap
        between neighbours of the front (the episodes that no other one dominates).
    """
    table = results_table.select(rows, group=domain, condition="paper")
    table = table.assign(tokens=table["tokens_in"] + table["tokens_out"])
    number = table["item"].str.split("-").str[1].astype(int)  # "0-17": seed 0, episode 17
    table = table[number < num_episodes]

    estimates = {}
    for quantity, column in MEANS_OF_TABLE_2[domain].items():
        # Objectives and utility lie between 0 and 1; steps, tokens and dollars have no upper end.
        is_share = column in (*OBJECTIVE_COLUMNS, "reward")
        bounds = stats.UNIT if is_share else stats.NONNEGATIVE
        estimates[quantity] = stats.mean(table, column, "method", bounds=bounds)
    # These are no means over episodes: each is computed from all episodes of a seed together.
    for quantity in FRONTS_OF_TABLE_2:
        front = evaluate.FRONTS[quantity]
        estimates[quantity] = stats.statistic(
            table, OBJECTIVE_COLUMNS, front, "method", BOUNDS_OF_FRONTS[quantity]
        )
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
    """Count, by method, the calls of a model that gave no answer: failed, truncated, unusable, and fallbacks.

    Args:
        rows: A row per method, seed and episode; methods that ask no model are not counted.

    Returns:
        A row per method that asks a model.
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
    """How many calls of a judge (a chat model that scores episodes) gave no scores, by judge.

    Args:
        judged: A row per scored episode, with its failed and unusable replies.
    """
    calls = judged.assign(
        model=judged["judge"], failed=judged["failures"], unusable=judged["malformed"]
    )
    return reply_shares.count_replies(calls, keys=["judge"])


def estimate_scores(judged: pd.DataFrame, methods: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Estimate the mean score that a judge gave each method, for every criterion.

    Args:
        judged: The table of `judged_episodes.score_episodes`, marked where too few replies were usable.
        methods: Names of methods in the order of the result; one without any score has nan and the mark alone.
    """
    scored = judged.dropna(subset=list(CRITERIA))
    scored_methods = [method for method in methods if method in set(scored["method"])]
    without_score = [method for method in methods if method not in scored_methods]
    no_scores = pd.DataFrame([_make_unknown(judged)] * len(without_score), index=without_score)
    estimates = {}
    for criterion in CRITERIA:
        parts = [stats.mean(scored, criterion, "method")] if scored_methods else []
        estimates[criterion] = pd.concat([*parts, no_scores]).loc[methods].rename_axis("method")
    return estimates


def compare_scores(judged: pd.DataFrame, criterion: str, first: str, second: str) -> pd.Series:
    """Estimate the mean difference of two methods' scores, on the episodes in which the judge scored both.

    Args:
        judged: A row per scored episode, as for `estimate_scores`.
        criterion: One of CRITERIA.
        first: Name of a method.
        second: Name of the method whose scores are subtracted.

    Returns:
        An estimate; nan and the mark alone where no episode has both scores.
    """
    scored = results_table.select(judged.dropna(subset=[criterion]), method=[first, second])
    is_paired = scored.groupby(["seed", "item"])["method"].transform("nunique") == 2
    if not is_paired.any():
        return pd.Series(_make_unknown(judged))
    pairs = scored[is_paired]
    return stats.paired_difference(pairs, criterion, {"method": first}, {"method": second}).iloc[0]


def _make_unknown(rows: pd.DataFrame) -> dict[str, float]:
    """An estimate of which nothing is known, with the mark of the rows that it should rest on."""
    unknown = dict.fromkeys(("value", "ci_low", "ci_high"), math.nan)
    return unknown | {UNUSABLE_SHARE: reply_shares.find_unusable_share(rows)}


def estimate_price(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Calls, tokens and dollars per episode, by quantity: a table of estimates by method.

    Args:
        rows: A row per method, seed and episode; methods that ask no model are left out.
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
    """Average mastery at each step of an episode (Figures 4 to 6); a finished student keeps the last mastery.

    Args:
        rows: A row per method, seed and episode, with mastery by step in `outcomes`.
        horizon: Steps of an episode at the most.
        by: Columns that define the curves.

    Returns:
        One row per curve, seed and step: columns `by`, seed, step, mastery.
    """
    mastery_by_episode = []
    for mastery in rows["outcomes"]:  # by step
        num_missing_steps = horizon - len(mastery)
        mastery_by_episode.append([*mastery, *[mastery[-1]] * num_missing_steps])
    table = pd.DataFrame(mastery_by_episode).assign(seed=rows["seed"].to_numpy())
    for name in by:
        table[name] = rows[name].to_numpy()
    table = table.melt(["seed", *by], var_name="step", value_name="mastery")
    means = table.groupby([*by, "seed", "step"], sort=False)["mastery"].mean()
    return means.reset_index()


def share_in_flow_zone(steps: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Measure how close the difficulty of the questions is to a student's mastery.

    The flow zone is the range of difficulties within `delta` of mastery, where questions are neither dull nor too hard
    (Figures 4 and 5, lower halves).

    Args:
        steps: A row per step of an episode; `levels` holds the levels of the step's questions, a digit each, such as
            "1134".
        delta: Half-width of the flow zone around mastery.

    Returns:
        One row per episode: method, model, backend, seed, item, distance (mean difficulty minus mastery), in_zone.
    """
    mean_level = steps["levels"].map(lambda levels: sum(map(int, levels)) / len(levels))
    # Levels 1 to LEVELS stand for difficulties 0 to 1.
    difficulty = (mean_level - 1) / (LEVELS - 1)
    distance = difficulty - steps["mastery"]

    # A distance of exactly delta is near, although mastery is a sum of rounded numbers.
    is_near = distance.abs() <= delta + ROUNDING_ERROR
    table = steps.assign(distance=distance, in_zone=is_near.astype(float))
    keys = ["method", "model", "backend", "seed", "item"]
    return table.groupby(keys, sort=False)[["distance", "in_zone"]].mean().reset_index()
