"""Names are free: whoever renames a variable, a function or a module trains nothing again."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lib.config import ROOT
from tests.renaming import rename_in_every_package

KEYS = """
import json, sys
from pathlib import Path
from lib import config as params
from lib.language_models.training import build
from tests.golden import SYSTEMS, runner

keys = {}
for system in SYSTEMS:
    folder = Path(sys.argv[1]) / system
    folder.mkdir(parents=True)
    for small_job in runner.make_small_jobs(system, folder):
        keys[f"{system}, {small_job.job.label}"] = small_job.job.key
lab = params.load("laptop").lab
fits = {name: build.fits_released(lab, name) for name in lab.models}
print(json.dumps([keys, fits]))
"""


def read_keys(tree: Path, folder: Path) -> tuple[dict[str, str], dict[str, bool]]:
    """The keys of every system's small jobs as the code under `tree` gives them, and which released weights fit."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KEYS, str(folder)]
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_renamed_code_finds_every_finished_job_and_every_released_model(tmp_path):
    tree = tmp_path / "copy"
    for name in ("lib", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    generated = shutil.ignore_patterns(
        "runs", "models", "records", "replies", "zoo", "replica", "pretrained"
    )
    shutil.copytree(ROOT / "data", tree / "data", ignore=generated)
    shutil.copy(ROOT / "params.yaml", tree)
    before, _ = read_keys(tree, tmp_path / "before")

    renamed = rename_in_every_package(tree)
    without = [f"{package}: {changes}" for package, changes in renamed.items() if not changes[2]]
    assert (
        not without and sum(bool(change) for changes in renamed.values() for change in changes) > 50
    )
    after, fits = read_keys(tree, tmp_path / "after")
    assert after == before and len(after) >= 10
    assert all(fits.values()) and len(fits) == 14
