"""What is trained, from the same start on the same assignments: three rewards, and one change of the filters.

paper      GRPO on M_norm . P, the reward of ToolOrchestra
published  the same with the sign error of the released code
lenient    the paper's reward; malformed and unanswered rollouts are learned from, instead of left out
corl       PPO on CoRL's reward: correct, and within a budget that is the same for all

Letters of shapes: n episodes, k = tools + 3 entries of an outcome vector.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from lib.rl import budget_reward
from lib.rl.controller_training import UpdateData
from lib.rl.expert_pool import ExpertReply
from lib.rl.token_batch import Sample
from lib.rl.transcript import split_by_writer
from lib.tool_orchestration import rewards, test_sets, tool_environment
from lib.tool_orchestration.rewards import FilteredRollouts
from lib.tool_orchestration.tool_environment import OwnTokenPrice, ToolEpisode

VERSION = 1  # of what a variant rewards and learns from
Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class ToolVariant:
    """One kind of training.

    Attributes:
        name: In settings and folders.
        label: In tables.
        reward: paper, published or corl.
        strict: Whether malformed and unanswered rollouts are left out.
        changes: To the trainer's settings.
        spread: Of prices in training, where it is not tools.spread.
        exams: Test sets.
    """

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
LIST_PRICES = ToolVariant(
    "listed", "list prices only", "paper", spread=1.0, exams=(*test_sets.MAIN, "unseen_prices")
)
NORMALIZATIONS: dict[str, rewards.NormalizeInTraining] = {
    "paper": rewards.normalize_within_groups,
    "published": rewards.normalize_with_sign_error,
}


def make_vectors(
    episodes: Sequence[ToolEpisode], tools: Sequence[str], own: OwnTokenPrice
) -> tuple[np.ndarray, np.ndarray]:
    """Makes the outcome vectors and the preference vectors of episodes.

    Args:
        episodes: n of them.
        tools: Names in the order of the vectors.
        own: What the orchestrator's own tokens cost.

    Returns:
        M and P, (n, k) each.
    """
    calls = []
    for episode in episodes:
        calls.append([_count_calls(episode, name) for name in tools])
    vectors = rewards.make_outcome_vectors(
        np.array(calls, dtype=float),
        np.array([episode.correct for episode in episodes]),
        np.array([tool_environment.compute_total_cost(episode, own) for episode in episodes]),
        np.array([episode.seconds for episode in episodes]),
    )
    preferences = [episode.assignment.preference.vector(tools) for episode in episodes]
    return vectors, np.array(preferences)


def _count_calls(episode: ToolEpisode, name: str) -> int:
    """Calls of a tool; an office's own functions are none, though one may have the name of a tool."""
    if name in episode.assignment.menu.office:
        return 0
    return episode.counts.get(name, 0)


def compute_rewards(
    variant: ToolVariant,
    episodes: Sequence[ToolEpisode],
    groups: Sequence[int],
    tools: Sequence[str],
    own: OwnTokenPrice,
    budget: float,
) -> np.ndarray:
    """Computes the reward of every episode.

    Args:
        variant: Whose reward.
        episodes: n of them.
        groups: (n,) the example of each.
        tools: Names in the order of the vectors.
        own: What the orchestrator's own tokens cost.
        budget: In dollars, for CoRL's reward.

    Returns:
        (n,) rewards.
    """
    vectors, preferences = make_vectors(episodes, tools, own)
    correct = vectors[:, rewards.OUTCOME_INDEX]
    if variant.reward == "corl":
        cost_usd = -vectors[:, rewards.COST_INDEX]
        pairs = zip(correct.tolist(), cost_usd.tolist(), strict=True)
        return np.array(
            [budget_reward.compute_budget_reward(value, cost, budget) for value, cost in pairs]
        )
    normalized = NORMALIZATIONS[variant.reward](vectors, groups)
    return rewards.compute_preference_rewards(normalized, preferences, correct)


def select_samples(
    variant: ToolVariant,
    episodes: Sequence[ToolEpisode],
    groups: Sequence[int],
    episode_rewards: np.ndarray,
    min_std: float,
) -> tuple[list[Sample], FilteredRollouts]:
    """Selects what a training learns from: under CoRL's reward everything, otherwise what the filters leave.

    Args:
        variant: Whether it leaves out malformed and unanswered rollouts.
        episodes: n of them.
        groups: (n,) the example of each.
        episode_rewards: (n,).
        min_std: Groups whose rewards deviate less are left out.

    Returns:
        Samples for the trainer, and what the filters left out.
    """
    is_malformed = np.array([episode.num_malformed > 0 for episode in episodes])
    is_answered = np.array(
        [episode.answer is not None or episode.has_marked_answer for episode in episodes]
    )
    if not variant.strict:
        is_malformed = np.zeros(len(episodes), bool)
        is_answered = np.ones(len(episodes), bool)
    filtered = rewards.filter_rollouts(episode_rewards, groups, is_malformed, is_answered, min_std)

    rows = filtered.rows.tolist()
    if variant.reward == "corl":
        rows = list(range(len(episodes)))
    samples = []
    for row in rows:
        episode = episodes[row]
        # Where no turn had room the orchestrator wrote nothing.
        if any(episode.mask):
            reward = float(episode_rewards[row])
            samples.append(Sample(episode.ids, episode.mask, reward, int(groups[row])))
    return samples, filtered


def make_update_data(
    variant: ToolVariant,
    episodes: Sequence[ToolEpisode],
    groups: np.ndarray,
    tools: Sequence[str],
    own: OwnTokenPrice,
    budget: float,
    least_deviation: float,
    step: int,
) -> UpdateData:
    """Rewards of one update, and the episodes that are learned from.

    What the infrastructure lost has no part in either.

    Args:
        variant: How episodes are rewarded and filtered.
        episodes: Of the update.
        groups: (n,) the example of each episode.
        tools: Names in the order of the vectors M and P.
        own: What the orchestrator's own tokens cost and take.
        budget: In dollars, for CoRL's reward.
        least_deviation: Groups whose rewards deviate less are left out.
        step: Number of the update.

    Returns:
        Samples, a row per episode, and what the filters left out.
    """
    scored = np.flatnonzero([not math.isnan(episode.correct) for episode in episodes])
    scored_episodes = [episodes[index] for index in scored]
    episode_rewards = np.full(len(episodes), np.nan)
    samples: list[Sample] = []
    counts = {"kept": 0, "malformed": 0, "unanswered": 0, "agreeing": 0}
    if len(scored):
        episode_rewards[scored] = compute_rewards(
            variant, scored_episodes, groups[scored], tools, own, budget
        )
        samples, filtered = select_samples(
            variant, scored_episodes, groups[scored], episode_rewards[scored], least_deviation
        )
        counts = {
            "kept": len(samples),
            "malformed": filtered.malformed,
            "unanswered": filtered.unanswered,
            "agreeing": filtered.agreeing,
        }
    rollouts = make_episode_rows(episodes, tools, own)
    rollouts = rollouts.assign(step=step, rollout_group=groups, reward=episode_rewards)
    return UpdateData(samples, rollouts, counts)


def make_episode_rows(
    episodes: Sequence[ToolEpisode],
    tools: Sequence[str],
    own: OwnTokenPrice,
    decode: Decode | None = None,
) -> pd.DataFrame:
    """One row per episode.

    Args:
        episodes: What was rolled out.
        tools: Names in the order of the vectors M and P.
        own: What the orchestrator's own tokens cost and take.
        decode: Token ids to text; with it the rows have the column spoken (`transcript.split_by_writer`).

    Returns:
        Columns item (number), group (kind of task), difficulty; correct (nan where nothing may be scored); cost_usd and
        seconds, the orchestrator's own included; own_cost_usd (of its own tokens); calls, malformed, answered; failures
        (replies that the infrastructure lost), failed (whether there are any), truncated (replies that reached the
        model's own limit), shortened (replies of which the orchestrator read a part); chosen (tools in order, separated
        by blanks); m and p (the vectors M and P); offered (names of the tools on the menu), liked, good (at this, by
        their cards); confidential; first (the tool that was called first); execution, fidelity and completeness (the
        criteria of office tasks).
    """
    vectors, preferences = make_vectors(episodes, tools, own)
    out = []
    for index, episode in enumerate(episodes):
        assignment = episode.assignment
        preference = assignment.preference
        row = {
            "item": index,
            "group": assignment.kind,
            "difficulty": assignment.difficulty,
            "correct": episode.correct,
            "cost_usd": -vectors[index, rewards.COST_INDEX],
            "seconds": episode.seconds,
            "own_cost_usd": len(episode.ids) * own.cost_usd,
            "calls": len(episode.called_experts),
            "chosen": " ".join(episode.called_experts),
            "malformed": episode.num_malformed,
            "failures": sum(reply.lost for reply in episode.replies) + episode.lost_own_reply,
            "failed": episode.failed,
            "truncated": episode.num_truncated,
            "unusable": sum(_is_unusable(reply) for reply in episode.replies),
            "shortened": episode.num_shortened,
            "answered": float(episode.answer is not None or episode.has_marked_answer),
            "offered": " ".join(assignment.menu.names),
            "m": vectors[index].tolist(),
            "p": preferences[index].tolist(),
            "p_cost": preference.cost,
            "p_latency": preference.latency,
            "p_accuracy": preference.accuracy,
            "liked": " ".join(preference.tools),
            "confidential": preference.confidential,
            "first": episode.first,
            "good": " ".join(offer.name for offer in assignment.capable),
        }
        if episode.verdict is not None:
            row |= {name: float(value) for name, value in asdict(episode.verdict).items()}
        if decode:
            row["spoken"] = json.dumps(split_by_writer(episode, decode))
        out.append(row)
    return pd.DataFrame(out)


def _is_unusable(reply: ExpertReply) -> bool:
    return reply.failure is not None and not reply.truncated and not reply.lost
