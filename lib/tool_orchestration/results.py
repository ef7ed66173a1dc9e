"""The earlier experiment of lesson 06 (its appendix) as rows of a results table: all methods on the same test sets.

`style` names the test set: test, pilot, unseen_tools, unseen_prices, outage, simplex. Condition `office` are tasks of a
synthesised office, which single tools cannot do; all others are `question`. Baselines, which need no orchestrator,
stand in `test` alone. What is trained has one run per seed; the start and what is only prompted have one.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from lib import stats
from lib.config import ROOT, Params, ToolSettings
from lib.experiment import results_table
from lib.llm import reply_shares
from lib.tool_orchestration import rewards, rule_baselines, tool_menu
from lib.tool_orchestration.experiment import AGENT, START, ToolOrchestrationResults
from lib.tool_orchestration.variants import NAMED

SYSTEM = "toolorchestra_office"  # the lab world is "toolorchestra"
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
    "micro_usd": "p_cost",
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


def make_rows(results: ToolOrchestrationResults, params: Params) -> pd.DataFrame:
    """Make all rows of the results table, of orchestrators and of baselines.

    Args:
        results: What the experiment left.
        params: The parameters that it was run with.

    Returns:
        Rows for `results_table.write_results`. Columns of this table alone: micro_usd (millionths of a dollar, and so
        dollars per million questions), own_micro_usd (of it the orchestrator's own tokens), ms, has_malformed_turn,
        score (R^e, on `test`), p_accuracy, p_cost, p_latency, user (of the grid of weights, else -1), and those of
        `make_orchestrator_rows`.
    """
    every = pd.concat(
        [make_orchestrator_rows(results, params.tools), make_baseline_rows(results)],
        ignore_index=True,
    )
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
        "only_newcomer_is_capable": False,
    }  # of rules
    return every.fillna(unknown).assign(
        item=every["item"].astype(str),
        split="test",
        condition=np.where(every["group"] == "office", "office", "question"),
        has_malformed_turn=(every["malformed"] > 0).astype(float),
        micro_usd=every["cost_usd"] * rewards.MICRO_USD_PER_USD,
        own_micro_usd=every["own_cost_usd"] * rewards.MICRO_USD_PER_USD,
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


def make_orchestrator_rows(
    results: ToolOrchestrationResults, settings: ToolSettings
) -> pd.DataFrame:
    """Make the rows of orchestrators.

    Args:
        results: What the experiment left.
        settings: Of lesson 06.

    Returns:
        Rows with the columns of `variants.make_episode_rows` and these:

        tool_calls                 number of calls of tools
        cheaper_calls              of them, of tools that the second price list made cheaper
        preferred_calls            of them, of tools that a user likes; of models, which confidential users do not like
        preferred_at_random        share of such tools on the menu
        newcomer_first             an unseen tool was called first
        newcomer_at_random         share of unseen tools on the menu
        only_newcomer_is_capable   no other tool of the menu is good at the question by its card
        met_outage                 a call met the tool that fails
        correct_after_outage       and the answer was correct
        switched                   and another tool was called too
    """
    part = results.episodes.join(compute_scores(results)["score"])
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
            tool_calls=_hits(calls, [set(results.tools)] * len(part)),
            role=part["method"].map({START: "start", "paper": "paper"}).fillna("router"),
            cheaper_calls=_hits(calls, [set(list_cheaper_tools(results, settings))] * len(part)),
            preferred_calls=_hits(calls, aims),
            preferred_at_random=_hits(menus, aims) / menus.str.len(),
            newcomer_first=part["first"].isin(new).astype(float),
            newcomer_at_random=_hits(menus, [new] * len(part)) / menus.str.len(),
            only_newcomer_is_capable=[not set(names.split()) - new for names in part["good"]],
            met_outage=met,
            correct_after_outage=part["correct"] * met,
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


def list_cheaper_tools(results: ToolOrchestrationResults, settings: ToolSettings) -> list[str]:
    """Tools that cost less on the second price list than on the first."""
    lists = (
        tool_menu.read_price_list(ROOT / path) for path in (settings.prices, settings.unseen_prices)
    )
    one, two = ({**told.calls, **told.models} for told in lists)
    return [
        name for name in one if name in results.tools and two[name].cost_usd < one[name].cost_usd
    ]


def make_baseline_rows(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Rows of `test` by those who need no orchestrator, and so pay for none."""
    part = results.episodes
    start = part[
        (part["method"] == START) & (part["style"] == "test") & (part["group"] != "office")
    ]
    about = start[["item", "group", "difficulty"]]
    found = rule_baselines.apply_baselines(results.tried, start.sort_values("item"), results.tools)
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


def find_best_tool(results: ToolOrchestrationResults) -> str:
    """The tool that was right most often on training questions."""
    return rule_baselines.order_tools(results.tried[results.tried["split"] == "train"])[0]


def compute_scores(
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


def linearize_ratio(
    rows: pd.DataFrame, numerator: str, denominator: str, by: str | list[str] = "method"
) -> pd.DataFrame:
    """Adds a column `share` whose mean is a ratio of sums by group, and whose spread is that of the ratio.

    By the delta method, for numerator y and denominator x:

        R = sum(y) / sum(x),    share_i = R + (y_i - R x_i) / mean(x)

    so that `stats.mean` and `stats.paired_difference` of `share` are those of R.

    Args:
        rows: Rows of the results table.
        numerator: Column y.
        denominator: Column x.
        by: Columns of the groups.

    Returns:
        The rows with `share`, without groups in which the denominator is always 0.
    """
    columns = [numerator, denominator]
    sums = rows.groupby(by, sort=False)[columns].transform("sum")
    means = rows.groupby(by, sort=False)[denominator].transform("mean")
    has_denominator = sums[denominator] > 0
    rows, sums, means = rows[has_denominator], sums[has_denominator], means[has_denominator]
    ratio = sums[numerator] / sums[denominator]
    residual = rows[numerator] - ratio * rows[denominator]
    return rows.assign(share=ratio + residual / means)


def estimate_ratios(
    rows: pd.DataFrame, numerator: str, denominator: str, by: str | list[str] = "method"
) -> pd.DataFrame:
    """Estimates ratios of sums by group, with intervals; nan where there is nothing to divide by."""
    groups = rows.groupby(by, sort=False).size().index
    linear = linearize_ratio(rows, numerator, denominator, by)
    estimates = stats.mean(linear, "share", by) if len(linear) else _NONE
    return estimates.reindex(groups)


def estimate_ratio_differences(
    rows: pd.DataFrame,
    numerator: str,
    denominator: str,
    treatment: Mapping,
    baseline: Mapping,
    by: str,
) -> pd.DataFrame:
    """Estimates differences of two such ratios inside pairs, by group; nan where one of them is missing.

    Args:
        rows: Rows of the results table.
        numerator: Column.
        denominator: Column.
        treatment: Conditions, as `stats.paired_difference` takes them.
        baseline: Conditions on the same columns.
        by: Column of the groups.

    Returns:
        One row for each group.
    """
    linear = linearize_ratio(rows, numerator, denominator, [by, *treatment])
    complete_groups = []
    for name, group_rows in linear.groupby(by, sort=False):
        has_treatment = len(results_table.select(group_rows, **treatment)) > 0
        has_baseline = len(results_table.select(group_rows, **baseline)) > 0
        if has_treatment and has_baseline:
            complete_groups.append(name)
    estimates = _NONE
    if complete_groups:
        complete_rows = linear[linear[by].isin(complete_groups)]
        estimates = stats.paired_difference(complete_rows, "share", treatment, baseline, by)
    return estimates.reindex(rows[by].unique())


def estimate_call_shares(rows: pd.DataFrame, tools: list[str]) -> pd.DataFrame:
    """Estimates the share of the calls to any of some tools that went to each, by method and tool."""
    calls_by_tool = {tool: _hits(rows["chosen"], [{tool}] * len(rows)) for tool in tools}
    all_calls = sum(calls_by_tool.values())
    tables = []
    for tool, calls in calls_by_tool.items():
        tables.append(rows.assign(tool=tool, calls_of_tool=calls, calls_of_all=all_calls))
    return estimate_ratios(pd.concat(tables), "calls_of_tool", "calls_of_all", ["method", "tool"])


def estimate_weight_slopes(grid: pd.DataFrame, column: str) -> pd.DataFrame:
    """Estimates by method how much a mean changes as the weight on it goes from 0 to 1.

    By least squares over the users u of the grid: the mean over seeds and questions of

        sum_u (w_u - mean w) y_u / sum_u (w_u - mean w)^2

    Args:
        grid: Rows of the test set `simplex`.
        column: y, a key of WEIGHTS.

    Returns:
        One row for each method.
    """
    weight_by_user = grid.groupby("user")[WEIGHTS[column]].first()
    centred = weight_by_user - weight_by_user.mean()
    coefficient_by_user = centred / (centred**2).sum()
    # The mean over users is a sum divided by their number.
    coefficients = grid["user"].map(coefficient_by_user) * len(weight_by_user)
    terms = grid.assign(slope=coefficients * grid[column], **{"sample": grid["user"]})
    return stats.mean(terms, "slope", "method")


def estimate_hypervolumes(grid: pd.DataFrame) -> pd.DataFrame:
    """Estimates the hypervolume of the users' means by method.

    The axes are accuracy, and money and time saved as a share of the reference: WORST times what the start spends. The
    largest possible value is 1.

    Args:
        grid: Rows of the test set `simplex`, those of the start among them.

    Returns:
        One row for each method.
    """
    spending_of_start = grid[grid["role"] == "start"][["micro_usd", "ms"]].mean()
    reference_money, reference_time = WORST * spending_of_start
    saved = grid.assign(
        money=1 - grid["micro_usd"] / reference_money, time=1 - grid["ms"] / reference_time
    )
    return stats.statistic(saved, ["user", "correct", "money", "time"], _volume, "method")


def _volume(points: np.ndarray) -> float:
    means = pd.DataFrame(points).groupby(0).mean().to_numpy()
    return stats.hypervolume(means, np.zeros(means.shape[1]))


# Training -------------------------------------------------------------------------------------------


def average_updates(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Compute means over the rollouts of every update.

    Args:
        results: What the experiment left.

    Returns:
        Rows by method (label), seed and step: correct, micro_usd, ms, reward, malformed, micro_usd_if_correct (nan
        where nothing is correct) and left_out, the share of rollouts that the filters left out.
    """
    keys = ["method", "seed", "step"]
    rollouts = results.rollouts
    micro_usd = rollouts["cost_usd"] * rewards.MICRO_USD_PER_USD
    measured = rollouts.assign(
        micro_usd=micro_usd,
        ms=rollouts["seconds"] * rewards.MS_PER_SECOND,
        malformed=(rollouts["malformed"] > 0).astype(float),
        micro_usd_if_correct=micro_usd.where(rollouts["correct"] > 0),
    )
    columns = ["correct", "micro_usd", "ms", "reward", "malformed", "micro_usd_if_correct"]
    rollouts_by_update = measured.groupby(keys)
    means = rollouts_by_update[columns].mean()

    # The trainer counts updates from 1, rollouts from 0.
    updates = results.learning.assign(step=results.learning["step"] - 1).set_index(keys)
    means["left_out"] = 1 - updates["kept"] / rollouts_by_update.size()
    return means.reset_index().replace({"method": LABELS})


def compute_left_out_shares(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Compute the shares of rollouts, by method, that were malformed, unanswered, or in groups that agree."""
    num_rollouts = results.rollouts.groupby("method").size()
    sums = results.learning.groupby("method")[["malformed", "unanswered", "agreeing"]].sum()
    return sums.div(num_rollouts, axis=0).rename(index=LABELS)
