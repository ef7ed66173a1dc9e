"""A brief in English for models that know no lab words, and any model of `llm.models` as a reader of briefs.

Policies are options A, B, C in the order of the menu, so that a reply is one letter or one name. A model is asked
for JSON by a schema that allows the names of the menu and nothing else; one that refuses `response_format` is asked for
free JSON from then on, which `replies.parse` reads as it reads an orchestrator's.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from lib.llm.chat_model import ChatModel, ChatRequest, Reply
from lib.llm.event_loop import run_coroutine
from lib.llm.failure_policy import require_reply
from lib.llm.json_replies import InvalidReply
from lib.llm.open_models import ChatModels
from lib.orchestration.decision_context import Brief
from lib.orchestration.reply_parser import parse

VERSION = 1  # of what models of llm.models are asked and choose
LETTERS = ascii_uppercase
_TASK = "Score every policy: the sum of weight times reward. The best policy has the highest score."
_LETTER = "Reply with the letter of the best policy, and nothing else."
_JSON = 'Reply with one JSON object and nothing else: {"reasoning": "...", "policy": "NAME"}'


def messages(brief: Brief, letter: bool = True) -> list[dict[str, str]]:
    """What is asked. letter: whether the reply is a letter, or JSON with a name."""
    lines = [f"Weights: {_told(brief, brief.weights)}."]
    if not brief.looks:
        lines.append(f"State: {brief.situation}. Rewards are those seen in this state.")
    lines += [
        f"{sign}) {name}: {_told(brief, row)}"
        for sign, (name, row) in zip(LETTERS, brief.told.items(), strict=False)
    ]
    content = "\n".join([*lines, _LETTER if letter else _JSON])
    return [{"role": "system", "content": _TASK}, {"role": "user", "content": content}]


def _told(brief: Brief, row: Sequence[float]) -> str:
    return ", ".join(
        f"{what} {value:.2f}" for what, value in zip(brief.objectives, row, strict=True)
    )


def schema(names: Sequence[str]) -> dict[str, Any]:
    """The `response_format` of a reply that names one of a menu."""
    fields = {"reasoning": {"type": "string"}, "policy": {"type": "string", "enum": list(names)}}
    shape = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": "choice", "strict": True, "schema": shape},
    }


class ChatModelReader:
    """A model of `llm.models` as a reader. A reply that cannot be used is "", which no menu holds.

    Attributes:
        name: Of the model.
        backend: Of the model, as of `lib.llm.chat_model.Reply`; tables say "scripted" where a program decides.
    """

    def __init__(self, name: str, backend: str, open_models: Callable[[], ChatModels]) -> None:
        """Prepare to ask.

        Args:
            name: Of the model.
            backend: Of the model in its settings.
            open_models: Opens it, once per event loop.
        """
        self.name = name
        self.backend = backend
        self.takes_schema = True
        self._open_models = open_models

    def choose(self, briefs: Sequence[Brief]) -> list[str | None]:
        """Ask the model about each brief; after the first, which tells of formats, about all at once.

        Args:
            briefs: What it reads.

        Returns:
            For each brief the policy that the model names, "" where its reply cannot be used, None where the
            infrastructure lost the reply.

        Raises:
            InfrastructureError: Where a later run could get the reply.
        """
        return run_coroutine(self._choose_all(briefs))

    async def _choose_all(self, briefs: Sequence[Brief]) -> list[str | None]:
        async with self._open_models() as models:
            model = models[self.name]
            first = [await self._choose_one(model, brief) for brief in briefs[:1]]
            others = await asyncio.gather(*(self._choose_one(model, brief) for brief in briefs[1:]))
            return [*first, *others]

    async def _choose_one(self, model: ChatModel, brief: Brief) -> str | None:
        reply = await self._ask(model, messages(brief, letter=False), schema(brief.names))
        require_reply(reply, "a choice")
        if reply.failure is not None:
            return None if reply.failure.of_infrastructure else ""
        try:
            return parse(reply.text, brief.names).policy or ""
        except InvalidReply:
            return ""

    async def _ask(
        self, model: ChatModel, messages: list[dict[str, str]], schema: Mapping[str, Any]
    ) -> Reply:
        """The reply to a schema, or without one where the server takes none."""
        if self.takes_schema:
            reply = await model.reply_to(ChatRequest(messages, response_format=schema))
            failure = reply.failure
            refuses_schema = (
                failure is not None
                and failure.kind == "bad_request"
                and ("response_format" in failure.detail or "json_schema" in failure.detail)
            )
            if not refuses_schema:
                return reply
            self.takes_schema = False
        return await model.reply_to(ChatRequest(messages))
