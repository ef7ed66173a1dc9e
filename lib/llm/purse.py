"""The hard stop `llm.max_dollars`, over processes and over resumed runs.

One small SQLite file holds what has been spent. Before a paid call its estimate is booked (`reserve`),
afterwards it is corrected (`settle`). A process that is killed in between leaves its estimate booked, on
purpose: the call may have been billed. To start afresh, delete the file (`make clean` does).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lib.ledger import BudgetExceeded

_PATIENCE = 30.0  # seconds to wait for another process's transaction


class Purse:
    """Dollars that may be spent in all; any number of processes may share the file."""

    def __init__(self, path: str | Path, max_dollars: float) -> None:
        self.path, self.max_dollars = Path(path), max_dollars
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as rows:
            rows.execute("CREATE TABLE IF NOT EXISTS spent (ticket INTEGER PRIMARY KEY, who TEXT, dollars REAL)")

    @property
    def spent(self) -> float:
        """Dollars booked, estimates of calls under way among them."""
        with self._transaction() as rows:
            return self._total(rows)

    def reserve(self, who: str, dollars: float) -> int:
        """Book an estimate; returns the ticket to settle it by.

        Raises BudgetExceeded where spent + dollars would pass the limit; nothing is booked then.
        """
        with self._transaction() as rows:
            spent = self._total(rows)
            if spent + dollars > self.max_dollars:
                raise BudgetExceeded(f"{who} (llm.max_dollars)", self.max_dollars, spent, dollars)
            return rows.execute("INSERT INTO spent (who, dollars) VALUES (?, ?)", (who, dollars)).lastrowid

    def settle(self, ticket: int, dollars: float) -> None:
        """Replace a ticket's estimate by what the call really cost, 0 for one that was not billed."""
        with self._transaction() as rows:
            rows.execute("UPDATE spent SET dollars = ? WHERE ticket = ?", (dollars, ticket))

    @staticmethod
    def _total(rows: sqlite3.Connection) -> float:
        return rows.execute("SELECT COALESCE(SUM(dollars), 0) FROM spent").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")  # a kill loses nothing; the disk would hold up all calls
            connection.execute("BEGIN IMMEDIATE")  # readers that become writers could deadlock
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
