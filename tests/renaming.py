"""Renames one local variable, one function and one module in every package of a copy of the project."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SUFFIX = "_renamed"


def rename_in_every_package(root: Path) -> dict[str, list[str]]:
    """Rename in the copy under `root`, in its lib and its tests.

    Returns:
        By package what was renamed: a local variable, a function, a module.
    """
    renamed = {}
    for package in sorted(
        {path.parent for path in (root / "lib").rglob("__init__.py")} - {root / "lib"}
    ):
        modules = [path for path in sorted(package.glob("*.py")) if not path.stem.startswith("__")]
        if modules:
            changes = [
                rename_local_variable(modules),
                rename_function(root, modules),
                rename_module(root, modules),
            ]
            renamed[package.relative_to(root).as_posix()] = changes
    return renamed


def rename_local_variable(modules: list[Path]) -> str:
    """The first variable of a function that no f-string and no string refers to."""
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for name in _local_names(function):
                    places = [
                        node
                        for node in ast.walk(function)
                        if isinstance(node, ast.Name) and node.id == name
                    ]
                    _replace_at(
                        path,
                        [(node.lineno, node.col_offset) for node in places],
                        name,
                        name + SUFFIX,
                    )
                    return f"variable {name} of {path.name}"
    return ""


def _local_names(function: ast.FunctionDef) -> Iterator[str]:
    nodes = list(ast.walk(function))
    bound_elsewhere = {
        argument.arg for node in nodes if isinstance(node, ast.arguments) for argument in _all(node)
    }
    for node in nodes:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            bound_elsewhere |= set(node.names)
        if isinstance(
            node, ast.JoinedStr
        ):  # positions inside f-strings are not reliable before Python 3.12
            bound_elsewhere |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        if isinstance(node, ast.ExceptHandler) and node.name:
            bound_elsewhere.add(node.name)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound_elsewhere |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            bound_elsewhere |= set(re.findall(r"@(\w+)", node.value))  # pandas queries
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name not in bound_elsewhere and not name.startswith("_"):
                yield name


def _all(arguments: ast.arguments) -> list[ast.arg]:
    optional = [arguments.vararg, arguments.kwarg]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *filter(None, optional)]


def rename_function(root: Path, modules: list[Path]) -> str:
    """The first function of a module whose name stands in no other file."""
    texts = {path: path.read_text(encoding="utf-8") for path in _python_files(root)}
    for path in modules:
        for node in ast.parse(texts[path]).body:
            if isinstance(node, ast.FunctionDef):
                word = re.compile(rf"\b{node.name}\b")
                users = [
                    other
                    for other, text in texts.items()
                    if node.name in text and word.search(text)
                ]
                in_strings = re.search(rf"""["'.]{node.name}\b""", texts[path])
                if users == [path] and not in_strings:
                    path.write_text(word.sub(node.name + SUFFIX, texts[path]), encoding="utf-8")
                    return f"function {node.name} of {path.name}"
    return ""


def rename_module(root: Path, modules: list[Path]) -> str:
    """The first module of a package; imports everywhere follow."""
    path = modules[0]
    package = ".".join(path.parent.relative_to(root).parts)
    dotted = re.compile(rf"\b{re.escape(package)}\.{path.stem}\b(?!\.py)")
    for user in _python_files(root):
        text = user.read_text(encoding="utf-8")
        if path.stem not in text:
            continue  # most files; parsing them all would take a minute
        aliases = [
            (alias.lineno, alias.col_offset, alias.asname is None)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and node.module == package
            for alias in node.names
            if alias.name == path.stem
        ]
        for line, column, unnamed in aliases:
            new = f"{path.stem}{SUFFIX} as {path.stem}" if unnamed else f"{path.stem}{SUFFIX}"
            _replace_at(user, [(line, column)], path.stem, new)
        text = user.read_text(encoding="utf-8")
        user.write_text(dotted.sub(f"{package}.{path.stem}{SUFFIX}", text), encoding="utf-8")
    path.rename(path.with_stem(path.stem + SUFFIX))
    return f"module {path.name}"


def _python_files(root: Path) -> list[Path]:
    return sorted([*(root / "lib").rglob("*.py"), *(root / "tests").rglob("*.py")])


def _replace_at(path: Path, places: list[tuple[int, int]], old: str, new: str) -> None:
    """Replace `old` by `new` at (line, byte column) places."""
    lines = path.read_bytes().split(b"\n")
    for line, column in sorted(set(places), reverse=True):
        content = lines[line - 1]
        assert content[column:].startswith(old.encode()), (path, line, column, old)
        lines[line - 1] = content[:column] + new.encode() + content[column + len(old.encode()) :]
    path.write_bytes(b"\n".join(lines))
