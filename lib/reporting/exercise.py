"""Checks of exercises: the reader assigns an answer and runs the cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def check(answer: Any, is_right: Callable[[Any], bool], hint: str) -> None:
    """Say whether `answer` is right; `None` means not answered yet. A check that fails says the hint."""
    if answer is None:
        print("Not answered yet: put your answer in place of None and run the cell again.")
        return
    try:
        right = bool(is_right(answer))
    except (TypeError, ValueError) as error:
        print(f"That cannot be checked ({error}). Hint: {hint}.")
        return
    print("Right." if right else f"Not yet. Hint: {hint}.")
