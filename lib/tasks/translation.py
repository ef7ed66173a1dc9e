"""A toy language with a lexicon and a word order of its own.

    Translate : the small cat sees a red bird      <answer> vemo pirra tuk suni felo bas dim </answer>

English is article, adjective, noun, verb, object; the toy language puts the verb first, then the
object, then the subject, the adjective behind its noun and the article last. Difficulty is one more
than the number of adjectives, 1 to 3.
"""

import numpy as np

from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import PUNCTUATION

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


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str = "plain") -> Item:
    """Draw a sentence whose subject and object differ.

    Args:
        rng: Random numbers.
        difficulty: One more than the number of adjectives.
        surface_form: "plain", the only one.

    Returns:
        The item.
    """
    # Adjectives go to none, one or both of subject (0) and object (1).
    nouns = [list(NOUNS)[i] for i in rng.permutation(len(NOUNS))[:2]]
    with_adjective = rng.permutation(2)[: difficulty - 1].tolist()
    subject, direct_object = (
        _draw_noun_phrase(rng, noun, position in with_adjective)
        for position, noun in enumerate(nouns)
    )
    verb = list(VERBS)[int(rng.integers(len(VERBS)))]

    english = " ".join([*subject, verb, *direct_object])
    # A noun phrase backwards has its adjective behind the noun and its article last.
    reordered = [verb, *reversed(direct_object), *reversed(subject)]
    return Item(
        prompt=f"Translate : {english}",
        reference=" ".join(LEXICON[word] for word in reordered),
        worked_solution=" ".join(reordered),
        group="translation",
        difficulty=difficulty,
        id=f"translation/{english}",
        surface_form=surface_form,
    )


def _draw_noun_phrase(rng: np.random.Generator, noun: str, with_adjective: bool) -> list[str]:
    """Article, perhaps an adjective, noun."""
    article = list(ARTICLES)[int(rng.integers(len(ARTICLES)))]
    if not with_adjective:
        return [article, noun]
    adjective = list(ADJECTIVES)[int(rng.integers(len(ADJECTIVES)))]
    return [article, adjective, noun]


def score_answer(item: Item, answer: str) -> float:
    """Token accuracy of a translation.

    Args:
        item: An item of this family.
        answer: The translation.

    Returns:
        The fraction of positions that hold the right word, of those of the longer of translation and reference.
    """
    reference_words = item.reference.split()
    answer_words = answer.split()
    # Positions beyond the shorter of the two hold no pair, so they count as wrong.
    pairs = zip(reference_words, answer_words, strict=False)
    num_correct = sum(expected == word for expected, word in pairs)
    return num_correct / max(len(reference_words), len(answer_words), 1)


FAMILY = Family(
    name="translation",
    description="a toy language with a lexicon of its own and another word order",
    draw_item=draw_item,
    difficulties=(1, 2, 3),
    vocabulary=("Translate", *LEXICON, *LEXICON.values(), *PUNCTUATION),
    score_answer=score_answer,
)
