"""Replies as models break them: fences, commas, prose, wrong names, refusals, cut text.

A break is a function from (reply, decision, random numbers) to (text, finish reason).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DecisionState:
    """What a spoiled decision may refer to.

    Attributes:
        names: Policies to choose from.
        tried: Policies that were looked at already.
    """

    names: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


Break = Callable[[dict[str, Any], DecisionState, np.random.Generator], tuple[str, str]]


def _dump(reply: Mapping[str, Any]) -> str:
    return json.dumps(reply, ensure_ascii=False)


def _replace_fields(reply: Mapping[str, Any], **fields: Any) -> tuple[str, str]:
    """The same reasoning with other fields."""
    return _dump({"reasoning": reply["reasoning"], **fields}), "stop"


def _read_name(reply: Mapping[str, Any]) -> str:
    """The policy that a reply picks, or the first that it wants to look at."""
    choice = reply["policy"] if "policy" in reply else reply["call"]
    return choice if isinstance(choice, str) else choice[0]


# Any JSON reply -------------------------------------------------------------------------------------


def add_fence(reply, state, rng):
    """A code fence around the JSON."""
    return f"```json\n{_dump(reply)}\n```", "stop"


def add_trailing_comma(reply, state, rng):
    """A comma before the closing brace."""
    return _dump(reply)[:-1] + ",}", "stop"


def add_prose(reply, state, rng):
    """Prose around the JSON."""
    return f"Here is my decision:\n{_dump(reply)}\nLet me know if you need more.", "stop"


def use_single_quotes(reply, state, rng):
    """Python's quotes instead of JSON's."""
    return repr(reply), "stop"


def repeat_object(reply, state, rng):
    """Two objects."""
    return f"{_dump(reply)}\n{_dump(reply)}", "stop"


def truncate(reply, state, rng):
    """A reply that breaks off."""
    text = _dump(reply)
    return text[: int(len(text) * (0.3 + 0.5 * rng.random()))], "length"


def refuse(reply, state, rng):
    """A sentence that declines."""
    return "I'm sorry, but I cannot make this decision for a real person.", "stop"


# Decisions ------------------------------------------------------------------------------------------


def invent_name(reply, state, rng):
    """A name that does not exist."""
    return _replace_fields(reply, policy=f"{_read_name(reply)} policy")


def swap_case(reply, state, rng):
    """A name in another case."""
    return _replace_fields(reply, policy=_read_name(reply).swapcase())


def list_names(reply, state, rng):
    """A list of names for the one policy."""
    return _replace_fields(reply, policy=[_read_name(reply)])


def leave_null(reply, state, rng):
    """null for the policy."""
    return _replace_fields(reply, policy=None)


def repeat_call(reply, state, rng):
    """A wish to look at what was looked at already, or, before anything was, at one policy twice."""
    if state.tried:
        return _replace_fields(reply, call=state.tried[0])
    return _replace_fields(reply, call=[_read_name(reply)] * 2)


# Judgements -----------------------------------------------------------------------------------------


def omit_score(reply, state, rng):
    """A score left out."""
    score_names = list(reply)[1:]
    omitted = score_names[int(rng.integers(len(score_names)))]
    return _dump({key: value for key, value in reply.items() if key != omitted}), "stop"


def write_scores_as_text(reply, state, rng):
    """Scores as text, such as 4/5."""
    scores = {key: f"{value}/5" for key, value in reply.items() if key != "reasoning"}
    return _dump({"reasoning": reply["reasoning"], **scores}), "stop"


_OF_ANY_REPLY: tuple[Break, ...] = (
    add_fence,
    add_trailing_comma,
    add_prose,
    use_single_quotes,
    repeat_object,
    truncate,
    refuse,
)
BREAKS: tuple[Break, ...] = (
    *_OF_ANY_REPLY,
    invent_name,
    swap_case,
    list_names,
    leave_null,
    repeat_call,
)
JUDGE_BREAKS: tuple[Break, ...] = (*_OF_ANY_REPLY, omit_score, write_scores_as_text)
