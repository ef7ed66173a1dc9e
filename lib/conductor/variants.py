"""What is compared: ways to improve one initial policy, with the same GRPO settings where there are any.

An ablation is a variant with other settings of the head: `make_variant("kappa 1", kappa=1.0)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lib.conductor.meta_policy_training import AnchoredWeighting, ConductorWeighting
from lib.conductor.rewards import COMPONENTS
from lib.conductor.weighting import FixedWeighting, RandomWeighting, Weighting
from lib.config import HeadSettings

VERSION = 1  # of what weighs the rewards of a variant
EQUAL = dict.fromkeys(COMPONENTS, 1 / len(COMPONENTS))
AFTER_TRAINING = -1  # the step of rows of a test, in the results table


@dataclass(frozen=True)
class ConductorVariant:
    """One method.

    Attributes:
        name: Name in metrics and jobs.
        label: Label in tables and figures.
        kind: `prompt` trains nothing, `sft` learns from references, `grpo` from rewards.
        weights: Fixed weights by reward, or how they come about.
        prefix: What every reply is made to begin with.
        aggregation: TRL's `multi_objective_aggregation`.
        head_changes: Settings of `conductor.head` that differ.
    """

    name: str
    label: str
    kind: Literal["prompt", "sft", "grpo"] = "grpo"
    weights: Mapping[str, float] | Literal["random", "conductor"] = field(default_factory=dict)
    prefix: str = ""
    aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    head_changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_conductor(self) -> bool:
        """Whether a Conductor learns in it."""
        return self.weights == "conductor"

    def to_job_settings(self) -> dict[str, Any]:
        """Convert to plain values for the settings of a job; the changes of the head are stored with the head's
        settings.

        Returns:
            The values by name.
        """
        values = {"name": self.name, "kind": self.kind, "prefix": self.prefix}
        if self.kind == "grpo":
            is_named = isinstance(self.weights, str)
            values["weights"] = self.weights if is_named else dict(self.weights)
            values["aggregation"] = self.aggregation
        return values

    @classmethod
    def from_job_settings(cls, values: Mapping[str, Any]) -> "ConductorVariant":
        """The variant of a job, which needs no label."""
        return cls(label="", **values)


def make_weighting(
    variant: ConductorVariant, head: HeadSettings | None, width: int, group_size: int, seed: int
) -> Weighting:
    """Make the object that weights the rewards in a variant: a Conductor, random weights or fixed ones.

    Args:
        variant: The variant, of kind `grpo`.
        head: The Conductor's settings with the variant's changes; None where there is no Conductor.
        width: Width of the policy's hidden states.
        group_size: Rollouts per prompt.
        seed: Seed of random weights and emphases.

    Returns:
        The weighting.
    """
    if variant.has_conductor:
        is_anchored = head.anchor != "none"
        kind = AnchoredWeighting if is_anchored else ConductorWeighting
        return kind(width, head, group_size, seed)
    if variant.weights == "random":
        return RandomWeighting(seed)
    return FixedWeighting(variant.weights)


def make_variant(label: str, **head_changes) -> ConductorVariant:
    """Make a variant of the Conductor whose head has other settings.

    Args:
        label: Its name in tables.
        head_changes: Settings of the head that differ.

    Returns:
        The variant.

    Example:
        >>> make_variant("kappa 1", kappa=1.0).name
        'conductor_kappa_1p0'
    """
    words = ["conductor"]
    for key, value in head_changes.items():
        words.append(f"{key}_{value}".replace(".", "p"))
    return ConductorVariant("_".join(words), label, weights="conductor", head_changes=head_changes)


BASE = ConductorVariant("base", "Base", "prompt")
COT = ConductorVariant("cot", "CoT", "prompt", prefix="<think>")
SFT = ConductorVariant("sft", "SFT", "sft")
NOVER = ConductorVariant("nover", "NOVER (ppl)", weights={"ppl": 1.0})
EM = ConductorVariant("em", "EM (-ent)", weights={"ent": -1.0})
LENGTH = ConductorVariant("len", "Len", weights={"len": 1.0})
PREFERENCE = ConductorVariant("pref", "Pref", weights={"pref": 1.0})
EQUAL_WEIGHTS = ConductorVariant("equal", "Equal", weights=EQUAL)
RANDOM_WEIGHTS = ConductorVariant("random", "Random", weights="random")
GDPO = ConductorVariant("gdpo", "GDPO", weights=EQUAL, aggregation="normalize_then_sum")
CONDUCTOR = ConductorVariant("conductor", "Conductor", weights="conductor")
ANCHORED = ConductorVariant(
    "anchored", "Anchored", weights="conductor", head_changes={"anchor": "verifier"}
)
JUDGE = ConductorVariant("judge", "Judge", weights={"judge": 1.0})
ORACLE = ConductorVariant("oracle", "Oracle (verifier)", weights={"quality": 1.0})
VARIANTS: tuple[ConductorVariant, ...] = (
    BASE,
    COT,
    SFT,
    NOVER,
    EM,
    LENGTH,
    PREFERENCE,
    EQUAL_WEIGHTS,
    RANDOM_WEIGHTS,
    GDPO,
    CONDUCTOR,
    ANCHORED,
    JUDGE,
    ORACLE,
)
VARIANTS_BY_NAME = {variant.name: variant for variant in VARIANTS}
# Trained under every seed (`conductor.seeds`): what the lesson trains in sight, and the rest of the primary comparison.
TRAINED_IN_SIGHT = (BASE, ORACLE, EQUAL_WEIGHTS, CONDUCTOR)
PRIMARY = (*TRAINED_IN_SIGHT, NOVER, PREFERENCE, ANCHORED)
# The other methods of Tables 1 and 3, under `conductor.ablation_seeds` seeds.
SECONDARY = (COT, SFT, RANDOM_WEIGHTS, EM, LENGTH, JUDGE)
# Single rewards, of which the best on dev items is the best static mix.
STATIC_CANDIDATES = (NOVER, PREFERENCE, EM, LENGTH)
# Table 4: whose hidden state the Conductor reads, beside the last layer's; under `conductor.layer_seeds` seeds.
LAYERS = (
    make_variant("h: first layer", layer="first"),
    make_variant("h: middle layer", layer="middle"),
)
# Table 5: without the entropy bonus, and with pairwise perturbations.
LOSSES = (
    make_variant("no entropy", entropy=0.0),
    make_variant("pairwise", pairwise=0.1),
)
# The Conductor without its context.
CONTEXT_ABLATIONS = (
    make_variant("h: prompt", head_input="prompt"),
    make_variant("h: another rollout's", head_input="shuffled"),
)
ABLATIONS = (*LAYERS, *LOSSES, *CONTEXT_ABLATIONS)
# In the results table; all others are constants.
ROLES = {
    "base": "start",
    "cot": "start",
    "conductor": "paper",
    "anchored": "router",
    "oracle": "oracle",
}
