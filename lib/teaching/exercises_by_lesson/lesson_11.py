"""Exercises on what one brings: a world's length, a router's worth, a router of one's own."""

from collections.abc import Callable

import numpy as np

from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises

RATE = 10.0  # right answers that a dollar is worth


def router(
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


def _routes(answer: Callable) -> bool | str:
    """Compares an answer with `router` on known words, on an unknown one, and on the items themselves."""
    cost_usd = np.array([0.001, 0.02])
    draw = seeds.rng("exercise", "router")
    words = np.where(draw.random(60) < 0.5, "prove", "add")
    # The first model is right on every "add" and nothing else, the second on 90 % of all.
    correct = np.stack([words == "add", draw.random(60) < 0.9], axis=1).astype(float)
    for new_words in (np.array(["add", "prove", "add"]), np.array(["draw"]), words[:20]):
        chosen = np.asarray(answer(words, correct, cost_usd, new_words, RATE))
        expected = router(words, correct, cost_usd, new_words, RATE)
        if chosen.shape != expected.shape:
            return f"{len(new_words)} items need {len(new_words)} places of models, got shape {chosen.shape}"
        if (chosen != expected).any():
            i = int(np.flatnonzero(chosen != expected)[0])
            return f"an item that begins with {new_words[i]!r} should go to model {expected[i]}"
    return True


EXERCISES = Exercises(
    Exercise(
        "11.1",
        "easy",
        3,
        "In the mine, how many steps lasts an episode of somebody who digs for gold at every step?",
        hint="the roof begins at 1, every dig takes 0.2, and at 0 the episode is over",
        answer=round(1 / 0.2),
        worked="The roof holds 1, 0.8, 0.6, 0.4, 0.2, 0: it falls with the fifth dig, long before the ten steps are "
        "over. Who props it up now and then digs more gold in all.",
        wrong=10,
    ),
    Exercise(
        "11.2",
        "medium",
        5,
        "Half of the items are proofs. The small model (0.001 dollars) is right on all but proofs, the large one "
        "(0.02 dollars) on nine in ten items. A router sends proofs to the large model, the rest to the small "
        "one. Give its share of right answers and its dollars per item, as [right, dollars].",
        hint="average what happens on proofs and on the rest",
        answer=[(0.9 + 1) / 2, (0.02 + 0.001) / 2],
        worked="Proofs: .9 right for .02 dollars. The rest: 1 for .001. It is right more often than the large model "
        "alone, for little more than half of the money.",
        wrong=[0.9, 0.0105],
        important=True,
    ),
    Exercise(
        "11.3",
        "hard",
        15,
        "Write a router: a function of first words (n,) and outcomes (n, m) of items to learn from, dollars (m,) of a "
        "call, the first words (k,) of new items, and a rate, that returns (k,) places of models: the largest chance "
        "of being right less rate x dollars. A word that was never seen has the chances of all items together.",
        hint="right[words == word].mean(0) are the chances at a word; argmax(axis=1) of chances - rate * dollars",
        answer=router,
        worked="Chances by word, less what a call costs in right answers; with a rate of 0 only quality counts.",
        wrong=most_accurate,
        judge=_routes,
        start="answer = None  # a function of words, right, dollars, asked, rate",
    ),
)
check = EXERCISES.check
