"""Prompted chat models as decision models: any model of `llm.models` decides as KO, TO or RO (section 3.2).

    open_chat_models = partial(open_models, params.llm, ["claude"], "lesson", runs, cassettes)
    model = PromptedModel("claude", "endpoint", open_chat_models, summary_interval=10)
    played = episode_set.play(model, SystemOptions("RO", rollout_steps=3, tools=tools))

A context becomes a prompt (`prompts`), the reply becomes a decision (`reply_parser`): a policy, or policies to try on
copies first. A reply that cannot be used is sent back once with the complaint; then the decision has failed, and the
engine's fallback acts. All episodes of a batch are asked about at once.

A model is asked for JSON by a schema that allows the names of the menu and nothing else; one that refuses
`response_format` is asked for free JSON from then on.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lib.experiment import seeds
from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply
from lib.llm.event_loop import run_coroutine
from lib.llm.failure_policy import require_reply
from lib.llm.json_replies import InvalidReply
from lib.llm.open_models import ChatModels
from lib.orchestration import prompts
from lib.orchestration.baseline_models import RandomModel
from lib.orchestration.contexts import DecisionContext
from lib.orchestration.decision_model import (
    LOST,
    UNFUNDED,
    UNUSABLE,
    Decision,
    DecisionUsage,
    ModelExchange,
    PromptSection,
    choose_surely,
)
from lib.orchestration.episode_batch import EpisodeSet
from lib.orchestration.reply_parser import Choice, parse, read_summary
from lib.orchestration.system_options import SystemOptions

VERSION = 1  # of what chat models are asked, and of what their replies decide
ATTEMPTS = 2  # per reply: one that cannot be used is sent back once
SHORTEST_REPLY = 60  # tokens; where the budget pays for less there is no point in asking
# Per token of a prompt at least: JSON and numbers have short tokens, and no prompt may cost more than was reserved.
CHARACTERS_PER_TOKEN = 2
_SEED_RANGE = 2**31  # servers take no larger seeds

Messages = Sequence[Mapping[str, str]]


class PromptedModel:
    """A chat model that reads prompts; its attributes are those of `decision_model.DecisionModel`."""

    reads_words = True
    chooses_calls = True
    is_greedy = True

    def __init__(
        self,
        name: str,
        backend: str,
        open_models: Callable[[], ChatModels],
        summary_interval: int = 0,
        keep_exchanges: bool = False,
        sample: int = 0,
    ) -> None:
        """Prepare to ask a chat model.

        Args:
            name: Name of the model in `llm.models`.
            backend: Backend of the model in its settings.
            open_models: Opens the connection to the model, once per event loop.
            summary_interval: Steps between updates of the long-term memory; 0 keeps none.
            keep_exchanges: Whether decisions carry their prompts and replies.
            sample: Another number asks everything again, with other seeds.
        """
        self.name = name
        self.backend = backend
        self.summary_interval = summary_interval
        self.keep_exchanges = keep_exchanges
        self.sample = sample
        self._open_models = open_models
        self._server_accepts_schema: bool | None = None  # not known before the first reply

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Ask the chat model about every context; a decision for each is a policy, policies to try first, or a failure.

        Args:
            contexts: One per episode.

        Returns:
            Decisions, in the order of the contexts.

        Raises:
            InfrastructureError: A later run could get a reply that did not come.
            BudgetExceeded: The run's spending limit is reached.
        """
        return run_coroutine(self._decide_all(contexts))

    def summarize(self, contexts: Sequence[DecisionContext]) -> list[tuple[str, DecisionUsage]]:
        """Ask the chat model for the running summary of every episode (A.2, Figure 9), its long-term memory.

        Args:
            contexts: One per episode; `recent` holds the steps since the last summary.

        Returns:
            For each the new summary, or the old one where no usable reply came, and the calls and tokens of asking.

        Raises:
            InfrastructureError, BudgetExceeded: As `decide`.
        """
        return run_coroutine(self._summarize_all(contexts))

    async def _decide_all(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Ask the chat model for a decision in every context.

        Args:
            contexts: One per episode.

        Returns:
            A decision for each context, in order.
        """
        # Connections belong to an event loop, and this batch has one of its own. No other model is opened: the function
        # was made for this model's name.
        async with self._open_models() as chat_models:
            chat_model = chat_models[self.name]
            decisions: list[Decision] = []

            # The first reply shows whether the server accepts a JSON schema (`_ask_with_schema` writes it down). One
            # context at a time until then, so that not every request of the batch is refused.
            while self._server_accepts_schema is None and len(decisions) < len(contexts):
                context = contexts[len(decisions)]
                decisions.append(await self._decide(chat_model, context))

            # All others at once.
            remaining = contexts[len(decisions) :]
            decisions += await asyncio.gather(
                *(self._decide(chat_model, context) for context in remaining)
            )
            return decisions

    async def _summarize_all(
        self, contexts: Sequence[DecisionContext]
    ) -> list[tuple[str, DecisionUsage]]:
        """Ask the chat model for the running summary of every episode, all at once.

        Args:
            contexts: One per episode.

        Returns:
            For each the summary, and what it cost.
        """
        async with self._open_models() as chat_models:
            chat_model = chat_models[self.name]
            return await asyncio.gather(
                *(self._summarize(chat_model, context) for context in contexts)
            )

    # Deciding ------------------------------------------------------------------------------------

    async def _decide(self, model: ChatModel, context: DecisionContext) -> Decision:
        """Ask about one context, once more with a correction where the reply cannot be used.

        Args:
            model: The opened chat model.
            context: The context of one episode at one step.

        Returns:
            A policy, policies to try first, or a failure: the reply was lost, unusable, or too expensive.
        """
        sections = prompts.render(context)
        messages: Messages = prompts.assemble(sections)
        decision = Decision()
        for attempt in range(ATTEMPTS):
            request = self._make_request("reply", context, messages, attempt, decision.usage, model)
            if request is None:
                decision.failure = UNFUNDED
                return decision
            reply = await self._ask_with_schema(model, request, context, decision.usage)
            require_reply(reply, "a choice")
            if reply.failure is not None and reply.failure.of_infrastructure:
                decision.failure = LOST
                decision.usage.failure_kinds.append(reply.failure.kind)
                self._keep_exchange(decision, sections, reply, f"lost ({reply.failure.kind})")
                return decision

            try:
                choice = _read_choice(reply, context)
            except InvalidReply as problem:
                decision.usage.invalid_replies += 1
                decision.usage.failure_kinds.append(problem.kind)
                self._keep_exchange(decision, sections, reply, f"cannot be used: {problem}")
                correction = prompts.write_correction(context, str(problem))
                messages = prompts.send_back(messages, reply.text, correction)
            else:
                self._take_choice(decision, choice, context)
                self._keep_exchange(decision, sections, reply, _describe_choice(choice))
                return decision
        decision.failure = UNUSABLE
        return decision

    @staticmethod
    def _take_choice(decision: Decision, choice: Choice, context: DecisionContext) -> None:
        """Write the choice of a reply into a decision: a policy, or policies to try first.

        Args:
            decision: Is changed in place.
            choice: The parsed reply.
            context: Has the policies to choose from.
        """
        decision.reasoning = choice.reasoning
        decision.usage.repaired_replies += int(choice.repaired)
        decision.calls = choice.calls
        if choice.policy is not None:
            index = context.policies.index(choice.policy)
            decision.probabilities = choose_surely(index, len(context.policies)).probabilities

    def _keep_exchange(
        self, decision: Decision, sections: Sequence[PromptSection], reply: Reply, outcome: str
    ) -> None:
        if self.keep_exchanges:
            decision.exchanges.append(ModelExchange(tuple(sections), reply.text, outcome))

    # Long-term memory ----------------------------------------------------------------------------

    async def _summarize(
        self, model: ChatModel, context: DecisionContext
    ) -> tuple[str, DecisionUsage]:
        """Ask the chat model for the running summary of one episode, its long-term memory.

        Args:
            model: The opened chat model.
            context: A context with the steps since the last summary.

        Returns:
            The summary, the old one where no usable reply came; and what it cost.
        """
        usage = DecisionUsage()
        messages = prompts.summary_messages(context)
        request = self._make_request("summary", context, messages, 0, usage, model)
        if request is None:
            return context.summary, usage
        reply = await self._ask(model, request, usage)
        require_reply(reply, "a summary")
        if reply.failure is None:
            return read_summary(reply.text) or context.summary, usage
        usage.failure_kinds.append(reply.failure.kind)
        if not reply.failure.of_infrastructure:
            usage.invalid_replies += 1
        return context.summary, usage

    # Asking --------------------------------------------------------------------------------------

    def _make_request(
        self,
        purpose: str,
        context: DecisionContext,
        messages: Messages,
        attempt: int,
        usage: DecisionUsage,
        model: ChatModel,
    ) -> ChatRequest | None:
        """Make the request for one reply, as long as the episode's budget pays for.

        Args:
            purpose: reply or summary; names the stream of seeds.
            context: What is asked about.
            messages: The prompt.
            attempt: Number of the attempt, from 0; a correction is another attempt.
            usage: Calls, tokens and dollars of the decision so far.
            model: Model whose prices count.

        Returns:
            A request whose reply may be no longer than the budget allows.
        """
        max_tokens = None
        if context.budget is not None:
            dollars_left = context.budget.left - usage.cost_usd
            max_tokens = count_affordable_tokens(model, messages, dollars_left)
            if max_tokens == 0:
                return None
        key = seeds.key(
            purpose,
            context.system,
            context.stream,
            context.query.step,
            len(context.tool_results),
            attempt,
            seed=self.sample,
        )
        return ChatRequest(
            messages,
            max_tokens=max_tokens,
            seed=int(key) % _SEED_RANGE,
            sample=self.sample,
            caller=f"{context.system} {self.name}",
        )

    async def _ask_with_schema(
        self, model: ChatModel, request: ChatRequest, context: DecisionContext, usage: DecisionUsage
    ) -> Reply:
        """Send a request that asks for JSON by a schema, or for free JSON where the server accepts no schema.

        Args:
            model: The opened chat model.
            request: Without a schema.
            context: Context whose menu the schema allows.
            usage: Calls, tokens and dollars of the decision; those of this request are added.

        Returns:
            The reply.
        """
        if self._server_accepts_schema is not False:
            with_schema = replace(request, response_format=make_response_format(context))
            reply = await self._ask(model, with_schema, usage)
            self._server_accepts_schema = not _refuses_schema(reply.failure)
            if self._server_accepts_schema:
                return reply
        return await self._ask(model, request, usage)

    async def _ask(self, model: ChatModel, request: ChatRequest, usage: DecisionUsage) -> Reply:
        """Send one request, and add its calls, tokens and dollars to the usage, also where it failed.

        Args:
            model: The opened chat model.
            request: The request.
            usage: Is changed in place.

        Returns:
            The reply.
        """
        reply = await model.reply_to(request)
        usage.calls += 1
        usage.tokens_in += reply.tokens_in
        usage.tokens_out += reply.tokens_out
        usage.cost_usd += reply.cost_usd
        usage.kwh += reply.kwh
        return reply


def count_calls_allowed(context: DecisionContext) -> int:
    """How many policies the next reply may try: one for TO, several for RO, none where it has to decide."""
    return min(context.calls_at_once, context.calls_left, len(context.untried))


def make_response_format(context: DecisionContext) -> dict[str, Any]:
    """Make the JSON schema of a reply for OpenAI's API, which allows the names of the policies and nothing else.

    Strict schemas have no alternatives at the top level. A reply that may try policies therefore has two fields,
    `policy` and `call`, one of them null.

    Args:
        context: Has the policies, and those that may still be tried.

    Returns:
        The value of the API's `response_format`.
    """
    fields: dict[str, Any] = {"reasoning": {"type": "string"}}
    max_calls = count_calls_allowed(context)
    if max_calls == 0:
        fields["policy"] = {"type": "string", "enum": list(context.policies)}
    else:
        untried = list(context.untried)
        if max_calls == 1:
            fields["call"] = {"type": ["string", "null"], "enum": [*untried, None]}
        else:
            names = {"type": "string", "enum": untried}
            fields["call"] = {"type": ["array", "null"], "items": names}
        fields["policy"] = {"type": ["string", "null"], "enum": [*context.policies, None]}
    schema = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    json_schema = {"name": "decision", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": json_schema}


def count_affordable_tokens(model: ChatModel, messages: Messages, dollars: float) -> int:
    """Count the tokens of the longest reply that the rest of an episode's budget pays for.

    Args:
        model: Model whose prices count.
        messages: The prompt, which is paid first.
        dollars: What is left of the budget.

    Returns:
        Number of tokens; 0 where the budget pays for no reply.
    """
    num_characters = sum(len(message["content"]) for message in messages)
    dollars_for_reply = dollars - num_characters / CHARACTERS_PER_TOKEN * model.price_in
    shortest = min(SHORTEST_REPLY, model.max_tokens)
    if dollars_for_reply < shortest * model.price_out:
        return 0
    if model.price_out == 0:
        return model.max_tokens
    return min(model.max_tokens, math.floor(dollars_for_reply / model.price_out))


def _read_choice(reply: Reply, context: DecisionContext) -> Choice:
    """Parse the policy that a reply chooses, or the policies that it wants to try first.

    Args:
        reply: The chat model's reply.
        context: Has the policies, and how many may still be tried.

    Returns:
        The choice.

    Raises:
        InvalidReply: It names none, or the model failed.
    """
    if reply.failure is not None:
        kind = reply.failure.kind
        raise InvalidReply(kind, f"the reply is unusable ({kind})")
    max_calls = count_calls_allowed(context)
    return parse(reply.text, context.policies, context.untried, max_calls)


def _describe_choice(choice: Choice) -> str:
    """The choice in words, such as "picked SO-d1"."""
    if choice.policy is not None:
        return f"picked {choice.policy}"
    return f"tries {', '.join(choice.calls)}"


def _refuses_schema(failure: Failure | None) -> bool:
    """Whether a server took offence at `response_format`."""
    if failure is None or failure.kind != "bad_request":
        return False
    return "response_format" in failure.detail or "json_schema" in failure.detail


# Costs beforehand ---------------------------------------------------------------------------------


class _RecordingRandomModel(RandomModel):
    """Chooses policies at random, and keeps every context in words that it was asked to decide in."""

    reads_words = True

    def __init__(self) -> None:
        self.contexts: list[DecisionContext] = []

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        self.contexts.extend(contexts)
        return super().decide(contexts)


def collect_contexts(episode_set: EpisodeSet, options: SystemOptions) -> list[DecisionContext]:
    """Play episodes with random choice of policies, and return the context of every decision, in words.

    Args:
        episode_set: The episodes.
        options: What the system may read and try.

    Returns:
        One per step and episode, in the order of the steps.
    """
    collector = _RecordingRandomModel()
    episode_set.play(collector, options)
    return collector.contexts
