"""The synthetic benchmark is computed once, by the lesson that needs it first."""

import pandas as pd
import pytest

from lib.budgeted_routing import ablations, synthetic_benchmark, synthetic_job
from lib.experiment import results_table, seeds
from lib.rl import budget_reward, losses, token_ppo
from tests.budgeted_routing.small_systems import change_params

PARAMS = change_params(routing={"synthetic": {"updates": 1}})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def test_the_first_lesson_computes_the_rows_for_all_lessons(runs, tmp_path):
    rows_of_lesson_09 = ablations.read_synthetic_rows(PARAMS, runs)
    receipt = synthetic_job.make_job(PARAMS.routing).folder(runs) / "done.json"
    written_at = receipt.stat().st_mtime_ns
    rows = synthetic_job.run(PARAMS.routing, runs)  # lesson 05
    assert receipt.stat().st_mtime_ns == written_at

    results_table.write_results(synthetic_benchmark.SYSTEM, rows, tmp_path)
    central = PARAMS.routing.synthetic.central
    rows_of_lesson_05 = results_table.read_results(synthetic_benchmark.SYSTEM, tmp_path, **central)
    pd.testing.assert_frame_equal(rows_of_lesson_09, rows_of_lesson_05)


def test_rows_that_are_read_are_those_that_are_computed(runs):
    system = synthetic_benchmark.SYSTEM
    computed = results_table.make_results(system, synthetic_benchmark.run(PARAMS.routing))
    read = results_table.make_results(system, synthetic_job.run(PARAMS.routing, runs))
    pd.testing.assert_frame_equal(read, computed)


@pytest.mark.parametrize("module", [seeds, losses, budget_reward, token_ppo, synthetic_benchmark])
def test_another_version_of_what_decides_the_rows_is_another_job(module, monkeypatch):
    before = synthetic_job.make_job(PARAMS.routing).key
    monkeypatch.setattr(module, "VERSION", 99)
    assert synthetic_job.make_job(PARAMS.routing).key != before


def test_other_settings_are_another_job():
    other = change_params(routing={"synthetic": {"updates": 2}}).routing
    assert synthetic_job.make_job(other).key != synthetic_job.make_job(PARAMS.routing).key
