"""What writes domains, records and tasks: a procedure here, or a language model (`llm_writer`).

The steps are those of ToolOrchestra, appendix "Data Synthesis": subjects, schema, functions, records,
their validation, intents, a task for an intent, a harder task out of a task. Left out: whether a task can be solved,
which `filters` decides.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lib.tasks.synthesis.database import Database
from lib.tasks.synthesis.domains import DOMAINS, Records, TaskDomain
from lib.tasks.synthesis.filters import DropRecord
from lib.tasks.synthesis.plans import TaskPlan, TaskPlanner
from lib.tasks.synthesis.tasks import Call, Source

FEWEST, MOST = 4, 8  # records of a table


@dataclass(frozen=True)
class Draft:
    """A task as it was written, before the filters accept or drop it.

    Attributes:
        instruction: The text that the agent gets.
        calls: The golden calls, the right sequence of tool calls.
        info: Values that the agent must report.
        plan: The plan that a procedure wrote it from; None for a task of a language model.
    """

    instruction: str
    calls: tuple[Call, ...]
    info: tuple[str, ...]
    plan: TaskPlan | None = None


class Writer(Protocol):
    """The steps of the pipeline. What cannot be written is None, or left out of a list, and recorded in `dropped`.

    Attributes:
        dropped: Why domains, records and tasks could not be written so far.
        patience: Databases generated for every one wanted in a split, before the split is left short.
    """

    dropped: list[DropRecord]
    patience: int

    def write_domains(self) -> list[TaskDomain]: ...

    def write_subjects(self, domain: TaskDomain, n: int, rng: np.random.Generator) -> list[str]: ...

    def write_records(
        self, domain: TaskDomain, subject: str, rng: np.random.Generator
    ) -> Records | None: ...

    def write_intents(self, source: Source, n: int, rng: np.random.Generator) -> list[str]: ...

    def write_task(self, source: Source, intent: str, rng: np.random.Generator) -> Draft | None: ...

    def write_harder_task(
        self, source: Source, draft: Draft, rng: np.random.Generator
    ) -> Draft | None: ...


class ProceduralWriter:
    """Draws records and tasks at random, in the vocabulary of the small models trained here.

    The subject of a database, in words for a language model, is here the list of keys of its first table.
    """

    patience = 40  # one database in ten is in the smallest split

    def __init__(self, domains: tuple[TaskDomain, ...] = DOMAINS) -> None:
        self._domains = domains
        self.dropped: list[DropRecord] = []

    def write_domains(self) -> list[TaskDomain]:
        """The domains that it was made with."""
        return list(self._domains)

    def write_subjects(self, domain: TaskDomain, n: int, rng: np.random.Generator) -> list[str]:
        """Draw n subjects, each a line of keys of the first table, such as "cat fox owl"."""
        keys = domain.tables[0].keys
        return [" ".join(_draw_keys(keys, rng)) for _ in range(n)]

    def write_records(
        self, domain: TaskDomain, subject: str, rng: np.random.Generator
    ) -> Records | None:
        """Draw the records of a database uniformly from the values that their columns allow.

        Args:
            domain: The tables.
            subject: Keys of the first table, with blanks between them.
            rng: Random numbers.

        Returns:
            Value by table, key and column; never None.
        """
        keys = {table.name: _draw_keys(table.keys, rng) for table in domain.tables}
        keys[domain.tables[0].name] = tuple(subject.split())

        records: dict[str, dict[str, dict[str, str]]] = {}
        for table in domain.tables:
            rows = records[table.name] = {}
            for key in keys[table.name]:
                row = rows[key] = {}
                for column in table.columns:
                    if column.kind == "name":
                        row[column.name] = key
                        continue
                    # A reference leads to a record that is there.
                    values = keys[column.of] if column.of else domain.list_values(column, table)
                    # Nobody is their own friend.
                    if column.of == table.name:
                        values = tuple(value for value in values if value != key)
                    row[column.name] = values[int(rng.integers(len(values)))]
        return records

    def write_intents(self, source: Source, n: int, rng: np.random.Generator) -> list[str]:
        """Draw n intents: reads such as "lookup home" and changes such as "route", alternately.

        Args:
            source: The database.
            n: Number of intents.
            rng: Random numbers.

        Returns:
            A function with a field to read, or the name of a function that changes records.
        """
        planner = TaskPlanner(Database(source.domain, source.records))
        reads = [f"{planner.reader.name} {field}" for field in planner.reader.columns]
        changes = [function.name for function in planner.writers] or reads
        intents = []
        for i in range(n):
            options = changes if i % 2 else reads
            intents.append(options[int(rng.integers(len(options)))])
        return intents

    def write_task(self, source: Source, intent: str, rng: np.random.Generator) -> Draft | None:
        """Draw a task for an intent.

        Args:
            source: The database.
            intent: One of `write_intents`, such as "lookup home" or "route".
            rng: Random numbers.

        Returns:
            The task. It may be impossible or change nothing: the filters drop such tasks.
        """
        planner = TaskPlanner(source.open())
        name, *fields = intent.split()
        if fields:
            return _write_draft(planner, TaskPlan((planner.draw_query(rng, fields[0]),)))
        function = next(function for function in planner.writers if function.name == name)
        return _write_draft(planner, TaskPlan((planner.draw_change(rng, function),)))

    def write_harder_task(
        self, source: Source, draft: Draft, rng: np.random.Generator
    ) -> Draft | None:
        """Make a task harder in one respect, for example by a condition.

        Args:
            source: The database.
            draft: The easier task.
            rng: Random numbers.

        Returns:
            The harder task; None where no more fits into an instruction, or the draft has no plan.
        """
        if draft.plan is None:
            return None
        planner = TaskPlanner(source.open())
        harder = planner.add_complexity(rng, draft.plan)
        if harder is None:
            return None
        _, plan = harder
        return _write_draft(planner, plan)


def _write_draft(planner: TaskPlanner, plan: TaskPlan) -> Draft:
    """Turn a plan into instruction, golden calls and the information to report."""
    return Draft(
        instruction=planner.write_instruction(plan),
        calls=planner.list_calls(plan),
        info=planner.list_info(plan),
        plan=plan,
    )


def _draw_keys(keys: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    """Draw FEWEST to MOST of the keys, and keep their order."""
    order = rng.permutation(len(keys))
    # A table with few keys has few records.
    fewest = min(FEWEST, len(keys))
    most = min(MOST, len(keys))
    num_keys = int(rng.integers(fewest, most + 1))
    positions = sorted(order[:num_keys])
    return tuple(keys[position] for position in positions)
