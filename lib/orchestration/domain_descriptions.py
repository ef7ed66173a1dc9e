"""The two domains as decision models meet them: their words, their states, and what a step or a look-ahead did.

The paper prints no MiniGrid prompts; a room is described as a symbolic state with what the robot sees and no more.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.config import Environments
from lib.envs.education import LEVELS
from lib.envs.education_batch import EducationBatch
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import CELLS, GOLD, LAVA, PIECES
from lib.orchestration.contexts import Domain

VERSION = 2  # of the two domains, their words and what is measured in them
HIGH_MASTERY = 0.6  # rows of a policy card: below, or from here on (the rubric of PO, Figure 12)

EDUCATION = Domain(
    name="education",
    role="You steer a tutoring system",
    task="recommend the next set of five questions to a student who is learning {topic}",
    objectives={
        "aptitude": "ask questions above the student's mastery",
        "gap": "have questions answered right that were failed before",
        "performance": "have questions answered right",
    },
    measures={"progress": "raise the student's mastery, so that the episode ends sooner"},
    actions={
        "failed": "review questions that were failed, or close to those, to close gaps",
        "easy": "ask familiar questions of low difficulty, to build confidence",
        "challenge": "ask the hardest questions, those furthest above mastery first",
    },
    observation="mastery, share of right answers by difficulty, share of open failed questions by difficulty",
    unit="student",
)

MINIGRID = Domain(
    name="minigrid",
    role="You steer a robot in a small walled room",
    task="take the next step in a room with a goal, lava and two pieces of gold",
    objectives={
        "goal": "reach the goal square; the episode ends there",
        "no-lava": "never step onto lava; the episode ends there, and badly",
        "gold": "pick up both pieces of gold before the end",
    },
    measures={},
    actions={
        "left": "turn left",
        "right": "turn right",
        "forward": "move one cell ahead",
        "pickup": "pick up the gold in front",
        "drop": "put down what is carried (nothing ever is)",
        "toggle": "open what is in front (nothing can be)",
    },
    observation="the square of 7 x 7 cells in front of the robot, without a compass",
    unit="robot",
)


class EducationDescriber:
    """Reads a batch of students. Results are means per step, because a good tutor's episodes are short."""

    domain = EDUCATION
    averages_over_steps = True
    # Rows of a policy card.
    situations = tuple(
        f"mastery {level}, {questions}"
        for level in ("low", "high")
        for questions in ("failed questions open", "no failed question open")
    )

    def __init__(self, environments: Environments) -> None:
        self.task = environments.education.topic
        self.topic = environments.education.topic
        self.horizon = environments.education.horizon
        self.goal = environments.education.goal

    def read_numbers(self, env: EducationBatch) -> dict[str, np.ndarray]:
        """The state as numbers, (students,) each."""
        return {
            "mastery": env.mastery / env.rules.top,
            "failed questions open": env.pending.sum(axis=1),
        }

    def name_situations(self, numbers: Mapping[str, np.ndarray]) -> list[str]:
        """The row of a policy card that applies to each student."""
        names = []
        for mastery, num_open in zip(*numbers.values(), strict=True):
            level = "high" if mastery >= HIGH_MASTERY else "low"
            questions = "failed questions open" if num_open else "no failed question open"
            names.append(f"mastery {level}, {questions}")
        return names

    def describe_state(self, env: EducationBatch, row: int) -> dict[str, str]:
        """The state of one student in words."""
        mastery = env.mastery[row] / env.rules.top
        return {
            "mastery": f"{mastery:.2f} (the episode ends at {self.goal:.2f})",
            "failed questions open": str(int(env.pending[row].sum())),
        }

    def measure_progress(self, numbers_before: Mapping[str, np.ndarray], env: EducationBatch):
        """(students, 1): what a step added to mastery, the domain's one further measure."""
        return (env.mastery / env.rules.top - numbers_before["mastery"])[:, None]

    def read_outcome(self, env: EducationBatch) -> dict[str, np.ndarray]:
        """What a step led to: columns of the step record, (students, ...) each."""
        return {"mastery_after": env.mastery / env.rules.top, "levels": env.levels}

    def describe_change(self, before: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
        """What a step did to one student."""
        return f"mastery {outcome['mastery_after'] - before['mastery']:+.3f}"

    def describe_rollout(
        self,
        before: Mapping[str, Any],
        outcomes: Sequence[Mapping[str, np.ndarray]],
        alive: np.ndarray,
    ) -> tuple[str, str]:
        """What one policy's rollout did.

        Args:
            before: Numbers of the state that the copies start from.
            outcomes: By step, what the copies came to: mastery_after (copies,), levels (copies, questions).
            alive: (steps, copies) whether a copy was still running.

        Returns:
            Details for a prompt, and the change of the state.
        """
        # A copy that has ended keeps the mastery that it ended with.
        mastery = outcomes[0]["mastery_after"].copy()
        mean_by_step = [mastery.mean()]
        for step in range(1, len(outcomes)):
            running = alive[step]
            mastery[running] = outcomes[step]["mastery_after"][running]
            mean_by_step.append(mastery.mean())

        levels = outcomes[0]["levels"][0]
        difficulties = " ".join(f"{level / (LEVELS - 1):.1f}" for level in levels if level >= 0)
        change = f"mastery {mean_by_step[-1] - before['mastery']:+.3f}"
        if len(outcomes) == 1:
            return f"difficulties {difficulties}", change
        course = " ".join(f"{value:.2f}" for value in mean_by_step)
        return f"first difficulties {difficulties}; mastery by step {course}", change


class MiniGridDescriber:
    """Reads a batch of rooms. Rewards are shares of an episode, so results add up over steps."""

    domain = MINIGRID
    averages_over_steps = False
    situations = tuple(
        f"gold left {gold}, lava {lava}" for gold in range(PIECES + 1) for lava in ("near", "far")
    )

    def __init__(self, environments: Environments) -> None:
        self.task = "composite"
        self.topic = ""
        self.horizon = environments.minigrid.horizon

    def read_numbers(self, env: GridBatch) -> dict[str, np.ndarray]:
        """The state as numbers, (rooms,) each."""
        gold_left = (env.board[:, :CELLS] == GOLD).sum(axis=1)
        # Lava behind the agent counts as far: no prompt names it either.
        return {"gold left": gold_left, "lava distance": env.measure_distance_in_view(LAVA)}

    def name_situations(self, numbers: Mapping[str, np.ndarray]) -> list[str]:
        """The row of a policy card that applies to each room."""
        names = []
        for gold, lava_distance in zip(*numbers.values(), strict=True):
            lava = "near" if lava_distance <= 1 else "far"
            names.append(f"gold left {gold}, lava {lava}")
        return names

    def describe_state(self, env: GridBatch, row: int) -> dict[str, str]:
        """The state of one room in words."""
        view = env.describe(row)
        column, line = view["position"]
        things = "; ".join(_describe_thing(thing) for thing in view["in_view"])
        return {
            "position": f"column {column}, row {line} of 4 x 4, heading {view['heading']}",
            "in front": view["in_front"],
            "in view": things or "nothing but floor and walls",
            "gold left": str(view["gold_left"]),
            "steps left": str(view["steps_left"]),
        }

    def measure_progress(self, numbers_before: Mapping[str, np.ndarray], env: GridBatch):
        """(rooms, 0): this domain has no further measure."""
        return np.zeros((env.num_envs, 0))

    def read_outcome(self, env: GridBatch) -> dict[str, np.ndarray]:
        """What a step led to: columns of the step record, (rooms,) each."""
        # A copy: the environment counts on in the same array.
        return {**env.outcomes, "gold_collected": env.gold_collected.copy()}

    def describe_change(self, before: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
        """What a step did to one room."""
        if outcome["success"]:
            return "reached the goal"
        if outcome["lava"]:
            return "stepped onto lava"
        return f"gold left {PIECES - int(outcome['gold_collected'])}"

    def describe_rollout(
        self,
        before: Mapping[str, Any],
        outcomes: Sequence[Mapping[str, np.ndarray]],
        alive: np.ndarray,
    ) -> tuple[str, str]:
        """What one policy's rollout did; arguments as for students."""
        goal = np.zeros(alive.shape[1], dtype=bool)
        lava = np.zeros(alive.shape[1], dtype=bool)
        for step, outcome in enumerate(outcomes):
            goal |= outcome["success"].astype(bool) & alive[step]
            lava |= outcome["lava"].astype(bool) & alive[step]
        return "", f"goal in {goal.mean():.0%} and lava in {lava.mean():.0%} of copies"


def _describe_thing(thing: Mapping) -> str:
    steps_right = thing["right"]  # below 0: to the left
    side = "straight"
    if steps_right:
        side = f"{abs(steps_right)} to the {'right' if steps_right > 0 else 'left'}"
    return f"{thing['what']} {thing['ahead']} ahead, {side}"


Describer = EducationDescriber | MiniGridDescriber
DESCRIBERS = {"education": EducationDescriber, "minigrid": MiniGridDescriber}
