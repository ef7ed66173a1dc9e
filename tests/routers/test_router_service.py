"""A served router: requests are passed on whole, the next model is asked where one fails, and everything is counted."""

import asyncio
import json
import time

import numpy as np
import pytest

from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.llm.errors import ConfigurationError
from lib.routers.choice_log import LOG_FILE, ChoiceLog
from lib.routers.model_backend import EndpointBackend, InProcessBackend, open_backend
from lib.routers.prompt_batcher import PromptBatcher
from lib.routers.prompt_encoder import TfidfEncoder
from lib.routers.request_metrics import RequestMetrics
from lib.routers.router_service import RouterService
from lib.routers.saved_router import OperatingPoint, Router
from lib.routers.success_model import ConstantSuccess
from tests.language_models.conftest import tiny
from tests.llm.server import (
    BILL,
    KEY,
    KEY_VARIABLE,
    NOBODY,
    Answer,
    Server,
    completion,
    settings_of,
)

MESSAGES = [{"role": "user", "content": "Which policy acts next?"}]
BODY = {"model": "router", "messages": MESSAGES}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def make_router(names=("small", "large")):
    """Always the first model up to $.01 a prompt, always the last from $.02 on, a mixture between."""
    return Router(
        models=tuple(names),
        cost_usd=np.linspace(0.01, 0.02, len(names)),
        encoder=TfidfEncoder.fit(["which policy", "which act", "next"]),
        success=ConstantSuccess({"rate": np.linspace(0.4, 0.9, len(names))}),
        points=(
            OperatingPoint(0.01, 0.4, model=names[0]),
            OperatingPoint(0.02, 0.9, model=names[-1]),
        ),
        budget_usd=0.01,
    )


def stream(*pieces, usage=True, finish="stop", done=True):
    """A stream of server-sent events, as servers send it."""
    chunks = [
        {"id": "c-1", "model": "served", "choices": [{"index": 0, "delta": {"content": piece}}]}
        for piece in pieces
    ]
    if finish:
        chunks.append(
            {"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        )
    if usage:
        counts = {"prompt_tokens": 10, "completion_tokens": 5}
        chunks.append({"id": "c-1", "choices": [], "usage": counts})
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    if done:
        events.append("data: [DONE]\n\n")
    return Answer("".join(events), headers={"content-type": "text/event-stream"})


def ask(small, large=None, bodies=(BODY,), log=None, explore=0.0, **changes):
    """Replies (JSON, lists of chunks, or errors) to bodies, one after the other; and the servers and the service."""

    async def play():
        async with Server(small) as first, Server(large or Answer()) as second:
            urls = {"small": first.url, "large": second.url}
            backends = {
                name: EndpointBackend(name, settings_of(url, **changes))
                for name, url in urls.items()
            }
            service = RouterService(make_router(), backends, log, explore)
            replies = []
            for body in bodies:
                try:
                    under_way = await service.start_completion(body)
                    if under_way.is_streamed:
                        replies.append([chunk async for chunk in under_way.iterate_chunks()])
                    else:
                        replies.append(await under_way.complete())
                except RequestRefused as error:
                    replies.append(error)
            await service.aclose()
            return replies, first, second, service

    return asyncio.run(play())


def test_a_request_is_passed_on_whole_under_the_models_own_name():
    body = BODY | {
        "tools": [TOOL],
        "tool_choice": "required",
        "top_p": 0.5,
        "max_tokens": 7,
        "x": 1,
    }
    call = {"id": "t1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    answer = Answer(completion(None, message={"role": "assistant", "tool_calls": [call]}))
    (reply,), small, large, _ = ask(answer, bodies=[body])
    assert small.asked[0].body == body | {"model": "served"} and not large.asked
    assert small.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert reply["choices"][0]["message"]["tool_calls"] == [call] and reply["model"] == "small"


def test_what_a_server_does_not_take_is_renamed_or_left_out():
    body = BODY | {"temperature": 0.3, "max_tokens": 7}
    changes = {
        "token_parameter": "max_completion_tokens",
        "omit": ["temperature"],
        "extra_body": {"provider": {"sort": "price"}},
    }
    _, small, _, _ = ask(Answer(), bodies=[body], **changes)
    sent = small.asked[0].body
    assert sent["max_completion_tokens"] == 7 and sent["provider"] == {"sort": "price"}
    assert "max_tokens" not in sent and "temperature" not in sent


@pytest.mark.parametrize(
    "failing",
    [
        Answer({"error": "down"}, status=503),
        Answer({"error": "slow down"}, status=429),
        Answer({"error": "too long"}, status=400),
        Answer("<html>", status=200),
        Answer({"choices": []}),
        Answer(status=0),
        Answer(delay=5.0),
    ],
    ids=["503", "429", "400", "a page", "no choice", "hung up", "silent"],
)
@pytest.mark.parametrize("streams", [False, True])
def test_the_next_model_is_asked_where_one_gives_no_reply(failing, streams):
    large = stream("SO", "-d2") if streams else Answer()
    (reply,), small, _, service = ask(
        failing, large, [BODY | {"stream": streams}], timeout=0.5, retries=0
    )
    assert len(small.asked) == 1
    answered_by = {chunk["model"] for chunk in reply} if streams else {reply["model"]}
    assert answered_by == {"large"}
    metrics = service.metrics.render()
    assert 'router_fallbacks_total{model="large"} 1' in metrics
    assert 'router_failures_total{model="small",status="' in metrics


def test_where_no_model_replies_all_reasons_are_named_without_the_key():
    failing = Answer({"error": f"bad key {KEY}"}, status=401)
    (error,), _, _, service = ask(failing, Answer(status=0))
    assert error.status == 502 and "small answers 401" in str(error) and "large at" in str(error)
    assert KEY not in str(error)
    (error,), _, _, _ = ask(failing, failing)
    assert error.status == 401
    assert 'router_requests_total{model="small",status="failed"} 1' in service.metrics.render()


def test_a_stream_is_passed_on_and_its_usage_is_for_who_wants_it():
    bodies = [
        BODY | {"stream": True},
        BODY | {"stream": True, "stream_options": {"include_usage": True}},
    ]
    (plain, with_usage), small, _, service = ask(stream("SO", "-d2"), bodies=bodies)
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in plain]
    assert "".join(texts) == "SO-d2" and not any("usage" in chunk for chunk in plain)
    assert with_usage[-1]["usage"]["completion_tokens"] == 5 and not with_usage[-1]["choices"]
    assert all(asked.body["stream_options"]["include_usage"] for asked in small.asked)
    assert f'router_cost_usd_total{{model="small"}} {2 * BILL:.10g}' in service.metrics.render()


def test_a_stream_that_breaks_off_is_an_error_and_no_other_model_is_mixed_in():
    broken = stream("SO", usage=False, finish=None, done=False)
    (error,), _, large, service = ask(broken, bodies=[BODY | {"stream": True}])
    assert "broke off" in str(error) and not large.asked
    assert 'status="broken"} 1' in service.metrics.render()


def test_a_budget_in_the_models_name_and_a_models_own_name_are_followed():
    bodies = [BODY | {"model": name} for name in ("router@0.02", "router@0.0001", "large", "small")]
    replies, *_ = ask(Answer(), bodies=bodies)
    assert [reply["model"] for reply in replies] == ["large", "small", "large", "small"]


@pytest.mark.parametrize(
    ("change", "reason", "status"),
    [
        ({"model": "gpt"}, "there is no model 'gpt'; there are router, router@USD, small", 404),
        ({"model": None}, "there is no model", 404),
        ({"model": "router@cheap"}, "US dollars", 400),
        ({"model": "router@-1"}, "US dollars", 400),
        ({"messages": []}, "messages", 400),
        ({"messages": ["a"]}, "every message is an object", 400),
    ],
)
def test_a_request_that_is_none_is_refused_with_its_reason(change, reason, status):
    (error,), small, large, _ = ask(Answer(), bodies=[BODY | change])
    assert reason in str(error) and error.status == status
    assert not small.asked and not large.asked


def test_choices_are_logged_with_their_propensities_and_prompts_only_where_asked(tmp_path):
    bodies = [BODY | {"model": "router@0.015"}] * 300
    _, small, large, _ = ask(Answer(), bodies=bodies, log=ChoiceLog(tmp_path / "a"), explore=0.2)
    entries = [json.loads(line) for line in (tmp_path / "a" / LOG_FILE).open()]
    assert len(small.asked) + len(large.asked) == len(entries) == 300
    chosen_large = np.mean([entry["chosen"] == "large" for entry in entries])
    assert chosen_large == pytest.approx(entries[0]["probabilities"]["large"], abs=0.1)
    for entry in entries:
        assert entry["propensity"] == entry["probabilities"][entry["chosen"]]
        assert entry["cost_usd"] == pytest.approx(BILL) and "messages" not in entry
    ask(Answer(), log=ChoiceLog(tmp_path / "b", keeps_prompts=True))
    assert json.loads((tmp_path / "b" / LOG_FILE).read_text())["messages"] == MESSAGES


def test_models_of_this_process_are_served_and_a_refusal_goes_to_the_next():
    async def play():
        backends = {
            name: InProcessBackend(name, settings_of(), LabCompletionModel(model))
            for name, model in zip(("small", "large"), tiny().values(), strict=False)
        }
        service = RouterService(make_router(), backends)
        body = BODY | {"messages": [{"role": "user", "content": "the red key is in the box"}]}
        whole = await (await service.start_completion(body | {"seed": 1})).complete()
        streamed = await service.start_completion(body | {"seed": 1, "stream": True})
        chunks = [chunk async for chunk in streamed.iterate_chunks()]
        with pytest.raises(RequestRefused, match="small: .*; large: ") as error:
            unknown = body | {"messages": [{"role": "user", "content": "Zanzibar"}]}
            await (await service.start_completion(unknown)).complete()
        await service.aclose()
        return whole, chunks, error.value

    whole, chunks, error = asyncio.run(play())
    texts = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert "".join(texts) == whole["choices"][0]["message"]["content"] and whole["model"] == "small"
    assert error.status == 400


def test_prompts_that_wait_are_encoded_together_and_each_gets_its_own_vector():
    batches = []

    class SlowEncoder(TfidfEncoder):
        def encode(self, prompts):
            batches.append(list(prompts))
            time.sleep(0.05)
            if "broken" in prompts:
                raise FloatingPointError("no vector")
            return super().encode(prompts)

    fitted = TfidfEncoder.fit(["which policy", "which act", "next"])
    encoder = SlowEncoder(fitted.words, fitted.idf, fitted.components)
    prompts = ["which policy", "next act", "which", "next"]

    async def play():
        batcher = PromptBatcher(encoder)
        vectors = await asyncio.gather(*(batcher.encode(prompt) for prompt in prompts))
        with pytest.raises(FloatingPointError):
            await batcher.encode("broken")
        again = await batcher.encode(prompts[0])
        batcher.close()
        return vectors, again

    vectors, again = asyncio.run(play())
    np.testing.assert_array_equal(vectors, fitted.encode(prompts))
    np.testing.assert_array_equal(again, vectors[0])
    assert batches[0] == prompts


def test_metrics_are_what_prometheus_reads():
    parser = pytest.importorskip("prometheus_client.parser")
    metrics = RequestMetrics()
    metrics.add("requests", 2, model='a "b"\\', status="ok")
    for seconds in (0.0002, 0.5, 1000.0):
        metrics.observe("request_seconds", seconds)
    families = {
        family.name: family for family in parser.text_string_to_metric_families(metrics.render())
    }
    (sample,) = families["router_requests"].samples
    assert sample.value == 2 and sample.labels == {"model": 'a "b"\\', "status": "ok"}
    buckets = {
        sample.labels["le"]: sample.value
        for sample in families["router_request_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert (buckets["0.0001"], buckets["0.0003"], buckets["1.0"], buckets["+Inf"]) == (0, 1, 2, 3)


def test_what_cannot_be_served_is_named(monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(ConfigurationError, match=f"{KEY_VARIABLE} is not set"):
        open_backend("mine", settings_of(NOBODY))
    scripted = settings_of(NOBODY).model_copy(update={"backend": "scripted"})
    with pytest.raises(ConfigurationError, match="mine is scripted"):
        open_backend("mine", scripted)
