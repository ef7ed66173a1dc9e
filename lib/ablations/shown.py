"""How lesson 09 shows ablations: levels and gains as a table, gains as a figure, and all of them side by side.

A gain is a difference to the variant that it is held against, so 0 is no change. Clear means that its 95 % interval
leaves 0 out; nothing is corrected for how many gains there are, and the lesson says how many would be clear by chance.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.ablations.comparison import Comparison, Measure, metrics
from lib.measure.variance import read_off
from lib.page.lesson import Lesson
from lib.page.words import number, plain, scaled, signed
from lib.params import Params
from lib.stats import Interval

STAND_IN = "scripted stand-in"
KEY_METRICS = ("changes.total", "changes.clear", "changes.better", "changes.worse")
draw.register({
    "clearly better": ("#0072B2", "^"), "clearly worse": ("#D55E00", "v"), "clear, and neither": ("#444444", "s"),
    "not clear": ("#8A8A8A", "o"), "Equal": ("#56B4E9", "v"),
})  # fmt: skip
MARKS = "Triangles: clearly better or worse; squares: clear, and neither; dots: not clear."


def label(compared: Comparison) -> str:
    """What is changed, and that a stand-in decided where one did."""
    return compared.about + (f" ({STAND_IN})" if compared.backend == "scripted" else "")


def table(compared: Comparison) -> pd.DataFrame:
    """Every variant: its gain, the smallest gain that could have been told, and all measures."""
    levels, gains, main = compared.levels, compared.gains, compared.main
    rows = []
    for variant in compared.variants:
        gain = told = "-"
        if variant in gains:
            beside = f" beside {compared.against[variant]}" if _many(compared) else ""
            gain = number(gains[variant][main.column], main.digits, True) + beside
            told = plain(read_off(gains[variant][main.column].lo, gains[variant][main.column].hi), main.digits)
        shown = {m.label: number(levels[variant][m.column], m.digits) for m in compared.measures}
        rows.append({"variant": variant, f"gain in {main.label}": gain, "could have told": told} | shown)
    return pd.DataFrame(rows)


def caption(compared: Comparison) -> str:
    """What the table shows."""
    who = "seeds and questions" if compared.shared else "seeds"
    usual = set(compared.against.values())
    against = f" beside {usual.pop()}" if len(usual) == 1 else ""
    return f"{_upper(label(compared))}: paired gains{against}, and means; 95 % intervals over {who}"


def _upper(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def is_good(measure: Measure, found: Interval) -> bool | None:
    """Whether a gain is clearly for the better; None where it is not clear, or neither is better."""
    if not measure.better or not found.excludes(0):
        return None
    return (found.value > 0) == (measure.better == "higher")


def title(compared: Comparison) -> str:
    """How many of the changes are clear, for the figure."""
    gains = [row[compared.main.column] for row in compared.gains.values()]
    clear = sum(g.excludes(0) for g in gains)
    changes = "1 change clearly moves" if len(gains) == 1 else f"{len(gains)} changes clearly move"
    return f"{_upper(label(compared))}: {clear} of {changes} {compared.main.label}"


def figure(compared: Comparison) -> Figure:
    """A panel per measure, a row per change: its gain and interval around a line at no change. Upward and downward
    triangles are clear changes for the better and for the worse, squares clear ones that are neither, dots the rest."""
    names = {v: f"{v}\nagainst {compared.against[v]}" if _many(compared) else v for v in compared.gains}
    rows = {name: {m.column: compared.gains[v][m.column] for m in compared.measures} for v, name in names.items()}
    like = {(name, m.column): _look(m, rows[name][m.column]) for name in rows for m in compared.measures}
    across, against = min(3, len(compared.measures)), sorted(set(compared.against.values()))
    note = MARKS + (f" 0: {against[0]}." if len(against) == 1 else "")
    return draw.points(
        rows, title(compared), {m.column: f"change in {m.label}" for m in compared.measures}, line=0, like=like,
        across=across, wide=4.2 + 2.6 * (across - 1) + 1.5, name=60, note=note,
    )  # fmt: skip


def _look(measure: Measure, gain: Interval) -> str:
    """The style that tells what a gain is."""
    sign = is_good(measure, gain)
    if sign is None:
        return "clear, and neither" if gain.excludes(0) else "not clear"
    return "clearly better" if sign else "clearly worse"


def _many(compared: Comparison) -> bool:
    """Whether variants are held against different ones."""
    return len(set(compared.against.values())) > 1


def present(lesson: Lesson, compared: Comparison) -> None:
    """One ablation in a lesson: figure (where anything is changed), table and metrics."""
    if compared.against:
        lesson.figure(figure(compared), compared.name.replace(".", "_"))
    lesson.table(table(compared), caption(compared))
    lesson.metrics(metrics(compared))


# The student's rules --------------------------------------------------------------------------------


def panels(every: Mapping[str, Comparison]) -> Figure:
    """A panel per policy, a row per rule: the change in the first measure."""
    rows: dict[str, dict[str, Interval]] = {}
    for policy, compared in every.items():
        for name, row in compared.gains.items():
            rows.setdefault(name, {})[policy] = row[compared.main.column]
    main = next(iter(every.values())).main
    like = {(name, policy): _look(main, gain) for name, row in rows.items() for policy, gain in row.items()}
    gains = [gain for row in rows.values() for gain in row.values()]
    clear = f"{sum(g.excludes(0) for g in gains)} of {len(gains)} changes clearly move episode length"
    return draw.points(
        rows, f"Rules of the student that the paper leaves open: {clear}", f"change in {main.label}", line=0,
        like=like, across=len(every), wide=11, name=60, note="Over seeds. " + MARKS,
    )  # fmt: skip


def rules_table(every: Mapping[str, Comparison]) -> pd.DataFrame:
    """A row per rule, a column per policy: the change in steps; on top the steps as it is."""
    first = next(iter(every.values()))
    usual = next(iter(first.against.values()))
    rows = [{"rule": usual} | {policy: number(c.levels[usual][c.main.column], 1) for policy, c in every.items()}]
    for rule in first.against:
        gains = {policy: number(c.gains[rule][c.main.column], 1, True) for policy, c in every.items()}
        rows.append({"rule": rule} | gains)
    return pd.DataFrame(rows)


def rules_answer(every: Mapping[str, Comparison], settings: Params) -> str:
    """Under how many rules the policies keep their order, and the missing rule."""
    levels = {policy: {v: row[c.main.column].value for v, row in c.levels.items()} for policy, c in every.items()}
    variants = list(next(iter(levels.values())))
    usual, *changed = (sorted(levels, key=lambda policy, v=v: levels[policy][v]) for v in variants)
    kept = sum(order == usual for order in changed)
    told = f"The order of the policies by length, {' < '.join(usual)}, stays under {kept} of {len(changed)} rules."
    missing = " Difficulties calibrated from answers were not tried: education.answers names no file."
    return told + ("" if settings.education.answers else missing)


def search_table(searched: pd.DataFrame, best: int = 8) -> pd.DataFrame:
    """The nearest combinations, and ours wherever it is."""
    ranked = searched.assign(place=range(1, len(searched) + 1))
    shown = ranked[(ranked["place"] <= best) | ranked["ours"]]
    return shown[["place", *(column for column in searched)]].assign(ours=shown["ours"].map({True: "ours", False: ""}))


# Over a training --------------------------------------------------------------------------------------


def changes_table(changes: Mapping[str, Mapping[str, Interval]]) -> pd.DataFrame:
    """A row per training: how much each rate changed."""
    return pd.DataFrame(
        [
            {"training": name} | {column.replace("_", " "): number(found, 2, True) for column, found in row.items()}
            for name, row in changes.items()
        ]
    )


# Side by side -------------------------------------------------------------------------------------


def relative(compared: Comparison) -> dict[str, Interval]:
    """Gains in the first measure as shares of what they are held against, taken as known; without those whose
    reference is 0."""
    column = compared.main.column
    bases = {v: abs(compared.levels[compared.against[v]][column].value) for v in compared.gains}
    return {v: scaled(compared.gains[v][column], base) for v, base in bases.items() if base > 1e-9}


def overview(every: Sequence[Comparison]) -> pd.DataFrame:
    """One row per ablation: what is changed, the measure, and how many changes are clearly better, worse, unclear."""
    rows = []
    for compared in every:
        m = compared.main
        looks = [_look(m, row[m.column]) for row in compared.gains.values()]
        rows.append(
            {"ablation": label(compared), "measure": m.label, "changes": len(looks),
             "clearly better": looks.count("clearly better"), "clearly worse": looks.count("clearly worse"),
             "clearly other": looks.count("clear, and neither"), "not clear": looks.count("not clear")}
        )  # fmt: skip
    return pd.DataFrame(rows)


def counts(every: Sequence[Comparison]) -> dict[str, int]:
    """Metrics of the overview: changes.total, .clear, .better, .worse."""
    told = overview(every)[["changes", "not clear", "clearly better", "clearly worse"]].sum()
    found = told["changes"], told["changes"] - told["not clear"], told["clearly better"], told["clearly worse"]
    return dict(zip(KEY_METRICS, map(int, found), strict=True))


def overall(every: Sequence[Comparison]) -> str:
    """How many changes are clear, beside how many would be by chance, and the largest one, as a sentence."""
    total, clear, better, worse = counts(every).values()
    sentence = (
        f"Of {total} changes {clear} are clear ({worse} for the worse, {better} for the better), "
        f"about {plain(0.05 * total, 1)} would be by chance if none mattered"
    )
    found = [(abs(g.value), c, v, g) for c in every for v, g in relative(c).items() if g.excludes(0)]
    if not found:
        return sentence
    _, most, variant, gain = max(found, key=lambda each: each[0])
    moved = f"{signed(100 * gain.value, 0)} % {most.main.label}"
    moved += f" ({STAND_IN} decides)" if most.backend == "scripted" else ""
    return f"{sentence}; the largest: {variant} ({most.about}: {moved})"


def side_by_side(every: Sequence[Comparison]) -> Figure:
    """Every change as a share of what it is held against."""
    rows, like, about, left = {}, {}, [], 0
    for c in every:
        found = relative(c)
        left += len(c.gains) - len(found)
        for v, g in found.items():
            name = f"{c.about}: {v}" + (" *" if c.backend == "scripted" else "")
            rows[name], like[name] = scaled(g, 0.01), _look(c.main, g)
            about.append(c.about)
    note = f"{MARKS} *: decided by a {STAND_IN}."
    note += f" Not shown, for what they are held against is 0: {left}." if left else ""
    if not rows:
        return draw.sheet(overall(every), 10.5, 1.4, note)
    sheet = draw.points(
        rows, overall(every), "change of the first measure, % of what it is held against", line=0, like=like, wide=10.5,
        name=90, note=note,
    )  # fmt: skip
    (axes,) = sheet.axes
    axes.set_xscale("symlog", linthresh=20)
    axes.xaxis.set_major_formatter("{x:g}")
    for row in (i for i in range(1, len(about)) if about[i] != about[i - 1]):
        axes.axhline(row - 0.5, color=draw.FAINT, linewidth=0.6, zorder=0)  # between ablations
    return sheet
