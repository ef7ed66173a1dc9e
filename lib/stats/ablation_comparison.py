"""What an ablation leaves: the same measures of several variants, paired by seed and by what they were tried on.

A gain is the mean difference between a variant and the one that it is held against, inside pairs of seed and unit (a
student, a question), by `lib.stats`: where seeds share their units both are sampled, where every seed has units of
its own seeds are. A start that has one run is held against each of several.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from lib.stats import estimates

BETTER, WORSE, OTHER, UNCLEAR = "clearly better", "clearly worse", "clear, and neither", "not clear"


@dataclass(frozen=True)
class Measure:
    """A column of a comparison's frame. better: `higher`, `lower`, or empty where neither is."""

    column: str
    label: str
    better: str = "higher"

    def look(self, gain: pd.Series) -> str:
        """What a gain is: clear where its interval leaves 0 out, and then for the better, the worse, or neither."""
        if not (gain["ci_low"] > 0 or gain["ci_high"] < 0):
            return UNCLEAR
        return (
            OTHER
            if not self.better
            else BETTER
            if (gain["value"] > 0) == (self.better == "higher")
            else WORSE
        )


@dataclass(frozen=True)
class Comparison:
    """One ablation.

    name: in metrics; about: what is changed, as a few words; frame: one row per variant, seed and unit, with the
    columns of measures, units that seeds do not share under names of their own; against: each variant, and the one
    that it is held against; measures: the first is what the answer is about; backend: who decided.
    Raises ValueError for a variant that is not in the frame.
    """

    name: str
    about: str
    frame: pd.DataFrame
    against: Mapping[str, str]
    measures: tuple[Measure, ...]
    backend: str

    def __post_init__(self) -> None:
        there = set(self.frame["variant"])
        missing = sorted((set(self.against) | set(self.against.values())) - there)
        if missing:
            raise ValueError(f"{self.name}: no rows of {missing}; there are {sorted(there)}")

    @property
    def main(self) -> Measure:
        """What the answer is about."""
        return self.measures[0]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The frame as `lib.stats` takes it."""
        return self.frame.assign(item=self.frame["unit"])

    @cached_property
    def levels(self) -> dict[str, pd.DataFrame]:
        """By column, means of every variant."""
        return {m.column: estimates.mean(self.rows, m.column, "variant") for m in self.measures}

    @cached_property
    def gains(self) -> dict[str, pd.DataFrame]:
        """By column, variant minus what it is held against, with its `look`. Raises ValueError for variants that were
        not tried on the same things."""
        return {m.column: self._gains(m) for m in self.measures} if self.against else {}

    def _gains(self, m: Measure) -> pd.DataFrame:
        pairs = {
            new: estimates.gap(self.rows, m.column, {"variant": new}, {"variant": old}).iloc[0]
            for new, old in self.against.items()
        }
        found = pd.DataFrame(pairs).T.rename_axis("variant")
        return found.assign(look=[m.look(row) for _, row in found.iterrows()])

    def relative(self) -> pd.DataFrame:
        """Gains in the first measure as shares of what they are held against, taken as known; without those whose
        reference is 0."""
        found = self.gains[self.main.column]
        bases = (
            self.levels[self.main.column]["value"].abs().loc[list(self.against.values())].to_numpy()
        )
        ends = ["value", "ci_low", "ci_high"]
        return found.assign(
            **(found[ends].div(np.where(bases > 1e-9, bases, np.nan), axis=0))
        ).dropna(subset="value")


def slug(variant: str) -> str:
    """A variant's part of a metric's name."""
    kept = "".join(c if c.isalnum() or c in "-+." else " " for c in variant).replace(".", "p")
    return "_".join(kept.split()).lstrip("-+_")


def metrics(compared: Comparison) -> dict[str, pd.Series | str]:
    """Metrics as a lesson takes them: `name.variant.column`, `name.variant.gain` of the first measure and
    `gain_column` of the others, and `name.backend`."""
    out: dict[str, pd.Series | str] = {f"{compared.name}.backend": compared.backend}
    for column, found in compared.levels.items():
        out |= {
            f"{compared.name}.{slug(variant)}.{column}": row for variant, row in found.iterrows()
        }
    for column, found in compared.gains.items():
        last = "gain" if column == compared.main.column else f"gain_{column}"
        out |= {f"{compared.name}.{slug(variant)}.{last}": row for variant, row in found.iterrows()}
    return out
