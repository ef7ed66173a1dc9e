"""Ablations of MAESTRO: what the Conductor reads (Table 4), its loss (Table 5), when it learns (Table 6), how far its
drawn action counts (kappa), and one action for a whole group."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from lib import losses, seeds
from lib.ablations.comparison import Comparison, Measure
from lib.conductor import study
from lib.conductor.arms import BASE, CONDUCTOR, NAMED, Arm, variant
from lib.conductor.meta import Conducted, meta_loss
from lib.conductor.rewards import COMPONENTS
from lib.conductor.study import Results
from lib.params import Params

SCORE = Measure("score", "score", 3)
MOVED = Measure("moved", "weights moved from 1/K", 4, "")
STATIC = ("equal", "random")  # weights that learn nothing, for Table 5's second claim


def arms(params: Params) -> dict[str, Arm]:
    """Every variant of the Conductor, by what is shown."""
    told = params.ablations
    kappas = {f"kappa {k:g}": variant(f"kappa {k:g}", kappa=k) for k in told.kappas if k != params.conductor.head.kappa}
    return {
        "first layer": variant("first layer", layer="first"),
        "no entropy": variant("no entropy", entropy=0.0),
        "pairwise": variant("pairwise", pairwise=told.pairwise),
        "joint": variant("joint", joint=True),
        **kappas,
        "one action per group": variant("one action per group", homogeneous=True),
    }


def trained(params: Params, **where) -> Results:
    """The start, the Conductor, two static weightings and every variant under every seed. where: of study.run."""
    compared = [BASE, CONDUCTOR, *(NAMED[name] for name in STATIC), *arms(params).values()]
    return study.run(params, compared, label="training variants of the Conductor", **where)


def table_4(params: Params, results: Results) -> Comparison:
    """The layer whose state the Conductor reads. The lab's policy has two, so that `middle` is `first`."""
    return _compared(params, results, "maestro_layer", "the layer that the Conductor reads", ["first layer"])


def table_5(params: Params, results: Results) -> Comparison:
    """Without the entropy bonus, and with pairwise perturbations; beside weights that learn nothing."""
    variants = ["no entropy", "pairwise", *(NAMED[name].label for name in STATIC)]
    return _compared(params, results, "maestro_loss", "the Conductor's loss", variants)


def table_6(params: Params, results: Results) -> Comparison:
    """Updated with every step of the policy instead of every M steps."""
    return _compared(params, results, "maestro_joint", "when the Conductor is updated", ["joint"])


def kappa(params: Params, results: Results) -> Comparison:
    """How far the drawn action counts: w = (1 - kappa) pi(h) + kappa e_a."""
    names = [name for name in arms(params) if name.startswith("kappa")]
    return _compared(params, results, "maestro_kappa", "how far the drawn action counts", names)


def homogeneous(params: Params, results: Results) -> Comparison:
    """One action and one context for a group: its advantages add up to zero, and with them the gradient."""
    about = "one action for a whole group"
    return _compared(params, results, "maestro_homogeneous", about, ["one action per group"], (MOVED, SCORE))


def gradients(params: Params, prompts: int = 12, width: int = 16) -> pd.DataFrame:
    """Length of the gradient of eq. 5 on made-up states and rewards, by what a group shares. Columns: group, key (in
    metrics), length."""
    head, group = params.conductor.head, params.conductor.grpo.generations
    rng = seeds.rng("ablations", "gradients")
    h = torch.from_numpy(rng.normal(size=(prompts * group, width)).astype(np.float32))
    rewards = torch.from_numpy(rng.random((prompts * group, len(COMPONENTS))).astype(np.float32))
    modes = {"each rollout its own context and action": ("own", False), "one context and one action": ("one", True)}
    rows = []
    for shown, (key, same) in modes.items():
        weighting = Conducted(width, head.model_copy(update={"homogeneous": same}), group, 0)
        weights, action = weighting(h, 0)
        context = weighting.pending[0]
        advantage = losses.group_advantages((weights.detach() * rewards).sum(-1), group)
        weighting.conductor.zero_grad()
        meta_loss(weighting.conductor, context, action, advantage, 0.0).backward()
        slope = weighting.conductor.linear.weight.grad
        rows.append({"group": shown, "key": key, "length": float(slope.norm())})
    return pd.DataFrame(rows)


def _compared(params, results: Results, name: str, about: str, variants, measures=(SCORE, MOVED)) -> Comparison:
    usual = "Conductor"
    labels = {CONDUCTOR.name: usual, BASE.name: "start"} | {n: NAMED[n].label for n in STATIC}
    labels |= {arm.name: shown for shown, arm in arms(params).items()}
    wanted = ["start", usual, *variants]
    items = results.items.assign(variant=results.items["arm"].map(labels), unit=results.items["item"])
    items = items[items["variant"].isin(wanted)]
    frame = items.merge(_moved(results), on=["arm", "seed"], how="left").fillna({"moved": 0.0})
    frame = frame.sort_values("variant", key=lambda column: column.map(wanted.index), kind="stable")
    against = dict.fromkeys(variants, usual)  # the start is shown and is no variant
    return Comparison(name, about, frame, against, tuple(measures), True, "lab")


def _moved(results: Results) -> pd.DataFrame:
    """By arm and seed, the mean distance of the settled weights from 1/K on test replies; 0 where none are learned."""
    columns = [f"w_{name}" for name in COMPONENTS]
    told = results.components.dropna(subset=columns) if set(columns) <= set(results.components) else None
    if told is None or told.empty:
        return pd.DataFrame(columns=["arm", "seed", "moved"])
    away = np.abs(told[columns].to_numpy() - 1 / len(columns)).mean(axis=1)
    return told.assign(moved=away).groupby(["arm", "seed"], as_index=False)["moved"].mean()
