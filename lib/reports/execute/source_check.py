"""What can be refused in a notebook before it runs, with all cells at fault at once.

    problems = find_problems(notebook, Path("notebooks"))

A lesson takes minutes to hours, so an image on the network or a missing bracket must not be found at its end. Markdown
is rendered as the page will render it; code is parsed, and HTML that it holds as literal text is read. Left out: what
only running the code can tell, such as HTML that it computes.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from lib.plots import accessibility_check
from lib.reports import html, markdown

PARAMETERS_TAG = "parameters"
MAY_FAIL_TAG = "raises-exception"
KNOWN_TAGS = {
    PARAMETERS_TAG,
    MAY_FAIL_TAG,
    "exercise",
    "hide",
    "notes",
    "quiz",
    "reading",
    "solution",
    "stub",
}
_HTML_MAGIC = re.compile(r"\s*%%(?:html|HTML|svg|SVG)\b[^\n]*\n")
_NETWORK = re.compile(r"\s*(?:https?:|ftp:|//)", re.IGNORECASE)
# Functions of IPython.display, by what their first argument is.
_TAKES_HTML = {"HTML", "display_html"}
_TAKES_ADDRESS = {"Image", "SVG", "IFrame", "Video", "Audio", "Javascript"}
_TAKES_NETWORK_ID = {"YouTubeVideo", "VimeoVideo", "ScribdDocument"}
_PLACEHOLDER = "data:,"  # stands for a value in a formatted string


def find_problems(notebook: NotebookNode, folder: Path) -> list[str]:
    """Whatever would stop the notebook's run or its page.

    Args:
        notebook: Not executed.
        folder: Where the notebook lies, as its Markdown names images.

    Returns:
        One line for each problem: the cell, the value, the remedy. Empty where there is none.
    """
    pieces = html.Cells(markdown.Document(folder))
    problems = []
    for number, cell in enumerate(notebook.cells, start=1):
        cell_problems = _check_tags(cell)
        if cell.cell_type == "markdown":
            pieces.prose(cell, number)
            problems += pieces.problems
            pieces.problems = []
        elif cell.cell_type == "code" and MAY_FAIL_TAG not in cell.metadata.get("tags", []):
            cell_problems += _check_code(cell.source)
        problems += [f"{html.name_cell(cell, number)}: {problem}" for problem in cell_problems]
    return problems


def _check_tags(cell: NotebookNode) -> list[str]:
    """Checks the tags of a notebook cell.

    Args:
        cell: The cell.

    Returns:
        A sentence per problem: a tag is unknown, or `parameters` is not on a code cell.
    """
    tags = cell.metadata.get("tags", [])
    unknown = sorted(set(tags) - KNOWN_TAGS)
    problems = []
    if unknown:
        problems.append(
            f"unknown tag {unknown[0]!r}; remove it, or use one of {', '.join(sorted(KNOWN_TAGS))}"
        )
    if PARAMETERS_TAG in tags and cell.cell_type != "code":
        problems.append(
            f"the tag {PARAMETERS_TAG!r} is on a {cell.cell_type} cell; move it to the code cell "
            "that assigns the parameters"
        )
    return problems


def _check_code(source: str) -> list[str]:
    """Checks that a code cell is valid Python and loads nothing from the network.

    Args:
        source: Source of the cell; IPython's magics are allowed.

    Returns:
        A sentence per problem.
    """
    magic = _HTML_MAGIC.match(source)
    if magic:
        return accessibility_check.problems(source[magic.end() :])
    try:
        # Magics and shell commands become calls.
        code = TransformerManager().transform_cell(source)
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(code, "<cell>", "exec", flags)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if getattr(error, "lineno", None) else ""
        reason = getattr(error, "msg", None) or str(error)
        return [f"not Python{line} ({reason}); correct it, or tag the cell {MAY_FAIL_TAG!r}"]
    return [problem for call in _list_calls(tree) for problem in _check_call(call)]


def _list_calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _check_call(call: ast.Call) -> list[str]:
    """Checks what a call to a function of IPython.display would load, as far as its arguments are literal.

    Args:
        call: Syntax tree of the call.

    Returns:
        A sentence per problem: an address on the network, or HTML that is not accessible.
    """
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name in _TAKES_NETWORK_ID:
        return [f"{name}(...) loads a page over the network; write a link in Markdown instead"]
    texts = [(index == 0, _read_literal(node)) for index, node in enumerate(call.args)]
    texts += [
        (word.arg in ("data", "url", "src"), _read_literal(word.value)) for word in call.keywords
    ]
    problems = []
    for is_content, text in texts:
        if not is_content or text is None:
            continue
        if name in _TAKES_ADDRESS and _NETWORK.match(text):
            problems.append(
                f"{name}({text[:60]!r}) loads over the network; save the file in the repository"
            )
        elif name in _TAKES_HTML:
            html_problems = accessibility_check.problems(text)
            # The values of a formatted string may bring what seems to be missing.
            problems += [
                problem
                for problem in html_problems
                if _PLACEHOLDER not in text or _is_certain(problem)
            ]
    return problems


def _is_certain(problem: str) -> bool:
    return any(word in problem for word in ("network", "loads a script", "a style loads"))


def _read_literal(node: ast.AST) -> str | None:
    """Reads the text of a literal or formatted string.

    Args:
        node: Syntax tree of an expression.

    Returns:
        The text, with _PLACEHOLDER for values of a formatted string; None for anything else.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        texts = [_read_literal(value) for value in node.values]
        return "".join(_PLACEHOLDER if text is None else text for text in texts)
    return None
