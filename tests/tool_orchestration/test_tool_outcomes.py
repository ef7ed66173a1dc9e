"""What every tool answers by itself, and what that may cost."""

import numpy as np
import pytest

from lib import stats
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.tool_orchestration import tool_outcomes
from lib.tool_orchestration.tool_menu import OFFICE, list_tools
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.job_helpers import ENDPOINT_MODEL
from tests.language_models import tiny
from tests.tool_orchestration import common


def make_params(**models):
    """Models that are brief, and some that are endpoints, by their names in llm.models."""
    brief = {name: {"max_tokens": 8} for name in common.TOOLS.models.values()}
    return small_systems.change_params(llm={"models": brief | models}, tools={"jobs": 1})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of lab models that write at random."""
    root = tmp_path_factory.mktemp("models")
    params = make_params()
    for seed, name in enumerate(params.tools.models.values()):
        folder = checkpoints.save(
            tiny.model(seed, hidden=16, intermediate=16), root / params.llm.models[name].model
        )
        artifacts.write_json(folder / "card.json", common.card({}, 0.0002 * 2**seed))
    return root


@pytest.fixture(scope="module")
def outcomes(models, tmp_path_factory):
    return tool_outcomes.measure_tool_outcomes(
        make_params(), 12, models, tmp_path_factory.mktemp("runs")
    )


def test_every_tool_is_asked_every_question_in_two_independent_samples(outcomes):
    assert set(outcomes["split"]) == {"dev", "test"} and set(outcomes["sample"]) == {0, 1}
    assert list(outcomes["method"].unique()) == list(list_tools(make_params().tools))
    sizes = outcomes.groupby(["split", "sample", "method"])["item"].nunique()
    assert sizes.nunique() == 1
    dev, test = (outcomes[outcomes["split"] == split] for split in ("dev", "test"))
    assert stats.headroom(dev, test, "correct")["num_items"][0] == test["item"].nunique()


def test_a_lookup_knows_facts_and_is_wrong_about_what_it_cannot_be_asked(outcomes):
    test = outcomes[(outcomes["split"] == "test") & (outcomes["method"] == "lookup")]
    assert set(test.groupby("item")["correct"].mean()) == {0.0, 1.0}


def test_the_same_is_measured_again(outcomes, models, tmp_path):
    again = tool_outcomes.measure_tool_outcomes(make_params(), 12, models, tmp_path)
    assert again.equals(outcomes)


def test_list_offers_have_every_function_and_model_at_its_cards_price(models):
    offers = tool_outcomes.make_list_offers(make_params(), models)
    assert list(offers) == [*common.NAMES[:4], OFFICE, *common.MODELS]
    prices = [offers[name].typical_cost_usd for name in common.MODELS]
    assert np.allclose(np.divide(prices[1:], prices[:-1]), 2.0)


def test_only_endpoints_are_announced_and_each_may_be_asked_everything():
    assert tool_outcomes.announce_outcomes(make_params(), 10) == ""
    line = tool_outcomes.announce_outcomes(make_params(nano=ENDPOINT_MODEL), 10)
    assert "trying every tool: At most 40 calls" in line and "$" in line


def test_costs_stand_on_the_terminal_before_any_tool_is_asked(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tool_outcomes, "ensure_models", stop)
    with pytest.raises(KeyboardInterrupt):
        tool_outcomes.measure_tool_outcomes(make_params(nano=ENDPOINT_MODEL), 10)
    assert "trying every tool: At most 40 calls" in capsys.readouterr().err
