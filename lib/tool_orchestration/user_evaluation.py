"""Rewards, baselines and steering of an orchestrator on a user's held-out questions.

Rules without an orchestrator choose among the answers that every model gave by itself; the reward is that of the
training. The cost of an orchestrator's own tokens is in no reward, since they are free in such a run. Every rule
answers every question:

    prefer T            model T where it is on the menu, and elsewhere the next one in the order of correct answers to
                        training questions
    best single tool    that order by itself
    best by kind        an order for each kind and difficulty, which are labels: the share of correct answers to such
                        training questions, the cheaper one first where they are equal
    random              any of the models on the menu that can be asked, in expectation
    oracle              the model whose answer is rewarded most, known afterwards

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
from lib.tool_orchestration import rewards
from lib.tool_orchestration.tool_menu import UserPreference

DRAWN_USERS, COST_ONLY, ACCURACY_ONLY = "drawn users", "cost only", "accuracy only"
STEERING_USERS = {
    COST_ONLY: UserPreference(0.0, 1.0, 0.0),
    ACCURACY_ONLY: UserPreference(1.0, 0.0, 0.0),
}
PREFER = "prefer "
BEST, BY_KIND, RANDOM, ORACLE = "best single tool", "best by kind", "random", "oracle"
_MEASURES = ["correct", "cost_usd", "seconds", "calls", "reward", "score"]


def compute_rewards(
    outcome: TrainingOutcome, tools: Sequence[str]
) -> tuple[TrainingOutcome, pd.DataFrame]:
    """Reward all answers to the held-out questions, and let rules without an orchestrator choose among the models.

    The reward is that of the training: outcome, dollars, seconds and calls are normalized over all answers to the same
    question (the orchestrator's before and after training, and every model's by itself), and weighed by the user's
    preferences. Beside it stands the score of the paper's benchmark, relative to the orchestrator before training.

    Args:
        outcome: Outcome of the training; its `baselines` have a row per model, used by itself, and question.
        tools: Names of the tools in the order of outcome and preference vectors.

    Returns:
        The outcome, with the columns reward and score, and with a row per rule and question as `baselines`.
        The rows of users who care for one objective only, whose questions measure steering.
    """
    tries = outcome.baselines
    train_tries = tries[tries["split"] == "train"]
    test_tries = tries[tries["split"] == "test"].reset_index(drop=True)
    start = outcome.start[outcome.start["condition"] == DRAWN_USERS].reset_index(drop=True)
    trained = outcome.trained[outcome.trained["condition"] == DRAWN_USERS].reset_index(drop=True)

    # Outcome vectors before training, after training and of every model by itself, (rows, tools + 3).
    vectors = np.vstack(
        [np.stack(start["m"]), np.stack(trained["m"]), make_tool_vectors(test_tries, tools)]
    )
    numbers = np.concatenate([start["number"], trained["number"], test_tries["item"]])
    # Of the same question: the user's preference vector, and the outcome vector before training.
    start_by_number = start.set_index("number")
    preferences = np.stack(start_by_number.loc[numbers, "p"])
    start_vectors = np.stack(start_by_number.loc[numbers, "m"])
    values, scores = score_vectors(vectors, numbers, preferences, start_vectors)

    ends = np.cumsum([len(start), len(trained)])
    start_rewards, trained_rewards, try_rewards = np.split(values, ends)
    start_scores, trained_scores, try_scores = np.split(scores, ends)
    test_tries = test_tries.assign(reward=try_rewards, score=try_scores)
    steered = pd.concat([outcome.start, outcome.trained], ignore_index=True)
    rewarded = replace(
        outcome,
        start=start.assign(reward=start_rewards, score=start_scores),
        trained=trained.assign(reward=trained_rewards, score=trained_scores),
        baselines=apply_rules(train_tries, test_tries, start),
    )
    return rewarded, steered[steered["condition"] != DRAWN_USERS]


def make_tool_vectors(tries: pd.DataFrame, tools: Sequence[str]) -> np.ndarray:
    """Make outcome vectors from a table of tools that each answered questions by itself.

    Args:
        tries: A row per tool and question, with the columns tool (its name), calls (how often it was called), correct
            (0 or 1, nan where a reply was lost), cost_usd and seconds.
        tools: Names of the tools in the order of the vectors.

    Returns:
        (rows, tools + 3) vectors [calls of each tool, outcome, -US dollars, -seconds]; in each row only the tool that
        was used has calls.
    """
    is_tool_of_row = tries["tool"].to_numpy()[:, None] == np.array(tools)  # (rows, tools)
    num_calls = tries["calls"].to_numpy()[:, None]  # (rows, 1)
    calls = num_calls * is_tool_of_row  # (rows, tools)
    return rewards.make_outcome_vectors(
        calls, tries["correct"], tries["cost_usd"], tries["seconds"]
    )


def score_vectors(
    vectors: np.ndarray, numbers: np.ndarray, preferences: np.ndarray, start_vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the reward of the training and the score of the paper's benchmark for each answer.

    Args:
        vectors: (rows, tools + 3) outcome vector of each answer.
        numbers: (rows,) number of the question, over whose answers vectors are normalized.
        preferences: (rows, tools + 3) preference vector of the question's user.
        start_vectors: (rows, tools + 3) outcome vector of the orchestrator before training on the same question.

    Returns:
        Rewards and scores, (rows,) each; nan where a reply was lost, of the answer or before training.
    """
    correct = vectors[:, rewards.OUTCOME_INDEX]
    start_correct = start_vectors[:, rewards.OUTCOME_INDEX]
    values = np.full(len(vectors), np.nan)
    scores = np.full(len(vectors), np.nan)
    # A lost reply has no score, and is in no minimum and no maximum of its question.
    scored = np.flatnonzero(~np.isnan(correct) & ~np.isnan(start_correct))
    if len(scored):
        normalized = rewards.normalize_within_groups(vectors[scored], numbers[scored])
        values[scored] = rewards.compute_preference_rewards(
            normalized, preferences[scored], correct[scored]
        )
        scores[scored] = rewards.compute_preference_scores(
            vectors[scored], start_vectors[scored], preferences[scored]
        )
    return values, scores


def apply_rules(
    train_tries: pd.DataFrame, test_tries: pd.DataFrame, start: pd.DataFrame
) -> pd.DataFrame:
    """Let every rule choose a model for each held-out question (the rules are listed at the top of the module).

    Args:
        train_tries: A row per model, used by itself, and training question.
        test_tries: The same for the held-out questions, with reward and score.
        start: A row per held-out question: what the orchestrator did before training, for randomly drawn users.

    Returns:
        A row per rule (column `method`) and question, with what the chosen model answered, cost and was rewarded.
    """
    # Orders of preference among the tools, learned from the training questions.
    order = rank_tools(train_tries)
    order_by_kind = {}
    for kind, tries in train_tries.groupby(["group", "difficulty"]):
        order_by_kind[kind] = rank_tools(tries, "mean")

    # One tool first. A rule answers every question: where the tool is not on the menu, the next one does.
    tables = []
    tested_tools = list(dict.fromkeys(test_tries["tool"]))
    for tool in tested_tools:
        orders = [[tool, *order]] * len(start)
        tables.append(_take_first(test_tries, start, orders).assign(method=PREFER + tool))

    # The order for all questions, and the order for each kind of question.
    same_order = [order] * len(start)
    tables.append(_take_first(test_tries, start, same_order).assign(method=BEST))
    kinds = zip(start["group"], start["difficulty"], strict=True)
    orders_of_kinds = [order_by_kind.get(kind, []) for kind in kinds]
    tables.append(_take_first(test_tries, start, orders_of_kinds).assign(method=BY_KIND))

    # Rules without an order.
    tables.append(_take_mean(test_tries, start).assign(method=RANDOM))
    tables.append(_take_best(test_tries, start).assign(method=ORACLE))
    rows = pd.concat(tables, ignore_index=True)

    # The ids of the questions in place of their numbers.
    questions = start.set_index("number").loc[rows["number"]]
    return rows.assign(
        condition=DRAWN_USERS,
        role=rows["method"].map(find_role),
        chosen=[[tool] if tool else [] for tool in rows["tool"]],
        item=questions["item"].to_numpy(),
        sample=questions["sample"].to_numpy(),
        group=questions["group"].to_numpy(),
    )


def rank_tools(tries: pd.DataFrame, by: str = "sum") -> list[str]:
    """Order tools by their correct answers, the most first; of equal ones the cheaper comes first.

    Args:
        tries: A row per tool, used by itself, and question, with the columns tool, correct and cost_usd.
        by: "sum" counts correct answers, so that a tool that is seldom on a menu comes late; "mean" goes by the share
            of correct answers to the questions that a tool was asked.

    Returns:
        Names of tools.
    """
    outcomes = tries.groupby("tool").agg(correct=("correct", by), cost_usd=("cost_usd", "mean"))
    outcomes = outcomes.sort_values(["correct", "cost_usd"], ascending=[False, True], kind="stable")
    return outcomes.index.tolist()


def _take_first(
    tries: pd.DataFrame, start: pd.DataFrame, orders: Sequence[Sequence[str]]
) -> pd.DataFrame:
    """Take for each question the first tool of an order of preference that answered it.

    Args:
        tries: A row per tool, used by itself, and question.
        start: A row per question, with its `number`.
        orders: For each question, names of tools in the order of preference.

    Returns:
        A row per question with the columns number, tool and those of _MEASURES; where no tool of the order answered
        it, tool is "" and the measures are 0.
    """
    tools_by_number = tries.groupby("item")["tool"].agg(set).to_dict()
    tools = []
    for number, order in zip(start["number"], orders, strict=True):
        tried_tools = tools_by_number.get(number, set())
        tools.append(next((name for name in order if name in tried_tools), ""))
    choices = pd.DataFrame({"item": start["number"].to_numpy(), "tool": tools})
    columns = ["item", "tool", *_MEASURES]
    rows = choices.merge(tries[columns], how="left", on=["item", "tool"])
    return _fill_unanswered(rows, rows["tool"] != "")


def _take_mean(tries: pd.DataFrame, start: pd.DataFrame) -> pd.DataFrame:
    """Take for each question the mean over all tools that answered it: a random choice, in expectation.

    Args:
        tries: A row per tool, used by itself, and question.
        start: A row per question, with its `number`.

    Returns:
        The columns of `_take_first`, with "" as tool.
    """

    def average(values: pd.Series) -> float:
        # One lost reply makes the expectation unknown.
        return values.mean(skipna=False)

    means = tries.groupby("item")[_MEASURES].agg(average)
    rows = means.reindex(start["number"]).rename_axis("item").reset_index().assign(tool="")
    return _fill_unanswered(rows, rows["item"].isin(tries["item"]))


def _take_best(tries: pd.DataFrame, start: pd.DataFrame) -> pd.DataFrame:
    """Take for each question the tool with the highest reward in hindsight; of equal ones the cheaper.

    Args:
        tries: A row per tool, used by itself, and question.
        start: A row per question, with its `number`.

    Returns:
        The columns of `_take_first`.
    """
    ranked = tries.sort_values(
        ["reward", "cost_usd"], ascending=[False, True], kind="stable", na_position="first"
    )
    best = ranked.drop_duplicates("item").set_index("item")[["tool", *_MEASURES]]
    rows = best.reindex(start["number"]).rename_axis("item").reset_index()
    return _fill_unanswered(rows, rows["tool"].notna())


def _fill_unanswered(rows: pd.DataFrame, is_answered: pd.Series) -> pd.DataFrame:
    """Fill in questions that no tool answered: they count as wrong, and cost nothing.

    Args:
        rows: A row per question, with the columns item (its number), tool and those of _MEASURES.
        is_answered: Whether any tool answered the question of each row.

    Returns:
        The rows, with the column `number` in place of `item`.
    """
    rows = rows.rename(columns={"item": "number"})
    rows.loc[~is_answered, _MEASURES] = 0.0
    return rows.assign(tool=rows["tool"].fillna(""))


def find_role(rule: str) -> str:
    """Find the role of a rule in the results table: "oracle", "router", "expert" or "constant"."""
    if rule == ORACLE:
        return "oracle"
    if rule == BY_KIND:
        return "router"
    return "expert" if rule.startswith(PREFER) else "constant"


def estimate_steering(steered: pd.DataFrame) -> pd.DataFrame:
    """Estimate how much more is spent for users who care for accuracy only than for users who care for cost only.

    An orchestrator that reads the user's preferences spends more for the former, on the same questions.

    Args:
        steered: A row per question, user and orchestrator (column `method`: before or after training), with item,
            condition (which user), correct (nan where a reply was lost) and cost_usd.

    Returns:
        A row per orchestrator: the mean difference in US dollars a question, and its interval; an empty table where
        every question lost a reply.
    """
    # Only questions of which no reply was lost, so that all conditions have the same questions.
    num_lost = steered.assign(is_lost=steered["correct"].isna()).groupby("item")["is_lost"].sum()
    rows = steered[steered["item"].map(num_lost) == 0]
    if rows.empty:
        return pd.DataFrame()
    return estimate_difference(
        rows, "cost_usd", {"condition": ACCURACY_ONLY}, {"condition": COST_ONLY}, "method"
    )


def describe_steering(estimates: pd.DataFrame) -> list[str]:
    """Describe in sentences how much an orchestrator follows the user's preferences.

    Args:
        estimates: What `estimate_steering` returned: a row per orchestrator, before and after training.

    Returns:
        A sentence per orchestrator: how many dollars a question more are spent for users who care for accuracy only
        than for users who care for cost only, and whether the difference is significant.
    """
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
