"""A workflow's graph, read off the program itself: it is run once with a team that only takes notes.

Every call answers with a mark of its own. Where a later call is shown the mark, there is an edge; a call that a router
sent for was shown nothing and waits all the same (dashed). Programs that branch are run under several replies, and
what all of those runs have together is the graph.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.agent_configuration.action_space import (
    SUBSETS,
    TOOLS,
    WORKFLOWS,
    Configuration,
    repair_structure,
)
from lib.agent_configuration.agent_team import MOST_TOOLS, THIRD, Team
from lib.agent_configuration.workflows import PROGRAMS
from lib.llm.chat_model import Reply
from lib.llm.event_loop import EventLoopThread
from lib.tools.tool import Tool

_MARK = re.compile(r"mark(\d+)")
# Replies that send programs different ways: of the verifier, in turn, and of the router.
_VERDICTS = (("right",) * 3, ("wrong",) * 3, ("wrong", "right", "right"))
_NEEDS = ("reason", "search")


@dataclass(frozen=True)
class Graph:
    """The calls of a workflow, and which of them waits for which.

    Attributes:
        nodes: (role, agent) of each call, in order.
        edges: (source, target, has_content): the number of a call, that of a call that waits for it, and whether the
            target is shown what the source wrote.
        calls: The fewest and the most calls of a run.
    """

    nodes: tuple[tuple[str, int], ...]
    edges: frozenset[tuple[int, int, bool]]
    calls: tuple[int, int]


@dataclass(frozen=True)
class _Run:
    """One run of a workflow's program.

    Attributes:
        calls: (role, agent) of each call, in order.
        sources: For each call the numbers of the earlier calls whose marks it was shown.
    """

    calls: list[tuple[str, int]]
    sources: list[set[int]]


class _RecordingModel:
    """An agent model that writes down who is shown what.

    Attributes:
        marks_shown: For each call the marks of earlier calls that it was shown.
    """

    name, backend = "recorder", "scripted"
    price_in, price_out, seconds_per_token = 0.0, 0.0, 1.0

    def __init__(self, verdicts: Sequence[str], need: str, agree: bool) -> None:
        """Prepare to answer.

        Args:
            verdicts: What the verifier says, in turn.
            need: What the router says.
            agree: Whether all drafts have the same answer.
        """
        self.verdicts = iter(verdicts)
        self.need = need
        self.agree = agree
        self.marks_shown: list[set[int]] = []

    async def take_turn(
        self, messages: Sequence[Mapping], tools: Mapping[str, Tool], max_tokens: int, key: int
    ) -> Reply:
        """Record which marks the messages have, and answer by the role in the system message, with a mark of its own.

        Args:
            messages: The agent's conversation; marks in it show whose notes it reads.
            tools: Not used.
            max_tokens: Not used.
            key: Not used.

        Returns:
            A reply of fixed form.
        """
        number = len(self.marks_shown)
        content = messages[-1]["content"]
        self.marks_shown.append({int(mark) for mark in _MARK.findall(content)})
        role_text = messages[0]["content"]
        if "right or the word wrong" in role_text:
            answer = next(self.verdicts)
        elif "one word" in role_text:
            answer = self.need
        elif "first ... then" in role_text:
            answer = f"first mark{number} then mark{number}"
        else:
            answer = "same" if self.agree else f"mark{number}"
        text = f"<think> mark{number} </think> <answer> {answer} </answer>"
        return Reply(text, self.name, self.backend, tokens_in=1, tokens_out=1)


def trace_graph(workflow: str) -> Graph:
    """Trace which calls of agents a workflow makes, and which of them waits for which.

    The workflow's program is run under every combination of replies that may change its course.

    Args:
        workflow: Its name.

    Returns:
        A graph with the calls of all these runs.

    Raises:
        KeyError: There is no such workflow.
    """
    if workflow not in PROGRAMS:
        raise KeyError(f"there is no workflow {workflow!r}; there are {', '.join(PROGRAMS)}")
    loop = EventLoopThread()  # a notebook has one already, which may not wait for another
    try:
        runs = []
        for verdicts in _VERDICTS:
            for need in _NEEDS:
                for agree in (False, True):
                    recorder = _RecordingModel(verdicts, need, agree)
                    runs.append(_run_workflow(workflow, recorder, loop))
    finally:
        loop.close()
    return _merge_runs(runs)


def _run_workflow(workflow: str, recorder: _RecordingModel, loop: EventLoopThread) -> _Run:
    """Run a workflow once, with all tools and the largest budgets.

    Args:
        workflow: Its name.
        recorder: The model of all agents, which writes down what each call was shown.
        loop: The event loop that runs the program.

    Returns:
        The calls in order, and for each the calls whose marks it was shown.
    """
    structure = repair_structure((WORKFLOWS.index(workflow), SUBSETS - 1, SUBSETS - 1, 2, 2, 2))
    team = Team(
        recorder,
        tools=dict.fromkeys(TOOLS),
        configuration=Configuration(structure),
        prompts=[(), (), ()],
        tiers=(1, 2, 10**6),
        key=0,
    )
    loop.run(PROGRAMS[workflow](team, "question"))
    calls = [(note.role, note.agent) for note in team.usage.trail]
    return _Run(calls, recorder.marks_shown)


def _merge_runs(runs: Sequence[_Run]) -> Graph:
    """Merge the runs of a workflow into one graph.

    Args:
        runs: All runs. The i-th call of an agent in a role is the same node in each of them.

    Returns:
        The graph, with every call and every edge that some run has.
    """
    node_numbers: dict[tuple[str, int, int], int] = {}  # by (role, agent, i)
    edges: set[tuple[int, int, bool]] = set()
    for run in runs:
        # The node of each call of this run
        numbers = []
        for position, call in enumerate(run.calls):
            node = (*call, run.calls[:position].count(call))
            numbers.append(node_numbers.setdefault(node, len(node_numbers)))

        # Edges to each call from those that it waits for
        for position, sources in enumerate(run.sources):
            edges |= {(numbers[source], numbers[position], True) for source in sources}
            # A call that a router sent for was shown nothing, and waits for the router all the same.
            is_after_router = position > 0 and run.calls[position - 1][0] == "router"
            if is_after_router and not sources:
                edges.add((numbers[position - 1], numbers[position], False))
    call_counts = [len(run.calls) for run in runs]
    return Graph(
        nodes=tuple((role, agent) for role, agent, _ in node_numbers),
        edges=frozenset(edges),
        calls=(min(call_counts), max(call_counts)),
    )


def count_most_tool_calls() -> dict[str, int]:
    """Count for each workflow the most tool calls that one run of it can make.

    A run is a sequence of calls of agents. The first two agents may have tools, and each call of them may call tools
    up to MOST_TOOLS times. The third agent has none.

    Returns:
        The largest number of tool calls by name of the workflow.
    """
    most_tool_calls = {}
    for workflow in PROGRAMS:
        agent_calls = trace_graph(workflow).nodes  # (role, agent) of each call
        num_calls_with_tools = sum(agent != THIRD for _, agent in agent_calls)
        # The graph of routing has both reasoners, of which a run calls one.
        if workflow == "routing":
            num_calls_with_tools = 1
        most_tool_calls[workflow] = num_calls_with_tools * MOST_TOOLS
    return most_tool_calls
