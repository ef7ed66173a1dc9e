"""Numbers as people write them: read where one reading is possible, refused with their row where two are."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.recorded_outcomes.number_formats import NumberError, parse_numbers


def parse(values, kind="usd"):
    return parse_numbers({"x": values}, {"x": kind})["x"].tolist()


@pytest.mark.parametrize(
    ("values", "kind", "numbers"),
    [
        (["0.5", "1e-3", ".25", "3."], "number", [0.5, 0.001, 0.25, 3.0]),
        (["0,5", "1,25"], "number", [0.5, 1.25]),
        (["9,327e-05"], "usd", [9.327e-05]),
        (["1,234.5", "1,000"], "usd", [1234.5, 1000.0]),
        (["1.234,5", "1.000"], "usd", [1234.5, 1000.0]),
        (["1,234,567"], "usd", [1234567.0]),
        (["1 234,5", "1\u202f000,0"], "usd", [1234.5, 1000.0]),
        (["1'234.5"], "usd", [1234.5]),
        (["$0.2", "0.3 $", "USD 1", "us$2", "-$3"], "usd", [0.2, 0.3, 1.0, 2.0, -3.0]),
        (["TRUE", "false", "Yes", "n", "pass", "wrong"], "fraction", [1, 0, 1, 0, 1, 0]),
        (["100%", "12.5 %"], "fraction", [1.0, 0.125]),
        (["12,5%"], "fraction", [0.125]),
        ([True, np.False_, np.int8(1), Decimal("0.5"), np.float32(0.25)], "fraction", [1, 0, 1, 0.5, 0.25]),
        (["1.234"], "number", [1.234]),  # no comma anywhere: a point is a decimal point
    ],
)  # fmt: skip
def test_a_number_is_read_as_people_write_it(values, kind, numbers):
    assert parse(values, kind) == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("values", "kind", "index", "reason"),
    [
        (["0.5", ""], "number", 1, "empty"),
        ([0.5, None], "number", 1, "empty"),
        ([1, pd.NA], "number", 1, "empty"),
        ([0.5, float("nan")], "number", 1, "empty"),
        (["0.5", "€0.2"], "usd", 1, "convert it to US dollars"),
        (["0.5", "abc"], "number", 1, "no number"),
        (["0.5", "0,5"], "number", 1, "no number"),
        (["1,234", "2"], "usd", 0, "decimal comma and with thousands"),
        (["50%", "1"], "fraction", 1, "all in one way"),
        (["1", "50%"], "fraction", 1, "all in one way"),
        (["yes"], "usd", 0, "no number"),
        (["5%"], "usd", 0, "no number"),
        ([[0.5]], "fraction", 0, "no number"),
        (["1,23,456"], "usd", 0, "no number"),
    ],
)
def test_what_is_no_number_or_two_is_refused_with_its_row(values, kind, index, reason):
    with pytest.raises(NumberError, match=reason) as error:
        parse(values, kind)
    assert (error.value.column, error.value.index) == ("x", index)


def test_one_column_tells_how_the_commas_of_another_are_meant():
    columns = {"cost": ["1,234", "2,500"], "e0": ["0,5", "-1,5"]}
    numbers = parse_numbers(columns, {"cost": "usd", "e0": "number"})
    assert numbers["cost"].tolist() == [1.234, 2.5]
    columns["e0"] = ["0.5", "-1.5"]
    numbers = parse_numbers(columns, {"cost": "usd", "e0": "number"})
    assert numbers["cost"].tolist() == [1234.0, 2500.0]


def test_numbers_that_are_no_texts_say_nothing_about_commas():
    numbers = parse_numbers({"cost": ["0,5"], "e0": [0.25]}, {"cost": "usd", "e0": "number"})
    assert (numbers["cost"][0], numbers["e0"][0]) == (0.5, 0.25)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6), st.booleans())
def test_every_written_number_comes_back(values, with_comma):
    texts = [f"{value!r}" for value in values]
    if with_comma:
        texts = [text.replace(".", ",") for text in texts]
    # A first value that allows one reading only.
    first = "0,5" if with_comma else "0.5"
    assert parse([first, *texts])[1:] == values
