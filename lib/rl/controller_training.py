"""The updates of a controller: collect episodes, learn from them, write down what happened; the same in every system.

    train_controller(learner, generator, num_updates, collect_episodes, tables, save_every, report_progress)

Left out: what is collected and how it is rewarded, which a system's `collect_episodes` does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from lib.experiment.training import TrainingTables, run_updates
from lib.rl.token_batch import Sample
from lib.rl.token_ppo import TokenPPO


@dataclass(frozen=True)
class UpdateData:
    """What the episodes of one update come to.

    Attributes:
        samples: What is learned from.
        rollouts: A row per episode, with the number of the update in the column `step`.
        counts: Columns of the table of learning, beside those of the trainer.
    """

    samples: Sequence[Sample]
    rollouts: pd.DataFrame
    counts: Mapping[str, float] = field(default_factory=dict)


def train_controller(
    learner: TokenPPO,
    generator,
    num_updates: int,
    collect_episodes: Callable[[int], UpdateData],
    tables: TrainingTables,
    save_every: int,
    report_progress: Callable[[float], None],
) -> None:
    """Train a controller to its last update.

    Args:
        learner: Its `step` says how many updates are done, some of them perhaps before an interruption.
        generator: Generator of `lib.rl.generators`; it reads the weights anew after every update.
        num_updates: How many there are to be.
        collect_episodes: From the number of the update to its episodes; equal numbers give equal episodes.
        tables: Get the rows of `rollouts` and `learning`.
        save_every: Updates between checkpoints, which changes no result.
        report_progress: Called after every update with the fraction of the work that is done.
    """
    generator.refresh()  # it may go on from a checkpoint

    def make_update() -> None:
        """Collects the episodes of the next update, learns from them, and adds both to the tables."""
        data = collect_episodes(learner.step)
        # Also where nothing is learned from them: every episode was paid for.
        tables.add("rollouts", data.rollouts)
        # Where replies are lost or all groups agree, there may be too little to learn from.
        has_enough = len(data.samples) > 1
        statistics = learner.update(data.samples) if has_enough else learner.skip_update()
        generator.refresh()  # it may hold a copy of the weights
        row = {"step": learner.step} | dict(data.counts) | statistics
        tables.add("learning", pd.DataFrame([row]))

    run_updates(learner, num_updates, make_update, tables, save_every, report_progress)
