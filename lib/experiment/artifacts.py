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
    """Writes a file atomically: readers see the old content or the new one, never a part.

    Args:
        path: The file; missing folders are made.
        content: All of its bytes.

    Returns:
        The path.
    """
    path = Path(path)
    # In the same folder, so on the same file system: only there a move is atomic.
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


def _to_plain_value(value: Any) -> Any:
    """Converts a value of NumPy or pathlib to one that JSON can hold; the `default` of `json.dumps`."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} does not go into JSON: {value!r}")


def to_json(value: Any) -> str:
    """Canonical JSON: sorted keys, two blanks of indent, a final newline; NaN is refused."""
    text = json.dumps(
        value,
        indent=2,
        sort_keys=True,
        ensure_ascii=False,
        allow_nan=False,
        default=_to_plain_value,
    )
    return text + "\n"


def write_json(path: str | Path, value: Any) -> Path:
    """Write canonical JSON atomically."""
    return write_text(path, to_json(value))


def read_json(path: str | Path) -> Any:
    """Read JSON. Raises ValueError naming the file and the place where it breaks off."""
    content = Path(path).read_bytes()
    try:
        return json.loads(content)
    # No JSON, no UTF-8, or numbers or nesting beyond what Python reads.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); delete it and run again") from error


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: str | Path) -> str:
    return sha256_bytes(Path(path).read_bytes())


def has_same_bytes(path: str | Path, other: str | Path) -> bool:
    """Whether two files are there and hold the same."""
    path, other = Path(path), Path(other)
    if not (path.is_file() and other.is_file()):
        return False
    return path.read_bytes() == other.read_bytes()


def sha256_json(value: Any) -> str:
    """The hash of a value's canonical JSON."""
    return sha256_bytes(to_json(value).encode())


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray]) -> Path:
    """Write named arrays as safetensors (no code can hide in such a file)."""
    from safetensors.numpy import save

    # Sorted and in C order: equal tensors are equal bytes, and safetensors reads memory as it lies.
    contiguous = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    return write_bytes(path, save(contiguous))


def read_tensors(path: str | Path) -> dict[str, np.ndarray]:
    """Reads a safetensors file.

    Returns:
        Arrays by name.

    Raises:
        ValueError: The file is broken, or of another format.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(Path(path).read_bytes())
    # The others come from broken headers and from number types that NumPy lacks.
    except (SafetensorError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a safetensors file ({error}); nothing else is loaded"
        ) from error


def write_parquet(path: str | Path, frame: pd.DataFrame) -> Path:
    """Write a table as Parquet, atomically."""
    return write_bytes(path, frame.to_parquet(index=False, engine="pyarrow"))


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Reads a Parquet table.

    Raises:
        ValueError: The file is broken, or of another format.
    """
    from pyarrow.lib import ArrowException

    content = io.BytesIO(Path(path).read_bytes())
    try:
        return pd.read_parquet(content, engine="pyarrow")
    except (ArrowException, OSError, ValueError) as error:  # a broken footer is an OSError
        raise ValueError(
            f"{path} is not a Parquet file ({error}); delete it and run again"
        ) from error
