"""Menus of the lab world: four tools with names, measured abilities and prices, which an orchestrator has to read.

    system  + 9 worker4 $ 3 worker4 / 1 worker4 ; + 1 judge0 $ 0 judge0 / 4 judge0 ; ...
    user    7 + 4 * 2 = ? needed best 9 fast 3 cheap 0

A name is a word and a digit, two tokens, and every menu has its own: the same tool is worker4 here and judge0 there, so
that nothing but its description says what it is. A description is three facts, each with the name behind it, where a
small model finds it. The digit behind the sign of the question's kind counts the tenths of such questions that the tool
answered right when its card was measured; behind $ and / stand the levels of its price and its latency on this menu.
The highest level is 16 times as expensive, or as slow, as level 0, with even steps between. A reward scales the amounts
of a group linearly; were every level twice the one below, nearly all tools would count as cheap, and a user's wish
would hardly pay (the gate `gate.tools.wish` measures that).

At least three tools on a menu are capable of its question. Levels are drawn anew for every menu, independently of the
tools, so that neither a name nor a price tells who is capable. The orchestrator's own tokens cost a twentieth of the
cheapest tool's.

Left out: functions and office tasks, which `tool_environment` has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib.tasks import Item
from lib.tool_orchestration.tool_menu import OBJECTIVE_WORDS, OBJECTIVES, UserPreference

VERSION = 3  # of menus, names, prices and users of the lab world

# Kinds of questions and their difficulties. At least three of the lab's models are good at each.
QUESTIONS = {"chain": (1, 2, 3, 4), "facts": (2, 3), "passage": (1, 2, 3)}
KIND_SIGNS = {"chain": "+", "facts": "?", "passage": '"'}
PRICE_SIGN = "$"
LATENCY_SIGN = "/"
WISH_SIGN = "needed"  # stands before the user's wishes, and before the one that a thought repeats
NUM_FACTS = 3
NAME_WORDS = ("worker", "judge", "pilot", "nurse", "smith", "miner", "farmer", "tailor")
NUM_NAME_DIGITS = 1
MENU_SIZE = 4
MIN_CAPABLE = 3
# A tool is capable of a question if its accuracy at this kind and difficulty is at least this.
CAPABLE_ACCURACY = 0.75

# The levels 0 to 4 of a menu are evenly spaced from the lowest amount to this multiple of it.
LARGEST_FACTOR = 16.0
HIGHEST_UNSEEN_LEVEL = 9  # of the price list that training never had
LOWEST_USD_PER_TOKEN = 2e-7
LOWEST_SECONDS_PER_TOKEN = 4e-3  # of a written token
ORCHESTRATOR_USD_PER_TOKEN = LOWEST_USD_PER_TOKEN / 20
ORCHESTRATOR_SECONDS_PER_TOKEN = LOWEST_SECONDS_PER_TOKEN / 20

SINGLE_WISH_SHARE = 0.75  # of the users, those who care for one objective only
COST_ONLY = UserPreference(0.0, 1.0, 0.0)
LATENCY_ONLY = UserPreference(0.0, 0.0, 1.0)
ACCURACY_ONLY = UserPreference(1.0, 0.0, 0.0)
STEERING_USERS = {"cost": COST_ONLY, "latency": LATENCY_ONLY, "accuracy": ACCURACY_ONLY}


@dataclass(frozen=True)
class LabTool:
    """A model that may be on menus.

    Attributes:
        name: Name of the lab model.
        accuracy: Measured accuracy, by kind of question and difficulty.
    """

    name: str
    accuracy: Mapping[tuple[str, int], float]

    def get_accuracy(self, item: Item) -> float:
        """Return the tool's measured accuracy at questions of this kind and difficulty."""
        return self.accuracy[item.group, item.difficulty]

    def is_capable(self, item: Item) -> bool:
        """Return whether the tool answers CAPABLE_ACCURACY or more of the questions of this kind and difficulty."""
        return self.get_accuracy(item) >= CAPABLE_ACCURACY

    def describe_ability(self, kind: str) -> int:
        """Return what menus say of the tool at a kind of question: tenths of correct answers, a digit from 0 to 9."""
        values = [self.accuracy[kind, difficulty] for difficulty in QUESTIONS[kind]]
        return min(9, int(10 * float(np.mean(values))))


def make_lab_tool(name: str, card: Mapping[str, Any]) -> LabTool:
    """Make a tool of a lab model's measured card.

    Args:
        name: Name of the lab model.
        card: With the rows `accuracy`.

    Returns:
        The tool.
    """
    accuracy = {}
    for row in card["accuracy"]:
        if row["skin"] == "plain" and row["category"] in QUESTIONS:
            accuracy[row["category"], row["difficulty"]] = row["accuracy"]
    return LabTool(name, accuracy)


@dataclass(frozen=True)
class MenuEntry:
    """A tool on one menu.

    Attributes:
        name: On this menu, such as worker4.
        tool: The model behind the name.
        price_level: 0 (cheapest) to MENU_SIZE - 1 (most expensive).
        latency_level: 0 (fastest) to MENU_SIZE - 1 (slowest).
    """

    name: str
    tool: LabTool
    price_level: int
    latency_level: int

    @property
    def usd_per_token(self) -> float:
        """Price of a token, read or written."""
        return LOWEST_USD_PER_TOKEN * compute_level_factor(self.price_level)

    @property
    def seconds_per_token(self) -> float:
        """Time of a written token."""
        return LOWEST_SECONDS_PER_TOKEN * compute_level_factor(self.latency_level)

    def list_facts(self, kind: str) -> list[str]:
        """List the facts that a menu states about the tool: ability at one kind of question, price and latency.

        Args:
            kind: Kind of the question, a key of KIND_SIGNS.

        Returns:
            NUM_FACTS facts, each a sign, a digit and the tool's name, such as ["+ 9 worker4", "$ 3 worker4",
            "/ 1 worker4"].
        """
        values = {
            KIND_SIGNS[kind]: self.tool.describe_ability(kind),
            PRICE_SIGN: self.price_level,
            LATENCY_SIGN: self.latency_level,
        }
        return [f"{sign} {value} {self.name}" for sign, value in values.items()]


@dataclass(frozen=True)
class LabAssignment:
    """A question with a menu, for a user.

    Attributes:
        item: The question.
        entries: The tools on the menu, MENU_SIZE of them.
        user: What the user cares for.
    """

    item: Item
    entries: tuple[MenuEntry, ...]
    user: UserPreference

    def find_entry(self, name: str) -> MenuEntry | None:
        """Find the tool with this name on the menu; None where there is none."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        return None

    @property
    def messages(self) -> list[dict[str, str]]:
        """Write the orchestrator's prompt.

        Returns:
            The menu as a system message; the question and the user's wishes as a user message.
        """
        descriptions = [" ".join(entry.list_facts(self.item.group)) for entry in self.entries]
        menu = " ; ".join(descriptions)
        return [
            {"role": "system", "content": menu},
            {
                "role": "user",
                "content": f"{self.item.prompt} {WISH_SIGN} {write_wishes(self.user)}",
            },
        ]


def compute_level_factor(level: int) -> float:
    """Compute the price (or latency) of a level, in units of that of level 0.

    Args:
        level: From 0 (the cheapest of a menu) to MENU_SIZE - 1 (the most expensive); higher under unseen prices.

    Returns:
        1 at level 0, LARGEST_FACTOR at level MENU_SIZE - 1, linear in the level.
    """
    return 1 + (LARGEST_FACTOR - 1) * level / (MENU_SIZE - 1)


def list_wishes(user: UserPreference) -> list[str]:
    """List the objectives "accuracy", "cost" and "latency" by the user's weights, the heaviest first."""
    return sorted(OBJECTIVES, key=lambda objective: -getattr(user, objective))


def name_heaviest_wish(user: UserPreference) -> str:
    """Return the menu's word for the objective that a user weighs most: "best", "cheap" or "fast"."""
    return OBJECTIVE_WORDS[list_wishes(user)[0]]


def write_wishes(user: UserPreference) -> str:
    """Write a user's preference as the orchestrator reads it: objectives, the heaviest first, with weights in ninths.

    >>> write_wishes(UserPreference(1.0, 0.0, 1 / 3))
    'best 9 fast 3 cheap 0'
    """
    wishes = []
    for objective in list_wishes(user):
        ninths = round(9 * getattr(user, objective))
        wishes.append(f"{OBJECTIVE_WORDS[objective]} {ninths}")
    return " ".join(wishes)


def draw_assignment(
    item: Item, tools: Sequence[LabTool], user: UserPreference, rng: np.random.Generator
) -> LabAssignment:
    """Draw a menu for a question.

    Args:
        item: The question.
        tools: Candidates, of which MENU_SIZE are drawn.
        user: What the user cares for.
        rng: Random numbers.

    Returns:
        The question with MENU_SIZE tools in random order, MIN_CAPABLE or more of them capable. Where fewer are, as with
        cards that were measured on a single question (smoke), the ablest take their place.

    Raises:
        ValueError: Too few tools.
    """
    if len(tools) < MENU_SIZE:
        raise ValueError(
            f"a menu needs {MENU_SIZE} tools, and there are {len(tools)}; add a lab model to tools.lab_world.models"
        )
    # At least MIN_CAPABLE tools of the menu can answer, so that there is something to choose between.
    capable = [tool for tool in tools if tool.is_capable(item)]
    if len(capable) < MIN_CAPABLE:
        capable = sorted(tools, key=lambda tool: -tool.get_accuracy(item))[:MIN_CAPABLE]
    order = rng.permutation(len(capable))[:MIN_CAPABLE]
    chosen = [capable[index] for index in order]

    # The other tools of the menu are drawn from all that remain, capable or not.
    remaining = [tool for tool in tools if tool not in chosen]
    order = rng.permutation(len(remaining))[: MENU_SIZE - MIN_CAPABLE]
    chosen += [remaining[index] for index in order]

    names = draw_names(MENU_SIZE, rng)
    # Names, prices and latencies are drawn apart from the tools, so that only the menu tells what a call takes.
    price_levels = rng.permutation(MENU_SIZE)
    latency_levels = rng.permutation(MENU_SIZE)
    entries = []
    for position, index in enumerate(rng.permutation(MENU_SIZE)):
        entry = MenuEntry(
            names[position],
            chosen[index],
            int(price_levels[position]),
            int(latency_levels[position]),
        )
        entries.append(entry)
    return LabAssignment(item, tuple(entries), user)


def set_list_prices(assignment: LabAssignment, tools: Sequence[LabTool]) -> LabAssignment:
    """Make the same menu at one price list for all menus: of two tools the same one is always the cheaper.

    Args:
        assignment: With any levels.
        tools: All tools, from the cheapest to the most expensive of the list, and from the slowest to the fastest.

    Returns:
        The assignment with the levels 0 to MENU_SIZE - 1 in the order of the list.
    """
    list_positions = [tools.index(entry.tool) for entry in assignment.entries]
    entries = []
    for entry, list_position in zip(assignment.entries, list_positions, strict=True):
        rank = sorted(list_positions).index(list_position)
        entries.append(replace(entry, price_level=rank, latency_level=MENU_SIZE - 1 - rank))
    return replace(assignment, entries=tuple(entries))


def turn_prices_round(assignment: LabAssignment) -> LabAssignment:
    """Make the same menu on a price list that training never had, on which the cheapest tool is the most expensive.

    Args:
        assignment: With the usual levels, 0 to MENU_SIZE - 1.

    Returns:
        The assignment with price level 9 - level for every tool, names, latencies and user as they were.
    """
    entries = [
        replace(entry, price_level=HIGHEST_UNSEEN_LEVEL - entry.price_level)
        for entry in assignment.entries
    ]
    return replace(assignment, entries=tuple(entries))


def draw_names(num_names: int, rng: np.random.Generator) -> list[str]:
    """Draw different names of tools for one menu, each a word and NUM_NAME_DIGITS digits.

    Args:
        num_names: Number of names.
        rng: Random numbers.

    Returns:
        The names.
    """
    names: list[str] = []
    while len(names) < num_names:
        word = NAME_WORDS[int(rng.integers(len(NAME_WORDS)))]
        digits = "".join(str(digit) for digit in rng.integers(10, size=NUM_NAME_DIGITS))
        name = f"{word}{digits}"
        if name not in names:
            names.append(name)
    return names


def draw_user(rng: np.random.Generator) -> UserPreference:
    """Draw a user's weights of accuracy, cost and latency.

    With probability SINGLE_WISH_SHARE one objective alone has weight. Otherwise weights are uniform on the simplex,
    the largest scaled to 1. Weights are ninths, as menus write them.

    Args:
        rng: Random numbers.

    Returns:
        The preference.
    """
    if rng.random() < SINGLE_WISH_SHARE:
        weights = np.eye(len(OBJECTIVES))[int(rng.integers(len(OBJECTIVES)))]
    else:
        weights = rng.dirichlet(np.ones(len(OBJECTIVES)))
    ninths = np.round(9 * weights / weights.max()) / 9
    return UserPreference(*ninths.tolist())


def compute_menu_utilities(
    assignment: LabAssignment, accuracy: Sequence[float], preference: UserPreference
) -> np.ndarray:
    """Compute the expected utility of calling each tool: its expected reward in a group that tries the whole menu.

        U_t = p_t (P_accuracy + P_cost cheap_t + P_latency fast_t)

    p_t is the accuracy of tool t, P_... are the user's weights, and cheap_t and fast_t go from 0 for the most expensive
    (slowest) tool of the menu to 1 for the cheapest (fastest).

    Args:
        assignment: A question with its menu.
        accuracy: (MENU_SIZE,) p, the accuracy of every tool on the menu at this question.
        preference: The user's weights P.

    Returns:
        (MENU_SIZE,) expected utility of every tool on the menu.
    """
    prices = np.array([entry.usd_per_token for entry in assignment.entries])  # (MENU_SIZE,)
    latencies = np.array([entry.seconds_per_token for entry in assignment.entries])
    cheap = scale_to_savings(prices)
    fast = scale_to_savings(latencies)
    wishes = preference.accuracy + preference.cost * cheap + preference.latency * fast
    return np.asarray(accuracy) * wishes


def scale_to_savings(amounts: np.ndarray) -> np.ndarray:
    """Scale costs or latencies of a menu's tools to savings: the highest amount becomes 0 and the lowest 1."""
    highest = amounts.max()
    return (highest - amounts) / (highest - amounts.min())
