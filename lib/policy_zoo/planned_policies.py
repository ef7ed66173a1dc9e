"""Planner policies: three policies of rooms that are planned instead of trained, each with one objective.

They stand in for trained policies where the choice between policies is the question: the paper's room policies rarely
reach their objective in another room than the one they were trained in, and little is gained by choosing among them. A
planner policy knows the map of the room, walks a shortest path around lava, and takes a random move now and then, so
that walking beside lava is a risk.
"""

import numpy as np

from lib.envs.grid_batch import _FRONT, GridBatch
from lib.envs.layouts import CELLS, FORWARD, GOAL, GOLD, HEADINGS, LAVA, LEFT, PICKUP, RIGHT

VERSION = 1  # of what planner policies do

# What each policy walks to; None is the cell that is farthest from lava.
TARGET_BY_POLICY = {"SO-d1": GOAL, "SO-d2": None, "SO-d3": GOLD}

UNREACHABLE = 99  # steps to a cell that no path leads to
RANDOM_MOVES = np.array([LEFT, RIGHT, FORWARD])
CELL_IN_FRONT = _FRONT.reshape(CELLS, len(HEADINGS))  # by cell and heading; CELLS is a wall


def plan_actions(
    env: GridBatch, names: np.ndarray, draws: np.ndarray, random_action_prob: float
) -> np.ndarray:
    """Plan the actions of hand-written policies in B rooms: a step along the shortest path to the policy's target.

    Args:
        env: The rooms.
        names: (B,) name of the policy that acts in each room; SO-d1 walks to the goal, SO-d2 away from lava, SO-d3 to
            gold.
        draws: (B,) uniform numbers in [0, 1).
        random_action_prob: Probability of a turn or a step at random.

    Returns:
        (B,) actions.
    """
    board = env.board[:, :CELLS]  # (B, 16)

    # Steps from every cell to what the room's policy walks to.
    steps_to_target = np.empty(board.shape, dtype=np.int64)
    for name, target in TARGET_BY_POLICY.items():
        rows = np.flatnonzero(names == name)
        boards = board[rows]
        is_occupied = np.isin(boards, (LAVA, GOAL, GOLD))
        if target is None:
            is_target = _find_safest_cells(boards, is_occupied)
        else:
            is_target = boards == target
        steps_to_target[rows] = compute_distances(is_target, ~is_occupied)
    planned_actions = _choose_moves(env.pose, steps_to_target, board)

    # A draw below the probability decides for a random move, and, scaled up, for which one.
    position = draws / max(random_action_prob, 1e-9) * len(RANDOM_MOVES)
    move_number = np.minimum(position.astype(np.int64), len(RANDOM_MOVES) - 1)
    return np.where(draws < random_action_prob, RANDOM_MOVES[move_number], planned_actions)


def compute_distances(is_source: np.ndarray, is_floor: np.ndarray) -> np.ndarray:
    """Compute the number of steps over the floor from every cell of n rooms to the nearest source.

    Args:
        is_source: (n, 16) whether the cell is a source, such as gold.
        is_floor: (n, 16) whether a path may lead over the cell.

    Returns:
        (n, 16) steps; UNREACHABLE where there is no path.
    """
    distances = np.where(is_source, 0, UNREACHABLE)
    behind_wall = np.full((len(distances), 1), UNREACHABLE)
    neighbours = np.minimum(CELL_IN_FRONT, CELLS)  # (16, headings); the last column is the wall

    # Each sweep extends all paths by one step.
    for _ in range(CELLS):
        distances_and_wall = np.concatenate([distances, behind_wall], axis=1)  # (n, 17)
        via_neighbour = distances_and_wall[:, neighbours].min(-1) + 1  # (n, 16)
        is_open = is_floor | is_source
        shorter = np.where(is_open, np.minimum(distances, via_neighbour), distances)
        if (shorter == distances).all():
            break
        distances = shorter
    return np.minimum(distances, UNREACHABLE)


def _find_safest_cells(boards: np.ndarray, is_occupied: np.ndarray) -> np.ndarray:
    """The free cells that are farthest from lava, (n, 16) bool, as a walk that avoids lava measures it."""
    is_lava = boards == LAVA
    distance_to_lava = np.minimum(compute_distances(is_lava, ~is_lava), CELLS)
    safety = np.where(is_occupied, -1, distance_to_lava)
    return safety == safety.max(1, keepdims=True)


def _choose_moves(pose: np.ndarray, steps_to_target: np.ndarray, board: np.ndarray) -> np.ndarray:
    """Choose the next move of each robot along a shortest path: a step, a turn, or picking up gold in front.

    Args:
        pose: (n,) cell and heading as one number.
        steps_to_target: (n, 16) from every cell.
        board: (n, 16) content of the cells.

    Returns:
        (n,) moves; a turn to the left where no neighbouring cell is nearer to the target.
    """
    rows = np.arange(len(pose))
    cell = pose // len(HEADINGS)
    heading = pose % len(HEADINGS)

    # Steps from the four neighbours: in front, and after one, two and three turns to the right.
    behind_wall = np.full((len(rows), 1), UNREACHABLE + 1)
    steps_and_wall = np.concatenate([steps_to_target, behind_wall], axis=1)  # (n, 17)
    steps_by_turn = []
    for num_turns in range(len(HEADINGS)):
        neighbour = CELL_IN_FRONT[cell, (heading + num_turns) % len(HEADINGS)]
        steps_by_turn.append(steps_and_wall[rows, np.minimum(neighbour, CELLS)])
    best_turn = np.argmin(steps_by_turn, axis=0)  # (n,)

    # In front: gold is picked up before anybody walks there.
    cell_in_front = CELL_IN_FRONT[cell, heading]
    is_wall_in_front = cell_in_front >= CELLS
    content_in_front = board[rows, np.minimum(cell_in_front, CELLS - 1)]
    is_gold_in_front = (content_in_front == GOLD) & ~is_wall_in_front
    straight_move = np.where(is_gold_in_front, PICKUP, FORWARD)

    turn_move = np.where(best_turn == 3, LEFT, RIGHT)
    move = np.where(best_turn == 0, straight_move, turn_move)
    gets_nearer = np.min(steps_by_turn, axis=0) < steps_to_target[rows, cell]
    return np.where(gets_nearer, move, LEFT)
