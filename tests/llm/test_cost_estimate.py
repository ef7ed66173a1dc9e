"""The estimate: numbers checked by hand, endpoints alone are paid, and it is said when the run will stop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.llm.chat_model import ChatRequest
from lib.llm.cost_estimate import (
    PlannedCalls,
    announce_costs,
    asks_endpoint,
    estimate_costs,
    plan_requests,
    take_most_expensive,
)
from lib.llm.endpoint import Endpoint
from lib.llm.reply_store import Recording
from tests.llm import server as scripted
from tests.llm.server import QUESTION, call


def priced(max_usd: float = 5.0, **changes):
    """Claude's prices of the paper's Table 8 for the endpoint, and for a stand-in beside it."""
    prices = {"price_in": 3.0e-6, "price_out": 1.5e-5}
    models = {"stand-in": scripted.INNER | prices}
    settings = scripted.settings(models=models, **prices | {"reasoning_tokens": 0} | changes)
    return settings.model_copy(update={"max_usd": max_usd})


PLAN = [
    PlannedCalls("mine", 1_000, 1_500_000, 400_000),
    PlannedCalls("stand-in", 50, 75_000, 20_000),
]


def test_a_thousand_calls_of_the_papers_middle_regime_cost_ten_dollars_and_a_half():
    table = estimate_costs(priced(), PLAN).set_index("model")
    assert list(table.index) == ["mine", "stand-in", "paid to endpoints"]
    assert table.loc["mine", "cost_usd"] == pytest.approx(10.5)  # 1.5M x $3/M + 0.4M x $15/M
    assert table.loc["stand-in", "cost_usd"] == pytest.approx(0.525)  # counted, not paid
    paid = table.loc["paid to endpoints"]
    assert (paid["calls"], paid["tokens in"], paid["tokens out"]) == (1_000, 1_500_000, 400_000)
    assert paid["cost_usd"] == pytest.approx(10.5)


@pytest.mark.parametrize("plan", [[], PLAN[1:], [PlannedCalls("mine", 0, 0, 0)]])
def test_nothing_is_paid_where_no_endpoint_is_asked(plan):
    paid = estimate_costs(priced(), plan).iloc[-1]
    assert paid["calls"] == 0 and paid["cost_usd"] == 0
    assert announce_costs(priced(), plan) == "No endpoint is asked; nothing is paid."


def test_whether_an_endpoint_is_among_the_models():
    assert asks_endpoint(priced(), ["stand-in", "mine"])
    assert not asks_endpoint(priced(), ["stand-in"]) and not asks_endpoint(priced(), [])


def test_the_announcement_says_whether_the_limit_is_enough():
    line = announce_costs(priced(5.0), PLAN)
    assert "1,000 calls" in line and "$10.50" in line
    assert "stops at llm.max_usd = $5 " in line and "resumed" in line
    line = announce_costs(priced(20.0), PLAN)
    assert "$10.50" in line and "llm.max_usd = $20 allows it" in line and "stops" not in line


def test_hidden_reasoning_is_named_where_it_may_be_billed():
    assert "reasoning" not in announce_costs(priced(), PLAN)
    line = announce_costs(priced(reasoning_tokens=2_000), PLAN)
    assert "hidden reasoning (up to 2,000 tokens a call) not counted" in line


def test_recorded_replies_are_deducted_where_they_are_known():
    (plan, *_) = PLAN
    half = PlannedCalls("mine", plan.calls, plan.tokens_in, plan.tokens_out, recorded=500)
    line = announce_costs(priced(), [half])
    assert "At most 500 calls and $5.25" in line and "500 recorded replies deducted" in line
    everything = PlannedCalls("mine", plan.calls, plan.tokens_in, plan.tokens_out, plan.calls)
    line = announce_costs(priced(), [everything])
    assert line == "All 1,000 replies are recorded; nothing is paid."


def test_a_request_whose_reply_is_recorded_is_known(tmp_path):
    recording = Recording(tmp_path, "tape", "record")
    outcome = call(parts={"recording": recording}, request={"seed": 1})
    model = Endpoint("mine", outcome.model.settings, Recording(tmp_path, "tape", "record"))
    requests = [ChatRequest(QUESTION, seed=1), ChatRequest(QUESTION, seed=2)]
    planned = plan_requests(model, [*requests, ChatRequest(QUESTION, seed=1, max_tokens=9)])
    assert (planned.calls, planned.recorded) == (3, 1)


def test_known_requests_are_planned_by_the_length_of_their_prompts_and_their_limits():
    model = Endpoint("mine", scripted.settings_of())
    short, long = (
        plan_requests(model, [ChatRequest([{"role": "user", "content": text}], max_tokens=40)])
        for text in ("x" * 40, "x" * 440)
    )
    assert long.tokens_in - short.tokens_in == 100  # four bytes a token
    assert short.tokens_out == 40
    assert plan_requests(model, [ChatRequest(QUESTION)], attempts=3).tokens_out == 300


def test_of_plans_of_which_one_comes_true_the_one_that_endpoints_are_paid_most_for_counts():
    cheap, expensive = PlannedCalls("mine", 1, 10, 10), PlannedCalls("mine", 1, 10, 20)
    free = PlannedCalls("stand-in", 9, 10_000, 10_000)
    assert take_most_expensive(priced(), [cheap, free, expensive]) == expensive


COUNT = st.integers(0, 10**9)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(PlannedCalls, st.sampled_from(["mine", "stand-in"]), COUNT, COUNT, COUNT, COUNT),
        max_size=5,
    )
)
def test_what_is_paid_is_what_the_endpoints_rows_add_up_to(plan):
    table = estimate_costs(priced(), plan)
    rows, paid = table.iloc[:-1], table.iloc[-1]
    assert len(rows) == len(plan)
    for name in ("calls", "tokens in", "tokens out", "cost_usd"):
        assert paid[name] == pytest.approx(rows.loc[rows["model"] == "mine", name].sum())
    assert ("stops" in announce_costs(priced(3.0), plan)) == (
        paid["calls"] > 0 and paid["cost_usd"] > 3.0
    )
    whole = [
        PlannedCalls(planned.model, planned.calls, planned.tokens_in, planned.tokens_out)
        for planned in plan
    ]
    assert paid["cost_usd"] <= estimate_costs(priced(), whole).iloc[-1]["cost_usd"]
