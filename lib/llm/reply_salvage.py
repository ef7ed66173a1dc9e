"""Saves the readable replies of a damaged store, which were perhaps paid for.

A damaged SQLite file gives its rows up to the first page that cannot be read; read from the other end as well, it gives
nearly all. Left out: rows between two damaged pages.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

SUFFIX = ".readable"


def explain_damage(
    path: Path, is_reply: Callable[[bytes], bool], known_replies: dict[bytes, bytes]
) -> str:
    """Saves what is readable beside a damaged store, which stays as it is.

    Args:
        path: The SQLite file.
        is_reply: Whether a stored reply is whole.
        known_replies: Replies by key that this process has, such as one that could not be written any more.

    Returns:
        The remedy, for the end of an error's line.
    """
    target = path.with_name(path.name + SUFFIX)
    replies = known_replies | _read_from_both_ends(path, is_reply)
    if replies:
        with contextlib.suppress(OSError, sqlite3.Error):  # a full disk
            _write(replies, target)
            return (
                f"its {len(replies)} readable replies are saved: "
                f"`rm -f {path} {path}-wal {path}-shm; mv {target} {path}`, the others are asked again"
            )
    return "delete it, with its -wal and -shm: replies will be asked again, exported lines are kept"


def _read_from_both_ends(path: Path, is_reply: Callable[[bytes], bool]) -> dict[bytes, bytes]:
    """Reads the intact rows of a damaged SQLite file of replies, from its start and from its end.

    Args:
        path: The file.
        is_reply: Whether bytes are a whole reply.

    Returns:
        Replies by key.
    """
    replies = {}
    for order in ("ASC", "DESC"):
        with (
            contextlib.suppress(sqlite3.Error),  # the first row that cannot be read ends this way
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection,
        ):
            for key, reply in connection.execute(
                f"SELECT key, reply FROM replies ORDER BY key {order}"
            ):
                if isinstance(key, bytes) and isinstance(reply, bytes) and is_reply(reply):
                    replies[key] = reply
    return replies


def _write(replies: dict[bytes, bytes], target: Path) -> None:
    """Writes replies to a new SQLite file, atomically.

    Args:
        replies: By key.
        target: The file.
    """
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished)) as connection, connection:
        connection.execute("CREATE TABLE replies (key BLOB PRIMARY KEY, reply BLOB) WITHOUT ROWID")
        connection.executemany("INSERT INTO replies VALUES (?, ?)", replies.items())
    os.replace(unfinished, target)
