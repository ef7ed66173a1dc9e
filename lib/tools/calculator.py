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
    parameter = {
        "type": "string",
        "description": "numbers with + - * / // % ** and parentheses, such as 47 * 38",
    }
    return Tool(
        "calculator",
        "Calculates the value of an expression.",
        {"expression": parameter},
        evaluate_expression,
    )


def evaluate_expression(expression: str) -> str:
    """Calculates the value of an expression.

    Returns:
        The value as text: plain where whole, otherwise with 10 significant digits.

    Raises:
        ToolError: It is no expression, has no value, or is beyond a limit.
    """
    if len(expression) > LONGEST:
        raise ToolError(f"calculator takes at most {LONGEST} characters, not {len(expression)}")
    return _format_number(_Parser(expression).parse())


class _Parser:
    """Recursive descent, one method for each level of precedence, computing as it goes."""

    def __init__(self, expression: str):
        self.expression = expression
        self.tokens = _split_into_tokens(expression)
        self.index = 0  # of the next token
        self.depth = 0  # of signs and parentheses around it

    def parse(self) -> Number:
        result = self.parse_sum()
        if self.peek_token():
            raise self.make_error(f"{self.peek_token()!r} stands where the expression should end")
        return result

    def parse_sum(self) -> Number:
        return self.parse_chain(self.parse_product, _SUMS)

    def parse_product(self) -> Number:
        return self.parse_chain(self.parse_signed, _PRODUCTS)

    def parse_chain(
        self, parse_operand: Callable[[], Number], operations: dict[str, Callable]
    ) -> Number:
        """Parses operands joined by operators of one precedence, and computes the result from left to right.

        Args:
            parse_operand: Parses one operand, which has operators of higher precedence only.
            operations: The function of each operator, such as {"+": operator.add}.

        Returns:
            The result.
        """
        result = parse_operand()
        while self.peek_token() in operations:
            sign = self.next_token()
            right_operand = parse_operand()
            result = self.apply_operation(sign, operations[sign], result, right_operand)
        return result

    def parse_signed(self) -> Number:
        """A sign binds less than a power to its right: -2 ** 2 is -4."""
        if self.peek_token() not in _SUMS:
            return self.parse_power()
        sign = self.next_token()
        operand = self.parse_nested(self.parse_signed)
        return -operand if sign == "-" else operand

    def parse_power(self) -> Number:
        """Parses a power and computes it, from right to left; the exponent may have a sign: 2 ** -1 is 0.5.

        Raises:
            ToolError: The exponent is too large.
        """
        base = self.parse_atom()
        if self.peek_token() != "**":
            return base
        self.next_token()
        exponent = self.parse_nested(self.parse_signed)
        if abs(exponent) > LARGEST_EXPONENT:
            raise self.make_error(
                f"the exponent {_format_number(exponent)} is beyond {LARGEST_EXPONENT}"
            )
        return self.apply_operation("**", operator.pow, base, exponent)

    def parse_atom(self) -> Number:
        """Parses a number, or an expression in parentheses.

        Returns:
            Its value.

        Raises:
            ToolError: There is neither, or a parenthesis is not closed.
        """
        token = self.next_token()
        if token == "(":
            inner = self.parse_nested(self.parse_sum)
            if self.next_token() != ")":
                raise self.make_error("a parenthesis is not closed")
            return inner
        # Words such as inf or nan are no numbers here.
        if not token or token[0] not in "0123456789.":
            raise self.make_error(f"a number is missing before {token or 'the end'!r}")
        return self.check_size(float(token) if "." in token else int(token))

    def apply_operation(
        self, sign: str, operation: Callable, left_operand: Number, right_operand: Number
    ) -> Number:
        """Applies an operator to two numbers.

        Args:
            sign: The operator as written, for error messages.
            operation: The function that computes it.
            left_operand: The number before it.
            right_operand: The number behind it.

        Raises:
            ToolError: The result is undefined or too large.
        """
        try:
            return self.check_size(operation(left_operand, right_operand))
        except ZeroDivisionError:
            raise self.make_error("division by zero") from None
        except OverflowError:
            raise self.make_error(f"{sign} gives a number beyond {LARGEST:g}") from None

    def check_size(self, number: Number | complex) -> Number:
        """The number itself. Raises ToolError where it is complex, too large or NaN."""
        if isinstance(number, complex):
            raise self.make_error("a root of a negative number")
        if not abs(number) <= LARGEST:
            raise self.make_error(f"a number beyond {LARGEST:g}")
        return number

    def parse_nested(self, parse_operand: Callable[[], Number]) -> Number:
        """Parses an operand one level deeper; the depth is limited, so that Python's recursion limit is never met.

        Args:
            parse_operand: Parses the operand.

        Raises:
            ToolError: Signs and parentheses are nested too deep.
        """
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.make_error(f"more than {DEEPEST} signs and parentheses within one another")
        result = parse_operand()
        self.depth -= 1
        return result

    def peek_token(self) -> str:
        """The next token, or an empty string at the end."""
        return self.tokens[self.index] if self.index < len(self.tokens) else ""

    def next_token(self) -> str:
        token = self.peek_token()
        self.index += 1
        return token

    def make_error(self, message: str) -> ToolError:
        return _make_error(self.expression, message)


def _split_into_tokens(expression: str) -> list[str]:
    """Splits an arithmetic expression into numbers, operators and parentheses.

    Raises:
        ToolError: It holds a character of no token.
    """
    text = expression.rstrip()
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            character = text[position:].strip()[:1]
            raise _make_error(expression, f"{character!r} is no number, sign or parenthesis")
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def _make_error(expression: str, message: str) -> ToolError:
    shortened = expression if len(expression) <= 60 else expression[:60] + "..."
    return ToolError(f"calculator cannot give {shortened!r}: {message}")


def _format_number(number: Number) -> str:
    # 4 / 2 gives "2": a float is shown as an integer where that loses nothing.
    if isinstance(number, float) and number.is_integer() and abs(number) < _EXACT:
        number = int(number)
    return str(number) if isinstance(number, int) else f"{number:.10g}"
