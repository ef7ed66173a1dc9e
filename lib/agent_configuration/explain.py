"""Why a policy chose what it chose: every part of a decision with its probability, and the runner-up with its own."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import AGENTS, TIERS, WORKFLOWS
from lib.agent_configuration.policies import Parts
from lib.agent_configuration.training import ConfigurationPolicy

STOP = "no more"


@dataclass(frozen=True)
class Reason:
    """One part of a decision. runner: the second likeliest choice, empty where there was no other."""

    part: str
    chosen: str
    probability: float
    runner: str
    second: float


def reasons(policy: ConfigurationPolicy, state: torch.Tensor) -> list[Reason]:
    """The parts of the likeliest decision for one state, (1, inputs), in the order in which they were made."""
    with torch.no_grad():
        return [*_structure(policy.structure, state), *_prompt(policy, state)]


def _structure(parts: Parts, state: torch.Tensor) -> Iterator[Reason]:
    drawn = parts.draw(state, None).actions
    hidden = parts.trunk(state)
    for i, name in enumerate(action_space.DIMENSIONS):
        chances = parts.logits(hidden, i, drawn[:, :i]).softmax(-1)[0]
        yield _reason(name, chances, lambda value, name=name: told(name, value))


def _prompt(policy: ConfigurationPolicy, state: torch.Tensor) -> Iterator[Reason]:
    if policy.prompt is None:
        return
    structure = policy.structure.draw(state, None).actions
    _, steps = policy.prompt.draw(state, structure, None)
    names = [atom.name for atom in policy.atoms]
    for row in range(len(steps.actions)):
        chances = policy.prompt.logits(
            steps.states[row : row + 1], steps.allowed[row : row + 1]
        ).softmax(-1)[0]
        agent = _agent(policy, steps.states[row])
        yield _reason(
            f"prompt of the {agent}",
            chances,
            lambda value: STOP if value == len(names) else names[value],
        )


def _agent(policy: ConfigurationPolicy, state: torch.Tensor) -> str:
    """Whose prompt a decision is about, from the state that it was made in."""
    start = policy.inputs + sum(action_space.SIZES)
    return AGENTS[int(state[start : start + len(AGENTS)].argmax())]


def _reason(part: str, chances: torch.Tensor, word) -> Reason:
    likely = chances.topk(min(2, len(chances)))
    (first, *other), (best, *rest) = likely.indices.tolist(), likely.values.tolist()
    runner = word(other[0]) if other and rest[0] > 0 else ""
    return Reason(part, word(first), best, runner, rest[0] if runner else 0.0)


def told(dimension: str, value: int) -> str:
    """A choice in words."""
    if dimension == "workflow":
        return WORKFLOWS[value]
    return (
        ", ".join(action_space.subset(value)) or "none"
        if dimension.startswith("tools")
        else TIERS[value]
    )
