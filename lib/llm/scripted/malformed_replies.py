"""Replies as models break them: fences, commas, prose, wrong names, refusals, cut text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lib.llm.scripted.model_strength import Draw


@dataclass(frozen=True)
class Options:
    """What a spoiled decision may refer to."""

    names: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


Break = Callable[[dict[str, Any], Options, Draw], tuple[str, str]]


def _plain(reply: Mapping[str, Any]) -> str:
    return json.dumps(reply, ensure_ascii=False)


def _said(reply: Mapping[str, Any], **fields: Any) -> tuple[str, str]:
    """The same reasoning with other fields."""
    return _plain({"reasoning": reply["reasoning"], **fields}), "stop"


def _pick(reply: Mapping[str, Any]) -> str:
    """The name that a reply settles on, or the first that it wants to look at."""
    said = reply["policy"] if "policy" in reply else reply["call"]
    return said if isinstance(said, str) else said[0]


def fenced(reply, options, draw):
    """A code fence around the JSON."""
    return f"```json\n{_plain(reply)}\n```", "stop"


def trailing_comma(reply, options, draw):
    """A comma before the closing brace."""
    return _plain(reply)[:-1] + ",}", "stop"


def chatty(reply, options, draw):
    """Prose around the JSON."""
    return f"Here is my decision:\n{_plain(reply)}\nLet me know if you need more.", "stop"


def single_quoted(reply, options, draw):
    """Python's quotes instead of JSON's."""
    return repr(reply), "stop"


def twice(reply, options, draw):
    """Two objects."""
    return f"{_plain(reply)}\n{_plain(reply)}", "stop"


def truncated(reply, options, draw):
    """A reply that breaks off."""
    text = _plain(reply)
    return text[: int(len(text) * (0.3 + 0.5 * draw.random()))], "length"


def refused(reply, options, draw):
    """A sentence that declines."""
    return "I'm sorry, but I cannot make this decision for a real person.", "stop"


def misnamed(reply, options, draw):
    """A name that does not exist."""
    return _said(reply, policy=f"{_pick(reply)} policy")


def recased(reply, options, draw):
    """A name in another case."""
    return _said(reply, policy=_pick(reply).swapcase())


def listed(reply, options, draw):
    """A list of names for the one policy."""
    return _said(reply, policy=[_pick(reply)])


def nothing(reply, options, draw):
    """null for the policy."""
    return _said(reply, policy=None)


def called_again(reply, options, draw):
    """A wish to look at what was looked at already, or, where nothing can be tried, to look at all."""
    name = options.tried[0] if options.tried else _pick(reply)
    return _said(reply, call=name if options.tried else [name, name])


def incomplete(reply, options, draw):
    """A score left out."""
    scored = list(reply)[1:]
    missing = scored[int(draw.integers(len(scored)))]
    return _plain({key: value for key, value in reply.items() if key != missing}), "stop"


def out_of_range(reply, options, draw):
    """Scores as text, such as 40/100."""
    return _plain(
        {key: f"{value}/100" if key != "reasoning" else value for key, value in reply.items()}
    ), "stop"


_EITHER: tuple[Break, ...] = (
    fenced,
    trailing_comma,
    chatty,
    single_quoted,
    twice,
    truncated,
    refused,
)
BREAKS: tuple[Break, ...] = (*_EITHER, misnamed, recased, listed, nothing, called_again)
JUDGE_BREAKS: tuple[Break, ...] = (*_EITHER, incomplete, out_of_range)
