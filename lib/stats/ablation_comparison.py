"""What an ablation shows: the same measures of several variants, paired by seed and test unit.

A gain is the mean difference between a variant and its baseline, inside pairs of seed and unit (a student, a question),
by `lib.stats`: where seeds share their units both are sampled, where every seed has units of its own seeds are. An
untrained start that has a single run is compared with each of several.
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
        """Classifies a gain by its confidence interval.

        Args:
            gain: An estimate with value, ci_low and ci_high.

        Returns:
            UNCLEAR where the interval holds 0; else BETTER or WORSE, or OTHER where neither direction is better.
        """
        is_clear = gain["ci_low"] > 0 or gain["ci_high"] < 0
        if not is_clear:
            return UNCLEAR
        if not self.better:
            return OTHER
        is_higher = gain["value"] > 0
        return BETTER if is_higher == (self.better == "higher") else WORSE


@dataclass(frozen=True)
class Comparison:
    """One ablation: variants, each with the baseline that it is compared with.

    Attributes:
        name: The prefix of its metrics.
        about: What is changed, in a few words.
        frame: One row for each variant, seed and unit, with the columns of the measures. Units that seeds do not share
            have different names.
        baselines: The baseline of each variant that has one; both are values of the frame's column `variant`.
        measures: The first one is what the answer is about.
        backend: Which kind of model decided.

    Raises:
        ValueError: If a variant is not in the frame.
    """

    name: str
    about: str
    frame: pd.DataFrame
    baselines: Mapping[str, str]
    measures: tuple[Measure, ...]
    backend: str

    def __post_init__(self) -> None:
        variants = set(self.frame["variant"])
        compared_variants = set(self.baselines) | set(self.baselines.values())
        missing = sorted(compared_variants - variants)
        if missing:
            raise ValueError(f"{self.name}: no rows of {missing}; there are {sorted(variants)}")

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
        return {
            measure.column: estimates.mean(self.rows, measure.column, "variant")
            for measure in self.measures
        }

    @cached_property
    def gains(self) -> dict[str, pd.DataFrame]:
        """By column, variant minus baseline, with its `look`.

        Raises:
            ValueError: If a variant and its baseline were not tested on the same units.
        """
        if not self.baselines:
            return {}
        return {measure.column: self._estimate_gains(measure) for measure in self.measures}

    def _estimate_gains(self, measure: Measure) -> pd.DataFrame:
        """Estimates the gain of each variant over its baseline in one measure.

        Args:
            measure: The measure, a column of the results table.

        Returns:
            One row per variant: a paired difference with interval, and its class in the column `look`.
        """
        gain_by_variant = {}
        for variant, baseline in self.baselines.items():
            difference = estimates.paired_difference(
                self.rows, measure.column, {"variant": variant}, {"variant": baseline}
            )
            gain_by_variant[variant] = difference.iloc[0]
        gains = pd.DataFrame(gain_by_variant).T.rename_axis("variant")
        return gains.assign(look=[measure.look(gain) for _, gain in gains.iterrows()])

    def relative(self) -> pd.DataFrame:
        """Expresses gains in the main measure as fractions of the baseline's level.

        The level of the baseline counts as known, so that the interval has the uncertainty of the gain alone.
        Variants whose baseline is 0 are left out.

        Returns:
            One row per variant, with value, ci_low and ci_high as fractions.
        """
        gains = self.gains[self.main.column]
        levels = self.levels[self.main.column]["value"].abs()
        baseline_levels = levels.loc[list(self.baselines.values())].to_numpy()
        # A fraction of a baseline at 0 says nothing: nan, dropped below.
        divisors = np.where(baseline_levels > 1e-9, baseline_levels, np.nan)
        columns = ["value", "ci_low", "ci_high"]
        fractions = gains[columns].div(divisors, axis=0)
        return gains.assign(**fractions).dropna(subset="value")


def slug(variant: str) -> str:
    """A variant's part of a metric's name."""
    # Dots separate the parts of a metric's name, so 0.2 becomes 0p2.
    allowed = "".join(c if c.isalnum() or c in "-+." else " " for c in variant).replace(".", "p")
    return "_".join(allowed.split()).lstrip("-+_")


def metrics(comparison: Comparison) -> dict[str, pd.Series | str]:
    """Collects the metrics of an ablation for the metrics file of a lesson.

    Args:
        comparison: The measured variants of the ablation.

    Returns:
        Estimates under `NAME.VARIANT.COLUMN` (level of a measure), `NAME.VARIANT.gain` (gain in the main measure over
        the baseline) and `NAME.VARIANT.gain_COLUMN` (in the others), and the backend under `NAME.backend`.
    """
    name = comparison.name
    values: dict[str, pd.Series | str] = {f"{name}.backend": comparison.backend}
    for column, levels in comparison.levels.items():
        for variant, level in levels.iterrows():
            values[f"{name}.{slug(variant)}.{column}"] = level
    for column, gains in comparison.gains.items():
        gain_key = "gain" if column == comparison.main.column else f"gain_{column}"
        for variant, gain in gains.iterrows():
            values[f"{name}.{slug(variant)}.{gain_key}"] = gain
    return values
