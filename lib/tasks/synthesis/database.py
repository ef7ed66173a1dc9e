"""The records of a domain in SQLite: checked, called, compared.

The schema holds what a record must be (not null, closed lists, digits, references), so that a call that
would break it fails and leaves all as it was. A database notes the entries that calls operate on, which
is what operation completeness asks for (ToolOrchestra, appendix "Data Synthesis"). Left out: files; every database is
in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from lib.tasks.synthesis.domains import HIGHEST_DIGIT, Function, Records, TableSchema, TaskDomain

DONE = "done"
# what a call that cannot be carried out replies
NOTHING_FOUND = "error nothing found"
WRONG_NAME = "error wrong name"
WRONG_WORDS = "error wrong words"
TOO_HIGH = "error number high"
TOO_LOW = "error number low"
STILL_NEEDED = "error it is needed"

Entry = tuple[str, str]  # table, key
# effect: (what the column becomes, the reply where the schema forbids it)
_UPDATES = {
    "set": ("?", NOTHING_FOUND),
    "add": ('"{0}" + 1', TOO_HIGH),
    "take": ('"{0}" - 1', TOO_LOW),
}


class CallError(ValueError):
    """A call that cannot be carried out; nothing has changed. Its text is the reply."""


@dataclass(frozen=True)
class CompletedCall:
    """A call that a database carried out.

    Attributes:
        function: Name of the function.
        arguments: In the order of its parameters.
        reply: What it replied.
    """

    function: str
    arguments: tuple[str, ...]
    reply: str


class Database:
    """An SQLite database in memory with the records of a domain.

    Attributes:
        domain: Its tables and functions.
        operated_entries: The entries (table, key) that calls read or wrote so far.
        completed_calls: All calls so far that were carried out, in order; calls that failed are not among them.
    """

    def __init__(self, domain: TaskDomain, records: Records) -> None:
        """Create the tables of a domain and insert records.

        Args:
            domain: The tables and functions.
            records: Value by table, key and column.

        Raises:
            ValueError: For records that `find_problems` objects to.
        """
        problems = find_problems(domain, records)
        if problems:
            raise ValueError(f"records of {domain.name}: {'; '.join(problems[:5])}")
        self.domain = domain
        self.operated_entries: set[Entry] = set()
        self.completed_calls: list[CompletedCall] = []
        self._connection = _connect()
        self._connection.execute("PRAGMA page_size = 512")  # small pages: a copy copies few bytes
        self._connection.execute("BEGIN")  # references are checked when all records are there
        for table in domain.tables:
            self._connection.execute(_write_table_definition(domain, table))
            placeholders = ", ".join("?" * (len(table.columns) + 1))
            rows = [
                (key, *(record[column.name] for column in table.columns))
                for key, record in records.get(table.name, {}).items()
            ]
            insert = f'INSERT INTO "{table.name}" VALUES ({placeholders})'
            self._connection.executemany(insert, rows)
        self._connection.execute("COMMIT")
        self._connection.execute("PRAGMA foreign_keys = ON")

    def call(self, name: str, arguments: Sequence[str]) -> str:
        """Execute a function call of an agent.

        Args:
            name: Name of the function, for example "lookup".
            arguments: Words in the order of the function's parameters, for example ["home", "Ana"].

        Returns:
            The reply: the value that was looked up, the keys that were found, joined by blanks, or "done" for a change.

        Raises:
            CallError: Where the call cannot be carried out; then nothing changed.
        """
        function = self.domain.find_function(name)
        if function is None:
            raise CallError(WRONG_NAME)
        all_text = all(isinstance(word, str) for word in arguments)
        if len(arguments) != len(function.parameters) or not all_text:
            raise CallError(WRONG_WORDS)
        try:
            reply = self._carry_out(function, arguments)
        except UnicodeEncodeError:  # SQLite takes no half of a surrogate pair
            raise CallError(WRONG_WORDS) from None
        self.completed_calls.append(CompletedCall(name, tuple(arguments), reply))
        return reply

    def _carry_out(self, function: Function, arguments: Sequence[str]) -> str:
        """Read or write; a change is noted as an operation on its record."""
        if not function.writes:
            return self._read(function, *arguments)
        self._write(function, *arguments)
        self.operated_entries.add((function.tables[0], arguments[0]))
        return DONE

    def _read(self, function: Function, field: str, word: str) -> str:
        """Execute a call that reads: the field of a record, or the keys of all records with a value in the field.

        Args:
            function: A function with the effect "get" or "find".
            field: Name of a column.
            word: The key of a record for "get", the value to search for with "find".

        Returns:
            The value, or the keys joined by blanks.

        Raises:
            CallError: For an unknown field, or where nothing is found.
        """
        table_and_column = self.domain.find_column(function, field)
        if table_and_column is None:
            raise CallError(WRONG_WORDS)
        table, column = table_and_column
        if function.effect == "find":
            known_column, wanted_column = column.name, "key"
        else:
            known_column, wanted_column = "key", column.name
        # Names come from the domain, which validated them; only the word comes from the caller.
        rows = self._connection.execute(
            f'SELECT key, "{wanted_column}" FROM "{table.name}" WHERE "{known_column}" = ? ORDER BY key',
            (word,),
        ).fetchall()
        if not rows:
            raise CallError(NOTHING_FOUND)
        # Only what was found counts as operated on.
        self.operated_entries.update((table.name, key) for key, _ in rows)
        return " ".join(str(value) for _, value in rows)

    def _write(self, function: Function, key: str, word: str | None = None) -> None:
        """Execute a call that changes a record.

        Args:
            function: A function with the effect "set", "add", "take" or "remove".
            key: The record's key.
            word: The new value for "set"; the field for "add" and "take" over several columns; else None.

        Raises:
            CallError: For a wrong argument, an unknown record, or a change that the schema forbids.
        """
        table = self.domain.get_table(function.tables[0])
        if function.effect == "remove":
            statement = f'DELETE FROM "{table.name}" WHERE key = ?'
            values: tuple[str | None, ...] = (key,)
            reply_if_forbidden = STILL_NEEDED
        else:
            # The second word is the field for `add` and `take`, and the new value for `set`.
            field = (word or "") if function.names_field else function.columns[0]
            column = table.find_column(field)
            if column is None or column.name not in function.columns:
                raise CallError(WRONG_WORDS)
            sets_value = function.effect == "set"
            if sets_value and word not in self.domain.list_values(column, table):
                raise CallError(WRONG_WORDS)
            new_value, reply_if_forbidden = _UPDATES[function.effect]
            assignment = f'"{column.name}" = {new_value.format(column.name)}'
            statement = f'UPDATE "{table.name}" SET {assignment} WHERE key = ?'
            values = (word, key) if sets_value else (key,)
        try:
            # The schema refuses what a record must not be; then nothing has changed.
            num_changed = self._connection.execute(statement, values).rowcount
        except sqlite3.IntegrityError:
            raise CallError(reply_if_forbidden) from None
        if not num_changed:
            raise CallError(NOTHING_FOUND)

    def copy(self) -> Database:
        """Copy the database: the copy has the same records and past calls, and changes independently."""
        # __init__ is not called: the records were checked once, and SQLite's backup copies pages, which is faster.
        duplicate = object.__new__(Database)
        duplicate.domain = self.domain
        duplicate.operated_entries = set(self.operated_entries)
        duplicate.completed_calls = list(self.completed_calls)
        duplicate._connection = _connect()
        self._connection.backup(duplicate._connection)
        duplicate._connection.execute("PRAGMA foreign_keys = ON")
        return duplicate

    def serialize(self) -> str:
        """Write all records in one canonical text, a line per record: equal texts mean equal contents."""
        lines = []
        for table in self.domain.tables:
            for row in self._select_all(table):
                lines.append(" ".join(map(str, (table.name, *row))))
        return "\n".join(lines)

    def read_records(self) -> dict[str, dict[str, dict[str, str]]]:
        """Read the records as they are now: value by table, key and column, all as texts."""
        records: dict[str, dict[str, dict[str, str]]] = {}
        for table in self.domain.tables:
            column_names = [column.name for column in table.columns]
            rows = records[table.name] = {}
            for key, *values in self._select_all(table):
                # SQLite gives digits as numbers.
                texts = map(str, values)
                rows[key] = dict(zip(column_names, texts, strict=True))
        return records

    def _select_all(self, table: TableSchema) -> sqlite3.Cursor:
        return self._connection.execute(f'SELECT * FROM "{table.name}" ORDER BY key')


def _connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _write_table_definition(domain: TaskDomain, table: TableSchema) -> str:
    """Write the CREATE TABLE statement of a table, with a CHECK for what each column may hold.

    Args:
        domain: Its names and words are validated: none holds a quote or a blank, so nothing needs escaping.
        table: A table of the domain.

    Returns:
        The SQL statement.
    """
    definitions = [f"key TEXT NOT NULL PRIMARY KEY CHECK (key IN ({_quote_all(table.keys)}))"]
    for column in table.columns:
        name = f'"{column.name}"'
        if column.kind == "digit":
            is_digit = f"typeof({name}) = 'integer' AND {name} BETWEEN 0 AND {HIGHEST_DIGIT}"
            rule = f"INTEGER NOT NULL CHECK ({is_digit})"
        elif column.kind == "reference":
            rule = f'TEXT NOT NULL REFERENCES "{column.of}" (key) DEFERRABLE INITIALLY DEFERRED'
            if column.of == table.name:
                rule += f" CHECK ({name} <> key)"
        else:
            values = _quote_all(domain.list_values(column, table))
            rule = f"TEXT NOT NULL CHECK ({name} IN ({values}))"
            if column.kind == "name":
                rule += f" CHECK ({name} = key)"
        definitions.append(f"{name} {rule}")
    return f'CREATE TABLE "{table.name}" ({", ".join(definitions)}) WITHOUT ROWID'


def _quote_all(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def find_problems(domain: TaskDomain, records: Records) -> list[str]:
    """Check records against the three conditions of the paper.

    Records align with the schema; what is said in several places agrees (a name repeats its key, a reference leads to
    a record); and they are plausible (digits are digits, nobody is their own friend, and there is something in every
    table).

    Args:
        domain: The tables.
        records: Value by table, key and column, as a model or a procedure wrote them.

    Returns:
        What is wrong, in words; empty for valid records.
    """
    table_names = {table.name for table in domain.tables}
    problems = [f"there is no table {name!r}" for name in records if name not in table_names]
    for table in domain.tables:
        rows = records.get(table.name, {})
        if not rows:
            problems.append(f"table {table.name} is empty")
        for key, record in rows.items():
            for problem in _find_problems_of_record(domain, table, key, record, records):
                problems.append(f"{table.name} {key}: {problem}")
    return problems


def _find_problems_of_record(
    domain: TaskDomain, table: TableSchema, key: str, record: object, records: Records
) -> list[str]:
    """Check one record against the schema of its table and the other records.

    Args:
        domain: All tables.
        table: The record's table.
        key: The record's key.
        record: Value by column, or whatever a model wrote in its place.
        records: All records, to which references must lead.

    Returns:
        What is wrong, in words; empty for a valid record.
    """
    if key not in table.keys:
        return ["no key of this table"]
    if not isinstance(record, dict) or set(record) != {column.name for column in table.columns}:
        return ["its columns are not those of the schema"]
    problems = []
    for column in table.columns:
        value = record[column.name]
        if value not in domain.list_values(column, table):
            problems.append(f"{column.name} cannot be {value!r}")
        elif column.kind == "name" and value != key:
            problems.append(f"{column.name} is {value!r}, not the key")
        elif column.kind == "reference" and value not in records.get(column.of or "", {}):
            problems.append(f"{column.name} leads to no record: {value!r}")
        elif column.kind == "reference" and column.of == table.name and value == key:
            problems.append(f"{column.name} leads back to itself")
    return problems
