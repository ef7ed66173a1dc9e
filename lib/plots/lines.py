"""What changes along something: means over seeds with bands, and stacked shares."""

from collections.abc import Collection, Mapping
from dataclasses import astuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lib import stats
from lib.plots.inputs import columns, finite
from lib.plots.inputs import note as interval_note
from lib.plots.styles import contrast, ink, looks
from lib.plots.theme import WIDTH, end_labels, folded, literal, rows_of_names, sheet, theme, tiles


@theme()
def lines(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    title: str,
    xlabel: str = "",
    ylabel: str = "",
    *,
    seed: str | None = "seed",
    panels: str | None = None,
    bins: int = 25,
    rng: np.random.Generator | None = None,
    same_scale: bool = True,
    dashed: Collection[str] = (),
    like: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
    note: str = "",
) -> Figure:
    """Means over seeds along x, one line for each value of column `by`, with a band over the seeds.

    frame: one row for each measurement, with columns x, y, by, seed and, for small multiples, `panels`; or, with
    seed=None, an estimate at each x in columns value, lo and hi. More than `bins` different x are put into that many
    bins of equal width; each seed counts once in a bin. The band goes from the worst seed to the best, or with `rng`
    it is the 95% interval of their mean. same_scale: whether small multiples share their y axis. dashed: the lines
    that others are held against. like, roles: as in `points`. note: what else a reader must know.
    Raises ValueError for a missing column, no rows, or an x or y that is not finite.
    """
    y = "value" if seed is None else y
    columns(frame, [x, y, by, seed, panels])
    finite(frame[x], f"column {x!r}")
    finite(frame[y], f"column {y!r}")
    frame = frame.reset_index(drop=True).assign(**{by: frame[by].astype(str).to_numpy()})
    keys = [key for key in dict.fromkeys([panels, by]) if key]
    if seed is None:  # both ends and the value, of which it is the median
        told = interval_note(frame.reindex(columns=["ci_low"])).replace("Lines", "Bands")
        rows = (
            frame.reindex(columns=[*keys, x, "ci_low", "value", "ci_high"])
            .melt([*keys, x], value_name="end")
            .dropna()
        )
        y = "end"
        names = {who: who for who in frame[by]}
    else:
        told = _band_note(frame.groupby(keys, sort=False)[seed].nunique(), rng)
        frame[x] = binned(frame[x].to_numpy(dtype=float), bins)
        rows = (
            frame.groupby([*keys, x, seed], sort=False)[y]
            .mean()
            .reset_index()
            .sort_values(seed, kind="stable")
        )
        names = {
            who: who + " (1 seed)" * (n == 1)
            for who, n in frame.groupby(by, sort=False)[seed].nunique().items()
        }
    kind = "median" if seed is None else "mean"
    band = (
        ("pi", 100)
        if rng is None
        else lambda seeds: astuple(stats.mean_interval(np.asarray(seeds, float), rng))[1:]
    )
    every = [""] if panels is None else list(dict.fromkeys(frame[panels]))
    alone, count = panels == by, len(every)
    across = 3 if alone or count % 3 == 0 else 2
    high = max(4.0, 0.24 * len(names) + 1.4) if count == 1 else 2.4 * -(-count // across) + 0.9
    figure = sheet(
        title, WIDTH + 2.0 * (min(count, across) - 1) * (not alone), high, f"{told} {note}".strip()
    )
    colours = {name: shade for name, (shade, _) in looks(names, like, roles).items()}
    grid, ends = tiles(figure, count, across, sharex=True, sharey=same_scale), []
    for place, (axes, panel) in enumerate(zip(grid, every, strict=True)):
        part = rows if panels is None else rows[rows[panels] == panel]
        sns.lineplot(
            part,
            x=x,
            y=y,
            hue=by,
            style=by,
            palette=colours,
            estimator=kind,
            errorbar=band,
            legend=False,
            ax=axes,
            dashes={name: (4, 2) if name in dashed else "" for name in names},
            err_kws={"alpha": 0.16, "linewidth": 0},
        )
        ends.append(_ends(part, x, y, by, kind))
        for name, row in ends[-1].iterrows():
            if row["x"] == row["x_first"]:  # a line of one point is invisible
                axes.plot(row["x"], row["y"], "o", color=colours[name])
        axes.set_title(
            literal(names.get(panel, panel)), color=ink(colours[panel]) if alone else "black"
        )
        axes.set_xlabel(literal(xlabel) if place + across >= count else "")
        axes.set_ylabel(literal(ylabel) if place % across == 0 else "")
        _readable_steps(axes)
    if not alone:  # otherwise a panel's title names its only line
        figure.draw_without_rendering()
        for axes, found in zip(grid, ends, strict=True):
            end_labels(
                axes,
                [folded(names[n]) for n in found.index],
                found[["x", "y"]].to_numpy(),
                [colours[n] for n in found.index],
            )
    figure.alt_text = _alt(title, dict(zip(every, ends, strict=True)), xlabel or x)
    return figure


def _ends(part: pd.DataFrame, x: str, y: str, by: str, kind: str) -> pd.DataFrame:
    """Where each line begins and ends: x_first, y_first, x, y."""
    middle = (
        part.groupby([by, x], sort=False)[y].agg(kind).reset_index().sort_values(x, kind="stable")
    )
    first, last = (
        middle.drop_duplicates(by, keep=which).set_index(by)[[x, y]] for which in ("first", "last")
    )
    last.columns, first.columns = ["x", "y"], ["x_first", "y_first"]
    return last.join(first).loc[part[by].unique()]


def _alt(title: str, ends: Mapping[str, pd.DataFrame], xlabel: str) -> str:
    told = [
        f"{name if panel in ('', name) else f'{panel}, {name}'}: {row['y_first']:.3g} at {xlabel} "
        f"{row['x_first']:.4g}, {row['y']:.3g} at {row['x']:.4g}"
        for panel, found in ends.items()
        for name, row in found.iterrows()
    ]
    return f"{title}. {'; '.join(told)}."


def binned(values: np.ndarray, bins: int, round_edges: bool = False) -> np.ndarray:
    """The middle of each value's bin, (n,); the values themselves where there are few different ones.

    With `round_edges` the bins begin and end at round numbers, and there may be fewer of them.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if len(np.unique(values)) <= bins:
        return values
    edges = np.linspace(values.min(), values.max(), bins + 1)
    if round_edges:
        edges = MaxNLocator(bins).tick_values(values.min(), values.max())
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return ((edges[place] + edges[place + 1]) / 2).round(12)  # 0.15, not 0.15000000000000002


def _band_note(seeds: pd.Series, rng: np.random.Generator | None) -> str:
    """What line and band are, in words that are true for the numbers of seeds."""
    fewest, most = int(seeds.min()), int(seeds.max())
    if most == 1:
        return "One seed each: no interval can be drawn."
    count = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    band = "from the worst seed to the best" if rng is None else "95% interval of the mean"
    return f"Line: mean over {count}. Band: {band}" + (
        "; one seed has none." if fewest == 1 else "."
    )


def _readable_steps(axes: Axes) -> None:
    low, high = axes.dataLim.intervalx
    axes.margins(x=0 if high > low else None)
    axes.xaxis.set_major_locator(
        MaxNLocator(5 if len(axes.figure.axes) == 1 else 3, steps=[1, 2, 5, 10])
    )
    if high >= 10_000:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


@theme()
def shares(
    frame: pd.DataFrame,
    title: str,
    xlabel: str = "",
    ylabel: str = "share, %",
    *,
    panels: str | None = None,
    beside: Mapping[str, str] | None = None,
    unit: str = "%",
    note: str = "",
) -> Figure:
    """Parts of a whole, stacked: upright along numbers such as steps, lying where the rows are names.

    frame: rows by parts, shares in [0, 1] or, with another unit than "%", counts; e.g. `pd.crosstab(step, choice,
    normalize="index")`. panels: a level of its index; each of its values gets a panel. xlabel: of the rows where they
    are numbers, of the shares otherwise. beside: {row: a word beside its bar}. unit: written behind the numbers in
    lying bars, where they have room. Raises ValueError for shares that are negative or not finite.
    """
    if (finite(frame.to_numpy(), "the table of shares") < 0).any():
        raise ValueError(f"shares cannot be negative, got {frame.to_numpy().min():g}")
    parts = (
        {"": frame}
        if panels is None
        else {key: part.droplevel(panels) for key, part in frame.groupby(level=panels, sort=False)}
    )
    upright = all(pd.api.types.is_numeric_dtype(part.index) for part in parts.values())
    scale = 100 if unit == "%" else 1
    across, colours = (
        min(len(parts), 3),
        {n: c for n, (c, _) in looks(map(str, frame.columns)).items()},
    )
    down, every = (
        -(-len(parts) // across),
        list(dict.fromkeys(row for part in parts.values() for row in part.index)),
    )
    every = sorted(every) if upright else every
    high = 2.8 * down + 0.7 if upright else down * (0.42 * len(every) + 0.9) + 0.7
    figure = sheet(title, WIDTH + 0.9 * (across - 1), high, note)
    grid = tiles(figure, len(parts), across, sharex=True, sharey=True)
    tables = [(scale * part.rename(columns=str)).reindex(every) for part in parts.values()]
    top = max(part.sum(axis=1).max() for part in tables)
    for place, (axes, panel, part) in enumerate(zip(grid, parts, tables, strict=True)):
        _stack(axes, part, colours, upright)
        axes.set_title(literal(panel))
        axes.set_xlabel(literal(xlabel) if place + across >= len(grid) else "")
        axes.set_ylabel(literal(ylabel) if upright and place % across == 0 else "")
        if upright:
            shown = range(0, len(every), -(-len(every) // 6))
            axes.set_xticks(shown, [f"{every[i]:.4g}" for i in shown])
            axes.set(xlim=(-0.6, len(every) - 0.4), ylim=(0, top))
        else:
            axes.set_xlim(0, top)
            rows_of_names(axes, every)
            _numbers(axes, part, colours, unit, beside or {})
    _name_parts(figure, grid[across - 1 :: across], tables[across - 1 :: across], colours, upright)
    means = frame.groupby(level=panels, sort=False).mean() if panels else frame
    figure.alt_text = (
        f"{title}. "
        + "; ".join(
            f"{row}: "
            + (
                ", ".join(f"{part} {scale * value:.3g}" for part, value in values.items() if value)
                or "none"
            )
            for row, values in means.iterrows()
        )
        + "."
    )
    return figure


def _stack(axes: Axes, part: pd.DataFrame, colours: Mapping[str, str], upright: bool) -> None:
    """The bars of one panel, rows at 0, 1, ..., the first column lowest or leftmost."""
    long = (
        part.fillna(0.0)
        .reset_index(drop=True)
        .melt(ignore_index=False, var_name="part", value_name="share")
    )
    sns.histplot(
        long.reset_index(names="row"),
        **{"x" if upright else "y": "row"},
        hue="part",
        hue_order=list(colours)[::-1],
        weights="share",
        multiple="stack",
        discrete=True,
        shrink=0.92 if upright else 0.66,
        palette=colours,
        alpha=1,
        edgecolor="white",
        linewidth=0.6,
        legend=False,
        ax=axes,
    )
    axes.grid(False, axis="x" if upright else "y")
    axes.set(xlabel="", ylabel="")


def _numbers(
    axes: Axes, part: pd.DataFrame, colours: Mapping[str, str], unit: str, beside: Mapping[str, str]
) -> None:
    """What each lying bar is, where there is room, and a word to its right."""
    top = axes.get_xlim()[1]
    for row, (name, values) in enumerate(part.fillna(0.0).iterrows()):
        middles = values.cumsum() - values / 2
        for who, value in values.items():
            if value >= 0.06 * top:
                shade = "white" if contrast(np.array(to_rgb(colours[who]))) > 4.5 else "black"
                place = {"ha": "center", "va": "center", "fontsize": 9, "color": shade}
                axes.text(middles[who], row, f"{value:.0f}{unit}", **place)
        axes.annotate(
            literal(beside.get(name, "")),
            (1.01, row),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
        )


def _name_parts(
    figure: Figure,
    grid: list[Axes],
    tables: list[pd.DataFrame],
    colours: Mapping[str, str],
    upright: bool,
) -> None:
    """The names of the parts: beside the last bar of each row of panels, or as a key above lying bars."""
    if not upright:
        swatches = [Patch(color=shade, label=literal(name)) for name, shade in colours.items()]
        figure.legend(handles=swatches, loc="outside right center", frameon=False)
        return
    figure.draw_without_rendering()
    for axes, part in zip(grid, tables, strict=True):
        at = int(np.flatnonzero(part.notna().any(axis=1))[-1])
        values = part.iloc[at].fillna(0.0)
        xy = np.column_stack([np.full(len(values), at + 0.46), values.cumsum() - values / 2])
        end_labels(axes, list(colours), xy, list(colours.values()))
