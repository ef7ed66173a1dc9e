"""Lessons that compare: recorded outcomes and ablations."""

from typing import Annotated

from pydantic import Field

from lib.config.types import Count, NotNegative, Positive, Section


class PriceSettings(Section):
    """Dollars where a table of outcomes tells none. reply_tokens: assumed of every reply; per_billion: dollars of a
    token for each billion of parameters, to the power of exponent; routellm: dollars per token, by model."""

    reply_tokens: Count
    per_billion: Positive
    exponent: Positive
    routellm: dict[str, Positive]


class RecordedSettings(Section):
    """Lesson 08: decision makers on recorded outcomes (lib/recorded_outcomes, lib/routers/experiment.py).

    items: of a table at most, the same share of every group; jobs: processes; folds: parts of whole groups, of which
    each is scored once; seeds: partings, each with trainings of its own; updates, batch, learning_rate: of a network;
    neighbours: of the nearest-neighbour router; min_dev_gain: accuracy by which a method must beat the best constant on
    dev to take its place at equal quality; equivalence_margin: accuracy that counts as none on test; draws: logs that
    estimators are tried on, and resamples of a curve.
    """

    items: Annotated[int, Field(ge=50)]
    jobs: Count | None
    folds: Annotated[int, Field(ge=3)]
    seeds: Count
    updates: Count
    batch: Annotated[int, Field(ge=2)]
    learning_rate: Positive
    neighbours: Count
    min_dev_gain: NotNegative
    equivalence_margin: Positive
    draws: Annotated[int, Field(ge=20)]
    prices: PriceSettings


class AblationSettings(Section):
    """What lesson 09 changes. model: who orchestrates; room_seeds: of the zoo, at most, for memory in rooms;
    students: per seed and policy under each rule of the simulator; encoder: beside
    configuration.encoder."""

    model: str
    room_seeds: Count
    students: Annotated[int, Field(ge=2)]
    encoder: str
