"""Quizzes: three questions with choices in the middle of a lesson, and why a wrong choice is wrong.

`lesson_05` holds the quiz of lesson 05; its notebook answers with `quiz(1, "b")`. The cells of the notebooks are
written from here (`python -m lib exercises`). What a question asks has been shown in the lesson before the quiz.
It asks for methods, signs and definitions, never for a number that another run may change.
"""

from dataclasses import dataclass
from typing import Literal

from lib.teaching.exercises_by_lesson import tell_reader

Letter = Literal["a", "b", "c"]
LETTERS = ("a", "b", "c")


@dataclass(frozen=True)
class QuizQuestion:
    """One question of a quiz.

    Attributes:
        text: What is asked, in Markdown.
        choices: Three answers, in the order a, b, c.
        right: The letter of the right one.
        why_not: One sentence for each of the two other letters.
    """

    text: str
    choices: tuple[str, str, str]
    right: Letter
    why_not: dict[str, str]

    def __post_init__(self) -> None:
        """Raises ValueError if a choice has no reason, or the right one has."""
        if self.right not in LETTERS or len(self.choices) != len(LETTERS):
            raise ValueError(f"one of {', '.join(LETTERS)} must be right: {self.text}")
        if {self.right, *self.why_not} != set(LETTERS) or self.right in self.why_not:
            raise ValueError(f"each wrong choice needs a reason, and no other: {self.text}")

    def markdown(self, number: int) -> str:
        """The question as the notebook shows it."""
        lines = [f"{number}. {self.text}"]
        for letter, choice in zip(LETTERS, self.choices, strict=True):
            lines.append(f"    - ({letter}) {choice}")
        return "\n".join(lines)


class Quiz:
    """The questions of one lesson, in order.

    Attributes:
        questions: The questions.
        before: The heading, with its `#` signs, that follows the quiz; None for the one nearest the lesson's middle.
    """

    def __init__(self, *questions: QuizQuestion, before: str | None = None) -> None:
        self.questions = questions
        self.before = before

    def answer(self, number: int, letter: str | None) -> None:
        """Prints whether a choice is right, and if not, why; `None` means not answered yet.

        Args:
            number: Number of the question, from 1.
            letter: The choice.

        Raises:
            ValueError: If there is no such question.
        """
        if number not in range(1, len(self.questions) + 1):
            raise ValueError(f"there is no question {number}; there are 1 to {len(self.questions)}")
        if letter is None:
            tell_reader(f"{number}: not answered yet. Put a letter in place of None.")
            return
        question = self.questions[number - 1]
        letter = str(letter).strip().lower()
        if letter == question.right:
            print(f"{number}: right.")
        elif letter in LETTERS:
            print(f"{number}: not {letter}. {question.why_not[letter]}")
        else:
            print(f"{number}: choose one of {', '.join(LETTERS)}, in quotes.")
