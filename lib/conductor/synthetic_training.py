"""GRPO in the synthetic environment: one training of all seeds and settings side by side, and its exact evaluation.

Rank normalisation, advantages, the clipped objective, the head, its buffer and its updates are those of the trainer of
language models (`lib.conductor.trainer`); only the policy and the environment are small. Left out: the KL penalty, and
joint training (Table 6), whose gradient is 0 here because all replies have the same length
(`meta_policy_training.compute_joint_loss`).

Letters of shapes: W settings, S seeds, C categories, E test prompts, M candidates, D features, K rewards.
"""

from collections.abc import Sequence
from itertools import combinations

import pandas as pd
import torch
from torch.nn.functional import one_hot

from lib.conductor.meta_policy_training import make_verified_mask_stream, select_verified
from lib.conductor.rewards import COMPONENTS, subtract_group_means
from lib.conductor.synthetic_environment import (
    PROXIES,
    STREAM,
    BatchedEnvironments,
    RewardSetting,
    SyntheticRollouts,
    make_states,
)
from lib.conductor.synthetic_methods import BEST_STATIC, OPTIMUM, SyntheticMethod, fix_weights
from lib.conductor.weighting import RolloutOutcomes, Weighting
from lib.config import ConductorSyntheticSettings
from lib.experiment import seeds
from lib.rl import losses

TEST_PROMPTS = 64  # of a category
WEIGHED_PROMPTS = 8  # of them, on which the weights of a head are measured
CLIP = 0.2  # without effect here: every rollout is used once


def train_and_evaluate(environments: BatchedEnvironments, method: SyntheticMethod) -> pd.DataFrame:
    """Train a method in all environments, and evaluate the policies exactly on test prompts.

    Args:
        environments: Settings and seeds.
        method: What weighs the rewards.

    Returns:
        One row per setting, seed and category. reward: expected quality of the replies under the policy's own softmax,
        in standard deviations of quality; w_NAME: mean weights on the candidates of test prompts, as often as the
        policy would choose them.
    """
    settings = environments.settings
    weighting = method.make_weighting(environments)
    # Zeros: at the start all candidates are equally likely.
    theta = torch.zeros_like(environments.quality_directions, requires_grad=True)  # (W S, C, D)
    optimizer = torch.optim.SGD([theta], lr=settings.learning_rate)
    for step in range(settings.steps if method.trains else 0):
        # Replies, and how much each reward counts for them.
        rollouts = environments.roll_out(theta, step, method.head_input, method.checker)
        weights, _ = weighting.weigh_rollouts(rollouts.h, step)
        rewards = scalarize_rewards(environments, method, weighting, weights, rollouts)

        # Advantages, and what the Conductor learns from them where there is one.
        advantage = losses.compute_group_advantages(rewards.flatten(), settings.group)
        advantage = advantage.view_as(rewards)
        weighting.learn(
            RolloutOutcomes(advantage, rollouts.rewards, rollouts.checked_quality, rollouts.prompt)
        )

        # The update of the policies: GRPO's clipped objective.
        objective = losses.compute_clipped_objective(
            rollouts.log_probs, rollouts.log_probs.detach(), advantage, CLIP
        )
        # Environments share no parameters, so their losses are summed.
        loss = -settings.categories * objective.mean(-1).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        weighting.finish_step()
    with torch.no_grad():
        return _evaluate(environments, method, weighting, theta)


def scalarize_rewards(
    environments: BatchedEnvironments,
    method: SyntheticMethod,
    weighting: Weighting,
    weights: torch.Tensor,
    rollouts: SyntheticRollouts,
) -> torch.Tensor:
    """Compute the reward R that the policy is trained with in every rollout.

    Args:
        environments: Settings and seeds.
        method: On a fraction `direct_fraction` of the prompts its reward is checked quality.
        weighting: Names the rewards that are weighted.
        weights: (W S, N G, K) weights.
        rollouts: Rollouts of the step.

    Returns:
        (W S, N G) weighted sums of the rewards, or checked quality where that is the reward.
    """
    by_name = dict(zip(COMPONENTS, rollouts.rewards.unbind(-1), strict=True))
    by_name["quality"] = rollouts.quality
    rewards = torch.stack([by_name[name] for name in weighting.names], -1)
    if weighting.centred:
        flat = rewards.flatten(0, 1)
        rewards = subtract_group_means(flat, environments.settings.group).view_as(rewards)

    # R = sum_k w_k r_k
    scalarized = (weights * rewards).sum(-1)
    if not method.direct_fraction:
        return scalarized

    # The policy itself is rewarded with checked quality on some prompts, the same ones in every method.
    stream = make_verified_mask_stream(environments.seed_names)
    is_verified = select_verified(stream, rollouts.prompt, method.direct_fraction)
    return torch.where(is_verified, rollouts.checked_quality, scalarized)


def _evaluate(
    environments: BatchedEnvironments,
    method: SyntheticMethod,
    weighting: Weighting,
    theta: torch.Tensor,
) -> pd.DataFrame:
    """Evaluate policies exactly, by the probabilities of all candidates of test prompts.

    Args:
        environments: Settings and seeds.
        method: Its name and role go into the rows.
        weighting: Weighting of the training.
        theta: (W S, C, D) weights of the policies.

    Returns:
        The rows of `train_and_evaluate`.
    """
    # Candidates of test prompts, the same in every setting and for every method.
    s = environments.settings
    num_seeds = environments.num_seeds
    shape = num_seeds, s.categories, TEST_PROMPTS, s.candidates, s.features
    normals = seeds.rng(STREAM, environments.split, "exam").standard_normal(shape, dtype="float32")
    x = environments.repeat_over_settings(torch.from_numpy(normals))  # (W S, C, E, M, D)

    # Sums over features: quality of every candidate, and its probability under the policy.
    quality = torch.einsum("scekd,scd->scek", x, environments.quality_directions)
    probabilities = torch.einsum("scekd,scd->scek", x, theta).softmax(-1)
    if method.name == OPTIMUM:
        probabilities = one_hot(quality.argmax(-1), s.candidates).float()
    expected_quality = (probabilities * quality).sum(-1).mean(-1)  # (W S, C)

    # One row per setting, seed and category, in the order of `expected_quality`.
    rows = []
    for setting in environments.reward_settings:
        for seed in range(num_seeds):
            for category in range(s.categories):
                rows.append(
                    {
                        "condition": setting.condition,
                        "matching_agreement": setting.matching_agreement,
                        "other_agreement": setting.other_agreement,
                        "noise": setting.noise,
                        "easy_fraction": setting.easy_fraction,
                        "seed": seed,
                        "group": str(category),
                    }
                )

    # What is the same in all rows, and the quality that was reached.
    frame = pd.DataFrame(rows)
    frame["method"] = method.name
    frame["role"] = method.role
    frame["reward"] = expected_quality.flatten().numpy()
    frame["split"] = environments.split
    frame["item"] = frame["seed"].astype(str) + "-" + frame["group"]

    # Only a weighting of all five rewards has comparable weights.
    if tuple(weighting.names) == COMPONENTS:
        weights = _measure_weights(environments, method, weighting, x, probabilities)
        frame[[f"w_{name}" for name in COMPONENTS]] = weights.flatten(0, 1).numpy()
    return frame


def _measure_weights(
    environments: BatchedEnvironments,
    method: SyntheticMethod,
    weighting: Weighting,
    x: torch.Tensor,
    probabilities: torch.Tensor,
) -> torch.Tensor:
    """Measure the mean weights by category on test prompts, as often as the policy would choose their candidates.

    Args:
        environments: Settings and seeds.
        method: Says what the states hold.
        weighting: Weighting of the training.
        x: (W S, C, E, M, D) features of the candidates.
        probabilities: (W S, C, E, M) of the candidates under the policy.

    Returns:
        (W S, C, K) mean weights.
    """
    # The first few prompts of a category are enough.
    x = x[:, :, :WEIGHED_PROMPTS]
    probabilities = probabilities[:, :, :WEIGHED_PROMPTS]  # (W S, C, E, M)

    # The states of all their candidates.
    num_categories = environments.settings.categories
    category = torch.arange(num_categories)[:, None].expand(probabilities.shape[:3])
    uniforms = seeds.rng(STREAM, environments.split, "exam order").random(probabilities.shape)
    h = make_states(
        num_categories,
        method.head_input,
        category.flatten(1, 2),
        x.flatten(1, 2),
        torch.from_numpy(uniforms).flatten(1, 2),
    )

    # (W S, C, E, M, K): the mean over candidates by their probability, then over prompts.
    weights = weighting.compute_mean_weights(h.flatten(1, 2)).view(*probabilities.shape, -1)
    return (weights * probabilities[..., None]).sum(3).mean(2)


def choose_best_static(
    settings: ConductorSyntheticSettings, reward_settings: Sequence[RewardSetting]
) -> SyntheticMethod:
    """Choose the best fixed mix: every subset of the proxies in equal parts, and Equal, on dev environments.

    Args:
        settings: Settings of the environment; a quarter of its seeds are used.
        reward_settings: Settings, of which dev environments are drawn; they share nothing with those of the test.

    Returns:
        The mix with the highest mean quality over all settings and seeds, as a method.
    """
    # 2^4 - 1 mixes of the four proxies, and Equal.
    subsets = []
    for size in range(1, len(PROXIES) + 1):
        subsets += combinations(PROXIES, size)
    subsets.append(COMPONENTS)

    environments = BatchedEnvironments(
        settings, reward_settings, max(2, settings.seeds // 4), "dev"
    )
    best_mix = {}
    best_reward = float("-inf")
    for names in subsets:
        mix = dict.fromkeys(names, 1 / len(names))
        candidate = SyntheticMethod("+".join(names), fix_weights(mix))
        reward = train_and_evaluate(environments, candidate)["reward"].mean()
        if reward > best_reward:
            best_mix, best_reward = mix, reward
    return SyntheticMethod(BEST_STATIC, fix_weights(best_mix))
