"""Continuations of a story under a small grammar: many are good, `score` says whether one is.

    A shy fox lived by the lake . It wanted a drum . Go on with 2 sentences .
    <answer> The fox walked to the hill . At last the fox found the drum . </answer>

A story has a hero and a wish. A continuation of n sentences is the last n of trouble, attempt, ending;
it is about the hero and the wish. Difficulty is n, 1 to 3.
"""

import re

import numpy as np

from lib.tasks.item import Family, Item, tidy
from lib.tasks.vocabulary import DIGITS, POINTS, words

TRAITS = ("shy", "bold", "old", "small", "kind", "quick")
ANIMALS = ("fox", "owl", "hare", "bear", "frog", "crow")
PLACES = ("lake", "hill", "wood", "field", "cave", "mill")
WISHES = ("drum", "kite", "lamp", "crown", "boat", "bell")
WEATHERS = ("storm", "fog", "frost", "flood")
MOVES = ("walked", "ran", "crept", "went")
FEELINGS = ("happy", "proud", "calm", "tired")

# {hero} and {wish} must be the story's own; a capital stands for any word of that kind
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
PARTS = (TROUBLE, ATTEMPT, ENDING)
_KINDS = {
    "WEATHER": WEATHERS,
    "PLACE": PLACES,
    "TRAIT": TRAITS,
    "ANIMAL": ANIMALS,
    "MOVE": MOVES,
    "FEELING": FEELINGS,
}
_KIND = re.compile("|".join(_KINDS))
_OPENING = re.compile(
    r"A \w+ (\w+) lived by the \w+ \. It wanted a (\w+) \. Go on with (\d) sentences \."
)
_WORDS = words(
    "A lived by the It wanted a Go on with sentences But came was far took The to asked made plan At "
    "last found home In end"
)


def draw(rng: np.random.Generator, difficulty: int, skin: str = "plain") -> Item:
    """An opening and one good continuation of `difficulty` sentences."""
    hero, wish = _one(rng, ANIMALS), _one(rng, WISHES)
    opening = (
        f"A {_one(rng, TRAITS)} {hero} lived by the {_one(rng, PLACES)} . It wanted a {wish} ."
    )
    answer = " ".join(_sentence(rng, part, hero, wish) for part in PARTS[-difficulty:])
    prompt = f"{opening} Go on with {difficulty} sentences ."
    return Item(prompt, answer, "", "story", difficulty, f"story/{opening}", skin)


def _one(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _sentence(rng: np.random.Generator, part: tuple[str, ...], hero: str, wish: str) -> str:
    return _KIND.sub(
        lambda kind: _one(rng, _KINDS[kind.group()]), _one(rng, part).format(hero=hero, wish=wish)
    )


def score(item: Item, answer: str) -> float:
    """Share of sentences in their place that the grammar allows; a sentence too many or too few counts as wrong."""
    found = _OPENING.search(item.prompt)
    if found is None:
        raise ValueError(f"not the opening of a story: {item.prompt!r}")
    hero, wish, wanted = found.group(1), found.group(2), int(found.group(3))
    sentences = [tidy(s) + " ." for s in tidy(answer).split(" .") if s.strip()]
    good = [
        any(re.fullmatch(_pattern(form, hero, wish), sentence) for form in part)
        for sentence, part in zip(sentences, PARTS[-wanted:], strict=False)
    ]
    return sum(good) / max(wanted, len(sentences))


def _pattern(form: str, hero: str, wish: str) -> str:
    said = re.escape(form.format(hero=hero, wish=wish))
    return _KIND.sub(lambda kind: f"(?:{'|'.join(_KINDS[kind.group()])})", said)


FAMILY = Family(
    "story",
    "continuations of a story under a grammar with many good answers",
    draw,
    (1, 2, 3),
    (*_WORDS, *(word for kind in _KINDS.values() for word in kind), *WISHES, *DIGITS, *POINTS),
    score=score,
)
