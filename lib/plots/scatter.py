"""One estimate against another: quality against cost, or objectives against each other, with both intervals."""

from collections.abc import Collection, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib import stats
from lib.plots.inputs import (
    Estimates,
    describe_intervals,
    estimates_table,
    format_group,
    index_tuples,
    interval_ends,
    join_descriptions,
    require_finite,
)
from lib.plots.styles import GREY, Style, assign_styles
from lib.plots.theme import (
    WIDE,
    WIDTH,
    Layout,
    add_legend_panel,
    add_panels,
    escape_dollars,
    new_figure,
    point_labels,
    responsive,
    set_limits,
    wrap_name,
)
from lib.stats.verdicts import lacks_answers

MIXTURES = "mixtures"
# One that may also answer nothing, which costs nothing and gets nothing right.
MIXTURES_WITH_NOBODY = "mixtures with nobody"
STAIR = "stair"
Labels = str | Mapping[str, str]


@responsive
def tradeoff_plot(
    x: Estimates,
    y: Estimates | None,
    title: str,
    xlabel: Labels = "",
    ylabel: Labels = "",
    *,
    panels: str | int | None = None,
    line: str | None = None,
    through: Collection | None = None,
    joined: bool = True,
    names: Mapping | None = None,
    rings: Collection | str = (),
    roles: Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
    note: str = "",
    layout: Layout = WIDE,
) -> Figure:
    """Draws points with both intervals, and what they span.

    Args:
        x: Estimates by method, or by method and setting.
        y: Estimates of the same groups. None: the last group of x names objectives, all maximised, and each pair of
            them gets a panel.
        title: The message of the figure.
        xlabel: The x axis with its unit, or {panel: label}; with y=None a unit, or {objective: label}.
        ylabel: The y axis with its unit, or {panel: label}.
        panels: A group that gets a panel for each of its values, by name or level.
        line: "mixtures", the best quality at each cost of sending fractions of the queries to two points; "mixtures
            with nobody", where a query may also stay unanswered; or "stair", what no point lies beyond.
        through: The methods that span the line, or (panel, method) where panels differ; all by default. Those whose
            models gave too few usable replies never do.
        joined: Whether a line joins the settings of a method from the least x to the largest.
        names: {method or (method, setting): label}, what is named and how; by default every method at its largest x.
        rings: Groups to point out, or "front": those whose means no other dominates in all objectives.
        roles: {method: role}, see `lib.plots.styles.ROLES`.
        size: Inches of all panels.
        note: What else a reader must know, below.
        layout: How much room there is.
    """
    xs, ys, xlabels, ylabels = _arrange_panels(x, y, panels, xlabel, ylabel)
    panel_names = list(dict.fromkeys(xs.index.get_level_values(0)))
    methods = list(dict.fromkeys(str(group[1]) for group in xs.index))
    styles = assign_styles(methods, roles=roles)
    through = _leave_out_marked(methods if through is None else through, x)

    # The note below explains every kind of mark that is drawn.
    notes = [describe_intervals(xs, ys)]
    if line == STAIR:
        notes.append("No point lies beyond the line.")
    if line in (MIXTURES, MIXTURES_WITH_NOBODY):
        notes.append(_describe_mixtures(methods, panel_names, through))
    if rings == "front":
        notes.append("Ring: not dominated by another mean.")
    notes.append(note)

    # Where some points are named in the figure, a legend names the other methods.
    labels = {str(label) for label in (names or {}).values()}
    unnamed_methods = [method for method in methods if method not in labels]
    handles = []
    if labels and len(methods) > 1:
        for method in unnamed_methods:
            shade, marker = styles[method]
            handles.append(
                Line2D([], [], color=shade, marker=marker, ls="", label=escape_dollars(method))
            )

    across = min(len(panel_names), 2, layout.max_across)
    if layout.is_narrow:
        size = (layout.max_width, 3.4 * len(panel_names) + 0.22 * len(handles))
    elif size is None:
        num_panel_rows = -(-len(panel_names) // across)
        height = 4.6 if len(panel_names) == 1 else 3.6 * num_panel_rows
        size = (layout.max_width if across > 1 else WIDTH, height)
    figure = new_figure(title, *size, " ".join(notes).strip())
    ringed_groups = _find_front(x) if rings == "front" else set(rings)
    if layout.is_narrow:
        grid = add_legend_panel(figure, handles, len(panel_names))
    else:
        grid = add_panels(figure, len(panel_names), across)
    points_by_panel = []
    for axes, panel in zip(grid, panel_names, strict=True):
        points = _make_points(xs.loc[[panel]], ys.loc[[panel]])
        _draw_points(axes, points, styles, joined, ringed_groups)
        set_limits(axes, points[["x", "x_ci_low", "x_ci_high"]].to_numpy(), "x", 0.14)
        set_limits(axes, points[["y", "y_ci_low", "y_ci_high"]].to_numpy(), "y", 0.12)
        if line:
            spans_line = [
                _is_among(group, through) or (panel, group[0]) in through for group in points.index
            ]
            _draw_line(axes, points[spans_line], line)
        axes.set_xlabel(layout.wrap_label(xlabels.get(panel, "")))
        axes.set_ylabel(layout.wrap_label(ylabels.get(panel, "")))
        if panel != "" and panels is not None:
            axes.set_title(layout.wrap_label(panel))
        points_by_panel.append(points)

    if handles and not layout.is_narrow:
        figure.legend(handles=handles, loc="outside right center")

    # Labels need the final layout.
    figure.draw_without_rendering()
    for axes, points in zip(grid, points_by_panel, strict=True):
        _label_points(axes, points, styles, names, layout.max_name_width)
    across_values, up_values = _drop_single_panel(xs), _drop_single_panel(ys)
    figure.alt_text = _describe_points(title, across_values, up_values)
    figure.data = _tabulate_points(across_values, up_values, xlabels, ylabels)
    return figure


def _tabulate_points(
    xs: pd.DataFrame, ys: pd.DataFrame, xlabels: Mapping[str, str], ylabels: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulates the points of a scatter plot, one column of intervals for each axis.

    Args:
        xs: Estimates of the horizontal axis.
        ys: Estimates of the vertical axis, of the same groups.
        xlabels: Labels of the horizontal axis by panel; the column has this name where panels share one.
        ylabels: Labels of the vertical axis by panel.
    """
    columns = {}
    for axis, estimates, labels in (("horizontal", xs, xlabels), ("vertical", ys, ylabels)):
        shared_labels = set(labels.values())
        label = shared_labels.pop() if len(shared_labels) == 1 else ""
        name = label if label and label not in columns else f"{axis} axis"
        columns[name] = stats.intervals(estimates)
    return pd.DataFrame(columns)


def _arrange_panels(
    x: Estimates, y: Estimates | None, panels: str | int | None, xlabel: Labels, ylabel: Labels
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, str], dict[str, str]]:
    """Arranges the estimates of both axes of a scatter plot by panel.

    Args:
        x: Estimates of the horizontal axis.
        y: Those of the vertical axis; None where the last index level of `x` names objectives that are paired.
        panels: Index level that names the panels; None for a single one.
        xlabel: Label of the horizontal axis, or one per panel.
        ylabel: Label of the vertical axis, or one per panel.

    Returns:
        Estimates of x and of y by (panel, method, setting), and the labels of each panel's axes.

    Raises:
        ValueError: x and y have different groups.
    """
    xs = estimates_table(x)
    if y is None:
        return _arrange_objective_pairs(xs, xlabel)
    ys = estimates_table(y)
    if panels is not None:
        level = panels if isinstance(panels, int) else list(xs.index.names).index(panels)
        other_levels = [index for index in range(xs.index.nlevels) if index != level]
        xs = xs.reorder_levels([level, *other_levels])
        ys = ys.reorder_levels([level, *other_levels])
    else:
        xs = pd.concat({"": xs}, names=["panel"])
        ys = pd.concat({"": ys}, names=["panel"])
    if set(xs.index) != set(ys.index):
        unmatched = sorted(set(xs.index) ^ set(ys.index), key=str)
        raise ValueError(f"x and y are not of the same groups: {unmatched[:3]}")

    panel_names = dict.fromkeys(xs.index.get_level_values(0))
    xlabels = dict(xlabel) if isinstance(xlabel, Mapping) else dict.fromkeys(panel_names, xlabel)
    ylabels = dict(ylabel) if isinstance(ylabel, Mapping) else dict.fromkeys(panel_names, ylabel)
    return xs, ys.reindex(xs.index), xlabels, ylabels


def _arrange_objective_pairs(
    estimates: pd.DataFrame, label: Labels
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, str], dict[str, str]]:
    """Arranges estimates of several objectives for a panel per pair of objectives.

    Args:
        estimates: The last level of their index names the objective.
        label: Labels by objective, or a suffix of the objectives' names.

    Returns:
        Estimates of x and of y by (panel, method, setting), and the labels of each panel's axes.

    Raises:
        ValueError: There is one objective only, or they have different groups.
    """
    objectives = list(dict.fromkeys(estimates.index.get_level_values(-1)))
    if len(objectives) < 2:
        raise ValueError(
            f"objectives against each other need at least two of them, got {objectives}"
        )
    if isinstance(label, Mapping):
        objective_labels = dict(label)
    else:
        objective_labels = {objective: f"{objective}{label}" for objective in objectives}
    xs, ys, xlabels, ylabels = {}, {}, {}, {}
    for first, second in combinations(objectives, 2):
        panel = f"{first} and {second}"
        xs[panel] = estimates.xs(first, level=-1)
        ys[panel] = estimates.xs(second, level=-1)
        xlabels[panel] = objective_labels[first]
        ylabels[panel] = objective_labels[second]
    xs, ys = pd.concat(xs, names=["panel"]), pd.concat(ys, names=["panel"])
    if set(xs.index) != set(ys.index):
        unmatched = sorted(set(xs.index) ^ set(ys.index), key=str)
        raise ValueError(f"x and y are not of the same groups: {unmatched[:3]}")
    return xs, ys.reindex(xs.index), xlabels, ylabels


def _make_points(xs: pd.DataFrame, ys: pd.DataFrame) -> pd.DataFrame:
    """Combines the estimates of both axes to the points of one panel.

    Args:
        xs: Estimates of the horizontal axis.
        ys: Estimates of the vertical axis, of the same groups.

    Returns:
        Columns x, x_ci_low, x_ci_high, y, y_ci_low, y_ci_high and method, indexed by the tuple (method,) or
        (method, setting).
    """
    x_ends = interval_ends(xs).add_prefix("x_")
    y_ends = interval_ends(ys).add_prefix("y_")
    points = pd.concat([x_ends, y_ends], axis=1).droplevel(0)
    points["x"] = xs["value"].to_numpy()
    points["y"] = ys["value"].to_numpy()
    groups = [key if isinstance(key, tuple) else (key,) for key in points.index]
    points["method"] = [str(group[0]) for group in groups]
    return points.set_axis(pd.Index(groups, tupleize_cols=False))


def _leave_out_marked(entries: Collection, estimates: Estimates) -> list:
    """Drops the methods with too few usable replies from a list of methods to connect.

    Args:
        entries: Methods, or (panel, method).
        estimates: Estimates, which may be marked for too few usable replies.
    """
    if not isinstance(estimates, pd.DataFrame):
        return list(entries)
    names = list(estimates.index.names)
    level = names.index("method") if "method" in names else 0
    is_marked = lacks_answers(estimates)
    marked_methods = set(estimates.index.get_level_values(level)[is_marked])
    return [
        entry
        for entry in entries
        if not marked_methods & set(entry if isinstance(entry, tuple) else (entry,))
    ]


def _is_among(group: tuple, groups: Collection) -> bool:
    """Whether a group, or its whole method, is in a collection."""
    return group[0] in groups or group in groups


def _draw_points(
    axes: Axes,
    points: pd.DataFrame,
    styles: Mapping[str, Style],
    joined: bool,
    ringed_groups: Collection,
) -> None:
    """Draws the points of one panel with their intervals, rings and joining lines.

    Args:
        axes: The panel.
        points: Columns x, y, their interval ends and method, indexed by (method,) or (method, setting).
        styles: Colour and marker by method.
        joined: Whether a line joins the settings of one method.
        ringed_groups: Points that get a ring.
    """
    colours = {method: shade for method, (shade, _) in styles.items()}
    markers = {method: marker for method, (_, marker) in styles.items()}
    for group, point in points.iterrows():
        interval_style = {
            "color": colours[point["method"]],
            "linewidth": 1.5,
            "alpha": 0.7,
            "gid": "interval",
            "zorder": 3,
        }
        x_interval = [point["x_ci_low"], point["x_ci_high"]]
        y_interval = [point["y_ci_low"], point["y_ci_high"]]
        if x_interval[0] < x_interval[1]:
            axes.plot(x_interval, [point["y"], point["y"]], **interval_style)
        if y_interval[0] < y_interval[1]:
            axes.plot([point["x"], point["x"]], y_interval, **interval_style)
        if _is_among(group, ringed_groups):
            axes.plot(
                point["x"],
                point["y"],
                "o",
                markersize=16,
                mfc="none",
                mec="black",
                mew=1.2,
                zorder=5,
                gid="ring",
            )

    # A line joins the settings of one method.
    has_settings = points.groupby("method", sort=False)["x"].transform("size") > 1
    if joined:
        sorted_points = points[has_settings].sort_values("x", kind="stable")
        for method, path in sorted_points.groupby("method", sort=False):
            axes.plot(path["x"], path["y"], color=colours[method], linewidth=1, alpha=0.7, zorder=2)

    # Smaller marks where there are many. A star is mostly gaps, so it is drawn larger.
    scale = 0.5 if has_settings.any() else 1
    sizes = {method: (150 if marker == "*" else 75) * scale for method, marker in markers.items()}
    sns.scatterplot(
        points,
        x="x",
        y="y",
        hue="method",
        style="method",
        size="method",
        sizes=sizes,
        palette=colours,
        markers=markers,
        legend=False,
        ax=axes,
        zorder=4,
        clip_on=False,
    )


def _draw_line(axes: Axes, points: pd.DataFrame, line: str) -> None:
    """Draws the dashed line of what random mixtures reach, or the staircase of the Pareto front.

    Args:
        axes: The panel.
        points: Columns x (cost) and y (quality).
        line: STAIR for the staircase, else one of the two kinds of mixtures.
    """
    if points.empty:
        return
    xy = points[["x", "y"]].to_numpy()
    left, right = axes.get_xlim()
    if line == STAIR:
        bottom = axes.get_ylim()[0]
        corners = np.unique(xy[undominated(xy)], axis=0)
        stair_x = [left, *corners[:, 0], corners[-1, 0]]
        stair_y = [corners[0, 1], *corners[:, 1], bottom]
        axes.fill_between(stair_x, bottom, stair_y, step="pre", color=GREY, alpha=0.06, linewidth=0)
        axes.step(
            stair_x,
            stair_y,
            where="pre",
            color=GREY,
            linewidth=1.2,
            alpha=0.8,
            zorder=1,
            gid="line",
        )
        return

    if line == MIXTURES_WITH_NOBODY:
        xy_with_nobody = np.vstack([[0.0, 0.0], xy])
        corners = upper_hull(xy_with_nobody)
    else:
        corners = upper_hull(xy)
    evenly_spaced = np.linspace(corners[0, 0], corners[-1, 0], 200)
    costs = np.unique([*evenly_spaced, *corners[:, 0]])
    qualities = np.interp(costs, corners[:, 0], corners[:, 1])
    axes.plot(
        [*costs, right],
        [*qualities, qualities[-1]],
        "--",
        color=GREY,
        linewidth=1.3,
        zorder=1,
        gid="line",
    )
    all_positive = xy[:, 0].min() > 0
    # Nothing costs less than nothing.
    axes.set_xlim(max(left, 0.0) if all_positive else left, right)


def _describe_points(title: str, xs: pd.DataFrame, ys: pd.DataFrame) -> str:
    """Every point in words, quality and cost of one method together."""
    descriptions = []
    for group, x_value, y_value in zip(index_tuples(xs), xs["value"], ys["value"], strict=True):
        descriptions.append(f"{format_group(group)} {x_value:.3g} across, {y_value:.3g} up")
    return join_descriptions(title, descriptions)


def _label_points(
    axes: Axes,
    points: pd.DataFrame,
    styles: Mapping[str, Style],
    names: Mapping | None,
    name_width: int,
) -> None:
    """Write names beside points.

    Args:
        axes: Where the points are drawn.
        points: A row per point, indexed by (method, setting, ...): x, y, the ends of both intervals, method.
        styles: By method its colour and marker.
        names: By method, or by the index of one point, what to write; a method's name stands at its largest x.
            None names every method after itself.
        name_width: Characters of a line.
    """
    labels = _choose_labels(points, names)
    if not labels:
        return
    labelled = points.loc[[index in labels for index in points.index]]
    texts = [wrap_name(labels[index], name_width) for index in labelled.index]
    positions = labelled[["x", "y"]].to_numpy()  # (labels, 2)
    colors = [styles[method][0] for method in labelled["method"]]
    obstacles = np.concatenate([_sample_intervals(point) for _, point in points.iterrows()])
    point_labels(axes, texts, positions, colors, obstacles)


def _choose_labels(points: pd.DataFrame, names: Mapping | None) -> dict[tuple, str]:
    """Chooses which points of a panel are labelled, and with which text.

    Args:
        points: Points with x and method, indexed by (method,) or (method, setting).
        names: Labels by method or point; by default the rightmost point of each method gets its name.

    Returns:
        The label by the index of the point.
    """
    labels = {}
    by_x = points.sort_values("x", kind="stable")
    for method, method_points in by_x.groupby("method", sort=False):
        rightmost = method_points.index[-1]
        if names is not None:
            if method in names:
                labels[rightmost] = names[method]
            continue
        first_setting, last_setting = method_points.index[0][1:], rightmost[1:]
        has_several_points = len(method_points) > 1
        settings_range = f" ({first_setting[0]} to {last_setting[0]})" if has_several_points else ""
        labels[rightmost] = f"{method}{settings_range}"

    # A name that is meant for one point replaces the method's there.
    for index in points.index:
        if names is not None and index in names:
            labels[index] = names[index]
    return {index: labels[index] for index in points.index if index in labels}


def _sample_intervals(point: pd.Series) -> np.ndarray:
    """Points (18, 2) along both intervals, which labels avoid."""
    xs = np.linspace(point["x_ci_low"], point["x_ci_high"], 9)
    ys = np.linspace(point["y_ci_low"], point["y_ci_high"], 9)
    horizontal = np.column_stack([xs, np.full(9, point["y"])])
    vertical = np.column_stack([np.full(9, point["x"]), ys])
    return np.concatenate([horizontal, vertical])


def _describe_mixtures(methods: list[str], panel_names: list[str], through: Collection) -> str:
    """Explains the dashed line of a scatter plot: the best random mixtures of which methods.

    Args:
        methods: All methods of the figure.
        panel_names: Its panels.
        through: Methods, or (panel, method), that are mixed.

    Returns:
        A sentence; empty where there is no line.
    """
    spanning = [
        method
        for method in methods
        if method in through or any((panel, method) in through for panel in panel_names)
    ]
    if not spanning:
        return ""
    excluded = [method for method in methods if method not in spanning]
    if not excluded:
        ingredients = "methods"
    elif len(spanning) < len(excluded):
        ingredients = "; ".join(spanning)
    else:
        ingredients = f"all but {'; '.join(excluded)}"
    return f"Dashed: the best that a mixture of {ingredients} buys at each cost."


def _drop_single_panel(estimates: pd.DataFrame) -> pd.DataFrame:
    """The estimates without the level of panels where there is only the one without a name."""
    has_one_panel = set(estimates.index.get_level_values(0)) == {""}
    return estimates.droplevel(0) if has_one_panel else estimates


def _find_front(estimates: Estimates) -> set:
    """The groups whose means no other dominates; the last group names the objectives."""
    means = estimates_table(estimates)["value"].unstack()  # (methods, objectives)
    front = means.index[undominated(means.to_numpy())]
    return {key if isinstance(key, tuple) else (key,) for key in front}


def undominated(points: np.ndarray) -> np.ndarray:
    """Which points (n, k) no other dominates, (n,) bool; unlike a Pareto front, it keeps all of several equals."""
    front = points[stats.pareto_front(points)]
    return (points[:, None] == front).all(axis=-1).any(axis=1)


def upper_hull(points: np.ndarray) -> np.ndarray:
    """Finds the corners of the best quality for each cost, which mixtures of points reach.

    Args:
        points: (n, 2) as (cost, quality).

    Returns:
        (h, 2) sorted by cost: concave and rising, from the cheapest to the best. A point that a mixture of two others
        beats at its own cost is no corner.
    """
    points = require_finite(points, "the points of the hull")
    return points[stats.hull(points[:, 0], points[:, 1])]
