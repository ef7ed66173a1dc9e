"""Train a zoo: every policy under every seed, in parallel processes that resume.

A job of the sweep trains the policies of one stack under a few seeds, as far as they are not trained yet: a policy
that is added, or whose settings change, is trained without the others. Working files lie under `data/runs` and survive
a kill; the finished zoo, policies and curves, is written to `data/zoo`. Episodes and cards of the policies come
afterwards (`zoo_folder`).
"""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib import envs
from lib.config import ROOT, Environments, ZooParams
from lib.experiment import artifacts, seeds, sweep
from lib.policy_zoo import mgda, networks, objectives, policies, ppo, recipes, sb3_baseline
from lib.policy_zoo.networks import Network
from lib.policy_zoo.ppo import MGDA, PPO, PPOVariant
from lib.policy_zoo.recipes import Recipe
from lib.rl import losses

VERSION = 1  # of which policies are trained side by side
ZOO_FOLDER = ROOT / "data/zoo"
RUNS_FOLDER = ROOT / "data/runs/zoo"
SEEDS_PER_JOB = 3  # of a small network: with more in a job, fewer cores would have work


@dataclass(frozen=True)
class Zoo:
    """A trained zoo.

    Attributes:
        domain: education or minigrid.
        stacks: Names of the policies that were trained together, by stack.
        policies: Policies by name, in the order of the seeds.
        curves: Training episodes of all policies, see `ppo.make_training_curve`.
        seconds: Core seconds by stack and group of seeds, with the columns stack, seeds (how many) and seconds.
    """

    domain: str
    stacks: dict[str, list[str]]
    policies: dict[str, list[policies.Policy]]
    curves: pd.DataFrame
    seconds: pd.DataFrame


# Who trains what ----------------------------------------------------------------------------------


def choose_learner(params: ZooParams, recipe: Recipe) -> str:
    """The learner of a recipe: `zoo.learner`, but "stacked" where the critic has several heads.

    stable-baselines3 has no such critic.
    """
    return "stacked" if recipe.network.values > 1 else params.zoo.learner


def group_recipes_by_stack(params: ZooParams, domain: str) -> dict[str, list[Recipe]]:
    """Group the recipes of a domain by what is trained side by side (a stack).

    stable-baselines3 trains one policy at a time, so that each is a group of its own there.

    Args:
        params: All settings.
        domain: education or minigrid.

    Returns:
        Recipes by name of the stack.
    """
    recipes_by_stack: dict[str, list[Recipe]] = {}
    for recipe in recipes.list_recipes(params, domain):
        is_stacked = choose_learner(params, recipe) == "stacked"
        stack_name = recipe.stack if is_stacked else recipe.name
        recipes_by_stack.setdefault(stack_name, []).append(recipe)
    return recipes_by_stack


def group_seeds(params: ZooParams, stack: Sequence[Recipe]) -> list[list[int]]:
    """Divide the seeds 0, 1, ... into groups; the policies of a group are trained at once, in one process.

    The stacked learner trains several policies at once, their parameters in one array. That saves calls of small
    networks, which cost more than the arithmetic inside. A network with an expensive forward pass gains more by
    computing equal inputs once, which the learner does only where it trains a single policy.

    Args:
        params: All settings.
        stack: Recipes of policies that are trained at once; they share their learner and kind of network.

    Returns:
        Groups of `SEEDS_PER_JOB` seeds for small networks under the stacked learner, else of one seed; the last group
        may be smaller.
    """
    # The first recipe speaks for all.
    is_stacked = choose_learner(params, stack[0]) == "stacked"
    is_small = not stack[0].network.has_expensive_forward
    group_size = SEEDS_PER_JOB if is_stacked and is_small else 1

    num_seeds = params.zoo.seeds
    groups = []
    for first_seed in range(0, num_seeds, group_size):
        next_group = min(first_seed + group_size, num_seeds)
        groups.append(list(range(first_seed, next_group)))
    return groups


def make_stacked_learner(params: Environments, stack: Sequence[Recipe], *seeds: int) -> PPO:
    """The PPO (or MGDA) that trains the recipes of a stack under some seeds side by side.

    Args:
        params: Settings of the environments.
        stack: Recipes of networks and rollouts of one shape.
        seeds: All recipes of the first seed come first.
    """
    recipes_and_seeds = [(recipe, seed) for seed in seeds for recipe in stack]
    return _make_learner(params, recipes_and_seeds)


def _make_learner(params: Environments, recipes_and_seeds: Sequence[tuple[Recipe, int]]) -> PPO:
    """Make the learner that trains some policies side by side: PPO, or MGDA where the critic has several heads.

    Args:
        params: Settings of the environments.
        recipes_and_seeds: The policies; their networks and rollouts have one shape.

    Returns:
        The learner.
    """
    variants = []
    tasks = []  # of the rows of the batched environment
    for recipe, seed in recipes_and_seeds:
        variants.append(PPOVariant(recipe.name, seed, recipe.objective, recipe.settings))
        tasks.extend([recipe.task] * recipe.settings.num_envs)

    first_recipe, _ = recipes_and_seeds[0]
    network = first_recipe.network
    domain = first_recipe.domain
    env = recipes.make_batched_env(params, domain, tasks)
    learner_class = MGDA if network.values > 1 else PPO
    return learner_class(variants, network, env, domain)


# Jobs ---------------------------------------------------------------------------------------------


def list_versions(network: Network, learner: str) -> dict[str, int]:
    """List the VERSION constants of the code that decides the parameters and the training curve of a policy.

    Args:
        network: Network of the policy.
        learner: "stacked" (policies trained side by side) or "stable-baselines3".

    Returns:
        Version numbers by the name of the code.
    """
    versions = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "objectives": objectives.VERSION,
        "networks": networks.VERSION,
        "stacked PPO": ppo.VERSION,  # its random numbers are those of every learner
        "policies": policies.VERSION,
        "stacks": VERSION,
    }
    if learner == "stacked":
        versions["losses"] = losses.VERSION
    else:
        versions["stable-baselines3"] = sb3_baseline.VERSION
    if network.values > 1:
        versions["min-norm weights"] = mgda.VERSION
    return versions


def make_jobs(params: ZooParams, domain: str, trained: Collection[str] = ()) -> list[sweep.Job]:
    """Make the jobs that train the policies of a domain, the longest first.

    A job is a label and the settings that decide its results; their hash is its key.

    Args:
        params: All settings; a job is handed those that it reads.
        domain: education or minigrid.
        trained: Keys of policies (`compute_policy_keys`) that need no training.

    Returns:
        One job per stack (recipes that are trained side by side) and group of seeds, with those of its policies that
        are not `trained`; none where all are.
    """
    jobs = []
    for stack_name, stack in group_recipes_by_stack(params, domain).items():
        learner = choose_learner(params, stack[0])
        shared_settings = {
            "job": "policy training",
            "environment": recipes.describe_environment(params, domain),
            "learner": learner,
            "torch": torch.__version__,
            "versions": list_versions(stack[0].network, learner),
        }
        for seed_group in group_seeds(params, stack):
            policies_of_job = [
                {"recipe": recipe.to_json(), "seed": seed}
                for seed in seed_group
                for recipe in stack
            ]
            keys = compute_policy_keys(shared_settings | {"policies": policies_of_job})
            untrained_policies = [
                policy
                for policy, key in zip(policies_of_job, keys, strict=True)
                if key not in trained
            ]
            if untrained_policies:
                label = f"{domain}/{stack_name}/seeds-{seed_group[0]}-{seed_group[-1]}"
                settings = shared_settings | {"policies": untrained_policies}
                jobs.append(sweep.Job(label, settings))
    return jobs


def compute_policy_keys(settings: Mapping[str, Any]) -> list[str]:
    """Compute the key of each policy of a job: a hash of all that decides it, but not of those trained beside it.

    Args:
        settings: Settings of the job.

    Returns:
        Keys in the order of the job's policies.
    """
    shared_settings = {name: value for name, value in settings.items() if name != "policies"}
    return [sweep.Job("a policy", shared_settings | policy).key for policy in settings["policies"]]


def train_policies(
    job: sweep.Job, folder: Path, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Train the policies of a job side by side, and write them and their training curves.

    Args:
        job: Holds recipes, seeds and the settings of the environment.
        folder: Folder for policies and curves.
        progress: Called with the fraction of the training that is over.

    Returns:
        `policies`, the keys of the policies.
    """
    torch.set_num_threads(1)
    # Adam's moments of weights without a gradient decay into denormal numbers, which are slow.
    torch.set_flush_denormal(True)
    recipes_and_seeds = [
        (Recipe.from_json(policy["recipe"]), policy["seed"]) for policy in job.settings["policies"]
    ]
    domain = recipes_and_seeds[0][0].domain
    environments = recipes.restore_environment(job.settings["environment"], domain)

    # Train.
    checkpoint = folder / "checkpoint.safetensors"
    if job.settings["learner"] == "stacked":
        companions = _make_companions(recipes_and_seeds)
        learner = _make_learner(environments, [*recipes_and_seeds, *companions])
        learner.train(checkpoint, progress)
        parameters_by_policy = [learner.get_parameters(k) for k in range(len(recipes_and_seeds))]
        curve = learner.make_training_curve()
    else:
        ((recipe, seed),) = recipes_and_seeds
        parameters, curve = sb3_baseline.train_policy(environments, recipe, seed, progress)
        parameters_by_policy = [parameters]

    # Write policies and curves.
    for (recipe, seed), parameters in zip(recipes_and_seeds, parameters_by_policy, strict=True):
        about = {"seed": seed, "task": recipe.task, "settings": recipe.settings.model_dump()}
        policy = policies.Policy(recipe.name, domain, recipe.network, parameters, about)
        policies.save(policy, folder / f"seed-{seed}")
    artifacts.write_parquet(folder / "curve.parquet", curve)
    checkpoint.unlink(missing_ok=True)
    return {"policies": compute_policy_keys(job.settings)}


def _make_companions(
    recipes_and_seeds: Sequence[tuple[Recipe, int]],
) -> list[tuple[Recipe, int]]:
    """Make a second policy to be trained beside a small network that would otherwise be alone.

    A product of two matrices is computed in another way than a batch of them, and the last bits of a policy must not
    depend on how many are trained beside it.

    Args:
        recipes_and_seeds: The policies of a job.

    Returns:
        The second policy with its seed; an empty list where none is needed.
    """
    recipe, seed = recipes_and_seeds[0]
    is_single = len(recipes_and_seeds) == 1
    if is_single and not recipe.network.has_expensive_forward:
        return [(replace(recipe, name=f"twin of {recipe.name}"), seed)]
    return []


# The zoo ------------------------------------------------------------------------------------------


def find_trained(runs: str | Path = RUNS_FOLDER) -> dict[str, Path]:
    """Find the folder of every trained policy.

    Args:
        runs: Folder of the jobs. A job's receipt is written when all of its policies are trained.

    Returns:
        Folders by key of the policy, a hash of all that decides its training.
    """
    folder_by_key = {}
    for receipt_path in sorted(Path(runs).glob("*/done.json")):
        receipt = artifacts.read_json(receipt_path)
        for key in receipt["result"].get("policies", ()):
            folder_by_key[key] = receipt_path.parent
    return folder_by_key


def build_zoo(
    params: ZooParams, domain: str, out: str | Path = ZOO_FOLDER, runs: str | Path = RUNS_FOLDER
) -> Zoo:
    """Train the policies of a domain that are not trained yet, copy all into one folder, and return them.

    Args:
        params: All settings.
        domain: education or minigrid.
        out: Folder of the trained policies, which gets a folder of the domain.
        runs: Folder of the jobs.

    Returns:
        Policies, training curves and computing time, read from the files of the jobs.
    """
    untrained_jobs = make_jobs(params, domain, find_trained(runs))
    label = f"training the {domain} zoo"
    sweep.run(train_policies, untrained_jobs, runs, params.zoo.jobs, label)

    # Policies of other settings, such as those of more seeds, do not stay beside these.
    shutil.rmtree(Path(out) / domain, ignore_errors=True)

    zoo = read_zoo(params, domain, runs)
    for name, policies_by_seed in zoo.policies.items():
        for policy in policies_by_seed:
            seed = policy.about["seed"]
            policies.save(policy, Path(out) / domain / name, f"seed-{seed}")
    artifacts.write_parquet(Path(out) / domain / "curves.parquet", zoo.curves)
    return zoo


def read_zoo(params: ZooParams, domain: str, runs: str | Path = RUNS_FOLDER) -> Zoo:
    """Read the trained policies of a domain, with their training curves and computing time.

    Args:
        params: All settings.
        domain: education or minigrid.
        runs: Folder of the jobs; all of these policies are trained.

    Returns:
        Policies, curves and seconds.
    """
    names_by_stack = {}
    stack_by_name = {}
    for stack_name, stack in group_recipes_by_stack(params, domain).items():
        names_by_stack[stack_name] = [recipe.name for recipe in stack]
        for recipe in stack:
            stack_by_name[recipe.name] = stack_name

    folder_by_key = find_trained(runs)
    policies_by_name: dict[str, list[policies.Policy]] = {
        recipe.name: [] for recipe in recipes.list_recipes(params, domain)
    }
    curves = []
    seconds = []
    for job in make_jobs(params, domain):  # all policies, trained or not
        folder_by_policy = {}
        for policy, key in zip(
            job.settings["policies"], compute_policy_keys(job.settings), strict=True
        ):
            folder_by_policy[policy["recipe"]["name"], policy["seed"]] = folder_by_key[key]

        # Policies.
        for (name, seed), folder in folder_by_policy.items():
            policy = policies.load(folder / f"seed-{seed}" / f"{name}.json")
            policies_by_name[name].append(policy)

        # Curves: of one folder, unless some policies were trained later.
        for folder in dict.fromkeys(folder_by_policy.values()):
            curve = artifacts.read_parquet(folder / "curve.parquet")
            is_of_this_job = [
                folder_by_policy.get((name, seed)) == folder
                for name, seed in zip(curve["method"], curve["seed"], strict=True)
            ]
            curves.append(curve[is_of_this_job])

        # Core seconds.
        first_name, _ = next(iter(folder_by_policy))
        seconds.append(
            {
                "stack": stack_by_name[first_name],
                "seeds": len({seed for _, seed in folder_by_policy}),
                "seconds": sum(map(_read_seconds_per_policy, folder_by_policy.values())),
            }
        )

    curve = pd.concat(curves, ignore_index=True)
    return Zoo(domain, names_by_stack, policies_by_name, curve, pd.DataFrame(seconds))


def _read_seconds_per_policy(folder: Path) -> float:
    """Core seconds of one of the policies that were trained together in a folder."""
    receipt = artifacts.read_json(folder / "done.json")
    return receipt["seconds"] / len(receipt["result"]["policies"])


def load_zoo(domain: str, root: str | Path = ZOO_FOLDER) -> dict[str, list[policies.Policy]]:
    """Load the trained policies of a domain.

    Args:
        domain: education or minigrid.
        root: Folder of the trained policies.

    Returns:
        By name, a policy for each seed in rising order.

    Raises:
        PolicyError: There are none.
    """
    folder = Path(root) / domain
    if not folder.is_dir():
        raise policies.PolicyError(f"{folder} is missing; train the zoo with `make repro`")
    zoo = {}
    for policy_folder in sorted(path for path in folder.iterdir() if path.is_dir()):
        paths = sorted(policy_folder.glob("seed-*.json"), key=_read_seed)
        zoo[policy_folder.name] = [policies.load(path) for path in paths]
    return zoo


def _read_seed(path: Path) -> int:
    """The number in a name such as seed-12.json."""
    return int(path.stem.removeprefix("seed-"))
