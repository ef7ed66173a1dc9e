"""Code as a notebook cell: where its last expression begins, if it ends in one.

The code is only cut into tokens here, never parsed or compiled: Python's parser can be brought down by
deep nesting. So what is found is a guess that the interpreter has to confirm.
"""

import io
import keyword
import tokenize

_BLOCKS = {
    "if",
    "for",
    "while",
    "with",
    "try",
    "class",
    "def",
    "async",
    "else",
    "elif",
    "except",
    "finally",
    "@",
}
_EXPRESSIONS = {
    "None",
    "True",
    "False",
    "not",
    "lambda",
    "await",
}  # keywords that an expression may begin with
_SILENT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def split(code: str) -> tuple[str, str] | None:
    """What comes before the last statement, and that, if it may be an expression at the outer level."""
    lines = io.StringIO(code)
    starts, depth, nested, fresh, block = (
        [],
        0,
        0,
        True,
        False,
    )  # starts: of the statements on the last line
    try:
        for token in tokenize.generate_tokens(lines.readline):
            depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
            if token.type == tokenize.NEWLINE:
                fresh = True
            elif token.type not in _SILENT:
                if fresh:
                    starts, nested, fresh, block = (
                        [token],
                        0,
                        False,
                        depth > 0 or token.string in _BLOCKS,
                    )
                elif starts[-1] is None:
                    starts[-1] = token
                if token.type == tokenize.OP:
                    nested += (token.string in "([{") - (token.string in ")]}")
                    if nested < 0:
                        return None  # brackets that are put around it would close too early
                    if token.string == ";" and nested == 0:
                        starts.append(None)  # the next token begins a statement
    except (tokenize.TokenError, SyntaxError):
        return None
    if not starts or block or starts[-1] is None:
        return None
    first = starts[-1]
    if keyword.iskeyword(first.string) and first.string not in _EXPRESSIONS:
        return None
    row, column = first.start
    place = sum(len(line) for line in code.split("\n")[: row - 1]) + row - 1 + column
    # a carriage return at the end is a token of its own, and no statement
    return (code[:place], code[place:]) if code[place:].strip() else None
