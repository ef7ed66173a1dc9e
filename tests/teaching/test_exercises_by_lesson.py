"""Exercises: every solution is accepted, every mistake and every silence is not, and a reader hears what helps."""

import ast
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from lib.policy_zoo import policies
from lib.policy_zoo.recipes import SINGLE
from lib.scoreboard.verdicts import combine_verdicts
from lib.teaching import exercises
from lib.teaching.exercises_by_lesson import UNANSWERED, UNWRITTEN, Exercise, Exercises
from tests.orchestration import zoo as tiny

LESSONS = exercises.load()
EVERY = [(lesson, each) for lesson in LESSONS.values() for each in lesson]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Path:
    """Three policies that do one thing each, where lesson 02 looks for the trained ones."""
    root = tmp_path_factory.mktemp("zoo")
    for name in SINGLE:
        policy = tiny.always("education", tiny.LEANING["education"][name][0], name)
        for seed in range(tiny.SMOKE.zoo.seeds):
            policies.save(policy, root / "education" / name, f"seed-{seed}")
    yield root
    shutil.rmtree(root)


@pytest.fixture
def said(capsys, zoo, request):
    """What a check says to an answer."""

    def ask(lesson: Exercises, exercise: Exercise, answer) -> str:
        lesson.check(
            exercise.id, answer, **({"settings": tiny.SMOKE, "zoo": zoo} if exercise.needs else {})
        )
        return capsys.readouterr().out

    return ask


@pytest.mark.parametrize("lesson, exercise", EVERY, ids=[each.id for _, each in EVERY])
def test_the_worked_solution_is_accepted_and_the_usual_mistake_and_silence_are_not(
    lesson, exercise, said
):
    assert said(lesson, exercise, exercise.answer) == "Right.\n"
    wrong = said(lesson, exercise, exercise.wrong)
    assert wrong.startswith("Not yet") and (exercise.nudge or exercise.hint) in wrong
    assert said(lesson, exercise, None) == UNANSWERED + "\n"


def answer_with(value):
    """A function that answers anything with the same value."""
    return lambda *_, **__: value


BAD_ANSWERS = [answer_with(value) for value in (np.zeros(0), np.zeros((1, 1)), -1, "none", None)]
WRITTEN = [each for _, each in EVERY if callable(each.answer) and not each.needs]


@pytest.mark.parametrize("exercise", WRITTEN, ids=[each.id for each in WRITTEN])
def test_no_message_counts_one_of_several(exercise):
    messages = []
    for answer in [exercise.wrong, *BAD_ANSWERS]:
        try:
            verdict = exercise.verdict(answer)
        except Exception:  # the reader hears of it in the words of Python
            continue
        assert verdict is not True
        messages.append(str(verdict))
    assert messages  # the usual mistake, at least
    for message in messages:
        # "objective 1 was" is no plural.
        assert not re.search(r"(?<![\d.])1 (?!is|was|has)[a-z]+s\b", message), message


def test_numbers_near_enough_are_right_and_others_are_not(capsys):
    lesson = Exercises(
        Exercise("99.1", "easy", 3, "?", "six by seven", 42.0, "6 x 7", 41, tolerance=0.5)
    )
    for answer, word in (
        (42.4, "Right"),
        (42.6, "Not yet"),
        ([42.0, 42.0], "Not yet"),
        (float("nan"), "Not yet"),
    ):
        lesson.check("99.1", answer)
        assert capsys.readouterr().out.startswith(word), answer


def test_a_word_is_right_whatever_its_case_and_is_the_one_that_the_scoreboard_says(capsys):
    assert LESSONS["10"]["10.2"].answer == combine_verdicts(
        ["holds", "undecided", "does not hold"], need=2
    )
    for answer, word in (("Undecided ", "Right"), ("holds", "Not yet")):
        LESSONS["10"].check("10.2", answer)
        assert capsys.readouterr().out.startswith(word)


def test_an_unknown_exercise_is_named_with_those_there_are():
    with pytest.raises(KeyError, match=r"'05\.9'.*05\.1"):
        LESSONS["05"].check("05.9", 1)


def test_two_exercises_with_one_id_are_refused():
    one = Exercise("99.1", "easy", 3, "?", "h", 1, "w", 2)
    with pytest.raises(ValueError, match="share an id"):
        Exercises(one, one)


@pytest.mark.parametrize("lesson, exercise", EVERY, ids=[each.id for _, each in EVERY])
def test_an_answer_of_another_kind_is_told_so_and_crashes_nothing(lesson, exercise, said):
    for nonsense in ("many", [], lambda *_, **__: None):
        text = said(lesson, exercise, nonsense)
        assert exercise.hint in text or "Nudge: " in text


@pytest.mark.parametrize("number", LESSONS)
def test_every_lesson_has_an_easy_a_medium_and_a_hard_exercise_in_order(number):
    found = list(LESSONS[number])
    assert [each.id for each in found] == [f"{number}.{i + 1}" for i in range(len(found))]
    levels = [each.level for each in found]
    assert set(levels) == {"easy", "medium", "hard"} and levels == sorted(
        levels, key=("easy", "medium", "hard").index
    )
    assert any(each.important for each in found) and found[-1].judge is not None


@pytest.mark.parametrize("lesson, exercise", EVERY, ids=[each.id for _, each in EVERY])
def test_a_nudge_comes_before_the_hint_and_neither_is_the_solution(lesson, exercise):
    assert exercise.nudge and exercise.nudge != exercise.hint
    if isinstance(exercise.answer, int | float) and exercise.answer not in (0, 1):
        help_text = f"{exercise.nudge} {exercise.hint}"
        numbers = {float(text) for text in re.findall(r"\d+\.?\d*", help_text)}
        assert all(abs(number - exercise.answer) > exercise.tolerance for number in numbers)


def test_what_the_judge_found_is_said(capsys):
    lesson = Exercises(
        Exercise(
            "99.1", "easy", 3, "?", "think", 1, "so", 2, judge=lambda answer: f"{answer} is odd"
        )
    )
    lesson.check("99.1", 7)
    assert capsys.readouterr().out == "Not yet: 7 is odd. Hint: think.\n"


def test_help_comes_in_steps_and_the_solution_last_of_all(capsys):
    lesson = Exercises(
        Exercise("02.1", "easy", 3, "?", "six by seven", 42.0, "6 x 7", 41, nudge="multiply")
    )
    texts = []
    for answer in (1, 2, 3, 42, 4):
        lesson.check("02.1", answer)
        texts.append(capsys.readouterr().out)
    assert texts[0] == "Not yet. Nudge: multiply.\n"
    assert texts[1] == "Not yet. Hint: six by seven.\n"
    assert "Hint: six by seven. Solution: `python -m lib exercises --solutions 02`" in texts[2]
    assert texts[3] == "Right.\n" and "Nudge" in texts[4]  # from the beginning


def test_without_a_nudge_the_hint_comes_first(capsys):
    lesson = Exercises(Exercise("99.1", "easy", 3, "?", "think", 1, "so", 2))
    lesson.check("99.1", 7)
    assert capsys.readouterr().out == "Not yet. Hint: think.\n"


STUBS = [(lesson, each) for lesson, each in EVERY if "def " in each.start]


@pytest.mark.parametrize("lesson, exercise", STUBS, ids=[each.id for _, each in STUBS])
def test_a_stub_has_types_and_a_docstring_and_is_not_answered_before_it_is_written(
    lesson, exercise, said
):
    tree = ast.parse(exercise.start)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions and all(ast.get_docstring(function) for function in functions)
    for function in functions:
        arguments = [each for each in function.args.args if each.arg != "self"]
        assert function.returns and all(each.annotation for each in arguments)
    names: dict = {}
    exec(exercise.start, names)
    for _ in range(4):  # running it again is no miss
        assert said(lesson, exercise, names["answer"]) == UNWRITTEN + "\n"


def test_a_rendered_page_does_not_say_that_nobody_has_answered(monkeypatch, capsys):
    monkeypatch.setenv("BENCH_RUN", "1")
    LESSONS["02"].check("02.1", None)
    assert capsys.readouterr().out == ""
    LESSONS["02"].check("02.1", LESSONS["02"]["02.1"].answer)
    assert capsys.readouterr().out == "Right.\n"
