"""Hostile bodies and texts through every road that reads a reply.

A body is answered to the client as an endpoint would; a text is what a model writes, as its words and as the
arguments of a tool call. The roads are those of the lessons: an orchestrator's decision, a judge's scores, the
conductor's judge, an expert of a controller, a prompted orchestrator at its desk, a prompted configuration, an agent
with its tools, a writer of tasks.

    uncaught    a road ended in anything but a reply, a typed error or its declared fallback
    lost        a decision, vote or answer that is none, or that no file and no next request can hold
    unbounded   an input that took more than SECONDS of the processor, or grew memory by more than MEGABYTES
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import httpx2

from lib.agent_configuration import prompted_baseline
from lib.agent_configuration.agent_models import EndpointAgentModel, answer_of
from lib.agent_configuration.search import BASE
from lib.conductor.llm_judge import JudgeReward, majority
from lib.config import LLMSettings
from lib.llm.client import Client, Reply
from lib.llm.errors import ReplyError
from lib.llm.transport import LARGEST, InProcess, completion
from lib.orchestration.decisions import OrchestrationEpisode
from lib.orchestration.llm_judge import CRITERIA, _scored
from lib.orchestration.orchestrators import Orchestrator
from lib.rl import call_protocol
from lib.rl.expert_pool import Pool, Query
from lib.tasks.synthesis import llm_writer
from tests.agent_configuration.small import toolbox
from tests.hardening.endpoint import answer, served
from tests.llm.server import completion as scripted
from tests.llm.server import settings
from tests.orchestration import zoo
from tests.tool_orchestration.test_prompted_baseline import FACT, given, played, says

SECONDS = 10.0
MEGABYTES = 400
GOOD = '{"reasoning": "gaps are open", "policy": "SO-d2"}'
TOOLS = {
    name: tool for name, tool in toolbox().items() if name != "python"
}  # its sandbox is another section's
Road = Callable[[Client, str], Awaitable[Any] | Any]


# What comes ---------------------------------------------------------------------------------------

CORES = {
    "nothing": "",
    "blanks": " \n\t" * 40,
    "zero": "\x00",
    "controls": "".join(map(chr, range(32))) + "\x7f\x9b",
    "half a pair": "\ud800",
    "pairs the wrong way": "\udc00\ud83d",
    "an escaped half": "\\ud800",
    "marks": "\u202e\u2066\ufeff",
    "combining": "e" + "\u0301" * 3_000,
    "beyond": "\U0010ffff" * 99,
    "markup": "<script>alert(1)</script>",
    "an entity": "&#0;&lt;",
    "a tag": "</think></answer></call></response>",
    "thoughts": "<think>" * 900,
    "answers": "<answer>" * 900,
    "calls": "<call> a <t>" * 500,
    "fences": "```" * 900,
    "lists": "[" * 3_000,
    "objects": '{"a":' * 3_000,
    "closed": '{"a":' * 900 + "1" + "}" * 900,
    "an odd list": "{" + "[" * 1_500 + "}",
    "braces": "}{" * 900,
    "quotes": "\"'" * 900,
    "slashes": "\\" * 2_001,
    "a number": "9" * 5_000,
    "tiny": "1e-999999",
    "vast": "1e999999",
    "no number": "NaN",
    "minus": "-" * 3_000,
    "commas": "," * 3_000,
    "colons": "a:b," * 900,
    "formats": "{0.__class__} %s %(x)s ${x}",
    "maths": "$x^{$b",
    "a path": "../../etc/passwd",
    "sql": "'; DROP TABLE spent;--",
    "yaml": "a: &a [*a]",
    "a unit": "\x1f\x1e\x1d\u2028\u2029\x85",
    "digits": "٣۳３",
    "wide": "ＳＯ-ｄ１",
    "keys": '{"policy":1,"policy":2}',
    "null": "null",
    "true": "true",
    "a list": '["SO-d1"]',
    "a name": "SO-d1",
    "good": GOOD,
}
WRAPS = {
    "alone": "%s",
    "policy": '{"reasoning": "x", "policy": "%s"}',
    "raw": '{"policy": %s}',
    "thought": "<think>%s</think>" + GOOD,
    "before": "%s" + GOOD,
    "answer": "<answer>%s</answer>",
    "arguments": '{"expression": "%s"}',
    "workflow": '{"workflow": "%s", "tools1": %s, "budgets": [%s]}',
}


def texts() -> list[str]:
    """Every core in every wrap, and some that are longer than anything is read."""
    mixed = [wrap.replace("%s", core) for core, wrap in product(CORES.values(), WRAPS.values())]
    return [
        *mixed,
        GOOD * 2_000,
        "a" * 60_000,
        "{" * 15_000,
        "[" * 15_000,
        '"' * 15_000,
        "9" * 60_000,
        "<call>" * 9_000,
    ]


def bodies() -> list[tuple[bytes, dict[str, str]]]:
    """Bodies of a 200, with their headers."""
    whole = json.dumps(scripted(GOOD)).encode()
    plain = [whole[: len(whole) * part // 12] for part in range(12)]
    plain += [
        b"[" * 200_000,
        b'{"choices":' * 50_000,
        b"{" + b" " * LARGEST,
        b"\xff\xfe" + whole,
        b"\xef\xbb\xbf" + whole,
    ]
    plain += [
        b"[{}" + b",{}" * 300_000 + b"]",
        b'{"choices": [' + b"{}," * 300_000 + b"{}]}",
        b"9" * 6_000,
        b"NaN",
        b"<html>",
    ]
    odd = [
        None,
        0,
        -1,
        1.5,
        True,
        "x",
        "\ud800",
        [],
        {},
        [None],
        [[]],
        ["x"],
        {"a": {}},
        10**400,
        "a" * 100_000,
    ]
    spots = (
        "choices",
        "choice",
        "message",
        "content",
        "finish_reason",
        "tool_calls",
        "function",
        "arguments",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "error",
        "refusal",
        "model",
    )
    plain += [json.dumps(_placed(spot, value)).encode() for spot, value in product(spots, odd)]
    packed = [gzip.compress(b" " * 30 * LARGEST), gzip.compress(whole)[:-8], whole]
    return [(body, {}) for body in plain] + [
        (body, {"content_encoding": "gzip"}) for body in packed
    ]


def _placed(spot: str, value: Any) -> dict[str, Any]:
    """A reply with an odd value in one place."""
    body = scripted(GOOD)
    choice, call = (
        body["choices"][0],
        {"id": "1", "type": "function", "function": {"name": "calculator", "arguments": "{}"}},
    )
    choice["message"]["tool_calls"] = [call]
    where = {
        "choice": (body["choices"], 0),
        "message": (choice, spot),
        "finish_reason": (choice, spot),
        "content": (choice["message"], spot),
        "tool_calls": (choice["message"], spot),
        "refusal": (choice["message"], spot),
        "function": (call, spot),
        "arguments": (call["function"], spot),
        "prompt_tokens": (body["usage"], spot),
        "completion_tokens": (body["usage"], spot),
    }
    holder, key = where.get(spot, (body, spot))
    holder[key] = value
    return body


# Where it goes ------------------------------------------------------------------------------------


async def decided(client: Client, kind: str) -> None:
    """A decision of an orchestrator: one of the policies, whatever was said."""
    world = zoo.world("education")
    asked = zoo.SMOKE.orchestration
    one = Orchestrator(
        kind, "mine", client, asked, zoo.cards("education"), zoo.SMOKE.education.topic
    )
    decision = await one.decide(OrchestrationEpisode(world))
    assert decision.policy in world.menu.names
    decision.reasoning.encode()


async def scored(client: Client) -> None:
    """What the judge of orchestrators makes of an episode: scores, or none at all."""
    told = await _scored(client, "mine", [{"role": "user", "content": "How good was it?"}])
    found = [told[name] for name in CRITERIA]
    assert all(value != value for value in found) or all(0 <= value <= 100 for value in found)


async def graded(client: Client) -> None:
    """A grade of the conductor's judge."""
    grade = await JudgeReward(lambda: client, "mine")._grade(
        client, "1 + 1 = ?", "<answer> 2 </answer>", "2"
    )
    assert 0 <= grade <= 1


async def configured(client: Client) -> None:
    """A configuration by a prompted model, or the declared one in its place."""
    made, failed = await prompted_baseline.choose(client, "mine", [FACT], [])
    assert failed == [0.0] or made == [BASE]


async def spoken(client: Client) -> None:
    """A turn of an agent, its call of each tool, and the next turn, which is told all of it."""
    speaker = EndpointAgentModel(client, "mine", 0.0, 1.0)
    told = [{"role": "user", "content": "1 + 1 = ?"}]
    said = await speaker.say(told, TOOLS, 50, 0)
    if said.call is not None:
        results = [answer_of(tool, said.call[1], speaker, "") for tool in TOOLS.values()]
        note = speaker.worded(said.call[1]) + "".join(results)
        note.encode()
        await speaker.say([*told, *speaker.exchange(said, note)], TOOLS, 50, 1)


def heard(client: Callable[[], Client]) -> None:
    """What a controller hears of an expert."""
    with Pool(client, {"expert": "mine"}, 0.0) as pool:
        (reply,) = pool.ask([Query("expert", "1 + 1 = ?")])
        call_protocol.heard(reply.text).encode()


def at_desk(text: str) -> None:
    """An episode of a prompted orchestrator whose every word, or call, is this."""
    for turn in (
        says(text),
        says("", ("search", text)),
        says("", ("calculator", text)),
        says("", (text or "x", "{}")),
    ):
        episode, _ = played(given(FACT, "search", "calculator"), turn, says("<answer> 2 </answer>"))
        assert episode.done and episode.correct in (0.0, 1.0)


def elsewhere(text: str) -> None:
    """Readers that are handed a text alone."""
    call_protocol.parse(text, ("mini",))
    llm_writer._read(text)
    graders = (lambda: _Saying(text)), "mine", ["q"], ["r"], ["a"]
    assert {majority(*graders)[0], majority(*graders, ["b"])[0]} <= {True, False, None}


class _Saying:
    """A client that says one thing; opens itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def __aenter__(self) -> _Saying:
        return self

    async def __aexit__(self, *exc) -> None:
        return None

    async def chat(self, *_, **__) -> Reply:
        return Reply(self.text, 1, 1, 0.0, 0.0, "stop", "mine", "lab")


async def answered(client: Client) -> None:
    """The client alone."""
    try:
        reply = await client.chat("mine", [{"role": "user", "content": "1 + 1 = ?"}])
        reply.text.encode()
    except ReplyError as error:
        (error.text + str(error)).encode()


ROADS = (
    answered,
    scored,
    graded,
    configured,
    spoken,
    *(lambda c, kind=kind: decided(c, kind) for kind in ("KO", "TO", "RO")),
)


async def travelled(client: Client, found: Counter) -> None:
    """All roads behind a client."""
    for road in ROADS:
        try:
            await road(client)
        except (AssertionError, UnicodeEncodeError):
            found["lost"] += 1
        except Exception as error:
            found["uncaught"] += 1
            found[f"{type(error).__name__}: {str(error)[:80]}"] += 1


def by_itself(found: Counter, road: Callable[..., None], *given: Any) -> None:
    """A road that brings its own event loop."""
    try:
        road(*given)
    except (AssertionError, UnicodeEncodeError):
        found["lost"] += 1
    except Exception as error:
        found["uncaught"] += 1
        found[f"{type(error).__name__}: {str(error)[:80]}"] += 1


@contextmanager
def bounded(found: Counter) -> Iterator[None]:
    """Count an input that takes too long or too much."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    found["unbounded"] += time.process_time() - began > SECONDS or grown > MEGABYTES


def _inner() -> LLMSettings:
    """Settings in which `mine` answers in this process."""
    about = settings(retries=0, max_tokens=2_000).models["mine"].model_dump()
    return settings(
        models={"mine": about | {"backend": "scripted", "base_url": None, "api_key_env": None}}
    )


def written(text: str, found: Counter) -> None:
    """A text through all roads, as words and as the arguments of a call."""

    def words(_body: dict) -> dict:
        return completion("mine", text, 10, 5)

    def call(_body: dict) -> dict:
        body = completion("mine", "", 10, 5)
        function = {"name": "calculator", "arguments": text}
        body["choices"][0]["message"]["tool_calls"] = [
            {"id": "1", "type": "function", "function": function}
        ]
        return body

    async def play(reply: Callable[[dict], dict]) -> None:
        async with Client(_inner(), {"scripted": InProcess(reply)}) as client:
            await travelled(client, found)

    with bounded(found):
        for reply in (words, call):
            asyncio.run(play(reply))
        by_itself(found, heard, lambda: Client(_inner(), {"scripted": InProcess(words)}))
        by_itself(found, at_desk, text)
        by_itself(found, elsewhere, text)


def sent(body: bytes, headers: dict[str, str], found: Counter) -> None:
    """A body through the roads behind the client."""

    async def act(_request: httpx2.Request) -> httpx2.Response:
        return answer(body, **headers)

    async def play() -> None:
        async with Client(settings(api_key_env=None, retries=0, timeout=60.0)) as client:
            await travelled(client, found)

    with bounded(found), served(act):
        asyncio.run(play())


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Hostile inputs, and what they did. scale: the share of them, at the most 1."""
    logging.getLogger("openai").setLevel(logging.ERROR)
    every = max(1, round(1 / scale))
    found, some, parts = Counter(), texts()[::every], bodies()[::every]
    for number, text in enumerate(some):
        written(text, found)
        if number % 100 == 99:
            say(f"{number + 1} texts, {found['uncaught']} uncaught, {found['lost']} lost")
    for body, headers in parts:
        sent(body, headers, found)
    odd = [f"{times} x {name}" for name, times in found.most_common() if ":" in name]
    say(
        f"{len(some)} texts and {len(parts)} bodies through {len(ROADS) + 3} roads; odd: {', '.join(odd[:5]) or 'none'}"
    )
    return {"replies.hostile": len(some) + len(parts)} | {
        f"replies.{key}": found[key] for key in ("uncaught", "lost", "unbounded")
    }
