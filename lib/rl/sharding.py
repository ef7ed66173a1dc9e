"""Weights divided among processes: each keeps its share, and gathers a layer only while it is computed.

PyTorch's FSDP2 (`fully_shard`) does the work. Gradients come back averaged over the processes, each of which holds
those of its share. Every process must call a sharded network equally often, or the others wait for ever.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer


def shard_network(network: nn.Module) -> None:
    """Divide the weights of a transformers model among all processes, layer by layer, in place.

    Args:
        network: The same weights in every process.
    """
    device_type = next(network.parameters()).device.type
    mesh = init_device_mesh(device_type, (torch.distributed.get_world_size(),))
    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            fully_shard(module, mesh=mesh)
    # What is left, embeddings and the output layer, is gathered while `call_gathered` runs.
    fully_shard(network, mesh=mesh)


def _call_function(network: nn.Module, function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


def call_gathered(network: nn.Module, function: Callable, *arguments: Any) -> Any:
    """Call a function that uses a network's modules one by one, with the weights outside its layers at hand.

    FSDP gathers them in `network.forward` only; this extends it to the function. A network that is not sharded needs
    nothing, and the function is just called.

    Args:
        network: The whole network, whoever sharded it: `shard_network`, or accelerate.
        function: Called once in every process; it runs the layers equally often in each.
        arguments: Arguments of the function.
    """
    if not isinstance(network, FSDPModule):
        return function(*arguments)
    if not hasattr(network, "call_with_weights"):
        network.call_with_weights = MethodType(_call_function, network)
        register_fsdp_forward_method(network, "call_with_weights")
    return network.call_with_weights(function, *arguments)


@contextmanager
def gather_weights(network: nn.Module) -> Iterator[None]:
    """Gathers the whole weights of a sharded network in every process, inside the `with` block.

    Each process can then sample as many tokens as it likes. All processes must enter and leave together. A network
    that is not sharded stays as it is.

    Args:
        network: The network, perhaps sharded by FSDP.
    """
    sharded_modules = [module for module in network.modules() if isinstance(module, FSDPModule)]
    for module in sharded_modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in sharded_modules:
            module.reshard()
            # As `fully_shard` has it by default: the root stays gathered from forward to backward.
            module.set_reshard_after_forward(module is not network, recurse=False)


def discard_gathered_weights(network: nn.Module) -> None:
    """Forget gathered weights, so that the next pass gathers those that were written into the shares."""
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def load_whole_weights(network: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load weights that are whole in every process; of a sharded network each process keeps its share.

    Args:
        network: Sharded or not.
        weights: By name, as `network.state_dict` has them.
    """
    if isinstance(network, FSDPModule):
        set_model_state_dict(network, weights, options=StateDictOptions(full_state_dict=True))
    else:
        network.load_state_dict(weights)


def runs_in_several_processes() -> bool:
    """Whether other processes wait for this one where a network is sharded."""
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


def get_local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The share of this process, without a copy; a tensor that is not sharded as it is."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return tensor
