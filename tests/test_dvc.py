"""The pipeline's description: every stage depends on the code it runs, and names what it makes once."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lib.run import deps, stage

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
    for name in (
        "__init__",
        "parent",
        "zoo/__init__",
        "zoo/a",
        "zoo/b",
        "envs/__init__",
        "envs/c",
        "run/__init__",
        "run/__main__",
    ):
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
