"""Who writes domains, records and tasks: a procedure, or a language model asked once per step.

The steps are those of ToolOrchestra, appendix "Data Synthesis": subjects, schema, functions, records,
their validation, intents, a task for an intent, a harder task out of a task. What a model writes is data:
it is repaired as JSON, validated, and counted where it does not validate. The prompts are our own.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lib.tasks.synthesis.database import Database
from lib.tasks.synthesis.domains import DOMAINS, Records, TaskDomain
from lib.tasks.synthesis.filters import Dropped
from lib.tasks.synthesis.plans import Scene, TaskPlan
from lib.tasks.synthesis.tasks import Call, Source

FEWEST, MOST = 4, 8  # records of a table


@dataclass(frozen=True)
class Draft:
    """A task before it is judged; `plan` is how a procedure keeps track of what it wrote."""

    instruction: str
    calls: tuple[Call, ...]
    info: tuple[str, ...]
    plan: TaskPlan | None = None


class Writer(Protocol):
    """The steps of the pipeline. What cannot be written is None, or left out of a list, and is in `dropped`.

    patience: databases drawn for each one wanted, before a split is left short.
    """

    dropped: list[Dropped]
    patience: int

    def domains(self) -> list[TaskDomain]: ...

    def subjects(self, domain: TaskDomain, n: int, rng: np.random.Generator) -> list[str]: ...

    def records(
        self, domain: TaskDomain, subject: str, rng: np.random.Generator
    ) -> Records | None: ...

    def intents(self, source: Source, n: int, rng: np.random.Generator) -> list[str]: ...

    def task(self, source: Source, intent: str, rng: np.random.Generator) -> Draft | None: ...

    def evolve(self, source: Source, draft: Draft, rng: np.random.Generator) -> Draft | None: ...


class Procedural:
    """Writes by drawing, in the words of the lab. A subject is the cast: the keys that a database is about."""

    patience = 40  # one database in ten is in the smallest split

    def __init__(self, domains: tuple[TaskDomain, ...] = DOMAINS) -> None:
        self._domains = domains
        self.dropped: list[Dropped] = []

    def domains(self) -> list[TaskDomain]:
        return list(self._domains)

    def subjects(self, domain: TaskDomain, n: int, rng: np.random.Generator) -> list[str]:
        """n casts of the first table."""
        return [" ".join(_cast(domain.tables[0].keys, rng)) for _ in range(n)]

    def records(self, domain: TaskDomain, subject: str, rng: np.random.Generator) -> Records | None:
        """Records drawn evenly from what may stand in their columns; nobody refers to themselves."""
        keys = {table.name: _cast(table.keys, rng) for table in domain.tables} | {
            domain.tables[0].name: tuple(subject.split())
        }
        written: dict[str, dict[str, dict[str, str]]] = {}
        for table in domain.tables:
            rows = written[table.name] = {}
            for key in keys[table.name]:
                row = rows[key] = {}
                for column in table.columns:
                    options = keys[column.of] if column.of else domain.values(column, table)
                    others = [word for word in options if word != key or column.of != table.name]
                    row[column.name] = (
                        key if column.kind == "name" else others[int(rng.integers(len(others)))]
                    )
        return written

    def intents(self, source: Source, n: int, rng: np.random.Generator) -> list[str]:
        """n lines such as `lookup home` and `moves`, reads and changes in turn."""
        scene = Scene(Database(source.domain, source.records))
        reads = [f"{scene.reader.name} {field}" for field in scene.reader.columns]
        changes = [function.name for function in scene.writers] or reads
        return [
            (options := changes if i % 2 else reads)[int(rng.integers(len(options)))]
            for i in range(n)
        ]

    def task(self, source: Source, intent: str, rng: np.random.Generator) -> Draft | None:
        """A task for an intent, drawn without a look at whether it can be done: that is for the filters."""
        scene = Scene(source.open())
        name, *field = intent.split()
        if field:
            return _draft(scene, TaskPlan((scene.ask(rng, field[0]),)))
        return _draft(
            scene, TaskPlan((scene.change(rng, next(f for f in scene.writers if f.name == name)),))
        )

    def evolve(self, source: Source, draft: Draft, rng: np.random.Generator) -> Draft | None:
        """The task with one complexity more; None where no more fits into an instruction."""
        scene = Scene(source.open())
        harder = scene.harder(rng, draft.plan) if draft.plan else None
        return _draft(scene, harder[1]) if harder else None


def _draft(scene: Scene, plan: TaskPlan) -> Draft:
    return Draft(scene.instruction(plan), scene.calls(plan), scene.info(plan), plan)


def _cast(keys: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    low, high = min(FEWEST, len(keys)), min(MOST, len(keys))
    chosen = rng.permutation(len(keys))[: int(rng.integers(low, high + 1))]
    return tuple(keys[i] for i in sorted(chosen))
