"""Decision situations: the context of a decision in the vocabulary of the lab models, and what is rational there.

    is calm last Bo 9 7 0 last Bo 3 0 0 calm Ana 9 6 2 calm Ana 3 0 0 calm Bo 9 0 0 calm Bo 3 7 1

The state at hand comes first. Behind it stands a group of words for every result: its source, the policy, the
importance of the criterion (a digit) and the result (two digits). The source says where the result stands in the
paper's Table 1:

| source                   | component    | results of                                          |
|--------------------------|--------------|-----------------------------------------------------|
| a state, such as `calm`  | know         | a policy card, in the state at hand                 |
| `step`                   | tools        | a trial of one step, the mean over several copies   |
| `plan`                   | reflect      | a trial of several steps, the mean over copies      |
| `last`                   | mem_s        | a past step: one observation                        |

Results are relative to each other (`rescale_values`), which moves no choice: what decides is differences, and they
fill the two digits. Criteria whose importance rounds to 0 are left out.

The rational answer is the policy with the highest sum of importance times estimate. The estimate of a result weighs
every observation by its precision: a mean counts RESULT_WEIGHT times as much as a single past step.

The family `situation` makes such situations up, as a lab model is taught them: to rank all policies, the best first.
Names and states mean nothing, they are dealt anew. The hash of the importance digits decides a situation's split, so
preferences of dev and test were never seen in training. The family joins those of `lib.tasks` when this module is
imported: models that are not taught it stay what they are.

Left out: rows of a card about other states than the one at hand. With two to six rows a policy, a model of four
layers, 64 wide, had not learned to find the row that counts when its training was stopped after 700 of 3,000 updates:
it named the best of three policies in .54 of the dev items. After 500 updates, without past steps, it did so in .55 of
the cards and .86 of the trials. Longer or wider trainings were not tried.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

import numpy as np

from lib import tasks
from lib.tasks.item import Family, Item
from lib.tasks.vocabulary import DIGITS, PEOPLE

VERSION = 2  # of the decision situations
FAMILY = "situation"
CURRENT_STATE = "is"
STATES = ("calm", "storm", "fog", "frost", "flood", "dim", "high", "low")
TRIAL = "step"
ROLLOUT = "plan"
MEMORY = "last"
SYSTEMS = ("KO", "TO", "RO")  # surface forms of the family
RESULT_WEIGHT = 8  # a card's or trial's mean counts as so many single observations

# Of made-up situations, from and to.
NUM_POLICIES = tuple(range(2, 7))
NUM_CRITERIA = (1, 4)
NUM_MEMORIES = (1, 3)
_LARGEST_WEIGHT = 9  # digit of the criterion that counts most
_LARGEST_VALUE = 99
_MEMORY_PROBABILITY = 0.5  # of a made-up situation with past steps


@dataclass(frozen=True)
class ResultRow:
    """What one source says of one policy.

    Attributes:
        source: A state, TRIAL, ROLLOUT or MEMORY.
        policy: Its name in the prompt.
        values: A number from 0 to 99 per criterion.
    """

    source: str
    policy: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class TraceSituation:
    """A decision in the vocabulary of the lab models.

    Attributes:
        weights: A digit per criterion.
        state: The state at hand.
        rows: Results, in the order of the prompt.
    """

    weights: tuple[int, ...]
    state: str
    rows: tuple[ResultRow, ...]

    @property
    def prompt(self) -> str:
        """Writes the situation in words, number by number."""
        groups = [f"{CURRENT_STATE} {self.state}"]
        for row in self.rows:
            for weight, value in zip(self.weights, row.values, strict=True):
                tens, ones = divmod(value, 10)
                groups.append(f"{row.source} {row.policy} {weight} {tens} {ones}")
        return " ".join(groups)

    def estimate_utilities(self) -> dict[str, float]:
        """Estimates the utility of each policy from the numbers in the prompt.

        estimate = (RESULT_WEIGHT x result + sum of past results) / (RESULT_WEIGHT + number of past results)

        Returns:
            By policy, in the order of the prompt's results: sum over criteria of importance times estimate.
        """
        utilities = {}
        for row in self.rows:
            if row.source != MEMORY:
                utilities[row.policy] = self._weigh(row.values)

        # A mean and single observations, by their precision.
        past_utilities: dict[str, list[int]] = {policy: [] for policy in utilities}
        for row in self.rows:
            if row.source == MEMORY:
                past_utilities[row.policy].append(self._weigh(row.values))
        return {
            policy: (RESULT_WEIGHT * utility + sum(past_utilities[policy]))
            / (RESULT_WEIGHT + len(past_utilities[policy]))
            for policy, utility in utilities.items()
        }

    def _weigh(self, values: tuple[int, ...]) -> int:
        """Sum of importance times value."""
        return sum(map(mul, self.weights, values))

    @property
    def ranking(self) -> tuple[str, ...]:
        """All policies, the best first; where two tie, in their order."""
        utilities = self.estimate_utilities()
        return tuple(sorted(utilities, key=utilities.__getitem__, reverse=True))


def scale_to_digits(weights: Sequence[float]) -> tuple[int, ...]:
    """Write preferences as digits.

    Args:
        weights: One per criterion, of any scale.

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
    """Rescale values to two digits, by one factor for all criteria.

    Args:
        values: (rows, criteria).

    Returns:
        (rows, criteria), whole numbers from 0 to 99: what a row has above the worst one by each criterion, in
        hundredths of the widest such difference. All 0 where no row is better than another.
    """
    above_worst = values - values.min(axis=0)
    scaled = _LARGEST_VALUE * above_worst / (above_worst.max() or 1.0)
    return np.rint(scaled).astype(int)


def make_situation(
    weights: Sequence[float],
    state: str,
    source: str,
    results: Mapping[str, Sequence[float]],
    memory: Sequence[tuple[str, Sequence[float]]] = (),
) -> TraceSituation:
    """Write the context of a decision as a lab model reads it.

    Args:
        weights: Importance of each criterion, of any scale.
        state: The state at hand, one of STATES.
        source: Source of the results: the state (cards), TRIAL or ROLLOUT.
        results: By policy, one result per criterion.
        memory: Past steps: the policy that acted, and one result per criterion.

    Returns:
        The situation, with importance as digits and results as two digits, all on one scale.

    Raises:
        ValueError: As `scale_to_digits`, and for cards of another state than the one at hand.
    """
    if source not in (state, TRIAL, ROLLOUT):
        raise ValueError(
            f"the source of results is the state at hand ({state}), {TRIAL} or {ROLLOUT}, not {source!r}"
        )
    digits = np.array(scale_to_digits(weights))
    counts = digits > 0  # (criteria,)
    observations = [*(past_results for _, past_results in memory), *results.values()]
    table = np.array(observations, dtype=float)[:, counts]  # (rows, criteria that count)
    scaled = rescale_values(table).tolist()

    sources = [MEMORY] * len(memory) + [source] * len(results)
    policies = [*(policy for policy, _ in memory), *results]
    rows = tuple(
        ResultRow(row_source, policy, tuple(values))
        for row_source, policy, values in zip(sources, policies, scaled, strict=True)
    )
    return TraceSituation(tuple(digits[counts].tolist()), state, rows)


# The family ----------------------------------------------------------------------------------------


def draw_item(rng: np.random.Generator, difficulty: int, surface_form: str) -> Item:
    """Draw a question of the family `situation`: which of several policies is best?

    Args:
        rng: Random numbers.
        difficulty: Number of policies.
        surface_form: KO (cards), TO (trials of one step) or RO (rollouts); half of the items have past steps.

    Returns:
        The item: its prompt lists importance and results, its reference ranks all policies, the best first.
    """
    # Drawn again while the two best policies tie, for then there is no one right answer.
    while True:
        has_memory = rng.random() < _MEMORY_PROBABILITY
        situation = draw_situation(rng, difficulty, surface_form, has_memory)
        ranking = situation.ranking
        utilities = situation.estimate_utilities()
        if utilities[ranking[0]] != utilities[ranking[1]]:
            break
    preferences = " ".join(map(str, situation.weights))
    return Item(
        prompt=situation.prompt,
        reference=" ".join(ranking),
        worked_solution="",
        group=FAMILY,
        difficulty=difficulty,
        id=f"{FAMILY}/{preferences}",
        surface_form=surface_form,
    )


def draw_situation(
    rng: np.random.Generator, num_policies: int, system: str, has_memory: bool
) -> TraceSituation:
    """Draw a random decision situation.

    True means are drawn for every policy and criterion in the state at hand. Results are means of RESULT_WEIGHT
    noisy observations, past steps are single ones. Half of the situations count successes, so that past steps are 0
    or 1 and results have ties; the others measure with normal noise.

    Args:
        rng: Random numbers.
        num_policies: Number of policies to choose from.
        system: KO, TO or RO.
        has_memory: Whether past steps stand in the prompt.

    Returns:
        The situation.
    """
    num_criteria = _draw_between(rng, NUM_CRITERIA)
    order = rng.permutation(len(PEOPLE))
    names = [PEOPLE[i] for i in order[:num_policies]]
    state = STATES[int(rng.integers(len(STATES)))]
    acting = []
    if has_memory:
        acting = rng.integers(num_policies, size=_draw_between(rng, NUM_MEMORIES)).tolist()

    # Criteria differ in how far policies lie apart.
    means = rng.random((num_policies, num_criteria))
    if rng.random() < 0.5:
        results = rng.binomial(RESULT_WEIGHT, means) / RESULT_WEIGHT
        past_results = rng.binomial(1, means[acting]).astype(float)
    else:
        widths = rng.uniform(0.1, 1.0, size=num_criteria)
        noise = rng.uniform(0, 1) * widths  # standard deviation of one observation
        results = rng.normal(means * widths, noise / RESULT_WEIGHT**0.5)
        past_results = rng.normal(means[acting] * widths, noise)

    source = {"KO": state, "TO": TRIAL, "RO": ROLLOUT}[system]
    memory = [(names[policy], row) for policy, row in zip(acting, past_results, strict=True)]
    weights = rng.dirichlet(np.ones(num_criteria))
    results_by_policy = dict(zip(names, results, strict=True))
    return make_situation(weights, state, source, results_by_policy, memory)


def _draw_between(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    """A whole number within bounds, both included."""
    fewest, most = bounds
    return int(rng.integers(fewest, most + 1))


def score_first_choice(item: Item, answer: str) -> float:
    """1 where the best policy is named first: it acts, so it alone is judged."""
    return float(answer.split()[:1] == item.reference.split()[:1])


tasks.FAMILIES[FAMILY] = Family(
    FAMILY,
    "which policy is best by preferences, state, cards, results and memory; difficulty is the number of policies",
    draw_item,
    NUM_POLICIES,
    (CURRENT_STATE, *STATES, TRIAL, ROLLOUT, MEMORY, *PEOPLE, *DIGITS),
    SYSTEMS,
    score_first_choice,
)
