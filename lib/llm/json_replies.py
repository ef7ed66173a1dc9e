"""From a model's reply to the JSON in it, or to a precise complaint: the one reader of all that decides by replies.

A reply must hold one JSON object. Think-tags and code fences are taken off and slips such as a trailing comma are
mended (json-repair); what can be read in two ways is refused. Arguments of a tool call are read as they are, and
nothing of them is mended. No text, however long, deep or odd, does more than be refused. Left out: what the fields
mean, which whoever asked knows.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import json_repair

VERSION = 1  # of the answers read from replies
LONGEST = 20_000  # characters; what is longer is no decision
MENDABLE = 4_000  # characters of an object; the time of mending grows with their square
LONGEST_ARGUMENTS = 65_536  # characters of a tool call's; code is among them
DEEPEST = 64  # levels of arguments; writing them out must not meet Python's own limit
KINDS = ("too_long", "not_json", "not_one_object", "wrong_fields")
_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LANGUAGE = re.compile(r"\A[\w-]+")


class InvalidReply(ValueError):
    """A reply that cannot be used. kind: a word for the tables; the message goes to the model."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def one_object(text: str, fields: Collection[str] = ()) -> tuple[dict[str, Any], bool]:
    """The one JSON object in a reply, and whether it had to be mended.

    fields: those that count, so that none of them may stand twice in what is mended. Raises InvalidReply, of one of
    KINDS.
    """
    if len(text) > LONGEST:
        raise InvalidReply("too_long", f"the reply has {len(text)} characters; {LONGEST} are read")
    content, mended = _load(text, fields)
    if not isinstance(content, dict):
        kind = "not_one_object" if isinstance(content, list) else "not_json"
        raise InvalidReply(kind, f"one JSON object was expected, got {_what(content)}")
    return content, mended


def arguments(text: str) -> dict[str, Any] | None:
    """The JSON object that a tool call's arguments are; None where they are none, or nothing that can be handed on."""
    try:
        told = json.loads(text) if len(text) <= LONGEST_ARGUMENTS else None
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and _levels(told) <= DEEPEST else None


def words(values: Iterable[Any]) -> str:
    """Arguments as one line, which any file and any prompt can hold."""
    return " ".join(map(str, values)).encode(errors="replace").decode()


def _levels(value: Any) -> int:
    levels, within = 0, [value]
    while within:
        levels += 1
        open_ = [each for each in within if isinstance(each, dict | list)]
        within = [
            inner for each in open_ for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return levels


def _load(text: str, fields: Collection[str]) -> tuple[Any, bool]:
    """What a text says: as it is, else without tags and fences, else without prose, else mended.

    In this order, because the strings of a clean reply may hold tags, fences and braces.
    """
    try:
        return _strict(text), False
    except json.JSONDecodeError:
        body = _unfenced(_without_thoughts(text))
    try:
        return _strict(body), False
    except json.JSONDecodeError:
        body = _only_object(body)
    try:
        return _strict(body), True
    except json.JSONDecodeError:
        return _mended(body, fields), True


def _strict(body: str) -> Any:
    """The value of a JSON text. Raises JSONDecodeError where it is none, InvalidReply where it is refused."""
    try:
        return json.loads(
            body, object_pairs_hook=_unique, parse_int=float
        )  # int() refuses very long numbers
    except RecursionError:
        raise InvalidReply("not_json", "the reply is nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = Counter(name for name, _ in pairs)
    for name, times in names.items():
        if times > 1:
            raise InvalidReply("wrong_fields", f"field {name[:60]!r} is given twice")
    return dict(pairs)


def _without_thoughts(text: str) -> str:
    """The text after think-tags; models whose prompt opens the tag send only its end."""
    return _THOUGHT_ENDS.split(_THINK.sub("\n", text))[-1]


def _unfenced(body: str) -> str:
    parts = body.split("```")
    blocks = len(parts) // 2
    if blocks > 1:
        raise InvalidReply("not_one_object", f"there are {blocks} code blocks; one object, please")
    return _LANGUAGE.sub("", parts[1]) if blocks else body


def _only_object(body: str) -> str:
    """The one object that stands in a text, strings respected as far as the text closes them."""
    spans, start, depth, inside, escaped = [], 0, 0, False, False
    for place, sign in enumerate(body):
        if inside:
            inside = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"' and depth:
            inside = True
        elif sign == "{":
            start = start if depth else place
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth < 0:
                raise InvalidReply("not_json", "the JSON has a closing bracket too many")
            if depth == 0:
                spans.append((start, place + 1))
    if depth:
        raise InvalidReply("not_json", "the JSON breaks off")  # what is missing must not be guessed
    if not spans:
        raise InvalidReply("not_json", "the reply holds no JSON object")
    if len(spans) > 1:
        raise InvalidReply("not_one_object", f"there are {len(spans)} objects; one, please")
    return body[slice(*spans[0])]


def _mended(body: str, fields: Collection[str]) -> Any:
    """What json-repair makes of an object, as long as it cannot be read in two ways."""
    if len(body) > MENDABLE:
        raise InvalidReply("not_json", "the object is not valid JSON, and too long to be mended")
    for name in fields:
        if len(re.findall(rf"\b{name}\b['\"]?\s*:", body)) > 1:
            raise InvalidReply("wrong_fields", f"field {name!r} is given twice")
    try:
        return json_repair.loads(body)
    except (ValueError, RecursionError):
        raise InvalidReply("not_json", "the object is not valid JSON") from None


def _what(content: Any) -> str:
    return {
        list: "a list",
        str: "text",
        int: "a number",
        float: "a number",
        type(None): "null",
    }.get(type(content), type(content).__name__)
