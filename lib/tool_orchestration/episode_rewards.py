"""What episodes are rewarded, what a training learns from, and the table of episodes.

The reward is ToolOrchestra's: M_norm . P for a correct answer, else 0 (`rewards`). Left out: how episodes come about,
which is `tool_environment`.

Letters of shapes: n episodes, k = tools + 3 entries of an outcome vector.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from lib.rl.controller_training import UpdateData
from lib.rl.expert_pool import ExpertReply
from lib.rl.token_batch import Sample
from lib.rl.transcript import split_by_writer
from lib.tool_orchestration import rewards
from lib.tool_orchestration.rewards import FilteredRollouts
from lib.tool_orchestration.tool_environment import ToolEpisode

Decode = Callable[[Sequence[int]], str]
MakeRows = Callable[[Sequence[Any], Sequence[str]], pd.DataFrame]


def make_vectors(
    episodes: Sequence[ToolEpisode], tools: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Make the outcome vectors and the preference vectors of episodes.

    Args:
        episodes: n episodes that have ended.
        tools: Names of all tools, in the order of the vectors.

    Returns:
        The outcome vectors, (n, tools + 3): calls of each tool, outcome, -US dollars, -seconds.
        The preference vectors, (n, tools + 3): the user's weights of the same entries, in [0, 1].
    """
    calls = []
    preferences = []
    for episode in episodes:
        calls.append([_count_calls(episode, name) for name in tools])
        preferences.append(episode.assignment.preference.vector(tools))
    vectors = rewards.make_outcome_vectors(
        np.array(calls, dtype=float),
        np.array([episode.correct for episode in episodes]),
        np.array([episode.cost_usd for episode in episodes]),
        np.array([episode.seconds for episode in episodes]),
    )
    return vectors, np.array(preferences)


def _count_calls(episode: ToolEpisode, name: str) -> int:
    """Count the calls of a tool; calls of an office function with the same name do not count."""
    if name in episode.assignment.menu.office:
        return 0
    return episode.counts.get(name, 0)


def compute_rewards(
    episodes: Sequence[ToolEpisode], groups: Sequence[int], tools: Sequence[str]
) -> np.ndarray:
    """Compute the reward of every episode.

    Args:
        episodes: n episodes that have ended.
        groups: (n,) number of the example of each episode, within which outcome vectors are normalized.
        tools: Names of all tools, in the order of outcome and preference vectors.

    Returns:
        (n,) rewards.
    """
    vectors, preferences = make_vectors(episodes, tools)
    normalized = rewards.normalize_within_groups(vectors, groups)
    correct = vectors[:, rewards.OUTCOME_INDEX]
    return rewards.compute_preference_rewards(normalized, preferences, correct)


def select_samples(
    episodes: Sequence[ToolEpisode],
    groups: Sequence[int],
    episode_rewards: np.ndarray,
    min_std: float,
) -> tuple[list[Sample], FilteredRollouts]:
    """Select what a training learns from: no malformed calls, no missing answers, no groups that agree.

    Args:
        episodes: n episodes that have ended.
        groups: (n,) number of the example of each episode.
        episode_rewards: (n,) reward of each episode.
        min_std: Groups whose rewards deviate less are left out.

    Returns:
        Samples for the trainer, and what the filters left out.
    """
    is_malformed = np.array([episode.num_malformed > 0 for episode in episodes])
    is_answered = np.array([episode.has_answer for episode in episodes])
    filtered = rewards.filter_rollouts(episode_rewards, groups, is_malformed, is_answered, min_std)

    samples = []
    for row in filtered.rows.tolist():
        episode = episodes[row]
        # Where no turn had room the orchestrator wrote nothing.
        if any(episode.mask):
            reward = float(episode_rewards[row])
            samples.append(Sample(episode.ids, episode.mask, reward, int(groups[row])))
    return samples, filtered


def make_update_data(
    episodes: Sequence[ToolEpisode],
    groups: np.ndarray,
    tools: Sequence[str],
    min_std: float,
    step: int,
    make_rows: MakeRows | None = None,
) -> UpdateData:
    """Reward the episodes of one update, and select those that are learned from.

    Episodes of which the infrastructure lost a reply are neither rewarded nor learned from.

    Args:
        episodes: n episodes of the update.
        groups: (n,) number of the example of each episode.
        tools: Names of all tools, in the order of outcome and preference vectors.
        min_std: Groups whose rewards deviate less are left out.
        step: Number of the update.
        make_rows: Makes a row per episode; None for `make_episode_rows`.

    Returns:
        Samples for the trainer; a row per episode, with step, rollout_group and reward beside the columns of
        make_rows; and by filter how many episodes it left out.
    """
    # Rewards are normalized within a group, so that an unscored episode must not be among the compared.
    scored = np.flatnonzero([not math.isnan(episode.correct) for episode in episodes])
    scored_episodes = [episodes[index] for index in scored]
    episode_rewards = np.full(len(episodes), np.nan)
    samples: list[Sample] = []
    counts = {"kept": 0, "malformed": 0, "unanswered": 0, "agreeing": 0}
    if len(scored):
        episode_rewards[scored] = compute_rewards(scored_episodes, groups[scored], tools)
        # A group whose rewards agree has no advantage, and only adds noise to the update.
        samples, filtered = select_samples(
            scored_episodes, groups[scored], episode_rewards[scored], min_std
        )
        counts = {
            "kept": len(samples),
            "malformed": filtered.malformed,
            "unanswered": filtered.unanswered,
            "agreeing": filtered.agreeing,
        }
    rollouts = (make_rows or make_episode_rows)(episodes, tools)
    rollouts = rollouts.assign(step=step, rollout_group=groups, reward=episode_rewards)
    return UpdateData(samples, rollouts, counts)


def make_episode_rows(
    episodes: Sequence[ToolEpisode], tools: Sequence[str], decode: Decode | None = None
) -> pd.DataFrame:
    """Make one row per episode.

    Args:
        episodes: Episodes that have ended.
        tools: Names of all tools, in the order of outcome and preference vectors.
        decode: Token ids to text; with it the rows have the column spoken (`transcript.split_by_writer`).

    Returns:
        A row per episode, with the columns
        item                        number of the episode
        group, difficulty           kind and difficulty of the task
        correct                     outcome; nan where the infrastructure lost a reply
        cost_usd, seconds           cost and latency of the calls
        calls, chosen               number of calls; names of the called tools in order, separated by blanks
        malformed, answered         number of malformed turns; 1 where there is an answer
        failures, failed            number of replies that the infrastructure lost; whether there are any
        truncated, unusable         number of replies that reached the model's limit; without an answer otherwise
        shortened                   number of replies of which the orchestrator read a part
        m, p                        outcome vector and preference vector, over `tools` and three objectives
        offered                     names of the tools on the menu, separated by blanks
        p_accuracy, p_cost, p_latency, liked, confidential    the user's preferences
        execution, fidelity, completeness                     criteria of office tasks
        spoken                      the transcript by writer, with `decode`
    """
    vectors, preferences = make_vectors(episodes, tools)
    rows = []
    for index, episode in enumerate(episodes):
        row = _describe_outcome(episode) | _describe_user(episode)
        row["item"] = index
        row["m"] = vectors[index].tolist()
        row["p"] = preferences[index].tolist()
        if episode.verdict is not None:
            row |= {name: float(value) for name, value in asdict(episode.verdict).items()}
        if decode:
            row["spoken"] = json.dumps(split_by_writer(episode, decode))
        rows.append(row)
    return pd.DataFrame(rows)


def _describe_outcome(episode: ToolEpisode) -> dict[str, Any]:
    """Describe the calls and the outcome of an episode, as columns of `make_episode_rows`.

    Args:
        episode: A finished episode.

    Returns:
        Values by column name.
    """
    assignment = episode.assignment
    return {
        "group": assignment.kind,
        "difficulty": assignment.difficulty,
        "correct": episode.correct,
        "cost_usd": episode.cost_usd,
        "seconds": episode.seconds,
        "calls": len(episode.called_experts),
        "chosen": " ".join(episode.called_experts),
        "malformed": episode.num_malformed,
        # The orchestrator's own lost reply counts beside those of tools.
        "failures": sum(reply.lost for reply in episode.replies) + episode.lost_own_reply,
        "failed": episode.failed,
        "truncated": episode.num_truncated,
        "unusable": sum(_is_unusable(reply) for reply in episode.replies),
        "shortened": episode.num_shortened,
        "answered": float(episode.has_answer),
    }


def _describe_user(episode: ToolEpisode) -> dict[str, Any]:
    """Describe the menu and the user of an episode, as columns of `make_episode_rows`.

    Args:
        episode: A finished episode.

    Returns:
        Values by column name.
    """
    preference = episode.assignment.preference
    return {
        "offered": " ".join(episode.assignment.menu.names),
        "p_cost": preference.cost,
        "p_latency": preference.latency,
        "p_accuracy": preference.accuracy,
        "liked": " ".join(preference.tools),
        "confidential": preference.confidential,
    }


def _is_unusable(reply: ExpertReply) -> bool:
    """Return whether a reply holds no answer for a reason other than a lost connection or the length limit."""
    return reply.failure is not None and not reply.truncated and not reply.lost
