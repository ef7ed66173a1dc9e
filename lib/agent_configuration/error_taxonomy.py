"""Why an answer was wrong: the four kinds of ARC's appendix I, by rules over an episode.

The first rule that fits decides, in the paper's order: configuration, extraction, reasoning, arithmetic, knowledge.
Rules are the paper's, read for what episodes here have: notes instead of prose, tokens of lab tiers instead of 256.
"""

from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredAnswer
from lib.language_models.training.team_traces import NOTHING, answer_in_words
from lib.tasks import Item

VERSION = 1  # of the kind of error of a wrong answer
KINDS = ("configuration", "extraction", "reasoning", "arithmetic", "knowledge", "unclassified")
GROUPS = {  # the four categories of figure 6
    "configuration": "policy configuration", "extraction": "execution", "arithmetic": "execution",
    "reasoning": "reasoning", "knowledge": "knowledge gap", "unclassified": "unclassified",
}  # fmt: skip
_REASONED = 3  # steps of a solution that a single answer cannot replace (appendix I.2)
_RETRIEVAL = {"search", "lookup", "python"}
_ARITHMETIC = {"calculator", "python"}
_FACTS = {"facts", "mixed"}


def classify(item: Item, configuration: Configuration, outcome: ConfiguredAnswer) -> str:
    """One of `KINDS` for a wrong answer. Raises ValueError for a right one."""
    if outcome.correct:
        raise ValueError(
            f"the answer {outcome.answer!r} is right; only wrong ones have a kind of error"
        )
    steps = item.worked_solution.split(" ; ")
    said = " ; ".join(note.steps for note in outcome.trail)
    if _misconfigured(item, configuration, len(steps)):
        return "configuration"
    correct = {item.reference, answer_in_words(item).reference}
    if any(note.answer in correct for note in outcome.trail) or _ends_in(said, correct):
        return "extraction"  # the right answer was there, and another one was given
    if (not said and len(steps) >= _REASONED) or (
        _wrong_operation(steps, said) and not _given_to_a_tool(item, said)
    ):
        return "reasoning"
    if _slipped(steps, said):
        return "arithmetic"
    if item.group in _FACTS and (_RETRIEVAL & set(outcome.tools) or NOTHING in said.split()):
        return "knowledge"
    return "reasoning" if outcome.answer is None else "unclassified"


def _misconfigured(item: Item, configuration: Configuration, steps: int) -> bool:
    """I.1: a simple workflow or a low budget for many steps, or the tool is missing that a question asks for."""
    tools = {tool for agent in (0, 1) for tool in configuration.tools(agent)}
    needs_reckoning = item.group == "mixed" and not _ARITHMETIC & tools
    needs_records = item.group in _FACTS and not {"search", "lookup"} & tools
    simple = configuration.workflow == "direct" and steps >= _REASONED
    return (
        needs_reckoning
        or needs_records
        or simple
        or (configuration.tier(0) == 0 and steps >= _REASONED)
    )


def _ends_in(said: str, correct: set[str]) -> bool:
    """Whether the last step that was written ends in a right answer."""
    return bool(said) and said.split()[-1] in correct


def _operations(steps: list[str]) -> list[tuple[str, str, str]]:
    """(sign, second number, result) of each step that is a sum."""
    words = [step.split() for step in steps]
    return [(w[1], w[2], w[4]) for w in words if len(w) == 5 and w[3] == "=" and w[1] in "+-*"]


def _wrong_operation(steps: list[str], said: str) -> bool:
    """I.2: the solution has an operation that was never written, or one was written that it has not."""
    wanted, found = _operations(steps), _operations(said.split(" ; "))
    return bool(wanted) and [w[:2] for w in found[: len(wanted)]] != [w[:2] for w in wanted]


def _given_to_a_tool(item: Item, said: str) -> bool:
    """Whether a tool was asked for the question's own sum or product, with whatever first number."""
    sums = [step.partition(" : ")[0].split() for step in said.split(" ; ") if " : " in step]
    return item.group == "mixed" and any(words[1:] == item.prompt.split()[-3:-1] for words in sums)


def _slipped(steps: list[str], said: str) -> bool:
    """I.4: the right operations with another result."""
    wanted, found = _operations(steps), _operations(said.split(" ; "))
    return bool(wanted) and any(
        a[:2] == b[:2] and a[2] != b[2] for a, b in zip(wanted, found, strict=False)
    )
