"""A tiny zoo without training, and the plain way to look ahead.

The networks are those of the recipes. Their first weights are scaled so that what is seen matters, and
each policy leans to actions of its own, so that the three differ as trained ones do.
"""

import copy
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch

from lib import config
from lib.config import Params
from lib.envs import make_education_rules
from lib.envs.education import Education
from lib.envs.grid import GridRoom
from lib.experiment import artifacts, seeds
from lib.policy_zoo import evaluate
from lib.policy_zoo import policies as saved
from lib.policy_zoo.networks import Network, draw_initial_parameters
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.policy_cards import make_card
from lib.policy_zoo.recipes import ACTIONS, REFERENCES, SINGLE, list_recipes

torch.set_num_threads(1)  # networks as small as these only wait for a second thread

SMOKE = config.load("smoke")
SMOKE = SMOKE.model_copy(
    update={"minigrid": config.load("paper").minigrid}
)  # rooms as long as the stock environment's
DOMAINS = ("education", "minigrid")
TASK = {"education": "student", "minigrid": "composite"}
STREAM = {
    "education": "education",
    "minigrid": "grid",
}  # names of the single environments' random streams
LEANING = {
    "education": {"SO-d1": ("challenge",), "SO-d2": ("failed",), "SO-d3": ("easy",)},
    "minigrid": {
        "SO-d1": ("forward", "left"),
        "SO-d2": ("forward", "right"),
        "SO-d3": ("forward", "pickup"),
    },
}


@cache
def untrained(domain: str, name: str) -> tuple[Network, dict[str, np.ndarray]]:
    """The network of a domain and first parameters that make it look at what it sees."""
    network = next(
        recipe for recipe in list_recipes(SMOKE, domain) if recipe.name == "SO-d1"
    ).network
    parameters = draw_initial_parameters(network, "tests", name, seed=3)
    return network, parameters | {"action_net.weight": 60 * parameters["action_net.weight"]}


def policy(
    domain: str, name: str, actions: Sequence[str], strength: float, like: str = "SO-d1"
) -> Policy:
    """A policy that leans to `actions`: by 1 a little, by 1,000 it does nothing else."""
    network, parameters = untrained(domain, like)
    leaning = strength * np.isin(ACTIONS[domain], actions).astype(np.float32)
    return Policy(name, domain, network, parameters | {"action_net.bias": leaning}, {})


def always(domain: str, action: str, name: str | None = None) -> Policy:
    """The policy that does one thing whatever it sees."""
    return policy(domain, name or f"always {action}", (action,), 1_000.0)


@cache
def policies(domain: str) -> dict[str, Policy]:
    """The policies that orchestrators choose from."""
    return {name: policy(domain, name, LEANING[domain][name], 1.0, like=name) for name in SINGLE}


@cache
def cards(domain: str) -> list[dict]:
    """The cards of the menu in the environments of smoke."""
    return make_cards(SMOKE, domain)


def make_cards(settings: Params, domain: str, episodes: int = 8) -> list[dict]:
    """The cards of the menu, made from episodes as a trained zoo's are."""
    few = settings.model_copy(
        update={"zoo": settings.zoo.model_copy(update={"episodes": episodes})}
    )
    record = evaluate.evaluate(
        few,
        evaluate.make_actors({n: [p] for n, p in policies(domain).items()}),
        domain,
        TASK[domain],
    )
    return [make_card(record, domain, name).model_dump() for name in SINGLE]


def write(root: Path, domain: str, cards_of_menu: Sequence[dict], seeds: int = 2) -> None:
    """The tiny zoo of a domain on disk, as lesson 01 leaves one: policies, references, cards."""
    card_of = {card["name"]: card for card in cards_of_menu}
    for name in (*SINGLE, *REFERENCES[domain]):
        actor = policies(domain)[name] if name in SINGLE else policy(domain, name, (), 1.0)
        for seed in range(seeds):
            saved.save(actor, root / domain / name, f"seed-{seed}")
        artifacts.write_json(root / domain / name / "card.json", card_of.get(name, {}))


# Looking ahead the plain way: one copied single environment at a time, one observation at a time ---------


def single(
    domain: str, seed: int, actions: Sequence[int] = ()
) -> tuple[Education | GridRoom, np.ndarray]:
    """The single environment that was reset with `seed`, after `actions`, and what it shows."""
    env = (
        Education(make_education_rules(SMOKE.education))
        if domain == "education"
        else GridRoom("composite")
    )
    observation, _ = env.reset(seed=seed)
    for action in actions:
        observation = env.step(int(action))[0]
    return env, observation


def rollout(
    env, observation, actor: Policy, steps: int, key: np.uint64
) -> tuple[np.ndarray, list[int]]:
    """The rewards (t, 3) and the actions of one policy on a copy of `env` with the random numbers of `key`."""
    env = copy.deepcopy(env)
    env._key = key
    draws = seeds.uniform(seeds.next_key(key ^ np.uint64(0xAC7)), np.arange(steps))
    rewards, actions = [], []
    for draw in draws:
        action = int(actor.act(observation[None], draw[None])[0])
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        actions.append(action)
        if terminated or truncated:
            break
    return np.array(rewards), actions
