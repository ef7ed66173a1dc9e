"""The few functions that a claim may call: formulas of the papers, computed by the packages that implement them.

Nothing else can be called from the file of claims, and no number of ours is typed in there. All of them take
plain numbers, names and lists, and return a number.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lib import stats
from lib.agent_configuration import action_space
from lib.config import ROOT
from lib.envs.education import answer_probability
from lib.envs.question_bank import TOPICS, load_bank
from lib.llm import cost_ledger
from lib.tool_orchestration import rewards

QUESTION_BANK_FILE = ROOT / "data/bank/mathe_items.csv"  # ships with the project


def hypervolume(points: Sequence[Sequence[float]], reference: float) -> float:
    """Hypervolume of a front.

    Args:
        points: (num_points, num_objectives).
        reference: The reference point has this value in every objective.

    Returns:
        The volume above the reference point that the front dominates.
    """
    front = np.asarray(points, dtype=float)
    num_objectives = front.shape[-1]
    return stats.hypervolume(front, np.full(num_objectives, float(reference)))


def sparsity(points: Sequence[Sequence[float]]) -> float:
    """Sparsity of the front of points (num_points, num_objectives)."""
    return stats.sparsity(np.asarray(points, dtype=float))


def llm_dollars(model: str, regime: str) -> float:
    """Dollars per run of a language model in a token regime S, M or L (policy orchestration, Table 10)."""
    tokens = cost_ledger.REGIMES[regime]
    return cost_ledger.llm_cost(
        cost_ledger.HORIZON, tokens.tokens_in, tokens.tokens_out, cost_ledger.PRICES[model]
    )


def llm_kg(regime: str) -> float:
    """Kilograms of CO2e per run in a token regime (policy orchestration, Table 10)."""
    tokens = cost_ledger.REGIMES[regime]
    return cost_ledger.llm_co2e(cost_ledger.HORIZON, tokens.tokens_in, tokens.tokens_out)


def bank_items() -> float:
    """Number of questions in the bank that ships with the project."""
    return float(len(load_bank(QUESTION_BANK_FILE)))


def bank_topics() -> float:
    """Number of topics of the bank that have a question."""
    counts = load_bank(QUESTION_BANK_FILE).count_questions()  # (topics, levels)
    questions_by_topic = counts.reindex(list(TOPICS)).sum(axis=1)
    return float((questions_by_topic > 0).sum())


def cost_entry(before: float, after: float, per_dollar: float) -> float:
    """Computes the cost entry of a checkpoint's score in ToolOrchestra's evaluation.

    Args:
        before: Dollars that the policy spent before training.
        after: Dollars that the checkpoint spends.
        per_dollar: Units of cost in a dollar; -1 enters cost as the paper defines it, as -dollars.

    Returns:
        The score of a preference for cost alone.
    """
    # One rollout each, which calls no tool, is correct and takes a second.
    no_calls = np.zeros((1, 1))  # (rollouts, tools)
    ones = np.ones(1)  # (rollouts,)
    after_usd = np.array([after])
    before_usd = np.array([before])
    checkpoint = rewards.make_outcome_vectors(
        no_calls, ones, after_usd, ones
    )  # (rollouts, entries)
    untrained = rewards.make_outcome_vectors(no_calls, ones, before_usd, ones)
    # Entries are calls, correct, cost, seconds.
    only_cost = np.array([[0.0, 0.0, 1.0, 0.0]])
    units = (per_dollar, 1.0)
    scores = rewards.compute_preference_scores(checkpoint, untrained, only_cost, units)
    return float(scores[0])


def training_entry(cost_usd: Sequence[float], which: float) -> float:
    """Computes the cost entry of a rollout's reward in ToolOrchestra's training.

    Args:
        cost_usd: (rollouts,) dollars of the correct rollouts of one group.
        which: Index of the rollout.

    Returns:
        Its cost entry, normalised in the group.
    """
    costs = np.asarray(cost_usd, dtype=float)
    num_rollouts = len(costs)
    no_calls = np.zeros((num_rollouts, 1))  # (rollouts, tools)
    ones = np.ones(num_rollouts)
    vectors = rewards.make_outcome_vectors(no_calls, ones, costs, ones)  # (rollouts, entries)
    group_of_rollout = [0] * num_rollouts
    cost_column = 2
    return float(
        rewards.normalize_within_groups(vectors, group_of_rollout)[int(which), cost_column]
    )


def right_answer(ability: float, difficulty: float, discrimination: float) -> float:
    """Probability of a correct answer in the student simulator (policy orchestration, A.4)."""
    return float(answer_probability(np.float64(ability), np.float64(difficulty), discrimination))


FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "hypervolume": hypervolume,
    "sparsity": sparsity,
    "llm_dollars": llm_dollars,
    "llm_kg": llm_kg,
    "rl_dollars": cost_ledger.rl_cost,
    "rl_kg": cost_ledger.rl_co2e,
    "bank_items": bank_items,
    "bank_topics": bank_topics,
    "right_answer": right_answer,
    "structures": lambda: float(action_space.total()),
    "valid_structures": lambda: float(action_space.valid()),
    "cost_entry": cost_entry,
    "training_entry": training_entry,
}
