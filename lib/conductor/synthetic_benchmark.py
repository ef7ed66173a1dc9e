"""A world whose truth is known, in which the lesson's own Conductor learns: thirty policies in a second.

Prompts belong to categories. To each there are candidate replies x with a true quality q = u_c . x, and five rewards:
one that (nearly) everybody gets and four proxies, of which proxy c agrees with quality in category c (correlation
`good`) and the others hardly do (`bad`). A softmax policy chooses among the candidates and learns by GRPO. Rank
normalisation, advantages, the clipped objective, the head, its buffer and its updates are those of the lab; only the
policy and the world are small, and all seeds of all worlds stand in one tensor. The best that can be had is found by
enumeration. Left out: the KL penalty, and tokens (a reply is one decision).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.conductor import meta_policy as conductor_head
from lib.conductor import meta_policy_training, variants
from lib.conductor import rewards as five_rewards
from lib.conductor import weighting as weightings
from lib.conductor.meta_policy import sample
from lib.conductor.meta_policy_training import Anchored, Conducted, chosen, lots, stacked
from lib.conductor.rewards import COMPONENTS, centred, normalised
from lib.conductor.variants import EQUAL
from lib.conductor.weighting import Dirichlet, Fixed, Weighting
from lib.config import ROOT, GlassSettings, HeadSettings
from lib.experiment import artifacts, seeds, sweep
from lib.rl import losses

VERSION = 1  # of the worlds, their policies and who plays in them
PROXIES = COMPONENTS[1:]  # the first reward is the easy one
EXAM = 64  # prompts of a category on which a policy is judged
WEIGHED = 8  # of them, on which its head's weights are looked at
CLIP = 0.2  # without effect here: every rollout is used once
JUDGE = 0.7  # agreement of the judge with quality, mistaken about the same replies every time
NAME = "glass"
SHARES = (0.0, 0.02, 0.1, 1.0)  # of prompts that are verified
BEST, MEANS = "best static (dev)", "Conductor's mean weights"
MAPPED = (
    "Equal",
    "best proxy per category",
    "Conductor",
    *(f"Anchored {share:.0%}" for share in SHARES[1:]),
)
RUNS = ROOT / "data/runs/glass"

# Fields of the settings that jobs are handed: of every method, of methods with a head, and of the best static mix,
# which is chosen in a quarter as many worlds as there are seeds.
_READ_BY_ALL = (
    "steps",
    "categories",
    "candidates",
    "features",
    "prompts",
    "group",
    "learning_rate",
)
_READ_WITH_A_HEAD = ("head_rate", "kappas", "pairwise")
_READ_BY_BEST = ("seeds",)
# Without the head's learning rate, which is `head_rate` here, and what it sees and who pays it, which methods differ
# in.
_READ_OF_THE_HEAD = (
    "kappa", "floor", "temperature", "every", "entropy", "pairwise", "joint", "homogeneous", "centred",
)  # fmt: skip


@dataclass(frozen=True)
class RewardWorld:
    """One setting of the knobs. good, bad: correlations of a category's own proxy, and of the others, with quality;
    noise: deviation of what is added to every proxy (its own is 1); easy: share of replies that get the easy reward."""

    good: float
    bad: float
    noise: float = 0.0
    easy: float = 1.0

    @property
    def condition(self) -> str:
        """The setting as a record names it."""
        return f"good {self.good:g}, bad {self.bad:g}, noise {self.noise:g}, easy {self.easy:g}"


@dataclass(frozen=True)
class Player:
    """One method.

    make: its weighting, given the stack of worlds; sees: what h holds of prompt and reply (`both`, `prompt`, `reply`,
    `shuffled`: of another rollout), as layers differ in; checker: who tells an anchored head the quality (`verifier`;
    `erring`, which is right about four replies of five; `judge`); truth: the share of prompts on which the policy
    itself is paid by quality; trains: not so the start.
    """

    name: str
    make: Callable[[Stack], Weighting]
    role: str = "constant"
    sees: str = "both"
    checker: str = "verifier"
    truth: float = 0.0
    trains: bool = True


class Given(Weighting):
    """Weights that every world is given, (W * S, 1, K) or, where categories differ, (categories, K)."""

    def __init__(self, weights: torch.Tensor, by_category: bool = False) -> None:
        self.weights, self.by_category = weights, by_category

    def settled(self, h: torch.Tensor) -> torch.Tensor:
        if self.by_category:  # h begins with the category, one-hot
            return h[..., : len(self.weights)] @ self.weights
        return self.weights.expand(*h.shape[:-1], -1)


class PaidByOthers(Anchored):
    """A head paid by what the other rewards say of the reply, where nobody verifies anything (ours)."""

    def _pay(self, advantage, action, rewards, quality, prompt) -> torch.Tensor:
        apart = centred(rewards.flatten(0, -2), self.group).view_as(rewards)
        others = apart.sum(-1) - apart.gather(-1, action[..., None])[..., 0]
        return super()._pay(advantage, action, rewards, others, prompt)


class Stack:
    """Worlds times seeds side by side. Seed s has the same directions, prompts and dice in every world and method."""

    def __init__(
        self, settings: GlassSettings, worlds: Sequence[RewardWorld], n: int, split: str = "test"
    ) -> None:
        """n: seeds; split: `dev` has other worlds than `test`."""
        self.settings, self.worlds, self.n, self.split = settings, list(worlds), n, split
        self.names = [seed for _ in worlds for seed in range(n)]  # of the W * S rows
        self.width = settings.categories + settings.features
        shape = settings.categories, settings.features
        self.u = _unit(self._drawn("quality", n, *shape))
        across = self._drawn("proxies", n, settings.categories, len(PROXIES) + 1, settings.features)
        across = _unit(
            across - (across * self.u[:, :, None]).sum(-1, keepdim=True) * self.u[:, :, None]
        )
        rho = torch.stack([_agreement(world, settings.categories) for world in worlds])[
            :, None, :, :, None
        ]
        proxies = (
            rho * self.u[None, :, :, None]
            + (1 - rho**2).sqrt() * across[None, :, :, : len(PROXIES)]
        )
        self.proxies = proxies.flatten(0, 1)  # (W * S, C, 4, D)
        self.judge = self._every(JUDGE * self.u + (1 - JUDGE**2) ** 0.5 * across[:, :, -1])
        self.quality = self._every(self.u)
        self.noise, self.easy = (
            torch.tensor([getattr(world, knob) for world in worlds for _ in range(n)])[
                :, None, None
            ]
            for knob in ("noise", "easy")
        )

    def _drawn(self, what: str, *shape: int) -> torch.Tensor:
        return torch.from_numpy(seeds.rng(NAME, self.split, what).standard_normal(shape)).float()

    def _every(self, values: torch.Tensor) -> torch.Tensor:
        """(S, ...) -> (W * S, ...)."""
        return values.repeat(len(self.worlds), *[1] * (values.ndim - 1))

    def draws(self, step: int) -> dict[str, torch.Tensor]:
        """Everything that is drawn at a step: category (W S, N), x (W S, N, K, D), and numbers for the rollouts."""
        s = self.settings
        held = _draws(
            self.split, step, self.n, s.prompts, s.candidates, s.features, s.group, s.categories
        )
        return {name: self._every(values) for name, values in held.items()}


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


def _agreement(world: RewardWorld, categories: int) -> torch.Tensor:
    """Correlations of the proxies with quality by category, (C, 4)."""
    rho = torch.full((categories, len(PROXIES)), world.bad)
    rho[torch.arange(categories), torch.arange(categories)] = world.good
    return rho


@lru_cache(maxsize=1024)
def _draws(
    split: str,
    step: int,
    n: int,
    prompts: int,
    candidates: int,
    features: int,
    group: int,
    categories: int,
):
    """Draws of one step for n seeds; those of a seed do not depend on how many there are."""

    def stream(what: str) -> np.random.Generator:
        return seeds.rng(NAME, split, what, step)

    rolls = n, prompts, group
    made = {
        "category": stream("categories").integers(categories, size=(n, prompts)),
        "x": stream("replies").standard_normal(
            (n, prompts, candidates, features), dtype=np.float32
        ),
        "pick": stream("picks").random(rolls),
        "easy": stream("easy").random(rolls, dtype=np.float32),
        "noise": stream("noise").standard_normal((*rolls, len(PROXIES)), dtype=np.float32),
        "errs": stream("errs").random(rolls, dtype=np.float32),
        "order": stream("order").random(rolls, dtype=np.float32),
    }
    return {name: torch.from_numpy(values) for name, values in made.items()}


@dataclass
class SyntheticRollouts:
    """One step's rollouts of every world, (W S, N G) and what they are worth; kept between the parts of a step."""

    log_p: torch.Tensor
    h: torch.Tensor
    rewards: torch.Tensor
    quality: torch.Tensor
    checked: torch.Tensor
    prompt: torch.Tensor = field(repr=False)


def play(stack: Stack, player: Player) -> pd.DataFrame:
    """Train one method in all worlds of a stack and judge it; rows of a record, one per world, seed, category.

    reward: expected quality of the trained policy's replies (its own softmax, no dice), in deviations of quality;
    w_...: the settled weights on the candidates of the exam, as often as the policy would choose them.
    """
    settings, weighting = stack.settings, player.make(stack)
    theta = torch.zeros_like(stack.quality, requires_grad=True)
    optimiser = torch.optim.SGD([theta], lr=settings.learning_rate)
    for step in range(settings.steps if player.trains else 0):
        made = _rollouts(stack, player, theta, step)
        weights, _ = weighting(made.h, step)
        paid = _paid(stack, player, weighting, weights, made)
        advantage = losses.compute_group_advantages(paid.flatten(), settings.group).view_as(paid)
        weighting.learn(advantage, made.rewards, made.checked, made.prompt)
        objective = losses.compute_clipped_objective(
            made.log_p, made.log_p.detach(), advantage, CLIP
        )
        # worlds do not share parameters: losses add up
        (-settings.categories * objective.mean(-1).sum()).backward()
        optimiser.step()
        optimiser.zero_grad()
        weighting.after_step()
    with torch.no_grad():
        return _judged(stack, player, weighting, theta)


def _rollouts(stack: Stack, player: Player, theta: torch.Tensor, step: int) -> SyntheticRollouts:
    """What the policies write to one step's prompts, and what there is to know of it."""
    s, drawn = stack.settings, stack.draws(step)
    row, category = torch.arange(len(theta))[:, None], drawn["category"]
    log_p = (drawn["x"] @ theta[row, category][..., None])[..., 0].log_softmax(-1)  # (W S, N, K)
    pick = sample(log_p.detach().exp()[:, :, None].expand(-1, -1, s.group, -1), drawn["pick"])
    x = drawn["x"].gather(2, pick[..., None].expand(-1, -1, -1, s.features))  # (W S, N, G, D)
    quality = torch.einsum("sngd,snd->sng", x, stack.quality[row, category])
    proxies = torch.einsum("sngd,snkd->sngk", x, stack.proxies[row, category])
    noisy = (proxies + stack.noise[..., None] * drawn["noise"]) / (
        1 + stack.noise[..., None] ** 2
    ).sqrt()
    easy = (drawn["easy"] < stack.easy).float()[..., None]
    raw = torch.cat([easy, noisy[..., :2], noisy[..., 2:].sigmoid()], -1)
    rewards = normalised(raw.flatten(0, 2), COMPONENTS, s.group).view_as(raw)
    checked = quality
    if player.checker == "judge":
        checked = torch.einsum("sngd,snd->sng", x, stack.judge[row, category])
    elif (
        player.checker == "erring"
    ):  # what it says of such a reply is what it should have said of another one
        checked = torch.where(drawn["errs"] < 0.2, quality.roll(1, -1), quality)
    h = _states(s.categories, player.sees, category, x, drawn["order"])
    prompt = (
        (step * s.prompts + torch.arange(s.prompts))
        .repeat_interleave(s.group)
        .expand(len(theta), -1)
    )
    flat = [part.flatten(1, 2) for part in (log_p.gather(2, pick), h, rewards, quality, checked)]
    return SyntheticRollouts(*flat, prompt)


def _states(
    categories: int, sees: str, category: torch.Tensor, x: torch.Tensor, order: torch.Tensor
) -> torch.Tensor:
    """h of every rollout, (W S, N, G, C + D): the category of its prompt and the features of its reply, or less."""
    told = (
        torch.nn.functional.one_hot(category, categories)
        .float()[:, :, None]
        .expand(*x.shape[:-1], -1)
    )
    h = torch.cat([told * (sees != "reply"), x * (sees != "prompt")], -1)
    if sees != "shuffled":
        return h
    flat, mixed = h.flatten(1, 2), order.flatten(1).argsort(-1)
    return flat.gather(1, mixed[..., None].expand_as(flat)).view_as(h)


def _paid(
    stack: Stack, player: Player, weighting: Weighting, weights, made: SyntheticRollouts
) -> torch.Tensor:
    """R of every rollout, (W S, N G)."""
    known = dict(zip(COMPONENTS, made.rewards.unbind(-1), strict=True)) | {"quality": made.quality}
    rewards = torch.stack([known[name] for name in weighting.names], -1)
    if weighting.centred:
        rewards = centred(rewards.flatten(0, 1), stack.settings.group).view_as(rewards)
    paid = (weights * rewards).sum(-1)
    if not player.truth:
        return paid
    return torch.where(chosen(lots(stack.names), made.prompt, player.truth), made.checked, paid)


def _judged(
    stack: Stack, player: Player, weighting: Weighting, theta: torch.Tensor
) -> pd.DataFrame:
    s = stack.settings
    shape = stack.n, s.categories, EXAM, s.candidates, s.features
    x = stack._every(
        torch.from_numpy(
            seeds.rng(NAME, stack.split, "exam").standard_normal(shape, dtype=np.float32)
        )
    )
    quality = torch.einsum("scekd,scd->scek", x, stack.quality)
    p = torch.einsum("scekd,scd->scek", x, theta).softmax(-1)
    if player.name == "optimum":
        p = torch.nn.functional.one_hot(quality.argmax(-1), s.candidates).float()
    value = (p * quality).sum(-1).mean(-1)  # (W S, C)
    rows = pd.DataFrame(
        [
            (world.condition, world.good, world.bad, world.noise, world.easy, seed, str(c))
            for world in stack.worlds
            for seed in range(stack.n)
            for c in range(s.categories)
        ],
        columns=["condition", "good", "bad", "noise", "easy", "seed", "group"],
    )
    rows = rows.assign(
        method=player.name, role=player.role, reward=value.flatten().numpy(), split=stack.split
    )
    rows["item"] = [
        f"{seed}-{group}" for seed, group in zip(rows["seed"], rows["group"], strict=True)
    ]
    if tuple(weighting.names) == COMPONENTS:
        rows[[f"w_{name}" for name in COMPONENTS]] = (
            _weights(stack, player, weighting, x, p).flatten(0, 1).numpy()
        )
    return rows


def _weights(
    stack: Stack, player: Player, weighting: Weighting, x: torch.Tensor, p: torch.Tensor
) -> torch.Tensor:
    """Mean settled weights by category, (W S, C, K), of candidates x that are chosen with probabilities p."""
    x, p = x[:, :, :WEIGHED], p[:, :, :WEIGHED]
    category = torch.arange(stack.settings.categories)[:, None].expand(p.shape[:3])
    order = torch.from_numpy(seeds.rng(NAME, stack.split, "exam order").random(p.shape))
    h = _states(
        stack.settings.categories,
        player.sees,
        *(part.flatten(1, 2) for part in (category, x, order)),
    )
    settled = weighting.settled(h.flatten(1, 2)).view(*p.shape, -1)
    return (settled * p[..., None]).sum(3).mean(2)


# Who plays ----------------------------------------------------------------------------------------


def _fixed(weights: Mapping[str, float]) -> Callable[[Stack], Weighting]:
    return lambda stack: Fixed(weights)


def _headed(kind: type[Conducted], head: HeadSettings, **changes) -> Callable[[Stack], Weighting]:
    def make(stack: Stack) -> Weighting:
        own = head.model_copy(update={"learning_rate": stack.settings.head_rate} | changes)
        return stacked(kind(stack.width, own, stack.settings.group, 0), stack.names)

    return make


def _random(stack: Stack) -> Weighting:
    weighting = Dirichlet(0)
    weighting.stream = np.array(
        [seeds.key("conductor", "random weights", seed=s) for s in stack.names]
    )[:, None, None]
    return weighting


def _own(stack: Stack) -> Weighting:
    """In category c all the weight on proxy c."""
    return Given(torch.eye(len(COMPONENTS))[1 : stack.settings.categories + 1], by_category=True)


def conducted(name: str, head: HeadSettings, sees: str = "both", **changes) -> Player:
    """The published Conductor, with changes to its settings or to what it sees."""
    return Player(
        name,
        _headed(Conducted, head, **changes),
        "paper" if name == "Conductor" else "router",
        sees,
    )


def anchored(
    name: str,
    head: HeadSettings,
    share: float,
    checker: str = "verifier",
    sees: str = "both",
    **changes,
) -> Player:
    """The anchored Conductor, whose head is paid by quality on a share of the prompts."""
    return Player(name, _headed(Anchored, head, verified=share, **changes), "router", sees, checker)


def constants() -> list[Player]:
    """Who needs no head: start, every single reward, Equal, Random, the right proxy of each category, the truth."""
    return [
        Player("START", _fixed(EQUAL), "start", trains=False),
        Player("Equal", _fixed(EQUAL)),
        Player("Random", _random),
        *(Player(name, _fixed({name: 1.0})) for name in PROXIES),
        Player("best proxy per category", _own, "oracle"),
        Player("paid by the truth", _fixed({"quality": 1.0}), "oracle"),
        Player("optimum", _fixed(EQUAL), "oracle", trains=False),
    ]


def heads(settings: GlassSettings, head: HeadSettings) -> list[Player]:
    """The published head, its ablations, what the state holds, and heads that are paid otherwise."""
    return [
        conducted("Conductor", head),
        *(conducted(f"kappa {k:g}", head, kappa=k) for k in settings.kappas),
        conducted("no entropy", head, entropy=0.0),
        conducted("pairwise", head, pairwise=settings.pairwise),
        conducted("joint", head, joint=True),
        conducted("homogeneous", head, homogeneous=True),
        conducted("centred", head, centred=True),
        *(conducted(f"h: {sees}", head, sees) for sees in ("prompt", "reply", "shuffled")),
        Player("paid by the others", _headed(PaidByOthers, head, verified=1.0), "router"),
        *(anchored(f"Anchored {share:.0%}", head, share) for share in SHARES),
        anchored("Anchored 10%, errs", head, 0.1, "erring"),
        anchored("Anchored 100%, judge", head, 1.0, "judge"),
        anchored("Anchored 10%, h: prompt", head, 0.1, sees="prompt"),
        anchored("Anchored 10%, kappa 0", head, 0.1, kappa=0.0),
    ]


def direct() -> list[Player]:
    """Who is given the verified quality that an anchored head is given, and pays the policy with it at once."""
    return [
        *(
            Player(f"truth on {share:.0%} alone", _fixed({"fmt": 0.0}), truth=share)
            for share in SHARES[1:3]
        ),
        *(
            Player(f"truth on {share:.0%}, else Equal", _fixed(EQUAL), truth=share)
            for share in SHARES[1:3]
        ),
        Player("truth on 10% alone, errs", _fixed({"fmt": 0.0}), checker="erring", truth=0.1),
        Player("judge on 100% alone", _fixed({"fmt": 0.0}), checker="judge", truth=1.0),
    ]


def players(settings: GlassSettings, head: HeadSettings) -> dict[str, Player]:
    """Everybody by name but those two whose weights another training decides."""
    return {player.name: player for player in [*constants(), *heads(settings, head), *direct()]}


def at_means(found: pd.DataFrame) -> Player:
    """Constants at the mean weights that a head ended with, seed by seed: what is left of it without the context."""
    means = found.groupby(["condition", "seed"], sort=False)[
        [f"w_{name}" for name in COMPONENTS]
    ].mean()
    weights = torch.from_numpy(means.to_numpy(dtype=np.float32))[:, None]
    return Player(MEANS, lambda stack: Given(weights))


def best_static(settings: GlassSettings, worlds: Sequence[RewardWorld]) -> Player:
    """The best fixed mix: every subset of the proxies in equal parts, and Equal, compete on dev worlds, which share
    nothing with the test."""
    subsets = [c for size in range(1, len(PROXIES) + 1) for c in combinations(PROXIES, size)] + [
        COMPONENTS
    ]
    mixes = {"+".join(names): dict.fromkeys(names, 1 / len(names)) for names in subsets}
    stack = Stack(settings, worlds, max(2, settings.seeds // 4), "dev")
    found = {
        name: play(stack, Player(name, _fixed(mix)))["reward"].mean() for name, mix in mixes.items()
    }
    return Player(BEST, _fixed(mixes[max(found, key=found.get)]))


# Jobs ---------------------------------------------------------------------------------------------


def centre(settings: GlassSettings) -> RewardWorld:
    """The setting at which all methods meet."""
    return RewardWorld(settings.good, settings.bad)


def places(settings: GlassSettings) -> list[RewardWorld]:
    """The worlds of the maps: disagreement by noise, and disagreement by the share of an easy reward."""
    maps = settings.maps
    noisy = [RewardWorld(settings.good, bad, noise) for bad in maps.bad for noise in maps.noise]
    return list(
        dict.fromkeys(
            [
                *noisy,
                *(
                    RewardWorld(settings.good, bad, 0.0, easy)
                    for bad in maps.bad
                    for easy in maps.easy
                ),
            ]
        )
    )


def versions() -> dict[str, int]:
    """The VERSIONs of the code that decides what a method reaches."""
    return {
        "random streams": seeds.VERSION,
        "losses": losses.VERSION,
        "variants": variants.VERSION,
        "rewards": five_rewards.VERSION,
        "weightings": weightings.VERSION,
        "head": conductor_head.VERSION,
        "learning of the head": meta_policy_training.VERSION,
        "synthetic benchmark": VERSION,
    }


def make_jobs(settings: GlassSettings, head: HeadSettings) -> list[sweep.Job]:
    """One job for each method at the centre, and for each mapped method on the maps."""
    central_arms = (BEST, MEANS, *players(settings, head))
    map_jobs = [
        _make_job("map", method, places(settings), settings.map_seeds, settings, head)
        for method in MAPPED
    ]
    central_jobs = [
        _make_job("centre", method, [centre(settings)], settings.seeds, settings, head)
        for method in central_arms
    ]
    return [*map_jobs, *central_jobs]


def _make_job(
    style: str,
    method: str,
    worlds: Sequence[RewardWorld],
    num_seeds: int,
    settings: GlassSettings,
    head: HeadSettings,
) -> sweep.Job:
    with_head = method == MEANS or method in {player.name for player in heads(settings, head)}
    fields = [*_READ_BY_ALL]
    if with_head:
        fields += _READ_WITH_A_HEAD
    if method == BEST:
        fields += _READ_BY_BEST
    decided_by = {
        "job": "synthetic benchmark",
        "style": style,
        "variant": method,
        "seeds": num_seeds,
        "worlds": [asdict(world) for world in worlds],
        "glass": settings.to_job_settings(*fields),
        "versions": versions(),
        "libraries": {"torch": torch.__version__},
    }
    if with_head:
        decided_by["head"] = head.to_job_settings(*_READ_OF_THE_HEAD)
    return sweep.Job(f"{style}/{method}", decided_by)


def work(job: sweep.Job, folder: Path, progress) -> int:
    """Play one method; leaves its rows in `folder`."""
    torch.set_num_threads(1)
    settings = GlassSettings.from_job_settings(job.settings["glass"])
    worlds = [RewardWorld(**knobs) for knobs in job.settings["worlds"]]
    stack = Stack(settings, worlds, job.settings["seeds"])
    player = _make_player(job.settings, stack)
    rows = play(stack, player).assign(style=job.settings["style"])
    artifacts.write_parquet(folder / "rows.parquet", rows)
    return len(rows)


def _make_player(job_settings: Mapping[str, Any], stack: Stack) -> Player:
    """The method of a job, from no more settings than it was handed."""
    method = job_settings["variant"]
    if method == BEST:
        return best_static(stack.settings, stack.worlds)
    if "head" not in job_settings:
        return {player.name: player for player in [*constants(), *direct()]}[method]
    head = HeadSettings.from_job_settings(job_settings["head"])
    conductors = {player.name: player for player in heads(stack.settings, head)}
    if method == MEANS:
        return at_means(play(stack, conductors["Conductor"]))
    return conductors[method]


def study(
    settings: GlassSettings, head: HeadSettings, workers: int | None = None, runs: str | Path = RUNS
) -> pd.DataFrame:
    """Rows of the record `conductor_glass`: all methods at the centre (style `centre`), some on the maps (style
    `map`)."""
    jobs = make_jobs(settings, head)
    sweep.run(work, jobs, runs, workers, "playing in the glass box")
    rows = [artifacts.read_parquet(job.folder(runs) / "rows.parquet") for job in jobs]
    return pd.concat(rows, ignore_index=True).assign(backend="world")
