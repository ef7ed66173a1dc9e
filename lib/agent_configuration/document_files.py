"""Documents of a user, as the tool `search` finds them: passages of text files, or a column of a table.

    passages = read_passages("handbook/")

Left out: PDF and HTML, which have to be turned into text first.
"""

from __future__ import annotations

import re
from pathlib import Path

from lib.tasks import TaskError
from lib.tasks.readers import SUFFIXES, read_table

TEXT_SUFFIXES = (".txt", ".md")
TEXT_COLUMNS = ("text", "content", "passage", "document", "body")
LONGEST_PASSAGE = 800  # characters: an agent reads a passage or two beside its question
_BLANK_LINES = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def read_passages(path: str | Path) -> list[str]:
    """Read the passages of a file, or of all files in a folder and its subfolders.

    Args:
        path: A text file (TEXT_SUFFIXES), a table with one of TEXT_COLUMNS, or a folder of such files.

    Returns:
        Passages of at most LONGEST_PASSAGE characters, in the order of the files' names; equal ones once.

    Raises:
        TaskError: There is no such file or folder, nothing can be read in it, or a table has no column of text.
    """
    path = Path(path)
    if not path.exists():
        raise TaskError(f"--documents {path}: there is no such file or folder")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _is_readable(file))
    passages: list[str] = []
    for file in files:
        passages += _read_file(file)
    if not passages:
        readable = ", ".join([*TEXT_SUFFIXES, *SUFFIXES])
        raise TaskError(f"--documents {path} holds no text; give files of {readable}")
    return list(dict.fromkeys(passages))


def _is_readable(path: Path) -> bool:
    suffix = path.suffix.lower()
    return path.is_file() and (suffix in TEXT_SUFFIXES or suffix in SUFFIXES)


def _read_file(path: Path) -> list[str]:
    """Read the passages of one file, a text or a table.

    Args:
        path: The file.

    Returns:
        Passages.

    Raises:
        TaskError: It cannot be read.
    """
    if path.suffix.lower() not in TEXT_SUFFIXES:
        return _read_table(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"--documents {path} is no UTF-8 text; convert it ({error})") from error
    return split_passages(text)


def _read_table(path: Path) -> list[str]:
    """Read the passages of a table, from its first column of text.

    Args:
        path: The file.

    Returns:
        Passages.

    Raises:
        TaskError: No column has a known name.
    """
    table = read_table(path)
    columns = [name for name in TEXT_COLUMNS if name in table.columns]
    if not columns:
        raise TaskError(
            f"--documents {path} has the columns {', '.join(table.columns)}; one of {', '.join(TEXT_COLUMNS)} must "
            "hold the text"
        )
    passages: list[str] = []
    for row in table.rows:
        passages += split_passages(str(row.get(columns[0]) or ""))
    return passages


def split_passages(text: str) -> list[str]:
    """Split a text at blank lines, and long paragraphs between sentences.

    Args:
        text: A text of any length.

    Returns:
        Passages of at most LONGEST_PASSAGE characters, without line breaks; only a sentence that is longer than that
        is cut.
    """
    passages = []
    for paragraph in _BLANK_LINES.split(text):
        current = ""
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            if current and len(current) + 1 + len(sentence) > LONGEST_PASSAGE:
                passages.append(current)
                current = ""
            current = f"{current} {sentence}".strip()
            while len(current) > LONGEST_PASSAGE:
                passages.append(current[:LONGEST_PASSAGE])
                current = current[LONGEST_PASSAGE:]
        if current:
            passages.append(current)
    return passages
