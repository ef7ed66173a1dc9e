"""Numbers as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.scorers.quantity import agree_in_unit, read_last_quantity, read_quantity


@pytest.mark.parametrize(
    "text, value",
    [
        ("1,000", 1000),
        ("1,000,000.5", 1000000.5),
        ("1.000,5", 1000.5),
        ("1.000.000", 1000000),
        ("1.000", 1),
        ("1 000 000", 1000000),
        ("1\u202f000", 1000),
        ("10\\,000", 10000),
        ("1{,}000", 1000),
        ("1,5", 1.5),
        ("0,500", 0.5),
        ("1000,5", 1000.5),
        ("$12", 12),
        ("\\$12", 12),
        ("-$5", -5),
        ("$-5", -5),
        ("€ 12", 12),
        ("12.", 12),
        ("12 %", 12),
        ("12\\%", 12),
        ("1/2", 0.5),
        ("-1/2", -0.5),
        ("1 / 4", 0.25),
        ("½", 0.5),
        ("3½", 3.5),
        ("3 1/2", 3.5),
        ("-3 1/2", -3.5),
        ("\\frac{1}{2}", 0.5),
        ("\\dfrac{1}{2}", 0.5),
        ("\\frac12", 0.5),
        ("-\\frac{3}{4}", -0.75),
        ("3\\frac{1}{2}", 3.5),
        ("1e3", 1000),
        ("1.5E-3", 0.0015),
        ("3 \\times 10^{4}", 30000),
        ("3 × 10⁴", 30000),
        ("3 x 10^4", 30000),
        ("−3", -3),
        ("–3", -3),
        ("+3", 3),
        (".5", 0.5),
        ("x = 5", 5),
        ("x = - 5", -5),
        ("3 + 4 = 7", 7),
        ("\\approx 3.14", 3.14),
        ("15% of 60, which is 9", 9),
        ("about 5 apples", 5),
        ("5 million", 5e6),
        ("**42**", 42),
        ("90^\\circ", 90),
        ("$9 \\times 2 = 18$", 18),
    ],
)
def test_a_number_is_read_in_every_spelling(text, value):
    assert read_quantity(text).value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "twelve",
        "none",
        "2^{10}",
        "5\\sqrt{2}",
        "2\\pi",
        "2π",
        "2x + 1",
        "x + 1",
        "x - 1",
        "f(x) + 1",
        "a * 3",
        "5x",
        "5 - 3",
        "3 + 4",
        "3:30",
        "1e999",
        "1/0",
        "x2",
    ],
)
def test_what_is_no_number_or_only_an_operand_is_not_read(text):
    assert read_quantity(text) is None


@pytest.mark.parametrize(
    "text, unit",
    [
        ("12", ""),
        ("12 km", "km"),
        ("12km", "km"),
        ("12 kilometers", "km"),
        ("12 \\text{ km}", "km"),
        ("$12", "$"),
        ("12 dollars", "$"),
        ("12%", "%"),
        ("12 percent", "%"),
        ("60 km/h", "km/h"),
        ("60 kilometers per hour", "km/h"),
        ("25 cm^2", "cm2"),
        ("25 cm²", "cm2"),
        ("25 square centimeters", "cm2"),
        ("8 m^3", "m3"),
        ("8 cubic meters", "m3"),
        ("12 apples", "apple"),
        ("12 because", ""),
        ("12 in total", ""),
    ],
)
def test_a_unit_has_one_spelling(text, unit):
    assert read_quantity(text).unit == unit


def test_units_agree_where_they_are_equal_or_one_is_absent():
    kilometers, miles, plain = map(read_quantity, ("12 km", "12 miles", "12"))
    assert agree_in_unit(kilometers, kilometers)
    assert agree_in_unit(kilometers, plain) and agree_in_unit(plain, kilometers)
    assert not agree_in_unit(kilometers, miles)


@pytest.mark.parametrize(
    "text, value",
    [
        ("She has 3, then 5.", 5),
        ("It takes 3-5 days", 5),
        ("from 2019 to 2021, that is 1,234 days.", 1234),
        ("He ate 1/2 of it.", 0.5),
        ("covid-19 and B12 and 7", 7),
    ],
)
def test_the_last_number_of_a_text(text, value):
    assert read_last_quantity(text).value == value


def test_a_text_without_numbers_has_no_last_one():
    assert read_last_quantity("none at all") is None
    assert read_last_quantity("The result is 2^{10}.") is None


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_are_exact_with_and_without_separators(number):
    for text in (str(number), f"{number:,}", f"${number:,}$", f"x = {number}"):
        assert read_quantity(text).whole == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back(number):
    assert read_quantity(repr(number)).value == number


@given(st.text() | st.text("0123456789.,/ -+$%e^{}\\x*=°½km"))
def test_no_text_crashes_and_every_number_is_finite(text):
    for quantity in (read_quantity(text), read_last_quantity(text)):
        assert quantity is None or math.isfinite(quantity.value)
