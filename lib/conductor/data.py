"""What is learned from and judged on: three categories of lab tasks, or a dataset of one's own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset

from lib import tasks
from lib.language_models.training.training_data import write_question
from lib.tasks import Item
from lib.tasks.readers import read_training_prompts

VERSION = 1  # of the items of each category

# category: family, skin and difficulties (decision)
CATEGORIES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "reasoning": ("chain", "words", (1, 2, 3)),
    "story": ("story", "plain", (1, 2, 3)),
    "translation": ("translation", "plain", (1, 2, 3)),
}
THOUGHTFUL = ("reasoning", "translation")  # categories that were ever taught with a thought
OF_FAMILY = {family: category for category, (family, _, _) in CATEGORIES.items()}


def draw(
    split: str,
    n: int,
    seed: int = 0,
    categories: Sequence[str] = tuple(CATEGORIES),
    part: str = "all",
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
        found = [
            i
            for i in tasks.draw_items(family, split, drawn, levels, skin, seed)
            if part in ("all", _part(i))
        ]
        if len(found) >= n:
            return found[:n]
        drawn *= 2


def _part(item: Item) -> str:
    """Who may learn from an item, by its content."""
    return "judge" if hashlib.sha256(b"part " + item.id.encode()).digest()[0] < 64 else "policy"


def category(item: Item) -> str:
    """The category that an item belongs to."""
    return OF_FAMILY[item.group]


def dataset(items: Sequence[Item]) -> Dataset:
    """Items as TRL takes them: prompt (messages), reference, category, and row, the number of the item."""
    rows = [
        {
            "prompt": write_question(item),
            "reference": item.reference,
            "category": category(item),
            "row": row,
        }
        for row, item in enumerate(items)
    ]
    return Dataset.from_list(rows)


def asked(found: Dataset, chats: bool) -> Dataset:
    """A dataset as a model is asked it, with a column `row`, the number of the prompt. chats: whether the model's
    tokenizer has a chat template; then a prompt that is text becomes one user message, or an instruct model takes it
    for something to go on with and ends at once."""
    prompts = list(found["prompt"])
    if chats:
        prompts = [
            [{"role": "user", "content": each}] if isinstance(each, str) else each
            for each in prompts
        ]
    rest = {name: list(found[name]) for name in found.column_names if name not in ("prompt", "row")}
    return Dataset.from_dict({"prompt": prompts, **rest, "row": list(range(len(prompts)))})


def load(place: str | Path) -> Dataset:
    """A dataset of one's own, with prompt, reference and category. `lib.tasks.readers.read_training_prompts` says what
    its rows need, and raises TaskError."""
    rows = read_training_prompts(place)
    return Dataset.from_dict(rows.drop(columns="row").to_dict("list"))
