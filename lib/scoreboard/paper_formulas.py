"""The few functions that a claim may call: formulas of the papers, computed by the rooms that hold them.

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
from lib.scoreboard import result_queries
from lib.stats import Interval
from lib.tool_orchestration import rewards

BANK = ROOT / "data/bank/mathe_items.csv"  # the bank that ships with the project


def hypervolume(points: Sequence[Sequence[float]], reference: float) -> float:
    """Hypervolume of points (n, k) above the reference (reference, reference, ...)."""
    points = np.asarray(points, dtype=float)
    return stats.hypervolume(points, np.full(points.shape[-1], float(reference)))


def sparsity(points: Sequence[Sequence[float]]) -> float:
    """Sparsity of the front of points (n, k)."""
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
    """Questions in the bank that ships with the project."""
    return float(len(load_bank(BANK)))


def bank_topics() -> float:
    """Topics in it that have a question."""
    return float((load_bank(BANK).counts().reindex(list(TOPICS)).sum(axis=1) > 0).sum())


def cost_entry(before: float, after: float, per_dollar: float) -> float:
    """What a checkpoint that spends `after` dollars gets for cost where its start spent `before` (ToolOrchestra's
    evaluation). per_dollar: units in a dollar; -1 enters cost as the paper defines it, as -dollars."""
    none, one = np.zeros((1, 1)), np.ones(1)
    checkpoint, start = (
        rewards.vectors(none, one, np.array([spent]), one) for spent in (after, before)
    )
    only_cost = np.array([[0.0, 0.0, 1.0, 0.0]])
    return float(rewards.score(checkpoint, start, only_cost, (per_dollar, 1.0))[0])


def training_entry(cost_usd: Sequence[float], which: float) -> float:
    """The normalised cost entry of right rollout number `which` of a group that spent `dollars` (ToolOrchestra's
    training reward)."""
    spent = np.asarray(cost_usd, dtype=float)
    m = rewards.vectors(np.zeros((len(spent), 1)), np.ones(len(spent)), spent, np.ones(len(spent)))
    return float(rewards.normalised(m, [0] * len(spent))[int(which), 2])


def right_answer(ability: float, difficulty: float, discrimination: float) -> float:
    """Probability of a right answer in the student simulator (policy orchestration, A.4)."""
    return float(answer_probability(np.float64(ability), np.float64(difficulty), discrimination))


FUNCTIONS: Mapping[str, Callable[..., float | Interval]] = {
    **result_queries.FUNCTIONS,
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
