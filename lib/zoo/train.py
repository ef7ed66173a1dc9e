"""Train a zoo: every policy, every seed, in parallel processes that resume.

One cell of the sweep is one stack of recipes under a few seeds. Its working files live under
`data/runs` and survive a kill; the finished zoo, policies and curves, is written to `data/zoo`.
Evaluation and cards come afterwards (`evaluate`, `cards`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from lib import params as parameters
from lib import store, sweep
from lib.params import ROOT, ZooParams
from lib.sources import deciding
from lib.zoo import policies
from lib.zoo.ppo import MGDA, PPO, Arm
from lib.zoo.recipes import Recipe, make_batch, recipes

ZOO, RUNS = ROOT / "data/zoo", ROOT / "data/runs/zoo"
TOGETHER = 3  # seeds of a small network in one cell: with more of them fewer cores would have work


@dataclass(frozen=True)
class Zoo:
    """A trained zoo: policies[name][seed], training curves, core seconds by stack and group of seeds, and the
    names of the policies that each stack trained together."""

    domain: str
    stacks: dict[str, list[str]]
    policies: dict[str, list[policies.Policy]]
    curves: pd.DataFrame
    seconds: pd.DataFrame


def stacks(params: ZooParams, domain: str) -> dict[str, list[Recipe]]:
    """Recipes by stack."""
    out: dict[str, list[Recipe]] = {}
    for recipe in recipes(params, domain):
        out.setdefault(recipe.stack, []).append(recipe)
    return out


def groups(params: ZooParams, stack: list[Recipe]) -> list[list[int]]:
    """Seeds that are trained together: up to TOGETHER of a small network, whose calls cost more than its arithmetic,
    and every seed alone where equal inputs of one policy are computed once."""
    several = 1 if stack[0].network.costly else TOGETHER
    return [list(range(first, min(first + several, params.zoo.seeds))) for first in range(0, params.zoo.seeds, several)]


def learner(params: ZooParams, stack: list[Recipe], *seeds: int) -> PPO:
    """The PPO (or MGDA) that trains one stack under some seeds; all policies of the first seed come first."""
    arms = [Arm(recipe.name, seed, recipe.objective, recipe.settings) for seed in seeds for recipe in stack]
    tasks = [recipe.task for _ in seeds for recipe in stack for _ in range(recipe.settings.num_envs)]
    env = make_batch(params, stack[0].domain, tasks)
    method = MGDA if stack[0].network.values > 1 else PPO
    return method(arms, stack[0].network, env, stack[0].domain)


def train_cell(cell: sweep.Cell, folder: Path, progress) -> dict[str, int]:
    """Train one stack under a group of seeds; leaves policies and curves in `folder`."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # Adam's moments of idle weights decay into slow denormal numbers
    params = parameters.validate(cell.settings["params"], ZooParams)
    domain = cell.settings["domain"]
    stack = stacks(params, domain)[cell.settings["stack"]]
    ppo = learner(params, stack, *cell.settings["seeds"])
    checkpoint = folder / "checkpoint.safetensors"
    ppo.train(checkpoint, progress)
    for k, (seed, recipe) in enumerate(product(cell.settings["seeds"], stack)):
        about = {"seed": seed, "task": recipe.task, "settings": recipe.settings.model_dump()}
        policy = policies.Policy(recipe.name, domain, recipe.network, ppo.parameters(k), about)
        policies.save(policy, folder / f"seed-{seed}")
    store.write_parquet(folder / "curve.parquet", ppo.curve())
    checkpoint.unlink(missing_ok=True)
    return {"updates": ppo.updates}


def cells(params: ZooParams, domain: str) -> list[sweep.Cell]:
    """The cells of a domain's sweep; the longest first, so that no process waits at the end."""
    relevant = {name: getattr(params, name).model_dump() for name in ZooParams.model_fields}
    relevant["zoo"] |= {"seeds": 1, "jobs": None, "episodes": 2}  # these change no policy
    sources = deciding("lib.zoo.train")
    common = {"params": relevant, "domain": domain, "sources": sources, "torch": torch.__version__}
    return [
        sweep.Cell(f"{domain}/{name}/seeds-{seeds[0]}-{seeds[-1]}", common | {"stack": name, "seeds": seeds})
        for name, stack in stacks(params, domain).items()
        for seeds in groups(params, stack)
    ]


def build(params: ZooParams, domain: str, out: str | Path = ZOO, runs: str | Path = RUNS) -> Zoo:
    """Train what is not trained yet and write the domain's zoo under `out`/`domain`."""
    todo = cells(params, domain)
    receipts = sweep.run(train_cell, todo, runs, params.zoo.jobs, label=f"training the {domain} zoo")
    rows, curves = [], []
    trained: dict[str, list[policies.Policy]] = {recipe.name: [] for recipe in recipes(params, domain)}
    for cell, receipt in zip(todo, receipts, strict=True):
        folder, seeds = cell.folder(Path(runs)), cell.settings["seeds"]
        for seed, recipe in product(seeds, stacks(params, domain)[cell.settings["stack"]]):
            policy = policies.load(folder / f"seed-{seed}" / f"{recipe.name}.json")
            policies.save(policy, Path(out) / domain / recipe.name, f"seed-{seed}")
            trained[recipe.name].append(policy)
        curves.append(store.read_parquet(folder / "curve.parquet"))
        rows.append({"stack": cell.settings["stack"], "seeds": len(seeds), "seconds": receipt["seconds"]})
    curve = pd.concat(curves, ignore_index=True)
    store.write_parquet(Path(out) / domain / "curves.parquet", curve)
    together = {stack: [recipe.name for recipe in members] for stack, members in stacks(params, domain).items()}
    return Zoo(domain, together, trained, curve, pd.DataFrame(rows))


def load(domain: str, root: str | Path = ZOO) -> dict[str, list[policies.Policy]]:
    """The trained policies of a domain, by name and seed. Raises PolicyError where there are none."""
    folder = Path(root) / domain
    if not folder.is_dir():
        raise policies.PolicyError(f"{folder} is missing; train the zoo with `make repro`")
    names = sorted(place.name for place in folder.iterdir() if place.is_dir())
    return {n: [policies.load(p) for p in sorted((folder / n).glob("seed-*.json"), key=_seed)] for n in names}


def _seed(path: Path) -> int:
    return int(path.stem.removeprefix("seed-"))
