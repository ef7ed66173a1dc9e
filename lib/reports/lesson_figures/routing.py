"""Tables and figures of lesson 05, budgeted routing."""

import json
from collections.abc import Mapping

import matplotlib.figure
import numpy as np
import pandas as pd

from lib import plots, stats
from lib.budgeted_routing import budget_control, expert_outcomes
from lib.budgeted_routing.experiment import BudgetedRoutingResults
from lib.budgeted_routing.synthetic_environment import BUDGETS
from lib.budgeted_routing.worlds import COMPLEMENTARY, LADDER
from lib.config import RoutingSettings
from lib.experiment import results_table
from lib.plots.tables import listed, more_or_less
from lib.reports.lesson_figures import spoken
from lib.rl.call_protocol import BUDGET_WORDS

MILLION = 1e6
MAIN_WORLDS = (COMPLEMENTARY, LADDER)
# What a table calls the estimates that it shows of a reader's run and of the recorded full run, by metric key.
BOTH_RUNS_LABELS = {
    "control.low.over_budget": "over the low budget, share of questions",
    "control.medium.over_budget": "over the medium budget, share of questions",
    "control.slope": "dollars spent of each further dollar allowed",
    "control.accuracy_high_minus_low": "accuracy, high budget minus low",
    "ladder.control.low.over_budget": "ladder: over the low budget, share of questions",
    "ladder.control.medium.over_budget": "ladder: over the medium budget, share of questions",
    "ladder.control.accuracy_high_minus_low": "ladder: accuracy, high budget minus low",
    "corl.low.gain": "reward minus start, low budget",
    "corl.medium.gain": "reward minus start, medium budget",
    "corl.high.gain": "reward minus start, high budget",
    "corl.low.minus_logistic": "reward minus logistic, low budget",
    "corl.medium.minus_logistic": "reward minus logistic, medium budget",
    "corl.high.minus_logistic": "reward minus logistic, high budget",
    "ladder.low.minus_best_expert": "ladder: reward minus best expert, low budget",
    "ladder.medium.minus_best_expert": "ladder: reward minus best expert, medium budget",
    "ladder.high.minus_best_expert": "ladder: reward minus best expert, high budget",
}
# Metrics of the lesson that the front page shows.
FRONT_PAGE_KEYS = (
    "control.low.over_budget",
    "control.accuracy_high_minus_low",
    "corl.medium.gain",
    "corl.medium.minus_best_constant",
    "corl.medium.minus_logistic",
)


def render_episodes(rows: pd.DataFrame, caption: str, unlimited: float) -> spoken.Rendered:
    """Renders episodes with the same question one below the other, each segment in the colour of its author.

    In an episode a controller, a language model, answers a question or calls experts, models that cost money, under a
    budget. Its author is the prompt, the controller or an expert.

    Args:
        rows: Episodes of `budget_episodes.make_episode_rows`, whose column `spoken` has the segments as JSON.
        caption: Stands above all episodes.
        unlimited: US dollars from which on a budget counts as none.

    Returns:
        HTML, and the same as plain text.
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


def _describe_outcome(episode: Mapping, unlimited: float) -> str:
    """Describes how an episode ended: answer, cost and budget, reward, and numbers of calls and malformed turns.

    Args:
        episode: A row of `budget_episodes.make_episode_rows`: correct, within (whether the calls cost at most the
            budget), cost_usd, budget (US dollars), reward, calls, malformed.
        unlimited: US dollars from which on a budget counts as none.

    Returns:
        One line, with costs in US dollars per million questions.
    """
    answer = "right" if episode["correct"] else "wrong"
    side_of_budget = "within" if episode["within"] else "above"
    if episode["budget"] >= unlimited:
        budget = "no limit"
    else:
        budget = f"B = {episode['budget'] * MILLION:.1f}"
    return (
        f"{answer}; spent {episode['cost_usd'] * MILLION:.1f}, {side_of_budget} the budget ({budget}); "
        f"reward {episode['reward']:.0f}; {episode['calls']} calls, {episode['malformed']} malformed turns"
    )


def choose_question(rows: pd.DataFrame, method: str = "corl") -> pd.DataFrame:
    """Chooses a test question on which it shows what a budget does.

    Of all questions those on which spending rises most often from budget to budget; of these, those that end under most
    budgets as most of their family do; of these the most difficult one.

    Args:
        rows: Test episodes of all methods, with the columns of `budget_episodes.make_episode_rows`, method, seed and
            temperature.
        method: Name of the method whose episodes are returned.

    Returns:
        The episodes of seed 0 with this question, at the lowest temperature: one row per budget, low to high.
    """
    budgets = list(BUDGET_WORDS)
    is_greedy = rows["temperature"] == rows["temperature"].min()
    episodes = rows[(rows["method"] == method) & (rows["seed"] == 0) & is_greedy]

    # By question: between how many neighbouring budgets spending rises.
    cost = episodes.pivot(index="item", columns="condition", values="cost_usd")[budgets]
    changes = cost.diff(axis=1)  # from each budget to the next one; the first has none (NaN)
    num_rises = (changes > 0).sum(axis=1)

    # By question: under how many budgets it is right where most of its family are, or wrong where most are.
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
    """Arranges estimates with verdicts as a table of texts: a row per quantity, a column per budget.

    Args:
        estimates: Rows of `lib.stats` (value, ci_low, ci_high, ...) with a column verdict, indexed by quantity and
            budget word.

    Returns:
        Texts such as "+0.120 [+0.100, +0.140], holds", quantities and budgets in the order of `estimates`.
    """
    texts = _format_with_verdicts(estimates)
    quantities = texts.index.get_level_values(0).unique()
    budgets = texts.index.get_level_values(1).unique()
    table = texts.unstack(1).loc[quantities, budgets]
    table = table.rename(index=lambda quantity: quantity.replace("_", " "))
    return table.rename_axis("reward").rename_axis(None, axis="columns")


def _format_with_verdicts(estimates: pd.DataFrame) -> pd.Series:
    """Writes each estimate with its interval and its verdict, such as "+0.120 [+0.100, +0.140], holds".

    Args:
        estimates: Rows of `lib.stats` (value, ci_low, ci_high, ...) with a column verdict.

    Returns:
        Texts with the index of `estimates`.
    """
    texts = []
    for interval, verdict in zip(stats.intervals(estimates), estimates["verdict"], strict=True):
        texts.append(f"{format_estimate(interval)}, {verdict}")
    return pd.Series(texts, index=estimates.index)


def format_estimate(interval: stats.Interval) -> str:
    """Writes an estimate with its 95 % interval, or without where there are too few runs for one.

    Args:
        interval: Value, ends of the interval, and number of runs.

    Returns:
        Text such as "+0.120 [+0.100, +0.140]", or "+0.120".
    """
    text = f"{interval.value:+.3f}"
    if stats.has_few_runs(interval.num_runs) or not interval.known:
        return text
    return f"{text} [{interval.ci_low:+.3f}, {interval.ci_high:+.3f}]"


def draw_environment(
    rewards: pd.DataFrame, roles: Mapping[str, str], complementarity: float, noise: float
) -> matplotlib.figure.Figure:
    """Draws the reward of each method in one setting of the synthetic environment, a panel for each budget.

    Args:
        rewards: Rows of `lib.stats` (value, ci_low, ci_high, ...), by method and condition (the budget word).
        roles: By method, its role, which decides its colour.
        complementarity: How far the specialists differ, for the title.
        noise: How badly a controller observes the kind of a query, for the title.

    Returns:
        A forest plot, whose title compares the trained controller with the best constant and with the optimum.
    """
    methods = ["start", "best constant", "best without the query", "CoRL", "optimum"]
    mean_over_budgets = rewards["value"].groupby("method").mean()
    gain = mean_over_budgets["CoRL"] - mean_over_budgets["best constant"]
    shortfall = mean_over_budgets["CoRL"] - mean_over_budgets["optimum"]
    title = (
        f"Complementarity {complementarity:g}, noise {noise:g}: CoRL earns {more_or_less(gain)} than the best "
        f"constant, {more_or_less(shortfall)} than the optimum (mean of the budgets)"
    )
    return plots.forest_plot(
        rewards.reindex(methods, level="method"),
        title,
        {budget: f"reward, budget {budget}" for budget in BUDGETS},
        panels="condition",
        rows="method",
        roles=roles,
        limits=(-0.05, 1.05),
    )


# Experts, budgets, headroom ------------------------------------------------------------------------


def tabulate_experts(world_results: BudgetedRoutingResults) -> pd.DataFrame:
    """Tabulates the accuracy of each expert by family of questions, and what a call costs.

    Args:
        world_results: Tables of the experiment in one world (one set of experts and questions), from `experiment.run`.

    Returns:
        A row per expert, cheapest first: accuracy on training questions, a column per family (or per difficulty, where
        all questions are of one family), and the price of a call in US dollars per million.
    """
    train = world_results.experts[world_results.experts["split"] == "train"]
    is_one_family = train["group"].nunique() == 1
    if is_one_family:
        accuracy = train.pivot_table(index="method", columns="difficulty", values="correct")
        accuracy.columns = [str(difficulty) for difficulty in accuracy.columns]
    else:
        # Families in the order of the questions.
        accuracy = train.pivot_table(index="method", columns="group", values="correct", sort=False)
        accuracy.columns = list(accuracy.columns)

    prices = pd.Series(world_results.budgets.price_by_expert)  # cheapest first
    table = accuracy.loc[list(prices.index)]
    table["a call costs up to, $ per million"] = MILLION * prices
    return table.rename_axis("expert")


def tabulate_budgets(
    results_by_world: Mapping[str, BudgetedRoutingResults], settings: RoutingSettings
) -> pd.DataFrame:
    """Tabulates what each budget word is in each world, and the expert whose price that is.

    A world is a set of experts and questions: complementary (each expert is best on its own kind of question) or ladder
    (the more expensive expert is better everywhere).

    Args:
        results_by_world: For each world, the tables of `experiment.run_worlds`; budgets and prices are read.
        settings: From its `high_budget_usd` on a budget is no limit.

    Returns:
        A row per world and budget word: world, and the columns of `expert_outcomes.tabulate_budgets` (budget, $ per
        million questions, affords one call to).
    """
    blocks = {}
    for world in MAIN_WORLDS:
        budgets = results_by_world[world].budgets
        blocks[world] = expert_outcomes.tabulate_budgets(
            budgets.usd_by_word, budgets.price_by_expert, settings
        )
    return pd.concat(blocks, names=["world"]).droplevel(1).reset_index()


def collect_headroom_metrics(headroom: pd.DataFrame) -> dict[str, pd.Series]:
    """Collects headroom, what choosing an expert per question could gain, by metric key.

    Args:
        headroom: Rows of `expert_outcomes.estimate_headroom` with the column is_open, by world and budget.

    Returns:
        Rows of `lib.stats` (value, ci_low, ci_high, ...) by the keys gate.routing.BUDGET.headroom (complementary
        experts) and gate.ladder.BUDGET.headroom.
    """
    prefixes = {COMPLEMENTARY: "gate.routing", LADDER: "gate.ladder"}
    estimates = headroom.drop(columns="constant")
    metrics = {}
    for (world, budget), row in estimates.iterrows():
        metrics[f"{prefixes[world]}.{budget}.headroom"] = row
    return metrics


# Control -------------------------------------------------------------------------------------------

ANSWERABLE = "an affordable expert is correct"
UNANSWERABLE = "no affordable expert is correct"


def summarize_overspending(overspending: pd.DataFrame) -> str:
    """Writes the title of the figure about broken budgets: how often, with and without an affordable correct expert.

    Args:
        overspending: Rows of `lib.stats` (value, ci_low, ci_high, ...), indexed by questions, such as "low: no
            affordable expert is correct", and world, the set of experts and questions.

    Returns:
        A sentence with means over the low and the medium budget, by world.
    """
    # The first level of the index is "BUDGET: LABEL".
    questions = overspending.index.get_level_values("questions")
    labels = pd.Index([name.split(": ")[1] for name in questions], name="label")
    worlds = overspending.index.get_level_values("world")
    means = overspending["value"].groupby([worlds, labels]).mean()

    phrases = []
    for world in worlds.unique():
        shares = [means.get((world, label), np.nan) for label in (ANSWERABLE, UNANSWERABLE)]
        answerable, unanswerable = (f"{100 * share:.0f}" for share in shares)
        phrases.append(f"{answerable} and {unanswerable} % ({world})")
    return (
        "How often CoRL is over its budget where an affordable expert is correct, and where none is: "
        f"{listed(phrases)}"
    )


def draw_spending(rows: pd.DataFrame, title: str) -> matplotlib.figure.Figure:
    """Draws dollars spent against dollars allowed, where the prompt gives the budget as a number.

    Args:
        rows: Test rows of the methods to draw, greedy decoding.
        title: Of the figure.

    Returns:
        A line per method, a panel per world.
    """
    tables = []
    for world in MAIN_WORLDS:
        world_rows = results_table.select(rows, world=world)
        tables.append(budget_control.tabulate_spending(world_rows).assign(world=world))
    return plots.line_plot(
        pd.concat(tables, ignore_index=True),
        "budget",
        "spent",
        "method",
        title,
        "budget, $ per million questions",
        "spent, $ per million questions",
        panels="world",
        same_scale=False,
    )


def arrange_control(control: pd.DataFrame) -> pd.DataFrame:
    """Gives the columns of a table of spending headings in words.

    Args:
        control: Means with columns such as usd_per_million, over_budget, within, calls, correct and reward.
    """
    headings = {
        "calls": "calls per question",
        "usd_per_million": "spent, $ per million questions",
        "over_budget": "share over the budget",
        "within": "share within the budget",
        "correct": "share correct",
        "reward": "share rewarded",
    }
    return control.rename(columns=headings)


# Rewards -------------------------------------------------------------------------------------------


def name_main_estimates(comparison: pd.DataFrame) -> pd.DataFrame:
    """Selects the main estimates of a comparison of two runs, and names them in words.

    Args:
        comparison: Rows of `full_and_run.compare_estimates`, whose column estimate has metric keys.

    Returns:
        The rows in BOTH_RUNS_LABELS, with its labels in the column estimate. Those of the complementary world have no
        prefix, those of the ladder have one.
    """
    is_shown = comparison["estimate"].isin(BOTH_RUNS_LABELS)
    return comparison[is_shown].replace({"estimate": BOTH_RUNS_LABELS})


def arrange_primary(primary: pd.DataFrame) -> pd.DataFrame:
    """Arranges the primary contrasts, CoRL's reward minus that of baselines, as texts, with their detectable effects.

    Args:
        primary: Rows of `lib.stats.paired_difference`, by baseline and budget, with the columns significant_together
            (whether a difference is significant by Holm's correction for all rows) and verdict.

    Returns:
        A row per baseline. For each budget word a text such as "+0.120 [+0.100, +0.140]*, holds"; a star marks a
        difference that is significant when all are tested together. Last column: minimum detectable effect, the largest
        over the budgets.
    """
    texts = []
    for interval, row in zip(stats.intervals(primary), primary.itertuples(), strict=True):
        star = "*" if row.significant_together else ""
        texts.append(f"{format_estimate(interval)}{star}, {row.verdict}")

    baselines = primary.index.get_level_values("baseline").unique()
    table = pd.Series(texts, index=primary.index).unstack("budget")[list(BUDGET_WORDS)]
    table["minimum detectable effect"] = primary["mde"].groupby(level="baseline").max()
    table = table.loc[baselines].rename(index=lambda name: f"minus {name}")
    return table.rename_axis(None).rename_axis(None, axis="columns")


def summarize_lesson(estimates: Mapping[str, pd.Series]) -> str:
    """Writes the lesson's conclusion: whether the low budget is kept, what a high one buys, and CoRL's reward.

    Args:
        estimates: Estimates by metric key, from `lesson_estimates.collect_estimates`.

    Returns:
        A sentence.
    """
    low = estimates["control.low.over_budget"]["value"]
    bought = estimates["control.accuracy_high_minus_low"]["value"]
    differences = []
    for budget in BUDGET_WORDS:
        difference = estimates[f"corl.{budget}.minus_logistic"]["value"]
        differences.append(f"{difference:+.3f} ({budget})")
    return (
        f"Under the low budget CoRL spends too much on {100 * low:.0f} % of the questions; a high budget "
        f"makes {100 * bought:.0f} % more of them correct; its reward minus that of logistic regression is "
        f"{listed(differences)}"
    )


# Recorded outcomes ---------------------------------------------------------------------------------


def arrange_recorded(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Arranges CoRL's reward minus that of baselines on recorded outcomes of real models, as texts.

    Args:
        contrasts: Rows of `recorded_benchmark.estimate_contrasts`, by group (the table of outcomes), condition (the
            budget word) and baseline.

    Returns:
        A row per table of outcomes and budget, a column per baseline: texts such as "+0.120 [+0.100, +0.140], holds".
    """
    texts = _format_with_verdicts(contrasts)
    names = list(texts.index.get_level_values("group").unique())
    baselines = list(texts.index.get_level_values("baseline").unique())
    table = texts.unstack("baseline")[baselines]

    # Tables in the order of the contrasts, and budgets from low to high.
    order = []
    for name in names:
        for budget in BUDGET_WORDS:
            if (name, budget) in table.index:
                order.append((name, budget))
    table = table.reindex(order)
    table.columns = [f"minus {baseline}" for baseline in baselines]
    return table.rename_axis(["outcomes", "budget"])


def collect_recorded_metrics(contrasts: pd.DataFrame) -> dict[str, pd.Series]:
    """Collects CoRL's reward minus that of baselines on recorded outcomes of real models, by metric key.

    Args:
        contrasts: Rows of `recorded_benchmark.estimate_contrasts`, by table of outcomes, budget word and baseline.

    Returns:
        Rows of `lib.stats` (value, ci_low, ci_high, ...) by keys recorded.TABLE.BUDGET.minus_BASELINE, with underscores
        for blanks.
    """
    metrics = {}
    for (table, budget, baseline), row in contrasts.iterrows():
        key = f"recorded.{table}.{budget}.minus_{baseline}"
        metrics[key.replace(" ", "_")] = row
    return metrics
