"""Many episodes side by side: a batch of students or rooms, copies that look ahead, and everyone who decides.

All episodes of a job advance in lockstep, so that a reader is asked once a step for all of them. Copies draw fresh
random numbers. Lava is in sight for everybody who looks ahead: a look's no-lava is the share of copies that did not
step on any. An `Arena` is one world: the paper's, or one of ours (students of hidden talent, rooms with guides), whose
queries weigh the objectives differently from episode to episode. Left out: prompts, which are `orchestrators`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.config import Environments, Params
from lib.envs.batched_env import BatchedEnv, Transition
from lib.envs.layouts import CELLS, GOLD, LAVA, PIECES
from lib.experiment import seeds
from lib.orchestration.decision_context import Brief
from lib.policy_zoo.planned_policies import SOUGHT, distances, guide
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import OBJECTIVES, SINGLE, make_batch

VERSION = 1  # of episodes side by side and who decides in them
WORLDS = ("paper", "ours")
MALFORMED, LOST = (
    -1,
    -2,
)  # in place of a policy's number: the reader named none, or its reply was lost
_DRAWS, _COPIES = np.uint64(0xAC7), np.uint64(0xC0B1)


class BatchedPolicyMenu:
    """A menu of trained policies; the first three are those that may be chosen."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        others = [name for name in policies if name not in SINGLE]
        self.names = (*SINGLE, *others)
        self.policies = [policies[name] for name in self.names]

    def act(
        self, env: BatchedEnv, which: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Actions (B,) of policy which[i] in row i, (B,) each."""
        actions = np.zeros(len(which), dtype=np.int64)
        for k in np.unique(which):
            rows = which == k
            actions[rows] = self.policies[k].act(observation[rows], draws[rows])
        return actions


class Guides:
    """The menu of guides. slip: share of their moves that are random."""

    names = tuple(SOUGHT)

    def __init__(self, slip: float) -> None:
        self.slip = slip

    def act(
        self, env: BatchedEnv, which: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Actions (B,) of guide which[i] in row i, (B,) each."""
        return guide(env, np.array(self.names)[which], draws, self.slip)


@dataclass(frozen=True)
class Moment:
    """What a decider gets at one step, for n episodes: weights (n, 3), looks (n, P, 3) of the plans it asked for, the
    state as named arrays (n,), its words, features (n, F), and a number in [0, 1) for each, (n,)."""

    arena: Arena
    rows: np.ndarray
    t: int
    weights: np.ndarray
    looks: np.ndarray | None
    state: Mapping[str, np.ndarray]
    situations: list[str]
    features: np.ndarray
    luck: np.ndarray
    recent: list[list[tuple[str, tuple[float, ...]]]]


class Arena:
    """Episodes of one domain in one world under one seed of the zoo.

    params: the environments of this world, see `environments_of`; streams: (N,) keys of the students or rooms; a
    query's weights follow from its stream.
    """

    def __init__(
        self, params: Environments, domain: str, world: str, menu, streams: np.ndarray, copies: int
    ) -> None:
        if world not in WORLDS:
            raise ValueError(f"world must be one of {', '.join(WORLDS)}, got {world!r}")
        self.domain, self.world, self.menu, self.streams, self.copies = (
            domain,
            world,
            menu,
            streams,
            copies,
        )
        self.params = params
        self.task = self.params.education.topic if domain == "education" else "composite"
        self.horizon = (
            self.params.education if domain == "education" else self.params.minigrid
        ).horizon
        equal = np.full((len(streams), 3), 1 / 3)
        self.weights = dealt(streams) if world == "ours" else equal
        self.names = menu.names[: len(SINGLE)]
        self._twin = make_batch(self.params, domain, [self.task])

    def play(self, decider, every: int = 1) -> pd.DataFrame:
        """One row per episode: length, d1 .. d3 (means per step, or returns in rooms), utility, chosen, course (what
        was reached by step: mastery, or the share of gold), malformed, failed (replies that the infrastructure lost),
        calls (how often it was decided), right. In place of a choice that is malformed or lost the first policy acts.

        every: steps that a choice holds; nobody is asked, and nothing looked at, between. Episodes that are over are
        asked and stepped no further.
        """
        n = len(self.streams)
        env = make_batch(self.params, self.domain, [self.task] * n)
        env.seed_with(self.streams)
        observation, rows, t = (
            env.reset(),
            np.arange(n),
            0,
        )  # rows: the episodes under way, which are those of env
        draws, luck = (
            seeds.next_key(self.streams ^ _DRAWS),
            seeds.next_key(self.streams + np.uint64(1)),
        )
        total = np.zeros((n, 3))
        length, held, calls, malformed, failed = np.zeros((5, n), dtype=np.int64)
        self.recent: list[list] = [[] for _ in range(n)]
        chosen, course = [[] for _ in range(n)], [[] for _ in range(n)]
        while rows.size:
            if t % every == 0:
                plans = decider.plans(self)
                looks = None if plans is None else self.look(env, observation, rows, t, plans)
                said = decider.choose(
                    self._moment(env, rows, t, looks, seeds.uniform(luck[rows], t))
                )
                held[rows] = np.maximum(said, 0)
                malformed[rows] += said == MALFORMED
                failed[rows] += said == LOST
                calls[rows] += 1
            actions = self.menu.act(env, held[rows], observation, seeds.uniform(draws[rows], t))
            result = env.advance(actions, restart=False)
            total[rows] += result.reward
            length[rows] += 1
            for row, reached, reward in zip(rows, self._reached(env), result.reward, strict=True):
                name = self.menu.names[held[row]]
                chosen[row].append(name)
                course[row].append(float(reached))
                self.recent[row] = [*self.recent[row][-2:], (name, _short(reward))]
            rows, observation, t = (
                _going(env, result, rows),
                result.observation[~result.done],
                t + 1,
            )
        vectors = total / length[:, None] if self.domain == "education" else total
        own = dict(zip(("d1", "d2", "d3"), vectors.T, strict=True))
        correct = total[:, 0] if self.domain == "minigrid" else np.nan
        return pd.DataFrame(
            {
                "length": length,
                **own,
                "reward": (vectors * self.weights).sum(1),
                "correct": correct,
                "chosen": chosen,
                "outcomes": course,
                "malformed": malformed,
                "failed": failed,
                "calls": calls,
            }
        )

    def look(
        self, env: BatchedEnv, observation: np.ndarray, rows: np.ndarray, t: int, plans: np.ndarray
    ) -> np.ndarray:
        """Rewards (n, P, 3) of plans (P, T), which policy acts at each step, on copies with fresh random numbers.

        rows: (n,) the episodes that the rows of env are. All plans of an episode meet the same numbers. A copy that has
        ended counts no further.
        """
        copies, (many, steps), twin = self.copies, plans.shape, self._twin
        size = len(rows) * many * copies
        source = np.repeat(np.arange(len(rows)), many * copies)
        twin.restore(env.state(), rows=source)
        with np.errstate(over="ignore"):
            counter = np.uint64(t * 4096) + np.arange(copies, dtype=np.uint64)
            keys = seeds.next_key((self.streams[rows] ^ _COPIES)[:, None] + counter)  # (n, C)
        twin.key = np.repeat(keys[:, None], many, axis=1).ravel()
        draws = seeds.next_key(twin.key ^ _DRAWS)
        seen, going = observation[source], np.arange(size)
        total, length, dead = np.zeros((size, 3)), np.zeros(size), np.zeros(size, dtype=bool)
        for step in range(steps):
            which = np.tile(np.repeat(plans[:, step], copies), len(rows))[going]
            result = twin.advance(
                self.menu.act(twin, which, seen, seeds.uniform(draws[going], step)), restart=False
            )
            total[going] += result.reward
            length[going] += 1
            if self.domain == "minigrid":
                dead[going] = twin.outcomes["lava"]
            going, seen = _going(twin, result, going), result.observation[~result.done]
            if not going.size:
                break
        if self.domain == "education":
            total /= length[:, None]
        else:
            total[:, 1] = ~dead
        return total.reshape(len(rows), many, copies, 3).mean(2)

    def _moment(self, env, rows, t, looks, luck) -> Moment:
        state, situations = (_student if self.domain == "education" else _room)(env)
        state["steps left"] = np.full(len(rows), self.horizon - t)
        scaled = [
            np.minimum(values, 50) / (1 if name == "mastery" else 50)
            for name, values in state.items()
        ]
        features = np.stack([np.ones(len(rows)), *scaled, *self.weights[rows].T], axis=1)
        recent = [self.recent[row] for row in rows]
        return Moment(
            self, rows, t, self.weights[rows], looks, state, situations, features, luck, recent
        )

    def _reached(self, env: BatchedEnv) -> np.ndarray:
        if self.domain == "education":
            return env.mastery / env.rules.top
        return env.gold_collected / PIECES


def environments_of(params: Params, world: str) -> Environments:
    """The environments of a world: the paper's, or those with what `orchestration.custom_environments` changes."""
    if world != "ours":
        return params
    changes = params.orchestration.custom_environments
    return Environments.model_construct(
        education=params.education.model_copy(update=changes.education),
        minigrid=params.minigrid.model_copy(update=changes.minigrid),
    )


def dealt(streams: np.ndarray) -> np.ndarray:
    """Weights (N, 3) of the queries: shares of squared exponential numbers: most favour one objective."""
    drawn = (
        np.log(1 - seeds.uniform(seeds.next_key(streams + np.uint64(7))[:, None], np.arange(3)))
        ** 2
    )
    return drawn / drawn.sum(1, keepdims=True)


def _going(env: BatchedEnv, result: Transition, rows: np.ndarray) -> np.ndarray:
    """Those of `rows`, (B,) what the rows of env are, whose episodes go on; env holds no others afterwards."""
    if not result.done.any():
        return rows
    going = np.flatnonzero(~result.done)
    env.restore(env.state(), rows=going)
    return rows[going]


def _student(env) -> tuple[dict[str, np.ndarray], list[str]]:
    mastery, open_ = env.mastery / env.rules.top, env.pending.sum(1)
    words = [
        f"{'high' if m >= 0.6 else 'low'}, {'open' if o else 'none'}"
        for m, o in zip(mastery, open_, strict=True)
    ]
    return {"mastery": mastery, "open failed": open_}, words


def _room(env) -> tuple[dict[str, np.ndarray], list[str]]:
    board, cell = env.board[:, :CELLS], env.pose // 4
    gold = (board == GOLD).sum(1)
    lava = distances(board == LAVA, np.ones(board.shape, dtype=bool))[np.arange(len(cell)), cell]
    words = [
        f"gold {g}, lava {'near' if d <= 1 else 'far'}" for g, d in zip(gold, lava, strict=True)
    ]
    return {"gold left": gold, "lava distance": lava}, words


def _short(rewards: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 2) for value in rewards)


# Who decides ---------------------------------------------------------------------------------------


class BatchedSinglePolicy:
    """One policy all the way."""

    def __init__(self, k: int = 0) -> None:
        self.k = k

    def plans(self, arena: Arena) -> np.ndarray | None:
        """What to look at before a choice, (P, T): which policy acts at each step of each plan; None for nothing."""
        return None

    def choose(self, moment: Moment) -> np.ndarray:
        """Who acts next, (n,) places on the menu; -1 where nobody on it was named, and the first one acts."""
        return np.full(len(moment.rows), self.k)


class BatchedRandomPolicy(BatchedSinglePolicy):
    """Every policy is as likely, at every step."""

    def choose(self, moment: Moment) -> np.ndarray:
        return (moment.luck * len(moment.arena.names)).astype(np.int64)


class Turns(BatchedSinglePolicy):
    """Each policy in turn."""

    def choose(self, moment: Moment) -> np.ndarray:
        return super().choose(moment) + moment.t % len(moment.arena.names)


class Ahead:
    """Whoever does best on copies by the query's weights, without a reader; the first of the best.

    steps: how far; then: steps after which each plan may hand over to another policy (the look-ahead of the gate).
    """

    def __init__(self, steps: int, then: Sequence[int] = ()) -> None:
        self.steps, self.then = steps, tuple(then)

    def plans(self, arena: Arena) -> np.ndarray:
        k = len(arena.names)
        rows = [np.full(self.steps, first) for first in range(k)]
        for at in self.then:
            rows += [
                np.where(np.arange(self.steps) < at, a, b)
                for a in range(k)
                for b in range(k)
                if a != b
            ]
        return np.array(rows)

    def choose(self, moment: Moment) -> np.ndarray:
        worth = (moment.looks * moment.weights[:, None]).sum(-1)
        return self.plans(moment.arena)[worth.argmax(1), 0]


class Bandit(BatchedSinglePolicy):
    """LinUCB, disjoint models (Li et al. 2010, algorithm 1), on what a brief's state tells, judged without optimism and
    without learning on: A_k = I + sum x x', b_k = sum r x, theta_k = A_k^-1 b_k. Every policy is tried in every state,
    so that A is one."""

    def __init__(self, arena: Arena, steps: int) -> None:
        """Learn from what each policy did on copies of the states that chance reaches, `steps` steps from each."""
        seen = _watched(arena, steps)
        size = seen[0].features.shape[1]
        a, b = np.eye(size), np.zeros((len(arena.names), size))
        for moment in seen:
            x = moment.features
            a += x.T @ x
            for k in range(len(b)):
                b[k] += x.T @ (moment.looks[:, k] * moment.weights).sum(1)
        self.theta = np.einsum("ij,kj->ki", np.linalg.inv(a), b)  # (K, F)

    def choose(self, moment: Moment) -> np.ndarray:
        return (moment.features @ self.theta.T).argmax(1)


class Read:
    """KO, TO or RO: a reader of briefs decides. cards: name -> situation -> rewards, for KO."""

    def __init__(
        self, kind: str, reader, cards: Mapping[str, Mapping[str, tuple]], steps: int
    ) -> None:
        self.kind, self.reader, self.cards = kind, reader, cards if kind == "KO" else {}
        self.steps = {"KO": 0, "TO": 1, "RO": steps}[kind]

    def plans(self, arena: Arena) -> np.ndarray | None:
        return Ahead(self.steps).plans(arena) if self.steps else None

    def choose(self, moment: Moment) -> np.ndarray:
        said = self.reader.choose([self.brief(moment, i) for i in range(len(moment.rows))])
        names = moment.arena.names
        numbers = {name: number for number, name in enumerate(names)} | {None: LOST}
        return np.array([numbers.get(name, MALFORMED) for name in said])

    def brief(self, moment: Moment, i: int) -> Brief:
        """What stands in the context of episode i of the moment; look-aheads have two digits, as in a prompt."""
        names = moment.arena.names
        looks = (
            {name: _short(moment.looks[i, k]) for k, name in enumerate(names)} if self.steps else {}
        )
        state = {name: round(float(values[i]), 2) for name, values in moment.state.items()}
        return Brief(
            self.kind,
            tuple(OBJECTIVES[moment.arena.domain]),
            _short(moment.weights[i]),
            names,
            state,
            moment.situations[i],
            self.cards,
            looks,
            self.steps,
            tuple(moment.recent[i]),
        )


def _watched(arena: Arena, steps: int) -> list[Moment]:
    """The moments that chance reaches, with looks of every policy that it does not get to see itself."""
    seen: list[Moment] = []

    class Watched(BatchedRandomPolicy):
        def plans(self, arena: Arena) -> np.ndarray:
            return Ahead(steps).plans(arena)

        def choose(self, moment: Moment) -> np.ndarray:
            seen.append(moment)
            return super().choose(moment)

    arena.play(Watched())
    return seen


def cards(arena: Arena, steps: int) -> dict[str, dict[str, tuple[float, ...]]]:
    """What each policy does in `steps` steps, by situation: means over the states that chance reaches. arena: of
    training students, whom no method is judged on. A situation that never came up tells the mean of all."""
    seen = _watched(arena, steps)
    words = np.array([word for moment in seen for word in moment.situations])
    looks = np.concatenate([moment.looks for moment in seen])
    every = _every_situation(arena.domain)
    held = {word: looks[words == word] if (words == word).any() else looks for word in every}
    return {
        name: {w: _short(held[w][:, k].mean(0)) for w in every}
        for k, name in enumerate(arena.names)
    }


def _every_situation(domain: str) -> list[str]:
    if domain == "education":
        return [f"{level}, {open_}" for level in ("low", "high") for open_ in ("open", "none")]
    return [f"gold {gold}, lava {lava}" for gold in range(PIECES + 1) for lava in ("near", "far")]
