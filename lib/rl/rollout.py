"""Episodes of a controller and an environment that answers its calls (CoRL, algorithm 1), many side by side.

All controllers write a turn, all calls are answered, and again, for at most `max_turns` turns. The mask says who wrote
a token: it is 1 for the controller's, 0 for the prompt's and for responses. In the last turn a call is not made, since
the controller could not read the reply (the algorithm would pay for it).

What a turn means and who replies is the business of an `Environment`: the experts of CoRL, or ToolOrchestra's tools. A
reply that the infrastructure lost ends its episode, which then stands in no score: `Episode.failed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lib import tasks
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.call_protocol import Answer, Call, Malformed, ParsedTurn
from lib.rl.expert_pool import ExpertReply
from lib.rl.generators import Generator

VERSION = 1  # of the course of an episode


@dataclass(frozen=True)
class Turn:
    """One turn of the controller, and what came back.

    Attributes:
        text: What the controller wrote.
        call: The call in it, if there is one.
        reply: What came back, if the call was made.
        malformed: Why the turn is neither a call nor an answer; empty where it is one.
        shortened: Whether the controller read a part of the reply only, because it is longer than the setting allows.
    """

    text: str
    call: Call | None = None
    reply: ExpertReply | None = None
    malformed: str = ""
    shortened: bool = False


@dataclass
class Episode:
    """A task, and what the controller made of it.

    Attributes:
        task: What is to be done.
        ids: All tokens.
        mask: Mask of each token, whether the controller wrote it.
        prompt_length: Tokens of the prompt, which come first.
        turns: What the controller wrote, turn by turn, and what came back.
        correct: The outcome in [0, 1]; nan where nothing may be scored.
        is_done: Whether no turn follows.
        too_long: Whether the window had no room for another turn before the episode was done. Without any turns, the
            prompt alone was too long.
    """

    task: Any
    ids: list[int]
    mask: list[bool]
    prompt_length: int
    turns: list[Turn] = field(default_factory=list)
    correct: float = 0.0
    is_done: bool = False
    too_long: bool = False

    @property
    def replies(self) -> list[ExpertReply]:
        """What came back to the calls, in order."""
        return [turn.reply for turn in self.turns if turn.reply]

    @property
    def failed(self) -> bool:
        """Whether the infrastructure lost a reply, so that the episode may not be scored."""
        return any(reply.lost for reply in self.replies)

    @property
    def cost_usd(self) -> float:
        """c: what the calls cost."""
        return sum((reply.cost_usd for reply in self.replies), 0.0)

    @property
    def called_experts(self) -> list[str]:
        """Experts that were called, in order."""
        return [turn.call.expert for turn in self.turns if turn.reply]

    @property
    def num_malformed(self) -> int:
        """Turns that were neither a call nor an answer."""
        return sum(bool(turn.malformed) for turn in self.turns)

    @property
    def num_truncated(self) -> int:
        """Replies that reached the expert's own limit of tokens."""
        return sum(reply.truncated for reply in self.replies)

    @property
    def num_shortened(self) -> int:
        """Replies of which the controller read a part only."""
        return sum(turn.shortened for turn in self.turns)

    @property
    def num_written_tokens(self) -> int:
        """Tokens that the controller wrote."""
        return sum(self.mask)

    @property
    def written_answer(self) -> str | None:
        """What stands in the answer tags of the last turn; None without them."""
        return tasks.extract_answer(self.turns[-1].text) if self.turns else None

    @property
    def answers_with_reply(self) -> bool:
        """Whether the answer is LAST_REPLY, and there is a reply that it can mean."""
        return self.written_answer == call_protocol.LAST_REPLY and bool(self.replies)

    @property
    def answer(self) -> str | None:
        """The answer, where there is one; LAST_REPLY stands for the text of the last reply."""
        if self.answers_with_reply:
            return call_protocol.clean_reply(self.replies[-1].text)
        return self.written_answer

    def append_tokens(self, ids: Sequence[int], by_controller: bool) -> None:
        """Append tokens to the context.

        Args:
            ids: Tokens.
            by_controller: Whether the controller wrote them, so that they are learned from.
        """
        self.ids += ids
        self.mask += [by_controller] * len(ids)


class Environment(Protocol):
    """What reads a controller's turns and answers its calls."""

    def parse_turn(self, episode: Episode, text: str) -> ParsedTurn:
        """Read what a turn asks for."""

    def answer_calls(self, calls: Sequence[tuple[Episode, Call, int]]) -> list[ExpertReply]:
        """Answer calls, each with its episode and its seed; replies are in the order of the calls."""


def roll_out(
    generator: Generator,
    environment: Environment,
    episodes: Sequence[Episode],
    max_turns: int,
    seed: int,
    temperature: float = 1.0,
) -> None:
    """Carry episodes on, side by side, until each is done or leaves no room for another turn (`Episode.too_long`).

    The random numbers of an episode depend on the seed and on its index, not on the other episodes of the batch.

    Args:
        generator: The controller's.
        environment: Reads turns and answers calls.
        episodes: They hold their prompts, and are filled in place.
        max_turns: M, turns of the controller at the most.
        seed: Seed of this batch.
        temperature: Temperature of the controller.
    """
    for turn in range(max_turns):
        active = []
        turn_seeds = []
        for index, episode in enumerate(episodes):
            if episode.is_done:
                continue
            # A window that is full ends an episode as it stands: what was written can still be learned from.
            episode.too_long = not generator.has_room(episode.ids)
            if not episode.too_long:
                active.append(episode)
                turn_seeds.append(derive_turn_seed(seed, index, turn))
        if not active:
            break

        # All controllers write.
        contexts = [episode.ids for episode in active]
        turn_ids = generator.write_turns(contexts, turn_seeds, temperature)

        # All calls are answered.
        is_last = turn == max_turns - 1
        calls = _read_turns(generator, environment, active, turn_ids, turn_seeds, is_last)
        _answer_calls(generator, environment, calls)


def derive_turn_seed(seed: int, index: int, turn: int) -> int:
    """Derive the seed of one turn.

    Args:
        seed: Seed of the batch.
        index: Index of the episode in the batch.
        turn: Number of the turn, from 0.

    Returns:
        A seed below 2**63, since seeds of OpenAI's API are signed.
    """
    return int(seeds.key("routing", "turn", index, turn, seed=seed) >> 1)


@dataclass(frozen=True)
class _PendingCall:
    """A call that is to be answered, with the whole text of its turn."""

    episode: Episode
    text: str
    call: Call
    seed: int


def _read_turns(
    generator: Generator,
    environment: Environment,
    episodes: Sequence[Episode],
    turn_ids: Sequence[Sequence[int]],
    turn_seeds: Sequence[int],
    is_last: bool,
) -> list[_PendingCall]:
    """Appends the turns that the controller wrote to their episodes, and parses them.

    Args:
        generator: Decodes tokens.
        environment: Parses turns.
        episodes: The episodes that go on.
        turn_ids: Tokens of the next turn of each.
        turn_seeds: Seed of each turn.
        is_last: Whether no further turn is allowed.

    Returns:
        The calls that must be answered; all other turns are complete.
    """
    pending_calls = []
    for episode, ids, seed in zip(episodes, turn_ids, turn_seeds, strict=True):
        episode.append_tokens(ids, by_controller=True)
        text = call_protocol.cut_after_stop_string(generator.decode(ids))
        parsed = environment.parse_turn(episode, text)
        episode.is_done = is_last or isinstance(parsed, Answer)
        if isinstance(parsed, Call) and not is_last:
            pending_calls.append(_PendingCall(episode, text, parsed, seed))
            continue

        call = parsed if isinstance(parsed, Call) else None
        reason = parsed.reason if isinstance(parsed, Malformed) else ""
        episode.turns.append(Turn(text, call, malformed=reason))
        # A malformed turn costs the controller a turn, and it reads an error.
        if not episode.is_done:
            response_ids, _ = encode_response(generator, call_protocol.ERROR_REPLY)
            episode.append_tokens(response_ids, by_controller=False)
    return pending_calls


def _answer_calls(
    generator: Generator, environment: Environment, pending_calls: Sequence[_PendingCall]
) -> None:
    """Gets the replies to all calls at once, and appends them to their episodes; a lost reply ends its episode.

    Args:
        generator: Encodes replies.
        environment: Answers calls.
        pending_calls: A call of each episode that waits for a reply.
    """
    calls = [(pending.episode, pending.call, pending.seed) for pending in pending_calls]
    replies = environment.answer_calls(calls)
    for pending, reply in zip(pending_calls, replies, strict=True):
        episode = pending.episode
        if reply.lost:
            episode.turns.append(Turn(pending.text, pending.call, reply))
            episode.is_done = True
            continue
        reply_text = call_protocol.clean_reply(reply.text)
        response_ids, shortened = encode_response(generator, reply_text, reply.truncated)
        episode.turns.append(Turn(pending.text, pending.call, reply, shortened=shortened))
        episode.append_tokens(response_ids, by_controller=False)


def encode_response(
    generator: Generator, text: str, truncated: bool = False
) -> tuple[list[int], bool]:
    """Encode a response, with at most `max_response_tokens` tokens of its text (the paper's limit is 500).

    A controller that can read a mark gets beginning and end of a longer text, since answers stand at the end, and a
    mark where something is missing. The lab's controllers get the beginning alone.

    Args:
        generator: The controller's.
        text: What it is to read of a reply.
        truncated: Whether the expert's own limit cut the reply off.

    Returns:
        The tokens, with the tags around them; and whether a part of the text was left out.
    """
    opening, closing = (generator.encode(tag) for tag in call_protocol.RESPONSE_TAGS)
    limit = generator.max_response_tokens
    tokens = generator.encode(text)
    shortened = len(tokens) > limit
    if shortened and generator.marks_cuts:
        num_last = limit // 2
        num_first = limit - num_last
        mark = generator.encode(call_protocol.GAP_MARK)
        tokens = [*tokens[:num_first], *mark, *tokens[len(tokens) - num_last :]]
    elif shortened:
        tokens = tokens[:limit]
    if truncated and generator.marks_cuts:
        tokens = [*tokens, *generator.encode(call_protocol.END_MARK)]
    return [*opening, *tokens, *closing], shortened
