"""The quiz of lesson 10: when a claim holds, and which verdicts are refused."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "When does a direction hold?",
        (
            "when the mean difference lies on the claimed side",
            "when the interval holds 0",
            "when the whole interval lies on the claimed side",
        ),
        "c",
        {
            "a": "The mean alone does not say how sure it is.",
            "b": "Then both signs are possible, and nothing is decided.",
        },
    ),
    QuizQuestion(
        "Random choice passes the test of a claim as well. The claim",
        (
            "is not testable in this way",
            "holds",
            "does not hold",
        ),
        "a",
        {
            "b": "What random choice can do as well is no evidence for a method.",
            "c": "The test says nothing about the method, neither for it nor against it.",
        },
    ),
    QuizQuestion(
        "A claim says that a difference is more than 0. Its interval is [-0.02, 0.30]. The verdict is",
        ("holds", "undecided", "does not hold"),
        "b",
        {
            "a": "A part of the interval lies below 0.",
            "c": "Most of the interval lies above 0, so nothing is refuted.",
        },
    ),
)
quiz = QUIZ.answer
