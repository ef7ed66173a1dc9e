"""What a preset is: how the files of one published data set are found, read and made into items."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.tasks.column_map import LETTERS, append_choices, hash_prompt
from lib.tasks.item import Item, TaskError
from lib.tasks.readers import Table, read_table

NOT_CHECKED = "layout not checked against the original"
# Names of one split in file and folder names. Capitals count: "Hinting Task Test.jsonl" is no test split.
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "val", "validation"), "test": ("test",)}
_SHARD = re.compile(r"-\d+-of-\d+")


class RowSkipped(Exception):
    """A row that makes no item. The message ends a sentence, "Left out, because they have no answer: 3 of 10 rows"."""


@dataclass(frozen=True)
class Record:
    """One row of a published file.

    Attributes:
        values: From a column's name to its value.
        path: Path of the file.
        label: Where the row stands in it, such as "line 7".
        preset: The name of the preset that reads it.
        seed: Seed of random numbers, such as the order of options.
    """

    values: Mapping[str, Any]
    path: Path
    label: str
    preset: str
    seed: int = 0

    @property
    def location(self) -> str:
        """File, line and preset, as messages name them."""
        return f"{self.path}, {self.label} ({self.preset})"

    def get_value(self, *names: str) -> Any:
        """Gets a value of the row by the name of its column.

        Args:
            names: Names that the column has in different layouts of the data set; the first that exists counts.

        Returns:
            The value.

        Raises:
            TaskError: The row has none of them.
        """
        for name in names:
            if name in self.values:
                return self.values[name]
        raise TaskError(
            f"{self.location}: there is no {' or '.join(map(repr, names))}, only {', '.join(map(str, self.values))}; "
            f"give a file in the layout of {self.preset}, or leave the preset out and name the columns"
        )

    def get_text(self, *names: str) -> str:
        """Gets a value of the row that has to be text or a number.

        Args:
            names: Names that the column has in different layouts of the data set; the first that exists counts.

        Returns:
            The text, without blanks at its ends.

        Raises:
            TaskError: The row has none of them, or the value is null, blank or nested.
        """
        value = self.get_value(*names)
        is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
        if not is_text or value != value or not str(value).strip():
            raise TaskError(
                f"{self.location}: {names[0]!r} is {value!r}; write text or leave the row out"
            )
        return str(value).strip()

    def get_optional_text(self, *names: str) -> str:
        """Gets a value of the row as text by the name of its column; empty where it is missing, null or blank."""
        for name in names:
            value = self.values.get(name)
            if value is not None and value == value:
                return str(value).strip()
        return ""


@dataclass(frozen=True)
class Preset:
    """How one published data set is read.

    Attributes:
        name: As it is written before the colon, such as "gsm8k".
        description: What the data set is, and the paper.
        scorer: The usual one, as `make_scorer` takes it.
        layout_checked: Whether the reader was run on the original files.
        make_item: From a row to its item, or several. Raises RowSkipped for one that makes none.
        file_names: Patterns of its files in a folder, such as "*.jsonl".
        reads_many_files: Whether the files of one split belong together, such as one per subject.
        read_file: From a file to its table.
        notes: What everybody who uses the data set has to know, in sentences.
        has_references: Whether every item has one.
        merges_references: Whether another reference to the same prompt is an alternative, as in parallel text.
        list_files: From a folder to its files, where patterns cannot say which.
    """

    name: str
    description: str
    scorer: str
    layout_checked: bool
    make_item: Callable[[Record], Item | list[Item]]
    file_names: tuple[str, ...] = ("*.jsonl", "*.json", "*.parquet", "*.jsonl.gz", "*.json.gz")
    reads_many_files: bool = False
    read_file: Callable[[Path], Table] = read_table
    notes: tuple[str, ...] = ()
    has_references: bool = True
    merges_references: bool = False
    list_files: Callable[[Path], list[Path]] | None = None


def find_files(preset: Preset, path: Path, split: str | None) -> list[Path]:
    """Finds the files of a published data set: the file itself, or those of one split in a folder.

    Args:
        preset: The data set, with the usual names of its files.
        path: A file or a folder.
        split: "train", "dev" or "test"; None where there is only one.

    Returns:
        The files, sorted by name.

    Raises:
        TaskError: There is none, or there are several and nothing says which.
    """
    if not path.exists():
        raise TaskError(f"{path} does not exist; give the file or folder of {preset.name}")
    if path.is_file():
        return [path]
    if preset.list_files is not None:
        files = preset.list_files(path)
    else:
        matches = {file for pattern in preset.file_names for file in path.rglob(pattern)}
        files = sorted(file for file in matches if file.is_file())
    if split is not None:
        files = [file for file in files if _guess_split(file, path) == split]
    if not files:
        of_split = f" of the split {split!r}" if split else ""
        raise TaskError(
            f"{path} holds no file{of_split} for {preset.name}; expected {', '.join(preset.file_names)}; "
            "give the file itself"
        )
    # One split only: to mix training and test files is never meant.
    splits = sorted({_guess_split(file, path) or "" for file in files} - {""})
    if len(splits) > 1:
        raise TaskError(f"{path} holds the splits {', '.join(splits)}; say split={splits[0]!r}")
    # Hugging Face cuts large files into shards.
    is_one_set = all(_SHARD.search(file.name) for file in files)
    if len(files) > 1 and not preset.reads_many_files and not is_one_set:
        names = ", ".join(str(file.relative_to(path)) for file in files[:5])
        raise TaskError(f"{path} holds {len(files)} files for {preset.name} ({names}); give one")
    return files


def _guess_split(file: Path, folder: Path) -> str | None:
    """Guess the split of a file from the words of its name, or else of its folders' names.

    Args:
        file: A file somewhere in the folder.
        folder: The folder of the data set.

    Returns:
        "train", "dev" or "test"; None where no name says one.
    """
    # From the file's own name to the outermost folder's.
    for name in reversed(file.relative_to(folder).parts):
        words = re.split(r"[^A-Za-z]+", name)
        for split, names in SPLIT_NAMES.items():
            if any(split_name in words for split_name in names):
                return split
    return None


def read_records(
    preset: Preset, paths: Iterable[Path], seed: int
) -> tuple[list[tuple[str, Item]], tuple[str, ...]]:
    """Reads files of a published data set, and makes items (questions with reference answers) of their rows.

    Args:
        preset: How files of this data set are read, and how a row becomes an item.
        paths: The files.
        seed: Seed of random numbers, such as the order of options.

    Returns:
        (located_items, notes): (location, item) of each item, the location being file and line for error messages; and
        sentences on rows that were left out.

    Raises:
        TaskError: A file is broken or in another layout.
    """
    located_items: list[tuple[str, Item]] = []
    notes: list[str] = []
    num_skipped: dict[str, int] = {}
    num_rows = 0
    for path in paths:
        with _name_layout(preset, str(path)):
            table = preset.read_file(path)
        num_rows += len(table.rows)
        notes += table.notes
        for row, label in zip(table.rows, table.labels, strict=True):
            record = Record(row, path, label, preset.name, seed)
            try:
                with _name_layout(preset, record.location):
                    items = preset.make_item(record)
            except RowSkipped as reason:
                num_skipped[str(reason)] = num_skipped.get(str(reason), 0) + 1
                continue
            for item in items if isinstance(items, list) else [items]:
                located_items.append((record.location, item))
    for reason, count in num_skipped.items():
        notes.append(f"Left out, because {reason}: {count} of {num_rows} rows.")
    return located_items, tuple(notes)


@contextmanager
def _name_layout(preset: Preset, location: str) -> Iterator[None]:
    """Turn errors in reading a row or file of an unexpected layout into a TaskError, within a with statement.

    Args:
        preset: The data set whose layout was expected.
        location: File and line, for the message.
    """
    try:
        yield
    except TaskError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TaskError(
            f"{location}: not in the layout of {preset.name} ({type(error).__name__}: {error}); give a file as "
            "published, or leave the preset out and name the columns"
        ) from error


def make_item(
    prompt: str,
    reference: str,
    group: str,
    *,
    id: str = "",
    worked_solution: str = "",
    difficulty: int = 1,
    choices: tuple[str, ...] = (),
    alternatives: tuple[str, ...] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Item:
    """Makes an item: a question with its reference answer. Options are written under the question.

    Args:
        prompt: The question.
        reference: The final answer; of a multiple-choice question the letter.
        group: Subject or domain.
        id: The id that the source gives; empty for a hash of the prompt.
        worked_solution: The reasoning that leads to the answer.
        difficulty: Higher is harder.
        choices: The options of a multiple-choice question.
        alternatives: Further accepted answers.
        metadata: Whatever else the source says.

    Returns:
        The item.
    """
    if choices:
        prompt = append_choices(prompt, choices)
    return Item(
        prompt=prompt,
        reference=reference,
        worked_solution=worked_solution,
        group=group,
        difficulty=difficulty,
        id=id or hash_prompt((), prompt),
        choices=choices,
        alternatives=alternatives,
        metadata=dict(metadata or {}),
    )


def check_letter(letter: str, choices: tuple[str, ...], record: Record) -> str:
    """Checks that the letter of the right answer names one of the options.

    Args:
        letter: The letter as a file has it, such as "b" or "B.".
        choices: The options in the order of their letters.
        record: The row, for messages.

    Returns:
        The capital letter alone.

    Raises:
        TaskError: There is no such option.
    """
    stripped = letter.strip(" .():").upper()
    letters = LETTERS[: len(choices)]
    if len(stripped) != 1 or stripped not in letters:
        raise TaskError(
            f"{record.location}: the answer {letter!r} is none of the options {letters}; mend the row"
        )
    return stripped
