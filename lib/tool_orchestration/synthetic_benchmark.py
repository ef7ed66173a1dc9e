"""ToolOrchestra in worlds whose best choice is known: the lesson's reward, filters and objective, tiny policies.

A rollout is one call of one tool on a menu. What a tool is good at by kind of question, what it costs and how long it
takes are known, so that what a policy spends, and how far it stays behind the best, are sums over its probabilities
and not samples. All seeds train side by side, each in a world of its own, all variants on the same questions, users,
menus and dice. Normalisation, reward and filters are `rewards`, users are drawn by `menu`, the objective is
`lib.rl.losses`. Left out: several turns, office tasks, and a penalty for leaving the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.config import ROOT, ToolGlassSettings, ToolSettings
from lib.experiment import artifacts, results_table, seeds, sweep
from lib.rl import losses
from lib.tool_orchestration import rewards, tool_menu

VERSION = 1  # of the synthetic benchmark of tool orchestration
SYSTEM = "toolorchestra_glass"  # of the record
RUNS = ROOT / "data/runs/toolorchestra_glass"
KINDS = 4  # of questions
KNOWN = (
    "chains",
    "sums",
    "facts",
    "offices",
    "solid",
    "strong",
)  # a specialist a kind, then two generalists
NEW = ("newcomer", "bargain")  # on no menu of a training
TOOLS = (*KNOWN, *NEW)
JITTER = 0.2  # of price and time around what the menu says: calls differ in length
GRID = (
    0.0,
    0.25,
    0.5,
    0.75,
    1.0,
)  # weights on cost, and on latency, beside a weight of 1 on accuracy
STEADY = {f"cost {w:g}": tool_menu.UserPreference(1.0, w, 0.0) for w in GRID} | {
    f"latency {w:g}": tool_menu.UserPreference(1.0, 0.0, w) for w in GRID[1:]
}
USUAL, NEWCOMER, DEAR = "usual menus", "a newcomer on the menu", "unseen prices"
CONDITIONS = (USUAL, NEWCOMER, DEAR)

# Splits of the record, each a job, and the fields of the settings that it is handed.
TEST, ATLAS = "test", "atlas"
_READ_BY_BOTH = (
    "seeds", "updates", "groups", "rollouts", "epochs", "clip", "learning_rate", "menu", "spread", "observation_noise",
    "careless", "users", "menus", "least_deviation",
)  # fmt: skip
_READ = {
    TEST: (*_READ_BY_BOTH, "careless_updates", "prices", "test_users"),
    ATLAS: (*_READ_BY_BOTH, "spreads"),
}


@dataclass(frozen=True)
class SyntheticToolVariant:
    """One way to train. normalise: over the `group`, over the whole `batch`, or `published`, with the sign error;
    filtered: whether groups that agree are left out; strict: whether malformed rollouts are; reads: `descriptions` of
    tools, or `names` alone; varied: whether prices of the menus vary in training; careless: whether the start writes
    malformed calls at all."""

    name: str
    normalise: str = "group"
    filtered: bool = True
    strict: bool = True
    reads: str = "descriptions"
    varied: bool = True
    careless: bool = False


PAPER = SyntheticToolVariant("ToolOrchestra")
VARIANTS = (
    PAPER,
    SyntheticToolVariant("sign error", normalise="published"),
    SyntheticToolVariant("whole batch", normalise="batch"),
    SyntheticToolVariant("agreeing groups kept", filtered=False),
    SyntheticToolVariant("names only", reads="names"),
    SyntheticToolVariant("list prices only", varied=False),
)
CARELESS = (
    SyntheticToolVariant("failures left out", careless=True),
    SyntheticToolVariant("failures kept", strict=False, careless=True),
)


@dataclass(frozen=True)
class ToolWorlds:
    """One world for each of S seeds. success: (S, KINDS, tools), the chance that a tool is right; told: the same as
    menus describe it; list_prices: (S, tools, 2), dollars and seconds of a call, from 1 to the spread."""

    success: np.ndarray
    told: np.ndarray
    list_prices: np.ndarray

    @classmethod
    def drawn(cls, settings: ToolGlassSettings) -> ToolWorlds:
        """Worlds by lot: specialists .95 on their kind and .15 to .85 elsewhere, generalists .85 and .9 everywhere; the
        newcomer is .97 on a kind by lot, the bargain .85 everywhere and as cheap and as fast as anything."""
        parts = []
        for seed in range(settings.seeds):
            rng = seeds.rng("toolorchestra", "glass", "world", seed=seed)
            success = rng.uniform(0.15, 0.85, (KINDS, len(TOOLS)))
            success[range(KINDS), range(KINDS)] = 0.95
            success[:, KINDS : KINDS + 2] = 0.85, 0.9
            success[:, TOOLS.index("bargain")] = 0.85
            success[rng.integers(KINDS), TOOLS.index("newcomer")] = 0.97
            listed = settings.prices ** rng.random((len(TOOLS), 2))
            listed[TOOLS.index("bargain")] = 1.0
            told = success + settings.observation_noise * rng.standard_normal(success.shape)
            parts.append((success, told, listed))
        return cls(*(np.stack(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Menus:
    """n questions for each seed. kind: (S, n); tools: (S, n, M), which are on the menu; prices: (S, n, M, 2)."""

    kind: np.ndarray
    tools: np.ndarray
    prices: np.ndarray

    @classmethod
    def drawn(
        cls, worlds: ToolWorlds, settings: ToolGlassSettings, n: int, *name, condition: str = USUAL
    ) -> Menus:
        """Menus by lot, prices within a factor of the list; a newcomer takes one place, unseen prices are turned
        round: what was cheap is dear."""
        rng = seeds.rng("toolorchestra", "glass", *name)
        shape = (len(worlds.success), n)
        kind = rng.integers(KINDS, size=shape)
        tools = rng.random((*shape, len(KNOWN))).argsort(-1)[..., : settings.menu]
        if condition == NEWCOMER:
            tools[..., 0] = len(KNOWN) + rng.integers(len(NEW), size=shape)
        listed = worlds.list_prices if condition != DEAR else settings.prices / worlds.list_prices
        held = listed[np.arange(shape[0])[:, None, None], tools]
        return cls(kind, tools, held * settings.spread ** rng.uniform(-1, 1, held.shape))

    def of(self, table: np.ndarray) -> np.ndarray:
        """What a table (S, KINDS, tools) says of the tools on the menus, (S, n, M)."""
        first = np.arange(len(table))[:, None, None]
        return table[first, self.kind[..., None], self.tools]

    def listed(self, worlds: ToolWorlds) -> Menus:
        """The same at list prices."""
        return Menus(
            self.kind,
            self.tools,
            worlds.list_prices[np.arange(len(self.kind))[:, None, None], self.tools],
        )

    @cached_property
    def bargains(self) -> np.ndarray:
        """How cheap and how fast each tool is on its menu, (S, n, M, 2): the dearest 0, the cheapest 1."""
        low, high = (f(self.prices, axis=2, keepdims=True) for f in (np.min, np.max))
        return (high - self.prices) / (high - low)


def users(n: int, *name) -> np.ndarray:
    """n users as the lesson draws them, vectors P (n, tools + 3); what they like are known tools."""
    rng = seeds.rng("toolorchestra", "glass", *name)
    return np.stack([tool_menu.drawn_preference(rng, KNOWN).vector(TOOLS) for _ in range(n)])


# The policy ----------------------------------------------------------------------------------------


class ToolChoicePolicy:
    """Scores of the tools on a menu, linear in what it reads of them, with weights that are linear in the user.

    `descriptions`: of each tool [skill at this kind, cheapness, speed, liked], times [1, accuracy, cost, latency] of
    the user: 16 numbers a seed. `names`: a score for each kind, tool and entry of the user, and liked; what it never
    saw keeps 0. Both start at even chances. A call may be malformed, by one more number, where the variant is careless.

    The sums over seeds are written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.6 to 3 times as long for a
    training step of 32 policies (tests/benchmarks/test_seed_batched_speed.py).
    """

    def __init__(self, variant: SyntheticToolVariant, s: int, careless: float) -> None:
        """careless: the start's chance of a malformed call."""
        self.variant = variant
        shape = (s, 4, 4) if variant.reads == "descriptions" else (s, KINDS, 4, len(TOOLS))
        self.weights = torch.zeros(shape, requires_grad=True)
        self.liked = torch.zeros(s, requires_grad=True)
        self.slips = torch.full((s,), float(np.log(careless / (1 - careless))), requires_grad=True)
        self.parameters = [self.weights, self.liked, self.slips]

    def log_chances(self, worlds: ToolWorlds, menus: Menus, who: np.ndarray) -> Tensor:
        """Log-probabilities of the tools on the menus and of a malformed call, (S, n, M + 1). who: P, (S, n, k)."""
        user = torch.as_tensor(
            np.concatenate([np.ones_like(who[..., :1]), who[..., -3:]], -1), dtype=torch.float32
        )
        liked = np.take_along_axis(who, menus.tools, -1)
        if self.variant.reads == "descriptions":
            read = [menus.of(worlds.told), *np.moveaxis(-np.log2(menus.prices), -1, 0), liked]
            read = torch.as_tensor(np.stack(read, -1), dtype=torch.float32)
            # score_snm = sum_uf user_snu W_suf read_snmf: seed s, question n, place m on the menu
            scores = torch.einsum("snu,suf,snmf->snm", user, self.weights, read)
        else:
            first = torch.arange(len(who))[:, None]
            weights_of_kind = self.weights[first, torch.as_tensor(menus.kind)]  # (S, n, 4, tools)
            # score_snt = sum_u user_snu W_snut, for every tool t, of which those on the menu are taken
            scores_of_tools = torch.einsum("snu,snut->snt", user, weights_of_kind)
            scores = scores_of_tools.gather(-1, torch.as_tensor(menus.tools))
        scores = scores + self.liked[:, None, None] * torch.as_tensor(liked, dtype=torch.float32)
        if not self.variant.careless:
            return torch.nn.functional.pad(scores.log_softmax(-1), (0, 1), value=-torch.inf)
        slips = self.slips[:, None, None].expand(*scores.shape[:2], 1)
        fine = torch.nn.functional.logsigmoid(-slips) + scores.log_softmax(-1)
        return torch.cat([fine, torch.nn.functional.logsigmoid(slips)], -1)


# Training ------------------------------------------------------------------------------------------


def play(
    worlds: ToolWorlds, menus: Menus, chances: np.ndarray, rollouts: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rollouts of every question by the same dice for all variants. chances: log-probabilities, (S, n, M + 1). Returns
    what was chosen (S, n, G), places on the menu, M for a malformed call; and the vectors M, (S n G, tools + 3)."""
    rng = seeds.rng("toolorchestra", "glass", "dice", step)
    s, n, places = chances.shape
    gumbel = -np.log(-np.log(rng.random((s, n, rollouts, places))))
    chosen = (chances[:, :, None] + gumbel).argmax(-1)
    correct = rng.random(chosen.shape)
    lengths = rng.uniform(1 - JITTER, 1 + JITTER, (*chosen.shape, 2))
    called = chosen < places - 1
    place = np.minimum(chosen, places - 2)
    correct = called & (correct < np.take_along_axis(menus.of(worlds.success), place, -1))
    spent = np.take_along_axis(menus.prices, place[..., None], 2) * lengths * called[..., None]
    calls = called[..., None] & (
        np.take_along_axis(menus.tools, place, -1)[..., None] == np.arange(len(TOOLS))
    )
    flat = (
        calls.reshape(-1, len(TOOLS)),
        correct.ravel(),
        spent[..., 0].ravel(),
        spent[..., 1].ravel(),
    )
    return chosen, rewards.vectors(*flat)


def paid(
    variant: SyntheticToolVariant, m: np.ndarray, who: np.ndarray, s: int, rollouts: int
) -> np.ndarray:
    """What a variant pays, (S n G,). who: P of each question, (S, n, k)."""
    rows = len(m)
    groups = np.arange(rows) // (rows // s if variant.normalise == "batch" else rollouts)
    normalise = rewards.published if variant.normalise == "published" else rewards.normalised
    wanted = np.repeat(who.reshape(-1, who.shape[-1]), rollouts, axis=0)
    return rewards.reward(normalise(m, groups), wanted, m[:, -3])


def compute_advantages(reward: np.ndarray, is_kept: np.ndarray, rollouts: int) -> Tensor:
    """Advantages of GRPO over the rollouts that the filters keep.

    Args:
        reward: (groups G,) reward of each rollout, group after group.
        is_kept: (groups G,) bool, whether the filters keep the rollout.
        rollouts: G, rollouts of one question.

    Returns:
        (groups, G) advantages, 0 for rollouts that are not kept.
    """
    grouped_reward = torch.as_tensor(reward).view(-1, rollouts)
    kept = torch.as_tensor(is_kept).view(-1, rollouts)
    is_whole = kept.all(1)  # (groups,)
    advantages = torch.zeros_like(grouped_reward)

    # Groups of which all rollouts are kept, in one call: `compute_group_advantages` but for its epsilon.
    advantages[is_whole] = losses.whiten(grouped_reward[is_whole], 1, correction=1)

    is_in_ragged_group = kept & ~is_whole[:, None]
    group_ids = is_in_ragged_group.nonzero()[:, 0]
    advantages[is_in_ragged_group] = losses.compute_group_advantages(
        grouped_reward[is_in_ragged_group], group_ids
    )
    return advantages


def trained(
    variant: SyntheticToolVariant, worlds: ToolWorlds, settings: ToolGlassSettings, updates: int
) -> Iterator[tuple[int, ToolChoicePolicy]]:
    """One variant trained in every world at once: the step and the policy, before the first update and after each."""
    s, group = len(worlds.success), settings.rollouts
    policy = ToolChoicePolicy(variant, s, settings.careless)
    optimiser = torch.optim.Adam(policy.parameters, lr=settings.learning_rate)
    crowd = users(settings.users, "users")
    yield 0, policy
    for step in range(updates):
        menus = Menus.drawn(worlds, settings, settings.groups, "questions", step)
        menus = menus if variant.varied else menus.listed(worlds)
        rng = seeds.rng("toolorchestra", "glass", "who", step)
        who = crowd[rng.integers(len(crowd), size=menus.kind.shape)]
        with torch.no_grad():
            old = policy.log_chances(worlds, menus, who)
        played, m = play(worlds, menus, old.double().numpy(), group, step)
        malformed = played.ravel() == menus.tools.shape[-1]
        told = paid(variant, m, who, s, group)
        ids = np.arange(len(told)) // group
        counted = malformed if variant.strict else np.zeros(len(told), bool)
        kept = rewards.kept(
            told,
            ids,
            counted,
            np.ones(len(told), bool),
            settings.least_deviation * variant.filtered,
        )
        left = np.zeros(len(told), bool)
        left[kept.rows] = True
        advantages = compute_advantages(told, left, group).float().view(played.shape)
        chosen = torch.as_tensor(played)
        for _ in range(settings.epochs):
            new = policy.log_chances(worlds, menus, who)
            loss = -losses.compute_clipped_objective(
                new.gather(-1, chosen), old.gather(-1, chosen), advantages, settings.clip
            )
            optimiser.zero_grad()
            loss.mean(
                (1, 2)
            ).sum().backward()  # worlds do not share a weight, so their sum trains each alone
            optimiser.step()
        yield step + 1, policy


# What a policy is worth ----------------------------------------------------------------------------


def worth(worlds: ToolWorlds, menus: Menus, who: np.ndarray) -> np.ndarray:
    """What calling each tool on a menu is worth to a user, (S, n, M): its expected reward in a group that tries
    everything on the menu.

        U_t = p_t (P_accuracy + P_cost cheap_t + P_latency fast_t + P_t)

    The largest is the optimum, by enumeration. who: P, (S, n, k).
    """
    wanted = who[..., None, -3] + (menus.bargains * who[..., None, -2:]).sum(-1)
    return menus.of(worlds.success) * (wanted + np.take_along_axis(who, menus.tools, -1))


@dataclass(frozen=True)
class Sitting:
    """One user on the menus of one condition. who: P, (S, n, k); value: `worth`, top: its best place, (S, n, M)."""

    name: str
    condition: str
    menus: Menus
    who: np.ndarray
    value: np.ndarray
    top: np.ndarray


class ToolChoiceEvaluation:
    """The same menus and users for every variant and step, and what each choice there is worth."""

    def __init__(self, worlds: ToolWorlds, settings: ToolGlassSettings) -> None:
        self.worlds, self.sittings = worlds, []
        people = {name: one.vector(TOOLS) for name, one in STEADY.items()}
        people |= {
            f"user {i}": one for i, one in enumerate(users(settings.test_users, "test users"))
        }
        for condition in CONDITIONS:
            menus = Menus.drawn(
                worlds, settings, settings.menus, "tests", condition, condition=condition
            )
            for name, person in people.items():
                who = np.broadcast_to(person, (*menus.kind.shape, len(person)))
                value = worth(worlds, menus, who)
                self.sittings.append(Sitting(name, condition, menus, who, value, _sure(value)))

    @torch.no_grad()
    def rows(
        self,
        variant: str,
        policy: ToolChoicePolicy,
        step: int,
        conditions: Sequence[str] = CONDITIONS,
    ) -> pd.DataFrame:
        """One row for each seed, user and condition, see `_told`."""
        found = [
            self._told(
                one, policy.log_chances(self.worlds, one.menus, one.who).double().exp().numpy()
            )
            for one in self.sittings
            if one.condition in conditions
        ]
        return pd.concat(found, ignore_index=True).assign(
            method=variant, role="paper" if step else "start", step=step
        )

    def constants(self, conditions: Sequence[str] = CONDITIONS) -> pd.DataFrame:
        """The same for choices that learn nothing: `random`, the `best constant` (one order of the known tools, by mean
        worth over users and usual menus, of which the first on the menu is called), and the `optimum`."""
        order, out = self._order(), []
        for one in self.sittings:
            if one.condition not in conditions:
                continue
            ranks = order[np.arange(len(order))[:, None, None], one.menus.tools]
            even = np.full(one.value.shape, 1 / one.value.shape[-1])
            for variant, chances in (
                ("random", even),
                ("best constant", _sure(ranks)),
                ("optimum", one.top),
            ):
                told = self._told(one, np.pad(chances, ((0, 0), (0, 0), (0, 1))))
                out.append(
                    told.assign(
                        method=variant, role="oracle" if variant == "optimum" else "constant"
                    )
                )
        return pd.concat(out, ignore_index=True)

    def _order(self) -> np.ndarray:
        """Mean worth of each tool where it was on a usual menu, (S, tools); of those that never were, -1."""
        value = np.zeros((len(self.worlds.success), len(TOOLS)))
        count = np.zeros_like(value)
        for one in self.sittings:
            if one.condition == USUAL:
                first = np.broadcast_to(np.arange(len(value))[:, None, None], one.menus.tools.shape)
                np.add.at(value, (first, one.menus.tools), one.value)
                np.add.at(count, (first, one.menus.tools), 1)
        return np.divide(value, count, out=np.full_like(value, -1.0), where=count > 0)

    def _told(self, one: Sitting, chances: np.ndarray) -> pd.DataFrame:
        """Means over the menus of a sitting, by seed: right; dollars and seconds, over those of the menu's mean tool;
        reward (`worth`); regret, the optimum less that; best, the chance of the optimal tool; new, of calling a
        newcomer where it is the optimum, less where it is not; liked, of tools that the user likes, over even chances;
        slips, of a malformed call. chances: (S, n, M + 1)."""
        slips, chances = chances[..., -1], chances[..., :-1]
        relative = one.menus.prices / one.menus.prices.mean(2, keepdims=True)
        spent = np.einsum("snm,snmc->sc", chances, relative) / chances.shape[1]
        reward = (chances * one.value).sum(-1)
        fresh = one.menus.tools >= len(KNOWN)
        called, should = (chances * fresh).sum(-1), (one.top * fresh).any(-1)
        here = [
            np.where(mask, called, 0).sum(1) / np.maximum(mask.sum(1), 1)
            for mask in (should, ~should)
        ]
        wished = np.take_along_axis(one.who, one.menus.tools, -1) > 0
        correct = (chances * one.menus.of(self.worlds.success)).sum(-1)
        return pd.DataFrame(
            {
                "seed": np.arange(len(chances)),
                "item": one.name,
                "condition": one.condition,
                "correct": correct.mean(1),
                "cost_usd": spent[:, 0],
                "seconds": spent[:, 1],
                "reward": reward.mean(1),
                "regret": (one.value.max(-1) - reward).mean(1),
                "best": (chances * one.top).sum(-1).mean(1),
                "new": here[0] - here[1],
                "liked": ((chances * wished).sum(-1) - wished.mean(-1)).mean(1),
                "slips": slips.mean(1),
            }
        )


def _sure(value: np.ndarray) -> np.ndarray:
    """Certainty of the largest entry of the last axis; of equals the first."""
    return np.eye(value.shape[-1])[value.argmax(-1)]


# The study -----------------------------------------------------------------------------------------


def versions() -> dict[str, int]:
    """The VERSIONs of the code that decides what policies reach."""
    return {
        "random streams": seeds.VERSION,
        "losses": losses.VERSION,
        "tool menus": tool_menu.VERSION,
        "preference rewards": rewards.VERSION,
        "synthetic benchmark of tools": VERSION,
    }


def make_jobs(settings: ToolGlassSettings) -> list[sweep.Job]:
    """One job for each split of the record."""
    return [sweep.Job(split, _job_settings(split, settings)) for split in (TEST, ATLAS)]


def _job_settings(split: str, settings: ToolGlassSettings) -> dict[str, Any]:
    return {
        "job": "synthetic benchmark",
        "split": split,
        "glass": settings.to_job_settings(*_READ[split]),
        "libraries": {"torch": torch.__version__},
        "versions": versions(),
    }


def run(settings: ToolSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """Every variant in every world, and the map, what is not done yet: a record. Split `test`: see `study`; `atlas`:
    see there. weight: of a user on a grid, on what `group` says."""
    jobs = make_jobs(settings.glass)
    sweep.run(work, jobs, runs, settings.jobs, "a world of tools")
    rows = pd.concat([artifacts.read_parquet(job.folder(runs) / "rows.parquet") for job in jobs])
    words = rows["item"].str.split()
    return results_table.make_results(
        SYSTEM, rows.assign(backend="policy", group=words.str[0], weight=words.str[1].astype(float))
    )


def work(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> None:
    """One split of the record; leaves its rows in `folder`."""
    torch.set_num_threads(1)
    settings = ToolGlassSettings.from_job_settings(job.settings["glass"])
    split = job.settings["split"]
    rows = {TEST: study, ATLAS: atlas}[split](settings, progress)
    artifacts.write_parquet(folder / "rows.parquet", rows.assign(split=split))


def study(settings: ToolGlassSettings, progress: sweep.JobProgress) -> pd.DataFrame:
    """Every variant in every world. step: updates done, 0 at the start. The paper's variant is judged on the way, on
    usual menus, and at its end; the others at their end."""
    worlds = ToolWorlds.drawn(settings)
    judge, every = ToolChoiceEvaluation(worlds, settings), (*VARIANTS, *CARELESS)
    parts = []
    for i, variant in enumerate(every):
        progress(i / len(every))
        last = settings.careless_updates if variant.careless else settings.updates[-1]
        everywhere = () if variant.careless else (0, last) if variant == PAPER else (last,)
        usual = (0, last) if variant.careless else settings.updates if variant == PAPER else ()
        for step, policy in trained(variant, worlds, settings, last):
            if step in everywhere or step in usual:
                parts.append(
                    judge.rows(
                        variant.name, policy, step, CONDITIONS if step in everywhere else (USUAL,)
                    )
                )
    parts.append(judge.constants().assign(step=settings.updates[-1]))
    return pd.concat(parts, ignore_index=True)


def atlas(settings: ToolGlassSettings, progress: sweep.JobProgress) -> pd.DataFrame:
    """How steering grows with what is to be gained and with updates: the paper's variant on usual menus, by
    step and by how far list prices lie apart (column prices); beside it the optimum, at step 0."""
    parts = []
    for i, prices in enumerate(settings.spreads):
        progress(i / len(settings.spreads))
        told = settings.model_copy(update={"prices": prices, "test_users": 1})
        worlds = ToolWorlds.drawn(told)
        judge, training = (
            ToolChoiceEvaluation(worlds, told),
            trained(PAPER, worlds, told, settings.updates[-1]),
        )
        found = [
            judge.rows(PAPER.name, held, step, (USUAL,))
            for step, held in training
            if step in settings.updates
        ]
        best = judge.constants((USUAL,)).query("method == 'optimum'").assign(step=0)
        parts += [part.assign(prices=prices) for part in (*found, best)]
    return pd.concat(parts, ignore_index=True)


def slope(points: np.ndarray) -> float:
    """Of the second column over the first, by least squares; (n, 2)."""
    x, y = points[:, 0], points[:, 1]
    return float(((x - x.mean()) * y).sum() / ((x - x.mean()) ** 2).sum())
