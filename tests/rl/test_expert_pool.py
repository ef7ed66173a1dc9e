"""The pool: many queries at once in order; a model's failure is an outcome that is paid for, a server's is none."""

import asyncio
import threading
import time

import psutil
import pytest

from lib import tasks
from lib.llm.chat_model import ChatRequest, Failure
from lib.llm.errors import ConfigurationError, InfrastructureError
from lib.llm.open_models import ChatModels, open_models
from lib.rl import call_protocol, expert_pool
from lib.rl.expert_pool import ExpertPool, ExpertQuery, ExpertReply
from tests.budgeted_routing.small_systems import (
    SMOKE_PARAMS,
    make_reply,
    open_endpoint_pool,
    open_function_pool,
    serve_answers,
)
from tests.llm import server
from tests.llm.server import PRICE_IN, PRICE_OUT, Answer, certificate, key
from tests.llm.server import completion as served

__all__ = ["certificate", "key"]

BILL = 10 * PRICE_IN + 5 * PRICE_OUT  # of what the server says: 10 tokens in, 5 out
QUERIES = [ExpertQuery("lab-nano", "1 + 1 = ?")]
EXPLAINED = (
    "Let me see. She has 16 eggs and eats 3, so 13 are left. She bakes with 4, so 9 are left. "
    "Each sells for $2, so she makes 9 * 2 = 18 dollars.\n\nThe answer is \\boxed{18}."
)


def ask_once(answer: Answer) -> ExpertReply:
    """What one question to an endpoint with this answer brings."""
    with serve_answers(answer) as fake_server, open_endpoint_pool(fake_server.url) as pool:
        (reply,) = pool.ask(QUERIES)
    return reply


def answer_to(text: str, answer: Answer, other: Answer):
    """What a server answers to one question, and to all others."""
    return lambda request: answer if request.body["messages"][-1]["content"] == text else other


async def echo(name, request):
    """A model in this process that says its name, the query, seed and temperature; a big one thinks for a while."""
    await asyncio.sleep(0.05 if name == "big" else 0.0)
    query = request.messages[-1]["content"]
    return make_reply(name, f"{name} {query} {request.seed} {request.temperature}")


def test_queries_are_answered_in_order_whichever_expert_is_the_first_to_reply():
    queries = [
        ExpertQuery(("lab-mini", "lab-nano")[i % 2], f"question {i}", 7 + i) for i in range(12)
    ]
    with open_function_pool(echo) as pool:
        replies = pool.ask(queries)
    names = [("big", "small")[i % 2] for i in range(12)]
    assert [reply.text for reply in replies] == [
        f"{name} question {i} {7 + i} 0.5" for i, name in enumerate(names)
    ]
    assert {(r.tokens_in, r.tokens_out, r.cost_usd, r.failure) for r in replies} == {
        (2, 3, 302.0, None)
    }


def test_each_expert_gets_its_queries_as_one_batch(monkeypatch):
    """A model on a GPU answers many requests at once, so they must reach it together."""
    batches = []
    with open_function_pool(echo) as pool:
        for model in pool.models.values():
            answer_all = model.reply_to_all

            async def note_batch(requests, model=model, answer_all=answer_all):
                batches.append((model.name, len(requests)))
                return await answer_all(requests)

            monkeypatch.setattr(model, "reply_to_all", note_batch)
        pool.ask([ExpertQuery(("lab-mini", "lab-nano")[i % 3 == 0], str(i)) for i in range(9)])
    assert sorted(batches) == [("big", 6), ("small", 3)]


def test_queries_are_asked_side_by_side():
    """Nobody is answered before the eighth has asked."""
    here, all_here = [], asyncio.Event()

    async def wait_for_all(name, request):
        here.append(request.messages[-1]["content"])
        if len(here) == 8:
            all_here.set()
        await all_here.wait()
        return make_reply(name, "4")

    with open_function_pool(wait_for_all) as pool:
        replies = pool.ask([ExpertQuery("lab-mini", str(i)) for i in range(8)])
    assert [reply.failure for reply in replies] == [None] * 8
    assert sorted(here) == [str(i) for i in range(8)]


def test_the_pool_works_inside_a_running_event_loop():
    async def notebook():
        with open_function_pool(echo) as pool:
            return pool.ask(QUERIES)[0].text, pool.ask(QUERIES)[0].text

    assert asyncio.run(notebook()) == ("small 1 + 1 = ? 0 0.5", "small 1 + 1 = ? 0 0.5")


def read_system_message(text: str, backend: str = "scripted", **pool) -> str | None:
    """What an expert is told before a question; None for nothing."""
    requests = []

    def note(name, request):
        requests.append(request)
        return make_reply(name, "4")

    with open_function_pool(note, backend, **pool) as opened:
        opened.ask([ExpertQuery("lab-nano", text)])
    *before, question = requests[0].messages
    assert question == {"role": "user", "content": text}
    return before[0]["content"] if before else None


@pytest.mark.parametrize("family", tasks.FAMILIES)
def test_only_chains_of_digits_are_asked_with_their_rule(family):
    """Told before every question, the rule of chains would make right arithmetic wrong."""
    (item,) = tasks.draw_items(family, "test", 1)
    told = read_system_message(item.prompt)
    assert told.endswith(expert_pool.ANSWER_FORM)
    assert ("left to right" in told) == (family == "chain")


def test_lab_models_are_told_nothing_and_neither_are_experts_on_questions_of_one_s_own():
    assert read_system_message("1 + 1 = ?", "lab") is None
    assert read_system_message("1 + 1 = ?", tells_rules=False) is None


@pytest.mark.parametrize(
    ("reply", "question", "answer"),
    [
        ("743 + 310 = 1053 The answer is 1053.", "743 + 310 = ?", "1053"),
        ("So it is \\boxed{1053}.", "743 + 310 = ?", "1053"),
        ("743 + 310 = 1,053", "743 + 310 = ?", "1053"),
        ("**-12**", "3 - 15 = ?", "-12"),
        ("<answer> 4 </answer>", "1 + 1 = ?", "4"),
        ("I count 3 steps and <answer> 4 </answer>", "1 + 1 = ?", "4"),
        ("The answer is Milo.", "Who is the friend of Ana ?", "Milo"),
        ("I do not know 3 of them.", "Who is the friend of Ana ?", None),
        ("I cannot say.", "1 + 1 = ?", None),
        ("About 0.5", "1 + 1 = ?", None),
    ],
)
def test_a_right_answer_in_another_form_gets_its_tags(reply, question, answer):
    tagged = expert_pool.tag_final_answer(reply, question)
    assert tagged.startswith(reply)
    assert tasks.extract_answer(tagged) == answer


@pytest.mark.parametrize(
    ("backend", "tells_rules", "is_tagged"),
    [("scripted", True, True), ("lab", True, False), ("scripted", False, False)],
)
def test_only_models_that_were_told_the_form_are_read_tolerantly(backend, tells_rules, is_tagged):
    def answer(name, request):
        return make_reply(name, "It is 2")

    with open_function_pool(answer, backend, tells_rules=tells_rules) as pool:
        (reply,) = pool.ask([ExpertQuery("lab-nano", "1 + 1 = ?")])
    assert ("<answer>" in reply.text) == is_tagged


def test_earlier_messages_of_a_question_reach_the_expert():
    requests = []

    def note(name, request):
        requests.append(request)
        return make_reply(name, "4")

    history = (("system", "Be short."), ("user", "a"), ("assistant", "b"))
    with open_function_pool(note, tells_rules=False) as pool:
        pool.ask([ExpertQuery("lab-nano", "c", history=history)])
    turns = [(message["role"], message["content"]) for message in requests[0].messages]
    assert turns == [*history, ("user", "c")]


def test_a_pool_that_was_left_has_closed_what_it_opened():
    """Sockets of the endpoint, and those that an event loop has for itself."""
    process = psutil.Process()
    with serve_answers(Answer()) as fake_server:
        before = process.num_fds()
        with open_endpoint_pool(fake_server.url) as pool:
            pool.ask(QUERIES)
            assert process.num_fds() > before
        for _ in range(100):  # the server's side of a connection ends a moment later
            if process.num_fds() == before:
                break
            time.sleep(0.01)
        assert process.num_fds() == before


def test_a_call_that_hangs_is_given_up_in_time_and_keeps_no_other_reply_back():
    began = time.perf_counter()
    script = answer_to("slow", Answer(delay=60.0), Answer())
    with (
        serve_answers(script) as fake_server,
        open_endpoint_pool(fake_server.url, timeout=0.4) as pool,
    ):
        replies = pool.ask([ExpertQuery("lab-nano", text) for text in ("quick", "slow", "quick")])
    assert replies[0].text == replies[2].text == "SO-d2"
    assert replies[1].failure.kind == "timeout" and replies[1].lost
    assert time.perf_counter() - began < 3


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer("what?", 500), "server_error"),
        (Answer("slow down", 429), "rate_limit"),
        (Answer("no", 400), "bad_request"),
        (Answer("<html>sorry</html>"), "not_a_reply"),
        (Answer(b""), "not_a_reply"),
        (Answer({"error": {"message": "overloaded"}}), "provider_error"),
        (Answer(status=0), "connection"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_in_trouble_loses_the_reply_and_says_nothing_about_the_expert(answer, kind):
    reply = ask_once(answer)
    assert (reply.text, reply.cost_usd) == ("", 0.0)
    assert reply.failure.kind == kind and reply.lost and not reply.truncated


def test_so_many_lost_replies_that_the_run_would_measure_its_server_end_it():
    with (
        serve_answers(Answer("what?", 500)) as fake_server,
        open_endpoint_pool(fake_server.url) as pool,
        pytest.raises(InfrastructureError, match="check the server"),
    ):
        pool.ask([ExpertQuery("lab-nano", str(i)) for i in range(20)])


def test_a_reply_that_was_cut_off_is_used_and_paid():
    answer = Answer(served("<think> 1 + 1 = 2 </think> 2", finish_reason="length"))
    reply = ask_once(answer)
    assert reply.failure.kind == "truncated" and reply.truncated and not reply.lost
    assert (reply.cost_usd, reply.tokens_in, reply.tokens_out) == (pytest.approx(BILL), 10, 5)
    assert call_protocol.clean_reply(reply.text) == "2"


def test_an_expert_that_thinks_aloud_is_read_without_its_reasoning_and_pays_for_it():
    thoughts = "Hmm, the user wants eggs. " * 40
    message = {"role": "assistant", "content": EXPLAINED, "reasoning_content": thoughts}
    body = served(EXPLAINED, tokens_out=400, message=message)
    reply = ask_once(Answer(body))
    assert reply.text == f"{EXPLAINED} <answer> 18 </answer>" and reply.tokens_out == 400
    assert reply.cost_usd == pytest.approx(10 * PRICE_IN + 400 * PRICE_OUT)


def test_a_server_that_does_not_count_is_charged_by_an_estimate():
    body = served(EXPLAINED)
    del body["usage"]
    reply = ask_once(Answer(body))
    assert reply.tokens_out > 20
    assert reply.cost_usd > 20 * PRICE_OUT


def list_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("answer", "says"),
    [(Answer("who are you", 401), "check the key"), (Answer("lost", 404), "check base_url")],
)
def test_a_mistake_in_the_configuration_ends_the_work_unless_the_caller_goes_on(
    answer, says, caplog
):
    before = list_threads()
    with serve_answers(answer_to("broken", answer, Answer())) as fake_server:
        inner = list_threads()
        with open_endpoint_pool(fake_server.url) as pool:
            with pytest.raises(ConfigurationError, match=says):
                pool.ask([ExpertQuery("lab-nano", "broken", i) for i in range(4)])
            assert pool.ask(QUERIES)[0].text == "SO-d2"
        assert list_threads() == inner
    # asyncio would complain of tasks that nobody waited for
    assert list_threads() == before and not caplog.records


def test_a_mistake_leaves_nothing_of_other_calls_under_way():
    """A slow one does not outlive the pool, nor does it hold up its end."""
    script = answer_to("broken", Answer("who are you", 401), Answer(delay=60.0))
    with serve_answers(script) as fake_server:
        began = time.perf_counter()
        pool = open_endpoint_pool(fake_server.url, timeout=30.0)
        with pytest.raises(ConfigurationError), pool:
            pool.ask([ExpertQuery("lab-nano", "slow"), ExpertQuery("lab-nano", "broken")])
        assert time.perf_counter() - began < 5


def test_an_expert_that_is_no_model_of_the_settings_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no model 'nobody'"):
        open_models(server.settings(), ["nobody"], "a test", tmp_path, tmp_path)


def test_the_pool_may_be_asked_again_and_again_and_counts_what_became_of_replies():
    def answer(name, request):
        kinds = {"0": None, "1": "truncated", "2": "empty", "3": "timeout"}
        kind = kinds[request.messages[-1]["content"]]
        return make_reply(name, "4", failure=None if kind is None else Failure(kind))

    with open_function_pool(answer) as pool:
        assert pool.ask([]) == [] and pool.experts == ("lab-nano", "lab-mini")
        for i in range(4):
            pool.ask([ExpertQuery("lab-mini", str(i))])
        counts = pool.counts["lab-mini"]
        assert (counts.calls, counts.truncated, counts.unusable, counts.failed) == (4, 1, 1, 1)
        assert pool.counts["lab-nano"].calls == 0


def test_prices_are_those_of_the_model_that_was_asked():
    """A cheap and an expensive one, asked alike."""

    def answer(name, request):
        return make_reply(name, "4", tokens_in=3 if name == "big" else 1, tokens_out=2)

    with open_function_pool(answer) as pool:
        replies = pool.ask([ExpertQuery("lab-nano", "q"), ExpertQuery("lab-mini", "q")])
    assert [reply.cost_usd for reply in replies] == [201.0, 203.0]


def test_a_lab_expert_is_asked_with_the_limit_seed_and_price_of_the_settings(words_model):
    """As any lesson asks it, so that one reply serves all."""
    about = SMOKE_PARAMS.llm.models["nano"].model_copy(update={"max_tokens": 5})
    expert = words_model.with_settings("nano", about)
    with ExpertPool(ChatModels({"nano": expert}), {"lab-nano": "nano"}, 1.0) as pool:
        (reply,) = pool.ask([ExpertQuery("lab-nano", "1 + 1 = ?", seed=9)])
    request = ChatRequest(
        [{"role": "user", "content": "1 + 1 = ?"}], temperature=1.0, max_tokens=5, seed=9
    )
    (expected,) = words_model.generate([request])
    assert reply.text == expected.text and reply.tokens_out <= 5
    assert reply.cost_usd == pytest.approx((reply.tokens_in + reply.tokens_out) * 1e-6)
