"""What the tests of both studies share: keys of jobs, models that may be changed, trainings that are killed."""

import shutil
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from lib.experiment import artifacts
from lib.experiment.training import TrainingTables
from tests.studies import Killed, dying, of

HOSTED = {
    "backend": "endpoint",
    "base_url": "http://localhost:1/v1",
    "model": "m",
    "price_in": 1e-6,
    "price_out": 1e-6,
}


def keys_by_label(study, own, compared, models) -> dict[str, str]:
    """The keys of all jobs."""
    first_jobs = study.make_first_jobs(own, models)
    jobs = [*first_jobs, *study.make_jobs(own, compared, first_jobs)]
    return {job.label: job.key for job in jobs}


def find_jobs(runs: Path, ending: str) -> list[Path]:
    """The folders of finished jobs whose label ends so, in the order of labels."""
    labels = {path.parent: artifacts.read_json(path)["label"] for path in runs.glob("*/job.json")}
    return sorted(
        (folder for folder, label in labels.items() if label.endswith(ending)), key=labels.get
    )


def apart(models: Path, elsewhere: Path, name: str) -> Path:
    """All models elsewhere, of which one may be changed: its folder."""
    for place in models.iterdir():
        if place.name != name:
            (elsewhere / place.name).symlink_to(place)
    return shutil.copytree(models / name, elsewhere / name)


def resumed(study, own, arm, models, done, killed, elsewhere, monkeypatch) -> list[int]:
    """The updates that are left to a training of one arm that is killed and run again, to the same tables.

    done: results and folder of a study that nothing happened to; killed: what, by class and method, dies at which call.
    """
    (results, runs), (owner, method, at) = done, killed
    again_folders = find_jobs(runs, f"{arm.name}/seed-0")
    for folder in runs.glob("*"):
        if folder not in again_folders:  # only that is done again
            (elsewhere / folder.name).symlink_to(folder)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, method, dying(getattr(owner, method), at))
        study.run(own, [arm], models, elsewhere)
    assert list(elsewhere.glob("*/checkpoint.safetensors"))
    with monkeypatch.context() as patch:
        add, left = TrainingTables.add, []

        def watched(logs, name, rows):
            left.extend(rows["step"].unique() if name == "rollouts" else ())
            add(logs, name, rows)

        patch.setattr(TrainingTables, "add", watched)
        again = study.run(own, [arm], models, elsewhere)
    for name in ("rollouts", "learning", "episodes"):
        one, other = (of(getattr(told, name), arm.name) for told in (again, results))
        assert_frame_equal(one, other, check_exact=True)
    return left
