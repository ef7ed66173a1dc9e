"""What an ablation shows: gains inside pairs of seed and unit, and how they are classified."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from lib.plots import render_png
from lib.reports import ablation_report
from lib.reports.lesson import METRIC_KEY
from lib.stats.ablation_comparison import (
    BETTER,
    OTHER,
    UNCLEAR,
    WORSE,
    Comparison,
    Measure,
    metrics,
    slug,
)

SCORE, STEPS, MOVED = (
    Measure("score", "score"),
    Measure("steps", "steps", "lower"),
    Measure("moved", "moved", ""),
)


def rows(variant: str, values, seeds=None, units=None) -> pd.DataFrame:
    """values: (seeds, units)."""
    values = np.asarray(values, dtype=float)
    seeds, units = seeds or range(values.shape[0]), units or range(values.shape[1])
    records = [
        {"variant": variant, "seed": seed, "unit": unit, "score": value}
        for (seed, unit), value in zip(product(seeds, units), values.ravel(), strict=True)
    ]
    return pd.DataFrame(records)


def compared(
    *variant_rows: pd.DataFrame,
    baselines=None,
    measures=(SCORE,),
    name="test",
    about="a test",
    backend="lab",
):
    frame = pd.concat(variant_rows)
    frame = frame.assign(**{m.column: frame["score"] for m in measures})
    return Comparison(
        name, about, frame, {"new": "old"} if baselines is None else baselines, measures, backend
    )


def gain(comparison: Comparison, variant: str = "new") -> pd.Series:
    return comparison.gains["score"].loc[variant]


# Pairs --------------------------------------------------------------------------------------------


def test_rows_are_paired_by_seed_and_unit_and_not_by_their_order():
    """Seeds differ by 100 and units by 10, so that any other pairing has an interval; the gain is always 1."""
    old = rows("old", [[0, 10, 20], [100, 110, 120]])
    new = rows("new", [[1, 11, 21], [101, 111, 121]]).iloc[::-1]
    estimate = gain(compared(new, old))
    assert estimate[["value", "ci_low", "ci_high"]].tolist() == pytest.approx([1, 1, 1])


def test_one_run_stands_against_each_of_several():
    """A start that is not trained has one seed: 5 and 6 against 1 and 2, 7 and 9 against the same."""
    estimate = gain(compared(rows("old", [[1, 2]]), rows("new", [[5, 6], [7, 9]])))
    assert estimate["value"] == (4 + 4 + 6 + 7) / 4
    assert estimate["ci_low"] < 4.5 and estimate["ci_high"] > 6


@pytest.mark.parametrize("changes", [{"units": [0, 2]}, {"seeds": [0, 2]}, {"seeds": [0, 1, 2]}])
def test_variants_tested_on_different_units_are_refused(changes):
    values = [[1, 2]] * len(changes.get("seeds", [0, 1]))
    with pytest.raises(ValueError, match="have no partner"):
        gain(compared(rows("old", [[1, 2]] * 2), rows("new", values, **changes)))


def test_a_missing_variant_is_named():
    with pytest.raises(ValueError, match=r"test: no rows of \['new'\]; there are \['old'\]"):
        compared(rows("old", [[1, 2]]))


# What is clear --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "better, ends, look",
    [
        ("higher", (1, 0.5, 2), BETTER),
        ("higher", (-1, -2, -0.5), WORSE),
        ("lower", (1, 0.5, 2), WORSE),
        ("lower", (-1, -2, -0.5), BETTER),
        ("", (1, 0.5, 2), OTHER),
        ("higher", (1, -0.5, 2), UNCLEAR),
        ("lower", (1, np.nan, np.nan), UNCLEAR),
        ("higher", (0, 0, 0), UNCLEAR),
    ],
)
def test_a_gain_is_good_where_its_whole_interval_is_on_the_better_side(better, ends, look):
    assert (
        Measure("x", "x", better).look(pd.Series(ends, ["value", "ci_low", "ci_high"], dtype=float))
        == look
    )


# Metrics ------------------------------------------------------------------------------------------


NAMES = [
    "KO, no short-term",
    "steps_per_level 1",
    "initial 0.2",
    "lab:lab-team",
    "no masks, SFT",
    "kappa 0.05",
    "always a call to lab-nano",
    "look-ahead (5 steps)",
    "$ per episode",
    "Equal + 1",
]


@given(st.text("aB7 ,.:$()'/_+-").filter(lambda text: any(map(str.isalnum, text))))
def test_any_words_make_a_legal_key(text):
    assert METRIC_KEY.fullmatch(f"test.{slug(text)}.score"), text


def test_variants_that_differ_in_a_number_have_different_keys():
    assert (
        len({slug(name) for name in NAMES}) == len(NAMES) and slug("initial 0.2") == "initial_0p2"
    )


def test_metrics_have_levels_and_gains_and_a_backend():
    variant_rows = rows("old", [[1, 2]] * 2), rows("new, 0.5", [[2, 3]] * 2)
    values = metrics(
        compared(
            *variant_rows, baselines={"new, 0.5": "old"}, measures=(SCORE, STEPS), name="arc.x"
        )
    )
    assert (
        values["arc.x.new_0p5.gain"]["value"] == 1
        and values["arc.x.new_0p5.gain_steps"]["value"] == 1
    )
    assert (
        values["arc.x.old.score"]["value"] == 1.5
        and values["arc.x.backend"] == "lab"
        and "arc.x.old.gain" not in values
    )


# What is shown ------------------------------------------------------------------------------------------

WOBBLE = np.where(
    np.add.outer(np.arange(3), np.arange(8)) % 2, 1.0, -1.0
)  # gives intervals and moves no mean


def levels(levels: dict[str, float], measure=SCORE, unsure=(), **settings) -> Comparison:
    """Variants at these levels, compared with the first; a little wobble, and two from seed to seed for the unsure."""
    baseline, *variants = levels
    variant_rows = [rows(baseline, levels[baseline] + 0 * WOBBLE)]
    variant_rows += [
        rows(
            name,
            levels[name]
            + (
                2.0 * np.array([[-1], [0], [1]]) * (WOBBLE**2)
                if name in unsure
                else 0.0005 * WOBBLE
            ),
        )
        for name in variants
    ]
    return compared(
        *variant_rows, baselines=dict.fromkeys(variants, baseline), measures=(measure,), **settings
    )


def everything() -> list[Comparison]:
    """Two better, one worse, two neither, one unclear, and the largest a stand-in's."""
    return [
        levels(
            {"Conductor": 1.0, "up": 1.5, "down": 0.5, "unsure": 1.2},
            unsure=("unsure",),
            name="one",
        ),
        levels({"far": 10.0, "near": 2.0}, STEPS, about="how far", backend="scripted", name="two"),
        levels({"old": 1.0, "more": 1.4, "less": 0.6}, MOVED, about="what moves", name="three"),
    ]


def test_the_table_has_levels_and_gains_by_hand():
    table = ablation_report.make_table(everything()[0])
    assert (
        table.index.tolist() == ["Conductor", "up", "down", "unsure"]
        and table["compared with"]["up"] == "Conductor"
    )
    assert table["gain in score"]["up"].value == pytest.approx(0.5) and table["score"][
        "down"
    ].value == pytest.approx(0.5)
    assert (
        table["minimum detectable effect"]["unsure"] > 1 > table["minimum detectable effect"]["up"]
    )


def test_the_whole_is_counted_right():
    table = ablation_report.make_overview(everything())
    assert table["changes"].tolist() == [3, 1, 2] and table["measure"].tolist() == [
        "score",
        "steps",
        "moved",
    ]
    assert table[BETTER].tolist() == [1, 1, 0] and table[WORSE].tolist() == [1, 0, 0]
    assert table[OTHER].tolist() == [0, 0, 2] and table[UNCLEAR].tolist() == [1, 0, 0]
    assert list(ablation_report.count_changes(everything()).values()) == [6, 5, 2, 1, 5]
    assert (
        "near (how far: -80 % steps (scripted stand-in decides))"
        in ablation_report.summarize_all(everything())
    )


def test_holm_takes_the_changes_of_all_ablations_together():
    strong = levels({"old": 1.0, "new": 1.5}, name="strong")
    seed_gains = np.array([[0.6], [1.1], [1.6], [0.7], [0.3], [-0.1]])
    weak = compared(rows("old", np.zeros((6, 4))), rows("new", seed_gains + np.zeros((6, 4))))
    p_value = float(weak.gains["score"]["p_value"].iloc[0])
    assert 0.025 < p_value < 0.05  # between the first threshold of two tests and that of one
    assert ablation_report.count_clear_after_holm([weak]) == [1]
    unclear = levels({"old": 1.0, "new": 1.2}, unsure=("new",), name="unclear")
    assert ablation_report.count_clear_after_holm([strong, weak]) == [1, 1]
    assert ablation_report.count_clear_after_holm([strong, weak, unclear]) == [1, 0, 0]


def test_a_figure_of_a_system_has_chosen_changes_and_counts_the_clear_ones():
    gains = everything()[0].gains["score"].loc[["up", "unsure"]]
    figure = ablation_report.draw_changes("A system", gains, SCORE)
    assert render_png(figure)
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "1 of 2 changes clearly move score" in " ".join(texts.split())


def test_relative_gains_are_fractions_of_the_baseline():
    assert everything()[1].relative()["value"]["near"] == pytest.approx(-0.8, abs=1e-3)
    assert levels({"debt": -2.0, "more": -1.0}).relative()["value"]["more"] == pytest.approx(
        0.5
    )  # both are below 0
    assert not len(levels({"nothing": 0.0, "more": 1.0}).relative())


def test_figures_can_be_drawn_of_what_a_smoke_run_holds():
    one_seed = compared(rows("old", [[0.0]]), rows("new", [[1.0]]))
    assert ablation_report.count_changes([one_seed])["changes.clear"] == 0
    figures: list[Figure] = [
        ablation_report.draw_gains(one_seed),
        ablation_report.draw_side_by_side([one_seed]),
        ablation_report.draw_side_by_side(everything()),
    ]
    assert all(map(render_png, figures)) and "0 of 1 change clearly moves score" in " ".join(
        figures[0].get_suptitle().split()
    )


def test_rules_are_a_row_each_and_keep_or_change_an_order():
    every = {
        "SO": levels({"as it is": 1.0, "rule a": 2.0, "rule b": 4.0}, STEPS),
        "MO": levels({"as it is": 3.0, "rule a": 3.5, "rule b": 3.0}, STEPS),
    }
    figure, table = ablation_report.compare_rules(every)
    assert table.index.tolist() == ["as it is", "rule a", "rule b"] and table["SO"][
        "rule b"
    ].value == pytest.approx(3)
    assert render_png(figure) and ablation_report.summarize_policy_order(every).endswith(
        "SO < MO, stays under 1 of 2 rules."
    )
