"""Layouts: solvable by an oracle that plays, pure in the key, and drawn evenly."""

from collections import deque

import gymnasium as gym
import minigrid  # noqa: F401  (registers the library's environments)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.envs.layouts import (
    CELLS,
    EMPTY,
    GOAL,
    GOLD,
    INNER,
    LAVA,
    MAX_LAVA,
    PIECES,
    TASKS,
    cell_coordinates,
    draw_layouts,
    is_solvable,
)
from lib.experiment import seeds

KEYS = seeds.keys("test-layouts", n=4_000)


def can_be_solved(board, start: int) -> bool:
    """Breadth-first search over (cell, gold left): collect what is next to you, walk, then the goal."""
    gold = frozenset(np.flatnonzero(board == GOLD).tolist())
    has_goal = GOAL in board
    queue, seen = deque([(start, gold)]), {(start, gold)}
    while queue:
        cell, left = queue.popleft()
        if not left and not has_goal:
            return True
        for other in range(CELLS):
            if (
                sum(
                    abs(a - b)
                    for a, b in zip(cell_coordinates(cell), cell_coordinates(other), strict=True)
                )
                != 1
            ):
                continue
            if board[other] == GOAL and not left:
                return True
            after = (cell, left - {other}) if other in left else (other, left)
            if board[other] not in (LAVA, GOAL) and after not in seen:
                seen.add(after)
                queue.append(after)
    return False


@st.composite
def boards(draw):
    """Any board with an agent, a goal, two gold pieces and any lava, solvable or not."""
    order = draw(st.permutations(range(CELLS)))
    lava = draw(st.integers(0, MAX_LAVA))
    board = np.full(CELLS, EMPTY, dtype=np.uint8)
    board[order[1:3]], board[order[3]], board[order[4 : 4 + lava]] = GOLD, GOAL, LAVA
    return board, order[0]


@given(boards())
@settings(max_examples=300, deadline=None)
def test_the_flood_fill_agrees_with_a_search_that_plays(drawn):
    board, start = drawn
    assert is_solvable(board[None], np.array([start]))[0] == can_be_solved(board, start)


@pytest.mark.parametrize("task", TASKS)
def test_every_layout_can_be_solved_without_lava(task):
    layouts = draw_layouts(task, KEYS[:400])
    assert all(can_be_solved(b, p) for b, p in zip(layouts.board, layouts.position, strict=True))


@pytest.mark.parametrize("lava", [0, 6, MAX_LAVA])
def test_as_much_lava_as_asked_for_stays_solvable(lava):
    layouts = draw_layouts("composite", KEYS[:200], lava)
    assert ((layouts.board == LAVA).sum(axis=1) == lava).all()
    assert all(can_be_solved(b, p) for b, p in zip(layouts.board, layouts.position, strict=True))


@given(st.sampled_from(TASKS), st.permutations(range(40)), st.integers(0, MAX_LAVA))
@settings(max_examples=40, deadline=None)
def test_a_layout_depends_on_its_own_key_only(task, order, lava):
    together = draw_layouts(task, KEYS[:40], lava)
    shuffled = draw_layouts(task, KEYS[order], lava)
    alone = draw_layouts(task, KEYS[order[0]], lava)
    for part in ("board", "position", "heading"):
        assert np.array_equal(getattr(shuffled, part), getattr(together, part)[order])
        assert np.array_equal(getattr(alone, part)[0], getattr(together, part)[order[0]])


def test_layouts_are_even_among_the_solvable_ones():
    """Against plain rejection with another generator, where 5 of 6 attempts are rejected."""
    lava, rng = 8, np.random.default_rng(0)
    order = rng.permuted(np.tile(np.arange(CELLS), (40_000, 1)), axis=1)
    board = np.full(order.shape, EMPTY, dtype=np.uint8)
    things = np.array([GOLD, GOLD, GOAL] + [LAVA] * lava, dtype=np.uint8)
    np.put_along_axis(board, order[:, 1 : 1 + things.size], things[None, :], axis=1)
    keep = is_solvable(board, order[:, 0])
    layouts = draw_layouts("composite", KEYS, lava)
    for thing in (GOLD, GOAL, LAVA):
        expected = (board[keep] == thing).mean(axis=0)
        found = (layouts.board == thing).mean(axis=0)
        assert np.abs(found - expected).max() < 0.04  # four standard errors and more
    agent = [
        np.bincount(cells, minlength=CELLS) / cells.size
        for cells in (layouts.position, order[keep, 0])
    ]
    assert np.abs(agent[0] - agent[1]).max() < 0.025


def test_the_rooms_hold_what_they_promise():
    counts = {
        "composite": (1, PIECES, 2),
        "empty": (1, 0, 0),
        "lava_gap": (1, 0, 3),
        "gold_room": (0, PIECES, 0),
    }
    for task, expected in counts.items():
        layouts = draw_layouts(task, KEYS[:500])
        found = [(layouts.board == thing).sum(axis=1) for thing in (GOAL, GOLD, LAVA)]
        assert [set(number) for number in found] == [{number} for number in expected]
        assert (layouts.board[np.arange(500), layouts.position] == EMPTY).all()


def library_gaps(n: int) -> set:
    env = gym.make("MiniGrid-LavaGapS6-v0").unwrapped
    gaps = set()
    for seed in range(n):
        env.reset(seed=seed)
        gaps.add(tuple(int(v) for v in env.gap_pos))
    return gaps


def our_gaps(boards: np.ndarray) -> list[tuple[int, int]]:
    square = boards.reshape(-1, INNER, INNER)
    column = (square == LAVA).any(axis=1).argmax(axis=1)
    row = (square[np.arange(len(square)), :, column] != LAVA).argmax(axis=1)
    return [(int(x) + 1, int(y) + 1) for x, y in zip(column, row, strict=True)]


def test_the_gap_lies_where_the_library_puts_it_and_evenly():
    gaps = our_gaps(draw_layouts("lava_gap", KEYS).board)
    assert set(gaps) == library_gaps(200) and len(set(gaps)) == 8
    shares = [gaps.count(gap) / len(gaps) for gap in set(gaps)]
    assert max(abs(share - 1 / 8) for share in shares) < 0.02


@pytest.mark.parametrize("lava", [-1, MAX_LAVA + 1])
def test_lava_that_does_not_fit_is_refused(lava):
    with pytest.raises(ValueError, match="lava must lie in 0..12"):
        draw_layouts("composite", KEYS[:1], lava)
