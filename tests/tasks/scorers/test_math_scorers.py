"""Scorers of numbers and expressions."""

import json
import math
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lib.tasks.scorers import ScorerError, make_scorer
from lib.tasks.scorers.math_scorers import MathScorer, NumericScorer
from tests.tasks.scorers.items import make_item

MATH = MathScorer()
NUMERIC = NumericScorer()
DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def read_rows(name: str) -> list[dict[str, str]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there; it is no part of the repository")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_whole_numbers_are_equal_in_every_digit_unless_a_tolerance_is_given():
    item = make_item("12345678")
    assert NUMERIC.score_reply(item, "12345679").value == 0
    assert NumericScorer(1e-6).score_reply(item, "12345679").value == 1
    assert NUMERIC.score_reply(make_item("12345678.0"), "12345678.1").value == 1


@given(st.floats(1e-3, 1e6), st.floats(0, 0.1))
def test_a_tolerance_is_relative(number, difference):
    item = make_item(repr(number))
    scorer = make_scorer("numeric:0.05")
    if abs(difference - 0.05) > 1e-9:
        expected = float(difference < 0.05)
        for sign in (-1, 1):
            assert (
                scorer.score_reply(item, repr(number * (1 + sign * difference))).value == expected
            )


@given(
    st.integers(-(10**12), 10**12),
    st.sampled_from(["{}", "The answer is {}.", r"\boxed{{{}}}", "#### {}", "<answer>{}</answer>"]),
)
def test_a_number_is_right_against_itself_and_wrong_against_the_next(number, form):
    item = make_item(str(number))
    assert NUMERIC.score_reply(item, form.format(number)).value == 1
    assert NUMERIC.score_reply(item, form.format(f"{number:,}")).value == 1
    assert NUMERIC.score_reply(item, form.format(number + 1)).value == 0
    if number:
        assert NUMERIC.score_reply(item, form.format(-number)).value == 0


@given(st.text())
def test_no_reply_crashes_the_scorers(reply):
    assert NUMERIC.score_reply(make_item("5"), reply).value in (0, 1)


@pytest.mark.parametrize("reference", ["twelve", "", "2^{10}", "x + 1"])
def test_a_reference_that_is_no_number_is_refused(reference):
    with pytest.raises(
        ScorerError, match="item-1.*is no number; score such items with math or exact"
    ):
        NUMERIC.score_reply(make_item(reference), "5")


def test_worked_answers_of_gsm8k_are_right_and_those_of_other_questions_wrong():
    answers = [row["answer"] for row in read_rows("gsm8k/test.jsonl")]
    items = [make_item(answer.split("####")[1].strip()) for answer in answers]
    assert all(score.value == 1 for score in NUMERIC.score(items, answers))
    shifted = answers[1:] + answers[:1]
    for item, answer, score in zip(items, shifted, NUMERIC.score(items, shifted), strict=True):
        assert score.value == float(item.reference == answer.split("####")[1].strip())


def test_solutions_of_math_are_right():
    rows = read_rows("math500/test.jsonl")
    items = [make_item(row["answer"]) for row in rows]
    assert all(score.value == 1 for score in MATH.score(items, [row["solution"] for row in rows]))
    phrases = [f"We had 17 before.\nThe answer is ${row['answer']}$." for row in rows]
    assert all(score.value == 1 for score in MATH.score(items, phrases))


@hypothesis_settings(max_examples=40)
@given(st.integers(-50, 50), st.integers(1, 50))
def test_fractions_are_equal_in_every_form(numerator, denominator):
    item = make_item(rf"\frac{{{numerator}}}{{{denominator}}}")
    forms = [
        f"{numerator}/{denominator}",
        rf"\boxed{{\frac{{{3 * numerator}}}{{{3 * denominator}}}}}",
    ]
    for reply in forms:
        assert MATH.score_reply(item, reply).value == 1
    assert (
        MATH.score_reply(item, rf"\boxed{{\frac{{{numerator + 1}}}{{{denominator}}}}}").value == 0
    )


@given(st.text(min_size=1).filter(str.strip))
def test_the_reference_itself_is_right(reference):
    assert MATH.score_reply(make_item(reference), f"<answer>{reference}</answer>").value in (0, 1)
    if reference.isalnum():
        assert MATH.score_reply(make_item(reference), f"<answer>{reference}</answer>").value == 1


@hypothesis_settings(max_examples=60)
@given(st.text(r"x12+-*/^_{}()[]\fracsqrt$,. ", min_size=1, max_size=40))
def test_broken_latex_is_wrong_or_lost_and_never_crashes(latex):
    score = MATH.score_reply(make_item("123456789"), rf"\boxed{{{latex}}}")
    assert score.value in (0, 1) or score.failure


def test_a_set_is_no_interval():
    assert MATH.score_reply(make_item("(1, 2)"), r"\boxed{\{1, 2\}}").value == 0
    assert MATH.score_reply(make_item(r"\{1, 2\}"), r"\boxed{[1, 2]}").value == 0
    assert MATH.score_reply(make_item(r"\{1, 2\}"), r"\boxed{1, 2}").value == 1


def test_a_comparison_that_does_not_end_is_lost_and_the_next_one_is_not():
    scorer = MathScorer(seconds=0.5)
    endless = r"\boxed{(x+1)^{9999}(y+2)^{8888}}"
    right, lost, right_again = scorer.score(
        [make_item("0.5"), make_item("5"), make_item("0.5")], ["1/2", endless, "1/2"]
    )
    assert right.value == right_again.value == 1
    assert math.isnan(lost.value) and lost.failure.startswith(
        "timeout: math-verify did not compare '(x+1)^"
    )


@pytest.mark.parametrize("tower", [r"9^{9^{9^{9}}}", "10^{9999999}", "1000000!", "99!!"])
def test_numbers_that_nobody_can_write_are_not_computed(tower):
    assert MATH.score_reply(make_item("5"), rf"\boxed{{{tower}}}").value == 0


def test_a_reply_is_never_evaluated_as_python(tmp_path):
    path = tmp_path / "written"
    for code in (f"__import__('pathlib').Path('{path}').touch()", f"open('{path}', 'w')"):
        MATH.score_reply(make_item("5"), rf"\boxed{{{code}}}")
        MATH.score_reply(make_item("5"), f"The answer is {code}")
    assert not path.exists()


def test_several_threads_may_score_at_once():
    values = []

    def score_some():
        values.extend(
            MATH.score_reply(make_item("1/2"), f"\\boxed{{{n}/{2 * n}}}").value
            for n in range(1, 20)
        )

    threads = [threading.Thread(target=score_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1.0] * 76


def test_the_process_ends_with_its_scorer():
    scorer = MathScorer()
    scorer.score_reply(make_item("1/2"), "0.5")
    process = scorer.process._process
    assert process.poll() is None
    del scorer
    assert process.wait(timeout=10) is not None
