"""A controller as a chat model: it answers a question by itself, without the protocol and without experts."""

from __future__ import annotations

from collections.abc import Sequence

from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply
from lib.rl.generators import HFGenerator


class ControllerModel(ChatModel):
    """Replies that a generator writes; they cost nothing that a budget counts.

    Attributes:
        name: Name of the model in replies.
        generator: Without a preface.
    """

    backend = "hugging_face"
    price_in = price_out = 0.0

    def __init__(self, name: str, generator: HFGenerator) -> None:
        self.name = name
        self.generator = generator
        self.max_tokens = generator.max_turn_tokens

    async def reply_to(self, request: ChatRequest) -> Reply:
        (reply,) = await self.reply_to_all([request])
        return reply

    async def reply_to_all(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Answers requests greedily, in one batch.

        Args:
            requests: Conversations.

        Returns:
            Replies in order; one whose prompt fills the context window has a failure.
        """
        # Contexts and turns are token ids, one list per request.
        contexts = [self.generator.encode_prompt(request.messages) for request in requests]
        fitting = [index for index, ids in enumerate(contexts) if self.generator.has_room(ids)]
        turns = self.generator.write_turns(
            [contexts[index] for index in fitting],
            [requests[index].seed for index in fitting],
            temperature=0.0,
        )
        turn_by_index = dict(zip(fitting, turns, strict=True))
        replies = []
        for index, context in enumerate(contexts):
            turn = turn_by_index.get(index)
            failure = Failure("context_too_long") if turn is None else None
            text = self.generator.decode(turn or [])
            num_written = len(turn or [])
            replies.append(
                Reply(
                    text,
                    self.name,
                    self.backend,
                    tokens_in=len(context),
                    tokens_out=num_written,
                    failure=failure,
                )
            )
        return replies
