"""Numbers from decision records: the results table, what deciding took, and paired comparisons.

Means over a seed's episodes come first, then mean and interval over seeds. The price is calls, tokens and dollars per
episode (A.6), and how often a model's reply was of no use.
"""

from itertools import permutations

import pandas as pd

from lib import stats
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm import reply_shares
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
    table = table.assign(utility=table[evaluate.front_columns(domain)].mean(axis=1))
    marked_shares = list_unusable_shares(record)
    if marked_shares:
        table[UNUSABLE_SHARE] = table["method"].map(marked_shares).fillna(0.0)
    return table


def count_replies(record: pd.DataFrame) -> pd.DataFrame:
    """How many calls of each method's model gave no answer (`lib.llm.reply_shares.count_replies`).

    Args:
        record: Decisions of `prompted_experiment.run`; those of methods without a model are not counted.
    """
    decisions = record[record["model"] != ""]
    kinds = [list(filter(None, trouble.split(";"))) for trouble in decisions["trouble"]]
    # A summary that failed is written "summary_KIND".
    kinds = [[kind.removeprefix("summary_") for kind in of_decision] for of_decision in kinds]
    losses = pd.DataFrame(
        [reply_shares.count_failure_kinds(of_decision) for of_decision in kinds],
        index=decisions.index,
        columns=["failed", "truncated", "unusable"],
    )
    columns = ["method", "model", "backend", "calls", "fallback"]
    return reply_shares.count_replies(decisions[columns].join(losses))


def count_judge_replies(judged: pd.DataFrame) -> pd.DataFrame:
    """How many calls of a judge gave no scores.

    Args:
        judged: Of `llm_judge.judge`.

    Returns:
        Counts by judge (column `judge`), see `lib.llm.reply_shares.count_replies`.
    """
    calls = judged.assign(
        model=judged["judge"], failed=judged["failures"], unusable=judged["malformed"]
    )
    return reply_shares.count_replies(calls, keys=["judge"])


def list_unusable_shares(record: pd.DataFrame) -> dict[str, float]:
    """By method, the share of calls without an answer; only of methods that are marked."""
    if UNUSABLE_SHARE not in record:
        return {}
    shares = record.groupby("method", sort=False)[UNUSABLE_SHARE].max()
    return shares[shares > 0].to_dict()


def key(method: str) -> str:
    """A method's part of a metric's name: `RO.scripted-large`, `MO-MGDA`."""
    kind, _, model = method.partition(" ")
    if kind in KINDS:
        return f"{kind}.{model.replace(' ', '-')}"
    return method


def metrics(rows: Rows, record: pd.DataFrame, domain: str) -> dict[str, float | str]:
    """Flat metrics such as `education.RO.scripted-large.cost_usd`, with `_ci_low` and `_ci_high`, and each
    method's backend. A method whose model gave too few answers has `_unusable_share` in their place: something else
    decided, so that nothing measured is the model's."""
    backends = record.groupby("method")["backend"].first()
    marked_shares = list_unusable_shares(record)
    out: dict[str, float | str] = {}
    for method, measured in rows.items():
        name = f"{domain}.{key(method)}"
        for measure, interval in measured.items():
            if method in marked_shares:
                out[f"{name}.{measure}_{UNUSABLE_SHARE}"] = marked_shares[method]
            else:
                out |= interval.as_metrics(f"{name}.{measure}")
        out[f"{name}.backend"] = backends.get(method, "policy")
    for name, gap in hypervolume_gaps(record, domain).items():
        # The gap is marked where one of its two methods is.
        compared = _list_compared_methods(name)
        shares = [share for method, share in marked_shares.items() if key(method) in compared]
        if shares:
            out[f"{domain}.{name}_{UNUSABLE_SHARE}"] = max(shares)
        else:
            out |= gap.as_metrics(f"{domain}.{name}")
    return out


def _list_compared_methods(gap: str) -> tuple[str, str]:
    """The keys of the two methods of a gap such as `RO.scripted-large.hv_mean_minus.TO`."""
    method, _, changed = gap.partition(".hv_mean_minus.")
    kind, _, model = method.partition(".")
    changed = changed.replace(" ", "-")
    return method, f"{changed}.{model}" if changed in KINDS else f"{kind}.{changed}"


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
