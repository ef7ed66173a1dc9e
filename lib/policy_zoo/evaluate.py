"""Plays policies and records every decision.

All policies meet the same students and the same rooms (common random numbers), so a difference between two of them is
not one between two draws of students. The step record has one row per decision, `summarize_episodes` one per episode,
`make_rows` turns those into rows of the results table. Tables and figures are made from these rows only.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from lib import stats
from lib.config import Params
from lib.envs.batched_env import BatchedEnv, Transition
from lib.experiment import seeds
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import ACTIONS, OBJECTIVES, SINGLE, list_recipes, make_batched_env

VERSION = 1  # of records of evaluation episodes and what they sum up to

# Observations (N, ...) and draws (N,) in [0, 1) -> actions (N,).
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
# What episodes are played for; each purpose has students and rooms of its own.
Purpose = Literal["evaluation", "cards"]

ORACLE = "oracle (hindsight)"
_ACTION_DRAWS = np.uint64(0xAC7)  # keeps the draws of actions apart from those of the environment
_SEED_STRIDE = 1_000_000  # more episodes than any seed plays
UNION_SIZES = (1, 2, 5, 10, 20, 50, 100, 200)  # episodes in a union, in `measure_union_growth`


# Playing -------------------------------------------------------------------------------------------


def play(
    env: BatchedEnv,
    act: Act,
    streams: np.ndarray,
    describe: Callable[[BatchedEnv], dict[str, np.ndarray]] | None = None,
    outcome: Callable[[Transition], dict[str, np.ndarray]] | None = None,
) -> pd.DataFrame:
    """Play one episode in every row of a batched environment, and return a table with a row per step.

    Args:
        env: The environment, B rows.
        act: Chooses the actions of all rows.
        streams: (B,) uint64, the key of each episode's random numbers.
        describe: Further columns, (B,) each, from the environment before a step.
        outcome: Further columns, (B,) each, from what a step led to. The environment's own state may belong to the next
            episode by then.

    Returns:
        Columns: episode, step, action, reward_0 and on, the further columns, done.
    """
    env.seed_with(streams)
    observation = env.reset()
    action_streams = make_action_streams(streams)
    rows = np.arange(env.num_envs)
    is_running = np.ones(env.num_envs, dtype=bool)
    columns_by_step = []
    step = 0

    while is_running.any():
        # Draws depend on the episode and the step alone, so that all policies meet the same ones.
        draws = seeds.uniform(action_streams, np.full(env.num_envs, step))
        action = act(observation, draws)
        state_columns = describe(env) if describe else {}
        transition = env.advance(action)

        columns = {"episode": rows, "step": np.full(env.num_envs, step), "action": action}
        for i in range(env.reward_dim):
            columns[f"reward_{i}"] = transition.reward[:, i]
        columns |= state_columns
        if outcome:
            columns |= outcome(transition)
        columns["done"] = transition.done

        # Rows whose first episode is over play on, but are not recorded. A mask copies.
        columns_by_step.append({name: values[is_running] for name, values in columns.items()})
        is_running &= ~transition.done
        observation = transition.observation
        step += 1

    names = columns_by_step[0]
    return pd.DataFrame(
        {name: np.concatenate([columns[name] for columns in columns_by_step]) for name in names}
    )


def make_action_streams(streams: np.ndarray) -> np.ndarray:
    """Keys of the draws of actions, apart from those of the environments with keys `streams`, (B,) uint64."""
    return seeds.next_key(streams ^ _ACTION_DRAWS)


def evaluation_streams(
    domain: str, seed: int, episodes: int, purpose: Purpose = "evaluation"
) -> np.ndarray:
    """The keys of the random numbers of the episodes in which policies of a seed are evaluated, (episodes,) uint64.

    They are equal for all policies of the seed, and apart from those of all training episodes.

    Args:
        domain: education or minigrid.
        seed: Number of the training whose policies play.
        episodes: How many episodes.
        purpose: What they are played for; policy cards describe other students and rooms than tables do.
    """
    return seeds.keys(purpose, domain, seed=seed * _SEED_STRIDE, n=episodes)


def evaluate(
    params: Params,
    actors: Mapping[str, Sequence[Act]],
    domain: str,
    task: str,
    purpose: Purpose = "evaluation",
) -> pd.DataFrame:
    """Play evaluation episodes with every policy.

    Args:
        params: All settings; `zoo.episodes` says how many episodes a seed plays.
        actors: By method, a function from observations to actions for each seed.
        domain: education or minigrid.
        task: The room (minigrid) or the skill.
        purpose: What the episodes are played for: tables (evaluation) or policy cards.

    Returns:
        A row per step: the columns of `play`, and method, seed and backend (`policy`: no language model is called).
        Where students are taught, also mastery, mastery_after, open_failed (failed questions that may come back), and
        how many questions of the set counted for mastery (counted) and were answered right (counted_correct).
    """
    env = make_batched_env(params, domain, [task] * params.zoo.episodes)
    describe = None
    outcome = None
    if domain == "education":
        describe = _describe_student
        outcome = partial(_describe_set, env)
    records = []
    for method, actors_by_seed in actors.items():
        for seed, act in enumerate(actors_by_seed):
            streams = evaluation_streams(domain, seed, params.zoo.episodes, purpose)
            record = play(env, act, streams, describe, outcome)
            records.append(record.assign(method=method, seed=seed, backend="policy"))
    return pd.concat(records, ignore_index=True)


def _describe_student(env: BatchedEnv) -> dict[str, np.ndarray]:
    """Mastery in [0, 1] and failed questions that may come back, (students,) each, before a step."""
    return {"mastery": env.mastery / env.rules.top, "open_failed": env.pending.sum(axis=1)}


def _describe_set(env: BatchedEnv, transition: Transition) -> dict[str, np.ndarray]:
    """Read what one set of questions did to each student.

    Args:
        env: The students after the step.
        transition: The step.

    Returns:
        Mastery after the step, and how many questions counted for it and were right, (students,) each.
    """
    mastery = transition.final_observation[:, 0].astype(np.float64)
    return {
        "mastery_after": mastery.round(6),  # observations are float32
        "counted": env.last_set.num_counted,
        "counted_correct": env.last_set.num_counted_correct,
    }


def evaluate_in_training_rooms(params: Params, zoo: Mapping[str, Sequence[Policy]]) -> pd.DataFrame:
    """Play the minigrid policies that were trained in a simpler room than the paper's, each in its own training room.

    Args:
        params: All settings.
        zoo: Trained policies by name, one per seed.

    Returns:
        Rows of the results table, one per policy, seed and episode; the room is the column `condition`.
    """
    rows = []
    for recipe in list_recipes(params, "minigrid"):
        if recipe.task == "composite":
            continue
        actors = make_actors({recipe.name: zoo[recipe.name]})
        steps = evaluate(params, actors, "minigrid", recipe.task)
        episodes = summarize_episodes(steps, "minigrid")
        rows.append(make_rows(episodes, "minigrid", recipe.task))
    return pd.concat(rows, ignore_index=True)


# Who plays -----------------------------------------------------------------------------------------


def make_actors(zoo: Mapping[str, Sequence[Policy]], greedy: bool = False) -> dict[str, list[Act]]:
    """Make the functions from observations to actions of all trained policies.

    Args:
        zoo: Trained policies by name, one per seed.
        greedy: Take the most probable action instead of sampling one.

    Returns:
        By name of the policy, a function for each seed.
    """

    def act_greedily(policy: Policy, observation: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """The most probable actions; the random numbers are not read."""
        return policy.act(observation)

    actors = {}
    for method, policies_by_seed in zoo.items():
        if greedy:
            actors[method] = [partial(act_greedily, policy) for policy in policies_by_seed]
        else:
            actors[method] = [policy.act for policy in policies_by_seed]
    return actors


def make_baselines(domain: str, num_seeds: int) -> dict[str, list[Act]]:
    """Make policies without training: random choice and, in education, each action alone.

    Args:
        domain: education or minigrid, where a single action alone is no strategy.
        num_seeds: Each baseline is repeated for every seed, which has its own episodes.

    Returns:
        By name, a function from observations to actions for each seed.
    """
    action_names = ACTIONS[domain]
    one_hot = np.eye(len(action_names))
    actor_by_method = {"random": make_mixture(one_hot.mean(axis=0))}
    if domain == "education":
        for probabilities, name in zip(one_hot, action_names, strict=True):
            actor_by_method[f"always {name}"] = make_mixture(probabilities)
    return {method: [actor] * num_seeds for method, actor in actor_by_method.items()}


def make_mixture(probabilities: Sequence[float]) -> Act:
    """An actor that takes action i with probability probabilities[i], whatever it observes."""
    probabilities = np.asarray(probabilities)
    return lambda observation, draws: choose_from_mixture(probabilities[None], draws)


def choose_from_mixture(probabilities: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Actions (N,) from probabilities (N, A) or (1, A) and draws (N,), by the inverse of the distribution function."""
    upper_edges = probabilities.cumsum(axis=1)  # (N, A)
    actions = (upper_edges <= draws[:, None]).sum(axis=1)
    return np.minimum(actions, probabilities.shape[1] - 1)  # the last edge may round below 1


def list_trained_objectives(method: str) -> tuple[int, ...]:
    """Indices of the objectives that a method is rewarded for: one for SO-d1, SO-d2 and SO-d3, goal and gold for
    MO-pseudoS, all three for any other."""
    if method in SINGLE:
        return (SINGLE.index(method),)
    return (0, 2) if method == "MO-pseudoS" else (0, 1, 2)


# Episodes ------------------------------------------------------------------------------------------


def summarize_episodes(steps: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Summarize a table of steps as a table with one row per episode.

    Args:
        steps: Method, seed, episode, and the reward of each objective.
        domain: education or minigrid.

    Returns:
        method, seed, episode, length; by objective the return (`aptitude`) and the mean per step (`mean_aptitude`).
    """
    objectives = OBJECTIVES[domain]
    name_by_column = {f"reward_{i}": name for i, name in enumerate(objectives)}
    by_episode = steps.groupby(["method", "seed", "episode"], sort=True, observed=True)
    episodes = by_episode[list(name_by_column)].sum().rename(columns=name_by_column)
    episodes.insert(0, "length", by_episode.size())
    for name in objectives:
        episodes[f"mean_{name}"] = episodes[name] / episodes["length"]
    return episodes.reset_index()


def summarize_teaching(steps: pd.DataFrame, questions_per_set: int) -> pd.DataFrame:
    """Tabulate how quickly each method brings students to mastery, and its rewards, for readers.

    Args:
        steps: A row per step of students.
        questions_per_set: Questions that a student is asked in a step.

    Returns:
        By method, quickest first: steps of an episode; share of the questions that counted for mastery, and of those
        the share answered right; return of an episode and reward per step, means of the three objectives.
    """
    episodes = summarize_episodes(steps, "education")
    returns = episodes[list(OBJECTIVES["education"])].mean(axis=1)
    rewards = episodes[front_columns("education")].mean(axis=1)
    counts = steps.groupby("method")[["counted", "counted_correct"]].sum()
    num_questions = steps.groupby("method").size() * questions_per_set
    table = pd.DataFrame(
        {
            "steps": episodes.groupby("method")["length"].mean(),
            "questions that count, %": 100 * counts["counted"] / num_questions,
            "right among those, %": 100 * counts["counted_correct"] / counts["counted"],
            "return of an episode": returns.groupby(episodes["method"]).mean(),
            "reward per step": rewards.groupby(episodes["method"]).mean(),
        }
    )
    return table.sort_values("steps", kind="stable")


def front_columns(domain: str) -> list[str]:
    """Columns of the vector that Pareto statistics compare, in [0, 1] each: means per step in education, where returns
    depend on length; returns in minigrid, where they are shares already."""
    objectives = OBJECTIVES[domain]
    return [f"mean_{name}" for name in objectives] if domain == "education" else list(objectives)


def add_oracle(episodes: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Add an oracle to a table of episodes: for each student or room the best episode of any single-objective policy.

    It is chosen after the fact by the mean of the objectives: an upper bound for anything that picks one policy per
    episode, not a method.

    Args:
        episodes: A row per method, seed and episode.
        domain: education or minigrid.

    Returns:
        The table with further rows, method ORACLE.
    """
    single = episodes[episodes["method"].isin(SINGLE)]
    utility = single[front_columns(domain)].mean(axis=1)
    best_index = utility.groupby([single["seed"], single["episode"]]).idxmax()
    oracle = episodes.loc[best_index].assign(method=ORACLE)
    return pd.concat([episodes, oracle], ignore_index=True)


def select_training_returns(
    curves: pd.DataFrame, zoo: Mapping[str, Sequence[Policy]]
) -> pd.DataFrame:
    """Select the training episodes of all policies for a learning curve, and add the return that each one reached.

    The first episodes to finish are short ones, whose returns would mislead. So a policy's episodes count only from
    the time on at which its longest episode could have finished, or all of them where training ended before that.

    Args:
        curves: A row per finished training episode, as `ppo.make_training_curve` makes them.
        zoo: Trained policies by name, one per seed.

    Returns:
        Rows of `curves` with two more columns. value: the return, a mean over the objectives that the policy is
        rewarded for; policy: its name, as in the column method.
    """
    frames = []
    for method, policies_by_seed in zoo.items():
        episodes = curves[curves["method"] == method]
        num_envs = policies_by_seed[0].about["settings"]["num_envs"]
        # `steps` counts those of all environments side by side; each of them has taken 1 / num_envs of these.
        is_unbiased = episodes["steps"] / num_envs > episodes["length"].max()
        if is_unbiased.any():
            episodes = episodes[is_unbiased]
        columns = [f"return_{i}" for i in list_trained_objectives(method)]
        frames.append(episodes.assign(value=episodes[columns].mean(axis=1), policy=method))
    return pd.concat(frames, ignore_index=True)


# Fronts --------------------------------------------------------------------------------------------

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


def measure_union_growth(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Measure the hypervolume that N episodes enclose together, against N, and that of their mean vector.

    A vector is an episode's value of the three objectives; the hypervolume is the volume that vectors dominate, above a
    reference point.

    The union grows with N, so hypervolumes of unions compare only at equal N.

    Args:
        rows: Rows of the results table of one domain.
        methods: Which methods.

    Returns:
        method, episodes (N), value, mean. Of random subsets of the episodes of all seeds together; no interval.
    """
    lines = []
    for method in methods:
        of_method = rows[rows["method"] == method]
        points = of_method[["d1", "d2", "d3"]].to_numpy()  # (episodes, 3)
        mean = hv_mean(points)
        for size in UNION_SIZES:
            if size > len(points):
                break
            rng = seeds.rng("union", of_method["group"].iloc[0], method, size)
            union = stats.hv_union(points, REFERENCE_POINT, n_fixed=size, rng=rng)
            lines.append({"method": method, "episodes": size, "value": union, "mean": mean})
    return pd.DataFrame(lines)


# Rows of the results table -------------------------------------------------------------------------

# By the beginning of a method's name; all others choose without observing anything.
_ROLES = {"SO-": "expert", "MO-": "paper", "oracle": "oracle"}
_CONSTANT = "constant"


def make_rows(episodes: pd.DataFrame, domain: str, task: str) -> pd.DataFrame:
    """Make the rows of the results table "zoo", one per method, seed and episode.

    Args:
        episodes: A row per episode, with length and objectives.
        domain: education or minigrid, the column `group`.
        task: The room or the skill, the column `condition`.

    Returns:
        Beside the columns of every results table: item (every seed meets its own students and rooms), reward (mean of
        the objectives), correct (minigrid: the goal was reached), length, d1 to d3 (the objectives in [0, 1], see
        `front_columns`), return_d1 to return_d3 (their sums over the episode).
    """
    vector_columns = front_columns(domain)
    methods = episodes["method"].str.replace(" (hindsight)", "", regex=False)
    rows = pd.DataFrame(
        {
            "method": methods,
            "seed": episodes["seed"],
            "group": domain,
            "condition": task,
            "split": "test",
        }
    )
    rows["role"] = [_find_role(method) for method in methods]
    rows["item"] = episodes["seed"].astype(str) + "-" + episodes["episode"].astype(str)
    rows["backend"] = "policy"
    rows["calls"] = episodes["length"]
    rows["correct"] = episodes["goal"] if domain == "minigrid" else np.nan
    rows["reward"] = episodes[vector_columns].mean(axis=1)
    rows["outcomes"] = list(episodes[vector_columns].to_numpy())
    rows["length"] = episodes["length"].astype(float)
    for name, column in zip(("d1", "d2", "d3"), vector_columns, strict=True):
        rows[name] = episodes[column].astype(float)
    for name, column in zip(
        ("return_d1", "return_d2", "return_d3"), OBJECTIVES[domain], strict=True
    ):
        rows[name] = episodes[column].astype(float)
    return rows


def _find_role(method: str) -> str:
    for beginning, role in _ROLES.items():
        if method.startswith(beginning):
            return role
    return _CONSTANT
