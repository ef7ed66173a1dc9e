"""The layers of `lib`: a package imports only packages of the layers below it, and none of its own layer."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (  # from top to bottom
    {"__main__"},  # the command line
    {"teaching"},  # exercises, student copies, slides, glossary
    {"reports"},  # executes notebooks, renders pages, draws what one lesson alone needs
    {"scoreboard"},  # judges what all lessons measured
    {"routers"},
    # The systems of the five papers: none imports another.
    {
        "agent_configuration",
        "tool_orchestration",
        "budgeted_routing",
        "conductor",
        "orchestration",
    },
    {"policy_zoo"},
    {"rl"},  # what several systems share
    {"language_models", "recorded_outcomes"},
    # `tasks` stands above `llm`: a scorer may ask a language model to judge, while a chat model knows no task.
    {"tasks"},
    {"llm", "tools", "envs", "plots"},
    {"stats"},
    {"experiment"},
    {"config"},
)
LAYER_OF = {package: depth for depth, packages in enumerate(LAYERS) for package in packages}


def list_imported_packages(path: Path, root: Path) -> Iterator[tuple[str, int]]:
    """Lists the packages of `lib` that a module imports, at its top or inside a function.

    Args:
        path: The module's file.
        root: The folder that holds `lib`.

    Yields:
        The package's name without `lib.`, and the line of the import.
    """
    folder = list(path.relative_to(root).parent.parts)  # ("lib", "envs") of lib/envs/grid.py
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:  # `from ..plots import lines`: one dot is the module's own folder
                base = folder[: len(folder) + 1 - node.level] + base
            imported = [[*base, alias.name] for alias in node.names]

        for names in imported:
            if names[0] == "lib" and len(names) > 1:
                yield names[1], node.lineno


def find_forbidden_imports(root: Path) -> list[str]:
    """Finds the imports of `lib` that do not go downwards, each as "FILE:LINE imports ...".

    Args:
        root: The folder that holds `lib`.
    """
    problems = []
    for path in sorted((root / "lib").rglob("*.py")):
        file = path.relative_to(root)
        package = file.with_suffix("").parts[1]
        if package != "__init__" and package not in LAYER_OF:
            problems.append(f"{file}: {package} has no layer, give it one in LAYERS")
            continue
        for imported, line in list_imported_packages(path, root):
            if imported not in LAYER_OF:
                problems.append(f"{file}:{line} imports lib.{imported}, which has no layer")
            elif package == "__init__":  # importing `lib` alone loads no package
                problems.append(f"{file}:{line} imports lib.{imported}")
            elif package != imported and LAYER_OF[imported] <= LAYER_OF[package]:
                problems.append(
                    f"{file}:{line} imports lib.{imported}, which is not below {package}"
                )
    return problems


def write_module(root: Path, name: str, text: str) -> Path:
    """Writes one module into a small `lib`; the folder that holds it."""
    path = root / "lib" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return root


def test_packages_import_only_packages_of_lower_layers():
    assert find_forbidden_imports(ROOT) == []


def test_every_layer_names_packages_that_exist():
    folders = {path.parent.name for path in (ROOT / "lib").glob("*/__init__.py")}
    assert set(LAYER_OF) - {"__main__"} == folders


@pytest.mark.parametrize(
    "name, text",
    [
        ("policy_zoo/train.py", "import lib.envs.education"),
        ("policy_zoo/train.py", "from lib.experiment import seeds, sweep"),
        ("envs/batch.py", "from lib.envs.education import LEVELS"),
        ("envs/batch.py", "from . import education\nfrom .education import LEVELS"),
        ("experiment/sweep.py", "from lib import config"),
        ("reports/page.py", "def f():\n    from lib.orchestration import ko"),
        ("orchestration/ko.py", "import libcst, collections.abc"),
    ],
)
def test_imports_of_lower_layers_are_allowed(tmp_path, name, text):
    assert find_forbidden_imports(write_module(tmp_path, name, text)) == []


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("envs/x.py", "from lib.policy_zoo import train", "lib.policy_zoo, which is not below"),
        ("envs/x.py", "def f():\n    import lib.policy_zoo.train", "lib/envs/x.py:2"),
        ("envs/x.py", "from lib import config, policy_zoo", "lib.policy_zoo"),
        ("envs/x.py", "from ..policy_zoo import train", "lib.policy_zoo"),
        ("envs/__init__.py", "from .. import policy_zoo", "lib.policy_zoo"),
        ("config/x.py", "from lib.experiment import seeds", "lib.experiment"),
        ("tool_orchestration/x.py", "import lib.conductor", "lib.conductor"),
        ("llm/x.py", "from lib.tasks import load", "lib.tasks"),
        ("llm/x.py", "import lib.tools", "lib.tools"),
        ("config/x.py", "import lib.attic", "lib.attic, which has no layer"),
        ("attic.py", "", "attic has no layer"),
        ("__init__.py", "from lib import config", "imports lib.config"),
    ],
)
def test_imports_upwards_sideways_and_of_unknown_packages_are_found(tmp_path, name, text, message):
    problems = find_forbidden_imports(write_module(tmp_path, name, text))
    assert len(problems) == 1
    assert message in problems[0]
