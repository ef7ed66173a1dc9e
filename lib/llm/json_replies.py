"""From a model's reply to the JSON in it, or to a precise complaint: the one reader of all that decides by replies.

A reply must hold one JSON object. Think tags and code fences are removed and slips such as a trailing comma are
repaired (json-repair); what can be read in two ways is refused. Arguments of a tool call come as text, as text of a
text, or as an object; a trailing comma is all that is repaired in them, since they may hold code. No text, however
long, deep or odd, does more than be refused. Left out: what the fields mean.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import json_repair

VERSION = 1  # of the answers read from replies
LONGEST = 20_000  # characters; what is longer is no decision
LONGEST_REPAIRABLE = 4_000  # characters of an object; the time of a repair grows with their square
LONGEST_ARGUMENTS = 65_536  # characters of a tool call's; code is among them
DEEPEST = 64  # levels of arguments; writing them out must not meet Python's own limit
KINDS = ("too_long", "not_json", "not_one_object", "wrong_fields")
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LANGUAGE_OF_FENCE = re.compile(r"\A[\w-]+")
# A string, which may be cut off, or a comma before a closing bracket. Strings come first, so that what stands in them
# is passed over; one that is cut off reaches to the end, so that the search stays linear.
_STRING_OR_TRAILING_COMMA = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*\\?(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL
)


class InvalidReply(ValueError):
    """A reply that cannot be used. The message goes to the model.

    Attributes:
        kind: A word for the tables.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_object(text: str, fields: Collection[str] = ()) -> tuple[dict[str, Any], bool]:
    """Read the one JSON object in a reply.

    Args:
        text: The reply.
        fields: The names that count; none of them may stand twice in what is repaired.

    Returns:
        The object, and whether it had to be repaired. Numbers are floats.

    Raises:
        InvalidReply: Of one of KINDS.
    """
    if len(text) > LONGEST:
        raise InvalidReply("too_long", f"the reply has {len(text)} characters; {LONGEST} are read")
    content, repaired = _load(text, fields)
    if not isinstance(content, dict):
        kind = "not_one_object" if isinstance(content, list) else "not_json"
        raise InvalidReply(kind, f"one JSON object was expected, got {_describe_type(content)}")
    return content, repaired


def read_arguments(arguments: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the arguments of a tool call.

    Args:
        arguments: The text of a JSON object; some servers send the object itself, or encode the text twice.

    Returns:
        The object; None where there is none, or one that is too long or too deep to be handed on.
    """
    if isinstance(arguments, str):
        value = _decode_arguments(arguments)
        if isinstance(value, str):  # encoded twice
            value = _decode_arguments(value)
    else:
        value = arguments
    if not isinstance(value, Mapping) or _count_levels(value) > DEEPEST:
        return None
    if not isinstance(arguments, str) and not _is_short_json(value):
        return None
    return dict(value)


def _decode_arguments(text: str) -> Any:
    """Read the text of a tool call's arguments.

    Args:
        text: JSON; commas before closing brackets are left out, nothing else is repaired.

    Returns:
        The value; None for a text that is too long or no JSON.
    """
    if len(text) > LONGEST_ARGUMENTS:
        return None
    try:
        return json.loads(text)
    except RecursionError:
        return None
    except ValueError:
        without_commas = _STRING_OR_TRAILING_COMMA.sub(
            lambda match: match.group("string") or "", text
        )
    try:
        return json.loads(without_commas)
    except (ValueError, RecursionError):
        return None


def _is_short_json(value: Mapping[str, Any]) -> bool:
    """Whether an object that came as one is as good as its text would be."""
    try:
        return len(json.dumps(value)) <= LONGEST_ARGUMENTS
    except (TypeError, ValueError):
        return False


def _count_levels(value: Any) -> int:
    """Counts how deep lists and objects are nested; level by level, because recursion could meet Python's limit.

    Args:
        value: JSON values.

    Returns:
        The depth; counting stops beyond DEEPEST.
    """
    num_levels = 0
    level = [value]
    while level and num_levels <= DEEPEST:
        num_levels += 1
        next_level: list[Any] = []
        for container in level:
            if isinstance(container, Mapping):
                next_level += container.values()
            elif isinstance(container, list):
                next_level += container
        level = next_level
    return num_levels


def join_values(values: Iterable[Any]) -> str:
    """Arguments as one line, which any file and any prompt can hold.

    Args:
        values: Values of any type.

    Returns:
        Them with blanks between them; half of a surrogate pair becomes a question mark.
    """
    return " ".join(map(str, values)).encode(errors="replace").decode()


def _load(text: str, fields: Collection[str]) -> tuple[Any, bool]:
    """Parses the JSON object in a model's reply, more leniently from attempt to attempt.

    The text is read as it is, else without reasoning and code fence, else without the prose around the object, else
    repaired. A clean reply comes first, because its strings may hold tags, fences and braces.

    Args:
        text: The reply.
        fields: Names of the object's fields, which help to repair it.

    Returns:
        The value, and whether the reply had to be mended.
    """
    try:
        return _load_strictly(text), False
    except json.JSONDecodeError:
        body = _remove_fence(_remove_thoughts(text))
    try:
        return _load_strictly(body), False
    except json.JSONDecodeError:
        body = _cut_out_object(body)
    try:
        return _load_strictly(body), True
    except json.JSONDecodeError:
        return _repair(body, fields), True


def _load_strictly(body: str) -> Any:
    """The value of a JSON text. Raises JSONDecodeError where it is none, InvalidReply where it is refused."""
    try:
        # int() refuses very long numbers
        return json.loads(body, object_pairs_hook=_refuse_duplicates, parse_int=float)
    except RecursionError:
        raise InvalidReply("not_json", "the reply is nested too deep") from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its (name, value) pairs. Raises InvalidReply where a name stands twice: which one counts?"""
    names = Counter(name for name, _ in pairs)
    for name, count in names.items():
        if count > 1:
            raise InvalidReply("wrong_fields", f"field {name[:60]!r} is given twice")
    return dict(pairs)


def _remove_thoughts(text: str) -> str:
    """The text after think tags; models whose prompt opens the tag send only its end."""
    return _END_OF_THOUGHT.split(_THOUGHT.sub("\n", text))[-1]


def _remove_fence(body: str) -> str:
    """Extracts the content of the only Markdown code block in a text; a text without one is returned as it is.

    Raises:
        InvalidReply: There are several code blocks.
    """
    pieces = body.split("```")
    num_blocks = len(pieces) // 2  # every block has a fence before and behind it
    if num_blocks > 1:
        raise InvalidReply(
            "not_one_object", f"there are {num_blocks} code blocks; one object, please"
        )
    return _LANGUAGE_OF_FENCE.sub("", pieces[1]) if num_blocks else body


def _cut_out_object(body: str) -> str:
    """Cut the one JSON object out of the prose around it.

    Args:
        body: A text without tags and fences.

    Returns:
        The text of the object, from its first brace to its last.

    Raises:
        InvalidReply: For no object, several, or one that breaks off.
    """
    spans = []  # (start, end) of each outermost pair of braces
    start = 0
    depth = 0  # braces that are open; those inside of strings do not count
    in_string = False
    escaped = False
    for position, character in enumerate(body):
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"' and depth:
            in_string = True
        elif character == "{":
            if depth == 0:
                start = position
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < 0:
                raise InvalidReply("not_json", "the JSON has a closing bracket too many")
            if depth == 0:
                spans.append((start, position + 1))
    if depth:
        raise InvalidReply("not_json", "the JSON breaks off")  # what is missing must not be guessed
    if not spans:
        raise InvalidReply("not_json", "the reply holds no JSON object")
    if len(spans) > 1:
        raise InvalidReply("not_one_object", f"there are {len(spans)} objects; one, please")
    start, end = spans[0]
    return body[start:end]


def _repair(body: str, fields: Collection[str]) -> Any:
    """Repair an object that is not valid JSON, as long as it cannot be read in two ways.

    Args:
        body: The text of the object.
        fields: Names that count; json-repair would keep one of two values silently.

    Returns:
        The value.

    Raises:
        InvalidReply: For an object that is too long, has a field twice, or cannot be repaired.
    """
    if len(body) > LONGEST_REPAIRABLE:
        raise InvalidReply("not_json", "the object is not valid JSON, and too long to be mended")
    for name in fields:
        if len(re.findall(rf"\b{name}\b['\"]?\s*:", body)) > 1:
            raise InvalidReply("wrong_fields", f"field {name!r} is given twice")
    try:
        return json_repair.loads(body)
    except (ValueError, RecursionError):
        raise InvalidReply("not_json", "the object is not valid JSON") from None


def _describe_type(content: Any) -> str:
    descriptions = {
        list: "a list",
        str: "text",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return descriptions.get(type(content), type(content).__name__)
