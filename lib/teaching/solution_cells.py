"""Code cells tagged `solution`: a lesson shows the worked function, a student copy only its stub.

The stub is cut out of the source text, not written anew from the syntax tree, so that comments and line
breaks of signatures stay as they are. Statements outside functions stay too: a solution belongs into a
function. A cell without a function, or one that is not plain Python (`%time`), is blanked whole.
"""

import ast
from collections.abc import Iterator

import nbformat

TAG = "solution"
STUB_TAG = "stub"
BLANK_CELL = "# Your code here"
_INDENT = 4  # blanks

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_solution(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell holds what students are to write themselves."""
    return TAG in cell.metadata.get("tags", [])


def make_stub_cell(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A student's version of a code cell tagged `solution`."""
    return nbformat.v4.new_code_cell(blank_functions(cell.source), metadata={"tags": [STUB_TAG]})


def list_function_names(source: str) -> list[str]:
    """The names of a cell's outermost functions; none where the code is not plain Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [name for name, _ in _list_functions(tree)]


def blank_functions(source: str) -> str:
    """Replaces the body of every function and method by `raise NotImplementedError`.

    Args:
        source: The code of a cell.

    Returns:
        The code with decorators, signatures, docstrings and statements outside functions unchanged;
        `# Your code here` where there is no function, or where the code is not plain Python.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return BLANK_CELL
    functions = list(_list_functions(tree))
    if not functions:
        return BLANK_CELL
    lines = source.splitlines()
    # From the last function to the first, so that the line numbers of the others stay right.
    for name, function in sorted(functions, key=lambda pair: pair[1].lineno, reverse=True):
        end_line = _find_end_line(lines, function)
        lines[function.lineno - 1 : end_line] = _write_stub(source, name, function)
    return "\n".join(lines)


def _list_functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Lists the outermost functions of a program, and the methods of its classes.

    Args:
        node: Syntax tree.
        prefix: Put before names, such as "Router." within a class.

    Yields:
        (name such as "Router.choose", syntax tree) of each.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _list_functions(child, f"{prefix}{child.name}.")
        else:
            yield from _list_functions(child, prefix)


def _write_stub(source: str, name: str, function: _Function) -> list[str]:
    """Writes a function without its body, which raises NotImplementedError instead.

    Args:
        source: The whole program.
        name: Name of the function.
        function: Its syntax tree.

    Returns:
        Lines: signature, docstring and the raise.
    """
    first_statement = function.body[0]
    decorators = getattr(first_statement, "decorator_list", [])  # of a function inside the function
    body_start = min([first_statement, *decorators], key=lambda node: node.lineno)

    # The signature ends before the body; a decorator's node begins behind its @.
    lines = source.splitlines()
    header = lines[function.lineno - 1 : body_start.lineno]
    text_before = header[-1].encode()[: body_start.col_offset].decode()  # columns count bytes
    header[-1] = text_before.rstrip().removesuffix("@").rstrip()
    while not header[-1] or header[-1].lstrip().startswith("#"):
        header.pop()  # comments above the first statement are part of the solution

    indent = " " * (function.col_offset + _INDENT)
    stub = header
    if ast.get_docstring(function) is not None:
        docstring = ast.get_source_segment(source, first_statement)
        stub += (indent + docstring).splitlines()
    return [*stub, f'{indent}raise NotImplementedError("Exercise: write {name}")']


def _find_end_line(lines: list[str], function: _Function) -> int:
    """Finds the last line of a function, comments at the end of its body included.

    Args:
        lines: Lines of the program.
        function: Syntax tree of the function.

    Returns:
        Its number, counted from 1.
    """
    end_line = function.end_lineno
    for number, line in enumerate(lines[end_line:], end_line + 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        is_inside = len(line) - len(line.lstrip()) > function.col_offset
        if text and is_inside:
            end_line = number
    return end_line
