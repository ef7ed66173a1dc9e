"""The pool of experts: models of `llm.models` under the words that a controller writes, asked many at once.

    with ExpertPool(models, {"lab-big": "big"}, temperature=1.0) as pool:
        (reply,) = pool.ask([ExpertQuery("lab-big", "12 * 34 = ?", seed=7)])

A call that fails is no exception but a reply with a failure, of one of two kinds (`lib.llm.chat_model`). A failure of
the model (cut off, empty, refused) is an outcome: the controller reads what came of the reply, or `error`, and what
was billed is charged. A failure of the infrastructure says nothing about the expert: such a reply is `lost`, and its
episode stands in no score. Left out: what a controller reads of a reply (`lib.rl.call_protocol`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lib import tasks
from lib.experiment import seeds
from lib.llm.chat_model import ChatRequest, Failure, Reply
from lib.llm.event_loop import EventLoopThread
from lib.llm.failure_policy import ReplyCounts
from lib.llm.open_models import ChatModels
from lib.tasks.scorers.extraction import extract_number, find_final_answers

Result = TypeVar("Result")
VERSION = 1  # of what experts are asked and what a reply costs
NUM_SAMPLES = 2  # independent replies of an expert to a question; with more, fewer of them would be computed once only

# The families' scores are strict about the tags, which the lab models were trained on; any other model is told, and
# where it answers in another form, `tag_final_answer` adds them.
ANSWER_FORM = "End with the answer alone as <answer> answer </answer>."


def tag_final_answer(reply: str, question: str) -> str:
    """Put the final answer of a reply into answer tags, which the scores of the procedural families ask for.

    A model that can do a task and forgets the form is not to look like one that cannot.

    Args:
        reply: Reply of a model that was told ANSWER_FORM.
        question: What it was asked; where that is an equation ("47 * 38 = ?"), the answer is a number.

    Returns:
        The reply, with the answer in tags behind it where it marks one in another way, as a box or "the answer is", or
        where it is a whole number; else as it was.
    """
    if tasks.extract_answer(reply) is not None:
        return reply
    answers = find_final_answers(reply)
    if answers:
        return f"{reply} {tasks.format_reply(answers[0].text)}"
    if question.rstrip().endswith("= ?"):
        number = extract_number(reply)
        if number is not None and number.whole is not None:
            return f"{reply} {tasks.format_reply(str(number.whole))}"
    return reply


def derive_reply_seed(text: str, sample: int = 0) -> int:
    """The seed of the experts' replies to a question.

    It depends on nothing else, so that all methods, training seeds and constants meet the same replies.

    Args:
        text: Text of the question.
        sample: Which of the independent replies.

    Returns:
        A seed below 2**63, as OpenAI's API takes it.
    """
    return int(seeds.key("routing", "reply", text, seed=sample) >> 1)


@dataclass(frozen=True)
class ExpertQuery:
    """One question to one expert.

    Attributes:
        expert: The controller's word for it.
        text: The question.
        seed: Seed of its random numbers; equal queries with equal seeds get equal replies.
        history: Earlier messages as (role, content), a system message among them.
    """

    expert: str
    text: str
    seed: int = 0
    history: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ExpertReply:
    """What came back.

    Attributes:
        text: The visible text, hidden reasoning left out; empty where nothing came.
        cost_usd: What the call was billed.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply, reasoning included.
        seconds: Between query and reply; 0 for a lab model, whose time is counted in tokens.
        failure: Why the reply cannot be used as it stands; None for a usable one.
    """

    text: str
    cost_usd: float
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    failure: Failure | None = None

    @classmethod
    def from_reply(cls, reply: Reply, text: str | None = None) -> ExpertReply:
        """What of a model's reply a controller's episode needs; text: instead of the reply's own."""
        return cls(
            reply.text if text is None else text,
            reply.cost_usd,
            reply.tokens_in,
            reply.tokens_out,
            reply.seconds,
            reply.failure,
        )

    @property
    def lost(self) -> bool:
        """Whether the infrastructure failed, so that nothing may be scored."""
        return self.failure is not None and self.failure.of_infrastructure

    @property
    def truncated(self) -> bool:
        """Whether the expert's own limit of tokens cut the reply off."""
        return self.failure is not None and self.failure.kind == "truncated"


class ExpertPool:
    """Experts that answer many queries at once. A context manager: it owns its models and a thread with an event loop.

    Attributes:
        models: By their names in llm.models.
        model_names: The name in llm.models of each expert.
        temperature: Temperature of all experts.
        tells_rules: Whether experts that are no lab models are told how questions of the bench are meant.
        counts: What became of the replies so far, by expert.
    """

    def __init__(
        self,
        models: ChatModels,
        model_names: Mapping[str, str],
        temperature: float,
        tells_rules: bool = True,
    ) -> None:
        """Start the thread.

        Args:
            models: Opened models, which the pool closes.
            model_names: By the controller's word for an expert, its name among the models; the cheapest first.
            temperature: Temperature of all experts.
            tells_rules: Whether experts that are no lab models are told how questions of the bench are meant: the
                form of an answer and, before a question that has one, its rule. False for questions of one's own.
        """
        self.models = models
        self.model_names = dict(model_names)
        self.temperature = temperature
        self.tells_rules = tells_rules
        self.counts = {expert: ReplyCounts() for expert in self.model_names}
        self._loop = EventLoopThread()

    def __enter__(self) -> ExpertPool:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._loop.run(self.models.aclose())
        finally:
            self._loop.close()

    @property
    def experts(self) -> tuple[str, ...]:
        """The controller's words for them, as in the parameters: the cheapest first."""
        return tuple(self.model_names)

    def ask(self, queries: Sequence[ExpertQuery]) -> list[ExpertReply]:
        """Ask all experts side by side.

        Args:
            queries: To any of the experts.

        Returns:
            Replies in the order of the queries.

        Raises:
            LLMError: What no other call would mend: a wrong setting, a reply that is not in the recording, or so many
                failed calls that the run would measure its server.
            BudgetExceeded: Where the calls could pass the spending limit.
        """
        if not queries:
            return []
        replies = self._loop.run(self._ask_all(queries))
        expert_replies = []
        for query, reply in zip(queries, replies, strict=True):
            self.counts[query.expert].add(reply)
            text = reply.text
            # Nobody knows what a reply that was cut off would have answered.
            if self._is_told_rules(query) and reply.failure is None:
                text = tag_final_answer(text, query.text)
            expert_replies.append(ExpertReply.from_reply(reply, text))
        return expert_replies

    def generate(self, model: str, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Replies of any of the models, for whoever prompts one with whole conversations.

        Args:
            model: Its name in llm.models.
            requests: Conversations, perhaps with tools.

        Returns:
            Replies in the order of the requests.

        Raises:
            LLMError, BudgetExceeded: As `ask`.
        """
        return self._loop.run(self.models[model].reply_to_all(requests))

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine on the pool's event loop, where its models may be asked."""
        return self._loop.run(coroutine)

    def make_request(self, query: ExpertQuery) -> ChatRequest:
        """Builds the chat request for a query to an expert.

        Args:
            query: The question, perhaps with earlier turns of the conversation.

        Returns:
            The request; experts that need it are told the rules of the task and the form of an answer.
        """
        turns = (*query.history, ("user", query.text))
        messages = [{"role": role, "content": content} for role, content in turns]
        if self._is_told_rules(query):
            instruction = f"{tasks.describe_rules(query.text)} {ANSWER_FORM}".strip()
            messages.insert(0, {"role": "system", "content": instruction})
        return ChatRequest(
            messages, temperature=self.temperature, seed=query.seed, caller=query.expert
        )

    def _is_told_rules(self, query: ExpertQuery) -> bool:
        """Whether a query goes to a model that was not trained on the bench's questions."""
        is_lab_model = self.models[self.model_names[query.expert]].backend == "lab"
        return self.tells_rules and not is_lab_model

    async def _ask_all(self, queries: Sequence[ExpertQuery]) -> list[Reply]:
        """Asks all queries at once, in one batch per model.

        Args:
            queries: To any of the experts.

        Returns:
            Replies in the order of the queries.
        """
        indices_by_model: dict[str, list[int]] = {}
        for index, query in enumerate(queries):
            model_name = self.model_names[query.expert]
            indices_by_model.setdefault(model_name, []).append(index)

        async def ask_model(model_name: str, indices: Sequence[int]) -> list[Reply]:
            requests = [self.make_request(queries[index]) for index in indices]
            return await self.models[model_name].reply_to_all(requests)

        batches = await asyncio.gather(
            *(ask_model(model_name, indices) for model_name, indices in indices_by_model.items())
        )
        replies = {}
        for indices, batch in zip(indices_by_model.values(), batches, strict=True):
            replies |= dict(zip(indices, batch, strict=True))
        return [replies[index] for index in range(len(queries))]
