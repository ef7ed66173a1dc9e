"""Everyone who decides meets the same students and rooms: the record "orchestration", and the contrasts asked of it.

A job is a domain, a world and a seed of the zoo; in it every method plays the same episodes with the same luck. What an
method learns or is told of policies (cards, the bandit, the best policy) comes from students of training, apart from
those that anyone is judged on. Controls look as deep as the orchestrators, with as many copies and the query's weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import envs, stats
from lib.config import ROOT, Environments, LLMSettings, OrchestrationSettings, Params
from lib.experiment import results_table, seeds, sweep
from lib.experiment.harness import JobRun, Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.llm import reply_shares
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint
from lib.llm.open_models import export_recording
from lib.orchestration import batched_evaluation as arena_room
from lib.orchestration import decision_models as reader_names
from lib.orchestration.batched_evaluation import (
    Ahead,
    Arena,
    Bandit,
    BatchedPolicyMenu,
    BatchedRandomPolicy,
    BatchedSinglePolicy,
    Guides,
    Read,
    Turns,
    cards,
    environments_of,
)
from lib.orchestration.decision_context import Reader
from lib.policy_zoo import networks, planned_policies, policies, recipes, train
from lib.policy_zoo.recipes import OBJECTIVES, REFERENCES, SINGLE
from lib.policy_zoo.zoo_folder import ensure_zoo

VERSION = 1  # of episodes of the contest
RUNS = ROOT / "data/runs/orchestration"
CASSETTES = ROOT / "data/cassettes/02_orchestration"
KINDS = ("KO", "TO", "RO")
BEST, CEILING, HINDSIGHT = "best policy", "oracle look-ahead", "oracle"
_ROLES = {
    "SO-": "expert",
    "MO-": "paper",
    "oracle": "oracle",
    "KO": "router",
    "TO": "router",
    "RO": "router",
    "LinUCB": "router",
    "look-ahead": "router",
}
BRIEF_TOKENS = 250  # of what a reader is shown, more than any brief has
_READ_EVERYWHERE = (
    "students",
    "training",
    "rollout_copies",
    "lookahead",
    "readers",
)  # fields of the settings


def run(
    params: Params,
    places: Sequence[tuple[str, str]],
    zoo: str | Path | None = None,
    runs: str | Path = RUNS,
):
    """The record "orchestration" of all methods in `places`, (domain, world) each: one row per method, seed and
    episode, the method "oracle" in hindsight among them. condition: the world; style: what its query weighs most;
    outcomes: what was reached by step. Its own columns: length, d1, d2, d3, malformed.

    zoo: folder of the trained policies; None for those of lesson 01, which are trained where they are missing.
    """
    domains = [domain for domain, world in places if not _has_guides(domain, world)]
    zoo = ensure_zoo(params, domains, zoo)
    jobs = [job for domain, world in places for job in make_jobs(params, domain, world, zoo)]
    context = RunContext.of(params, zoo, runs, CASSETTES, params.orchestration.jobs)
    planned_calls = plan_readings(params, places)
    announcement = announce_costs(params.llm, planned_calls) if planned_calls else ""
    stages = [Stage("deciding", jobs, play_contest)]
    keep_replies = partial(export_recording, params.llm, reader_names.RECORDING, CASSETTES)
    finished = run_stages(stages, context, on_exit=keep_replies, announcement=announcement)
    episodes = finished.read_tables("episodes", with_identity=False)
    return results_table.write_results("orchestration", hindsight(episodes))


def plan_readings(params: Params, places: Sequence[tuple[str, str]]) -> list[PlannedCalls]:
    """What endpoints among the readers are asked at the most: episodes at full length, replies as long as they may be.

    Args:
        params: All settings.
        places: (domain, world) each.

    Returns:
        Planned calls of each reader that is an endpoint.
    """
    settings = params.orchestration
    planned_calls = []
    for name in settings.readers:
        if name not in params.llm.models or not asks_endpoint(params.llm, [name]):
            continue
        calls = 0
        for domain, world in places:
            num_methods = float(len(KINDS))
            if (
                name == settings.readers[-1]
            ):  # the one that the contrasts ask of, see `make_contestants`
                num_methods += 1
                if world == "ours":
                    num_methods += 2 * sum(1 / every for every in settings.decision_intervals)
                elif domain == "education":
                    num_methods += len(settings.lookahead_depths)
            horizon = getattr(environments_of(params, world), domain).horizon
            num_episodes = params.zoo.seeds * settings.students
            calls += math.ceil(num_methods * horizon) * num_episodes
        max_tokens = params.llm.models[name].max_tokens
        planned_calls.append(PlannedCalls(name, calls, BRIEF_TOKENS * calls, max_tokens * calls))
    return planned_calls


# Jobs ---------------------------------------------------------------------------------------------


def versions(llm: LLMSettings, domain: str, world: str, readers: Sequence[str]) -> dict[str, int]:
    """The VERSIONs of the code that decides the episodes of a contest. readers: their names."""
    decided_by = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "arena": arena_room.VERSION,
        "contest": VERSION,
    }
    if domain == "minigrid":  # where a room is described by its distances, whoever acts in it
        decided_by["guides"] = planned_policies.VERSION
    if not _has_guides(domain, world):
        decided_by["networks"] = networks.VERSION
        decided_by["policies"] = policies.VERSION
    for name in readers:
        decided_by |= reader_names.versions(name, llm)
    return decided_by


def make_jobs(
    params: Params, domain: str, world: str, zoo: str | Path = train.ZOO
) -> list[sweep.Job]:
    """One job per seed.

    Args:
        params: All settings; a job is handed those that it reads.
        domain: education or minigrid.
        world: paper or ours.
        zoo: Folder of the trained policies.

    Raises:
        PolicyError: A policy is missing.
        ValueError: A name in `orchestration.readers` is no reader's.
    """
    settings = params.orchestration
    shared = {
        "job": "contest",
        "domain": domain,
        "world": world,
        "environment": recipes.describe_environment(environments_of(params, world), domain),
        "orchestration": _select_settings(settings, domain, world),
        "readers": {
            name: reader_names.describe_reader(name, params.lab, params.llm)
            for name in settings.readers
        },
        "versions": versions(params.llm, domain, world, settings.readers),
    }
    jobs = []
    for seed in range(params.zoo.seeds):
        menu = describe_menu(params, domain, world, seed, zoo)
        jobs.append(
            sweep.Job(f"{domain}/{world}/seed-{seed}", shared | {"seed": seed, "menu": menu})
        )
    return jobs


def _select_settings(settings: OrchestrationSettings, domain: str, world: str) -> dict[str, Any]:
    """The fields that a job reads; what of `custom_environments` changes a world is in its environment and its menu."""
    fields = [*_READ_EVERYWHERE]
    if world == "ours":
        fields.append("decision_intervals")
    elif domain == "education":
        fields.append("lookahead_depths")
    handed = settings.to_job_settings(*fields)
    if _has_far_ceiling(domain, world):
        handed["ceiling"] = {domain: settings.ceiling[domain].model_dump()}
    return handed


def _has_guides(domain: str, world: str) -> bool:
    return (domain, world) == ("minigrid", "ours")


def _has_far_ceiling(domain: str, world: str) -> bool:
    # In the paper's room 144 steps of all plans cost more than they tell.
    return world == "ours" or domain == "education"


def describe_menu(
    params: Params, domain: str, world: str, seed: int, zoo: str | Path
) -> dict[str, Any]:
    """What a job holds of its menu: the slip of the guides, or the hashes of the policies by name."""
    if _has_guides(domain, world):
        return {"slip": params.orchestration.custom_environments.slip}
    names = SINGLE if world == "ours" else (*SINGLE, *REFERENCES[domain])
    return {
        "policies": {
            name: policies.hash_policy(_policy_path(zoo, domain, name, seed)) for name in names
        }
    }


def make_menu(
    description: Mapping[str, Any], domain: str, seed: int, zoo: str | Path
) -> Guides | BatchedPolicyMenu:
    """The menu of a job, from what `describe_menu` told."""
    if "slip" in description:
        return Guides(description["slip"])
    names = description["policies"]
    return BatchedPolicyMenu(
        {name: policies.load(_policy_path(zoo, domain, name, seed)) for name in names}
    )


def _policy_path(zoo: str | Path, domain: str, name: str, seed: int) -> Path:
    return Path(zoo) / domain / name / f"seed-{seed}.json"


def play_contest(run: JobRun) -> dict[str, int]:
    """Plays the episodes of all methods of one job; leaves the table `episodes`."""
    torch.set_num_threads(1)  # the matrices are small: a second thread only waits
    domain, world, seed = (run.settings[name] for name in ("domain", "world", "seed"))
    environments = recipes.restore_environment(run.settings["environment"], domain)
    settings = run.read_section("orchestration", OrchestrationSettings)
    context = run.context
    menu = make_menu(run.settings["menu"], domain, seed, context.models)
    arenas = make_arenas(environments, settings, domain, world, seed, menu)
    readers = [
        reader_names.make_reader(
            name, run.settings["readers"][name], context.llm, context.runs, context.cassettes
        )
        for name in settings.readers
    ]

    arms, arena = make_contestants(arenas, settings, readers), arenas["test"]
    tables = []
    for number, (method, contestant) in enumerate(arms.items()):
        decider = contestant.decider
        arena.copies = contestant.copies
        rows = arena.play(decider, contestant.interval)
        backend = decider.reader.backend if isinstance(decider, Read) else "policy"
        tables.append(rows.assign(method=method, backend=backend, item=np.arange(len(rows))))
        run.report_progress((number + 1) / len(arms))

    rows = pd.concat(tables, ignore_index=True)
    rows["item"] = f"{seed}-" + rows["item"].astype(str)
    rows["role"] = [
        next((r for start, r in _ROLES.items() if a.startswith(start)), "constant")
        for a in rows["method"]
    ]
    most = np.array(OBJECTIVES[domain])[arena.weights.argmax(1)]  # in the query of each episode
    style = np.tile(most if world == "ours" else np.full(len(most), "all"), len(arms))
    rows = rows.assign(seed=seed, group=domain, condition=world, split="test", style=style)
    run.write_table("episodes", rows)
    return {"episodes": len(rows)}


# Who meets whom -----------------------------------------------------------------------------------


def make_arenas(
    environments: Environments,
    settings: OrchestrationSettings,
    domain: str,
    world: str,
    seed: int,
    menu: Guides | BatchedPolicyMenu,
) -> dict[str, Arena]:
    """The students or rooms of a seed, by what they are for: `test`, and three kinds of training apart from it.

    environments: of this world, see `arena.environments_of`.
    """
    sizes = {"test": settings.students} | dict.fromkeys(
        ("cards", "bandit", "dev"), settings.training
    )
    copies = {"cards": 1}  # a card averages over so many states that one copy of each is enough
    arenas = {}
    for use, size in sizes.items():
        streams = seeds.keys("contest", use, domain, seed=seed * 10**6, n=size)
        arenas[use] = Arena(
            environments, domain, world, menu, streams, copies.get(use, settings.rollout_copies)
        )
    return arenas


@dataclass(frozen=True)
class Contestant:
    """Who plays as one method. copies: of each plan that is looked at; interval: steps that a choice holds."""

    decider: Any
    copies: int
    interval: int = 1


def make_contestants(
    arenas: Mapping[str, Arena], settings: OrchestrationSettings, readers: Sequence[Reader]
) -> dict[str, Contestant]:
    """Every method by name. arenas: of `make_arenas`; the last of the readers is the one that contrasts ask of."""
    test, steps = arenas["test"], settings.lookahead
    domain, world = test.domain, test.world
    as_many = settings.rollout_copies
    pages = cards(arenas["cards"], 1 if domain == "education" else test.horizon)

    # Constants, whoever looks at nothing, and whoever looks without reading.
    deciders: dict[str, Any] = {name: BatchedSinglePolicy(k) for k, name in enumerate(SINGLE)}
    worth = {
        k: arenas["dev"].play(BatchedSinglePolicy(k))["reward"].mean() for k in range(len(SINGLE))
    }
    deciders[BEST] = BatchedSinglePolicy(max(worth, key=worth.get))
    if world == "paper":
        deciders |= {
            name: BatchedSinglePolicy(test.menu.names.index(name)) for name in REFERENCES[domain]
        }
    deciders |= {
        "random": BatchedRandomPolicy(),
        "round-robin": Turns(),
        "LinUCB": Bandit(arenas["bandit"], steps),
    }
    deciders |= {"look-ahead 1": Ahead(1), f"look-ahead {steps}": Ahead(steps)}
    arms = {name: Contestant(decider, as_many) for name, decider in deciders.items()}
    arms[f"look-ahead {steps}, one copy"] = Contestant(Ahead(steps), copies=1)

    # Readers of briefs.
    for reader in readers:
        for kind in KINDS:
            arms[f"{kind} {reader.name}"] = Contestant(Read(kind, reader, pages, steps), as_many)
    last = readers[-1]
    of_last = {kind: arms[f"{kind} {last.name}"].decider for kind in KINDS}
    arms[f"RO {last.name}, one copy"] = Contestant(of_last["RO"], copies=1)
    if world == "ours":  # budgets of decisions
        for kind in ("KO", "RO"):
            for interval in settings.decision_intervals:
                arms[f"{kind} {last.name}, every {interval}"] = Contestant(
                    of_last[kind], as_many, interval
                )
    elif domain == "education":
        for depth in settings.lookahead_depths:
            arms[f"RO {last.name}, {depth} steps"] = Contestant(
                Read("RO", last, pages, depth), as_many
            )

    # The bound.
    if _has_far_ceiling(domain, world):
        ceiling = settings.ceiling[domain]
        arms[CEILING] = Contestant(Ahead(min(ceiling.steps, test.horizon), ceiling.then), as_many)
    else:
        arms[CEILING] = Contestant(Ahead(2 * steps, (steps,)), as_many)
    return arms


def hindsight(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` and the method "oracle": of each episode the best that any method made of it. An upper bound by
    construction, and no method: it has seen the dice."""
    best = rows.loc[rows.groupby(["group", "condition", "seed", "item"])["reward"].idxmax()]
    return pd.concat(
        [rows, best.assign(method=HINDSIGHT, role="oracle", backend="policy")], ignore_index=True
    )


def count_replies(rows: pd.DataFrame) -> pd.DataFrame:
    """How many decisions of each method's reader named no policy of the menu, so that something else acted.

    Args:
        rows: Of `run`; methods without a reader are not counted.

    Returns:
        Counts by method, see `lib.llm.reply_shares.count_replies`.
    """
    read = rows[rows["backend"] != "policy"]
    # Such as "KO lab-orchestrator, every 5".
    models = read["method"].str.split(" ", n=1).str[1].str.split(",").str[0]
    failed = read.get("failed", 0)  # earlier runs stopped where a reply was lost
    calls = read.assign(
        model=models,
        failed=failed,
        unusable=read["malformed"],
        fallback=read["malformed"] + failed,
    )
    return reply_shares.count_replies(calls)


# What is asked of the record ------------------------------------------------------------------------


def headroom(rows: pd.DataFrame) -> pd.DataFrame:
    """By domain and world: utility of looking far ahead on fresh copies, less that of the best policy on dev students.
    Whoever looks ahead there sees no dice that fall: what it wins could be earned."""
    return stats.paired_difference(
        rows, "reward", {"method": CEILING}, {"method": BEST}, ["group", "condition"]
    )


def contrasts(rows: pd.DataFrame, settings: OrchestrationSettings) -> pd.DataFrame:
    """The questions of `orchestration.contrasts` in our worlds, with verdicts: index domain and name, such as RO_TO.

    Paired by student; variances over students within seeds, since the students are the pairs. KO, TO and RO are those
    of the last reader.
    """
    found = {}
    for domain in rows["group"].unique():
        mine = results_table.select(rows, group=domain, condition="ours")
        for a, b in settings.contrasts:
            pair = mine.assign(
                seed=0
            )  # pairs are students; what the seeds share is named beside the table
            one = stats.paired_difference(
                pair, "reward", {"method": _arm(a, settings)}, {"method": _arm(b, settings)}
            )
            found[domain, f"{a}_{b.replace(' ', '-')}"] = one.iloc[0].astype(float)
    frame = (
        pd.DataFrame(found)
        .T.rename_axis(["domain", "contrast"])
        .astype({"num_runs": int, "num_items": int})
    )
    return frame.assign(verdict=stats.verdict(frame, settings.equivalence_margin))


def _arm(name: str, settings: OrchestrationSettings) -> str:
    kind, _, who = name.partition(" ")
    if kind in KINDS:
        return f"{kind} {who or settings.readers[-1]}"
    return f"look-ahead {settings.lookahead}" if name == "look-ahead" else name
