"""What is trained: ARC, and controls that differ from it in one thing at a time.

Every training chooses from the same structures and atoms, meets the same questions for as many episodes, and has one
policy for each kind of question, as ARC has one for each data set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from lib.config import Params

VERSION = 2  # of what follows the training of a variant
HIERARCHY, BANDIT, AUTOREGRESSIVE, MDP = "hierarchy", "bandit", "autoregressive", "mdp"
POLICY_KINDS = (HIERARCHY, BANDIT, AUTOREGRESSIVE, MDP)
NO_SFT = "_no_sft"  # ends the name of a policy before it is refined
DPO = "_dpo"


@dataclass(frozen=True)
class ConfigurationVariant:
    """One way to train.

    Attributes:
        name: Name in jobs and in the keys of metrics.
        label: Name in tables.
        kind: The policy, one of `POLICY_KINDS`.
        masked: Whether choices that the workflow lacks are excluded.
        grouped: Group-relative advantages (GRPO) instead of PPO with value networks.
        gamma: The discount; None for that of the settings.
        sparse: Reward alpha 1[correct] alone, without costs and tool shaping.
    """

    name: str
    label: str
    kind: str = HIERARCHY
    masked: bool = True
    grouped: bool = False
    gamma: float | None = None
    sparse: bool = False

    @property
    def refined_by_dpo(self) -> bool:
        """Whether DPO is tried on it; SFT follows every training."""
        return self.name == "arc"

    @property
    def tested_everywhere(self) -> bool:
        """Whether its choices are tested on other kinds of questions, and with the larger model."""
        return self.name == "arc"

    def to_job_settings(self) -> dict[str, Any]:
        """The settings that a job gets: all fields but the label, by which tables call the variant."""
        names = [field.name for field in fields(self) if field.name != "label"]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_job_settings(cls, values: Mapping[str, Any]) -> Self:
        """The variant as a job sees it."""
        return cls(label="", **values)


ARC = ConfigurationVariant("arc", "ARC")
UNDISCOUNTED = ConfigurationVariant("undiscounted", "ARC without discount", gamma=1.0)
UNMASKED = ConfigurationVariant("unmasked", "ARC without masks", masked=False)
SPARSE = ConfigurationVariant("sparse", "ARC, sparse reward", sparse=True)
GRPO = ConfigurationVariant("grpo", "ARC by GRPO", grouped=True)
FLAT_BANDIT = ConfigurationVariant("bandit", "flat bandit", BANDIT)
FLAT_AUTOREGRESSIVE = ConfigurationVariant("autoregressive", "flat autoregressive", AUTOREGRESSIVE)
FLAT_MDP = ConfigurationVariant("mdp", "flat MDP", MDP)

# The first is trained where the lesson is; all of them in the full run.
BASELINES = (FLAT_BANDIT, FLAT_AUTOREGRESSIVE, FLAT_MDP, UNDISCOUNTED)
ABLATIONS = (UNMASKED, SPARSE, GRPO)
VARIANTS = (ARC, *BASELINES, *ABLATIONS)
NAMED = {variant.name: variant for variant in VARIANTS}


def count_seeds(params: Params, variant: ConfigurationVariant) -> int:
    """Count the trainings of a variant: fewer of what is compared as an ablation only."""
    settings = params.configuration
    return settings.ablation_seeds if variant in ABLATIONS else settings.seeds


# Methods without training.
UNTRAINED = {
    "base": "all tools, one call", "grid": "grid search", "greedy": "greedy search", "random": "random",
    "best_constant": "best constant", "by_kind": "best constant per kind",
    "zero_shot": "LLM as policy", "few_shot": "LLM as policy, few-shot", "gepa": "GEPA",
    "bootstrap": "few-shot bootstrapping (in the style of DSPy)",
    "conversation": "two-agent conversation (in the style of AutoGen)", "oracle": "oracle",
}  # fmt: skip


def label_method(method: str) -> str:
    """Label a method as tables call it.

    Args:
        method: A variant, a variant before it was refined or after DPO, or one of `UNTRAINED`.

    Returns:
        The label.
    """
    if method in UNTRAINED:
        return UNTRAINED[method]
    if method.endswith(NO_SFT):
        return f"{NAMED[method.removesuffix(NO_SFT)].label}, before SFT"
    if method.endswith(DPO):
        return f"{NAMED[method.removesuffix(DPO)].label}, then DPO"
    return NAMED[method].label
