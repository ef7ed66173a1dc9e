"""Where a text ends, and how much of an unfinished one may be shown already.

A stream must not show what the end takes back: the beginning of a stop string, or of the tag of a tool call.
"""

from collections.abc import Sequence


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Find the position in a text at which the first of some stop strings begins; None if it holds none."""
    positions = []
    for stop in stops:
        position = text.find(stop)
        if position >= 0:
            positions.append(position)
    return min(positions, default=None)


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Cut a text off before the first of some stop strings; a text without one stays whole."""
    return text[: find_stop(text, stops)]


def hold_back(text: str, marks: Sequence[str]) -> str:
    """Cut an unfinished text to what a stream can send: "yes. EN" to "yes. " where "END" may be under way.

    Args:
        text: What is written so far.
        marks: Strings that end what may be sent, such as stop strings.

    Returns:
        The beginning of the text, up to where a mark begins, or may begin once more is written.
    """
    ends = [len(text)]
    mark_position = find_stop(text, marks)
    if mark_position is not None:
        ends.append(mark_position)

    # A mark that is not whole yet is shorter than itself, so it begins within the last `longest - 1` characters.
    longest = max(map(len, marks), default=1)
    first_position = max(0, len(text) - longest + 1)
    for position in range(first_position, len(text)):
        ending = text[position:]
        if any(mark.startswith(ending) for mark in marks):
            ends.append(position)
            break
    return text[: min(ends)]
