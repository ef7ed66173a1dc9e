"""All registered environments against the checkers of the libraries that they are made for."""

import gymnasium as gym
import mo_gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.passive_env_checker import data_shares_objects
from gymnasium.wrappers import TransformReward
from mo_gymnasium import wrappers
from stable_baselines3.common.env_checker import check_env as check_for_baselines

from lib.envs.grid import IDS

EVERY = ["orchestration/Education-v0", *IDS.values()]
WEIGHT = np.array([0.5, 0.3, 0.2])
# Both checkers know scalar rewards only; images here are smaller than the usual networks want.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*reward returned by `step.*",
    "ignore:.*different from the unwrapped.*",
    "ignore:.*minimal resolution.*",
)


def test_these_are_all_that_are_registered():
    assert sorted(name for name in gym.registry if name.startswith("orchestration/")) == sorted(
        EVERY
    )


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.filterwarnings("error")
def test_gymnasiums_checker_passes_the_environment_and_its_scalar_view(name):
    check_env(gym.make(name).unwrapped)
    check_env(TransformReward(mo_gymnasium.make(name), lambda reward: float(WEIGHT @ reward)))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.filterwarnings("error")
def test_stable_baselines_checker_passes_the_scalar_view(name):
    check_for_baselines(wrappers.LinearReward(gym.make(name), weight=WEIGHT))


@pytest.mark.parametrize("name", EVERY)
def test_no_two_steps_share_what_they_return_and_a_seed_repeats_them(name):
    """MO-Gymnasium's LinearReward adds one weight array to all infos; what lies below it is new at every step."""

    def returned(env: gym.Env) -> list:
        env.action_space.seed(0)
        out = [env.reset(seed=0)]
        for _ in range(30):
            observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
            out.append((observation, info | {"vector_reward": reward}))
            out += [env.reset()] if terminated or truncated else []
        return out

    first, again = returned(gym.make(name)), returned(gym.make(name))
    assert data_equivalence(tuple(first), tuple(again))
    for i, one in enumerate(first):
        assert not any(data_shares_objects(one, other) for other in first[:i]), i


@pytest.mark.parametrize("name", EVERY)
def test_mo_gymnasiums_wrappers_see_an_episode(name):
    env = wrappers.MORecordEpisodeStatistics(
        wrappers.MOClipReward(
            wrappers.MONormalizeReward(mo_gymnasium.make(name), idx=0), idx=0, min_r=-1, max_r=1
        )
    )
    env.reset(seed=0)
    env.action_space.seed(0)
    total, ended = np.zeros(3), False
    while not ended:
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert abs(reward[0]) <= 1
        total, ended = total + reward, terminated or truncated
    np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-5)
