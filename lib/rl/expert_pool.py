"""The pool of experts: models of `llm.models` under the names that the controller writes, and their prices.

Lab models are asked as all lessons ask them, and remember what they said (`lib.language_models.in_process_client`);
any other model, an endpoint among them, through the client. A call that fails (a timeout, a server in trouble, a
reply that is none) is an outcome, not an exception: the controller hears `error` and the episode goes on; what was
billed is charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lib.config import LLMSettings, ModelSettings
from lib.experiment import seeds
from lib.language_models.in_process_client import Asker, asker
from lib.language_models.serving.transport import LabTransport, lab
from lib.llm.client import Client, Reply
from lib.llm.errors import ReplyError
from lib.llm.event_loop import Loop

VERSION = 1  # of what experts are asked and what a reply costs

# What an expert that is no lab model has to be told about the questions of the bench.
RULES = (
    "Work out chains of digits strictly from left to right, without precedence, and keep only the last digit of "
    "every result (0 to 9; below zero, go on from 10). End with the result as <answer> digit </answer>."
)


TRIES = 2  # independent replies of an expert to one question; more would be remembered less often


def drawn(text: str, attempt: int = 0) -> int:
    """The seed of the experts' replies to a question: whoever asks it in one try hears the same, so that methods, seeds
    and constants meet the same draws."""
    return int(
        seeds.key("routing", "reply", text, seed=attempt) >> 1
    )  # seeds of OpenAI's API are signed


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
    cost_usd: float
    tokens_in: int = 0
    tokens_out: int = 0
    failure: str = ""


class Pool:
    """Experts that answer many queries at once. A context manager: it owns a thread with an event loop.

    names: the controller's word for an expert -> its name in llm.models; temperature: of all experts;
    rules: what to tell experts that are no lab models, before the query; empty: nothing; askers: by name in
    llm.models the lab models that need no client.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        names: Mapping[str, str],
        temperature: float,
        rules: str = RULES,
        askers: Mapping[str, Asker] = MappingProxyType({}),
    ) -> None:
        self.names, self.temperature, self.rules = dict(names), temperature, rules
        self.askers = dict(askers)
        self._loop = Loop()
        self.client = client()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc) -> None:
        for model in self.askers.values():
            model.memory.flush()
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
            return await asyncio.gather(
                *(one(*each) for each in zip(conversations, tools, keys, strict=True))
            )

        return self._loop.run(together())

    async def _all(self, queries: Sequence[Query]) -> list[Heard]:
        return await asyncio.gather(*(self._one(query) for query in queries))

    async def _one(self, query: Query) -> Heard:
        name = self.names[query.expert]
        if name in self.askers:
            return await self._lab(self.askers[name], self.client.settings.models[name], query)
        told = [{"role": "user", "content": query.text}]
        if self.rules and self.client.settings.models[name].backend != "lab":
            told.insert(0, {"role": "system", "content": self.rules})
        try:
            reply = await self.client.chat(
                name, told, seed=query.key, temperature=self.temperature, who=query.expert
            )
        except ReplyError as error:  # a truncated reply has a text, and a bill
            return Heard(error.text, error.cost_usd, error.tokens_in, error.tokens_out, error.kind)
        return Heard(reply.text, reply.cost_usd, reply.tokens_in, reply.tokens_out)

    async def _lab(self, model: Asker, about: ModelSettings, query: Query) -> Heard:
        """What the server would reply and the client would make of it."""
        told = [{"role": "user", "content": query.text}]
        said = await model.say(told, about.max_tokens, self.temperature, query.key)
        cost_usd = said.tokens_in * (about.price_in or 0.0) + said.tokens_out * (
            about.price_out or 0.0
        )
        failure = (
            "bad_request"
            if said.failure
            else "truncated"
            if said.cut
            else ""
            if said.text.strip()
            else "null_content"
        )
        return Heard(said.text, cost_usd, said.tokens_in, said.tokens_out, failure)


def askers(llm: LLMSettings, names: Collection[str], root: str | Path) -> dict[str, Asker]:
    """The lab models among some names of llm.models. Raises ModelError for one that is not under `root`."""
    models = {name: llm.models[name] for name in names}
    return {
        name: asker(about.model or name, root)
        for name, about in models.items()
        if about.backend == "lab"
    }


@cache
def load_lab_once(models: str, llm_json: str) -> tuple[LLMSettings, dict[str, LabTransport]]:
    """`lib.language_models.serving.transport.lab`, once per process, whose threads keep the models from one job to
    the next.

    models: folder of the lab models; llm_json: the settings, as of `RunContext`.
    """
    return lab(LLMSettings.model_validate_json(llm_json), models)
