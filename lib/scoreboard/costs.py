"""What orchestration costs: Table 3 of policy orchestration in three versions.

Formulas and prices are those of `lib.llm.cost_ledger` (A.6). What the paper prints is checked claim by claim in
`data/claims`.
"""

import pandas as pd

from lib.llm import cost_ledger
from lib.orchestration import results
from lib.plots.tables import interval_table, number
from lib.policy_zoo.recipes import SINGLE

_DIGITS = {"calls": 1, "tokens_in": 0, "tokens_out": 0, "cost_usd": 4}


def assumed(record: pd.DataFrame) -> pd.DataFrame:
    """Table 3 by the paper's assumptions: H = 50 decisions of our mean tokens, one single-objective policy
    shared by 10,000 runs, against a multi-objective policy shared by 1,000 (A.6.1, Table 9)."""
    train, rival = (
        cost_ledger.rl_cost(cost_ledger.RUNS_SO),
        cost_ledger.rl_cost(cost_ledger.RUNS_MO),
    )
    lines = []
    for method, part in record[record["model"] != ""].groupby("method", sort=False):
        each = part[["tokens_in", "tokens_out", "cost_usd"]].mean()
        infer = cost_ledger.HORIZON * each["cost_usd"]
        lines.append(
            {
                "method": method,
                "backend": part["backend"].iloc[0],
                "tokens in": round(each["tokens_in"]),
                "tokens out": round(each["tokens_out"]),
                "train $": f"{train:.3f}",
                "infer $": number(infer),
                "total $": f"{train + infer:.3f}",
                "share of MO": f"{(train + infer) / rival:.0%}",
                "kg CO2e, inference": cost_ledger.llm_co2e(
                    cost_ledger.HORIZON, each["tokens_in"], each["tokens_out"]
                ),
            }
        )
    lines.append(
        {
            "method": "a trained MO policy",
            "backend": "policy",
            "train $": f"{rival:.3f}",
            "infer $": "0",
            "total $": f"{rival:.3f}",
            "share of MO": "100%",
        }
    )
    return pd.DataFrame(lines)


def measured(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """What an episode really took: calls, tokens, dollars with intervals over seeds, kg CO2e of its tokens."""
    asked = list(record.loc[record["model"] != "", "method"].unique())
    parts = [
        interval_table({m: {name: rows[m][name]} for m in asked}, _DIGITS[name])
        for name in results.PRICE
    ]
    table = pd.concat(parts, axis=1).rename(columns=lambda name: name.replace("_", " "))
    tokens = [rows[m]["tokens_in"].value + rows[m]["tokens_out"].value for m in asked]
    table["kg CO2e"] = [cost_ledger.co2e(cost_ledger.token_energy(count)) for count in tokens]
    table.insert(
        0, "backend", [record.loc[record["method"] == m, "backend"].iloc[0] for m in asked]
    )
    return table


def break_even(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """When training a multi-objective policy is the cheaper way, by number of runs, against each method:
    where the zoo is there already, and where its three policies had to be trained for the purpose, at
    Table 9's price each."""
    zoo = len(SINGLE) * cost_ledger.TABLE_9.train_dollars
    lines = []
    for method in record.loc[record["model"] != "", "method"].unique():
        cost_usd = rows[method]["cost_usd"].value
        lines.append(
            {
                "method": method,
                "$ per episode, measured": cost_usd,
                "the zoo is there": _when(cost_usd, 0.0),
                "the zoo is trained for it": _when(cost_usd, zoo),
            }
        )
    return pd.DataFrame(lines)


def _when(cost_usd: float, rival_train: float) -> str:
    """The runs at which training costs less in all: Train + N serve < rival_train + N dollars."""
    ahead, saved = (
        rival_train - cost_ledger.TABLE_9.train_dollars,
        cost_usd - cost_ledger.TABLE_9.serve_dollars,
    )
    if ahead >= 0:
        return "always" if saved >= 0 else f"up to {ahead / -saved:,.0f} runs"
    return "never" if saved <= 0 else f"from {-ahead / saved:,.0f} runs on"
