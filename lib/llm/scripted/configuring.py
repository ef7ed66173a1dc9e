"""Choosing a configuration for a question, as a prompted policy would: by its words, or by examples.

Without examples the words of the question decide. With examples the one whose question shares most words with this
one decides, if it was rewarded well. Left out: any knowledge of what the agents can do.
"""

import json
import re
from typing import Any

import numpy as np

from lib.llm.scripted.model_strength import Strength

CONFIGURATION_ASKED = "Choose a configuration of the agent system for the question."
_QUESTION = re.compile(r"^Question: (.*)$", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^Example\. Question: (.*)\nConfiguration: (\{.*\}) Reward: (-?\d+\.\d+)$", re.MULTILINE
)
_GOOD_REWARD = 1.0  # reward above which an example is one to follow
_LONG_QUESTION = 12  # words


def choose_configuration(text: str, strength: Strength, rng: np.random.Generator) -> str:
    """Choose a configuration.

    Args:
        text: The prompt, or the end of it.
        strength: Strength of the model; its noise is the probability of medium budgets whatever the question.
        rng: Random numbers.

    Returns:
        The configuration as JSON.
    """
    questions = _QUESTION.findall(text)
    question = questions[-1] if questions else ""
    examples = []
    for example_question, configuration_json, reward in _EXAMPLE.findall(text):
        if float(reward) > _GOOD_REWARD:
            examples.append((example_question, configuration_json))
    nearest = _find_nearest(question, examples)
    configuration = json.loads(nearest) if nearest else _configure_by_words(question)
    # The weaker the model, the more often the question does not matter to it.
    if rng.random() < strength.noise:
        configuration["budgets"] = ["medium"] * 3
    return json.dumps(configuration)


def _find_nearest(question: str, examples: list[tuple[str, str]]) -> str:
    """Finds the example whose question is most similar, by the Jaccard index of their words.

    Args:
        question: The question.
        examples: (question, configuration) each.

    Returns:
        The configuration of that example; empty without examples.
    """
    if not examples:
        return ""
    words = set(question.split())
    similarities = []  # Jaccard index of the words
    for example_question, _ in examples:
        example_words = set(example_question.split())
        num_words = len(words | example_words)
        similarities.append(len(words & example_words) / max(1, num_words))
    return examples[similarities.index(max(similarities))][1]


def _configure_by_words(question: str) -> dict[str, Any]:
    """Chooses workflow, tools and budgets for a question by rules on its words.

    Args:
        question: The question.

    Returns:
        A configuration: workflow, tools of two agents, and three budgets.
    """
    words = question.split()
    has_arithmetic = any(word in "+-*/" for word in words)
    num_names = sum(word[0].isupper() for word in words)
    calculator = ["calculator"] if has_arithmetic else []
    search = ["search", "lookup"] if "of" in words or num_names > 1 else []
    if len(words) < _LONG_QUESTION / 2:
        workflow = "direct"
    elif len(words) < _LONG_QUESTION:
        workflow = "reason"
    else:
        workflow = "verify"
    first_budget = "low" if workflow == "direct" else "high"
    return {
        "workflow": workflow,
        "tools1": calculator + search,
        "tools2": calculator if workflow == "verify" else [],
        "budgets": [first_budget, "medium", "medium"],
    }
