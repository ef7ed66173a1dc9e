"""Rooms of the grid tasks: what lies where when an episode begins (policy orchestration, A.5).

Holds the names and codes that the single environment (`grid`) and its batched twin (`grid_batch`)
share, the random layouts of the four tasks, the rule of what a layout must allow (`solvable`), and
how a view is put into words (`in_view`). How the agent moves and what it sees is left to the two
environments, which do it independently of each other.

Decisions where the paper is silent: a layout of the composite room is drawn afresh for every episode,
evenly among those in which the agent can collect both gold pieces and then reach the goal without
touching lava. A gold piece blocks the way until it is collected; the goal cannot be walked through.
"""

from dataclasses import dataclass

import numpy as np

from lib.experiment import seeds

TASKS = ("composite", "empty", "lava_gap", "gold_room")
OBJECTIVES = ("goal", "no_lava", "gold")  # d1, d2, d3
ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle")
HEADINGS = (
    "east",
    "south",
    "west",
    "north",
)  # in minigrid's order; x grows to the east, y to the south
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
UNSEEN, EMPTY, WALL, GOLD, GOAL, LAVA = 0, 1, 2, 6, 8, 9  # minigrid's object codes; gold is a ball
NAMES = {UNSEEN: "unseen", EMPTY: "empty", WALL: "wall", GOLD: "gold", GOAL: "goal", LAVA: "lava"}

STREAM = "grid"  # name of the random streams, for all tasks
HORIZON = 144  # steps, H (A.5)
SIZE = 6  # of the room, walls included
INNER = SIZE - 2
CELLS = INNER * INNER  # cells inside the walls, row by row: cell = 4 (y - 1) + (x - 1)
PIECES = 2  # of gold
VIEW = 7  # side of the square that the agent sees; it stands in the middle of the last row
MAX_LAVA = CELLS - PIECES - 2  # the agent, the goal and the gold need a cell each

_SLOTS = 32  # random numbers set aside for one attempt at a layout
_BIT = (1 << np.arange(CELLS)).astype(np.int32)  # a set of cells is an integer, one bit a cell
_FIRST_COLUMN = int(_BIT[::INNER].sum())
_LAST_COLUMN = _FIRST_COLUMN << (INNER - 1)
_ALL = (1 << CELLS) - 1


@dataclass(frozen=True)
class Layouts:
    """How n episodes begin: board (n, 16) uint8 object codes; position (n,) cells; heading (n,) 0..3."""

    board: np.ndarray
    position: np.ndarray
    heading: np.ndarray


def cell_at(x: int, y: int) -> int:
    """The cell at column x and row y of the room, both 1..4."""
    return INNER * (y - 1) + x - 1


def coordinates(cell: int) -> tuple[int, int]:
    """Column x and row y of a cell, both 1..4."""
    return int(cell) % INNER + 1, int(cell) // INNER + 1


def check_arguments(task: str, lava: int, horizon: int = HORIZON) -> None:
    """Raises ValueError for a task that does not exist, more lava than fits, or no step at all."""
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    if not 0 <= lava <= MAX_LAVA:
        raise ValueError(f"lava must lie in 0..{MAX_LAVA} cells, got {lava}")
    if horizon < 1:
        raise ValueError(f"horizon must be >= 1 step, got {horizon}")


def draw_layouts(task: str, keys: np.ndarray, lava: int = 2) -> Layouts:
    """The layouts that the streams `keys`, (n,) uint64, give; each is a pure function of its key.

    lava: number of lava cells of the composite room; the other tasks ignore it.
    Raises ValueError on an unknown task or more lava than fits.
    """
    check_arguments(task, lava)
    keys = np.atleast_1d(np.asarray(keys, dtype=np.uint64))
    if task == "empty":
        return _corner_to_corner(keys.size)
    if task == "lava_gap":
        return _lava_gap(keys)
    if task == "gold_room":
        return _scatter(keys, (GOLD,) * PIECES)
    return _solvable_scatter(keys, (GOLD,) * PIECES + (GOAL,) + (LAVA,) * lava)


def solvable(board: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Whether all gold and then the goal (where there is one) can be had without touching lava, (n,) bool.

    board: (n, 16) codes; position: (n,) cells. A collected piece frees its cell, so gold does not
    stop the flood; the goal and lava do.
    """
    goal, gold = _cells_of(board, GOAL), _cells_of(board, GOLD)
    floor = _ALL & ~(goal | _cells_of(board, LAVA))
    reached, before = _BIT[position] & floor, 0
    while np.any(reached != before):
        before, reached = reached, (reached | _neighbours(reached)) & floor
    goal_is_near = (goal & ~_neighbours(reached)) == 0
    return ((gold & ~reached) == 0) & goal_is_near


def in_view(image: np.ndarray) -> list[dict[str, int | str]]:
    """The gold, goal and lava in a view, nearest first: what, and how far ahead and to the right.

    image: (7, 7, 3) uint8. Negative `right` is to the left.
    """
    columns, rows = np.nonzero(np.isin(image[..., 0], (GOLD, GOAL, LAVA)))
    seen = [
        {
            "what": NAMES[int(image[i, j, 0])],
            "ahead": VIEW - 1 - int(j),
            "right": int(i) - VIEW // 2,
        }
        for i, j in zip(columns, rows, strict=True)
    ]
    return sorted(
        seen,
        key=lambda thing: (thing["ahead"] + abs(thing["right"]), thing["ahead"], thing["right"]),
    )


def describe_view(
    image: np.ndarray, cell: int, heading: int, gold_left: int, steps_left: int
) -> dict:
    """A state in words: position (x, y) from the north-west corner, heading, what is seen, what is left.

    image: (7, 7, 3) uint8, the only source of `in_front` and `in_view`: nothing hidden gets in.
    """
    return {
        "position": coordinates(cell),
        "heading": HEADINGS[heading],
        "in_front": NAMES[int(image[VIEW // 2, VIEW - 2, 0])],
        "in_view": in_view(image),
        "gold_left": int(gold_left),
        "steps_left": int(steps_left),
    }


def _corner_to_corner(n: int) -> Layouts:
    """Agent at (1, 1) heading east, goal at (4, 4), as in MiniGrid-Empty-6x6 and LavaGapS6."""
    board = np.full((n, CELLS), EMPTY, dtype=np.uint8)
    board[:, cell_at(INNER, INNER)] = GOAL
    return Layouts(board, np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64))


def _lava_gap(keys: np.ndarray) -> Layouts:
    """A column of lava at x = 2 or 3 with one gap, each of the 8 gaps as likely (LavaGapEnv)."""
    layouts = _corner_to_corner(keys.size)
    column = 1 + (seeds.uniform(keys, 0) * (INNER - 2)).astype(
        np.int64
    )  # from 0: neither first nor last
    row = (seeds.uniform(keys, 1) * INNER).astype(np.int64)
    square = layouts.board.reshape(-1, INNER, INNER)  # (n, y, x)
    square[np.arange(keys.size), :, column] = LAVA
    square[np.arange(keys.size), row, column] = EMPTY
    return layouts


def _scatter(keys: np.ndarray, things: tuple[int, ...], attempt: int = 0) -> Layouts:
    """The agent and `things` on cells drawn without replacement, any heading."""
    counter = attempt * _SLOTS + np.arange(CELLS + 1)
    draws = seeds.uniform(keys[:, None], counter)  # (n, 17)
    order = np.argsort(draws[:, :CELLS], axis=1, kind="stable")  # a random permutation of the cells
    board = np.full((keys.size, CELLS), EMPTY, dtype=np.uint8)
    taken = order[:, 1 : 1 + len(things)]
    np.put_along_axis(board, taken, np.array(things, dtype=np.uint8)[None, :], axis=1)
    heading = (draws[:, CELLS] * len(HEADINGS)).astype(np.int64)
    return Layouts(board, order[:, 0].copy(), heading)


def _solvable_scatter(keys: np.ndarray, things: tuple[int, ...]) -> Layouts:
    """The first solvable attempt of each stream: even among the solvable layouts (rejection)."""
    layouts = _scatter(keys, things)
    open_ = np.flatnonzero(~solvable(layouts.board, layouts.position))
    attempt = 0
    while open_.size:
        attempt += 1
        again = _scatter(keys[open_], things, attempt)
        layouts.board[open_], layouts.position[open_] = again.board, again.position
        layouts.heading[open_] = again.heading
        open_ = open_[~solvable(again.board, again.position)]
    return layouts


def _cells_of(board: np.ndarray, code: int) -> np.ndarray:
    """The cells that hold `code` as one integer a row, (n,) int32."""
    return (board == code) @ _BIT


def _neighbours(cells: np.ndarray) -> np.ndarray:
    """The cells next to a set of cells, bits beyond the room dropped."""
    east = (cells & ~_LAST_COLUMN) << 1
    west = (cells & ~_FIRST_COLUMN) >> 1
    return (east | west | cells << INNER | cells >> INNER) & _ALL
