"""A brief in English for models that know no lab words, and an endpoint as a reader of briefs.

Policies are options A, B, C in the order of the menu, so that a reply is one letter or one name. An endpoint is asked
for JSON by a schema that allows the names of the menu and nothing else; one that refuses `response_format` is asked for
free JSON from then on, which `replies.parse` reads as it reads an orchestrator's.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from lib.llm.client import Client
from lib.llm.client_factory import finish
from lib.llm.errors import ReplyError
from lib.llm.json_replies import InvalidReply
from lib.orchestration.decision_context import Brief
from lib.orchestration.reply_parser import parse

VERSION = 1  # of what readers behind endpoints are asked and choose
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


class Endpoint:
    """A model of `llm.models` as a reader. What cannot be used is "", which no menu holds."""

    backend = "endpoint"

    def __init__(self, model: str, client: Callable[[], Client]) -> None:
        """client: makes the client of one event loop."""
        self.name, self._client, self.formats = model, client, True

    def choose(self, briefs: Sequence[Brief]) -> list[str]:
        """The policy that the model names for each brief; after the first, which tells of formats, all at once."""
        return finish(self._all(briefs))

    async def _all(self, briefs: Sequence[Brief]) -> list[str]:
        async with self._client() as client:
            first = [await self._one(client, brief) for brief in briefs[:1]]
            return [
                *first,
                *await asyncio.gather(*(self._one(client, brief) for brief in briefs[1:])),
            ]

    async def _one(self, client: Client, brief: Brief) -> str:
        asked = messages(brief, letter=False)
        try:
            said = await self._said(client, asked, schema(brief.names))
            return parse(said, brief.names).policy or ""
        except (ReplyError, InvalidReply):
            return ""

    async def _said(
        self, client: Client, asked: list[dict[str, str]], wanted: Mapping[str, Any]
    ) -> str:
        """The reply to a schema, or without one where the endpoint takes none. Raises ReplyError."""
        if self.formats:
            try:
                return (await client.chat(self.name, asked, response_format=wanted)).text
            except ReplyError as error:
                if error.kind != "bad_request" or not any(
                    w in str(error) for w in ("response_format", "json_schema")
                ):
                    raise
                self.formats = False
        return (await client.chat(self.name, asked)).text
