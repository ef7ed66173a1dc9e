"""The critic of PPO: one value for every token, from the policy's states or from a trunk of its own.

A trunk of its own is a copy of the policy's; under LoRA it is a second adapter on the same frozen weights.
"""

import copy

import torch
from torch import nn

from lib.rl.policy_model import CRITIC_ADAPTER, PolicyModel
from lib.rl.sharding import call_gathered, shard_network
from lib.rl.token_batch import TokenBatch


class Critic(nn.Module):
    """V of every state: what reward the policy is expected to get from here.

    Attributes:
        head: From a state to its value, in float32.
        trunk: The critic's own copy of the policy's trunk, or None.
        adapter: The name of its own adapter on the policy's frozen weights, or None.
    """

    def __init__(self, policy: PolicyModel, is_separate: bool) -> None:
        """Make a critic that says 0 everywhere.

        Args:
            policy: What it is the critic of.
            is_separate: Whether it reads the tokens by itself instead of using the policy's states.
        """
        super().__init__()
        self.trunk: nn.Module | None = None
        self.adapter: str | None = None
        if is_separate and policy.uses_lora:
            policy.add_adapter(CRITIC_ADAPTER)
            self.adapter = CRITIC_ADAPTER
        elif is_separate:
            self.trunk = copy.deepcopy(policy.trunk)

        hidden_size = policy.network.config.get_text_config().hidden_size
        self.head = nn.Linear(hidden_size, 1)
        # Zeros: V starts at 0 everywhere, whatever the generator of random numbers.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(policy.device)
        # Not a child module: the policy's weights are not the critic's.
        self._policy = [policy]

    def forward(self, batch: TokenBatch, states: torch.Tensor) -> torch.Tensor:
        """Compute V before every next token.

        Args:
            batch: B episodes of T tokens.
            states: (B, T, hidden), the policy's.

        Returns:
            (B, T - 1).
        """
        [policy] = self._policy
        if self.trunk is not None:
            states = call_gathered(self.trunk, policy.compute_states, batch, self.trunk)
        elif self.adapter is not None:
            with policy.use_adapter(self.adapter):
                states = call_gathered(policy.network, policy.compute_states, batch, policy.trunk)
        # A token is predicted from the state before it.
        return self.head(states[:, :-1].float())[..., 0]

    def list_named_parameters(self) -> dict[str, nn.Parameter]:
        """What is trained: head, and trunk or adapter."""
        [policy] = self._policy
        parameters = dict(self.named_parameters())
        if self.adapter is not None:
            parameters |= policy.list_adapter_parameters(self.adapter)
        return parameters

    def shard(self) -> None:
        """Divide its trunk among the processes; the head, a thousand numbers, stays whole in each."""
        if self.trunk is not None:
            shard_network(self.trunk)
