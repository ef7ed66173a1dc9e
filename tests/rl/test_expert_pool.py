"""The pool: many queries at once in order, and whatever goes wrong with an expert is an outcome that is paid for."""

import asyncio
import threading
import time

import psutil
import pytest

from lib.llm.client import Client
from lib.llm.errors import ConfigurationError
from lib.llm.transport import completion
from lib.rl import call_protocol, expert_pool
from lib.rl.expert_pool import Heard, Pool, Query
from tests.budgeted_routing.small import endpoint, inside, serving
from tests.llm.server import PRICE_IN, PRICE_OUT, Answer, certificate, key
from tests.llm.server import completion as served

__all__ = ["certificate", "key"]

BILL = 10 * PRICE_IN + 5 * PRICE_OUT  # of what the server says: 10 tokens in, 5 out
ASKED = [Query("lab-nano", "1 + 1 = ?")]


def asked(answer: Answer) -> Heard:
    """What one question to an endpoint with this answer brings."""
    with serving(answer) as server, endpoint(server.url) as pool:
        (heard,) = pool.ask(ASKED)
    return heard


def to(text: str, answer: Answer, rest: Answer):
    """What a server answers to one question, and to all others."""
    return lambda asked: answer if asked.body["messages"][-1]["content"] == text else rest


def echo(body):
    """A model in this process that says its name, the query, seed and temperature; a big one thinks for a while."""

    async def said():
        await asyncio.sleep(0.05 if body["model"] == "big" else 0.0)
        text = f"{body['model']} {body['messages'][-1]['content']} {body['seed']} {body['temperature']}"
        return completion(body["model"], text, 2, 3)

    return said()


def test_queries_are_answered_in_order_whoever_is_the_first_to_reply():
    queries = [Query(("lab-mini", "lab-nano")[i % 2], f"question {i}", 7 + i) for i in range(12)]
    with inside(echo) as pool:
        heard = pool.ask(queries)
    names = [("big", "small")[i % 2] for i in range(12)]
    assert [h.text for h in heard] == [
        f"{name} question {i} {7 + i} 0.5" for i, name in enumerate(names)
    ]
    assert {(h.tokens_in, h.tokens_out, h.cost_usd, h.failure) for h in heard} == {
        (2, 3, 302.0, "")
    }


def test_queries_are_asked_side_by_side():
    """Eight may be under way: nobody is answered before the eighth has asked."""
    here, all_here = [], asyncio.Event()

    def waits_for_all(body):
        async def said():
            here.append(body["messages"][-1]["content"])
            if len(here) == 8:
                all_here.set()
            await all_here.wait()
            return completion("x", "4", 1, 1)

        return said()

    with inside(waits_for_all) as pool:
        heard = pool.ask([Query("lab-mini", str(i)) for i in range(8)])
    assert [h.failure for h in heard] == [""] * 8 and sorted(here) == [str(i) for i in range(8)]


def test_the_pool_works_inside_a_running_event_loop():
    async def notebook():
        with inside(echo) as pool:
            return pool.ask(ASKED)[0].text, pool.ask(ASKED)[0].text

    assert asyncio.run(notebook()) == ("small 1 + 1 = ? 0 0.5", "small 1 + 1 = ? 0 0.5")


@pytest.mark.parametrize(("backend", "told"), [("scripted", ["system", "user"]), ("lab", ["user"])])
def test_only_experts_that_are_no_lab_models_are_told_the_rules(backend, told):
    bodies = []
    with inside(lambda body: bodies.append(body) or completion("x", "4", 1, 1), backend) as pool:
        pool.ask(ASKED)
    assert [message["role"] for message in bodies[0]["messages"]] == told
    assert bodies[0]["messages"][-1]["content"] == "1 + 1 = ?"
    assert backend == "lab" or bodies[0]["messages"][0]["content"] == expert_pool.RULES


def test_a_pool_that_was_left_has_closed_what_it_opened():
    """Sockets of the client, and those that an event loop has for itself."""
    process = psutil.Process()
    with serving(Answer()) as server:
        before = process.num_fds()
        with endpoint(server.url) as pool:
            pool.ask(ASKED)
            assert process.num_fds() > before
        for _ in range(100):  # the server's side of a connection ends a moment later
            if process.num_fds() == before:
                break
            time.sleep(0.01)
        assert process.num_fds() == before


def test_one_that_hangs_is_given_up_in_time_and_does_not_keep_the_others_from_being_heard():
    began = time.perf_counter()
    with (
        serving(to("slow", Answer(delay=60.0), Answer())) as server,
        endpoint(server.url, timeout=0.4) as pool,
    ):
        heard = pool.ask([Query("lab-nano", text) for text in ("quick", "slow", "quick")])
    assert heard[0].text == heard[2].text == "SO-d2" and heard[1] == Heard("", 0.0, 0, 0, "timeout")
    assert time.perf_counter() - began < 3


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (Answer("what?", 500), "server_error"),
        (Answer("slow down", 429), "rate_limit"),
        (Answer("no", 400), "bad_request"),
        (Answer("<html>sorry</html>"), "not_json"),
        (Answer(b""), "empty_body"),
        (Answer({"choices": []}), "no_choices"),
        (Answer({"error": {"message": "overloaded"}}), "error_in_reply"),
        (Answer(status=0), "connection"),
        (Answer(cut=20), "connection"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_expert_in_trouble_is_an_outcome_that_costs_nothing(answer, failure):
    assert asked(answer) == Heard("", 0.0, 0, 0, failure)


def test_a_reply_that_was_cut_off_is_used_and_paid():
    heard = asked(Answer(served("<think> 1 + 1 = 2 </think> 2", finish_reason="length")))
    assert heard == Heard("<think> 1 + 1 = 2 </think> 2", pytest.approx(BILL), 10, 5, "truncated")
    assert call_protocol.heard(heard.text) == "2"


def left() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("answer", "says"),
    [(Answer("who are you", 401), "check the key"), (Answer("lost", 404), "check base_url")],
)
def test_a_mistake_in_the_configuration_ends_the_work_unless_the_caller_goes_on(
    answer, says, caplog
):
    before = left()
    with serving(to("broken", answer, Answer())) as server:
        inner = left()
        with endpoint(server.url) as pool:
            with pytest.raises(ConfigurationError, match=says):
                pool.ask([Query("lab-nano", "broken", i) for i in range(4)])
            assert pool.ask(ASKED)[0].text == "SO-d2"
        assert left() == inner
    assert (
        left() == before and not caplog.records
    )  # asyncio would complain of tasks that nobody waited for


def test_a_mistake_leaves_nothing_of_other_calls_under_way():
    """A slow one does not outlive the pool, nor does it hold up its end."""
    with serving(to("broken", Answer("who are you", 401), Answer(delay=60.0))) as server:
        began, pool = time.perf_counter(), endpoint(server.url, timeout=30.0)
        with pytest.raises(ConfigurationError), pool:
            pool.ask([Query("lab-nano", "slow"), Query("lab-nano", "broken")])
        assert time.perf_counter() - began < 5


def test_a_client_that_cannot_be_opened_leaves_nothing_behind():
    before = left()

    def client() -> Client:
        raise OSError("no cassette")

    with pytest.raises(OSError, match="no cassette"):
        Pool(client, {"lab-nano": "mine"}, 0.5)
    assert left() == before


def test_the_pool_may_be_asked_again_and_again_and_books_everything():
    with inside(echo) as pool:
        assert pool.ask([]) == [] and pool.experts == ("lab-nano", "lab-mini")
        for i in range(3):
            assert pool.ask([Query("lab-mini", str(i))])[0].text.startswith(f"big {i}")
        assert [(e.who, e.calls) for e in pool.client.ledger.entries] == [("lab-mini", 1)] * 3


def test_prices_are_those_of_the_model_that_was_asked():
    """A cheap and a dear one, asked alike: what is charged is tokens times price."""
    with inside(lambda body: completion("x", "4", 3 if body["model"] == "big" else 1, 2)) as pool:
        heard = pool.ask([Query("lab-nano", "q"), Query("lab-mini", "q")])
    assert [h.cost_usd for h in heard] == [201.0, 203.0]
