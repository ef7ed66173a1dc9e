"""The experiment of lesson 07: searches, trainings and prompted policies, and the same questions for all of them.

Jobs of a sweep that resumes, see `jobs`: one for each part of the declared set, for greedy search, prompted policies,
prompt optimizers, atoms and each seed of random choices; one for each variant and seed, which trains one policy for
each kind of question; and last one that tries all choices of the trained policies on all test questions, for the
oracle. Working files lie under data/runs/configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.agent_configuration import encoders, search, search_jobs, training_job
from lib.agent_configuration.agent_system import ConfiguredQuestion, drop_lost_questions
from lib.agent_configuration.atoms import read_library
from lib.agent_configuration.cost_plan import announce_experiment, announce_questions
from lib.agent_configuration.jobs import (
    ATOM_EFFECTS,
    CONSTANTS,
    DECLARED_SET,
    GREEDY_SEARCH,
    POLICY_CHOICES,
    PROMPT_OPTIMIZERS,
    PROMPTED_POLICIES,
    RANDOM_CHOICES,
    TRAINING,
    make_choices_job,
    make_constants_job,
    make_jobs,
    select_trainings,
)
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.training import ConfigurationPolicy
from lib.agent_configuration.variants import ARC, FLAT_BANDIT, ConfigurationVariant
from lib.agent_configuration.workbench import (
    CASSETTES,
    NAME,
    RUNS,
    TEST_DRAW,
    ConfigurationWorkbench,
    make_context,
    make_toolbox,
    open_workbench,
)
from lib.config import ROOT, ConfigurationSettings, Params, ParamsError
from lib.experiment import artifacts, sweep
from lib.experiment.harness import FinishedJobs, JobRun, Stage, run_stages, use_one_thread
from lib.experiment.run_context import RunContext
from lib.language_models.training.model_folders import ensure_models
from lib.llm.open_models import export_recording
from lib.tasks import Item

__all__ = [
    "CASSETTES",
    "NAME",
    "POLICY",
    "RUNS",
    "make_context",
    "make_jobs",
    "make_toolbox",
    "open_workbench",
]

POLICY = RUNS / "policy"
TRAINED_IN_SIGHT = (ARC, FLAT_BANDIT)  # the others are trained in the full run
_NUM_SAMPLED = 11  # random configurations beside the base, in `choices`
_REFERENCE_ITEMS = (
    30  # training questions of each kind that a question of one's own is compared with
)

_WORK = {
    DECLARED_SET: search_jobs.try_declared,
    GREEDY_SEARCH: search_jobs.search_greedily,
    PROMPTED_POLICIES: search_jobs.prompt_policies,
    PROMPT_OPTIMIZERS: search_jobs.optimize_prompts,
    RANDOM_CHOICES: search_jobs.choose_at_random,
    ATOM_EFFECTS: search_jobs.try_atoms,
    POLICY_CHOICES: search_jobs.try_policy_choices,
    CONSTANTS: search_jobs.check_constants,
    TRAINING: training_job.run_training,
}


@dataclass(frozen=True)
class AgentConfigurationResults:
    """The tables of the experiment.

    Attributes:
        tried: Configurations that were tried on all questions, with columns split (`search_jobs.SPLITS`), set (grid,
            sampled, greedy, policies) and number, beside those of `agent_system.make_table`.
        tests: Test questions under the configuration that each method chose, with method, seed, model, error, and for
            trained methods `only`, the kind that the policy learned from.
        greedy: Configurations tried and mean reward on the way of each greedy search, with group.
        atoms: What `atom_effects.measure_atom_effects` measured.
        rollouts: Episodes of training that were scored, with method, seed, step and only.
        learning: Losses and entropies of every update, likewise.
        refined: What SFT and DPO started from, by method, seed and kind.
    """

    tried: pd.DataFrame
    tests: pd.DataFrame
    greedy: pd.DataFrame
    atoms: pd.DataFrame
    rollouts: pd.DataFrame
    learning: pd.DataFrame
    refined: pd.DataFrame


def run(
    params: Params,
    compared: Sequence[ConfigurationVariant] = TRAINED_IN_SIGHT,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "configuring agents",
) -> AgentConfigurationResults:
    """Run the experiment: do all jobs that are not done yet.

    Args:
        params: All settings.
        compared: The variants that are trained.
        models: Folder of the lab models; None for those of lesson 03, which are made where they are missing.
        runs: Folder of the jobs.
        label: What the progress line calls them.

    Returns:
        The tables of all jobs.

    Raises:
        ModelError: A folder without lab models.
        ParamsError: A library of atoms that is none.
        SandboxUnavailable: No sandbox works here.
    """
    settings, runs = params.configuration, Path(runs)
    models = ensure_models(params.lab, models)
    context = make_context(params, models, runs)
    _check_inputs(context, settings)
    jobs = make_jobs(params, compared, models)
    trainings = select_trainings(jobs)
    last_jobs = [make_constants_job(params, models, jobs)]
    if trainings:
        last_jobs.append(make_choices_job(params, models, trainings))
    stages = [
        Stage(label, jobs, work),
        Stage("constants and choices of trained policies", last_jobs, work),
    ]
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    costs = announce_experiment(params, compared, len(read_library(context.inputs["atoms"])))
    finished = run_stages(stages, context, keep_replies, costs)
    _publish_policies(jobs, params, models, runs)
    return _collect_results(finished)


def _check_inputs(context: RunContext, settings: ConfigurationSettings) -> None:
    """Open models, atoms and encoder once, so that what is wrong with them is raised before any process starts."""
    with open_workbench(context, settings) as bench:
        bench.open_model(settings.prompted)
        for model in (settings.model, settings.larger):
            bench.make_system(model)
        encoders.make_encoder(settings.encoder, context.models)


def train_policies(
    params: Params,
    compared: Sequence[ConfigurationVariant],
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training policies",
) -> pd.DataFrame:
    """Train and test variants, without searches and prompted policies.

    Args:
        params: All settings.
        compared: The variants that are trained.
        models: Folder of the lab models, as of `run`.
        runs: Folder of the jobs.
        label: What the progress line calls them.

    Returns:
        Rows as of `AgentConfigurationResults.tests`.
    """
    models = ensure_models(params.lab, models)
    jobs = select_trainings(make_jobs(params, compared, models))
    context = make_context(params, models, runs)
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    costs = announce_experiment(params, compared, num_atoms=0, trainings_only=True)
    finished = run_stages([Stage(label, jobs, work)], context, keep_replies, costs)
    (tests,) = drop_lost_questions(finished.read_tables("tests", with_identity=False))
    return tests


def choices(
    params: Params, n: int, models: str | Path | None = None, runs: str | Path = RUNS
) -> pd.DataFrame:
    """Answer dev and test questions under a dozen configurations, in two samples each, to estimate the headroom.

    Nothing is trained on these answers.

    Args:
        params: All settings.
        n: Number of questions of each kind and split.
        models: Folder of the lab models, as of `run`.
        runs: Folder of the jobs.

    Returns:
        Rows with split, method (a number), item, sample, correct, reward, as `stats.headroom` asks for them.
    """
    tables = []
    context = make_context(params, ensure_models(params.lab, models), runs)
    with open_workbench(context, params.configuration) as bench:
        sampled = search.sample_configurations(_NUM_SAMPLED, bench.list_atom_names())
        configurations = [search.BASE, *sampled]
        parts = list(product(("dev", "test"), range(2)))  # splits and samples
        num_questions = len(parts) * len(configurations) * len(bench.draw_items("dev", n))
        sweep.print_to_terminal(announce_questions(params, num_questions, "trying configurations"))
        for split, sample in parts:
            items = bench.draw_items(split, n)
            jobs = [
                ConfiguredQuestion(item, configuration, TEST_DRAW + sample)
                for configuration in configurations
                for item in items
            ]
            rows = bench.play(params.configuration.model, jobs)[["prompt", "correct", "reward"]]
            labels = {
                "split": split,
                "sample": sample,
                "method": np.repeat(np.arange(len(configurations)), len(items)),
                "item": np.tile(np.arange(len(items)), len(configurations)),
            }
            tables.append(rows.assign(**labels))
    (rows,) = drop_lost_questions(pd.concat(tables, ignore_index=True))
    return rows.drop(columns="prompt")


# Policies for questions of one's own ----------------------------------------------------------------


def guess_kind(bench: ConfigurationWorkbench, item: Item) -> str:
    """Guess the kind of a question: that of the most similar training question, by cosine similarity of the encoder.

    Args:
        bench: Has the encoder and the training questions.
        item: The question.

    Returns:
        The name of the kind.
    """
    (vector,) = bench.encode([item.prompt])  # of length 1, as all vectors of the encoder
    similarity_by_kind = {}
    for kind in KINDS:
        references = bench.draw_items("train", _REFERENCE_ITEMS, (kind.name,))
        reference_vectors = bench.encode([reference.prompt for reference in references])
        similarity_by_kind[kind.name] = float(np.max(reference_vectors @ vector))
    return max(similarity_by_kind, key=similarity_by_kind.__getitem__)


def _read_policy(path: Path, bench: ConfigurationWorkbench, kind: str) -> ConfigurationPolicy:
    """Read ARC's policy of a kind of question from a file with its weights."""
    num_inputs = bench.make_states(bench.draw_items("train", 1)[:1]).shape[1]
    policy = ConfigurationPolicy(ARC.kind, num_inputs, bench.select_atoms(kind))
    return policy.load_arrays(artifacts.read_tensors(path))


def _publish_policies(jobs: Sequence[sweep.Job], params: Params, models: Path, runs: Path) -> None:
    """Copy ARC's policies of the first seed to the folder in which the command line looks for them.

    Args:
        jobs: All jobs.
        params: All settings.
        models: Folder of the small models.
        runs: Folder of the jobs.
    """
    settings = params.configuration
    folder = runs / POLICY.name
    for job in select_trainings(jobs):
        if job.settings["variant"]["name"] != ARC.name or job.settings["seed"] != 0:
            continue
        for kind in KINDS:
            name = f"{ARC.name}-{kind.name}.safetensors"
            weights = artifacts.read_tensors(job.folder(runs) / name)
            artifacts.write_tensors(folder / name, weights)
        description = _describe_inputs(settings.encoder, ROOT / settings.atoms, models)
        artifacts.write_json(folder / "policy.json", description)


def _describe_inputs(encoder: str, atoms_file: str | Path, models: str | Path) -> dict[str, str]:
    """Describe what a policy reads and chooses from: with another encoder or library it is worth nothing."""
    return {
        "encoder": encoders.identify_encoder(encoder, models),
        "atoms": artifacts.sha256_file(atoms_file),
    }


def read_published_policy(
    folder: str | Path, bench: ConfigurationWorkbench, kind: str
) -> ConfigurationPolicy:
    """Read the published policy of a kind of question.

    Args:
        folder: Folder of the policies.
        bench: Its encoder and library must be those of the training.
        kind: The kind of question.

    Returns:
        The policy.

    Raises:
        ParamsError: There is no policy, or one for another encoder or another library of atoms.
    """
    folder = Path(folder)
    if not (folder / "policy.json").is_file():
        raise ParamsError(
            f"there is no trained policy in {folder}; `make repro` trains one in lesson 07"
        )
    description = artifacts.read_json(folder / "policy.json")
    current = _describe_inputs(bench.settings.encoder, bench.atoms_file, bench.models)
    changed = [name for name in current if description.get(name) != current[name]]
    if changed:
        raise ParamsError(
            f"the policy in {folder} was trained with another {changed[0]}; run `make repro` once more"
        )
    return _read_policy(folder / f"{ARC.name}-{kind}.safetensors", bench, kind)


# Jobs ----------------------------------------------------------------------------------------------


def work(run: JobRun) -> Any:
    """Do one job, by its kind."""
    use_one_thread()
    settings = run.read_section("configuration", ConfigurationSettings)
    with open_workbench(run.context, settings) as bench:
        return _WORK[run.kind](bench, run)


def _collect_results(finished: FinishedJobs) -> AgentConfigurationResults:
    """Read the tables of all jobs.

    Args:
        finished: The jobs.

    Returns:
        The tables.
    """
    trainings = select_trainings(finished.jobs)
    rollouts = _read_trainings(trainings, finished.runs, "rollouts")
    if len(rollouts):
        rollouts = rollouts[rollouts["reward"].notna()].reset_index(drop=True)
    return AgentConfigurationResults(
        tried=finished.read_tables("tried", with_identity=False),
        tests=finished.read_tables("tests", with_identity=False),
        greedy=finished.read_tables("greedy", with_identity=False),
        atoms=finished.read_tables("atoms", with_identity=False),
        rollouts=rollouts,
        learning=_read_trainings(trainings, finished.runs, "learning"),
        refined=_read_refinements(finished),
    )


def _read_refinements(finished: FinishedJobs) -> pd.DataFrame:
    """Read what the refinements (SFT and DPO) of each policy started from.

    Args:
        finished: The jobs.

    Returns:
        A row for each training, kind of question (only) and refinement (how).
    """
    rows = []
    for job, receipt in finished.list_results():
        if job.settings["job"] != TRAINING:
            continue
        training = {"method": job.settings["variant"]["name"], "seed": job.settings["seed"]}
        for kind, reports in receipt["result"].items():
            for refinement, report in reports.items():
                rows.append(training | {"only": kind, "how": refinement} | report)
    return pd.DataFrame(rows)


def _read_trainings(trainings: Sequence[sweep.Job], runs: Path, name: str) -> pd.DataFrame:
    """Read one table of all trainings.

    Args:
        trainings: The training jobs.
        runs: Folder of the jobs.
        name: Name of the table.

    Returns:
        Its rows, with method and seed; empty without trainings.
    """
    tables = []
    for job in trainings:
        rows = artifacts.read_parquet(job.folder(runs) / f"{name}.parquet")
        method = job.settings["variant"]["name"]
        tables.append(rows.assign(method=method, seed=job.settings["seed"]))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
