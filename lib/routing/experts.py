"""The pool of experts: models of `llm.models` under the names that the controller writes, and their prices.

Any of them may be an endpoint. A call that fails (a timeout, a server in trouble, a reply that is none) is
an outcome, not an exception: the controller hears `error` and the episode goes on; what was billed is charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.llm.client import Client, Reply
from lib.llm.errors import ReplyError
from lib.llm.loop import Loop

# What an expert that is no lab model has to be told about the questions of the bench.
RULES = (
    "Work out chains of digits strictly from left to right, without precedence, and keep only the last digit of "
    "every result (0 to 9; below zero, go on from 10). End with the result as <answer> digit </answer>."
)


@dataclass(frozen=True)
class Query:
    """One question to one expert. key: its seed; an equal query with an equal key gets an equal reply."""

    expert: str
    text: str
    key: int = 0


@dataclass(frozen=True)
class Heard:
    """What came back: text (empty where nothing did), what it cost, and what went wrong, if anything."""

    text: str
    dollars: float
    tokens_in: int = 0
    tokens_out: int = 0
    failure: str = ""


class Pool:
    """Experts that answer many queries at once. A context manager: it owns a thread with an event loop.

    names: the controller's word for an expert -> its name in llm.models; temperature: of all experts;
    rules: what to tell experts that are no lab models, before the query; empty: nothing.
    """

    def __init__(
        self, client: Callable[[], Client], names: Mapping[str, str], temperature: float, rules: str = RULES
    ) -> None:
        self.names, self.temperature, self.rules = dict(names), temperature, rules
        self._loop = Loop()
        self.client = client()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc) -> None:
        self._loop.run(self.client.__aexit__())
        self._loop.close()

    @property
    def experts(self) -> tuple[str, ...]:
        """The controller's words for them, as in the parameters: the cheapest first."""
        return tuple(self.names)

    def ask(self, queries: Sequence[Query]) -> list[Heard]:
        """What the experts say, in order. Raises ConfigurationError, CassetteMiss or BudgetExceeded, which no
        other try would mend."""
        if not queries:
            return []
        return self._loop.run(self._all(queries))

    def converse(
        self,
        model: str,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        tools: Sequence[Sequence[Mapping[str, Any]]],
        keys: Sequence[int],
        temperature: float,
    ) -> list[Reply | ReplyError]:
        """What a model of llm.models says next in each conversation, tools on offer by OpenAI function schemas."""

        async def one(messages, offered, key) -> Reply | ReplyError:
            try:
                return await self.client.chat(
                    model, messages, seed=key, temperature=temperature, tools=offered, who=model
                )
            except ReplyError as error:
                return error

        async def together() -> list[Reply | ReplyError]:
            return await asyncio.gather(*(one(*each) for each in zip(conversations, tools, keys, strict=True)))

        return self._loop.run(together())

    async def _all(self, queries: Sequence[Query]) -> list[Heard]:
        return await asyncio.gather(*(self._one(query) for query in queries))

    async def _one(self, query: Query) -> Heard:
        name = self.names[query.expert]
        told = [{"role": "user", "content": query.text}]
        if self.rules and self.client.settings.models[name].backend != "lab":
            told.insert(0, {"role": "system", "content": self.rules})
        try:
            reply = await self.client.chat(name, told, seed=query.key, temperature=self.temperature, who=query.expert)
        except ReplyError as error:  # a truncated reply has a text, and a bill
            return Heard(error.text, error.dollars, error.tokens_in, error.tokens_out, error.kind)
        return Heard(reply.text, reply.dollars, reply.tokens_in, reply.tokens_out)
