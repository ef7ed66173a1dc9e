"""What a language model as judge may cost, for the terminal before it is asked.

It is asked in two ways: for a grade of every reply, which is a reward in training (`announce_grades`), and afterwards
for votes on replies of two policies (`announce_votes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lib.conductor.llm_judge import TRIES, make_vote_requests, write_grading_prompt
from lib.config import ConductorSettings, LLMSettings
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint, plan_requests
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import ChatModels
from lib.llm.token_counts import count_bytes, estimate_tokens

QUESTION_TOKENS = 64  # more than any question of the lab has


def announce_grades(
    llm: LLMSettings,
    settings: ConductorSettings,
    judge: str,
    num_prompts: int,
    question_tokens: int = QUESTION_TOKENS,
) -> str:
    """Say, before a training, what it may cost at most that a judge grades every reply.

    The replies are not written yet, so every call is counted at its largest size.

    Args:
        llm: Prices of the models, and the spending limit.
        settings: Settings of the training: its epochs, replies per prompt and tokens per reply are read.
        judge: Name of the judge in llm.models.
        num_prompts: Training prompts whose replies are graded, of all trainings together.
        question_tokens: Tokens of a prompt, at most.

    Returns:
        One line for the terminal; "" where nothing is paid: the judge is no endpoint, or it grades nothing.
    """
    if not num_prompts or not asks_endpoint(llm, [judge]):
        return ""

    # A judge whose reply holds no number is asked again, TRIES times in all.
    grpo = settings.grpo
    num_replies = num_prompts * grpo.epochs * grpo.generations
    num_calls = TRIES * num_replies

    # In one call the judge reads its instruction, the question, the reference and the reply.
    (instruction,) = write_grading_prompt("", "", "")
    instruction_tokens = estimate_tokens(count_bytes(instruction["content"]))
    # The reference is taken to be as long as a reply may become.
    tokens_in_per_call = instruction_tokens + question_tokens + 2 * grpo.max_tokens
    tokens_out_per_call = llm.models[judge].max_tokens

    planned = PlannedCalls(
        judge, num_calls, num_calls * tokens_in_per_call, num_calls * tokens_out_per_call
    )
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
    """Say what it may cost at most that a judge votes on two replies to each question.

    It is asked of either reply whether it is good, and which of the two is better.

    Args:
        llm: Prices of the models, and the spending limit.
        judge: Name of the judge in llm.models.
        open_judge: Opens the judge with its recorded replies, for which nothing is paid.
        questions: One per pair of replies.
        references: The right answers.
        answers: The first reply of each pair.
        baselines: The second reply of each pair.

    Returns:
        One line for the terminal; "" where the judge is no endpoint.
    """
    if not asks_endpoint(llm, [judge]):
        return ""

    # Three requests a pair: on the first reply, on the second, and between them.
    requests = []
    for question, reference, answer, baseline in zip(
        questions, references, answers, baselines, strict=True
    ):
        requests += make_vote_requests(question, reference, answer)
        requests += make_vote_requests(question, reference, baseline)
        requests += make_vote_requests(question, reference, answer, baseline)

    # Requests whose replies are recorded are deducted.
    models = open_judge()
    planned = plan_requests(models[judge], requests)
    run_coroutine(models.aclose())
    return f"votes on {len(questions):,} pairs of replies: {announce_costs(llm, [planned])}"
