"""The stacked trainer against stable-baselines3, against fewer variants at once, and across an interruption."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib.config import load
from lib.envs.education import EducationRules
from lib.envs.education_batch import EducationBatch
from lib.policy_zoo import sb3_baseline, train
from lib.policy_zoo.mgda import compute_min_norm_weights
from lib.policy_zoo.networks import Mlp, sample_actions
from lib.policy_zoo.objectives import LinearScalarization, VectorReward
from lib.policy_zoo.ppo import MGDA, PPO, PPOVariant, compute_ppo_loss
from lib.policy_zoo.recipes import list_recipes

RULES = EducationRules((74, 67, 72, 81, 17, 0), steps_per_level=2, warmup="measure")
WEIGHTS = {"aptitude": (1.0, 0.0, 0.0), "gap": (0.0, 1.0, 0.0), "all": (1 / 3, 1 / 3, 1 / 3)}
SMOKE = load("smoke")
torch.set_num_threads(1)


def make_settings(**changes):
    settings = load("paper").zoo.education.single
    return settings.model_copy(update={"timesteps": 1024, **changes})


def make_ppo(names=tuple(WEIGHTS), **changes):
    """A trainer of one variant for each of these weights."""
    variants = [
        PPOVariant(name, 0, LinearScalarization(WEIGHTS[name]), make_settings(**changes))
        for name in names
    ]
    return PPO(variants, Mlp(13, 3), EducationBatch(RULES, 8 * len(variants)), "education")


def train_updates(learner, num_updates):
    for _ in range(num_updates):
        learner.update_policies(learner.collect_rollout())
        learner.num_updates += 1


def find_recipe(domain, name):
    return next(recipe for recipe in list_recipes(SMOKE, domain) if recipe.name == name)


def measure_largest_difference(parameters, other_parameters):
    return max(np.abs(array - other_parameters[name]).max() for name, array in parameters.items())


# Against stable-baselines3 ------------------------------------------------------------------------


def train_with_both_learners(recipe, num_updates):
    """stable-baselines3's PPO and the stacked trainer after updates with the same weights and random numbers.

    Returns:
        For each learner its parameters and finished episodes; and the first parameters.
    """
    env = sb3_baseline.make_environment(SMOKE, recipe, 0)
    model = sb3_baseline.make_learner(recipe, env)
    callback = sb3_baseline.SameRandomNumbers(recipe, 0)
    model.learn(num_updates * recipe.settings.rollout, callback=callback)

    learner = train.make_stacked_learner(SMOKE, [recipe], 0)
    first_parameters = learner.get_parameters(0)
    train_updates(learner, num_updates)
    by_sb3 = (sb3_baseline.get_parameters(model, recipe), env.episodes)
    by_stacked = (learner.get_parameters(0), learner.episodes)
    return by_sb3, by_stacked, first_parameters


@pytest.mark.parametrize(("name", "target_kl"), [("SO-d1", 0.01), ("MO-S", 1e-5), ("MO-RM", None)])
def test_the_stacked_trainer_gives_stable_baselines3s_weights_after_the_same_updates(
    name, target_kl
):
    recipe = replace(find_recipe("education", name), settings=make_settings(target_kl=target_kl))
    by_sb3, by_stacked, first_parameters = train_with_both_learners(recipe, num_updates=3)
    sb3_parameters, sb3_episodes = by_sb3
    parameters, episodes = by_stacked
    assert measure_largest_difference(parameters, sb3_parameters) < 5e-6
    # A limit of 1e-5 stops nearly every step, so that weights hardly move.
    has_moved = measure_largest_difference(parameters, first_parameters) > 1e-2
    assert has_moved == (target_kl != 1e-5)
    assert np.allclose(sb3_episodes, episodes) and len(episodes) > 10


def test_the_convolutional_network_is_stable_baselines3s_with_the_small_extractor():
    """Few steps: where the layers meet their kinks, rounding grows."""
    recipe = find_recipe("minigrid", "SO-d3")
    settings = recipe.settings.model_copy(update={"rollout": 128, "epochs": 2})
    recipe = replace(recipe, settings=settings)
    by_sb3, by_stacked, first_parameters = train_with_both_learners(recipe, num_updates=6)
    sb3_parameters, sb3_episodes = by_sb3
    parameters, episodes = by_stacked
    assert measure_largest_difference(parameters, sb3_parameters) < 5e-6
    assert measure_largest_difference(parameters, first_parameters) > 1e-3
    assert np.allclose(sb3_episodes, episodes) and episodes


# The loss, and the derivatives that are written out ------------------------------------------------


def make_learner_with_minibatch(learner_class):
    """A trainer of two variants and one of its minibatches, after weights have moved; coefficients differ."""
    num_heads = 3 if learner_class is MGDA else 1
    objective = VectorReward() if learner_class is MGDA else LinearScalarization(WEIGHTS["all"])
    first_settings = make_settings(entropy=0.02, clip=0.01, learning_rate=3e-3, target_kl=None)
    second_settings = make_settings(value=0.7, clip=0.005, target_kl=None)
    variants = [
        PPOVariant("first", 0, objective, first_settings),
        PPOVariant("second", 0, objective, second_settings),
    ]
    env = EducationBatch(RULES, 16)
    learner = learner_class(variants, Mlp(13, 3, values=num_heads), env, "education")

    minibatches = []
    take_step = learner._take_minibatch_step

    def record_and_take_step(minibatch, is_learning):
        minibatches.append(minibatch)
        return take_step(minibatch, is_learning)

    learner._take_minibatch_step = record_and_take_step
    learner.update_policies(learner.collect_rollout())
    return learner, minibatches[0]


def compute_weights_by_autograd(learner, logits, values, minibatch):
    """Min-norm weights (K, V) of the gradients of each objective's loss, as autograd gives them."""
    zeros = torch.zeros(2, 1)
    policy_loss_only = replace(learner.coefficients, entropy=zeros, value=zeros)
    gradients = []
    for selected_objective in torch.eye(3):
        objective_loss = compute_ppo_loss(
            logits, values, minibatch, policy_loss_only, selected_objective
        ).sum()
        gradient = learner._backpropagate((objective_loss,), (torch.ones(()),), keep_graph=True)
        gradients.append(gradient)
    g = torch.stack(gradients, dim=1).double()  # (K, V, P)
    gram_matrices = (g @ g.transpose(1, 2)).numpy()
    weights = [compute_min_norm_weights(gram_matrix) for gram_matrix in gram_matrices]
    return torch.from_numpy(np.stack(weights)).float()


@pytest.mark.parametrize("learner_class", [PPO, MGDA])
def test_the_gradient_that_is_followed_is_that_of_the_loss_by_autograd(learner_class):
    learner, minibatch = make_learner_with_minibatch(learner_class)
    logits, values = learner._compute_outputs(minibatch)

    new_logprobs = logits.log_softmax(-1).gather(-1, minibatch.actions.unsqueeze(-1))
    ratio = (new_logprobs.squeeze(-1) - minibatch.logprobs).exp()
    is_outside = (ratio - 1).abs() > learner.coefficients.clip
    assert is_outside.float().mean() > 0.2  # or clipping were not tested

    objective_weights = 1.0
    if learner_class is MGDA:
        objective_weights = compute_weights_by_autograd(learner, logits, values, minibatch)
        assert (objective_weights > 0.01).sum() > 2
    loss = compute_ppo_loss(
        logits, values, minibatch, learner.coefficients, objective_weights
    ).sum()
    expected = learner._backpropagate((loss,), (torch.ones(()),), keep_graph=True)
    gradient = learner._compute_gradient(logits, values, minibatch)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-4)
    assert expected.abs().max() > 1e-2


def test_adam_is_torchs_and_leaves_variants_that_have_stopped_as_they_are():
    learner, _ = make_learner_with_minibatch(PPO)
    learner.first_moment.zero_()
    learner.second_moment.zero_()
    learner.adam_steps.zero_()

    rows = [torch.nn.Parameter(row.clone()) for row in learner.theta]
    groups = [
        {"params": [row], "lr": variant.settings.learning_rate}
        for row, variant in zip(rows, learner.variants, strict=True)
    ]
    torch_adam = torch.optim.Adam(groups, eps=1e-5)
    generator = torch.Generator().manual_seed(0)
    for is_learning in ([True, True], [True, False], [False, True], [True, True]):
        gradient = torch.randn(learner.theta.shape, generator=generator) * 1e-3
        learner._take_adam_step(gradient, torch.tensor(is_learning)[:, None])
        for row, row_gradient, row_is_learning in zip(rows, gradient, is_learning, strict=True):
            row.grad = row_gradient.clone() if row_is_learning else None
        torch_adam.step()
        expected = torch.stack([row.detach() for row in rows])
        torch.testing.assert_close(learner.theta, expected, atol=1e-6, rtol=0)


# Stacks, seeds, interruptions ---------------------------------------------------------------------


def test_a_seed_has_the_same_weights_beside_another_seed_and_without():
    stack = train.group_recipes_by_stack(SMOKE, "education")["table-6"]
    both_seeds = train.make_stacked_learner(SMOKE, stack, 0, 1)
    second_seed = train.make_stacked_learner(SMOKE, stack, 1)
    for learner in (both_seeds, second_seed):
        learner.update_policies(learner.collect_rollout())

    for k in range(len(stack)):
        parameters = both_seeds.get_parameters(len(stack) + k)
        assert measure_largest_difference(second_seed.get_parameters(k), parameters) <= 1e-6
    curve = both_seeds.make_training_curve()
    curve_of_second_seed = curve[curve["seed"] == 1].reset_index(drop=True)
    assert curve_of_second_seed.equals(second_seed.make_training_curve())


@pytest.mark.parametrize("num_seeds", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_every_seed_is_in_one_group(num_seeds, domain):
    zoo = SMOKE.zoo.model_copy(update={"seeds": num_seeds})
    settings = SMOKE.model_copy(update={"zoo": zoo})
    largest_group = 1 if domain == "minigrid" else min(num_seeds, train.SEEDS_PER_JOB)
    for stack in train.group_recipes_by_stack(settings, domain).values():
        groups = train.group_seeds(settings, stack)
        assert [seed for group in groups for seed in group] == list(range(num_seeds))
        assert max(map(len, groups)) == largest_group


def make_mgda():
    variant = PPOVariant("MO-MGDA", 0, VectorReward(), make_settings(rollout=256))
    return MGDA([variant], Mlp(13, 3, values=3), EducationBatch(RULES, 8), "education")


@pytest.mark.parametrize("make_learner", [make_ppo, make_mgda])
def test_resuming_from_a_checkpoint_equals_never_having_stopped(make_learner, tmp_path):
    uninterrupted = make_learner()
    uninterrupted.train()

    interrupted = make_learner()
    train_updates(interrupted, 2)
    interrupted.save_checkpoint(tmp_path / "checkpoint.safetensors")
    resumed = make_learner()
    resumed.train(tmp_path / "checkpoint.safetensors")

    assert torch.equal(uninterrupted.theta, resumed.theta)
    assert uninterrupted.make_training_curve().equals(resumed.make_training_curve())


def test_sampling_follows_the_distribution_and_never_picks_an_impossible_action():
    probabilities = torch.tensor([[0.2, 0.0, 0.8]])
    uniforms = (torch.arange(1000) / 1000).double()
    actions = sample_actions(probabilities.log().expand(1000, 3), uniforms)
    assert torch.bincount(actions, minlength=3).tolist() == [200, 0, 800]


def test_variants_of_unequal_shapes_are_refused():
    objective = LinearScalarization(WEIGHTS["all"])
    variants = [
        PPOVariant("first", 0, objective, make_settings()),
        PPOVariant("second", 0, objective, make_settings(epochs=3)),
    ]
    with pytest.raises(ValueError, match="equal shapes"):
        PPO(variants, Mlp(13, 3), EducationBatch(RULES, 16), "education")


def test_an_aptitude_policy_earns_more_aptitude_after_training():
    learner = make_ppo(("aptitude",), timesteps=20_480, learning_rate=1e-3)
    learner.train()
    curve = learner.make_training_curve()
    early = curve[curve["steps"] <= 2_048]
    late = curve[curve["steps"] > 16_384]
    assert late["return_0"].mean() > early["return_0"].mean() + 1.0
