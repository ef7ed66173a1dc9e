"""What a training and its episodes leave: tables that grow, and an episode in parts by who wrote them."""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd

from lib.experiment import artifacts
from lib.rl.rollout import Episode
from lib.rl.token_ppo import Learner

VERSION = 1  # of the tables of a training and the parts of an episode


class Logs:
    """Tables that grow during a training, and are saved together with the learner."""

    def __init__(self, folder: Path, learner: Learner) -> None:
        self.folder, self.learner, self.tables = folder, learner, {}
        self.checkpoint = folder / "checkpoint.safetensors"
        if self.checkpoint.exists():
            learner.restore(self.checkpoint)
            for name in ("rollouts", "learning"):
                if (path := folder / f"{name}.parquet").exists():
                    known = artifacts.read_parquet(path)
                    last = learner.step if name == "learning" else learner.step - 1
                    self.tables[name] = [known[known["step"] <= last]]

    def add(self, name: str, rows: pd.DataFrame) -> None:
        self.tables.setdefault(name, []).append(rows)

    def save(self) -> None:
        """Tables first: rows of updates beyond the checkpoint are left out when it is read."""
        for name, parts in self.tables.items():
            artifacts.write_parquet(
                self.folder / f"{name}.parquet", pd.concat(parts, ignore_index=True)
            )
        self.learner.save(self.checkpoint)


def spoken(
    episode: Episode, decode: Callable[[Sequence[int]], str]
) -> list[tuple[str, str, float]]:
    """An episode in parts, by who wrote the tokens (the mask says it): prompt, controller, an expert, or nobody (the
    response to a malformed turn); the part's text; and what it cost in dollars."""
    hearings = iter([x for x in episode.exchanges if x.heard or x.malformed])
    parts = [("prompt", decode(episode.ids[: episode.prompt]), 0.0)]
    at = episode.prompt
    for own, run in groupby(episode.mask[episode.prompt :]):
        end = at + len(list(run))
        text = decode(episode.ids[at:end])
        heard = None if own else next(hearings)
        who = "controller" if own else heard.call.expert if heard.heard else "nobody"
        parts.append((who, text, heard.heard.cost_usd if heard and heard.heard else 0.0))
        at = end
    return parts
