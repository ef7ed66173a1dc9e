"""Episodes between a controller and whoever replies to its calls (CoRL, algorithm 1), many at once.

All controllers write a turn, all calls are answered, and again, for at most `rounds` turns. Every token knows who
wrote it: the mask is 1 for the controller's, 0 for the prompt's and for replies. In the last turn a call is not
made, for nobody would read the reply (the algorithm would pay for it).

What a turn means and who replies is the business of `Others`: the experts of CoRL, or ToolOrchestra's tools. A reply
that the infrastructure lost ends its episode, which then stands in no score: `Episode.failed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lib import tasks
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertReply
from lib.rl.generators import Voice

VERSION = 1  # of the course of an episode


@dataclass(frozen=True)
class Exchange:
    """One turn.

    Attributes:
        text: What the controller wrote.
        call: The call in it, if there is one.
        reply: What came back, if the call was made.
        malformed: Why the turn is neither a call nor an answer; empty where it is one.
        shortened: Whether the controller read a part of the reply only, because it is longer than the setting allows.
    """

    text: str
    call: call_protocol.Call | None = None
    reply: ExpertReply | None = None
    malformed: str = ""
    shortened: bool = False


@dataclass
class Episode:
    """What became of a task.

    Attributes:
        task: What was to be done.
        ids: All tokens.
        mask: Of each token, whether the controller wrote it.
        prompt: How many tokens of the prompt lead them.
        exchanges: Its turns.
        correct: The outcome in [0, 1]; nan where nothing may be scored.
        done: Whether no turn follows.
    """

    task: Any
    ids: list[int]
    mask: list[bool]
    prompt: int
    exchanges: list[Exchange] = field(default_factory=list)
    correct: float = 0.0
    done: bool = False

    @property
    def replies(self) -> list[ExpertReply]:
        """What came back to the calls, in order."""
        return [exchange.reply for exchange in self.exchanges if exchange.reply]

    @property
    def failed(self) -> bool:
        """Whether the infrastructure lost a reply, so that the episode may not be scored."""
        return any(reply.lost for reply in self.replies)

    @property
    def cost_usd(self) -> float:
        """c: what the calls cost."""
        return sum((reply.cost_usd for reply in self.replies), 0.0)

    @property
    def calls(self) -> list[str]:
        """Experts that were called, in order."""
        return [exchange.call.expert for exchange in self.exchanges if exchange.reply]

    @property
    def malformed(self) -> int:
        """Turns that were neither a call nor an answer."""
        return sum(bool(exchange.malformed) for exchange in self.exchanges)

    @property
    def truncated(self) -> int:
        """Replies that reached the expert's own limit of tokens."""
        return sum(reply.truncated for reply in self.replies)

    @property
    def shortened(self) -> int:
        """Replies of which the controller read a part only."""
        return sum(exchange.shortened for exchange in self.exchanges)

    @property
    def written(self) -> int:
        """Tokens that the controller wrote."""
        return sum(self.mask)

    @property
    def written_answer(self) -> str | None:
        """What stands in the answer tags of the last turn, if it got there."""
        return tasks.extract_answer(self.exchanges[-1].text) if self.exchanges else None

    @property
    def hands_on_reply(self) -> bool:
        """Whether the answer is AS_HEARD, and there is a reply that it can mean."""
        return self.written_answer == call_protocol.AS_HEARD and bool(self.replies)

    @property
    def answer(self) -> str | None:
        """The answer, if it got there; for AS_HEARD what the last reply says."""
        if self.hands_on_reply:
            return call_protocol.clean_reply(self.replies[-1].text)
        return self.written_answer

    def add(self, ids: Sequence[int], own: bool) -> None:
        """Append tokens."""
        self.ids += ids
        self.mask += [own] * len(ids)


class Others(Protocol):
    """Who sits across the controller."""

    def read(self, episode: Episode, text: str) -> call_protocol.Turn:
        """What a turn asks for."""

    def reply(self, calls: Sequence[tuple[Episode, call_protocol.Call, int]]) -> list[ExpertReply]:
        """Replies to calls, in order; each with its episode and its seed."""


def play(
    voice: Voice,
    others: Others,
    episodes: Sequence[Episode],
    rounds: int,
    key: int,
    temperature: float = 1.0,
) -> None:
    """Carry episodes on to their ends. key: seed of this batch.

    With a lab voice an episode's draws depend on key and on its place, not on who else is in the batch.
    """
    for turn in range(rounds):
        alive = [(i, e) for i, e in enumerate(episodes) if not e.done and voice.fits(e.ids)]
        if not alive:
            break
        keys = [draws(key, i, turn) for i, _ in alive]
        turns = voice.write([e.ids for _, e in alive], keys, temperature)
        _exchange(voice, others, [e for _, e in alive], turns, keys, turn == rounds - 1)


def draws(key: int, place: int, turn: int) -> int:
    """The seed of one turn of one episode of a batch."""
    return int(
        seeds.key("routing", "turn", place, turn, seed=key) >> 1
    )  # seeds of OpenAI's API are signed


def _exchange(
    voice: Voice,
    others: Others,
    alive: Sequence[Episode],
    turns: Sequence[Sequence[int]],
    keys: Sequence[int],
    last: bool,
) -> None:
    """Read what the controllers wrote, make their calls, and hand them the responses."""
    # Turns without a call that is made.
    pending: list[tuple[Episode, str, call_protocol.Call, int]] = []
    for episode, ids, key in zip(alive, turns, keys, strict=True):
        episode.add(ids, True)
        text = voice.decode(ids)
        turn = others.read(episode, text)
        episode.done = last or isinstance(turn, call_protocol.Answer)
        if isinstance(turn, call_protocol.Call) and not last:
            pending.append((episode, text, turn, key))
            continue
        call = turn if isinstance(turn, call_protocol.Call) else None
        why = turn.why if isinstance(turn, call_protocol.Malformed) else ""
        episode.exchanges.append(Exchange(text, call, malformed=why))
        if not episode.done:  # malformed, which the controller reads as an error
            tokens, _ = encode_response(voice, call_protocol.ERROR)
            episode.add(tokens, False)

    # Calls, all at once.
    replies = others.reply([(episode, call, key) for episode, _, call, key in pending])
    for (episode, text, call, _), reply in zip(pending, replies, strict=True):
        if reply.lost:
            episode.exchanges.append(Exchange(text, call, reply))
            episode.done = True
            continue
        reply_text = call_protocol.clean_reply(reply.text)
        tokens, shortened = encode_response(voice, reply_text, reply.truncated)
        episode.exchanges.append(Exchange(text, call, reply, shortened=shortened))
        episode.add(tokens, False)


def encode_response(voice: Voice, text: str, truncated: bool = False) -> tuple[list[int], bool]:
    """Tokens of a response, at most `voice.response` of its text (the paper's limit is 500).

    A controller that reads any word gets beginning and end of a longer one, since answers stand at the end, and a mark
    where something is missing. The lab's controllers get the beginning alone.

    Args:
        voice: The controller's.
        text: What it is to read of a reply.
        truncated: Whether the expert's own limit cut the reply off.

    Returns:
        The tokens, with the tags around them; and whether a part of the text was left out.
    """
    opening, closing = (voice.encode(tag) for tag in call_protocol.RESPONSE)
    tokens = voice.encode(text)
    shortened = len(tokens) > voice.response
    if shortened and voice.marks_cuts:
        tail = voice.response // 2
        head = voice.response - tail
        gap = voice.encode(call_protocol.GAP_MARK)
        tokens = [*tokens[:head], *gap, *tokens[len(tokens) - tail :]]
    elif shortened:
        tokens = tokens[: voice.response]
    if truncated and voice.marks_cuts:
        tokens = [*tokens, *voice.encode(call_protocol.END_MARK)]
    return [*opening, *tokens, *closing], shortened
