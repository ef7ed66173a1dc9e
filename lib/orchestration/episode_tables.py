"""What is recorded of the episodes that one decision model plays: a row per step, and a row per episode."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.llm import reply_shares
from lib.orchestration.decision_model import LOST, UNUSABLE, Decision, DecisionUsage
from lib.orchestration.domain_descriptions import Describer

REASONING_LENGTH = 300  # characters of a model's reasoning that a step keeps
_USAGE_COLUMNS = ("calls", "tokens_in", "tokens_out", "cost_usd", "kwh", "invalid_replies")
# What an episode came to, step by step.
_OUTCOME_COLUMNS = {"education": "mastery_after", "minigrid": "gold"}


@dataclass
class PlayedEpisodes:
    """What one decision model did.

    Attributes:
        episodes: A row per episode.
        steps: A row per step.
        exchanges: By episode, its steps' prompts and replies; empty unless the model keeps them.
    """

    episodes: pd.DataFrame
    steps: pd.DataFrame
    exchanges: dict[int, list[Decision]]


@dataclass
class BatchStep:
    """One step of all running episodes: the states before it, who decided what, and what came of it.

    Attributes:
        step: Number of the step, from 0.
        episodes: (running,) numbers of the running episodes.
        state_features: The states before the step in numbers, (running,) by name.
        states_in_words: The states before the step in words, for models that read them; None for others.
        chosen_policies: (running,) the policy that acts, as an index of those on the menu.
        actions: (running,) the action that the chosen policy takes in the environment.
        criterion_values: (running, criteria) rewards of the step: objectives, then further measures.
        measurements_after: What is measured after the step, such as mastery, (running, ...) by name.
        decisions: What the decision model answered, one for each running episode; empty at steps without a decision,
            in which the policy that was chosen last goes on.
    """

    step: int
    episodes: np.ndarray
    state_features: Mapping[str, np.ndarray]
    states_in_words: Sequence[Mapping[str, str]] | None
    chosen_policies: np.ndarray
    actions: np.ndarray
    criterion_values: np.ndarray
    measurements_after: Mapping[str, np.ndarray]
    decisions: Sequence[Decision]


class EpisodeRecorder:
    """Collects the steps of all episodes, and makes tables of them."""

    def __init__(self, describer: Describer, policies: Sequence[str], weights: np.ndarray) -> None:
        """Begin with no step.

        Args:
            describer: Names the objectives and further measures of the domain.
            policies: Names of the policies on the menu.
            weights: (episodes, criteria) of the queries, for the utility of an episode.
        """
        self.domain = describer.domain
        self.averages_over_steps = describer.averages_over_steps
        self.policies = np.array(policies)
        self.weights = weights
        self._steps: list[pd.DataFrame] = []

    def record_step(self, batch_step: BatchStep) -> None:
        """Append one step as a table with a row for each running episode.

        Args:
            batch_step: The states, decisions, actions and rewards of the step.
        """
        num_running = len(batch_step.episodes)
        columns: dict[str, Any] = {
            "episode": batch_step.episodes,
            "step": np.full(num_running, batch_step.step),
            "choice": batch_step.chosen_policies,
            "action": batch_step.actions,
        }

        # Rewards of the step, the state before it, and what was measured after it.
        for index, values in enumerate(batch_step.criterion_values.T):
            columns[f"result_{index}"] = values
        for name, values in batch_step.state_features.items():
            columns[name.replace(" ", "_")] = values
        for name, values in batch_step.measurements_after.items():
            columns[name] = _write_levels(values) if values.ndim == 2 else values

        # What the decision model answered, and what asking it took; empty where no decision was due.
        was_decided = bool(batch_step.decisions)
        decisions = batch_step.decisions or [Decision() for _ in range(num_running)]
        columns["decided"] = np.full(num_running, int(was_decided))
        columns["tried"] = [";".join(decision.calls) for decision in decisions]
        columns["failure"] = [decision.failure for decision in decisions]
        columns["reasoning"] = [decision.reasoning[:REASONING_LENGTH] for decision in decisions]
        usages = [decision.usage for decision in decisions]
        for name in _USAGE_COLUMNS:
            columns[name] = [getattr(usage, name) for usage in usages]
        columns["failure_kinds"] = [";".join(usage.failure_kinds) for usage in usages]
        self._steps.append(pd.DataFrame(columns))

    def tabulate_steps(self) -> pd.DataFrame:
        """All steps that were recorded as one table, episode by episode; policies by name."""
        steps = pd.concat(self._steps, ignore_index=True)
        steps["choice"] = self.policies[steps["choice"]]
        return steps.sort_values(["episode", "step"], kind="stable", ignore_index=True)

    def tabulate_episodes(
        self, steps: pd.DataFrame, usages: Sequence[DecisionUsage]
    ) -> pd.DataFrame:
        """Make a table with one row per episode: its results, the policies that acted, and what deciding cost.

        Args:
            steps: A row per step, as `tabulate_steps` returns them.
            usages: Calls, tokens and dollars of each episode's decisions and summaries.

        Returns:
            Length, objectives and utility; lists of policies and outcomes by step; counts of decisions, calls and
            failures.
        """
        table = self._tabulate_results(steps)

        # Step by step: who acted, and what it came to.
        steps_by_episode = steps.groupby("episode", sort=True)
        outcome_column = _OUTCOME_COLUMNS[self.domain.name]
        table["chosen"] = steps_by_episode["choice"].agg(list).to_list()
        table["outcomes"] = steps_by_episode[outcome_column].agg(list).to_list()

        # Decisions, and those that failed.
        table["decisions"] = steps_by_episode["decided"].sum().to_numpy()
        for column, failure in (("malformed", UNUSABLE), ("failures", LOST)):
            has_failed = steps["failure"] == failure
            table[column] = has_failed.groupby(steps["episode"]).sum().to_numpy()

        # Summaries belong to no decision, so usage is counted by episode.
        for name in _USAGE_COLUMNS:
            table[name] = [getattr(usage, name) for usage in usages]
        failure_counts = [reply_shares.count_failure_kinds(usage.failure_kinds) for usage in usages]
        for name in ("failed", "truncated", "unusable"):
            table[f"replies_{name}"] = [counts[name] for counts in failure_counts]
        return table

    def _tabulate_results(self, steps: pd.DataFrame) -> pd.DataFrame:
        """Compute length, objectives and utility of each episode.

        Args:
            steps: A row per step, with the value of every criterion.

        Returns:
            A row per episode: length in steps, a column for each criterion, reward (the utility) and correct (0 or
            1).
        """
        objectives = [f"d{i + 1}" for i in range(len(self.domain.objectives))]
        criteria = [*objectives, *self.domain.measures]
        result_columns = [f"result_{i}" for i in range(len(criteria))]
        steps_by_episode = steps.groupby("episode", sort=True)
        length = steps_by_episode.size().to_numpy()
        criterion_values = steps_by_episode[result_columns].sum().to_numpy()  # (episodes, criteria)
        if self.averages_over_steps:
            criterion_values = criterion_values / length[:, None]

        table = pd.DataFrame({"length": length})
        for name, values in zip(criteria, criterion_values.T, strict=True):
            table[name] = values
        # Utility: sum over criteria of weight x value.
        table["reward"] = (criterion_values * self.weights).sum(axis=1)
        # The goal is reached or not; students have no such result.
        table["correct"] = criterion_values[:, 0] if self.domain.name == "minigrid" else np.nan
        return table


def _write_levels(levels_by_row: np.ndarray) -> list[str]:
    """(rows, questions) levels of the questions as digits from 1 on; questions that were not asked have none."""
    texts = []
    for levels in levels_by_row:
        digits = [str(level + 1) for level in levels if level >= 0]
        texts.append("".join(digits))
    return texts
