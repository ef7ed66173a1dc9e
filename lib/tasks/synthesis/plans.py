"""Procedural tasks: a plan of parts that is worded, carried out, and made harder by one complexity at a time.

A part asks for a field or changes a record. Complexities are a reference through another record ("the
friend of Ana"), a change under a condition, one more change, and one more thing to be told. A plan keeps
what its calls would read and write apart, so that an instruction means the same in whatever order it is
worked on, save that a condition comes before its own change.
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
COMPLEXITIES = {
    "reference": 0.4,
    "condition": 0.25,
    "change": 0.15,
    "report": 0.2,
}  # how often each is tried first
_TRIES = 12  # draws of one complexity before another is tried

Cell = tuple[str, str, str]  # table, key, column


@dataclass(frozen=True)
class Slot:
    """A word that a call needs, said as it is or, `via` (field, name), as what another record holds."""

    word: str
    via: tuple[str, str] | None = None

    def __str__(self) -> str:
        return self.word if self.via is None else f"the {self.via[0]} of {self.via[1]}"


@dataclass(frozen=True)
class Ask:
    """A field of a record that is to be told, or that a condition looks at."""

    field: str
    of: Slot


@dataclass(frozen=True)
class Change:
    """A call that writes. `given`: it is to be made only if the field asked for is `value`; whether it `holds`
    is known to the plan, not to who reads it."""

    function: str
    arguments: tuple[Slot, ...]
    given: Ask | None = None
    value: str = ""
    holds: bool = True


@dataclass(frozen=True)
class TaskPlan:
    """Parts in the order of the instruction."""

    parts: tuple[Ask | Change, ...]

    def slots(self) -> Iterator[tuple[int, int, Slot]]:
        """Every word of the parts that could go through another record: part, place in it, slot."""
        for i, part in enumerate(self.parts):
            if isinstance(part, Ask):
                yield i, 0, part.of
            else:
                yield from ((i, j, slot) for j, slot in enumerate(part.arguments))

    def with_slot(self, i: int, j: int, slot: Slot) -> TaskPlan:
        """The plan with one word said differently."""
        part = self.parts[i]
        if isinstance(part, Ask):
            changed: Ask | Change = replace(part, of=slot)
        else:
            changed = replace(part, arguments=(*part.arguments[:j], slot, *part.arguments[j + 1 :]))
        return TaskPlan((*self.parts[:i], changed, *self.parts[i + 1 :]))


class Scene:
    """A database as a plan sees it: what can be looked up, what can be changed, and how it is worded."""

    def __init__(self, database: Database) -> None:
        self.domain: TaskDomain = database.domain
        self.records = database.records()
        self.database = database
        readers = [f for f in self.domain.functions if f.effect == "get"]
        if not readers:
            raise ValueError(
                f"{self.domain.name} has no function with the effect get: nothing can be looked up"
            )
        self.reader = readers[0]
        self.writers = tuple(f for f in self.domain.functions if f.writes and f.effect != "remove")

    def place(self, field: str) -> tuple[TableSchema, Column]:
        """The table and column that a field is, as the reading function sees it."""
        found = self.domain.holder(self.reader, field)
        if found is None:
            raise KeyError(f"{self.reader.name} reads no {field!r}")
        return found

    def value(self, ask: Ask) -> str:
        table, column = self.place(ask.field)
        return self.records[table.name][ask.of.word][column.name]

    def instruction(self, plan: TaskPlan) -> str:
        """The plan in words; two changes without a condition are joined by `and then`."""
        said = ""
        for i, part in enumerate(plan.parts):
            follows = i and isinstance(part, Change) and not part.given
            before = plan.parts[i - 1] if follows else None
            joined = isinstance(before, Change) and not before.given
            said = (
                f"{said[:-2]} and then {self._worded(part)}"
                if joined
                else f"{said} {self._worded(part)}".lstrip()
            )
        return said

    def _worded(self, part: Ask | Change) -> str:
        if isinstance(part, Ask):
            counted = self.place(part.field)[1].kind == "digit"
            return (
                f"How many {part.field} has {part.of} ?"
                if counted
                else f"What is the {part.field} of {part.of} ?"
            )
        function = self._function(part)
        words = (
            function.wording(dict(zip(function.parameters, map(str, part.arguments), strict=True)))
            + " ."
        )
        if part.given is None:
            return words
        field, of = part.given.field, part.given.of
        counted = self.place(field)[1].kind == "digit"
        condition = (
            f"{of} has {part.value} {field}" if counted else f"the {field} of {of} is {part.value}"
        )
        return f"if {condition} then {words}"

    def calls(self, plan: TaskPlan) -> tuple[Call, ...]:
        """The golden calls: what references and conditions need is looked up first, and once."""
        calls: list[Call] = []
        for part in plan.parts:
            if isinstance(part, Ask):
                calls += self._looked_up(part)
                continue
            calls += self._looked_up(part.given) if part.given else []
            if part.holds:
                calls += [(self.reader.name, *slot.via) for slot in part.arguments if slot.via]
                calls.append((part.function, *(slot.word for slot in part.arguments)))
        return tuple(
            dict.fromkeys(calls)
        )  # equal calls are lookups: `clear` refuses a change made twice

    def info(self, plan: TaskPlan) -> tuple[str, ...]:
        """What must be told."""
        return tuple(
            dict.fromkeys(self.value(part) for part in plan.parts if isinstance(part, Ask))
        )

    def clear(self, plan: TaskPlan) -> bool:
        """Whether a plan is short enough, means one thing, and every change in it can be made and changes something."""
        words, calls = self.instruction(plan).split(), self.calls(plan)
        return (
            len(words) <= LONGEST
            and len(calls) <= MOST_CALLS
            and self._apart(plan)
            and self._effective(calls)
        )

    def ask(self, rng: np.random.Generator, field: str) -> Ask:
        """A question for a field of a random record."""
        return Ask(field, Slot(_pick(rng, sorted(self.records[self.place(field)[0].name]))))

    def change(self, rng: np.random.Generator, function: Function) -> Change:
        """A random call of a function that writes, possible or not, to the better or to what is there."""
        table = self.domain.table(function.tables[0])
        words = [_pick(rng, sorted(self.records[table.name]))]
        if function.effect == "set":
            column = table.column(function.columns[0])
            of = column.of if column else None
            words.append(
                _pick(rng, sorted(self.records[of]) if of else self.domain.values(column, table))
            )
        elif function.chooses:
            words.append(_pick(rng, function.columns))
        return Change(function.name, tuple(map(Slot, words)))

    def harder(self, rng: np.random.Generator, plan: TaskPlan) -> tuple[str, TaskPlan] | None:
        """The plan with one complexity more, and which; None where none fits any more."""
        for complexity in rng.choice(
            list(COMPLEXITIES), len(COMPLEXITIES), False, list(COMPLEXITIES.values())
        ):
            for _ in range(_TRIES):
                candidate = self._with(rng, plan, complexity)
                if candidate is not None and self.clear(candidate):
                    return str(complexity), candidate
        return None

    def _with(self, rng: np.random.Generator, plan: TaskPlan, complexity: str) -> TaskPlan | None:
        if complexity == "reference":
            return self._referred(rng, plan)
        if complexity == "report":
            return TaskPlan((*plan.parts, self.ask(rng, _pick(rng, self.reader.columns))))
        if not self.writers:
            return None
        change = self.change(rng, self.writers[int(rng.integers(len(self.writers)))])
        if complexity == "condition":
            change = self._conditional(rng, change)
        # changes come before questions, where `What` begins a sentence of its own
        asks = tuple(part for part in plan.parts if isinstance(part, Ask))
        done = tuple(part for part in plan.parts if isinstance(part, Change))
        return TaskPlan((*done, change, *asks))

    def _conditional(self, rng: np.random.Generator, change: Change) -> Change:
        """The change under a condition, about the same record or another; it holds every other time."""
        ask = self.ask(rng, _pick(rng, self.reader.columns))
        table, column = self.place(ask.field)
        if table.name == self._function(change).tables[0] and rng.integers(2):
            ask = Ask(ask.field, change.arguments[0])
        true = self.value(ask)
        others = [value for value in self.domain.values(column, table) if value != true]
        value = _pick(rng, others) if others and rng.integers(2) else true
        return replace(change, given=ask, value=value, holds=value == true)

    def _referred(self, rng: np.random.Generator, plan: TaskPlan) -> TaskPlan | None:
        """One word of the plan said through another record, where one holds it."""
        found = []
        for i, j, slot in plan.slots():
            kind = self._kind(plan.parts[i], j)
            if slot.via is None and kind is not None:
                found += [
                    (i, j, Slot(slot.word, via))
                    for via in self._ways(slot.word, kind, plan.parts[i])
                ]
        return plan.with_slot(*found[int(rng.integers(len(found)))]) if found else None

    def _kind(self, part: Ask | Change, j: int) -> tuple[str, ...] | None:
        """Which words can stand in a place of a part; None for a number and a field, which nothing refers to."""
        if isinstance(part, Ask):
            return self.place(part.field)[0].keys
        function = self._function(part)
        table = self.domain.table(function.tables[0])
        if j == 0:
            return (
                None if part.given else table.keys
            )  # `the friend of Ana` twice in a sentence reads badly
        column = table.column(function.columns[0]) if function.effect == "set" else None
        return (
            None
            if column is None or column.kind in ("digit", "name")
            else self.domain.values(column, table)
        )

    def _ways(self, word: str, kind: tuple[str, ...], part: Ask | Change) -> list[tuple[str, str]]:
        """The records that hold a word in a field of that kind: (field, name), the part's own record left out."""
        own = part.of.word if isinstance(part, Ask) else part.arguments[0].word
        ways = []
        for field in self.reader.columns:
            table, column = self.place(field)
            if self.domain.values(column, table) == kind:
                rows = sorted(self.records[table.name].items())
                ways += [
                    (field, name) for name, row in rows if row[column.name] == word and name != own
                ]
        return ways

    def _function(self, change: Change) -> Function:
        return next(f for f in self.writers if f.name == change.function)

    def _looked_up(self, ask: Ask) -> list[Call]:
        first = [(self.reader.name, *ask.of.via)] if ask.of.via else []
        return [*first, (self.reader.name, ask.field, ask.of.word)]

    def _apart(self, plan: TaskPlan) -> bool:
        """Whether no part reads what another writes, nor writes what another does, nor repeats another."""
        parts = [self._cells(part) for part in plan.parts]
        for i, (reads, writes) in enumerate(parts):
            others = [other for j, other in enumerate(parts) if j != i]
            if any(writes & (read | written) for read, written in others):
                return False
            if any(reads and reads <= read for read, _ in others):
                return False
        return all(not isinstance(part, Change) or self._free(part) for part in plan.parts)

    def _free(self, change: Change) -> bool:
        """Whether a change does not write what its own words are read from."""
        reads = {self._cell(*slot.via) for slot in change.arguments if slot.via}
        return not reads & self._cells(change)[1]

    def _cells(self, part: Ask | Change) -> tuple[set[Cell], set[Cell]]:
        """What a part reads and what it would write, whether its condition holds or not."""
        asks = [part] if isinstance(part, Ask) else [part.given] if part.given else []
        slots = [ask.of for ask in asks] + ([] if isinstance(part, Ask) else list(part.arguments))
        reads = {self._cell(ask.field, ask.of.word) for ask in asks} | {
            self._cell(*slot.via) for slot in slots if slot.via
        }
        if isinstance(part, Ask):
            return reads, set()
        function = self._function(part)
        column = part.arguments[1].word if function.chooses else function.columns[0]
        return reads, {(function.tables[0], part.arguments[0].word, column)}

    def _cell(self, field: str, name: str) -> Cell:
        table, column = self.place(field)
        return table.name, name, column.name

    def _effective(self, calls: tuple[Call, ...]) -> bool:
        trial = self.database.copy()
        for name, *arguments in calls:
            before = trial.content() if name != self.reader.name else None
            try:
                trial.call(name, arguments)
            except CallError:
                return False
            if before == trial.content():
                return False
        return True


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
