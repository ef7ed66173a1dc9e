"""Train a zoo: every policy, every seed, in parallel processes that resume.

One job of the sweep is what is not trained yet of one stack of recipes under a few seeds: a policy that is added, or
whose settings change, is trained without the others. Working files live under `data/runs` and survive a kill; the
finished zoo, policies and curves, is written to `data/zoo`. Evaluation and cards come afterwards (`zoo_folder`).
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib import envs
from lib.config import ROOT, Environments, ZooParams
from lib.experiment import artifacts, seeds, sweep
from lib.policy_zoo import mgda, networks, objectives, policies, recipes, sb3_baseline
from lib.policy_zoo import ppo as stacked_ppo
from lib.policy_zoo.networks import Network
from lib.policy_zoo.ppo import MGDA, PPO, PPOVariant
from lib.policy_zoo.recipes import Recipe
from lib.rl import losses

VERSION = 1  # of who is trained beside whom
ZOO, RUNS = ROOT / "data/zoo", ROOT / "data/runs/zoo"
TOGETHER = 3  # seeds of a small network in one job: with more of them fewer cores would have work


@dataclass(frozen=True)
class Zoo:
    """A trained zoo: policies[name][seed], training curves, core seconds by stack and group of seeds, and the
    names of the policies that each stack trained together."""

    domain: str
    stacks: dict[str, list[str]]
    policies: dict[str, list[policies.Policy]]
    curves: pd.DataFrame
    seconds: pd.DataFrame


def choose_learner(params: ZooParams, recipe: Recipe) -> str:
    """Who trains a recipe: `zoo.learner`, but several critics only the stacked trainer."""
    return "stacked" if recipe.network.values > 1 else params.zoo.learner


def stacks(params: ZooParams, domain: str) -> dict[str, list[Recipe]]:
    """Recipes by stack; stable-baselines3 trains one policy at a time."""
    recipes_by_stack: dict[str, list[Recipe]] = {}
    for recipe in recipes.recipes(params, domain):
        alone = choose_learner(params, recipe) != "stacked"
        recipes_by_stack.setdefault(recipe.name if alone else recipe.stack, []).append(recipe)
    return recipes_by_stack


def group_seeds(params: ZooParams, stack: Sequence[Recipe]) -> list[list[int]]:
    """Seeds that are trained together: up to TOGETHER of a small network, whose calls cost more than its arithmetic,
    and every seed alone where equal inputs of one policy are computed once, or where nothing is stacked."""
    alone = stack[0].network.costly or choose_learner(params, stack[0]) != "stacked"
    size = 1 if alone else TOGETHER
    firsts = range(0, params.zoo.seeds, size)
    return [list(range(first, min(first + size, params.zoo.seeds))) for first in firsts]


def learner(params: Environments, stack: list[Recipe], *seeds: int) -> PPO:
    """The PPO (or MGDA) that trains one stack under some seeds; all policies of the first seed come first."""
    return _make_stacked_learner(params, [(recipe, seed) for seed in seeds for recipe in stack])


def _make_stacked_learner(params: Environments, pairs: Sequence[tuple[Recipe, int]]) -> PPO:
    arms = [
        PPOVariant(recipe.name, seed, recipe.objective, recipe.settings) for recipe, seed in pairs
    ]
    tasks = [recipe.task for recipe, _ in pairs for _ in range(recipe.settings.num_envs)]
    first = pairs[0][0]
    method = MGDA if first.network.values > 1 else PPO
    return method(
        arms, first.network, recipes.make_batch(params, first.domain, tasks), first.domain
    )


# Jobs ---------------------------------------------------------------------------------------------


def versions(network: Network, learner: str) -> dict[str, int]:
    """The VERSIONs of the code that decides the weights and the curve of a policy.

    learner: "stacked" or "stable-baselines3", as `choose_learner` says.
    """
    decided_by = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "objectives": objectives.VERSION,
        "networks": networks.VERSION,
        "stacked PPO": stacked_ppo.VERSION,  # its random numbers are those of every learner
        "policies": policies.VERSION,
        "stacks": VERSION,
    }
    if learner == "stacked":
        decided_by["losses"] = losses.VERSION
    else:
        decided_by["stable-baselines3"] = sb3_baseline.VERSION
    if network.values > 1:
        decided_by["min-norm weights"] = mgda.VERSION
    return decided_by


def make_jobs(params: ZooParams, domain: str, trained: Collection[str] = ()) -> list[sweep.Job]:
    """The jobs of a domain's sweep; the longest first, so that no process waits at the end.

    Args:
        params: All settings; a job is handed those that it reads.
        domain: education or minigrid.
        trained: Keys of policies (`policy_keys`) that no job need train.

    Returns:
        One job per stack and group of seeds, with those of its policies that are not `trained`; none where all are.
    """
    jobs = []
    for name, stack in stacks(params, domain).items():
        learner_name = choose_learner(params, stack[0])
        shared = {
            "job": "policy training",
            "environment": recipes.describe_environment(params, domain),
            "learner": learner_name,
            "torch": torch.__version__,
            "versions": versions(stack[0].network, learner_name),
        }
        for group in group_seeds(params, stack):
            policies_of_job = [
                {"recipe": recipe.facts(), "seed": seed} for seed in group for recipe in stack
            ]
            settings = shared | {"policies": policies_of_job}
            keys = policy_keys(settings)
            open_policies = [
                policy
                for policy, key in zip(policies_of_job, keys, strict=True)
                if key not in trained
            ]
            if open_policies:
                label = f"{domain}/{name}/seeds-{group[0]}-{group[-1]}"
                jobs.append(sweep.Job(label, shared | {"policies": open_policies}))
    return jobs


def policy_keys(settings: Mapping[str, Any]) -> list[str]:
    """The key of each policy of a job, in order: of all that decides the policy, but not of who is trained beside it.

    settings: of the job.
    """
    shared = {name: value for name, value in settings.items() if name != "policies"}
    return [sweep.Job("a policy", shared | policy).key for policy in settings["policies"]]


def train_policies(job: sweep.Job, folder: Path, progress) -> dict[str, Any]:
    """Train policies side by side; leaves them and their curves in `folder` and returns their keys."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(
        True
    )  # Adam's moments of idle weights decay into slow denormal numbers
    pairs = [(Recipe.of(policy["recipe"]), policy["seed"]) for policy in job.settings["policies"]]
    domain = pairs[0][0].domain
    environments = recipes.restore_environment(job.settings["environment"], domain)
    checkpoint = folder / "checkpoint.safetensors"
    if job.settings["learner"] == "stacked":
        ppo = _make_stacked_learner(environments, [*pairs, *_make_company(pairs)])
        ppo.train(checkpoint, progress)
        weights = [ppo.parameters(k) for k in range(len(pairs))]
        curve = ppo.curve()
    else:
        ((recipe, seed),) = pairs
        parameters, curve = sb3_baseline.train(environments, recipe, seed, progress)
        weights = [parameters]
    for (recipe, seed), parameters in zip(pairs, weights, strict=True):
        about = {"seed": seed, "task": recipe.task, "settings": recipe.settings.model_dump()}
        policy = policies.Policy(recipe.name, domain, recipe.network, parameters, about)
        policies.save(policy, folder / f"seed-{seed}")
    artifacts.write_parquet(folder / "curve.parquet", curve)
    checkpoint.unlink(missing_ok=True)
    return {"policies": policy_keys(job.settings)}


def _make_company(pairs: Sequence[tuple[Recipe, int]]) -> list[tuple[Recipe, int]]:
    """A twin for a small network that is alone: one product of matrices is computed in another way than a batch of
    them, and the last bits of a policy must not depend on who was trained beside it."""
    recipe, seed = pairs[0]
    is_lonely = len(pairs) == 1 and not recipe.network.costly
    return [(replace(recipe, name=f"twin of {recipe.name}"), seed)] if is_lonely else []


# The zoo ------------------------------------------------------------------------------------------


def find_trained(runs: str | Path = RUNS) -> dict[str, Path]:
    """The folder of every trained policy, by its key. A receipt is written when all policies of a job are trained."""
    folders = {}
    for path in sorted(Path(runs).glob("*/done.json")):
        for key in artifacts.read_json(path)["result"].get("policies", ()):
            folders[key] = path.parent
    return folders


def build(params: ZooParams, domain: str, out: str | Path = ZOO, runs: str | Path = RUNS) -> Zoo:
    """Train what is not trained yet and write the domain's zoo under `out`/`domain`."""
    open_jobs = make_jobs(params, domain, find_trained(runs))
    sweep.run(train_policies, open_jobs, runs, params.zoo.jobs, f"training the {domain} zoo")

    # Policies of other settings, such as those of more seeds, do not stay beside these.
    shutil.rmtree(Path(out) / domain, ignore_errors=True)

    recipes_by_stack = stacks(params, domain)
    names_by_stack = {
        stack: [recipe.name for recipe in members] for stack, members in recipes_by_stack.items()
    }
    stack_of = {name: stack for stack, names in names_by_stack.items() for name in names}
    folder_of_key = find_trained(runs)
    zoo: dict[str, list[policies.Policy]] = {
        recipe.name: [] for recipe in recipes.recipes(params, domain)
    }
    seconds, curves = [], []
    for job in make_jobs(params, domain):  # those of all policies
        folders = {}
        for policy, key in zip(job.settings["policies"], policy_keys(job.settings), strict=True):
            folders[policy["recipe"]["name"], policy["seed"]] = folder_of_key[key]
        for (name, seed), folder in folders.items():
            policy = policies.load(folder / f"seed-{seed}" / f"{name}.json")
            policies.save(policy, Path(out) / domain / name, f"seed-{seed}")
            zoo[name].append(policy)
        for folder in dict.fromkeys(folders.values()):  # one, unless some were trained later
            curve = artifacts.read_parquet(folder / "curve.parquet")
            of_this_job = [
                folders.get(pair) == folder
                for pair in zip(curve["method"], curve["seed"], strict=True)
            ]
            curves.append(curve[of_this_job])
        first_name, _ = next(iter(folders))
        seconds.append(
            {
                "stack": stack_of[first_name],
                "seeds": len({seed for _, seed in folders}),
                "seconds": sum(_seconds_per_policy(folder) for folder in folders.values()),
            }
        )
    curve = pd.concat(curves, ignore_index=True)
    artifacts.write_parquet(Path(out) / domain / "curves.parquet", curve)
    return Zoo(domain, names_by_stack, zoo, curve, pd.DataFrame(seconds))


def _seconds_per_policy(folder: Path) -> float:
    """Core seconds of one of the policies that were trained together in a folder."""
    receipt = artifacts.read_json(folder / "done.json")
    return receipt["seconds"] / len(receipt["result"]["policies"])


def load(domain: str, root: str | Path = ZOO) -> dict[str, list[policies.Policy]]:
    """The trained policies of a domain, by name and seed. Raises PolicyError where there are none."""
    folder = Path(root) / domain
    if not folder.is_dir():
        raise policies.PolicyError(f"{folder} is missing; train the zoo with `make repro`")
    names = sorted(place.name for place in folder.iterdir() if place.is_dir())
    files = {
        name: sorted((folder / name).glob("seed-*.json"), key=lambda path: int(path.stem[5:]))
        for name in names
    }
    return {name: [policies.load(path) for path in paths] for name, paths in files.items()}
