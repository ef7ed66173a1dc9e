"""Numbers from decision records: the results table, what deciding took, and paired comparisons.

Means over a seed's episodes come first, then mean and interval over seeds. The price is calls, tokens and dollars per
episode (A.6), and how often a model's reply was of no use.
"""

from itertools import permutations

import pandas as pd

from lib import stats
from lib.orchestration.variants import KINDS
from lib.policy_zoo import evaluate

PRICE = ("calls", "tokens_in", "tokens_out", "cost_usd")  # per episode
RATES = ("invalid", "fallback")  # shares of decisions

Rows = dict[str, dict[str, stats.Interval]]


def results(record: pd.DataFrame) -> Rows:
    """The price per episode of every method and the shares of its decisions that went wrong, {method: {measure:
    interval over seeds}}, in the order of the record."""
    by_seed = {
        method: part.groupby("seed") for method, part in record.groupby("method", sort=False)
    }
    return {
        method: {
            name: stats.t_interval(values.to_numpy(dtype=float), stats.range_of_name(name))
            for name, values in _spent(parts).items()
        }
        for method, parts in by_seed.items()
    }


def _spent(by_seed) -> dict[str, pd.Series]:
    """The price per episode and the rates, of each seed."""
    out = {name: by_seed[name].sum() / by_seed["episode"].nunique() for name in PRICE}
    return out | {name: by_seed[name].agg(lambda values: (values > 0).mean()) for name in RATES}


def outcomes(record: pd.DataFrame, domain: str) -> pd.DataFrame:
    """`evaluate.episodes` with cost_usd, and with utility, the mean of the front columns."""
    table = evaluate.episodes(record, domain)
    cost_usd = (
        record.groupby(["method", "seed", "episode"])["cost_usd"]
        .sum()
        .rename("cost_usd")
        .reset_index()
    )
    table = table.merge(cost_usd, on=["method", "seed", "episode"])
    return table.assign(utility=table[evaluate.front_columns(domain)].mean(axis=1))


def key(method: str) -> str:
    """A method's part of a metric's name: `RO.scripted-large`, `MO-MGDA`."""
    kind, _, model = method.partition(" ")
    if kind in KINDS:
        return f"{kind}.{model.replace(' ', '-')}"
    return method


def metrics(rows: Rows, record: pd.DataFrame, domain: str) -> dict[str, float | str]:
    """Flat metrics such as `education.RO.scripted-large.cost_usd`, with `_ci_low` and `_ci_high`, and each
    method's backend."""
    backends = record.groupby("method")["backend"].first()
    out: dict[str, float | str] = {}
    for method, measured in rows.items():
        name = f"{domain}.{key(method)}"
        for measure, interval in measured.items():
            out |= interval.as_metrics(f"{name}.{measure}")
        out[f"{name}.backend"] = backends.get(method, "policy")
    for name, gap in hypervolume_gaps(record, domain).items():
        out |= gap.as_metrics(f"{domain}.{name}")
    return out


def hypervolume_gaps(record: pd.DataFrame, domain: str) -> dict[str, stats.Interval]:
    """How far the `hv_mean` of every orchestrator is above those that differ from it in kind or in model alone, by
    pairs of one seed: by name, such as `RO.scripted-large.hv_mean_minus.TO`."""
    table = evaluate.episodes(record, domain)
    means = table.groupby(["method", "seed"])[evaluate.front_columns(domain)].mean()
    reached = {}
    for method in record["method"].unique():
        kind, _, model = method.partition(" ")
        if kind in KINDS:
            reached[kind, model] = stats.hv_by_seed(
                means.loc[method].to_numpy(), evaluate.REFERENCE_POINT
            )
    return {
        f"{key(' '.join(one))}.hv_mean_minus.{next(a for a, b in zip(other, one, strict=True) if a != b)}": (
            stats.t_interval(reached[one] - reached[other])
        )
        for one, other in permutations(reached, 2)
        if (one[0] == other[0]) != (one[1] == other[1]) and len(reached[one]) == len(reached[other])
    }
