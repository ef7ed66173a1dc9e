"""The full run of lesson 02: ten seeds of a zoo of its own, a pretrained model where it is, and a small table."""

import shutil

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.experiment.full_results import read_full_results, write_full_results
from lib.experiment.seeds import ROOT_SEED
from lib.orchestration import episode_batch, full_run
from lib.orchestration import jobs as jobs_module
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.methods import ORACLE
from lib.orchestration.worlds import WORLDS
from lib.policy_zoo import ppo, train
from lib.reports import full_command
from tests.language_models.hugging_face_folders import make_random_folder
from tests.orchestration.small import make_params, trained

__all__ = ["trained"]

RUN = full_run.FULL_RUN


PRETRAINED = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def folders(trained, tmp_path_factory):
    """The full run with the tiny zoo in place of the trained one, two worlds, and folders of its own."""
    root = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full_run, "ensure_zoo", lambda params, domains, out: trained)
        patch.setattr(full_run, "RUNS", root / "runs")
        patch.setattr(full_run, "WORLDS", (("education", "speed"), ("minigrid", "varied")))
        patch.setattr(full_run.smollm_baseline, "FOLDER", root / "pretrained")
        yield root


@pytest.fixture
def rows(folders):
    """What it gives where no pretrained model is installed."""
    return full_run.make_rows(make_params())


def test_it_is_registered_and_has_twenty_seeds_of_every_world():
    assert full_command.load_full_run("02_orchestration") is RUN
    assert full_command.find_lesson("02") == "02_orchestration"
    jobs = full_run.list_jobs(config.load("full"))
    contests = [job for job in jobs if job.settings["job"] == "contest"]
    assert len({job.key for job in jobs}) == len({job.label for job in jobs}) == len(jobs)
    for domain, world in WORLDS:
        seeds = [
            job.settings["seed"] for job in contests if job.label.startswith(f"{domain}/{world}/")
        ]
        assert seeds == list(range(20))
    assert {job.settings["orchestration"]["students"] for job in contests} == {40}


def test_the_zoo_of_the_lesson_stays_as_it_is():
    assert full_run.ZOO != train.ZOO_FOLDER and train.ZOO_FOLDER not in full_run.ZOO.parents


def test_its_jobs_can_be_listed_without_a_zoo_and_are_those_of_any_root_seed(monkeypatch, tmp_path):
    monkeypatch.setattr(full_run, "ZOO", tmp_path)
    params = make_params()
    before = [job.settings for job in full_run.list_jobs(params)]
    monkeypatch.setenv(ROOT_SEED, "3")
    assert [job.settings for job in full_run.list_jobs(params)] == before


@pytest.mark.parametrize("module", [ppo, episode_batch])
def test_a_version_of_a_training_or_of_an_episode_makes_its_table_outdated(module, monkeypatch):
    before = {job.label: job.key for job in full_run.list_jobs(make_params())}
    monkeypatch.setattr(module, "VERSION", 99)
    after = {job.label: job.key for job in full_run.list_jobs(make_params())}
    unchanged = {label for label in before if before[label] == after[label]}
    planned_rooms = {label for label in before if label.startswith("minigrid/varied")}
    assert unchanged == (planned_rooms if module is ppo else set())


def test_without_the_pretrained_model_its_rows_are_left_out_and_somebody_is_told(
    folders, capsys, monkeypatch
):
    monkeypatch.setenv("BENCH_PROGRESS", "stderr")
    rows = full_run.make_rows(make_params())
    assert PRETRAINED not in set(rows["model"])
    assert "`make pretrained` unpacks it" in capsys.readouterr().err
    places = set(zip(rows["group"], rows["condition"], strict=True))
    contests = {("education", "speed"), ("minigrid", "varied")}
    assert places == contests | {("education", "paper"), ("minigrid", "paper")}


def test_prompted_models_are_no_part_of_the_oracle(rows):
    """They play in the paper's worlds, in which nobody else played here."""
    assert set(rows.loc[rows["method"] == ORACLE, "condition"]) == {"speed", "varied"}


def test_numbers_have_four_decimals_and_long_columns_are_left_out(rows):
    for name in ("reward", "d1", "progress"):
        values = rows[name].dropna()
        assert np.allclose(values, values.round(4), atol=1e-12)
    assert (rows["chosen"].map(len) == 0).all()


def test_a_table_without_the_pretrained_model_is_current(rows, tmp_path):
    params = make_params()
    write_full_results(RUN, rows, full_run.list_jobs(params), 1.0, tmp_path / "table.parquet")
    full = read_full_results(RUN, params, tmp_path / "table.parquet")
    assert full.is_current and len(full.rows) == len(rows)


def test_the_pretrained_model_decides_where_it_is_and_its_jobs_are_compared(
    folders, tmp_path, monkeypatch
):
    params = make_params()
    make_random_folder(folders / "pretrained")
    rows = full_run.make_rows(params)
    decided = rows[rows["model"] == PRETRAINED]
    assert set(decided["method"]) == {f"{system} {PRETRAINED}" for system in SYSTEMS}
    assert (decided["backend"] == "hugging_face").all()

    jobs = [*full_run.list_jobs(params), *full_run.list_pretrained_jobs(params)]
    path = tmp_path / "table.parquet"
    write_full_results(RUN, rows, jobs, 1.0, path)
    shutil.rmtree(folders / "pretrained")  # another machine, without the model
    full = read_full_results(RUN, params, path)
    assert full.is_current and full.num_jobs == len(jobs)
    monkeypatch.setattr(jobs_module, "CONSTRAINED_INTERVAL", 7)
    assert any("interval" in change for change in read_full_results(RUN, params, path).changes)


def test_rows_are_thinned_and_nothing_else_changes():
    row = {"method": "RO", "role": "router", "item": "0-0", "length": 12}
    results = {"reward": 0.123456, "progress": 0.98765}
    long_columns = {"chosen": ["SO-d1"] * 12, "outcomes": [0.5] * 12}
    (thinned,) = full_run.thin_rows(pd.DataFrame([row | results | long_columns])).itertuples()
    assert (thinned.reward, thinned.progress, thinned.length) == (0.1235, 0.9876, 12)
    assert len(thinned.chosen) == len(thinned.outcomes) == 0
