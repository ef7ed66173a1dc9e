"""What is trained: ARC, its flat rivals, its other objective, and ARC on one kind of question alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from lib.agent_configuration.questions import KINDS

VERSION = 1  # of what follows the training of a variant


@dataclass(frozen=True)
class ConfigurationVariant:
    """One training. kind: of `training.KINDS`; masked: whether a hierarchy masks; grouped: group-relative advantages
    (GRPO) instead of PPO with value networks; only: the one kind of question that it learns from, all if empty."""

    name: str
    label: str
    kind: str
    masked: bool = True
    grouped: bool = False
    only: str = ""

    @property
    def refined(self) -> bool:
        """Whether SFT and DPO are tried on it."""
        return self.kind == "hierarchy" and not self.grouped

    @property
    def tested_with_larger_model(self) -> bool:
        """Whether its choices are tested with the larger model too."""
        return self.name == "arc"

    def to_job_settings(self) -> dict[str, Any]:
        """What a job gets of it: everything but the label, by which tables call it."""
        return {name: getattr(self, name) for name in ("name", "kind", "masked", "grouped", "only")}

    @classmethod
    def from_job_settings(cls, values: Mapping[str, Any]) -> Self:
        """The variant as a job sees it."""
        return cls(label="", **values)


VARIANTS = (
    ConfigurationVariant("arc", "ARC", "hierarchy"),
    ConfigurationVariant("bandit", "RL bandit", "bandit"),
    ConfigurationVariant("episodes", "RL episodes", "episodes"),
    ConfigurationVariant("grpo", "ARC by GRPO", "hierarchy", grouped=True),
)
ALONE = tuple(
    ConfigurationVariant(
        f"only-{kind.name}", f"ARC on {kind.name} alone", "hierarchy", only=kind.name
    )
    for kind in KINDS
)
UNMASKED = ConfigurationVariant("unmasked", "ARC without masks", "hierarchy", masked=False)
NAMED = {variant.name: variant for variant in (*VARIANTS, *ALONE)}

# What is tested under one name each; a trained hierarchy leaves three policies.
TESTED = {
    "arc_no_sft": "ARC without SFT", "arc": "ARC", "arc_dpo": "ARC with DPO", "grpo": "ARC by GRPO",
    "bandit": "RL bandit", "episodes": "RL episodes", "base": "all tools, one call", "grid": "grid search",
    "greedy": "greedy search", "best_constant": "best constant", "by_kind": "best constant per kind",
    "zero_shot": "prompted, zero-shot", "few_shot": "prompted, few-shot", "random": "random", "oracle": "oracle",
}  # fmt: skip
