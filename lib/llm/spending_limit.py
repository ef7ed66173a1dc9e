"""The hard stop `llm.max_usd`, over processes and over resumed runs.

One small SQLite file holds what has been spent. Before each attempt at a paid call the most that it can cost is
booked (`reserve`), afterwards what it did cost (`settle`). Where nobody knows, because the process was killed or the
reply did not arrive whole, the most stays booked, on purpose: the attempt may have been billed. To start afresh,
delete the file (`make clean` does).
"""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lib.llm.cost_ledger import BudgetExceeded

_PATIENCE = 30.0  # seconds to wait for another process's transaction


class SpendingLimit:
    """Dollars that may be spent in all; any number of processes may share the file."""

    def __init__(self, path: str | Path, max_usd: float) -> None:
        self.path, self.max_usd = Path(path), max_usd
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as rows:
            rows.execute(
                "CREATE TABLE IF NOT EXISTS spent (ticket INTEGER PRIMARY KEY, who TEXT, dollars REAL)"
            )

    @property
    def spent(self) -> float:
        """Dollars booked, estimates of calls under way among them."""
        with self._transaction() as rows:
            return self._total(rows)

    def reserve(self, caller: str, cost_usd: float) -> int:
        """Book the most that a call can cost.

        Args:
            caller: Who asks, for the message.
            cost_usd: Dollars at the most.

        Returns:
            The reservation to settle it by.

        Raises:
            BudgetExceeded: Where it does not fit under the limit; nothing is booked then.
            ValueError: For what is no amount.
        """
        if math.isnan(cost_usd) or cost_usd < 0:
            raise ValueError(f"{caller}: an estimate is a number of dollars >= 0, got {cost_usd!r}")
        # Checked and booked in one transaction, so that processes cannot overspend together.
        with self._transaction() as rows:
            spent = self._total(rows)
            if spent + cost_usd > self.max_usd:
                raise BudgetExceeded(f"{caller} (llm.max_usd)", self.max_usd, spent, cost_usd)
            return rows.execute(
                "INSERT INTO spent (who, dollars) VALUES (?, ?)", (caller, cost_usd)
            ).lastrowid

    def settle(self, reservation: int, cost_usd: float) -> None:
        """Replace a reservation by what the call did cost.

        Args:
            reservation: As `reserve` returned it.
            cost_usd: Dollars; 0 for a call that was not billed.
        """
        with self._transaction() as rows:
            rows.execute("UPDATE spent SET dollars = ? WHERE ticket = ?", (cost_usd, reservation))

    @staticmethod
    def _total(rows: sqlite3.Connection) -> float:
        return rows.execute("SELECT COALESCE(SUM(dollars), 0) FROM spent").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Opens an exclusive transaction on the file of spendings, so that checking and booking are one step.

        Yields:
            The connection; what was executed is committed at the end, and rolled back after an error.

        Raises:
            ValueError: The file cannot be used.
        """
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                # A killed process loses nothing without it; waiting for the disk would hold up all calls.
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute("BEGIN IMMEDIATE")  # readers that become writers could deadlock
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise ValueError(
                f"{self.path} holds what was spent, and cannot be used: {error}"
            ) from None
