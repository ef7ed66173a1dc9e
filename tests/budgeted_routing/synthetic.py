"""What the tests of CoRL's synthetic environment share: small settings, an environment by hand, and strategies."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib import config
from lib.budgeted_routing.synthetic_controllers import BatchedControllers
from lib.budgeted_routing.synthetic_environment import (
    RoutingEnvironments,
    draw_uniforms,
    make_environments,
    make_queries,
)
from lib.budgeted_routing.synthetic_strategies import Strategy
from lib.budgeted_routing.synthetic_training import (
    CORL,
    SyntheticEpisodes,
    SyntheticRoutingVariant,
    sample_episodes,
)
from lib.config import RoutingSyntheticSettings
from lib.experiment import seeds
from tests.budgeted_routing.small_systems import SMOKE

CENTRAL = SMOKE.synthetic.central
# Of `make_small_environment`, whose two kinds do not matter.
BELIEFS = torch.tensor([[[0.5, 0.5]]])


def make_settings(**changes: Any) -> RoutingSyntheticSettings:
    """The settings at laptop with few controllers and queries, and some changes."""
    values = config.load("laptop").routing.synthetic.model_dump()
    values |= {"seeds": 3, "queries": 40}
    return config.validate_settings(values | changes, RoutingSyntheticSettings, "a test")


def make_small_environment(reply_signal_accuracy: float = 0.8) -> RoutingEnvironments:
    """One environment with two experts: the controller is right with .3, the cheap one with .6, the other with .9."""
    accuracy = torch.tensor([0.3, 0.6, 0.9])
    return RoutingEnvironments(
        accuracy=accuracy.expand(1, 2, 3),  # on both kinds of queries
        price=torch.tensor([[0.0, 1.0, 4.0]]),
        budget=torch.tensor([1.0, 5.0, 100.0]),
        noise=torch.ones(1, 1, 1),
        reply_signal_accuracy=reply_signal_accuracy,
    )


def make_test_queries(
    environments: RoutingEnvironments, settings: RoutingSyntheticSettings, num_queries: int = 40
) -> tuple[Tensor, Tensor]:
    """Kinds (G, n) and observations (G, n, K) of queries."""
    num_grid_points = len(environments.accuracy) // settings.seeds
    uniforms = draw_uniforms(settings, "test", num_queries)
    return make_queries(environments, uniforms.repeat(num_grid_points, 1, 1))


def draw_strategy(environments: RoutingEnvironments, num_queries: int, seed: int) -> Strategy:
    """A strategy whose probabilities are random, different for every query."""
    num_environments, num_options = environments.price.shape
    shape = (num_environments, len(environments.budget), num_queries)
    rng = seeds.rng("test", "synthetic", "strategy", seed=seed)
    concentration = np.full(num_options, 0.3)
    first = torch.tensor(rng.dirichlet(concentration, shape), dtype=torch.float32)
    second = torch.tensor(
        rng.dirichlet(concentration, (*shape, num_options, 2)), dtype=torch.float32
    )
    second[:, :, :, 0] = torch.eye(num_options)[0]  # after its own answer it calls nobody
    return Strategy(first, second)


def make_random_controllers(
    settings: RoutingSyntheticSettings, seed: int = 0
) -> BatchedControllers:
    """Controllers that are not trained, with random weights of the head that chooses."""
    controllers = BatchedControllers(settings, 1)
    with torch.no_grad():
        controllers.actor.normal_(generator=seeds.torch_generator("test", "synthetic", seed=seed))
    return controllers


def sample_test_episodes(
    settings: RoutingSyntheticSettings, variant: SyntheticRoutingVariant = CORL, rows: int = 600
) -> tuple[RoutingEnvironments, SyntheticEpisodes]:
    """Episodes of `make_random_controllers` at the central grid point."""
    environments = make_environments(settings, [CENTRAL])
    controllers = make_random_controllers(settings)
    uniforms = draw_uniforms(settings, "rows", rows)
    return environments, sample_episodes(environments, controllers, variant, uniforms)
