"""Hostile bodies and texts through every road that reads a reply.

A body is what a server sends; a text is what a model writes, as its words and as the arguments of a tool call. The
roads are those of the lessons: an orchestrator's decision, a judge's scores, the conductor's judge, an expert of a
controller, a prompted orchestrator at its desk, a prompted configuration, an agent with its tools, a writer of tasks.

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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import httpx2

from lib.agent_configuration import prompted_baseline
from lib.agent_configuration.agent_models import ChatAgentModel, answer_call
from lib.agent_configuration.search import BASE
from lib.conductor.llm_judge import JudgeReward, vote_by_majority
from lib.language_models import tool_call_formats
from lib.llm.chat_completion import make_completion
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.endpoint import Endpoint
from lib.llm.errors import InfrastructureError
from lib.llm.open_models import ChatModels
from lib.llm.safe_transport import LARGEST_BODY
from lib.llm.scripted_model import ScriptedModel
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.decision_model import LOST, UNUSABLE
from lib.orchestration.llm_judge import CRITERIA, _score_episode
from lib.orchestration.prompted_model import PromptedModel
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertPool, ExpertQuery
from lib.tasks.synthesis import llm_writer
from tests.agent_configuration.small import toolbox
from tests.hardening.endpoint import PatientWatch, answer, served
from tests.llm.server import completion as scripted
from tests.llm.server import settings_of
from tests.llm.stub_model import StubModel
from tests.orchestration.contests import make_context, make_result
from tests.tool_orchestration.test_prompted_baseline import FACT, given, played, says

SECONDS = 10.0
MEGABYTES = 400
GOOD = '{"reasoning": "gaps are open", "policy": "SO-d2"}'
TOOLS = {
    name: tool for name, tool in toolbox().items() if name != "python"
}  # its sandbox is another section's
Road = Callable[[ChatModel], Awaitable[Any]]


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
        b"{" + b" " * LARGEST_BODY,
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
    packed = [gzip.compress(b" " * 30 * LARGEST_BODY), gzip.compress(whole)[:-8], whole]
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


async def decide(model: ChatModel, system: str) -> None:
    """A decision of an orchestrator: a policy of the menu, calls for policies that were not tried, or none by name."""
    decider = PromptedModel("mine", "endpoint", StubModel().open)
    context = make_context("education", system)
    while True:
        try:
            decision = await decider._decide(model, context)
        except InfrastructureError:
            return
        decision.reasoning.encode()
        if not decision.calls:
            break
        assert set(decision.calls) <= set(context.untried)
        results = [make_result("education", policy, system) for policy in decision.calls]
        context = replace(
            context,
            tool_results=(*context.tool_results, *results),
            calls_left=context.calls_left - len(results),
        )
    if decision.probabilities is None:
        assert decision.failure in (UNUSABLE, LOST)
    else:
        assert len(decision.probabilities) == len(context.policies)
        assert sorted(decision.probabilities) == [0, 0, 1]


async def score_episode(model: ChatModel) -> None:
    """What the judge of orchestrators makes of an episode: scores, or none at all."""
    row = await _score_episode(model, [{"role": "user", "content": "How good was it?"}])
    scores = [row[name] for name in CRITERIA]
    is_lost = all(score != score for score in scores)
    assert is_lost or all(score in (1, 2, 3, 4, 5) for score in scores)


async def grade(model: ChatModel) -> None:
    """A grade of the conductor's judge, or none."""
    judge = JudgeReward(lambda: ChatModels({"mine": model}), "mine")
    score = await judge._grade(model, "1 + 1 = ?", "<answer> 2 </answer>", "2")
    assert score is None or 0 <= score <= 1


async def choose_configuration(model: ChatModel) -> None:
    """A configuration by a prompted model, the declared one in its place, or a run that ends by name."""
    try:
        (choice,) = await prompted_baseline.choose_configurations(model, [FACT], [])
    except InfrastructureError:
        return
    assert not choice.is_fallback or choice.configuration == BASE


async def take_turns(model: ChatModel) -> None:
    """A turn of an agent, its call of each tool, and the next turn, which reads all of it."""
    agent = ChatAgentModel(model, 0.0, 1.0)
    messages = [{"role": "user", "content": "1 + 1 = ?"}]
    reply = await agent.take_turn(messages, TOOLS, 50, 0)
    if reply.tool_calls:
        arguments = reply.tool_calls[0].arguments
        results = [answer_call(tool, arguments, agent, "") for tool in TOOLS.values()]
        note = agent.describe_arguments(arguments) + "".join(results)
        note.encode()
        await agent.take_turn([*messages, *agent.write_exchange(reply, note)], TOOLS, 50, 1)


def ask_expert(model: ChatModel) -> None:
    """What a controller reads of an expert."""
    with ExpertPool(ChatModels({"mine": model}), {"expert": "mine"}, 0.0) as pool:
        (reply,) = pool.ask([ExpertQuery("expert", "1 + 1 = ?")])
        call_protocol.clean_reply(reply.text).encode()


def use_tools(text: str) -> None:
    """An episode of a prompted orchestrator whose every word, or call, is this."""
    turns = (
        says(text),
        says("", ("search", text)),
        says("", ("calculator", text)),
        says("", (text or "x", "{}")),
    )
    for turn in turns:
        assignment = given(FACT, "search", "calculator")
        episode, _ = played(assignment, turn, says("<answer> 2 </answer>"))
        assert episode.is_done and episode.correct in (0.0, 1.0)


def read_alone(text: str) -> None:
    """Readers that are handed a text alone."""
    call_protocol.parse_turn(text, ("mini",))
    llm_writer.read_json(text)
    tool_call_formats.parse_tool_calls(text, TOOLS)
    open_judge = StubModel(text, name="mine").open
    judged = open_judge, "mine", ["q"], ["r"], ["a"]
    assert {vote_by_majority(*judged)[0], vote_by_majority(*judged, ["b"])[0]} <= {
        True,
        False,
        None,
    }


async def reply_alone(model: ChatModel) -> None:
    """The model alone: text, calls and failure can all stand in a file."""
    reply = await model.reply_to(ChatRequest([{"role": "user", "content": "1 + 1 = ?"}]))
    parts = [reply.text, reply.finish_reason, json.dumps(dict(reply.message), ensure_ascii=False)]
    parts += [f"{call.id} {call.name} {call.arguments}" for call in reply.tool_calls]
    if reply.failure is not None:
        parts.append(reply.failure.detail)
    "".join(parts).encode()


ROADS = (
    reply_alone,
    score_episode,
    grade,
    choose_configuration,
    take_turns,
    *(partial(decide, system=system) for system in SYSTEMS),
)


async def take_roads(model: ChatModel, found: Counter) -> None:
    """All roads behind a model."""
    for road in ROADS:
        with counted(found):
            await road(model)


@contextmanager
def counted(found: Counter) -> Iterator[None]:
    """Count what a road ended in, where it should not have."""
    try:
        yield
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


def try_text(text: str, found: Counter) -> None:
    """A text through all roads, as words and as the arguments of a call."""
    function = {"name": "calculator", "arguments": text}

    def write_words(_body: Mapping[str, Any]) -> dict[str, Any]:
        return make_completion("mine", text, 10, 5)

    def write_call(_body: Mapping[str, Any]) -> dict[str, Any]:
        body = make_completion("mine", "", 10, 5)
        calls = [{"id": "1", "type": "function", "function": function}]
        body["choices"][0]["message"]["tool_calls"] = calls
        return body

    about = settings_of(max_tokens=2_000)
    with bounded(found):
        for respond in (write_words, write_call):
            asyncio.run(take_roads(ScriptedModel("mine", about, respond), found))
        with counted(found):
            ask_expert(ScriptedModel("mine", about, write_words))
        with counted(found):
            use_tools(text)
        with counted(found):
            read_alone(text)


def try_body(body: bytes, headers: dict[str, str], found: Counter) -> None:
    """A body through the roads behind an endpoint."""

    async def act(_request: httpx2.Request) -> httpx2.Response:
        return answer(body, **headers)

    async def play() -> None:
        about = settings_of(api_key_env=None, retries=0, timeout=60.0)
        async with Endpoint("mine", about, watch=PatientWatch("mine")) as model:
            await take_roads(model, found)

    with bounded(found), served(act):
        asyncio.run(play())


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Hostile inputs, and what they did. scale: the share of them, at the most 1."""
    logging.getLogger("openai").setLevel(logging.ERROR)
    every = max(1, round(1 / scale))
    found, some, parts = Counter(), texts()[::every], bodies()[::every]
    for number, text in enumerate(some):
        try_text(text, found)
        if number % 100 == 99:
            say(f"{number + 1} texts, {found['uncaught']} uncaught, {found['lost']} lost")
    for body, headers in parts:
        try_body(body, headers, found)
    odd = [f"{times} x {name}" for name, times in found.most_common() if ":" in name]
    say(
        f"{len(some)} texts and {len(parts)} bodies through {len(ROADS) + 3} roads; odd: {', '.join(odd[:5]) or 'none'}"
    )
    return {"replies.hostile": len(some) + len(parts)} | {
        f"replies.{key}": found[key] for key in ("uncaught", "lost", "unbounded")
    }
