"""ToolOrchestra's training in the synthetic environment: GRPO on ToolOrchestra's reward, with tiny policies.

Normalization, reward and filters are `rewards`, the objective is `lib.rl.losses`. All seeds train side by side, and all
variants meet the same questions, users, menus and random numbers. From top to bottom:

    VARIANTS             what is trained: ToolOrchestra, and ToolOrchestra with one part changed
    BatchedToolPolicies  a policy for each seed, linear in what it reads of a tool
    sample_rollouts      policies call tools
    compute_rewards      by the variant
    compute_advantages   of the rollouts that the filters leave
    train_policies       updates, until their number is reached

Letters of shapes: S seeds, n questions, M tools on a menu, G rollouts of a question, T tools, K kinds of questions,
k = T + 3 entries of an outcome vector.

Left out: a penalty for leaving the initial policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lib.config import ToolSyntheticSettings
from lib.experiment import seeds
from lib.rl import losses
from lib.tool_orchestration import rewards
from lib.tool_orchestration.synthetic_environment import (
    NUM_KINDS,
    STREAM,
    TOOLS,
    SyntheticMenus,
    ToolEnvironments,
    draw_menus,
    draw_users,
)

PRICE_NOISE = 0.2  # a call costs within this fraction of what the menu says: calls differ in length
NUM_USER_FEATURES = 4  # 1, and the weights of accuracy, cost and latency
NUM_TOOL_FEATURES = 4  # described accuracy, cheapness, speed, and whether the user likes the tool


@dataclass(frozen=True)
class SyntheticToolVariant:
    """One way to train.

    Attributes:
        name: Name of the method in tables.
        normalization: Over the group of a question, over all rollouts of an update, or with the sign error.
        filters_agreeing: Whether groups whose rewards agree are left out.
        filters_malformed: Whether rollouts with a malformed call are left out.
        reads: Whether a policy reads the descriptions of tools, or knows them by their names alone.
        prices_vary: Whether the prices on menus vary in training.
        writes_malformed: Whether the initial policy writes malformed calls.
    """

    name: str
    normalization: Literal["group", "batch", "sign error"] = "group"
    filters_agreeing: bool = True
    filters_malformed: bool = True
    reads: Literal["descriptions", "names"] = "descriptions"
    prices_vary: bool = True
    writes_malformed: bool = False


TOOLORCHESTRA = SyntheticToolVariant("ToolOrchestra")
VARIANTS = (
    TOOLORCHESTRA,
    SyntheticToolVariant("sign error", normalization="sign error"),
    SyntheticToolVariant("whole batch", normalization="batch"),
    SyntheticToolVariant("agreeing groups kept", filters_agreeing=False),
    SyntheticToolVariant("names only", reads="names"),
    SyntheticToolVariant("list prices only", prices_vary=False),
)
MALFORMED_VARIANTS = (
    SyntheticToolVariant("failures left out", writes_malformed=True),
    SyntheticToolVariant("failures kept", filters_malformed=False, writes_malformed=True),
)


# Policies ------------------------------------------------------------------------------------------


class BatchedToolPolicies:
    """A softmax policy over the tools of a menu for each of S seeds, with scores that are linear in their features.

    A policy that reads descriptions has a weight for each pair of a tool's features [described accuracy at this kind of
    question, cheapness, speed, whether the user likes the tool] and the user's features [1, weights of accuracy, cost
    and latency]: 16 weights. One that knows tools by name has a weight for each kind of question, tool and user
    feature; a tool that it never called keeps 0. Both have one more weight for tools that the user likes, and both
    start with equal probabilities. Where the variant says so, one more parameter is the logit of a malformed call.

    The sums over seeds are written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.6 to 3 times as long for a
    training step of 32 policies (tests/benchmarks/test_seed_batched_speed.py).
    """

    def __init__(
        self, variant: SyntheticToolVariant, num_seeds: int, malformed_probability: float
    ) -> None:
        """
        Args:
            variant: What the policies read, and whether they write malformed calls.
            num_seeds: S, the number of policies.
            malformed_probability: Probability of a malformed call before training.
        """
        self.variant = variant
        shape = (num_seeds, NUM_USER_FEATURES, NUM_TOOL_FEATURES)
        if variant.reads == "names":
            shape = (num_seeds, NUM_KINDS, NUM_USER_FEATURES, len(TOOLS))
        self.weights = torch.zeros(shape, requires_grad=True)
        self.liked_weights = torch.zeros(num_seeds, requires_grad=True)
        malformed_logit = float(np.log(malformed_probability / (1 - malformed_probability)))
        self.malformed_logits = torch.full((num_seeds,), malformed_logit, requires_grad=True)
        self.parameters = [self.weights, self.liked_weights, self.malformed_logits]

    def compute_log_probs(
        self, environments: ToolEnvironments, menus: SyntheticMenus, preferences: np.ndarray
    ) -> Tensor:
        """Computes the log-probabilities of all actions: a call of each tool on the menu, and a malformed call.

        Shapes: S seeds, each with a policy and an environment of its own; n questions for each seed; M tools on the
        menu of a question; T tools in all.

        Args:
            environments: S environments, with the accuracy of each tool as menus describe it.
            menus: The questions, and the tools on the menu of each.
            preferences: (S, n, T + 3) weights in [0, 1] of the user of each question: 1 for each tool that the user
                likes to see called and 0 for the others, then accuracy, cost and latency.

        Returns:
            (S, n, M + 1) log-probabilities. The last entry is a malformed call, -inf where the variant writes none.
        """
        # What a policy reads of a user: a constant 1, and the weights of accuracy, cost and latency.
        ones = np.ones_like(preferences[..., :1])
        objective_weights = preferences[..., rewards.OBJECTIVE_ENTRIES]  # (S, n, 3)
        user_features = np.concatenate([ones, objective_weights], -1)  # (S, n, 4)
        user_features = torch.as_tensor(user_features, dtype=torch.float32)

        # Scores of the tools on each menu.
        is_liked = np.take_along_axis(preferences, menus.tools, -1)  # (S, n, M)
        if self.variant.reads == "descriptions":
            scores = self._score_descriptions(environments, menus, user_features, is_liked)
        else:
            scores = self._score_names(menus, user_features)
        liked_weights = self.liked_weights[:, None, None]
        scores = scores + liked_weights * torch.as_tensor(is_liked, dtype=torch.float32)
        log_probs = scores.log_softmax(-1)  # (S, n, M), given that the call is well formed
        if not self.variant.writes_malformed:
            return torch.nn.functional.pad(log_probs, (0, 1), value=-torch.inf)

        # log P(tool) = log P(well formed) + log P(tool | well formed)
        malformed_logits = self.malformed_logits[:, None, None].expand(*scores.shape[:2], 1)
        log_valid = torch.nn.functional.logsigmoid(-malformed_logits)
        log_malformed = torch.nn.functional.logsigmoid(malformed_logits)
        return torch.cat([log_valid + log_probs, log_malformed], -1)

    def _score_descriptions(
        self,
        environments: ToolEnvironments,
        menus: SyntheticMenus,
        user_features: Tensor,
        is_liked: np.ndarray,
    ) -> Tensor:
        """Scores the tools on each menu from their descriptions, bilinearly in user and tool.

        Shapes: S seeds, n questions for each seed, M tools on a menu.

        Args:
            environments: S environments, with the accuracy of each tool as menus describe it.
            menus: The questions, and the tools and prices on the menu of each.
            user_features: (S, n, 4) 1, and the user's weights of accuracy, cost and latency.
            is_liked: (S, n, M) 1 for tools that the user likes to see called, else 0.

        Returns:
            (S, n, M) scores, the logits of the tools.
        """
        described_accuracy = menus.look_up(environments.described_accuracy)
        # Prices are (S, n, M, 2): US dollars and seconds. Half the price is 1 more in the feature.
        savings = -np.log2(menus.prices)
        cheapness = savings[..., 0]
        speed = savings[..., 1]
        tool_features = np.stack([described_accuracy, cheapness, speed, is_liked], -1)
        tool_features = torch.as_tensor(tool_features, dtype=torch.float32)  # (S, n, M, 4)

        # score_snm = sum_uf user_snu W_suf tool_snmf: seed s, question n, tool m of the menu
        return torch.einsum("snu,suf,snmf->snm", user_features, self.weights, tool_features)

    def _score_names(self, menus: SyntheticMenus, user_features: Tensor) -> Tensor:
        """Scores the tools on each menu by their names alone, with weights for each kind of question.

        Shapes: S seeds, n questions for each seed, M tools on a menu, T tools in all.

        Args:
            menus: The questions with their kinds, and the tools on the menu of each.
            user_features: (S, n, 4) 1, and the user's weights of accuracy, cost and latency.

        Returns:
            (S, n, M) scores, the logits of the tools.
        """
        seed_index = torch.arange(len(user_features))[:, None]
        weights_of_kind = self.weights[seed_index, torch.as_tensor(menus.kinds)]  # (S, n, 4, T)

        # score_snt = sum_u user_snu W_snut, for every tool t, of which those on the menu are taken
        scores_of_tools = torch.einsum("snu,snut->snt", user_features, weights_of_kind)
        return scores_of_tools.gather(-1, torch.as_tensor(menus.tools))


# Rollouts, rewards and advantages ------------------------------------------------------------------


def sample_rollouts(
    environments: ToolEnvironments,
    menus: SyntheticMenus,
    log_probs: np.ndarray,
    num_rollouts: int,
    step: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Samples G rollouts of every question: one call each, whether it is correct, and what it spends.

    All variants of the training meet the same random numbers in the same update. Shapes: S seeds, n questions for each
    seed, M tools on a menu, T tools in all.

    Args:
        environments: S environments, with the probability of each tool to be correct.
        menus: The questions, and the tools and prices on the menu of each.
        log_probs: (S, n, M + 1) log-probabilities of calling each tool on the menu, and of a malformed call.
        num_rollouts: G, rollouts of each question.
        step: Number of the update, which seeds the random numbers.

    Returns:
        The choices, (S, n, G): position on the menu, or M for a malformed call.
        The outcome vectors, (S n G, T + 3): calls of each tool, outcome, -cost, -latency (`rewards`).
    """
    rng = seeds.rng(*STREAM, "dice", step)
    num_seeds, num_questions, num_choices = log_probs.shape

    # The largest log-probability plus Gumbel noise is a sample of the distribution.
    uniforms = rng.random((num_seeds, num_questions, num_rollouts, num_choices))
    gumbel_noise = -np.log(-np.log(uniforms))
    choices = (log_probs[:, :, None] + gumbel_noise).argmax(-1)  # (S, n, G)
    outcome_uniforms = rng.random(choices.shape)
    price_factors = rng.uniform(1 - PRICE_NOISE, 1 + PRICE_NOISE, (*choices.shape, 2))

    # A malformed call calls nothing, costs nothing and is wrong.
    is_called = choices < menus.size
    menu_index = np.minimum(choices, menus.size - 1)
    accuracy = np.take_along_axis(menus.look_up(environments.accuracy), menu_index, -1)
    is_correct = is_called & (outcome_uniforms < accuracy)
    menu_prices = np.take_along_axis(menus.prices, menu_index[..., None], 2)  # (S, n, G, 2)
    spending = menu_prices * price_factors * is_called[..., None]  # (S, n, G, 2) dollars, seconds
    tools = np.take_along_axis(menus.tools, menu_index, -1)
    calls = is_called[..., None] & (tools[..., None] == np.arange(len(TOOLS)))  # (S, n, G, T)

    vectors = rewards.make_outcome_vectors(
        calls.reshape(-1, len(TOOLS)),
        is_correct.ravel(),
        cost_usd=spending[..., 0].ravel(),
        seconds=spending[..., 1].ravel(),
    )
    return choices, vectors


def compute_rewards(
    variant: SyntheticToolVariant,
    vectors: np.ndarray,
    preferences: np.ndarray,
    num_seeds: int,
    num_rollouts: int,
) -> np.ndarray:
    """Computes the reward of every rollout: its normalized outcome vector, weighed by the user's preferences.

    Args:
        variant: Says how outcome vectors are normalized: within the G rollouts of a question, over all rollouts of a
            seed, or with the sign error of the released code.
        vectors: (S n G, k) outcome vectors, seed after seed, question after question; k = tools + 3 entries.
        preferences: (S, n, k) preference vector of the user of each question.
        num_seeds: S, the number of seeds.
        num_rollouts: G, the number of rollouts of each question.

    Returns:
        (S n G,) rewards, in the order of the vectors.
    """
    # Rows that are normalized together have the same number in `groups`.
    num_rows = len(vectors)
    group_size = num_rollouts
    if variant.normalization == "batch":
        group_size = num_rows // num_seeds
    groups = np.arange(num_rows) // group_size  # (S n G,)
    if variant.normalization == "sign error":
        normalized = rewards.normalize_with_sign_error(vectors, groups)
    else:
        normalized = rewards.normalize_within_groups(vectors, groups)

    # The G rollouts of a question have its user.
    rollout_preferences = preferences.reshape(-1, preferences.shape[-1])
    rollout_preferences = np.repeat(rollout_preferences, num_rollouts, axis=0)
    is_correct = vectors[:, rewards.OUTCOME_INDEX]
    return rewards.compute_preference_rewards(normalized, rollout_preferences, is_correct)


def compute_advantages(
    rollout_rewards: np.ndarray, is_learned: np.ndarray, num_rollouts: int
) -> Tensor:
    """Computes advantages of GRPO over the rollouts that the filters leave.

        A = (R - mean R) / std R    R: rewards of the rollouts of one question, which are a group

    Args:
        rollout_rewards: (groups G,) reward of each rollout, group after group.
        is_learned: (groups G,) bool, whether the filters leave the rollout.
        num_rollouts: G, rollouts of one question.

    Returns:
        (groups, G) advantages, 0 for rollouts that are left out.
    """
    grouped_rewards = torch.as_tensor(rollout_rewards).view(-1, num_rollouts)
    is_learned = torch.as_tensor(is_learned).view(-1, num_rollouts)
    is_whole = is_learned.all(1)  # (groups,)
    advantages = torch.zeros_like(grouped_rewards)  # (groups, G)

    # Groups of which all rollouts remain, in one call: `compute_group_advantages` but for its epsilon.
    advantages[is_whole] = losses.whiten(grouped_rewards[is_whole], 1, correction=1)

    # Groups of which some rollouts were left out have different sizes.
    is_in_ragged_group = is_learned & ~is_whole[:, None]
    group_ids = is_in_ragged_group.nonzero()[:, 0]
    advantages[is_in_ragged_group] = losses.compute_group_advantages(
        grouped_rewards[is_in_ragged_group], group_ids
    )
    return advantages


# Training ------------------------------------------------------------------------------------------


def train_policies(
    variant: SyntheticToolVariant,
    environments: ToolEnvironments,
    settings: ToolSyntheticSettings,
    num_updates: int,
) -> Iterator[tuple[int, BatchedToolPolicies]]:
    """Trains one policy in each environment by GRPO.

    Args:
        variant: The kind of training: normalization, filters, and what policies read.
        environments: One for each seed.
        settings: Questions and rollouts of an update, and the constants of GRPO.
        num_updates: Number of updates.

    Yields:
        The number of updates so far and the policies, before the first update and after each.
    """
    num_seeds = environments.num_seeds
    num_rollouts = settings.rollouts
    min_std = settings.least_deviation if variant.filters_agreeing else 0.0
    policies = BatchedToolPolicies(variant, num_seeds, settings.malformed_probability)
    optimizer = torch.optim.Adam(policies.parameters, lr=settings.learning_rate)
    users = draw_users(settings.users, "users")
    yield 0, policies

    for step in range(num_updates):
        # Questions with menus, each for a user.
        menus = draw_menus(environments, settings, settings.groups, "questions", step)
        if not variant.prices_vary:
            menus = menus.at_list_prices(environments)
        rng = seeds.rng(*STREAM, "who", step)
        preferences = users[rng.integers(len(users), size=menus.kinds.shape)]  # (S, n, k)

        # Rollouts and their rewards.
        with torch.no_grad():
            old_log_probs = policies.compute_log_probs(environments, menus, preferences)
        choices, vectors = sample_rollouts(
            environments, menus, old_log_probs.double().numpy(), num_rollouts, step
        )
        rollout_rewards = compute_rewards(variant, vectors, preferences, num_seeds, num_rollouts)

        # Filters. A synthetic rollout always answers.
        is_malformed = choices.ravel() == menus.size
        if not variant.filters_malformed:
            is_malformed = np.zeros(len(rollout_rewards), bool)
        groups = np.arange(len(rollout_rewards)) // num_rollouts
        is_answered = np.ones(len(rollout_rewards), bool)
        filtered = rewards.filter_rollouts(
            rollout_rewards, groups, is_malformed, is_answered, min_std
        )
        is_learned = np.zeros(len(rollout_rewards), bool)
        is_learned[filtered.rows] = True
        advantages = compute_advantages(rollout_rewards, is_learned, num_rollouts)
        advantages = advantages.float().view(choices.shape)  # (S, n, G)

        # Gradient steps on the same rollouts.
        chosen = torch.as_tensor(choices)
        for _ in range(settings.epochs):
            new_log_probs = policies.compute_log_probs(environments, menus, preferences)
            objective = losses.compute_clipped_objective(
                new_log_probs.gather(-1, chosen),
                old_log_probs.gather(-1, chosen),
                advantages,
                settings.clip,
            )
            loss_by_seed = -objective.mean((1, 2))  # (S,)
            optimizer.zero_grad()
            # Seeds share no weight, so that the sum trains each as if it were alone.
            loss_by_seed.sum().backward()
            optimizer.step()
        yield step + 1, policies
