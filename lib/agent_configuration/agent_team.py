"""Three agents under a configuration, at work on one question: prompts, tools, budgets, and what it all cost.

Every method is one call of an agent, as appendix A of ARC counts them: the agent may use its tools within the call,
and everything that it writes in it stays within its budget. A budget truncates: what was not written is not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from lib import tasks
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_models import AgentModel, answer_call
from lib.language_models.training.agent_traces import write_system_message
from lib.language_models.training.team_traces import NOTHING, write_notes, write_user_message
from lib.llm.chat_model import Reply
from lib.tools.tool import Tool

VERSION = 1  # of what agents are shown and write, and what it costs
FIRST, SECOND, THIRD = 0, 1, 2  # agents: the reasoner, the verifier or worker, the answerer
MOST_TOOLS = 6  # calls of tools within one call of an agent
ERROR = "error"  # what a lab model is told of a call that is none
_TAGS = re.compile(r"</?(?:think|answer|call)>")
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)

# What a model that was not made for this bench is told about its role, before the atoms of its prompt.
RULES = {
    "reasoner": "You work out the answer to a question. Somebody's earlier work may stand behind it: go on from there.",
    "verifier": "You check somebody's draft of a solution. Your answer is the word right or the word wrong.",
    "worker": "You do one part of a task: the part behind the word subtask. Your answer is the result of that part.",
    "answerer": "You give the final answer to a question, from the evidence or the votes that stand behind it.",
    "router": "You decide what a question needs. Your answer is one word: direct, reason, calculator or search.",
    "split": "You divide a question into two parts that can be done at once. Your answer: first ... then ...",
    "plan": "You divide a question into two steps, the second of which uses the first. Your answer: first ... then ...",
}
FORM = "Think as briefly as you can, then end with <answer> and your answer and </answer>."


@dataclass(frozen=True)
class Note:
    """What one call of an agent left. steps: results of tools and thoughts; answer: None where there is none;
    text: the last turn as it was written; at: seconds since the question was asked, when it was ready."""

    role: str
    agent: int
    steps: str
    answer: str | None
    text: str
    at: float
    cut: bool = False

    @property
    def whole(self) -> str:
        """Steps and answer, as the next agent reads them."""
        return write_notes([], self.steps, self.answer)


@dataclass(frozen=True)
class AgentContext:
    """What an agent is shown behind the question, and the notes it stems from."""

    text: str
    of: tuple[Note, ...]


def evidence(note: Note) -> AgentContext:
    return AgentContext(f"evidence {note.whole}", (note,))


def draft(note: Note) -> AgentContext:
    return AgentContext(f"draft {note.whole}", (note,))


def votes(left: Sequence[Note]) -> AgentContext:
    """The answers of several, without their reasons."""
    return AgentContext("votes " + " ".join(note.answer or NOTHING for note in left), tuple(left))


def journal(left: Sequence[Note]) -> tuple[AgentContext, ...]:
    """All that one agent left itself, as evidence; nothing at first."""
    if not left:
        return ()
    steps = " ; ".join(note.steps for note in left if note.steps)
    return (AgentContext(f"evidence {write_notes([], steps, left[-1].answer)}", tuple(left)),)


@dataclass
class Spent:
    """What calls cost. calls: of agents; turns: of the model; tools: the names in order; cut: calls that were cut off;
    cut_by_model: those of them that the model's own limit cut, with budget left."""

    calls: int = 0
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    cut: int = 0
    cut_by_model: int = 0
    tools: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    trail: list[Note] = field(default_factory=list)

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Spent)))


class Team:
    """Agents for one question. prompts: what each agent is told besides its role, by agent; tiers: tokens of each
    budget, or of each agent's budgets; key: seed of the episode; tells_rules: whether the rule of the lab's chains is
    told, which look like sums and are none."""

    def __init__(
        self,
        model: AgentModel,
        tools: Mapping[str, Tool],
        configuration: Configuration,
        prompts: Sequence[Sequence[str]],
        tiers: Sequence[int] | Sequence[Sequence[int]],
        key: int,
        tells_rules: bool = True,
    ) -> None:
        self.model = model
        self.configuration = configuration
        self.prompts = prompts
        self.key = key
        self.tells_rules = tells_rules
        self.tools = [
            {name: tools[name] for name in configuration.tools(agent)} for agent in range(3)
        ]
        tiers_by_agent = np.broadcast_to(tiers, (3, 3))
        self.limits = [int(tiers_by_agent[agent, configuration.tier(agent)]) for agent in range(3)]
        self.begun: list[Spent] = []

    @property
    def spent(self) -> Spent:
        """All calls, in the order in which they began: who is ready first is no matter of the episode's."""
        return sum(self.begun, Spent())

    # Calls ------------------------------------------------------------------------------------------

    async def answer(self, question: str, *shown: AgentContext, agent: int = THIRD) -> Note:
        """Who concludes; alone on a question it is the first agent, with tools."""
        return await self._call("answerer", agent, question, shown)

    async def reason(
        self,
        question: str,
        *shown: AgentContext,
        agent: int = FIRST,
        attempt: int = 0,
        after: Note | None = None,
    ) -> Note:
        """Who works it out, from what is shown on. attempt: of several on the same; after: whom it waits for."""
        return await self._call("reasoner", agent, question, shown, attempt=attempt, after=after)

    async def verify(self, question: str, *shown: AgentContext) -> Note:
        """Who checks; the answer is right or wrong."""
        return await self._call("verifier", SECOND, question, shown)

    async def route(self, question: str) -> Note:
        """Who says what a question needs."""
        return await self._call("router", THIRD, question, ())

    async def divide(self, question: str, division: str, agent: int = THIRD) -> Note:
        """Divide the work.

        Args:
            question: The question.
            division: `SPLIT` for parts that are done at once, `PLAN` for one after the other.
            agent: The one that divides.

        Returns:
            Its note, whose answer is "first ... then ...".
        """
        return await self._call("router", agent, question, (), hint=division)

    async def work(
        self, question: str, part: str, *shown: AgentContext, agent: int, after: Note
    ) -> Note:
        """Who does a part of the work, which stems from a plan."""
        return await self._call(
            "worker", agent, question, (AgentContext(f"subtask {part}", (after,)), *shown)
        )

    # How a call goes --------------------------------------------------------------------------------

    async def _call(
        self,
        role: str,
        agent: int,
        question: str,
        shown: Sequence[AgentContext],
        attempt: int = 0,
        hint: str = "",
        after: Note | None = None,
    ) -> Note:
        messages = [
            self._system(role, agent, hint, question),
            write_user_message(question, *(part.text for part in shown)),
        ]
        waited = [*(note for part in shown for note in part.of), *([after] if after else [])]
        began = max((note.at for note in waited), default=0.0)
        tools = self.tools[agent] if agent != THIRD else {}
        results: list[tuple[str, str]] = []
        thoughts: list[str] = []
        budget = self.limits[agent]
        tokens_written = 0
        spent = Spent(calls=1)
        self.begun.append(spent)
        for turn in range(MOST_TOOLS + 1):
            reply = await self.model.take_turn(
                messages, tools, budget - tokens_written, self.key + attempt
            )
            self._add_cost(spent, reply)
            tokens_written += reply.tokens_out
            thoughts += _thoughts(reply.text)
            call = reply.tool_calls[0] if reply.tool_calls else None
            has_room = turn < MOST_TOOLS and tokens_written < budget
            if call is None or call.name not in tools or not has_room:
                break
            # A lab model reads one word in place of a complaint.
            replacement = ERROR if self.model.backend == "lab" else ""
            result = answer_call(tools[call.name], call.arguments, self.model, replacement)
            spent.tools.append(call.name)
            results.append((self.model.describe_arguments(call.arguments), result))
            messages = [*messages, *self.model.write_exchange(reply, result)]
        was_truncated = reply.failure is not None and reply.failure.kind == "truncated"
        # There is no room to read what the tool would say.
        call_without_room = call is not None and tokens_written >= budget
        cut = was_truncated or call_without_room
        # The budget is the configuration's choice. What is cut with budget left met a limit of the model itself;
        # without the server's count of tokens nobody knows, and the budget is assumed.
        cut_by_model = was_truncated and reply.is_counted and tokens_written < budget
        note = Note(
            role,
            agent,
            write_notes(results, " ; ".join(thoughts), None) if results or thoughts else "",
            tasks.extract_answer(reply.text),
            reply.text,
            began + tokens_written * self.model.seconds_per_token,
            cut,
        )
        spent.cut += cut
        spent.cut_by_model += cut_by_model
        spent.trail.append(note)
        return note

    def _system(self, role: str, agent: int, hint: str, question: str) -> dict[str, str]:
        """The agent's role and prompt; a model that was not made for this bench gets them in whole sentences."""
        atoms = self.prompts[agent]
        if self.model.backend == "lab":
            hints = [hint] if hint else []
            return write_system_message(role, *hints, *atoms)
        rules = tasks.describe_rules(question) if self.tells_rules else ""
        sentences = [RULES[hint or role], *([rules] if rules else []), *atoms, FORM]
        return {"role": "system", "content": " ".join(sentences)}

    def _add_cost(self, spent: Spent, reply: Reply) -> None:
        """Book a turn at the model's prices, and why it failed."""
        spent.turns += 1
        spent.tokens_in += reply.tokens_in
        spent.tokens_out += reply.tokens_out
        cost_in = reply.tokens_in * self.model.price_in
        cost_out = reply.tokens_out * self.model.price_out
        spent.cost_usd += cost_in + cost_out
        if reply.failure is not None and reply.failure.kind != "truncated":
            spent.failures.append(reply.failure.kind)


def _thoughts(text: str) -> list[str]:
    """What stands in the thought tags, also where they were never closed; of other models all before the answer."""
    found = [" ".join(part.split()) for part in _THOUGHT.findall(text)]
    if not found and "<think>" not in text:
        free = " ".join(_TAGS.sub(" ", text.split("<answer>")[0].split("<call>")[0]).split())
        found = [free] if free else []
    return [part for part in found if part]
