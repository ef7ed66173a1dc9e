"""Random price lists under which an evaluation is repeated (ToolOrchestra, appendix "Generalization of pricing").

The paper trains under the prices of ten providers and evaluates at others. Here every configuration is a list of its
own: the price and the latency of each tool are the usual ones, times factors drawn at random. They are
settings (`tools.price_configurations`), so that an evaluation names them and equal settings give equal lists. The
variation from menu to menu (`tools.spread`) comes on top.
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
    """Draws the factors of one configuration.

    Args:
        names: Of tools.
        settings: How far factors may lie from 1, and the seed.
        configuration: Its number; a larger number of configurations leaves the earlier ones as they are.

    Returns:
        (price factor, latency factor) by name; the two are independent, so that cheap is not fast. A tool has the same
        factors whatever other tools there are.
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
    """Draw the offers of all configurations.

    Args:
        offers: By name, at the prices that they vary.
        settings: Number, spread and seed.

    Returns:
        Offers by name, for each configuration.
    """
    priced = []
    for configuration in range(settings.number):
        factors = draw_price_factors(list(offers), settings, configuration)
        priced.append({name: offer.scale_prices(*factors[name]) for name, offer in offers.items()})
    return tuple(priced)


def reprice_assignments(
    assignments: Sequence[Assignment],
    listed: Mapping[str, Offer],
    new_offers: Mapping[str, Offer],
) -> list[Assignment]:
    """The same questions, menus and users at other list prices.

    Args:
        assignments: Menus whose prices are those of a list, times factors of their own.
        listed: That list.
        new_offers: The list whose prices take their place; each is multiplied by the factors of the menu.

    Returns:
        The assignments, in their order.
    """
    repriced = []
    for assignment in assignments:
        menu = assignment.menu
        offers = tuple(
            reprice_offer(offer, listed[offer.name], new_offers[offer.name])
            for offer in menu.offers
        )
        office_offer = menu.office_offer
        if office_offer is not None:
            office_offer = reprice_offer(office_offer, listed[OFFICE], new_offers[OFFICE])
        menu = replace(menu, offers=offers, office_offer=office_offer)
        repriced.append(replace(assignment, menu=menu))
    return repriced


def reprice_offer(on_menu: Offer, listed: Offer, new_offer: Offer) -> Offer:
    """The other list's price with the factors of a menu; what was listed as free had none."""
    cost_factor = on_menu.cost_usd / listed.cost_usd if listed.cost_usd else 1.0
    latency_factor = on_menu.seconds / listed.seconds if listed.seconds else 1.0
    return new_offer.scale_prices(cost_factor, latency_factor)
