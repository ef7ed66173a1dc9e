"""What was found, in one place: the finding, the limits as this run shows them, and the metrics that are kept."""

from __future__ import annotations

from lib.page.tables import listed
from lib.params import Params
from lib.reporting.estimates import mean
from lib.reporting.toolorchestra import common, comparison, environment, generalisation, pilot, simplex, training
from lib.reporting.toolorchestra.common import (
    BOTH,
    CORL,
    LABELS,
    LENIENT,
    MILLI,
    MILLION,
    MONEY,
    PAPER,
    PUBLISHED,
    exam,
)
from lib.reporting.words import changed, finite, number, scaled
from lib.routing.toolorchestra.study import START, Results

KEYS = {START: "start", PAPER: "trained", PUBLISHED: "sign_error", LENIENT: "lenient", CORL: "corl"}


def metrics(results: Results, every: comparison.Answers, params: Params) -> dict[str, object]:
    """The lesson's numbers by key; where there was nothing to measure, there is no key. every:
    `comparison.everybody`."""
    out: dict[str, object] = {"backend": params.llm.decided_by(params.tools.models.values())}
    keys = {LABELS[arm]: key for arm, key in KEYS.items()}
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
        out[f"{before}simplex.hypervolume"] = volumes[LABELS[arm]]
        for column, name, by in (("micro", "cost", MILLION), ("ms", "latency", MILLI), ("right", "accuracy", 1.0)):
            out[f"{before}simplex.{name}_slope"] = scaled(simplex.slope(results, arm, column), by)
    out |= {f"lenient.{key}_gap": found for key, found in training.lenient_gaps(results).items()}
    sign = training.sign_rows(results)["difference"]
    out["sign_error.dollars_gap"] = scaled(sign[MONEY], MILLION)
    out["sign_error.dollars_gap_right"] = scaled(sign[training.PER_RIGHT], MILLION)
    out["synthesis.tasks"] = environment.kept(results)
    out |= {f"synthesis.dropped.{reason.replace(' ', '_')}": n for reason, n in environment.dropped(results).items()}
    for arm in (PAPER, PUBLISHED):
        out |= {f"filters.{KEYS[arm]}.{name}": x for name, x in training.shares_left_out(results, arm).items()}
    return finite(out)


def finding(results: Results, every: comparison.Answers) -> str:
    """What came of it, a sentence for each question that the lesson asks."""
    start = comparison.minus(every)[LABELS[START]]
    money, time = (simplex.slope(results, PAPER, c) for c in ("micro", "ms"))
    sign = training.sign_rows(results)["difference"][MONEY]
    exams = generalisation.changes(results)
    better = [name for name, found in exams.items() if name != "test" and found.excludes(0) and found.value > 0]
    return (
        f"Training changes accuracy on test questions by {changed(start['accuracy'], 3)}, dollars per million "
        f"questions by {changed(start[MONEY], 1)}, milliseconds by {changed(start[common.TIME], 1)}, and the mean "
        f"preference score over all examples by {changed(comparison.gains(results), 3)}. "
        f"As a user's weight on cost goes from 0 to 1, what the trained orchestrator spends changes by "
        f"{changed(money, 1)} dollars per million; with that on latency its time changes by {changed(time, 1)} ms. "
        f"The published sign error changes what it spends by {changed(sign, 1)} dollars per million. Beyond the "
        f"setting of the training accuracy is clearly up for {listed(better, 'none of the exams')}."
    )


def limits(results: Results) -> str:
    """What did not work in this run, a line each."""
    wild = [f"{LABELS[arm]} {number(mean(exam(results, arm, office=None), 'wild'))}" for arm in KEYS]
    first, last = training.ends(results, PAPER, "malformed")
    learned = 1 - sum(training.shares_left_out(results, PAPER).values())
    lenient, share = training.lenient_gaps(results), comparison.spending_share(results)
    return (
        f"Share of test episodes with a malformed turn: {'; '.join(wild)}.\n"
        f"{LABELS[PAPER]} learned from {learned:.0%} of its rollouts; malformed ones went from {first:.0%} "
        f"to {last:.0%} between the first and the last fifth: what is left out is never punished.\n"
        f"Learning from malformed and unanswered rollouts too changes the share of malformed turns by "
        f"{changed(lenient['malformed'], 3)} and accuracy by {changed(lenient['accuracy'], 3)}.\n"
        f"Cost and latency make up {share:.0%} of ToolOrchestra's preference score."
    )
