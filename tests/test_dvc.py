"""The pipeline's description: every stage depends on the code it runs, and names what it makes once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lib.run import deps, stage
from tests.test_run import DRAWS, drawn, project

ROOT = Path(__file__).resolve().parents[1]
STAGES = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
LESSONS = sorted(stage.lessons(ROOT))


def outs(body: dict) -> list[str]:
    listed = [*body.get("outs", []), *body.get("metrics", [])]
    return [item if isinstance(item, str) else next(iter(item)) for item in listed]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_stage_depends_on_the_code_that_it_runs_and_on_no_other(name):
    """After a change of imports: `python -m lib.run.deps --write`."""
    declared = [dep for dep in STAGES[name]["deps"] if dep.startswith("lib/")]
    assert sorted(declared) == deps.code(STAGES[name]["cmd"])


def test_the_file_is_as_it_would_be_written():
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert deps.updated(text) == text and all(len(line) <= 120 for line in text.splitlines())


def test_code_is_added_and_taken_away_and_everything_else_kept(tmp_path):
    modules = ("__init__", "parent", "zoo/__init__", "zoo/a", "zoo/b", "envs/__init__", "envs/c", "run/__init__")
    for name in (*modules, "run/__main__"):
        (tmp_path / f"lib/{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"lib/{name}.py").touch()
    cell = {"cell_type": "code", "source": "from lib.zoo import a\nfrom lib.envs import c"}
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/one.ipynb").write_text(json.dumps({"cells": [cell]}))
    before = (
        "# Said.\nstages:\n  one:\n    cmd: python -m lib.run one\n    deps:\n      - lib/tools\n      - data/x\n"
        "    outs:\n      - y: {cache: false}  # why\n"
    )
    after = deps.updated(before, tmp_path)
    wanted = "    deps: [data/x, lib/envs, lib/run, lib/zoo/__init__.py, lib/zoo/a.py]\n"
    assert after == before.replace(before[before.index("    deps") : before.index("    outs")], wanted)
    (tmp_path / "dvc.yaml").write_text(before)
    assert deps.main(["--root", str(tmp_path)]) == 1 and (tmp_path / "dvc.yaml").read_text() == before
    assert deps.main(["--root", str(tmp_path), "--write"]) == 0 and (tmp_path / "dvc.yaml").read_text() == after
    assert deps.main(["--root", str(tmp_path)]) == 0


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
    waited = STAGES["index"]["deps"]
    for out in (f"reports/figures/{lesson}", f"reports/lessons/{lesson}.json", f"reports/metrics/{lesson}.json"):
        assert any(out == dep or out.startswith(f"{dep}/") for dep in waited)


def test_what_a_profile_or_a_commit_decides_is_never_taken_from_the_cache():
    for name, out in (("settings", "data/settings.json"), ("index", "reports/index.html")):
        (options,) = [item[out] for item in STAGES[name]["outs"] if isinstance(item, dict) and out in item]
        assert options["persist"] and not options["cache"]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_reports_persist(name):
    """DVC removes all others before a run, and then a lesson that fails would leave nothing to read."""
    body = STAGES[name]
    listed = [*body.get("outs", []), *body.get("metrics", [])]
    about = dict(next(iter(item.items())) if isinstance(item, dict) else (item, {}) for item in listed)
    assert [out for out, told in about.items() if out.startswith("reports/") and not told.get("persist")] == []


OUTS = ("reports/notebooks/00_tiny.ipynb", "reports/00_tiny.html", "reports/figures/00_tiny")


def test_under_dvc_the_last_report_outlives_a_run_that_fails_and_no_figure_one_that_ends_well(tmp_path):
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
        return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)

    def repro(name: str) -> tuple[int, dict[str, bytes]]:
        text = notebook.read_text().replace("old.png", name)
        notebook.write_text(text)
        done = dvc("repro")
        notebook.write_text(text.replace(name, "old.png"))
        return done.returncode, drawn(root)

    assert dvc("init", "--no-scm").returncode == 0
    code, first = repro("old.png")
    assert code == 0 and "figures/00_tiny/old.png" in first
    assert repro("no/such/folder.png") == (255, first)
    code, last = repro("new.png")
    assert code == 0 and last.keys() == first.keys() - {"figures/00_tiny/old.png"} | {"figures/00_tiny/new.png"}
