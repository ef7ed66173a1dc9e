"""What an episode is about: a question or an office task, with a menu and a user, both drawn at random.

Questions are a user's or the lab's (chains, big numbers, facts); office tasks are synthesised (`lib.tasks.synthesis`).
Every rollout has a subset of the tools, each at a price and a latency of its own; where it is known what tools can do,
one of them at least is good at the question.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import tasks
from lib.experiment import seeds
from lib.tasks import Item
from lib.tasks.synthesis import Corpus, Task, synthesize
from lib.tool_orchestration.tool_menu import (
    OFFICE,
    Offer,
    ToolMenu,
    UserPreference,
    draw_preference,
)
from lib.tool_orchestration.user_dialogue import UserDialogue

# Proportions of the kinds of questions; the rest are office tasks (decision).
QUESTION_SHARES = {"chain": 0.35, "big": 0.15, "facts": 0.28}
DIFFICULTIES = {"chain": (1, 2, 3, 4, 5, 6), "big": (1, 2, 3, 4), "facts": (1, 2, 3)}
MENU_SIZES = (2, 4)  # the fewest and the most on a menu, functions of an office aside
PER_DATABASE = 6  # office tasks
SPARE_DATABASES = 4  # since filters drop tasks


@dataclass(frozen=True)
class Assignment:
    """What one episode is about: a question or an office task, a menu of tools, and a user.

    Attributes:
        work: A question or an office task.
        menu: The tools that may be called, with prices and latencies.
        preference: What the user cares for; None where nothing is said of it, as in customer service.
        outage: Number of the call from which on the tool that is called first fails; 0 for never.
        dialogue: What the user says first, and keeps back until asked; None where the user says all at once.
    """

    work: Item | Task
    menu: ToolMenu
    preference: UserPreference | None = None
    outage: int = 0
    dialogue: UserDialogue | None = None

    @property
    def kind(self) -> str:
        """The kind of a question, such as "chain", or "office"."""
        return self.work.group if isinstance(self.work, Item) else "office"

    @property
    def difficulty(self) -> int:
        """The difficulty of the question or task, from 1."""
        return self.work.difficulty

    @property
    def prompt(self) -> str:
        """The user's first message: the question, the instruction, or the opening of a dialogue."""
        if self.dialogue is not None:
            return self.dialogue.opening
        return self.work.prompt if isinstance(self.work, Item) else self.work.instruction

    @property
    def history(self) -> tuple[tuple[str, str], ...]:
        """Messages before the question, as (role, content)."""
        return self.work.history if isinstance(self.work, Item) else ()

    @property
    def usable(self) -> list[Offer]:
        """List the tools on the menu that can help with this question.

        These are functions for the kinds of questions that they help with, and models for all but office tasks. Small
        models were not trained on big numbers, so questions with big numbers are left to models whose skills were not
        measured.

        Returns:
            Entries of the menu.
        """
        usable_tools = []
        for offer in self.menu.offers:
            is_asked = offer.model and self.kind not in ("big", "office")
            may_know_numbers = offer.model and self.kind == "big" and not offer.measured
            if offer.skills.get(self.kind) or is_asked or may_know_numbers:
                usable_tools.append(offer)
        return usable_tools


def write_office_corpus(split: str, num_tasks: int, seed: int) -> Corpus:
    """Writes and filters office tasks, as the synthesis pipeline does.

    Args:
        split: "train", "dev" or "test".
        num_tasks: How many there are to be at least.
        seed: Seed of the pipeline.

    Returns:
        The corpus.

    Raises:
        TaskError: The pipeline wrote fewer.
    """
    corpus = synthesize(
        databases=count_office_databases(num_tasks),
        tasks_per_database=PER_DATABASE,
        seed=seed,
        split=split,
    )
    if len(corpus.tasks) < num_tasks:
        raise tasks.TaskError(
            f"the pipeline wrote {len(corpus.tasks)} office tasks for {split}, not {num_tasks}"
        )
    return corpus


def count_office_databases(num_tasks: int) -> int:
    """Count the databases to write, so that enough office tasks remain after the filters.

    Args:
        num_tasks: Number of office tasks that are needed.

    Returns:
        One database for every PER_DATABASE tasks, and SPARE_DATABASES more.
    """
    return math.ceil(num_tasks / PER_DATABASE) + SPARE_DATABASES


def draw_office_tasks(split: str, num_tasks: int, seed: int) -> list[Task]:
    """Draw office tasks at random, all difficulties and domains mixed.

    Args:
        split: "train", "dev" or "test".
        num_tasks: Number of tasks.
        seed: Seed of the pipeline that writes them, and of their order.

    Returns:
        The tasks.
    """
    office_tasks = write_office_corpus(split, num_tasks, seed).tasks
    in_random_order = sorted(
        office_tasks,
        key=lambda task: int(seeds.key("toolorchestra", "office", task.id, seed=seed)),
    )
    return in_random_order[:num_tasks]


def draw_assignments(
    works: Sequence[Item | Task],
    offers: Mapping[str, Offer],
    names: Sequence[str],
    spread: float,
    rng: np.random.Generator,
) -> list[Assignment]:
    """Draw a menu and a user for each question and office task.

    Args:
        works: Questions and office tasks.
        offers: Every tool at its list price and latency, by name.
        names: Names of the tools that may be on menus.
        spread: Largest random factor on prices and latencies; 1 for list prices on all menus.
        rng: Random number generator.

    Returns:
        The assignments, in the order of `works`.
    """
    assignments = []
    for work in works:
        menu = draw_menu(work, offers, names, spread, rng)
        user = draw_preference(rng, [offer.name for offer in menu.offers])
        assignments.append(Assignment(work, menu, user))
    return assignments


def draw_menu(
    work: Item | Task,
    offers: Mapping[str, Offer],
    names: Sequence[str],
    spread: float,
    rng: np.random.Generator,
) -> ToolMenu:
    """Draw the menu of a question or an office task: a few tools, each at a random price and latency.

    The menu of a question has at least one tool that is good at it, if any tool is; that of an office task has the
    functions of its office in addition.

    Args:
        work: A question or an office task.
        offers: Every tool at its list price and latency, by name.
        names: Names of the tools that may be on the menu.
        spread: Largest random factor on prices and latencies; 1 / spread is the smallest.
        rng: Random number generator.

    Returns:
        The menu.
    """
    domain = None if isinstance(work, Item) else work.domain
    office_functions: tuple[str, ...] = ()
    if domain is not None:
        office_functions = tuple(function.name for function in domain.functions)

    # An office has a lookup of its own, in place of the tool of that name.
    available = [name for name in names if name not in office_functions]
    in_random_order = [available[index] for index in rng.permutation(len(available))]
    fewest, most = MENU_SIZES
    size = int(rng.integers(fewest, most + 1))
    if domain is not None:
        size -= 1
    chosen = in_random_order[:size]

    # Where no tool of the menu is good at the question, one that is takes another's place.
    if domain is None:
        good = [
            name
            for name in in_random_order
            if offers[name].skills.get(work.group, 0) >= work.difficulty
        ]
        if good and not set(good) & set(chosen):
            chosen[int(rng.integers(len(chosen)))] = good[0]

    # Factors of price and latency: the first pair is that of the office.
    log_spread = np.log(spread)
    factors = np.exp(rng.uniform(-log_spread, log_spread, size=(len(chosen) + 1, 2))).tolist()
    priced = []
    for name, (cost_factor, latency_factor) in zip(chosen, factors[1:], strict=True):
        priced.append(offers[name].scale_prices(cost_factor, latency_factor))
    if domain is None:
        return ToolMenu(tuple(priced))
    return ToolMenu(tuple(priced), office_functions, offers[OFFICE].scale_prices(*factors[0]))


def draw_questions_evenly(num_tasks: int, split: str, seed: int) -> list[Item]:
    """Draw the questions among about so many tasks, exactly in the proportions of QUESTION_SHARES.

    Args:
        num_tasks: How many questions and office tasks there would be, about.
        split: "train", "dev" or "test".
        seed: Seed of the draw.

    Returns:
        The questions, kind after kind; none twice where there are enough.
    """
    questions: list[Item] = []
    for kind, share in QUESTION_SHARES.items():
        num_of_kind = max(1, round(num_tasks * share))
        questions += tasks.draw_items(kind, split, num_of_kind, DIFFICULTIES[kind], seed=seed)
    return questions


def assign_office_task(
    task: Task, office_offer: Offer, dialogue: UserDialogue | None = None
) -> Assignment:
    """Make an assignment out of an office task: its functions alone, for a user who wants it correct.

    Args:
        task: The office task.
        office_offer: The price of every function of the office.
        dialogue: What the user keeps back until asked; None where the user says all at once.

    Returns:
        The assignment.
    """
    functions = tuple(function.name for function in task.domain.functions)
    menu = ToolMenu((), functions, office_offer, asks_user=dialogue is not None)
    return Assignment(task, menu, UserPreference(1.0, 0.0, 0.0), dialogue=dialogue)
