"""The quiz of lesson 04: group advantages, the easy reward, and the anchored Conductor."""

from lib.teaching.quizzes_by_lesson import Quiz, QuizQuestion

QUIZ = Quiz(
    QuizQuestion(
        "Weights are equal, and all replies of a group have the format. What does the format do to their advantages?",
        ("nothing", "it raises all of them", "it raises those of long replies"),
        "a",
        {
            "b": "Advantages are distances from the mean of the group, and sum to 0.",
            "c": "All replies get the same from it, however long they are.",
        },
    ),
    QuizQuestion(
        "Why does a reply with the emphasis on the format have a positive expected advantage?",
        (
            "the format agrees with quality",
            "the entropy bonus favours it",
            "its mean is near 1, and that of a ranked reward is one half",
        ),
        "c",
        {
            "a": "On the made-up groups no reward depends on quality, and it is positive all the same.",
            "b": "The bonus favours probabilities that are spread out, whatever the reward.",
        },
    ),
    QuizQuestion(
        "The mean of $B_j$, the reward of the anchored Conductor's head, is",
        (
            "the verified quality of the reply",
            "the covariance of the emphasised reward with verified quality",
            "the advantage that trains the policy",
        ),
        "b",
        {
            "a": "Quality is multiplied by how far the emphasised reward is from its mean in the group.",
            "c": "That is the reward of the published head.",
        },
    ),
    before="## Small language models",
)
quiz = QUIZ.answer
