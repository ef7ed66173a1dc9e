"""Estimates of the appendix of lesson 06, by metric key: parts of the method, and the earlier experiment.

    subtract_variants           synthetic environment: ToolOrchestra minus variants with one part changed
    estimate_malformed_calls    synthetic environment: what the filter of malformed rollouts unlearns
    estimate_synthetic_metrics  all of it by metric key
    estimate_office_metrics     the earlier experiment, `lib.tool_orchestration.results`, by metric key

Left out: estimates of the lab world, which are `lab_estimates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lib import stats
from lib.config import ToolSyntheticSettings
from lib.experiment import results_table
from lib.tool_orchestration import results as office_results
from lib.tool_orchestration import rule_baselines
from lib.tool_orchestration.experiment import AGENT, START, ToolOrchestrationResults
from lib.tool_orchestration.lab_estimates import MARGIN
from lib.tool_orchestration.results import CORL, LABELS, LENIENT, PAPER, SIGN
from lib.tool_orchestration.rewards import MICRO_USD_PER_USD, MS_PER_SECOND
from lib.tool_orchestration.synthetic_environment import NEWCOMER, UNSEEN_PRICES, USUAL
from lib.tool_orchestration.synthetic_training import MALFORMED_VARIANTS, TOOLORCHESTRA

Metrics = dict[str, pd.Series | float | str]

# Synthetic environment -----------------------------------------------------------------------------

# Variants with one part changed, and the baseline that knows the environment.
WHOLE_BATCH, AGREEING_KEPT = "whole batch", "agreeing groups kept"
NAMES_ONLY, LIST_PRICES_ONLY = "names only", "list prices only"
BEST_CONSTANT = "best constant"
CHANGED_PARTS = (
    SIGN,
    WHOLE_BATCH,
    AGREEING_KEPT,
    NAMES_ONLY,
    LIST_PRICES_ONLY,
    BEST_CONSTANT,
)
# Methods that are compared where a tool or the prices are new.
TRANSFER_BASELINES = (NAMES_ONLY, LIST_PRICES_ONLY, BEST_CONSTANT)


def select_trained(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> pd.DataFrame:
    """Select what drawn users get after the last update, under all conditions.

    Args:
        rows: Of `synthetic_benchmark.run`.
        settings: Those that the rows were made with.

    Returns:
        The rows of the split "test" whose users are drawn as in training.
    """
    return results_table.select(rows, split="test", step=settings.updates[-1], group="user")


def subtract_variants(
    rows: pd.DataFrame, column: str, variants: Sequence[str] = CHANGED_PARTS
) -> pd.DataFrame:
    """Estimate ToolOrchestra minus each variant, in pairs of the same environment, question, menu and user.

    Args:
        rows: Of one condition.
        column: What is compared.
        variants: Methods.

    Returns:
        One row for each variant.
    """
    treatment = {"method": TOOLORCHESTRA.name}
    differences = []
    for variant in variants:
        differences.append(
            stats.paired_difference(rows, column, treatment, {"method": variant}).iloc[0]
        )
    return pd.DataFrame(differences, index=list(variants)).infer_objects()


def estimate_malformed_calls(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> pd.DataFrame:
    """Estimate the probability of a malformed call after training with and without the filter.

    Args:
        rows: Of `synthetic_benchmark.run`.
        settings: Those that the rows were made with.

    Returns:
        Rows "failures left out", "failures kept" and "left out minus kept".
    """
    left_out, kept = (variant.name for variant in MALFORMED_VARIANTS)
    selected = results_table.select(
        rows,
        split="test",
        condition=USUAL,
        step=settings.malformed_updates,
        method=[left_out, kept],
        group="user",
    )
    column = "malformed_probability"
    difference = stats.paired_difference(selected, column, {"method": left_out}, {"method": kept})
    means = stats.mean(selected, column, "method")
    return pd.concat([means, difference.set_axis(["left out minus kept"])])


def estimate_synthetic_metrics(rows: pd.DataFrame, settings: ToolSyntheticSettings) -> Metrics:
    """Estimate what each part of the method is worth in the synthetic environment.

    Args:
        rows: Of `synthetic_benchmark.run`.
        settings: Those that the rows were made with.

    Returns:
        By metric key: estimates, and verdicts against the margin of the lab world.
    """
    trained = select_trained(rows, settings)
    usual = results_table.select(trained, condition=USUAL)
    reward = subtract_variants(usual, "reward")
    cost = subtract_variants(usual, "cost_usd")
    verdicts = stats.verdict(reward, MARGIN)

    # What training adds to the policy that calls every tool with the same probability.
    ours = results_table.select(rows, split="test", condition=USUAL, group="user")
    ours = results_table.select(ours, method=TOOLORCHESTRA.name, step=[0, settings.updates[-1]])
    gain = stats.diff_in_diff(ours, "reward", {"role": "start"}, {"role": "paper"})

    # A user with weight 1 on cost.
    cost_users = results_table.select(
        rows, split="test", condition=USUAL, step=settings.updates[-1], item="cost 1"
    )
    more_spent = stats.paired_difference(
        cost_users, "cost_usd", {"method": SIGN}, {"method": TOOLORCHESTRA.name}
    )

    new_tool = results_table.select(trained, condition=NEWCOMER)
    new_prices = results_table.select(trained, condition=UNSEEN_PRICES)
    called = stats.mean(new_tool, "newcomer", "method")
    under_new_prices = subtract_variants(new_prices, "reward", TRANSFER_BASELINES)
    return {
        "synthetic.gain": gain.iloc[0],
        "synthetic.sign_error": more_spent.iloc[0],
        "synthetic.batch": reward.loc[WHOLE_BATCH],
        "synthetic.batch.cost_usd": cost.loc[WHOLE_BATCH],
        "synthetic.batch_verdict": verdicts[WHOLE_BATCH],
        "synthetic.filter": reward.loc[AGREEING_KEPT],
        "synthetic.filter_verdict": verdicts[AGREEING_KEPT],
        "synthetic.failures": estimate_malformed_calls(rows, settings).iloc[-1],
        "synthetic.unseen_tools": called.loc[TOOLORCHESTRA.name],
        "synthetic.unseen_tools.names": subtract_variants(new_tool, "reward", [NAMES_ONLY]).iloc[0],
        "synthetic.unseen_prices": under_new_prices.loc[NAMES_ONLY],
        "synthetic.varied_prices": under_new_prices.loc[LIST_PRICES_ONLY],
    }


# The earlier experiment ----------------------------------------------------------------------------

START_LABEL, AGENT_LABEL = LABELS[START], LABELS[AGENT]
BASELINES = (
    START_LABEL,
    rule_baselines.BEST,
    rule_baselines.BY_KIND,
    rule_baselines.RANDOM,
    rule_baselines.ORACLE,
)
LARGEST_MODEL = f"{rule_baselines.ALWAYS}lab-large"
# What a method is called in metric keys; other methods have their label with underscores.
METHOD_KEYS = {
    START_LABEL: "start",
    PAPER: "trained",
    SIGN: "sign_error",
    LENIENT: "lenient",
    CORL: "corl",
    rule_baselines.BEST: "best_always",
    rule_baselines.BY_KIND: "one_a_kind",
}
MEASURE_KEYS = {
    "correct": "accuracy",
    "score": "preference_score",
    "cost_usd": "cost_usd",
    "seconds": "seconds",
}
_OURS, _START = {"method": PAPER}, {"method": START_LABEL}


def select_questions(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the test questions, office tasks left out: what every method can answer."""
    return results_table.select(rows, style="test", condition="question")


def select_orchestrated(rows: pd.DataFrame) -> pd.DataFrame:
    """Select all test questions and office tasks of methods that pay for an orchestrator's tokens."""
    tests = results_table.select(rows, style="test")
    return tests[tests["own_cost_usd"] > 0]


def compare_with_baselines(questions: pd.DataFrame, column: str) -> pd.DataFrame:
    """Estimate ToolOrchestra minus each baseline on the same questions; a row for each baseline."""
    methods = [*BASELINES, LARGEST_MODEL]
    present = [method for method in methods if method in set(questions["method"])]
    differences = []
    for method in present:
        differences.append(
            stats.paired_difference(questions, column, _OURS, {"method": method}).iloc[0]
        )
    return pd.DataFrame(differences, index=present).infer_objects()


def estimate_cost_of_correct_answers(questions: pd.DataFrame) -> pd.DataFrame:
    """Estimate dollars per million correct answers: sign error minus ToolOrchestra; nan where nothing is correct."""
    costs = questions.assign(cost_if_correct=questions["micro_usd"] * questions["correct"])
    return office_results.estimate_ratio_differences(
        costs, "cost_if_correct", "correct", {"method": SIGN}, _OURS, "split"
    )


def estimate_office_metrics(rows: pd.DataFrame, results: ToolOrchestrationResults) -> Metrics:
    """Estimate everything that the appendix records of the earlier experiment.

    Args:
        rows: Of `results.make_rows`.
        results: What the experiment left.

    Returns:
        Estimates by metric key; what could not be measured is left out.
    """
    questions = select_questions(rows)
    metrics: Metrics = {}
    for parts in (
        _estimate_corpus(results.corpus),
        _estimate_levels(rows, questions),
        _estimate_differences(rows, questions),
        _estimate_pilot(rows, results.tools),
        _estimate_new_conditions(rows),
        _estimate_simplex(rows),
    ):
        metrics |= parts
    return metrics


def _estimate_corpus(corpus: pd.DataFrame) -> Metrics:
    """How many office tasks the synthesis left to learn from, and how many each filter dropped."""
    metrics: Metrics = {"synthesis.tasks": int(corpus["tasks"].sum())}
    prefix = "dropped: "
    for column in corpus.columns[corpus.columns.str.startswith(prefix)]:
        reason = column.removeprefix(prefix).replace(" ", "_")
        metrics[f"synthesis.dropped.{reason}"] = int(corpus[column].sum())
    return metrics


def _estimate_levels(rows: pd.DataFrame, questions: pd.DataFrame) -> Metrics:
    """Means of every method on test questions, and of orchestrators on office tasks."""
    metrics: Metrics = {}
    for column, measure in MEASURE_KEYS.items():
        for method, estimate in stats.mean(questions, column, "method").iterrows():
            default = f"baseline.{_make_key(method)}"
            prefix = METHOD_KEYS[method] if method in LABELS.values() else default
            metrics[f"{prefix}.{measure}"] = estimate
    office_tasks = results_table.select(rows, style="test", condition="office")
    for method, estimate in stats.mean(office_tasks, "correct", "method").iterrows():
        metrics[f"{METHOD_KEYS[method]}.office_accuracy"] = estimate
    return metrics


def _make_key(method: str) -> str:
    return METHOD_KEYS.get(method, method.replace(" ", "_"))


def _estimate_differences(rows: pd.DataFrame, questions: pd.DataFrame) -> Metrics:
    """ToolOrchestra minus baselines, the sign error minus ToolOrchestra, and what keeping failures changes."""
    metrics: Metrics = {}
    for column, measure in MEASURE_KEYS.items():
        for method, estimate in compare_with_baselines(questions, column).iterrows():
            metrics[f"trained.{measure}_minus.{_make_key(method)}"] = estimate

    sign_error = {"method": SIGN}
    more_spent = stats.paired_difference(questions, "cost_usd", sign_error, _OURS).iloc[0]
    metrics["sign_error.cost_usd_gap"] = more_spent
    for _, estimate in (
        estimate_cost_of_correct_answers(questions).dropna(subset="value").iterrows()
    ):
        converted = stats.convert_unit(estimate, MICRO_USD_PER_USD)
        metrics["sign_error.cost_usd_gap_correct"] = converted

    orchestrated = select_orchestrated(rows)
    for column, measure in {"correct": "accuracy", "has_malformed_turn": "malformed"}.items():
        difference = stats.paired_difference(orchestrated, column, {"method": LENIENT}, _OURS)
        metrics[f"lenient.{measure}_gap"] = difference.iloc[0]
    return metrics


def _estimate_pilot(rows: pd.DataFrame, tools: Iterable[str]) -> Metrics:
    """Shares of calls by tool, and accuracy, of prompted and trained orchestrators in the pilot study."""
    pilot = results_table.select(rows, style="pilot")
    offered = set(pilot["offered"].explode())
    shares = office_results.estimate_call_shares(pilot, [tool for tool in tools if tool in offered])
    keys = METHOD_KEYS | {AGENT_LABEL: "agent"}
    metrics: Metrics = {}
    for (method, tool), estimate in shares.dropna(subset="value").iterrows():
        metrics[f"pilot.{keys[method]}.{tool}"] = estimate
    for method, estimate in stats.mean(pilot, "correct", "method").iterrows():
        metrics[f"pilot.{keys[method]}.accuracy"] = estimate
    return metrics


def _estimate_new_conditions(rows: pd.DataFrame) -> Metrics:
    """Unseen tools, unseen prices and outages, after training and (under `start.`) before."""
    compared = results_table.select(rows, condition="question", method=[START_LABEL, PAPER])
    unseen_tools = results_table.select(compared, style="unseen_tools")
    unseen_prices = results_table.select(compared, style="unseen_prices")
    outages = results_table.select(compared, style="outage")
    switched = office_results.estimate_ratios(outages, "switched", "met_outage")
    gain = stats.paired_difference(unseen_tools, "correct", _OURS, _START)
    return {
        **_before_and_after("unseen_tools.accuracy", stats.mean(unseen_tools, "correct", "method")),
        **_before_and_after(
            "unseen_tools.share", stats.mean(unseen_tools, "newcomer_first", "method")
        ),
        "unseen_tools.accuracy_minus.start": gain.iloc[0],
        **_before_and_after(
            "unseen_prices.accuracy", stats.mean(unseen_prices, "correct", "method")
        ),
        **_before_and_after(
            "unseen_prices.cost_usd", stats.mean(unseen_prices, "cost_usd", "method")
        ),
        **_before_and_after(
            "unseen_prices.seconds", stats.mean(unseen_prices, "seconds", "method")
        ),
        **_before_and_after("unseen_prices.shift", estimate_price_shift(compared)),
        **_before_and_after("outage.completed", stats.mean(outages, "correct", "method")),
        **_before_and_after("outage.switched", switched),
    }


def estimate_price_shift(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate by method how many more calls go to what the other price list made cheaper, as a share of calls.

    Args:
        rows: With the styles `test` and `unseen_prices`.
    """
    return office_results.estimate_ratio_differences(
        results_table.select(rows, style=["test", "unseen_prices"]),
        "cheaper_calls",
        "tool_calls",
        {"style": "unseen_prices"},
        {"style": "test"},
        "method",
    )


def _estimate_simplex(rows: pd.DataFrame) -> Metrics:
    """Slopes of spending over users' weights, and hypervolumes, after training and before."""
    simplex = select_simplex(rows)
    slopes = estimate_simplex_slopes(rows)
    units = {
        "cost": ("micro_usd", MICRO_USD_PER_USD),
        "latency": ("ms", MS_PER_SECOND),
        "accuracy": ("correct", 1.0),
    }
    volumes = office_results.estimate_hypervolumes(simplex)
    metrics = _before_and_after("simplex.hypervolume", volumes)
    for weight, (column, units_per_new_unit) in units.items():
        converted = stats.convert_unit(slopes[column], units_per_new_unit)
        metrics |= _before_and_after(f"simplex.{weight}_slope", converted)
    return metrics


def select_simplex(rows: pd.DataFrame) -> pd.DataFrame:
    """Select users on the grid of weights, served by the start and by ToolOrchestra."""
    return results_table.select(rows, style="simplex", method=[START_LABEL, PAPER])


def estimate_simplex_slopes(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Estimate, for each of accuracy, cost and latency, how its mean changes as its weight goes from 0 to 1.

    Args:
        rows: Of `results.make_rows`.

    Returns:
        By column a row for each method.
    """
    simplex = select_simplex(rows)
    return {
        column: office_results.estimate_weight_slopes(simplex, column)
        for column in office_results.WEIGHTS
    }


def _before_and_after(key: str, estimates: pd.DataFrame) -> Metrics:
    """ToolOrchestra's estimate under a key, and the start's under `start.` and the key; nan is left out."""
    measured: Mapping = estimates.dropna(subset=["value"]).to_dict("index")
    metrics: Metrics = {}
    for method, prefix in {PAPER: "", START_LABEL: "start."}.items():
        if method in measured:
            metrics[f"{prefix}{key}"] = estimates.loc[method]
    return metrics


def estimate_changes(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate what training, users' weights and the sign error change: the appendix's main table.

    Args:
        rows: Of `results.make_rows`.

    Returns:
        A row for each change.
    """
    questions = select_questions(rows)
    trained = {}
    for name, column in {
        "accuracy": "correct",
        "$ per million questions": "micro_usd",
        "ms per question": "ms",
    }.items():
        trained[f"training: {name}"] = stats.paired_difference(questions, column, _OURS, _START)
    orchestrated = select_orchestrated(rows)
    score = stats.paired_difference(orchestrated, "score", _OURS, _START)
    slopes = estimate_simplex_slopes(rows)
    sign_error = stats.paired_difference(questions, "micro_usd", {"method": SIGN}, _OURS)
    changes = trained | {
        "training: preference score": score,
        "weight on cost, 0 to 1: $ per million": slopes["micro_usd"].loc[[PAPER]],
        "weight on latency, 0 to 1: ms": slopes["ms"].loc[[PAPER]],
        "sign error: $ per million": sign_error,
    }
    return pd.concat(changes).droplevel(1)
