"""Every notebook can be opened alone: what it needs of an earlier lesson is made on the spot or comes with the project.

Nothing is executed here but imports; `tests/pipeline/test_alone.py` runs notebooks alone.
"""

import ast
import importlib
import inspect
import json
import textwrap
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import pytest

from lib.config import ROOT, from_yaml
from lib.language_models.checkpoints import MODELS
from lib.language_models.training import build, model_cards, model_folders
from lib.policy_zoo import train, zoo_folder

STAGES = from_yaml((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
LESSONS = sorted(name for name in STAGES if (ROOT / f"notebooks/{name}.ipynb").exists())
# What lessons make for others: the functions one of which every lesson that reads it calls first.
MAKERS = {
    "data/models": (model_folders.ensure_models, build.build_models),
    "data/zoo": (zoo_folder.ensure_zoo, train.build_zoo),
}
FOLDERS = {"data/models": MODELS, "data/zoo": train.ZOO_FOLDER}
# What is recomputed by the function that the earlier lesson calls, and only orders the stages.
RECOMPUTED = {
    ("09_ablations", "data/records/corl_synthetic.parquet"),
    ("09a_ablations_details", "data/records/corl_synthetic.parquet"),
}
COMMITTED = "reports/metrics/"  # of a laptop run, which the scoreboard shows until there is another


# What a lesson needs ------------------------------------------------------------------------------


def list_outs(stage: dict[str, Any]) -> list[str]:
    listed = [*stage.get("outs", []), *stage.get("metrics", [])]
    return [out if isinstance(out, str) else next(iter(out)) for out in listed]


def list_needs(lesson: str) -> list[str]:
    """What a lesson depends on and another lesson makes."""
    outs = {out for other in LESSONS if other != lesson for out in list_outs(STAGES[other])}
    return [dependency for dependency in STAGES[lesson]["deps"] if dependency in outs]


@pytest.mark.parametrize("lesson", LESSONS)
def test_whatever_a_lesson_needs_of_another_is_made_on_the_spot_or_comes_with_the_project(lesson):
    for need in list_needs(lesson):
        if need.startswith(COMMITTED):
            assert (ROOT / need).is_file(), need
        elif need in MAKERS:
            calls = list_calls(lesson)
            assert any(makes(function, need) for _, function in calls), need
        else:
            assert (lesson, need) in RECOMPUTED, need


# In which order a notebook reads and makes --------------------------------------------------------


@cache
def read_code(lesson: str) -> ast.Module:
    cells = json.loads((ROOT / f"notebooks/{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]
    return ast.parse("\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code"))


@cache
def import_names(lesson: str) -> dict[str, Any]:
    """What the notebook's imports of lib bring in, by the name that it has there."""
    names = {}
    for node in ast.walk(read_code(lesson)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lib":
            module = importlib.import_module(node.module)
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                value = getattr(module, alias.name, None) or importlib.import_module(path)
                names[alias.asname or alias.name] = value
    return names


def resolve(node: ast.expr, names: dict[str, Any]) -> Any:
    """What a dotted name stands for; None where it is known at run time only."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, names)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | type) else None
    return None


def find_calls(tree: ast.AST, names: dict[str, Any]) -> Iterator[tuple[ast.Call, FunctionType]]:
    """Calls of functions of lib, in the order of their lines."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, -node.col_offset)):
        function = resolve(call.func, names)
        if isinstance(function, FunctionType) and function.__module__.startswith("lib."):
            yield call, function


def list_calls(lesson: str) -> list[tuple[ast.Call, FunctionType]]:
    return list(find_calls(read_code(lesson), import_names(lesson)))


@cache
def makes(function: FunctionType, need: str) -> bool:
    """Whether a function makes what is needed, by itself or through what it calls."""
    to_visit, visited = [function], set()
    while to_visit:
        current = to_visit.pop()
        if current in MAKERS[need]:
            return True
        if current in visited:
            continue
        visited.add(current)
        tree = ast.parse(textwrap.dedent(inspect.getsource(current)))
        to_visit += [callee for _, callee in find_calls(tree, current.__globals__)]
    return False


def reads_by_default(call: ast.Call, function: FunctionType, need: str) -> bool:
    """Whether a call leaves it to the function's default to read the folder as it is."""
    passed_names = {keyword.arg for keyword in call.keywords}
    parameters = list(inspect.signature(function).parameters.values())
    passed_names |= {parameter.name for parameter in parameters[: len(call.args)]}
    return any(
        parameter.default == FOLDERS[need] and parameter.name not in passed_names
        for parameter in parameters
    )


@pytest.mark.parametrize("need", MAKERS)
@pytest.mark.parametrize("lesson", LESSONS)
def test_no_notebook_reads_a_folder_before_it_is_made(lesson, need):
    for call, function in list_calls(lesson):
        if makes(function, need):
            return  # from here on it is there
        assert not reads_by_default(call, function, need), (
            f"{lesson}: {ast.unparse(call.func)} reads {need}, which no cell before has made"
        )


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_notebook_names_a_folder_that_it_may_lack(lesson):
    """A path to the folder is what `ensure_models` and `ensure_zoo` return."""
    names = import_names(lesson)
    for node in ast.walk(read_code(lesson)):
        if isinstance(node, ast.Attribute):
            assert resolve(node, names) not in FOLDERS.values(), ast.unparse(node)


def test_what_this_file_looks_for_is_found_where_it_is():
    call = ast.parse("model_cards.read_card('lab-nano')").body[0].value
    assert reads_by_default(call, model_cards.read_card, "data/models")
    call = ast.parse("model_cards.read_card('lab-nano', folder)").body[0].value
    assert not reads_by_default(call, model_cards.read_card, "data/models")
    from lib.budgeted_routing import ablations

    assert makes(ablations.run_controllers, "data/models")
    assert not makes(model_cards.read_card, "data/models")
