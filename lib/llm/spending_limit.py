"""The hard stop `llm.max_usd`, over processes and over resumed runs.

One small SQLite file holds what has been spent. Before each attempt at a paid call the most that it can cost is
booked (`reserve`), afterwards what it did cost (`settle`). Where nobody knows, because the process was killed or the
reply did not arrive whole, the most stays booked, on purpose: the attempt may have been billed. To start afresh,
delete the file (`make clean` does).
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path

import httpx2

from lib.llm import token_counts
from lib.llm.cost_ledger import BudgetExceeded

_PATIENCE = 30.0  # seconds to wait for another process's transaction
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


ASKED: ContextVar[token_counts.Asked] = ContextVar("asked")  # by the call under way


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

    def reserve(self, who: str, cost_usd: float) -> int:
        """Book an estimate; returns the ticket to settle it by.

        Raises BudgetExceeded where spent + dollars would pass the limit; nothing is booked then. Raises ValueError
        for what is no amount.
        """
        if math.isnan(cost_usd) or cost_usd < 0:
            raise ValueError(f"{who}: an estimate is a number of dollars >= 0, got {cost_usd!r}")
        with self._transaction() as rows:
            spent = self._total(rows)
            if spent + cost_usd > self.max_usd:
                raise BudgetExceeded(f"{who} (llm.max_usd)", self.max_usd, spent, cost_usd)
            return rows.execute(
                "INSERT INTO spent (who, dollars) VALUES (?, ?)", (who, cost_usd)
            ).lastrowid

    def settle(self, ticket: int, cost_usd: float) -> None:
        """Replace a ticket's estimate by what the call really cost, 0 for one that was not billed."""
        with self._transaction() as rows:
            rows.execute("UPDATE spent SET dollars = ? WHERE ticket = ?", (cost_usd, ticket))

    @staticmethod
    def _total(rows: sqlite3.Connection) -> float:
        return rows.execute("SELECT COALESCE(SUM(dollars), 0) FROM spent").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                connection.execute(
                    "PRAGMA synchronous=OFF"
                )  # a kill loses nothing; the disk would hold up all calls
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


class Paying(httpx2.AsyncBaseTransport):
    """Pays for every attempt at an endpoint, in full knowledge of what is sent; says BudgetExceeded before it is.

    price_in, price_out: dollars per token. What an attempt can cost: a token for each byte of the request, and
    max_tokens back.
    """

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        purse: SpendingLimit,
        price_in: float,
        price_out: float,
    ) -> None:
        self.inner, self.purse, self.price_in, self.price_out = inner, purse, price_in, price_out

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked, sent = ASKED.get(), len(await request.aread())
        ticket = self.purse.reserve(
            asked.who, sent * self.price_in + asked.max_tokens * self.price_out
        )
        try:
            response = await self.inner.handle_async_request(request)
        except _NOT_SENT:
            self.purse.settle(ticket, 0.0)
            raise
        tokens = self._tokens(response, asked, sent)
        if tokens is not None:
            self.purse.settle(ticket, tokens[0] * self.price_in + tokens[1] * self.price_out)
        return response

    @staticmethod
    def _tokens(
        response: httpx2.Response, asked: token_counts.Asked, sent: int
    ) -> tuple[int, int] | None:
        """Tokens that are billed; none for an error, and for a page that is no reply; None where nobody can know."""
        if response.status_code >= 300 or not response.content.lstrip().startswith(b"{"):
            return 0, 0
        try:
            content = json.loads(response.content)
        except (ValueError, RecursionError):
            return None
        counted = None not in token_counts.told(content, asked)
        billed = counted or (token_counts.message_of(content) and not content.get("error"))
        return token_counts.bounded(content, asked, sent) if billed else (0, 0)

    async def aclose(self) -> None:
        await self.inner.aclose()
