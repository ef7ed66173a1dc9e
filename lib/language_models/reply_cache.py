"""Replies of lab models, kept by content: what was asked once, by whatever lesson, method or seed, is not computed
again.

A reply follows from the weights, the tokens of the conversation, the limit, the temperature, the seed and the stops,
from the VERSION of the code that generates, and from the class of processor instructions, so these are its key. The
store is one SQLite file beside the other generated data; any number of processes read and write it, a kill loses at
most what was not written yet. Without it (`BENCH_REPLIES=off`) every number is the same and takes longer.
"""

import hashlib
import os
import sqlite3
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from lib.config import ROOT
from lib.language_models import generation, kv_cache_forward

REPLIES = ROOT / "data/replies/lab.sqlite"
SWITCH = "BENCH_REPLIES"  # off, or the path of another file
_AT_ONCE = 500  # keys in one question to SQLite
_HELD = 512  # replies that are written together
_PATIENCE = 60.0  # seconds that a process waits for another's writing


def place() -> Path | None:
    """Where replies are kept; None where the environment says off."""
    told = os.environ.get(SWITCH, "").strip()
    if told.lower() in ("off", "0", "no"):
        return None
    return Path(told) if told else REPLIES


def key(
    fingerprint: str, ids: Iterable[int], limit: int, temperature: float, seed: int, stops: object
) -> bytes:
    """The content of a request: 20 bytes. fingerprint: of the weights."""
    machine = torch.backends.cpu.get_cpu_capability()
    code = f"{kv_cache_forward.VERSION}.{generation.VERSION}"
    told = f"{fingerprint}/{code}/{machine}/{limit}/{temperature!r}/{seed}/{stops}/{','.join(map(str, ids))}"
    return hashlib.sha256(told.encode()).digest()[:20]


class Memory:
    """A store of bytes by key. Its methods may be called from any thread.

    file: None keeps replies for the life of this object alone. A file that is no store is set aside, and told so.
    """

    def __init__(self, file: str | Path | None) -> None:
        self.file = None if file is None else Path(file)
        self._known: dict[bytes, bytes] = {}
        self._new: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self._connection = None if self.file is None else _opened(self.file)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """What is known of these keys."""
        wanted = set(keys)
        with self._lock:
            found = {each: self._known[each] for each in wanted if each in self._known}
            missing = list(wanted - set(found))
            if self._connection is not None and missing:
                read = self._read(missing)
                self._known |= read
                found |= read
        return found

    def put(self, replies: Mapping[bytes, bytes]) -> None:
        """Keep replies; they are written a few hundred at a time, and the rest by `flush`."""
        with self._lock:
            self._known |= replies
            self._new |= replies
            if len(self._new) >= _HELD:
                self._write()

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
        out: dict[bytes, bytes] = {}
        for begin in range(0, len(keys), _AT_ONCE):
            now = keys[begin : begin + _AT_ONCE]
            marks = ",".join("?" * len(now))
            out |= dict(
                self._connection.execute(
                    f"SELECT key, reply FROM replies WHERE key IN ({marks})", now
                )
            )
        return out

    def _write(self) -> None:
        if self._connection is not None and self._new:
            try:
                with self._connection:
                    self._connection.executemany(
                        "INSERT OR IGNORE INTO replies VALUES (?, ?)", self._new.items()
                    )
            except (
                sqlite3.OperationalError
            ) as error:  # a full disk, a folder that went away: replies are only a saving
                print(
                    f"{self.file}: replies are not remembered from here on ({error})",
                    file=sys.stderr,
                )
                self._connection = None
        self._new = {}


def _opened(file: Path) -> sqlite3.Connection | None:
    """A connection to the store; a broken one is set aside once; None where there can be none."""
    for again in (False, True):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(file, timeout=_PATIENCE, check_same_thread=False)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB) WITHOUT ROWID"
            )
            connection.execute(
                "SELECT key, reply FROM replies LIMIT 1"
            ).fetchall()  # before a foreign file is touched
            connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for writers
            connection.execute(
                "PRAGMA synchronous = NORMAL"
            )  # a kill may lose the last replies, not the file
            return connection
        except sqlite3.OperationalError as error:  # no place to write
            print(f"{file}: replies are not remembered ({error})", file=sys.stderr)
            return None
        except (sqlite3.DatabaseError, OSError) as error:
            if again or not file.is_file():
                print(f"{file}: replies are not remembered ({error})", file=sys.stderr)
                return None
            aside = file.with_suffix(f"{file.suffix}.broken")
            print(
                f"{file} is no store of replies ({error}); it is set aside as {aside.name}",
                file=sys.stderr,
            )
            os.replace(file, aside)
            for beside in (f"{file}-wal", f"{file}-shm"):
                Path(beside).unlink(missing_ok=True)
    return None
