"""Lesson 09's figures, tables and sentences say what their intervals say.

Comparisons here are made up so that every gain is known: all units and seeds agree but for a little alternation, which
gives an interval without moving the mean.
"""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lib.ablations import shown as draw
from lib.ablations.comparison import Comparison, Measure
from lib.draw import png
from lib.stats import Interval

SCORE, STEPS = Measure("score", "score", 2), Measure("steps", "steps", 1, "lower")
MOVED = Measure("moved", "weights moved", 2, "")
SEEDS, UNITS = 3, 8
WOBBLE = np.where(np.add.outer(np.arange(SEEDS), np.arange(UNITS)) % 2, 1.0, -1.0)  # (SEEDS, UNITS)


def compared(
    levels: dict[str, float], measures=(SCORE,), against=None, backend="lab", about="a part", name="test", unsure=()
) -> Comparison:
    """Every measure has the level of its variant; a twentieth of wobble, ten times as much for the unsure."""
    rows = []
    for variant, level in levels.items():
        values = level + 0.0005 * WOBBLE * (variant != next(iter(levels)))
        if variant in unsure:
            values = level + 2.0 * np.sign(np.arange(SEEDS) - 1)[:, None] + 0 * WOBBLE
        for (seed, unit), value in np.ndenumerate(values):
            rows.append({"variant": variant, "seed": seed, "unit": unit} | {m.column: value for m in measures})
    usual = next(iter(levels))
    against = dict.fromkeys([v for v in levels if v != usual], usual) if against is None else against
    return Comparison(name, about, pd.DataFrame(rows), against, tuple(measures), True, backend)


PLAIN = {"Conductor": 1.0, "up": 1.5, "down": 0.5, "unsure": 1.2}


def mixed(**more) -> Comparison:
    return compared(PLAIN, unsure=("unsure",), **more)


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


# Good or bad ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "found", "good"),
    [
        ("higher", Interval(1, 0.5, 2), True), ("higher", Interval(-1, -2, -0.5), False),
        ("lower", Interval(1, 0.5, 2), False), ("lower", Interval(-1, -2, -0.5), True),
        ("", Interval(1, 0.5, 2), None), ("higher", Interval(1, -0.5, 2), None),
        ("lower", Interval(1, math.nan, math.nan), None), ("higher", Interval(0, 0, 0), None),
    ],
)  # fmt: skip
def test_a_gain_is_good_where_its_whole_interval_is_on_the_better_side(better, found, good):
    assert draw.is_good(Measure("x", "x", better=better), found) is good


# Tables ---------------------------------------------------------------------------------------------


def test_the_table_has_levels_and_gains_by_hand():
    table = draw.table(mixed(measures=(SCORE, STEPS))).set_index("variant")
    assert table.index.tolist() == list(PLAIN) and table["gain in score"]["Conductor"] == "-"
    assert table["gain in score"]["up"] == "+0.50 [+0.50, +0.50]" and table["gain in score"]["down"].startswith("-0.50")
    assert table["steps"]["up"].startswith("1.5 [") and table["score"]["Conductor"] == "1.00 [1.00, 1.00]"


# Figures --------------------------------------------------------------------------------------------


def rows(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_intervals_are_drawn_as_they_are():
    axes = draw.figure(mixed()).axes[0]
    drawn = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2 and line.get_color() != "black"]
    told = [row["score"] for row in mixed().gains.values()]
    assert [tuple(ends) for ends in drawn] == [(found.lo, found.hi) for found in told]


# What a smoke run may hold ----------------------------------------------------------------------------


def smoke(backend: str = "lab") -> Comparison:
    """All zeros, two seeds, one episode."""
    frame = pd.DataFrame([{"variant": v, "seed": s, "unit": 0, "score": 0.0} for v in ("old", "new") for s in (0, 1)])
    return Comparison("zeros", "a part", frame, {"new": "old"}, (SCORE,), False, backend)


def test_one_seed_has_no_interval_and_nothing_is_clear():
    frame = smoke().frame.query("seed == 0").assign(score=[0.0, 1.0])
    made = Comparison("one", "a part", frame, {"new": "old"}, (SCORE,), False, "lab")
    assert draw.table(made)["gain in score"].tolist() == ["-", "+1.00"] and "0 of 1" in draw.title(made)
    assert png(draw.figure(made)) and draw.counts([made])["changes.clear"] == 0


# Side by side -----------------------------------------------------------------------------------------


def everything() -> list[Comparison]:
    """Two better, one worse, two neither, one unclear, and the largest a stand-in's."""
    return [
        mixed(name="one"),  # a better, a worse, an unclear one
        compared({"far": 10.0, "near": 2.0}, measures=(STEPS,), about="how far", backend="scripted", name="two"),
        compared({"old": 1.0, "more": 1.4, "less": 0.6}, measures=(MOVED,), about="what moves", name="three"),
    ]


def test_the_whole_is_counted_right():
    table = draw.overview(everything()).set_index("ablation")
    assert table["changes"].tolist() == [3, 1, 2] and table["measure"].tolist() == ["score", "steps", "weights moved"]
    assert table["clearly better"].tolist() == [1, 1, 0] and table["clearly worse"].tolist() == [1, 0, 0]
    assert table["clearly other"].tolist() == [0, 0, 2] and table["not clear"].tolist() == [1, 0, 0]
    assert draw.counts(everything()) == {
        "changes.total": 6, "changes.clear": 5, "changes.better": 2, "changes.worse": 1
    }  # fmt: skip
    assert set(draw.counts(everything())) == set(draw.KEY_METRICS)


def test_shares_are_of_what_a_change_is_held_against():
    found = draw.relative(everything()[1])["near"]
    assert (found.value, found.lo) == pytest.approx((-0.8, -0.8), abs=1e-3)
    turned = compared({"debt": -2.0, "more": -1.0})
    assert draw.relative(turned)["more"].value == pytest.approx(0.5)  # half better, though both are below 0


# Over a training ----------------------------------------------------------------------------------------


def test_changes_over_a_training_are_a_row():
    changes = {
        "small budget": {"right_change": Interval(0.25, 0.1, 0.4), "within_change": Interval(-0.5, math.nan, math.nan)}
    }
    (row,) = draw.changes_table(changes).to_dict("records")
    assert row == {"training": "small budget", "right change": "+0.25 [+0.10, +0.40]", "within change": "-0.50"}
