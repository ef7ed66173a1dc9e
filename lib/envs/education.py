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
UNSEEN, PENDING = range(2)  # where a question comes from: never asked, or failed and still open
STREAM = "education"  # name of the environment's random streams
SLOTS = 64  # random numbers set aside for one step
SHUFFLE = 2**32  # counter from which the order of a level's questions is drawn
TALENT = SHUFFLE - 1  # counter of the number that decides a student's talent


@dataclass(frozen=True)
class EducationRules:
    """Everything that decides how a student reacts.

    items: (6,) questions per level of the target topic. `steps_per_level` mastery steps make one
    difficulty level of 0.2, so mastery is an integer number of steps and no comparison depends on
    rounding. `warmup`: what the five questions before step 1 do to mastery: nothing (`keep`), set it
    to the share answered right (`measure`), or let NCC raise it (`ncc`). `ncc_rule`: which questions
    count for NCC. `ncc_scope`: whether a run of right answers carries over to the next set.
    `repeats`: where failed questions may come back. `spread`: half the range of talents, what a student
    answers above or below mastery; 0 in the paper's world, where mastery tells all.
    """

    items: tuple[int, ...]
    horizon: int = 50
    questions: int = 5
    discrimination: float = 4.0
    delta: float = 0.2
    consecutive: int = 2
    goal: float = 0.8
    initial: float = 0.4
    steps_per_level: int = 1
    warmup: Literal["keep", "measure", "ncc"] = "keep"
    ncc_rule: Literal["at_or_above", "exact"] = "at_or_above"
    ncc_scope: Literal["episode", "set"] = "episode"
    repeats: Literal["everywhere", "not_easy", "failed_only"] = "everywhere"
    spread: float = 0.0

    top: int = field(init=False)  # mastery 1.0, in steps
    goal_steps: int = field(init=False)
    initial_steps: int = field(init=False)
    delta_steps: int = field(init=False)

    def __post_init__(self) -> None:
        if len(self.items) != LEVELS or min(self.items) < 0 or sum(self.items) < self.questions:
            raise ValueError(
                f"items must give {LEVELS} counts >= 0 with a full set among them, got {self.items}"
            )
        if self.questions > SLOTS // 2:
            raise ValueError(f"questions must be <= {SLOTS // 2}, got {self.questions}")
        top = (LEVELS - 1) * self.steps_per_level
        derived = {
            "top": top,
            "goal_steps": int(np.ceil(self.goal * top - 1e-9)),
            "initial_steps": round(self.initial * top),
            "delta_steps": int(np.floor(self.delta * top + 1e-9)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def without_repeats(self) -> tuple[int, ...]:
        """The actions whose pool leaves failed questions out (until nothing else is left)."""
        return {"everywhere": (), "not_easy": (EASY,), "failed_only": (EASY, CHALLENGE)}[
            self.repeats
        ]

    @property
    def warmup_levels(self) -> list[int]:
        """The levels (from 0) of the warm-up questions, spread evenly over those that have any."""
        present = [level for level in range(LEVELS) if self.items[level] > 0]
        places = np.linspace(0, len(present) - 1, self.questions)
        return [present[int(place + 0.5)] for place in places]


def answer_probability(
    ability: np.ndarray, difficulty: np.ndarray, discrimination: float
) -> np.ndarray:
    """Item response theory, two parameters: P = 1 / (1 + exp(-a (theta - d))) (A.4)."""
    return 1.0 / (1.0 + np.exp(-discrimination * (np.asarray(ability) - np.asarray(difficulty))))


def talents(key: np.ndarray, spread: float) -> np.ndarray:
    """What each student of the streams `key` answers above or below mastery, in thousandths of it, even in +-spread."""
    return np.rint(1000 * spread * (2 * seeds.uniform(key, TALENT) - 1)).astype(np.int64)


class Education(gym.Env):
    """One student learns one skill from sets of five questions; see A.4 of the paper.

    ## Observation
    `Box(0, 1, (13,), float32)`: mastery; share of right answers at each of the 6 levels (0 where none
    was asked); share of the questions asked at each level that are failed and still open.

    ## Actions
    `Discrete(3)`, a recommendation strategy. A set is filled from the first questions of its order.
    0 *failed*: failed questions within delta of mastery, closest first; then unseen ones closest to
    the failed ones. 1 *easy*: questions not harder than mastery, closest to the last ones answered
    right. 2 *challenge*: questions more than delta above mastery, hardest first. When a pool runs dry
    the nearest level serves. Questions are asked once, except failed ones, which may come back.

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
        self.rules, self.render_mode = rules, render_mode
        self.ids = ids or _numbered(rules.items)
        if [len(level) for level in self.ids] != list(rules.items):
            raise ValueError("ids must list as many questions per level as rules.items counts")
        self.observation_space = spaces.Box(0.0, 1.0, (1 + 2 * LEVELS,), np.float32)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.reward_space = spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64)
        self.reward_dim = len(OBJECTIVES)
        self._key: np.uint64 | None = None

    # Gymnasium ---------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self._key = seeds.key(STREAM, seed=seed)
        elif self._key is None:
            self._key = seeds.key(STREAM, seed=int(self.np_random.integers(2**31)))
        else:
            self._key = seeds.next_key(self._key)
        self._begin()
        return self._observation(), {"mastery": self.mastery}

    def step(self, action: int):
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0, 1 or 2 ({', '.join(ACTIONS)}), got {action!r}")
        before = self.mastery_steps
        chosen = self._recommend(int(action))
        right = self._ask(chosen)
        reward = self._reward(chosen, right, before)
        self._learn(chosen, right)
        terminated = self.mastery_steps >= self.rules.goal_steps
        truncated = self.t > self.rules.horizon and not terminated  # t counts from 1
        info = {
            "mastery": self.mastery,
            "items": [identity for _, _, identity in chosen],
            "levels": [level + 1 for _, level, _ in chosen],
            "correct": right,
        }
        return self._observation(), reward, terminated, truncated, info

    def render(self) -> str:
        open_ = sum(len(level) for level in self.pending)
        return f"step {self.t}: mastery {self.mastery:.2f}, {open_} failed questions open"

    # Rules -------------------------------------------------------------------------------------

    @property
    def mastery(self) -> float:
        return self.mastery_steps / self.rules.top

    def _begin(self) -> None:
        self.t = 0
        self.mastery_steps = self.rules.initial_steps
        self.talent = int(talents(self._key, self.rules.spread))
        self.run = 0  # consecutive right answers that count for NCC
        self.last_right_sum, self.last_right_count = 0, 0  # levels of the last right answers
        self.asked, self.right_count = [0] * LEVELS, [0] * LEVELS
        self.unseen = [self._shuffled(level) for level in range(LEVELS)]
        self.pending: list[list[int]] = [[] for _ in range(LEVELS)]
        self._warm_up()

    def _warm_up(self) -> None:
        chosen = [(UNSEEN, level, self.unseen[level].pop(0)) for level in self.rules.warmup_levels]
        right = self._ask(chosen)
        if self.rules.warmup == "ncc":
            self._apply_ncc(chosen, right)
        elif self.rules.warmup == "measure":
            share = sum(right) * self.rules.top // len(right)
            self.mastery_steps = min(share, self.rules.goal_steps - 1)
        self.run = 0
        self.t = 1

    def _shuffled(self, level: int) -> list[int]:
        place = SHUFFLE + level * 4096 + np.arange(len(self.ids[level]))
        order = np.argsort(seeds.uniform(self._key, place), kind="stable")
        return [self.ids[level][i] for i in order]

    def _recommend(self, action: int) -> list[tuple[int, int, int]]:
        """The set: (source, level, id), taken from the pools in the action's order of preference."""
        pools = {(UNSEEN, level): self.unseen[level] for level in range(LEVELS)}
        pools |= {(PENDING, level): self.pending[level] for level in range(LEVELS)}
        order = sorted(
            (pool for pool in pools if pools[pool]),
            key=lambda pool: self._preference(action, *pool),
        )
        chosen: list[tuple[int, int, int]] = []
        for source, level in order:
            take = pools[source, level][: self.rules.questions - len(chosen)]
            del pools[source, level][: len(take)]
            chosen += [(source, level, identity) for identity in take]
        return chosen

    def _preference(self, action: int, source: int, level: int) -> tuple[int, ...]:
        """Sort key of a pool, lowest first. Distances are in mastery steps, exact integers."""
        place, mastery = level * self.rules.steps_per_level, self.mastery_steps
        near_mastery = abs(place - mastery)
        if action == FAILED:
            if source == PENDING:
                return (0 if near_mastery <= self.rules.delta_steps else 2, near_mastery, level)
            counts = [len(pool) for pool in self.pending]
            return (
                1,
                self._distance(level, sum(i * c for i, c in enumerate(counts)), sum(counts)),
                level,
            )
        if source == PENDING and action in self.rules.without_repeats:
            return (9, near_mastery, level)
        if action == EASY:
            if place <= mastery:
                return (
                    0,
                    self._distance(level, self.last_right_sum, self.last_right_count),
                    level,
                    source,
                )
            return (1, place, level, source)
        return (0 if place > mastery + self.rules.delta_steps else 1, -place, level, source)

    def _distance(self, level: int, level_sum: int, count: int) -> int:
        """|level - mean level| times the count, to stay exact; the distance to mastery where count = 0."""
        if count == 0:
            return abs(level * self.rules.steps_per_level - self.mastery_steps)
        return abs(level * count - level_sum)

    def _ask(self, chosen: list[tuple[int, int, int]]) -> list[bool]:
        """The student's answers; theta is mastery at the start of the set, plus talent."""
        right = []
        for slot, (_, level, identity) in enumerate(chosen):
            p = answer_probability(
                self.mastery + self.talent / 1000, level / (LEVELS - 1), self.rules.discrimination
            )
            correct = bool(seeds.uniform(self._key, self.t * SLOTS + slot) < p)
            self.asked[level] += 1
            self.right_count[level] += correct
            if not correct:
                self.pending[level].append(identity)
            right.append(correct)
        if any(right):
            self.last_right_count = sum(right)
            self.last_right_sum = sum(
                level for (_, level, _), r in zip(chosen, right, strict=True) if r
            )
        return right

    def _learn(self, chosen: list[tuple[int, int, int]], right: list[bool]) -> None:
        if self.rules.ncc_scope == "set":
            self.run = 0
        self._apply_ncc(chosen, right)
        self.t += 1

    def _apply_ncc(self, chosen: list[tuple[int, int, int]], right: list[bool]) -> None:
        """N consecutive correct (Kelly et al. 2016): N right in a row raise mastery one step."""
        for (_, level, _), correct in zip(chosen, right, strict=True):
            place = level * self.rules.steps_per_level
            exact = self.rules.ncc_rule == "exact"
            if place < self.mastery_steps or (
                exact and place >= self.mastery_steps + self.rules.steps_per_level
            ):
                continue
            self.run = self.run + 1 if correct else 0
            if self.run >= self.rules.consecutive:
                self.mastery_steps = min(self.mastery_steps + 1, self.rules.top)
                self.run = 0

    def _reward(self, chosen, right: list[bool], before: int) -> np.ndarray:
        if not chosen:
            return np.zeros(len(OBJECTIVES))
        places = [level * self.rules.steps_per_level for _, level, _ in chosen]
        room = max(1, self.rules.top - before)  # 1 - m, in steps; aptitude is 0 at m = 1 anyway
        aptitude = sum(max(0, place - before) for place in places) / room
        gap = sum(source == PENDING and r for (source, _, _), r in zip(chosen, right, strict=True))
        return np.array([aptitude, gap, sum(right)]) / len(chosen)

    def _observation(self) -> np.ndarray:
        seen = [
            total - len(pool) for total, pool in zip(self.rules.items, self.unseen, strict=True)
        ]
        accuracy = [r / max(1, n) for r, n in zip(self.right_count, self.asked, strict=True)]
        failed = [len(pool) / max(1, n) for pool, n in zip(self.pending, seen, strict=True)]
        return np.array([self.mastery, *accuracy, *failed], dtype=np.float32)


def _numbered(items: tuple[int, ...]) -> list[list[int]]:
    ends = np.cumsum(items)
    return [list(range(end - n, end)) for n, end in zip(items, ends, strict=True)]
