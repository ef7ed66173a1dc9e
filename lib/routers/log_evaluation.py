"""What models and routers would be worth, estimated from a log of one choice for each item, with its probability.

    estimates = estimate_policies(read_choice_table("log.parquet"))

Of a policy pi, from choices a that were drawn with probabilities p (q: outcomes predicted from other items of the log):

    IPS     mean of w r,                         w = 1[a = pi(x)] / p(a)      Horvitz and Thompson 1952
    SNIPS   mean of w r / mean of w                                           Swaminathan and Joachims 2015
    DR      mean of q(x, pi(x)) + w (r - q(x, a))                             Dudik, Langford and Li 2011

Policies are every model for all items, and a router that asks the model with the largest predicted outcome; neither it
nor q learned from the item that is scored. `logged_policies` compares these estimators with the truth, on tables that
hold it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib import stats
from lib.experiment import seeds
from lib.recorded_outcomes import headroom
from lib.recorded_outcomes.user_tables import ChoiceTable
from lib.routers import logged_policies
from lib.stats.random_effects import mde_from_interval

VERSION = 1  # of the estimates from a user's log
FOLDS = 5
ROUTER = "router of predicted outcomes"
ESTIMATORS = ("ips", "snips", "dr")
MIN_MATCHES = 20  # items on which the log made a policy's choice; with fewer, nothing is said about the policy


def predict_outcomes(table: ChoiceTable) -> np.ndarray:
    """Predicts the outcome of every model on every item, by cross-fitting over whole groups.

    Args:
        table: The log, which has the outcome of one model for each item.

    Returns:
        (items, models) in [0, 1]; the predictions of an item are learned from other folds than its own.
    """
    names, group_of_item = np.unique(table.groups, return_inverse=True)
    num_folds = min(FOLDS, len(names))
    order = seeds.rng("outcomes", "log folds", table.name).permutation(len(names))
    fold_of_item = (order % num_folds)[group_of_item]
    predicted = np.zeros((len(table), len(table.models)))
    for fold in range(num_folds):
        learned_from = np.flatnonzero(fold_of_item != fold)
        scored = np.flatnonzero(fold_of_item == fold)
        features = headroom.standardize_features(table.features, learned_from)
        outcomes = logged_policies.predict_outcomes(
            features, table.chosen, table.correct, learned_from, len(table.models)
        )
        predicted[scored] = outcomes[scored]
    return predicted


def estimate_policies(table: ChoiceTable) -> pd.DataFrame:
    """Estimates the accuracy and cost of every model, and of a router.

    Args:
        table: The log of choices with their probabilities.

    Returns:
        A row for each policy, a single model for all items or the router:
        policy: its name.
        matches: number of items on which the log made the policy's choice.
        ips, snips, dr: accuracy by each of ESTIMATORS, with the ends NAME_ci_low and NAME_ci_high over groups.
        cost_usd: mean cost of an item, by SNIPS.
        gain: dr minus that of the best single model, paired by item, with gain_ci_low and gain_ci_high.
    """
    predicted = predict_outcomes(table)
    num_items = len(table)
    policies = {
        model: np.full(num_items, index, dtype=int) for index, model in enumerate(table.models)
    }
    policies[ROUTER] = predicted.argmax(1)
    rows = []
    for name, choices in policies.items():
        row = {"policy": name, "matches": int((choices == table.chosen).sum())}
        row |= estimate_policy(table, choices, predicted)
        rows.append(row)
    estimates = pd.DataFrame(rows)

    # The baseline is the best of the single models that the log chose often enough.
    is_usable = (estimates["policy"] != ROUTER) & (estimates["matches"] >= MIN_MATCHES)
    if not is_usable.any():
        return estimates.assign(gain=np.nan, gain_ci_low=np.nan, gain_ci_high=np.nan)
    best = estimates["policy"][estimates["dr"].where(is_usable).idxmax()]
    baseline = estimate_item_by_item(table, policies[best], predicted)
    for index, choices in enumerate(policies.values()):
        gain = estimate_item_by_item(table, choices, predicted) - baseline
        interval = stats.grouped_interval(gain, table.groups)
        columns = ["gain", "gain_ci_low", "gain_ci_high"]
        estimates.loc[index, columns] = [interval.value, interval.ci_low, interval.ci_high]
    return estimates


def estimate_item_by_item(
    table: ChoiceTable, choices: np.ndarray, predicted: np.ndarray
) -> np.ndarray:
    """Computes each item's contribution to the doubly robust estimate of a policy's accuracy.

    Args:
        table: The log.
        choices: (items,) index of the model that the policy asks.
        predicted: (items, models), outcomes that were predicted from other items of the log.

    Returns:
        (items,) numbers, whose mean is the estimate.
    """
    items = np.arange(len(table))
    # Importance weight: 0 where the log made another choice than the policy.
    weight = (choices == table.chosen) / table.propensity  # (items,)
    residual = table.correct - predicted[items, table.chosen]
    return predicted[items, choices] + weight * residual


def estimate_policy(
    table: ChoiceTable, choices: np.ndarray, predicted: np.ndarray
) -> dict[str, float]:
    """Estimates accuracy and cost of one policy by each of ESTIMATORS, with intervals over groups.

    Args:
        table: The log.
        choices: (items,) index of the model that the policy asks.
        predicted: (items, models), outcomes that were predicted from other items of the log.

    Returns:
        Each estimate with the ends of its interval, and the mean cost, by column name.
    """
    weight = (choices == table.chosen) / table.propensity  # (items,)
    mean_weight = float(weight.mean())
    reward = table.correct
    contributions = {
        "ips": weight * reward,
        "dr": estimate_item_by_item(table, choices, predicted),
    }
    estimates = {}
    for name, values in contributions.items():
        interval = stats.grouped_interval(values, table.groups)
        estimates |= {name: interval.value, f"{name}_ci_low": interval.ci_low}
        estimates[f"{name}_ci_high"] = interval.ci_high
    if mean_weight == 0:
        return estimates | dict.fromkeys(
            ("snips", "snips_ci_low", "snips_ci_high", "cost_usd"), np.nan
        )

    # A ratio of means: its linear expansion has the same variance for many items.
    value = float((weight * reward).mean()) / mean_weight
    expansion = stats.grouped_interval(weight * (reward - value) / mean_weight, table.groups)
    return estimates | {
        "snips": value,
        "snips_ci_low": value + expansion.ci_low,
        "snips_ci_high": value + expansion.ci_high,
        "cost_usd": float((weight * table.cost_usd).mean()) / mean_weight,
    }


def write_sentence(estimates: pd.DataFrame) -> str:
    """Writes a sentence on whether choosing seems to pay, by the doubly robust estimates.

    Args:
        estimates: As `estimate_policies` returns them.

    Returns:
        The sentence, which compares a router with the best single model.
    """
    models = estimates[estimates["policy"] != ROUTER]
    usable = models[models["matches"] >= MIN_MATCHES]
    if usable.empty:
        return (
            f"Whether choosing pays cannot be told from this log, because no model was chosen {MIN_MATCHES} times; log "
            "more, or explore a larger share."
        )
    best = usable.loc[usable["dr"].idxmax()]
    router = estimates[estimates["policy"] == ROUTER].iloc[0]
    # In percentage points.
    gain = 100 * float(router["gain"])
    ci_low = 100 * float(router["gain_ci_low"])
    ci_high = 100 * float(router["gain_ci_high"])
    points = f"{gain:.1f} points [{ci_low:.1f}, {ci_high:.1f}] over always {best['policy']} (DR)"
    accuracies = (
        f"right on {router['dr']:.3f} of the items, where that model is on {best['dr']:.3f}"
    )
    if router["matches"] < MIN_MATCHES:
        return (
            "Whether choosing pays cannot be told from this log, because it made the router's choice "
            f"{router['matches']} times only: a router would be {accuracies}."
        )
    if ci_low > 0:
        return f"Choosing gains {points}: a router would be {accuracies}."
    # An interval that holds what is worth having is no evidence against choosing.
    least = 100 * stats.MIN_HEADROOM
    effect = 100 * mde_from_interval(ci_low / 100, ci_high / 100)
    if max(effect, ci_high) >= least:
        return (
            f"Whether choosing pays cannot be told from this log, because the minimum "
            f"detectable effect is {effect:.1f} points, where {least:.0f} would be worth having: {points}."
        )
    return f"Choosing does not pay here, because a router gains {points}: it would be {accuracies}."
