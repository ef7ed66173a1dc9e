"""The estimate: numbers checked by hand, endpoints alone are paid, and it is said when the run will stop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.llm.cost_estimate import Planned, announcement, estimate
from tests.llm import server as scripted


def priced(max_usd: float = 5.0):
    """Claude's prices of the paper's Table 8 for the endpoint, and for a stand-in beside it."""
    prices = {"price_in": 3.0e-6, "price_out": 1.5e-5}
    settings = scripted.settings(models={"stand-in": scripted.INNER | prices}, **prices)
    return settings.model_copy(update={"max_usd": max_usd})


PLAN = [Planned("mine", 1_000, 1_500_000, 400_000), Planned("stand-in", 50, 75_000, 20_000)]


def test_a_thousand_calls_of_the_papers_middle_regime_cost_ten_dollars_and_a_half():
    table = estimate(priced(), PLAN).set_index("model")
    assert list(table.index) == ["mine", "stand-in", "paid to endpoints"]
    assert table.loc["mine", "cost_usd"] == pytest.approx(10.5)  # 1.5M x $3/M + 0.4M x $15/M
    assert table.loc["stand-in", "cost_usd"] == pytest.approx(0.525)  # counted, not paid
    paid = table.loc["paid to endpoints"]
    assert (paid["calls"], paid["tokens in"], paid["tokens out"]) == (1_000, 1_500_000, 400_000)
    assert paid["cost_usd"] == pytest.approx(10.5)


def test_nothing_is_paid_where_no_endpoint_is_asked():
    for plan in ([], PLAN[1:]):
        paid = estimate(priced(), plan).iloc[-1]
        assert paid["calls"] == 0 and paid["cost_usd"] == 0
        assert announcement(priced(), plan) == "No endpoint is asked; nothing is paid."


def test_the_announcement_says_whether_the_limit_is_enough():
    said = announcement(priced(5.0), PLAN)
    assert "1,000 calls" in said and "$10.50" in said
    assert "stops at llm.max_usd = $5 " in said and "resumed" in said
    said = announcement(priced(20.0), PLAN)
    assert "$10.50" in said and "llm.max_usd = $20 allows it" in said and "stops" not in said


COUNT = st.integers(0, 10**9)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(Planned, st.sampled_from(["mine", "stand-in"]), COUNT, COUNT, COUNT), max_size=5
    )
)
def test_what_is_paid_is_what_the_endpoints_rows_add_up_to(plan):
    table = estimate(priced(), plan)
    rows, paid = table.iloc[:-1], table.iloc[-1]
    assert len(rows) == len(plan)
    for name in ("calls", "tokens in", "tokens out", "cost_usd"):
        assert paid[name] == pytest.approx(rows.loc[rows["model"] == "mine", name].sum())
    assert ("stops" in announcement(priced(3.0), plan)) == (
        paid["calls"] > 0 and paid["cost_usd"] > 3.0
    )
