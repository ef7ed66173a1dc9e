"""Many rooms at once: the rules of `grid` as array arithmetic.

A room is a row of object codes, and a *pose* is a cell and a heading in one number, 4 cell + heading.
Everything the agent can do or see from one of the 64 poses is looked up: the pose after each action,
the cell in front, and the cells that the view shows. Only walls block sight, and they surround the
room, so the view is every cell of the room within the 7 x 7 window and nothing beyond. Equal to
`GridRoom` step for step, without using minigrid; rendering is left to it.
"""

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from lib.envs.batched_env import BatchedEnv
from lib.envs.layouts import (
    ACTIONS,
    CELLS,
    EMPTY,
    FORWARD,
    GOAL,
    GOLD,
    HEADINGS,
    HORIZON,
    INNER,
    LAVA,
    LEFT,
    OBJECTIVES,
    PICKUP,
    PIECES,
    RIGHT,
    SIZE,
    STREAM,
    TASKS,
    UNSEEN,
    VIEW,
    WALL,
    check_arguments,
    describe_view,
    draw_layouts,
)

_WALL, _SELF, _BEYOND = CELLS, CELLS + 1, CELLS + 2  # columns of a board after its 16 cells
_MARGIN = np.array([WALL, EMPTY, UNSEEN], dtype=np.uint8)  # what these columns always hold
_COLUMNS = CELLS + _MARGIN.size
_STEP = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])  # (dx, dy) of each heading
_GOLD_ROOM = TASKS.index("gold_room")

# Colour codes are minigrid's: wall grey 5, gold yellow 4, goal green 1, lava red 0. The state is always 0.
_PALETTE = np.zeros((LAVA + 1, 3), dtype=np.uint8)
_PALETTE[:, 0] = np.arange(LAVA + 1)
_PALETTE[[WALL, GOLD, GOAL], 1] = 5, 4, 1
_ENTERABLE = np.isin(np.arange(LAVA + 1), (EMPTY, GOAL, LAVA))


def _columns_at(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The board column that tells what is at (x, y); walls are at 0 and 5."""
    inside = (x >= 1) & (x <= INNER) & (y >= 1) & (y <= INNER)
    in_room = (x >= 0) & (x < SIZE) & (y >= 0) & (y < SIZE)
    return np.where(inside, INNER * (y - 1) + x - 1, np.where(in_room, _WALL, _BEYOND))


def _place(ahead: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """The board column `ahead` steps ahead and `right` steps to the right of each pose, (64, ...)."""
    pose = np.arange(CELLS * len(HEADINGS)).reshape(-1, *[1] * ahead.ndim)
    cell, heading = pose // len(HEADINGS), pose % len(HEADINGS)
    forward, sideways = _STEP[heading], _STEP[(heading + 1) % len(HEADINGS)]
    x = cell % INNER + 1 + ahead * forward[..., 0] + correct * sideways[..., 0]
    y = cell // INNER + 1 + ahead * forward[..., 1] + correct * sideways[..., 1]
    return _columns_at(x, y)


def _views() -> np.ndarray:
    """The board column behind each pixel of the view, (64, 49); pixel [i, j] is number 7 i + j."""
    i, j = np.divmod(np.arange(VIEW * VIEW), VIEW)
    views = _place(VIEW - 1 - j, i - VIEW // 2)
    views[:, VIEW * (VIEW // 2) + VIEW - 1] = (
        _SELF  # minigrid shows what the agent carries here: nothing
    )
    return views


def _turns() -> np.ndarray:
    """The pose after each action that does not move the agent, (64, 6)."""
    pose = np.arange(CELLS * len(HEADINGS))
    turns = np.repeat(pose[:, None], len(ACTIONS), axis=1)
    heading = pose % len(HEADINGS)
    turns[:, LEFT] = pose - heading + (heading - 1) % len(HEADINGS)
    turns[:, RIGHT] = pose - heading + (heading + 1) % len(HEADINGS)
    return turns


_VIEW = _views()
_TURN = _turns()
_FRONT = _place(np.array(1), np.array(0))  # (64,)


class GridBatch(BatchedEnv):
    """B rooms; observation (B, 7, 7, 3) uint8, action (B,), reward (B, 3).

    task: one task for all rows, or a sequence of B. State arrays: task, pose, t, purse (B,) and board
    (B, 19): 16 cells, then the codes of a wall, of the agent's own cell and of what is out of sight.
    `outcomes` holds success, lava and gold of the last step, each (B,), as the episodes stood before
    the next ones began.
    Raises ValueError for an unknown task, a sequence of another length or too much lava.
    """

    name = STREAM
    fields = ("task", "pose", "t", "purse", "board")

    def __init__(
        self,
        task: str | Sequence[str],
        num_envs: int,
        seed: int = 0,
        lava: int = 2,
        horizon: int = HORIZON,
    ) -> None:
        tasks = [task] * num_envs if isinstance(task, str) else list(task)
        if len(tasks) != num_envs:
            raise ValueError(
                f"expected a task for each of {num_envs} environments, got {len(tasks)}"
            )
        for one in set(tasks):
            check_arguments(one, lava, horizon)
        self.lava, self.horizon = lava, horizon
        self.task = np.array([TASKS.index(one) for one in tasks])
        self.pose, self.t, self.purse = np.zeros((3, num_envs), dtype=np.int64)
        self.board = np.tile(np.append(np.full(CELLS, EMPTY, np.uint8), _MARGIN), (num_envs, 1))
        self.outcomes: dict[str, np.ndarray] = {}
        super().__init__(
            num_envs,
            spaces.Box(0, 255, (VIEW, VIEW, 3), np.uint8),
            spaces.Discrete(len(ACTIONS)),
            spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64),
            seed,
        )

    def describe(self, row: int) -> dict:
        """The state of one row in words; see `layouts.describe_view`."""
        cell, heading = divmod(int(self.pose[row]), len(HEADINGS))
        image = _PALETTE[self.board[row, _VIEW[self.pose[row]]]].reshape(VIEW, VIEW, 3)
        gold_left = np.count_nonzero(self.board[row] == GOLD)
        return describe_view(image, cell, heading, gold_left, self.horizon - self.t[row])

    def _begin(self, rows: np.ndarray) -> None:
        tasks = self.task[rows]
        for task in np.unique(tasks):
            same = rows[tasks == task]
            layouts = draw_layouts(TASKS[task], self.key[same], self.lava)
            self.board[same, :CELLS] = layouts.board
            self.pose[same] = len(HEADINGS) * layouts.position + layouts.heading
        self.t[rows] = 0
        self.purse[rows] = 0

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        front = _FRONT[self.pose] + _COLUMNS * np.arange(self.num_envs)  # in the flattened boards
        ahead = self.board.take(front)
        moves = (actions == FORWARD) & _ENTERABLE[ahead]
        picks = (actions == PICKUP) & (ahead == GOLD)
        pose = _TURN[self.pose, actions]
        self.pose = np.where(
            moves, len(HEADINGS) * _FRONT[self.pose] + self.pose % len(HEADINGS), pose
        )
        self.board.put(front[picks], EMPTY)
        self.purse += picks
        self.t += 1
        return self._judge(moves & (ahead == GOAL), moves & (ahead == LAVA), picks)

    def _judge(self, success, lava, picks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reward (B, 3), terminated (B,) and truncated (B,) from what the step did, (B,) bool each."""
        rich = (self.task == _GOLD_ROOM) & (self.purse == PIECES)
        terminated = success | lava | rich
        truncated = (self.t >= self.horizon) & ~terminated
        self.outcomes = {"success": success, "lava": lava, "gold": self.purse / PIECES}
        no_lava = (terminated | truncated) & ~lava
        return np.stack([success, no_lava, picks / PIECES], axis=1), terminated, truncated

    def _observe(self) -> np.ndarray:
        codes = self.board.take(
            _VIEW[self.pose] + _COLUMNS * np.arange(self.num_envs)[:, None]
        )  # (B, 49)
        return _PALETTE.take(codes, axis=0).reshape(self.num_envs, VIEW, VIEW, 3)
