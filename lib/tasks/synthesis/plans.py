"""Procedural tasks for an agent with tools: a plan becomes an instruction and the tool calls that carry it out.

A plan is a list of requests; each asks for a field of a record or changes a record. A plan is made harder by one
complexity at a time: a reference through another record ("the friend of Ana" for "Cy"), a change under a condition,
one more change, or one more field to report. What the requests of a plan would read and write never overlaps, so that
an instruction means the same in whatever order it is worked on, save that a condition comes before its own change. Left
out: words that only a person would choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.tasks.synthesis.database import CallError, Database
from lib.tasks.synthesis.domains import Column, Function, TableSchema, TaskDomain
from lib.tasks.synthesis.tasks import Call

LONGEST = 29  # words of an instruction
MOST_CALLS = 4
# complexity: probability that it is the first to be tried
COMPLEXITIES = {
    "reference": 0.4,
    "condition": 0.25,
    "change": 0.15,
    "report": 0.2,
}
_DRAWS_PER_COMPLEXITY = 12  # before another complexity is tried

Cell = tuple[str, str, str]  # table, key, column


@dataclass(frozen=True)
class Argument:
    """One argument of a tool call, and how the instruction names it: "Cy", or "the friend of Ana".

    Attributes:
        word: The argument of the call, for example "Cy".
        via: (field, name) of a record that holds the word, for example ("friend", "Ana"): the instruction then says
            "the friend of Ana" and the agent has to look the word up. None: the instruction says the word itself.
    """

    word: str
    via: tuple[str, str] | None = None

    def __str__(self) -> str:
        """The words of the instruction: "Cy", or "the friend of Ana"."""
        if self.via is None:
            return self.word
        field, name = self.via
        return f"the {field} of {name}"


@dataclass(frozen=True)
class FieldQuery:
    """A field of a record that is to be reported, or that a condition depends on.

    Attributes:
        field: For example "home".
        record: Key of the record, for example "Ana".
    """

    field: str
    record: Argument


@dataclass(frozen=True)
class Change:
    """A call that changes a record, perhaps under a condition: "if Ana has 3 keys then route Cy to Abra".

    Attributes:
        function: Name of the function to call.
        arguments: Arguments of the call, in order.
        condition: The field that decides whether the change is to be made; None: it is made in any case.
        condition_value: The value that the field must have.
        condition_holds: Whether it has that value; the plan knows this, the instruction does not say it.
    """

    function: str
    arguments: tuple[Argument, ...]
    condition: FieldQuery | None = None
    condition_value: str = ""
    condition_holds: bool = True


Request = FieldQuery | Change


@dataclass(frozen=True)
class TaskPlan:
    """Requests (a field to report, or a change of a record) in the order of the instruction."""

    requests: tuple[Request, ...]

    def list_arguments(self) -> Iterator[tuple[int, int, Argument]]:
        """List the arguments of all requests, each with the position where `replace_argument` can replace it.

        Yields:
            (i, j, argument): argument j of request i. A query has one argument, the key of its record. Arguments of
            conditions are left out: they are never replaced.
        """
        for request_index, request in enumerate(self.requests):
            if isinstance(request, FieldQuery):
                yield request_index, 0, request.record
            else:
                for argument_index, argument in enumerate(request.arguments):
                    yield request_index, argument_index, argument

    def replace_argument(self, i: int, j: int, argument: Argument) -> TaskPlan:
        """Make a copy of the plan with another argument in one place.

        Args:
            i: Position of the request.
            j: Position of the argument in the request; 0 for a query, which has one.
            argument: The new argument, for example "the friend of Ana" in place of "Cy".

        Returns:
            The new plan.
        """
        request = self.requests[i]
        changed: Request
        if isinstance(request, FieldQuery):
            changed = replace(request, record=argument)
        else:
            arguments = (*request.arguments[:j], argument, *request.arguments[j + 1 :])
            changed = replace(request, arguments=arguments)
        return TaskPlan((*self.requests[:i], changed, *self.requests[i + 1 :]))


class TaskPlanner:
    """Draws plans for tasks on one database, and derives instruction, tool calls and answer from them.

    Attributes:
        database: As it is before any task.
        reader: The function that looks a field up, for example "lookup home Ana".
        writers: The functions that change records; those that remove records are left out.
    """

    def __init__(self, database: Database) -> None:
        """Read the records of a database and find the functions that read and change it.

        Args:
            database: It is not changed.

        Raises:
            ValueError: Where no function of the domain has the effect "get".
        """
        self.database = database
        self.domain: TaskDomain = database.domain
        self.records = database.read_records()
        readers = [function for function in self.domain.functions if function.effect == "get"]
        if not readers:
            raise ValueError(
                f"{self.domain.name} has no function with the effect get: nothing can be looked up"
            )
        self.reader = readers[0]
        self.writers = tuple(
            function
            for function in self.domain.functions
            if function.writes and function.effect != "remove"
        )

    # What a plan means -----------------------------------------------------------------------------

    def write_instruction(self, plan: TaskPlan) -> str:
        """Write the instruction for the agent: "route Cy to Abra . What is the judge of Belt ?".

        Args:
            plan: Requests in the order of the instruction.

        Returns:
            A sentence for every request; neighbouring changes without a condition share one, joined by "and then".
        """
        instruction = ""
        after_plain_change = False
        for request in plan.requests:
            sentence = self._write_sentence(request)
            plain_change = isinstance(request, Change) and request.condition is None
            if plain_change and after_plain_change:
                instruction = f"{instruction.removesuffix(' .')} and then {sentence}"
            else:
                instruction = f"{instruction} {sentence}".lstrip()
            after_plain_change = plain_change
        return instruction

    def _write_sentence(self, request: Request) -> str:
        """Write the sentence of one request: a question for a query, a command for a change.

        Args:
            request: A field to report, or a change of a record.

        Returns:
            For example "How many keys has Cy ?" or "if Cy has 3 keys then route Cy to Abra ."
        """
        if isinstance(request, FieldQuery):
            if self._is_count(request.field):
                return f"How many {request.field} has {request.record} ?"
            return f"What is the {request.field} of {request.record} ?"

        function = self._find_writer(request)
        words = map(str, request.arguments)
        command = function.write_command(dict(zip(function.parameters, words, strict=True)))
        if request.condition is None:
            return f"{command} ."
        field = request.condition.field
        record = request.condition.record
        if self._is_count(field):
            condition = f"{record} has {request.condition_value} {field}"
        else:
            condition = f"the {field} of {record} is {request.condition_value}"
        return f"if {condition} then {command} ."

    def _is_count(self, field: str) -> bool:
        """Whether a field holds a number, so that sentences say "has 3 keys" rather than "the keys of"."""
        return self._find_column(field)[1].kind == "digit"

    def list_calls(self, plan: TaskPlan) -> tuple[Call, ...]:
        """List the golden calls, the right sequence of tool calls for a plan.

        Args:
            plan: Requests in the order of the instruction.

        Returns:
            Calls (function, argument, ...). Lookups that references ("the friend of Ana") and conditions need come
            before the call that needs them, each lookup once. A change whose condition does not hold has no call.
        """
        calls: list[Call] = []
        for request in plan.requests:
            if isinstance(request, FieldQuery):
                calls += self._list_lookups(request)
                continue
            if request.condition:
                calls += self._list_lookups(request.condition)
            if request.condition_holds:
                for argument in request.arguments:
                    if argument.via:
                        calls.append((self.reader.name, *argument.via))
                words = (argument.word for argument in request.arguments)
                calls.append((request.function, *words))
        # Equal calls are lookups: `is_feasible` refuses a change that is made twice.
        return tuple(dict.fromkeys(calls))

    def _list_lookups(self, query: FieldQuery) -> list[Call]:
        """List the calls that read a field: two where its record is named through another one ("the friend of Ana")."""
        lookup = (self.reader.name, query.field, query.record.word)
        if query.record.via is None:
            return [lookup]
        return [(self.reader.name, *query.record.via), lookup]

    def list_info(self, plan: TaskPlan) -> tuple[str, ...]:
        """List the values of all fields that a plan asks for, each once: the agent must mention them in its reply."""
        queries = [request for request in plan.requests if isinstance(request, FieldQuery)]
        return tuple(dict.fromkeys(map(self._read_value, queries)))

    def is_feasible(self, plan: TaskPlan) -> bool:
        """Whether a plan, a list of requests to an agent, makes a valid task.

        Args:
            plan: Any plan on this database.

        Returns:
            Whether it is short enough for the models, its requests do not interfere with each other, and every change
            of a record is possible and changes something.
        """
        words = self.write_instruction(plan).split()
        calls = self.list_calls(plan)
        return (
            len(words) <= LONGEST
            and len(calls) <= MOST_CALLS
            and self._requests_are_independent(plan)
            and self._every_change_has_effect(calls)
        )

    # Drawing ---------------------------------------------------------------------------------------

    def draw_query(self, rng: np.random.Generator, field: str) -> FieldQuery:
        """Draw a request to report a field of a random record.

        Args:
            rng: Random numbers.
            field: For example "home".

        Returns:
            The request.
        """
        table, _ = self._find_column(field)
        return FieldQuery(field, Argument(_pick(rng, sorted(self.records[table.name]))))

    def draw_change(self, rng: np.random.Generator, function: Function) -> Change:
        """Draw random arguments for a function that changes records.

        Args:
            rng: Random numbers.
            function: One of `writers`.

        Returns:
            A change without a condition. It may be impossible or change nothing: `is_feasible` decides.
        """
        table = self.domain.get_table(function.tables[0])
        words = [_pick(rng, sorted(self.records[table.name]))]
        if function.effect == "set":
            column = table.find_column(function.columns[0])
            if column and column.of:
                options = sorted(self.records[column.of])
            else:
                options = self.domain.list_values(column, table)
            words.append(_pick(rng, options))
        elif function.names_field:
            words.append(_pick(rng, function.columns))
        return Change(function.name, tuple(map(Argument, words)))

    def add_complexity(
        self, rng: np.random.Generator, plan: TaskPlan
    ) -> tuple[str, TaskPlan] | None:
        """Make a plan harder in one respect, for example by a condition on a change.

        Args:
            rng: Random numbers.
            plan: It is not changed.

        Returns:
            (complexity, harder plan), the complexity being one of COMPLEXITIES; None where no attempt gave a feasible
            plan, as for an instruction that is long already.
        """
        names = list(COMPLEXITIES)
        probabilities = list(COMPLEXITIES.values())
        # All complexities in random order; the more probable ones tend to come first.
        for complexity in rng.choice(names, len(names), replace=False, p=probabilities):
            for _ in range(_DRAWS_PER_COMPLEXITY):
                candidate = self._draw_harder_plan(rng, plan, complexity)
                if candidate is not None and self.is_feasible(candidate):
                    return str(complexity), candidate
        return None

    def _draw_harder_plan(
        self, rng: np.random.Generator, plan: TaskPlan, complexity: str
    ) -> TaskPlan | None:
        """Draw a plan with one complexity more.

        Args:
            rng: Random numbers.
            plan: It is not changed.
            complexity: One of COMPLEXITIES.

        Returns:
            The plan, which may not be feasible; None where the complexity cannot be added at all.
        """
        if complexity == "reference":
            return self._refer_through_record(rng, plan)
        if complexity == "report":
            query = self.draw_query(rng, _pick(rng, self.reader.columns))
            return TaskPlan((*plan.requests, query))

        # Both "change" and "condition" add a change; the latter puts it under a condition.
        if not self.writers:
            return None
        change = self.draw_change(rng, self.writers[int(rng.integers(len(self.writers)))])
        if complexity == "condition":
            change = self._add_condition(rng, change)
        # Changes come before questions, so that neighbouring changes can be joined by "and then".
        changes = [request for request in plan.requests if isinstance(request, Change)]
        queries = [request for request in plan.requests if isinstance(request, FieldQuery)]
        return TaskPlan((*changes, change, *queries))

    def _add_condition(self, rng: np.random.Generator, change: Change) -> Change:
        """Put a change under a random condition, which holds about half of the time.

        Args:
            rng: Random numbers.
            change: A change without a condition.

        Returns:
            A copy of the change with a condition on a field of the same record or another.
        """
        query = self.draw_query(rng, _pick(rng, self.reader.columns))
        table, column = self._find_column(query.field)
        same_table = table.name == self._find_writer(change).tables[0]
        if same_table and rng.integers(2):
            query = FieldQuery(query.field, change.arguments[0])

        true_value = self._read_value(query)
        options = self.domain.list_values(column, table)
        false_values = [value for value in options if value != true_value]
        if false_values and rng.integers(2):
            value = _pick(rng, false_values)
        else:
            value = true_value
        return replace(
            change,
            condition=query,
            condition_value=value,
            condition_holds=value == true_value,
        )

    def _refer_through_record(self, rng: np.random.Generator, plan: TaskPlan) -> TaskPlan | None:
        """Replace a random argument by a reference: "the friend of Ana" for "Cy".

        Args:
            rng: Random numbers.
            plan: It is not changed.

        Returns:
            The new plan; None where no field of any record holds an argument of the plan.
        """
        options = []
        for request_index, argument_index, argument in plan.list_arguments():
            request = plan.requests[request_index]
            values = self._list_possible_words(request, argument_index)
            if argument.via is None and values is not None:
                for via in self._find_records_that_hold(argument.word, values, request):
                    reference = Argument(argument.word, via)
                    options.append((request_index, argument_index, reference))
        if not options:
            return None
        return plan.replace_argument(*options[int(rng.integers(len(options)))])

    def _list_possible_words(self, request: Request, argument_index: int) -> tuple[str, ...] | None:
        """List the words that an argument of a request can be.

        Args:
            request: A field to report, or a change of a record.
            argument_index: Position of the argument in the request.

        Returns:
            The words; None where the argument must not become a reference ("the friend of Ana"), as a number or the
            name of a field.
        """
        if isinstance(request, FieldQuery):
            return self._find_column(request.field)[0].keys
        function = self._find_writer(request)
        table = self.domain.get_table(function.tables[0])
        if argument_index == 0:
            # With a condition the sentence would say `the friend of Ana` twice, which reads badly.
            return None if request.condition else table.keys
        if function.effect != "set":
            return None
        column = table.find_column(function.columns[0])
        if column is None or column.kind in ("digit", "name"):
            return None
        return self.domain.list_values(column, table)

    def _find_records_that_hold(
        self, word: str, values: tuple[str, ...], request: Request
    ) -> list[tuple[str, str]]:
        """Find the fields of other records that hold a word: the friend of Ana and the friend of Bo are "Cy".

        Args:
            word: An argument of the request, for example "Cy".
            values: All words that could stand in the argument's place; only fields with the same values count, so that
                the reference is of the right kind (a person for a person).
            request: The request with the argument. Its own record is left out: a sentence that refers to a record
                through itself would be circular.

        Returns:
            (field, name) of each, for example ("friend", "Ana").
        """
        if isinstance(request, FieldQuery):
            request_name = request.record.word
        else:
            request_name = request.arguments[0].word
        holders = []
        for field in self.reader.columns:
            table, column = self._find_column(field)
            if self.domain.list_values(column, table) != values:
                continue
            for name, row in sorted(self.records[table.name].items()):
                if row[column.name] == word and name != request_name:
                    holders.append((field, name))
        return holders

    # What a plan reads and writes ------------------------------------------------------------------

    def _requests_are_independent(self, plan: TaskPlan) -> bool:
        """Whether the requests of a plan can be carried out in any order, and none repeats another.

        A request asks for a field of a record, or changes a record. In the database it reads some cells and writes
        others; a cell is (table, key of the record, column).

        Args:
            plan: The requests of a task.

        Returns:
            False where a request writes a cell that another request reads or writes, where it reads only cells that
            another request reads, too, or where it overwrites a cell that its own arguments refer to.
        """
        cells_by_request = [self._find_cells(request) for request in plan.requests]
        for i, (reads, writes) in enumerate(cells_by_request):
            for j, (other_reads, other_writes) in enumerate(cells_by_request):
                if i == j:
                    continue
                # The result would depend on which of the two requests comes first.
                if writes & (other_reads | other_writes):
                    return False
                # The request would ask for what the other one asks for.
                if reads and reads <= other_reads:
                    return False
        return not any(self._overwrites_referenced_cell(request) for request in plan.requests)

    def _overwrites_referenced_cell(self, request: Request) -> bool:
        """Whether a change writes a cell that one of its own arguments refers to.

        An argument may be named through a cell: "the friend of Ana" for "Cy". If the change overwrote the friend of
        Ana, the argument would mean one person before the change and another one after it.
        """
        if isinstance(request, FieldQuery):
            return False
        _, writes = self._find_cells(request)
        return bool(self._find_referenced_cells(request) & writes)

    def _find_cells(self, request: Request) -> tuple[set[Cell], set[Cell]]:
        """Find the cells (table, key, column) that a request touches, whether its condition holds or not.

        Args:
            request: A field to report, or a change of a record.

        Returns:
            (reads, writes): the cells that it reads, and those that it writes.
        """
        if isinstance(request, FieldQuery):
            return self._find_cells_of_query(request), set()

        reads = self._find_referenced_cells(request)
        if request.condition:
            reads |= self._find_cells_of_query(request.condition)

        # The arguments of a change are the key of a record and then perhaps a field or a value.
        function = self._find_writer(request)
        name, *more_words = (argument.word for argument in request.arguments)
        column = more_words[0] if function.names_field else function.columns[0]
        return reads, {(function.tables[0], name, column)}

    def _find_referenced_cells(self, change: Change) -> set[Cell]:
        """Find the cells that arguments of a change refer to: (people, Ana, friend) for "the friend of Ana"."""
        references = [argument.via for argument in change.arguments if argument.via]
        return {self._find_cell(field, name) for field, name in references}

    def _find_cells_of_query(self, query: FieldQuery) -> set[Cell]:
        """Find the cells (table, key, column) that a query reads: two where its record is named through another one."""
        cells = {self._find_cell(query.field, query.record.word)}
        if query.record.via:
            cells.add(self._find_cell(*query.record.via))
        return cells

    def _find_cell(self, field: str, name: str) -> Cell:
        """Find the cell (table, key, column) of a field of a record: (people, Ana, friend) for "friend" and "Ana"."""
        table, column = self._find_column(field)
        return table.name, name, column.name

    def _every_change_has_effect(self, calls: tuple[Call, ...]) -> bool:
        """Whether all calls (function, argument, ...) succeed on a copy of the database, and each change alters it."""
        database = self.database.copy()
        for name, *arguments in calls:
            content_before = database.serialize()
            try:
                database.call(name, arguments)
            except CallError:
                return False
            is_change = name != self.reader.name  # the other calls look a field up
            if is_change and database.serialize() == content_before:
                return False
        return True

    # Looking up ------------------------------------------------------------------------------------

    def _find_column(self, field: str) -> tuple[TableSchema, Column]:
        """Find the table and the column that the lookup function reads a field from, such as "home".

        Raises:
            KeyError: For a field that it does not read.
        """
        table_and_column = self.domain.find_column(self.reader, field)
        if table_and_column is None:
            raise KeyError(f"{self.reader.name} reads no {field!r}")
        return table_and_column

    def _read_value(self, query: FieldQuery) -> str:
        """Read the value that a query asks for from the records, as they are before any change."""
        table, column = self._find_column(query.field)
        return self.records[table.name][query.record.word][column.name]

    def _find_writer(self, change: Change) -> Function:
        return next(function for function in self.writers if function.name == change.function)


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
