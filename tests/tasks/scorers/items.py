"""Items for the tests of scorers."""

from typing import Any

from lib.tasks.item import Item


def make_item(reference: str, prompt: str = "Question?", group: str = "all", **fields: Any) -> Item:
    """An item of which only what matters to a scorer is set."""
    return Item(prompt, reference, "", group, 1, fields.pop("id", "item-1"), **fields)
