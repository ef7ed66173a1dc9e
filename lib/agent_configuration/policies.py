"""The two policies of ARC and the flat policies that it is compared with, as small networks.

Structure policy: one joint decision, sampled one dimension after the other (first the workflow, then tools and
budgets), each given the choices before it, and masked by the workflow. Prompt policy: for each agent of the workflow
one atom after the other until STOP, at most `action_space.MAX_ATOMS`. Both use the same masks to sample and to learn,
so that PPO's ratio compares probabilities over one set (ARC, 3.2).

The flat policies choose from the same structures and atoms under the same masks. The bandit chooses all dimensions at
once, independently. The autoregressive one sees the choices before; learned as an MDP, each choice is a step of its own
with a ratio and a value of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from lib.agent_configuration import action_space

VERSION = 3  # of what policies of configurations choose
HIDDEN = 128


@dataclass(frozen=True)
class SampledStructures:
    """Decisions of a batch.

    Attributes:
        actions: (n, parts) int64.
        logp: (n,) log-probability of each row's whole decision.
        part_logp: (n, parts) log-probability of each choice, given those before it.
    """

    actions: torch.Tensor
    logp: torch.Tensor
    part_logp: torch.Tensor


def trunk(inputs: int, hidden: int = HIDDEN) -> nn.Sequential:
    """Two layers of tanh; policies and their value networks have the same shape and weights of their own."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())


class Value(nn.Module):
    """V(s): the return that is expected from a state, (n,)."""

    def __init__(self, inputs: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.layers = nn.Sequential(*trunk(inputs, hidden), nn.Linear(hidden, 1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layers(states).squeeze(-1)


class Parts(nn.Module):
    """A decision of several parts, the workflow first.

    Attributes:
        sizes: Choices of each part.
        chained: Whether a part sees the choices before it.
        masked: Whether choices that the workflow lacks are excluded.
    """

    def __init__(
        self,
        inputs: int,
        sizes: Sequence[int],
        chained: bool = True,
        masked: bool = True,
        hidden: int = HIDDEN,
        masks: Sequence[np.ndarray] | None = None,
    ) -> None:
        """Make a policy whose choices are near uniform.

        Args:
            inputs: Numbers of a state.
            sizes: Choices of each part.
            chained: Whether a part sees the choices before it.
            masked: Whether the masks are applied.
            hidden: Width of the layers.
            masks: (workflows, size) bool of each part; None for those of a structure.
        """
        super().__init__()
        self.sizes, self.chained, self.masked = tuple(sizes), chained, masked
        self.trunk = trunk(inputs, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, size) for size in sizes)
        self.seen = nn.ModuleList(nn.Embedding(size, hidden) for size in sizes[:-1])
        # Start near uniform, so that nothing is ruled out before it was tried.
        for head in self.heads:
            nn.init.normal_(head.weight, std=0.01)
            nn.init.zeros_(head.bias)
        for embedding in self.seen:
            nn.init.normal_(embedding.weight, std=0.1)
        self.masks = list(action_space.mask().values()) if masks is None else list(masks)
        for i, allowed in enumerate(self.masks):
            self.register_buffer(f"mask{i}", torch.from_numpy(allowed), persistent=False)

    def logits(self, hidden: torch.Tensor, part: int, actions: torch.Tensor) -> torch.Tensor:
        """z~_i = z_i + log m_i(w), (n, size): of a part, given the choices before it, (n, part)."""
        for before in range(part):
            hidden = self.after(hidden, before, actions[:, before])
        return self._score(hidden, part, actions[:, 0] if part else None)

    def after(self, hidden: torch.Tensor, part: int, choice: torch.Tensor) -> torch.Tensor:
        """What the next part reads once this choice, (n,), was made: (n, hidden)."""
        is_seen = self.chained and part < len(self.seen)
        return hidden + self.seen[part](choice) if is_seen else hidden

    def _score(
        self, hidden: torch.Tensor, part: int, workflow: torch.Tensor | None
    ) -> torch.Tensor:
        raw = self.heads[part](hidden)
        if not self.masked or workflow is None:
            return raw
        return raw.masked_fill(~getattr(self, f"mask{part}")[workflow], -torch.inf)

    def draw(self, states: torch.Tensor, generator: torch.Generator | None) -> SampledStructures:
        """Decisions for states, (n, inputs); without a generator the likeliest choice of each part."""
        hidden = self.trunk(states)
        choices: list[torch.Tensor] = []
        part_logp = []
        for part in range(len(self.sizes)):
            logits = self._score(hidden, part, choices[0] if part else None)
            choices.append(pick(logits, generator))
            part_logp.append(Categorical(logits=logits).log_prob(choices[part]))
            hidden = self.after(hidden, part, choices[part])
        by_part = torch.stack(part_logp, 1)
        return SampledStructures(torch.stack(choices, 1), by_part.sum(1), by_part)

    def judge(
        self, states: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of whole decisions, (n,) each: sums over parts, given the choices before."""
        part_logp, part_entropy = self.judge_parts(states, actions)
        return part_logp.sum(1), part_entropy.sum(1)

    def judge_parts(
        self, states: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of every choice, given those before it, (n, parts) each."""
        hidden = self.trunk(states)
        part_logp = []
        part_entropy = []
        for part in range(len(self.sizes)):
            logits = self._score(hidden, part, actions[:, 0] if part else None)
            distribution = Categorical(logits=logits)
            part_logp.append(distribution.log_prob(actions[:, part]))
            part_entropy.append(distribution.entropy())
            hidden = self.after(hidden, part, actions[:, part])
        return torch.stack(part_logp, 1), torch.stack(part_entropy, 1)

    def is_choice(self, workflows: torch.Tensor) -> torch.Tensor:
        """Whether there is more than one choice, (n, parts) bool; a part that is pinned is no step of an episode."""
        open_parts = []
        for part, size in enumerate(self.sizes):
            if self.masked and part:
                num_allowed = getattr(self, f"mask{part}").sum(1)[workflows]  # (n,)
            else:
                num_allowed = torch.full_like(workflows, size)
            open_parts.append(num_allowed > 1)
        return torch.stack(open_parts, 1)


def pick(logits: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """One choice per row, (n,); without a generator the likeliest."""
    if generator is None:
        return logits.argmax(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def structure_policy(
    inputs: int,
    masked: bool = True,
    hidden: int = HIDDEN,
    tools: tuple[str, ...] = action_space.TOOLS,
) -> Parts:
    """pi_struct of ARC, over structures with these tools."""
    masks = list(action_space.mask(tools).values())
    return Parts(inputs, action_space.SIZES, True, masked, hidden, masks)


def bandit(
    inputs: int,
    roles: np.ndarray,
    hidden: int = HIDDEN,
    tools: tuple[str, ...] = action_space.TOOLS,
) -> Parts:
    """The flat PPO bandit: structure and `action_space.MAX_ATOMS` atoms of every agent, all at once.

    Args:
        inputs: Numbers of a state.
        roles: (3, atoms) bool, which agent may be told which atom.
        hidden: Width of the layers.
        tools: That agents may be given.

    Returns:
        The policy. Of an atom's part, choice 0 is no atom.
    """
    sizes = flat_sizes(roles.shape[1])
    return Parts(inputs, sizes, False, True, hidden, make_flat_masks(roles, tools))


def autoregressive(
    inputs: int,
    roles: np.ndarray,
    hidden: int = HIDDEN,
    tools: tuple[str, ...] = action_space.TOOLS,
) -> Parts:
    """The bandit's parts one after the other, each given the choices before; arguments as of `bandit`."""
    sizes = flat_sizes(roles.shape[1])
    return Parts(inputs, sizes, True, True, hidden, make_flat_masks(roles, tools))


def flat_sizes(num_atoms: int) -> tuple[int, ...]:
    """Choices of each part of a flat policy over so many atoms."""
    num_slots = action_space.MAX_ATOMS * len(action_space.AGENTS)
    return (*action_space.SIZES, *[num_atoms + 1] * num_slots)


def make_flat_masks(
    roles: np.ndarray, tools: tuple[str, ...] = action_space.TOOLS
) -> list[np.ndarray]:
    """The masks of a flat policy: those of a structure, and for atoms those of the hierarchy.

    Args:
        roles: (3, atoms) bool, which agent may be told which atom.
        tools: That agents may be given.

    Returns:
        (workflows, size) bool of each part. An agent that the workflow lacks is told nothing.
    """
    masks = list(action_space.mask(tools).values())
    for agent in range(len(action_space.AGENTS)):
        allowed = np.zeros((len(action_space.WORKFLOWS), roles.shape[1] + 1), bool)
        allowed[:, 0] = True  # no atom
        for number, workflow in enumerate(action_space.WORKFLOWS):
            if agent in action_space.agents(workflow):
                allowed[number, 1:] = roles[agent]
        masks += [allowed] * action_space.MAX_ATOMS
    return masks


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
        if not kept:  # no agent has an atom to choose
            kept.append(self._no_steps(states, structures))
        steps = Steps(
            *(torch.cat([getattr(s, name) for s in kept]) for name in Steps.__dataclass_fields__)
        )
        return [tuple(tuple(atoms) for atoms in agents) for agents in order], steps

    def _no_steps(self, states: torch.Tensor, structures: torch.Tensor) -> Steps:
        nobody = torch.zeros(0, dtype=torch.int64)
        chosen = torch.zeros(0, self.atoms, dtype=torch.bool)
        at = self.state(states[nobody], structures[nobody], 0, chosen)
        return Steps(nobody, nobody, at, self.allowed(0, chosen), nobody, torch.zeros(0))

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
