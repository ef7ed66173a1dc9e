"""Files in and out: atomic writes, content hashes, safetensors and Parquet.

A file appears under its name only when it is whole: it is written beside its place and moved
there, so that a killed process leaves either the old file or the new one. JSON is written with
sorted keys, so that equal contents are equal bytes. Nothing here reads or writes pickles.
"""

import hashlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write `content` to `path` in one atomic move, making folders as needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp makes private files
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write_text(path: str | Path, content: str) -> Path:
    """Write UTF-8 text atomically."""
    return write_bytes(path, content.encode())


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} does not go into JSON: {value!r}")


def to_json(value: Any) -> str:
    """Canonical JSON: sorted keys, two blanks of indent, a final newline; NaN is refused."""
    return (
        json.dumps(
            value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False, default=_plain
        )
        + "\n"
    )


def write_json(path: str | Path, value: Any) -> Path:
    """Write canonical JSON atomically."""
    return write_text(path, to_json(value))


def read_json(path: str | Path) -> Any:
    """Read JSON. Raises ValueError naming the file and the place where it breaks off."""
    content = Path(path).read_bytes()
    try:
        return json.loads(content)
    except (
        ValueError,
        RecursionError,
    ) as error:  # no JSON, no UTF-8, a number or a nesting beyond all measure
        raise ValueError(f"{path} is not valid JSON ({error}); delete it and run again") from error


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: str | Path) -> str:
    return sha256_bytes(Path(path).read_bytes())


def sha256_json(value: Any) -> str:
    """The hash of a value's canonical JSON."""
    return sha256_bytes(to_json(value).encode())


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray]) -> Path:
    """Write named arrays as safetensors (no code can hide in such a file)."""
    from safetensors.numpy import save

    return write_bytes(
        path, save({name: np.asarray(tensors[name], order="C") for name in sorted(tensors)})
    )


def read_tensors(path: str | Path) -> dict[str, np.ndarray]:
    """Read safetensors. Raises ValueError naming the file if it is anything else."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(Path(path).read_bytes())
    except (
        SafetensorError,
        TypeError,
        KeyError,
        ValueError,
        AttributeError,
    ) as error:  # also kinds that numpy lacks
        raise ValueError(
            f"{path} is not a safetensors file ({error}); nothing else is loaded"
        ) from error


def write_parquet(path: str | Path, frame: pd.DataFrame) -> Path:
    """Write a table as Parquet, atomically."""
    return write_bytes(path, frame.to_parquet(index=False, engine="pyarrow"))


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a Parquet table. Raises ValueError naming the file if it is broken."""
    from pyarrow.lib import ArrowException

    content = io.BytesIO(Path(path).read_bytes())
    try:
        return pd.read_parquet(content, engine="pyarrow")
    except (ArrowException, OSError, ValueError) as error:  # a broken footer is an OSError
        raise ValueError(
            f"{path} is not a Parquet file ({error}); delete it and run again"
        ) from error
