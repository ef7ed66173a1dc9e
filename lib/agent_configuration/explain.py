"""Why a policy chose what it chose: every choice of a decision with its probability, and the runner-up with its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import AGENTS, TIERS, WORKFLOWS
from lib.agent_configuration.policies import MultiDiscretePolicy
from lib.agent_configuration.training import ConfigurationPolicy

STOP = "no more"


@dataclass(frozen=True)
class Reason:
    """One choice of a decision.

    Attributes:
        question: What was chosen, such as "workflow" or "prompt of the verifier".
        choice: The likeliest choice in words.
        probability: Probability of the choice.
        runner_up: The second likeliest choice, "" where there was no other.
        runner_up_probability: Probability of the runner-up, 0 where there was none.
    """

    question: str
    choice: str
    probability: float
    runner_up: str
    runner_up_probability: float


@torch.no_grad()
def list_reasons(policy: ConfigurationPolicy, state: torch.Tensor) -> list[Reason]:
    """List the choices of the likeliest decision, in the order in which they were made.

    Args:
        policy: The policy that decides.
        state: (1, inputs) of one question.

    Returns:
        The dimensions of the structure, then the atoms of each agent.
    """
    return _explain_structure(policy.structure, state) + _explain_prompts(policy, state)


def _explain_structure(policy: MultiDiscretePolicy, state: torch.Tensor) -> list[Reason]:
    """Explain the likeliest structure: each dimension, given the choices before it.

    Args:
        policy: The structure policy.
        state: (1, inputs) of the question.

    Returns:
        Choice, runner-up and their probabilities for each dimension.
    """
    actions = policy.sample(state, None).actions
    hidden = policy.trunk(state)
    reasons = []
    for number, (dimension, size) in enumerate(action_space.DIMENSIONS.items()):
        logits = policy.compute_logits(hidden, number, actions[:, :number])
        names = [describe_choice(dimension, value) for value in range(size)]
        reasons.append(_make_reason(dimension, logits[0], names))
    return reasons


def _explain_prompts(policy: ConfigurationPolicy, state: torch.Tensor) -> list[Reason]:
    """Explain which instructions (atoms) each agent gets, one decision after the other up to STOP.

    Args:
        policy: Policies of structure and prompts.
        state: (1, inputs) of the question.

    Returns:
        Choice, runner-up and their probabilities for each decision; none for a policy that chooses all at once.
    """
    if policy.prompt is None:
        return []
    structure = policy.structure.sample(state, None).actions
    steps = policy.prompt.sample(state, structure, None).steps
    logits = policy.prompt.compute_logits(steps.states, steps.is_allowed)  # (m, atoms + 1)
    names = [*(atom.name for atom in policy.atoms), STOP]
    reasons = []
    for step_state, step_logits in zip(steps.states, logits, strict=True):
        agent = _read_agent(policy, step_state)
        reasons.append(_make_reason(f"prompt of the {agent}", step_logits, names))
    return reasons


def _read_agent(policy: ConfigurationPolicy, step_state: torch.Tensor) -> str:
    """Read the agent that a prompt decision is about from its state (see `PromptPolicy.make_states`)."""
    first = policy.num_inputs + sum(action_space.SIZES)
    agent_one_hot = step_state[first : first + len(AGENTS)]
    return AGENTS[int(agent_one_hot.argmax())]


def _make_reason(question: str, logits: torch.Tensor, names: Sequence[str]) -> Reason:
    """Compute the likeliest choice and the runner-up from logits.

    Args:
        question: What is chosen.
        logits: (choices,).
        names: Names of the choices.

    Returns:
        Both choices with their probabilities.
    """
    likeliest = logits.softmax(-1).topk(min(2, len(logits)))
    choices = [names[number] for number in likeliest.indices.tolist()]
    probabilities = likeliest.values.tolist()
    has_runner_up = len(choices) > 1 and probabilities[1] > 0
    return Reason(
        question=question,
        choice=choices[0],
        probability=probabilities[0],
        runner_up=choices[1] if has_runner_up else "",
        runner_up_probability=probabilities[1] if has_runner_up else 0.0,
    )


def describe_choice(dimension: str, value: int) -> str:
    """Describe the choice of a dimension of the structure in words.

    Args:
        dimension: One of `action_space.DIMENSIONS`.
        value: Number of the choice.

    Returns:
        The name of a workflow or a budget, or the names of tools.
    """
    if dimension == "workflow":
        return WORKFLOWS[value]
    if dimension.startswith("tools"):
        return ", ".join(action_space.list_tools(value)) or "none"
    return TIERS[value]
