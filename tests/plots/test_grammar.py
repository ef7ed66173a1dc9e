"""Figures are the same bytes each time, draw what they were given, and say what they cannot draw."""

import io
import itertools
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

from lib import plots
from lib.config import ROOT
from lib.experiment.seeds import rng
from lib.plots import styles
from lib.plots.render import DARK_PAGE, dark_colour
from lib.plots.scatter import undominated, upper_hull
from lib.plots.theme import spread_positions
from lib.stats import Interval
from tests.plots import marks

LONG = "a name that is much longer than a line of names has room for"
MEASURES = ["aptitude", "gap", "performance"]


def near(value: float, wide: float = 0.05) -> Interval:
    return Interval(value, value - wide, value + wide)


def one_run(value: float) -> Interval:
    return Interval(value, np.nan, np.nan)


POINTS = {name: near(0.3 * i + 0.2) for i, name in enumerate(["KO", "TO", LONG])} | {
    "RO": one_run(0.9)
}
VECTORS = {
    name: {m: near(x) for m, x in zip(MEASURES, row, strict=True)}
    for name, row in {
        "SO-d1": (0.9, 0.1, 0.1),
        "SO-d2": (0.1, 0.9, 0.1),
        "MO-S": (0.5, 0.5, 0.5),
        "MO-RM": (0.4, 0.4, 0.4),
    }.items()
}
COSTS = {
    name: near(x)
    for name, x in zip(["lab-nano", "lab-mini", "random", "CoRL"], [1, 3, 2, 2.5], strict=True)
}
RIGHT = {name: near(x) for name, x in zip(COSTS, [0.2, 0.8, 0.3, 0.9], strict=True)}
LEARNING = pd.DataFrame(
    [
        {
            "step": step,
            "reward": np.log1p(step) * (1 + i) + seed,
            "method": method,
            "seed": seed,
            "half": step % 2,
        }
        for i, method in enumerate(["CoRL", LONG])
        for seed in range(3)
        for step in range(12)
    ]
)
SHARES = pd.DataFrame({"SO-d1": [0.2, 0.5, 1.0], "MO-S": [0.8, 0.5, 0.0]}, index=[0, 10, 20])
DRAW = {
    "forest_plot": lambda: plots.forest_plot(
        {"KO": {"hv": near(1), "$ a $": near(2)}, LONG: {"hv": one_run(2)}}, "RO leads"
    ),
    "beside": lambda: plots.forest_plot(
        POINTS, "Away", "share", beside=("away", {"KO": near(0.1), "RO": near(0.8)})
    ),
    "lines": lambda: plots.line_plot(
        LEARNING, "step", "reward", "method", "It learns", rng=rng("test", "draw")
    ),
    "panels": lambda: plots.line_plot(
        LEARNING, "step", "reward", "method", "It learns", "step", "reward", panels="half"
    ),
    "tradeoff_plot": lambda: plots.tradeoff_plot(
        COSTS, RIGHT, "CoRL", "$", "right", line="mixtures", through=["lab-nano", "lab-mini"]
    ),
    "objectives": lambda: plots.tradeoff_plot(
        VECTORS, None, "A trade", rings="front", line="stair"
    ),
    "shares": lambda: plots.stacked_shares(SHARES, "It chooses", "step"),
    "lying": lambda: plots.stacked_shares(
        SHARES.set_axis(["KO", "TO", LONG]), "It chooses", "%", beside={"KO": "3 of 7"}
    ),
    "heatmap": lambda: plots.heatmap(
        pd.DataFrame([[-1, 0.5], [0.0, 2.0]], ["a", "b"], ["$ x $", LONG]),
        "Own",
        "reward, $",
        "on",
        "by",
    ),
}
NARROW = {
    f"{name}, for a phone": lambda make=make: make().draw_narrow()
    for name, make in DRAW.items()
    if name != "heatmap"  # it scrolls there
}
every_figure = pytest.mark.parametrize(
    "make", [*DRAW.values(), *NARROW.values()], ids=[*DRAW, *NARROW]
)


def intervals(axes) -> list[list[float]]:
    return [list(line.get_xdata()) for line in axes.lines if line.get_gid() == "interval"]


def rings(axes) -> list[tuple[float, float]]:
    return [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in axes.lines
        if line.get_gid() == "ring"
    ]


def note(figure) -> str:
    return " ".join(figure.get_supxlabel().split())


# What every figure does


@every_figure
def test_two_draws_are_the_same_bytes_and_leave_nothing_behind(make):
    before = dict(matplotlib.rcParams)
    plain = plots.render_png(make())
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "lines.linewidth": 9}):
        assert (
            plots.render_png(make()) == plain
        )  # nor does a reader's own matplotlibrc change anything
    assert plain.startswith(b"\x89PNG") and dict(matplotlib.rcParams) == before
    assert not sys.modules["matplotlib.pyplot"].get_fignums()


@every_figure
def test_nothing_is_cut_off_and_names_do_not_cover_each_other(make, recwarn):
    figure = make()
    plots.render_png(figure)
    page = figure.bbox.padded(2)
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [
        text.get_window_extent() for text in figure.texts
    ]
    assert all(
        page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes
    )
    for axes in figure.axes:
        names = [Text.get_window_extent(text).padded(-1) for text in axes.texts if text.get_text()]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(names, 2))
    assert not [str(warning.message) for warning in recwarn if "layout" in str(warning.message)]


@every_figure
def test_the_message_is_on_top_and_first_in_the_words_for_who_does_not_see(make):
    figure = make()
    assert (
        figure.alt_text.startswith(figure.get_suptitle())
        and len(figure.alt_text) > len(figure.get_suptitle()) + 5
    )


@pytest.mark.parametrize("word", ["WWWWWW ", "illi "])
def test_a_long_message_wraps_within_the_page(word):
    figure = plots.forest_plot(POINTS, word * 30)
    figure.draw_without_rendering()
    title, axes = figure.texts[0].get_window_extent(), figure.axes[0]
    assert title.x1 <= figure.bbox.x1 and axes.get_tightbbox().y1 < title.y0


def test_bytes_do_not_depend_on_the_process():
    script = (
        "import hashlib\nfrom lib import plots as draw\nfrom lib.stats import Interval\n"
        "print(hashlib.sha256(draw.render_png(draw.forest_plot({'a': Interval(1, 0, 2)}, 'One'))).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in "12"
    ]
    assert runs[0] == runs[1] and len(runs[0]) == 65


def list_boxes(figure):
    """Positions of all axes, and of the parts of the figure and of their parts."""
    for axes in figure._localaxes:
        yield axes.get_position(original=True)
    for part in figure.subfigs:
        yield part.bbox_relative
        yield from list_boxes(part)


@every_figure
@pytest.mark.parametrize("layout", ["wide", "narrow"])
def test_the_layout_leaves_no_digits_that_vary_between_processes(make, layout):
    figure = make()
    if layout == "narrow" and hasattr(figure, "draw_narrow"):
        figure = figure.draw_narrow()
    for _ in range(2):  # the second layout starts from the first
        figure.draw_without_rendering()
        corners = [box.get_points() for box in list_boxes(figure)]
        assert len(corners) >= 1
        assert np.array_equal(corners, np.round(corners, 6))


# Phones and dark pages


@pytest.mark.parametrize("make", NARROW.values(), ids=NARROW)
def test_words_are_at_least_eleven_pixels_high_on_a_phone(make):
    figure = make()
    svg = plots.render_svg(figure).decode()
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1]) * 96 / 72  # pixels
    shrunk = min(1, 358 / width)  # to what a page of 390 pixels has room for
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:[a-z0-9]+ )*([\d.]+)px", svg)]
    assert min(sizes) * 96 / 72 * shrunk >= 11 and sizes


@every_figure
def test_svg_is_the_same_each_time_loads_nothing_and_has_every_colour_twice(make):
    svg = plots.render_svg(make())
    assert svg == plots.render_svg(make()) and len(svg) < 120_000
    text = svg.decode()
    assert not re.findall(r"(?:href|src)=.(?!#|data:)", text.replace("xlink:href", "href"))
    both = re.search(r"svg{(.*?)}@media \(prefers-color-scheme: dark\){svg{(.*?)}}", text)
    light, dark = both.groups()
    assert light.count("--c") == dark.count("--c") > 1 and "--cffffff:#161616" in dark
    assert not re.search(r"(?:fill|stroke): #", text.partition("</style>")[2])


@pytest.mark.parametrize("name", [*styles._STYLES])
def test_text_in_the_colour_of_a_name_can_be_read_on_a_dark_page(name):
    page, text = (
        styles.contrast_with_white(np.array(to_rgb(shade)))
        for shade in (DARK_PAGE, dark_colour(plots.text_colour(plots.colour(name))))
    )
    assert page / text >= 4.5


def test_a_figure_that_a_lesson_adds_to_has_no_drawing_for_phones():
    figure = DRAW["lines"]()
    assert plots.has_narrow(figure)
    figure.axes[0].axvline(3)
    assert not plots.has_narrow(figure)


def test_an_alt_text_says_what_has_room_and_counts_the_rest():
    figure = plots.forest_plot({f"method {i}": near(i) for i in range(40)}, "Forty of them")
    assert 250 < len(figure.alt_text) <= 300
    (rest,) = re.findall(r"; and (\d+) more in the table\.$", figure.alt_text)
    assert figure.alt_text.count("method") + int(rest) == 40 == len(figure.data)


def test_the_table_of_a_scatter_has_a_column_of_intervals_for_each_axis_under_its_label():
    figure = plots.tradeoff_plot(COSTS, RIGHT, "CoRL", "dollars", "accuracy")
    assert list(figure.data.columns) == ["dollars", "accuracy"]
    values = [interval.value for interval in figure.data["dollars"]]
    assert values == [1, 3, 2, 2.5]
    unlabelled = plots.tradeoff_plot(COSTS, RIGHT, "CoRL")
    assert list(unlabelled.data.columns) == ["horizontal axis", "vertical axis"]


def test_a_cell_that_is_rounded_to_zero_has_no_minus():
    table = pd.DataFrame([[-0.001, -0.006], [0.0, 1.0]], ["a", "b"], ["x", "y"])
    figure = plots.heatmap(table, "Own", "reward")
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.00", "-0.01", "0.00", "1.00"]
    assert "a: x 0.00, y -0.01" in figure.alt_text


# What is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: plots.forest_plot({"RO": {"hv": one_run(np.nan)}}, "RO"), "RO, hv"),
        (
            lambda: plots.forest_plot({"RO": Interval(1, 0, np.nan)}, "RO"),
            "RO has half an interval",
        ),
        (lambda: plots.forest_plot({}, "RO"), "no estimates"),
        (lambda: plots.forest_plot(POINTS, " "), "title that states its message"),
        (
            lambda: plots.estimates_table(pd.DataFrame({"value": [1, 2], "method": ["a", "a"]})),
            "two estimates of a",
        ),
        (lambda: plots.estimates_table(pd.DataFrame({"mean": [1]})), "no column .'value'."),
        (lambda: plots.line_plot(LEARNING, "step", "price", "method", "It"), "no column .'price'."),
        (
            lambda: plots.line_plot(
                LEARNING.assign(reward=np.inf), "step", "reward", "method", "It"
            ),
            "'reward' has 72 of 72",
        ),
        (lambda: plots.line_plot(LEARNING[:0], "step", "reward", "method", "It"), "no rows"),
        (lambda: plots.tradeoff_plot(COSTS, POINTS, "CoRL"), "not of the same groups"),
        (lambda: plots.stacked_shares(-SHARES, "It"), "negative"),
        (lambda: plots.heatmap(pd.DataFrame([[np.nan]]), "A hole", "reward"), "1 of 1"),
        (lambda: styles.assign_styles(["new"], roles={"new": "judge"}), "'judge' is no role"),
        (lambda: plots.label_like("KO", "RO"), "'KO' is"),
        (lambda: plots.label_like("mine", "nobody's"), "no style in lib/plots/styles.py"),
        (
            lambda: plots.forest_plot({"RO": Interval(0.2, 0.3, 0.4)}, "RO"),
            r"RO: the value 0.2 is outside its own interval \[0.3, 0.4\]; compute both",
        ),
        (
            lambda: plots.forest_plot({"RO": Interval(0.98, 0.93, 1.04)}, "RO", bounds=(0, 1)),
            r"RO: the interval \[0.93, 1.04\] of 0.98 goes beyond .* \[0, 1\]; take an interval",
        ),
        (
            lambda: plots.line_plot(
                pd.DataFrame(
                    {"step": [0], "value": [3], "ci_low": [1], "ci_high": [2], "method": "RO"}
                ),
                "step",
                "value",
                "method",
                "It",
                seed=None,
            ),
            "RO at step 0: the value 3 is outside",
        ),
    ],
)
def test_what_is_missing_or_not_finite_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# What is drawn


def test_intervals_are_drawn_as_they_are_and_one_run_is_told():
    figure = plots.forest_plot(POINTS, "RO", "share")
    assert intervals(figure.axes[0]) == [[i.ci_low, i.ci_high] for i in POINTS.values() if i.known]
    assert marks(figure.axes[0]) == [
        plots.marker(name) for name in POINTS
    ] and "what has none is one run" in note(figure)
    frame = pd.DataFrame(
        {"value": [0.5], "ci_low": [np.nan], "ci_high": [np.nan], "num_runs": [1], "method": ["KO"]}
    )
    assert (
        "No intervals are known" in note(plots.forest_plot(frame, "KO"))
        and plots.describe_estimates(frame) == "KO 0.5."
    )


def test_two_seeds_are_a_point_without_an_interval():
    frame = pd.DataFrame(
        {"value": [0.5, 0.6], "ci_low": [-3, 0.5], "ci_high": [4, 0.7], "num_runs": [2, 3]},
        index=["KO", "RO"],
    )
    figure = plots.forest_plot(frame, "RO")
    assert intervals(figure.axes[0]) == [[0.5, 0.7]]
    assert "what has none is n = 2 seeds" in note(figure)
    assert "KO 0.5 (n = 2 seeds)" in figure.alt_text
    two = LEARNING[LEARNING["seed"] < 2]
    lines = plots.line_plot(two, "step", "reward", "method", "It", rng=rng("test", "draw"))
    assert "n = 2 seeds: too few for an interval" in note(lines)
    band = lines.axes[0].collections[0].get_paths()[0].vertices
    mean = two[two["method"] == "CoRL"].groupby("step")["reward"].mean()
    assert band[:, 1].max() == pytest.approx(mean.max())


def test_a_ring_marks_only_what_lies_beyond_all_others():
    rows = {"KO": {"hv": near(1), "cost": near(1)}, "RO": {"hv": near(2), "cost": near(1.06)}}
    hv, cost = plots.forest_plot(rows, "RO", smaller=["cost"]).axes
    assert rings(hv) == [(2, 1)] and rings(cost) == []
    assert not rings(plots.forest_plot(rows, "RO", line=0).axes[0])
    lonely = plots.forest_plot({"KO": {"hv": near(1)}, "RO": {"cost": near(1)}}, "RO").axes
    assert [[text.get_text() for text in axes.texts] for axes in lonely] == [
        ["not measured"],
        ["not measured"],
    ]


def test_lines_are_means_over_seeds_and_bands_reach_the_worst_and_the_best():
    frame = pd.DataFrame(
        {
            "step": [0, 0, 0, 1, 1, 1],
            "return": [1, 2, 6, 0, 0, 3],
            "seed": [0, 1, 2] * 2,
            "method": "RO",
        }
    )
    (axes,) = plots.line_plot(frame, "step", "return", "method", "It").axes
    band = axes.collections[0].get_paths()[0].vertices
    assert list(axes.lines[0].get_ydata()) == [3, 1] and axes.lines[0].get_color() == plots.colour(
        "RO"
    )
    assert {(0, 1), (0, 6), (1, 0), (1, 3)} <= set(map(tuple, band))
    given_ = pd.DataFrame(
        {"step": [0, 1], "value": [3, 1], "ci_low": [1, 0], "ci_high": [6, 3], "method": "RO"}
    )
    (axes,) = plots.line_plot(given_, "step", "value", "method", "It", seed=None).axes
    assert list(axes.lines[0].get_ydata()) == [3, 1] and {(0, 1), (0, 6)} <= set(
        map(tuple, axes.collections[0].get_paths()[0].vertices)
    )


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=1, max_size=20))
def test_no_point_lies_above_the_hull_and_the_front_is_what_none_dominates(points):
    points = np.array(points)
    hull = upper_hull(points)
    inside = points[points[:, 0] >= hull[0, 0]]
    assert (inside[:, 1] <= np.interp(inside[:, 0], *hull.T) + 1e-9).all()
    worse = [((points >= p).all(axis=1) & (points > p).any(axis=1)).any() for p in points]
    assert (undominated(points) == ~np.array(worse)).all()


def test_the_line_of_mixtures_leaves_out_who_is_judged():
    (axes,) = DRAW["tradeoff_plot"]().axes
    (line,) = [line for line in axes.lines if line.get_gid() == "line"]
    assert np.interp([1, 2, 3], *line.get_data()) == pytest.approx([0.2, 0.5, 0.8])
    assert sorted(text.get_text() for text in axes.texts) == sorted(COSTS)


def test_the_line_of_mixtures_leaves_out_models_without_usable_replies():
    costs, right = (
        stats_frame.assign(unusable_share=[0.0, 0.4, 0.0])
        for stats_frame in (
            pd.DataFrame({"value": [1.0, 2.0, 3.0], "ci_low": 0.5, "ci_high": 3.5}, list("abc")),
            pd.DataFrame({"value": [0.2, 0.9, 0.4], "ci_low": 0.1, "ci_high": 1.0}, list("abc")),
        )
    )
    figure = plots.tradeoff_plot(costs, right, "Mixtures", "$", "right", line="mixtures")
    (line,) = [line for line in figure.axes[0].lines if line.get_gid() == "line"]
    assert np.interp([1, 2, 3], *line.get_data()) == pytest.approx([0.2, 0.3, 0.4])

    nobody = costs.assign(unusable_share=1.0)
    figure = plots.tradeoff_plot(nobody, right, "Mixtures", "$", "right", line="mixtures")
    assert not [line for line in figure.axes[0].lines if line.get_gid() == "line"]


def test_three_objectives_are_three_panels_and_rings_are_the_front_of_all_three():
    figure = DRAW["objectives"]()
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes] == list(
        itertools.combinations(MEASURES, 2)
    )
    assert all(len(rings(axes)) == 3 for axes in figure.axes)  # all but MO-RM, which MO-S dominates


def test_stacked_bars_start_at_zero_in_the_order_of_the_columns():
    (axes,) = DRAW["shares"]().axes
    bars = {
        (round(p.get_x() + p.get_width() / 2), round(p.get_y(), 6)): round(p.get_height(), 6)
        for p in axes.patches
    }
    assert bars[0, 0.0] == 20 and bars[0, 20.0] == 80 and bars[2, 0.0] == 100


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0.5, 20))
def test_labels_are_spread_apart_within_bounds_in_the_order_they_had(wanted, gap):
    placed = spread_positions(np.array(wanted), gap, 0.0, 100.0)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(placed[order]) >= min(gap, 100 / max(len(wanted) - 1, 1)) - 1e-6).all()
    assert placed.min() >= -1e-6 and placed.max() <= 100 + 1e-6


# What a name looks like


def _seen(shade: str, matrix) -> np.ndarray:
    """A colour as CIE L*a*b* after `matrix` has taken out what a reader cannot see."""
    rgb = np.array(to_rgb(shade))
    linear = np.clip(
        np.array(matrix) @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4),
        0,
        1,
    )
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ linear / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


VISION = {  # Machado, Oliveira and Fernandes 2009, severity 1.0
    "full": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
}
FAMILIES = [
    "SO-d1, SO-d2, SO-d3, MO-S, MO-RM, MO-MGDA, MO-pseudoS, random, oracle",
    "KO, TO, RO, random, round-robin, LinUCB, greedy, plan ahead",
    "KO, TO, RO, random, best policy, MO-MGDA", "best policy, MO-S, MO-RM, MO-MGDA, random, plan ahead",
    "aptitude, gap, performance", "goal, no-lava, gold", "failed, easy, challenge", "ARC, RL bandit, RL episodes",
    "paper, router, expert, constant, start, oracle", "low, medium, high",
    "lab-nano, lab-mini, lab-large, CoRL", "nearest neighbours, logistic, cascade, best constant, oracle",
    "direct, reason, verify, routing, sectioning, voting, orchestrator, evaluator, autonomous",
    "chain, passage, choice, hops, mixed", "first agent, second agent, third agent",
    "policy configuration, execution, reasoning, knowledge gap, unclassified",
    "threshold tau; elite, as it was paid; refined, paid once more; buffer",
    "KO, TO, RO, Conductor, CoRL, ToolOrchestra, ARC, cascade",
]  # fmt: skip


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("family", FAMILIES)
def test_names_that_share_a_figure_differ_for_colour_blind_readers_or_by_marker(family, vision):
    for one, other in itertools.combinations(re.split("; " if ";" in family else ", ", family), 2):
        apart = np.linalg.norm(
            _seen(plots.colour(one), VISION[vision]) - _seen(plots.colour(other), VISION[vision])
        )
        assert apart > 20 or (apart > 8 and plots.marker(one) != plots.marker(other)), (
            f"{one} and {other} look alike"
        )


@pytest.mark.parametrize("lesson", styles.LESSON_METHODS)
def test_two_methods_of_one_lesson_never_share_colour_and_marker(lesson):
    methods = styles.SHARED_METHODS | styles.PAPERS | styles.LESSON_METHODS[lesson]
    assert len(set(methods.values())) == len(methods)


def test_methods_of_papers_have_colours_of_their_own():
    """Lesson 10 draws all of them in one figure."""
    colours = [shade for shade, _ in styles.PAPERS.values()]
    assert len(set(colours)) == len(colours) and plots.colour("cascade") not in colours


def test_a_method_looks_the_same_in_every_lesson():
    for methods in styles.LESSON_METHODS.values():
        for name, style in methods.items():
            assert (plots.colour(name), plots.marker(name)) == style, name


def test_no_figure_code_outside_the_plots_names_a_colour():
    files = [*(ROOT / "lib").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    with_colours = {
        file.relative_to(ROOT).as_posix(): hits
        for file in files
        if not {"plots", "template"} & set(file.parts)
        and (
            hits := re.findall(
                r"[\"']#[0-9a-fA-F]{6}\b|[\"']C\d[\"']|[\"']tab:\w+", file.read_text()
            )
        )
    }
    assert with_colours == {}


@pytest.mark.parametrize("name", [*styles._STYLES, *"abcdefgh"])
def test_labels_can_be_read_on_white(name):
    assert (
        styles.contrast_with_white(np.array(to_rgb(plots.text_colour(plots.colour(name))))) >= 4.5
    )


@pytest.mark.parametrize("role", [None, "paper", "router", "expert"])
def test_new_names_of_one_figure_do_not_share_a_colour_and_keep_the_marker_of_their_role(role):
    names = [f"model {i}" for i in range(5)]
    found = styles.assign_styles([*names, "RO"], roles=dict.fromkeys(names, role) if role else None)
    assert len({shade for shade, _ in found.values()}) >= 5 and found["RO"] == (
        plots.colour("RO"),
        plots.marker("RO"),
    )
    assert role is None or {found[name][1] for name in names} == {styles.ROLES[role][0]}


def test_names_beside_points_stand_where_they_were_placed_at_every_resolution():
    """An SVG has 72 pixels an inch, a PNG more; names that moved with it covered marks and left the figure."""
    names = ["lab-nano", "lab-mini", "random", "CoRL"]
    costs = {name: near(x) for name, x in zip(names, (1.0, 1.05, 1.1, 3.0), strict=True)}
    qualities = {name: near(y) for name, y in zip(names, (0.5, 0.52, 0.5, 0.9), strict=True)}
    figure = plots.tradeoff_plot(costs, qualities, "Quality against cost", "dollars", "quality")
    boxes = []
    for dpi in (72, 200):
        figure.dpi = dpi
        figure.draw_without_rendering()
        texts = [text for text in figure.axes[0].texts if text.get_text() in names]
        centres = [Text.get_window_extent(text).get_points().mean(axis=0) / dpi for text in texts]
        boxes.append(np.array(centres))  # (names, 2) in inches
    assert len(boxes[0]) == len(names)
    np.testing.assert_allclose(boxes[0], boxes[1], atol=0.03)


def test_numbers_of_an_svg_are_rounded_in_coordinates_alone():
    figure = plots.forest_plot({"a": near(0.0625, 0.01)}, "A small value", "share")
    axes = figure.axes[0]
    axes.set_xticks([0.055, 0.0625])
    svg = plots.render_svg(figure).decode()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"0.0550", "0.0625"} <= set(texts)
    assert not re.search(r'(?:x|y|d|points)="[^"]*\d\.\d{2,}', svg)


def test_no_picture_is_wider_than_a_page_shows_without_making_its_text_smaller():
    table = pd.DataFrame(np.eye(12), index=[f"a long name {row}" for row in range(12)])
    figures = [plots.heatmap(table, "Wide", "reward"), plots.new_figure("Wider", width=14.0)]
    for figure in figures:
        picture = Image.open(io.BytesIO(plots.render_png(figure)))
        assert picture.width <= 900 and picture.mode == "P"
        assert plots.render_png(figure) == plots.render_png(figure)
