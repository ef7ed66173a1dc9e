"""A workflow's graph, read off the program itself: it is run once with a team that only takes notes.

Every call answers with a mark of its own. Where a later call is shown the mark, there is an edge; a call that a router
sent for was shown nothing and waits all the same (dashed). Programs that branch are run under several replies, and
what all of those runs have together is the graph.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lib.agent_configuration.action_space import SUBSETS, TOOLS, WORKFLOWS, Configuration, repaired
from lib.agent_configuration.agent_team import MOST_TOOLS, THIRD, Team
from lib.agent_configuration.workflows import PROGRAMS
from lib.llm.chat_model import Reply
from lib.llm.event_loop import EventLoopThread
from lib.tools.tool import Tool

_MARK = re.compile(r"mark(\d+)")


@dataclass(frozen=True)
class Graph:
    """nodes: (role, agent) of each call in order; edges: (from, to, whether it was shown); calls: how many calls the
    runs made, least and most."""

    nodes: tuple[tuple[str, int], ...]
    edges: frozenset[tuple[int, int, bool]]
    calls: tuple[int, int]


class _RecordingModel:
    """An agent model that writes down who is shown what.

    Attributes:
        marks_shown: Of each call the marks of earlier calls that it was shown.
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
        self, messages, tools: Mapping[str, Tool], max_tokens: int, key: int
    ) -> Reply:
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


def _runs(
    workflow: str, loop: EventLoopThread
) -> Iterator[tuple[list[tuple[str, int]], list[set[int]]]]:
    """Roles and what was shown, of every way that the program may go."""
    structure = repaired((WORKFLOWS.index(workflow), SUBSETS - 1, SUBSETS - 1, 2, 2, 2))
    for verdicts in (("right",) * 3, ("wrong",) * 3, ("wrong", "right", "right")):
        for need in ("reason", "search"):
            for agree in (False, True):
                recorder = _RecordingModel(verdicts, need, agree)
                team = Team(
                    recorder,
                    dict.fromkeys(TOOLS),
                    Configuration(structure),
                    [(), (), ()],
                    (1, 2, 10**6),
                    0,
                )
                loop.run(PROGRAMS[workflow](team, "question"))
                yield [(note.role, note.agent) for note in team.spent.trail], recorder.marks_shown


def graph(workflow: str) -> Graph:
    """The graph of a workflow by name. Raises KeyError for one that there is not."""
    if workflow not in PROGRAMS:
        raise KeyError(f"there is no workflow {workflow!r}; there are {', '.join(PROGRAMS)}")
    loop = EventLoopThread()  # a notebook has one already, which may not wait for another
    try:
        return _drawn(list(_runs(workflow, loop)))
    finally:
        loop.close()


def _drawn(runs: Sequence[tuple[list[tuple[str, int]], list[set[int]]]]) -> Graph:
    """What all runs have together."""
    nodes: dict[tuple[str, int, int], int] = {}
    edges: set[tuple[int, int, bool]] = set()
    counts = []
    for roles, shown in runs:
        counts.append(len(roles))
        ids = [
            nodes.setdefault((*role, roles[:i].count(role)), len(nodes))
            for i, role in enumerate(roles)
        ]
        for i, sources in enumerate(shown):
            edges |= {(ids[source], ids[i], True) for source in sources}
            if i and not sources and roles[i - 1][0] == "router":
                edges.add((ids[i - 1], ids[i], False))
    return Graph(
        tuple((role, agent) for role, agent, _ in nodes),
        frozenset(edges),
        (min(counts), max(counts)),
    )


def count_most_tool_calls() -> dict[str, int]:
    """Count the most tool calls that one episode of each workflow can make, read off its graph."""
    counts = {}
    for workflow in PROGRAMS:
        # A program that branches shows the calls of all its ways; routing makes one of its two reasoners' calls.
        nodes = graph(workflow).nodes
        callers_with_tools = [agent for _, agent in nodes if agent != THIRD]
        num_calls = 1 if workflow == "routing" else len(callers_with_tools)
        counts[workflow] = num_calls * MOST_TOOLS
    return counts
