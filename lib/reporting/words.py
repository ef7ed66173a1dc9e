"""One vocabulary for what numbers say: values with their intervals, clear or not, and metrics without empty ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib import measure
from lib.page.tables import NOTHING as DASH
from lib.params import LLMSettings
from lib.stats import Interval

NOTHING = Interval(math.nan, math.nan, math.nan)  # what was not to be measured


def there(found: Interval) -> bool:
    """Whether there is a value at all."""
    return math.isfinite(found.value)


def within(found: Interval) -> Interval:
    """An interval of something that lies in [0, 1]."""
    return Interval(found.value, *np.clip([found.lo, found.hi], 0, 1).tolist())


def scaled(found: Interval, by: float) -> Interval:
    """An interval in units that are `by` times as large."""
    return Interval(found.value / by, found.lo / by, found.hi / by)


def number(found: Interval, digits: int = 2, sign: bool = False) -> str:
    """A value with its interval, as far as there is one; a dash for none."""
    if not there(found):
        return DASH
    told = [signed(x, digits) if sign else plain(x, digits) for x in (found.value, found.lo, found.hi)]
    return told[0] + (f" [{told[1]}, {told[2]}]" if found.known else "")


def plain(value: float, digits: int = 2) -> str:
    """A number with so many decimals, and never -0.00."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """The same with its sign."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def changed(found: Interval, digits: int = 2) -> str:
    """A difference with its interval, and whether it is clear."""
    how = "clearly " + ("up" if found.value > 0 else "down") if found.excludes(0) else "not clearly up or down"
    return f"{number(found, digits, True)} ({how if there(found) else 'no cases'})"


def told(differences: Mapping[str, Interval]) -> str:
    """Which of several differences are clear, as one sentence of `lib.measure`."""
    known = {name: found for name, found in differences.items() if there(found)}
    rows = [(found.value, found.lo, found.hi) for found in known.values()]
    return measure.words(pd.DataFrame(rows, list(known), ["value", "lo", "hi"])) if known else "nothing to compare."


def finite(metrics: Mapping[str, object]) -> dict[str, object]:
    """Metrics without those that there was nothing to measure of; ends that are not known are left out."""
    out: dict[str, object] = {}
    for key, value in metrics.items():
        if isinstance(value, Interval):
            value = value if value.known else value.value
        if not isinstance(value, float) or math.isfinite(value):
            out[key] = value
    return out


def stand_ins(llm: LLMSettings, names: Mapping[str, str]) -> str:
    """Those of `names` (a word, and a name of llm.models) that are scripted, for captions; empty where none is."""
    scripted = [word for word, name in names.items() if llm.models[name].backend == "scripted"]
    return f" ({', '.join(scripted)}: scripted stand-in)" if scripted else ""
