"""From a model's reply to a choice, or to a precise complaint. No policy is ever invented.

A reply is one JSON object (`lib.llm.json_replies`), {"reasoning", "policy"} or, while something is left to try,
{"reasoning", "call"}. Names must match exactly: a name in another case or with full-width letters is unknown, and
goes back to the model with the list of names.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from lib.llm import json_replies
from lib.llm.json_replies import InvalidReply, read_object

VERSION = 1  # of choices that are read in replies
KINDS = (*json_replies.KINDS, "unknown_policy", "already_tried", "must_decide")


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
    content, repaired = read_object(text, ("policy", "call"))
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
        raise InvalidReply(
            "unknown_policy", "the reply is not valid JSON, and holds no name written out"
        )
    said = (
        (fields.reasoning or "").encode(errors="replace").decode()
    )  # half a surrogate pair fits no file
    return Choice(reasoning=said, repaired=repaired, **named)


def _calls(
    call: str | list[str], names: Sequence[str], untried: Sequence[str], limit: int
) -> tuple[str, ...]:
    wanted = [call] if isinstance(call, str) else call
    if limit == 0:
        raise InvalidReply("must_decide", "nothing is left to try; decide")
    if not 1 <= len(wanted) <= limit:
        raise InvalidReply(
            "wrong_fields", f'"call" must hold 1 to {limit} names, got {len(wanted)}'
        )
    wanted = [_known(name, names) for name in wanted]
    again = sorted({name for name in wanted if name not in untried or wanted.count(name) > 1})
    if again:
        raise InvalidReply("already_tried", f"{', '.join(again)} cannot be tried twice")
    return tuple(wanted)


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise InvalidReply("unknown_policy", f"there is no policy {name[:60]!r}")
    return name
