"""What orchestrators are tested on: the same work under seen and unseen tools, prices, outages and users.

test           users by lot, tools and price list of the training
unseen_tools   questions whose menu has a tool that no training menu had, the only one that is good at them or the
               cheapest (as it falls)
unseen_prices  the work of `test` at the prices of another list
outage         the work of `test` where two tools or more are good; the one that is called first fails from its
               first or second call on
simplex        the same questions and menus for users on a grid over accuracy, cost and latency
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import product

from lib.config import ToolSettings
from lib.experiment import seeds
from lib.tasks.synthesis import Task
from lib.tool_orchestration import episode_specs
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.price_configurations import reprice_assignments
from lib.tool_orchestration.tool_menu import (
    FUNCTIONS,
    Offer,
    ToolMenu,
    UserPreference,
    draw_preference,
    list_training_tools,
)

VERSION = 1  # of the assignments of exams
MAIN = ("test", "outage")
_DRAWS = 8  # menus per question, among which one with two good tools is looked for
FRUGAL = UserPreference(1.0, 1.0, 0.0)  # "achieve best results while maintaining lowest cost"
GRID_SHARE = 3  # one in so many of the test's pieces of work is asked for every user of the grid


Offers = Mapping[str, Offer]


def make_test_set(
    name: str, offers: Offers, unseen: Offers, settings: ToolSettings
) -> list[Assignment]:
    """The assignments of an exam. Equal settings give equal exams.

    Args:
        name: One of ALL.
        offers: At list prices.
        unseen: At those of the second list, which AT_UNSEEN_PRICES alone reads.
        settings: models, unseen, spread and test_items, and for the exam ON_GRID side.

    Raises:
        ValueError: There is no such exam.
    """
    if name not in _EXAMS:
        raise ValueError(f"there is no exam {name!r}; there are {', '.join(ALL)}")
    return _EXAMS[name](offers, unseen, settings)


def count_episodes(settings: ToolSettings) -> int:
    """Episodes of all exams together, at most."""
    return 5 * settings.test_items + settings.test_items // GRID_SHARE * len(
        make_user_grid(settings.side)
    )


def make_user_grid(side: int) -> list[UserPreference]:
    """Users on a grid over the simplex, `side` points along each side; weights add up to 1."""
    steps = side - 1
    whole = [
        (a, c, steps - a - c) for a, c in product(range(steps + 1), repeat=2) if a + c <= steps
    ]
    return [UserPreference(*(w / steps for w in weights)) for weights in whole]


@cache
def _offices(n: int) -> tuple[Task, ...]:
    return tuple(episode_specs.draw_office_tasks("test", n, 1))


def _works(settings: ToolSettings) -> list:
    n = max(1, round(settings.test_items * episode_specs.TASK_SHARES["office"]))
    return episode_specs.draw_tasks_evenly(settings.test_items, "test", 7, _offices(n))


def _test(offers: Offers, unseen: Offers, settings: ToolSettings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "test")
    return episode_specs.draw_assignments(
        _works(settings), offers, list_training_tools(settings), settings.spread, rng
    )


def _pilot(offers: Offers, unseen: Offers, settings: ToolSettings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "pilot")
    models = [name for name in list_training_tools(settings) if offers[name].model]
    out = []
    for work in _works(settings):
        if not isinstance(work, Task) and work.group in ("chain", "facts"):
            function = FUNCTIONS[int(rng.integers(len(FUNCTIONS)))]
            told = tuple(
                offers[name] for name in (*models[: episode_specs.MENU_SIZES[1] - 1], function)
            )
            out.append(
                Assignment(
                    work, ToolMenu(tuple(told[i] for i in rng.permutation(len(told)))), FRUGAL
                )
            )
    return out


def _unseen_tools(offers: Offers, unseen: Offers, settings: ToolSettings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "unseen tools")
    works = [
        w for w in _works(settings) if not isinstance(w, Task) and w.group in ("chain", "facts")
    ]
    out = []
    for work in works:
        good = [
            name for name in offers if offers[name].skills.get(work.group, 0) >= work.difficulty
        ]
        new, known = [n for n in settings.unseen if n in good], list_training_tools(settings)
        rivals = (
            known if rng.random() < 0.5 else [n for n in known if n not in good]
        )  # or it is the only good one
        if new:
            known_offers = episode_specs.draw_menu(
                work, offers, rivals, settings.spread, rng
            ).offers
            newcomer = episode_specs.draw_menu(work, offers, new, settings.spread, rng).offers[0]
            met = [*known_offers[: episode_specs.MENU_SIZES[1] - 1], newcomer]
            dealt = tuple(met[i] for i in rng.permutation(len(met)))
            who = draw_preference(rng, [offer.name for offer in dealt])
            out.append(Assignment(work, ToolMenu(dealt), who))
    return out


def _unseen_prices(offers: Offers, unseen: Offers, settings: ToolSettings) -> list[Assignment]:
    """The menus of `test`, each tool at its price on the other list times the same factors."""
    return reprice_assignments(_test(offers, unseen, settings), offers, unseen)


def _outage(offers: Offers, unseen: Offers, settings: ToolSettings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "outage")
    works = [w for w in _works(settings) if not isinstance(w, Task)]
    menus = [
        episode_specs.draw_assignments(
            works, offers, list_training_tools(settings), settings.spread, rng
        )
        for _ in range(_DRAWS)
    ]
    first = (
        next((a for a in several if len(a.capable) > 1), None)
        for several in zip(*menus, strict=True)
    )
    return episode_specs.add_outages([a for a in first if a is not None], 1.0, rng)


def _simplex(offers: Offers, unseen: Offers, settings: ToolSettings) -> list[Assignment]:
    base = [a for a in _test(offers, unseen, settings) if a.kind != "office"][::GRID_SHARE]
    return [replace(a, preference=who) for who in make_user_grid(settings.side) for a in base]


_EXAMS = {
    "test": _test, "pilot": _pilot, "unseen_tools": _unseen_tools, "unseen_prices": _unseen_prices,
    "outage": _outage, "simplex": _simplex,
}  # fmt: skip
ALL = tuple(_EXAMS)
AT_UNSEEN_PRICES, ON_GRID = "unseen_prices", "simplex"
