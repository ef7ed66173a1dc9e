"""One vocabulary for what numbers say: values with their intervals, and who is a stand-in."""

import math
from collections.abc import Mapping

from lib.config import LLMSettings
from lib.plots.tables import NOTHING
from lib.stats import Interval


def scaled(found: Interval, by: float) -> Interval:
    """An interval in units that are `by` times as large."""
    return Interval(found.value / by, found.ci_low / by, found.ci_high / by)


def number(found: Interval, digits: int = 2, sign: bool = False) -> str:
    """A value with its interval, as far as there is one; a dash for none."""
    if not math.isfinite(found.value):
        return NOTHING
    told = [
        signed(x, digits) if sign else plain(x, digits)
        for x in (found.value, found.ci_low, found.ci_high)
    ]
    return told[0] + (f" [{told[1]}, {told[2]}]" if found.known else "")


def plain(value: float, digits: int = 2) -> str:
    """A number with so many decimals, and never -0.00."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """The same with its sign."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def stand_ins(llm: LLMSettings, names: Mapping[str, str]) -> str:
    """Those of `names` (a word, and a name of llm.models) that are scripted, for captions; empty where none is."""
    scripted = [word for word, name in names.items() if llm.models[name].backend == "scripted"]
    return f" ({', '.join(scripted)}: scripted stand-in)" if scripted else ""
