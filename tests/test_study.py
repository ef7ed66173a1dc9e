"""What the studies share: means that carry their parameters along, and tables that say whose rows they hold."""

import pickle
from dataclasses import replace

import pandas as pd
import pytest

from lib import params, store
from lib.study import Means, table
from lib.sweep import Cell


def test_means_travel_to_a_process_with_all_parameters_and_what_was_done_before(tmp_path):
    own = params.load("smoke")
    means = replace(Means.of(own, "models", tmp_path, "cassettes"), before={"start": "there"})
    there = pickle.loads(pickle.dumps(means))
    assert there == means and there.params == own and there.params is means.params  # checked once
    assert (there.models, there.runs, there.before["start"]) == ("models", str(tmp_path), "there")


@pytest.mark.parametrize("whose", [True, False])
def test_a_table_is_of_the_cells_that_left_one_and_says_whose_rows_they_are(whose, tmp_path):
    cells = [Cell(f"{n}", {"arm": arm, "seed": n}) for n, arm in enumerate([{"name": "a"}, None, {"name": "b"}])]
    for cell in cells[:2]:
        rows = pd.DataFrame({"x": [cell.settings["seed"], 9]})
        store.write_parquet(cell.folder(tmp_path) / "rows.parquet", rows)
    found = table(cells, tmp_path, "rows", "nobody", whose)
    assert found["x"].tolist() == [0, 9, 1, 9] and ("arm" in found) == ("seed" in found) == whose
    assert not whose or found["arm"].tolist() == ["a", "a", "nobody", "nobody"]
    assert table(cells, tmp_path, "others").empty
