"""The experiment of lesson 02: every method meets the same students and rooms.

A job is a world (`worlds`: an environment and a kind of query) under one seed of the policy zoo. In it all methods
(`methods`) play the same episodes with the same random numbers. What a job holds is in `jobs`, what asking endpoints
may cost in `cost_plan`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from lib.config import Params
from lib.experiment import artifacts, results_table
from lib.experiment.harness import FinishedJobs, JobRun, Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.experiment.sweep import Job, read_receipt
from lib.llm.cost_estimate import PlannedCalls, announce_costs
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.open_models import export_recording
from lib.orchestration.cost_plan import plan_contest_calls, plan_prompted_calls
from lib.orchestration.decision_models import CASSETTES, RECORDING, RUNS
from lib.orchestration.jobs import make_jobs, make_prompted_jobs
from lib.orchestration.menus import has_planned_policies
from lib.orchestration.methods import ORACLE, Method, list_methods_of_job
from lib.orchestration.worlds import WORLDS, World
from lib.policy_zoo import train
from lib.policy_zoo.zoo_folder import ensure_zoo


def run(
    params: Params,
    worlds: Sequence[tuple[str, str]] = WORLDS,
    zoo: str | Path | None = None,
    runs: str | Path = RUNS,
    records: str | Path = results_table.RECORDS,
) -> pd.DataFrame:
    """Let every method play in every world, and return the results table, a row per method, seed and episode.

    A world is an environment together with a kind of query (the weights of the objectives). Jobs that are finished are
    read from their folders, the others are run.

    Args:
        params: All settings.
        worlds: Domain (education, minigrid) and name (paper, speed, varied) of each.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.
        runs: Folder of the jobs.
        records: Folder of the results table.

    Returns:
        The results table "orchestration", the oracle in hindsight among its methods.
        group: the domain; condition: the world; style: the objective that the query weighs most; outcomes: mastery,
        or the share of gold, by step. Its own columns: orchestrator, model, length, d1, d2, d3, progress, decisions,
        invalid_replies, kwh.
    """
    zoo = ensure_zoo(params, _list_trained_domains(worlds), zoo)
    jobs = []
    for domain, world in worlds:
        jobs += make_jobs(params, domain, world, zoo)
    planned_calls = plan_contest_calls(params, worlds)
    finished = run_jobs(params, jobs, "deciding", zoo, runs, planned_calls)
    episodes = finished.read_tables("episodes", with_identity=False)
    return results_table.write_results("orchestration", add_oracle(episodes), records)


def run_prompted(
    params: Params,
    domains: Sequence[str],
    models: Sequence[str] | None = None,
    zoo: str | Path | None = None,
    runs: str | Path = RUNS,
    without: Sequence[Sequence[str]] = ((),),
    label: str = "deciding with prompts",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Let prompted chat models decide as KO, TO and RO in the paper's worlds, and return tables of episodes and steps.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    They play the first of the episodes that all methods play.

    Args:
        params: All settings.
        domains: education, minigrid or both.
        models: Names of `llm.models`; None for those of `orchestration.prompted` but `orchestration.model`.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.
        runs: Folder of the jobs.
        without: Context components to leave out, a variant for each entry (Table 5).
        label: What the progress line says.

    Returns:
        Episodes, a row per method, seed and episode, and steps: a row per step, with method, seed and item.
    """
    zoo = ensure_zoo(params, domains, zoo)
    models = params.orchestration.further_models if models is None else models
    jobs = []
    for domain in domains:
        for model in models:
            jobs += make_prompted_jobs(params, domain, model, zoo, without)
    planned_calls = plan_prompted_calls(params, domains, models, len(without))
    finished = run_jobs(params, jobs, label, zoo, runs, planned_calls)
    episodes = finished.read_tables("episodes", with_identity=False)
    steps = finished.read_tables("steps", with_identity=False)
    return episodes, steps


def read_steps(
    params: Params,
    worlds: Sequence[tuple[str, str]],
    zoo: str | Path = train.ZOO_FOLDER,
    runs: str | Path = RUNS,
) -> pd.DataFrame:
    """Read the steps that every method took in some worlds from the folders of finished jobs.

    Args:
        params: All settings.
        worlds: Domain (education, minigrid) and name (paper or speed) of each. The varied worlds record no steps,
            because nothing that is shown of them is by step.
        zoo: Folder of the trained policies, by which the jobs are found.
        runs: Folder of the jobs.

    Returns:
        Columns method, seed, item (the episode, such as 0-17), group (the domain), condition (the world), and what the
        step recorded: state, policy, action and rewards.

    Raises:
        FileNotFoundError: A job is not finished.
    """
    tables = []
    for domain, world in worlds:
        for job in make_jobs(params, domain, world, zoo):
            tables.append(artifacts.read_parquet(job.folder(runs) / "steps.parquet"))
    return pd.concat(tables, ignore_index=True)


def run_jobs(
    params: Params,
    jobs: Sequence[Job],
    label: str,
    zoo: str | Path,
    runs: str | Path,
    planned_calls: Sequence[PlannedCalls] = (),
    inputs: Mapping[str, str] | None = None,
) -> FinishedJobs:
    """Run the jobs that are not finished yet, and return all of them with their tables `episodes` and `steps`.

    Args:
        params: All settings; of them the models and the number of processes are read.
        jobs: Each a set of episodes that some methods play.
        label: What the progress line says.
        zoo: Folder of the trained policies.
        runs: Folder of the jobs.
        planned_calls: Calls to endpoints that the jobs may need, which are announced with their price.
        inputs: Folders that jobs read, by the name that stands for them in the jobs' settings.

    Returns:
        All jobs, whose tables `episodes` and `steps` can be read.

    Raises:
        BudgetExceeded: The endpoints have cost the spending limit, llm.max_usd.
        LLMError: No endpoint can be used.
    """
    context = RunContext.of(params, zoo, runs, CASSETTES, params.orchestration.jobs)
    context = replace(context, inputs=inputs or {})
    # Say what endpoints may cost before the first call; keep their replies however the run ends.
    announcement = ""
    if planned_calls:
        announcement = f"{label}: {announce_costs(params.llm, planned_calls)}"
    keep_replies = partial(export_recording, params.llm, RECORDING, CASSETTES)
    stages = [Stage(label, jobs, play_job)]
    try:
        return run_stages(stages, context, on_exit=keep_replies, announcement=announcement)
    except BudgetExceeded as error:
        num_finished = sum(read_receipt(job, runs) is not None for job in jobs)
        error.add_note(
            f"llm.max_usd is reached; {num_finished} of {len(jobs)} jobs are finished and kept: "
            "raise it, and run again"
        )
        raise


def _list_trained_domains(worlds: Sequence[tuple[str, str]]) -> list[str]:
    """The domains of which policies of the zoo act in some of these worlds."""
    return sorted({domain for domain, name in worlds if not has_planned_policies(domain, name)})


# Work of a job --------------------------------------------------------------------------------------


def play_job(run: JobRun) -> dict[str, int]:
    """Play the episodes of every method of one job, and write the tables `episodes` and `steps`.

    Args:
        run: The job in progress; the varied worlds get no table of steps.

    Returns:
        `episodes`, the number of rows of that table.
    """
    torch.set_num_threads(1)  # the matrices are small: a second thread only waits
    world = World.of_job(run)
    methods = list_methods_of_job(world, run)
    keeps_steps = world.name != "varied"  # no result of the lesson reads steps of varied worlds

    episode_tables = []
    step_tables = []
    for number, method in enumerate(methods):
        world.test.num_copies = method.num_copies or world.settings.rollout_copies
        played_episodes = world.play(world.test, method.model, method.options)
        identity = _describe_method(method)
        episodes = played_episodes.episodes
        episode_tables.append(episodes.assign(item=np.arange(len(episodes)), **identity))
        if keeps_steps:
            step_tables.append(played_episodes.steps.assign(**identity))
        run.report_progress((number + 1) / len(methods))

    # An item is called by its seed and its number, such as 0-17.
    shared = {"seed": run.seed, "group": world.domain, "condition": world.name}
    episodes = pd.concat(episode_tables, ignore_index=True).assign(split="test", **shared)
    episodes["style"] = np.array(world.name_query_styles())[episodes["item"]]
    episodes["item"] = f"{run.seed}-" + episodes["item"].astype(str)
    run.write_table("episodes", episodes)
    if keeps_steps:
        steps = pd.concat(step_tables, ignore_index=True).assign(**shared)
        steps["item"] = f"{run.seed}-" + steps["episode"].astype(str)
        run.write_table("steps", steps)
    return {"episodes": len(episodes)}


def _describe_method(method: Method) -> dict[str, str]:
    """The columns of the results table that say who decided, and with what context."""
    system = method.options.system
    return {
        "method": method.name,
        "orchestrator": system,
        "model": method.model.name if system else "",
        "backend": method.model.backend,
        "role": method.role,
    }


def add_oracle(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the oracle, which has of each episode the highest utility that any method reached in it.

    It is an upper bound by construction, and no method: it knows in hindsight how every method fared.

    Args:
        rows: Episodes of all methods.

    Returns:
        The rows, and one of the oracle for each episode.
    """
    utility_by_episode = rows.groupby(["group", "condition", "seed", "item"])["reward"]
    best_rows = rows.loc[utility_by_episode.idxmax()]
    oracle_rows = best_rows.assign(
        method=ORACLE, role="oracle", backend="policy", orchestrator="", model=""
    )
    return pd.concat([rows, oracle_rows], ignore_index=True)
