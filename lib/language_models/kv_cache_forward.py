"""One forward pass over a batch with a key-value cache: the arithmetic of generation.

It gives the same numbers as `LlamaForCausalLM.forward`, from the same weights, in a third of the operations: the
projections of a layer are fused, and the cache is written in place.

Rows do not influence each other: a row gets the same bits in any batch. For that its n-th token stands in column n
whatever its neighbours are, shapes come in fixed steps (MIN_BATCH_SIZE, PROMPT_BLOCK, COLUMN_STEP), and columns that a
row must not see add exact zeros.

The cache is as wide as its longest row needs, in steps of COLUMN_STEP. A wider one would have a gap behind every row
and head, and attention, whose time is that of reading the cache, would take twice as long.

Left out: gradients, sampling (`lib.language_models.generation`), and Llama models with grouped key heads or biases.

Letters in the shapes: B rows of the batch, T tokens of a row, d width of the hidden states, f width of the MLP,
V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import linear, pad, silu
from transformers import LlamaForCausalLM

VERSION = 1  # of the logits of the forward pass
# The fewest rows of a batch. With fewer the matrix library (BLAS) takes another kernel, which rounds differently.
MIN_BATCH_SIZE = 8
PROMPT_BLOCK = 16  # columns of a prompt that are read together
COLUMN_STEP = 64  # the cache is read in multiples of so many columns, so sums are grouped alike
_NEVER = -1e30  # score of a column that must not be seen; its weight is exactly 0


@dataclass(frozen=True)
class _Layer:
    """The weights of one layer; the hash of a served model reads them in this order."""

    input_norm: torch.Tensor  # (d,)
    qkv: torch.Tensor  # (3 d, d): query, key and value
    attention_output: torch.Tensor  # (d, d)
    mlp_norm: torch.Tensor  # (d,)
    gate_up: torch.Tensor  # (2 f, d)
    down: torch.Tensor  # (d, f)


class KVCache:
    """Keys and values of every layer; the n-th token of a row stands in column n.

    Attributes:
        keys: By layer (B, heads, columns, head_size).
        values: As `keys`.
        lengths: (B,), how many columns of a row are filled; columns behind them are never seen.
    """

    def __init__(
        self, keys: list[torch.Tensor], values: list[torch.Tensor], lengths: torch.Tensor
    ) -> None:
        self.keys = keys
        self.values = values
        self.lengths = lengths

    @property
    def num_columns(self) -> int:
        """Number of token positions that the cache has room for."""
        return self.keys[0].shape[2]

    def reserve(self, num_columns: int) -> None:
        """Make room for `num_columns` token positions per row in all, rounded up to a multiple of COLUMN_STEP.

        Args:
            num_columns: Token positions that are needed; new ones are zeros.
        """
        num_missing = _round_up(num_columns, COLUMN_STEP) - self.num_columns
        if num_missing > 0:
            below_last_column = (0, 0, 0, num_missing)
            self.keys = [pad(keys, below_last_column) for keys in self.keys]
            self.values = [pad(values, below_last_column) for values in self.values]

    def view_first_rows(self, num_rows: int) -> KVCache:
        """Returns the first sequences as a cache that shares this one's memory: a write to one changes the other.

        Args:
            num_rows: How many sequences.

        Returns:
            The view. Its lengths are its own.
        """
        keys = [keys[:num_rows] for keys in self.keys]
        values = [values[:num_rows] for values in self.values]
        return KVCache(keys, values, self.lengths[:num_rows].clone())

    def select_rows(self, rows: torch.Tensor) -> None:
        """Keep only these sequences, in this order, and only the columns that they need.

        Args:
            rows: (n,), row numbers.
        """
        self.lengths = self.lengths[rows]
        num_columns = _round_up(int(self.lengths.max()), COLUMN_STEP)
        self.keys = [keys[rows, :, :num_columns] for keys in self.keys]
        self.values = [values[rows, :, :num_columns] for values in self.values]

    def append_rows(self, other: KVCache) -> None:
        """Append the sequences of another cache of the same model.

        Args:
            other: Its room for tokens may differ; both caches grow to the larger one.
        """
        self.reserve(other.num_columns)
        other.reserve(self.num_columns)
        keys_by_layer = zip(self.keys, other.keys, strict=True)
        values_by_layer = zip(self.values, other.values, strict=True)
        self.keys = [torch.cat(pair) for pair in keys_by_layer]
        self.values = [torch.cat(pair) for pair in values_by_layer]
        self.lengths = torch.cat([self.lengths, other.lengths])


class Forward:
    """A model's weights, laid out for generation.

    Attributes:
        window: Tokens that a row may have.
        num_layers: Layers of the model.
        embedding: (V, d).
        norm: (d,), of the last hidden states.
        head: (V, d), the output embedding; the same tensor as `embedding` where the model ties them.
        layers: The weights of every layer.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        """
        Args:
            model: Its weights are copied, so that training it further changes nothing here.

        Raises:
            ValueError: For a model of another shape.
        """
        config = model.config
        has_biases = config.attention_bias or config.mlp_bias
        if config.num_key_value_heads != config.num_attention_heads or has_biases:
            raise ValueError(
                "this forward pass knows Llama models with as many key heads as query heads and no biases"
            )
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.epsilon = config.rms_norm_eps
        self.window = config.max_position_embeddings
        self.num_layers = config.num_hidden_layers

        weights = {
            name: tensor.detach().float().clone() for name, tensor in model.named_parameters()
        }
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.head = weights.get("lm_head.weight", self.embedding)
        self.layers = [
            _fuse_layer(weights, f"model.layers.{i}.", query_scale=self.head_size**-0.5)
            for i in range(self.num_layers)
        ]

        # Rotary embedding: the angle of position m and frequency i is m theta^(-2 i / head_size).
        theta = config.rope_parameters["rope_theta"]
        frequencies = 1.0 / theta ** (torch.arange(0, self.head_size, 2).float() / self.head_size)
        positions = torch.arange(self.window).float()
        angles = torch.outer(positions, torch.cat([frequencies, frequencies]))
        self.cos = angles.cos()  # (window, head_size)
        self.sin = angles.sin()  # (window, head_size)
        self.sin[:, : self.head_size // 2] *= -1  # the sign of "rotate half" in the table

    def make_cache(self, num_rows: int, num_columns: int) -> KVCache:
        """Create an empty key-value cache.

        Args:
            num_rows: Number of sequences.
            num_columns: Number of tokens of the longest sequence.

        Returns:
            The cache, with room for num_columns tokens, rounded up to a multiple of COLUMN_STEP.
        """
        num_columns = _round_up(num_columns, COLUMN_STEP)
        shape = (num_rows, self.num_heads, num_columns, self.head_size)
        keys = [torch.zeros(shape) for _ in self.layers]
        values = [torch.zeros(shape) for _ in self.layers]
        lengths = torch.zeros(num_rows, dtype=torch.long)
        return KVCache(keys, values, lengths)

    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: KVCache, all_layers: bool = False
    ) -> list[torch.Tensor]:
        """Run the model over whole prompts, and write their keys and values into an empty cache.

        Args:
            prompts: Token ids, of any lengths; B >= MIN_BATCH_SIZE prompts. The longest first is fastest.
            cache: An empty cache with a row for every prompt; it is filled.
            all_layers: Whether to return the states of every layer.

        Returns:
            Hidden states at each prompt's last token: one tensor (B, d) of the last layer after the final norm. With
            `all_layers` num_layers + 1 tensors (B, d): the embedding, and the output of each layer.

        Raises:
            ValueError: A prompt has no token.
        """
        # Prompts are padded on the right and read in blocks of a fixed width. So a row is computed with the same
        # shapes, and gets the same bits, however long the other prompts are.
        lengths = torch.tensor([len(prompt) for prompt in prompts])  # (B,)
        if not lengths.all():
            raise ValueError(
                f"a prompt needs at least one token; prompt {int(lengths.argmin())} of {len(prompts)} has none"
            )
        width = _round_up(int(lengths.max()), PROMPT_BLOCK)
        padded = [[*prompt, *[0] * (width - len(prompt))] for prompt in prompts]
        ids = torch.tensor(padded)  # (B, width)
        cache.reserve(width)

        num_outputs = self.num_layers + 1 if all_layers else 1
        hidden_size = self.embedding.shape[1]
        shape = (len(prompts), hidden_size)
        last_states = [self.embedding.new_zeros(shape) for _ in range(num_outputs)]
        for begin in range(0, width, PROMPT_BLOCK):
            end = begin + PROMPT_BLOCK

            # Rows after the last prompt that reaches into this block are not read: with the longest prompts first
            # these are all that have ended.
            reaching = torch.nonzero(lengths > begin)[:, 0]
            num_rows = max(int(reaching[-1]) + 1, MIN_BATCH_SIZE)
            rows_to_read = cache.view_first_rows(num_rows)
            rows_to_read.lengths.fill_(begin)  # where the block starts, padding included
            block = ids[:num_rows, begin:end]
            states = self(block, rows_to_read, all_layers)  # (num_rows, PROMPT_BLOCK, d) each

            # Prompts whose last token stands in this block take its states.
            ending = torch.nonzero((lengths > begin) & (lengths <= end))[:, 0]
            last_column = lengths[ending] - 1 - begin
            for last_state, state in zip(last_states, states, strict=True):
                last_state[ending] = state[ending, last_column]

        # Keys and values of the padding behind a prompt's end are overwritten later.
        cache.lengths = lengths
        return last_states

    def compute_last_states(
        self, prompts: Sequence[Sequence[int]], all_layers: bool = False
    ) -> list[torch.Tensor]:
        """Compute the hidden states at each prompt's last token, for example as input of a probe.

        Args:
            prompts: Token ids, of any lengths; B >= 1 prompts.
            all_layers: Whether to return the states of every layer.

        Returns:
            One tensor (B, d) of the last layer after the final norm. With `all_layers` num_layers + 1 tensors (B, d):
            the embedding, and the output of each layer.

        Raises:
            ValueError: A prompt has no token.
        """
        # The longest prompts first, so that the least padding is read.
        by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]), reverse=True)
        sorted_prompts = [prompts[i] for i in by_length]

        # A small batch is filled to MIN_BATCH_SIZE rows with copies of a prompt, whose states nobody reads. With fewer
        # rows the matrix library (BLAS) takes another kernel, which rounds differently, and a prompt's states would
        # depend on how many others are computed with it.
        copies = [sorted_prompts[-1]] * (MIN_BATCH_SIZE - len(prompts))
        rows = sorted_prompts + copies

        # `prefill` fills the cache with keys and values, which are not needed here, and returns the states at the last
        # token of every row, (rows, d) for each layer.
        cache = self.make_cache(len(rows), num_columns=len(rows[0]))
        states = self.prefill(rows, cache, all_layers)
        row_of_prompt = torch.tensor(by_length).argsort()  # (B,)
        return [state[row_of_prompt] for state in states]

    def __call__(
        self, ids: torch.Tensor, cache: KVCache, all_layers: bool = False
    ) -> list[torch.Tensor]:
        """Run the model over the next T tokens of each row, and write their keys and values into the cache.

        Args:
            ids: (B, T), token ids, with B >= MIN_BATCH_SIZE.
            cache: Keys and values of the tokens before.
            all_layers: Whether to return the states of every layer.

        Returns:
            The hidden states after the final norm, one tensor (B, T, d). With `all_layers` also the embedding and
            every layer's output before it, num_layers + 1 tensors, the last of them normed: as `hidden_states` of
            transformers.
        """
        # Where the new tokens stand: behind those that the cache holds, row by row.
        rows, width = ids.shape
        positions = cache.lengths[:, None] + torch.arange(width)  # (B, T)
        cache.lengths = cache.lengths + width
        num_columns = _round_up(int(cache.lengths.max()), COLUMN_STEP)
        cache.reserve(num_columns)
        write_at = (torch.arange(rows)[:, None], slice(None), positions)

        # Padding may stand past the window; nothing reads it, so any angle will do.
        rope_positions = positions.clamp(max=self.window - 1)
        cos = self.cos[rope_positions]  # (B, T, head_size)
        sin = self.sin[rope_positions]
        cos = cos[:, :, None, None]  # (B, T, 1, 1, head_size)
        sin = sin[:, :, None, None]

        # A token sees the columns up to its own.
        is_later = torch.arange(num_columns) > positions[:, :, None]  # (B, T, columns)
        mask = torch.where(is_later, _NEVER, 0.0)  # (B, T, columns), added to the scores
        mask = mask[:, None]  # (B, 1, T, columns)

        x = self.embedding[ids]  # (B, T, d)
        states = [x]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            # Attention; the scale 1 / sqrt(head_size) is already in the weights of the queries.
            normed = self._normalize(x, layer.input_norm)
            qkv = linear(normed, layer.qkv)  # (B, T, 3 d)
            qkv = qkv.view(rows, width, 3, self.num_heads, self.head_size)
            rotated = self._rotate(qkv[:, :, :2], cos, sin)  # (B, T, 2, heads, head_size)
            q, k = rotated.unbind(2)  # (B, T, heads, head_size) each
            keys[write_at] = k
            values[write_at] = qkv[:, :, 2]
            seen_keys = keys[:, :, :num_columns]  # (B, heads, columns, head_size)
            seen_values = values[:, :, :num_columns]
            scores = q.transpose(1, 2) @ seen_keys.transpose(2, 3) + mask
            weights = torch.softmax(scores, -1)  # (B, heads, T, columns)
            attended = weights @ seen_values  # (B, heads, T, head_size)
            attended = attended.transpose(1, 2).reshape(rows, width, -1)  # (B, T, d)
            x = x + linear(attended, layer.attention_output)

            # The gated MLP: down(silu(gate) * up).
            normed = self._normalize(x, layer.mlp_norm)
            gate, up = linear(normed, layer.gate_up).chunk(2, -1)  # (B, T, f) each
            x = x + linear(silu(gate) * up, layer.down)
            if all_layers:
                states.append(x)

        last_states = self._normalize(x, self.norm)
        return [*states[:-1], last_states] if all_layers else [last_states]

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute the logits of the next token.

        Args:
            hidden: (B, d), hidden states after the final norm.

        Returns:
            (B, V), logits.
        """
        return linear(hidden, self.head)

    def _normalize(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMSNorm: x / sqrt(mean(x^2) + epsilon), times the weight."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * weight

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotary embedding; the sign of the rotated half is in `sin`."""
        return x * cos + x.roll(self.head_size // 2, -1) * sin


def _fuse_layer(weights: dict[str, torch.Tensor], prefix: str, query_scale: float) -> _Layer:
    """Collect the weights of one layer, with the matrices that multiply the same input stacked into one.

    Args:
        weights: Tensors by their name in the model. The query projection is scaled in place.
        prefix: Prefix of the layer's names, for example "model.layers.0.".
        query_scale: 1 / sqrt(head_size), the scale of attention scores.

    Returns:
        The layer's weights: query, key and value as one matrix (3 d, d), gate and up as one (2 f, d).
    """

    def fuse(*names: str) -> torch.Tensor:
        return torch.cat([weights[f"{prefix}{name}.weight"] for name in names])

    # Scaling the queries here saves the scaling of the scores in every step.
    weights[f"{prefix}self_attn.q_proj.weight"] *= query_scale
    return _Layer(
        input_norm=fuse("input_layernorm"),
        qkv=fuse("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        attention_output=fuse("self_attn.o_proj"),
        mlp_norm=fuse("post_attention_layernorm"),
        gate_up=fuse("mlp.gate_proj", "mlp.up_proj"),
        down=fuse("mlp.down_proj"),
    )


def _round_up(n: int, step: int) -> int:
    """n, rounded up to a multiple of `step`."""
    return -(-n // step) * step
