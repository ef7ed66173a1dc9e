"""Guides: three policies of ours for rooms, planned instead of trained, each with one thing on its mind.

They stand in for trained policies where deciding is the question: the paper's room policies rarely reach what they are
paid for away from home, and who picks among them can win little. A guide knows the room's map, walks a shortest way
that avoids lava, and slips: a share of its moves is a turn or a step at random, so that walking beside lava is a risk.
"""

import numpy as np

from lib.envs.grid_batch import _FRONT, GridBatch
from lib.envs.layouts import CELLS, FORWARD, GOAL, GOLD, HEADINGS, LAVA, LEFT, PICKUP, RIGHT

VERSION = 1  # of what guides do
SOUGHT = {
    "SO-d1": GOAL,
    "SO-d2": None,
    "SO-d3": GOLD,
}  # None: away from lava, the cell that is farthest from any
FAR = 99
_CELL = np.arange(CELLS)
_NEXT = _FRONT.reshape(CELLS, len(HEADINGS))  # cell in front of each pose; CELLS: a wall


def distances(sources: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Steps over the floor to the nearest source, (n, 16); FAR where there is no way. sources, floor: (n, 16) bool."""
    far = np.where(sources, 0, FAR)
    wall = np.full((len(far), 1), FAR)
    for _ in range(CELLS):
        around = (
            np.concatenate([far, wall], axis=1)[:, np.minimum(_NEXT, CELLS)].min(-1) + 1
        )  # (n, 16)
        nearer = np.where(floor | sources, np.minimum(far, around), far)
        if (nearer == far).all():
            break
        far = nearer
    return np.minimum(far, FAR)


def guide(env: GridBatch, names: np.ndarray, draws: np.ndarray, slip: float) -> np.ndarray:
    """Actions (B,) of the named guides, one for each row. draws: (B,) in [0, 1); slip: share of random moves."""
    board = env.board[:, :CELLS]
    far = np.empty(board.shape, dtype=np.int64)
    for name, sought in SOUGHT.items():
        rows = np.flatnonzero(names == name)
        if sought is None:
            lava = distances(board[rows] == LAVA, board[rows] != LAVA)
            safest = np.where(np.isin(board[rows], (LAVA, GOAL, GOLD)), -1, np.minimum(lava, CELLS))
            sources = safest == safest.max(1, keepdims=True)
        else:
            sources = board[rows] == sought
        closed = np.isin(board[rows], (LAVA, GOAL, GOLD))
        far[rows] = distances(sources, ~closed)
    action = _toward(env.pose, far, board)
    random = np.array([LEFT, RIGHT, FORWARD])[
        np.minimum((draws / max(slip, 1e-9) * 3).astype(np.int64), 2)
    ]
    return np.where(draws < slip, random, action)


def _toward(pose: np.ndarray, far: np.ndarray, board: np.ndarray) -> np.ndarray:
    """The move that brings each pose nearer by `far`, (n, 16): ahead, a pick-up, or a turn; a turn where none does."""
    cell, heading = pose // len(HEADINGS), pose % len(HEADINGS)
    rows = np.arange(len(pose))
    around = np.concatenate([far, np.full((len(far), 1), FAR + 1)], axis=1)
    ahead = [
        around[rows, np.minimum(_NEXT[cell, (heading + turn) % 4], CELLS)] for turn in (0, 1, 2, 3)
    ]
    here = far[rows, cell]
    best = np.argmin(ahead, axis=0)
    front = np.minimum(_NEXT[cell, heading], CELLS - 1)
    gold = (board[rows, front] == GOLD) & (_NEXT[cell, heading] < CELLS)
    moves = np.where(best == 0, np.where(gold, PICKUP, FORWARD), np.where(best == 3, LEFT, RIGHT))
    return np.where(np.min(ahead, axis=0) < here, moves, LEFT)
