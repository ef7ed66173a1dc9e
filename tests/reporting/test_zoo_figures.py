"""The zoo lesson's pictures and words are made from the record, one mark for every method."""

import pandas as pd

from lib import params
from lib.reporting import zoo as draw
from lib.stats import Interval

SETTINGS = params.load("smoke")


def home_table():
    rows = [("SO-d1", "empty", "goal", 0.9, 0.3), ("SO-d2", "lava gap", "no-lava", 0.8, 0.5)]
    return pd.DataFrame(
        [
            {
                "policy": p,
                "room": r,
                "objective": o,
                "home": Interval(h, h - 0.1, h),
                "composite": Interval(c, c, c + 0.1),
            }
            for p, r, o, h, c in rows
        ]
    )


def test_the_recipe_table_has_a_line_for_every_policy():
    table = draw.recipe_table(SETTINGS)
    assert list(table["policy"]) == [
        "SO-d1", "SO-d2", "SO-d3", "MO-S", "MO-RM", "MO-MGDA", "SO-d1", "SO-d2", "SO-d3", "MO-pseudoS",
    ]  # fmt: skip
    assert table["paid for"].iloc[9] == "goal + 2 gold"


def test_home_and_away_names_every_policy_and_its_objective():
    figure = draw.home_and_away(home_table())
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["SO-d1: goal", "SO-d2: no-lava"]


def test_the_words_of_a_figure_are_its_numbers():
    assert "SO-d1 0.90 and 0.30" in draw.home_alt(home_table())
    rows = {"SO-d1": {"success": Interval(0.5, 0, 1), "lava": Interval(0.25, 0, 1), "gold": Interval(0.125, 0, 1)}}
    assert "SO-d1 50%, 25%, 12%" in draw.rates_alt(rows)


def test_the_growth_figure_has_a_line_and_a_level_for_each_method():
    growth = pd.DataFrame(
        {"method": ["a", "a", "b", "b"], "episodes": [1, 2] * 2, "union": [1, 2, 1, 3], "mean": [1.0] * 4}
    )
    lines = draw.union_growth(growth).axes[0].get_lines()
    assert len(lines) == 4
