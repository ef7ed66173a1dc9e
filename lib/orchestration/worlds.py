"""The worlds of lesson 02. A world is an environment together with a kind of query, the weights of the objectives:

    paper    the paper's environments; the query weighs all objectives alike
    speed    the paper's students; the query asks to raise mastery, so utility is the share of the horizon that is saved
    varied   students of hidden ability, or rooms with planned policies; every query weighs the objectives differently

A `World` is one of them under one seed of the policy zoo, the folder of trained policies: the episodes that methods
are tested on, and what methods know of policies beforehand. That comes from training students and rooms, apart from
those that methods are tested on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lib.config import Environments, OrchestrationSettings, Params
from lib.experiment import seeds
from lib.experiment.harness import JobRun
from lib.experiment.sweep import count_workers
from lib.orchestration import decision_models
from lib.orchestration.contexts import PolicyKnowledge, ToolSignature
from lib.orchestration.decision_model import DecisionModel
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.orchestration.episode_batch import EpisodeSet
from lib.orchestration.episode_tables import PlayedEpisodes
from lib.orchestration.menus import Menu, make_menu, read_cards
from lib.orchestration.system_options import SystemOptions
from lib.orchestration.training_episodes import average_results_by_situation
from lib.policy_zoo import recipes
from lib.policy_zoo.recipes import OBJECTIVES

VERSION = 1  # of worlds, methods and what is recorded of them
WORLDS = (  # domain and name
    ("education", "paper"),
    ("education", "speed"),
    ("education", "varied"),
    ("minigrid", "paper"),
    ("minigrid", "varied"),
)
# Episodes by what they are for: tests, results on policy cards, what LinUCB learns from, and the best single policy.
USES = ("test", "cards", "linucb", "dev")
_WEIGHT_DRAWS = np.uint64(7)  # stream of an episode from which the weights of its query are drawn
_STREAMS_PER_SEED = 10**6  # of the zoo; no seed has as many episodes


@dataclass
class World:
    """A world under one seed: its episodes, and what methods know of its policies beforehand.

    Attributes:
        name: paper, speed or varied.
        domain: education or minigrid.
        settings: Settings of the section `orchestration` that the job was handed.
        upper_bound: Length of the plans that the upper bound follows (`steps`), and the steps after which a plan may
            change its policy (`handovers`); empty for prompted jobs.
        episode_sets: By use (USES), the episodes that all methods play; all but `test` hold training students or rooms.
        cards: Policy cards (what is known of a policy in words) by name of the policy.
        model: The decision model of KO, TO and RO.
        without: Context components to leave out, a variant of the systems for each entry.
    """

    name: str
    domain: str
    settings: OrchestrationSettings
    upper_bound: Mapping[str, Any]
    episode_sets: Mapping[str, EpisodeSet]
    cards: Mapping[str, Mapping[str, Any]]
    model: DecisionModel
    without: Sequence[Sequence[str]] = ((),)

    @classmethod
    def of_job(cls, run: JobRun) -> "World":
        """Open the world that a job's settings describe, with its policies, episodes and decision model.

        Args:
            run: A job in progress, with its settings, the folder of trained policies, and how to reach language models.

        Returns:
            The world, ready to play.
        """
        job = run.settings
        domain = job["domain"]
        name = job["world"]
        zoo = run.context.models
        settings = run.read_section("orchestration", OrchestrationSettings)
        environments = recipes.restore_environment(job["environment"], domain)
        menu = make_menu(job["menu"], domain, run.seed, zoo)
        num_test = settings.students if run.kind == "contest" else settings.episodes
        return cls(
            name=name,
            domain=domain,
            settings=settings,
            upper_bound=job.get("upper_bound", {}),
            episode_sets=make_episode_sets(
                environments, settings, domain, name, run.seed, menu, num_test
            ),
            cards=read_cards(job["menu"], domain, zoo),
            model=_open_decision_model(run, settings),
            without=job.get("without", ((),)),
        )

    @property
    def test(self) -> EpisodeSet:
        """The episodes that methods are judged on."""
        return self.episode_sets["test"]

    def name_query_styles(self) -> list[str]:
        """The objective that each test query weighs most, (episodes,); the world's name where all queries are alike."""
        if self.name != "varied":
            return [self.name] * len(self.test.random_streams)
        return [OBJECTIVES[self.domain][index] for index in self.test.weights.argmax(axis=1)]

    def play(
        self, episode_set: EpisodeSet, model: DecisionModel, options: SystemOptions
    ) -> PlayedEpisodes:
        """Let a decision model play a set of episodes of this world, and return the tables of its episodes and steps.

        Args:
            episode_set: One of this world's; every method plays it with the same random numbers.
            model: The model that decides which policy acts.
            options: What the model gets to read and to try.

        Returns:
            Tables of episodes and steps. The column `reward` is the utility of an episode by this world's queries.
        """
        played_episodes = episode_set.play(model, options)
        if self.name == "speed":
            # Whoever gains most per step is done first; what counts is the share of the horizon that is saved.
            episodes = played_episodes.episodes
            episodes["reward"] = 1 - episodes["length"] / episode_set.describer.horizon
        return played_episodes

    def make_options(self, system: str = "", **changes) -> SystemOptions:
        """Make what one system may read and try in this world.

        Args:
            system: KO (reads policy cards), TO (tries policies for one step) or RO (for several steps); empty for
                baselines that see query and state only.
            changes: Fields of `SystemOptions` that differ from the settings.

        Returns:
            The options of a method.
        """
        options = {
            "rollout_steps": self.settings.lookahead,
            "max_calls": self.settings.max_calls,
            "memory": self.settings.memory,
            "fallback": self.settings.fallback,
        }
        if system == "KO":
            options["knowledge"] = self.knowledge
        elif system:
            options["tools"] = self.tools
        return SystemOptions(system, **options | changes)

    @cached_property
    def knowledge(self) -> dict[str, PolicyKnowledge]:
        """Collect what KO knows of each policy: its card, and its mean results on training episodes by situation.

        A situation is a coarse description of a state, such as "mastery low, failed questions open".

        Returns:
            By name of the policy.
        """
        # A card has a policy's mean results: in the next set of questions, or at the end of a room.
        num_steps = 1 if self.domain == "education" else self.test.describer.horizon
        averages = average_results_by_situation(self.episode_sets["cards"], num_steps)
        knowledge = {}
        for name, results in averages.items():
            knowledge[name] = PolicyKnowledge(self.cards[name], results)
        return knowledge

    @property
    def tools(self) -> dict[str, ToolSignature]:
        """Signatures of the policies, for TO and RO."""
        return {
            name: ToolSignature(name, card["optimized_objective"], card["behavior_hint"])
            for name, card in self.cards.items()
        }


def _open_decision_model(run: JobRun, settings: OrchestrationSettings) -> DecisionModel:
    """Open the model that picks a policy at every step of an episode.

    In a job of the kind "constrained model" it is a Hugging Face model that may only name a policy of the menu. In
    other jobs it is a language model that is prompted, or the lab-orchestrator, which is trained here.

    Args:
        run: The job; its settings name the model and say what it is told of itself.
        settings: The section `orchestration` of params.yaml.

    Returns:
        The model.
    """
    job = run.settings
    context = run.context
    if run.kind == "constrained model":
        return decision_models.open_constrained_model(run.input_folder("model"), job["model"])
    return decision_models.open_decision_model(
        job["model"],
        job["model_description"],
        context.llm,
        settings,
        count_workers(context.workers),
        context.runs,
        context.cassettes,
    )


# Environments and episodes --------------------------------------------------------------------------


def make_environments(params: Params, world: str) -> Environments:
    """Make the environment settings of a world: the paper's, or changed ones for the world "varied".

    In the varied world, which the paper does not have, students differ in ability, and rooms have less time and more
    lava, so that the best policy differs between episodes.

    Args:
        params: All settings; those of the environments are the paper's.
        world: paper, speed or varied.

    Returns:
        Settings of students and rooms.
    """
    if world != "varied":
        return params
    changes = params.orchestration.varied
    # `model_construct` validates nothing: params.yaml was validated as a whole, its varied part included.
    return Environments.model_construct(
        education=params.education.model_copy(update=changes.education),
        minigrid=params.minigrid.model_copy(update=changes.minigrid),
    )


def make_episode_sets(
    environments: Environments,
    settings: OrchestrationSettings,
    domain: str,
    world: str,
    seed: int,
    menu: Menu,
    num_test: int,
) -> dict[str, EpisodeSet]:
    """Make the sets of episodes of a world under one seed: for training, cards, tuning and tests.

    A world is an environment together with a kind of query, the weights of the objectives.

    Args:
        environments: Settings of this world's environments.
        settings: The section `orchestration` of params.yaml.
        domain: education or minigrid.
        world: paper, speed or varied; it decides the weights of the queries.
        seed: Number of the training whose policies act.
        menu: The policies that can act.
        num_test: Number of episodes that methods are tested on.

    Returns:
        By use (USES), a set of episodes: `test`, and three sets of training students or rooms apart from it.
    """
    episode_sets = {}
    for use in USES:
        size = num_test if use == "test" else settings.training
        random_streams = seeds.keys("contest", use, domain, seed=seed * _STREAMS_PER_SEED, n=size)
        weights = make_query_weights(settings.weights, domain, world, random_streams)
        # A card averages over so many states that one copy of each is enough.
        num_copies = 1 if use == "cards" else settings.rollout_copies
        episode_sets[use] = EpisodeSet(
            environments, domain, menu, random_streams, weights, num_copies
        )
    return episode_sets


def make_query_weights(
    paper_weights: Sequence[float], domain: str, world: str, random_streams: np.ndarray
) -> np.ndarray:
    """Make the weights by which the queries of a world sum up an episode's criteria to its utility.

    A world is an environment together with a kind of query. Criteria are the three objectives of the environment and,
    for students, one further measure: progress, the rise of mastery.

    Args:
        paper_weights: (objectives,) weights in the world "paper"; they need not sum to 1.
        domain: education or minigrid.
        world: paper (the weights given), speed (progress alone) or varied (drawn for each episode).
        random_streams: (episodes,) uint64, the key of each episode's random numbers.

    Returns:
        (criteria,) weights of all queries, or (episodes, criteria) in the world "varied".
    """
    description = DESCRIBERS[domain].domain
    num_objectives = len(description.objectives)
    num_criteria = len(description.criteria)  # objectives, then further measures
    if world == "varied":
        return draw_weights(random_streams, num_objectives, num_criteria)
    if world == "speed":
        # Who raises mastery fastest is done first.
        return np.array([float(name == "progress") for name in description.criteria])
    # The paper weighs objectives; further measures count nothing.
    weights = np.zeros(num_criteria)
    weights[:num_objectives] = np.array(paper_weights) / sum(paper_weights)
    return weights


def draw_weights(random_streams: np.ndarray, num_objectives: int, num_criteria: int) -> np.ndarray:
    """Draw random query weights for each episode; most of them favour one objective.

    Weights are shares of squared exponential numbers.

    Args:
        random_streams: (episodes,) uint64, the key of each episode's random numbers.
        num_objectives: The first criteria, whose weights are drawn; the others have weight 0.
        num_criteria: All criteria: objectives, then further measures.

    Returns:
        (episodes, criteria) weights; rows sum to 1.
    """
    weight_streams = seeds.next_key(random_streams + _WEIGHT_DRAWS)
    draws = seeds.uniform(weight_streams[:, None], np.arange(num_objectives))
    # A uniform number u in [0, 1) becomes an exponential one by -log(1 - u): (episodes, objectives).
    exponential = -np.log(1 - draws)
    squared = exponential**2
    totals = squared.sum(axis=1, keepdims=True)
    weights = np.zeros((len(random_streams), num_criteria))
    weights[:, :num_objectives] = squared / totals
    return weights
