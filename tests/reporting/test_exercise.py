"""Checks of exercises say what a reader needs to hear."""

from lib.reporting.exercise import check


def said(capsys, answer):
    check(answer, lambda n: n == 42, "six by seven")
    return capsys.readouterr().out


def test_no_answer_is_no_mistake(capsys):
    assert "Not answered yet" in said(capsys, None)


def test_a_right_answer_is_told_so(capsys):
    assert said(capsys, 42) == "Right.\n"


def test_a_wrong_answer_gets_the_hint(capsys):
    assert said(capsys, 41) == "Not yet. Hint: six by seven.\n"


def test_an_answer_of_the_wrong_kind_is_no_crash(capsys):
    check("many", lambda n: n > 3, "a number")
    assert "Hint: a number" in capsys.readouterr().out
