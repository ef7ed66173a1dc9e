"""One training job: a variant under one seed, with one policy for each kind of question, all of them side by side."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from lib.agent_configuration.policy_updates import Rules
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.training import (
    ConfigurationPolicy,
    ConfigurationTraining,
    Refining,
    TrainingPlan,
    prefer_better,
    refine,
    train_side_by_side,
)
from lib.agent_configuration.variants import DPO, MDP, NO_SFT, ConfigurationVariant
from lib.agent_configuration.workbench import ConfigurationWorkbench
from lib.config import ConfigurationSettings
from lib.experiment import artifacts
from lib.experiment.harness import JobRun

ROLLOUTS = "rollouts.parquet"
_FRACTION_TRAINING = 0.85  # of a job's time


def make_plan(settings: ConfigurationSettings, variant: ConfigurationVariant) -> TrainingPlan:
    """Make the plan of a training: PPO by appendix F of ARC, GRPO by appendix H.

    Args:
        settings: Settings of the lesson.
        variant: What is trained.

    Returns:
        The plan.
    """
    section = settings.grpo if variant.grouped else settings.ppo
    gamma = section.gamma if variant.gamma is None else variant.gamma
    rules = Rules(
        clip=section.clip,
        gamma=1.0 if gamma is None else gamma,  # group-relative advantages do not discount
        entropy=section.entropy,
        value=section.value,
        max_grad_norm=section.max_grad_norm,
        epochs=section.epochs,
        grouped=variant.grouped,
        stepwise=variant.kind == MDP,
    )
    weights = Weights(**settings.reward.model_dump())
    if variant.sparse:
        weights = Weights(alpha=weights.alpha, beta_s=0.0, beta_t=0.0, eta=0.0)
    rates = (section.structure_rate, section.prompt_rate)
    return TrainingPlan(
        episodes=settings.episodes,
        batch=section.batch,
        rates=rates,
        rules=rules,
        weights=weights,
        group=section.group,
        draws=settings.draws,
    )


def make_refining(settings: ConfigurationSettings, section_name: str) -> Refining:
    """Make the plan of a refinement, SFT or DPO.

    Args:
        settings: Settings of the lesson.
        section_name: Section that has the refinement's settings, "sft" or "dpo".

    Returns:
        The plan.
    """
    section = getattr(settings, section_name).model_dump()
    rates = (section.pop("structure_rate"), section.pop("prompt_rate"))
    return Refining(rates=rates, **section)


def run_training(bench: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """Train a variant on every kind of question, refine each policy, and test all policies.

    Writes the tables rollouts, learning and tests (column `only`: the kind that a policy learned from) and the weights
    of every policy. A job that was killed takes the rewards of its rollouts from the file.

    Args:
        bench: Agents, questions and rewards.
        run: The job, with variant and seed.

    Returns:
        What SFT and DPO started from, by kind.
    """
    settings = bench.settings
    variant = ConfigurationVariant.from_job_settings(run.settings["variant"])
    plan = make_plan(settings, variant)
    path = run.folder / ROLLOUTS
    recorded = artifacts.read_parquet(path) if path.exists() else None

    # One training for each kind of question
    system = bench.make_system(settings.model)
    trainings: dict[str, ConfigurationTraining] = {}
    for kind in KINDS:
        items = bench.draw_items("train", settings.train_items, (kind.name,))
        states = bench.make_states(items)
        policy = ConfigurationPolicy(
            variant.kind, states.shape[1], bench.select_atoms(kind.name), variant.masked, run.seed
        )
        recorded_of_kind = None if recorded is None else recorded[recorded["only"] == kind.name]
        trainings[kind.name] = ConfigurationTraining(
            policy, system, items, states, plan, run.seed, recorded_of_kind
        )

    # Train them side by side
    def save_progress() -> None:
        step = next(iter(trainings.values())).step
        run.report_progress(_FRACTION_TRAINING * step / plan.num_updates)
        if step % run.context.save_every == 0 or step == plan.num_updates:
            artifacts.write_parquet(path, _stack_rollouts(trainings))

    train_side_by_side(list(trainings.values()), save_progress)

    # Refine and test
    tests = []
    learning = []
    reports: dict[str, Any] = {}
    for kind_name, training in trainings.items():
        learning.append(pd.DataFrame(training.losses_by_update).assign(only=kind_name))
        refined, reports[kind_name] = _refine(training, settings, variant, run.seed)
        for name, policy in refined.items():
            weights_path = run.folder / f"{name}-{kind_name}.safetensors"
            artifacts.write_tensors(weights_path, policy.to_arrays())
            tests += _test_policy(bench, policy, name, variant, kind_name, run.seed)
    run.write_table("learning", pd.concat(learning, ignore_index=True))
    run.write_table("tests", pd.concat(tests, ignore_index=True))
    return reports


def _stack_rollouts(trainings: dict[str, ConfigurationTraining]) -> pd.DataFrame:
    """Stack the episodes of all trainings so far, with the kind that each training learns from."""
    tables = []
    for kind_name, training in trainings.items():
        tables.append(pd.concat(training.rows, ignore_index=True).assign(only=kind_name))
    return pd.concat(tables, ignore_index=True)


def _refine(
    training: ConfigurationTraining,
    settings: ConfigurationSettings,
    variant: ConfigurationVariant,
    seed: int,
) -> tuple[dict[str, ConfigurationPolicy], dict[str, Any]]:
    """Refine a trained policy by SFT, and by DPO where its variant asks for it.

    Args:
        training: The training that has ended, with its policy and all its episodes.
        settings: Settings of the lesson.
        variant: What was trained.
        seed: Seed of the training.

    Returns:
        The policies by the name of their method, the unrefined one among them, and the report of each refinement.
    """
    reports = {}
    refined, reports["sft"] = refine(training, make_refining(settings, "sft"), seed)
    by_method = {f"{variant.name}{NO_SFT}": training.policy, variant.name: refined}
    if variant.refined_by_dpo:
        preferring, reports["dpo"] = prefer_better(training, make_refining(settings, "dpo"), seed)
        by_method[f"{variant.name}{DPO}"] = preferring
    return by_method, reports


def _test_policy(
    bench: ConfigurationWorkbench,
    policy: ConfigurationPolicy,
    name: str,
    variant: ConfigurationVariant,
    kind_name: str,
    seed: int,
) -> list[pd.DataFrame]:
    """Test the likeliest choices of a policy on its own kind; ARC's also on the others and with larger agents.

    Args:
        bench: Agents, questions and rewards.
        policy: The policy whose choices are tested.
        name: Name of its method.
        variant: What was trained.
        kind_name: The kind of question that it learned from.
        seed: Seed of the training.

    Returns:
        A table of test rows for each model of the agents.
    """
    settings = bench.settings
    is_tested_everywhere = name == variant.name and variant.tested_everywhere
    models = [settings.model]
    if is_tested_everywhere:
        models.append(settings.larger)
    tables = []
    for model in models:
        kinds = (kind_name,)
        if is_tested_everywhere and model == settings.model:
            kinds = ()  # all of them
        items = bench.draw_items("test", settings.test_items, kinds)
        states = torch.from_numpy(bench.make_states(items))
        configurations = policy.decide(states).configurations
        tests = bench.test_configurations(items, configurations, model)
        tables.append(tests.assign(method=name, seed=seed, only=kind_name))
    return tables
