"""The quiz of lesson 06: the preference reward, the sign error, and steering."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "A rollout costs nothing, and its answer is wrong. Its reward $R$ is",
        ("the user's weight on cost", "below 0", "0"),
        "c",
        {
            "a": "Entries are weighed only where the answer is correct.",
            "b": "The formula has no penalty for a wrong answer.",
        },
    ),
    QuizQuestion(
        "Which statement about every group fails under the sign error, and so finds it?",
        (
            "of two correct rollouts that differ in cost alone, the cheaper one never earns less",
            "a wrong rollout earns 0",
            "the reward can be computed",
        ),
        "a",
        {
            "b": "Wrong rollouts earn 0 under either formula.",
            "c": "Nothing crashes, and the numbers look like rewards.",
        },
    ),
    QuizQuestion(
        "The slope of spending over a user's weight on cost is 0. This says that the policy",
        (
            "spends less for users who want to save",
            "spends the same, whatever this user wants",
            "spends nothing",
        ),
        "b",
        {
            "a": "That is a slope below 0.",
            "c": "A slope says how spending changes, not how high it is.",
        },
    ),
    before="## Small language models: menus that have to be read",
)
quiz = QUIZ.answer
