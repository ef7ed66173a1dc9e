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

# Columns of a board after its 16 cells, and the codes that they always hold.
_WALL = CELLS
_SELF = CELLS + 1
_BEYOND = CELLS + 2
_MARGIN = np.array([WALL, EMPTY, UNSEEN], dtype=np.uint8)
_COLUMNS = CELLS + _MARGIN.size
_STEP = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])  # (dx, dy) of each heading
_GOLD_ROOM = TASKS.index("gold_room")

# Colour codes are minigrid's: wall grey 5, gold yellow 4, goal green 1, lava red 0. The state is always 0.
_PALETTE = np.zeros((LAVA + 1, 3), dtype=np.uint8)
_PALETTE[:, 0] = np.arange(LAVA + 1)
_PALETTE[WALL, 1] = 5
_PALETTE[GOLD, 1] = 4
_PALETTE[GOAL, 1] = 1
_ENTERABLE = np.isin(np.arange(LAVA + 1), (EMPTY, GOAL, LAVA))


def _columns_at(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Finds the column of a board that holds the object at a position.

    A board has a column for each of the 16 cells, then one each for walls, the agent's own cell, and what lies
    beyond.

    Args:
        x: Horizontal positions, 1 to 4 inside the room, 0 and 5 on its walls; any shape.
        y: Vertical positions, of the same shape.

    Returns:
        Column indices of the same shape.
    """
    smaller = np.minimum(x, y)
    larger = np.maximum(x, y)
    inside = (smaller >= 1) & (larger <= INNER)
    in_room = (smaller >= 0) & (larger < SIZE)  # walls included
    cell = INNER * (y - 1) + x - 1
    wall_or_beyond = np.where(in_room, _WALL, _BEYOND)
    return np.where(inside, cell, wall_or_beyond)


def _columns_from_poses(steps_ahead: np.ndarray, steps_right: np.ndarray) -> np.ndarray:
    """Finds the column of a board that holds the object at an offset from each of the 64 poses.

    A pose is a cell and a heading in one number, 4 cell + heading.

    Args:
        steps_ahead: Cells ahead of the agent; any shape.
        steps_right: Cells to its right, negative to its left; of the same shape.

    Returns:
        Column indices, (64, *shape).
    """
    pose = np.arange(CELLS * len(HEADINGS)).reshape(-1, *[1] * steps_ahead.ndim)
    cell = pose // len(HEADINGS)
    heading = pose % len(HEADINGS)
    right_heading = (heading + 1) % len(HEADINGS)

    # (dx, dy) of a step ahead and of a step to the right.
    ahead_x = _STEP[heading, 0]
    ahead_y = _STEP[heading, 1]
    right_x = _STEP[right_heading, 0]
    right_y = _STEP[right_heading, 1]

    x = cell % INNER + 1
    y = cell // INNER + 1
    target_x = x + steps_ahead * ahead_x + steps_right * right_x
    target_y = y + steps_ahead * ahead_y + steps_right * right_y
    return _columns_at(target_x, target_y)


def _make_view_table() -> np.ndarray:
    """Makes the table of what the agent sees from each pose.

    Returns:
        (64, 49) column of the board behind each pixel of the view; pixel [i, j] is number 7 i + j.
    """
    i, j = np.divmod(np.arange(VIEW * VIEW), VIEW)
    views = _columns_from_poses(steps_ahead=VIEW - 1 - j, steps_right=i - VIEW // 2)
    # Where the agent stands, minigrid shows what it carries: nothing.
    own_pixel = VIEW * (VIEW // 2) + VIEW - 1
    views[:, own_pixel] = _SELF
    return views


def _make_turn_table() -> np.ndarray:
    """Makes the table of the pose after each action that does not lead to another cell, (64, 6)."""
    pose = np.arange(CELLS * len(HEADINGS))
    heading = pose % len(HEADINGS)
    facing_east = pose - heading  # the pose in the same cell with heading 0
    turns = np.repeat(pose[:, None], len(ACTIONS), axis=1)
    turns[:, LEFT] = facing_east + (heading - 1) % len(HEADINGS)
    turns[:, RIGHT] = facing_east + (heading + 1) % len(HEADINGS)
    return turns


_VIEW = _make_view_table()
# Steps ahead plus steps to the side of each pixel of the view, (49,).
_PIXEL_DISTANCE = np.add.outer(
    np.abs(np.arange(VIEW) - VIEW // 2), VIEW - 1 - np.arange(VIEW)
).ravel()
OUT_OF_VIEW = 2 * VIEW  # further away than anything in view
_TURN = _make_turn_table()
_FRONT = _columns_from_poses(steps_ahead=np.array(1), steps_right=np.array(0))  # (64,)


class GridBatch(BatchedEnv):
    """B rooms; observation (B, 7, 7, 3) uint8, action (B,), reward (B, 3).

    State arrays: task, pose, t, gold_collected (pieces), (B,) each, and board (B, 19): 16 cells, then the
    codes of a wall, of the agent's own cell and of what is out of sight. `outcomes` holds success, lava
    and gold of the last step, each (B,), as the episodes stood before the next ones began.

    Args:
        task: One task for all rows, or a sequence of B.
        num_envs: B.
        seed: Seed of the first row; row i is seeded with seed + i.
        lava: Lava cells of the composite room.
        horizon: Steps after which an episode is truncated.

    Raises:
        ValueError: An unknown task, a sequence of another length or too much lava.
    """

    name = STREAM
    fields = ("task", "pose", "t", "gold_collected", "board")

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
        for name in set(tasks):
            check_arguments(name, lava, horizon)
        self.lava = lava
        self.horizon = horizon
        self.task = np.array([TASKS.index(name) for name in tasks])  # (B,)
        self.pose = np.zeros(num_envs, dtype=np.int64)
        self.t = np.zeros(num_envs, dtype=np.int64)
        self.gold_collected = np.zeros(num_envs, dtype=np.int64)
        empty_board = np.append(np.full(CELLS, EMPTY, np.uint8), _MARGIN)
        self.board = np.tile(empty_board, (num_envs, 1))  # (B, 19)
        self.outcomes: dict[str, np.ndarray] = {}
        super().__init__(
            num_envs,
            observation_space=spaces.Box(0, 255, (VIEW, VIEW, 3), np.uint8),
            action_space=spaces.Discrete(len(ACTIONS)),
            reward_space=spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64),
            seed=seed,
        )

    def describe(self, row: int) -> dict:
        """Describes the state of one row in words, see `layouts.describe_view`.

        Args:
            row: Index of the environment.
        """
        pose = self.pose[row]
        board = self.board[row]
        cell, heading = divmod(int(pose), len(HEADINGS))
        codes = board[_VIEW[pose]]  # (49,)
        image = _PALETTE[codes].reshape(VIEW, VIEW, 3)
        remaining_gold = np.count_nonzero(board == GOLD)
        remaining_steps = self.horizon - self.t[row]
        return describe_view(image, cell, heading, remaining_gold, remaining_steps)

    def measure_distance_in_view(self, code: int) -> np.ndarray:
        """How far the nearest thing of a kind is that the agents see.

        Args:
            code: Of the kind, such as LAVA.

        Returns:
            (B,) steps ahead plus steps to the side; OUT_OF_VIEW where none is in view.
        """
        codes = np.take_along_axis(self.board, _VIEW[self.pose], axis=1)  # (B, 49)
        return np.where(codes == code, _PIXEL_DISTANCE, OUT_OF_VIEW).min(axis=1)

    def _begin(self, rows: np.ndarray) -> None:
        """Draws a new room for each of some rows.

        Args:
            rows: (n,) indices of the rows whose episodes begin.
        """
        tasks = self.task[rows]
        for task in np.unique(tasks):
            task_rows = rows[tasks == task]
            layouts = draw_layouts(TASKS[task], self.key[task_rows], self.lava)
            self.board[task_rows, :CELLS] = layouts.board
            self.pose[task_rows] = len(HEADINGS) * layouts.position + layouts.heading
        self.t[rows] = 0
        self.gold_collected[rows] = 0

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Makes one step in every room.

        Args:
            actions: (B,) indices into ACTIONS.

        Returns:
            Reward (B, 3) (goal reached, over without lava, share of the gold), terminated (B,), truncated (B,).
        """
        # What is in front of each agent.
        front_column = _FRONT[self.pose]  # (B,)
        front = front_column + _COLUMNS * np.arange(self.num_envs)  # in the flattened boards
        code_ahead = self.board.take(front)
        moves = (actions == FORWARD) & _ENTERABLE[code_ahead]
        picks = (actions == PICKUP) & (code_ahead == GOLD)

        # A step forward keeps the heading; where no step is made, front_column may be no cell.
        pose_moved = len(HEADINGS) * front_column + self.pose % len(HEADINGS)
        pose_in_cell = _TURN[self.pose, actions]
        self.pose = np.where(moves, pose_moved, pose_in_cell)
        self.board.put(front[picks], EMPTY)
        self.gold_collected += picks
        self.t += 1

        # How the episodes stand; the gold room ends with its last piece.
        success = moves & (code_ahead == GOAL)
        lava = moves & (code_ahead == LAVA)
        all_gold = (self.task == _GOLD_ROOM) & (self.gold_collected == PIECES)
        terminated = success | lava | all_gold
        truncated = (self.t >= self.horizon) & ~terminated
        gold_share = self.gold_collected / PIECES
        self.outcomes = {
            "success": success,
            "lava": lava,
            "gold": gold_share,
        }

        ended_without_lava = (terminated | truncated) & ~lava
        reward = np.stack([success, ended_without_lava, picks / PIECES], axis=1)  # (B, 3)
        return reward, terminated, truncated

    def _observe(self) -> np.ndarray:
        row_start = _COLUMNS * np.arange(self.num_envs)[:, None]  # in the flattened boards
        codes = self.board.take(_VIEW[self.pose] + row_start)  # (B, 49)
        return _PALETTE.take(codes, axis=0).reshape(self.num_envs, VIEW, VIEW, 3)
