"""The quiz of lesson 11: budgets, the baseline of a router, and where a rate is measured."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "The budget of a router is what",
        (
            "a question may cost on average",
            "no single question may exceed",
            "all questions together may cost",
        ),
        "a",
        {
            "b": "A question may cost more, if others cost less.",
            "c": "It is an amount a question, however many there are.",
        },
    ),
    QuizQuestion(
        "Suppose that questions do not show which model will fail. For the same money, a router is then as good as",
        (
            "the best model alone",
            "an oracle",
            "a random mixture of constants",
        ),
        "c",
        {
            "a": "The best model alone may cost more than the budget.",
            "b": "An oracle knows the outcomes, which the questions do not show.",
        },
    ),
    QuizQuestion(
        "On which questions is it measured which $\\lambda$ meets a budget?",
        (
            "on those that the model was fitted on",
            "on questions that the model was not fitted on",
            "on those that users ask later",
        ),
        "b",
        {
            "a": "There the estimated probabilities are too sure of themselves, and choices would cost something else.",
            "c": "The router has to keep its budget from the first of them on.",
        },
    ),
    before="## Keep and load",
)
quiz = QUIZ.answer
