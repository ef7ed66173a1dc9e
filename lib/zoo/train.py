"""Train a zoo: every policy, every seed, in parallel processes that resume.

One cell of the sweep is what is not trained yet of one stack of recipes under a few seeds: a policy that is added, or
whose settings change, is trained without the others. Working files live under `data/runs` and survive a kill; the
finished zoo, policies and curves, is written to `data/zoo`. Evaluation and cards come afterwards (`evaluate`, `cards`).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib import store, sweep
from lib.params import ROOT, Environments, ZooParams
from lib.sources import deciding
from lib.zoo import policies, reference
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


def learner_of(params: ZooParams, recipe: Recipe) -> str:
    """Who trains a recipe: `zoo.learner`, but several critics only the stacked trainer."""
    return "stacked" if recipe.network.values > 1 else params.zoo.learner


def stacks(params: ZooParams, domain: str) -> dict[str, list[Recipe]]:
    """Recipes by stack; stable-baselines3 trains one policy at a time."""
    out: dict[str, list[Recipe]] = {}
    for recipe in recipes(params, domain):
        alone = learner_of(params, recipe) != "stacked"
        out.setdefault(recipe.name if alone else recipe.stack, []).append(recipe)
    return out


def groups(params: ZooParams, stack: list[Recipe]) -> list[list[int]]:
    """Seeds that are trained together: up to TOGETHER of a small network, whose calls cost more than its arithmetic,
    and every seed alone where equal inputs of one policy are computed once, or where nothing is stacked."""
    alone = stack[0].network.costly or learner_of(params, stack[0]) != "stacked"
    several = 1 if alone else TOGETHER
    return [list(range(first, min(first + several, params.zoo.seeds))) for first in range(0, params.zoo.seeds, several)]


def learner(params: Environments, stack: list[Recipe], *seeds: int) -> PPO:
    """The PPO (or MGDA) that trains one stack under some seeds; all policies of the first seed come first."""
    return _stacked(params, [(recipe, seed) for seed in seeds for recipe in stack])


def _stacked(params: Environments, pairs: list[tuple[Recipe, int]]) -> PPO:
    arms = [Arm(recipe.name, seed, recipe.objective, recipe.settings) for recipe, seed in pairs]
    tasks = [recipe.task for recipe, _ in pairs for _ in range(recipe.settings.num_envs)]
    first = pairs[0][0]
    method = MGDA if first.network.values > 1 else PPO
    return method(arms, first.network, make_batch(params, first.domain, tasks), first.domain)


def train_cell(cell: sweep.Cell, folder: Path, progress) -> dict[str, Any]:
    """Train policies side by side; leaves them and their curves in `folder` and tells which they are."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # Adam's moments of idle weights decay into slow denormal numbers
    told = cell.settings["policies"]
    pairs = [(Recipe.of(facts["recipe"]), facts["seed"]) for facts in told]
    domain = pairs[0][0].domain
    section = Environments.model_fields[domain].annotation  # of the other domain nothing is known here
    params = Environments.model_construct(**{domain: section(**told[0]["environment"])})
    checkpoint = folder / "checkpoint.safetensors"
    if told[0]["learner"] == "stacked":
        ppo = _stacked(params, [*pairs, *_company(pairs)])
        ppo.train(checkpoint, progress)
        weights, curve = [ppo.parameters(k) for k in range(len(pairs))], ppo.curve()
    else:
        ((recipe, seed),) = pairs
        made, curve = reference.train(params, recipe, seed, progress)
        weights = [made]
    for (recipe, seed), made in zip(pairs, weights, strict=True):
        about = {"seed": seed, "task": recipe.task, "settings": recipe.settings.model_dump()}
        policies.save(policies.Policy(recipe.name, domain, recipe.network, made, about), folder / f"seed-{seed}")
    store.write_parquet(folder / "curve.parquet", curve)
    checkpoint.unlink(missing_ok=True)
    return {"policies": [store.sha256_json(facts) for facts in told]}


def _company(pairs: list[tuple[Recipe, int]]) -> list[tuple[Recipe, int]]:
    """A twin for a small network that is alone: one product of matrices is computed in another way than a batch of
    them, and the last bits of a policy must not tell with whom it was trained."""
    recipe, seed = pairs[0]
    lonely = len(pairs) == 1 and not recipe.network.costly
    return [(replace(recipe, name=f"twin of {recipe.name}"), seed)] if lonely else []


def cells(params: ZooParams, domain: str, done: Collection[str] = ()) -> list[sweep.Cell]:
    """The cells of a domain's sweep; the longest first, so that no process waits at the end.

    A policy is named by the hash of what decides it; a cell by the policies that it trains, which are those of a
    stack and a group of seeds that are not `done`.
    """
    environment = getattr(params, domain).model_dump()
    sources = deciding("lib.zoo.train")
    common = {"environment": environment, "sources": sources, "torch": torch.__version__}
    out = []
    for name, stack in stacks(params, domain).items():
        for seeds in groups(params, stack):
            each = [(recipe, seed) for seed in seeds for recipe in stack]
            told = [common | {"recipe": r.facts(), "seed": s, "learner": learner_of(params, r)} for r, s in each]
            left = [facts for facts in told if store.sha256_json(facts) not in done]
            if left:
                out.append(sweep.Cell(f"{domain}/{name}/seeds-{seeds[0]}-{seeds[-1]}", {"policies": left}))
    return out


def trained(runs: str | Path = RUNS) -> dict[str, Path]:
    """The folder of every trained policy, by the hash that names it. A receipt is written when all of a cell is."""
    receipts = {path.parent: store.read_json(path) for path in sorted(Path(runs).glob("*/done.json"))}
    return {name: folder for folder, told in receipts.items() for name in told["result"].get("policies", ())}


def build(params: ZooParams, domain: str, out: str | Path = ZOO, runs: str | Path = RUNS) -> Zoo:
    """Train what is not trained yet and write the domain's zoo under `out`/`domain`."""
    every = cells(params, domain)  # named before anything is trained: an edit meanwhile changes no name
    sweep.run(train_cell, cells(params, domain, trained(runs)), runs, params.zoo.jobs, f"training the {domain} zoo")
    places = trained(runs)
    kept: dict[str, list[policies.Policy]] = {recipe.name: [] for recipe in recipes(params, domain)}
    rows, curves = [], []
    for cell in every:
        told = cell.settings["policies"]
        found = {(facts["recipe"]["name"], facts["seed"]): places[store.sha256_json(facts)] for facts in told}
        for (name, seed), folder in found.items():
            policy = policies.load(folder / f"seed-{seed}" / f"{name}.json")
            policies.save(policy, Path(out) / domain / name, f"seed-{seed}")
            kept[name].append(policy)
        for folder in dict.fromkeys(found.values()):  # one, unless some were trained later
            curve = store.read_parquet(folder / "curve.parquet")
            own = [found.get(who) == folder for who in zip(curve["arm"], curve["seed"], strict=True)]
            curves.append(curve[own])
        seconds = sum(_share(folder) for folder in found.values())
        rows.append({"stack": cell.name.split("/")[1], "seeds": len({s for _, s in found}), "seconds": seconds})
    curve = pd.concat(curves, ignore_index=True)
    store.write_parquet(Path(out) / domain / "curves.parquet", curve)
    together = {stack: [recipe.name for recipe in members] for stack, members in stacks(params, domain).items()}
    return Zoo(domain, together, kept, curve, pd.DataFrame(rows))


def _share(folder: Path) -> float:
    """Core seconds of one of the policies that were trained together in a folder."""
    receipt = store.read_json(folder / "done.json")
    return receipt["seconds"] / len(receipt["result"]["policies"])


def load(domain: str, root: str | Path = ZOO) -> dict[str, list[policies.Policy]]:
    """The trained policies of a domain, by name and seed. Raises PolicyError where there are none."""
    folder = Path(root) / domain
    if not folder.is_dir():
        raise policies.PolicyError(f"{folder} is missing; train the zoo with `make repro`")
    names = sorted(place.name for place in folder.iterdir() if place.is_dir())
    files = {name: sorted((folder / name).glob("seed-*.json"), key=lambda path: int(path.stem[5:])) for name in names}
    return {name: [policies.load(path) for path in paths] for name, paths in files.items()}
