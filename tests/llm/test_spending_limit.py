"""The spending limit: a hard stop that holds over calls at once, processes, reopened files and killed runs."""

import asyncio
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.config import ROOT
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.endpoint import Endpoint
from lib.llm.reply_store import Recording
from lib.llm.spending_limit import SpendingLimit
from tests.llm.server import (
    BILL,
    PRICE_IN,
    PRICE_OUT,
    QUESTION,
    Answer,
    Server,
    ask_all,
    at_once,
    call,
    completion,
    settings_of,
)

BODY = {
    "model": "served",
    "messages": QUESTION,
    "temperature": 0.5,
    "max_tokens": 100,
    "seed": 0,
}
MOST = len(json.dumps(BODY)) * PRICE_IN + 100 * PRICE_OUT  # what an attempt may cost
NO_REASONING = {"reasoning_tokens": 0}


@pytest.fixture
def limit(tmp_path) -> SpendingLimit:
    return SpendingLimit(tmp_path / "spent.sqlite", 10.0)


# The limit itself ---------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    limit=st.integers(0, 30),
    acts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=8),
)
def test_what_was_settled_or_reserved_is_booked_and_no_reservation_passes_the_limit(
    tmp_path_factory, limit, acts
):
    spending_limit = SpendingLimit(
        tmp_path_factory.mktemp("limit") / "spent.sqlite", limit
    )  # whole dollars, so sums are exact
    booked = 0
    for estimate, cost, settled in acts:
        if booked + estimate > limit:
            with pytest.raises(BudgetExceeded):
                spending_limit.reserve("me", estimate)
        else:
            reservation = spending_limit.reserve("me", estimate)
            if settled:
                spending_limit.settle(reservation, cost)
            booked += cost if settled else estimate
        assert spending_limit.spent == booked


def test_a_refusal_says_who_what_and_how_much_and_books_nothing(tmp_path):
    spending_limit = SpendingLimit(tmp_path / "spent.sqlite", 1.0)
    spending_limit.reserve("RO mine", 0.75)
    with pytest.raises(
        BudgetExceeded,
        match=r"RO mine \(llm.max_usd\): budget \$1, spent or held \$0.75.*\$0.5;",
    ):
        spending_limit.reserve("RO mine", 0.5)
    assert spending_limit.spent == 0.75
    spending_limit.reserve("RO mine", 0.25)  # to the cent


def test_what_was_spent_is_known_after_reopening_under_another_limit(tmp_path):
    first = SpendingLimit(tmp_path / "folder/spent.sqlite", 1.0)
    first.settle(first.reserve("me", 1.0), 0.5)
    again = SpendingLimit(tmp_path / "folder/spent.sqlite", 2.0)
    assert again.spent == 0.5
    again.reserve("me", 1.5)
    with pytest.raises(BudgetExceeded):
        SpendingLimit(tmp_path / "folder/spent.sqlite", 1.0).reserve("me", 0.01)


SPENDER = """
import sys
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.spending_limit import SpendingLimit
spending_limit, granted = SpendingLimit(sys.argv[1], 25.0), 0
sys.stdin.readline()  # all at once
for _ in range(40):
    try:
        reservation = spending_limit.reserve("me", 1.0)
    except BudgetExceeded:
        continue
    granted += 1
    spending_limit.settle(reservation, 0.5)
print(granted)
"""


def started(script: str, path) -> subprocess.Popen:
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_processes_together_never_pass_the_limit(tmp_path):
    path = tmp_path / "spent.sqlite"
    spenders = [started(SPENDER, path) for _ in range(3)]
    for spender in spenders:
        spender.stdin.write("go\n")
        spender.stdin.flush()
    granted = sum(int(spender.communicate()[0]) for spender in spenders)
    # A dollar is held while half of one is spent, so the last half dollars may be out of reach.
    assert 25.0 - 3 * 1.0 < SpendingLimit(path, 25.0).spent == granted * 0.5 <= 25.0


HOLDER = """
import sys, time
from lib.llm.spending_limit import SpendingLimit
spending_limit = SpendingLimit(sys.argv[1], 5.0)
spending_limit.settle(spending_limit.reserve("me", 1.0), 0.25)
spending_limit.reserve("me", 2.0)
print("reserved", flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_its_estimate_booked(tmp_path):
    holder = started(HOLDER, tmp_path / "spent.sqlite")
    assert holder.stdout.readline() == "reserved\n"
    holder.kill()
    holder.communicate()
    assert SpendingLimit(tmp_path / "spent.sqlite", 5.0).spent == 2.25


# The limit at an endpoint ---------------------------------------------------------------------------


def test_a_call_is_settled_at_what_it_cost(limit):
    spent_meanwhile = []

    def answer(asked):
        spent_meanwhile.append(limit.spent)
        return Answer()

    call(answer, parts={"spending_limit": limit}, **NO_REASONING)
    assert spent_meanwhile == [pytest.approx(MOST)]  # reserved while the server thinks
    assert limit.spent == pytest.approx(BILL)


def test_a_call_beyond_the_limit_is_not_sent_and_the_stop_arrives_unchanged(tmp_path):
    limit = SpendingLimit(tmp_path / "spent.sqlite", MOST + BILL)
    outcome = at_once(
        requests=[{"caller": "RO mine"}] * 3,
        parts={"spending_limit": limit},
        concurrency=1,
        **NO_REASONING,
    )
    (error,) = [result for result in outcome.results if isinstance(result, Exception)]
    assert type(error) is BudgetExceeded and "RO mine (llm.max_usd)" in str(error)
    assert error.next == pytest.approx(MOST) and error.spent == pytest.approx(2 * BILL)
    assert len(outcome.server.asked) == 2 and limit.spent == pytest.approx(2 * BILL)


def test_calls_that_do_not_fit_beside_each_other_wait_for_one_another(tmp_path):
    """A call usually costs less than reserved, so it makes room when it ends."""
    limit = SpendingLimit(tmp_path / "spent.sqlite", MOST + 9 * BILL)
    outcome = at_once(
        Answer(delay=0.02),
        requests=[{"seed": seed} for seed in range(10)],
        parts={"spending_limit": limit},
        concurrency=10,
        **NO_REASONING,
    )
    assert all(not isinstance(result, Exception) for result in outcome.results)
    assert limit.spent == pytest.approx(10 * BILL) and outcome.server.most_in_flight < 5


@pytest.mark.parametrize("reasoning_tokens", [None, 10_000])
def test_a_limit_holds_though_eight_calls_at_once_reason_for_ten_thousand_tokens(
    reasoning_tokens, tmp_path
):
    limit = SpendingLimit(tmp_path / "spent.sqlite", 0.10)
    prices = {"price_in": 1e-6, "price_out": 8e-6, "concurrency": 8, "max_tokens": 1_000}
    if reasoning_tokens is not None:
        prices["reasoning_tokens"] = reasoning_tokens
    outcome = at_once(
        Answer(completion("7", 10, 10_000), delay=0.05),
        requests=[{"seed": seed} for seed in range(8)],
        parts={"spending_limit": limit},
        **prices,
    )
    stopped = [result for result in outcome.results if isinstance(result, BudgetExceeded)]
    assert limit.spent <= 0.10 and stopped
    assert "llm.models.mine.reasoning_tokens" in str(stopped[0])
    # Declared truly, one call fits; undeclared, the most that is usual is reserved, which does not fit at all.
    assert len(outcome.server.asked) == (0 if reasoning_tokens is None else 1)


def test_a_model_that_bills_more_than_was_reserved_has_more_reserved_from_then_on(tmp_path):
    limit = SpendingLimit(tmp_path / "spent.sqlite", 0.12)
    outcome = call(
        Answer(completion("7", 10, 10_000)),
        times=3,
        parts={"spending_limit": limit},
        price_in=1e-6,
        price_out=8e-6,
        **NO_REASONING,
    )
    assert [type(result).__name__ for result in outcome.results][1:] == ["BudgetExceeded"] * 2
    assert limit.spent <= 0.12


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=500),
        Answer(status=400),
        Answer(status=401),
        Answer(""),
        Answer("<p>"),
        Answer({"error": "busy"}),
    ],
    ids=["500", "400", "401", "empty", "html", "error"],
)
def test_a_call_that_failed_costs_nothing(answer, limit, waits):
    outcome = call(answer, parts={"spending_limit": limit}, **NO_REASONING)
    assert outcome.server.asked and limit.spent == 0.0


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        (Answer(status=0), 3),
        (Answer(cut=40), 3),
        (Answer(delay=5.0), 3),
        (Answer(Answer().raw()[:70]), 2),
    ],
    ids=["mute", "broken off", "late", "half a reply"],
)
def test_an_attempt_of_which_nobody_knows_stays_booked_at_the_most_that_it_may_have_cost(
    answer, attempts, limit, waits
):
    outcome = call(answer, parts={"spending_limit": limit}, timeout=0.3, **NO_REASONING)
    assert outcome.only.failure and len(outcome.server.asked) == attempts
    assert limit.spent == pytest.approx(attempts * MOST)


USAGE = {
    "nothing": {},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "words": {"prompt_tokens": "10", "completion_tokens": None},
    "below zero": {"prompt_tokens": -10, "completion_tokens": -5},
    "a billion": {"prompt_tokens": 999_999_999, "completion_tokens": 999_999_999},
}


@pytest.mark.parametrize("case", USAGE)
def test_where_no_count_can_be_believed_more_is_booked_than_estimated_and_no_more_than_reserved(
    case, limit
):
    body = completion("Zug um Zug " * 9) | {"usage": USAGE[case]}
    reply = call(Answer(body), parts={"spending_limit": limit}, **NO_REASONING).only
    assert reply.cost_usd < limit.spent <= MOST


def test_a_count_of_the_whole_alone_is_booked_as_it_stands(limit):
    body = completion() | {"usage": {"prompt_tokens": 10, "total_tokens": 60}}
    call(Answer(body), parts={"spending_limit": limit}, **NO_REASONING)
    assert limit.spent == pytest.approx(10 * PRICE_IN + 50 * PRICE_OUT)


def test_tools_and_letters_of_many_bytes_are_in_what_a_call_may_cost(limit):
    spent_meanwhile = []
    tool = {"type": "function", "function": {"name": "look", "description": "\u770b" * 200}}

    def answer(asked):
        spent_meanwhile.append(limit.spent)
        return Answer()

    outcome = call(
        answer,
        parts={"spending_limit": limit},
        request={"tools": [tool], "max_tokens": 1},
        **NO_REASONING,
    )
    num_sent = int(outcome.server.asked[0].headers["content-length"])
    assert num_sent > 800 and spent_meanwhile[0] >= num_sent * PRICE_IN + PRICE_OUT


def test_a_call_that_is_cancelled_may_have_been_billed_and_stays_booked(limit):
    async def play():
        async with Server(Answer(delay=5.0)) as server:
            model = Endpoint("mine", settings_of(server.url, **NO_REASONING), spending_limit=limit)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask_all(model, [{}]), 0.3)
            return len(server.asked)

    assert asyncio.run(play()) == 1 and limit.spent == pytest.approx(MOST)


def test_a_recorded_reply_needs_no_money(tmp_path):
    rich = SpendingLimit(tmp_path / "rich.sqlite", 10.0)
    poor = SpendingLimit(tmp_path / "poor.sqlite", 0.0)
    recording = {"recording": Recording(tmp_path, "tape", "record")}
    paid = call(parts=recording | {"spending_limit": rich}, **NO_REASONING)
    recording = {"recording": Recording(tmp_path, "tape", "record")}
    again = call(
        parts=recording | {"spending_limit": poor}, base_url=paid.server.url, **NO_REASONING
    )
    assert again.only.replayed
    assert again.only.cost_usd == paid.only.cost_usd == pytest.approx(BILL)
    assert poor.spent == 0.0 and again.server.asked == []


def test_a_free_model_needs_no_money(tmp_path):
    limit = SpendingLimit(tmp_path / "spent.sqlite", 0.0)
    outcome = call(price_in=0.0, price_out=0.0, parts={"spending_limit": limit})
    assert outcome.only.usable and outcome.only.cost_usd == 0.0


def test_what_a_server_bills_is_booked_though_the_settings_name_no_price(tmp_path):
    limit = SpendingLimit(tmp_path / "spent.sqlite", 1.0)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.7}
    outcome = call(
        Answer(completion() | {"usage": usage}),
        times=3,
        parts={"spending_limit": limit},
        price_in=0.0,
        price_out=0.0,
    )
    assert [type(result).__name__ for result in outcome.results] == [
        "Reply",
        "Reply",
        "BudgetExceeded",
    ]
    assert limit.spent == pytest.approx(1.4)  # what is billed is known afterwards only


# Bad input ------------------------------------------------------------------------------------------


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "spent.sqlite").write_bytes(b"no database, " * 100)
    with pytest.raises(ValueError, match="spent.sqlite holds what was spent"):
        SpendingLimit(tmp_path / "spent.sqlite", 1.0)


@pytest.mark.parametrize("cost_usd", [float("nan"), -1.0])
def test_what_is_no_amount_is_not_reserved(cost_usd, limit):
    with pytest.raises(ValueError, match="number of dollars"):
        limit.reserve("me", cost_usd)
