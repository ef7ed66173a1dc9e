"""What changes along something: means over seeds with bands, and stacked shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lib import stats
from lib.draw.estimates import columns, ends, finite
from lib.draw.estimates import note as interval_note
from lib.draw.styles import contrast, ink, looks
from lib.draw.theme import WIDTH, end_labels, literal, rows_of_names, sheet, theme, tiles


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
    seed=None, estimates of y at each x in columns value, lo and hi. More than `bins` different x are put into that
    many bins of equal width; each seed counts once in a bin. The band goes from the worst seed to the best, or with
    `rng` it is the 95% interval of their mean. same_scale: whether small multiples share their y axis. dashed: the
    lines that others are held against. note: what else a reader must know, after the sentence on lines and bands.
    Raises ValueError for a missing column, no rows, or an x or y that is not finite.
    """
    y = "value" if seed is None else y
    columns(frame, [x, y, by, seed, panels])
    finite(frame[x], f"column {x!r}")
    finite(frame[y], f"column {y!r}")
    frame = frame.reset_index(drop=True)
    frame[by] = frame[by].astype(str)
    parts = {"": frame} if panels is None else dict(list(frame.groupby(panels, sort=False)))
    if seed is None:
        told = interval_note(frame.reindex(columns=["lo"])).replace("Lines", "Bands")
        bands = {part: rows.reindex(columns=[x, by, "value", "lo", "hi"]) for part, rows in parts.items()}
        names = {who: who for who in frame[by]}
    else:
        frame[x] = binned(frame[x].to_numpy(dtype=float), bins)
        parts = {"": frame} if panels is None else dict(list(frame.groupby(panels, sort=False)))
        told = _band_note(frame, [by] if panels is None else [panels, by], seed, rng)
        bands = {part: _bands(rows, x, y, by, seed, rng) for part, rows in parts.items()}
        names = {who: who + " (1 seed)" * (n == 1) for who, n in frame.groupby(by)[seed].nunique().items()}
    figure = _small_multiples(bands, x, by, names, looks(frame[by], like, roles), dashed, same_scale, panels == by,
                              f"{told} {note}".strip(), (title, xlabel, ylabel))  # fmt: skip
    figure.alt_text = _alt(title, bands, x, by, xlabel or x)
    return figure


def _small_multiples(bands, x, by, names, styles, dashed, same_scale, alone, note, words) -> Figure:
    """bands: {panel: estimates}; names: {line: label}; alone: whether a panel's title names its only line."""
    title, xlabel, ylabel = words
    count = len(bands)
    across = 3 if alone or count % 3 == 0 else 2
    down = -(-count // across)
    height = max(4.0, 0.24 * len(names) + 1.4) if count == 1 else 2.4 * down + 0.9
    figure = sheet(title, WIDTH + 2.0 * (min(count, across) - 1) * (not alone), height, note)
    grid = tiles(figure, count, across, sharex=True, sharey=same_scale)
    colours = {name: colour for name, (colour, _) in styles.items()}
    for place, (axes, (panel, band)) in enumerate(zip(grid, bands.items(), strict=True)):
        sns.lineplot(
            band, x=x, y="value", hue=by, style=by, palette=colours, estimator=None, errorbar=None, legend=False,
            dashes={name: (4, 2) if name in dashed else "" for name in styles}, ax=axes,
        )  # fmt: skip
        for name, part in band.groupby(by, sort=False):
            lo, hi = ends(part).to_numpy().T
            axes.fill_between(part[x], lo, hi, color=colours[name], alpha=0.16, linewidth=0)
            if len(part) == 1:  # a line of one point is invisible
                axes.plot(part[x], part["value"], styles[name][1], color=colours[name])
                axes.plot([part[x]] * 2, [lo, hi], color=colours[name])
        if panel != "":
            axes.set_title(literal(names.get(panel, panel)), color=ink(colours[panel]) if alone else "black")
        axes.set_xlabel(literal(xlabel) if place + across >= count else "")
        axes.set_ylabel(literal(ylabel) if place % across == 0 else "")
        _readable_steps(axes)
    if not alone:
        figure.draw_without_rendering()
        for axes, band in zip(grid, bands.values(), strict=True):
            last = band.groupby(by, sort=False).tail(1)
            own = [names[n] for n in last[by]], last[[x, "value"]].to_numpy(), [colours[n] for n in last[by]]
            end_labels(axes, *own)
    return figure


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


def _bands(frame: pd.DataFrame, x: str, y: str, by: str, seed: str, rng: np.random.Generator | None) -> pd.DataFrame:
    """value, lo, hi by `by` and x; nan where there is one seed."""
    means = frame.groupby([by, x, seed], sort=False)[y].mean().sort_index(level=[x, seed], sort_remaining=False)
    out = []
    for (who, place), seeds in means.groupby(level=[0, 1], sort=False):
        values = seeds.to_numpy(dtype=float)
        lo, hi = (values.min(), values.max()) if len(values) > 1 else (np.nan, np.nan)
        if rng is not None:
            found = stats.mean_interval(values, rng)
            lo, hi = found.lo, found.hi
        out.append((who, place, values.mean(), lo, hi))
    return pd.DataFrame(out, columns=[by, x, "value", "lo", "hi"])


def _band_note(frame: pd.DataFrame, groups: list[str], seed: str, rng: np.random.Generator | None) -> str:
    """What line and band are, in words that are true for the number of seeds there are."""
    seeds = frame.groupby(groups)[seed].nunique()
    fewest, most = int(seeds.min()), int(seeds.max())
    if most == 1:
        return "One seed each: no interval can be drawn."
    count = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    band = "from the worst seed to the best" if rng is None else "95% interval of the mean"
    return f"Line: mean over {count}. Band: {band}" + ("; one seed has none." if fewest == 1 else ".")


def _readable_steps(axes: Axes) -> None:
    lo, hi = axes.dataLim.intervalx
    if hi > lo:
        axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(5 if len(axes.figure.axes) == 1 else 3, steps=[1, 2, 5, 10]))
    if hi >= 10_000:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _alt(title: str, bands: Mapping[str, pd.DataFrame], x: str, by: str, xlabel: str) -> str:
    """Where every line begins and ends."""
    told = []
    for panel, band in bands.items():
        for name, part in band.groupby(by, sort=False):
            who = f"{panel}, {name}" if panel not in ("", name) else name
            (a, u), (b, v) = part[[x, "value"]].to_numpy()[[0, -1]]
            told.append(f"{who}: {u:.3g} at {xlabel} {a:.4g}, {v:.3g} at {b:.4g}")
    return f"{title}. {'; '.join(told)}."


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
    like: Mapping[str, str] | None = None,
    wide: float | None = None,
    note: str = "",
) -> Figure:
    """Parts of a whole, stacked: upright along numbers such as steps, lying where the rows are names.

    frame: rows by parts, shares in [0, 1] or, with another unit than "%", counts; e.g. `pd.crosstab(step, choice,
    normalize="index")`. panels: a level of its index; each of its values gets a panel. xlabel: of the rows where they
    are numbers, of the shares otherwise. beside: {row: a word beside its bar}. unit: written behind the numbers in
    lying bars, where they have room. like: {part: the name whose look it takes}. Raises ValueError for shares that
    are negative or not finite.
    """
    if (finite(frame.to_numpy(), "the table of shares") < 0).any():
        raise ValueError(f"shares cannot be negative, got {frame.to_numpy().min():g}")
    parts = {"": frame} if panels is None else {key: part.droplevel(panels)
                                                for key, part in frame.groupby(level=panels, sort=False)}  # fmt: skip
    upright = all(pd.api.types.is_numeric_dtype(part.index) for part in parts.values())
    scale = 100 if unit == "%" else 1
    across, colours = min(len(parts), 3), {n: c for n, (c, _) in looks(map(str, frame.columns), like).items()}
    down, every = -(-len(parts) // across), list(dict.fromkeys(row for part in parts.values() for row in part.index))
    every = sorted(every) if upright else every
    high = 2.8 * down + 0.7 if upright else down * (0.42 * len(every) + 0.9) + 0.7
    figure = sheet(title, wide or WIDTH + 0.9 * (across - 1), high, note)
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
    figure.alt_text = f"{title}. " + "; ".join(
        f"{row}: " + (", ".join(f"{part} {scale * value:.3g}" for part, value in values.items() if value) or "none")
        for row, values in means.iterrows()
    ) + "."  # fmt: skip
    return figure


def _stack(axes: Axes, part: pd.DataFrame, colours: Mapping[str, str], upright: bool) -> None:
    """The bars of one panel, rows at 0, 1, ..., the first column lowest or leftmost."""
    long = part.fillna(0.0).reset_index(drop=True).melt(ignore_index=False, var_name="part", value_name="share")
    sns.histplot(
        long.reset_index(names="row"), **{"x" if upright else "y": "row"}, hue="part", hue_order=list(colours)[::-1],
        weights="share", multiple="stack", discrete=True, shrink=0.92 if upright else 0.66, palette=colours,
        alpha=1, edgecolor="white", linewidth=0.6, legend=False, ax=axes,
    )  # fmt: skip
    axes.grid(False, axis="x" if upright else "y")
    axes.set(xlabel="", ylabel="")


def _numbers(axes: Axes, part: pd.DataFrame, colours: Mapping[str, str], unit: str, beside: Mapping[str, str]) -> None:
    """What each lying bar is, where there is room, and a word to its right."""
    top = axes.get_xlim()[1]
    for row, (name, values) in enumerate(part.fillna(0.0).iterrows()):
        middles = values.cumsum() - values / 2
        for who, value in values.items():
            if value >= 0.06 * top:
                shade = "white" if contrast(np.array(to_rgb(colours[who]))) > 4.5 else "black"
                place = {"ha": "center", "va": "center", "fontsize": 9, "color": shade}
                axes.text(middles[who], row, f"{value:.0f}{unit}", **place)
        axes.annotate(literal(beside.get(name, "")), (1.01, row), xycoords=axes.get_yaxis_transform(), va="center",
                      fontsize=9)  # fmt: skip


def _name_parts(
    figure: Figure, grid: list[Axes], tables: list[pd.DataFrame], colours: Mapping[str, str], upright: bool
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
