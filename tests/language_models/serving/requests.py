"""Requests that several tests send, and how a client puts a stream together."""

import asyncio

from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.serving.chat_completions.service import CompletionService
from lib.language_models.tokenizer import EOS, decode

REQUEST = {
    "model": "lab-nano",
    "messages": [{"role": "user", "content": "the red key"}],
    "max_tokens": 12,
}
WORDS = (
    "the",
    "red",
    "key",
    "is",
    "in",
    "the",
    "box",
    "and",
    "the",
    "old",
    "key",
    "is",
    "on",
    "it",
)
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "computes",
        "parameters": {
            "type": "object",
            "properties": {"note": {}, "expression": {}},
            "required": ["expression"],
        },
    },
}
SEARCH = {"type": "function", "function": {"name": "search"}}
CALL_REQUEST = {
    "model": "caller",
    "messages": [{"role": "user", "content": "4 * 8"}],
    "temperature": 0,
    "max_tokens": 30,
}


def force(name: str) -> dict:
    """The tool_choice that names a tool."""
    return {"type": "function", "function": {"name": name}}


def complete(service: CompletionService, body: dict) -> dict:
    """The whole completion of a request."""

    async def run() -> dict:
        completion = await service.start_completion(body)
        return await completion.complete()

    return asyncio.run(run())


def stream(service: CompletionService, body: dict) -> list[dict]:
    """The chunks of a request."""

    async def run() -> list[dict]:
        completion = await service.start_completion(body | {"stream": True})
        return [chunk async for chunk in completion.iterate_chunks()]

    return asyncio.run(run())


def put_together(chunks: list[dict], index: int = 0) -> dict:
    """A choice as a client puts it together from chunks."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    choices = [choice for choice in choices if choice["index"] == index]
    deltas = [choice["delta"] for choice in choices]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert not any("role" in delta for delta in deltas[1:])
    assert all(choice["finish_reason"] is None for choice in choices[:-1])
    assert choices[-1]["finish_reason"]

    entries = []
    for choice in choices:
        if choice["logprobs"]:
            entries += choice["logprobs"]["content"]
    calls = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            calls.append({name: value for name, value in call.items() if name != "index"})
    content = "".join(delta.get("content", "") for delta in deltas)
    message = {"role": "assistant", "content": content}
    if calls:
        message = {"role": "assistant", "content": content or None, "tool_calls": calls}
    return {
        "message": message,
        "entries": entries,
        "finish_reason": choices[-1]["finish_reason"],
    }


def numbered_request(number: int) -> dict:
    """A request that differs from those of other numbers."""
    words = list(WORDS[: 1 + number % len(WORDS)])
    return REQUEST | {
        "messages": [{"role": "user", "content": " ".join(words)}],
        "seed": number,
        "max_tokens": 5 + number % 40,
    }


def generate_alone(models: dict, body: dict) -> str:
    """The reply to a request without a server."""
    prompt_ids = tuple(encode_conversation(body["messages"]))
    prompt = Prompt(prompt_ids, body["max_tokens"], 1.0, body["seed"])
    (generation,) = generate(models[body["model"]].forward, [prompt], encode_special(EOS))
    return decode(generation.ids)
