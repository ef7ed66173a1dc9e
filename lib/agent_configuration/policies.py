"""The two policies of ARC and the flat policies that it is compared with, as small networks.

Structure policy: one joint decision with six dimensions, sampled one after the other (first the workflow, then tools
and budgets), each given the choices before it, and masked by the workflow. Prompt policy: for each agent of the
workflow one atom after the other until STOP, at most `action_space.MAX_ATOMS`. Both use the same masks to sample and
to learn, so that PPO's ratio compares probabilities over one set (ARC, 3.2).

The flat policies choose from the same structures and atoms under the same masks. The bandit chooses all dimensions at
once, independently. The autoregressive one sees the choices before; learned as an MDP, each choice is a step of its own
with a ratio and a value of its own.

In shapes, n is the number of episodes and m that of prompt decisions.
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
NUM_AGENTS = len(action_space.AGENTS)


def make_trunk(num_inputs: int, hidden: int = HIDDEN) -> nn.Sequential:
    """Make two layers of tanh. Policies and value networks have the same shape and weights of their own."""
    return nn.Sequential(
        nn.Linear(num_inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()
    )


class ValueNetwork(nn.Module):
    """V(s): the return that is expected from a state, (n,)."""

    def __init__(self, num_inputs: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.layers = nn.Sequential(*make_trunk(num_inputs, hidden), nn.Linear(hidden, 1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layers(states).squeeze(-1)


def sample_choices(logits: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Sample one choice for each row of logits.

    Args:
        logits: (n, choices).
        generator: Source of random numbers; None for the likeliest choice.

    Returns:
        (n,) numbers of the choices.
    """
    if generator is None:
        return logits.argmax(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


# Decisions with several dimensions -----------------------------------------------------------------


@dataclass(frozen=True)
class SampledActions:
    """Decisions for n states.

    Attributes:
        actions: (n, dimensions) int64, the choice of each dimension.
        logp: (n,) log-probability of the whole decision.
        logp_by_dimension: (n, dimensions) log-probability of each choice, given those before it.
    """

    actions: torch.Tensor
    logp: torch.Tensor
    logp_by_dimension: torch.Tensor


class MultiDiscretePolicy(nn.Module):
    """A policy whose action has D dimensions, the workflow first.

    Attributes:
        sizes: Number of choices of each dimension.
        chained: Whether a dimension sees the choices before it.
        masked: Whether choices that the workflow lacks are excluded.
    """

    def __init__(
        self,
        num_inputs: int,
        sizes: Sequence[int],
        chained: bool = True,
        masked: bool = True,
        hidden: int = HIDDEN,
        masks: Sequence[np.ndarray] | None = None,
    ) -> None:
        """Make a policy whose choices are near uniform.

        Args:
            num_inputs: Length of a state.
            sizes: Number of choices of each dimension.
            chained: Whether a dimension sees the choices before it.
            masked: Whether the masks are applied.
            hidden: Width of the layers.
            masks: For each dimension (workflows, size) bool, the choices that are valid with each workflow; None for
                the masks of a structure.
        """
        super().__init__()
        self.sizes = tuple(sizes)
        self.chained = chained
        self.masked = masked
        self.trunk = make_trunk(num_inputs, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, size) for size in sizes)
        # Embeddings of the choices that later dimensions see.
        self.seen = nn.ModuleList(nn.Embedding(size, hidden) for size in sizes[:-1])

        # Start near uniform, so that nothing is ruled out before it was tried.
        for head in self.heads:
            nn.init.normal_(head.weight, std=0.01)
            nn.init.zeros_(head.bias)
        for embedding in self.seen:
            nn.init.normal_(embedding.weight, std=0.1)

        self.masks = list(action_space.make_masks().values()) if masks is None else list(masks)
        for dimension, mask in enumerate(self.masks):
            self.register_buffer(f"mask{dimension}", torch.from_numpy(mask), persistent=False)

    def compute_logits(
        self, hidden: torch.Tensor, dimension: int, choices_before: torch.Tensor
    ) -> torch.Tensor:
        """Compute the masked logits of one dimension, z_i + log m_i(w).

        Args:
            hidden: (n, hidden) output of the trunk.
            dimension: Number of the dimension.
            choices_before: (n, dimension) choices of the dimensions before it.

        Returns:
            (n, size) logits; -inf for choices that the workflow lacks.
        """
        for earlier in range(dimension):
            hidden = self.add_choice(hidden, earlier, choices_before[:, earlier])
        workflows = choices_before[:, 0] if dimension else None
        return self._compute_masked_logits(hidden, dimension, workflows)

    def add_choice(
        self, hidden: torch.Tensor, dimension: int, choices: torch.Tensor
    ) -> torch.Tensor:
        """Let later dimensions see the choices of a dimension, if the policy is chained.

        Args:
            hidden: (n, hidden) what this dimension read.
            dimension: Number of the dimension.
            choices: (n,) what was chosen.

        Returns:
            (n, hidden) what the next dimension reads.
        """
        if not self.chained or dimension == len(self.seen):
            return hidden
        return hidden + self.seen[dimension](choices)

    def _compute_masked_logits(
        self, hidden: torch.Tensor, dimension: int, workflows: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the logits of a dimension, -inf for choices that the workflow lacks.

        Args:
            hidden: (n, hidden) output of the trunk.
            dimension: Number of the dimension.
            workflows: (n,); None for the dimension that chooses them.

        Returns:
            (n, size).
        """
        logits = self.heads[dimension](hidden)
        if not self.masked or workflows is None:
            return logits
        is_valid = self.get_mask(dimension)[workflows]
        return logits.masked_fill(~is_valid, -torch.inf)

    def get_mask(self, dimension: int) -> torch.Tensor:
        """(workflows, size) bool, the choices of a dimension that are valid with each workflow."""
        return getattr(self, f"mask{dimension}")

    def sample(self, states: torch.Tensor, generator: torch.Generator | None) -> SampledActions:
        """Sample a decision for each state, one dimension after the other.

        Args:
            states: (n, inputs).
            generator: Source of random numbers; None for the likeliest choice of each dimension.

        Returns:
            The decisions.
        """
        hidden = self.trunk(states)
        choices: list[torch.Tensor] = []
        logp_by_dimension = []
        for dimension in range(len(self.sizes)):
            workflows = choices[0] if dimension else None
            logits = self._compute_masked_logits(hidden, dimension, workflows)
            choice = sample_choices(logits, generator)
            choices.append(choice)
            logp_by_dimension.append(Categorical(logits=logits).log_prob(choice))
            hidden = self.add_choice(hidden, dimension, choice)
        logp = torch.stack(logp_by_dimension, 1)  # (n, dimensions)
        return SampledActions(torch.stack(choices, 1), logp.sum(1), logp)

    def evaluate_actions(
        self, states: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate whole decisions: the sums of `evaluate_dimensions` over dimensions.

        Args:
            states: (n, inputs).
            actions: (n, dimensions) choices.

        Returns:
            (n,) log-probabilities and (n,) entropies.
        """
        logp_by_dimension, entropy_by_dimension = self.evaluate_dimensions(states, actions)
        return logp_by_dimension.sum(1), entropy_by_dimension.sum(1)

    def evaluate_dimensions(
        self, states: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate every choice, given the choices before it.

        Args:
            states: (n, inputs).
            actions: (n, dimensions) choices.

        Returns:
            (n, dimensions) log-probabilities of the choices, and (n, dimensions) entropies of their distributions.
        """
        hidden = self.trunk(states)
        logp_by_dimension = []
        entropy_by_dimension = []
        for dimension in range(len(self.sizes)):
            workflows = actions[:, 0] if dimension else None
            logits = self._compute_masked_logits(hidden, dimension, workflows)
            distribution = Categorical(logits=logits)
            logp_by_dimension.append(distribution.log_prob(actions[:, dimension]))
            entropy_by_dimension.append(distribution.entropy())
            hidden = self.add_choice(hidden, dimension, actions[:, dimension])
        return torch.stack(logp_by_dimension, 1), torch.stack(entropy_by_dimension, 1)

    def find_dimensions_with_choice(self, workflows: torch.Tensor) -> torch.Tensor:
        """Find the dimensions in which a decision has more than one valid choice.

        A workflow without a second agent leaves one valid choice in the dimensions of that agent. Such a dimension is
        no step of an MDP.

        Args:
            workflows: (n,) number of each decision's workflow.

        Returns:
            (n, dimensions) bool.
        """
        has_choice = []
        for dimension, size in enumerate(self.sizes):
            # Dimension 0 is the workflow itself, which has no mask.
            if self.masked and dimension > 0:
                num_valid_by_workflow = self.get_mask(dimension).sum(1)  # (workflows,)
                num_valid = num_valid_by_workflow[workflows]  # (n,)
            else:
                num_valid = torch.full_like(workflows, size)  # (n,)
            has_choice.append(num_valid > 1)
        return torch.stack(has_choice, 1)


def make_structure_policy(
    num_inputs: int,
    masked: bool = True,
    hidden: int = HIDDEN,
    tools: tuple[str, ...] = action_space.TOOLS,
) -> MultiDiscretePolicy:
    """Make ARC's structure policy, pi_struct, with new weights.

    It chooses the six dimensions of a structure one after the other, each given the choices before it: the workflow,
    the tools of the first and the second agent, and the token budgets of all three agents.

    Args:
        num_inputs: Length of a state, the vector that describes a question.
        masked: Whether to exclude choices that have no effect in the chosen workflow, such as tools of an agent that it
            does not call.
        hidden: Width of the layers.
        tools: Names of the tools that agents may be given; others are never chosen.

    Returns:
        The policy, whose choices are near uniform.
    """
    masks_by_dimension = action_space.make_masks(tools)
    return MultiDiscretePolicy(
        num_inputs,
        action_space.SIZES,
        chained=True,
        masked=masked,
        hidden=hidden,
        masks=list(masks_by_dimension.values()),
    )


def make_bandit_policy(
    num_inputs: int,
    roles: np.ndarray,
    hidden: int = HIDDEN,
    tools: tuple[str, ...] = action_space.TOOLS,
) -> MultiDiscretePolicy:
    """Make the flat PPO bandit: structure and `action_space.MAX_ATOMS` atoms of every agent, all at once.

    Args:
        num_inputs: Length of a state.
        roles: (3, atoms) bool, which agent may get which prompt instruction (atom).
        hidden: Width of the layers.
        tools: The tools that agents may be given.

    Returns:
        The policy. In the dimension of an atom, choice 0 is no atom.
    """
    return _make_flat_policy(num_inputs, roles, hidden, tools, chained=False)


def make_autoregressive_policy(
    num_inputs: int,
    roles: np.ndarray,
    hidden: int = HIDDEN,
    tools: tuple[str, ...] = action_space.TOOLS,
) -> MultiDiscretePolicy:
    """Make the flat policy that chooses the bandit's dimensions one after the other, each given the choices before.

    Args:
        num_inputs: Length of a state.
        roles: (3, atoms) bool, which agent may get which prompt instruction (atom).
        hidden: Width of the layers.
        tools: The tools that agents may be given.

    Returns:
        The policy.
    """
    return _make_flat_policy(num_inputs, roles, hidden, tools, chained=True)


def _make_flat_policy(
    num_inputs: int, roles: np.ndarray, hidden: int, tools: tuple[str, ...], chained: bool
) -> MultiDiscretePolicy:
    """Make a policy that chooses structure and atoms (prompt instructions) together.

    Args:
        num_inputs: Length of a state.
        roles: (3, atoms) bool, which agent may get which atom.
        hidden: Width of the network.
        tools: The tools that agents may be given.
        chained: Whether each choice reads the ones before it.

    Returns:
        The policy.
    """
    return MultiDiscretePolicy(
        num_inputs,
        list_flat_sizes(roles.shape[1]),
        chained=chained,
        hidden=hidden,
        masks=make_flat_masks(roles, tools),
    )


def list_flat_sizes(num_atoms: int) -> tuple[int, ...]:
    """List the sizes of the dimensions of a flat policy: a structure, then MAX_ATOMS atoms of every agent."""
    num_atom_dimensions = action_space.MAX_ATOMS * NUM_AGENTS
    return (*action_space.SIZES, *[num_atoms + 1] * num_atom_dimensions)


def make_flat_masks(
    roles: np.ndarray, tools: tuple[str, ...] = action_space.TOOLS
) -> list[np.ndarray]:
    """Make the masks of a flat policy: those of a structure, and for atoms those of the two policies of ARC.

    Args:
        roles: (3, atoms) bool, which agent may get which prompt instruction (atom).
        tools: The tools that agents may be given.

    Returns:
        (workflows, size) bool of each dimension. An agent that the workflow lacks gets none.
    """
    masks = list(action_space.make_masks(tools).values())
    for agent in range(NUM_AGENTS):
        is_valid = np.zeros((len(action_space.WORKFLOWS), roles.shape[1] + 1), bool)
        is_valid[:, 0] = True  # no atom
        for number, workflow in enumerate(action_space.WORKFLOWS):
            if agent in action_space.list_agents(workflow):
                is_valid[number, 1:] = roles[agent]
        masks += [is_valid] * action_space.MAX_ATOMS
    return masks


# Prompts -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromptSteps:
    """The prompt decisions of a batch of episodes, one row each.

    Attributes:
        episode: (m,) number of the episode that a decision belongs to.
        position: (m,) number of the decision within its episode, from 0.
        states: (m, inputs) what the policy read.
        is_allowed: (m, atoms + 1) bool, the choices that there were.
        actions: (m,) the atom that was chosen, or STOP, which is the last choice.
        logp: (m,) log-probability of the choice.
    """

    episode: torch.Tensor
    position: torch.Tensor
    states: torch.Tensor
    is_allowed: torch.Tensor
    actions: torch.Tensor
    logp: torch.Tensor

    def __len__(self) -> int:
        return len(self.actions)

    def select(self, rows: torch.Tensor) -> PromptSteps:
        """Some of the decisions.

        Args:
            rows: (m,) bool, or the numbers of rows.
        """
        return PromptSteps(
            episode=self.episode[rows],
            position=self.position[rows],
            states=self.states[rows],
            is_allowed=self.is_allowed[rows],
            actions=self.actions[rows],
            logp=self.logp[rows],
        )

    @classmethod
    def concatenate(cls, tables: Sequence[PromptSteps]) -> PromptSteps:
        """Concatenate the rows of several tables.

        Args:
            tables: The tables.

        Returns:
            One table.
        """
        return cls(
            episode=torch.cat([table.episode for table in tables]),
            position=torch.cat([table.position for table in tables]),
            states=torch.cat([table.states for table in tables]),
            is_allowed=torch.cat([table.is_allowed for table in tables]),
            actions=torch.cat([table.actions for table in tables]),
            logp=torch.cat([table.logp for table in tables]),
        )


@dataclass(frozen=True)
class SampledPrompts:
    """Prompts for n episodes.

    Attributes:
        atoms: For each episode and each of the three agents, the numbers of its atoms in the order of the prompt.
        steps: The decisions that led to them.
    """

    atoms: list[tuple[tuple[int, ...], ...]]
    steps: PromptSteps


class PromptPolicy(nn.Module):
    """pi_prompt of ARC: given question and structure, atoms for one agent after the other.

    Attributes:
        roles: (3, atoms) bool, which agent may get which prompt instruction (atom).
        num_inputs: Length of the state of a decision, see `make_states`.
    """

    def __init__(self, num_inputs: int, roles: np.ndarray, hidden: int = HIDDEN) -> None:
        """Make a policy whose choices are near uniform.

        Args:
            num_inputs: Length of the state of a question.
            roles: (3, atoms) bool, which agent may get which prompt instruction (atom).
            hidden: Width of the layers.
        """
        super().__init__()
        self.register_buffer("roles", torch.as_tensor(roles, dtype=torch.bool), persistent=False)
        structure_inputs = sum(action_space.SIZES)  # one-hot
        self.num_inputs = num_inputs + structure_inputs + NUM_AGENTS + self.num_atoms
        self.trunk = make_trunk(self.num_inputs, hidden)
        self.head = nn.Linear(hidden, self.num_atoms + 1)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    @property
    def num_atoms(self) -> int:
        return self.roles.shape[1]

    @property
    def stop(self) -> int:
        """The number of the choice STOP, behind all atoms."""
        return self.num_atoms

    def compute_logits(self, states: torch.Tensor, is_allowed: torch.Tensor) -> torch.Tensor:
        """Compute the logits of decisions.

        Args:
            states: (m, inputs) see `make_states`.
            is_allowed: (m, atoms + 1) bool, see `find_allowed_choices`.

        Returns:
            (m, atoms + 1) logits, -inf where a choice is not allowed.
        """
        return self.head(self.trunk(states)).masked_fill(~is_allowed, -torch.inf)

    def sample(
        self,
        question_states: torch.Tensor,
        structures: torch.Tensor,
        generator: torch.Generator | None,
    ) -> SampledPrompts:
        """Sample atoms for each agent of each episode, one after the other until STOP.

        Args:
            question_states: (n, inputs) of the questions.
            structures: (n, 6), or more columns, which are not read.
            generator: Source of random numbers; None for the likeliest choice of each decision.

        Returns:
            The prompts.
        """
        n = len(question_states)
        has_atom = torch.zeros(n, NUM_AGENTS, self.num_atoms, dtype=torch.bool)
        atoms: list[list[list[int]]] = [[[] for _ in range(NUM_AGENTS)] for _ in range(n)]
        num_steps = torch.zeros(n, dtype=torch.int64)  # decisions of each episode so far
        step_tables = []
        is_present = _find_present_agents(structures[:, 0])  # (n, 3)
        for agent in range(NUM_AGENTS):
            # An agent without atoms has nothing to decide: STOP alone would be a step that is discounted.
            if not self.roles[agent].any():
                continue
            is_open = is_present[:, agent].clone()  # (n,) whether the agent's prompt goes on
            for _ in range(action_space.MAX_ATOMS):
                episodes = is_open.nonzero().squeeze(-1)
                if not len(episodes):
                    break

                # One decision in each of these episodes
                atoms_so_far = has_atom[episodes, agent]
                states = self.make_states(
                    question_states[episodes], structures[episodes], agent, atoms_so_far
                )
                is_allowed = self.find_allowed_choices(agent, atoms_so_far)
                logits = self.compute_logits(states, is_allowed)
                actions = sample_choices(logits, generator)
                logp = Categorical(logits=logits).log_prob(actions)
                positions = num_steps[episodes].clone()
                step_tables.append(
                    PromptSteps(episodes, positions, states, is_allowed, actions, logp)
                )
                num_steps[episodes] += 1

                # STOP ends the prompt of the agent, an atom is added to it
                is_atom = actions != self.stop
                is_open[episodes[~is_atom]] = False
                has_atom[episodes[is_atom], agent, actions[is_atom]] = True
                for episode, atom in zip(
                    episodes[is_atom].tolist(), actions[is_atom].tolist(), strict=True
                ):
                    atoms[episode][agent].append(atom)
        if not step_tables:  # no agent has an atom to choose
            step_tables.append(self._make_empty_steps(question_states, structures))
        atoms_by_episode = [tuple(map(tuple, atoms_by_agent)) for atoms_by_agent in atoms]
        return SampledPrompts(atoms_by_episode, PromptSteps.concatenate(step_tables))

    def _make_empty_steps(
        self, question_states: torch.Tensor, structures: torch.Tensor
    ) -> PromptSteps:
        """Make a table of steps without rows, whose columns have the usual shapes and types.

        Args:
            question_states: (n, inputs).
            structures: (n, 6).

        Returns:
            The empty table.
        """
        no_numbers = torch.zeros(0, dtype=torch.int64)
        no_atoms = torch.zeros(0, self.num_atoms, dtype=torch.bool)
        return PromptSteps(
            episode=no_numbers,
            position=no_numbers,
            states=self.make_states(question_states[:0], structures[:0], 0, no_atoms),
            is_allowed=self.find_allowed_choices(0, no_atoms),
            actions=no_numbers,
            logp=torch.zeros(0),
        )

    def evaluate_actions(self, steps: PromptSteps) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate every decision.

        Args:
            steps: m decisions.

        Returns:
            (m,) log-probabilities and (m,) entropies.
        """
        logits = self.compute_logits(steps.states, steps.is_allowed)
        distribution = Categorical(logits=logits)
        return distribution.log_prob(steps.actions), distribution.entropy()

    def make_states(
        self,
        question_states: torch.Tensor,
        structures: torch.Tensor,
        agent: int,
        has_atom: torch.Tensor,
    ) -> torch.Tensor:
        """Make the states of decisions about one agent: [s_q ; one-hot structure ; one-hot agent ; atoms so far].

        Args:
            question_states: (n, inputs) of the questions.
            structures: (n, 6), or more columns, which are not read.
            agent: Number of the agent.
            has_atom: (n, atoms) bool, the prompt instructions (atoms) that are in the agent's prompt already.

        Returns:
            (n, self.num_inputs).
        """
        columns = [question_states]
        for dimension, size in enumerate(action_space.SIZES):
            columns.append(nn.functional.one_hot(structures[:, dimension], size).float())
        agent_one_hot = torch.zeros(len(question_states), len(self.roles))
        agent_one_hot[:, agent] = 1
        columns += [agent_one_hot, has_atom.float()]
        return torch.cat(columns, 1)

    def find_allowed_choices(self, agent: int, has_atom: torch.Tensor) -> torch.Tensor:
        """Find what an agent may get next: atoms (prompt instructions) of its role that it does not have yet, or STOP.

        Args:
            agent: Number of the agent.
            has_atom: (n, atoms) bool, the prompt instructions (atoms) that it has already.

        Returns:
            (n, atoms + 1) bool.
        """
        is_new = self.roles[agent] & ~has_atom
        may_stop = torch.ones(len(has_atom), 1, dtype=torch.bool)
        return torch.cat([is_new, may_stop], 1)


def _find_present_agents(workflows: torch.Tensor) -> torch.Tensor:
    """Find which agents each of n workflows has, (n, 3) bool."""
    is_present = torch.zeros(len(action_space.WORKFLOWS), NUM_AGENTS, dtype=torch.bool)
    for number, name in enumerate(action_space.WORKFLOWS):
        is_present[number, list(action_space.list_agents(name))] = True
    return is_present[workflows]
