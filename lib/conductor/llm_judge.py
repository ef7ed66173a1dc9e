"""A language model as judge: as a reward (appendix F), and afterwards by majority of three (appendix D).

As a reward it reads question, reference and reply, and writes a number from 0 to 1, which is read as people write
numbers ("Score: 0.8", "80%"). Replies without the required format are not shown to it and get 0. The scores become
ranks within the group, in `rewards.normalize_rewards`. A judgement that stays unreadable is lost: the reply gets the
mean of its group, so that nothing is learned from it, and where more than 5 % are lost the run ends. Afterwards the
judge says whether a reply is good, or which of two is better, three times, and the majority counts; a vote that cannot
be read is lost.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from statistics import fmean

from lib.conductor.reply_format import get_completion_text, is_well_formed
from lib.experiment import seeds
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.errors import LLMError
from lib.llm.event_loop import run_coroutine
from lib.llm.failure_policy import MAX_SHARE, MIN_FAILURES
from lib.llm.open_models import ChatModels
from lib.llm.scripted.grading import GRADE_ASKED, PAIR_ASKED, VERDICT_ASKED
from lib.tasks.scorers.extraction import read_score

VERSION = 1  # of what a judge is asked and how its replies are read
TRIES = 3
VOTES = 3
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


def write_grading_prompt(
    question: str, reference: str, answer: str, verdict: bool = False
) -> list[dict[str, str]]:
    """Write the message that asks a judge to grade an answer, or to vote on it.

    Args:
        question: The question.
        reference: Its reference answer.
        answer: The answer to be judged.
        verdict: Ask for a yes or no instead of a grade.

    Returns:
        One user message.
    """
    parts = _PARTS.format(question=question, reference=reference, answer=answer)
    if verdict:
        content = _VERDICT.format(parts=parts, asked=VERDICT_ASKED)
    else:
        content = _GRADE.format(parts=parts, asked=GRADE_ASKED)
    return [{"role": "user", "content": content}]


def write_pair_prompt(
    question: str, reference: str, first: str, second: str
) -> list[dict[str, str]]:
    """Write the message that asks a judge which of two answers is better.

    Args:
        question: The question.
        reference: Its reference answer.
        first: Answer A.
        second: Answer B.

    Returns:
        One user message.
    """
    text = _PAIR.format(
        question=question, reference=reference, first=first, second=second, asked=PAIR_ASKED
    )
    return [{"role": "user", "content": text}]


def parse_verdict(text: str) -> bool | None:
    """The verdict that a judge ended with; None where there is none."""
    match = _RESULT.search(text)
    return match.group(1) == "True" if match else None


def parse_preference(text: str) -> str | None:
    """The answer, A or B, that a judge ended with; None where there is none."""
    match = _BETTER.search(text)
    return match.group(1) if match else None


class JudgeReward:
    """A judge as a reward function.

    Attributes:
        num_unparsed: Replies whose judgement could not be read, or did not come.
        num_judged: Replies that were shown to the judge.
    """

    __name__ = "judge"

    def __init__(
        self,
        open_models: Callable[[], ChatModels],
        model: str,
        require_thought: bool = False,
        seed: int = 0,
    ) -> None:
        """Prepare to judge.

        Args:
            open_models: Opens the judge; every batch has its own event loop, so every batch opens it.
            model: The judge's name in llm.models.
            require_thought: Whether a reply must reason before it answers.
            seed: Seed of the judge's random numbers.
        """
        self.model = model
        self.require_thought = require_thought
        self.seed = seed
        self.num_unparsed = 0
        self.num_judged = 0
        self._open_models = open_models

    def __call__(
        self, prompts: Sequence, completions: Sequence, reference: Sequence[str], **_
    ) -> list[float]:
        """Score replies.

        Args:
            prompts: Texts or conversations; equal prompts form a group.
            completions: The policy's replies.
            reference: The right answers.

        Returns:
            Scores in [0, 1].

        Raises:
            LLMError: Where too many judgements are lost, or the judge's server is down.
        """
        replies = [get_completion_text(completion) for completion in completions]
        questions = [
            prompt if isinstance(prompt, str) else prompt[-1]["content"] for prompt in prompts
        ]

        async def grade_all() -> list[float | None]:
            async with self._open_models() as models:
                rows = zip(questions, replies, reference, strict=True)
                return await asyncio.gather(
                    *(self._grade(models[self.model], *row) for row in rows)
                )

        scores = run_coroutine(grade_all())
        self._check_losses()
        return _fill_lost_scores(questions, scores)

    async def _grade(
        self, model: ChatModel, question: str, reply: str, reference: str
    ) -> float | None:
        """Ask the judge to grade one reply, up to TRIES times until it writes a number.

        Args:
            model: The opened judge.
            question: The question.
            reply: The policy's reply; one that is not well-formed gets 0 without a call.
            reference: The reference answer.

        Returns:
            The grade; None where no number could be read.
        """
        if not is_well_formed(reply, self.require_thought):
            return 0.0
        self.num_judged += 1
        messages = write_grading_prompt(question, reference, reply)
        for sample in range(TRIES):
            score = read_score(await _read_reply(model, _make_request(messages, self.seed, sample)))
            if score is not None:
                return score
        self.num_unparsed += 1
        return None

    def _check_losses(self) -> None:
        if self.num_unparsed >= MIN_FAILURES and self.num_unparsed > MAX_SHARE * self.num_judged:
            raise LLMError(
                f"{self.model} as judge: {self.num_unparsed} of {self.num_judged} judgements hold no number "
                "from 0 to 1; choose another judge (conductor.judge), or look at its replies in the recording"
            )


def _fill_lost_scores(questions: Sequence[str], scores: Sequence[float | None]) -> list[float]:
    """Replace missing scores by the mean score of the other replies to the same question.

    Args:
        questions: The question of each reply.
        scores: A score for each reply; None where the judge gave none.

    Returns:
        The scores; 0 where no reply to the question has a score.
    """
    by_question: dict[str, list[float]] = {}
    for question, score in zip(questions, scores, strict=True):
        if score is not None:
            by_question.setdefault(question, []).append(score)
    filled = []
    for question, score in zip(questions, scores, strict=True):
        if score is None:
            group_scores = by_question.get(question)
            score = fmean(group_scores) if group_scores else 0.0
        filled.append(score)
    return filled


def vote_by_majority(
    open_models: Callable[[], ChatModels],
    model: str,
    questions: Sequence[str],
    references: Sequence[str],
    answers: Sequence[str],
    baselines: Sequence[str] | None = None,
) -> list[bool | None]:
    """Let a judge vote three times on each answer.

    Args:
        open_models: Opens the judge.
        model: The judge's name in llm.models.
        questions: What was asked.
        references: The right answers.
        answers: The replies.
        baselines: Other replies to the same questions; the baseline stands first in every other vote.

    Returns:
        Whether each answer is good or, beside baselines, better than its baseline; None where votes are tied or
        all lost, and where both replies are the same.
    """

    async def is_good(judge: ChatModel, question: str, reference: str, answer: str) -> bool | None:
        requests = make_vote_requests(question, reference, answer)
        votes = [parse_verdict(await _read_reply(judge, request)) for request in requests]
        return _take_majority(votes)

    async def is_better(
        judge: ChatModel, question: str, reference: str, answer: str, baseline: str
    ) -> bool | None:
        """Let the judge vote three times whether an answer is better than the baseline's, in alternating order.

        Args:
            judge: The opened judge.
            question: The question.
            reference: Its reference answer.
            answer: The answer.
            baseline: The other answer.

        Returns:
            The majority; None where there is none.
        """
        votes = []
        for request in make_vote_requests(question, reference, answer, baseline):
            letter = parse_preference(await _read_reply(judge, request))
            answer_letter = "A" if request.sample % 2 == 0 else "B"
            votes.append(None if letter is None else letter == answer_letter)
        return _take_majority(votes)

    async def vote_all() -> list[bool | None]:
        """Open the judge, and let it vote on all answers at once.

        Returns:
            A verdict for each answer.
        """
        async with open_models() as models:
            judge = models[model]
            if baselines is None:
                rows = zip(questions, references, answers, strict=True)
                return await asyncio.gather(*(is_good(judge, *row) for row in rows))
            rows = zip(questions, references, answers, baselines, strict=True)
            return await asyncio.gather(*(is_better(judge, *row) for row in rows))

    return run_coroutine(vote_all())


def _take_majority(votes: Sequence[bool | None]) -> bool | None:
    yes, no = votes.count(True), votes.count(False)
    return None if yes == no else yes > no


# What a judge is asked ---------------------------------------------------------------------------


def make_vote_requests(
    question: str, reference: str, answer: str, baseline: str | None = None
) -> list[ChatRequest]:
    """Make the requests of a judge's votes on one answer.

    Args:
        question: What was asked.
        reference: The right answer.
        answer: The reply.
        baseline: Another reply, which stands first in every other vote; None for votes on the answer alone.

    Returns:
        A request per vote; none where both replies are the same.
    """
    if answer == baseline:
        return []
    requests = []
    for sample in range(VOTES):
        if baseline is None:
            messages = write_grading_prompt(question, reference, answer, verdict=True)
        else:
            replies = (answer, baseline) if sample % 2 == 0 else (baseline, answer)
            messages = write_pair_prompt(question, reference, *replies)
        requests.append(_make_request(messages, 0, sample))
    return requests


def _make_request(messages: list[dict[str, str]], seed: int, sample: int) -> ChatRequest:
    reply_seed = int(seeds.key("conductor judge", sample, seed=seed) % 2**31)
    return ChatRequest(messages, seed=reply_seed, sample=sample, caller="judge")


async def _read_reply(model: ChatModel, request: ChatRequest) -> str:
    """A judge's words; none where no reply could be used."""
    reply = await model.reply_to(request)
    return reply.text if reply.failure is None else ""
