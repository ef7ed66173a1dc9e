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
    """Draw an English sentence to be translated into a toy language, with the translation as reference.

    Args:
        rng: Random numbers.
        difficulty: One more than the number of adjectives, 1 to 3.
        surface_form: "plain", the only one.

    Returns:
        The item. Its worked solution is the English words in the order of the toy language.
    """
    subject_noun, object_noun = (list(NOUNS)[i] for i in rng.permutation(len(NOUNS))[:2])
    # Which noun phrases have an adjective: none, one or both of subject (0) and object (1).
    with_adjective = rng.permutation(2)[: difficulty - 1].tolist()
    subject = _draw_noun_phrase(rng, subject_noun, 0 in with_adjective)
    direct_object = _draw_noun_phrase(rng, object_noun, 1 in with_adjective)
    verb = list(VERBS)[int(rng.integers(len(VERBS)))]

    english = " ".join([*subject, verb, *direct_object])
    # The toy language says verb, object, subject, and every noun phrase backwards: noun, adjective, article.
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
    """Draw the words of a noun phrase: an article, an adjective if there is to be one, and the noun."""
    article = list(ARTICLES)[int(rng.integers(len(ARTICLES)))]
    if not with_adjective:
        return [article, noun]
    adjective = list(ADJECTIVES)[int(rng.integers(len(ADJECTIVES)))]
    return [article, adjective, noun]


def score_answer(item: Item, answer: str) -> float:
    """Score a translation by its token accuracy: the fraction of positions that hold the word of the reference.

    Args:
        item: A sentence to be translated, with the right translation as its reference.
        answer: The translation.

    Returns:
        Number of matching positions divided by the number of words of the longer text, from 0 to 1.
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
