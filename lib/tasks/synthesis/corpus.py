"""A corpus of synthesised tasks: its statistics, and one SQLite file to keep it in.

The file holds databases, tasks and what was dropped as rows with JSON in them, and a hash of it all, so
that a file which is cut off, changed or not one of these is refused with its name. No pickle.
"""

import json
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib import store
from lib.tasks.items import TaskError
from lib.tasks.synthesis.database import check
from lib.tasks.synthesis.domains import Domain
from lib.tasks.synthesis.filters import ERROR, IDLE, UNSOLVED, Dropped
from lib.tasks.synthesis.tasks import Source, Task

_MARK = 0x70736B73  # SQLite's application_id of such a file
_SCHEMA = {
    "sources": "id TEXT PRIMARY KEY, domain TEXT NOT NULL, subject TEXT NOT NULL, records TEXT NOT NULL",
    "tasks": "id TEXT PRIMARY KEY, source TEXT NOT NULL REFERENCES sources (id), intent TEXT NOT NULL,"
    " instruction TEXT NOT NULL, calls TEXT NOT NULL, info TEXT NOT NULL, difficulty INTEGER NOT NULL, parent TEXT,"
    " kept INTEGER NOT NULL",
    "dropped": "step TEXT NOT NULL, reason TEXT NOT NULL, domain TEXT NOT NULL, detail TEXT NOT NULL,"
    " task TEXT REFERENCES tasks (id)",
}
_Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Corpus:
    """Databases, the tasks on them that passed the filters, and what was left out on the way."""

    sources: tuple[Source, ...]
    tasks: tuple[Task, ...]
    dropped: tuple[Dropped, ...]

    def statistics(self) -> pd.DataFrame:
        """One row per domain: its size, how many databases, records and tasks, and what was dropped why."""
        names = dict.fromkeys([s.domain.name for s in self.sources] + [d.domain for d in self.dropped])
        reasons = dict.fromkeys([ERROR, UNSOLVED, IDLE, *sorted({d.reason for d in self.dropped})])
        levels = range(1, max((task.difficulty for task in self.tasks), default=1) + 1)
        return pd.DataFrame([self._row(name, levels, list(reasons)) for name in names])

    def save(self, path: str | Path) -> Path:
        """Write the corpus as one SQLite file, atomically; equal corpora are equal bytes."""
        rows = self._rows()
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "corpus.sqlite"
            with closing(sqlite3.connect(made, isolation_level=None)) as file:
                file.execute(f"PRAGMA application_id = {_MARK}")
                file.execute("BEGIN")
                for name, columns in _SCHEMA.items():
                    file.execute(f"CREATE TABLE {name} ({columns})")
                    file.executemany(
                        f"INSERT INTO {name} VALUES ({', '.join('?' * (columns.count(',') + 1))})", rows[name]
                    )
                file.execute("CREATE TABLE digest (sha256 TEXT NOT NULL)")
                file.execute("INSERT INTO digest VALUES (?)", (store.sha256_json(rows),))
                file.execute("COMMIT")
            return store.write_bytes(path, made.read_bytes())

    def _rows(self) -> _Rows:
        unfit = [each.task for each in self.dropped if each.task]
        return {
            "sources": [(s.id, s.domain.model_dump_json(), s.subject, _line(s.records)) for s in self.sources],
            "tasks": [_task_row(task, 1) for task in self.tasks] + [_task_row(task, 0) for task in unfit],
            "dropped": [(d.step, d.reason, d.domain, d.detail, d.task.id if d.task else None) for d in self.dropped],
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
            **{f"difficulty {level}": sum(task.difficulty == level for task in tasks) for level in levels},
            "golden calls": sum(len(task.calls) for task in tasks) / len(tasks) if tasks else 0.0,
            **{f"dropped: {reason}": dropped.count(reason) for reason in reasons},
        }


def load(path: str | Path) -> Corpus:
    """The corpus in a file. Raises TaskError with the file's name where it is anything else, cut off or changed."""
    path = Path(path)
    if path.read_bytes()[:16] != b"SQLite format 3\0":
        raise TaskError(f"{path} is not a corpus of tasks; make it again")
    try:
        return _corpus(_read(path))
    except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TaskError(f"{path} is not a whole corpus of tasks ({error}); make it again") from error


def _read(path: Path) -> _Rows:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
        file.execute("PRAGMA trusted_schema = OFF")
        if file.execute("PRAGMA application_id").fetchone() != (_MARK,):
            raise ValueError("another program's database")
        rows = {name: file.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for name in _SCHEMA}
        if file.execute("SELECT sha256 FROM digest").fetchall() != [(store.sha256_json(rows),)]:
            raise ValueError("its content is not what was written")
    return rows


def _corpus(rows: _Rows) -> Corpus:
    sources: dict[str, Source] = {}
    for name, domain, subject, records in rows["sources"]:
        source = sources[name] = Source(Domain.model_validate_json(domain), json.loads(records), subject)
        problems = check(source.domain, source.records)
        if problems or source.id != name:
            raise ValueError(f"database {name}: {'; '.join(problems) or 'its name is not its own'}")
    tasks, kept = {}, []
    for name, source, intent, instruction, calls, info, difficulty, parent, fit in rows["tasks"]:
        told = tuple(map(tuple, json.loads(calls))), tuple(json.loads(info))
        tasks[name] = Task(name, sources[source], intent, instruction, *told, difficulty, parent)
        kept += [tasks[name]] * fit
    dropped = (Dropped(*each, tasks[task] if task else None) for *each, task in rows["dropped"])
    return Corpus(tuple(sources.values()), tuple(kept), tuple(dropped))


def _task_row(task: Task, kept: int) -> tuple[Any, ...]:
    calls, info = _line(task.calls), _line(task.info)
    return (task.id, task.database, task.intent, task.instruction, calls, info, task.difficulty, task.parent, kept)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
