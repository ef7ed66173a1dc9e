"""Figures state their message, keep their colours, draw what they were given and refuse what cannot be drawn."""

import inspect
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib.draw import figures
from lib.params import ROOT
from lib.seeds import rng
from lib.stats import Interval

POLICIES = ("SO-d1", "SO-d2", "SO-d3", "MO-S", "MO-RM", "MO-MGDA", "MO-pseudoS", "random", "oracle")
FAMILIES = (
    POLICIES,
    ("KO", "TO", "RO", "random", "oracle"),
    ("KO", "TO", "RO", "random", "round-robin", "LinUCB", "greedy look-ahead", "oracle look-ahead"),
    ("aptitude", "gap", "performance"),
    ("goal", "no-lava", "gold"),
    ("failed", "easy", "challenge"),
    ("ARC", "RL bandit", "RL episodes", "ARC by GRPO"),
    ("direct", "reason", "verify", "routing", "sectioning", "voting", "orchestrator", "evaluator", "autonomous"),
    ("chain", "passage", "choice", "hops", "mixed"),
    ("first agent", "second agent", "third agent"),
    ("policy configuration", "execution", "reasoning", "knowledge gap", "unclassified"),
    ("threshold tau", "elite, as it was paid", "refined, paid once more", "buffer"),
)
LONG = "a scripted stand-in with a name that no one would want on an axis"


def interval(value: float, half: float = 0.05) -> Interval:
    return Interval(value, value - half, value + half)


def one_run(value: float) -> Interval:
    return Interval(value, np.nan, np.nan)


def learning(methods=("SO-d1", "MO-S"), seeds=3, steps=40) -> pd.DataFrame:
    draws = rng("test", "curves")
    return pd.DataFrame(
        [
            {"step": 100 * step, "return": place + step / steps + draws.normal(0, 0.05), "method": method, "seed": seed}
            for place, method in enumerate(methods)
            for seed in range(seeds)
            for step in range(steps)
        ]
    )


def drawn_curves(frame: pd.DataFrame, **more) -> Figure:
    names = {"x": "step", "y": "return", "by": "method", "seed": "seed"}
    return figures.curves(frame, **names, title="It learns", xlabel="steps", ylabel="return", **more)


def decisions() -> pd.DataFrame:
    draws = rng("test", "decisions")
    return pd.DataFrame(
        {
            "mastery": draws.random(400),
            "action": draws.integers(3, size=400),
            "method": draws.choice(["KO", "RO"], 400),
        }
    )


def shares(frame: pd.DataFrame, **more) -> Figure:
    arguments = {"x": "mastery", "action": "action", "names": ["SO-d1", "SO-d2", "SO-d3"], "by": "method", **more}
    return figures.action_shares(frame, title="It chooses", **arguments)


def clouds(methods=("SO-d1", "MO-S", "RO"), n=4) -> dict[str, np.ndarray]:
    draws = rng("test", "clouds")
    return {name: draws.random((n, 3)) for name in methods}


AXES = ("aptitude", "gap", "performance")
PLANE = {"small": (interval(0.1, 0.02), interval(0.4)), LONG: (interval(0.9, 0.1), interval(0.8))}
MATRIX = pd.DataFrame([[0.1, 0.9], [-0.5, 0.2]], index=["SO-d1", LONG], columns=["aptitude", "gap"])
DRAW = {
    "curves": lambda: drawn_curves(learning()),
    "bars": lambda: figures.bars({"KO": interval(1), LONG: one_run(2)}, "RO leads", "hypervolume"),
    "grouped_points": lambda: figures.grouped_points(
        {"KO": {"hv": interval(1)}, LONG: {"hv": interval(2)}}, "RO leads", {"hv": "hypervolume"}
    ),
    "action_shares": lambda: shares(decisions()),
    "pareto": lambda: figures.pareto(clouds(), AXES, "A trade"),
    "cost_quality": lambda: figures.cost_quality(PLANE, "Cheap", "dollars", "accuracy"),
    "front_2d": lambda: figures.front_2d(np.eye(2), None, ("a", "b"), "A trade", names=["left", "right"]),
    "film_strip": lambda: figures.film_strip([np.zeros((8, 9, 3), np.uint8)] * 3, ["a", "b", LONG], "It walks"),
    "heat": lambda: figures.heat(MATRIX, "Own objective", "on", "by"),
    "sheet": lambda: figures.sheet("A kind of its own", 5, 3, "What the marks mean"),
}
every_figure = pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)


def texts(figure: Figure) -> list[str]:
    found = [artist.get_text() for artist in figure.findobj(matplotlib.text.Text) if artist.get_visible()]
    return [text.replace("\n", " ") for text in found if text]


def boxes(axes) -> list:
    axes.figure.draw_without_rendering()
    return [matplotlib.text.Text.get_window_extent(text) for text in axes.texts]


def rings(axes) -> list[tuple[float, ...]]:
    return [tuple(float(values[0]) for values in line.get_data()) for line in axes.lines if line.get_gid() == "ring"]


def overlapping(found: list) -> int:
    return sum(a.padded(-1.5).overlaps(b.padded(-1.5)) for i, a in enumerate(found) for b in found[:i])


# Colours


def test_colours_are_those_of_the_table_in_any_process():
    names = [*figures._STYLES, "gpt", LONG]
    script = f"from lib.draw.figures import colour, marker\nprint([(colour(n), marker(n)) for n in {names!r}])"
    found = set()
    for salt in ("1", "2"):  # hash() of a string depends on it
        out = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env={"PYTHONHASHSEED": salt}, capture_output=True, check=True
        )
        found.add(out.stdout.decode().strip())
    assert found == {str([(figures.colour(name), figures.marker(name)) for name in names])}
    assert figures.colour("SO-d1") == figures.colour("aptitude") == "#0072B2"


def _seen(colour: str, matrix) -> np.ndarray:
    """A colour as CIE L*a*b* after `matrix` has taken out what a reader cannot see."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(matrix) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


VISION = {  # Machado, Oliveira and Fernandes 2009, severity 1.0
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("family", FAMILIES)
def test_names_that_share_a_figure_differ_for_colour_blind_readers_or_by_marker(family, vision):
    seen = [_seen(figures.colour(name), VISION[vision]) for name in family]
    for i, first in enumerate(family):
        for j, second in enumerate(family[:i]):
            apart = np.linalg.norm(seen[i] - seen[j])
            assert apart > 8, f"{first} and {second} look alike"
            assert apart > 20 or figures.marker(first) != figures.marker(second)


@pytest.mark.parametrize("name", [*figures._STYLES, *"abcdefgh"])
def test_labels_can_be_read_on_white(name):
    assert figures._contrast_on_white(np.array(to_rgb(figures.ink(figures.colour(name))))) >= 4.5


def test_unknown_names_of_one_figure_do_not_share_a_colour():
    names = [f"model {i}" for i in range(len(figures._OTHERS))]
    found = figures._colours([*names, "RO"])
    assert len(set(found.values())) == len(found) and found["RO"] == figures.colour("RO")


# What every figure does


def test_every_public_drawing_is_checked_here():
    public = {name for name, function in inspect.getmembers(figures, inspect.isfunction) if name[0] != "_"}
    own = {name for name in public if inspect.signature(getattr(figures, name)).return_annotation == "Figure"}
    assert own == set(DRAW)


@every_figure
def test_two_draws_are_the_same_png_and_leave_nothing_behind(draw):
    before = dict(matplotlib.rcParams)
    first, second = figures.png(draw()), figures.png(draw())
    assert first == second and first.startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_drawing_needs_no_pyplot():
    script = (
        "import sys\nfrom lib.draw import figures\nfrom lib.stats import Interval\n"
        "figures.png(figures.bars({'RO': Interval(1, 0, 2)}, 'One', 'value'))\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True)
    assert out.stdout.strip() == "False"


def test_a_readers_own_matplotlibrc_changes_nothing():
    plain = figures.png(DRAW["bars"]())
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "lines.linewidth": 9, "axes.grid": False}):
        assert figures.png(DRAW["bars"]()) == plain


@every_figure
def test_no_text_is_cut_off_and_the_layout_never_collapses(draw, recwarn):
    figure = draw()
    figures.png(figure)
    page = figure.bbox.padded(2)
    flat = [axes.get_tightbbox() for axes in figure.axes if axes.name != "3d"]
    for box in [*flat, *(text.get_window_extent() for text in figure.texts)]:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
    assert not [str(warning.message) for warning in recwarn if "layout" in str(warning.message)]


@every_figure
def test_the_page_is_white_with_the_message_on_top(draw):
    figure = draw()
    assert figure.get_facecolor() == (1, 1, 1, 1) and figure.dpi == figures.DPI
    assert figure.get_suptitle() and figure.get_suptitle() in " ".join(texts(figure))


def test_a_figure_without_a_message_is_refused():
    with pytest.raises(ValueError, match="title that states its message"):
        figures.bars({"KO": interval(1)}, " ", "hypervolume")


@pytest.mark.parametrize("word", ["WWWWWW ", "illi ", "message "])
def test_a_long_message_wraps_within_the_page(word):
    figure = figures.bars({"KO": interval(1)}, word * 30, "hypervolume")
    figure.draw_without_rendering()
    title, axes = figure.texts[0].get_window_extent(), figure.axes[0]
    assert title.x1 <= figure.bbox.x1 and title.y1 <= figure.bbox.y1
    assert axes.get_tightbbox().y1 < title.y0 and axes.get_window_extent().height > 30


# Learning curves


def test_curves_show_one_line_a_method_with_its_label_in_its_colour():
    axes = drawn_curves(learning()).axes[0]
    assert [line.get_color() for line in axes.lines] == [figures.colour("SO-d1"), figures.colour("MO-S")]
    assert [text.get_text() for text in axes.texts] == ["SO-d1", "MO-S"] and len(axes.collections) == 2
    assert axes.get_xlabel() == "steps" and axes.get_ylabel() == "return"


def test_a_curve_is_the_mean_over_seeds_and_its_band_reaches_the_worst_and_the_best():
    frame = pd.DataFrame(
        {"step": [0, 0, 0, 1, 1, 1], "return": [1, 2, 6, 0, 0, 3], "seed": [0, 1, 2] * 2, "method": "RO"}
    )
    axes = drawn_curves(frame).axes[0]
    assert axes.lines[0].get_ydata() == pytest.approx([3, 1])
    edge = axes.collections[0].get_paths()[0].vertices
    assert edge[edge[:, 0] == 0, 1].min() == 1 and edge[edge[:, 0] == 0, 1].max() == 6


def test_a_seed_with_more_rows_in_a_bin_counts_once():
    frame = pd.DataFrame({"step": [0, 0, 0, 0], "return": [1.0, 1.0, 1.0, 5.0], "seed": [0, 0, 0, 1], "method": "RO"})
    assert drawn_curves(frame).axes[0].lines[0].get_ydata() == pytest.approx([3])


def test_an_interval_s_band_of_many_seeds_is_narrower_than_the_range_and_repeats_with_its_generator():
    frame = learning(seeds=12)
    wide = drawn_curves(frame)
    narrow, again = (drawn_curves(frame, rng=rng("test", "band")) for _ in range(2))
    height = [f.axes[0].collections[0].get_paths()[0].get_extents().height for f in (wide, narrow)]
    assert height[1] < height[0] and figures.png(narrow) == figures.png(again)
    assert "95% interval" in narrow.get_supxlabel() and "worst seed" in wide.get_supxlabel()


def test_more_places_than_bins_are_binned():
    frame = learning(steps=100)
    assert len(drawn_curves(frame, bins=10).axes[0].lines[0].get_xdata()) == 10
    assert len(drawn_curves(frame, bins=100).axes[0].lines[0].get_xdata()) == 100


def test_what_others_are_held_against_is_dashed_and_the_note_is_below():
    figure = drawn_curves(learning(), dashed=["MO-S"], note="A student who is done keeps the last mastery.")
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "--"]
    told = figure.get_supxlabel().replace("\n", " ")
    assert told.startswith("Line: mean over 3 seeds.") and told.endswith("keeps the last mastery.")


def test_one_seed_is_called_one_seed():
    figure = drawn_curves(learning(methods=["RO"], seeds=1))
    assert "RO (1 seed)" in texts(figure) and "no interval" in figure.get_supxlabel()


def test_a_single_measurement_is_still_visible():
    axes = drawn_curves(learning(seeds=2, steps=1)).axes[0]
    assert axes.lines[0].get_marker() == figures.marker("SO-d1")


def test_end_labels_do_not_overlap_even_where_all_lines_end_together():
    frame = learning(methods=POLICIES)
    figure = drawn_curves(frame.assign(**{"return": 0.5}))
    found = boxes(figure.axes[0])
    assert len(found) == len(POLICIES) and overlapping(found) == 0


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_small_multiples_share_their_axes(count):
    frame = pd.concat([learning().assign(room=f"room {i}") for i in range(count)])
    figure = drawn_curves(frame, panels="room")
    assert [axes.get_title("left") for axes in figure.axes] == [f"room {i}" for i in range(count)]
    assert len({axes.get_ylim() for axes in figure.axes}) == len({axes.get_xlim() for axes in figure.axes}) == 1


def test_panels_of_one_method_carry_its_name_once():
    figure = drawn_curves(learning(methods=POLICIES), panels="method")
    assert len(figure.axes) == len(POLICIES)
    assert all(texts(figure).count(name) == 1 for name in POLICIES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(**{"return": np.nan}), "column 'return' has 240 of 240 values that are nan"),
        (lambda frame: frame.drop(columns="seed"), r"no column \['seed'\]"),
        (lambda frame: frame.iloc[:0], "no rows"),
    ],
)
def test_curves_refuse_what_they_cannot_draw_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        drawn_curves(change(learning()))


@given(
    st.lists(st.floats(-50, 150), min_size=1, max_size=12),
    st.floats(1, 12),
)
def test_spread_keeps_order_gap_and_frame(wanted, gap):
    placed = figures._spread(np.array(wanted), gap, 0.0, 100.0)
    assert placed.min() >= -1e-9 and placed.max() <= 100 + 1e-9
    order = np.argsort(wanted, kind="stable")
    between = np.diff(placed[order])
    assert (between >= min(gap, 100 / max(len(wanted) - 1, 1)) - 1e-9).all()


def test_labels_with_room_stay_where_they_are():
    assert figures._spread(np.array([80.0, 10.0, 40.0]), 5, 0, 100) == pytest.approx([80, 10, 40])


# Intervals


def test_bars_write_their_numbers_and_say_where_a_run_was_alone():
    figure = figures.bars({"KO": interval(0.5), "RO": one_run(0.7)}, "RO leads", "hypervolume, units cubed")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.50 [0.45, 0.55]", "0.70 (one run, no interval)"]
    assert len([line for line in axes.lines if line.get_gid() == "interval"]) == 1
    assert axes.get_xlim()[0] == 0 and axes.get_xlabel() == "hypervolume, units cubed"


def test_bars_below_zero_stay_in_view():
    axes = figures.bars({"KO": interval(-2), "RO": interval(1)}, "Both ways", "difference").axes[0]
    assert axes.get_xlim()[0] < -2.05 and axes.get_xlim()[1] > 1.05


def test_the_ring_waits_until_the_intervals_separate():
    apart = {"KO": {"hv": interval(1), "cost": interval(1)}, "RO": {"hv": interval(2), "cost": interval(1.04)}}
    hv, cost = figures.grouped_points(apart, "RO leads", ["hv", "cost"]).axes
    assert rings(hv) == [(2.0, 1.0)] and rings(cost) == []


def test_the_ring_goes_to_the_smallest_where_smaller_is_better():
    rows = {"KO": {"cost": interval(1)}, "RO": {"cost": interval(2)}}
    figure = figures.grouped_points(rows, "KO is cheap", {"cost": "dollars"}, smaller_is_better=["cost"])
    assert rings(figure.axes[0]) == [(1.0, 0.0)] and figure.axes[0].get_xlabel() == "dollars"


@pytest.mark.parametrize("rows", [{"RO": {"hv": interval(1)}}, {"RO": {"hv": one_run(1)}, "KO": {"hv": one_run(0)}}])
def test_nothing_is_best_alone_or_without_intervals(rows):
    assert rings(figures.grouped_points(rows, "RO", ["hv"]).axes[0]) == []


def test_a_method_without_a_metric_is_not_measured_rather_than_zero():
    figure = figures.grouped_points({"KO": {"hv": interval(1)}, "RO": {}}, "RO", ["hv"])
    assert texts(figure).count("not measured") == 1


@pytest.mark.parametrize("broken", [Interval(np.nan, 0, 1), Interval(1, 0, np.nan)])
def test_a_broken_interval_is_refused_by_name(broken):
    with pytest.raises(ValueError, match="'RO'"):
        figures.bars({"RO": broken}, "RO leads", "hypervolume")
    with pytest.raises(ValueError, match="'hv' of 'RO'"):
        figures.grouped_points({"RO": {"hv": broken}}, "RO leads", ["hv"])


# Actions


def test_shares_add_up_to_everything_in_every_bar():
    figure = shares(decisions(), bins=5)
    assert [axes.get_title("left").split(" (")[0] for axes in figure.axes] == list(decisions()["method"].unique())
    for axes in figure.axes:
        tops = pd.Series({bar.get_x(): 0.0 for bar in axes.patches})
        for bar in axes.patches:
            tops[bar.get_x()] += bar.get_height()
        assert tops.to_numpy() == pytest.approx(np.full(len(tops), 100.0)) and len(tops) == 5


def test_shares_are_the_counts():
    frame = pd.DataFrame({"mastery": ["low"] * 4, "action": [0, 0, 0, 2], "method": "RO"})
    figure = shares(frame)
    assert [bar.get_height() for bar in figure.axes[0].patches] == [75, 0, 25]
    assert {"SO-d1", "SO-d2", "SO-d3", "RO (4 decisions)"} <= set(texts(figure))


def test_an_action_without_a_name_is_refused():
    with pytest.raises(ValueError, match=r"actions \['2'\]"):
        shares(decisions(), names=["SO-d1", "SO-d2"])


def test_actions_may_be_keys():
    frame = pd.DataFrame({"mastery": [0.5, 0.5], "action": ["a", "b"], "method": "RO"})
    assert {"ask", "tell"} <= set(texts(shares(frame, names={"a": "ask", "b": "tell"})))


@pytest.mark.parametrize(
    "draw",
    [
        lambda note: shares(decisions(), note=note),
        lambda note: figures.film_strip([np.zeros((4, 4))], ["a"], "It walks", note=note),
        lambda note: figures.sheet("It is empty", 5, 3, note),
    ],
)
def test_a_note_stands_below_only_where_there_is_one(draw):
    assert draw("Scripted.").get_supxlabel() == "Scripted." and draw("").get_supxlabel() == ""


# Fronts


def test_pareto_has_a_space_and_three_projections_with_their_labels():
    figure = DRAW["pareto"]()
    assert [axes.name for axes in figure.axes] == ["3d", "rectilinear", "rectilinear", "rectilinear"]
    pairs = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes[1:]]
    assert pairs == [("aptitude", "gap"), ("aptitude", "performance"), ("gap", "performance")]
    for axes in figure.axes[1:]:
        assert sorted(text.get_text() for text in axes.texts) == ["MO-S", "RO", "SO-d1"]


def test_the_ring_is_for_what_all_three_objectives_leave_undominated():
    points = {"KO": np.array([[1.0, 0, 0]]), "TO": np.array([[0.9, 0.9, 0.9]]), "RO": np.array([[0.8, 0.8, 0.8]])}
    for axes in figures.pareto(points, AXES, "KO and TO").axes[1:]:
        assert len(rings(axes)) == 2


def test_equal_methods_are_all_ringed_and_labelled_apart():
    figure = figures.pareto({name: np.full((2, 3), 0.5) for name in POLICIES[:4]}, AXES, "All equal")
    for axes in figure.axes[1:]:
        assert len(rings(axes)) == 4 and overlapping(boxes(axes)) == 0


def test_episodes_are_averaged_for_each_seed_first():
    episodes = np.array([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1]])
    figure = figures.pareto({"RO": episodes}, AXES, "RO", seeds={"RO": np.array([0, 0, 0, 1])})
    assert rings(figure.axes[1]) == [(0.5, 0.5)]


def test_one_seed_beside_several_is_called_so():
    figure = figures.pareto({"KO": np.zeros((3, 3)), "RO": np.ones((1, 3))}, AXES, "RO")
    assert {"RO (1 seed)", "KO"} <= set(texts(figure))
    assert "no interval" in figures.pareto({"RO": np.ones((1, 3))}, AXES, "RO").get_supxlabel()


@pytest.mark.parametrize("points", [np.ones((2, 2)), np.array([[1, 2, np.nan]]), np.ones((0, 3))])
def test_pareto_refuses_points_by_the_method_they_belong_to(points):
    with pytest.raises(ValueError, match="points of 'RO'"):
        figures.pareto({"RO": points}, AXES, "RO")


def test_the_hull_keeps_what_no_mixture_beats():
    points = np.array([[0.0, 0.0], [1, 0.2], [1, 0.6], [2, 0.75], [3, 1.0], [4, 0.9], [2, 0.5]])
    assert figures.upper_hull(points).tolist() == [[0, 0], [1, 0.6], [3, 1.0]]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=15))
def test_the_hull_rises_ever_more_slowly_and_nothing_lies_above_it(points):
    points = np.array(points, dtype=float)
    hull = figures.upper_hull(points)
    slopes = np.diff(hull[:, 1]) / np.diff(hull[:, 0])
    assert (slopes > 0).all() and (np.diff(slopes) < 0).all()
    assert (points[:, 1] <= np.interp(points[:, 0], *hull.T) + 1e-9).all()


def test_cost_and_quality_have_their_units_and_their_names():
    figure = DRAW["cost_quality"]()
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dollars", "accuracy")
    assert sorted(text.get_text() for text in axes.texts) == sorted(PLANE) and axes.get_xlim()[0] >= 0


def test_dominated_points_are_grey():
    points = np.array([[0, 1], [1, 0], [0.4, 0.4], [0.3, 0.2], [0, 0.5]])
    axes = figures.front_2d(points, None, ("a", "b"), "A trade").axes[0]
    grey = next(line for line in axes.lines if line.get_color() == figures.FAINT)
    assert sorted(grey.get_xdata()) == [0, 0.3]


@pytest.mark.parametrize("chosen", [np.array([True, False, True]), [0, 2]])
def test_points_are_chosen_by_mask_or_by_place(chosen):
    points = np.array([[0, 1], [1, 0], [0.2, 0.2]])
    figure = figures.front_2d(points, chosen, ("a", "b"), "A trade", names=["x", "y", "z"])
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["x", "z"]


@pytest.mark.parametrize(("chosen", "message"), [([5], r"chosen \[5\]"), (np.array([True]), r"mask .* must be \(3,\)")])
def test_points_that_are_not_there_cannot_be_chosen(chosen, message):
    with pytest.raises(ValueError, match=message):
        figures.front_2d(np.eye(3)[:, :2], chosen, ("a", "b"), "A trade")


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 9), st.integers(0, 100))
def test_labels_of_scattered_points_do_not_overlap(count, seed):
    values = rng("test", "labels", seed=seed).random((count, 2))
    points = {f"model {i}": (one_run(x), one_run(y)) for i, (x, y) in enumerate(values)}
    figure = figures.cost_quality(points, "Many", "dollars", "accuracy")
    assert overlapping(boxes(figure.axes[0])) == 0


def test_points_are_named_beside_them_and_apart():
    with figures.theme():
        figure = figures.sheet("Three points", 6, 4)
        axes = figures.tiles(figure, 1)[0]
        places = np.array([[0.0, 0.0], [0.02, 0.01], [1.0, 1.0]])
        axes.plot(*places.T, "o")
        figures.name_points(axes, ["one", "two", "three"], places, ["#000000"] * 3, places)
    assert sorted(text.get_text() for text in axes.texts) == ["one", "three", "two"] and overlapping(boxes(axes)) == 0


def test_tiles_fill_rows_and_leave_no_empty_axes():
    figure = figures.sheet("Five panels", 6, 4)
    assert len(figures.tiles(figure, 5, across=3, sharey=True)) == len(figure.axes) == 5


# Pictures and tables


def test_a_film_strip_shows_every_frame_under_its_caption():
    frames = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 120, 255)]
    figure = figures.film_strip(frames, ["start", "middle", "end"], "It walks")
    assert [axes.get_title() for axes in figure.axes] == ["start", "middle", "end"]
    assert [int(axes.images[0].get_array()[0, 0, 0]) for axes in figure.axes] == [0, 120, 255]
    assert len(figures.film_strip([frames[0]] * 8, ["a"] * 8, "It walks").axes) == 8


def test_a_grey_frame_keeps_its_brightness():
    dark = figures.film_strip([np.zeros((4, 4), np.uint8)], ["dark"], "Dark").axes[0].images[0]
    assert dark.norm(dark.get_array()).max() == 0 and dark.norm(255) == 1


def test_frames_and_captions_must_match():
    with pytest.raises(ValueError, match="got 1 and 2"):
        figures.film_strip([np.zeros((4, 4))], ["a", "b"], "It walks")


def test_heat_writes_every_number_and_is_white_at_zero():
    figure = DRAW["heat"]()
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.10", "0.90", "-0.50", "0.20"]
    image = figure.axes[0].images[0]
    assert np.allclose(image.cmap(image.norm(0.0))[:3], 0.96, atol=0.03)


def test_heat_takes_a_table_of_equals_and_refuses_holes():
    assert figures.png(figures.heat(MATRIX * 0 + 1, "Flat", "on", "by"))
    with pytest.raises(ValueError, match="the table has 1 of 4 values"):
        figures.heat(MATRIX.replace(0.9, np.nan), "A hole", "on", "by")
