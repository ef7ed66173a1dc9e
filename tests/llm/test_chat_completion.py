"""Chat completions that programs make: every reader of OpenAI's API takes them, and equal ones are equal bytes."""

import asyncio
import json

import httpx2
import openai
import pytest

from lib.llm.chat_completion import make_completion
from lib.llm.parse_response import CallInfo, Pricing, parse_response
from tests.llm.server import QUESTION


def test_the_official_client_reads_a_completion():
    body = json.dumps(make_completion("inner", "SO-d2", 3, 2)).encode()

    async def ask():
        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=body))
        async with openai.AsyncOpenAI(
            api_key="none",
            base_url="http://in-process/v1",
            http_client=httpx2.AsyncClient(transport=transport),
        ) as client:
            return await client.chat.completions.create(model="inner", messages=QUESTION)

    reply = asyncio.run(ask())
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("SO-d2", "stop")
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 2, 5)


@pytest.mark.parametrize(("finish_reason", "kind"), [("stop", None), ("length", "truncated")])
def test_our_parser_reads_text_tokens_and_how_it_ended(finish_reason, kind):
    completion = make_completion("inner", "SO-d2", 30, 2, finish_reason)
    call = CallInfo("inner", "scripted", Pricing(1.0, 10.0), prompt_bytes=100, max_tokens=8)
    reply = parse_response(json.dumps(completion).encode(), call)
    assert (reply.text, reply.tokens_in, reply.tokens_out, reply.cost_usd) == ("SO-d2", 30, 2, 50)
    assert (reply.failure.kind if reply.failure else None) == kind


def test_equal_replies_are_equal_bytes():
    first, second = (json.dumps(make_completion("inner", "SO-d2", 3, 2)) for _ in range(2))
    assert first == second
