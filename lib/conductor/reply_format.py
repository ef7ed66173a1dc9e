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
_THINK = f"<think>{_UNTAGGED}</think>"
_ANSWER = f"<answer>{_UNTAGGED}</answer>"
_THOUGHT_OPTIONAL = re.compile(rf"\s*(?:{_THINK}\s*)?{_ANSWER}\s*", re.DOTALL)
_THOUGHT_REQUIRED = re.compile(rf"\s*{_THINK}\s*{_ANSWER}\s*", re.DOTALL)


def is_well_formed(reply: str, require_thought: bool = False) -> bool:
    """Whether a reply is one thought and one answer in their tags, in this order, and nothing else.

    Args:
        reply: The whole reply.
        require_thought: Whether there must be a thought, as in the paper; without it the thought may be left out.
    """
    pattern = _THOUGHT_REQUIRED if require_thought else _THOUGHT_OPTIONAL
    return bool(pattern.fullmatch(reply))


def extract_thought(reply: str) -> str:
    """What of a reply stands before its answer: the y_think that a reference is conditioned on.

    Args:
        reply: The whole reply; without an answer tag all of it is returned, so that an unfinished thought counts.
    """
    return reply.split("<answer>", 1)[0].rstrip()


def get_completion_text(completion: Completion) -> str:
    """The text of a completion, which TRL hands on as a string or as a list of messages."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
