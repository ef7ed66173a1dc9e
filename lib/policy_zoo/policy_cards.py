"""Policy cards: what an orchestrator may know about a policy.

The fields are those of the paper's Figure 12. Every word in a card follows by the rubric below from episodes that the
policy played for the purpose (`evaluate.evaluate` with purpose="cards"), with other students and rooms than any that a
method is tested on. Nothing is written by hand, so that a policy that learned something else than its name promises
gets a card that says so. The wording is ours.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from lib.policy_zoo.evaluate import list_trained_objectives, summarize_episodes
from lib.policy_zoo.recipes import ACTIONS, OBJECTIVES

VERSION = 1  # of policy cards
RUBRIC = {
    "accuracy": {"high": ">= 0.8", "medium": "0.6 to 0.8", "low": "< 0.6"},
    "mastery": {"above threshold": ">= 0.8", "below threshold": "< 0.8"},
    "reward": {"high": "normalised reward >= 0.6", "medium": "0.4 to 0.6", "low": "< 0.4"},
    "stability": {"stable": "std < 0.05", "moderate": "0.05 to 0.15", "volatile": "std >= 0.15"},
}
HIGH_REWARD, MEDIUM_REWARD = 0.6, 0.4
STABLE_DEVIATION, MODERATE_DEVIATION = 0.05, 0.15
HIGH_MASTERY = 0.6  # where descriptions of students divide low from high mastery
MIN_ACTION_SHARE = 0.05  # rarer actions are left out of the behaviour hint
NUM_SNIPPETS = 3


class Card(BaseModel):
    """One policy, described from its behaviour. Rewards are undiscounted returns of its own objectives."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    domain: Literal["education", "minigrid"]
    optimized_objective: str
    objectives: list[str]
    overall_strength: Literal["high", "medium", "low"]
    stability: Literal["stable", "moderate", "volatile"]
    behavior_hint: Annotated[str, Field(min_length=10)]
    applicability: Annotated[str, Field(min_length=10)]
    failure_modes: Annotated[str, Field(min_length=10)]
    example_snippets: Annotated[list[str], Field(min_length=1)]
    avg_scalar_reward: float
    std_scalar_reward: Annotated[float, Field(ge=0)]
    normalized_reward: Annotated[float, Field(ge=0, le=1)]
    rubric: dict[str, dict[str, str]]


def make_card(steps: pd.DataFrame, domain: str, name: str) -> Card:
    """Write the card of a policy from its episodes: what it does, achieves and fails at.

    Args:
        steps: A row per step of the policies' episodes, all seeds.
        domain: education or minigrid.
        name: The policy, a value of the column `method`.

    Returns:
        The card.

    Raises:
        ValueError: The table has no episode of the policy.
    """
    policy_steps = steps[steps["method"] == name]
    if policy_steps.empty:
        methods = sorted(steps["method"].unique())
        raise ValueError(f"there are no episodes of {name!r} to describe; there are {methods}")

    objectives = [OBJECTIVES[domain][i] for i in list_trained_objectives(name)]
    episodes = summarize_episodes(policy_steps, domain)
    returns = episodes[objectives].mean(axis=1)
    if domain == "education":
        # Returns depend on the length of an episode, means per step lie in [0, 1].
        normalized = episodes[[f"mean_{objective}" for objective in objectives]].mean(axis=1)
        strengths_and_failures = _describe_student_outcomes(policy_steps)
    else:
        normalized = returns
        strengths_and_failures = _describe_room_outcomes(episodes)

    return Card(
        name=name,
        domain=domain,
        optimized_objective=" + ".join(objectives),
        objectives=objectives,
        overall_strength=rate_reward(normalized.mean()),
        stability=rate_stability(normalized.std(ddof=0)),
        behavior_hint=_describe_actions(policy_steps["action"], ACTIONS[domain]),
        example_snippets=_describe_frequent_situations(policy_steps, domain),
        avg_scalar_reward=float(returns.mean()),
        std_scalar_reward=float(returns.std(ddof=0)),
        normalized_reward=float(normalized.mean()),
        rubric=RUBRIC,
        **strengths_and_failures,
    )


def rate_reward(normalized_reward: float) -> Literal["high", "medium", "low"]:
    """The rubric's word for a normalised reward."""
    if normalized_reward >= HIGH_REWARD:
        return "high"
    return "medium" if normalized_reward >= MEDIUM_REWARD else "low"


def rate_stability(deviation: float) -> Literal["stable", "moderate", "volatile"]:
    """The rubric's word for the standard deviation of the normalised reward between episodes."""
    if deviation < STABLE_DEVIATION:
        return "stable"
    return "moderate" if deviation < MODERATE_DEVIATION else "volatile"


def _describe_actions(actions: pd.Series, action_names: Sequence[str]) -> str:
    """The share of each action that a policy takes often, such as "chooses easy 90%, failed 10% of the time"."""
    shares = actions.value_counts(normalize=True).sort_values(ascending=False)
    frequent = shares[shares >= MIN_ACTION_SHARE]
    parts = [f"{action_names[int(action)]} {share:.0%}" for action, share in frequent.items()]
    return "chooses " + ", ".join(parts) + " of the time"


def _describe_student_outcomes(steps: pd.DataFrame) -> dict[str, str]:
    """Describe at which mastery students gain most under a policy, and how often it fails.

    Args:
        steps: A row per step of one policy.

    Returns:
        Two fields of the policy's card.
    """
    gain = _measure_mastery_gain(steps)
    is_low = steps["mastery"] < HIGH_MASTERY
    mean_gains = {}
    if is_low.any():
        mean_gains["below 0.6"] = gain[is_low].mean()
    if (~is_low).any():
        mean_gains["at 0.6 or more"] = gain[~is_low].mean()
    best = max(mean_gains, key=mean_gains.get)

    wrong_share = 1 - steps["reward_2"].mean()
    idle_share = (gain <= 0).mean()
    return {
        "applicability": f"mastery rises fastest while it is {best}: {mean_gains[best]:.3f} a step",
        "failure_modes": f"{wrong_share:.0%} of answers are wrong; {idle_share:.0%} of steps raise no mastery",
    }


def _measure_mastery_gain(steps: pd.DataFrame) -> pd.Series:
    """What each step added to mastery, the last one of an episode included."""
    return (steps["mastery_after"] - steps["mastery"]).round(6)


def _describe_room_outcomes(episodes: pd.DataFrame) -> dict[str, str]:
    """Describe what a policy does best in a room, and how often it fails.

    Args:
        episodes: A row per episode of one policy, with its returns by objective.

    Returns:
        Two fields of the policy's card.
    """
    goal_share = episodes["goal"].mean()
    lava_share = 1 - episodes["no-lava"].mean()
    gold_share = episodes["gold"].mean()
    timeout_share = (episodes["length"] >= episodes["length"].max()).mean()
    share_by_skill = {
        "reaching the goal": goal_share,
        "collecting gold": gold_share,
        "staying off lava": 1 - lava_share,
    }
    best = max(share_by_skill, key=share_by_skill.get)
    return {
        "applicability": f"best at {best} ({share_by_skill[best]:.0%}); goal {goal_share:.0%}, gold {gold_share:.0%}",
        "failure_modes": f"steps on lava in {lava_share:.0%} of rooms; runs out of time in {timeout_share:.0%}",
    }


def _describe_frequent_situations(steps: pd.DataFrame, domain: str) -> list[str]:
    """List the most frequent pairs of situation and action of a policy, with their mean rewards.

    Args:
        steps: A row per step of one policy.
        domain: education or minigrid.

    Returns:
        Such as "mastery < 0.6 + none failed -> easy -> aptitude 0.10, gap 0.00, performance 0.90".
    """
    if domain == "education":
        is_high = steps["mastery"] >= HIGH_MASTERY
        mastery = np.where(is_high, "mastery >= 0.6", "mastery < 0.6")
        failed = np.where(steps["open_failed"] > 0, "failed questions open", "none failed")
        situation = pd.Series(mastery, index=steps.index) + " + " + failed
    else:
        situation = pd.Series("any view", index=steps.index)

    objectives = OBJECTIVES[domain]
    reward_columns = [f"reward_{i}" for i in range(len(objectives))]
    groups = steps.assign(situation=situation).groupby(["situation", "action"])
    mean_rewards = groups[reward_columns].mean()
    sizes = groups.size().sort_values(ascending=False)

    snippets = []
    for situation_name, action in sizes.head(NUM_SNIPPETS).index:
        rewards = mean_rewards.loc[(situation_name, action)]
        outcomes = [
            f"{objective} {reward:.2f}"
            for objective, reward in zip(objectives, rewards, strict=True)
        ]
        action_name = ACTIONS[domain][int(action)]
        snippets.append(f"{situation_name} -> {action_name} -> {', '.join(outcomes)}")
    return snippets
