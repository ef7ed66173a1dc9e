"""The tools at work: functions here, models through the pool, an office's database for every episode.

A call that is no call (a tool that is not on the menu, arguments that do not fit) is malformed; one that fails (an
outage, nothing found, an error of the code) is an outcome: the orchestrator reads `error` and pays the time. A model
whose server failed says nothing about anybody: its episode has the outcome nan and stands in no score.
What an episode costs includes the orchestrator's own tokens, each once, at its card's price and clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import torch

from lib import tasks
from lib.config import LLMSettings, ToolSettings
from lib.experiment import seeds, sweep
from lib.experiment.run_context import RunContext
from lib.language_models.chat_template import parse_tool_call
from lib.language_models.local_models import open_local
from lib.language_models.training import model_cards as cards
from lib.llm.chat_model import ChatRequest
from lib.llm.open_models import open_models
from lib.rl import call_protocol, rollout
from lib.rl.expert_pool import ExpertPool, ExpertQuery, ExpertReply
from lib.rl.generators import Generator, LabGenerator
from lib.tasks import Item, multi_hop_facts
from lib.tasks.scorers import Scorer
from lib.tasks.synthesis import CallError, Database, VerificationResult, verify_trajectory
from lib.tool_orchestration import tool_menu
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.single_tool_baselines import make_strategy
from lib.tool_orchestration.tool_menu import ASK_USER, Offer, PriceList, list_training_tools
from lib.tool_orchestration.user_dialogue import ScriptedUser, SimulatedUser, UserQuestion
from lib.tool_orchestration.writer_tools import make_writers
from lib.tools.calculator import calculator
from lib.tools.lookup import lookup
from lib.tools.python import python
from lib.tools.sandbox import Sandbox
from lib.tools.search import Index, search
from lib.tools.tool import Tool, ToolError

VERSION = 1  # of what tools reply, and what an episode costs
NAME = "toolorchestra"  # of the recording and of the spending limit
OUTAGE = "outage"
# Of an endpoint, declared (decision): a stopwatch would make runs differ.
HOSTED_TOKENS_PER_SECOND = 50.0
_FAULT = "error: "  # how `lib.tools.python` begins what it says of code that failed
_REMEMBERED = 4096  # programs whose results are kept: equal code, equal result


@dataclass
class ToolEpisode(rollout.Episode):
    """An assignment in work.

    Attributes:
        seconds: Of its calls, and of what the orchestrator wrote.
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


WriteMessages = Callable[[Assignment], list[dict[str, str]]]


def write_lab_messages(assignment: Assignment) -> list[dict[str, str]]:
    """What the lab's orchestrators read."""
    return assignment.messages


@dataclass(frozen=True)
class OwnTokenPrice:
    """What the orchestrator's own tokens cost.

    Attributes:
        cost_usd: Of a token that it reads or writes.
        seconds: Of a token that it writes.
    """

    cost_usd: float
    seconds: float


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
        code = python(self.sandbox)
        remembered = lru_cache(_REMEMBERED)(lambda text: code({"code": text}))
        coded = Tool(
            code.name,
            code.description,
            code.parameters,
            lambda **arguments: remembered(*arguments.values()),
        )
        tools = (
            calculator(),
            search(Index(multi_hop_facts.build_documents())),
            lookup(multi_hop_facts.build_records()),
            coded,
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
            return (
                ""
                if len(argument.split()) == len(parameters)
                else f"{name} takes {' and '.join(parameters)}"
            )
        if name in self.tools:
            try:
                self.tools[name].parse_line(argument)
            except ToolError as error:
                return str(error)
        return "" if argument else f"{name} takes a question"

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
        is_down = [self._down(episode, call.expert) for episode, call, _ in calls]

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
    def _down(episode: ToolEpisode, name: str) -> bool:
        """Whether an outage meets this call, which is counted."""
        episode.first = episode.first or name
        episode.counts[name] = episode.counts.get(name, 0) + 1
        begins = episode.assignment.outage
        return bool(begins) and name == episode.first and episode.counts[name] >= begins

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
    own: OwnTokenPrice,
    temperature: float = 1.0,
    write_messages: WriteMessages = write_lab_messages,
    scorer: Scorer | None = None,
) -> list[ToolEpisode]:
    """Roll out an episode per assignment.

    Args:
        generator: The orchestrator's.
        environment: The tools at work.
        assignments: What is to be done.
        max_turns: Turns at the most.
        seed: Of this batch.
        own: What the orchestrator's own tokens cost.
        temperature: Of the orchestrator.
        write_messages: What the orchestrator reads of an assignment.
        scorer: How answers to questions are scored; None for the strict rule of the procedural families.

    Returns:
        The episodes, in the order of the assignments.
    """
    episodes = []
    for assignment in assignments:
        ids = generator.encode_prompt(write_messages(assignment))
        episodes.append(ToolEpisode(assignment, list(ids), [False] * len(ids), len(ids)))
    rollout.roll_out(generator, environment, episodes, max_turns, seed, temperature)
    if scorer is not None:
        score_answers(episodes, environment.pool, scorer)
    for episode in episodes:
        if scorer is None:
            episode.correct = score_outcome(episode)
        episode.seconds += episode.num_written_tokens * own.seconds
    return episodes


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


def compute_total_cost(episode: ToolEpisode, own: OwnTokenPrice) -> float:
    """What the calls and the orchestrator's own tokens cost."""
    return episode.cost_usd + len(episode.ids) * own.cost_usd


def try_single_tools(
    environment: ToolEnvironment,
    assigned: Sequence[Assignment],
    tools: Sequence[str],
    split: str,
    scorer: Scorer | None = None,
) -> list[dict[str, Any]]:
    """Every tool on its own, on every question it can be asked, at the menu's prices.

    Nobody orchestrates, so no orchestrator is paid.

    Args:
        environment: The tools at work.
        assigned: Questions with menus.
        tools: Names of tools.
        split: Part of the seeds of models' replies.
        scorer: How replies are scored; None for the strict rule of the procedural families.

    Returns:
        Rows with item (number), tool, correct (nan where a reply was lost), cost_usd, seconds, calls, and how many
        replies the infrastructure lost (failed), the model's own limit cut (truncated) and failed otherwise (unusable).
    """
    rows = []
    for tool in tools:
        numbers = []
        for number, assignment in enumerate(assigned):
            if tool in {offer.name for offer in assignment.usable}:
                numbers.append(number)
        tool_assignments = [assigned[number] for number in numbers]
        episodes, answers = _use_tool(environment, tool, tool_assignments, split)
        scores = _score_tool_answers(environment, episodes, answers, scorer)
        for number, episode, correct in zip(numbers, episodes, scores, strict=True):
            rows.append(
                {
                    "item": number,
                    "tool": tool,
                    "correct": math.nan if episode.failed else correct,
                    "cost_usd": episode.cost_usd,
                    "seconds": episode.seconds,
                    "calls": episode.counts.get(tool, 0),
                    **count_failures(episode.replies),
                }
            )
    return rows


def count_failures(replies: Sequence[ExpertReply]) -> dict[str, int]:
    """Count the replies of experts that hold no answer.

    Args:
        replies: Of any experts.

    Returns:
        How many the infrastructure lost (failed), the model's own limit cut (truncated), and failed otherwise
        (unusable).
    """
    num_lost = sum(reply.lost for reply in replies)
    num_truncated = sum(reply.truncated for reply in replies)
    num_without_answer = sum(reply.failure is not None for reply in replies)
    return {
        "failed": num_lost,
        "truncated": num_truncated,
        "unusable": num_without_answer - num_lost - num_truncated,
    }


def _score_tool_answers(
    environment: ToolEnvironment,
    episodes: Sequence[ToolEpisode],
    answers: Sequence[str],
    scorer: Scorer | None,
) -> list[float]:
    """What the answers of a single tool are worth; a scorer reads its whole last reply."""
    items = [episode.assignment.work for episode in episodes]
    if scorer is None:
        replies = [tasks.format_reply(answer) for answer in answers]
        return [tasks.score_reply(*pair) for pair in zip(items, replies, strict=True)]
    replies = [episode.replies[-1].text for episode in episodes]
    return [score.value for score in environment.pool.run(scorer.score_all(items, replies))]


def _use_tool(
    environment: ToolEnvironment, tool: str, assigned: Sequence[Assignment], split: str
) -> tuple[list[ToolEpisode], list[str]]:
    """One strategy on many questions, call by call side by side: the episodes and their answers."""
    plans = [make_strategy(tool, assignment.work) for assignment in assigned]
    episodes = [ToolEpisode(assignment, [], [], 0) for assignment in assigned]
    answers = [""] * len(plans)
    arguments = {index: next(plan)[0] for index, plan in enumerate(plans)}
    turn = 0
    while arguments:
        calls = []
        for index, argument in arguments.items():
            seed = seeds.key("toolorchestra", "tried", split, tool, index, seed=turn) >> 1
            call = call_protocol.Call(tool, argument)
            calls.append((episodes[index], call, int(seed)))
        replies = environment.answer_calls(calls)

        # Hand each reply to its plan, which makes another call or ends with an answer.
        next_arguments = {}
        for index, (episode, call, _), reply in zip(arguments, calls, replies, strict=True):
            episode.turns.append(rollout.Turn("", call, reply))
            if reply.lost:
                continue
            try:
                next_arguments[index] = plans[index].send(call_protocol.clean_reply(reply.text))[0]
            except StopIteration as ended:
                answers[index] = ended.value
        arguments = next_arguments
        turn += 1
    return episodes, answers


# The workbench of a job ----------------------------------------------------------------------------


def select_training_offers(offers: Mapping[str, Offer], settings: ToolSettings) -> dict[str, Offer]:
    """Of all offers those that an orchestrator may meet before the tests, in traces as in training: no unseen tool."""
    return {
        name: offer
        for name, offer in offers.items()
        if name == tool_menu.OFFICE or name in list_training_tools(settings)
    }


class ToolWorkbench:
    """Everything that one job works with.

    offers: at list prices; unseen_offers: at those of the second list, empty where a job does without it.
    """

    def __init__(
        self,
        context: RunContext,
        settings: ToolSettings,
        environment: ToolEnvironment,
        model_cards: Mapping[str, Mapping[str, Any]],
        prices: PriceList,
        unseen_prices: PriceList | None = None,
    ) -> None:
        """model_cards: by the orchestrator's word for each model that is a tool."""
        self.context, self.settings, self.environment = context, settings, environment
        self.offers = tool_menu.make_offers(prices, model_cards)
        self.unseen_offers = (
            tool_menu.make_offers(unseen_prices, model_cards) if unseen_prices is not None else {}
        )

    @cached_property
    def own(self) -> OwnTokenPrice:
        """What the orchestrator's own tokens cost, by the card of its base."""
        card = cards.read_card(self.settings.base, self.context.models)
        return OwnTokenPrice(card["dollars_per_1k_tokens"] / 1000, 1 / card["tokens_per_second"])

    def make_generator(self, model: torch.nn.Module) -> LabGenerator:
        return LabGenerator(model, self.settings.turn_tokens, self.settings.response_tokens)

    def roll(
        self, generator: Generator, assignments: Sequence[Assignment], seed: int, temperature: float
    ) -> list[ToolEpisode]:
        max_turns = self.settings.rounds
        return roll_out_assignments(
            generator, self.environment, assignments, max_turns, seed, self.own, temperature
        )


@contextmanager
def open_workbench(
    context: RunContext,
    settings: ToolSettings,
    prices: PriceList,
    unseen_prices: PriceList | None = None,
    prompted: Sequence[str] = (),
) -> Iterator[ToolWorkbench]:
    """The tools of the settings at work.

    Args:
        context: How the study is carried out.
        settings: Its models are tools.
        prices: List prices.
        unseen_prices: Those of the second list; None where a job does without it.
        prompted: Models of llm.models that are asked beside the tools.

    Yields:
        The workbench; models and sandbox are closed behind it.
    """
    llm = context.llm
    model_cards = {
        word: read_model_card(llm, name, context.models)
        for word, name in sorted(settings.models.items())
    }
    clock = {word: 1 / card["tokens_per_second"] for word, card in model_cards.items()}
    models = open_models(
        llm,
        [*settings.models.values(), *prompted],
        NAME,
        context.runs,
        context.cassettes,
        sweep.count_workers(context.workers),
        open_local(context.models),
    )
    with (
        ExpertPool(models, settings.models, settings.model_temperature) as pool,
        ToolEnvironment(pool, clock) as environment,
    ):
        yield ToolWorkbench(context, settings, environment, model_cards, prices, unseen_prices)


def read_model_card(llm: LLMSettings, name: str, models: str) -> dict[str, Any]:
    """A lab model's card; of an endpoint its price, and the clock of a hosted model: what it is good at is unknown."""
    about = llm.models[name]
    if about.backend == "lab":
        return cards.read_card(about.model or name, models)
    cost_usd = 1000 * max(about.price_in or 0.0, about.price_out or 0.0)
    return {
        "dollars_per_1k_tokens": cost_usd,
        "tokens_per_second": HOSTED_TOKENS_PER_SECOND,
        "accuracy": [],
    }
