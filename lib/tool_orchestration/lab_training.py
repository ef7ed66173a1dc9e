"""One update's episodes of the lab world: groups of rollouts, drawn again where all of a group agree.

A group is one question with one menu and one user, rolled out several times. Where all of its episodes have the same
reward, nothing can be learned from it; another question is drawn in its place, up to a limit. So an update learns from
as many groups as it is meant to, and how many had to be drawn is what tells how much signal there is.

Left out: the update of the weights, which is `lib.rl.token_ppo`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib import tasks
from lib.experiment import seeds
from lib.rl.generators import Generator
from lib.rl.token_batch import Sample
from lib.tool_orchestration import rewards
from lib.tool_orchestration.lab_episodes import (
    LabEpisode,
    LabMenuEnvironment,
    roll_out_assignments,
)
from lib.tool_orchestration.lab_menus import (
    ACCURACY_ONLY,
    QUESTIONS,
    LabAssignment,
    LabTool,
    draw_assignment,
    draw_user,
    set_list_prices,
)

VERSION = 1  # of the groups of an update in the lab world
MAX_DRAWS = 3  # rounds in which groups that agree are replaced


@dataclass(frozen=True)
class LabVariant:
    """One kind of training in the lab world.

    Attributes:
        name: Identifier in settings and folders.
        label: Name in tables and figures.
        normalize: How outcome vectors are normalized within a group.
        pays_preferences: Whether the reward weighs outcomes by the user's preferences; otherwise a correct answer alone
            is rewarded.
            What an orchestrator reads is the same.
        leaves_out_failures: Whether malformed and unanswered episodes are left out, as in the paper. Otherwise they are
            learned from, with a reward of 0: what is left out is punished by nobody, and these small models then forget
            how to copy a name (decision).
        varies_prices: Whether prices and latencies are drawn for every menu, as in the paper. Otherwise the cheaper of
            two tools in training is always the same one.
    """

    name: str
    label: str
    normalize: rewards.NormalizeInTraining = rewards.normalize_within_groups
    pays_preferences: bool = True
    leaves_out_failures: bool = False
    varies_prices: bool = True


PREFERENCES = LabVariant("preferences", "ToolOrchestra")
NO_PREFERENCES = LabVariant("no preferences", "no preferences", pays_preferences=False)
SIGN_ERROR = LabVariant("sign error", "sign error", rewards.normalize_with_sign_error)
FAILURES_LEFT_OUT = LabVariant("failures left out", "failures left out", leaves_out_failures=True)
LIST_PRICES = LabVariant("list prices", "list prices only", varies_prices=False)
LAB_VARIANTS = (PREFERENCES, NO_PREFERENCES, SIGN_ERROR)
ALL_LAB_VARIANTS = (*LAB_VARIANTS, FAILURES_LEFT_OUT, LIST_PRICES)


@dataclass(frozen=True)
class GroupedEpisodes:
    """The episodes of one update.

    Attributes:
        episodes: All that were rolled out, also those of groups whose rewards agree.
        rewards: (episodes,) reward of each.
        groups: (episodes,) number of the group of each; a group is the rollouts of one question.
        learned_rows: Indices of the episodes that are learned from.
        num_groups: Number of groups that were drawn.
        num_differing: Number of groups whose rewards differ enough to learn from.
    """

    episodes: list[LabEpisode]
    rewards: np.ndarray
    groups: np.ndarray
    learned_rows: np.ndarray
    num_groups: int
    num_differing: int

    def make_samples(self) -> list[Sample]:
        """Make the trainer's samples (tokens, loss mask, reward, group) of the episodes that are learned from.

        Returns:
            A sample for each episode.
        """
        return [
            Sample(
                self.episodes[row].ids,
                self.episodes[row].mask,
                float(self.rewards[row]),
                int(self.groups[row]),
            )
            for row in self.learned_rows
        ]


def draw_assignments(
    num_assignments: int, split: str, tools: Sequence[LabTool], stream: str, seed: int
) -> list[LabAssignment]:
    """Draw questions of all kinds in equal numbers, each with a menu and a user.

    Args:
        num_assignments: How many.
        split: "train", "dev" or "test".
        tools: Tools that may be on menus.
        stream: Name of the random stream.
        seed: Seed of questions, menus and users.

    Returns:
        The assignments, kind after kind.
    """
    items = tasks.draw_evenly(QUESTIONS, split, num_assignments, seed=seed)
    rng = seeds.rng("toolorchestra", "lab menus", stream, seed=seed)
    return [draw_assignment(item, tools, draw_user(rng), rng) for item in items]


def compute_episode_rewards(
    episodes: Sequence[LabEpisode], groups: np.ndarray, variant: LabVariant = PREFERENCES
) -> np.ndarray:
    """Compute the reward of every episode: its outcome vector, normalized within its group and weighed by its user.

    Cost and latency include those of the orchestrator's own tokens. Outcome vectors have no entries for calls of tools,
    since tools have other names on every menu, so that no user can prefer one by name.

    Args:
        episodes: n episodes that have ended and are scored.
        groups: (n,) number of the group of each episode; a group is the rollouts of one question.
        variant: The kind of training: how outcomes are normalized, and whether the user's preferences count or the
            correct answer alone.

    Returns:
        (n,) rewards; nan where the infrastructure lost a reply.
    """
    correct = np.array([episode.correct for episode in episodes])
    no_calls = np.zeros((len(episodes), 0))
    vectors = rewards.make_outcome_vectors(
        no_calls,
        correct,
        cost_usd=np.array([episode.total_cost_usd for episode in episodes]),
        seconds=np.array([episode.total_seconds for episode in episodes]),
    )  # (n, 3)
    users = [episode.assignment.user for episode in episodes]
    if not variant.pays_preferences:
        users = [ACCURACY_ONLY] * len(episodes)
    preferences = np.array([user.vector(()) for user in users])  # (n, 3)

    # Episodes that lost a reply are in no group's minimum and maximum.
    is_scored = ~np.isnan(correct)
    episode_rewards = np.full(len(episodes), math.nan)
    if is_scored.any():
        normalized = variant.normalize(vectors[is_scored], groups[is_scored])
        episode_rewards[is_scored] = rewards.compute_preference_rewards(
            normalized, preferences[is_scored], correct[is_scored]
        )
    return episode_rewards


def collect_groups(
    generator: Generator,
    environment: LabMenuEnvironment,
    tools: Sequence[LabTool],
    num_groups: int,
    num_rollouts: int,
    seed: int,
    temperature: float = 1.0,
    max_draws: int = MAX_DRAWS,
    variant: LabVariant = PREFERENCES,
) -> GroupedEpisodes:
    """Roll out groups of episodes until enough of them have rewards that differ.

    A group is one question with one menu and one user, rolled out several times. A group whose rewards agree carries no
    signal, so another one is drawn in its place, in at most `max_draws` rounds.

    Args:
        generator: Samples the orchestrator's turns.
        environment: Answers calls to tools.
        tools: Tools that may be on menus.
        num_groups: Number of groups with differing rewards to collect.
        num_rollouts: Number of episodes in each group.
        seed: Seed of all random draws of this update.
        temperature: Sampling temperature of the orchestrator.
        max_draws: Largest number of rounds of drawing; with 1, groups that agree are not replaced.
        variant: The kind of training: its reward, its filters, and whether prices vary.

    Returns:
        All episodes with their rewards and groups, and which of them are learned from. There may be fewer groups with
        differing rewards than `num_groups`.
    """
    episodes: list[LabEpisode] = []
    rewards_by_round: list[np.ndarray] = []
    groups_by_round: list[np.ndarray] = []
    learned_rows_by_round: list[np.ndarray] = []
    num_drawn = 0
    num_differing = 0
    for draw_round in range(max_draws):
        # As many new groups as are still missing; their numbers continue those of earlier rounds.
        num_missing = num_groups - num_differing
        groups = num_drawn + np.repeat(np.arange(num_missing), num_rollouts)  # (new episodes,)
        num_drawn += num_missing

        # Each question is rolled out several times, and rewarded within its group.
        round_seed = seed * max_draws + draw_round
        assignments = draw_assignments(num_missing, "train", tools, "training", round_seed)
        if not variant.varies_prices:
            assignments = [set_list_prices(assignment, tools) for assignment in assignments]
        repeated = [assignment for assignment in assignments for _ in range(num_rollouts)]
        new_episodes = roll_out_assignments(
            generator, environment, repeated, round_seed, temperature
        )
        new_rewards = compute_episode_rewards(new_episodes, groups, variant)

        # A group counts if the filters leave any of its episodes.
        learned_rows = _filter_episodes(new_episodes, new_rewards, groups, variant)
        num_differing += len(np.unique(groups[learned_rows]))

        # Rows count from the first episode of the first round.
        learned_rows_by_round.append(len(episodes) + learned_rows)
        episodes += new_episodes
        rewards_by_round.append(new_rewards)
        groups_by_round.append(groups)
        if num_differing >= num_groups:
            break
    return GroupedEpisodes(
        episodes=episodes,
        rewards=np.concatenate(rewards_by_round),
        groups=np.concatenate(groups_by_round),
        learned_rows=np.concatenate(learned_rows_by_round),
        num_groups=num_drawn,
        num_differing=num_differing,
    )


def _filter_episodes(
    episodes: Sequence[LabEpisode],
    episode_rewards: np.ndarray,
    groups: np.ndarray,
    variant: LabVariant,
) -> np.ndarray:
    """Find the episodes that a training learns from.

    Left out are groups whose rewards agree, episodes of which the infrastructure lost a reply, and, if the variant says
    so, episodes with a malformed call or without an answer.

    Args:
        episodes: n episodes.
        episode_rewards: (n,) rewards; nan where a reply was lost.
        groups: (n,) number of the group of each episode.
        variant: The kind of training.

    Returns:
        Indices of the episodes that remain.
    """
    is_lost = np.array([episode.failed for episode in episodes])
    is_answered = np.array([episode.answer is not None for episode in episodes])
    is_malformed = np.array([episode.num_malformed > 0 for episode in episodes])
    if not variant.leaves_out_failures:
        is_answered = np.ones_like(is_answered)
        is_malformed = np.zeros_like(is_malformed)
    filtered = rewards.filter_rollouts(
        np.nan_to_num(episode_rewards), groups, is_malformed, is_answered & ~is_lost
    )
    return filtered.rows
