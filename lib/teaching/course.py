"""The course: eight sessions of 90 minutes, with what each needs, what one can do after it, and homework.

`python -m lib course` prints it; `python -m lib.teaching.course` writes the page reports/course.html. What a lesson
needs is read from dvc.yaml where a stage reads what another one made; what it needs only to be understood is stated
here. Appendix lessons (05a) count as their lesson.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from matplotlib.figure import Figure

from lib.config import ROOT, from_yaml
from lib.experiment import artifacts
from lib.plots.styles import GREY
from lib.plots.theme import WIDE, WIDTH, Layout, has_narrow, new_figure, responsive
from lib.reports import html
from lib.reports.lesson import picture_html

SESSION_MINUTES = 90
TARGET = "reports/course.html"
UNDERSTOOD_FROM = {  # lessons that a lesson's text builds on, though its code reads nothing of them
    "01": ("00",),
    "02": ("01",),
    "04": ("03",),
    "05": ("03",),
    "06": ("05",),
    "07": ("05",),
    "08": ("05", "07"),
    "11": ("08",),
}


@dataclass(frozen=True)
class Minutes:
    """How a session's time is spent; the parts sum to 90.

    Attributes:
        recap: Recap, and the prediction that everybody writes down.
        slides: The slides.
        stepping: Stepping through the lesson together.
        exercises: One stub of the lesson, and the exercises that the session names.
        discussion: Discussion.
    """

    recap: int = 10
    slides: int = 20
    stepping: int = 20
    exercises: int = 30
    discussion: int = 10

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.recap + self.slides + self.stepping + self.exercises + self.discussion

    def describe(self) -> str:
        """The parts in a line."""
        return (
            f"prediction and recap {self.recap}, slides {self.slides}, stepping through {self.stepping}, "
            f"stub and exercises {self.exercises}, discussion {self.discussion}"
        )


@dataclass(frozen=True)
class Homework:
    """A lesson that is read and run at home, before the next session.

    Attributes:
        lesson: Its number.
        minutes: How long it takes.
        exercises: Ids of its exercises.
    """

    lesson: str
    minutes: int
    exercises: tuple[str, ...]


@dataclass(frozen=True)
class CourseSession:
    """One session.

    Attributes:
        title: What it asks.
        lessons: Numbers of its lessons.
        knowledge: What one must know beforehand.
        sessions_needed: Numbers of earlier sessions that it builds on, from 1.
        outcomes: What one can do afterwards; each continues "you can".
        exercises: Ids.
        demo: What is shown live.
        homework: What is done before the next session.
        minutes: How the time is spent.
    """

    title: str
    lessons: tuple[str, ...]
    knowledge: str
    sessions_needed: tuple[int, ...]
    outcomes: tuple[str, str, str]
    exercises: tuple[str, ...]
    demo: str
    homework: Homework | None = None
    minutes: Minutes = Minutes()


SESSIONS = (
    CourseSession(
        "What is best, and for whom?",
        ("00",),
        "Python with NumPy; means and confidence intervals",
        (),
        (
            "read a Pareto front",
            "compute the hypervolume of two objectives",
            "say what a decision costs in tokens and dollars",
        ),
        ("00.1", "00.2", "00.3"),
        "move the weights of lesson 00",
    ),
    CourseSession(
        "What does one objective buy?",
        ("01",),
        "gradients; the terms state, action, reward and return",
        (1,),
        (
            "write PPO's clipped loss",
            "compute advantages of an episode that goes on",
            "compare a trained policy with random moves before you praise it",
        ),
        ("01.1", "01.2", "01.3"),
        "play one room with two policies of the zoo",
    ),
    CourseSession(
        "Who acts next?",
        ("02",),
        "policies and their cards, from session 2",
        (1, 2),
        (
            "choose a policy from its card",
            "tell what KO, TO and RO know",
            "test whether a choice has anything to gain",
        ),
        ("02.2", "02.3"),
        "one prompt of lesson 02, component by component",
        Homework("03", 60, ("03.1", "03.4")),
    ),
    CourseSession(
        "Can reward weights be learned?",
        ("04",),
        "policy gradients; language models that sample tokens (homework 03)",
        (2,),
        (
            "write a group's advantages",
            "derive the Conductor's update",
            "name what its gradient does not see",
        ),
        ("04.1", "04.2", "04.3"),
        "knobs of the synthetic environment of lesson 04",
    ),
    CourseSession(
        "Which expert to call?",
        ("05",),
        "PPO from session 2; costs of tokens (homework 03)",
        (1, 2),
        (
            "write a reward with a budget",
            "mask what a policy did not write",
            "compare a trained router with a simple one",
        ),
        ("05.1", "05.2", "05.3"),
        "knobs of the synthetic environment of lesson 05",
    ),
    CourseSession(
        "What do users prefer?",
        ("06",),
        "groups and their advantages, from session 4; budgets, from session 5",
        (4, 5),
        (
            "reward outcome, cost, preferences",
            "normalize costs inside a group",
            "tell a preference that was learned from one that was prompted",
        ),
        ("06.1", "06.2", "06.3"),
        '`make serve`, then `python -m lib ask "What is the number of Ana * 38 ?"`',
    ),
    CourseSession(
        "Which team?",
        ("07",),
        "masks and rewards, from session 5",
        (5,),
        (
            "mask a structured choice",
            "imitate the best episodes",
            "say when one configuration for all questions is enough",
        ),
        ("07.1", "07.2", "07.3"),
        "`python -m lib ask` with a question from the class",
        Homework("09", 45, ("09.1", "09.2")),
    ),
    CourseSession(
        "Is choosing worth it?",
        ("08", "11"),
        "rewards and routers, from sessions 5 and 7",
        (5, 7),
        (
            "measure what choosing can gain",
            "fit and serve a router with a budget",
            "estimate a router's value from a log",
        ),
        ("08.1", "08.2", "08.3", "11.2"),
        "the router of lesson 11 behind a client",
        Homework("10", 45, ("10.1", "10.3", "10.4")),
    ),
)


def lesson_names(root: Path = ROOT) -> dict[str, str]:
    """The name of every lesson by its number, without appendices: {"00": "00_tour", ...}."""
    stages = _read_stages(root)
    return {name[:2]: name for name in sorted(stages) if re.match(r"\d\d_", name)}


def _read_stages(root: Path) -> dict[str, dict]:
    return from_yaml((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def read_dependencies(root: Path = ROOT) -> dict[str, set[str]]:
    """Reads which earlier lessons each lesson needs.

    Args:
        root: The project's folder.

    Returns:
        {number of a lesson: numbers of the lessons whose files it reads, or whose ideas it builds on}.
    """
    stages = _read_stages(root)
    stage_by_output = {}
    for name, stage in stages.items():
        for output in [*stage.get("outs", []), *stage.get("metrics", [])]:
            path = output if isinstance(output, str) else next(iter(output))
            stage_by_output[path] = name

    numbers = set(lesson_names(root))
    needs = {number: set(UNDERSTOOD_FROM.get(number, ())) for number in sorted(numbers)}
    for name, stage in stages.items():
        producers = {stage_by_output.get(path, "")[:2] for path in stage.get("deps", [])}
        if name[:2] in numbers:
            needs[name[:2]] |= (producers & numbers) - {name[:2]}
    return needs


def direct_dependencies(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """Removes dependencies that follow from others: where 05 needs 03 and 03 needs 01, 01 is not listed for 05.

    Args:
        needs: All lessons that each lesson needs.

    Returns:
        The same without those that follow from others (transitive reduction).
    """

    def list_ancestors(number: str) -> set[str]:
        return needs[number].union(*(list_ancestors(lesson) for lesson in needs[number]))

    direct = {}
    for number, lessons in needs.items():
        implied = set().union(*(list_ancestors(lesson) for lesson in lessons))
        direct[number] = lessons - implied
    return direct


@responsive
def draw_dependencies(needs: dict[str, set[str]], *, layout: Layout = WIDE) -> Figure:
    """Draws lessons as boxes, from left to right by the longest chain of lessons that they need.

    Args:
        needs: Lessons that each lesson needs.
        layout: Sizes for a wide screen or a phone.

    Returns:
        The figure; dashed boxes are homework.
    """
    direct = direct_dependencies(needs)

    def depth(number: str) -> int:
        return 1 + max((depth(lesson) for lesson in direct[number]), default=-1)

    columns: dict[int, list[str]] = {}
    for number in needs:
        columns.setdefault(depth(number), []).append(number)
    position = {
        number: (column, (len(numbers) - 1) / 2 - row)
        for column, numbers in columns.items()
        for row, number in enumerate(numbers)
    }
    home = {session.homework.lesson for session in SESSIONS if session.homework}
    width = min(WIDTH, layout.max_width)
    figure = new_figure("Which lessons a lesson needs", width, height=3.2)
    axes = figure.add_subplot()
    font_size, padding = (10, 0.3) if layout.is_narrow else (13, 0.45)
    arrow_gap = font_size + 2  # points between an arrow and the middle of a box
    for number, lessons in direct.items():
        for lesson in sorted(lessons):  # a set has another order in each process
            arrow = {"arrowstyle": "->", "color": GREY, "shrinkA": arrow_gap, "shrinkB": arrow_gap}
            axes.annotate("", position[number], position[lesson], arrowprops=arrow)
    for number, (x, y) in position.items():
        style = "dashed" if number in home else "solid"
        box = {"boxstyle": f"round,pad={padding}", "facecolor": "white", "linestyle": style}
        axes.text(x, y, number, ha="center", va="center", fontsize=font_size, bbox=box)
    axes.set_xlim(-0.5, max(columns) + 0.5)
    tallest = max(len(numbers) for numbers in columns.values())
    axes.set_ylim(-tallest / 2, tallest / 2)
    axes.axis("off")
    return figure


def format_text() -> str:
    """Formats the course as plain text for a terminal."""
    lines = []
    for number, session in enumerate(SESSIONS, 1):
        lines += [
            f"{number}. {session.title} (lessons {', '.join(session.lessons)}; {session.minutes.total} minutes)",
            f"   know:      {session.knowledge}",
            *(f"   you can    {outcome}" for outcome in session.outcomes),
            f"   minutes:   {session.minutes.describe()}",
            f"   exercises: {', '.join(session.exercises)}",
            f"   live:      {session.demo}",
        ]
        if session.homework:
            lines.append(f"   homework:  {_describe_homework(session.homework)}")
        lines.append("")
    return "\n".join(lines)


def _describe_homework(homework: Homework) -> str:
    ids = ", ".join(homework.exercises)
    return f"lesson {homework.lesson}, {homework.minutes} minutes, exercises {ids}"


def readme_rows() -> list[str]:
    """The rows of the README's table: session, lessons, first outcome, exercises."""
    return [
        f"| {number} {session.title} | {', '.join(session.lessons)} | {session.outcomes[0]} "
        f"| {_shorten_ids(session.exercises)} |"
        for number, session in enumerate(SESSIONS, 1)
    ]


def _shorten_ids(ids: tuple[str, ...]) -> str:
    """Groups the ids of exercises by lesson, such as "08.1, 2, 3; 11.2".

    Args:
        ids: Such as "08.1".
    """
    numbers_by_lesson: dict[str, list[str]] = {}
    for id in ids:
        lesson, number = id.split(".")
        numbers_by_lesson.setdefault(lesson, []).append(number)
    return "; ".join(
        f"{lesson}.{', '.join(numbers)}" for lesson, numbers in numbers_by_lesson.items()
    )


def render_page(root: Path = ROOT) -> str:
    """Renders the course as an HTML page that loads nothing, with links to the material of each session.

    Args:
        root: The project's folder.
    """
    names = lesson_names(root)
    needs = read_dependencies(root)
    figure = draw_dependencies(needs)
    alt = "Arrows from lessons to those that need them"
    picture = picture_html(figure, alt, has_narrow(figure))
    sentences = "; ".join(
        f"{number} needs {', '.join(sorted(lessons))}"
        for number, lessons in direct_dependencies(needs).items()
        if lessons
    )
    intro = (
        "# The course: eight sessions\n\n"
        f"Each takes {SESSION_MINUTES} minutes and works offline. Slides, student copies and solutions are made by "
        "`make slides`, `make student` and `make solutions`; their links open what was made.\n\n"
        f"<figure>{picture}"
        f"<figcaption>Dashed lessons are homework. What follows from other arrows is left out: {sentences}."
        "</figcaption></figure>"
    )
    sections = [intro]
    for number, session in enumerate(SESSIONS, 1):
        sections.append(f"## {number} {session.title}\n\n{_render_session(session, names)}")
    cells = [nbformat.v4.new_markdown_cell(text) for text in sections]
    return html.page(nbformat.v4.new_notebook(cells=cells), title="The course")


def _render_session(session: CourseSession, names: dict[str, str]) -> str:
    """Renders one session of the course as a table in Markdown.

    Args:
        session: The session.
        names: Names of lessons by number.
    """
    earlier = ", ".join(str(number) for number in session.sessions_needed) or "none"
    rows = {
        "lessons": _link_lessons(session.lessons, names),
        "know beforehand": f"{session.knowledge}; sessions: {earlier}",
        "afterwards you can": "; ".join(session.outcomes),
        f"{session.minutes.total} minutes": session.minutes.describe(),
        "exercises": ", ".join(_link_exercise(id, names) for id in session.exercises),
        "live demo": session.demo,
    }
    if session.homework:
        homework = session.homework
        ids = ", ".join(_link_exercise(id, names) for id in homework.exercises)
        lessons = _link_lessons((homework.lesson,), names)
        rows["homework"] = f"{lessons}; {homework.minutes} minutes; exercises {ids}"
    return "| | |\n|---|---|\n" + "\n".join(f"| {head} | {text} |" for head, text in rows.items())


def _link_lessons(numbers: tuple[str, ...], names: dict[str, str]) -> str:
    """Writes Markdown links to pages, slides and student copies of lessons, and to the solutions.

    Args:
        numbers: Numbers of the lessons.
        names: Names of lessons by number.
    """
    links = [
        f"[{names[number]}]({names[number]}.html) ([slides](slides/{names[number]}.html), "
        f"[student copy](../student/{names[number]}.ipynb))"
        for number in numbers
    ]
    return f"{', '.join(links)}; [solutions](../solutions/exercises.ipynb)"


def _link_exercise(id: str, names: dict[str, str]) -> str:
    return f"[{id}]({names[id[:2]]}.html#exercises)"


def main(arguments: list[str] | None = None) -> None:
    """Print the course: eight sessions with minutes, exercises and homework."""
    argparse.ArgumentParser(prog="python -m lib course", description=main.__doc__).parse_args(
        arguments
    )
    print(format_text())


if __name__ == "__main__":
    artifacts.write_text(ROOT / TARGET, render_page())
