"""Which files of lib a piece of work runs, and one hash of what they do.

`closure` reads import statements, wherever in a file they stand; nothing is imported. `fingerprint` hashes syntax
trees, so that an edited comment or docstring changes no hash and an edited constant does. Cells of sweeps are named
by fingerprints, and stages of the pipeline depend on closures. Left out: modules whose names are computed as the
program runs, and what libraries do (a cell that depends on a library's version says so). Trees are written down in
one way for every version of Python, so that weights that were shipped fit their recipe under each.
"""

import ast
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What changes no result of a cell: settings are in its name by value; where a sweep runs, and how a file is written.
CARRYING = ("lib/__init__.py", "lib.params", "lib.parent", "lib.sources", "lib.store", "lib.study", "lib.sweep")
_KNOWN = 4096  # files whose trees are remembered; a notebook names its cells many times
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def closure(*places: str | Path, without: Iterable[str | Path] = (), root: str | Path = ROOT) -> list[Path]:
    """Files of lib that `places` need, directly or not, sorted; modules among the places are in it.

    places: modules ("lib.zoo.train") and files (Python, or notebooks, of which the code cells count), the latter
    relative to `root` or absolute; without: modules, packages as a whole, and files at which to stop. In it are the
    __init__ of every package on the way, modules that a string names ("lib.kernel", started with `-m`), and the files
    of a folder beside a module that a string in it names ("templates"). Raises ValueError for a place that is none.
    """
    root = Path(root).resolve()
    stopped = {file.relative_to(root).as_posix() for name in without for file in _below(name, root)}
    todo, seen = [_file(place, root) for place in places], set()
    while todo:
        path = todo.pop()
        if path in seen or _place(path, root) in stopped:
            continue
        seen.add(path)
        if path.suffix in (".py", ".ipynb"):
            imported, strings = _read(path.suffix, path.read_bytes(), _package(path, root))
            todo += [file for name in imported for file in _modules(name, root)]
            todo += _beside(path, strings)
    return sorted(path for path in seen if path.is_relative_to(root / "lib"))


def fingerprint(*places: str | Path, root: str | Path = ROOT) -> str:
    """One hash of what the code at `places` does: modules, files, or folders with all their Python files.

    Of Python it is the syntax tree without docstrings, comments and layout, of any other file its bytes. The name of a
    file counts, the order of places does not. Raises ValueError for a place that is none.
    """
    root, files = Path(root).resolve(), set()
    for place in places:
        folder = root / place
        files |= set(folder.rglob("*.py")) if folder.is_dir() else {_file(place, root)}
    lines = [f"{_place(file, root)} {_hash(file.suffix, file.read_bytes())}" for file in files]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def deciding(*places: str | Path, without: Iterable[str | Path] = ()) -> str:
    """The hash that names a cell: of the code that decides what the work in `places` results in.

    without: modules and files that change no result of the cell, beside those that change none of any (`CARRYING`).
    Which files those are is read once per process, which goes on running what it imported.
    """
    return fingerprint(*_deciding(places, frozenset(without)))


@cache
def _deciding(places: tuple[str | Path, ...], without: frozenset[str | Path]) -> list[Path]:
    return closure(*places, without=(*CARRYING, *without))


def _place(path: Path, root: Path) -> str:
    """How a hash and an error call a file: the same wherever the repository lies."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _file(place: str | Path, root: Path) -> Path:
    """The file of a place. Raises ValueError where there is none."""
    base = root.joinpath(*str(place).split("."))
    found = [path for path in (root / place, base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
    if not found:
        raise ValueError(f"{str(place)!r} is neither a file nor a module under {root}")
    return found[0]


def _modules(name: str, root: Path) -> list[Path]:
    """Files that an import of a dotted name runs: the packages on the way and, where the last part is one, the module.
    Nothing for names outside of lib."""
    parts, out = name.split("."), []
    for length in range(1, len(parts) + 1 if parts[0] == "lib" else 1):
        base = root.joinpath(*parts[:length])
        out += [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
    return out


def _below(name: str | Path, root: Path) -> Iterator[Path]:
    """A file, or those of a module or of a package."""
    file = _file(name, root)
    yield from [file] if file == root / name or file.stem != "__init__" else file.parent.rglob("*.py")


def _package(path: Path, root: Path) -> str:
    """What a relative import in a file is relative to."""
    return ".".join(path.parent.relative_to(root).parts) if path.is_relative_to(root) else ""


def _beside(path: Path, strings: Collection[str]) -> list[Path]:
    """Files in the folders beside a module that it names; its own package's folders of modules are imported instead."""
    folders = [folder for folder in path.parent.iterdir() if folder.is_dir() and folder.name in strings]
    return [
        file
        for folder in folders
        if not (folder / "__init__.py").exists()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]


@lru_cache(_KNOWN)
def _read(kind: str, content: bytes, package: str) -> tuple[frozenset[str], frozenset[str]]:
    """The dotted names that a file may import, and its strings of one word."""
    tree, names = _tree(kind, content), set()
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            names |= {".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names}
    words = {string for string in strings if string.isprintable() and " " not in string}
    return frozenset(names | {word for word in words if word.startswith("lib.")}), frozenset(words)


def _tree(kind: str, content: bytes) -> ast.Module:
    """The syntax tree of a module, or of the code cells of a notebook."""
    if kind != ".ipynb":
        return ast.parse(content)
    cells = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines()]
    return ast.parse("\n".join(line for line in lines if not line.startswith(("%", "!"))))  # magics are not Python


@lru_cache(_KNOWN)
def _hash(kind: str, content: bytes) -> str:
    if kind == ".py":
        content = _written(_undocumented(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _written(node: object) -> str:
    """A tree as text: fields by name, those that are empty left out, as newer versions of Python add such."""
    if isinstance(node, list):
        return "[" + ", ".join(map(_written, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    held = [(name, value) for name, value in sorted(ast.iter_fields(node)) if value is not None and value != []]
    return f"{type(node).__name__}({', '.join(f'{name}={_written(value)}' for name, value in held)})"


def _undocumented(tree: ast.Module) -> ast.Module:
    """A tree without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree
