"""Who speaks: a lab model in this process, and any model through the client; for a lab model both say the same."""

import asyncio
import json
from contextlib import contextmanager
from unittest.mock import Mock

import pytest

from lib.agent_configuration.agent_models import (
    EndpointAgentModel,
    LabAgentModel,
    Said,
    answer_of,
    request_seed,
)
from lib.agent_configuration.workflows import direct
from lib.language_models.checkpoints import ModelError
from lib.language_models.in_process_client import Asker
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.serving.transport import LabTransport
from lib.llm.client import Client
from lib.llm.transport import InProcess, completion
from tests.agent_configuration.small import team, toolbox
from tests.language_models import tiny
from tests.language_models.conftest import CALLING, parrot
from tests.llm.server import settings

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
    asker = Asker(model)
    try:
        yield LabAgentModel(asker, temperature)
    finally:
        asker.close()


def say(speaker, messages=TOLD, tools=(), limit: int = 24, key: int = 0) -> Said:
    return asyncio.run(speaker.say(messages, {name: TOOLS[name] for name in tools}, limit, key))


# A lab model in this process -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "tools, limit, said",
    [
        (["calculator"], 24, Said(CALLING, IN + 2, 7, ("calculator", "4 * 8"))),
        ([], 24, Said(CALLING, IN, 8)),  # only text, with the token that ends a turn
        (["calculator"], 3, Said("then <call> calculator", IN + 2, 3, None, True)),
        ([], tiny.WINDOW, Said("", 0, 0, failure="context_too_long")),
    ],
    ids=["with tools", "without", "truncated", "too long"],
)
def test_a_turn_ends_with_a_call_where_tools_are_on_offer_or_at_its_limit(
    tools, limit, said, caller
):
    with at_work(caller) as lab:
        assert say(lab, tools=tools, limit=limit) == said


def test_price_and_pace_are_those_of_the_card(caller):
    with at_work(caller) as lab:
        assert (lab.price_in, lab.price_out, lab.pace) == (
            2e-6,
            2e-6,
            0.02,
        ) and lab.name == "caller"
    with pytest.raises(ModelError, match="unmeasured has no card"):
        LabAgentModel(Asker(ServedModel("unmeasured", caller.forward)), 0.0)


def test_random_numbers_hang_on_the_key_and_the_request():
    with at_work(random_model(), 1.0) as lab:
        same = [say(lab, key=key).text for key in (1, 1, 2, 3)]
    with at_work(random_model(), 1.0) as another:
        assert say(another, key=1).text == same[0]
    assert same[0] == same[1] and len(set(same)) == 3
    assert request_seed([1, 2], 5) == request_seed([1, 2], 5) >= 0
    assert len({request_seed([1, 2], 5), request_seed([1, 3], 5), request_seed([1, 2], 6)}) == 3


def test_equal_requests_at_the_same_time_are_answered_once():
    async def thrice(lab):
        return await asyncio.gather(*(lab.say(TOLD, {}, 24, 0) for _ in range(3)))

    with at_work(random_model(), 1.0) as lab:
        lab.asker.batcher.submit = engine = Mock(wraps=lab.asker.batcher.submit)
        assert len({said.text for said in asyncio.run(thrice(lab))}) == 1
    assert [len(handed.args[0]) for handed in engine.call_args_list] == [1]


def test_requests_side_by_side_get_what_they_get_alone():
    asked = [(f"{i} + {i} = ?", i) for i in range(9)]

    async def together(lab):
        return await asyncio.gather(
            *(lab.say([{"role": "user", "content": q}], {}, 12, key) for q, key in asked)
        )

    with at_work(random_model(), 1.0) as lab:
        at_once = asyncio.run(together(lab))
    with at_work(random_model(), 1.0) as lab:
        alone = [say(lab, [{"role": "user", "content": q}], limit=12, key=key) for q, key in asked]
    assert at_once == alone and len({said.text for said in alone}) > 5


# Through the client --------------------------------------------------------------------------------


def hosted(model: ServedModel, asked):
    """What a function of a hosted lab model gives."""

    async def work():
        about = {
            "price_in": 2e-6,
            "price_out": 2e-6,
            "max_tokens": 300,
            "timeout": 30.0,
            "retries": 0,
        }
        told = settings(backend="lab", model=model.name, **about)
        async with Client(told, {"lab": transport}) as client:
            return await asked(EndpointAgentModel(client, "mine", 0.0, 0.02))

    transport = LabTransport({model.name: model})
    try:
        return asyncio.run(work())
    finally:
        transport.close()


def both(model: ServedModel, asked):
    """What a function of a speaker gives in this process, and hosted."""
    with at_work(model) as lab:
        return asyncio.run(asked(lab)), hosted(model, asked)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tools", [(), ("calculator", "search")])
def test_a_hosted_lab_model_says_what_it_says_in_this_process(seed, tools):
    async def asked(speaker):
        return await speaker.say(TOLD, {name: TOOLS[name] for name in tools}, 100, 3)

    mine, theirs = both(random_model(seed), asked)
    assert (mine.text, mine.cut) == (theirs.text, theirs.cut) and len(mine.text.split()) > 3
    assert mine.cut or (mine.tokens_in, mine.tokens_out) == (theirs.tokens_in, theirs.tokens_out)


def test_a_hosted_lab_model_calls_the_same_tool_and_is_told_the_same(caller):
    async def asked(speaker):
        said = await speaker.say(TOLD, CALCULATOR, 24, 0)
        return said, speaker.called(TOOLS["calculator"], said.call[1])

    (mine, result), (theirs, same) = both(caller, asked)
    assert result == same == "32"
    assert theirs.call == ("calculator", '{"expression": "4 * 8"}') and mine.call == (
        "calculator",
        "4 * 8",
    )
    assert theirs.text == "then" and (theirs.tokens_in, theirs.tokens_out) == (
        mine.tokens_in,
        mine.tokens_out,
    )


def test_after_a_call_a_hosted_lab_model_goes_on_as_in_this_process():
    model = random_model(4)
    calls = {
        LabAgentModel: Said(CALLING, 1, 1),
        EndpointAgentModel: Said("then", 1, 1, ("calculator", '{"expression": "4 * 8"}')),
    }

    async def go_on(speaker):
        return await speaker.say(
            [*TOLD, *speaker.exchange(calls[type(speaker)], "32")], CALCULATOR, 100, 0
        )

    mine, theirs = both(model, go_on)
    assert mine.text == theirs.text and len(mine.text.split()) > 3
    with at_work(model) as lab:
        assert (
            say(lab, tools=["calculator"], limit=100).text != mine.text
        )  # what was exchanged matters


def test_a_hosted_lab_model_can_call_a_tool_of_two_parameters():
    model = ServedModel("caller", parrot("then <call> lookup friend Ana </call>"), CARD)

    async def asked(speaker):
        said = await speaker.say(TOLD, {"lookup": TOOLS["lookup"]}, 24, 0)
        return speaker.called(TOOLS["lookup"], said.call[1])

    assert both(model, asked) == ("Bo", "Bo")


def answering(reply, asked):
    """What a function of a hosted model gives, whose replies are a function of the request's body."""

    async def work():
        told = settings(backend="scripted", price_in=1e-3, price_out=1e-1, max_tokens=50, retries=0)
        async with Client(told, {"scripted": InProcess(reply)}) as client:
            return await asked(EndpointAgentModel(client, "mine", 0.25, 0.5))

    return asyncio.run(work())


async def plain(speaker):
    return await speaker.say(TOLD, CALCULATOR, 40, 9)


def test_a_hosted_model_is_asked_with_key_temperature_limit_and_schemas():
    bodies = []

    def reply(body):
        bodies.append(body)
        return completion("model", "7", 10, 2)

    async def asked(speaker):
        assert (speaker.backend, speaker.price_in, speaker.price_out, speaker.pace) == (
            "scripted",
            1e-3,
            1e-1,
            0.5,
        )
        return [await plain(speaker), await speaker.say(TOLD, {}, 60, 9)]

    assert answering(reply, asked) == [Said("7", 10, 2)] * 2
    first, second = bodies
    assert (first["seed"], first["temperature"], first["max_tokens"], first["messages"]) == (
        9,
        0.25,
        40,
        TOLD,
    )
    assert (
        first["tools"] == [TOOLS["calculator"].schema]
        and "tools" not in second
        and second["max_tokens"] == 50
    )


def test_a_failure_of_a_hosted_model_does_not_end_an_episode():
    async def asked(speaker):
        made = team(speaker, (0, 1, 0, 0, 0, 0))
        return await direct(made, "3 + 4 = ?"), made

    last, made = answering(lambda body: completion("model", "", 10, 0), asked)
    assert (
        made.spent.failures == ["null_content"] and last.answer is None and last.whole == "nothing"
    )
    assert made.spent.tokens_in == 10 and made.spent.cost_usd == pytest.approx(0.01)


def test_notes_hold_the_words_of_a_call_and_no_json():
    speaker = EndpointAgentModel(Client(settings()), "mine", 0.0, 1.0)
    assert speaker.worded(json.dumps({"relation": "pet", "of": "Ana"})) == "pet Ana"
    assert speaker.worded("pet Ana") == "pet Ana" and speaker.worded("[3]") == "[3]"
    for odd in ("[" * 3_000, '{"a":' * 3_000 + "1" + "}" * 3_000, '{"a": ' + "9" * 5_000 + "}"):
        assert speaker.worded(odd) == odd and answer_of(
            TOOLS["lookup"], odd, speaker, ""
        ).startswith("error: ")
    assert speaker.worded('{"of": "\\ud800"}') == "?"


def test_a_conversation_that_does_not_fit_is_a_failure_of_a_hosted_model_too():
    async def asked(speaker):
        return await speaker.say(TOLD, {}, tiny.WINDOW, 0)

    assert hosted(random_model(), asked) == Said("", 0, 0, failure="bad_request")


@pytest.mark.parametrize(
    "reply, said",
    [
        (
            completion("model", "3 + 4 = 7 a", 10, 40, "length"),
            Said("3 + 4 = 7 a", 10, 40, None, True, "truncated"),
        ),
        (completion("model", "", 10, 0), Said("", 10, 0, failure="null_content")),
        (
            completion("model", "no", 10, 1, "content_filter"),
            Said("no", 10, 1, failure="content_filter"),
        ),
        ({"choices": []}, Said("", 0, 0, failure="no_choices")),
    ],
)
def test_what_was_truncated_is_kept_and_other_failures_of_a_hosted_model_are_told_by_name(
    reply, said
):
    assert answering(lambda body: reply, plain) == said


def test_the_exchange_of_a_hosted_model_names_the_call_that_is_answered():
    speaker = EndpointAgentModel(Client(settings()), "mine", 0.0, 1.0)
    call = ("calculator", json.dumps({"expression": "4 * 8"}))
    said, told = speaker.exchange(Said("so", 1, 1, call), "32")
    (made,) = said["tool_calls"]
    assert said["content"] == "so" and made["function"] == {"name": call[0], "arguments": call[1]}
    assert (
        told == {"role": "tool", "content": "32", "tool_call_id": made["id"]}
        and made["type"] == "function"
    )
    assert speaker.exchange(Said("", 1, 1, call), "32")[0] == said | {"content": None}
    assert (
        speaker.exchange(Said("", 1, 1, ("calculator", "{}")), "32")[1]["tool_call_id"]
        != made["id"]
    )
