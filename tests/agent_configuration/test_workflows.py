"""The nine workflows: how many calls each makes, whose they are, and what each agent is shown; and their graphs."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.agent_configuration.action_space import WORKFLOWS, Structure, list_agents, repair_structure
from lib.agent_configuration.graph import trace_graph
from lib.agent_configuration.workflows import CALLS, PROGRAMS
from tests.agent_configuration.small import Asked, Voice, run, team

# Each agent is known by its budget, its tools and its prompt.
PROMPTS = (("be brief",), ("check each step",), ("only the answer",))
AGENTS = {
    1: (10, ("calculator",), "be brief"),
    2: (20, ("search",), "check each step"),
    3: (30, (), "only the answer"),
}
# What agents leave: the first reasoner r1 and a1, and so on.
LEAVES = {"reasoner": "ra", "worker": "wb", "answerer": "cf"}
R = [f"r{i} answer a{i}" for i in range(5)]
W = [f"w{i} answer b{i}" for i in range(5)]


def structure(workflow: str) -> Structure:
    return repair_structure((WORKFLOWS.index(workflow), 1, 2, 0, 1, 2))


def says(answers=("a1", "a2", "a3", "a4"), verdicts=("wrong",) * 3, need="reason"):
    """What each role says: a thought and an answer of its own, or what is told here."""

    def reply(request: Asked) -> str:
        number = request.number
        if request.role == "router":
            plans = request.system.startswith(("split", "plan"))
            return (
                "<answer> first left then right </answer>"
                if plans
                else f"<answer> {need} </answer>"
            )
        if request.role == "verifier":
            return _said(f"v{number}", verdicts[number - 1])
        if request.role == "reasoner":
            return _said(f"r{number}", answers[number - 1])
        thought, answer = LEAVES[request.role]
        return _said(f"{thought}{number}", f"{answer}{number}")

    return reply


def _said(thought: str, answer: str | None) -> str:
    return f"<think> {thought} </think>" + (f" <answer> {answer} </answer>" if answer else "")


def calls(workflow: str, **options) -> list[tuple[str, int, str]]:
    """Role, agent and user's message of every call; that limit, tools and prompt are of one agent is checked."""
    voice = Voice(says(**options))
    agents = team(voice, structure(workflow), prompts=PROMPTS)
    last = run(agents)
    out = []
    for request in voice.heard:
        prompt = request.system.removeprefix("split ").removeprefix("plan ")
        (agent,) = (
            agent for agent, has in AGENTS.items() if has == (request.limit, request.tools, prompt)
        )
        out.append((request.role, agent, request.content))
    assert (
        agents.usage.calls == agents.usage.turns == len(out) == len(agents.usage.trail)
        and agents.usage.trail[-1] is last
    )
    return out


# Whose calls, and what they are shown --------------------------------------------------------------

SHOWN = {
    "direct": [("answerer", 1, "Q")],
    "reason": [("reasoner", 1, "Q"), ("answerer", 3, f"question Q evidence {R[1]}")],
    "verify": [
        ("reasoner", 1, "Q"),
        ("verifier", 2, f"question Q draft {R[1]}"),
        ("answerer", 3, f"question Q draft {R[1]} evidence v1 answer wrong"),
    ],
    "sectioning": [
        ("router", 3, "Q"),
        ("worker", 2, "question Q subtask left"),
        ("worker", 1, "question Q subtask right"),
        ("answerer", 3, f"question Q evidence {W[1]} evidence {W[2]}"),
    ],
    "voting": [
        *[("reasoner", 1, "Q")] * 3,
        ("answerer", 3, "question Q votes a1 a2 a3"),
    ],  # without their reasons
    "orchestrator": [
        ("router", 1, "Q"),
        ("worker", 2, "question Q subtask left"),
        ("worker", 2, f"question Q subtask right evidence {W[1]}"),
        ("answerer", 3, f"question Q evidence {W[1]} evidence {W[2]}"),
    ],
    "evaluator": [  # until its rounds are over
        ("reasoner", 1, "Q"),
        ("verifier", 2, f"question Q draft {R[1]}"),
        ("reasoner", 1, f"question Q draft {R[1]} evidence v1 answer wrong"),
        ("verifier", 2, f"question Q draft {R[2]}"),
        ("reasoner", 1, f"question Q draft {R[2]} evidence v2 answer wrong"),
        ("verifier", 2, f"question Q draft {R[3]}"),
        ("answerer", 3, f"question Q draft {R[3]} evidence v3 answer wrong"),
    ],
    "autonomous": [  # other tools after the first step
        ("reasoner", 1, "Q"),
        ("reasoner", 2, f"question Q evidence {R[1]}"),
        ("reasoner", 2, "question Q evidence r1 ; r2 answer a2"),
        ("answerer", 3, "question Q evidence r1 ; r2 ; r3 answer a3"),
    ],
}


@pytest.mark.parametrize("workflow", SHOWN)
def test_each_agent_is_shown_what_was_left_for_it_and_nothing_else(workflow):
    assert calls(workflow) == SHOWN[workflow]


@pytest.mark.parametrize(
    "need, agent", [("reason", 1), ("direct", 1), ("calculator", 2), ("search", 2), ("what ?", 2)]
)
def test_routing_sends_the_question_to_one_of_two_reasoners(need, agent):
    assert calls("routing", need=need) == [
        ("router", 3, "Q"),
        ("reasoner", agent, "Q"),
        ("answerer", 3, f"question Q evidence {R[1]}"),
    ]


@pytest.mark.parametrize(
    "answers, verdicts, roles, num_calls",
    [
        ("aa", ["wrong"], "rvrc", "draft r2 answer a evidence v1 answer wrong"),
        ("aa", ["right"], "rvrc", "draft r2 answer a evidence v1 answer right"),
        ("ab", ["wrong", "right"], "rvrvc", "draft r2 answer b evidence v2 answer right"),
        ("abb", ["right", "wrong"], "rvrvrc", "draft r3 answer b evidence v2 answer wrong"),
        (
            "aba",
            ["wrong", "wrong", "right"],
            "rvrvrvc",
            "draft r3 answer a evidence v3 answer right",
        ),
    ],
)
def test_the_evaluator_ends_when_a_draft_settles_or_a_refined_one_is_found_right(
    answers, verdicts, roles, num_calls
):
    agents = calls("evaluator", answers=answers, verdicts=verdicts)
    assert "".join({"answerer": "c"}.get(role, role[0]) for role, *_ in agents) == roles
    assert agents[-1] == ("answerer", 3, f"question Q {num_calls}")


def test_the_autonomous_agent_reads_its_own_notes_and_changes_its_tools_after_the_first_step():
    assert calls("autonomous") == [
        ("reasoner", 1, "Q"),
        ("reasoner", 2, f"question Q evidence {R[1]}"),
        ("reasoner", 2, "question Q evidence r1 ; r2 answer a2"),
        ("answerer", 3, "question Q evidence r1 ; r2 ; r3 answer a3"),
    ]


# How many calls ------------------------------------------------------------------------------------

APPENDIX_A = {
    "direct": (1, 1), "reason": (2, 2), "verify": (3, 3), "routing": (3, 3), "sectioning": (4, 4), "voting": (4, 4),
    "orchestrator": (4, 4), "evaluator": (4, 7), "autonomous": (4, 4),
}  # fmt: skip
WORDS = st.sampled_from(["a", "b", None])
VERDICTS = st.sampled_from(["right", "wrong", None])


@settings(deadline=None, max_examples=40)
@given(
    st.tuples(*[WORDS] * 4), st.tuples(*[VERDICTS] * 3), st.sampled_from(["reason", "search", "x"])
)
def test_every_workflow_makes_as_many_calls_as_appendix_a_says_whatever_is_said(
    answers, verdicts, need
):
    agents = {
        name: len(calls(name, answers=answers, verdicts=verdicts, need=need)) for name in WORKFLOWS
    }
    a, b, c, _ = answers
    evaluator = 4 if b == a else 5 if verdicts[1] == "right" else 6 if c == b else 7
    assert agents == {name: least for name, (least, _) in APPENDIX_A.items()} | {
        "evaluator": evaluator
    }


# At once, or one after the other -------------------------------------------------------------------


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_only_sectioning_and_voting_have_calls_at_the_same_time(workflow):
    voice = Voice(says(), wait=lambda request: 1e-4)
    run(team(voice, structure(workflow)))
    assert voice.most == {"sectioning": 2, "voting": 3}.get(workflow, 1)


# Graphs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "workflow, nodes, edges",
    [
        ("direct", [("answerer", 0)], []),
        ("reason", [("reasoner", 0), ("answerer", 2)], [(0, 1, True)]),
        (
            "verify",
            [("reasoner", 0), ("verifier", 1), ("answerer", 2)],
            [(0, 1, True), (0, 2, True), (1, 2, True)],
        ),
        (
            "routing",
            [("router", 2), ("reasoner", 0), ("answerer", 2), ("reasoner", 1)],
            [(0, 1, False), (0, 3, False), (1, 2, True), (3, 2, True)],
        ),
        (
            "sectioning",
            [("router", 2), ("worker", 1), ("worker", 0), ("answerer", 2)],
            [(0, 1, True), (0, 2, True), (1, 3, True), (2, 3, True)],
        ),
        (
            "voting",
            [("reasoner", 0)] * 3 + [("answerer", 2)],
            [(0, 3, True), (1, 3, True), (2, 3, True)],
        ),
        (
            "orchestrator",
            [("router", 0), ("worker", 1), ("worker", 1), ("answerer", 2)],
            [(0, 1, True), (0, 2, True), (1, 2, True), (1, 3, True), (2, 3, True)],
        ),
        (
            "autonomous",
            [("reasoner", 0), ("reasoner", 1), ("reasoner", 1), ("answerer", 2)],
            [(0, 1, True), (0, 2, True), (1, 2, True), (0, 3, True), (1, 3, True), (2, 3, True)],
        ),
    ],
)
def test_a_graph_has_an_edge_where_one_call_is_shown_another(workflow, nodes, edges):
    graph_of_workflow = trace_graph(workflow)
    assert (
        list(graph_of_workflow.nodes) == nodes
        and graph_of_workflow.edges == set(edges)
        and graph_of_workflow.calls == CALLS[workflow]
    )


def test_the_three_attempts_draw_numbers_of_their_own():
    voice = Voice(says())
    run(team(voice, structure("voting"), key=40))
    assert [request.key for request in voice.heard] == [40, 41, 42, 40]


def test_a_coordinator_is_told_whether_parts_are_done_at_once_or_one_after_the_other():
    for workflow, expected in (
        ("sectioning", "split only the answer"),
        ("orchestrator", "plan be brief"),  # the first agent plans, with its own prompt
    ):
        voice = Voice(says())
        run(team(voice, structure(workflow), prompts=PROMPTS))
        assert voice.heard[0].system == expected


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_agent_that_a_workflow_has_makes_a_call_and_no_other_agent_does(workflow):
    callers = set()
    for need in ("reason", "search"):  # the router's two ways
        callers |= {agent - 1 for _, agent, _ in calls(workflow, need=need)}
    assert callers == set(list_agents(workflow))


def test_a_plan_that_is_none_gives_the_workers_nothing():
    def reply(request: Asked) -> str:
        return "<think> first" if request.role == "router" else says()(request)

    voice = Voice(reply)
    run(team(voice, structure("sectioning")))
    assert [request.content for request in voice.heard[1:3]] == ["question Q subtask nothing"] * 2


def test_there_is_a_program_for_every_workflow():
    assert tuple(PROGRAMS) == WORKFLOWS == tuple(CALLS) and CALLS == APPENDIX_A


def test_a_graph_is_drawn_in_a_notebook_too():
    async def cell():
        return trace_graph("verify")

    assert asyncio.run(cell()) == trace_graph("verify")


def test_the_evaluators_graph_holds_all_of_its_ways():
    graph_of_workflow = trace_graph("evaluator")
    assert graph_of_workflow.calls == (4, 7)
    drafts, checks, (end,) = (
        [number for number, node in enumerate(graph_of_workflow.nodes) if node == one]
        for one in (("reasoner", 0), ("verifier", 1), ("answerer", 2))
    )
    assert len(drafts) == len(checks) == 3 and len(graph_of_workflow.nodes) == 7
    expected = {(draft, check, True) for draft, check in zip(drafts, checks, strict=True)}
    expected |= {(before, after, True) for before, after in pairwise(drafts)}
    expected |= {(check, draft, True) for check, draft in zip(checks, drafts[1:], strict=False)}
    expected |= {
        (node, end, True) for node in (*drafts[1:], *checks)
    }  # a first draft is always refined
    assert graph_of_workflow.edges == expected
