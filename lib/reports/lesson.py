"""What a notebook calls while it runs: figures, tables, numbers, its one finding, and a last check.

A figure is shown as HTML with its alt text inside, so that JupyterLab, the executed notebook and the
report show the same thing. What a run measures in seconds never enters the notebook, because two runs
must give the same bytes: `side_table` writes it to a page of its own, which the report frames. A name
used twice is a mistake in a run; in a live session, where cells are run again, the later one counts.
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
from lib.config import ROOT
from lib.experiment import artifacts
from lib.plots.tables import estimates_shown, table_html
from lib.stats import Interval

SHORTEST_ALT = 20  # characters; less cannot say what a figure shows
STRIP = 6  # frames of an animation that its film strip shows
GAP = 6  # white pixels between them
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_KEY = re.compile(r"[A-Za-z0-9][\w+-]*(?:\.[A-Za-z0-9][\w+-]*)*")


class Lesson:
    """The record of one lesson; its files lie under `root`, by default where the runner says or in `reports`."""

    def __init__(
        self, name: str, title: str, profile: str, parameters: Any, root: str | Path | None = None
    ) -> None:
        """parameters: anything that goes into JSON; only its hash is kept."""
        _check_name(name, "lesson")
        self.name, self.title, self.profile = name, title, profile
        self.parameters = artifacts.sha256_json(parameters)[:12]
        self.root = Path(
            root if root is not None else os.environ.get("BENCH_REPORTS", ROOT / "reports")
        )
        self._alts: dict[str, str] = {}
        self._files: dict[str, Path] = {}
        self._metrics: dict[str, Any] = {}
        self._finding = ""

    def figure(self, fig: Figure, name: str, alt: str | None = None) -> None:
        """Save and show a matplotlib figure, and close it.

        alt: what the figure tells, for someone who does not see it; that which `lib.plots` made from the estimates by
        default. Raises ValueError if it is short.
        """
        alt = getattr(fig, "alt_text", "") if alt is None else alt
        self._claim(name, alt)
        content = plots.png(fig)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close(fig)
        self._files[name] = artifacts.write_bytes(self._place(f"{name}.png"), content)
        picture = f'<img src="{_data_uri("image/png", content)}" alt="{escape(alt)}">'
        _show(f"<figure>{picture}</figure>\n", f"figure {name}: {alt}")

    def animation(
        self, frames: np.ndarray, name: str, alt: str, caption: str | None = None, fps: float = 4
    ) -> None:
        """Save and show a looping GIF, and beside it a film strip for readers who want no motion.

        frames: (T, H, W, 3) uint8. The strip also stands in for the animation in print.
        """
        frames = np.asarray(frames)
        if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not len(frames):
            raise ValueError(
                f"frames must be (T, H, W, 3) uint8, got {frames.shape} {frames.dtype}"
            )
        self._claim(name, alt)
        moving, still = _gif(frames, fps), _film_strip(frames)
        artifacts.write_bytes(self._place(f"{name}.gif"), moving)
        self._files[name] = artifacts.write_bytes(self._place(f"{name}.png"), still)
        picture = (
            f'<picture><source media="print, (prefers-reduced-motion: reduce)" '
            f'srcset="{_data_uri("image/png", still)}">'
            f'<img src="{_data_uri("image/gif", moving)}" alt="{escape(alt)}"></picture>'
        )
        below = f"<figcaption>{escape(caption, quote=False)}</figcaption>" if caption else ""
        _show(f"<figure>{picture}{below}</figure>\n", f"animation {name}: {alt}")

    def table(self, df: pd.DataFrame, caption: str, digits: int | None = None) -> None:
        """Show a data frame as an accessible table. digits: decimals, otherwise chosen by column.

        Estimates of `lib.stats` have their ends in brackets behind the value; p and told are left to those who ask.
        """
        df = estimates_shown(df)
        _show(table_html(df, caption, digits), f"table: {caption}\n{df.to_string()}")

    def passage(self, markup: str, plain: str) -> None:
        """Show HTML that a module of this room made, such as a prompt; `plain` where there is no browser."""
        _show(markup, plain)

    def source(self, *objects: Callable | type, equation: str = "") -> None:
        """Show the code of functions, methods and classes as it is, folded, each with its place.

        equation: what the code computes, in LaTeX, shown above it. Raises TypeError for what has no code of its own,
        FormulaError for an equation that cannot be shown.
        """
        from lib.reports import (
            markdown,  # imported late: few cells need the reader of formulas and code
        )

        colour = (
            markdown.code_block if _running() else _coloured
        )  # a page has a style sheet, JupyterLab none of ours
        formula = markdown.mathml(equation, display=True) if equation else ""
        shown = [f'<span class="formula" tabindex="0">{formula}</span>\n'] if equation else []
        plain = [f"$$ {equation} $$"] if equation else []
        for each in map(inspect.unwrap, objects):
            name, place, code = _read(each)
            label = f"<summary><code>{escape(name)}</code>, {escape(place)}</summary>"
            shown.append(f'<details class="algorithm">{label}\n{colour(code)}</details>\n')
            plain.append(f"{name}, {place}\n{code}")
        _show("".join(shown), "\n\n".join(plain))

    def metric(self, key: str, value: Any) -> None:
        """Record a number, a string or a truth under a flat key such as `education.SO-d1.length`.

        value: also an `Interval` or an estimate (a row of `lib.stats`), which bring lo and hi along. Raises
        ValueError, naming the key, for nan or infinity, for ends the wrong way round, and for a key that is taken.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"metric key {key!r}: letters, digits, _ + - in parts joined by dots, please"
            )
        if isinstance(value, pd.Series):
            value = Interval(*(float(value[end]) for end in ("value", "ci_low", "ci_high")))
        entries = value.as_metrics(key) if isinstance(value, Interval) else {key: value}
        entries = {name: _plain(name, item) for name, item in entries.items()}
        if f"{key}_ci_low" in entries and entries[f"{key}_ci_low"] > entries[f"{key}_ci_high"]:
            raise ValueError(
                f"metric {key}: ci_low {entries[f'{key}_ci_low']} is above ci_high {entries[f'{key}_ci_high']}"
            )
        taken = sorted(set(entries) & set(self._metrics))
        if taken and not _live():
            raise ValueError(f"metric {taken[0]} is recorded twice")
        self._metrics.update(entries)

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Record several metrics; see `metric`."""
        for key, value in values.items():
            self.metric(key, value)

    def finding(self, sentence: str) -> None:
        """State, once, what the lesson found; the front page quotes it."""
        sentence = " ".join(sentence.split())
        if not sentence:
            raise ValueError("the finding is empty; say in one sentence what the lesson found")
        if self._finding and not _live():
            raise ValueError(f"the lesson has a finding already: {self._finding!r}")
        self._finding = sentence
        style = "border-left:0.3rem solid #b35900;padding:0.75rem 1rem;font-weight:600"
        _show(f'<p class="finding" style="{style}">{escape(sentence, quote=False)}</p>\n', sentence)

    def side_table(self, df: pd.DataFrame, name: str, caption: str) -> None:
        """Show what was measured in wall time: in a frame of the report, as a table in a live session.

        Two runs differ in these values, so they stand in `timings/<lesson>-<name>.html` alone; the
        notebook holds the frame, whose height follows from the number of rows and nothing else. The
        same rows lie beside it as JSON.
        """
        _check_name(name, "side table")
        from lib.reports import html  # imported late: few lessons have such a page

        table = table_html(df, caption)
        page = html.side_page(table, caption)
        address = f"timings/{self.name}-{name}.html"
        artifacts.write_text(self.root / address, page)
        records = json.loads(df.to_json(orient="records"))  # plain numbers, missing ones as null
        artifacts.write_json(self.root / f"timings/{self.name}-{name}.json", records)
        if not _running():
            _show(table, f"table: {caption}\n{df.to_string()}")
            return
        height = f"height:{min(8 + 2.4 * len(df), 32):.1f}rem"
        label = escape(caption)
        _show(
            f'<iframe src="{address}" title="{label}" style="{height}"></iframe>\n',
            f"{caption}: {address}",
        )

    def finish(self, key_figure: str, key_metrics: Sequence[str]) -> None:
        """Write the lesson's metrics and what the front page shows of it.

        Raises ValueError naming everything that is missing: the finding, the figure, metrics.
        """
        missing = [] if self._finding else ["no finding (lesson.finding)"]
        if key_figure not in self._files:
            missing.append(f"no figure {key_figure!r} among {sorted(self._files)}")
        missing += [f"no metric {key!r}" for key in key_metrics if key not in self._metrics]
        if missing:
            raise ValueError(f"lesson {self.name} cannot finish: {'; '.join(missing)}")
        artifacts.write_json(self.root / "metrics" / f"{self.name}.json", self._metrics)
        card = {
            "lesson": self.name,
            "title": self.title,
            "finding": self._finding,
            "key_figure": self._files[key_figure].relative_to(self.root).as_posix(),
            "key_figure_alt": self._alts[key_figure],
            "key_metrics": list(key_metrics),
            "profile": self.profile,
            "parameters": self.parameters,
        }
        artifacts.write_json(self.root / "lessons" / f"{self.name}.json", card)

    def _place(self, file: str) -> Path:
        return self.root / "figures" / self.name / file

    def _claim(self, name: str, alt: str) -> None:
        _check_name(name, "figure")
        if len(alt.strip()) < SHORTEST_ALT:
            raise ValueError(
                f"figure {name}: alt text {alt!r} has fewer than {SHORTEST_ALT} characters; say what it shows"
            )
        if name in self._alts and not _live():
            raise ValueError(f"there are two figures called {name!r}")
        self._alts[name] = " ".join(alt.split())


def _read(of: Callable | type) -> tuple[str, str, str]:
    """An object's name, its place (lib/policy_zoo/ppo.py:210) and its code from the first column on. Raises
    TypeError, naming it, where there is none."""
    try:
        (lines, first), file = inspect.getsourcelines(of), Path(inspect.getfile(of))
    except (TypeError, OSError) as error:
        raise TypeError(
            f"{of!r} has no source to show; name a function, a method or a class"
        ) from error
    place = (
        f"{file.relative_to(ROOT).as_posix()}:{first}"
        if file.is_relative_to(ROOT)
        else "this notebook"
    )
    return of.__qualname__, place, textwrap.dedent("".join(lines)).rstrip()


def _coloured(code: str) -> str:
    """Python with its colours and its ground in it, for a reader whose style sheet knows nothing of them."""
    from pygments import highlight, lexers
    from pygments.formatters import HtmlFormatter

    return highlight(code, lexers.PythonLexer(), HtmlFormatter(noclasses=True, style="xcode"))


def _running() -> bool:
    """Whether this is the run that makes the report, rather than a reader's session."""
    return os.environ.get("BENCH_RUN") == "1"


def _live() -> bool:
    """Whether someone may be running cells again."""
    return not _running() and get_ipython() is not None


def _show(markup: str, plain: str) -> None:
    """Show HTML, with a text for where there is none, such as a terminal."""
    if get_ipython() is None:
        print(plain)
        return
    display({"text/html": markup, "text/plain": plain}, raw=True)


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} name {name!r}: small letters, digits, _ and - only, please; it names files"
        )


def _plain(key: str, value: Any) -> Any:
    """A metric as JSON holds it. Raises ValueError naming the key for what it cannot hold."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"metric {key} is {value}; a metric must be a finite number")
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"metric {key} is a {type(value).__name__}; a number or a string, please")
    return value


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _gif(frames: np.ndarray, fps: float) -> bytes:
    """A looping GIF; all frames share one palette, so that colours do not flicker."""
    steps, height, width, _ = frames.shape
    tall = Image.fromarray(frames.reshape(steps * height, width, 3)).quantize(
        256, dither=Image.Dither.NONE
    )
    images = [tall.crop((0, step * height, width, (step + 1) * height)) for step in range(steps)]
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        loop=0,
        duration=round(1000 / fps),
    )
    return buffer.getvalue()


def _film_strip(frames: np.ndarray) -> bytes:
    """Some frames side by side, first and last among them, as PNG."""
    chosen = np.unique(np.linspace(0, len(frames) - 1, STRIP).round().astype(int))
    white = np.full((frames.shape[1], GAP, 3), 255, dtype=np.uint8)
    parts = [part for step in chosen for part in (frames[step], white)][:-1]
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(parts, axis=1)).save(buffer, format="PNG")
    return buffer.getvalue()
