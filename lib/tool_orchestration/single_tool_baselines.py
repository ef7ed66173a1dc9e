"""Every single tool used by a fixed procedure: what baselines do, and what traces of the protocol are made of.

A strategy is a generator: it yields the line of a call, is sent the reply, and returns its answer. Hence the same
lines of code ask real tools (`tool_environment.try_single_tools`) and made-up ones (`warm`).
"""

import re
from collections.abc import Generator

from lib.rl.call_protocol import ERROR_REPLY, USER_QUESTION
from lib.tasks import Item
from lib.tasks.synthesis import Task, list_steps

VERSION = 1  # of the calls of a single tool and of an office task
Strategy = Generator[
    tuple[str, int], str, str
]  # yields (argument of a call, calls left with it), returns the answer
_SENTENCE = re.compile(r" is (\S+) \.$")


def make_strategy(tool: str, item: Item) -> Strategy:
    """How a tool is used on a question: by its expression, hop by hop, or asked as it stands."""
    if tool in ("python", "calculator"):
        return _asked(item.prompt.removesuffix(" = ?"))
    if tool in ("lookup", "search"):
        return _hops(tool, item)
    return _asked(USER_QUESTION)


def _asked(argument: str) -> Strategy:
    return (yield argument, 1)


def _hops(tool: str, item: Item) -> Strategy:
    *relations, place = item.id.split("/")[1:]
    for left in range(len(relations), 0, -1):
        relation = relations[left - 1]
        reply = yield (
            (f"{relation} {place}" if tool == "lookup" else f"{relation} of {place}"),
            left,
        )
        found = _SENTENCE.search(reply)
        place = found[1] if tool == "search" and found else reply
        if tool == "search" and not found:
            return ERROR_REPLY
    return place


def list_golden_calls(task: Task) -> list[tuple[str, str, str]]:
    """The golden calls of an office task: function, argument, reply."""
    return [(*line.split(" ", 1), reply) for line, reply in list_steps(task)]
