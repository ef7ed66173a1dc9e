"""The tools at work: functions here, models through the pool, an office's database for every episode.

A call that is no call (a tool that is not on the menu, arguments that do not fit) is malformed; one that fails (an
outage, nothing found, an error of the code) is an outcome: the orchestrator hears `error` and pays the time.
What an episode costs includes the orchestrator's own tokens, each once, at its card's price and clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from lib import tasks
from lib.experiment import seeds
from lib.language_models.chat_template import called
from lib.rl import call_protocol, rollout
from lib.rl.expert_pool import Heard, Pool, Query
from lib.rl.generators import Voice
from lib.tasks import Item, multi_hop_facts
from lib.tasks.synthesis import CallError, Database, VerificationResult, judge
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.single_tool_baselines import strategy
from lib.tool_orchestration.tool_menu import Offer
from lib.tools.calculator import calculator
from lib.tools.lookup import lookup
from lib.tools.python import python
from lib.tools.sandbox import Sandbox
from lib.tools.search import Index, search
from lib.tools.tool import Tool, ToolError

VERSION = 1  # of what tools reply, and what an episode costs
OUTAGE = "outage"
_FAULT = "error: "  # how `lib.tools.python` begins what it says of code that failed
_REMEMBERED = 4096  # programs whose results are kept: equal code, equal result


@dataclass
class ToolEpisode(rollout.Episode):
    """An assignment in work. seconds: of its calls; counts: calls by tool."""

    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    first: str = ""  # the tool that was called first, for outages
    verdict: VerificationResult | None = None

    @property
    def assignment(self) -> Assignment:
        return self.task

    @cached_property
    def office(self) -> Database:
        """The database of its office, which nobody shares."""
        return self.assignment.work.open()


@dataclass(frozen=True)
class Own:
    """What the orchestrator's own tokens cost: dollars per token read or written, seconds per token written."""

    cost_usd: float
    seconds: float


class Desk:
    """Answers calls. A context manager: it owns a sandbox. clock: seconds per token of each model in the pool."""

    def __init__(self, pool: Pool, clock: Mapping[str, float]) -> None:
        self.pool, self.clock, self.sandbox = pool, dict(clock), Sandbox()
        code = python(self.sandbox)
        remembered = lru_cache(_REMEMBERED)(lambda text: code({"code": text}))
        coded = Tool(
            code.name,
            code.description,
            code.parameters,
            lambda **given: remembered(*given.values()),
        )
        tools = (
            calculator(),
            search(Index(multi_hop_facts.documents())),
            lookup(multi_hop_facts.records()),
            coded,
        )
        self.tools = {tool.name: tool for tool in tools}

    def __enter__(self) -> Desk:
        self.sandbox.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.sandbox.__exit__(*exc)

    def read(self, episode: ToolEpisode, text: str) -> call_protocol.Turn:
        """What a turn asks for: `<call> tool words </call>`, or an answer."""
        if tasks.answered(text) is not None:
            return call_protocol.Answer(text)
        found = called(text)
        if found is None:
            return call_protocol.Malformed("neither a call nor an answer")
        name, argument = found
        why = self.wrong(episode.assignment, name, argument)
        return call_protocol.Malformed(why) if why else call_protocol.Call(name, argument)

    def wrong(self, assignment: Assignment, name: str, argument: str) -> str:
        """What makes a call malformed; empty where nothing does."""
        if name not in assignment.menu.names:
            return f"there is no tool {name!r} on the menu"
        if name in assignment.menu.office:
            wanted = assignment.work.domain.function(name).parameters
            return (
                ""
                if len(argument.split()) == len(wanted)
                else f"{name} takes {' and '.join(wanted)}"
            )
        if name in self.tools:
            try:
                self.tools[name].parse_line(argument)
            except ToolError as error:
                return str(error)
        return "" if argument else f"{name} takes a question"

    def reply(self, asked: Sequence[tuple[ToolEpisode, call_protocol.Call, int]]) -> list[Heard]:
        """Carry calls out and book them on their episodes, in order."""
        offers = [episode.assignment.menu.offer(call.expert) for episode, call, _ in asked]
        down = [self._down(episode, call.expert) for episode, call, _ in asked]
        queries = {
            i: Query(
                call.expert,
                episode.assignment.prompt
                if call.query == call_protocol.AS_IT_STANDS
                else call.query,
                key,
            )
            for i, (episode, call, key) in enumerate(asked)
            if offers[i].model and not down[i]
        }
        spoken = dict(zip(queries, self.pool.ask(list(queries.values())), strict=True))
        out = []
        for i, ((episode, call, _), offer) in enumerate(zip(asked, offers, strict=True)):
            if down[i]:
                heard, seconds = Heard("", 0.0, failure=OUTAGE), offer.typical_seconds
            elif offer.model:
                heard, seconds = self._charged(spoken[i], call.expert, offer)
            else:
                heard, seconds = self._function(episode, call, offer), offer.seconds
            episode.seconds += seconds
            out.append(heard)
        return out

    @staticmethod
    def _down(episode: ToolEpisode, name: str) -> bool:
        """Whether an outage meets this call, which is counted."""
        episode.first = episode.first or name
        episode.counts[name] = episode.counts.get(name, 0) + 1
        begins = episode.assignment.outage
        return bool(begins) and name == episode.first and episode.counts[name] >= begins

    def _charged(self, heard: Heard, name: str, offer: Offer) -> tuple[Heard, float]:
        """A model's reply at the menu's price and latency."""
        priced = Heard(
            heard.text,
            heard.cost_usd * offer.cost_usd,
            heard.tokens_in,
            heard.tokens_out,
            heard.failure,
        )
        return priced, heard.tokens_out * self.clock[name] * offer.seconds

    def _function(self, episode: ToolEpisode, call: call_protocol.Call, offer: Offer) -> Heard:
        try:
            if call.expert in episode.assignment.menu.office:
                text = episode.office.call(call.expert, call.query.split())
            else:
                tool = self.tools[call.expert]
                text = tool(tool.parse_line(call.query))
        except (ToolError, CallError) as error:
            return Heard("", offer.cost_usd, failure=str(error))
        if call.expert == "python" and text.startswith(_FAULT):  # of the code
            return Heard("", offer.cost_usd, failure=text)
        return Heard(text, offer.cost_usd)


def roll(
    voice: Voice,
    desk: Desk,
    wanted: Sequence[Assignment],
    rounds: int,
    key: int,
    own: Own,
    temperature: float = 1.0,
) -> list[ToolEpisode]:
    """An episode per assignment, in order; key: seed of this batch."""
    rolled = []
    for assignment in wanted:
        ids = voice.prompt(assignment.messages)
        rolled.append(ToolEpisode(assignment, list(ids), [False] * len(ids), len(ids)))
    rollout.play(voice, desk, rolled, rounds, key, temperature)
    for episode in rolled:
        episode.correct = judged(episode)
        episode.seconds += episode.written * own.seconds
    return rolled


def judged(episode: ToolEpisode) -> float:
    """The outcome: the answer is right, or all three criteria of an office task hold."""
    work = episode.assignment.work
    said = episode.exchanges[-1].said if episode.exchanges else ""
    if isinstance(work, Item):
        return tasks.score(work, said)
    episode.verdict = judge(
        work, episode.office.content(), episode.office.operated, episode.answer or ""
    )
    return float(episode.verdict.solved)


def cost_usd(episode: ToolEpisode, own: Own) -> float:
    """What the calls and the orchestrator's own tokens cost."""
    return episode.cost_usd + len(episode.ids) * own.cost_usd


def tried(
    desk: Desk, assigned: Sequence[Assignment], tools: Sequence[str], split: str
) -> list[dict[str, Any]]:
    """Every tool on its own, on every question it can be asked, at the menu's prices: rows with item (number), tool,
    right, dollars, seconds, calls. Nobody orchestrates, so no orchestrator is paid."""
    rows = []
    for tool in tools:
        fit = [(i, a) for i, a in enumerate(assigned) if tool in {offer.name for offer in a.usable}]
        episodes_, answers = _used(desk, tool, [a for _, a in fit], split)
        for (i, a), episode, answer in zip(fit, episodes_, answers, strict=True):
            correct = tasks.score(a.work, tasks.reply(answer))
            told = {"correct": correct, "cost_usd": episode.cost_usd, "seconds": episode.seconds}
            rows.append({"item": i, "tool": tool, **told, "calls": episode.counts.get(tool, 0)})
    return rows


def _used(
    desk: Desk, tool: str, assigned: Sequence[Assignment], split: str
) -> tuple[list[ToolEpisode], list[str]]:
    """One strategy on many questions, call by call side by side."""
    plans = [strategy(tool, a.work) for a in assigned]
    held = [ToolEpisode(a, [], [], 0) for a in assigned]
    answers = [""] * len(plans)
    wanted = {i: next(plan)[0] for i, plan in enumerate(plans)}
    turn = 0
    while wanted:
        order = list(wanted)
        keys = [
            int(seeds.key("toolorchestra", "tried", split, tool, i, seed=turn) >> 1) for i in order
        ]
        asked = [
            (held[i], call_protocol.Call(tool, wanted[i]), key)
            for i, key in zip(order, keys, strict=True)
        ]
        heard = desk.reply(asked)
        wanted = {}
        for i, (episode, call, _), reply in zip(order, asked, heard, strict=True):
            episode.exchanges.append(rollout.Exchange("", call, reply))
            try:
                wanted[i] = plans[i].send(call_protocol.heard(reply.text))[0]
            except StopIteration as ended:
                answers[i] = ended.value
        turn += 1
    return held, answers
