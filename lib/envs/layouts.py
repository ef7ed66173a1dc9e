"""Rooms of the grid tasks: what lies where when an episode begins (policy orchestration, A.5).

Holds the names and codes that the single environment (`grid`) and its batched twin (`grid_batch`)
share, the random layouts of the four tasks, the rule of what a layout must allow (`is_solvable`), and
how a view is put into words (`describe_view`). How the agent moves and what it sees is left to the two
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
HEADINGS = ("east", "south", "west", "north")  # minigrid's order; x grows to the east, y southwards
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
# minigrid's object codes; gold is a ball
UNSEEN = 0
EMPTY = 1
WALL = 2
GOLD = 6
GOAL = 8
LAVA = 9
NAMES = {
    UNSEEN: "unseen",
    EMPTY: "empty",
    WALL: "wall",
    GOLD: "gold",
    GOAL: "goal",
    LAVA: "lava",
}

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


def cell_coordinates(cell: int) -> tuple[int, int]:
    """Column x and row y of a cell, both 1..4."""
    return int(cell) % INNER + 1, int(cell) // INNER + 1


def check_arguments(task: str, lava: int, horizon: int = HORIZON) -> None:
    """Checks the arguments of a grid environment.

    Args:
        task: One of TASKS.
        lava: Number of lava cells.
        horizon: Steps of an episode at the most.

    Raises:
        ValueError: The task is unknown, there is more lava than fits, or the horizon is not positive.
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    if not 0 <= lava <= MAX_LAVA:
        raise ValueError(f"lava must lie in 0..{MAX_LAVA} cells, got {lava}")
    if horizon < 1:
        raise ValueError(f"horizon must be >= 1 step, got {horizon}")


def draw_layouts(task: str, keys: np.ndarray, lava: int = 2) -> Layouts:
    """Draws the layouts with which n episodes begin; each is a pure function of its key.

    Args:
        task: One of TASKS.
        keys: (n,) uint64, the random streams of the episodes.
        lava: Number of lava cells of the composite room; the other tasks ignore it.

    Raises:
        ValueError: The task is unknown, or there is more lava than fits.
    """
    check_arguments(task, lava)
    keys = np.atleast_1d(np.asarray(keys, dtype=np.uint64))
    if task == "empty":
        return _make_corner_layouts(keys.size)
    if task == "lava_gap":
        return _draw_lava_gap(keys)
    if task == "gold_room":
        return _scatter_objects(keys, (GOLD,) * PIECES)
    objects = (GOLD,) * PIECES + (GOAL,) + (LAVA,) * lava
    return _draw_solvable_layouts(keys, objects)


def is_solvable(board: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Whether all gold and then the goal (where there is one) can be reached without touching lava.

    A flood from the agent's cell over all boards at once, with a set of cells as the bits of one integer. A collected
    piece frees its cell, so gold does not stop the flood; the goal and lava do.

    Args:
        board: (n, 16) object codes.
        position: (n,) cells of the agent.

    Returns:
        (n,) bool.
    """
    goal = _find_cells(board, GOAL)
    gold = _find_cells(board, GOLD)
    floor = _ALL & ~(goal | _find_cells(board, LAVA))

    # Spread to neighbouring cells until nothing changes.
    reached = _BIT[position] & floor
    previous = 0
    while np.any(reached != previous):
        previous = reached
        reached = (reached | _neighbours(reached)) & floor

    goal_is_near = (goal & ~_neighbours(reached)) == 0
    gold_is_reached = (gold & ~reached) == 0
    return gold_is_reached & goal_is_near


def list_visible_objects(image: np.ndarray) -> list[dict[str, int | str]]:
    """Lists the gold, goal and lava in a view, nearest first.

    Args:
        image: (7, 7, 3) uint8, an observation.

    Returns:
        For each object, `what` it is and how many cells `ahead` and to the `right` (negative: left).
    """
    codes = image[..., 0]  # (7, 7)
    is_listed = np.isin(codes, (GOLD, GOAL, LAVA))
    objects = []
    for column, row in np.argwhere(is_listed):
        code = int(codes[column, row])
        objects.append(
            {
                "what": NAMES[code],
                "ahead": VIEW - 1 - int(row),
                "right": int(column) - VIEW // 2,
            }
        )

    def sort_key(item: dict) -> tuple[int, int, int]:
        ahead = item["ahead"]
        right = item["right"]
        distance = ahead + abs(right)
        return distance, ahead, right

    return sorted(objects, key=sort_key)


def describe_view(
    image: np.ndarray,
    cell: int,
    heading: int,
    remaining_gold: int,
    remaining_steps: int,
) -> dict:
    """Describes a state in words.

    Args:
        image: (7, 7, 3) uint8, the observation, the only source of `in_front` and `in_view`: nothing hidden gets in.
        cell: Where the agent stands.
        heading: Index into HEADINGS.
        remaining_gold: Pieces that are not collected yet.
        remaining_steps: Until the horizon.

    Returns:
        Position (x, y) from the north-west corner, heading, what is in view, gold and steps that are left.
    """
    code_in_front = int(image[VIEW // 2, VIEW - 2, 0])
    return {
        "position": cell_coordinates(cell),
        "heading": HEADINGS[heading],
        "in_front": NAMES[code_in_front],
        "in_view": list_visible_objects(image),
        "gold_left": int(remaining_gold),
        "steps_left": int(remaining_steps),
    }


def _make_corner_layouts(n: int) -> Layouts:
    """Agent at (1, 1) heading east, goal at (4, 4), as in MiniGrid-Empty-6x6 and LavaGapS6."""
    board = np.full((n, CELLS), EMPTY, dtype=np.uint8)
    board[:, cell_at(INNER, INNER)] = GOAL
    position = np.zeros(n, dtype=np.int64)
    heading = np.zeros(n, dtype=np.int64)
    return Layouts(board, position, heading)


def _draw_lava_gap(keys: np.ndarray) -> Layouts:
    """Draws rooms with a column of lava that has one gap, as minigrid's LavaGapEnv.

    Args:
        keys: (n,) uint64, the random streams of the episodes.

    Returns:
        n layouts; each of the 8 possible gaps is equally likely.
    """
    layouts = _make_corner_layouts(keys.size)
    # Counted from 0: neither the first nor the last column, where the agent and the goal are.
    column_draws = seeds.uniform(keys, 0)
    row_draws = seeds.uniform(keys, 1)
    column = 1 + (column_draws * (INNER - 2)).astype(np.int64)
    row = (row_draws * INNER).astype(np.int64)

    # Lava in the whole column, then the gap; `square` is a view of the boards.
    square = layouts.board.reshape(-1, INNER, INNER)  # (n, y, x)
    n = np.arange(keys.size)
    square[n, :, column] = LAVA
    square[n, row, column] = EMPTY
    return layouts


def _scatter_objects(keys: np.ndarray, objects: tuple[int, ...], attempt: int = 0) -> Layouts:
    """Puts the agent and objects on random cells, drawn without replacement, with a random heading.

    Args:
        keys: (n,) uint64, the random streams of the episodes.
        objects: Codes of the objects in every room.
        attempt: Number of the attempt; another one draws other random numbers.

    Returns:
        n layouts.
    """
    # One number per cell, whose order is a random permutation of the cells, and one for the heading.
    slots = np.arange(CELLS + 1)
    counter = attempt * _SLOTS + slots
    draws = seeds.uniform(keys[:, None], counter)  # (n, 17)
    cell_draws = draws[:, :CELLS]
    heading_draws = draws[:, CELLS]
    permutation = np.argsort(cell_draws, axis=1, kind="stable")  # (n, 16)

    # The agent takes the first cell of the permutation, the objects those after it.
    position = permutation[:, 0].copy()
    num_objects = len(objects)
    object_cells = permutation[:, 1 : 1 + num_objects]
    codes = np.array([objects], dtype=np.uint8)  # (1, objects)
    board = np.full((keys.size, CELLS), EMPTY, dtype=np.uint8)
    np.put_along_axis(board, object_cells, codes, axis=1)
    heading = (heading_draws * len(HEADINGS)).astype(np.int64)
    return Layouts(board, position, heading)


def _draw_solvable_layouts(keys: np.ndarray, objects: tuple[int, ...]) -> Layouts:
    """Draws solvable layouts by rejection sampling: unsolvable ones are drawn again.

    Args:
        keys: (n,) uint64, the random streams of the episodes.
        objects: Codes of the objects in every room.

    Returns:
        n layouts, uniform among the solvable ones.
    """
    layouts = _scatter_objects(keys, objects)
    unsolvable = np.flatnonzero(~is_solvable(layouts.board, layouts.position))  # indices
    attempt = 0
    while unsolvable.size:
        attempt += 1
        redrawn = _scatter_objects(keys[unsolvable], objects, attempt)
        layouts.board[unsolvable] = redrawn.board
        layouts.position[unsolvable] = redrawn.position
        layouts.heading[unsolvable] = redrawn.heading
        still_unsolvable = ~is_solvable(redrawn.board, redrawn.position)
        unsolvable = unsolvable[still_unsolvable]
    return layouts


def _find_cells(board: np.ndarray, code: int) -> np.ndarray:
    """The cells that hold `code` as one integer a row, (n,) int32."""
    return (board == code) @ _BIT


def _neighbours(cells: np.ndarray) -> np.ndarray:
    """The cells next to a set of cells, bits beyond the room dropped."""
    east = (cells & ~_LAST_COLUMN) << 1
    west = (cells & ~_FIRST_COLUMN) >> 1
    south = cells << INNER
    north = cells >> INNER
    return (east | west | south | north) & _ALL
