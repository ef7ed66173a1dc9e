"""Quizzes: three questions in the middle of a lesson, each wrong choice with its reason, and reading at its end."""

from collections import Counter
from pathlib import Path

import nbformat
import pytest

from lib.reports.execute import strip_outputs
from lib.teaching import exercises, quizzes, readings
from lib.teaching.quizzes_by_lesson import LETTERS, Quiz, QuizQuestion

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))  # an appendix has none
QUIZZES = quizzes.load()
QUESTION = QuizQuestion("2 + 2?", ("3", "4", "5"), "b", {"a": "One less.", "c": "One more."})


def test_every_lesson_has_a_quiz_of_three_questions_and_two_to_four_references():
    lessons = {path.stem[:2] for path in NOTEBOOKS}
    assert set(QUIZZES) == set(readings.READINGS) == lessons
    assert all(len(quiz.questions) == 3 for quiz in QUIZZES.values())
    assert all(2 <= len(references) <= 4 for references in readings.READINGS.values())
    texts = Counter(question.text for quiz in QUIZZES.values() for question in quiz.questions)
    assert texts.most_common(1)[0][1] == 1


@pytest.mark.parametrize("number", QUIZZES)
def test_choices_differ_reasons_are_sentences_and_no_letter_is_right_twice(number):
    questions = QUIZZES[number].questions
    assert {question.right for question in questions} == set(LETTERS)
    for question in questions:
        assert len(set(question.choices)) == 3
        assert all(
            reason[0].isupper() and reason[-1] == "." for reason in question.why_not.values()
        )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_its_quiz_in_the_middle_and_its_reading_before_the_exercises(path):
    number = path.stem[:2]
    cells = strip_outputs.read(path).cells
    tags = ["".join(cell.metadata.get("tags", [])) for cell in cells]
    first = tags.index(quizzes.TAG)
    written = [(cell.cell_type, cell.source) for cell in cells[first : first + 2]]
    made = quizzes.make_cells(number, QUIZZES[number])
    assert written == [(cell.cell_type, cell.source) for cell in made]
    assert tags.count(quizzes.TAG) == 2
    assert cells[first + 2].source.startswith(QUIZZES[number].before or "## ")
    lesson_length = tags.index(readings.TAG)
    assert 0.3 < first / lesson_length < 0.7
    assert cells[lesson_length].source == readings.make_cell(number).source
    assert tags.count(readings.TAG) == 1 and tags[lesson_length + 1] == exercises.TAG


def test_a_right_choice_is_right_and_a_wrong_one_gets_its_reason(capsys):
    quiz = Quiz(QUESTION)
    for letter, text in (
        ("b", "1: right.\n"),
        (" B", "1: right.\n"),
        ("a", "1: not a. One less.\n"),
        ("c", "1: not c. One more.\n"),
        ("d", "1: choose one of a, b, c, in quotes.\n"),
    ):
        quiz.answer(1, letter)
        assert capsys.readouterr().out == text
    for number in (0, 2):
        with pytest.raises(ValueError, match=f"no question {number}; there are 1 to 1"):
            quiz.answer(number, "a")


def test_an_open_question_is_mentioned_to_a_reader_and_not_on_a_page(monkeypatch, capsys):
    Quiz(QUESTION).answer(1, None)
    assert "1: not answered yet" in capsys.readouterr().out
    monkeypatch.setenv("BENCH_RUN", "1")
    Quiz(QUESTION).answer(1, None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "right, why_not, message",
    [
        ("d", {"a": "No.", "b": "No."}, "must be right"),
        ("a", {"b": "No."}, "needs a reason"),
        ("a", {"a": "No.", "b": "No.", "c": "No."}, "needs a reason"),
    ],
)
def test_a_question_without_its_right_choice_or_a_reason_is_refused(right, why_not, message):
    with pytest.raises(ValueError, match=message):
        QuizQuestion("2 + 2?", ("4", "3", "5"), right, why_not)


def make_lesson(*texts: str) -> list[nbformat.NotebookNode]:
    return [nbformat.v4.new_markdown_cell(text) for text in texts]


def test_a_quiz_is_written_before_its_heading_and_writing_it_again_changes_nothing():
    quiz = Quiz(QUESTION, before="## Two")
    cells = make_lesson("# Lesson", "## One", "More of one.\n\n## Two\n\nAll of two.", "## Three")
    once = quizzes.insert_quiz(cells, "05", quiz)
    sources = [cell.source for cell in once]
    assert sources[:3] == ["# Lesson", "## One", "More of one."]
    assert "2 + 2?" in sources[3] and "quiz(1, None)" in sources[4]
    assert sources[5:] == ["## Two\n\nAll of two.", "## Three"]
    assert [cell.source for cell in quizzes.insert_quiz(once, "05", quiz)] == sources


def test_without_a_heading_of_its_own_a_quiz_stands_before_the_section_nearest_the_middle():
    cells = make_lesson("# Lesson", "## One" + "x" * 90, "y" * 80, "## Two", "z" * 200)
    once = quizzes.insert_quiz(cells, "05", Quiz(QUESTION))
    assert [cell.source for cell in once][5] == "## Two"
    again = quizzes.insert_quiz(once, "05", Quiz(QUESTION))
    assert [cell.source for cell in again] == [cell.source for cell in once]


def test_a_heading_that_is_gone_is_named():
    with pytest.raises(ValueError, match="lesson 05 has no heading '## Two'"):
        quizzes.insert_quiz(make_lesson("# A", "## One"), "05", Quiz(QUESTION, before="## Two"))
