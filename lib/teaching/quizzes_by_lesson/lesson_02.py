"""The quiz of lesson 02: contexts, trials on copies, and headroom."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "In what do KO, TO and RO differ?",
        ("in the policies they pick from", "in how they were trained", "in the context they read"),
        "c",
        {
            "a": "All of them pick from the same policies.",
            "b": "None of them is trained for picking among these policies.",
        },
    ),
    QuizQuestion(
        "TO tries a policy on a copy of the student. The trial shows",
        ("what may happen", "what will happen", "how the policy did with training students"),
        "a",
        {
            "b": "The copy draws fresh random numbers, so the real step may come out otherwise.",
            "c": "That stands on the policy's card, which KO reads.",
        },
    ),
    QuizQuestion(
        "In some world the question is not open. What follows?",
        (
            "all orchestrators are equally good there",
            "no ranking of orchestrators is read there",
            "planning ahead is worse than the best policy there",
        ),
        "b",
        {
            "a": "A run that is too small to tell is not open either, and says nothing about equality.",
            "c": "The headroom may lie above 0 and still be too small, or too uncertain.",
        },
    ),
    before="## First of all, random",
)
quiz = QUIZ.answer
