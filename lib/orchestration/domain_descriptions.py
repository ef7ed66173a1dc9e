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
HIGH_MASTERY = 0.6  # divides the situations of a policy card (the rubric of PO, Figure 12)

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
    # Coarse descriptions of a state; a policy card has mean results for each of them.
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

    def read_state_features(self, env: EducationBatch) -> dict[str, np.ndarray]:
        """The state of every student in numbers, (students,) each: mastery, and how many failed questions are open."""
        return {
            "mastery": env.mastery / env.rules.top,
            "failed questions open": env.pending.sum(axis=1),
        }

    def name_situations(self, state_features: Mapping[str, np.ndarray]) -> list[str]:
        """Label the situation of each student, such as "mastery low, failed questions open".

        Policy cards hold a policy's mean results by situation, so the label says which of them apply.

        Args:
            state_features: (students,) by name, as `read_state_features` returns them.

        Returns:
            A label for each student.
        """
        mastery_by_student = state_features["mastery"]
        num_open_by_student = state_features["failed questions open"]
        situations = []
        for mastery, num_open in zip(mastery_by_student, num_open_by_student, strict=True):
            level = "high" if mastery >= HIGH_MASTERY else "low"
            questions = "failed questions open" if num_open else "no failed question open"
            situations.append(f"mastery {level}, {questions}")
        return situations

    def describe_state(self, env: EducationBatch, row: int) -> dict[str, str]:
        """The state of one student in words."""
        mastery = env.mastery[row] / env.rules.top
        return {
            "mastery": f"{mastery:.2f} (the episode ends at {self.goal:.2f})",
            "failed questions open": str(int(env.pending[row].sum())),
        }

    def measure_progress(self, features_before: Mapping[str, np.ndarray], env: EducationBatch):
        """(students, 1): what a step added to mastery, which a query may ask for beside the three objectives."""
        return (env.mastery / env.rules.top - features_before["mastery"])[:, None]

    def measure_after_step(self, env: EducationBatch) -> dict[str, np.ndarray]:
        """Mastery (students,) and levels of the questions that were asked (students, questions), after a step."""
        return {"mastery_after": env.mastery / env.rules.top, "levels": env.last_set.asked_levels}

    def describe_change(
        self, features_before: Mapping[str, Any], measurements_after: Mapping[str, Any]
    ) -> str:
        """What a step did to one student, such as "mastery +0.100"."""
        return f"mastery {measurements_after['mastery_after'] - features_before['mastery']:+.3f}"

    def describe_rollout(
        self,
        features_before: Mapping[str, Any],
        measurements: Sequence[Mapping[str, np.ndarray]],
        alive: np.ndarray,
    ) -> tuple[str, str]:
        """Describe in words for a prompt what a policy's simulated steps did to copies of one student.

        Args:
            features_before: The state that the copies start from, in numbers.
            measurements: By step, after it: mastery_after (copies,), levels (copies, questions).
            alive: (steps, copies) whether a copy was still running.

        Returns:
            Details for a prompt, such as "difficulties 0.8 0.8", and the change of the state, such as "mastery +0.100".
        """
        # A copy that has ended keeps the mastery that it ended with.
        mastery = measurements[0]["mastery_after"].copy()
        mean_by_step = [mastery.mean()]
        for step in range(1, len(measurements)):
            running = alive[step]
            mastery[running] = measurements[step]["mastery_after"][running]
            mean_by_step.append(mastery.mean())

        levels = measurements[0]["levels"][0]  # of the questions that the first copy was asked
        difficulties = " ".join(f"{level / (LEVELS - 1):.1f}" for level in levels if level >= 0)
        change = f"mastery {mean_by_step[-1] - features_before['mastery']:+.3f}"
        if len(measurements) == 1:
            return f"difficulties {difficulties}", change
        mastery_by_step = " ".join(f"{value:.2f}" for value in mean_by_step)
        return f"first difficulties {difficulties}; mastery by step {mastery_by_step}", change


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

    def read_state_features(self, env: GridBatch) -> dict[str, np.ndarray]:
        """The state of every room in numbers, (rooms,) each: gold left, and steps to the nearest lava in view."""
        gold_left = (env.board[:, :CELLS] == GOLD).sum(axis=1)
        # Lava behind the agent counts as far: no prompt names it either.
        return {"gold left": gold_left, "lava distance": env.measure_distance_in_view(LAVA)}

    def name_situations(self, state_features: Mapping[str, np.ndarray]) -> list[str]:
        """Label the situation of each room, such as "gold left 1, lava near".

        Policy cards hold a policy's mean results by situation, so the label says which of them apply.

        Args:
            state_features: (rooms,) by name, as `read_state_features` returns them.

        Returns:
            A label for each room.
        """
        gold_by_room = state_features["gold left"]
        lava_distance_by_room = state_features["lava distance"]
        situations = []
        for gold, lava_distance in zip(gold_by_room, lava_distance_by_room, strict=True):
            lava = "near" if lava_distance <= 1 else "far"
            situations.append(f"gold left {gold}, lava {lava}")
        return situations

    def describe_state(self, env: GridBatch, row: int) -> dict[str, str]:
        """Describe the state of one room: where the robot is, what it sees, and what is left of gold and time.

        Args:
            env: The rooms.
            row: Number of the room.

        Returns:
            Texts by name.
        """
        view = env.describe(row)
        column, line = view["position"]
        visible_objects = "; ".join(_describe_object(visible) for visible in view["in_view"])
        return {
            "position": f"column {column}, row {line} of 4 x 4, heading {view['heading']}",
            "in front": view["in_front"],
            "in view": visible_objects or "nothing but floor and walls",
            "gold left": str(view["gold_left"]),
            "steps left": str(view["steps_left"]),
        }

    def measure_progress(self, features_before: Mapping[str, np.ndarray], env: GridBatch):
        """(rooms, 0): rooms have no measure that a query may ask for beside the three objectives."""
        return np.zeros((env.num_envs, 0))

    def measure_after_step(self, env: GridBatch) -> dict[str, np.ndarray]:
        """What happened in every room up to a step, (rooms,) each: goal reached, lava hit, gold collected."""
        # A copy: the environment counts on in the same array.
        return {**env.outcomes, "gold_collected": env.gold_collected.copy()}

    def describe_change(
        self, features_before: Mapping[str, Any], measurements_after: Mapping[str, Any]
    ) -> str:
        """Describe what a step did in one room, such as "stepped onto lava" or "gold left 1".

        Args:
            features_before: Not read.
            measurements_after: Whether goal or lava was reached, and the gold so far.

        Returns:
            The text.
        """
        if measurements_after["success"]:
            return "reached the goal"
        if measurements_after["lava"]:
            return "stepped onto lava"
        return f"gold left {PIECES - int(measurements_after['gold_collected'])}"

    def describe_rollout(
        self,
        features_before: Mapping[str, Any],
        measurements: Sequence[Mapping[str, np.ndarray]],
        alive: np.ndarray,
    ) -> tuple[str, str]:
        """Describe in words for a prompt what a policy's simulated steps did in copies of one room.

        Args:
            features_before: Not read; rooms are described by what happens in them.
            measurements: By step, after it: success and lava, (copies,) each.
            alive: (steps, copies) whether a copy was still running.

        Returns:
            No details, and what became of the copies, such as "goal in 25% and lava in 0% of copies".
        """
        num_copies = alive.shape[1]
        has_reached_goal = np.zeros(num_copies, dtype=bool)
        has_hit_lava = np.zeros(num_copies, dtype=bool)
        for step, after_step in enumerate(measurements):
            has_reached_goal |= after_step["success"].astype(bool) & alive[step]
            has_hit_lava |= after_step["lava"].astype(bool) & alive[step]
        goal_share = has_reached_goal.mean()
        lava_share = has_hit_lava.mean()
        return "", f"goal in {goal_share:.0%} and lava in {lava_share:.0%} of copies"


def _describe_object(visible: Mapping) -> str:
    """Describe an object in the robot's view, such as "lava 2 ahead, 1 to the left".

    Args:
        visible: Kind of the object (what), and steps to it (ahead, right).

    Returns:
        The text.
    """
    steps_right = visible["right"]
    direction = "straight"
    if steps_right > 0:
        direction = f"{steps_right} to the right"
    elif steps_right < 0:
        direction = f"{-steps_right} to the left"
    return f"{visible['what']} {visible['ahead']} ahead, {direction}"


Describer = EducationDescriber | MiniGridDescriber
DESCRIBERS = {"education": EducationDescriber, "minigrid": MiniGridDescriber}
