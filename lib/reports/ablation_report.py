"""How lesson 09 and its appendix show ablations: a figure per system, tables, and all changes side by side.

A gain is a paired difference to the baseline variant, so 0 is no change. Clear means that its 95 % interval leaves 0
out, whatever the number of gains; how many stay clear when all are tested at once (Holm) is counted apart.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import plots, stats
from lib.reports.lesson import Lesson
from lib.reports.wording import format_number, format_signed
from lib.stats.ablation_comparison import BETTER, OTHER, UNCLEAR, WORSE, Comparison, Measure

STAND_IN = "scripted stand-in"
KEY_METRICS = ("changes.total", "changes.clear", "changes.better", "changes.worse")
AFTER_HOLM = "clear after Holm"
MARKS = "Triangles: clearly better or worse; squares: clear, and neither; dots: not clear."


def describe_change(comparison: Comparison) -> str:
    """What an ablation changes, with a note where a scripted model decided."""
    description = comparison.about[0].upper() + comparison.about[1:]
    return description + (f" ({STAND_IN})" if comparison.backend == "scripted" else "")


def make_table(comparison: Comparison) -> pd.DataFrame:
    """Tabulates the variants of an ablation.

    Args:
        comparison: The measured variants.

    Returns:
        One row per variant: its gain in the main measure, the minimum detectable effect, the baseline variant, and
        the level of every measure. Variants without a baseline have no gain.
    """
    levels = comparison.levels
    main = comparison.main
    table = pd.DataFrame(index=levels[main.column].index)
    if comparison.baselines:
        gains = comparison.gains[main.column]
        table[f"gain in {main.label}"] = stats.intervals(gains)
        table["minimum detectable effect"] = gains["mde"].astype(float)
        table["compared with"] = pd.Series(dict(comparison.baselines))
    for measure in comparison.measures:
        table[measure.label] = stats.intervals(levels[measure.column])
    return table.fillna({"compared with": ""})


def summarize_clear_changes(gains: pd.DataFrame, measure: str) -> str:
    """How many of the changes are clear, such as "1 of 3 changes clearly moves accuracy"."""
    num_clear = (gains["look"] != UNCLEAR).sum()
    num_changes = len(gains)
    changes = "changes" if num_changes > 1 else "change"
    move = "moves" if num_changes == 1 else "move"
    return f"{num_clear} of {num_changes} {changes} clearly {move} {measure}"


def draw_gains(comparison: Comparison) -> Figure:
    """Draws the gains of an ablation with their intervals, around a line at no change.

    Args:
        comparison: The measured variants.

    Returns:
        A figure with a panel per measure and a row per change. Upward and downward triangles are clear changes for
        the better and for the worse, squares clear ones that are neither, dots the others.
    """
    baselines = sorted(set(comparison.baselines.values()))
    gains = pd.concat(comparison.gains, names=["measure"])
    note = MARKS
    if len(baselines) > 1:  # each row says its own baseline
        row_names = {
            variant: f"{variant}\nagainst {baseline}"
            for variant, baseline in comparison.baselines.items()
        }
        gains = gains.rename(row_names, level="variant")
    elif baselines:
        note += f" 0: {baselines[0]}."
    gains = gains.swaplevel()

    main = comparison.main
    summary = summarize_clear_changes(comparison.gains[main.column], main.label)
    return plots.forest_plot(
        gains,
        f"{describe_change(comparison)}: {summary}",
        {measure.column: f"change in {measure.label}" for measure in comparison.measures},
        line=0,
        like=gains["look"].to_dict(),
        across=2,
        wide=plots.MAX_WIDTH,
        name=36,
        note=note,
    )


def present(lesson: Lesson, comparison: Comparison) -> None:
    """Shows one ablation in a lesson: its figure (where anything is changed) and its table."""
    if comparison.baselines:
        lesson.figure(draw_gains(comparison), comparison.name.replace(".", "_"))
    caption = f"{describe_change(comparison)}: gains inside pairs, and means"
    lesson.table(make_table(comparison), caption)


# One system ---------------------------------------------------------------------------------------


def draw_changes(system: str, gains: pd.DataFrame, measure: Measure, backend: str = "") -> Figure:
    """Draws chosen changes of one system, by one measure, around a line at no change.

    Args:
        system: Its name, for the title.
        gains: A row per change, with value, ci_low, ci_high and look, as in `Comparison.gains`.
        measure: What was measured.
        backend: Which kind of model decided; a note says so where it is "scripted".

    Returns:
        A figure with a row per change. The title counts those that are clear.
    """
    gains = gains.rename_axis("change")
    note = MARKS
    if backend == "scripted":
        note += f" A {STAND_IN} decided."
    return plots.forest_plot(
        gains,
        f"{system}: {summarize_clear_changes(gains, measure.label)}",
        f"change in {measure.label}",
        line=0,
        like=gains["look"].to_dict(),
        wide=plots.MAX_WIDTH,
        name=44,
        note=note,
    )


# The rules of the student simulator -----------------------------------------------------------------


def compare_rules(comparisons: Mapping[str, Comparison]) -> tuple[Figure, pd.DataFrame]:
    """Shows how the open rules of the student simulator change the first measure of each policy.

    Args:
        comparisons: By policy, the simulator's rules as variants.

    Returns:
        A figure with a panel per policy and a row per rule, and a table of the same gains by rule and policy, with the
        levels under the usual rules in its first row.
    """
    main = next(iter(comparisons.values())).main
    gains_by_policy = {
        policy: comparison.gains[main.column] for policy, comparison in comparisons.items()
    }
    gains = pd.concat(gains_by_policy, names=["policy"]).swaplevel()
    summary = summarize_clear_changes(gains, "episode length")
    figure = plots.forest_plot(
        gains,
        f"Rules of the student that the paper leaves open: {summary}",
        f"change in {main.label}",
        line=0,
        like=gains["look"].to_dict(),
        wide=plots.MAX_WIDTH,
        name=36,
        note="Over seeds. " + MARKS,
    )
    usual_levels, changes = {}, {}
    for policy, comparison in comparisons.items():
        # The first row has the usual rules, whose level the gains below it are changes of.
        usual_levels[policy] = stats.intervals(comparison.levels[main.column]).iloc[:1]
        changes[policy] = stats.intervals(gains_by_policy[policy])
    table = pd.concat([pd.DataFrame(usual_levels), pd.DataFrame(changes)])
    return figure, table.rename_axis("rule")


def summarize_policy_order(comparisons: Mapping[str, Comparison]) -> str:
    """Summarizes under how many variants the policies keep their order by episode length.

    Args:
        comparisons: The ablation of each policy, with the same variants; the first one is the baseline.

    Returns:
        A sentence.
    """
    levels = pd.DataFrame(
        {
            policy: comparison.levels[comparison.main.column]["value"]
            for policy, comparison in comparisons.items()
        }
    )
    orders = [row.sort_values(kind="stable").index.tolist() for _, row in levels.iterrows()]
    usual_order, changed_orders = orders[0], orders[1:]
    num_same = sum(order == usual_order for order in changed_orders)
    return (
        f"The order of the policies by length, {' < '.join(usual_order)}, "
        f"stays under {num_same} of {len(changed_orders)} rules."
    )


# Side by side -------------------------------------------------------------------------------------


def make_overview(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Tabulates all ablations.

    Args:
        comparisons: The ablations.

    Returns:
        One row per ablation: what is changed, the measure, the number of changes, how many of them are clearly
        better,
        clearly worse, clear and neither, or unclear, and how many stay clear when all changes are tested at once.
    """
    look_counts = []
    for comparison in comparisons:
        if comparison.baselines:
            gains = comparison.gains[comparison.main.column]
            look_counts.append(gains["look"].value_counts())
        else:
            look_counts.append(pd.Series(dtype=int))
    counts = pd.DataFrame(look_counts).reindex(columns=[BETTER, WORSE, OTHER, UNCLEAR])
    counts = counts.fillna(0).astype(int)  # (ablations, looks)
    overview = pd.DataFrame(
        {
            "ablation": [describe_change(comparison) for comparison in comparisons],
            "measure": [comparison.main.label for comparison in comparisons],
            "changes": counts.sum(axis=1).tolist(),
        }
    )
    overview = overview.join(counts.reset_index(drop=True))
    return overview.assign(**{AFTER_HOLM: count_clear_after_holm(comparisons)})


def count_clear_after_holm(comparisons: Sequence[Comparison]) -> list[int]:
    """Counts the changes of each ablation that stay significant after Holm's correction over all ablations.

    Args:
        comparisons: The ablations.

    Returns:
        One number per ablation.
    """
    p_value_by_change = {}
    for position, comparison in enumerate(comparisons):
        if comparison.baselines:
            for variant, gain in comparison.gains[comparison.main.column].iterrows():
                p_value_by_change[position, variant] = gain["p_value"]
    if not p_value_by_change:
        return [0] * len(comparisons)
    frame = pd.DataFrame({"p_value": pd.Series(p_value_by_change, dtype=float)})
    num_significant = stats.holm(frame).groupby(level=0).sum()
    return num_significant.reindex(range(len(comparisons)), fill_value=0).astype(int).tolist()


def count_changes(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Counts the changes of all ablations.

    Args:
        comparisons: The ablations.

    Returns:
        The metrics changes.total, .clear, .better, .worse, and .clear_after_holm.
    """
    overview = make_overview(comparisons)
    num_changes = int(overview["changes"].sum())
    num_clear = num_changes - int(overview[UNCLEAR].sum())
    num_better = int(overview[BETTER].sum())
    num_worse = int(overview[WORSE].sum())
    counts = (num_changes, num_clear, num_better, num_worse)
    values = dict(zip(KEY_METRICS, counts, strict=True))
    values["changes.clear_after_holm"] = int(overview[AFTER_HOLM].sum())
    return values


def summarize_all(comparisons: Sequence[Comparison]) -> str:
    """Summarizes all ablations in a sentence: how many changes are clear, how many by chance, and the largest.

    Args:
        comparisons: The ablations.
    """
    total, clear, better, worse, clear_after_holm = count_changes(comparisons).values()
    sentence = (
        f"Of {total} changes {clear} are clear ({worse} for the worse, {better} for the better), "
        f"about {format_number(0.05 * total, 1)} would be by chance if none mattered; "
        f"{clear_after_holm} stay clear after Holm's correction"
    )

    # The largest clear change as a share of its baseline; of equal ones the first.
    largest = None
    for comparison in comparisons:
        if not comparison.baselines:
            continue
        for variant, row in comparison.relative().iterrows():
            if row["look"] == UNCLEAR:
                continue
            if largest is None or abs(row["value"]) > abs(largest[2]):
                largest = comparison, variant, row["value"]
    if largest is None:
        return sentence
    comparison, variant, gain = largest
    effect = f"{format_signed(100 * gain, 0)} % {comparison.main.label}"
    if comparison.backend == "scripted":
        effect += f" ({STAND_IN} decides)"
    return f"{sentence}; the largest: {variant} ({comparison.about}: {effect})"


def draw_side_by_side(comparisons: Sequence[Comparison]) -> Figure:
    """Draws every change as a percentage of its baseline, one row each, grouped by ablation.

    Args:
        comparisons: The ablations.

    Returns:
        A forest plot with a logarithmic axis beyond 20 %; changes of a baseline at 0 are left out.
    """
    relative_gains = {}
    for comparison in comparisons:
        if comparison.baselines:
            mark = " *" if comparison.backend == "scripted" else ""
            relative_gains[comparison.about + mark] = comparison.relative()
    num_changes = sum(len(comparison.baselines) for comparison in comparisons)
    num_rows = sum(len(gains) for gains in relative_gains.values())
    num_omitted = num_changes - num_rows  # a change has no share of a baseline that is 0
    note = f"{MARKS} *: decided by a {STAND_IN}."
    if num_omitted:
        note += f" Not shown, for what they are held against is 0: {num_omitted}."
    if not num_rows:
        return plots.new_figure(summarize_all(comparisons), plots.MAX_WIDTH, 1.4, note)

    gains = pd.concat(relative_gains, names=["about"])
    about = gains.index.get_level_values("about")
    row_names = [f"{ablation}: {variant}" for ablation, variant in gains.index]
    gains = gains.set_axis(row_names).rename_axis("change")
    percentages = gains.assign(**(100 * gains[["value", "ci_low", "ci_high"]]))
    figure = plots.forest_plot(
        percentages,
        summarize_all(comparisons),
        "change of the first measure, % of what it is held against",
        line=0,
        like=gains["look"].to_dict(),
        wide=plots.MAX_WIDTH,
        name=48,
        note=note,
    )
    (axes,) = figure.axes
    axes.set_xscale("symlog", linthresh=20)  # percent: linear up to here
    axes.xaxis.set_major_formatter("{x:g}")
    for row in range(1, len(about)):
        if about[row] != about[row - 1]:  # a line between two ablations
            axes.axhline(row - 0.5, color=plots.FAINT, linewidth=0.6, zorder=0)
    return figure
