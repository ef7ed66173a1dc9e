"""Finished jobs of an earlier version keep their numbers under today's names."""

import hashlib

import pandas as pd
import pytest

from lib.experiment import artifacts, earlier_jobs, sweep
from lib.experiment.seeds import ROOT_SEED
from lib.experiment.sweep import Job


def leave(runs, name: str, settings: dict, **tables: pd.DataFrame) -> Job:
    """A finished job as an earlier version left it."""
    job = Job(name, settings)
    folder = job.folder(runs)
    artifacts.write_json(folder / "job.json", {"label": job.label, "settings": job.settings})
    for table, frame in tables.items():
        artifacts.write_parquet(folder / f"{table}.parquet", frame)
    artifacts.write_json(folder / "done.json", {"result": {"constant_dollars": 2.0}, "seconds": 1})
    return job


@pytest.fixture
def place(tmp_path):
    """A start, and a training that names it by its key."""
    card = artifacts.write_json(tmp_path / "models/mini/card.json", EARLIER_CARD)
    settings = {"arm": None, "routing": {"high": 2}, "card": artifacts.sha256_file(card)}
    start = leave(tmp_path / "runs/routing", "start", settings)
    rollouts = pd.DataFrame({"kind": ["chain"], "update": [3], "right": [1.0], "dollars": [0.5]})
    episodes = pd.DataFrame({"kind": ["facts"], "label": ["low"], "right": [0.0]})
    settings = {"arm": {"name": "paper"}, "seed": 0, "inputs": {"start": start.key}}
    leave(tmp_path / "runs/routing", "paper", settings, rollouts=rollouts, episodes=episodes)
    return tmp_path


EARLIER_CARD = {"accuracy": [{"lo": 0.1, "hi": 0.2}]}
CARD = {"accuracy": [{"ci_low": 0.1, "ci_high": 0.2}]}
CARD_HASH = hashlib.sha256(artifacts.to_json(CARD).encode()).hexdigest()
START = Job(
    "start",
    {"variant": None, "routing": {"high_budget_usd": 2}, "card": CARD_HASH},
)
PAPER = Job("paper", {"variant": {"name": "paper"}, "seed": 0, "inputs": {"start": START.key}})


def migrate(folder) -> int:
    return earlier_jobs.migrate(folder / "runs", folder / "models")


def check(place) -> None:
    folder = place / "runs/routing"
    assert artifacts.read_json(place / "models/mini/card.json") == CARD
    assert sorted(path.name for path in folder.iterdir()) == sorted([START.key, PAPER.key])
    assert sweep.read_receipt(PAPER, folder)["result"] == {"constant_cost_usd": 2.0}
    rollouts = artifacts.read_parquet(PAPER.folder(folder) / "rollouts.parquet")
    assert rollouts.to_dict("list") == {
        "group": ["chain"], "step": [3], "correct": [1.0], "cost_usd": [0.5]
    }  # fmt: skip
    episodes = artifacts.read_parquet(PAPER.folder(folder) / "episodes.parquet")
    assert episodes.to_dict("list") == {"group": ["facts"], "condition": ["low"], "correct": [0.0]}


def test_finished_jobs_are_found_under_todays_settings_with_todays_columns(place):
    assert migrate(place) == 2
    check(place)
    assert migrate(place) == 0, "once"
    check(place)


def square(job, folder, progress):
    """A table in whose today's columns an earlier name has another meaning."""
    rollouts = pd.DataFrame({"kind": ["of another meaning"], "correct": [1.0]})
    artifacts.write_parquet(folder / "rollouts.parquet", rollouts)
    return job.settings["n"] ** 2


def test_jobs_that_ran_before_the_pipeline_first_did_are_none_of_an_earlier_version(
    tmp_path, monkeypatch
):
    runs = tmp_path / "runs"
    monkeypatch.setattr(earlier_jobs, "RUNS", runs)
    for n in (2, 3):  # the second finds the mark of the first
        sweep.run(square, [Job(f"job {n}", {"n": n})], runs / "routing", workers=1)
    files = {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()}
    assert migrate(tmp_path) == 0
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()} == files


def test_a_sweep_does_not_hide_the_jobs_of_an_earlier_version(place, monkeypatch):
    monkeypatch.setattr(earlier_jobs, "RUNS", place / "runs")
    sweep.run(square, [Job("job", {"n": 2})], place / "runs/other", workers=1)
    assert migrate(place) == 2
    check(place)


@pytest.mark.parametrize("call", range(9))
def test_killed_anywhere_it_goes_on(place, monkeypatch, call):
    """Every write and every renaming of a folder may be the last thing that happened."""
    calls = []
    write_json, write_parquet = artifacts.write_json, artifacts.write_parquet

    def killed(write):
        def write_or_die(*arguments):
            calls.append(write)
            if len(calls) == call + 1:
                raise KeyboardInterrupt
            return write(*arguments)

        return write_or_die

    monkeypatch.setattr(earlier_jobs.artifacts, "write_json", killed(write_json))
    monkeypatch.setattr(earlier_jobs.artifacts, "write_parquet", killed(write_parquet))
    with pytest.raises(KeyboardInterrupt):
        migrate(place)
    monkeypatch.undo()
    migrate(place)
    check(place)


def test_emphasised_rewards_are_named(tmp_path):
    rollouts = pd.DataFrame({"action": [2, -1], "advantage": [0.5, 0.0]})
    leave(tmp_path / "runs/conductor", "conductor", {"job": "arm"}, rollouts=rollouts)
    migrate(tmp_path)
    job = Job("conductor", {"job": "variant"})
    table = artifacts.read_parquet(job.folder(tmp_path / "runs/conductor") / "rollouts.parquet")
    assert table["action"].tolist() == ["ent", ""]


def test_a_job_under_another_root_seed_does_not_become_one_of_this_seed(tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_SEED, "1")
    job = leave(tmp_path / "runs/conductor", "conductor", {"job": "arm"})
    folder = job.folder(tmp_path / "runs/conductor")  # its name holds the root seed
    monkeypatch.delenv(ROOT_SEED)
    assert migrate(tmp_path) == 0
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert artifacts.read_json(folder / "job.json")["settings"] == {"job": "arm"}


def test_a_new_working_copy_is_marked_and_its_jobs_are_left_as_they_are(tmp_path):
    assert migrate(tmp_path) == 0
    leave(tmp_path / "runs/conductor", "conductor", {"job": "arm"})
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    assert migrate(tmp_path) == 0
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
