"""Files to tables: JSONL, JSON, CSV, TSV and Parquet, also compressed with gzip, and folders of `datasets`.

    table = read_table("questions.csv")
    table.rows[0]["answer"]      # "007": texts and numbers are kept as they are written

Every row keeps the line or row that it came from, so that a message can name it. Nothing is guessed silently: a
text that is not UTF-8 is read only where its encoding can be told, and the table's notes say so. Left out: what the
columns mean (`lib.tasks.column_map`, `lib.tasks.presets`), and files on the network.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib.tasks.item import TaskError

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = (",", ";", "\t", "|")
# Characters beside letters that Western European texts have: quotation marks, dashes, signs.
_WESTERN_SIGNS = set("‘’‚“”„–—…•€£«»¿¡§°©®´·‹›²³±×÷\u00a0")
_RECORDS_FOR_DETECTION = 50
_GZIP_MARK = b"\x1f\x8b"
_LARGEST_FIELD = 2**31 - 1  # characters; Python's limit of 131,072 is shorter than some contexts


class NumberText(str):
    """A number of a JSON file as it is written there: 1e3 is not 1000.0."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """The rows of a file.

    Attributes:
        path: Path of the file or folder.
        columns: Their names, in the order of the file.
        rows: One mapping per row, from a column's name to its value; None is a real null.
        labels: Where each row stands, for messages: "line 7" of a text file, else "row 3", both counted from 1.
        notes: What was decided on the way, in sentences.
    """

    path: Path
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def locate(self, index: int) -> str:
        """File and line of a row, as messages name them."""
        return f"{self.path}, {self.labels[index]}"


def read_table(path: str | Path, split: str | None = None) -> Table:
    """Reads the rows of a data file, or of a folder that `save_to_disk` of Hugging Face's datasets wrote.

    Args:
        path: A file of JSONL, JSON, CSV, TSV or Parquet (SUFFIXES), perhaps with .gz behind it, or the folder.
        split: Name of the split to read from a folder with several.

    Returns:
        The table, with at least one row.

    Raises:
        TaskError: The file does not exist, is empty or broken; the message names file, line and remedy.
    """
    path = Path(path)
    if not path.exists():
        raise TaskError(
            f"{path} does not exist; give a file ({', '.join(SUFFIXES)}) or a saved dataset's folder"
        )
    if path.is_dir():
        table = _read_saved_dataset(path, split)
    else:
        table = _READERS[get_format(path)](path)
    if not table.rows:
        raise TaskError(f"{path} has no rows; give a file with at least one")
    return table


def get_format(path: Path) -> str:
    """Tells the format of a data file from its suffix: ".csv" for "a.csv" and "a.CSV.gz".

    Args:
        path: The file's path.

    Returns:
        The suffix in lower case and without .gz, one of SUFFIXES.

    Raises:
        TaskError: The file has another suffix.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_compressed = suffixes[-1:] == [".gz"]
    if is_compressed:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in _READERS or (is_compressed and suffix == ".parquet"):
        raise TaskError(f"{path} ends in {path.suffix!r}; known are {', '.join(SUFFIXES)}")
    return suffix


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk` of Hugging Face's datasets."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def read_text(path: Path) -> tuple[str, tuple[str, ...]]:
    """Reads a text file in UTF-8, or in another encoding that can be told from its bytes.

    Args:
        path: The file's path; the file may be compressed with gzip.

    Returns:
        (text, notes): the text, its lines ending in a line feed, and a sentence on any other encoding than Unicode.

    Raises:
        TaskError: The file is empty or binary, or its encoding cannot be told.
    """
    # Whole files are read at once: the largest published sets have a few hundred megabytes.
    raw = path.read_bytes()
    if path.suffix.lower() == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise TaskError(f"{path} is no whole gzip file ({error}); compress it again") from error
    elif raw.startswith(_GZIP_MARK):
        raise TaskError(f"{path} is compressed with gzip; add .gz to its name")
    text, notes = _decode(raw, path)
    if "\0" in text:
        raise TaskError(f"{path} holds NUL characters, so it is no text file; save it as UTF-8")
    if not text.strip():
        raise TaskError(f"{path} is empty; give a file with at least one row")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _decode(raw: bytes, path: Path) -> tuple[str, tuple[str, ...]]:
    """Decode the bytes of a text file as Unicode, or as Western European text where only that makes sense.

    Args:
        raw: The bytes.
        path: The file's path, for messages.

    Returns:
        (text, notes): the text, and a sentence where it was read as Western European text.

    Raises:
        TaskError: Where the encoding cannot be told.
    """
    encoding = _detect_unicode(raw)
    try:
        return raw.decode(encoding), ()
    except UnicodeDecodeError as error:
        # Valid UTF-8 is never anything else by chance; only what fails may be an older encoding.
        if encoding == "utf-8" and _reads_as_western(raw):
            return raw.decode("cp1252"), (
                f"{path.name} is not UTF-8; it was read as Western European text (cp1252, latin-1).",
            )
        line = raw[: error.start].count(b"\n") + 1
        raise TaskError(
            f"{path}, line {line}: the byte 0x{raw[error.start]:02x} is not {encoding}, and the encoding cannot be "
            "told from the file; save it as UTF-8"
        ) from error


def _detect_unicode(raw: bytes) -> str:
    """Name the Unicode encoding that a byte order mark or the pattern of zero bytes shows; "utf-8" without either."""
    if raw.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # UTF-16 without a mark: every second byte of mostly ASCII text is zero.
    half = max(len(raw) // 2, 1)
    if raw[1::2].count(0) > 0.4 * half and not raw[::2].count(0):
        return "utf-16-le"
    if raw[::2].count(0) > 0.4 * half and not raw[1::2].count(0):
        return "utf-16-be"
    return "utf-8"


def _reads_as_western(raw: bytes) -> bool:
    """Whether bytes look like Western European text in the encoding cp1252.

    In such text accented letters stand alone between plain ones. Text in the encoding of another language shows as many
    accented letters side by side, because all its letters are bytes above 0x7F.

    Args:
        raw: The bytes of a text file that is not UTF-8.

    Returns:
        Whether they decode to single accented letters and common signs.
    """
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:
        return False
    if any(not (char.isalpha() or char in _WESTERN_SIGNS) for char in set(text) if char > "\x7f"):
        return False
    # One accented letter, or two small ones as in the German word for largest.
    letter_runs = re.findall(r"[^\W\x00-\x7f]+", text)
    return all(len(run) == 1 or (len(run) == 2 and run.islower()) for run in letter_runs)


def parse_json(text: str) -> Any:
    """Parses a JSON value, and keeps its numbers as the text that stands there: 1e3 stays "1e3".

    Args:
        text: One JSON value.

    Returns:
        The value; numbers are of the type `NumberText`, a kind of str. NaN becomes None.

    Raises:
        ValueError: The text is no JSON.
    """

    def read_constant(name: str) -> NumberText | None:  # NaN, Infinity or -Infinity
        return None if name == "NaN" else NumberText(name)

    return json.loads(
        text, parse_int=NumberText, parse_float=NumberText, parse_constant=read_constant
    )


def _read_jsonl(path: Path) -> Table:
    """Read a JSONL file, one JSON object per line, to a table; a TaskError names the first line that is none."""
    text, notes = read_text(path)
    rows = []
    labels = []
    # Split at line feeds only: JSON strings may hold other characters that Python takes for line ends.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise TaskError(
                f"{path}, line {number}: not JSON ({error}); a .jsonl file has one whole object in every line"
            ) from error
        if not isinstance(row, dict):
            raise TaskError(
                f"{path}, line {number}: not a JSON object; write every row as {{...}}, or name an array .json"
            )
        rows.append(row)
        labels.append(f"line {number}")
    return _make_table(path, rows, labels, notes)


def read_json(path: Path) -> Any:
    """Reads a JSON file, which holds one value.

    Args:
        path: The file's path.

    Returns:
        The value; its numbers are texts as they stand in the file, of the type `NumberText`.

    Raises:
        TaskError: The file is empty or broken; the message names the line.
    """
    text, _ = read_text(path)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        # A file of one object per line fails at its second line.
        remedy = "mend it"
        if error.msg == "Extra data":
            remedy = "if every line holds one object, name the file .jsonl"
        raise TaskError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {remedy}") from error
    except RecursionError as error:
        raise TaskError(f"{path} is nested too deeply to be read; write a list of rows") from error


def _read_json_rows(path: Path) -> Table:
    """Read a JSON file to a table: a list of objects, an object around such a list, or columns as of pandas."""
    content = read_json(path)
    if isinstance(content, dict):
        content = _find_rows(content)
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise TaskError(f"{path} holds no list of objects; write it as [{{...}}, {{...}}]")
    return _make_table(path, content)


def _find_rows(content: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Find the rows in a JSON object: {"data": [row, ...]}, or columns as pandas writes them.

    Args:
        content: One key with a list of rows, or a list of values (or {index: value}) for each column.

    Returns:
        The rows as dictionaries; None where the object is neither.
    """
    # An object around a list of rows.
    values = list(content.values())
    only_value = values[0] if len(values) == 1 else None
    if isinstance(only_value, list) and all(isinstance(row, dict) for row in only_value):
        return only_value

    # Columns, which must be lists of equal length.
    columns: dict[str, list] = {}
    for name, column in content.items():
        if isinstance(column, dict):
            column = list(column.values())
        if not isinstance(column, list):
            return None
        columns[name] = column
    if len({len(column) for column in columns.values()}) != 1:
        return None
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@contextmanager
def _allow_long_fields() -> Iterator[None]:
    """Raise the limit that the module csv has for the length of a field, within a with statement."""
    previous = csv.field_size_limit(_LARGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(previous)


def read_csv_records(path: Path) -> tuple[list[tuple[int, list[str]]], tuple[str, ...]]:
    """Reads the records of a CSV or TSV file, a header among them if there is one.

    Args:
        path: The file's path. Comma, semicolon, tab or bar separate its fields.

    Returns:
        (records, notes): (line number, fields) of each record that is not empty, and a sentence on the encoding where
        it is none of Unicode.

    Raises:
        TaskError: The file is empty, or a quotation mark is not closed; the message names the line.
    """
    text, notes = read_text(path)
    separator = "\t" if ".tsv" in path.name.lower() else _find_separator(text)
    # Strict: else a quotation mark that is not closed would swallow the rest of the file.
    records = []
    with _allow_long_fields():
        reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
        line = 1
        try:
            for fields in reader:
                if any(field.strip() for field in fields):
                    records.append((line, fields))
                # Quoted line ends make a record longer than a line.
                line = reader.line_num + 1
        except csv.Error as error:
            raise TaskError(
                f"{path}, line {line}: the quotation marks do not fit ({error}); put a field that holds "
                'separators, line ends or " into "...", with "" for "'
            ) from error
    return records, notes


def _find_separator(text: str) -> str:
    """Guess the separator of a CSV file: the one that gives the header several columns, and most rows as many.

    Args:
        text: The file's content.

    Returns:
        One of SEPARATORS; a comma where none fits.
    """
    best_separator = ","
    best_rank = (0.0, 0)  # fraction of rows as wide as the header, number of columns
    for separator in SEPARATORS:
        with _allow_long_fields():
            reader = csv.reader(io.StringIO(text), delimiter=separator)
            widths = [len(fields) for fields in islice(reader, _RECORDS_FOR_DETECTION) if fields]
        if widths[0] < 2:
            continue
        # A separator that only occurs in texts gives rows of many widths.
        fitting_fraction = sum(width == widths[0] for width in widths) / len(widths)
        if (fitting_fraction, widths[0]) > best_rank:
            best_separator = separator
            best_rank = (fitting_fraction, widths[0])
    return best_separator


def _read_csv(path: Path) -> Table:
    """Read a CSV or TSV file with a header to a table; all values are texts, None where a short row lacks a field.

    Args:
        path: The file's path.

    Returns:
        The table.

    Raises:
        TaskError: Where two columns have one name, or a row has more fields than the header.
    """
    records, notes = read_csv_records(path)
    if not records:
        raise TaskError(
            f"{path} holds separators only; give a file with a header and at least one row"
        )
    _, header = records[0]
    # pandas writes its index without a name.
    columns = [name.strip() or f"column {number}" for number, name in enumerate(header, start=1)]
    repeated = [name for name in columns if columns.count(name) > 1]
    if repeated:
        raise TaskError(f"{path} has the column {repeated[0]!r} twice; rename one of them")

    rows = []
    labels = []
    for line, fields in records[1:]:
        # Spreadsheets write separators behind the last field; text there is a mistake.
        if any(fields[len(columns) :]):
            raise TaskError(
                f"{path}, line {line}: {len(fields)} fields, but the header has {len(columns)}; put a field that "
                'holds the separator into "..."'
            )
        # Fields that a short row lacks are real nulls.
        padded = [*fields[: len(columns)], *[None] * (len(columns) - len(fields))]
        rows.append(dict(zip(columns, padded, strict=True)))
        labels.append(f"line {line}")
    return Table(path, tuple(columns), tuple(rows), tuple(labels), notes)


def _read_parquet(path: Path) -> Table:
    """Read a Parquet file to a table; a TaskError where it is broken."""
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        rows = table.to_pylist()
    except Exception as error:  # pyarrow raises a dozen unrelated kinds for a broken file
        reason = str(error).strip() or "it is empty"
        raise TaskError(f"{path} cannot be read as Parquet ({reason}); write it again") from error
    return _make_table(path, rows, columns=table.column_names)


def _read_saved_dataset(path: Path, split: str | None) -> Table:
    """Read a folder that `save_to_disk` of Hugging Face's datasets wrote to a table.

    Args:
        path: The folder.
        split: Name of the split, where the folder holds several.

    Returns:
        The table.

    Raises:
        TaskError: Where the folder is broken, or holds several splits and not the named one.
    """
    from datasets import Dataset, load_from_disk

    try:
        saved = load_from_disk(str(path))
    except Exception as error:  # datasets and pyarrow raise dozens of kinds
        raise TaskError(
            f"{path} cannot be read as a saved dataset ({error}); give a file, or a folder that save_to_disk wrote"
        ) from error
    if not isinstance(saved, Dataset):
        if split not in saved:
            raise TaskError(
                f"{path} holds several splits ({', '.join(saved)}); say split=..., or give the folder of one"
            )
        saved = saved[split]
    return _make_table(path, saved.to_list(), columns=saved.column_names)


def _make_table(
    path: Path,
    rows: list[dict[str, Any]],
    labels: list[str] | None = None,
    notes: tuple[str, ...] = (),
    columns: list[str] | None = None,
) -> Table:
    """Make the table of a file, with labels and columns derived from its rows where they are not given.

    Args:
        path: The file's path.
        rows: Value by column of each row.
        labels: Where each row stands, for error messages; None for "row 1", "row 2" and so on.
        notes: Sentences on decisions that were taken while the file was read.
        columns: Names of the columns in order; None for all keys of the rows, in the order of their first occurrence.

    Returns:
        The table.
    """
    if labels is None:
        labels = [f"row {number}" for number in range(1, len(rows) + 1)]
    if columns is None:
        # Rows of JSON may differ in their keys.
        columns = list(dict.fromkeys(name for row in rows for name in row))
    return Table(path, tuple(columns), tuple(rows), tuple(labels), notes)


_READERS: dict[str, Callable[[Path], Table]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json_rows,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
SUFFIXES = tuple(_READERS)


def read_training_prompts(path: str | Path) -> pd.DataFrame:
    """Reads a user's training data for reinforcement learning: prompts, each with a reference answer.

    Args:
        path: A data file with the columns prompt and reference (and perhaps category), in a format of SUFFIXES, or a
            folder that `save_to_disk` of Hugging Face's datasets wrote.

    Returns:
        One row per prompt. Columns: prompt (text, or messages with role and content, unchanged), reference (text),
        category ("all" where the file has none), row (such as "line 7", for error messages).

    Raises:
        TaskError: The file cannot be read, a column is missing, or a row lacks a prompt or a reference.
    """
    import pandas as pd

    table = read_table(path)
    missing = [name for name in ("prompt", "reference") if name not in table.columns]
    if missing:
        raise TaskError(
            f"{path} lacks the column {missing[0]!r}; it has {', '.join(table.columns)}"
        )
    records = []
    for row, label in zip(table.rows, table.labels, strict=True):
        prompt = row.get("prompt")
        if not _is_training_prompt(prompt):
            raise TaskError(
                f"{path}, {label}: a prompt is text or messages (role and content), and not empty"
            )
        reference = row.get("reference")
        # nan is the only value that differs from itself.
        is_null = reference is None or reference != reference
        reference_text = "" if is_null else str(reference).strip()
        if not reference_text:
            raise TaskError(f"{path}, {label}: the reference is empty")
        category = row.get("category")
        if not isinstance(category, str) or not category or isinstance(category, NumberText):
            category = "all"
        records.append((prompt, reference_text, category, label))
    return pd.DataFrame(records, columns=["prompt", "reference", "category", "row"])


def _is_training_prompt(prompt: Any) -> bool:
    """Whether a value is text that is not blank, or a list of chat messages with role and content."""
    if isinstance(prompt, NumberText):
        return False
    if isinstance(prompt, str):
        return bool(prompt.strip())
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(
        isinstance(message, dict) and bool(message.get("role")) and bool(message.get("content"))
        for message in prompt
    )
