"""The records of a domain in SQLite: made, checked, called, compared.

The schema holds what a record must be (not null, closed lists, digits, references), so that a call that
would break it fails and leaves all as it was. A database notes the entries that calls operate on, which
is what operation completeness asks for (ToolOrchestra, appendix "Data Synthesis").
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from lib.tasks.synthesis.domains import MOST, Function, Records, TableSchema, TaskDomain

DONE = "done"
NOTHING, UNKNOWN, WRONG = "error nothing found", "error wrong name", "error wrong words"
HIGH, LOW, NEEDED = "error number high", "error number low", "error it is needed"

Entry = tuple[str, str]  # table, key
_CHANGES = {  # what a column becomes, and the reply where the schema forbids it
    "set": ("?", NOTHING),
    "add": ('"{0}" + 1', HIGH),
    "take": ('"{0}" - 1', LOW),
}


class CallError(ValueError):
    """A call that cannot be carried out; nothing has changed. Its text is the reply."""


class Database:
    """An SQLite database in memory with the records of a domain.

    operated: the entries (table, key) that calls read or wrote so far. Raises ValueError with the problems
    that `check` finds.
    """

    def __init__(self, domain: TaskDomain, records: Records) -> None:
        problems = check(domain, records)
        if problems:
            raise ValueError(f"records of {domain.name}: {'; '.join(problems[:5])}")
        self.domain = domain
        self.operated: set[Entry] = set()
        self._rows = _connect()
        self._rows.execute("PRAGMA page_size = 512")  # small pages: a copy copies few bytes
        self._rows.execute("BEGIN")  # references are checked when all records are there
        for table in domain.tables:
            self._rows.execute(_create(domain, table))
            places = ", ".join("?" * (len(table.columns) + 1))
            lines = [
                (key, *(row[c.name] for c in table.columns))
                for key, row in records.get(table.name, {}).items()
            ]
            self._rows.executemany(f'INSERT INTO "{table.name}" VALUES ({places})', lines)
        self._rows.execute("COMMIT")
        self._rows.execute("PRAGMA foreign_keys = ON")

    def call(self, name: str, arguments: Sequence[str]) -> str:
        """Call a function; the reply is a value, keys, or `done`. Raises CallError, and then nothing changed."""
        function = self.domain.function(name)
        if function is None:
            raise CallError(UNKNOWN)
        if len(arguments) != len(function.parameters) or not all(
            isinstance(word, str) for word in arguments
        ):
            raise CallError(WRONG)
        try:
            if not function.writes:
                return self._read(function, *arguments)
            self._write(function, *arguments)
        except UnicodeEncodeError:  # half a character cannot even be asked for
            raise CallError(WRONG) from None
        self.operated.add((function.tables[0], arguments[0]))
        return DONE

    def copy(self) -> Database:
        """A database of its own with the same records and the same entries operated."""
        twin = object.__new__(Database)
        twin.domain, twin.operated, twin._rows = self.domain, set(self.operated), _connect()
        self._rows.backup(twin._rows)
        twin._rows.execute("PRAGMA foreign_keys = ON")
        return twin

    def content(self) -> str:
        """All records in one canonical text: equal texts are equal contents."""
        lines = []
        for table in self.domain.tables:
            for row in self._rows.execute(f'SELECT * FROM "{table.name}" ORDER BY key'):
                lines.append(" ".join(map(str, (table.name, *row))))
        return "\n".join(lines)

    def records(self) -> dict[str, dict[str, dict[str, str]]]:
        """The records as they are now."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for table in self.domain.tables:
            names = [column.name for column in table.columns]
            rows = self._rows.execute(f'SELECT * FROM "{table.name}" ORDER BY key')
            found[table.name] = {
                key: dict(zip(names, map(str, values), strict=True)) for key, *values in rows
            }
        return found

    def _read(self, function: Function, field: str, word: str) -> str:
        place = self.domain.holder(function, field)
        if place is None:
            raise CallError(WRONG)
        table, column = place
        wanted, given = ("key", column.name) if function.effect == "find" else (column.name, "key")
        rows = self._rows.execute(
            f'SELECT key, "{wanted}" FROM "{table.name}" WHERE "{given}" = ? ORDER BY key', (word,)
        ).fetchall()
        if not rows:
            raise CallError(NOTHING)
        self.operated.update((table.name, key) for key, _ in rows)
        return " ".join(str(value) for _, value in rows)

    def _write(self, function: Function, key: str, word: str | None = None) -> None:
        table = self.domain.table(function.tables[0])
        if function.effect == "remove":
            statement, values, broken = f'DELETE FROM "{table.name}" WHERE key = ?', (key,), NEEDED
        else:
            column = table.column(word or "" if function.chooses else function.columns[0])
            if column is None or column.name not in function.columns:
                raise CallError(WRONG)
            if function.effect == "set" and word not in self.domain.values(column, table):
                raise CallError(WRONG)
            change, broken = _CHANGES[function.effect]
            change = change.format(column.name)
            statement = f'UPDATE "{table.name}" SET "{column.name}" = {change} WHERE key = ?'
            values = (word, key) if function.effect == "set" else (key,)
        try:
            changed = self._rows.execute(statement, values).rowcount
        except sqlite3.IntegrityError:
            raise CallError(broken) from None
        if not changed:
            raise CallError(NOTHING)


def _connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _create(domain: TaskDomain, table: TableSchema) -> str:
    """The schema of a table. Names and words are validated by `domains`: none holds a quote or a blank."""
    columns = [f"key TEXT NOT NULL PRIMARY KEY CHECK (key IN ({_words(table.keys)}))"]
    for column in table.columns:
        name = f'"{column.name}"'
        if column.kind == "digit":
            rule = f"INTEGER NOT NULL CHECK (typeof({name}) = 'integer' AND {name} BETWEEN 0 AND {MOST})"
        elif column.kind == "reference":
            rule = f'TEXT NOT NULL REFERENCES "{column.of}" (key) DEFERRABLE INITIALLY DEFERRED'
            rule += f" CHECK ({name} <> key)" if column.of == table.name else ""
        else:
            rule = f"TEXT NOT NULL CHECK ({name} IN ({_words(domain.values(column, table))}))"
            rule += f" CHECK ({name} = key)" if column.kind == "name" else ""
        columns.append(f"{name} {rule}")
    return f'CREATE TABLE "{table.name}" ({", ".join(columns)}) WITHOUT ROWID'


def _words(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def check(domain: TaskDomain, records: Records) -> list[str]:
    """What is wrong with records, in words; empty where nothing is.

    The three conditions of the paper: records align with the schema; what is said in several places agrees (a
    name repeats its key, a reference leads to a record); and they are plausible (digits are digits, nobody
    is their own friend, and there is something in every table).
    """
    problems = [
        f"there is no table {name!r}"
        for name in records
        if name not in {t.name for t in domain.tables}
    ]
    for table in domain.tables:
        rows = records.get(table.name, {})
        if not rows:
            problems.append(f"table {table.name} is empty")
        for key, row in rows.items():
            problems += [
                f"{table.name} {key}: {each}" for each in _wrong(domain, table, key, row, records)
            ]
    return problems


def _wrong(
    domain: TaskDomain, table: TableSchema, key: str, row: object, records: Records
) -> list[str]:
    if key not in table.keys:
        return ["no key of this table"]
    if not isinstance(row, dict) or set(row) != {column.name for column in table.columns}:
        return ["its columns are not those of the schema"]
    problems = []
    for column in table.columns:
        value = row[column.name]
        if value not in domain.values(column, table):
            problems.append(f"{column.name} cannot be {value!r}")
        elif column.kind == "name" and value != key:
            problems.append(f"{column.name} is {value!r}, not the key")
        elif column.kind == "reference" and value not in records.get(column.of or "", {}):
            problems.append(f"{column.name} leads to no record: {value!r}")
        elif column.kind == "reference" and column.of == table.name and value == key:
            problems.append(f"{column.name} leads back to itself")
    return problems
