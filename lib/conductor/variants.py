"""What is compared: ways to get a better policy out of one start, with the same GRPO settings where there are any.

An ablation is an arm with other settings: `variant("kappa 1", kappa=1.0)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from lib.conductor.meta_policy_training import Anchored, Conducted
from lib.conductor.rewards import COMPONENTS
from lib.conductor.weighting import Dirichlet, Fixed, Weighting
from lib.config import HeadSettings

VERSION = 1  # of what weighs the rewards of an arm
EQUAL = dict.fromkeys(COMPONENTS, 1 / len(COMPONENTS))


@dataclass(frozen=True)
class Arm:
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
    def from_settings(cls, values: Mapping[str, Any]) -> "Arm":
        """The arm of a job, which needs no label."""
        return cls(label="", **values)


def weighting(arm: Arm, head: HeadSettings, width: int, group: int, seed: int) -> Weighting:
    """What weighs the rewards in an arm; head: with the arm's changes; width: of the policy's states."""
    if arm.conducted:
        return (Conducted if head.anchor == "none" else Anchored)(width, head, group, seed)
    return Dirichlet(seed) if arm.weights == "random" else Fixed(arm.weights)


def constant(name: str, rows: pd.DataFrame) -> Arm:
    """Fixed weights, the mean of those that the Conductor ended with; rows: of the record (arm, step, w_...)."""
    ended = rows[rows["arm"].eq(CONDUCTOR.label) & rows["step"].eq(-1)]
    return Arm(
        name,
        "Conductor's mean weights",
        weights={k: float(ended[f"w_{k}"].mean()) for k in COMPONENTS},
    )


def variant(label: str, **changes) -> Arm:
    """The Conductor with changes to conductor.head, such as kappa=1.0, layer="first" or joint=True."""
    name = "_".join(
        ["conductor", *(f"{key}_{value}".replace(".", "p") for key, value in changes.items())]
    )
    return Arm(name, label, weights="conductor", changes=changes)


BASE = Arm("base", "Base", "prompt")
CONDUCTOR = Arm("conductor", "Conductor", weights="conductor")
ANCHORED = Arm("anchored", "Anchored", weights="conductor", changes={"anchor": "verifier"})
ORACLE = Arm("oracle", "Oracle (verifier)", weights={"quality": 1.0})
ARMS: tuple[Arm, ...] = (
    BASE,
    Arm("cot", "CoT", "prompt", begin="<think>"),
    Arm("sft", "SFT", "sft"),
    Arm("nover", "NOVER (ppl)", weights={"ppl": 1.0}),
    Arm("em", "EM (-ent)", weights={"ent": -1.0}),
    Arm("len", "Len", weights={"len": 1.0}),
    Arm("pref", "Pref", weights={"pref": 1.0}),
    Arm("equal", "Equal", weights=EQUAL),
    Arm("random", "Random", weights="random"),
    Arm("gdpo", "GDPO", weights=EQUAL, aggregation="normalize_then_sum"),
    CONDUCTOR,
    ANCHORED,
    Arm("judge", "Judge", weights={"judge": 1.0}, stand_in=True),
    ORACLE,
)
NAMED = {arm.name: arm for arm in ARMS}
HEADLINE = tuple(NAMED[name] for name in ("base", "equal", "conductor", "anchored", "oracle"))
SIDE = (  # the Conductor without its context, or with less of it
    NAMED["random"],
    variant("h: prompt", sees="prompt"),
    variant("h: another rollout's", sees="shuffled"),
    variant("h: first layer", layer="first"),
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
