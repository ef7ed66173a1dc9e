"""CoRL's synthetic environment: its probabilities, what follows from an observation, and what is refused."""

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from lib.budgeted_routing.synthetic_environment import (
    KNOBS,
    RoutingEnvironments,
    draw_uniforms,
    make_environments,
)
from lib.config import ParamsError
from tests.budgeted_routing.synthetic import (
    CENTRAL,
    make_settings,
    make_small_environment,
    make_test_queries,
)


def test_a_reply_is_as_often_correct_and_as_often_looks_so_as_the_settings_say():
    joint = make_small_environment(reply_signal_accuracy=0.8).compute_reply_probabilities()
    assert torch.allclose(joint.sum((3, 4)), torch.ones(1, 2, 3))
    cheap_expert = joint[0, 0, 1]  # accuracy .6
    expected = torch.tensor([[0.4 * 0.8, 0.4 * 0.2], [0.6 * 0.2, 0.6 * 0.8]])
    torch.testing.assert_close(cheap_expert, expected)
    own_answer = joint[0, 0, 0]  # accuracy .3, without a signal
    torch.testing.assert_close(own_answer, torch.tensor([[0.35, 0.35], [0.15, 0.15]]))


def test_beliefs_follow_from_the_density_of_observations():
    settings = make_settings()
    environments = make_environments(settings, [CENTRAL | {"noise": 0.7}])
    kinds, observations = make_test_queries(environments, settings)

    densities = []
    for unit_vector in np.eye(settings.kinds):
        density = scipy_stats.norm.pdf(observations.numpy(), unit_vector, 0.7)
        densities.append(density.prod(-1))
    density_by_kind = np.stack(densities, -1)  # (G, n, K)
    expected = density_by_kind / density_by_kind.sum(-1, keepdims=True)
    beliefs = environments.compute_beliefs(observations)
    np.testing.assert_allclose(beliefs.numpy(), expected, atol=1e-5)

    noise = observations - torch.nn.functional.one_hot(kinds, settings.kinds)
    assert noise.std().item() == pytest.approx(0.7, abs=0.06)
    assert abs(noise.mean().item()) < 0.1


def test_at_full_complementarity_every_specialist_is_best_on_its_kind_and_at_none_on_no_kind():
    settings = make_settings(accuracy_noise=0.0)
    specialist = settings.specialist
    advantage = settings.specialist_advantage
    alike, apart = ({**CENTRAL, "complementarity": value} for value in (0.0, 1.0))
    environments = make_environments(settings, [alike, apart])
    first_specialist = environments.accuracy[[0, settings.seeds], :, 1]  # (2, K)
    expected = torch.full_like(first_specialist, specialist)
    expected[1] -= advantage
    expected[1, 0] = specialist + advantage
    torch.testing.assert_close(first_specialist, expected)


def test_a_seed_has_the_same_accuracies_at_all_prices_and_all_noise():
    settings = make_settings()
    grid_points = [CENTRAL, CENTRAL | {"spread": 0.0, "noise": 1.0}]
    environments = make_environments(settings, grid_points)
    central, other = environments.accuracy.split(settings.seeds)
    assert torch.equal(central, other)
    assert not torch.allclose(central[0], central[1])
    calls = environments.price[settings.seeds :, 1:]
    assert torch.equal(calls, torch.ones_like(calls))  # spread 0: equal prices
    assert environments.noise.flatten().tolist() == pytest.approx(
        [CENTRAL["noise"]] * settings.seeds + [1.0] * settings.seeds
    )


def test_more_seeds_change_no_random_number_of_the_others():
    few = draw_uniforms(make_settings(seeds=2), "test", 5)
    many = draw_uniforms(make_settings(seeds=4), "test", 5)
    assert torch.equal(few, many[:2])
    assert not torch.equal(few, draw_uniforms(make_settings(seeds=2), "test", 5, batch_number=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reply_signal_accuracy": 0.4}, "reply_signal_accuracy must lie in .* got 0.4"),
        ({"accuracy": torch.full((1, 2, 3), 1.5)}, "accuracies are probabilities .* got 1.5"),
        ({"price": torch.full((1, 3), -2.0)}, "prices must not be negative, got -2"),
        ({"noise": torch.zeros(1, 1, 1)}, "noise must be above 0, got 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_no_environment_is_refused_with_the_value(change, message):
    with pytest.raises(ValueError, match=message):
        RoutingEnvironments(**(vars(make_small_environment()) | change))


@pytest.mark.parametrize(
    ("central", "message"),
    [
        (CENTRAL | {"noise": 0.0}, "noise must be above 0"),
        (CENTRAL | {"complementarity": 1.2}, "complementarity must be at most 1"),
        ({"noise": 0.3, "spread": 1.0}, "complementarity"),
    ],
    ids=["noise", "complementarity", "missing"],
)
def test_a_grid_point_out_of_range_is_refused_by_the_name_of_its_knob(central, message):
    with pytest.raises(ParamsError, match=message):
        make_settings(central=central)


def test_the_settings_name_all_knobs():
    assert set(CENTRAL) == set(KNOBS)
