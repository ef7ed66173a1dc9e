"""ARC in a world whose every configuration is known: all 41,904 structures with what they bring by kind of question.

A chance to be right is a logit: main effects of workflow, tools, budgets and atoms, and what the kind of question
changes in them, which is the knob `interaction`; `noise` is its temperature, from settled to a coin. Calls and tokens
have their prices. Reward, space, masks, policies, PPO, elite and imitation are those of the lesson; what is small are
the world and the networks, many of which train side by side (`Stacked`). The optimum and the best constant are exact.
Left out: agents that talk, and questions that are hard to tell apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.agent_configuration import (
    action_space,
    batched_policies,
    policies,
    policy_updates,
    questions,
    rewards,
)
from lib.agent_configuration.action_space import AGENTS, SUBSETS, TOOLS, WORKFLOWS
from lib.agent_configuration.batched_policies import BatchedPolicyTrainer, ManyParts
from lib.agent_configuration.batched_policies import prompts as stacked_prompts
from lib.agent_configuration.policies import PromptPolicy
from lib.agent_configuration.policy_updates import EpisodeBatch, Rules
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.variants import AUTOREGRESSIVE, BANDIT, HIERARCHY, MDP
from lib.config import ROOT, ConfigurationGlassSettings, ConfigurationSettings
from lib.experiment import artifacts, results_table, seeds, sweep
from lib.rl import losses

VERSION = 2  # of the worlds, and how policies do in them
SYSTEM = "configuration_glass"  # of the record
RUNS = ROOT / "data/runs/configuration_glass"
ATOMS = 3  # of each agent; as many as it may be told, so that the best set is every atom that helps
CALLS = np.array(  # of each agent, (workflows, 3): the least of `workflows.CALLS`, by who makes them there
    [
        [1, 0, 0],
        [1, 0, 1],
        [1, 1, 1],
        [0.5, 0.5, 2],
        [1, 1, 2],
        [3, 0, 1],
        [1, 2, 1],
        [2, 1, 1],
        [1, 2, 1],
    ]
)
WRITTEN = 0.5  # of a budget that a call uses up
PRESENT = np.array(
    [[agent in action_space.agents(name) for agent in range(len(AGENTS))] for name in WORKFLOWS]
)
BITS = np.array([[bits >> i & 1 for i in range(len(TOOLS))] for bits in range(SUBSETS)], bool)
ROLES = np.kron(
    np.eye(len(AGENTS), dtype=bool), np.ones((1, ATOMS), bool)
)  # which agent may be told which atom


@dataclass(frozen=True)
class SyntheticConfigurationVariant:
    """One way to train.

    Attributes:
        name: In tables.
        kind: Of `variants.POLICY_KINDS`.
        masked: Whether choices that the workflow lacks are excluded.
        gamma: The discount; None for that of the settings.
    """

    name: str
    kind: str = HIERARCHY
    masked: bool = True
    gamma: float | None = None


ARC, UNDISCOUNTED = (
    SyntheticConfigurationVariant("ARC without SFT"),
    SyntheticConfigurationVariant("ARC, no discount", gamma=1.0),
)
VARIANTS = (
    ARC,
    UNDISCOUNTED,
    SyntheticConfigurationVariant("ARC without masks", masked=False),
    SyntheticConfigurationVariant("flat bandit", kind=BANDIT),
    SyntheticConfigurationVariant("flat autoregressive", kind=AUTOREGRESSIVE),
    SyntheticConfigurationVariant("flat MDP", kind=MDP),
)
NAMED = {
    variant.name.replace(",", "").replace(" ", "-").lower(): variant for variant in VARIANTS
}  # by the label of its job

# Kinds of jobs, and the fields of the settings `glass` that each reads.
ATLAS, ENUMERATED, LOOKS = "map of worlds", "best constant and optimum", "training and evaluation"
_CENTRAL_WORLDS = ("seeds", "interaction", "noise", "eval_points")
_POLICIES = (
    "seeds", "batch", "hidden", "observation_noise", "structure_rate", "prompt_rate", "states",
)  # fmt: skip
_IMITATION = ("sft_after", "sft_rate", "sft_prompt_rate", "sft_batch")
_FIELDS = {
    ATLAS: (*_POLICIES, "interactions", "noises", "map_seeds", "map_episodes", "map_every"),
    ENUMERATED: _CENTRAL_WORLDS,
    LOOKS: (*_CENTRAL_WORLDS, *_POLICIES, "num_samples"),
}


# The world -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What structures set up, whatever the question. workflow: (n,); present: (n, 3); tools: (n, 2, 4), of agents that
    are there; tiers: (n, 3); steps, tokens, allocated: (n,)."""

    workflow: np.ndarray
    present: np.ndarray
    tools: np.ndarray
    tiers: np.ndarray
    steps: np.ndarray
    tokens: np.ndarray
    allocated: np.ndarray

    @classmethod
    def of(cls, structures: np.ndarray, budgets: Sequence[int]) -> Shape:
        """structures: (n, 6), valid ones; budgets: tokens of the three tiers."""
        workflow, tiers = structures[:, 0], structures[:, 3:6]
        tools = BITS[structures[:, 1:3]] & PRESENT[workflow][:, :2, None]
        tokens = WRITTEN * (CALLS[workflow] * np.asarray(budgets)[tiers]).sum(1)
        return cls(
            workflow,
            PRESENT[workflow],
            tools,
            tiers,
            CALLS[workflow].sum(1),
            tokens,
            tools.sum((1, 2)),
        )

    def rows(self, at: np.ndarray) -> Shape:
        return Shape(*(getattr(self, field.name)[at] for field in fields(self)))


@dataclass(frozen=True)
class ConfigurationWorlds:
    """R worlds. workflow: (R, kinds, 9); tools: (R, kinds, 4), what an agent that has it wins; budgets: (R, kinds, 3,
    3), by agent and tier; atoms: (R, kinds, 3, ATOMS); base: of the logit; noise: (R,), its temperature."""

    workflow: np.ndarray
    tools: np.ndarray
    budgets: np.ndarray
    atoms: np.ndarray
    noise: np.ndarray
    settings: ConfigurationSettings
    base: float = -1.0

    def __len__(self) -> int:
        return len(self.noise)

    @classmethod
    def drawn(
        cls, settings: ConfigurationSettings, seed: int, interaction: float, noise: float
    ) -> ConfigurationWorlds:
        """One world by lot. Main effects have deviation .7 for workflows and .5 for the rest; what the kind changes has
        as much times `interaction`, and sums to nothing over the kinds. More tokens help, less and less."""
        rng, kinds = seeds.rng("configuration", "glass", "world", seed=seed), len(KINDS)

        def effects(deviation: float, *shape: int) -> np.ndarray:
            main, by_kind = rng.standard_normal(shape), rng.standard_normal((kinds, *shape))
            return deviation * (main + interaction * (by_kind - by_kind.mean(0)))[None]

        budgets = effects(0.3, 3, 3) + np.array([0.0, 0.4, 0.5])
        return cls(
            effects(0.7, len(WORKFLOWS)),
            effects(0.5, len(TOOLS)),
            budgets,
            effects(0.5, 3, ATOMS),
            np.array([noise]),
            settings,
        )

    @classmethod
    def together(cls, worlds: Sequence[ConfigurationWorlds]) -> ConfigurationWorlds:
        """Several as one, in order."""
        names = ("workflow", "tools", "budgets", "atoms", "noise")
        return replace(
            worlds[0],
            **{name: np.concatenate([getattr(w, name) for w in worlds]) for name in names},
        )

    def shape(self, structures: np.ndarray) -> Shape:
        return Shape.of(structures, self.settings.tiers)

    def logit(self, run: np.ndarray, kind: np.ndarray, shape: Shape) -> np.ndarray:
        """Without atoms, (n,). run, kind: (n,), or numbers for all."""
        tools = (shape.tools.any(1) * self.tools[run, kind]).sum(-1)
        budgets = np.broadcast_to(self.budgets[run, kind], (len(shape.workflow), 3, 3))
        budgets = np.take_along_axis(budgets, shape.tiers[..., None], 2)[..., 0]
        workflow = np.broadcast_to(self.workflow[run, kind], (len(shape.workflow), len(WORKFLOWS)))
        workflow = workflow[np.arange(len(shape.workflow)), shape.workflow]
        return self.base + workflow + tools + (shape.present * budgets).sum(-1)

    def chance(
        self, run: np.ndarray, kind: np.ndarray, shape: Shape, told: np.ndarray
    ) -> np.ndarray:
        """p, (n,): of a right answer. told: (n, 3, ATOMS) bool."""
        atoms = (shape.present[..., None] * told * self.atoms[run, kind]).sum((1, 2))
        return 1 / (1 + np.exp(-(self.logit(run, kind, shape) + atoms) / self.noise[run]))

    def reward(
        self, correct: np.ndarray, run: np.ndarray, kind: np.ndarray, shape: Shape
    ) -> np.ndarray:
        """R of eq. 3, the lesson's; of a chance its expectation, since R is linear in being right. Tools that help
        with the kind are the ones that agents use."""
        used = (shape.tools * (self.tools[run, kind] > 0)[..., None, :]).sum((-1, -2))
        most, told = (
            3.0 * max(self.settings.tiers),
            rewards.Weights(**self.settings.reward.model_dump()),
        )
        return rewards.reward(correct, shape.steps, shape.tokens, used, shape.allocated, most, told)


@cache
def _every(budgets: tuple[int, ...]) -> Shape:
    return Shape.of(action_space.structures(), budgets)


@dataclass(frozen=True)
class Bounds:
    """By enumeration of every structure with every set of atoms. optimum: (R, kinds), the most for each kind; constant:
    (R, kinds), what the one configuration with the best mean over kinds gets; structure: (R, 6), and told: (R, 3,
    ATOMS), which that is; best: (R, kinds), the optimal workflow."""

    optimum: np.ndarray
    constant: np.ndarray
    structure: np.ndarray
    told: np.ndarray
    best: np.ndarray


def bounds(worlds: ConfigurationWorlds) -> Bounds:
    """What nobody can exceed, and the best that needs no choice, of every world."""
    found = [_bounded(worlds, run) for run in range(len(worlds))]
    return Bounds(*(np.stack(part) for part in zip(*found, strict=True)))


_CHUNK = 64  # structures that are tried with all atoms at once


def _bounded(worlds: ConfigurationWorlds, run: int) -> tuple[np.ndarray, ...]:
    """One world's `Bounds`. For the constant, structures are tried in the order of what each would get if every kind
    had its own atoms, until not even that beats what was found: exact, without trying all 41,904 x 512."""
    every, kinds, noise = _every(tuple(worlds.settings.tiers)), range(len(KINDS)), worlds.noise[run]
    z = np.stack([worlds.logit(run, k, every) for k in kinds])
    gain = np.maximum(worlds.atoms[run], 0).sum(-1)  # (kinds, 3): of every atom that helps

    def expected(logit: np.ndarray, k: int, shape: Shape) -> np.ndarray:
        return worlds.reward(1 / (1 + np.exp(-logit / noise)), run, k, shape)

    own = np.stack([expected(z[k] + every.present @ gain[k], k, every) for k in kinds])
    sets = np.array(list(itertools.product([False, True], repeat=ATOMS)))  # (8, ATOMS)
    worth = np.einsum("sa,kra->krs", sets, worlds.atoms[run])  # of each set of atoms, (kinds, 3, 8)
    order, best, found = np.argsort(-own.mean(0), kind="stable"), -np.inf, (0, 0, 0, 0)
    for at in range(0, len(order), _CHUNK):
        rows = order[at : at + _CHUNK]
        if own[:, rows[0]].mean() <= best:
            break
        shape, total = every.rows(rows), 0.0
        for k in kinds:
            a, b, c = (shape.present[:, i, None] * worth[k, i] for i in range(3))
            logit = (
                z[k, rows, None, None, None]
                + a[:, :, None, None]
                + b[:, None, :, None]
                + c[:, None, None, :]
            )
            fixed, slope = (worlds.reward(np.full(len(rows), x), run, k, shape) for x in (0.0, 1.0))
            p = 1 / (1 + np.exp(-logit / noise))
            total = total + fixed[:, None, None, None] + (slope - fixed)[:, None, None, None] * p
        if total.max() / len(KINDS) > best:
            place = np.unravel_index(total.argmax(), total.shape)
            best, found = total.max() / len(KINDS), (rows[place[0]], *place[1:])
    structure, told = action_space.structures()[found[0]], sets[list(found[1:])]
    chosen = Shape.of(structure[None], worlds.settings.tiers)
    constant = [
        worlds.reward(worlds.chance(run, k, chosen, told[None]), run, k, chosen)[0] for k in kinds
    ]
    return own.max(1), np.array(constant), structure, told, every.workflow[own.argmax(1)]


# Training ------------------------------------------------------------------------------------------


@dataclass
class TrainedPolicies:
    """Policies of R trainings with everything that they were paid for: batches and whether each was right."""

    structure: ManyParts
    prompt: PromptPolicy | None
    buffer: list[tuple[EpisodeBatch, np.ndarray]]

    @torch.no_grad()
    def decide(
        self, states: Tensor, dice: torch.Generator | None
    ) -> tuple[np.ndarray, np.ndarray, EpisodeBatch]:
        """Structures (n, 6), told (n, 3, ATOMS) bool, and what is needed to learn from them; without dice the
        likeliest."""
        drawn = self.structure.draw(states, dice)
        structures, steps = drawn.actions.numpy()[:, :6], None
        if self.prompt is not None:
            _, steps = self.prompt.draw(states, drawn.actions, dice)
            told = np.zeros((len(states), ROLES.shape[1]), bool)
            going = steps.actions != self.prompt.stop
            told[steps.episode[going].numpy(), steps.actions[going].numpy()] = True
            told = told.reshape(-1, len(AGENTS), ATOMS)
        else:
            told = _flat_atoms(drawn.actions.numpy()[:, 6:])
        empty = torch.zeros(len(states))
        batch = EpisodeBatch(
            states, drawn.actions, drawn.logp, steps, empty, empty, part_logp=drawn.part_logp
        )
        return _repaired(structures), told, batch


def _repaired(structures: np.ndarray) -> np.ndarray:
    """`space.repaired` of many, (n, 6): pinned parts are 0."""
    allowed = [
        action_space.mask()[name][structures[:, 0], structures[:, i]]
        for i, name in enumerate(action_space.DIMENSIONS)
    ]
    return np.where(np.stack(allowed, 1), structures, 0)


def _flat_atoms(picked: np.ndarray) -> np.ndarray:
    """What the last parts of a flat action tell whom, (n, 3, ATOMS) bool: 0 is none, others' atoms are ignored."""
    slots = picked.reshape(-1, len(AGENTS), action_space.MAX_ATOMS)
    named = (slots[..., None] == 1 + np.arange(ROLES.shape[1])).any(2)  # (n, agents, atoms)
    return (named & ROLES).reshape(-1, len(AGENTS), len(AGENTS), ATOMS).sum(2).astype(bool)


def untrained(
    variant: SyntheticConfigurationVariant, runs: int, settings: ConfigurationGlassSettings
) -> TrainedPolicies:
    """The policies of a variant before any reward; each training has first weights of its own."""
    inputs, structures, prompts = len(KINDS), [], []
    for run in range(runs):
        with torch.random.fork_rng():
            torch.manual_seed(
                int(seeds.key("configuration", "weights", seed=run % settings.seeds) >> 1)
            )
            if variant.kind == HIERARCHY:
                structures.append(
                    policies.structure_policy(inputs, variant.masked, settings.hidden)
                )
                prompts.append(PromptPolicy(inputs, ROLES, settings.hidden))
            else:
                make_policy = policies.bandit if variant.kind == BANDIT else policies.autoregressive
                structures.append(make_policy(inputs, ROLES, settings.hidden))
    return TrainedPolicies(
        ManyParts.of(structures), stacked_prompts(prompts) if prompts else None, []
    )


def _states(run: np.ndarray, kind: np.ndarray, noise: np.ndarray) -> Tensor:
    """[training ; kind, with noise], (n, 1 + kinds)."""
    seen = np.eye(len(KINDS))[kind] + noise
    return torch.from_numpy(np.concatenate([run[:, None], seen], 1).astype(np.float32))


def trained(
    variant: SyntheticConfigurationVariant,
    worlds: ConfigurationWorlds,
    episodes: int,
    after: Callable[[int, TrainedPolicies], None] = lambda episode, policy: None,
) -> TrainedPolicies:
    """Train one variant in every world; after(episodes so far, policies) is called at the start and after each update.
    All variants meet the same questions by the same dice."""
    settings, runs = worlds.settings, len(worlds)
    box, ppo = settings.glass, settings.ppo
    found = untrained(variant, runs, box)
    inputs = len(KINDS)
    if variant.kind == MDP:
        inputs = policy_updates.count_step_inputs(inputs, found.structure.sizes)
    with torch.random.fork_rng():
        torch.manual_seed(int(seeds.key("configuration", "values") >> 1))
        structure_trainer = BatchedPolicyTrainer.made(
            found.structure, inputs, box.structure_rate, runs, box.hidden
        )
        prompt_trainer = None
        if found.prompt is not None:
            prompt_trainer = BatchedPolicyTrainer.made(
                found.prompt, found.prompt.inputs, box.prompt_rate, runs, box.hidden
            )
    rules = Rules(
        clip=ppo.clip,
        gamma=ppo.gamma if variant.gamma is None else variant.gamma,
        entropy=ppo.entropy,
        value=ppo.value,
        max_grad_norm=ppo.max_grad_norm,
        epochs=ppo.epochs,
        stepwise=variant.kind == MDP,
    )
    run = np.repeat(np.arange(runs), box.batch)
    after(0, found)
    for update in range(episodes // box.batch):
        rng = seeds.rng("configuration", "glass", "questions", seed=update)
        share = (
            rng.integers(len(KINDS), size=box.batch),
            box.observation_noise * rng.standard_normal((box.batch, len(KINDS))),
        )
        lots = rng.random(box.batch)
        kind, noise, lot = (np.concatenate([part] * runs) for part in (*share, lots))
        dice = seeds.torch_generator("configuration", "glass", "choices", seed=update)
        structures, told, batch = found.decide(_states(run, kind, noise), dice)
        shape = worlds.shape(structures)
        correct = lot < worlds.chance(run, kind, shape, told)
        paid = torch.from_numpy(worlds.reward(correct, run, kind, shape).astype(np.float32))
        batch = replace(
            batch, rewards=paid, groups=torch.from_numpy(kind), runs=torch.from_numpy(run)
        )
        policy_updates.update(structure_trainer, prompt_trainer, batch, rules)
        found.buffer.append((batch, correct))
        after((update + 1) * box.batch, found)
    return found


# Imitation -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elite:
    """chosen: (n,) bool over the whole buffer; tau: (R, kinds), the threshold that each kind had."""

    chosen: np.ndarray
    tau: np.ndarray


def elite(whole: EpisodeBatch, correct: np.ndarray, share: float, by_kind: bool) -> Elite:
    """`learn.elite` of each training: one threshold for all questions, or one for each kind."""
    run, kind, paid = (x.numpy() for x in (whole.runs, whole.groups, whole.rewards))
    tau, chosen = np.zeros((run.max() + 1, len(KINDS))), np.zeros(len(run), bool)
    for r in range(len(tau)):
        for ks in [[k] for k in range(len(KINDS))] if by_kind else [list(range(len(KINDS)))]:
            rows = np.flatnonzero((run == r) & np.isin(kind, ks))
            some, tau[r, ks] = policy_updates.elite(correct[rows], paid[rows], share)
            chosen[rows[some]] = True
    return Elite(chosen, tau)


def imitated(
    found: TrainedPolicies, whole: EpisodeBatch, chosen: np.ndarray, settings: ConfigurationSettings
) -> TrainedPolicies:
    """SFT of all trainings on their elites, structures and prompts each on its own decisions (ARC, eq. 6)."""
    box = settings.glass
    runs = int(whole.runs.max()) + 1
    arrays = [
        {k: v.clone() for k, v in module.state_dict().items()}
        for module in (found.structure, found.prompt)
    ]
    twin = untrained(ARC, runs, box)
    for module, held in zip((twin.structure, twin.prompt), arrays, strict=True):
        module.load_state_dict(held)
    rows = np.flatnonzero(chosen)
    side = BatchedPolicyTrainer.made(
        twin.structure, len(KINDS), box.sft_rate, runs, box.hidden, valued=False
    )
    _epochs(
        side,
        whole.runs.numpy()[rows],
        settings,
        lambda at: (whole.states[rows[at]], whole.structures[rows[at]]),
    )
    steps = whole.steps.rows(torch.from_numpy(chosen)[whole.steps.episode])
    side = BatchedPolicyTrainer.made(
        twin.prompt, twin.prompt.inputs, box.sft_prompt_rate, runs, box.hidden, valued=False
    )
    whose = whole.runs[steps.episode].numpy()
    _epochs(side, whose, settings, lambda at: (steps.rows(torch.from_numpy(at)),))
    return twin


def _epochs(
    side: BatchedPolicyTrainer, whose: np.ndarray, settings: ConfigurationSettings, judged: Callable
) -> None:
    """Every training goes through its own rows in an order by lot; their batches are put together."""
    box, sft = settings.glass, settings.sft
    for epoch in range(sft.epochs):
        order = seeds.rng("configuration", "glass", "sft", epoch).permutation(len(whose))
        order = order[np.argsort(whose[order], kind="stable")]
        counts = np.bincount(whose)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        parts = [
            order[rank // box.sft_batch == i] for i in range(-(-counts.max() // box.sft_batch))
        ]
        policy_updates.imitate(
            side, [judged(part) for part in parts], sft.entropy, sft.max_grad_norm
        )


# What a policy is worth ----------------------------------------------------------------------------


class ConfigurationEvaluation:
    """The same questions for every variant and look."""

    def __init__(self, worlds: ConfigurationWorlds) -> None:
        self.worlds, self.box = worlds, worlds.settings.glass
        runs, kinds, states = len(worlds), len(KINDS), self.box.states
        self.run = np.repeat(np.arange(runs), kinds * states)
        self.kind = np.tile(np.repeat(np.arange(kinds), states), runs)
        rng = seeds.rng("configuration", "glass", "tests")
        noise = self.box.observation_noise * rng.standard_normal((kinds * states, kinds))
        self.states = _states(self.run, self.kind, np.concatenate([noise] * runs))

    def likeliest(self, found: TrainedPolicies) -> np.ndarray:
        """The exact expected reward of the likeliest choices, (R, kinds)."""
        structures, told, _ = found.decide(self.states, None)
        return self._by_kind(self._worth(structures, told)[0])

    def _worth(self, structures: np.ndarray, told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = self.worlds.shape(structures)
        correct = self.worlds.chance(self.run, self.kind, shape, told)
        return self.worlds.reward(correct, self.run, self.kind, shape), correct

    def _by_kind(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(self.worlds), len(KINDS), -1).mean(-1)

    def rows(
        self, variant: str, found: TrainedPolicies, step: int, kept: Elite | None = None, whole=None
    ) -> pd.DataFrame:
        """One row for each training and kind of question: reward, right, asked (calls) and instructions of the
        likeliest choices, the workflow chosen most; drawn: the reward under dice. Of an imitating policy also `margin`,
        drawn less the threshold tau, and `outside`, the share of its draws that no elite episode has."""
        structures, told, _ = found.decide(self.states, None)
        reward, correct = self._worth(structures, told)
        present, asked = PRESENT[structures[:, 0]], CALLS[structures[:, 0]].sum(1)
        drawn, outside = self._drawn(found, None if kept is None else _known(whole, kept))
        held = {
            "reward": self._by_kind(reward),
            "correct": self._by_kind(correct),
            "drawn": drawn,
            "asked": self._by_kind(asked),
            "instructions": self._by_kind((told.sum(-1) * present).sum(-1)),
        } | ({} if kept is None else {"margin": drawn - kept.tau, "outside": outside})
        by_kind = structures[:, 0].reshape(len(self.worlds) * len(KINDS), -1)
        chosen = np.array([np.bincount(each).argmax() for each in by_kind])
        return _framed(held, chosen).assign(
            method=variant, role="paper" if step else "start", step=step
        )

    def _drawn(self, found: TrainedPolicies, known: set | None) -> tuple[np.ndarray, np.ndarray]:
        total, out = 0.0, 0.0
        for i in range(self.box.num_samples):
            dice = seeds.torch_generator("configuration", "glass", "looks", seed=i)
            structures, told, _ = found.decide(self.states, dice)
            total = total + self._by_kind(self._worth(structures, told)[0])
            if known is not None:
                names = _names(self.run, self.kind, structures, told)
                out = out + self._by_kind(np.array([name not in known for name in names], float))
        return total / self.box.num_samples, out / self.box.num_samples


def _framed(held: dict[str, np.ndarray], workflow: np.ndarray) -> pd.DataFrame:
    """Numbers by training and kind, (R, kinds) each, as rows."""
    runs, kinds = np.indices(next(iter(held.values())).shape).reshape(2, -1)
    rows = pd.DataFrame({name: np.asarray(value, float).ravel() for name, value in held.items()})
    kind = [
        KINDS[k].name for k in kinds
    ]  # of its own world: what a kind asks for is drawn anew in each
    item = [f"world {r}, {name}" for r, name in zip(runs, kind, strict=True)]
    return rows.assign(
        seed=runs, item=item, condition=kind, workflow=[WORKFLOWS[w] for w in workflow]
    )


def enumerated(worlds: ConfigurationWorlds, step: int) -> pd.DataFrame:
    """The best constant and the optimum, as `ConfigurationEvaluation.rows`."""
    found = bounds(worlds)
    one = np.repeat(found.structure[:, 0], len(KINDS))
    constant = _framed({"reward": found.constant}, one).assign(
        method="best constant", role="constant"
    )
    optimum = _framed({"reward": found.optimum}, found.best.ravel()).assign(
        method="optimum", role="oracle"
    )
    return pd.concat([constant, optimum], ignore_index=True).assign(step=step)


def _names(
    run: np.ndarray, kind: np.ndarray, structures: np.ndarray, told: np.ndarray
) -> list[bytes]:
    """Every choice in its world and kind, as bytes."""
    told = told.reshape(len(told), -1) & np.repeat(PRESENT[structures[:, 0]], ATOMS, axis=1)
    rows = np.concatenate([run[:, None], kind[:, None], structures, told], 1).astype(np.int16)
    return [row.tobytes() for row in rows]


def _known(whole: EpisodeBatch, kept: Elite) -> set[bytes]:
    """The choices of the elite, by world and kind."""
    rows = np.flatnonzero(kept.chosen)
    told = np.zeros((len(whole), ROLES.shape[1]), bool)
    going = whole.steps.actions < ROLES.shape[1]
    told[whole.steps.episode[going].numpy(), whole.steps.actions[going].numpy()] = True
    structures = _repaired(whole.structures.numpy()[:, :6])
    return set(
        _names(*(x[rows] for x in (whole.runs.numpy(), whole.groups.numpy(), structures, told)))
    )


# The study -----------------------------------------------------------------------------------------


def run(settings: ConfigurationSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """Every variant in every world and the map, what is not done yet: a record. Split `test`: looks at the variants by
    step, which are episodes; imitation from ARC's buffer; the best constant and the optimum, and the regret against
    that. Split `atlas`: see `atlas`."""
    jobs = make_jobs(settings)
    sweep.run(work, jobs, runs, settings.jobs, "a world of configurations")
    rows = pd.concat(
        [artifacts.read_parquet(job.folder(runs) / "rows.parquet") for job in jobs],
        ignore_index=True,
    )
    best = rows[rows["method"] == "optimum"].set_index(["seed", "item"])["reward"]
    test = rows["split"] == "test"
    places = pd.MultiIndex.from_frame(rows.loc[test, ["seed", "item"]])
    rows.loc[test, "regret"] = best.reindex(places).to_numpy() - rows.loc[test, "reward"].to_numpy()
    return results_table.make_results(SYSTEM, rows.assign(backend="policy"))


def make_jobs(settings: ConfigurationSettings) -> list[sweep.Job]:
    """The map, the enumeration, and one job for each variant."""
    jobs = [
        sweep.Job("atlas", _make_settings(settings, ATLAS, _FIELDS[ATLAS], ("ppo",))),
        sweep.Job("enumerated", _make_settings(settings, ENUMERATED, _FIELDS[ENUMERATED])),
    ]
    for label, variant in NAMED.items():
        glass_fields, sections = _FIELDS[LOOKS], ("ppo",)
        if variant == ARC:  # the only one that imitates its elite
            glass_fields, sections = (*glass_fields, *_IMITATION), ("ppo", "sft")
        decided_by = _make_settings(settings, LOOKS, glass_fields, sections)
        jobs.append(sweep.Job(label, decided_by | {"variant": asdict(variant)}))
    return jobs


def _make_settings(
    settings: ConfigurationSettings,
    kind: str,
    glass_fields: Sequence[str],
    sections: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "job": kind,
        "configuration": settings.to_job_settings("tiers", "reward", *sections),
        "glass": settings.glass.to_job_settings(*glass_fields),
        "versions": versions(kind),
    }


def versions(kind: str) -> dict[str, int]:
    """The VERSIONs of the code that decides the result of a kind of job."""
    decided_by = {
        "random streams": seeds.VERSION,
        "configuration space": action_space.VERSION,
        "kinds of questions": questions.VERSION,
        "configuration rewards": rewards.VERSION,
        "worlds of configurations": VERSION,
    }
    if kind != ENUMERATED:
        decided_by |= {
            "losses": losses.VERSION,
            "configuration policies": policies.VERSION,
            "configuration learning": policy_updates.VERSION,
            "stacked policies": batched_policies.VERSION,
        }
    return decided_by


def work(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> None:
    """One job, by its kind."""
    torch.set_num_threads(1)
    kind = job.settings["job"]
    glass = ConfigurationGlassSettings.from_job_settings(job.settings["glass"])
    settings = ConfigurationSettings.from_job_settings(job.settings["configuration"]).model_copy(
        update={"glass": glass}
    )
    if kind == ATLAS:
        rows = atlas(settings, progress).assign(split="atlas")
    else:
        worlds = [
            ConfigurationWorlds.drawn(settings, seed, glass.interaction, glass.noise)
            for seed in range(glass.seeds)
        ]
        worlds = ConfigurationWorlds.together(worlds)
        if kind == ENUMERATED:
            rows = enumerated(worlds, glass.eval_points[-1])
        else:
            rows = looks(SyntheticConfigurationVariant(**job.settings["variant"]), worlds, progress)
        rows = rows.assign(split="test")
    artifacts.write_parquet(folder / "rows.parquet", rows)


def looks(
    variant: SyntheticConfigurationVariant,
    worlds: ConfigurationWorlds,
    progress: Callable[[float], None] = lambda share: None,
) -> pd.DataFrame:
    """One variant trained in every world, judged on its way, and imitation where it is ARC."""
    box, judge, parts = worlds.settings.glass, ConfigurationEvaluation(worlds), []

    def after(episodes: int, found: TrainedPolicies) -> None:
        progress(episodes / box.eval_points[-1])
        if episodes in box.eval_points:
            parts.append(judge.rows(variant.name, found, episodes))
        if variant != ARC or episodes not in box.sft_after:
            return
        whole = policy_updates.joined([batch for batch, _ in found.buffer])
        correct = np.concatenate([correct for _, correct in found.buffer])
        for name, by_kind in (("SFT, one tau", False), ("SFT, tau per kind", True)):
            kept = elite(whole, correct, worlds.settings.sft.share, by_kind)
            parts.append(
                judge.rows(
                    name,
                    imitated(found, whole, kept.chosen, worlds.settings),
                    episodes,
                    kept,
                    whole,
                )
            )

    trained(variant, worlds, box.eval_points[-1], after)
    return pd.concat(parts, ignore_index=True)


def atlas(
    settings: ConfigurationSettings, progress: Callable[[float], None] = lambda share: None
) -> pd.DataFrame:
    """After how many episodes ARC without a discount passes the best constant: one row for each seed, interaction and
    noise. episodes: the first look from which on it is above, the last one where it never is; passed: whether it is;
    gap: of the optimum to the constant."""
    box = settings.glass
    places = [
        (i, n, s) for i in box.interactions for n in box.noises for s in range(box.map_seeds)
    ]  # on the map
    worlds = ConfigurationWorlds.together(
        [ConfigurationWorlds.drawn(settings, s, i, n) for i, n, s in places]
    )
    judge, limits, found = ConfigurationEvaluation(worlds), bounds(worlds), {}

    def after(episodes: int, policy: TrainedPolicies) -> None:
        progress(episodes / box.map_episodes)
        if episodes and episodes % box.map_every == 0:
            found[episodes] = judge.likeliest(policy).mean(1) > limits.constant.mean(1)

    trained(UNDISCOUNTED, worlds, box.map_episodes, after)
    above = np.stack(list(found.values()))  # (looks, R)
    stays = np.logical_and.accumulate(above[::-1])[::-1]
    first = np.array(list(found))[np.where(stays.any(0), stays.argmax(0), -1)]
    gap = (limits.optimum - limits.constant).mean(1)
    rows = pd.DataFrame(places, columns=["interaction", "noise", "seed"])
    rows = rows.assign(episodes=first.astype(float), passed=stays.any(0).astype(float), gap=gap)
    item = "world " + rows["seed"].astype(str)
    return rows.assign(
        method=UNDISCOUNTED.name, role="paper", item=item, condition="", step=results_table.AFTER
    )
