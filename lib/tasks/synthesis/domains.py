"""What a domain is: tables of records, and the functions that an agent may call on them.

Both are data: a function names an effect out of six, the tables and the columns that it touches, and
`database` makes parameterised SQL of it, so that nothing a model wrote is ever executed. Names are short
lower-case words and values are single words: a call is a line of words. After ToolOrchestra, appendix
"Data Synthesis". Left out: free text, dates, nested records and lists within a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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

HIGHEST_DIGIT = 9  # a digit column holds 0 to 9
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Strict):
    """One column of a table.

    Attributes:
        name: Also the field that calls name.
        kind: A "choice" among words, a "digit", a "reference" to a key of table `of`, or a "name", which repeats the
            key of its record.
        choices: Choices of a choice column.
        of: The table that a reference column refers to.
    """

    name: Name
    kind: Literal["choice", "digit", "reference", "name"]
    choices: Annotated[tuple[Word, ...], Field(max_length=64)] = ()
    of: Name | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Column:
        """Refuse choices on a column that is no choice, and a target table (`of`) on one that is no reference."""
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
    """A table: the keys that its records may have, and its columns.

    Attributes:
        name: Name of the table.
        keys: All keys that a record may have; a database uses some of them.
        columns: The columns beside the key.
    """

    name: Name
    keys: Annotated[tuple[Word, ...], Field(min_length=1, max_length=64)]
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _check_names(self) -> TableSchema:
        """Refuse names that SQLite cannot take, and keys or columns of one name."""
        if self.name.startswith("sqlite_"):
            raise ValueError(f"table {self.name!r}: SQLite keeps names that begin so for itself")
        _refuse_duplicates(f"keys of {self.name}", self.keys)
        # SQLite ignores case in names of columns, and every table has a column `key`.
        column_names = [column.name.lower() for column in self.columns]
        _refuse_duplicates(f"columns of {self.name}", [*column_names, "key"])
        return self

    def find_column(self, name: str) -> Column | None:
        """Find a column by its name; None where the table has none of this name."""
        return next((column for column in self.columns if column.name == name), None)


class Function(_Strict):
    """A tool that an agent may call: a read or a change of records in one of six ways.

    The effect decides which parameters a call has, in this order:

        get     field, name     the field of a record
        find    field, value    the keys of the records with that value
        set     name, value     a new value in the column
        add     name            one more, at most 9; over several columns: name, field
        take    name            one less, at least 0; over several columns: name, field
        remove  name            the record goes

    Attributes:
        name: The first word of a call.
        about: Description of the tool for the agent.
        effect: One of the six above.
        tables: The tables that it reads, or the one table that it writes.
        columns: The columns that it reads or writes; none for "remove".
        parameters: Names of the parameters, in the order of a call.
        phrase: How an instruction asks for a call, for example "route {boat} to {river}"; empty: the call itself.
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
        """Whether a call changes records."""
        return self.effect not in ("get", "find")

    @property
    def names_field(self) -> bool:
        """Whether one of a call's arguments is a field.

        A read always names its field. A change names it only where it has several columns to count in; otherwise there
        is only one to change.
        """
        counts_in_several = self.effect in ("add", "take") and len(self.columns) > 1
        return counts_in_several or not self.writes

    @model_validator(mode="after")
    def _check_effect(self) -> Function:
        """Refuse a function whose parameters, tables, columns or phrase do not fit its effect (get, set, add, ...)."""
        num_parameters = 2 if self.names_field or self.effect == "set" else 1
        if len(self.parameters) != num_parameters or len(set(self.parameters)) != num_parameters:
            raise ValueError(
                f"function {self.name!r} has the effect {self.effect}: it takes {num_parameters} parameters"
            )
        if self.writes and len(self.tables) > 1:
            raise ValueError(f"function {self.name!r} writes, so it is about one table")
        columns_missing = not self.columns and self.effect != "remove"
        columns_unused = self.columns and self.effect == "remove"
        several_to_set = self.effect == "set" and len(self.columns) > 1
        if columns_missing or columns_unused or several_to_set:
            raise ValueError(
                f"function {self.name!r}: set has one column, remove none, the others some"
            )
        if set(_PLACEHOLDER.findall(self.phrase)) - set(self.parameters):
            raise ValueError(
                f"function {self.name!r}: its phrase {self.phrase!r} has a placeholder that is no parameter"
            )
        return self

    def write_command(self, arguments: Mapping[str, str]) -> str:
        """Write a call as a command in words: "route Cy to Abra".

        Args:
            arguments: Argument by the name of its parameter, for example {"boat": "Cy", "river": "Abra"}.

        Returns:
            The phrase with the arguments filled in, without a full stop.
        """
        # A model may leave the phrase out; the call itself can always be read.
        if not self.phrase:
            return " ".join((self.name, *(arguments[name] for name in self.parameters)))
        return _PLACEHOLDER.sub(lambda match: arguments[match.group(1)], self.phrase)


class TaskDomain(_Strict):
    """Tables of records, and the functions (tools) that an agent may call on them.

    Attributes:
        name: Name of the domain.
        tables: The tables of its databases.
        functions: The functions, in the order in which an agent sees them.

    Raises:
        ValidationError: pydantic's, where a name is there twice, a reference or a function leads nowhere, a field of a
            function is in two of its tables, or a column has the wrong kind.
    """

    name: Name
    tables: Annotated[tuple[TableSchema, ...], Field(min_length=1, max_length=6)]
    functions: Annotated[tuple[Function, ...], Field(min_length=1, max_length=12)]

    @model_validator(mode="after")
    def _check_references(self) -> TaskDomain:
        """Refuse names that occur twice, and columns or functions that refer to a table or field that there is not."""
        # Names first: what follows looks tables up by them.
        _refuse_duplicates(f"tables of {self.name}", [table.name for table in self.tables])
        _refuse_duplicates(
            f"functions of {self.name}", [function.name for function in self.functions]
        )
        table_names = {table.name for table in self.tables}
        for table in self.tables:
            for column in table.columns:
                if column.of is not None and column.of not in table_names:
                    raise ValueError(
                        f"{table.name}.{column.name} refers to a table {column.of!r} that there is not"
                    )
        for function in self.functions:
            for name in function.tables:
                if name not in table_names:
                    raise ValueError(
                        f"function {function.name!r} is about a table {name!r} that there is not"
                    )
            for field in function.columns:
                self._check_field(function, field)
        return self

    def _check_field(self, function: Function, field: str) -> None:
        """Check that a field names exactly one column, of a kind that the function's effect can work on.

        Args:
            function: A function of the domain.
            field: One of its columns.

        Raises:
            ValueError: Where the field is in no table of the function or in several, counts in a column without
                digits, or would change a copy of the key.
        """
        columns = [self.get_table(name).find_column(field) for name in function.tables]
        kinds = [column.kind for column in columns if column is not None]
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

    def get_table(self, name: str) -> TableSchema:
        """Look up a table by its name.

        Args:
            name: Name of one of `tables`.

        Returns:
            The table.

        Raises:
            KeyError: For a name that no table has.
        """
        return self._tables_by_name[name]

    def find_function(self, name: str) -> Function | None:
        """Find a function by its name; None where the domain has none of this name."""
        return self._functions_by_name.get(name)

    def find_column(self, function: Function, field: str) -> tuple[TableSchema, Column] | None:
        """Find the table and column behind a field that a call names, such as "home" in "lookup home Ana".

        Args:
            function: The function that is called, one of `functions`.
            field: Name of a column in one of its tables.

        Returns:
            (table, column); None where the function does not read or write such a field.
        """
        if field not in function.columns:
            return None
        for name in function.tables:
            table = self.get_table(name)
            column = table.find_column(field)
            if column is not None:
                return table, column
        return None

    def list_values(self, column: Column, table: TableSchema) -> tuple[str, ...]:
        """List the words that may stand in a column of a table.

        Args:
            column: A column of the table.
            table: The table.

        Returns:
            The digits for a digit column, the choices for a choice column; for a reference to another table the keys
            of that table, and for a copy of the record's own key the keys of this one.
        """
        if column.kind == "digit":
            return DIGITS
        if column.kind == "choice":
            return column.choices
        if column.kind == "name":  # a copy of the record's own key
            return table.keys
        return self.get_table(column.of or "").keys

    def build_tool_schemas(self) -> list[dict[str, Any]]:
        """Write the functions as OpenAI tool schemas, for the `tools` of a chat completion request.

        Returns:
            {"type": "function", "function": {...}} for each; parameters are strings with an enum of possible values.
        """
        schemas = []
        for function in self.functions:
            properties = {}
            for name, values in zip(function.parameters, self._list_options(function), strict=True):
                properties[name] = {"type": "string", "enum": list(values)}
            parameters = {
                "type": "object",
                "properties": properties,
                "required": list(function.parameters),
                "additionalProperties": False,
            }
            schema = {
                "name": function.name,
                "description": function.about,
                "parameters": parameters,
            }
            schemas.append({"type": "function", "function": schema})
        return schemas

    def _list_options(self, function: Function) -> list[tuple[str, ...]]:
        """List the values that each parameter of a function can take.

        Args:
            function: One of `functions`.

        Returns:
            The values for each parameter, in the order of a call.
        """
        # A function may read several tables; the key in a call may be of any of them.
        keys: dict[str, None] = {}  # an ordered set
        for name in function.tables:
            keys |= dict.fromkeys(self.get_table(name).keys)

        if function.effect == "get":
            return [function.columns, tuple(keys)]
        if function.effect == "find":
            values: dict[str, None] = {}
            for field in function.columns:
                table_and_column = self.find_column(function, field)
                if table_and_column is not None:
                    table, column = table_and_column
                    values |= dict.fromkeys(self.list_values(column, table))
            return [function.columns, tuple(values)]
        if function.effect == "set":
            table = self.get_table(function.tables[0])
            column = table.find_column(function.columns[0])
            assert column is not None  # validated above
            return [tuple(keys), self.list_values(column, table)]
        return [tuple(keys), function.columns] if function.names_field else [tuple(keys)]

    @cached_property
    def _tables_by_name(self) -> dict[str, TableSchema]:
        return {table.name: table for table in self.tables}

    @cached_property
    def _functions_by_name(self) -> dict[str, Function]:
        return {function.name: function for function in self.functions}


def _refuse_duplicates(kind: str, names: Sequence[str]) -> None:
    """Raise a ValueError where a name occurs twice; `kind` says in the message what the names are of."""
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"{kind}: {', '.join(duplicates)} is there twice")


def _make_lookup(tables: tuple[str, ...], columns: tuple[str, ...]) -> Function:
    """Make the function "lookup", with which an agent reads a field of a record: "lookup home Ana"."""
    return Function(
        name="lookup",
        about="one field of one record",
        effect="get",
        tables=tables,
        columns=columns,
        parameters=("field", "name"),
    )


def _make_choice(name: str, choices: tuple[str, ...]) -> Column:
    return Column(name=name, kind="choice", choices=choices)


def _make_reference(name: str, of: str) -> Column:
    return Column(name=name, kind="reference", of=of)


def _make_digit(name: str) -> Column:
    return Column(name=name, kind="digit")


# Two tables that are looked up and one field that is set.
HARBOUR = TaskDomain(
    name="harbour",
    tables=(
        TableSchema(
            name="boats",
            keys=ANIMALS,
            columns=(_make_reference("river", "rivers"), _make_digit("keys")),
        ),
        TableSchema(
            name="rivers", keys=RIVERS, columns=(_make_choice("judge", PEOPLE), _make_digit("fish"))
        ),
    ),
    functions=(
        _make_lookup(("boats", "rivers"), ("river", "keys", "judge", "fish")),
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

# References in both directions, so that chains of them are possible, and a count that only goes up.
TOWN = TaskDomain(
    name="town",
    tables=(
        TableSchema(
            name="people",
            keys=PEOPLE,
            columns=(
                _make_reference("home", "towns"),
                _make_reference("friend", "people"),
                _make_digit("votes"),
            ),
        ),
        TableSchema(
            name="towns",
            keys=TOWNS,
            columns=(_make_choice("river", RIVERS), _make_reference("mayor", "people")),
        ),
    ),
    functions=(
        _make_lookup(("people", "towns"), ("home", "friend", "votes", "river", "mayor")),
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

# The simplest: one table, one field to set.
GUILD = TaskDomain(
    name="guild",
    tables=(
        TableSchema(
            name="people",
            keys=PEOPLE,
            columns=(
                _make_choice("job", JOBS),
                _make_choice("pet", PETS),
                _make_reference("friend", "people"),
            ),
        ),
    ),
    functions=(
        _make_lookup(("people",), ("job", "pet", "friend")),
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

# Counts that only go down; a call names which.
STORE = TaskDomain(
    name="store",
    tables=(
        TableSchema(
            name="people",
            keys=PEOPLE,
            columns=(
                _make_digit("coins"),
                _make_digit("pens"),
                _make_digit("eggs"),
                _make_reference("friend", "people"),
            ),
        ),
    ),
    functions=(
        _make_lookup(("people",), ("coins", "pens", "eggs", "friend")),
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
