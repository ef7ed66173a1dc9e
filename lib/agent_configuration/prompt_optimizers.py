"""Baselines that improve prompts, or let two agents talk, in one fixed structure for all questions of a kind.

Three of ARC's Table 1: GEPA, which is the package `gepa` (see `gepa_baseline`); and two that are written here, since
their packages bring what this project does without: few-shot bootstrapping in the style of DSPy's
BootstrapFewShotWithRandomSearch, and a conversation of an assistant and a critic in the style of AutoGen.

All three see training questions only, and have as many episodes as a training of ARC on one kind. The structure that
prompts are optimized in is the workflow, with all tools and the largest budgets, that has the best mean reward on
training questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib.agent_configuration.action_space import (
    AGENTS,
    SUBSETS,
    WORKFLOWS,
    Configuration,
    Structure,
    list_agents,
    repair_structure,
)
from lib.agent_configuration.agent_system import ConfiguredAnswer, ConfiguredQuestion, System
from lib.agent_configuration.agent_team import Note, Team, draft, evidence
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.workflows import ROUNDS
from lib.experiment import seeds
from lib.tasks import Item

VERSION = 1  # of prompt optimizers and the conversation
DEMONSTRATION_SETS = 8  # candidates of the random search, beside the prompt without demonstrations
MAX_DEMONSTRATIONS = 2  # of one agent
SEPARATOR = " ; "  # between the instructions of a text for lab agents

Candidate = dict[str, str]  # the instructions of each agent, by role


# The two-agent conversation ------------------------------------------------------------------------

CONVERSATION = Configuration((WORKFLOWS.index("verify"), SUBSETS - 1, SUBSETS - 1, 2, 2, 2))


async def converse(team: Team, question: str) -> Note:
    """Let an assistant answer and a critic object, until the critic is content or ROUNDS are over.

    Args:
        team: The first agent is the assistant, the second the critic.
        question: The question.

    Returns:
        The last note of the assistant.
    """
    answer = await team.reason(question)
    for _ in range(ROUNDS):
        check = await team.verify(question, draft(answer))
        if check.answer == "right":
            break
        answer = await team.reason(question, draft(answer), evidence(check))
    return answer


# Candidates in a fixed structure -------------------------------------------------------------------


def select_structure(system: System, items: Sequence[Item], weights: Weights) -> Structure:
    """Select the workflow with the best mean reward on training questions.

    Args:
        system: The agents.
        items: The questions.
        weights: Coefficients of the reward.

    Returns:
        The structure with this workflow, all tools and the largest budgets.
    """
    all_tools = SUBSETS - 1
    large_budget = 2
    structures = []
    jobs = []
    for workflow in range(len(WORKFLOWS)):
        structure = repair_structure((workflow, all_tools, all_tools, *[large_budget] * 3))
        structures.append(structure)
        jobs += [ConfiguredQuestion(item, Configuration(structure)) for item in items]
    # (structures, items), the items of a structure side by side
    rewards = system.compute_rewards(jobs, system.run(jobs), weights)
    mean_rewards = np.nanmean(rewards.reshape(len(structures), len(items)), axis=1)
    return structures[int(mean_rewards.argmax())]


@dataclass
class PromptedSystem:
    """The agents with a fixed structure, whose prompts are texts.

    Attributes:
        system: The agents; it learns the texts that it is handed.
        structure: The structure of every configuration.
        weights: Coefficients of the reward.
    """

    system: System
    structure: Structure
    weights: Weights

    def configure(self, candidate: Mapping[str, str]) -> Configuration:
        """Make the configuration whose agents get the texts of a candidate; the system learns the texts.

        Args:
            candidate: The instructions of each agent, by role.

        Returns:
            The configuration, in which a text is its own name.
        """
        present = list_agents(WORKFLOWS[self.structure[0]])
        texts_by_agent = []
        for agent, role in enumerate(AGENTS):
            texts = []
            if agent in present and candidate.get(role):
                texts = candidate[role].split(SEPARATOR)
            # An atom is named by its own text, so that the system can look it up like one of the library.
            self.system.prompts.update({text: text for text in texts})
            texts_by_agent.append(tuple(texts))
        return Configuration(self.structure, tuple(texts_by_agent))

    def play(
        self, items: Sequence[Item], candidate: Mapping[str, str]
    ) -> tuple[list[ConfiguredAnswer], np.ndarray]:
        """Let agents answer questions under a candidate.

        Args:
            items: n questions.
            candidate: The instructions of each agent, by role.

        Returns:
            The n outcomes, and (n,) rewards, 0 for an answer that the infrastructure lost.
        """
        configuration = self.configure(candidate)
        jobs = [ConfiguredQuestion(item, configuration) for item in items]
        outcomes = self.system.run(jobs)
        rewards = self.system.compute_rewards(jobs, outcomes, self.weights)
        return outcomes, np.nan_to_num(rewards)


# Few-shot bootstrapping ----------------------------------------------------------------------------


def bootstrap_demonstrations(
    prompted: PromptedSystem, items: Sequence[Item], max_episodes: int, seed: int
) -> Candidate:
    """Put few-shot demonstrations from correct episodes into the agents' prompts, and select the best set of them.

    Args:
        prompted: The agents with their structure.
        items: Training questions; half of them yield demonstrations, half choose among sets.
        max_episodes: Questions that may be played.
        seed: Seed of the random sets.

    Returns:
        The best candidate by mean reward, the one without demonstrations among them.
    """
    rng = seeds.rng("configuration", "bootstrap", seed=seed)
    # Sets are compared on questions that no demonstration is taken from.
    half = max(1, len(items) // 2)
    outcomes, _ = prompted.play(items[:half], {})
    demonstrations: dict[str, list[str]] = {role: [] for role in AGENTS}
    for item, outcome in zip(items, outcomes, strict=False):
        if not outcome.correct:
            continue
        for note in outcome.trail:
            demonstrations[AGENTS[note.agent]].append(f"question {item.prompt} {note.whole}")

    candidates: list[Candidate] = [{}]
    for _ in range(DEMONSTRATION_SETS):
        candidate = {}
        for role, examples in demonstrations.items():
            order = rng.permutation(len(examples))[: 1 + int(rng.integers(MAX_DEMONSTRATIONS))]
            # The separator stands within what agents say, too.
            chosen = [examples[i].replace(SEPARATOR, " , ") for i in order]
            candidate[role] = SEPARATOR.join(chosen)
        candidates.append(candidate)

    validation = items[half:] or items
    # The first half was played once; what remains of the episodes decides how many sets can be compared.
    num_affordable = max(1, (max_episodes - half) // len(validation))
    scores = []
    for candidate in candidates[:num_affordable]:
        _, rewards = prompted.play(validation, candidate)
        scores.append(rewards.mean())
    return candidates[int(np.argmax(scores))]
