"""Episodes between a controller and whoever replies to its calls (CoRL, algorithm 1), many at once.

All controllers write a turn, all calls are answered, and again, for at most `rounds` turns. Every token knows who
wrote it: the mask is 1 for the controller's, 0 for the prompt's and for replies. In the last turn a call is not
made, for nobody would read the reply (the algorithm would pay for it).

What a turn means and who replies is the business of `Others`: the experts of CoRL, or ToolOrchestra's tools.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lib import tasks
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.expert_pool import Heard
from lib.rl.generators import Voice

VERSION = 1  # of the course of an episode


@dataclass(frozen=True)
class Exchange:
    """One turn: what the controller wrote; the call in it, if there was one, and what came back."""

    said: str
    call: call_protocol.Call | None = None
    heard: Heard | None = None
    malformed: str = ""


@dataclass
class Episode:
    """What became of a task. ids: all tokens; mask: whether the controller wrote them; prompt: how many
    tokens of the prompt lead them."""

    task: Any
    ids: list[int]
    mask: list[bool]
    prompt: int
    exchanges: list[Exchange] = field(default_factory=list)
    correct: float = 0.0
    done: bool = False

    @property
    def cost_usd(self) -> float:
        """c: what the calls cost."""
        return sum((e.heard.cost_usd for e in self.exchanges if e.heard), 0.0)

    @property
    def calls(self) -> list[str]:
        """Who was called, in order."""
        return [e.call.expert for e in self.exchanges if e.heard]

    @property
    def malformed(self) -> int:
        """Turns that were neither a call nor an answer."""
        return sum(bool(e.malformed) for e in self.exchanges)

    @property
    def written(self) -> int:
        """Tokens that the controller wrote."""
        return sum(self.mask)

    @property
    def answer(self) -> str | None:
        """What stands in the answer tags, if it got there; for AS_HEARD what was heard last."""
        said = tasks.answered(self.exchanges[-1].said) if self.exchanges else None
        heard = [e.heard for e in self.exchanges if e.heard]
        return (
            call_protocol.heard(heard[-1].text)
            if said == call_protocol.AS_HEARD and heard
            else said
        )

    def add(self, ids: Sequence[int], own: bool) -> None:
        """Append tokens."""
        self.ids += ids
        self.mask += [own] * len(ids)


class Others(Protocol):
    """Who sits across the controller."""

    def read(self, episode: Episode, text: str) -> call_protocol.Turn:
        """What a turn asks for."""

    def reply(self, asked: Sequence[tuple[Episode, call_protocol.Call, int]]) -> list[Heard]:
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
    asked: list[tuple[Episode, str, call_protocol.Call, int]] = []
    for episode, ids, key in zip(alive, turns, keys, strict=True):
        episode.add(ids, True)
        text = voice.decode(ids)
        turn = others.read(episode, text)
        episode.done = last or isinstance(turn, call_protocol.Answer)
        if isinstance(turn, call_protocol.Call) and not last:
            asked.append((episode, text, turn, key))
            continue
        why = turn.why if isinstance(turn, call_protocol.Malformed) else ""
        episode.exchanges.append(
            Exchange(text, turn if isinstance(turn, call_protocol.Call) else None, None, why)
        )
        if not episode.done:  # malformed: it is told so
            episode.add(_response(voice, call_protocol.ERROR), False)
    replies = others.reply([(episode, call, key) for episode, _, call, key in asked])
    for (episode, text, call, _), heard in zip(asked, replies, strict=True):
        episode.exchanges.append(Exchange(text, call, heard))
        episode.add(_response(voice, call_protocol.heard(heard.text)), False)


def _response(voice: Voice, text: str) -> list[int]:
    """Tokens of a response, the text cut where it is long (the paper's limit is 500 tokens)."""
    opening, closing = call_protocol.RESPONSE
    return [*voice.encode(opening), *voice.encode(text)[: voice.response], *voice.encode(closing)]
