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
        # Threads take turns by the lock, so SQLite need not check which one asks.
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
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

    def find_best(self, query: str, top: int = 1) -> list[str]:
        """Finds the documents that match a query best.

        Args:
            query: Words; only the first WORDS count.
            top: How many documents at most.

        Returns:
            The documents, best first; none where no word of the query is in any.
        """
        all_words = _WORD.findall(query)
        words = list(dict.fromkeys(word.lower() for word in all_words))[:WORDS]
        if not words:
            return []

        # Each search of the index adds to one of the criteria of the ranking below.
        phrase = " ".join(all_words[:WORDS])
        num_words = Counter()  # how many words of the query a document holds, by its row
        with self._lock:
            for word in words:
                num_words.update(row for (row,) in self._find_matches("rowid", [word]))
            phrase_rows = {row for (row,) in self._find_matches("rowid", [phrase])}
            bm25_scores = self._find_matches("rowid, bm25(documents)", words)

        # Sorts by words, phrase, BM25 (lower is better) and the order of the documents.
        ranking = sorted(
            (-num_words[row], row not in phrase_rows, score, row) for row, score in bm25_scores
        )
        return [self.documents[row] for *_, row in ranking[:top]]

    def _find_matches(self, columns: str, words: Sequence[str]) -> list[tuple]:
        """Columns of the documents that hold any of the words (or phrases)."""
        # Quoted, so that a word such as NOT is no operator of the index.
        query = " OR ".join(f'"{word}"' for word in words)
        return self._database.execute(
            f"SELECT {columns} FROM documents WHERE documents MATCH ?", (query,)
        ).fetchall()


def search(index: Index, top: int = 1) -> Tool:
    """A tool for the `top` best documents, one a line; "nothing found" where none matches."""

    def run(query: str) -> str:
        return "\n".join(index.find_best(query, top)) or NOTHING

    parameters = {"query": {"type": "string", "description": "words to search for"}}
    return Tool(
        "search", "Searches the documents for words and gives what fits best.", parameters, run
    )
