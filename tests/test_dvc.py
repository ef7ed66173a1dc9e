"""The pipeline's description: every stage depends on the code it runs, and names what it makes once."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lib.run import stage

ROOT = Path(__file__).resolve().parents[1]
STAGES = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
LESSONS = sorted(stage.lessons(ROOT))
SAFE_TO_CHANGE = {"lib/__init__.py", "lib/parent.py"}  # nothing that they do reaches a result


def module_file(dotted: list[str]) -> Path | None:
    """The file of a module, or None if the name is something in a module."""
    base = ROOT.joinpath(*dotted)
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def imported_files(source: str) -> Iterator[Path]:
    """Files of lib that a piece of Python imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [[*node.module.split("."), alias.name] for alias in node.names]
        for name in names:
            if name[0] == "lib":
                for length in range(1, len(name) + 1):
                    if (path := module_file(name[:length])) is not None:
                        yield path


def closure(*sources: str) -> set[str]:
    """All files of lib that these sources need, directly or not, relative to the root."""
    todo, seen = [path for source in sources for path in imported_files(source)], set()
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += imported_files(path.read_text(encoding="utf-8"))
    return {path.relative_to(ROOT).as_posix() for path in seen}


def code_of(lesson: str) -> str:
    cells = json.loads((ROOT / f"notebooks/{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def outs(body: dict) -> list[str]:
    listed = [*body.get("outs", []), *body.get("metrics", [])]
    return [item if isinstance(item, str) else next(iter(item)) for item in listed]


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_is_stale_when_any_code_that_it_runs_changes(lesson):
    runner = (ROOT / "lib/run/__main__.py").read_text(encoding="utf-8")
    needed = closure(code_of(lesson), runner) - SAFE_TO_CHANGE
    deps = STAGES[lesson]["deps"]
    uncovered = {path for path in needed if not any(path == dep or path.startswith(f"{dep}/") for dep in deps)}
    assert uncovered == set()


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_dependency_exists_or_is_made_by_a_stage(name):
    made = [out for body in STAGES.values() for out in outs(body)]
    for dep in STAGES[name].get("deps", []):
        assert (ROOT / dep).exists() or any(dep == out or dep.startswith(f"{out}/") for out in made), dep


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_lesson_has_a_notebook_a_page_and_metrics(lesson):
    assert (ROOT / f"notebooks/{lesson}.ipynb").exists()
    promised = {f"reports/notebooks/{lesson}.ipynb", f"reports/{lesson}.html", f"reports/metrics/{lesson}.json"}
    assert promised <= set(outs(STAGES[lesson]))


def test_every_notebook_is_a_lesson_of_the_pipeline():
    assert [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))] == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_front_page_waits_for_every_lesson(lesson):
    deps = STAGES["index"]["deps"]
    for out in (f"reports/figures/{lesson}", f"reports/lessons/{lesson}.json", f"reports/metrics/{lesson}.json"):
        assert any(out == dep or out.startswith(f"{dep}/") for dep in deps)


def test_what_a_profile_or_a_commit_decides_is_never_taken_from_the_cache():
    for name, out in (("settings", "data/settings.json"), ("index", "reports/index.html")):
        (options,) = [item[out] for item in STAGES[name]["outs"] if isinstance(item, dict) and out in item]
        assert options["persist"] and not options["cache"]
