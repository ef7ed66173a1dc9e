"""Who speaks: a lab model in this process, and any model through the client; for a lab model both say the same."""

import asyncio
import json
from contextlib import contextmanager
from unittest.mock import Mock

import pytest

from lib.agent_configuration.agent_models import ChatAgentModel, LabAgentModel, answer_call
from lib.agent_configuration.workflows import direct
from lib.language_models.checkpoints import ModelError
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.lab_model import LabModel, derive_request_seed
from lib.language_models.serving.chat_completions import ServedModel
from lib.llm.chat_model import ChatRequest, Failure, Reply, ToolCall
from tests.agent_configuration.small import make_turn, summarize, team, toolbox
from tests.language_models import tiny
from tests.language_models.conftest import CALLING, parrot
from tests.llm.stub_model import StubModel

CARD = {"dollars_per_1k_tokens": 0.002, "tokens_per_second": 50.0}
TOLD = [{"role": "system", "content": "role reasoner"}, {"role": "user", "content": "3 + 4 = ?"}]
IN = 1 + 3 + 6 + 1  # the first token, "<system> role reasoner", "<user> 3 + 4 = ?", "<assistant>"
TOOLS = toolbox()
CALCULATOR = {"calculator": TOOLS["calculator"]}


def random_model(seed: int = 0) -> ServedModel:
    return ServedModel("random", Forward(tiny.model(seed)), CARD, max_tokens=24)


@pytest.fixture(scope="module")
def caller() -> ServedModel:
    """It always writes `CALLING`."""
    return ServedModel("caller", parrot(CALLING), CARD)


@contextmanager
def at_work(model: ServedModel, temperature: float = 0.0):
    lab_model = LabModel(model)
    try:
        yield LabAgentModel(lab_model, temperature)
    finally:
        lab_model.stop()


def say(speaker, messages=TOLD, tools=(), limit: int = 24, key: int = 0) -> Reply:
    return asyncio.run(
        speaker.take_turn(messages, {name: TOOLS[name] for name in tools}, limit, key)
    )


# A lab model in this process -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "tools, limit, reply",
    [
        (["calculator"], 24, make_turn(CALLING, IN + 2, 7, ("calculator", "4 * 8"))),
        ([], 24, make_turn(CALLING, IN, 8)),  # only text, with the token that ends a turn
        (["calculator"], 3, make_turn("then <call> calculator", IN + 2, 3, None, True)),
        ([], tiny.WINDOW, make_turn("", 0, 0, failure="context_too_long")),
    ],
    ids=["with tools", "without", "truncated", "too long"],
)
def test_a_turn_ends_with_a_call_where_tools_are_on_offer_or_at_its_limit(
    tools, limit, reply, caller
):
    with at_work(caller) as lab:
        assert summarize(say(lab, tools=tools, limit=limit)) == summarize(reply)


def test_price_and_pace_are_those_of_the_card(caller):
    with at_work(caller) as lab:
        assert (lab.price_in, lab.price_out, lab.seconds_per_token) == (
            2e-6,
            2e-6,
            0.02,
        ) and lab.name == "caller"
    with pytest.raises(ModelError, match="unmeasured has no card"):
        LabAgentModel(LabModel(ServedModel("unmeasured", caller.forward)), 0.0)


def test_random_numbers_hang_on_the_key_and_the_request():
    with at_work(random_model(), 1.0) as lab:
        same = [say(lab, key=key).text for key in (1, 1, 2, 3)]
    with at_work(random_model(), 1.0) as another:
        assert say(another, key=1).text == same[0]
    assert same[0] == same[1] and len(set(same)) == 3
    assert derive_request_seed([1, 2], 5) == derive_request_seed([1, 2], 5) >= 0
    assert (
        len(
            {
                derive_request_seed([1, 2], 5),
                derive_request_seed([1, 3], 5),
                derive_request_seed([1, 2], 6),
            }
        )
        == 3
    )


def test_equal_requests_at_the_same_time_are_answered_once():
    async def thrice(lab):
        return await asyncio.gather(*(lab.take_turn(TOLD, {}, 24, 0) for _ in range(3)))

    with at_work(random_model(), 1.0) as lab:
        lab.model._batcher.submit = engine = Mock(wraps=lab.model._batcher.submit)
        assert len({reply.text for reply in asyncio.run(thrice(lab))}) == 1
    assert [len(handed.args[0]) for handed in engine.call_args_list] == [1]


def test_requests_side_by_side_get_what_they_get_alone():
    questions = [(f"{i} + {i} = ?", i) for i in range(9)]

    async def together(lab):
        return await asyncio.gather(
            *(lab.take_turn([{"role": "user", "content": q}], {}, 12, key) for q, key in questions)
        )

    with at_work(random_model(), 1.0) as lab:
        at_once = asyncio.run(together(lab))
    with at_work(random_model(), 1.0) as lab:
        replies_alone = [
            say(lab, [{"role": "user", "content": q}], limit=12, key=key) for q, key in questions
        ]
    assert at_once == replies_alone and len({reply.text for reply in replies_alone}) > 5


# Any other chat model ----------------------------------------------------------------------------


def take_turn(model: StubModel, tools=CALCULATOR, limit=40) -> Reply:
    agent = ChatAgentModel(model, 0.25, 0.5)
    return asyncio.run(agent.take_turn(TOLD, tools, limit, 9))


def test_a_chat_model_is_asked_with_key_temperature_limit_and_schemas():
    model = StubModel("7")
    take_turn(model)
    take_turn(model, tools={}, limit=60)
    assert model.requests == [
        ChatRequest(
            TOLD,
            tools=[TOOLS["calculator"].schema],
            temperature=0.25,
            max_tokens=40,
            seed=9,
            caller="stub",
        ),
        ChatRequest(TOLD, tools=[], temperature=0.25, max_tokens=60, seed=9, caller="stub"),
    ]


def test_price_and_backend_are_those_of_the_model():
    agent = ChatAgentModel(StubModel("7"), 0.25, 0.5)
    assert (agent.backend, agent.price_in, agent.seconds_per_token) == ("endpoint", 0.0, 0.5)


@pytest.mark.parametrize("kind", ["empty", "moderation", "refusal"])
def test_a_failure_of_a_chat_model_does_not_end_an_episode_and_is_told_by_name(kind):
    agents = team(ChatAgentModel(StubModel(Failure(kind)), 0.0, 0.0), (0, 1, 0, 0, 0, 0))
    last = asyncio.run(direct(agents, "3 + 4 = ?"))
    assert agents.usage.failures == [kind] and last.answer is None and last.whole == "nothing"


def test_a_chat_model_is_told_the_rule_of_a_chain_and_of_nothing_else():
    model = StubModel("<answer> 7 </answer>")
    agents = team(ChatAgentModel(model, 0.0, 0.0), (0, 1, 0, 0, 0, 0))
    asyncio.run(direct(agents, "3 + 4 * 2 = ?"))
    asyncio.run(direct(agents, "47 * 38 = ?"))
    with_rule, without = [request.messages[0]["content"] for request in model.requests]
    assert "only the last digit" in with_rule and "last digit" not in without


def call_tool(arguments: str, message: dict | None = None, call_id: str = "") -> Reply:
    call = ToolCall(call_id, "calculator", arguments)
    return Reply("so", "stub", "endpoint", tool_calls=(call,), message=message or {})


def test_a_servers_message_stands_in_the_exchange_as_it_came():
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "it must be worked out",
        "tool_calls": [
            {
                "id": "abcdefghi",
                "type": "function",
                "function": {"name": "calculator", "arguments": '{"expression": "4 * 8"}'},
            }
        ],
    }
    agent = ChatAgentModel(StubModel("7"), 0.0, 0.0)
    reply = call_tool('{"expression": "4 * 8"}', message, "abcdefghi")
    said, result = agent.write_exchange(reply, "32")
    assert said == message
    assert result == {"role": "tool", "content": "32", "tool_call_id": "abcdefghi"}


def test_one_call_is_carried_out_of_several_and_no_other_stands_in_the_exchange():
    calls = [
        {"id": name, "type": "function", "function": {"name": "calculator", "arguments": "{}"}}
        for name in ("first", "second")
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    reply, _ = ChatAgentModel(StubModel("7"), 0.0, 0.0).write_exchange(
        call_tool("{}", message, "first"), "32"
    )
    assert [call["id"] for call in reply["tool_calls"]] == ["first"]


def test_a_call_without_an_id_gets_one_that_hangs_on_the_call():
    agent = ChatAgentModel(StubModel("7"), 0.0, 0.0)
    arguments = json.dumps({"expression": "4 * 8"})
    reply, result = agent.write_exchange(call_tool(arguments), "32")
    (call,) = reply["tool_calls"]
    assert reply["content"] == "so" and call["type"] == "function"
    assert call["function"] == {"name": "calculator", "arguments": arguments}
    assert result == {"role": "tool", "content": "32", "tool_call_id": call["id"]}
    other_id = agent.write_exchange(call_tool("{}"), "32")[1]["tool_call_id"]
    assert other_id != call["id"]


def test_notes_hold_the_words_of_a_call_and_no_json():
    agent = ChatAgentModel(StubModel("7"), 0.0, 1.0)
    assert agent.describe_arguments(json.dumps({"relation": "pet", "of": "Ana"})) == "pet Ana"
    assert agent.describe_arguments("pet Ana") == "pet Ana"
    assert agent.describe_arguments("[3]") == "[3]"
    for odd in ("[" * 3_000, '{"a":' * 3_000 + "1" + "}" * 3_000):
        assert answer_call(TOOLS["lookup"], odd, agent, "").startswith("error: ")
    assert agent.describe_arguments('{"of": "\\ud800"}') == "?"


def test_a_line_in_place_of_a_tools_arguments_is_read_as_a_lab_model_writes_it():
    agent = ChatAgentModel(StubModel("7"), 0.0, 1.0)
    assert agent.run_tool(TOOLS["lookup"], '{"argument": "friend Ana"}') == "Bo"
