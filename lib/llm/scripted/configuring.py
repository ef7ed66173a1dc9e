"""Choosing a configuration for a question, as a prompted policy would: by the look of the question, or by examples.

Without examples the words of the question decide. With examples the one whose question shares most words with this
one decides, if it was paid well. Nothing here knows what the agents can do.
"""

import json
import re
from typing import Any

from lib.llm.scripted.model_strength import Draw, Strength

CONFIGURATION_ASKED = "Choose a configuration of the agent system for the question."
_QUESTION = re.compile(r"^Question: (.*)$", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^Example\. Question: (.*)\nConfiguration: (\{.*\}) Reward: (-?\d+\.\d+)$", re.MULTILINE
)
_PAID = 1.0  # reward above which an example is one to follow
_LONG = 12  # words of a question that is long


def configure(text: str, strength: Strength, draw: Draw) -> str:
    """A configuration as JSON."""
    asked = _QUESTION.findall(text)
    question = asked[-1] if asked else ""
    followed = _nearest(
        question, [(q, c) for q, c, paid in _EXAMPLE.findall(text) if float(paid) > _PAID]
    )
    chosen = json.loads(followed) if followed else _by_look(question)
    if draw.random() < strength.noise:
        chosen["budgets"] = ["medium"] * 3
    return json.dumps(chosen)


def _nearest(question: str, examples: list[tuple[str, str]]) -> str:
    """The configuration of the example whose question is most like this one; empty without examples."""
    words = set(question.split())
    shared = [
        len(words & set(other.split())) / max(1, len(words | set(other.split())))
        for other, _ in examples
    ]
    return examples[shared.index(max(shared))][1] if shared else ""


def _by_look(question: str) -> dict[str, Any]:
    """What a question's words suggest."""
    words = question.split()
    signs = sum(word in "+-*/" for word in words)
    names = [word for word in words if word[0].isupper()]
    tools = ["calculator"] * bool(signs) + ["search", "lookup"] * ("of" in words or len(names) > 1)
    workflow = "direct" if len(words) < _LONG / 2 else "reason" if len(words) < _LONG else "verify"
    second = ["calculator"] * bool(signs) if workflow == "verify" else []
    size = "low" if workflow == "direct" else "high"
    return {
        "workflow": workflow,
        "tools1": tools,
        "tools2": second,
        "budgets": [size, "medium", "medium"],
    }
