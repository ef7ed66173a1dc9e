"""Walk a small room for a goal, past lava, to gold (policy orchestration, A.5).

`GridRoom` is one room on the `minigrid` library: the library moves the agent and draws its view, this
module adds the tasks, the vector reward and the collection of gold. `grid_batch` holds the same rules as array
arithmetic over many rooms, and a test keeps the two equal step for step. Layouts come from `layouts`.
"""

import os
from collections.abc import Callable
from typing import Any, ClassVar

# minigrid imports pygame, which greets on stdout.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Goal, Lava, WorldObj
from minigrid.minigrid_env import MiniGridEnv

from lib.envs.layouts import (
    ACTIONS,
    EMPTY,
    GOAL,
    GOLD,
    HORIZON,
    LAVA,
    OBJECTIVES,
    PIECES,
    SIZE,
    STREAM,
    VIEW,
    cell_coordinates,
    check_arguments,
    draw_layouts,
)
from lib.experiment import seeds

IDS = {
    "composite": "orchestration/GridComposite-v0",
    "empty": "orchestration/GridEmpty-v0",
    "lava_gap": "orchestration/GridLavaGap-v0",
    "gold_room": "orchestration/GridGoldRoom-v0",
}
_MISSIONS = {
    "composite": "collect the gold, avoid the lava and get to the green goal square",
    "empty": "get to the green goal square",
    "lava_gap": "avoid the lava and get to the green goal square",
    "gold_room": "collect the gold",
}
_MAKE: dict[int, Callable[[], WorldObj | None]] = {
    EMPTY: lambda: None,
    GOAL: Goal,
    LAVA: Lava,
    GOLD: lambda: Ball("yellow"),
}


class GridRoom(MiniGridEnv):
    """A walled room of 4 x 4 cells with a goal, lava and gold; see A.5 of the paper.

    ## Tasks
    *composite*: one goal, `lava` lava cells, two gold pieces, the agent on a random cell with a random
    heading; new in every episode, and always such that all gold and then the goal can be had without
    touching lava. *empty*: MiniGrid-Empty-6x6, agent at (1, 1) heading east, goal at (4, 4).
    *lava_gap*: MiniGrid-LavaGapS6, the same with a column of lava that has one gap. *gold_room*: two
    gold pieces, the agent anywhere.

    ## Observation
    `Box(0, 255, (7, 7, 3), uint8)`, minigrid's view: [right, ahead] cells of (object, colour, state), the
    agent at [3, 6]. Walls block sight in all tasks (in Empty-6x6 of the library they do not), so that
    policies of different tasks see alike. There is no compass and no mission text.

    ## Actions
    `Discrete(6)`: 0 left, 1 right, 2 forward, 3 pickup, 4 drop, 5 toggle. Picking up a gold piece (a
    yellow ball) in front collects it: it leaves the board, is not shown as carried, and the next
    can be picked up too. So `drop` has nothing to drop, and there is nothing to `toggle`.

    ## Rewards
    `Box(0, 1, (3,))`: d1 goal, 1 on reaching it; d2 no-lava, 1 on the episode's last step unless that
    was onto lava; d3 gold, 0.5 for each piece. Flat, never minigrid's reward that falls with time, so
    undiscounted returns lie in [0, 1]^3. The paper's MO-pseudoS reward is 1 d1 + 0 d2 + 2 d3.

    ## Starting state
    A layout of `lib.envs.layouts`, a pure function of the seed.

    ## Episode end
    Terminates on the goal or on lava, and in the gold room with the second piece; truncates after
    `horizon` steps. The last `info` holds `success` (goal reached), `lava` (stepped on) and `gold`
    (share collected).

    ## Arguments
    `task`: one of composite, empty, lava_gap, gold_room. `lava`: lava cells of the composite room, 0..12.
    `horizon`: steps. `render_mode`: None or "rgb_array", with tiles of `tile_size` pixels.

    ## Version history
    v0: initial version.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        task: str = "composite",
        lava: int = 2,
        horizon: int = HORIZON,
        render_mode: str | None = None,
        tile_size: int = 24,
    ):
        check_arguments(task, lava, horizon)
        mission = MissionSpace(mission_func=lambda: _MISSIONS[task])
        super().__init__(
            mission, grid_size=SIZE, max_steps=horizon, render_mode=render_mode, tile_size=tile_size
        )
        self.task = task
        self.lava = lava
        self.observation_space = spaces.Box(0, 255, (VIEW, VIEW, 3), np.uint8)
        self.action_space = spaces.Discrete(len(ACTIONS))  # minigrid's seventh, "done", is left out
        self.reward_space = spaces.Box(0.0, 1.0, (len(OBJECTIVES),), np.float64)
        self.reward_dim = len(OBJECTIVES)
        self.grid.wall_rect(0, 0, SIZE, SIZE)  # once: only the cells inside ever change
        self.gold_collected = 0  # pieces
        self._key: np.uint64 | None = None

    # Gymnasium ---------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts an episode in a new room.

        Args:
            seed: Begins a random stream; None goes on with the stream of the last episode.
            options: Handed to minigrid.

        Returns:
            The view (7, 7, 3) uint8, and an empty info dictionary.
        """
        if seed is not None:
            self._key = seeds.key(STREAM, seed=seed)
        elif self._key is None:
            self._key = seeds.key(STREAM, seed=int(self.np_random.integers(2**31)))
        else:
            self._key = seeds.next_key(self._key)
        observation, _ = super().reset(seed=seed, options=options)
        return observation["image"], {}

    def step(self, action: int):
        """Makes one step of the agent.

        Args:
            action: Index into ACTIONS.

        Returns:
            The view (7, 7, 3) uint8, reward (3,), terminated, truncated, and an info dictionary with the outcome at
            the end.
        """
        if not self.action_space.contains(action):
            raise ValueError(
                f"action must lie in 0..{len(ACTIONS) - 1} ({', '.join(ACTIONS)}), got {action!r}"
            )
        observation, _, terminated, timeout, _ = super().step(action)
        picked = self.carrying is not None
        if picked:
            # minigrid made the agent carry the piece: put it away and draw the view without it.
            self.carrying = None
            self.gold_collected += 1
            observation = self.gen_obs()
        has_all_gold = self.task == "gold_room" and self.gold_collected == PIECES
        terminated = terminated or has_all_gold
        truncated = timeout and not terminated
        reward, info = self._compute_reward(picked, terminated or truncated)
        return observation["image"], reward, terminated, truncated, info

    # Rules -------------------------------------------------------------------------------------

    def _gen_grid(self, width: int, height: int) -> None:
        layouts = draw_layouts(self.task, self._key, self.lava)
        self._lay_out(layouts.board[0])
        self.agent_pos = cell_coordinates(layouts.position[0])
        self.agent_dir = int(layouts.heading[0])
        self.gold_collected = 0

    def _lay_out(self, board: np.ndarray) -> None:
        """Puts the objects of a board, (16,) codes, into the room."""
        for cell, code in enumerate(board):
            x, y = cell_coordinates(cell)
            self.grid.set(x, y, _MAKE[int(code)]())

    def _compute_reward(self, picked: bool, ended: bool) -> tuple[np.ndarray, dict[str, Any]]:
        """Computes the reward vector of a step and, at the end of the episode, its outcome.

        Args:
            picked: Whether the step picked up a piece of gold.
            ended: Whether the episode is over.

        Returns:
            Reward (3,): goal reached, episode over without touching lava, share of the gold picked up; and the
            outcome as a dictionary, empty before the end.
        """
        underfoot = self.grid.get(*self.agent_pos)
        success = underfoot is not None and underfoot.type == "goal"
        lava = underfoot is not None and underfoot.type == "lava"
        ended_without_lava = ended and not lava
        gold = picked / PIECES
        reward = np.array([success, ended_without_lava, gold], dtype=np.float64)
        if not ended:
            return reward, {}
        outcome = {
            "success": success,
            "lava": lava,
            "gold": self.gold_collected / PIECES,
        }
        return reward, outcome


def render_episode(
    task: str,
    seed: int,
    act: Callable[[np.ndarray], int],
    tile_size: int = 24,
    **arguments: Any,
) -> np.ndarray:
    """Plays one episode and draws it.

    Args:
        task: Which room.
        seed: Seed of the layout.
        act: The policy, from an observation (7, 7, 3) to an action.
        tile_size: Pixels of a cell.
        arguments: Further arguments of `GridRoom`.

    Returns:
        Frames (T + 1, H, W, 3) uint8, the first before any action; H = W = 6 tiles.
    """
    env = GridRoom(task, render_mode="rgb_array", tile_size=tile_size, **arguments)
    observation, _ = env.reset(seed=seed)
    frames = [env.render()]
    ended = False
    while not ended:
        action = int(act(observation))
        observation, _, terminated, truncated, _ = env.step(action)
        frames.append(env.render())
        ended = terminated or truncated
    return np.stack(frames)


def register_grid() -> None:
    """Make the four tasks known to `gym.make`. Calling it again changes nothing.

    The passive checker stays off, as in MO-Gymnasium: it takes a vector reward for a mistake.
    """
    for task, env_id in IDS.items():
        if env_id not in gym.registry:
            gym.register(
                env_id, f"{__name__}:GridRoom", kwargs={"task": task}, disable_env_checker=True
            )
