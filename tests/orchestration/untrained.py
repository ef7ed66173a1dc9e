"""Contests that need no trained policy, and decision models that write down what they are shown."""

from collections.abc import Callable, Sequence

import numpy as np

from lib import config
from lib.config import Params
from lib.envs.batched_env import BatchedEnv
from lib.envs.education import CHALLENGE, EASY, FAILED
from lib.experiment import seeds
from lib.orchestration.contexts import DecisionContext, PolicyKnowledge, ToolSignature
from lib.orchestration.decision_model import Decision, NumericModel, choose_surely
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.orchestration.episode_batch import EpisodeSet
from lib.orchestration.menus import Menu, PlannedMenu
from lib.orchestration.system_options import SystemOptions
from lib.policy_zoo.recipes import SINGLE

DOMAINS = ("education", "minigrid")
CONSTANT_ACTIONS = (CHALLENGE, FAILED, EASY)  # of SO-d1, SO-d2, SO-d3
TOOLS = {name: ToolSignature(name, f"objective of {name}", f"habit of {name}") for name in SINGLE}


class ConstantMenu:
    """Policies of students that do one thing each, whatever they see."""

    names = SINGLE

    def __init__(self, actions: Sequence[int] = CONSTANT_ACTIONS) -> None:
        self.actions = np.array(actions)

    def act(
        self, env: BatchedEnv, policies: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """See `lib.orchestration.menus.Menu`."""
        return self.actions[policies]


def make_params(**changes) -> Params:
    """Settings of smoke with short episodes."""
    base = {"education": {"horizon": 12}, "minigrid": {"horizon": 14}}
    return config.settings(profile="smoke", **config.overlay_settings(base, changes))


def make_episode_set(
    domain: str,
    num_episodes: int = 10,
    num_copies: int = 3,
    params: Params | None = None,
    menu: Menu | None = None,
    random_streams: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> EpisodeSet:
    """Episodes of constant actions (students) or planned policies (rooms), with queries that differ."""
    if menu is None:
        menu = ConstantMenu() if domain == "education" else PlannedMenu(0.1)
    if random_streams is None:
        random_streams = seeds.keys("tests of contests", domain, n=num_episodes)
    if weights is None:
        num_criteria = len(DESCRIBERS[domain].domain.criteria)
        weights = seeds.uniform(random_streams[:, None], np.arange(100, 100 + num_criteria))
        weights = weights / weights.sum(axis=1, keepdims=True)
    return EpisodeSet(params or make_params(), domain, menu, random_streams, weights, num_copies)


def make_options(domain: str, system: str, **changes) -> SystemOptions:
    """The context of a system, with cards whose results differ."""
    describer = DESCRIBERS[domain]
    num_criteria = len(describer.domain.criteria)
    knowledge = {}
    for rank, name in enumerate(SINGLE):
        row = tuple(round(0.1 * rank + 0.01 * i, 2) for i in range(num_criteria))
        results = dict.fromkeys(describer.situations, row)
        knowledge[name] = PolicyKnowledge({"name": name}, results)
    return SystemOptions(system, **{"knowledge": knowledge, "tools": TOOLS} | changes)


class WatchedModel(NumericModel):
    """Takes turns, and writes down every context.

    Attributes:
        contexts: In the order in which they came.
    """

    name = "watched"

    def __init__(self) -> None:
        self.contexts: list[DecisionContext] = []

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        self.contexts.extend(contexts)
        return [take_turns(context) for context in contexts]


class FunctionModel(NumericModel):
    """Decides by a function of one context."""

    name = "function"

    def __init__(self, decide: Callable[[DecisionContext], Decision], **attributes) -> None:
        self._decide = decide
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        return [self._decide(context) for context in contexts]


def take_turns(context: DecisionContext) -> Decision:
    """Each policy in turn."""
    return choose_surely((context.query.step - 1) % len(SINGLE), len(SINGLE))
