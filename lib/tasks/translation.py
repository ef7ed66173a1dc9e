"""A toy language with its own lexicon and another word order.

    Translate : the small cat sees a red bird      <answer> vemo pirra tuk suni felo bas dim </answer>

English is article, adjective, noun, verb, object; the toy language puts the verb first, then the
object, then the subject, the adjective behind its noun and the article last. Difficulty is one more
than the number of adjectives, 1 to 3.
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import POINTS

NOUNS = {
    "cat": "felo",
    "dog": "hundo",
    "bird": "pirra",
    "fish": "nalu",
    "child": "kimo",
    "king": "rego",
}
VERBS = {
    "sees": "vemo",
    "likes": "lusa",
    "finds": "troma",
    "calls": "klavi",
    "helps": "beno",
    "hears": "odri",
}
ADJECTIVES = {
    "small": "bas",
    "red": "tuk",
    "old": "gamo",
    "kind": "milu",
    "quick": "zefi",
    "tall": "alto",
}
ARTICLES = {"the": "dim", "a": "suni"}
LEXICON = NOUNS | VERBS | ADJECTIVES | ARTICLES


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """A sentence with `difficulty` - 1 adjectives; subject and object differ."""
    subject, thing = (list(NOUNS)[i] for i in rng.permutation(len(NOUNS))[:2])
    described = rng.permutation(2)[: difficulty - 1].tolist()
    phrases = [_phrase(rng, noun, i in described) for i, noun in enumerate((subject, thing))]
    verb = list(VERBS)[int(rng.integers(len(VERBS)))]
    english = " ".join([*phrases[0], verb, *phrases[1]])
    ordered = [verb, *phrases[1][::-1], *phrases[0][::-1]]
    answer = " ".join(LEXICON[word] for word in ordered)
    return Item(
        f"Translate : {english}",
        answer,
        " ".join(ordered),
        "translation",
        difficulty,
        f"translation/{english}",
        skin,
    )


def _phrase(rng: np.random.Generator, noun: str, described: bool) -> list[str]:
    article = list(ARTICLES)[int(rng.integers(2))]
    adjective = [list(ADJECTIVES)[int(rng.integers(len(ADJECTIVES)))]] if described else []
    return [article, *adjective, noun]


def score(item: Item, answer: str) -> float:
    """Token accuracy: share of places that hold the right word, over the longer of the two."""
    wanted, given = item.answer.split(), answer.split()
    return sum(a == b for a, b in zip(wanted, given, strict=False)) / max(
        len(wanted), len(given), 1
    )


FAMILY = Family(
    "translation",
    "a toy language with a lexicon of its own and another word order",
    draw,
    (1, 2, 3),
    ("Translate", *LEXICON, *LEXICON.values(), *POINTS),
    score=score,
)
