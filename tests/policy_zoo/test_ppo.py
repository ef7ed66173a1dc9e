"""The stacked trainer against stable-baselines3, against itself alone, and across an interruption."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib.config import load
from lib.envs.education import EducationRules
from lib.envs.education_batch import EducationBatch
from lib.policy_zoo import sb3_baseline, train
from lib.policy_zoo.mgda import min_norm_weights
from lib.policy_zoo.networks import Mlp
from lib.policy_zoo.objectives import Linear, Vector
from lib.policy_zoo.ppo import MGDA, PPO, PPOVariant, loss, sample
from lib.policy_zoo.recipes import recipes

RULES = EducationRules((74, 67, 72, 81, 17, 0), steps_per_level=2, warmup="measure")
WEIGHTS = {"one": (1.0, 0.0, 0.0), "two": (0.0, 1.0, 0.0), "three": (1 / 3, 1 / 3, 1 / 3)}
SMOKE = load("smoke")
torch.set_num_threads(1)


def settings(**change):
    base = load("paper").zoo.education.single
    return base.model_copy(update={"timesteps": 1024, **change})


def stack(names=("one", "two", "three"), seed=0, **change):
    arms = [PPOVariant(name, seed, Linear(WEIGHTS[name]), settings(**change)) for name in names]
    return PPO(arms, Mlp(13, 3), EducationBatch(RULES, 8 * len(arms)), "education")


def trained_by_both(recipe, updates, params=SMOKE):
    """Parameters after so many updates from the same weights and random numbers: stable-baselines3's, ours, the first;
    and everybody's finished episodes."""
    env = sb3_baseline.environment(params, recipe, 0)
    model = sb3_baseline.learner(recipe, env)
    model.learn(updates * recipe.settings.rollout, callback=sb3_baseline.SameDraws(recipe, 0))
    ours = train.learner(params, [recipe], 0)
    first = ours.parameters(0)
    for _ in range(updates):
        ours.learn(ours.collect())
        ours.updates += 1
    return (sb3_baseline.weights(model, recipe), ours.parameters(0), first), (
        env.episodes,
        ours.episodes,
    )


def apart(one, other):
    """The greatest difference of any parameter."""
    return max(np.abs(one[name] - other[name]).max() for name in one)


@pytest.mark.parametrize(("name", "target_kl"), [("SO-d1", 0.01), ("MO-S", 1e-5), ("MO-RM", None)])
def test_the_stacked_trainer_gives_stable_baselines3s_weights_after_the_same_updates(
    name, target_kl
):
    (recipe,) = (r for r in recipes(SMOKE, "education") if r.name == name)
    recipe = replace(recipe, settings=settings(target_kl=target_kl))
    (theirs, mine, first), (their_episodes, our_episodes) = trained_by_both(recipe, 3)
    assert apart(mine, theirs) < 5e-6
    assert (apart(mine, first) > 1e-2) == (target_kl != 1e-5)
    assert np.allclose(their_episodes, our_episodes) and len(our_episodes) > 10


def test_the_convolutional_network_is_stable_baselines3s_with_the_small_extractor():
    """Few steps: where a room's layers meet their kinks, rounding grows."""
    (recipe,) = (r for r in recipes(SMOKE, "minigrid") if r.name == "SO-d3")
    recipe = replace(
        recipe, settings=recipe.settings.model_copy(update={"rollout": 128, "epochs": 2})
    )
    (theirs, mine, first), (their_episodes, our_episodes) = trained_by_both(recipe, 6)
    assert apart(mine, theirs) < 5e-6 and apart(mine, first) > 1e-3
    assert np.allclose(their_episodes, our_episodes) and our_episodes


# The loss, and what is written out of it ---------------------------------------------------------


def rollout_of(method):
    """A trainer of two policies and a minibatch of its own, after weights have moved and coefficients differ."""
    values = 3 if method is MGDA else 1
    objective = Vector() if method is MGDA else Linear(WEIGHTS["three"])
    told = [
        settings(entropy=0.02, clip=0.01, learning_rate=3e-3, target_kl=None),
        settings(value=0.7, clip=0.005, target_kl=None),
    ]
    arms = [PPOVariant(name, 0, objective, s) for name, s in zip("ab", told, strict=True)]
    ppo = method(arms, Mlp(13, 3, values=values), EducationBatch(RULES, 16), "education")
    kept = []
    minibatch = ppo._minibatch
    ppo._minibatch = lambda batch, learning: (kept.append(batch), minibatch(batch, learning))[1]
    ppo.learn(ppo.collect())
    return ppo, kept[0]


@pytest.mark.parametrize("method", [PPO, MGDA])
def test_the_gradient_that_is_followed_is_autograds_of_the_readable_loss(method):
    ppo, batch = rollout_of(method)
    logits, value = ppo._forward(batch)
    ratio = (
        logits.log_softmax(-1).gather(-1, batch["action"].unsqueeze(-1))[..., 0] - batch["log_prob"]
    ).exp()
    assert (
        (ratio - 1).abs() > ppo.coefficient["clip"]
    ).float().mean() > 0.2  # or nothing were clipped
    alpha = 1.0
    if (
        method is MGDA
    ):  # the weights of least norm of each objective's own gradient, as autograd finds it
        rest = {"entropy": torch.zeros(2, 1), "value": torch.zeros(2, 1)}
        own = [
            loss(logits, value, batch, ppo.coefficient | rest, torch.eye(3)[i]).sum()
            for i in range(3)
        ]
        each = torch.stack(
            [ppo._slopes((part,), (torch.ones(()),), keep=True) for part in own], dim=1
        ).double()
        alpha = torch.from_numpy(
            np.stack([min_norm_weights(g) for g in (each @ each.transpose(1, 2)).numpy()])
        ).float()
        assert (alpha > 0.01).sum() > 2
    told = loss(logits, value, batch, ppo.coefficient, alpha).sum()
    expected = ppo._slopes((told,), (torch.ones(()),), keep=True)
    found = ppo._gradient(logits, value, batch)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert expected.abs().max() > 1e-2


def test_adam_is_torchs_and_leaves_alone_who_has_stopped():
    ppo, _ = rollout_of(PPO)
    ppo.moment_1.zero_(), ppo.moment_2.zero_(), ppo.adam_steps.zero_()
    rows = [torch.nn.Parameter(row.clone()) for row in ppo.theta]
    rates = [
        {"params": [row], "lr": variant.settings.learning_rate}
        for row, variant in zip(rows, ppo.arms, strict=True)
    ]
    torchs, draw = torch.optim.Adam(rates, eps=1e-5), torch.Generator().manual_seed(0)
    for learning in ([True, True], [True, False], [False, True], [True, True]):
        gradient = torch.randn(ppo.theta.shape, generator=draw) * 1e-3
        ppo._adam(gradient, torch.tensor(learning)[:, None])
        for row, slope, goes_on in zip(rows, gradient, learning, strict=True):
            row.grad = slope.clone() if goes_on else None
        torchs.step()
        torch.testing.assert_close(
            ppo.theta, torch.stack([row.detach() for row in rows]), atol=1e-6, rtol=0
        )


# Stacks, seeds, interruptions ---------------------------------------------------------------------


def test_seeds_that_are_trained_together_are_those_that_are_trained_alone():
    (stack_of,) = (s for name, s in train.stacks(SMOKE, "education").items() if name == "table-6")
    together, alone = train.learner(SMOKE, stack_of, 0, 1), train.learner(SMOKE, stack_of, 1)
    for ppo in (together, alone):
        ppo.learn(ppo.collect())
    for k in range(len(stack_of)):
        for name, value in alone.parameters(k).items():
            np.testing.assert_allclose(
                value, together.parameters(len(stack_of) + k)[name], atol=1e-6
            )
    curve = together.curve()
    assert curve[curve["seed"] == 1].reset_index(drop=True).equals(alone.curve())


@pytest.mark.parametrize("seeds", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_groups_of_seeds_hold_every_seed_once(seeds, domain):
    params = SMOKE.model_copy(update={"zoo": SMOKE.zoo.model_copy(update={"seeds": seeds})})
    for stack_of in train.stacks(params, domain).values():
        groups = train.group_seeds(params, stack_of)
        assert [seed for group in groups for seed in group] == list(range(seeds))
        assert max(map(len, groups)) == (1 if domain == "minigrid" else min(seeds, train.TOGETHER))


@pytest.mark.parametrize("method", [PPO, MGDA])
def test_resuming_from_a_checkpoint_equals_never_having_stopped(method, tmp_path):
    def make():
        if method is PPO:
            return stack()
        s = settings(rollout=256)
        return MGDA(
            [PPOVariant("m", 0, Vector(), s)],
            Mlp(13, 3, values=3),
            EducationBatch(RULES, 8),
            "education",
        )

    straight = make()
    straight.train()
    first, second = make(), make()
    for _ in range(2):
        first.learn(first.collect())
        first.updates += 1
    first.save(tmp_path / "checkpoint.safetensors")
    second.train(tmp_path / "checkpoint.safetensors")
    assert torch.equal(straight.theta, second.theta)
    assert straight.curve().equals(second.curve())


def test_sampling_follows_the_distribution_and_never_picks_an_impossible_action():
    probabilities = torch.tensor([[0.2, 0.0, 0.8]])
    draws = (torch.arange(1000) / 1000).double()
    actions = sample(probabilities.log().expand(1000, 3), draws)
    assert torch.bincount(actions, minlength=3).tolist() == [200, 0, 800]


def test_a_stack_of_unequal_shapes_is_refused():
    arms = [
        PPOVariant("one", 0, Linear(WEIGHTS["one"]), settings()),
        PPOVariant("two", 0, Linear(WEIGHTS["two"]), settings(epochs=3)),
    ]
    with pytest.raises(ValueError, match="equal shapes"):
        PPO(arms, Mlp(13, 3), EducationBatch(RULES, 16), "education")


def test_training_moves_an_aptitude_policy_towards_challenges():
    ppo = stack(("one",), timesteps=20_480, learning_rate=1e-3)
    ppo.train()
    curve = ppo.curve()
    early, late = curve[curve["steps"] <= 2_048], curve[curve["steps"] > 16_384]
    assert late["return_0"].mean() > early["return_0"].mean() + 1.0
