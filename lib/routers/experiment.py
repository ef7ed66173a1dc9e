"""Everybody of `deciders` on every table of recorded outcomes: the study of lesson 08, one job per table.

A job plays a table in several repeats of cross-validation and keeps what the lesson asks: rows of the record,
what was promised and spent at every level of money, and how each curve of quality over money lies above mixtures.
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
from lib.recorded_outcomes.model_selection import EQUAL, HALF, Choices, Fold, HeldOutScores
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import methods
from lib.routers.methods import CHECK, CONSTANT, CORL, MIXTURES, ORACLE, POOR, RANDOM, ROLES
from lib.stats.verdicts import UNDECIDED
from lib.tool_orchestration import rewards as tool_rewards

VERSION = 1  # of the replay of a table
RUNS = ROOT / "data/runs/recorded"
OVER = 1.05  # a budget is broken where more than this share of it is spent
LEAST = 10  # items of a group whose mean is looked at
CHEAPER = "cheaper"  # of a verdict: for clearly less money, and clearly not worse by the margin
_FRAMES = ("rows", "drawn", "levels", "aiq", "gate")
_READ = (
    "items",
    "folds",
    "seeds",
    "updates",
    "batch",
    "learning_rate",
    "neighbours",
    "min_dev_gain",
    "draws",
)  # by a job


@dataclass(frozen=True)
class Found:
    """rows: for `lib.experiment.results_table`, see `model_selection.make_result_rows`, means over repeats;
    drawn: table, method, condition, parting (the repeat of cross-validation), and its mean correct and cost_usd;
    levels: table, method, parting, level, promised, cost_usd, correct
    and over_groups, the share of groups that spend more than promised; aiq: table, method, value, lo, hi, above
    mixtures;
    gate: as `headroom.gate`, by table; told: what `headroom.describe_table` says, by table."""

    rows: pd.DataFrame
    drawn: pd.DataFrame
    levels: pd.DataFrame
    aiq: pd.DataFrame
    gate: pd.DataFrame
    told: pd.DataFrame


def run(
    settings: RecordedSettings, names: Sequence[str] = tuple(tables.SHIPPED), runs: Path = RUNS
) -> Found:
    """Play what is not there yet. names: of shipped tables; those too small to be parted are described only."""
    jobs = [make_job(settings, name) for name in names]
    context = RunContext.without_models(runs, settings.jobs)
    finished = run_stages([Stage("tables", jobs, play_table)], context)
    frames = {name: finished.read_tables(name, with_identity=False) for name in _FRAMES}
    descriptions = {
        name: receipt["result"] for name, receipt in zip(names, finished.receipts, strict=True)
    }
    return Found(**frames, told=pd.DataFrame(descriptions).T.infer_objects())


def versions() -> dict[str, int]:
    """The VERSIONs of the code that decides what comes of a table."""
    return {
        "random streams": seeds.VERSION,
        "statistics": stats.VERSION,
        "outcome tables": tables.VERSION,
        "choices": model_selection.VERSION,
        "headroom": headroom.VERSION,
        "deciders": methods.VERSION,
        "rewards of ToolOrchestra": tool_rewards.VERSION,
        "replay": VERSION,
    }


def make_job(settings: RecordedSettings, name: str) -> sweep.Job:
    """The job of one shipped table; it holds the hashes of the files that the table is read from."""
    decided_by: dict[str, Any] = {
        "job": "recorded outcomes",
        "table": name,
        "files": [
            artifacts.sha256_file(tables.OUTCOMES_FOLDER / file) for file in tables.FILES[name]
        ],
        "prices": settings.prices.to_job_settings(*tables.PRICED_BY[name]),
        "settings": settings.to_job_settings(*_READ),
        "versions": versions(),
    }
    return sweep.Job(name, decided_by)


def play_table(run: JobRun) -> dict[str, float | str]:
    """Lets every router choose on one table; writes a table per field of the results, returns what the table holds."""
    settings = run.read_section("settings", RecordedSettings)
    prices = run.read_section("prices", PriceSettings)
    table = tables.subsample(tables.SHIPPED[run.settings["table"]](prices), settings.items)
    made = replayed(table, settings)
    made["gate"] = headroom.gate(
        table, settings.folds, range(settings.seeds), settings.min_dev_gain
    ).reset_index()
    for name, frame in made.items():
        run.write_table(name, frame.assign(table=table.name))
    run.report_progress(1.0)
    return headroom.describe_table(table) | {
        "best": headroom.name_best_constant(table),
        "money": table.money,
    }


def replayed(
    table: OutcomeTable,
    settings: RecordedSettings,
    arms: Sequence[str] = tuple(ROLES),
    folds: Sequence[Fold] | None = None,
) -> dict[str, pd.DataFrame]:
    """rows, drawn, levels and aiq of a table. folds: of its items, instead of settings.seeds repeats by group."""
    rows, levels, met = [], [], []
    for cv_repeat in range(1 if folds else settings.seeds):
        parted = folds or model_selection.make_cross_validation_folds(
            model_selection.assign_folds(table, settings.folds, cv_repeat)
        )
        choices = methods.make_choices(table, settings, cv_repeat, parted, arms)
        found = {
            method: model_selection.score_choices(table, parted, own, settings.min_dev_gain)
            for method, own in choices.items()
        }
        every = found | simple(table, parted)
        rows.append(
            pd.concat(
                [
                    model_selection.make_result_rows(table, each, method, ROLES[method])
                    for method, each in every.items()
                ]
            )
        )
        levels.append(promised(table, found, parted).assign(parting=cv_repeat))
        if CORL in choices:
            levels.append(by_item(table, choices[CORL], parted).assign(parting=cv_repeat))
        met.append(found)
    scored = np.unique(np.concatenate([fold.test for fold in parted]))
    aiq = {
        method: model_selection.aiq_gap(
            table, [each[method] for each in met], [each[MIXTURES] for each in met], settings.draws
        )
        for method in met[0]
        if method != MIXTURES and len(scored) == len(table)
    }
    # all repeats share the items and their one recorded outcome in one order, and are no runs
    mean = {
        name: np.mean([each[name] for each in rows], axis=0) for name in ("correct", "cost_usd")
    }
    by_repeat = {
        cv_repeat: each.groupby(["method", "condition"], sort=False)[["correct", "cost_usd"]].mean()
        for cv_repeat, each in enumerate(rows)
    }
    return {
        "rows": rows[0].assign(**mean).dropna(subset="correct").reset_index(drop=True),
        "drawn": pd.concat(
            [each.reset_index().assign(parting=cv_repeat) for cv_repeat, each in by_repeat.items()]
        ),
        "levels": pd.concat(levels, ignore_index=True),
        "aiq": pd.DataFrame(
            [{"method": method} | vars(gap) for method, gap in aiq.items()],
            columns=["method", "value", "ci_low", "ci_high"],
        ),
    }


def simple(table: OutcomeTable, folds: Sequence[Fold]) -> dict[str, HeldOutScores]:
    """Who has no knob: the constant that was best on the items that are known of each fold, and a die."""
    held = np.full(len(table), np.nan)
    held[np.concatenate([fold.test for fold in folds])] = 0.0
    made = {
        CONSTANT: model_selection.score_best_constant(table, folds),
        RANDOM: [table.correct.mean(1) + held, table.cost_usd.mean(1) + held],
    }
    levels = len(model_selection.LEVELS)
    return {
        method: HeldOutScores(
            *(np.tile(each, (levels, 1)) for each in (q, c, c)), np.stack([q, c]), ()
        )
        for method, (q, c) in made.items()
    }


def promised(
    table: OutcomeTable, found: Mapping[str, HeldOutScores], folds: Sequence[Fold]
) -> pd.DataFrame:
    """What a method spent where so much was promised: means over the items that were scored, at every level."""
    test = np.sort(np.concatenate([fold.test for fold in folds]))
    groups = pd.Series(table.groups[test])
    large = groups.map(groups.value_counts()) >= LEAST
    made = []
    for method, each in found.items():
        for level, share in enumerate(model_selection.LEVELS):
            paid, kept = each.cost_usd[level, test], each.promised[level, test]
            by_group = (
                pd.DataFrame({"paid": paid, "kept": kept})[large.to_numpy()]
                .groupby(groups[large].to_numpy())
                .mean()
            )
            made.append(
                {
                    "method": method,
                    "level": share,
                    "promised": kept.mean(),
                    "cost_usd": paid.mean(),
                    "correct": each.correct[level, test].mean(),
                    "over_groups": (by_group["paid"] > OVER * by_group["kept"]).mean()
                    if len(by_group)
                    else np.nan,
                }
            )
    return pd.DataFrame(made)


def by_item(table: OutcomeTable, choices: Sequence[Choices], folds: Sequence[Fold]) -> pd.DataFrame:
    """CoRL's own promise, a budget for each item: the share of items that cost more, as `over_items`, by budget."""
    made = []
    for fold, own in zip(folds, choices, strict=True):
        for knob, budget in enumerate(map(float, own.names)):
            over = (own.cost_usd[knob, fold.test] > budget).mean()
            made.append(
                {
                    "method": CORL,
                    "promised": budget,
                    "over_items": over,
                    "correct": own.correct[knob, fold.test].mean(),
                }
            )
    return pd.DataFrame(made)


def shifted(here: OutcomeTable, there: OutcomeTable) -> tuple[OutcomeTable, list[Fold]]:
    """Two tables of the same models as one, and the fold that learns and chooses on the first and is scored on the
    second; whole groups of the first choose. Items that both have (SWE-bench and SWT-bench share issues) are left out
    of the second. Raises TableError where fewer than two models are common, or features differ."""
    models = [name for name in here.models if name in there.models]
    if len(models) < 2 or here.features.shape[1] != there.features.shape[1]:
        raise tables.TableError(
            f"{here.name} and {there.name} share {len(models)} models, and their items are seen as "
            f"{here.features.shape[1]} and {there.features.shape[1]} numbers"
        )
    both = [
        here.select_models(models),
        there.select_models(models).take(~np.isin(there.items, here.items)),
    ]
    stacked = {
        name: np.concatenate([getattr(each, name) for each in both])
        for name in ("items", "groups", "correct", "cost_usd", "features")
    }
    table = OutcomeTable(
        f"{here.name}_to_{there.name}",
        models=tuple(models),
        money=here.money,
        cost_measures_work=here.cost_measures_work,
        **stacked,
    )
    part, n = model_selection.assign_folds(here, 3, 0), len(here)
    return table, [
        Fold(np.flatnonzero(part > 0), np.flatnonzero(part == 0), np.arange(n, len(table)))
    ]


# What came of it -----------------------------------------------------------------------------------


def compared(
    rows: pd.DataFrame, drawn: pd.DataFrame, equivalence_margin: float, gate: pd.Series
) -> pd.DataFrame:
    """Everybody on one table against the best constant, with intervals over groups of items and repeats.

    By method: `quality`, right answers less the best constant's, and `ratio`, dollars over its dollars, both at equal
    quality; `half`, right answers at half the money less those of mixtures there, and `half_quality` less those of the
    best constant at its full price. verdict: see `verdict`; "cheaper" also where half the money is as right, a second
    look, added after a first run at equal quality, so that two chances stand behind that word. gate: open or
    not open by question, whose methods get no verdict where it is not.
    """
    equal, half = (
        (results_table.select(rows, condition=name), drawn[drawn["condition"] == name])
        for name in (EQUAL, HALF)
    )
    made = {}
    for method in dict.fromkeys(rows["method"]):
        if method != CONSTANT:
            told = against(*equal, method, CONSTANT) | {
                "half": against(*half, method, MIXTURES)["quality"]
            }
            later = against(*half, method, CONSTANT)
            found = [
                verdict(each["quality"], each["ratio"], equivalence_margin)
                for each in (told, later)
            ]
            told["half_quality"] = later["quality"]
            question = "check" if method in (CHECK, POOR) else "money"
            closed = gate[question] == headroom.NOT_OPEN and method != ORACLE
            made[method] = told | {
                "verdict": headroom.NOT_OPEN
                if closed
                else CHEAPER
                if CHEAPER in found
                else found[0]
            }
    return pd.DataFrame(made).T.rename_axis("method")


def against(
    rows: pd.DataFrame, drawn: pd.DataFrame, method: str, other: str
) -> dict[str, stats.Interval]:
    """Right answers of a method less another's, and its dollars over the other's (delta method on the logarithm),
    inside items. Intervals are over groups of items (`context`), for what is held out whole varies whole, and over
    repeats (`drawn`, those of one condition), for other folds let dev choose others."""
    one, two = (
        rows[rows["method"] == name].set_index("item").sort_index() for name in (method, other)
    )
    if not one.index.equals(two.index):
        raise ValueError(f"{method!r} and {other!r} have not met the same items")
    groups, means = one["context"].to_numpy(), [each["cost_usd"].mean() for each in (one, two)]
    relative = one["cost_usd"].to_numpy() / means[0] - two["cost_usd"].to_numpy() / means[1]
    ratio, spread = means[0] / means[1], stats.grouped_interval(relative, groups)
    mine, others = (
        drawn[drawn["method"] == name].set_index("parting")[["correct", "cost_usd"]]
        for name in (method, other)
    )
    quality = stats.grouped_interval((one["correct"] - two["correct"]).to_numpy(), groups)
    half = model_selection.add_repeat_variance(
        spread, np.log(mine["cost_usd"] / others["cost_usd"])
    ).ci_high
    return {
        "quality": model_selection.add_repeat_variance(
            quality, mine["correct"] - others["correct"]
        ),
        "ratio": stats.Interval(ratio, ratio * float(np.exp(-half)), ratio * float(np.exp(half))),
    }


def verdict(quality: stats.Interval, ratio: stats.Interval, equivalence_margin: float) -> str:
    """What two intervals say: of quality less the best constant's, and of dollars over its dollars. "cheaper": a tenth
    of the money is saved, the least that was worth asking for, and quality has not fallen by the margin, both
    clearly."""
    if quality.ci_high < -equivalence_margin:
        return "worse"
    if ratio.ci_low > 1:
        return "dearer"
    enough = ratio.ci_high <= 1 - headroom.QUESTIONS["money"]
    return CHEAPER if enough and quality.ci_low > -equivalence_margin else UNDECIDED


def shares(table: OutcomeTable, choices: Sequence[Choices], folds: Sequence[Fold]) -> pd.DataFrame:
    """Of a table of two models: the share of items that go to the dearer one, and the share right, by knob, with both
    ends, where everything goes to one; what APGR and CPT are read off (RouteLLM)."""
    strong = int(table.cost_usd.mean(0).argmax())
    knobs = len(choices[0].names)
    share, correct = np.full((knobs, len(table)), np.nan), np.full((knobs, len(table)), np.nan)
    for fold, own in zip(folds, choices, strict=True):
        at = np.ix_(range(knobs), fold.test)
        share[at] = own.cost_usd[at] == table.cost_usd[fold.test, strong]
        correct[at] = own.correct[at]
    ends = [(0.0, table.correct[:, 1 - strong].mean()), (1.0, table.correct[:, strong].mean())]
    made = [*ends, *zip(share.mean(1), correct.mean(1), strict=True)]
    return (
        pd.DataFrame(made, columns=["share", "correct"])
        .drop_duplicates("share")
        .sort_values("share", ignore_index=True)
    )


def threshold(curve: pd.DataFrame, target: float = 0.5) -> float | str:
    """CPT of a curve of `shares`, or why there is none."""
    ends = curve["correct"].iloc[[0, -1]].tolist()
    try:
        return stats.cpt(curve["share"].to_numpy(), curve["correct"].to_numpy(), *ends, target)
    except ValueError as error:
        return f"refused: {str(error).split(',')[0].split(';')[0]}"
