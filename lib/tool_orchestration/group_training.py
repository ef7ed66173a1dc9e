"""The training episodes of one update: random tasks with menus and preferences, each in several rollouts.

Training on a user's questions (`train_command`) and on customer service (`service_training`) differ in what an episode
is; both draw and reward it here. Left out: how episodes are rolled out, and the evaluation on held-out tasks.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from lib.config import ToolSettings
from lib.experiment import seeds
from lib.rl.controller_training import UpdateData
from lib.rl.user_training.processes import ProcessShare
from lib.rl.user_training.training import average_rollouts
from lib.tasks import Item
from lib.tool_orchestration import episode_rewards, episode_specs
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_menu import Offer


@dataclass(kw_only=True)
class GroupTraining(ABC):
    """Collects the training episodes of ToolOrchestra, in groups of rollouts of one task.

    Attributes:
        settings: Settings of ToolOrchestra.
        offers: Every tool at its usual price and latency, by name.
        share: The part of the work of this process.
        groups: Number of tasks of an update in this process; a group is the rollouts of one task.
        seed: Seed of the run.
    """

    # Name of the random numbers that draw tasks, menus and preferences.
    stream: ClassVar[str]

    settings: ToolSettings
    offers: Mapping[str, Offer]
    share: ProcessShare
    groups: int
    seed: int

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of all tools on menus, in the order of outcome and preference vectors."""
        return tuple(self.offers)

    @property
    @abstractmethod
    def training_items(self) -> Sequence[Item]:
        """Tasks to learn from."""

    @abstractmethod
    def roll_out_update(self, assignments: Sequence[Assignment], step: int, seed: int) -> list[Any]:
        """Roll out the episodes of an update.

        Args:
            assignments: One for each episode; those of a group are equal.
            step: Number of the update.
            seed: Seed of all random numbers within the episodes.

        Returns:
            An ended episode for each assignment.
        """

    @abstractmethod
    def make_update_rows(self, episodes: Sequence[Any], tools: Sequence[str]) -> pd.DataFrame:
        """Make a row per training episode, with the columns that `average_rollouts` reads."""

    def complete_rows(self, rollouts: pd.DataFrame, episodes: Sequence[Any]) -> pd.DataFrame:
        """Add columns to the rows of an update, behind the reward; none, unless a training has some."""
        return rollouts

    def collect_episodes(self, step: int) -> UpdateData:
        """Collect the episodes of one update: random tasks with menus and preferences, each in several rollouts.

        Args:
            step: Number of the update, which seeds all random draws.

        Returns:
            Samples for the trainer, a row per episode, and counts: means over episodes, how many were learned from,
            and how many each filter left out.
        """
        # Every update of every process has its own random numbers.
        settings = self.settings
        update_seed = (self.seed * 10**6 + step) * 1_000 + self.share.rank
        rng = seeds.rng("toolorchestra", self.stream, seed=update_seed)

        # A group shares task, menu and preference, so that its rewards are comparable.
        indices = rng.integers(len(self.training_items), size=self.groups)
        items = [self.training_items[index] for index in indices]
        group_assignments = episode_specs.draw_assignments(
            items, self.offers, self.tools, settings.spread, rng
        )
        assignments = []
        for assignment in group_assignments:
            assignments += [assignment] * settings.rollouts

        episodes = self.roll_out_update(assignments, step, update_seed)
        data = episode_rewards.make_update_data(
            episodes,
            np.repeat(np.arange(self.groups), settings.rollouts),  # (episodes,)
            self.tools,
            settings.least_deviation,
            step,
            self.make_update_rows,
        )

        # What the log of the training shows.
        rollouts = self.complete_rows(data.rollouts, episodes)
        counts = {f"left_out_{name}": count for name, count in data.counts.items()}
        num_learned_from = counts.pop("left_out_kept")
        summary = average_rollouts(rollouts) | {"learned_from": num_learned_from} | counts
        return UpdateData(data.samples, rollouts, summary)
