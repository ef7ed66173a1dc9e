"""Recorded MiniGrid episodes as pictures: the room is set up anew and the recorded actions are played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.envs.grid import GridRoom
from lib.envs.layouts import coordinates, draw_layouts
from lib.params import Params
from lib.zoo.evaluate import evaluation_streams


@dataclass(frozen=True)
class Film:
    """frames: (T + 1, H, W, 3) uint8, the first before any step; choices: the policy that acted, T names."""

    frames: np.ndarray
    choices: tuple[str, ...]


def film(params: Params, record: pd.DataFrame, method: str, seed: int, episode: int, tile_size: int = 24) -> Film:
    """One recorded episode of a method. Raises ValueError where the record has none, and where the room does
    not answer the recorded actions with the recorded rewards (another version of the environment)."""
    rows = record[(record["method"] == method) & (record["seed"] == seed) & (record["episode"] == episode)]
    if rows.empty:
        raise ValueError(f"no episode {episode} of {method!r} under seed {seed} in this record")
    room = _room(params, evaluation_streams("minigrid", seed, episode + 1)[episode], tile_size)
    frames = [room.render()]
    for row in rows.sort_values("step").itertuples():
        _, reward, *_ = room.step(int(row.action))
        if not np.allclose(reward, [row.reward_0, row.reward_1, row.reward_2]):
            raise ValueError(f"step {row.step} of {method}: the room pays {reward}, which is not what was recorded")
        frames.append(room.render())
    return Film(np.stack(frames), tuple(rows.sort_values("step")["choice"]))


def _room(params: Params, stream: np.uint64, tile_size: int) -> GridRoom:
    settings = params.minigrid
    room = GridRoom("composite", settings.lava, settings.horizon, render_mode="rgb_array", tile_size=tile_size)
    room.reset(seed=0)
    layout = draw_layouts("composite", np.array([stream]), settings.lava)
    room.restore(
        {
            "task": "composite",
            "key": stream,
            "board": tuple(layout.board[0]),
            "position": coordinates(layout.position[0]),
            "heading": int(layout.heading[0]),
            "t": 0,
            "purse": 0,
        }
    )
    return room
