"""A language model as judge: as a reward (appendix F), and afterwards by majority of three (appendix D).

As a reward it reads question, reference and reply, and says a number from 0 to 1. Replies without the required
format are not shown to it and get 0. The scores become ranks within the group, in `rewards.normalised`. A
judge that says no number three times has no opinion: 1/2, and it is counted. Afterwards it says whether a reply
is good, or which of two is better, three times, and the majority counts; a vote that cannot be read is lost.
"""

import asyncio
import re
from collections.abc import Callable, Sequence

from lib.conductor.rewards import said, well_formed
from lib.experiment import seeds
from lib.llm.client import Client
from lib.llm.client_factory import finish
from lib.llm.errors import ReplyError
from lib.llm.scripted.grading import GRADE_ASKED, PAIR_ASKED, VERDICT_ASKED

VERSION = 1  # of what a judge is asked and how its replies are read
TRIES = 3
VOTES = 3
NO_OPINION = 0.5
_NUMBER = re.compile(r"\s*(0(?:\.\d+)?|1(?:\.0+)?|\.\d+)\s*")
_BETTER = re.compile(r"better answer is ([AB])\W*$")
_RESULT = re.compile(r"result is (True|False)\W*$")
_GRADE = """A question was answered, and you grade the answer. Judge whether it is right and fits the question, \
not how long it is or how it sounds.

{parts}
{asked}
Write one decimal number from 0 (wrong, or beside the question) to 1 (right and complete), and nothing else."""
_VERDICT = """A question was answered. Decide whether the answer is good: right where there is one right answer, \
complete and coherent where there are many.

{parts}
{asked}
Give your reason in one line, then end with the line: So the result is True (or False)."""
_PAIR = """A question was answered twice. Decide which answer is better: right where there is one right answer, \
complete and coherent where there are many; not which is longer or stands first.

# Question
{question}

# Reference
{reference}

# Answer A
{first}

# Answer B
{second}

{asked}
Give your reason in one line, then end with the line: So the better answer is A (or B)."""
_PARTS = """# Question
{question}

# Reference
{reference}

# Answer
{answer}
"""


def prompt(
    question: str, reference: str, answer: str, verdict: bool = False
) -> list[dict[str, str]]:
    """The messages of one grading, or of one vote."""
    parts = _PARTS.format(question=question, reference=reference, answer=answer)
    frame, asked = (_VERDICT, VERDICT_ASKED) if verdict else (_GRADE, GRADE_ASKED)
    return [{"role": "user", "content": frame.format(parts=parts, asked=asked)}]


def pair(question: str, reference: str, first: str, second: str) -> list[dict[str, str]]:
    """The messages of one vote between two answers."""
    text = _PAIR.format(
        question=question, reference=reference, first=first, second=second, asked=PAIR_ASKED
    )
    return [{"role": "user", "content": text}]


def read(text: str) -> float | None:
    """The number that a judge wrote; None where it wrote anything else."""
    found = _NUMBER.fullmatch(text)
    return float(found.group(1)) if found else None


def voted(text: str) -> bool | None:
    """The verdict that a judge ended with; None where there is none."""
    found = _RESULT.search(text)
    return found.group(1) == "True" if found else None


def preferred(text: str) -> str | None:
    """The answer, A or B, that a judge ended with; None where there is none."""
    found = _BETTER.search(text)
    return found.group(1) if found else None


class JudgeReward:
    """A judge as a reward function. `lost` counts replies on which it had no opinion."""

    __name__ = "judge"

    def __init__(
        self, client: Callable[[], Client], model: str, think: bool = False, seed: int = 0
    ) -> None:
        """client: opens one; every batch has its own, as a batch has its own event loop."""
        self.client, self.model, self.think, self.seed, self.lost = client, model, think, seed, 0

    def __call__(
        self, prompts: Sequence, completions: Sequence, reference: Sequence[str], **_
    ) -> list[float]:
        """Scores in [0, 1]. Lets through what stops a run (BudgetExceeded, ConfigurationError)."""

        async def grade_all() -> list[float]:
            async with self.client() as client:
                rows = zip(prompts, map(said, completions), reference, strict=True)
                return await asyncio.gather(*(self._grade(client, *row) for row in rows))

        return finish(grade_all())

    async def _grade(self, client: Client, asked, reply: str, reference: str) -> float:
        if not well_formed(reply, self.think):
            return 0.0
        messages = prompt(
            asked if isinstance(asked, str) else asked[-1]["content"], reference, reply
        )
        for sample in range(TRIES):
            score = read(await _said(client, self.model, messages, self.seed, sample))
            if score is not None:
                return score
        self.lost += 1
        return NO_OPINION


def majority(
    client: Callable[[], Client],
    model: str,
    questions: Sequence[str],
    references: Sequence[str],
    answers: Sequence[str],
    rivals: Sequence[str] | None = None,
) -> list[bool | None]:
    """Whether each answer is good or, beside rivals, better than its rival, by majority of three votes; None where
    votes are tied or all lost, and where both say the same. The rival stands first in every other vote."""

    async def good(opened: Client, *row: str) -> bool | None:
        messages = prompt(*row, verdict=True)
        return _most(
            [voted(await _said(opened, model, messages, 0, sample)) for sample in range(VOTES)]
        )

    async def better(
        opened: Client, question: str, reference: str, answer: str, rival: str
    ) -> bool | None:
        if answer == rival:
            return None
        votes = []
        for sample in range(VOTES):
            ours, shown = ("A", (answer, rival)) if sample % 2 == 0 else ("B", (rival, answer))
            said = preferred(
                await _said(opened, model, pair(question, reference, *shown), 0, sample)
            )
            votes.append(None if said is None else said == ours)
        return _most(votes)

    async def vote_all() -> list[bool | None]:
        columns = (questions, references, answers) + (() if rivals is None else (rivals,))
        async with client() as opened:
            vote = good if rivals is None else better
            return await asyncio.gather(*(vote(opened, *row) for row in zip(*columns, strict=True)))

    return finish(vote_all())


def _most(votes: Sequence[bool | None]) -> bool | None:
    yes, no = votes.count(True), votes.count(False)
    return None if yes == no else yes > no


async def _said(
    client: Client, model: str, messages: list[dict[str, str]], seed: int, sample: int
) -> str:
    """A judge's words; none where no reply could be used."""
    drawn = int(seeds.key("conductor judge", sample, seed=seed) % 2**31)
    try:
        return (await client.chat(model, messages, seed=drawn, sample=sample, who="judge")).text
    except ReplyError:
        return ""
