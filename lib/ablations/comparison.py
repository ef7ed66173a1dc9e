"""What an ablation leaves: the same measures of several variants, paired by seed and by what they were tried on.

A gain is the mean difference between a variant and the one that it is held against, over pairs that share seed and
unit (a student, a question). Where all seeds share their units, both are resampled; where every seed has units of
its own, means over a seed's units come first and seeds are resampled, as in the lessons. Where one side has one run
(a start that is not trained) and the other several, each of these is held against that one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]


@dataclass(frozen=True)
class Measure:
    """A column of a comparison's frame. better: `higher`, `lower`, or empty where neither is."""

    column: str
    label: str
    digits: int = 2
    better: str = "higher"


@dataclass(frozen=True)
class Comparison:
    """One ablation.

    name: in metrics; about: what is changed, as a few words; frame: one row per variant, seed and unit, with the
    columns of measures; against: each variant, and the one that it is held against; measures: the first is what the
    answer is about; shared: whether all seeds have the same units; backend: who decided.

    Raises ValueError for a variant that is not in the frame, one that was tried on other things or under other seeds
    than what it is held against, and for seeds without the same units where they should share them.
    """

    name: str
    about: str
    frame: pd.DataFrame
    against: Mapping[str, str]
    measures: tuple[Measure, ...]
    shared: bool
    backend: str

    def __post_init__(self) -> None:
        there = set(self.frame["variant"])
        missing = sorted((set(self.against) | set(self.against.values())) - there)
        if missing:
            raise ValueError(f"{self.name}: no rows of {missing}; there are {sorted(there)}")
        for variant, other in self.against.items():
            mine, others = self._tried(variant), self._tried(other)
            one_run = 1 in (len(mine), len(others))
            if (set(mine.values()) != set(others.values())) if one_run else mine != others:
                raise ValueError(f"{self.name}: {variant!r} and {other!r} were not tried on the same things")
        if self.shared:
            for variant in self.variants:
                if len(set(self._tried(variant).values())) > 1:
                    raise ValueError(f"{self.name}: the seeds of {variant!r} share no units, though all seeds should")

    def _tried(self, variant: str) -> dict[int, frozenset]:
        """The units of each seed."""
        part = self.frame[self.frame["variant"] == variant]
        return {seed: frozenset(units) for seed, units in part.groupby("seed")["unit"]}

    @property
    def main(self) -> Measure:
        """What the answer is about."""
        return self.measures[0]

    @property
    def variants(self) -> list[str]:
        """In the order of the frame."""
        return list(dict.fromkeys(self.frame["variant"]))

    @cached_property
    def levels(self) -> Rows:
        """Every measure of every variant, {variant: {column: interval}}."""
        return {
            variant: {m.column: self._mean(self._matrix(variant, m.column), variant, m.column) for m in self.measures}
            for variant in self.variants
        }

    @cached_property
    def gains(self) -> Rows:
        """Variant minus what it is held against, {variant: {column: interval}}."""
        return {
            variant: {m.column: self._gain(variant, other, m.column) for m in self.measures}
            for variant, other in self.against.items()
        }

    def _gain(self, variant: str, other: str, column: str) -> Interval:
        return self._mean(self._matrix(variant, column) - self._matrix(other, column), variant, other, column)

    def _matrix(self, variant: str, column: str) -> np.ndarray:
        """Values (seeds, units), or means (seeds, 1) where every seed has units of its own."""
        part = self.frame[self.frame["variant"] == variant]
        if self.shared:
            return part.pivot_table(index="seed", columns="unit", values=column).to_numpy(float)
        return part.groupby("seed")[column].mean().to_numpy(float)[:, None]

    def _mean(self, values: np.ndarray, *name: str) -> Interval:
        """Over seeds and units where units are shared, over units for one run of them, else over seeds."""
        if self.shared and len(values) > 1:
            return stats.crossed_interval(values)
        sample = values[0] if self.shared else values[:, 0]
        return stats.mean_interval(sample, seeds.rng("ablations", self.name, *name))


def slug(variant: str) -> str:
    """A variant's part of a metric's name."""
    kept = "".join(c if c.isalnum() or c in "-+." else " " for c in variant).replace(".", "p")
    return "_".join(kept.split()).lstrip("-+_")


def metrics(compared: Comparison) -> dict[str, float | str]:
    """Flat metrics: `name.variant.column`, `name.variant.gain` of the first measure and `gain_column` of the others,
    with `_lo` and `_hi`, and `name.backend`."""
    out: dict[str, float | str] = {}
    for variant, row in compared.levels.items():
        for column, found in row.items():
            out |= found.as_metrics(f"{compared.name}.{slug(variant)}.{column}")
    for variant, row in compared.gains.items():
        for column, found in row.items():
            last = "gain" if column == compared.main.column else f"gain_{column}"
            out |= found.as_metrics(f"{compared.name}.{slug(variant)}.{last}")
    return out | {f"{compared.name}.backend": compared.backend}
