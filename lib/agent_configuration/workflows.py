"""The nine workflows of ARC (appendix A), each a program over the calls of a team.

A program awaits calls and hands what they leave to others. `team` knows who has which tools, budget and prompt;
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
    found = await team.reason(question)
    return await team.answer(question, evidence(found))


async def verify(team: Team, question: str) -> Note:
    """2. The reasoning is checked before it is answered. Calls: 3."""
    found = await team.reason(question)
    check = await team.verify(question, draft(found))
    return await team.answer(question, draft(found), evidence(check))


async def routing(team: Team, question: str) -> Note:
    """3. A router sends the question to one of two reasoners with different tools. Calls: 3."""
    need = await team.route(question)
    chosen = FIRST if need.answer in ("direct", "reason") else SECOND
    found = await team.reason(question, agent=chosen, after=need)
    return await team.answer(question, evidence(found))


async def sectioning(team: Team, question: str) -> Note:
    """4. Two parts are done at once, each without knowing the other, then put together. Calls: 4."""
    plan = await team.divide(question, SPLIT)
    first, then = split_plan(plan.answer or "")
    one, two = await gather(
        team.work(question, first, agent=SECOND, after=plan),
        team.work(question, then, agent=FIRST, after=plan),
    )
    return await team.answer(question, evidence(one), evidence(two))


async def voting(team: Team, question: str) -> Note:
    """5. Independent attempts are put to the vote. Calls: 4."""
    tried = await gather(*(team.reason(question, attempt=i) for i in range(VOTERS)))
    return await team.answer(question, votes(tried))


async def orchestrator(team: Team, question: str) -> Note:
    """6. A plan, then workers one after the other, each knowing what was found before. Calls: 4.

    The first agent plans, the second works, the third sums up (ARC, appendix A: "separating planning from execution";
    the second agent's tools are the workers').
    """
    plan = await team.divide(question, PLAN, agent=FIRST)
    first, then = split_plan(plan.answer or "")
    one = await team.work(question, first, agent=SECOND, after=plan)
    two = await team.work(question, then, evidence(one), agent=SECOND, after=plan)
    return await team.answer(question, evidence(one), evidence(two))


async def evaluator(team: Team, question: str) -> Note:
    """7. Generate, evaluate, refine, until a refinement changes nothing, or a refined draft is found right, or the
    rounds are over. Calls: 4 to 7."""
    found = await team.reason(question)
    for turn in range(ROUNDS):
        check = await team.verify(question, draft(found))
        if turn == ROUNDS - 1 or (turn and check.answer == "right"):
            break
        better = await team.reason(question, draft(found), evidence(check))
        settled, found = better.answer == found.answer, better
        if settled:
            break
    return await team.answer(question, draft(found), evidence(check))


async def autonomous(team: Team, question: str) -> Note:
    """8. One agent goes on from what it left itself, then concludes; tools change after the first step. Calls: 4."""
    left: list[Note] = []
    for turn in range(ROUNDS):
        left.append(await team.reason(question, *journal(left), agent=SECOND if turn else FIRST))
    return await team.answer(question, *journal(left))


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
CALLS = {  # least and most of appendix A
    "direct": (1, 1), "reason": (2, 2), "verify": (3, 3), "routing": (3, 3), "sectioning": (4, 4), "voting": (4, 4),
    "orchestrator": (4, 4), "evaluator": (4, 7), "autonomous": (4, 4),
}  # fmt: skip
