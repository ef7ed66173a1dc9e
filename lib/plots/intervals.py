"""Forest plots: estimates beside one another, as dots with their intervals."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.plots.inputs import (
    Estimates,
    describe_estimates,
    describe_intervals,
    estimates_table,
    interval_ends,
)
from lib.plots.styles import GREY, Style, assign_styles
from lib.plots.theme import (
    NAME_WIDTH,
    WIDE,
    WIDTH,
    Layout,
    add_panels,
    label_rows,
    new_figure,
    responsive,
    set_limits,
    wrap_name,
)


@responsive
def forest_plot(
    estimates: Estimates,
    title: str,
    xlabel: str | Mapping[str, str] = "",
    *,
    rows: str | None = None,
    panels: str | None = None,
    beside: tuple[str, Estimates] | None = None,
    line: float | None = None,
    smaller: Collection[str] = (),
    limits: tuple[float, float] | None = None,
    like: Mapping | None = None,
    roles: Mapping[str, str] | None = None,
    across: int = 3,
    wide: float | None = None,
    name: int = NAME_WIDTH,
    note: str = "",
    bounds: tuple[float, float] = (-np.inf, np.inf),
    layout: Layout = WIDE,
) -> Figure:
    """Draws a dot with its interval for each row, and a panel for each value of a second group.

    A ring marks the row whose interval lies beyond all others of its panel, unless there is a line or a second
    estimate.

    Args:
        estimates: By rows, or by rows and panels (see `estimates_table`); what is missing is shown as not measured.
        title: The message of the figure.
        xlabel: The axis with its unit; or {panel: label}, which then chooses and orders the panels. By default a panel
            is its own label.
        rows: The group column of the rows.
        panels: The group column of the panels.
        beside: (description, estimates of the same groups), drawn as hollow marks on the same rows.
        line: A reference to draw, such as 0 for differences.
        smaller: Panels where less is better.
        limits: Limits of every x axis.
        like: {row: the name whose style it takes}, or {(row, panel): name}.
        roles: {row: role}, see `lib.plots.styles.ROLES`.
        across: Panels in a row, at most.
        wide: Width in inches.
        name: Characters of a row's name on a line.
        note: What else a reader must know, below.
        bounds: The range of what is estimated, such as (0, 1) of an accuracy; an interval beyond it is refused.
        layout: How much room there is.
    """
    table = _index_by_row_and_panel(estimates, rows, panels, bounds)
    row_names = list(dict.fromkeys(table.index.get_level_values(0)))
    panel_names = list(dict.fromkeys(table.index.get_level_values(1)))
    if isinstance(xlabel, Mapping):
        panel_labels = dict(xlabel)
    else:
        panel_labels = {panel: xlabel or str(panel) for panel in panel_names}
    tables = [table]
    if beside is not None:
        tables.append(_index_by_row_and_panel(beside[1], rows, panels, bounds))

    # A ring would compete with a reference line or a second estimate.
    best_rows = {}
    if beside is None and line is None:
        for panel in panel_labels:
            best_rows[panel] = _find_clearly_best(table.xs(panel, level=1), panel in smaller)

    # The note below explains every kind of mark that is drawn.
    notes = [describe_intervals(*tables)]
    if any(best_row is not None for best_row in best_rows.values()):
        notes.append("Ring: beyond every other interval.")
    if beside is not None:
        notes.append(f"Hollow: {beside[0]}.")
    notes.append(note)

    across = min(len(panel_labels), across, layout.max_across)
    name = min(name, layout.max_name_width)
    num_panel_rows = -(-len(panel_labels) // across)
    rows_height = sum(1.0 + 0.57 * wrap_name(row, name).count("\n") for row in row_names)
    height = num_panel_rows * (0.3 * rows_height + 0.9) + 0.7
    width = min(wide or WIDTH + 0.8 * (across - 1), layout.max_width)
    figure = new_figure(title, width, height, " ".join(notes).strip())
    styles = assign_styles(row_names, like, roles)
    grid = add_panels(figure, len(panel_labels), across)
    for index, (axes, (panel, label)) in enumerate(zip(grid, panel_labels.items(), strict=True)):
        panel_tables = [each_table.xs(panel, level=1).reindex(row_names) for each_table in tables]
        panel_styles = _find_panel_styles(styles, like or {}, panel)
        _draw_panel(axes, panel_tables, panel_styles, line, best_rows.get(panel))
        axes.set_xlabel(layout.wrap_label(label))
        axes.set_xlim(limits)
        if isinstance(xlabel, str) and xlabel and panel != "":
            axes.set_title(layout.wrap_label(panel))
        is_leftmost = index % across == 0
        label_rows(axes, row_names if is_leftmost else [""] * len(row_names), name)
    has_one_panel = panel_names == [""]
    described = table.droplevel(1) if has_one_panel else table
    figure.alt_text = describe_estimates(described, title)
    figure.data = described
    return figure


def _index_by_row_and_panel(
    estimates: Estimates, rows: str | None, panels: str | None, bounds: tuple[float, float]
) -> pd.DataFrame:
    """Arranges estimates by row and panel of a forest plot.

    Args:
        estimates: A frame or mapping of estimates.
        rows: Column or index level that names the rows; None for the first one.
        panels: The one that names the panels; None for a single panel "".
        bounds: Range of the quantity.

    Returns:
        Estimates indexed by (row, panel).

    Raises:
        ValueError: They have another number of groups.
    """
    group_columns = None
    if rows is not None:
        group_columns = [rows, panels] if panels else [rows]
    table = estimates_table(estimates, group_columns, bounds)
    if table.index.nlevels == 1:
        table = pd.concat({"": table}).swaplevel()
    if table.index.nlevels != 2:
        raise ValueError(
            f"a forest plot takes rows and panels, got groups {list(table.index.names)}; name two"
        )
    return table


def _find_panel_styles(styles: Mapping[str, Style], like: Mapping, panel: str) -> dict[str, Style]:
    """Chooses the style (colour and marker) of each row in one panel.

    Args:
        styles: Default style by row.
        like: Name whose style is to be used instead, by (row, panel).
        panel: Name of the panel.
    """
    models = [like[row, panel] for row in styles if (row, panel) in like]
    model_styles = assign_styles(models)
    panel_styles = {}
    for row, style in styles.items():
        panel_styles[row] = model_styles.get(like.get((row, panel)), style)
    return panel_styles


def _draw_panel(
    axes: Axes,
    tables: list[pd.DataFrame],
    styles: Mapping[str, Style],
    line: float | None,
    best_row: str | None,
) -> None:
    """Draws one panel of a forest plot, its rows from top to bottom.

    Args:
        axes: The panel.
        tables: Estimates by row; a second table is drawn with hollow markers.
        styles: Colour and marker by row.
        line: Where a vertical line stands; None for none.
        best_row: The row that gets a ring; None for none.
    """
    colours = {row: row_colour for row, (row_colour, _) in styles.items()}
    markers = {row: row_marker for row, (_, row_marker) in styles.items()}
    # A star is mostly gaps, so it is drawn larger.
    sizes = {row: 130 if row_marker == "*" else 62 for row, row_marker in markers.items()}
    if line is not None:
        axes.axvline(line, color="black", linewidth=0.8, zorder=1)

    # The second estimates first, so that the first lie on top.
    for is_hollow, table in reversed(list(enumerate(tables))):
        intervals = zip(table.index, table["ci_low"], table["ci_high"], strict=True)
        for row, (row_name, ci_low, ci_high) in enumerate(intervals):
            if np.isfinite(ci_low):
                axes.plot(
                    [ci_low, ci_high],
                    [row, row],
                    color=colours[row_name],
                    marker="|",  # visible above and below a mark that is wider than the interval
                    markersize=11,
                    markeredgewidth=1.5,
                    linewidth=2,
                    gid="interval",
                    solid_capstyle="butt",
                    zorder=3,
                )
        points = table.assign(row=range(len(table)), name=list(table.index))
        points = points.dropna(subset="value")
        sns.scatterplot(
            points,
            x="value",
            y="row",
            hue="name",
            style="name",
            size="name",
            sizes=sizes,
            palette=colours,
            markers=markers,
            legend=False,
            ax=axes,
            zorder=4,
            clip_on=False,
            linewidth=0.8,
        )
        if is_hollow:
            edge_colours = [colours[row_name] for row_name in points["name"]]
            axes.collections[-1].set(edgecolor=edge_colours, facecolor="white", linewidth=1.5)

    for row in np.flatnonzero(tables[0]["value"].isna()):
        axes.annotate(
            "not measured",
            (0.02, row),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            color=GREY,
        )
    if best_row is not None:
        axes.plot(
            [tables[0].loc[best_row, "value"]],
            [list(tables[0].index).index(best_row)],
            "o",
            markersize=15,
            mfc="none",
            mec="black",
            mew=1.2,
            clip_on=False,
            zorder=5,
            gid="ring",
        )

    # The x axis holds every interval, and the line.
    ends = [interval_ends(table.dropna(subset="value")).to_numpy().ravel() for table in tables]
    x_values = np.concatenate(ends)
    if len(x_values):
        set_limits(axes, x_values if line is None else np.append(x_values, line))
    axes.set_ylabel("")


def _find_clearly_best(table: pd.DataFrame, smaller_is_better: bool) -> str | None:
    """Finds the row whose confidence interval lies beyond those of all others.

    Args:
        table: Estimates, a row each.
        smaller_is_better: Whether the best row has the smallest value.

    Returns:
        Its name; None where intervals overlap or are unknown.
    """
    if len(table) < 2 or table["ci_low"].isna().any():
        return None
    # In terms of "larger is better": the end that is nearest to the other rows, and the one that is farthest.
    if smaller_is_better:
        worst_case, best_case = -table["ci_high"], -table["ci_low"]
    else:
        worst_case, best_case = table["ci_low"], table["ci_high"]
    best_row = worst_case.idxmax()
    is_clear = (worst_case[best_row] > best_case.drop(best_row)).all()
    return best_row if is_clear else None
