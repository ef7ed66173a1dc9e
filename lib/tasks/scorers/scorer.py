"""What a scorer is, what it answers, and how one is named in settings.

Left out: how replies come about, and averages over scores; a mean has to leave out lost judgements and report them.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.llm.chat_model import ChatModel
from lib.llm.event_loop import run_coroutine
from lib.tasks.item import Item

# What there is, with the meaning of what may stand behind the colon.
SCORERS = {
    "exact": "equal text, but for case, punctuation and articles",
    "choice": "the letter or the text of an option",
    "numeric": "equal numbers; numeric:0.01 allows a relative difference of 0.01",
    "math": "equal expressions, by math-verify",
    "f1": "overlap of words as in SQuAD; f1:drop follows DROP",
    "code": "unit tests, run in the sandbox",
    "judge:MODEL": "a grade from the language model of that name",
    "module:function": "a function of yours: function(item, reply) is a number from 0 to 1",
    "tags": "the procedural families' strict rule: the answer in the last <answer> tags",
}


class ScorerError(ValueError):
    """A scorer that does not exist, or an item that it cannot score; the message names the remedy."""


@dataclass(frozen=True)
class Score:
    """How good one reply is.

    Attributes:
        value: In [0, 1]; nan where the judgement was lost.
        extracted: The final answer as it was read; None where the reply holds none.
        explanation: Why the value is what it is, in one line.
        failure: Why there is no judgement, as "kind: detail"; None where there is one.

    Raises:
        ValueError: The value is outside [0, 1], or nan without a failure, or a number with one.
    """

    value: float
    extracted: str | None = None
    explanation: str = ""
    failure: str | None = None

    def __post_init__(self) -> None:
        if self.failure is not None:
            if not math.isnan(self.value):
                raise ValueError(
                    f"a lost judgement ({self.failure}) has the value nan, not {self.value}"
                )
        elif not 0 <= self.value <= 1:
            raise ValueError(f"a score is a number from 0 to 1, not {self.value}")

    @property
    def lost(self) -> bool:
        """Whether there is no judgement, so that the score may not enter a mean."""
        return self.failure is not None


class Scorer(ABC):
    """Scores replies to items.

    Attributes:
        name: As `make_scorer` takes it.
    """

    name: str

    async def score_all(self, items: Sequence[Item], replies: Sequence[str]) -> list[Score]:
        """Scores one reply to each of many items (questions with reference answers).

        Args:
            items: The questions.
            replies: A model's whole reply to each item, in the same order.

        Returns:
            Scores in the order of the items.

        Raises:
            ScorerError: There are not as many replies as items, or an item lacks what the scorer needs.
        """
        if len(items) != len(replies):
            raise ScorerError(
                f"{self.name}: {len(items)} items and {len(replies)} replies; give one reply per item"
            )
        return await self._score_batch(items, replies) if items else []

    def score(self, items: Sequence[Item], replies: Sequence[str]) -> list[Score]:
        """Scores one reply to each of many items, and waits for the scores; `score_all` is its asynchronous form.

        Args:
            items: The questions with their reference answers.
            replies: A model's whole reply to each item, in the same order.

        Returns:
            Scores in the order of the items.

        Raises:
            ScorerError: As `score_all`.
        """
        return run_coroutine(self.score_all(items, replies))

    @abstractmethod
    async def _score_batch(self, items: Sequence[Item], replies: Sequence[str]) -> list[Score]:
        """Scores replies to items, as many as there are items and at least one; called by `score_all`."""


class ReplyScorer(Scorer):
    """A scorer that looks at one reply after the other, in a thread, so that an event loop stays free."""

    @abstractmethod
    def score_reply(self, item: Item, reply: str) -> Score:
        """Scores one reply.

        Args:
            item: The question with its reference answer.
            reply: A model's whole reply.

        Returns:
            The score.

        Raises:
            ScorerError: The item lacks what the scorer needs.
        """

    async def _score_batch(self, items: Sequence[Item], replies: Sequence[str]) -> list[Score]:
        return await asyncio.to_thread(self._score_in_order, items, replies)

    def _score_in_order(self, items: Sequence[Item], replies: Sequence[str]) -> list[Score]:
        pairs = zip(items, replies, strict=True)
        return [self.score_reply(item, reply) for item, reply in pairs]


def list_references(item: Item) -> list[str]:
    """List the answers to an item that count as right: the reference and its alternatives."""
    return [item.reference, *item.alternatives]


def make_scorer(specification: str, models: Mapping[str, ChatModel] | None = None) -> Scorer:
    """Makes a scorer from its name in the settings.

        make_scorer("numeric:0.01")

    Args:
        specification: A name of SCORERS, perhaps with what stands behind its colon.
        models: The language models that `judge:MODEL` may name.

    Returns:
        The scorer.

    Raises:
        ScorerError: There is no such scorer, no such model, or no such function; the message lists what there is.
    """
    # Imported here, because these modules build on this one.
    from lib.tasks.scorers.code_scorer import CodeScorer
    from lib.tasks.scorers.custom_scorer import CustomScorer
    from lib.tasks.scorers.judge_scorer import JudgeScorer
    from lib.tasks.scorers.math_scorers import MathScorer, NumericScorer
    from lib.tasks.scorers.tag_scorer import TagScorer
    from lib.tasks.scorers.text_scorers import ChoiceScorer, ExactScorer, F1Scorer

    plain_scorers = {
        "exact": ExactScorer,
        "choice": ChoiceScorer,
        "numeric": NumericScorer,
        "math": MathScorer,
        "f1": F1Scorer,
        "code": CodeScorer,
        "tags": TagScorer,
    }
    if specification in plain_scorers:
        return plain_scorers[specification]()

    kind, _, argument = specification.partition(":")
    if kind == "numeric" and argument:
        return NumericScorer(_read_tolerance(specification, argument))
    if specification == "f1:drop":
        return F1Scorer(rules="drop")
    if kind == "judge":
        available = dict(models or {})
        if argument not in available:
            names = ", ".join(available) or "none"
            raise ScorerError(
                f"{specification!r}: there is no model {argument!r}; models are {names}; name one as judge:MODEL"
            )
        return JudgeScorer(available[argument], name=specification)
    # A name of ours with a colon that it does not take is no module of the user's.
    if kind and argument and kind not in plain_scorers:
        return CustomScorer(specification)
    names = "; ".join(f"{name} ({meaning})" for name, meaning in SCORERS.items())
    raise ScorerError(f"unknown scorer {specification!r}; there are: {names}")


def _read_tolerance(specification: str, argument: str) -> float:
    """Read the relative tolerance of a scorer's name such as "numeric:0.01".

    Args:
        specification: The whole name, for error messages.
        argument: What stands behind its colon.

    Returns:
        The tolerance.

    Raises:
        ScorerError: Where it is no number from 0 on.
    """
    try:
        tolerance = float(argument)
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise ScorerError(
            f"{specification!r}: a tolerance is a number from 0 on, not {argument!r}; say numeric:0.01"
        )
    return tolerance
