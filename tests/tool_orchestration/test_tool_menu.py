"""What an orchestrator reads: price lists, levels, what a card says a tool is good at, and a user's words."""

import numpy as np
import pytest
from hypothesis import strategies as st

from lib import config
from lib.config import ROOT, ParamsError
from lib.tool_orchestration import plain_prompt, tool_menu, tool_outcomes
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_menu import (
    FUNCTIONS,
    LOCAL_TOOLS,
    OBJECTIVES,
    OFFICE,
    UserPreference,
)
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.job_helpers import ENDPOINT_MODEL
from tests.tool_orchestration.common import MODELS, NAMES, TOOLS, card, item

RATE = "{cost_usd: 1.0e-6, seconds: 0.01}"
LINES = [f"  {name}: {RATE}" for name in (*FUNCTIONS, OFFICE)]
GOOD = "\n".join(["calls:", *LINES, "models:", f"  lab-nano: {RATE}", ""])
WEIGHT = st.floats(0, 1)


def written(folder, content) -> tool_menu.PriceList:
    """A price list from text, or from bytes."""
    path = folder / "prices.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tool_menu.read_price_list(path)


def test_the_price_list_prices_every_tool_of_the_parameters():
    prices = tool_menu.read_price_list(ROOT / TOOLS.prices)
    assert set(prices.calls) == {*FUNCTIONS, OFFICE} and set(prices.models) == set(MODELS)
    for rate in (*prices.calls.values(), *prices.models.values()):
        assert rate.cost_usd > 0 and rate.seconds > 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("calls: [", "can be read"),
        (b"\xff\xfe\x00calls", "can be read"),
        (GOOD + GOOD, "can be read"),  # everything twice
        ("", "the whole file"),
        (GOOD + "colour: blue\n", "colour"),
        (GOOD.replace(f"search: {RATE}", "search: {cost_usd: 1.0e-6}"), r"calls\.search\.seconds"),
        (
            GOOD.replace(f"search: {RATE}", "search: {cost_usd: dear, seconds: 1}"),
            r"calls\.search\.cost_usd.*dear",
        ),
        (
            GOOD.replace(f"search: {RATE}", "search: {cost_usd: .nan, seconds: 1}"),
            r"calls\.search\.cost_usd",
        ),
        (
            GOOD.replace(f"search: {RATE}", "search: {cost_usd: 1, seconds: 1, tax: 1}"),
            r"calls\.search\.tax",
        ),
        (
            GOOD.replace(f"search: {RATE}", "search: {cost_usd: -1, seconds: 1}"),
            r"calls\.search\.cost_usd",
        ),
        (
            GOOD.replace(f"lab-nano: {RATE}", "lab-nano: {cost_usd: 1, seconds: -1}"),
            r"models\.lab-nano\.seconds",
        ),
        (GOOD.replace(f"  python: {RATE}\n", ""), "python"),
        (GOOD.replace(f"  office: {RATE}\n", ""), "office"),
        (GOOD.replace("calls:\n", f"calls:\n  abacus: {RATE}\n"), "abacus"),
    ],
)
def test_a_wrong_price_list_is_refused_by_file_and_key(tmp_path, content, named):
    with pytest.raises(ParamsError, match=named) as told:
        written(tmp_path, content)
    assert "prices.yaml" in str(told.value)


def test_a_model_that_no_price_list_names_costs_what_its_card_says():
    about = card({"chain": 2}, cost_usd=0.004, speed=200.0)
    prices = tool_menu.read_price_list(ROOT / TOOLS.prices)
    offer = tool_menu.make_offers(prices, {"lab-tiny": about})["lab-tiny"]
    assert (offer.cost_usd, offer.seconds, offer.model) == (1.0, 1.0, True)
    assert offer.typical_cost_usd == pytest.approx(50 * 0.004 / 1000)


def test_one_line_under_llm_models_puts_an_endpoint_on_menus_and_into_prompts():
    """No price list, name or prompt changes."""
    content = small_systems.SMOKE_PARAMS.model_dump()
    common_settings = config.read_params_file()["llm"]["common"]
    content["llm"]["models"]["mine"] = common_settings | ENDPOINT_MODEL
    content["tools"]["models"]["my-model"] = "mine"
    params = config.validate_settings(content, config.Params, "a test")
    about = tool_outcomes.read_model_card(params.llm, "mine", "no folder")
    prices = tool_menu.read_price_list(ROOT / params.tools.prices)
    offer = tool_menu.make_offers(prices, {"my-model": about})["my-model"]
    assert offer.typical_cost_usd == pytest.approx(50 * 1e-6) and not offer.measured
    menu = tool_menu.ToolMenu((offer,))
    assert "my-model" in tool_menu.list_tools(params.tools)
    assigned = Assignment(item("chain"), menu, UserPreference(1.0, 0.0, 0.0))
    assert "my-model" in plain_prompt.write_plain_messages(assigned)[0]["content"]


def test_functions_are_priced_per_call_and_models_by_their_cards(tmp_path):
    prices = GOOD.replace(f"lab-nano: {RATE}", "lab-nano: {cost_usd: 3.0, seconds: 0.5}")
    told = tool_menu.make_offers(
        written(tmp_path, prices), {"lab-nano": card({"chain": 2}, cost_usd=0.004, speed=200.0)}
    )
    assert list(told) == [*FUNCTIONS, OFFICE, "lab-nano"]
    search, nano = told["search"], told["lab-nano"]
    assert (search.model, search.cost_usd, search.seconds) == (False, 1e-6, 0.01)
    assert (search.typical_cost_usd, search.typical_seconds, search.skills) == (
        1e-6,
        0.01,
        {"facts": 3},
    )
    assert (nano.model, nano.cost_usd, nano.seconds, nano.skills) == (True, 3.0, 0.5, {"chain": 2})
    assert (
        nano.typical_cost_usd == pytest.approx(0.004 / 1000 * 50 * 3)
        and nano.typical_seconds == 30 / 200 * 0.5
    )
    assert told[OFFICE].skills == {}


def test_a_card_is_good_up_to_the_first_difficulty_below_3_of_4():
    def rows(*accuracies, family="chain", skin="plain"):
        about = {"category": family, "skin": skin}
        return [about | {"difficulty": d, "accuracy": a} for d, a in enumerate(accuracies, start=1)]

    def skills(*told):
        return tool_menu.find_skills({"accuracy": [row for part in told for row in reversed(part)]})

    assert skills(rows(1.0, 0.9, 0.75, 0.74, 1.0)) == {"chain": 3}
    assert skills(rows(0.74, 1.0)) == {} and skills([]) == {}
    assert skills(rows(0.5, 0.5), rows(1.0, 1.0, skin="words")) == {}
    assert skills(
        rows(1.0, family="big"), rows(1.0, 1.0, family="facts"), rows(1.0, family="story")
    ) == {
        "big": 1,
        "facts": 2,
    }


def test_a_user_as_in_the_papers_appendix():
    """P = [0, 1, 1, 1, 0, 0 | 0, 0, 0] over six tools, then accuracy, cost, latency."""
    tools = ("one", "two", "three", "four", "five", "six")
    who = UserPreference(0.0, 0.0, 0.0, ("two", "three", "four"), True)
    assert who.vector(tools).tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert UserPreference(0.5, 1.0, 0.25, ("six",)).vector(tools).tolist() == [
        0,
        0,
        0,
        0,
        0,
        1,
        0.5,
        1,
        0.25,
    ]


def drawn(n: int = 600, names=NAMES) -> list[UserPreference]:
    rng = np.random.default_rng(0)
    return [tool_menu.draw_preference(rng, names) for _ in range(n)]


def test_users_by_lot_weigh_in_ninths_and_their_largest_weight_is_1():
    for who in drawn():
        weights = np.array([getattr(who, name) for name in OBJECTIVES])
        assert (
            weights.max() == 1
            and (weights >= 0).all()
            and np.abs(9 * weights - np.round(9 * weights)).max() < 1e-9
        )


def test_every_fourth_user_has_confidential_data_and_every_fourth_likes_one_or_two_tools():
    told = drawn()
    secret, likes = (
        [w for w in told if w.confidential],
        [w for w in told if w.tools and not w.confidential],
    )
    assert 110 < len(secret) < 190 and 110 < len(likes) < 190
    assert all(w.tools == LOCAL_TOOLS for w in secret) and {len(w.tools) for w in likes} == {1, 2}
    assert {name for w in likes for name in w.tools} == set(NAMES)
    assert all(list(w.tools) == sorted(w.tools, key=NAMES.index) for w in likes)
    told = drawn(names=MODELS)  # none of which is on their own machine
    assert not any(w.confidential for w in told) and all(set(w.tools) <= set(MODELS) for w in told)
    assert not any(w.tools for w in drawn(50, names=()))
