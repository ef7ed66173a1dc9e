"""What orchestrators are tested on: the same work under seen and unseen tools, prices, outages and users.

test           users by lot, tools and price list of the training
unseen_tools   questions whose menu has a tool that no training menu had, the only one that is good at them or the
               cheapest (as it falls)
unseen_prices  the work of `test` at the prices of another list
outage         the work of `test` where two tools or more are good; the one that is called first fails from its
               first or second call on
simplex        the same questions and menus for users on a grid over accuracy, cost and latency
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import product

from lib import seeds
from lib.params import ToolSettings
from lib.routing.toolorchestra import assignments
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.menu import FUNCTIONS, OFFICE, Menu, Offer, Preference, drawn_preference
from lib.tasks.synthesis import Task

MAIN = ("test", "outage")
ALL = ("test", "pilot", "unseen_tools", "unseen_prices", "outage", "simplex")
_DRAWS = 8  # menus per question, among which one with two good tools is looked for
FRUGAL = Preference(1.0, 1.0, 0.0)  # "achieve best results while maintaining lowest cost"
GRID_SHARE = 3  # one in so many of the test's pieces of work is asked for every user of the grid


def exam(
    name: str, offers: Mapping[str, Offer], unseen: Mapping[str, Offer], settings: ToolSettings
) -> list[Assignment]:
    """The assignments of an exam; offers: at list prices, unseen: at those of the second list. Equal settings give
    equal exams. Raises ValueError for an unknown one."""
    if name not in ALL:
        raise ValueError(f"there is no exam {name!r}; there are {', '.join(ALL)}")
    return {
        "test": _test, "pilot": _pilot, "unseen_tools": _unseen_tools, "unseen_prices": _unseen_prices,
        "outage": _outage, "simplex": _simplex,
    }[name](offers, unseen, settings)  # fmt: skip


def count(settings: ToolSettings) -> int:
    """Episodes of all exams together, at most."""
    return 5 * settings.test_items + settings.test_items // GRID_SHARE * len(grid(settings.side))


def grid(side: int) -> list[Preference]:
    """Users on a grid over the simplex, `side` points along each side; weights add up to 1."""
    steps = side - 1
    whole = [(a, c, steps - a - c) for a, c in product(range(steps + 1), repeat=2) if a + c <= steps]
    return [Preference(*(w / steps for w in weights)) for weights in whole]


def _known(settings: ToolSettings) -> list[str]:
    return [name for name in (*FUNCTIONS, *settings.models) if name not in settings.unseen]


@cache
def _offices(n: int) -> tuple[Task, ...]:
    return tuple(assignments.office("test", n, 1))


def _works(settings: ToolSettings) -> list:
    n = max(1, round(settings.test_items * assignments.SHARES["office"]))
    return assignments.even(settings.test_items, "test", 7, _offices(n))


def _test(offers, unseen, settings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "test")
    return assignments.drawn(_works(settings), offers, _known(settings), settings.spread, rng)


def _pilot(offers, unseen, settings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "pilot")
    models = [name for name in _known(settings) if offers[name].model]
    out = []
    for work in _works(settings):
        if not isinstance(work, Task) and work.category in ("chain", "facts"):
            function = FUNCTIONS[int(rng.integers(len(FUNCTIONS)))]
            told = tuple(offers[name] for name in (*models[: assignments.TOOLS[1] - 1], function))
            out.append(Assignment(work, Menu(_dealt(told, rng)), FRUGAL))
    return out


def _unseen_tools(offers, unseen, settings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "unseen tools")
    works = [w for w in _works(settings) if not isinstance(w, Task) and w.category in ("chain", "facts")]
    out = []
    for work in works:
        good = [name for name in offers if offers[name].skills.get(work.category, 0) >= work.difficulty]
        new, known = [n for n in settings.unseen if n in good], _known(settings)
        rivals = known if rng.random() < 0.5 else [n for n in known if n not in good]  # or it is the only good one
        if new:
            known_offers = assignments.menu_for(work, offers, rivals, settings.spread, rng).offers
            newcomer = assignments.menu_for(work, offers, new, settings.spread, rng).offers[0]
            dealt = _dealt([*known_offers[: assignments.TOOLS[1] - 1], newcomer], rng)
            who = drawn_preference(rng, [offer.name for offer in dealt])
            out.append(Assignment(work, Menu(dealt), who))
    return out


def _dealt(offers, rng) -> tuple[Offer, ...]:
    return tuple(offers[i] for i in rng.permutation(len(offers)))


def _unseen_prices(offers, unseen, settings) -> list[Assignment]:
    """The menus of `test`, each tool at its price on the other list times the same luck."""
    out = []
    for a in _test(offers, unseen, settings):
        priced = tuple(_repriced(o, offers[o.name], unseen[o.name]) for o in a.menu.offers)
        desk = a.menu.desk and _repriced(a.menu.desk, offers[OFFICE], unseen[OFFICE])
        out.append(replace(a, menu=replace(a.menu, offers=priced, desk=desk)))
    return out


def _repriced(met: Offer, listed: Offer, other: Offer) -> Offer:
    """The other list's price with the luck of a menu; what was listed as free had none."""
    luck = [m / l if l else 1.0 for m, l in ((met.dollars, listed.dollars), (met.seconds, listed.seconds))]
    return other.times(*luck)


def _outage(offers, unseen, settings) -> list[Assignment]:
    rng = seeds.rng("toolorchestra", "exam", "outage")
    works = [w for w in _works(settings) if not isinstance(w, Task)]
    menus = [assignments.drawn(works, offers, _known(settings), settings.spread, rng) for _ in range(_DRAWS)]
    first = (next((a for a in several if len(a.capable) > 1), None) for several in zip(*menus, strict=True))
    return assignments.struck([a for a in first if a is not None], 1.0, rng)


def _simplex(offers, unseen, settings) -> list[Assignment]:
    base = [a for a in _test(offers, unseen, settings) if a.kind != "office"][::GRID_SHARE]
    return [replace(a, preference=who) for who in grid(settings.side) for a in base]
