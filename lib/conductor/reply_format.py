"""The form of a reply: one thought and one answer, each in its tags.

    <think> 3 + 4 = 7 </think> <answer> 7 </answer>

Left out: whether the answer is right, which is `lib.tasks`.
"""

import re
from collections.abc import Mapping, Sequence

VERSION = 1  # of what is well formed, and what of a reply is its thought
Completion = str | Sequence[Mapping[str, str]]  # as TRL hands it on: a text, or messages

# Any text without a tag of its own. Each character is read once, so that a long reply takes no longer than its length.
_UNTAGGED = r"(?:(?!</?answer>|</?think>).)*"
_THINK = f"<think>(?P<thought>{_UNTAGGED})</think>"
_ANSWER = f"<answer>(?P<answer>{_UNTAGGED})</answer>"
_THOUGHT_OPTIONAL = re.compile(rf"\s*(?:{_THINK}\s*)?{_ANSWER}\s*", re.DOTALL)
_THOUGHT_REQUIRED = re.compile(rf"\s*{_THINK}\s*{_ANSWER}\s*", re.DOTALL)
# How a reply begins whose thought can be read, whatever follows the tag of its answer.
_BEGINNING = re.compile(rf"\s*(?:{_THINK}\s*)?<answer>", re.DOTALL)


def is_well_formed(reply: str, require_thought: bool = False) -> bool:
    """Check that a reply is one thought and one answer in their tags, in this order, and nothing else.

    Args:
        reply: The whole reply.
        require_thought: Whether there must be a thought, as in the paper; without it the thought may be left out.

    Returns:
        False too where there is nothing but blanks between the tags, or empty tags would be rewarded.
    """
    pattern = _THOUGHT_REQUIRED if require_thought else _THOUGHT_OPTIONAL
    match = pattern.fullmatch(reply)
    if match is None or not match["answer"].strip():
        return False
    return match["thought"] is None or bool(match["thought"].strip())


def extract_thought(reply: str) -> str | None:
    """The thought of a reply, y_think, on which the likelihood of a reference is conditioned.

    Args:
        reply: The whole reply.

    Returns:
        What stands between the think tags at the beginning of the reply, without blanks around it; empty where the
        reply begins with its answer; None where no thought can be read: the reply begins with anything but a tag, its
        thought is not closed, or no answer follows.

    Example:
        >>> extract_thought("<think> 3 + 4 = 7 </think> <answer> 7 </answer>")
        '3 + 4 = 7'
    """
    match = _BEGINNING.match(reply)
    if match is None:
        return None
    return (match["thought"] or "").strip()


def get_completion_text(completion: Completion) -> str:
    """The text of a completion, which TRL hands on as a string or as a list of messages."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
