"""What is compared: ways to get a better policy out of one start, with the same GRPO settings where there are any.

An ablation is a variant with other settings: `make_variant("kappa 1", kappa=1.0)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from lib.conductor.meta_policy_training import Anchored, Conducted
from lib.conductor.rewards import COMPONENTS
from lib.conductor.weighting import Dirichlet, Fixed, Weighting
from lib.config import HeadSettings

VERSION = 1  # of what weighs the rewards of a variant
EQUAL = dict.fromkeys(COMPONENTS, 1 / len(COMPONENTS))


@dataclass(frozen=True)
class ConductorVariant:
    """One way.

    name: in metrics; label: in tables; kind: `prompt` trains nothing; weights: fixed ones by reward, or
    how they are found; begin: what every reply is made to begin with; aggregation: TRL's; changes: of
    conductor.head; stand_in: whether a stand-in decides something.
    """

    name: str
    label: str
    kind: Literal["prompt", "sft", "grpo"] = "grpo"
    weights: Mapping[str, float] | Literal["random", "conductor"] = field(default_factory=dict)
    begin: str = ""
    aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    changes: Mapping[str, Any] = field(default_factory=dict)
    stand_in: bool = False

    @property
    def conducted(self) -> bool:
        """Whether a Conductor learns in it."""
        return self.weights == "conductor"

    @property
    def decided_by(self) -> dict[str, Any]:
        """What a job is handed of it, as plain values: its changes are in the head's settings, its label in tables."""
        values = {"name": self.name, "kind": self.kind, "begin": self.begin}
        if self.kind == "grpo":
            values["weights"] = (
                self.weights if isinstance(self.weights, str) else dict(self.weights)
            )
            values["aggregation"] = self.aggregation
        return values

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> "ConductorVariant":
        """The variant of a job, which needs no label."""
        return cls(label="", **values)


def weighting(
    variant: ConductorVariant, head: HeadSettings, width: int, group: int, seed: int
) -> Weighting:
    """What weighs the rewards in a variant; head: with the variant's changes; width: of the policy's states."""
    if variant.conducted:
        return (Conducted if head.anchor == "none" else Anchored)(width, head, group, seed)
    return Dirichlet(seed) if variant.weights == "random" else Fixed(variant.weights)


def constant(name: str, rows: pd.DataFrame) -> ConductorVariant:
    """Fixed weights, the mean of those that the Conductor ended with; rows: of the record (variant, step, w_...)."""
    ended = rows[rows["method"].eq(CONDUCTOR.label) & rows["step"].eq(-1)]
    return ConductorVariant(
        name,
        "Conductor's mean weights",
        weights={k: float(ended[f"w_{k}"].mean()) for k in COMPONENTS},
    )


def make_variant(label: str, **changes) -> ConductorVariant:
    """The Conductor with changes to conductor.head, such as kappa=1.0, layer="first" or joint=True."""
    name = "_".join(
        ["conductor", *(f"{key}_{value}".replace(".", "p") for key, value in changes.items())]
    )
    return ConductorVariant(name, label, weights="conductor", changes=changes)


BASE = ConductorVariant("base", "Base", "prompt")
CONDUCTOR = ConductorVariant("conductor", "Conductor", weights="conductor")
ANCHORED = ConductorVariant(
    "anchored", "Anchored", weights="conductor", changes={"anchor": "verifier"}
)
ORACLE = ConductorVariant("oracle", "Oracle (verifier)", weights={"quality": 1.0})
VARIANTS: tuple[ConductorVariant, ...] = (
    BASE,
    ConductorVariant("cot", "CoT", "prompt", begin="<think>"),
    ConductorVariant("sft", "SFT", "sft"),
    ConductorVariant("nover", "NOVER (ppl)", weights={"ppl": 1.0}),
    ConductorVariant("em", "EM (-ent)", weights={"ent": -1.0}),
    ConductorVariant("len", "Len", weights={"len": 1.0}),
    ConductorVariant("pref", "Pref", weights={"pref": 1.0}),
    ConductorVariant("equal", "Equal", weights=EQUAL),
    ConductorVariant("random", "Random", weights="random"),
    ConductorVariant("gdpo", "GDPO", weights=EQUAL, aggregation="normalize_then_sum"),
    CONDUCTOR,
    ANCHORED,
    ConductorVariant("judge", "Judge", weights={"judge": 1.0}, stand_in=True),
    ORACLE,
)
NAMED = {variant.name: variant for variant in VARIANTS}
HEADLINE = tuple(NAMED[name] for name in ("base", "equal", "conductor", "anchored", "oracle"))
SIDE = (  # the Conductor without its context, or with less of it
    NAMED["random"],
    make_variant("h: prompt", sees="prompt"),
    make_variant("h: another rollout's", sees="shuffled"),
    make_variant("h: first layer", layer="first"),
)
STATIC = tuple(
    NAMED[name] for name in ("nover", "em", "len", "pref")
)  # compete on dev for the best static mix
ROLES = {
    "base": "start",
    "cot": "start",
    "conductor": "paper",
    "anchored": "router",
    "oracle": "oracle",
}
