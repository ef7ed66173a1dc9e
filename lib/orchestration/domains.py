"""The two domains of orchestrators, a student and a room: their words, and how a state reads (A.2, A.4, A.5).

The paper prints no MiniGrid prompts; a room is told as a symbolic state with what the robot sees and no more.
"""

from collections.abc import Mapping

import numpy as np

from lib.envs.batched_env import BatchedEnv, Transition
from lib.envs.education import LEVELS
from lib.envs.education_batch import EducationBatch
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import PIECES
from lib.orchestration.environment_copies import Domain, LookaheadRollout, World

VERSION = 1  # of the two domains and their words
STUDENT = Domain(
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

    words = STUDENT
    task = "student"
    per_step = True
    env: EducationBatch

    def facts(self) -> dict[str, float | str]:
        return {
            "mastery": int(self.env.mastery[0]) / self.env.rules.top,
            "open_failed": int(self.env.pending[0].sum()),
        }

    def state(self) -> dict[str, str]:
        facts = self.facts()
        return {
            "mastery": f"{facts['mastery']:.2f} (the episode ends at {self.params.education.goal:.2f})",
            "failed questions open": str(facts["open_failed"]),
        }

    def outcome(self, env: BatchedEnv, result: Transition) -> dict[str, np.ndarray]:
        mastery = (
            result.final_observation[:, 0].astype(np.float64).round(6)
        )  # observations are float32
        return {"mastery_after": mastery, "levels": env.levels}

    def tell(self, rollout: LookaheadRollout, candidate: int) -> tuple[str, str]:
        alive, mastery = (
            rollout.alive[:, candidate],
            rollout.outcome["mastery_after"][:, candidate].copy(),
        )  # (T, C)
        for step in range(1, len(mastery)):  # a copy that has ended keeps the mastery it ended with
            mastery[step] = np.where(alive[step], mastery[step], mastery[step - 1])
        first = rollout.outcome["levels"][0, candidate, 0]
        asked = " ".join(f"{level / (LEVELS - 1):.1f}" for level in first if level >= 0)
        course = " ".join(f"{value:.2f}" for value in mastery.mean(axis=1))
        told = (
            f"difficulties {asked}"
            if len(mastery) == 1
            else f"first difficulties {asked}; mastery by step {course}"
        )
        return told, f"mastery {mastery[-1].mean() - self.facts()['mastery']:+.3f}"

    def change(self, row: Mapping[str, float | str]) -> str:
        return f"mastery {row['mastery_after'] - row['mastery']:+.3f}"


ROOM = Domain(
    name="minigrid",
    role="You steer a robot in a small walled room",
    task="take the next step in a room with a goal, lava and two pieces of gold",
    objectives={
        "goal": "reach the goal square; the episode ends there",
        "no-lava": "never step onto lava; the episode ends there, and badly",
        "gold": "pick up both pieces of gold before the end",
    },
    actions={
        "left": "turn left",
        "right": "turn right",
        "forward": "move one cell ahead",
        "pickup": "pick up the gold in front",
        "drop": "put down what is carried (nothing ever is)",
        "toggle": "open what is in front (nothing can be)",
    },
    seen="the square of 7 x 7 cells in front of the robot, without a compass",
    unit="robot",
)


class RoomWorld(World):
    """One composite room; rewards are shares of the episode, so they add up over steps."""

    words = ROOM
    task = "composite"
    per_step = False
    env: GridBatch

    def facts(self) -> dict[str, float | str]:
        seen = self.env.describe(0)
        x, y = seen["position"]
        return {"x": x, "y": y, "heading": seen["heading"], "gold_left": seen["gold_left"]}

    def state(self) -> dict[str, str]:
        seen = self.env.describe(0)
        column, row = seen["position"]
        return {
            "position": f"column {column}, row {row} of 4 x 4, heading {seen['heading']}",
            "in front": seen["in_front"],
            "in view": "; ".join(_place(thing) for thing in seen["in_view"])
            or "nothing but floor and walls",
            "gold left": str(seen["gold_left"]),
            "steps left": str(seen["steps_left"]),
        }

    def outcome(self, env: BatchedEnv, result: Transition) -> dict[str, np.ndarray]:
        return env.outcomes

    def tell(self, rollout: LookaheadRollout, candidate: int) -> tuple[str, str]:
        alive = rollout.alive[:, candidate]
        goal, lava = (
            (rollout.outcome[n][:, candidate] & alive).any(axis=0).mean()
            for n in ("success", "lava")
        )
        return "", f"goal in {goal:.0%} and lava in {lava:.0%} of copies"

    def change(self, row: Mapping[str, float | str]) -> str:
        if row["success"]:
            return "reached the goal"
        return "stepped onto lava" if row["lava"] else f"gold left {PIECES * (1 - row['gold']):.0f}"


def _place(thing: Mapping) -> str:
    steps_right = thing["right"]  # below 0: to the left
    side = "straight"
    if steps_right:
        side = f"{abs(steps_right)} to the {'right' if steps_right > 0 else 'left'}"
    return f"{thing['what']} {thing['ahead']} ahead, {side}"


WORLDS: dict[str, type[World]] = {"education": StudentWorld, "minigrid": RoomWorld}
