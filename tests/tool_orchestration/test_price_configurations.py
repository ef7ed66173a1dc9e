"""Ten random price lists: settings decide them, and every tool has factors of its own."""

import numpy as np
import pytest

from lib import config
from lib.config.budgeted_routing import PriceConfigurationSettings
from lib.experiment import seeds
from lib.tool_orchestration import episode_specs, price_configurations, test_sets, tool_menu
from tests.tool_orchestration import common

PRICES = tool_menu.read_price_list(config.ROOT / common.TRAINING)
TEN = PriceConfigurationSettings(number=10, spread=4.0, seed=0)


def list_rates(prices: tool_menu.PriceList) -> np.ndarray:
    """(tools, 2) price and latency of every tool."""
    rates = [*prices.calls.values(), *prices.models.values()]
    return np.array([(rate.cost_usd, rate.seconds) for rate in rates])


def test_there_are_ten_at_laptop_and_at_paper():
    for profile in ("laptop", "paper"):
        assert config.load(profile).tools.price_configurations.number == 10


def test_all_ten_differ_and_stay_within_their_spread_of_the_list():
    lists = price_configurations.draw_price_lists(PRICES, TEN)
    factors = np.stack([list_rates(prices) / list_rates(PRICES) for prices in lists])
    assert factors.shape == (10, len(common.NAMES) + 1, 2)
    assert (factors >= 1 / 4).all() and (factors <= 4).all()
    assert len(np.unique(factors.round(12))) == factors.size
    # Both directions are used, and price says nothing of latency.
    assert 0.35 < (factors > 1).mean() < 0.65
    logs = np.log(factors).reshape(-1, 2)
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.35


def test_more_configurations_or_more_tools_change_none_of_the_earlier_ones():
    fewer = TEN.model_copy(update={"number": 3})
    lists = price_configurations.draw_price_lists(PRICES, TEN)
    assert price_configurations.draw_price_lists(PRICES, fewer) == lists[:3]
    content = PRICES.model_dump()
    content["models"]["newcomer"] = {"cost_usd": 1.0, "seconds": 1.0}
    larger = price_configurations.draw_price_lists(
        tool_menu.PriceList.model_validate(content), fewer
    )
    assert [prices.calls for prices in larger] == [prices.calls for prices in lists[:3]]


@pytest.mark.parametrize("change", [{"seed": 1}, {"spread": 2.0}])
def test_seed_and_spread_change_every_list(change):
    changed = price_configurations.draw_price_lists(PRICES, TEN.model_copy(update=change))
    for before, after in zip(
        price_configurations.draw_price_lists(PRICES, TEN), changed, strict=True
    ):
        assert before != after


def test_menus_of_a_test_keep_their_work_and_factors_at_another_list():
    listed = common.offers()
    works = [common.item("chain", 2), common.offices()[0]]
    rng = seeds.rng("toolorchestra", "test")
    before = episode_specs.draw_assignments(works, listed, common.SEEN, 4.0, rng)
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


def test_the_exam_at_unseen_prices_is_repriced_by_the_same_rule():
    listed, unseen = common.offers(), common.offers(common.UNSEEN)
    exam = test_sets.make_test_set("unseen_prices", listed, unseen, common.TOOLS)
    base = test_sets.make_test_set("test", listed, unseen, common.TOOLS)
    assert exam == price_configurations.reprice_assignments(base, listed, unseen)
    assert exam != base
