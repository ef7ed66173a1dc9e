"""How lesson 09 shows ablations: levels and gains as a table, gains as a figure, and all of them side by side.

A gain is a difference to the variant that it is held against, so 0 is no change. Clear means that its 95 % interval
leaves 0 out; nothing is corrected for how many gains there are, and the lesson says how many would be clear by chance.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import plots, stats
from lib.reports.lesson import Lesson
from lib.reports.wording import plain, signed
from lib.stats.ablation_comparison import BETTER, OTHER, UNCLEAR, WORSE, Comparison, metrics

STAND_IN = "scripted stand-in"
KEY_METRICS = ("changes.total", "changes.clear", "changes.better", "changes.worse")
plots.register(
    {
        BETTER: ("#0072B2", "^"),
        WORSE: ("#D55E00", "v"),
        OTHER: ("#444444", "s"),
        UNCLEAR: ("#8A8A8A", "o"),
        "Equal": ("#56B4E9", "v"),
    }
)
MARKS = "Triangles: clearly better or worse; squares: clear, and neither; dots: not clear."


def label(compared: Comparison) -> str:
    """What is changed, and that a stand-in decided where one did."""
    told = compared.about[0].upper() + compared.about[1:]
    return told + (f" ({STAND_IN})" if compared.backend == "scripted" else "")


def table(compared: Comparison) -> pd.DataFrame:
    """Every variant: its gain, beside what, the smallest gain that could have been told, and all measures."""
    levels, main = compared.levels, compared.main
    out = pd.DataFrame(index=levels[main.column].index)
    if compared.against:
        gains = compared.gains[main.column]
        out[f"gain in {main.label}"], out["could have told"] = (
            stats.intervals(gains),
            gains["mde"].astype(float),
        )
        out["beside"] = pd.Series(dict(compared.against))
    return out.assign(
        **{m.label: stats.intervals(levels[m.column]) for m in compared.measures}
    ).fillna({"beside": ""})


def moved(gains: pd.DataFrame, what: str) -> str:
    """How many of the changes are clear."""
    clear, changes = (gains["look"] != UNCLEAR).sum(), len(gains)
    return f"{clear} of {changes} change{'s' * (changes > 1)} clearly move{'s' * (changes == 1)} {what}"


def figure(compared: Comparison) -> Figure:
    """A panel per measure, a row per change: its gain and interval around a line at no change. Upward and downward
    triangles are clear changes for the better and for the worse, squares clear ones that are neither, dots the rest."""
    against = sorted(set(compared.against.values()))
    several = (
        {v: f"{v}\nagainst {old}" for v, old in compared.against.items()}
        if len(against) > 1
        else {}
    )
    found = (
        pd.concat(compared.gains, names=["measure"]).rename(several, level="variant").swaplevel()
    )
    across = min(3, len(compared.measures))
    title = f"{label(compared)}: {moved(compared.gains[compared.main.column], compared.main.label)}"
    return plots.points(
        found,
        title,
        {m.column: f"change in {m.label}" for m in compared.measures},
        line=0,
        like=found["look"].to_dict(),
        across=across,
        wide=4.2 + 2.6 * (across - 1) + 1.5,
        name=60,
        note=MARKS + (f" 0: {against[0]}." if len(against) == 1 else ""),
    )


def present(lesson: Lesson, compared: Comparison) -> None:
    """One ablation in a lesson: figure (where anything is changed), table and metrics."""
    if compared.against:
        lesson.figure(figure(compared), compared.name.replace(".", "_"))
    lesson.table(table(compared), f"{label(compared)}: gains inside pairs, and means")
    lesson.metrics(metrics(compared))


# The student's rules --------------------------------------------------------------------------------


def rules(every: Mapping[str, Comparison]) -> tuple[Figure, pd.DataFrame]:
    """A panel per policy and a row per rule, the change in the first measure; and the same as a table, on top the
    level as it is."""
    main = next(iter(every.values())).main
    found = pd.concat(
        {policy: c.gains[main.column] for policy, c in every.items()}, names=["policy"]
    ).swaplevel()
    sheet = plots.points(
        found,
        f"Rules of the student that the paper leaves open: {moved(found, 'episode length')}",
        f"change in {main.label}",
        line=0,
        like=found["look"].to_dict(),
        across=len(every),
        wide=11,
        name=60,
        note="Over seeds. " + MARKS,
    )
    usual = {policy: stats.intervals(c.levels[main.column]).iloc[:1] for policy, c in every.items()}
    changed = {policy: stats.intervals(c.gains[main.column]) for policy, c in every.items()}
    return sheet, pd.concat([pd.DataFrame(usual), pd.DataFrame(changed)]).rename_axis("rule")


def order(every: Mapping[str, Comparison]) -> str:
    """Under how many rules the policies keep their order."""
    levels = pd.DataFrame({policy: c.levels[c.main.column]["value"] for policy, c in every.items()})
    usual, *changed = (
        row.sort_values(kind="stable").index.tolist() for _, row in levels.iterrows()
    )
    kept = sum(each == usual for each in changed)
    return f"The order of the policies by length, {' < '.join(usual)}, stays under {kept} of {len(changed)} rules."


# Side by side -------------------------------------------------------------------------------------


def overview(every: Sequence[Comparison]) -> pd.DataFrame:
    """One row per ablation: what is changed, the measure, and how many changes are clearly better, worse, unclear."""
    looks = [
        c.gains[c.main.column]["look"].value_counts() if c.against else pd.Series(dtype=int)
        for c in every
    ]
    counted = (
        pd.DataFrame(looks).reindex(columns=[BETTER, WORSE, OTHER, UNCLEAR]).fillna(0).astype(int)
    )
    about = {"ablation": [label(c) for c in every], "measure": [c.main.label for c in every]}
    return (
        pd.DataFrame(about)
        .assign(changes=counted.sum(axis=1).tolist())
        .join(counted.reset_index(drop=True))
    )


def counts(every: Sequence[Comparison]) -> dict[str, int]:
    """Metrics of the overview: changes.total, .clear, .better, .worse."""
    told = overview(every)[["changes", UNCLEAR, BETTER, WORSE]].sum()
    found = told["changes"], told["changes"] - told[UNCLEAR], told[BETTER], told[WORSE]
    return dict(zip(KEY_METRICS, map(int, found), strict=True))


def overall(every: Sequence[Comparison]) -> str:
    """How many changes are clear, beside how many would be by chance, and the largest one, as a sentence."""
    total, clear, better, worse = counts(every).values()
    sentence = (
        f"Of {total} changes {clear} are clear ({worse} for the worse, {better} for the better), "
        f"about {plain(0.05 * total, 1)} would be by chance if none mattered"
    )
    found = [
        (abs(row["value"]), c, variant, row["value"])
        for c in every
        if c.against
        for variant, row in c.relative().iterrows()
        if row["look"] != UNCLEAR
    ]
    if not found:
        return sentence
    _, most, variant, gain = max(found, key=lambda each: each[0])
    moved = f"{signed(100 * gain, 0)} % {most.main.label}"
    moved += f" ({STAND_IN} decides)" if most.backend == "scripted" else ""
    return f"{sentence}; the largest: {variant} ({most.about}: {moved})"


def side_by_side(every: Sequence[Comparison]) -> Figure:
    """Every change as a share of what it is held against."""
    parts = {c.about + " *" * (c.backend == "scripted"): c.relative() for c in every if c.against}
    left = sum(len(c.against) for c in every) - sum(map(len, parts.values()))
    note = f"{MARKS} *: decided by a {STAND_IN}."
    note += f" Not shown, for what they are held against is 0: {left}." if left else ""
    if not any(map(len, parts.values())):
        return plots.sheet(overall(every), 10.5, 1.4, note)
    found = pd.concat(parts, names=["about"])
    about = found.index.get_level_values("about")
    found = found.set_axis([f"{part}: {variant}" for part, variant in found.index]).rename_axis(
        "change"
    )
    shares = found.assign(**(100 * found[["value", "ci_low", "ci_high"]]))
    sheet = plots.points(
        shares,
        overall(every),
        "change of the first measure, % of what it is held against",
        line=0,
        like=found["look"].to_dict(),
        wide=10.5,
        name=90,
        note=note,
    )
    (axes,) = sheet.axes
    axes.set_xscale("symlog", linthresh=20)
    axes.xaxis.set_major_formatter("{x:g}")
    for row in (i for i in range(1, len(about)) if about[i] != about[i - 1]):
        axes.axhline(row - 0.5, color=plots.FAINT, linewidth=0.6, zorder=0)  # between ablations
    return sheet
