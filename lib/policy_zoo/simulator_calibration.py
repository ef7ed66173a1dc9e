"""Which rules of the simulated student fit the paper's Table 2: a small search over what the paper leaves open.

The paper leaves open how large a mastery step is, what the warm-up does, which questions count for mastery and where
failed ones come back. Each combination is compared with the lengths and per-objective rewards of the
*single-objective* policies, for which constant actions stand in here (a policy that is rewarded for one objective
comes close to always doing one thing). Orchestrators are not used for the comparison.

Table 2 says one thing more: every orchestrator that mixes policies needs at least as many steps as SO-d1. So the
search also measures mixtures of actions: random choice, and each pair of actions with probability one half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from lib.envs.education import ACTIONS, CHALLENGE, EASY, FAILED, OBJECTIVES, EducationRules
from lib.envs.education_batch import EducationBatch
from lib.experiment import seeds
from lib.policy_zoo.evaluate import choose_from_mixture, evaluation_streams, make_action_streams

VERSION = 2  # of the search for the simulator's switches

# Table 2: length, then mean aptitude (d1), gap (d2) and performance (d3) of each policy
TABLE_2 = {
    "SO-d1": (20.43, (0.64, 0.22, 0.64)),
    "SO-d2": (43.03, (0.22, 0.38, 0.81)),
    "SO-d3": (49.37, (0.13, 0.16, 0.76)),
}
PRINTED = {  # all policies of Table 2: education as above; minigrid as length, success, no lava, gold
    "education": TABLE_2
    | {
        "MO-S": (47.43, (0.20, 0.15, 0.79)),
        "MO-RM": (48.20, (0.14, 0.30, 0.64)),
        "MO-MGDA": (43.07, (0.23, 0.36, 0.79)),
    },
    "minigrid": {
        "SO-d1": (49.3, (0.13, 0.46, 0.0)),
        "SO-d2": (93.9, (0.333, 0.97, 0.0)),
        "SO-d3": (139.7, (0.0, 0.97, 0.08)),
        "MO-pseudoS": (75.5, (0.53, 1.0, 0.70)),
    },
}
STAND_INS = {"SO-d1": CHALLENGE, "SO-d2": FAILED, "SO-d3": EASY}
RANDOM = "random"
SWITCHES = {
    "steps_per_level": (1, 2),
    "warmup": ("keep", "measure"),  # "ncc" lies between them
    "near_delta": ("below", "at_most"),
    "ncc_rule": ("at_or_above", "exact"),
    "ncc_scope": ("episode", "set"),
    "repeats": ("everywhere", "not_easy", "failed_only"),
    "solved": ("retire", "requeue"),
}
# The same in words: what a rule is about, and what each of its values means.
RULE_NAMES = {
    "steps_per_level": "mastery steps per level",
    "warmup": "first questions",
    "near_delta": "failed questions near mastery",
    "ncc_rule": "questions that count",
    "ncc_scope": "a run of right answers",
    "repeats": "failed questions return",
    "solved": "solved questions",
    "initial": "mastery begins at",
    "consecutive": "right answers in a row",
    "difficulty": "difficulties",
}
VALUE_NAMES = {
    "keep": "leave mastery as it is",
    "measure": "set mastery",
    "ncc": "may raise mastery",
    "below": "closer than delta",
    "at_most": "up to delta",
    "at_or_above": "at or above mastery",
    "exact": "at mastery only",
    "episode": "goes on in the next set",
    "set": "ends with its set",
    "everywhere": "in every set",
    "not_easy": "in all but easy sets",
    "failed_only": "in failed sets only",
    "retire": "never asked again",
    "requeue": "asked again after all others",
    "label": "as labelled",
    "calibrated": "calibrated from answers",
}
RESULT_NAMES = {
    "SO-d1 length": "steps of always challenge",
    "SO-d2 length": "steps of always failed",
    "SO-d3 length": "steps of always easy",
    "random length": "steps of random choice",
    "pair": "quickest mixture of two actions",
    "pair length": "steps of that mixture",
    "distance": "distance to Table 2",
}


def describe_rule(setting: str, value: Any) -> str:
    """A rule of the student and its value in words, such as "solved questions: never asked again"."""
    return f"{RULE_NAMES[setting]}: {VALUE_NAMES.get(value, value)}"


def describe_combinations(combinations: pd.DataFrame) -> pd.DataFrame:
    """Write combinations of rules in words, for readers.

    Args:
        combinations: Rows of the table of `search`.

    Returns:
        The same rows: rules and their values, and then the results, in words.
    """
    table = combinations.copy()
    for setting in SWITCHES.keys() & table.columns:
        table[setting] = table[setting].map(lambda value: VALUE_NAMES.get(value, value))
    return table.rename(columns=RULE_NAMES | RESULT_NAMES)


def search(
    rules: EducationRules,
    num_students: int = 100,
    switches: Mapping[str, Sequence[Any]] = SWITCHES,
) -> pd.DataFrame:
    """Compare every combination of the rules that the paper leaves open (switches) with its Table 2, a row for each.

    Args:
        rules: All other rules.
        num_students: Students that each strategy teaches under each combination.
        switches: The values of each switch.

    Returns:
        One row per combination, closest to Table 2 first. Columns: the switches; `<policy> length`, mean steps of each
        stand-in; `random length`, of random choice; `pair` and `pair length`, the two actions whose half-and-half
        mixture ends soonest; `random is no quicker`, whether random choice takes at least as many steps as the quickest
        stand-in; `distance`, the sum over policies of |length - paper's| / horizon plus the mean absolute difference of
        the three rewards.
    """
    mixtures = _make_mixtures()
    streams = evaluation_streams("switches", 0, num_students)
    rows = []
    for values in product(*switches.values()):
        combination = dict(zip(switches, values, strict=True))
        means = _play_mixtures(replace(rules, **combination), mixtures, streams)
        rows.append(combination | _compare_with_table_2(means, rules.horizon))
    table = pd.DataFrame(rows)
    return table.sort_values("distance", kind="stable", ignore_index=True)


def find_rank(table: pd.DataFrame, rules: EducationRules) -> int:
    """The rank (from 1) of the combination of switches that `rules` have in a table of `search`."""
    is_in_force = np.ones(len(table), dtype=bool)
    for name in SWITCHES.keys() & table.columns:
        is_in_force &= (table[name] == getattr(rules, name)).to_numpy()
    return int(np.flatnonzero(is_in_force)[0]) + 1


def _make_mixtures() -> dict[str, np.ndarray]:
    """Make strategies that choose actions with fixed probabilities: each action, random choice, and pairs of actions.

    An action alone stands in for the policy that is trained for one objective; pairs are mixed half and half.

    Returns:
        (actions,) probabilities by name of the strategy.
    """
    one_hot = np.eye(len(ACTIONS))
    mixtures = {policy: one_hot[action] for policy, action in STAND_INS.items()}
    mixtures[RANDOM] = np.full(len(ACTIONS), 1 / len(ACTIONS))
    for first, second in combinations(range(len(ACTIONS)), 2):
        name = f"{ACTIONS[first]} + {ACTIONS[second]}"
        mixtures[name] = (one_hot[first] + one_hot[second]) / 2
    return mixtures


def _play_mixtures(
    rules: EducationRules, mixtures: dict[str, np.ndarray], student_streams: np.ndarray
) -> pd.DataFrame:
    """Measure mean length and mean reward per step of each strategy; all teach the same students.

    Args:
        rules: Rules of the simulated student.
        mixtures: Probabilities of the actions, (3,), by strategy.
        student_streams: (students,) uint64, keys of their random numbers.

    Returns:
        By strategy: length, then the reward of each objective.
    """
    # All strategies play side by side: one large batch costs little more than a small one.
    num_students = len(student_streams)
    streams = np.tile(student_streams, len(mixtures))
    probabilities = np.repeat(np.stack(list(mixtures.values())), num_students, axis=0)
    env = EducationBatch(rules, len(streams))
    env.seed_with(streams)
    env.reset()

    action_streams = make_action_streams(streams)
    running = np.arange(len(streams))  # rows whose episode is not over, as numbered at the start
    length = np.zeros(len(streams))
    returns = np.zeros((len(streams), len(OBJECTIVES)))
    for step in range(rules.horizon):
        draws = seeds.uniform(action_streams[running], np.full(len(running), step))
        actions = choose_from_mixture(probabilities[running], draws)
        transition = env.advance(actions, restart=False)
        length[running] += 1
        returns[running] += transition.reward

        # Episodes that are over leave the batch: half the steps would be theirs.
        if transition.done.all():
            break
        if transition.done.any():
            remaining = np.flatnonzero(~transition.done)
            env.restore(env.state(), rows=remaining)
            running = running[remaining]

    episodes = pd.DataFrame(returns / length[:, None], columns=list(OBJECTIVES))
    episodes.insert(0, "length", length)
    strategy = np.repeat(list(mixtures), num_students)
    return episodes.groupby(strategy, sort=False).mean()


def _compare_with_table_2(means: pd.DataFrame, horizon: int) -> dict[str, Any]:
    """Compare the strategies' lengths and rewards with the paper's Table 2, as columns of one row.

    Args:
        means: By strategy, mean length and mean reward per objective.
        horizon: Steps of an episode at the most.

    Returns:
        Lengths, the quickest pair of actions, and the distance from the paper (columns as in `search`).
    """
    distance = 0.0
    for policy, (paper_length, paper_rewards) in TABLE_2.items():
        length = means.loc[policy, "length"]
        rewards = means.loc[policy].drop("length").to_numpy()  # (3,)
        distance += abs(length - paper_length) / horizon
        distance += np.abs(rewards - paper_rewards).mean()

    lengths = means["length"]
    lengths_of_pairs = lengths.drop([*STAND_INS, RANDOM])
    quickest_pair = lengths_of_pairs.idxmin()
    quickest_stand_in = lengths[list(STAND_INS)].min()
    return {
        **{f"{policy} length": lengths[policy] for policy in STAND_INS},
        "random length": lengths[RANDOM],
        "pair": quickest_pair,
        "pair length": lengths_of_pairs[quickest_pair],
        "random is no quicker": bool(lengths[RANDOM] >= quickest_stand_in),
        "distance": float(distance),
    }
