"""What a model that was not made for this bench must be told of a question.

Chains of digits look like sums and follow other rules; every other family speaks for itself. The rule goes to the
questions that it is about, and to no other: told before every question it spoils right answers.
"""

import re

VERSION = 2  # of the rules, and of how replies of models that are told them are read; 2: in any usual form
CHAIN_RULE = (
    "Work strictly from left to right, without precedence, and keep only the last digit of every result: "
    "0 to 9, and below zero go on from 10."
)
_DIGIT_CHAIN = re.compile(r"(?<!\d)(?<![-+*] )\d(?: [-+*] \d)+ = \?")  # 3 + 4 * 2 = ?
_DIAL_CHAIN = re.compile(r"A dial shows \d \.")  # the same as turns of a dial with ten positions


def describe_rules(question: str) -> str:
    """Find the rule that a question of arithmetic follows but does not state, for models that were not trained on it.

    Only chains of digits ("3 + 4 * 2 = ?", or turns of a dial) have one: they are worked from left to right, modulo 10.

    Args:
        question: The question, with or without other text around it.

    Returns:
        The rule in words, to be told before the question; empty for every other question.
    """
    is_chain = _DIGIT_CHAIN.search(question) or _DIAL_CHAIN.search(question)
    return CHAIN_RULE if is_chain else ""
