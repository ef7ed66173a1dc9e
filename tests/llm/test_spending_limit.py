"""The purse: a hard stop that holds over threads, processes, reopened files and killed runs."""

import asyncio
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.config import ROOT
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.llm.replay_cache import Cassette
from lib.llm.spending_limit import SpendingLimit
from lib.llm.transport import InProcess, completion
from tests.llm import server as scripted
from tests.llm.server import (
    BILL,
    PRICE_IN,
    PRICE_OUT,
    QUESTION,
    Answer,
    Server,
    ask,
    at_once,
    call,
    together,
)

REQUEST = {
    "model": "served",
    "messages": QUESTION,
    "temperature": 0.5,
    "max_tokens": 100,
    "seed": 0,
}
MOST = (
    len(json.dumps(REQUEST, separators=(",", ":"))) * PRICE_IN + 100 * PRICE_OUT
)  # what an attempt may cost


@pytest.fixture
def purse(tmp_path) -> SpendingLimit:
    return SpendingLimit(tmp_path / "spent.sqlite", 10.0)


# The purse itself ---------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    limit=st.integers(0, 30),
    acts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=8),
)
def test_what_was_settled_or_reserved_is_booked_and_no_reservation_passes_the_limit(
    tmp_path_factory, limit, acts
):
    purse = SpendingLimit(
        tmp_path_factory.mktemp("purse") / "spent.sqlite", limit
    )  # whole dollars, so sums are exact
    booked = 0
    for estimate, cost, settled in acts:
        if booked + estimate > limit:
            with pytest.raises(BudgetExceeded):
                purse.reserve("me", estimate)
        else:
            ticket = purse.reserve("me", estimate)
            if settled:
                purse.settle(ticket, cost)
            booked += cost if settled else estimate
        assert purse.spent == booked


def test_a_refusal_says_who_what_and_how_much_and_books_nothing(tmp_path):
    purse = SpendingLimit(tmp_path / "spent.sqlite", 1.0)
    purse.reserve("RO mine", 0.75)
    with pytest.raises(
        BudgetExceeded,
        match=r"RO mine \(llm.max_usd\): budget \$1, spent or held \$0.75.*\$0.5;",
    ):
        purse.reserve("RO mine", 0.5)
    assert purse.spent == 0.75
    purse.reserve("RO mine", 0.25)  # to the cent


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
purse, granted = SpendingLimit(sys.argv[1], 25.0), 0
sys.stdin.readline()  # all at once
for _ in range(40):
    try:
        ticket = purse.reserve("me", 1.0)
    except BudgetExceeded:
        continue
    granted += 1
    purse.settle(ticket, 0.5)
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
purse = SpendingLimit(sys.argv[1], 5.0)
purse.settle(purse.reserve("me", 1.0), 0.25)
purse.reserve("me", 2.0)
print("reserved", flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_its_estimate_booked(tmp_path):
    holder = started(HOLDER, tmp_path / "spent.sqlite")
    assert holder.stdout.readline() == "reserved\n"
    holder.kill()
    holder.communicate()
    assert SpendingLimit(tmp_path / "spent.sqlite", 5.0).spent == 2.25


# The purse in the client --------------------------------------------------------------------------


def test_a_call_is_settled_at_what_it_cost(purse):
    seen = []
    call(lambda asked: seen.append(purse.spent) or Answer(), parts={"purse": purse})
    assert seen == [pytest.approx(MOST)]  # held while the server thinks
    assert purse.spent == pytest.approx(BILL)


def test_a_call_beyond_the_limit_is_not_sent_and_the_stop_arrives_unchanged(tmp_path):
    purse = SpendingLimit(tmp_path / "spent.sqlite", MOST + BILL)
    outcome = at_once(chats=[{"who": "RO mine"}] * 3, parts={"purse": purse}, concurrency=1)
    (error,) = (result for result in outcome.results if isinstance(result, Exception))
    assert type(error) is BudgetExceeded and "RO mine (llm.max_usd)" in str(error)
    assert error.next == pytest.approx(MOST) and error.spent == pytest.approx(2 * BILL)
    assert len(outcome.server.asked) == 2
    assert outcome.client.ledger.spent == pytest.approx(purse.spent) == pytest.approx(2 * BILL)


def test_many_calls_at_once_stop_at_the_limit_with_all_replies_paid(tmp_path):
    purse = SpendingLimit(tmp_path / "spent.sqlite", 5 * MOST)
    chats = [{"seed": seed} for seed in range(30)]
    outcome = at_once(Answer(delay=0.05), chats=chats, parts={"purse": purse}, concurrency=50)
    stopped = [result for result in outcome.results if isinstance(result, BudgetExceeded)]
    assert (
        len(outcome.server.asked) == 5
        and len(stopped) == 25
        and purse.spent == pytest.approx(5 * BILL)
    )


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
def test_a_call_that_failed_costs_nothing(answer, purse, waits):
    outcome = call(answer, parts={"purse": purse})
    assert isinstance(outcome.only, LLMError) and outcome.server.asked and purse.spent == 0.0


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
    answer, attempts, purse, waits
):
    outcome = call(answer, parts={"purse": purse}, timeout=0.3)
    assert isinstance(outcome.only, LLMError) and len(outcome.server.asked) == attempts
    assert purse.spent == pytest.approx(attempts * MOST)


TOLD = {
    "nothing": {},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "words": {"prompt_tokens": "10", "completion_tokens": None},
    "below zero": {"prompt_tokens": -10, "completion_tokens": -5},
    "a billion": {"prompt_tokens": 999_999_999, "completion_tokens": 999_999_999},
    "one for a long text": {"prompt_tokens": 1, "completion_tokens": 1},
}


@pytest.mark.parametrize("told", TOLD)
def test_where_no_count_can_be_believed_the_bytes_are_booked(told, purse):
    body = scripted.completion("Zug um Zug " * 9) | {"usage": TOLD[told]}
    reply = call(Answer(body), parts={"purse": purse}).only
    assert purse.spent == pytest.approx(MOST - PRICE_OUT)  # 99 bytes of 100 tokens
    assert (reply.tokens_in, reply.tokens_out) == (9, 25) or told == "one for a long text"


def test_what_an_endpoint_wrote_beyond_max_tokens_is_booked_too(purse):
    call(Answer(scripted.completion("thought unseen", 20, 5_000)), parts={"purse": purse})
    assert purse.spent == pytest.approx(20 * PRICE_IN + 5_000 * PRICE_OUT)


def test_tools_and_letters_of_many_bytes_are_in_what_a_call_may_cost(purse):
    seen, look = [], {"name": "look", "description": "\u770b" * 200}
    chat = {"tools": [{"type": "function", "function": look}], "max_tokens": 1}
    outcome = call(
        lambda asked: seen.append(purse.spent) or Answer(), parts={"purse": purse}, chat=chat
    )
    sent = int(outcome.server.asked[0].headers["content-length"])
    assert sent > 800 and seen == [pytest.approx(sent * PRICE_IN + PRICE_OUT)]


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "spent.sqlite").write_bytes(b"no database, " * 100)
    with pytest.raises(ValueError, match="spent.sqlite holds what was spent"):
        SpendingLimit(tmp_path / "spent.sqlite", 1.0)


@pytest.mark.parametrize("cost_usd", [float("nan"), -1.0])
def test_what_is_no_amount_is_not_reserved(cost_usd, purse):
    with pytest.raises(ValueError, match="number of dollars"):
        purse.reserve("me", cost_usd)


def test_a_call_that_is_cancelled_may_have_been_billed_and_stays_booked(purse):
    async def play():
        async with Server(Answer(delay=5.0)) as server:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(together(server.url, [{}], {"purse": purse}), 0.2)
            return len(server.asked)

    assert asyncio.run(play()) == 1 and purse.spent == pytest.approx(MOST)


def test_a_recorded_reply_needs_no_money(tmp_path):
    box = Cassette(tmp_path, "tape", "record")
    paid = call(parts={"cassette": box, "purse": SpendingLimit(tmp_path / "rich.sqlite", 10.0)})
    poor = SpendingLimit(tmp_path / "poor.sqlite", 0.0)
    again = call(parts={"cassette": box, "purse": poor})
    assert again.only.cached and again.only.cost_usd == paid.only.cost_usd == pytest.approx(BILL)
    assert poor.spent == 0.0 and again.server.asked == []


def test_free_and_in_process_models_need_no_money(tmp_path):
    purse = SpendingLimit(tmp_path / "spent.sqlite", 0.0)
    assert call(price_in=0.0, price_out=0.0, parts={"purse": purse}).only.cost_usd == 0.0
    inner = scripted.INNER | {"price_in": PRICE_IN, "price_out": PRICE_OUT}
    transports = {"scripted": InProcess(lambda body: completion("inner", "SO-d1", 10, 5))}
    reply = ask(
        scripted.settings(models={"inner": inner}),
        "inner",
        {"transports": transports, "purse": purse},
    )
    assert (
        reply.cost_usd == pytest.approx(BILL) and purse.spent == 0.0
    )  # its price is for the ledger
