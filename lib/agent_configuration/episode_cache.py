"""Episodes that were played outside of a training, kept in a file: a run that goes on asks no agent twice.

episodes = EpisodeCache(folder / "episodes-played.parquet", system, weights, progress)
rows = episodes.play(jobs, "held-out questions")
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import (
    ConfiguredAnswer,
    ConfiguredQuestion,
    System,
    make_table,
)
from lib.agent_configuration.rewards import Weights
from lib.experiment import artifacts
from lib.rl.user_training.progress import ProgressLine
from lib.tasks import Item

VERSION = 1  # of the columns
EPISODES_AT_ONCE = 32  # after so many the file is written

_Key = tuple[str, str, int]  # prompt, digest of the configuration, draw


def get_group(item: Item) -> str:
    """Name the group of a user's question for tables."""
    return item.group


class EpisodeProgress:
    """Says on the terminal what is under way, and how many of its episodes are finished.

    Attributes:
        progress: The line on the terminal.
    """

    def __init__(self, progress: ProgressLine) -> None:
        self.progress = progress
        self._activity = ""
        self._num_before = 0
        self._num_episodes: int | None = None

    def begin(self, activity: str, num_before: int = 0, num_episodes: int | None = None) -> None:
        """Begin with something else.

        Args:
            activity: What is done, in a few words.
            num_before: Episodes of it that are finished already.
            num_episodes: Number of its episodes in all; None for those that are under way together.
        """
        self._activity = activity
        self._num_before = num_before
        self._num_episodes = num_episodes
        self.progress.activity = activity

    def count(self, num_finished: int, num_in_batch: int) -> None:
        """Count finished episodes of a batch, as `System.report_progress`."""
        total = num_in_batch if self._num_episodes is None else self._num_episodes
        finished = self._num_before + num_finished
        self.progress.activity = f"{self._activity}, {finished} of {total} episodes"


class EpisodeCache:
    """Plays questions under configurations, and keeps the outcomes in a file.

    Attributes:
        path: The file.
        system: The agents.
        weights: Coefficients of the reward.
        progress: Is told what is under way.
    """

    def __init__(
        self,
        path: Path,
        system: System,
        weights: Weights,
        progress: EpisodeProgress,
    ) -> None:
        self.path = path
        self.system = system
        self.weights = weights
        self.progress = progress
        self._rows: dict[_Key, dict] = {}
        if path.exists():
            rows = artifacts.read_parquet(path)
            # A lost episode is tried again: its server may be well by now.
            for row in rows[rows["lost_calls"] == 0].to_dict("records"):
                self._rows[row["prompt"], row["digest"], row["draw"]] = row

    def __len__(self) -> int:
        return len(self._rows)

    def list_rows(self) -> pd.DataFrame:
        """A row for each episode that was played."""
        return pd.DataFrame(list(self._rows.values()))

    def play(self, jobs: Sequence[ConfiguredQuestion], activity: str) -> pd.DataFrame:
        """Play what was not played yet.

        Args:
            jobs: Questions under configurations.
            activity: What this is for, in a few words.

        Returns:
            A row for each job, in order: the columns of `agent_system.make_table`, with draw, failure_kinds (words with
            blanks between them), and spoken (what every agent wrote, as JSON of [writer, text, dollars]).
        """
        missing = {_make_key(job): job for job in jobs if _make_key(job) not in self._rows}
        open_jobs = list(missing.values())
        for first in range(0, len(open_jobs), EPISODES_AT_ONCE):
            self.progress.begin(activity, first, len(open_jobs))
            chunk = open_jobs[first : first + EPISODES_AT_ONCE]
            self._play_chunk(chunk)
            artifacts.write_parquet(self.path, self.list_rows())
        rows = pd.DataFrame([self._rows[_make_key(job)] for job in jobs])
        # Two questions may have one text.
        return rows.assign(
            key=[job.item.id for job in jobs],
            group=[job.item.group for job in jobs],
            difficulty=[job.item.difficulty for job in jobs],
        )

    def _play_chunk(self, jobs: Sequence[ConfiguredQuestion]) -> None:
        """Let agents answer some questions together, and keep the rows of their answers.

        Args:
            jobs: Questions with their configurations.
        """
        outcomes = self.system.run(jobs)
        rewards = self.system.compute_rewards(jobs, outcomes, self.weights)
        rows = make_table(jobs, outcomes, rewards, get_group).assign(
            draw=[job.draw for job in jobs],
            failure_kinds=[" ".join(outcome.failures) for outcome in outcomes],
            spoken=[
                write_transcript(job.configuration, outcome)
                for job, outcome in zip(jobs, outcomes, strict=True)
            ],
        )
        for job, row in zip(jobs, rows.to_dict("records"), strict=True):
            self._rows[_make_key(job)] = row


def _make_key(job: ConfiguredQuestion) -> _Key:
    """Equal for jobs that have the same outcome."""
    return job.item.prompt, job.configuration.digest, job.draw


def write_transcript(configuration: Configuration, outcome: ConfiguredAnswer) -> str:
    """Write an episode in words.

    Args:
        configuration: Configuration of the episode.
        outcome: Its outcome, with the notes of all agents.

    Returns:
        JSON of [writer, text, dollars] for the configuration and for each call of an agent; dollars are always 0.
    """
    entries = [["configuration", str(configuration), 0.0]]
    for note in outcome.trail:
        # Steps are results of tools and thoughts, and thoughts may stand in the last turn as well.
        text = note.text
        if " ".join(note.steps.split()) not in " ".join(note.text.split()):
            text = f"{note.steps}\n\n{note.text}"
        entries.append([f"{note.role} (agent {note.agent + 1})", text, 0.0])
    return json.dumps(entries)
