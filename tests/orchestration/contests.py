"""Options of KO, TO and RO with real cards, decision models for tests, and contexts that fill every section."""

from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import numpy as np

from lib.llm.open_models import ChatModels, open_models
from lib.orchestration.contexts import (
    TABLE_1,
    DecisionContext,
    Interaction,
    PolicyKnowledge,
    Query,
    State,
    ToolResult,
    ToolSignature,
)
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.orchestration.episode_batch import EpisodeSet
from lib.orchestration.prompted_model import PromptedModel
from lib.orchestration.system_options import SystemOptions
from lib.policy_zoo.policy_cards import RUBRIC, Card
from lib.policy_zoo.recipes import OBJECTIVES, SINGLE
from tests.orchestration import untrained

PARAMS = untrained.make_params()
DOMAINS = untrained.DOMAINS
SYSTEMS = ("KO", "TO", "RO")
NUM_COPIES = 4
NUM_CRITERIA = {domain: len(describer.domain.criteria) for domain, describer in DESCRIBERS.items()}


def weigh(domain: str, *weights: float) -> tuple[float, ...]:
    """Weights of a query: those of the objectives, and 0 for further measures."""
    return (*weights, *[0.0] * (NUM_CRITERIA[domain] - len(weights)))


def make_episode_set(domain: str, num_episodes: int = 2) -> EpisodeSet:
    """Episodes of constant actions or planned policies whose query weighs all objectives alike."""
    weights = np.array(weigh(domain, 1 / 3, 1 / 3, 1 / 3))
    return untrained.make_episode_set(domain, num_episodes, NUM_COPIES, PARAMS, weights=weights)


def make_card(domain: str, name: str) -> dict[str, Any]:
    """A policy card with the fields of Figure 12."""
    objective = OBJECTIVES[domain][SINGLE.index(name)]
    card = Card(
        name=name,
        domain=domain,
        optimized_objective=objective,
        objectives=[objective],
        overall_strength="medium",
        stability="stable",
        behavior_hint="chooses one action 90%, another 10% of the time",
        applicability=f"where {objective} counts most",
        failure_modes="does little else than one thing",
        example_snippets=[f"any view -> an action -> {objective} 0.51"],
        avg_scalar_reward=11.782746666666668,
        std_scalar_reward=0.0451234,
        normalized_reward=0.5,
        rubric=RUBRIC,
    )
    return card.model_dump()


@cache
def describe_policies(domain: str) -> dict[str, Any]:
    """Cards and signatures of the menu, as `SystemOptions` takes them; every row of a card differs."""
    knowledge = {}
    tools = {}
    for rank, name in enumerate(SINGLE):
        card = make_card(domain, name)
        results = {}
        for row, situation in enumerate(DESCRIBERS[domain].situations):
            # Which policy is best depends on the situation.
            value = 0.2 + 0.1 * ((rank + row) % len(SINGLE))
            results[situation] = tuple(value + 0.01 * i for i in range(NUM_CRITERIA[domain]))
        knowledge[name] = PolicyKnowledge(card, results)
        tools[name] = ToolSignature(name, card["optimized_objective"], card["behavior_hint"])
    return {"knowledge": knowledge, "tools": tools}


def make_options(domain: str, system: str, **changes) -> SystemOptions:
    """The context of a system: short-term memory of three steps, rollouts of three steps."""
    options = {"rollout_steps": 3, "max_calls": 3, "memory": 3, **describe_policies(domain)}
    return SystemOptions(system, **options | changes)


def open_scripted(name: str, folder) -> PromptedModel:
    """A scripted model that decides, and keeps its prompts and replies."""
    opening = partial(open_models, PARAMS.llm, [name], "tests", folder, folder)
    return PromptedModel(name, "scripted", opening, summary_interval=4, keep_exchanges=True)


def open_stub(stub, **settings) -> PromptedModel:
    """A stub that decides."""
    return PromptedModel(stub.name, stub.backend, lambda: ChatModels({stub.name: stub}), **settings)


# Contexts -------------------------------------------------------------------------------------------


def make_context(domain: str = "education", system: str = "KO", **changes) -> DecisionContext:
    """A context that has something to show in every section, more than the system has where it has less."""
    describer = DESCRIBERS[domain](PARAMS)
    known = describe_policies(domain)
    situation = describer.situations[0]
    words = {
        "education": {
            "mastery": "0.40 (the episode ends at 0.80)",
            "failed questions open": "3",
        },
        "minigrid": {
            "position": "column 2, row 3 of 4 x 4, heading east",
            "in front": "empty",
            "in view": "lava 1 ahead, straight",
            "gold left": "2",
            "steps left": "9",
        },
    }[domain]
    context = DecisionContext(
        system=system,
        domain=describer.domain,
        policies=SINGLE,
        query=Query(weigh(domain, 0.2, 0.3, 0.5), 5, describer.horizon, describer.topic),
        state=State({"hidden number": 0.123456}, words, situation),
        components=TABLE_1[system],
        recent=(make_interaction(domain, 3), make_interaction(domain, 4)),
        summary="SO-d1 has worked.",
        knowledge=tuple(known["knowledge"][name] for name in SINGLE),
        tools=tuple(known["tools"][name] for name in SINGLE),
        tool_results=(make_result(domain, "SO-d1", system),),
        calls_left=2 if system != "KO" else 0,
        calls_at_once={"KO": 0, "TO": 1, "RO": 3}[system],
        rollout_steps={"KO": 0, "TO": 1, "RO": 3}[system],
        stream=777_123_456_789,
        episode=777_321,
        last_policy="SO-d3",
    )
    return replace_in(context, **changes)


def replace_in(context: DecisionContext, **changes) -> DecisionContext:
    """A context with other values; those of query and state by their own names, such as step or words."""
    for name in ("query", "state"):
        section = getattr(context, name)
        of_section = {field.name for field in fields(section)} & changes.keys()
        changed = replace(section, **{key: changes.pop(key) for key in of_section})
        context = replace(context, **{name: changed})
    return replace(context, **changes)


def make_result(
    domain: str, policy: str, system: str, results: tuple[float, ...] = (0.625, 0.0, 0.375)
) -> ToolResult:
    """What a call of a system gave."""
    padded = (*results, *[0.125] * (NUM_CRITERIA[domain] - len(results)))
    num_steps = 3 if system == "RO" else 1
    action = {"education": "challenge", "minigrid": "forward"}[domain]
    change = {"education": "mastery +0.125", "minigrid": "goal in 0% and lava in 25% of copies"}
    return ToolResult(policy, num_steps, 8, padded, (action,) * num_steps, "", change[domain])


def make_interaction(
    domain: str,
    step: int,
    policy: str = "SO-d2",
    results: tuple[float, ...] = (0.0, 0.25, 0.75),
) -> Interaction:
    """A past step."""
    padded = (*results, *[0.075] * (NUM_CRITERIA[domain] - len(results)))
    state = {
        "education": {
            "mastery": f"0.3{step} (the episode ends at 0.80)",
            "failed questions open": "2",
        },
        "minigrid": {
            "position": f"column {step}, row 2 of 4 x 4, heading north",
            "in front": "lava",
        },
    }[domain]
    action, change = {
        "education": ("easy", "mastery +0.075"),
        "minigrid": ("left", "gold left 2"),
    }[domain]
    return Interaction(step, state, policy, action, padded, change)
