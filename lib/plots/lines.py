"""What changes along something: means over seeds with bands, and stacked shares."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lib import stats
from lib.plots.inputs import (
    describe_intervals,
    join_descriptions,
    require_columns,
    require_finite,
    require_interval,
)
from lib.plots.styles import assign_styles, contrast_with_white, text_colour
from lib.plots.theme import (
    NAME_WIDTH,
    WIDE,
    WIDTH,
    Layout,
    add_legend_panel,
    add_panels,
    end_labels,
    escape_dollars,
    label_rows,
    new_figure,
    responsive,
    wrap_name,
)


@responsive
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
    layout: Layout = WIDE,
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
        rng: Draws the bootstrap of the 95 % interval of the mean, which fewer than three seeds do not have; without it
            the band is from the worst seed to the best.
        same_scale: Whether small multiples share their y axis.
        dashed: The lines that others are compared with.
        like: {name: the name whose style it takes}.
        roles: {name: role}, see `lib.plots.styles.ROLES`.
        note: What else a reader must know, below.
        layout: How much room there is.

    Raises:
        ValueError: A column is missing, there are no rows, an x or y is not finite, or an interval does not hold its
            value.
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
        rows, band_note = _make_estimate_rows(frame, x, by, group_columns)
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
    across = 3 if one_line_per_panel else 2
    if layout.is_narrow:
        # Two panels without names beside their lines fit on a phone.
        across = 2 if one_line_per_panel else layout.max_across
    name_width = min(NAME_WIDTH, layout.max_name_width)
    label_lines = [wrap_name(name, name_width).count("\n") + 1 for name in line_names.values()]
    num_rows = -(-num_panels // across)
    height = max(4.0, 0.24 * sum(label_lines) + 1.4) if num_panels == 1 else 2.4 * num_rows + 0.9
    # Names beside the lines need room.
    extra_width = 0.0 if one_line_per_panel else 2.0 * (min(num_panels, across) - 1)
    width = min(WIDTH + extra_width, layout.max_width)
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
        panel_title = escape_dollars(line_names.get(panel, panel))
        if layout.is_narrow and one_line_per_panel:
            panel_title = wrap_name(panel_title, name_width)  # half of the width is its own
        axes.set_title(panel_title, color=title_colour)
        is_lowest = index + across >= num_panels
        is_leftmost = index % across == 0
        axes.set_xlabel(layout.wrap_label(xlabel) if is_lowest else "")
        axes.set_ylabel(layout.wrap_label(ylabel) if is_leftmost else "")
        _set_step_ticks(axes)

    if not one_line_per_panel:
        figure.draw_without_rendering()
        for axes, ends in zip(grid, ends_by_panel.values(), strict=True):
            end_labels(
                axes,
                [wrap_name(line_names[name], name_width) for name in ends.index],
                ends[["x", "y"]].to_numpy(),
                [colours[name] for name in ends.index],
            )
    figure.alt_text = _describe_lines(title, ends_by_panel, xlabel or x)
    figure.data = pd.concat(ends_by_panel, names=["panel"] if panels else [""])
    if panels is None or one_line_per_panel:
        figure.data = figure.data.droplevel(0)
    figure.data = figure.data.rename_axis(index={by: str(by)})[["x_first", "y_first", "x", "y"]]
    figure.data.columns = [f"first {x}", "value", f"last {x}", "value there"]
    return figure


def _make_error_bar(rng: np.random.Generator | None) -> tuple[str, int] | Callable:
    """Chooses seaborn's `errorbar` for the band around a line.

    Args:
        rng: Random numbers of the bootstrap; None for a band from the lowest to the highest seed.

    Returns:
        ("pi", 100), or a function from the values of all seeds to the 95 % interval of their mean.
    """
    if rng is None:
        return "pi", 100

    def mean_interval_ends(seed_values):
        seed_values = np.asarray(seed_values, dtype=float)
        if len(seed_values) < stats.MIN_RUNS:
            return seed_values.mean(), seed_values.mean()
        interval = stats.mean_interval(seed_values, rng)
        return interval.ci_low, interval.ci_high

    return mean_interval_ends


def _find_line_ends(rows: pd.DataFrame, x: str, y: str, by: str, estimator: str) -> pd.DataFrame:
    """Finds the first and last point of each line.

    Args:
        rows: The data of one panel.
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        by: Column that names the lines.
        estimator: How points of one x are averaged, such as "mean".

    Returns:
        Columns x_first, y_first, x, y, a row per line.
    """
    line_points = rows.groupby([by, x], sort=False)[y].agg(estimator).reset_index()
    line_points = line_points.sort_values(x, kind="stable")
    first = line_points.drop_duplicates(by, keep="first").set_index(by)[[x, y]]
    last = line_points.drop_duplicates(by, keep="last").set_index(by)[[x, y]]
    first.columns = ["x_first", "y_first"]
    last.columns = ["x", "y"]
    return last.join(first).loc[rows[by].unique()]


def _describe_lines(title: str, ends_by_panel: Mapping[str, pd.DataFrame], xlabel: str) -> str:
    """Describes the lines of a figure in words, for its alternative text: where each begins and ends.

    Args:
        title: Title of the figure.
        ends_by_panel: First and last point of each line, by panel.
        xlabel: Label of the horizontal axis.
    """
    descriptions = []
    for panel, ends in ends_by_panel.items():
        for name, end in ends.iterrows():
            line_name = name if panel in ("", name) else f"{panel}, {name}"
            descriptions.append(
                f"{line_name}: {end['y_first']:.3g} at {xlabel} {end['x_first']:.4g}, "
                f"{end['y']:.3g} at {end['x']:.4g}"
            )
    return join_descriptions(title, descriptions)


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


def _make_estimate_rows(
    frame: pd.DataFrame, x: str, by: str, group_columns: list[str]
) -> tuple[pd.DataFrame, str]:
    """Converts estimates to rows for seaborn, and describes the band.

    Args:
        frame: Estimates with columns value, ci_low and ci_high, and perhaps num_runs.
        x: The column along which a line runs.
        by: The column that names the lines.
        group_columns: The columns that tell lines and panels apart.

    Returns:
        Three rows for each estimate, its ends and its value in a column `end`; and a note for the reader.

    Raises:
        ValueError: An interval does not hold its value.
    """
    ends = frame.reindex(columns=["value", "ci_low", "ci_high"]).astype(float)
    for name, at, (value, ci_low, ci_high) in zip(
        frame[by], frame[x], ends.to_numpy(), strict=True
    ):
        require_interval(value, ci_low, ci_high, f"{name} at {x} {at:g}")
    if "num_runs" in frame:
        is_few = frame["num_runs"].map(stats.has_few_runs)
        frame = frame.assign(**{end: frame[end].mask(is_few) for end in ("ci_low", "ci_high")})
    described = frame.reindex(columns=["ci_low", "num_runs"]).fillna({"num_runs": 0})
    band_note = describe_intervals(described).replace("Lines", "Bands")
    rows = (
        frame.reindex(columns=[*group_columns, x, "ci_low", "value", "ci_high"])
        .melt([*group_columns, x], value_name="end")
        .dropna()
    )
    return rows, band_note


def _describe_band(num_seeds: pd.Series, rng: np.random.Generator | None) -> str:
    """Explains line and band in the note below a figure.

    Args:
        num_seeds: Number of seeds behind each line.
        rng: None where the band goes from the lowest seed to the highest.
    """
    fewest = int(num_seeds.min())
    most = int(num_seeds.max())
    if most == 1:
        return "One seed each: no interval can be drawn."
    count = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    if rng is not None and most < stats.MIN_RUNS:
        return f"Line: mean, n = {count}: too few for an interval."
    band = "from the worst seed to the best" if rng is None else "95% interval of the mean"
    exception = "; one seed has none" if fewest == 1 else ""
    if rng is not None and stats.has_few_runs(fewest):
        exception = f"; n = {fewest} seeds have none"
    return f"Line: mean over {count}. Band: {band}{exception}."


def _set_step_ticks(axes: Axes) -> None:
    """Sets few round ticks on the horizontal axis, with thousands separators where numbers are long."""
    low, high = axes.dataLim.intervalx
    axes.margins(x=0 if high > low else None)
    num_ticks = 5 if len(axes.figure.axes) == 1 else 3
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, steps=[1, 2, 5, 10]))
    if high >= 10_000:
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


@responsive
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
    layout: Layout = WIDE,
) -> Figure:
    """Draws components of a whole as stacked bars: upright along numbers such as steps, lying where the rows are names.

    Args:
        frame: (rows, components), shares in [0, 1] or, with another unit than "%", counts; e.g.
            `pd.crosstab(step, choice, normalize="index")`.
        title: The message of the figure.
        xlabel: Label of the rows where they are numbers, of the shares otherwise.
        ylabel: Label of the shares where bars are upright.
        panels: A level of the index; each of its values gets a panel.
        beside: {row: a word beside its lying bar}.
        unit: Written behind the numbers in lying bars, where they have room.
        note: What else a reader must know, below.
        layout: How much room there is.

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

    across = min(len(frames), 3, layout.max_across)
    name_width = min(NAME_WIDTH, layout.max_name_width)
    num_panel_rows = -(-len(frames) // across)
    if upright:
        height = 2.8 * num_panel_rows + 0.7
    else:
        height = num_panel_rows * (0.42 * len(row_names) + 0.9) + 0.7
    width = min(WIDTH + 0.9 * (across - 1), layout.max_width)
    has_legend_below = layout.is_narrow and not upright
    if has_legend_below:
        height += 0.22 * len(colours)
    figure = new_figure(title, width, height, note)
    swatches = [Patch(color=shade, label=escape_dollars(c)) for c, shade in colours.items()]
    if has_legend_below:
        grid = add_legend_panel(figure, swatches, len(frames), sharex=True, sharey=True)
    else:
        grid = add_panels(figure, len(frames), across, sharex=True, sharey=True)
    highest_bar = max(table.sum(axis=1).max() for table in tables)
    for index, (axes, panel, table) in enumerate(zip(grid, frames, tables, strict=True)):
        is_lowest = index + across >= len(grid)
        is_leftmost = index % across == 0
        _draw_bars(axes, table, colours, upright)
        axes.set_title(layout.wrap_label(panel))
        axes.set_xlabel(layout.wrap_label(xlabel) if is_lowest else "")
        axes.set_ylabel(layout.wrap_label(ylabel) if upright and is_leftmost else "")
        if upright:
            tick_step = -(-len(row_names) // 6)  # six labels at most
            ticks = range(0, len(row_names), tick_step)
            axes.set_xticks(ticks, [f"{row_names[tick]:.4g}" for tick in ticks])
            axes.set(xlim=(-0.6, len(row_names) - 0.4), ylim=(0, highest_bar))
        else:
            axes.set_xlim(0, highest_bar)
            label_rows(axes, row_names, name_width)
            _write_shares(axes, table, colours, unit, beside or {})

    # Names stand beside the last panel of each row of panels.
    if upright:
        last_panels = slice(across - 1, None, across)
        _name_components(figure, grid[last_panels], tables[last_panels], colours, name_width)
    elif not has_legend_below:
        figure.legend(handles=swatches, loc="outside right center", frameon=False)
    means = frame.groupby(level=panels, sort=False).mean() if panels else frame
    figure.alt_text = _describe_shares(title, scale * means)
    figure.data = scale * frame
    return figure


def _describe_shares(title: str, table: pd.DataFrame) -> str:
    row_descriptions = []
    for row, values in table.iterrows():
        cells = [f"{component} {value:.3g}" for component, value in values.items() if value]
        row_descriptions.append(f"{row}: " + (", ".join(cells) or "none"))
    return join_descriptions(title, row_descriptions)


def _draw_bars(axes: Axes, table: pd.DataFrame, colours: Mapping[str, str], upright: bool) -> None:
    """Draws the stacked bars of one panel.

    Args:
        axes: Where they are drawn.
        table: A row per bar, a column per component; the first component lies lowest or leftmost.
        colours: By component.
        upright: Whether bars are vertical.
    """
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
    """Writes the number of each component into horizontal bars where there is room, and a word beside each bar.

    Args:
        axes: Where the bars are.
        table: A row per bar, a column per component.
        colours: By component.
        unit: Written behind each number.
        beside: The word beside a bar, by its name.
    """
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
    figure: Figure,
    grid: list[Axes],
    tables: list[pd.DataFrame],
    colours: Mapping[str, str],
    name_width: int,
) -> None:
    """Writes the names of the components beside the last vertical bar of each panel.

    Args:
        figure: With the bars.
        grid: Its panels.
        tables: The data of each panel: a row per bar, a column per component.
        colours: By component.
        name_width: Characters in a line of a name.
    """
    figure.draw_without_rendering()
    for axes, table in zip(grid, tables, strict=True):
        has_bar = table.notna().any(axis=1)
        last_row = int(np.flatnonzero(has_bar)[-1])
        values = table.iloc[last_row].fillna(0.0)
        middles = values.cumsum() - values / 2
        xy = np.column_stack([np.full(len(values), last_row + 0.46), middles])
        names = [wrap_name(component, name_width) for component in colours]
        end_labels(axes, names, xy, list(colours.values()))
