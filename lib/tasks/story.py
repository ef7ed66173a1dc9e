"""Continuations of a story under a small grammar: many are good, `score_answer` says whether one is.

    A shy fox lived by the lake . It wanted a drum . Go on with 2 sentences .
    <answer> The fox walked to the hill . At last the fox found the drum . </answer>

A story has a hero and a wish. A continuation of n sentences is the last n of trouble, attempt, ending;
it is about the hero and the wish. Difficulty is n, 1 to 3.
"""

import re

import numpy as np

from lib.tasks.item import Family, Item, normalize_whitespace
from lib.tasks.vocabulary import DIGITS, PUNCTUATION, split_words

TRAITS = ("shy", "bold", "old", "small", "kind", "quick")
ANIMALS = ("fox", "owl", "hare", "bear", "frog", "crow")
PLACES = ("lake", "hill", "wood", "field", "cave", "mill")
WISHES = ("drum", "kite", "lamp", "crown", "boat", "bell")
WEATHERS = ("storm", "fog", "frost", "flood")
MOVES = ("walked", "ran", "crept", "went")
FEELINGS = ("happy", "proud", "calm", "tired")

# {hero} and {wish} must be the story's own; capitals stand for any word of a category
TROUBLE = (
    "But a WEATHER came .",
    "But the PLACE was far .",
    "But a TRAIT ANIMAL took the {wish} .",
)
ATTEMPT = (
    "The {hero} MOVE to the PLACE .",
    "The {hero} asked a TRAIT ANIMAL .",
    "The {hero} made a plan .",
)
ENDING = (
    "At last the {hero} found the {wish} .",
    "The {hero} MOVE home with the {wish} .",
    "In the end the {hero} was FEELING .",
)
STAGES = (TROUBLE, ATTEMPT, ENDING)
_CATEGORIES = {
    "WEATHER": WEATHERS,
    "PLACE": PLACES,
    "TRAIT": TRAITS,
    "ANIMAL": ANIMALS,
    "MOVE": MOVES,
    "FEELING": FEELINGS,
}
_CATEGORY = re.compile("|".join(_CATEGORIES))
_PROMPT = re.compile(
    r"A \w+ (\w+) lived by the \w+ \. It wanted a (\w+) \. Go on with (\d) sentences \."
)
_WORDS = split_words(
    "A lived by the It wanted a Go on with sentences But came was far took The to asked made plan At "
    "last found home In end"
)


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str = "plain") -> Item:
    """Draw an opening and one good continuation.

    Args:
        rng: Random numbers.
        difficulty: Sentences of the continuation, 1 to 3.
        surface_form: "plain", the only one.

    Returns:
        The item.
    """
    hero = _pick(rng, ANIMALS)
    wish = _pick(rng, WISHES)
    trait = _pick(rng, TRAITS)
    place = _pick(rng, PLACES)
    opening = f"A {trait} {hero} lived by the {place} . It wanted a {wish} ."
    stages = STAGES[-difficulty:]
    sentences = [_draw_sentence(rng, stage, hero, wish) for stage in stages]
    return Item(
        prompt=f"{opening} Go on with {difficulty} sentences .",
        reference=" ".join(sentences),
        worked_solution="",
        group="story",
        difficulty=difficulty,
        id=f"story/{opening}",
        surface_form=surface_form,
    )


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _draw_sentence(rng: np.random.Generator, stage: tuple[str, ...], hero: str, wish: str) -> str:
    """A sentence of one stage: first its template, then a word for every category in it."""
    template = _pick(rng, stage).format(hero=hero, wish=wish)
    return _CATEGORY.sub(lambda match: _pick(rng, _CATEGORIES[match.group()]), template)


def score_answer(item: Item, answer: str) -> float:
    """Score a continuation by the grammar.

    Args:
        item: An item of this family.
        answer: The continuation.

    Returns:
        The fraction of sentences that the grammar allows at their position. A sentence too many counts as wrong, and
        so does one too few.

    Raises:
        ValueError: If the item's prompt is no opening of a story.
    """
    opening = _PROMPT.search(item.prompt)
    if opening is None:
        raise ValueError(f"not the opening of a story: {item.prompt!r}")
    hero, wish = opening.group(1), opening.group(2)
    length = int(opening.group(3))

    # Sentences end in a point that stands by itself; trailing words without one count as a sentence too.
    clauses = normalize_whitespace(answer).split(" .")
    sentences = [normalize_whitespace(clause) + " ." for clause in clauses if clause.strip()]
    num_correct = 0
    # A sentence is compared with the stage at its position only: trouble, attempt and ending have an order.
    for sentence, stage in zip(sentences, STAGES[-length:], strict=False):
        patterns = [_make_pattern(template, hero, wish) for template in stage]
        num_correct += any(re.fullmatch(pattern, sentence) for pattern in patterns)
    return num_correct / max(length, len(sentences))


def _make_pattern(template: str, hero: str, wish: str) -> str:
    """A regular expression of all sentences that a template allows."""
    # Escaped first: the alternatives that replace the capitals are no text.
    escaped = re.escape(template.format(hero=hero, wish=wish))
    return _CATEGORY.sub(lambda match: f"(?:{'|'.join(_CATEGORIES[match.group()])})", escaped)


FAMILY = Family(
    name="story",
    description="continuations of a story under a grammar with many good answers",
    draw_item=draw_item,
    difficulties=(1, 2, 3),
    vocabulary=(
        *_WORDS,
        *(word for words in _CATEGORIES.values() for word in words),
        *WISHES,
        *DIGITS,
        *PUNCTUATION,
    ),
    score_answer=score_answer,
)
