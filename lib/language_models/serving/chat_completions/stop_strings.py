"""Where a text ends, and how much of an unfinished one may be shown already.

A stream must not show what the end takes back: the beginning of a stop string, or of the tag of a tool call.
"""

from collections.abc import Sequence


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins; None if there is none."""
    positions = [text.find(stop) for stop in stops]
    return min((position for position in positions if position >= 0), default=None)


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings."""
    return text[: find_stop(text, stops)]


def hold_back(text: str, marks: Sequence[str]) -> str:
    """As much of an unfinished text as can be shown.

    Args:
        text: What is written so far.
        marks: Strings that end what is shown.

    Returns:
        The text up to where a mark begins, or may begin once more is written.
    """
    ends = [len(text)]
    mark_position = find_stop(text, marks)
    if mark_position is not None:
        ends.append(mark_position)

    # a mark that is not whole yet is at most one character shorter than the longest
    longest = max(map(len, marks), default=1)
    for position in range(max(0, len(text) - longest + 1), len(text)):
        if any(mark.startswith(text[position:]) for mark in marks):
            ends.append(position)
            break
    return text[: min(ends)]
