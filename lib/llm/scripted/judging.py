"""The judge: nine scores from 1 to 5, each an explicit rule on the printed trajectory.

The rules are a program's reading of the rubric in the prompt (`lib.orchestration.templates.judge_system`): each gives a
position between the words for 1 (0) and those for 5 (1), which noise moves and rounding turns into a score. Left out:
any taste. Every rule is arithmetic that can be done by hand.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lib.llm.scripted.model_strength import Strength

LOWEST, HIGHEST = 1, 5  # scores


@dataclass(frozen=True)
class TrajectoryStep:
    """A line of a trajectory.

    Attributes:
        policy: The one that acted.
        difficulties: Difficulties of the questions that it set, each in [0, 1].
        mastery_before: In [0, 1].
        mastery_after: In [0, 1].
        accuracy: Fraction of right answers.
    """

    policy: str
    difficulties: tuple[float, ...]
    mastery_before: float
    mastery_after: float
    accuracy: float

    @property
    def is_good(self) -> bool:
        """Whether the step went well: mastery rose, or at least three of five answers were right."""
        return self.mastery_after > self.mastery_before or self.accuracy >= 0.6


@dataclass(frozen=True)
class Trajectory:
    """What a judge's prompt shows.

    Attributes:
        steps: In their order.
        policies: Those that could be chosen.
        horizon: Most steps of an episode.
        goal: Mastery at which an episode ends.
    """

    steps: tuple[TrajectoryStep, ...]
    policies: tuple[str, ...]
    horizon: int
    goal: float

    @property
    def transitions(self) -> list[tuple[TrajectoryStep, TrajectoryStep]]:
        """Every step with the one after it."""
        return list(pairwise(self.steps))

    @property
    def mastery_gained(self) -> float:
        """Mastery at the end minus that at the beginning."""
        return self.steps[-1].mastery_after - self.steps[0].mastery_before


_STEP_LINE = re.compile(
    r"^\d+ \| (\S+)(?: \(no choice\))? \| [\w-]+ \| ([1-6]*) \| (\d\.\d+) > (\d\.\d+) \| \d+ \| "
    r"\d\.\d+ \d\.\d+ (\d\.\d+)$",
    re.MULTILINE,
)
_POLICIES = re.compile(r"chosen from: (.+)\.$", re.MULTILINE)
_END = re.compile(r"ends at mastery (\d\.\d+), or after (\d+) steps")


def read_trajectory(text: str) -> Trajectory:
    """Read the trajectory of a judge's prompt.

    Args:
        text: The prompt, or the end of it.

    Returns:
        What can be seen of it.
    """
    steps = []
    for policy, levels, before, after, accuracy in _STEP_LINE.findall(text):
        # levels 1 to 6 are difficulties 0, 0.2, ... 1
        difficulties = tuple((int(level) - 1) / 5 for level in levels)
        steps.append(
            TrajectoryStep(policy, difficulties, float(before), float(after), float(accuracy))
        )

    listed = _POLICIES.search(text)
    if listed:
        policies = tuple(listed[1].split(", "))
    else:
        policies = tuple(dict.fromkeys(step.policy for step in steps))
    end = _END.search(text)
    return Trajectory(
        steps=tuple(steps),
        policies=policies,
        horizon=int(end[2]) if end else max(1, len(steps)),
        goal=float(end[1]) if end else 1.0,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _changes_after(trajectory: Trajectory, good: bool) -> list[bool]:
    """For every good (or poor) step but the last of the episode, whether the next step had another policy.

    Args:
        trajectory: Trajectory of one episode.
        good: True for good steps, False for poor ones.

    Returns:
        One element for each such step, in their order.
    """
    return [
        step.policy != next_step.policy
        for step, next_step in trajectory.transitions
        if step.is_good == good
    ]


# The rules. Each gives 0 (the words for 1) to 1 (the words for 5); what is outside is clipped.


def score_adaptivity(trajectory: Trajectory) -> float:
    """Fraction of changes after poor steps minus that after good ones; one half where all steps are of one kind."""
    after_poor = _changes_after(trajectory, good=False)
    after_good = _changes_after(trajectory, good=True)
    if not after_poor or not after_good:
        return 0.5
    return _mean(after_poor) - _mean(after_good)


def score_progression(trajectory: Trajectory) -> float:
    """Scores how well a teaching episode progressed, from 0 to 1.

    Args:
        trajectory: The sets of questions that were asked, with mastery before each.

    Returns:
        The mean of two shares: sets whose difficulty lies within 0.2 of mastery, and the share of the distance to the
        goal that was gained.
    """
    suitable = []
    for step in trajectory.steps:
        if step.difficulties:
            distance = abs(_mean(step.difficulties) - step.mastery_before)
            suitable.append(distance <= 0.2 + 1e-9)  # with room for rounding
    to_gain = trajectory.goal - trajectory.steps[0].mastery_before
    progress = trajectory.mastery_gained / max(to_gain, 1e-9)
    return (_mean(suitable) + min(max(progress, 0.0), 1.0)) / 2


def score_exploration(trajectory: Trajectory) -> float:
    """1 - |2 s - 1| with s the fraction of transitions that change the policy: half of them is the best balance."""
    changes = [step.policy != next_step.policy for step, next_step in trajectory.transitions]
    return 1 - abs(2 * _mean(changes) - 1)


def score_diversity(trajectory: Trajectory) -> float:
    """Scores how evenly the policies were used, from 0 to 1: the entropy of their use over that of even use.

    Args:
        trajectory: The policy of each step.
    """
    counts = Counter(step.policy for step in trajectory.steps)
    # -sum_i p_i log p_i over the policies that were used
    fractions = [count / counts.total() for count in counts.values()]
    entropy = -sum(p * math.log(p) for p in fractions)
    num_policies = max(len(trajectory.policies), len(counts), 2)
    return entropy / math.log(num_policies)


def score_mental_demand(trajectory: Trajectory) -> float:
    """Mean of max(0, difficulty - mastery) over questions, / 0.4: two levels above mastery is the most."""
    excess = [
        max(0.0, difficulty - step.mastery_before)
        for step in trajectory.steps
        for difficulty in step.difficulties
    ]
    return _mean(excess) / 0.4


def score_temporal_demand(trajectory: Trajectory) -> float:
    """Length as a fraction of the horizon, from 0.2 (least demand) to 1 (most)."""
    return (len(trajectory.steps) / trajectory.horizon - 0.2) / 0.8


def score_performance(trajectory: Trajectory) -> float:
    """Mastery at the end, from half the goal (worst) to the goal (best)."""
    return (trajectory.steps[-1].mastery_after / trajectory.goal - 0.5) / 0.5


def score_effort(trajectory: Trajectory) -> float:
    """Questions asked per 0.1 of mastery gained, from 10 (least effort) to 50 (most)."""
    num_questions = sum(len(step.difficulties) for step in trajectory.steps)
    if trajectory.mastery_gained <= 0:
        return 1.0
    return (num_questions * 0.1 / trajectory.mastery_gained - 10) / 40


def score_frustration(trajectory: Trajectory) -> float:
    """Fraction of wrong answers, from 0.1 (least) to 0.7 (most)."""
    return (1 - _mean([step.accuracy for step in trajectory.steps]) - 0.1) / 0.6


# By their names in the reply: Table 12, then Table 4.
RUBRIC: dict[str, Callable[[Trajectory], float]] = {
    "adaptivity": score_adaptivity,
    "progression": score_progression,
    "exploration": score_exploration,
    "diversity": score_diversity,
    "mental": score_mental_demand,
    "temporal": score_temporal_demand,
    "performance": score_performance,
    "effort": score_effort,
    "frustration": score_frustration,
}


def place_on_scale(position: float) -> int:
    """The score of a position between the words for 1 and those for 5, such as 3 for 0.5."""
    clipped = min(max(position, 0.0), 1.0)
    return LOWEST + math.floor(clipped * (HIGHEST - LOWEST) + 0.5)


def judge_trajectory(text: str, strength: Strength, rng: np.random.Generator) -> dict[str, Any]:
    """Reply to the judge's prompt: RUBRIC applied to the steps that can be seen, plus noise.

    Args:
        text: The prompt, or the end of it.
        strength: Strength of the model.
        rng: Random numbers.

    Returns:
        The reasoning and nine scores from 1 to 5; all are 3 where no step can be seen.
    """
    trajectory = read_trajectory(text)
    noise = rng.standard_normal(len(RUBRIC)) * strength.noise  # (9,), in parts of the scale
    if not trajectory.steps:
        reply: dict[str, Any] = {
            "reasoning": "No trajectory can be read here, so I stay in the middle."
        }
        return reply | dict.fromkeys(RUBRIC, place_on_scale(0.5))

    scores = {}
    for (name, rule), noise_of_rule in zip(RUBRIC.items(), noise, strict=True):
        scores[name] = place_on_scale(rule(trajectory) + noise_of_rule)
    # The reasoning names the numbers that decided most of the rules.
    changes_after_bad = _mean(_changes_after(trajectory, good=False))
    changes_after_good = _mean(_changes_after(trajectory, good=True))
    wrong = 1 - _mean([step.accuracy for step in trajectory.steps])
    reasoning = (
        f"The choice changed after {changes_after_bad:.0%} of the steps that went badly and "
        f"{changes_after_good:.0%} of those that went well. Mastery ended at "
        f"{trajectory.steps[-1].mastery_after:.2f}, and {wrong:.0%} of the answers were wrong."
    )
    return {"reasoning": reasoning} | scores
