"""The domains that orchestrators know: one `World` each, by name."""

from __future__ import annotations

from lib.orchestration.room import RoomWorld
from lib.orchestration.student import StudentWorld
from lib.orchestration.world import World

WORLDS: dict[str, type[World]] = {"education": StudentWorld, "minigrid": RoomWorld}
