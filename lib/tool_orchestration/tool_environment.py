"""The tools at work: functions here, models through the pool, an office's database for every episode.

A call that is no call (a tool that is not on the menu, arguments that do not fit) is malformed; one that fails (an
outage, nothing found, an error of the code) is an outcome: the orchestrator reads `error` and pays the time. A model
whose server failed says nothing about anybody: its episode has the outcome nan and stands in no score.
What an episode costs is what its calls cost; what a prompted orchestrator's own replies were billed stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from lib import tasks
from lib.language_models.chat_template import parse_tool_call
from lib.llm.chat_model import ChatRequest
from lib.rl import call_protocol, rollout
from lib.rl.expert_pool import ExpertPool, ExpertQuery, ExpertReply
from lib.rl.generators import Generator
from lib.tasks import Item, multi_hop_facts
from lib.tasks.scorers import Scorer
from lib.tasks.synthesis import CallError, Database, VerificationResult, verify_trajectory
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.plain_prompt import write_plain_messages
from lib.tool_orchestration.tool_menu import ASK_USER, Offer
from lib.tool_orchestration.user_dialogue import ScriptedUser, SimulatedUser, UserQuestion
from lib.tool_orchestration.writer_tools import make_writers
from lib.tools.calculator import calculator
from lib.tools.lookup import lookup
from lib.tools.python import python
from lib.tools.sandbox import Sandbox
from lib.tools.search import Index, search
from lib.tools.tool import Tool, ToolError

NAME = "toolorchestra"  # of the recording and of the spending limit
OUTAGE = "outage"
# Of an endpoint, declared (decision): a stopwatch would make runs differ.
HOSTED_TOKENS_PER_SECOND = 50.0
_FAULT = "error: "  # how `lib.tools.python` begins what it says of code that failed
NUM_CACHED_PROGRAMS = 4096  # whose results are kept: equal code, equal result


@dataclass
class ToolEpisode(rollout.Episode):
    """An assignment in work.

    Attributes:
        seconds: Of its calls.
        counts: Calls by tool.
        first: The tool that was called first, for outages.
        verdict: On an office task.
        lost_own_reply: Whether the infrastructure lost a reply of the orchestrator itself, where that is an endpoint.
        has_marked_answer: Whether it ends in an answer that is marked in another way than by tags.
        own_cost_usd: What a prompted orchestrator's own replies were billed; stands in no other cost.
        own_seconds: How long it took to write them, by its server, or by its tokens at the clock of a hosted model.
    """

    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    first: str = ""
    verdict: VerificationResult | None = None
    lost_own_reply: bool = False
    has_marked_answer: bool = False
    own_cost_usd: float = 0.0
    own_seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether the infrastructure lost a reply, so that the episode may not be scored."""
        return self.lost_own_reply or any(reply.lost for reply in self.replies)

    @property
    def assignment(self) -> Assignment:
        return self.task

    @cached_property
    def office(self) -> Database:
        """The database of its office, which nobody shares."""
        return self.assignment.work.open()


@dataclass(frozen=True)
class ToolReply(ExpertReply):
    """What a tool said, at the menu's price.

    Attributes:
        tool_error: What went wrong with the call, an outage or a function's own complaint; empty where nothing did.
    """

    tool_error: str = ""


def cache_results(code_tool: Tool) -> Tool:
    """The same tool, which runs equal programs once."""

    @lru_cache(NUM_CACHED_PROGRAMS)
    def run_program(code: str) -> str:
        return code_tool({"code": code})

    return replace(code_tool, run=lambda **arguments: run_program(arguments["code"]))


class ToolEnvironment:
    """Answers calls. A context manager: it owns a sandbox."""

    def __init__(
        self,
        pool: ExpertPool,
        clock: Mapping[str, float],
        reads_marked_answers: bool = False,
        writer_models: Mapping[str, str] | None = None,
        user: SimulatedUser | None = None,
    ) -> None:
        """
        Args:
            pool: The models among the tools.
            clock: Seconds per token of each of them.
            reads_marked_answers: Whether an answer may be marked in another way than by tags, for example boxed.
            writer_models: The model of llm.models that writes in each writer tool; the pool's models have it.
            user: Who answers when an agent asks about its task; None for the scripted user.
        """
        self.pool = pool
        self.clock = dict(clock)
        self.reads_marked_answers = reads_marked_answers
        self.sandbox = Sandbox()
        tools = (
            calculator(),
            search(Index(multi_hop_facts.build_documents())),
            lookup(multi_hop_facts.build_records()),
            cache_results(python(self.sandbox)),
        )
        self.tools = {tool.name: tool for tool in tools}
        self.writers = make_writers(writer_models, self.tools) if writer_models else {}
        self.user = user if user is not None else ScriptedUser()

    def __enter__(self) -> ToolEnvironment:
        self.sandbox.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.sandbox.__exit__(*exc)

    def parse_turn(self, episode: ToolEpisode, text: str) -> call_protocol.ParsedTurn:
        """What a turn asks for: `<call> tool words </call>`, or an answer."""
        if tasks.extract_answer(text) is not None:
            return call_protocol.Answer(text)
        tool_call = parse_tool_call(text)
        if tool_call is None and self.reads_marked_answers and call_protocol.marks_answer(text):
            episode.has_marked_answer = True
            return call_protocol.Answer(text)
        if tool_call is None:
            return call_protocol.Malformed("neither a call nor an answer")
        name, argument = tool_call
        why = self.explain_malformed(episode.assignment, name, argument)
        return call_protocol.Malformed(why) if why else call_protocol.Call(name, argument)

    def explain_malformed(self, assignment: Assignment, name: str, argument: str) -> str:
        """What makes a call malformed; empty where nothing does."""
        if name not in assignment.menu.names:
            return f"there is no tool {name!r} on the menu"
        if name in assignment.menu.office:
            parameters = assignment.work.domain.find_function(name).parameters
            if len(argument.split()) != len(parameters):
                return f"{name} takes {' and '.join(parameters)}"
            return ""
        if name in self.tools:
            try:
                self.tools[name].parse_line(argument)
            except ToolError as error:
                return str(error)
        if not argument:
            return f"{name} takes a question"
        return ""

    def answer_calls(
        self, calls: Sequence[tuple[ToolEpisode, call_protocol.Call, int]]
    ) -> list[ToolReply]:
        """Carry calls out and book them on their episodes.

        Args:
            calls: Episodes with their call, and the seed of a model's reply.

        Returns:
            Replies in the order of the calls.
        """
        offers = [episode.assignment.menu.offer(call.expert) for episode, call, _ in calls]
        is_down = [self._count_call(episode, call.expert) for episode, call, _ in calls]

        # Models are asked all at once.
        queries: dict[int, ExpertQuery] = {}
        for index, (episode, call, seed) in enumerate(calls):
            if not offers[index].model or is_down[index] or call.expert in self.writers:
                continue
            hands_on_question = call.query == call_protocol.USER_QUESTION
            text = episode.assignment.prompt if hands_on_question else call.query
            history = episode.assignment.history if hands_on_question else ()
            queries[index] = ExpertQuery(call.expert, text, seed, history)
        writer_replies = self._ask_writers(calls, is_down)
        user_replies = self._ask_user(calls)
        model_replies = dict(zip(queries, self.pool.ask(list(queries.values())), strict=True))

        replies = []
        for index, ((episode, call, _), offer) in enumerate(zip(calls, offers, strict=True)):
            if is_down[index]:
                reply = ToolReply("", 0.0, tool_error=OUTAGE)
                seconds = offer.typical_seconds
            elif index in user_replies:
                reply = ToolReply(**vars(user_replies[index]))
                seconds = 0.0  # the time that people take is not the agent's
            elif index in writer_replies:
                reply, seconds = self._use_written(writer_replies[index], call.expert, offer)
            elif offer.model:
                reply, seconds = self._charge(model_replies[index], call.expert, offer)
            else:
                reply = self._call_function(episode, call, offer)
                seconds = offer.seconds
            episode.seconds += seconds
            replies.append(reply)
        return replies

    @staticmethod
    def _count_call(episode: ToolEpisode, name: str) -> bool:
        """Count a call, and say whether it meets an outage."""
        episode.first = episode.first or name
        num_calls = episode.counts.get(name, 0) + 1
        episode.counts[name] = num_calls
        first_failing_call = episode.assignment.outage
        if not first_failing_call or name != episode.first:
            return False
        return num_calls >= first_failing_call

    def _charge(self, reply: ExpertReply, name: str, offer: Offer) -> tuple[ToolReply, float]:
        """A model's reply at the menu's price, and its latency by tokens and the menu, in seconds."""
        priced = replace(reply, cost_usd=reply.cost_usd * offer.cost_usd)
        seconds_per_token = self.clock.get(name, 1 / HOSTED_TOKENS_PER_SECOND)
        return ToolReply(**vars(priced)), reply.tokens_out * seconds_per_token * offer.seconds

    def _ask_writers(
        self, calls: Sequence[tuple[ToolEpisode, call_protocol.Call, int]], is_down: Sequence[bool]
    ) -> dict[int, ExpertReply]:
        """What the models of writer tools write, by the number of the call."""
        requests: dict[str, dict[int, ChatRequest]] = {}
        for index, (episode, call, seed) in enumerate(calls):
            writer = self.writers.get(call.expert)
            if writer is None or is_down[index]:
                continue
            hands_on_question = call.query == call_protocol.USER_QUESTION
            question = episode.assignment.prompt if hands_on_question else call.query
            requests.setdefault(writer.model, {})[index] = writer.make_request(question, seed)
        replies = {}
        for model, by_index in requests.items():
            written = self.pool.generate(model, list(by_index.values()))
            for index, reply in zip(by_index, written, strict=True):
                replies[index] = ExpertReply.from_reply(reply)
        return replies

    def _use_written(self, reply: ExpertReply, name: str, offer: Offer) -> tuple[ToolReply, float]:
        """What came of a query or a program, at the price and the latency of the model that wrote it."""
        priced, seconds = self._charge(reply, name, offer)
        if reply.failure is not None:
            return priced, seconds
        try:
            text = self.writers[name].carry_out(reply.text)
        except ToolError as error:
            return replace(priced, text="", tool_error=str(error)), seconds
        if text.startswith(_FAULT):  # of the program
            return replace(priced, text="", tool_error=text), seconds
        return replace(priced, text=text), seconds

    def _ask_user(
        self, calls: Sequence[tuple[ToolEpisode, call_protocol.Call, int]]
    ) -> dict[int, ExpertReply]:
        """What the user says to an agent that asks about its task, by the number of the call."""
        questions = {}
        for index, (episode, call, seed) in enumerate(calls):
            if call.expert == ASK_USER:
                questions[index] = UserQuestion(episode.assignment.dialogue, call.query, seed)
        if not questions:
            return {}
        replies = self.user.answer_all(list(questions.values()), self.pool)
        return dict(zip(questions, replies, strict=True))

    def _call_function(
        self, episode: ToolEpisode, call: call_protocol.Call, offer: Offer
    ) -> ToolReply:
        try:
            if call.expert in episode.assignment.menu.office:
                text = episode.office.call(call.expert, call.query.split())
            else:
                tool = self.tools[call.expert]
                text = tool(tool.parse_line(call.query))
        except (ToolError, CallError) as error:
            return ToolReply("", offer.cost_usd, tool_error=str(error))
        if call.expert == "python" and text.startswith(_FAULT):  # of the code
            return ToolReply("", offer.cost_usd, tool_error=text)
        return ToolReply(text, offer.cost_usd)


def roll_out_assignments(
    generator: Generator,
    environment: ToolEnvironment,
    assignments: Sequence[Assignment],
    max_turns: int,
    seed: int,
    temperature: float = 1.0,
    scorer: Scorer | None = None,
) -> list[ToolEpisode]:
    """Roll out an episode per assignment.

    Args:
        generator: The orchestrator's.
        environment: The tools at work.
        assignments: What is to be done.
        max_turns: Turns at the most.
        seed: Of this batch.
        temperature: Of the orchestrator.
        scorer: How answers to questions are scored; None for the strict rule of the procedural families.

    Returns:
        The episodes, in the order of the assignments.
    """
    episodes = []
    for assignment in assignments:
        ids = generator.encode_prompt(write_plain_messages(assignment))
        episodes.append(ToolEpisode(assignment, list(ids), [False] * len(ids), len(ids)))
    rollout.roll_out(generator, environment, episodes, max_turns, seed, temperature)
    score_episodes(episodes, environment.pool, scorer)
    return episodes


def score_episodes(
    episodes: Sequence[ToolEpisode], pool: ExpertPool, scorer: Scorer | None
) -> None:
    """Fill in the outcome of episodes that have ended.

    Args:
        episodes: Their `correct` is set.
        pool: Has the models of a scorer that is a judge.
        scorer: How answers to questions are scored; None for the strict rule of the procedural families and for the
            three criteria of office tasks.
    """
    if scorer is not None:
        score_answers(episodes, pool, scorer)
        return
    for episode in episodes:
        episode.correct = score_outcome(episode)


def score_outcome(episode: ToolEpisode) -> float:
    """The outcome: the answer is right, or all three criteria of an office task hold; nan where a reply was lost."""
    if episode.failed:
        return math.nan
    work = episode.assignment.work
    last_text = episode.turns[-1].text if episode.turns else ""
    if isinstance(work, Item):
        return tasks.score_reply(work, last_text)
    episode.verdict = verify_trajectory(work, episode.office, episode.answer or "")
    return float(episode.verdict.solved)


def score_answers(episodes: Sequence[ToolEpisode], pool: ExpertPool, scorer: Scorer) -> None:
    """Fill in what answers to a user's questions are worth: 0 without one, nan where nothing may be scored."""
    answered = []
    for episode in episodes:
        if episode.failed:
            episode.correct = math.nan
        # The argument of a call that was not made any more is no answer, whatever a tolerant rule would find in it.
        elif episode.turns and episode.turns[-1].call is None:
            answered.append(episode)
    texts = []
    for episode in answered:
        # What is handed on is the tool's whole reply: its answer may be marked in any way.
        if episode.answers_with_reply:
            texts.append(episode.replies[-1].text)
        else:
            texts.append(episode.turns[-1].text)
    # On the pool's event loop, since the scorer may be one of its models.
    items = [episode.assignment.work for episode in answered]
    scores = pool.run(scorer.score_all(items, texts))
    for episode, score in zip(answered, scores, strict=True):
        episode.correct = score.value
