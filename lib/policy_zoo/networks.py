"""Actor-critic networks of K policies of one shape, batched along a leading axis.

The architectures are those of stable-baselines3: `MlpPolicy` (separate 64-64 tanh nets for actor and critic), and
`CnnPolicy` with the small MiniGrid extractor (three 2x2 convolutions of 16, 32 and 64 channels, 128 features), on
which stable-baselines3 puts the same 64-64 nets by default. What differs is the axis K in front of every parameter: K
policies are one batched matrix product, so that small networks do not wait for the overhead of a call. Parameters
have stable-baselines3's names and, without the axis K, its layout: a saved policy loads into its `PPO` as it is.

The layers are written out by hand. `lib.rl.seed_batched.SeedBatched`, which batches torch modules, takes 1.3 to 1.7
times as long for a training step of `Mlp`s and 1.0 to 1.5 times for `Cnn`s, and torch's convolutions round otherwise
(tests/benchmarks/test_seed_batched_speed.py).

Letters of shapes: K policies, N inputs, A actions, V critic heads.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from lib.experiment import seeds

VERSION = 1  # of first weights, outputs and sampled actions of networks
Params = Mapping[str, Tensor]  # by stable-baselines3's names, with the axis K in front

# Gains of the orthogonal first weights, by the first word of a layer's name, as stable-baselines3 has them.
HEAD_GAINS = {"action_net": 0.01, "value_net": 1.0}
HIDDEN_GAIN = np.sqrt(2)


class Network(Protocol):
    """A family of batched networks.

    Attributes:
        actions: Number of actions, A.
        values: Number of critic heads, V.
        has_expensive_forward: Whether looking for equal inputs costs less than computing them twice.
        parameter_shapes: Shapes of the parameters of one policy, without the axis K.
    """

    actions: int
    values: int
    has_expensive_forward: bool

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]: ...

    def prepare_inputs(self, observation: np.ndarray) -> Tensor:
        """Observations (K, N, ...) as the tensor that the network reads; done once for a rollout."""
        ...

    def forward(self, params: Params, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (K, N, A) and values (K, N, V) of inputs (K, N, ...)."""
        ...

    def compute_logits(self, params: Params, inputs: Tensor) -> Tensor:
        """Logits (K, N, A) alone, for policies that act and do not learn: the critic is not computed."""
        ...


# First weights and actions ------------------------------------------------------------------------


def draw_initial_parameters(network: Network, *name: str | int, seed: int) -> dict[str, np.ndarray]:
    """Random first parameters of one policy: orthogonal weights with stable-baselines3's gains, biases 0.

    Args:
        network: Gives names and shapes of the parameters.
        name: Name of the random stream.
        seed: Number of the repetition.

    Returns:
        float32 arrays by parameter, without the axis K (policies).
    """
    rng = seeds.rng(*name, "initial", seed=seed)
    parameters = {}
    for parameter_name, shape in network.parameter_shapes.items():
        if parameter_name.endswith("bias"):
            parameters[parameter_name] = np.zeros(shape, np.float32)
            continue
        layer_name = parameter_name.split(".")[0]
        gain = HEAD_GAINS.get(layer_name, HIDDEN_GAIN)
        parameters[parameter_name] = _draw_orthogonal(shape, gain, rng)
    return parameters


def _draw_orthogonal(shape: tuple[int, ...], gain: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a random orthogonal matrix times `gain`, by the algorithm of torch.nn.init.orthogonal_.

    Args:
        shape: Shape of the weights; all axes but the first are columns.
        gain: Scale of the matrix.
        rng: Source of the random numbers.

    Returns:
        float32 weights of that shape.
    """
    num_rows = shape[0]
    num_columns = int(np.prod(shape[1:]))
    larger = max(num_rows, num_columns)
    smaller = min(num_rows, num_columns)

    normal = rng.standard_normal((larger, smaller))
    q, r = np.linalg.qr(normal)
    q = q * np.sign(np.diag(r))  # makes q uniformly distributed
    matrix = q if num_rows >= num_columns else q.T
    return (gain * matrix).reshape(shape).astype(np.float32)


def sample_actions(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Sample actions by inverse transform: the first whose cumulative probability exceeds a uniform number.

    Args:
        logprobs: (..., A) log-probabilities of the actions.
        uniforms: (...) numbers in [0, 1).

    Returns:
        (...) int64 actions.
    """
    cumulative = logprobs.double().exp().cumsum(-1)  # (..., A)
    actions = (uniforms.unsqueeze(-1) >= cumulative).sum(-1)
    # Rounding may leave the whole sum just below 1, and the number above it.
    return actions.clamp(max=logprobs.shape[-1] - 1)


# Layers -------------------------------------------------------------------------------------------


def _apply_linear(x: Tensor, params: Params, layer_name: str) -> Tensor:
    """Outputs (K, N, out) of a linear layer of every policy on x (K, N, in)."""
    return _multiply_batched(x, params[f"{layer_name}.weight"], params[f"{layer_name}.bias"])


def _multiply_batched(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x_k W_k^T + b_k for every policy k; x (K, N, in), weight (K, out, in) as in torch, bias (K, out)."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _apply_actor(features: Tensor, params: Params, depth: int) -> Tensor:
    """Logits (K, N, A) of features (K, N, in), by a tanh net of `depth` hidden layers."""
    return _apply_head(features, params, depth, "policy_net", "action_net")


def _apply_critic(features: Tensor, params: Params, depth: int) -> Tensor:
    """Values (K, N, V) of features (K, N, in), by a tanh net of `depth` hidden layers."""
    return _apply_head(features, params, depth, "value_net", "value_net")


def _apply_head(features: Tensor, params: Params, depth: int, net: str, last_layer: str) -> Tensor:
    """Compute the outputs of the actor's or the critic's net.

    Args:
        features: (K, N, in).
        params: Weights and biases by name, with the axis K of policies in front.
        depth: Hidden layers of the net.
        net: policy_net or value_net, as the hidden layers are named.
        last_layer: Name of the layer after them.

    Returns:
        (K, N, out).
    """
    x = features
    for i in range(depth):
        # Even numbers, because stable-baselines3 counts the tanh layers between them.
        x = torch.tanh(_apply_linear(x, params, f"mlp_extractor.{net}.{2 * i}"))
    return _apply_linear(x, params, last_layer)


def _list_head_shapes(
    num_features: int, hidden: tuple[int, ...], num_actions: int, num_values: int
) -> dict[str, tuple[int, ...]]:
    """List the parameters of two tanh nets, one for the actor and one for the critic.

    Args:
        num_features: Inputs of both nets.
        hidden: Units of the hidden layers.
        num_actions: Outputs of the actor, A.
        num_values: Outputs of the critic, V.

    Returns:
        Shapes by name of the parameter.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for net in ("policy_net", "value_net"):
        width = num_features
        for i, next_width in enumerate(hidden):
            layer_name = f"mlp_extractor.{net}.{2 * i}"
            shapes[f"{layer_name}.weight"] = (next_width, width)
            shapes[f"{layer_name}.bias"] = (next_width,)
            width = next_width

    for layer_name, num_outputs in (("action_net", num_actions), ("value_net", num_values)):
        shapes[f"{layer_name}.weight"] = (num_outputs, width)
        shapes[f"{layer_name}.bias"] = (num_outputs,)
    return shapes


class _CutPatches(torch.autograd.Function):
    """All 2x2 patches of feature maps, so that a convolution becomes a matrix product.

    (K, N, s, s, c) becomes (K, N, (s-1)^2, 4c): the four corners of a patch side by side, in the order of
    `_flatten_kernel`. Autograd would undo every slice with a tensor of zeros; here one buffer collects all four.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        """Cut feature maps into patches of 2 x 2 pixels.

        Args:
            x: (K, N, s, s, c) feature maps.

        Returns:
            (K, N, (s-1)^2, 4c) patches, with the four corners of a patch side by side.
        """
        ctx.shape = x.shape
        top_left_corner = x[:, :, :-1, :-1]
        top_right_corner = x[:, :, :-1, 1:]
        bottom_left_corner = x[:, :, 1:, :-1]
        bottom_right_corner = x[:, :, 1:, 1:]
        corners = [top_left_corner, top_right_corner, bottom_left_corner, bottom_right_corner]
        return torch.cat(corners, dim=-1).flatten(2, 3)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        """Compute the gradient of the feature maps from that of their patches.

        Args:
            gradient: (K, N, (s-1)^2, 4c).

        Returns:
            (K, N, s, s, c).
        """
        num_policies, num_inputs, width, _, channels = ctx.shape
        shape = (num_policies, num_inputs, width - 1, width - 1, 4, channels)
        corners = gradient.view(shape).unbind(4)
        top_left_corner, top_right_corner, bottom_left_corner, bottom_right_corner = corners

        # Every pixel gets the gradients of the up to four patches that it is in.
        pixel_gradient = gradient.new_zeros(ctx.shape)
        pixel_gradient[:, :, :-1, :-1] = top_left_corner
        pixel_gradient[:, :, :-1, 1:] += top_right_corner
        pixel_gradient[:, :, 1:, :-1] += bottom_left_corner
        pixel_gradient[:, :, 1:, 1:] += bottom_right_corner
        return pixel_gradient


def _flatten_kernel(kernel: Tensor) -> Tensor:
    """Weights of 2x2 convolutions as matrices: (K, out, in, 2, 2) to (K, out, 2 * 2 * in)."""
    return kernel.permute(0, 1, 3, 4, 2).flatten(2)


# Networks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mlp:
    """`MlpPolicy` of stable-baselines3: separate tanh nets for actor and critic.

    Files of policies and keys of jobs hold the fields under these names.

    Attributes:
        inputs: Numbers of an observation.
        actions: Number of actions, A.
        values: Critic heads, V; one per objective for MGDA.
        hidden: Units of the hidden layers.
    """

    inputs: int
    actions: int
    values: int = 1
    hidden: tuple[int, ...] = (64, 64)
    has_expensive_forward: ClassVar[bool] = False

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one policy: actor and critic."""
        return _list_head_shapes(self.inputs, self.hidden, self.actions, self.values)

    def prepare_inputs(self, observation: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(observation, dtype=np.float32))

    def forward(self, params: Params, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (K, N, A) and values (K, N, V) of observations (K, N, inputs)."""
        depth = len(self.hidden)
        return _apply_actor(inputs, params, depth), _apply_critic(inputs, params, depth)

    def compute_logits(self, params: Params, inputs: Tensor) -> Tensor:
        """Logits (K, N, A) of observations (K, N, inputs)."""
        return _apply_actor(inputs, params, len(self.hidden))


@dataclass(frozen=True)
class Cnn:
    """`CnnPolicy` of stable-baselines3 on a 7x7x3 MiniGrid view; actor and critic share the features.

    A 2x2 convolution is a matrix product over patches. The first patches are cut once for a rollout, by
    `prepare_inputs`. Files of policies and keys of jobs hold the fields under these names.

    Attributes:
        actions: Number of actions, A.
        values: Critic heads, V.
        channels: Channels of the view and after each convolution.
        side: Width and height of the view.
        features: Outputs of the extractor.
        hidden: Units of the hidden layers of actor and critic.
    """

    actions: int
    values: int = 1
    channels: tuple[int, ...] = (3, 16, 32, 64)
    side: int = 7
    features: int = 128
    hidden: tuple[int, ...] = (64, 64)
    has_expensive_forward: ClassVar[bool] = True

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """List the parameters of one policy: convolutions, a linear layer, actor and critic.

        Returns:
            Shapes by name of the parameter.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        for i, out_channels in enumerate(self.channels[1:]):
            in_channels = self.channels[i]
            layer_name = f"features_extractor.cnn.{2 * i}"
            shapes[f"{layer_name}.weight"] = (out_channels, in_channels, 2, 2)
            shapes[f"{layer_name}.bias"] = (out_channels,)

        final_width = self.side - 3  # each convolution takes one off
        num_flat = self.channels[-1] * final_width**2
        shapes["features_extractor.linear.0.weight"] = (self.features, num_flat)
        shapes["features_extractor.linear.0.bias"] = (self.features,)
        return shapes | _list_head_shapes(self.features, self.hidden, self.actions, self.values)

    def prepare_inputs(self, observation: np.ndarray) -> Tensor:
        """Views (K, N, 7, 7, 3) of uint8 as patches (K, N, 36, 12) of float32; pixels are not rescaled."""
        views = torch.from_numpy(np.ascontiguousarray(observation)).float()
        return _CutPatches.apply(views)

    def forward(self, params: Params, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits and values of views that are cut into patches.

        Args:
            params: Params by name, with the axis K in front.
            inputs: (K, N, 36, 12) patches of the views, as `prepare_inputs` returns them.

        Returns:
            (K, N, A) logits and (K, N, V) values.
        """
        features = self._extract_features(params, inputs)
        depth = len(self.hidden)
        return _apply_actor(features, params, depth), _apply_critic(features, params, depth)

    def compute_logits(self, params: Params, inputs: Tensor) -> Tensor:
        """Logits (K, N, A) of views that are cut into patches (K, N, 36, 12)."""
        return _apply_actor(self._extract_features(params, inputs), params, len(self.hidden))

    def _extract_features(self, params: Params, inputs: Tensor) -> Tensor:
        """Features (K, N, features) of patches (K, N, 36, 12): three convolutions and a linear layer."""
        num_policies, num_inputs = inputs.shape[:2]
        width = self.side - 1  # of the feature map after the first convolution
        x = inputs  # patches of the view, (K, N, width^2, 4 * channels)
        for i, out_channels in enumerate(self.channels[1:]):
            if i > 0:
                feature_map = x.view(num_policies, num_inputs, width, width, -1)
                x = _CutPatches.apply(feature_map)
                width -= 1
            layer_name = f"features_extractor.cnn.{2 * i}"
            weight = _flatten_kernel(params[f"{layer_name}.weight"])
            bias = params[f"{layer_name}.bias"]
            x = _multiply_batched(x.flatten(1, 2), weight, bias).relu()
            x = x.view(num_policies, num_inputs, width * width, out_channels)

        x = x.transpose(2, 3).flatten(2)  # torch flattens channels first
        return _apply_linear(x, params, "features_extractor.linear.0").relu()


# Networks and objectives as JSON ------------------------------------------------------------------

# Classes by the names that files and jobs know them by, so that a class may be renamed.
NETWORK_TYPES = {"Mlp": Mlp, "Cnn": Cnn}


def describe_component(component: Any, types: Mapping[str, type]) -> dict[str, Any]:
    """Convert a network or a training objective to JSON: the name of its type, beside its fields.

    Args:
        component: The network or objective, a frozen dataclass of plain values.
        types: Classes by the names under which files and jobs know them.

    Returns:
        The JSON, from which `restore_component` makes an equal object.

    Raises:
        ValueError: Its class is not in `types`.

    Example:
        >>> describe_component(Mlp(inputs=13, actions=3), NETWORK_TYPES)
        {'type': 'Mlp', 'inputs': 13, 'actions': 3, 'values': 1, 'hidden': (64, 64)}
    """
    for type_name, component_class in types.items():
        if type(component) is component_class:
            return {"type": type_name, **asdict(component)}
    raise ValueError(
        f"{type(component).__name__} is none of the known types {sorted(types)}; add it to "
        "NETWORK_TYPES or OBJECTIVE_TYPES"
    )


def restore_component(description: Mapping[str, Any], types: Mapping[str, type]) -> Any:
    """Restore a network or a training objective from its JSON.

    Args:
        description: The name of the type, beside the fields; tuples may have become lists.
        types: Classes by the names under which files and jobs know them.

    Returns:
        The network or objective.

    Raises:
        ValueError: The type is not in `types`, or the fields are not those of its class.
    """
    fields = {}
    for name, value in description.items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    type_name = fields.pop("type", None)
    try:
        return types[type_name](**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type_name!r}, and must be one of {sorted(types)} ({error})") from error
