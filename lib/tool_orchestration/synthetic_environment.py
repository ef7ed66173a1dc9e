"""ToolOrchestra's synthetic environment: a question, a menu of tools, a user, and one call, so that the best is known.

A question is of one of K kinds. Its menu lists a few of the tools, each with what it is good at, a price and a latency,
and a user says what matters. A rollout is one call of one tool on the menu:

1. The tool is right with a known probability, which depends on the kind of question. Menus describe that probability
   with some noise.
2. The call costs about what the menu says, and takes about as long.
3. The reward is ToolOrchestra's (`rewards`): outcome, cost and latency, weighed by the user's preferences.

Hence the expected utility of every choice is a formula, and the optimum a maximum over the menu
(`compute_expected_utilities`). Each of many seeds has an environment of its own; all are held in one stack of arrays.

Letters of shapes: S seeds, K kinds of questions, T tools, n questions, M tools on a menu, and k = T + 3 entries of a
preference vector. Prices and latencies are the last axis of length 2: US dollars, seconds.

Left out, beside the lab: words, several turns and office tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lib.config import ToolSyntheticSettings
from lib.experiment import seeds
from lib.tool_orchestration import rewards, tool_menu

# The names of random streams decide numbers, and outlive the names in the code.
STREAM = ("toolorchestra", "glass")

NUM_KINDS = 4
# A specialist for each kind of question, then two generalists.
KNOWN_TOOLS = ("chains", "sums", "facts", "offices", "solid", "strong")
# These are on no menu in training: a newcomer that excels at one kind, and a bargain.
HELD_OUT_TOOLS = ("newcomer", "bargain")
TOOLS = (*KNOWN_TOOLS, *HELD_OUT_TOOLS)

SPECIALIST_ACCURACY = 0.95
GENERALIST_ACCURACIES = (0.85, 0.9)
OTHER_ACCURACIES = (0.15, 0.85)  # lowest and highest of what specialists do beyond their kind
NEWCOMER_ACCURACY = 0.97
BARGAIN_ACCURACY = 0.85

USUAL = "usual menus"
NEW_TOOL = "a newcomer on the menu"  # one tool of every menu was on no menu in training
UNSEEN_PRICES = (
    "unseen prices"  # tools that were cheap in training are expensive, and the other way round
)
CONDITIONS = (USUAL, NEW_TOOL, UNSEEN_PRICES)


@dataclass(frozen=True)
class ToolEnvironments:
    """A stack of S environments, one for each policy that is trained.

    Attributes:
        accuracy: (S, K, T) probability that a tool is right, by kind of question.
        described_accuracy: (S, K, T) the same as menus describe it, with noise.
        list_prices: (S, T, 2) US dollars and seconds of a call, in units of the cheapest.
    """

    accuracy: np.ndarray
    described_accuracy: np.ndarray
    list_prices: np.ndarray

    @property
    def num_seeds(self) -> int:
        """S, the number of environments."""
        return len(self.accuracy)


def make_environments(settings: ToolSyntheticSettings) -> ToolEnvironments:
    """Makes one environment for each seed.

    Specialists are good at their kind and mixed beyond it; generalists are good at everything. The newcomer excels at a
    kind that is drawn at random; the bargain is good at everything, and as cheap and as fast as any tool.

    Args:
        settings: `seeds`, the ratio `prices` between the highest and the lowest list price, and `observation_noise`,
            the standard deviation of the error in described accuracies.

    Returns:
        The environments.
    """
    bargain = TOOLS.index("bargain")
    newcomer = TOOLS.index("newcomer")
    accuracies = []
    described_accuracies = []
    list_prices = []
    for seed in range(settings.seeds):
        rng = seeds.rng(*STREAM, "world", seed=seed)
        accuracy = rng.uniform(*OTHER_ACCURACIES, (NUM_KINDS, len(TOOLS)))
        for kind in range(NUM_KINDS):
            accuracy[kind, kind] = SPECIALIST_ACCURACY
        accuracy[:, NUM_KINDS : len(KNOWN_TOOLS)] = GENERALIST_ACCURACIES
        accuracy[:, bargain] = BARGAIN_ACCURACY
        accuracy[rng.integers(NUM_KINDS), newcomer] = NEWCOMER_ACCURACY

        # From 1 to the ratio, evenly in the logarithm.
        prices = settings.prices ** rng.random((len(TOOLS), 2))
        prices[bargain] = 1.0

        noise = settings.observation_noise * rng.standard_normal(accuracy.shape)
        accuracies.append(accuracy)
        described_accuracies.append(accuracy + noise)
        list_prices.append(prices)
    return ToolEnvironments(
        np.stack(accuracies), np.stack(described_accuracies), np.stack(list_prices)
    )


@dataclass(frozen=True)
class SyntheticMenus:
    """n questions for each of S seeds, each with a menu of M tools.

    Attributes:
        kinds: (S, n) kind of the question.
        tools: (S, n, M) indices of the tools on the menu, in TOOLS.
        prices: (S, n, M, 2) US dollars and seconds of a call on this menu.
    """

    kinds: np.ndarray
    tools: np.ndarray
    prices: np.ndarray

    @property
    def size(self) -> int:
        """M, the number of tools on a menu."""
        return self.tools.shape[-1]

    def look_up(self, table: np.ndarray) -> np.ndarray:
        """Reads a table of values by kind of question and tool, for the tools on the menus.

        Args:
            table: (S, K, T) values for S seeds, K kinds of questions and T tools.

        Returns:
            (S, n, M) the values of the M tools on the menu of each of n questions, for its kind.
        """
        seed_index = np.arange(len(table))[:, None, None]
        return table[seed_index, self.kinds[..., None], self.tools]

    def look_up_prices(self, list_prices: np.ndarray) -> np.ndarray:
        """Reads the list prices of the tools on the menus.

        Args:
            list_prices: (S, T, 2) US dollars and seconds of a call of each tool.

        Returns:
            (S, n, M, 2) the same for the M tools on the menu of each of n questions.
        """
        seed_index = np.arange(len(list_prices))[:, None, None]
        return list_prices[seed_index, self.tools]

    def at_list_prices(self, environments: ToolEnvironments) -> SyntheticMenus:
        """Returns the same questions and tools at the list prices, without the variation from menu to menu."""
        prices = self.look_up_prices(environments.list_prices)
        return SyntheticMenus(self.kinds, self.tools, prices)

    def compute_savings(self) -> np.ndarray:
        """Computes how cheap and how fast each tool is on its menu.

        Returns:
            (S, n, M, 2): 1 for the cheapest and for the fastest tool of a menu, 0 for the most expensive and slowest.
        """
        lowest = self.prices.min(axis=2, keepdims=True)
        highest = self.prices.max(axis=2, keepdims=True)
        return (highest - self.prices) / (highest - lowest)


def draw_menus(
    environments: ToolEnvironments,
    settings: ToolSyntheticSettings,
    num_questions: int,
    *stream: str | int,
    condition: str = USUAL,
) -> SyntheticMenus:
    """Draws questions with menus.

    Args:
        environments: One for each seed.
        settings: `menu`, the size of a menu; `prices`, the ratio of list prices; `spread`, the factor within which the
            prices of a menu vary around the list.
        num_questions: n, the number of questions for each seed.
        stream: Names of the random stream.
        condition: One of CONDITIONS. Under NEW_TOOL one tool of every menu is held out of training; under
            UNSEEN_PRICES every tool that was cheap is expensive, and the other way round.

    Returns:
        The questions and menus.
    """
    rng = seeds.rng(*STREAM, *stream)
    shape = (environments.num_seeds, num_questions)
    kinds = rng.integers(NUM_KINDS, size=shape)

    # The order of random numbers is a random order of the tools, of which the first are taken.
    tools = rng.random((*shape, len(KNOWN_TOOLS))).argsort(-1)[..., : settings.menu]
    if condition == NEW_TOOL:
        tools[..., 0] = len(KNOWN_TOOLS) + rng.integers(len(HELD_OUT_TOOLS), size=shape)

    list_prices = environments.list_prices
    if condition == UNSEEN_PRICES:
        list_prices = settings.prices / list_prices
    menus = SyntheticMenus(kinds, tools, np.empty((*tools.shape, 2)))
    prices_of_tools = menus.look_up_prices(list_prices)
    factors = settings.spread ** rng.uniform(-1, 1, prices_of_tools.shape)
    return SyntheticMenus(kinds, tools, prices_of_tools * factors)


def draw_users(num_users: int, *stream: str | int) -> np.ndarray:
    """Draws the preference vectors of random users (`tool_menu.draw_preference`).

    Args:
        num_users: How many users are drawn.
        stream: Names of the random stream.

    Returns:
        (num_users, k) preference vectors, k = T + 3: for each of the T tools 1 if the user likes to see it called, else
        0; then the weights of accuracy, cost and latency in [0, 1]. No user likes a tool that is held out of training.
    """
    rng = seeds.rng(*STREAM, *stream)
    users = [tool_menu.draw_preference(rng, KNOWN_TOOLS) for _ in range(num_users)]
    return np.stack([user.vector(TOOLS) for user in users])


def compute_expected_utilities(
    environments: ToolEnvironments, menus: SyntheticMenus, preferences: np.ndarray
) -> np.ndarray:
    """Computes the expected utility of calling each tool: its expected reward in a group that tries the whole menu.

        U_t = p_t (P_accuracy + P_cost cheap_t + P_latency fast_t + P_t)

    p_t is the probability that tool t is correct; P_... are the user's weights, P_t that of the tool itself; cheap_t
    and fast_t are 1 for the cheapest and the fastest tool of the menu and 0 for the most expensive and the slowest. The
    largest utility of a menu is the optimum. Shapes: S seeds, n questions for each seed, M tools on a menu, T in all.

    Args:
        environments: S environments, with the accuracies p.
        menus: The questions, and the tools and prices on the menu of each.
        preferences: (S, n, T + 3) the user's weights: of each tool, then of accuracy, cost and latency.

    Returns:
        (S, n, M) expected utility of calling each tool on the menu.
    """
    accuracy_weight = preferences[..., None, rewards.OUTCOME_INDEX]  # (S, n, 1)
    spending_weights = preferences[
        ..., None, rewards.SPENDING_ENTRIES
    ]  # (S, n, 1, 2) cost, latency
    savings_utility = (menus.compute_savings() * spending_weights).sum(-1)  # (S, n, M)
    tool_weights = np.take_along_axis(preferences, menus.tools, -1)  # (S, n, M)
    return menus.look_up(environments.accuracy) * (accuracy_weight + savings_utility + tool_weights)
