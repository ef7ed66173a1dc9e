"""Does the Conductor's advantage know anything about quality, or does it pay whatever a rollout scores well on?

A rollout's reward is R = sum_k w_k r_k, and w leans towards the drawn action a. So the advantage that comes
back for a holds the rollout's own r_a, and its quality only as far as r_a says so. `bandit` puts this to the
test where the truth is known: in every category one component is the quality, the others are noise, and the
state tells the Conductor both the category and the scores. `observed` asks the same of real rollouts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from lib import seeds
from lib.conductor.meta import Conducted
from lib.conductor.rewards import COMPONENTS, ranked
from lib.params import HeadSettings

GROUP = 5  # rollouts per prompt, as in Table 7
LEVELS = ("even", "saturated")


def bandit(settings: HeadSettings, seed: int, level: str = "even", updates: int = 150, prompts: int = 15) -> dict:
    """A Conductor after `updates` on made-up rollouts of which the truth is known.

    Components are ranks in groups of five; in category c component c is the quality. level: `saturated` pays
    everybody 1 in the first component, as a format that all replies have. Returns correlations over fresh
    rollouts and components of pi_k with `own` (the rollout's score r_k) and with `truth` (whether k is the
    quality of the category), both without component means; `first`: mean pi of the first component; `chosen`:
    mean pi of the true one (chance is 1/K).
    """
    rng = seeds.rng("sceptic", level, seed=seed)
    k = len(COMPONENTS)
    conductor = Conducted(2 * k + 1, settings, GROUP, seed)
    for step in range(updates * settings.every):
        h, r, _ = _rollouts(rng, prompts)
        weights, _ = conductor(h, step)
        paid = r.clone()
        if level == "saturated":
            paid[:, 0] = 1.0
        if settings.centred:
            paid = paid - paid.view(-1, GROUP, k).mean(1).repeat_interleave(GROUP, 0)
        conductor.learn(_advantage((weights * paid).sum(-1)))
    h, r, category = _rollouts(rng, 200)
    pi = conductor.settled(h)
    truth = torch.nn.functional.one_hot(category, k).float()
    return {
        "own": _correlation(pi - pi.mean(0), r - r.mean(0)),
        "truth": _correlation(pi - pi.mean(0), truth - truth.mean(0)),
        "first": float(pi[:, 0].mean()),
        "chosen": float((pi * truth).sum(-1).mean()),
    }


def _rollouts(rng: np.random.Generator, prompts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States (B, 2 K + 1): the category, the scores, a constant; scores (B, K); categories (B,)."""
    k, n = len(COMPONENTS), prompts * GROUP
    category = torch.from_numpy(rng.integers(k, size=prompts)).repeat_interleave(GROUP)
    r = torch.stack([ranked(torch.from_numpy(rng.random(n)).float(), GROUP) for _ in range(k)], 1)
    h = torch.cat([torch.nn.functional.one_hot(category, k).float(), r, torch.ones(n, 1)], 1)
    return h, r, category


def _advantage(rewards: torch.Tensor) -> torch.Tensor:
    """(R - mean) / std in groups (appendix G)."""
    groups = rewards.view(-1, GROUP)
    return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double().flatten() - a.double().mean(), b.double().flatten() - b.double().mean()
    spread = float(a.norm() * b.norm())
    return float((a * b).sum()) / spread if spread > 1e-12 else 0.0


def observed(rollouts: pd.DataFrame, group: int) -> pd.DataFrame:
    """What the advantage went with in real training, one row per seed: correlations within groups.

    rollouts: of one arm, with a column seed. `own`: advantage with the rollout's score in the emphasised
    component; `level`: advantage with the batch's mean score of that component, which says nothing about
    the rollout; `quality`: advantage with what the verifier says.
    """
    rows = []
    for seed, part in rollouts.groupby("seed"):
        scores = part[[f"r_{name}" for name in COMPONENTS]].to_numpy(dtype=float)
        action = part["action"].to_numpy()
        own = scores[np.arange(len(part)), action]
        means = part.groupby("step")[[f"r_{name}" for name in COMPONENTS]].transform("mean").to_numpy(dtype=float)
        level = means[np.arange(len(part)), action]
        advantage = part["advantage"].to_numpy(dtype=float)
        columns = {"own": own, "level": level, "quality": part["quality"].to_numpy(dtype=float)}
        rows.append({"seed": seed} | {n: within(advantage, values, group) for n, values in columns.items()})
    return pd.DataFrame(rows)


def within(a: np.ndarray, b: np.ndarray, group: int) -> float:
    """Correlation after each group's mean is taken away."""
    a, b = ((x.reshape(-1, group) - x.reshape(-1, group).mean(1, keepdims=True)) for x in (a, b))
    return _correlation(torch.from_numpy(a), torch.from_numpy(b))
