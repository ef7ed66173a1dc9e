"""Executes the tool calls of episodes: local functions, language models, and the functions of an office database.

A call of a tool that is not on the menu, or with arguments that do not fit, is malformed. A call that fails (an outage,
nothing found, an error of the program) is an outcome: the orchestrator reads `error`, and the time counts. Where the
server of a model failed, the episode has the outcome nan and is left out of all scores.
The cost of an episode is that of its calls; the cost of a prompted orchestrator's own replies is kept apart.
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
_FAILED_PROGRAM_PREFIX = (
    "error: "  # with which `lib.tools.python` begins its reply where a program failed
)
NUM_CACHED_PROGRAMS = 4096  # whose results are kept: equal code, equal result


@dataclass
class ToolEpisode(rollout.Episode):
    """An episode of an orchestrator: a question or an office task, a menu of tools, and the calls so far.

    Attributes:
        seconds: Latency of all calls so far.
        counts: Number of calls by the name of the tool.
        first: Name of the tool that was called first, which is the one that an outage hits.
        verdict: The verification of an office task, after the end.
        lost_own_reply: Whether the infrastructure lost a reply of the orchestrator itself, where that is an endpoint.
        has_marked_answer: Whether it ends in an answer that is marked in another way than by tags, for example boxed.
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
        """The question or office task, with its menu and user."""
        return self.task

    @property
    def has_answer(self) -> bool:
        """Whether it ends in an answer, marked by tags or, for example, boxed."""
        return self.answer is not None or self.has_marked_answer

    @cached_property
    def office(self) -> Database:
        """The database of an office task, a copy for this episode alone."""
        return self.assignment.work.open()


@dataclass(frozen=True)
class ToolReply(ExpertReply):
    """A tool's reply, with its cost at the price of the menu.

    Attributes:
        tool_error: What went wrong with the call, an outage or a function's own complaint; empty where nothing did.
    """

    tool_error: str = ""


# A call with its episode, and the seed of the reply where a language model answers.
CallOfEpisode = tuple[ToolEpisode, call_protocol.Call, int]


def cache_results(code_tool: Tool) -> Tool:
    """Return the Python tool with a cache: it runs equal programs once, and replies the same again."""

    @lru_cache(NUM_CACHED_PROGRAMS)
    def run_program(code: str) -> str:
        return code_tool({"code": code})

    return replace(code_tool, run=lambda **arguments: run_program(arguments["code"]))


class ToolEnvironment:
    """Executes the tool calls of episodes: functions, language models, office functions and questions to the user.

    A context manager, since it opens and closes a sandbox for programs.
    """

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
        """Parse a turn of the orchestrator.

        Args:
            episode: Episode whose menu says which calls are valid.
            text: What the orchestrator wrote, such as `<call> tool words </call>` or `<answer> 8 </answer>`.

        Returns:
            A call, an answer, or a malformed turn with the reason.
        """
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
        """Explain why a call is malformed.

        Args:
            assignment: With the menu of the episode.
            name: Name of the tool that is called.
            argument: The argument, a line of words.

        Returns:
            The reason, such as "there is no tool 'x' on the menu"; empty where the call is well formed.
        """
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

    def answer_calls(self, calls: Sequence[CallOfEpisode]) -> list[ToolReply]:
        """Execute calls, and add their latency and number to their episodes.

        Language models answer all calls of the batch side by side. A call during an outage reaches no tool, and takes
        the usual time of a call.

        Args:
            calls: One call for each of several episodes: (episode, call, seed of a model's reply).

        Returns:
            Replies in the order of the calls, each with its cost at the price of the episode's menu.
        """
        # The menu's entry of each tool that is called, with price and latency.
        offers = [episode.assignment.menu.offer(call.expert) for episode, call, _ in calls]
        is_down = [self._count_call(episode, call.expert) for episode, call, _ in calls]

        # Replies of language models, by the index of the call.
        writer_replies = self._ask_writers(calls, is_down)
        user_replies = self._ask_user(calls)
        model_replies = self._ask_models(calls, offers, is_down)

        replies = []
        for index, ((episode, call, _), offer) in enumerate(zip(calls, offers, strict=True)):
            if is_down[index]:
                reply = ToolReply("", 0.0, tool_error=OUTAGE)
                seconds = offer.typical_seconds
            elif index in user_replies:
                reply = ToolReply(**vars(user_replies[index]))
                seconds = 0.0  # the time that people take is not the agent's
            elif index in writer_replies:
                reply, seconds = self._execute_written_text(
                    writer_replies[index], call.expert, offer
                )
            elif index in model_replies:
                reply, seconds = self._charge(model_replies[index], call.expert, offer)
            else:
                reply = self._call_function(episode, call, offer)
                seconds = offer.seconds
            episode.seconds += seconds
            replies.append(reply)
        return replies

    @staticmethod
    def _count_call(episode: ToolEpisode, name: str) -> bool:
        """Count a call in its episode, and check whether a simulated outage hits it.

        An outage hits the tool that the episode called first, from its `assignment.outage`-th call on.

        Args:
            episode: The counts are updated.
            name: Name of the tool.

        Returns:
            Whether the call fails.
        """
        episode.first = episode.first or name
        num_calls = episode.counts.get(name, 0) + 1
        episode.counts[name] = num_calls
        first_failing_call = episode.assignment.outage
        if not first_failing_call or name != episode.first:
            return False
        return num_calls >= first_failing_call

    def _ask_models(
        self, calls: Sequence[CallOfEpisode], offers: Sequence[Offer], is_down: Sequence[bool]
    ) -> dict[int, ExpertReply]:
        """Ask the language models that are called as tools, all at once.

        Args:
            calls: All calls of the batch; those of other tools are passed over.
            offers: The entry on its menu of each called tool.
            is_down: Whether an outage hits the call.

        Returns:
            The models' replies by the index of the call.
        """
        queries: dict[int, ExpertQuery] = {}
        for index, (episode, call, seed) in enumerate(calls):
            if not offers[index].model or is_down[index] or call.expert in self.writers:
                continue
            # A model that is asked the user's own question also reads the messages before it.
            passes_on_question = call.query == call_protocol.USER_QUESTION
            history = episode.assignment.history if passes_on_question else ()
            question = _get_question(episode, call)
            queries[index] = ExpertQuery(call.expert, question, seed, history)
        replies = self.pool.ask(list(queries.values()))
        return dict(zip(queries, replies, strict=True))

    def _charge(self, reply: ExpertReply, name: str, offer: Offer) -> tuple[ToolReply, float]:
        """Charge a model's reply at the price of the menu.

        Args:
            reply: Reply of the model, with its cost at the list price.
            name: Name of the tool.
            offer: The tool's entry on the menu, whose price and latency are factors on what the model takes.

        Returns:
            The reply with the cost on this menu, and its latency in seconds, computed from its tokens.
        """
        priced = replace(reply, cost_usd=reply.cost_usd * offer.cost_usd)
        seconds_per_token = self.clock.get(name, 1 / HOSTED_TOKENS_PER_SECOND)
        return ToolReply(**vars(priced)), reply.tokens_out * seconds_per_token * offer.seconds

    def _ask_writers(
        self, calls: Sequence[CallOfEpisode], is_down: Sequence[bool]
    ) -> dict[int, ExpertReply]:
        """Let the language models behind writer tools write, all calls of a model at once.

        A writer tool is one in which a model writes a search query, or a program, for the orchestrator's question; the
        environment then executes it (`_execute_written_text`).

        Args:
            calls: All calls of the batch; those of other tools are passed over.
            is_down: Whether an outage hits the call.

        Returns:
            By the index of the call what the model wrote, before it is executed.
        """
        # Requests by the name of the model that writes, then by the index of the call.
        requests_by_model: dict[str, dict[int, ChatRequest]] = {}
        for index, (episode, call, seed) in enumerate(calls):
            writer = self.writers.get(call.expert)
            if writer is None or is_down[index]:
                continue
            request = writer.make_request(_get_question(episode, call), seed)
            requests_by_model.setdefault(writer.model, {})[index] = request

        replies = {}
        for model, requests in requests_by_model.items():
            model_replies = self.pool.generate(model, list(requests.values()))
            for index, reply in zip(requests, model_replies, strict=True):
                replies[index] = ExpertReply.from_reply(reply)
        return replies

    def _execute_written_text(
        self, reply: ExpertReply, name: str, offer: Offer
    ) -> tuple[ToolReply, float]:
        """Run the search query or the program that the model behind a writer tool wrote.

        Args:
            reply: What the model wrote.
            name: Name of the writer tool.
            offer: The tool's entry on the menu, with price and latency.

        Returns:
            The documents or the program's output, at the price of the model that wrote; and the latency in seconds.
        """
        priced, seconds = self._charge(reply, name, offer)
        if reply.failure is not None:
            return priced, seconds
        try:
            text = self.writers[name].carry_out(reply.text)
        except ToolError as error:
            return replace(priced, text="", tool_error=str(error)), seconds
        if text.startswith(_FAILED_PROGRAM_PREFIX):  # of the program
            return replace(priced, text="", tool_error=text), seconds
        return replace(priced, text=text), seconds

    def _ask_user(self, calls: Sequence[CallOfEpisode]) -> dict[int, ExpertReply]:
        """Let the user answer the orchestrators that ask about their task.

        Args:
            calls: Calls of all episodes, each with its seed.

        Returns:
            Answers by the index of the call.
        """
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
        """Call a function: one of the episode's office, or a local tool such as the calculator.

        Args:
            episode: Episode whose office database an office function reads or changes.
            call: The function's name, and its arguments as a line of words.
            offer: The function's entry on the menu; its price is charged for failed calls too.

        Returns:
            The reply; where the function failed its text is empty, and `tool_error` says why.
        """
        try:
            if call.expert in episode.assignment.menu.office:
                text = episode.office.call(call.expert, call.query.split())
            else:
                tool = self.tools[call.expert]
                text = tool(tool.parse_line(call.query))
        except (ToolError, CallError) as error:
            return ToolReply("", offer.cost_usd, tool_error=str(error))
        if call.expert == "python" and text.startswith(_FAILED_PROGRAM_PREFIX):  # of the code
            return ToolReply("", offer.cost_usd, tool_error=text)
        return ToolReply(text, offer.cost_usd)


def _get_question(episode: ToolEpisode, call: call_protocol.Call) -> str:
    """Return what a model is asked: the call's argument, or the user's question where the argument stands for it."""
    if call.query == call_protocol.USER_QUESTION:
        return episode.assignment.prompt
    return call.query


def roll_out_assignments(
    generator: Generator,
    environment: ToolEnvironment,
    assignments: Sequence[Assignment],
    max_turns: int,
    seed: int,
    temperature: float = 1.0,
    scorer: Scorer | None = None,
) -> list[ToolEpisode]:
    """Roll out one episode for each assignment, side by side, and score it.

    Args:
        generator: Writes the orchestrator's turns.
        environment: Executes its calls.
        assignments: Questions and office tasks, each with a menu of tools and a user.
        max_turns: Largest number of turns of an episode.
        seed: Seed of all random draws of this batch.
        temperature: Sampling temperature of the orchestrator.
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
    """Score episodes that have ended, in their attribute `correct`.

    Args:
        episodes: Episodes of questions and office tasks; `correct` is set to 0, 1, a judge's score, or nan.
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
    """Score an episode by rule.

    Args:
        episode: A finished episode.

    Returns:
        1.0 if the answer to a question is correct, or if an office task meets its three criteria (execution, fidelity,
        completeness); else 0.0; nan where the infrastructure lost a reply.
    """
    if episode.failed:
        return math.nan
    work = episode.assignment.work
    last_text = episode.turns[-1].text if episode.turns else ""
    if isinstance(work, Item):
        return tasks.score_reply(work, last_text)
    episode.verdict = verify_trajectory(work, episode.office, episode.answer or "")
    return float(episode.verdict.solved)


def score_answers(episodes: Sequence[ToolEpisode], pool: ExpertPool, scorer: Scorer) -> None:
    """Score the answers to a user's questions with a scorer, in the episodes' attribute `correct`.

    An episode without an answer keeps its outcome of 0; one of which the infrastructure lost a reply has nan.

    Args:
        episodes: Episodes of questions that have ended.
        pool: Runs the scorer, which may be one of its models.
        scorer: Scores the text of an answer.
    """
    answered = []
    for episode in episodes:
        if episode.failed:
            episode.correct = math.nan
        # The argument of a call that was not made any more is no answer, whatever a tolerant rule would find in it.
        elif episode.turns and episode.turns[-1].call is None:
            answered.append(episode)
    texts = []
    for episode in answered:
        # Where the orchestrator passes on the last reply, the whole reply is scored: a tool may mark its answer in any
        # way.
        if episode.answers_with_reply:
            texts.append(episode.replies[-1].text)
        else:
            texts.append(episode.turns[-1].text)
    # On the pool's event loop, since the scorer may be one of its models.
    items = [episode.assignment.work for episode in answered]
    scores = pool.run(scorer.score_all(items, texts))
    for episode, score in zip(answered, scores, strict=True):
        episode.correct = score.value
