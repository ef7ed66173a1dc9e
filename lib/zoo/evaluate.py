"""Play policies and write down every decision.

All policies meet the same students and the same rooms (common random numbers), so differences
between them are not luck. The record has one row per step; `episodes` sums it up. Tables and
figures are made from these records only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib import seeds, stats
from lib.envs.batch import BatchedEnv
from lib.params import Params
from lib.zoo.policies import Policy
from lib.zoo.recipes import OBJECTIVES, make_batch

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]  # observations (N, ...), draws (N,) -> actions (N,)


def play(env: BatchedEnv, act: Act, streams: np.ndarray, describe: Callable | None = None) -> pd.DataFrame:
    """One episode in every row of `env`; one line per step that belongs to it.

    streams: (B,) keys of the episodes' random numbers. describe(env) may return more columns, (B,)
    arrays describing the state before the step. Columns: episode, step, action, reward_0.., done.
    """
    env.seed_with(streams)
    observation = env.reset()
    draws_from = seeds.next_key(streams ^ np.uint64(0xAC7))
    alive, lines, step = np.ones(env.num_envs, dtype=bool), [], 0
    while alive.any():
        action = act(observation, seeds.uniform(draws_from, np.full(env.num_envs, step)))
        before = describe(env) if describe else {}
        result = env.advance(action)
        rewards = {f"reward_{i}": result.reward[alive, i] for i in range(env.reward_dim)}
        line = {"episode": np.flatnonzero(alive), "step": step, "action": action[alive], **rewards}
        extra = {name: value[alive].copy() for name, value in before.items()}
        lines.append(pd.DataFrame({**line, **extra, "done": result.done[alive]}))
        alive &= ~result.done
        observation, step = result.observation, step + 1
    return pd.concat(lines, ignore_index=True)


def evaluation_streams(domain: str, seed: int, episodes: int) -> np.ndarray:
    """Keys of the evaluation episodes: equal for all policies, apart from all training episodes."""
    return seeds.keys("evaluation", domain, seed=seed * 1_000_000, n=episodes)


def evaluate(params: Params, zoo: Mapping[str, Sequence[Policy]], domain: str, task: str) -> pd.DataFrame:
    """The step record of every policy and seed on `task`, with `method`, `seed`, `backend`."""
    env = make_batch(params, domain, [task] * params.zoo.episodes)
    describe = _mastery if domain == "education" else None
    records = []
    for name, by_seed in zoo.items():
        for seed, policy in enumerate(by_seed):
            streams = evaluation_streams(domain, seed, params.zoo.episodes)
            record = play(env, policy.act, streams, describe)
            records.append(record.assign(method=name, seed=seed, backend="policy"))
    return pd.concat(records, ignore_index=True)


def random_policy(actions: int) -> Act:
    """Uniform over the actions: the floor of every table."""
    return lambda observation, draws: (draws * actions).astype(np.int64)


def constant_policy(action: int) -> Act:
    """Always the same action."""
    return lambda observation, draws: np.full(len(observation), action)


def _mastery(env) -> dict[str, np.ndarray]:
    return {"mastery": env.mastery / env.rules.top, "open_failed": env.pending.sum(axis=1)}


def episodes(record: pd.DataFrame, domain: str) -> pd.DataFrame:
    """One line per episode: method, seed, episode, length, the return and the per-step mean of each
    objective (`aptitude`, ... and `mean_aptitude`, ...)."""
    names = OBJECTIVES[domain]
    columns = {f"reward_{i}": name for i, name in enumerate(names)}
    groups = record.groupby(["method", "seed", "episode"], sort=True, observed=True)
    out = groups[list(columns)].sum().rename(columns=columns)
    out.insert(0, "length", groups.size())
    for name in names:
        out[f"mean_{name}"] = out[name] / out["length"]
    return out.reset_index()


def front_columns(domain: str) -> list[str]:
    """The vector that Pareto statistics compare, in [0, 1] each: per-step means in education, where
    returns depend on length; returns in minigrid, where they are shares already."""
    names = OBJECTIVES[domain]
    return [f"mean_{name}" for name in names] if domain == "education" else list(names)


REFERENCE_POINT = (-1.0, -1.0, -1.0)  # of the hypervolume (spec; reproduces Table 2's 7.91)


def pareto_summary(table: pd.DataFrame, domain: str, method: str) -> dict[str, stats.Interval]:
    """Hypervolume in both estimators, sparsity and cardinality of one method's episodes.

    hv_union: of the union of single episodes, N per seed fixed (best of N); hv_mean: of each seed's
    mean vector. Intervals: bootstrap over seeds.
    """
    columns = front_columns(domain)
    rows = table[table["method"] == method]
    by_seed = [group[columns].to_numpy() for _, group in rows.groupby("seed")]
    means = np.stack([points.mean(axis=0) for points in by_seed])
    values = {
        "hv_union": [stats.hv_union(points, REFERENCE_POINT) for points in by_seed],
        "hv_mean": stats.hv_by_seed(means, REFERENCE_POINT),
        "sparsity": [stats.sparsity(points) for points in by_seed],
        "cardinality": [stats.cardinality(points) for points in by_seed],
    }
    rng = seeds.rng("pareto", domain, method)
    return {name: stats.mean_interval(np.asarray(value, dtype=float), rng) for name, value in values.items()}


def summary(table: pd.DataFrame, method: str, columns: dict[str, str]) -> dict[str, stats.Interval]:
    """Means of episode columns, {shown name: column}, with intervals over the seeds' means."""
    by_seed = table[table["method"] == method].groupby("seed")
    rng = seeds.rng("summary", method)
    return {shown: stats.mean_interval(by_seed[column].mean().to_numpy(), rng) for shown, column in columns.items()}
