"""The jobs of the experiment: one per variant and seed, with exactly the settings that it reads.

Left out: what a job does, which is `lib.conductor.training_job`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lib import config
from lib.conductor import (
    evaluation,
    initial_policy,
    llm_judge,
    meta_policy,
    meta_policy_training,
    policy_readout,
    reply_format,
    reward_model,
    rewards,
    rollouts,
    variants,
    weighting,
)
from lib.conductor.variants import ConductorVariant
from lib.config import GRPOSettings, HeadSettings, LLMSettings, Params
from lib.experiment import sweep
from lib.language_models.cache_key import describe_model
from lib.llm import scripted
from lib.rl import losses

VERSION = 1  # of how a variant is trained and tested
REWARD_MODEL_SEED = 0  # whose initial policy the reward model is made from
# Base and the oracle decide whether a category can be learned at all; of the others the best is the best static mix.
TESTED_ON_DEV_TOO = ("base", "oracle", "nover", "pref", "em", "len")

# Fields of the settings that jobs are handed: for every test; of the GRPO settings, by the kind of the variant; of the
# head, where there is one, and where it is anchored.
_READ_FOR_TESTS = ("categories", "test_items", "samples", "rewards")
_READ_OF_GRPO = {
    "prompt": ("max_tokens", "temperature"),
    "sft": (
        "max_tokens",
        "temperature",
        "epochs",
        "prompts_per_step",
        "generations",
        "learning_rate",
    ),
    "grpo": tuple(GRPOSettings.model_fields),
}
_READ_OF_THE_HEAD = (
    "layer",
    "head_input",
    "kappa",
    "floor",
    "temperature",
    "learning_rate",
    "update_interval",
    "entropy",
    "pairwise",
    "joint",
    "homogeneous",
    "centred",
    "anchor",
)
_READ_OF_AN_ANCHOR = ("verified_fraction", "verifier_error_rate")
_ORDER_OF_KINDS = ("grpo", "sft", "prompt")  # the longest jobs first


def make_jobs(
    params: Params,
    compared: Sequence[ConductorVariant],
    policy: Path,
    training_seeds: Sequence[int] | None = None,
    split: str = "test",
) -> list[sweep.Job]:
    """Make a job for each variant and seed, the longest jobs first.

    Args:
        params: All settings; a job is handed those that it reads.
        compared: The variants.
        policy: Folder of the released policy.
        training_seeds: The first `conductor.seeds` by default.
        split: Whose items policies are tested on; the variants of TESTED_ON_DEV_TOO on dev too.

    Returns:
        The jobs.

    Raises:
        ParamsError: A variant changes the head to something that cannot be.
    """
    settings = params.conductor
    if training_seeds is None:
        training_seeds = range(settings.seeds)
    initial_policy_keys = {
        seed: initial_policy.make_job(settings.initial_policy, policy, seed).key
        for seed in training_seeds
    }
    shared = {
        "reward_model": reward_model.make_job(settings, policy, REWARD_MODEL_SEED).key,
        "libraries": reward_model.list_library_versions(),
    }
    ordered = sorted(compared, key=lambda variant: _ORDER_OF_KINDS.index(variant.kind))
    jobs = []
    for variant in ordered:
        variant_settings = shared | _make_variant_settings(params, variant)
        needs_dev = split == "test" and variant.name in TESTED_ON_DEV_TOO
        variant_settings["splits"] = ["dev", "test"] if needs_dev else [split]
        for seed in training_seeds:
            label = f"{'+'.join(settings.categories)}/{variant.name}/seed-{seed}"
            of_seed = {"seed": seed, "start": initial_policy_keys[seed]}
            jobs.append(sweep.Job(label, variant_settings | of_seed))
    return jobs


def _make_variant_settings(params: Params, variant: ConductorVariant) -> dict[str, Any]:
    """Collect the settings that decide a variant's results: its own, and the parameters that its training reads.

    Args:
        params: All settings.
        variant: The variant.

    Returns:
        Settings that enter the cache key of its jobs.
    """
    settings = params.conductor
    fields = [*_READ_FOR_TESTS]
    if variant.kind != "prompt":
        fields.append("prompts")
    head = change_head(settings.head, variant) if variant.has_conductor else None
    decided_by = {
        "job": "variant",
        "variant": variant.to_job_settings(),
        "conductor": settings.to_job_settings(*fields),
        "grpo": settings.grpo.to_job_settings(*_READ_OF_GRPO[variant.kind]),
        "versions": list_versions(variant, head, params.llm, settings.judge),
    }
    if head is not None:
        head_fields = [*_READ_OF_THE_HEAD]
        if head.anchor != "none":
            head_fields += _READ_OF_AN_ANCHOR
        decided_by["head"] = head.to_job_settings(*head_fields)
    if needs_judge(variant):
        decided_by["judge"] = {
            "name": settings.judge,
            "model": describe_model(params.llm, settings.judge),
        }
    return decided_by


def change_head(head: HeadSettings, variant: ConductorVariant) -> HeadSettings:
    """The settings of the head with the variant's changes.

    Raises:
        ParamsError: A change cannot be.
    """
    changed = head.model_dump() | dict(variant.head_changes)
    return config.validate_settings(changed, HeadSettings, f"the variant {variant.name}")


def needs_judge(variant: ConductorVariant) -> bool:
    """Whether a judge rewards its policy or its head."""
    rewards_policy = isinstance(variant.weights, Mapping) and "judge" in variant.weights
    return rewards_policy or variant.head_changes.get("anchor") == "judge"


def list_versions(
    variant: ConductorVariant, head: HeadSettings | None, llm: LLMSettings, judge: str
) -> dict[str, int]:
    """List the VERSION constants of the code that decides the results of a variant.

    Args:
        variant: The variant.
        head: The Conductor's settings with the variant's changes; None where there is no Conductor.
        llm: The chat models, one of them the judge.
        judge: Its name in llm.models.

    Returns:
        Version numbers by the name of the code.
    """
    versions = reward_model.list_versions() | {
        "rewards": rewards.VERSION,
        "form of replies": reply_format.VERSION,
        "policy readout": policy_readout.VERSION,
        "tests": evaluation.VERSION,
        "training of variants": VERSION,
    }
    if variant.kind == "grpo":
        from lib.conductor import trainer  # imported here: TRL takes seconds

        versions["variants"] = variants.VERSION
        versions["weightings"] = weighting.VERSION
        versions["rollouts"] = rollouts.VERSION
        versions["GRPO under weighted rewards"] = trainer.VERSION
    if head is not None:
        versions["head"] = meta_policy.VERSION
        versions["learning of the head"] = meta_policy_training.VERSION
    if head is not None and head.anchor != "none":
        versions["losses"] = losses.VERSION
    if needs_judge(variant):
        versions["judge"] = llm_judge.VERSION
        if llm.models[judge].backend == "scripted":
            versions["scripted models"] = scripted.VERSION
    return versions
