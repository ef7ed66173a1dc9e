"""What was found, in one place: the finding, the limits as this run shows them, and the metrics that are kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.page.tables import listed
from lib.params import Params
from lib.reporting import backends
from lib.reporting.toolorchestra import (
    benchmark,
    common,
    comparison,
    generalisation,
    pilot,
    simplex,
    synthesis,
    training,
)
from lib.reporting.toolorchestra.common import (
    CORL,
    LENIENT,
    MILLI,
    MILLION,
    MONEY,
    PAPER,
    PUBLISHED,
    TIME,
    interval,
    label,
    matrix,
    share,
)
from lib.reporting.toolorchestra.generalisation import scaled
from lib.reporting.words import changed, clearly, finite, number
from lib.routing.toolorchestra.study import START, Results

KEYS = {START: "start", PAPER: "trained", PUBLISHED: "sign_error", LENIENT: "lenient", CORL: "corl"}


def metrics(results: Results, others: Mapping[str, pd.DataFrame], params: Params) -> dict[str, object]:
    """The lesson's numbers by key; where there was nothing to measure, there is no key."""
    out: dict[str, object] = {"backend": backends.backend(params.llm, params.tools.models)}
    for arm, key in KEYS.items():
        part = common.exam(results, arm)
        out |= _means(key, part, benchmark.scores(results, arm), "test", arm)
        office = common.exam(results, arm, offices=True)
        office = office[office["kind"] == "office"]
        out[f"{key}.office_accuracy"] = share(matrix(office, "right"), "office", arm, "right")
    for name, table in others.items():
        units = common.in_units(table.assign(own=0.0, seed=0))
        found = benchmark.rival_scores(results, others, name)
        out |= _means(f"baseline.{name.replace(' ', '_')}", units, found, "rival", name)
    out |= generalisation.metrics(results, params.tools) | dict(pilot.metrics(results))
    volumes = simplex.volumes(results)
    for arm, before in ((PAPER, ""), (START, "start.")):
        out[f"{before}simplex.hypervolume"] = volumes[label(arm)]
        for column, name, by in (("micro", "cost", MILLION), ("ms", "latency", MILLI), ("right", "accuracy", 1.0)):
            out[f"{before}simplex.{name}_slope"] = scaled(simplex.slope(results, arm, column), by)
    gaps = training.sign_gaps(results)
    lenient = training.lenient_gaps(results)
    out |= {
        f"lenient.{key}_gap": lenient[name]
        for key, name in (("malformed", "a malformed turn"), ("accuracy", "accuracy"))
    }
    out["sign_error.dollars_gap"] = scaled(gaps[MONEY], MILLION)
    out["sign_error.dollars_gap_right"] = scaled(gaps["$ per million right answers"], MILLION)
    out["synthesis.tasks"] = synthesis.kept(results)
    out |= {f"synthesis.dropped.{reason.replace(' ', '_')}": n for reason, n in synthesis.dropped(results).items()}
    for arm, row in training.shares_left_out(results, [PAPER, PUBLISHED]).items():
        out |= {f"filters.{KEYS[arm]}.{name}": value for name, value in row.items()}
    return finite(out)


def _means(key: str, part: pd.DataFrame, scores: np.ndarray, exam: str, who: str) -> dict[str, object]:
    """Under the names of `comparison.rows`, so that one quantity has one interval."""
    return {
        f"{key}.accuracy": share(matrix(part, "right"), exam, who, "right"),
        f"{key}.dollars": scaled(interval(matrix(part, "micro"), exam, who, "micro"), MILLION),
        f"{key}.seconds": scaled(interval(matrix(part, "ms"), exam, who, "ms"), MILLI),
        f"{key}.preference_score": interval(scores, "score", who),
    }


def key_metrics(found: Mapping[str, object]) -> list[str]:
    """For the front page, as far as they are there."""
    wanted = ("trained.accuracy", "start.accuracy", "trained.dollars", "sign_error.dollars_gap")
    return [key for key in wanted if key in found]


def finding(results: Results, others: Mapping[str, pd.DataFrame]) -> str:
    """What came of it, a sentence for each question that the lesson asks."""
    gaps = comparison.gaps(results, others)
    start = gaps.get(label(START), {})
    score, sign = benchmark.gains(results), training.sign_gaps(results)
    money, time = (simplex.slope(results, PAPER, c) for c in ("micro", "ms"))
    exams = generalisation.gaps(results)
    better = [name for name, found in exams.items() if name != "test" and found.excludes(0) and found.value > 0]
    rule = gaps.get("one a kind")
    beside = f" Beside the rule of one tool a kind, accuracy is {number(rule['accuracy'], 3, True)}." if rule else ""
    told = (
        f"Training changes accuracy on test questions by {changed(start['accuracy'], 3)}, dollars per million "
        f"questions by {changed(start[MONEY], 1)}, milliseconds by {changed(start[TIME], 1)}, and the mean "
        f"preference score over all examples by {changed(score, 3)}.{beside} "
        if start
        else "There was no test question. "
    )
    return (
        f"{told}As a user's weight on cost goes from 0 to 1, what the trained orchestrator spends changes by "
        f"{changed(money, 1)} dollars per million; with that on latency its time changes by {changed(time, 1)} ms. "
        f"Under the published sign error it spends {clearly(sign[MONEY])}. Beyond the setting of the training accuracy "
        f"is clearly up for {listed(better, 'none of the exams')}."
    )


def limits(results: Results, params: Params) -> str:
    """What did not work in this run, a line each."""
    told = []
    for arm in KEYS:
        part = common.exam(results, arm, offices=True)
        if len(part):
            wild = share(matrix(part.assign(wild=(part["malformed"] > 0) * 1.0), "wild"), "limits", arm)
            told.append(f"{label(arm)} {number(wild)}")
    lines = [f"Share of test episodes with a malformed turn: {'; '.join(told) or 'no episode'}."]
    for arm, row in training.shares_left_out(results, [PAPER]).items():
        a, b = training.ends(results, arm, "malformed")
        lines.append(
            f"{label(arm)} learned from {1 - sum(row.values()):.0%} of its rollouts: {row['malformed']:.0%} were "
            f"malformed, {row['unanswered']:.0%} without an answer, {row['agreeing']:.0%} in groups that agree. "
            f"Malformed ones went from {a:.0%} to {b:.0%} between the first and the last fifth: what is left out is "
            "never punished."
        )
    lines.append(training.lenient_words(results))
    lost = synthesis.dropped(results)
    if sum(lost.values()):
        lines.append(
            f"The filters dropped {sum(lost.values())} of {sum(lost.values()) + synthesis.kept(results)} office tasks."
        )
    score = benchmark.spending_share(results)
    if score == score:
        lines.append(
            f"Cost and latency make up {score:.0%} of ToolOrchestra's preference score; the ratios have no bound."
        )
    own = params.tools
    lines.append(
        f"{own.updates} updates of {own.groups} x {own.rollouts} rollouts, {own.seeds} seeds, one start for them all."
    )
    return "\n".join(lines)
