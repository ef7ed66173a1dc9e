"""Exercises: the question, how an answer is checked, and how it is solved, in one place per lesson.

`lesson_05` holds the exercises of lesson 05; its notebook asks `check("05.2", answer)`. The cells of the
notebooks are written from here (`python -m lib exercises`), so that no second copy drifts. An
answer is a number (or several), compared with the one that is computed here, or a function or class that
the reader writes, which is run and judged by its properties. Whoever opens these files sees the solutions.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

UNANSWERED = "Not answered yet: put your answer in place of None and run the cell again."


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        id: Lesson and number, such as "05.2".
        level: How hard it is.
        minutes: How long it takes.
        question: The task, in Markdown.
        hint: Shown with every answer that is not right; half a sentence.
        answer: The solution, a value or something callable.
        worked: How one gets to the answer.
        wrong: A mistake that is easily made, which no check may accept.
        important: Whether the lessons that follow build on it.
        judge: Takes an answer (and `needs`, by name) and returns True, False, or a sentence that says what is wrong.
            Without one, numbers within `tolerance` of the answer are right, or the same word.
        tolerance: Largest absolute error of a number.
        start: The line that the reader replaces.
        needs: Variables of the lesson that the judge takes.
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

    def __iter__(self):
        return iter(self.by_id.values())

    def __getitem__(self, id: str) -> Exercise:
        if id not in self.by_id:
            raise KeyError(
                f"there is no exercise {id!r} in this lesson; there are {', '.join(self.by_id)}"
            )
        return self.by_id[id]

    def check(self, id: str, answer: Any, **lesson: Any) -> None:
        """Prints whether the answer to an exercise is right; `None` means not answered yet."""
        exercise = self[id]
        if answer is None:
            print(UNANSWERED)
            return
        try:
            verdict = exercise.verdict(answer, **lesson)
        except Exception as error:  # the answer may be the reader's own code, which may do anything
            print(
                f"That cannot be checked ({type(error).__name__}: {error}). Hint: {exercise.hint}."
            )
            return
        if verdict is True:
            print("Right.")
        else:
            print(f"Not yet{f': {verdict}' if verdict else ''}. Hint: {exercise.hint}.")
