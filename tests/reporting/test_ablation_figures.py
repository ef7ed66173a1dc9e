"""Lesson 08's figures, tables and sentences say what their intervals say.

Comparisons here are made up so that every gain is known: all units and seeds agree but for a little alternation, which
gives an interval without moving the mean.
"""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from lib import params
from lib.ablations.comparison import Comparison, Measure
from lib.draw import FAINT, png
from lib.page.lesson import Lesson
from lib.reporting import ablations as draw
from lib.stats import Interval
from tests.draw import marks

SCORE, STEPS = Measure("score", "score", 2), Measure("steps", "steps", 1, "lower")
MONEY, MOVED = Measure("dollars", "$ per episode", 3, "lower"), Measure("moved", "weights moved", 2, "")
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


def words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def zero_lines(axes) -> int:
    return sum(line.get_color() == "black" and list(line.get_xdata()) == [0, 0] for line in axes.lines)


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


# Sentences ------------------------------------------------------------------------------------------


def test_the_answer_tells_clear_changes_with_their_signs_and_the_rest_by_name():
    said = draw.answer(mixed())
    assert said.startswith(
        "Score clearly higher with up (+0.50 [+0.50, +0.50]); score clearly lower with down (-0.50 ["
    )
    assert said.endswith("; not clearly changed with unsure.") and "Conductor" not in said


def test_higher_is_higher_also_where_lower_is_better():
    assert draw.answer(mixed(measures=(STEPS,))).startswith("Steps clearly higher with up (+0.5 [")


def test_the_answer_counts_what_is_not_clear_where_there_is_much_of_it():
    many = {"usual": 1.0, "up": 2.0} | {f"v{i}": 1.0 + i / 100 for i in range(4)}
    said = draw.answer(compared(many, unsure=[f"v{i}" for i in range(4)]))
    assert said.endswith("; not clearly changed with the other 4.")
    none = draw.answer(compared({"usual": 1.0, "a": 1.0, "b": 1.0}, unsure=("a", "b")))
    assert none == "No clear change in score with a and b."


def test_a_stand_in_is_named_wherever_it_decides_and_nowhere_else():
    for made, there in ((mixed(backend="scripted"), True), (mixed(), False)):
        told = [draw.answer(made), draw.title(made), draw.alt(made), draw.caption(made), draw.overall([made])]
        told += [draw.overview([made])["ablation"][0], words(draw.figure(made))]
        assert all((draw.STAND_IN in text) == there for text in told)
        assert ("*" in " ".join(rows(draw.side_by_side([made])))) == there


def test_names_keep_their_capitals():
    made = mixed(about="the layer that the Conductor reads")
    assert draw.title(made).startswith("The layer that the Conductor reads: 2 of 3 changes clearly move score")
    assert draw.caption(made).startswith("The layer that the Conductor reads: paired gains beside Conductor, and means")
    assert "0: Conductor." in words(draw.figure(made))


def test_the_title_counts_clear_changes_of_the_first_measure():
    assert draw.title(mixed()) == "A part: 2 of 3 changes clearly move score"
    assert draw.title(compared({"old": 1.0, "new": 2.0})) == "A part: 1 of 1 change clearly moves score"
    assert draw.alt(mixed()).endswith(draw.answer(mixed()))


def test_what_intervals_are_over_is_told():
    assert draw.caption(mixed()).endswith("95 % intervals over seeds and questions")
    frame = mixed().frame
    own = Comparison("x", "a part", frame, {"up": "Conductor"}, (SCORE,), False, "lab")
    assert draw.caption(own).endswith("95 % intervals over seeds")


# Tables ---------------------------------------------------------------------------------------------


def test_the_table_has_levels_and_gains_by_hand():
    table = draw.table(mixed(measures=(SCORE, STEPS))).set_index("variant")
    assert table.index.tolist() == list(PLAIN) and table["gain in score"]["Conductor"] == "-"
    assert table["gain in score"]["up"] == "+0.50 [+0.50, +0.50]" and table["gain in score"]["down"].startswith("-0.50")
    assert table["steps"]["up"].startswith("1.5 [") and table["score"]["Conductor"] == "1.00 [1.00, 1.00]"


def test_where_variants_are_held_against_different_ones_each_row_says_against_which():
    made = compared(
        {"KO": 1.0, "KO, less": 2.0, "RO": 3.0, "RO, less": 3.5}, against={"KO, less": "KO", "RO, less": "RO"}
    )
    gains = draw.table(made).set_index("variant")["gain in score"]
    assert gains["KO, less"].endswith("beside KO") and gains["RO, less"].endswith("beside RO")
    assert gains["KO, less"].startswith("+1.00") and gains["RO, less"].startswith("+0.50")
    assert "paired gains, and means" in draw.caption(made)
    assert rows(draw.figure(made)) == ["KO, less\nagainst KO", "RO, less\nagainst RO"]


# Figures --------------------------------------------------------------------------------------------


def rows(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


@pytest.mark.parametrize("measures", [(SCORE,), (SCORE, STEPS), (SCORE, STEPS, MONEY), (MONEY, MOVED, STEPS, SCORE)])
def test_a_figure_has_a_panel_per_measure_side_by_side_and_a_line_at_no_change_in_each(measures):
    figure = draw.figure(mixed(measures=measures))
    assert [axes.get_xlabel().replace("\\", "") for axes in figure.axes] == [f"change in {m.label}" for m in measures]
    assert all(zero_lines(axes) == 1 for axes in figure.axes) and title(figure) == draw.title(mixed(measures=measures))
    figure.draw_without_rendering()
    assert len({round(axes.get_position().y0, 3) for axes in figure.axes}) == 1  # or rows would be squeezed
    assert rows(figure) == ["up", "down", "unsure"]
    assert not any(text.get_text() for axes in figure.axes[1:] for text in axes.get_yticklabels())


def test_triangles_point_up_for_the_better_and_dots_are_not_clear():
    figure = draw.figure(mixed(measures=(SCORE, STEPS, MOVED)))
    assert [marks(axes) for axes in figure.axes] == [["^", "v", "o"], ["v", "^", "o"], ["s", "s", "o"]]
    assert "squares" in words(figure) and "squares" not in words(draw.figure(mixed()))


def test_intervals_are_drawn_as_they_are():
    axes = draw.figure(mixed()).axes[0]
    drawn = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2 and line.get_color() != "black"]
    told = [row["score"] for row in mixed().gains.values()]
    assert [tuple(ends) for ends in drawn] == [(found.lo, found.hi) for found in told]


def test_a_dollar_sign_is_no_mathematics():
    two = Measure("dollars", "$ per $ spent", 3, "lower")
    made = compared({"old": 1.0, "$0.1 to $0.3": 2.0}, measures=(two, SCORE))
    for figure in (draw.figure(made), draw.side_by_side([made]), draw.panels({"SO-d1": made})):
        figure.draw_without_rendering()
        for text in figure.findobj(Text):
            told = text.get_text()
            if "$" in told and text.get_parse_math():
                assert text._preprocess_math(told) == (told.replace("\\$", "$"), False)
    assert rows(draw.figure(made)) == [r"\$0.1 to \$0.3"]


def test_the_same_comparison_gives_the_same_bytes():
    assert png(draw.figure(mixed())) == png(draw.figure(mixed()))


# What a smoke run may hold ----------------------------------------------------------------------------


def smoke(backend: str = "lab") -> Comparison:
    """All zeros, two seeds, one episode."""
    frame = pd.DataFrame([{"variant": v, "seed": s, "unit": 0, "score": 0.0} for v in ("old", "new") for s in (0, 1)])
    return Comparison("zeros", "a part", frame, {"new": "old"}, (SCORE,), False, backend)


def test_zeros_are_drawn_and_told():
    made = smoke()
    assert draw.answer(made) == "No clear change in score with new."
    assert draw.table(made)["gain in score"].tolist() == ["-", "+0.00 [+0.00, +0.00]"]
    assert png(draw.figure(made)) and png(draw.side_by_side([made]))
    assert draw.relative(made) == {} and "Not shown, for what they are held against is 0: 1." in draw.side_by_side_alt(
        [made]
    )
    assert draw.overall([made]) == (
        "Of 1 changes 0 are clear (0 for the worse, 0 for the better), about 0.1 would be by chance if none mattered"
    )


def test_one_seed_has_no_interval_and_nothing_is_clear():
    frame = smoke().frame.query("seed == 0").assign(score=[0.0, 1.0])
    made = Comparison("one", "a part", frame, {"new": "old"}, (SCORE,), False, "lab")
    assert draw.table(made)["gain in score"].tolist() == ["-", "+1.00"] and "0 of 1" in draw.title(made)
    assert png(draw.figure(made)) and draw.counts([made])["changes.clear"] == 0


def test_an_ablation_with_nothing_to_change_is_told_and_not_drawn(tmp_path, capsys):
    made = compared({"old": 1.0}, about="masks")
    lesson = Lesson("08_test", "A test", "smoke", {}, tmp_path)
    draw.present(lesson, made)
    assert "Masks: nothing to change under these settings." in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.png")) and draw.counts([made])["changes.total"] == 0
    draw.present(lesson, mixed(name="with.something"))
    assert [path.name for path in tmp_path.rglob("*.png")] == ["with_something.png"]


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


def test_the_sentence_over_all_adds_up_and_names_the_largest_change():
    assert draw.overall(everything()) == (
        "Of 6 changes 5 are clear (1 for the worse, 2 for the better, 2 neither), about 0.3 would be by chance if none "
        "mattered; the largest: near (how far: -80 % steps (scripted stand-in decides))"
    )


def test_shares_are_of_what_a_change_is_held_against():
    found = draw.relative(everything()[1])["near"]
    assert (found.value, found.lo) == pytest.approx((-0.8, -0.8), abs=1e-3)
    turned = compared({"debt": -2.0, "more": -1.0})
    assert draw.relative(turned)["more"].value == pytest.approx(0.5)  # half better, though both are below 0


def test_every_change_has_a_row_side_by_side_and_a_line_parts_the_ablations():
    figure = draw.side_by_side(everything())
    assert rows(figure) == ["a part: up", "a part: down", "a part: unsure", "how far: near *", "what moves: more",
                            "what moves: less"]  # fmt: skip
    (axes,) = figure.axes
    assert marks(axes) == ["^", "v", "o", "^", "s", "s"] and zero_lines(axes) == 1
    flat = [line.get_ydata()[0] for line in axes.lines if line.get_color() == FAINT]
    assert flat == [2.5, 3.5] and title(figure) == draw.overall(everything())


# The student's rules ------------------------------------------------------------------------------------


def rules() -> dict[str, Comparison]:
    """One policy takes 10 steps and one 20; the first rule turns their order around."""
    first = {"as it is": 10.0, "warmup keep": 30.0, "initial 0.2": 10.5}
    second = {"as it is": 20.0, "warmup keep": 15.0, "initial 0.2": 20.0}
    return {
        policy: compared(levels, measures=(STEPS, SCORE), backend="policy", unsure=("initial 0.2",))
        for policy, levels in (("SO-d1", first), ("random", second))
    }


def test_rules_have_a_panel_per_policy_and_fewer_steps_point_up():
    figure = draw.panels(rules())
    assert [axes.get_title("left") for axes in figure.axes] == ["SO-d1", "random"]
    assert [marks(axes) for axes in figure.axes] == [["v", "o"], ["^", "o"]]
    assert rows(figure) == ["warmup keep", "initial 0.2"] and all(zero_lines(axes) == 1 for axes in figure.axes)
    assert title(figure).endswith("2 of 4 changes clearly move episode length")
    assert "warmup keep: most for SO-d1, +20.0 [" in draw.panels_alt(rules())


def test_the_table_of_rules_has_steps_as_they_are_on_top():
    table = draw.rules_table(rules()).set_index("rule")
    assert table.index.tolist() == ["as it is", "warmup keep", "initial 0.2"]
    assert table["SO-d1"]["as it is"].startswith("10.0") and table["random"]["warmup keep"].startswith("-5.0")


def test_the_answer_on_rules_counts_where_the_order_stays_and_names_what_was_not_tried():
    settings = params.load("smoke")
    said = draw.rules_answer(rules(), settings)
    assert said.startswith("2 of 4 changes clearly move the length of episodes; the order of the policies by length, ")
    assert "SO-d1 < random, stays under 1 of 2 changed rules." in said
    assert ("education.answers names no file" in said) == (not settings.education.answers)


def searched(ours: int) -> pd.DataFrame:
    return pd.DataFrame([{"warmup": f"w{i}", "distance": 0.1 * (i + 1), "ours": i == ours} for i in range(12)])


@pytest.mark.parametrize(("ours", "places"), [(2, [*range(1, 9)]), (10, [*range(1, 9), 11])])
def test_the_search_shows_the_nearest_and_ours_wherever_it_is(ours, places):
    table = draw.search_table(searched(ours))
    assert table["place"].tolist() == places and table["ours"].tolist().count("ours") == 1
    assert table.loc[table["ours"] == "ours", "place"].tolist() == [ours + 1]
    said = draw.search_answer(searched(ours))
    assert f"number {ours + 1} of 12, at a distance of {0.1 * (ours + 1):.2f}" in said and "nearest: 0.10;" in said


def test_rules_that_were_not_searched_are_told():
    assert draw.search_answer(searched(99)) == "The rules of params.yaml are not among the 12 combinations."


# Over a training ----------------------------------------------------------------------------------------


def test_changes_over_a_training_are_a_row_and_legal_metrics():
    changes = {
        "small budget": {"right_change": Interval(0.25, 0.1, 0.4), "within_change": Interval(-0.5, math.nan, math.nan)}
    }
    (row,) = draw.changes_table(changes).to_dict("records")
    assert row == {"training": "small budget", "right change": "+0.25 [+0.10, +0.40]", "within change": "-0.50"}
    assert draw.changes_metrics(changes) == {
        "corl_fixed.small_budget.right_change": 0.25, "corl_fixed.small_budget.right_change_lo": 0.1,
        "corl_fixed.small_budget.right_change_hi": 0.4, "corl_fixed.small_budget.within_change": -0.5,
    }  # fmt: skip
