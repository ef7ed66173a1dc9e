"""From a model's reply to a choice, or to a precise complaint. No policy is ever invented.

A reply is one JSON object (`lib.llm.json_replies`), {"reasoning", "policy"} or, while something is left to try,
{"reasoning", "call"}. Names must match exactly: a name in another case or with full-width letters is unknown, and
goes back to the model with the list of names.
"""

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from lib.llm import json_replies
from lib.llm.json_replies import InvalidReply, read_object

VERSION = 1  # of choices that are read in replies
KINDS = (*json_replies.KINDS, "unknown_policy", "already_tried", "must_decide")
SUMMARY_WORDS = 150  # of a running summary, at the most
_LONGEST_NAME = 60  # characters of an unknown name that a complaint repeats
_END_OF_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


class Choice(BaseModel):
    """A parsed reply.

    Attributes:
        reasoning: What the model says about it; may be empty.
        policy: The final choice; None where policies are to be tried first.
        calls: Policies to try.
        repaired: Whether the reply was no clean JSON.
    """

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
    """Parse a model's reply: the policy that it chooses, or the policies that it wants to try first.

    Args:
        text: The reply.
        names: All policies on the menu.
        untried: Names of the policies that may still be tried.
        limit: How many of them one reply may try; 0 where the model must decide now.

    Returns:
        The choice, its reasoning, and whether the JSON had to be repaired.

    Raises:
        InvalidReply: Of one of KINDS; the message says what was wrong.
    """
    content, repaired = read_object(text, ("policy", "call"))
    try:
        fields = _Fields.model_validate(content)
    except ValidationError as error:
        first_error = error.errors()[0]
        raise InvalidReply(
            "wrong_fields", f"field {str(first_error['loc'][0])!r}: {first_error['msg']}"
        ) from None
    if (fields.policy is None) == (fields.call is None):
        raise InvalidReply("wrong_fields", 'give exactly one of "policy" and "call"')

    calls: tuple[str, ...] = ()
    if fields.policy is None:
        calls = _check_calls(fields.call, names, untried, limit)
    else:
        _check_name(fields.policy, names)

    # A repair may join what stood apart; a name counts only where the model has written it out.
    chosen_names = calls or (fields.policy,)
    if repaired and not all(name in text for name in chosen_names):
        raise InvalidReply(
            "unknown_policy", "the reply is not valid JSON, and holds no name written out"
        )
    # Half a surrogate pair fits into no file.
    reasoning = (fields.reasoning or "").encode(errors="replace").decode()
    return Choice(reasoning=reasoning, policy=fields.policy, calls=calls, repaired=repaired)


def _check_calls(
    call: str | list[str], names: Sequence[str], untried: Sequence[str], limit: int
) -> tuple[str, ...]:
    """Check the policies that a reply wants to try.

    Args:
        call: One name or several, as the reply has it.
        names: All policies on the menu.
        untried: Names of the policies that may still be tried.
        limit: How many of them one reply may try.

    Returns:
        Their names.

    Raises:
        InvalidReply: A name is unknown or was tried, or there are too many.
    """
    calls = [call] if isinstance(call, str) else call
    if limit == 0:
        raise InvalidReply("must_decide", "nothing is left to try; decide")
    if not 1 <= len(calls) <= limit:
        raise InvalidReply("wrong_fields", f'"call" must hold 1 to {limit} names, got {len(calls)}')
    for name in calls:
        _check_name(name, names)
    repeated = {name for name in calls if name not in untried or calls.count(name) > 1}
    if repeated:
        raise InvalidReply("already_tried", f"{', '.join(sorted(repeated))} cannot be tried twice")
    return tuple(calls)


def _check_name(name: str, names: Sequence[str]) -> None:
    """Raise InvalidReply where a name is none of the menu."""
    if name not in names:
        raise InvalidReply("unknown_policy", f"there is no policy {name[:_LONGEST_NAME]!r}")


def read_summary(text: str) -> str:
    """Read the running summary in a model's reply.

    Args:
        text: The reply; thoughts in <think> tags are ignored.

    Returns:
        At most SUMMARY_WORDS words; empty where there is no summary.
    """
    summary = _END_OF_THOUGHT.split(text)[-1].strip()
    summary = summary.encode(errors="replace").decode()
    word_ends = [word.end() for word in re.finditer(r"\S+", summary)]
    if len(word_ends) > SUMMARY_WORDS:
        summary = summary[: word_ends[SUMMARY_WORDS - 1]]
    return summary
