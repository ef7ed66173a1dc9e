"""CoRL in the synthetic environment, as rows of the results table.

    rows = synthetic_benchmark.run(settings.routing)

Every variant of training is evaluated exactly on queries that it was not trained on, beside the baselines and the
optimum. At the central grid point all variants are trained; at all other grid points of the map, which vary how far
experts, prices and observations differ, CoRL alone.

The environment is in `synthetic_environment`, what strategies earn in `synthetic_strategies`, the controllers and their
training in `synthetic_controllers` and `synthetic_training`. `synthetic_job.run` computes the rows once and keeps them.

Letters of shapes: G environments and controllers, B budgets, n queries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from torch import Tensor

from lib.budgeted_routing import synthetic_strategies
from lib.budgeted_routing.synthetic_controllers import BatchedControllers
from lib.budgeted_routing.synthetic_environment import (
    BUDGETS,
    KNOBS,
    draw_uniforms,
    make_environments,
    make_queries,
)
from lib.budgeted_routing.synthetic_training import (
    CORL,
    FIXED_BUDGET_VARIANTS,
    VARIANTS,
    SyntheticRoutingVariant,
    train_controllers,
)
from lib.config import RoutingSettings, RoutingSyntheticSettings
from lib.experiment import results_table

VERSION = 2  # of the environment, its controllers, their training and evaluation
SYSTEM = "corl_synthetic"  # name of the results table

INITIAL_POLICY = "start"  # the controller before training
KNOWN_KIND = "known kind"  # the best strategy that knows the kind of every query
# Roles of the baselines in the results table; the others are experts.
_ROLES = {
    synthetic_strategies.CONTROLLER_ALONE: "constant",
    synthetic_strategies.BEST_CONSTANT: "constant",
    synthetic_strategies.BEST_WITHOUT_QUERY: "constant",
    synthetic_strategies.OPTIMUM: "oracle",
}
_GRID_POINTS_IN_A_STACK = 6
_NUM_EVALUATIONS = 10  # during training, at numbers of updates that grow geometrically


def run(
    settings: RoutingSettings, progress: Callable[[float], None] = lambda fraction: None
) -> pd.DataFrame:
    """Trains and evaluates everything that the lessons show of the synthetic environment.

    A variant of training is CoRL, or CoRL with one part changed. A grid point sets how far experts, prices and
    observations of the environments differ.

    Args:
        settings: `synthetic` (environments, training, grid points) and `learn` (constants of PPO) are read.
        progress: Called after each training with the fraction that is finished.

    Returns:
        Rows of `train_and_evaluate`: of all variants at the central grid point, those of CoRL and of fixed budgets
        during training too, then of CoRL at all other grid points of the map.
    """
    synthetic = settings.synthetic
    evaluated_updates = _choose_evaluated_updates(synthetic.updates)

    tasks = []
    for variant in VARIANTS:
        has_curve = variant is CORL or variant in FIXED_BUDGET_VARIANTS
        updates = evaluated_updates if has_curve else []
        tasks.append(partial(train_and_evaluate, settings, [synthetic.central], variant, updates))

    map_points = list_map_points(synthetic)
    for start in range(0, len(map_points), _GRID_POINTS_IN_A_STACK):
        grid_points = map_points[start : start + _GRID_POINTS_IN_A_STACK]
        tasks.append(partial(train_and_evaluate, settings, grid_points))

    # Threads are enough: torch releases the interpreter's lock while it computes.
    tables = []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for table in threads.map(lambda task: task(), tasks):
            tables.append(table)
            progress(len(tables) / len(tasks))
    return pd.concat(tables, ignore_index=True)


def list_map_points(settings: RoutingSyntheticSettings) -> list[dict[str, float]]:
    """Lists the grid points of the map: all combinations of the values of KNOBS but the central one.

    At the central point all variants are trained, at the others CoRL alone.

    Args:
        settings: `map` lists the values of complementarity, spread and noise, `central` has one of each.

    Returns:
        Dictionaries with a value of complementarity, spread and noise.
    """
    map_points = []
    for values in product(*(settings.map[knob] for knob in KNOBS)):
        grid_point = dict(zip(KNOBS, values, strict=True))
        if grid_point != settings.central:
            map_points.append(grid_point)
    return map_points


def _choose_evaluated_updates(num_updates: int) -> list[int]:
    """Chooses the updates after which a training is evaluated: close together at first and wide apart later.

    Args:
        num_updates: Number of updates in a training.

    Returns:
        Numbers of updates in order, from 0 (before training) to `num_updates`; about ten.
    """
    spaced = np.geomspace(1, num_updates, _NUM_EVALUATIONS).round().astype(int)
    return sorted({0, *spaced.tolist()})


def train_and_evaluate(
    settings: RoutingSettings,
    grid_points: Sequence[Mapping[str, float]],
    variant: SyntheticRoutingVariant = CORL,
    evaluated_updates: Sequence[int] = (),
) -> pd.DataFrame:
    """Trains a controller of every seed at some grid points, and evaluates it exactly on queries of the test.

    A controller is a small network that answers a query or calls an expert, under a budget. With the variant CoRL come
    rows of the initial policy (the controller before training) and of all baselines, on the same queries.

    Args:
        settings: `synthetic` (environments, training) and `learn` (constants of PPO) are read.
        grid_points: Values of complementarity, spread and noise: how far experts, prices and observations differ.
        variant: What is trained: CoRL, or CoRL with one part changed.
        evaluated_updates: Numbers of updates after which the greedy strategy is evaluated, beside the end.

    Returns:
        A row for every method, grid point, seed and budget, with the columns of `make_rows`. temperature: 0 for the
        greedy strategy, 1 for the sampled one; step: number of updates so far, or AFTER at the end of training.
    """
    # Environments, and the queries of the test with what is observed of them.
    synthetic = settings.synthetic
    environments = make_environments(synthetic, grid_points)
    uniforms = draw_uniforms(synthetic, "queries", synthetic.queries)
    _, observations = make_queries(environments, uniforms.repeat(len(grid_points), 1, 1))
    beliefs = environments.compute_beliefs(observations)  # (environments, queries, kinds)
    evaluate = partial(synthetic_strategies.evaluate_strategy, environments, beliefs)
    add_labels = partial(make_rows, synthetic, grid_points)
    tables = []

    if variant is CORL:
        # Before training the strategy is the same for all queries, so that one is enough.
        initial = BatchedControllers(synthetic, len(grid_points))
        initial_strategy = initial.compute_strategy(observations[:, :1])
        labels = RowLabels(INITIAL_POLICY, "start", temperature=1.0)
        tables.append(add_labels(evaluate(initial_strategy), labels))

        baselines = synthetic_strategies.make_baselines(environments, beliefs)
        for name, strategy in baselines.items():
            labels = RowLabels(name, _ROLES.get(name, "expert"))
            tables.append(add_labels(evaluate(strategy), labels))

        means = synthetic_strategies.evaluate_with_known_kind(environments, beliefs)
        tables.append(add_labels(means, RowLabels(KNOWN_KIND, "oracle")))

    def evaluate_during_training(update: int, controllers: BatchedControllers) -> None:
        """Adds rows of the greedy strategy after some updates."""
        if update in evaluated_updates:
            strategy = controllers.compute_strategy(observations, variant.budget_in_prompt)
            labels = RowLabels(variant.name, "paper", step=update)
            tables.append(add_labels(evaluate(strategy.make_greedy()), labels))

    controllers = train_controllers(
        environments, synthetic, settings.learn, variant, evaluate_during_training
    )

    # At the end, greedy and sampled.
    sampled = controllers.compute_strategy(observations, variant.budget_in_prompt)
    greedy = sampled.make_greedy()
    tables.append(add_labels(evaluate(greedy), RowLabels(variant.name, "paper")))
    tables.append(add_labels(evaluate(sampled), RowLabels(variant.name, "paper", temperature=1.0)))
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True)
class RowLabels:
    """What all rows of one evaluation have in common; the fields are columns of the results table.

    Attributes:
        method: Name of a variant of training or of a baseline.
        role: What kind of method it is, one of `results_table.ROLES`.
        temperature: 0 for the likeliest options, 1 for sampled ones.
        step: Number of updates so far, or AFTER at the end of training.
    """

    method: str
    role: str
    temperature: float = 0.0
    step: int = results_table.AFTER


def make_rows(
    settings: RoutingSyntheticSettings,
    grid_points: Sequence[Mapping[str, float]],
    values: Mapping[str, Tensor],
    labels: RowLabels,
) -> pd.DataFrame:
    """Makes rows of the results table from one evaluation: means over the queries.

    A seed has an environment of its own, and only seeds are independent; so the environment is the item.

    Args:
        settings: `seeds` is the number of environments at each grid point.
        grid_points: Values of complementarity, spread and noise, in the order of the environments.
        values: From `synthetic_strategies.evaluate_strategy`: by name of the column, such as reward, a tensor
            (environments, budgets, queries).
        labels: Method, role, temperature and step of all the rows.

    Returns:
        A row for every grid point, seed and budget. Columns: complementarity, spread, noise, seed, item, condition (the
        budget word), those of `values` (correct, reward, cost_usd, within, mean_calls, mean_expensive_calls), backend,
        split, method, role, temperature and step.
    """
    index = []
    for grid_point, seed, budget in product(grid_points, range(settings.seeds), BUDGETS):
        item = f"environment {seed}"
        index.append({**grid_point, "seed": seed, "item": item, "condition": budget})

    # Means over queries, in the order of the index: grid points and seeds, then budgets.
    means = {}
    for name, value in values.items():
        mean_over_queries = value.mean(-1)  # (environments, budgets)
        means[name] = mean_over_queries.flatten().double().numpy()
    return pd.DataFrame(index).assign(
        **means,
        backend="policy",
        split="test",
        method=labels.method,
        role=labels.role,
        temperature=labels.temperature,
        step=labels.step,
    )
