"""The quiz of lesson 01: advantages, the clip of PPO, and the combination of gradients."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "With $\\lambda = 0$, what is left of the advantage $A_t$?",
        (
            "nothing: it is 0",
            "the error $\\delta_t$ of one step",
            "all later rewards, minus $V(s_t)$",
        ),
        "b",
        {
            "a": "Only the second term of the recursion has the factor $\\lambda$.",
            "c": "Later rewards come in through $A_{t+1}$, whose factor is 0.",
        },
    ),
    QuizQuestion(
        "An action has become half as likely ($r = 0.5$), its advantage is $-1$, and $\\epsilon = 0.2$. The clipped "
        "objective",
        (
            "is -0.8, and its gradient vanishes",
            "is -0.5, and its gradient makes the action rarer still",
            "is -0.8, and its gradient makes the action rarer still",
        ),
        "a",
        {
            "b": "The smaller of -0.5 and -0.8 counts, and that is the clipped one.",
            "c": "The clipped term is constant in $r$, so that nothing is gained by going on.",
        },
    ),
    QuizQuestion(
        "Two gradients have the same direction, and the first is twice as long. The combination with the smallest norm",
        (
            "gives all weight to the first one",
            "weighs both equally",
            "gives all weight to the second one",
        ),
        "c",
        {
            "a": "This combination is the longest of all.",
            "b": "Any weight on the longer gradient makes the combination longer.",
        },
    ),
    before="## First of all, look at random",
)
quiz = QUIZ.answer
