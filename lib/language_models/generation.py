"""Batched generation: many sequences a step, each with its own seed, temperature, limit and stops.

A sequence that is finished leaves the batch, one that arrives is joined to it. The n-th token of a
sequence is drawn with the n-th number of its seed's stream, so a sequence is the same alone, in a batch,
and whenever it arrives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from lib.experiment import seeds
from lib.language_models.kv_cache_forward import ROWS, Cache, Forward

VERSION = 1  # of generated tokens and their log-probabilities


@dataclass(frozen=True)
class Prompt:
    """What one sequence starts from and how it goes on.

    ids: tokens; limit: the most new tokens; temperature: 0 is greedy; seed: of its random numbers;
    stops: token sequences that end it, beside the model's own end of turn.
    """

    ids: tuple[int, ...]
    limit: int
    temperature: float = 0.0
    seed: int = 0
    stops: tuple[tuple[int, ...], ...] = ()


@dataclass
class Generation:
    """What one sequence became, token by token, the one that ended it included.

    logprobs, entropies: under the model at temperature 1, in nats; hidden: (tokens, d), the state
    from which each token was drawn, of the layer asked for; finish: "stop" or "length".
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    hidden: np.ndarray | None = None
    finish: str = ""
    stop: tuple[int, ...] = ()

    @property
    def written(self) -> list[int]:
        """The tokens without those that ended the sequence."""
        return self.ids[: len(self.ids) - len(self.stop)]


class ContextTooLong(ValueError):
    """A prompt and its limit do not fit into the model's window; the message has the numbers."""


def check(prompt: Prompt, window: int) -> None:
    """Raises ContextTooLong, or ValueError for a prompt without tokens or room for one."""
    if not prompt.ids or prompt.limit < 1:
        raise ValueError(
            f"a prompt needs at least one token and room for one more, got {len(prompt.ids)} and {prompt.limit}"
        )
    if len(prompt.ids) + prompt.limit > window:
        raise ContextTooLong(
            f"the window has {window} tokens; the prompt has {len(prompt.ids)} and max_tokens is {prompt.limit}"
        )


@dataclass
class _Row:
    """One row of the batch. A finished one may stay to fill the batch up to ROWS."""

    prompt: Prompt
    result: Generation
    stream: np.uint64
    states: list[torch.Tensor] = field(default_factory=list)

    def take(self, token: int, logprob: float, entropy: float, state: torch.Tensor | None) -> None:
        self.result.ids.append(token)
        self.result.logprobs.append(logprob)
        self.result.entropies.append(entropy)
        if state is not None:
            self.states.append(state)

    def ends(self, end: int) -> bool:
        """Whether the last token finished the sequence; fills in how."""
        result = self.result
        for stop in ((end,), *self.prompt.stops):
            if tuple(result.ids[-len(stop) :]) == stop:
                result.finish, result.stop = "stop", stop
        if not result.finish and len(result.ids) == self.prompt.limit:
            result.finish = "length"
        if result.finish and self.states:
            result.hidden = torch.stack(self.states).numpy()
        return bool(result.finish)


class Running:
    """Sequences under way. `add` takes some in, `step` gives each its next token and returns the finished."""

    def __init__(self, forward: Forward, end: int, layer: int | None = None) -> None:
        """end: the token that ends a turn; layer: whose hidden states to keep (0 is the embedding)."""
        if layer is not None and not -forward.depth - 1 <= layer <= forward.depth:
            raise ValueError(
                f"the model has layers 0 (the embedding) to {forward.depth}, not {layer}"
            )
        self.forward, self.end, self.layer = forward, end, layer
        self.rows: list[_Row] = []
        self.cache: Cache | None = None
        self.last: torch.Tensor | None = (
            None  # (rows, d): the states that the next tokens are drawn from
        )
        self.kept: torch.Tensor | None = None  # (rows, d): the same of `layer`

    def __len__(self) -> int:
        return sum(not row.result.finish for row in self.rows)

    @torch.inference_mode()
    def add(self, prompts: Sequence[Prompt]) -> list[Generation]:
        """Take sequences in; the objects returned fill up with every step. Raises as `check` does."""
        for prompt in prompts:
            check(prompt, self.forward.window)
        rows = [_Row(p, Generation(), seeds.key("generation", seed=p.seed)) for p in prompts]
        fill = [
            _Row(prompts[0], Generation(finish="filling"), np.uint64(0))
            for _ in range(ROWS - len(prompts))
        ]
        cache = self.forward.start(len(rows + fill), max(len(p.ids) + p.limit for p in prompts))
        last, kept = self._read(
            self.forward.read([row.prompt.ids for row in rows + fill], cache, self._all_layers)
        )
        self._leave()
        if self.rows:
            self.cache.join(cache)
            last = torch.cat([self.last, last])
            kept = None if kept is None else torch.cat([self.kept, kept])
        self.rows, self.cache = [*self.rows, *rows, *fill], self.cache if self.rows else cache
        self.last, self.kept = last, kept
        return [row.result for row in rows]

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """One more token for every sequence; returns those that it finished."""
        if not len(self):
            return []
        tokens, logprobs, entropies = self._draw()
        states = self.kept if self.kept is not None else [None] * len(self.rows)
        drawn = zip(
            self.rows, tokens.tolist(), logprobs.tolist(), entropies.tolist(), states, strict=True
        )
        done = []
        for row, token, logprob, entropy, state in drawn:
            if not row.result.finish:
                row.take(token, logprob, entropy, state)
                if row.ends(self.end):
                    done.append(row.result)
        if len(self) <= 0.75 * len(self.rows):
            tokens = tokens[self._leave()]
        if self.rows:
            states = self.forward(tokens[:, None], self.cache, self._all_layers)
            self.last, self.kept = self._read([state[:, 0] for state in states])
        return done

    def drop(self, result: Generation) -> None:
        """A sequence that nobody waits for any more ends here."""
        result.finish = result.finish or "dropped"

    @property
    def _all_layers(self) -> bool:
        return self.layer is not None and self.layer not in (-1, self.forward.depth)

    def _read(self, states: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
        return states[-1], None if self.layer is None else states[
            self.layer if self._all_layers else -1
        ]

    def _draw(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens, their log-probabilities and entropies, (rows,) each; those that are finished draw in vain."""
        logp = self.forward.logits(self.last).double().log_softmax(1)
        probabilities = logp.exp()
        temperature = torch.tensor(
            [row.prompt.temperature for row in self.rows], dtype=torch.double
        )
        flat = torch.where(temperature == 0, 1.0, temperature.clamp(min=1e-9))[:, None]
        cumulative = (logp / flat).softmax(1).cumsum(1)
        streams = np.array([row.stream for row in self.rows])
        numbers = torch.from_numpy(
            seeds.uniform(streams, np.array([len(row.result.ids) for row in self.rows]))
        )
        drawn = (
            (cumulative <= numbers[:, None] * cumulative[:, -1:])
            .sum(1)
            .clamp(max=logp.shape[1] - 1)
        )
        tokens = torch.where(temperature == 0, logp.argmax(1), drawn)
        return tokens, logp.gather(1, tokens[:, None])[:, 0], -(probabilities * logp).sum(1)

    def _leave(self) -> list[int]:
        """The finished leave the batch, but for those who fill it up to ROWS; returns the rows that stay."""
        alive = [i for i, row in enumerate(self.rows) if not row.result.finish]
        rest = [i for i, row in enumerate(self.rows) if row.result.finish]
        stay = sorted([*alive, *rest[: max(0, ROWS - len(alive))]]) if alive else []
        if not stay:
            self.rows, self.cache, self.last, self.kept = [], None, None, None
        elif len(stay) < len(self.rows):
            rows = torch.tensor(stay)
            self.cache.lengths[rest] = 0  # they are seen no more
            self.cache.keep(rows)
            self.rows, self.last = [self.rows[i] for i in stay], self.last[rows]
            self.kept = None if self.kept is None else self.kept[rows]
        return stay


def generate(
    forward: Forward,
    prompts: Sequence[Prompt],
    end: int,
    layer: int | None = None,
    at_once: int = 256,
    progress: Callable[[int], None] | None = None,
) -> list[Generation]:
    """What the model writes after each prompt, in order; at most `at_once` sequences side by side.

    layer: keep the hidden states of this layer (0 is the embedding, -1 the last). progress(finished) is
    called after every step. Raises ContextTooLong, ValueError.
    """
    if at_once < 1:
        raise ValueError(f"at_once must be at least 1, got {at_once}")
    running = Running(forward, end, layer)
    waiting = sorted(
        range(len(prompts)), key=lambda i: len(prompts[i].ids), reverse=True
    )  # like lengths together
    results: dict[int, Generation] = {}
    finished = 0
    while finished < len(prompts):
        free = at_once - len(running)
        if waiting and free >= min(len(waiting), max(1, at_once // 4)):
            now, waiting = waiting[:free], waiting[free:]
            results |= dict(zip(now, running.add([prompts[i] for i in now]), strict=True))
        finished += len(running.step())
        if progress is not None:
            progress(finished)
    return [results[i] for i in range(len(prompts))]
