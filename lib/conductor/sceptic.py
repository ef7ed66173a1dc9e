"""Does the Conductor's advantage know anything about quality, or does it pay whatever a rollout scores well on?

A rollout's reward is R = sum_k w_k r_k, and w leans towards the drawn action a. So the advantage that comes
back for a holds the rollout's own r_a, and its quality only as far as r_a says so. `bandit` makes that visible
where the truth is known: in every category one component is the quality and the others are noise, and the
state tells the category. What it shows follows from the formula: the category has no part in R, however the
head learns. `observed` looks at real rollouts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from lib import losses, seeds
from lib.conductor.meta import Conducted
from lib.conductor.rewards import COMPONENTS, centred, ranked
from lib.params import HeadSettings

GROUP = 5  # rollouts per prompt, as in Table 7


def bandit(
    settings: HeadSettings,
    seed: int,
    saturated: bool = False,
    blind: bool = False,
    updates: int = 150,
    prompts: int = 15,
) -> dict[str, float]:
    """A Conductor after `updates` on made-up rollouts of which the truth is known.

    Components are ranks in groups of five; in category c component c is the quality. saturated: everybody is
    paid 1 in the first component, as for a format that all replies have; blind: the state tells the category
    and not the scores. Returns correlations over fresh rollouts and components of pi_k with `own` (the
    rollout's score r_k) and with `truth` (whether k is the quality of the category), both without component
    means; `first`: mean pi of the first component; `chosen`: mean pi of the true one (chance is 1/K).
    """
    rng = seeds.rng("sceptic", int(saturated), int(blind), seed=seed)
    k = len(COMPONENTS)
    conductor = Conducted(2 * k + 1, settings, GROUP, seed)
    for step in range(updates * settings.every):
        h, r, _ = _rollouts(rng, prompts, blind)
        weights, _ = conductor(h, step)
        paid = r.clone()
        if saturated:
            paid[:, 0] = 1.0
        if settings.centred:
            paid = centred(paid, GROUP)
        conductor.learn(losses.group_advantages((weights * paid).sum(-1), GROUP))
    h, r, category = _rollouts(rng, 200, blind)
    pi = conductor.settled(h)
    truth = torch.nn.functional.one_hot(category, k).float()
    return {
        "own": _correlation(pi - pi.mean(0), r - r.mean(0)),
        "truth": _correlation(pi - pi.mean(0), truth - truth.mean(0)),
        "first": float(pi[:, 0].mean()),
        "chosen": float((pi * truth).sum(-1).mean()),
    }


def _rollouts(rng: np.random.Generator, prompts: int, blind: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States (B, 2 K + 1): the category, the scores (0 for the blind), a constant; scores (B, K); categories (B,)."""
    k, n = len(COMPONENTS), prompts * GROUP
    category = torch.from_numpy(rng.integers(k, size=prompts)).repeat_interleave(GROUP)
    r = torch.stack([ranked(torch.from_numpy(rng.random(n)).float(), GROUP) for _ in range(k)], 1)
    seen = torch.zeros_like(r) if blind else r
    h = torch.cat([torch.nn.functional.one_hot(category, k).float(), seen, torch.ones(n, 1)], 1)
    return h, r, category


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double().flatten() - a.double().mean(), b.double().flatten() - b.double().mean()
    spread = float(a.norm() * b.norm())
    return float((a * b).sum()) / spread if spread > 1e-12 else 0.0


def observed(rollouts: pd.DataFrame, group: int) -> pd.DataFrame:
    """What the advantage went with in real training, one row per seed: correlations within groups.

    rollouts: of one arm, with a column seed. `quality`: with what the verifier says. Where emphases were drawn
    also `level`: with the batch's mean of the emphasised reward, which says nothing about the rollout; and `own`:
    with the rollout's score in it above that mean.
    """
    rows = []
    names = [f"r_{name}" for name in COMPONENTS]
    for seed, part in rollouts.groupby("seed"):
        advantage, action = part["advantage"].to_numpy(dtype=float), part["action"].to_numpy()
        row = {"seed": seed, "quality": within(advantage, part["quality"].to_numpy(dtype=float), group)}
        if (action >= 0).all():
            here = np.arange(len(part)), action
            level = part.groupby("step")[names].transform("mean").to_numpy(dtype=float)[here]
            own = part[names].to_numpy(dtype=float)[here] - level
            row |= {"level": within(advantage, level, group), "own": within(advantage, own, group)}
        rows.append(row)
    return pd.DataFrame(rows)


def within(a: np.ndarray, b: np.ndarray, group: int) -> float:
    """Correlation after each group's mean is taken away."""
    a, b = ((x.reshape(-1, group) - x.reshape(-1, group).mean(1, keepdims=True)) for x in (a, b))
    return _correlation(torch.from_numpy(a), torch.from_numpy(b))
