"""A world of lesson 02: its queries, its utility, and who is apart from those that methods are judged on."""

import numpy as np
import pytest

from lib.envs.education import draw_talents
from lib.experiment import seeds
from lib.orchestration import worlds
from lib.orchestration.baseline_models import GreedyModel, RandomModel
from lib.orchestration.worlds import USES, draw_weights
from lib.policy_zoo import recipes
from tests.orchestration import untrained
from tests.orchestration.small import make_params, make_world


def test_who_is_judged_is_nobody_that_anything_is_learned_from():
    random_streams = {}
    for seed in range(3):
        for domain in ("education", "minigrid"):
            params = make_params()
            episode_sets = worlds.make_episode_sets(
                params, params.orchestration, domain, "paper", seed, untrained.ConstantMenu(), 5
            )
            assert set(episode_sets) == set(USES)
            for use, episode_set in episode_sets.items():
                random_streams[domain, seed, use] = episode_set.random_streams
    everybody = np.concatenate(list(random_streams.values()))
    assert len(np.unique(everybody)) == len(everybody)


def test_more_test_students_are_the_same_ones_and_further_ones():
    few, many = (make_world("education", "paper", num_test=n).test for n in (3, 8))
    assert many.random_streams[:3].tolist() == few.random_streams.tolist()


@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_queries_weigh_alike_in_the_papers_world_and_differently_in_the_varied_one(domain):
    paper, varied = (make_world(domain, name, 40) for name in ("paper", "varied"))
    expected = [1 / 3, 1 / 3, 1 / 3] + [0.0] * (domain == "education")
    assert np.allclose(paper.test.weights, expected)
    assert set(paper.name_query_styles()) == {"paper"}
    assert len(np.unique(varied.test.weights, axis=0)) == 40
    styles = varied.name_query_styles()
    assert set(styles) == set(recipes.OBJECTIVES[domain])
    for weights, style in zip(varied.test.weights, styles, strict=True):
        assert weights.max() == weights[recipes.OBJECTIVES[domain].index(style)]


def test_weights_of_the_settings_are_those_of_the_papers_world():
    world = make_world("education", "paper", orchestration={"weights": [1, 1, 2]})
    assert np.allclose(world.test.weights, [0.25, 0.25, 0.5, 0.0])


def test_queries_weigh_objectives_differently_and_measures_not_at_all():
    weights = draw_weights(seeds.keys("queries", n=400), 3, 4)
    assert (weights >= 0).all() and (weights[:, 3] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(weights[:, :3].mean(axis=0), 1 / 3, atol=0.06)
    assert (weights.max(axis=1) > 0.5).mean() > 0.7  # most favour one objective


def test_in_the_world_of_speed_utility_is_the_share_of_the_horizon_that_is_saved():
    world = make_world("education", "speed")
    assert np.allclose(world.test.weights, [0, 0, 0, 1])
    for model, system in ((RandomModel(), ""), (GreedyModel(), "RO")):
        episodes = world.play(world.test, model, world.make_options(system)).episodes
        assert (episodes["reward"] == 1 - episodes["length"] / 20).all()
        assert episodes["length"].nunique() > 1


def test_in_other_worlds_utility_is_the_weighted_results():
    world = make_world("education", "varied")
    episodes = world.play(world.test, RandomModel(), world.make_options()).episodes
    results = episodes[["d1", "d2", "d3", "progress"]].to_numpy()
    assert np.allclose(episodes["reward"], (results * world.test.weights).sum(axis=1))


def test_a_card_tells_of_the_next_questions_and_of_the_end_of_a_room(monkeypatch):
    for domain, num_steps in (("education", 1), ("minigrid", 7)):
        world = make_world(domain, "varied")
        steps = []
        average = worlds.average_results_by_situation

        def note(episode_set, num, steps=steps, average=average):
            steps.append(num)
            return average(episode_set, num)

        monkeypatch.setattr(worlds, "average_results_by_situation", note)
        for _ in range(3):
            world.make_options("KO")
        assert steps == [num_steps]  # once for all
        monkeypatch.setattr(worlds, "average_results_by_situation", average)


def test_students_of_the_varied_world_have_an_ability_of_their_own_that_no_number_shows():
    random_streams = seeds.keys("abilities", n=400)
    spread = worlds.make_environments(make_params(), "varied").education.spread
    abilities = draw_talents(random_streams, spread) / 1000
    assert abs(abilities.mean()) < 0.05
    assert abilities.min() < -0.9 * spread and abilities.max() > 0.9 * spread
    assert not draw_talents(random_streams, make_params().education.spread).any()

    episode_set = make_world("education", "varied").test
    env = episode_set.make_env(len(episode_set.random_streams))
    env.seed_with(episode_set.random_streams)
    env.reset()
    state_features = episode_set.describer.read_state_features(env)
    assert len(np.unique(env.talent)) == len(episode_set.random_streams)
    assert set(state_features) == {"mastery", "failed questions open"}
