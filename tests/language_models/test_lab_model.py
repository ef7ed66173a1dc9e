"""A lab model in this process: what the server replies, once for equal requests, and kept from then on."""

import asyncio
import json
from pathlib import Path

import pytest

from lib import config
from lib.config import ModelSettings
from lib.language_models import checkpoints, lab_model
from lib.language_models.checkpoints import ModelError
from lib.language_models.lab_model import LabModel
from lib.language_models.serving.chat_completions import CompletionService, ServedModel
from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel
from lib.llm.chat_model import ChatRequest, Reply
from lib.llm.reply_store import ReplyStore
from tests.language_models import tiny

QUESTION = [{"role": "user", "content": "1 + 2 = ?"}]
CALCULATOR = {"type": "function", "function": {"name": "calculator"}}


def make_request(max_tokens=12, temperature=0.9, seed=5, **fields) -> ChatRequest:
    fields = {"messages": QUESTION} | fields
    return ChatRequest(max_tokens=max_tokens, temperature=temperature, seed=seed, **fields)


@pytest.fixture
def ask(models):
    """Ask a model, once for every request, all at the same time; stops what it started."""
    started = []

    def ask_all(*requests: ChatRequest, name="lab-nano", store=None) -> list[Reply]:
        started.append(LabModel(models[name], store=store))
        return started[-1].generate(requests)

    yield ask_all
    for model in started:
        model.stop()


def test_it_replies_as_the_server_does(ask, models):
    (reply,) = ask(make_request())

    async def serve():
        service = CompletionService([LabCompletionModel(models["lab-nano"])])
        body = {
            "model": "lab-nano",
            "messages": QUESTION,
            "max_tokens": 12,
            "temperature": 0.9,
            "seed": 5,
        }
        try:
            completion = await service.start_completion(body)
            return await completion.complete()
        finally:
            await service.aclose()

    served = asyncio.run(serve())
    choice, usage = served["choices"][0], served["usage"]
    assert reply.text == choice["message"]["content"]
    assert (reply.finish_reason == "length") == (choice["finish_reason"] == "length")
    assert (reply.tokens_in, reply.tokens_out) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )


def test_equal_requests_are_generated_once_and_others_are_not(ask, monkeypatch):
    generated = []
    generate = LabModel._generate_and_store

    async def count(self, key, *request):
        generated.append(key)
        return await generate(self, key, *request)

    monkeypatch.setattr(LabModel, "_generate_and_store", count)
    replies = ask(*(make_request(seed=seed) for seed in (1, 1, 2, 1)))
    assert len(generated) == 2
    assert replies[0] == replies[1] == replies[3] != replies[2]


def test_a_reply_is_kept_for_the_next_process_and_is_the_same_without(ask, tmp_path, monkeypatch):
    first = ReplyStore(tmp_path / "lab.sqlite", write_every=512)
    (reply,) = ask(make_request(), store=first)
    first.close()
    (without_store,) = ask(make_request())
    monkeypatch.setattr(LabModel, "_generate_and_store", None)  # nothing is generated again
    second = ReplyStore(tmp_path / "lab.sqlite")
    assert ask(make_request(), store=second) == [reply] == [without_store]
    second.close()


def test_a_model_is_never_given_another_models_reply(ask, tmp_path):
    store = ReplyStore(tmp_path / "lab.sqlite")
    texts = [
        ask(make_request(), name=name, store=store)[0].text for name in ("lab-nano", "lab-mini")
    ]
    assert texts[0] != texts[1]
    store.close()


def test_a_tool_call_ends_the_turn_where_tools_are_on_offer(ask):
    request = make_request(40, 0.0, 0, tools=[CALCULATOR])
    (reply,) = ask(request, name="caller")
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("calculator", "4 * 8")
    assert reply.text.endswith("</call>") and reply.message["content"] == reply.text
    (plain,) = ask(make_request(40, 0.0, 0), name="caller")
    assert plain.tool_calls == ()


def test_a_reply_that_reaches_its_limit_says_so_and_keeps_its_text(ask):
    (reply,) = ask(make_request(3, 0.0, 0, tools=[CALCULATOR]), name="caller")
    assert reply.failure.kind == "truncated" and reply.text and reply.tokens_out == 3


def test_a_question_beyond_the_window_is_a_failure_that_costs_nothing(ask):
    messages = [{"role": "user", "content": "1 + " * tiny.WINDOW}]
    (reply,) = ask(make_request(messages=messages))
    assert reply.failure.kind == "context_too_long" and str(tiny.WINDOW) in reply.failure.detail
    assert (reply.text, reply.tokens_in, reply.cost_usd) == ("", 0, 0.0)


def test_words_that_a_model_does_not_know_are_named_and_nothing_is_asked(ask):
    messages = [{"role": "user", "content": "Janet's ducks lay 16 eggs per day"}]
    (reply,) = ask(make_request(messages=messages))
    assert reply.failure.kind == "unknown_words" and not reply.failure.of_infrastructure
    assert "ducks" in reply.failure.detail and reply.tokens_in == 0


def test_settings_name_limit_and_price_the_same_engine(models):
    settings = config.validate_settings(
        {
            "backend": "lab",
            "model": "lab-nano",
            "price_in": 1e-3,
            "price_out": 1e-2,
            "kwh_per_token": 1e-6,
            "temperature": 0.0,
            "max_tokens": 5,
            "timeout": 1.0,
            "retries": 0,
            "concurrency": 1,
        },
        ModelSettings,
        "a test",
    )
    engine = LabModel(models["lab-nano"])
    (reply,) = engine.with_settings("expert", settings).generate([ChatRequest(QUESTION)])
    engine.stop()
    assert reply.model == "expert" and reply.tokens_out <= 5
    expected = reply.tokens_in * 1e-3 + reply.tokens_out * 1e-2
    assert reply.cost_usd == pytest.approx(expected)


def test_a_model_without_a_price_is_named(models):
    model = LabModel(ServedModel("lab-x", models["lab-nano"].forward))
    with pytest.raises(ModelError, match="lab-x has no card.*make repro"):
        _ = model.price_per_token
    model.stop()


def test_a_model_that_is_not_there_is_named(tmp_path):
    checkpoints.save(tiny.model(), tmp_path / "lab-a")
    with pytest.raises(ModelError, match=r"no lab model 'lab-b'.*lab-a"):
        lab_model.open_lab_model("lab-b", tmp_path)


def test_the_key_of_a_reply_depends_on_all_that_decides_it():
    request = {
        "fingerprint": "fp",
        "ids": [1, 2],
        "max_tokens": 5,
        "temperature": 0.5,
        "seed": 1,
        "stops": (),
    }
    others = {
        "fingerprint": "fq",
        "ids": [2, 1],
        "max_tokens": 6,
        "temperature": 0.0,
        "seed": 2,
        "stops": ((3,),),
    }
    keys = {lab_model.compute_reply_key(**request)}
    keys |= {lab_model.compute_reply_key(**request | {name: others[name]}) for name in others}
    assert len(keys) == 1 + len(others) and json.dumps([len(key) for key in keys])


def test_the_key_of_a_reply_depends_on_the_processor(monkeypatch):
    request = ("fp", [1, 2], 5, 0.5, 1, ())
    here = lab_model.compute_reply_key(*request)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "another processor")
    assert lab_model.compute_reply_key(*request) != here and len(here) == 20


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("off", None),
        ("OFF", None),
        ("0", None),
        ("", lab_model.REPLIES),
        ("/elsewhere/lab.sqlite", Path("/elsewhere/lab.sqlite")),
    ],
)
def test_the_environment_says_where_replies_are_kept_or_that_they_are_not(
    setting, path, monkeypatch
):
    monkeypatch.setenv(lab_model.SWITCH, setting)
    assert lab_model.find_store_path() == path
