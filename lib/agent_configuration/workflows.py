"""The nine workflows of ARC (appendix A), each a program over the calls of a team.

A program awaits calls and hands their notes to others. `team` knows who has which tools, budget and prompt;
`FIRST`, `SECOND` and `THIRD` say which agent makes a call. The third agent coordinates and sums up; only the
orchestrator is an agent of its own, the first, so that every agent of a workflow has something to do.
"""

from asyncio import gather
from collections.abc import Awaitable, Callable

from lib.agent_configuration.agent_team import (
    FIRST,
    SECOND,
    Note,
    Team,
    draft,
    evidence,
    journal,
    votes,
)
from lib.language_models.training.team_traces import PLAN, SPLIT, split_plan

VERSION = 2  # of who is asked what in a workflow
ROUNDS = 3  # evaluations of the evaluator-optimizer, and steps of the autonomous agent before it concludes
VOTERS = 3
Workflow = Callable[[Team, str], Awaitable[Note]]


async def direct(team: Team, question: str) -> Note:
    """0. One call answers. Calls: 1."""
    return await team.answer(question, agent=FIRST)


async def reason(team: Team, question: str) -> Note:
    """1. One agent reasons, another answers. Calls: 2."""
    reasoning = await team.reason(question)
    return await team.answer(question, evidence(reasoning))


async def verify(team: Team, question: str) -> Note:
    """2. The reasoning is checked before it is answered. Calls: 3."""
    reasoning = await team.reason(question)
    check = await team.verify(question, draft(reasoning))
    return await team.answer(question, draft(reasoning), evidence(check))


async def routing(team: Team, question: str) -> Note:
    """3. A router sends the question to one of two reasoners with different tools. Calls: 3."""
    need = await team.route(question)
    reasoner = FIRST if need.answer in ("direct", "reason") else SECOND
    reasoning = await team.reason(question, agent=reasoner, after=need)
    return await team.answer(question, evidence(reasoning))


async def sectioning(team: Team, question: str) -> Note:
    """Workflow 4: two parts are solved at the same time, each without the other, then put together. Calls: 4.

    Args:
        team: The agents.
        question: The question.

    Returns:
        The last agent's note, with the answer.
    """
    plan = await team.divide(question, SPLIT)
    first_task, second_task = split_plan(plan.answer or "")
    first_result, second_result = await gather(
        team.work(question, first_task, agent=SECOND, after=plan),
        team.work(question, second_task, agent=FIRST, after=plan),
    )
    return await team.answer(question, evidence(first_result), evidence(second_result))


async def voting(team: Team, question: str) -> Note:
    """5. Independent attempts are put to the vote. Calls: 4."""
    attempts = [team.reason(question, attempt=number) for number in range(VOTERS)]
    return await team.answer(question, votes(await gather(*attempts)))


async def orchestrator(team: Team, question: str) -> Note:
    """Workflow 6: a plan, then two workers one after the other, each with the results before. Calls: 4.

    The first agent plans, the second works, the third sums up (ARC, appendix A: "separating planning from execution";
    the second agent's tools are the workers').

    Args:
        team: The agents.
        question: The question.

    Returns:
        The last agent's note, with the answer.
    """
    plan = await team.divide(question, PLAN, agent=FIRST)
    first_task, second_task = split_plan(plan.answer or "")
    first_result = await team.work(question, first_task, agent=SECOND, after=plan)
    second_result = await team.work(
        question, second_task, evidence(first_result), agent=SECOND, after=plan
    )
    return await team.answer(question, evidence(first_result), evidence(second_result))


async def evaluator(team: Team, question: str) -> Note:
    """Workflow 7: generate, evaluate, refine, with at most ROUNDS evaluations. Calls: 4 to 7.

    It ends early when a refinement leaves the answer as it was, or when a refined draft is judged right.

    Args:
        team: The agents.
        question: The question.

    Returns:
        The last agent's note, with the answer.
    """
    reasoning = await team.reason(question)
    for turn in range(ROUNDS):
        check = await team.verify(question, draft(reasoning))
        is_refined = turn > 0
        if turn == ROUNDS - 1 or (is_refined and check.answer == "right"):
            break
        refinement = await team.reason(question, draft(reasoning), evidence(check))
        is_unchanged = refinement.answer == reasoning.answer
        reasoning = refinement
        if is_unchanged:
            break
    return await team.answer(question, draft(reasoning), evidence(check))


async def autonomous(team: Team, question: str) -> Note:
    """8. One agent goes on from its own notes, then concludes; tools change after the first step. Calls: 4."""
    notes: list[Note] = []
    for turn in range(ROUNDS):
        agent = FIRST if turn == 0 else SECOND
        notes.append(await team.reason(question, *journal(notes), agent=agent))
    return await team.answer(question, *journal(notes))


PROGRAMS: dict[str, Workflow] = {
    program.__name__: program
    for program in (
        direct,
        reason,
        verify,
        routing,
        sectioning,
        voting,
        orchestrator,
        evaluator,
        autonomous,
    )
}
CALLS = {  # fewest and most calls by appendix A
    "direct": (1, 1), "reason": (2, 2), "verify": (3, 3), "routing": (3, 3), "sectioning": (4, 4), "voting": (4, 4),
    "orchestrator": (4, 4), "evaluator": (4, 7), "autonomous": (4, 4),
}  # fmt: skip
