"""What a language task is: an item, how an answer to it is judged, and which split it belongs to.

Every reply has one form: `<think> ... </think> <answer> ... </answer>`, where the thoughts may be missing. Judging is
strict about what stands in the last answer tags and tolerant about white space. Splits are disjoint by construction:
the hash of an item's `id` decides, and two surface forms of the same content (a sum in digits, the same sum as a word
problem) have the same id. Left out: what the tasks are about, which each family's module says.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SPLITS = ("train", "dev", "test")
# The innermost tags at the end of a text: nothing but white space may follow.
_FINAL_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>\s*$", re.DOTALL)


class TaskError(ValueError):
    """A task that does not exist, or a file of tasks that cannot be read; the message names which."""


@dataclass(frozen=True)
class Item:
    """One task: what a model is asked, and what its reply is compared with.

    Attributes:
        prompt: The text of the last user message.
        reference: The final answer.
        worked_solution: The reasoning that leads to the answer, without tags; empty where there is none.
        group: The family, subject or domain; comparisons are split by it.
        difficulty: A whole number, higher is harder; 1 where nothing is known.
        id: What the item is about. Its hash decides the split, so two wordings of one content share it.
        surface_form: How the content is worded, for example in digits or as a word problem.
        choices: The options of a multiple-choice question, in the order of their letters.
        alternatives: Further answers that are as good as `reference`.
        history: Earlier messages as (role, content), a system message among them.
        metadata: Whatever else the source says of the item, for example unit tests of a program.
    """

    prompt: str
    reference: str
    worked_solution: str
    group: str
    difficulty: int
    id: str
    surface_form: str = "plain"
    choices: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    history: tuple[tuple[str, str], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation up to where the model is to reply, as in OpenAI's API."""
        turns = (*self.history, ("user", self.prompt))
        return [{"role": role, "content": content} for role, content in turns]

    @property
    def split(self) -> str:
        """train (8 of 10), dev or test, from the hash of the id."""
        # A hash instead of random numbers: no list of items has to be kept to know where one belongs.
        digest = hashlib.sha256(self.id.encode()).digest()
        last_digit = int.from_bytes(digest[:8], "little") % 10
        return {8: "dev", 9: "test"}.get(last_digit, "train")

    @property
    def solution(self) -> str:
        """The worked solution and the answer as a whole reply."""
        return format_reply(self.reference, self.worked_solution)


def format_reply(answer: str, reasoning: str = "") -> str:
    """Write a reply in the form that models are trained on: `<think> reasoning </think> <answer> answer </answer>`.

    Args:
        answer: The final answer.
        reasoning: The steps that lead to it; empty for a reply without think tags.

    Returns:
        The reply.
    """
    tagged_answer = f"<answer> {answer} </answer>"
    return f"<think> {reasoning} </think> {tagged_answer}" if reasoning else tagged_answer


def extract_answer(text: str) -> str | None:
    """Read what stands in the answer tags at the end of a reply.

    Args:
        text: A whole reply.

    Returns:
        The answer with single blanks; None where the reply does not end in answer tags.
    """
    match = _FINAL_ANSWER.search(text)
    return normalize_whitespace(match.group(1)) if match else None


def normalize_whitespace(text: str) -> str:
    """Every run of white space as one blank, and none at the ends."""
    return " ".join(text.split())


def answers_match(expected: str, answer: str) -> bool:
    """Whether two answers are equal but for white space; blanks inside a number count."""
    return normalize_whitespace(expected) == normalize_whitespace(answer)


def score_exact_match(item: Item, answer: str) -> float:
    """1 for the reference answer, 0 for any other."""
    return float(answers_match(item.reference, answer))


DrawItem = Callable[[np.random.Generator, int, str], Item]
ScoreAnswer = Callable[[Item, str], float]


@dataclass(frozen=True)
class Family:
    """A procedural family: items that a program draws, of any number.

    Attributes:
        name: The `group` of its items.
        description: What it asks, in one line.
        draw_item: From (random numbers, difficulty, surface form) to an item of any split.
        difficulties: Those that there are, from the easiest.
        vocabulary: All words that its items are made of.
        surface_forms: How its contents can be worded; the first is the usual one.
        score_answer: From an item and what stood in the answer tags to a score in [0, 1].
    """

    name: str
    description: str
    draw_item: DrawItem
    difficulties: tuple[int, ...]
    vocabulary: tuple[str, ...]
    surface_forms: tuple[str, ...] = ("plain",)
    score_answer: ScoreAnswer = score_exact_match
