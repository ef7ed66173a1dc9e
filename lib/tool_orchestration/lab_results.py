"""The experiment in the lab world as rows of a results table, and the estimates that the lesson keeps.

Everybody stands on the same test menus. `score` is the bounded preference score (`menu_baselines.compute_menu_scores`)
with the orchestrator's own tokens in cost and latency, `score_of_calls` without them; baselines have no own tokens.

    steer.cost, steer.latency           what users who care for cost, or latency, only spend less than those who care
                                        for accuracy only: expected, over that of the menu's mean tool
    trained.gain                        score above the start
    trained.minus_best_single           score above the best single tool
    sign_error.cost                     what a user who cares for cost only spends more under the sign error
    heldout_tools.called_where_best     probability of tools that training never had, above an even choice, where they
                                        are the best choice
    unseen_prices.shift                 probability of the tools that an unseen price list made cheap, above that at
                                        usual prices
    gate.tools.headroom                 score of the best choice, chosen on one sample of outcomes and scored on
                                        another, above the best single tool
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib import stats
from lib.tool_orchestration import lab_world, menu_baselines, steering
from lib.tool_orchestration.lab_experiment import SAMPLES, START, LabWorldResults
from lib.tool_orchestration.lab_training import (
    LAB_VARIANTS,
    NO_PREFERENCES,
    PREFERENCES,
    SIGN_ERROR,
)
from lib.tool_orchestration.menu_baselines import MenuOutcomes

SYSTEM = "toolorchestra_lab"
TRAINED = PREFERENCES.label
LABELS = {START: START} | {variant.name: variant.label for variant in LAB_VARIANTS}

RANDOM = "random"
BEST_SINGLE = "best single tool"
BEST_BY_KIND = "best by kind"
CASCADE = "type-aware cascade"
LOGISTIC = "logistic on descriptions"
ORACLE = "oracle"
SINGLE = "only "  # and the name of a tool
ROLES = {RANDOM: "constant", BEST_SINGLE: "constant", ORACLE: "oracle"}


# Rows ----------------------------------------------------------------------------------------------


def make_rows(results: LabWorldResults) -> pd.DataFrame:
    """Makes the rows of the results table: episodes of orchestrators, and baselines.

    Args:
        results: Of `lab_experiment.run`.

    Returns:
        A row for each method, seed and test menu. Columns besides those of the results table: score, score_of_calls,
        wild (1 where a turn was malformed).
    """
    rows = pd.concat([make_orchestrator_rows(results), make_baseline_rows(results)])
    return rows.assign(
        item=rows["item"].astype(str),
        split="test",
        backend="lab",
        wild=(rows["malformed"] > 0).astype(float),
    ).reset_index(drop=True)


def make_orchestrator_rows(results: LabWorldResults) -> pd.DataFrame:
    """Rows of episodes, with their scores."""
    outcomes = results.outcomes[lab_world.TEST_MENUS][0]
    tables = []
    for (method, _), rows in results.episodes.groupby(["method", "seed"], sort=False):
        rows = rows.sort_values("item")
        columns = [rows[name].to_numpy()[:, None] for name in ("correct", "cost_usd", "seconds")]
        own_cost = rows["own_cost_usd"].to_numpy()[:, None]
        correct, cost, seconds = columns
        with_own = menu_baselines.compute_menu_scores(outcomes, correct, cost, seconds)
        of_calls = menu_baselines.compute_menu_scores(outcomes, correct, cost - own_cost, seconds)
        table = rows.assign(
            method=LABELS[method],
            role="start" if method == START else "router",
            score=with_own[:, 0],
            score_of_calls=of_calls[:, 0],
        )
        tables.append(table)
    rows = pd.concat(tables)
    return rows.assign(role=rows["role"].mask(rows["method"] == TRAINED, "paper"))


def list_choices(dev: MenuOutcomes, test: MenuOutcomes) -> dict[str, np.ndarray]:
    """Lists the choices of all baselines.

    Args:
        dev: Learned from.
        test: Where choices are made.

    Returns:
        By name, (n, M) probabilities; nan on menus where a baseline has no choice.
    """
    choices = {
        RANDOM: menu_baselines.choose_at_random(test),
        BEST_SINGLE: menu_baselines.choose_best_tool(dev, test),
        BEST_BY_KIND: menu_baselines.choose_best_by_kind(dev, test),
        CASCADE: menu_baselines.choose_by_type_and_price(test),
        LOGISTIC: menu_baselines.choose_by_logistic_regression(dev, test),
        ORACLE: menu_baselines.choose_oracle(test),
    }
    names = {entry.tool.name for a in test.assignments for entry in a.entries}
    for name in sorted(names):
        choices[SINGLE + name] = menu_baselines.choose_single_tool(test, name)
    return choices


def make_baseline_rows(results: LabWorldResults) -> pd.DataFrame:
    """Rows of the baselines: expectations over their choices, in the sample that orchestrators are scored against."""
    dev = results.outcomes[lab_world.DEV_MENUS][0]
    test = results.outcomes[lab_world.TEST_MENUS][0]
    scores = test.compute_scores()
    kinds = [assignment.item.group for assignment in test.assignments]
    tables = []
    for name, choice in list_choices(dev, test).items():
        score = menu_baselines.average_choices(choice, scores)
        table = pd.DataFrame(
            {
                "item": np.arange(len(kinds)),
                "group": kinds,
                "method": name,
                "role": ROLES.get(name, "expert" if name.startswith(SINGLE) else "router"),
                "correct": menu_baselines.average_choices(choice, test.correct),
                "cost_usd": menu_baselines.average_choices(choice, test.cost_usd),
                "seconds": menu_baselines.average_choices(choice, test.seconds),
                "score": score,
                "score_of_calls": score,
            }
        )
        tables.append(table[~np.isnan(score)])
    rows = pd.concat(tables)
    nothing = [[] for _ in range(len(rows))]
    return rows.assign(seed=0, own_cost_usd=0.0, calls=1, malformed=0, chosen=nothing)


# Estimates -----------------------------------------------------------------------------------------


def estimate_headroom(results: LabWorldResults) -> pd.Series:
    """Estimates what the best choice for each menu scores above the best single tool.

    The choice is made on one sample of outcomes and scored on another, both ways round, so that luck wins nothing.

    Args:
        results: Of `lab_experiment.run`.

    Returns:
        An estimate.
    """
    dev = results.outcomes[lab_world.DEV_MENUS][0]
    samples = results.outcomes[lab_world.TEST_MENUS]
    tables = []
    for sample in range(SAMPLES):
        chosen_on, scored_on = samples[sample], samples[(sample + 1) % SAMPLES]
        scores = scored_on.compute_scores()
        choice = menu_baselines.choose_oracle(chosen_on)
        constant = menu_baselines.choose_best_tool(dev, scored_on)
        difference = menu_baselines.average_choices(choice - constant, scores)
        columns = {"item": np.arange(len(scores)), "headroom": difference, "sample": sample}
        tables.append(pd.DataFrame(columns))
    return stats.mean(pd.concat(tables), "headroom").iloc[0]


def compute_steering(results: LabWorldResults) -> pd.DataFrame:
    """Computes the paired differences between users: method (label), seed, item, steer.cost, steer.latency."""
    tables = []
    for (method, seed), spending in results.spending.groupby(["method", "seed"], sort=False):
        differences = steering.compare_users(spending).reset_index()
        tables.append(differences.assign(method=LABELS[method], seed=seed))
    return pd.concat(tables, ignore_index=True)


def estimate_metrics(results: LabWorldResults, rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimates what the lesson keeps; see the head of this module.

    Args:
        results: Of `lab_experiment.run`, with all of LAB_VARIANTS.
        rows: Of `make_rows`.

    Returns:
        Estimates by name. Names that begin with `start.` or `no_preferences.` are the same of these methods.
    """
    trained = {"method": TRAINED}
    steer = compute_steering(results)
    held_out = label_methods(results.held_out)
    held_out = held_out.assign(called=held_out["probability"] - held_out["chance"])
    where_best = held_out[held_out["is_best"]]
    prices = label_methods(results.prices)
    spending = label_methods(results.spending)
    cost_users = spending[spending["user"] == "cost"]

    metrics = {"gate.tools.headroom": estimate_headroom(results)}
    prefixes = {TRAINED: "", START: "start.", NO_PREFERENCES.label: "no_preferences."}
    for method, prefix in prefixes.items():
        for name in ("steer.cost", "steer.latency"):
            metrics[prefix + name] = estimate_mean(steer, name, method)
        metrics[f"{prefix}heldout_tools.called_where_best"] = estimate_mean(
            where_best, "called", method
        )
        metrics[f"{prefix}unseen_prices.shift"] = estimate_mean(prices, "shift", method)

    rivals = {
        "trained.gain": START,
        "trained.minus_best_single": BEST_SINGLE,
        "trained.minus_random": RANDOM,
        "trained.minus_logistic": LOGISTIC,
        "trained.minus_no_preferences": NO_PREFERENCES.label,
    }
    for name, rival in rivals.items():
        metrics[name] = estimate_difference(rows, "score", trained, {"method": rival})
    for column in ("correct", "cost_usd", "seconds"):
        metrics[f"trained.{column}_minus_start"] = estimate_difference(
            rows, column, trained, {"method": START}
        )
    metrics["sign_error.cost"] = estimate_difference(
        cost_users, "cost", {"method": SIGN_ERROR.label}, trained
    )
    return metrics


def label_methods(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the labels of methods in place of their names."""
    return rows.assign(method=rows["method"].map(LABELS))


def estimate_mean(rows: pd.DataFrame, column: str, method: str) -> pd.Series:
    """The mean of one method, over seeds crossed with menus."""
    return stats.mean(rows[rows["method"] == method], column).iloc[0]


def estimate_difference(
    rows: pd.DataFrame, column: str, treatment: Mapping, baseline: Mapping
) -> pd.Series:
    """The difference of two methods inside pairs of seed and menu."""
    return stats.paired_difference(rows, column, treatment, baseline).iloc[0]
