"""Figures and tables of the orchestration lesson, made from decision records and from nothing else.

Titles and alt texts are computed from the data that they stand on, and a claim that one thing is above
another is one of paired differences over seeds. Whatever a scripted stand-in decided keeps "scripted" in
its name, and figures say below what that means. Left out: prompts (`dialogue`) and money (`costs`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image, ImageDraw, ImageFont

from lib import draw, seeds, stats
from lib.envs.education import LEVELS
from lib.orchestration import results
from lib.orchestration.methods import KINDS
from lib.orchestration.replay import Film
from lib.page.tables import interval_table, with_interval
from lib.params import Params
from lib.reporting.words import within
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
_FEW = 3  # episodes; shares of fewer are accidents
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


def _ordered(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """The rows in the order of `methods`."""
    order = {method: place for place, method in enumerate(methods)}
    return rows.sort_values("method", key=lambda names: names.map(order), kind="stable")


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
    oracles = {method: "oracle" for method in rows if method.startswith("oracle")}  # ceilings, not methods
    table.insert(0, "group", [oracles.get(m) or _GROUPS.get(kinds[m], kinds[m]) for m in rows])
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
        by_seed = part.assign(bad=part["invalid"] > 0).groupby("seed")["bad"].mean()
        share = within(stats.mean_interval(by_seed.to_numpy(), rng))
        lines.append(
            {
                "method": method,
                "decisions": len(part),
                "calls": int(part["calls"].sum()),
                "unusable replies": int(part["invalid"].sum()),
                "share of decisions": with_interval(*astuple(share), digits=3),
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
    rows = _decisions(record, methods, ["episode", "step", "mastery", "mastery_after"])
    longest = int(rows["step"].max()) + 1
    lines = []
    for (method, seed, _), part in rows.groupby(["method", "seed", "episode"]):
        part = part.sort_values("step")
        mastery = [*part["mastery"], part["mastery_after"].iloc[-1]]
        mastery += [mastery[-1]] * (longest + 1 - len(mastery))
        lines.append(pd.DataFrame({"method": method, "seed": seed, "step": range(len(mastery)), "mastery": mastery}))
    frame = pd.concat(lines, ignore_index=True)
    return frame.groupby(["method", "seed", "step"], as_index=False)["mastery"].mean()


def _standings(frame: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> str:
    """How many of `methods` stand above and below each of `beside` early on, by paired differences over seeds."""
    step = min(_EARLY, int(frame["step"].max()))
    at = frame[frame["step"] == step].pivot(index="seed", columns="method", values="mastery")
    counts = []
    for rival in beside:
        pairs = [(at[[method, rival]].dropna(), seeds.rng("standing", method, rival)) for method in methods]
        found = [stats.paired_difference(*both.to_numpy().T, rng) for both, rng in pairs if len(both) > 1]
        said = [results.verdict(difference) for difference in found]
        counts += [f"{said.count('better')} above and {said.count('worse')} below {rival}"] if said else []
    if not counts:  # nobody to compare with, or one seed
        means = at[list(methods)].mean()
        return f"Mastery after {step} steps: up to {means.max():.2f} ({means.idxmax()})"
    noun = "orchestrator" if len(methods) == 1 else "orchestrators"
    return f"Mastery after {step} steps, of {len(methods)} {noun}: {', '.join(counts)}"


def mastery_progression(record: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> Figure:
    """Mean mastery against step, one panel for each of KO, TO, RO, `beside` dashed in every panel (Figures 4, 5).

    methods: orchestrators, "KO name" and so on. Raises ValueError for a column, a method or a kind that is
    not there.
    """
    frame, parts = _ordered(_progress(record, [*methods, *beside]), [*methods, *beside]), []
    for kind in KINDS:
        own = [method for method in methods if method.startswith(f"{kind} ")]
        part = frame[frame["method"].isin([*own, *beside])]
        if own:
            parts.append(part.assign(panel=kind, line=part["method"].str.removeprefix(f"{kind} ")))
    if not parts:
        raise ValueError(f"none of {list(methods)} is one of {', '.join(KINDS)}, which have a panel each")
    note = "A student who is done keeps the last mastery. Above, below: a 95% interval of the paired difference "
    note += f"over seeds that lies clear of zero. {_label(methods)}"
    return draw.lines(
        pd.concat(parts), "step", "mastery", "line", _standings(frame, methods, beside), "step",
        "mean mastery", panels="panel", bins=60, rng=seeds.rng("mastery"), dashed=beside, note=note,
    )  # fmt: skip


def mastery_alt(record: pd.DataFrame, methods: Sequence[str], beside: Sequence[str]) -> str:
    """The curves in words: mastery after 10 and 25 steps."""
    frame = _progress(record, [*methods, *beside])
    means = frame.groupby(["method", "step"])["mastery"].mean()
    steps = [step for step in (_EARLY, 25) if step <= frame["step"].max()] or [int(frame["step"].max())]
    told = "; ".join(f"{m} " + ", ".join(f"{means[m, s]:.2f}" for s in steps) for m in (*methods, *beside))
    kinds = ", ".join(kind for kind in KINDS if any(method.startswith(f"{kind} ") for method in methods))
    return (
        f"Mean mastery by step with intervals, a panel each for {kinds}. {_standings(frame, methods, beside)}. "
        f"After {' and '.join(map(str, steps))} steps: {told}."
    )


# Flow ---------------------------------------------------------------------------------------------


def _asked(record: pd.DataFrame, method: str) -> pd.DataFrame:
    """One row per question: seed, mastery before the set, difficulty."""
    rows = _decisions(record, [method], ["mastery", "levels"])[["seed", "mastery", "levels"]]
    rows = rows.assign(level=rows["levels"].map(list)).explode("level")
    return rows.assign(difficulty=(rows["level"].astype(int) - 1) / (LEVELS - 1))


def flow_shares(record: pd.DataFrame, methods: Sequence[str], delta: float) -> results.Rows:
    """Share of questions below, in and above the flow zone |d - m| <= delta, by method, over seeds.

    Returns {method: {"below", "in flow", "above": interval}}. Raises ValueError for a method or a column
    that is not there.
    """
    out = {}
    for method in methods:
        asked = _asked(record, method)
        gap = (asked["difficulty"] - asked["mastery"]).round(9)
        where = pd.DataFrame({"below": gap < -delta, "in flow": gap.abs() <= delta, "above": gap > delta})
        rng = seeds.rng("flow", method)
        means = where.groupby(asked["seed"]).mean()
        out[method] = {name: within(stats.mean_interval(means[name].to_numpy(), rng)) for name in where}
    return out


def _flow_title(shares: results.Rows) -> str:
    """How much lies above the zone: orchestrators together, two others by name."""
    asking = [method for method in shares if method.split(" ")[0] in KINDS]
    others = [method for method in shares if method not in asking]
    above = {method: shares[method]["above"].value for method in shares}
    told = [f"{_range(above[m] for m in asking)} of the orchestrators' questions"] if asking else []
    if len(others) <= 2:
        told += [f"{above[method]:.0%} of {method}'s" for method in others]
    else:
        told.append(f"{_range(above[m] for m in others)} of the others'")
    return f"Above the flow zone: {', '.join(told)}"


def flow_plane(record: pd.DataFrame, methods: Sequence[str], delta: float) -> Figure:
    """Which questions are asked at which mastery: share of questions by cell, the flow zone dashed (Figure 4 d-f).

    The panel titles hold the shares in, above and below the zone with intervals over seeds. Raises ValueError
    for a method or a column that is not there.
    """
    shares, asked = flow_shares(record, methods, delta), {m: _asked(record, m) for m in methods}
    edges = np.arange(-0.05, max(rows["mastery"].max() for rows in asked.values()) + 0.1, 0.1)
    cells = {method: _cells(rows, edges) for method, rows in asked.items()}
    across = min(len(methods), 4)
    down = -(-len(methods) // across)
    note = f"Cells: share of a method's questions. Flow zone: difficulty within {delta:g} of mastery. {_label(methods)}"
    with draw.theme():
        figure = draw.sheet(_flow_title(shares), 2.3 * across + 1.0, 3.0 * down + 0.5, note)
        panels = draw.tiles(figure, len(methods), across, sharex=True, sharey=True)
        norm = PowerNorm(0.5, 0.0, max(cell.max() for cell in cells.values()))  # small shares stay visible
        for place, (axes, method) in enumerate(zip(panels, methods, strict=True)):
            image = _plane(axes, cells[method], edges, delta, norm)
            axes.set_title(_zone_title(method, shares[method]), fontsize=8.5)
            axes.set_xlabel("mastery" if place + across >= len(methods) else "")
            axes.set_ylabel("difficulty of the question" if place % across == 0 else "")
        _name_zone(panels[0])
        bar = figure.colorbar(image, ax=panels, shrink=0.85, format="{x:.0%}", aspect=30)
        bar.set_label("share of questions (root scale)")
    return figure


def _zone_title(method: str, row: Mapping[str, Interval]) -> str:
    def told(share: Interval) -> str:
        return f"{share.value:.0%}" + (f" [{share.lo:.0%}, {share.hi:.0%}]" if share.known else "")

    name = textwrap.fill(method, 28)
    return f"{name}\nin the zone {told(row['in flow'])}\nabove {told(row['above'])}\nbelow {told(row['below'])}"


def _cells(asked: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """Share of the questions by mastery (between edges) and level, (len(edges) - 1, LEVELS)."""
    levels = (np.arange(LEVELS + 1) - 0.5) / (LEVELS - 1)
    counts, _, _ = np.histogram2d(asked["mastery"], asked["difficulty"], bins=[edges, levels])
    return counts / counts.sum()


def _plane(axes: Axes, cells: np.ndarray, edges: np.ndarray, delta: float, norm: PowerNorm):
    levels = (np.arange(LEVELS + 1) - 0.5) / (LEVELS - 1)
    image = axes.pcolormesh(edges, levels, cells.T, cmap="Blues", norm=norm)
    line = np.array([-0.5, 1.5])
    for shift in (-delta, delta):
        axes.plot(line, line + shift, "--", color="black", linewidth=1)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(levels[0], levels[-1]), yticks=np.arange(LEVELS) / (LEVELS - 1))
    axes.grid(False)
    return image


def _name_zone(axes: Axes) -> None:
    """Write what the dashed lines enclose, along them."""
    axes.text(
        0.12, 0.12, "flow zone", fontsize=8.5, rotation=45, transform_rotates_text=True, rotation_mode="anchor",
        ha="center", va="center", path_effects=_HALO,
    )  # fmt: skip


def flow_alt(record: pd.DataFrame, methods: Sequence[str], delta: float) -> str:
    """The planes in words."""
    shares = flow_shares(record, methods, delta)
    told = "; ".join(
        f"{method} {row['below'].value:.0%} below, {row['in flow'].value:.0%} in, {row['above'].value:.0%} above"
        for method, row in shares.items()
    )
    return f"Questions asked by mastery and difficulty, with the flow zone of width {delta:g} on either side: {told}."


# Who is picked ------------------------------------------------------------------------------------


def _early_picks(rows: pd.DataFrame, methods: Sequence[str], steps: int) -> str:
    """What most methods pick most in the first `steps` steps, and how often."""
    shares = rows[rows["step"] < steps].groupby("method")["choice"].value_counts(normalize=True)
    favourite = {method: (shares[method].idxmax(), shares[method].max()) for method in methods}
    told = []
    for name in pd.Series([name for name, _ in favourite.values()]).value_counts().index:
        often = [share for picked, share in favourite.values() if picked == name]
        verb = "picks" if len(often) == 1 else "pick"
        who = f"{len(often)} of {len(methods)} methods" if len(methods) > 1 else methods[0]
        told.append(f"{who} {verb} {name} most, {_range(often)} of the time")
    return f"In the first {steps} steps {'; '.join(told)}"


def _picks(record: pd.DataFrame, methods: Sequence[str], bars: int = 10) -> tuple[pd.DataFrame, int]:
    """The decisions in the order of `methods`, each with the first step of its bar, and the steps of a bar."""
    rows = _decisions(record, methods, ["episode", "step", "choice"])
    steps = -(-(int(rows["step"].max()) + 1) // bars)
    return _ordered(rows.assign(bar=rows["step"] // steps * steps + 1), methods), steps


def usage(record: pd.DataFrame, methods: Sequence[str]) -> Figure:
    """Shares of the chosen policies along the episode, one panel for each method.

    Raises ValueError for a method or a column that is not there.
    """
    rows, steps = _picks(record, methods)
    episodes = (rows["seed"].astype(str) + " " + rows["episode"].astype(str)).groupby([rows["method"], rows["bar"]])
    few = (episodes.transform("nunique") < _FEW) & (rows["bar"] > 1)
    names = [*SINGLE, *sorted(set(rows["choice"]) - set(SINGLE))]
    note = "Later bars hold fewer decisions, those of episodes that still run"
    note += f"; bars of fewer than {_FEW} are left out and not counted. " if few.any() else ". "
    label = "step" if steps == 1 else f"step, {steps} to a bar"
    title = _early_picks(rows, methods, steps)
    note += _label(methods)
    kept = rows[~few]
    counts = kept["method"].value_counts()
    kept = kept.assign(method=[f"{method} ({counts[method]:,} decisions)" for method in kept["method"]])
    found = pd.crosstab([kept["method"], kept["bar"]], kept["choice"], normalize="index").reindex(columns=names)
    found = found.fillna(0.0).reindex(kept["method"].unique(), level="method")
    return draw.shares(found, title, label, "share of decisions, %", panels="method", note=note)


def usage_alt(record: pd.DataFrame, methods: Sequence[str]) -> str:
    """Usage in words."""
    rows, steps = _picks(record, methods)
    shares = rows.groupby("method")["choice"].value_counts(normalize=True)
    told = "; ".join(
        f"{method} " + ", ".join(f"{name} {shares.get((method, name), 0.0):.0%}" for name in SINGLE)
        for method in methods
    )
    early = _early_picks(rows, methods, steps)
    return f"Shares of the policies picked, by step of the episode. {early}. Over whole episodes: {told}."


# Rooms --------------------------------------------------------------------------------------------


def side_by_side(films: Mapping[str, Film], most: int = 40) -> np.ndarray:
    """Episodes in the same room as one picture per step, (T, H, W, 3) uint8, with method and policy above.

    An episode that has ended holds its last frame, paler. At most `most` steps are shown; the count above
    each frame says of how many.
    """
    if not films:
        raise ValueError("side_by_side needs at least one film")
    steps = min(most, max(len(film.frames) for film in films.values()))
    pictures = []
    for step in range(steps):
        parts = [_captioned(name, *_moment(film, step)) for name, film in films.items()]
        gap = np.full((parts[0].shape[0], 8, 3), 255, dtype=np.uint8)
        pictures.append(np.concatenate([part for each in parts for part in (each, gap)][:-1], axis=1))
    return np.stack(pictures)


def replay_strip(films: Mapping[str, Film], columns: int = 5) -> Figure:
    """The same episodes as a figure: one row for each method, the same steps under one another."""
    if not films:
        raise ValueError("replay_strip needs at least one film")
    taken = {name: len(film.choices) for name, film in films.items()}
    shown = np.unique(np.linspace(0, max(taken.values()), columns).round().astype(int))
    moments = [(name, *_moment(film, step)) for name, film in films.items() for step in shown]
    title = f"Steps in the same room: {', '.join(f'{name} {steps}' for name, steps in taken.items())}"
    captions = [f"{name}, {says}" for name, _, says in moments]
    return draw.strip([frame for _, frame, _ in moments], captions, title, len(shown), _label(films))


def _moment(film: Film, step: int) -> tuple[np.ndarray, str]:
    """The frame before step `step` (from 0), paler once the episode has ended, and what happens then."""
    taken = len(film.choices)
    if step < taken:
        return film.frames[step], f"step {step + 1} of {taken}: {film.choices[step]}"
    last = film.frames[taken]
    return (last if step == taken else (last // 3 + 170).astype(np.uint8)), f"ended after {taken} steps"


def _captioned(name: str, frame: np.ndarray, says: str) -> np.ndarray:
    """The frame under two lines of text, (H + 34, W, 3)."""
    head = Image.new("RGB", (frame.shape[1], 34), "white")
    pen = ImageDraw.Draw(head)
    for line, (text, shade) in enumerate(((name, "black"), (says, draw.GREY))):
        size = next((size for size in (12, 11, 10, 9) if pen.textlength(text, _font(size)) <= head.width - 4), 8)
        pen.text((2, 1 + 16 * line), text, fill=shade, font=_font(size))
    return np.concatenate([np.asarray(head), frame])


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def rooms_alt(record: pd.DataFrame, methods: Sequence[str], seed: int, episode: int) -> str:
    """How each method's episode in that room ended. Raises ValueError where the record has no such episode."""
    kept = _decisions(record, methods, ["episode", "step", "success", "lava", "gold"])
    told = []
    for method in methods:
        rows = kept[(kept["method"] == method) & (kept["seed"] == seed) & (kept["episode"] == episode)]
        if rows.empty:
            raise ValueError(f"no episode {episode} of {method!r} under seed {seed} in this record")
        last = rows.sort_values("step").iloc[-1]
        end = "reached the goal" if last["success"] else "stepped onto lava" if last["lava"] else "ran out of time"
        told.append(f"{method} {end} after {len(rows)} steps with {last['gold']:.0%} of the gold")
    return "The same room walked by several methods side by side: " + "; ".join(told) + "."


# Preferences, budgets -----------------------------------------------------------------------------


def _look(method: str, methods: Iterable[str]) -> str:
    """Whose colour and marker a method has: its orchestrator's, unless two models of it share the figure."""
    kind = method.split(" ")[0]
    alone = sum(other.split(" ")[0] == kind for other in dict.fromkeys(methods)) == 1
    return kind if kind in KINDS and alone else method


def _corner(weights: Sequence[float]) -> int | None:
    """Which objective alone is asked for, if it is one alone."""
    return next((place for place, weight in enumerate(weights) if weight > 0.999), None)


def _heeded(points: pd.DataFrame, method: str) -> list[Interval]:
    """What asking for each objective alone adds to it, against asking for another alone; paired by seed."""
    rows = points[points["method"] == method]
    rows = rows.assign(corner=[_corner(weights) for weights in rows["weights"]]).dropna(subset="corner")
    gains = []
    for place, name in enumerate(OBJECTIVES["education"]):
        own = rows[rows["corner"] == place].groupby("seed")[name].mean()
        rest = rows[rows["corner"] != place].groupby("seed")[name].mean()
        both = pd.concat([own, rest], axis=1).dropna()
        if len(both):
            gains.append(stats.paired_difference(*both.to_numpy().T, seeds.rng("heeded", method, name)))
    return gains


def _preference_title(points: pd.DataFrame) -> str:
    gains = {method: _heeded(points, method) for method in dict.fromkeys(points["method"])}
    told = []
    for method, found in gains.items():
        more = sum(gain.excludes(0) and gain.value > 0 for gain in found)
        verb = "" if told else "gets more of it "
        told += [f"{method} {verb}in {more} of {len(found)} cases"] if found else []
    if not told:
        return f"Mean objectives under {points['weights'].nunique()} preferences"
    return f"Asked for one objective alone, {', '.join(told)}"


def preference_front(points: pd.DataFrame, beside: Mapping[str, Mapping[str, Interval]] | None = None) -> Figure:
    """Mean objectives under every preference in three projections, against policies that follow none.

    points: columns method, weights (a tuple that sums to one), seed and the objectives of education.
    beside: {single policy: {objective: interval}}, such as a part of `results.results`. Raises ValueError
    for a column that is not there.
    """
    names = OBJECTIVES["education"]
    _need(points, ["method", "weights", "seed", *names], "the table of preferences")
    found: dict[tuple, Interval] = {}
    for (method, weights), rows in points.groupby(["method", "weights"], sort=False):
        for name in names:
            stream = seeds.rng("preference", method, str(weights), name)
            found[method, str(weights), name] = stats.mean_interval(rows[name].to_numpy(), stream)
    found |= {(who, "", name): row[name] for who, row in (beside or {}).items() for name in names}
    corners = {(method, str(weights)): names[_corner(weights)] for method, weights in points[["method", "weights"]]
               .drop_duplicates().itertuples(index=False) if _corner(weights) is not None}  # fmt: skip
    methods = points["method"].unique()
    return draw.plane(
        found, None, _preference_title(points), ", mean per step", joined=False,
        names=corners | {(who, ""): who for who in beside or {}}, like={m: _look(m, methods) for m in methods},
        size=(10.6, 4.5), note="Means over seeds, one mark for each preference; an objective's name is where it alone "
        "is asked for. More: the paired difference to asking for another lies clear of zero. " + _label(methods),
    )  # fmt: skip


def preference_alt(points: pd.DataFrame) -> str:
    """What asking for one objective alone gets, by maker."""
    names, told = OBJECTIVES["education"], []
    _need(points, ["method", "weights", "seed", *names], "the table of preferences")
    for method, rows in points.groupby("method", sort=False):
        for i, name in enumerate(names):
            mine = rows[[_corner(weights) == i for weights in rows["weights"]]]
            if len(mine):
                told.append(f"{method} asked for {name} alone gets {mine[name].mean():.2f} of it")
    parts = ["Mean objectives under every preference, in three projections", _preference_title(points)]
    return ". ".join([*parts, *(["; ".join(told)] if told else [])]) + "."


def _budget_change(curve: pd.DataFrame) -> str:
    """What the largest budget changes against the smallest, paired by seed, with intervals."""
    who = str(curve["method"].iloc[0]).split(" $")[0]
    low, high = curve["budget"].min(), curve["budget"].max()
    if low == high:
        told = f"{curve['length'].mean():.1f} steps, utility {curve['quality'].mean():.3f}"
        return f"With ${low:g} per episode, {who}: {told}"
    change = {}
    for name in ("length", "quality"):
        at = curve.pivot(index="seed", columns="budget", values=name)
        change[name] = stats.paired_difference(at[high].to_numpy(), at[low].to_numpy(), seeds.rng("budgets", name))
    told = f"length {_signed(change['length'], 1)} steps, utility {_signed(change['quality'], 3)}"
    return f"With ${high:g} instead of ${low:g} per episode, {who}: {told}"


def budget_curve(curve: pd.DataFrame, lines: Mapping[str, Mapping[str, Interval]]) -> Figure:
    """Utility and length against dollars spent per episode; dashed: methods without a budget.

    curve: columns method, budget (dollars per episode), seed, dollars (spent), quality, length, funded.
    lines: {method: {measure: interval}} with length and the objectives. Raises ValueError for a missing column.
    """
    _need(curve, ["method", "budget", "seed", "dollars", "quality", "length", "funded"], "the table of budgets")
    groups = list(curve.groupby("budget"))
    scale = "log" if min(part["dollars"].mean() for _, part in groups) > 0 else "linear"
    note = "Marks: mean over seeds with 95% intervals, the budget beside. Dashed: without a budget. "
    title = _budget_change(curve).replace("$", r"\$")
    with draw.theme():
        figure = draw.sheet(title, 8.8, 3.6, note + _label([*curve["method"], *lines]))
        for axes, (name, label) in zip(draw.tiles(figure, 2), _AXES.items(), strict=True):
            _budget_panel(axes, groups, name)
            axes.set(xlabel="dollars spent per episode", ylabel=label, xscale=scale)
            _without_budget(axes, {m: row["length"] if name == "length" else _utility(row) for m, row in lines.items()})
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: rf"\${x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    return figure


_AXES = {"quality": "utility, mean of the objectives", "length": "length of an episode, steps"}


def _utility(row: Mapping[str, Interval]) -> Interval:
    """The mean of the objectives; its interval does not follow from theirs."""
    value = float(np.mean([row[name].value for name in OBJECTIVES["education"]]))
    return row.get("utility", Interval(value, np.nan, np.nan))


def _budget_panel(axes: Axes, groups: Sequence[tuple[float, pd.DataFrame]], name: str) -> None:
    """One mark for each budget at what was really spent, with its interval."""
    methods = {str(method).split(" $")[0] for _, part in groups for method in part["method"]}
    look = _look(min(methods), methods)
    shade, places = draw.colour(look), []
    for budget, part in groups:
        level = stats.mean_interval(part[name].to_numpy(), seeds.rng("budget", name, str(budget)))
        x = part["dollars"].mean()
        lo, hi = (level.lo, level.hi) if level.known else (level.value, level.value)
        axes.plot([x, x], [lo, hi], color=shade, gid="interval")
        axes.plot(x, level.value, draw.marker(look), color=shade)
        place = {"textcoords": "offset points", "ha": "center", "path_effects": _HALO}
        axes.annotate(rf"\${budget:g}", (x, hi), (0, 5), fontsize=9, **place)
        places.append((x, level.value))
    axes.plot(*np.array(places).T, color=shade, linewidth=1, alpha=0.6)
    axes.margins(y=0.2)


def _without_budget(axes: Axes, levels: Mapping[str, Interval]) -> None:
    """Dashed lines, each with its name and its interval to the left of everything else."""
    low, high = axes.get_xlim()
    log = axes.get_xscale() == "log"
    axes.set_xlim(low / 8 if log else low - 0.6 * (high - low), high * 1.3)  # room for the names
    lowest = min(levels, key=lambda method: levels[method].value, default=None)
    beside = axes.get_yaxis_transform()
    for at, (method, level) in zip(0.02 + 0.03 * np.arange(len(levels)), levels.items(), strict=True):
        axes.axhline(level.value, linestyle="--", linewidth=1.2, color=draw.GREY)
        if level.known:
            axes.plot([at, at], [level.lo, level.hi], color=draw.GREY, transform=beside, gid="interval")
            axes.plot(at, level.value, "o", markersize=5, color=draw.GREY, transform=beside)
        side = "top" if method == lowest and len(levels) > 1 else "bottom"
        place = {"xycoords": beside, "ha": "left", "va": side, "path_effects": _HALO}
        axes.annotate(method, (0.03 + 0.03 * len(levels), level.value), fontsize=8.5, color=draw.GREY, **place)
    bottom, top = axes.get_ylim()
    values = [bottom, top, *(level.value for level in levels.values())]
    axes.set_ylim(min(values) - 0.06 * (top - bottom), max(values))


def budget_alt(curve: pd.DataFrame) -> str:
    """The curve in words."""
    _need(curve, ["method", "budget", "seed", "quality", "length", "funded"], "the table of budgets")
    told = "; ".join(
        f"${budget:g}: {part['quality'].mean():.3f}, {part['length'].mean():.1f} steps, "
        f"{part['funded'].mean():.0%} of decisions paid for"
        for budget, part in curve.groupby("budget")
    )
    change = _budget_change(curve)
    return f"Utility and length against dollars per episode, by budget, with intervals over seeds. {change}. {told}."


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
