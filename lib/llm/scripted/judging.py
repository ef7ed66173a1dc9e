"""The judge: nine scores from 0 to 100, each an explicit rule on the printed trajectory."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lib.llm.scripted.model_strength import Draw, Strength


@dataclass(frozen=True)
class Step:
    """A line of a trajectory: who acted, difficulty of the questions, mastery, share of right answers."""

    policy: str
    difficulty: tuple[float, ...]
    before: float
    after: float
    correct: float

    @property
    def good(self) -> bool:
        """Whether the step went well: mastery rose, or at least three of five answers were right."""
        return self.after > self.before or self.correct >= 0.6


@dataclass(frozen=True)
class Record:
    """The trajectory of a judge's prompt: its steps, policies to choose from, horizon, goal."""

    steps: tuple[Step, ...]
    policies: tuple[str, ...]
    horizon: int
    goal: float

    @property
    def turns(self) -> list[tuple[Step, Step]]:
        """Every step with the one after it."""
        return list(pairwise(self.steps))

    @property
    def gained(self) -> float:
        """Mastery at the end less that at the beginning."""
        return self.steps[-1].after - self.steps[0].before


_LINE = re.compile(
    r"^\d+ \| (\S+)(?: \(fallback\))? \| [\w-]+ \| ([1-6]*) \| (\d\.\d+) > (\d\.\d+) \| \d+ \| "
    r"\d\.\d+ \d\.\d+ (\d\.\d+)$",
    re.MULTILINE,
)
_CHOICES = re.compile(r"chosen from: (.+)\.$", re.MULTILINE)
_ENDS = re.compile(r"ends at mastery (\d\.\d+), or after (\d+) steps")


def read_record(text: str) -> Record:
    """The trajectory that a judge's prompt, or the end of one, shows."""
    steps = tuple(
        Step(
            name,
            tuple((int(level) - 1) / 5 for level in levels),
            float(before),
            float(after),
            float(correct),
        )
        for name, levels, before, after, correct in _LINE.findall(text)
    )
    choices, ends = _CHOICES.search(text), _ENDS.search(text)
    return Record(
        steps=steps,
        policies=tuple(choices[1].split(", "))
        if choices
        else tuple(dict.fromkeys(step.policy for step in steps)),
        horizon=int(ends[2]) if ends else max(1, len(steps)),
        goal=float(ends[1]) if ends else 1.0,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _changes(record: Record, good: bool) -> list[bool]:
    """Whether another policy followed, after every good (or poor) step."""
    return [now.policy != then.policy for now, then in record.turns if now.good == good]


def adaptivity(record: Record) -> float:
    """(share of changes after poor steps - after good ones) / 0.5; one half where there is but one kind."""
    poor, good = _changes(record, good=False), _changes(record, good=True)
    return (_mean(poor) - _mean(good)) / 0.5 if poor and good else 0.5


def progression(record: Record) -> float:
    """Mean of two: share of sets within 0.2 of mastery in difficulty, share of the way to the goal."""
    near = [
        abs(_mean(step.difficulty) - step.before) <= 0.2 + 1e-9
        for step in record.steps
        if step.difficulty
    ]
    way = record.gained / max(record.goal - record.steps[0].before, 1e-9)
    return (_mean(near) + min(max(way, 0.0), 1.0)) / 2


def exploration(record: Record) -> float:
    """1 - |2 s - 1| with s the share of turns that change the policy: half of them is the best balance."""
    return 1 - abs(2 * _mean([now.policy != then.policy for now, then in record.turns]) - 1)


def diversity(record: Record) -> float:
    """Entropy of policy use over the entropy of even use."""
    used = [step.policy for step in record.steps]
    shares = [used.count(name) / len(used) for name in dict.fromkeys(used)]
    return -sum(p * math.log(p) for p in shares) / math.log(
        max(len(record.policies), len(shares), 2)
    )


def mental(record: Record) -> float:
    """Mean of max(0, difficulty - mastery) over questions, / 0.4: two levels above mastery is the most."""
    return (
        _mean([max(0.0, d - step.before) for step in record.steps for d in step.difficulty]) / 0.4
    )


def temporal(record: Record) -> float:
    """Length as a share of the horizon, from 0.2 (least demand) to 1 (most)."""
    return (len(record.steps) / record.horizon - 0.2) / 0.8


def performance(record: Record) -> float:
    """Mastery at the end, from half the goal (worst) to the goal (best)."""
    return (record.steps[-1].after / record.goal - 0.5) / 0.5


def effort(record: Record) -> float:
    """Questions asked per 0.1 of mastery gained, from 10 (least effort) to 50 (most)."""
    asked = sum(len(step.difficulty) for step in record.steps)
    return (asked * 0.1 / record.gained - 10) / 40 if record.gained > 0 else 1.0


def frustration(record: Record) -> float:
    """Share of wrong answers, from 0.1 (least) to 0.7 (most)."""
    return (1 - _mean([step.correct for step in record.steps]) - 0.1) / 0.6


# Each rule gives 0 to 1 (what is outside is clipped), which becomes 0 to 100. Table 12, then Table 4.
RUBRIC: dict[str, Callable[[Record], float]] = {
    rule.__name__: rule
    for rule in (
        adaptivity,
        progression,
        exploration,
        diversity,
        mental,
        temporal,
        performance,
        effort,
        frustration,
    )
}


def judge(text: str, strength: Strength, draw: Draw) -> dict[str, Any]:
    """The reply to the judge's prompt: RUBRIC applied to the steps that can be seen, plus noise."""
    record = read_record(text)
    noise = dict(zip(RUBRIC, draw.standard_normal(len(RUBRIC)) * strength.noise, strict=True))
    if not record.steps:
        return {
            "reasoning": "No trajectory can be read here, so I stay in the middle."
        } | dict.fromkeys(RUBRIC, 50.0)
    given = {
        name: round(100 * min(max(rule(record) + noise[name], 0.0), 1.0), 1)
        for name, rule in RUBRIC.items()
    }
    poor, good = (_mean(_changes(record, good=kind)) for kind in (False, True))
    wrong = 1 - _mean([step.correct for step in record.steps])
    said = (
        f"The choice changed after {poor:.0%} of poor and {good:.0%} of good steps. Mastery ended at "
        f"{record.steps[-1].after:.2f}, and {wrong:.0%} of the answers were wrong."
    )
    return {"reasoning": said} | given
