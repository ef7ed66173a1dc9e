"""Actor-critic networks, several of one shape stacked along a leading axis.

The architectures are stable-baselines3's `MlpPolicy` (separate 64-64 tanh nets) and its `CnnPolicy`
with the small MiniGrid extractor (three 2x2 convolutions, 16/32/64 channels, 128 features), on which
stable-baselines3 puts the same 64-64 nets unless told otherwise. What is
different is the axis K in front of every parameter: K policies are one batched matrix product, so
that small networks do not drown in the overhead of calling the library. They are written out by hand:
`lib.rl.seed_batched.SeedBatched` takes 1.3 to 1.7 times as long for a training step of `Mlp`s and 1.0 to
1.5 times for `Cnn`s, whose numbers torch's convolutions round otherwise
(tests/benchmarks/test_seed_batched_speed.py). Parameters carry
stable-baselines3's names and, outside, its layout: a saved policy loads into its `PPO` as it is.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from lib.experiment import seeds

VERSION = 1  # of first weights, outputs and sampled actions of networks
Params = Mapping[str, Tensor]


class Network(Protocol):
    """A family of stacked networks; `shapes` gives one policy's parameters, without the axis K."""

    actions: int
    values: int
    costly: bool  # whether it pays to look for equal inputs before computing

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    def prepare(self, observation: np.ndarray) -> Tensor:
        """Observations (K, N, ...) as the input of `forward`; done once per rollout."""
        ...

    def forward(self, params: Params, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (K, N, A) and values (K, N, V) of inputs (K, N, ...)."""
        ...


def describe(part: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A network (or another frozen dataclass of plain values) as JSON.

    Args:
        part: The object.
        kinds: Classes by the names under which files and jobs know them, so that a class may be renamed.

    Returns:
        Its type, a name of `kinds`, beside its fields.

    Raises:
        ValueError: It is none of `kinds`.
    """
    for name, kind in kinds.items():
        if type(part) is kind:
            return {"type": name, **asdict(part)}
    raise ValueError(
        f"{type(part).__name__} is none of the known kinds {sorted(kinds)}; add it to KINDS"
    )


def restore(description: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    """The inverse of `describe`. Raises ValueError for what is none of `kinds`, or has other fields."""
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in description.items()
    }
    kind = fields.pop("type", None)
    try:
        return kinds[kind](**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{kind!r}, and must be one of {sorted(kinds)} ({error})") from error


def _linear(x: Tensor, params: Params, name: str) -> Tensor:
    """Outputs (K, N, out) of K linear layers on x (K, N, in); weights are (K, out, in) as in torch."""
    # x_k W_k^T + b_k for every policy k
    return torch.baddbmm(
        params[f"{name}.bias"].unsqueeze(1), x, params[f"{name}.weight"].transpose(1, 2)
    )


def _orthogonal(shape: tuple[int, ...], gain: float, rng: np.random.Generator) -> np.ndarray:
    """An orthogonal matrix by QR, as torch.nn.init.orthogonal_ makes it, from our generator."""
    rows, columns = shape[0], int(np.prod(shape[1:]))
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return (gain * (q if rows >= columns else q.T)).reshape(shape).astype(np.float32)


def initial(network: Network, *name: str | int, seed: int) -> dict[str, np.ndarray]:
    """Initial parameters of one policy: stable-baselines3's orthogonal gains, biases 0."""
    rng = seeds.rng(*name, "initial", seed=seed)
    gains = {"action_net": 0.01, "value_net": 1.0}
    out = {}
    for parameter, shape in network.shapes.items():
        gain = gains.get(parameter.split(".")[0], np.sqrt(2))
        bias = parameter.endswith("bias")
        out[parameter] = np.zeros(shape, np.float32) if bias else _orthogonal(shape, gain, rng)
    return out


def _head_shapes(
    inputs: int, hidden: tuple[int, ...], actions: int, values: int
) -> dict[str, tuple[int, ...]]:
    out: dict[str, tuple[int, ...]] = {}
    for part in ("policy_net", "value_net"):
        width = inputs
        for i, size in enumerate(hidden):
            name = f"mlp_extractor.{part}.{2 * i}"
            out |= {f"{name}.weight": (size, width), f"{name}.bias": (size,)}
            width = size
    for name, size in (("action_net", actions), ("value_net", values)):
        out |= {f"{name}.weight": (size, width), f"{name}.bias": (size,)}
    return out


def _heads(x: Tensor, params: Params, depth: int) -> tuple[Tensor, Tensor]:
    """Separate tanh nets for actor and critic over x (K, N, in): logits and values."""
    pi = vf = x
    for i in range(depth):
        pi = torch.tanh(_linear(pi, params, f"mlp_extractor.policy_net.{2 * i}"))
        vf = torch.tanh(_linear(vf, params, f"mlp_extractor.value_net.{2 * i}"))
    return _linear(pi, params, "action_net"), _linear(vf, params, "value_net")


@dataclass(frozen=True)
class Mlp:
    """`MlpPolicy`: separate tanh nets for actor and critic; `values` critic heads."""

    inputs: int
    actions: int
    values: int = 1
    hidden: tuple[int, ...] = (64, 64)
    costly: ClassVar[bool] = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return _head_shapes(self.inputs, self.hidden, self.actions, self.values)

    def prepare(self, observation: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(observation, dtype=np.float32))

    def forward(self, params: Params, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return _heads(inputs, params, len(self.hidden))


@dataclass(frozen=True)
class Cnn:
    """`CnnPolicy` over a 7x7x3 MiniGrid view, features shared by actor and critic.

    A 2x2 convolution is a matrix product over patches. Inside, weights keep torch's (out, in, 2, 2)
    layout, and the first patches are cut once per rollout by `prepare`.
    """

    actions: int
    values: int = 1
    channels: tuple[int, ...] = (3, 16, 32, 64)
    side: int = 7
    features: int = 128
    hidden: tuple[int, ...] = (64, 64)
    costly: ClassVar[bool] = True

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        out: dict[str, tuple[int, ...]] = {}
        for i, (inner, outer) in enumerate(zip(self.channels, self.channels[1:], strict=False)):
            name = f"features_extractor.cnn.{2 * i}"
            out |= {f"{name}.weight": (outer, inner, 2, 2), f"{name}.bias": (outer,)}
        flat = self.channels[-1] * (self.side - 3) ** 2
        out |= {"features_extractor.linear.0.weight": (self.features, flat)}
        out |= {"features_extractor.linear.0.bias": (self.features,)}
        return out | _head_shapes(self.features, self.hidden, self.actions, self.values)

    def prepare(self, observation: np.ndarray) -> Tensor:
        """(K, N, 7, 7, 3) uint8 to patches (K, N, 36, 12) float32; pixels are not rescaled."""
        x = torch.from_numpy(np.ascontiguousarray(observation)).float()
        return _patches(x)

    def forward(self, params: Params, inputs: Tensor) -> tuple[Tensor, Tensor]:
        count, batch = inputs.shape[:2]
        x, side = inputs, self.side - 1
        for i, outer in enumerate(self.channels[1:]):
            if i:
                x = _patches(x.view(count, batch, side, side, -1))
                side -= 1
            x = _linear(
                x.flatten(1, 2), _as_matrix(params, f"features_extractor.cnn.{2 * i}"), ""
            ).relu()
            x = x.view(count, batch, side * side, outer)
        x = x.transpose(2, 3).flatten(2)  # torch flattens channels first
        return _heads(
            _linear(x, params, "features_extractor.linear.0").relu(), params, len(self.hidden)
        )


class _Patches(torch.autograd.Function):
    """All 2x2 patches of (K, N, s, s, c) as (K, N, (s-1)^2, 4c), in the order of `_as_matrix`.

    Autograd would undo every slice with a tensor of zeros of its own; here one buffer collects all four.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        corners = [x[:, :, :-1, :-1], x[:, :, :-1, 1:], x[:, :, 1:, :-1], x[:, :, 1:, 1:]]
        return torch.cat(corners, dim=-1).flatten(2, 3)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        count, batch, side, _, channels = ctx.shape
        top_left, top_right, low_left, low_right = gradient.view(
            count, batch, side - 1, side - 1, 4, channels
        ).unbind(4)
        out = gradient.new_zeros(ctx.shape)
        out[:, :, :-1, :-1] = top_left
        out[:, :, :-1, 1:] += top_right
        out[:, :, 1:, :-1] += low_left
        out[:, :, 1:, 1:] += low_right
        return out


_patches = _Patches.apply


def _as_matrix(params: Params, name: str) -> dict[str, Tensor]:
    weight = params[f"{name}.weight"]  # (K, out, in, 2, 2) -> (K, out, 2*2*in)
    return {".weight": weight.permute(0, 1, 3, 4, 2).flatten(2), ".bias": params[f"{name}.bias"]}


def sample(log_probs: Tensor, draws: Tensor) -> Tensor:
    """The action whose interval of the cumulative distribution holds the draw.

    log_probs (..., A); draws (...) in [0, 1). Returns (...) int64.
    """
    cumulative = log_probs.double().exp().cumsum(-1)
    return (draws.unsqueeze(-1) >= cumulative).sum(-1).clamp(max=log_probs.shape[-1] - 1)


KINDS = {"Mlp": Mlp, "Cnn": Cnn}  # by the names that files and jobs know them by
