"""Replays the methods of `methods` on tables of recorded outcomes: the experiment of lesson 08, one job per table.

A job replays a table in several repeats of cross-validation and keeps what the lesson asks for: rows of the results
table, what was promised and spent at every budget, and how far each curve of quality over cost lies above mixtures.
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
    Choices,
    Fold,
    HeldOutScores,
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
MAX_SPENDING_RATIO = 1.05  # a budget is broken where more than this multiple of it is spent
MIN_GROUP_SIZE = 10  # items of a group whose mean cost is compared with a budget
MIN_ITEMS = 3 * MIN_GROUP_SIZE  # of a table on which methods are compared
# Verdicts beside UNDECIDED and NOT_OPEN. Cheaper: for clearly less money, and clearly not worse by the margin.
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
    """What methods did on tables of recorded outcomes.

    Attributes:
        rows: For `lib.experiment.results_table`, see `model_selection.make_result_rows`; means over repeats.
        repeat_averages: table, method, condition, cv_repeat, and the mean correct and cost_usd of that repeat.
        budgets: table, method, cv_repeat, level, promised, cost_usd, correct, and groups_over_budget, the fraction of
            groups that spent more than promised; for CoRL's reward also items_over_budget.
        aiq: table, method, value, ci_low, ci_high: AIQ minus that of mixtures.
        gate: As `headroom.estimate_headroom`, by table.
        descriptions: By table, what `headroom.describe_table` says, the best constant and where costs come from.
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
    """Replays shipped tables; what is finished is read from disk.

    Args:
        settings: Of lesson 08.
        names: Of shipped tables.
        runs: Folder of the jobs.
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
    """The VERSIONs of the code that decides the results on a table."""
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
    """The job of one shipped table; it holds the hashes of the files that the table is read from."""
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
    """Replays the table of a job, writes its frames, and returns its description."""
    settings = run.read_section("settings", RecordedSettings)
    prices = run.read_section("prices", PriceSettings)
    table = tables.subsample(tables.SHIPPED[run.settings["table"]](prices), settings.items)
    frames = replay_table(table, settings)
    gate = headroom.estimate_headroom(
        table, settings.folds, range(settings.seeds), settings.min_dev_gain
    )
    frames["gate"] = gate.reset_index()
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
    """Lets methods learn, choose and be scored on a table.

    Args:
        table: The recorded outcomes.
        settings: Of lesson 08.
        methods: Which ones; the best constant and random choices are always among the results.
        folds: Instead of those of `settings.seeds` repeats of cross-validation over whole groups.

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
    """One row per method, condition and item: repeats share the recorded outcomes in one order, and are no runs."""
    mean_outcomes = {}
    for column in ("correct", "cost_usd"):
        mean_outcomes[column] = np.mean([rows[column] for rows in rows_by_repeat], axis=0)
    rows = rows_by_repeat[0].assign(**mean_outcomes)
    return rows.dropna(subset="correct").reset_index(drop=True)


def _average_items(rows_by_repeat: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One row per repeat, method and condition."""
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
    """AIQ of every method minus that of mixtures: method, value, ci_low, ci_high."""
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
    """Scores the methods that have no knob: the best constant of train and dev, and random choices."""
    is_scored = np.full(len(table), np.nan)  # 0 where an item is scored
    is_scored[np.concatenate([fold.test for fold in folds])] = 0.0
    uniform = np.stack([table.correct.mean(1), table.cost_usd.mean(1)]) + is_scored
    num_levels = len(model_selection.LEVELS)
    scores = {}
    for method, equal in (
        (BEST_CONSTANT, model_selection.score_best_constant(table, folds)),
        (RANDOM_MODEL, uniform),
    ):
        correct, cost_usd = (np.tile(values, (num_levels, 1)) for values in equal)
        scores[method] = HeldOutScores(
            correct=correct, cost_usd=cost_usd, promised=cost_usd, equal=equal, picked=()
        )
    return scores


# Budgets ------------------------------------------------------------------------------------------


def measure_budgets(
    table: OutcomeTable, scores: Mapping[str, HeldOutScores], folds: Sequence[Fold]
) -> pd.DataFrame:
    """What methods promised and what they spent: a row per method and level, means over the items that were scored.

    Returns:
        method, level, promised, cost_usd, correct, groups_over_budget: the fraction of groups with at least
        MIN_GROUP_SIZE items that spent more than MAX_SPENDING_RATIO times the promise, nan where there is no such group.
    """
    test = np.sort(np.concatenate([fold.test for fold in folds]))
    groups = pd.Series(table.groups[test])
    is_large = (groups.map(groups.value_counts()) >= MIN_GROUP_SIZE).to_numpy()
    large_groups = groups[is_large].to_numpy()
    rows = []
    for method, method_scores in scores.items():
        for index, level in enumerate(model_selection.LEVELS):
            cost_usd = method_scores.cost_usd[index, test]
            promised = method_scores.promised[index, test]
            by_item = pd.DataFrame({"cost_usd": cost_usd, "promised": promised})
            by_group = by_item[is_large].groupby(large_groups).mean()
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
    """CoRL promises a budget for every single item: by fold and budget, the fraction of items that cost more.

    Args:
        choices: Of the network under CoRL's reward, one per fold; its knobs are named by their budgets in USD.
        folds: Train, dev and test items.

    Returns:
        method, promised, items_over_budget, correct.
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
    rows: pd.DataFrame, repeat_averages: pd.DataFrame, equivalence_margin: float, gate: pd.Series
) -> pd.DataFrame:
    """Compares every method on one table with the best constant, with intervals over groups of items and repeats.

    Args:
        rows: Of one table, as in `RecordedResults`.
        repeat_averages: Of that table.
        equivalence_margin: Accuracy that counts as none.
        gate: By question, open or not open; a method whose question is not open gets no other verdict.

    Returns:
        By method: `quality`, accuracy minus the best constant's, and `cost_ratio`, cost over its cost, both at equal
        quality; `gain_over_mixtures`, accuracy at half of its cost minus that of mixtures there; `half_quality`, the
        same minus the best constant's accuracy at its full cost; `verdict`, see `decide_verdict`. "cheaper" may rest
        on equal quality or on half the cost: the second was added after a first run, so that word has two chances.
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
        # The oracle is no method, and so no question is too narrow for it.
        question = "check" if method in (PERFECT_CHECK, POOR_CHECK) else "money"
        if gate[question] == headroom.NOT_OPEN and method != ORACLE:
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
        results: Of `run`.
        rows: Its rows as a results table.
        equivalence_margin: Accuracy that counts as none.

    Returns:
        The columns of `compare_methods`, by table and method.
    """
    gate_by_table = results.gate.set_index(["table", "question"])["question is"]
    comparisons = {}
    for table, description in results.descriptions.iterrows():
        if description["items"] >= MIN_ITEMS:
            comparisons[table] = compare_methods(
                results_table.select(rows, group=table),
                results.repeat_averages[results.repeat_averages["table"] == table],
                equivalence_margin,
                gate_by_table[table],
            )
    return pd.concat(comparisons, names=["table"])


def compare_pair(
    rows: pd.DataFrame, repeat_averages: pd.DataFrame, method: str, baseline: str
) -> dict[str, stats.Interval]:
    """Compares two methods item by item.

    Intervals are over groups of items (column context), because what is held out whole varies whole, and over repeats,
    because other folds let dev choose other knobs.

    Args:
        rows: Of one table and condition.
        repeat_averages: Of the same table and condition.
        method: Compared with the baseline.
        baseline: What it is compared with.

    Returns:
        quality: accuracy of the method minus that of the baseline; cost_ratio: cost over the baseline's, with an
        interval by the delta method on its logarithm.

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
    """Decides what two intervals say of a method beside the best constant.

    Args:
        quality: Accuracy minus the best constant's.
        cost_ratio: Cost over the best constant's.
        equivalence_margin: Accuracy that counts as none.

    Returns:
        WORSE: accuracy is lower by more than the margin. MORE_EXPENSIVE: it costs more. CHEAPER: a tenth of the money
        is saved, the least that is worth having, and accuracy is not lower by the margin. Each with the whole interval;
        UNDECIDED otherwise.
    """
    if quality.ci_high < -equivalence_margin:
        return WORSE
    if cost_ratio.ci_low > 1:
        return MORE_EXPENSIVE
    saves_enough = cost_ratio.ci_high <= 1 - headroom.MIN_WORTHWHILE_GAIN["money"]
    keeps_quality = quality.ci_low > -equivalence_margin
    return CHEAPER if saves_enough and keeps_quality else UNDECIDED


# Two tables, and tables of two models -------------------------------------------------------------


def join_for_transfer(
    source: OutcomeTable, target: OutcomeTable
) -> tuple[OutcomeTable, list[Fold]]:
    """Joins two tables of the same models: methods learn and choose on the first and are scored on the second.

    Args:
        source: A part of its groups is dev, the rest train.
        target: All test; items that the source has too are left out (SWE-bench and SWT-bench share issues).

    Returns:
        The joint table and its one fold.

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
    """The curve that APGR and CPT are read off (RouteLLM), of a table of two models.

    Args:
        table: Of two models; the more expensive one is the strong one.
        choices: Of a router, one per fold.
        folds: Train, dev and test items.

    Returns:
        share: fraction of items that go to the strong model, ascending from 0 to 1; correct: the accuracy there.
    """
    strong = int(table.cost_usd.mean(0).argmax())
    num_knobs = len(choices[0].names)
    is_strong = np.full((num_knobs, len(table)), np.nan)
    correct = np.full((num_knobs, len(table)), np.nan)
    for fold, fold_choices in zip(folds, choices, strict=True):
        fold_cost = fold_choices.cost_usd[:, fold.test]
        is_strong[:, fold.test] = fold_cost == table.cost_usd[fold.test, strong]
        correct[:, fold.test] = fold_choices.correct[:, fold.test]
    weak_end = (0.0, table.correct[:, 1 - strong].mean())
    strong_end = (1.0, table.correct[:, strong].mean())
    points = [weak_end, strong_end, *zip(is_strong.mean(1), correct.mean(1), strict=True)]
    curve = pd.DataFrame(points, columns=["share", "correct"])
    return curve.drop_duplicates("share").sort_values("share", ignore_index=True)


def find_call_threshold(curve: pd.DataFrame, target: float = 0.5) -> float | str:
    """CPT of a curve of `trace_strong_calls`, or why there is none."""
    weak_accuracy, strong_accuracy = curve["correct"].iloc[[0, -1]].tolist()
    shares, correct = curve["share"].to_numpy(), curve["correct"].to_numpy()
    try:
        return stats.cpt(shares, correct, weak_accuracy, strong_accuracy, target)
    except ValueError as error:
        reason = str(error).split(",")[0].split(";")[0]
        return f"refused: {reason}"
