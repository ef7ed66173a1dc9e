"""What the studies of all systems share: the means that carry a sweep out, and the tables that its cells leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from lib import store
from lib.params import Params
from lib.sweep import Cell


@dataclass(frozen=True)
class Means:
    """What carries a study out and changes none of its numbers, hence is in no cell's name.

    told: all parameters, as JSON; models, runs, cassettes: folders; before: those of finished cells that others stand
    on, by name.
    """

    told: str
    models: str
    runs: str
    cassettes: str
    before: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, params: Params, *folders: str | Path) -> "Means":
        """folders: of models, runs and cassettes."""
        return cls(params.model_dump_json(), *map(str, folders))

    @property
    def params(self) -> Params:
        return _params(self.told)


@cache
def _params(told: str) -> Params:
    """Checked once per process."""
    return Params.model_validate_json(told)


def table(todo: Sequence[Cell], runs: str | Path, name: str, nobody: str = "", whose: bool = True) -> pd.DataFrame:
    """The table `name` of all cells that left one; empty where none did. whose: with the columns arm and seed, as the
    cells' settings have them; nobody: what the arm of a cell without one is called."""
    parts = []
    for cell in todo:
        path = cell.folder(Path(runs)) / f"{name}.parquet"
        if path.exists():
            parts.append(store.read_parquet(path).assign(**(_whose(cell, nobody) if whose else {})))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _whose(cell: Cell, nobody: str) -> dict[str, Any]:
    arm = cell.settings["arm"]
    return {"arm": arm["name"] if arm else nobody, "seed": cell.settings["seed"]}
