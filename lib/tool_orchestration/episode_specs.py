"""What an episode is about: a question or an office task, with a menu and a user, both drawn at random.

Questions are chains, big numbers and facts; office tasks are synthesised (`lib.tasks.synthesis`). Every rollout has
a subset of the tools, each at a price and a latency of its own; one of them at least is good at the question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib import tasks
from lib.experiment import seeds
from lib.tasks import Item
from lib.tasks.synthesis import Corpus, Task, synthesize
from lib.tool_orchestration.tool_menu import (
    KIND_SIGNS,
    OFFICE,
    Offer,
    ToolMenu,
    UserPreference,
    draw_preference,
)
from lib.tool_orchestration.user_dialogue import UserDialogue

VERSION = 1  # of the work that is drawn, with menus and users
HOSTED_VERSION = 1  # of which questions models are asked whose skills nobody measured
TASK_SHARES = {
    "chain": 0.35,
    "big": 0.15,
    "facts": 0.28,
    "office": 0.22,
}  # of work by kind (decision)
DIFFICULTIES = {"chain": (1, 2, 3, 4, 5, 6), "big": (1, 2, 3, 4), "facts": (1, 2, 3)}
MENU_SIZES = (2, 4)  # the fewest and the most on a menu, functions of an office aside
PER_DATABASE = 6  # office tasks
SPARE_DATABASES = 4  # since filters drop tasks


@dataclass(frozen=True)
class Assignment:
    """What an orchestrator is asked to do, with what, and for which user.

    Attributes:
        work: A question or an office task.
        menu: The tools.
        preference: The user's.
        outage: From which of its calls on the tool fails that is called first; 0 for never.
        dialogue: What the user says first, and keeps back until asked; None where the user says all at once.
    """

    work: Item | Task
    menu: ToolMenu
    preference: UserPreference
    outage: int = 0
    dialogue: UserDialogue | None = None

    @property
    def kind(self) -> str:
        """The family of a question, or office."""
        return self.work.group if isinstance(self.work, Item) else "office"

    @property
    def difficulty(self) -> int:
        return self.work.difficulty

    @property
    def prompt(self) -> str:
        if self.dialogue is not None:
            return self.dialogue.opening
        return self.work.prompt if isinstance(self.work, Item) else self.work.instruction

    @property
    def messages(self) -> list[dict[str, str]]:
        """As the lab's orchestrators read it."""
        menu_and_user = f"{self.menu.text} {self.preference.text}"
        return [
            {"role": "system", "content": menu_and_user},
            {"role": "user", "content": self.prompt},
        ]

    @property
    def capable(self) -> list[Offer]:
        """Tools on the menu that are good at this, by their cards."""
        return [o for o in self.menu.offers if o.skills.get(self.kind, 0) >= self.difficulty]

    @property
    def history(self) -> tuple[tuple[str, str], ...]:
        """Messages before the question."""
        return self.work.history if isinstance(self.work, Item) else ()

    @property
    def usable(self) -> list[Offer]:
        """Tools on the menu that can be asked at all: functions where they help, models about all but office tasks.

        No lab model of this menu was taught big numbers, so these are left to models of which nothing is known.
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
        seed: Of the pipeline.

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
    """Databases that are written for so many office tasks at least; each may have PER_DATABASE of them."""
    return -(-num_tasks // PER_DATABASE) + SPARE_DATABASES


def draw_office_tasks(split: str, num_tasks: int, seed: int) -> list[Task]:
    """Draws office tasks of a split, all difficulties and domains mixed."""
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
    """Draws a menu and a user for each question and office task.

    Args:
        works: Questions and office tasks.
        offers: Every tool at list prices.
        names: Tools that may be on menus.
        spread: Factor within which prices and latencies vary; 1 for not at all.
        rng: Random numbers.

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
    """Draws a menu. A question's has a tool that is good at it; an office task brings its own functions.

    Args:
        work: A question or an office task.
        offers: Every tool at list prices.
        names: Tools that may be on the menu.
        spread: Factor within which prices and latencies vary.
        rng: Random numbers.

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


def draw_mixed_tasks(
    num_tasks: int, split: str, seed: int, offices: Sequence[Task]
) -> list[Item | Task]:
    """Draws questions and office tasks, kinds at random in the proportions of TASK_SHARES.

    Args:
        num_tasks: How many.
        split: "train", "dev" or "test".
        seed: Of the draw.
        offices: Office tasks to draw from; where there are none, questions alone are drawn.

    Returns:
        The tasks.
    """
    rng = seeds.rng("toolorchestra", "kinds", split, seed=seed)
    shares = dict(TASK_SHARES)
    if not offices:
        del shares["office"]
    probabilities = np.array(list(shares.values())) / sum(shares.values())
    kinds = rng.choice(list(shares), size=num_tasks, p=probabilities)

    questions_by_kind = {}
    for kind in KIND_SIGNS:
        num_of_kind = int((kinds == kind).sum())
        if num_of_kind:
            items = tasks.draw_items(kind, split, num_of_kind, DIFFICULTIES[kind], seed=seed)
            questions_by_kind[kind] = iter(items)

    mixed = []
    for kind in kinds:
        if kind == "office":
            mixed.append(offices[int(rng.integers(len(offices)))])
        else:
            mixed.append(next(questions_by_kind[kind]))
    return mixed


def draw_tasks_evenly(
    num_tasks: int, split: str, seed: int, offices: Sequence[Task]
) -> list[Item | Task]:
    """Draws about so many questions and office tasks, exactly in the proportions of TASK_SHARES.

    Args:
        num_tasks: How many, about.
        split: "train", "dev" or "test".
        seed: Of the draw.
        offices: Office tasks, of which the first are taken.

    Returns:
        The tasks, kind after kind; no question twice where there are enough.
    """
    drawn: list[Item | Task] = []
    for kind, share in TASK_SHARES.items():
        num_of_kind = max(1, round(num_tasks * share))
        if kind == "office":
            drawn += offices[:num_of_kind]
        else:
            drawn += tasks.draw_items(kind, split, num_of_kind, DIFFICULTIES[kind], seed=seed)
    return drawn


def add_outages(
    assignments: Sequence[Assignment], share: float, rng: np.random.Generator
) -> list[Assignment]:
    """Adds an outage to a random share of assignments, where another tool would do.

    Args:
        assignments: Without outages.
        share: Probability of an outage.
        rng: Random numbers.

    Returns:
        The same assignments, some with an outage: the tool that is called first fails at once, or from its second call
        on where a question takes several calls.
    """
    uniforms = rng.random(len(assignments))
    with_outages = []
    for assignment, uniform in zip(assignments, uniforms, strict=True):
        if uniform < share and len(assignment.capable) > 1:
            takes_several_calls = assignment.kind == "facts" and assignment.difficulty > 1
            assignment = replace(assignment, outage=2 if takes_several_calls else 1)
        with_outages.append(assignment)
    return with_outages
