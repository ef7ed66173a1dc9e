"""The grid rooms: the library's own boards and views, the rules, and a twin that equals the single one."""

import pickle
from itertools import pairwise

import gymnasium as gym
import minigrid  # noqa: F401  (registers the library's environments)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.envs.grid import IDS, GridRoom, register_grid, render_episode
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import (
    CELLS,
    DROP,
    EMPTY,
    FORWARD,
    GOAL,
    GOLD,
    LAVA,
    LEFT,
    PICKUP,
    RIGHT,
    TASKS,
    TOGGLE,
    cell_at,
    cell_coordinates,
)
from lib.experiment import seeds

register_grid()
LIKELY = [0.2, 0.2, 0.35, 0.15, 0.05, 0.05]  # random actions that get somewhere


def board_with(**things) -> np.ndarray:
    """The codes of a board with the given things, e.g. gold=[(2, 1)], and nothing else."""
    board = np.full(CELLS, EMPTY)
    for name, places in things.items():
        board[[cell_at(*place) for place in places]] = {"gold": GOLD, "goal": GOAL, "lava": LAVA}[
            name
        ]
    return board


def room_with(task="composite", at=(1, 1), heading=0, horizon=144, **things) -> GridRoom:
    """A room with the given things and nothing else."""
    env = GridRoom(task, horizon=horizon)
    env.reset(seed=0)
    env._lay_out(board_with(**things))
    env.agent_pos, env.agent_dir = at, heading
    return env


def described(at, heading=0, t=0, **things) -> dict:
    """Such a room in words."""
    twin = GridBatch("composite", 1)
    twin.reset()
    twin.board[0, :CELLS], twin.pose[0], twin.t[0] = (
        board_with(**things),
        4 * cell_at(*at) + heading,
        t,
    )
    return twin.describe(0)


def play(env, actions) -> tuple[np.ndarray, bool, bool, dict]:
    """Total reward (3,) and how it stood after the last action."""
    total = np.zeros(3)
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        total += reward
    return total, terminated, truncated, info


class Single:
    """Single environments played as a batch, each begun again when it ends."""

    def __init__(self, tasks, seed, **arguments):
        self.envs = [GridRoom(task, **arguments) for task in tasks]
        self.first = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)])

    def step(self, actions):
        """Observation to act on, reward, terminated, truncated, final observation, infos."""
        rows = []
        for env, action in zip(self.envs, actions, strict=True):
            final, reward, terminated, truncated, info = env.step(int(action))
            ended = terminated or truncated
            rows.append(
                (env.reset()[0] if ended else final, reward, terminated, truncated, final, info)
            )
        *arrays, infos = zip(*rows, strict=True)
        return *[np.stack(array) for array in arrays], infos


def assert_equal_for(tasks, seed, actions, **arguments):
    single = Single(tasks, seed, **arguments)
    twin = GridBatch(tasks, len(tasks), seed=seed, **arguments)
    assert np.array_equal(twin.reset(), single.first)
    for row in actions:
        observation, reward, terminated, truncated, final, infos = single.step(row)
        step = twin.advance(row)
        assert np.array_equal(step.observation, observation)
        assert step.reward.dtype == reward.dtype and np.array_equal(step.reward, reward)
        assert np.array_equal(step.terminated, terminated) and np.array_equal(
            step.truncated, truncated
        )
        assert np.array_equal(step.final_observation, final)
        for i in np.flatnonzero(step.done):
            assert {name: value[i].item() for name, value in twin.outcomes.items()} == infos[i]


# The twin -----------------------------------------------------------------------------------


@given(
    tasks=st.lists(st.sampled_from(TASKS), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    horizon=st.integers(1, 40),
    lava=st.integers(0, 6),
    actions=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_the_twin_equals_the_single_environment(tasks, seed, horizon, lava, actions):
    rng = np.random.default_rng(actions)
    moves = rng.choice(6, size=(50, len(tasks)), p=LIKELY)
    assert_equal_for(tasks, seed, moves, horizon=horizon, lava=lava)


@pytest.mark.parametrize("task", TASKS)
def test_the_twin_equals_the_single_environment_over_thousands_of_steps(task):
    moves = np.random.default_rng(1).choice(6, size=(800, 5), p=LIKELY)
    assert_equal_for([task] * 5, 7, moves)


def test_the_twin_sees_what_minigrid_draws_in_all_64_poses():
    things = {"gold": [(2, 1), (4, 3)], "goal": [(3, 3)], "lava": [(1, 2), (2, 4), (4, 1), (1, 4)]}
    twin = GridBatch("composite", CELLS * 4, lava=4)
    twin.board[:, :CELLS] = board_with(**things)
    twin.pose = np.arange(CELLS * 4)
    views = twin._observe()
    for pose, view in enumerate(views):
        env = room_with(at=cell_coordinates(pose // 4), heading=pose % 4, **things)
        assert np.array_equal(view, env.gen_obs()["image"]), f"pose {pose}"


def test_random_play_meets_every_ending():
    """Guards the comparison above: it would prove little if nothing ever happened."""
    twin = GridBatch(TASKS * 64, 256, seed=5)
    twin.reset()
    rng = np.random.default_rng(2)
    met = {name: np.zeros(256, dtype=bool) for name in ("success", "lava", "gold", "timeout")}
    for _ in range(400):
        step = twin.advance(rng.choice(6, size=256, p=LIKELY))
        for name in ("success", "lava"):
            met[name] |= twin.outcomes[name] & step.done
        met["gold"] |= (twin.outcomes["gold"] == 1) & step.done
        met["timeout"] |= step.truncated
    for name, where in {
        "success": (0, 1, 2),
        "lava": (0, 2),
        "gold": (0, 3),
        "timeout": (1,),
    }.items():
        assert all(met[name].reshape(64, 4)[:, task].any() for task in where), name


def test_the_vec_env_face_tells_where_an_episode_ends():
    twin = GridBatch(TASKS, 4, horizon=3)
    twin.reset()
    for _ in range(3):
        _, reward, done, infos = twin.step(np.full(4, TOGGLE))
    assert done.all() and np.array_equal(reward, [[0, 1, 0]] * 4)
    for info in infos:
        assert info["TimeLimit.truncated"] and info["terminal_observation"].shape == (7, 7, 3)


# Look-ahead ---------------------------------------------------------------------------------


def test_one_row_can_be_copied_many_times_with_fresh_episodes_to_come():
    twin = GridBatch(TASKS, 4, seed=2)
    twin.reset()
    twin.advance(np.full(4, FORWARD))
    copies = GridBatch("composite", 6)
    copies.restore(twin.state(), rows=np.zeros(6, dtype=int))
    copies.key[:] = seeds.keys("look-ahead", n=6)
    alone = GridBatch("composite", 1)
    alone.restore(twin.state(), rows=np.array([0]))
    for _ in range(144):
        several, one = copies.advance(np.full(6, LEFT)), alone.advance(np.array([LEFT]))
        assert np.array_equal(
            several.final_observation, np.repeat(one.final_observation, 6, axis=0)
        )
        if one.done.any():
            break
    assert several.done.all()
    assert len({board.tobytes() for board in copies.board}) == 6


def test_restoring_the_twin_brings_back_its_future():
    twin = GridBatch(TASKS * 2, 8, seed=3)
    twin.reset()
    state, moves = twin.state(), np.random.default_rng(6).choice(6, size=(150, 8), p=LIKELY)
    first = [twin.advance(row).observation for row in moves]
    twin.restore(state)
    assert all(
        np.array_equal(twin.advance(row).observation, seen)
        for row, seen in zip(moves, first, strict=True)
    )


# The library's boards ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task, identity", [("empty", "MiniGrid-Empty-6x6-v0"), ("lava_gap", "MiniGrid-LavaGapS6-v0")]
)
def test_the_board_is_one_of_the_library_s(task, identity):
    library, ours = gym.make(identity).unwrapped, GridRoom(task)

    def drawn(env):
        encoded = []
        for seed in range(150):
            env.reset(seed=seed)
            encoded.append(
                (env.grid.encode().tobytes(), tuple(map(int, env.agent_pos)), env.agent_dir)
            )
        return set(encoded)

    assert drawn(ours) == drawn(library)


# Rules ---------------------------------------------------------------------------------------


NONE = {"success": False, "lava": False, "gold": 0.0}


@pytest.mark.parametrize(
    ("room", "actions", "paid", "ended", "info"),
    [
        (
            room_with(gold=[(2, 1), (3, 1)], goal=[(4, 4)]),
            [PICKUP, FORWARD, PICKUP, PICKUP],
            [0, 0, 1],
            "",
            {},
        ),
        (
            room_with("gold_room", gold=[(2, 1), (3, 1)]),
            [PICKUP, FORWARD, PICKUP],
            [0, 1, 1],
            "over",
            NONE | {"gold": 1.0},
        ),
        (room_with(lava=[(2, 1)]), [FORWARD], [0, 0, 0], "over", NONE | {"lava": True}),
        (
            room_with(gold=[(2, 1), (1, 2)], goal=[(3, 1)], lava=[(2, 2)]),
            [PICKUP, RIGHT, PICKUP, LEFT, FORWARD, FORWARD],
            [1, 1, 1],
            "over",
            NONE | {"success": True, "gold": 1.0},
        ),
        (room_with(lava=[(2, 1)]), [LEFT] * 144, [0, 1, 0], "cut off", NONE),
        (
            room_with(goal=[(2, 1)], horizon=3),
            [LEFT, RIGHT, FORWARD],
            [1, 1, 0],
            "over",
            NONE | {"success": True},
        ),
    ],
)
def test_rewards_and_ends_of_rooms_worked_by_hand(room, actions, paid, ended, info):
    """Both gold pieces; the second in its room; lava; a perfect episode; no time left; a goal on the last step."""
    total, terminated, truncated, told = play(room, actions)
    assert total.tolist() == paid and told == info
    assert (terminated, truncated) == (ended == "over", ended == "cut off")


def test_a_collected_piece_is_not_shown_as_carried():
    env = room_with(gold=[(2, 1)], goal=[(4, 4)])
    observation, reward, *_ = env.step(PICKUP)
    assert reward.tolist() == [0, 0, 0.5]
    assert not (observation[..., 0] == GOLD).any() and observation[3, 6].tolist() == [EMPTY, 0, 0]


def test_drop_and_toggle_do_nothing():
    env = room_with(gold=[(2, 1), (4, 1)], goal=[(4, 4)])
    env.step(PICKUP)
    before = env.grid.encode().tobytes(), env.agent_pos, env.agent_dir, env.gold_collected
    env.step(DROP)
    env.step(TOGGLE)
    assert (env.grid.encode().tobytes(), env.agent_pos, env.agent_dir, env.gold_collected) == before


def test_gold_and_walls_block_the_way():
    env = room_with(gold=[(2, 1)])
    play(env, [FORWARD])
    assert env.agent_pos == (1, 1)
    play(env, [LEFT, FORWARD])  # north, into the wall
    assert env.agent_pos == (1, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GridBatch(["empty", "lava_gap"], 3), "a task for each of 3 environments, got 2"),
        (lambda: GridRoom("maze"), "task must be one of composite.*'maze'"),
        (lambda: GridBatch("maze", 2), "task must be one of composite.*'maze'"),
        *(
            (lambda wrong=wrong: room_with().step(wrong), "action must lie in 0..5")
            for wrong in (6, -1, 1.5)
        ),
    ],
)
def test_wrong_tasks_and_actions_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Words and pictures ---------------------------------------------------------------------------


def test_the_description_tells_what_is_seen_from_where():
    assert described((1, 2), gold=[(2, 2), (1, 1)], goal=[(4, 4)], lava=[(2, 1)]) == {
        "position": (1, 2),
        "heading": "east",
        "in_front": "gold",
        "in_view": [
            {"what": "gold", "ahead": 0, "right": -1},
            {"what": "gold", "ahead": 1, "right": 0},
            {"what": "lava", "ahead": 1, "right": -1},
            {"what": "goal", "ahead": 3, "right": 2},
        ],
        "gold_left": 2,
        "steps_left": 144,
    }


def test_the_description_says_nothing_of_what_lies_behind():
    told = described((1, 2), heading=2, t=1, gold=[(2, 2)], goal=[(4, 4)])
    assert told["in_view"] == [] and told["in_front"] == "wall"
    assert told["gold_left"] == 1 and told["steps_left"] == 143


def test_an_episode_can_be_filmed():
    moves = iter([RIGHT, FORWARD, FORWARD, FORWARD, LEFT, FORWARD, FORWARD, FORWARD])
    frames = render_episode("empty", 0, lambda observation: next(moves), tile_size=16)
    assert frames.shape == (9, 96, 96, 3) and frames.dtype == np.uint8
    assert all((a != b).any() for a, b in pairwise(frames))


# Conventions ----------------------------------------------------------------------------------


def test_arguments_pass_through_make():
    env = gym.make(IDS["composite"], lava=5, horizon=9)
    env.reset(seed=0)
    assert (env.unwrapped.grid.encode()[..., 0] == LAVA).sum() == 5 and env.unwrapped.max_steps == 9


def test_the_seed_decides_the_episodes_and_the_next_differ():
    def boards(env):
        observation = [env.reset(seed=9)[0]]
        return [o.tobytes() for o in observation + [env.reset()[0] for _ in range(5)]]

    env = GridRoom()
    assert boards(env) == boards(GridRoom()) == boards(env)
    assert len(set(boards(env))) > 3


def test_it_can_be_pickled_and_used_without_a_seed():
    env = pickle.loads(pickle.dumps(GridRoom("gold_room")))
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
