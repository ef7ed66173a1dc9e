"""What orchestration costs: Table 3 of policy orchestration in three versions.

Formulas and prices are those of `lib.llm.cost_ledger` (A.6). What the paper prints is checked claim by claim in
`data/claims`.
"""

import numpy as np
import pandas as pd

from lib.llm import cost_ledger
from lib.llm.reply_shares import describe_share
from lib.orchestration import results
from lib.plots.tables import NO_USABLE_REPLY, interval_table, number
from lib.policy_zoo.recipes import SINGLE

_DIGITS = {"calls": 1, "tokens_in": 0, "tokens_out": 0, "cost_usd": 4}


def tabulate_assumed_costs(record: pd.DataFrame) -> pd.DataFrame:
    """Costs of a run by the paper's assumptions (A.6.1, Table 9).

    A run has H = 50 decisions of our mean tokens. One single-objective policy is shared by 10,000 runs; it is compared
    with a multi-objective policy shared by 1,000.

    Args:
        record: Decisions of the orchestrators; columns model, method, backend, tokens_in, tokens_out, cost_usd.

    Returns:
        One row per orchestrator, and one for the multi-objective policy. One whose model gave too few answers did not
        orchestrate, so that its row says why in place of a cost.
    """
    marked_shares = results.list_unusable_shares(record)
    # Training per run, by the number of runs that share it.
    training_usd = cost_ledger.rl_cost(cost_ledger.RUNS_SO)
    mo_training_usd = cost_ledger.rl_cost(cost_ledger.RUNS_MO)
    rows = []
    for method, decisions in record[record["model"] != ""].groupby("method", sort=False):
        if method in marked_shares:
            backend = decisions["backend"].iloc[0]
            left_out = f"left out: {describe_share(marked_shares[method])}"
            rows.append({"method": method, "backend": backend, "total $": left_out})
            continue
        mean_decision = decisions[["tokens_in", "tokens_out", "cost_usd"]].mean()
        inference_usd = cost_ledger.HORIZON * mean_decision["cost_usd"]
        total_usd = training_usd + inference_usd
        emissions = cost_ledger.llm_co2e(
            cost_ledger.HORIZON, mean_decision["tokens_in"], mean_decision["tokens_out"]
        )
        rows.append(
            {
                "method": method,
                "backend": decisions["backend"].iloc[0],
                "tokens in": round(mean_decision["tokens_in"]),
                "tokens out": round(mean_decision["tokens_out"]),
                "train $": f"{training_usd:.3f}",
                "infer $": number(inference_usd),
                "total $": f"{total_usd:.3f}",
                "share of MO": f"{total_usd / mo_training_usd:.0%}",
                "kg CO2e, inference": emissions,
            }
        )
    rows.append(
        {
            "method": "a trained MO policy",
            "backend": "policy",
            "train $": f"{mo_training_usd:.3f}",
            "infer $": "0",
            "total $": f"{mo_training_usd:.3f}",
            "share of MO": "100%",
        }
    )
    return pd.DataFrame(rows)


def tabulate_measured_costs(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """What an episode really took.

    Args:
        rows: Estimates by method and column.
        record: Episodes of the orchestrators; says which methods call a model, and their backends.

    Returns:
        One row per orchestrator: calls, tokens and dollars with intervals over seeds, and kg CO2e of its tokens. One
        whose model gave too few answers has a share of calls without a usable reply in their place.
    """
    # Orchestrators that ask no model have nothing to pay.
    uses_model = record["model"] != ""
    methods = list(record.loc[uses_model, "method"].unique())
    columns = []
    for name in results.PRICE:
        estimates = {method: {name: rows[method][name]} for method in methods}
        columns.append(interval_table(estimates, _DIGITS[name]))
    table = pd.concat(columns, axis=1).rename(columns=lambda name: name.replace("_", " "))

    marked_shares = results.list_unusable_shares(record)
    emissions, backends = [], []
    for method in methods:
        backends.append(record.loc[record["method"] == method, "backend"].iloc[0])
        if method in marked_shares:
            emissions.append(np.nan)
            continue
        num_tokens = rows[method]["tokens_in"].value + rows[method]["tokens_out"].value
        emissions.append(cost_ledger.co2e(cost_ledger.token_energy(num_tokens)))
    table["kg CO2e"] = emissions
    table.insert(0, "backend", backends)
    if marked_shares:
        # What fallbacks in a model's place came to is no cost of its orchestration.
        price_columns = [name.replace("_", " ") for name in results.PRICE]
        table[price_columns] = table[price_columns].astype(object)
        table.loc[table.index.isin(list(marked_shares)), price_columns] = ""
        shares = [marked_shares.get(method, 0.0) for method in methods]
        table[NO_USABLE_REPLY] = [f"{share:.0%} of calls" if share else "" for share in shares]
    return table


def tabulate_break_even(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """From how many runs on training a multi-objective policy is cheaper than each orchestrator.

    Args:
        rows: Estimates by method and column.
        record: Episodes of the orchestrators; says which methods call a model.

    Returns:
        One row per orchestrator: the runs where the policy zoo exists already, and where its single-objective policies
        had to be trained for the purpose, at Table 9's price each. A model that gave too few answers did not
        orchestrate, so that its price is compared with nothing.
    """
    zoo_usd = len(SINGLE) * cost_ledger.TABLE_9.train_dollars
    marked_shares = results.list_unusable_shares(record)
    table_rows = []
    for method in record.loc[record["model"] != "", "method"].unique():
        cost_usd = rows[method]["cost_usd"].value
        if method in marked_shares:
            cost_usd = np.nan
            with_zoo = without_zoo = f"left out: {describe_share(marked_shares[method])}"
        else:
            with_zoo = describe_break_even(cost_usd, 0.0)
            without_zoo = describe_break_even(cost_usd, zoo_usd)
        table_rows.append(
            {
                "method": method,
                "$ per episode, measured": cost_usd,
                "the zoo is there": with_zoo,
                "the zoo is trained for it": without_zoo,
            }
        )
    return pd.DataFrame(table_rows)


def describe_break_even(cost_usd: float, zoo_usd: float) -> str:
    """For which numbers N of runs training costs less in all: train + N serve < zoo + N cost.

    Args:
        cost_usd: Dollars per episode of the orchestrator.
        zoo_usd: What training its policies cost; 0 where they exist already.

    Returns:
        "always", "never", "up to N runs" or "from N runs on".
    """
    # Solve train + N serve < zoo + N cost for N; which side of N depends on the signs.
    training_saved = zoo_usd - cost_ledger.TABLE_9.train_dollars
    saved_per_run = cost_usd - cost_ledger.TABLE_9.serve_dollars
    if training_saved >= 0:
        if saved_per_run >= 0:
            return "always"
        return f"up to {training_saved / -saved_per_run:,.0f} runs"
    if saved_per_run <= 0:
        return "never"
    return f"from {-training_saved / saved_per_run:,.0f} runs on"
