"""One episode for readers: what KO, TO and RO know at every step, and what a prompted model is asked and replies.

The episode is the first that every method is tested on under the first seed of the zoo, in the paper's world. What a
model replies to it was recorded by `experiment.run_prompted`, so that an endpoint is paid once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lib.config import Params
from lib.orchestration import decision_models
from lib.orchestration.baseline_models import RandomModel
from lib.orchestration.contexts import SYSTEMS, DecisionContext
from lib.orchestration.decision_model import Decision, DecisionModel, PromptSection
from lib.orchestration.menus import describe_menu, make_menu, read_cards
from lib.orchestration.prompted_model import collect_contexts
from lib.orchestration.worlds import World, make_environments, make_episode_sets
from lib.policy_zoo.zoo_folder import ensure_zoo

SEED = 0
WORLD = "paper"


def open_example_world(
    params: Params, domain: str, model: DecisionModel, zoo: str | Path | None = None
) -> World:
    """Open the paper's world under the first seed, with one test episode as an example.

    Args:
        params: All settings.
        domain: education or minigrid.
        model: The model that decides which policy acts.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.

    Returns:
        The world, ready to play.
    """
    zoo = ensure_zoo(params, [domain], zoo)
    settings = params.orchestration
    description = describe_menu(params, domain, WORLD, SEED, zoo)
    menu = make_menu(description, domain, SEED, zoo)
    environments = make_environments(params, WORLD)
    episode_sets = make_episode_sets(environments, settings, domain, WORLD, SEED, menu, num_test=1)
    cards = read_cards(description, domain, zoo)
    return World(WORLD, domain, settings, {}, episode_sets, cards, model)


def collect_contexts_by_system(
    params: Params, domain: str, zoo: str | Path | None = None
) -> dict[str, list[DecisionContext]]:
    """Collect what KO, TO and RO know at each step of the example episode; policies are chosen at random.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        params: All settings.
        domain: education or minigrid.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.

    Returns:
        By system, a context per step, with the results of every policy where the system may try policies.
    """
    world = open_example_world(params, domain, RandomModel(), zoo)
    contexts = {}
    for system in SYSTEMS:
        contexts[system] = collect_contexts(world.test, world.make_options(system))
    return contexts


def play_by_system(
    params: Params, domain: str, name: str, zoo: str | Path | None = None
) -> dict[str, list[Decision]]:
    """Let a prompted model decide in the example episode as KO, as TO and as RO, and return its decisions.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        params: All settings.
        domain: education or minigrid.
        name: Name of the model in `llm.models`.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.

    Returns:
        By system, a decision per step, with its prompts and replies.
    """
    model = decision_models.open_decision_model(
        name,
        decision_models.describe_decision_model(name, params.lab, params.llm),
        params.llm,
        params.orchestration,
        keep_exchanges=True,
    )
    world = open_example_world(params, domain, model, zoo)
    decisions = {}
    for system in SYSTEMS:
        played = world.play(world.test, model, world.make_options(system))
        decisions[system] = played.exchanges[0]
    return decisions


def list_first_prompts(
    decisions_by_system: Mapping[str, Sequence[Decision]],
) -> dict[str, list[Sequence[PromptSection]]]:
    """List the first prompt of every decision for which a model was called, by system (KO, TO or RO).

    Args:
        decisions_by_system: Decisions that carry their prompts and replies.

    Returns:
        By system, a list of prompts, each a sequence of sections.
    """
    sections_by_system = {}
    for system, decisions in decisions_by_system.items():
        first_exchanges = [decision.exchanges[0] for decision in decisions if decision.exchanges]
        sections_by_system[system] = [exchange.parts for exchange in first_exchanges]
    return sections_by_system
