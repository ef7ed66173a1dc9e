"""Code as a notebook cell: where its last expression begins, if it ends in one.

The code is only cut into tokens here, never parsed or compiled: Python's parser can be brought down by
deep nesting. So what is found is a guess that the interpreter has to confirm.
"""

import io
import keyword
import tokenize

# What a statement with a block begins with.
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
# Keywords that an expression may begin with.
_EXPRESSIONS = {"None", "True", "False", "not", "lambda", "await"}
_SILENT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def split_last_expression(code: str) -> tuple[str, str] | None:
    """Splits code before its last statement.

    Returns:
        The code before the last statement, and the last statement; None where that cannot be an expression at the
        outer level.
    """
    last_start = None  # first token of the last statement, None after a semicolon
    indentation = 0
    open_brackets = 0
    at_line_start = True
    in_block = False
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.INDENT:
                indentation += 1
            if token.type == tokenize.DEDENT:
                indentation -= 1
            if token.type == tokenize.NEWLINE:
                at_line_start = True
            if token.type == tokenize.NEWLINE or token.type in _SILENT:
                continue

            if at_line_start:
                last_start = token
                open_brackets = 0
                at_line_start = False
                in_block = indentation > 0 or token.string in _BLOCKS
            elif last_start is None:
                last_start = token

            if token.type == tokenize.OP:
                open_brackets += token.string in "([{"
                open_brackets -= token.string in ")]}"
                if open_brackets < 0:
                    return None  # brackets that are put around it would close too early
                if token.string == ";" and open_brackets == 0:
                    last_start = None  # the next token begins a statement
    except (tokenize.TokenError, SyntaxError):
        return None

    if in_block or last_start is None:
        return None
    if keyword.iskeyword(last_start.string) and last_start.string not in _EXPRESSIONS:
        return None

    row, column = last_start.start  # the row counts from 1
    earlier_lines = code.split("\n")[: row - 1]
    offset = sum(len(line) + 1 for line in earlier_lines) + column
    statement = code[offset:]
    # A carriage return at the end is a token of its own, and no statement.
    return (code[:offset], statement) if statement.strip() else None
