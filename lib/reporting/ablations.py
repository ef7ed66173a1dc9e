"""How lesson 09 shows ablations: levels and gains as a table, gains as a figure, the answer as a sentence, and all of
them side by side.

A gain is a difference to the variant that it is held against, so 0 is no change. Clear means that its 95 % interval
leaves 0 out; nothing is corrected for how many gains there are, and the lesson says how many would be clear by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from lib import draw
from lib.ablations.comparison import Comparison, Measure, metrics, slug
from lib.measure.variance import read_off
from lib.page.lesson import Lesson
from lib.page.tables import listed
from lib.params import Params
from lib.reporting.words import number, plain, signed
from lib.stats import Interval

STAND_IN = "scripted stand-in"
KEY_METRICS = ("changes.total", "changes.clear", "changes.better", "changes.worse")


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


def answer(compared: Comparison) -> str:
    """One sentence: which changes clearly move the first measure, and how many do not."""
    if not compared.against:
        return f"{_upper(compared.about)}: nothing to change under these settings."
    main, gains = compared.main, {v: row[compared.main.column] for v, row in compared.gains.items()}
    told = []
    for word, up in (("higher", True), ("lower", False)):
        moved = [v for v, g in gains.items() if g.excludes(0) and (g.value > 0) == up]
        if moved:
            by = listed([f"{v} ({number(gains[v], main.digits, True)})" for v in moved])
            told.append(f"{main.label} clearly {word} with {by}")
    still = [v for v, g in gains.items() if not g.excludes(0)]
    if still and not told:
        told.append(f"no clear change in {main.label} with {listed(still) if len(still) < 4 else 'any of them'}")
    elif still:
        told.append(f"not clearly changed with {listed(still) if len(still) < 4 else f'the other {len(still)}'}")
    return f"{_upper('; '.join(told))}{_stand_in(compared)}."


def _stand_in(compared: Comparison) -> str:
    return f" ({STAND_IN} decides)" if compared.backend == "scripted" else ""


def title(compared: Comparison) -> str:
    """How many of the changes are clear, for the figure."""
    gains = [row[compared.main.column] for row in compared.gains.values()]
    clear = sum(g.excludes(0) for g in gains)
    changes = "1 change clearly moves" if len(gains) == 1 else f"{len(gains)} changes clearly move"
    return f"{_upper(label(compared))}: {clear} of {changes} {compared.main.label}"


def alt(compared: Comparison) -> str:
    """The figure in words."""
    return f"Paired gains with 95 % intervals. {answer(compared)}"


def figure(compared: Comparison) -> Figure:
    """A panel per measure, a row per change: its gain and interval around a line at no change. Upward and downward
    triangles are clear changes for the better and for the worse, squares clear ones that are neither, dots the rest."""
    names = {v: f"{v}\nagainst {compared.against[v]}" if _many(compared) else v for v in compared.gains}
    rows = {name: {m.column: compared.gains[v][m.column] for m in compared.measures} for v, name in names.items()}
    like = {(name, m.column): _look(m, rows[name][m.column]) for name in rows for m in compared.measures}
    squares = "" if all(m.better for m in compared.measures) else " squares: clear, and neither;"
    count = len(compared.measures)
    return draw.points(
        rows, title(compared), {m.column: f"change in {m.label}" for m in compared.measures}, line=0, like=like,
        across=count, wide=4.2 + 2.6 * (count - 1) + 1.5, name=60,
        note=f"Triangles: clearly better or worse;{squares} dots: not clear.{_note(compared)}",
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


def _note(compared: Comparison) -> str:
    against = sorted(set(compared.against.values()))
    told = f" 0: {against[0]}." if len(against) == 1 else ""
    return told + (f" Decided by a {STAND_IN}." if compared.backend == "scripted" else "")


def present(lesson: Lesson, compared: Comparison) -> None:
    """One ablation in a lesson: figure (where anything is changed), table, metrics, and the answer."""
    if compared.against:
        lesson.figure(figure(compared), compared.name.replace(".", "_"), alt=alt(compared))
    lesson.table(table(compared), caption(compared))
    lesson.metrics(metrics(compared))
    print(answer(compared))


# The student's rules --------------------------------------------------------------------------------


def panels(every: Mapping[str, Comparison]) -> Figure:
    """A panel per policy, a row per rule: the change in the first measure."""
    rows: dict[str, dict[str, Interval]] = {}
    for policy, compared in every.items():
        for name, row in compared.gains.items():
            rows.setdefault(name, {})[policy] = row[compared.main.column]
    main = next(iter(every.values())).main
    like = {(name, policy): _look(main, gain) for name, row in rows.items() for policy, gain in row.items()}
    return draw.points(
        rows, _rules_title(every), f"change in {main.label}", line=0, like=like, across=len(every), wide=11, name=60,
        note="Over seeds. Triangles: clearly fewer (up) or more (down) steps.",
    )  # fmt: skip


def _clear(every: Mapping[str, Comparison]) -> tuple[int, int]:
    """How many changes are clear, and how many there are."""
    gains = [row[c.main.column] for c in every.values() for row in c.gains.values()]
    return sum(g.excludes(0) for g in gains), len(gains)


def _rules_title(every: Mapping[str, Comparison]) -> str:
    clear, total = _clear(every)
    return f"Rules of the student that the paper leaves open: {clear} of {total} changes clearly move episode length"


def panels_alt(every: Mapping[str, Comparison]) -> str:
    """The figure in words: per rule, the largest change."""
    first = next(iter(every.values()))
    told = []
    for rule in first.against:
        moved = {policy: c.gains[rule][c.main.column] for policy, c in every.items()}
        most = max(moved, key=lambda policy: abs(moved[policy].value))
        told.append(f"{rule}: most for {most}, {number(moved[most], 1, True)} steps")
    return f"{_rules_title(every)}. " + "; ".join(told) + "."


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
    """How many changes are clear, under how many rules the policies keep their order, and the missing rule."""
    clear, total = _clear(every)
    levels = {policy: {v: row[c.main.column].value for v, row in c.levels.items()} for policy, c in every.items()}
    variants = list(next(iter(levels.values())))
    usual, *changed = (sorted(levels, key=lambda policy, v=v: levels[policy][v]) for v in variants)
    kept = sum(order == usual for order in changed)
    told = (
        f"{clear} of {total} changes clearly move the length of episodes; the order of the policies by length, "
        f"{' < '.join(usual)}, stays under {kept} of {len(changed)} changed rules."
    )
    if not settings.education.answers:
        told += " Difficulties calibrated from answers were not tried: education.answers names no file."
    return told


def search_table(searched: pd.DataFrame, best: int = 8) -> pd.DataFrame:
    """The nearest combinations, and ours wherever it is."""
    ranked = searched.assign(place=range(1, len(searched) + 1))
    shown = ranked[(ranked["place"] <= best) | ranked["ours"]]
    return shown[["place", *(column for column in searched)]].assign(ours=shown["ours"].map({True: "ours", False: ""}))


def search_answer(searched: pd.DataFrame) -> str:
    """Where our rules stand among all combinations."""
    place = searched.index[searched["ours"]]
    if not len(place):
        return f"The rules of params.yaml are not among the {len(searched)} combinations."
    mine, best = searched.loc[place[0]], searched.iloc[0]
    return (
        f"By these stand-ins our rules are number {place[0] + 1} of {len(searched)}, at a distance of "
        f"{plain(mine['distance'])} from Table 2 (the nearest: {plain(best['distance'])}; "
        f"a distance of 0.10 is lengths that are 10 % off)."
    )


# Over a training --------------------------------------------------------------------------------------


def changes_table(changes: Mapping[str, Mapping[str, Interval]]) -> pd.DataFrame:
    """A row per training: how much each rate changed."""
    return pd.DataFrame(
        [
            {"training": name} | {column.replace("_", " "): number(found, 2, True) for column, found in row.items()}
            for name, row in changes.items()
        ]
    )


def changes_metrics(changes: Mapping[str, Mapping[str, Interval]]) -> dict[str, float]:
    """`corl_fixed.small_budget.right_change` and so on."""
    out: dict[str, float] = {}
    for name, row in changes.items():
        for column, found in row.items():
            out |= found.as_metrics(f"corl_fixed.{slug(name)}.{column}")
    return out


# Side by side -------------------------------------------------------------------------------------


def relative(compared: Comparison) -> dict[str, Interval]:
    """Gains in the first measure as shares of what they are held against, taken as known; without those whose
    reference is 0."""
    levels, out = compared.levels, {}
    for variant, row in compared.gains.items():
        base = abs(levels[compared.against[variant]][compared.main.column].value)
        gain = row[compared.main.column]
        if base > 1e-9:
            out[variant] = Interval(gain.value / base, gain.lo / base, gain.hi / base)
    return out


def overview(every: Sequence[Comparison]) -> pd.DataFrame:
    """One row per ablation: what is changed, the measure, and how many changes are clearly better, worse, unclear."""
    rows = []
    for compared in every:
        m = compared.main
        signs = [is_good(m, row[m.column]) for row in compared.gains.values()]
        clear = sum(row[m.column].excludes(0) for row in compared.gains.values())
        rows.append(
            {"ablation": label(compared), "measure": m.label, "changes": len(signs),
             "clearly better": signs.count(True), "clearly worse": signs.count(False),
             "clearly other": clear - signs.count(True) - signs.count(False), "not clear": len(signs) - clear}
        )  # fmt: skip
    return pd.DataFrame(rows)


def counts(every: Sequence[Comparison]) -> dict[str, int]:
    """Metrics of the overview: changes.total, .clear, .better, .worse."""
    told = overview(every)
    clear = int(told["changes"].sum() - told["not clear"].sum())
    found = (int(told["changes"].sum()), clear, int(told["clearly better"].sum()), int(told["clearly worse"].sum()))
    return dict(zip(KEY_METRICS, found, strict=True))


def overall(every: Sequence[Comparison]) -> str:
    """How many changes are clear, beside how many would be by chance, and the largest one, as a sentence."""
    told = overview(every)
    total, unclear = int(told["changes"].sum()), int(told["not clear"].sum())
    largest, other = _largest(every), told["clearly other"].sum()
    kinds = f"{told['clearly worse'].sum()} for the worse, {told['clearly better'].sum()} for the better"
    sentence = (
        f"Of {total} changes {total - unclear} are clear ({kinds}{f', {other} neither' if other else ''}), "
        f"about {plain(0.05 * total, 1)} would be by chance if none mattered"
    )
    return sentence + (f"; the largest: {largest}" if largest else "")


def _largest(every: Sequence[Comparison]) -> str:
    found = [(abs(g.value), c, v, g) for c in every for v, g in relative(c).items() if g.excludes(0)]
    if not found:
        return ""
    _, compared, variant, gain = max(found, key=lambda each: each[0])
    return f"{variant} ({compared.about}: {signed(100 * gain.value, 0)} % {compared.main.label}{_stand_in(compared)})"


def side_by_side(every: Sequence[Comparison]) -> Figure:
    """Every change as a share of what it is held against."""
    rows, like, about = {}, {}, []
    for c in every:
        for v, g in relative(c).items():
            name = f"{c.about}: {v}" + (" *" if c.backend == "scripted" else "")
            rows[name], like[name] = Interval(100 * g.value, 100 * g.lo, 100 * g.hi), _look(c.main, g)
            about.append(c.about)
    note = "Triangles: clearly better or worse; squares: clear, and neither; dots: not clear. "
    note += f"*: decided by a {STAND_IN}.{_left_out(every)}"
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


def side_by_side_alt(every: Sequence[Comparison]) -> str:
    """The same in words."""
    return (
        f"Every ablation's change of its first measure, in percent, with intervals. {overall(every)}.{_left_out(every)}"
    )


def _left_out(every: Sequence[Comparison]) -> str:
    """How many changes have no share."""
    missing = sum(len(c.gains) - len(relative(c)) for c in every)
    return f" Not shown, for what they are held against is 0: {missing}." if missing else ""
