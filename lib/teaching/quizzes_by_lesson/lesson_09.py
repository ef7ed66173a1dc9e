"""The quiz of lesson 09: pairs, intervals that hold 0, and many changes at once."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "Both sides of an ablation meet the same students or questions under the same seed. This",
        (
            "makes the difference larger",
            "takes out of the difference what both sides have in common",
            "makes seeds unnecessary",
        ),
        "b",
        {
            "a": "The mean difference stays what it is; its interval becomes narrower.",
            "c": "What differs from seed to seed still has to be estimated.",
        },
    ),
    QuizQuestion(
        "The interval of a gain holds 0. What follows about the part that was changed?",
        ("it is useless", "it does harm", "a run of this size cannot tell its effect from 0"),
        "c",
        {
            "a": "With a few seeds a real effect can hide in a wide interval.",
            "b": "An interval that holds 0 has values on both sides.",
        },
    ),
    QuizQuestion(
        "Suppose that no change has any effect, and each has a 95 % interval of its own. How many look clear?",
        ("about one in twenty, by luck", "none", "about one in two"),
        "a",
        {
            "b": "An interval of 95 % misses the truth in 5 % of the cases.",
            "c": "It misses the truth in 5 % of the cases only.",
        },
    ),
)
quiz = QUIZ.answer
