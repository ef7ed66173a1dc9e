"""What is learned from and tested on: three categories of synthetic language tasks, or a dataset of one's own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from lib import tasks
from lib.language_models.training.training_data import write_question
from lib.tasks import Item

VERSION = 1  # of the items of each category
Learner = Literal["policy", "reward model", "any"]

# Family, surface form and difficulties by category (decision).
CATEGORIES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "reasoning": ("chain", "words", (1, 2, 3)),
    "story": ("story", "plain", (1, 2, 3)),
    "translation": ("translation", "plain", (1, 2, 3)),
}
_CATEGORY_OF_FAMILY = {family: category for category, (family, _, _) in CATEGORIES.items()}
_REWARD_MODEL_BYTES = 64  # of 256 values of a hash: a quarter of the content


def draw_items(
    split: str,
    n: int,
    seed: int = 0,
    categories: Sequence[str] = tuple(CATEGORIES),
    learner: Learner = "any",
) -> list[Item]:
    """Draw items of a split, the categories in turn.

    Args:
        split: "train", "dev" or "test".
        n: Number of items.
        seed: Seed of the items.
        categories: Keys of CATEGORIES.
        learner: `policy` gets three quarters of all content by its hash and `reward model` the rest, so that what a
            reward model learned from is never what a policy is trained on, under any seed; `any` gets both.

    Returns:
        The items.
    """
    per_category = -(-n // len(categories))  # rounded up
    columns = [_draw_category(name, split, per_category, seed, learner) for name in categories]
    items = []
    for row in zip(*columns, strict=True):
        items += row
    return items[:n]


def _draw_category(category: str, split: str, n: int, seed: int, learner: Learner) -> list[Item]:
    """Draw items of one category that a learner trains on.

    Args:
        category: Name of the category.
        split: train, dev or test.
        n: Number of items.
        seed: Seed of the draw.
        learner: Whose items: policy, reward model, or any.

    Returns:
        n items. More are drawn until n of them belong to the learner.
    """
    family, surface_form, difficulties = CATEGORIES[category]
    num_candidates = n
    while True:
        candidates = tasks.draw_items(
            family, split, num_candidates, difficulties, surface_form, seed
        )
        items = [item for item in candidates if learner in ("any", _get_learner(item))]
        if len(items) >= n:
            return items[:n]
        num_candidates *= 2


def _get_learner(item: Item) -> Learner:
    """Which of both may learn from an item, by its content."""
    first_byte = hashlib.sha256(b"part " + item.id.encode()).digest()[0]
    return "reward model" if first_byte < _REWARD_MODEL_BYTES else "policy"


def get_category(item: Item) -> str:
    """The category that an item belongs to."""
    return _CATEGORY_OF_FAMILY[item.group]


def make_dataset(items: Sequence[Item]) -> Dataset:
    """Convert items to a dataset for TRL.

    Args:
        items: The questions.

    Returns:
        Columns: prompt (messages), reference, category, and row, the number of the item.
    """
    rows = []
    for number, item in enumerate(items):
        rows.append(
            {
                "prompt": write_question(item),
                "reference": item.reference,
                "category": get_category(item),
                "row": number,
            }
        )
    return Dataset.from_list(rows)


def prepare_prompts(dataset: Dataset, has_chat_template: bool) -> Dataset:
    """Convert a dataset to the form in which the model is prompted.

    Args:
        dataset: With a column `prompt`.
        has_chat_template: Of the model's tokenizer; then a prompt that is text becomes one user message, or an
            instruct model takes it for something to continue and ends at once.

    Returns:
        The dataset with a column `row`, the number of the prompt.
    """
    prompts = []
    for prompt in dataset["prompt"]:
        is_text = isinstance(prompt, str)
        prompts.append(
            [{"role": "user", "content": prompt}] if has_chat_template and is_text else prompt
        )
    columns = {"prompt": prompts}
    for name in dataset.column_names:
        if name not in ("prompt", "row"):
            columns[name] = list(dataset[name])
    columns["row"] = list(range(len(prompts)))
    return Dataset.from_dict(columns)


def read_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """Read the tokenizer of a model's folder; it pads with the end of the text where it has no token of its own."""
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
