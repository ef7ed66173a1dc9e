"""The methods of lesson 08: they choose one model per item of a table on which every model's outcome is recorded.

Nothing is called or tuned here, so nothing is CoRL, ToolOrchestra or ARC itself. What carries over are the rewards. A
small network reads an item and a knob and chooses a model; three networks of one architecture differ in the reward:

    CoRL (3.3, eq. 5 to 7)       correct . 1[cost <= B]                   knob: the budget B of an item
    ToolOrchestra                correct . (M_norm . P)                   knob: the user's weight on cost
    ARC (eq. 1)                  correct - lambda . cost / unit           knob: lambda

A knob is the one parameter of a method that trades accuracy for cost. All outcomes are recorded, so the expectation
over the m models is a sum, and its exact gradient is followed: J = E sum_m pi_m(item, knob) R_m. A constant is one
model, asked for every item; the best constant is the most accurate one. Baselines: constants and their mixtures,
nearest neighbours and logistic regression, an agent that is stopped once it has spent too much, pairs of models with a
check between them, and an oracle.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from lib.config import RecordedSettings
from lib.experiment import seeds
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import Choices, Fold
from lib.recorded_outcomes.tables import OutcomeTable
from lib.tool_orchestration.rewards import normalize_within_groups

VERSION = 1  # of the methods on recorded outcomes
BEST_CONSTANT, CONSTANT_MIXTURES, RANDOM_MODEL, ORACLE = (
    "best constant",
    "mixtures",
    "random",
    "oracle",
)
NEAREST, LOGISTIC = "nearest neighbours", "logistic"
CORL, ORCHESTRA, ARC = "CoRL's reward", "ToolOrchestra's reward", "ARC's reward"
STOP_OR_ESCALATE, PERFECT_CHECK, POOR_CHECK = "stop or escalate", "perfect check", "poor check"
# By method, its role in figures.
ROLES = {
    BEST_CONSTANT: "constant",
    CONSTANT_MIXTURES: "constant",
    RANDOM_MODEL: "constant",
    NEAREST: "router",
    LOGISTIC: "router",
    CORL: "paper",
    ORCHESTRA: "paper",
    ARC: "paper",
    STOP_OR_ESCALATE: "router",
    POOR_CHECK: "router",
    PERFECT_CHECK: "router",
    ORACLE: "oracle",
}
# Routers that read an item and choose before any model is asked.
READERS = (NEAREST, LOGISTIC, CORL, ORCHESTRA, ARC)
# By method, its name in the keys of metrics.
METRIC_NAMES = {
    CONSTANT_MIXTURES: "mixtures",
    NEAREST: "knn",
    LOGISTIC: "logistic",
    CORL: "corl",
    ORCHESTRA: "toolorchestra",
    ARC: "arc",
    STOP_OR_ESCALATE: "stop",
    POOR_CHECK: "poor_check",
    PERFECT_CHECK: "check",
    ORACLE: "oracle",
    RANDOM_MODEL: "random",
    BEST_CONSTANT: "constant",
}

# Of the poor check (assumed): wrong answers that it lets pass, correct ones that it refuses.
MISS_RATE = 0.2
FALSE_ALARM_RATE = 0.1
_NUM_KNOBS = 9
_INVERSE_PENALTY = 0.1  # C of the logistic regressions
_MAX_ITERATIONS = 200
_HIDDEN_SIZE = 48
# Weight of the entropy in the first and in the last update: a saturated softmax learns nothing.
_ENTROPY_WEIGHTS = (0.1, 0.003)
# Quantiles of what the first agent spends, at which it is stopped.
_STOP_QUANTILES = (0.3, 0.5, 0.7, 0.85, 0.95)
_MAX_FIRST_AGENTS = 16  # agents that are paired, those on the front of quality and cost first


def make_choices(
    table: OutcomeTable,
    settings: RecordedSettings,
    seed: int,
    folds: Sequence[Fold],
    methods: Sequence[str] = tuple(ROLES),
) -> dict[str, list[Choices]]:
    """Fits every method on the train items of each fold, and lets it choose models for all items.

    Args:
        table: The recorded outcomes.
        settings: Settings of lesson 08.
        seed: Seed of the networks.
        folds: Train, dev and test items.
        methods: Names of the methods; those that choose nothing, such as the best constant, are skipped.

    Returns:
        By method, one `Choices` for each fold: the outcomes at each setting of its knob. Nearest neighbours and
        logistic regression are missing where items have no features, STOP_OR_ESCALATE where costs do not tell how long
        a model worked.
    """
    features_by_fold = []
    for fold in folds:
        features_by_fold.append(headroom.standardize_features(table.features, fold.train))
    choices_by_method = {}
    for method in CHOOSERS:
        if method not in methods:
            continue
        choices = _make_method_choices(table, method, settings, seed, folds, features_by_fold)
        if choices:
            choices_by_method[method] = choices
    return choices_by_method


def _make_method_choices(
    table: OutcomeTable,
    method: str,
    settings: RecordedSettings,
    seed: int,
    folds: Sequence[Fold],
    features_by_fold: Sequence[np.ndarray],
) -> list[Choices]:
    """Fits one method on each fold and lets it choose a model for every item.

    Args:
        table: The recorded outcomes.
        method: Name of the method.
        settings: Settings of lesson 08.
        seed: Seed of the training.
        folds: Train, dev and test items.
        features_by_fold: (items, d) features, standardized on each fold's train items.

    Returns:
        Outcomes of the choices for each fold; an empty list where the table does not allow the method.
    """
    if method in REWARDS:
        reward = REWARDS[method](table)
        return train_networks(table, folds, features_by_fold, reward, settings, method, seed)
    if method == STOP_OR_ESCALATE:
        if not table.cost_measures_work:
            return []
        return [stop_or_escalate(table, fold) for fold in folds]
    if method not in (NEAREST, LOGISTIC):
        return [CHOOSERS[method](table)] * len(folds)

    # Features that are equal for all items cannot tell items apart.
    has_features = table.features.shape[1] > 0 and np.ptp(table.features, axis=0).any()
    if not has_features:
        return []
    predict = predict_logistic
    if method == NEAREST:
        predict = partial(headroom.predict_nearest_neighbours, k=settings.neighbours)
    choices = []
    for features, fold in zip(features_by_fold, folds, strict=True):
        p_correct = predict(features, table.correct, fold.train)
        choices.append(choose_by_prediction(table, fold, p_correct))
    return choices


# Routers that predict which model is correct ------------------------------------------------------


def predict_logistic(features: np.ndarray, correct: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Predicts each model's probability of being correct by one logistic regression per model.

    Args:
        features: (items, d).
        correct: (items, models).
        train: Indices of the items to learn from.

    Returns:
        (items, models), probabilities of being correct. For a model that was always correct on the train items, or
        never, it is its accuracy there.
    """
    p_correct = np.tile(correct[train].mean(0), (len(features), 1))
    for model in range(correct.shape[1]):
        is_correct = correct[train, model] >= 0.5
        if 0 < is_correct.sum() < len(is_correct):
            regression = LogisticRegression(C=_INVERSE_PENALTY, max_iter=_MAX_ITERATIONS)
            regression.fit(features[train], is_correct)
            p_correct[:, model] = regression.predict_proba(features)[:, 1]
    return p_correct


def choose_by_prediction(table: OutcomeTable, fold: Fold, p_correct: np.ndarray) -> Choices:
    """Chooses the model with the largest p_correct - rate x expected cost, at every rate of `headroom.RATES`.

    Args:
        table: The recorded outcomes.
        fold: Its train items give the expected cost of each model.
        p_correct: (items, models), predicted probabilities of being correct.

    Returns:
        Outcomes of the chosen models, (rates, items).
    """
    all_models = np.arange(len(table.models))
    expected_cost = table.cost_usd[fold.train].mean(0)
    return headroom.choose_at_rates(table, p_correct, all_models, expected_cost)


# Networks under the papers' rewards ---------------------------------------------------------------

# From item indices (folds, batch) and knobs (folds, batch, 1) in [0, 1] to rewards (folds, batch, models).
Reward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class KnobReward:
    """A reward with a knob in [0, 1], the one number that trades accuracy for cost.

    Attributes:
        compute: Computes the reward of every model.
        read_knob: Converts a knob in [0, 1] to what it stands for, such as a budget in USD.
    """

    compute: Reward
    read_knob: Callable[[float], float]


def make_corl_reward(table: OutcomeTable) -> KnobReward:
    """Makes CoRL's reward, correct * 1[cost <= B] (eq. 5 to 7), where the knob sets the budget B.

    Args:
        table: The recorded outcomes.

    Returns:
        The reward. Knobs from 0 to 1 are budgets in USD, log-uniform from cheap calls to expensive ones.
    """
    correct = torch.tensor(table.correct, dtype=torch.float32)
    cost_usd = torch.tensor(table.cost_usd, dtype=torch.float32)
    paid_costs = table.cost_usd[table.cost_usd > 0]
    # Knobs 0 and 1 are budgets a little below cheap calls and a little above expensive ones.
    cheap, expensive = np.quantile(paid_costs, [0.02, 0.98])
    low = np.log(cheap * 0.8)
    high = np.log(expensive * 1.25)

    def compute(rows: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        budget = torch.exp(low + (high - low) * knobs)  # (folds, batch, 1)
        return correct[rows] * (cost_usd[rows] <= budget)

    return KnobReward(compute, lambda knob: float(np.exp(low + (high - low) * knob)))


def make_toolorchestra_reward(table: OutcomeTable) -> KnobReward:
    """Makes ToolOrchestra's reward, correct * (M_norm . P), where the knob weighs saving against outcome.

    Outcome and saving (-cost) are normalized over the item's models: 0 is the worst, 1 the best.

    Args:
        table: The recorded outcomes.

    Returns:
        The reward. A knob k weighs saving by k and outcome by 1 - k.
    """
    num_items, num_models = table.correct.shape
    vectors = np.column_stack([table.correct.ravel(), -table.cost_usd.ravel()])
    # Vectors of one item stand side by side: they are one group.
    item_of_vector = np.repeat(np.arange(num_items), num_models)
    normalized = normalize_within_groups(vectors, item_of_vector)
    normalized = normalized.reshape(num_items, num_models, 2)
    correct = torch.tensor(table.correct, dtype=torch.float32)
    outcome = torch.tensor(normalized[:, :, 0], dtype=torch.float32)
    saving = torch.tensor(normalized[:, :, 1], dtype=torch.float32)

    def compute(rows: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        preference = (1 - knobs) * outcome[rows] + knobs * saving[rows]
        return (correct[rows] > 0) * preference

    return KnobReward(compute, lambda knob: knob)


def make_arc_reward(table: OutcomeTable) -> KnobReward:
    """Makes ARC's utility, correct - lambda * cost / unit (eq. 1), where the knob sets lambda.

    Args:
        table: The recorded outcomes; the unit is the cost of the mean call.

    Returns:
        The reward. Knobs from 0 to 1 are log-uniform values of lambda.
    """
    unit = float(table.cost_usd.mean()) or 1.0
    correct = torch.tensor(table.correct, dtype=torch.float32)
    cost = torch.tensor(table.cost_usd / unit, dtype=torch.float32)
    # From 1e-2, where cost hardly matters, to 3, where a mean call weighs more than a right answer.
    low, high = np.log([1e-2, 3.0])

    def compute(rows: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        weight = torch.exp(low + (high - low) * knobs)  # lambda, (folds, batch, 1)
        return correct[rows] - weight * cost[rows]

    return KnobReward(compute, lambda knob: float(np.exp(low + (high - low) * knob)))


REWARDS: Mapping[str, Callable[[OutcomeTable], KnobReward]] = {
    CORL: make_corl_reward,
    ORCHESTRA: make_toolorchestra_reward,
    ARC: make_arc_reward,
}


class FoldNetworks(nn.Module):
    """pi(model | item, knob), a network with one hidden layer for each of several folds at once.

    The knob enters as a number, and as its distance from seven positions, because the best choice changes abruptly
    where the knob passes the price of a model.
    """

    def __init__(
        self, num_folds: int, num_features: int, num_models: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.knob_positions = torch.linspace(0, 1, 7)
        num_inputs = num_features + 1 + len(self.knob_positions)
        weights = torch.randn(num_folds, num_inputs, _HIDDEN_SIZE, generator=generator)
        self.hidden_weight = nn.Parameter(weights / num_inputs**0.5)
        self.output_weight = nn.Parameter(torch.zeros(num_folds, _HIDDEN_SIZE, num_models))
        self.hidden_bias = nn.Parameter(torch.zeros(num_folds, 1, _HIDDEN_SIZE))
        self.output_bias = nn.Parameter(torch.zeros(num_folds, 1, num_models))

    def forward(self, features: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        """Log probabilities (f, b, m) from features (f, b, d) and knobs (f, b, 1) in [0, 1]."""
        # Steep ramps: output changes abruptly where the knob passes one of the positions.
        distances = torch.tanh((knobs - self.knob_positions) * 8)  # (f, b, 7)
        inputs = torch.cat([features, 2 * knobs - 1, distances], dim=2)
        hidden = torch.tanh(inputs @ self.hidden_weight + self.hidden_bias)
        return (hidden @ self.output_weight + self.output_bias).log_softmax(2)


def train_networks(
    table: OutcomeTable,
    folds: Sequence[Fold],
    features_by_fold: Sequence[np.ndarray],
    reward: KnobReward,
    settings: RecordedSettings,
    method: str,
    seed: int,
) -> list[Choices]:
    """Trains a network per fold on its train items, by gradient ascent on the expected reward.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items.
        features_by_fold: By fold, the features of all items, (items, d).
        reward: The reward whose expectation is maximized.
        settings: updates, batch and learning_rate are read.
        method: Name of the method; with the name of the table it identifies the random stream.
        seed: Seed of the random stream.

    Returns:
        For each fold, the outcomes of the most probable model for every item at each of _NUM_KNOBS settings of the
        knob.
    """
    generator = seeds.torch_generator("meeting", "recorded", table.name, method, seed=seed)
    features = torch.as_tensor(np.stack(features_by_fold), dtype=torch.float32)
    networks = FoldNetworks(len(folds), features.shape[2], len(table.models), generator)
    optimizer = torch.optim.AdamW(networks.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.updates)
    train_rows = [torch.as_tensor(fold.train) for fold in folds]
    fold_index = torch.arange(len(folds))[:, None]

    for entropy_weight in np.geomspace(*_ENTROPY_WEIGHTS, settings.updates):
        # A minibatch of train items for each fold, each item with a random knob.
        uniform = torch.rand(len(folds), settings.batch, generator=generator)
        sampled_rows = []
        for fold_rows, fold_uniform in zip(train_rows, uniform, strict=True):
            sampled_rows.append(fold_rows[(fold_uniform * len(fold_rows)).long()])
        rows = torch.stack(sampled_rows)  # (folds, batch)
        knobs = torch.rand(len(folds), settings.batch, 1, generator=generator)

        # J = E sum_m pi_m R_m, and the entropy -sum_m pi_m log pi_m.
        log_probs = networks(features[fold_index, rows], knobs)  # (folds, batch, models)
        rewards = reward.compute(rows, knobs) - float(entropy_weight) * log_probs
        objective = (log_probs.exp() * rewards).sum(2).mean(1)  # (folds,)
        loss = (-objective).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return _choose_most_probable(table, networks, features, reward)


@torch.no_grad()
def _choose_most_probable(
    table: OutcomeTable, networks: FoldNetworks, features: torch.Tensor, reward: KnobReward
) -> list[Choices]:
    """Chooses the most probable model for every item, at evenly spaced settings of the knob.

    Args:
        table: The recorded outcomes.
        networks: A trained network for each fold.
        features: (folds, items, d).
        reward: Says what a setting of the knob means.

    Returns:
        Outcomes of the choices for each fold.
    """
    knob_positions = np.linspace(0, 1, _NUM_KNOBS)
    models_by_knob = []  # by knob, (folds, items)
    for knob in knob_positions:
        knobs = torch.full((*features.shape[:2], 1), float(knob))
        models_by_knob.append(networks(features, knobs).argmax(2).numpy())
    names = tuple(f"{reward.read_knob(knob):.6g}" for knob in knob_positions)
    choices = []
    for fold in range(len(features)):
        chosen_models = np.stack([models[fold] for models in models_by_knob])  # (knobs, items)
        choices.append(_read_outcomes(table, chosen_models, names, learned=True))
    return choices


def _read_outcomes(
    table: OutcomeTable, chosen_models: np.ndarray, names: tuple[str, ...], learned: bool = False
) -> Choices:
    """Looks up the recorded outcomes of chosen models.

    Args:
        table: The recorded outcomes.
        chosen_models: (knob settings, items), model indices.
        names: A name for each knob setting.
        learned: Whether the choices were learned from the train items.

    Returns:
        Correctness and cost, (knob settings, items).
    """
    items = np.arange(len(table))
    return Choices(
        correct=table.correct[items, chosen_models],
        cost_usd=table.cost_usd[items, chosen_models],
        names=names,
        learned=learned,
    )


# Methods that ask one model after another, and the oracle -----------------------------------------


def stop_or_escalate(table: OutcomeTable, fold: Fold) -> Choices:
    """Stops a cheaper agent when it has spent a limit, and then asks a more expensive one.

    The work of an agent that finishes within the limit is accepted without a check. If it is stopped, the limit is paid
    in addition to the second agent's cost. Limits are quantiles of what the agent spent on the train and dev items.

    Args:
        table: The recorded outcomes, of which costs tell how long an agent worked.
        fold: Train, dev and test items.

    Returns:
        The outcomes of every pair of agents and limit, each of which is a knob setting.
    """
    train_rows = fold.train_and_dev
    candidates = headroom.sort_by_dominance(table.take(train_rows))[:_MAX_FIRST_AGENTS]
    mean_cost = table.cost_usd[train_rows].mean(0)  # (models,)
    correct = []
    cost_usd = []
    names = []
    for first in candidates:
        limits = np.quantile(table.cost_usd[train_rows, first], _STOP_QUANTILES)
        more_expensive = [second for second in candidates if mean_cost[second] > mean_cost[first]]
        for quantile, limit in zip(_STOP_QUANTILES, limits, strict=True):
            finishes = table.cost_usd[:, first] <= limit  # (items,)
            for second in more_expensive:
                escalated_cost = limit + table.cost_usd[:, second]
                correct.append(
                    np.where(finishes, table.correct[:, first], table.correct[:, second])
                )
                cost_usd.append(np.where(finishes, table.cost_usd[:, first], escalated_cost))
                names.append(
                    f"{table.models[first]} up to its {quantile:.0%} > {table.models[second]}"
                )
    if not names:
        return model_selection.constant_choices(table)
    return Choices(np.array(correct), np.array(cost_usd), tuple(names))


def choose_by_outcome(table: OutcomeTable) -> Choices:
    """Chooses as the oracle, who knows all outcomes: the model with the largest correct - rate * cost, at every rate.

    At the smallest rate this is the cheapest of the models that are correct on the item.

    Args:
        table: The recorded outcomes.

    Returns:
        Outcomes of the chosen models, (rates, items).
    """
    unit = float(table.cost_usd.mean()) or 1.0
    # A rate just above 0 chooses the cheapest of the correct models.
    rates = [1e-9, *headroom.RATES[1:]]
    chosen_models = [(table.correct - rate * table.cost_usd / unit).argmax(1) for rate in rates]
    names = tuple(f"rate {rate:.3g}" for rate in headroom.RATES)
    return _read_outcomes(table, np.stack(chosen_models), names)


def _choose_with_poor_checker(table: OutcomeTable) -> Choices:
    """A cascade whose check lets some wrong answers pass and refuses some correct ones."""
    return headroom.choose_with_checker(table, MISS_RATE, FALSE_ALARM_RATE)


# By method, how it chooses on a table; None where it has to learn, or to choose a limit, by fold.
CHOOSERS: Mapping[str, Callable[[OutcomeTable], Choices] | None] = {
    CONSTANT_MIXTURES: model_selection.constant_choices,
    NEAREST: None,
    LOGISTIC: None,
    **dict.fromkeys(REWARDS),
    STOP_OR_ESCALATE: None,
    POOR_CHECK: _choose_with_poor_checker,
    PERFECT_CHECK: headroom.choose_with_checker,
    ORACLE: choose_by_outcome,
}
