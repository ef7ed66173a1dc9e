"""The quiz of lesson 08: headroom, held-out groups, and the price of money."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "Why is the lead of the oracle over the best constant no headroom?",
        (
            "the oracle profits from luck, since every item was answered once",
            "the oracle pays for all models",
            "the oracle reads the features only",
        ),
        "a",
        {
            "b": "It asks one model for each item, the cheapest correct one.",
            "c": "It knows the outcomes themselves.",
        },
    ),
    QuizQuestion(
        "Why are whole groups held out, and not single items?",
        (
            "the test set becomes larger",
            "all groups have the same size",
            "items of a group resemble each other, so a router would know the test items in part",
        ),
        "c",
        {
            "a": "Four folds leave a fourth of the items for the test in either case.",
            "b": "Their sizes differ, and need not agree.",
        },
    ),
    QuizQuestion(
        "In the choice $\\hat m(x_i)$ the rate $\\lambda$ rises from 0. The router moves",
        (
            "from the cheapest model to the one with the largest predicted accuracy",
            "from the model with the largest predicted accuracy to the cheapest one",
            "towards a random choice",
        ),
        "b",
        {
            "a": "With $\\lambda = 0$ the cost does not count at all.",
            "c": "The formula has no draw; with a large $\\lambda$ cost alone decides.",
        },
    ),
    before="## Step 6: budgets, promised and spent",
)
quiz = QUIZ.answer
