"""The policy that is trained, as the agent of customer service (tau2-bench): its turns are sampled, and kept as tokens.

    agent = PolicyAgent(generator, ToolConversation(tokenizer, end_token_ids, name), "policy")
    runner = ConversationRunner(pool, llm, ServiceTeam("policy", "user", ("large",)), max_turns=50, agent=agent)
    episodes = runner.run(assignments, samples)
    Sample(episodes[0].ids, episodes[0].mask, reward)

Its own tokens cost nothing, since it runs on the user's machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from lib.llm.chat_model import ChatRequest, Failure, Reply
from lib.rl.generators import HFGenerator
from lib.rl.tool_conversation import TokenContext, ToolConversation
from lib.tool_orchestration.service_episodes import ServiceEpisode

BACKEND = "policy"


class PolicyAgent:
    """An agent whose turns a generator writes.

    Attributes:
        generator: The policy's; its end tokens and stop strings end a turn.
        conversation: Turns messages into its tokens, and its tokens into calls.
        name: Name in tables.
        temperature: At which turns are sampled; 0 is greedy.
    """

    def __init__(
        self,
        generator: HFGenerator,
        conversation: ToolConversation,
        name: str,
        temperature: float = 1.0,
    ) -> None:
        self.generator = generator
        self.conversation = conversation
        self.name = name
        self.temperature = temperature

    def write_replies(
        self, episodes: Sequence[ServiceEpisode], requests: Sequence[ChatRequest]
    ) -> list[Reply]:
        """Write the next turn of every conversation, all of them side by side.

        Args:
            episodes: Each keeps its tokens in `context`.
            requests: What the policy reads in each.

        Returns:
            Replies in the order of the episodes. One without room in the window for a turn has a failure.
        """
        contexts = []
        for episode, request in zip(episodes, requests, strict=True):
            contexts.append(self._read_messages(episode, request))
        has_room = [self.generator.has_room(context.ids) for context in contexts]

        # One batch for all conversations that still have room.
        turns = self.generator.write_turns(
            [context.ids for context, fits in zip(contexts, has_room, strict=True) if fits],
            [request.seed for request, fits in zip(requests, has_room, strict=True) if fits],
            self.temperature,
        )

        replies = []
        # Turns come in the order of the conversations with room; the others get a failure in their place.
        remaining_turns = iter(turns)
        for context, request, fits in zip(contexts, requests, has_room, strict=True):
            if fits:
                replies.append(self._take_turn(context, request, next(remaining_turns)))
            else:
                failure = Failure("context_too_long", "the window has no room for another turn")
                replies.append(Reply("", self.name, BACKEND, failure=failure))
        return replies

    def _read_messages(self, episode: ServiceEpisode, request: ChatRequest) -> TokenContext:
        """Append to an episode's tokens what others said since the policy's last turn.

        Args:
            episode: The conversation.
            request: The policy's request with all messages.

        Returns:
            The tokens.
        """
        messages = request.messages
        context = episode.context
        if context is None:
            context = TokenContext()
            context.append_prompt(self.conversation.encode_opening(messages, request.tools))
            episode.context = context
        else:
            # The first of the new messages is the policy's own, whose tokens are there as it sampled them.
            _, *new_messages = messages[context.num_messages :]
            context.append_prompt(self.conversation.encode_messages(new_messages, context.ids[-1]))
        context.num_messages = len(messages)
        return context

    def _take_turn(
        self, context: TokenContext, request: ChatRequest, turn_ids: Sequence[int]
    ) -> Reply:
        """Append a turn of the policy to an episode's tokens, and parse its text and calls.

        Args:
            context: The tokens so far.
            request: The policy's request.
            turn_ids: Tokens of the turn.

        Returns:
            The reply.
        """
        num_read = len(context.ids)
        limit = self.generator.max_turn_tokens
        content = self.conversation.read_turn(turn_ids, request, limit, context.opens_in_reasoning)
        context.append_turn(turn_ids)
        return Reply(
            **content,
            model=self.name,
            backend=BACKEND,
            tokens_in=num_read,
            tokens_out=len(turn_ids),
        )
