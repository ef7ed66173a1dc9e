"""Calculator: + - * / // % ** on integers and decimals, with parentheses, by its own small parser.

No name, call or attribute can even be written: whatever is not a number, a sign, a parenthesis or a
blank is refused. Values are Python's own integers and floats, and so are its precedence and rounding.
Length, depth, exponent and size are bounded, so no expression is slow.
"""

import operator
import re
from collections.abc import Callable

from lib.tools.tool import Tool, ToolError

LONGEST = 400  # characters of an expression
DEEPEST = 40  # signs and parentheses within one another
LARGEST_EXPONENT = 100  # absolute
LARGEST = 1e100  # absolute value of any result, also on the way
_EXACT = 2**53  # whole floats below this are exact
_TOKEN = re.compile(r"\s*(\d+\.\d*|\.\d+|\d+|\*\*|//|[-+*/%()])", re.ASCII)
_SUMS = {"+": operator.add, "-": operator.sub}
_PRODUCTS = {"*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod}
Number = int | float


def calculator() -> Tool:
    """A tool that gives the value of an expression. Its call raises ToolError for anything else."""
    about = {
        "type": "string",
        "description": "numbers with + - * / // % ** and parentheses, such as 47 * 38",
    }
    return Tool(
        "calculator", "Calculates the value of an expression.", {"expression": about}, value
    )


def value(expression: str) -> str:
    """The value of an expression as text: plain where whole, otherwise 10 significant digits.

    Raises ToolError where it is no expression, has no value, or is beyond a limit.
    """
    if len(expression) > LONGEST:
        raise ToolError(f"calculator takes at most {LONGEST} characters, not {len(expression)}")
    return _text(_Parser(expression).parsed())


class _Parser:
    """Recursive descent, one method for each level of precedence, computing as it goes."""

    def __init__(self, expression: str):
        self.expression = expression
        self.tokens = _tokens(expression)
        self.place = self.depth = 0

    def parsed(self) -> Number:
        result = self.sum()
        if self.peek():
            raise self.wrong(f"{self.peek()!r} stands where the expression should end")
        return result

    def sum(self) -> Number:
        return self.chain(self.product, _SUMS)

    def product(self) -> Number:
        return self.chain(self.signed, _PRODUCTS)

    def chain(self, part: Callable[[], Number], operations: dict[str, Callable]) -> Number:
        """Parts joined by operations of one precedence, from left to right."""
        result = part()
        while self.peek() in operations:
            sign = self.next()
            result = self.applied(sign, operations[sign], result, part())
        return result

    def signed(self) -> Number:
        """A sign binds less than a power to its right: -2 ** 2 is -4."""
        if self.peek() not in _SUMS:
            return self.power()
        sign = self.next()
        inner = self.deeper(self.signed)
        return -inner if sign == "-" else inner

    def power(self) -> Number:
        """Powers from right to left; the exponent may have a sign: 2 ** -1 is 0.5."""
        base = self.atom()
        if self.peek() != "**":
            return base
        self.next()
        exponent = self.deeper(self.signed)
        if abs(exponent) > LARGEST_EXPONENT:
            raise self.wrong(f"the exponent {_text(exponent)} is beyond {LARGEST_EXPONENT}")
        return self.applied("**", operator.pow, base, exponent)

    def atom(self) -> Number:
        token = self.next()
        if token == "(":
            inner = self.deeper(self.sum)
            if self.next() != ")":
                raise self.wrong("a parenthesis is not closed")
            return inner
        if not token or token[0] not in "0123456789.":
            raise self.wrong(f"a number is missing before {token or 'the end'!r}")
        return self.bounded(float(token) if "." in token else int(token))

    def applied(self, sign: str, operation: Callable, left: Number, right: Number) -> Number:
        try:
            return self.bounded(operation(left, right))
        except ZeroDivisionError:
            raise self.wrong("division by zero") from None
        except OverflowError:
            raise self.wrong(f"{sign} gives a number beyond {LARGEST:g}") from None

    def bounded(self, number: Number | complex) -> Number:
        if isinstance(number, complex):
            raise self.wrong("a root of a negative number")
        if not abs(number) <= LARGEST:
            raise self.wrong(f"a number beyond {LARGEST:g}")
        return number

    def deeper(self, part: Callable[[], Number]) -> Number:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong(f"more than {DEEPEST} signs and parentheses within one another")
        result = part()
        self.depth -= 1
        return result

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.place += 1
        return token

    def wrong(self, message: str) -> ToolError:
        return _wrong(self.expression, message)


def _tokens(expression: str) -> list[str]:
    text, tokens, place = expression.rstrip(), [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise _wrong(
                expression, f"{text[place:].strip()[:1]!r} is no number, sign or parenthesis"
            )
        tokens.append(found.group(1))
        place = found.end()
    return tokens


def _wrong(expression: str, message: str) -> ToolError:
    shown = expression if len(expression) <= 60 else expression[:60] + "..."
    return ToolError(f"calculator cannot give {shown!r}: {message}")


def _text(number: Number) -> str:
    if isinstance(number, float) and number.is_integer() and abs(number) < _EXACT:
        number = int(number)
    return str(number) if isinstance(number, int) else f"{number:.10g}"
