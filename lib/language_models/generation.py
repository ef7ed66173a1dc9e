"""Batched generation: many sequences a step, each with its own seed, temperature, limit and stop sequences.

A sequence that is finished leaves the batch, one that arrives is joined to it. The n-th token of a sequence is drawn
with the n-th number of its seed's stream, so a sequence is the same alone, in a batch, and whenever it arrives.

Left out: threads and queues (`lib.language_models.batching`), and text (`lib.language_models.tokenizer`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from lib.experiment import seeds
from lib.language_models.kv_cache_forward import MIN_BATCH_SIZE, Forward, KVCache

VERSION = 1  # of generated tokens and their log-probabilities
# Finished rows are taken out when at most this fraction of the rows is unfinished. To copy the cache for every row that
# ends would take longer than to compute a few rows in vain.
_SHRINK_BELOW = 0.75


@dataclass(frozen=True)
class Prompt:
    """What one sequence starts from and how it goes on.

    Attributes:
        ids: Tokens to start from, at least one.
        limit: New tokens at the most, at least one.
        temperature: Temperature of sampling; 0 is greedy.
        seed: Seed of its random numbers.
        stops: Token sequences that end it, beside the model's end-of-turn token.
    """

    ids: tuple[int, ...]
    limit: int
    temperature: float = 0.0
    seed: int = 0
    stops: tuple[tuple[int, ...], ...] = ()


@dataclass
class Generation:
    """What the model wrote after one prompt; it grows with every step.

    Attributes:
        ids: New tokens, those that ended the sequence included.
        logprobs: Log-probabilities of each token under the model at temperature 1, in nats.
        entropies: Entropies of the distribution that each token was drawn from, at temperature 1, in nats.
        hidden: (tokens, d), the states from which the tokens were drawn, of the hidden layer that was asked for; None
            without one, and until the sequence is finished.
        finish: "stop", "length", "dropped" where nobody waits for it any more, or "" while it goes on.
        stop: The tokens at the end that ended the sequence; none where its limit did.
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    hidden: np.ndarray | None = None
    finish: str = ""
    stop: tuple[int, ...] = ()

    @property
    def reply_ids(self) -> list[int]:
        """The tokens without those that ended the sequence."""
        return self.ids[: len(self.ids) - len(self.stop)]


class ContextTooLong(ValueError):
    """A prompt and its limit do not fit into the model's window; the message has the numbers."""


def check_fits_window(prompt: Prompt, window: int) -> None:
    """Check a prompt before it joins a batch.

    Args:
        prompt: The prompt.
        window: Tokens that the model can see.

    Raises:
        ContextTooLong: Where prompt and limit have more tokens than the window.
        ValueError: For a prompt without tokens, or without room for a new one.
    """
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
    """One row of the batch. A finished one may stay to fill the batch up to MIN_BATCH_SIZE."""

    prompt: Prompt
    generation: Generation
    random_stream: np.uint64
    hidden_states: list[torch.Tensor] = field(default_factory=list)  # (d,) per token

    def append(
        self, token: int, logprob: float, entropy: float, hidden_state: torch.Tensor | None
    ) -> None:
        """Adds a sampled token to the sequence.

        Args:
            token: Its id.
            logprob: Its log-probability.
            entropy: Entropy of the distribution that it was sampled from, in nats.
            hidden_state: Hidden states at the token; None where they are not collected.
        """
        self.generation.ids.append(token)
        self.generation.logprobs.append(logprob)
        self.generation.entropies.append(entropy)
        if hidden_state is not None:
            self.hidden_states.append(hidden_state)

    def check_finished(self, end_token: int) -> bool:
        """Whether the last token finished the sequence; fills in how."""
        generation = self.generation
        ids = generation.ids
        if ids[-1] == end_token:
            generation.finish = "stop"
            generation.stop = (end_token,)
        for stop in self.prompt.stops:
            if tuple(ids[-len(stop) :]) == stop:
                generation.finish = "stop"
                generation.stop = stop
        if not generation.finish and len(ids) == self.prompt.limit:
            generation.finish = "length"
        if generation.finish and self.hidden_states:
            generation.hidden = torch.stack(self.hidden_states).numpy()
        return bool(generation.finish)


class GenerationBatch:
    """Sequences that are generated side by side. `add` takes some in, `step` gives each its next token.

    batch = GenerationBatch(Forward(model), end_token)
    generations = batch.add([Prompt(ids, limit=20)])
    while len(batch):
        batch.step()
    """

    def __init__(self, forward: Forward, end_token: int, hidden_layer: int | None = None) -> None:
        """
        Args:
            forward: The model.
            end_token: The token that ends a turn.
            hidden_layer: Whose hidden states generations keep: 0 is the embedding, -1 the last; None keeps none.

        Raises:
            ValueError: For a layer that the model does not have.
        """
        num_layers = forward.num_layers
        if hidden_layer is not None and not -num_layers - 1 <= hidden_layer <= num_layers:
            raise ValueError(
                f"the model has layers 0 (the embedding) to {num_layers}, not {hidden_layer}"
            )
        self.forward = forward
        self.end_token = end_token
        self.hidden_layer = hidden_layer
        # States of all layers are only computed for a layer before the last.
        self._all_layers = hidden_layer is not None and hidden_layer not in (-1, num_layers)
        self.rows: list[_Row] = []
        self.cache: KVCache | None = None
        # Hidden states at the last token of every row, (rows, d): of the last layer, from which the next tokens are
        # drawn, and of `hidden_layer`.
        self.last_states: torch.Tensor | None = None
        self.layer_states: torch.Tensor | None = None

    def __len__(self) -> int:
        """Sequences that are not finished."""
        return sum(not row.generation.finish for row in self.rows)

    @torch.inference_mode()
    def add(self, prompts: Sequence[Prompt]) -> list[Generation]:
        """Take sequences in.

        Args:
            prompts: At least one.

        Returns:
            One generation a prompt; they grow with every step.

        Raises:
            ContextTooLong, ValueError: As `check_fits_window`.
        """
        for prompt in prompts:
            check_fits_window(prompt, self.forward.window)
        rows = [
            _Row(prompt, Generation(), seeds.key("generation", seed=prompt.seed))
            for prompt in prompts
        ]
        # A batch has MIN_BATCH_SIZE rows at least; copies of the shortest prompt, finished at once, fill it up.
        shortest = min(prompts, key=lambda prompt: len(prompt.ids))
        filling = [
            _Row(shortest, Generation(finish="filling"), np.uint64(0))
            for _ in range(MIN_BATCH_SIZE - len(prompts))
        ]
        # With the longest prompts first, the model reads no more padding than it has to.
        new_rows = sorted(rows + filling, key=lambda row: len(row.prompt.ids), reverse=True)
        cache, states = self._read_prompts([tuple(row.prompt.ids) for row in new_rows])
        last_states, layer_states = self._select_states(states)

        # Below the rows that are under way, without those that are finished.
        self._remove_finished()
        if self.rows:
            self.cache.append_rows(cache)
            last_states = torch.cat([self.last_states, last_states])
            if layer_states is not None:
                layer_states = torch.cat([self.layer_states, layer_states])
        else:
            self.cache = cache
        self.rows = [*self.rows, *new_rows]
        self.last_states = last_states
        self.layer_states = layer_states
        return [row.generation for row in rows]

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Sample one more token for every sequence, and run the model on it.

        Returns:
            The sequences that this token finished.
        """
        if not len(self):
            return []
        tokens, logprobs, entropies = self._sample_tokens()  # (rows,) each
        if self.layer_states is None:
            layer_states = [None] * len(self.rows)
        else:
            layer_states = self.layer_states

        finished = []
        samples = zip(
            self.rows,
            tokens.tolist(),
            logprobs.tolist(),
            entropies.tolist(),
            layer_states,
            strict=True,
        )
        for row, token, logprob, entropy, state in samples:
            if row.generation.finish:  # only fills the batch, see `_remove_finished`
                continue
            row.append(token, logprob, entropy, state)
            if row.check_finished(self.end_token):
                finished.append(row.generation)

        if len(self) <= _SHRINK_BELOW * len(self.rows):
            tokens = tokens[self._remove_finished()]
        if self.rows:
            next_ids = tokens[:, None]  # (rows, 1)
            states = self.forward(next_ids, self.cache, self._all_layers)  # (rows, 1, d) each
            states = [state[:, 0] for state in states]
            self.last_states, self.layer_states = self._select_states(states)
        return finished

    def drop(self, generation: Generation) -> None:
        """End a sequence that nobody waits for any more; nothing where it is finished."""
        generation.finish = generation.finish or "dropped"

    def _read_prompts(
        self, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[KVCache, list[torch.Tensor]]:
        """Run the model over prompts; over each once, however many rows start from it.

        Args:
            prompts: Token ids of every row, the longest first; at least MIN_BATCH_SIZE.

        Returns:
            (cache, states): a cache with one row a prompt, and the hidden states at each prompt's last token, (rows, d)
            for the last layer or for every layer.
        """
        distinct_prompts = list(dict.fromkeys(prompts))
        num_missing = MIN_BATCH_SIZE - len(distinct_prompts)
        prompts_to_read = distinct_prompts + [distinct_prompts[-1]] * num_missing

        # The cache has room for the prompts only and grows with the sequences: a cache without empty columns lies in
        # one piece, and is read twice as fast.
        cache = self.forward.make_cache(len(prompts_to_read), num_columns=len(prompts[0]))
        states = self.forward.prefill(prompts_to_read, cache, self._all_layers)

        if len(distinct_prompts) < len(prompts):
            index_of = {prompt: i for i, prompt in enumerate(distinct_prompts)}
            rows = torch.tensor([index_of[prompt] for prompt in prompts])
            cache.select_rows(rows)
            states = [state[rows] for state in states]
        return cache, states

    def _select_states(
        self, states: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Select the hidden states that are needed further.

        Args:
            states: (rows, d) for the last layer, or for every layer.

        Returns:
            (last, hidden): states of the last layer, from which tokens are sampled, and of `hidden_layer`; None
            without one.
        """
        if self.hidden_layer is None:
            return states[-1], None
        index = self.hidden_layer if self._all_layers else -1
        return states[-1], states[index]

    def _sample_tokens(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw the next token of every row, finished ones included.

        Returns:
            Tokens, their log-probabilities and the entropies of their distributions, (rows,) each.
        """
        logits = self.forward.compute_logits(self.last_states)
        logprobs = logits.double().log_softmax(1)  # (rows, V)
        row_temperatures = [row.prompt.temperature for row in self.rows]
        temperatures = torch.tensor(row_temperatures, dtype=torch.double)  # (rows,)
        is_greedy = temperatures == 0

        # Greedy rows take the likeliest token, the others are sampled. Neither is computed where no row needs it.
        if is_greedy.all():
            tokens = logprobs.argmax(1)
        else:
            tokens = self._sample_at_temperatures(logprobs, temperatures)
            if is_greedy.any():
                tokens = torch.where(is_greedy, logprobs.argmax(1), tokens)

        token_logprobs = logprobs.gather(1, tokens[:, None])[:, 0]
        entropies = -(logprobs.exp() * logprobs).sum(1)
        return tokens, token_logprobs, entropies

    def _sample_at_temperatures(
        self, logprobs: torch.Tensor, temperatures: torch.Tensor
    ) -> torch.Tensor:
        """Sample one token a row from softmax(logprobs / temperature), by inverting the cumulative distribution.

        Args:
            logprobs: (rows, V), double.
            temperatures: (rows,), double; where it is 0, a token is sampled at temperature 1.

        Returns:
            (rows,), tokens.
        """
        divisors = torch.where(temperatures == 0, 1.0, temperatures.clamp(min=1e-9))
        probabilities = (logprobs / divisors[:, None]).softmax(1)
        cumulative = probabilities.cumsum(1)  # (rows, V)

        # One random number a row: the n-th of its stream for its n-th token.
        streams = np.array([row.random_stream for row in self.rows])
        token_counts = np.array([len(row.generation.ids) for row in self.rows])
        numbers = torch.from_numpy(seeds.uniform(streams, token_counts))  # (rows,)

        # The first token whose cumulative probability exceeds the number; the last sum may be a little below 1.
        thresholds = numbers[:, None] * cumulative[:, -1:]  # (rows, 1)
        tokens = torch.searchsorted(cumulative, thresholds, right=True)[:, 0]
        last_token = logprobs.shape[1] - 1
        return tokens.clamp(max=last_token)

    def _remove_finished(self) -> list[int]:
        """Take finished rows out of the batch, except as many as it takes to keep MIN_BATCH_SIZE rows.

        With fewer rows the matrix library (BLAS) uses another kernel, which rounds differently, and a sequence would
        depend on how many others are generated with it.

        Returns:
            Indices of the rows that stay.
        """
        unfinished = [i for i, row in enumerate(self.rows) if not row.generation.finish]
        finished = [i for i, row in enumerate(self.rows) if row.generation.finish]
        if not unfinished:
            self.rows = []
            self.cache = None
            self.last_states = None
            self.layer_states = None
            return []
        filling = finished[: max(0, MIN_BATCH_SIZE - len(unfinished))]
        staying = sorted([*unfinished, *filling])
        if len(staying) < len(self.rows):
            rows = torch.tensor(staying)
            self.cache.lengths[finished] = 0  # nothing of them is read any more
            self.cache.select_rows(rows)
            self.rows = [self.rows[i] for i in staying]
            self.last_states = self.last_states[rows]
            if self.layer_states is not None:
                self.layer_states = self.layer_states[rows]
        return staying


def generate(
    forward: Forward,
    prompts: Sequence[Prompt],
    end_token: int,
    hidden_layer: int | None = None,
    max_batch_size: int = 256,
    progress: Callable[[int], None] | None = None,
) -> list[Generation]:
    """Write on after each prompt.

    Args:
        forward: The model.
        prompts: Any number.
        end_token: The token that ends a turn.
        hidden_layer: Whose hidden states to keep: 0 is the embedding, -1 the last; None keeps none.
        max_batch_size: Sequences side by side at the most.
        progress: progress(finished sequences) is called after every step.

    Returns:
        The generations, in the order of the prompts.

    Raises:
        ContextTooLong: For a prompt that does not fit the window.
        ValueError: For an empty prompt, an unknown layer, or a batch size below 1.
    """
    if max_batch_size < 1:
        raise ValueError(f"max_batch_size must be at least 1, got {max_batch_size}")
    batch = GenerationBatch(forward, end_token, hidden_layer)
    # The longest prompts first, so that neighbours in a batch have similar lengths.
    waiting = sorted(range(len(prompts)), key=lambda i: len(prompts[i].ids), reverse=True)
    generations: dict[int, Generation] = {}
    num_finished = 0
    while num_finished < len(prompts):
        # Prompts join in groups: to read a single one holds the batch up as long as to read many.
        num_free = max_batch_size - len(batch)
        if waiting and num_free >= min(len(waiting), max(1, max_batch_size // 4)):
            admitted = waiting[:num_free]
            waiting = waiting[num_free:]
            new_generations = batch.add([prompts[i] for i in admitted])
            generations |= dict(zip(admitted, new_generations, strict=True))
        num_finished += len(batch.step())
        if progress is not None:
            progress(num_finished)
    return [generations[i] for i in range(len(prompts))]
