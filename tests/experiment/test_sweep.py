"""Sweeps: resume after anything, never repeat what is finished, leave no process behind."""

import contextlib
import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from joblib.externals.loky import get_reusable_executor

from lib.config import ROOT
from lib.experiment import artifacts, sweep
from lib.experiment.sweep import Job

# The work of these jobs is importable by name, so that processes can run it: see `run` in lib.experiment.sweep.
WORK = """
import os, time
from pathlib import Path
from types import SimpleNamespace

def count(job, folder, progress):
    with open(job.settings["log"], "a") as log:
        log.write(job.label + "\\n")
    progress(0.5)
    if job.settings.get("fails"):
        raise RuntimeError(f"{job.label} went wrong")
    time.sleep(job.settings.get("seconds", 0))
    return {"square": job.settings["n"] ** 2, "threads": os.environ.get("OMP_NUM_THREADS")}

def draw(job, folder, progress):
    import pandas as pd
    from lib.experiment import seeds, artifacts as store
    numbers = seeds.rng("swept", seed=job.settings["seed"]).normal(size=(500, 3))
    progress(0.5)
    store.write_parquet(folder / "draws.parquet", pd.DataFrame(numbers, columns=list("abc")).assign(job=job.label))
    store.write_json(folder / "sums.json", {"sums": numbers.sum(axis=0), "one": seeds.uniform(seeds.key("swept"), 7)})
    store.write_text(folder / "where.txt", f"{os.getpid()} {os.environ.get('OMP_NUM_THREADS')}")
    if job.settings.get("fails"):
        raise RuntimeError(f"{job.label} went wrong")
    return {"mean": numbers.mean()}
"""

KILLED = """
import sys
from lib.experiment import sweep
import swept
jobs = [sweep.Job(f"c{n}", {"n": n, "log": sys.argv[2], "seconds": float(sys.argv[4])}) for n in range(6)]
print("ready", flush=True)
sweep.run(swept.count, jobs, sys.argv[1], workers=int(sys.argv[3]))
"""


@pytest.fixture
def count(tmp_path, monkeypatch):
    get_reusable_executor().shutdown(
        wait=True
    )  # workers of an earlier sweep do not know this folder
    (tmp_path / "swept.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    import swept

    yield swept.count
    del sys.modules["swept"]


def make_jobs(tmp_path, n: int = 3, **settings) -> list[Job]:
    return [Job(f"arm/{i}", {"n": i, "log": str(tmp_path / "log"), **settings}) for i in range(n)]


def ran(tmp_path) -> list[str]:
    log = tmp_path / "log"
    return sorted(log.read_text().split()) if log.exists() else []


def squares(receipts) -> list[int]:
    return [receipt["result"]["square"] for receipt in receipts]


def test_finished_jobs_are_not_run_again_new_ones_are_and_those_with_other_settings(
    tmp_path, count
):
    first = sweep.run(count, make_jobs(tmp_path), tmp_path / "runs", workers=1)
    again = sweep.run(count, make_jobs(tmp_path), tmp_path / "runs", workers=1)
    assert first == again and squares(again) == [0, 1, 4]
    assert ran(tmp_path) == ["arm/0", "arm/1", "arm/2"]
    assert squares(sweep.run(count, make_jobs(tmp_path, 4), tmp_path / "runs", workers=1)) == [
        0,
        1,
        4,
        9,
    ]
    sweep.run(count, make_jobs(tmp_path, rate=0.1), tmp_path / "runs", workers=1)
    assert len(ran(tmp_path)) == 4 + 3 and sweep.run(count, [], tmp_path / "runs") == []


def test_one_process_and_two_give_the_same_results_in_the_same_order_with_one_thread_each(
    tmp_path, count
):
    one = sweep.run(count, make_jobs(tmp_path, 5), tmp_path / "one", workers=1)
    two = sweep.run(count, make_jobs(tmp_path, 5), tmp_path / "two", workers=2)
    assert squares(one) == squares(two) == [0, 1, 4, 9, 16]
    assert {receipt["result"]["threads"] for receipt in two} == {"1"}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_job_comes_out_and_what_was_finished_stays(tmp_path, count, workers):
    good, bad = (
        make_jobs(tmp_path, 2),
        Job("arm/bad", {"n": 9, "log": str(tmp_path / "log"), "fails": True}),
    )
    with pytest.raises(RuntimeError, match="arm/bad went wrong"):
        sweep.run(count, [*good, bad], tmp_path / "runs", workers=workers)
    sweep.run(count, good, tmp_path / "runs", workers=1)
    assert [name for name in ran(tmp_path) if name != "arm/bad"] == ["arm/0", "arm/1"]
    assert sweep.read_receipt(bad, tmp_path / "runs") is None


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job("arm/0", {}), "labels of jobs must differ.*arm/0"),
        (None, "settings of jobs must differ"),
    ],
)
def test_two_jobs_of_one_label_or_of_one_key_are_refused(tmp_path, count, job, message):
    jobs = make_jobs(tmp_path)
    with pytest.raises(ValueError, match=message):
        sweep.run(count, [*jobs, job or Job("another label", jobs[0].settings)], tmp_path / "runs")
    assert ran(tmp_path) == []


def test_a_job_of_another_label_is_the_same_job(tmp_path, count):
    sweep.run(count, [Job("before", make_jobs(tmp_path)[0].settings)], tmp_path / "runs", workers=1)
    sweep.run(count, [Job("after", make_jobs(tmp_path)[0].settings)], tmp_path / "runs", workers=1)
    assert ran(tmp_path) == ["before"]


# Why a job is run again ---------------------------------------------------------------------------


def test_the_first_run_of_a_job_needs_no_reason(tmp_path):
    assert sweep.explain_reruns([Job("a", {"rate": 0.1})], tmp_path) == []


def test_a_rerun_is_explained_by_the_settings_that_changed_since_the_last_finished_job(
    tmp_path, count
):
    def settings(n: int, **changes) -> dict:
        versions = {"losses": 1, "rollouts": 3} | changes
        return {"n": n, "log": str(tmp_path / "log"), "sizes": (1, 2), "versions": versions}

    runs = tmp_path / "runs"
    for rollouts in (2, 3):  # the last one counts
        jobs = [Job(f"arm/{n}", settings(n, rollouts=rollouts)) for n in range(3)]
        sweep.run(count, jobs, runs, workers=1)
    later = [Job(f"arm/{n}", settings(n, losses=2)) for n in range(2)]
    later += [Job("arm/2", settings(7)), Job("arm/3", settings(3))]
    assert sweep.explain_reruns(later, runs) == [
        "2 of 4 jobs: versions.losses 1 -> 2",
        "1 of 4 jobs: n 2 -> 7",
    ]


def test_reasons_reach_the_runner_beside_its_progress_file_and_who_started_a_command_by_hand(
    tmp_path, count, monkeypatch, capfd
):
    sweep.run(count, make_jobs(tmp_path, rate=0.1), tmp_path / "runs", workers=1)
    monkeypatch.setenv("BENCH_PROGRESS", str(tmp_path / "report.json"))
    sweep.run(count, make_jobs(tmp_path, rate=0.2), tmp_path / "runs", workers=1, label="counting")
    reason = "counting: 3 of 3 jobs: rate 0.1 -> 0.2\n"
    assert (tmp_path / "report.json.reasons").read_text() == reason
    monkeypatch.setenv("BENCH_PROGRESS", sweep.STDERR)
    sweep.run(count, make_jobs(tmp_path, rate=0.3), tmp_path / "runs", workers=1, label="counting")
    assert "counting: 3 of 3 jobs: rate 0.2 -> 0.3\n" in capfd.readouterr().err


# Chains -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_chain_is_run_in_order_in_one_process_and_what_is_finished_is_left_out(
    tmp_path, count, workers
):
    log = tmp_path / "log"
    a, b, c, d = (
        Job(name, {"n": n, "log": str(log), "seconds": 0.2 * (name == "a")})
        for n, name in enumerate("abcd")
    )
    sweep.run(count, [b], tmp_path / "runs", workers=1)
    receipts = sweep.run_chains(count, [[a, b, c], [d]], tmp_path / "runs", workers=workers)
    assert [receipt["result"]["square"] for receipt in receipts] == [0, 1, 4, 9]
    told = log.read_text().split()
    assert sorted(told) == ["a", "b", "c", "d"] and told.index("a") < told.index("c")
    with pytest.raises(ValueError, match="'a'"):
        sweep.run_chains(count, [[a], [a]], tmp_path / "runs")


def test_who_starts_a_command_by_hand_reads_lines(tmp_path, count, monkeypatch, capfd):
    monkeypatch.setenv("BENCH_PROGRESS", sweep.STDERR)
    sweep.run(count, make_jobs(tmp_path, 2), tmp_path / "runs", workers=1, label="counting")
    assert re.match(r"counting: \d\.\d of 2, 0 s\n", capfd.readouterr().err)


def test_who_runs_a_cell_of_a_notebook_reads_one_line_that_keeps_up(
    tmp_path, count, monkeypatch, capsys
):
    monkeypatch.delenv("BENCH_PROGRESS", raising=False)
    sweep.run(count, make_jobs(tmp_path, 2), tmp_path / "runs", workers=1, label="counting")
    assert capsys.readouterr().out == ""  # nobody looks
    jupyter = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel="of a notebook"))
    monkeypatch.setitem(sys.modules, "IPython", jupyter)
    sweep.run(count, make_jobs(tmp_path, 2), tmp_path / "others", workers=1, label="counting")
    printed = capsys.readouterr().out
    lines = printed.removesuffix("\n").split("\r")
    assert lines[0] == "" and printed.count("\n") == 1
    assert re.fullmatch(r"counting: \d\.\d of 2, 0 s *", lines[1])
    assert lines[-1].startswith("counting: 2.0 of 2, ")


def test_the_runner_is_told_how_far_a_sweep_is(tmp_path, count, monkeypatch):
    monkeypatch.setenv("BENCH_PROGRESS", str(tmp_path / "report.json"))
    seen = []
    write = artifacts.write_json

    def spy(path, value):
        if Path(path).name == "report.json":
            seen.append(value)
        return write(path, value)

    monkeypatch.setattr(artifacts, "write_json", spy)
    sweep.run(
        count, make_jobs(tmp_path, 2, seconds=1.2), tmp_path / "runs", workers=1, label="counting"
    )
    assert {report["label"] for report in seen} == {"counting"}
    done = [report["done"] for report in seen]
    assert done == sorted(done) and 0.5 in done and done[-1] >= 1.0
    assert not (tmp_path / "report.json").exists()


def start(tmp_path, workers: int, seconds: float) -> subprocess.Popen:
    arguments = [str(tmp_path / "runs"), str(tmp_path / "log"), str(workers), str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments], cwd=tmp_path, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    return process


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()  # its children may hold the other end


def wait_for(condition, seconds: float = 30.0) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def at_work(folder: Path) -> list[str]:
    """Processes whose working directory is `folder`; a zombie is none."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.cwd() == str(folder):
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, FileNotFoundError):
            continue
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_sweep_goes_on_where_it_was(tmp_path, count, workers):
    process = start(tmp_path, workers, 0.3)
    assert wait_for(lambda: len(list((tmp_path / "runs").glob("*/done.json"))) >= 2)
    kill(process)
    assert wait_for(lambda: not at_work(tmp_path), 3)
    receipts = (tmp_path / "runs").glob("*/done.json")
    finished = {artifacts.read_json(receipt.with_name("job.json"))["label"] for receipt in receipts}
    (tmp_path / "log").unlink()
    rest = start(tmp_path, workers, 0.3)
    assert rest.wait(60) == 0
    assert set(ran(tmp_path)) == {f"c{n}" for n in range(6)} - finished


@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_no_process_outlives_a_killed_sweep_whenever_it_is_killed(tmp_path, count, delay):
    """Also while the processes are still starting: then they have not said yet whose they are."""
    process = start(tmp_path, 2, 30)
    time.sleep(delay)
    kill(process)
    assert wait_for(lambda: not at_work(tmp_path), 3), at_work(tmp_path)


# On a cluster ----------------------------------------------------------------------------------


@pytest.fixture
def cluster(count, monkeypatch):
    """A scheduler and two workers of their own, and its address in BENCH_DASK."""
    from distributed import LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "protocol": "tcp://"}
    with LocalCluster(**options, dashboard_address=None, silence_logs=logging.ERROR) as running:
        workers = [nanny.process.pid for nanny in running.workers.values()]
        assert len(workers) == 2 and all(psutil.pid_exists(pid) for pid in workers)
        monkeypatch.setenv("BENCH_DASK", running.scheduler_address)
        yield running
    assert wait_for(lambda: not any(psutil.pid_exists(pid) for pid in workers), 5)


def files(root: Path) -> dict[str, bytes]:
    """Everything that jobs wrote, receipts without their seconds; who wrote it aside."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name not in ("where.txt", "progress.json"):
            content = (
                artifacts.read_json(path)["result"]
                if path.name == "done.json"
                else path.read_bytes()
            )
            found[str(path.relative_to(root))] = content
    return found


def test_a_cluster_gives_the_same_bytes_as_processes_here(tmp_path, cluster, monkeypatch):
    """One test for all that a cluster has to do, because starting one takes seconds."""
    import swept

    todo = [Job(f"arm/{i}", {"seed": i}) for i in range(5)]
    receipts = sweep.run(swept.draw, todo, tmp_path / "dask", label="on a cluster")
    writers = {path.read_text() for path in (tmp_path / "dask").glob("*/where.txt")}
    assert str(os.getpid()) not in {writer.split()[0] for writer in writers}
    assert {writer.split()[1] for writer in writers} == {"1"}
    resumed = sweep.run(swept.draw, [*todo, Job("arm/5", {"seed": 5})], tmp_path / "dask")
    assert resumed[:5] == receipts and len(resumed) == 6  # finished jobs are not run again

    bad = Job("arm/bad", {"seed": 9, "fails": True})
    with pytest.raises(RuntimeError, match="arm/bad went wrong"):
        sweep.run(swept.draw, [bad], tmp_path / "failing")
    assert sweep.read_receipt(bad, tmp_path / "failing") is None

    monkeypatch.delenv("BENCH_DASK")
    todo.append(Job("arm/5", {"seed": 5}))
    alone, two = (
        sweep.run(swept.draw, todo, tmp_path / str(workers), workers=workers) for workers in (1, 2)
    )
    assert (
        [r["result"] for r in alone] == [r["result"] for r in two] == [r["result"] for r in resumed]
    )
    written = files(tmp_path / "1")
    assert len(written) == 6 * 4  # the settings, the receipt and two files of the work
    assert files(tmp_path / "2") == written and files(tmp_path / "dask") == written


def test_a_cluster_that_does_not_answer_is_named(tmp_path, count, monkeypatch):
    monkeypatch.setattr(sweep, "_DASK_SECONDS", 1)
    for address in ("tcp://127.0.0.1:1", "nonsense", "tcp://nowhere.invalid:8786"):
        monkeypatch.setenv("BENCH_DASK", address)
        with pytest.raises(RuntimeError, match=f"BENCH_DASK.*{address}"):
            sweep.run(count, make_jobs(tmp_path), tmp_path / "runs")
        gc.collect()  # a client that never connected may block the next one when it is collected meanwhile
    assert ran(tmp_path) == []


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9])
def test_what_listens_and_is_no_cluster_is_named_in_time(tmp_path, count, monkeypatch, says):
    """Silent, or in another language, whose first 8 bytes are read as a number of frames."""
    monkeypatch.setattr(sweep, "_DASK_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = []

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listening.accept()[0])
                    taken[-1].sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("BENCH_DASK", address)
        began = time.monotonic()
        with pytest.raises(RuntimeError, match=f"BENCH_DASK.*{address}"):
            sweep.run(count, make_jobs(tmp_path), tmp_path / "runs")
        assert time.monotonic() - began < 10 and ran(tmp_path) == []
        listening.shutdown(socket.SHUT_RDWR)
    for connection in taken:
        connection.close()


def test_another_root_seed_finds_no_job_of_an_ordinary_run(monkeypatch):
    job = Job("a/b", {"seed": 1})
    usual = job.key
    monkeypatch.setenv("BENCH_ROOT_SEED", "1")
    assert job.key != usual
    monkeypatch.setenv("BENCH_ROOT_SEED", "0")
    assert job.key == usual
