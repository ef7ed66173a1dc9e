"""Exercises: the question, how an answer is checked, and how it is solved, in one place per lesson.

`lesson_05` holds the exercises of lesson 05; its notebook asks `check("05.2", answer)`. The cells of the
notebooks are written from here (`python -m lib exercises`), so that no second copy drifts. An
answer is a number (or several), compared with the one that is computed here, or a function or class that
the reader writes, which is run and judged by its properties. Whoever opens these files sees the solutions.

Help comes in three steps: a nudge, then the hint, then the command that prints the worked solution. A stub that still
raises NotImplementedError is not answered, as `None` is.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

UNANSWERED = "Not answered yet: put your answer in place of None and run the cell again."
UNWRITTEN = "Not written yet: put your code in place of NotImplementedError and run the cell again."
MISSES_BEFORE_SOLUTION = 3


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        id: Lesson and number, such as "05.2".
        level: How hard it is.
        minutes: How long it takes.
        question: The task, in Markdown.
        hint: Shown with every answer that is not right, but for the first one where there is a nudge; half a sentence.
        answer: The solution, a value or something callable.
        worked: How one gets to the answer.
        wrong: A mistake that is easily made, which no check may accept.
        important: Whether the lessons that follow build on it.
        judge: Takes an answer (and `needs`, by name) and returns True, False, or a sentence that says what is wrong.
            Without one, numbers within `tolerance` of the answer are right, or the same word.
        tolerance: Largest absolute error of a number.
        start: What the reader replaces: a line, or a stub with signature and docstring that ends in `answer = ...`.
        needs: Variables of the lesson that the judge takes.
        nudge: Shown with the first answer that is not right: where to look, and no more.
    """

    id: str
    level: Literal["easy", "medium", "hard"]
    minutes: int
    question: str
    hint: str
    answer: Any
    worked: str
    wrong: Any
    important: bool = False
    judge: Callable[..., bool | str] | None = None
    tolerance: float = 1e-6
    start: str = "answer = None  # your answer"
    needs: tuple[str, ...] = ()
    nudge: str = ""

    @property
    def facts(self) -> str:
        """How hard, how important, how long."""
        return f"{self.level}, {'important, ' if self.important else ''}{self.minutes} minutes"

    def markdown(self) -> str:
        """The question as the notebook shows it."""
        return f"**{self.id}** *({self.facts})* {self.question}"

    def code(self) -> str:
        """The cell in which the reader answers."""
        lesson_variables = "".join(f", {name}={name}" for name in self.needs)
        return f'{self.start}\ncheck("{self.id}", answer{lesson_variables})'

    def verdict(self, answer: Any, **lesson: Any) -> bool | str:
        """Judges an answer. Exceptions of the reader's code go on to the caller.

        Args:
            answer: The reader's answer.
            **lesson: The variables of the lesson that the exercise needs.

        Returns:
            True, False, or a sentence that says what is wrong.
        """
        if self.judge is not None:
            return self.judge(answer, **lesson)
        if isinstance(self.answer, str):
            return str(answer).strip().lower() == self.answer
        numbers = np.asarray(answer, dtype=float)
        solution = np.asarray(self.answer, dtype=float)
        if numbers.shape != solution.shape:
            return False
        return bool(np.allclose(numbers, solution, rtol=0, atol=self.tolerance))

    def help_after(self, num_misses: int) -> str:
        """Chooses the help after some wrong answers: first a nudge, then a hint, then where the solution is.

        Args:
            num_misses: Wrong answers so far.
        """
        if num_misses == 1 and self.nudge:
            return f"Nudge: {self.nudge}."
        if num_misses < MISSES_BEFORE_SOLUTION:
            return f"Hint: {self.hint}."
        lesson = self.id.partition(".")[0]
        return f"Hint: {self.hint}. Solution: `python -m lib exercises --solutions {lesson}`."

    def solution(self) -> str:
        """The worked solution: the text, and the value or the source of the answer."""
        if callable(self.answer):
            source = self.answer if inspect.isroutine(self.answer) else type(self.answer)
            return f"{self.worked}\n\n{inspect.getsource(source).rstrip()}"
        return f"{self.worked}\n\nanswer = {self.answer}"


class Exercises:
    """The exercises of one lesson, in order."""

    def __init__(self, *exercises: Exercise) -> None:
        self.by_id = {exercise.id: exercise for exercise in exercises}
        if len(self.by_id) != len(exercises):
            ids = [exercise.id for exercise in exercises]
            raise ValueError(f"two exercises share an id among {ids}")
        self.num_misses = dict.fromkeys(self.by_id, 0)  # since the last right answer

    def __iter__(self):
        return iter(self.by_id.values())

    def __getitem__(self, id: str) -> Exercise:
        if id not in self.by_id:
            raise KeyError(
                f"there is no exercise {id!r} in this lesson; there are {', '.join(self.by_id)}"
            )
        return self.by_id[id]

    def check(self, id: str, answer: Any, **lesson: Any) -> None:
        """Prints whether the answer to an exercise is right; `None` means not answered yet.

        Args:
            id: Id of the exercise.
            answer: The reader's.
            **lesson: The variables of the lesson that the exercise needs.
        """
        exercise = self[id]
        if answer is None:
            tell_reader(UNANSWERED)
            return
        try:
            verdict = exercise.verdict(answer, **lesson)
        except NotImplementedError:
            tell_reader(UNWRITTEN)
            return
        except Exception as error:  # the answer may be the reader's own code, which may do anything
            print(
                f"That cannot be checked ({type(error).__name__}: {error}). {self._help(exercise)}"
            )
            return
        if verdict is True:
            self.num_misses[id] = 0
            print("Right.")
        else:
            print(f"Not yet{f': {verdict}' if verdict else ''}. {self._help(exercise)}")

    def _help(self, exercise: Exercise) -> str:
        """The help for one more answer that is not right."""
        self.num_misses[exercise.id] += 1
        return exercise.help_after(self.num_misses[exercise.id])


def tell_reader(text: str) -> None:
    """Prints a text, but not where a lesson is rendered and nobody answers."""
    if os.environ.get("BENCH_RUN") != "1":
        print(text)
