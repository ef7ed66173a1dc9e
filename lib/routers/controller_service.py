"""A trained CoRL controller behind the chat completions API: a request is an episode, which may call experts.

A *controller* is a language model trained with CoRL: it answers itself or calls *experts*, other models, within a
budget that its prompt names by a label (low, medium, high). Clients ask for the model "router" (under a medium budget),
"router@low", "router@0.002" (the largest budget that the controller was trained with and that costs no more), or for an
expert by name. The reply is the controller's final answer; its usage lists the calls and what they cost. Where the
controller gives no reply, an expert is asked.

The controller answers as it was evaluated: temperatures, seeds and limits of tokens are those of its training, whatever
the request says. Left out: tools and formats, which it has not learned and are refused; batches of turns, since a
request that waits for an expert must not hold up another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from lib.budgeted_routing.budget_episodes import BudgetEpisode, BudgetTask, play_episodes
from lib.language_models.hugging_face_prompts import PromptError
from lib.language_models.serving.chat_completions.request import (
    CompletionRequest,
    RequestRefused,
    parse_body,
)
from lib.llm.chat_model import Failure
from lib.rl import call_protocol
from lib.rl.call_protocol import BUDGET_WORDS
from lib.rl.expert_pool import ExpertQuery, ExpertReply, derive_reply_seed
from lib.rl.generators import Generator
from lib.routers.choice_log import ChoiceLog
from lib.routers.collect_outcomes import hash_messages
from lib.routers.model_backend import ModelBackend, ModelUnavailable
from lib.routers.request_metrics import RequestMetrics
from lib.routers.router_service import (
    OWNER,
    BaseService,
    RoutedRequest,
    read_dollars,
)
from lib.routers.saved_controller import SavedController
from lib.tasks import Item

CONTROLLER_NAME = "controller"  # as the log and the metrics call it
DEFAULT_BUDGET_LABEL = "medium"
MAX_EPISODES = 64  # that run at the same time; further requests wait
# Parameters of a request that a controller cannot honour.
_REFUSED = ("tools", "response_format", "logprobs")


class OneAtATime:
    """A controller's generator that several threads may use: a lock lets one thread generate at a time.

    Its interface is that of `Generator`.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._lock = threading.Lock()
        self.max_response_tokens = generator.max_response_tokens
        self.marks_cuts = generator.marks_cuts

    def has_room(self, ids: Sequence[int]) -> bool:
        return self._generator.has_room(ids)

    def encode_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self._generator.encode_prompt(messages)

    def encode(self, text: str) -> list[int]:
        return self._generator.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._generator.decode(ids)

    def write_turns(
        self, contexts: Sequence[Sequence[int]], turn_seeds: Sequence[int], temperature: float
    ) -> list[list[int]]:
        with self._lock:
            return self._generator.write_turns(contexts, turn_seeds, temperature)


class ServedExperts:
    """The experts of one served episode: models that are asked in the server's event loop.

    It has the interface of an `ExpertPool`. A failure never ends an episode: where an expert gives no reply, the
    controller reads `error` and continues, because a user waits for an answer.

    Attributes:
        experts: Names as the controller writes them.
    """

    def __init__(
        self,
        backends: Mapping[str, ModelBackend],
        temperature: float,
        loop: asyncio.AbstractEventLoop,
        metrics: RequestMetrics,
    ) -> None:
        """
        Args:
            backends: The model of each expert.
            temperature: Sampling temperature of all experts.
            loop: The server's event loop, to which the backends' connections belong.
            metrics: Counts the calls.
        """
        self.experts = tuple(backends)
        self._backends = backends
        self._temperature = temperature
        self._loop = loop
        self._metrics = metrics

    def ask(self, queries: Sequence[ExpertQuery]) -> list[ExpertReply]:
        """Asks all queries at once and waits, in the thread of the episode; replies are in the order of the queries."""
        futures = [
            asyncio.run_coroutine_threadsafe(self._ask_one(query), self._loop) for query in queries
        ]
        return [future.result() for future in futures]

    async def _ask_one(self, query: ExpertQuery) -> ExpertReply:
        """Asks one expert model.

        Args:
            query: The expert, the text and the conversation so far.

        Returns:
            The reply; one with a failure where the expert gives none.
        """
        backend = self._backends[query.expert]
        turns = (*query.history, ("user", query.text))
        body = {
            "model": query.expert,
            "messages": [{"role": role, "content": content} for role, content in turns],
            "temperature": self._temperature,
            "seed": query.seed,
            "max_tokens": backend.settings.max_tokens,
        }
        try:
            completion = await backend.complete(body)
        except ModelUnavailable as error:
            self._metrics.add("failures", 1, model=query.expert, status=str(error.status))
            return ExpertReply("", 0.0, failure=Failure("empty", str(error)))
        self._metrics.add("calls", 1, model=query.expert)
        return read_expert_reply(completion, backend)


def read_expert_reply(completion: Mapping[str, Any], backend: ModelBackend) -> ExpertReply:
    """Converts a chat completion to an expert's reply.

    Args:
        completion: JSON of the chat completions API, with one choice.
        backend: The model that wrote it, which knows its prices.

    Returns:
        The text with its cost and tokens; a failure where it is empty, or was cut off at the limit of tokens.
    """
    choice = completion["choices"][0]
    text = (choice.get("message") or {}).get("content") or ""
    # Servers leave fields out, or set them to null: both count as nothing.
    usage = completion.get("usage") or {}
    failure = None
    if choice.get("finish_reason") == "length":
        failure = Failure("truncated")
    elif not text:
        failure = Failure("empty")
    return ExpertReply(
        text,
        backend.price_usage(usage),
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        failure=failure,
    )


class ControllerBackend(ModelBackend):
    """A controller as a model that a service can ask; the name of the model in a request gives the budget.

    Attributes:
        name: CONTROLLER_NAME.
        controller: Settings of the controller.
    """

    def __init__(
        self,
        controller: SavedController,
        generator: Generator,
        backends: Mapping[str, ModelBackend],
        metrics: RequestMetrics,
        default_budget_usd: float | None = None,
    ) -> None:
        """
        Args:
            controller: Settings of the controller.
            generator: Generates the controller's turns.
            backends: The model of each expert.
            metrics: Counts calls to experts.
            default_budget_usd: Budget of requests that name none, in USD; None for that of DEFAULT_BUDGET_LABEL.
        """
        self.name = CONTROLLER_NAME
        self.controller = controller
        self._generator = OneAtATime(generator)
        self._backends = backends
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(MAX_EPISODES, thread_name_prefix="episode")
        self._default_label = DEFAULT_BUDGET_LABEL
        if default_budget_usd is not None:
            self._default_label = controller.choose_budget_label(default_budget_usd)

    def read_budget_label(self, asked_for: str) -> str:
        """Reads the budget from the name of the model in a request.

        Args:
            asked_for: "router" (the default budget), "router@LABEL" such as router@low, or "router@USD" such as
                router@0.002.

        Returns:
            The label of the budget: low, medium or high.

        Raises:
            RequestRefused: What follows the @ is neither a label nor a number of dollars.
        """
        _, has_budget, amount = asked_for.partition("@")
        if not has_budget:
            return self._default_label
        if amount in BUDGET_WORDS:
            return amount
        alternatives = f"{', '.join(BUDGET_WORDS)}, or "
        budget_usd = read_dollars(asked_for, alternatives)
        return self.controller.choose_budget_label(budget_usd)

    def price_usage(self, usage: Mapping[str, Any] | None) -> float:
        """The cost of the calls to experts in USD; the tokens of the controller itself are not part of a budget."""
        return float((usage or {}).get("cost") or 0.0)

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        task = self._make_task(body)
        loop = asyncio.get_running_loop()
        episode = await loop.run_in_executor(self._threads, self._play, task, loop)
        return self._write_completion(body, episode)

    async def iterate_chunks(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yields a completion as a stream of chunks.

        Whether a turn is the answer is known at its end only, so the answer comes in one piece.

        Args:
            body: The client's request.
        """
        completion = await self.complete(body)
        choice = completion["choices"][0]
        head = {name: completion[name] for name in ("id", "created", "model")}
        head["object"] = "chat.completion.chunk"
        for delta, finish_reason in ((choice["message"], None), ({}, choice["finish_reason"])):
            yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
        yield head | {"choices": [], "usage": completion["usage"]}

    def _make_task(self, body: Mapping[str, Any]) -> BudgetTask:
        """Converts a request of the chat completions API to the task of an episode.

        Args:
            body: JSON of the request.

        Returns:
            The last message as the question, earlier messages as its history, and the budget.

        Raises:
            ModelUnavailable: The request is malformed, asks for what a controller cannot do, or does not end with a
                message of the user.
        """
        try:
            request = parse_body(dict(body))
            _check_supported(request)
        except RequestRefused as error:
            raise ModelUnavailable(f"{self.name}: {error}", error.status) from error

        *earlier_messages, question = request.messages
        history = []
        for message in earlier_messages:
            # The newer API calls the system message that of the developer.
            role = "system" if message.role == "developer" else message.role
            history.append((role, message.content or ""))
        item = Item(
            prompt=question.content,
            reference="",
            worked_solution="",
            group="",
            difficulty=1,
            id="",
            history=tuple(history),
        )
        label = self.read_budget_label(request.model)
        budget_usd = self.controller.budget_usd_by_label[label]
        return BudgetTask(item, self.controller.style, label, budget_usd)

    def _play(self, task: BudgetTask, loop: asyncio.AbstractEventLoop) -> BudgetEpisode:
        """Plays one episode, the controller's turns and its calls to experts, in a thread of its own.

        Args:
            task: The question with its budget.
            loop: Event loop in which experts are asked.

        Returns:
            The finished episode.

        Raises:
            ModelUnavailable: The conversation does not fit, or the network broke.
        """
        experts = ServedExperts(
            self._backends, self.controller.expert_temperature, loop, self._metrics
        )
        # Equal requests get equal replies: the random numbers depend on the question alone.
        seed = derive_reply_seed(task.item.prompt)
        try:
            (episode,) = play_episodes(
                self._generator,
                experts,
                [task],
                self.controller.max_turns,
                seed,
                self.controller.temperature,
                reads_marked_answers=True,
            )
        except (PromptError, FloatingPointError, torch.OutOfMemoryError) as error:
            raise ModelUnavailable(f"{self.name}: {error}") from error
        if not episode.turns:
            raise ModelUnavailable(
                f"{self.name}: the conversation fills the window of {episode.prompt_length} tokens or more",
                400,
            )
        return episode

    def _write_completion(self, body: Mapping[str, Any], episode: BudgetEpisode) -> dict[str, Any]:
        """Converts an episode to a chat completion.

        Args:
            body: The client's request.
            episode: The controller's turns, with the experts' replies.

        Returns:
            The answer, the tokens of all models, and the calls with their costs.
        """
        text, is_answer = read_final_text(episode)
        replies = episode.replies
        tokens_in = episode.prompt_length + sum(reply.tokens_in for reply in replies)
        tokens_out = episode.num_written_tokens + sum(reply.tokens_out for reply in replies)
        calls = []
        for turn in episode.turns:
            # A turn without a reply is the answer, or a malformed call.
            if turn.reply:
                failure = turn.reply.failure
                calls.append(
                    {
                        "model": turn.call.expert,
                        "query": turn.call.query,
                        "cost_usd": turn.reply.cost_usd,
                        "failure": failure.kind if failure else None,
                    }
                )
        digest = hash_messages(body["messages"])[:16]
        return {
            "id": f"chatcmpl-{episode.task.budget_label}-{digest}",
            "object": "chat.completion",
            "created": 0,  # no clock: equal requests get equal bytes
            "model": self.name,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop" if is_answer else "length",
                }
            ],
            "usage": {
                "prompt_tokens": tokens_in,
                "completion_tokens": tokens_out,
                "total_tokens": tokens_in + tokens_out,
                "cost": episode.cost_usd,
                "calls": calls,
            },
        }

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _check_supported(request: CompletionRequest) -> None:
    """Checks that a controller can honour a request.

    Args:
        request: The client's request.

    Raises:
        RequestRefused: It asks for more than one reply, for tools or another format, or its last message is not the
            user's.
    """
    for name in _REFUSED:
        if getattr(request, name):
            raise RequestRefused(f"a controller replies with text and has no {name}", param=name)
    if (request.n or 1) > 1:
        raise RequestRefused("a controller gives one reply: n is 1", param="n")
    *earlier_messages, last = request.messages
    has_tool_message = any(message.role == "tool" for message in earlier_messages)
    if last.role != "user" or has_tool_message:
        raise RequestRefused(
            "a controller takes messages of system, user and assistant, the last of the user",
            param="messages",
        )


def read_final_text(episode: BudgetEpisode) -> tuple[str, bool]:
    """Reads the text that the user gets from an episode.

    An expert's reply is passed on whole where the controller answers with it, because the format of its answer is
    unknown. An episode without an answer gives its last turn, without reasoning and tags.

    Args:
        episode: An episode of at least one turn.

    Returns:
        The text, and whether it is an answer.
    """
    last_turn = episode.turns[-1]
    if episode.answers_with_reply:
        return episode.replies[-1].text or call_protocol.ERROR_REPLY, True
    if episode.written_answer is not None:
        return episode.written_answer, True
    is_answer = last_turn.call is None and not last_turn.malformed
    return call_protocol.clean_reply(last_turn.text), is_answer


class ControllerService(BaseService):
    """Serves a controller, and its experts by name; the counterpart of `router_service.RouterService`."""

    def __init__(
        self,
        controller: SavedController,
        generator: Generator,
        backends: Mapping[str, ModelBackend],
        log: ChoiceLog | None = None,
        budget_usd: float | None = None,
    ) -> None:
        """
        Args:
            controller: Settings of the controller.
            generator: Generates the controller's turns.
            backends: The model of each expert.
            log: Log of requests; None for none.
            budget_usd: Budget of requests that name none, in USD; None for that of DEFAULT_BUDGET_LABEL.
        """
        super().__init__(backends, log)
        self.controller = controller
        self._backend = ControllerBackend(controller, generator, backends, self.metrics, budget_usd)
        self.backends[CONTROLLER_NAME] = self._backend

    async def choose_model(self, body: Mapping[str, Any], started: float) -> RoutedRequest:
        """Ranks the models that may answer: the controller, then experts in case that it gives no reply.

        Args:
            body: The client's request.
            started: Time at which it came, in seconds.

        Returns:
            The request with its budget and the ranking.
        """
        asked_for = body["model"]
        label = self._backend.read_budget_label(asked_for)
        budget_usd = self.controller.budget_usd_by_label[label]

        # Experts that the budget affords come first, the most expensive one before the others.
        costs = self.controller.cost_by_expert  # the cheapest first
        affordable = [expert for expert in costs if costs[expert] <= budget_usd]
        too_expensive = [expert for expert in costs if expert not in affordable]
        ranking = (CONTROLLER_NAME, *reversed(affordable), *too_expensive)
        return RoutedRequest(body, asked_for, budget_usd, None, ranking, started, 0.0)

    def describe_model(self, name: str) -> dict[str, Any]:
        """Describes a model or the controller as the API's list of models does.

        Args:
            name: Name in a request, such as an expert or router@low.

        Returns:
            Identity, with the mean cost of an expert or the budgets of the controller.
        """
        head = {"id": name, "object": "model", "created": 0, "owned_by": OWNER}
        if name in self.controller.cost_by_expert:
            return head | {"mean_cost_usd": self.controller.cost_by_expert[name]}
        self.check_router_name(name)
        label = self._backend.read_budget_label(name)
        return head | {
            "budget": label,
            "budget_usd": self.controller.budget_usd_by_label[label],
            "budgets_usd": dict(self.controller.budget_usd_by_label),
            "models": list(self.controller.experts),
        }
