"""What orchestration costs: Table 3 in three versions, and Tables 8, 10 and 11 of the paper recomputed.

Formulas and prices are those of `lib.ledger` (A.6). The cells that the paper prints stand here, because
only here are they compared with anything.
"""

from collections.abc import Mapping

import pandas as pd

from lib import ledger
from lib.orchestration import results
from lib.page.tables import interval_table, number
from lib.zoo.recipes import SINGLE

_SHORT = {"Claude 3.7 Sonnet": "claude", "Mistral 24B": "mistral", "LLaMA 3 8B": "llama"}
_DIGITS = {"calls": 1, "tokens_in": 0, "tokens_out": 0, "dollars": 4}
_TABLE_10 = {  # (backbone, regime): dollars and kg CO2e as printed
    ("Claude 3.7 Sonnet", "S"): ("0.1875", "0.0159"),
    ("Claude 3.7 Sonnet", "M"): ("0.5250", "0.0466"),
    ("Claude 3.7 Sonnet", "L"): ("1.3500", "0.1225"),
    ("Mistral 24B", "S"): ("0.001375", "0.0159"),
    ("Mistral 24B", "M"): ("0.00375", "0.0466"),
    ("Mistral 24B", "L"): ("0.00950", "0.1225"),
    ("LLaMA 3 8B", "S"): ("0.00120", "0.0159"),
    ("LLaMA 3 8B", "M"): ("0.00345", "0.0466"),
    ("LLaMA 3 8B", "L"): ("0.00900", "0.1225"),
}
_TABLE_3 = {  # (orchestrator, backbone): inference dollars per run in education, as printed
    ("KO", "LLaMA 3 8B"): 0.00, ("TO", "LLaMA 3 8B"): 0.18, ("RO", "LLaMA 3 8B"): 0.42,
    ("KO", "Mistral 24B"): 0.00, ("TO", "Mistral 24B"): 0.17, ("RO", "Mistral 24B"): 0.44,
    ("KO", "Claude 3.7 Sonnet"): 0.58, ("TO", "Claude 3.7 Sonnet"): 0.71, ("RO", "Claude 3.7 Sonnet"): 0.89,
}  # fmt: skip
_TABLE_11 = {  # the regimes that the paper reads off the totals
    ("KO", "LLaMA 3 8B"): "M", ("TO", "LLaMA 3 8B"): "M", ("RO", "LLaMA 3 8B"): "M",
    ("KO", "Mistral 24B"): "M", ("TO", "Mistral 24B"): "L", ("RO", "Mistral 24B"): "L",
    ("KO", "Claude 3.7 Sonnet"): "L", ("TO", "Claude 3.7 Sonnet"): "L", ("RO", "Claude 3.7 Sonnet"): "L",
}  # fmt: skip


def assumed(record: pd.DataFrame) -> pd.DataFrame:
    """Table 3 by the paper's assumptions: H = 50 decisions of our mean tokens, one single-objective policy
    shared by 10,000 runs, against a multi-objective policy shared by 1,000 (A.6.1, Table 9)."""
    train, rival = ledger.rl_cost(ledger.RUNS_SO), ledger.rl_cost(ledger.RUNS_MO)
    lines = []
    for method, part in record[record["model"] != ""].groupby("method", sort=False):
        each = part[["tokens_in", "tokens_out", "dollars"]].mean()
        infer = ledger.HORIZON * each["dollars"]
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
                "kg CO2e, inference": ledger.llm_co2e(ledger.HORIZON, each["tokens_in"], each["tokens_out"]),
            }
        )
    lines.append(
        {
            "method": "a trained MO policy", "backend": "policy", "train $": f"{rival:.3f}", "infer $": "0",
            "total $": f"{rival:.3f}", "share of MO": "100%",
        }
    )  # fmt: skip
    return pd.DataFrame(lines)


def measured(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """What an episode really took: calls, tokens, dollars with intervals over seeds, kg CO2e of its tokens."""
    asked = list(record.loc[record["model"] != "", "method"].unique())
    parts = [interval_table({m: {name: rows[m][name]} for m in asked}, _DIGITS[name]) for name in results.PRICE]
    table = pd.concat(parts, axis=1).rename(columns=lambda name: name.replace("_", " "))
    tokens = [rows[m]["tokens_in"].value + rows[m]["tokens_out"].value for m in asked]
    table["kg CO2e"] = [ledger.co2e(ledger.token_energy(count)) for count in tokens]
    table.insert(0, "backend", [record.loc[record["method"] == m, "backend"].iloc[0] for m in asked])
    return table


def break_even(rows: results.Rows, record: pd.DataFrame) -> pd.DataFrame:
    """When training a multi-objective policy is the cheaper way, by number of runs, against each method:
    where the zoo is there already, and where its three policies had to be trained for the purpose, at
    Table 9's price each."""
    zoo = len(SINGLE) * ledger.TABLE_9.train_dollars
    lines = []
    for method in record.loc[record["model"] != "", "method"].unique():
        dollars = rows[method]["dollars"].value
        lines.append(
            {
                "method": method,
                "$ per episode, measured": dollars,
                "the zoo is there": _when(dollars, 0.0),
                "the zoo is trained for it": _when(dollars, zoo),
            }
        )
    return pd.DataFrame(lines)


def _when(dollars: float, rival_train: float) -> str:
    """The runs at which training costs less in all: Train + N serve < rival_train + N dollars."""
    ahead, saved = rival_train - ledger.TABLE_9.train_dollars, dollars - ledger.TABLE_9.serve_dollars
    if ahead >= 0:
        return "always" if saved >= 0 else f"up to {ahead / -saved:,.0f} runs"
    return "never" if saved <= 0 else f"from {-ahead / saved:,.0f} runs on"


def table_8() -> pd.DataFrame:
    """Prices per token as the paper gives them, and per million for readers."""
    rows = [
        {"model": name, "$ per million in": p.per_token_in * 1e6, "$ per million out": p.per_token_out * 1e6}
        for name, p in ledger.PRICES.items()
    ]
    return pd.DataFrame(rows)


def table_10(printed: Mapping[tuple[str, str], tuple[str, str]] = _TABLE_10) -> pd.DataFrame:
    """Table 10 from its formulas beside the printed cells, compared at the digits that are printed."""
    lines = []
    for row in ledger.regime_costs().itertuples():
        dollars, kg = printed[row.backbone, row.regime]
        line = {"backbone": row.backbone, "regime": row.regime, "$ per run": number(row.dollars, _places(dollars))}
        line |= {"printed $": dollars, "kg per run": number(row.kg_co2e, _places(kg)), "printed kg": kg}
        lines.append(line | {"agrees": _agree(row.dollars, dollars) and _agree(row.kg_co2e, kg)})
    return pd.DataFrame(lines)


def _places(printed: str) -> int:
    return len(printed.partition(".")[2])


def _agree(value: float, printed: str) -> bool:
    """Equal to half a unit of the last printed digit; a hair more, because 0.04655 is not a binary number."""
    return abs(value - float(printed)) <= 0.5 * 10 ** -_places(printed) * (1 + 1e-9)


def table_10_metrics() -> dict[str, float]:
    """`costs.table10.claude.S.dollars` and so on, computed."""
    out = {}
    for row in ledger.regime_costs().itertuples():
        name = f"costs.table10.{_SHORT[row.backbone]}.{row.regime}"
        out |= {f"{name}.dollars": row.dollars, f"{name}.kg_co2e": row.kg_co2e}
    return out


def table_11() -> pd.DataFrame:
    """The regime that the paper reads off the total cost, and the one nearest to the inference part."""
    lines = []
    for (kind, backbone), dollars in _TABLE_3.items():
        ours = ledger.closest_regime(dollars, ledger.PRICES[backbone])
        costs = ledger.regime_costs().set_index(["backbone", "regime"])["dollars"]
        lines.append(
            {
                "method": f"{kind} {backbone}",
                "total $, printed": ledger.TABLE_9.train_dollars / ledger.RUNS_SO + dollars,
                "inference $, printed": dollars,
                "paper's regime": _TABLE_11[kind, backbone],
                "nearest regime": ours,
                "its $": number(float(costs[backbone, ours])),
                "agrees": ours == _TABLE_11[kind, backbone],
            }
        )
    return pd.DataFrame(lines)
