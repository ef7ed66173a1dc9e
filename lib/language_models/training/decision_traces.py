"""Decision situations: what an orchestrator reads before it picks a policy, and what a rational reader answers.

A situation is written in the lab's own words, a group of words for every number that is known:

    low Ana 9 6 2 low Ana 3 0 0 low Bo 9 0 0 low Bo 3 7 1

where `low Ana 9 6 2` says that while things stand `low`, Ana is .62 better by an objective that counts 9 than whoever
is worst by it. Numbers of a look-ahead begin with `look` instead of a state. So cards, trials of one step and rollouts
are one language: KO, TO and RO differ in which numbers stand there. Numbers are told relative to each other
(`relative`), which moves no choice: what decides is differences, and they fill the two digits. The rational answer is
the policy with the highest sum of importance times value. Names and states mean nothing, they are dealt anew.

Left out: cards of other states than the one at hand. Of two pages, models of this size did not learn which one counts.

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
LOOK = "look"
SIZES = tuple(range(2, 9))  # policies in a situation
OBJECTIVES = (2, 4)  # of a made-up situation
_MOST = 9  # importance of the objective that counts most
_COPIES = 8  # a share of so many is what a look-ahead often tells


@dataclass(frozen=True)
class TraceSituation:
    """weights: a digit per objective; when: the state, or LOOK; values: by policy, in hundredths, one per objective."""

    weights: tuple[int, ...]
    when: str
    values: Mapping[str, tuple[int, ...]]

    @property
    def prompt(self) -> str:
        """The situation in the lab's words."""
        return " ".join(
            f"{self.when} {name} {weight} {value // 10} {value % 10}"
            for name, row in self.values.items()
            for weight, value in zip(self.weights, row, strict=True)
        )

    @property
    def utilities(self) -> dict[str, int]:
        """Importance times value, summed, for each policy: what a rational reader compares."""
        return {name: int(np.dot(self.weights, row)) for name, row in self.values.items()}

    @property
    def ranking(self) -> tuple[str, ...]:
        """All policies, the best first; where two tie, in their order."""
        utilities = self.utilities
        return tuple(sorted(utilities, key=lambda name: -utilities[name]))


def digits(weights: Sequence[float]) -> tuple[int, ...]:
    """Preferences as digits, the largest of them 9. Raises ValueError where none is above 0, or one below."""
    w = np.asarray(weights, dtype=float)
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise ValueError(f"preferences are numbers >= 0, one of them above, got {list(weights)}")
    return tuple(np.rint(_MOST * w / w.max()).astype(int).tolist())


def relative(values: np.ndarray) -> np.ndarray:
    """Values (policies, objectives) in whole hundredths, 0 to 99: what a policy has above the worst one by each
    objective, in units of the widest such gap. All 0 where none is better than another."""
    above = values - values.min(axis=0)
    return np.rint(99 * above / (above.max() or 1.0)).astype(int)


def told(
    weights: Sequence[float], when: str, rewards: Mapping[str, Sequence[float]]
) -> TraceSituation:
    """A situation from preferences and a table of rewards, by policy. Raises ValueError as `digits` does."""
    values = relative(np.array(list(rewards.values()), dtype=float)).tolist()
    return TraceSituation(
        digits(weights), when, {name: tuple(row) for name, row in zip(rewards, values, strict=True)}
    )


# The family ----------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, difficulty: int, skin: str) -> Item:
    """A made-up situation with `difficulty` policies, one of which is the best. skin: `cards` or `looks`."""
    made = made_up(rng, difficulty, skin)
    while made.utilities[made.ranking[0]] == made.utilities[made.ranking[1]]:
        made = made_up(rng, difficulty, skin)
    key = f"{FAMILY}/{' '.join(map(str, made.weights))}"
    return Item(made.prompt, " ".join(made.ranking), "", FAMILY, difficulty, key, skin)


def made_up(rng: np.random.Generator, size: int, skin: str) -> TraceSituation:
    """A made-up situation of `size` policies. Objectives are of widths that differ, and half of the tables hold shares
    of few copies, with all their ties."""
    count = int(rng.integers(OBJECTIVES[0], OBJECTIVES[1] + 1))
    names = [PEOPLE[i] for i in rng.permutation(len(PEOPLE))[:size]]
    rewards = rng.random((size, count)) * rng.uniform(0.1, 1.0, size=count)
    rewards = np.rint(_COPIES * rewards) / _COPIES if rng.random() < 0.5 else rewards
    when = LOOK if skin == "looks" else STATES[int(rng.integers(len(STATES)))]
    return told(rng.dirichlet(np.ones(count)), when, dict(zip(names, rewards, strict=True)))


def _first(item: Item, answer: str) -> float:
    """The policy that is named first acts, so it alone is judged."""
    return float(answer.split()[:1] == item.answer.split()[:1])


tasks.FAMILIES[FAMILY] = Family(
    FAMILY,
    "which policy is best by preferences, state, cards and results; difficulty is the number of policies",
    draw,
    SIZES,
    (*STATES, LOOK, *PEOPLE, *DIGITS),
    ("cards", "looks"),
    _first,
)
