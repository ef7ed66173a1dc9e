"""The shape of `lib`: short functions, modules that say what they are for, class names used once."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VAGUE = {"util", "utils", "helper", "helpers", "manager", "managers"}
LONGEST = 120  # lines of a function, exclusive, as the formatter breaks them


def modules(root: Path) -> list[Path]:
    return sorted((root / "lib").rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(path: Path, root: Path) -> list[str]:
    """lib/envs/question_bank.py as [lib, envs, bank]; a package is its folder."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def long_functions(root: Path) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{path.relative_to(root)}:{node.lineno} {node.name} has {count_code_lines(node)} lines"
        for path in modules(root)
        for node in ast.walk(parsed(path))
        if isinstance(node, kinds) and count_code_lines(node) >= LONGEST
    ]


def count_code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, which may say as much as it likes."""
    num_lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        num_lines -= docstring.end_lineno - docstring.lineno + 1
    return num_lines


def repeated_class_names(root: Path) -> list[str]:
    """Public classes of modules that share their name with a class of another module."""
    paths_by_name: dict[str, list[str]] = {}
    for path in modules(root):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths_by_name.setdefault(node.name, []).append(str(path.relative_to(root)))
    return [
        f"{name} is a class of {' and of '.join(paths)}"
        for name, paths in paths_by_name.items()
        if len(paths) > 1
    ]


def tree(tmp_path: Path, **files: str) -> Path:
    """A small lib: file names with `__` for `/`."""
    for name, text in files.items():
        path = tmp_path / "lib" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_module_says_what_it_is_for():
    silent = [
        str(path.relative_to(ROOT)) for path in modules(ROOT) if not ast.get_docstring(parsed(path))
    ]
    assert silent == []


def test_no_module_has_a_name_that_could_hold_anything():
    assert [
        str(path.relative_to(ROOT)) for path in modules(ROOT) if VAGUE & set(dotted(path, ROOT))
    ] == []


def test_every_function_is_short():
    assert long_functions(ROOT) == []


def test_a_long_function_is_noticed(tmp_path):
    body = "\n".join("    x = 1" for _ in range(LONGEST - 2))
    assert long_functions(tree(tmp_path, store=f"def short():\n{body}")) == []
    assert len(long_functions(tree(tmp_path, store=f"async def long():\n{body}\n    x = 2"))) == 1
    explained = f'def explained():\n    """What.\n\n    Why.\n    """\n{body}'
    assert long_functions(tree(tmp_path, store=explained)) == []


def test_no_two_public_classes_share_a_name():
    assert repeated_class_names(ROOT) == []


def test_a_second_class_of_the_same_name_is_noticed(tmp_path):
    root = tree(tmp_path, envs__a="class Job: ...", rl__b="class Job: ...", rl__c="class _Job: ...")
    assert repeated_class_names(root) == ["Job is a class of lib/envs/a.py and of lib/rl/b.py"]
