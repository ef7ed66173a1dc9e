"""Replies as an untrained policy writes them: right or wrong, with thoughts of different use, in form or not.

A reply is put together from independent choices, each with a stated probability:

    content   right, or a typical error of its category
    thought   none; one that leads to the content; or one that repeats itself, which a limit of tokens often cuts off
    form      as required, or one of five typical mistakes of form

Whether a thought helps differs by category, as it does for people: with one, sums are more often right and translations
more often word for word. So no single reward tells the truth everywhere.
"""

import numpy as np

from lib.conductor.data import get_category
from lib.config import InitialPolicySettings
from lib.tasks import Item, arithmetic_chain, format_reply, story, translation

VERSION = 1  # of typical replies
_MIN_REPEATS, _MAX_REPEATS = 4, 12  # of a thought that repeats itself
Content = tuple[str, str]  # a thought and the answer that it leads to


def write_typical_reply(
    item: Item, settings: InitialPolicySettings, rng: np.random.Generator
) -> str:
    """Write one reply to an item.

    Args:
        item: The question.
        settings: The probabilities.
        rng: Random numbers.

    Returns:
        The reply.
    """
    has_thought = rng.random() < settings.thought_rate
    error_rates = settings.error_rates[get_category(item)]
    error_rate = error_rates.with_thought if has_thought else error_rates.without_thought
    if rng.random() < error_rate:
        thought, answer = write_error(item, rng, has_thought)
    else:
        thought, answer = write_thought(item), item.reference
    if not has_thought:
        thought = ""
    elif rng.random() < settings.repetition_rate:
        num_repeats = int(rng.integers(_MIN_REPEATS, _MAX_REPEATS + 1))
        # The limit of tokens cuts many of these replies off, so that lengths differ within groups.
        thought = " ; ".join([thought] * num_repeats)
    if rng.random() < settings.malformed_rate:
        return write_malformed(thought, answer, rng)
    return format_reply(answer, thought)


def write_thought(item: Item) -> str:
    """The thought that leads to the right answer: the worked solution; of a story, its hero and wish."""
    if get_category(item) == "story":
        hero, wish = _read_opening(item)
        return _write_plan(hero, wish)
    return item.worked_solution


def write_malformed(thought: str, answer: str, rng: np.random.Generator) -> str:
    """Write a reply that breaks the required form in one of five typical ways, at random.

    Args:
        thought: The reasoning; may be empty.
        answer: The answer, which can still be read in three of the five ways.
        rng: Random numbers.

    Returns:
        The reply.
    """
    tagged_thought = f"<think> {thought} </think> " if thought else ""
    tagged_answer = f"<answer> {answer} </answer>"
    replies = (
        f"{tagged_thought}<answer> {answer}",  # the answer is not closed
        f"{tagged_thought}{answer}",  # it has no tags
        f"The answer {tagged_answer}",  # words before the tags
        f"{tagged_thought}{tagged_answer} {tagged_answer}",  # it is given twice
        f"<think> {thought or answer} {tagged_answer}",  # the thought is not closed
    )
    return _choose(rng, replies)


def write_error(item: Item, rng: np.random.Generator, has_thought: bool = True) -> Content:
    """Write the thought and answer of a typical error.

    Args:
        item: The question.
        rng: Random numbers.
        has_thought: Whether the thought is written down; errors of stories differ by it.

    Returns:
        Thought and answer.
    """
    category = get_category(item)
    if category == "reasoning":
        return _confuse_operation(item, rng)
    if category == "translation":
        return _translate_word_for_word(item)
    if has_thought:
        return _write_about_another_hero(item, rng)
    return "", _repeat_sentence(item)


def _confuse_operation(item: Item, rng: np.random.Generator) -> Content:
    """Write the calculation with one operation confused with another one, at random among those with a wrong result.

    Args:
        item: A chain of operations, such as 3 + 4 * 2.
        rng: Random numbers.

    Returns:
        The steps as thought, and the wrong result.
    """
    # "chain/3 + 4 * 2" has the start 3, the signs + and *, the digits 4 and 2.
    first, *symbols = item.id.removeprefix("chain/").split()
    signs = symbols[::2]
    digits = [int(digit) for digit in symbols[1::2]]
    # Every sign in turn is replaced by every operation; the thought shows the wrong step.
    candidates = []
    for i in range(len(signs)):
        for other_sign in arithmetic_chain.OPERATIONS:
            changed_signs = [*signs[:i], other_sign, *signs[i + 1 :]]
            candidates.append(_work_out(int(first), changed_signs, digits))
    wrong = [candidate for candidate in candidates if candidate[1] != item.reference]
    # A chain of zeros alone has no wrong result.
    return _choose(rng, wrong or candidates[:1])


def _work_out(total: int, signs: list[str], digits: list[int]) -> Content:
    """Calculate a chain of operations from left to right.

    Args:
        total: The first number.
        signs: The operations.
        digits: The numbers after them.

    Returns:
        The steps in words, and the result.
    """
    steps = []
    for sign, digit in zip(signs, digits, strict=True):
        result = arithmetic_chain.OPERATIONS[sign](total, digit)
        steps.append(f"{total} {sign} {digit} = {result}")
        total = result
    return " ; ".join(steps), str(total)


def _translate_word_for_word(item: Item) -> Content:
    """In the order of English."""
    english = item.prompt.removeprefix("Translate : ").split()
    return " ".join(english), " ".join(translation.LEXICON[word] for word in english)


def _write_about_another_hero(item: Item, rng: np.random.Generator) -> Content:
    """A good story, but with another hero and another wish than the opening's."""
    hero, wish = _read_opening(item)
    other_hero = _choose(rng, [animal for animal in story.ANIMALS if animal != hero])
    other_wish = _choose(rng, [thing for thing in story.WISHES if thing != wish])
    text = item.reference.replace(f" {hero} ", f" {other_hero} ")
    return _write_plan(other_hero, other_wish), text.replace(f" {wish} ", f" {other_wish} ")


def _repeat_sentence(item: Item) -> str:
    """The same stock sentence again and again: no ending, and nothing new."""
    hero, _ = _read_opening(item)
    return " ".join([story.ATTEMPT[-1].format(hero=hero)] * item.difficulty)


def _read_opening(item: Item) -> tuple[str, str]:
    """Hero and wish of "A shy fox lived by the lake . It wanted a drum . ...": words 3 and 12."""
    words = item.prompt.split()
    return words[2], words[11]


def _write_plan(hero: str, wish: str) -> str:
    return f"the {hero} wanted the {wish}"


def _choose(rng: np.random.Generator, choices):
    return choices[int(rng.integers(len(choices)))]
