"""A store of replies: what was asked once, and perhaps paid for, is never asked again.

One SQLite file, which any number of processes read and write; a kill loses at most what was not written yet. The
replies of lab models and those of servers lie in two files of this one kind. What servers replied is also exported as
sorted JSON lines, which can be handed on and replayed without a key: equal contents are equal bytes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lib.experiment import artifacts
from lib.llm import reply_salvage

PATIENCE = 60.0  # seconds that a process waits for another's writing
_KEYS_PER_QUERY = 500  # SQLite takes a limited number of parameters
_SHORTEST_SECRET = (
    6  # characters; shorter keys are placeholders such as `none`, and words of any reply
)


class ReplyStore:
    """Bytes by key in a SQLite file, or in memory. Its methods may be called from any thread."""

    def __init__(
        self,
        path: str | Path | None,
        write_every: int = 1,
        required: bool = True,
        is_reply: Callable[[bytes], bool] = bool,
    ) -> None:
        """Open the store.

        Args:
            path: The file; None keeps replies for the life of this object.
            write_every: Replies that are written together. 1 for replies that were paid for.
            required: Whether a file that cannot be used is an error. Else replies are not kept, which is said
                once on the terminal; a broken file is set aside.
            is_reply: Whether a stored reply is whole; by default any is that is not empty.

        Raises:
            ValueError: Where a required file is no store.
        """
        self.path = None if path is None else Path(path)
        self.write_every, self.required = write_every, required
        self._is_reply = is_reply
        self._known: dict[bytes, bytes] = {}
        self._unwritten: dict[bytes, bytes] = {}
        self._lock = threading.RLock()
        self._connection = None if self.path is None else self._open(self.path)

    def get_all(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Looks up the stored replies of some keys, in memory and in the file.

        Args:
            keys: The keys.

        Returns:
            Replies by key, as far as there are any.
        """
        distinct_keys = set(keys)
        with self._lock:
            replies = {key: self._known[key] for key in distinct_keys if key in self._known}
            # What other processes have kept is in the file alone.
            missing = list(distinct_keys - set(replies))
            if self._connection is not None and missing:
                from_file = self._read(missing)
                self._known |= from_file
                replies |= from_file
        return replies

    def get(self, key: bytes) -> bytes | None:
        """The reply to one key, or None."""
        return self.get_all([key]).get(key)

    def put(self, key: bytes, reply: bytes) -> bytes:
        """Keep a reply.

        Args:
            key: Key of the request.
            reply: What came back.

        Returns:
            What is kept: where another process was first, its reply, so that all see the same.
        """
        with self._lock:
            self._known[key] = reply
            self._unwritten[key] = reply
            if len(self._unwritten) >= self.write_every:
                self._write()
            if self.write_every == 1 and self._connection is not None:
                # Another process may have been first; its reply is the one in the file.
                self._known |= self._read([key])
            return self._known[key]

    def items(self) -> dict[bytes, bytes]:
        """Reads all replies that any process has stored.

        Returns:
            Replies by key.
        """
        with self._lock:
            self._write()
            if self._connection is None:
                return dict(self._known)
            try:
                rows = self._connection.execute("SELECT key, reply FROM replies").fetchall()
                return self._check_rows(rows)
            except sqlite3.Error as error:
                self._give_up(error)
                return dict(self._known)

    def flush(self) -> None:
        """Write what is held back."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Write what is held back and let go of the file."""
        with self._lock:
            self._write()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __len__(self) -> int:
        """Replies that this object has seen."""
        return len(self._known)

    def _read(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """Look replies up in the SQLite file.

        Args:
            keys: Hashes of requests.

        Returns:
            Stored replies by key; keys without one are missing. Where the file cannot be read, what came before.
        """
        replies: dict[bytes, bytes] = {}
        try:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                batch = keys[start : start + _KEYS_PER_QUERY]
                placeholders = ",".join("?" * len(batch))
                query = f"SELECT key, reply FROM replies WHERE key IN ({placeholders})"
                replies |= self._check_rows(self._connection.execute(query, batch).fetchall())
        except sqlite3.Error as error:
            self._give_up(error)
        return replies

    def _check_rows(self, rows: list[tuple]) -> dict[bytes, bytes]:
        """Checks the rows of the file.

        Args:
            rows: (key, reply) each.

        Returns:
            Replies by key.

        Raises:
            sqlite3.DatabaseError: A row is damaged.
        """
        for key, reply in rows:
            are_bytes = isinstance(key, bytes) and isinstance(reply, bytes)
            if not (are_bytes and self._is_reply(reply)):
                name = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
                raise sqlite3.DatabaseError(f"the entry of the key {name[:40]!r} is damaged")
        return dict(rows)

    def _write(self) -> None:
        """Inserts the replies that were not written yet into the file; a key that exists keeps its reply."""
        if self._connection is not None and self._unwritten:
            try:
                with self._connection:
                    self._connection.executemany(
                        "INSERT OR IGNORE INTO replies VALUES (?, ?)", self._unwritten.items()
                    )
            except sqlite3.Error as error:  # a full disk, a folder that went away
                self._give_up(error)
        self._unwritten = {}

    def _give_up(self, error: Exception) -> None:
        """Stops using the file after an error; where the file is required, the error is raised.

        Args:
            error: What went wrong.

        Raises:
            ValueError: The file is required; the message says how to mend it.
        """
        if self.required:
            text = f"{self.path} is no store of replies that can be used: {error}"
            # An operational error is of the disk or of the folder, not of the file.
            is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            )
            if is_damaged:
                text += f"; {reply_salvage.explain_damage(self.path, self._is_reply, self._known)}"
            raise ValueError(text) from None
        print(f"{self.path}: replies are not kept from here on ({error})", file=sys.stderr)
        self._connection = None

    def _open(self, path: Path) -> sqlite3.Connection | None:
        """Connect to the file; a broken one that is not required is set aside, and an empty one takes its place.

        Args:
            path: Path of the SQLite file.

        Returns:
            The connection; None where the file is not required and cannot be used.

        Raises:
            ValueError: Where a required file cannot be used.
        """
        try:
            return _connect(path)
        except (sqlite3.DatabaseError, OSError) as error:
            is_broken_file = path.is_file() and not isinstance(error, sqlite3.OperationalError)
            if self.required or not is_broken_file:
                self._connection = None
                self._give_up(error)
                return None
            aside = path.with_suffix(f"{path.suffix}.broken")
            print(
                f"{path} is no store of replies ({error}); set aside as {aside.name}",
                file=sys.stderr,
            )
            os.replace(path, aside)
            for companion in (f"{path}-wal", f"{path}-shm"):
                Path(companion).unlink(missing_ok=True)
            return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the SQLite file of a reply store, and creates it where it is missing.

    Args:
        path: The file.

    Raises:
        sqlite3.DatabaseError: It is no such file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB) WITHOUT ROWID"
    )
    # Read before anything is changed, so that a foreign file stays as it is.
    connection.execute("SELECT key, reply FROM replies LIMIT 1").fetchall()
    _use_write_ahead_log(connection)  # readers do not wait for writers
    # A power failure may lose the last replies, but not the file.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Change the journal. Where another process does so too, SQLite calls the file locked at once, without patience."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# Recordings of servers -------------------------------------------------------------------------------


def hide_secret(text: str, secret: str) -> str:
    """A server's words as any file can hold them: without a key that it echoed, without half characters."""
    writable = text.encode("utf-8", "replace").decode()
    if len(secret) < _SHORTEST_SECRET:
        return writable
    return writable.replace(secret, "[removed]")


class Recording:
    """What servers replied: `NAME.sqlite` while recording, `NAME.jsonl` for keeps.

    Attributes:
        mode: "record" asks for what is not there and keeps it; "replay" never asks.
        export_path: The JSON lines.
    """

    def __init__(self, folder: str | Path, name: str, mode: str) -> None:
        """Open a recording.

        Args:
            folder: Where both files lie.
            name: Name of both files.
            mode: "record" or "replay".

        Raises:
            ValueError: For another mode, a broken line (with its number), a file that is no store.
        """
        if mode not in ("record", "replay"):
            raise ValueError(f"a recording is for record or replay, got {mode!r}; `off` needs none")
        self.mode = mode
        self.export_path = Path(folder) / f"{name}.jsonl"
        self._exported = _read_lines(self.export_path)
        path = Path(folder) / f"{name}.sqlite" if mode == "record" else None
        self._store = ReplyStore(path, is_reply=_is_entry)

    def get(self, key: str) -> dict[str, Any] | None:
        """The recorded entry of a request, or None."""
        if key in self._exported:
            return self._exported[key]
        line = self._store.get(key.encode())
        return None if line is None else json.loads(line)

    def put(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], secret: str = ""
    ) -> dict[str, Any]:
        """Keep a reply.

        Args:
            key: Key of the request.
            request: What was asked, for readers of the file.
            response: What the server replied, and `seconds`.
            secret: The key that must not be in it, whatever the server echoes.

        Returns:
            The entry that is kept: another's, where one was there before.
        """
        entry = {"key": key, "request": request, "response": response}
        line = hide_secret(_to_line(entry), json.dumps(secret)[1:-1])
        return json.loads(self._store.put(key.encode(), line.encode()))

    def export(self) -> Path:
        """Writes all recorded replies to a text file of JSON lines, sorted by key.

        Returns:
            The file; it is not touched where nothing changed.
        """
        lines = {key.decode(): line.decode() for key, line in self._store.items().items()}
        lines |= {key: hide_secret(_to_line(entry), "") for key, entry in self._exported.items()}
        text = "".join(f"{lines[key]}\n" for key in sorted(lines))
        unchanged = self.export_path.exists() and self.export_path.read_text("utf-8") == text
        if lines and not unchanged:
            artifacts.write_text(self.export_path, text)
        return self.export_path

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()


def _to_line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _is_entry(line: bytes) -> bool:
    """Whether a stored line holds all that a recorded reply has."""
    try:
        return {"key", "request", "response"} <= set(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return False


def _read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Read an exported recording.

    Args:
        path: JSON lines with key, request and response; there may be no such file.

    Returns:
        The entries by key.

    Raises:
        ValueError: For a line that is no entry; the message has its number.
    """
    if not path.exists():
        return {}
    entries = {}
    # str.splitlines would also cut inside of replies.
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            entries[entry["key"]] = {name: entry[name] for name in ("key", "request", "response")}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}: not a recorded reply ({error}); remove the line"
            ) from None
    return entries
