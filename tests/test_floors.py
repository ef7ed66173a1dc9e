"""The shape of `lib`: rooms on floors that import only downwards, short functions, modules that say why."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {
    13: {"__main__"},  # the command line
    12: {"teaching"},  # what a class gets: exercises, student copies, slides, glossary
    11: {"reports"},  # executes notebooks, renders pages, draws what one lesson alone needs
    10: {"scoreboard"},  # judges what all lessons measured
    9: {"routers"},
    8: {
        "orchestration",
        "conductor",
        "budgeted_routing",
        "tool_orchestration",
        "agent_configuration",
    },
    7: {"policy_zoo"},
    6: {"rl"},  # what several systems share
    5: {"language_models", "recorded_outcomes"},
    4: {"tasks"},  # its scorers may ask a judge, and run programs in a sandbox
    3: {"envs", "llm", "tools", "plots"},
    2: {"stats"},
    1: {"experiment"},
    0: {"config"},
}
FLOOR = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
VAGUE = {"util", "utils", "helper", "helpers", "manager", "managers"}
LONGEST = 120  # lines of a function, exclusive, as the formatter breaks them

Imported = tuple[str, int]  # room, line


def modules(root: Path) -> list[Path]:
    return sorted((root / "lib").rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(path: Path, root: Path) -> list[str]:
    """lib/envs/question_bank.py as [lib, envs, bank]; a package is its folder."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported_rooms(path: Path, root: Path) -> Iterator[Imported]:
    """Every room of lib that a module names in an import, wherever in the module it stands."""
    package = dotted(path, root) if path.name == "__init__.py" else dotted(path, root)[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "lib" and len(target) > 1:
                yield target[1], node.lineno


def may_import(room: str, other: str) -> bool:
    """A room sees itself and the floors below."""
    return room == other or FLOOR[other] < FLOOR[room]


def violations(root: Path) -> list[str]:
    found = []
    for path in modules(root):
        parts, place = dotted(path, root), path.relative_to(root)
        if len(parts) == 1:  # lib/__init__.py stands on no floor, so it imports no room
            found += [
                f"{place}:{line} imports lib.{other}" for other, line in imported_rooms(path, root)
            ]
            continue
        if parts[1] not in FLOOR:
            found.append(f"{place} has no floor: give {parts[1]!r} one in FLOORS and in the design")
            continue
        for other, line in imported_rooms(path, root):
            if other not in FLOOR:
                found.append(f"{place}:{line} imports lib.{other}, which has no floor")
            elif not may_import(parts[1], other):
                found.append(
                    f"{place}:{line} (floor {FLOOR[parts[1]]}) imports lib.{other} (floor {FLOOR[other]})"
                )
    return found


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


def test_rooms_import_only_rooms_below():
    assert violations(ROOT) == []


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


@pytest.mark.parametrize(
    "files",
    [
        {"policy_zoo__train": "import lib.envs.education"},
        {"policy_zoo__train": "from lib.experiment import seeds, sweep"},
        {"envs__batch": "from lib.envs.education import LEVELS"},
        {"envs__batch": "from . import education\nfrom .education import LEVELS"},
        {"experiment__sweep": "from lib import config"},
        {"reports__page": "def f():\n    from lib.orchestration import ko"},
        {"orchestration__ko": "import libcst, collections.abc"},
    ],
)
def test_downwards_is_allowed(tmp_path, files):
    assert violations(tree(tmp_path, **files)) == []


@pytest.mark.parametrize(
    "files, message",
    [
        ({"envs__x": "from lib.policy_zoo import train"}, "lib.policy_zoo (floor 7)"),
        ({"envs__x": "def f():\n    import lib.policy_zoo.train"}, "x.py:2"),
        ({"envs__x": "from lib import config, policy_zoo"}, "lib.policy_zoo"),
        ({"envs__x": "from ..policy_zoo import train"}, "lib.policy_zoo"),
        ({"envs____init__": "from .. import policy_zoo"}, "lib.policy_zoo"),
        ({"config__x": "from lib.experiment import seeds"}, "lib.experiment (floor 1)"),
        ({"tool_orchestration__x": "import lib.conductor"}, "lib.conductor (floor 8)"),
        ({"llm__x": "import lib.tools"}, "lib.tools (floor 3)"),
        ({"config__x": "import lib.attic"}, "no floor"),
        ({"attic": ""}, "no floor"),
        ({"__init__": "from lib import config"}, "imports lib.config"),
    ],
)
def test_upwards_sideways_and_unknown_are_noticed(tmp_path, files, message):
    if "__init__" in files:  # the name is not a folder here
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib/__init__.py").write_text(files["__init__"])
        found = violations(tmp_path)
    elif "envs____init__" in files:
        (tmp_path / "lib/envs").mkdir(parents=True)
        (tmp_path / "lib/envs/__init__.py").write_text(files["envs____init__"])
        found = violations(tmp_path)
    else:
        found = violations(tree(tmp_path, **files))
    assert len(found) == 1 and message in found[0]


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
