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
    """What one call of an agent left.

    Attributes:
        role: What the agent was asked to do, such as "verifier".
        agent: Its number, FIRST, SECOND or THIRD.
        steps: Results of tools, and thoughts.
        answer: The answer in its last turn; None where there is none.
        text: The last turn as it was written.
        at: Seconds since the question was asked when the note was ready, by the declared clock.
        cut: Whether it was cut off.
    """

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
    """What an agent is shown behind the question.

    Attributes:
        text: As the agent reads it.
        sources: The notes that it stems from.
    """

    text: str
    sources: tuple[Note, ...]


def evidence(note: Note) -> AgentContext:
    """A note as something to build on."""
    return AgentContext(f"evidence {note.whole}", (note,))


def draft(note: Note) -> AgentContext:
    """A note as something to check or to improve."""
    return AgentContext(f"draft {note.whole}", (note,))


def votes(notes: Sequence[Note]) -> AgentContext:
    """The answers of several notes, without their reasons."""
    answers = [note.answer or NOTHING for note in notes]
    return AgentContext("votes " + " ".join(answers), tuple(notes))


def journal(notes: Sequence[Note]) -> tuple[AgentContext, ...]:
    """All steps of an agent's earlier notes and its last answer, as evidence; nothing where there is no note."""
    if not notes:
        return ()
    steps = " ; ".join(note.steps for note in notes if note.steps)
    text = write_notes([], steps, notes[-1].answer)
    return (AgentContext(f"evidence {text}", tuple(notes)),)


@dataclass
class EpisodeUsage:
    """What calls of agents took.

    Attributes:
        calls: Calls of agents.
        turns: Turns of the model; each use of a tool takes one more.
        tokens_in: Tokens read.
        tokens_out: Tokens written.
        cost_usd: US dollars.
        cut: Calls that were cut off.
        cut_by_model: Those of them that the model's own limit cut, with budget left.
        tools: Names of the tools that were called, in order.
        failures: Kinds of failures of turns.
        trail: The notes that the calls left.
    """

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

    def __add__(self, other: EpisodeUsage) -> EpisodeUsage:
        return EpisodeUsage(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(EpisodeUsage))
        )


class Team:
    """Three agents under a configuration, for one question. Each method is one call of an agent."""

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
        """Prepare to work.

        Args:
            model: What all agents are.
            tools: All tools by name; the configuration says which agent has which.
            configuration: Tools and budgets.
            prompts: For each agent the instructions that it is told besides its role.
            tiers: Tokens of the three budgets, or a row of three for each agent.
            key: Seed of the episode.
            tells_rules: Whether agents are told the rule of the lab's chains, which look like sums and are none.
        """
        self.model = model
        self.configuration = configuration
        self.prompts = prompts
        self.key = key
        self.tells_rules = tells_rules
        self.tools = [
            {name: tools[name] for name in configuration.tools(agent)} for agent in range(3)
        ]
        tiers_by_agent = np.broadcast_to(tiers, (3, 3))
        self.budgets = [int(tiers_by_agent[agent, configuration.tier(agent)]) for agent in range(3)]
        self.usage_by_call: list[EpisodeUsage] = []

    @property
    def usage(self) -> EpisodeUsage:
        """Of all calls, in the order in which they began: which is ready first is no matter of the episode's."""
        return sum(self.usage_by_call, EpisodeUsage())

    # Calls ------------------------------------------------------------------------------------------

    async def answer(self, question: str, *contexts: AgentContext, agent: int = THIRD) -> Note:
        """Answer the question. An agent that is alone on it is the first one, with tools.

        Args:
            question: The question.
            *contexts: What the agent is shown behind it.
            agent: The one that answers.

        Returns:
            Its note.
        """
        return await self._call("answerer", agent, question, contexts)

    async def reason(
        self,
        question: str,
        *contexts: AgentContext,
        agent: int = FIRST,
        attempt: int = 0,
        after: Note | None = None,
    ) -> Note:
        """Work out the answer.

        Args:
            question: The question.
            *contexts: What the agent is shown behind it.
            agent: The one that reasons.
            attempt: Number of the attempt, of several at the same question.
            after: A note that it waits for, and is not shown.

        Returns:
            Its note.
        """
        return await self._call("reasoner", agent, question, contexts, attempt=attempt, after=after)

    async def verify(self, question: str, *contexts: AgentContext) -> Note:
        """Check a draft.

        Args:
            question: The question.
            *contexts: The draft.

        Returns:
            The note of the second agent, whose answer is "right" or "wrong".
        """
        return await self._call("verifier", SECOND, question, contexts)

    async def route(self, question: str) -> Note:
        """Decide what a question needs: the answer is "direct", "reason", "calculator" or "search"."""
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
        self, question: str, subtask: str, *contexts: AgentContext, agent: int, after: Note
    ) -> Note:
        """Do a part of the work.

        Args:
            question: The whole question.
            subtask: The part of a plan.
            *contexts: What the agent is shown besides.
            agent: The one that works.
            after: The plan.

        Returns:
            Its note.
        """
        plan = AgentContext(f"subtask {subtask}", (after,))
        return await self._call("worker", agent, question, (plan, *contexts))

    # How a call goes --------------------------------------------------------------------------------

    async def _call(
        self,
        role: str,
        agent: int,
        question: str,
        contexts: Sequence[AgentContext],
        attempt: int = 0,
        hint: str = "",
        after: Note | None = None,
    ) -> Note:
        """Let an agent take turns until it calls no more tools, or its budget is used up.

        Args:
            role: What it is asked to do.
            agent: Which one it is.
            question: The question.
            contexts: What it is shown behind the question.
            attempt: Number of the attempt, which changes the random numbers.
            hint: Word for a way of dividing the work; "" for other roles.
            after: A note that it waits for, and is not shown.

        Returns:
            The note that the call leaves.
        """
        # What the agent reads, may call and may spend. The third agent calls no tools.
        messages = [
            self._write_system_message(role, agent, hint, question),
            write_user_message(question, *(context.text for context in contexts)),
        ]
        began_at = _find_start(contexts, after)
        tools = self.tools[agent] if agent != THIRD else {}
        budget = self.budgets[agent]
        usage = EpisodeUsage(calls=1)
        self.usage_by_call.append(usage)

        # Turns of the model; after each but the last a tool is called.
        results: list[tuple[str, str]] = []
        thoughts: list[str] = []
        num_tokens = 0
        for turn in range(MOST_TOOLS + 1):
            reply = await self.model.take_turn(
                messages, tools, budget - num_tokens, self.key + attempt
            )
            self._add_turn(usage, reply)
            num_tokens += reply.tokens_out
            thoughts += extract_thoughts(reply.text)

            # The call ends with a turn that asks for no tool, or where no turn or token is left to read its result.
            call = reply.tool_calls[0] if reply.tool_calls else None
            has_room = turn < MOST_TOOLS and num_tokens < budget
            if call is None or call.name not in tools or not has_room:
                break

            # A lab model reads one word in place of a complaint.
            replacement = ERROR if self.model.backend == "lab" else ""
            result = answer_call(tools[call.name], call.arguments, self.model, replacement)
            usage.tools.append(call.name)
            results.append((self.model.describe_arguments(call.arguments), result))
            messages = [*messages, *self.model.write_exchange(reply, result)]

        # Why the call ended: by itself, or cut off. What the last turn asked of a tool is lost where no budget is left
        # to read the result.
        was_truncated = reply.failure is not None and reply.failure.kind == "truncated"
        call_without_room = call is not None and num_tokens >= budget
        was_cut = was_truncated or call_without_room
        # The budget is the configuration's choice. What is cut with budget left met a limit of the model itself;
        # without the server's count of tokens nobody knows, and the budget is assumed.
        was_cut_by_model = was_truncated and reply.is_counted and num_tokens < budget
        usage.cut += was_cut
        usage.cut_by_model += was_cut_by_model

        # What the next agents read, and when they can begin.
        steps = ""
        if results or thoughts:
            steps = write_notes(results, " ; ".join(thoughts), None)
        note = Note(
            role=role,
            agent=agent,
            steps=steps,
            answer=tasks.extract_answer(reply.text),
            text=reply.text,
            at=began_at + num_tokens * self.model.seconds_per_token,
            cut=was_cut,
        )
        usage.trail.append(note)
        return note

    def _write_system_message(
        self, role: str, agent: int, hint: str, question: str
    ) -> dict[str, str]:
        """Write an agent's system message from its role and the instructions that were chosen for it (atoms).

        A small model of this project was trained on role words; other models read whole sentences.

        Args:
            role: What the agent is asked to do.
            agent: Number of the agent.
            hint: Word for a way of dividing the work; "" for none.
            question: The question, whose rules of answering may be stated.

        Returns:
            The message.
        """
        atoms = self.prompts[agent]
        if self.model.backend == "lab":
            hints = [hint] if hint else []
            return write_system_message(role, *hints, *atoms)
        rules = tasks.describe_rules(question) if self.tells_rules else ""
        sentences = [RULES[hint or role], *([rules] if rules else []), *atoms, FORM]
        return {"role": "system", "content": " ".join(sentences)}

    def _add_turn(self, usage: EpisodeUsage, reply: Reply) -> None:
        """Add the tokens, cost and failure of one turn to an agent's usage.

        Args:
            usage: Is changed in place.
            reply: The model's turn.
        """
        usage.turns += 1
        usage.tokens_in += reply.tokens_in
        usage.tokens_out += reply.tokens_out
        cost_in = reply.tokens_in * self.model.price_in
        cost_out = reply.tokens_out * self.model.price_out
        usage.cost_usd += cost_in + cost_out
        if reply.failure is not None and reply.failure.kind != "truncated":
            usage.failures.append(reply.failure.kind)


def _find_start(contexts: Sequence[AgentContext], after: Note | None) -> float:
    """Find when a call can begin, in seconds: once all notes are ready that it waits for."""
    ready_at = [note.at for context in contexts for note in context.sources]
    if after is not None:
        ready_at.append(after.at)
    return max(ready_at, default=0.0)


def extract_thoughts(text: str) -> list[str]:
    """Extract thoughts from a reply.

    Args:
        text: The reply.

    Returns:
        What stands in the thought tags, also where they were never closed; without tags all before the answer.
    """
    thoughts = _THOUGHT.findall(text)
    if not thoughts and "<think>" not in text:
        before_answer = text.split("<answer>")[0].split("<call>")[0]
        thoughts = [_TAGS.sub(" ", before_answer)]
    thoughts_on_one_line = [" ".join(thought.split()) for thought in thoughts]
    return [thought for thought in thoughts_on_one_line if thought]
