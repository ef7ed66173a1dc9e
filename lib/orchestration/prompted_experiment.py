"""The experiment: every method, every seed, the same students and rooms, one decision record.

A job of the sweep is one method under one seed. Its episodes run at once (async, so that calls to a
model overlap), jobs run in processes. Every finished episode is a file, every finished job one
table; a killed study resumes with what is missing, and a paid episode is never paid twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import envs
from lib.config import ROOT, LLMSettings, OrchestrationSettings, Params
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import JobRun, Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.language_models.cache_key import describe_model
from lib.language_models.cache_key import versions as versions_of_asking
from lib.language_models.local_models import open_local
from lib.llm import cost_ledger
from lib.llm.chat_model import ChatModel
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint, plan_requests
from lib.llm.cost_ledger import BudgetExceeded, Ledger, measured_energy
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import ChatModels, export_recording, open_models
from lib.llm.scripted_model import ScriptedModel
from lib.orchestration import (
    baselines,
    decisions,
    domains,
    environment_copies,
    orchestrators,
    prompt_components,
    reply_parser,
)
from lib.orchestration import variants as method_rows
from lib.orchestration.baselines import Random, SinglePolicy
from lib.orchestration.decisions import Decider, Decision, OrchestrationEpisode
from lib.orchestration.domains import WORLDS
from lib.orchestration.environment_copies import PolicyMenu, World
from lib.orchestration.llm_judge import ATTEMPTS, judge, make_first_requests
from lib.orchestration.orchestrators import Orchestrator
from lib.orchestration.prompt_components import assemble, render
from lib.orchestration.variants import KINDS, Method
from lib.policy_zoo import evaluate, networks, policies, recipes, train
from lib.policy_zoo.evaluate import evaluation_streams
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import SINGLE
from lib.policy_zoo.zoo_folder import ensure_zoo

VERSION = 1  # of episodes of a method under a seed
RUNS = ROOT / "data/runs/orchestration"
CASSETTES = ROOT / "data/cassettes/02_orchestration"
NAME = "orchestration"  # of the cassette and of the purse

# Fields of the settings that an orchestrator of a kind reads: all, and beyond KO those of its look-ahead.
_READ_BY_ALL = ("weights", "memory", "summarise_every", "fallback")
_READ_FOR_LOOKING = {
    "KO": (),
    "TO": ("probes", "rollout_copies"),
    "RO": ("candidates", "lookahead", "rollout_copies"),
}


def plan(params: Params, zoo: str | Path | None = None) -> list[PlannedCalls]:
    """What all orchestrators may ask at the most: episodes at full length, every look-ahead used.

    Args:
        params: All settings.
        zoo: See `run`.

    Returns:
        Planned calls by model.
    """
    zoo = ensure_zoo(params, WORLDS, zoo)
    planned: dict[str, PlannedCalls] = {}
    for domain in WORLDS:
        for more in plan_calls(params, domain, method_rows.orchestrators(params), zoo):
            before = planned.get(more.model, PlannedCalls(more.model, 0, 0, 0))
            planned[more.model] = PlannedCalls(
                more.model,
                before.calls + more.calls,
                before.tokens_in + more.tokens_in,
                before.tokens_out + more.tokens_out,
            )
    return list(planned.values())


def plan_calls(
    params: Params,
    domain: str,
    methods: Sequence[Method],
    zoo: str | Path,
    runs: str | Path | None = None,
) -> list[PlannedCalls]:
    """What methods may ask at the most in a domain.

    Args:
        params: All settings.
        domain: education or minigrid.
        methods: Those that ask no model are left out.
        zoo: Folder of the trained policies and their cards.
        runs: Where finished episodes lie, which are not asked again; None counts them too.

    Returns:
        Planned calls of each method. Tokens of a call: a quarter of the characters of a first prompt, and 60 for a
        reply.
    """
    planned = []
    for method in methods:
        if method.kind not in KINDS:
            continue
        jobs = make_jobs(params, domain, [method], zoo)
        bench = Bench(jobs[0].settings, _make_context(params, zoo, RUNS))
        episode = bench.begin(evaluation_streams(domain, 0, 1)[0])
        # A stand-in, since nobody is asked here.
        model = ScriptedModel(method.model, params.llm.models[method.model])
        orchestrator = bench.decider({method.model: model})
        messages = assemble(render(orchestrator.components, orchestrator.situation(episode)))
        characters = sum(len(message["content"]) for message in messages)
        reach = orchestrator.reach
        replies_per_decision = 1 + -(-reach.limit // max(1, reach.at_once))
        num_episodes = len(jobs) * params.orchestration.episodes
        if runs is not None:
            num_episodes -= sum(_count_finished_episodes(job, runs) for job in jobs)
        calls = num_episodes * episode.world.horizon * replies_per_decision
        planned.append(PlannedCalls(method.model, calls, calls * characters // 4, calls * 60))
    return planned


def _count_finished_episodes(job: sweep.Job, runs: str | Path) -> int:
    if sweep.read_receipt(job, runs) is not None:
        return job.settings["episodes"]
    return len(list(job.folder(runs).glob("episode-*.parquet")))


def seconds(
    params: Params, domain: str, methods: Sequence[Method], runs: str | Path = RUNS
) -> pd.DataFrame:
    """Core seconds that each method's episodes took, from the receipts of the sweep. Not for a report's bytes."""
    rows = []
    for job in make_jobs(params, domain, methods):
        receipt = sweep.read_receipt(job, runs)
        if receipt:
            name = job.settings["method"]["name"]
            rows.append({"method": name, **receipt["result"], "seconds": receipt["seconds"]})
    sums = (
        pd.DataFrame(rows).groupby("method", sort=False)[["episodes", "decisions", "seconds"]].sum()
    )
    sums["ms per decision"] = 1000 * sums["seconds"] / sums["decisions"]
    sums["kWh per episode"] = [
        measured_energy(s) / n for s, n in zip(sums["seconds"], sums["episodes"], strict=True)
    ]
    return sums.reset_index()


# The sweep --------------------------------------------------------------------------------------


def run(
    params: Params,
    domain: str,
    methods: Sequence[Method],
    runs: str | Path = RUNS,
    zoo: str | Path | None = None,
    label: str = "deciding",
) -> pd.DataFrame:
    """The decision record of `methods` in a domain; what is not there yet is run.

    One row per decision: method, kind, model, backend, domain, seed, episode, step, the columns of
    `Decision.columns` and of `World.step`. Raises BudgetExceeded at llm.max_usd (finished episodes
    stay), LLMError where no endpoint can be used.

    zoo: folder of the trained policies and their cards; None for those of lesson 01, which are made where they are
    missing.
    """
    zoo = ensure_zoo(params, [domain], zoo)
    jobs = make_jobs(params, domain, methods, zoo)
    stage = Stage(f"{label} in {domain}", jobs, decide_episodes)
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    announcement = ""
    if asks_endpoint(params.llm, [method.model for method in methods if method.model]):
        planned_calls = plan_calls(params, domain, methods, zoo, runs)
        announcement = f"{label} in {domain}: {announce_costs(params.llm, planned_calls)}"
    try:
        context = _make_context(params, zoo, runs)
        finished = run_stages([stage], context, keep_replies, announcement)
    except BudgetExceeded as error:
        num_finished = sum(sweep.read_receipt(job, runs) is not None for job in jobs)
        num_episodes = sum(len(list(job.folder(runs).glob("episode-*.parquet"))) for job in jobs)
        error.add_note(
            f"llm.max_usd is reached; {num_finished} jobs and {num_episodes} more episodes are kept: "
            "raise it, run again"
        )
        raise
    return finished.read_tables("record", with_identity=False)


def _make_context(params: Params, zoo: str | Path, runs: str | Path) -> RunContext:
    return RunContext.of(params, zoo, runs, CASSETTES, params.orchestration.jobs)


def versions(llm: LLMSettings, method: Method) -> dict[str, int]:
    """The VERSIONs of the code that decides a method's decisions and what comes of them."""
    decided_by = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "networks": networks.VERSION,
        "policies": policies.VERSION,
        "evaluation": evaluate.VERSION,
        "cost ledger": cost_ledger.VERSION,
        "worlds": environment_copies.VERSION,
        "domains": domains.VERSION,
        "decisions": decisions.VERSION,
        "prompts": prompt_components.VERSION,
        "methods": method_rows.VERSION,
        "deciding": VERSION,
    }
    if method.kind not in KINDS:
        decided_by["controls"] = baselines.VERSION
        return decided_by
    decided_by["orchestrators"] = orchestrators.VERSION
    decided_by["choices in replies"] = reply_parser.VERSION
    return decided_by | versions_of_asking(llm, [method.model])


def make_jobs(
    params: Params, domain: str, methods: Sequence[Method], zoo: str | Path = train.ZOO
) -> list[sweep.Job]:
    """One job per method and seed.

    Args:
        params: All settings; a job is handed those that it reads.
        domain: education or minigrid.
        methods: Rows of the results table.
        zoo: Folder of the trained policies and their cards.

    Raises:
        PolicyError: A policy or a card is missing.
    """
    shared = {
        "job": "decisions of a method",
        "domain": domain,
        "environment": recipes.describe_environment(params, domain),
        "episodes": params.orchestration.episodes,
    }
    jobs = []
    for method in methods:
        of_method = shared | _describe_method(params, domain, method, zoo)
        for seed in range(params.zoo.seeds):
            paths = {name: _policy_path(zoo, domain, name, seed) for name in _policy_names(method)}
            hashes = {name: policies.hash_policy(path) for name, path in paths.items()}
            settings = of_method | {"seed": seed, "policies": hashes}
            jobs.append(sweep.Job(f"{domain}/{method.name}/seed-{seed}", settings))
    return jobs


def _describe_method(
    params: Params, domain: str, method: Method, zoo: str | Path
) -> dict[str, Any]:
    """What a job is handed of its method; orchestrators read settings, cards and a model."""
    described = {"method": asdict(method), "model": None, "versions": versions(params.llm, method)}
    if method.kind in KINDS:
        fields = (*_READ_BY_ALL, *_READ_FOR_LOOKING[method.kind])
        described["orchestration"] = params.orchestration.to_job_settings(*fields)
        described["model"] = describe_model(params.llm, method.model)
        described["cards"] = {name: _hash_card(_card_path(zoo, domain, name)) for name in SINGLE}
    return described


def _policy_names(method: Method) -> list[str]:
    """The policies that a job loads: the menu, and one that acts alone."""
    acts_alone = method.kind not in (*KINDS, "control")
    return [*SINGLE, method.name] if acts_alone and method.name not in SINGLE else [*SINGLE]


def _policy_path(zoo: str | Path, domain: str, name: str, seed: int) -> Path:
    return Path(zoo) / domain / name / f"seed-{seed}.json"


def _card_path(zoo: str | Path, domain: str, name: str) -> Path:
    return Path(zoo) / domain / name / "card.json"


def _hash_card(path: Path) -> str:
    if not path.is_file():
        raise policies.PolicyError(f"{path} is missing; train the zoo with `make repro`")
    return artifacts.sha256_file(path)


def decide_episodes(run: JobRun) -> dict[str, int]:
    """Plays one method's episodes under one seed; leaves the table `record`."""
    episodes = run_coroutine(Bench(run.settings, run.context).play(run.folder, run.report_progress))
    record = pd.concat(episodes, ignore_index=True)
    run.write_table("record", record)
    for path in run.folder.glob("episode-*.parquet"):
        path.unlink()
    return {"episodes": len(episodes), "decisions": len(record)}


class Bench:
    """One job at work: the policies of its seed, its decider, its worlds."""

    def __init__(self, settings: dict[str, Any], context: RunContext) -> None:
        torch.set_num_threads(1)  # the matrices are small: a second thread only waits
        self.settings, self.context = settings, context
        self.domain, self.seed = settings["domain"], settings["seed"]
        self.method = Method(**settings["method"])
        self.environments = recipes.restore_environment(settings["environment"], self.domain)
        self.policies: dict[str, Policy] = {}
        for name, policy_hash in settings["policies"].items():
            path = _policy_path(context.models, self.domain, name, self.seed)
            self.policies[name] = _load_policy(path, policy_hash)
        self.menu = PolicyMenu({name: self.policies[name] for name in SINGLE})

    @cached_property
    def orchestration(self) -> OrchestrationSettings:
        """What an orchestrator reads; other methods read none of it."""
        return OrchestrationSettings.from_job_settings(self.settings["orchestration"])

    def begin(self, stream: np.uint64) -> OrchestrationEpisode:
        """A new episode with its account."""
        return OrchestrationEpisode(self.world(stream), Ledger(self.method.budget))

    def world(self, stream: np.uint64) -> World:
        """The world of a new episode."""
        return WORLDS[self.domain](self.environments, self.menu, stream)

    async def play(self, folder: Path, progress) -> list[pd.DataFrame]:
        """All episodes at once; those that are on disk already are read."""
        streams = evaluation_streams(self.domain, self.seed, self.settings["episodes"])
        done = 0

        async def one(number: int) -> pd.DataFrame:
            nonlocal done
            path = folder / f"episode-{number:05d}.parquet"
            if not path.exists():
                artifacts.write_parquet(path, await self.episode(decider, number, streams[number]))
            done += 1
            progress(done / len(streams))
            return artifacts.read_parquet(path)

        async with self.open_models() as models:
            decider = self.decider(models)
            return await asyncio.gather(*(one(number) for number in range(len(streams))))

    async def episode(self, decider: Decider, number: int, stream: np.uint64) -> pd.DataFrame:
        """The decision record of one episode."""
        about = {
            "method": self.method.name,
            "kind": self.method.kind,
            "model": self.method.model,
            "backend": self.settings["model"]["backend"] if self.settings["model"] else "policy",
            "domain": self.domain,
            "seed": self.seed,
            "alternatives": ";".join(self.menu.names),
            "episode": number,
        }
        seen = enumerate(await self.steps(decider, stream))
        return pd.DataFrame(
            [about | {"step": t} | decision.columns() | outcome for t, (decision, outcome) in seen]
        )

    async def steps(
        self, decider: Decider, stream: np.uint64
    ) -> list[tuple[Decision, dict[str, Any]]]:
        """Every decision of an episode and the environment's columns of the record."""
        episode, seen = self.begin(stream), []
        while not episode.world.done:
            decision = await decider.decide(episode)
            seen.append((decision, episode.act(decision)))
        return seen

    def open_models(self) -> ChatModels:
        """The model of the method, if it asks one."""
        context = self.context
        names = [self.method.model] if self.method.kind in KINDS else []
        workers = sweep.count_workers(context.workers)
        return open_lesson_models(context.llm, names, workers, context.runs, context.cassettes)

    def decider(self, models: Mapping[str, ChatModel], keep: bool = False) -> Decider:
        """Who decides in this job."""
        method = self.method
        if method.kind == "control":
            return Random()
        if method.kind not in KINDS:
            return SinglePolicy(self.policies[method.name])
        cards = [
            artifacts.read_json(_card_path(self.context.models, self.domain, name))
            for name in SINGLE
        ]
        topic = (
            self.environments.education.topic if self.domain == "education" else ""
        )  # no topic stands in a room
        settings = self.orchestration
        model = models[method.model]
        return Orchestrator(method.kind, model, settings, cards, topic, method.without, keep)


def watch(
    params: Params,
    domain: str,
    method: Method,
    seed: int = 0,
    number: int = 0,
    zoo: str | Path | None = None,
) -> list[tuple[Decision, dict[str, Any]]]:
    """One episode for a reader: every decision with its prompts and replies, and its row of the record.

    zoo: see `run`.
    """
    zoo = ensure_zoo(params, [domain], zoo)
    job = next(
        job for job in make_jobs(params, domain, [method], zoo) if job.settings["seed"] == seed
    )
    if method.model and asks_endpoint(params.llm, [method.model]):
        (whole,) = plan_calls(params, domain, [method], zoo)
        num_episodes = params.zoo.seeds * params.orchestration.episodes
        episode_plan = PlannedCalls(
            method.model,
            whole.calls // num_episodes,
            whole.tokens_in // num_episodes,
            whole.tokens_out // num_episodes,
        )
        sweep.print_to_terminal(f"one episode: {announce_costs(params.llm, [episode_plan])}")
    bench = Bench(job.settings, _make_context(params, zoo, RUNS))
    stream = evaluation_streams(domain, seed, number + 1)[number]

    async def play() -> list[tuple[Decision, dict[str, Any]]]:
        async with bench.open_models() as models:
            return await bench.steps(bench.decider(models, keep=True), stream)

    return run_coroutine(play())


def try_out(params: Params, domain: str, decider: Decider, zoo: str | Path | None = None) -> float:
    """Mean length of the episodes of all seeds with a decider of one's own. zoo: see `run`."""
    zoo = ensure_zoo(params, [domain], zoo)
    lengths = []
    for job in make_jobs(params, domain, [Method("own", "control")], zoo):
        bench = Bench(job.settings, _make_context(params, zoo, RUNS))
        streams = evaluation_streams(domain, job.settings["seed"], job.settings["episodes"])
        lengths += [len(run_coroutine(bench.steps(decider, stream))) for stream in streams]
    return float(np.mean(lengths))


@cache
def _load_policy(path: Path, policy_hash: str) -> Policy:
    """Once per process, so that what a costly network remembers serves the jobs that follow as well."""
    return policies.load(path)


def open_lesson_models(
    settings: LLMSettings,
    names: Sequence[str],
    processes: int = 1,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> ChatModels:
    """Models under the recording and the spending limit of this lesson.

    Args:
        settings: The section llm of params.yaml.
        names: The models that will be asked.
        processes: Those that ask at once.
        runs: Folder of the spending limit.
        cassettes: Folder of the recording.

    Returns:
        The models, by name.
    """
    return open_models(settings, names, NAME, runs, cassettes, processes, open_local())


def judged(params: Params, record: pd.DataFrame) -> pd.DataFrame:
    """What the judge of the parameters makes of every episode of a decision record in education (4.2.3)."""
    judge_name = params.orchestration.judge

    async def ask() -> pd.DataFrame:
        async with open_lesson_models(params.llm, [judge_name]) as models:
            model = models[judge_name]
            if asks_endpoint(params.llm, [judge_name]):
                requests = make_first_requests(record, params.education)
                planned_calls = [plan_requests(model, requests, ATTEMPTS)]
                costs = announce_costs(params.llm, planned_calls)
                sweep.print_to_terminal(f"judging {len(requests):,} episodes: {costs}")
            return await judge(model, record, params.education)

    try:
        return run_coroutine(ask())
    finally:
        export_recording(params.llm, NAME, CASSETTES)
