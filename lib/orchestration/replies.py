"""From a model's reply to a choice, or to a precise complaint. No policy is ever invented.

A reply must be one JSON object, {"reasoning", "policy"} or, while something is left to try,
{"reasoning", "call"}. Think-tags and code fences are taken off and slips such as a trailing comma are
mended (json-repair); names must then match exactly: a name in another case or with full-width letters
is unknown, and goes back to the model with the list of names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import json_repair
from pydantic import BaseModel, ConfigDict, ValidationError

LONGEST = 20_000  # characters; what is longer is no decision
MENDABLE = 4_000  # characters of an object; the time of mending grows with their square
_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LANGUAGE = re.compile(r"\A[\w-]+")
_KEY = re.compile(r"\b(policy|call)\b['\"]?\s*:")


class InvalidReply(ValueError):
    """A reply that holds no usable choice. kind: a word for the tables; the message goes to the model."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


KINDS = ("too_long", "not_json", "not_one_object", "wrong_fields", "unknown_policy", "already_tried", "must_decide")


class Choice(BaseModel):
    """A parsed reply: `policy` is the final choice, or `calls` are policies to look ahead with."""

    model_config = ConfigDict(frozen=True)

    reasoning: str
    policy: str | None = None
    calls: tuple[str, ...] = ()
    repaired: bool = False


class _Fields(BaseModel):
    """The reply as it should be; further fields are ignored, since models like to add some."""

    model_config = ConfigDict(extra="ignore", strict=True)

    reasoning: str | None = None
    policy: str | None = None
    call: str | list[str] | None = None


def parse(text: str, names: Sequence[str], untried: Sequence[str] = (), limit: int = 0) -> Choice:
    """The choice that a reply makes.

    names: all policies; untried: those that may still be looked at; limit: how many of them in one
    reply (0: the model must decide now). Raises InvalidReply, whose message says what was wrong.
    """
    content, repaired = one_object(text)
    try:
        fields = _Fields.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:1])
        raise InvalidReply("wrong_fields", f"field {where!r}: {first['msg']}") from None
    if (fields.policy is None) == (fields.call is None):
        raise InvalidReply("wrong_fields", 'give exactly one of "policy" and "call"')
    if fields.policy is None:
        named = {"calls": _calls(fields.call, names, untried, limit)}
    else:
        named = {"policy": _known(fields.policy, names)}
    if repaired and not all(name in text for name in named.get("calls", (fields.policy,))):
        raise InvalidReply("unknown_policy", "the reply is not valid JSON, and holds no name written out")
    said = (fields.reasoning or "").encode(errors="replace").decode()  # half a surrogate pair fits no file
    return Choice(reasoning=said, repaired=repaired, **named)


def _calls(call: str | list[str], names: Sequence[str], untried: Sequence[str], limit: int) -> tuple[str, ...]:
    wanted = [call] if isinstance(call, str) else call
    if limit == 0:
        raise InvalidReply("must_decide", "nothing is left to try; decide")
    if not 1 <= len(wanted) <= limit:
        raise InvalidReply("wrong_fields", f'"call" must hold 1 to {limit} names, got {len(wanted)}')
    wanted = [_known(name, names) for name in wanted]
    again = sorted({name for name in wanted if name not in untried or wanted.count(name) > 1})
    if again:
        raise InvalidReply("already_tried", f"{', '.join(again)} cannot be tried twice")
    return tuple(wanted)


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise InvalidReply("unknown_policy", f"there is no policy {name[:60]!r}")
    return name


def one_object(text: str) -> tuple[dict[str, Any], bool]:
    """The one JSON object in a reply, and whether it had to be mended."""
    if len(text) > LONGEST:
        raise InvalidReply("too_long", f"the reply has {len(text)} characters; {LONGEST} are read")
    content, mended = _load(text)
    if not isinstance(content, dict):
        kind = "not_one_object" if isinstance(content, list) else "not_json"
        raise InvalidReply(kind, f"one JSON object was expected, got {_what(content)}")
    return content, mended


def _load(text: str) -> tuple[Any, bool]:
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
        return _mended(body), True


def _strict(body: str) -> Any:
    """The value of a JSON text. Raises JSONDecodeError where it is none, InvalidReply where it is refused."""
    try:
        return json.loads(body, object_pairs_hook=_unique, parse_int=float)  # int() refuses very long numbers
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


def _mended(body: str) -> Any:
    """What json-repair makes of an object, as long as it cannot be read in two ways."""
    if len(body) > MENDABLE:
        raise InvalidReply("not_json", "the object is not valid JSON, and too long to be mended")
    for name, times in Counter(_KEY.findall(body)).items():
        if times > 1:
            raise InvalidReply("wrong_fields", f"field {name!r} is given twice")
    try:
        return json_repair.loads(body)
    except (ValueError, RecursionError):
        raise InvalidReply("not_json", "the object is not valid JSON") from None


def _what(content: Any) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", type(None): "null"}.get(
        type(content), type(content).__name__
    )
