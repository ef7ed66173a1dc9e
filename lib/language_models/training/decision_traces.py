"""Decision situations: what an orchestrator reads before it picks a policy, and what a rational reader answers.

A situation is written in the vocabulary of the lab models, a group of words for every number that is known:

    low Ana 9 6 2 low Ana 3 0 0 low Bo 9 0 0 low Bo 3 7 1

where `low Ana 9 6 2` says that while things stand `low`, Ana is .62 better by an objective that counts 9 than whoever
is worst by it. Numbers of a look-ahead begin with `look` instead of a state. So cards, trials of one step and
rollouts are one language: KO, TO and RO differ in which numbers stand there. Numbers are relative to each other
(`rescale_values`), which moves no choice: what decides is differences, and they fill the two digits. The rational
answer is the policy with the highest sum of importance times value. Names and states mean nothing, they are dealt
anew.

Left out: cards of other states than the one at hand. Of two pages, models of this size did not learn which one
counts.

The family `situation` makes such situations up, as a lab model is taught them: to rank all policies, the best first.
The hash of the preferences decides a situation's split, so preferences of dev and test were never seen in training.
It joins the families of `lib.tasks` when this module is imported: models that are not taught it stay what they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import tasks
from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PEOPLE

VERSION = 1  # of the decision situations
FAMILY = "situation"
STATES = ("low", "medium", "high")
LOOKAHEAD = "look"
NUM_POLICIES = tuple(range(2, 9))  # in a situation
NUM_OBJECTIVES = (2, 4)  # of a made-up situation, from and to
_LARGEST_WEIGHT = 9  # digit of the objective that counts most
_ROLLOUTS = 8  # copies of a look-ahead; made-up tables hold fractions of so many


@dataclass(frozen=True)
class TraceSituation:
    """A decision in the vocabulary of the lab models.

    Attributes:
        weights: A digit per objective.
        state: The state of the environment, or LOOKAHEAD.
        values: By policy, one per objective, in hundredths.
    """

    weights: tuple[int, ...]
    state: str
    values: Mapping[str, tuple[int, ...]]

    @property
    def prompt(self) -> str:
        """The situation in words, number by number."""
        groups = []
        for name, policy_values in self.values.items():
            for weight, value in zip(self.weights, policy_values, strict=True):
                tens, ones = divmod(value, 10)
                groups.append(f"{self.state} {name} {weight} {tens} {ones}")
        return " ".join(groups)

    @property
    def utilities(self) -> dict[str, int]:
        """Importance times value, summed, for each policy: what a rational reader compares."""
        return {name: int(np.dot(self.weights, values)) for name, values in self.values.items()}

    @property
    def ranking(self) -> tuple[str, ...]:
        """All policies, the best first; where two tie, in their order."""
        utilities = self.utilities
        return tuple(sorted(utilities, key=lambda name: -utilities[name]))


def scale_to_digits(weights: Sequence[float]) -> tuple[int, ...]:
    """Write preferences as digits.

    Args:
        weights: One per objective, of any scale.

    Returns:
        The digits, the largest of them 9.

    Raises:
        ValueError: Where none is above 0, or one below.
    """
    preferences = np.asarray(weights, dtype=float)
    is_negative = (preferences < 0).any()
    if not np.isfinite(preferences).all() or is_negative or not preferences.any():
        raise ValueError(f"preferences are numbers >= 0, one of them above, got {list(weights)}")
    scaled = _LARGEST_WEIGHT * preferences / preferences.max()
    digits = np.rint(scaled).astype(int)
    return tuple(digits.tolist())


def rescale_values(values: np.ndarray) -> np.ndarray:
    """Rescale values to two digits, by one factor for all objectives.

    Args:
        values: (policies, objectives).

    Returns:
        (policies, objectives), whole numbers from 0 to 99: what a policy has above the worst one by each objective,
        in hundredths of the widest such difference. All 0 where no policy is better than another.
    """
    above_worst = values - values.min(axis=0)
    return np.rint(99 * above_worst / (above_worst.max() or 1.0)).astype(int)


def make_situation(
    weights: Sequence[float], state: str, rewards: Mapping[str, Sequence[float]]
) -> TraceSituation:
    """Make a decision situation, as a lab model reads it, from preferences and a table of rewards.

    Args:
        weights: Preference for each objective, of any scale.
        state: One of STATES, or LOOKAHEAD where the rewards come from simulated rollouts.
        rewards: By policy, one reward per objective.

    Returns:
        The situation, with weights as digits and values as two digits.

    Raises:
        ValueError: As `scale_to_digits`.
    """
    table = np.array(list(rewards.values()), dtype=float)  # (policies, objectives)
    values = rescale_values(table).tolist()
    values_by_policy = {
        name: tuple(policy_values) for name, policy_values in zip(rewards, values, strict=True)
    }
    return TraceSituation(scale_to_digits(weights), state, values_by_policy)


# The family ----------------------------------------------------------------------------------------


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str) -> Item:
    """Draw a question of the family `situation`: which of several policies is best?

    Args:
        rng: Random numbers.
        difficulty: Number of policies.
        surface_form: "cards" (values of a state) or "looks" (values of simulated rollouts).

    Returns:
        The item: its prompt lists weights and values, its reference ranks all policies, the best first.
    """
    # Drawn again while the two best policies tie, for then there is no one right answer.
    while True:
        situation = draw_situation(rng, difficulty, surface_form)
        best, second_best = situation.ranking[:2]
        if situation.utilities[best] != situation.utilities[second_best]:
            break
    preferences = " ".join(map(str, situation.weights))
    return Item(
        prompt=situation.prompt,
        reference=" ".join(situation.ranking),
        worked_solution="",
        group=FAMILY,
        difficulty=difficulty,
        id=f"{FAMILY}/{preferences}",
        surface_form=surface_form,
    )


def draw_situation(
    rng: np.random.Generator, num_policies: int, surface_form: str
) -> TraceSituation:
    """Draw a random decision situation: preferences, and rewards of several policies by several objectives.

    Args:
        rng: Random numbers.
        num_policies: Number of policies to choose from.
        surface_form: "cards" (values of a state) or "looks" (values of simulated rollouts).

    Returns:
        The situation. Half of the tables hold multiples of 1/8 only, as averages of 8 rollouts do, so they have ties.
    """
    fewest, most = NUM_OBJECTIVES
    num_objectives = int(rng.integers(fewest, most + 1))
    order = rng.permutation(len(PEOPLE))
    names = [PEOPLE[i] for i in order[:num_policies]]

    # Objectives differ in how far policies lie apart.
    rewards = rng.random((num_policies, num_objectives))
    widths = rng.uniform(0.1, 1.0, size=num_objectives)
    rewards = rewards * widths
    # Averages of few rollouts, as a look-ahead estimates rewards.
    if rng.random() < 0.5:
        rewards = np.rint(_ROLLOUTS * rewards) / _ROLLOUTS

    if surface_form == "looks":
        state = LOOKAHEAD
    else:
        index = int(rng.integers(len(STATES)))
        state = STATES[index]
    weights = rng.dirichlet(np.ones(num_objectives))
    return make_situation(weights, state, dict(zip(names, rewards, strict=True)))


def score_first_choice(item: Item, answer: str) -> float:
    """1 where the best policy is named first: it acts, so it alone is judged."""
    return float(answer.split()[:1] == item.reference.split()[:1])


tasks.FAMILIES[FAMILY] = Family(
    FAMILY,
    "which policy is best by preferences, state, cards and results; difficulty is the number of policies",
    draw_item,
    NUM_POLICIES,
    (*STATES, LOOKAHEAD, *PEOPLE, *DIGITS),
    ("cards", "looks"),
    score_first_choice,
)
