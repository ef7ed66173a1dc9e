"""The jobs of lesson 07: what each kind of job reads, and which code decides its result.

First the declared set of configurations, greedy search, prompted policies and prompt optimizers, random choices and the
effects of atoms; beside them a training for each variant and seed, with one policy for each kind of question. Last a
job that tests the best of what was searched, and one that tries every choice of every trained policy on all test
questions, for the oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lib import tools
from lib.agent_configuration import (
    action_space,
    agent_models,
    agent_system,
    agent_team,
    atom_effects,
    atoms,
    encoders,
    error_taxonomy,
    policies,
    policy_updates,
    prompt_optimizers,
    prompted_baseline,
    questions,
    rewards,
    search,
    sources,
    training,
    variants,
    workflows,
)
from lib.agent_configuration.variants import ConfigurationVariant, count_seeds
from lib.config import ROOT, LLMSettings, Params
from lib.experiment import artifacts, sweep
from lib.language_models.cache_key import describe_models
from lib.language_models.cache_key import versions as versions_of_asking
from lib.language_models.training import agent_traces, team_traces
from lib.rl import losses

VERSION = 2  # of what each job plays and tests
NUM_PARTS = 4  # jobs that share the declared set

# Kinds of jobs.
DECLARED_SET = "declared configurations"
GREEDY_SEARCH = "greedy search"
PROMPTED_POLICIES = "prompted policies"
PROMPT_OPTIMIZERS = "prompt optimizers"
RANDOM_CHOICES = "random choices"
ATOM_EFFECTS = "effects of atoms"
TRAINING = "training"
POLICY_CHOICES = "choices of trained policies"
CONSTANTS = "constants"

# Fields of the settings that each kind of job reads besides the common ones; of a training see `list_training_fields`.
COMMON_FIELDS = ("model", "tiers", "temperature", "reward", "test_items")
FIELDS = {
    DECLARED_SET: ("search_items", "dev_items", "grid", "sampled"),
    GREEDY_SEARCH: ("search_items", "dev_items"),
    PROMPTED_POLICIES: ("prompted", "grid"),
    PROMPT_OPTIMIZERS: ("prompted", "search_items", "episodes"),
    RANDOM_CHOICES: (),
    ATOM_EFFECTS: ("dev_items",),
    POLICY_CHOICES: (),
    CONSTANTS: (),
}
_SEARCHES = (DECLARED_SET, GREEDY_SEARCH, PROMPTED_POLICIES, PROMPT_OPTIMIZERS)


def make_jobs(
    params: Params, compared: Sequence[ConfigurationVariant], models: Path
) -> list[sweep.Job]:
    """Make the jobs that need no result of another one.

    The declared set and the trainings come first, for they take longest.

    Args:
        params: All settings.
        compared: The variants that are trained.
        models: Folder of the lab models.

    Returns:
        The jobs.
    """

    @cache  # the settings of a kind of job have hashes of files in them
    def make_settings_of_kind(kind: str, *fields: str) -> dict[str, Any]:
        return make_settings(params, models, kind, (*COMMON_FIELDS, *fields))

    def make_job(label: str, kind: str, **settings: Any) -> sweep.Job:
        return sweep.Job(label, make_settings_of_kind(kind, *FIELDS[kind]) | settings)

    # The declared set is divided, so that several workers share its long job.
    declared = [
        make_job(f"declared/{number}", DECLARED_SET, part=number, num_parts=NUM_PARTS)
        for number in range(NUM_PARTS)
    ]
    trainings = []
    for variant in compared:
        job_settings = make_settings_of_kind(TRAINING, *list_training_fields(variant))
        for seed in range(count_seeds(params, variant)):
            decided_by = job_settings | {"variant": variant.to_job_settings(), "seed": seed}
            trainings.append(sweep.Job(f"{variant.name}/seed-{seed}", decided_by))
    random_choices = [
        make_job(f"random/seed-{seed}", RANDOM_CHOICES, seed=seed)
        for seed in range(params.configuration.seeds)
    ]
    return [
        *declared,
        *trainings,
        *random_choices,
        make_job("greedy", GREEDY_SEARCH),
        make_job("prompted", PROMPTED_POLICIES),
        make_job("optimized", PROMPT_OPTIMIZERS),
        make_job("atoms", ATOM_EFFECTS),
    ]


def make_choices_job(params: Params, models: Path, trainings: Sequence[sweep.Job]) -> sweep.Job:
    """Make the job that tests every configuration that a trained policy chose, on all test questions of the kind.

    Args:
        params: All settings.
        models: Folder of the lab models.
        trainings: The training jobs, whose results it reads.

    Returns:
        The job, whose key depends on the keys of the trainings.
    """
    decided_by = make_settings(params, models, POLICY_CHOICES, COMMON_FIELDS)
    inputs = {job.label: job.key for job in trainings}
    return sweep.Job("choices", decided_by | {"inputs": inputs})


def make_constants_job(params: Params, models: Path, jobs: Sequence[sweep.Job]) -> sweep.Job:
    """Make the job that tests the best fixed configurations of the searches.

    Args:
        params: All settings.
        models: Folder of the lab models.
        jobs: Jobs of any kind; the job reads the results of the searches among them.

    Returns:
        The job, whose key depends on the keys of the searches.
    """
    decided_by = make_settings(params, models, CONSTANTS, COMMON_FIELDS)
    searches = [job for job in jobs if job.settings["job"] in (DECLARED_SET, GREEDY_SEARCH)]
    inputs = {job.label: job.key for job in searches}
    return sweep.Job("constants", decided_by | {"inputs": inputs})


def select_trainings(jobs: Sequence[sweep.Job]) -> list[sweep.Job]:
    """Select the trainings among jobs."""
    return [job for job in jobs if job.settings["job"] == TRAINING]


def list_training_fields(variant: ConfigurationVariant) -> list[str]:
    """List the settings that a training of a variant reads, besides those that all jobs read.

    Args:
        variant: The variant.

    Returns:
        Names of fields.
    """
    fields = ["encoder", "train_items", "draws", "episodes", "sft"]
    fields.append("grpo" if variant.grouped else "ppo")
    if variant.refined_by_dpo:
        fields.append("dpo")
    if variant.tested_everywhere:
        fields.append("larger")
    return fields


def make_settings(params: Params, models: Path, kind: str, fields: Sequence[str]) -> dict[str, Any]:
    """Make the settings of a job: everything that decides its result, and therefore its key.

    Files, models and the encoder are in them by a hash of their content.

    Args:
        params: All settings.
        models: Folder of the lab models.
        kind: Kind of the job.
        fields: Fields of the section `configuration` that it reads.

    Returns:
        The settings.
    """
    settings = params.configuration
    llm = params.llm

    # Models that the job asks
    asked_models = [
        getattr(settings, field) for field in ("model", "larger", "prompted") if field in fields
    ]
    agent_models = [getattr(settings, field) for field in ("model", "larger") if field in fields]
    if any(llm.models[name].backend != "lab" for name in agent_models):
        fields = (*fields, "hosted_tiers")

    # Of a lab model, the weights are in the settings too.
    agent = llm.models[settings.model]
    base_model = None
    if agent.backend == "lab":
        base_model = agent.model or settings.model

    decided_by = {
        "job": kind,
        "configuration": settings.to_job_settings(*fields),
        "atoms": artifacts.sha256_file(ROOT / settings.atoms),
        "models": describe_models(llm, {name: name for name in asked_models}, base_model, models),
        "versions": list_versions(kind, llm, asked_models),
    }
    if "encoder" in fields:
        decided_by["encoder"] = encoders.identify_encoder(settings.encoder, models)
    return decided_by


def list_versions(kind: str, llm: LLMSettings, asked_models: Iterable[str]) -> dict[str, int]:
    """List the VERSIONs of the code that decides the result of a kind of job.

    Args:
        kind: Kind of the job.
        llm: Settings of the models.
        asked_models: Names in llm.models of the models that it asks.

    Returns:
        VERSIONs by the name of what they are of.
    """
    versions = versions_of_asking(llm, asked_models) | {
        "tools": tools.VERSION,
        "agent traces": agent_traces.VERSION,
        "team traces": team_traces.VERSION,
        "configuration space": action_space.VERSION,
        "kinds of questions": questions.VERSION,
        "sources of facts": sources.VERSION,
        "prompt atoms": atoms.VERSION,
        "turns of agents": agent_models.VERSION,
        "calls of agents": agent_team.VERSION,
        "workflows": workflows.VERSION,
        "agent system": agent_system.VERSION,
        "configuration rewards": rewards.VERSION,
        "configuration study": VERSION,
    }
    if kind in _SEARCHES:
        versions["configuration searches"] = search.VERSION
    if kind not in (DECLARED_SET, ATOM_EFFECTS, POLICY_CHOICES):
        versions["kinds of errors"] = error_taxonomy.VERSION
    if kind == ATOM_EFFECTS:
        versions["effects of atoms"] = atom_effects.VERSION
    if kind == PROMPTED_POLICIES:
        versions["prompted configuration policies"] = prompted_baseline.VERSION
    if kind == PROMPT_OPTIMIZERS:
        versions["prompt optimizers"] = prompt_optimizers.VERSION
    if kind == TRAINING:
        versions |= {
            "losses": losses.VERSION,
            "question encoders": encoders.VERSION,
            "configuration policies": policies.VERSION,
            "configuration learning": policy_updates.VERSION,
            "configuration training": training.VERSION,
            "trained variants": variants.VERSION,
        }
    return versions
