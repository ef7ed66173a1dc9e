"""The Conductor: a linear head that reads a hidden state and says which reward should count.

    p = softmax((W h + b) / tau)                      MAESTRO, eq. 1
    pi = (1 - K eps) p + eps                          no action below eps (Table 8: 1e-4)
    w(h, a) = (1 - kappa) pi(h) + kappa e_a           weights of a rollout that drew the emphasis a

The paper leaves the map from the drawn action to weights open; with kappa = 1 they are one-hot, in
between they depend on h and a, as its notation w(h, a) says. After training, pi itself is the weights.
"""

import math

import torch
from torch import nn

VERSION = 1  # of the Conductor's distribution, its draws and its weights
FLOOR = 1e-4  # eps, Table 8


class Conductor(nn.Module):
    """A meta-policy over K reward components, given hidden states of width d."""

    def __init__(
        self, width: int, components: int, floor: float = FLOOR, temperature: float = 1.0
    ) -> None:
        """Starts uniform: W and b are zero, so no component is preferred before anything was seen.

        floor: the least probability of an action; temperature: where tau starts. Raises ValueError for a
        floor that leaves nothing to distribute, or a temperature that is not positive.
        """
        super().__init__()
        if not 0 <= floor * components < 1:
            raise ValueError(
                f"{components} actions cannot all have a probability of at least {floor}"
            )
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.floor = floor
        self.linear = nn.Linear(width, components)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.log_tau = nn.Parameter(torch.tensor(math.log(temperature)))  # tau stays positive

    @property
    def tau(self) -> float:
        """The temperature, learned with the rest."""
        return float(self.log_tau.detach().exp())

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """pi(. | h): (..., d) -> (..., K), rows on the simplex, no entry below the floor."""
        return floored((self.linear(h) / self.log_tau.exp()).softmax(-1), self.floor)

    def log_prob(self, h: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """log pi(a | h) of the floored distribution, (...,)."""
        return self(h).gather(-1, action[..., None])[..., 0].log()


def floored(p: torch.Tensor, floor: float) -> torch.Tensor:
    """(1 - K eps) p + eps: sums to one, and unlike a clamp it lets gradients through everywhere."""
    return (1 - p.shape[-1] * floor) * p + floor


def sample(p: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Actions drawn from distributions p (..., K) with uniform numbers (...,) in [0, 1)."""
    cumulative = p.double().cumsum(-1)
    return (
        (cumulative <= uniform[..., None] * cumulative[..., -1:]).sum(-1).clamp(max=p.shape[-1] - 1)
    )


def emphasis(p: torch.Tensor, action: torch.Tensor, kappa: float) -> torch.Tensor:
    """w(h, a) = (1 - kappa) pi(h) + kappa e_a, (..., K) on the simplex."""
    if not 0 <= kappa <= 1:
        raise ValueError(f"kappa must be between 0 and 1, got {kappa}")
    return (1 - kappa) * p + kappa * nn.functional.one_hot(action, p.shape[-1]).to(p)


def entropy(p: torch.Tensor) -> torch.Tensor:
    """H(p) in nats, (...,). A probability that is exactly 0 adds nothing, and its gradient stays finite."""
    return -(p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(-1)
