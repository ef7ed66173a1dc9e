"""The record: one row for each task, arm and try of whatever acts, in any system.

Tables, figures, metrics and claims are queries on it, `record.read("corl", split="test")` and then pandas. A
system declares the columns that it has besides (`extra`); what it does not know stays empty: a missing number is
NaN, a missing word "". Written and read as Parquet with a schema, so that a row without its arm, a second kind of
`reward` or a file of another system is an error that names it. Left out: estimates, which are `lib.measure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from lib import store
from lib.params import ROOT

RECORDS = ROOT / "data/records"
AFTER = -1  # the step of what was measured after training
ROLES = ("paper", "router", "expert", "constant", "start", "oracle")

_WORDS = ("system", "arm", "role", "backend", "split", "item", "group", "condition", "style", "context")
_NUMBERS = ("heat", "right", "reward", "dollars", "own_dollars", "seconds")
_COUNTS = ("seed", "step", "try", "tokens_in", "tokens_out", "calls", "malformed", "failures")
_LISTS = {"chosen": pa.list_(pa.string()), "offered": pa.list_(pa.string()), "outcomes": pa.list_(pa.float64())}
_ORDER = [
    "system", "arm", "role", "backend", "seed", "split", "step", "item", "group", "condition", "style", "heat", "try",
    "right", "reward", "dollars", "own_dollars", "seconds", "tokens_in", "tokens_out", "calls", "malformed", "failures",
    "chosen", "offered", "context", "outcomes",
]  # fmt: skip
_TYPES = (
    dict.fromkeys(_WORDS, pa.string()) | dict.fromkeys(_NUMBERS, pa.float64()) | dict.fromkeys(_COUNTS, pa.int64())
) | _LISTS
SCHEMA = pa.schema([pa.field(name, _TYPES[name], nullable=name in _NUMBERS) for name in _ORDER])  # NaN: not known
_EMPTY: dict[str, Any] = (
    dict.fromkeys(_WORDS, "") | dict.fromkeys(_NUMBERS, float("nan")) | dict.fromkeys(_COUNTS, 0) | {"step": AFTER}
)
_ASKED = ("arm", "role", "item")  # what every row must have


class RecordError(ValueError):
    """Rows that are no record, or a file that holds none; the message names the column or the file."""


def frame(system: str, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` as a record of `system`: columns in the schema's order, then its own; absent ones filled.

    rows: at least arm, role and item. right: 0 to 1; reward and outcomes: in the system's units; dollars,
    own_dollars: US dollars; heat: temperature. Raises RecordError naming a column that is missing or of another type.
    """
    missing = [name for name in _ASKED if name not in rows]
    if missing:
        raise RecordError(f"a record of {system!r} needs the columns {', '.join(missing)}; it has {list(rows)}")
    unknown = sorted(set(rows["role"]) - set(ROLES))
    if unknown:
        raise RecordError(f"roles {unknown} of {system!r} are none of {', '.join(ROLES)}")
    out = rows.assign(system=system).reset_index(drop=True)
    for name in _ORDER:
        if name not in out:
            out[name] = [[] for _ in range(len(out))] if name in _LISTS else _EMPTY[name]
    out = out[[*_ORDER, *(name for name in rows if name not in _ORDER)]]
    try:
        return _table(out).to_pandas()
    except (pa.ArrowException, ValueError) as error:
        raise RecordError(f"a record of {system!r} does not fit the schema: {error}") from error


def write(system: str, rows: pd.DataFrame, root: str | Path = RECORDS) -> pd.DataFrame:
    """Write the record of a system, whole, under `root`; returns it as `frame` made it."""
    made = frame(system, rows)
    sink = pa.BufferOutputStream()
    import pyarrow.parquet as parquet  # imported late: notebooks that only read need not wait for both

    parquet.write_table(_table(made), sink, compression="zstd")
    store.write_bytes(place(system, root), sink.getvalue().to_pybytes())
    return made


def read(system: str, root: str | Path = RECORDS, **wanted: Any) -> pd.DataFrame:
    """The record of a system, or the rows in which each named column has the wanted value (or one of a list).

    Raises RecordError where there is no file, where it is of another system, or for a column that it lacks.
    """
    path = place(system, root)
    if not path.is_file():
        raise RecordError(f"{path} is missing; run the lesson that records {system!r} (`make repro`)")
    found = store.read_parquet(path)
    if not set(_ORDER) <= set(found) or set(found["system"]) - {system}:
        raise RecordError(f"{path} is no record of {system!r}; delete it and run its lesson again")
    return where(found, **wanted)


def where(rows: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows in which each named column has the wanted value, or one of several. Raises RecordError for a column
    that is not there."""
    for name, value in wanted.items():
        if name not in rows:
            raise RecordError(f"no column {name!r}; there are {', '.join(map(str, rows.columns))}")
        several = not isinstance(value, str) and isinstance(value, (Sequence, set, frozenset))
        rows = rows[rows[name].isin(list(value) if several else [value])]
    return rows


def place(system: str, root: str | Path = RECORDS) -> Path:
    """The file of a system's record."""
    return Path(root) / f"{system}.parquet"


def _table(rows: pd.DataFrame) -> pa.Table:
    """The rows under the schema; columns of a system's own have the type that their values have."""
    own = pa.Schema.from_pandas(rows.drop(columns=_ORDER), preserve_index=False)
    return pa.Table.from_pandas(rows, pa.schema([*SCHEMA, *own]).remove_metadata(), preserve_index=False)
