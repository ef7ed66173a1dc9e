"""A user's table of outcomes in long form: a row for each item and model.

    table = read_outcome_table("outcomes.csv")

Columns are found under their usual names, in any case: item, group, model, correct, cost_usd (or dollars), and either
numbers e0, e1, ... (an embedding of the item), one column `embedding` of lists, or the item's prompt. Files are CSV
with any usual separator and encoding, JSON lines, JSON or Parquet. What can be read in one way only is read, and the
notes say what was decided; anything else is refused with column, row and remedy.

Several samples of an item and model (column sample) are averaged, calls that failed (column failure) are left out, and
so are items that some model has not met. Prompts may lie beside the table, as `python -m lib router collect` writes
them. Left out: shipped tables (`tables`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.recorded_outcomes.number_formats import Kind, NumberError, parse_numbers
from lib.recorded_outcomes.outcome_files import FileRows, join_files, read_files, shorten
from lib.recorded_outcomes.published_formats import convert_published
from lib.recorded_outcomes.tables import HoldOut, OutcomeTable, TableError, clip_meteor_scores
from lib.recorded_outcomes.token_prices import TokenPrices, add_costs

REQUIRED = ("item", "model", "correct", "cost_usd")
# By column of this module, other names that it may have in a file, after `_normalize_name`.
ALIASES: dict[str, tuple[str, ...]] = {
    "item": ("item_id", "question_id", "sample_id", "query_id", "prompt_id", "id"),
    "group": ("category", "subject", "domain"),
    "model": ("model_name", "model_id", "llm"),
    "correct": ("is_correct", "score", "accuracy"),
    "cost_usd": ("dollars", "usd", "cost", "price", "cost_in_usd", "cost_dollars"),
    "prompt": ("question", "query"),
    "embedding": ("embeddings",),
    "sample": ("sample_index", "repeat"),
    "failure": (),
    "prompt_hash": (),
    "propensity": (),
    "metric": (),
}
# The same for columns of rows without costs, from which `token_prices` computes them.
TOKEN_ALIASES: dict[str, tuple[str, ...]] = {
    "tokens_in": ("input_tokens", "prompt_tokens"),
    "tokens_out": ("output_tokens", "completion_tokens"),
}
MIN_ITEMS = 6  # two for each of the three parts that a router is fitted, tuned and scored on
MIN_GROUPS = 3  # whole groups are learned from, chosen on and scored
MIN_ITEMS_OF_GROUP = 4  # on average, where groups are all that describes items
MIN_COMPLETE = 0.5  # share of items that every model must have met; the others are left out
# Columns that may differ between the rows of one item.
_OF_A_CALL = ("item", "model", "correct", "cost_usd", "sample", "failure", "metric")
_EMBEDDING_COLUMN = re.compile(r"e\d+")
_INDEX_COLUMN = re.compile(r"column 1|unnamed_0|index|level_0|__index_level_0__")
_NUM_WORD_FEATURES = 32


@dataclass(frozen=True)
class ChoiceTable:
    """A log of choices: for each item one model was asked, chosen with a known probability.

    Attributes:
        name: Name of the table.
        groups: (items,), the group of each item; items of a group are not independent.
        models: Names of the models.
        chosen: (items,), index of the model that was asked.
        propensity: (items,), the probability with which it was chosen.
        correct: (items,), correctness of its reply in [0, 1].
        cost_usd: (items,), cost of its reply.
        features: (items, d), what a router may look at before it asks a model.
        notes: What was decided while the file was read, in sentences.
    """

    name: str
    groups: np.ndarray
    models: tuple[str, ...]
    chosen: np.ndarray
    propensity: np.ndarray
    correct: np.ndarray
    cost_usd: np.ndarray
    features: np.ndarray
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.chosen)


def read_outcome_table(
    path: str | Path | Sequence[Path],
    prices: TokenPrices | None = None,
    hold_out: HoldOut = "groups",
) -> OutcomeTable:
    """Reads a table in long form, or outcomes in one of `published_formats`.

    Args:
        path: A .csv, .tsv, .jsonl, .json or .parquet file, a folder of them, or several. A prompt is converted to 32
            numbers by tf-idf and truncated SVD, without a look at outcomes. Without a column group every item, or
            prompt, is its own group.
        prices: Prices of tokens, for outcomes without costs.
        hold_out: "groups" holds whole groups out; "items" lets a router learn from items of the same group.

    Returns:
        The table, with `notes` on what was decided while reading.

    Raises:
        TableError: The file cannot be read; a column or a number is missing or can be read in two ways; a model has met
            an item twice or never; there are fewer than two models or `MIN_ITEMS` items; all models are free; nothing
            describes the items; an item, or a prompt, is in two groups; or a price is missing. The message names file,
            column and row.
    """
    paths = _list_paths(path)
    try:
        rows = _read_rows(paths, prices)
        return _make_table(rows.frame, rows.labels, paths[0].stem, rows.notes, hold_out)
    except TableError as error:
        raise TableError(f"{paths[0]}: {error}") from error


def _list_paths(path: str | Path | Sequence[Path]) -> list[Path]:
    return [Path(path)] if isinstance(path, (str, Path)) else [Path(name) for name in path]


def _read_rows(paths: Sequence[Path], prices: TokenPrices | None) -> FileRows:
    """Reads files as rows in long form, a row for each item and model, under the column names of the files.

    Args:
        paths: The files.
        prices: Prices of tokens, for rows without costs; None where there are none.

    Returns:
        The rows, with prompts from a file beside the table and costs.
    """
    rows = convert_published(read_files(paths))
    frame = _add_prompts(rows.frame, get_prompts_path(paths[0]))
    notes = list(rows.notes)
    model_column = _find_column(frame, "model", ALIASES["model"])
    cost_column = _find_column(frame, "cost_usd", ALIASES["cost_usd"])
    token_columns = {
        name: _find_column(frame, name, aliases) for name, aliases in TOKEN_ALIASES.items()
    }
    has_tokens = token_columns["tokens_in"] is not None
    if cost_column is None and has_tokens and model_column is not None:
        new_names = {model_column: "model"}
        new_names |= {source: name for name, source in token_columns.items() if source is not None}
        frame = add_costs(frame.rename(columns=new_names), prices, notes)
    return FileRows(rows.path, frame, rows.labels, tuple(notes))


def _find_column(frame: pd.DataFrame, name: str, aliases: Sequence[str]) -> Any | None:
    """Finds the column of a file that has a name or one of its aliases, the name first; None where there is none."""
    by_name = {_normalize_name(source): source for source in reversed(list(frame.columns))}
    for candidate in (name, *aliases):
        if candidate in by_name:
            return by_name[candidate]
    return None


def read_choice_table(path: str | Path | Sequence[Path]) -> ChoiceTable | None:
    """Reads a log of choices with their probabilities, a row for each item.

    Args:
        path: As for `read_outcome_table`, with a column propensity.

    Returns:
        The log; None for a table without that column.

    Raises:
        TableError: As in `read_outcome_table`; or a propensity is not above 0 and at most 1, or an item is there twice.
    """
    paths = _list_paths(path)
    try:
        files = read_files(paths)
        if not any(_normalize_name(name) == "propensity" for name in files[0].frame.columns):
            return None
        joined = join_files(files)
        frame = _add_prompts(joined.frame, get_prompts_path(paths[0]))
        return _make_choice_table(frame, joined, paths[0].stem)
    except TableError as error:
        raise TableError(f"{paths[0]}: {error}") from error


def _make_choice_table(frame: pd.DataFrame, file_rows: FileRows, name: str) -> ChoiceTable:
    """Checks the rows of a log of choices, and makes the arrays by item.

    Args:
        frame: The rows, under the column names of the file.
        file_rows: Positions of the rows in the file, and notes.
        name: Name of the table.

    Returns:
        The log.

    Raises:
        TableError: A column, a value or a choice is missing or wrong.
    """
    columns, column_notes = _find_columns(frame)
    notes = [*file_rows.notes, *column_notes]
    rows = pd.DataFrame({column: frame[source] for column, source in columns.items()})
    rows, labels = _drop_failed_calls(rows, file_rows.labels, notes)
    if "group" not in rows:
        rows["group"] = rows["item"]
    for column in ("item", "group", "model"):
        rows[column] = _read_names(rows[column], column, labels)
    rows = _read_numbers(rows, labels)
    _check_ranges(rows, labels)
    _check_propensities(rows, labels)
    models, chosen = np.unique(rows["model"].to_numpy(dtype=str), return_inverse=True)
    if len(models) < 2:
        raise TableError(f"there is one model, {str(models[0])!r}; a choice needs two")
    if len(rows) < MIN_ITEMS:
        raise TableError(f"there are {len(rows)} items; {MIN_ITEMS} are the least")
    return ChoiceTable(
        name=name,
        groups=rows["group"].to_numpy(dtype=str),
        models=tuple(models.tolist()),
        chosen=chosen,
        propensity=rows["propensity"].to_numpy(float),
        correct=rows["correct"].to_numpy(float),
        cost_usd=rows["cost_usd"].to_numpy(float),
        features=_make_features(rows.set_index("item")),
        notes=tuple(notes),
    )


def _check_propensities(rows: pd.DataFrame, labels: Sequence[str]) -> None:
    """Checks that each item has one choice, and its propensity is a probability above 0.

    Args:
        rows: The rows of a log.
        labels: The position of each row in its file, such as "line 7".

    Raises:
        TableError: A propensity is wrong, or an item occurs twice.
    """
    propensity = rows["propensity"].to_numpy()
    is_wrong = ~((propensity > 0) & (propensity <= 1))
    if is_wrong.any():
        index = int(is_wrong.argmax())
        raise TableError(
            f"propensity of {labels[index]} is {propensity[index]:g}; write the probability with which the model was "
            "chosen, above 0 and at most 1"
        )
    is_repeated = rows.duplicated("item").to_numpy()
    if is_repeated.any():
        index = int(is_repeated.argmax())
        raise TableError(
            f"item {rows.loc[index, 'item']!r} stands there twice, again in {labels[index]}; a log with propensities "
            "has one choice for each item"
        )


def get_prompts_path(table: str | Path) -> Path:
    """The path of the file of a table's prompts: outcomes.prompts.jsonl beside outcomes.parquet."""
    table = Path(table)
    return table.with_name(f"{table.stem}.prompts.jsonl")


def _add_prompts(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Adds a column prompt from the file beside a table, by prompt_hash, where there is such a file.

    Args:
        frame: Rows of a table.
        path: Lines of JSON with prompt_hash and messages.

    Returns:
        The rows; as they are where they have prompts or no hashes, or there is no file.

    Raises:
        TableError: The file cannot be read, or lacks a prompt.
    """
    if "prompt_hash" not in frame or "prompt" in frame or not path.is_file():
        return frame
    messages_by_hash = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            messages_by_hash[row["prompt_hash"]] = row["messages"]
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(
                f"line {number} of {path} holds no prompt_hash and messages as JSON; collect the table again"
            ) from error
    absent = sorted(set(frame["prompt_hash"]) - set(messages_by_hash))
    if absent:
        raise TableError(
            f"{path} lacks {len(absent)} prompts of the table, {absent[0]!r} the first; both files are written "
            "together, so take both from one place"
        )
    return frame.assign(prompt=[messages_by_hash[key] for key in frame["prompt_hash"]])


def make_outcome_table(rows: pd.DataFrame, name: str) -> OutcomeTable:
    """Makes a table from rows in long form.

    Args:
        rows: Columns as in `read_outcome_table`, of any type.
        name: Name of the table.

    Returns:
        The table.

    Raises:
        TableError: As in `read_outcome_table`.
    """
    labels = [f"row {number}" for number in range(1, len(rows) + 1)]
    return _make_table(rows.reset_index(drop=True), labels, name, (), "groups")


def _make_table(
    frame: pd.DataFrame,
    labels: Sequence[str],
    name: str,
    notes: Sequence[str],
    hold_out: HoldOut,
) -> OutcomeTable:
    """Checks rows in long form and makes the table, whose arrays are (items, models).

    Args:
        frame: A row for each item, model and sample, under the column names of the file.
        labels: The position of each row in its file, such as "line 7", for messages.
        name: Name of the table.
        notes: What was decided so far, in sentences.
        hold_out: "items" makes every item a group of its own.

    Returns:
        The table.

    Raises:
        TableError: A column or a value is missing or wrong; the message names the row.
    """
    columns, column_notes = _find_columns(frame)
    notes = [*notes, *column_notes]
    rows = pd.DataFrame({column: frame[source] for column, source in columns.items()})
    if rows.empty:
        raise TableError("the table has no rows; write one for each item and model")

    rows, labels = _drop_failed_calls(rows, labels, notes)

    # Names first, because the messages about numbers use them.
    for column in ("item", "group", "model"):
        if column in rows:
            rows[column] = _read_names(rows[column], column, labels)
    # Where groups are all that describes items, items are held out in any case.
    if "group" not in rows or (hold_out == "items" and _is_described(rows)):
        reason = "There is no column group" if "group" not in rows else "Groups may be known"
        rows = _group_by_prompt(rows)
        notes.append(f"{reason}: every item is a group of its own, and equal prompts share one.")
    rows = _read_numbers(rows, labels)
    rows = _replace_negative_meteor_scores(rows, notes)
    _check_ranges(rows, labels)
    _check_repeats(rows, labels)
    _check_item_columns(rows, labels)
    _check_leaks(rows)
    rows = _replace_few_groups(rows, notes)

    # One row for each item, and outcomes by item and model, means over samples.
    item_rows = rows.drop_duplicates("item").set_index("item").sort_index()
    by_call = rows.groupby(["item", "model"])
    num_samples = by_call.size()
    if num_samples.max() > 1:
        notes.append(
            f"Samples of an item and model were averaged, {num_samples.min()} to {num_samples.max()} of each."
        )
    correct = by_call["correct"].mean().unstack("model")
    cost_usd = by_call["cost_usd"].mean().unstack("model")
    complete = _select_complete_items(correct, notes)
    correct = correct[complete]
    cost_usd = cost_usd[complete]
    item_rows = item_rows[complete]
    _check_outcomes(correct, cost_usd)

    # Where the group is all that a router sees of an item, items are held out one by one: it knows no new group.
    features = _make_group_features(item_rows, notes)
    if features is None:
        features = _make_features(item_rows)
    else:
        item_rows["group"] = item_rows.index
    prompts = ()
    if "prompt" in item_rows:
        prompts = tuple(_read_prompt(prompt) for prompt in item_rows["prompt"].tolist())
    return OutcomeTable(
        name=name,
        items=correct.index.to_numpy(dtype=str),
        groups=item_rows["group"].to_numpy(dtype=str),
        models=tuple(map(str, correct.columns)),
        correct=correct.to_numpy(float),
        cost_usd=cost_usd.to_numpy(float),
        features=features,
        money="as given",
        cost_measures_work=bool((cost_usd.std() > 0).any()),
        notes=tuple(notes),
        prompts=prompts,
    )


def _drop_failed_calls(
    rows: pd.DataFrame, labels: Sequence[str], notes: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Leaves out rows with a failure and no outcome, because they say nothing about the model.

    Args:
        rows: Rows under the column names of this module.
        labels: The position of each row in its file.
        notes: Sentences about what was decided; one may be appended.

    Returns:
        The other rows and their labels.

    Raises:
        TableError: No row is left.
    """
    if "failure" not in rows:
        return rows, list(labels)
    has_failed = rows["failure"].map(_to_comparable).astype(str).str.strip() != ""
    has_no_outcome = rows["correct"].map(_to_comparable).astype(str).str.strip() == ""
    # A call that failed and has an outcome, such as a wrong format, counts.
    is_dropped = (has_failed & has_no_outcome).to_numpy()
    if is_dropped.all():
        raise TableError(
            f"all {len(rows)} calls failed, so that there is no outcome; the column failure says why"
        )
    if is_dropped.any():
        notes.append(f"{is_dropped.sum()} of {len(rows)} calls failed and were left out.")
    labels = [label for label, dropped in zip(labels, is_dropped, strict=True) if not dropped]
    return rows[~is_dropped].reset_index(drop=True), labels


def _replace_few_groups(rows: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Makes every item, or prompt, a group of its own where there are too few groups to hold some out.

    Args:
        rows: The rows.
        notes: A sentence on the change is appended.

    Returns:
        The rows with new groups.
    """
    num_groups = rows["group"].nunique()
    if num_groups >= MIN_GROUPS:
        return rows
    notes.append(
        f"There are {num_groups} groups, and {MIN_GROUPS} are the least that can be held out whole: every item is a "
        "group of its own, and what is said holds for new items of the same groups only."
    )
    return _group_by_prompt(rows)


def _is_described(rows: pd.DataFrame) -> bool:
    """Whether rows have a prompt or an embedding."""
    has_numbers = any(_EMBEDDING_COLUMN.fullmatch(str(column)) for column in rows)
    return has_numbers or "prompt" in rows or "embedding" in rows


def _group_by_prompt(rows: pd.DataFrame) -> pd.DataFrame:
    """Makes every item a group; items with the same prompt share one, so that no split divides them.

    Args:
        rows: The rows, with or without prompts.

    Returns:
        The rows with new groups.
    """
    if "prompt" not in rows:
        return rows.assign(group=rows["item"])
    prompts = rows["prompt"].map(_to_comparable).astype(str)
    # An empty prompt describes nothing and groups nothing; it is refused below.
    first_items = rows.groupby(prompts)["item"].transform("first")
    return rows.assign(group=first_items.where(prompts.str.strip() != "", rows["item"]))


def _replace_negative_meteor_scores(rows: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Replaces METEOR scores below 0 by 0, see `clip_meteor_scores`.

    Args:
        rows: The rows.
        notes: A sentence on the change is appended.

    Returns:
        The rows with clipped scores.
    """
    if "metric" not in rows:
        return rows
    clipped = clip_meteor_scores(rows["correct"], rows["metric"])
    num_clipped = int((clipped != rows["correct"]).sum())
    if num_clipped:
        lowest = rows["correct"].min()
        notes.append(
            f"METEOR scores below 0 ({num_clipped}, down to {lowest:.3g}) were read as 0: RouterArena's penalty for "
            "word order exceeds 1 where matched words repeat."
        )
    return rows.assign(correct=clipped)


def _select_complete_items(correct: pd.DataFrame, notes: list[str]) -> np.ndarray:
    """Selects the items for which every model has an outcome, if they are enough to do without the others.

    Args:
        correct: (items, models), nan where a model has no outcome for an item.
        notes: Sentences about what was decided; one may be appended.

    Returns:
        (items,), True for a complete item.

    Raises:
        TableError: Too few items are complete; the message names the model that lacks most.
    """
    is_complete = correct.notna().all(axis=1).to_numpy()
    num_dropped = int((~is_complete).sum())
    if not num_dropped:
        return is_complete
    if is_complete.mean() >= MIN_COMPLETE and is_complete.sum() >= MIN_ITEMS:
        notes.append(
            f"Of {len(correct)} items, {num_dropped} were left out, because some model has not met them; what is said "
            "holds for items like the others."
        )
        return is_complete
    num_missing = int(correct.isna().to_numpy().sum())
    least_complete = correct.isna().sum().idxmax()
    first_item = correct.index[correct[least_complete].isna()][0]
    raise TableError(
        f"{num_missing} of {correct.size} outcomes are missing, most of {least_complete!r}, item {first_item!r} "
        f"among them, and {int(is_complete.sum())} of {len(correct)} items are complete, where "
        f"{MIN_COMPLETE:.0%} and {MIN_ITEMS} are needed; ask the models that lack items, or leave "
        f"{least_complete!r} out"
    )


# Columns -------------------------------------------------------------------------------------------


def _normalize_name(name: Any) -> str:
    """Normalizes a column name to lower-case words joined by _: " Cost (USD)" becomes cost_usd."""
    words = re.findall(r"[^\W_]+", str(name).lower().replace("$", " dollars "))
    return "_".join(words)


def _find_columns(frame: pd.DataFrame) -> tuple[dict[str, Any], list[str]]:
    """Finds the columns of this module in a file, by their names and aliases.

    Args:
        frame: The rows of the file.

    Returns:
        By column of this module (item, model, ..., e0, e1, ...) the name of the file's column; and sentences about what
        was decided.

    Raises:
        TableError: A required column is missing, or two columns could be meant.
    """
    by_name: dict[str, list[Any]] = {}
    for source in frame.columns:
        by_name.setdefault(_normalize_name(source), []).append(source)
    sources: dict[str, Any] = {}
    notes = []
    for column, aliases in ALIASES.items():
        for alias in (column, *aliases):
            candidates = by_name.get(alias, [])
            if len(candidates) > 1:
                listed = " and ".join(repr(str(candidate)) for candidate in candidates)
                raise TableError(f"{listed} could each be {column}; rename one of them")
            if candidates:
                sources[column] = candidates[0]
                if alias != column:
                    notes.append(f"The column {str(candidates[0])!r} was read as {column}.")
                break
    missing = [column for column in REQUIRED if column not in sources]
    if missing:
        names = [
            str(source)
            for source in frame.columns
            if not _INDEX_COLUMN.fullmatch(_normalize_name(source))
        ]
        raise TableError(
            f"no column {', '.join(missing)}; a table needs item, model, correct, cost_usd, and prompt or e0, e1, "
            f"...; this one has {shorten(', '.join(names))}"
        )
    numbered = [name for name in by_name if _EMBEDDING_COLUMN.fullmatch(name)]
    for name in sorted(numbered, key=lambda name: int(name[1:])):
        sources[name] = by_name[name][0]
    return sources, notes


def _read_names(values: pd.Series, column: str, labels: Sequence[str]) -> pd.Series:
    """Reads a column of names as texts; "NA" and "None" are names.

    Args:
        values: The column.
        column: Its name, for messages.
        labels: The position of each row in its file.

    Returns:
        The names.

    Raises:
        TableError: A field is empty or holds no single name.
    """
    names = []
    for value, label in zip(values.tolist(), labels, strict=True):
        if isinstance(value, (list, tuple, dict, set, np.ndarray)):
            raise TableError(f"{column} of {label} is a {type(value).__name__}; write one name")
        # nan is the one value that differs from itself.
        is_missing = value is None or value is pd.NA or value is pd.NaT or value != value
        name = "" if is_missing else str(value).strip()
        if not name:
            raise TableError(f"{column} of {label} is empty; write its name")
        # A whole number that a missing value in its column turned into a float.
        if isinstance(value, float) and value.is_integer():
            name = str(int(value))
        names.append(name)
    return pd.Series(names, index=values.index, dtype=object)


def _read_numbers(rows: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Parses the columns of numbers: correct, cost_usd, propensity, and the embedding of an item.

    Args:
        rows: Rows under the column names of this module.
        labels: The position of each row in its file, for messages.

    Returns:
        The rows with these columns as finite floats; a column embedding of lists is replaced by e0, e1, ...
    """
    embedding_columns = [column for column in rows if _EMBEDDING_COLUMN.fullmatch(str(column))]
    if "embedding" in rows and not embedding_columns:
        vectors = _read_vectors(rows["embedding"], labels)  # (rows, dimensions)
        embedding_columns = [f"e{index}" for index in range(vectors.shape[1])]
        rows = rows.drop(columns="embedding").join(
            pd.DataFrame(vectors, index=rows.index, columns=embedding_columns)
        )
    kinds: dict[str, Kind] = {"correct": "fraction", "cost_usd": "usd"}
    if "propensity" in rows:
        embedding_columns = [*embedding_columns, "propensity"]
    kinds |= dict.fromkeys(embedding_columns, "number")
    try:
        numbers = parse_numbers({name: rows[name].tolist() for name in kinds}, kinds)
    except NumberError as error:
        raise TableError(f"{error.column} of {labels[error.index]} {shorten(error)}") from error
    for name, values in numbers.items():
        is_infinite = ~np.isfinite(values)
        if is_infinite.any():
            label = labels[int(is_infinite.argmax())]
            raise TableError(f"{name} of {label} is infinite; write a finite number")
    return rows.assign(**numbers)


def _read_vectors(values: pd.Series, labels: Sequence[str]) -> np.ndarray:
    """Reads a column of vectors, which are lists of numbers or JSON texts of such lists.

    Args:
        values: The column.
        labels: The position of each row in its file.

    Returns:
        (rows, dimensions).

    Raises:
        TableError: A row has no vector, or one of another length.
    """
    vectors = []
    for value, label in zip(values.tolist(), labels, strict=True):
        try:
            vector = np.asarray(json.loads(value) if isinstance(value, str) else value, dtype=float)
        except (ValueError, TypeError):
            vector = np.zeros(0)
        if vector.ndim != 1 or not len(vector):
            raise TableError(
                f"embedding of {label} is {shorten(value, 40)!r}; write a list of numbers in every row"
            )
        if len(vector) != len(vectors[0] if vectors else vector):
            raise TableError(
                f"embedding of {label} has {len(vector)} numbers, that of {labels[0]} has {len(vectors[0])}; "
                "all must be equally long"
            )
        vectors.append(vector)
    return np.stack(vectors)


# Checks --------------------------------------------------------------------------------------------


def _check_ranges(rows: pd.DataFrame, labels: Sequence[str]) -> None:
    """Checks that costs are 0 or more, and outcomes from 0 to 1.

    Args:
        rows: The rows.
        labels: The position of each row in its file.

    Raises:
        TableError: A number is out of range.
    """
    cost_usd = rows["cost_usd"].to_numpy()
    if (cost_usd < 0).any():
        index = int((cost_usd < 0).argmax())
        raise TableError(
            f"cost_usd of {labels[index]} is {cost_usd[index]:g}; write dollars, 0 or more"
        )
    correct = rows["correct"].to_numpy()
    is_outside = (correct < 0) | (correct > 1)
    if is_outside.any():
        index = int(is_outside.argmax())
        raise TableError(
            f"correct of {labels[index]} is {correct[index]:g}; write 0 to 1, or percentages with their sign"
        )


def _check_repeats(rows: pd.DataFrame, labels: Sequence[str]) -> None:
    """Checks that no two rows have the same item, model and sample.

    Args:
        rows: The rows.
        labels: The position of each row in its file.

    Raises:
        TableError: Two rows have.
    """
    identity = ["item", "model"]
    if "sample" in rows:
        identity = [*identity, "sample"]
        rows = rows.assign(sample=rows["sample"].map(_to_comparable).astype(str))
    is_repeated = rows.duplicated(identity).to_numpy()
    if is_repeated.any():
        index = int(is_repeated.argmax())
        item, model = rows.loc[index, ["item", "model"]]
        raise TableError(
            f"item {item!r}, model {model!r} stands there twice, again in {labels[index]}; number samples in a "
            "column sample, or drop the row"
        )


def _check_item_columns(rows: pd.DataFrame, labels: Sequence[str]) -> None:
    """Checks that what describes an item, such as its prompt, is the same in all of its rows.

    Args:
        rows: The rows.
        labels: The position of each row in its file.

    Raises:
        TableError: A column differs.
    """
    first_index = rows.groupby("item")["item"].transform(lambda items: items.index[0])
    for column in rows.columns.difference(_OF_A_CALL):
        values = rows[column].map(_to_comparable)
        first_values = values.loc[first_index.to_numpy()].to_numpy()
        differs = (values != first_values).to_numpy()
        if not differs.any():
            continue
        index = int(differs.argmax())
        difference = (
            f"{column} of {labels[index]} differs from that of {labels[first_index[index]]}, though both are item "
            f"{rows.loc[index, 'item']!r}"
        )
        if column == "group":
            raise TableError(f"groups leak: {difference}; write an item under one group")
        raise TableError(f"{difference}; write the same in all rows of an item")


def _check_leaks(rows: pd.DataFrame) -> None:
    """Checks that no prompt is in two groups, where a split by groups would train and test on it.

    Args:
        rows: The rows.

    Raises:
        TableError: A prompt is.
    """
    if "prompt" not in rows:
        return
    prompts = rows["prompt"].map(_to_comparable)
    leaks = rows.groupby(prompts)["group"].nunique() > 1
    # An empty prompt is reported as such, below.
    leaks = leaks[[bool(str(prompt).strip()) for prompt in leaks.index]]
    if leaks.any():
        raise TableError(
            f"groups leak: the prompt {shorten(leaks.idxmax(), 60)!r} and {int(leaks.sum()) - 1} more stand in "
            "two groups, so that a split would train and test on one; give equal prompts one group"
        )


def _to_comparable(value: Any) -> Any:
    """Converts a value to one that can be compared and grouped: lists to JSON, a missing value to an empty text."""
    if isinstance(value, (list, tuple, dict, np.ndarray)):
        return json.dumps(value, default=str)
    is_missing = value is None or value is pd.NA or value != value
    return "" if is_missing else value


def _check_outcomes(correct: pd.DataFrame, cost_usd: pd.DataFrame) -> None:
    """Checks that there are enough models and items, and costs, for a choice between models.

    Args:
        correct: (items, models).
        cost_usd: (items, models).

    Raises:
        TableError: There is nothing to choose.
    """
    num_items, num_models = correct.shape
    if num_models < 2:
        raise TableError(f"there is one model, {correct.columns[0]!r}; a choice needs two")
    if num_items < MIN_ITEMS:
        raise TableError(
            f"there are {num_items} items; a router is fitted, tuned and scored on different ones, so that "
            f"{MIN_ITEMS} are the least, and some hundred are needed to tell anything"
        )
    if not cost_usd.to_numpy().any():
        raise TableError(
            "all models are free: cost_usd is 0 in every row, so that no money can be saved; write what a call costs"
        )


# Features ------------------------------------------------------------------------------------------


def _make_group_features(item_rows: pd.DataFrame, notes: list[str]) -> np.ndarray | None:
    """Makes features from the groups of items, for a table in which nothing else describes items.

    Args:
        item_rows: A row for each item.
        notes: Sentences about what was decided; one may be appended.

    Returns:
        (items, groups), one-hot; None where items have prompts or embeddings, or groups are too few or too small.
    """
    described = [column for column in item_rows if _EMBEDDING_COLUMN.fullmatch(str(column))]
    num_groups = item_rows["group"].nunique()
    tells_something = 2 <= num_groups <= len(item_rows) / MIN_ITEMS_OF_GROUP
    if described or "prompt" in item_rows or not tells_something:
        return None
    notes.append(
        f"There are no prompts: a router sees which of the {num_groups} groups an item is of, so that items are held "
        "out one by one."
    )
    return pd.get_dummies(item_rows["group"]).to_numpy(float)


def _make_features(item_rows: pd.DataFrame) -> np.ndarray:
    """Makes the features of items: their embedding if there is one, else numbers from the prompt's words.

    Args:
        item_rows: A row for each item.

    Returns:
        (items, d).

    Raises:
        TableError: Nothing describes the items.
    """
    embedding_columns = [column for column in item_rows if _EMBEDDING_COLUMN.fullmatch(str(column))]
    if embedding_columns:
        return item_rows[embedding_columns].to_numpy(float)
    if "prompt" not in item_rows:
        raise TableError(
            "nothing describes the items, so that a router has nothing to look at; add a column prompt, or numbers e0, "
            "e1, ..."
        )
    prompts = [_read_prompt(prompt) for prompt in item_rows["prompt"].tolist()]
    num_blank = sum(not prompt for prompt in prompts)
    if num_blank:
        item = item_rows.index[[not prompt for prompt in prompts]][0]
        raise TableError(
            f"prompt is empty for {num_blank} of {len(prompts)} items, {item!r} the first; write what was asked"
        )
    if len(set(prompts)) == 1:
        raise TableError(
            f"all {len(prompts)} prompts are {shorten(prompts[0], 60)!r}, so that a router has nothing to look at"
        )
    return embed_words(prompts)


def _read_prompt(prompt: Any) -> str:
    """Converts a prompt to one text; of chat messages the contents are joined."""
    if isinstance(prompt, (list, tuple, np.ndarray)):
        return read_prompt_text(prompt)
    return str(_to_comparable(prompt)).strip()


def read_prompt_text(messages: Sequence[Any]) -> str:
    """Joins the contents of a conversation's messages, a line each, to the text that a router reads.

    Args:
        messages: As in OpenAI's API, with contents that are texts, lists of parts, or null beside tool calls.

    Returns:
        The text; parts that are no texts, such as images, are left out.
    """
    texts = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else message
        content_parts = content if isinstance(content, list) else [content]
        for content_part in content_parts:
            is_mapping = isinstance(content_part, Mapping)
            text = content_part.get("text") if is_mapping else content_part
            if text is not None:
                texts.append(str(text))
    return "\n".join(texts).strip()


def embed_words(prompts: Sequence[str], dimensions: int = _NUM_WORD_FEATURES) -> np.ndarray:
    """Embeds prompts by tf-idf of words and punctuation, followed by truncated SVD.

    Args:
        prompts: Texts.
        dimensions: Largest dimension of the embedding.

    Returns:
        (prompts, d), with d at most `dimensions`, and less where there are fewer prompts or words.
    """
    # Imported here: tables with numbers need neither.
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        sublinear_tf=True, max_features=20_000, token_pattern=r"\w+|[^\w\s]"
    )
    matrix = vectorizer.fit_transform(prompts)  # (prompts, words)
    random_state = int(seeds.rng("outcomes", "words").integers(2**31))
    num_prompts, num_words = matrix.shape
    num_components = min(dimensions, num_prompts - 1, num_words - 1) or 1
    return TruncatedSVD(num_components, random_state=random_state).fit_transform(matrix)
