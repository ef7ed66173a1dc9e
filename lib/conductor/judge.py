"""A language model as reward: it reads question, reference and reply, and says a number from 0 to 1 (appendix F).

Replies without the required format are not shown to it and get 0. The scores become ranks within the group,
in `rewards.normalised`. A judge that says no number three times has no opinion: 1/2, and it is counted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from lib import seeds
from lib.conductor.rewards import said, well_formed
from lib.llm.client import Client
from lib.llm.errors import ReplyError
from lib.llm.opening import finish
from lib.llm.scripted.grading import GRADE_ASKED

TRIES = 3
NO_OPINION = 0.5
_NUMBER = re.compile(r"\s*(0(?:\.\d+)?|1(?:\.0+)?|\.\d+)\s*")
_PROMPT = """A question was answered, and you grade the answer. Judge whether it is right and fits the question, \
not how long it is or how it sounds.

# Question
{question}

# Reference
{reference}

# Answer
{answer}

{asked}
Write one decimal number from 0 (wrong, or beside the question) to 1 (right and complete), and nothing else."""


def prompt(question: str, reference: str, answer: str) -> list[dict[str, str]]:
    """The messages of one grading."""
    text = _PROMPT.format(question=question, reference=reference, answer=answer, asked=GRADE_ASKED)
    return [{"role": "user", "content": text}]


def read(text: str) -> float | None:
    """The number that a judge wrote; None where it wrote anything else."""
    found = _NUMBER.fullmatch(text)
    return float(found.group(1)) if found else None


class Judge:
    """A judge as a reward function. `lost` counts replies on which it had no opinion."""

    __name__ = "judge"

    def __init__(self, client: Client, model: str, think: bool = False, seed: int = 0) -> None:
        self.client, self.model, self.think, self.seed, self.lost = client, model, think, seed, 0

    def __call__(self, prompts: Sequence, completions: Sequence, reference: Sequence[str], **_) -> list[float]:
        """Scores in [0, 1]. Lets through what stops a run (BudgetExceeded, ConfigurationError)."""

        async def grade_all() -> list[float]:
            graded = (self._grade(*row) for row in zip(prompts, map(said, completions), reference, strict=True))
            return await asyncio.gather(*graded)

        return finish(grade_all())

    async def _grade(self, asked, reply: str, reference: str) -> float:
        if not well_formed(reply, self.think):
            return 0.0
        messages = prompt(asked if isinstance(asked, str) else asked[-1]["content"], reference, reply)
        for sample in range(TRIES):
            seed = int(seeds.key("conductor judge", sample, seed=self.seed) % 2**31)
            try:
                answer = await self.client.chat(self.model, messages, seed=seed, sample=sample, who="judge")
            except ReplyError:
                continue
            score = read(answer.text)
            if score is not None:
                return score
        self.lost += 1
        return NO_OPINION
