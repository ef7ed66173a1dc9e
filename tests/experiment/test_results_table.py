"""The results table: one schema, and errors that name what does not fit."""

import numpy as np
import pandas as pd
import pytest

from lib.experiment import artifacts, results_table


def rows(**columns) -> pd.DataFrame:
    return pd.DataFrame({"method": ["KO", "RO"], "role": "paper", "item": ["a", "b"]} | columns)


def test_what_is_written_is_read_with_the_schema_s_columns_first(tmp_path):
    written = results_table.write_results(
        "x", rows(correct=[1.0, 0.0], chosen=[["p"], []], length=[3, 4]), tmp_path
    )
    read = results_table.read_results("x", tmp_path)
    pd.testing.assert_frame_equal(written, read)
    assert list(read)[:-1] == results_table.SCHEMA.names and list(read)[-1] == "length"
    assert (
        np.isnan(read["cost_usd"]).all()
        and (read["step"] == results_table.AFTER).all()
        and (read["split"] == "").all()
    )
    assert [list(each) for each in read["chosen"]] == [["p"], []]


def test_the_same_rows_are_the_same_bytes(tmp_path):
    for folder in ("one", "two"):
        results_table.write_results("x", rows(), tmp_path / folder)
    assert (
        results_table.results_path("x", tmp_path / "one").read_bytes()
        == results_table.results_path("x", tmp_path / "two").read_bytes()
    )


def test_rows_are_chosen_by_a_value_or_by_several(tmp_path):
    results_table.write_results("x", rows(seed=[0, 1]), tmp_path)
    assert list(results_table.read_results("x", tmp_path, method="RO")["item"]) == ["b"]
    assert len(results_table.read_results("x", tmp_path, seed=[0, 1])) == 2
    with pytest.raises(results_table.ResultsError, match="no column 'sede'"):
        results_table.read_results("x", tmp_path, sede=0)


@pytest.mark.parametrize(
    "bad_rows, message",
    [
        (rows().drop(columns="method"), "needs the columns method"),
        (rows(role="boss"), "'boss'"),
        (rows(correct=["yes", "no"]), "does not fit the schema"),
        (rows(seed=[0.5, 1.0]), "does not fit the schema"),
        (rows(method=[None, "RO"]), "does not fit the schema"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(tmp_path, bad_rows, message):
    with pytest.raises(results_table.ResultsError, match=message):
        results_table.write_results("x", bad_rows, tmp_path)
    assert not results_table.results_path("x", tmp_path).exists()


def test_a_file_of_another_system_or_none_is_refused_by_name(tmp_path):
    with pytest.raises(results_table.ResultsError, match="missing"):
        results_table.read_results("x", tmp_path)
    results_table.write_results("y", rows(), tmp_path)
    results_table.results_path("y", tmp_path).rename(results_table.results_path("x", tmp_path))
    with pytest.raises(results_table.ResultsError, match="no results table of 'x'"):
        results_table.read_results("x", tmp_path)
    artifacts.write_text(results_table.results_path("z", tmp_path), "PAR1 no")
    with pytest.raises(ValueError, match=r"z\.parquet"):
        results_table.read_results("z", tmp_path)
