"""Networks of several seeds batched into one module: one architecture, weights for each seed, one call for all.

Small networks spend their time in calls to the library, not in arithmetic. A benchmark that trains thirty seeds
therefore runs them side by side. Left out: where each seed's inputs come from, and how the losses are summed.
"""

import copy
from collections.abc import Sequence

from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap


class SeedBatched(nn.Module):
    """S networks of one architecture, evaluated by one call. No seed reads the weights of another.

    The code that runs is the single network's own: `vmap` maps it over the leading axis of its parameters, buffers and
    inputs. Parameters keep the names that they have in the single network, `network.` in front, and get a leading axis
    S. The sum of the seeds' losses gives every seed the gradient of its own loss.

    Example:
        >>> batched = SeedBatched([nn.Linear(4, 2) for _ in range(3)])
        >>> batched(torch.zeros(3, 10, 4)).shape  # (seeds, rows, outputs)
        torch.Size([3, 10, 2])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        """Copies the weights of `networks`.

        Args:
            networks: The network of each seed, all of one class and shape. The list may repeat a network; every seed
                has a copy of its own.

        Raises:
            RuntimeError: The list is empty, or the networks differ in class or shape.
        """
        super().__init__()
        parameters, buffers = stack_module_state(list(networks))  # name -> (S, *shape)
        self.network = copy.deepcopy(networks[0])
        for name, values in parameters.items():
            _replace_tensor(self.network, name, nn.Parameter(values.detach()))
        for name, values in buffers.items():
            _replace_tensor(self.network, name, values)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run every seed's network on its own inputs.

        Args:
            inputs: (S, B, ...) each, as the single network takes them, with the seeds in front.

        Returns:
            (S, B, ...) outputs, those of seed s by the weights of seed s.
        """
        weights = dict(self.network.named_parameters()) | dict(self.network.named_buffers())

        def run_one_seed(weights_of_seed: dict[str, Tensor], *inputs_of_seed: Tensor) -> Tensor:
            return functional_call(self.network, weights_of_seed, inputs_of_seed)

        return vmap(run_one_seed)(weights, *inputs)


def _replace_tensor(network: nn.Module, name: str, values: Tensor) -> None:
    """Replace one parameter or buffer of a network; `name` is as in `named_parameters`, such as "layers.0.weight"."""
    submodule_name, _, attribute = name.rpartition(".")
    setattr(network.get_submodule(submodule_name), attribute, values)
