"""Exercises on routing between models: a mixture that meets a budget, what a router is worth, and a router to write."""

from collections.abc import Callable

import numpy as np

from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises

RATE = 10.0  # right answers that a dollar is worth


def choose_models(
    words: np.ndarray,
    correct: np.ndarray,
    cost_usd: np.ndarray,
    new_words: np.ndarray,
    rate: float,
) -> np.ndarray:
    """Chooses a model for each new item: the largest chance of being right minus rate x dollars.

    Args:
        words: (n,) First words of the items to learn from.
        correct: (n, models) Whether each model was right on them.
        cost_usd: (models,) Dollars of a call.
        new_words: (k,) First words of the new items; an unknown word has the chances of all items.
        rate: Right answers that a dollar is worth.

    Returns:
        (k,) Index of the model for each new item.
    """
    accuracy_by_word = {word: correct[words == word].mean(0) for word in set(words)}
    accuracy = np.array([accuracy_by_word.get(word, correct.mean(0)) for word in new_words])
    return (accuracy - rate * cost_usd).argmax(1)


def most_accurate(
    words: np.ndarray,
    correct: np.ndarray,
    cost_usd: np.ndarray,
    new_words: np.ndarray,
    rate: float,
) -> np.ndarray:
    """The mistake: the model that is right most often, whatever the question and the cost."""
    return np.full(len(new_words), correct.mean(0).argmax())


def _check_choices(answer: Callable) -> bool | str:
    """Compares a router with `choose_models` on known words, on an unknown one, and on the items themselves.

    Args:
        answer: The student's solution, as `choose_models`.

    Returns:
        True, or what is wrong.
    """
    cost_usd = np.array([0.001, 0.02])
    draw = seeds.rng("exercise", "router")
    words = np.where(draw.random(60) < 0.5, "prove", "add")
    # The first model is right on every "add" and nothing else, the second on 90 % of all.
    correct = np.stack([words == "add", draw.random(60) < 0.9], axis=1).astype(float)
    for new_words in (np.array(["add", "prove", "add"]), np.array(["draw"]), words[:20]):
        chosen = np.asarray(answer(words, correct, cost_usd, new_words, RATE))
        expected = choose_models(words, correct, cost_usd, new_words, RATE)
        if chosen.shape != expected.shape:
            return f"new_words of shape {new_words.shape} need as many indices of models, got shape {chosen.shape}"
        if (chosen != expected).any():
            i = int(np.flatnonzero(chosen != expected)[0])
            return f"an item that begins with {new_words[i]!r} should go to model {expected[i]}"
    return True


ROUTER_STUB = '''import numpy as np


def choose_models(
    words: np.ndarray,
    correct: np.ndarray,
    cost_usd: np.ndarray,
    new_words: np.ndarray,
    rate: float,
) -> np.ndarray:
    """Choose a model for each new question: the largest accuracy minus rate x dollars.

    Args:
        words: (n,) First words of the questions to learn from.
        correct: (n, models) Whether each model was right on them.
        cost_usd: (models,) Dollars of a call.
        new_words: (k,) First words of the new questions; an unknown word has the accuracies of all questions.
        rate: Correct answers that a dollar is worth.

    Returns:
        (k,) Index of the model for each new question.
    """
    raise NotImplementedError


# The check compares your function with a solution on 60 random questions that begin with "prove" or
# "add": for new questions with these words, with an unknown word, and for known questions.
answer = choose_models'''

EXERCISES = Exercises(
    Exercise(
        "11.1",
        "easy",
        3,
        "The small model costs 0.001 dollars and answers half of the questions correctly; the large one costs 0.021 "
        "dollars and answers nine in ten. The budget is 0.004 dollars a question. Which share of the questions does a "
        "random mixture send to the large model, and which share of all answers is correct? Give [share, correct].",
        nudge="the mean cost of the mixture is the budget",
        hint="the budget leaves 0.003 above the small model; accuracies mix with the same share as costs",
        answer=[0.15, 0.56],
        worked="The share is 0.003 / 0.02 = 0.15, and 0.85 x 0.5 + 0.15 x 0.9 = 0.56. A router has to be above that.",
        wrong=[0.15, 0.9],
    ),
    Exercise(
        "11.2",
        "medium",
        5,
        "Half of the questions are proofs. The small model (0.001 dollars) answers everything but proofs correctly, "
        "the large one (0.02 dollars) nine in ten of all questions. A router sends proofs to the large model and the "
        "others to the small one. Give its share of correct answers and its dollars a question, as [correct, dollars].",
        nudge="look at proofs and at the other questions one after the other",
        hint="average what happens on proofs and on the others",
        answer=[(0.9 + 1) / 2, (0.02 + 0.001) / 2],
        worked="Proofs: .9 correct for .02 dollars. The others: 1 for .001. It is correct more often than the large "
        "model alone, for little more than half of the money.",
        wrong=[0.9, 0.0105],
        important=True,
    ),
    Exercise(
        "11.3",
        "hard",
        15,
        "Write a router that knows a question by its first word: estimate from outcomes how often each model is right "
        "after each word, and choose the model with the largest accuracy minus rate x dollars.",
        nudge="first the accuracy of each model after each word, then the best of them for each new question",
        hint="correct[words == word] are the outcomes after one word; cost is taken off before the best is chosen",
        answer=choose_models,
        worked="Accuracies by word, minus what a call costs in correct answers; with a rate of 0 only accuracy counts.",
        wrong=most_accurate,
        judge=_check_choices,
        start=ROUTER_STUB,
    ),
)
check = EXERCISES.check
