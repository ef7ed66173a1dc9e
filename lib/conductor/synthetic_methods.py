"""The methods that are compared in the synthetic environment: fixed weights, Conductors, and direct rewards.

Left out: the training, which is the same for all of them (`lib.conductor.synthetic_training`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from lib.conductor.meta_policy_training import (
    AnchoredWeighting,
    ConductorWeighting,
    batch_over_seeds,
)
from lib.conductor.rewards import COMPONENTS, subtract_group_means
from lib.conductor.synthetic_environment import PROXIES, BatchedEnvironments
from lib.conductor.variants import EQUAL
from lib.conductor.weighting import FixedWeighting, RandomWeighting, RolloutOutcomes, Weighting
from lib.config import ConductorSyntheticSettings, HeadSettings
from lib.experiment import seeds

MakeWeighting = Callable[[BatchedEnvironments], Weighting]

INITIAL_POLICY = "initial policy"
OPTIMUM = "optimum"
ORACLE = "quality as reward"
BEST_PROXIES = "best proxy per category"
BEST_STATIC = "best static (dev)"
MEAN_WEIGHTS = "Conductor's mean weights"
OTHER_REWARDS = "rewarded by the other rewards"
VERIFIED_FRACTIONS = (0.0, 0.02, 0.1, 1.0)
# Methods that are trained at every grid point of the map.
MAPPED = (
    "Equal",
    BEST_PROXIES,
    "Conductor",
    *(f"Anchored {fraction:.0%}" for fraction in VERIFIED_FRACTIONS[1:]),
)
NO_WEIGHT = {"fmt": 0.0}  # of a policy whose only reward is verified quality


@dataclass(frozen=True)
class SyntheticMethod:
    """One method.

    Attributes:
        name: Name in tables.
        make_weighting: Makes its weighting for a batch of environments.
        role: Role in the results table.
        head_input: What h holds of prompt and reply, as of `synthetic_environment.make_states`.
        checker: Who tells quality: `verifier`, `verifier with errors` or `judge`.
        direct_fraction: Fraction of the prompts on which the policy itself is rewarded with checked quality.
        trains: Whether the policy is trained at all.
    """

    name: str
    make_weighting: MakeWeighting
    role: str = "constant"
    head_input: str = "both"
    checker: str = "verifier"
    direct_fraction: float = 0.0
    trains: bool = True


class TableWeighting(Weighting):
    """Constant weights that differ between environments or between categories."""

    def __init__(self, weights: torch.Tensor, by_category: bool = False) -> None:
        """Keep the weights.

        Args:
            weights: (W S, 1, K) by environment, or (C, K) by category.
            by_category: Which of the two they are.
        """
        self.weights = weights
        self.by_category = by_category

    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        if self.by_category:
            category_one_hot = h[..., : len(self.weights)]  # h begins with it
            return category_one_hot @ self.weights
        return self.weights.expand(*h.shape[:-1], -1)


class OtherRewardsWeighting(AnchoredWeighting):
    """A Conductor that learns to emphasise the rewards that agree with the other rewards (ours).

    It is the anchored Conductor with the sum of the other four rewards in the place of verified quality: a control that
    verifies nothing.
    """

    def _compute_meta_rewards(
        self, outcomes: RolloutOutcomes, action: torch.Tensor
    ) -> torch.Tensor:
        """Reward every emphasis by how well the emphasised reward agrees with the sum of the others.

        Args:
            outcomes: Outcomes of the rollouts of the step, with rewards and prompts.
            action: (W S, B) sampled emphases, as indices of rewards.

        Returns:
            (W S, B) meta rewards, of `AnchoredWeighting`.
        """
        rewards = outcomes.rewards  # (W S, B, K)
        centred = subtract_group_means(rewards.flatten(0, -2), self.group_size).view_as(rewards)

        # The sum of all rewards but the emphasised one.
        emphasized = centred.gather(-1, action[..., None])[..., 0]
        sum_of_others = centred.sum(-1) - emphasized
        others_as_quality = RolloutOutcomes(
            outcomes.advantage, rewards, sum_of_others, outcomes.prompt
        )
        return super()._compute_meta_rewards(others_as_quality, action)


def fix_weights(weights: Mapping[str, float]) -> MakeWeighting:
    """Make a maker of fixed weights, the same in every environment."""
    return lambda environments: FixedWeighting(weights)


def make_head(kind: type[ConductorWeighting], settings: HeadSettings, **changes) -> MakeWeighting:
    """Make a maker of Conductors, one for each environment.

    Args:
        kind: ConductorWeighting or a class derived from it.
        settings: Settings of the Conductor; the learning rate is the synthetic environment's.
        changes: Fields of the settings that differ.

    Returns:
        A function from environments to their Conductors, side by side.
    """

    def make_weighting(environments: BatchedEnvironments) -> Weighting:
        rate = {"learning_rate": environments.settings.head_learning_rate}
        head_settings = settings.model_copy(update=rate | changes)
        group_size = environments.settings.group
        one_seed = kind(environments.width, head_settings, group_size, 0)
        return batch_over_seeds(one_seed, environments.seed_names)

    return make_weighting


def _make_random_weighting(environments: BatchedEnvironments) -> Weighting:
    """Make random weights, with a stream of random numbers for each environment."""
    weighting = RandomWeighting(0)
    keys = [seeds.key("conductor", "random weights", seed=seed) for seed in environments.seed_names]
    weighting.stream = np.array(keys)[:, None, None]
    return weighting


def _make_best_proxies(environments: BatchedEnvironments) -> Weighting:
    """Make weights that know which proxy fits a category: in category c all weight is on proxy c."""
    num_categories = environments.settings.categories
    weights = torch.eye(len(COMPONENTS))[1 : num_categories + 1]  # (C, K)
    return TableWeighting(weights, by_category=True)


def make_conductor(
    name: str, head: HeadSettings, head_input: str = "both", **changes
) -> SyntheticMethod:
    """Make the published Conductor as a method, with changes to its settings or to what it reads.

    Args:
        name: Name in tables.
        head: Settings of the Conductor.
        head_input: What h holds, as of `synthetic_environment.make_states`.
        changes: Fields of the settings that differ.

    Returns:
        The method.
    """
    role = "paper" if name == "Conductor" else "router"
    make_weighting = make_head(ConductorWeighting, head, **changes)
    return SyntheticMethod(name, make_weighting, role, head_input)


def make_anchored(
    name: str,
    head: HeadSettings,
    fraction: float,
    checker: str = "verifier",
    head_input: str = "both",
    **changes,
) -> SyntheticMethod:
    """Make the anchored Conductor (`AnchoredWeighting`) as a method.

    Args:
        name: Name in tables.
        head: Settings of the Conductor.
        fraction: Fraction of the prompts, on which replies are verified.
        checker: Who verifies: `verifier`, `verifier with errors` or `judge`.
        head_input: What h holds, as of `synthetic_environment.make_states`.
        changes: Further fields of the settings that differ.

    Returns:
        The method.
    """
    changes = {"verified_fraction": fraction} | changes
    make_weighting = make_head(AnchoredWeighting, head, **changes)
    return SyntheticMethod(name, make_weighting, "router", head_input, checker)


def list_constants() -> list[SyntheticMethod]:
    """List the methods with constant or random weights, and the references that know the true quality.

    Returns:
        The methods.
    """
    initial = SyntheticMethod(INITIAL_POLICY, fix_weights(EQUAL), "start", trains=False)
    equal = SyntheticMethod("Equal", fix_weights(EQUAL))
    random = SyntheticMethod("Random", _make_random_weighting)
    singles = [SyntheticMethod(name, fix_weights({name: 1.0})) for name in PROXIES]
    references = [
        SyntheticMethod(BEST_PROXIES, _make_best_proxies, "oracle"),
        SyntheticMethod(ORACLE, fix_weights({"quality": 1.0}), "oracle"),
        SyntheticMethod(OPTIMUM, fix_weights(EQUAL), "oracle", trains=False),
    ]
    return [initial, equal, random, *singles, *references]


def list_heads(settings: ConductorSyntheticSettings, head: HeadSettings) -> list[SyntheticMethod]:
    """List the methods with a Conductor.

    Args:
        settings: Settings of the environment; values of kappa and the weight of the pairwise loss are read.
        head: Settings of the published Conductor.

    Returns:
        The published Conductor, its ablations, Conductors that read less, and Conductors with another meta reward.
    """
    # One setting of the published Conductor changed.
    ablations = [
        *(make_conductor(f"kappa {kappa:g}", head, kappa=kappa) for kappa in settings.kappas),
        make_conductor("no entropy", head, entropy=0.0),
        make_conductor("pairwise", head, pairwise=settings.pairwise),
        make_conductor("homogeneous", head, homogeneous=True),
        make_conductor("centred", head, centred=True),
    ]

    # Another state.
    inputs = [
        make_conductor(f"h: {head_input}", head, head_input)
        for head_input in ("prompt", "reply", "shuffled")
    ]

    # Another meta reward in the place of the advantage.
    others = make_head(OtherRewardsWeighting, head, verified_fraction=1.0)
    anchored = [
        make_anchored(f"Anchored {fraction:.0%}", head, fraction) for fraction in VERIFIED_FRACTIONS
    ]
    return [
        make_conductor("Conductor", head),
        *ablations,
        *inputs,
        SyntheticMethod(OTHER_REWARDS, others, "router"),
        *anchored,
        make_anchored("Anchored 10%, 20% errors", head, 0.1, "verifier with errors"),
        make_anchored("Anchored 100%, judge", head, 1.0, "judge"),
        make_anchored("Anchored 10%, h: prompt", head, 0.1, head_input="prompt"),
        make_anchored("Anchored 10%, kappa 0", head, 0.1, kappa=0.0),
    ]


def list_direct() -> list[SyntheticMethod]:
    """List policies that are rewarded directly with the verified quality that an anchored Conductor learns from.

    Returns:
        Methods whose other prompts are rewarded with nothing or with equal weights.
    """
    nothing = fix_weights(NO_WEIGHT)
    equal = fix_weights(EQUAL)
    methods = []
    for fraction in VERIFIED_FRACTIONS[1:3]:
        name = f"quality on {fraction:.0%}"
        methods.append(SyntheticMethod(name, nothing, direct_fraction=fraction))
    for fraction in VERIFIED_FRACTIONS[1:3]:
        name = f"quality on {fraction:.0%}, else Equal"
        methods.append(SyntheticMethod(name, equal, direct_fraction=fraction))
    with_errors = SyntheticMethod(
        "quality on 10%, 20% errors",
        nothing,
        checker="verifier with errors",
        direct_fraction=0.1,
    )
    judge = SyntheticMethod("judge on 100%", nothing, checker="judge", direct_fraction=1.0)
    return [*methods, with_errors, judge]


def list_methods(
    settings: ConductorSyntheticSettings, head: HeadSettings
) -> dict[str, SyntheticMethod]:
    """List all methods by name but two, whose weights follow from other trainings: BEST_STATIC and MEAN_WEIGHTS."""
    methods = [*list_constants(), *list_heads(settings, head), *list_direct()]
    return {method.name: method for method in methods}


def fix_mean_weights(conductor_rows: pd.DataFrame) -> SyntheticMethod:
    """Make a method with the mean weights that a trained Conductor ended with: the Conductor without its context.

    Args:
        conductor_rows: Rows of the trained Conductor, with columns condition, seed and w_NAME.

    Returns:
        A method with the Conductor's mean weights in each setting and under each seed.
    """
    columns = [f"w_{name}" for name in COMPONENTS]
    # Unsorted: the rows stand in the order of the environments.
    means = conductor_rows.groupby(["condition", "seed"], sort=False)[columns].mean()
    weights = torch.from_numpy(means.to_numpy(dtype=np.float32))[:, None]  # (W S, 1, K)
    return SyntheticMethod(MEAN_WEIGHTS, lambda environments: TableWeighting(weights))
