"""Ten random price lists: settings decide them, and every tool has factors of its own."""

from dataclasses import replace

import numpy as np
import pytest

from lib import config
from lib.config.budgeted_routing import PriceConfigurationSettings
from lib.experiment import seeds
from lib.tool_orchestration import episode_specs, price_configurations
from tests.tool_orchestration import common

TEN = PriceConfigurationSettings(number=10, spread=4.0, seed=0)


def list_rates(offers) -> np.ndarray:
    """(tools, 2) price and latency of every tool."""
    return np.array([(offer.cost_usd, offer.seconds) for offer in offers.values()])


def test_there_are_ten_at_laptop_and_at_paper():
    for profile in ("laptop", "paper"):
        assert config.load(profile).tools.price_configurations.number == 10


def test_all_ten_differ_and_stay_within_their_spread_of_the_list():
    lists = price_configurations.draw_offers(common.offers(), TEN)
    factors = np.stack([list_rates(offers) / list_rates(common.offers()) for offers in lists])
    assert factors.shape == (10, len(common.NAMES) + 1, 2)
    assert (factors >= 1 / 4).all() and (factors <= 4).all()
    assert len(np.unique(factors.round(12))) == factors.size
    # Both directions are used, and price says nothing of latency.
    assert 0.35 < (factors > 1).mean() < 0.65
    logs = np.log(factors).reshape(-1, 2)
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.35


def test_more_configurations_or_more_tools_change_none_of_the_earlier_ones():
    fewer = TEN.model_copy(update={"number": 3})
    offers = common.offers()
    lists = price_configurations.draw_offers(offers, TEN)
    assert price_configurations.draw_offers(offers, fewer) == lists[:3]
    newcomer = replace(offers["lab-mini"], name="newcomer")
    larger = price_configurations.draw_offers({"newcomer": newcomer} | offers, fewer)
    for with_newcomer, without in zip(larger, lists, strict=False):
        assert {name: with_newcomer[name] for name in without} == without


@pytest.mark.parametrize("change", [{"seed": 1}, {"spread": 2.0}])
def test_seed_and_spread_change_every_list(change):
    changed = price_configurations.draw_offers(common.offers(), TEN.model_copy(update=change))
    lists = price_configurations.draw_offers(common.offers(), TEN)
    for before, after in zip(lists, changed, strict=True):
        assert before != after


def test_menus_of_a_test_keep_their_work_and_factors_at_another_list():
    listed = common.offers()
    works = [common.item("chain", 2), common.offices()[0]]
    rng = seeds.rng("toolorchestra", "test")
    before = episode_specs.draw_assignments(works, listed, common.NAMES, 4.0, rng)
    others = price_configurations.draw_offers(listed, TEN)[3]
    after = price_configurations.reprice_assignments(before, listed, others)
    for old, new in zip(before, after, strict=True):
        assert old.work is new.work and old.preference == new.preference
        assert old.menu.names == new.menu.names
        for on_menu, repriced in zip(old.menu.offers, new.menu.offers, strict=True):
            factor = on_menu.cost_usd / listed[on_menu.name].cost_usd
            assert repriced.cost_usd == pytest.approx(factor * others[on_menu.name].cost_usd)
            assert repriced.cost_usd != pytest.approx(on_menu.cost_usd)
    assert after[1].menu.office_offer.seconds != before[1].menu.office_offer.seconds
