"""Theorem 3.2 with numbers: a floor under SFT, and what is left of it where agents draw their words.

Questions and configurations are those that were tried, each with its mean reward and its chance of being right. The
chance is of few tries, drawn towards the configuration's mean on that kind of question. Buffers are made up from
these, once with outcomes that are settled (noise 0), once with outcomes that are drawn anew at every try (noise 1).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw, seeds, stats
from lib.configuration import theorem
from lib.configuration.study import Results
from lib.page.words import NOTHING, within
from lib.params import Params
from lib.reporting.configuration.common import prepared
from lib.stats import Interval

NOISES = (0.0, 0.5, 1.0)
BUFFERS = 10
TASK = 5.0  # what `theorem.check` pays for being right
LINES = {
    "tau": "threshold tau", "after": "elite, as it was paid", "fresh": "refined, paid once more", "before": "buffer",
}  # fmt: skip
_HEADS = {
    "tau": "tau", "before": "buffer", "after": "elite, as paid", "fresh": "refined, paid again",
    "kept": "questions that keep tau", "covered": "questions with an elite", "outside": "outside the elite",
}  # fmt: skip
_SHARES = ("kept", "covered", "outside")
_ROUNDING = 1e-9


def tried(results: Results) -> tuple[np.ndarray, np.ndarray]:
    """Mean reward without the task's term, and chance of being right, (questions, configurations) each."""
    rows = results.searched[results.searched["split"].isin(("test", "again"))]
    rows = prepared(rows).assign(rest=lambda r: r["reward"] - TASK * r["right"])
    near = rows.groupby(["kind", "number"])["right"].transform("mean")
    rows = rows.assign(near=near, tries=1.0)
    sums = rows.pivot_table(index="item", columns="number", values=["right", "tries", "rest", "near"], aggfunc="sum")
    tries = sums["tries"].to_numpy()
    chance = (sums["right"].to_numpy() + sums["near"].to_numpy() / tries) / (tries + 1)
    return sums["rest"].to_numpy() / tries, chance


def checks(results: Results, params: Params, noises: Sequence[float] = NOISES, buffers: int = BUFFERS) -> pd.DataFrame:
    """`theorem.check` by noise and seed, with as many rows and as large an elite as a training has."""
    (mean, chance), own, out = tried(results), params.configuration, []
    for noise in noises:
        for seed in range(buffers):
            rng = seeds.rng("report", "configuration", "theorem", str(noise), str(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # means of an elite of nobody
                found = theorem.check(mean, chance, noise, own.sft.share, own.episodes, rng)
            out.append({"noise": noise, "seed": seed} | asdict(found))
    return pd.DataFrame(out)


def _with_elite(found: pd.DataFrame, noise: float) -> pd.DataFrame:
    """Buffers of one noise in which something is elite."""
    return found[(found["noise"] == noise) & (found["covered"] > 0)]


def margin(found: pd.DataFrame, noise: float) -> Interval:
    """Fresh reward of the refined policy minus tau, over buffers."""
    rows = _with_elite(found, noise)
    return stats.t_interval((rows["fresh"] - rows["tau"]).round(12).to_numpy()) if len(rows) else NOTHING


def _mean(rows: pd.DataFrame, column: str) -> Interval:
    """Over buffers in which there is such a number; no end of a share outside [0, 1]."""
    values = rows[column].dropna().to_numpy(float)
    found = stats.t_interval(values) if len(values) else NOTHING
    return within(found) if column in _SHARES else found


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Means over buffers with intervals, and the margin above tau."""
    out = []
    for noise, rows in found.groupby("noise"):
        row = {head: _mean(rows, column) for column, head in _HEADS.items()}
        out.append({"noise": f"{noise:.1f}"} | row | {"again minus tau": margin(found, noise)})
    return pd.DataFrame(out)


def figure(found: pd.DataFrame) -> Figure:
    """Threshold, elite, refined policy and buffer against noise."""
    long = found.melt(["noise", "seed"], list(LINES), "line", "value").dropna()
    long = long.assign(line=long["line"].map(LINES))
    kept = {noise: _with_elite(found, noise)["kept"].mean() for noise in (found["noise"].min(), found["noise"].max())}
    told = ", ".join(f"{share:.0%} of the questions at noise {noise:g}" for noise, share in kept.items())
    title = f"SFT's floor is kept on {told}" if found["covered"].any() else "Nothing is elite: theorem 3.2 is silent"
    return draw.lines(
        long, "noise", "value", by="line", title=title, xlabel="share of tries that are drawn",
        ylabel="mean reward", dashed=[LINES["tau"]], rng=seeds.rng("report", "configuration", "theorem", "figure"),
    )  # fmt: skip


def holds(found: pd.DataFrame, noise: float) -> bool:
    """Whether the refined policy is paid tau or more on every question that has an elite, in every buffer."""
    return bool((_with_elite(found, noise)["kept"] >= 1 - _ROUNDING).all())


def metrics(found: pd.DataFrame) -> dict[str, object]:
    """By noise in percent."""
    out: dict[str, object] = {}
    for noise, rows in found.groupby("noise"):
        key = f"theorem.noise_{100 * noise:.0f}"
        out |= {f"{key}.{column}": _mean(rows, column) for column in _HEADS}
        out[f"{key}.margin"] = margin(found, noise)
        if len(_with_elite(found, noise)):
            out[f"{key}.holds"] = holds(found, noise)
    return out
