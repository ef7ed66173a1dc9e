"""Why an answer was wrong: the four kinds of ARC's appendix I, by rules over an episode.

The first rule that fits decides, in the paper's order: configuration, extraction, reasoning, arithmetic, knowledge.
Rules are the paper's, applied to what an episode has here: notes instead of prose, and as a low budget the lowest tier
instead of 256 tokens.
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
_MANY_STEPS = 3  # of a solution, which a single answer cannot replace (appendix I.2)
_RETRIEVAL_TOOLS = {"search", "lookup", "python"}
_ARITHMETIC_TOOLS = {"calculator", "python"}
_KINDS_WITH_FACTS = {"facts", "mixed"}  # kinds of questions that ask for a record

Operation = tuple[str, str, str]  # of a step such as "7 + 8 = 15": sign, second number, result


def classify(item: Item, configuration: Configuration, outcome: ConfiguredAnswer) -> str:
    """Classify why an answer is wrong.

    Args:
        item: The question, with a worked solution in steps.
        configuration: The configuration that answered it.
        outcome: The wrong answer, with the notes that the agents wrote on their way to it.

    Returns:
        The first of these kinds that fits, otherwise "reasoning" where there is no answer, and "unclassified" where
        there is one:

        configuration: The workflow, the budget or the tools are too small for the question.
        extraction: An agent wrote the right answer, and another one was given.
        reasoning: The steps of the solution are missing, or have other operations.
        arithmetic: The operations are right, and a result is wrong.
        knowledge: A fact was looked up, and the answer is wrong all the same; or it was not found.

    Raises:
        ValueError: The answer is right.
    """
    if outcome.correct:
        raise ValueError(
            f"the answer {outcome.answer!r} is right; only wrong ones have a kind of error"
        )
    solution = item.worked_solution.split(" ; ")  # steps
    written = " ; ".join(note.steps for note in outcome.trail)  # by all agents
    if _is_misconfigured(item, configuration, len(solution)):
        return "configuration"

    # The right answer in a note, or at the end of what was written
    right_answers = {item.reference, answer_in_words(item).reference}
    is_in_note = any(note.answer in right_answers for note in outcome.trail)
    if is_in_note or _ends_in(written, right_answers):
        return "extraction"

    # No steps at all, or the wrong ones
    lacks_steps = not written and len(solution) >= _MANY_STEPS
    has_other_operations = _has_other_operations(solution, written)
    if lacks_steps or (has_other_operations and not _was_given_to_tool(item, written)):
        return "reasoning"

    # Right operations with a wrong result
    if _has_wrong_result(solution, written):
        return "arithmetic"
    # A fact was looked up, or the lookup says that it found nothing
    used_retrieval = bool(_RETRIEVAL_TOOLS & set(outcome.tools))
    if item.group in _KINDS_WITH_FACTS and (used_retrieval or NOTHING in written.split()):
        return "knowledge"
    return "reasoning" if outcome.answer is None else "unclassified"


def _is_misconfigured(item: Item, configuration: Configuration, num_steps: int) -> bool:
    """Check whether a configuration is too small for a question (appendix I.1).

    Args:
        item: The question.
        configuration: The configuration that answered it.
        num_steps: Number of steps of the solution.

    Returns:
        Whether many steps meet the workflow of a single call or the lowest budget, or whether no agent has a tool that
        the kind of question needs.
    """
    tools = {*configuration.tools(0), *configuration.tools(1)}
    lacks_arithmetic = item.group == "mixed" and not _ARITHMETIC_TOOLS & tools
    lacks_records = item.group in _KINDS_WITH_FACTS and not {"search", "lookup"} & tools
    has_many_steps = num_steps >= _MANY_STEPS
    # What a single call, or the lowest budget of the first agent, cannot hold
    is_single_call = configuration.workflow == "direct"
    has_lowest_budget = configuration.tier(0) == 0
    is_too_simple = has_many_steps and (is_single_call or has_lowest_budget)
    return lacks_arithmetic or lacks_records or is_too_simple


def _ends_in(written: str, right_answers: set[str]) -> bool:
    """Check whether the last word that was written is a right answer."""
    return bool(written) and written.split()[-1] in right_answers


def _read_operations(steps: list[str]) -> list[Operation]:
    """Parse the arithmetic among steps, such as ("+", "8", "15") from "7 + 8 = 15".

    Args:
        steps: Steps of a solution.

    Returns:
        Operator, second number and result of each.
    """
    operations = []
    for step in steps:
        words = step.split()
        if len(words) == 5 and words[3] == "=" and words[1] in "+-*":
            operations.append((words[1], words[2], words[4]))
    return operations


def _has_other_operations(solution: list[str], written: str) -> bool:
    """Check whether the operations that were written differ from those of the solution (appendix I.2).

    Args:
        solution: Steps of the solution.
        written: What the agents wrote, steps with " ; " between them.

    Returns:
        Whether sign or second number of an operation differ, in order, or an operation is missing. False for a solution
        without operations.
    """
    expected = _read_operations(solution)
    found = _read_operations(written.split(" ; "))[: len(expected)]
    expected_without_results = [operation[:2] for operation in expected]
    found_without_results = [operation[:2] for operation in found]
    return bool(expected) and found_without_results != expected_without_results


def _was_given_to_tool(item: Item, written: str) -> bool:
    """Check whether a tool computed the operation that the question asks for, whatever the first number.

    Args:
        item: The question; one of the kind "mixed" ends in an operation, such as "+ 38 ?".
        written: What the agents wrote; the step of a tool is "call : result".

    Returns:
        Whether a call ends in the question's sign and second number.
    """
    if item.group != "mixed":
        return False
    asked_operation = item.prompt.split()[-3:-1]  # sign and second number
    for step in written.split(" ; "):
        call, separator, _ = step.partition(" : ")
        if separator and call.split()[1:] == asked_operation:
            return True
    return False


def _has_wrong_result(solution: list[str], written: str) -> bool:
    """Check whether an operation of the solution was written with another result (appendix I.4).

    Args:
        solution: Steps of the solution.
        written: What the agents wrote, steps with " ; " between them.

    Returns:
        Whether one was, with the same operator and second number.
    """
    expected = _read_operations(solution)
    found = _read_operations(written.split(" ; "))
    for expected_operation, found_operation in zip(expected, found, strict=False):
        is_same_operation = expected_operation[:2] == found_operation[:2]
        if is_same_operation and expected_operation[2] != found_operation[2]:
            return True
    return False
