"""One forward pass over a batch with a key-value cache: the arithmetic of generation, and nothing else.

The same numbers as `LlamaForCausalLM.forward`, from the same weights, in a third of the operations: the
projections of a layer are fused, and the cache is written in place. Rows do not influence each other:
a row gets the same bits in any batch. For that its n-th token stands in column n whoever is beside it,
shapes come in fixed steps (ROWS, BLOCK, COLUMNS), and what a row must not see adds exact zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import linear, pad, silu
from transformers import LlamaForCausalLM

VERSION = 1  # of the logits of the forward pass
ROWS = 8  # the fewest rows of a batch: with less, BLAS picks another kernel
BLOCK = 16  # columns of a prompt that are read at once
COLUMNS = 64  # the cache is seen in multiples of so many columns, so sums are grouped alike
_NEVER = -1e30  # score of a column that must not be seen; its weight is exactly 0


@dataclass(frozen=True)
class _Layer:
    """norms (2, d), fused projections: qkv (3 d, d), out (d, d), gate and up (2 f, d), down (d, f)."""

    before: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    between: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Cache:
    """Keys and values of every layer, (B, heads, room, size) each: the n-th token of a row in column n.

    `lengths` (B,): how many columns of a row are filled; what stands behind them is never seen.
    """

    def __init__(
        self, keys: list[torch.Tensor], values: list[torch.Tensor], lengths: torch.Tensor
    ) -> None:
        self.keys, self.values, self.lengths = keys, values, lengths

    @property
    def room(self) -> int:
        return self.keys[0].shape[2]

    def reserve(self, columns: int) -> None:
        """Make room for `columns` columns in all."""
        more = columns - self.room
        if more > 0:
            self.keys = [pad(k, (0, 0, 0, more)) for k in self.keys]
            self.values = [pad(v, (0, 0, 0, more)) for v in self.values]

    def keep(self, rows: torch.Tensor) -> None:
        """Only these rows, in this order."""
        self.keys, self.values = [k[rows] for k in self.keys], [v[rows] for v in self.values]
        self.lengths = self.lengths[rows]

    def join(self, other: Cache) -> None:
        """The rows of another cache below these."""
        self.reserve(other.room)
        other.reserve(self.room)
        self.keys = [torch.cat(pair) for pair in zip(self.keys, other.keys, strict=True)]
        self.values = [torch.cat(pair) for pair in zip(self.values, other.values, strict=True)]
        self.lengths = torch.cat([self.lengths, other.lengths])


class Forward:
    """A model's weights, laid out for generation. Raises ValueError for a model of another shape."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        config = model.config
        if (
            config.num_key_value_heads != config.num_attention_heads
            or config.attention_bias
            or config.mlp_bias
        ):
            raise ValueError(
                "this forward pass knows Llama models with as many key heads as query heads and no biases"
            )
        self.heads, self.epsilon = config.num_attention_heads, config.rms_norm_eps
        self.size = config.hidden_size // config.num_attention_heads
        self.window, self.depth = config.max_position_embeddings, config.num_hidden_layers
        weights = {
            name: tensor.detach().float().clone() for name, tensor in model.named_parameters()
        }
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.head = weights.get("lm_head.weight", self.embedding)
        self.layers = [
            self._layer(weights, f"model.layers.{i}.", self.size**-0.5) for i in range(self.depth)
        ]
        theta = config.rope_parameters["rope_theta"]
        frequency = 1.0 / theta ** (torch.arange(0, self.size, 2).float() / self.size)
        angles = torch.outer(torch.arange(self.window).float(), torch.cat([frequency, frequency]))
        self.cos, self.sin = angles.cos(), angles.sin()  # (window, size)
        self.sin[:, : self.size // 2] *= -1  # the sign of "rotate half" in the table

    @staticmethod
    def _layer(weights: dict[str, torch.Tensor], at: str, scale: float) -> _Layer:
        def fused(*names: str) -> torch.Tensor:
            return torch.cat([weights[f"{at}{name}.weight"] for name in names])

        weights[f"{at}self_attn.q_proj.weight"] *= (
            scale  # 1 / sqrt(size), once instead of in every step
        )

        return _Layer(
            fused("input_layernorm"),
            fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            fused("self_attn.o_proj"),
            fused("post_attention_layernorm"),
            fused("mlp.gate_proj", "mlp.up_proj"),
            fused("mlp.down_proj"),
        )

    def start(self, rows: int, room: int) -> Cache:
        """An empty cache for `rows` sequences of at most `room` tokens."""
        shape = (rows, self.heads, _up(room, COLUMNS), self.size)
        empty = [[torch.zeros(shape) for _ in self.layers] for _ in range(2)]
        return Cache(*empty, torch.zeros(rows, dtype=torch.long))

    def read(
        self, prompts: Sequence[Sequence[int]], cache: Cache, layers: bool = False
    ) -> list[torch.Tensor]:
        """Takes whole prompts into an empty cache; returns the states at each one's last token, (B, d) each.

        In blocks of a fixed width, so that a row meets the same shapes whatever its neighbours' lengths are.
        """
        lengths = torch.tensor([len(p) for p in prompts])
        width = _up(int(lengths.max()), BLOCK)
        ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts])
        last: list[torch.Tensor] = []
        for begin in range(0, width, BLOCK):
            states = self(ids[:, begin : begin + BLOCK], cache, layers)
            here = (lengths - 1 - begin).clamp(0, BLOCK - 1)
            ends = ((lengths - 1) // BLOCK == begin // BLOCK)[:, None]
            now = [state[torch.arange(len(here)), here] for state in states]
            last = (
                [torch.where(ends, n, l) for n, l in zip(now, last, strict=True)] if last else now
            )
        cache.lengths = lengths
        return last

    def last(self, prompts: Sequence[Sequence[int]], layers: bool = False) -> list[torch.Tensor]:
        """The states at each prompt's last token as `read` gives them, for any number of prompts; keeps no cache."""
        filled = [*prompts, *[prompts[0]] * (ROWS - len(prompts))]
        states = self.read(filled, self.start(len(filled), max(map(len, filled))), layers)
        return [state[: len(prompts)] for state in states]

    def __call__(self, ids: torch.Tensor, cache: Cache, layers: bool = False) -> list[torch.Tensor]:
        """Hidden states of each row's next tokens, ids (B, T) with B >= ROWS; writes them into the cache.

        Returns [last (B, T, d)] after the final norm, or with `layers` the embedding and every layer's
        output before it, depth + 1 tensors, the last of them normed: as `hidden_states` of transformers.
        """
        rows, width = ids.shape
        positions = cache.lengths[:, None] + torch.arange(width)  # (B, T)
        cache.lengths = cache.lengths + width
        columns = _up(int(cache.lengths.max()), COLUMNS)
        cache.reserve(columns)
        at = torch.arange(rows)[:, None], slice(None), positions
        rope = positions.clamp(max=self.window - 1)
        cos, sin = (
            self.cos[rope][:, :, None, None],
            self.sin[rope][:, :, None, None],
        )  # (B, T, 1, 1, size)
        later = torch.arange(columns) > positions[:, :, None]
        bias = torch.where(later, _NEVER, 0.0)[:, None]  # (B, 1, T, columns)
        x = self.embedding[ids]
        states = [x]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            qkv = linear(self._normed(x, layer.before), layer.qkv).view(
                rows, width, 3, self.heads, self.size
            )
            q, k = self._rotated(qkv[:, :, :2], cos, sin).unbind(2)  # each (B, T, heads, size)
            keys[at], values[at] = k, qkv[:, :, 2]
            scores = q.transpose(1, 2) @ keys[:, :, :columns].transpose(2, 3) + bias
            mixed = torch.softmax(scores, -1) @ values[:, :, :columns]
            x = x + linear(mixed.transpose(1, 2).reshape(rows, width, -1), layer.out)
            gate, up = linear(self._normed(x, layer.between), layer.gate_up).chunk(2, -1)
            x = x + linear(silu(gate) * up, layer.down)
            if layers:
                states.append(x)
        last = self._normed(x, self.norm)
        return [*states[:-1], last] if layers else [last]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, (B, V), from normed hidden states (B, d)."""
        return linear(hidden, self.head)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * weight

    def _rotated(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return x * cos + x.roll(self.size // 2, -1) * sin


def _up(n: int, step: int) -> int:
    """n, rounded up to a multiple of `step`."""
    return -(-n // step) * step
