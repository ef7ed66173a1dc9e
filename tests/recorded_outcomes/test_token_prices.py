"""Costs follow from tokens and a price list; a list that cannot be used is named with the row."""

import json

import numpy as np
import pandas as pd
import pytest

from lib.config import ROOT
from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.token_prices import add_costs, count_tokens, read_prices
from lib.recorded_outcomes.user_tables import read_outcome_table
from tests.recorded_outcomes.small import long, made


def write_prices(path, text):
    path.write_text("model,usd_per_million_in,usd_per_million_out\n" + text)
    return path


def test_costs_are_tokens_times_prices_per_million(tmp_path):
    prices = read_prices(write_prices(tmp_path / "p.csv", "a,1,2\nb,10,0\n"), reply_tokens=100)
    costs = prices.compute_costs(["a", "b"], np.array([1e6, 5e5]), np.array([1e6, 1e6]))
    assert costs == pytest.approx([3.0, 5.0])
    assert prices.find_missing_models(["b", "c", "a"]) == ["c"]


def test_the_shipped_price_list_and_the_json_of_llmrouter_are_read(tmp_path):
    assert len(read_prices(ROOT / "data/outcomes/prices.csv", 100).usd_in) == 9
    path = tmp_path / "default_llm.json"
    path.write_text(json.dumps({"a": {"input_price": 0.2, "output_price": 0.4}}))
    prices = read_prices(path, 100)
    assert (prices.usd_in["a"], prices.usd_out["a"]) == pytest.approx((2e-7, 4e-7))


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a,-1,2\n", "usd_per_million_in of 'a'"), ("a,1,\n", "usd_per_million_out of 'a'"), ("b,x,1\n", "of 'b' is 'x'")],
)  # fmt: skip
def test_a_price_that_is_none_is_named(tmp_path, text, reason):
    with pytest.raises(TableError, match=reason):
        read_prices(write_prices(tmp_path / "p.csv", text), 100)


def test_a_price_list_without_its_columns_or_file_is_refused(tmp_path):
    (tmp_path / "p.csv").write_text("model,price\na,1\n")
    with pytest.raises(TableError, match="no column usd_per_million_in"):
        read_prices(tmp_path / "p.csv", 100)
    with pytest.raises(TableError, match="cannot be read"):
        read_prices(tmp_path / "nowhere.csv", 100)


def test_replies_of_unknown_length_are_assumed_and_counted(tmp_path):
    prices = read_prices(write_prices(tmp_path / "p.csv", "a,1,1\n"), reply_tokens=100)
    frame = pd.DataFrame({"model": "a", "tokens_in": [10, 10], "tokens_out": [5, None]})
    notes = []
    priced = add_costs(frame, prices, notes)
    assert priced["cost_usd"].tolist() == pytest.approx([15e-6, 110e-6])
    assert "1 of 2 replies have no known length; 100 tokens were assumed" in notes[1]
    assert count_tokens("12345678") == 2 and np.isnan(count_tokens(None))


def test_a_table_with_tokens_and_no_costs_is_priced_under_its_own_column_names(tmp_path):
    rows = long(made(12)).drop(columns="cost_usd").assign(prompt_tokens=100, completion_tokens=50)
    rows = rows.rename(columns={"model": "Model Name"})
    rows.to_csv(tmp_path / "t.csv", index=False)
    text = "cheap,1,1\nmiddle,2,2\ndear,20,20\n"
    prices = read_prices(write_prices(tmp_path / "p.csv", text), 100)
    table = read_outcome_table(tmp_path / "t.csv", prices)
    assert dict(zip(table.models, table.cost_usd.mean(0), strict=True)) == pytest.approx(
        {"cheap": 150e-6, "middle": 300e-6, "dear": 3e-3}
    )
    with pytest.raises(TableError, match="the outcomes have no costs; give --prices FILE"):
        read_outcome_table(tmp_path / "t.csv")
