"""The quiz of lesson 03: items and verifiers, and why accuracy rises in jumps."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "The hash of an item's content decides whether it is for training or for testing. This makes sure that",
        (
            "no test item was trained on",
            "test items are harder",
            "all models have met the same training items",
        ),
        "a",
        {
            "b": "A hash knows nothing about difficulty.",
            "c": "Models are taught different tasks; the hash only keeps test items out.",
        },
    ),
    QuizQuestion(
        "A reply works the task out correctly, but its answer does not stand in answer tags. The verifier calls it",
        ("right", "half right", "wrong"),
        "c",
        {
            "a": "It compares what stands in the tags, and nothing stands there.",
            "b": "A verifier says right or wrong, and nothing between.",
        },
    ),
    QuizQuestion(
        "During training the loss falls steadily while accuracy rises in jumps. Why?",
        (
            "the verifier becomes more lenient",
            "the loss is a mean over tokens, and an answer needs every step right",
            "the loss leaves the answer out",
        ),
        "b",
        {
            "a": "The verifier is the same from the first update to the last.",
            "c": "The answer is part of what the assistant says, all of which is learned.",
        },
    ),
)
quiz = QUIZ.answer
