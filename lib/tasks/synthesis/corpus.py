"""A corpus of synthesised tasks: its statistics, and one JSON file to keep it in.

The file holds databases, tasks and what was dropped as rows, and a hash of them, so that a file which is
cut off, changed or not one of these is refused with its name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.experiment import artifacts
from lib.tasks.item import TaskError
from lib.tasks.synthesis.database import check
from lib.tasks.synthesis.domains import TaskDomain
from lib.tasks.synthesis.filters import ERROR, IDLE, UNSOLVED, Dropped
from lib.tasks.synthesis.tasks import Source, Task

_Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Corpus:
    """Databases, the tasks on them that passed the filters, and what was left out on the way."""

    sources: tuple[Source, ...]
    tasks: tuple[Task, ...]
    dropped: tuple[Dropped, ...]

    def statistics(self) -> pd.DataFrame:
        """One row per domain: its size, how many databases, records and tasks, and what was dropped why."""
        names = dict.fromkeys(
            [s.domain.name for s in self.sources] + [d.domain for d in self.dropped]
        )
        reasons = dict.fromkeys([ERROR, UNSOLVED, IDLE, *sorted({d.reason for d in self.dropped})])
        levels = range(1, max((task.difficulty for task in self.tasks), default=1) + 1)
        return pd.DataFrame([self._row(name, levels, list(reasons)) for name in names])

    def save(self, path: str | Path) -> Path:
        """Write the corpus as one file, atomically; equal corpora are equal bytes."""
        rows = self._rows()
        return artifacts.write_json(path, rows | {"sha256": artifacts.sha256_json(rows)})

    def _rows(self) -> _Rows:
        unfit = [each.task for each in self.dropped if each.task]
        return {
            "sources": [
                (s.id, s.domain.model_dump(mode="json"), s.subject, s.records) for s in self.sources
            ],
            "tasks": [_task_row(task, True) for task in self.tasks]
            + [_task_row(task, False) for task in unfit],
            "dropped": [
                (d.step, d.reason, d.domain, d.detail, d.task.id if d.task else None)
                for d in self.dropped
            ],
        }

    def _row(self, name: str, levels: Iterable[int], reasons: list[str]) -> dict[str, object]:
        sources = [source for source in self.sources if source.domain.name == name]
        tasks = [task for task in self.tasks if task.domain.name == name]
        domain = sources[0].domain if sources else None
        dropped = [each.reason for each in self.dropped if each.domain == name]
        return {
            "domain": name,
            "tables": len(domain.tables) if domain else 0,
            "columns": sum(len(table.columns) for table in domain.tables) if domain else 0,
            "functions": len(domain.functions) if domain else 0,
            "databases": len(sources),
            "records": sum(len(rows) for source in sources for rows in source.records.values()),
            "tasks": len(tasks),
            **{
                f"difficulty {level}": sum(task.difficulty == level for task in tasks)
                for level in levels
            },
            "golden calls": sum(len(task.calls) for task in tasks) / len(tasks) if tasks else 0.0,
            **{f"dropped: {reason}": dropped.count(reason) for reason in reasons},
        }


def load(path: str | Path) -> Corpus:
    """The corpus in a file. Raises TaskError with the file's name where it is anything else, cut off or changed."""
    try:
        rows = artifacts.read_json(path)
        if rows.pop("sha256") != artifacts.sha256_json(rows):
            raise ValueError("its content is not what was written")
        return _corpus(rows)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TaskError(
            f"{path} is not a whole corpus of tasks ({error}); make it again"
        ) from error


def _corpus(rows: _Rows) -> Corpus:
    sources: dict[str, Source] = {}
    for name, domain, subject, records in rows["sources"]:
        source = sources[name] = Source(TaskDomain.model_validate(domain), records, subject)
        problems = check(source.domain, source.records)
        if problems or source.id != name:
            raise ValueError(f"database {name}: {'; '.join(problems) or 'its name is not its own'}")
    tasks, kept = {}, []
    for name, source, intent, instruction, calls, info, difficulty, parent, fit in rows["tasks"]:
        told = tuple(map(tuple, calls)), tuple(info)
        tasks[name] = Task(name, sources[source], intent, instruction, *told, difficulty, parent)
        kept += [tasks[name]] * fit
    dropped = (Dropped(*each, tasks[task] if task else None) for *each, task in rows["dropped"])
    return Corpus(tuple(sources.values()), tuple(kept), tuple(dropped))


def _task_row(task: Task, kept: bool) -> tuple[Any, ...]:
    told = task.intent, task.instruction, task.calls, task.info, task.difficulty, task.parent
    return (task.id, task.database, *told, kept)
