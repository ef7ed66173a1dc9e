"""The Conductor: a linear head that reads a hidden state and returns a distribution over the rewards.

    p = softmax((W h + b) / tau)                      MAESTRO, eq. 1
    pi = (1 - K eps) p + eps                          no action below eps (Table 8: 1e-4)
    w(h, a) = (1 - kappa) pi(h) + kappa e_a           weights of a rollout with the sampled emphasis a

The paper leaves the map from the sampled action to weights open. With kappa = 1 the weights are one-hot; in between
they depend on h and a, as its notation w(h, a) says. After training pi itself is the weight vector.

Letters of shapes: d width of the state, K rewards.
"""

import math

import torch
from torch import nn

VERSION = 1  # of the Conductor's distribution, its sampled actions and its weights
MIN_PROBABILITY = 1e-4  # eps, Table 8


class Conductor(nn.Module):
    """A meta-policy: a categorical distribution over K rewards, given a hidden state (MAESTRO, eq. 1).

    Attributes:
        floor: eps, the smallest probability of an action.
        linear: W and b.
        log_tau: Logarithm of the learned temperature, so that the temperature stays positive.
    """

    def __init__(
        self,
        width: int,
        components: int,
        floor: float = MIN_PROBABILITY,
        temperature: float = 1.0,
    ) -> None:
        """Start uniform: W and b are zero, so no reward is preferred before anything is learned.

        Args:
            width: Width of the hidden states, d.
            components: Number of rewards, K.
            floor: The smallest probability of an action.
            temperature: Initial value of tau.

        Raises:
            ValueError: The floor leaves no probability to distribute, or the temperature is not positive.
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
        # Zeros instead of small random numbers: at the start pi(. | h) = 1/K whatever h is.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.log_tau = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def tau(self) -> float:
        """The temperature of eq. 1."""
        return float(self.log_tau.detach().exp())

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Compute pi(. | h).

        Args:
            h: (..., d) hidden states.

        Returns:
            (..., K) probabilities; every row sums to 1 and no entry is below the floor.
        """
        # eq. 1: p = softmax((W h + b) / tau), then the floor of Table 8.
        logits = self.linear(h) / self.log_tau.exp()
        return apply_floor(logits.softmax(-1), self.floor)

    def log_prob(self, h: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Compute log pi(a | h) of the distribution with the floor.

        Args:
            h: (..., d) hidden states.
            action: (...,) indices of rewards.

        Returns:
            (...,) log-probabilities.
        """
        return self(h).gather(-1, action[..., None])[..., 0].log()


def apply_floor(probabilities: torch.Tensor, floor: float) -> torch.Tensor:
    """Raise every probability to at least `floor`: (1 - K eps) p + eps.

    Unlike a clamp this lets gradients through everywhere.

    Args:
        probabilities: (..., K), rows sum to 1.
        floor: eps.

    Returns:
        (..., K), rows sum to 1.
    """
    num_actions = probabilities.shape[-1]
    return (1 - num_actions * floor) * probabilities + floor


def sample_actions(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Sample actions by inverting the cumulative distribution: the first action whose cumulative probability exceeds u.

    Args:
        probabilities: (..., K), rows sum to 1.
        uniforms: (...,) uniform random numbers u in [0, 1).

    Returns:
        (...,) indices of actions, from 0 to K - 1.
    """
    # Double precision, and thresholds relative to the actual sum: in 32 bits probabilities do not sum to exactly 1.
    cumulative = probabilities.double().cumsum(-1)
    total = cumulative[..., -1:]
    thresholds = uniforms[..., None] * total

    # The index of the first action above the threshold is the number of actions that are not.
    num_not_above = (cumulative <= thresholds).sum(-1)
    last_action = probabilities.shape[-1] - 1
    return num_not_above.clamp(max=last_action)


def compute_emphasis_weights(
    probabilities: torch.Tensor, action: torch.Tensor, kappa: float
) -> torch.Tensor:
    """Compute the reward weights of rollouts: w(h, a) = (1 - kappa) pi(h) + kappa e_a.

    The paper leaves open how the sampled emphasis changes the weights; this is our choice.

    Args:
        probabilities: (..., K) pi(h).
        action: (...,) sampled emphases a: the index of the reward whose weight is raised.
        kappa: How much the sampled emphasis counts: 0 for pi alone, 1 for one-hot weights e_a.

    Returns:
        (..., K) weights, rows sum to 1.

    Raises:
        ValueError: kappa is not between 0 and 1.
    """
    if not 0 <= kappa <= 1:
        raise ValueError(f"kappa must be between 0 and 1, got {kappa}")
    # (..., K), e_a
    one_hot = nn.functional.one_hot(action, probabilities.shape[-1]).to(probabilities)
    return (1 - kappa) * probabilities + kappa * one_hot


def compute_entropy(probabilities: torch.Tensor) -> torch.Tensor:
    """Compute H(p) in nats.

    Args:
        probabilities: (..., K), rows sum to 1.

    Returns:
        (...,) entropies. A probability of exactly 0 adds nothing, and its gradient stays finite.
    """
    smallest = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp(min=smallest).log()).sum(-1)
