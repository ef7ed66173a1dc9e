"""The experiment of lesson 02: who plays in which world, and what is recorded of it."""

import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from lib.config import ROOT
from lib.experiment import results_table
from lib.language_models.hugging_face_folder import hash_folder
from lib.orchestration import experiment
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.jobs import CONSTRAINED_INTERVAL, make_constrained_jobs, make_jobs
from lib.orchestration.methods import BEST_POLICY, ORACLE, UPPER_BOUND
from lib.orchestration.worlds import WORLDS, World
from lib.policy_zoo.recipes import SINGLE
from tests.language_models.hugging_face_folders import make_random_folder
from tests.orchestration.small import SCRIPTED, make_params, play_job, trained

__all__ = ["trained"]


@pytest.mark.parametrize(("domain", "world"), WORLDS)
def test_a_job_plays_every_method_on_the_same_episodes_and_gives_the_same_again(
    domain, world, trained, tmp_path
):
    params = make_params()
    job = make_jobs(params, domain, world, trained)[0]
    tables = [play_job(job, params, tmp_path / name, trained) for name in ("first", "second")]
    pd.testing.assert_frame_equal(*tables)
    episodes = tables[0]
    items = episodes.groupby("method")["item"].agg(list)
    assert all(listed == ["0-0", "0-1", "0-2"] for listed in items)
    assert {(row.group, row.condition) for row in episodes.itertuples()} == {(domain, world)}

    names = set(items.index)
    shared = {*SINGLE, BEST_POLICY, "random", "round-robin", "LinUCB", UPPER_BOUND}
    for model in ("greedy", SCRIPTED):
        shared |= {f"{system} {model}" for system in SYSTEMS} | {f"RO {model}, one copy"}
    assert shared <= names
    assert (f"KO {SCRIPTED}, no short-term" in names) == (world == "paper")
    has_depths = domain == "education" and world != "varied"
    assert ("RO greedy, 3 steps" in names) == has_depths
    assert (f"RO {SCRIPTED}, every 2" in names) == (world == "varied")
    assert ("MO-S" in names) == has_depths
    assert not names & {ORACLE}
    assert (tmp_path / "first" / "steps.parquet").exists() == (world != "varied")


def test_rows_say_who_decided_in_which_context(trained, tmp_path):
    params = make_params()
    job = make_jobs(params, "education", "paper", trained)[0]
    episodes = play_job(job, params, tmp_path / "job", trained).groupby("method").first()
    row = episodes.loc[f"RO {SCRIPTED}"]
    assert (row["orchestrator"], row["model"], row["backend"]) == ("RO", SCRIPTED, "scripted")
    row = episodes.loc["KO greedy"]
    assert (row["orchestrator"], row["model"], row["backend"]) == ("KO", "greedy", "policy")
    for name in ("random", "SO-d1", UPPER_BOUND):
        assert (episodes.loc[name, ["orchestrator", "model"]] == "").all()
    asks = episodes["model"] == SCRIPTED
    assert (episodes.loc[asks, "calls"] > 0).all() and not episodes.loc[~asks, "calls"].any()


def test_the_oracle_dominates_on_every_episode(trained, tmp_path):
    worlds = [("education", "varied"), ("minigrid", "varied")]
    rows = experiment.run(make_params(), worlds, trained, tmp_path, tmp_path)
    keys = ["group", "seed", "item"]
    best = rows[rows["method"] == ORACLE].set_index(keys)["reward"]
    assert len(best) == 2 * 2 * 3 and best.index.is_unique
    others = rows[rows["method"] != ORACLE].set_index(keys)["reward"]
    assert (others <= others.index.map(best)).all()
    assert set(others[others == others.index.map(best)].index) == set(best.index)


def test_the_results_table_is_that_of_every_system(trained, tmp_path):
    params, worlds = make_params(), [("education", "speed")]
    rows = experiment.run(params, worlds, trained, tmp_path / "runs", tmp_path)
    written = results_table.read_results("orchestration", tmp_path)
    assert written["reward"].tolist() == rows["reward"].tolist()
    assert set(rows["system"]) == {"orchestration"} and set(rows["split"]) == {"test"}
    assert set(rows["style"]) == {"speed"} and set(rows["seed"]) == {0, 1}
    assert rows["outcomes"].map(len).tolist() == rows["length"].tolist()
    steps = experiment.read_steps(params, worlds, trained, tmp_path / "runs")
    lengths = steps.groupby(["method", "item"]).size()
    expected = rows[rows["method"] != ORACLE].set_index(["method", "item"])["length"]
    assert lengths.to_dict() == expected.to_dict()


# Prompted models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_prompted_models_play_the_first_episodes_that_everybody_meets(domain, trained, tmp_path):
    params = make_params()
    episodes, steps = experiment.run_prompted(
        params, [domain], [SCRIPTED], zoo=trained, runs=tmp_path
    )
    assert set(episodes["method"]) == {f"{system} {SCRIPTED}" for system in SYSTEMS}
    assert set(episodes["item"]) == {"0-0", "0-1", "1-0", "1-1"}
    assert len(episodes) == 3 * 2 * 2 and len(steps) == episodes["length"].sum()

    # The same students, model and context: the same episodes as in the contest.
    (job, _) = make_jobs(params, domain, "paper", trained)
    contest = play_job(job, params, tmp_path / "contest", trained)
    keys = ["method", "item", "length", "reward", "calls", "tokens_in"]
    both = episodes[keys].merge(contest[keys])
    assert len(both) == 3 * 2


def test_a_finished_experiment_is_read_and_not_run_again(trained, tmp_path, monkeypatch):
    first = experiment.run_prompted(
        make_params(), ["education"], [SCRIPTED], zoo=trained, runs=tmp_path
    )
    monkeypatch.setattr(World, "play", None)  # calling it would fail
    again = experiment.run_prompted(
        make_params(), ["education"], [SCRIPTED], zoo=trained, runs=tmp_path
    )
    for before, after in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(before, after)


def test_who_remembers_less_has_a_name_that_says_so_and_a_shorter_prompt(trained, tmp_path):
    variants = ((), ("mem_s",), ("mem_l",), ("mem_s", "mem_l"))
    episodes, _ = experiment.run_prompted(
        make_params(), ["education"], [SCRIPTED], zoo=trained, runs=tmp_path, without=variants
    )
    assert episodes["method"].nunique() == 3 * 4
    tokens = episodes.groupby("method")["tokens_in"].sum()
    for system in SYSTEMS:
        whole = tokens[f"{system} {SCRIPTED}"]
        for suffix in (", no short-term", ", no memory"):
            assert tokens[f"{system} {SCRIPTED}{suffix}"] < whole


KILLED = """
import sys
from pathlib import Path
from lib.language_models.hugging_face_folder import hash_folder
from lib.orchestration import experiment
from tests.orchestration.small import SCRIPTED, make_params
runs, zoo = map(Path, sys.argv[1:])
params = make_params(orchestration={"jobs": 2})
experiment.run_prompted(params, ["education", "minigrid"], [SCRIPTED], zoo=zoo, runs=runs)
"""


def test_a_killed_experiment_of_two_processes_ends_with_the_tables_of_one_process(
    trained, tmp_path
):
    runs = tmp_path / "killed"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(runs), str(trained)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(runs.rglob("done.json")) and time.monotonic() < deadline:
        assert child.poll() is None, "the experiment ended before it could be killed"
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()

    domains = ["education", "minigrid"]
    resumed = experiment.run_prompted(make_params(), domains, [SCRIPTED], zoo=trained, runs=runs)
    whole = experiment.run_prompted(
        make_params(), domains, [SCRIPTED], zoo=trained, runs=tmp_path / "whole"
    )
    for expected, table in zip(whole, resumed, strict=True):
        pd.testing.assert_frame_equal(expected, table)


# Constrained replies ------------------------------------------------------------------------------


def play_constrained(params, folder, zoo, runs):
    """Episodes of a Hugging Face folder whose replies can be nothing but names of policies."""
    identity = hash_folder(folder)
    jobs = make_constrained_jobs(params, folder.name, identity, zoo)
    finished = experiment.run_jobs(
        params, jobs, "deciding", zoo, runs, inputs={identity: str(folder)}
    )
    return finished.read_tables("episodes", with_identity=False)


def test_a_model_of_constrained_replies_has_rows_in_the_same_schema(trained, tmp_path):
    folder = make_random_folder(tmp_path / "parrot-1B")
    params = make_params(education={"horizon": 12}, orchestration={"episodes": 2})
    rows = play_constrained(params, folder, trained, tmp_path / "runs")
    prompted, _ = experiment.run_prompted(
        params, ["education"], [SCRIPTED], zoo=trained, runs=tmp_path
    )
    assert list(rows) == list(prompted)
    assert set(rows["method"]) == {f"{system} parrot-1B" for system in SYSTEMS}
    assert set(rows["item"]) == {"0-0", "0-1"} and set(rows["condition"]) == {"paper"}
    assert (rows["decisions"] == -(-rows["length"] // CONSTRAINED_INTERVAL)).all()
    again = play_constrained(params, folder, trained, tmp_path / "again")
    pd.testing.assert_frame_equal(rows, again)
