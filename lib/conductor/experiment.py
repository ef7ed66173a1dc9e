"""The experiment: every variant under every seed, from that seed's initial policy, as jobs of a sweep that resumes.

First jobs make the initial policies (`lib.conductor.initial_policy`) and the reward model. Then one job per variant and
seed trains a policy, lets it answer the test items and keeps the numbers; of the Conductor itself the policy too.
Working files lie under data/runs/conductor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from lib.conductor import initial_policy, reward_model, training_job
from lib.conductor.jobs import REWARD_MODEL_SEED, make_jobs, needs_judge
from lib.conductor.judge_costs import announce_grades
from lib.conductor.training_job import RECORDING
from lib.conductor.variants import STATIC_CANDIDATES, VARIANTS, ConductorVariant
from lib.config import ROOT, Params
from lib.experiment import artifacts
from lib.experiment.harness import Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.training.model_folders import ensure_models
from lib.llm.open_models import export_recording

RUNS = ROOT / "data/runs/conductor"
CASSETTES = ROOT / "data/cassettes/04_conductor"


@dataclass(frozen=True)
class ConductorResults:
    """What an experiment left, with columns method and seed in every table.

    Attributes:
        items: One row per test item, of `evaluation.score_items`.
        components: One row per reply, of `evaluation.measure_rewards`.
        rollouts: One row per training rollout, of `ConductorTrainer.rollouts`.
        agreement: Agreement of the reward model with held-out pairs.
        timings: Wall time of every job; it differs from run to run.
    """

    items: pd.DataFrame
    components: pd.DataFrame
    rollouts: pd.DataFrame
    agreement: pd.DataFrame
    timings: pd.DataFrame


def run(
    params: Params,
    compared: Sequence[ConductorVariant] = VARIANTS,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training policies",
    training_seeds: Sequence[int] | None = None,
    split: str = "test",
) -> ConductorResults:
    """Train and test the policies of all variants, except those that are finished.

    Args:
        params: All settings.
        compared: The variants.
        models: Folder of the lab models; None for those of lesson 03, which are made where they are missing.
        runs: Folder of the jobs.
        label: Text of the progress line.
        training_seeds: Seeds of the trainings; None for the first `conductor.seeds`.
        split: Split on whose items policies are tested. Base and Oracle are tested on dev, too, which decides the
            categories in which anything can be learned.

    Returns:
        Tables of scores, rewards, rollouts and timings.

    Raises:
        ModelError: The folder has no policy to start from.
    """
    settings = params.conductor
    runs = Path(runs)
    models = ensure_models(params.lab, models, initial_policy.list_lab_models(params))
    policy = models / settings.policy
    checkpoints.load(policy)  # raises what is wrong before any process starts
    if training_seeds is None:
        training_seeds = range(settings.seeds)

    # The variants build on an initial policy for each seed, and on one reward model for all.
    initial_policy_jobs = [
        initial_policy.make_job(settings.initial_policy, policy, seed)
        for seed in sorted({REWARD_MODEL_SEED, *training_seeds})
    ]
    reward_model_job = reward_model.make_job(settings, policy, REWARD_MODEL_SEED)
    variant_jobs = make_jobs(params, compared, policy, training_seeds, split)
    make_initial_policy = partial(initial_policy.run_job, policy=str(policy))
    stages = [
        Stage("fine-tuning the initial policies", initial_policy_jobs, make_initial_policy),
        Stage("training the reward model", [reward_model_job], reward_model.run_job, workers=1),
        Stage(label, variant_jobs, training_job.run_job),
    ]

    context = RunContext.of(params, models, runs, CASSETTES, settings.jobs)
    keep_replies = partial(export_recording, params.llm, RECORDING, CASSETTES)
    num_judged = len(training_seeds) * sum(map(needs_judge, compared))
    num_prompts = num_judged * settings.prompts
    announcement = announce_grades(params.llm, settings, settings.judge, num_prompts)
    finished = run_stages(stages, context, keep_replies, announcement)

    # Seconds of the variants, the last stage.
    timings = []
    for job, receipt in finished.list_results()[-len(variant_jobs) :]:
        row = training_job.describe_job(job) | {"seconds": receipt["seconds"]}
        timings.append(row | receipt["result"])
    return ConductorResults(
        items=finished.read_tables("items"),
        components=finished.read_tables("components"),
        rollouts=finished.read_tables("rollouts"),
        agreement=artifacts.read_parquet(reward_model_job.folder(runs) / "agreement.parquet"),
        timings=pd.DataFrame(timings),
    )


def choose_best_static(rows: pd.DataFrame) -> str:
    """Choose the best fixed reward on dev items, by the seeds that all candidates were trained under.

    Args:
        rows: The results table, with dev rows of STATIC_CANDIDATES.

    Returns:
        The label of the variant. Equal weights are compared anyway.

    Raises:
        ValueError: No candidate was tested on dev items.
    """
    labels = [variant.label for variant in STATIC_CANDIDATES]
    dev = rows[rows["split"].eq("dev") & rows["method"].isin(labels)]
    if dev.empty:
        raise ValueError(f"there are no dev rows of {', '.join(labels)}; train them first")
    seeds_by_method = dev.groupby("method")["seed"].agg(set)
    shared_seeds = set.intersection(*seeds_by_method)
    scores = dev[dev["seed"].isin(shared_seeds)].groupby("method")["correct"].mean()
    return scores.idxmax()
