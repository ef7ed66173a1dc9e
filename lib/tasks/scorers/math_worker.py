"""The process in which math-verify compares expressions; run as a program by `math_process`, imports nothing of ours.

A line of JSON comes in, a line of JSON goes out, until the input ends. Timeouts are the host's business.
"""

import contextlib
import json
import logging
import re
import sys

_PROTOCOL = sys.stdout  # what math-verify prints must not get into the answers
_DELIMITERS = re.compile(r"\$|\\\(|\\\)|\\\[|\\\]")
# A tower of powers would be computed to the last digit.
_TOWER = re.compile(
    r"\^\s*\{?\s*\d{5,}|\^[^\^]{1,12}\^[^\^]{1,12}\^|\d{3,}\s*!|!\s*!|\*\*\s*\d{5,}"
)


def main() -> None:
    """Answers requests until the input ends."""
    _limit_memory(int(sys.argv[1]))
    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401, so that the first comparison does not wait for it

    sys.stdout = sys.stderr
    for line in sys.stdin:
        # An empty line asks whether the process is ready.
        result = compare(**json.loads(line)) if line.strip() else {}
        _PROTOCOL.write(json.dumps(result) + "\n")
        _PROTOCOL.flush()


def compare(references: list[str], answer: str, is_expression: bool) -> dict[str, object]:
    """Compares a mathematical answer with references by math-verify.

    Args:
        references: Expressions in LaTeX; it is enough that the answer equals one of them.
        answer: An expression, or a text that holds one.
        is_expression: Whether the answer is nothing but an expression.

    Returns:
        "equal": whether it equals a reference; "parsed": the answer as math-verify read it, None where it could not.
    """
    from math_verify import verify

    parsed_answer = parse_text(answer, is_expression)
    equal = False
    for reference in references:
        parsed_reference = parse_text(reference)
        # Errors inside count as "not equal", as math-verify has it.
        with contextlib.suppress(Exception):
            equal = equal or verify(parsed_reference, parsed_answer, timeout_seconds=None)
    # What cannot be parsed comes back as the text that was tried.
    parsed = str(parsed_answer[-1])[:400] if parsed_answer else None
    return {"equal": bool(equal), "parsed": parsed}


def parse_text(text: str, is_expression: bool = True) -> list:
    """Parses a mathematical expression with math-verify.

    Args:
        text: An expression in LaTeX, or a text that holds one.
        is_expression: Whether the text is nothing but an expression.

    Returns:
        What math-verify's `parse` returns; empty for no expression, or for powers too large to be computed.
    """
    from math_verify import parse

    if _TOWER.search(text):
        return []
    if is_expression:
        # Its parser reads LaTeX between math delimiters only.
        text = f"${_DELIMITERS.sub(' ', text).strip()}$"
    try:
        return parse(text, parsing_timeout=None)
    except Exception:  # the parser may raise anything on text that is no mathematics
        return []


def _limit_memory(num_bytes: int) -> None:
    """Limit the address space of this process, on platforms that have such a limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))


if __name__ == "__main__":
    main()
