"""What a piece of work runs, read from its imports, and the hash that edited words leave alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import params, sources, store
from lib.zoo import train

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = {
    "lib/__init__.py": "",
    "lib/zoo/__init__.py": "from lib.envs import bank",
    "lib/zoo/train.py": '"""Trains."""\nfrom . import ppo\nRATE = 0.1  # slow\n\n\ndef f():\n    """Late."""\n'
    "    from lib.envs.grid import Grid\n    return Grid",
    "lib/zoo/ppo.py": "from pathlib import Path\nTEXTS = Path(__file__).parent / 'texts'",
    "lib/zoo/cards.py": "import lib.zoo.train",
    "lib/zoo/texts/a.md": "said",
    "lib/envs/__init__.py": "",
    "lib/envs/bank.py": "import numpy.linalg",
    "lib/envs/grid.py": "COMMAND = ['-m', 'lib.worker']",
    "lib/worker.py": "",
}
TRAIN = [
    "__init__.py", "envs/__init__.py", "envs/bank.py", "envs/grid.py", "worker.py", "zoo/__init__.py", "zoo/ppo.py",
    "zoo/texts/a.md", "zoo/train.py",
]  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    for name, text in LIBRARY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def needed(tree: Path, *places, **options) -> list[str]:
    found = sources.closure(*places, root=tree, **options)
    return [path.relative_to(tree / "lib").as_posix() for path in found]


@pytest.mark.parametrize("place", ["lib.zoo.train", "lib/zoo/train.py"])
def test_imports_are_followed_wherever_they_stand(tree, place):
    assert needed(tree, place) == TRAIN


def test_a_notebooks_code_cells_import_and_its_prose_does_not(tree):
    cells = [
        {"cell_type": "markdown", "source": ["import lib.zoo.cards"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "from lib.zoo import train"]},
    ]
    (tree / "one.ipynb").write_text(json.dumps({"cells": cells}))
    assert needed(tree, "one.ipynb") == TRAIN


def test_it_stops_where_it_is_told_to(tree):
    assert needed(tree, "lib.zoo.train", without=["lib.envs"]) == ["__init__.py", *TRAIN[5:]]
    assert "envs/bank.py" not in needed(tree, "lib.zoo.train", without=["lib/zoo/__init__.py"])
    assert "zoo/texts/a.md" not in needed(tree, "lib.zoo.train", without=[tree / "lib/zoo/texts/a.md"])


@pytest.mark.parametrize("place", ["lib.zoo.attic", "lib/attic.py", "numpy", "lib.zoo.train.RATE"])
def test_a_place_that_is_none_is_named(tree, place):
    with pytest.raises(ValueError, match=place):
        sources.closure(place, root=tree)


def edited(tree: Path, old: str, new: str) -> str:
    path = tree / "lib/zoo/train.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return sources.fingerprint("lib/zoo", root=tree)


@pytest.mark.parametrize(
    ("old", "new"),
    [("# slow", "# quick"), ("Trains.", "Learns."), ("Late.", "Later."), ('    """Late."""\n', ""), ("\n\n\n", "\n")],
)
def test_words_and_layout_change_no_hash(tree, old, new):
    before = sources.fingerprint("lib/zoo", root=tree)
    assert edited(tree, old, new) == before


@pytest.mark.parametrize(("old", "new"), [("0.1", "0.2"), ("Grid", "Room"), ("RATE = 0.1", "RATE = '0.1'")])
def test_what_the_code_does_changes_the_hash(tree, old, new):
    before = sources.fingerprint("lib/zoo", root=tree)
    assert edited(tree, old, new) != before


def test_a_hash_follows_names_other_files_and_no_place_or_order(tree, tmp_path_factory):
    def hashed(*places):
        return sources.fingerprint(*places, root=tree)

    both = hashed("lib/zoo/ppo.py", "lib/zoo/texts/a.md")
    assert both == hashed("lib/zoo/texts/a.md", "lib.zoo.ppo") != hashed("lib/zoo/ppo.py")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(tree, elsewhere)
    assert sources.fingerprint("lib/zoo", root=elsewhere) == hashed("lib/zoo")
    (tree / "lib/zoo/texts/a.md").write_text("said otherwise")
    assert hashed("lib/zoo/ppo.py", "lib/zoo/texts/a.md") != both
    before = hashed("lib/zoo")
    (tree / "lib/zoo/ppo.py").rename(tree / "lib/zoo/po.py")
    assert hashed("lib/zoo") != before


def test_who_decides_is_told_apart_from_who_looks_on():
    decided = {sources.deciding(f"lib.zoo.{name}") for name in ("train", "train", "evaluate")}
    assert len(decided) == 2
    names = {path.relative_to(ROOT).as_posix() for path in sources.closure("lib.zoo.train", without=sources.CARRYING)}
    assert {"lib/zoo/ppo.py", "lib/zoo/objectives.py", "lib/envs/education.py", "lib/seeds.py"} <= names
    assert not {"lib/params/whole.py", "lib/sweep.py", "lib/zoo/cards.py", "lib/zoo/evaluate.py"} & names


NAMES = """
import json, sys
from pathlib import Path
from lib import params, sweep
from lib.zoo import train
cells = [cell for domain in ("education", "minigrid") for cell in train.cells(params.load("smoke"), domain)]
done = [sweep.finished(cell, Path(sys.argv[1])) is not None for cell in cells]
print(json.dumps([{cell.name: cell.digest for cell in cells}, done]))
"""


def names(tree: Path, runs: Path) -> list:
    """Names of all cells of lesson 01 as the code in `tree` gives them, and which of them are finished."""
    command = [sys.executable, "-c", NAMES, str(runs)]
    told = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1, f"{path.name} says {old!r} no more"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_an_edited_docstring_and_an_edited_sentence_train_nothing(tmp_path):
    tree, runs = tmp_path / "copy", tmp_path / "runs"
    for place in ("lib", "notebooks", "data/bank"):
        shutil.copytree(ROOT / place, tree / place, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", tree)
    cells = [cell for domain in ("education", "minigrid") for cell in train.cells(params.load("smoke"), domain)]
    for cell in cells:
        store.write_json(cell.folder(runs) / "done.json", {"result": {}, "seconds": 1.0})
    before = {cell.name: cell.digest for cell in cells}
    for path in (tree / "lib/zoo").glob("*.py"):
        changed(path, '"""', '"""In other words: ')
    lesson = tree / "notebooks/01_policy_zoo.ipynb"
    notebook = json.loads(lesson.read_text(encoding="utf-8"))
    prose = next(cell for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    prose["source"] = "".join(prose["source"]) + "\nOne more sentence."
    lesson.write_text(json.dumps(notebook), encoding="utf-8")
    assert names(tree, runs) == [before, [True] * len(cells)]  # nothing is left to train
    changed(tree / "lib/zoo/objectives.py", "\n\n\n", "\n\n\nANOTHER_CONSTANT = 1\n")
    after, left = names(tree, runs)
    assert not after.items() & before.items() and not any(left)
