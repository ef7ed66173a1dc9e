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

Key = tuple[str, str]  # lesson ("" for the claim's own), key
Lookup = Callable[[str, str], Interval]

_BRACES = re.compile(r"\{\s*(?:(?P<lesson>\d{2}_\w+)\s*:\s*)?(?P<key>[\w.+-]+)\s*\}")
_METRIC = re.compile(r"metric_\d")  # what braces become
LONGEST = 500  # characters of a test; ast walks each as deep as it is
_SIGNS = {ast.Gt: ">", ast.Lt: "<", ast.GtE: ">=", ast.LtE: "<=", ast.Eq: "=="}
_STEPS = {
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
_EXACT = "exact"


@dataclass(frozen=True)
class Parsed:
    """A test that is well formed. left, right: its sides (right None without a comparison); sign: <, >, <=, >=, ==
    or None; keys: every metric that it reads, in order."""

    left: ast.expr
    right: ast.expr | None
    sign: str | None
    keys: tuple[Key, ...]


def parse(text: str, quotes: Collection[str] = (), functions: Collection[str] = ()) -> Parsed:
    """Read a test, once for each text in this process.

    Args:
        text: Such as "{reward.corl} > {reward.constant}".
        quotes: Names of the paper's numbers that it may use.
        functions: Names of the functions that it may call.

    Raises:
        ClaimError: It is not of the language, or a metric stands in it twice: intervals are combined as those of
            independent estimates.
    """
    return _parse_once(text, frozenset(quotes), frozenset(functions))


@lru_cache(maxsize=4096)
def _parse_once(text: str, quotes: frozenset[str], functions: frozenset[str]) -> Parsed:
    if len(text) > LONGEST:
        raise ClaimError(
            f"{text[:60]!r}... has {len(text):,} characters; a test has at most {LONGEST}"
        )
    plain = unicodedata.normalize(
        "NFKC", " ".join([_BRACES.sub("", text), *sorted(quotes)])
    )  # as Python reads names
    if taken := _METRIC.search(plain):
        raise ClaimError(
            f"{text!r}: the name {taken[0]!r} stands for a metric in braces; choose another"
        )
    keys: list[Key] = []

    def named(match: re.Match[str]) -> str:
        keys.append((match["lesson"] or "", match["key"]))
        return f"metric_{len(keys) - 1}"

    source = _BRACES.sub(named, text)
    if len(set(keys)) < len(keys):
        raise ClaimError(
            f"{text!r} reads a metric twice, but its interval is that of independent ones"
        )
    try:
        body = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ClaimError(
            f"{text!r} cannot be read: {error.args[0] if error.args else 'too deep'}"
        ) from error
    known = {*quotes, *(f"metric_{place}" for place in range(len(keys)))}
    left, right, sign = body, None, None
    if isinstance(body, ast.Compare):
        if len(body.ops) != 1 or type(body.ops[0]) not in _SIGNS:
            raise ClaimError(f"{text!r} must hold one comparison: {' '.join(_SIGNS.values())}")
        left, right, sign = body.left, body.comparators[0], _SIGNS[type(body.ops[0])]
    for side in (left, right):
        if side is not None:
            _check(side, text, known, functions)
    return Parsed(left, right, sign, tuple(keys))


def _check(node: ast.AST, text: str, names: set[str], functions: Collection[str]) -> None:
    """Refuse everything that the language does not have."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if abs(node.value) > sys.float_info.max:
            raise ClaimError(f"{text!r} holds a number beyond all floats")
        return
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ClaimError(f"{text!r} has the unknown name {node.id!r}; quote it under `quotes`")
    elif isinstance(node, ast.BinOp) and type(node.op) in _STEPS:
        _check(node.left, text, names, functions)
        _check(node.right, text, names, functions)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        _check(node.operand, text, names, functions)
    elif isinstance(node, ast.Call):
        _check_call(node, text, names, functions)
    else:
        raise ClaimError(
            f"{text!r} holds a {type(node).__name__}, which tests of claims do not have"
        )


def _check_call(node: ast.Call, text: str, names: set[str], functions: Collection[str]) -> None:
    known = sorted({*_BUILT_IN, _EXACT, *functions})
    if not isinstance(node.func, ast.Name) or node.func.id not in known:
        raise ClaimError(f"{text!r} calls {ast.unparse(node.func)!r}; there are {', '.join(known)}")
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        raise ClaimError(
            f"{text!r}: arguments of {node.func.id} stand in their order, without names or stars"
        )
    if node.func.id == _EXACT:
        metric = [a for a in node.args if isinstance(a, ast.Name) and a.id.startswith("metric_")]
        if len(node.args) != 1 or not metric:
            raise ClaimError(f"{text!r}: exact takes one metric in braces")
    inner = node.func.id in _BUILT_IN or node.func.id == _EXACT
    for argument in node.args:
        if inner:
            _check(argument, text, names, functions)
        else:
            _literal(argument, text)


def _literal(node: ast.AST, text: str) -> Any:
    """An argument of a function: numbers, names in quotation marks, and lists of them."""
    try:
        found = ast.literal_eval(node)
    except (ValueError, TypeError):
        found = None
    if not _plain(found):
        raise ClaimError(
            f"{text!r}: a function takes numbers, names and lists, got {ast.unparse(node)!r}"
        )
    return found


def _plain(value: Any) -> bool:
    """Whether a value is a number, a name, or a list of such; all numbers are floats."""
    if isinstance(value, list):
        return all(map(_plain, value))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) or (number and abs(value) <= sys.float_info.max)


@dataclass(frozen=True)
class Evaluator:
    """What names stand for while a test is evaluated. lookup: (lesson, key) -> its estimate."""

    lookup: Lookup
    quotes: Mapping[str, float]
    functions: Mapping[str, Callable[..., float | Interval]]

    def side(self, node: ast.expr, keys: tuple[Key, ...]) -> Interval:
        """The value of one side of a parsed test, with its interval."""
        match node:
            case ast.Constant():
                return interval_arithmetic.exact(node.value)
            case ast.Name() if node.id in self.quotes:
                return interval_arithmetic.exact(self.quotes[node.id])
            case ast.Name():
                return self.lookup(*keys[int(node.id.removeprefix("metric_"))])
            case ast.UnaryOp():
                operand = self.side(node.operand, keys)
                return (
                    interval_arithmetic.negative(operand)
                    if isinstance(node.op, ast.USub)
                    else operand
                )
            case ast.BinOp():
                return _STEPS[type(node.op)](
                    self.side(node.left, keys), self.side(node.right, keys)
                )
            case ast.Call():
                return self._call(node, keys)
        raise ClaimError(f"a test holds a {type(node).__name__}")  # cannot be: `parse` refused it

    def _call(self, node: ast.Call, keys: tuple[Key, ...]) -> Interval:
        name = node.func.id  # type: ignore[attr-defined]
        if name in self.functions:
            arguments = [_literal(argument, name) for argument in node.args]
            found = self.functions[name](*arguments)
            return found if isinstance(found, Interval) else interval_arithmetic.exact(found)
        sides = [self.side(argument, keys) for argument in node.args]
        if name == _EXACT:
            return sides[0] if sides[0].known else interval_arithmetic.exact(sides[0].value)
        return _BUILT_IN[name](*sides)
