"""What a notebook calls while it runs: figures, tables, metrics, its one conclusion, and a last check.

    lesson = Lesson("01_policy_zoo", "Policy zoo: five objectives", profile, parameters)
    lesson.figure(fig, "front")
    lesson.metric("education.SO-d1.length", estimates.loc["SO-d1"])
    lesson.conclusion("Episodes of SO-d1 are the shortest.")
    lesson.save(key_figure="front", key_metrics=["education.SO-d1.length"])

A figure is shown as HTML with its alt text inside, so that JupyterLab, the executed notebook and the
report show the same thing; a phone gets a drawing of its own. What cannot be true is refused here, by
name: an interval without its value, an accuracy above 1, an empty table. What a run measures in seconds
never enters the notebook, because two runs must give the same bytes: `side_table` writes it to a page of
its own, which the report frames. A name used twice is a mistake in a run; in a live session, where cells
are run again, the later one counts.
Left out: how figures look (`lib.plots`) and how pages do (`html`).
"""

import base64
import inspect
import io
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure
from PIL import Image

from lib import plots
from lib.config import ROOT, LLMSettings
from lib.experiment import artifacts
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm.reply_shares import find_unusable_share, mark_rows
from lib.plots import pages, sliders
from lib.plots.inputs import MAX_ALT_LENGTH, require_interval
from lib.plots.tables import estimates_shown, table_html
from lib.reports import reply_shares
from lib.reports.name_labels import NameLabels
from lib.stats import Interval, range_of_name

MIN_ALT_LENGTH = 20  # characters; less cannot say what a figure shows
PHONE = "(max-width: 600px)"  # screens that get the narrow drawing of a figure
STRIP_FRAMES = 6  # frames of an animation that its film strip shows
STRIP_GAP = 6  # white pixels between the frames of a film strip
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
METRIC_KEY = re.compile(r"[A-Za-z0-9][\w+-]*(?:\.[A-Za-z0-9][\w+-]*)*")


class Lesson:
    """The record of one lesson; its files lie under `root`, by default where the runner says or in `reports`."""

    def __init__(
        self, name: str, title: str, profile: str, parameters: Any, root: str | Path | None = None
    ) -> None:
        """Starts the record of a lesson.

        Args:
            name: The notebook's name, such as 01_policy_zoo; it names files.
            title: The title that the front page shows.
            profile: The profile that the lesson is run at, such as smoke or laptop.
            parameters: The lesson's settings, anything that goes into JSON; only their hash is recorded.
            root: Folder of all output; by default the one that the runner sets, or `reports`.

        Raises:
            ValueError: If `name` has characters that do not belong in file names.
        """
        _check_name(name, "lesson")
        self.name = name
        self.title = title
        self.profile = profile
        self.parameters = artifacts.sha256_json(parameters)[:12]
        if root is None:
            root = os.environ.get("BENCH_REPORTS", ROOT / "reports")
        self.root = Path(root)
        self._alt_texts: dict[str, str] = {}  # by figure name
        self._image_paths: dict[str, Path] = {}  # by figure name
        self._drawings: dict[str, str] = {}  # HTML by figure name
        self._metrics: dict[str, Any] = {}
        self._name_labels = NameLabels()
        self._reply_lines: list[str] = []  # about models behind endpoints, for the terminal
        self._conclusion = ""

    def figure(self, fig: Figure, name: str, alt: str | None = None) -> None:
        """Saves and shows a matplotlib figure, and closes it.

        Args:
            fig: The figure.
            name: Its file name without an ending, unique in the lesson.
            alt: What the figure shows, for someone who does not see it; by default the text that `lib.plots` made from
                the estimates.

        Raises:
            ValueError: If the alt text is too short or too long, or the name is used twice.
        """
        if alt is None:
            alt = getattr(fig, "alt_text", "")
        alt, figcaption = self._name_labels.label_figure(fig, alt)
        self._register_figure(name, alt)
        # Before anything is rendered, which counts as a change of the figure.
        has_narrow = plots.has_narrow(fig)
        drawing = picture_html(fig, alt, has_narrow)
        self._drawings[name] = drawing
        markup = drawing + self._numbers_of_figure(fig, alt) + figcaption
        png = plots.render_png(fig)  # for programs that show no SVG
        # A figure made with pyplot stays in memory until it is closed; nothing else imports pyplot here.
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close(fig)
        self._image_paths[name] = artifacts.write_bytes(self._figure_path(f"{name}.png"), png)
        # A figure without a narrow drawing scrolls on a phone, with the keyboard too.
        attributes = 'class="drawn"' if has_narrow else 'class="drawn wide" tabindex="0"'
        _show(f"<figure {attributes}>{markup}</figure>\n", f"figure {name}: {alt}")

    def slider(
        self,
        make_figure: Callable[..., Figure],
        knobs: sliders.Knobs,
        name: str,
        start: Mapping[str, Any] | None = None,
    ) -> None:
        """Shows a figure with knobs that move without a kernel, and saves the figure of their start.

        Args:
            make_figure: Called with one keyword for each knob, returns the figure of that position.
            knobs: The positions of each, a sequence, or a mapping from what the reader sees to the value.
            name: File name of the figure without an ending, unique in the lesson.
            start: By knob, the position that is shown first; by default the first.

        Raises:
            ValueError: If a knob is out of range, or the name is used twice.
        """
        start_indices = sliders.find_start(knobs, start or {})
        contents = {}
        for indices, arguments in sliders.list_arguments(knobs).items():
            figure = make_figure(**arguments)
            position = sliders.describe_position(knobs, indices)
            alt = f"{position}: {getattr(figure, 'alt_text', '')}"
            alt = textwrap.shorten(alt, MAX_ALT_LENGTH, placeholder=" …")
            alt, figcaption = self._name_labels.label_figure(figure, alt)
            picture = picture_html(figure, alt, plots.has_narrow(figure))
            contents[indices] = picture + self._numbers_of_figure(figure, alt) + figcaption
            if indices == start_indices:
                self._register_figure(name, alt)
                self._drawings[name] = picture
                png = plots.render_png(figure)  # for programs that show no SVG
                path = artifacts.write_bytes(self._figure_path(f"{name}.png"), png)
                self._image_paths[name] = path
        markup = sliders.slider_html(name, knobs, contents, start_indices)
        _show(markup, f"slider {name}: {self._alt_texts[name]}")

    def animation(
        self, frames: np.ndarray, name: str, alt: str, caption: str | None = None, fps: float = 4
    ) -> None:
        """Saves and shows a looping GIF, and beside it a film strip for readers who want no motion.

        Args:
            frames: (T, H, W, 3) uint8.
            name: File name without an ending, unique in the lesson.
            alt: What the animation shows, for someone who does not see it.
            caption: Text below it.
            fps: Frames per second.

        Raises:
            ValueError: If the frames have another shape or type, the alt text is too short, or the name is used twice.
        """
        frames = np.asarray(frames)
        if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not len(frames):
            raise ValueError(
                f"frames must be (T, H, W, 3) uint8, got {frames.shape} {frames.dtype}"
            )
        self._register_figure(name, alt)
        gif = _encode_gif(frames, fps)
        film_strip = _draw_film_strip(frames)
        artifacts.write_bytes(self._figure_path(f"{name}.gif"), gif)
        # The still picture is what the front page and print show.
        path = artifacts.write_bytes(self._figure_path(f"{name}.png"), film_strip)
        self._image_paths[name] = path
        picture = (
            f'<picture><source media="print, (prefers-reduced-motion: reduce)" '
            f'srcset="{_data_uri("image/png", film_strip)}">'
            f'<img src="{_data_uri("image/gif", gif)}" alt="{escape(alt)}"></picture>'
        )
        figcaption = f"<figcaption>{escape(caption, quote=False)}</figcaption>" if caption else ""
        _show(f"<figure>{picture}{figcaption}</figure>\n", f"animation {name}: {alt}")

    def table(self, df: pd.DataFrame, caption: str, digits: int | None = None) -> None:
        """Shows a data frame as an accessible table.

        Args:
            df: The rows. Estimates of `lib.stats` are shown as a value with its interval in brackets, without their
                other columns.
            caption: The heading of the table.
            digits: Decimals; by default chosen by column.

        Raises:
            ValueError: If the table has no rows, or an interval does not hold its value.
        """
        if df.empty:
            raise ValueError(
                f"the table {caption!r} is empty; show it only where there are rows, and say it in words elsewhere"
            )
        if {"value", "ci_low", "ci_high"} <= set(map(str, df.columns)):
            for row, value, ci_low, ci_high in df[["value", "ci_low", "ci_high"]].itertuples():
                require_interval(value, ci_low, ci_high, f"the table {caption!r}, row {row}")
        df, caption = self._name_labels.label_table(estimates_shown(df), caption)
        _show(table_html(df, caption, digits), f"table: {caption}\n{df.to_string()}")

    def check_replies(self, counts: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
        """Shows how many calls of each method's models gave no answer, and marks the methods with too many.

        Marked methods bear a mark in every later table and figure, their estimates are untestable
        (`lib.stats.verdict`), and their metrics are left out, with a `<key>_unusable_share` in their place, from which
        claims see that they cannot be tested. Methods that a program decides are called scripted there, too.

        Args:
            counts: Of the system's `count_replies`.
            rows: Rows of the results table, with the columns that tell methods apart in `counts`.

        Returns:
            The rows, marked where there is reason to.
        """
        if counts.empty:
            print("no language model was asked")
            return rows
        table = reply_shares.tabulate_reply_shares(counts)
        caption = reply_shares.CAPTION
        _show(table_html(table, caption), f"table: {caption}\n{table.to_string(index=False)}")
        lines = reply_shares.describe_reply_shares(counts)
        for line in lines:
            print(line)
        # A lesson that looks at the same calls twice says so once.
        self._reply_lines = list(dict.fromkeys([*self._reply_lines, *lines]))
        self._name_labels.add_counts(counts)
        return mark_rows(rows, counts)

    def name_models(self, llm: LLMSettings, model_names: Mapping[str, str]) -> None:
        """Shows models under their own names in later tables and figures, wherever a lesson has words of its own.

        Args:
            llm: The language model settings.
            model_names: By the lesson's word for an expert or tool, the name of its model in `llm.models`.
        """
        self._name_labels.add_models(llm, model_names)

    def label(self, name: str) -> str:
        """The name of a method or model as tables and figures show it, for titles and captions."""
        return name + self._name_labels.find_suffix(name)

    def show_html(self, markup: str, plain: str) -> None:
        """Shows HTML that a module of `lesson_figures` made, such as a prompt.

        Args:
            markup: The HTML.
            plain: The text for where there is no browser, such as a terminal.
        """
        _show(markup, plain)

    def source(self, *objects: Callable | type, equation: str = "") -> None:
        """Shows the code of functions, methods and classes as it is, folded, each with its file and line.

        Args:
            *objects: What to show.
            equation: What the code computes, in LaTeX, shown above it.

        Raises:
            TypeError: If an object has no source code.
            FormulaError: If the equation cannot be shown.
        """
        from lib.reports import markdown  # imported late: few cells need formulas and code

        # A report has a style sheet for code; JupyterLab has none of ours, so colours go into the HTML.
        highlight_code = markdown.code_block if _in_report_run() else _highlight_inline
        html_blocks, text_blocks = [], []
        if equation:
            formula = markdown.mathml(equation, display=True)
            html_blocks.append(f'<span class="formula" tabindex="0">{formula}</span>\n')
            text_blocks.append(f"$$ {equation} $$")
        for wrapped in objects:
            name, location, code = _read_source(inspect.unwrap(wrapped))
            label = f"<summary><code>{escape(name)}</code>, {escape(location)}</summary>"
            html_blocks.append(
                f'<details class="algorithm">{label}\n{highlight_code(code)}</details>\n'
            )
            text_blocks.append(f"{name}, {location}\n{code}")
        _show("".join(html_blocks), "\n\n".join(text_blocks))

    def metric(self, key: str, value: Any, rows: pd.DataFrame | None = None) -> None:
        """Records a number, a string or a truth value.

        An estimate that rests on a model with too few answers is left out: something else decided. In its place stands
        `<key>_unusable_share`, the share of calls without an answer.

        Args:
            key: A flat key such as `education.SO-d1.length`.
            value: The value. An `Interval` or an estimate (a row of `lib.stats`) also records its ends, as
                `<key>_ci_low` and `<key>_ci_high`. That of two runs is kept here, for tests that count degrees of
                freedom; tables and figures show its value alone.
            rows: For a value that is no estimate, the rows of the results table that it was computed from, which may be
                marked.

        Raises:
            ValueError: If the key is malformed or used twice, the value is nan or infinite, or the interval does not
                hold the value or goes beyond the range that the key implies (see `lib.stats.ranges`); the message names
                the key.
        """
        if not METRIC_KEY.fullmatch(key):
            raise ValueError(
                f"metric key {key!r}: letters, digits, _ + - in parts joined by dots, please"
            )
        unusable_share = 0.0 if rows is None else find_unusable_share(rows)
        if isinstance(value, pd.Series):
            unusable_share = np.fmax(unusable_share, float(value.get(UNUSABLE_SHARE, 0.0)))
            value = Interval(*(float(value[end]) for end in ("value", "ci_low", "ci_high")))
        entries = value.as_metrics(key) if isinstance(value, Interval) else {key: value}
        if f"{key.removesuffix('_mde')}_{UNUSABLE_SHARE}" in self._metrics:
            return  # the minimum detectable effect of an estimate that was left out
        if unusable_share > 0:  # not nan, which stands in rows that were put beside marked ones
            entries = {f"{key}_{UNUSABLE_SHARE}": unusable_share}
        entries = {name: _to_json_value(name, entry) for name, entry in entries.items()}

        if f"{key}_ci_low" in entries:
            ci_low, ci_high = entries[f"{key}_ci_low"], entries[f"{key}_ci_high"]
            if ci_low > ci_high:
                raise ValueError(f"metric {key}: ci_low {ci_low} is above ci_high {ci_high}")
            require_interval(entries[key], ci_low, ci_high, f"metric {key}", range_of_name(key))
        duplicates = sorted(set(entries) & set(self._metrics))
        if duplicates and not _in_live_session():
            raise ValueError(f"metric {duplicates[0]} is recorded twice")
        self._metrics.update(entries)

    def metrics(self, values: Mapping[str, Any], rows: pd.DataFrame | None = None) -> None:
        """Records several metrics by key; see `metric`."""
        for key, value in values.items():
            self.metric(key, value, rows)

    def conclusion(self, sentence: str) -> None:
        """States, once, what the lesson concludes; the front page quotes it.

        Args:
            sentence: The conclusion; methods whose models gave too few usable replies are marked in it.

        Raises:
            ValueError: If the sentence is empty, or there is a conclusion already.
        """
        sentence = " ".join(sentence.split())
        if not sentence:
            raise ValueError("the conclusion is empty; say in one sentence what the lesson found")
        if self._conclusion and not _in_live_session():
            raise ValueError(f"the lesson has a conclusion already: {self._conclusion!r}")
        sentence = self._name_labels.mark_sentence(sentence)
        self._conclusion = sentence
        # The style is for JupyterLab; reports have one for the class "finding".
        style = "border-left:0.3rem solid #b35900;padding:0.75rem 1rem;font-weight:600"
        _show(f'<p class="finding" style="{style}">{escape(sentence, quote=False)}</p>\n', sentence)

    def side_table(self, df: pd.DataFrame, name: str, caption: str) -> None:
        """Shows wall times: in a frame of the report, as a table in a live session.

        Two runs differ in these values, so they stand in `timings/<lesson>-<name>.html` alone; the
        notebook holds the frame, whose height follows from the number of rows and nothing else. The
        same rows lie beside it as JSON.

        Args:
            df: The rows.
            name: Names the page, unique in the lesson.
            caption: The heading of the table and the title of the frame.

        Raises:
            ValueError: If `name` has characters that do not belong in file names.
        """
        _check_name(name, "side table")

        labelled, caption = self._name_labels.label_table(df, caption)
        table = table_html(labelled, caption)
        page = pages.side_page(table, caption)
        address = f"timings/{self.name}-{name}.html"
        artifacts.write_text(self.root / address, page)
        records = json.loads(df.to_json(orient="records"))  # plain numbers, missing ones as null
        artifacts.write_json(self.root / f"timings/{self.name}-{name}.json", records)
        if not _in_report_run():
            _show(table, f"table: {caption}\n{df.to_string()}")
            return
        height = f"height:{min(8 + 2.4 * len(df), 32):.1f}rem"
        frame = f'<iframe src="{address}" title="{escape(caption)}" style="{height}"></iframe>\n'
        _show(frame, f"{caption}: {address}")

    def save(self, key_figure: str, key_metrics: Sequence[str]) -> None:
        """Writes the lesson's metrics and what the front page shows of it.

        Args:
            key_figure: Name of the figure that stands for the lesson.
            key_metrics: Keys of the metrics that the front page shows; those of a model with too few answers are left
                out.

        Raises:
            ValueError: If the conclusion, the figure or a metric is missing; the message names everything missing.
        """
        missing = [] if self._conclusion else ["no conclusion (lesson.conclusion)"]
        if key_figure not in self._image_paths:
            missing.append(f"no figure {key_figure!r} among {sorted(self._image_paths)}")
        # Metrics with a marked share rest on too few replies to stand on the front page.
        marked_metrics = [key for key in key_metrics if f"{key}_{UNUSABLE_SHARE}" in self._metrics]
        key_metrics = [key for key in key_metrics if key not in marked_metrics]
        missing += [f"no metric {key!r}" for key in key_metrics if key not in self._metrics]
        if missing:
            raise ValueError(f"lesson {self.name} cannot be saved: {'; '.join(missing)}")
        artifacts.write_json(self.root / "metrics" / f"{self.name}.json", self._metrics)
        card = {
            "lesson": self.name,
            "title": self.title,
            "finding": self._conclusion,
            "key_figure": self._image_paths[key_figure].relative_to(self.root).as_posix(),
            "key_figure_alt": self._alt_texts[key_figure],
            "key_metrics": list(key_metrics),
            "profile": self.profile,
            "parameters": self.parameters,
        }
        # The front page shows the drawing, which can be read on a phone and in the dark.
        # It stands in the card, because DVC shows nothing of a folder of figures that holds another kind of file.
        if key_figure in self._drawings:
            card["key_drawing"] = self._drawings[key_figure]
        if self._reply_lines:
            card["replies"] = self._reply_lines
        artifacts.write_json(self.root / "lessons" / f"{self.name}.json", card)

    def _numbers_of_figure(self, figure: Figure, alt: str) -> str:
        """Renders the table behind a figure, folded, where the alternative text has no room for all numbers.

        Args:
            figure: Its data are in `figure.data`.
            alt: Its alternative text.

        Returns:
            HTML; empty where no table is needed.
        """
        if "more in the table" not in alt or not hasattr(figure, "data"):
            return ""
        caption = "The numbers of this figure"
        numbers, caption = self._name_labels.label_table(estimates_shown(figure.data), caption)
        summary = f"<summary>{caption}</summary>"
        return f'<details class="numbers">{summary}\n{table_html(numbers, caption)}</details>'

    def _figure_path(self, file_name: str) -> Path:
        return self.root / "figures" / self.name / file_name

    def _register_figure(self, name: str, alt: str) -> None:
        """Records the alternative text of a figure.

        Args:
            name: Name of the figure.
            alt: The text.

        Raises:
            ValueError: The name is malformed or used already, or the text is too short or too long.
        """
        _check_name(name, "figure")
        if len(alt.strip()) < MIN_ALT_LENGTH:
            raise ValueError(
                f"figure {name}: alt text {alt!r} has fewer than {MIN_ALT_LENGTH} characters; say what it shows"
            )
        if len(alt) > MAX_ALT_LENGTH:
            raise ValueError(
                f"figure {name}: the alt text has {len(alt)} characters ({alt[:40]!r} ...), at most {MAX_ALT_LENGTH} "
                "are read in one go; say the message and a few numbers (`plots.join_descriptions`), the rest in a table"
            )
        if name in self._alt_texts and not _in_live_session():
            raise ValueError(f"there are two figures called {name!r}")
        self._alt_texts[name] = " ".join(alt.split())


def _read_source(code_object: Callable | type) -> tuple[str, str, str]:
    """Reads the source code of a function, method or class.

    Returns:
        Its qualified name, its location (such as lib/policy_zoo/ppo.py:210), and its code without indentation.

    Raises:
        TypeError: If it has no source code.
    """
    try:
        lines, first_line = inspect.getsourcelines(code_object)
        path = Path(inspect.getfile(code_object))
    except (TypeError, OSError) as error:
        raise TypeError(
            f"{code_object!r} has no source to show; name a function, a method or a class"
        ) from error
    if path.is_relative_to(ROOT):
        location = f"{path.relative_to(ROOT).as_posix()}:{first_line}"
    else:
        location = "this notebook"
    return code_object.__qualname__, location, textwrap.dedent("".join(lines)).rstrip()


def _highlight_inline(code: str) -> str:
    """Python code as HTML with its colours in style attributes, for JupyterLab, which lacks our style sheet."""
    from pygments import highlight, lexers
    from pygments.formatters import HtmlFormatter

    return highlight(code, lexers.PythonLexer(), HtmlFormatter(noclasses=True, style="xcode"))


def _in_report_run() -> bool:
    """Whether this is the run that makes the report, rather than a reader's session."""
    return os.environ.get("BENCH_RUN") == "1"


def _in_live_session() -> bool:
    """Whether someone may be running cells again."""
    return not _in_report_run() and get_ipython() is not None


def _show(markup: str, plain: str) -> None:
    """Shows HTML, or `plain` where there is none, such as in a terminal."""
    if get_ipython() is None:
        print(plain)
        return
    display({"text/html": markup, "text/plain": plain}, raw=True)


def _check_name(name: str, kind: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{kind} name {name!r}: small letters, digits, _ and - only, please; it names files"
        )


def _to_json_value(key: str, value: Any) -> Any:
    """Converts a metric to a value that JSON can hold.

    Args:
        key: Key of the metric, for the error message.
        value: Number, truth value or text.

    Raises:
        ValueError: It is anything else, or not finite.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"metric {key} is {value}; a metric must be a finite number")
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"metric {key} is a {type(value).__name__}; a number or a string, please")
    return value


def picture_html(figure: Figure, alt: str, has_narrow: bool) -> str:
    """Renders a figure as HTML, with a version of its own for narrow screens.

    Args:
        figure: The figure.
        alt: Its alternative text.
        has_narrow: Whether it can be drawn for a narrow screen.
    """
    image = (
        f'<img src="{_data_uri("image/svg+xml", plots.render_svg(figure))}" alt="{escape(alt)}">'
    )
    if not has_narrow:
        return image
    narrow = _data_uri("image/svg+xml", plots.render_svg(figure.draw_narrow()))
    return f'<picture><source media="{PHONE}" srcset="{narrow}">{image}</picture>'


def _data_uri(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def _encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """Encodes frames as a looping GIF.

    Args:
        frames: (T, H, W, 3) uint8.
        fps: Frames per second.
    """
    num_frames, height, width, _ = frames.shape
    # All frames are quantised as one tall picture, so that they share a palette and colours do not flicker.
    stacked = Image.fromarray(frames.reshape(num_frames * height, width, 3))
    stacked = stacked.quantize(256, dither=Image.Dither.NONE)
    images = [
        stacked.crop((0, frame * height, width, (frame + 1) * height))
        for frame in range(num_frames)
    ]
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        loop=0,  # for ever
        duration=round(1000 / fps),  # milliseconds
    )
    return buffer.getvalue()


def _draw_film_strip(frames: np.ndarray) -> bytes:
    """Draws some frames of an animation side by side, the first and the last among them.

    Args:
        frames: (T, H, W, 3) uint8.

    Returns:
        The picture as PNG.
    """
    frame_indices = np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int)
    gap = np.full((frames.shape[1], STRIP_GAP, 3), 255, dtype=np.uint8)  # (H, STRIP_GAP, 3), white
    columns = []
    for index in np.unique(frame_indices):  # a short animation would repeat frames
        columns += [frames[index], gap]
    strip = np.concatenate(columns[:-1], axis=1)  # no gap after the last frame
    buffer = io.BytesIO()
    Image.fromarray(strip).save(buffer, format="PNG")
    return buffer.getvalue()
