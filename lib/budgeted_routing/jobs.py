"""The jobs of lesson 05: what each is handed, which decides whether a finished one can be used again.

Four kinds: a trial of the experts, and for every seed the lessons of a controller in the protocol (both come first);
then a training for every variant and seed, and for every seed the tests of its start, the controller before training.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from lib import config, tasks
from lib.budgeted_routing import budget_episodes, expert_outcomes, variants
from lib.budgeted_routing.variants import VARIANTS_BY_NAME, RoutingVariant
from lib.config import LearnSettings, LLMSettings, Params, RoutingSettings
from lib.experiment import artifacts, seeds, sweep
from lib.language_models import cache_key, chat_template, checkpoints, tokenizer
from lib.language_models.training import muon, pretraining, training_data
from lib.rl import (
    budget_reward,
    call_protocol,
    expert_pool,
    generators,
    losses,
    rollout,
    sft_warmup,
    token_ppo,
    transcript,
)
from lib.tasks import rules

VERSION = 1  # of how controllers are trained and tested
START = "start"  # the controller before it is trained
MAIN_VARIANT = "corl"  # has `routing.seeds` seeds; the others have `routing.ablation_seeds`
SAMPLED_VARIANTS = (MAIN_VARIANT, "hard")  # are also tested at the temperature of training

# Kinds of jobs.
TRIAL = "trial of experts"
LESSONS = "lessons in the protocol"
TRAINING = "training"
TESTS_OF_START = "tests of a start"

# Fields of the settings that a job of each kind is handed.
_READ_BY_TRIAL = ("questions", "experts", "expert_temperature", "train_items", "test_items")
_READ_BY_LESSONS = ("questions", "rounds", "budget_range", "warm")
_READ_BY_TESTS = (
    "questions",
    "experts",
    "expert_temperature",
    "test_items",
    "rounds",
    "turn_tokens",
    "response_tokens",
    "quantile",
    "high_budget_usd",
)
_READ_BY_TESTS_WITH_NUMBERS = ("budget_unit_usd", "numeric_budgets", "budget_range")
_READ_BY_TRAINING = ("temperature", "train_items", "batch")


def make_first_jobs(params: Params, models: Path) -> list[sweep.Job]:
    """Make the jobs that the others build on.

    Args:
        params: All settings; a job is handed those that it reads.
        models: Folder of the lab models.

    Returns:
        The trial of the experts, then for every seed the lessons of a controller in the protocol.
    """
    settings = params.routing
    trial = {
        "job": TRIAL,
        "routing": settings.to_job_settings(*_READ_BY_TRIAL),
        "order": _list_orders(settings),
        "models": cache_key.describe_models(params.llm, settings.experts, settings.base, models),
        "versions": list_versions(TRIAL, params.llm, list(settings.experts.values())),
    }
    lessons = {
        "job": LESSONS,
        "routing": settings.to_job_settings(*_READ_BY_LESSONS),
        "order": _list_orders(settings),
        "base": settings.base,
        "weights": artifacts.sha256_file(models / settings.base / "model.safetensors"),
        "shape": params.lab.models[settings.base].to_job_settings(*sft_warmup.BASE_SETTINGS),
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
        "versions": list_versions(LESSONS, params.llm),
    }
    prefix = _join_experts(settings)
    jobs = [sweep.Job(f"{prefix}/experts", trial)]
    for seed in range(settings.seeds):
        jobs.append(sweep.Job(f"{prefix}/controller/seed-{seed}", lessons | {"seed": seed}))
    return jobs


def make_jobs(
    params: Params, compared: Sequence[RoutingVariant], first_jobs: Sequence[sweep.Job]
) -> list[sweep.Job]:
    """Make a training for each variant and seed, and the tests of each seed's start.

    The experts that they ask are in the key of the trial that they build on.

    Args:
        params: All settings; a job is handed those that it reads.
        compared: The variants.
        first_jobs: Of `make_first_jobs`.

    Returns:
        Long jobs first, so that no process waits for a last long one.

    Raises:
        ParamsError: A variant changes the trainer to something that cannot be.
    """
    settings = params.routing
    trial, *lessons = (job.key for job in first_jobs)
    prefix = _join_experts(settings)
    jobs = []
    for variant in sorted(compared, key=lambda variant: -settings.updates[variant.style]):
        training_settings = _describe_training(params, variant)
        for seed in range(count_seeds(settings, variant)):
            inputs = {"trial": trial, "controller": lessons[seed]}
            job_settings = training_settings | {"seed": seed, "inputs": inputs}
            jobs.append(sweep.Job(f"{prefix}/{variant.name}/seed-{seed}", job_settings))
    for seed in range(settings.seeds):
        inputs = {"trial": trial, "controller": lessons[seed]}
        job_settings = _describe_tests_of_start(params, seed) | {"seed": seed, "inputs": inputs}
        jobs.append(sweep.Job(f"{prefix}/{START}/seed-{seed}", job_settings))
    return jobs


def count_seeds(settings: RoutingSettings, variant: RoutingVariant) -> int:
    """How many seeds a variant is trained with."""
    if variant.name == MAIN_VARIANT:
        return settings.seeds
    return min(settings.seeds, settings.ablation_seeds)


def _join_experts(settings: RoutingSettings) -> str:
    """The experts as the first part of a job's name: another set of experts is another experiment."""
    return "+".join(settings.experts)


def _list_orders(settings: RoutingSettings) -> dict[str, list[str]]:
    """The orders of experts and of families, which decide random draws; keys of jobs sort names."""
    return {"experts": list(settings.experts), "questions": list(settings.questions)}


def _describe_training(params: Params, variant: RoutingVariant) -> dict[str, Any]:
    """What a training is handed of its variant and of the settings."""
    settings = params.routing
    learn = config.validate_settings(
        settings.learn.model_dump() | dict(variant.changes),
        LearnSettings,
        f"the variant {variant.name}",
    )
    fields = [*_READ_BY_TESTS, *_READ_BY_TRAINING]
    if variant.style == "number":
        fields += _READ_BY_TESTS_WITH_NUMBERS
    return {
        "job": TRAINING,
        "variant": variant.to_job_settings(),
        "routing": settings.to_job_settings(*fields),
        "order": _list_orders(settings),
        "learn": learn.model_dump(),
        "updates": settings.updates[variant.style],
        "tests": plan_tests(settings, [variant]),
        "versions": list_versions(TRAINING, params.llm, list(settings.experts.values())),
    }


def _describe_tests_of_start(params: Params, seed: int) -> dict[str, Any]:
    """What the tests of a seed's start are handed: it is asked as the variants that have this seed are."""
    settings = params.routing
    tested_as = [VARIANTS_BY_NAME[MAIN_VARIANT]]
    fields = [*_READ_BY_TESTS]
    if seed < settings.ablation_seeds:
        tested_as += [VARIANTS_BY_NAME["hard"], VARIANTS_BY_NAME["number"]]
        fields += _READ_BY_TESTS_WITH_NUMBERS
    return {
        "job": TESTS_OF_START,
        "variant": None,
        "routing": settings.to_job_settings(*fields),
        "order": _list_orders(settings),
        "tests": plan_tests(settings, tested_as),
        "versions": list_versions(TESTS_OF_START, params.llm, list(settings.experts.values())),
    }


def plan_tests(settings: RoutingSettings, tested: Sequence[RoutingVariant]) -> list[dict[str, Any]]:
    """List the tests of a controller: styles of prompts and temperatures.

    Args:
        settings: Its temperatures are read.
        tested: Variants as which the controller is tested.

    Returns:
        A style and a temperature each: that of use, and for SAMPLED_VARIANTS that of training too.
    """
    tests = []
    for variant in tested:
        temperatures = [settings.test_temperature]
        if variant.name in SAMPLED_VARIANTS:
            temperatures.append(settings.temperature)
        for temperature in dict.fromkeys(temperatures):
            tests.append({"style": variant.style, "temperature": temperature})
    return tests


def list_versions(kind: str, llm: LLMSettings, names: Sequence[str] = ()) -> dict[str, int]:
    """List the VERSIONs of the code that decides the numbers of a kind of job.

    Args:
        kind: TRIAL, LESSONS, TRAINING or TESTS_OF_START.
        llm: The models that there are.
        names: Those of `llm.models` that the job asks.

    Returns:
        VERSIONs by what they are of.
    """
    if kind == LESSONS:
        return {
            "random streams": seeds.VERSION,
            "tasks": tasks.VERSION,
            "tokenizer": tokenizer.VERSION,
            "chat template": chat_template.VERSION,
            "initial weights": checkpoints.VERSION,
            "training batches": training_data.VERSION,
            "muon": muon.VERSION,
            "training": pretraining.VERSION,
            "routing protocol": call_protocol.VERSION,
            "lessons in the protocol": sft_warmup.VERSION,
            "routing study": VERSION,
        }
    versions = cache_key.versions(llm, names) | {
        "calls to experts": expert_pool.VERSION,
        "trials of experts": expert_outcomes.VERSION,
        "routing study": VERSION,
    }
    if any(llm.models[name].backend != "lab" for name in names):
        versions["rules of questions"] = rules.VERSION
    if kind == TRIAL:
        return versions
    versions |= {
        "routing protocol": call_protocol.VERSION,
        "turns of controllers": generators.VERSION,
        "episodes": rollout.VERSION,
        "episodes under a budget": budget_episodes.VERSION,
        "reward within a budget": budget_reward.VERSION,
        "routing variants": variants.VERSION,
        "training logs": transcript.VERSION,
    }
    if kind == TRAINING:
        versions["losses"] = losses.VERSION
        versions["token PPO"] = token_ppo.VERSION
    return versions
