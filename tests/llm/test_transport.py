"""Models in this process: what a client sees of them is what it would see of a server."""

import asyncio

import httpx2
import openai
import pytest

from lib.llm.client import Client
from lib.llm.errors import ReplyError
from lib.llm.transport import InProcess, completion
from tests.llm import server as scripted
from tests.llm.server import INNER, QUESTION, ask


def echo(body):
    return completion(body["model"], body["messages"][-1]["content"], 3, 2)


async def echo_later(body):
    await asyncio.sleep(0.01)
    return echo(body)


def refuse(body):
    raise ValueError(f"no model here reads {len(body['messages'])} messages")


def sent(answer, method: str, path: str, **content) -> httpx2.Response:
    async def play():
        async with httpx2.AsyncClient(
            transport=InProcess(answer), base_url="http://in-process"
        ) as client:
            return await client.request(method, path, **content)

    return asyncio.run(play())


@pytest.mark.parametrize("answer", [echo, echo_later])
def test_the_official_client_reads_a_reply(answer):
    async def play():
        http = httpx2.AsyncClient(transport=InProcess(answer))
        async with openai.AsyncOpenAI(
            api_key="none", base_url="http://in-process/v1", http_client=http
        ) as client:
            return await client.chat.completions.create(model="inner", messages=QUESTION)

    reply = asyncio.run(play())
    assert (
        reply.choices[0].message.content == "Which policy acts next?"
        and reply.choices[0].finish_reason == "stop"
    )
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (
        3,
        2,
        5,
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
    ],
)
def test_another_path_is_a_404_that_says_what_there_is(method, path):
    response = sent(echo, method, path, json={} if method == "POST" else None)
    assert response.status_code == 404
    assert (
        path in response.json()["error"]["message"]
        and "/v1/chat/completions" in response.json()["error"]["message"]
    )


def test_a_value_error_is_a_400_with_its_words_and_a_bad_request_of_the_client_and_no_json_a_400():
    assert sent(echo, "POST", "/v1/chat/completions", content=b"{").status_code == 400
    response = sent(refuse, "POST", "/v1/chat/completions", json={"messages": QUESTION})
    assert (response.status_code, response.json()["error"]["message"]) == (
        400,
        "no model here reads 2 messages",
    )
    parts = {"transports": {"scripted": InProcess(refuse)}}
    with pytest.raises(ReplyError, match="no model here reads 2 messages") as caught:
        ask(scripted.settings(models={"inner": INNER}), "inner", parts)
    assert caught.value.kind == "bad_request"


def test_models_in_this_process_are_limited_like_others():
    under_way = [0, 0]

    async def slow(body):
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(0.01)
        under_way[0] -= 1
        return echo(body)

    async def play():
        async with Client(
            scripted.settings(models={"inner": INNER}), {"scripted": InProcess(slow)}
        ) as client:
            return await asyncio.gather(
                *(client.chat("inner", QUESTION, seed=seed) for seed in range(10))
            )

    replies = asyncio.run(play())
    assert len(replies) == 10 and under_way == [0, 2]


def test_two_equal_replies_are_equal_bytes():
    one, two = (
        sent(echo, "POST", "/v1/chat/completions", json={"model": "m", "messages": QUESTION})
        for _ in "12"
    )
    assert one.content == two.content
