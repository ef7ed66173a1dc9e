"""What an orchestrator is given: a question or an office task, with a menu and a user by lot.

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
    OFFICE,
    SIGNS,
    Offer,
    ToolMenu,
    UserPreference,
    drawn_preference,
)

VERSION = 1  # of the work that is drawn, with menus and users
HOSTED_VERSION = 1  # of which questions models are asked whose skills nobody measured
SHARES = {"chain": 0.35, "big": 0.15, "facts": 0.28, "office": 0.22}  # of work by kind (decision)
DIFFICULTIES = {"chain": (1, 2, 3, 4, 5, 6), "big": (1, 2, 3, 4), "facts": (1, 2, 3)}
TOOLS = (2, 4)  # the fewest and the most on a menu, functions of an office aside
PER_DATABASE = 6  # office tasks


@dataclass(frozen=True)
class Assignment:
    """work: what is to be done; menu: with what; preference: for whom. outage: the tool that is called first fails
    from its so-manieth call on; 0: never."""

    work: Item | Task
    menu: ToolMenu
    preference: UserPreference
    outage: int = 0

    @property
    def kind(self) -> str:
        """The family of a question, or office."""
        return self.work.group if isinstance(self.work, Item) else "office"

    @property
    def difficulty(self) -> int:
        return self.work.difficulty

    @property
    def prompt(self) -> str:
        return self.work.prompt if isinstance(self.work, Item) else self.work.instruction

    @property
    def messages(self) -> list[dict[str, str]]:
        """As the lab's orchestrators are told."""
        told = f"{self.menu.text} {self.preference.text}"
        return [{"role": "system", "content": told}, {"role": "user", "content": self.prompt}]

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


def office_corpus(split: str, n: int, seed: int) -> Corpus:
    """At least n office tasks of a split, as the pipeline writes and filters them. Raises TaskError for fewer."""
    corpus = synthesize(
        databases=-(-n // PER_DATABASE) + 4, tasks_per_database=PER_DATABASE, seed=seed, split=split
    )
    if len(corpus.tasks) < n:
        raise tasks.TaskError(
            f"the pipeline wrote {len(corpus.tasks)} office tasks for {split}, not {n}"
        )
    return corpus


def office(split: str, n: int, seed: int) -> list[Task]:
    """n office tasks of a split, all difficulties and domains mixed."""
    found = office_corpus(split, n, seed).tasks
    return sorted(
        found, key=lambda task: int(seeds.key("toolorchestra", "office", task.id, seed=seed))
    )[:n]


def drawn(
    works: Sequence[Item | Task],
    offers: Mapping[str, Offer],
    names: Sequence[str],
    spread: float,
    rng: np.random.Generator,
) -> list[Assignment]:
    """Work with menus and users by lot. names: of the tools that may be on menus; spread: factor within which prices
    and latencies vary, 1 for not at all."""
    out = []
    for work in works:
        menu = menu_for(work, offers, names, spread, rng)
        out.append(
            Assignment(work, menu, drawn_preference(rng, [offer.name for offer in menu.offers]))
        )
    return out


def menu_for(
    work: Item | Task,
    offers: Mapping[str, Offer],
    names: Sequence[str],
    spread: float,
    rng: np.random.Generator,
) -> ToolMenu:
    """A menu by lot with a tool that is good at a question; an office task brings its own functions."""
    domain = None if isinstance(work, Item) else work.domain
    taken = (
        {function.name for function in domain.functions} if domain else set()
    )  # an office has its own lookup
    pool = [name for name in names if name not in taken]
    order = [pool[i] for i in rng.permutation(len(pool))]
    size = int(rng.integers(TOOLS[0], TOOLS[1] + 1)) - (domain is not None)
    chosen = order[:size]
    if domain is None:
        good = [n for n in order if offers[n].skills.get(work.group, 0) >= work.difficulty]
        if good and not set(good) & set(chosen):
            chosen[int(rng.integers(len(chosen)))] = good[0]
    factors = np.exp(rng.uniform(-np.log(spread), np.log(spread), size=(len(chosen) + 1, 2)))
    priced = tuple(
        offers[name].times(*pair) for name, pair in zip(chosen, factors[1:].tolist(), strict=True)
    )
    if domain is None:
        return ToolMenu(priced)
    return ToolMenu(
        priced, tuple(f.name for f in domain.functions), offers[OFFICE].times(*factors[0].tolist())
    )


def mixed(n: int, split: str, seed: int, offices: Sequence[Task]) -> list[Item | Task]:
    """n pieces of work, kinds by lot as in SHARES; office tasks are drawn from those at hand, if there are any."""
    rng = seeds.rng("toolorchestra", "kinds", split, seed=seed)
    shares = {kind: share for kind, share in SHARES.items() if kind != "office" or offices}
    kinds = rng.choice(
        list(shares), size=n, p=np.array(list(shares.values())) / sum(shares.values())
    )
    fresh = {
        kind: iter(
            tasks.draw_items(kind, split, int((kinds == kind).sum()), DIFFICULTIES[kind], seed=seed)
        )
        for kind in SIGNS
        if kind in kinds
    }
    return [
        offices[int(rng.integers(len(offices)))] if kind == "office" else next(fresh[kind])
        for kind in kinds
    ]


def even(n: int, split: str, seed: int, offices: Sequence[Task]) -> list[Item | Task]:
    """About n pieces of work, kinds in the shares of SHARES exactly, no question twice where there are enough."""
    out: list[Item | Task] = []
    for kind, share in SHARES.items():
        wanted = max(1, round(n * share))
        out += (
            list(offices[:wanted])
            if kind == "office"
            else tasks.draw_items(kind, split, wanted, DIFFICULTIES[kind], seed=seed)
        )
    return out


def struck(
    assigned: Sequence[Assignment], share: float, rng: np.random.Generator
) -> list[Assignment]:
    """The same, a share of them by lot with an outage, where another tool would do."""
    lots = rng.random(len(assigned))
    return [
        _with_outage(a) if lot < share and len(a.capable) > 1 else a
        for a, lot in zip(assigned, lots, strict=True)
    ]


def _with_outage(assignment: Assignment) -> Assignment:
    """The tool that is called first fails: at once, or in the middle of a question that takes several calls."""
    several = assignment.kind == "facts" and assignment.difficulty > 1
    return replace(assignment, outage=2 if several else 1)
