"""Play policies and write down every decision.

All policies meet the same students and the same rooms (common random numbers), so differences
between them are not luck. The record has one row per step; `episodes` sums it up. Tables and
figures are made from these records only.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from lib import stats
from lib.config import Params
from lib.envs.batched_env import BatchedEnv, Transition
from lib.experiment import seeds
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import ACTIONS, OBJECTIVES, SINGLE, make_batch, recipes

VERSION = 1  # of records of evaluation episodes and what they sum up to
Act = Callable[
    [np.ndarray, np.ndarray], np.ndarray
]  # observations (N, ...), draws (N,) -> actions (N,)


def play(
    env: BatchedEnv,
    act: Act,
    streams: np.ndarray,
    describe: Callable[[BatchedEnv], dict[str, np.ndarray]] | None = None,
    outcome: Callable[[Transition], dict[str, np.ndarray]] | None = None,
) -> pd.DataFrame:
    """One episode in every row of `env`; one line per step that belongs to it.

    streams: (B,) keys of the episodes' random numbers. describe and outcome may return more columns,
    (B,) arrays: of the state before the step, and of what the step led to (the state itself may belong
    to the next episode by then). Columns: episode, step, action, reward_0.., done.
    """
    env.seed_with(streams)
    observation = env.reset()
    draws_from = seeds.next_key(streams ^ np.uint64(0xAC7))
    alive, lines, step = np.ones(env.num_envs, dtype=bool), [], 0
    everyone = np.arange(env.num_envs)
    while alive.any():
        action = act(observation, seeds.uniform(draws_from, np.full(env.num_envs, step)))
        before = describe(env) if describe else {}
        result = env.advance(action)
        rewards = {f"reward_{i}": result.reward[:, i] for i in range(env.reward_dim)}
        line = {
            "episode": everyone,
            "step": np.full(env.num_envs, step),
            "action": action,
            **rewards,
        }
        after = outcome(result) if outcome else {}
        line |= before | after | {"done": result.done}
        lines.append({name: value[alive] for name, value in line.items()})  # a mask copies
        alive &= ~result.done
        observation, step = result.observation, step + 1
    return pd.DataFrame({name: np.concatenate([line[name] for line in lines]) for name in lines[0]})


def evaluation_streams(domain: str, seed: int, episodes: int) -> np.ndarray:
    """Keys of the evaluation episodes: equal for all policies, apart from all training episodes."""
    return seeds.keys("evaluation", domain, seed=seed * 1_000_000, n=episodes)


def evaluate(
    params: Params, actors: Mapping[str, Sequence[Act]], domain: str, task: str
) -> pd.DataFrame:
    """The step record of every actor, {method: one `Act` per seed}, on `task`.

    Columns of `play` plus method, seed and backend (`policy`: nothing here asks a language model).
    """
    env = make_batch(params, domain, [task] * params.zoo.episodes)
    looks = (_before, _after) if domain == "education" else (None, None)
    records = []
    for method, by_seed in actors.items():
        for seed, act in enumerate(by_seed):
            streams = evaluation_streams(domain, seed, params.zoo.episodes)
            record = play(env, act, streams, *looks)
            records.append(record.assign(method=method, seed=seed, backend="policy"))
    return pd.concat(records, ignore_index=True)


def actors(zoo: Mapping[str, Sequence[Policy]]) -> dict[str, list[Act]]:
    """The zoo's policies as actors that sample their actions."""
    return {name: [policy.act for policy in by_seed] for name, by_seed in zoo.items()}


def baselines(domain: str, replicates: int) -> dict[str, list[Act]]:
    """Random choice and, where one action can be a strategy (education), each action alone."""
    names = ACTIONS[domain]
    out = {"random": mixture_policy(np.ones(len(names)) / len(names))}
    if domain == "education":
        out |= {
            f"always {name}": mixture_policy(np.eye(len(names))[i]) for i, name in enumerate(names)
        }
    return {name: [act] * replicates for name, act in out.items()}


def mixture_policy(weights: Sequence[float]) -> Act:
    """Action i with probability weights[i], whatever is seen."""
    edges = np.cumsum(weights)
    return lambda observation, draws: np.minimum(
        np.searchsorted(edges, draws, side="right"), len(edges) - 1
    )


ORACLE = "oracle (hindsight)"


def with_oracle(table: pd.DataFrame, domain: str) -> pd.DataFrame:
    """`table` (of `episodes`) plus the oracle: for each student or room the episode of the
    single-objective policy that served best by the plain mean of the objectives, chosen after the
    fact. A ceiling for anything that picks one policy per episode, not a method."""
    columns = front_columns(domain)
    rows = table[table["method"].isin(SINGLE)]
    best = rows[columns].mean(axis=1).groupby([rows["seed"], rows["episode"]]).idxmax()
    return pd.concat([table, table.loc[best].assign(method=ORACLE)], ignore_index=True)


def _before(env) -> dict[str, np.ndarray]:
    return {"mastery": env.mastery / env.rules.top, "open_failed": env.pending.sum(axis=1)}


def _after(step: Transition) -> dict[str, np.ndarray]:
    mastery = step.final_observation[:, 0].astype(np.float64)
    return {"mastery_after": mastery.round(6)}  # observations are float32


def paid_for(method: str) -> tuple[int, ...]:
    """Places of the objectives that a policy is paid for: one for SO-d1..3, goal and gold for MO-pseudoS,
    all three for everything else."""
    if method in SINGLE:
        return (SINGLE.index(method),)
    return (0, 2) if method == "MO-pseudoS" else (0, 1, 2)


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


REFERENCE_POINT = (-1.0, -1.0, -1.0)  # of the hypervolume; reproduces the 7.91 of Table 2


def hv_mean(points: np.ndarray) -> float:
    """Hypervolume of the mean vector of episodes (n, 3)."""
    return stats.hypervolume(points.mean(axis=0)[None], REFERENCE_POINT)


FRONTS: dict[str, Callable[[np.ndarray], float]] = {  # of a seed's episodes (n, 3)
    "hv_union": partial(stats.hv_union, reference=REFERENCE_POINT),
    "hv_mean": hv_mean,
    "sparsity": stats.sparsity,
    "cardinality": stats.cardinality,
}


def union_growth(rows: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """Hypervolume of the union of N episodes against N, beside that of the mean vector, per method of a record.

    Columns: method, episodes (N), value, mean. Episodes of all seeds together, random subsets; no interval.
    """
    lines = []
    for method in arms:
        part = rows[rows["method"] == method]
        points = part[["d1", "d2", "d3"]].to_numpy()
        mean = hv_mean(points)
        for n in (n for n in (1, 2, 5, 10, 20, 50, 100, 200) if n <= len(points)):
            rng = seeds.rng("union", part["group"].iloc[0], method, n)
            union = stats.hv_union(points, REFERENCE_POINT, n_fixed=n, rng=rng)
            lines.append({"method": method, "episodes": n, "value": union, "mean": mean})
    return pd.DataFrame(lines)


# The record ----------------------------------------------------------------------------------------

_ROLES = {
    "SO-": "expert",
    "MO-": "paper",
    "oracle": "oracle",
}  # whoever is neither acts without looking


def as_record(table: pd.DataFrame, domain: str, task: str) -> pd.DataFrame:
    """Episodes as rows of the record "zoo": method, seed, item (every seed meets its own students and rooms), group
    (the domain), condition (the task), reward (mean of the objectives), right (minigrid: the goal was reached).

    Its own columns: length; d1, d2, d3, the objectives in [0, 1] (`front_columns`); return_d1 .. 3, their sums.
    """
    vectors = dict(zip(("d1", "d2", "d3"), front_columns(domain), strict=True))
    returns = dict(zip(("return_d1", "return_d2", "return_d3"), OBJECTIVES[domain], strict=True))
    arms = table["method"].str.replace(" (hindsight)", "", regex=False)
    rows = pd.DataFrame(
        {"method": arms, "seed": table["seed"], "group": domain, "condition": task, "split": "test"}
    )
    rows["role"] = [
        next((r for start, r in _ROLES.items() if a.startswith(start)), "constant") for a in arms
    ]
    rows["item"] = table["seed"].astype(str) + "-" + table["episode"].astype(str)
    rows["backend"], rows["calls"] = "policy", table["length"]
    rows["correct"] = table["goal"] if domain == "minigrid" else np.nan
    rows["reward"] = table[list(vectors.values())].mean(axis=1)
    rows["outcomes"] = list(table[list(vectors.values())].to_numpy())
    own = {"length": "length"} | vectors | returns
    return rows.assign(**{name: table[column].astype(float) for name, column in own.items()})


def at_home(params: Params, zoo: Mapping[str, Sequence[Policy]]) -> pd.DataFrame:
    """Record rows of the minigrid policies that were trained in a room of their own, there (`condition`)."""
    rows = []
    for recipe in (each for each in recipes(params, "minigrid") if each.task != "composite"):
        played = evaluate(params, actors({recipe.name: zoo[recipe.name]}), "minigrid", recipe.task)
        rows.append(as_record(episodes(played, "minigrid"), "minigrid", recipe.task))
    return pd.concat(rows, ignore_index=True)


def paid_returns(curves: pd.DataFrame, zoo: Mapping[str, Sequence[Policy]]) -> pd.DataFrame:
    """Training episodes of all policies with the mean return of their own objectives as `value`.

    Episodes that ended before the longest could are left out where others are there: they are short ones only.
    """
    frames = []
    for name, by_seed in zoo.items():
        rows = curves[curves["method"] == name]
        settled = rows["steps"] / by_seed[0].about["settings"]["num_envs"] > rows["length"].max()
        rows = rows[settled] if settled.any() else rows
        frames.append(
            rows.assign(
                value=rows[[f"return_{i}" for i in paid_for(name)]].mean(axis=1), policy=name
            )
        )
    return pd.concat(frames, ignore_index=True)
