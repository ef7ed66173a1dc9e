"""Question recommendation for one student (policy orchestration, appendix A.4).

`EducationRules` holds the numbers and the named decisions, `Education` one student as a Gymnasium
environment with a vector reward. The code below is written to be read; `education_batch` holds the
same rules as array arithmetic over many students, and a test keeps the two equal step for step.

Decisions where the paper is silent or contradicts itself are switches of `EducationRules`. Texts of
questions are left out: a question is its id, its topic and its level.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lib.experiment import seeds

LEVELS = 6  # difficulty levels of the bank, 1..6
OBJECTIVES = ("aptitude", "gap", "performance")  # d1, d2, d3
ACTIONS = ("failed", "easy", "challenge")
FAILED, EASY, CHALLENGE = range(3)
QUEUED, PENDING = range(
    2
)  # where a question comes from: its level's queue, or failed and still open
STREAM = "education"  # name of the environment's random streams
SLOTS = 64  # random numbers set aside for one step
SHUFFLE = 2**32  # counter from which the order of a level's questions is drawn
TALENT = SHUFFLE - 1  # counter of the number that decides a student's talent


@dataclass(frozen=True)
class EducationRules:
    """Everything that decides how a student reacts.

    items: (6,) questions per level of the target topic. `steps_per_level` mastery steps make one
    difficulty level of 0.2, so mastery is an integer number of steps and no comparison depends on
    rounding. `near_delta`: whether a failed question counts as close to mastery where |d - m| < delta
    (`below`, the paper's) or <= delta (`at_most`). `warmup`: what the five questions before step 1 do
    to mastery: nothing (`keep`; they fill the accuracies of the observation), set it to the share
    answered right (`measure`), or let NCC raise it (`ncc`). `ncc_rule`: which questions count for NCC
    (N consecutive correct). `ncc_scope`: whether a run of right answers carries over to the next set.
    `repeats`: where failed questions may come back. `solved`: whether a question answered right is never
    asked again (`retire`) or goes to the end of its level's queue (`requeue`). `spread`: half the range
    of talents, what a student answers above or below mastery; 0 in the paper, where mastery alone decides.

    Derived, in mastery steps: `top`, mastery 1; `goal_steps` and `initial_steps`; `hard_steps`: questions
    more than this above mastery are a challenge; `near_steps`: questions at most this away are near it.
    """

    items: tuple[int, ...]
    horizon: int = 50
    questions: int = 5
    discrimination: float = 4.0
    delta: float = 0.2
    near_delta: Literal["below", "at_most"] = "below"
    consecutive: int = 2
    goal: float = 0.8
    initial: float = 0.4
    steps_per_level: int = 1
    warmup: Literal["keep", "measure", "ncc"] = "keep"
    ncc_rule: Literal["at_or_above", "exact"] = "at_or_above"
    ncc_scope: Literal["episode", "set"] = "episode"
    repeats: Literal["everywhere", "not_easy", "failed_only"] = "everywhere"
    solved: Literal["retire", "requeue"] = "retire"
    spread: float = 0.0

    top: int = field(init=False)
    goal_steps: int = field(init=False)
    initial_steps: int = field(init=False)
    hard_steps: int = field(init=False)
    near_steps: int = field(init=False)

    def __post_init__(self) -> None:
        if len(self.items) != LEVELS or min(self.items) < 0 or sum(self.items) < self.questions:
            raise ValueError(
                f"items must give {LEVELS} counts >= 0 with a full set among them, got {self.items}"
            )
        if self.questions > SLOTS // 2:
            raise ValueError(f"questions must be <= {SLOTS // 2}, got {self.questions}")
        top = (LEVELS - 1) * self.steps_per_level
        # The tolerance undoes the rounding of products such as 0.2 * 15; comparisons are of integers.
        largest_at_most_delta = int(np.floor(self.delta * top + 1e-9))
        largest_below_delta = int(np.ceil(self.delta * top - 1e-9)) - 1
        includes_delta = self.near_delta == "at_most"
        derived = {
            "top": top,
            "goal_steps": int(np.ceil(self.goal * top - 1e-9)),
            "initial_steps": round(self.initial * top),
            "hard_steps": largest_at_most_delta,
            "near_steps": largest_at_most_delta if includes_delta else largest_below_delta,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def without_repeats(self) -> tuple[int, ...]:
        """The actions whose pool leaves failed questions out (until nothing else is left)."""
        if self.repeats == "everywhere":
            return ()
        if self.repeats == "not_easy":
            return (EASY,)
        return (EASY, CHALLENGE)  # failed_only

    @property
    def warmup_levels(self) -> list[int]:
        """The levels (from 0) of the warm-up questions, spread evenly over those that have any."""
        present = [level for level in range(LEVELS) if self.items[level] > 0]
        positions = np.linspace(0, len(present) - 1, self.questions)
        return [present[int(position + 0.5)] for position in positions]


def answer_probability(
    ability: np.ndarray, difficulty: np.ndarray, discrimination: float
) -> np.ndarray:
    """Probability of a right answer, by item response theory with two parameters (A.4).

    P = 1 / (1 + exp(-a (theta - d)))

    Args:
        ability: theta, in the units of mastery (0 to 1).
        difficulty: d, from 0 (level 1) to 1 (level 6); broadcasts with `ability`.
        discrimination: a.
    """
    advantage = np.asarray(ability) - np.asarray(difficulty)  # theta - d
    return 1.0 / (1.0 + np.exp(-discrimination * advantage))


def draw_talents(key: np.ndarray, spread: float) -> np.ndarray:
    """Draws how far the ability of each student lies above or below mastery.

    Args:
        key: (students,) uint64, the random streams of the students.
        spread: Half the range; the talents are uniform in -spread to spread.

    Returns:
        (students,) int64, in thousandths of mastery, so that copies of a state are exact.
    """
    direction = 2 * seeds.uniform(key, TALENT) - 1  # uniform in -1 to 1
    return np.rint(1000 * spread * direction).astype(np.int64)


class Education(gym.Env):
    """One student learns one skill from sets of five questions; see A.4 of the paper.

    ## Observation
    `Box(0, 1, (13,), float32)`: mastery; share of right answers at each of the 6 levels (0 where none
    was asked); share of the questions asked at each level that are failed and still open.

    ## Actions
    `Discrete(3)`, a recommendation strategy. A set is filled from the first questions of its order.
    0 *failed*: failed questions near mastery, closest first; then others closest to the failed ones.
    1 *easy*: questions not harder than mastery, closest to the last ones answered right. 2 *challenge*:
    questions more than delta above mastery, hardest first. When a pool runs dry the nearest level
    serves. Questions are asked once, except failed ones, which may come back, and others by `rules.solved`.

    ## Rewards
    `Box(0, 1, (3,))`: d1 aptitude, the mean of max(0, (d - m) / (1 - m)); d2 gap, the share of the set
    that had been failed before and is now right; d3 performance, the share answered right.

    ## Starting state
    Mastery `rules.initial`, then a warm-up of one set spread over the levels, not counted as a step.

    ## Episode end
    Terminates when mastery reaches `rules.goal`; truncates after `rules.horizon` steps.

    ## Arguments
    `rules`: an `EducationRules`; `ids`: optional, the question ids of each level, for `info["items"]`.

    ## Version history
    v0: initial version.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        rules: EducationRules,
        ids: list[list[int]] | None = None,
        render_mode: str | None = None,
    ):
        self.rules = rules
        self.render_mode = render_mode
        self.ids = ids or _number_questions(rules.items)
        if [len(level) for level in self.ids] != list(rules.items):
            raise ValueError("ids must list as many questions per level as rules.items counts")
        self.observation_space = spaces.Box(0.0, 1.0, (1 + 2 * LEVELS,), np.float32)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.reward_space = spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64)
        self.reward_dim = len(OBJECTIVES)
        self._key: np.uint64 | None = None

    # Gymnasium ---------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts an episode with a new student.

        Args:
            seed: Begins a random stream; None goes on with the stream of the last episode.
            options: Ignored; part of gymnasium's interface.

        Returns:
            Observation (13,) float32, and an info dictionary with the student's mastery.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._key = seeds.key(STREAM, seed=seed)
        elif self._key is None:
            self._key = seeds.key(STREAM, seed=int(self.np_random.integers(2**31)))
        else:
            self._key = seeds.next_key(self._key)
        self._begin()
        return self._observe(), {"mastery": self.mastery}

    def step(self, action: int):
        """Recommends a set of questions to the student, who answers them.

        Args:
            action: Index into ACTIONS, the kind of questions that are preferred.

        Returns:
            Observation (13,), reward (3,) (aptitude, gap, performance), terminated, truncated, and an info
            dictionary.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0, 1 or 2 ({', '.join(ACTIONS)}), got {action!r}")
        mastery_before = self.mastery_steps
        questions = self._recommend(int(action))
        correct = self._ask_questions(questions)
        reward = self._compute_reward(questions, correct, mastery_before)

        # The student learns only after the reward is computed, which refers to the mastery before.
        if self.rules.ncc_scope == "set":
            self.run = 0
        self._apply_ncc(questions, correct)
        self.t += 1

        terminated = self.mastery_steps >= self.rules.goal_steps
        truncated = self.t > self.rules.horizon and not terminated  # t counts from 1
        info = {
            "mastery": self.mastery,
            "items": [question_id for _, _, question_id in questions],
            "levels": [level + 1 for _, level, _ in questions],
            "correct": correct,
        }
        return self._observe(), reward, terminated, truncated, info

    def render(self) -> str:
        num_pending = sum(len(question_ids) for question_ids in self.pending)
        return f"step {self.t}: mastery {self.mastery:.2f}, {num_pending} failed questions open"

    # Rules -------------------------------------------------------------------------------------

    @property
    def mastery(self) -> float:
        return self.mastery_steps / self.rules.top

    def _begin(self) -> None:
        """Draws a student, resets all counts, and asks the warm-up set of questions."""
        self.t = 0
        self.mastery_steps = self.rules.initial_steps
        self.talent = int(draw_talents(self._key, self.rules.spread))
        self.run = 0  # length of the run of right answers that count for NCC
        # Levels of the right answers in the last set that had any.
        self.last_right_sum = 0
        self.last_right_count = 0
        # By level.
        self.asked = [0] * LEVELS  # answers
        self.right_count = [0] * LEVELS  # right answers
        self.num_met = [0] * LEVELS  # different questions that were asked
        # Ids of questions by level: those that may be asked, first to last, and those failed and still open.
        self.queue = [self._shuffle_questions(level) for level in range(LEVELS)]
        self.pending: list[list[int]] = [[] for _ in range(LEVELS)]

        # The warm-up set is asked at t = 0 and is no step of the episode.
        questions = []
        for level in self.rules.warmup_levels:
            questions.append((QUEUED, level, self.queue[level].pop(0)))
        correct = self._ask_questions(questions)
        if self.rules.warmup == "ncc":
            self._apply_ncc(questions, correct)
        elif self.rules.warmup == "measure":
            measured_steps = sum(correct) * self.rules.top // len(correct)
            # Below the goal, so that no episode is over before its first step.
            self.mastery_steps = min(measured_steps, self.rules.goal_steps - 1)
        self.run = 0
        self.t = 1

    def _shuffle_questions(self, level: int) -> list[int]:
        """The question ids of a level in the random order in which this student meets them."""
        counter = SHUFFLE + level * 4096 + np.arange(len(self.ids[level]))
        order = np.argsort(seeds.uniform(self._key, counter), kind="stable")
        return [self.ids[level][i] for i in order]

    def _recommend(self, action: int) -> list[tuple[int, int, int]]:
        """Chooses a set of questions in the order of preference of an action, and removes them from the pools.

        Args:
            action: Index into ACTIONS.

        Returns:
            (source, level, question id) of each question; fewer than `rules.questions` where the bank runs dry.
        """
        pools = {}
        for level in range(LEVELS):
            pools[QUEUED, level] = self.queue[level]
            pools[PENDING, level] = self.pending[level]
        filled_pools = [pool for pool in pools if pools[pool]]
        order = sorted(filled_pools, key=lambda pool: self._preference_key(action, *pool))

        questions: list[tuple[int, int, int]] = []
        for source, level in order:
            num_missing = self.rules.questions - len(questions)
            question_ids = pools[source, level][:num_missing]
            del pools[source, level][: len(question_ids)]
            questions += [(source, level, question_id) for question_id in question_ids]
        return questions

    def _preference_key(self, action: int, source: int, level: int) -> tuple[int, ...]:
        """Computes the sort key of a pool of questions; the action prefers the pool with the lowest key.

        Args:
            action: Index into ACTIONS.
            source: QUEUED (not asked yet) or PENDING (failed and still open).
            level: Level of the pool's questions, 0 to 5.

        Returns:
            Tier, distance, level, source; distances are whole numbers of mastery steps.
        """
        difficulty = level * self.rules.steps_per_level  # in mastery steps
        mastery = self.mastery_steps
        mastery_distance = abs(difficulty - mastery)

        if action == FAILED and source == PENDING:
            # Failed questions near mastery come first, those further away last.
            tier = 0 if mastery_distance <= self.rules.near_steps else 2
            return (tier, mastery_distance, level)
        if action == FAILED:
            # In between: queued questions, closest to the mean level of the failed ones.
            counts = [len(question_ids) for question_ids in self.pending]
            level_sum = sum(i * count for i, count in enumerate(counts))
            return (1, self._distance_to_mean(level, level_sum, sum(counts)), level)

        if source == PENDING and action in self.rules.without_repeats:
            return (9, mastery_distance, level)  # only when nothing else is left
        if action == EASY and difficulty <= mastery:
            last_right = self._distance_to_mean(level, self.last_right_sum, self.last_right_count)
            return (0, last_right, level, source)
        if action == EASY:
            return (1, difficulty, level, source)

        # CHALLENGE: the hardest first, before those that are not hard enough.
        tier = 0 if difficulty > mastery + self.rules.hard_steps else 1
        return (tier, -difficulty, level, source)

    def _distance_to_mean(self, level: int, level_sum: int, count: int) -> int:
        """|level - mean level| times the count, to stay exact; the distance to mastery where count = 0."""
        if count == 0:
            return abs(level * self.rules.steps_per_level - self.mastery_steps)
        return abs(level * count - level_sum)

    def _ask_questions(self, questions: list[tuple[int, int, int]]) -> list[bool]:
        """Lets the student answer a set of questions, and counts the answers.

        Args:
            questions: (source, level, question id) each.

        Returns:
            Whether each answer is right.
        """
        correct = [self._draw_answer(slot, level) for slot, (_, level, _) in enumerate(questions)]
        self._count_answers(questions, correct)
        return correct

    def _draw_answer(self, slot: int, level: int) -> bool:
        """Draws whether the student answers a question right (item response theory).

        Args:
            slot: Position of the question in the set, which chooses the random number.
            level: Level of the question, 0 to 5.
        """
        ability = self.mastery + self.talent / 1000  # mastery does not change within a set
        difficulty = level / (LEVELS - 1)
        probability = answer_probability(ability, difficulty, self.rules.discrimination)
        return bool(seeds.uniform(self._key, self.t * SLOTS + slot) < probability)

    def _count_answers(self, questions: list[tuple[int, int, int]], correct: list[bool]) -> None:
        """Adds the answers of a set to the counts by level, and moves the questions on.

        A question that was answered wrongly is pending; one answered right may return to its level's queue.

        Args:
            questions: (source, level, question id) each.
            correct: Whether each answer is right.
        """
        for (source, level, question_id), is_correct in zip(questions, correct, strict=True):
            self.asked[level] += 1
            self.right_count[level] += is_correct
            # The queue begins with all questions of the level; those that return to it stand behind them.
            if source == QUEUED and self.num_met[level] < self.rules.items[level]:
                self.num_met[level] += 1
            if not is_correct:
                self.pending[level].append(question_id)
            elif self.rules.solved == "requeue":
                self.queue[level].append(question_id)

        # A set without a right answer leaves the last right answers as they are.
        right_levels = []
        for (_, level, _), is_correct in zip(questions, correct, strict=True):
            if is_correct:
                right_levels.append(level)
        if right_levels:
            self.last_right_count = len(right_levels)
            self.last_right_sum = sum(right_levels)

    def _apply_ncc(self, questions: list[tuple[int, int, int]], correct: list[bool]) -> None:
        """Raises mastery by one step for every N consecutive correct answers (NCC, Kelly et al. 2016).

        Args:
            questions: (source, level, question id) of each question of the set.
            correct: Whether each was answered right.
        """
        for (_, level, _), is_correct in zip(questions, correct, strict=True):
            # Questions below mastery do not count; by the exact rule, harder ones do not either.
            difficulty = level * self.rules.steps_per_level  # in mastery steps
            next_level = self.mastery_steps + self.rules.steps_per_level
            too_easy = difficulty < self.mastery_steps
            too_hard = self.rules.ncc_rule == "exact" and difficulty >= next_level
            if too_easy or too_hard:
                continue

            self.run = self.run + 1 if is_correct else 0
            if self.run >= self.rules.consecutive:
                self.mastery_steps = min(self.mastery_steps + 1, self.rules.top)
                self.run = 0

    def _compute_reward(
        self, questions: list[tuple[int, int, int]], correct: list[bool], mastery_before: int
    ) -> np.ndarray:
        """Computes the reward vector of a set of questions.

        Args:
            questions: (source, level, question id) each.
            correct: Whether each was answered right.
            mastery_before: Mastery before the set, in steps.

        Returns:
            (3,) means over the questions: aptitude (how far above mastery, as a share of what is left to learn), gap
            (failed questions that are now answered right), and performance (right answers).
        """
        if not questions:
            return np.zeros(len(OBJECTIVES))
        # 1 - m in steps; aptitude is 0 at m = 1 anyway.
        steps_to_top = max(1, self.rules.top - mastery_before)
        steps_above = 0
        gaps_closed = 0
        for (source, level, _), is_correct in zip(questions, correct, strict=True):
            steps_above += max(0, level * self.rules.steps_per_level - mastery_before)
            gaps_closed += source == PENDING and is_correct
        aptitude = steps_above / steps_to_top
        return np.array([aptitude, gaps_closed, sum(correct)]) / len(questions)

    def _observe(self) -> np.ndarray:
        """Computes the observation: mastery, accuracy by level, share of failed questions by level; (13,) float32."""
        accuracy = []
        failed = []
        for level in range(LEVELS):
            num_answered = self.asked[level]
            num_met = self.num_met[level]
            num_pending = len(self.pending[level])
            accuracy.append(self.right_count[level] / max(1, num_answered))
            failed.append(num_pending / max(1, num_met))
        return np.array([self.mastery, *accuracy, *failed], dtype=np.float32)


def _number_questions(items: tuple[int, ...]) -> list[list[int]]:
    """Question ids 0, 1, 2 ... by level, for a bank of which only the counts are known."""
    ends = np.cumsum(items)
    return [list(range(end - count, end)) for count, end in zip(items, ends, strict=True)]
