"""The client: every outcome is a reply or a typed error, limits hold, the key is nowhere, all is accounted for once."""

import gzip
import json
import pickle
import resource
import socket
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.llm import transport
from lib.llm.client import Reply
from lib.llm.errors import KINDS, CassetteMiss, ConfigurationError, ReplyError
from lib.llm.replay_cache import Cassette
from lib.llm.spending_limit import SpendingLimit
from lib.llm.transport import InProcess
from tests.llm import server as scripted
from tests.llm.server import (
    BILL,
    INNER,
    KEY,
    KEY_VARIABLE,
    QUESTION,
    Answer,
    Asked,
    ask,
    at_once,
    call,
    completion,
)

GOOD = Answer()


def entries(outcome) -> list[tuple[int, int, int]]:
    return [
        (entry.calls, entry.tokens_in, entry.tokens_out) for entry in outcome.client.ledger.entries
    ]


def failed(outcome, kind: str) -> ReplyError:
    assert isinstance(outcome.only, ReplyError) and outcome.only.kind == kind, repr(outcome.only)
    return outcome.only


# A server in trouble ------------------------------------------------------------------------------


def test_a_plain_reply_carries_text_tokens_dollars_and_energy():
    outcome = call(GOOD)
    reply = outcome.only
    assert (reply.text, reply.tokens_in, reply.tokens_out, reply.finish_reason) == (
        "SO-d2",
        10,
        5,
        "stop",
    )
    assert reply.cost_usd == pytest.approx(0.06) and reply.kwh == pytest.approx(15e-6)
    assert (reply.model, reply.backend, reply.cached) == ("mine", "endpoint", False)
    assert entries(outcome) == [(1, 10, 5)]


@pytest.mark.parametrize(
    ("header", "seconds"), [({"retry-after": "7"}, 7.0), ({"retry-after-ms": "120"}, 0.12)]
)
def test_a_busy_server_is_asked_again_when_it_says_and_booked_once(header, seconds, waits):
    outcome = call(Answer({"error": {"message": "slow down"}}, 429, header), GOOD)
    assert outcome.only.text == "SO-d2" and waits == [seconds] and len(outcome.server.asked) == 2
    assert entries(outcome) == [(1, 10, 5)] and outcome.client.ledger.spent == pytest.approx(BILL)


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 529])
def test_a_server_that_recovers_gives_its_reply(status, waits):
    outcome = call(Answer("<h1>no</h1>", status), Answer("", status), GOOD)
    assert (
        outcome.only.text == "SO-d2"
        and len(outcome.server.asked) == 3
        and entries(outcome) == [(1, 10, 5)]
    )


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "rate_limit"), (500, "server_error"), (503, "server_error")]
)
def test_a_server_that_stays_busy_or_down_is_a_typed_error_and_costs_nothing(status, kind, waits):
    outcome = call(Answer({"error": {"message": "out of order"}}, status), retries=3)
    assert "out of order" in str(failed(outcome, kind))
    assert len(outcome.server.asked) == 4 and len(waits) == 3 and entries(outcome) == []


def test_a_slow_server_is_left_after_the_timeout(waits):
    began = time.monotonic()
    outcome = call(Answer(delay=5.0), timeout=0.1, retries=1)
    assert "0.1 s" in str(failed(outcome, "timeout")) and time.monotonic() - began < 4
    assert len(outcome.server.asked) == 2 and entries(outcome) == []


def test_a_server_that_drips_is_left_after_the_timeout_too(waits):
    began = time.monotonic()
    outcome = call(Answer(drip=0.15), Answer(drip=0.001), timeout=0.3)
    assert (
        outcome.only.text == "SO-d2" and 0.3 <= time.monotonic() - began < 3
    )  # the first would take 6 s
    assert len(outcome.server.asked) == 2


@pytest.mark.parametrize(
    "cut", [Answer(cut=0), Answer(cut=40), Answer(status=0)], ids=["no body", "mid-body", "mute"]
)
def test_a_connection_that_breaks_off_is_tried_again(cut, waits):
    outcome = call(cut, GOOD)
    assert (
        outcome.only.text == "SO-d2"
        and len(outcome.server.asked) == 2
        and entries(outcome) == [(1, 10, 5)]
    )
    outcome = call(cut)
    failed(outcome, "connection")
    assert len(outcome.server.asked) == 3 and entries(outcome) == []


def test_a_server_that_is_not_there_is_a_connection_error_that_costs_nothing(tmp_path, waits):
    purse = SpendingLimit(tmp_path / "spent.sqlite", 10.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        with pytest.raises(ReplyError) as caught:
            ask(
                scripted.settings(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"),
                parts={"purse": purse},
            )
    assert caught.value.kind == "connection" and len(waits) == 2 and purse.spent == 0.0


# A 200 that is none -------------------------------------------------------------------------------

NO_CHOICES = [[], None, {"0": completion()["choices"][0]}, [None], ["SO-d2"]]
NO_REPLY = {
    "an empty body": ("", "empty_body"),
    "blanks": (" \n ", "empty_body"),
    "html": ("<html><body>Bad gateway</body></html>", "not_json"),
    "half a reply": (Answer().raw()[:70], "not_json"),
    "bytes that are no text": (b"\xff\xfe{}", "not_json"),
    "nested beyond reason": ("[" * 100_000 + "]" * 100_000, "not_json"),
    "a number": ("7", "not_json"),
    "null": ("null", "not_json"),
    "a list": ([completion()], "not_json"),
    "an error": ({"error": {"message": "overloaded", "code": 503}}, "error_in_reply"),
    "an error in words": ({"error": "overloaded"}, "error_in_reply"),
    "an error beside a reply": (
        completion() | {"error": {"message": "overloaded"}},
        "error_in_reply",
    ),
    "an empty object": ({}, "no_choices"),
    **{f"choices {odd}": (completion() | {"choices": odd}, "no_choices") for odd in NO_CHOICES},
}


@pytest.mark.parametrize("odd", NO_REPLY)
def test_a_200_without_a_reply_is_asked_once_more_and_is_then_a_typed_error_that_costs_nothing(odd):
    body, kind = NO_REPLY[odd]
    outcome = call(Answer(body), GOOD)
    assert (
        outcome.only.text == "SO-d2"
        and len(outcome.server.asked) == 2
        and entries(outcome) == [(1, 10, 5)]
    )
    outcome = call(Answer(body))
    error = failed(outcome, kind)
    assert len(outcome.server.asked) == 2 and entries(outcome) == []
    assert (error.text, error.tokens_in, error.cost_usd) == ("", 0, 0.0)


NO_TEXT = [{"type": "image_url"}, {"type": "text", "text": 3}, None, "SO-d2"]
NOTHING_SAID = [
    *(completion(content) for content in (None, "", " \n\t", 7, {"text": "SO-d2"}, [], NO_TEXT)),
    *(completion(message=message) for message in (None, ["SO-d2"], "SO-d2")),
    completion() | {"choices": [{"index": 0, "finish_reason": "stop"}]},
]


@pytest.mark.parametrize("body", NOTHING_SAID)
def test_a_reply_that_says_nothing_is_an_error_with_its_bill(body):
    outcome = call(Answer(body))
    error = failed(outcome, "null_content")
    assert error.cost_usd == pytest.approx(BILL) and entries(outcome) == [(1, 10, 5)]
    assert len(outcome.server.asked) == 1  # it was billed; asking again is for the caller to decide


def test_text_in_parts_is_joined():
    parts = [{"type": "text", "text": "SO-"}, {"type": "image_url"}, {"type": "text", "text": "d2"}]
    assert call(Answer(completion(parts))).only.text == "SO-d2"


def test_a_call_of_a_tool_is_a_reply_without_text():
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "look"}}],
    }
    reply = call(Answer(completion(message=message, finish_reason="tool_calls"))).only
    assert (reply.text, reply.finish_reason) == ("", "tool_calls")


COUNTS = [
    (-10, -5),
    ("10", "5"),
    (10.5, 5.5),
    (True, False),
    (float("inf"), float("nan")),
    (10**400, 10**400),
]
USAGE = [
    None,
    [10, 5],
    {},
    *({"prompt_tokens": read, "completion_tokens": wrote} for read, wrote in COUNTS),
]
MISSING = {"choices": completion()["choices"]}


@pytest.mark.parametrize("body", [MISSING, *(completion() | {"usage": usage} for usage in USAGE)])
def test_where_a_server_counts_no_tokens_characters_are_counted(body):
    reply = call(Answer(body)).only
    assert (reply.tokens_in, reply.tokens_out) == (9, 2)  # 34 and 5 characters at 4 a token
    assert reply.cost_usd == pytest.approx(0.029)


def test_half_a_count_is_kept_and_the_other_half_estimated():
    reply = call(Answer(completion() | {"usage": {"prompt_tokens": 20}})).only
    assert (reply.tokens_in, reply.tokens_out) == (20, 2)


def test_a_refusal_is_told_from_an_empty_reply():
    message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    outcome = call(Answer(completion(message=message)))
    assert (
        failed(outcome, "refusal").cost_usd == pytest.approx(BILL)
        and len(outcome.server.asked) == 1
    )


@pytest.mark.parametrize(
    ("finish", "kind"), [("length", "truncated"), ("content_filter", "content_filter")]
)
def test_a_reply_that_was_cut_short_keeps_its_text_and_its_bill(finish, kind):
    outcome = call(Answer(completion('{"policy": "SO-', finish_reason=finish)))
    error = failed(outcome, kind)
    assert error.text == '{"policy": "SO-' and error.cost_usd == pytest.approx(BILL)
    assert (error.tokens_in, error.tokens_out) == (10, 5) and error.kwh == pytest.approx(15e-6)
    assert entries(outcome) == [(1, 10, 5)]


def test_text_that_is_no_unicode_can_be_kept_and_sent_back():
    reply = call(Answer(completion("SO\ud83d-d2"))).only
    assert reply.text.encode().startswith(b"SO") and reply.text.endswith("-d2")


@pytest.mark.parametrize("packing", ["gzip", "br", "deflate, gzip", "x" * 99])
def test_a_body_that_is_not_compressed_as_it_says_is_a_connection_error(packing, waits):
    failed(call(Answer(headers={"content-encoding": packing})), "connection")


def test_a_body_that_is_compressed_though_nobody_asked_is_read():
    outcome = call(Answer(gzip.compress(GOOD.raw()), headers={"content-encoding": "gzip"}))
    assert (
        outcome.only.text == "SO-d2"
        and outcome.server.asked[0].headers["accept-encoding"] == "identity"
    )


def vast() -> bytes:
    """A reply of 100 MB in 100 kB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    start, end = json.dumps(completion("|")).encode().split(b"|")
    return b"".join(
        [packer.compress(part) for part in (start, *[b" " * 2**20] * 100, end)] + [packer.flush()]
    )


@pytest.mark.parametrize("packed", [True, False])
def test_a_body_beyond_all_replies_is_left_unread_and_not_asked_for_again(packed):
    body = (
        Answer(vast(), headers={"content-encoding": "gzip"})
        if packed
        else Answer("{" + " " * transport.LARGEST)
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = call(body, retries=3)
    failed(outcome, "too_large")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    assert len(outcome.server.asked) == 1 and grown < 80, f"{grown:.0f} MB"


def test_a_text_that_nobody_asked_for_is_not_handed_on_but_billed():
    outcome = call(Answer(completion("many words " * 2_000, 20, 6_000)))
    error = failed(outcome, "too_large")
    assert error.text == "" and error.tokens_out == 6_000 and entries(outcome) == [(1, 20, 6_000)]


def test_half_a_character_in_a_question_is_sent_as_a_mark():
    (asked,) = at_once(
        chats=[{"messages": [{"role": "user", "content": "a \ud800 b"}]}]
    ).server.asked
    assert asked.body["messages"] == [{"role": "user", "content": "a ? b"}]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def mostly(*usual):
    return st.sampled_from(usual) | ANY


def some(**fields):
    return st.fixed_dictionaries({}, optional=fields)


MESSAGE = some(
    content=mostly("SO-d2", "lone \ud800", [{"type": "text", "text": "SO-d2"}]),
    refusal=mostly(None, "no"),
    tool_calls=mostly(None, [{"id": "1"}]),
)
CHOICE = some(
    finish_reason=mostly("stop", "length", "content_filter", "tool_calls"), message=ANY | MESSAGE
)
COUNTED = some(prompt_tokens=ANY, completion_tokens=ANY)
NEARLY = some(
    choices=ANY | st.lists(CHOICE | ANY, max_size=2),
    usage=ANY | COUNTED,
    error=mostly(None),
    model=ANY,
)


@settings(max_examples=40)
@given(st.lists(ANY | NEARLY, min_size=1, max_size=8), st.booleans())
def test_any_json_as_a_body_gives_a_reply_or_a_reply_error_and_nothing_else(
    tmp_path_factory, bodies, recorded
):
    parts = (
        {"cassette": Cassette(tmp_path_factory.mktemp("any"), "any", "record")} if recorded else {}
    )
    chats = [
        {"seed": seed} for seed in range(len(bodies))
    ]  # each seed has a body, also when it is asked once more
    for result in at_once(
        lambda asked: Answer(bodies[asked.body["seed"]]), chats=chats, parts=parts
    ).results:
        assert isinstance(result, Reply | ReplyError), repr(result)
        assert isinstance(result, ReplyError) or result.finish_reason not in (
            "length",
            "content_filter",
        )
        result.text.encode()  # goes into files and into the next request


# Mistakes that no second try mends ----------------------------------------------------------------


REFUSED = {"error": {"message": "not you"}}
HOPELESS = {
    f"check the key ({KEY_VARIABLE})": Answer(REFUSED, 401),
    f"check the key's rights ({KEY_VARIABLE})": Answer(REFUSED, 403),
    "check base_url and model": Answer(REFUSED, 404),
    "no credit left": Answer(REFUSED, 402),
    "credit": Answer(
        {"error": {"message": "not you, beyond your quota", "code": "insufficient_quota"}}, 429
    ),
    "has moved": Answer(REFUSED, 301, {"location": "https://elsewhere.example/v1"}),
    "check base_url": Answer(REFUSED, 405),
}


@pytest.mark.parametrize("hint", HOPELESS)
def test_what_no_second_try_mends_ends_the_run_and_says_where_to_look(hint, waits):
    outcome, status = call(HOPELESS[hint], retries=1), HOPELESS[hint].status
    said = str(outcome.only)
    assert isinstance(outcome.only, ConfigurationError) and KEY not in said
    assert all(part in said for part in (hint, "127.0.0.1", str(status), "not you"))
    assert len(outcome.server.asked) == (2 if status == 429 else 1)


@pytest.mark.parametrize("held", [None, "", "  \n", f"{KEY}\nsecond", f"{KEY[:9]}…{KEY[-4:]}"])
def test_a_key_that_cannot_be_sent_is_missed_without_a_word_of_it_before_anything_is_sent(
    held, monkeypatch
):
    monkeypatch.delenv(KEY_VARIABLE)
    if held is not None:
        monkeypatch.setenv(KEY_VARIABLE, held)
    outcome = call(GOOD)
    assert isinstance(outcome.only, ConfigurationError) and KEY_VARIABLE in str(outcome.only)
    assert KEY[:9] not in said_by(outcome.only) and outcome.server.asked == []


@pytest.mark.parametrize("blank", ["\n", " ", "\r\n"])
def test_a_line_end_after_the_key_does_no_harm(blank, monkeypatch):
    monkeypatch.setenv(
        KEY_VARIABLE, KEY + blank
    )  # as `export KEY=$(cat file)` in some shells leaves it
    outcome = call(GOOD)
    assert (
        outcome.only.text == "SO-d2"
        and outcome.server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    )


def test_a_refused_parameter_comes_with_its_remedy_and_the_remedy_works():
    refusal = {
        "error": {"message": "Unsupported parameter: 'seed' is not supported with this model."}
    }

    def picky(asked: Asked) -> Answer:
        return Answer(refusal, 400) if "seed" in asked.body else Answer()

    outcome = call(picky)
    assert isinstance(outcome.only, ConfigurationError) and "omit: [seed]" in str(outcome.only)
    assert len(outcome.server.asked) == 1
    outcome = call(picky, omit=["seed"])
    assert outcome.only.text == "SO-d2" and "seed" not in outcome.server.asked[0].body


@pytest.mark.parametrize(
    "said",
    [
        "the prompt is too long",
        "'max_tokens' is too large: 1000. This model's maximum context length is 512",
    ],
)
def test_another_400_is_one_bad_request_and_no_wrong_advice(said):
    outcome = call(Answer({"error": {"message": said}}, 400))
    error = str(failed(outcome, "bad_request"))
    assert said in error and "omit" not in error and len(outcome.server.asked) == 1


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("yours", r"'yours'.*\['inner', 'mine'\]"),
        ("inner", "inner: no transport for backend 'scripted'"),
    ],
)
def test_a_model_that_is_unknown_or_without_its_transport_is_named(model, said):
    with pytest.raises(ConfigurationError, match=said):
        ask(scripted.settings(models={"inner": INNER}), model)


def test_a_model_in_this_process_answers_through_the_same_client():
    seen = []

    def answer(body):
        seen.append(body)
        return transport.completion("inner", "SO-d1", 3, 2)

    parts = {"transports": {"scripted": InProcess(answer)}}
    reply = ask(scripted.settings(models={"inner": INNER}), "inner", parts, seed=9)
    assert (reply.text, reply.tokens_in, reply.tokens_out, reply.backend) == (
        "SO-d1",
        3,
        2,
        "scripted",
    )
    assert seen == [
        {"model": "inner", "messages": QUESTION, "temperature": 0.0, "max_tokens": 50, "seed": 9}
    ]


AMBIENT = {
    "OPENAI_API_KEY": "sk-of-somebody-else", "OPENAI_ADMIN_KEY": "sk-of-somebody-else",
    "OPENAI_ORG_ID": "org-of-somebody", "OPENAI_PROJECT_ID": "proj-of-somebody",
    "OPENAI_CUSTOM_HEADERS": "x-api-key: somebody\nauthorization: Bearer somebody\ncookie: somebody",
    "HTTP_PROXY": "http://somebody:somebody@127.0.0.1:9",
}  # fmt: skip
SENT = {
    "host",
    "accept",
    "accept-encoding",
    "content-type",
    "content-length",
    "user-agent",
    "connection",
}


@pytest.mark.parametrize("needs_one", [False, True])
def test_another_programs_credentials_are_not_sent(needs_one, monkeypatch):
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    outcome = call(GOOD, api_key_env=KEY_VARIABLE if needs_one else None)
    headers = outcome.server.asked[0].headers
    assert outcome.only.text == "SO-d2" and "somebody" not in str(headers)
    assert set(headers) <= SENT | ({"authorization"} if needs_one else set())
    assert headers.get("authorization") == (f"Bearer {KEY}" if needs_one else None)


# What is sent -------------------------------------------------------------------------------------


def test_what_was_asked_for_reaches_the_server():
    tools = [{"type": "function", "function": {"name": "look"}}]
    form = {"type": "json_object"}
    chat = {
        "seed": 11,
        "temperature": 0.0,
        "max_tokens": 30,
        "tools": tools,
        "response_format": form,
    }
    (asked,) = call(GOOD, chat=chat).server.asked
    assert (
        asked.path == "/v1/chat/completions" and asked.headers["authorization"] == f"Bearer {KEY}"
    )
    assert asked.body == {"model": "served", "messages": QUESTION, **chat}


def test_what_was_not_asked_for_comes_from_the_models_settings():
    (asked,) = call(GOOD, temperature=0.75, max_tokens=64).server.asked
    assert asked.body == {
        "model": "served",
        "messages": QUESTION,
        "temperature": 0.75,
        "max_tokens": 64,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("wanted", "most", "sent"), [(30, 5_000, 30), (5_000, 30, 30), (30, 30, 30)]
)
def test_a_call_never_asks_for_more_tokens_than_its_model_may_give(wanted, most, sent):
    (asked,) = call(GOOD, chat={"max_tokens": wanted}, max_tokens=most).server.asked
    assert asked.body["max_tokens"] == sent


def test_omitted_parameters_are_not_sent_though_asked_for():
    omit = ["seed", "temperature", "max_tokens"]
    chat = {"seed": 1, "temperature": 0.1, "max_tokens": 5}
    assert call(GOOD, omit=omit, chat=chat).server.asked[0].body == {
        "model": "served",
        "messages": QUESTION,
    }


# Limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "share", "expected"), [(5, 1, 5), (1, 1, 1), (6, 2, 3), (5, 2, 2), (4, 9, 1)]
)
def test_no_more_calls_are_under_way_than_the_processes_share_allows(concurrency, share, expected):
    chats = [{"seed": seed} for seed in range(20)]
    outcome = at_once(
        Answer(delay=0.01), chats=chats, parts={"share": share}, concurrency=concurrency
    )
    assert len(outcome.server.asked) == len(outcome.client.ledger.entries) == 20
    assert outcome.server.most_in_flight == expected


def test_many_more_calls_than_a_connection_pool_usually_holds_are_under_way_at_once():
    assert (
        at_once(Answer(delay=0.01), chats=[{}] * 130, concurrency=130).server.most_in_flight > 100
    )


def test_retries_stay_within_the_limit():
    busy = Answer({"error": {"message": "busy"}}, 503, {"retry-after-ms": "5"}, delay=0.01)
    server = at_once(*[busy] * 12, GOOD, chats=[{}] * 10, concurrency=3, retries=12).server
    assert len(server.asked) == 22 and server.most_in_flight <= 3


def test_one_call_that_fails_does_not_disturb_the_others(waits):
    def script(asked: Asked) -> Answer:
        return (
            Answer(status=0)
            if asked.body["seed"] == 3
            else Answer(completion(f"reply {asked.body['seed']}"))
        )

    results = at_once(script, chats=[{"seed": seed} for seed in range(6)]).results
    assert isinstance(results.pop(3), ReplyError)
    assert [reply.text for reply in results] == [f"reply {seed}" for seed in (0, 1, 2, 4, 5)]


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ReplyError("truncated", "mine: truncated", "half", 10, 5, 0.06, 1e-5),
        ConfigurationError("no such model"),
        CassetteMiss("no such reply"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error):
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error) and str(there) == str(error) and vars(there) == vars(error)


def test_a_kind_of_error_is_one_of_those_that_are_declared():
    with pytest.raises(ValueError, match="unknown kind of reply error 'odd'"):
        ReplyError("odd", "mine: odd")
    assert all(ReplyError(kind, "x").kind == kind for kind in KINDS)


# The planted key ----------------------------------------------------------------------------------

ECHOES = {
    "a reply": lambda said: Answer(completion(f"You sent {said}, so SO-d2")),
    "a field of a reply": lambda said: Answer(
        completion() | {"model": said, "system_fingerprint": said}
    ),
    "a finish reason": lambda said: Answer(completion(finish_reason=said)),
    "a truncated reply": lambda said: Answer(completion(said, finish_reason="length")),
    "a refusal": lambda said: Answer(completion(message={"content": said, "refusal": said})),
    "an error with status 200": lambda said: Answer({"error": {"message": f"who is {said}?"}}),
    "html with status 200": lambda said: Answer(f"<p>{said}</p>"),
    "html where the excerpt ends": lambda said: Answer("x" * (80 - len(said) // 2) + said),
    "broken JSON": lambda said: Answer('{"choices": "' + said),
    "a 400": lambda said: Answer({"error": {"message": f"odd header {said}"}}, 400),
    "a 400 about a parameter": lambda said: Answer(
        {"error": {"message": f"no seed for {said}"}}, 400
    ),
    "a 400 where the excerpt ends": lambda said: Answer("y" * (300 - len(said) // 2) + said, 400),
    "a 401": lambda said: Answer(
        {"error": {"message": f"Incorrect API key provided: {said}"}}, 401
    ),
    "a 403 in html": lambda said: Answer(f"<p>{said}</p>", 403),
    "a 404": lambda said: Answer({"detail": said}, 404),
    "a 429": lambda said: Answer({"error": {"message": said}}, 429),
    "a 500 in html": lambda said: Answer(f"<pre>{said}</pre>", 500),
    "headers": lambda said: Answer(
        headers={"x-request-id": said, "set-cookie": said, "location": said}
    ),
    "a body that breaks off": lambda said: Answer(completion(said), cut=150),
}


def said_by(error: BaseException | None) -> str:
    """All that an exception and those behind it hold, whether a traceback would show it or not."""
    if error is None:
        return ""
    held = [str(error), repr(error), repr(error.args), *map(repr, vars(error).values())]
    return "\n".join(held) + said_by(error.__cause__) + said_by(error.__context__)


def test_a_short_placeholder_for_a_key_changes_no_reply(monkeypatch, tmp_path):
    monkeypatch.setenv(
        KEY_VARIABLE, "key"
    )  # what local servers take; also a word of replies and files
    tape = Cassette(tmp_path, "short", "record")
    outcome = call(Answer(completion("the key is SO-d2")), times=2, parts={"cassette": tape})
    assert [reply.text for reply in outcome.results] == ["the key is SO-d2"] * 2
    assert len(outcome.server.asked) == 1


def test_a_server_cannot_pretend_to_be_the_cassette():
    assert not call(Answer(headers={"x-cassette-hit": "1"})).only.cached
    assert isinstance(call(Answer({}, 500, {"x-cassette-miss": "1"}), retries=0).only, ReplyError)
