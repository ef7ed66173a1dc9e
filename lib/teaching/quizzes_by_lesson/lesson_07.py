"""The quiz of lesson 07: masks, the reward of tools, and headroom."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "What does a mask do, once a workflow is chosen?",
        (
            "it forbids expensive tools and budgets",
            "it pins choices that would change nothing",
            "it forbids workflows that are often wrong",
        ),
        "b",
        {
            "a": "Nothing is forbidden for its price.",
            "c": "Any workflow may be chosen; the mask follows from the one that was.",
        },
    ),
    QuizQuestion(
        "An answer is wrong after two calls of tools. What is $R_\\text{tool}$?",
        ("$2\\,\\delta_1$", "$-\\delta_3\\, n_\\text{alloc}$", "0"),
        "a",
        {
            "b": "This is the case in which no tool was called.",
            "c": "Calls are rewarded, whatever they were good for; only $\\delta_2$ needs a correct answer.",
        },
    ),
    QuizQuestion(
        "What makes the headroom of the synthetic environment grow?",
        (
            "more episodes of training",
            "a better encoder of questions",
            "kinds of questions that change more in what a configuration is worth",
        ),
        "c",
        {
            "a": "Headroom compares the optimum with the best constant, and neither is trained.",
            "b": "Optimum and best constant are exact, and read no encoding.",
        },
    ),
    before="## Language models: is there anything to win?",
)
quiz = QUIZ.answer
