"""A scorer from a function of the user's own, named as `module:function`.

The module is imported from Python's path and the current folder. The function runs in this process, with all rights:
it is the user's code, not a model's.
"""

import importlib
import math
import numbers
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lib.tasks.item import Item
from lib.tasks.scorers.scorer import ReplyScorer, Score, ScorerError


class CustomScorer(ReplyScorer):
    """Scores with a function.

        # in my_scores.py: def length(item, reply): return min(len(reply) / 1000, 1)
        scorer = CustomScorer("my_scores:length")

    Args:
        specification: The function as `module:function`.

    Raises:
        ScorerError: The module cannot be imported or has no such function.
    """

    def __init__(self, specification: str) -> None:
        self.name = specification
        self.function = import_function(specification)

    def score_reply(self, item: Item, reply: str) -> Score:
        """Scores a reply with the user's function, and checks what the function returns.

        Args:
            item: The question with its reference answer.
            reply: A model's whole reply.

        Returns:
            The score.

        Raises:
            ScorerError: The function failed, or returned no number from 0 to 1.
        """
        try:
            result = self.function(item, reply)
        except Exception as error:  # the user's code may raise anything
            raise ScorerError(
                f"the scorer {self.name} failed on item {item.id!r} with {type(error).__name__}: {error}; mend the "
                "function, or let it return a Score with a failure"
            ) from error
        if isinstance(result, Score):
            return result
        is_number = isinstance(result, numbers.Real) or hasattr(result, "__float__")
        value = float(result) if is_number else math.nan
        if not 0 <= value <= 1:
            raise ScorerError(
                f"the scorer {self.name} returned {result!r} for item {item.id!r}; return a number from 0 to 1, a bool "
                "or a Score"
            )
        return Score(value)


def import_function(specification: str) -> Callable[[Item, str], object]:
    """Imports a function by its name.

    Args:
        specification: The function as `module:function`.

    Returns:
        The function.

    Raises:
        ScorerError: The module cannot be imported or has no such function.
    """
    module_name, _, function_name = specification.partition(":")
    with _current_folder_on_path():
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # importing runs the user's code, which may raise anything
            raise ScorerError(
                f"the scorer {specification!r}: the module {module_name!r} cannot be imported "
                f"({type(error).__name__}: {error}); start where {module_name.split('.')[0]}.py lies, or add its "
                "folder to PYTHONPATH"
            ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        origin = getattr(module, "__file__", None) or "built in"
        raise ScorerError(
            f"the scorer {specification!r}: the module {module_name!r} ({origin}) has no function {function_name!r}; "
            f"define {function_name}(item, reply) there"
        )
    return function


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    """Let modules of the current folder be imported within a with statement, then restore Python's path."""
    folder = os.getcwd()
    is_new = folder not in sys.path and "" not in sys.path
    if is_new:
        sys.path.insert(0, folder)
    # A file that was written a moment ago may be missing from the list of the folder's files.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if is_new and folder in sys.path:
            sys.path.remove(folder)
