"""The jobs of lesson 05, and the settings of each, which decide whether a finished job can be used again.

CoRL trains a small language model, the controller, which answers questions and may call experts, models that cost
money, within a budget. Four kinds of jobs:

- one measures what every expert scores and costs on all questions by itself;
- for every seed, one trains a controller to write calls and answers in the right form, supervised (both come first);
- for every variant and seed, one trains that controller by PPO and tests it;
- for every seed, one tests the start, which is the controller before PPO.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from lib import config, tasks
from lib.budgeted_routing import budget_episodes, expert_outcomes, variants
from lib.budgeted_routing.variants import (
    MEAN_OF_SAMPLES,
    VARIANTS_BY_NAME,
    RoutingVariant,
    count_updates,
)
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
START = "start"  # the method: the controller before it is trained by PPO
MAIN_VARIANT = "corl"  # has `routing.seeds` seeds; the others have `routing.ablation_seeds`
SAMPLED_VARIANTS = (MAIN_VARIANT, "hard")  # are also tested at the temperature of training

# Kinds of jobs, as their settings name them.
MEASURE_EXPERTS = "trial of experts"
TRAIN_PROTOCOL = "lessons in the protocol"
TRAIN_CONTROLLER = "training"
TEST_START = "tests of a start"

# Fields of `params.routing` that become part of a job's settings: those that its work reads.
_FIELDS_OF_EXPERTS = ("questions", "experts", "expert_temperature", "train_items", "test_items")
_FIELDS_OF_PROTOCOL = ("questions", "rounds", "budget_range", "warm")
_FIELDS_OF_TESTS = (
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
_FIELDS_OF_NUMERIC_BUDGETS = ("budget_unit_usd", "numeric_budgets", "budget_range")
_FIELDS_OF_TRAINING = ("temperature", "train_items", "batch")


def make_first_jobs(params: Params, models: Path) -> list[sweep.Job]:
    """Make the jobs that PPO trainings build on: one measures the experts, the others teach controllers the protocol.

    A controller is a small language model that may call experts, models that cost money. It starts from a base model,
    which learns from made-up examples to write calls and answers in the right form (the protocol), before PPO.

    Args:
        params: All settings; of each job's settings only what its work reads is a part.
        models: Folder of the language models.

    Returns:
        The job that lets every expert answer all questions, then for every seed a job of supervised training.
    """
    settings = params.routing
    expert_job = {
        "job": MEASURE_EXPERTS,
        "routing": settings.to_job_settings(*_FIELDS_OF_EXPERTS),
        "order": _list_orders(settings),
        "models": cache_key.describe_models(params.llm, settings.experts, settings.base, models),
        "versions": list_versions(MEASURE_EXPERTS, params.llm, list(settings.experts.values())),
    }
    protocol_job = {
        "job": TRAIN_PROTOCOL,
        "routing": settings.to_job_settings(*_FIELDS_OF_PROTOCOL),
        "order": _list_orders(settings),
        **_describe_splits(settings),
        "base": settings.base,
        "weights": artifacts.sha256_file(models / settings.base / "model.safetensors"),
        "shape": params.lab.models[settings.base].to_job_settings(*sft_warmup.BASE_SETTINGS),
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
        "versions": list_versions(TRAIN_PROTOCOL, params.llm),
    }
    prefix = _join_experts(settings)
    jobs = [sweep.Job(f"{prefix}/experts", expert_job)]
    for seed in range(settings.seeds):
        jobs.append(sweep.Job(f"{prefix}/controller/seed-{seed}", protocol_job | {"seed": seed}))
    return jobs


def make_jobs(
    params: Params, compared: Sequence[RoutingVariant], first_jobs: Sequence[sweep.Job]
) -> list[sweep.Job]:
    """Make a job that trains and tests a controller for each variant and seed, and one per seed that tests its start.

    The start is the controller before PPO, as the supervised training of the first jobs left it.

    Args:
        params: All settings; of each job's settings only what its work reads is a part.
        compared: The variants of CoRL that are compared, such as one with the budget as a number.
        first_jobs: The jobs of `make_first_jobs`, whose keys become part of the settings.

    Returns:
        The jobs, variants with many updates first, so that no process waits for a last long one.

    Raises:
        ParamsError: A variant changes the trainer to something that cannot be.
    """
    settings = params.routing
    prefix = _join_experts(settings)
    experts_key = first_jobs[0].key
    controller_keys = [job.key for job in first_jobs[1:]]  # by seed
    inputs_by_seed = [{"trial": experts_key, "controller": key} for key in controller_keys]

    jobs = []
    longest_first = sorted(compared, key=lambda variant: -count_updates(settings, variant.style))
    for variant in longest_first:
        training = _describe_training(params, variant)
        for seed in range(count_seeds(settings, variant)):
            job_settings = training | {"seed": seed, "inputs": inputs_by_seed[seed]}
            jobs.append(sweep.Job(f"{prefix}/{variant.name}/seed-{seed}", job_settings))
    for seed in range(settings.seeds):
        start_test = _describe_start_test(params, seed)
        job_settings = start_test | {"seed": seed, "inputs": inputs_by_seed[seed]}
        jobs.append(sweep.Job(f"{prefix}/{START}/seed-{seed}", job_settings))
    return jobs


def count_seeds(settings: RoutingSettings, variant: RoutingVariant) -> int:
    """Return with how many seeds a variant of CoRL is trained.

    Args:
        settings: CoRL's settings: `seeds` for the main variant, and at most `ablation_seeds` for the others.
        variant: The variant.
    """
    if variant.name == MAIN_VARIANT:
        return settings.seeds
    return min(settings.seeds, settings.ablation_seeds)


def _join_experts(settings: RoutingSettings) -> str:
    """Join the experts' names to the first part of every job's label: other experts are another experiment."""
    return "+".join(settings.experts)


def _list_orders(settings: RoutingSettings) -> dict[str, list[str]]:
    """List experts and families of questions in the order of the settings, which decides random draws.

    They are part of a job's settings, because a job's key is computed from settings with sorted names.
    """
    return {"experts": list(settings.experts), "questions": list(settings.questions)}


def _describe_splits(settings: RoutingSettings) -> dict[str, float]:
    """The share of chains that the warm start splits; left out where it splits none, as in all first experiments."""
    return {"split_share": settings.split_share} if settings.split_share else {}


def _describe_budgets(settings: RoutingSettings) -> dict[str, dict[str, int]]:
    """How many calls each budget affords, where that is set; left out where budgets follow from prices alone."""
    if settings.calls_by_budget is None:
        return {}
    return {"calls_by_budget": dict(settings.calls_by_budget)}


def _describe_training(params: Params, variant: RoutingVariant) -> dict[str, Any]:
    """Collect the settings of the jobs that train and test controllers of a variant, without seed and inputs.

    Args:
        params: All settings.
        variant: The variant of CoRL: a style of prompts, and changes to the trainer.

    Returns:
        Everything that decides the jobs' results, as JSON keeps it.

    Raises:
        ParamsError: The variant changes the trainer to something that cannot be.
    """
    settings = params.routing
    learn = config.validate_settings(
        settings.learn.model_dump() | dict(variant.changes),
        LearnSettings,
        f"the variant {variant.name}",
    )
    fields = [*_FIELDS_OF_TESTS, *_FIELDS_OF_TRAINING]
    if variant.style == "number":
        fields += _FIELDS_OF_NUMERIC_BUDGETS
    return {
        "job": TRAIN_CONTROLLER,
        "variant": variant.to_job_settings(),
        "routing": settings.to_job_settings(*fields),
        "order": _list_orders(settings),
        **_describe_budgets(settings),
        "learn": learn.model_dump(),
        "updates": count_updates(settings, variant.style),
        "tests": plan_tests(settings, [variant]),
        "versions": list_versions(TRAIN_CONTROLLER, params.llm, list(settings.experts.values())),
    }


def _describe_start_test(params: Params, seed: int) -> dict[str, Any]:
    """Collect the settings of the job that tests the start of a seed, the controller before PPO, without its inputs.

    The start is tested with the prompts of every variant that is trained with this seed.

    Args:
        params: All settings.
        seed: Number of the repetition. Those from `ablation_seeds` on exist for the main variant only.

    Returns:
        Everything that decides the job's results, as JSON keeps it.
    """
    settings = params.routing
    tested_variants = [VARIANTS_BY_NAME[MAIN_VARIANT]]
    fields = [*_FIELDS_OF_TESTS]
    if seed < settings.ablation_seeds:
        tested_variants += [VARIANTS_BY_NAME["hard"], VARIANTS_BY_NAME["number"]]
        fields += _FIELDS_OF_NUMERIC_BUDGETS
    return {
        "job": TEST_START,
        "variant": None,
        "routing": settings.to_job_settings(*fields),
        "order": _list_orders(settings),
        **_describe_budgets(settings),
        "tests": plan_tests(settings, tested_variants),
        "versions": list_versions(TEST_START, params.llm, list(settings.experts.values())),
    }


def plan_tests(
    settings: RoutingSettings, tested_variants: Sequence[RoutingVariant]
) -> list[dict[str, Any]]:
    """List the tests of a controller: how prompts state the budget, and at which temperature the controller writes.

    Args:
        settings: CoRL's settings; `test_temperature` and `temperature` (of the training) are read.
        tested_variants: The variants of CoRL with whose prompts the controller is tested.

    Returns:
        A dictionary per test: style (soft, hard or number) and temperature. Every variant has a test at
        `test_temperature`, those of SAMPLED_VARIANTS another one at the temperature of the training. MEAN_OF_SAMPLES
        has `test_samples` tests at that temperature, numbered by sample, and no other.
    """
    tests = []
    for variant in tested_variants:
        if variant.name == MEAN_OF_SAMPLES.name:
            for sample in range(settings.test_samples):
                tests.append(
                    {"style": variant.style, "temperature": settings.temperature, "sample": sample}
                )
            continue
        temperatures = [settings.test_temperature]
        is_sampled = variant.name in SAMPLED_VARIANTS
        if is_sampled and settings.temperature != settings.test_temperature:
            temperatures.append(settings.temperature)
        for temperature in temperatures:
            tests.append({"style": variant.style, "temperature": temperature})
    return tests


def list_versions(kind: str, llm: LLMSettings, names: Sequence[str] = ()) -> dict[str, int]:
    """List the versions of the code that decides the numbers of a kind of job.

    They are part of the job's settings: where a version is raised, finished jobs are not used again.

    Args:
        kind: MEASURE_EXPERTS, TRAIN_PROTOCOL, TRAIN_CONTROLLER or TEST_START.
        llm: Settings of all language models.
        names: The models among them that the job asks.

    Returns:
        The VERSION constants of modules, each under a name that says what it is a version of.
    """
    # Supervised training asks no expert.
    if kind == TRAIN_PROTOCOL:
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

    # All other jobs ask the experts,
    versions = cache_key.versions(llm, names) | {
        "calls to experts": expert_pool.VERSION,
        "trials of experts": expert_outcomes.VERSION,
        "routing study": VERSION,
    }
    if any(llm.models[name].backend != "lab" for name in names):
        versions["rules of questions"] = rules.VERSION
    if kind == MEASURE_EXPERTS:
        return versions

    # and those with a controller roll out episodes.
    versions |= {
        "routing protocol": call_protocol.VERSION,
        "turns of controllers": generators.VERSION,
        "episodes": rollout.VERSION,
        "episodes under a budget": budget_episodes.VERSION,
        "reward within a budget": budget_reward.VERSION,
        "routing variants": variants.VERSION,
        "training logs": transcript.VERSION,
    }
    if kind == TRAIN_CONTROLLER:
        versions["losses"] = losses.VERSION
        versions["token PPO"] = token_ppo.VERSION
    return versions
