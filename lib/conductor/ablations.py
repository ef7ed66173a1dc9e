"""Ablations of MAESTRO: what the Conductor reads (Table 4), its loss (Table 5), when it learns (Table 6), how far its
drawn action counts (kappa), and one action for a whole group.

They are made where heads learn until they are settled and effects are large enough to see: in the glass box of lesson
04, whose worlds, prompts and dice all variants share (`lib.conductor.synthetic_benchmark`).
"""

import numpy as np
import pandas as pd
import torch

from lib.conductor import synthetic_benchmark
from lib.conductor.meta_policy_training import Conducted, meta_loss
from lib.conductor.rewards import COMPONENTS
from lib.config import Params
from lib.experiment import seeds
from lib.rl import losses
from lib.stats.ablation_comparison import Comparison, Measure

SCORE = Measure("score", "quality")
MOVED = Measure("moved", "weights moved from 1/K", "")
STATIC = ("Equal", "Random")  # weights that learn nothing, for Table 5's second claim


def trained(params: Params, **where) -> pd.DataFrame:
    """Every method of the glass box at its central setting: variant, seed, unit (a category of the seed's world),
    score, moved (mean distance of the settled weights from 1/K). where: of `glassbox.study`."""
    own = params.conductor
    rows = synthetic_benchmark.study(own.glass, own.head, own.jobs, **where).query(
        "style == 'centre'"
    )
    weights = rows[[f"w_{name}" for name in COMPONENTS]].to_numpy()
    away = np.nan_to_num(np.abs(weights - 1 / len(COMPONENTS)).mean(axis=1))
    return pd.DataFrame(
        {
            "variant": rows["method"],
            "seed": rows["seed"],
            "unit": rows["item"],
            "score": rows["reward"],
            "moved": away,
        }
    )


def table_4(params: Params, rows: pd.DataFrame) -> Comparison:
    """What the state holds: layers differ in how much of prompt and reply their last state tells."""
    return _compared(
        rows, "maestro_layer", "what the Conductor reads", ["h: prompt", "h: reply", "h: shuffled"]
    )


def table_5(params: Params, rows: pd.DataFrame) -> Comparison:
    """Without the entropy bonus, and with pairwise perturbations; beside weights that learn nothing."""
    return _compared(
        rows, "maestro_loss", "the Conductor's loss", ["no entropy", "pairwise", *STATIC]
    )


def table_6(params: Params, rows: pd.DataFrame) -> Comparison:
    """Updated with every step of the policy instead of every M steps."""
    return _compared(rows, "maestro_joint", "when the Conductor is updated", ["joint"])


def kappa(params: Params, rows: pd.DataFrame) -> Comparison:
    """How far the drawn action counts: w = (1 - kappa) pi(h) + kappa e_a."""
    names = [f"kappa {k:g}" for k in params.conductor.glass.kappas]
    return _compared(rows, "maestro_kappa", "how far the drawn action counts", names)


def homogeneous(params: Params, rows: pd.DataFrame) -> Comparison:
    """One action and one context for a group: its advantages add up to zero, and with them the gradient."""
    return _compared(
        rows, "maestro_homogeneous", "one action for a whole group", ["homogeneous"], (MOVED, SCORE)
    )


def gradients(params: Params, prompts: int = 12, width: int = 16) -> pd.DataFrame:
    """Length of the gradient of eq. 5 on made-up states and rewards, by what a group shares. Columns: group, key (in
    metrics), length."""
    head, group = params.conductor.head, params.conductor.grpo.generations
    rng = seeds.rng("ablations", "gradients")
    h = torch.from_numpy(rng.normal(size=(prompts * group, width)).astype(np.float32))
    rewards = torch.from_numpy(rng.random((prompts * group, len(COMPONENTS))).astype(np.float32))
    modes = {
        "each rollout its own context and action": ("own", False),
        "one context and one action": ("one", True),
    }
    rows = []
    for shown, (key, same) in modes.items():
        weighting = Conducted(width, head.model_copy(update={"homogeneous": same}), group, 0)
        weights, action = weighting(h, 0)
        context = weighting.pending[0]
        scalarized_rewards = (weights.detach() * rewards).sum(-1)  # (rollouts,)
        advantage = losses.compute_group_advantages(scalarized_rewards, group)
        weighting.conductor.zero_grad()
        meta_loss(weighting.conductor, context, action, advantage, 0.0).backward()
        slope = weighting.conductor.linear.weight.grad
        rows.append({"group": shown, "key": key, "length": float(slope.norm())})
    return pd.DataFrame(rows)


def _compared(
    rows: pd.DataFrame, name: str, about: str, variants: list[str], measures=(SCORE, MOVED)
) -> Comparison:
    wanted = ["START", "Conductor", *variants]  # the start is shown and is no variant
    frame = rows[rows["variant"].isin(wanted)]
    frame = frame.sort_values("variant", key=lambda column: column.map(wanted.index), kind="stable")
    return Comparison(
        name, about, frame, dict.fromkeys(variants, "Conductor"), tuple(measures), "world"
    )
