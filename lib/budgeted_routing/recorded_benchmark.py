"""CoRL's training on recorded outcomes of real models: does a controller beat a constant model under a budget?

In CoRL a controller answers a question by calling experts, models that cost money, under a budget for the question that
stands in its prompt. Here the outcomes of all experts were recorded once, so that a call is a lookup: open models on
GSM8K (ZeroEval), and Mixtral and GPT-4 on GSM8K and MMLU (RouteLLM). The reward is CoRL's (eq. 7), and advantages and
losses are those of `lib.rl.losses`, by which the lab's controllers are trained.

What that leaves of CoRL: an episode is one decision, which expert answers. Recorded experts have answered the question
as it stands and *ignore any query that a controller writes*; there is no second call, and no answer of the controller's
own. The controller is a small network that reads a sentence embedding of the question and the budget. It learns from
bandit feedback: of an episode it sees the outcome of the expert that it called, and no other. Routers that are its
baselines (nearest neighbours, logistic regression) learn from the outcomes of all experts, for each budget apart.

From top to bottom:

    Partition                    train, dev and test questions, the ladder of experts, and what each budget rewards
    RecordedControllers          the networks, those of all partitions side by side
    train_controllers            PPO, with the best checkpoint on dev
    choose_*                     the baselines
    run                          rows of the results table
    estimate_headroom            the gate: what choosing per question could win over the best constant
    estimate_contrasts           CoRL minus each baseline

Letters of shapes: P partitions, B = 3 budgets, E experts, r episodes of each partition, n questions, d features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from lib import stats
from lib.budgeted_routing.expert_outcomes import derive_budgets, measure_call_prices
from lib.budgeted_routing.synthetic_training import clip_gradients, whiten_by_controller
from lib.config import LearnSettings, PriceSettings, RoutingRecordedSettings, RoutingSettings
from lib.experiment import results_table, seeds
from lib.recorded_outcomes import headroom, model_selection, tables
from lib.recorded_outcomes.model_selection import Fold
from lib.recorded_outcomes.tables import OutcomeTable
from lib.rl import budget_reward, losses
from lib.rl.call_protocol import BUDGET_WORDS
from lib.stats.verdicts import NOT_OPEN

VERSION = 1  # of training and baselines on recorded outcomes
SYSTEM = "corl_recorded"  # of the results table
CORL = "CoRL"
CONSTANT, RANDOM, ORACLE = "best constant", "random", "oracle"
NEAREST, LOGISTIC = "nearest neighbours", "logistic"
INFORMED = "informed router"  # sees more than any method may, and is the gate's alone
ROLES = {
    CORL: "paper",
    CONSTANT: "constant",
    NEAREST: "router",
    LOGISTIC: "router",
    RANDOM: "start",
    ORACLE: "oracle",
    INFORMED: "oracle",
}
BASELINES = (CONSTANT, NEAREST, LOGISTIC, RANDOM, ORACLE)
# A question whose headroom is small says nothing about these; that CoRL beats random it can still say.
_GATED_BASELINES = (CONSTANT, NEAREST, LOGISTIC)
TEST, HEADROOM = (
    "test",
    "headroom",
)  # splits of the rows: methods are compared, and the gate is decided


# Partitions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partition:
    """One division of a table's questions, with everything that follows from its train questions.

    Attributes:
        seed: Repeat of the cross-validation.
        fold: Train, dev and test questions; whole groups each.
        ladder: The table with the experts of the ladder only, cheapest first.
        budgets: US dollars a question, by the budget's name.
        features: (n, d) of the questions, standardized on train.
        rewards: (B, n, E) reward of calling each expert, CoRL's eq. 7.
    """

    seed: int
    fold: Fold
    ladder: OutcomeTable
    budgets: dict[str, float]
    features: np.ndarray
    rewards: np.ndarray


def load_table(name: str, prices: PriceSettings, settings: RoutingRecordedSettings) -> OutcomeTable:
    """Loads a table of recorded outcomes, with at most `settings.items` questions.

    Args:
        name: In `lib.recorded_outcomes.tables.SHIPPED`.
        prices: Costs where the source has none.
        settings: Of the benchmark.

    Raises:
        TableError: There is no such table.
    """
    if name not in tables.SHIPPED:
        raise tables.TableError(f"no table {name!r} is shipped; there are {sorted(tables.SHIPPED)}")
    table = tables.subsample(tables.SHIPPED[name](prices), settings.items)
    if settings.with_question_length and table.money == tables.LISTED:
        question_length = np.log(table.cost_usd.min(1))
        table = replace(table, features=np.column_stack([table.features, question_length]))
    return table


def make_partitions(
    table: OutcomeTable, settings: RoutingRecordedSettings, routing: RoutingSettings
) -> list[Partition]:
    """Divides a table into train, dev and test questions, once for each seed and fold.

    Every question is a test question once for each seed. The experts and the budgets of a partition come from its
    train questions alone. All ladders have the same number of experts, so that one stack of networks serves them.

    Args:
        table: Recorded outcomes of all models.
        settings: Seeds, folds and the longest ladder.
        routing: Its `quantile` and `high_budget_usd` turn prices into budgets.

    Returns:
        `seeds` x `folds` partitions, seed after seed.
    """
    folds = []
    for seed in range(settings.seeds):
        fold_of_item = model_selection.assign_folds(table, settings.folds, seed)
        for fold in model_selection.make_cross_validation_folds(fold_of_item):
            folds.append((seed, fold))
    frontiers = [find_cost_frontier(table, fold.train) for _, fold in folds]
    num_experts = min(settings.ladder, *(len(frontier) for frontier in frontiers))

    partitions = []
    for (seed, fold), frontier in zip(folds, frontiers, strict=True):
        # Evenly spaced on the frontier, its two ends among them.
        ranks = np.linspace(0, len(frontier) - 1, num_experts).round().astype(int)
        experts = [table.models[frontier[rank]] for rank in ranks]
        partitions.append(make_partition(table, experts, fold, seed, routing))
    return partitions


def find_cost_frontier(table: OutcomeTable, rows: np.ndarray) -> list[int]:
    """The models that are more accurate on `rows` than every cheaper one, as column indices, cheapest first."""
    accuracy = table.correct[rows].mean(0)  # (models,)
    mean_cost = table.cost_usd[rows].mean(0)  # (models,)
    frontier = []
    best_accuracy = -1.0
    for model in np.argsort(mean_cost, kind="stable"):
        if accuracy[model] > best_accuracy:
            frontier.append(int(model))
            best_accuracy = accuracy[model]
    return frontier


def make_partition(
    table: OutcomeTable, experts: Sequence[str], fold: Fold, seed: int, routing: RoutingSettings
) -> Partition:
    """Derives budgets and rewards of one division from its train questions.

    Args:
        table: Recorded outcomes.
        experts: Names of the models that may be called, cheapest first.
        fold: The division.
        seed: Repeat of the cross-validation.
        routing: Turns prices into budgets: low affords a call to the cheapest expert, medium to the middle one.
    """
    ladder = table.select_models(experts)
    frames = []
    for column, expert in enumerate(experts):
        columns = {
            "method": expert,
            "correct": ladder.correct[fold.train, column],
            "cost_usd": ladder.cost_usd[fold.train, column],
        }
        frames.append(pd.DataFrame(columns))
    prices = measure_call_prices(pd.concat(frames), experts, routing)
    budgets = derive_budgets(prices, routing)

    limits = np.array(list(budgets.values()))[:, None, None]  # (B, 1, 1)
    return Partition(
        seed=seed,
        fold=fold,
        ladder=ladder,
        budgets=budgets,
        features=headroom.standardize_features(table.features, fold.train),
        rewards=budget_reward.compute_budget_reward(ladder.correct, ladder.cost_usd, limits),
    )


def score_choices(rewards: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """Reward of the chosen expert of each question.

    Args:
        rewards: (..., E).
        choices: (...) indices of experts.

    Returns:
        (...) rewards.
    """
    return np.take_along_axis(rewards, choices[..., None], axis=-1)[..., 0]


# The controller ------------------------------------------------------------------------------------


class RecordedControllers(nn.Module):
    """P controllers side by side, each a network with one hidden layer over the question's features and the budget.

    At the start all experts are equally likely and V is 0, because the weights of both heads are 0.
    """

    def __init__(
        self,
        table_name: str,
        num_features: int,
        num_experts: int,
        partitions: Sequence[Partition],
        settings: RoutingRecordedSettings,
    ) -> None:
        """Makes the controllers before training.

        Args:
            table_name: Names the random numbers.
            num_features: d.
            num_experts: E.
            partitions: One controller is made for each.
            settings: Hidden units and the scale of the question's weights.
        """
        super().__init__()
        trunks = []
        for number in range(len(partitions)):
            rng = seeds.rng("routing", "recorded", table_name, "weights", seed=number)
            trunk = rng.standard_normal((num_features + len(BUDGET_WORDS), settings.hidden))
            trunk[:num_features] *= settings.feature_scale / num_features**0.5
            trunks.append(trunk)
        num_controllers = len(partitions)
        self.trunk = nn.Parameter(torch.tensor(np.stack(trunks), dtype=torch.float32))
        self.trunk_bias = nn.Parameter(torch.zeros(num_controllers, 1, settings.hidden))
        self.actor = nn.Parameter(torch.zeros(num_controllers, settings.hidden, num_experts))
        self.actor_bias = nn.Parameter(torch.zeros(num_controllers, 1, num_experts))
        self.critic = nn.Parameter(torch.zeros(num_controllers, settings.hidden, 1))
        self.critic_bias = nn.Parameter(torch.zeros(num_controllers, 1, 1))

    def forward(self, features: Tensor, budget_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the experts, and V.

        Args:
            features: (P, r, d) of questions.
            budget_ids: (r,) index of each row's budget in BUDGET_WORDS.

        Returns:
            (P, r, E) log-probabilities, and (P, r) values.
        """
        budget_one_hot = torch.eye(len(BUDGET_WORDS))[budget_ids]  # (r, B)
        budget_inputs = budget_one_hot.expand(len(features), -1, -1)
        inputs = torch.cat([features, budget_inputs], -1)  # (P, r, d + B)
        # baddbmm(bias, x, weights) is x_p W_p + b_p for every controller p.
        hidden = torch.tanh(torch.baddbmm(self.trunk_bias, inputs, self.trunk))  # (P, r, hidden)
        scores = torch.baddbmm(self.actor_bias, hidden, self.actor)  # (P, r, E)
        logprobs = scores - scores.logsumexp(-1, keepdim=True)
        values = torch.baddbmm(self.critic_bias, hidden, self.critic)  # (P, r, 1)
        return logprobs, values[..., 0]


# Training ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Episodes:
    """r episodes of P controllers, one decision each; row i is under budget i % 3.

    Attributes:
        features: (P, r, d) of the questions.
        budget_ids: (r,) indices in BUDGET_WORDS.
        experts: (P, r) the experts that were called.
        old_logprobs: (P, r) their log-probabilities when they were sampled.
        values: (P, r) V before the call.
        rewards: (P, r) of the call; those of other experts are not recorded here.
    """

    features: Tensor
    budget_ids: Tensor
    experts: Tensor
    old_logprobs: Tensor
    values: Tensor
    rewards: Tensor


@dataclass(frozen=True)
class TrainingData:
    """What the controllers of all partitions are trained on.

    Attributes:
        features: (P, n, d).
        rewards: (P, B, n, E).
        train_rows: By partition, (num_train,) indices of its train questions.
    """

    features: Tensor
    rewards: Tensor
    train_rows: list[Tensor]


@torch.no_grad()
def sample_episodes(
    controllers: RecordedControllers, data: TrainingData, uniforms: Tensor
) -> Episodes:
    """Lets every controller answer train questions, sampling the expert that it calls.

    Args:
        controllers: P of them.
        data: Of their partitions.
        uniforms: (P, r, 2) uniform numbers in [0, 1): the question, and the expert.
    """
    num_controllers, num_rows, _ = uniforms.shape
    controller_index = torch.arange(num_controllers)[:, None]
    budget_ids = torch.arange(num_rows) % len(BUDGET_WORDS)

    # Partitions may have different numbers of train questions.
    question_rows = []
    for train_rows, question_uniforms in zip(data.train_rows, uniforms[..., 0], strict=True):
        positions = (question_uniforms * len(train_rows)).long().clamp(max=len(train_rows) - 1)
        question_rows.append(train_rows[positions])
    questions = torch.stack(question_rows)  # (P, r)
    features = data.features[controller_index, questions]  # (P, r, d)

    # The first expert at which the distribution function reaches the uniform number. Rounding may leave the function
    # below 1 at the last expert.
    logprobs, values = controllers(features, budget_ids)
    is_below = logprobs.exp().cumsum(-1) < uniforms[..., 1:]  # (P, r, E)
    experts = is_below.sum(-1).clamp(max=logprobs.shape[-1] - 1)

    # Bandit feedback: one outcome of each episode leaves the table.
    rewards = data.rewards[controller_index, budget_ids, questions, experts]
    old_logprobs = torch.gather(logprobs, 2, experts[..., None])[..., 0]
    return Episodes(features, budget_ids, experts, old_logprobs, values, rewards)


def update_controllers(
    controllers: RecordedControllers,
    optimizer: torch.optim.Optimizer,
    episodes: Episodes,
    settings: RoutingRecordedSettings,
    learn: LearnSettings,
) -> None:
    """One update of PPO (CoRL, eq. 4): clipped policy loss, KL penalty against the start, error of V.

    An episode is a sequence of one policy token, the call.

    Args:
        controllers: Their weights are changed.
        optimizer: Of these weights.
        episodes: Sampled from the controllers as they are.
        settings: Epochs, minibatch and weight of the KL penalty.
        learn: The lab's settings of PPO: clip, GAE, averages, weight of the value loss, largest gradient.
    """
    num_controllers, num_rows = episodes.experts.shape
    is_token = torch.ones(num_controllers * num_rows, 1, dtype=torch.bool)
    advantages, returns = losses.compute_masked_gae(
        episodes.rewards.flatten(),
        episodes.values.reshape(-1, 1),
        is_token,
        learn.gamma,
        learn.lam,
    )
    returns = returns.view(num_controllers, num_rows)
    # Whitened for each budget apart, because what can be earned differs between budgets.
    token_shape = (num_controllers, num_rows, 1)
    advantages = whiten_by_controller(
        advantages.view(token_shape), is_token.view(token_shape), len(BUDGET_WORDS)
    )[..., 0]  # (P, r)

    num_experts = controllers.actor.shape[-1]
    initial_logprob = -torch.tensor(float(num_experts)).log()
    for _ in range(settings.epochs):
        # Episodes are independent and alike, so that they need no shuffling.
        for start in range(0, num_rows, settings.minibatch):
            rows = slice(start, start + settings.minibatch)
            logprobs, values = controllers(episodes.features[:, rows], episodes.budget_ids[rows])
            called_logprobs = torch.gather(logprobs, 2, episodes.experts[:, rows, None])

            # All episodes of all controllers as sequences of one token, (P * m, 1).
            new_logprobs = called_logprobs.reshape(-1, 1)
            old_logprobs = episodes.old_logprobs[:, rows].reshape(-1, 1)
            mask = torch.ones_like(new_logprobs)

            # L = L_policy + beta KL + c_v L_value
            loss = losses.compute_policy_loss(
                new_logprobs,
                old_logprobs,
                advantages[:, rows].reshape(-1, 1),
                mask,
                learn.clip,
                learn.average,
            )
            kl = losses.estimate_kl(new_logprobs, initial_logprob)
            loss = loss + settings.kl * losses.average_over_tokens(kl, mask, learn.average)
            value_loss = losses.compute_value_loss(
                values.reshape(-1, 1), returns[:, rows].reshape(-1, 1), mask, learn.average
            )
            loss = loss + learn.value_weight * value_loss

            # The loss is a mean over P controllers: times P, each has the gradient that it would have alone.
            optimizer.zero_grad()
            (loss * num_controllers).backward()
            clip_gradients(controllers, learn.max_grad_norm)
            optimizer.step()


def train_controllers(
    partitions: Sequence[Partition], settings: RoutingRecordedSettings, learn: LearnSettings
) -> list[np.ndarray]:
    """Trains one controller for each partition by PPO, and returns the choices of its best checkpoint on dev.

    Args:
        partitions: Of one table.
        settings: Of networks and updates.
        learn: The lab's settings of PPO.

    Returns:
        By partition, (B, n) the likeliest expert of every question under every budget.
    """
    table_name = partitions[0].ladder.name
    num_partitions = len(partitions)
    num_features = partitions[0].features.shape[1]
    num_experts = partitions[0].rewards.shape[2]
    features = np.stack([partition.features for partition in partitions])
    rewards = np.stack([partition.rewards for partition in partitions])
    data = TrainingData(
        features=torch.tensor(features, dtype=torch.float32),
        rewards=torch.tensor(rewards, dtype=torch.float32),
        train_rows=[torch.tensor(partition.fold.train) for partition in partitions],
    )
    controllers = RecordedControllers(table_name, num_features, num_experts, partitions, settings)
    optimizer = torch.optim.Adam(controllers.parameters(), lr=settings.learning_rate)
    streams = seeds.keys("routing", "recorded", table_name, "episodes", n=num_partitions)

    best_choices: list[np.ndarray] = [np.zeros(0)] * num_partitions
    best_dev_rewards = [-1.0] * num_partitions
    numbers_per_update = settings.batch * 2
    for update in range(settings.updates):
        counters = np.arange(numbers_per_update) + update * numbers_per_update
        uniforms = torch.tensor(
            seeds.uniform(streams[:, None], counters), dtype=torch.float32
        )  # (P, 2 r)
        episodes = sample_episodes(
            controllers, data, uniforms.view(num_partitions, settings.batch, 2)
        )
        update_controllers(controllers, optimizer, episodes, settings, learn)

        # The learning rate falls to 0, as the lab's does.
        remaining = 1 - (update + 1) / settings.updates
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * remaining

        # Of all checkpoints the best on dev is used: the longer a training, the more it fits the luck of train.
        if (update + 1) % settings.eval_every:
            continue
        choices = choose_greedily(controllers, data.features)
        for number, partition in enumerate(partitions):
            dev_reward = score_on_dev(partition, choices[number])
            if dev_reward > best_dev_rewards[number]:
                best_dev_rewards[number] = dev_reward
                best_choices[number] = choices[number]
    return best_choices


@torch.no_grad()
def choose_greedily(controllers: RecordedControllers, features: Tensor) -> np.ndarray:
    """The likeliest expert of every question under every budget.

    Args:
        controllers: P of them.
        features: (P, n, d).

    Returns:
        (P, B, n) indices of experts.
    """
    num_questions = features.shape[1]
    choices = []
    for budget_id in range(len(BUDGET_WORDS)):
        logprobs, _ = controllers(features, torch.full((num_questions,), budget_id))
        choices.append(logprobs.argmax(-1).numpy())
    return np.stack(choices, axis=1)


def score_on_dev(partition: Partition, choices: np.ndarray) -> float:
    """Mean reward of choices (B, n) over the dev questions and all budgets."""
    dev = partition.fold.dev
    return float(score_choices(partition.rewards[:, dev], choices[:, dev]).mean())


# Baselines -----------------------------------------------------------------------------------------


def choose_best_constant(partition: Partition) -> np.ndarray:
    """The expert with the highest mean reward on train and dev, for each budget; of equals the cheapest.

    Returns:
        (B, n), the same expert for all questions.
    """
    mean_rewards = partition.rewards[:, partition.fold.train_and_dev].mean(1)  # (B, E)
    best_experts = mean_rewards.argmax(1)  # (B,)
    return np.repeat(best_experts[:, None], partition.rewards.shape[1], axis=1)


def choose_by_neighbours(partition: Partition, settings: RoutingRecordedSettings) -> np.ndarray:
    """The expert with the highest mean reward on the nearest train questions, for each budget.

    It learns from the outcomes of all experts. The number of neighbours is the one with the highest reward on dev.

    Returns:
        (B, n) indices of experts; of equals the cheapest.
    """
    train = partition.fold.train
    candidates = sorted({min(k, len(train)) for k in settings.neighbours})
    index = NearestNeighbors(n_neighbors=candidates[-1]).fit(partition.features[train])
    # Nearest first, so that the k nearest are the first k of the largest search.
    neighbours = index.kneighbors(partition.features, return_distance=False)  # (n, k)
    train_rewards = partition.rewards[:, train]  # (B, train, E)
    candidate_choices = []
    for k in candidates:
        predictions = train_rewards[:, neighbours[:, :k]].mean(2)  # (B, n, E)
        candidate_choices.append(predictions.argmax(-1))
    return _choose_on_dev(partition, candidate_choices)


def choose_by_logistic_regression(
    partition: Partition, settings: RoutingRecordedSettings
) -> np.ndarray:
    """The expert with the highest predicted reward, by a logistic regression for each budget and expert.

    It learns from the outcomes of all experts. The penalty is the one with the highest reward on dev.

    Returns:
        (B, n) indices of experts; of equals the cheapest.
    """
    train = partition.fold.train
    features = partition.features
    is_rewarded = partition.rewards >= 0.5  # (B, n, E)
    candidate_choices = []
    for inverse_penalty in settings.inverse_penalties:
        # An expert that was always rewarded, or never, is predicted by its rate.
        rates = is_rewarded[:, train].mean(1, keepdims=True)  # (B, 1, E)
        predictions = np.repeat(rates, len(features), axis=1)  # (B, n, E)
        for budget_id, expert in np.argwhere((rates[:, 0] > 0) & (rates[:, 0] < 1)):
            regression = LogisticRegression(C=inverse_penalty, max_iter=200)
            regression.fit(features[train], is_rewarded[budget_id, train, expert])
            predictions[budget_id, :, expert] = regression.predict_proba(features)[:, 1]
        candidate_choices.append(predictions.argmax(-1))
    return _choose_on_dev(partition, candidate_choices)


def choose_by_oracle(partition: Partition) -> np.ndarray:
    """The cheapest expert with the highest reward of every question, in hindsight: (B, n).

    It sees the luck of a single recorded answer, too: no method can reach it.
    """
    return partition.rewards.argmax(-1)


def choose_by_informed_router(partition: Partition, table: OutcomeTable) -> np.ndarray:
    """A router that sees more than any method may: outcomes and costs of all models outside the ladder.

    Its rewards over those of the best constant are what choosing could win (`lib.recorded_outcomes.headroom`).

    Args:
        partition: Of items without regard to groups, so that the router has met the group of a test question.
        table: All models of the partition's questions.

    Returns:
        (B, n) indices of experts.
    """
    outside = _select_models_outside(table, partition.ladder)
    columns = [outside.correct, outside.cost_usd]
    if len(table.gate_features):
        columns.append(table.gate_features)
    gate_features = np.column_stack(columns)

    choices = []
    for rewards in partition.rewards:
        rewarded_table = replace(partition.ladder, correct=rewards, gate_features=gate_features)
        router = headroom.fit_informed_router(rewarded_table, partition.fold)
        choices.append(router.pool[router.chances[:, router.pool].argmax(1)])
    return np.stack(choices)


def _select_models_outside(table: OutcomeTable, ladder: OutcomeTable) -> OutcomeTable:
    """The table with the models that are not in the ladder, whose outcomes say how hard a question is."""
    names = [name for name in table.models if name not in ladder.models]
    return table.select_models(names)


def _choose_on_dev(partition: Partition, candidates: Sequence[np.ndarray]) -> np.ndarray:
    """The candidate, (B, n) choices, with the highest reward on dev; of equals the first."""
    dev_rewards = [score_on_dev(partition, choices) for choices in candidates]
    return candidates[int(np.argmax(dev_rewards))]


# Rows ----------------------------------------------------------------------------------------------


def run(
    routing: RoutingSettings,
    prices: PriceSettings,
    progress: Callable[[float], None] = lambda fraction: None,
) -> pd.DataFrame:
    """Trains and evaluates all methods on all tables.

    Args:
        routing: Of which `recorded`, `learn`, `quantile` and `high_budget_usd` are read.
        prices: The section `recorded.prices` of params.yaml.
        progress: Called with the fraction that is finished.

    Returns:
        Rows for `lib.experiment.results_table`: one for each table (column group), seed, budget (condition), method and
        test question. context is what is left out whole, such as a subject; within is 1 where the cost is within the
        budget. Of random, all numbers are expectations.
    """
    settings = routing.recorded
    frames = []
    for name in settings.tables:
        table = load_table(name, prices, settings)
        frames.append(evaluate_table(table, settings, routing))
        progress(len(frames) / len(settings.tables))
    return pd.concat(frames, ignore_index=True)


def evaluate_table(
    table: OutcomeTable, settings: RoutingRecordedSettings, routing: RoutingSettings
) -> pd.DataFrame:
    """Trains and evaluates all methods on one table, and returns rows as `run` does.

    Args:
        table: Recorded outcomes.
        settings: Of the benchmark.
        routing: Budgets and PPO.
    """
    partitions = make_partitions(table, settings, routing)
    corl_choices = train_controllers(partitions, settings, routing.learn)
    frames = []
    for partition, choices_of_corl in zip(partitions, corl_choices, strict=True):
        choices_by_method = {
            CORL: choices_of_corl,
            CONSTANT: choose_best_constant(partition),
            NEAREST: choose_by_neighbours(partition, settings),
            LOGISTIC: choose_by_logistic_regression(partition, settings),
            ORACLE: choose_by_oracle(partition),
        }
        for method, choices in choices_by_method.items():
            frames.append(_make_rows(partition, method, choices))
        frames.append(_make_random_rows(partition))

    # The gate's router meets questions of all groups, and is compared on partitions of its own.
    by_item = replace(table, groups=table.items)
    gate_settings = replace(settings, seeds=min(settings.gate_seeds, settings.seeds))
    for partition in make_partitions(by_item, gate_settings, routing):
        choices_by_method = {
            INFORMED: choose_by_informed_router(partition, table),
            CONSTANT: choose_best_constant(partition),
            ORACLE: choose_by_oracle(partition),
        }
        for method, choices in choices_by_method.items():
            frames.append(_make_rows(partition, method, choices).assign(split=HEADROOM))
    rows = pd.concat(frames, ignore_index=True)
    context_of_item = dict(zip(table.items, table.groups, strict=True))
    return rows.assign(context=rows["item"].map(context_of_item))


def _make_rows(partition: Partition, method: str, choices: np.ndarray) -> pd.DataFrame:
    """Rows of a method on the test questions of one partition; choices: (B, n)."""
    test = partition.fold.test
    ladder = partition.ladder
    frames = []
    for budget_id, (word, budget) in enumerate(partition.budgets.items()):
        experts = choices[budget_id, test]
        outcome = {
            "correct": ladder.correct[test, experts],
            "cost_usd": ladder.cost_usd[test, experts],
            "reward": partition.rewards[budget_id, test, experts],
            "chosen": [[ladder.models[expert]] for expert in experts],
        }
        within = budget_reward.compute_cost_reward(outcome["cost_usd"], budget)
        frames.append(_describe_rows(partition, method, word, outcome | {"within": within}))
    return pd.concat(frames, ignore_index=True)


def _make_random_rows(partition: Partition) -> pd.DataFrame:
    """Rows of a controller that calls all experts equally often, as before training: expectations over them."""
    test = partition.fold.test
    ladder = partition.ladder
    frames = []
    for budget_id, (word, budget) in enumerate(partition.budgets.items()):
        is_within = budget_reward.compute_cost_reward(ladder.cost_usd[test], budget)
        outcome = {
            "correct": ladder.correct[test].mean(1),
            "cost_usd": ladder.cost_usd[test].mean(1),
            "reward": partition.rewards[budget_id, test].mean(1),
            "chosen": [[] for _ in test],
            "within": is_within.mean(1),
        }
        frames.append(_describe_rows(partition, RANDOM, word, outcome))
    return pd.concat(frames, ignore_index=True)


def _describe_rows(
    partition: Partition, method: str, budget_word: str, outcome: Mapping[str, Sequence]
) -> pd.DataFrame:
    """The columns that say what was measured, beside the outcome of each test question."""
    return pd.DataFrame(
        {
            "method": method,
            "role": ROLES[method],
            "backend": "replay",
            "seed": partition.seed,
            "split": TEST,
            "item": partition.ladder.items[partition.fold.test],
            "group": partition.ladder.name,
            "condition": budget_word,
            "calls": 1,
            **outcome,
        }
    )


# What the rows say ---------------------------------------------------------------------------------


def estimate_headroom(rows: pd.DataFrame) -> pd.DataFrame:
    """The gate: how much reward choosing per question could win over the best constant.

    A question is open where the informed router, which sees more than any method, beats the best constant by
    `lib.stats.MIN_HEADROOM`, with the lower end of its interval. The oracle's headroom is an upper bound that counts
    the luck of single answers.

    Args:
        rows: Of `run`.

    Returns:
        By group (table) and condition (budget): the columns of `lib.stats.paired_difference` for the informed router,
        oracle_headroom, and is_open.
    """
    units = _use_groups_as_items(results_table.select(rows, split=HEADROOM))
    estimates = stats.paired_difference(
        units, "reward", {"method": INFORMED}, {"method": CONSTANT}, by=["group", "condition"]
    )
    oracle = stats.paired_difference(
        units, "reward", {"method": ORACLE}, {"method": CONSTANT}, by=["group", "condition"]
    )
    return estimates.assign(oracle_headroom=oracle["value"], is_open=stats.is_open(estimates))


def estimate_contrasts(rows: pd.DataFrame, equivalence_margin: float | None = None) -> pd.DataFrame:
    """Reward of CoRL minus that of each baseline, under each budget, with a verdict.

    Differences are taken inside pairs of seed and question. Where whole groups are left out, such as subjects, groups
    are the items of the interval, each of equal weight.

    Args:
        rows: Of `run`.
        equivalence_margin: Differences of reward up to which two methods count as equal; None for no such verdict.

    Returns:
        By group (table), condition (budget) and baseline: the columns of `lib.stats.paired_difference`, and verdict.
        Where the headroom is too small the verdict against a constant or a router is "not open".
    """
    units = _use_groups_as_items(results_table.select(rows, split=TEST))
    frames = []
    for baseline in BASELINES:
        compared = results_table.select(units, method=[CORL, baseline])
        estimates = stats.paired_difference(
            compared, "reward", {"method": CORL}, {"method": baseline}, by=["group", "condition"]
        )
        frames.append(estimates.assign(verdict=stats.verdict(estimates, equivalence_margin)))
    contrasts = pd.concat(frames, keys=BASELINES, names=["baseline"]).reset_index()

    headrooms = estimate_headroom(rows)["is_open"].reset_index()
    contrasts = contrasts.merge(headrooms, on=["group", "condition"], how="left")
    is_gated = contrasts["baseline"].isin(_GATED_BASELINES) & ~contrasts["is_open"]
    contrasts["verdict"] = contrasts["verdict"].mask(is_gated, NOT_OPEN)
    return contrasts.set_index(["group", "condition", "baseline"]).drop(columns="is_open")


def _use_groups_as_items(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose item is the group that is left out whole, and whose sample is the question inside it."""
    columns = ["group", "condition", "method", "seed", "context", "item", "reward"]
    rows = rows[columns]  # without lists of names, which are slow to copy
    questions = rows[["group", "context", "item"]].drop_duplicates()
    number_in_group = questions.groupby(["group", "context"], sort=False).cumcount()
    questions = questions.assign(sample=number_in_group)
    rows = rows.merge(questions, on=["group", "context", "item"], how="left")
    return rows.assign(item=rows["context"])


def describe_ladder(
    table: OutcomeTable, settings: RoutingRecordedSettings, routing: RoutingSettings
) -> pd.DataFrame:
    """Whether a table has a ladder of experts, as CoRL supposes: the more expensive, the better, everywhere.

    The experts are those of the first partition. Questions are divided into groups that are left out whole, or, where
    every question is a group of its own, into thirds by difficulty: the fraction of models outside the ladder that are
    correct on it.

    Args:
        table: Recorded outcomes.
        settings: Of the benchmark.
        routing: Of the budgets.

    Returns:
        By part of the questions ("hardest third" ..., or a group): num_items, the accuracy of each expert, cheapest
        first, and is_ladder, whether no expert is less accurate than a cheaper one.
    """
    partition = make_partitions(table, replace(settings, seeds=1), routing)[0]
    ladder = partition.ladder
    if len(np.unique(table.groups)) < len(table):
        groups = pd.Series(table.groups)
    else:
        columns = [_select_models_outside(table, ladder).correct]
        if len(table.gate_features):
            columns.append(table.gate_features)
        ease = pd.Series(np.column_stack(columns).mean(1))
        names = ["hardest third", "middle third", "easiest third"]
        rank = ease.rank(method="first")  # ties would leave thirds of unequal size
        groups = pd.qcut(rank, len(names), labels=names).astype(str)

    accuracy = pd.DataFrame(ladder.correct, columns=ladder.models).groupby(groups, sort=False)
    description = accuracy.mean()
    is_ladder = (np.diff(description.to_numpy(), axis=1) >= 0).all(1)
    description = description.assign(num_items=accuracy.size(), is_ladder=is_ladder)
    return description.rename_axis("questions")
