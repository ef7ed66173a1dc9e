"""The two policies of ARC and its flat rivals, as small networks.

Structure: one joint decision, drawn part by part - first the workflow, then tools and budgets, each given what was
drawn before, and masked by the workflow. Prompt: for each agent of the workflow one atom after the other until STOP,
at most `space.MAX_ATOMS`. Both use the same masks to draw and to learn, so the ratio of PPO compares like with like
(ARC, 3.2).

The flat policies are ARC's baselines: `Bandit` draws all parts at once, independently and without a mask; `Stepwise`
draws them one by one as steps of an episode, without a mask either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from lib.agent_configuration import action_space

VERSION = 2  # of what policies of configurations choose
HIDDEN = 128


@dataclass(frozen=True)
class SampledStructures:
    """Decisions of a batch. actions: (n, parts) int64; logp: (n,) log-probability of each row's whole decision."""

    actions: torch.Tensor
    logp: torch.Tensor


def trunk(inputs: int, hidden: int = HIDDEN) -> nn.Sequential:
    """Two layers of tanh, which the policies and their value networks share in shape, never in weights."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())


class Value(nn.Module):
    """V(s): what an episode will be paid, (n,)."""

    def __init__(self, inputs: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.layers = nn.Sequential(*trunk(inputs, hidden), nn.Linear(hidden, 1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layers(states).squeeze(-1)


class Parts(nn.Module):
    """A decision of several parts. chained: whether a part sees what was drawn before it; masked: whether parts that
    the workflow lacks are pinned; sizes: choices of each part, the workflow first."""

    def __init__(
        self,
        inputs: int,
        sizes: Sequence[int],
        chained: bool = True,
        masked: bool = True,
        hidden: int = HIDDEN,
    ) -> None:
        super().__init__()
        self.sizes, self.chained, self.masked = tuple(sizes), chained, masked
        self.trunk = trunk(inputs, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, size) for size in sizes)
        self.seen = nn.ModuleList(nn.Embedding(size, hidden) for size in sizes[:-1])
        for (
            head
        ) in self.heads:  # start near uniform, so that nothing is ruled out before it was tried
            nn.init.normal_(head.weight, std=0.01)
            nn.init.zeros_(head.bias)
        for embedding in self.seen:
            nn.init.normal_(embedding.weight, std=0.1)
        every = list(action_space.mask().values())
        for i, allowed in enumerate(every[: len(sizes)]):
            self.register_buffer(f"mask{i}", torch.from_numpy(allowed), persistent=False)

    def logits(self, hidden: torch.Tensor, part: int, drawn: torch.Tensor) -> torch.Tensor:
        """z~_i = z_i + log m_i(w), (n, size): of a part, given the parts drawn before it, (n, part)."""
        for before in range(part):
            hidden = self.after(hidden, before, drawn[:, before])
        return self._scored(hidden, part, drawn[:, 0] if part else None)

    def after(self, hidden: torch.Tensor, part: int, drawn: torch.Tensor) -> torch.Tensor:
        """What the next part reads once this one was drawn, (n, hidden). drawn: (n,)."""
        return hidden + self.seen[part](drawn) if self.chained and part < len(self.seen) else hidden

    def _scored(
        self, hidden: torch.Tensor, part: int, workflow: torch.Tensor | None
    ) -> torch.Tensor:
        raw = self.heads[part](hidden)
        if not self.masked or workflow is None or not hasattr(self, f"mask{part}"):
            return raw
        return raw.masked_fill(~getattr(self, f"mask{part}")[workflow], -torch.inf)

    def draw(self, states: torch.Tensor, generator: torch.Generator | None) -> SampledStructures:
        """Decisions for states, (n, inputs); without a generator the likeliest part each time."""
        hidden, logp, drawn = self.trunk(states), torch.zeros(len(states)), []
        for part in range(len(self.sizes)):
            logits = self._scored(hidden, part, drawn[0] if part else None)
            drawn.append(pick(logits, generator))
            logp = logp + Categorical(logits=logits).log_prob(drawn[part])
            hidden = self.after(hidden, part, drawn[part])
        return SampledStructures(torch.stack(drawn, 1), logp)

    def judge(
        self, states: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of decisions, (n,) each: entropy is the sum over parts, given what was drawn."""
        hidden, logp, entropy = (
            self.trunk(states),
            torch.zeros(len(states)),
            torch.zeros(len(states)),
        )
        for part in range(len(self.sizes)):
            over = Categorical(logits=self._scored(hidden, part, actions[:, 0] if part else None))
            logp, entropy = logp + over.log_prob(actions[:, part]), entropy + over.entropy()
            hidden = self.after(hidden, part, actions[:, part])
        return logp, entropy


def pick(logits: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """One choice per row, (n,); without a generator the likeliest."""
    if generator is None:
        return logits.argmax(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def structure_policy(inputs: int, masked: bool = True, hidden: int = HIDDEN) -> Parts:
    """pi_struct of ARC."""
    return Parts(inputs, action_space.SIZES, chained=True, masked=masked, hidden=hidden)


def bandit(inputs: int, atoms: int, hidden: int = HIDDEN) -> Parts:
    """The flat PPO bandit: structure and `space.MAX_ATOMS` atoms of every agent (0 is none), all at once."""
    return Parts(inputs, flat_sizes(atoms), chained=False, masked=False, hidden=hidden)


def stepwise(inputs: int, atoms: int, hidden: int = HIDDEN) -> Parts:
    """Flat PPO episodes: the bandit's parts one after the other, each seeing those before; no mask, no hierarchy."""
    return Parts(inputs, flat_sizes(atoms), chained=True, masked=False, hidden=hidden)


def flat_sizes(atoms: int) -> tuple[int, ...]:
    """Choices of each part of a flat policy over a library of `atoms`."""
    return (*action_space.SIZES, *[atoms + 1] * (action_space.MAX_ATOMS * len(action_space.AGENTS)))


@dataclass(frozen=True)
class Steps:
    """The prompt decisions of a batch of episodes, one row each.

    episode: whose decision it is; place: its number within the episode, from 0; states: (m, inputs); allowed:
    (m, atoms + 1) bool; actions: (m,) an atom, or STOP, which is the last choice; logp: (m,).
    """

    episode: torch.Tensor
    place: torch.Tensor
    states: torch.Tensor
    allowed: torch.Tensor
    actions: torch.Tensor
    logp: torch.Tensor

    def rows(self, wanted: torch.Tensor) -> Steps:
        """Some of the decisions. wanted: (m,) bool or indices."""
        return Steps(*(getattr(self, name)[wanted] for name in self.__dataclass_fields__))


class PromptPolicy(nn.Module):
    """pi_prompt of ARC: given question and structure, atoms for one agent after the other.

    roles: (3, atoms) bool, which agent may be told which atom.
    """

    def __init__(self, inputs: int, roles: np.ndarray, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.register_buffer("roles", torch.as_tensor(roles, dtype=torch.bool), persistent=False)
        self.inputs = inputs + sum(action_space.SIZES) + len(roles) + self.atoms
        self.trunk = trunk(self.inputs, hidden)
        self.head = nn.Linear(hidden, self.atoms + 1)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    @property
    def atoms(self) -> int:
        return self.roles.shape[1]

    @property
    def stop(self) -> int:
        """The number of STOP."""
        return self.atoms

    def logits(self, states: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """(m, atoms + 1), -inf where a choice is not allowed."""
        return self.head(self.trunk(states)).masked_fill(~allowed, -torch.inf)

    def draw(
        self, states: torch.Tensor, structures: torch.Tensor, generator: torch.Generator | None
    ) -> tuple[list[tuple[tuple[int, ...], ...]], Steps]:
        """Atoms of the three agents for each episode, and the decisions. states: (n, inputs) without the structure."""
        n = len(states)
        chosen = torch.zeros(n, len(self.roles), self.atoms, dtype=torch.bool)
        order: list[list[list[int]]] = [[[] for _ in self.roles] for _ in range(n)]
        places, kept = torch.zeros(n, dtype=torch.int64), []
        present = torch.tensor(
            [
                [a in action_space.agents(action_space.WORKFLOWS[w]) for a in range(3)]
                for w in structures[:, 0]
            ]
        )
        for agent in range(len(self.roles)):
            # An agent without atoms has nothing to decide: STOP alone would be a step that is discounted.
            if not self.roles[agent].any():
                continue
            alive = present[:, agent].clone()
            for _ in range(action_space.MAX_ATOMS):
                rows = alive.nonzero().squeeze(-1)
                if not len(rows):
                    break
                at = self.state(states[rows], structures[rows], agent, chosen[rows, agent])
                allowed = self.allowed(agent, chosen[rows, agent])
                logits = self.logits(at, allowed)
                picked = pick(logits, generator)
                logp = Categorical(logits=logits).log_prob(picked)
                kept.append(Steps(rows, places[rows].clone(), at, allowed, picked, logp))
                places[rows] += 1
                going = picked != self.stop
                alive[rows[~going]] = False
                chosen[rows[going], agent, picked[going]] = True
                for row, atom in zip(rows[going].tolist(), picked[going].tolist(), strict=True):
                    order[row][agent].append(atom)
        steps = Steps(
            *(torch.cat([getattr(s, name) for s in kept]) for name in Steps.__dataclass_fields__)
        )
        return [tuple(tuple(atoms) for atoms in agents) for agents in order], steps

    def judge(self, steps: Steps) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of every decision, (m,) each."""
        over = Categorical(logits=self.logits(steps.states, steps.allowed))
        return over.log_prob(steps.actions), over.entropy()

    def state(
        self, states: torch.Tensor, structures: torch.Tensor, agent: int, chosen: torch.Tensor
    ) -> torch.Tensor:
        """[s_q ; one-hot structure ; agent ; atoms so far], (n, self.inputs)."""
        parts = [
            nn.functional.one_hot(structures[:, i], size)
            for i, size in enumerate(action_space.SIZES)
        ]
        whose = torch.zeros(len(states), len(self.roles))
        whose[:, agent] = 1
        return torch.cat([states, *(part.float() for part in parts), whose, chosen.float()], 1)

    def allowed(self, agent: int, chosen: torch.Tensor) -> torch.Tensor:
        """Atoms of the agent's role that it was not told yet, and STOP."""
        return torch.cat(
            [self.roles[agent] & ~chosen, torch.ones(len(chosen), 1, dtype=torch.bool)], 1
        )
