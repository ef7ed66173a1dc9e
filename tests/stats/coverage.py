"""How often the intervals of `lib.stats` hold the truth, by simulation: `python -m tests.measure.coverage`.

Made-up records whose truth is known go through the very functions that lessons call. Too narrow is a lie, too wide
is power thrown away; both are printed. The kinds: means of runs that share items, of runs with items of their own,
of one run; shares; gaps inside pairs; changes; ratios; distances to mixtures; variances pooled over arms.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.stats import estimates

RUNS = (3, 5, 10)
ITEMS, SPREADS = (
    40,
    {"runs": 0.1, "items": 0.3, "rest": 0.4},
)  # standard deviations of a made-up study


def made(
    rng: np.random.Generator, runs: int, means: dict[str, float], own_items: bool = False
) -> pd.DataFrame:
    """A record of `runs` seeds x ITEMS items for each arm: its mean + what its run adds + what the item adds to all."""
    item = rng.normal(0, SPREADS["items"], (runs, ITEMS) if own_items else (1, ITEMS))
    frames = []
    for method, mean in means.items():
        values = (
            mean
            + item
            + rng.normal(0, SPREADS["runs"], (runs, 1))
            + rng.normal(0, SPREADS["rest"], (runs, ITEMS))
        )
        names = [f"{s}-{i}" if own_items else str(i) for s in range(runs) for i in range(ITEMS)]
        frames.append(
            pd.DataFrame(
                {
                    "method": method,
                    "seed": np.repeat(range(runs), ITEMS),
                    "item": names,
                    "sample": 0,
                    "correct": values.ravel(),
                    "cost_usd": 1.0,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def one_run(rng: np.random.Generator, items: int) -> pd.DataFrame:
    """A record of a single run: what another run would have added is not in its interval, and not asked."""
    return pd.DataFrame(
        {"seed": 0, "item": range(items), "sample": 0, "correct": rng.normal(0.5, 0.4, items)}
    )


def _share(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = pd.DataFrame({"seed": 0, "item": range(10 * runs), "sample": 0})
    return estimates.mean(rows.assign(correct=rng.random(10 * runs) < 0.8), "correct"), 0.8


def _seeds(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = pd.DataFrame(
        {"seed": range(runs), "item": "0", "correct": (rng.random(runs) < 0.7).astype(float)}
    )
    return estimates.share(rows, "correct", 0.5), 0.7


def _change(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = made(
        rng, runs, {"start": 0.2, "end": 0.5, "start of control": 0.2, "end of control": 0.3}
    )
    rows = rows.assign(step=np.where(rows["method"].str.startswith("start"), 0, -1))
    rows["method"] = np.where(rows["method"].str.endswith("control"), "control", "method")
    return estimates.change(
        rows, "correct", {"step": 0}, {"step": -1}, against={"method": "control"}
    ), 0.2


def _mixtures(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = made(rng, runs, {"cheap": 0.2, "dear": 0.8, "router": 0.6})
    spent = rows["method"].map({"cheap": 1.0, "dear": 3.0, "router": 2.0}) + rng.normal(
        0, 0.2, len(rows)
    )
    rows = rows.assign(cost_usd=spent)
    return estimates.above_mixtures(
        rows, "correct", "cost_usd", {"method": "router"}, {"method": ["cheap", "dear"]}
    ), 0.1


_A, _B = {"method": "a"}, {"method": "b"}
KINDS: dict[str, Callable[[np.random.Generator, int], tuple[pd.DataFrame, float]]] = {
    "mean, runs x items": lambda rng, s: (estimates.mean(made(rng, s, {"a": 0.5}), "correct"), 0.5),
    "mean, items of their own": lambda rng, s: (
        estimates.mean(made(rng, s, {"a": 0.5}, True), "correct"),
        0.5,
    ),
    "mean, one run": lambda rng, s: (estimates.mean(one_run(rng, s), "correct"), 0.5),
    "mean, pooled over 4 arms": lambda rng, s: (
        estimates.mean(
            made(rng, s, dict.fromkeys("abcd", 0.5)), "correct", "method", pool=True
        ).head(1),
        0.5,
    ),
    "share, one run": _share,
    "share of seeds": _seeds,
    "gap": lambda rng, s: (
        estimates.gap(made(rng, s, {"a": 0.6, "b": 0.5}), "correct", _A, _B),
        0.1,
    ),
    "change less that of a control": _change,
    "ratio": lambda rng, s: (
        estimates.ratio(made(rng, s, {"a": 3.0, "b": 2.0}), "correct", _A, _B),
        1.5,
    ),
    "above mixtures": _mixtures,
}
NORMAL = (
    "mean, items of their own",
    "mean, one run",
)  # means of normal data by Student's t: exact in theory
EXACT = (
    "share, one run",
    "share of seeds",
)  # exact intervals of shares: at least 95 %, more for few cases


def coverage(kind: str, runs: int, draws: int) -> float:
    """Share of `draws` made-up studies whose interval of this kind holds the truth."""
    rng = seeds.rng("measure", "coverage", kind, runs)
    held = 0
    for _ in range(draws):
        found, truth = KINDS[kind](rng, runs)
        held += bool(found["ci_low"].iloc[0] <= truth <= found["ci_high"].iloc[0])
    return held / draws


def table(draws: int = 400) -> pd.DataFrame:
    """Coverage of every kind of interval at 3, 5 and 10 seeds."""
    return pd.DataFrame(
        {f"{s} seeds": [coverage(kind, s, draws) for kind in KINDS] for s in RUNS},
        index=list(KINDS),
    )


if __name__ == "__main__":
    print(table().to_string())
