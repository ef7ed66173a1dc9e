"""The calculator: Python's own arithmetic, and nothing but arithmetic."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tools import ToolError, calculator
from lib.tools.calculator import LARGEST

CALCULATE = calculator()
NUMBERS = st.integers(0, 9_999).map(str) | st.decimals(0, 999, places=2, allow_nan=False).map(str)
SPACES = st.sampled_from(["", " ", "  "])


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    two = st.tuples(inner, SPACES, signs, SPACES, inner).map("".join)
    power = st.tuples(inner, st.integers(-3, 3)).map(lambda p: f"({p[0]}) ** {p[1]}")
    return (
        two
        | two.map(lambda t: f"({t})")
        | inner.map(lambda t: f"-{t}")
        | inner.map(lambda t: f"+ {t}")
        | power
    )


EXPRESSIONS = st.recursive(NUMBERS, joined, max_leaves=8).filter(lambda text: len(text) <= 400)


def calculated(expression: str) -> str:
    return CALCULATE({"expression": expression})


@given(EXPRESSIONS)
def test_it_agrees_with_pythons_own_arithmetic(expression):
    try:
        expected = eval(
            expression, {"__builtins__": {}}
        )  # made of digits, signs and parentheses above
    except ArithmeticError:
        expected = math.inf
    if isinstance(expected, complex) or abs(expected) > LARGEST:
        with pytest.raises(ToolError):
            calculated(expression)
        return
    try:
        found = calculated(expression)
    except ToolError as error:  # a part was too large, or too deep
        assert "beyond" in str(error) or "more than" in str(error)
        return
    exact = isinstance(expected, int)
    assert found == str(expected) if exact else math.isclose(float(found), expected, rel_tol=1e-9)


WORKED = {
    "whole": [
        "47 * 38 = 1786",
        " 4 + 5  = 9",
        "123456789 * 987654321 = 121932631112635269",
        "0 * -1.0 = 0",
    ],
    "fractions": ["7 / 2 = 3.5", "1 / 3 = 0.3333333333", "0.1 + 0.2 = 0.3", "2.50 * 2 = 5"],
    "signs": ["-7 // 2 = -4", "-7 % 3 = 2", "-2 ** 2 = -4"],
    "powers": ["2 ** 3 ** 2 = 512", "2 ** -1 = 0.5"],
    "spelling": ["007 + 1 = 8", ".5 + 5. = 5.5", "4\n+\t4 = 8"],
}


@pytest.mark.parametrize(
    "equation", [equation for equations in WORKED.values() for equation in equations]
)
def test_worked_values(equation):
    expression, value = equation.split(" = ")
    assert calculated(expression) == value


NO_ARITHMETIC = {
    "a number is missing before 'the end'": ["", "   ", "1 +"],
    "a number is missing before ')'": ["()"],
    "should end": ["1 2", "1)", "1.5.2"],
    "not closed": ["(1"],
    "division by zero": ["1 / 0", "1 // 0", "1 % 0", "0 ** -1"],
    "exponent 101 is beyond 100": ["2 ** 101"],
    "exponent": ["2 ** -101", "9 ** 9 ** 9"],
    "beyond 1e+100": ["10 ** 100 * 10 ** 100", "9" * 200, "99999 ** 99 / 3"],
    "root of a negative": ["(-8) ** 0.5"],
    "at most 400": ["1" * 401],
    "within one another": ["(" * 60 + "1" + ")" * 60, "-" * 60 + "1"],
    "'_' is no number": ["1_000", "__import__('os')"],
    "',' is no number": ["1,000"],
    "'x' is no number": ["0x10"],
    "'e' is no number": ["1e5"],
    "'j' is no number": ["2j"],
    "'<' is no number": ["1 << 9"],
    "is no number": ["٣ + ١", "\x00"],
}


@pytest.mark.parametrize(
    "message, expression", [(m, e) for m, texts in NO_ARITHMETIC.items() for e in texts]
)
def test_what_is_no_arithmetic_is_refused_by_name(message, expression):
    with pytest.raises(ToolError, match="^calculator ") as caught:
        calculated(expression)
    assert message in str(caught.value) and len(str(caught.value)) < 250


@given(st.text(max_size=60))
def test_any_text_has_a_value_or_is_refused(text):
    with contextlib.suppress(ToolError):
        float(calculated(text))


@given(st.text(alphabet="abcxyz_.()[]{}'\"=:;,@!", min_size=1, max_size=40))
def test_names_calls_and_attributes_never_have_a_value(text):
    with pytest.raises(ToolError):
        calculated(text)
