"""Tables and figures of the appendix of lesson 05, budgeted routing."""

from collections.abc import Mapping, Sequence

import matplotlib.figure
import numpy as np
import pandas as pd

from lib import plots, stats
from lib.budgeted_routing import budget_control, lesson_estimates
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.lesson_estimates import CORL, NUMERIC
from lib.budgeted_routing.synthetic_environment import KNOBS
from lib.budgeted_routing.synthetic_strategies import BEST_CONSTANT, OPTIMUM
from lib.budgeted_routing.synthetic_training import FIXED_BUDGET_VARIANTS
from lib.config import RoutingSettings, RoutingSyntheticSettings
from lib.experiment import results_table
from lib.plots.tables import listed
from lib.reports.lesson_figures.routing import format_estimate
from lib.rl.call_protocol import BUDGET_WORDS

MILLION = 1e6
METHODS_OF_TABLE_2 = (
    "random",
    "best constant",
    "nearest neighbours",
    "logistic",
    "cascade",
    "oracle",
)
NO_CALL = "nobody"
# What is measured where a question can be split: the last part of a metric key, and the row of a table.
SPLITTING_DIFFERENCES = {
    "phrasing": "minus the same training, question passed on",
    "gain": "minus start",
    "minus_logistic": "minus logistic (one call)",
    "minus_one_call": "minus the best single call, in hindsight",
}
WRITTEN_QUERIES = "questions with a query of its own"


def summarize_learning(learning: pd.DataFrame) -> str:
    """Writes the title of the figure of learning curves: mean reward in the first and the last tenth of training.

    Args:
        learning: Training episodes of CoRL: columns step (number of the update), condition (budget word) and reward.

    Returns:
        A sentence with the two means for each budget.
    """
    last_step = learning["step"].max()
    first_tenth = learning[learning["step"] <= 0.1 * last_step]
    last_tenth = learning[learning["step"] >= 0.9 * last_step]
    phrases = []
    for budget in BUDGET_WORDS:
        before = first_tenth.loc[first_tenth["condition"] == budget, "reward"].mean()
        after = last_tenth.loc[last_tenth["condition"] == budget, "reward"].mean()
        phrases.append(f"{before:.2f} to {after:.2f} ({budget})")
    return f"From the first to the last tenth of training, reward goes from {listed(phrases)}"


def arrange_budget_response(estimates: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Arranges what training adds to the difference between two budgets, as texts with verdicts.

    Args:
        estimates: Estimates by metric key `order.QUANTITY.LARGER_SMALLER`, from
            `lesson_estimates.estimate_budget_response`.

    Returns:
        A row per quantity (cost usd, calls, ...), a column per pair of budgets ("high minus low", ...): texts such as
        "+0.120 [+0.100, +0.140], holds".
    """
    table = pd.DataFrame(estimates).T.infer_objects()
    verdicts = stats.verdict(table)
    cells = {}
    for key, interval in zip(table.index, stats.intervals(table), strict=True):
        _, quantity, pair = key.split(".")
        larger, smaller = pair.split("_")
        text = f"{format_estimate(interval)}, {verdicts[key]}"
        cells[quantity.replace("_", " "), f"{larger} minus {smaller}"] = text
    return pd.Series(cells).unstack().rename_axis("quantity")


def compute_first_call_shares(
    rows: pd.DataFrame, budget: str, experts: Sequence[str]
) -> pd.DataFrame:
    """Computes on which share of the questions CoRL calls each expert first, by family of questions.

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding; chosen lists the experts that
            were called on a question, in order.
        budget: A budget word: low, medium or high.
        experts: Names of the experts, in the order of the columns.

    Returns:
        A row per family; a column per expert, and "nobody" for questions without a call. Rows add up to 1.
    """
    corl_rows = results_table.select(rows, method=CORL, condition=budget)
    first_calls = [
        called_experts[0] if len(called_experts) else NO_CALL
        for called_experts in corl_rows["chosen"]
    ]
    first_calls = pd.Series(first_calls, index=corl_rows.index)
    shares = pd.crosstab(corl_rows["group"], first_calls, normalize="index")
    return shares.reindex(columns=[*experts, NO_CALL], fill_value=0.0)


def tabulate_table_2(rows: pd.DataFrame, settings: RoutingSettings) -> pd.DataFrame:
    """Tabulates accuracy and cost of every method under every budget, as in the paper's Table 2.

    Args:
        rows: Test rows of one world (one set of experts and questions).
        settings: `test_temperature` (greedy), `temperature` (of sampling) and names of the experts.

    Returns:
        A row per method: CoRL greedy and sampled, the start (the controller before training), the controller alone, the
        experts, and METHODS_OF_TABLE_2. A column per budget word, with accuracy and US dollars per million questions:
        "0.890 ($45.5)".
    """
    # Greedy decoding for all methods, and CoRL sampled too.
    word_rows = results_table.select(rows, style="soft")  # the prompt names the budget as a word
    greedy = results_table.select(word_rows, temperature=settings.test_temperature)
    sampled = results_table.select(word_rows, temperature=settings.temperature, method=CORL)
    baselines = [START, CONTROLLER_ALONE, *settings.experts, *METHODS_OF_TABLE_2]
    sampled_name = f"{CORL}, sampled"
    greedy_rows = results_table.select(greedy, method=[CORL, *baselines])
    compared_rows = pd.concat([greedy_rows, sampled.assign(method=sampled_name)])

    means = compared_rows.groupby(["method", "condition"])[["correct", "cost_usd"]].mean()
    accuracy = means["correct"].map("{:.3f}".format)
    cost = (MILLION * means["cost_usd"]).map("{:.1f}".format)
    texts = accuracy + " ($" + cost + ")"
    return texts.unstack("condition").loc[[CORL, sampled_name, *baselines], list(BUDGET_WORDS)]


def estimate_cost_and_accuracy(
    rows: pd.DataFrame,
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Estimates cost and accuracy of CoRL, logistic regression and constants, for the paper's Figure 2.

    A constant lets one expert, or the controller's base model alone, answer all questions, whatever the budget.

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding.

    Returns:
        Two frames with the columns of `lib.stats` (value, ci_low, ci_high, ...), by method and condition (the budget
        word; "" for constants): cost in US dollars per million questions, and accuracy. Third, names of the constants.
    """
    word_rows = results_table.select(rows, style="soft")
    constants = _list_constants(word_rows)
    routed = results_table.select(word_rows, method=[CORL, "logistic"])
    # Constants do the same under all budgets; the high one stands for all.
    constant_rows = results_table.select(word_rows, method=constants, condition="high")
    points = pd.concat([routed, constant_rows.assign(condition="")])
    points = points.assign(cost_usd=MILLION * points["cost_usd"])
    cost = stats.mean(points, "cost_usd", ["method", "condition"])
    accuracy = stats.mean(points, "correct", ["method", "condition"])
    return cost, accuracy, constants


def _list_constants(rows: pd.DataFrame) -> list[str]:
    """Lists the constants: the methods that answer all questions with one expert, or with the controller's base model.

    Args:
        rows: Rows of the results table, those of the role "expert" among them.

    Returns:
        Names of methods, the controller alone first.
    """
    experts = results_table.select(rows, role="expert")["method"].unique()
    return [CONTROLLER_ALONE, *experts]


def estimate_charged_gain(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimates CoRL's accuracy above random mixtures of constants, with the controller's own tokens charged too.

    A constant answers all questions with one expert, or with the controller's base model; a random mixture of two
    constants reaches any cost in between without reading a question. CoRL is compared with the mixture of equal cost.
    Not to answer at all, for nothing, is one of the constants.

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding.

    Returns:
        A row per budget word: the columns of `lib.stats` (value, ci_low, ci_high, ...) for the difference of accuracy,
        and own_share, the share of CoRL's cost that its controller's own tokens are.
    """
    # Costs of calls and of the controller's own tokens together.
    word_rows = results_table.select(rows, style="soft")
    constants = _list_constants(word_rows)
    compared = results_table.select(word_rows, method=[CORL, *constants])
    total_cost = compared["cost_usd"] + compared["own_cost_usd"]
    compared = compared.assign(cost_usd=total_cost)

    # A constant that never answers.
    no_answer = results_table.select(compared, method=CONTROLLER_ALONE)
    no_answer = no_answer.assign(method=NO_CALL, correct=0.0, cost_usd=0.0)

    gains = stats.gain_over_mixture(
        pd.concat([compared, no_answer]),
        "correct",
        "cost_usd",
        {"method": CORL},
        {"method": [*constants, NO_CALL]},
        "condition",
    )
    corl_rows = results_table.select(compared, method=CORL)
    costs = corl_rows.groupby("condition")[["own_cost_usd", "cost_usd"]].sum()
    gains["own_share"] = costs["own_cost_usd"] / costs["cost_usd"]
    return gains.loc[list(BUDGET_WORDS)]


def arrange_two_experts(rows: pd.DataFrame, settings: RoutingSettings) -> pd.DataFrame:
    """Arranges CoRL's reward minus that of its start and of baselines, where there are two experts only, as texts.

    Args:
        rows: Test rows of the world with two experts, greedy decoding.
        settings: Differences within `equivalence_margin` count as equivalent.

    Returns:
        A row per baseline (the start is the controller before training), a column per budget word: texts such as
        "+0.120 [+0.100, +0.140], holds".
    """
    estimates = lesson_estimates.estimate_rewards(rows)
    label_by_key = {
        "gain": "start",
        "minus_best_constant": "best constant",
        "minus_best_expert": "best expert",
        "minus_logistic": "logistic",
    }
    cells = {}
    for key, label in label_by_key.items():
        for budget in BUDGET_WORDS:
            table = pd.DataFrame([estimates[f"{budget}.{key}"]]).infer_objects()  # one row
            interval = stats.intervals(table).iloc[0]
            verdict = stats.verdict(table, settings.equivalence_margin).iloc[0]
            cells[f"minus {label}", budget] = f"{format_estimate(interval)}, {verdict}"
    table = pd.Series(cells).unstack()[list(BUDGET_WORDS)]
    return table.rename_axis(None)


def arrange_splitting(
    estimates: Mapping[str, pd.Series], settings: RoutingSettings
) -> pd.DataFrame:
    """Arranges what queries that the controller writes earn, where a question can be split, as texts with verdicts.

    Args:
        estimates: Estimates by metric key, from `appendix_estimates.collect_estimates`.
        settings: Differences within `equivalence_margin` count as equivalent.

    Returns:
        A row per comparison, a column per budget word: texts such as "+0.120 [+0.100, +0.140], holds"; in the last row
        the share of questions with a query of the controller's own.
    """
    cells = {}
    for budget in BUDGET_WORDS:
        for key, label in SPLITTING_DIFFERENCES.items():
            # One row with numeric columns, as intervals and verdicts are computed from a table.
            table = pd.DataFrame([estimates[f"splitting.{budget}.{key}"]]).infer_objects()
            interval = stats.intervals(table).iloc[0]
            verdict = stats.verdict(table, settings.equivalence_margin).iloc[0]
            cells[label, budget] = f"{format_estimate(interval)}, {verdict}"
        share = estimates[f"splitting.{budget}.written"]["value"]
        cells[WRITTEN_QUERIES, budget] = f"{100 * share:.0f} %"
    table = pd.Series(cells).unstack()[list(BUDGET_WORDS)]
    labels = [*SPLITTING_DIFFERENCES.values(), WRITTEN_QUERIES]
    return table.loc[labels].rename_axis("CoRL's reward")


def name_splitting_estimates(comparison: pd.DataFrame) -> pd.DataFrame:
    """Names the estimates of a comparison of two runs in words, where a question can be split.

    Args:
        comparison: Rows of `full_and_run.compare_estimates`, whose column estimate has metric keys such as
            "splitting.low.gain".

    Returns:
        The same with names such as "low budget: minus start".
    """
    label_by_quantity = {**SPLITTING_DIFFERENCES, "written": WRITTEN_QUERIES}
    names = []
    for key in comparison["estimate"]:
        _, budget, quantity = key.split(".")
        names.append(f"{budget} budget: {label_by_quantity[quantity]}")
    return comparison.assign(estimate=names)


def summarize_splitting(estimates: Mapping[str, pd.Series]) -> str:
    """Writes the title of the figure on written queries: what they earn under each budget.

    Args:
        estimates: Estimates by metric key, from `appendix_estimates.collect_estimates`.

    Returns:
        A sentence.
    """
    phrases = []
    for budget in BUDGET_WORDS:
        difference = estimates[f"splitting.{budget}.phrasing"]["value"]
        phrases.append(f"{difference:+.2f} ({budget})")
    return f"Where a question can be split, writing queries changes the reward by {listed(phrases)}"


def choose_split_episode(episodes: pd.DataFrame) -> pd.DataFrame:
    """Chooses an episode in which the controller splits the question and is rewarded; else one with a written query.

    Args:
        episodes: Test episodes of the splitting world, with the columns of `budget_episodes.make_episode_rows`.

    Returns:
        One row, or none where no query was written.
    """
    has_query = (episodes["method"] == "corl") & (episodes["written_queries"] > 0)
    candidates = episodes[has_query & (episodes["condition"] == "medium")]
    candidates = candidates if len(candidates) else episodes[has_query]
    best_first = candidates.sort_values(
        ["reward", "difficulty", "written_queries"], ascending=False, kind="stable"
    )
    return best_first.head(1)


def arrange_samples(estimates: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Arranges the reward of CoRL as the mean of several samples, and its difference from baselines.

    Args:
        estimates: Estimates of the recorded run, from `appendix_estimates.collect_estimates`, or empty.

    Returns:
        A row per world and quantity, a column per budget word.
    """
    world_by_prefix = {prefix: world for world, prefix in lesson_estimates.PREFIXES.items()}
    cells = {}
    for key, estimate in estimates.items():
        part, *place = key.split(".")
        if part != "samples":
            continue
        prefix, budget, quantity = place
        label = quantity.replace("minus_", "minus ").replace("_", " ")
        cells[(world_by_prefix[prefix], label), budget] = format_table_estimate(estimate)
    if not cells:
        return pd.DataFrame(columns=list(BUDGET_WORDS))
    columns = pd.Series(cells).unstack()[list(BUDGET_WORDS)]
    columns.index = pd.MultiIndex.from_tuples(columns.index, names=["experts", "CoRL's reward"])
    return columns


def format_table_estimate(estimate: pd.Series) -> str:
    """Writes one estimate with its interval, as `format_estimate` does."""
    table = pd.DataFrame([estimate]).infer_objects()
    return format_estimate(stats.intervals(table).iloc[0])


def tabulate_numeric_budgets(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulates what CoRL, its start and the oracle spend under budgets that are numbers.

    The start is the controller before training; the oracle makes the best single call within the budget, in hindsight.

    Args:
        rows: Test rows of one world (one set of experts and questions), greedy decoding.

    Returns:
        A row per budget, in US dollars per million questions; columns such as "spent, CoRL" (in the same unit), "over
        budget, CoRL" (share of questions) and "reward, CoRL", means over seeds and questions.
    """
    spending = budget_control.tabulate_spending(rows)
    label_by_method = {NUMERIC: "CoRL", START: "start", "oracle": "oracle"}
    spending = spending[spending["method"].isin(label_by_method)]
    means = spending.groupby(["budget", "method"])[["spent", "over_budget", "reward"]].mean()
    table = means.unstack("method")
    columns = []
    for quantity, method in table.columns:
        columns.append(f"{quantity.replace('_', ' ')}, {label_by_method[method]}")
    table.columns = columns
    return table


def summarize_numeric_spending(by_number: pd.DataFrame) -> str:
    """Says what is spent under the smallest and under the largest number in the prompt, by CoRL and by the oracle.

    Args:
        by_number: Rows of `tabulate_numeric_budgets`, by budget in US dollars per million questions.

    Returns:
        A sentence.
    """
    smallest = by_number.index.min()
    largest = by_number.index.max()
    ranges = []
    for method in ("CoRL", "oracle"):
        spent = by_number[f"spent, {method}"]
        ranges.append(f"${spent[smallest]:.1f} to ${spent[largest]:.1f}")
    return (
        f"While the number in the prompt goes from ${smallest:g} to ${largest:g}, what CoRL spends goes from "
        f"{ranges[0]}, and what the oracle spends from {ranges[1]}."
    )


def arrange_synthetic_budget_response(estimates: pd.DataFrame) -> pd.DataFrame:
    """Names the rows of what training adds to the difference between two budgets in words.

    Args:
        estimates: Rows of `synthetic_estimates.estimate_budget_response`, by budgets ("medium_low") and quantity.

    Returns:
        The same, by budgets ("medium minus low") and quantity ("cost" or "calls").
    """
    words = {"medium_low": "medium minus low", "high_medium": "high minus medium"}
    return estimates.rename(index={**words, "cost_usd": "cost"})


def trace_regret(
    rows: pd.DataFrame, final_rows: pd.DataFrame, settings: RoutingSyntheticSettings
) -> pd.DataFrame:
    """Traces CoRL's regret during training in the synthetic environment: reward of the optimum minus CoRL's.

    Args:
        rows: Rows of the results table of the synthetic environment at the central grid point, at all training steps.
        final_rows: Those after training, from `synthetic_estimates.select_final_rows`; the optimum is among them.
        settings: `batch` is the number of episodes of an update.

    Returns:
        A row per seed, budget word (column condition) and evaluation: the columns of `rows`, best (reward of the
        optimum), regret, and episodes (number of training episodes so far).
    """
    optimum = results_table.select(final_rows, method=OPTIMUM, temperature=0.0)
    best_rewards = optimum.set_index(["seed", "condition"])["reward"].rename("best")
    is_during_training = (rows["step"] >= 0) & (rows["method"] == CORL)
    curve = rows[is_during_training].join(best_rewards, on=["seed", "condition"])
    return curve.assign(
        regret=curve["best"] - curve["reward"],
        episodes=curve["step"] * settings.batch,
    )


def summarize_fixed_budgets(curves: pd.DataFrame, x: str, quantity: str) -> str:
    """Writes the title of the figure of trainings under one budget only: what they end with.

    Args:
        curves: A row per method, seed, point of the training and quantity, as `draw_fixed_budgets` takes them. Methods
            have names such as "CoRL, low budget only".
        x: Column of the points of the training.
        quantity: A value of the column measured, which is named beside the share of correct answers.

    Returns:
        A sentence with means over seeds at the last point of the training.
    """
    at_end = curves[curves[x] == curves[x].max()]
    means = at_end.groupby(["method", "measured"], sort=False)["mean"].mean()
    shares = []
    numbers = []
    for method in means.index.get_level_values("method").unique():
        budget = method.removeprefix(f"{CORL}, ").removesuffix(" budget only")
        shares.append(f"{means[method, 'correct answers']:.0%} ({budget})")
        numbers.append(f"{means[method, quantity]:.2f} ({budget})")
    correct = f"{listed(shares)} correct answers"
    return f"Trainings under one budget end with {correct}, and with {listed(numbers)} {quantity}"


def draw_fixed_budgets(
    curves: pd.DataFrame, title: str, x: str, xlabel: str, ylabel: str, rng: np.random.Generator
) -> matplotlib.figure.Figure:
    """Draws trainings under one budget only (the paper's Figures 4 to 7).

    Args:
        curves: A row per method, seed, point of the training and quantity: columns method, seed, the one that `x`
            names, measured and mean.
        title: Of the figure.
        x: Column of the points of the training.
        xlabel: Name of the horizontal axis.
        ylabel: Name of the vertical axes.
        rng: Of the bands, which are bootstrapped over seeds.

    Returns:
        A line per budget, a panel per quantity.
    """
    return plots.line_plot(
        curves,
        x,
        "mean",
        "method",
        title,
        xlabel,
        ylabel,
        panels="measured",
        same_scale=False,
        rng=rng,
    )


def trace_fixed_budgets(rows: pd.DataFrame, settings: RoutingSyntheticSettings) -> pd.DataFrame:
    """Traces trainings whose episodes all have one budget, in the synthetic environment (the paper's Figures 4 to 6).

    Args:
        rows: Rows of the results table of the synthetic environment, at all training steps.
        settings: `batch` is the number of episodes of an update.

    Returns:
        A row per method, seed, evaluation and quantity: columns method, seed, episodes (number of training episodes so
        far), measured (correct answers, within the budget, price, or calls of the most expensive expert) and mean (over
        queries, under the budget of the training).
    """
    # Each is evaluated under the budget that it was trained with.
    tables = []
    for variant in FIXED_BUDGET_VARIANTS:
        tables.append(
            results_table.select(rows, method=variant.name, condition=variant.fixed_budget)
        )
    fixed = pd.concat(tables).sort_index()
    fixed = fixed[fixed["step"] >= 0]
    fixed = fixed.assign(episodes=fixed["step"] * settings.batch)

    label_by_column = {
        "correct": "correct answers",
        "within": "within the budget",
        "cost_usd": "price",
        "mean_expensive_calls": "calls of the most expensive expert",
    }
    return fixed.rename(columns=label_by_column).melt(
        id_vars=["method", "seed", "episodes"],
        value_vars=list(label_by_column.values()),
        var_name="measured",
        value_name="mean",
    )


def compare_on_map(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compares CoRL's reward with the best constant and the optimum at all grid points of the synthetic environment.

    A grid point has a value of complementarity (how far specialists differ), spread (of prices) and noise (in what a
    controller observes of a query). The best constant takes one option for all queries.

    Args:
        rows: Rows of the results table of the synthetic environment, at all grid points.

    Returns:
        Tables for heat maps of the mean difference of reward: "above the best constant" and "minus the optimum". A row
        per budget, spread and noise, such as "low, spread 1, noise 0.5", a column per complementarity.
    """
    final = results_table.select(rows, step=results_table.AFTER, temperature=0.0)
    baseline_by_name = {"above the best constant": BEST_CONSTANT, "minus the optimum": OPTIMUM}
    tables = {}
    for name, baseline in baseline_by_name.items():
        differences = stats.paired_difference(
            final, "reward", {"method": CORL}, {"method": baseline}, [*KNOBS, "condition"]
        )
        table = differences["value"].unstack("complementarity")
        table = table.sort_index(level="condition", sort_remaining=False)
        table.index = [
            f"{budget}, spread {spread:g}, noise {noise:g}" for spread, noise, budget in table.index
        ]
        tables[name] = table
    return tables


def summarize_details(charged: pd.DataFrame, by_number: pd.DataFrame) -> str:
    """Writes the appendix's conclusion: what the controller itself costs, and what is spent under numeric budgets.

    Args:
        charged: Rows of `estimate_charged_gain`; own_share is the controller's share of CoRL's cost.
        by_number: Rows of `tabulate_numeric_budgets`, by budget in US dollars per million questions.

    Returns:
        A sentence.
    """
    shares = charged["own_share"]
    smallest = by_number.index.min()
    largest = by_number.index.max()
    spent = by_number["spent, CoRL"]
    return (
        f"The controller's own tokens are {100 * shares.min():.0f} to {100 * shares.max():.0f} % of what CoRL costs; "
        f"allowed ${smallest:g} per million questions it spends ${spent[smallest]:.0f}, and allowed ${largest:g} it "
        f"spends ${spent[largest]:.0f}"
    )
