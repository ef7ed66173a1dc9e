"""Look-aheads: fair copies, whose random numbers say nothing of those that will fall."""

import numpy as np
import pytest

from lib.envs.education import CHALLENGE, EASY, FAILED
from lib.experiment import seeds
from lib.orchestration.baseline_models import ConstantModel, PlanModel, RoundRobinModel
from lib.orchestration.menus import TrainedMenu
from lib.orchestration.system_options import SystemOptions
from lib.policy_zoo.recipes import SINGLE
from tests.orchestration import zoo
from tests.orchestration.untrained import (
    DOMAINS,
    ConstantMenu,
    WatchedModel,
    make_episode_set,
    make_options,
    make_params,
)

PLAIN = SystemOptions()


def make_copy_keys(stream: np.uint64, step: int, num_copies: int) -> np.ndarray:
    """The random streams of the copies that an episode has at a step."""
    with np.errstate(over="ignore"):
        numbers = np.uint64(step * 4096) + np.arange(num_copies, dtype=np.uint64)
        return seeds.next_key((stream ^ np.uint64(0xC0B1)) + numbers)


@pytest.mark.parametrize(("num_steps", "num_copies"), [(1, 1), (7, 3), (40, 2)])
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_look_ahead_equals_copying_and_stepping_single_environments(
    domain, num_steps, num_copies
):
    """Policies of the tiny zoo, which draw their actions, from states early in an episode."""
    trained = zoo.policies(domain)
    num_ended = 0
    for seed in range(5):
        stream = seeds.key(zoo.STREAM[domain], seed=seed)
        episode_set = make_episode_set(
            domain, 1, num_copies, zoo.SMOKE, TrainedMenu(trained), np.array([stream])
        )
        env = episode_set.make_env(1)
        env.seed_with(episode_set.random_streams)
        observation = env.reset()
        actions = [0, 1, 2, 1, 0][:seed]
        for action in actions:
            observation = env.advance(np.array([action]), restart=False).observation
        single, single_observation = zoo.single(domain, seed, actions)
        np.testing.assert_array_equal(observation[0], single_observation)

        plans = np.repeat(np.arange(len(SINGLE))[:, None], num_steps, axis=1)
        ahead = episode_set.look_ahead(env, observation, np.array([0]), len(actions), plans)
        for number, name in enumerate(SINGLE):
            keys = make_copy_keys(stream, len(actions), num_copies)
            rollouts = [
                zoo.rollout(single, single_observation, trained[name], num_steps, key)
                for key in keys
            ]
            if domain == "education":
                expected = [rewards.mean(axis=0) for rewards, _ in rollouts]
            else:  # lava is seen before the end, where only the last reward tells of it
                expected = [rewards.sum(axis=0) for rewards, _ in rollouts]
                on_lava = [len(r) < num_steps and r[-1, 0] == r[-1, 1] == 0 for r, _ in rollouts]
                for rewards, is_on_lava in zip(expected, on_lava, strict=True):
                    rewards[1] = not is_on_lava
            results = ahead.results[0, number, :3]
            np.testing.assert_allclose(results, np.mean(expected, axis=0), atol=1e-12)
            taken = ahead.actions[:, 0, number]
            assert taken[taken >= 0].tolist() == rollouts[0][1]
            num_ended += sum(len(taken) < num_steps for _, taken in rollouts)
    assert num_steps < 40 or num_ended > 0  # copies that end count no further


def test_a_plan_of_two_policies_hands_over_and_copies_that_ended_stay_ended():
    """With a goal of .5 most copies end within the plan; what they would do afterwards counts nothing."""
    params = make_params(education={"goal": 0.5})
    episode_set = make_episode_set("education", num_episodes=4, params=params)
    env = episode_set.make_env(4)
    env.seed_with(episode_set.random_streams)
    observation = env.reset()
    plans = np.array([[1, 1, 0, 0, 2, 2]])
    ahead = episode_set.look_ahead(env, observation, np.arange(4), 0, plans, with_measurements=True)
    assert (~ahead.alive[-1]).any() and ahead.alive[0].all()
    assert (np.diff(ahead.alive.astype(int), axis=0) <= 0).all()  # nobody comes back
    actions = episode_set.menu.actions[plans[0]]
    for row in range(4):
        num_steps = ahead.alive[:, row, 0, 0].sum()
        assert ahead.actions[:num_steps, row, 0].tolist() == actions[:num_steps].tolist()
        assert (ahead.actions[num_steps:, row, 0] == -1).all()
        # The progress per step is what a copy won on its way, divided by its own number of steps.
        progress = []
        for copy in range(episode_set.num_copies):
            length = ahead.alive[:, row, 0, copy].sum()
            last = ahead.measurements[length - 1]["mastery_after"][row, 0, copy]
            progress.append((last - 0.4) / length)
        assert ahead.results[row, 0, 3] == pytest.approx(np.mean(progress))


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_look_ahead_leaves_the_episodes_as_they_are(domain):
    episode_set = make_episode_set(domain)
    env = episode_set.make_env(len(episode_set.random_streams))
    env.seed_with(episode_set.random_streams)
    observation = env.reset()
    before = env.state()
    seen = observation.copy()
    episode_set.look_ahead(
        env, observation, np.arange(len(episode_set.random_streams)), 0, np.array([[0, 1, 2]])
    )
    for name, values in env.state().items():
        np.testing.assert_array_equal(values, before[name])
    np.testing.assert_array_equal(observation, seen)


def watch_keys(episode_set) -> list[np.ndarray]:
    """The keys of the copies of each look-ahead of one step: of rows, plans and copies, in this order."""
    keys = []
    act = episode_set.menu.act

    def note_keys(env, policies, observation, draws):
        if env is episode_set.simulator.copies:
            keys.append(env.key.copy())
        return act(env, policies, observation, draws)

    episode_set.menu.act = note_keys
    episode_set.play(RoundRobinModel(), make_options("education", "TO"))
    return keys


def test_copies_have_random_numbers_of_their_own_and_plans_share_them():
    episode_set = make_episode_set("education", num_episodes=6, num_copies=5)
    random_streams = episode_set.random_streams
    of_copies = []
    for keys in watch_keys(episode_set):
        by_plan = keys.reshape(-1, len(SINGLE), 5)
        assert (by_plan == by_plan[:, :1]).all()  # the same numbers for every policy
        of_copies.append(by_plan[:, 0].ravel())
    flat = np.concatenate(of_copies)
    assert len(np.unique(flat)) == len(flat)  # another one for every episode, step and copy
    assert not np.isin(flat, random_streams).any()
    # Neither are they the keys from which an episode draws actions and choices.
    assert not np.isin(flat, seeds.next_key(random_streams ^ np.uint64(0xAC7))).any()


@pytest.mark.parametrize("action", [FAILED, EASY, CHALLENGE])
def test_what_a_copy_shows_says_nothing_of_the_numbers_that_will_fall(action):
    """One copy, one step: with the episode's numbers it would foretell the step to the letter.

    What a copy shows and what comes both depend on the state; beyond what the state lets expect they are unrelated.
    """
    params = make_params(education={"horizon": 1})
    menu = ConstantMenu((action,) * len(SINGLE))
    shown = {}
    for num_copies in (1, 200):
        model = WatchedModel()
        episode_set = make_episode_set("education", 500, num_copies, params, menu)
        played = episode_set.play(model, make_options("education", "TO"))
        performance = [context.tool_results[0].results[2] for context in model.contexts]
        shown[num_copies] = np.array(performance)
    expected = shown[200]
    came = played.steps["result_2"].to_numpy()
    assert abs(np.corrcoef(shown[1] - expected, came - expected)[0, 1]) < 0.15
    assert expected.mean() == pytest.approx(
        came.mean(), abs=0.05
    )  # and they are about the same step


def test_lava_can_be_seen_before_the_end_of_the_episode():
    """No reward is paid for a step that avoids lava; a look-ahead counts the copies that did."""
    episode_set = make_episode_set("minigrid", num_episodes=30, num_copies=6)
    model = WatchedModel()
    episode_set.play(model, make_options("minigrid", "RO", rollout_steps=4))
    shares = [result.results[1] for context in model.contexts for result in context.tool_results]
    assert max(shares) == 1.0 and min(shares) < 1.0


def test_planning_ahead_is_worth_something_where_a_handover_pays():
    """Failed questions exist only after hard ones: a plan that hands over beats every single policy."""
    params = make_params(education={"horizon": 50})
    weights = np.array([0.0, 0.0, 0.0, 1.0])  # raise mastery
    episode_set = make_episode_set("education", num_episodes=20, params=params, weights=weights)
    lengths = {
        name: episode_set.play(ConstantModel(name), PLAIN).episodes["length"].mean()
        for name in SINGLE
    }
    planned = episode_set.play(PlanModel(6, [2], len(SINGLE)), PLAIN).episodes["length"].mean()
    assert planned < 0.7 * min(lengths.values())
