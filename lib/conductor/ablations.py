"""Ablations of MAESTRO: what the Conductor reads (Table 4), its loss (Table 5), when it learns (Table 6), how far its
sampled action counts (kappa), and one action for a whole group.

They are made where heads learn until they are settled and effects are large enough to see: in the synthetic environment
of lesson 04, whose environments, prompts and random numbers all variants share (`lib.conductor.synthetic_benchmark`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from lib.conductor import synthetic_benchmark
from lib.conductor.meta_policy_training import (
    ConductorWeighting,
    MetaBatch,
    compute_joint_loss,
    compute_meta_loss,
)
from lib.conductor.rewards import COMPONENTS
from lib.conductor.synthetic_methods import INITIAL_POLICY
from lib.config import Params
from lib.experiment import seeds
from lib.rl import losses
from lib.stats.ablation_comparison import Comparison, Measure

SCORE = Measure("score", "quality")
WEIGHTS_MOVED = Measure("moved", "weights moved from 1/K", "")
STATIC = ("Equal", "Random")  # weights that learn nothing, for Table 5's second claim


def run_methods(params: Params, **options) -> pd.DataFrame:
    """Train every method in the synthetic environment at its central setting.

    Args:
        params: All settings.
        options: Of `synthetic_benchmark.run`.

    Returns:
        Columns: variant, seed, unit (a category of the seed's environment), score, moved (mean distance of the mean
        weights from 1/K).
    """
    settings = params.conductor
    rows = synthetic_benchmark.run(settings, settings.jobs, **options)
    rows = rows.query("style == 'centre'")
    weights = rows[[f"w_{name}" for name in COMPONENTS]].to_numpy()
    # Mean over the rewards of |w_k - 1/K|; 0 for weights that never moved.
    distance = np.abs(weights - 1 / len(COMPONENTS)).mean(axis=1)
    return pd.DataFrame(
        {
            "variant": rows["method"],
            "seed": rows["seed"],
            "unit": rows["item"],
            "score": rows["reward"],
            "moved": np.nan_to_num(distance),
        }
    )


def compare_inputs(params: Params, rows: pd.DataFrame) -> Comparison:
    """What the state holds (Table 4): layers differ in how much of prompt and reply their last state tells."""
    variants = ["h: prompt", "h: reply", "h: shuffled"]
    return _compare(rows, "maestro_layer", "what the Conductor reads", variants)


def compare_losses(params: Params, rows: pd.DataFrame) -> Comparison:
    """Without the entropy bonus, and with pairwise perturbations (Table 5); beside weights that learn nothing."""
    variants = ["no entropy", "pairwise", *STATIC]
    return _compare(rows, "maestro_loss", "the Conductor's loss", variants)


def compare_kappas(params: Params, rows: pd.DataFrame) -> Comparison:
    """How far the sampled action counts: w = (1 - kappa) pi(h) + kappa e_a."""
    variants = [f"kappa {kappa:g}" for kappa in params.conductor.synthetic.kappas]
    return _compare(rows, "maestro_kappa", "how far the sampled action counts", variants)


def compare_homogeneous(params: Params, rows: pd.DataFrame) -> Comparison:
    """One action and one context for a group: its advantages sum to zero, and with them the gradient."""
    return _compare(
        rows,
        "maestro_homogeneous",
        "one action for a whole group",
        ["homogeneous"],
        (WEIGHTS_MOVED, SCORE),
    )


def measure_meta_gradients(params: Params, prompts: int = 12, width: int = 16) -> pd.DataFrame:
    """Measure the gradient of the meta loss (eq. 5) on random states and rewards, by what a group shares.

    Args:
        params: All settings.
        prompts: Number of groups.
        width: Width of the states.

    Returns:
        Columns: group (in words), key (in metrics), length.
    """
    head = params.conductor.head
    group_size = params.conductor.grpo.generations
    rng = seeds.rng("ablations", "gradients")
    num_rollouts = prompts * group_size
    h, rewards = _draw_states_and_rewards(rng, num_rollouts, width)
    rows = []
    for description, key, homogeneous in (
        ("each rollout its own context and action", "own", False),
        ("one context and one action", "one", True),
    ):
        settings = head.model_copy(update={"homogeneous": homogeneous})
        weighting = ConductorWeighting(width, settings, group_size, 0)
        # R_j = sum_k w_jk r_jk; its advantages are what the head is rewarded with (eq. 3).
        weights, action = weighting.weigh_rollouts(h, 0)
        scalarized_rewards = (weights.detach() * rewards).sum(-1)  # (rollouts,)
        advantage = losses.compute_group_advantages(scalarized_rewards, group_size)
        batch = MetaBatch(weighting.last_context, action, advantage)
        compute_meta_loss(weighting.conductor, batch, 0.0).backward()
        gradient = weighting.conductor.linear.weight.grad
        rows.append({"group": description, "key": key, "length": float(gradient.norm())})
    return pd.DataFrame(rows)


def measure_joint_gradients(params: Params, prompts: int = 12, width: int = 16) -> pd.DataFrame:
    """Measure the gradient of joint training (Table 6), by the lengths of the replies of a group.

    On random states and rewards. Joint training can be compared with asynchronous updates only where this gradient says
    something about rewards; `meta_policy_training.compute_joint_loss` shows that it does not.

    Args:
        params: All settings.
        prompts: Number of groups.
        width: Width of the states.

    Returns:
        Columns: group (in words), key (in metrics), length.
    """
    grpo = params.conductor.grpo
    head = params.conductor.head.model_copy(update={"joint": True})
    rng = seeds.rng("ablations", "joint gradients")
    num_rollouts = prompts * grpo.generations
    h, rewards = _draw_states_and_rewards(rng, num_rollouts, width)
    lengths = torch.from_numpy(rng.integers(1, grpo.max_tokens + 1, size=num_rollouts)).float()
    rows = []
    for description, key, num_tokens in (
        ("all replies equally long", "equal", torch.full_like(lengths, grpo.max_tokens)),
        ("replies of random lengths", "random", lengths),
    ):
        weighting = ConductorWeighting(width, head, grpo.generations, 0)
        weights, _ = weighting.weigh_rollouts(h, 0)
        scalarized_rewards = (weights * rewards).sum(-1)  # (rollouts,)
        advantage = losses.compute_group_advantages(scalarized_rewards, grpo.generations)
        # The weights keep their gradient here: A depends on w, which depends on phi.
        compute_joint_loss(advantage, num_tokens, grpo.max_tokens).backward()
        gradient = weighting.conductor.linear.weight.grad
        rows.append({"group": description, "key": key, "length": float(gradient.norm())})
    return pd.DataFrame(rows)


def _draw_states_and_rewards(
    rng: np.random.Generator, num_rollouts: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw random hidden states (num_rollouts, width) and rewards in [0, 1) (num_rollouts, K)."""
    states = rng.normal(size=(num_rollouts, width)).astype(np.float32)
    rewards = rng.random((num_rollouts, len(COMPONENTS))).astype(np.float32)
    return torch.from_numpy(states), torch.from_numpy(rewards)


def _compare(
    rows: pd.DataFrame,
    name: str,
    about: str,
    variants: Sequence[str],
    measures: Sequence[Measure] = (SCORE, WEIGHTS_MOVED),
) -> Comparison:
    """Make the comparison of some variants with the Conductor, with the initial policy as a further row.

    Args:
        rows: Results of the synthetic environment, with a column variant.
        name: Name of the comparison in metric keys.
        about: What is varied, in words.
        variants: The variants in the order of the table.
        measures: Columns that are compared.

    Returns:
        The comparison.
    """
    order = [INITIAL_POLICY, "Conductor", *variants]
    frame = rows[rows["variant"].isin(order)]
    frame = frame.sort_values("variant", key=lambda names: names.map(order.index), kind="stable")
    baselines = dict.fromkeys(variants, "Conductor")
    return Comparison(name, about, frame, baselines, tuple(measures), "synthetic")
