"""Evaluation in ARC's synthetic environment: exact expected rewards of what policies choose, and their bounds.

Shapes name their axes; n is the number of questions, worlds * kinds * states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.synthetic_environment import (
    AGENT_IS_PRESENT,
    CALLS,
    STREAM,
    ConfigurationWorlds,
    compute_bounds,
)
from lib.agent_configuration.synthetic_training import (
    Elites,
    StackedTrainings,
    encode_configurations,
    make_states,
)
from lib.experiment import seeds


@dataclass(frozen=True)
class SampledEvaluation:
    """What sampled configurations come to, on average over the questions of a world and kind.

    Attributes:
        reward: (worlds, kinds) expected reward.
        outside: (worlds, kinds) share of the configurations that no elite episode has; 0 where there is no elite.
    """

    reward: np.ndarray
    outside: np.ndarray


class ConfigurationEvaluation:
    """Evaluates policies on the same questions, whatever the variant and the episodes of training.

    Attributes:
        worlds: The worlds.
        settings: `states` questions of each kind, and `num_samples` choices for each where choices are sampled.
        world: (n,) the world of each question.
        kind: (n,) its kind.
        states: (n, 1 + kinds) what policies read.
    """

    def __init__(self, worlds: ConfigurationWorlds) -> None:
        """Draw the questions, which are the same in every world."""
        self.worlds = worlds
        self.settings = worlds.settings.glass
        num_worlds = len(worlds)
        num_kinds = len(KINDS)
        num_states = self.settings.states
        kind_in_world = np.repeat(np.arange(num_kinds), num_states)  # (kinds * states,)
        self.world = np.repeat(np.arange(num_worlds), num_kinds * num_states)
        self.kind = np.tile(kind_in_world, num_worlds)
        rng = seeds.rng(*STREAM, "tests")
        noise = rng.standard_normal((num_kinds * num_states, num_kinds))
        noise = self.settings.observation_noise * noise
        self.states = make_states(self.world, self.kind, np.tile(noise, (num_worlds, 1)))

    def compute_greedy_rewards(self, trainings: StackedTrainings) -> np.ndarray:
        """The exact expected reward of the likeliest choices, (worlds, kinds)."""
        decisions = trainings.decide(self.states, None)
        probability = self._compute_probability(decisions.structures, decisions.has_atom)
        return self._average(self._compute_reward(decisions.structures, probability))

    def _compute_probability(self, structures: np.ndarray, has_atom: np.ndarray) -> np.ndarray:
        """The probability of a correct answer to each question, (n,)."""
        table = self.worlds.describe(structures)
        return self.worlds.compute_success_probability(self.world, self.kind, table, has_atom)

    def _compute_reward(self, structures: np.ndarray, probability: np.ndarray) -> np.ndarray:
        """The expected reward for each question, (n,)."""
        table = self.worlds.describe(structures)
        return self.worlds.compute_reward(probability, self.world, self.kind, table)

    def _average(self, values: np.ndarray) -> np.ndarray:
        """Average values of questions, (n,), over those of one world and kind, (worlds, kinds)."""
        return values.reshape(len(self.worlds), len(KINDS), -1).mean(-1)

    def make_rows(
        self, method: str, trainings: StackedTrainings, step: int, elites: Elites | None = None
    ) -> pd.DataFrame:
        """Evaluate policies.

        Args:
            method: Name of the variant.
            trainings: Its policies.
            step: Episodes of each training so far.
            elites: What the policies have imitated; None if they have not.

        Returns:
            A row for each world and kind of question. Of the likeliest choices: reward, correct, asked (calls of
            agents), instructions (atoms of agents that are present), and the workflow that is chosen most. Of sampled
            choices: drawn (their reward). After imitation also margin (drawn minus tau), and outside (the share of
            sampled choices that no elite episode has).
        """
        decisions = trainings.decide(self.states, None)
        workflow = decisions.structures[:, 0]
        probability = self._compute_probability(decisions.structures, decisions.has_atom)
        reward = self._compute_reward(decisions.structures, probability)
        num_atoms = (decisions.has_atom.sum(-1) * AGENT_IS_PRESENT[workflow]).sum(-1)
        sampled = self._evaluate_sampled(trainings, elites)
        columns = {
            "reward": self._average(reward),
            "correct": self._average(probability),
            "drawn": sampled.reward,
            "asked": self._average(CALLS[workflow].sum(1)),
            "instructions": self._average(num_atoms),
        }
        if elites is not None:
            columns["margin"] = sampled.reward - elites.tau
            columns["outside"] = sampled.outside

        # The workflow that is chosen most for each world and kind
        by_world_and_kind = workflow.reshape(len(self.worlds) * len(KINDS), -1)
        main_workflow = np.array([np.bincount(row).argmax() for row in by_world_and_kind])
        rows = _make_rows(columns, main_workflow)
        return rows.assign(method=method, role="paper" if step else "start", step=step)

    def _evaluate_sampled(
        self, trainings: StackedTrainings, elites: Elites | None
    ) -> SampledEvaluation:
        """Evaluate configurations that are sampled `num_samples` times for each question.

        Args:
            trainings: The policies that choose.
            elites: What the policies have imitated; None if they have not.

        Returns:
            Averages over questions and samples.
        """
        elite_codes = None if elites is None else elites.encode_elite_configurations()
        reward = 0.0
        outside = 0.0
        for sample in range(self.settings.num_samples):
            generator = seeds.torch_generator(*STREAM, "looks", seed=sample)
            decisions = trainings.decide(self.states, generator)
            structures, has_atom = decisions.structures, decisions.has_atom
            probability = self._compute_probability(structures, has_atom)
            reward = reward + self._average(self._compute_reward(structures, probability))
            if elite_codes is not None:
                codes = encode_configurations(self.world, self.kind, structures, has_atom)
                is_outside = [code not in elite_codes for code in codes]
                outside = outside + self._average(np.array(is_outside, float))
        num_samples = self.settings.num_samples
        return SampledEvaluation(reward / num_samples, outside / num_samples)


def make_bound_rows(worlds: ConfigurationWorlds, step: int) -> pd.DataFrame:
    """Make the rows of the best constant and of the optimum.

    Args:
        worlds: The worlds.
        step: What the rows have as step.

    Returns:
        Rows as of `ConfigurationEvaluation.make_rows`, with reward alone.
    """
    bounds = compute_bounds(worlds)
    constant_workflow = np.repeat(bounds.constant_structure[:, 0], len(KINDS))
    constant = _make_rows({"reward": bounds.constant}, constant_workflow)
    optimum = _make_rows({"reward": bounds.optimum}, bounds.optimal_workflow.ravel())
    tables = [
        constant.assign(method="best constant", role="constant"),
        optimum.assign(method="optimum", role="oracle"),
    ]
    return pd.concat(tables, ignore_index=True).assign(step=step)


def _make_rows(columns: dict[str, np.ndarray], workflow: np.ndarray) -> pd.DataFrame:
    """Make a row for each world and kind of question.

    Args:
        columns: (worlds, kinds) values by name.
        workflow: (worlds * kinds,) number of the workflow.

    Returns:
        The columns, with seed (of the world), item, condition (the kind) and workflow (its name).
    """
    values = next(iter(columns.values()))
    worlds, kinds = np.indices(values.shape).reshape(2, -1)
    rows = pd.DataFrame({name: np.asarray(value, float).ravel() for name, value in columns.items()})
    kind_names = [KINDS[kind].name for kind in kinds]
    # What a kind of question asks for differs between worlds, so each world has items of its own.
    items = [f"world {world}, {name}" for world, name in zip(worlds, kind_names, strict=True)]
    return rows.assign(
        seed=worlds,
        item=items,
        condition=kind_names,
        workflow=[WORKFLOWS[number] for number in workflow],
    )
