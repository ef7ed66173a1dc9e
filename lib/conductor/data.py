"""What is learned from and judged on: three categories of lab tasks, or a dataset of one's own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, load_dataset, load_from_disk

from lib import tasks
from lib.models.corpus import question
from lib.tasks import Item

# category: family, skin and difficulties (decision)
CATEGORIES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "reasoning": ("chain", "words", (1, 2, 3)),
    "story": ("story", "plain", (1, 2, 3)),
    "translation": ("translation", "plain", (1, 2, 3)),
}
THOUGHTFUL = ("reasoning", "translation")  # categories that were ever taught with a thought
OF_FAMILY = {family: category for category, (family, _, _) in CATEGORIES.items()}
READERS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}


class DataError(ValueError):
    """A dataset that cannot be used; the message names the file, the column and the remedy."""


def draw(
    split: str, n: int, seed: int = 0, categories: Sequence[str] = tuple(CATEGORIES), part: str = "all"
) -> list[Item]:
    """n items of a split, the categories taking turns.

    part: `policy` (three quarters of all content, by its hash) and `judge` (the rest) have no item in common under any
    seed, so that what a reward model learned from is never what a policy is trained on; `all` is both.
    """
    each = -(-n // len(categories))
    columns = [_column(name, split, each, seed, part) for name in categories]
    return [item for row in zip(*columns, strict=True) for item in row][:n]


def _column(name: str, split: str, n: int, seed: int, part: str) -> list[Item]:
    family, skin, levels = CATEGORIES[name]
    drawn = n
    while True:
        found = [i for i in tasks.draw(family, split, drawn, levels, skin, seed) if part in ("all", _part(i))]
        if len(found) >= n:
            return found[:n]
        drawn *= 2


def _part(item: Item) -> str:
    """Who may learn from an item, by its content."""
    return "judge" if hashlib.sha256(b"part " + item.key.encode()).digest()[0] < 64 else "policy"


def category(item: Item) -> str:
    """The category that an item belongs to."""
    return OF_FAMILY[item.category]


def dataset(items: Sequence[Item]) -> Dataset:
    """Items as TRL takes them: prompt (messages), reference, category, and row, the number of the item."""
    rows = [
        {"prompt": question(item), "reference": item.answer, "category": category(item), "row": row}
        for row, item in enumerate(items)
    ]
    return Dataset.from_list(rows)


def asked(found: Dataset, chats: bool) -> Dataset:
    """A dataset as a model is asked it, with a column `row`, the number of the prompt. chats: whether the model's
    tokenizer has a chat template; then a prompt that is text becomes one user message, or an instruct model takes it
    for something to go on with and ends at once."""
    prompts = list(found["prompt"])
    if chats:
        prompts = [[{"role": "user", "content": each}] if isinstance(each, str) else each for each in prompts]
    rest = {name: list(found[name]) for name in found.column_names if name not in ("prompt", "row")}
    return Dataset.from_dict({"prompt": prompts, **rest, "row": list(range(len(prompts)))})


def load(place: str | Path) -> Dataset:
    """A dataset of one's own with the columns `prompt` (text or messages) and `reference`, perhaps `category`.

    place: a .jsonl, .json, .csv or .parquet file, or a folder that `save_to_disk` wrote. Raises DataError.
    """
    place = Path(place)
    if not place.exists():
        raise DataError(f"{place} does not exist; give a file ({', '.join(READERS)}) or a saved dataset's folder")
    if place.is_file() and place.suffix not in READERS:
        raise DataError(f"{place} ends in {place.suffix!r}; known are {', '.join(READERS)}")
    try:
        if place.is_dir():
            found = load_from_disk(str(place))
        else:
            found = load_dataset(READERS[place.suffix], data_files=str(place), split="train")
    except Exception as error:  # pyarrow, pandas and datasets raise dozens of kinds
        reason = error.__cause__ or str(error) or "it is empty"
        raise DataError(f"{place} cannot be read as a dataset: {reason}") from error
    return _checked(found, place)


def _checked(found: Dataset, place: Path) -> Dataset:
    if not isinstance(found, Dataset):
        raise DataError(f"{place} holds several splits ({', '.join(found)}); give the folder of one")
    missing = [name for name in ("prompt", "reference") if name not in found.column_names]
    if missing:
        raise DataError(f"{place} lacks the column {missing[0]!r}; it has {', '.join(found.column_names)}")
    if not len(found):
        raise DataError(f"{place} has no rows")
    for row, prompt in enumerate(found["prompt"]):
        if not _is_prompt(prompt):
            raise DataError(f"{place}, row {row}: a prompt is text or messages (role and content), and not empty")
    references = ["" if each is None else str(each).strip() for each in found["reference"]]
    if "" in references:
        raise DataError(f"{place}, row {references.index('')}: the reference is empty")
    categories = found["category"] if "category" in found.column_names else ["all"] * len(found)
    return Dataset.from_dict(
        {
            "prompt": list(found["prompt"]),
            "reference": references,
            "category": [str(name or "all") for name in categories],
        }
    )


def _is_prompt(prompt) -> bool:
    if isinstance(prompt, str):
        return bool(prompt.strip())
    whole = isinstance(prompt, list) and bool(prompt) and all(isinstance(message, dict) for message in prompt)
    return whole and all(message.get("role") and message.get("content") for message in prompt)
