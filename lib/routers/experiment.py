"""Replays the methods of `methods` on tables of recorded outcomes: the experiment of lesson 08, one job per table.

In a replay no model is called: a method chooses a model for an item, and its recorded outcome is looked up. A job
replays a table in several repeats of cross-validation. It writes rows of the results table, what methods promised and
spent at every budget, how far each curve of accuracy over cost lies above mixtures of single models, and the headroom:
what a router could gain at most. Methods are compared with the *best constant*, the most accurate single model, asked
for every item. A *knob* is the one parameter of a method that trades accuracy for cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import stats
from lib.config import ROOT, RecordedSettings
from lib.config.recorded_outcomes import PriceSettings
from lib.experiment import artifacts, results_table, seeds, sweep
from lib.experiment.harness import JobRun, Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.recorded_outcomes import headroom, model_selection, tables
from lib.recorded_outcomes.model_selection import (
    EQUAL_QUALITY,
    HALF_COST,
    MAX_SPENDING_RATIO,
    Choices,
    Fold,
    HeldOutScores,
    ItemOutcomes,
)
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import methods as router_methods
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    CORL,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
    RANDOM_MODEL,
    ROLES,
)
from lib.stats.verdicts import UNDECIDED
from lib.tool_orchestration import rewards as tool_rewards

VERSION = 2  # of the replay of a table; 2: other names of files and columns, the same numbers
RUNS = ROOT / "data/runs/recorded"
MIN_GROUP_SIZE = 10  # items of a group whose mean cost is compared with a budget
MIN_ITEMS = 3 * MIN_GROUP_SIZE  # of a table on which methods are compared
# Verdicts on a method beside UNDECIDED and NOT_OPEN; see `decide_verdict`.
CHEAPER, MORE_EXPENSIVE, WORSE = "cheaper", "more expensive", "worse"
# What a job writes, a table each; see `RecordedResults`.
_FRAMES = ("rows", "repeat_averages", "budgets", "aiq", "gate")
# Settings that a job reads.
_JOB_SETTINGS = (
    "items",
    "folds",
    "seeds",
    "updates",
    "batch",
    "learning_rate",
    "neighbours",
    "min_dev_gain",
    "draws",
)


@dataclass(frozen=True)
class RecordedResults:
    """Results of methods on tables of recorded outcomes.

    Attributes:
        rows: Rows for `lib.experiment.results_table`, one for each method, condition and item, averaged over repeats;
            see `model_selection.make_result_rows`.
        repeat_averages: Columns table, method, condition, cv_repeat, and the mean correct and cost_usd of that repeat.
        budgets: Columns table, method, cv_repeat, level, promised, cost_usd, correct, and groups_over_budget, the
            fraction of groups that spent more than promised; for CoRL's reward also items_over_budget.
        aiq: Columns table, method, value, ci_low, ci_high: AIQ (mean accuracy of the curve over cost) minus that of
            mixtures of single models.
        gate: The headroom by table and question, as `headroom.estimate_headroom` returns it.
        descriptions: A row for each table: columns of `headroom.describe_table`, best (name of the best constant) and
            money (where costs come from).
    """

    rows: pd.DataFrame
    repeat_averages: pd.DataFrame
    budgets: pd.DataFrame
    aiq: pd.DataFrame
    gate: pd.DataFrame
    descriptions: pd.DataFrame


def run(
    settings: RecordedSettings, names: Sequence[str] = tuple(tables.SHIPPED), runs: Path = RUNS
) -> RecordedResults:
    """Evaluates routers on shipped tables of outcomes; jobs that are finished are read from disk.

    Args:
        settings: Settings of lesson 08.
        names: Names of shipped tables, keys of `tables.SHIPPED`.
        runs: Folder in which jobs are stored.

    Returns:
        Tables of scores and estimates, with a description of every table.
    """
    jobs = [make_job(settings, name) for name in names]
    context = RunContext.without_models(runs, settings.jobs)
    finished = run_stages([Stage("tables", jobs, replay_shipped_table)], context)
    frames = {name: finished.read_tables(name, with_identity=False) for name in _FRAMES}
    descriptions = {}
    for name, receipt in zip(names, finished.receipts, strict=True):
        descriptions[name] = receipt["result"]
    return RecordedResults(**frames, descriptions=pd.DataFrame(descriptions).T.infer_objects())


def list_versions() -> dict[str, int]:
    """Lists the VERSION of every module that the results on a table depend on; they are part of a job's key."""
    return {
        "random streams": seeds.VERSION,
        "statistics": stats.VERSION,
        "outcome tables": tables.VERSION,
        "choices": model_selection.VERSION,
        "headroom": headroom.VERSION,
        "methods": router_methods.VERSION,
        "rewards of ToolOrchestra": tool_rewards.VERSION,
        "replay": VERSION,
    }


def make_job(settings: RecordedSettings, name: str) -> sweep.Job:
    """Makes the job that evaluates routers on one shipped table.

    Args:
        settings: Settings of lesson 08.
        name: Name of the table.

    Returns:
        The job; the hashes of the table's files enter its cache key.
    """
    file_hashes = []
    for file in tables.FILES[name]:
        file_hashes.append(artifacts.sha256_file(tables.OUTCOMES_FOLDER / file))
    job_settings: dict[str, Any] = {
        "job": "recorded outcomes",
        "table": name,
        "files": file_hashes,
        "prices": settings.prices.to_job_settings(*tables.PRICED_BY[name]),
        "settings": settings.to_job_settings(*_JOB_SETTINGS),
        "versions": list_versions(),
    }
    return sweep.Job(name, job_settings)


def replay_shipped_table(run: JobRun) -> dict[str, float | str]:
    """Evaluates routers on the table of a job, and writes the results.

    Args:
        run: The job in progress.

    Returns:
        The description of the table: its size, best constant and currency.
    """
    settings = run.read_section("settings", RecordedSettings)
    prices = run.read_section("prices", PriceSettings)
    table = tables.load_shipped(run.settings["table"], prices, settings.items)
    frames = replay_table(table, settings)
    headroom_table = headroom.estimate_headroom(
        table, settings.folds, range(settings.seeds), settings.min_dev_gain
    )
    frames["gate"] = headroom_table.reset_index()
    for name, frame in frames.items():
        run.write_table(name, frame.assign(table=table.name))
    run.report_progress(1.0)
    description = headroom.describe_table(table)
    return description | {"best": headroom.name_best_constant(table), "money": table.money}


def replay_table(
    table: OutcomeTable,
    settings: RecordedSettings,
    methods: Sequence[str] = tuple(ROLES),
    folds: Sequence[Fold] | None = None,
) -> dict[str, pd.DataFrame]:
    """Fits methods on a table of recorded outcomes, lets them choose models, and scores the choices on test items.

    Args:
        table: The recorded outcomes.
        settings: Settings of lesson 08.
        methods: Names of the methods; the best constant and random choices are always among the results.
        folds: Splits to use, in one repeat; by default `settings.seeds` repeats of cross-validation over whole groups.

    Returns:
        rows, repeat_averages, budgets and aiq, as in `RecordedResults`; aiq is empty where some items are never scored.
    """
    rows_by_repeat = []
    budgets = []
    scores_by_repeat = []
    num_repeats = 1 if folds else settings.seeds
    for cv_repeat in range(num_repeats):
        repeat_folds = folds
        if not repeat_folds:
            fold_of_item = model_selection.assign_folds(table, settings.folds, cv_repeat)
            repeat_folds = model_selection.make_cross_validation_folds(fold_of_item)
        choices = router_methods.make_choices(table, settings, cv_repeat, repeat_folds, methods)
        scores = {}
        for method, method_choices in choices.items():
            scores[method] = model_selection.score_choices(
                table, repeat_folds, method_choices, settings.min_dev_gain
            )
        scores_by_repeat.append(scores)

        all_scores = scores | score_without_knob(table, repeat_folds)
        rows_of_methods = []
        for method, method_scores in all_scores.items():
            role = ROLES[method]
            rows_of_methods.append(
                model_selection.make_result_rows(table, method_scores, method, role)
            )
        rows_by_repeat.append(pd.concat(rows_of_methods))
        budgets.append(measure_budgets(table, scores, repeat_folds).assign(cv_repeat=cv_repeat))
        if CORL in choices:
            by_item = measure_item_budgets(choices[CORL], repeat_folds)
            budgets.append(by_item.assign(cv_repeat=cv_repeat))

    return {
        "rows": _average_repeats(rows_by_repeat),
        "repeat_averages": _average_items(rows_by_repeat),
        "budgets": pd.concat(budgets, ignore_index=True),
        "aiq": _compare_aiq(table, scores_by_repeat, repeat_folds, settings.draws),
    }


def _average_repeats(rows_by_repeat: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Averages outcomes over the repeats of the cross-validation.

    Repeats share the same recorded outcomes, so they are no independent runs and are averaged within an item.

    Args:
        rows_by_repeat: For each repeat a row per method, condition and item.

    Returns:
        A row per method, condition and item.
    """
    mean_outcomes = {}
    for column in ("correct", "cost_usd"):
        mean_outcomes[column] = np.mean([rows[column] for rows in rows_by_repeat], axis=0)
    rows = rows_by_repeat[0].assign(**mean_outcomes)
    return rows.dropna(subset="correct").reset_index(drop=True)


def _average_items(rows_by_repeat: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Averages correct and cost_usd over the items of each repeat.

    Args:
        rows_by_repeat: For each repeat a row per method, condition and item.

    Returns:
        A row per repeat, method and condition.
    """
    averages_by_repeat = []
    for cv_repeat, rows in enumerate(rows_by_repeat):
        by_condition = rows.groupby(["method", "condition"], sort=False)
        averages = by_condition[["correct", "cost_usd"]].mean()
        averages_by_repeat.append(averages.reset_index().assign(cv_repeat=cv_repeat))
    return pd.concat(averages_by_repeat)


def _compare_aiq(
    table: OutcomeTable,
    scores_by_repeat: Sequence[Mapping[str, HeldOutScores]],
    folds: Sequence[Fold],
    draws: int,
) -> pd.DataFrame:
    """Estimates how far each method's curve of accuracy over cost lies above that of mixtures of single models.

    Args:
        table: The recorded outcomes.
        scores_by_repeat: For each repeat, the scores by method.
        folds: Folds of the last repeat.
        draws: Bootstrap resamples.

    Returns:
        Columns method, value, ci_low, ci_high: AIQ (mean accuracy of the curve) minus that of mixtures. Empty where
        some items are never scored, because the curves would be of other items.
    """
    scored_items = np.unique(np.concatenate([fold.test for fold in folds]))
    rows = []
    if len(scored_items) == len(table):
        mixtures = [scores[CONSTANT_MIXTURES] for scores in scores_by_repeat]
        for method in scores_by_repeat[0]:
            if method != CONSTANT_MIXTURES:
                treatment = [scores[method] for scores in scores_by_repeat]
                gap = model_selection.aiq_gap(table, treatment, mixtures, draws)
                rows.append({"method": method} | vars(gap))
    return pd.DataFrame(rows, columns=["method", "value", "ci_low", "ci_high"])


def score_without_knob(table: OutcomeTable, folds: Sequence[Fold]) -> dict[str, HeldOutScores]:
    """Scores the methods that have no parameter to trade accuracy for cost, and so ignore budgets.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items.

    Returns:
        Scores of BEST_CONSTANT, the most accurate single model on train and dev, and of RANDOM_MODEL, the expectation
        over a uniformly random model; both are the same at every budget.
    """
    # nan for an item that is in no test set.
    test = np.concatenate([fold.test for fold in folds])
    random_correct = np.full(len(table), np.nan)
    random_cost = np.full(len(table), np.nan)
    random_correct[test] = table.correct[test].mean(1)
    random_cost[test] = table.cost_usd[test].mean(1)

    outcomes_by_method = {
        BEST_CONSTANT: model_selection.score_best_constant(table, folds),
        RANDOM_MODEL: ItemOutcomes(random_correct, random_cost),
    }
    num_levels = len(model_selection.LEVELS)
    scores = {}
    for method, outcomes in outcomes_by_method.items():
        correct = np.tile(outcomes.correct, (num_levels, 1))  # (levels, items)
        cost_usd = np.tile(outcomes.cost_usd, (num_levels, 1))
        scores[method] = HeldOutScores(
            correct=correct,
            cost_usd=cost_usd,
            promised=cost_usd,
            at_equal_quality=outcomes,
            picked=(),
        )
    return scores


# Budgets ------------------------------------------------------------------------------------------


def measure_budgets(
    table: OutcomeTable, scores: Mapping[str, HeldOutScores], folds: Sequence[Fold]
) -> pd.DataFrame:
    """Compares what methods promised on dev with what they spent on test, at every budget.

    Args:
        table: The recorded outcomes.
        scores: Scores by method.
        folds: Train, dev and test items.

    Returns:
        A row for each method and budget: method; level, the budget as a fraction of the way from the cheapest model's
        cost to the best constant's; promised, cost_usd (USD per item) and correct, means over test items; and
        groups_over_budget, the fraction of groups with at least MIN_GROUP_SIZE items that spent more than
        MAX_SPENDING_RATIO times what was promised, nan where there is no such group.
    """
    test = np.sort(np.concatenate([fold.test for fold in folds]))
    groups = pd.Series(table.groups[test])
    # The mean of a small group varies too much to be held against the promise.
    is_large = (groups.map(groups.value_counts()) >= MIN_GROUP_SIZE).to_numpy()
    large_groups = groups[is_large].to_numpy()
    rows = []
    for method, method_scores in scores.items():
        for index, level in enumerate(model_selection.LEVELS):
            cost_usd = method_scores.cost_usd[index, test]
            promised = method_scores.promised[index, test]
            by_item = pd.DataFrame({"cost_usd": cost_usd, "promised": promised})
            by_group = by_item[is_large].groupby(large_groups).mean()
            # Without a large group nothing can be said of groups.
            groups_over_budget = np.nan
            if len(by_group):
                is_over = by_group["cost_usd"] > MAX_SPENDING_RATIO * by_group["promised"]
                groups_over_budget = is_over.mean()
            rows.append(
                {
                    "method": method,
                    "level": level,
                    "promised": promised.mean(),
                    "cost_usd": cost_usd.mean(),
                    "correct": method_scores.correct[index, test].mean(),
                    "groups_over_budget": groups_over_budget,
                }
            )
    return pd.DataFrame(rows)


def measure_item_budgets(choices: Sequence[Choices], folds: Sequence[Fold]) -> pd.DataFrame:
    """Measures how often single items exceed the budget that CoRL's reward sets for each of them.

    Args:
        choices: Choices of the network under CoRL's reward, one for each fold. Its knob is the budget, and the name of
            a knob setting is that budget in USD.
        folds: Train, dev and test items.

    Returns:
        A row for each fold and budget: method, promised (the budget), items_over_budget (the fraction of test items
        that cost more) and correct (the accuracy).
    """
    rows = []
    for fold, fold_choices in zip(folds, choices, strict=True):
        for knob, name in enumerate(fold_choices.names):
            budget = float(name)
            rows.append(
                {
                    "method": CORL,
                    "promised": budget,
                    "items_over_budget": (fold_choices.cost_usd[knob, fold.test] > budget).mean(),
                    "correct": fold_choices.correct[knob, fold.test].mean(),
                }
            )
    return pd.DataFrame(rows)


# Comparisons --------------------------------------------------------------------------------------


def compare_methods(
    rows: pd.DataFrame,
    repeat_averages: pd.DataFrame,
    equivalence_margin: float,
    decisions: pd.Series,
) -> pd.DataFrame:
    """Compares every method on one table with the best constant, with intervals over groups of items and repeats.

    The best constant is the most accurate single model, asked for every item.

    Args:
        rows: `RecordedResults.rows` of one table.
        repeat_averages: `RecordedResults.repeat_averages` of that table.
        equivalence_margin: Difference of accuracies that is too small to matter.
        decisions: By question of `headroom.estimate_headroom` (accuracy, money, check), OPEN where the table leaves
            enough to gain, or NOT_OPEN. NOT_OPEN is then the verdict on every method of that question.

    Returns:
        A row for each method, intervals but for the verdict. Half the money is the cost midway between the
        cheapest model's and the best constant's.
        quality: accuracy minus the best constant's, at equal quality.
        cost_ratio: cost divided by the best constant's, at equal quality.
        gain_over_mixtures: accuracy minus that of mixtures of single models, both at half the money.
        half_quality: accuracy at half the money minus the best constant's accuracy.
        verdict: see `decide_verdict`. It is CHEAPER if that holds at equal quality or at half the money; the second
            condition was added after a first run, so that this verdict has two chances.
    """
    equal_rows = results_table.select(rows, condition=EQUAL_QUALITY)
    half_rows = results_table.select(rows, condition=HALF_COST)
    equal_averages = repeat_averages[repeat_averages["condition"] == EQUAL_QUALITY]
    half_averages = repeat_averages[repeat_averages["condition"] == HALF_COST]
    comparisons = {}
    for method in dict.fromkeys(rows["method"]):
        if method == BEST_CONSTANT:
            continue
        at_equal = compare_pair(equal_rows, equal_averages, method, BEST_CONSTANT)
        at_half = compare_pair(half_rows, half_averages, method, BEST_CONSTANT)
        to_mixtures = compare_pair(half_rows, half_averages, method, CONSTANT_MIXTURES)
        verdict = decide_verdict(at_equal["quality"], at_equal["cost_ratio"], equivalence_margin)
        second = decide_verdict(at_half["quality"], at_half["cost_ratio"], equivalence_margin)
        if second == CHEAPER:
            verdict = CHEAPER
        # The oracle is a bound and no method, so that it keeps its verdict.
        question = "check" if method in (PERFECT_CHECK, POOR_CHECK) else "money"
        if decisions[question] == headroom.NOT_OPEN and method != ORACLE:
            verdict = headroom.NOT_OPEN
        comparisons[method] = at_equal | {
            "gain_over_mixtures": to_mixtures["quality"],
            "half_quality": at_half["quality"],
            "verdict": verdict,
        }
    return pd.DataFrame(comparisons).T.rename_axis("method")


def compare_tables(
    results: RecordedResults, rows: pd.DataFrame, equivalence_margin: float
) -> pd.DataFrame:
    """Compares every method with the best constant on every table of at least MIN_ITEMS items.

    Args:
        results: What `run` returned.
        rows: `results.rows` as a results table.
        equivalence_margin: Difference of accuracies that is too small to matter.

    Returns:
        The columns of `compare_methods`, by table and method.
    """
    # By table and question, whether there is enough headroom for any method to win.
    decisions = results.gate.set_index(["table", "question"])["question is"]
    comparisons = {}
    for table, description in results.descriptions.iterrows():
        if description["items"] >= MIN_ITEMS:
            comparisons[table] = compare_methods(
                results_table.select(rows, group=table),
                results.repeat_averages[results.repeat_averages["table"] == table],
                equivalence_margin,
                decisions[table],
            )
    return pd.concat(comparisons, names=["table"])


def compare_pair(
    rows: pd.DataFrame, repeat_averages: pd.DataFrame, method: str, baseline: str
) -> dict[str, stats.Interval]:
    """Compares two methods item by item.

    Intervals are over groups of items (column context), because the items of a group are not independent, and over
    repeats, because with other folds other knob settings are chosen on dev.

    Args:
        rows: Rows of one table and condition, of all methods.
        repeat_averages: Averages by repeat of the same table and condition.
        method: Name of the method.
        baseline: Name of the method that it is compared with.

    Returns:
        quality: accuracy of the method minus that of the baseline.
        cost_ratio: its mean cost divided by the baseline's, with an interval by the delta method on its logarithm.

    Raises:
        ValueError: The two did not meet the same items.
    """
    treatment = rows[rows["method"] == method].set_index("item").sort_index()
    control = rows[rows["method"] == baseline].set_index("item").sort_index()
    if not treatment.index.equals(control.index):
        raise ValueError(f"{method!r} and {baseline!r} have not met the same items")
    treatment_averages = repeat_averages[repeat_averages["method"] == method].set_index("cv_repeat")
    control_averages = repeat_averages[repeat_averages["method"] == baseline].set_index("cv_repeat")
    groups = treatment["context"].to_numpy()

    differences = (treatment["correct"] - control["correct"]).to_numpy()
    quality = model_selection.add_repeat_variance(
        stats.grouped_interval(differences, groups),
        treatment_averages["correct"] - control_averages["correct"],
    )

    # Delta method: log(mean a / mean b) varies as the mean of a / mean a - b / mean b.
    treatment_cost = treatment["cost_usd"].mean()
    control_cost = control["cost_usd"].mean()
    relative_cost = treatment["cost_usd"].to_numpy() / treatment_cost
    linearized = relative_cost - control["cost_usd"].to_numpy() / control_cost
    log_ratios = np.log(treatment_averages["cost_usd"] / control_averages["cost_usd"])
    log_interval = model_selection.add_repeat_variance(
        stats.grouped_interval(linearized, groups), log_ratios
    )
    half_width = log_interval.ci_high  # the interval lies around 0
    ratio = treatment_cost / control_cost
    ci_low = ratio * float(np.exp(-half_width))
    ci_high = ratio * float(np.exp(half_width))
    return {"quality": quality, "cost_ratio": stats.Interval(ratio, ci_low, ci_high)}


def decide_verdict(
    quality: stats.Interval, cost_ratio: stats.Interval, equivalence_margin: float
) -> str:
    """Decides how a method compares with the best constant, the most accurate single model.

    Args:
        quality: Accuracy minus the best constant's.
        cost_ratio: Cost divided by the best constant's.
        equivalence_margin: Difference of accuracies that is too small to matter.

    Returns:
        The first of these that holds for the whole interval, or UNDECIDED:
        WORSE: accuracy is lower by more than the margin.
        MORE_EXPENSIVE: it costs more.
        CHEAPER: it saves at least the fraction of cost that is worth having (`headroom.MIN_WORTHWHILE_GAIN`), and
            accuracy is not lower by the margin.
    """
    if quality.ci_high < -equivalence_margin:
        return WORSE
    if cost_ratio.ci_low > 1:
        return MORE_EXPENSIVE
    least_saving = headroom.MIN_WORTHWHILE_GAIN["money"]
    saves_enough = cost_ratio.ci_high <= 1 - least_saving
    keeps_quality = quality.ci_low > -equivalence_margin
    return CHEAPER if saves_enough and keeps_quality else UNDECIDED


# Two tables, and tables of two models -------------------------------------------------------------


def join_for_transfer(
    source: OutcomeTable, target: OutcomeTable
) -> tuple[OutcomeTable, list[Fold]]:
    """Joins two tables of the same models, so that methods learn on the first and are scored on the second.

    Args:
        source: Its groups are divided into train and dev.
        target: Its items are the test items, without those that are in the source, too (SWE-bench and SWT-bench share
            issues).

    Returns:
        The joint table, and its one split into train, dev and test.

    Raises:
        TableError: Fewer than two models are common, or features differ.
    """
    common_models = [name for name in source.models if name in target.models]
    if len(common_models) < 2 or source.features.shape[1] != target.features.shape[1]:
        raise tables.TableError(
            f"{source.name} and {target.name} share {len(common_models)} models, and their items have "
            f"{source.features.shape[1]} and {target.features.shape[1]} features; two models and equal features are "
            "needed"
        )
    first = source.select_models(common_models)
    is_new = ~np.isin(target.items, source.items)
    second = target.select_models(common_models).take(is_new)
    columns = {}
    for name in ("items", "groups", "correct", "cost_usd", "features"):
        columns[name] = np.concatenate([getattr(first, name), getattr(second, name)])
    joint = OutcomeTable(
        f"{source.name}_to_{target.name}",
        models=tuple(common_models),
        money=source.money,
        cost_measures_work=source.cost_measures_work,
        **columns,
    )
    fold_of_source = model_selection.assign_folds(source, 3, 0)
    fold = Fold(
        train=np.flatnonzero(fold_of_source > 0),
        dev=np.flatnonzero(fold_of_source == 0),
        test=np.arange(len(source), len(joint)),
    )
    return joint, [fold]


def trace_strong_calls(
    table: OutcomeTable, choices: Sequence[Choices], folds: Sequence[Fold]
) -> pd.DataFrame:
    """Computes the curve of accuracy over the fraction of calls to the strong model (RouteLLM).

    RouteLLM's metrics APGR and CPT are computed from it.

    Args:
        table: Outcomes of two models; the more expensive one is the strong model, the other one the weak model.
        choices: A router's choices, one `Choices` for each fold, of the same number of knob settings.
        folds: Train, dev and test items.

    Returns:
        A row for each knob setting, and one for each model alone. Columns: share, the fraction of items that go to the
        strong model, ascending from 0 to 1; correct, the accuracy there.
    """
    strong = int(table.cost_usd.mean(0).argmax())
    weak = 1 - strong

    # For each knob setting and item, what the router did while the item was held out.
    num_knobs = len(choices[0].names)
    asks_strong = np.full((num_knobs, len(table)), np.nan)
    correct = np.full((num_knobs, len(table)), np.nan)
    for fold, fold_choices in zip(folds, choices, strict=True):
        # `Choices` hold costs and no models: the model that was asked is known by its cost.
        chosen_cost = fold_choices.cost_usd[:, fold.test]  # (knob settings, test items)
        strong_cost = table.cost_usd[fold.test, strong]  # (test items,)
        asks_strong[:, fold.test] = chosen_cost == strong_cost
        correct[:, fold.test] = fold_choices.correct[:, fold.test]

    # The curve begins with the weak model alone and ends with the strong one alone.
    weak_accuracy = table.correct[:, weak].mean()
    strong_accuracy = table.correct[:, strong].mean()
    shares = [0.0, 1.0, *asks_strong.mean(1)]
    accuracies = [weak_accuracy, strong_accuracy, *correct.mean(1)]
    curve = pd.DataFrame({"share": shares, "correct": accuracies})
    return curve.drop_duplicates("share").sort_values("share", ignore_index=True)


def find_call_threshold(curve: pd.DataFrame, target: float = 0.5) -> float | str:
    """Computes CPT, RouteLLM's call-performance threshold.

    Args:
        curve: Accuracy over the fraction of calls to the strong model, as `trace_strong_calls` returns it.
        target: Fraction of the accuracy gap between the weak and the strong model that is to be recovered.

    Returns:
        The least fraction of calls to the strong model that does so, or a text that says why there is none.
    """
    weak_accuracy = curve["correct"].iloc[0]
    strong_accuracy = curve["correct"].iloc[-1]
    shares = curve["share"].to_numpy()
    correct = curve["correct"].to_numpy()
    try:
        return stats.cpt(shares, correct, weak_accuracy, strong_accuracy, target)
    except ValueError as error:
        # The first clause says what is wrong; the rest is a remedy.
        reason = str(error).split(",")[0].split(";")[0]
        return f"refused: {reason}"
