"""The folder of a run: one process works in it at a time, and it belongs to one set of settings.

with open_run_folder(Path("runs/first"), settings) as folder:
    table = keep_table(folder / "start.parquet", evaluate)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import ParamsError
from lib.experiment import artifacts
from lib.experiment.file_lock import LockedError, hold_lock_alone
from lib.rl.user_training.processes import ProcessShare

SETTINGS = "settings.json"
LOCK = "run.lock"
# What a later run of the same folder may change: more updates, and what changes no number.
CHANGEABLE = frozenset({"updates", "save_every"})
# Of a folder whose settings do not name them.
DEFAULTS = {"sharded": False, "processes": 1}


@contextlib.contextmanager
def open_run_folder(
    folder: Path, settings: Mapping[str, Any], share: ProcessShare
) -> Iterator[Path]:
    """Lock a run's folder, and refuse one that was begun with other settings.

    Args:
        folder: Made if it is not there.
        settings: By name, what JSON can hold; they are written to the folder, with the number of processes, each of
            which draws episodes of its own.
        share: Share of this process; the first one locks and writes.

    Yields:
        The folder.

    Raises:
        ParamsError: Another process works in the folder, or it was begun with other settings.
    """
    if not share.is_first:
        yield folder
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock_alone(folder / LOCK))
        except LockedError as error:
            raise ParamsError(
                f"--out {folder}: {error}; wait for it, or take another --out"
            ) from error
        settings = {**settings, "processes": share.num_processes}
        _refuse_other_settings(folder, settings)
        artifacts.write_json(folder / SETTINGS, settings)
        yield folder


def _refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Checks that a run is continued with the settings that it was started with.

    Args:
        folder: Folder of the run.
        settings: Settings of this call.

    Raises:
        ParamsError: A setting differs that must not be changed.
    """
    path = folder / SETTINGS
    if not path.exists():
        return
    earlier = DEFAULTS | artifacts.read_json(path)
    settings = DEFAULTS | settings
    for name in {**earlier, **settings}:
        if name not in CHANGEABLE and earlier.get(name) != settings.get(name):
            before, now = _find_difference(earlier.get(name), settings.get(name))
            raise ParamsError(
                f"--out {folder} was begun with {name} = {before}, not {now}; run it as before, or take another --out"
            )


def _find_difference(before: Any, now: Any) -> tuple[Any, Any]:
    """Of two mappings the first entry that differs, each as {key: value}; any other values as they are."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in {**before, **now}:
            if before.get(name) != now.get(name):
                return {name: before.get(name)}, {name: now.get(name)}
    return before, now


def keep_table(
    path: Path, make_table: Callable[[], pd.DataFrame], share: ProcessShare
) -> pd.DataFrame:
    """Reads a table of the run where an earlier call wrote it; else makes and writes it.

    Args:
        path: Path of the table.
        make_table: Makes the rows of this process.
        share: Share of this process; the first one writes the rows of all.

    Returns:
        The rows of all processes.
    """
    # All look before the first one writes, or some would make their rows and wait for the others for ever.
    is_there = path.exists()
    share.wait()
    if not is_there:
        rows = share.gather_rows(make_table())
        if share.is_first:
            artifacts.write_parquet(path, rows)
        share.wait()
    return artifacts.read_parquet(path)


def keep_json(path: Path, make_value: Callable[[], Any], share: ProcessShare) -> Any:
    """Reads a JSON file; where it is missing, the first process computes its value and writes it.

    Args:
        path: The file.
        make_value: Computes the value.
        share: This process among all; every process waits for the file.
    """
    is_there = path.exists()
    share.wait()
    if not is_there and share.is_first:
        artifacts.write_json(path, make_value())
    share.wait()
    return artifacts.read_json(path)
