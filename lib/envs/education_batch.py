"""Many students at once: the rules of `education` as array arithmetic.

Questions of one level are exchangeable, so a student is a few integers: how many questions of each
level are unseen and how many are failed and open. A set is filled from 12 pools (unseen and failed,
by level) in the order of preference of the action. Equal to `Education` step for step, except that
question ids are not kept.
"""

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
    talents,
)
from lib.experiment import seeds

_LEVEL = np.arange(LEVELS)
_TIER = 1 << 20  # larger than any distance: what separates one tier of preference from the next
_NONE = 2 * LEVELS  # pool index of "no question left"


class EducationBatch(BatchedEnv):
    """B students; observation (B, 13) float32, action (B,), reward (B, 3).

    State arrays: t, mastery, talent, run, last_right_sum, last_right_count (B,); unseen, pending, asked,
    right_count (B, 6). Random numbers are those of `Education` under the same seed.
    """

    name = STREAM
    fields = (
        "t",
        "mastery",
        "talent",
        "run",
        "last_right_sum",
        "last_right_count",
        "unseen",
        "pending",
        "asked",
        "right_count",
    )

    def __init__(self, rules: EducationRules, num_envs: int, seed: int = 0) -> None:
        self.rules = rules
        self._left_out = np.isin(np.arange(len(ACTIONS)), rules.without_repeats)
        for name in self.fields:
            shape = (num_envs, LEVELS) if name in self.fields[6:] else (num_envs,)
            setattr(self, name, np.zeros(shape, dtype=np.int64))
        self.levels = np.zeros(
            (num_envs, rules.questions), dtype=np.int64
        )  # of the last set, for display
        super().__init__(
            num_envs,
            spaces.Box(0.0, 1.0, (1 + 2 * LEVELS,), np.float32),
            spaces.Discrete(len(ACTIONS)),
            spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64),
            seed,
        )

    def _begin(self, rows: np.ndarray) -> None:
        for name in self.fields:
            getattr(self, name)[rows] = 0
        self.mastery[rows] = self.rules.initial_steps
        self.talent[rows] = talents(self.key[rows], self.rules.spread)
        self.unseen[rows] = self.rules.items
        level = np.tile(self.rules.warmup_levels, (rows.size, 1))
        correct = self._answer(rows, level, np.ones(level.shape, dtype=bool))
        self._count(
            rows,
            level,
            correct,
            np.zeros(level.shape, dtype=bool),
            np.ones(level.shape, dtype=bool),
        )
        if self.rules.warmup == "ncc":
            self._apply_ncc(rows, level, correct, np.ones(level.shape, dtype=bool))
        elif self.rules.warmup == "measure":
            share = correct.sum(1) * self.rules.top // level.shape[1]
            self.mastery[rows] = np.minimum(share, self.rules.goal_steps - 1)
        self.run[rows] = 0
        self.t[rows] = 1

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.arange(self.num_envs)
        before = self.mastery.copy()
        level, repeated, asked = self._recommend(actions)
        correct = self._answer(rows, level, asked)
        reward = self._reward(level, repeated, asked, correct, before)
        self._count(rows, level, correct, repeated, asked)
        if self.rules.ncc_scope == "set":
            self.run[:] = 0
        self._apply_ncc(rows, level, correct, asked)
        terminated = self.mastery >= self.rules.goal_steps
        truncated = (self.t >= self.rules.horizon) & ~terminated
        self.t += 1
        self.levels = np.where(asked, level, -1)
        return reward, terminated, truncated

    def _recommend(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sets: level (B, q), whether it had been failed before (B, q), whether there is one."""
        pools = np.concatenate([self.unseen, self.pending], axis=1)  # (B, 12)
        order = np.argsort(self._preference(actions), axis=1, kind="stable")
        filled = np.take_along_axis(pools, order, axis=1).cumsum(axis=1)
        slots = np.arange(self.rules.questions)
        place = (filled[:, None, :] <= slots[None, :, None]).sum(
            axis=2
        )  # (B, q) first pool not used up
        asked = place < _NONE
        pool = np.take_along_axis(order, np.minimum(place, _NONE - 1), axis=1)
        return pool % LEVELS, (pool >= LEVELS) & asked, asked

    def _preference(self, actions: np.ndarray) -> np.ndarray:
        """Sort keys (B, 12) of the pools, lowest first: tier, distance, level, source."""
        place = _LEVEL * self.rules.steps_per_level
        mastery = self.mastery[:, None]
        near = np.abs(place - mastery)
        keys = np.empty((self.num_envs, 2, LEVELS), dtype=np.int64)

        easy = np.where(
            place <= mastery,
            self._distance(self.last_right_sum, self.last_right_count),
            _TIER + place,
        )
        hard = np.where(place > mastery + self.rules.delta_steps, -place, _TIER - place)
        count = self.pending.sum(axis=1)
        similar = _TIER + self._distance(self.pending @ _LEVEL, count)
        review = np.where(near <= self.rules.delta_steps, near, 2 * _TIER + near)

        chosen = np.where((actions == EASY)[:, None], easy, hard)
        is_failed = (actions == FAILED)[:, None]
        keys[:, 0] = np.where(is_failed, similar, chosen)
        left_out = self._left_out[actions][:, None]
        again = np.where(left_out, 9 * _TIER + near, chosen)
        keys[:, 1] = np.where(is_failed, review, again)
        tie_break = 2 * _LEVEL + np.array([[0], [1]])  # level, then unseen before failed
        return (keys * (4 * LEVELS) + tie_break).reshape(self.num_envs, 2 * LEVELS)

    def _distance(self, level_sum: np.ndarray, count: np.ndarray) -> np.ndarray:
        """|level - mean level| times the count, (B, 6), or the distance to mastery where count = 0."""
        to_mean = np.abs(_LEVEL * count[:, None] - level_sum[:, None])
        to_mastery = np.abs(_LEVEL * self.rules.steps_per_level - self.mastery[:, None])
        return np.where(count[:, None] > 0, to_mean, to_mastery)

    def _answer(self, rows: np.ndarray, level: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Right or wrong, (n, q) bool."""
        ability = self.mastery[rows, None] / self.rules.top + self.talent[rows, None] / 1000
        p = answer_probability(ability, level / (LEVELS - 1), self.rules.discrimination)
        slot = self.t[rows, None] * SLOTS + np.arange(level.shape[1])
        return (seeds.uniform(self.key[rows, None], slot) < p) & asked

    def _count(self, rows, level, correct, repeated, asked) -> None:
        """Book the answers of a set into the counts by level."""
        cell = np.arange(rows.size)[:, None] * LEVELS + level
        self._add(self.asked, rows, cell, asked)
        self._add(self.right_count, rows, cell, correct)
        self._add(self.unseen, rows, cell, asked & ~repeated, sign=-1)
        self._add(self.pending, rows, cell, asked & ~correct & ~repeated)
        self._add(self.pending, rows, cell, correct & repeated, sign=-1)
        number = correct.sum(axis=1)
        some = number > 0
        self.last_right_count[rows[some]] = number[some]
        self.last_right_sum[rows[some]] = (level * correct).sum(axis=1)[some]

    @staticmethod
    def _add(array: np.ndarray, rows, cell, which, sign: int = 1) -> None:
        array[rows] += sign * np.bincount(cell[which], minlength=rows.size * LEVELS).reshape(
            -1, LEVELS
        )

    def _apply_ncc(self, rows, level, correct, asked) -> None:
        """N consecutive correct, question by question; mastery may rise within a set."""
        mastery, run = self.mastery[rows], self.run[rows]
        for slot in range(level.shape[1]):
            place = level[:, slot] * self.rules.steps_per_level
            counts = asked[:, slot] & (place >= mastery)
            if self.rules.ncc_rule == "exact":
                counts &= place < mastery + self.rules.steps_per_level
            run = np.where(counts, np.where(correct[:, slot], run + 1, 0), run)
            rises = run >= self.rules.consecutive
            mastery = np.minimum(mastery + rises, self.rules.top)
            run[rises] = 0
        self.mastery[rows], self.run[rows] = mastery, run

    def _reward(self, level, repeated, asked, correct, before) -> np.ndarray:
        number = np.maximum(1, asked.sum(axis=1))
        above = np.maximum(0, level * self.rules.steps_per_level - before[:, None]) * asked
        aptitude = above.sum(axis=1) / np.maximum(1, self.rules.top - before)
        gap = (repeated & correct).sum(axis=1)
        return np.stack([aptitude, gap, correct.sum(axis=1)], axis=1) / number[:, None]

    def _observe(self) -> np.ndarray:
        seen = np.array(self.rules.items) - self.unseen
        accuracy = self.right_count / np.maximum(1, self.asked)
        failed = self.pending / np.maximum(1, seen)
        mastery = self.mastery[:, None] / self.rules.top
        return np.concatenate([mastery, accuracy, failed], axis=1).astype(np.float32)
