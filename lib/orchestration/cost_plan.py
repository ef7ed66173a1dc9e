"""What language models may be asked in lesson 02 at most, before anything is asked.

Plans are bounds: episodes of full length, in which every call is used and every reply is sent back once.
"""

import math
from collections.abc import Sequence

from lib.config import OrchestrationSettings, Params
from lib.llm.cost_estimate import PlannedCalls, asks_endpoint
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.prompted_model import ATTEMPTS
from lib.orchestration.worlds import make_environments
from lib.policy_zoo.recipes import SINGLE

PROMPT_TOKENS = 2_500  # of a prompt, more than contexts of these domains need


def plan_contest_calls(params: Params, worlds: Sequence[tuple[str, str]]) -> list[PlannedCalls]:
    """Estimate the most calls and tokens that `orchestration.model` needs in all episodes of some worlds.

    A world is an environment together with a kind of query, the weights of the objectives.

    Args:
        params: All settings.
        worlds: Domain and name of each.

    Returns:
        One plan; none where the model is no endpoint and costs nothing.
    """
    settings = params.orchestration
    model = settings.model
    if model not in params.llm.models or not asks_endpoint(params.llm, [model]):
        return []
    calls_per_episode = 0
    for domain, world in worlds:
        horizon = getattr(make_environments(params, world), domain).horizon
        for system, interval in _list_model_contexts(domain, world, settings):
            calls_per_episode += _count_calls(system, horizon, settings, interval)
    num_episodes = params.zoo.seeds * settings.students
    return [_plan_tokens(params, model, calls_per_episode * num_episodes)]


def plan_prompted_calls(
    params: Params, domains: Sequence[str], models: Sequence[str], num_variants: int = 1
) -> list[PlannedCalls]:
    """Estimate the most calls and tokens that prompted chat models need to play as KO, TO and RO in the paper's worlds.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        params: All settings.
        domains: The domains that are played: education, minigrid or both.
        models: Names of `llm.models`.
        num_variants: Variants of each system.

    Returns:
        A plan for each model that is an endpoint; others cost nothing.
    """
    settings = params.orchestration
    calls_per_episode = 0
    for domain in domains:
        horizon = getattr(params, domain).horizon
        calls_per_episode += sum(_count_calls(system, horizon, settings) for system in SYSTEMS)
    num_episodes = num_variants * params.zoo.seeds * settings.episodes
    return [
        _plan_tokens(params, model, calls_per_episode * num_episodes)
        for model in models
        if asks_endpoint(params.llm, [model])
    ]


def _list_model_contexts(
    domain: str, world: str, settings: OrchestrationSettings
) -> list[tuple[str, int]]:
    """List the methods of a world in which the decision model `orchestration.model` is called.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        domain: education or minigrid.
        world: paper, speed or varied.
        settings: The section `orchestration` of params.yaml.

    Returns:
        For each method its system (KO, TO or RO) and the number of steps between two decisions.
    """
    systems = [*SYSTEMS, "RO"]  # and RO with one copy
    if world == "paper":
        systems += SYSTEMS  # without short-term memory
    if world != "varied" and domain == "education":
        systems += ["RO"] * len(settings.lookahead_depths)
    contexts = [(system, 1) for system in systems]
    if world == "varied":
        for system in ("KO", "RO"):
            contexts += [(system, interval) for interval in settings.decision_intervals]
    return contexts


def _count_calls(
    system: str, horizon: int, settings: OrchestrationSettings, interval: int = 1
) -> int:
    """Count the most calls of a chat model that one episode can need.

    That is an episode of full length, in which every policy is tried in a call of its own and every reply is corrected.

    Args:
        system: KO (tries no policies), TO or RO.
        horizon: Steps of an episode at the most.
        settings: The section `orchestration` of params.yaml.
        interval: Steps between decisions.

    Returns:
        Number of calls.
    """
    num_tried_policies = 0
    if system != "KO":
        num_tried_policies = min(settings.max_calls, len(SINGLE))
    num_decisions = math.ceil(horizon / interval)
    calls = num_decisions * (num_tried_policies + 1) * ATTEMPTS
    if settings.summary_interval:
        calls += horizon // settings.summary_interval
    return calls


def _plan_tokens(params: Params, model: str, calls: int) -> PlannedCalls:
    """The tokens of a number of calls, at most."""
    max_tokens = params.llm.models[model].max_tokens
    # A reply that is sent back is part of the next prompt.
    tokens_in = calls * PROMPT_TOKENS + calls // 2 * max_tokens
    return PlannedCalls(model, calls, tokens_in, calls * max_tokens)
