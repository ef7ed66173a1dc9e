"""Claims: the file is in order, tests are safe and carry intervals, verdicts and counts are those worked by hand."""

import contextlib
import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import plots
from lib.plots import accessibility_check
from lib.scoreboard import claim as entries
from lib.scoreboard import (
    claim_cards,
    counts,
    expressions,
    figures,
    metrics,
    multiple_testing,
    summary_figure,
    tables,
    verdicts,
)
from lib.scoreboard.errors import ClaimError
from lib.scoreboard.metrics import Metrics, MissingMetric
from lib.scoreboard.paper_formulas import FUNCTIONS
from lib.stats import Interval, interval_arithmetic
from lib.stats.verdicts import slug

CLAIMS = entries.read_claims()
LAPTOP = metrics.read_metrics()  # the committed metrics of a laptop run
LATER = {"09_ablations"}  # lessons whose metrics may be missing
MEASURED = {
    "05_x": {
        "backend": "lab",
        "a.score": 0.70, "a.score_ci_low": 0.66, "a.score_ci_high": 0.74,
        "b.score": 0.62, "b.score_ci_low": 0.59, "b.score_ci_high": 0.65,
        "c.score": 0.71, "c.score_ci_low": 0.60, "c.score_ci_high": 0.80,
        "s.backend": "scripted",
        "s.score": 0.2, "s.score_ci_low": 0.1, "s.score_ci_high": 0.3,
        "once": 0.5, "agrees": True, "word": "holds", "other": "perhaps",
    }
}  # fmt: skip


def make_claim(**changes):
    base = {
        "id": "po-some-claim",
        "paper": "po",
        "place": "Table 1",
        "kind": "direction",
        "statement": "One is more than the other.",
        "lesson": "05_x",
        "test": "{a.score} > {b.score}",
    }
    entry = {**base, **changes}
    return entries.Claim.model_validate(
        {key: value for key, value in entry.items() if value is not None}
    )


def judge_one_claim(lessons=None, **changes):
    metrics_of_lessons = Metrics(MEASURED if lessons is None else lessons)
    return verdicts.judge_claims([make_claim(**changes)], metrics_of_lessons)[0]


def write_claims(tmp_path: Path, *claims: str) -> Path:
    path = tmp_path / "claims.yaml"
    path.write_text("claims:\n" + "".join(claims) + "...\n")
    return path


def claim_entry(name="po-one", extra="", paper="po"):
    return (
        f"  - id: {name}\n    paper: {paper}\n    place: Table 1\n    kind: formula\n"
        f"    statement: Two is two.\n    test: 1 + 1 == 2\n{extra}"
    )


def evaluate(text, quotes=None):
    test = expressions.parse_test(text, set(quotes or {}), FUNCTIONS)
    measured = Metrics(MEASURED)

    def look_up(lesson, key):
        return measured.get_estimate(lesson or "05_x", key)

    return expressions.Evaluator(look_up, quotes or {}, FUNCTIONS).evaluate(
        test.lhs, test.metric_keys
    )


# The file ------------------------------------------------------------------------------------------


def test_every_key_of_a_claim_is_measured_by_the_committed_run():
    """A key that is misspelled would otherwise pass for one that a small run left out."""
    absent = []
    for claim in CLAIMS:
        for lesson, key in claim.list_metric_keys():
            if lesson in LATER and lesson not in LAPTOP.lessons:
                continue
            try:
                LAPTOP.get_verdict_word(lesson, key) if claim.judged else LAPTOP.get_estimate(
                    lesson, key
                )
            except MissingMetric as missing:
                absent.append((claim.id, str(missing)))
    assert absent == []


def test_every_formula_that_fails_says_whose_fault_it_is_and_no_other_does():
    claim_verdicts = verdicts.judge_claims(CLAIMS, LAPTOP)
    wrong = [
        v.claim.id
        for v in claim_verdicts
        if v.claim.kind == "formula"
        and bool(v.claim.discrepancy_source) != (v.verdict == "does not hold")
    ]
    assert wrong == []
    assert not any(v.discrepancy_source == "nobody yet" for v in claim_verdicts)
    assert {v.verdict for v in claim_verdicts if v.claim.kind == "formula"} == {
        "holds",
        "does not hold",
    }


@pytest.mark.parametrize(
    "text, message",
    [
        (claim_entry() + claim_entry(), "several with this id"),
        (claim_entry(extra="    tolerence: 1\n"), "unknown key 'tolerence'"),
        (claim_entry(paper="pi", name="pi-one"), "paper"),
        (claim_entry(name="arc-one"), "must begin with po-"),
        (claim_entry(extra="    untestable: It needs a telescope.\n"), "give one of these"),
        (claim_entry(extra="    need: 2\n"), "only 1 tests"),
    ],
)
def test_a_mistake_in_the_file_names_claim_and_remedy(tmp_path, text, message):
    with pytest.raises(ClaimError, match=message) as caught:
        entries.read_claims(write_claims(tmp_path, text))
    assert "claim " in str(caught.value)


def test_all_mistakes_are_listed_at_once(tmp_path):
    with pytest.raises(ClaimError) as caught:
        entries.read_claims(
            write_claims(
                tmp_path, claim_entry("po-one", "    x: 1\n"), claim_entry("po-two", "    y: 1\n")
            )
        )
    assert "claim po-one" in str(caught.value) and "claim po-two" in str(caught.value)


def test_a_file_that_is_no_list_of_claims_is_refused(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text("claim: []\n...\n")
    with pytest.raises(ClaimError, match="one list"):
        entries.read_claims(path)


def test_a_file_that_was_cut_off_between_two_claims_is_refused(tmp_path):
    path = write_claims(tmp_path, claim_entry("po-one"), claim_entry("po-two"))
    path.write_text(path.read_text().removesuffix("...\n"))
    with pytest.raises(ClaimError, match="cut off"):
        entries.read_claims(path)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"test": "{a.score}"}, "needs a comparison"),
        ({"test": "{a.score} == {b.score}"}, "needs a comparison"),
        ({"kind": "magnitude", "number": 1.0}, "needs no comparison"),
        ({"kind": "magnitude", "test": "{a.score}"}, "a number of the paper"),
        ({"lesson": None}, "names no lesson"),
        ({"test": None, "judged": "word", "lesson": None}, "needs the `lesson`"),
        (
            {"discrepancy_source": {"who": "paper", "why": "a sentence"}},
            "discrepancy_source is for formulas",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_claim(**changes)


# The language --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "open('x') > 1",
        "__import__('os') > 1",
        "(1).real > 0",
        "().__class__ > 0",
        "[1][0] > 0",
        "x > 1",
        "hypervolume.__globals__ > 0",
        "hypervolume(points=[[1]], reference=0) > 0",
        "hypervolume(*[1]) > 0",
        "hypervolume(sparsity([[1]]), 0) > 0",
        "hypervolume(open, 0) > 0",
        "1 > 0 > -1",
        "1 if 1 else 2",
        "2 ** 9 > 1",
        "'a' > 'b'",
        "True > 0",
        "lambda: 1",
        "{a.score} > {a.score}",
        "exact(1) > 0",
        "1 in [1]",
        "metric_0 > 1",
        "1 >",
        "min(x for x in [1]) > 0",
        "(y := 1) > 0",
        "f'{1}' > 0",
        "{a.score} - metric_0 > 0",
        "{a} > ｍetric_0",
        "-" * 3_000 + "1 > 0",
        "(" * 240 + "1" + ")" * 240 + " > 0",
        "1" + "0" * 400 + " > 0",
        "1e400 > 0",
        "hypervolume([[1e400]], 0) > 0",
        "hypervolume({[1]}, 0) > 0",
        "hypervolume([{1: 2}], 0) > 0",
    ],
)
def test_nothing_but_the_small_language_is_read(text):
    with pytest.raises(ClaimError):
        expressions.parse_test(text, (), FUNCTIONS)


@given(st.text(max_size=40))
def test_whatever_is_written_is_read_or_refused(text):
    with contextlib.suppress(ClaimError):
        expressions.parse_test(text, {"quoted"}, FUNCTIONS)


@pytest.mark.parametrize("name", ["metric_0", "metric_1", "ｍetric_0"])
def test_a_quote_cannot_stand_in_for_a_measurement(name):
    with pytest.raises(ClaimError, match="stands for a metric in braces"):
        expressions.parse_test("{a} > 0.9", {name}, FUNCTIONS)


def test_formulas_of_the_papers_are_computed():
    assert evaluate("hypervolume([[1, 1, 0]], -1)").value == pytest.approx(4)
    assert evaluate("hypervolume([[0.98, 1, 0.5], [0.97, 1, 1]], -1)").value == pytest.approx(7.91)
    assert evaluate("structures()").value == 9 * 16**2 * 3**3
    assert evaluate("valid_structures()").value == 6 * 6_912 + 3 * 144
    assert evaluate("rl_dollars(1000)").value == pytest.approx(9.702)
    assert evaluate("training_entry([1, 3, 2], 2)").value == pytest.approx(0.5)


def test_the_published_evaluation_cannot_see_what_is_spent_below_a_dollar():
    assert (
        FUNCTIONS["cost_entry"](0.04, 0.01, 1)
        == FUNCTIONS["cost_entry"](0.04, 0.04, 1)
        == pytest.approx(0.04)
    )
    assert FUNCTIONS["cost_entry"](0.04, 0.01, 1e6) == pytest.approx(4)


# Intervals -----------------------------------------------------------------------------------------


@st.composite
def draw_estimate(draw, positive=False):
    value = draw(st.floats(0.1 if positive else -50, 50))
    below, above = draw(st.floats(0, 5)), draw(st.floats(0, 5))
    return Interval(
        value, max(value - below, value * 0.05) if positive else value - below, value + above
    )


def contains_its_value(estimate):
    slack = 1e-9 * (1 + abs(estimate.value))
    return estimate.ci_low - slack <= estimate.value <= estimate.ci_high + slack


@pytest.mark.parametrize("step", ["plus", "minus", "times", "over", "least", "most"])
@given(st.data())
def test_what_is_computed_of_two_estimates_holds_its_value(step, data):
    pair = [data.draw(draw_estimate(positive=step in ("times", "over"))) for _ in range(2)]
    assert contains_its_value(getattr(interval_arithmetic, step)(*pair))


@given(draw_estimate(), draw_estimate())
def test_a_difference_is_never_wider_than_the_sum_of_both(a, b):
    d = interval_arithmetic.minus(a, b)
    assert d.ci_high - d.ci_low <= (a.ci_high - a.ci_low) + (b.ci_high - b.ci_low) + 1e-9


@given(draw_estimate())
def test_a_size_holds_its_value_and_is_never_negative(a):
    estimate = interval_arithmetic.size(a)
    assert contains_its_value(estimate) and estimate.ci_low >= 0


@given(draw_estimate(), st.floats(-9, 9))
def test_a_known_number_shifts_and_stretches_an_interval(a, c):
    moved = interval_arithmetic.plus(a, interval_arithmetic.exact(c))
    assert moved.ci_high - moved.ci_low == pytest.approx(a.ci_high - a.ci_low, abs=1e-9)
    stretched = interval_arithmetic.times(interval_arithmetic.exact(c), a)
    assert stretched.ci_high - stretched.ci_low == pytest.approx(
        abs(c) * (a.ci_high - a.ci_low), abs=1e-9
    )


def test_a_difference_worked_by_hand():
    d = evaluate("{a.score} - {b.score}")  # 0.08 -+ 0.05, a triangle of 3, 4 and 5
    assert (d.value, d.ci_low, d.ci_high) == pytest.approx((0.08, 0.03, 0.13))


def test_what_a_single_run_tells_spreads_to_all_that_is_computed_of_it():
    for text in (
        "{once} + {a.score}",
        "max({once}, {a.score})",
        "{once} * {a.score}",
        "2 * {once}",
    ):
        assert not evaluate(text).known
    assert interval_arithmetic.is_exact(evaluate("exact({once})"))


def test_a_quotient_that_may_be_of_either_sign_has_no_interval():
    assert not interval_arithmetic.over(Interval(1, -1, 3), Interval(1, 0.5, 2)).known


# Metrics -------------------------------------------------------------------------------------------


def test_a_misspelled_key_is_refused_with_claim_key_and_the_nearest_one():
    with pytest.raises(ClaimError, match=r"claim po-some-claim.*'a\.scoer'.*'a\.score'"):
        judge_one_claim(test="{a.scoer} > {b.score}")


def test_a_key_that_a_small_run_left_out_is_no_mistake():
    assert judge_one_claim(test="{gone.far} > {b.score}").verdict == "untestable"


def test_other_digits_are_no_misspelling():
    lessons = {"05_x": {"arm.seed1.score": 1.0}}
    assert judge_one_claim(lessons, test="{arm.seed2.score} > 0").verdict == "untestable"


def test_who_decided_is_the_nearest_backend_above():
    measured = Metrics(MEASURED)
    assert (
        measured.find_backend("05_x", "s.score") == "scripted"
        and measured.find_backend("05_x", "a.score") == "lab"
    )


def test_a_metrics_file_that_is_broken_is_named(tmp_path):
    (tmp_path / "05_x.json").write_text("{")
    with pytest.raises(ClaimError, match="05_x"):
        metrics.read_metrics(tmp_path)


# Verdicts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "test, verdict",
    [
        ("{a.score} > {b.score}", "holds"),  # 0.08 [0.03, 0.13]
        ("{b.score} > {a.score}", "does not hold"),
        ("{b.score} < {a.score}", "holds"),
        ("{c.score} > {b.score}", "undecided"),  # 0.09 [-0.02, ...]
        ("{once} > {b.score}", "undecided"),
        ("exact({once}) < {b.score}", "holds"),
        ("{a.score} > 0.5", "holds"),
        ("{agrees} > 0.5", "untestable"),  # of no width
    ],
)
def test_a_direction_is_decided_by_its_interval(test, verdict):
    assert judge_one_claim(test=test).verdict == verdict


@pytest.mark.parametrize(
    "test, tolerance, verdict",
    [
        ("1 + 1 == 2.04", 0.05, "holds"),
        ("1 + 1 == 2.06", 0.05, "does not hold"),
        ("0.04655 == 0.0466", 0.00005, "holds"),  # half a unit of the last digit is within
        ("2 > 2", 0.0, "does not hold"),
        ("2 >= 2", 0.0, "holds"),
        ("2 <= 1", 0.0, "does not hold"),
        ("{once} == 0.5", 0.0, "holds"),  # a metric without an interval is a number
    ],
)
def test_a_formula_is_decided_by_its_tolerance(test, tolerance, verdict):
    assert judge_one_claim(kind="formula", test=test, tolerance=tolerance).verdict == verdict


def test_a_magnitude_is_compared_and_never_judged():
    v = judge_one_claim(kind="magnitude", test="100 * {a.score}", number=70.0)
    assert v.verdict == "compared" and v.test_results[0].lhs.value == pytest.approx(70)


@pytest.mark.parametrize(
    "verdicts_of_tests, need, verdict",
    [
        (["holds", "holds"], "all", "holds"),
        (["holds", "undecided"], "all", "undecided"),
        (["undecided", "untestable"], "all", "untestable"),
        (["holds", "untestable", "does not hold"], "all", "does not hold"),
        (["holds", "undecided", "does not hold"], 2, "undecided"),
        (["holds", "does not hold", "does not hold"], 1, "holds"),
        (["does not hold", "untestable"], 1, "untestable"),
    ],
)
def test_the_weakest_test_that_is_needed_decides(verdicts_of_tests, need, verdict):
    assert verdicts.combine_verdicts(verdicts_of_tests, need) == verdict


def test_a_lessons_own_verdict_is_taken_over():
    assert judge_one_claim(test=None, judged="word").verdict == "holds"
    with pytest.raises(ClaimError, match="perhaps"):
        judge_one_claim(test=None, judged="other")


def test_a_quantity_that_is_divided_by_zero_is_a_reason():
    lessons = {"05_x": {"zero": 0.0}}
    assert judge_one_claim(lessons, kind="formula", test="1 / {zero} > 0").verdict == "untestable"


@pytest.mark.parametrize(
    "ci_low, verdict", [(0.05, "holds"), (0.04, "not open"), (math.nan, "not open")]
)
def test_a_question_with_too_little_to_win_is_closed(ci_low, verdict):
    lessons = {
        "05_x": {**MEASURED["05_x"], "gate": 0.3, "gate_ci_low": ci_low, "gate_ci_high": 0.4}
    }
    assert judge_one_claim(lessons, gate="gate").verdict == verdict
    assert judge_one_claim(lessons, gate="gate").question == (
        "open" if verdict == "holds" else "not open"
    )
    assert (
        judge_one_claim(gate="gate.nobody.measured").verdict == "not open"
        and judge_one_claim().question == ""
    )


def test_gates_of_other_lessons_and_words_count_and_one_shut_gate_is_enough():
    open_ = {"gate": 0.3, "gate_ci_low": 0.2, "gate_ci_high": 0.4}
    lessons = {
        "05_x": MEASURED["05_x"],
        "03_y": open_ | {"gate.a.is": "open", "gate.b.is": "not open"},
    }
    assert judge_one_claim(lessons, gate=["03_y: gate", "03_y: gate.a.is"]).verdict == "holds"
    assert judge_one_claim(lessons, gate=["03_y: gate", "03_y: gate.b.is"]).verdict == "not open"


def test_what_a_control_does_too_is_not_shown():
    lessons = {"05_x": MEASURED["05_x"] | {"r": 0.3, "r_ci_low": 0.2, "r_ci_high": 0.4}}

    def judge(*tests):
        return judge_one_claim(lessons, control={"who": "random policies", "test": tests})

    v = judge("{r} > 0")
    assert v.verdict == "untestable" and "random policies do so, too" in v.reason
    assert judge("{r} > 1").verdict == judge("{r} > 0", "{r} > 1").verdict == "holds"


def test_in_the_committed_run_random_policies_end_episodes_before_jointly_trained_ones():
    by_id = {v.claim.id: v for v in verdicts.judge_claims(CLAIMS, LAPTOP)}
    v = by_id["po-shorter-episodes"]
    assert v.verdict == "untestable" and "drawn at random do so, too" in v.reason


def test_what_a_script_decides_is_not_testable_and_is_counted_as_decided_by_scripts():
    v = judge_one_claim(test="{s.score} > 0")
    assert (v.verdict, v.evidence, v.reason) == ("untestable", "scripted", verdicts.SCRIPT_DECIDES)
    assert judge_one_claim(stand_in=True).verdict == "untestable"
    assert judge_one_claim().evidence == "models"
    assert not any(
        v.evidence == "scripted" and v.verdict != "untestable"
        for v in verdicts.judge_claims(CLAIMS, LAPTOP)
    )


def test_a_failure_in_the_lab_says_how_long_the_training_was():
    lab = {"conductor.steps": 60, "gap": -0.3, "gap_ci_low": -0.4, "gap_ci_high": -0.2}
    changes = {"lesson": "04_conductor", "test": "{gap} > 0"}
    v = judge_one_claim({"04_conductor": lab}, **changes)
    assert v.verdict == "does not hold" and v.reason == "after a training of 60 steps"
    del lab["conductor.steps"]
    assert judge_one_claim({"04_conductor": lab}, **changes).reason == ""


def test_every_claim_of_the_lab_names_its_gate_where_its_lesson_measures_one():
    tested = [
        c
        for c in CLAIMS
        if c.kind == "direction" and c.evidence_level == "lab" and not c.untestable
    ]
    lessons_with_gate = {c.lesson for c in tested if c.gate}
    assert {
        "02_orchestration",
        "05_budgeted_routing",
        "06_tool_orchestration",
        "07_agent_configuration",
    } <= lessons_with_gate
    # Whether spending keeps or follows a budget is open whether or not choosing can win anything.
    about_choosing = [c for c in tested if "control." not in str(c.test)]
    assert all(
        c.gate
        for c in about_choosing
        if c.lesson in ("05_budgeted_routing", "06_tool_orchestration")
    )
    keys = [key for c in CLAIMS for key in c.list_gate_keys()]
    assert keys and all(key in LAPTOP.lessons[lesson] for lesson, key in keys)


def test_in_the_lab_of_lesson_6_claims_say_that_runs_are_weak():
    weak_lab_claims = [
        v
        for v in verdicts.judge_claims(CLAIMS, LAPTOP)
        if v.claim.evidence_level == "lab"
        and v.claim.list_metric_keys()
        and v.claim.list_metric_keys()[0][0][:2] == "06"
        and v.claim.kind == "direction"
    ]
    judged = [
        v
        for v in weak_lab_claims
        if v.verdict in ("holds", "does not hold", "undecided", "equivalent")
    ]
    assert judged and all("weak" in v.reason for v in judged)


# Shares won -----------------------------------------------------------------------------------------


def estimate_of(key, value, half_width):
    return {key: value, f"{key}_ci_low": value - half_width, f"{key}_ci_high": value + half_width}


def make_decision_maker(*questions, method="CoRL", evidence_level="synthetic"):
    if not questions:
        questions = (summary_figure.Question("05_x", "{above}", "{top}", "{above} - {router}"),)
    return summary_figure.DecisionMaker(evidence_level, method, "", questions)


def measure_share_won(value, half_width, decision_maker=None, **changes):
    measured = estimate_of("above", value, half_width) | {"top": 0.5}
    measured |= estimate_of("router", 0.3, 0.0) | changes
    decision_makers = [decision_maker or make_decision_maker()]
    return summary_figure.measure_shares_won(Metrics({"05_x": measured}), decision_makers)


def test_a_share_is_what_was_won_of_what_could_be():
    (share_won,) = measure_share_won(0.25, 0.1)
    share = share_won.share
    assert (share.value, share.ci_low, share.ci_high) == pytest.approx((0.5, 0.3, 0.7))
    assert share_won.router_share == pytest.approx(0.6)
    assert (share_won.sign, share_won.sign_against_router) == (1, 0)


@pytest.mark.parametrize("value", [0.45, 0.35])
def test_the_interval_of_a_share_is_that_of_the_gain(value):
    (share_won,) = measure_share_won(value, 0.1)
    assert share_won.share.ci_low == pytest.approx(2 * (value - 0.1))
    assert share_won.share.ci_high == pytest.approx(2 * (value + 0.1))


@pytest.mark.parametrize(
    "value, top, words",
    [
        (0.45, 0.5, {"above": "CoRL (0.90)", "above_router": "CoRL (0.90 against 0.60)"}),
        (0.05, 0.5, {"level": "CoRL (0.10)", "below_router": "CoRL (0.10 against 0.60)"}),
        (-0.25, 0.5, {"below": "CoRL (-0.50)", "below_router": "CoRL (-0.50 against 0.60)"}),
        (-0.001, 0.5, {"level": "CoRL (0.00)", "below_router": "CoRL (0.00 against 0.60)"}),
        (0.25, 0.0, {"not_open": "CoRL"}),
    ],
)
def test_every_loss_is_named_in_words(value, top, words):
    summary = summary_figure.summarize_by_level(measure_share_won(value, 0.1, top=top))
    assert summary == {f"synthetic.{word}": names for word, names in words.items()}


def test_what_no_run_has_measured_is_named_and_not_drawn():
    shares_won = summary_figure.measure_shares_won(Metrics({}), [make_decision_maker()])
    assert summary_figure.summarize_by_level(shares_won) == {"synthetic.missing": "CoRL"}
    figure = summary_figure.plot_shares_won(shares_won)
    assert figure.axes == [] and "Not in this run: CoRL." in figure._supxlabel.get_text()


def test_a_bar_that_passes_the_oracle_is_drawn_whole_and_named():
    shares_won = measure_share_won(0.45, 0.4)
    assert shares_won[0].share.ci_high == pytest.approx(1.7)
    figure = summary_figure.plot_shares_won(shares_won)
    note = figure._supxlabel.get_text().replace("\n", " ")
    assert "passes 1 is the interval of the gain" in note and note.endswith("known: CoRL.")
    assert figure.axes[0].get_xlim()[1] > 1.7
    within = summary_figure.plot_shares_won(measure_share_won(0.25, 0.1))
    assert "passes 1" not in within._supxlabel.get_text().replace("\n", " ")


def test_the_full_run_goes_before_the_run_of_the_lesson():
    full = estimate_of("full.above", 0.4, 0.1) | {"full.top": 0.8}
    (share_won,) = measure_share_won(0.25, 0.1, **full)
    # The full run lacks the router, so that all is of the lesson's own run.
    assert share_won.share.value == pytest.approx(0.5)
    (share_won,) = measure_share_won(0.25, 0.1, **full, **estimate_of("full.router", 0.1, 0.0))
    assert share_won.share.value == pytest.approx(0.5) and share_won.num_worlds == 1
    assert share_won.router_share == pytest.approx(0.1 / 0.8)


def test_worlds_count_with_their_mean_and_closed_ones_do_not_count():
    questions = [
        summary_figure.Question("05_x", f"{{{key}}}", "{top}", gate=f"gate.{key}")
        for key in ("above", "b", "c")
    ]
    measured = estimate_of("b", 0.5, 0.0) | estimate_of("c", 9.0, 0.0)
    for key, headroom in (("above", 0.3), ("b", 0.3), ("c", 0.0)):
        measured |= estimate_of(f"gate.{key}", headroom, 0.1)
    (share_won,) = measure_share_won(0.25, 0.1, make_decision_maker(*questions), **measured)
    share = share_won.share
    assert share_won.name == "CoRL, mean of 2 worlds"
    assert (share.value, share.ci_low, share.ci_high) == pytest.approx((0.75, 0.65, 0.85))


def test_a_difference_from_a_router_carries_the_uncertainty_of_both_estimates():
    (share_won,) = measure_share_won(0.5, 0.03, top=1.0, **estimate_of("router", 0.2, 0.04))
    difference = share_won.minus_router
    # Variances of independent estimates add: 0.03^2 + 0.04^2 = 0.05^2.
    assert (difference.value, difference.ci_low, difference.ci_high) == pytest.approx(
        (0.3, 0.25, 0.35)
    )


def test_every_system_of_the_papers_stands_among_the_small_models_and_none_is_left_out():
    shares_won = summary_figure.measure_shares_won(LAPTOP)
    assert len(shares_won) == len(summary_figure.DECISION_MAKERS)
    trained = [s for s in shares_won if s.decision_maker.evidence_level == "lab"]
    assert [s.decision_maker.name for s in trained] == [
        "KO", "TO", "RO", "MAESTRO", "CoRL, low budget", "CoRL, medium budget", "CoRL, high budget",
        "ToolOrchestra", "ARC",
    ]  # fmt: skip
    missing = [s.name for s in shares_won if s.state == summary_figure.MISSING]
    assert set(missing) <= {"ARC"}
    figure = summary_figure.plot_shares_won(shares_won)
    drawn = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    assert len(figure.axes) == 3 and [" ".join(name.split()) for name in drawn] == [
        s.name for s in shares_won if s.state == summary_figure.OPEN
    ]
    assert figure.axes[-1].get_xlabel() == summary_figure.AXIS_LABEL
    assert len(figure.draw_narrow().axes) == 3


def test_the_title_counts_both_comparisons_and_the_cascade_in_neither():
    learned = make_decision_maker()
    cascade = make_decision_maker(method=summary_figure.CASCADE)
    measured = estimate_of("above", 0.25, 0.1) | {"top": 0.5} | estimate_of("router", 0.1, 0.0)
    shares_won = summary_figure.measure_shares_won(Metrics({"05_x": measured}), [learned, cascade])
    counted = summary_figure.count_by_level(shares_won)
    assert [counted[f"synthetic.{key}"] for key in ("open", "above", "with_router")] == [1, 1, 1]
    assert counted["synthetic.above_router"] == 1 and counted["lab.open"] == 0
    assert summary_figure.title_shares_won(shares_won) == (
        "Beat the best single choice: synthetic 1 of 1. Beat a simple router: synthetic 1 of 1"
    )


def test_what_cannot_fail_or_stands_at_the_wrong_level_of_evidence_is_refused():
    with pytest.raises(ValueError, match="cannot fail"):
        make_claim(test="2 > 1")
    with pytest.raises(ValueError, match="evidence_level is synthetic"):
        make_claim(test="{glass.gain} > 0")
    assert make_claim(kind="formula", test="1 + 1 == 2").is_arithmetic
    assert not make_claim(kind="formula", test="{once} == 0.5").is_arithmetic


def test_the_smallest_effect_is_that_of_80_percent_power():
    result = judge_one_claim(test="{a.score} - {b.score} > 0").test_results[0]  # half-width 0.05
    assert result.mde == pytest.approx(0.05 * (1.95996 + 0.84162) / 1.95996, abs=1e-4)


@pytest.mark.parametrize("gained, nothing", [(0.5, False), (0.0, True)])
def test_a_lab_whose_training_gained_nothing_says_so(gained, nothing):
    ends = {"": 0.0, "_ci_low": -0.1, "_ci_high": 0.1}
    lab = {f"full.trained.gain{end}": gained + shift for end, shift in ends.items()}
    lab |= {f"full.steer.cost{end}": 1 + shift for end, shift in ends.items()}
    v = judge_one_claim(
        {"06_tool_orchestration": lab},
        lesson="06_tool_orchestration",
        test="{full.steer.cost} > 0",
    )
    assert v.verdict == "holds" and "weak" in v.reason and ("gained" in v.reason) == nothing


# Chance --------------------------------------------------------------------------------------------


def make_verdict(name, value, half_width):
    result = verdicts.TestResult(
        "x > y", "holds", difference=Interval(value, value - half_width, value + half_width)
    )
    return verdicts.Verdict(make_claim(id=f"po-{name}"), "holds", (result,), (), "")


def test_an_interval_that_ends_at_zero_has_the_probability_of_one_side():
    assert multiple_testing.compute_p_value(make_verdict("a", 1.0, 1.0)) == pytest.approx(0.025)


def test_holm_by_hand():
    """p = 0.025 (half-width = value), and far below. With two: 0.0125 is asked of the clearest, then 0.025."""
    clear, edge = make_verdict("clear", 1.0, 0.2), make_verdict("edge", 1.0, 1.0 - 1e-9)
    assert multiple_testing.select_survivors([edge]) == {"po-edge"}
    assert multiple_testing.select_survivors([clear, edge]) == {"po-clear", "po-edge"}
    weak = [make_verdict(f"w{n}", 1.0, 0.95) for n in range(3)]
    assert multiple_testing.select_survivors([clear, *weak]) == {"po-clear"}
    assert multiple_testing.expected_by_chance([clear, *weak]) == pytest.approx(4 * 0.025)


def test_a_clear_difference_does_not_survive_where_its_question_is_not_open():
    clear = make_verdict("clear", 1.0, 0.2)
    not_open = dataclasses.replace(make_verdict("closed", 1.0, 0.2), verdict="not open")
    assert multiple_testing.select_survivors([clear, not_open]) == {"po-clear"}


def test_of_several_tests_the_least_clear_one_counts():
    strong, weak = (make_verdict("a", 1.0, half).test_results[0] for half in (0.1, 0.9))
    both = verdicts.Verdict(make_claim(), "holds", (strong, weak), (), "")
    assert multiple_testing.compute_p_value(both) == pytest.approx(
        multiple_testing.compute_p_value(make_verdict("b", 1.0, 0.9))
    )
    either = verdicts.Verdict(
        make_claim(test=["{a.score} > 0", "{b.score} > 0"], need=1), "holds", (strong, weak), (), ""
    )
    assert multiple_testing.compute_p_value(either) == pytest.approx(
        2 * multiple_testing.compute_p_value(make_verdict("b", 1.0, 0.1))
    )


# What is shown -------------------------------------------------------------------------------------


def test_a_ring_is_drawn_around_what_holds_with_all_tested_at_once_and_nothing_else():
    claim_verdicts = verdicts.judge_claims(CLAIMS, LAPTOP)
    (axes,) = figures.plot_clearness(claim_verdicts).axes
    lines = [line for line in axes.get_lines() if line.get_marker() == "o"]
    rings = [line.get_xydata().tolist() for line in lines if line.get_color() == "none"]
    blue = plots.text_colour(plots.colour("holds"))
    holding = [line.get_xydata().tolist() for line in lines if line.get_color() == blue]
    assert len(rings) == len(multiple_testing.select_survivors(claim_verdicts)) > 0
    assert all(place in holding for place in rings)


def drop_intervals(keep_intervals):
    """Metrics as of a run that was too small: no interval anywhere, or nothing at all."""
    if not keep_intervals:
        return Metrics({lesson: {} for lesson in LAPTOP.lessons})
    ends = ("_ci_low", "_ci_high")
    lessons = {
        name: {k: v for k, v in values.items() if not k.endswith(ends)}
        for name, values in LAPTOP.lessons.items()
    }
    return Metrics(lessons)


@pytest.mark.parametrize(
    "measured",
    [LAPTOP, drop_intervals(True), drop_intervals(False), Metrics({})],
    ids=["laptop", "bare", "none", "new"],
)
def test_every_run_however_small_gives_a_board_tables_and_figures(measured):
    claim_verdicts = verdicts.judge_claims(CLAIMS, measured)
    html, plain = claim_cards.render_claim_cards(claim_verdicts)
    assert accessibility_check.problems(html) == [] and len(plain.splitlines()) == len(CLAIMS)
    for name in (
        "tabulate_directions_by_level",
        "tabulate_directions",
        "tabulate_failed_formulas",
        "tabulate_untestable",
        "tabulate_magnitudes",
        "tabulate_multiple_testing",
    ):
        table = getattr(tables, name)(claim_verdicts)
        assert len(table) and len(table.columns), name
    assert tables.describe_missing_intervals(claim_verdicts) and counts.state_conclusion(
        claim_verdicts
    )
    assert summary_figure.plot_shares_won(summary_figure.measure_shares_won(measured))
    assert figures.plot_verdict_counts(claim_verdicts).axes
    (axes,) = figures.plot_directions_by_level(claim_verdicts).axes
    assert len(axes.get_yticklabels()) == 3  # levels of evidence
    assert figures.plot_clearness(claim_verdicts).axes
    assert not any(
        isinstance(v, float) and not math.isfinite(v)
        for v in counts.collect_metrics(claim_verdicts).values()
    )


def test_counts_by_evidence_add_up_and_only_claims_without_a_test_are_decided_by_nothing():
    claim_verdicts = verdicts.judge_claims(CLAIMS, LAPTOP)
    table = counts.count_by_evidence(claim_verdicts)
    judged = [c for c in CLAIMS if c.kind != "magnitude"]
    cells = [n for kinds in table.values() for row in kinds.values() for n in row.values()]
    assert sum(cells) == len(judged)
    for paper, kinds in table.items():
        without_test = sum(bool(c.untestable) and c.paper == paper for c in judged)
        assert sum(kinds["none"].values()) == kinds["none"]["untestable"] == without_test
        assert sum(kinds["scripted"].values()) == kinds["scripted"]["untestable"]


def test_losses_are_the_directions_that_models_or_recorded_outcomes_refute():
    fails, holds = judge_one_claim(test="{b.score} > {a.score}"), judge_one_claim()
    formula = judge_one_claim(kind="formula", test="1 == 2")
    assert counts.select_losses([fails, holds, formula]) == [fails]
    flat_metrics = counts.collect_metrics([fails, holds, formula])
    assert flat_metrics["losses.po"] == fails.claim.statement
    assert not any(key.startswith("losses.") for key in counts.collect_metrics([holds]))


def test_counts_add_up():
    claim_verdicts = verdicts.judge_claims(CLAIMS, LAPTOP)
    flat_metrics = counts.collect_metrics(claim_verdicts)
    keys = [slug(verdict) for verdict in verdicts.VERDICT_LABELS]
    by_verdict = sum(flat_metrics[f"claims.{key}"] for key in keys)
    by_paper = sum(
        flat_metrics[f"claims.{paper}.{key}"] for paper in entries.PAPERS for key in keys
    )
    by_kind = sum(flat_metrics[f"claims.{kind}.{key}"] for kind in entries.KINDS for key in keys)
    assert by_verdict == by_paper == by_kind == flat_metrics["claims.total"] == len(CLAIMS)
    assert set(counts.KEY_METRICS) <= set(flat_metrics)
    assert all(flat_metrics[f"claims.by_id.{c.id}"] in verdicts.VERDICT_LABELS for c in CLAIMS)


def test_every_claim_is_a_card_that_can_be_filtered_and_is_shown_without_scripts():
    markup, _ = claim_cards.render_claim_cards(verdicts.judge_claims(CLAIMS, LAPTOP))
    assert markup.count("<li id=") == len(CLAIMS)
    assert "<form hidden" in markup and 'aria-live="polite"' in markup
    assert not any(f"{tag} hidden" in markup for tag in ("<li", "<ul"))


def test_what_a_synthetic_environment_decided_says_so_and_is_counted_apart():
    synthetic, lab = judge_one_claim(evidence_level="synthetic"), judge_one_claim()
    assert (
        "tested in a synthetic environment" in claim_cards.render_claim_cards([synthetic])[0]
        and "tested in small" in claim_cards.render_claim_cards([lab])[0]
    )
    flat_metrics = counts.collect_metrics(
        [synthetic, lab, judge_one_claim(evidence_level="synthetic", test="{b.score} > {a.score}")]
    )
    assert [
        flat_metrics[f"claims.evidence_level.{key}"]
        for key in ("synthetic.holds", "synthetic.does_not_hold", "lab.holds")
    ] == [
        1,
        1,
        1,
    ]
    with pytest.raises(ValueError, match="evidence_level"):
        make_claim(evidence_level="moon")


def test_directions_are_decided_in_the_synthetic_environments_of_tools_and_of_configurations():
    claim_verdicts = [
        v for v in verdicts.judge_claims(CLAIMS, LAPTOP) if v.claim.evidence_level == "synthetic"
    ]
    for paper in ("toolorchestra", "arc"):
        decided = [
            v
            for v in claim_verdicts
            if v.claim.paper == paper and v.verdict in ("holds", "does not hold")
        ]
        assert len(decided) >= 5, paper


def test_a_card_escapes_what_the_file_says():
    v = judge_one_claim(statement="One <b>is</b> & stays.", place="Table <1>")
    assert (
        "<b>is" not in claim_cards.render_claim_cards([v])[0]
        and "One &lt;b&gt;is" in claim_cards.render_claim_cards([v])[0]
    )
