"""The quiz of lesson 05: reward and budget, masked advantages, and what a reward of 0 teaches."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "An answer is correct, and its calls cost exactly the budget. The reward is",
        ("0", "1", "the part of the budget that is left"),
        "b",
        {
            "a": "The condition is $c \\le B$, and the limit belongs to the budget.",
            "c": "The reward knows only whether the budget was kept, not by how much.",
        },
    ),
    QuizQuestion(
        "An expert has written a token ($I = 0$). In the masked advantages",
        (
            "the recursion skips it, and its advantage is 0",
            "its advantage is 0, and the recursion discounts by $\\gamma\\lambda$ there",
            "it counts like the controller's own tokens",
        ),
        "a",
        {
            "b": "The advantages run over the controller's tokens as if nobody else had written any.",
            "c": "The controller did not choose this token, so it cannot learn from it.",
        },
    ),
    QuizQuestion(
        "No expert within the budget can answer a question. What does the reward say about calling an expensive "
        "expert there?",
        (
            "it punishes the call",
            "it pays for the call, since the answer may be correct",
            "nothing: it is 0 either way",
        ),
        "c",
        {
            "a": "No reward is below 0, and not calling earns 0 as well.",
            "b": "A correct answer beyond the budget earns 0.",
        },
    ),
    before="## Two worlds of small language models",
)
quiz = QUIZ.answer
