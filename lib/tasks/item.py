"""What a language task is: an item, how an answer to it is judged, and which split it belongs to.

Every reply has one shape: `<think> ... </think> <answer> ... </answer>`, the first part optional. A
verifier is strict about what stands in the last answer tags and tolerant about white space. Splits
are disjoint by construction: the hash of an item's `key` decides, and two skins of the same content
(a sum in digits, the same sum as a word problem) have the same key.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

SPLITS = ("train", "dev", "test")
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>\s*$", re.DOTALL)


class TaskError(ValueError):
    """A task that does not exist, or a file of tasks that cannot be read; the message names the place."""


@dataclass(frozen=True)
class Item:
    """One task.

    prompt: what is asked; answer: the final answer; reference: a worked solution, without tags;
    category: the family or the file's subject; difficulty: whole number, higher is harder; key: the
    content that decides the split; skin: how the content is worded; choices: for multiple choice.
    """

    prompt: str
    answer: str
    reference: str
    category: str
    difficulty: int
    key: str
    skin: str = "plain"
    choices: tuple[str, ...] = ()

    @property
    def split(self) -> str:
        """train (8 of 10), dev or test, from the hash of the key."""
        tenth = int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:8], "little") % 10
        return {8: "dev", 9: "test"}.get(tenth, "train")

    @property
    def solution(self) -> str:
        """The reference and the answer as a whole reply."""
        return reply(self.answer, self.reference)


Draw = Callable[[np.random.Generator, int, str], Item]
Score = Callable[[Item, str], float]


@dataclass(frozen=True)
class Family:
    """A procedural family: draw(generator, difficulty, skin) makes an item of any split; score(item,
    answer) judges what stood in the answer tags, in [0, 1]; `words` is the vocabulary it is made of."""

    name: str
    about: str
    draw: Draw
    difficulties: tuple[int, ...]
    words: tuple[str, ...]
    skins: tuple[str, ...] = ("plain",)
    score: Score = field(default=lambda item, answer: float(same(item.answer, answer)))


def reply(answer: str, thought: str = "") -> str:
    """A whole reply around an answer."""
    answered = f"<answer> {answer} </answer>"
    return f"<think> {thought} </think> {answered}" if thought else answered


def tidy(text: str) -> str:
    """White space as single blanks."""
    return " ".join(text.split())


def same(expected: str, given: str) -> bool:
    """Equal but for white space; blanks inside a number count."""
    return tidy(expected) == tidy(given)


def answered(text: str) -> str | None:
    """What stands in the answer tags at the end of a reply; None where the reply does not end in them."""
    found = _ANSWER.search(text)
    return tidy(found.group(1)) if found else None
