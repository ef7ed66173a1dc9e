"""What the tests of every study need: what was done may not be done again, tables are equal, a process is killed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pandas as pd
from pandas.testing import assert_frame_equal


def refuse(*_, **__) -> None:
    """In place of what must not be called."""
    raise AssertionError("nothing is to be done twice")


def of(frame: pd.DataFrame, method: str, seed: int = 0) -> pd.DataFrame:
    """The rows of one arm under one seed."""
    return frame[(frame["method"] == method) & (frame["seed"] == seed)].reset_index(drop=True)


def same(one: Any, other: Any, but: tuple[str, ...] = ()) -> None:
    """Two results of a study are equal to the last bit, field by field."""
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name in but:
            continue
        if isinstance(a, pd.DataFrame):
            assert_frame_equal(a, b, check_exact=True)
        else:
            assert a == b


class Killed(BaseException):
    """As a process that is killed: nothing catches it."""


def dying(method: Callable, when: int | Callable[[int, Any], bool]) -> Callable:
    """A method that ends everything at its call number `when`, or once that says so of number and last argument."""
    calls = []

    def wrapped(*arguments, **options):
        calls.append(1)
        if len(calls) == when if isinstance(when, int) else when(len(calls), arguments[-1]):
            raise Killed
        return method(*arguments, **options)

    return wrapped
