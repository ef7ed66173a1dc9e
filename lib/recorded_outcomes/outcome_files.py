"""Files and folders of outcomes as rows, before anything is known of their columns.

    files = read_files([Path("train.jsonl"), Path("test.jsonl")])
    files[0].labels[0]           # "line 1": where the first row stands, for messages

CSV with any usual separator and encoding, JSON lines, JSON and Parquet are read. Of a folder all such files are read,
or only the logs of samples where lm-evaluation-harness wrote it. Left out: what columns mean (`published_formats`,
`user_tables`), and pickles, which can run code when they are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.experiment import artifacts
from lib.recorded_outcomes.tables import TableError
from lib.tasks import TaskError
from lib.tasks.readers import get_format, read_table

_PICKLES = (".pkl", ".pickle")
_DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".gz")
# What lm-evaluation-harness calls its files of single answers.
LM_EVAL_SAMPLES = "samples_*.jsonl"


@dataclass(frozen=True)
class FileRows:
    """Rows of a file.

    Attributes:
        path: Path of the file.
        frame: The values as they were read.
        labels: The position of each row in the file, for messages: "line 7" or "row 3", counted from 1.
        notes: What was decided while reading, in sentences.
    """

    path: Path
    frame: pd.DataFrame
    labels: Sequence[str]
    notes: tuple[str, ...] = ()


def read_files(paths: Sequence[Path]) -> list[FileRows]:
    """Reads files and the files of folders.

    Args:
        paths: Files and folders, in any order.

    Returns:
        Rows for each file, those of a folder by name. With several files, labels begin with the file's name.

    Raises:
        TableError: A path does not exist, a folder has no data file, or a file cannot be read; the message names it.
    """
    all_paths = []
    for path in paths:
        all_paths.extend(_list_folder(path) if path.is_dir() else [path])
    files = [_read_file(path) for path in all_paths]
    if len(files) == 1:
        return files
    return [_name_file_in_labels(rows) for rows in files]


def _list_folder(folder: Path) -> list[Path]:
    """Lists the data files of a folder, sorted.

    Args:
        folder: The folder.

    Returns:
        Logs of lm-evaluation-harness at any depth; without such logs, the files directly in the folder.
    """
    samples = sorted(folder.rglob(LM_EVAL_SAMPLES))
    if samples:
        return samples
    files = [path for path in folder.iterdir() if path.suffix.lower() in _DATA_SUFFIXES]
    if not files:
        raise TableError(
            f"the folder has no data files ({', '.join(_DATA_SUFFIXES)}); name the files that hold the outcomes"
        )
    return sorted(files)


def _read_file(path: Path) -> FileRows:
    """Reads one file as a table.

    Args:
        path: The file.

    Returns:
        Rows, the position of each row in the file, and notes on encoding and separator.

    Raises:
        TableError: The file is a pickle, or cannot be read.
    """
    if path.suffix.lower() in _PICKLES:
        raise TableError(
            "pickles can run code when they are loaded, and are not read; where you trust the file, convert it once: "
            f'python -c "import pandas; pandas.read_pickle({path.name!r}).to_csv({path.stem + ".csv"!r}, index=False)"'
        )
    try:
        if path.is_file() and get_format(path) == ".parquet":
            frame = artifacts.read_parquet(path).reset_index(drop=True)
            labels = [f"row {number}" for number in range(1, len(frame) + 1)]
            return FileRows(path, frame, labels)
        table = read_table(path)
    except TaskError as error:
        # The reader's message begins with the path, as the caller's does.
        raise TableError(shorten(str(error).removeprefix(f"{path}").lstrip(":, "))) from error
    # What pandas raises of a broken file is a ValueError.
    except (ValueError, OSError) as error:
        raise TableError(f"cannot be read as a table: {shorten(error)}") from error
    frame = pd.DataFrame(list(table.rows), columns=list(table.columns), dtype=object)
    return FileRows(path, frame, list(table.labels), table.notes)


def _name_file_in_labels(rows: FileRows) -> FileRows:
    """Puts the name of the file before each label."""
    labels = [f"{rows.path.name}, {label}" for label in rows.labels]
    return FileRows(rows.path, rows.frame, labels, rows.notes)


def join_files(files: Sequence[FileRows]) -> FileRows:
    """Joins the rows of several files with the same columns.

    Args:
        files: At least one.

    Returns:
        The rows in order, under the path of the first file.

    Raises:
        TableError: The columns differ; the message names the files and a column.
    """
    first = files[0]
    for next_file in files[1:]:
        different = set(first.frame.columns) ^ set(next_file.frame.columns)
        if different:
            column = min(map(str, different))
            raise TableError(
                f"{first.path.name} and {next_file.path.name} have different columns, {column!r} is in one of them "
                "only; evaluate files of one kind together"
            )
    if len(files) == 1:
        return first
    notes = dict.fromkeys(note for rows in files for note in rows.notes)
    return FileRows(
        path=first.path,
        frame=pd.concat([rows.frame for rows in files], ignore_index=True),
        labels=[label for rows in files for label in rows.labels],
        notes=tuple(notes),
    )


def shorten(value: object, length: int = 160) -> str:
    """Shortens a long value for a message."""
    text = " ".join(str(value).split())
    return text if len(text) <= length else f"{text[:length]} ..."
