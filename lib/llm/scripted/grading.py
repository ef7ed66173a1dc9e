"""The grader: a number or a verdict for an answer, from its words and those of the reference.

A stand-in for a judge with a known weakness: it compares words, so it likes answers that resemble the
reference and knows nothing about whether another answer is as good.
"""

import re
from collections import Counter

from lib.llm.scripted.model_strength import Draw, Strength

GRADE_ASKED = "# Grade to give"
VERDICT_ASKED = "# Verdict to give"
PAIR_ASKED = "# Better answer to name"
GOOD = 0.5  # grade from which the verdict is True
_PART = re.compile(
    r"^# (Question|Reference|Answer(?: [AB])?)\n(.*?)\s*(?=^# |\Z)", re.DOTALL | re.MULTILINE
)
_FINAL = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def grade(text: str, strength: Strength, draw: Draw) -> str:
    """F1 of the words of answer and reference, plus noise, as a decimal; 0.50 where the parts cannot be seen."""
    return f"{_likeness(text, strength, draw):.2f}"


def verdict(text: str, strength: Strength, draw: Draw) -> str:
    """The same as a reason and a verdict."""
    found = _likeness(text, strength, draw)
    return f"The answer's words agree with the reference to {found:.2f}.\nSo the result is {found >= GOOD}"


def better(text: str, strength: Strength, draw: Draw) -> str:
    """Of two answers the one whose words are more like the reference's, with noise for each."""
    first, second = (_likeness(text, strength, draw, f"Answer {name}") for name in "AB")
    return f"They agree to {first:.2f} and {second:.2f}.\nSo the better answer is {'A' if first >= second else 'B'}"


def _likeness(text: str, strength: Strength, draw: Draw, answer: str = "Answer") -> float:
    parts = dict(
        reversed(_PART.findall(text))
    )  # of two parts of one name the first: an answer may contain anything
    if not {"Reference", answer} <= set(parts):
        return 0.5
    final = _FINAL.search(parts[answer])
    wanted = Counter(parts["Reference"].split())
    given = Counter((final.group(1) if final else parts[answer]).split())
    shared = sum((wanted & given).values())
    f1 = 2 * shared / max(1, sum(wanted.values()) + sum(given.values()))
    return min(1.0, max(0.0, f1 + strength.noise * float(draw.standard_normal())))
