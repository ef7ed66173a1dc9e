"""Rewards, baselines and steering of an orchestrator on a user's held-out questions.

Rules of lesson 06 (`rule_baselines`) choose among what every model did by itself; the reward is that of the training.
Left out: who is asked, which is `train_command`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.rl.user_training.evaluation import (
    START,
    TRAINED,
    decide_verdicts,
    estimate_difference,
    format_dollars,
)
from lib.rl.user_training.training import TrainingOutcome
from lib.tool_orchestration import rewards, rule_baselines
from lib.tool_orchestration.tool_menu import UserPreference

DRAWN_USERS, COST_ONLY, ACCURACY_ONLY = "drawn users", "cost only", "accuracy only"
STEERING_USERS = {
    COST_ONLY: UserPreference(0.0, 1.0, 0.0),
    ACCURACY_ONLY: UserPreference(1.0, 0.0, 0.0),
}


def compute_rewards(
    outcome: TrainingOutcome, tools: Sequence[str]
) -> tuple[TrainingOutcome, pd.DataFrame]:
    """Reward everything that answered the held-out questions, and let the rules of lesson 06 choose among models.

    The reward is that of the training: outcome, dollars, seconds and calls are normalised over everything that answered
    the same question (the orchestrator before and after, and every model alone), and weighed by the user's wishes. The
    score of the paper's benchmark, against the start, stands beside it.

    Args:
        outcome: Of the training; its baselines are every model's tries.
        tools: Names in the order of the vectors M and P.

    Returns:
        The outcome with rewards and with a row per rule and question as baselines; and the rows of users who care for
        one thing only.
    """
    tries = outcome.baselines
    start = outcome.start[outcome.start["condition"] == DRAWN_USERS].reset_index(drop=True)
    trained = outcome.trained[outcome.trained["condition"] == DRAWN_USERS].reset_index(drop=True)
    test_tries = tries[tries["split"] == "test"].reset_index(drop=True)

    # M and P of the start, of the trained orchestrator, and of every model alone, question by question.
    preference_by_number = dict(zip(start["number"], start["p"], strict=True))
    start_by_number = dict(zip(start["number"], start["m"], strict=True))
    is_tool = test_tries["tool"].to_numpy()[:, None] == np.array(tools)  # (tries, tools)
    vectors_of_tries = rewards.make_outcome_vectors(
        test_tries["calls"].to_numpy()[:, None] * is_tool,
        test_tries["correct"],
        test_tries["cost_usd"],
        test_tries["seconds"],
    )
    m = np.vstack([np.stack(start["m"]), np.stack(trained["m"]), vectors_of_tries])
    numbers = np.concatenate([start["number"], trained["number"], test_tries["item"]])
    preferences = np.stack([preference_by_number[number] for number in numbers])
    starts = np.stack([start_by_number[number] for number in numbers])

    # Normalisation over what has a score: a lost reply has none, and is in no minimum and no maximum.
    values = np.full(len(m), np.nan)
    scores = np.full(len(m), np.nan)
    scored = np.flatnonzero(~np.isnan(m[:, -3]) & ~np.isnan(starts[:, -3]))
    if len(scored):
        normalised = rewards.normalize_within_groups(m[scored], numbers[scored])
        values[scored] = rewards.compute_preference_rewards(
            normalised, preferences[scored], m[scored, -3]
        )
        scores[scored] = rewards.compute_preference_scores(
            m[scored], starts[scored], preferences[scored]
        )
    ends = np.cumsum([len(start), len(trained)])
    start_rewards, trained_rewards, try_rewards = np.split(values, ends)
    start_scores, trained_scores, _ = np.split(scores, ends)

    baselines = apply_rules(tries, test_tries.assign(reward=try_rewards), start, tools)
    steered = pd.concat([outcome.start, outcome.trained], ignore_index=True)
    rewarded = replace(
        outcome,
        start=start.assign(reward=start_rewards, score=start_scores),
        trained=trained.assign(reward=trained_rewards, score=trained_scores),
        baselines=baselines,
    )
    return rewarded, steered[steered["condition"] != DRAWN_USERS]


def apply_rules(
    tries: pd.DataFrame, test_tries: pd.DataFrame, start: pd.DataFrame, tools: Sequence[str]
) -> pd.DataFrame:
    """What each rule of `rule_baselines` comes to on the held-out questions.

    Args:
        tries: Of every model, with split.
        test_tries: Those of the held-out questions, with reward.
        start: The start's rows for drawn users.
        tools: Names in the order of the vectors M and P.

    Returns:
        A row per rule and question.
    """
    questions = start.assign(
        item=start["number"], offered=[" ".join(names) for names in start["offered"]]
    )
    reward_by_try = {(row.item, row.tool): row.reward for row in test_tries.itertuples(index=False)}
    tables = []
    for rule, table in rule_baselines.apply_baselines(tries, questions, tools).items():
        rows = table.assign(number=table["item"])
        if rule == rule_baselines.ORACLE:
            rows = _choose_best(test_tries, questions)
        elif rule == rule_baselines.RANDOM:
            means = test_tries.groupby("item")["reward"].agg(
                lambda values: values.mean(skipna=False)
            )
            rows["reward"] = rows["number"].map(means).fillna(rows["correct"] * 0)
        else:
            keys = zip(rows["number"], rows["tool"], strict=True)
            rows["reward"] = [reward_by_try.get(key, 0.0) for key in keys]
        rows["chosen"] = [[tool] if tool else [] for tool in rows["tool"]]
        tables.append(rows.assign(method=rule, role=find_role(rule)))
    rows = pd.concat(tables, ignore_index=True)

    # The ids of the questions in place of their numbers.
    about = start.set_index("number")
    return rows.assign(
        condition=DRAWN_USERS,
        item=about.loc[rows["number"], "item"].to_numpy(),
        sample=about.loc[rows["number"], "sample"].to_numpy(),
        group=about.loc[rows["number"], "group"].to_numpy(),
    )


def _choose_best(test_tries: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """For every question the model whose answer is rewarded most, known afterwards; nothing where none is offered."""
    columns = ["item", "tool", "correct", "cost_usd", "seconds", "calls", "reward"]
    ranked = test_tries.sort_values(
        ["reward", "cost_usd"], ascending=[False, True], kind="stable", na_position="first"
    )
    best = ranked.drop_duplicates("item")[columns].set_index("item")
    best = best.reindex(questions["number"])
    is_empty = best["tool"].isna()
    best["tool"] = best["tool"].fillna("")
    numeric = [name for name in columns if name not in ("item", "tool")]
    best.loc[is_empty, numeric] = 0.0
    return best.reset_index(names="number")


def find_role(rule: str) -> str:
    """The role of a rule in the results table."""
    if rule == rule_baselines.ORACLE:
        return "oracle"
    if rule == rule_baselines.BY_KIND:
        return "router"
    return "expert" if rule.startswith(rule_baselines.ALWAYS) else "constant"


def estimate_steering(steered: pd.DataFrame) -> pd.DataFrame:
    """What users who care for accuracy only pay more than those who care for cost only, before and after."""
    complete = steered.assign(is_lost=steered["correct"].isna()).groupby("item")["is_lost"].sum()
    rows = steered[steered["item"].map(complete) == 0]
    if rows.empty:
        return pd.DataFrame()
    return estimate_difference(
        rows, "cost_usd", {"condition": ACCURACY_ONLY}, {"condition": COST_ONLY}, "method"
    )


def describe_steering(estimates: pd.DataFrame) -> list[str]:
    """The same in sentences."""
    sentences = []
    for method in (START, TRAINED):
        if method in estimates.index:
            row = estimates.loc[method]
            verdict = decide_verdicts(estimates.loc[[method]]).iloc[0]
            sentences.append(
                f"Steering {method}: users who care for accuracy only cost {format_dollars(row)} a question more than "
                f"those who care for cost only: {verdict}."
            )
    return sentences
