"""The course adds up: minutes, exercises, every lesson once, and nothing before what it needs."""

import os
import re
import subprocess
import sys

import nbformat
import pytest
from bs4 import BeautifulSoup

from lib.config import ROOT
from lib.teaching import course, exercises

SESSIONS = list(enumerate(course.SESSIONS, 1))
HOMEWORK = {
    session.homework.lesson: number for number, session in SESSIONS if session.homework is not None
}
EXERCISE_MINUTES = {
    exercise.id: exercise.minutes for lesson in exercises.load().values() for exercise in lesson
}
_STUB = re.compile(r"\*\*Exercise: [^*]+\*\* \*\([^)]*?(\d+) minutes\)\*")


def stub_minutes(lesson: str) -> list[int]:
    """How long each function takes that the lesson leaves to be written."""
    notebook = nbformat.read(
        ROOT / f"notebooks/{course.lesson_names()[lesson]}.ipynb", as_version=4
    )
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return [int(minutes) for text in texts for minutes in _STUB.findall(text)]


def test_there_are_eight_sessions_and_every_lesson_is_in_one_or_is_homework():
    in_class = [lesson for session in course.SESSIONS for lesson in session.lessons]
    numbers = sorted(path.stem[:2] for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    assert len(course.SESSIONS) == 8
    assert sorted([*in_class, *HOMEWORK]) == numbers == sorted(course.lesson_names())
    assert sorted(HOMEWORK) == ["03", "09", "10"]


@pytest.mark.parametrize(("number", "session"), SESSIONS)
def test_its_minutes_sum_to_90_and_its_exercises_fit_beside_one_stub(number, session):
    assert session.minutes.total == course.SESSION_MINUTES == 90 and session.minutes.slides == 20
    assert {id[:2] for id in session.exercises} == set(session.lessons)
    assert len(set(session.exercises)) == len(session.exercises)
    shortest_stub = min(min(stub_minutes(lesson), default=99) for lesson in session.lessons)
    needed = sum(EXERCISE_MINUTES[id] for id in session.exercises) + shortest_stub
    assert session.minutes.exercises / 2 <= needed <= session.minutes.exercises
    assert len(session.outcomes) == 3


@pytest.mark.parametrize(("number", "session"), SESSIONS)
def test_homework_has_time_for_its_exercises(number, session):
    if session.homework:
        ids = session.homework.exercises
        assert {id[:2] for id in ids} == {session.homework.lesson}
        assert sum(EXERCISE_MINUTES[id] for id in ids) < session.homework.minutes


def test_no_lesson_comes_before_what_it_needs():
    # Homework is done after its session.
    time = {lesson: number for number, session in SESSIONS for lesson in session.lessons}
    time |= {lesson: number + 0.5 for lesson, number in HOMEWORK.items()}
    needs = course.read_dependencies()
    assert {"05", "07"} <= needs["09"] and "01" in needs["02"]  # their stages read these
    for lesson, needed in needs.items():
        assert all(time[other] <= time[lesson] for other in needed), lesson
    for number, session in SESSIONS:
        assert all(needed < number for needed in session.sessions_needed)


def test_what_follows_from_other_dependencies_is_not_drawn():
    needs = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert course.direct_dependencies(needs) == {"a": set(), "b": {"a"}, "c": {"b"}}


def test_the_page_links_every_lesson_and_exercise_and_draws_the_dependencies():
    page = BeautifulSoup(course.render_page(), "html.parser")
    links = {link["href"] for link in page.find_all("a", href=True)}
    for number, name in course.lesson_names().items():
        assert {f"{name}.html", f"slides/{name}.html", f"../student/{name}.ipynb"} <= links, number
    assert "../solutions/exercises.ipynb" in links
    assert page.find("img")["src"].startswith("data:image/svg+xml")
    narrow = page.find("source")
    assert "max-width" in narrow["media"] and narrow["srcset"].startswith("data:image/svg+xml")


def test_the_terminal_shows_every_session(capsys):
    course.main([])
    printed = capsys.readouterr().out
    for number, session in SESSIONS:
        assert f"{number}. {session.title}" in printed and session.demo in printed


def test_the_page_has_the_same_bytes_in_every_process():
    """Sets of text are in another order under another hash seed."""
    program = "from lib.teaching import course; print(course.render_page())"
    pages = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program]
        pages.add(subprocess.check_output(command, env=environment, cwd=ROOT))
    assert len(pages) == 1
