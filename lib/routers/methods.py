"""Decision makers of the bench on recorded outcomes: one call per item, and everybody's outcome is on record.

It replays: no model is called or tuned, so nothing here is CoRL, ToolOrchestra or ARC itself. What can be carried over
is what they are paid. A small network sees an item and a knob and picks a model; three of a make differ in the reward:

    CoRL (3.3, eq. 5 to 7)       right . 1[dollars <= B]                      knob: the budget B of an item
    ToolOrchestra                right . (M_norm . P)                         knob: how much the user cares for money
    ARC (eq. 1)                  right - lambda . dollars / unit              knob: lambda

With all outcomes on record the expectation over the m models is known, so its exact gradient is followed:
J = E sum_m pi_m(item, knob) R_m. Beside them: constants and their mixtures, nearest neighbours and logistic
regression, an agent that is stopped once it has spent too much, pairs with a check between them, and the oracle.
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

VERSION = 1  # of deciders on recorded outcomes
CONSTANT, MIXTURES, RANDOM, ORACLE = "best constant", "mixtures", "random", "oracle"
NEAREST, LOGISTIC = "nearest neighbours", "logistic"
CORL, ORCHESTRA, ARC = "CoRL's reward", "ToolOrchestra's reward", "ARC's reward"
STOP, CHECK, POOR = "stop or escalate", "perfect check", "poor check"
ROLES = {
    CONSTANT: "constant", MIXTURES: "constant", RANDOM: "constant", NEAREST: "router", LOGISTIC: "router",
    CORL: "paper", ORCHESTRA: "paper", ARC: "paper", STOP: "router", POOR: "router", CHECK: "router", ORACLE: "oracle",
}  # fmt: skip
KEYS = {  # in the names of metrics
    MIXTURES: "mixtures", NEAREST: "knn", LOGISTIC: "logistic", CORL: "corl", ORCHESTRA: "toolorchestra", ARC: "arc",
    STOP: "stop", POOR: "poor_check", CHECK: "check", ORACLE: "oracle", RANDOM: "random", CONSTANT: "constant",
}  # fmt: skip
MISS, ALARM = (
    0.2,
    0.1,
)  # of the poor check: wrong answers that it lets pass, right ones that it refuses (assumed)
_KNOBS = 9
_HIDDEN = 48
_ENTROPY = (
    0.1,
    0.003,
)  # weight in the first and in the last update: a softmax learns nothing in a corner
_STOPS = (
    0.3,
    0.5,
    0.7,
    0.85,
    0.95,
)  # quantiles of what the first agent spends, at which it is stopped


def make_choices(
    table: OutcomeTable,
    settings: RecordedSettings,
    seed: int,
    folds: Sequence[Fold],
    arms: Sequence[str] = tuple(ROLES),
) -> dict[str, list[Choices]]:
    """What each of `methods` would do at each knob; one `Choices` per fold. Who predicts is left out where there is
    nothing to see, who stops where dollars do not tell how long a model worked."""
    seen = [headroom.standardize_features(table.features, fold.train) for fold in folds]
    made = {
        method: _make_method_choices(table, method, settings, seed, folds, seen)
        for method in PLAYERS
        if method in arms
    }
    return {method: choices for method, choices in made.items() if choices}


def _make_method_choices(
    table: OutcomeTable,
    method: str,
    settings: RecordedSettings,
    seed: int,
    folds: Sequence[Fold],
    seen: Sequence[np.ndarray],
) -> list[Choices]:
    if method in REWARDS:
        return learned(table, folds, seen, REWARDS[method](table), settings, (method, seed))
    if method in (NEAREST, LOGISTIC):
        if not (table.features.shape[1] and np.ptp(table.features, axis=0).any()):
            return []
        nearest = partial(headroom.predict_nearest_neighbours, k=settings.neighbours)
        chances = nearest if method == NEAREST else logistic
        return [
            by_chance(table, fold, chances(x, table.correct, fold.train))
            for x, fold in zip(seen, folds, strict=True)
        ]
    if method == STOP:
        return [stopped(table, fold) for fold in folds] if table.cost_measures_work else []
    return [PLAYERS[method](table)] * len(folds)


# Routers that predict who is right -----------------------------------------------------------------


def logistic(seen: np.ndarray, correct: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Chances (n, m): a logistic regression for each model; of one that was always right, or never, its rate."""
    out = np.tile(correct[train].mean(0), (len(seen), 1))
    for model in range(correct.shape[1]):
        target = correct[train, model] >= 0.5
        if 0 < target.sum() < len(target):
            fitted = LogisticRegression(C=0.1, max_iter=200).fit(seen[train], target)
            out[:, model] = fitted.predict_proba(seen)[:, 1]
    return out


def by_chance(table: OutcomeTable, fold: Fold, chances: np.ndarray) -> Choices:
    """argmax of chance - rate x expected dollars, over all models."""
    return headroom.choose_at_rates(
        table, chances, np.arange(len(table.models)), table.cost_usd[fold.train].mean(0)
    )


# Networks under the papers' rewards ----------------------------------------------------------------

Reward = Callable[
    [torch.Tensor, torch.Tensor], torch.Tensor
]  # rows (f, b), knobs (f, b, 1) in [0, 1] -> (f, b, m)


@dataclass(frozen=True)
class RewardKnob:
    """A reward and what its knob in [0, 1] stands for."""

    reward: Reward
    value: Callable[[float], float]


def corl(table: OutcomeTable) -> RewardKnob:
    """right . 1[dollars <= B], B between the cheapest and the dearest calls, log-uniform (CoRL, eq. 5 to 7)."""
    correct, cost_usd = (
        torch.tensor(each, dtype=torch.float32) for each in (table.correct, table.cost_usd)
    )
    priced = table.cost_usd[table.cost_usd > 0]
    low, high = np.log(np.quantile(priced, [0.02, 0.98]) * [0.8, 1.25])

    def reward(rows: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        return correct[rows] * (cost_usd[rows] <= torch.exp(low + (high - low) * knobs))

    return RewardKnob(reward, lambda knob: float(np.exp(low + (high - low) * knob)))


def toolorchestra(table: OutcomeTable) -> RewardKnob:
    """right . (M_norm . P): outcome and -dollars between the worst (0) and the best (1) of the item's models, for a
    user who weighs money by the knob and the outcome by the rest."""
    n, m = table.correct.shape
    vectors = np.column_stack([table.correct.ravel(), -table.cost_usd.ravel()])
    norm = normalize_within_groups(vectors, np.repeat(np.arange(n), m)).reshape(n, m, 2)
    correct, outcome, saving = (
        torch.tensor(each, dtype=torch.float32)
        for each in (table.correct, norm[:, :, 0], norm[:, :, 1])
    )

    def reward(rows: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        return (correct[rows] > 0) * ((1 - knobs) * outcome[rows] + knobs * saving[rows])

    return RewardKnob(reward, lambda knob: knob)


def arc(table: OutcomeTable) -> RewardKnob:
    """right - lambda . dollars / unit (ARC, eq. 1); the unit is what the mean call costs, lambda log-uniform."""
    unit = float(table.cost_usd.mean()) or 1.0
    correct, cost = (
        torch.tensor(each, dtype=torch.float32) for each in (table.correct, table.cost_usd / unit)
    )
    low, high = np.log([1e-2, 3.0])

    def reward(rows: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        return correct[rows] - torch.exp(low + (high - low) * knobs) * cost[rows]

    return RewardKnob(reward, lambda knob: float(np.exp(low + (high - low) * knob)))


REWARDS: Mapping[str, Callable[[OutcomeTable], RewardKnob]] = {
    CORL: corl,
    ORCHESTRA: toolorchestra,
    ARC: arc,
}


class Policies(nn.Module):
    """pi(model | item, knob) of f folds at once: a layer of tanh over the item and the knob, which enters as its
    distance from seven places too, because what is right changes where it passes the price of a model."""

    def __init__(self, folds: int, features: int, models: int, generator: torch.Generator) -> None:
        super().__init__()
        self.centres = torch.linspace(0, 1, 7)
        inputs = features + 1 + len(self.centres)
        self.inner = nn.Parameter(
            torch.randn(folds, inputs, _HIDDEN, generator=generator) / inputs**0.5
        )
        self.outer = nn.Parameter(torch.zeros(folds, _HIDDEN, models))
        self.shift = nn.Parameter(torch.zeros(folds, 1, _HIDDEN))
        self.lean = nn.Parameter(torch.zeros(folds, 1, models))

    def forward(self, features: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        """Log probabilities (f, b, m) from features (f, b, d) and knobs (f, b, 1) in [0, 1]."""
        near = torch.tanh((knobs - self.centres) * 8)
        hidden = torch.tanh(
            torch.cat([features, 2 * knobs - 1, near], dim=2) @ self.inner + self.shift
        )
        return (hidden @ self.outer + self.lean).log_softmax(2)


def learned(
    table: OutcomeTable,
    folds: Sequence[Fold],
    seen: Sequence[np.ndarray],
    paid: RewardKnob,
    settings: RecordedSettings,
    name: tuple[str, int],
) -> list[Choices]:
    """What a network chooses that climbs its expected reward, by fold. seen: features of all items, (n, d), by fold;
    name: of its random numbers, and their seed."""
    generator = seeds.torch_generator("meeting", "recorded", table.name, name[0], seed=name[1])
    features = torch.as_tensor(np.stack(seen), dtype=torch.float32)
    net = Policies(len(folds), features.shape[2], len(table.models), generator)
    optimizer = torch.optim.AdamW(net.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.updates)
    every, own = torch.arange(len(folds))[:, None], [torch.as_tensor(fold.train) for fold in folds]
    for entropy in np.geomspace(*_ENTROPY, settings.updates):
        places = torch.rand(len(folds), settings.batch, generator=generator)
        rows = torch.stack(
            [train[(place * len(train)).long()] for train, place in zip(own, places, strict=True)]
        )
        knobs = torch.rand(len(folds), settings.batch, 1, generator=generator)
        logs = net(features[every, rows], knobs)
        loss = (
            -(logs.exp() * (paid.reward(rows, knobs) - float(entropy) * logs)).sum(2).mean(1).sum()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    asked = _asked(net, features)
    return [_played(table, [who[fold] for who in asked], paid) for fold in range(len(folds))]


@torch.no_grad()
def _asked(net: Policies, features: torch.Tensor) -> list[np.ndarray]:
    """The likeliest model of every item at each knob: (f, n) each."""
    shape = (*features.shape[:2], 1)
    return [
        net(features, torch.full(shape, float(knob))).argmax(2).numpy()
        for knob in np.linspace(0, 1, _KNOBS)
    ]


def _played(table: OutcomeTable, asked: Sequence[np.ndarray], paid: RewardKnob) -> Choices:
    at, names = (
        np.arange(len(table)),
        tuple(f"{paid.value(knob):.6g}" for knob in np.linspace(0, 1, _KNOBS)),
    )
    return Choices(
        *(np.stack([each[at, who] for who in asked]) for each in (table.correct, table.cost_usd)),
        names,
        True,
    )


# Who looks at what the first one did ---------------------------------------------------------------


def stopped(table: OutcomeTable, fold: Fold) -> Choices:
    """A cheaper agent works until it has spent s; if it is done by then its work stands, unchecked, else it is stopped
    there, s is lost, and a dearer one is asked. s: quantiles of what it spent on the items that are known."""
    order = headroom.sort_by_dominance(table.take(fold.train_and_dev))[:16]
    means = table.cost_usd[fold.train_and_dev].mean(0)
    correct, cost_usd, names = [], [], []
    for a in order:
        for share, limit in zip(
            _STOPS, np.quantile(table.cost_usd[fold.train_and_dev, a], _STOPS), strict=True
        ):
            done = table.cost_usd[:, a] <= limit
            for b in (b for b in order if means[b] > means[a]):
                correct.append(np.where(done, table.correct[:, a], table.correct[:, b]))
                cost_usd.append(np.where(done, table.cost_usd[:, a], limit + table.cost_usd[:, b]))
                names.append(f"{table.models[a]} up to its {share:.0%} > {table.models[b]}")
    return (
        Choices(np.array(correct), np.array(cost_usd), tuple(names))
        if names
        else model_selection.constant_choices(table)
    )


def oracle(table: OutcomeTable) -> Choices:
    """Who knows every outcome: the best of right - rate x dollars, and at the least rate the cheapest that is right."""
    at, unit = np.arange(len(table)), float(table.cost_usd.mean()) or 1.0
    asked = [
        (table.correct - rate * table.cost_usd / unit).argmax(1)
        for rate in [1e-9, *headroom.RATES[1:]]
    ]
    return Choices(
        *(np.stack([each[at, who] for who in asked]) for each in (table.correct, table.cost_usd)),
        tuple(f"rate {rate:.3g}" for rate in headroom.RATES),
    )


PLAYERS: Mapping[str, Callable | None] = {  # who chooses; None: needs more than the table
    MIXTURES: model_selection.constant_choices,
    NEAREST: None,
    LOGISTIC: None,
    **dict.fromkeys(REWARDS),
    STOP: None,
    POOR: lambda table: headroom.choose_with_checker(table, MISS, ALARM),
    CHECK: headroom.choose_with_checker,
    ORACLE: oracle,
}
