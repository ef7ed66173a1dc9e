"""Rows of a table of one's own to items: which column is the prompt, which the reference, and what they may hold.

A prompt is text or chat messages that end with the user's; a reference is text, a number or a list of accepted
answers. Whatever cannot be meant (a null, `true`, a nested object, an assistant's message at the end of the prompt) is
refused with its row. Left out: files as published, which `lib.tasks.presets` knows.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.tasks.item import Item, TaskError
from lib.tasks.readers import NumberText, Table, parse_json

PROMPT_ALIASES = ("prompt", "question", "problem", "input", "instruction", "messages")
REFERENCE_ALIASES = ("reference", "answer", "target", "label", "solution")
GROUP_ALIASES = ("group", "category", "subject")
ID_ALIASES = ("id", "unique_id", "task_id", "question_id")
CHOICES_ALIASES = ("choices", "options")
ROLES = ("system", "user", "assistant")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class ColumnMap:
    """Which column holds what.

    Attributes:
        prompt: Text or messages.
        reference: The final answer, or several.
        group: Subject or domain; None for a table without.
        id: What the item is about; None for the hash of its prompt.
        choices: The options; None for open questions.
    """

    prompt: str
    reference: str
    group: str | None = None
    id: str | None = None
    choices: str | None = None


def find_columns(
    table: Table, options: Mapping[str, str | None]
) -> tuple[ColumnMap, tuple[str, ...]]:
    """Finds out which columns of a table hold the prompt, the reference answer, and so on.

    Args:
        table: The rows of a user's file.
        options: Names of columns that the user gave, by option: "prompt_column", "reference_column", "group_column",
            "id_column", "choices_column". None: look for a usual name, such as "question".

    Returns:
        (column_map, notes): the names of the columns, and sentences on optional columns that were not used because
        several fit.

    Raises:
        TaskError: A column is missing, or several could be the prompt or the reference; the message lists them and
            names the option.
    """
    notes: list[str] = []
    column_map = ColumnMap(
        prompt=_find_required(table, "prompt_column", options, PROMPT_ALIASES),
        reference=_find_required(table, "reference_column", options, REFERENCE_ALIASES),
        group=_find_optional(table, "group_column", options, GROUP_ALIASES, notes),
        id=_find_optional(table, "id_column", options, ID_ALIASES, notes),
        choices=_find_optional(table, "choices_column", options, CHOICES_ALIASES, notes),
    )
    return column_map, tuple(notes)


def _find_required(
    table: Table, option: str, options: Mapping[str, str | None], aliases: Sequence[str]
) -> str:
    """Find a column that a table must have: by the user's name for it, else by a usual name.

    Args:
        table: The rows.
        option: Name of the user's option, for example "prompt_column".
        options: The user's options; None for those not given.
        aliases: Usual names, for example "prompt", "question".

    Returns:
        The column's name.

    Raises:
        TaskError: Where the named column, or any with a usual name, is missing, or several have usual names.
    """
    name = options.get(option)
    if name is not None:
        return _check_column(table, option, name)
    candidates = [alias for alias in aliases if alias in table.columns]
    if len(candidates) > 1:
        raise TaskError(
            f"{table.path}: {' and '.join(candidates)} could each be meant; say {option}={candidates[0]!r} or another"
        )
    if not candidates:
        raise TaskError(
            f"{table.path} has no column named {', '.join(aliases)}; it has {', '.join(table.columns)}; "
            f"say {option}=..."
        )
    return candidates[0]


def _find_optional(
    table: Table,
    option: str,
    options: Mapping[str, str | None],
    aliases: Sequence[str],
    notes: list[str],
) -> str | None:
    """Find a column that a table may have: by the user's name for it, else by a usual name.

    Args:
        table: The rows.
        option: Name of the user's option, for example "group_column".
        options: The user's options; None for those not given.
        aliases: Usual names, for example "category", "subject".
        notes: A sentence is added where several columns have usual names, so that none is used.

    Returns:
        The column's name; None where there is none or several could be meant.

    Raises:
        TaskError: Where the column that the user named is missing.
    """
    name = options.get(option)
    if name is not None:
        return _check_column(table, option, name)
    candidates = [alias for alias in aliases if alias in table.columns]
    if len(candidates) > 1:
        notes.append(
            f"{' and '.join(candidates)} could each be the {option}; none was used, say {option}=... for one."
        )
    return candidates[0] if len(candidates) == 1 else None


def _check_column(table: Table, option: str, name: str) -> str:
    """Return the name of a column that the user gave with an option; a TaskError where the table lacks the column."""
    if name not in table.columns:
        raise TaskError(
            f"{table.path} has no column {name!r}; it has {', '.join(table.columns)}; change {option}"
        )
    return name


def make_items(table: Table, column_map: ColumnMap, default_group: str) -> list[tuple[str, Item]]:
    """Makes an item (a question with its reference answer) of every row of a table.

    Args:
        table: The rows of a user's file.
        column_map: Names of the columns that hold the prompt, the reference and so on.
        default_group: The group (subject or domain) of rows that name none.

    Returns:
        (location, item) of each row; the location, such as "a.csv, line 7", is for error messages.

    Raises:
        TaskError: A row has no usable prompt or reference; the message names the row and the remedy.
    """
    mapped_columns = {
        column_map.prompt,
        column_map.reference,
        column_map.group,
        column_map.id,
        column_map.choices,
    }
    located_items = []
    for index, row in enumerate(table.rows):
        location = table.locate(index)
        history, prompt = read_prompt(row.get(column_map.prompt), location, column_map.prompt)
        answers = read_answers(row.get(column_map.reference), location, column_map.reference)
        # Options are written under the question here, so that every model sees the same letters.
        choices: tuple[str, ...] = ()
        if column_map.choices is not None:
            choices = read_choices(row.get(column_map.choices), location, column_map.choices)
            answers = [find_letter(answer, choices, location) for answer in answers]
            prompt = append_choices(prompt, choices)

        group = _read_label(row, column_map.group) or default_group
        item_id = _read_label(row, column_map.id) or hash_prompt(history, prompt)
        item = Item(
            prompt=prompt,
            reference=answers[0],
            worked_solution="",
            group=group,
            difficulty=1,
            id=item_id,
            choices=choices,
            alternatives=tuple(answers[1:]),
            history=history,
            metadata={name: value for name, value in row.items() if name not in mapped_columns},
        )
        located_items.append((location, item))
    return located_items


def _read_label(row: Mapping[str, Any], column: str | None) -> str:
    """Read the id or the group of a row from a column; empty where there is no such column or value."""
    value = None if column is None else row.get(column)
    return "" if value is None else str(value).strip()


def hash_prompt(history: Sequence[tuple[str, str]], prompt: str) -> str:
    """Makes an id for a question that has none: 16 hexadecimal digits of the SHA-256 of its messages.

    Args:
        history: Earlier messages as (role, content).
        prompt: The text of the last user message.

    Returns:
        The id.
    """
    # ASCII, because half a surrogate pair cannot be encoded.
    content = json.dumps([*history, ("user", prompt)], ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def read_prompt(value: Any, location: str, column: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Reads the prompt in a cell of a table: text, or chat messages as a list or as JSON.

    Args:
        value: Content of the cell.
        location: File and line of the row, for error messages.
        column: Name of the column, for error messages.

    Returns:
        (history, prompt): earlier messages as (role, content), and the text of the last message, which is the user's.

    Raises:
        TaskError: The value is neither, or blank, or the messages do not end with the user's.
    """
    if isinstance(value, str) and not isinstance(value, NumberText):
        messages = _parse_messages(value)
        if messages is None:
            if not value.strip():
                raise TaskError(
                    f"{location}: {column!r} is blank; write a prompt or leave the row out"
                )
            return (), value
    else:
        messages = value
    if not isinstance(messages, list) or not messages:
        raise TaskError(
            f"{location}: {column!r} is {_describe(value)}; a prompt is text, or messages with role and content"
        )
    turns = [_read_message(message, location, column) for message in messages]
    last_role, prompt = turns[-1]
    if last_role == "assistant":
        raise TaskError(
            f"{location}: the messages of {column!r} end with the assistant's; move its text to the reference column"
        )
    if last_role != "user":
        raise TaskError(
            f"{location}: the messages of {column!r} end with the role {last_role!r}; end with the user's"
        )
    return tuple(turns[:-1]), prompt


def _parse_messages(text: str) -> list[Any] | None:
    """Parse text that is a JSON list of chat messages, as in a cell of a CSV file; None for any other text."""
    # A cheap test first: most cells are plain text.
    if not text.lstrip().startswith("[") or '"role"' not in text:
        return None
    try:
        messages = parse_json(text)
    except (ValueError, RecursionError):
        return None
    are_messages = isinstance(messages, list) and all(
        isinstance(message, dict) and "role" in message for message in messages
    )
    return messages if are_messages else None


def _read_message(message: Any, location: str, column: str) -> tuple[str, str]:
    """Check a chat message in the form of OpenAI's API, and read its text.

    Args:
        message: A mapping with role and content, or whatever stands in its place.
        location: File and line of the row, for error messages.
        column: Name of the column, for error messages.

    Returns:
        (role, content).

    Raises:
        TaskError: Where role or content is missing, unknown, blank, or holds more than text.
    """
    if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
        raise TaskError(f"{location}: a message of {column!r} lacks role or content; write both")
    role = message["role"]
    if role not in ROLES:
        raise TaskError(
            f"{location}: a message of {column!r} has the role {role!r}; known are {', '.join(ROLES)}"
        )
    content = message["content"]
    if isinstance(content, list):
        # OpenAI's API also takes a list of parts, of which those with text can be read.
        texts = [piece.get("text") if isinstance(piece, Mapping) else None for piece in content]
        if not all(isinstance(text, str) for text in texts):
            raise TaskError(
                f"{location}: a message of {column!r} holds more than text; only text can be asked here"
            )
        content = "\n".join(texts)
    if not isinstance(content, str) or isinstance(content, NumberText) or not content.strip():
        raise TaskError(
            f"{location}: the content of a message of {column!r} is {_describe(content)}; write text"
        )
    return role, content


def read_answers(value: Any, location: str, column: str) -> list[str]:
    """Reads the reference in a cell of a table: one answer, or a list of accepted answers.

    Args:
        value: Content of the cell.
        location: File and line of the row, for error messages.
        column: Name of the column, for error messages.

    Returns:
        The answers, each once and without blanks at their ends; at least one.

    Raises:
        TaskError: The value is null, empty, `true` or `false`, or nested.
    """
    if isinstance(value, list) and not value:
        raise TaskError(
            f"{location}: {column!r} is an empty list; give at least one accepted answer"
        )
    values = value if isinstance(value, list) else [value]
    answers = []
    for answer in values:
        # nan is the only value that differs from itself.
        is_null = answer is None or answer != answer
        if is_null or (isinstance(answer, str) and not answer.strip()):
            kind = "null" if is_null else "empty"
            raise TaskError(
                f"{location}: {column!r} is {kind}; write the answer or leave the row out"
            )
        # true may mean "yes", 1 or that a model was right: nobody can tell.
        if isinstance(answer, bool | dict | list | bytes):
            raise TaskError(
                f"{location}: {column!r} is {_describe(answer)}; an answer is text, a number, or a list of these"
            )
        answers.append(str(answer).strip())
    # Annotators often agree; every answer counts once.
    return list(dict.fromkeys(answers))


def read_choices(value: Any, location: str, column: str) -> tuple[str, ...]:
    """Reads the options of a multiple-choice question from a cell of a table.

    Args:
        value: A list of texts, a mapping from letters to texts, {"text": [...]}, or JSON of one of these.
        location: File and line of the row, for error messages.
        column: Name of the column, for error messages.

    Returns:
        The options in the order of their letters.

    Raises:
        TaskError: The value is none of these, or there are fewer than two options.
    """
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        value = value["text"]
    elif isinstance(value, Mapping):
        letters = sorted(value)
        if letters != list(LETTERS[: len(letters)]):
            raise TaskError(
                f"{location}: the options of {column!r} are lettered {', '.join(map(str, letters))}; use A, B, C, ..."
            )
        value = [value[letter] for letter in letters]
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise TaskError(
            f"{location}: {column!r} holds no list of 2 to {len(LETTERS)} options; write them as a JSON list"
        )
    if any(option is None or not str(option).strip() for option in value):
        raise TaskError(f"{location}: {column!r} holds an empty option; write its text")
    return tuple(str(option).strip() for option in value)


def find_letter(answer: str, choices: Sequence[str], location: str) -> str:
    """Finds the letter of the option that an answer means, by the option's text or by its letter.

    Args:
        answer: The option's text, or its letter, as in "(b)".
        choices: The options in the order of their letters.
        location: File and line of the row, for error messages.

    Returns:
        The letter.

    Raises:
        TaskError: No option or several have this text.
    """
    # Text before letters: an option may itself be a letter.
    matches = [letter for letter, text in zip(LETTERS, choices, strict=False) if text == answer]
    if len(matches) > 1:
        raise TaskError(f"{location}: several options read {answer!r}; name the right one's letter")
    if matches:
        return matches[0]
    letter = answer.strip("().: ").upper()
    if len(letter) == 1 and letter in LETTERS[: len(choices)]:
        return letter
    raise TaskError(
        f"{location}: the answer {answer!r} is neither an option nor one of {LETTERS[: len(choices)]}; give the letter"
    )


def append_choices(question: str, choices: Sequence[str]) -> str:
    """Writes the options of a multiple-choice question under it, one line each, unless it holds them already.

    Args:
        question: The question.
        choices: The options in the order of their letters.

    Returns:
        The question, with lines such as "A. Paris" at its end.
    """
    lettered = list(zip(LETTERS, choices, strict=False))
    # Look for letter and option together: a number may occur in a question without being listed as an option.
    patterns = [rf"\b{letter}\W{{1,3}}{re.escape(choice)}" for letter, choice in lettered]
    if all(re.search(pattern, question) for pattern in patterns):
        return question
    lines = [f"{letter}. {choice}" for letter, choice in lettered]
    return "\n".join([question, "", *lines])


def _describe(value: Any) -> str:
    """Describe a value in the words of an error message: "null", "a list", "the number 3"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a nested object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, NumberText | int | float):
        return f"the number {value}"
    if isinstance(value, str) and not value.strip():
        return "blank"
    return f"of the type {type(value).__name__}"
