"""Random price lists under which an evaluation is repeated (ToolOrchestra, appendix "Generalization of pricing").

The paper trains under the prices of ten providers and evaluates at others. Here every price configuration is a price
list: the price and the latency of each tool are the usual ones, times factors drawn at random. Number, spread and seed
are settings (`tools.price_configurations`), so that equal settings give equal lists. The variation from menu to menu
(`tools.spread`) comes on top.

    draw_price_factors    factors of one configuration
    draw_offers           the price lists of all configurations
    reprice_assignments   the menus of an evaluation under another price list
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.config.budgeted_routing import PriceConfigurationSettings
from lib.experiment import seeds
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_menu import OFFICE, Offer


def draw_price_factors(
    names: Sequence[str], settings: PriceConfigurationSettings, configuration: int
) -> dict[str, tuple[float, float]]:
    """Draw the random factors on price and latency of one price configuration.

    Factors are uniform in the logarithm, between 1 / spread and spread.

    Args:
        names: Names of the tools.
        settings: `spread`, the largest factor, and `seed`.
        configuration: Number of the configuration, from 0. It seeds the draw, so that more configurations leave the
            earlier ones as they are.

    Returns:
        (price factor, latency factor) by tool name; the two are independent, so that a cheap tool need not be slow. A
        tool has the same factors whatever other tools there are.
    """
    log_spread = np.log(settings.spread)
    factors = {}
    for name in names:
        # A stream for each tool, so that another tool on the list changes no factor.
        rng = seeds.rng("toolorchestra", "prices", str(configuration), name, seed=settings.seed)
        cost_factor, latency_factor = np.exp(rng.uniform(-log_spread, log_spread, size=2)).tolist()
        factors[name] = (cost_factor, latency_factor)
    return factors


def draw_offers(
    offers: Mapping[str, Offer], settings: PriceConfigurationSettings
) -> tuple[dict[str, Offer], ...]:
    """Draw the price lists of all price configurations.

    Args:
        offers: Every tool at its usual price and latency, by name.
        settings: `number` of configurations, `spread` of the random factors, and `seed`.

    Returns:
        One price list for each configuration: every tool at its new price and latency, by name.
    """
    price_lists = []
    for configuration in range(settings.number):
        factors = draw_price_factors(list(offers), settings, configuration)
        price_list = {}
        for name, offer in offers.items():
            cost_factor, latency_factor = factors[name]
            price_list[name] = offer.scale_prices(cost_factor, latency_factor)
        price_lists.append(price_list)
    return tuple(price_lists)


def reprice_assignments(
    assignments: Sequence[Assignment],
    old_list: Mapping[str, Offer],
    new_list: Mapping[str, Offer],
) -> list[Assignment]:
    """Put the same questions, menus and users under another price list.

    The price of a tool on a menu is its list price times a random factor of this menu. The factor stays, and the list
    price is replaced; latencies likewise.

    Args:
        assignments: Questions and office tasks with menus whose prices come from `old_list`.
        old_list: Every tool at its price and latency of that list, by name.
        new_list: Every tool at its price and latency of the other list, by name.

    Returns:
        The assignments with new prices and latencies, in their order.
    """
    repriced = []
    for assignment in assignments:
        menu = assignment.menu
        offers = tuple(
            reprice_offer(offer, old_list[offer.name], new_list[offer.name])
            for offer in menu.offers
        )
        office_offer = menu.office_offer
        if office_offer is not None:
            office_offer = reprice_offer(office_offer, old_list[OFFICE], new_list[OFFICE])
        menu = replace(menu, offers=offers, office_offer=office_offer)
        repriced.append(replace(assignment, menu=menu))
    return repriced


def reprice_offer(on_menu: Offer, in_old_list: Offer, in_new_list: Offer) -> Offer:
    """Put one tool of a menu under another price list, and keep the menu's random factors.

        new price on the menu = new list price * (old price on the menu / old list price),    latency likewise

    Args:
        on_menu: The tool at its price and latency on the menu.
        in_old_list: The tool at the list price that the menu's price came from.
        in_new_list: The tool at the other list's price.

    Returns:
        The tool at its new price and latency on the menu.
    """
    # A tool that the old list has for free, or as immediate, shows no factor of the menu.
    cost_factor = 1.0
    if in_old_list.cost_usd:
        cost_factor = on_menu.cost_usd / in_old_list.cost_usd
    latency_factor = 1.0
    if in_old_list.seconds:
        latency_factor = on_menu.seconds / in_old_list.seconds
    return in_new_list.scale_prices(cost_factor, latency_factor)
