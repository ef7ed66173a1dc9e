"""What a domain is: tables of records, and the functions that an agent may call on them.

Both are data: a function names an effect out of six, the tables and the columns that it touches, and
`database` makes parameterised SQL of it, so that nothing a model wrote is ever executed. Names are short
lower-case words and values are single words: a call is a line of words. After ToolOrchestra, appendix
"Data Synthesis". Left out: free text, dates, nested records and lists within a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from lib.tasks.multi_hop_facts import JOBS, PETS, RIVERS, TOWNS
from lib.tasks.story import ANIMALS
from lib.tasks.vocabulary import DIGITS, PEOPLE

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,23}$")]
Word = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,22}[A-Za-z0-9])?$")
]
Text = Annotated[str, StringConstraints(max_length=300)]
Effect = Literal["get", "find", "set", "add", "take", "remove"]
Records = Mapping[str, Mapping[str, Mapping[str, str]]]  # table, key, column: value

MOST = 9  # a digit column holds 0 to 9
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Strict):
    """One column. kind: a `choice` among words, a `digit`, a `reference` to a key of table `of`, or a
    `name`, which repeats the key of its record."""

    name: Name
    kind: Literal["choice", "digit", "reference", "name"]
    choices: Annotated[tuple[Word, ...], Field(max_length=64)] = ()
    of: Name | None = None

    @model_validator(mode="after")
    def _complete(self) -> Column:
        if bool(self.choices) != (self.kind == "choice"):
            raise ValueError(
                f"column {self.name!r} is a {self.kind}: choices are for a choice column, which needs some"
            )
        if bool(self.of) != (self.kind == "reference"):
            raise ValueError(
                f"column {self.name!r} is a {self.kind}: `of` is for a reference, which needs it"
            )
        return self


class TableSchema(_Strict):
    """A table: the keys that its records may have, and its columns."""

    name: Name
    keys: Annotated[tuple[Word, ...], Field(min_length=1, max_length=64)]
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _distinct(self) -> TableSchema:
        if self.name.startswith("sqlite_"):
            raise ValueError(f"table {self.name!r}: SQLite keeps names that begin so for itself")
        _no_twice(f"keys of {self.name}", self.keys)
        _no_twice(
            f"columns of {self.name}", (*(column.name.lower() for column in self.columns), "key")
        )
        return self

    def column(self, name: str) -> Column | None:
        """A column by name; None where there is none of it."""
        return next((column for column in self.columns if column.name == name), None)


class Function(_Strict):
    """What an agent may call, by effect, with the names of its parameters in the order of a call:

    get (field, name): the field of a record; find (field, value): the keys of the records with that value;
    set (name, value): a new value in the column; add and take (name) or, over several columns, (name,
    field): one more or one less, within 0 to 9; remove (name): the record goes.
    phrase: how an instruction asks for it, with {parameter} in it; empty: the call itself.
    """

    name: Name
    about: Text
    effect: Effect
    tables: Annotated[tuple[Name, ...], Field(min_length=1, max_length=6)]
    columns: Annotated[tuple[Name, ...], Field(max_length=16)] = ()
    parameters: Annotated[tuple[Name, ...], Field(min_length=1, max_length=2)]
    phrase: Text = ""

    @property
    def writes(self) -> bool:
        return self.effect not in ("get", "find")

    @property
    def chooses(self) -> bool:
        """Whether a call names the field: always when it reads, else where there are several to count in."""
        return not self.writes or (self.effect in ("add", "take") and len(self.columns) > 1)

    @model_validator(mode="after")
    def _shaped(self) -> Function:
        arity = 2 if self.chooses or self.effect == "set" else 1
        if len(self.parameters) != arity or len(set(self.parameters)) != arity:
            raise ValueError(
                f"function {self.name!r} has the effect {self.effect}: it takes {arity} parameters"
            )
        if self.writes and len(self.tables) > 1:
            raise ValueError(f"function {self.name!r} writes, so it is about one table")
        if bool(self.columns) == (self.effect == "remove") or (
            self.effect == "set" and len(self.columns) > 1
        ):
            raise ValueError(
                f"function {self.name!r}: set has one column, remove none, the others some"
            )
        if set(_PLACEHOLDER.findall(self.phrase)) - set(self.parameters):
            raise ValueError(
                f"function {self.name!r}: its phrase {self.phrase!r} has a placeholder that is no parameter"
            )
        return self

    def wording(self, arguments: Mapping[str, str]) -> str:
        """How an instruction asks for this with these arguments, without a full stop."""
        if not self.phrase:
            return " ".join((self.name, *(arguments[name] for name in self.parameters)))
        return _PLACEHOLDER.sub(lambda found: arguments[found.group(1)], self.phrase)


class TaskDomain(_Strict):
    """Tables and functions. Raises pydantic's ValidationError where a name is there twice, a reference or a
    function leads nowhere, a field of a function is in two of its tables, or a column has the wrong kind."""

    name: Name
    tables: Annotated[tuple[TableSchema, ...], Field(min_length=1, max_length=6)]
    functions: Annotated[tuple[Function, ...], Field(min_length=1, max_length=12)]

    @model_validator(mode="after")
    def _closed(self) -> TaskDomain:
        _no_twice(f"tables of {self.name}", [table.name for table in self.tables])
        _no_twice(f"functions of {self.name}", [function.name for function in self.functions])
        names = {table.name for table in self.tables}
        for table in self.tables:
            for column in table.columns:
                if column.of is not None and column.of not in names:
                    raise ValueError(
                        f"{table.name}.{column.name} refers to a table {column.of!r} that there is not"
                    )
        for function in self.functions:
            self._fits(function, names)
        return self

    def _fits(self, function: Function, names: set[str]) -> None:
        for name in function.tables:
            if name not in names:
                raise ValueError(
                    f"function {function.name!r} is about a table {name!r} that there is not"
                )
        for field in function.columns:
            kinds = [
                c.kind
                for name in function.tables
                if (c := self.table(name).column(field)) is not None
            ]
            if len(kinds) != 1:
                raise ValueError(
                    f"function {function.name!r}: {field!r} is in {len(kinds)} of its tables, not in one"
                )
            if function.effect in ("add", "take") and kinds != ["digit"]:
                raise ValueError(
                    f"function {function.name!r} counts in {field!r}, which is no digit column"
                )
            if function.writes and kinds == ["name"]:
                raise ValueError(
                    f"function {function.name!r} would change {field!r}, which repeats the key"
                )

    def table(self, name: str) -> TableSchema:
        """A table by name. Raises KeyError for one that there is not."""
        return self._tables[name]

    def function(self, name: str) -> Function | None:
        """A function by name; None where there is none of it."""
        return self._functions.get(name)

    def holder(self, function: Function, field: str) -> tuple[TableSchema, Column] | None:
        """The table and column that a field of a function is; None where the function has no such field."""
        if field not in function.columns:
            return None
        tables = (self.table(name) for name in function.tables)
        return next(
            (table, column) for table in tables if (column := table.column(field)) is not None
        )

    def values(self, column: Column, table: TableSchema) -> tuple[str, ...]:
        """What may stand in a column."""
        if column.kind == "digit":
            return DIGITS
        if column.kind == "choice":
            return column.choices
        return table.keys if column.kind == "name" else self.table(column.of or "").keys

    def schemas(self) -> list[dict[str, Any]]:
        """The functions as OpenAI function schemas; parameters are strings out of closed lists."""
        return [
            {"type": "function", "function": self._schema(function)} for function in self.functions
        ]

    @cached_property
    def _tables(self) -> dict[str, TableSchema]:
        return {table.name: table for table in self.tables}

    @cached_property
    def _functions(self) -> dict[str, Function]:
        return {function.name: function for function in self.functions}

    def _schema(self, function: Function) -> dict[str, Any]:
        allowed = dict(zip(function.parameters, self._allowed(function), strict=True))
        properties = {
            name: {"type": "string", "enum": list(words)} for name, words in allowed.items()
        }
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(function.parameters),
            "additionalProperties": False,
        }
        return {"name": function.name, "description": function.about, "parameters": parameters}

    def _allowed(self, function: Function) -> list[tuple[str, ...]]:
        keys = tuple(
            dict.fromkeys(key for name in function.tables for key in self.table(name).keys)
        )
        if not function.writes:
            places = [
                place
                for field in function.columns
                if (place := self.holder(function, field)) is not None
            ]
            values = dict.fromkeys(
                word for table, column in places for word in self.values(column, table)
            )
            return [function.columns, keys if function.effect == "get" else tuple(values)]
        if function.effect == "set":
            table = self.table(function.tables[0])
            column = table.column(function.columns[0])
            assert column is not None  # validated above
            return [keys, self.values(column, table)]
        return [keys, function.columns] if function.chooses else [keys]


def _no_twice(what: str, names: list[str] | tuple[str, ...]) -> None:
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} is there twice")


def _lookup(tables: tuple[str, ...], columns: tuple[str, ...]) -> Function:
    about = "one field of one record"
    return Function(
        name="lookup",
        about=about,
        effect="get",
        tables=tables,
        columns=columns,
        parameters=("field", "name"),
    )


def _choice(name: str, choices: tuple[str, ...]) -> Column:
    return Column(name=name, kind="choice", choices=choices)


def _reference(name: str, of: str) -> Column:
    return Column(name=name, kind="reference", of=of)


def _digit(name: str) -> Column:
    return Column(name=name, kind="digit")


HARBOUR = TaskDomain(
    name="harbour",
    tables=(
        TableSchema(
            name="boats", keys=ANIMALS, columns=(_reference("river", "rivers"), _digit("keys"))
        ),
        TableSchema(name="rivers", keys=RIVERS, columns=(_choice("judge", PEOPLE), _digit("fish"))),
    ),
    functions=(
        _lookup(("boats", "rivers"), ("river", "keys", "judge", "fish")),
        Function(
            name="route",
            about="send a boat to a river",
            effect="set",
            tables=("boats",),
            columns=("river",),
            parameters=("boat", "river"),
            phrase="route {boat} to {river}",
        ),
    ),
)

TOWN = TaskDomain(
    name="town",
    tables=(
        TableSchema(
            name="people",
            keys=PEOPLE,
            columns=(_reference("home", "towns"), _reference("friend", "people"), _digit("votes")),
        ),
        TableSchema(
            name="towns",
            keys=TOWNS,
            columns=(_choice("river", RIVERS), _reference("mayor", "people")),
        ),
    ),
    functions=(
        _lookup(("people", "towns"), ("home", "friend", "votes", "river", "mayor")),
        Function(
            name="vote",
            about="one vote more for a person",
            effect="add",
            tables=("people",),
            columns=("votes",),
            parameters=("person",),
            phrase="vote for {person}",
        ),
        Function(
            name="moves",
            about="a person moves to a town",
            effect="set",
            tables=("people",),
            columns=("home",),
            parameters=("person", "town"),
            phrase="{person} moves to {town}",
        ),
    ),
)

GUILD = TaskDomain(
    name="guild",
    tables=(
        TableSchema(
            name="people",
            keys=PEOPLE,
            columns=(_choice("job", JOBS), _choice("pet", PETS), _reference("friend", "people")),
        ),
    ),
    functions=(
        _lookup(("people",), ("job", "pet", "friend")),
        Function(
            name="draft",
            about="give a person a job",
            effect="set",
            tables=("people",),
            columns=("job",),
            parameters=("person", "job"),
            phrase="draft {person} to {job}",
        ),
    ),
)

STORE = TaskDomain(
    name="store",
    tables=(
        TableSchema(
            name="people",
            keys=PEOPLE,
            columns=(
                _digit("coins"),
                _digit("pens"),
                _digit("eggs"),
                _reference("friend", "people"),
            ),
        ),
    ),
    functions=(
        _lookup(("people",), ("coins", "pens", "eggs", "friend")),
        Function(
            name="took",
            about="a person took one of a thing, so there is one less",
            effect="take",
            tables=("people",),
            columns=("coins", "pens", "eggs"),
            parameters=("person", "thing"),
            phrase="{person} took 1 of the {thing}",
        ),
    ),
)

DOMAINS: tuple[TaskDomain, ...] = (HARBOUR, TOWN, GUILD, STORE)
