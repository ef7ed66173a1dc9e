"""A trained CoRL controller that is served: a request is an episode under the budget in the model's name."""

import asyncio
import json
import shutil
from pathlib import Path

import openai
import pytest

from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.routers import saved_controller, serve_command
from lib.routers.choice_log import LOG_FILE
from lib.routers.controller_service import ControllerService
from lib.routers.model_backend import EndpointBackend
from lib.routers.saved_controller import SavedController
from lib.routers.saved_router import RouterError
from tests.budgeted_routing.small_systems import ScriptedController, write_answer
from tests.language_models.serving.test_server import serve_in_thread
from tests.llm.server import BILL, Answer, Server, completion, settings_of
from tests.routers.small_chain import PRICES, serve_lab_models, write_model_file
from tests.routers.small_controller import BUDGETS, EXPERT_BY_WORD, train_controller

EASY = [{"role": "user", "content": "3 + 4 = ?"}]
COSTS = {"lab-nano": 0.01, "lab-large": 0.3}  # of the scripted controller's experts
CALL = "<call> lab-nano <t> question </t> </call>"
ANSWER_IT = "<answer> it </answer>"


# A controller that was trained here -----------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with a trained controller and with a file of its experts, which are served meanwhile."""
    folder = tmp_path_factory.mktemp("controller")
    with serve_lab_models() as url:
        write_model_file(folder / "models.yaml", url)
        train_controller(folder, url)
        yield folder


def test_a_trained_controller_is_served_and_calls_the_expert_of_its_budget(lab, tmp_path):
    options = serve_command.make_parser().parse_args(
        [str(lab / "CONTROLLER"), "--model-file", str(lab / "models.yaml"), "--log", str(tmp_path)]
    )
    by_dollars = {f"router@{BUDGETS[word] * 1.5}": word for word in ("low", "medium")}
    words = {f"router@{word}": word for word in BUDGETS} | by_dollars | {"router": "medium"}
    with serve_in_thread(serve_command.make_router_application(options)) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600.0)
        names = [model.id for model in client.models.list()]
        assert names == ["router", *PRICES]
        for name, word in words.items():
            reply = client.chat.completions.create(model=name, messages=EASY)
            (call,) = reply.usage.calls
            assert call["model"] == EXPERT_BY_WORD[word], name
            assert reply.usage.cost == call["cost_usd"] > 0
            assert "7" in reply.choices[0].message.content
            assert reply.model == "controller" and reply.choices[0].finish_reason == "stop"
        stream = client.chat.completions.create(model="router@high", messages=EASY, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert "7" in text
        metrics = openai.OpenAI(base_url=url.removesuffix("/v1"), api_key="none").get(
            "/metrics", cast_to=str
        )
        client.close()
    assert 'router_calls_total{model="lab-large"} 2' in metrics
    assert f'router_requests_total{{model="controller",status="ok"}} {len(words) + 1}' in metrics

    logged = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    for entry, word in zip(logged, words.values(), strict=False):
        assert [call["model"] for call in entry["calls"]] == [EXPERT_BY_WORD[word]]
        assert entry["cost_usd"] > 0 and entry["budget_usd"] == BUDGETS[word]
        assert entry["answered_by"] == "controller" and "messages" not in entry


def test_a_training_that_is_not_finished_or_broken_is_named(lab, tmp_path):
    folder = shutil.copytree(lab / "CONTROLLER", tmp_path / "copy")
    assert saved_controller.load_controller(folder).budget_usd_by_label == BUDGETS
    (folder / "start.parquet").write_bytes(b"nothing")
    with pytest.raises(RouterError, match="broken folder"):
        saved_controller.load_controller(folder)
    shutil.rmtree(folder / "controller")
    with pytest.raises(RouterError, match="no trained controller yet"):
        saved_controller.load_controller(folder)


def test_a_share_of_random_choices_is_refused_for_a_controller(lab, capsys):
    assert serve_command.main([str(lab / "CONTROLLER"), "--explore", "0.1"]) == 2
    assert "--explore is for routers that were fitted" in capsys.readouterr().err


# What a controller may write, and what may fail ----------------------------------------------------


def make_controller() -> SavedController:
    return SavedController(
        folder=Path("nowhere"),
        style="soft",
        system_prompt="",
        budget_usd_by_label={"low": 0.0, "medium": 0.02, "high": 1.0},
        cost_by_expert=COSTS,
        expert_settings={},
        max_turns=3,
        turn_tokens=40,
        response_tokens=8,
        temperature=0.0,
        expert_temperature=0.0,
    )


def ask(*turns, nano=None, large=None, window=400, **changes):
    """The reply of a controller that writes these turns, or the error; and the servers of its experts."""

    async def play():
        async with Server(nano or Answer()) as first, Server(large or Answer()) as second:
            backends = {
                name: EndpointBackend(name, settings_of(url, api_key_env=None, timeout=0.5))
                for name, url in zip(COSTS, (first.url, second.url), strict=True)
            }
            generator = ScriptedController(*turns, window=window)
            service = ControllerService(make_controller(), generator, backends)
            body = {"model": "router@medium", "messages": EASY} | changes
            try:
                under_way = await service.start_completion(body)
                if under_way.is_streamed:
                    reply = [chunk async for chunk in under_way.iterate_chunks()]
                else:
                    reply = await under_way.complete()
            except RequestRefused as error:
                reply = error
            await service.aclose()
            return reply, first, second, service

    return asyncio.run(play())


def read_text(reply) -> str:
    return reply["choices"][0]["message"]["content"]


def test_an_answer_of_its_own_costs_nothing_and_calls_nobody():
    reply, nano, large, _ = ask(write_answer(7))
    assert read_text(reply) == "7" and reply["usage"]["cost"] == 0
    assert not nano.asked and not large.asked


def test_the_whole_reply_of_an_expert_is_handed_on():
    said = "First 3, then 4. <answer> 7 </answer>"
    reply, nano, _, service = ask(CALL, ANSWER_IT, nano=Answer(completion(said)))
    assert read_text(reply) == said
    assert nano.asked[0].body["messages"] == EASY and nano.asked[0].body["temperature"] == 0
    assert reply["usage"]["cost"] == pytest.approx(BILL)
    assert 'router_calls_total{model="lab-nano"} 1' in service.metrics.render()


def test_earlier_messages_reach_controller_and_expert():
    earlier = [
        {"role": "system", "content": "You choose."},
        {"role": "user", "content": "1 + 1 = ?"},
        {"role": "assistant", "content": "2"},
    ]
    _, nano, _, _ = ask(CALL, ANSWER_IT, messages=[*earlier, *EASY])
    assert nano.asked[0].body["messages"] == [*earlier, *EASY]


def test_an_expert_that_fails_is_read_as_an_error_and_the_controller_goes_on():
    reply, _, large, service = ask(CALL, write_answer(7), nano=Answer(status=0))
    assert read_text(reply) == "7" and not large.asked
    assert reply["usage"]["calls"][0]["failure"] == "empty" and reply["usage"]["cost"] == 0
    assert 'router_failures_total{model="lab-nano",status="502"} 1' in service.metrics.render()


def test_a_last_turn_that_is_no_answer_is_handed_on_as_cut_off():
    reply, nano, *_ = ask(CALL, CALL, CALL)
    assert len(nano.asked) == 2  # the last call would be read by nobody
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    "changes",
    [{"window": 10}, {"tools": [{"type": "function", "function": {"name": "f"}}]}, {"n": 2}],
    ids=["too long", "tools", "two replies"],
)
def test_what_a_controller_cannot_do_goes_to_an_expert_that_the_budget_affords(changes):
    reply, nano, large, service = ask(write_answer(7), **changes)
    assert reply["model"] == "lab-nano" and len(nano.asked) == 1 and not large.asked
    assert 'router_fallbacks_total{model="lab-nano"} 1' in service.metrics.render()


@pytest.mark.parametrize("name", ["router@cheap", "router@-1", "router@"])
def test_a_budget_that_is_none_is_refused_with_the_words(name):
    error, *_ = ask(write_answer(7), model=name)
    assert error.status == 400 and "low, medium, high, or US dollars" in str(error)


def test_a_streamed_answer_comes_in_one_piece_with_usage_where_it_is_wanted():
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks, *_ = ask(write_answer(7), **options)
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks[:2]] == ["7", None]
    assert chunks[1]["choices"][0]["finish_reason"] == "stop" and "cost" in chunks[2]["usage"]
