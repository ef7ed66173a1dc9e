"""The stacked trainer against stable-baselines3, against itself alone, and across an interruption."""

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO as StockPPO

from lib.envs.batch import LinearVecReward
from lib.envs.education import EducationRules
from lib.envs.education_batch import EducationBatch
from lib.envs.grid_batch import GridBatch
from lib.params import load
from lib.zoo import train
from lib.zoo.networks import Cnn, Mlp
from lib.zoo.objectives import Linear, Vector
from lib.zoo.ppo import MGDA, PPO, Arm, Rollout, sample

RULES = EducationRules((74, 67, 72, 81, 17, 0), steps_per_level=2, warmup="measure")
WEIGHTS = {"one": (1.0, 0.0, 0.0), "two": (0.0, 1.0, 0.0), "three": (1 / 3, 1 / 3, 1 / 3)}
SMOKE = load("smoke")
torch.set_num_threads(1)


def settings(**change):
    base = load("paper").zoo.education.single
    return base.model_copy(update={"timesteps": 1024, **change})


def stack(names=("one", "two", "three"), seed=0, **change):
    arms = [Arm(name, seed, Linear(WEIGHTS[name]), settings(**change)) for name in names]
    return PPO(arms, Mlp(13, 3), EducationBatch(RULES, 8 * len(arms)), "education")


def stock(venv, policy, s, policy_kwargs=None):
    return StockPPO(
        policy, venv, learning_rate=s.learning_rate, n_steps=s.rollout // s.num_envs, batch_size=s.minibatch,
        n_epochs=s.epochs, gamma=s.gamma, gae_lambda=s.gae_lambda, clip_range=s.clip, ent_coef=s.entropy,
        vf_coef=s.value, max_grad_norm=s.max_grad_norm, target_kl=s.target_kl, seed=1, device="cpu",
        policy_kwargs=policy_kwargs,
    )  # fmt: skip


def transplant(model, ours, prepare):
    """Stock's collected rollout, as one of ours."""
    buffer = model.rollout_buffer
    first = lambda x: torch.from_numpy(np.asarray(x)).unsqueeze(0)  # noqa: E731
    starts = np.concatenate([buffer.episode_starts[1:], model._last_episode_starts[None]])
    with torch.no_grad():
        last = model.policy.predict_values(model.policy.obs_to_tensor(model._last_obs)[0])
    return Rollout(
        inputs=prepare(buffer.observations), action=first(buffer.actions[..., 0]).long(),
        log_prob=first(buffer.log_probs), value=first(buffer.values).unsqueeze(-1),
        reward=first(buffer.rewards).unsqueeze(-1), done=first(starts.astype(bool)),
        last_value=last.reshape(1, -1, 1),
    )  # fmt: skip


def learn_both(model, ours, rollout, monkeypatch):
    """The same updates by both, with the same minibatches."""
    order = ours._rng(ours.arms[0], "minibatches")
    monkeypatch.setattr(np.random, "permutation", lambda n: order.permutation(n))
    model.train()
    ours.learn(rollout)
    return model.policy.state_dict(), ours.parameters(0)


@pytest.mark.parametrize("target_kl", [0.01, 1e-5, None])
def test_the_stacked_trainer_gives_stable_baselines3s_weights_after_the_same_updates(target_kl, monkeypatch):
    s = settings(target_kl=target_kl)
    model = stock(LinearVecReward(EducationBatch(RULES, 8, seed=3), WEIGHTS["three"]), "MlpPolicy", s)
    ours = PPO([Arm("three", 0, Linear(WEIGHTS["three"]), s)], Mlp(13, 3), EducationBatch(RULES, 8), "education")
    start = {name: value.numpy().copy() for name, value in model.policy.state_dict().items()}
    ours.load(0, start)
    _, callback = model._setup_learn(256)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 32)
    rollout = transplant(model, ours, lambda o: torch.from_numpy(o.swapaxes(0, 0)).float().unsqueeze(0))
    advantage, _ = ours.advantages(rollout)
    np.testing.assert_allclose(advantage[0, :, :, 0], model.rollout_buffer.advantages, atol=1e-5)
    theirs, mine = learn_both(model, ours, rollout, monkeypatch)
    for name, value in mine.items():
        np.testing.assert_allclose(value, theirs[name].numpy(), atol=2e-5, err_msg=name)
    moved = max(np.abs(mine[name] - start[name]).max() for name in mine)
    assert (moved > 1e-3) == (target_kl != 1e-5)


def test_the_convolutional_network_is_stable_baselines3s_with_the_small_extractor(monkeypatch):
    from tests.zoo.extractor import SmallExtractor

    s = load("paper").zoo.minigrid.navigate.model_copy(update={"rollout": 128, "num_envs": 4, "epochs": 2})
    venv = LinearVecReward(GridBatch("composite", 4, seed=2), (1.0, 0.0, 2.0))
    kwargs = {"features_extractor_class": SmallExtractor, "normalize_images": False}
    model = stock(venv, "CnnPolicy", s, kwargs)
    ours = PPO([Arm("x", 0, Linear((1.0, 0.0, 2.0)), s)], Cnn(6), GridBatch("composite", 4), "minigrid")
    ours.load(0, {name: value.numpy().copy() for name, value in model.policy.state_dict().items()})
    _, callback = model._setup_learn(128)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 32)

    def prepare(channels_first):
        t, e = channels_first.shape[:2]
        pictures = channels_first.transpose(0, 1, 3, 4, 2).reshape(1, t * e, 7, 7, 3)
        return ours.network.prepare(pictures).view(1, t, e, 36, 12)

    theirs, mine = learn_both(model, ours, transplant(model, ours, prepare), monkeypatch)
    for name, value in mine.items():
        np.testing.assert_allclose(value, theirs[name].numpy(), atol=2e-5, err_msg=name)


def test_a_policy_trained_in_a_stack_is_the_policy_trained_alone():
    together, alone = stack(timesteps=512), stack(("two",), timesteps=512)
    together.train()
    alone.train()
    for name, value in alone.parameters(0).items():
        np.testing.assert_allclose(value, together.parameters(1)[name], atol=1e-6)


def test_seeds_that_are_trained_together_are_those_that_are_trained_alone():
    (stack_of,) = (s for name, s in train.stacks(SMOKE, "education").items() if name == "table-6")
    together, alone = train.learner(SMOKE, stack_of, 0, 1), train.learner(SMOKE, stack_of, 1)
    for ppo in (together, alone):
        ppo.learn(ppo.collect())
    for k in range(len(stack_of)):
        for name, value in alone.parameters(k).items():
            np.testing.assert_allclose(value, together.parameters(len(stack_of) + k)[name], atol=1e-6)
    curve = together.curve()
    assert curve[curve["seed"] == 1].reset_index(drop=True).equals(alone.curve())


@pytest.mark.parametrize("seeds", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_groups_of_seeds_hold_every_seed_once(seeds, domain):
    params = SMOKE.model_copy(update={"zoo": SMOKE.zoo.model_copy(update={"seeds": seeds})})
    for stack_of in train.stacks(params, domain).values():
        groups = train.groups(params, stack_of)
        assert [seed for group in groups for seed in group] == list(range(seeds))
        assert max(map(len, groups)) == (1 if domain == "minigrid" else min(seeds, train.TOGETHER))


@pytest.mark.parametrize("method", [PPO, MGDA])
def test_resuming_from_a_checkpoint_equals_never_having_stopped(method, tmp_path):
    def make():
        if method is PPO:
            return stack()
        s = settings(rollout=256)
        return MGDA([Arm("m", 0, Vector(), s)], Mlp(13, 3, values=3), EducationBatch(RULES, 8), "education")

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


def test_the_same_seed_gives_the_same_policy_and_another_seed_another():
    a, b, c = stack(("one",)), stack(("one",)), stack(("one",), seed=1)
    for ppo in (a, b, c):
        ppo.train()
    assert torch.equal(a.theta, b.theta)
    assert not torch.equal(a.theta, c.theta)


def test_sampling_follows_the_distribution_and_never_picks_an_impossible_action():
    probabilities = torch.tensor([[0.2, 0.0, 0.8]])
    draws = (torch.arange(1000) / 1000).double()
    actions = sample(probabilities.log().expand(1000, 3), draws)
    assert torch.bincount(actions, minlength=3).tolist() == [200, 0, 800]


def test_a_stack_of_unequal_shapes_is_refused():
    arms = [
        Arm("one", 0, Linear(WEIGHTS["one"]), settings()),
        Arm("two", 0, Linear(WEIGHTS["two"]), settings(epochs=3)),
    ]
    with pytest.raises(ValueError, match="equal shapes"):
        PPO(arms, Mlp(13, 3), EducationBatch(RULES, 16), "education")


def test_training_moves_an_aptitude_policy_towards_challenges():
    ppo = stack(("one",), timesteps=20_480, learning_rate=1e-3)
    ppo.train()
    curve = ppo.curve()
    early, late = curve[curve["steps"] <= 2_048], curve[curve["steps"] > 16_384]
    assert late["return_0"].mean() > early["return_0"].mean() + 1.0
