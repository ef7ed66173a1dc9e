"""The pipeline's description: every stage depends on the packages that it imports, and names what it makes once."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lib.reports.execute import dvc_stage
from tests.reports.execute.test_execute_lesson import DRAWS, drawn, project

ROOT = Path(__file__).resolve().parents[1]
STAGES = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
LESSONS = sorted(dvc_stage.lessons(ROOT))
# No result depends on it: it keeps libraries off the network.
WITHOUT_RESULTS = {"lib/__init__.py"}


# What a stage imports ------------------------------------------------------------------------------


def imported_packages(command: str, root: Path = ROOT) -> set[str]:
    """Packages of lib whose code a stage's command runs, directly or by way of others.

    A package is a folder of lib; of lib/teaching it is a single file, because the exercises of one lesson are no
    business of another.
    """
    todo, files = starting_files(command, root), set()
    while todo:
        path = todo.pop()
        if path not in files:
            files.add(path)
            todo += imported_files(path, root)
    places = [path.relative_to(root).parts for path in files if path.is_relative_to(root / "lib")]
    packages = {"/".join(parts if parts[1] == "teaching" else parts[:2]) for parts in places}
    return packages - WITHOUT_RESULTS


def starting_files(command: str, root: Path) -> list[Path]:
    """What `python -m MODULE ...` runs first, and the notebook of a lesson."""
    module, *arguments = command.removeprefix("python -m ").split()
    files = [*module_files(module, root), *module_files(f"{module}.__main__", root)]
    if module == "lib.reports.execute":
        files.append(root / f"notebooks/{arguments[0]}.ipynb")
    return files


def imported_files(path: Path, root: Path) -> list[Path]:
    """Files of lib that a module or notebook imports, wherever in it, or starts with `-m`."""
    tree = parse_code(path)
    names = [*imported_names(tree, path, root), *started_names(tree)]
    return [file for name in names for file in module_files(name, root)]


def parse_code(path: Path) -> ast.Module:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [
            cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"
        ]
        lines = [line for source in cells for line in "".join(source).splitlines()]
        text = "\n".join(
            line for line in lines if not line.startswith(("%", "!"))
        )  # magics are not Python
    return ast.parse(text)


def imported_names(tree: ast.Module, path: Path, root: Path) -> Iterator[str]:
    """Dotted names such as lib.policy_zoo.train; the last part may also be something in a module."""
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            yield from (
                ".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names
            )


def started_names(tree: ast.Module) -> Iterator[str]:
    """Strings such as "lib.reports.execute.kernel", which another process is started with."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("lib.")
        ):
            yield node.value


def module_files(name: str, root: Path) -> list[Path]:
    """The module of a dotted name and the packages above it; nothing for names outside of lib."""
    parts = name.split(".")
    if parts[0] != "lib":
        return []
    bases = [root.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
    candidates = [
        path for base in bases for path in (base.with_suffix(".py"), base / "__init__.py")
    ]
    return [path for path in candidates if path.is_file()]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_stage_depends_on_the_packages_that_it_imports_and_on_no_other(name):
    declared = [dependency for dependency in STAGES[name]["deps"] if dependency.startswith("lib/")]
    imported = imported_packages(STAGES[name]["cmd"])
    assert set(declared) - imported == set(), "not imported: take it out of dvc.yaml"
    assert imported - set(declared) == set(), "imported: put it into dvc.yaml"
    assert len(declared) == len(set(declared))


LIBRARY = {
    "lib/__init__.py": "",
    "lib/policy_zoo/__init__.py": "from lib.envs import question_bank",
    "lib/policy_zoo/train.py": "from . import ppo\n\n\ndef f():\n    from lib.experiment import seeds",
    "lib/policy_zoo/ppo.py": "from ..language_models import kv_cache_forward",
    "lib/policy_zoo/policy_cards.py": "import lib.plots",
    "lib/language_models/__init__.py": "",
    "lib/language_models/kv_cache_forward.py": "COMMAND = ['-m', 'lib.worker']",
    "lib/envs/__init__.py": "",
    "lib/envs/question_bank.py": "import numpy.linalg",
    "lib/plots/__init__.py": "",
    "lib/experiment/seeds.py": "",
    "lib/worker.py": "",
    "lib/teaching/exercises_by_lesson/__init__.py": "",
    "lib/teaching/exercises_by_lesson/lesson_00.py": "from lib.teaching.exercises_by_lesson import Exercise",
    "lib/teaching/exercises_by_lesson/lesson_01.py": "",
    "lib/reports/execute/__init__.py": "",
    "lib/reports/execute/__main__.py": "import lib.reports.execute",
}


@pytest.fixture
def library(tmp_path) -> Path:
    """A small lib, and a notebook that imports some of it."""
    for name, text in LIBRARY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    cells = [
        {"cell_type": "markdown", "source": ["import lib.plots"]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "from lib.policy_zoo import train"],
        },
        {"cell_type": "code", "source": ["from lib.teaching.exercises_by_lesson import lesson_00"]},
    ]
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/00_one.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


def test_imports_are_followed_wherever_they_stand_and_prose_imports_nothing(library):
    lesson = {
        "lib/teaching/exercises_by_lesson/__init__.py",
        "lib/teaching/exercises_by_lesson/lesson_00.py",
        "lib/reports",
    }
    code = {
        "lib/policy_zoo",
        "lib/envs",
        "lib/language_models",
        "lib/experiment",
        "lib/worker.py",
    }
    assert imported_packages("python -m lib.reports.execute 00_one", library) == lesson | code
    assert imported_packages("python -m lib.policy_zoo.policy_cards --out x", library) == {
        "lib/policy_zoo",
        "lib/envs",
        "lib/plots",
    }


# What a stage declares -----------------------------------------------------------------------------


def outs(body: dict) -> list[str]:
    listed = [*body.get("outs", []), *body.get("metrics", [])]
    return [item if isinstance(item, str) else next(iter(item)) for item in listed]


def test_no_line_is_long():
    lines = (ROOT / "dvc.yaml").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120] == []


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_dependency_exists_or_is_made_by_a_stage(name):
    made = [out for body in STAGES.values() for out in outs(body)]
    for dep in STAGES[name].get("deps", []):
        assert (ROOT / dep).exists() or any(
            dep == out or dep.startswith(f"{out}/") for out in made
        ), dep


def test_a_lesson_that_reads_the_settings_of_tools_depends_on_their_prices():
    readers = []
    for name, body in STAGES.items():
        sections = {
            key for item in body.get("params", []) for keys in item.values() for key in keys
        }
        if "tools" in sections:
            readers.append(name)
            assert "data/prices" in body["deps"], name
    assert {"03_model_zoo", "06_tool_orchestration"} <= set(readers)


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_lesson_has_a_notebook_a_page_and_metrics(lesson):
    assert (ROOT / f"notebooks/{lesson}.ipynb").exists()
    promised = {
        f"reports/notebooks/{lesson}.ipynb",
        f"reports/{lesson}.html",
        f"reports/metrics/{lesson}.json",
    }
    assert promised <= set(outs(STAGES[lesson]))


def test_every_notebook_is_a_lesson_of_the_pipeline():
    assert [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))] == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_front_page_waits_for_every_lesson(lesson):
    waited = STAGES["index"]["deps"]
    for out in (
        f"reports/figures/{lesson}",
        f"reports/lessons/{lesson}.json",
        f"reports/metrics/{lesson}.json",
    ):
        assert any(out == dep or out.startswith(f"{dep}/") for dep in waited)


def test_what_a_profile_or_a_commit_decides_is_never_taken_from_the_cache():
    for name, out in (("settings", "data/settings.json"), ("index", "reports/index.html")):
        (options,) = [
            item[out] for item in STAGES[name]["outs"] if isinstance(item, dict) and out in item
        ]
        assert options["persist"] and not options["cache"]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_reports_persist(name):
    """DVC removes all others before a run, and then a lesson that fails would leave nothing to read."""
    body = STAGES[name]
    listed = [*body.get("outs", []), *body.get("metrics", [])]
    about = dict(
        next(iter(item.items())) if isinstance(item, dict) else (item, {}) for item in listed
    )
    assert [
        out for out, told in about.items() if out.startswith("reports/") and not told.get("persist")
    ] == []


OUTS = ("reports/notebooks/00_tiny.ipynb", "reports/00_tiny.html", "reports/figures/00_tiny")


def test_under_dvc_a_run_says_why_a_report_outlives_one_that_fails_and_no_figure_one_that_ends_well(
    tmp_path,
):
    """One test for all of it, because DVC takes seconds to start."""
    root = project(tmp_path / "p", "NAME = 'old.png'", DRAWS.replace("{name!r}", "NAME"))
    shutil.copytree(ROOT / "lib", root / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    notebook, pipeline = root / "data/notebooks/00_tiny.ipynb", root / "dvc.yaml"
    head = pipeline.read_text().partition("    outs:")[0]
    listed = "".join(f"      - {out}: {{persist: true}}\n" for out in OUTS)
    pipeline.write_text(f"{head}    deps: [{notebook.relative_to(root)}]\n    outs:\n{listed}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(root), "PATH": path}

    def dvc(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=120
        )

    def repro(name: str) -> tuple[int, dict[str, bytes], list[str]]:
        text = notebook.read_text().replace("old.png", name)
        notebook.write_text(text)
        done = dvc("repro")
        notebook.write_text(text.replace(name, "old.png"))
        said = [line for line in done.stdout.splitlines() if line.startswith("[00_tiny] runs")]
        return done.returncode, drawn(root), said

    assert dvc("init", "--no-scm").returncode == 0
    code, first, said = repro("old.png")
    assert (
        code == 0
        and "figures/00_tiny/old.png" in first
        and said == ["[00_tiny] runs for the first time"]
    )
    again = ["[00_tiny] runs again: data/notebooks/00_tiny.ipynb changed"]
    assert repro("no/such/folder.png") == (255, first, again)
    code, last, said = repro("new.png")
    assert last.keys() == first.keys() - {"figures/00_tiny/old.png"} | {"figures/00_tiny/new.png"}
    assert code == 0 and said == again


def test_no_stage_depends_on_a_file_of_dvc_itself():
    """DVC refuses the whole pipeline then, with the first command."""
    for name, stage in STAGES.items():
        assert not {"dvc.yaml", "dvc.lock"} & set(stage.get("deps", [])), name
