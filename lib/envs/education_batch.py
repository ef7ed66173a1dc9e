"""Many students at once: the rules of `education` as array arithmetic.

Questions of one level are exchangeable, so a student is a few integers: how many questions of each
level are queued and how many are failed and open. A set is filled from 12 pools (queued and failed,
by level) in the order of preference of the action. Equal to `Education` step for step, except that
question ids are not kept.
"""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from lib.envs.batched_env import BatchedEnv
from lib.envs.education import (
    ACTIONS,
    EASY,
    FAILED,
    LEVELS,
    OBJECTIVES,
    SLOTS,
    STREAM,
    EducationRules,
    answer_probability,
    draw_talents,
)
from lib.experiment import seeds

_LEVEL = np.arange(LEVELS)
Rows = np.ndarray | slice
_EVERY_ROW = slice(None)  # a view, where an array of indices would copy
_TIER = 1 << 20  # larger than any distance: what separates one tier of preference from the next
_TIE_BREAK = np.concatenate([2 * _LEVEL, 2 * _LEVEL + 1])  # by level, then queued before failed
_NONE = 2 * LEVELS  # pool index of "no question left"

# Made once: a look-ahead makes an environment of copies each time, and a space takes longer than the environment.
_OBSERVATION_SPACE = spaces.Box(0.0, 1.0, (1 + 2 * LEVELS,), np.float32)
_ACTION_SPACE = spaces.Discrete(len(ACTIONS))
_REWARD_SPACE = spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64)


@dataclass(frozen=True)
class AnsweredSet:
    """The questions that students were asked last, all (students, questions).

    Attributes:
        level: int, 0 to 5.
        is_filled: Whether there is a question.
        correct: Whether the answer was right.
        counts: Whether the question counted for mastery.
    """

    level: np.ndarray
    is_filled: np.ndarray
    correct: np.ndarray
    counts: np.ndarray

    @property
    def asked_levels(self) -> np.ndarray:
        """(students, questions) int, -1 where there is no question."""
        return np.where(self.is_filled, self.level, -1)

    @property
    def num_counted(self) -> np.ndarray:
        """(students,) how many questions counted for mastery."""
        return self.counts.sum(axis=1)

    @property
    def num_counted_correct(self) -> np.ndarray:
        """(students,) how many of them were answered right."""
        return (self.counts & self.correct).sum(axis=1)


class EducationBatch(BatchedEnv):
    """B students; observation (B, 13) float32, action (B,), reward (B, 3).

    State arrays: t, mastery, talent, run, last_right_sum, last_right_count (B,); queued, pending, asked,
    right_count, num_met (B, 6). Random numbers are those of `Education` under the same seed.

    Attributes:
        last_set: The questions of the last step, for display.
    """

    name = STREAM
    fields = (
        "t",
        "mastery",
        "talent",
        "run",
        "last_right_sum",
        "last_right_count",
        "queued",
        "pending",
        "asked",
        "right_count",
        "num_met",
    )

    def __init__(self, rules: EducationRules, num_envs: int, seed: int = 0) -> None:
        self.rules = rules
        # (actions,) whether failed questions stay out of the set
        self._skips_repeats = np.zeros(len(ACTIONS), dtype=bool)
        self._skips_repeats[list(rules.without_repeats)] = True
        self._difficulty = _LEVEL * rules.steps_per_level  # (levels,) in mastery steps
        for name in self.fields:
            shape = (num_envs, LEVELS) if name in self.fields[6:] else (num_envs,)
            setattr(self, name, np.zeros(shape, dtype=np.int64))
        no_questions = np.zeros((num_envs, rules.questions), dtype=bool)
        levels = no_questions.astype(np.int64)
        self.last_set = AnsweredSet(levels, no_questions, no_questions, no_questions)
        super().__init__(
            num_envs,
            observation_space=_OBSERVATION_SPACE,
            action_space=_ACTION_SPACE,
            reward_space=_REWARD_SPACE,
            seed=seed,
        )

    def _begin(self, rows: np.ndarray) -> None:
        """Draws a student for each of some rows, resets their counts, and asks the warm-up set.

        Args:
            rows: (n,) indices of the rows whose episodes begin.
        """
        for name in self.fields:
            getattr(self, name)[rows] = 0
        self.mastery[rows] = self.rules.initial_steps
        self.talent[rows] = draw_talents(self.key[rows], self.rules.spread)
        self.queued[rows] = self.rules.items

        # The warm-up set: nobody has failed a question before.
        level = np.tile(self.rules.warmup_levels, (rows.size, 1))  # (n, questions)
        is_filled = np.ones(level.shape, dtype=bool)
        is_repeat = np.zeros(level.shape, dtype=bool)
        correct = self._draw_answers(rows, level, is_filled)
        self._count_answers(rows, level, correct, is_repeat, is_filled)
        if self.rules.warmup == "ncc":
            self._apply_ncc(rows, level, correct, is_filled)
        elif self.rules.warmup == "measure":
            measured_steps = correct.sum(1) * self.rules.top // level.shape[1]
            self.mastery[rows] = np.minimum(measured_steps, self.rules.goal_steps - 1)
        self.run[rows] = 0
        self.t[rows] = 1

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Makes one step of every row: a set of questions is recommended and answered, then mastery may rise.

        Args:
            actions: (B,) indices into ACTIONS.

        Returns:
            Reward (B, 3), terminated (B,), truncated (B,).
        """
        level, is_repeat, is_filled = self._recommend(actions)
        correct = self._draw_answers(_EVERY_ROW, level, is_filled)
        reward = self._compute_reward(level, is_repeat, is_filled, correct)
        self._count_answers(_EVERY_ROW, level, correct, is_repeat, is_filled)
        if self.rules.ncc_scope == "set":
            self.run[:] = 0
        counts = self._apply_ncc(_EVERY_ROW, level, correct, is_filled)
        terminated = self.mastery >= self.rules.goal_steps
        truncated = (self.t >= self.rules.horizon) & ~terminated
        self.t += 1
        self.last_set = AnsweredSet(level, is_filled, correct, counts)
        return reward, terminated, truncated

    def _recommend(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chooses a set of questions for every student, in the order of preference of the action.

        Args:
            actions: (B,) indices into ACTIONS.

        Returns:
            level: (B, questions) int, 0 to 5.
            is_repeat: (B, questions) bool, whether the question had been failed before.
            is_filled: (B, questions) bool; False where the bank had no question left.
        """
        pool_sizes = np.concatenate([self.queued, self.pending], axis=1)  # (B, 12)
        preference_keys = self._preference_keys(actions)
        order = np.argsort(preference_keys, axis=1, kind="stable")
        student = np.arange(self.num_envs)[:, None]
        sizes_in_order = pool_sizes[student, order]
        cumulative = sizes_in_order.cumsum(axis=1)  # (B, 12)

        # Each slot takes the first pool, in this order, that the slots before have not used up.
        slots = np.arange(self.rules.questions)
        used_up = cumulative[:, None, :] <= slots[None, :, None]  # (B, questions, 12)
        rank = used_up.sum(axis=2)  # (B, questions)
        is_filled = rank < _NONE
        rank_of_pool = np.minimum(rank, _NONE - 1)  # slots without a question: any pool
        pool = order[student, rank_of_pool]
        level = pool % LEVELS
        is_repeat = (pool >= LEVELS) & is_filled
        return level, is_repeat, is_filled

    def _preference_keys(self, actions: np.ndarray) -> np.ndarray:
        """Computes sort keys of the 12 pools of questions (6 levels, queued or failed), lowest first.

        A key orders by tier, distance, level and source; `Education._preference_key` is the same for one student.

        Args:
            actions: (B,) indices into ACTIONS.

        Returns:
            (B, 12) int, the queued pools of all levels before the failed ones.
        """
        difficulty = self._difficulty
        mastery = self.mastery[:, None]  # (B, 1)
        mastery_distance = np.abs(difficulty - mastery)  # (B, levels)
        is_easy = difficulty <= mastery
        is_hard = difficulty > mastery + self.rules.hard_steps
        is_near = mastery_distance <= self.rules.near_steps

        # Keys of each rule, (B, levels).
        last_right = _compute_distance_to_mean(
            self.last_right_sum, self.last_right_count, mastery_distance
        )
        easy = np.where(is_easy, last_right, _TIER + difficulty)
        challenge = np.where(is_hard, -difficulty, _TIER - difficulty)
        num_pending = self.pending.sum(axis=1)
        pending_level_sum = self.pending @ _LEVEL  # sum over the levels of pending x level, (B,)
        like_failed = _TIER + _compute_distance_to_mean(
            pending_level_sum, num_pending, mastery_distance
        )
        review = np.where(is_near, mastery_distance, 2 * _TIER + mastery_distance)

        # The rule of each student's action, for queued questions and for failed ones.
        is_easy_action = (actions == EASY)[:, None]  # (B, 1)
        reviews_failed = (actions == FAILED)[:, None]
        easy_or_challenge = np.where(is_easy_action, easy, challenge)
        skips_repeats = self._skips_repeats[actions][:, None]
        repeat = np.where(skips_repeats, 9 * _TIER + mastery_distance, easy_or_challenge)
        queued_keys = np.where(reviews_failed, like_failed, easy_or_challenge)
        failed_keys = np.where(reviews_failed, review, repeat)
        keys = np.concatenate([queued_keys, failed_keys], axis=1)
        return keys * (4 * LEVELS) + _TIE_BREAK

    def _draw_answers(self, rows: Rows, level: np.ndarray, is_filled: np.ndarray) -> np.ndarray:
        """Draws whether each student answers each question of a set right (item response theory).

        Args:
            rows: (n,) indices of the students, or a slice.
            level: (n, questions) int, 0 to 5.
            is_filled: (n, questions) bool; False where there is no question.

        Returns:
            (n, questions) bool.
        """
        mastery = self.mastery[rows, None] / self.rules.top  # (n, 1)
        ability = mastery + self.talent[rows, None] / 1000
        difficulty = level / (LEVELS - 1)  # (n, questions)
        probability = answer_probability(ability, difficulty, self.rules.discrimination)
        slots = np.arange(level.shape[1])
        counter = self.t[rows, None] * SLOTS + slots
        draws = seeds.uniform(self.key[rows, None], counter)
        return (draws < probability) & is_filled

    def _count_answers(
        self,
        rows: Rows,
        level: np.ndarray,
        correct: np.ndarray,
        is_repeat: np.ndarray,
        is_filled: np.ndarray,
    ) -> None:
        """Adds the answers of a set to the counts by level.

        Args:
            rows: (n,) indices of the students, or a slice.
            level: (n, questions) int, 0 to 5.
            correct: (n, questions) bool, whether each answer is right.
            is_repeat: (n, questions) bool, whether the question had been failed before.
            is_filled: (n, questions) bool; False where there is no question.
        """
        # index of (student, level) in the flattened counts, (n, questions)
        num_students = len(level)
        student = np.arange(num_students)[:, None]  # (n, 1)
        cell = student * LEVELS + level

        def count_by_level(selected: np.ndarray) -> np.ndarray:
            """How many selected questions each student has at each level, (n, levels)."""
            counts = np.bincount(cell[selected], minlength=num_students * LEVELS)
            return counts.reshape(-1, LEVELS)

        num_queued = count_by_level(is_filled & ~is_repeat)
        num_correct_by_level = count_by_level(correct)
        self.asked[rows] += count_by_level(is_filled)
        self.right_count[rows] += num_correct_by_level
        self.queued[rows] -= num_queued
        if self.rules.solved == "requeue":
            self.queued[rows] += num_correct_by_level
        # Questions asked for the first time are open until they are answered right, now or as repeats.
        self.pending[rows] += num_queued - num_correct_by_level
        # Questions that return to a queue stand behind all that were never asked.
        self.num_met[rows] = np.minimum(self.num_met[rows] + num_queued, self.rules.items)

        # Sets without a right answer leave the last right answers as they are.
        num_correct = correct.sum(axis=1)  # (n,)
        level_sum = (level * correct).sum(axis=1)  # (n,)
        has_correct = num_correct > 0
        self.last_right_count[rows] = np.where(
            has_correct, num_correct, self.last_right_count[rows]
        )
        self.last_right_sum[rows] = np.where(has_correct, level_sum, self.last_right_sum[rows])

    def _apply_ncc(
        self,
        rows: Rows,
        level: np.ndarray,
        correct: np.ndarray,
        is_filled: np.ndarray,
    ) -> np.ndarray:
        """Raises mastery by one step for every N consecutive correct answers; it may rise within a set.

        Args:
            rows: (n,) indices of the students, or a slice.
            level: (n, questions) int, 0 to 5.
            correct: (n, questions) bool, whether each answer is right.
            is_filled: (n, questions) bool; False where there is no question.

        Returns:
            Which questions counted, (n, questions) bool.
        """
        mastery = self.mastery[rows]
        run = self.run[rows]
        counts = np.zeros(level.shape, dtype=bool)
        difficulty = level * self.rules.steps_per_level  # (n, questions) in mastery steps
        for slot in range(level.shape[1]):
            slot_counts = is_filled[:, slot] & (difficulty[:, slot] >= mastery)
            if self.rules.ncc_rule == "exact":
                slot_counts &= difficulty[:, slot] < mastery + self.rules.steps_per_level
            counts[:, slot] = slot_counts
            next_run = (run + 1) * correct[:, slot]  # 0 after a wrong answer
            run = np.where(slot_counts, next_run, run)
            rises = run >= self.rules.consecutive
            mastery = np.minimum(mastery + rises, self.rules.top)
            run[rises] = 0
        self.mastery[rows] = mastery
        self.run[rows] = run
        return counts

    def _compute_reward(
        self,
        level: np.ndarray,
        is_repeat: np.ndarray,
        is_filled: np.ndarray,
        correct: np.ndarray,
    ) -> np.ndarray:
        """Computes the reward vectors of a set of questions, before its answers change mastery.

        `Education` explains the three rewards.

        Args:
            level: (B, questions) int, 0 to 5.
            is_repeat: (B, questions) bool, whether the question had been failed before.
            is_filled: (B, questions) bool; False where there is no question.
            correct: (B, questions) bool, whether each answer is right.

        Returns:
            (B, 3) means over the questions: aptitude, gap, performance.
        """
        num_questions = np.maximum(1, is_filled.sum(axis=1))  # (B,)
        difficulty = level * self.rules.steps_per_level  # (B, questions)
        difference = difficulty - self.mastery[:, None]
        steps_above = np.maximum(0, difference) * is_filled
        steps_to_top = np.maximum(1, self.rules.top - self.mastery)
        aptitude = steps_above.sum(axis=1) / steps_to_top
        reward = np.empty((self.num_envs, len(OBJECTIVES)))
        reward[:, 0] = aptitude
        reward[:, 1] = (is_repeat & correct).sum(axis=1)  # gaps closed
        reward[:, 2] = correct.sum(axis=1)  # performance
        reward /= num_questions[:, None]
        return reward

    def _observe(self) -> np.ndarray:
        accuracy = self.right_count / np.maximum(1, self.asked)  # (B, levels)
        failed = self.pending / np.maximum(1, self.num_met)
        mastery = self.mastery[:, None] / self.rules.top  # (B, 1)
        observation = np.concatenate([mastery, accuracy, failed], axis=1)
        return observation.astype(np.float32)


def _compute_distance_to_mean(
    level_sum: np.ndarray, count: np.ndarray, mastery_distance: np.ndarray
) -> np.ndarray:
    """Compute how far every level is from the mean level of some questions, times their number.

    Args:
        level_sum: (B,) int, sum of the levels of each student's questions.
        count: (B,) int, number of these questions.
        mastery_distance: (B, levels) int, what counts where a student has none of them.

    Returns:
        (B, levels) int.
    """
    count = count[:, None]  # (B, 1)
    to_mean = np.abs(_LEVEL * count - level_sum[:, None])
    return np.where(count > 0, to_mean, mastery_distance)
