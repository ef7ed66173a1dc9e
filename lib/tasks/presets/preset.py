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
    """A row that makes no item, for example without an answer; the message says which rows these are."""


@dataclass(frozen=True)
class Record:
    """One row of a published file.

    Attributes:
        values: From a column's name to its value.
        path: Of the file.
        label: Where the row stands in it, such as "line 7".
        preset: The name of the preset that reads it.
        seed: Of random numbers, such as the order of options.
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
        """The value of the first of several columns that the row has.

        Args:
            names: Columns, since layouts of one data set differ in names.

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
        """The same for a value that has to be text or a number, without blanks at its ends.

        Args:
            names: Columns.

        Returns:
            The text.

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
        """The same, but empty for a value that is missing, null or blank."""
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
    """The files of a preset: the file itself, or those of one split in a folder.

    Args:
        preset: Whose files.
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
    """The split that the words of a file's name, or else of its folders' names, say."""
    # From the file outwards: the file's own name knows best.
    for name in reversed(file.relative_to(folder).parts):
        words = re.split(r"[^A-Za-z]+", name)
        for split, names in SPLIT_NAMES.items():
            if any(split_name in words for split_name in names):
                return split
    return None


def read_records(
    preset: Preset, paths: Iterable[Path], seed: int
) -> tuple[list[tuple[str, Item]], tuple[str, ...]]:
    """Reads files of a published data set.

    Args:
        preset: How they are read.
        paths: The files.
        seed: Of random numbers, such as the order of options.

    Returns:
        Per item the place that it comes from, for messages, and the item; and notes on what was left out.

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
    """Turns errors over values of another shape, such as text where a list is due, into one that says so."""
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
    """Makes an item, with the hash of its prompt for an id where the source gives none.

    Args:
        prompt: The question.
        reference: The final answer; of a multiple-choice question the letter.
        group: Subject or domain.
        id: The source's own.
        worked_solution: The reasoning that leads to the answer.
        difficulty: Higher is harder.
        choices: The options, which are written under the question.
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
    """The letter of the right option.

    Args:
        letter: As the file has it, perhaps with a full stop.
        choices: The options in the order of their letters.
        record: The row, for messages.

    Returns:
        The letter alone.

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
