"""What a judge may cost, for the terminal before it is asked: as a reward in training, and as a voter afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lib.conductor.llm_judge import TRIES, make_vote_requests, write_grading_prompt
from lib.config import ConductorSettings, LLMSettings
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint, plan_requests
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import ChatModels
from lib.llm.token_counts import count_bytes, estimate_tokens

QUESTION_TOKENS = 64  # of a lab question, more than any has


def announce_grades(
    llm: LLMSettings,
    settings: ConductorSettings,
    judge: str,
    num_prompts: int,
    question_tokens: int = QUESTION_TOKENS,
) -> str:
    """Say what grades of replies may cost that are yet to be written.

    Args:
        llm: The judge's prices, and the spending limit.
        settings: Epochs, replies per prompt and their limit.
        judge: Its name in llm.models.
        num_prompts: Of all trainings together.
        question_tokens: Of a prompt.

    Returns:
        One line; "" where the judge is no endpoint or grades nothing. Each reply is graded TRIES times where no number
        can be read.
    """
    if not num_prompts or not asks_endpoint(llm, [judge]):
        return ""
    grpo = settings.grpo
    calls = TRIES * num_prompts * grpo.epochs * grpo.generations
    (frame,) = write_grading_prompt("", "", "")
    # The judge reads question, reference and reply.
    tokens_in = estimate_tokens(count_bytes(frame["content"]))
    tokens_in += question_tokens + 2 * grpo.max_tokens
    max_tokens = llm.models[judge].max_tokens
    planned = PlannedCalls(judge, calls, calls * tokens_in, calls * max_tokens)
    return f"judge as reward: {announce_costs(llm, [planned])}"


def announce_votes(
    llm: LLMSettings,
    judge: str,
    open_judge: Callable[[], ChatModels],
    questions: Sequence[str],
    references: Sequence[str],
    answers: Sequence[str],
    baselines: Sequence[str],
) -> str:
    """Say what votes on two replies to each question may cost: on each of them, and between them.

    Args:
        llm: The judge's prices, and the spending limit.
        judge: Its name in llm.models.
        open_judge: Opens it, so that its recorded replies are known.
        questions: What was asked.
        references: The right answers.
        answers: The replies.
        baselines: The other replies.

    Returns:
        One line; "" where the judge is no endpoint.
    """
    if not asks_endpoint(llm, [judge]):
        return ""
    requests = []
    for question, reference, answer, baseline in zip(
        questions, references, answers, baselines, strict=True
    ):
        requests += make_vote_requests(question, reference, answer)
        requests += make_vote_requests(question, reference, baseline)
        requests += make_vote_requests(question, reference, answer, baseline)
    models = open_judge()
    planned = plan_requests(models[judge], requests)
    run_coroutine(models.aclose())
    return f"votes on {len(questions):,} pairs of replies: {announce_costs(llm, [planned])}"
