"""A run's folder belongs to one process and one set of settings, and what it holds is not made twice."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lib.config import ParamsError
from lib.experiment import artifacts
from lib.rl.user_training.processes import ProcessShare
from lib.rl.user_training.run_folder import keep_json, keep_table, open_run_folder
from tests.studies import refuse

ALONE = ProcessShare(SimpleNamespace(process_index=0, num_processes=1))


def test_settings_are_written_and_the_same_ones_are_let_in_again(tmp_path):
    for _ in range(2):
        with open_run_folder(tmp_path / "run", {"seed": 0, "learn": {"kl": 0.1}}, ALONE) as folder:
            assert artifacts.read_json(folder / "settings.json")["seed"] == 0


def test_other_settings_are_refused_and_more_updates_are_not(tmp_path):
    with open_run_folder(tmp_path, {"learn": {"kl": 0.1, "clip": 0.2}, "updates": 2}, ALONE):
        pass
    with open_run_folder(tmp_path, {"learn": {"kl": 0.1, "clip": 0.2}, "updates": 5}, ALONE):
        pass
    other = {"learn": {"kl": 0.5, "clip": 0.2}, "updates": 5}
    with (
        pytest.raises(ParamsError, match=r"begun with learn = {'kl': 0.1}, not {'kl': 0.5}"),
        open_run_folder(tmp_path, other, ALONE),
    ):
        pass


def test_two_runs_in_one_folder_refuse_each_other(tmp_path):
    with (
        open_run_folder(tmp_path, {}, ALONE),
        pytest.raises(ParamsError, match="another process works in"),
        open_run_folder(tmp_path, {}, ALONE),
    ):
        pass
    with open_run_folder(tmp_path, {}, ALONE):
        pass  # the first one has gone


def test_what_is_there_is_read_and_not_made_again(tmp_path):
    table = pd.DataFrame({"a": [1, 2]})
    keep_table(tmp_path / "table.parquet", lambda: table, ALONE)
    pd.testing.assert_frame_equal(keep_table(tmp_path / "table.parquet", refuse, ALONE), table)
    keep_json(tmp_path / "value.json", lambda: [1], ALONE)
    assert keep_json(tmp_path / "value.json", refuse, ALONE) == [1]


def test_shares_of_processes_are_all_items_and_each_once():
    shares = [
        ProcessShare(SimpleNamespace(process_index=rank, num_processes=3)) for rank in range(3)
    ]
    items = [item for share in shares for item in share.take(range(10))]
    assert sorted(items) == list(range(10))
    assert shares[0].divide(6) == 2
    with pytest.raises(ParamsError, match="7 episodes cannot be shared by 3 processes"):
        shares[0].divide(7)
