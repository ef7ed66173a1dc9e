"""The education domain for orchestrators: its words, and how a student's state reads (A.2, A.4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lib.envs.batch import BatchedEnv, Transition
from lib.envs.education import LEVELS
from lib.envs.education_batch import EducationBatch
from lib.orchestration.world import Domain, Rollout, World

WORDS = Domain(
    name="education",
    role="You steer a tutoring system",
    task="recommend the next set of five questions to a student who is learning {topic}",
    objectives={
        "aptitude": "ask questions above the student's mastery, so that learning speeds up",
        "gap": "have questions answered right that were failed before",
        "performance": "have questions answered right",
    },
    actions={
        "failed": "review questions that were failed, or close to those, to close gaps",
        "easy": "ask familiar questions of low difficulty, to build confidence",
        "challenge": "ask the hardest questions, those furthest above mastery first",
    },
    seen="mastery, share of right answers by difficulty, share of open failed questions by difficulty",
    unit="student",
)


class StudentWorld(World):
    """One student; rewards are judged per step, because a good tutor's episodes are short."""

    words = WORDS
    task = "student"
    per_step = True
    env: EducationBatch

    @property
    def horizon(self) -> int:
        return self.params.education.horizon

    def facts(self) -> dict[str, float | str]:
        return {"mastery": int(self.env.mastery[0]) / self.env.rules.top, "open_failed": int(self.env.pending[0].sum())}

    def features(self) -> np.ndarray:
        facts = self.facts()
        return np.array([1.0, facts["mastery"], min(facts["open_failed"], 10) / 10, self.t / self.horizon])

    def state(self) -> dict[str, str]:
        facts = self.facts()
        return {
            "mastery": f"{facts['mastery']:.2f} (the episode ends at {self.params.education.goal:.2f})",
            "failed questions open": str(facts["open_failed"]),
        }

    def outcome(self, result: Transition) -> dict[str, float | str]:
        levels = "".join(str(level + 1) for level in self.env.levels[0] if level >= 0)
        return {"mastery_after": float(_mastery(result.final_observation)[0]), "levels": levels}

    def extra(self, env: BatchedEnv, result: Transition) -> dict[str, np.ndarray]:
        return {"levels": env.levels}

    def tell(self, rollout: Rollout, candidate: int) -> tuple[str, str]:
        alive, mastery = rollout.alive[:, candidate], _mastery(rollout.final[:, candidate])  # (T, C)
        for step in range(1, len(mastery)):  # a copy that has ended keeps the mastery it ended with
            mastery[step] = np.where(alive[step], mastery[step], mastery[step - 1])
        first = rollout.extra["levels"][0, candidate, 0]
        asked = " ".join(f"{level / (LEVELS - 1):.1f}" for level in first if level >= 0)
        course = " ".join(f"{value:.2f}" for value in mastery.mean(axis=1))
        told = f"difficulties {asked}" if len(mastery) == 1 else f"first difficulties {asked}; mastery by step {course}"
        return told, f"mastery {mastery[-1].mean() - self.facts()['mastery']:+.3f}"

    def change(self, row: Mapping[str, float | str]) -> str:
        return f"mastery {row['mastery_after'] - row['mastery']:+.3f}"


def _mastery(observation: np.ndarray) -> np.ndarray:
    """Mastery in observations (..., 13) of 32-bit floats, rounded back to the fraction it was."""
    return observation[..., 0].astype(np.float64).round(6)
