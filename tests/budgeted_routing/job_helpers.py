"""Jobs of experiments that train controllers: their keys and folders, and a training that is killed and resumed."""

import shutil
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from lib.experiment import artifacts
from lib.experiment.training import TrainingTables
from tests.studies import Killed, dying, of

# Settings of a model behind an endpoint, at a port where nobody listens.
ENDPOINT_MODEL = {
    "backend": "endpoint",
    "base_url": "http://localhost:1/v1",
    "model": "m",
    "price_in": 1e-6,
    "price_out": 1e-6,
}


def list_keys_by_label(study, params, variants, models) -> dict[str, str]:
    """The cache keys of all jobs of an experiment, by the job's label."""
    first_jobs = study.make_first_jobs(params, models)
    jobs = [*first_jobs, *study.make_jobs(params, variants, first_jobs)]
    return {job.label: job.key for job in jobs}


def find_job_folders(runs: Path, ending: str) -> list[Path]:
    """The folders of finished jobs whose label ends so, in the order of labels."""
    labels = {}
    for path in runs.glob("*/job.json"):
        label = artifacts.read_json(path)["label"]
        if label.endswith(ending):
            labels[path.parent] = label
    return sorted(labels, key=labels.get)


def copy_one_model(models: Path, target: Path, name: str) -> Path:
    """Make a folder of models of which one may be changed: a copy of it, and links to the others.

    Returns:
        The folder of the copy.
    """
    for model in models.iterdir():
        if model.name != name:
            (target / model.name).symlink_to(model)
    return shutil.copytree(models / name, target / name)


def resume_killed_training(
    study, params, variant, models, finished, interruption, target, monkeypatch
) -> list[int]:
    """Kill a training, run it again, and check that its tables equal those of a run without interruption.

    Args:
        study: Module of the experiment.
        params: All settings.
        variant: What is trained.
        models: Folder of the lab models.
        finished: Results and folder of jobs of the run without interruption.
        interruption: A class, the name of its method, and at which of its calls the process dies.
        target: Empty folder for the jobs of the second run.
        monkeypatch: Of pytest.

    Returns:
        The updates that were left to the second run.
    """
    results, runs = finished
    owner, method, call_number = interruption
    # All jobs but the training are taken from the finished run.
    training_folders = find_job_folders(runs, f"{variant.name}/seed-0")
    for folder in runs.glob("*"):
        if folder not in training_folders:
            (target / folder.name).symlink_to(folder)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, method, dying(getattr(owner, method), call_number))
        study.run(params, [variant], models, target)
    assert list(target.glob("*/checkpoint.safetensors"))

    remaining_updates = []
    add_rows = TrainingTables.add

    def record_updates(tables, name, rows):
        if name == "rollouts":
            remaining_updates.extend(rows["step"].unique())
        add_rows(tables, name, rows)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingTables, "add", record_updates)
        resumed_results = study.run(params, [variant], models, target)

    for name in ("rollouts", "learning", "episodes"):
        resumed_table = of(getattr(resumed_results, name), variant.name)
        expected_table = of(getattr(results, name), variant.name)
        assert_frame_equal(resumed_table, expected_table, check_exact=True)
    return remaining_updates
