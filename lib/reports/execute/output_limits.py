"""What a cell may leave in the executed notebook and on the page: the head and the tail of too much output.

    limits = CellOutputLimits()
    text = limits.take_text("stdout", text)  # as it arrives; empty where nothing of it stays at this place
    limits.finish(cell.outputs)

A cell that prints 50 MB or shows 10,000 pictures would make a page that no browser opens, so the middle is left out
while it arrives, and a line says how much. The cut depends on the output alone, never on when it arrived. Left out:
what a kernel keeps in its own memory, and outputs that are shown again under their display id.
"""

import json
import re
from collections import deque
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

# Characters of one stream of a cell.
HEAD_CHARACTERS = 60_000
TAIL_CHARACTERS = 20_000
# Figures, tables and values of a cell.
HEAD_OUTPUTS = 100
TAIL_OUTPUTS = 10
# Rows of a table that is too large.
HEAD_ROWS = 50
TAIL_ROWS = 10
MAX_FRAME_CHARACTERS = 300_000  # of a data frame's HTML
MAX_DATA_CHARACTERS = 16_000_000  # of any other form of an output
MAX_CELL_CHARACTERS = 64_000_000  # of all outputs of a cell together
MAX_ERROR_CHARACTERS = 4_000  # of an error's message

_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL | re.IGNORECASE)


def cut_text(text: str, head: int = HEAD_CHARACTERS, tail: int = TAIL_CHARACTERS) -> str:
    """Leaves the middle of a long text out.

    Args:
        text: Any text.
        head: Characters of its beginning that stay.
        tail: Characters of its end that stay.

    Returns:
        The text itself where it is no longer than both together.
    """
    num_cut = len(text) - head - tail
    if num_cut <= 0:
        return text
    return text[:head] + _describe_cut(num_cut, "characters") + text[len(text) - tail :]


def cut_table(markup: str) -> str:
    """Removes the middle rows of a long HTML table, and notes how many.

    Args:
        markup: The table; a short one is returned as it is.
    """
    rows = list(_ROW.finditer(markup))
    num_cut = len(rows) - HEAD_ROWS - TAIL_ROWS
    if num_cut <= 0:
        return markup
    note = f'<tr><td colspan="99">[... {num_cut:,} rows left out ...]</td></tr>\n'
    return markup[: rows[HEAD_ROWS].start()] + note + markup[rows[-TAIL_ROWS].start() :]


def limit_data(data: dict[str, Any]) -> dict[str, Any]:
    """Limits the size of each format of an output, such as text, HTML or an image.

    Args:
        data: By media type, as in a notebook.

    Returns:
        A copy in which tables and texts are cut; other forms that are too large are gone, which its text says.
    """
    limited: dict[str, Any] = {}
    removed = []
    for media_type, content in data.items():
        if media_type == "text/plain":
            content = cut_text(content)
        elif media_type == "text/html":
            content = _limit_markup(content)
        if _count_characters(content) > MAX_DATA_CHARACTERS:
            removed.append(f"{media_type} of {_count_characters(content):,} characters")
        else:
            limited[media_type] = content
    if removed:
        note = f"[... left out, too large for a page: {', '.join(removed)} ...]"
        limited["text/plain"] = f"{limited.get('text/plain', '')}\n{note}".lstrip("\n")
    return limited


def _limit_markup(markup: str) -> str:
    is_frame = 'class="dataframe"' in markup[:2_000]
    max_characters = MAX_FRAME_CHARACTERS if is_frame else MAX_DATA_CHARACTERS
    return cut_table(markup) if len(markup) > max_characters else markup


def _count_characters(content: Any) -> int:
    return len(content) if isinstance(content, str) else len(json.dumps(content, default=str))


def _describe_cut(count: int, unit: str) -> str:
    return f"\n[... {count:,} {unit} left out ...]\n"


class CellOutputLimits:
    """Keeps the head and the tail of what one cell puts out, while it arrives."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Starts again, as where a cell clears its output."""
        self._num_characters: dict[str, int] = {}  # by stream, those that stay at the head
        self._num_late: dict[str, int] = {}  # by stream, those that came later
        self._tails: dict[str, str] = {}  # by stream, the last of those
        self._num_outputs = 0
        self._num_data_characters = 0
        self._last_outputs: deque[NotebookNode] = deque(maxlen=TAIL_OUTPUTS)
        self._num_late_outputs = 0

    def take_text(self, stream: str, text: str) -> str:
        """Takes printed text.

        Args:
            stream: "stdout" or "stderr".
            text: What was printed.

        Returns:
            The text that goes into the notebook now.
        """
        num_before = self._num_characters.get(stream, 0)
        head = text[: HEAD_CHARACTERS - num_before]
        self._num_characters[stream] = num_before + len(head)
        rest = text[len(head) :]
        if rest:
            self._num_late[stream] = self._num_late.get(stream, 0) + len(rest)
            tail = self._tails.get(stream, "") + rest[-TAIL_CHARACTERS:]
            self._tails[stream] = tail[-TAIL_CHARACTERS:]
        return head

    def take_output(self, output: NotebookNode) -> bool:
        """Decides whether a figure, table or value still goes into the notebook.

        Args:
            output: Its data are limited by `limit_data` already.

        Returns:
            Whether it goes in now; of those that do not, the last ones are kept for `finish`.
        """
        size = sum(_count_characters(content) for content in output.data.values())
        has_room = self._num_data_characters + size <= MAX_CELL_CHARACTERS
        if self._num_outputs < HEAD_OUTPUTS and has_room and not self._num_late_outputs:
            self._num_outputs += 1
            self._num_data_characters += size
            return True
        self._num_late_outputs += 1
        if size <= MAX_FRAME_CHARACTERS:  # a tail of large ones would be large again
            self._last_outputs.append(output)
        return False

    def finish(self, outputs: list[NotebookNode]) -> None:
        """Appends the last outputs that were held back to those of a cell that has ended, with a note on how many
        were cut.

        Args:
            outputs: Outputs of the cell, which are changed.
        """
        for stream, tail in self._tails.items():
            num_cut = self._num_late[stream] - len(tail)
            note = _describe_cut(num_cut, "characters") if num_cut else ""
            target = next(
                (output for output in outputs if output.get("name") == stream), None
            ) or _append_stream(outputs, stream)
            target.text += note + tail
        if not self._num_late_outputs:
            return

        # An error that ended the cell stays the last.
        has_error = bool(outputs) and outputs[-1].output_type == "error"
        error = [outputs.pop()] if has_error else []
        num_cut = self._num_late_outputs - len(self._last_outputs)
        if num_cut:
            note = _describe_cut(num_cut, "outputs").strip()
            outputs.append(new_output("display_data", data={"text/plain": note}))
        outputs += [*self._last_outputs, *error]
        self.clear()


def _append_stream(outputs: list[NotebookNode], stream: str) -> NotebookNode:
    outputs.append(new_output("stream", name=stream, text=""))
    return outputs[-1]
