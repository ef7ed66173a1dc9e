"""CoRL in a glass box: queries, experts and budgets so few that the best controller can be counted out.

A query is of one of K kinds and shows its kind through noise. A controller answers it by itself or calls one of
E experts, whose chances on every kind are known. The reply looks right or wrong, which tells a little; then it is
handed on, or one other call is made and its reply handed on. The reward is CoRL's (`rl.budget_reward`), and
advantages and losses are those of `rl.losses`, as in the lab: the reply stands between the controller's two tokens
and is no token of its own. Only network and world are small. Many controllers, each in a world of its own, are
trained in one stack. Left out: prompts and words, forms that can be broken, the controller's own tokens as a cost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lib.config import LearnSettings, RoutingGlassSettings, RoutingSettings
from lib.experiment import results_table, seeds
from lib.rl import budget_reward, losses

VERSION = 1  # of the synthetic benchmark of budgeted routing
BUDGETS = ("low", "medium", "high")
KNOBS = ("complementarity", "spread", "noise")
SYSTEM = "corl_glass"  # of the record
_DRAWS = 6  # uniform numbers of an episode besides those of the noise: kind, two choices, two replies, one look


@dataclass(frozen=True)
class RoutingWorlds:
    """Worlds of G controllers. Option 0 is to answer: by oneself at first, with the reply afterwards; the others call.

    right: (G, K, 1 + E), chances on every kind; price: (G, 1 + E), of a call; limit: (B,), what a budget allows;
    noise: (G, 1, 1), deviation of what is seen of a kind; reply_signal_accuracy: chance that a reply looks as right as
    it is.
    """

    correct: Tensor
    price: Tensor
    limit: Tensor
    noise: Tensor
    reply_signal_accuracy: float

    def __post_init__(self):
        if (
            not 0.5 <= self.reply_signal_accuracy <= 1
            or (self.correct < 0).any()
            or (self.correct > 1).any()
            or (self.price < 0).any()
        ):
            raise ValueError(
                "chances must lie in [0, 1], `reply_signal_accuracy` in [0.5, 1], and prices must not be negative"
            )
        if (self.noise <= 0).any():
            raise ValueError(f"noise must be above 0, got {float(self.noise.min()):g}")

    @property
    def looks(self) -> Tensor:
        """(G, K, 1 + E, 2, 2): chance of (reply wrong or right, looks wrong or right); option 0 has no reply."""
        chance = torch.stack([1 - self.correct, self.correct], -1)
        p = self.reply_signal_accuracy
        told = torch.tensor([[p, 1 - p], [1 - p, p]])
        held = chance[..., None] * told
        held[:, :, 0] = chance[:, :, 0, :, None] / 2  # nothing is seen of one's own answer
        return held

    def belief(self, seen: Tensor) -> Tensor:
        """P(kind | seen), (G, n, K), by Bayes' rule: kinds are equally likely, the noise is Gaussian."""
        return torch.softmax(seen / self.noise**2, -1)


def worlds(glass: RoutingGlassSettings, cells: Sequence[Mapping[str, float]]) -> RoutingWorlds:
    """A stack of worlds, cell after cell and in it seed after seed; a seed has the same accuracy noise in all cells.

    cells: values of KNOBS. complementarity: 0, specialists are alike on all kinds, to 1, each has a kind of its own;
    spread: the power that prices are raised to, 0 for equal prices; noise: of what is seen of a kind.
    """
    shape = (glass.kinds, 1 + len(glass.prices))
    accuracy_noise = [
        seeds.rng("routing", "glass", "world", seed=s).standard_normal(shape)
        for s in range(glass.seeds)
    ]
    correct, price, noise = [], [], []
    for cell in cells:
        chance = np.full(
            shape, glass.specialist - glass.specialist_advantage * cell["complementarity"]
        )
        chance[:, 0], chance[:, -1] = glass.self_accuracy, glass.generalist
        for expert in range(len(glass.prices) - 1):
            chance[expert % glass.kinds, 1 + expert] = (
                glass.specialist + glass.specialist_advantage * cell["complementarity"]
            )
        correct += [
            np.clip(chance + glass.accuracy_noise * each, 0.02, 0.98) for each in accuracy_noise
        ]
        price += [[0.0, *(np.array(glass.prices) ** cell["spread"])]] * glass.seeds
        noise += [cell["noise"]] * glass.seeds
    limit = torch.tensor([glass.budgets[name] for name in BUDGETS])
    stacked = [
        torch.tensor(np.array(each), dtype=torch.float32) for each in (correct, price, noise)
    ]
    return RoutingWorlds(
        stacked[0], stacked[1], limit, stacked[2][:, None, None], glass.reply_signal_accuracy
    )


# Strategies, counted out ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Strategy:
    """first: (G, B, n, 1 + E), chances of the first choice; second: (G, B, n, 1 + E, 2, 1 + E), of the second one
    after every first one, by how the reply looks. n is 1 where a strategy never looks at the query."""

    first: Tensor
    second: Tensor

    @property
    def likeliest(self) -> Strategy:
        """The same without dice: the likeliest choice each time."""
        options = self.first.shape[-1]
        return Strategy(
            *(
                nn.functional.one_hot(p.argmax(-1), options).float()
                for p in (self.first, self.second)
            )
        )


def paths(world: RoutingWorlds, belief: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every way through an episode: chance of a look (G, n, 1 + E, 2), chance of the look and a right answer
    (G, n, 1 + E, 2, 1 + E), and dollars (G, 1 + E, 1 + E). belief: (G, n, K)."""
    looks = world.looks
    seen = torch.einsum("gnk,gkaos->gnas", belief, looks)
    handed = torch.einsum("gnk,gkas->gnas", belief, looks[..., 1, :])[..., None]
    called = torch.einsum(
        "gkas,gkb->gkasb", looks.sum(3), world.correct[..., 1:]
    )  # small, so it goes first
    again = torch.einsum("gnk,gkasb->gnasb", belief, called)
    return seen, torch.cat([handed, again], -1), world.price[:, :, None] + world.price[:, None, :]


def value(world: RoutingWorlds, belief: Tensor, strategy: Strategy) -> dict[str, Tensor]:
    """Exact means of a strategy on queries with these beliefs, (G, B, n): right, reward, dollars, within (the budget),
    asked (calls) and dear (calls of the last expert)."""
    seen, correct, cost_usd = paths(world, belief)
    taken = strategy.first[..., None, None] * strategy.second  # (G, B, n, 1 + E, 2, 1 + E)
    paid = paid_paths(world, correct, cost_usd)
    option = torch.arange(cost_usd.shape[1])
    called, dear = (option > 0).float(), (option == option[-1]).float()
    walked = (taken * seen[:, None, ..., None]).sum(4)  # (G, B, n, first, second)
    return {
        "correct": (taken * correct[:, None]).sum((3, 4, 5)),
        "reward": (taken * paid).sum((3, 4, 5)),
        "cost_usd": torch.einsum("gbnac,gac->gbn", walked, cost_usd),
        "within": torch.einsum(
            "gbnac,gbac->gbn",
            walked,
            budget_reward.compute_cost_reward(cost_usd[:, None], world.limit[:, None, None]),
        ),
        "asked": torch.einsum("gbnac,ac->gbn", walked, called[:, None] + called * called[:, None]),
        "dear": torch.einsum("gbnac,ac->gbn", walked, dear[:, None] + dear * called[:, None]),
    }


def paid_paths(world: RoutingWorlds, correct: Tensor, cost_usd: Tensor) -> Tensor:
    """What every path adds to the reward under every budget, (G, B, n, 1 + E, 2, 1 + E)."""
    return budget_reward.compute_budget_reward(
        correct[:, None],
        cost_usd[:, None, None, :, None, :],
        world.limit[:, None, None, None, None],
    )


def optimum(world: RoutingWorlds, belief: Tensor) -> Strategy:
    """The strategy that nothing beats which sees no more: the best second choice after every reply, then the best
    first, among all there are.

    With the same belief in every kind for all queries (n = 1) it is the best that never looks at a query.
    """
    _, correct, cost_usd = paths(world, belief)
    paid = paid_paths(world, correct, cost_usd)
    paid[:, :, :, 0, :, 1:] = -1.0  # who has answered calls nobody
    best, second = paid.max(-1)
    first = best.sum(-1).argmax(-1)
    options = paid.shape[-1]
    return Strategy(
        nn.functional.one_hot(first, options).float(),
        nn.functional.one_hot(second, options).float(),
    )


def always(world: RoutingWorlds, option: Tensor | int) -> Strategy:
    """One option whatever the query, its reply handed on. option: a number, or (G, B), one under every budget."""
    groups, options = world.price.shape
    first = torch.as_tensor(option).expand(groups, len(world.limit))[:, :, None]
    second = torch.zeros(groups, len(world.limit), 1, options, 2, dtype=torch.long)
    return Strategy(
        nn.functional.one_hot(first, options).float(),
        nn.functional.one_hot(second, options).float(),
    )


def rivals(world: RoutingWorlds, belief: Tensor) -> dict[str, Strategy]:
    """Everybody who needs no training: each option for all queries, the best of them by the known chances, the best
    strategy that never looks at a query, though it may look at a reply, and the optimum. belief: (G, n, K)."""
    blind = torch.full_like(belief[:, :1], 1 / belief.shape[-1])
    fixed = [always(world, option) for option in range(world.price.shape[1])]
    paid = torch.stack([value(world, blind, each)["reward"][..., 0] for each in fixed])
    names = ["itself", *(f"specialist {e}" for e in range(1, len(fixed) - 1)), "generalist"]
    return dict(zip(names, fixed, strict=True)) | {
        "best constant": always(world, paid.argmax(0)),
        "best without a look": optimum(world, blind),
        "optimum": optimum(world, belief),
    }


def clairvoyant(world: RoutingWorlds, belief: Tensor) -> dict[str, Tensor]:
    """`value` of the best strategy of somebody who is told the kind of every query."""
    every = torch.eye(belief.shape[-1]).expand(len(belief), -1, -1)
    known = value(world, every, optimum(world, every))
    return {name: torch.einsum("gnk,gbk->gbn", belief, each) for name, each in known.items()}


# The controller ------------------------------------------------------------------------------------


class Controllers(nn.Module):
    """G tiny networks side by side, one hidden layer each; choices and V are heads on the same trunk, as in the lab.

    They read what is seen of the query, the budget, whom they called and how the reply looked. At the start all
    choices are equally likely and V is 0.

    Written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.6 to 2 times as long for a training step of 32
    controllers (tests/benchmarks/test_seed_batched_speed.py).
    """

    def __init__(self, glass: RoutingGlassSettings, cells: int) -> None:
        super().__init__()
        self.kinds, self.options = glass.kinds, 1 + len(glass.prices)
        reads = glass.kinds + len(BUDGETS) + self.options
        drawn = [seeds.rng("routing", "glass", "weights", seed=s) for s in range(glass.seeds)]
        trunk = np.stack([rng.standard_normal((reads, glass.hidden)) for rng in drawn] * cells)
        self.trunk = nn.Parameter(torch.tensor(trunk, dtype=torch.float32))
        self.trunk_bias = nn.Parameter(torch.zeros(len(trunk), 1, glass.hidden))
        self.actor = nn.Parameter(torch.zeros(len(trunk), glass.hidden, self.options))
        self.critic = nn.Parameter(torch.zeros(len(trunk), glass.hidden, 1))
        self.actor_bias = nn.Parameter(torch.zeros(len(trunk), 1, self.options))
        self.critic_bias = nn.Parameter(torch.zeros(len(trunk), 1, 1))

    def forward(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of chances (G, r, 1 + E) and V (G, r) of inputs (G, r, reads)."""
        # baddbmm(bias, x, weights) is x_g W_g + b_g for every controller g.
        hidden = torch.tanh(torch.baddbmm(self.trunk_bias, read, self.trunk))  # (G, r, hidden)
        scores = torch.baddbmm(self.actor_bias, hidden, self.actor)  # (G, r, 1 + E)
        # Three times as fast as log_softmax over a few options.
        log_probs = scores - scores.logsumexp(-1, keepdim=True)
        values = torch.baddbmm(self.critic_bias, hidden, self.critic)  # (G, r, 1)
        return log_probs, values[..., 0]

    def reading(self, seen: Tensor, budget: Tensor, called: Tensor, looks: Tensor) -> Tensor:
        """Inputs (..., reads). seen: (..., K); budget, called (0: nobody yet): (...); looks: (...), -1, 0 or 1."""
        whom = nn.functional.one_hot(called, self.options)[..., 1:]
        budgets = nn.functional.one_hot(budget, len(BUDGETS) + 1)[..., 1:]  # 0: not told
        return torch.cat([seen, budgets, whom, looks[..., None]], -1)

    @torch.no_grad()
    def strategy(self, seen: Tensor, told: bool = True) -> Strategy:
        """What the controllers do with queries seen (G, n, K), with dice; told: whether they are told the budget."""
        groups, n, _ = seen.shape
        after = torch.cartesian_prod(torch.arange(float(self.options)), torch.tensor([-1.0, 1.0]))
        states = torch.cat([torch.zeros(1, 2), after])  # nobody called yet, then every reply
        shape = (groups, len(BUDGETS), n, len(states))
        budget = torch.arange(1, 1 + len(BUDGETS))[None, :, None, None] * told
        read = self.reading(
            seen[:, None, :, None].expand(*shape, -1),
            budget.expand(shape),
            states[:, 0].long().expand(shape),
            states[:, 1].expand(shape),
        )
        chances = self(read.flatten(1, 3))[0].exp().view(*shape, -1)
        first, second = (
            chances[:, :, :, 0],
            chances[:, :, :, 1:].unflatten(3, (self.options, 2)).clone(),
        )
        second[:, :, :, 0] = nn.functional.one_hot(
            torch.tensor(0), self.options
        ).float()  # has answered
        return Strategy(first, second)


# Training ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SyntheticRoutingVariant:
    """A training. told: the budget stands in the prompt; bound: the reward knows the budget (eq. 7), or only right
    answers (r_p); whiten: advantages within each "budget", over the whole "batch", or not at all (""); fixed: the one
    budget of all its episodes (CoRL, section 5), drawn anew for each where it is ""."""

    name: str
    told: bool = True
    bound: bool = True
    whiten: str = "budget"
    fixed: str = ""


CORL = SyntheticRoutingVariant("CoRL")
PARTS = (
    CORL,
    SyntheticRoutingVariant("whitened over all budgets", whiten="batch"),
    SyntheticRoutingVariant("budget not told", told=False),
    SyntheticRoutingVariant("budget not in the reward", bound=False),
)
FIXED = tuple(
    SyntheticRoutingVariant(f"{name} budget alone", told=False, whiten="batch", fixed=name)
    for name in ("low", "high")
)


@dataclass
class Episodes:
    """An episode in each of r rows of G controllers: a choice, the reply, a choice. read: (G, r, 2, reads); did:
    (G, r, 2), choices; mask: (G, r, 3), own tokens; old, values: (G, r, 3), their log-probabilities and V when they
    were written, 0 elsewhere; reward: (G, r)."""

    read: Tensor
    did: Tensor
    mask: Tensor
    old: Tensor
    values: Tensor
    reward: Tensor


def draws(glass: RoutingGlassSettings, name: str, n: int, number: int = 0) -> Tensor:
    """Uniform numbers (seeds, n, K + 6): the same for every variant and cell, so that all are compared in pairs."""
    width = glass.kinds + _DRAWS
    keys = seeds.keys("routing", "glass", name, number, n=glass.seeds)
    return torch.tensor(
        seeds.uniform(keys[:, None], np.arange(n * width)), dtype=torch.float32
    ).view(glass.seeds, n, width)


def queries(world: RoutingWorlds, kinds: int, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """Kinds (G, n) and what is seen of them (G, n, K), from uniform numbers (G, n, 1 + K)."""
    kind = (drawn[..., 0] * kinds).long()
    normal = torch.special.ndtri(drawn[..., 1:].clamp(1e-6, 1 - 1e-6))
    return kind, nn.functional.one_hot(kind, kinds) + world.noise * normal


@torch.no_grad()
def play(
    world: RoutingWorlds, controllers: Controllers, variant: SyntheticRoutingVariant, drawn: Tensor
) -> Episodes:
    """An episode for each row of drawn (G, r, K + 6); row i is under budget number i % 3, in training and whitening."""
    kinds, (groups, rows) = controllers.kinds, drawn.shape[:2]
    kind, seen = queries(world, kinds, drawn[..., : kinds + 1])
    drawn_budget = torch.arange(rows) % len(BUDGETS)
    budget = (
        torch.full_like(drawn_budget, BUDGETS.index(variant.fixed))
        if variant.fixed
        else drawn_budget
    )
    budget = budget.expand(groups, rows)
    chance = torch.gather(world.correct, 1, kind[..., None].expand(-1, -1, controllers.options))
    dice = drawn[..., kinds + 1 :].unbind(-1)

    def choose(called: Tensor, looks: Tensor, die: Tensor) -> tuple[Tensor, ...]:
        read = controllers.reading(seen, (budget + 1) * variant.told, called, looks)
        logs, values = controllers(read)
        did = (logs.exp().cumsum(-1) < die[..., None]).sum(-1).clamp(max=controllers.options - 1)
        return read, did, torch.gather(logs, 2, did[..., None])[..., 0], values

    nobody = torch.zeros_like(kind)
    before = choose(nobody, nobody.float(), dice[0])
    first = before[1]
    called = first > 0
    correct = dice[1] < torch.gather(chance, 2, first[..., None])[..., 0]
    looks = torch.where((dice[2] < world.reply_signal_accuracy) == correct, 1.0, -1.0) * called
    again_read, second, again_old, again_values = choose(first, looks, dice[3])
    second = second * called  # who has answered calls nobody
    again = dice[4] < torch.gather(chance, 2, second[..., None])[..., 0]
    correct = torch.where(second > 0, again, correct)
    cost_usd = torch.gather(world.price, 1, first) + torch.gather(world.price, 1, second)
    limit = world.limit[budget] if variant.bound else torch.full_like(cost_usd, torch.inf)
    both = zip(before, (again_read, second, again_old, again_values), strict=True)
    read, did, old, values = (torch.stack(each, 2) for each in both)
    mask = torch.stack([torch.ones_like(called), torch.zeros_like(called), called], -1)
    paid = budget_reward.compute_budget_reward(correct.float(), cost_usd, limit)
    return Episodes(read, did, mask, placed(old, mask), placed(values, mask), paid)


def placed(own: Tensor, mask: Tensor) -> Tensor:
    """What is known of the controller's two tokens (G, r, 2) at their places among three, 0 where mask is."""
    return torch.stack([own[..., 0], torch.zeros_like(own[..., 0]), own[..., 1]], -1) * mask


def train(
    world: RoutingWorlds,
    glass: RoutingGlassSettings,
    settings: LearnSettings,
    variant: SyntheticRoutingVariant = CORL,
    watch: Callable[[int, Controllers], None] | None = None,
) -> Controllers:
    """Train a stack of controllers by PPO. settings: the lab's, for clip, GAE, averages and weights; watch: called
    with the number of updates so far and the controllers, before the first and after each."""
    cells = len(world.correct) // glass.seeds
    controllers = Controllers(glass, cells)
    optimiser = torch.optim.Adam(controllers.parameters(), lr=glass.learning_rate)
    for update in range(glass.updates):
        if watch is not None:
            watch(update, controllers)
        drawn = draws(glass, "episodes", glass.batch, update).repeat(cells, 1, 1)
        step(
            controllers,
            optimiser,
            play(world, controllers, variant, drawn),
            glass,
            settings,
            variant,
        )
        for group in optimiser.param_groups:  # falls to 0, as the lab's
            group["lr"] = glass.learning_rate * (1 - (update + 1) / glass.updates)
    if watch is not None:
        watch(glass.updates, controllers)
    return controllers


def step(
    controllers: Controllers,
    optimiser: torch.optim.Optimizer,
    episodes: Episodes,
    glass: RoutingGlassSettings,
    settings: LearnSettings,
    variant: SyntheticRoutingVariant,
) -> None:
    """One update, some passes over its episodes in parts: eq. 4, the penalty for leaving the start, and V's error."""
    mask, by = episodes.mask, settings.average
    advantages, returns = losses.compute_masked_gae(
        episodes.reward.flatten(),
        episodes.values.flatten(0, 1),
        mask.flatten(0, 1),
        settings.gamma,
        settings.lam,
    )
    advantages, returns = advantages.view(mask.shape), returns.view(mask.shape)
    if variant.whiten:
        advantages = whitened(advantages, mask, len(BUDGETS) if variant.whiten == "budget" else 1)
    held = [
        each.split(glass.minibatch, 1)
        for each in (episodes.read, episodes.did, mask.float(), episodes.old, advantages, returns)
    ]
    start = -torch.tensor(float(controllers.options)).log()  # where all choices were alike
    for _ in range(glass.epochs):
        for read, did, own, old, step_advantages, step_returns in zip(
            *held, strict=True
        ):  # drawn alike: there is nothing to shuffle
            logs, values = controllers(read.flatten(1, 2))
            chosen = torch.gather(logs, 2, did.flatten(1, 2)[..., None])
            new, values = (
                placed(each.view(did.shape), own).flatten(0, 1) for each in (chosen, values)
            )
            own, old, step_advantages, step_returns = (
                each.flatten(0, 1) for each in (own, old, step_advantages, step_returns)
            )
            loss = losses.compute_policy_loss(new, old, step_advantages, own, settings.clip, by)
            kl = losses.average_over_tokens(losses.estimate_kl(new, start), own, by)
            loss = loss + glass.kl * kl
            value_loss = losses.compute_value_loss(values, step_returns, own, by)
            loss = loss + settings.value_weight * value_loss
            optimiser.zero_grad()
            (loss * len(mask)).backward()  # a mean over controllers would make all gradients small
            bounded(controllers, settings.max_grad_norm)
            optimiser.step()


def whitened(values: Tensor, mask: Tensor, parts: int) -> Tensor:
    """`losses.whiten` over the own tokens of every controller's rows, apart for rows i, i + parts, i + 2 parts ...

    values, mask: (G, r, T); 0 where mask is. One pass for all, because a stack has too many to go one by one.
    """
    groups, rows, tokens = values.shape
    apart = [each.view(groups, rows // parts, parts, tokens) for each in (values, mask)]
    count = apart[1].sum((1, 3), keepdim=True)
    centred = (apart[0] - (apart[0] * apart[1]).sum((1, 3), keepdim=True) / count) * apart[1]
    deviation = (centred.square().sum((1, 3), keepdim=True) / count).sqrt()
    return (centred / (deviation + 1e-8)).view_as(values)


def bounded(controllers: Controllers, most: float) -> None:
    """Gradients of every controller by itself, no longer than `most`."""
    gradients = [each.grad for each in controllers.parameters()]
    length = sum(each.flatten(1).square().sum(1) for each in gradients).sqrt()
    for each in gradients:
        each.mul_((most / (length + 1e-6)).clamp(max=1)[:, None, None])


# Records -------------------------------------------------------------------------------------------

_ROLES = {
    "itself": "constant",
    "best constant": "constant",
    "best without a look": "constant",
    "optimum": "oracle",
}
_TOGETHER = 6  # cells in one stack


def run(
    settings: RoutingSettings, progress: Callable[[float], None] = lambda fraction: None
) -> pd.DataFrame:
    """Rows of a record: the central setting with all parts and its curve, and every cell of the map with CoRL alone.

    progress: called with the fraction that is done. `synthetic_job.run` computes the rows once and keeps them.
    """
    glass, grid = settings.glass, []
    for values in product(*(glass.map[knob] for knob in KNOBS)):
        cell = dict(zip(KNOBS, values, strict=True))
        grid += [cell] * (cell != glass.central)
    looks = sorted({0, *np.geomspace(1, glass.updates, 10).round().astype(int).tolist()})
    todo = [
        ([glass.central], variant, looks * (variant in (CORL, *FIXED)))
        for variant in (*PARTS, *FIXED)
    ]
    todo += [(grid[at : at + _TOGETHER], CORL, []) for at in range(0, len(grid), _TOGETHER)]
    with ThreadPoolExecutor(
        os.cpu_count()
    ) as threads:  # torch lets go of the lock while it computes
        tables = []
        for table in threads.map(lambda each: study(settings, *each), todo):
            tables.append(table)
            progress(len(tables) / len(todo))
    return pd.concat(tables, ignore_index=True)


def study(
    settings: RoutingSettings,
    cells: Sequence[Mapping[str, float]],
    variant: SyntheticRoutingVariant = CORL,
    looks: Sequence[int] = (),
) -> pd.DataFrame:
    """Train one controller for every seed and cell, and judge it exactly on queries of its own: rows of a record.

    One row for each seed, budget and variant: means over the queries, by known chances. heat 0: the likeliest choice,
    1: drawn ones; step: updates so far where `looks` asks, else after all. Beside CoRL stand its rivals and START.
    """
    glass = settings.glass
    world = worlds(glass, cells)
    drawn = draws(glass, "queries", glass.queries)[..., : glass.kinds + 1].repeat(len(cells), 1, 1)
    seen = queries(world, glass.kinds, drawn)[1]
    belief, found = world.belief(seen), []

    def add(
        name: str,
        role: str,
        told: Mapping[str, Tensor],
        temperature: float = 0.0,
        step: int = results_table.AFTER,
    ) -> None:
        found.append(
            _rows(glass, cells, told).assign(
                method=name, role=role, temperature=temperature, step=step
            )
        )

    def look(update: int, controllers: Controllers) -> None:
        if update in looks:
            strategy = controllers.strategy(seen, variant.told).likeliest
            add(variant.name, "paper", value(world, belief, strategy), step=update)

    if variant is CORL:
        start = Controllers(glass, len(cells)).strategy(seen[:, :1])  # the same for all queries
        add("start", "start", value(world, belief, start), temperature=1.0)
        for name, strategy in rivals(world, belief).items():
            add(name, _ROLES.get(name, "expert"), value(world, belief, strategy))
        add("told the kind", "oracle", clairvoyant(world, belief))
    strategy = train(world, glass, settings.learn, variant, look).strategy(seen, variant.told)
    for temperature, each in ((0.0, strategy.likeliest), (1.0, strategy)):
        add(variant.name, "paper", value(world, belief, each), temperature=temperature)
    return pd.concat(found, ignore_index=True)


def _rows(
    glass: RoutingGlassSettings, cells: Sequence[Mapping[str, float]], told: Mapping[str, Tensor]
) -> pd.DataFrame:
    """Means over queries of values (G, B, n), a row for each cell, seed and budget. Every seed has a world of its own,
    which is its item: only seeds are independent."""
    index = [
        {**cell, "seed": seed, "item": f"world {seed}", "condition": budget}
        for cell, seed, budget in product(cells, range(glass.seeds), BUDGETS)
    ]
    means = {name: each.mean(-1).flatten().double().numpy() for name, each in told.items()}
    return pd.DataFrame(index).assign(**means, backend="policy", split="test")
