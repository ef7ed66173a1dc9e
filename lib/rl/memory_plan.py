"""What memory a training will take, computed from a model's config before its weights are read.

Weights are counted on the meta device, and activations measured on tensors without content (PyTorch's fake tensors):
the trunk's forward pass runs once with the largest batch, and what autograd would keep for the backward pass is added
up. Left out: what CUDA and the interpreter take for themselves (half a gigabyte or so), and fragmentation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from lib.config import LearnSettings
from lib.rl.policy_model import (
    PolicyModelSettings,
    add_lora,
    keep_adapter_inputs,
    uses_bfloat16,
)

GIB = 2**30
_FLOAT32 = 4  # bytes
_BFLOAT16 = 2
_PART_WORDS = {
    "weights": "weights",
    "reference": "reference",
    "critic": "critic",
    "optimiser": "optimiser (AdamW's two moments)",
    "gradients": "gradients",
    "activations": "activations of a microbatch",
    "logits": "logits and their gradients",
    "recomputed_layer": "a layer that is computed again",
    "step_workspace": "work space of an optimiser step",
    "kv_cache": "KV cache and logits while sampling",
    "gathered_weights": "weights gathered while sampling",
}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes in each process, by what they hold.

    Attributes:
        weights: Weights of the policy, adapters included.
        reference: Of the frozen copy; 0 under LoRA and without a KL penalty.
        critic: Its trunk or adapter.
        optimiser: AdamW's two moments of everything that is trained.
        gradients: Gradients of everything that is trained.
        activations: Kept from the forward to the backward pass of one microbatch.
        logits: Logits of one chunk of tokens, with their gradients.
        recomputed_layer: Of one layer that checkpointing computes again, with its gradients; 0 without checkpointing.
        step_workspace: Workspace of an optimiser step.
        kv_cache: While a batch of turns is sampled, with its logits.
        gathered_weights: The policy's whole weights while it samples; 0 where they are not divided among processes.
        accumulates_gradients: Whether gradients of one microbatch lie beside activations of the next.
        machine_bytes: Memory that is free on the device now.
        title: What is planned, in words.
    """

    weights: int
    reference: int
    critic: int
    optimiser: int
    gradients: int
    activations: int
    logits: int
    recomputed_layer: int
    step_workspace: int
    kv_cache: int
    gathered_weights: int
    accumulates_gradients: bool
    machine_bytes: int
    title: str

    @property
    def persistent(self) -> int:
        """Bytes that are there from the first update to the last."""
        return self.weights + self.reference + self.critic + self.optimiser

    @property
    def learning(self) -> int:
        """Estimates the bytes at the peak of a training step.

        Returns:
            Weights and optimizer, plus activations and logits; gradients add to these where they accumulate over
            microbatches, else they take the place of activations that are freed.
        """
        # Gradients of the logits are freed before the backward pass reaches a layer.
        passes = self.activations + max(self.logits, self.recomputed_layer)
        if self.accumulates_gradients:
            return self.persistent + self.gradients + passes
        # Activations are freed while the gradients come.
        return self.persistent + max(passes, self.gradients)

    @property
    def stepping(self) -> int:
        """Bytes while the optimiser changes the weights."""
        return self.persistent + self.gradients + self.step_workspace

    @property
    def sampling(self) -> int:
        """Bytes while turns are written."""
        return self.persistent + self.kv_cache + self.gathered_weights

    @property
    def total(self) -> int:
        """Bytes at the peak: passes, steps and sampling take turns."""
        return max(self.learning, self.stepping, self.sampling)

    @property
    def fits(self) -> bool:
        """Whether the device has as much free."""
        return self.total <= self.machine_bytes

    def describe(self) -> str:
        """Formats the plan as a table for the terminal, with the free memory of this machine."""
        lines = [self.title]
        for name, words in _PART_WORDS.items():
            lines.append(f"  {words:<36}{getattr(self, name) / GIB:9.2f} GiB")
        lines.append(f"  {'at the peak (not all at once)':<36}{self.total / GIB:9.2f} GiB")
        lines.append(f"  {'free on this machine':<36}{self.machine_bytes / GIB:9.2f} GiB")
        if not self.fits:
            lines.append(
                "  It does not fit: use LoRA, bfloat16, gradient checkpointing, a smaller microbatch "
                "or shorter episodes."
            )
        return "\n".join(lines)


def plan_memory(
    config: PreTrainedConfig | str | Path,
    model_settings: PolicyModelSettings,
    learn: LearnSettings,
    episode_tokens: int,
    policy_tokens: int | None = None,
    sampled_at_once: int = 0,
    device: torch.device | str = "cpu",
    num_processes: int = 1,
) -> MemoryPlan:
    """Compute what a training will take in each process.

    Args:
        config: Configuration of the model, or its folder.
        model_settings: How the policy is held.
        learn: The trainer's settings.
        episode_tokens: Tokens of an episode at most.
        policy_tokens: How many of them are learned from; all by default.
        sampled_at_once: Turns that are written side by side.
        device: Where it will run; nothing is put there now.
        num_processes: Among which weights are divided where the settings say so.

    Raises:
        ValueError: The folder holds no config of a causal language model.
    """
    if not isinstance(config, PreTrainedConfig):
        config = _read_config(config)
    device = torch.device(device)
    in_bfloat16 = uses_bfloat16(model_settings, device)
    with torch.device("meta"):
        network = _make_network(config, model_settings, in_bfloat16)
    rows = min(learn.microbatch, learn.minibatch)
    with FakeTensorMode():
        _replace_by_fake_tensors(network)
        activation_sizes = _measure_activations(network, rows, episode_tokens, in_bfloat16)

    # Weights, and what there is once for every number that is trained.
    weights = _count_bytes(network)
    trained = sum(weight.numel() for weight in network.parameters() if weight.requires_grad)
    trunk_bytes = _count_bytes(network.base_model)
    has_own_trunk = learn.advantages == "gae" and learn.value == "apart"
    critic = 0
    if has_own_trunk:
        adapter_numbers = trained
        trunk_numbers = trunk_bytes // _FLOAT32
        own_numbers = adapter_numbers if model_settings.lora_rank else trunk_numbers
        critic = own_numbers * _FLOAT32
        trained += own_numbers
    needs_reference = learn.kl > 0 and model_settings.lora_rank == 0
    reference = _count_reference_bytes(network, in_bfloat16) if needs_reference else 0

    # One microbatch; a critic with its own trunk keeps as much as the policy.
    num_trunks = 2 if has_own_trunk else 1
    with_checkpointing = model_settings.gradient_checkpointing
    activations = num_trunks * activation_sizes.sum_stored(with_checkpointing)
    recomputed_layer = activation_sizes.measure_recomputed() if with_checkpointing else 0
    num_targets = rows * (policy_tokens or episode_tokens)
    logits = _count_logits_bytes(network, model_settings, num_targets, in_bfloat16, device)

    # A step on a GPU takes all weights at once, on a CPU one after another.
    largest = max(
        (weight.numel() for weight in network.parameters() if weight.requires_grad), default=0
    )
    step_numbers = trained if device.type == "cuda" else 2 * largest

    # Shares of all that is divided; a layer and the embeddings are gathered while they are used.
    shares = num_processes if model_settings.sharded else 1
    gathered_for_passes = 0
    gathered_for_sampling = 0
    if model_settings.sharded:
        gathered_for_passes = _count_gathered_bytes(network)
        gathered_for_sampling = weights
    item_bytes = _BFLOAT16 if in_bfloat16 else _FLOAT32
    return MemoryPlan(
        weights=weights // shares + gathered_for_passes,
        reference=reference // shares,
        critic=critic // shares,
        optimiser=2 * trained * _FLOAT32 // shares,
        gradients=trained * _FLOAT32 // shares,
        activations=activations,
        logits=logits,
        recomputed_layer=recomputed_layer,
        step_workspace=step_numbers * _FLOAT32 // shares,
        kv_cache=_count_cache_bytes(config, sampled_at_once, episode_tokens, item_bytes),
        gathered_weights=gathered_for_sampling,
        accumulates_gradients=learn.microbatch < learn.minibatch,
        machine_bytes=measure_free_memory(device),
        title=_describe_plan(network, model_settings, in_bfloat16, rows, episode_tokens),
    )


def measure_free_memory(device: torch.device) -> int:
    """Bytes that are free on a device now."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def _read_config(folder: str | Path) -> PreTrainedConfig:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} holds no config of a model ({str(error).splitlines()[0]}); "
            "give a folder with config.json"
        ) from error


def _make_network(
    config: PreTrainedConfig, settings: PolicyModelSettings, in_bfloat16: bool
) -> nn.Module:
    """Builds the network of a `PolicyModel` with weights that have shapes and dtypes but no values.

    Args:
        config: Configuration of the model.
        settings: How the policy is held.
        in_bfloat16: Whether passes are computed in bfloat16.

    Returns:
        The network, on the default device: on "meta", no memory is taken.
    """
    uses_lora = settings.lora_rank > 0
    # Weights that are trained stay in float32, or small steps would be rounded away; frozen ones need not.
    dtype = torch.bfloat16 if in_bfloat16 and uses_lora else torch.float32
    network = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    if uses_lora:
        add_lora(network, settings)
    if uses_lora and in_bfloat16:
        keep_adapter_inputs(network)
    return network.eval()


def _replace_by_fake_tensors(network: nn.Module) -> None:
    """Replaces all weights and buffers of a network by fake tensors, which have a shape and no data.

    Unlike meta tensors, they have a device, by which autocast and attention choose what they do.

    Args:
        network: The network, which is changed; shared weights stay shared.
    """
    replacements: dict[int, nn.Parameter] = {}  # by the id of what is replaced: some are shared
    for module in network.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if id(weight) not in replacements:
                empty = torch.empty(weight.shape, dtype=weight.dtype, device="cpu")
                replacements[id(weight)] = nn.Parameter(empty, weight.requires_grad)
            setattr(module, name, replacements[id(weight)])
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu"))


def _count_bytes(network: nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in network.parameters())


def _count_reference_bytes(network: nn.Module, in_bfloat16: bool) -> int:
    """Counts the bytes of the frozen reference model: linear layers in bfloat16 or float32, all else in float32.

    Args:
        network: The trained network, of the same size.
        in_bfloat16: Whether linear layers are computed in bfloat16.
    """
    whole = _count_bytes(network)
    if not in_bfloat16:
        return whole
    shared = {id(weight) for weight in network.get_input_embeddings().parameters()}
    linear = sum(
        module.weight.numel()
        for module in network.modules()
        if isinstance(module, nn.Linear) and id(module.weight) not in shared
    )
    return whole - linear * (_FLOAT32 - _BFLOAT16)


def _count_gathered_bytes(network: nn.Module) -> int:
    """The largest layer, and all that lies outside layers."""
    layer_sizes = [_count_bytes(layer) for layer in _list_layers(network)]
    return max(layer_sizes) + _count_bytes(network) - sum(layer_sizes)


def _list_layers(network: nn.Module) -> list[nn.Module]:
    return [
        module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)
    ]


def _count_logits_bytes(
    network: nn.Module,
    settings: PolicyModelSettings,
    num_targets: int,
    in_bfloat16: bool,
    device: torch.device,
) -> int:
    """Estimates the bytes of logits at the peak of the backward pass: log-probabilities and all gradients.

    Args:
        network: The trained network.
        settings: Its `logits_bytes` limits the logits that exist at a time.
        num_targets: Tokens whose log-probabilities are computed.
        in_bfloat16: Whether the pass is computed in bfloat16.
        device: Where it is computed.
    """
    vocab_size = network.config.get_text_config().vocab_size
    chunk_size = max(1, settings.logits_bytes // (_FLOAT32 * vocab_size))
    chunk_bytes = min(num_targets, chunk_size) * vocab_size * _FLOAT32
    # On a CPU there is a copy in 16 bits besides; on an H100 none was seen at the peak.
    copies = 3.5 if in_bfloat16 and device.type == "cpu" else 3.0
    total = int(copies * chunk_bytes)
    head = network.get_output_embeddings().weight
    if head.requires_grad:
        # The first gradient of the output layer comes here, and those of further chunks are added to it.
        num_gradients = 2 if num_targets > chunk_size else 1
        total += num_gradients * head.numel() * _FLOAT32
    return total


def _count_cache_bytes(
    config: PreTrainedConfig, num_rows: int, num_tokens: int, item_bytes: int
) -> int:
    """Counts the bytes that sampling needs besides the weights: keys and values of every layer, and the logits.

    Args:
        config: Configuration of the model.
        num_rows: Sequences that are sampled side by side.
        num_tokens: Tokens of a sequence, prompt included.
        item_bytes: Bytes of a number in the cache.
    """
    text = config.get_text_config()
    num_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    per_token = 2 * text.num_hidden_layers * num_heads * head_size * item_bytes
    return num_rows * (num_tokens * per_token + 2 * text.vocab_size * _FLOAT32)


def _describe_plan(
    network: nn.Module,
    settings: PolicyModelSettings,
    in_bfloat16: bool,
    rows: int,
    episode_tokens: int,
) -> str:
    """Describes in a line what the memory plan is for: size, number format and batch.

    Args:
        network: The network.
        settings: LoRA rank and gradient checkpointing.
        in_bfloat16: Whether it is computed in bfloat16.
        rows: Episodes in a pass.
        episode_tokens: Tokens of an episode.
    """
    size = sum(weight.numel() for weight in network.parameters()) / 1e6
    words = [f"Memory for {size:,.0f} million weights"]
    words.append("bfloat16" if in_bfloat16 else "float32")
    words.append(f"LoRA of rank {settings.lora_rank}" if settings.lora_rank else "all trained")
    if settings.gradient_checkpointing:
        words.append("gradient checkpointing")
    words.append(f"{rows} episodes of {episode_tokens} tokens at a time")
    return ", ".join(words)


# Activations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActivationSizes:
    """Bytes that autograd keeps of one forward pass of a trunk.

    Attributes:
        outside: Of embeddings, masks and the last norm.
        layers: Of each layer.
        layer_inputs: Of what each layer is computed from, which checkpointing keeps instead.
    """

    outside: int
    layers: list[int]
    layer_inputs: list[int]

    def sum_stored(self, with_checkpointing: bool) -> int:
        """Bytes that one trunk keeps from its forward to its backward pass."""
        kept_of_layers = self.layer_inputs if with_checkpointing else self.layers
        return self.outside + sum(kept_of_layers)

    def measure_recomputed(self) -> int:
        """Bytes of the largest layer while it is computed again, with the gradients that flow through it."""
        largest = max(self.layers, default=0)
        return largest + largest // 2


def _measure_activations(
    network: nn.Module, rows: int, num_tokens: int, in_bfloat16: bool
) -> ActivationSizes:
    """Measures the bytes of activations that autograd keeps for the backward pass, by a pass on fake tensors.

    Args:
        network: With fake tensors as weights.
        rows: Episodes in the pass.
        num_tokens: Tokens of an episode.
        in_bfloat16: Whether it is computed in bfloat16.

    Returns:
        Bytes within each layer, bytes outside of layers, and bytes of the layers' inputs; parameters are left out.
    """
    parameters = {_get_storage_id(weight) for weight in network.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}  # held, so that no id comes twice

    def record_tensor(tensor: torch.Tensor) -> torch.Tensor:
        if _get_storage_id(tensor) not in parameters:
            storages[_get_storage_id(tensor)] = tensor.untyped_storage()
        return tensor

    def count_kept_bytes() -> int:
        return sum(storage.nbytes() for storage in storages.values())

    layer_sizes: list[int] = []
    layer_inputs: list[int] = []
    handles = _follow_layers(network, count_kept_bytes, layer_sizes, layer_inputs)
    ids = torch.zeros(rows, num_tokens, dtype=torch.long)
    # Made whole here: transformers would look at the values of a mask of (rows, tokens).
    mask = torch.ones(rows, 1, num_tokens, num_tokens, dtype=torch.bool)
    try:
        with (
            torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16),
            torch.autograd.graph.saved_tensors_hooks(record_tensor, lambda tensor: tensor),
        ):
            network.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    outside = count_kept_bytes() - sum(layer_sizes)
    return ActivationSizes(outside, layer_sizes, layer_inputs)


def _follow_layers(
    network: nn.Module,
    count_kept_bytes: Callable[[], int],
    layer_sizes: list[int],
    layer_inputs: list[int],
) -> list[torch.utils.hooks.RemovableHandle]:
    """Registers hooks that record by how many bytes each layer increases the activations that are kept.

    Args:
        network: The network.
        count_kept_bytes: Bytes that are kept so far.
        layer_sizes: Gets the bytes of each layer.
        layer_inputs: Gets the bytes of each layer's input.

    Returns:
        The handles by which the hooks are removed.
    """

    def begin_layer(layer: nn.Module, arguments: tuple, keywords: dict) -> None:
        states = arguments[0] if arguments else keywords["hidden_states"]
        layer_inputs.append(states.numel() * states.element_size())
        layer_sizes.append(-count_kept_bytes())

    def end_layer(*_) -> None:
        layer_sizes[-1] += count_kept_bytes()

    handles = []
    for layer in _list_layers(network):
        handles.append(layer.register_forward_pre_hook(begin_layer, with_kwargs=True))
        handles.append(layer.register_forward_hook(end_layer))
    return handles


def _get_storage_id(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
