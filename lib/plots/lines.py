"""What changes along something: means over seeds with bands, and stacked shares."""

from collections.abc import Callable, Collection, Mapping
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
from lib.plots.inputs import describe_intervals, require_columns, require_finite
from lib.plots.styles import assign_styles, contrast_with_white, text_colour
from lib.plots.theme import (
    WIDTH,
    add_panels,
    end_labels,
    escape_dollars,
    label_rows,
    new_figure,
    theme,
    wrap_name,
)


@theme()
def line_plot(
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
    """Draws means over seeds along x, one line for each value of column `by`, with a band over the seeds.

    Args:
        frame: One row for each measurement, with columns x, y, by, seed and, for small multiples, `panels`; or, with
            seed=None, an estimate at each x in columns value, ci_low and ci_high.
        x: The column along which a line runs.
        y: The column that is averaged.
        by: The column that names the lines.
        title: The message of the figure.
        xlabel: The x axis with its unit; the column's name only in the alt text by default.
        ylabel: The y axis with its unit.
        seed: The column of the seeds, or None for estimates.
        panels: The column whose values get a panel each. If it is `by`, a panel's title names its only line.
        bins: More different x than this are put into so many bins of equal width; each seed counts once in a bin.
        rng: Draws the bootstrap of the 95 % interval of the mean; without it the band is from the worst seed to the
            best.
        same_scale: Whether small multiples share their y axis.
        dashed: The lines that others are compared with.
        like: {name: the name whose style it takes}.
        roles: {name: role}, see `lib.plots.styles.ROLES`.
        note: What else a reader must know, below.

    Raises:
        ValueError: A column is missing, there are no rows, or an x or y is not finite.
    """
    y = "value" if seed is None else y
    require_columns(frame, [x, y, by, seed, panels])
    require_finite(frame[x], f"column {x!r}")
    require_finite(frame[y], f"column {y!r}")
    frame = frame.reset_index(drop=True).assign(**{by: frame[by].astype(str).to_numpy()})
    group_columns = [column for column in dict.fromkeys([panels, by]) if column]

    # Rows for seaborn, which computes line and band: a row per seed, or both ends and the value of an estimate, of
    # which the value is the median.
    if seed is None:
        band_note = describe_intervals(frame.reindex(columns=["ci_low"]))
        band_note = band_note.replace("Lines", "Bands")
        rows = (
            frame.reindex(columns=[*group_columns, x, "ci_low", "value", "ci_high"])
            .melt([*group_columns, x], value_name="end")
            .dropna()
        )
        y = "end"
        estimator = "median"
        line_names = {name: name for name in frame[by]}
    else:
        seeds_by_group = frame.groupby(group_columns, sort=False)[seed].nunique()
        band_note = _describe_band(seeds_by_group, rng)
        frame[x] = bin_values(frame[x].to_numpy(dtype=float), bins)
        rows = (
            frame.groupby([*group_columns, x, seed], sort=False)[y]
            .mean()
            .reset_index()
            .sort_values(seed, kind="stable")
        )
        estimator = "mean"
        line_names = {}
        for name, num_seeds in frame.groupby(by, sort=False)[seed].nunique().items():
            line_names[name] = f"{name} (1 seed)" if num_seeds == 1 else name

    panel_names = [""] if panels is None else list(dict.fromkeys(frame[panels]))
    one_line_per_panel = panels == by
    num_panels = len(panel_names)
    across = 3 if one_line_per_panel or num_panels % 3 == 0 else 2
    if num_panels == 1:
        height = max(4.0, 0.24 * len(line_names) + 1.4)
    else:
        height = 2.4 * -(-num_panels // across) + 0.9
    # Names beside the lines need room.
    width = WIDTH
    if not one_line_per_panel:
        width += 2.0 * (min(num_panels, across) - 1)
    figure = new_figure(title, width, height, f"{band_note} {note}".strip())

    styles = assign_styles(line_names, like, roles)
    colours = {name: shade for name, (shade, _) in styles.items()}
    grid = add_panels(figure, num_panels, across, sharex=True, sharey=same_scale)
    ends_by_panel = {}
    for index, (axes, panel) in enumerate(zip(grid, panel_names, strict=True)):
        panel_rows = rows if panels is None else rows[rows[panels] == panel]
        sns.lineplot(
            panel_rows,
            x=x,
            y=y,
            hue=by,
            style=by,
            palette=colours,
            estimator=estimator,
            errorbar=_make_error_bar(rng),
            legend=False,
            ax=axes,
            dashes={name: (4, 2) if name in dashed else "" for name in line_names},
            err_kws={"alpha": 0.16, "linewidth": 0},
        )
        ends_by_panel[panel] = _find_line_ends(panel_rows, x, y, by, estimator)
        for name, end in ends_by_panel[panel].iterrows():
            if end["x"] == end["x_first"]:  # a line of one point is invisible
                axes.plot(end["x"], end["y"], "o", color=colours[name])
        title_colour = text_colour(colours[panel]) if one_line_per_panel else "black"
        axes.set_title(escape_dollars(line_names.get(panel, panel)), color=title_colour)
        is_lowest = index + across >= num_panels
        is_leftmost = index % across == 0
        axes.set_xlabel(escape_dollars(xlabel) if is_lowest else "")
        axes.set_ylabel(escape_dollars(ylabel) if is_leftmost else "")
        _set_step_ticks(axes)

    if not one_line_per_panel:
        figure.draw_without_rendering()
        for axes, ends in zip(grid, ends_by_panel.values(), strict=True):
            end_labels(
                axes,
                [wrap_name(line_names[name]) for name in ends.index],
                ends[["x", "y"]].to_numpy(),
                [colours[name] for name in ends.index],
            )
    figure.alt_text = _describe_lines(title, ends_by_panel, xlabel or x)
    return figure


def _make_error_bar(rng: np.random.Generator | None) -> tuple[str, int] | Callable:
    """The band for seaborn: all seeds, or the 95 % interval of their mean."""
    if rng is None:
        return "pi", 100

    def mean_interval_ends(seed_values):
        interval = stats.mean_interval(np.asarray(seed_values, float), rng)
        _, *ends = astuple(interval)
        return tuple(ends)

    return mean_interval_ends


def _find_line_ends(rows: pd.DataFrame, x: str, y: str, by: str, estimator: str) -> pd.DataFrame:
    """Where each line begins and ends: columns x_first, y_first, x, y by name."""
    line_points = rows.groupby([by, x], sort=False)[y].agg(estimator).reset_index()
    line_points = line_points.sort_values(x, kind="stable")
    first = line_points.drop_duplicates(by, keep="first").set_index(by)[[x, y]]
    last = line_points.drop_duplicates(by, keep="last").set_index(by)[[x, y]]
    first.columns = ["x_first", "y_first"]
    last.columns = ["x", "y"]
    return last.join(first).loc[rows[by].unique()]


def _describe_lines(title: str, ends_by_panel: Mapping[str, pd.DataFrame], xlabel: str) -> str:
    descriptions = []
    for panel, ends in ends_by_panel.items():
        for name, end in ends.iterrows():
            line_name = name if panel in ("", name) else f"{panel}, {name}"
            descriptions.append(
                f"{line_name}: {end['y_first']:.3g} at {xlabel} {end['x_first']:.4g}, "
                f"{end['y']:.3g} at {end['x']:.4g}"
            )
    return f"{title}. {'; '.join(descriptions)}."


def bin_values(values: np.ndarray, bins: int, round_edges: bool = False) -> np.ndarray:
    """Replaces values by the middle of their bin, unless there are few different ones.

    Args:
        values: (n,).
        bins: Bins of equal width; so many different values or fewer stay as they are.
        round_edges: Whether bins begin and end at round numbers; there may then be fewer.

    Returns:
        (n,).
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if len(np.unique(values)) <= bins:
        return values
    if round_edges:
        edges = MaxNLocator(bins).tick_values(values.min(), values.max())
    else:
        edges = np.linspace(values.min(), values.max(), bins + 1)
    bin_index = np.searchsorted(edges, values, side="right") - 1
    bin_index = np.clip(bin_index, 0, len(edges) - 2)
    middles = (edges[bin_index] + edges[bin_index + 1]) / 2
    return middles.round(12)  # 0.15, not 0.15000000000000002


def _describe_band(num_seeds: pd.Series, rng: np.random.Generator | None) -> str:
    """What line and band are, in words that are true for the numbers of seeds."""
    fewest = int(num_seeds.min())
    most = int(num_seeds.max())
    if most == 1:
        return "One seed each: no interval can be drawn."
    count = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    band = "from the worst seed to the best" if rng is None else "95% interval of the mean"
    exception = "; one seed has none" if fewest == 1 else ""
    return f"Line: mean over {count}. Band: {band}{exception}."


def _set_step_ticks(axes: Axes) -> None:
    """Few round ticks, with thousands separators where numbers are long."""
    low, high = axes.dataLim.intervalx
    axes.margins(x=0 if high > low else None)
    num_ticks = 5 if len(axes.figure.axes) == 1 else 3
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, steps=[1, 2, 5, 10]))
    if high >= 10_000:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


@theme()
def stacked_shares(
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
    """Draws components of a whole as stacked bars: upright along numbers such as steps, lying where the rows are names.

    Args:
        frame: (rows, components), shares in [0, 1] or, with another unit than "%", counts; e.g.
            `pd.crosstab(step, choice, normalize="index")`.
        title: The message of the figure.
        xlabel: Of the rows where they are numbers, of the shares otherwise.
        ylabel: Of the shares where bars are upright.
        panels: A level of the index; each of its values gets a panel.
        beside: {row: a word beside its lying bar}.
        unit: Written behind the numbers in lying bars, where they have room.
        note: What else a reader must know, below.

    Raises:
        ValueError: A share is negative or not finite.
    """
    if (require_finite(frame.to_numpy(), "the table of shares") < 0).any():
        raise ValueError(f"shares cannot be negative, got {frame.to_numpy().min():g}")

    # One table for each panel, all with the same rows.
    if panels is None:
        frames = {"": frame}
    else:
        panel_groups = frame.groupby(level=panels, sort=False)
        frames = {panel: group.droplevel(panels) for panel, group in panel_groups}
    upright = all(pd.api.types.is_numeric_dtype(group.index) for group in frames.values())
    all_rows = [row for group in frames.values() for row in group.index]
    row_names = list(dict.fromkeys(all_rows))
    if upright:
        row_names = sorted(row_names)
    scale = 100 if unit == "%" else 1
    tables = [(scale * group.rename(columns=str)).reindex(row_names) for group in frames.values()]
    styles = assign_styles(map(str, frame.columns))
    colours = {component: shade for component, (shade, _) in styles.items()}

    across = min(len(frames), 3)
    num_panel_rows = -(-len(frames) // across)
    if upright:
        height = 2.8 * num_panel_rows + 0.7
    else:
        height = num_panel_rows * (0.42 * len(row_names) + 0.9) + 0.7
    figure = new_figure(title, WIDTH + 0.9 * (across - 1), height, note)
    grid = add_panels(figure, len(frames), across, sharex=True, sharey=True)
    highest_bar = max(table.sum(axis=1).max() for table in tables)
    for index, (axes, panel, table) in enumerate(zip(grid, frames, tables, strict=True)):
        is_lowest = index + across >= len(grid)
        is_leftmost = index % across == 0
        _draw_bars(axes, table, colours, upright)
        axes.set_title(escape_dollars(panel))
        axes.set_xlabel(escape_dollars(xlabel) if is_lowest else "")
        axes.set_ylabel(escape_dollars(ylabel) if upright and is_leftmost else "")
        if upright:
            tick_step = -(-len(row_names) // 6)  # six labels at most
            ticks = range(0, len(row_names), tick_step)
            axes.set_xticks(ticks, [f"{row_names[tick]:.4g}" for tick in ticks])
            axes.set(xlim=(-0.6, len(row_names) - 0.4), ylim=(0, highest_bar))
        else:
            axes.set_xlim(0, highest_bar)
            label_rows(axes, row_names)
            _write_shares(axes, table, colours, unit, beside or {})

    # Names stand beside the last panel of each row of panels.
    if upright:
        _name_components(figure, grid[across - 1 :: across], tables[across - 1 :: across], colours)
    else:
        swatches = [Patch(color=shade, label=escape_dollars(c)) for c, shade in colours.items()]
        figure.legend(handles=swatches, loc="outside right center", frameon=False)
    means = frame.groupby(level=panels, sort=False).mean() if panels else frame
    figure.alt_text = _describe_shares(title, scale * means)
    return figure


def _describe_shares(title: str, table: pd.DataFrame) -> str:
    row_descriptions = []
    for row, values in table.iterrows():
        cells = [f"{component} {value:.3g}" for component, value in values.items() if value]
        row_descriptions.append(f"{row}: " + (", ".join(cells) or "none"))
    return f"{title}. " + "; ".join(row_descriptions) + "."


def _draw_bars(axes: Axes, table: pd.DataFrame, colours: Mapping[str, str], upright: bool) -> None:
    """Draws the bars of one panel, rows at 0, 1, ..., the first column lowest or leftmost."""
    long_table = (
        table.fillna(0.0)
        .reset_index(drop=True)
        .melt(ignore_index=False, var_name="component", value_name="share")
        .reset_index(names="row")
    )
    row_axis = "x" if upright else "y"
    sns.histplot(
        long_table,
        **{row_axis: "row"},
        hue="component",
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
    axes.grid(False, axis=row_axis)
    axes.set(xlabel="", ylabel="")


def _write_shares(
    axes: Axes,
    table: pd.DataFrame,
    colours: Mapping[str, str],
    unit: str,
    beside: Mapping[str, str],
) -> None:
    """Writes numbers into lying bars, where there is room, and a word to the right of each."""
    axis_length = axes.get_xlim()[1]
    for row, (row_name, values) in enumerate(table.fillna(0.0).iterrows()):
        middles = values.cumsum() - values / 2
        for component, value in values.items():
            if value >= 0.06 * axis_length:
                is_dark = contrast_with_white(np.array(to_rgb(colours[component]))) > 4.5
                axes.text(
                    middles[component],
                    row,
                    f"{value:.0f}{unit}",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="white" if is_dark else "black",
                )
        axes.annotate(
            escape_dollars(beside.get(row_name, "")),
            (1.01, row),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
        )


def _name_components(
    figure: Figure, grid: list[Axes], tables: list[pd.DataFrame], colours: Mapping[str, str]
) -> None:
    """Writes the names of the components beside the last upright bar of each panel in `grid`."""
    figure.draw_without_rendering()
    for axes, table in zip(grid, tables, strict=True):
        has_bar = table.notna().any(axis=1)
        last_row = int(np.flatnonzero(has_bar)[-1])
        values = table.iloc[last_row].fillna(0.0)
        middles = values.cumsum() - values / 2
        xy = np.column_stack([np.full(len(values), last_row + 0.46), middles])
        end_labels(axes, list(colours), xy, list(colours.values()))
