"""The quiz of lesson 00: the student, a look-ahead, and what a decision costs."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "Where the difficulty of a question equals the student's mastery, a right answer is",
        ("as likely as a wrong one", "certain", "less likely, the lower the mastery"),
        "a",
        {
            "b": "Answers are drawn at random: even a question far below mastery can be answered wrong.",
            "c": "Only the distance between mastery and difficulty counts, and here it is 0.",
        },
    ),
    QuizQuestion(
        "The copies of the student draw fresh random numbers. With the numbers of the real student, a look-ahead would",
        ("be slower", "know the answers before they are given", "show what happens on average"),
        "b",
        {
            "a": "Drawing numbers takes no time to speak of; the point is what they give away.",
            "c": "One sequence of numbers shows what happens once, and the average needs many fresh ones.",
        },
    ),
    QuizQuestion(
        "By the formula (A.6), a language model decides in twice as many steps, with prompts and replies as before. "
        "The cost of a run",
        ("rises by the tokens out alone", "stays the same, since training is shared", "doubles"),
        "c",
        {
            "a": "Every decision pays for its prompt anew, so tokens in are paid twice as often, too.",
            "b": "That is a trained policy; a language model is paid at every decision.",
        },
    ),
    before="## Which strategies are on the front",
)
quiz = QUIZ.answer
