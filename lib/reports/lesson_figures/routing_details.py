"""Tables and figures of the appendix of lesson 05, budgeted routing."""

from collections.abc import Mapping

import pandas as pd

from lib import stats
from lib.budgeted_routing import budget_control, lesson_estimates
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.lesson_estimates import CORL, NUMERIC
from lib.budgeted_routing.synthetic_environment import KNOBS
from lib.budgeted_routing.synthetic_strategies import BEST_CONSTANT, OPTIMUM
from lib.budgeted_routing.synthetic_training import FIXED_BUDGET_VARIANTS
from lib.config import RoutingSettings, RoutingSyntheticSettings
from lib.experiment import results_table
from lib.reports.lesson_figures.routing import format_estimate
from lib.reports.wording import listed
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


def summarize_learning(learning: pd.DataFrame) -> str:
    """What training changes, as the title of the figure.

    Args:
        learning: Training episodes of CoRL.
    """
    last_tenth = learning["step"] >= 0.9 * learning["step"].max()
    first_tenth = learning["step"] <= 0.1 * learning["step"].max()
    phrases = []
    for budget in BUDGET_WORDS:
        is_budget = learning["condition"] == budget
        before = learning.loc[is_budget & first_tenth, "reward"].mean()
        after = learning.loc[is_budget & last_tenth, "reward"].mean()
        phrases.append(f"{before:.2f} to {after:.2f} ({budget})")
    return f"From the first to the last tenth of training, reward goes from {listed(phrases)}"


def arrange_order(estimates: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Arrange what training adds to the difference between two budgets: a row per quantity, a column per pair.

    Args:
        estimates: Of `lesson_estimates.estimate_order`.
    """
    table = pd.DataFrame(estimates).T.infer_objects()
    verdicts = stats.verdict(table)
    cells = {}
    for key, interval in zip(table.index, stats.intervals(table), strict=True):
        _, quantity, pair = key.split(".")
        more, less = pair.split("_")
        text = f"{format_estimate(interval)}, {verdicts[key]}"
        cells[quantity.replace("_", " "), f"{more} minus {less}"] = text
    return pd.Series(cells).unstack().rename_axis("quantity")


def share_first_calls(rows: pd.DataFrame, budget: str, experts: list[str]) -> pd.DataFrame:
    """Share of questions on which each expert is asked first, by family.

    Args:
        rows: Test rows of one world, without sampling.
        budget: A budget word.
        experts: In the order of the columns.

    Returns:
        A row per family, a column per expert and one for questions without a call.
    """
    of_corl = results_table.select(rows, method=CORL, condition=budget)
    first = [names[0] if len(names) else NO_CALL for names in of_corl["chosen"]]
    shares = pd.crosstab(of_corl["group"], pd.Series(first, index=of_corl.index), normalize="index")
    return shares.reindex(columns=[*experts, NO_CALL], fill_value=0.0)


def tabulate_table_2(rows: pd.DataFrame, settings: RoutingSettings) -> pd.DataFrame:
    """The paper's Table 2: accuracy and cost of every method under every budget.

    Args:
        rows: Test rows of one world.
        settings: Its temperatures are read.

    Returns:
        Texts such as "0.890 ($45.5)".
    """
    word_rows = results_table.select(rows, style="soft")
    greedy = results_table.select(word_rows, temperature=settings.test_temperature)
    sampled = results_table.select(word_rows, temperature=settings.temperature, method=CORL)
    experts = list(settings.experts)
    methods = [CORL, START, CONTROLLER_ALONE, *experts, *METHODS_OF_TABLE_2]
    sampled_name = f"{CORL}, sampled"
    table = pd.concat(
        [
            results_table.select(greedy, method=methods),
            sampled.assign(method=sampled_name),
        ]
    )
    means = table.groupby(["method", "condition"])[["correct", "cost_usd"]].mean()
    accuracy = means["correct"].map("{:.3f}".format)
    cost = (MILLION * means["cost_usd"]).map("{:.1f}".format)
    texts = accuracy + " ($" + cost + ")"
    order = [CORL, sampled_name, *methods[1:]]
    return texts.unstack("condition").loc[order, list(BUDGET_WORDS)]


def arrange_plane(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Cost and accuracy of CoRL, logistic regression and constants (the paper's Figure 2).

    Args:
        rows: Test rows of one world, without sampling.

    Returns:
        Estimates of the cost (US dollars per million questions) and of accuracy, by method and budget, and the names
        of the constants, which do not depend on the budget.
    """
    word_rows = results_table.select(rows, style="soft")
    experts = results_table.select(word_rows, role="expert")["method"].unique()
    constants = [CONTROLLER_ALONE, *experts]
    constant_rows = results_table.select(word_rows, method=constants, condition=BUDGET_WORDS[-1])
    points = pd.concat(
        [
            results_table.select(word_rows, method=[CORL, "logistic"]),
            constant_rows.assign(condition=""),
        ]
    )
    points = points.assign(cost_usd=MILLION * points["cost_usd"])
    cost = stats.mean(points, "cost_usd", ["method", "condition"])
    accuracy = stats.mean(points, "correct", ["method", "condition"])
    return cost, accuracy, constants


def estimate_charged_gain(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate CoRL's accuracy above mixtures of constants, with the controller's own tokens charged too.

    Not to answer at all costs nothing and is one of the constants.

    Args:
        rows: Test rows of one world, without sampling.

    Returns:
        Estimates by budget, and own_share: the controller's share of CoRL's cost.
    """
    word_rows = results_table.select(rows, style="soft")
    experts = results_table.select(word_rows, role="expert")["method"].unique()
    constants = [CONTROLLER_ALONE, *experts]
    compared = results_table.select(word_rows, method=[CORL, *constants])
    compared = compared.assign(cost_usd=compared["cost_usd"] + compared["own_cost_usd"])
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
    of_corl = results_table.select(compared, method=CORL)
    costs = of_corl.groupby("condition")[["own_cost_usd", "cost_usd"]].sum()
    gains["own_share"] = costs["own_cost_usd"] / costs["cost_usd"]
    return gains.loc[list(BUDGET_WORDS)]


def arrange_two_experts(rows: pd.DataFrame, settings: RoutingSettings) -> pd.DataFrame:
    """Arrange CoRL's reward minus baselines' with two experts: a row per baseline, a column per budget.

    Args:
        rows: Test rows of that world, without sampling.
        settings: Its equivalence margin is read.
    """
    estimates = lesson_estimates.estimate_rewards(rows)
    cells = {}
    for key, label in {
        "gain": "start",
        "minus_best_constant": "best constant",
        "minus_best_expert": "best expert",
        "minus_logistic": "logistic",
    }.items():
        for budget in BUDGET_WORDS:
            table = pd.DataFrame([estimates[f"{budget}.{key}"]]).infer_objects()
            (interval,) = stats.intervals(table)
            verdict = stats.verdict(table, settings.equivalence_margin).iloc[0]
            cells[f"minus {label}", budget] = f"{format_estimate(interval)}, {verdict}"
    table = pd.Series(cells).unstack()[list(BUDGET_WORDS)]
    return table.rename_axis(None)


def tabulate_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Spending of CoRL and its start under budgets that are numbers: a row per number.

    Args:
        rows: Test rows of one world, without sampling.

    Returns:
        Means by budget (US dollars per million questions).
    """
    spending = budget_control.tabulate_spending(rows)
    labels = {NUMERIC: "CoRL", START: "start", "oracle": "oracle"}
    spending = spending[spending["method"].isin(labels)]
    means = spending.groupby(["budget", "method"])[["spent", "over_budget", "reward"]].mean()
    table = means.unstack("method")
    table.columns = [
        f"{quantity.replace('_', ' ')}, {labels[method]}" for quantity, method in table.columns
    ]
    return table


def trace_regret(
    rows: pd.DataFrame, final_rows: pd.DataFrame, settings: RoutingSyntheticSettings
) -> pd.DataFrame:
    """Regret of CoRL in the synthetic environment by number of episodes.

    Args:
        rows: Of the synthetic environment, at all steps.
        final_rows: Of `synthetic_estimates.select_final_rows`.
        settings: Episodes of an update.

    Returns:
        A row per seed, budget and evaluation: columns episodes and regret among others.
    """
    optimum = results_table.select(final_rows, method=OPTIMUM, temperature=0.0)
    best = optimum.set_index(["seed", "condition"])["reward"].rename("best")
    curve = rows[(rows["step"] >= 0) & (rows["method"] == CORL)]
    curve = curve.join(best, on=["seed", "condition"])
    return curve.assign(
        regret=curve["best"] - curve["reward"], episodes=curve["step"] * settings.batch
    )


def trace_fixed_budgets(rows: pd.DataFrame, settings: RoutingSyntheticSettings) -> pd.DataFrame:
    """Measures of trainings with a single budget, by number of episodes (the paper's Figures 4 to 6).

    Args:
        rows: Of the synthetic environment, at all steps.
        settings: Episodes of an update.

    Returns:
        A row per method, seed, evaluation and measure: columns episodes, measured and mean.
    """
    methods = [variant.name for variant in FIXED_BUDGET_VARIANTS]
    fixed = results_table.select(rows, method=methods)
    # Each is shown under the budget that it was trained with.
    is_own_budget = fixed["method"].str.split().str[0] == fixed["condition"]
    fixed = fixed[is_own_budget & (fixed["step"] >= 0)]
    fixed = fixed.assign(episodes=fixed["step"] * settings.batch)
    names = {
        "correct": "correct answers",
        "within": "within the budget",
        "cost_usd": "price",
        "mean_expensive_calls": "calls of the most expensive expert",
    }
    return fixed.rename(columns=names).melt(
        ["method", "seed", "episodes"], list(names.values()), "measured", "mean"
    )


def arrange_map(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Differences of CoRL's reward over the map of the synthetic environment.

    Args:
        rows: Of the synthetic environment.

    Returns:
        By what CoRL is compared with: a row per budget, spread and noise, a column per complementarity.
    """
    final = results_table.select(rows, step=results_table.AFTER, temperature=0.0)
    by = [*KNOBS, "condition"]
    corl = {"method": CORL}
    differences = {
        "above the best constant": stats.paired_difference(
            final, "reward", corl, {"method": BEST_CONSTANT}, by
        ),
        "minus the optimum": stats.paired_difference(
            final, "reward", corl, {"method": OPTIMUM}, by
        ),
    }
    tables = {}
    for name, estimates in differences.items():
        table = estimates["value"].unstack("complementarity")
        table = table.sort_index(level="condition", sort_remaining=False)
        table.index = [
            f"{budget}, spread {spread:g}, noise {noise:g}" for spread, noise, budget in table.index
        ]
        tables[name] = table
    return tables


def summarize_details(charged: pd.DataFrame, by_number: pd.DataFrame) -> str:
    """What the appendix adds, as its conclusion.

    Args:
        charged: Of `estimate_charged_gain`.
        by_number: Of `tabulate_numbers`.
    """
    shares = charged["own_share"]
    smallest, largest = by_number.index.min(), by_number.index.max()
    spent = by_number["spent, CoRL"]
    return (
        f"The controller's own tokens are {100 * shares.min():.0f} to {100 * shares.max():.0f} % of what CoRL costs; "
        f"allowed ${smallest:g} per million questions it spends ${spent[smallest]:.0f}, and allowed ${largest:g} it "
        f"spends ${spent[largest]:.0f}"
    )
