"""What the lessons measured, by lesson and key: estimates with their intervals, and who decided.

A lesson that was not run, or did not measure a key, is no mistake: small runs leave things out, and so do other
models in params.yaml. A key that is one slip of the pen away from one that there is, however, is a mistake.
"""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.config import ROOT
from lib.experiment import artifacts
from lib.scoreboard.errors import ClaimError
from lib.stats import Interval
from lib.stats.interval_arithmetic import holding

FOLDER = ROOT / "reports/metrics"
_NEAR = 0.8  # keys that are less alike are not looked at


class Missing(LookupError):
    """A metric that no run has left; the message is a reason that a reader can act on."""


class Metrics:
    """Metrics of all lessons, as their JSON files hold them."""

    def __init__(self, lessons: Mapping[str, Mapping[str, Any]]) -> None:
        """lessons: {lesson: {key: value}}."""
        self.lessons = lessons

    def estimate(self, lesson: str, key: str) -> Interval:
        """A metric with its interval; nan ends where it has none. A truth counts 1 or 0.

        Raises Missing where it was not measured, ClaimError for a slip of the pen and for words.
        """
        held, value = self.lessons.get(lesson, {}), self._value(lesson, key)
        if isinstance(value, bool):
            return Interval(float(value), float(value), float(value))
        if not isinstance(value, (int, float)):
            raise ClaimError(
                f"metric {key!r} of lesson {lesson} is {value!r}; a test needs a number"
            )
        if f"{key}_ci_low" in held and f"{key}_ci_high" in held:
            return holding(
                float(value), float(held[f"{key}_ci_low"]), float(held[f"{key}_ci_high"])
            )
        return Interval(float(value), math.nan, math.nan)

    def word(self, lesson: str, key: str) -> str:
        """A verdict that a lesson keeps. Raises Missing where there is none, ClaimError for what is no word."""
        value = self._value(lesson, key)
        if not isinstance(value, str):
            raise ClaimError(f"metric {key!r} of lesson {lesson} is {value!r}; a verdict is a word")
        return value

    def backend(self, lesson: str, key: str) -> str:
        """Who decided what a metric measures: the nearest `backend` above it in the file; empty for nobody."""
        held = self.lessons.get(lesson, {})
        parts = key.split(".")
        for length in range(len(parts) - 1, -1, -1):
            name = ".".join([*parts[:length], "backend"])
            if name in held:
                return str(held[name])
        return ""

    def _value(self, lesson: str, key: str) -> Any:
        if lesson not in self.lessons:
            raise Missing(f"metrics of lesson {lesson[:2]} are missing: run it")
        if key not in self.lessons[lesson]:
            near = self._meant(lesson, key)
            if near:
                raise ClaimError(
                    f"lesson {lesson} has no metric {key!r}; the nearest one is {near!r}"
                )
            raise Missing(f"this run of lesson {lesson[:2]} left no metric {key}")
        return self.lessons[lesson][key]

    def _meant(self, lesson: str, key: str) -> str:
        """The key that was meant, if all parts but one agree and that one but for a slip; empty otherwise."""
        parts = key.split(".")
        for other in difflib.get_close_matches(key, list(self.lessons[lesson]), n=20, cutoff=_NEAR):
            pairs = [(a, b) for a, b in zip(parts, other.split("."), strict=False) if a != b]
            if other.count(".") == key.count(".") and len(pairs) == 1 and _slip(*pairs[0]):
                return other
        return ""


def _slip(a: str, b: str) -> bool:
    """Whether two words differ by one slip: letters in another order, or one letter too many, too few or wrong."""
    if [c for c in a if c.isdigit()] != [c for c in b if c.isdigit()]:
        return False  # another digit names another thing
    if sorted(a) == sorted(b):
        return True
    changes = [op for op in difflib.SequenceMatcher(None, a, b).get_opcodes() if op[0] != "equal"]
    return len(changes) == 1 and all(max(a1 - a0, b1 - b0) == 1 for _, a0, a1, b0, b1 in changes)


def read(folder: str | Path = FOLDER) -> Metrics:
    """The metrics of every lesson that left some. Raises ClaimError naming a file that cannot be read."""
    found = {}
    for path in sorted(Path(folder).glob("[0-9]*.json")):
        try:
            found[path.stem] = artifacts.read_json(path)
        except (OSError, ValueError) as error:
            raise ClaimError(
                f"{path} cannot be read ({error}); run lesson {path.stem} again"
            ) from error
    return Metrics(found)
