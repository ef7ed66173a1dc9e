"""What is trained, from the same start on the same assignments: three ways to pay an episode, and one to filter.

paper      GRPO on M_norm . P, the reward of ToolOrchestra
published  the same with the sign error of an implementation in circulation
lenient    the paper's reward; malformed and unanswered rollouts are learned from, instead of left out
corl       PPO on CoRL's reward: right, and within a budget that is the same for all
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lib.rl import budget_reward as corl
from lib.rl.token_ppo import Sample
from lib.tool_orchestration import rewards, test_sets, tool_environment
from lib.tool_orchestration.rewards import Kept
from lib.tool_orchestration.tool_environment import Own, ToolEpisode

VERSION = 1  # of what a variant pays and learns from


@dataclass(frozen=True)
class ToolVariant:
    """One kind of training. reward: paper, published or corl; strict: whether malformed and unanswered rollouts are
    left out; changes: to the trainer's settings; spread: of prices in training, where it is not tools.spread; exams:
    what it is tested on."""

    name: str
    label: str
    reward: str
    strict: bool = True
    changes: Mapping[str, Any] = field(default_factory=dict)
    spread: float | None = None
    exams: tuple[str, ...] = test_sets.MAIN

    @property
    def decided_by(self) -> dict[str, Any]:
        """What a job is handed of it: its changes are in the trainer's settings, its label in tables."""
        return {
            "name": self.name,
            "reward": self.reward,
            "strict": self.strict,
            "spread": self.spread,
        }

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> "ToolVariant":
        """The variant of a job, which needs no label."""
        return cls(label="", **values)


VARIANTS = (
    ToolVariant("paper", "ToolOrchestra", "paper", exams=test_sets.ALL),
    ToolVariant("published", "sign error", "published"),
    ToolVariant("lenient", "failures kept", "paper", strict=False),
    ToolVariant("corl", "CoRL's reward", "corl", changes={"advantages": "gae"}),
)
NAMED = {variant.name: variant for variant in VARIANTS}
LISTED = ToolVariant(
    "listed", "list prices only", "paper", spread=1.0, exams=(*test_sets.MAIN, "unseen_prices")
)
NORMALISE: dict[str, rewards.Normalise] = {
    "paper": rewards.normalised,
    "published": rewards.published,
}


def matrix(
    episodes: Sequence[ToolEpisode], tools: Sequence[str], own: Own
) -> tuple[np.ndarray, np.ndarray]:
    """M and P of episodes, (n, tools + 3) each."""
    calls = np.array([[_count(e, name) for name in tools] for e in episodes], dtype=float)
    spent = np.array([tool_environment.cost_usd(e, own) for e in episodes])
    m = rewards.vectors(
        calls,
        np.array([e.correct for e in episodes]),
        spent,
        np.array([e.seconds for e in episodes]),
    )
    return m, np.array([e.assignment.preference.vector(tools) for e in episodes])


def _count(episode: ToolEpisode, name: str) -> int:
    """Calls of a tool; an office's own functions are none, though one may have the name of a tool."""
    return 0 if name in episode.assignment.menu.office else episode.counts.get(name, 0)


def paid(
    variant: ToolVariant,
    episodes: Sequence[ToolEpisode],
    groups: Sequence[int],
    tools: Sequence[str],
    own: Own,
    budget: float,
) -> np.ndarray:
    """What the variant pays each episode, (n,). budget: in dollars, for CoRL's reward."""
    m, wanted = matrix(episodes, tools, own)
    if variant.reward == "corl":
        return np.array([corl.reward(float(row[-3]), float(-row[-2]), budget) for row in m])
    return rewards.reward(NORMALISE[variant.reward](m, groups), wanted, m[:, -3])


def learned(
    variant: ToolVariant,
    episodes: Sequence[ToolEpisode],
    groups: Sequence[int],
    told: np.ndarray,
    least: float,
) -> tuple[list[Sample], Kept]:
    """What a training learns from: under CoRL's reward everything, otherwise what the three filters keep."""
    malformed = np.array([bool(e.malformed) for e in episodes])
    answered = np.array([e.answer is not None for e in episodes])
    spared = np.zeros(len(episodes), bool)
    left = rewards.kept(
        told, groups, *((malformed, answered) if variant.strict else (spared, ~spared)), least
    )
    rows = range(len(episodes)) if variant.reward == "corl" else left.rows.tolist()
    samples = [
        Sample(episodes[i].ids, episodes[i].mask, float(told[i]), int(groups[i]))
        for i in rows
        if any(episodes[i].mask)
    ]
    return samples, left
