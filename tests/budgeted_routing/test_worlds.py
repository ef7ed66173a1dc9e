"""The worlds of lesson 05: experts and questions of each."""

import pytest

from lib import config
from lib.budgeted_routing.worlds import COMPLEMENTARY, LADDER, TWO_EXPERTS, select_world

PARAMS = config.load("laptop")


def test_the_complementary_world_is_that_of_the_settings():
    assert select_world(PARAMS, COMPLEMENTARY) == PARAMS


def test_the_ladder_has_experts_and_questions_of_its_own():
    routing = select_world(PARAMS, LADDER).routing
    assert routing.experts == PARAMS.routing.ladder.experts
    assert routing.questions == PARAMS.routing.ladder.questions
    assert routing.seeds == PARAMS.routing.ablation_seeds


def test_two_experts_are_the_cheapest_and_the_most_expensive():
    routing = select_world(PARAMS, TWO_EXPERTS).routing
    names = list(PARAMS.routing.experts)
    assert list(routing.experts) == [names[0], names[-1]]
    assert routing.questions == PARAMS.routing.questions


def test_prices_of_the_experts_are_a_factor_of_ten_apart_from_class_to_class():
    for world in (COMPLEMENTARY, LADDER):
        names = select_world(PARAMS, world).routing.experts.values()
        prices = sorted({PARAMS.llm.models[name].price_out for name in names})
        assert prices == pytest.approx([4e-8, 4e-7, 4e-6])


def test_an_unknown_world_is_named_with_those_that_exist():
    with pytest.raises(ValueError, match="'tower'; there are complementary, ladder, two experts"):
        select_world(PARAMS, "tower")
