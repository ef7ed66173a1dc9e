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
    estimate_headroom            what choosing per question could gain over the best constant
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
INFORMED = "informed router"  # sees more than any method may, to estimate headroom
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
# Splits of the rows: test questions on which methods are compared, and those on which headroom is estimated.
TEST = "test"
HEADROOM = "headroom"


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
    """Loads a table of recorded outcomes: which model answered which question correctly, and at what cost.

    Args:
        name: One of the tables that come with the project, a key of `lib.recorded_outcomes.tables.SHIPPED`.
        prices: List prices of the models, from which costs are computed where the source recorded none.
        settings: `items` is the largest number of questions (a random subsample of each group); with
            `with_question_length`, features gain the logarithm of the lowest cost of a question, which stands for its
            length where costs are list price x length.

    Returns:
        The table: correctness and cost of n questions x models, and (n, d) features of the questions.

    Raises:
        TableError: There is no table of this name.
    """
    if name not in tables.SHIPPED:
        raise tables.TableError(f"no table {name!r} is shipped; there are {sorted(tables.SHIPPED)}")
    table = tables.load_shipped(name, prices, settings.items)
    if settings.with_question_length and table.money == tables.LISTED_PRICES:
        question_length = np.log(table.cost_usd.min(1))
        table = replace(table, features=np.column_stack([table.features, question_length]))
    return table


def make_partitions(
    table: OutcomeTable, settings: RoutingRecordedSettings, routing: RoutingSettings
) -> list[Partition]:
    """Divides a table into train, dev and test questions by repeated cross-validation.

    Every question is a test question once for each seed (one repeat of the cross-validation, with other folds). The
    experts of a partition, the models that a controller may call, lie on the cost frontier of its train questions, and
    its budgets are prices of calls on them. All partitions have the same number of experts, so that their networks
    have equal shapes and are trained side by side.

    Args:
        table: Recorded outcomes of all models.
        settings: `seeds` repeats of `folds` folds each; `ladder` is the largest number of experts.
        routing: Its `quantile` and `high_budget_usd` turn prices of calls into budgets.

    Returns:
        `seeds` x `folds` partitions, seed after seed.
    """
    seed_and_fold = []
    for seed in range(settings.seeds):
        fold_of_item = model_selection.assign_folds(table, settings.folds, seed)
        for fold in model_selection.make_cross_validation_folds(fold_of_item):
            seed_and_fold.append((seed, fold))

    # The shortest frontier limits the number of experts in all partitions.
    frontiers = [find_cost_frontier(table, fold.train) for _, fold in seed_and_fold]
    shortest_frontier = min(len(frontier) for frontier in frontiers)
    num_experts = min(settings.ladder, shortest_frontier)

    partitions = []
    for (seed, fold), frontier in zip(seed_and_fold, frontiers, strict=True):
        # Evenly spaced on the frontier, its two ends among them.
        ranks = np.linspace(0, len(frontier) - 1, num_experts).round().astype(int)
        experts = [table.models[frontier[rank]] for rank in ranks]
        partitions.append(make_partition(table, experts, fold, seed, routing))
    return partitions


def find_cost_frontier(table: OutcomeTable, rows: np.ndarray) -> list[int]:
    """Finds the models that are more accurate than every cheaper one.

    Args:
        table: Recorded outcomes of all models.
        rows: (k,) indices of the questions over which accuracy and cost are averaged.

    Returns:
        Indices of these models in `table.models`, cheapest first.
    """
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
    """Derives the budgets low, medium and high from train questions, and the reward of every call under each budget.

    A budget is the most that the call for one question may cost. Low affords a call to the cheapest expert, medium one
    to the middle expert, high any. The reward is 1 for a correct answer within the budget, else 0 (CoRL, eq. 7).

    Args:
        table: Recorded outcomes of all models.
        experts: Names of the models that may be called, cheapest first.
        fold: Indices of the train, dev and test questions.
        seed: Repeat of the cross-validation that the fold belongs to.
        routing: `quantile` of an expert's costs is its price; `high_budget_usd` is the high budget.

    Returns:
        The partition; features are standardized on its train questions.
    """
    ladder = table.select_models(experts)

    # Prices of calls, from the costs on train questions.
    frames = []
    for column, expert in enumerate(experts):
        columns = {
            "method": expert,
            "correct": ladder.correct[fold.train, column],
            "cost_usd": ladder.cost_usd[fold.train, column],
        }
        frames.append(pd.DataFrame(columns))
    prices = measure_call_prices(pd.concat(frames), experts, routing)
    budget_by_word = derive_budgets(prices, routing)

    # Rewards of n questions and E experts under B budgets: (n, E) outcomes against (B, 1, 1) limits.
    limits = np.array(list(budget_by_word.values()))[:, None, None]
    rewards = budget_reward.compute_budget_reward(ladder.correct, ladder.cost_usd, limits)
    return Partition(
        seed=seed,
        fold=fold,
        ladder=ladder,
        budgets=budget_by_word,
        features=headroom.standardize_features(table.features, fold.train),
        rewards=rewards,
    )


def score_choices(rewards: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """Looks up the reward of the expert that was chosen for each question.

    Args:
        rewards: (budgets, questions, experts) reward of calling each expert.
        choices: (budgets, questions) index of the chosen expert.

    Returns:
        (budgets, questions) rewards.
    """
    chosen_rewards = np.take_along_axis(rewards, choices[..., None], axis=-1)  # (..., 1)
    return chosen_rewards[..., 0]


# The controller ------------------------------------------------------------------------------------


class RecordedControllers(nn.Module):
    """P controllers side by side, one for each partition of the questions into train, dev and test.

    A controller is a policy that chooses which expert (a model that costs money) answers a question under a budget: a
    network with one hidden layer, which reads features of the question and the budget. Its heads are an actor, which
    scores the experts, and a critic, which estimates the expected reward V. Before training all experts are equally
    likely and V is 0, because the weights of both heads are 0.
    """

    def __init__(
        self,
        table_name: str,
        num_features: int,
        num_experts: int,
        partitions: Sequence[Partition],
        settings: RoutingRecordedSettings,
    ) -> None:
        """Initializes one untrained controller for each partition.

        Args:
            table_name: Table of recorded outcomes; it names the stream of random initial weights.
            num_features: Number of features of a question.
            num_experts: Number of experts to choose from.
            partitions: Divisions of the table's questions; one controller is made for each.
            settings: `hidden` is the number of hidden units; `feature_scale` the scale of initial weights from the
                question's features, relative to those from the budget.
        """
        super().__init__()
        num_controllers = len(partitions)
        num_inputs = num_features + len(BUDGET_WORDS)  # the budget is one-hot

        # Hidden weights differ between controllers. A small feature_scale lets them learn the budget before the
        # question.
        trunks = []
        for number in range(num_controllers):
            rng = seeds.rng("routing", "recorded", table_name, "weights", seed=number)
            trunk = rng.standard_normal((num_inputs, settings.hidden))
            trunk[:num_features] *= settings.feature_scale / num_features**0.5
            trunks.append(trunk)
        self.trunk = nn.Parameter(torch.tensor(np.stack(trunks), dtype=torch.float32))
        self.trunk_bias = nn.Parameter(torch.zeros(num_controllers, 1, settings.hidden))

        # With zero weights in the heads all experts are equally likely, and V is 0.
        self.actor = nn.Parameter(torch.zeros(num_controllers, settings.hidden, num_experts))
        self.actor_bias = nn.Parameter(torch.zeros(num_controllers, 1, num_experts))
        self.critic = nn.Parameter(torch.zeros(num_controllers, settings.hidden, 1))
        self.critic_bias = nn.Parameter(torch.zeros(num_controllers, 1, 1))

    def forward(self, features: Tensor, budget_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Computes each controller's log-probabilities of calling each expert, and its estimate V of the reward.

        Shapes: P controllers, r questions of each, d features, B budget words, E experts.

        Args:
            features: (P, r, d) features of the questions.
            budget_ids: (r,) budget of each question, as an index in the words low, medium and high.

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
class RecordedEpisodes:
    """r episodes of P controllers: one question, one call to an expert and its reward; row i is under budget i % 3.

    Attributes:
        features: (P, r, d) d features of each question.
        budget_ids: (r,) budget of each row, as an index in BUDGET_WORDS (low, medium, high).
        experts: (P, r) index of the expert that was called.
        old_logprobs: (P, r) its log-probability when it was sampled.
        values: (P, r) expected reward V before the call.
        rewards: (P, r) reward of the call; what other experts would have brought is not in it (bandit feedback).
    """

    features: Tensor
    budget_ids: Tensor
    experts: Tensor
    old_logprobs: Tensor
    values: Tensor
    rewards: Tensor


@dataclass(frozen=True)
class TrainingData:
    """What P controllers are trained on, one for each partition of n questions into train, dev and test.

    Attributes:
        features: (P, n, d) d features of each question, standardized on the partition's train questions.
        rewards: (P, B, n, E) reward of calling each of E experts under each of B budgets.
        train_rows: For each partition, (num_train,) indices of its train questions.
    """

    features: Tensor
    rewards: Tensor
    train_rows: list[Tensor]


@torch.no_grad()
def sample_episodes(
    controllers: RecordedControllers, data: TrainingData, uniforms: Tensor
) -> RecordedEpisodes:
    """Draws train questions at random, and lets every controller sample the expert that it calls.

    Budgets come by turns: row i is under budget i % 3.

    Args:
        controllers: P controllers, one for each partition of the questions.
        data: Features, rewards and train questions of the P partitions.
        uniforms: (P, r, 2) uniform random numbers in [0, 1); the first picks the question of each of r episodes, the
            second the expert.

    Returns:
        r episodes of each controller, with the reward of the called expert alone.
    """
    num_controllers, num_rows, _ = uniforms.shape
    controller_index = torch.arange(num_controllers)[:, None]  # (P, 1)
    budget_ids = torch.arange(num_rows) % len(BUDGET_WORDS)
    question_uniforms, expert_uniforms = uniforms.unbind(-1)  # (P, r) each

    # Partitions may have different numbers of train questions.
    questions_by_partition = []
    for train_rows, numbers in zip(data.train_rows, question_uniforms, strict=True):
        positions = (numbers * len(train_rows)).long().clamp(max=len(train_rows) - 1)
        questions_by_partition.append(train_rows[positions])
    questions = torch.stack(questions_by_partition)  # (P, r)
    features = data.features[controller_index, questions]  # (P, r, d)

    # The first expert at which the distribution function reaches the uniform number. Rounding may leave the function
    # below 1 at the last expert.
    logprobs, values = controllers(features, budget_ids)
    is_below = logprobs.exp().cumsum(-1) < expert_uniforms[..., None]  # (P, r, E)
    experts = is_below.sum(-1).clamp(max=logprobs.shape[-1] - 1)

    # Bandit feedback: only the outcome of the called expert leaves the table.
    rewards = data.rewards[controller_index, budget_ids, questions, experts]
    old_logprobs = torch.gather(logprobs, 2, experts[..., None])[..., 0]
    return RecordedEpisodes(
        features=features,
        budget_ids=budget_ids,
        experts=experts,
        old_logprobs=old_logprobs,
        values=values,
        rewards=rewards,
    )


def update_controllers(
    controllers: RecordedControllers,
    optimizer: torch.optim.Optimizer,
    episodes: RecordedEpisodes,
    settings: RoutingRecordedSettings,
    learn: LearnSettings,
) -> None:
    """Updates all controllers by PPO on one batch: clipped policy loss, KL penalty and value loss (CoRL, eq. 4).

    The KL penalty is against the initial policy, which calls all experts equally often. An episode is a sequence of one
    token, the call.

    Args:
        controllers: P controllers; their weights are changed.
        optimizer: Adam on these weights.
        episodes: r episodes of each controller, sampled with its weights as they are now.
        settings: `epochs` passes over the batch, in minibatches of `minibatch` episodes; `kl` weighs the KL penalty.
        learn: Constants of PPO: clip, gamma and lam (of advantages), how tokens are averaged, weight of the value loss,
            largest norm of a gradient.
    """
    # Advantages and returns; all P x r episodes are rows with one token each.
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

    # Before training all experts are equally likely.
    num_experts = controllers.actor.shape[-1]
    initial_logprob = -torch.tensor(float(num_experts)).log()

    for _ in range(settings.epochs):
        # Episodes are independent and alike, so that they need no shuffling.
        for start in range(0, num_rows, settings.minibatch):
            rows = slice(start, start + settings.minibatch)
            logprobs, values = controllers(episodes.features[:, rows], episodes.budget_ids[rows])
            called_logprobs = torch.gather(logprobs, 2, episodes.experts[:, rows, None])

            # All m episodes of the minibatch, of all controllers, as sequences of one token: (P * m, 1).
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
    """Trains one controller for each partition by PPO, and returns the choices of its best checkpoint.

    The best checkpoint has the highest mean reward on the partition's dev questions.

    Args:
        partitions: Divisions of one table's questions into train, dev and test.
        settings: Size of networks, number and size of updates, learning rate, updates between two checkpoints.
        learn: Constants of PPO, see `update_controllers`.

    Returns:
        For each partition, (budgets, questions) index of the likeliest expert for every question under every budget.
    """
    # All partitions as one stack, and a controller for each of them.
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

    # Each controller has a stream of random numbers: two for an episode, its question and its expert.
    streams = seeds.keys("routing", "recorded", table_name, "episodes", n=num_partitions)
    numbers_per_update = settings.batch * 2

    best_choices: list[np.ndarray] = [np.zeros(0)] * num_partitions
    best_dev_rewards = [-1.0] * num_partitions
    for update in range(settings.updates):
        # One update of PPO on a fresh batch of episodes.
        counters = np.arange(numbers_per_update) + update * numbers_per_update
        uniforms = seeds.uniform(streams[:, None], counters)  # (P, 2 batch)
        uniforms = torch.tensor(uniforms, dtype=torch.float32)
        uniforms = uniforms.view(num_partitions, settings.batch, 2)
        episodes = sample_episodes(controllers, data, uniforms)
        update_controllers(controllers, optimizer, episodes, settings, learn)

        # The learning rate falls to 0 linearly.
        remaining = 1 - (update + 1) / settings.updates
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * remaining

        # The longer a training, the more it fits the luck of train: of all checkpoints the best on dev is used.
        is_checkpoint = (update + 1) % settings.eval_every == 0
        if not is_checkpoint:
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
    """Chooses the expert that the controller finds likeliest, for every question under every budget.

    Args:
        controllers: P controllers, one for each partition of the questions.
        features: (P, n, d) d features of each of n questions.

    Returns:
        (P, B, n) indices of experts, for the B budgets low, medium and high.
    """
    num_questions = features.shape[1]
    choices = []
    for budget_id in range(len(BUDGET_WORDS)):
        logprobs, _ = controllers(features, torch.full((num_questions,), budget_id))
        choices.append(logprobs.argmax(-1).numpy())
    return np.stack(choices, axis=1)


def score_on_dev(partition: Partition, choices: np.ndarray) -> float:
    """Computes the mean reward of choices over the dev questions and all budgets.

    Args:
        partition: The dev questions, and the reward of calling each expert.
        choices: (budgets, questions) index of the expert chosen for every question, dev or not.

    Returns:
        Mean reward in [0, 1].
    """
    dev = partition.fold.dev
    dev_rewards = score_choices(partition.rewards[:, dev], choices[:, dev])
    return float(dev_rewards.mean())


# Baselines -----------------------------------------------------------------------------------------


def choose_best_constant(partition: Partition) -> np.ndarray:
    """Chooses, for each budget, the one expert with the highest mean reward on train and dev questions.

    Args:
        partition: Questions divided into train, dev and test, and the reward of calling each expert.

    Returns:
        (budgets, questions) indices of experts, the same for all questions under a budget; of equals the cheapest.
    """
    mean_rewards = partition.rewards[:, partition.fold.train_and_dev].mean(1)  # (B, E)
    best_experts = mean_rewards.argmax(1)  # (B,)
    return np.repeat(best_experts[:, None], partition.rewards.shape[1], axis=1)


def choose_by_neighbours(partition: Partition, settings: RoutingRecordedSettings) -> np.ndarray:
    """Chooses the expert with the highest mean reward on the k nearest train questions (a k-NN router).

    Unlike a controller, which learns from the one expert that it called, it learns from the outcomes of all experts.

    Args:
        partition: Questions divided into train, dev and test, their features, and the reward of calling each expert.
        settings: `neighbours` lists the candidates for k; the one with the highest reward on dev is used.

    Returns:
        (budgets, questions) indices of experts; of equals the cheapest.
    """
    train = partition.fold.train
    candidates = sorted({min(k, len(train)) for k in settings.neighbours})
    largest_k = candidates[-1]

    # Nearest first, so that the k nearest are the first k of the largest search.
    index = NearestNeighbors(n_neighbors=largest_k).fit(partition.features[train])
    neighbours = index.kneighbors(partition.features, return_distance=False)  # (questions, k)

    train_rewards = partition.rewards[:, train]  # (budgets, train questions, experts)
    candidate_choices = []
    for k in candidates:
        neighbour_rewards = train_rewards[:, neighbours[:, :k]]  # (budgets, questions, k, experts)
        predictions = neighbour_rewards.mean(2)  # (budgets, questions, experts)
        candidate_choices.append(predictions.argmax(-1))
    return _select_best_on_dev(partition, candidate_choices)


def choose_by_logistic_regression(
    partition: Partition, settings: RoutingRecordedSettings
) -> np.ndarray:
    """Chooses the expert with the highest probability of a reward, by a logistic regression per budget and expert.

    Unlike a controller, which learns from the one expert that it called, it learns from the outcomes of all experts.

    Args:
        partition: Questions divided into train, dev and test, their features, and the reward of calling each expert.
        settings: `inverse_penalties` lists the candidates for C, the inverse of the L2 penalty; the one with the
            highest reward on dev is used.

    Returns:
        (budgets, questions) indices of experts; of equals the cheapest.
    """
    train = partition.fold.train
    features = partition.features
    is_rewarded = partition.rewards >= 0.5  # (budgets, questions, experts)
    num_budgets, num_questions, num_experts = is_rewarded.shape
    train_rates = is_rewarded[:, train].mean(1)  # (budgets, experts)

    candidate_choices = []
    for inverse_penalty in settings.inverse_penalties:
        predictions = np.zeros((num_budgets, num_questions, num_experts))
        for budget_id in range(num_budgets):
            for expert in range(num_experts):
                # An expert that was always rewarded, or never, is predicted by its rate: there is nothing to fit.
                rate = train_rates[budget_id, expert]
                if rate in (0, 1):
                    predictions[budget_id, :, expert] = rate
                    continue
                regression = LogisticRegression(C=inverse_penalty, max_iter=200)
                regression.fit(features[train], is_rewarded[budget_id, train, expert])
                probabilities = regression.predict_proba(features)  # (questions, 2)
                predictions[budget_id, :, expert] = probabilities[:, 1]
        candidate_choices.append(predictions.argmax(-1))
    return _select_best_on_dev(partition, candidate_choices)


def choose_by_oracle(partition: Partition) -> np.ndarray:
    """Chooses the cheapest expert with the highest reward for every question, in hindsight.

    It sees the very outcomes that it is scored on, luck included: an upper bound that no method can reach.

    Args:
        partition: The reward of calling each expert on every question, experts sorted by cost.

    Returns:
        (budgets, questions) indices of experts.
    """
    return partition.rewards.argmax(-1)  # the first of equals, the cheapest


def choose_by_informed_router(partition: Partition, table: OutcomeTable) -> np.ndarray:
    """Chooses experts by a router that sees more than any method may: outcomes of all models that are not experts.

    Its reward minus that of the best single expert is the headroom, what choosing per question could gain. Where that
    is small, a comparison of methods says little (`lib.recorded_outcomes.headroom`).

    Args:
        partition: Questions divided into train, dev and test at random, not by group (such as a subject), so that the
            router has learned from the group of a test question.
        table: The same questions with all models, experts and others.

    Returns:
        (budgets, questions) indices of experts.
    """
    # What no method sees: how the other models did on the question tells how hard it is.
    other_models = _select_models_outside(table, partition.ladder)
    columns = [other_models.correct, other_models.cost_usd]
    if len(table.privileged_features):
        columns.append(table.privileged_features)
    informed_features = np.column_stack(columns)

    # The router predicts "correct"; under a budget that is replaced by the reward.
    choices = []
    for rewards in partition.rewards:  # (questions, experts), under one budget
        rewarded_table = replace(
            partition.ladder, correct=rewards, privileged_features=informed_features
        )
        router = headroom.fit_informed_router(rewarded_table, partition.fold)
        # It chooses among the experts in its pool.
        predictions = router.chances[:, router.pool]  # (questions, pool)
        positions_in_pool = predictions.argmax(1)
        choices.append(router.pool[positions_in_pool])
    return np.stack(choices)


def _select_models_outside(table: OutcomeTable, ladder: OutcomeTable) -> OutcomeTable:
    """Selects the models of a table that are not among the experts.

    Args:
        table: Recorded outcomes of all models.
        ladder: The same table with the experts only, the models that a controller may call.

    Returns:
        The table with the other models, whose outcomes say how hard a question is.
    """
    names = [name for name in table.models if name not in ladder.models]
    return table.select_models(names)


def _select_best_on_dev(partition: Partition, candidates: Sequence[np.ndarray]) -> np.ndarray:
    """Selects the candidate whose choices have the highest mean reward on the dev questions.

    Args:
        partition: The dev questions, and the reward of calling each expert.
        candidates: (budgets, questions) indices of chosen experts, an array for each value of a hyperparameter.

    Returns:
        One of the candidates; of equals the first.
    """
    dev_rewards = [score_on_dev(partition, choices) for choices in candidates]
    return candidates[int(np.argmax(dev_rewards))]


# Rows ----------------------------------------------------------------------------------------------


def run(
    routing: RoutingSettings,
    prices: PriceSettings,
    progress: Callable[[float], None] = lambda fraction: None,
) -> pd.DataFrame:
    """Trains and evaluates CoRL's controllers and all baselines on all tables of recorded outcomes.

    Args:
        routing: Settings: `recorded` (tables, training), `learn` (constants of PPO), `quantile` and `high_budget_usd`
            (of budgets).
        prices: List prices of the models, the section `recorded.prices` of params.yaml.
        progress: Called after each table with the fraction that is finished.

    Returns:
        A row for each table, seed, budget, method and test question. Columns: method, role, backend, seed (repeat of
        the cross-validation), split ("test", or "headroom" where the informed router is compared), item (the question),
        group (the table), condition (budget word), calls, correct, cost_usd, reward, chosen (names of the called
        experts), within (1 where the cost is within the budget) and context (the group of questions that is left out
        whole, such as a subject). Of the method "random", which calls every expert equally often, numbers are
        expectations.
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
    """Trains and evaluates CoRL's controllers and all baselines on one table of recorded outcomes.

    Args:
        table: Correctness and cost of every model on every question.
        settings: Folds, networks, training, and hyperparameters of the baselines.
        routing: How prices become budgets, and in `learn` the constants of PPO.

    Returns:
        A row for each seed, budget, method and test question, with the columns that `run` lists.
    """
    frames = []

    # Methods, compared on test questions.
    partitions = make_partitions(table, settings, routing)
    corl_choices = train_controllers(partitions, settings, routing.learn)
    for partition, choices_of_corl in zip(partitions, corl_choices, strict=True):
        choices_by_method = {
            CORL: choices_of_corl,
            CONSTANT: choose_best_constant(partition),
            NEAREST: choose_by_neighbours(partition, settings),
            LOGISTIC: choose_by_logistic_regression(partition, settings),
            ORACLE: choose_by_oracle(partition),
        }
        for method, choices in choices_by_method.items():
            frames.append(_tabulate_choices(partition, method, choices))
        frames.append(_tabulate_random_choices(partition))

    # Headroom: the informed router may learn from all groups, so that it is compared on partitions that divide
    # questions without regard to groups.
    ungrouped_table = replace(table, groups=table.items)
    headroom_seeds = min(settings.gate_seeds, settings.seeds)
    headroom_settings = settings.model_copy(update={"seeds": headroom_seeds})
    for partition in make_partitions(ungrouped_table, headroom_settings, routing):
        choices_by_method = {
            INFORMED: choose_by_informed_router(partition, table),
            CONSTANT: choose_best_constant(partition),
            ORACLE: choose_by_oracle(partition),
        }
        for method, choices in choices_by_method.items():
            rows = _tabulate_choices(partition, method, choices)
            frames.append(rows.assign(split=HEADROOM))

    rows = pd.concat(frames, ignore_index=True)
    group_of_item = dict(zip(table.items, table.groups, strict=True))
    return rows.assign(context=rows["item"].map(group_of_item))


def _tabulate_choices(partition: Partition, method: str, choices: np.ndarray) -> pd.DataFrame:
    """Tabulates what the chosen experts scored and cost on the test questions, under every budget.

    Args:
        partition: Test questions, budgets, and recorded outcomes of the experts.
        method: Name of the method that chose.
        choices: (budgets, questions) index of the expert chosen for every question.

    Returns:
        A row for each budget and test question: the columns of `_add_labels`, correct, cost_usd, reward, chosen (a
        list with the expert's name) and within (1 where the cost is within the budget).
    """
    test = partition.fold.test
    ladder = partition.ladder
    frames = []
    for budget_id, (word, budget_usd) in enumerate(partition.budgets.items()):
        experts = choices[budget_id, test]
        cost_usd = ladder.cost_usd[test, experts]
        outcome = {
            "correct": ladder.correct[test, experts],
            "cost_usd": cost_usd,
            "reward": partition.rewards[budget_id, test, experts],
            "chosen": [[ladder.models[expert]] for expert in experts],
            "within": budget_reward.compute_cost_reward(cost_usd, budget_usd),
        }
        frames.append(_add_labels(partition, method, word, outcome))
    return pd.concat(frames, ignore_index=True)


def _tabulate_random_choices(partition: Partition) -> pd.DataFrame:
    """Tabulates the expected outcome of calling each expert with equal probability, as before training.

    Args:
        partition: Test questions, budgets, and recorded outcomes of the experts.

    Returns:
        A row for each budget and test question, with the columns of `_tabulate_choices`; correct, cost_usd, reward and
        within are means over the experts, and chosen is empty.
    """
    test = partition.fold.test
    ladder = partition.ladder
    frames = []
    for budget_id, (word, budget_usd) in enumerate(partition.budgets.items()):
        is_within = budget_reward.compute_cost_reward(ladder.cost_usd[test], budget_usd)
        outcome = {
            "correct": ladder.correct[test].mean(1),
            "cost_usd": ladder.cost_usd[test].mean(1),
            "reward": partition.rewards[budget_id, test].mean(1),
            "chosen": [[] for _ in test],
            "within": is_within.mean(1),
        }
        frames.append(_add_labels(partition, RANDOM, word, outcome))
    return pd.concat(frames, ignore_index=True)


def _add_labels(
    partition: Partition, method: str, budget_word: str, outcome: Mapping[str, Sequence]
) -> pd.DataFrame:
    """Adds the columns that describe a measurement to the outcomes of test questions.

    Args:
        partition: Its test questions are the rows.
        method: Name of the method.
        budget_word: low, medium or high.
        outcome: For each column, a value per test question.

    Returns:
        A row per test question: method, role (what kind of method it is), backend, seed, split, item (the question),
        group (name of the table), condition (the budget word), calls, and the columns of `outcome`.
    """
    return pd.DataFrame(
        {
            "method": method,
            "role": ROLES[method],
            "backend": "replay",  # answers were recorded; no model is called
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
    """Estimates the headroom: how much more reward choosing an expert per question could bring than the best constant.

    The best constant is the single expert that is best for all questions. It is compared with an informed router, which
    sees more of a question than any method may. Where even that gains little, methods cannot differ much; a comparison
    is *open* where the lower end of the 95 % interval is at least .05 (`lib.stats.MIN_HEADROOM`). The oracle, which
    chooses in hindsight, gains more, but part of that is the luck of single answers.

    Args:
        rows: Rows of `run`.

    Returns:
        By group (the table of outcomes) and condition (the budget word): the columns of `lib.stats.paired_difference`
        (value, ci_low, ci_high, ...) for the informed router minus the best constant, oracle_headroom (the oracle
        minus the best constant) and is_open.
    """
    headroom_rows = results_table.select(rows, split=HEADROOM)
    grouped_rows = _use_groups_as_items(headroom_rows)
    index = ["group", "condition"]
    best_constant = {"method": CONSTANT}
    estimates = stats.paired_difference(
        grouped_rows, "reward", {"method": INFORMED}, best_constant, by=index
    )
    oracle_estimates = stats.paired_difference(
        grouped_rows, "reward", {"method": ORACLE}, best_constant, by=index
    )
    return estimates.assign(
        oracle_headroom=oracle_estimates["value"], is_open=stats.is_open(estimates)
    )


def estimate_contrasts(rows: pd.DataFrame, equivalence_margin: float | None = None) -> pd.DataFrame:
    """Estimates CoRL's reward minus that of each baseline, under each budget, and gives a verdict.

    Differences are paired by seed and question. Where cross-validation leaves out whole groups of questions, such as
    subjects, intervals are over groups of equal weight, because questions of one group are alike.

    Args:
        rows: Rows of `run`.
        equivalence_margin: Differences of reward up to which two methods count as equal; None for no such verdict.

    Returns:
        By group (the table of outcomes), condition (the budget word) and baseline: the columns of
        `lib.stats.paired_difference` (value, ci_low, ci_high, ...), and verdict. The verdict is "not open" where the
        headroom (`estimate_headroom`) is so small that choosing could not beat the baseline; that goes for the best
        constant and the routers, while a trained controller may still beat random choice.
    """
    # CoRL minus each baseline.
    grouped_rows = _use_groups_as_items(results_table.select(rows, split=TEST))
    frames = []
    for baseline in BASELINES:
        compared = results_table.select(grouped_rows, method=[CORL, baseline])
        estimates = stats.paired_difference(
            compared, "reward", {"method": CORL}, {"method": baseline}, by=["group", "condition"]
        )
        verdicts = stats.verdict(estimates, equivalence_margin)
        frames.append(estimates.assign(verdict=verdicts))
    contrasts = pd.concat(frames, keys=BASELINES, names=["baseline"]).reset_index()

    # Without headroom nothing was tested against a constant or a router.
    is_open = estimate_headroom(rows)["is_open"].reset_index()
    contrasts = contrasts.merge(is_open, on=["group", "condition"], how="left")
    needs_headroom = contrasts["baseline"].isin([CONSTANT, NEAREST, LOGISTIC])
    contrasts["verdict"] = contrasts["verdict"].mask(
        needs_headroom & ~contrasts["is_open"], NOT_OPEN
    )
    return contrasts.set_index(["group", "condition", "baseline"]).drop(columns="is_open")


def _use_groups_as_items(rows: pd.DataFrame) -> pd.DataFrame:
    """Makes groups of questions, such as subjects, the items of the statistics, and questions the samples of an item.

    `lib.stats` averages over the samples of an item, and takes items as independent. Questions of a group that
    cross-validation leaves out whole are not independent; the groups are.

    Args:
        rows: Rows of `run`; column context names the group of each question, item the question.

    Returns:
        The rows with the columns group (the table), condition, method, seed, context, item (now the group of
        questions), reward and sample (now the number of the question in its group).
    """
    columns = ["group", "condition", "method", "seed", "context", "item", "reward"]
    rows = rows[columns]  # without lists of names, which are slow to copy

    # Number the questions of each group.
    questions = rows[["group", "context", "item"]].drop_duplicates()
    number_in_group = questions.groupby(["group", "context"], sort=False).cumcount()
    questions = questions.assign(sample=number_in_group)

    rows = rows.merge(questions, on=["group", "context", "item"], how="left")
    return rows.assign(item=rows["context"])
