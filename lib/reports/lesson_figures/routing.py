"""Tables and figures of lesson 05, budgeted routing."""

import json
from collections.abc import Callable, Mapping, Sequence

import matplotlib.figure
import pandas as pd

from lib import plots, stats
from lib.budgeted_routing import expert_outcomes, lesson_estimates
from lib.budgeted_routing.experiment import BudgetedRoutingResults
from lib.budgeted_routing.synthetic_environment import BUDGETS
from lib.budgeted_routing.worlds import COMPLEMENTARY, LADDER, select_world
from lib.config import Params, RoutingSettings, RoutingSyntheticSettings
from lib.experiment import results_table
from lib.reports.lesson_figures import spoken
from lib.reports.wording import listed
from lib.rl import call_protocol
from lib.rl.call_protocol import BUDGET_WORDS

MILLION = 1e6
MAIN_WORLDS = (COMPLEMENTARY, LADDER)
# Estimates that the lesson shows of a reader's run and of the recorded full run, by metric key.
SHOWN_KEYS = (
    "control.low.over_budget",
    "control.medium.over_budget",
    "control.slope",
    "control.accuracy_high_minus_low",
    "ladder.control.low.over_budget",
    "ladder.control.medium.over_budget",
    "ladder.control.accuracy_high_minus_low",
    *(f"corl.{budget}.gain" for budget in BUDGET_WORDS),
    *(f"corl.{budget}.minus_logistic" for budget in BUDGET_WORDS),
    *(f"ladder.{budget}.minus_best_expert" for budget in BUDGET_WORDS),
)


def episodes_html(rows: pd.DataFrame, caption: str, unlimited: float) -> spoken.Rendered:
    """Renders episodes with the same question one below the other, each segment in the colour of its author.

    Args:
        rows: Episodes of `budget_episodes.make_episode_rows`, with their segments in the column `spoken`.
        caption: Stands above all of them.
        unlimited: Dollars from which on a budget counts as none.

    Returns:
        HTML and plain text.
    """
    episodes = []
    for row in rows.to_dict("records"):
        segments = []
        for author, text, cost_usd in json.loads(row["spoken"]):
            method = "CoRL" if author == "controller" else ""
            cost = f", ${cost_usd * MILLION:.1f} per million" if cost_usd else ""
            segments.append(spoken.render_segment(author, text, method, cost))
        heading = f"budget {row['condition']}"
        episodes.append((heading, segments, _describe_outcome(row, unlimited)))
    return spoken.join_episodes(caption, episodes)


def _describe_outcome(row: Mapping, unlimited: float) -> str:
    """How an episode ended; costs in micro-dollars, which is dollars per million questions."""
    answer = "right" if row["correct"] else "wrong"
    side_of_budget = "within" if row["within"] else "above"
    budget = "no limit" if row["budget"] >= unlimited else f"B = {row['budget'] * MILLION:.1f}"
    return (
        f"{answer}; spent {row['cost_usd'] * MILLION:.1f}, {side_of_budget} the budget ({budget}); "
        f"reward {row['reward']:.0f}; {row['calls']} calls, {row['malformed']} malformed turns"
    )


def choose_question(rows: pd.DataFrame, method: str = "corl") -> pd.DataFrame:
    """Chooses a test question that shows well what a budget does.

    Spending rises with the budget as often as on any question; of those it ends as most of its kind do under each
    budget; of equals it is the hardest.

    Args:
        rows: Test episodes, of all methods.
        method: The method whose episodes are shown.

    Returns:
        The episodes of seed 0 at the lowest temperature, one row per budget, from low to high.
    """
    budgets = list(call_protocol.BUDGET_WORDS)
    greedy = rows["temperature"] == rows["temperature"].min()
    episodes = rows[(rows["method"] == method) & (rows["seed"] == 0) & greedy]

    # By item: between how many neighbouring budgets spending rises.
    cost = episodes.pivot(index="item", columns="condition", values="cost_usd")[budgets]
    num_rises = (cost.diff(axis=1).iloc[:, 1:] > 0).sum(axis=1)

    # By item: under how many budgets it is right where most of its kind are, or wrong where most are.
    accuracy = episodes.groupby(["group", "condition"])["correct"].transform("mean")
    is_typical = (accuracy - episodes["correct"]).abs() <= 0.5
    num_typical = is_typical.groupby(episodes["item"]).sum()

    difficulty = episodes.groupby("item")["difficulty"].first()
    # Weights far apart make this a comparison by rises, then by typical outcomes, then by difficulty.
    best_item = (num_rises * 10_000 + num_typical * 100 + difficulty).idxmax()
    chosen = episodes[episodes["item"] == best_item]
    return chosen.set_index("condition").loc[budgets].reset_index()


# The synthetic environment -------------------------------------------------------------------------


def tabulate_by_budget(estimates: pd.DataFrame) -> pd.DataFrame:
    """Arrange estimates with verdicts: a row per quantity, a column per budget.

    Args:
        estimates: Indexed by quantity and budget, with a column verdict.

    Returns:
        Texts such as "+0.120 [+0.100, +0.140], holds".
    """
    intervals = stats.intervals(estimates)
    texts = [
        f"{format_estimate(interval)}, {verdict}"
        for interval, verdict in zip(intervals, estimates["verdict"], strict=True)
    ]
    names = list(dict.fromkeys(estimates.index.get_level_values(0)))
    budgets = list(dict.fromkeys(estimates.index.get_level_values(1)))
    table = pd.Series(texts, index=estimates.index).unstack(1)
    table = table.loc[names, budgets].rename(index=lambda name: name.replace("_", " "))
    return table.rename_axis("reward").rename_axis(None, axis="columns")


def format_estimate(interval: stats.Interval) -> str:
    """An estimate with its interval, where there are enough runs for one."""
    text = f"{interval.value:+.3f}"
    if stats.has_few_runs(interval.num_runs) or not interval.known:
        return text
    return f"{text} [{interval.ci_low:+.3f}, {interval.ci_high:+.3f}]"


def make_map_slider(
    rows: pd.DataFrame, settings: RoutingSyntheticSettings
) -> tuple[Callable[..., matplotlib.figure.Figure], dict[str, list[float]]]:
    """Make what `lesson.slider` takes, for rewards at other grid points of the synthetic environment.

    Args:
        rows: Of `synthetic_job.run`.
        settings: The map.

    Returns:
        A function from a complementarity and a noise to a figure, and the values of both.
    """
    methods = ["start", "best constant", "best without the query", "CoRL", "optimum"]
    final = results_table.select(
        rows, method=methods, step=results_table.AFTER, spread=settings.central["spread"]
    )
    final = final[(final["temperature"] == 0) | (final["role"] == "start")]
    knobs = {knob: settings.map[knob] for knob in ("complementarity", "noise")}
    rewards = stats.mean(final, "reward", ["method", "condition", *knobs])
    roles = dict(final[["method", "role"]].drop_duplicates().itertuples(index=False))

    def draw_map_point(complementarity: float, noise: float) -> matplotlib.figure.Figure:
        point = rewards.xs((complementarity, noise), level=("complementarity", "noise"))
        labels = {budget: f"reward, budget {budget}" for budget in BUDGETS}
        title = f"Reward by budget: complementarity {complementarity:g}, noise {noise:g}"
        return plots.forest_plot(
            point.reindex(methods, level="method"),
            title,
            labels,
            panels="condition",
            rows="method",
            roles=roles,
            limits=(-0.05, 1.05),
        )

    return draw_map_point, knobs


# Experts, budgets, headroom ------------------------------------------------------------------------


def tabulate_experts(world_results: BudgetedRoutingResults) -> pd.DataFrame:
    """Accuracy of each expert by family of questions, and what a call costs.

    Args:
        world_results: Of one world.

    Returns:
        A row per expert, cheapest first.
    """
    train = world_results.experts[world_results.experts["split"] == "train"]
    is_one_family = train["group"].nunique() == 1
    # Where all questions are of one family, their difficulty tells the experts apart.
    column = "difficulty" if is_one_family else "group"
    accuracy = train.pivot_table(
        index="method", columns=column, values="correct", sort=is_one_family
    )
    accuracy.columns = [
        f"difficulty {name}" if is_one_family else name for name in accuracy.columns
    ]
    prices = pd.Series(world_results.budgets.calls)
    table = accuracy.loc[list(prices.index)]
    table["a call costs up to, $ per million"] = MILLION * prices
    return table.rename_axis("expert")


def tabulate_budgets(
    results_by_world: Mapping[str, BudgetedRoutingResults], settings: RoutingSettings
) -> pd.DataFrame:
    """What each budget word is worth in each world, and the expert whose price that is.

    Args:
        results_by_world: Of `experiment.run_worlds`.
        settings: Says which budget is no limit.
    """
    blocks = {}
    for world in MAIN_WORLDS:
        budgets = results_by_world[world].budgets
        blocks[world] = expert_outcomes.tabulate_budgets(budgets.words, budgets.calls, settings)
    return pd.concat(blocks, names=["world"]).droplevel(1).reset_index()


def estimate_headroom(
    params: Params, results_by_world: Mapping[str, BudgetedRoutingResults]
) -> pd.DataFrame:
    """Estimate what choosing per question could win over the best constant, in both worlds.

    Args:
        params: All settings.
        results_by_world: Of `experiment.run_worlds`; its budgets are read.

    Returns:
        By world and budget word: estimates, constant (the strategy to beat), and is_open.
    """
    blocks = {}
    for world in MAIN_WORLDS:
        outcomes = expert_outcomes.measure_choices(
            select_world(params, world), params.lab.choice_items
        )
        budgets = results_by_world[world].budgets.words
        estimates = expert_outcomes.estimate_headroom(outcomes, budgets)
        blocks[world] = estimates.loc[list(BUDGET_WORDS)]
    table = pd.concat(blocks, names=["world", "budget"])
    return table.assign(is_open=stats.is_open(table))


def tabulate_headroom(headroom: pd.DataFrame) -> pd.DataFrame:
    """What could be won by choosing, a row per world and budget.

    Args:
        headroom: Of `estimate_headroom`.
    """
    return pd.DataFrame(
        {
            "headroom": [format_estimate(interval) for interval in stats.intervals(headroom)],
            "constant to beat": headroom["constant"],
            "question": headroom["is_open"].map({True: "open", False: "not open"}),
        },
        index=headroom.index,
    )


def name_gates(headroom: pd.DataFrame) -> dict[str, pd.Series]:
    """Headroom by metric key: gate.routing.BUDGET.headroom, and gate.ladder.BUDGET.headroom.

    Args:
        headroom: Of `estimate_headroom`.
    """
    prefixes = {COMPLEMENTARY: "gate.routing", LADDER: "gate.ladder"}
    return {
        f"{prefixes[world]}.{budget}.headroom": row
        for (world, budget), row in headroom.drop(columns="constant").iterrows()
    }


# Control -------------------------------------------------------------------------------------------

ANSWERABLE = "an affordable expert is correct"
UNANSWERABLE = "no affordable expert is correct"


def arrange_overspending(estimates: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Arrange how often CoRL is over its budget, by whether an affordable expert answers the question.

    Args:
        estimates: Of `lesson_estimates.collect_estimates`.

    Returns:
        Estimates by questions, such as "low: no affordable expert is correct", and world.
    """
    rows = {}
    for world in MAIN_WORLDS:
        prefix = "" if world == COMPLEMENTARY else f"{lesson_estimates.PREFIXES[world]}."
        for budget in BUDGET_WORDS[:-1]:
            for suffix, label in (("answerable", ANSWERABLE), ("unanswerable", UNANSWERABLE)):
                key = f"{prefix}control.{budget}.over_budget_{suffix}"
                if key in estimates:
                    rows[f"{budget}: {label}", world] = estimates[key]
    table = pd.DataFrame(rows).T.infer_objects()
    return table.rename_axis(["questions", "world"])


def summarize_overspending(overspending: pd.DataFrame) -> str:
    """How often budgets are broken, as the title of the figure.

    Args:
        overspending: Of `arrange_overspending`.
    """
    values = overspending["value"].groupby(
        overspending.index.get_level_values("questions").str.partition(": ").get_level_values(2)
    )
    means = values.mean()
    phrases = [
        f"{100 * means[label]:.0f} % where {label}"
        for label in (ANSWERABLE, UNANSWERABLE)
        if label in means
    ]
    return f"CoRL is over its budget in {listed(phrases)}"


def summarize_slope(slope: pd.Series) -> str:
    """How spending follows a budget that is a number, as the title of the figure.

    Args:
        slope: Estimate of `budget_control.estimate_slope`.
    """
    return f"For each further dollar of budget CoRL spends {slope['value']:.2f} dollars more"


# Rewards -------------------------------------------------------------------------------------------


def arrange_primary(primary: pd.DataFrame) -> pd.DataFrame:
    """Arrange primary contrasts: a row per baseline, a column per budget, and the largest detectable effect.

    Args:
        primary: Of `lesson_estimates.tabulate_primary`.

    Returns:
        Texts such as "+0.120 [+0.100, +0.140]*, holds"; a star marks a difference that is significant when all are
        tested together.
    """
    texts = []
    for interval, row in zip(stats.intervals(primary), primary.itertuples(), strict=True):
        star = "*" if row.significant_together else ""
        texts.append(f"{format_estimate(interval)}{star}, {row.verdict}")
    baselines = list(dict.fromkeys(primary.index.get_level_values("baseline")))
    table = pd.Series(texts, index=primary.index).unstack("budget")[list(BUDGET_WORDS)]
    table["minimum detectable effect"] = primary["mde"].groupby(level="baseline").max()
    table = table.loc[baselines].rename(index=lambda name: f"minus {name}")
    return table.rename_axis(None).rename_axis(None, axis="columns")


def summarize_rewards(estimates: Mapping[str, pd.Series], baselines: Sequence[str]) -> str:
    """Over how many budgets CoRL's reward is clearly above that of baselines, as the title of a figure.

    Args:
        estimates: Of `lesson_estimates.collect_estimates`.
        baselines: Keys of `lesson_estimates.BASELINES`.
    """
    phrases = []
    for key in baselines:
        num_above = 0
        for budget in BUDGET_WORDS:
            estimate = estimates[f"corl.{budget}.minus_{key}"]
            num_above += bool(estimate["ci_low"] > 0)
        phrases.append(f"{lesson_estimates.BASELINES[key]} under {num_above}")
    return f"Of three budgets, CoRL earns clearly more than {listed(phrases)}"


def summarize_lesson(estimates: Mapping[str, pd.Series]) -> str:
    """What came out, as the lesson's conclusion.

    Args:
        estimates: Of `lesson_estimates.collect_estimates`.
    """
    low = estimates["control.low.over_budget"]
    bought = estimates["control.accuracy_high_minus_low"]
    differences = [estimates[f"corl.{budget}.minus_logistic"]["value"] for budget in BUDGET_WORDS]
    texts = [
        f"{difference:+.3f} ({budget})"
        for budget, difference in zip(BUDGET_WORDS, differences, strict=True)
    ]
    return (
        f"Under the low budget CoRL spends too much on {100 * low['value']:.0f} % of the questions; a high budget "
        f"makes {100 * bought['value']:.0f} % more of them correct; its reward minus that of logistic regression is "
        f"{listed(texts)}"
    )


# Recorded outcomes ---------------------------------------------------------------------------------


def arrange_recorded(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Arrange contrasts on recorded outcomes: a row per table and budget, a column per baseline.

    Args:
        contrasts: Of `recorded_benchmark.estimate_contrasts`.
    """
    texts = [
        f"{format_estimate(interval)}, {verdict}"
        for interval, verdict in zip(stats.intervals(contrasts), contrasts["verdict"], strict=True)
    ]
    baselines = list(dict.fromkeys(contrasts.index.get_level_values("baseline")))
    tables = list(dict.fromkeys(contrasts.index.get_level_values("group")))
    table = pd.Series(texts, index=contrasts.index).unstack("baseline")[baselines]
    order = [(name, budget) for name in tables for budget in BUDGET_WORDS]
    table = table.reindex([row for row in order if row in table.index])
    table.columns = [f"minus {baseline}" for baseline in baselines]
    return table.rename_axis(["outcomes", "budget"])


def name_recorded(contrasts: pd.DataFrame) -> dict[str, pd.Series]:
    """Contrasts on recorded outcomes by metric key: recorded.TABLE.BUDGET.minus_BASELINE.

    Args:
        contrasts: Of `recorded_benchmark.estimate_contrasts`.
    """
    named = {}
    for (table, budget, baseline), row in contrasts.iterrows():
        key = f"recorded.{table}.{budget}.minus_{baseline.replace(' ', '_')}"
        named[key.replace(" ", "_")] = row
    return named
