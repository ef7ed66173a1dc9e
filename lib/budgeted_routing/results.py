"""The record of lesson 05: controllers before, in and after training, and everybody they are held against.

`condition` is the budget as the prompt names it, `group` the kind of question, `chosen` who was called. Whoever costs
the controller's tokens has them in `own_cost_usd`, which no budget counts. All meet the same test questions, and hear
the same replies.
"""

import pandas as pd

from lib import stats
from lib.budgeted_routing import baselines, expert_outcomes
from lib.budgeted_routing.baselines import ITSELF, ROUTERS
from lib.budgeted_routing.experiment import START, BudgetedRoutingResults
from lib.budgeted_routing.variants import NAMED
from lib.config import Params
from lib.experiment import results_table
from lib.llm import reply_shares
from lib.rl import call_protocol

SYSTEM = "corl"
LABELS = {name: variant.label for name, variant in NAMED.items()}
COLUMNS = ["seed", "correct", "within", "reward", "cost_usd", "calls", "malformed", "failures"]
# What became of the experts' replies; jobs that were finished before these were counted have none of them.
REPLY_COUNTS = ["failed", "truncated", "shortened"]


def rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """All of a study as rows of `lib.experiment.results_table`.

    Further columns: within (r_c), budget (US dollars), difficulty, failed, truncated and shortened
    (`budget_episodes.make_episode_rows`).
    """
    parts = [_tests(results), _trainings(results), _rivals(results)]
    return pd.concat(
        [results_table.make_results(SYSTEM, part) for part in parts], ignore_index=True
    )


def write(results: BudgetedRoutingResults) -> pd.DataFrame:
    """The record, written and read back."""
    return results_table.write_results(SYSTEM, rows(results))


def _of(part: pd.DataFrame, results: BudgetedRoutingResults) -> pd.DataFrame:
    """Columns that all episodes of controllers have."""
    reply_counts = {name: part[name].astype(int) if name in part else 0 for name in REPLY_COUNTS}
    return part[[*COLUMNS, "group", "condition", "difficulty", "budget"]].assign(
        **reply_counts,
        method=part["method"].map(LABELS).fillna(part["method"]),
        role=part["method"].map(lambda method: "start" if method == START else "paper"),
        item=part["item"].astype(str),
        own_cost_usd=part["tokens"] * results.token_price,
        chosen=part["chosen"].str.split(),
    )


def _tests(results: BudgetedRoutingResults) -> pd.DataFrame:
    part = results.episodes
    return _of(part, results).assign(
        split="test", style=part["style"], temperature=part["temperature"]
    )


def _trainings(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Rollouts, by update."""
    part = results.rollouts
    styles = part["method"].map(lambda method: NAMED[method].style if method in NAMED else "")
    return _of(part, results).assign(split="train", style=styles, step=part["step"])


def _rivals(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Every constant, every router and the oracle under every budget word."""
    experts = list(results.budgets.calls)
    known = {
        split: baselines.tried_on(results.experts, results.alone, split, experts)
        for split in ("train", "test")
    }
    table = baselines.compare(known["train"], known["test"], results.budgets.words)
    test_outcomes = results.experts[results.experts["split"] == "test"]
    about = test_outcomes.drop_duplicates("item").set_index("item")
    # Routers number the questions that they were compared on; one of which a reply was lost is none of them.
    lost_items = test_outcomes.loc[test_outcomes["correct"].isna(), "item"]
    compared_items = about.index.difference(lost_items).sort_values().to_numpy()
    table = table.assign(item=compared_items[table["item"]])
    own = (
        results.alone[results.alone["split"] == "test"].set_index("item")["tokens"]
        * results.token_price
    )
    roles = dict.fromkeys(experts, "expert") | dict.fromkeys(ROUTERS, "router")
    roles |= {ITSELF: "constant", "best constant": "constant", "oracle": "oracle"}
    works = (table["chosen"] == ITSELF) | (
        table["method"] == "cascade"
    )  # the cascade asks itself first
    return table[["method", "condition", "correct", "within", "reward", "cost_usd"]].assign(
        role=table["method"].map(roles).fillna("router"),
        seed=0,
        split="test",
        item=table["item"].astype(str),
        group=table["item"].map(about["group"]),
        difficulty=table["item"].map(about["difficulty"]),
        budget=table["condition"].map(results.budgets.words),
        style="soft",
        temperature=0.0,
        own_cost_usd=table["item"].map(own) * works,
        calls=(table["chosen"] != ITSELF).astype(int),
        malformed=0,
        failures=0,
        **dict.fromkeys(REPLY_COUNTS, 0),
        chosen=[[] if name == ITSELF else [name] for name in table["chosen"]],
    )


def count_replies(
    rows: pd.DataFrame, results: BudgetedRoutingResults, params: Params
) -> pd.DataFrame:
    """How many replies of experts held no answer, by method.

    Args:
        rows: The results table.
        results: What it was made of; experts are counted in their trial, where each is asked every question.
        params: Says which model stands behind an expert.

    Returns:
        See `lib.llm.reply_shares.count_replies`. A method that calls several experts has the model "several".
    """
    trial = expert_outcomes.count_trial_calls(results.experts, params)
    backends = [params.llm.models[name].backend for name in params.routing.experts.values()]
    several = {
        "model": reply_shares.SEVERAL,
        "backend": reply_shares.pick_backend(backends),
    }

    # Controllers counted the replies in their episodes.
    tests = rows[rows["split"] == "test"]
    is_controller = tests["role"].isin(["paper", "start"])
    episodes = tests[is_controller]
    lost = episodes["failed"] + episodes["truncated"]
    episodes = episodes.assign(unusable=episodes["failures"] - lost, **several)

    # Routers take a reply of the trial.
    routed = tests[~is_controller & ~tests["method"].isin(trial["method"])].explode("chosen")
    first_samples = trial[(trial["split"] == "test") & (trial["sample"] == 0)]
    replies = first_samples.assign(item=first_samples["item"].astype(str), chosen=trial["method"])
    columns = ["item", "chosen", "calls", "failed", "truncated", "unusable"]
    routed = routed[["method", "item", "chosen"]].merge(replies[columns], on=["item", "chosen"])
    return reply_shares.count_replies(
        pd.concat([trial, episodes, routed.assign(**several)], ignore_index=True)
    )


def oracle_dominates(record_rows: pd.DataFrame) -> bool:
    """Whether on no test question and under no budget a single strategy or a router that chooses one is paid more than
    the oracle. What asks several, the cascade and the controllers, may hear the right reply second."""
    tests = record_rows[(record_rows["split"] == "test") & (record_rows["temperature"] == 0)]
    best = tests[tests["role"] == "oracle"].set_index(["item", "condition"])["reward"]
    others = tests[
        tests["role"].isin(["expert", "constant", "router"]) & (tests["method"] != "cascade")
    ]
    most = others.groupby(["item", "condition"])["reward"].max()
    return bool((most <= best.reindex(most.index)).all())


# The primary contrasts, named before results are seen: CoRL's reward minus that of these, under each budget.
PRIMARY_RIVALS = {"best_constant": "best constant", "logistic": "logistic", "random": "random"}


def estimate_reward_difference(rows: pd.DataFrame, rival: str, budget: str) -> pd.Series:
    """How much more reward CoRL gets than a rival under a budget, greedily, inside seeds and test questions.

    Args:
        rows: The results table of the lesson.
        rival: A method of the table.
        budget: low, medium or high.

    Returns:
        The estimate, a row of `lib.stats`.
    """
    tests = results_table.select(
        rows, split="test", style="soft", temperature=0.0, condition=budget
    )
    return stats.paired_difference(
        tests, "reward", {"method": "CoRL"}, {"method": rival}, "condition"
    ).iloc[0]


def estimate_primary_contrasts(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimate the primary contrasts, by metric key.

    Args:
        rows: The results table of the lesson.

    Returns:
        `corl.BUDGET.minus_BASELINE`: CoRL's reward minus that of a baseline, a row of `lib.stats` each.
    """
    estimates = {}
    for key, rival in PRIMARY_RIVALS.items():
        for budget in call_protocol.BUDGET_WORDS:
            estimate = estimate_reward_difference(rows, rival, budget)
            estimates[f"corl.{budget}.minus_{key}"] = estimate
    return estimates
