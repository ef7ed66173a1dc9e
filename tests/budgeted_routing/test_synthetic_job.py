"""The synthetic benchmark is computed once, for whichever lesson asks first."""

import pandas as pd
import pytest

from lib.budgeted_routing import ablations, synthetic_benchmark, synthetic_job
from lib.experiment import results_table, seeds
from lib.rl import budget_reward, losses, token_ppo
from tests.budgeted_routing.small import changed

PARAMS = changed(routing={"glass": {"updates": 1}})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def test_whoever_asks_first_computes_the_rows_for_all_lessons(runs, tmp_path):
    central = ablations.play_synthetic(PARAMS, runs)  # lesson 09
    receipt = synthetic_job.make_job(PARAMS.routing).folder(runs) / "done.json"
    written_at = receipt.stat().st_mtime_ns
    rows = synthetic_job.run(PARAMS.routing, runs)  # lesson 05
    assert receipt.stat().st_mtime_ns == written_at

    results_table.write_results(synthetic_benchmark.SYSTEM, rows, tmp_path)
    conditions = PARAMS.routing.glass.central
    of_lesson_05 = results_table.read_results(synthetic_benchmark.SYSTEM, tmp_path, **conditions)
    pd.testing.assert_frame_equal(central, of_lesson_05)


def test_rows_that_are_read_are_those_that_are_computed(runs):
    computed, system = synthetic_benchmark.run(PARAMS.routing), synthetic_benchmark.SYSTEM
    read = synthetic_job.run(PARAMS.routing, runs)
    pd.testing.assert_frame_equal(
        results_table.make_results(system, read), results_table.make_results(system, computed)
    )


@pytest.mark.parametrize("module", [seeds, losses, budget_reward, token_ppo, synthetic_benchmark])
def test_whoever_changes_what_decides_the_rows_has_them_computed_again(module, monkeypatch):
    before = synthetic_job.make_job(PARAMS.routing).key
    monkeypatch.setattr(module, "VERSION", 99)
    assert synthetic_job.make_job(PARAMS.routing).key != before


def test_other_settings_are_another_job():
    other = changed(routing={"glass": {"updates": 2}}).routing
    assert synthetic_job.make_job(other).key != synthetic_job.make_job(PARAMS.routing).key
