"""Lessons: what they show, what they leave behind, and what they refuse."""

import io
import json
import math
import os
import re
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from nbclient import NotebookClient
from PIL import Image

from lib import plots
from lib.config import ROOT
from lib.experiment import artifacts
from lib.plots import accessibility_check
from lib.plots.tables import interval_table, number, table_html, with_interval
from lib.reports import html, lesson, markdown
from lib.reports.lesson import Lesson
from lib.stats import Interval

ALT = "A line that rises from one to three and falls to two"


@pytest.fixture
def shown(monkeypatch):
    """What a lesson displays, HTML only; outside a notebook there is nothing to display it in."""
    outputs: list[str] = []
    monkeypatch.setattr(lesson, "_show", lambda markup, plain: outputs.append(markup))
    monkeypatch.delenv("BENCH_RUN", raising=False)
    return outputs


@pytest.fixture
def zoo(tmp_path, shown):
    return Lesson(
        "01_policy_zoo", title="The zoo", profile="laptop", parameters={"steps": 3}, root=tmp_path
    )


def figure() -> Figure:
    fig, axes = plt.subplots(figsize=(3, 2))
    axes.plot([1, 3, 2])
    return fig


def film(steps: int = 8) -> np.ndarray:
    frames = np.full((steps, 24, 32, 3), 255, dtype=np.uint8)
    for step in range(steps):
        frames[step, 8:16, step * 3 : step * 3 + 8] = (200, 30, step * 10)
    return frames


def test_a_figure_is_saved_shown_with_its_alt_text_and_closed(zoo, shown, tmp_path):
    fig = figure()
    zoo.figure(fig, "front", alt='A line "rises" & falls again')
    assert not plt.fignum_exists(fig.number)
    assert shown[0].startswith(
        '<figure class="drawn wide" tabindex="0"><img src="data:image/svg+xml'
    )
    assert 'alt="A line &quot;rises&quot; &amp; falls again"' in shown[0]
    image = Image.open(tmp_path / "figures/01_policy_zoo/front.png")
    assert image.size == (330, 220), "110 dots per inch"
    assert set(image.info) <= {"dpi"}, "no metadata, which would name a version"


def test_a_phone_gets_a_drawing_of_its_own_and_long_numbers_a_table(zoo, shown):
    estimates = {f"method {i}": Interval(i, i - 1, i + 1) for i in range(30)}
    zoo.figure(plots.forest_plot(estimates, "Thirty methods"), "front")
    page = BeautifulSoup(shown[0], "html.parser")
    assert page.picture.source["media"] == "(max-width: 600px)"
    assert page.picture.source["srcset"] != page.picture.img["src"]
    assert "more in the table" in page.img["alt"] and len(page.img["alt"]) <= 300
    assert len(page.details.find_all("tr")) == 31 and page.details.summary
    assert accessibility_check.problems(shown[0]) == []


def test_an_alt_text_that_nobody_can_follow_is_refused(zoo):
    with pytest.raises(
        ValueError, match="figure front: the alt text has 400 characters.*at most 300"
    ):
        zoo.figure(Figure(), "front", alt="abcd " * 80)


def test_an_empty_table_is_refused_by_its_caption(zoo):
    with pytest.raises(ValueError, match="the table 'Places' is empty; show it only where"):
        zoo.table(pd.DataFrame({"value": []}), "Places")


def test_a_table_whose_interval_leaves_out_its_value_is_refused(zoo):
    estimates = pd.DataFrame({"value": [0.23], "ci_low": [0.27], "ci_high": [0.37]}, index=["RO"])
    with pytest.raises(ValueError, match="the table 'Volumes', row RO: the value 0.23 is outside"):
        zoo.table(estimates, "Volumes")


def test_a_table_shows_two_seeds_without_an_interval(zoo, shown):
    estimates = pd.DataFrame(
        {"value": [0.5], "ci_low": [-1.0], "ci_high": [2.0], "num_runs": [2]}, index=["RO"]
    )
    zoo.table(estimates, "Two")
    assert "0.500 (n = 2)" in shown[0] and "[" not in shown[0]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("KO.hv", Interval(0.23, 0.27, 0.37), "metric KO.hv: the value 0.23 is outside"),
        ("KO.accuracy", Interval(0.98, 0.93, 1.04), r"metric KO.accuracy: .* \[0, 1\]; take"),
        ("KO.cost_usd", Interval(0.1, -0.2, 0.4), r"metric KO.cost_usd: .* \[0, inf\]; take"),
    ],
)
def test_an_interval_that_cannot_be_is_refused_by_key(zoo, key, value, words):
    with pytest.raises(ValueError, match=words):
        zoo.metric(key, value)
    zoo.metric(f"gap.{key}", Interval(0.1, -0.2, 0.4))  # a difference may be negative


@pytest.mark.parametrize("alt", ["", "a plot", " " * 30])
def test_a_figure_that_says_nothing_is_refused_and_not_saved(zoo, alt, tmp_path):
    with pytest.raises(ValueError, match="figure front: alt text"):
        zoo.figure(figure(), "front", alt=alt)
    plt.close("all")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("name", ["", "Front", "a/b", "../a", "a b", "a.png", "front"])
def test_a_figure_name_that_is_no_file_name_or_another_figures_is_refused(zoo, name):
    zoo.figure(Figure(), "front", alt=ALT)
    with pytest.raises(
        ValueError, match="two figures called 'front'" if name == "front" else "figure name"
    ):
        zoo.figure(Figure(), name, alt=ALT)


def test_an_animation_loops_and_keeps_its_frames_and_is_a_film_strip_for_who_wants_no_motion(
    zoo, shown, tmp_path
):
    zoo.animation(film(), "walk", alt=ALT, caption="By <epoch>.", fps=4)
    assert "<figcaption>By &lt;epoch&gt;.</figcaption>" in shown[0]
    movie = Image.open(tmp_path / "figures/01_policy_zoo/walk.gif")
    assert movie.n_frames == 8 and movie.info["loop"] == 0 and movie.info["duration"] == 250
    for step, frame in enumerate(film()):
        movie.seek(step)
        assert np.array_equal(np.asarray(movie.convert("RGB")), frame)
    content = (tmp_path / "figures/01_policy_zoo/walk.png").read_bytes()
    strip = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert strip.shape == (24, 6 * 32 + 5 * lesson.STRIP_GAP, 3)
    assert np.array_equal(strip[:, :32], film()[0]) and np.array_equal(strip[:, -32:], film()[-1])
    media, picture = re.search(
        r'<source media="([^"]+)" srcset="data:image/png;base64,([^"]+)">', shown[0]
    ).groups()
    assert "prefers-reduced-motion: reduce" in media
    assert picture == lesson._data_uri("image/png", content).partition(",")[2]
    assert html.accessibility_check.problems(shown[0]) == []


@pytest.mark.parametrize(
    "frames",
    [np.zeros((0, 4, 4, 3), np.uint8), np.zeros((2, 4, 4, 3)), np.zeros((4, 4, 3), np.uint8)],
)
def test_frames_of_another_kind_are_refused(zoo, frames):
    with pytest.raises(ValueError, match=r"\(T, H, W, 3\) uint8"):
        zoo.animation(frames, "walk", alt=ALT)


def test_a_finished_lesson_leaves_flat_numbers_with_their_intervals_and_what_the_front_page_needs(
    zoo, tmp_path
):
    zoo.metric("education.SO-d1.length", Interval(3.5, 3.0, 4.0))
    zoo.metric("one_run", Interval(1.0, math.nan, math.nan))
    zoo.metric("share", pd.Series({"value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "num_runs": 3}))
    zoo.metrics({"backend": "lab", "n": np.int64(3), "holds": np.bool_(True), "x": np.float32(0.5)})
    zoo.figure(Figure(), "front", alt=f"  {ALT}\n ")
    zoo.conclusion("It works.")
    zoo.save(key_figure="front", key_metrics=["share", "backend"])
    assert json.loads((tmp_path / "metrics/01_policy_zoo.json").read_text()) == {
        "education.SO-d1.length": 3.5,
        "education.SO-d1.length_ci_low": 3.0,
        "education.SO-d1.length_ci_high": 4.0,
        "one_run": 1.0,
        "share": 0.5,
        "share_ci_low": 0.4,
        "share_ci_high": 0.6,
        "backend": "lab",
        "n": 3,
        "holds": True,
        "x": 0.5,
    }
    card = json.loads((tmp_path / "lessons/01_policy_zoo.json").read_text())
    drawing = card.pop("key_drawing")
    assert drawing.startswith('<img src="data:image/svg+xml;base64,') and ALT in drawing
    assert card == {
        "lesson": "01_policy_zoo",
        "title": "The zoo",
        "finding": "It works.",
        "key_figure": "figures/01_policy_zoo/front.png",
        "key_figure_alt": ALT,
        "key_metrics": ["share", "backend"],
        "profile": "laptop",
        "parameters": artifacts.sha256_json({"steps": 3})[:12],
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("KO.reward", value)
        for value in (math.nan, -math.inf, np.float32("nan"), None, [1.0], np.zeros(2))
    ]
    + [(key, 1.0) for key in ("", "a b", ".a", "a.", "a..b", "a/b", "_a", "größe!")],
)
def test_a_metric_that_is_no_finite_number_or_has_no_key_is_refused_by_name(zoo, key, value):
    with pytest.raises(
        ValueError, match=r"metric KO\.reward is" if key == "KO.reward" else "metric key"
    ):
        zoo.metric(key, value)


def test_a_metric_is_recorded_once_also_as_a_bound_of_another_and_not_the_wrong_way_round(zoo):
    with pytest.raises(ValueError, match="above ci_high"):
        zoo.metric("share", Interval(1.0, 2.0, 0.5))
    zoo.metric("share", Interval(0.5, 0.4, 0.6))
    for key in ("share", "share_ci_low"):
        with pytest.raises(ValueError, match=f"metric {key} is recorded twice"):
            zoo.metric(key, 0.5)


def test_a_lesson_has_one_finding_and_shows_it(zoo, shown):
    zoo.conclusion("KO reaches  0.64\n of the reward < TO.")
    assert "KO reaches 0.64 of the reward &lt; TO." in shown[0] and 'class="finding"' in shown[0]
    with pytest.raises(ValueError, match="has a conclusion already"):
        zoo.conclusion("Another.")


def test_finish_names_everything_that_is_missing_and_writes_nothing(zoo, tmp_path):
    zoo.metric("a", 1)
    with pytest.raises(ValueError, match=r"no conclusion.*no figure 'front'.*no metric 'b'"):
        zoo.save("front", ["a", "b"])
    assert not (tmp_path / "lessons").exists() and not (tmp_path / "metrics").exists()


def test_what_was_timed_stays_out_of_the_notebook(zoo, shown, tmp_path, monkeypatch):
    frame = pd.DataFrame({"method": ["a"], "seconds": [1.23]})
    zoo.side_table(frame, "training", "Seconds of <training>")
    monkeypatch.setenv("BENCH_RUN", "1")
    zoo.side_table(frame, "training", "Seconds of <training>")
    zoo.side_table(frame * 2, "training", "Seconds of <training>")
    live, run, again = shown
    assert "1.23" in live and "<caption>Seconds of &lt;training&gt;</caption>" in live
    assert run == again and "1.23" not in run
    assert (
        '<iframe src="timings/01_policy_zoo-training.html" title="Seconds of &lt;training&gt;"'
        in run
    )
    side = (tmp_path / "timings/01_policy_zoo-training.html").read_text()
    assert (
        "2.46" in side
        and side.startswith("<!DOCTYPE html>")
        and html.accessibility_check.problems(side) == []
    )


def test_tables_say_what_they_show_and_what_their_headers_head():
    frame = pd.DataFrame({"method": ["KO", "T<O"], "reward": [0.5, 12.25], "n": [1, 2000]})
    made = table_html(frame, "Rewards & more")
    assert "<caption>Rewards &amp; more</caption>" in made
    assert re.findall(r'<th scope="(\w+)"[^>]*>([^<]+)<', made) == [
        ("col", "method"),
        ("col", "reward"),
        ("col", "n"),
        ("row", "KO"),
        ("row", "T&lt;O"),
    ]
    assert re.findall(r'<td style="text-align:(\w+)[^"]*">([^<]+)<', made) == [
        ("right", "0.50"),
        ("right", "1"),
        ("right", "12.25"),
        ("right", "2000"),
    ]


def test_a_named_index_and_columns_in_levels_are_shown():
    index = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["method", "seed"])
    columns = pd.MultiIndex.from_tuples([("reward", "mean"), ("reward", "best")])
    made = table_html(
        pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=index, columns=columns), "Rewards"
    )
    heads = re.findall(r'scope="col"[^>]*>([^<]+)<', made)
    assert heads == ["method", "seed", "reward / mean", "reward / best"]
    assert re.findall(r'scope="row"[^>]*>([^<]+)<', made) == ["a", "b"]


def test_columns_are_headed_by_words_and_not_by_the_names_that_code_uses():
    index = pd.Index(["KO"], name="surface_form")
    frame = pd.DataFrame({"cost_usd": [0.5], "tokens_out": [3], "x_1, y_1": [1]}, index=index)
    heads = re.findall(r'scope="col"[^>]*>([^<]+)<', table_html(frame, "Calls"))
    assert heads == ["surface form", "cost, $", "tokens out", "x_1, y_1"]


@pytest.mark.parametrize(
    "frame, caption", [(pd.DataFrame({"a": [1]}), " "), (pd.DataFrame(index=range(2)), "A")]
)
def test_a_table_without_caption_or_column_is_refused(frame, caption):
    with pytest.raises(ValueError):
        table_html(frame, caption)


@pytest.mark.parametrize(
    "value, text",
    [
        (0.64321, "0.643"),
        (12.5, "12.5"),
        (0.00031, "0.000310"),
        (2.5e-7, "2.5e-07"),
        (123456.7, "123457"),
        (7, "7"),
        (None, "–"),
        (math.nan, "–"),
        (True, "yes"),
        (np.bool_(False), "no"),
        ("lab", "lab"),
        (0.0, "0.00"),
        (-0.0, "0.00"),
        (np.float64(-1.5), "-1.50"),
        (Interval(0.5, 0.4, 0.6), "0.50 [0.40, 0.60]"),
    ],
)
def test_numbers_are_written_with_the_digits_that_matter(value, text):
    assert number(value) == text


def test_a_value_that_is_not_zero_is_never_written_as_zero():
    made = table_html(pd.DataFrame({"price": [0.00000031, 250.0]}), "Prices")
    assert ">3.1e-07<" in made and ">0.0000<" not in made


def test_intervals_are_written_beside_their_values():
    assert with_interval(0.641, 0.609, 0.662) == "0.64 [0.61, 0.66]"
    assert (
        with_interval(0.641, math.nan, math.nan) == "0.64" and with_interval(math.nan, 0, 1) == "–"
    )
    assert with_interval(0.641, 0.609, 0.662, digits=1) == "0.6 [0.6, 0.7]"
    rows = {
        "KO": {"reward": Interval(0.5, 0.4, 0.6)},
        "TO": {"reward": Interval(1, 0, 2), "steps": Interval(3, 3, 3)},
    }
    frame = interval_table(rows)
    assert (
        frame.loc["KO"].to_list() == ["0.500 [0.400, 0.600]", "–"] and frame.index.name == "method"
    )
    assert frame.loc["TO", "steps"] == "3.00 [3.00, 3.00]"
    assert interval_table(rows, digits=1).loc["TO", "reward"] == "1.0 [0.0, 2.0]"
    made = table_html(frame, "Results")
    assert 'text-align:right;white-space:nowrap">0.500 [0.400, 0.600]' in made
    assert '<th scope="row" style="text-align:left;white-space:nowrap">KO' in made


NOTEBOOK = """
from lib.reports.lesson import Lesson
lesson = Lesson("01_zoo", title="The zoo", profile="smoke", parameters=[1], root={root!r})
---
import numpy as np, pandas as pd
from bs4 import BeautifulSoup
from matplotlib import pyplot as plt
fig, axes = plt.subplots(figsize=(3, 2)); axes.plot([1, 3, 2])
lesson.figure(fig, "front", alt={alt!r})
---
lesson.animation(np.zeros((3, 8, 8, 3), np.uint8), "walk", alt={alt!r})
---
import time
lesson.table(pd.DataFrame({{"a": [1.5]}}), "A table")
lesson.side_table(pd.DataFrame({{"seconds": [time.perf_counter()]}}), "training", "Seconds")
---
lesson.metrics({{"a": 1}}); lesson.conclusion("It works."); lesson.save("front", ["a"])
---
lesson.metric("a", 2); lesson.conclusion("Again.")
"""


def execute(root: Path, again: bool) -> nbformat.NotebookNode:
    sources = NOTEBOOK.format(root=str(root), alt=ALT).strip().split("\n---\n")
    sources = sources if again else sources[:-1]
    cells = [nbformat.v4.new_code_cell(source, id=f"c{n}") for n, source in enumerate(sources)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_RUN": "0" if again else "1"}
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute(env=environment)
    return notebook


def test_an_executed_notebook_becomes_the_same_page_in_every_run(tmp_path):
    """Slow (two kernels start): what a real kernel shows is what the page is made of."""
    pages = [html.page(execute(tmp_path, again=False), name="01_zoo") for _ in range(2)]
    assert pages[0] == pages[1]
    assert (
        pages[0].count("<figure") == 2
        and "image/gif" in pages[0]
        and "<caption>A table</caption>" in pages[0]
    )
    assert 'src="timings/01_zoo-training.html"' in pages[0]
    assert "perf_counter()" in re.sub(r"<[^>]+>", "", pages[0]), (
        "the code is there, what it measured is not"
    )


def test_in_a_live_session_a_cell_may_run_again_and_timings_are_shown(tmp_path):
    """Slow (a kernel starts): a reader runs cells twice, which in a run would be a mistake."""
    notebook = execute(tmp_path, again=True)
    assert "<caption>Seconds</caption>" in notebook.cells[3].outputs[-1].data["text/html"]
    assert "Again." in notebook.cells[-1].outputs[-1].data["text/html"]


# Code and its equation ----------------------------------------------------------------------------


CLIP = r"\min\left(r A, \operatorname{clip}(r, 1-\epsilon, 1+\epsilon) A\right)"


def test_real_code_is_shown_folded_with_its_place_below_its_equation(zoo, shown, monkeypatch):
    monkeypatch.setenv("BENCH_RUN", "1")
    zoo.source(Lesson.conclusion, Interval, equation=CLIP)
    (markup,) = shown
    assert markup.index("<math") < markup.index("<details") and markup.count("<details") == 2
    assert (
        accessibility_check.problems(markup) == []
        and "open" not in re.search(r"<details[^>]*>", markup)[0]
    )
    place = re.search(
        r"<code>Lesson.conclusion</code>, lib/reports/lesson.py:(\d+)</summary>", markup
    )
    text = BeautifulSoup(markup, "html.parser").find("details").find("pre").get_text()
    lines = (ROOT / "lib/reports/lesson.py").read_text().splitlines()
    assert (
        text.splitlines()[0]
        == lines[int(place[1]) - 1].strip()
        == "def conclusion(self, sentence: str) -> None:"
    )
    assert text.rstrip().endswith("sentence)") and '<span class="k">def</span>' in markup


def test_code_is_read_by_itself_where_there_is_no_style_sheet(zoo, shown):
    zoo.source(artifacts.read_json)
    assert 'style="' in shown[0] and 'class="k"' not in shown[0]


def test_a_wrapped_function_and_one_of_the_session_are_shown_too(zoo, shown, tmp_path):
    path = tmp_path / "cell.py"
    path.write_text("from functools import cache\n\n@cache\ndef own(x):\n    return x < 1\n")
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    zoo.source(space["own"])
    assert (
        "<code>own</code>, this notebook" in shown[0]
        and "x < 1" in BeautifulSoup(shown[0], "html.parser").get_text()
    )


def test_a_terminal_gets_plain_text(tmp_path, capsys):
    Lesson("01_policy_zoo", "The zoo", "laptop", {}, tmp_path).source(
        artifacts.to_json, equation="a < b"
    )
    told = capsys.readouterr().out
    assert (
        told.startswith("$$ a < b $$\n\nto_json, lib/experiment/artifacts.py:")
        and "json.dumps(" in told
        and "<span" not in told
    )


@pytest.mark.parametrize("thing", [3, len, "lib.experiment.artifacts"])
def test_what_has_no_code_is_refused(zoo, thing):
    with pytest.raises(TypeError, match="no source to show"):
        zoo.source(thing)


def test_an_equation_that_cannot_be_shown_is_refused(zoo, shown):
    with pytest.raises(markdown.FormulaError):
        zoo.source(artifacts.read_json, equation=r"\nonsense{x}")
    assert shown == []
