"""A training of many updates that may be killed anywhere: its loop, and the tables that grow with it.

    tables = TrainingTables(folder, learner)  # goes on from the last checkpoint
    run_updates(learner, num_updates, make_update, tables, save_every, report_progress)

Left out: what an update does. A system collects rollouts, hands them to its learner and adds rows to the tables.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pandas as pd

from lib.experiment import artifacts

CHECKPOINT = "checkpoint.safetensors"
TRAINING_SHARE = 0.9  # of a job's progress; the rest is its tests
TABLES = (
    "rollouts",
    "learning",
)  # what a training leaves: its episodes, and what the trainer says of each update


class Learner(Protocol):
    """What a training needs of the object that learns."""

    step: int  # updates so far

    def save(self, path: Path) -> None:
        """Writes a checkpoint from which learning goes on as if it had never stopped."""

    def restore(self, path: Path) -> None:
        """Goes back to a checkpoint."""


class TrainingTables:
    """Tables that grow during a training, and are saved together with the learner."""

    def __init__(self, folder: Path, learner: Learner) -> None:
        """Begins the tables, or reads those of a training that was interrupted and restores its learner.

        Args:
            folder: Folder of the job.
            learner: Set back to the last checkpoint where there is one.
        """
        self.folder = folder
        self.learner = learner
        self.checkpoint = folder / CHECKPOINT
        self._tables: dict[str, list[pd.DataFrame]] = {}
        if self.has_checkpoint():
            learner.restore(self.checkpoint)
            for name in TABLES:
                self._read_saved_rows(name)

    def has_checkpoint(self) -> bool:
        """Says whether there is anything to go on from."""
        return self.checkpoint.exists()

    def _read_saved_rows(self, name: str) -> None:
        """Reads the saved rows of a table up to the checkpoint's step; later ones are made again.

        Args:
            name: Name of the table, such as "rollouts" or "learning".
        """
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            return
        rows = artifacts.read_parquet(path)
        # A rollout bears the number of the update that it is for, a row of `learning` that of the update done.
        last_step = self.learner.step if name == "learning" else self.learner.step - 1
        self._tables[name] = [rows[rows["step"] <= last_step]]

    def add(self, name: str, rows: pd.DataFrame) -> None:
        """Adds rows, with a column `step`, to a table of `TABLES`."""
        self._tables.setdefault(name, []).append(rows)

    def save(self) -> None:
        """Writes the tables, then the checkpoint: rows beyond a checkpoint are left out when it is read."""
        for name, tables in self._tables.items():
            rows = pd.concat(tables, ignore_index=True)
            artifacts.write_parquet(self.folder / f"{name}.parquet", rows)
        self.learner.save(self.checkpoint)


def remove_checkpoint(folder: Path) -> None:
    """Removes what only an unfinished training needs from the folder of a job."""
    (folder / CHECKPOINT).unlink(missing_ok=True)


def run_updates(
    learner: Learner,
    num_updates: int,
    make_update: Callable[[], None],
    tables: TrainingTables,
    save_every: int,
    report_progress: Callable[[float], None],
) -> None:
    """Runs a training to its last update.

    Args:
        learner: Its `step` says how many updates are done, some of them perhaps before an interruption.
        num_updates: How many there are to be.
        make_update: Collects episodes, lets the learner learn from them, and adds rows to `tables`.
        tables: Saved every `save_every` updates and at the end.
        save_every: Updates between checkpoints, which changes no result.
        report_progress: Called with the fraction of the job's work that is done.
    """
    while learner.step < num_updates:
        make_update()
        report_progress(TRAINING_SHARE * learner.step / num_updates)
        if learner.step % save_every == 0:
            tables.save()
    tables.save()
