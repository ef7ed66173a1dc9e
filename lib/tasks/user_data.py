"""Questions of one's own, for the commands that train on them: the rows of a file, texts as they stand there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.tasks.item import TaskError

READERS: dict[
    str, Callable[[Path], pd.DataFrame]
] = {  # 007 is not 7, and 2024-05-01 no point in time
    ".jsonl": lambda place: pd.read_json(place, lines=True, dtype=False, convert_dates=False),
    ".json": lambda place: pd.read_json(place, dtype=False, convert_dates=False),
    ".csv": lambda place: pd.read_csv(place, dtype=str, keep_default_na=False, index_col=False),
    ".parquet": pd.read_parquet,
}


def rows(place: str | Path) -> pd.DataFrame:
    """The rows of a file with the columns `prompt` (text or messages) and `reference` (text), perhaps `category`; else
    that is "all". place: a file of READERS, or a folder that `save_to_disk` of datasets wrote. Raises TaskError."""
    place = Path(place)
    if not place.exists():
        raise TaskError(
            f"{place} does not exist; give a file ({', '.join(READERS)}) or a saved dataset's folder"
        )
    if place.is_file() and place.suffix not in READERS:
        raise TaskError(f"{place} ends in {place.suffix!r}; known are {', '.join(READERS)}")
    try:
        found = _saved(place) if place.is_dir() else READERS[place.suffix](place)
    except Exception as error:  # pyarrow, pandas and datasets raise dozens of kinds
        raise TaskError(f"{place} cannot be read: {error or 'it is empty'}") from error
    missing = [name for name in ("prompt", "reference") if name not in found]
    if found.empty and len(missing) == 2:
        raise TaskError(f"{place} has no rows")
    if missing:
        raise TaskError(
            f"{place} lacks the column {missing[0]!r}; it has {', '.join(map(str, found))}"
        )
    return _checked(found, place)


def _saved(place: Path) -> pd.DataFrame:
    from datasets import Dataset, load_from_disk

    found = load_from_disk(str(place))
    if not isinstance(found, Dataset):
        raise TaskError(f"it holds several splits ({', '.join(found)}); give the folder of one")
    return pd.DataFrame(found.to_list(), columns=found.column_names)


def _checked(found: pd.DataFrame, place: Path) -> pd.DataFrame:
    if found.empty:
        raise TaskError(f"{place} has no rows")
    prompts = [each.tolist() if isinstance(each, np.ndarray) else each for each in found["prompt"]]
    references = [
        "" if each is None or each is np.nan else str(each).strip() for each in found["reference"]
    ]
    for row, (prompt, reference) in enumerate(zip(prompts, references, strict=True)):
        if not _is_prompt(prompt):
            raise TaskError(
                f"{place}, row {row}: a prompt is text or messages (role and content), and not empty"
            )
        if not reference:
            raise TaskError(f"{place}, row {row}: the reference is empty")
    categories = found["category"] if "category" in found else [""] * len(found)
    named = [str(name) if isinstance(name, str) and name else "all" for name in categories]
    return pd.DataFrame({"prompt": prompts, "reference": references, "category": named})


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return bool(prompt.strip())
    whole = (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(message, dict) for message in prompt)
    )
    return whole and all(message.get("role") and message.get("content") for message in prompt)


def model(place: str | Path) -> Path:
    """The folder of a Hugging Face model. Raises TaskError for one that holds none."""
    if not (Path(place) / "config.json").is_file():
        raise TaskError(f"{place} holds no model: there is no config.json in it")
    return Path(place)
