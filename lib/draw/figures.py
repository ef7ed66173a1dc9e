"""The old names, only until lessons 00, 01 and 03 have moved to the grammar of `lib.draw`; then this goes."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.draw import (
    FAINT,
    GREY,
    WIDTH,
    colour,
    heat,
    ink,
    literal,
    marker,
    plane,
    png,
    points,
    shares,
    sheet,
    theme,
    tiles,
)
from lib.draw.lines import lines

__all__ = ["FAINT", "GREY", "WIDTH", "colour", "curves", "heat", "ink", "literal", "marker", "png", "sheet", "theme",
           "tiles"]  # fmt: skip


def curves(frame, x, y, by, seed, title, xlabel, ylabel, panels=None, **more):
    return lines(frame, x, y, by, title, xlabel, ylabel, seed=seed, panels=panels, note=more.pop("note", ""), **more)


def grouped_points(rows, title, columns_labels, smaller_is_better=()):
    labels = columns_labels if isinstance(columns_labels, Mapping) else {name: name for name in columns_labels}
    return points(rows, title, labels, smaller=smaller_is_better)


def action_shares(frame, x, action, names, title, by, xlabel=None, bins=12, note=""):
    names = dict(names) if isinstance(names, Mapping) else dict(enumerate(names))
    frame = frame.assign(**{action: frame[action].map(names)})
    found = pd.crosstab([frame[by], frame[x]], frame[action], normalize="index")
    return shares(found.reindex(columns=list(names.values()), fill_value=0.0), title, xlabel or x,
                  "share of decisions, %", panels=by, note=note)  # fmt: skip


def pareto(vectors, labels, title):
    rows = [(who, label, v) for who, at in vectors.items() for label, v in zip(labels, at.mean(axis=0), strict=True)]
    return plane(pd.DataFrame(rows, columns=["who", "measure", "value"]).set_index(["who", "measure"]), None, title,
                 rings="front")  # fmt: skip


def cost_quality(found, title, xlabel, ylabel, judged=()):
    x, y = ({name: pair[i] for name, pair in found.items()} for i in (0, 1))
    return plane(x, y, title, xlabel, ylabel, line="mixtures", through=[name for name in found if name not in judged])


def front_2d(at, chosen, labels, title):
    at = np.asarray(at, dtype=float)
    x, y = (pd.DataFrame({"value": at[:, i]}, index=[f"strategy {n}" for n in range(len(at))]) for i in (0, 1))
    return plane(x, y, title, *labels, line="stair", names={}, like=dict.fromkeys(x.index, "aptitude"))
