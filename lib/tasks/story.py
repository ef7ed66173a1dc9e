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

# Templates of sentences. {hero} and {wish} are filled with the animal and the thing that the opening names; a word in
# capitals stands for any word of its category, such as PLACE for one of PLACES.
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
# A continuation of n sentences goes through the last n of these stages, one sentence for each.
TEMPLATES_BY_STAGE = (TROUBLE, ATTEMPT, ENDING)
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
    """Draw the opening of a story as a question, and one good continuation as its reference answer.

    Args:
        rng: Random numbers.
        difficulty: Number of sentences of the continuation, 1 to 3.
        surface_form: "plain", the only one.

    Returns:
        The item. Its opening names a hero (an animal) and the hero's wish (the thing it wanted).
    """
    hero = _pick(rng, ANIMALS)
    wish = _pick(rng, WISHES)
    trait = _pick(rng, TRAITS)
    place = _pick(rng, PLACES)
    opening = f"A {trait} {hero} lived by the {place} . It wanted a {wish} ."
    # A story of two sentences, for example, has an attempt and an ending.
    sentences = [
        _draw_sentence(rng, templates, hero, wish) for templates in TEMPLATES_BY_STAGE[-difficulty:]
    ]
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


def _draw_sentence(
    rng: np.random.Generator, templates: tuple[str, ...], hero: str, wish: str
) -> str:
    """Draw a template such as "The {hero} MOVE to the PLACE ." and fill it: "The fox walked to the hill ."

    Args:
        rng: Random numbers.
        templates: Templates to choose from.
        hero: The animal of the story.
        wish: The thing that it wanted.

    Returns:
        The sentence, with a random word for every category in capitals.
    """
    template = _pick(rng, templates).format(hero=hero, wish=wish)
    return _CATEGORY.sub(lambda match: _pick(rng, _CATEGORIES[match.group()]), template)


def score_answer(item: Item, answer: str) -> float:
    """Score the continuation of a story: the fraction of its sentences that follow a fixed template.

    The prompt of a story item names a hero and the hero's wish: "A shy fox lived by the lake . It wanted a drum . Go on
    with 2 sentences ." Each sentence of a good continuation follows one of three templates of its stage; the stages are
    trouble, attempt, ending, in this order, and a shorter continuation leaves out the first ones.

    Args:
        item: The story item.
        answer: The continuation, for example "The fox made a plan . At last the fox found the drum ."

    Returns:
        The score, from 0 to 1. A missing sentence counts as wrong, and so does a superfluous one.

    Raises:
        ValueError: If the item's prompt is not the opening of a story.
    """
    opening = _PROMPT.search(item.prompt)
    if opening is None:
        raise ValueError(f"not the opening of a story: {item.prompt!r}")
    hero, wish, length = opening.groups()
    num_expected = int(length)

    # Sentences end in a point that stands by itself; trailing words without one count as a sentence too.
    clauses = normalize_whitespace(answer).split(" .")
    sentences = [normalize_whitespace(clause) + " ." for clause in clauses if clause.strip()]

    # Sentence i must fit a template of stage i. (The shorter of the two lists decides how many are compared.)
    expected_templates = TEMPLATES_BY_STAGE[-num_expected:]
    num_correct = 0
    for sentence, templates in zip(sentences, expected_templates, strict=False):
        num_correct += any(_fits_template(sentence, template, hero, wish) for template in templates)
    return num_correct / max(num_expected, len(sentences))


def _fits_template(sentence: str, template: str, hero: str, wish: str) -> bool:
    """Whether a sentence is what a template becomes with this hero, this wish and any words of its categories.

    Args:
        sentence: For example "The fox walked to the hill ."
        template: For example "The {hero} MOVE to the PLACE ."
        hero: The animal of the story.
        wish: The thing that it wanted.

    Returns:
        Whether it fits in every word.
    """
    # Escaped before categories become alternatives, (?:walked|ran|...), whose signs must not be escaped.
    escaped_template = re.escape(template.format(hero=hero, wish=wish))
    pattern = _CATEGORY.sub(
        lambda match: f"(?:{'|'.join(_CATEGORIES[match.group()])})", escaped_template
    )
    return re.fullmatch(pattern, sentence) is not None


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
