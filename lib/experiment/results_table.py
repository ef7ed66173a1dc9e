"""The results table: one row for each task, method and sample, with the same columns in every system.

Tables, figures, metrics and claims are queries on it: `results_table.read_results("corl", split="test")`, and then
pandas. A system may add columns of its own; what it does not know stays empty: a missing number is NaN, a missing word
"". Written and read as Parquet with a schema, so that a row without its method, a second meaning of `reward` or a file
of another system is an error that names it. Left out: estimates, which are `lib.stats`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from lib.config import ROOT
from lib.experiment import artifacts

RECORDS = ROOT / "data/records"
AFTER = -1  # the training step of what was measured after training
# Only in rows that `lib.llm.reply_shares.mark_rows` has marked: the share of calls without an answer.
UNUSABLE_SHARE = "unusable_share"
ROLES = ("paper", "router", "expert", "constant", "start", "oracle")

_WORD = pa.string()
_NUMBER = pa.float64()
_COUNT = pa.int64()
_NAMES = pa.list_(pa.string())
_TYPES = {
    "system": _WORD,
    "method": _WORD,
    "role": _WORD,
    "backend": _WORD,
    "seed": _COUNT,
    "split": _WORD,
    "step": _COUNT,
    "item": _WORD,
    "group": _WORD,
    "condition": _WORD,
    "style": _WORD,
    "temperature": _NUMBER,
    "sample": _COUNT,
    "correct": _NUMBER,
    "reward": _NUMBER,
    "cost_usd": _NUMBER,
    "own_cost_usd": _NUMBER,
    "seconds": _NUMBER,
    "tokens_in": _COUNT,
    "tokens_out": _COUNT,
    "calls": _COUNT,
    "malformed": _COUNT,
    "failures": _COUNT,
    "chosen": _NAMES,
    "offered": _NAMES,
    "context": _WORD,
    "outcomes": pa.list_(_NUMBER),
}
# Only numbers may be unknown (NaN).
SCHEMA = pa.schema(
    [
        pa.field(name, column_type, nullable=column_type == _NUMBER)
        for name, column_type in _TYPES.items()
    ]
)
# What stands for an unknown value, by type; lists are empty.
_EMPTY = {_WORD: "", _NUMBER: float("nan"), _COUNT: 0}
_REQUIRED_COLUMNS = ("method", "role", "item")  # what every row must have


class ResultsError(ValueError):
    """Rows that do not fit the results table, or a file that holds none; the message names the column or the file."""


def make_results(system: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Brings rows of a system into the form of the results table.

    Args:
        system: Name of the system, the value of the column `system`.
        rows: At least the columns method, role and item. `correct` lies in 0 to 1, `reward` and `outcomes` are in the
            system's units, `cost_usd` and `own_cost_usd` in US dollars. Columns outside the schema are kept.

    Returns:
        The rows with the columns in the schema's order, then the system's own columns; absent columns are filled.

    Raises:
        ResultsError: A column is missing or of another type, or a role is unknown.
    """
    missing = [name for name in _REQUIRED_COLUMNS if name not in rows]
    if missing:
        raise ResultsError(
            f"a results table of {system!r} needs the columns {', '.join(missing)}; it has {list(rows)}"
        )
    unknown_roles = sorted(set(rows["role"]) - set(ROLES))
    if unknown_roles:
        raise ResultsError(f"roles {unknown_roles} of {system!r} are none of {', '.join(ROLES)}")

    # Fill what the system does not know.
    results = rows.assign(system=system).reset_index(drop=True)
    for name, column_type in _TYPES.items():
        if name in results:
            continue
        if name == "step":
            results[name] = AFTER
        elif column_type in _EMPTY:
            results[name] = _EMPTY[column_type]
        else:
            results[name] = [[] for _ in range(len(results))]

    extra_columns = [name for name in rows if name not in _TYPES]
    results = results[[*_TYPES, *extra_columns]]
    # The way through Arrow checks the types, and gives the same dtypes as reading the file.
    try:
        return _to_arrow_table(results).to_pandas()
    except (pa.ArrowException, ValueError) as error:
        raise ResultsError(
            f"a results table of {system!r} does not fit the schema: {error}"
        ) from error


def write_results(system: str, rows: pd.DataFrame, root: str | Path = RECORDS) -> pd.DataFrame:
    """Writes the results table of a system in place of the earlier one.

    Args:
        system: Name of the system, which names the file.
        rows: As `make_results` takes them.
        root: Folder of the tables.

    Returns:
        The rows as they were written, see `make_results`.

    Raises:
        ResultsError: The rows do not fit the schema.
    """
    import pyarrow.parquet as parquet  # imported late: notebooks that only read need not wait for it

    results = make_results(system, rows)
    sink = pa.BufferOutputStream()
    parquet.write_table(_to_arrow_table(results), sink, compression="zstd")
    artifacts.write_bytes(results_path(system, root), sink.getvalue().to_pybytes())
    return results


def read_results(system: str, root: str | Path = RECORDS, **conditions: Any) -> pd.DataFrame:
    """Reads the results table of a system.

    Args:
        system: Name of the system.
        root: Folder of the tables.
        conditions: Which rows to return, as `select` takes them.

    Raises:
        ResultsError: There is no file, it is of another system, or it lacks a column.
        ValueError: The file is broken.
    """
    path = results_path(system, root)
    if not path.is_file():
        raise ResultsError(
            f"{path} is missing; run the lesson that writes the results of {system!r} (`make repro`)"
        )
    results = artifacts.read_parquet(path)
    has_schema = set(_TYPES) <= set(results)
    if not has_schema or set(results["system"]) - {system}:
        raise ResultsError(
            f"{path} is no results table of {system!r}; delete it and run its lesson again"
        )
    return select(results, **conditions)


def select(rows: pd.DataFrame, **conditions: Any) -> pd.DataFrame:
    """Selects the rows that fulfil all conditions.

    Args:
        rows: Rows of a results table.
        conditions: By column, the value that a row must have, or a list or set of values of which it must have one.

    Raises:
        ResultsError: There is no such column.
    """
    for name, value in conditions.items():
        if name not in rows:
            raise ResultsError(f"no column {name!r}; there are {', '.join(map(str, rows.columns))}")
        is_collection = isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, str)
        allowed_values = list(value) if is_collection else [value]
        rows = rows[rows[name].isin(allowed_values)]
    return rows


def find_roles(rows: pd.DataFrame) -> dict[str, str]:
    """Finds the role of every method, such as "oracle", which decides its colour in figures.

    Args:
        rows: Rows of the results table.

    Returns:
        Roles by name of the method.
    """
    return rows.drop_duplicates("method").set_index("method")["role"].to_dict()


def results_path(system: str, root: str | Path = RECORDS) -> Path:
    """The file of a system's results table."""
    return Path(root) / f"{system}.parquet"


def _to_arrow_table(rows: pd.DataFrame) -> pa.Table:
    """The rows under the schema; columns outside it have the type that their values have."""
    extra_columns = rows.drop(columns=list(_TYPES))
    extra_schema = pa.Schema.from_pandas(extra_columns, preserve_index=False)
    schema = pa.schema([*SCHEMA, *extra_schema]).remove_metadata()
    return pa.Table.from_pandas(rows, schema, preserve_index=False)
