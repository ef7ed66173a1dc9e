"""What orchestration costs: Table 3 of policy orchestration in three versions.

Formulas and prices are those of `lib.llm.cost_ledger` (A.6). What the paper prints is checked claim by claim in
`data/claims`. All tables are made from episodes: rows of `lib.orchestration.experiment` with the columns method, model,
backend, decisions, calls, tokens_in, tokens_out and cost_usd. Methods that ask no model have nothing to pay and no row.
A method whose model gave too few answers (column `unusable_share`) did not orchestrate: fallbacks acted in its place,
so that its row says why instead of naming a cost.
"""

import numpy as np
import pandas as pd

from lib import stats
from lib.llm import cost_ledger
from lib.llm.reply_shares import describe_share
from lib.orchestration import results
from lib.plots.tables import NO_USABLE_REPLY, number
from lib.policy_zoo.recipes import SINGLE

_DIGITS = {"calls": 1, "tokens_in": 0, "tokens_out": 0, "cost_usd": 4}


def tabulate_assumed_costs(episodes: pd.DataFrame) -> pd.DataFrame:
    """Costs of a run by the paper's assumptions (A.6.1, Table 9).

    A run has H = 50 decisions of our mean tokens, those of summaries and of replies that were sent back included. One
    single-objective policy is shared by 10,000 runs; it is compared with a multi-objective policy shared by 1,000.

    Args:
        episodes: Episodes of orchestrators, a row each.

    Returns:
        One row per orchestrator, and one for the multi-objective policy.
    """
    marked_shares = results.list_unusable_shares(episodes)
    # Training per run, by the number of runs that share it.
    training_usd = cost_ledger.rl_cost(cost_ledger.RUNS_SO)
    mo_training_usd = cost_ledger.rl_cost(cost_ledger.RUNS_MO)

    rows = []
    for method, method_episodes in _group_by_method(episodes):
        row = {"method": method, "backend": method_episodes["backend"].iloc[0]}
        if method in marked_shares:
            rows.append(row | {"total $": f"left out: {describe_share(marked_shares[method])}"})
            continue
        # Means per decision.
        spent = (
            method_episodes[["tokens_in", "tokens_out", "cost_usd"]].sum()
            / method_episodes["decisions"].sum()
        )
        inference_usd = cost_ledger.HORIZON * spent["cost_usd"]
        total_usd = training_usd + inference_usd
        row |= {
            "tokens in": round(spent["tokens_in"]),
            "tokens out": round(spent["tokens_out"]),
            "train $": f"{training_usd:.3f}",
            "infer $": number(inference_usd),
            "total $": f"{total_usd:.3f}",
            "share of MO": f"{total_usd / mo_training_usd:.0%}",
            "kg CO2e, inference": cost_ledger.llm_co2e(
                cost_ledger.HORIZON, spent["tokens_in"], spent["tokens_out"]
            ),
        }
        rows.append(row)

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


def tabulate_measured_costs(episodes: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the measured cost of an episode by orchestrator.

    Args:
        episodes: Episodes of orchestrators, a row each.

    Returns:
        One row per orchestrator: calls, tokens and dollars with intervals, and kg CO2e of its tokens.
    """
    marked_shares = results.list_unusable_shares(episodes)
    intervals_by_quantity = {
        quantity: stats.intervals(estimates)
        for quantity, estimates in results.estimate_price(episodes).items()
    }
    rows = []
    for method, method_episodes in _group_by_method(episodes):
        row = {"method": method, "backend": method_episodes["backend"].iloc[0]}
        is_marked = method in marked_shares
        for quantity, digits in _DIGITS.items():
            text = number(intervals_by_quantity[quantity][method], digits)
            row[quantity.replace("_", " ")] = "" if is_marked else text
        num_tokens = (method_episodes["tokens_in"] + method_episodes["tokens_out"]).mean()
        emissions = cost_ledger.co2e(cost_ledger.token_energy(num_tokens))
        row["kg CO2e"] = np.nan if is_marked else emissions
        if marked_shares:
            row[NO_USABLE_REPLY] = f"{marked_shares[method]:.0%} of calls" if is_marked else ""
        rows.append(row)
    return pd.DataFrame(rows).set_index("method")


def tabulate_break_even(episodes: pd.DataFrame) -> pd.DataFrame:
    """Tabulates from how many runs on training a multi-objective policy is cheaper than each orchestrator.

    Args:
        episodes: Episodes of orchestrators, a row each.

    Returns:
        One row per orchestrator: the runs where the policy zoo exists already, and where its single-objective
        policies had to be trained for the purpose, at Table 9's price each.
    """
    zoo_usd = len(SINGLE) * cost_ledger.TABLE_9.train_dollars
    marked_shares = results.list_unusable_shares(episodes)
    rows = []
    for method, method_episodes in _group_by_method(episodes):
        cost_usd = method_episodes["cost_usd"].mean()
        if method in marked_shares:
            cost_usd = np.nan
            with_zoo = without_zoo = f"left out: {describe_share(marked_shares[method])}"
        else:
            with_zoo = describe_break_even(cost_usd, 0.0)
            without_zoo = describe_break_even(cost_usd, zoo_usd)
        rows.append(
            {
                "method": method,
                "$ per episode, measured": cost_usd,
                "the zoo is there": with_zoo,
                "the zoo is trained for it": without_zoo,
            }
        )
    return pd.DataFrame(rows)


def describe_break_even(cost_usd: float, zoo_usd: float) -> str:
    """Describes for which numbers N of runs training costs less in all: train + N serve < zoo + N cost.

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


def _group_by_method(episodes: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The episodes of each method that asks a model, in the order of their first appearance."""
    asked = episodes[episodes["backend"] != "policy"]
    return list(asked.groupby("method", sort=False))
