"""Tests of claims: a small language of numbers, names, metrics in braces, and a comparison.

    "{05_budgeted_routing: corl.high.reward} > {random.high.reward}"
    "hypervolume([[1, 1, 0]], -1) == 4"

Python's own grammar, read by `ast` and walked here; nothing is ever handed to `eval`. There are + - * /, min, max
and abs, the functions of a whitelist, one comparison at the top, and names for numbers that a claim quotes. A key
in braces stands for an estimate and brings its interval; `exact({key})` says of a metric without one that nothing
was sampled. Anything else is refused by name.
"""

import ast
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lib.scoreboard.errors import ClaimError
from lib.stats import Interval, interval_arithmetic

MetricKey = tuple[str, str]  # lesson ("" for the claim's own), key
Lookup = Callable[[str, str], Interval]

_BRACES = re.compile(r"\{\s*(?:(?P<lesson>\d{2}[a-z]?_\w+)\s*:\s*)?(?P<key>[\w.+-]+)\s*\}")
_METRIC_PREFIX = "metric_"  # {key} becomes metric_0, metric_1, ... before Python parses the test
_METRIC_NAME = re.compile(r"metric_\d")
MAX_CHARACTERS = 500  # of a test; ast walks each as deep as it is
_COMPARISONS = {ast.Gt: ">", ast.Lt: "<", ast.GtE: ">=", ast.LtE: "<=", ast.Eq: "=="}
# Operators and functions take estimates with intervals and return one.
_OPERATORS = {
    ast.Add: interval_arithmetic.plus,
    ast.Sub: interval_arithmetic.minus,
    ast.Mult: interval_arithmetic.times,
    ast.Div: interval_arithmetic.over,
}
_BUILT_IN = {
    "min": interval_arithmetic.least,
    "max": interval_arithmetic.most,
    "abs": interval_arithmetic.size,
}
_EXACT = "exact"  # declares that a metric without an interval was not sampled


@dataclass(frozen=True)
class ParsedTest:
    """A test that is well formed.

    Attributes:
        lhs: What stands left of the comparison, or the whole test where there is none.
        rhs: What stands right of it; None without a comparison.
        comparison: <, >, <=, >=, == or None.
        metric_keys: Every metric that it reads, in order.
    """

    lhs: ast.expr
    rhs: ast.expr | None
    comparison: str | None
    metric_keys: tuple[MetricKey, ...]


def parse_test(
    text: str, quotes: Collection[str] = (), functions: Collection[str] = ()
) -> ParsedTest:
    """Reads a test, once for each text in this process.

    Args:
        text: Such as "{reward.corl} > {reward.constant}".
        quotes: Names of the paper's numbers that it may use.
        functions: Names of the functions that it may call.

    Returns:
        The two sides, the comparison between them, and the metrics that it reads.

    Raises:
        ClaimError: It is not of the language, or a metric stands in it twice: intervals are combined as those of
            independent estimates.
    """
    return _parse_test_once(text, frozenset(quotes), frozenset(functions))


@lru_cache(maxsize=4096)
def _parse_test_once(text: str, quotes: frozenset[str], functions: frozenset[str]) -> ParsedTest:
    """Parses a test expression; equal arguments give the cached result.

    Args:
        text: The expression.
        quotes: Names of numbers that are quoted from a paper.
        functions: Names of functions that are allowed besides the built-in ones.

    Returns:
        Both sides of the comparison as syntax trees, its sign, and the metrics that are read.
    """
    if len(text) > MAX_CHARACTERS:
        raise ClaimError(
            f"{text[:60]!r}... has {len(text):,} characters; a test has at most {MAX_CHARACTERS}"
        )

    # No name may look like the placeholder of a metric. Python normalises names (NFKC), so we do it first.
    names_in_use = " ".join([_BRACES.sub("", text), *sorted(quotes)])
    reserved = _METRIC_NAME.search(unicodedata.normalize("NFKC", names_in_use))
    if reserved:
        raise ClaimError(
            f"{text!r}: the name {reserved[0]!r} stands for a metric in braces; choose another"
        )

    # Every metric in braces becomes a name that Python can parse.
    metric_keys: list[MetricKey] = []

    def replace_braces(match: re.Match[str]) -> str:
        metric_keys.append((match["lesson"] or "", match["key"]))
        return f"{_METRIC_PREFIX}{len(metric_keys) - 1}"

    source = _BRACES.sub(replace_braces, text)
    if len(set(metric_keys)) < len(metric_keys):
        raise ClaimError(
            f"{text!r} reads a metric twice, but its interval is that of independent ones"
        )
    # Python's parser gives up on deep nesting with any of these errors.
    try:
        body = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.args[0] if error.args else "too deep"
        raise ClaimError(f"{text!r} cannot be read: {reason}") from error

    # Split at the comparison, and check both sides.
    lhs, rhs, comparison = body, None, None
    if isinstance(body, ast.Compare):
        if len(body.ops) != 1 or type(body.ops[0]) not in _COMPARISONS:
            raise ClaimError(
                f"{text!r} must hold one comparison: {' '.join(_COMPARISONS.values())}"
            )
        lhs = body.left
        rhs = body.comparators[0]
        comparison = _COMPARISONS[type(body.ops[0])]
    allowed_names = {f"{_METRIC_PREFIX}{index}" for index in range(len(metric_keys))} | quotes
    for expression in (lhs, rhs):
        if expression is not None:
            _check_node(expression, text, allowed_names, functions)
    return ParsedTest(lhs, rhs, comparison, tuple(metric_keys))


def _check_node(node: ast.AST, text: str, names: set[str], functions: Collection[str]) -> None:
    """Checks that an expression has only numbers, known names, arithmetic and allowed function calls.

    Args:
        node: Syntax tree of the expression; its children are checked recursively.
        text: The expression as it was written, for error messages.
        names: Names of variables that are allowed.
        functions: Names of functions that are allowed besides the built-in ones.

    Raises:
        ClaimError: It has anything else.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        # Python reads 1e400 as infinity, and integers of any size.
        if abs(node.value) > sys.float_info.max:
            raise ClaimError(f"{text!r} holds a number beyond all floats")
        return
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ClaimError(f"{text!r} has the unknown name {node.id!r}; quote it under `quotes`")
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check_node(node.left, text, names, functions)
        _check_node(node.right, text, names, functions)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        _check_node(node.operand, text, names, functions)
    elif isinstance(node, ast.Call):
        _check_call(node, text, names, functions)
    else:
        raise ClaimError(
            f"{text!r} holds a {type(node).__name__}, which tests of claims do not have"
        )


def _check_call(node: ast.Call, text: str, names: set[str], functions: Collection[str]) -> None:
    """Checks that a call names an allowed function and has arguments of the right kind.

    Args:
        node: Syntax tree of the call.
        text: The whole expression, for error messages.
        names: Names of variables that are allowed in arguments.
        functions: Names of functions that are allowed besides the built-in ones.

    Raises:
        ClaimError: The function is not allowed, or an argument is of the wrong kind.
    """
    callable_names = sorted({*_BUILT_IN, _EXACT, *functions})
    if not isinstance(node.func, ast.Name) or node.func.id not in callable_names:
        raise ClaimError(
            f"{text!r} calls {ast.unparse(node.func)!r}; there are {', '.join(callable_names)}"
        )
    name = node.func.id
    has_star = any(isinstance(argument, ast.Starred) for argument in node.args)
    if node.keywords or has_star:
        raise ClaimError(
            f"{text!r}: arguments of {name} stand in their order, without names or stars"
        )
    if name == _EXACT:
        is_metric = [
            isinstance(argument, ast.Name) and argument.id.startswith(_METRIC_PREFIX)
            for argument in node.args
        ]
        if is_metric != [True]:
            raise ClaimError(f"{text!r}: exact takes one metric in braces")

    # min, max, abs and exact take estimates; functions of the whitelist take literals.
    takes_estimates = name in _BUILT_IN or name == _EXACT
    for argument in node.args:
        if takes_estimates:
            _check_node(argument, text, names, functions)
        else:
            _read_literal(argument, text)


def _read_literal(node: ast.AST, text: str) -> Any:
    """Reads an argument that is a number, a string in quotation marks, or a list of these.

    Args:
        node: Syntax tree of the argument.
        text: The whole expression, for the error message.

    Raises:
        ClaimError: It is anything else.
    """
    # None is no literal of the language, so it stands for what cannot be read.
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        value = None
    if not _is_plain_value(value):
        raise ClaimError(
            f"{text!r}: a function takes numbers, names and lists, got {ast.unparse(node)!r}"
        )
    return value


def _is_plain_value(value: Any) -> bool:
    """Whether a value is a finite number, a string, or a list of such values; truth values are refused."""
    if isinstance(value, list):
        return all(map(_is_plain_value, value))
    if isinstance(value, str):
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


@dataclass(frozen=True)
class Evaluator:
    """What names stand for while a test is evaluated.

    Attributes:
        lookup: From (lesson, key) to the estimate of a metric.
        quotes: Numbers that the paper prints, by name.
        functions: The functions that a test may call, by name.
    """

    lookup: Lookup
    quotes: Mapping[str, float]
    functions: Mapping[str, Callable[..., float]]

    def evaluate(self, node: ast.expr, metric_keys: tuple[MetricKey, ...]) -> Interval:
        """Computes one side of a parsed test, with its interval.

        Args:
            node: `ParsedTest.lhs` or `ParsedTest.rhs`.
            metric_keys: `ParsedTest.metric_keys`; metric_0 in the expression is the first of them.

        Returns:
            The value with its interval.
        """
        match node:
            case ast.Constant():
                return interval_arithmetic.exact(node.value)
            case ast.Name() if node.id in self.quotes:
                return interval_arithmetic.exact(self.quotes[node.id])
            case ast.Name():
                index = int(node.id.removeprefix(_METRIC_PREFIX))
                return self.lookup(*metric_keys[index])
            case ast.UnaryOp():
                operand = self.evaluate(node.operand, metric_keys)
                if isinstance(node.op, ast.USub):
                    return interval_arithmetic.negative(operand)
                return operand
            case ast.BinOp():
                combine = _OPERATORS[type(node.op)]
                lhs = self.evaluate(node.left, metric_keys)
                rhs = self.evaluate(node.right, metric_keys)
                return combine(lhs, rhs)
            case ast.Call():
                return self._evaluate_call(node, metric_keys)
        # Cannot happen: `parse_test` has refused every other node.
        raise ClaimError(f"a test holds a {type(node).__name__}")

    def _evaluate_call(self, node: ast.Call, metric_keys: tuple[MetricKey, ...]) -> Interval:
        """Evaluates a function call of an expression.

        Args:
            node: Syntax tree of the call.
            metric_keys: The metrics that the whole expression reads.

        Returns:
            An interval; that of a function of literals has no width.
        """
        name = node.func.id  # type: ignore[attr-defined]
        if name in self.functions:
            literals = [_read_literal(argument, name) for argument in node.args]
            return interval_arithmetic.exact(self.functions[name](*literals))

        # min, max, abs and exact work on estimates.
        estimates = [self.evaluate(argument, metric_keys) for argument in node.args]
        if name == _EXACT:
            estimate = estimates[0]
            return estimate if estimate.known else interval_arithmetic.exact(estimate.value)
        return _BUILT_IN[name](*estimates)
