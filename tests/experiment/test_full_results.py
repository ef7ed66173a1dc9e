"""Tables of facts of full runs: what they hold, and when they are outdated."""

import base64
import json
import zlib
from dataclasses import replace

import pandas as pd
import pytest

from lib.experiment import full_results, results_table
from lib.experiment.full_results import FullRun, read_full_results, write_full_results
from lib.experiment.sweep import Job

ROWS = pd.DataFrame(
    {
        "method": ["CoRL", "random"] * 4,
        "role": ["paper", "router"] * 4,
        "item": [str(number) for number in range(8)],
        "reward": [1.0, 0.0] * 4,
        "context": ["a long text"] * 8,
    }
)


def make_jobs(version: int = 1, seeds: int = 2, **of_first: str) -> list[Job]:
    first = Job("experts", {"job": "trial", "versions": {"losses": 1}, **of_first})
    trainings = [
        Job(
            f"corl/seed-{seed}",
            {"seed": seed, "inputs": {"trial": first.key}, "versions": {"losses": version}},
        )
        for seed in range(seeds)
    ]
    return [first, *trainings]


@pytest.fixture
def recorded(tmp_path):
    """A full run of which the table is written."""
    run = FullRun("05_lesson", "corl", lambda params: make_jobs(), lambda params: ROWS, tmp_path)
    path = tmp_path / "05_lesson.parquet"
    write_full_results(run, results_table.make_results("corl", ROWS), make_jobs(), 7200.4, path)
    return run, path


def read_with(recorded, jobs) -> full_results.FullResults:
    run, path = recorded
    return read_full_results(
        FullRun(run.lesson, run.system, lambda params: jobs, run.make_rows, run.runs), None, path
    )


def test_a_table_is_current_while_a_full_run_would_have_the_same_jobs(recorded):
    full = read_with(recorded, make_jobs())
    assert full.is_current and full.changes == ()
    assert (full.num_jobs, full.seconds) == (3, 7200)
    assert full.command == "make full LESSON=05_lesson"
    assert full.rows["reward"].tolist() == ROWS["reward"].tolist()
    assert set(full.rows["system"]) == {"corl"}
    assert set(full.rows["context"]) == {""}  # long texts are left out


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        (make_jobs(version=2), "versions.losses 1 -> 2"),
        (make_jobs(seeds=3), "the job corl/seed-2 is new"),
        (make_jobs(seeds=1), "there is no job corl/seed-1 any more"),
    ],
)
def test_a_table_is_outdated_by_another_version_or_other_jobs_and_says_why(recorded, jobs, reason):
    full = read_with(recorded, jobs)
    assert full.status == "outdated" and not full.is_current
    assert full.changes == (reason,)


def test_a_replication_under_another_root_seed_shows_the_same_table(recorded, monkeypatch):
    run, path = recorded
    monkeypatch.setenv("BENCH_ROOT_SEED", "2")
    assert read_full_results(run, None, path).is_current


def test_what_means_the_same_on_another_machine_outdates_nothing(recorded):
    run, path = recorded
    jobs = make_jobs(clock="of this machine")
    assert not read_full_results(replace(run, list_jobs=lambda params: jobs), None, path).is_current

    def describe_settings(settings: dict) -> dict:
        return {name: value for name, value in settings.items() if name != "clock"}

    run = replace(run, list_jobs=lambda params: jobs, describe_settings=describe_settings)
    assert read_full_results(run, None, path).is_current


def test_a_missing_table_is_absent_and_a_foreign_one_is_refused(recorded, tmp_path):
    run, _ = recorded
    full = read_full_results(run, None, tmp_path / "none.parquet")
    assert full.status == "absent" and not full.is_current and full.command == run.command
    foreign = tmp_path / "foreign.parquet"
    results_table.make_results("corl", ROWS).to_parquet(foreign)
    with pytest.raises(ValueError, match="no table of a full run.*make full LESSON=05_lesson"):
        read_full_results(run, None, foreign)


def test_a_table_that_git_should_not_hold_is_refused(recorded, monkeypatch, tmp_path):
    run, path = recorded
    monkeypatch.setattr(full_results, "MAX_BYTES", 1000)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="more than 1,000; let 05_lesson keep fewer rows"):
        write_full_results(run, ROWS, make_jobs(), 1.0, path)
    assert path.read_bytes() == before


def test_the_file_says_how_it_was_made(recorded):
    import pyarrow.parquet as parquet

    metadata = parquet.read_schema(recorded[1]).metadata[b"full_run"]
    description = json.loads(zlib.decompress(base64.b64decode(metadata)))
    assert set(description["jobs"]) == {job.label for job in make_jobs()}
    assert description["jobs"]["experts"]["versions"] == {"losses": 1}
    assert description["jobs"]["corl/seed-0"]["inputs"] == {"trial": "experts"}
