"""What was found, in one place: the finding, the limits as this run shows them, and the metrics that are kept."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.page.tables import listed
from lib.page.words import changed, finite, number, scaled, there
from lib.params import Params
from lib.reporting.estimates import mean
from lib.reporting.toolorchestra import benchmark, comparison, generalisation, pilot, simplex, synthesis, training
from lib.reporting.toolorchestra.common import (
    BOTH,
    CORL,
    LENIENT,
    MILLI,
    MILLION,
    MONEY,
    PAPER,
    PUBLISHED,
    TIME,
    exam,
    label,
)
from lib.routing.toolorchestra.study import START, Results

KEYS = {START: "start", PAPER: "trained", PUBLISHED: "sign_error", LENIENT: "lenient", CORL: "corl"}
Answers = Mapping[str, pd.DataFrame]


def metrics(results: Results, every: Answers, params: Params) -> dict[str, object]:
    """The lesson's numbers by key; where there was nothing to measure, there is no key. every:
    `comparison.everybody`."""
    out: dict[str, object] = {"backend": params.llm.decided_by(params.tools.models.values())}
    keys = {label(arm): key for arm, key in KEYS.items()}
    for name, part in every.items():
        key = keys.get(name, f"baseline.{name.split(' (')[0].replace(' ', '_')}")
        out |= {
            f"{key}.accuracy": mean(part, "right"), f"{key}.preference_score": mean(part, "score"),
            f"{key}.dollars": scaled(mean(part, "micro"), MILLION), f"{key}.seconds": scaled(mean(part, "ms"), MILLI),
        }  # fmt: skip
    for arm, key in KEYS.items():
        out[f"{key}.office_accuracy"] = mean(exam(results, arm, office=True), "right")
    out |= generalisation.metrics(results, params.tools) | pilot.metrics(results)
    volumes = simplex.volumes(results)
    for arm, before in zip(BOTH, ("start.", ""), strict=True):
        out[f"{before}simplex.hypervolume"] = volumes[label(arm)]
        for column, name, by in (("micro", "cost", MILLION), ("ms", "latency", MILLI), ("right", "accuracy", 1.0)):
            out[f"{before}simplex.{name}_slope"] = scaled(simplex.slope(results, arm, column), by)
    out |= {f"lenient.{key}_gap": found for key, found in training.lenient_gaps(results).items()}
    sign = training.sign_rows(results)["difference"]
    out["sign_error.dollars_gap"] = scaled(sign[MONEY], MILLION)
    out["sign_error.dollars_gap_right"] = scaled(sign[training.PER_RIGHT], MILLION)
    out["synthesis.tasks"] = synthesis.kept(results)
    out |= {f"synthesis.dropped.{reason.replace(' ', '_')}": n for reason, n in synthesis.dropped(results).items()}
    for arm, row in training.shares_left_out(results, [PAPER, PUBLISHED]).items():
        out |= {f"filters.{KEYS[arm]}.{name}": value for name, value in row.items()}
    return finite(out)


def key_metrics(found: Mapping[str, object]) -> list[str]:
    """For the front page, as far as they are there."""
    wanted = ("trained.accuracy", "start.accuracy", "trained.dollars", "sign_error.dollars_gap")
    return [key for key in wanted if key in found]


def finding(results: Results, every: Answers) -> str:
    """What came of it, a sentence for each question that the lesson asks."""
    start = comparison.minus(every).get(label(START))
    money, time = (simplex.slope(results, PAPER, c) for c in ("micro", "ms"))
    exams, sign = generalisation.changes(results), training.sign_rows(results)["difference"]
    better = [name for name, found in exams.items() if name != "test" and found.excludes(0) and found.value > 0]
    told = "There was no test question."
    if start:
        told = (
            f"Training changes accuracy on test questions by {changed(start['accuracy'], 3)}, dollars per million "
            f"questions by {changed(start[MONEY], 1)}, milliseconds by {changed(start[TIME], 1)}, and the mean "
            f"preference score over all examples by {changed(benchmark.gains(results), 3)}."
        )
    return (
        f"{told} As a user's weight on cost goes from 0 to 1, what the trained orchestrator spends changes by "
        f"{changed(money, 1)} dollars per million; with that on latency its time changes by {changed(time, 1)} ms. "
        f"The published sign error changes what it spends by {changed(sign[MONEY], 1)} dollars per million. Beyond the "
        f"setting of the training accuracy is clearly up for {listed(better, 'none of the exams')}."
    )


def limits(results: Results, params: Params) -> str:
    """What did not work in this run, a line each."""
    wild = {label(arm): mean(exam(results, arm, office=None), "wild") for arm in KEYS}
    told = "; ".join(f"{name} {number(found)}" for name, found in wild.items() if there(found))
    lines = [f"Share of test episodes with a malformed turn: {told or 'no episode'}."]
    for arm, row in training.shares_left_out(results, [PAPER]).items():
        a, b = training.ends(results, arm, "malformed")
        lines.append(
            f"{label(arm)} learned from {1 - sum(row.values()):.0%} of its rollouts; malformed ones went from {a:.0%} "
            f"to {b:.0%} between the first and the last fifth: what is left out is never punished."
        )
    lenient = training.lenient_gaps(results)
    if there(lenient["malformed"]):
        lines.append(
            f"Learning from malformed and unanswered rollouts too changes the share of malformed turns by "
            f"{changed(lenient['malformed'], 3)} and accuracy by {changed(lenient['accuracy'], 3)}."
        )
    score, own = benchmark.spending_share(results), params.tools
    if score == score:
        lines.append(f"Cost and latency make up {score:.0%} of ToolOrchestra's preference score.")
    size = f"{own.updates} updates of {own.groups} x {own.rollouts} rollouts, {own.seeds} seeds"
    return "\n".join([*lines, f"{size}, one start for them all."])
