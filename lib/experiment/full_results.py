"""Results of full runs, kept as tables of facts, and whether they still are what a full run would give.

A lesson trains in sight what fits its minutes (`laptop`). What takes hours is trained once, at the profile `full`, by
`make full LESSON=...`, and its results table is committed under data/results, at most MAX_BYTES a file. The file holds,
beside the rows, how it was made: the command, and the settings of every job, among them hashes of input files and
VERSIONs. A table whose settings are not those of today's jobs is outdated: lessons show it as such, and it leaves the
verdicts until it is made again.

    full = read_full_results(FULL_RUN, config.load("full"))
    rows = full.rows if full.is_current else None
"""

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import ROOT, Params
from lib.experiment import artifacts, results_table
from lib.experiment.sweep import Job, describe_changes

FOLDER = ROOT / "data/results"
MAX_BYTES = 1_500_000  # of a file, so that tables of facts can be committed
_METADATA = (
    b"full_run"  # key of the description in the Parquet file, which is compressed and base64
)
# Columns of the results table that are long and that no estimate reads.
_COLUMNS_LEFT_OUT = ("context", "offered", "outcomes")


def list_no_jobs(params: Params) -> Sequence[Job]:
    """The optional jobs of a full run that has none."""
    return ()


@dataclass(frozen=True)
class FullRun:
    """What `make full` runs for a lesson.

    Attributes:
        lesson: Name of the notebook.
        system: Name of the results table.
        list_jobs: Lists every job that decides a number of the table, from the parameters.
        make_rows: Runs what is not finished, and returns the rows that are kept, in the form of the results table.
        runs: Folder of the jobs.
        describe_settings: What is compared of a job's settings, for inputs whose bytes differ between machines although
            they mean the same; by default all of it.
        list_optional_jobs: Lists jobs that are left out where an optional extra is not installed. A table is compared
            with those that it has.
    """

    lesson: str
    system: str
    list_jobs: Callable[[Params], Sequence[Job]]
    make_rows: Callable[[Params], pd.DataFrame]
    runs: Path
    describe_settings: Callable[[dict[str, Any]], dict[str, Any]] = dict
    list_optional_jobs: Callable[[Params], Sequence[Job]] = list_no_jobs

    @property
    def path(self) -> Path:
        """Where the table of facts lies."""
        return FOLDER / f"{self.lesson}.parquet"

    @property
    def command(self) -> str:
        """What makes the table anew."""
        return f"make full LESSON={self.lesson}"


@dataclass(frozen=True)
class FullResults:
    """A table of facts as it was read.

    Attributes:
        rows: The results table of the full run; empty where there is no file.
        command: What made it, and makes it anew.
        seconds: What the full run's jobs took, all processes together.
        num_jobs: How many jobs it was.
        changes: What differs from the jobs that a full run would have today, a line each; empty where nothing does.
    """

    rows: pd.DataFrame
    command: str
    seconds: float
    num_jobs: int
    changes: tuple[str, ...]

    @property
    def status(self) -> str:
        """`current`, `outdated` or `absent`."""
        if not len(self.rows):
            return "absent"
        return "outdated" if self.changes else "current"

    @property
    def is_current(self) -> bool:
        """Whether a full run would give these rows today."""
        return self.status == "current"


def write_full_results(
    full_run: FullRun, rows: pd.DataFrame, jobs: Sequence[Job], seconds: float, path: Path
) -> int:
    """Writes the table of facts of a full run in place of the earlier one.

    Args:
        full_run: Which run it was.
        rows: Its results table; columns that no estimate reads are left out.
        jobs: Every job that decided a number of it.
        seconds: What they took.
        path: The file.

    Returns:
        Its size in bytes.

    Raises:
        ValueError: The file would be larger than MAX_BYTES.
    """
    import pyarrow as pa  # imported late: lessons that only read tables need not wait for it
    import pyarrow.parquet as parquet

    thinned = rows.drop(columns=[name for name in _COLUMNS_LEFT_OUT if name in rows])
    description = {
        "command": full_run.command,
        "seconds": round(seconds),
        "jobs": _describe_jobs(full_run, jobs),
    }
    table = pa.Table.from_pandas(thinned, preserve_index=False)
    metadata = {_METADATA: _compress(description)}
    sink = pa.BufferOutputStream()
    parquet.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    if len(content) > MAX_BYTES:
        raise ValueError(
            f"{path.name} would have {len(content):,} bytes, more than {MAX_BYTES:,}; "
            f"let {full_run.lesson} keep fewer rows"
        )
    artifacts.write_bytes(path, content)
    return len(content)


def read_full_results(
    full_run: FullRun, params: Params, path: str | Path | None = None
) -> FullResults:
    """Reads the table of facts of a full run, and compares its jobs with those of today.

    Args:
        full_run: Which run.
        params: The parameters of the profile `full`.
        path: The file; by default where `make full` writes it.

    Returns:
        The rows, and what is outdated about them. A missing file is no error: its status is `absent`.

    Raises:
        ValueError: The file is broken, or no table of a full run.
    """
    import pyarrow.parquet as parquet

    path = Path(path or full_run.path)
    if not path.exists():
        return FullResults(pd.DataFrame(), full_run.command, 0.0, 0, ())
    rows = results_table.make_results(full_run.system, artifacts.read_parquet(path))
    metadata = parquet.read_schema(path).metadata or {}
    if _METADATA not in metadata:
        raise ValueError(
            f"{path} is no table of a full run; make it again with `{full_run.command}`"
        )
    # What the run noted about itself: its jobs with the hashes of what decided them.
    description = _decompress(metadata[_METADATA])

    # Optional jobs count only where the run had them, so that their absence makes nothing outdated.
    jobs = list(full_run.list_jobs(params))
    for job in full_run.list_optional_jobs(params):
        if job.label in description["jobs"]:
            jobs.append(job)
    todays_jobs = _describe_jobs(full_run, jobs)
    changes = _list_changes(description["jobs"], todays_jobs)
    return FullResults(
        rows=rows,
        command=description["command"],
        seconds=description["seconds"],
        num_jobs=len(description["jobs"]),
        changes=tuple(changes),
    )


def _compress(description: Mapping[str, Any]) -> bytes:
    """How a table was made, as its Parquet metadata holds it: jobs repeat most of each other's settings."""
    text = artifacts.to_json(description)
    return base64.b64encode(zlib.compress(text.encode(), 9))


def _decompress(metadata: bytes) -> dict[str, Any]:
    """The reverse of `_compress`."""
    return json.loads(zlib.decompress(base64.b64decode(metadata)))


def _describe_jobs(full_run: FullRun, jobs: Sequence[Job]) -> dict[str, Any]:
    """Collects the settings of all jobs of a full run, as plain JSON values.

    A job that builds on another has its key in its settings. The label stands in its place, because keys differ
    between root seeds and the table of results does not.

    Args:
        full_run: The run, which knows how to write its settings.
        jobs: Its jobs.

    Returns:
        {label of the job: its settings}.
    """
    labels = {job.key: job.label for job in jobs}
    described = {}
    for job in jobs:
        settings = json.loads(artifacts.to_json(job.settings))  # tuples become lists
        described[job.label] = full_run.describe_settings(_replace_keys(settings, labels))
    return described


def _replace_keys(value: Any, labels: Mapping[str, str]) -> Any:
    """The same nested value with labels in place of keys of jobs."""
    if isinstance(value, dict):
        return {name: _replace_keys(inner, labels) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replace_keys(inner, labels) for inner in value]
    return labels.get(value, value) if isinstance(value, str) else value


def _list_changes(recorded_jobs: Mapping[str, Any], todays_jobs: Mapping[str, Any]) -> list[str]:
    """Lists how the jobs of a run differ from those that were recorded.

    Args:
        recorded_jobs: Settings by label, as recorded with the results.
        todays_jobs: Settings by label, as they are now.

    Returns:
        Changed settings, new jobs and missing jobs as sentences, without repetition.
    """
    changes = []
    for label, settings in todays_jobs.items():
        if label not in recorded_jobs:
            changes.append(f"the job {label} is new")
        else:
            changes += describe_changes(recorded_jobs[label], settings)
    missing_labels = [label for label in recorded_jobs if label not in todays_jobs]
    changes += [f"there is no job {label} any more" for label in missing_labels]
    return list(dict.fromkeys(changes))
