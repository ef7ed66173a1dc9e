"""What TO and RO get when they try policies: results of look-aheads, in numbers and in words."""

from collections.abc import Mapping, Sequence

import numpy as np

from lib.orchestration.contexts import ToolResult, round_results
from lib.orchestration.domain_descriptions import Describer
from lib.orchestration.look_ahead import LookAhead


def make_tool_results(
    look_ahead: LookAhead,
    describer: Describer,
    state_features: Mapping[str, np.ndarray],
    policies: Sequence[str],
) -> list[dict[str, ToolResult]]:
    """Collect what trying each policy on copies gave in each episode, as the contexts of TO and RO hold it.

    TO tries each policy for one step, RO for several, before they decide.

    Args:
        look_ahead: What the copies did, one plan for each policy; described in words where measurements were kept.
        describer: Puts the rollouts of the domain into words.
        state_features: The states that the copies start from, in numbers, (episodes,) by name.
        policies: Names, in the order of the plans.

    Returns:
        By episode, a result for each policy name.
    """
    num_steps, num_episodes, _, num_copies = look_ahead.alive.shape
    results_by_policy: list[dict[str, ToolResult]] = []
    for position in range(num_episodes):
        results_by_policy.append({})
        for index, name in enumerate(policies):
            actions: tuple[str, ...] = ()
            details = ""
            change = ""
            if look_ahead.measurements:
                actions = _name_actions(look_ahead, describer, position, index)
                details, change = _describe_rollout(
                    look_ahead, describer, state_features, position, index
                )
            results_by_policy[position][name] = ToolResult(
                policy=name,
                num_steps=num_steps,
                num_copies=num_copies,
                results=round_results(look_ahead.results[position, index]),
                actions=actions,
                details=details,
                change=change,
            )
    return results_by_policy


def _name_actions(
    look_ahead: LookAhead, describer: Describer, position: int, index: int
) -> tuple[str, ...]:
    """Names of the actions that a policy took on the first copy of an episode, in order."""
    action_names = list(describer.domain.actions)
    codes = look_ahead.actions[:, position, index]  # (steps,), -1 after the end
    return tuple(action_names[code] for code in codes if code >= 0)


def _describe_rollout(
    look_ahead: LookAhead,
    describer: Describer,
    state_features: Mapping[str, np.ndarray],
    position: int,
    index: int,
) -> tuple[str, str]:
    """Describe in words what one policy did on copies of one episode.

    Args:
        look_ahead: What the copies of all episodes did.
        describer: Puts the rollouts of the domain into words.
        state_features: The states that the copies start from, in numbers, (episodes,) by name.
        position: Which episode.
        index: Which policy.

    Returns:
        Details for a prompt, and the change of the state.
    """
    features_before = {name: values[position] for name, values in state_features.items()}
    measurements = []
    for after_step in look_ahead.measurements:
        measurements.append({name: values[position, index] for name, values in after_step.items()})
    # Where all copies of all episodes have ended early, there are fewer measurements than steps.
    alive = look_ahead.alive[: len(measurements), position, index]  # (steps, copies)
    return describer.describe_rollout(features_before, measurements, alive)
