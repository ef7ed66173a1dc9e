"""Policy cards: what an orchestrator may know about a policy, made from evaluation episodes.

The fields are those of the paper's Figure 12. Every word in a card follows from the step record by
the rubric below; nothing is written by hand, so a policy that learned something else than its name
promises gets a card that says so. Sentences are ours.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from lib.policy_zoo.evaluate import episodes, paid_for
from lib.policy_zoo.recipes import ACTIONS, OBJECTIVES

VERSION = 1  # of policy cards
RUBRIC = {
    "accuracy": {"high": ">= 0.8", "medium": "0.6 to 0.8", "low": "< 0.6"},
    "mastery": {"above threshold": ">= 0.8", "below threshold": "< 0.8"},
    "reward": {"high": "normalised reward >= 0.6", "medium": "0.4 to 0.6", "low": "< 0.4"},
    "stability": {"stable": "std < 0.05", "moderate": "0.05 to 0.15", "volatile": "std >= 0.15"},
}


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


def level(value: float, high: float, medium: float) -> Literal["high", "medium", "low"]:
    """Where a value stands in the rubric."""
    return "high" if value >= high else "medium" if value >= medium else "low"


def stability(deviation: float) -> Literal["stable", "moderate", "volatile"]:
    """Spread of the normalised reward between episodes, in the rubric's words."""
    return "stable" if deviation < 0.05 else "moderate" if deviation < 0.15 else "volatile"


def make_card(record: pd.DataFrame, domain: str, name: str) -> Card:
    """The card of policy `name` from a step record (all seeds). Raises ValueError without episodes."""
    steps = record[record["method"] == name]
    if steps.empty:
        raise ValueError(
            f"no evaluation episodes of {name!r}; there are {sorted(record['method'].unique())}"
        )
    names = OBJECTIVES[domain]
    own = [names[i] for i in paid_for(name)]
    table = episodes(steps, domain)
    returns = table[own].mean(axis=1)
    normalised = (
        table[[f"mean_{n}" for n in own]].mean(axis=1) if domain == "education" else returns
    )
    words = _education_words(steps) if domain == "education" else _grid_words(table)
    return Card(
        name=name,
        domain=domain,
        optimized_objective=" + ".join(own),
        objectives=own,
        overall_strength=level(normalised.mean(), 0.6, 0.4),
        stability=stability(normalised.std(ddof=0)),
        behavior_hint=_hint(steps["action"], ACTIONS[domain]),
        example_snippets=_snippets(steps, domain),
        avg_scalar_reward=float(returns.mean()),
        std_scalar_reward=float(returns.std(ddof=0)),
        normalized_reward=float(normalised.mean()),
        rubric=RUBRIC,
        **words,
    )


def _hint(actions: pd.Series, names: Sequence[str]) -> str:
    shares = actions.value_counts(normalize=True).sort_values(ascending=False)
    parts = [f"{names[int(a)]} {share:.0%}" for a, share in shares.items() if share >= 0.05]
    return "chooses " + ", ".join(parts) + " of the time"


def _education_words(steps: pd.DataFrame) -> dict[str, str]:
    """Where the student gains most and where the policy fails, by mastery."""
    low = steps[steps["mastery"] < 0.6]
    high = steps[steps["mastery"] >= 0.6]
    gains = {
        where: _rises(part).mean()
        for where, part in (("below 0.6", low), ("at 0.6 or more", high))
        if len(part)
    }
    best = max(gains, key=gains.get)
    wrong = 1 - steps["reward_2"].mean()
    idle = (_rises(steps) <= 0).mean()
    return {
        "applicability": f"mastery rises fastest while it is {best}: {gains[best]:.3f} a step",
        "failure_modes": f"{wrong:.0%} of answers are wrong; {idle:.0%} of steps raise no mastery",
    }


def _rises(steps: pd.DataFrame) -> pd.Series:
    """What each step added to mastery, the last one of an episode included."""
    return (steps["mastery_after"] - steps["mastery"]).round(6)


def _grid_words(table: pd.DataFrame) -> dict[str, str]:
    goal, lava, gold = table["goal"].mean(), 1 - table["no-lava"].mean(), table["gold"].mean()
    idle = (table["length"] >= table["length"].max()).mean()
    parts = {"reaching the goal": goal, "collecting gold": gold, "staying off lava": 1 - lava}
    best = max(parts, key=parts.get)
    return {
        "applicability": f"best at {best} ({parts[best]:.0%}); goal {goal:.0%}, gold {gold:.0%}",
        "failure_modes": f"steps on lava in {lava:.0%} of rooms; runs out of time in {idle:.0%}",
    }


def _snippets(steps: pd.DataFrame, domain: str, count: int = 3) -> list[str]:
    """The most frequent situations: what was seen, what was done, what came of it."""
    names, objectives = ACTIONS[domain], OBJECTIVES[domain]
    if domain == "education":
        above = np.where(steps["mastery"] >= 0.6, "mastery >= 0.6", "mastery < 0.6")
        open_ = np.where(steps["open_failed"] > 0, "failed questions open", "none failed")
        situation = pd.Series(above, index=steps.index) + " + " + open_
    else:
        situation = pd.Series("any view", index=steps.index)
    frame = steps.assign(situation=situation)
    rewards = [f"reward_{i}" for i in range(len(objectives))]
    groups = frame.groupby(["situation", "action"])[rewards].mean()
    sizes = frame.groupby(["situation", "action"]).size().sort_values(ascending=False)
    lines = []
    for (seen, action), _ in sizes.head(count).items():
        outcome = ", ".join(
            f"{n} {groups.loc[(seen, action), r]:.2f}"
            for n, r in zip(objectives, rewards, strict=True)
        )
        lines.append(f"{seen} -> {names[int(action)]} -> {outcome}")
    return lines
