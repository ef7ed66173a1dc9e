"""The study of lesson 06 as rows of a record: everybody on the same exams.

Styles of the record `toolorchestra` are the exams. Condition `office` are tasks of an office, which single tools cannot
do; all others are `question`. Rules, which need no orchestrator, stand in `test` alone. What is trained has one run per
seed; the start and what is only prompted have one.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import torch

from lib import stats
from lib.config import ROOT, Params, ToolSettings
from lib.experiment import results_table
from lib.llm import reply_shares
from lib.rl import losses
from lib.tool_orchestration import rewards, rule_baselines, tool_menu
from lib.tool_orchestration.experiment import AGENT, START, ToolOrchestrationResults
from lib.tool_orchestration.variants import NAMED

SYSTEM = "toolorchestra"
PAPER, SIGN, LENIENT, CORL = (
    NAMED[name].label for name in ("paper", "published", "lenient", "corl")
)
LABELS = (
    {START: "start"}
    | {name: variant.label for name, variant in NAMED.items()}
    | {AGENT: "lab-agent"}
)
UNITS = {  # of cost and latency in the evaluation: per dollar and per second
    "micro-dollars and ms": (rewards.MICRO_USD_PER_USD, rewards.MS_PER_SECOND), "dollars and seconds": (1.0, 1.0),
    "as printed, amounts negative": (-1.0, -1.0),
}  # fmt: skip
WEIGHTS = {
    "correct": "p_accuracy",
    "micro": "p_cost",
    "ms": "p_latency",
}  # what each weight should move
WORST = (
    2.0  # reference of the hypervolume: so many times what the start spends, in money and in time
)
_RULES = {
    rule_baselines.BEST: "constant",
    rule_baselines.BY_KIND: "router",
    rule_baselines.RANDOM: "constant",
    rule_baselines.ORACLE: "oracle",
}
_NONE = pd.DataFrame(columns=["value", "ci_low", "ci_high"], dtype=float)  # estimates
REPLY_COUNTS = ["failures", "failed", "truncated", "unusable", "shortened"]
_NOT_KEPT = [
    "m",
    "p",
    "spoken",
]  # columns of `variants.make_episode_rows` that the results table goes without


def rows(results: ToolOrchestrationResults, params: Params) -> pd.DataFrame:
    """All rows of the results table, see `results_table.write_results`. Own columns: micro and own_micro (dollars per
    million), ms, wild (a malformed turn), score (R^e, on `test`), weights p_*, and those of `told`."""
    every = pd.concat([told(results, params.tools), rules(results)], ignore_index=True)
    # Rules ask no model that can fail, and jobs that were finished before these were counted have none of them.
    for name in REPLY_COUNTS:
        counts = every[name] if name in every else pd.Series(0, index=every.index)
        every[name] = counts.fillna(0).astype(int)
    simplex = every["style"] == "simplex"
    users = every[simplex].drop_duplicates([*WEIGHTS.values()])
    bases = every[simplex]["item"].nunique() // max(1, len(users))
    every["user"] = np.where(simplex, every["item"] // max(1, bases), -1)  # of the grid
    every["item"] = np.where(simplex, every["item"] % max(1, bases), every["item"])
    unknown = {
        "first": "",
        "good": "",
        "liked": "",
        "confidential": False,
        "only": False,
    }  # of rules
    return every.fillna(unknown).assign(
        item=every["item"].astype(str),
        split="test",
        condition=np.where(every["group"] == "office", "office", "question"),
        wild=(every["malformed"] > 0).astype(float),
        micro=every["cost_usd"] * rewards.MICRO_USD_PER_USD,
        own_micro=every["own_cost_usd"] * rewards.MICRO_USD_PER_USD,
        ms=every["seconds"] * rewards.MS_PER_SECOND,
        backend=params.llm.describe_backend(params.tools.models.values()),
        calls=every["calls"].round().astype(int),
    )


def count_replies(rows: pd.DataFrame, tried: pd.DataFrame, params: Params) -> pd.DataFrame:
    """How many calls of models gave no answer, by method: of models on the menu, and of a prompted orchestrator.

    Args:
        rows: The results table.
        tried: The trial of single tools, `ToolOrchestrationResults.tried`. "always T" answers for all of T's replies,
            every other rule for those that it took.
        params: Says which model stands behind a tool, and which is prompted.

    Returns:
        See `lib.llm.reply_shares.count_replies`. Models on the menu are "several".
    """
    model_names = params.tools.models
    backends = [params.llm.models[name].backend for name in model_names.values()]
    orchestrators = rows[rows["method"].isin(list(LABELS.values()))]
    on_menu = orchestrators.assign(
        model=reply_shares.SEVERAL,
        backend=reply_shares.pick_backend(backends),
        calls=_hits(orchestrators["chosen"], [set(model_names)] * len(orchestrators)),
    )

    # A prompted orchestrator writes a turn for each call, and one that ends the episode.
    prompted = rows[rows["method"] == LABELS[AGENT]]
    own_turns = pd.DataFrame(
        {
            "method": prompted["method"],
            "model": params.tools.agent,
            "backend": params.llm.models[params.tools.agent].backend,
            "calls": prompted["calls"] + 1,
            "unusable": prompted["malformed"],
        }
    )
    # A tool that is a model was asked every question alone.
    alone = tried[tried["tool"].isin(list(model_names))]
    models = [model_names[tool] for tool in alone["tool"]]
    alone = alone.assign(
        method=[rule_baselines.ALWAYS + tool for tool in alone["tool"]],
        model=models,
        backend=[params.llm.models[name].backend for name in models],
    )
    taken = _list_replies_of_rules(rows, alone).assign(
        model=reply_shares.SEVERAL, backend=reply_shares.pick_backend(backends)
    )
    calls = pd.concat([on_menu, own_turns, alone, taken], ignore_index=True)
    return reply_shares.count_replies(calls)


def _list_replies_of_rules(rows: pd.DataFrame, alone: pd.DataFrame) -> pd.DataFrame:
    """The replies that rules over several tools took, a row each.

    Args:
        rows: The results table.
        alone: The trial of tools that are models.

    Returns:
        Columns method, calls, and what was lost; empty where no rule is in the table.
    """
    rules_rows = rows[rows["method"].isin(list(_RULES))]
    if rules_rows.empty:
        return pd.DataFrame({"method": [], "calls": []})
    taken = rules_rows[["method", "item", "chosen"]].explode("chosen")
    replies = alone[alone["split"] == "test"].drop(columns="method")
    replies = replies.assign(item=replies["item"].astype(str), chosen=replies["tool"])
    return taken.merge(replies, on=["item", "chosen"])


def list_models_by_label(settings: ToolSettings) -> dict[str, str]:
    """By the lesson's word, the name in `llm.models` of each tool that is a model and of the prompted orchestrator."""
    return {**settings.models, LABELS[AGENT]: settings.agent}


def told(results: ToolOrchestrationResults, settings: ToolSettings) -> pd.DataFrame:
    """Episodes of orchestrators. Columns besides those of `make_episode_rows`: whole (calls of tools), to_cheaper (of
    what the second price list made cheaper), to_wanted (of tools that a user likes; of models, which confidential users
    do not), even (what an even choice from the menu would give of that); newcomer (an unseen tool was called first),
    even_new, only (no other tool is good by its card); met (a call met the outage), correct_met and switched."""
    part = results.episodes.join(scores(results)["score"])
    calls, menus = part["chosen"].str.split(), part["offered"].str.split()
    new, models = (
        set(settings.unseen),
        {name for name, offer in results.offers.items() if not offer.local},
    )
    likes = zip(part["liked"], part["confidential"].astype(bool), strict=True)
    aims = [models if secret else set(names.split()) for names, secret in likes]
    begins = np.where(
        (part["group"] == "facts") & (part["difficulty"] > 1), 2, 1
    )  # an outage, from which call on
    first = [called.count(name) for called, name in zip(calls, part["first"], strict=True)]
    met = ((np.array(first) >= begins) & (part["style"] == "outage")).astype(float)
    order = {method: place for place, method in enumerate(LABELS)}
    return (
        part.assign(
            method=part["method"].map(LABELS),
            chosen=calls,
            offered=menus,
            whole=_hits(calls, [set(results.tools)] * len(part)),
            role=part["method"].map({START: "start", "paper": "paper"}).fillna("router"),
            to_cheaper=_hits(calls, [set(cheaper(results, settings))] * len(part)),
            to_wanted=_hits(calls, aims),
            even=_hits(menus, aims) / menus.str.len(),
            newcomer=part["first"].isin(new).astype(float),
            even_new=_hits(menus, [new] * len(part)) / menus.str.len(),
            only=[not set(names.split()) - new for names in part["good"]],
            met=met,
            correct_met=part["correct"] * met,
            switched=met * (calls.map(lambda names: len(set(names))) > 1),
        )
        .sort_values(
            ["method", "seed"],
            key=lambda of: (
                of.map({LABELS[method]: at for method, at in order.items()})
                if of.name == "method"
                else of
            ),
            kind="stable",
        )
        .drop(columns=_NOT_KEPT, errors="ignore")
    )


def _hits(names: Iterable[list[str]], aims: Iterable[set[str]]) -> np.ndarray:
    """How many of each row's names are among its aims."""
    return np.array(
        [sum(name in aim for name in row) for row, aim in zip(names, aims, strict=True)],
        dtype=float,
    )


def cheaper(results: ToolOrchestrationResults, settings: ToolSettings) -> list[str]:
    """Tools that cost less on the second price list than on the first."""
    lists = (
        tool_menu.price_list(ROOT / path) for path in (settings.prices, settings.unseen_prices)
    )
    one, two = ({**told.calls, **told.models} for told in lists)
    return [
        name for name in one if name in results.tools and two[name].cost_usd < one[name].cost_usd
    ]


def rules(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Rows of `test` by those who need no orchestrator, and so pay for none."""
    part = results.episodes
    start = part[
        (part["method"] == START) & (part["style"] == "test") & (part["group"] != "office")
    ]
    about = start[["item", "group", "difficulty"]]
    found = rule_baselines.baselines(results.tried, start.sort_values("item"), results.tools)
    test_tries = results.tried[results.tried["split"] == "test"]
    tools_by_item = test_tries.groupby("item")["tool"].agg(list).to_dict()
    parts = []
    for name, table in found.items():
        if name == rule_baselines.RANDOM:  # the mean over all that can be asked
            chosen = [tools_by_item.get(item, []) for item in table["item"]]
        else:
            chosen = [[tool] if tool else [] for tool in table["tool"]]
        part = table.drop(columns="tool").assign(
            chosen=chosen, method=name, role=_RULES.get(name, "expert")
        )
        parts.append(part.merge(about, on="item"))
    every = pd.concat(parts, ignore_index=True)
    nothing = [[] for _ in range(len(every))]
    return every.assign(style="test", seed=0, own_cost_usd=0.0, malformed=0, offered=nothing)


def best_always(results: ToolOrchestrationResults) -> str:
    """The tool that was right most often on training questions."""
    return rule_baselines.ordered(results.tried[results.tried["split"] == "train"])[0]


def scores(
    results: ToolOrchestrationResults,
    units: tuple[float, float] = UNITS["micro-dollars and ms"],
    dearer: float = 1.0,
    weigh: tuple[float, float] = (1.0, 1.0),
) -> pd.DataFrame:
    """Episodes of `test` with `score`, R^e by one reading of the formula, indexed as in `results.episodes`. dearer:
    what an orchestrator spends, times so much; weigh: factors on users' weights of cost and latency."""
    part = results.episodes[results.episodes["style"] == "test"]
    before = part[part["method"] == START].set_index("item")["m"].loc[part["item"]]
    m, wanted = np.stack(part["m"]), np.stack(part["p"])
    m[:, -2] *= dearer
    wanted[:, -2:] *= weigh
    return part.assign(
        method=part["method"].map(LABELS),
        score=rewards.compute_preference_scores(m, np.stack(before), wanted, units),
    )


# Estimates that are no means ------------------------------------------------------------------------


def share(
    found: pd.DataFrame, over: str, under: str, by: str | list[str] = "method"
) -> pd.DataFrame:
    """`found` with a column `share` whose mean is a quotient of sums by group, and whose spread is that of the quotient
    by the delta method:

        R = sum(over) / sum(under),    share_i = R + (over_i - R under_i) / mean(under)

    so that `stats.mean` and `stats.paired_difference` are those of R. A group in which `under` is always 0 is left
    out."""
    sums = found.groupby(by, sort=False)[[over, under]].transform("sum")
    found, sums = found[sums[under] > 0], sums[sums[under] > 0]
    whole, level = sums[over] / sums[under], found.groupby(by, sort=False)[under].transform("mean")
    return found.assign(share=whole + (found[over] - whole * found[under]) / level)


def quotients(
    found: pd.DataFrame, over: str, under: str, by: str | list[str] = "method"
) -> pd.DataFrame:
    """Quotients of sums by group, as `stats.mean` of `share`; nan where there was nothing to divide by."""
    linear, groups = share(found, over, under, by), found.groupby(by, sort=False).size().index
    return (stats.mean(linear, "share", by) if len(linear) else _NONE).reindex(groups)


def quotient_gap(
    found: pd.DataFrame, over: str, under: str, of: Mapping, against: Mapping, by: str
) -> pd.DataFrame:
    """Differences of two such quotients inside pairs, by group; nan where one of them is missing. of, against:
    conditions, as of `stats.paired_difference`."""
    linear = share(found, over, under, [by, *of])
    both = [
        name
        for name, part in linear.groupby(by, sort=False)
        if all(len(results_table.select(part, **side)) for side in (of, against))
    ]
    known = (
        stats.paired_difference(linear[linear[by].isin(both)], "share", of, against, by)
        if both
        else _NONE
    )
    return known.reindex(found[by].unique())


def shares_of(found: pd.DataFrame, tools: list[str]) -> pd.DataFrame:
    """Shares of the calls to any of some tools that went to each, by method and tool."""
    hits = {tool: _hits(found["chosen"], [{tool}] * len(found)) for tool in tools}
    whole = sum(hits.values())
    long = pd.concat([found.assign(tool=tool, them=them, all=whole) for tool, them in hits.items()])
    return quotients(long, "them", "all", ["method", "tool"])


def slopes(grid: pd.DataFrame, column: str) -> pd.DataFrame:
    """How much a mean changes by method as its weight goes from 0 to 1, by least squares over the users: the mean over
    seeds and questions of sum_u (w_u - mean w) y_u / sum_u (w_u - mean w)^2. grid: rows of `simplex`."""
    weight = grid.groupby("user")[WEIGHTS[column]].first()
    centred = weight - weight.mean()
    pull = grid["user"].map(centred / (centred**2).sum()) * len(weight)
    return stats.mean(
        grid.assign(slope=pull * grid[column], **{"sample": grid["user"]}), "slope", "method"
    )


def volumes(grid: pd.DataFrame) -> pd.DataFrame:
    """Hypervolume of the users' means by method, 1 at the most: accuracy, and money and time saved as a share of the
    reference. grid: rows of `simplex` with the start's."""
    money, time = WORST * grid[grid["role"] == "start"][["micro", "ms"]].mean()
    saved = grid.assign(money=1 - grid["micro"] / money, time=1 - grid["ms"] / time)
    return stats.statistic(saved, ["user", "correct", "money", "time"], _volume, "method")


def _volume(points: np.ndarray) -> float:
    means = pd.DataFrame(points).groupby(0).mean().to_numpy()
    return stats.hypervolume(means, np.zeros(means.shape[1]))


# Training -------------------------------------------------------------------------------------------


def updates(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Means over the rollouts of every update: method (label), seed, step, correct, micro, ms, reward, malformed, paid
    (of right ones alone, nan without one), and left, the share that the filters left out."""
    rollouts, keys = results.rollouts, ["method", "seed", "step"]
    micro = rollouts["cost_usd"] * rewards.MICRO_USD_PER_USD
    each = rollouts.assign(
        micro=micro,
        ms=rollouts["seconds"] * rewards.MS_PER_SECOND,
        malformed=(rollouts["malformed"] > 0).astype(float),
        paid=micro.where(rollouts["correct"] > 0),
    ).groupby(keys)
    kept = results.learning.assign(step=results.learning["step"] - 1).set_index(keys)["kept"]
    found = (
        each[["correct", "micro", "ms", "reward", "malformed", "paid"]]
        .mean()
        .assign(left=1 - kept / each.size())
    )
    return found.reset_index().replace({"method": LABELS})


def left_out(results: ToolOrchestrationResults) -> pd.DataFrame:
    """The shares of all rollouts, by method, that were malformed, had no answer, or stood in groups that agree."""
    whole = results.rollouts.groupby("method").size()
    sums = results.learning.groupby("method")[["malformed", "unanswered", "agreeing"]].sum()
    return sums.div(whole, axis=0).rename(index=LABELS)


def graded(group: pd.DataFrame, least: float) -> pd.DataFrame:
    """Rollouts of one example, with cost and time between the least and the most of the group, `told` (M_norm . P),
    their `fate`, and `advantage`, nan for what is left out. least: deviation below which a group tells nothing."""
    ids, reward = [0] * len(group), group["reward"].to_numpy(float)
    norm = rewards.normalize_within_groups(np.stack(group["m"]), ids)
    wild, silent = group["malformed"] > 0, group["answered"] == 0
    kept = rewards.filter_rollouts(reward, ids, wild, ~silent, least).rows
    fate = np.select([wild, silent], ["malformed", "no answer"], "agrees").astype(object)
    fate[kept] = "kept"
    advantage = np.full(len(group), np.nan)
    if len(kept) > 1:
        advantage[kept] = losses.compute_group_advantages(torch.tensor(reward[kept]), len(kept))
    return group.assign(
        micro=group["cost_usd"] * rewards.MICRO_USD_PER_USD,
        ms=group["seconds"] * rewards.MS_PER_SECOND,
        cheap=norm[:, -2],
        fast=norm[:, -1],
        told=(norm * np.stack(group["p"])).sum(1),
        fate=fate,
        advantage=advantage,
    )


def example(results: ToolOrchestrationResults, least: float) -> pd.DataFrame:
    """A `graded` group of the first training of ToolOrchestra in which much can be seen: something is learned, from
    right and wrong ones, right ones at several prices, by several ways, one malformed; of equals a late one."""
    part = results.rollouts[
        (results.rollouts["method"] == "paper") & (results.rollouts["seed"] == 0)
    ]

    def seen(one: pd.DataFrame) -> tuple:
        kept = one[one["advantage"].notna()]
        correct = kept[kept["correct"] > 0]
        several = min(correct["cost_usd"].nunique(), 3), min(kept["chosen"].nunique(), 3)
        return (
            len(kept) > 0,
            0 < len(correct) < len(kept),
            *several,
            (one["malformed"] > 0).any(),
            one["step"].iloc[0],
        )

    return max(
        (graded(group, least) for _, group in part.groupby(["step", "rollout_group"])), key=seen
    )
