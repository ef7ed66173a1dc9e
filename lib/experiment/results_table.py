"""The record: one row for each task, method and try of whatever acts, in any system.

Tables, figures, metrics and claims are queries on it, `record.read("corl", split="test")` and then pandas. A
system declares the columns that it has besides (`extra`); what it does not know stays empty: a missing number is
NaN, a missing word "". Written and read as Parquet with a schema, so that a row without its method, a second kind of
`reward` or a file of another system is an error that names it. Left out: estimates, which are `lib.stats`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from lib.config import ROOT
from lib.experiment import artifacts

RECORDS = ROOT / "data/records"
AFTER = -1  # the step of what was measured after training
ROLES = ("paper", "router", "expert", "constant", "start", "oracle")

_WORD, _NUMBER, _COUNT, _NAMES = pa.string(), pa.float64(), pa.int64(), pa.list_(pa.string())
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
SCHEMA = pa.schema(
    [pa.field(name, of, nullable=of == _NUMBER) for name, of in _TYPES.items()]
)  # NaN: not known
_EMPTY = {_WORD: "", _NUMBER: float("nan"), _COUNT: 0}
_ASKED = ("method", "role", "item")  # what every row must have


class RecordError(ValueError):
    """Rows that are no record, or a file that holds none; the message names the column or the file."""


def frame(system: str, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` as a record of `system`: columns in the schema's order, then its own; absent ones filled.

    rows: at least method, role and item. right: 0 to 1; reward and outcomes: in the system's units; dollars,
    own_dollars: US dollars; heat: temperature. Raises RecordError naming a column that is missing or of another type.
    """
    missing = [name for name in _ASKED if name not in rows]
    if missing:
        raise RecordError(
            f"a record of {system!r} needs the columns {', '.join(missing)}; it has {list(rows)}"
        )
    unknown = sorted(set(rows["role"]) - set(ROLES))
    if unknown:
        raise RecordError(f"roles {unknown} of {system!r} are none of {', '.join(ROLES)}")
    out = rows.assign(system=system).reset_index(drop=True)
    for name, of in _TYPES.items():
        if name not in out:
            out[name] = (
                AFTER
                if name == "step"
                else _EMPTY[of]
                if of in _EMPTY
                else [[] for _ in range(len(out))]
            )
    out = out[[*_TYPES, *(name for name in rows if name not in _TYPES)]]
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
    artifacts.write_bytes(place(system, root), sink.getvalue().to_pybytes())
    return made


def read(system: str, root: str | Path = RECORDS, **wanted: Any) -> pd.DataFrame:
    """The record of a system, or the rows in which each named column has the wanted value (or one of a list).

    Raises RecordError where there is no file, where it is of another system, or for a column that it lacks.
    """
    path = place(system, root)
    if not path.is_file():
        raise RecordError(
            f"{path} is missing; run the lesson that records {system!r} (`make repro`)"
        )
    found = artifacts.read_parquet(path)
    if not set(_TYPES) <= set(found) or set(found["system"]) - {system}:
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
    own = pa.Schema.from_pandas(rows.drop(columns=list(_TYPES)), preserve_index=False)
    return pa.Table.from_pandas(
        rows, pa.schema([*SCHEMA, *own]).remove_metadata(), preserve_index=False
    )
