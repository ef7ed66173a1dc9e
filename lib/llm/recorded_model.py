"""A model whose replies are all known: read from a recording, or from a table of outcomes.

It costs nothing, needs no key, and answers only what was asked when the replies were recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lib.llm.chat_model import ChatModel, ChatRequest, Reply
from lib.llm.errors import RecordingMiss


class RecordedModel(ChatModel):
    """Replies by conversation and sample.

    Attributes:
        name: As it stands in the table.
    """

    backend = "recorded"

    def __init__(self, name: str, replies: Mapping[tuple[str, int], Reply]) -> None:
        """Prepare to answer.

        Args:
            name: Name of the model.
            replies: By the key of `describe_conversation` and the sample's index.
        """
        self.name = name
        self.price_in = 0.0
        self.price_out = 0.0
        self.max_tokens = max((reply.tokens_out for reply in replies.values()), default=0)
        self._replies = dict(replies)

    @classmethod
    def from_table(cls, name: str, table: pd.DataFrame) -> RecordedModel:
        """Read the replies of one model from a table.

        Args:
            name: Name of the model.
            table: A row per reply with `prompt` (a text, or messages) and `reply`; perhaps sample, cost_usd,
                tokens_in, tokens_out, seconds.

        Returns:
            The model.

        Raises:
            ValueError: For a missing column, and for two replies to one prompt and sample.
        """
        missing = [column for column in ("prompt", "reply") if column not in table]
        if missing:
            raise ValueError(f"{name}: the table lacks {', '.join(missing)}; it has {list(table)}")
        replies: dict[tuple[str, int], Reply] = {}
        for row in table.to_dict("records"):
            # A text stands for a conversation of one message.
            prompt = row["prompt"]
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            key = (describe_conversation(messages), int(row.get("sample", 0)))
            if key in replies:
                raise ValueError(
                    f"{name}: two replies to one prompt and sample: {str(prompt)[:80]!r}; number them in `sample`"
                )
            replies[key] = Reply(
                str(row["reply"]),
                name,
                cls.backend,
                tokens_in=int(row.get("tokens_in", 0)),
                tokens_out=int(row.get("tokens_out", 0)),
                cost_usd=float(row.get("cost_usd", 0.0)),
                seconds=float(row.get("seconds", 0.0)),
                replayed=True,
                message={"role": "assistant", "content": str(row["reply"])},
            )
        return cls(name, replies)

    async def reply_to(self, request: ChatRequest) -> Reply:
        """Looks up the recorded reply to a request.

        Args:
            request: Messages and the index of the sample.

        Raises:
            RecordingMiss: There is none.
        """
        key = (describe_conversation(request.messages), request.sample)
        if key not in self._replies:
            ending = str(request.messages[-1].get("content"))[-80:]
            raise RecordingMiss(
                f"{self.name} has no recorded reply, sample {request.sample}, to a conversation that ends in "
                f"{ending!r}; it knows {len(self._replies):,} replies"
            )
        return self._replies[key]


def describe_conversation(messages: Sequence[Mapping[str, Any]]) -> str:
    """Roles and contents of a conversation as one text, by which recorded replies are found."""
    turns = [[message.get("role"), message.get("content")] for message in messages]
    return json.dumps(turns, ensure_ascii=False)
