"""How often the intervals of `lib.stats` hold the truth, by simulation: `python -m tests.stats.coverage`.

Simulated results whose truth is known go through the very functions that lessons call. Too narrow is a lie, too wide
is power thrown away; both are printed. The kinds: means of runs that share items, of runs with items of their own, of
one run; proportions; paired differences; differences in differences; ratios; gains over mixtures; variances pooled over
methods.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.stats import estimates

RUNS = (3, 5, 10)
ITEMS = 40
STANDARD_DEVIATIONS = {"runs": 0.1, "items": 0.3, "residual": 0.4}


def simulate_results(
    rng: np.random.Generator, runs: int, mean_by_method: dict[str, float], own_items: bool = False
) -> pd.DataFrame:
    """Results of `runs` seeds x ITEMS items for each method: its mean + run effect + item effect + noise."""
    item = rng.normal(0, STANDARD_DEVIATIONS["items"], (runs, ITEMS) if own_items else (1, ITEMS))
    frames = []
    for method, mean in mean_by_method.items():
        values = (
            mean
            + item
            + rng.normal(0, STANDARD_DEVIATIONS["runs"], (runs, 1))
            + rng.normal(0, STANDARD_DEVIATIONS["residual"], (runs, ITEMS))
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


def simulate_single_run(rng: np.random.Generator, items: int) -> pd.DataFrame:
    """Results of a single run: what another run would have added is not in its interval, and not asked."""
    return pd.DataFrame(
        {"seed": 0, "item": range(items), "sample": 0, "correct": rng.normal(0.5, 0.4, items)}
    )


def _estimate_proportion(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = pd.DataFrame({"seed": 0, "item": range(10 * runs), "sample": 0})
    return estimates.mean(rows.assign(correct=rng.random(10 * runs) < 0.8), "correct"), 0.8


def _estimate_success_rate(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = pd.DataFrame(
        {"seed": range(runs), "item": "0", "correct": (rng.random(runs) < 0.7).astype(float)}
    )
    return estimates.success_rate(rows, "correct", 0.5), 0.7


def _estimate_diff_in_diff(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = simulate_results(
        rng, runs, {"start": 0.2, "end": 0.5, "start of control": 0.2, "end of control": 0.3}
    )
    rows = rows.assign(step=np.where(rows["method"].str.startswith("start"), 0, -1))
    rows["method"] = np.where(rows["method"].str.endswith("control"), "control", "method")
    return estimates.diff_in_diff(
        rows, "correct", {"step": 0}, {"step": -1}, baseline={"method": "control"}
    ), 0.2


def _estimate_gain_over_mixture(rng: np.random.Generator, runs: int) -> tuple[pd.DataFrame, float]:
    rows = simulate_results(rng, runs, {"cheap": 0.2, "expensive": 0.8, "router": 0.6})
    spent = rows["method"].map({"cheap": 1.0, "expensive": 3.0, "router": 2.0}) + rng.normal(
        0, 0.2, len(rows)
    )
    rows = rows.assign(cost_usd=spent)
    return estimates.gain_over_mixture(
        rows, "correct", "cost_usd", {"method": "router"}, {"method": ["cheap", "expensive"]}
    ), 0.1


_A, _B = {"method": "a"}, {"method": "b"}
KINDS: dict[str, Callable[[np.random.Generator, int], tuple[pd.DataFrame, float]]] = {
    "mean, runs x items": lambda rng, s: (
        estimates.mean(simulate_results(rng, s, {"a": 0.5}), "correct"),
        0.5,
    ),
    "mean, items of their own": lambda rng, s: (
        estimates.mean(simulate_results(rng, s, {"a": 0.5}, True), "correct"),
        0.5,
    ),
    "mean, one run": lambda rng, s: (estimates.mean(simulate_single_run(rng, s), "correct"), 0.5),
    "mean, pooled over 4 arms": lambda rng, s: (
        estimates.mean(
            simulate_results(rng, s, dict.fromkeys("abcd", 0.5)), "correct", "method", pool=True
        ).head(1),
        0.5,
    ),
    "share, one run": _estimate_proportion,
    "share of seeds": _estimate_success_rate,
    "gap": lambda rng, s: (
        estimates.paired_difference(
            simulate_results(rng, s, {"a": 0.6, "b": 0.5}), "correct", _A, _B
        ),
        0.1,
    ),
    "change less that of a control": _estimate_diff_in_diff,
    "ratio": lambda rng, s: (
        estimates.ratio(simulate_results(rng, s, {"a": 3.0, "b": 2.0}), "correct", _A, _B),
        1.5,
    ),
    "above mixtures": _estimate_gain_over_mixture,
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
    """Fraction of `draws` simulated studies whose interval of this kind holds the truth."""
    rng = seeds.rng("measure", "coverage", kind, runs)
    num_covered = 0
    for _ in range(draws):
        estimate, truth = KINDS[kind](rng, runs)
        num_covered += bool(estimate["ci_low"].iloc[0] <= truth <= estimate["ci_high"].iloc[0])
    return num_covered / draws


def table(draws: int = 400) -> pd.DataFrame:
    """Coverage of every kind of interval at 3, 5 and 10 seeds."""
    return pd.DataFrame(
        {f"{s} seeds": [coverage(kind, s, draws) for kind in KINDS] for s in RUNS},
        index=list(KINDS),
    )


if __name__ == "__main__":
    print(table().to_string())
