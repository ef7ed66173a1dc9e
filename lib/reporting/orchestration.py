"""Figures and tables of the orchestration lesson, made from decision records and from nothing else.

Titles and alt texts are computed from the data that they stand on, and a claim that one thing is above
another is one of paired differences over seeds. Whatever a scripted stand-in decided keeps "scripted" in
its name, and figures say below what that means. Left out: prompts (`dialogue`) and money (`costs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image, ImageDraw, ImageFont

from lib import seeds, stats
from lib.envs.education import LEVELS
from lib.orchestration import results
from lib.orchestration.methods import KINDS
from lib.orchestration.replay import Film
from lib.params import Params
from lib.reporting import figures
from lib.reporting.tables import interval_table
from lib.stats import Interval
from lib.zoo.recipes import OBJECTIVES, SINGLE

SCRIPTED = "Names with scripted: scripted stand-ins, not language models."
_MEASURES = {
    "education": ("length", "aptitude", "gap", "performance"),
    "minigrid": ("length", "success", "lava", "gold"),
}
_FRONT = ("hv_union", "hv_mean", "sparsity", "cardinality")
_READABLE = {
    "invalid": "met a bad reply",
    "fallback": "by fallback",
    "hv_union": "HV, union of episodes",
    "hv_mean": "HV, mean",
}
_GROUPS = {"single": "single policy", "reference": "multi-objective"} | dict.fromkeys(KINDS, "orchestrator")
_EARLY = 10  # steps after which courses are compared; fixed before anyone saw them
_HALO = (withStroke(linewidth=2.5, foreground="white"),)


def _label(methods: Iterable[str]) -> str:
    return SCRIPTED if any("scripted" in method for method in methods) else ""


def _need(frame: pd.DataFrame, columns: Iterable[str], what: str = "the record") -> None:
    """Raises ValueError naming the columns that are not there, or that there is no row."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ValueError(f"{what} has no column {missing}; it has {sorted(map(str, frame.columns))}")
    if frame.empty:
        raise ValueError(f"{what} has no rows; there is nothing to show")


def _decisions(record: pd.DataFrame, methods: Sequence[str], columns: Iterable[str]) -> pd.DataFrame:
    """The decisions of `methods`. Raises ValueError naming what is not there, a column or a method."""
    _need(record, ["method", "seed", *columns])
    absent = sorted(set(methods) - set(record["method"]))
    if absent or not methods:
        raise ValueError(f"no decisions of {absent} in the record; it has {sorted(record['method'].unique())}")
    return record[record["method"].isin(methods)]


def _range(values: Iterable[float]) -> str:
    """Shares as one number where all round to the same, `60%`, or as a range, `46% to 60%`."""
    told = list(dict.fromkeys(f"{value:.0%}" for value in sorted(values)))
    return told[0] if len(told) == 1 else f"{told[0]} to {told[-1]}"


def _signed(difference: Interval, digits: int) -> str:
    """A difference with its sign, `-1.4 [-3.0, +0.2]`."""
    interval = f" [{difference.lo:+.{digits}f}, {difference.hi:+.{digits}f}]" if difference.known else ""
    return f"{difference.value:+.{digits}f}{interval}"


# Tables -------------------------------------------------------------------------------------------


def component_matrix(table: Mapping[str, set[str]], order: Sequence[str]) -> pd.DataFrame:
    """Table 1: which orchestrator sees which component, in the order of the prompt."""
    names = [name for name in order if any(name in seen for seen in table.values())]
    rows = [{"orchestrator": kind} | {name: name in seen for name in names} for kind, seen in table.items()]
    return pd.DataFrame(rows)


def _backends(rows: results.Rows, record: pd.DataFrame) -> list[str]:
    backends = record.groupby("method")["backend"].first()
    return [backends.get(method, "policy") for method in rows]


def _described(table: pd.DataFrame, rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """The table with the group and the backend of each method before the numbers, and readable headings."""
    _need(record, ["method", "kind", "model", "backend"])
    kinds = record.groupby("method")["kind"].first()
    table.insert(0, "backend", _backends(rows, record))
    table.insert(0, "group", [_GROUPS.get(kinds.get(method, "oracle"), kinds.get(method, "oracle")) for method in rows])
    return table.rename(columns=_READABLE)


def outcome_table(rows: results.Rows, record: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Length, objectives and the shares of decisions that went wrong, by method (Table 2 without its fronts).

    Group and backend stand beside the name. Raises ValueError for a record without their columns.
    """
    _need(record, ["method", "model"])
    wanted = (*_MEASURES[domain], "invalid", "fallback")
    asked = set(record.loc[record["model"] != "", "method"])
    kept = {
        m: {k: row[k] for k in wanted if k in row and (k in _MEASURES[domain] or m in asked)} for m, row in rows.items()
    }
    return _described(interval_table(kept), rows, record)


def outcome_caption(domain: str, settings: Params) -> str:
    """What stands in the table, with the number of episodes."""
    what = "means per step" if domain == "education" else "shares"
    episodes, runs = settings.orchestration.episodes, settings.zoo.seeds
    return f"{domain}: length in steps, objectives as {what}; {episodes} episodes under each of {runs} seeds"


def front_table(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """Both hypervolumes, sparsity and cardinality by method."""
    table = interval_table({method: {name: row[name] for name in _FRONT} for method, row in rows.items()})
    return _described(table, rows, record)


def verdict_table(record: pd.DataFrame, domain: str, methods: Sequence[str], rivals: Sequence[str]) -> pd.DataFrame:
    """Paired differences of each method against each rival in length and utility, with a verdict in words."""
    lines = []
    for method in methods:
        for rival, row in results.versus(record, domain, method, rivals, ["length", "utility"]).items():
            lines.append(
                {
                    "method": method,
                    "against": rival,
                    "length": _signed(row["length"], 1),
                    "utility": _signed(row["utility"], 3),
                    "shorter": results.verdict(row["length"], "lower"),
                    "more useful": results.verdict(row["utility"]),
                }
            )
    return pd.DataFrame(lines)


def trouble_table(record: pd.DataFrame) -> pd.DataFrame:
    """Per method that asks a model: decisions, calls, replies of no use by kind, decisions by fallback."""
    _need(record, ["method", "seed", "model", "calls", "invalid", "repaired", "fallback", "trouble"])
    lines = []
    for method, part in record[record["model"] != ""].groupby("method", sort=False):
        kinds = part.loc[part["trouble"] != "", "trouble"].str.split(";").explode().value_counts()
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items(), key=lambda k: (-k[1], k[0])))
        rng = seeds.rng("trouble", method)
        share = part.assign(bad=part["invalid"] > 0).groupby("seed")["bad"].mean()
        lines.append(
            {
                "method": method,
                "decisions": len(part),
                "calls": int(part["calls"].sum()),
                "unusable replies": int(part["invalid"].sum()),
                "decisions with one": stats.mean_interval(share.to_numpy(), rng),
                "mended": int(part["repaired"].sum()),
                "fallbacks": int(part["fallback"].sum()),
                "kinds": told or "none",
            }
        )
    return pd.DataFrame(lines)


def peeking_table(record: pd.DataFrame, peeked: pd.DataFrame, model: str) -> pd.DataFrame:
    """What sharing the environment's random numbers adds, paired by students: length and utility."""
    both = pd.concat([record, peeked], ignore_index=True)
    pairs = [(f"RO {model} peeking", f"RO {model}"), ("greedy look-ahead peeking", "greedy look-ahead")]
    return pd.concat([verdict_table(both, "education", [a], [b]) for a, b in pairs], ignore_index=True)


# Mastery ------------------------------------------------------------------------------------------


def _progress(record: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Mastery before every step up to the horizon; a student who is done keeps the mastery of the end."""
    rows = record[record["method"].isin(methods)]
    longest = int(rows["step"].max()) + 1
    lines = []
    for (method, seed, _), part in rows.groupby(["method", "seed", "episode"]):
        part = part.sort_values("step")
        mastery = [*part["mastery"], part["mastery_after"].iloc[-1]]
        mastery += [mastery[-1]] * (longest + 1 - len(mastery))
        lines.append(pd.DataFrame({"method": method, "seed": seed, "step": range(len(mastery)), "mastery": mastery}))
    frame = pd.concat(lines, ignore_index=True)
    return frame.groupby(["method", "seed", "step"], as_index=False)["mastery"].mean()


def mastery_progression(record: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> Figure:
    """Mean mastery against step, one panel for each of KO, TO, RO, `beside` in every panel (Figures 4, 5)."""
    frame = _progress(record, [*methods, *beside])
    parts = []
    for kind in KINDS:
        own = [method for method in methods if method.startswith(f"{kind} ")]
        part = frame[frame["method"].isin([*own, *beside])]
        parts.append(part.assign(kind=kind, line=part["method"].str.removeprefix(f"{kind} ")))
    quickest = frame[frame["step"] == 10].groupby("method")["mastery"].mean() if frame["step"].max() >= 10 else None
    lead = quickest.idxmax() if quickest is not None else methods[0]
    title = f"After 10 steps {lead} leads, at a mastery of {quickest.max():.2f}" if quickest is not None else "Mastery"
    figure = figures.curves(
        pd.concat(parts), "step", "mastery", "line", "seed", title, "step", "mean mastery", panels="kind", bins=60,
        rng=seeds.rng("mastery"),
    )  # fmt: skip
    return _noted(figure, _label(methods))


def mastery_alt(record: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> str:
    """The curves in words: mastery after 10 and 25 steps."""
    frame = _progress(record, [*methods, *beside])
    means = frame.groupby(["method", "step"])["mastery"].mean()
    steps = [step for step in (10, 25) if step <= frame["step"].max()] or [int(frame["step"].max())]
    told = "; ".join(f"{m} " + ", ".join(f"{means[m, s]:.2f}" for s in steps) for m in (*methods, *beside))
    return f"Mean mastery by step, a panel each for KO, TO and RO. After {' and '.join(map(str, steps))} steps: {told}."


# Flow ---------------------------------------------------------------------------------------------


def _asked(record: pd.DataFrame, method: str) -> pd.DataFrame:
    """One row per question: seed, mastery before the set, difficulty."""
    rows = record.loc[record["method"] == method, ["seed", "mastery", "levels"]]
    if rows.empty:
        raise ValueError(f"no decisions of {method!r} in this record")
    rows = rows.assign(level=rows["levels"].map(list)).explode("level")
    return rows.assign(difficulty=(rows["level"].astype(int) - 1) / (LEVELS - 1))


def flow_shares(record: pd.DataFrame, methods: Sequence[str], delta: float) -> results.Rows:
    """Share of questions below, in and above the flow zone |d - m| <= delta, by method, over seeds."""
    out = {}
    for method in methods:
        asked = _asked(record, method)
        gap = (asked["difficulty"] - asked["mastery"]).round(9)
        where = pd.DataFrame({"below": gap < -delta, "in flow": gap.abs() <= delta, "above": gap > delta})
        rng = seeds.rng("flow", method)
        means = where.groupby(asked["seed"]).mean()
        out[method] = {name: stats.mean_interval(means[name].to_numpy(), rng) for name in where}
    return out


def flow_plane(record: pd.DataFrame, methods: Sequence[str], delta: float) -> Figure:
    """Which questions are asked at which mastery: share of questions by cell, the flow zone dashed (Figure 4)."""
    shares = flow_shares(record, methods, delta)
    most = max(shares, key=lambda name: shares[name]["in flow"].value)
    with figures.theme():
        figure = Figure(figsize=(2.35 * len(methods) + 0.6, 3.5), layout="constrained")
        panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
        for axes, method in zip(panels, methods, strict=True):
            image = _plane(axes, _asked(record, method), delta)
            inside = shares[method]["in flow"]
            axes.set_title(f"{method}\nin flow {inside.value:.0%} [{inside.lo:.0%}, {inside.hi:.0%}]", fontsize=9)
            axes.set_xlabel("mastery")
        panels[0].set_ylabel("difficulty of the question")
        figure.colorbar(image, ax=list(panels), label="share of questions", shrink=0.85, format="{x:.0%}")
        share = shares[most]["in flow"].value
        title = f"{most} has the largest share of questions in the flow zone, {share:.0%}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    return _noted(figure, _label(methods))


def _plane(axes: Axes, asked: pd.DataFrame, delta: float):
    masteries = np.linspace(-0.05, 1.05, 12)
    levels = (np.arange(LEVELS + 1) - 0.5) / (LEVELS - 1)
    counts, _, _ = np.histogram2d(asked["mastery"], asked["difficulty"], bins=[masteries, levels])
    image = axes.pcolormesh(masteries, levels, (counts / counts.sum()).T, cmap="Blues", vmin=0, vmax=0.25)
    line = np.array([0.0, 1.0])
    for shift in (-delta, delta):
        axes.plot(line, line + shift, "--", color="black", linewidth=1)
    axes.set(xlim=(-0.05, 0.95), ylim=(-0.1, 1.1))
    axes.grid(False)
    return image


def flow_alt(record: pd.DataFrame, methods: Sequence[str], delta: float) -> str:
    """The planes in words."""
    shares = flow_shares(record, methods, delta)
    told = "; ".join(
        f"{method} {row['below'].value:.0%} below, {row['in flow'].value:.0%} in, {row['above'].value:.0%} above"
        for method, row in shares.items()
    )
    return f"Questions asked by mastery and difficulty, with the flow zone of width {delta} on either side: {told}."


# Who is picked ------------------------------------------------------------------------------------


def usage(record: pd.DataFrame, methods: Sequence[str]) -> Figure:
    """Shares of the chosen policies along the episode, one panel for each method."""
    rows = record[record["method"].isin(methods)]
    order = {method: place for place, method in enumerate(methods)}
    rows = rows.sort_values("method", key=lambda names: names.map(order), kind="stable")
    first = rows[rows["step"] < 5]
    lead = first["choice"].value_counts(normalize=True)
    title = f"In the first five steps {lead.index[0]} is picked most, {lead.iloc[0]:.0%} of the time"
    names = {name: name for name in SINGLE}
    figure = figures.action_shares(rows, "step", "choice", names, title, "method", "step")
    return _noted(figure, _label(methods))


def usage_alt(record: pd.DataFrame, methods: Sequence[str]) -> str:
    """Usage in words."""
    shares = record[record["method"].isin(methods)].groupby("method")["choice"].value_counts(normalize=True)
    told = "; ".join(
        f"{method} " + ", ".join(f"{name} {shares.get((method, name), 0.0):.0%}" for name in SINGLE)
        for method in methods
    )
    return f"Shares of the policies picked, by step of the episode. Over whole episodes: {told}."


# Rooms --------------------------------------------------------------------------------------------


def side_by_side(films: Mapping[str, Film], most: int = 40) -> np.ndarray:
    """Episodes in the same room as one picture per step, (T, H, W, 3) uint8.

    An episode that has ended holds its last frame, paler. At most `most` steps are shown.
    """
    if not films:
        raise ValueError("side_by_side needs at least one film")
    steps = min(most, max(len(film.frames) for film in films.values()))
    pictures = []
    for step in range(steps):
        parts = [_captioned(film, name, step) for name, film in films.items()]
        gap = np.full((parts[0].shape[0], 8, 3), 255, dtype=np.uint8)
        pictures.append(np.concatenate([part for each in parts for part in (each, gap)][:-1], axis=1))
    return np.stack(pictures)


def _captioned(film: Film, name: str, step: int) -> np.ndarray:
    over = step >= len(film.frames) - 1
    frame = film.frames[min(step, len(film.frames) - 1)]
    if over and step > len(film.frames) - 1:
        frame = (frame // 3 + 170).astype(np.uint8)
    says = "has ended" if over else f"{step + 1}: {film.choices[step]}"
    head = Image.new("RGB", (frame.shape[1], 34), "white")
    pen, font = ImageDraw.Draw(head), ImageFont.load_default(12)
    pen.text((2, 1), name, fill="black", font=font)
    pen.text((2, 17), says, fill=figures.GREY, font=font)
    return np.concatenate([np.asarray(head), frame])


def rooms_alt(record: pd.DataFrame, methods: Sequence[str], seed: int, episode: int) -> str:
    """How each method's episode in that room ended."""
    told = []
    for method in methods:
        rows = record[(record["method"] == method) & (record["seed"] == seed) & (record["episode"] == episode)]
        last = rows.sort_values("step").iloc[-1]
        end = "reached the goal" if last["success"] else "stepped onto lava" if last["lava"] else "ran out of time"
        told.append(f"{method} {end} after {len(rows)} steps with {last['gold']:.0%} of the gold")
    return "The same room walked by several methods side by side: " + "; ".join(told) + "."


# Preferences, budgets -----------------------------------------------------------------------------


def preference_front(points: pd.DataFrame) -> Figure:
    """Mean objectives under every preference, in three projections; lines join a maker's corners to its centre."""
    names = OBJECTIVES["education"]
    means = points.groupby(["method", "weights"])[list(names)].mean()
    spread = {m: float(np.ptp(means.loc[m].to_numpy(), axis=0).sum()) for m in means.index.unique(0)}
    title = f"Asking for another trade-off moves {max(spread, key=spread.get)} most"
    with figures.theme():
        figure = Figure(figsize=(9.6, 3.7), layout="constrained")
        panels = figure.subplots(1, 3)
        for axes, (i, j) in zip(panels, ((0, 1), (0, 2), (1, 2)), strict=True):
            for method in spread:
                _cloud(axes, points[points["method"] == method], names[i], names[j], method)
            axes.set(xlabel=f"{names[i]}, mean per step", ylabel=f"{names[j]}, mean per step")
        panels[0].legend(frameon=False, fontsize=8.5)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    note = "One mark per preference: mean over seeds, lines from the worst seed to the best."
    return _noted(figure, f"{note} {_label(list(spread))}")


def _cloud(axes: Axes, rows: pd.DataFrame, x: str, y: str, method: str) -> None:
    shade = figures.colour(method.split(" ")[0] if method.startswith(KINDS) else method)
    label = method
    for _, part in rows.groupby("weights"):
        axes.plot([part[x].min(), part[x].max()], [part[y].mean()] * 2, color=shade, linewidth=0.8, alpha=0.6)
        axes.plot([part[x].mean()] * 2, [part[y].min(), part[y].max()], color=shade, linewidth=0.8, alpha=0.6)
        axes.plot(part[x].mean(), part[y].mean(), figures.marker(method.split(" ")[0]), color=shade, label=label)
        label = None


def preference_alt(points: pd.DataFrame) -> str:
    """What asking for one objective alone gets, by maker."""
    names, told = OBJECTIVES["education"], []
    for method, rows in points.groupby("method"):
        for i, name in enumerate(names):
            mine = rows[[bool(weights[i] > 0.999) for weights in rows["weights"]]]
            told.append(f"{method} asked for {name} alone gets {mine[name].mean():.2f} of it")
    return "Mean objectives under every preference, in three projections. " + "; ".join(told) + "."


def budget_curve(curve: pd.DataFrame, lines: Mapping[str, Mapping[str, Interval]]) -> Figure:
    """Utility and length against dollars spent per episode; dashed: methods without a budget."""
    groups = [(b, part) for b, part in curve.groupby("budget")]
    first, last = groups[0][1], groups[-1][1]
    change = last["length"].mean() - first["length"].mean()
    words = f"{abs(change):.1f} steps {'shorter' if change < 0 else 'longer'}"
    title = rf"From \${groups[0][0]:g} to \${groups[-1][0]:g} per episode, episodes get {words}"
    with figures.theme():
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        for axes, (name, label) in zip(figure.subplots(1, 2), _AXES.items(), strict=True):
            _budget_panel(axes, groups, name)
            for method, row in lines.items():
                level = row["length"] if name == "length" else _utility(row)
                axes.axhline(level.value, linestyle="--", linewidth=1.2, color=figures.GREY)
                place = {"xycoords": axes.get_yaxis_transform(), "ha": "left", "va": "bottom"}
                axes.annotate(method, (0.01, level.value), fontsize=8.5, color=figures.GREY, **place)
            axes.set(xlabel="dollars spent per episode (log)", ylabel=label, xscale="log")
            low, high = axes.get_xlim()
            axes.set_xlim(low / 6, high * 1.3)  # room for the names of the dashed lines
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    return _noted(figure, "Marks: mean over seeds with 95% intervals, the budget beside. " + SCRIPTED)


_AXES = {"quality": "utility, mean of the objectives", "length": "length of an episode, steps"}


def _utility(row: Mapping[str, Interval]) -> Interval:
    value = float(np.mean([row[name].value for name in OBJECTIVES["education"]]))
    return Interval(value, np.nan, np.nan)


def _budget_panel(axes: Axes, groups: Sequence[tuple[float, pd.DataFrame]], name: str) -> None:
    places = []
    for budget, part in groups:
        level = stats.mean_interval(part[name].to_numpy(), seeds.rng("budget", name, str(budget)))
        x = part["dollars"].mean()
        lo, hi = (level.lo, level.hi) if level.known else (level.value, level.value)
        axes.plot([x, x], [lo, hi], color=figures.colour("RO"))
        axes.plot(x, level.value, figures.marker("RO"), color=figures.colour("RO"))
        axes.annotate(rf"\${budget:g}", (x, hi), (0, 5), textcoords="offset points", ha="center", fontsize=9)
        places.append((x, level.value))
    axes.plot(*np.array(places).T, color=figures.colour("RO"), linewidth=1, alpha=0.6)
    axes.margins(y=0.2)


def budget_alt(curve: pd.DataFrame) -> str:
    """The curve in words."""
    told = "; ".join(
        f"${budget:g}: {part['quality'].mean():.3f}, {part['length'].mean():.1f} steps, "
        f"{part['funded'].mean():.0%} of decisions paid for"
        for budget, part in curve.groupby("budget")
    )
    return f"Utility and length against dollars per episode, by budget, with intervals over seeds. {told}."


# In words -----------------------------------------------------------------------------------------


def finding(records: Mapping[str, pd.DataFrame], model: str) -> str:
    """The lesson in a sentence: RO with the strongest model against random and greedy look-ahead, both domains."""
    told = []
    for domain, record in records.items():
        against = results.versus(record, domain, f"RO {model}", ["random", "greedy look-ahead"], ["utility"])
        words = {"better": "more useful than", "worse": "less useful than", "undecided": "not told apart from"}
        parts = [f"{words[results.verdict(row['utility'])]} {rival}" for rival, row in against.items()]
        told.append(f"in {domain} " + " and ".join(parts))
    return f"RO with {model} is " + "; ".join(told) + "."


def shortfalls(records: Mapping[str, pd.DataFrame], rows: Mapping[str, results.Rows], model: str) -> list[str]:
    """What did not work, from this run's numbers."""
    lines = []
    for domain, record in records.items():
        for kind in KINDS:
            against = results.versus(record, domain, f"{kind} {model}", ["random", "greedy look-ahead"], ["utility"])
            for rival, row in against.items():
                if results.verdict(row["utility"]) != "better":
                    lines.append(f"{domain}: {kind} {model} is not more useful than {rival} ({row['utility']}).")
        small = min((m for m in rows[domain] if m.startswith("RO ")), key=lambda m: -rows[domain][m]["invalid"].value)
        lines.append(
            f"{domain}: {rows[domain][small]['invalid'].value:.0%} of the decisions of {small} met a bad reply."
        )
        ceiling = rows[domain]["oracle look-ahead"]
        name = "length" if domain == "education" else "success"
        mine = rows[domain][f"RO {model}"][name]
        lines.append(f"{domain}: {name} of the oracle look-ahead {ceiling[name]}, of RO {model} {mine}.")
    return lines


def _noted(figure: Figure, note: str) -> Figure:
    """Add a small note below, unless there is nothing to say; a note that is there already is kept."""
    if note.strip():
        before = figure._supxlabel.get_text() + " " if getattr(figure, "_supxlabel", None) else ""
        with figures.theme():
            figure.supxlabel(f"{before}{note}".strip(), x=0.01, ha="left", fontsize=9, color=figures.GREY, wrap=True)
            width, height = figure.get_size_inches()
            figure.set_size_inches(width, height + (0.2 if before else 0.25))
    return figure
