"""Prompted chat models as decision models: any model of `llm.models` decides as KO, TO or RO (section 3.2).

    open_chat_models = partial(open_models, params.llm, ["claude"], "lesson", runs, cassettes)
    model = PromptedModel("claude", "endpoint", open_chat_models, summary_interval=10)
    played = contest.play(model, SystemOptions("RO", rollout_steps=3, tools=tools))

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
from lib.llm.cost_estimate import PlannedCalls
from lib.llm.event_loop import run_coroutine
from lib.llm.failure_policy import require_reply
from lib.llm.json_replies import InvalidReply
from lib.llm.open_models import ChatModels
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.orchestration import prompts
from lib.orchestration.baseline_models import RandomModel
from lib.orchestration.contexts import DecisionContext
from lib.orchestration.decision_model import (
    LOST,
    UNFUNDED,
    UNUSABLE,
    Decision,
    ModelExchange,
    PromptSection,
    Usage,
    choose_surely,
)
from lib.orchestration.episode_batch import Contest, SystemOptions
from lib.orchestration.reply_parser import SUMMARY_WORDS, Choice, parse, read_summary

VERSION = 1  # of what chat models are asked, and of what their replies decide
ATTEMPTS = 2  # per reply: one that cannot be used is sent back once
SHORTEST_REPLY = 60  # tokens; where the budget pays for less there is no point in asking
# Per token of a prompt at least: JSON and numbers have short tokens, and no prompt may cost more than was reserved.
CHARACTERS_PER_TOKEN = 2
_SEED_RANGE = 2**31  # servers take no larger seeds

Messages = Sequence[Mapping[str, str]]


class PromptedModel:
    """A chat model that reads prompts. See `decision_model.DecisionModel` for its attributes."""

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
        """Prepare to ask.

        Args:
            name: Of the model in `llm.models`.
            backend: Of the model in its settings.
            open_models: Opens it, once per event loop.
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
        self._takes_schema: bool | None = None  # not known before the first reply

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Ask about every context.

        Args:
            contexts: One per episode.

        Returns:
            For each a choice, calls to make before, or a failure.

        Raises:
            InfrastructureError: A later run could get a reply that did not come.
            BudgetExceeded: The run's spending limit is reached.
        """
        return run_coroutine(self._decide_all(contexts))

    def summarize(self, contexts: Sequence[DecisionContext]) -> list[tuple[str, Usage]]:
        """Ask for the running summary of every episode (A.2, Figure 9).

        Args:
            contexts: One per episode; `recent` holds the steps since the last summary.

        Returns:
            For each the new summary, or the old one where no usable reply came, and what it took.

        Raises:
            InfrastructureError, BudgetExceeded: As `decide`.
        """
        return run_coroutine(self._summarize_all(contexts))

    async def _decide_all(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        async with self._open_models() as models:
            model = models[self.name]
            decisions: list[Decision] = []
            # One after another until a reply tells whether the server takes a schema, then all at once.
            for context in contexts:
                if self._takes_schema is not None:
                    break
                decisions.append(await self._decide(model, context))
            remaining = contexts[len(decisions) :]
            decisions += await asyncio.gather(
                *(self._decide(model, context) for context in remaining)
            )
            return decisions

    async def _summarize_all(self, contexts: Sequence[DecisionContext]) -> list[tuple[str, Usage]]:
        async with self._open_models() as models:
            model = models[self.name]
            return await asyncio.gather(*(self._summarize(model, context) for context in contexts))

    # Deciding ------------------------------------------------------------------------------------

    async def _decide(self, model: ChatModel, context: DecisionContext) -> Decision:
        """One decision, asked for again once where the reply cannot be used."""
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
        """Write a choice into a decision."""
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

    async def _summarize(self, model: ChatModel, context: DecisionContext) -> tuple[str, Usage]:
        usage = Usage()
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
        usage: Usage,
        model: ChatModel,
    ) -> ChatRequest | None:
        """The request for one reply.

        Args:
            purpose: reply or summary; names the stream of seeds.
            context: What is asked about.
            messages: The prompt.
            attempt: From 0; a correction is another attempt.
            usage: What the decision took so far.
            model: Whose prices count.

        Returns:
            The request, with a reply no longer than the episode's budget allows; None where it allows none.
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
        self, model: ChatModel, request: ChatRequest, context: DecisionContext, usage: Usage
    ) -> Reply:
        """The reply to a request with a schema, or without one where the server takes none."""
        if self._takes_schema is not False:
            with_schema = replace(request, response_format=make_response_format(context))
            reply = await self._ask(model, with_schema, usage)
            self._takes_schema = not _refuses_schema(reply.failure)
            if self._takes_schema:
                return reply
        return await self._ask(model, request, usage)

    async def _ask(self, model: ChatModel, request: ChatRequest, usage: Usage) -> Reply:
        """One call, which is counted whatever comes of it."""
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
    """The JSON schema of a reply, as OpenAI's API takes it.

    Strict schemas know no alternatives at the top, so that a reply that may call has both fields, one of them null.

    Args:
        context: What is asked about.
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
    """The longest reply that an episode's budget pays for.

    Args:
        model: Whose prices count.
        messages: The prompt, which is paid first.
        dollars: What is left of the budget.

    Returns:
        Tokens; 0 where prompt and a short reply cost more than is left.
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
    """The choice that a reply makes. Raises InvalidReply, also for a reply in which the model failed."""
    if reply.failure is not None:
        kind = reply.failure.kind
        raise InvalidReply(kind, f"the reply is unusable ({kind})")
    max_calls = count_calls_allowed(context)
    return parse(reply.text, context.policies, context.untried, max_calls)


def _describe_choice(choice: Choice) -> str:
    if choice.policy is not None:
        return f"picked {choice.policy}"
    return f"tries {', '.join(choice.calls)}"


def _refuses_schema(failure: Failure | None) -> bool:
    """Whether a server took offence at `response_format`."""
    if failure is None or failure.kind != "bad_request":
        return False
    return "response_format" in failure.detail or "json_schema" in failure.detail


# Costs beforehand ---------------------------------------------------------------------------------


class _ContextCollector(RandomModel):
    """Decides at random, and remembers what it could have read."""

    reads_words = True

    def __init__(self) -> None:
        self.contexts: list[DecisionContext] = []

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        self.contexts.extend(contexts)
        return super().decide(contexts)


def collect_contexts(contest: Contest, options: SystemOptions) -> list[DecisionContext]:
    """The contexts of episodes that random choices play, in words, with the results of every policy.

    Args:
        contest: The episodes.
        options: The context of the system.

    Returns:
        One per step and episode, in the order of the steps.
    """
    collector = _ContextCollector()
    contest.play(collector, options)
    return collector.contexts


def plan_calls(
    model: str,
    max_tokens: int,
    contexts: Sequence[DecisionContext],
    num_episodes: int,
    interval: int = 1,
    summary_interval: int = 0,
) -> PlannedCalls:
    """What a prompted model may be asked at most: episodes at full length, every call used, every reply sent back.

    Args:
        model: Its name in `llm.models`.
        max_tokens: Of a reply at the most.
        contexts: Of some episode of the kind, see `collect_contexts`; the longest prompt counts.
        num_episodes: That will be played.
        interval: Steps between decisions.
        summary_interval: Steps between updates of the long-term memory; 0 keeps none.

    Returns:
        Calls and tokens. Prompts are estimated by their bytes.
    """
    longest_prompt = max(_estimate_prompt(prompts.assemble(prompts.render(c))) for c in contexts)
    first = contexts[0]
    decisions = math.ceil(first.query.horizon / interval)
    replies_per_decision = 1 + prompts.count_calls(first)
    calls = num_episodes * decisions * replies_per_decision * ATTEMPTS
    if "mem_l" in first.components and summary_interval:
        longest_prompt += 2 * SUMMARY_WORDS  # tokens
        calls += num_episodes * (first.query.horizon // summary_interval)
    # What is sent back is part of the second prompt; half of the prompts are such.
    tokens_in = calls * longest_prompt + calls // 2 * max_tokens
    return PlannedCalls(model, calls, tokens_in, calls * max_tokens)


def _estimate_prompt(messages: Messages) -> int:
    return estimate_tokens(sum(count_bytes(message["content"]) for message in messages))
