"""Search: the documents that match a query best, by SQLite's full-text index in memory.

A document that holds more of the query's words comes before one that holds fewer; among equals one that
holds them as a phrase, then BM25 decides, then the order of the documents. A query is words and nothing
else: each is quoted, so operators of the index's own language are words too.
"""

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence

from lib.tools.tool import Tool

NOTHING = "nothing found"
WORDS = 64  # of a query; the rest is ignored
_WORD = re.compile(r"\w+")


class Index:
    """A full-text index over documents, which are handed in. Raises RuntimeError where SQLite has no FTS5."""

    def __init__(self, documents: Sequence[str]):
        self.documents = tuple(documents)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(
            ":memory:", check_same_thread=False
        )  # one user at a time, by the lock
        try:
            self._database.execute("CREATE VIRTUAL TABLE documents USING fts5(text)")
        except sqlite3.OperationalError as error:
            raise RuntimeError(
                f"search needs SQLite with FTS5, which Python {sqlite3.sqlite_version} lacks"
            ) from error
        rows = enumerate(self.documents)
        self._database.executemany("INSERT INTO documents(rowid, text) VALUES (?, ?)", rows)

    def __reduce__(self):
        return Index, (self.documents,)  # a connection stays in its process; the documents travel

    def best(self, query: str, top: int = 1) -> list[str]:
        """At most `top` documents, best first; none where no word of the query is in any."""
        words = list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))[:WORDS]
        if not words:
            return []
        with self._lock:
            held = Counter(row for word in words for (row,) in self._matching("rowid", [word]))
            phrase = {
                row for (row,) in self._matching("rowid", [" ".join(_WORD.findall(query)[:WORDS])])
            }
            scored = self._matching("rowid, bm25(documents)", words)
        ranked = sorted((-held[row], row not in phrase, score, row) for row, score in scored)
        return [self.documents[row] for *_, row in ranked[:top]]

    def _matching(self, columns: str, words: Sequence[str]) -> list[tuple]:
        """Columns of the documents that hold any of the words (or phrases); of BM25, lower is better."""
        query = " OR ".join(f'"{word}"' for word in words)
        return self._database.execute(
            f"SELECT {columns} FROM documents WHERE documents MATCH ?", (query,)
        ).fetchall()


def search(index: Index, top: int = 1) -> Tool:
    """A tool for the `top` best documents, one a line; "nothing found" where none matches."""

    def run(query: str) -> str:
        return "\n".join(index.best(query, top)) or NOTHING

    parameters = {"query": {"type": "string", "description": "words to search for"}}
    return Tool(
        "search", "Searches the documents for words and gives what fits best.", parameters, run
    )
