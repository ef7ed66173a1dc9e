"""The harness: stages of jobs that build on one another, and trainings that resume."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.config.types import Section
from lib.experiment import artifacts
from lib.experiment.evaluation import run_tests
from lib.experiment.harness import FinishedJobs, JobRun, Stage, run_job, run_stages
from lib.experiment.run_context import RunContext
from lib.experiment.sweep import Job
from lib.experiment.training import TrainingTables, remove_checkpoint, run_updates


class WalkSettings(Section):
    """Settings of a made-up experiment."""

    length: int
    scale: float = 1.0


def draw_walk(run: JobRun) -> dict[str, int]:
    """Draws a random walk of the length that the settings say."""
    settings = run.read_section("walk", WalkSettings)
    steps = np.random.default_rng(run.seed).normal(size=settings.length)
    run.write_table("walk", pd.DataFrame({"position": steps.cumsum()}))
    return {"length": settings.length}


def measure_walk(run: JobRun, offset: float) -> dict[str, float]:
    """Measures where the walk that it builds on ends."""
    walk = artifacts.read_parquet(run.input_folder("walk") / "walk.parquet")
    end = float(walk["position"].iloc[-1]) + offset
    run.write_table("ends", pd.DataFrame({"end": [end]}))
    run.report_progress(1.0)
    return {"end": end}


def make_stages(offset: float = 0.0, num_seeds: int = 2) -> list[Stage]:
    walks = [
        Job(f"walk/seed-{seed}", {"job": "walk", "walk": {"length": 5}, "seed": seed})
        for seed in range(num_seeds)
    ]
    variant = {"name": "plain"}
    ends = [
        Job(
            f"end/seed-{seed}",
            {"job": "end", "inputs": {"walk": walk.key}, "seed": seed, "variant": variant},
        )
        for seed, walk in enumerate(walks)
    ]
    return [
        Stage("walks", walks, draw_walk),
        Stage("ends", ends, partial(measure_walk, offset=offset)),
    ]


def run_walks(folder: Path, **changes) -> FinishedJobs:
    return run_stages(make_stages(**changes), RunContext.without_models(folder, workers=1))


def test_a_stage_finds_the_folders_of_the_jobs_before_it(tmp_path):
    finished = run_walks(tmp_path)
    ends = finished.read_tables("ends")
    expected = [np.random.default_rng(seed).normal(size=5).sum() for seed in range(2)]
    assert ends["end"].tolist() == pytest.approx(expected)
    assert ends[["method", "seed"]].values.tolist() == [["plain", 0], ["plain", 1]]
    assert [receipt["result"].get("length") for receipt in finished.receipts] == [5, 5, None, None]
    assert finished.list_results()[0][0].label == "walk/seed-0"


def test_what_is_finished_is_not_done_again(tmp_path):
    run_walks(tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.parquet")}
    more = run_walks(tmp_path, offset=99.0, num_seeds=3)  # offset is no setting: only seed 2 is new
    assert {path: path.stat().st_mtime_ns for path in written} == written
    old, new = more.receipts[4]["result"]["end"], more.receipts[5]["result"]["end"]
    assert abs(old) < 50 < new


def test_replies_that_were_paid_for_are_kept_after_an_error(tmp_path):
    exported = []
    stages = make_stages()
    broken = Stage("ends", stages[1].jobs, draw_walk)  # such a job has no section `walk`
    context = RunContext.without_models(tmp_path, workers=1)
    with pytest.raises(KeyError, match="walk"):
        run_stages([stages[0], broken], context, on_exit=lambda: exported.append("kept"))
    assert exported == ["kept"]
    assert len(list(tmp_path.glob("*/done.json"))) == 2  # and so are the finished jobs


def test_a_job_reads_no_setting_that_it_was_not_handed(tmp_path):
    run = JobRun(make_stages()[0].jobs[0], tmp_path, lambda fraction: None, None)
    settings = run.read_section("walk", WalkSettings)
    assert settings.length == 5
    with pytest.raises(AttributeError, match="'scale' of WalkSettings was not handed"):
        _ = settings.scale


class Counter:
    """A learner whose only parameter counts its updates, with some noise in it."""

    def __init__(self) -> None:
        self.step = 0
        self.value = 0.0

    def save(self, path: Path) -> None:
        artifacts.write_json(path, {"step": self.step, "value": self.value})

    def restore(self, path: Path) -> None:
        state = artifacts.read_json(path)
        self.step, self.value = state["step"], state["value"]


def train_counter(run: JobRun, stop_at: int | None = None) -> float:
    learner = Counter()
    tables = TrainingTables(run.folder, learner)

    def make_update() -> None:
        if learner.step == stop_at:
            raise KeyboardInterrupt
        noise = np.random.default_rng(learner.step).normal()
        tables.add("rollouts", pd.DataFrame({"step": [learner.step], "reward": [noise]}))
        learner.value += noise
        learner.step += 1
        tables.add("learning", pd.DataFrame({"step": [learner.step], "value": [learner.value]}))

    run_updates(learner, 10, make_update, tables, run.context.save_every, run.report_progress)
    remove_checkpoint(run.folder)
    return learner.value


@pytest.mark.parametrize("save_every", [1, 3, 100])
@pytest.mark.parametrize("stop_at", [1, 3, 7])
def test_an_interrupted_training_ends_as_if_it_had_never_stopped(tmp_path, save_every, stop_at):
    job = Job("training", {"job": "training", "seed": 0})
    context = RunContext.without_models(tmp_path, workers=1)
    whole = run_job(job, tmp_path / "whole", lambda fraction: None, train_counter, context)

    context = RunContext("{}", "", str(tmp_path), "", save_every=save_every)
    work = partial(train_counter, stop_at=stop_at)
    with pytest.raises(KeyboardInterrupt):
        run_job(job, tmp_path / "stopped", lambda fraction: None, work, context)
    fractions = []
    again = run_job(job, tmp_path / "stopped", fractions.append, train_counter, context)

    assert again == whole
    for name in ("rollouts", "learning"):
        tables = [
            artifacts.read_parquet(tmp_path / folder / f"{name}.parquet")
            for folder in ("whole", "stopped")
        ]
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    # What was saved before the interrupt is not done again.
    assert len(fractions) == 10 - stop_at // save_every * save_every
    assert not list(tmp_path.glob("*/checkpoint*"))


def test_the_rows_of_a_test_say_under_which_conditions_it_was_made():
    def run_test(style: str, temperature: float) -> pd.DataFrame:
        num_rows = 0 if style == "none" else 2
        return pd.DataFrame({"reward": np.full(num_rows, temperature)})

    tests = [
        {"style": "soft", "temperature": 0.5},
        {"style": "none", "temperature": 0.0},
        {"style": "hard", "temperature": 0.0},
    ]
    rows = run_tests(tests, run_test)
    assert rows["style"].tolist() == ["soft", "soft", "hard", "hard"]
    assert rows["reward"].tolist() == rows["temperature"].tolist()


def test_costs_are_announced_before_the_first_job_and_not_where_all_are_finished(tmp_path, capsys):
    context = RunContext.without_models(tmp_path, workers=1)
    run_stages(make_stages(), context, announcement="At most 5 calls")
    assert capsys.readouterr().err.count("At most 5 calls") == 1
    run_stages(make_stages(), context, announcement="At most 5 calls")
    assert capsys.readouterr().err == ""


def test_an_announcement_reaches_the_runner_and_no_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BENCH_PROGRESS", str(tmp_path / "report.json"))
    context = RunContext.without_models(tmp_path / "runs", workers=1)
    run_stages(make_stages(), context, announcement="At most 5 calls")
    assert (tmp_path / "report.json.reasons").read_text() == "At most 5 calls\n"
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
