"""A corpus of synthesised tasks: its statistics, and one JSON file to keep it in.

The file holds databases, tasks and what was dropped as rows, and a hash of them, so that a file which is
cut off, changed or not one of these is refused with its name. Left out: how a corpus is written
(`lib.tasks.synthesis.synthesize`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.experiment import artifacts
from lib.tasks.item import TaskError
from lib.tasks.synthesis.database import find_problems
from lib.tasks.synthesis.domains import TaskDomain
from lib.tasks.synthesis.filters import ERROR, IDLE, UNSOLVED, DropRecord
from lib.tasks.synthesis.tasks import Source, Task

_Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Corpus:
    """Databases, and tasks on them.

    Attributes:
        sources: The databases.
        tasks: Those that passed the filters.
        dropped: What was left out on the way.
    """

    sources: tuple[Source, ...]
    tasks: tuple[Task, ...]
    dropped: tuple[DropRecord, ...]

    def statistics(self) -> pd.DataFrame:
        """Count databases, tasks and dropped tasks of each domain.

        Returns:
            One row per domain: numbers of tables, columns, functions, databases and records; tasks by difficulty; mean
            number of golden calls (tool calls of the right solution) per task; dropped tasks by reason.
        """
        names = [source.domain.name for source in self.sources]
        names += [drop.domain for drop in self.dropped]
        reasons = [ERROR, UNSOLVED, IDLE, *sorted({drop.reason for drop in self.dropped})]
        hardest = max((task.difficulty for task in self.tasks), default=1)
        levels = range(1, hardest + 1)
        rows = [
            self._describe_domain(name, levels, list(dict.fromkeys(reasons)))
            for name in dict.fromkeys(names)
        ]
        return pd.DataFrame(rows)

    def _describe_domain(
        self, name: str, levels: Iterable[int], reasons: list[str]
    ) -> dict[str, object]:
        """Count the databases, records, tasks and dropped tasks of one domain (databases with the same tables).

        Args:
            name: Name of the domain.
            levels: Difficulties to count tasks of.
            reasons: Reasons to count dropped tasks by.

        Returns:
            One row of the table that `statistics` gives: count by name of the column.
        """
        sources = [source for source in self.sources if source.domain.name == name]
        tasks = [task for task in self.tasks if task.domain.name == name]
        drop_reasons = [drop.reason for drop in self.dropped if drop.domain == name]

        # A domain whose databases were all dropped has no schema here.
        tables = sources[0].domain.tables if sources else ()
        functions = sources[0].domain.functions if sources else ()
        row: dict[str, object] = {
            "domain": name,
            "tables": len(tables),
            "columns": sum(len(table.columns) for table in tables),
            "functions": len(functions),
            "databases": len(sources),
            "records": sum(len(rows) for source in sources for rows in source.records.values()),
            "tasks": len(tasks),
        }
        for level in levels:
            row[f"difficulty {level}"] = sum(task.difficulty == level for task in tasks)
        num_calls = sum(len(task.calls) for task in tasks)
        row["golden calls"] = num_calls / len(tasks) if tasks else 0.0
        for reason in reasons:
            row[f"dropped: {reason}"] = drop_reasons.count(reason)
        return row

    def save(self, path: str | Path) -> Path:
        """Write the corpus as one file, atomically; equal corpora are equal bytes.

        Args:
            path: Name of the file.

        Returns:
            The path.
        """
        rows = self._to_rows()
        return artifacts.write_json(path, rows | {"sha256": artifacts.sha256_json(rows)})

    def _to_rows(self) -> _Rows:
        """Convert the corpus into lists that JSON can hold: databases, tasks (dropped ones too) and drop records."""
        sources = [
            (source.id, source.domain.model_dump(mode="json"), source.subject, source.records)
            for source in self.sources
        ]
        unfit_tasks = [drop.task for drop in self.dropped if drop.task]
        tasks = [_to_task_row(task, fit=True) for task in self.tasks]
        tasks += [_to_task_row(task, fit=False) for task in unfit_tasks]
        dropped = []
        for drop in self.dropped:
            task_id = drop.task.id if drop.task else None
            dropped.append((drop.step, drop.reason, drop.domain, drop.detail, task_id))
        return {"sources": sources, "tasks": tasks, "dropped": dropped}


def _to_task_row(task: Task, fit: bool) -> tuple[Any, ...]:
    """Convert a task into a row for a JSON file; `_from_rows` reads the values in this order.

    Args:
        task: The task.
        fit: Whether it passed the filters; False for a dropped task.

    Returns:
        The values; the database is named by its id.
    """
    return (
        task.id,
        task.database,
        task.intent,
        task.instruction,
        task.calls,
        task.info,
        task.difficulty,
        task.parent,
        fit,
    )


def load_corpus(path: str | Path) -> Corpus:
    """Read a corpus from its file.

    Args:
        path: What `Corpus.save` wrote.

    Returns:
        The corpus.

    Raises:
        TaskError: With the file's name, where it is anything else, cut off or changed.
        FileNotFoundError: Where there is no such file.
    """
    try:
        rows = artifacts.read_json(path)
        if rows.pop("sha256") != artifacts.sha256_json(rows):
            raise ValueError("its content is not what was written")
        return _from_rows(rows)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TaskError(
            f"{path} is not a whole corpus of tasks ({error}); make it again"
        ) from error


def _from_rows(rows: _Rows) -> Corpus:
    """Rebuild a corpus from the content of its file, and validate its databases.

    Args:
        rows: What `Corpus._to_rows` made.

    Returns:
        The corpus.

    Raises:
        ValueError: For a database that breaks the rules of its domain, or whose id does not fit its content.
    """
    sources: dict[str, Source] = {}
    for source_id, domain, subject, records in rows["sources"]:
        source = Source(TaskDomain.model_validate(domain), records, subject)
        sources[source_id] = source
        # The file's hash does not protect against edits, as anybody can compute it anew; so records are checked, too.
        problems = find_problems(source.domain, source.records)
        if problems or source.id != source_id:
            reason = "; ".join(problems) or "its id does not fit its content"
            raise ValueError(f"database {source_id}: {reason}")

    # The file also holds tasks that were dropped, because drop records refer to them.
    tasks: dict[str, Task] = {}
    fit_tasks = []
    for row in rows["tasks"]:
        task_id, source_id, intent, instruction, calls, info, difficulty, parent, fit = row
        task = Task(
            id=task_id,
            source=sources[source_id],
            intent=intent,
            instruction=instruction,
            calls=tuple(map(tuple, calls)),
            info=tuple(info),
            difficulty=difficulty,
            parent=parent,
        )
        tasks[task_id] = task
        if fit:
            fit_tasks.append(task)

    dropped = []
    for step, reason, domain_name, detail, task_id in rows["dropped"]:
        task = tasks[task_id] if task_id else None
        dropped.append(DropRecord(step, reason, domain_name, detail, task))
    return Corpus(tuple(sources.values()), tuple(fit_tasks), tuple(dropped))
