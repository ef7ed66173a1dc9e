"""An orchestrator that is only prompted: the same tools by function schemas, whatever a model makes of them."""

import json
import math
from collections.abc import Callable

import pytest

from lib.llm.chat_model import ChatRequest, Failure, Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.rl import call_protocol
from lib.tool_orchestration import prompted_baseline
from lib.tool_orchestration.episode_rewards import make_episode_rows
from lib.tool_orchestration.tool_environment import ToolEnvironment
from lib.tool_orchestration.tool_menu import UserPreference
from tests.budgeted_routing.small_systems import FunctionModel
from tests.tool_orchestration import common
from tests.tool_orchestration.common import CLOCK, NAMES, Singers, given, item, offers

BIG, FACT, CHAIN = item("big", 3), item("facts", 1), item("chain", 2)
RELATION, PLACE = FACT.id.split("/")[1:]
RIGHT = f"<answer> {FACT.reference} </answer>"


def says(text: str = "", *calls: tuple[str, dict | str], **fields) -> Reply:
    """A server's reply: text and calls, with an id for each call and the message as it came."""
    tool_calls = []
    for number, (name, arguments) in enumerate(calls):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        tool_calls.append(ToolCall(f"server-{number}", name, written))
    functions = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in tool_calls
    ]
    # Some servers refuse a conversation that lacks what came beside the text.
    message = {"role": "assistant", "content": text, "signature": "s-7"}
    if functions:
        message["tool_calls"] = functions
    return Reply(
        text, "agent", "endpoint", tuple(tool_calls), cost_usd=1e-6, message=message, **fields
    )


def fails(kind: str) -> Reply:
    return Reply("", "agent", "endpoint", failure=Failure(kind))


def writes(text: str) -> Reply:
    """A lab model's reply: a call stands in its text, its argument is a line of words."""
    name, *words = text.removeprefix("<call> ").removesuffix(" </call>").split()
    calls = (ToolCall("", name, " ".join(words)),) if text.startswith("<call>") else ()
    message = {"role": "assistant", "content": text}
    return Reply(text, "agent", "lab", calls, message=message)


class Prompted(Singers):
    """A pool with an orchestrator that says its turns one after another. What it was asked is kept."""

    def __init__(self, *turns, say: Callable | None = None, backend: str = "endpoint") -> None:
        super().__init__()
        self.requests: list[ChatRequest] = []
        by_turn = say or (lambda messages: turns[sum(m["role"] == "tool" for m in messages)])

        def answer(name, request):
            self.requests.append(request)
            return by_turn(request.messages)

        self.models = ChatModels({"agent": FunctionModel("agent", answer, backend)})

    def generate(self, model, requests):
        return self.models[model].generate(requests)

    @property
    def messages(self):
        return [list(request.messages) for request in self.requests]

    @property
    def offered(self):
        return [list(request.tools) for request in self.requests]


def played(assigned, *turns, rounds: int = 4, backend: str = "endpoint"):
    pool = Prompted(*turns, backend=backend)
    with ToolEnvironment(pool, CLOCK) as desk:
        (episode,) = prompted_baseline.roll_out_assignments(
            desk, "agent", [assigned], rounds, 0, 0.0
        )
    return episode, pool


def test_calls_are_made_at_the_desk_and_replies_stand_in_the_conversation_as_tools():
    assigned = given(FACT, "search", "calculator", "lab-mini", factors=(2.0, 3.0))
    asks = says("let me see", ("search", {"query": f"{RELATION} of {PLACE}"}))
    episode, pool = played(assigned, asks, says(RIGHT))
    assert episode.correct == 1.0 and episode.counts == {"search": 1}
    assert episode.answer == FACT.reference
    assert episode.cost_usd == pytest.approx(2 * offers()["search"].cost_usd)
    assert episode.seconds == pytest.approx(3 * offers()["search"].seconds)
    *_, turn, result = pool.messages[-1]
    assert turn == asks.message, "a server's message stands there whole"
    assert result["role"] == "tool" and result["tool_call_id"] == "server-0"
    assert result["content"].endswith(f"is {FACT.reference} .")


def test_of_several_calls_the_first_is_made_and_every_one_has_a_result():
    """Servers refuse a conversation in which a call is left without one."""
    search = ("search", {"query": f"{RELATION} of {PLACE}"})
    twice = says("", search, ("calculator", {"expression": "1 + 1"}))
    episode, pool = played(given(FACT, "search", "calculator"), twice, twice, says(RIGHT))
    results = [message for message in pool.messages[1] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["server-0", "server-1"]
    assert episode.counts == {"search": 1}


def test_a_server_without_ids_of_calls_gets_some_that_fit():
    bare = says("", ("search", {"query": f"{RELATION} of {PLACE}"}))
    call = ToolCall("", "search", bare.tool_calls[0].arguments)
    bare = Reply("", "agent", "endpoint", (call,), message={"content": None})
    episode, pool = played(given(FACT, "search", "calculator"), bare, says(RIGHT))
    *_, turn, result = pool.messages[-1]
    assert turn["tool_calls"][0]["id"] == result["tool_call_id"] and episode.correct == 1.0


def test_an_office_brings_its_functions_and_they_work():
    task = common.office(changes=True)
    function = task.domain.find_function(task.calls[0][0])
    words = dict(zip(function.parameters, task.calls[0][1:], strict=True))
    episode, pool = played(
        given(task, "search"), says("", (function.name, words)), says("<answer> done </answer>")
    )
    assert episode.correct == 1.0
    offered = [schema["function"]["name"] for schema in pool.offered[0]]
    assert offered == ["search", *(f.name for f in task.domain.functions)]


@pytest.mark.parametrize(
    "words", [{"relation": RELATION, "subject": PLACE}, {"subject": PLACE, "relation": RELATION}]
)
def test_arguments_are_read_by_name_whatever_their_order(words):
    episode, _ = played(given(FACT, "lookup", "search"), says("", ("lookup", words)), says(RIGHT))
    assert episode.turns[0].reply.text == FACT.reference


@pytest.mark.parametrize(
    "turn",
    [
        says("I do not know"),
        says("", ("nobody", {"query": "x"})),
        says("", ("lookup", {"relation": RELATION, "subject": PLACE})),  # not on this menu
        says("", ("search", "{")),
        says("", ("search", "{}")),
        says("", ("search", {"query": ""})),
        says("", ("search", "[" * 100_000)),
        fails("truncated"),
        fails("refusal"),
        fails("empty"),
    ],
)
def test_whatever_else_it_says_is_malformed_and_ends_the_episode(turn):
    episode, pool = played(given(FACT, "search", "calculator"), turn, says(RIGHT))
    assert episode.num_malformed == 1 and episode.correct == 0.0 and not episode.failed
    assert episode.counts == {} and len(pool.requests) == 1


@pytest.mark.parametrize("kind", ["timeout", "connection", "bad_request"])
def test_a_turn_that_the_server_lost_is_no_outcome(kind):
    episode, pool = played(given(FACT, "search", "calculator"), fails(kind), says(RIGHT))
    assert episode.failed and math.isnan(episode.correct) and len(pool.requests) == 1
    (row,) = make_episode_rows([episode], NAMES).to_dict("records")
    assert row["failed"] and math.isnan(row["correct"]) and row["calls"] == 0


def test_a_call_in_the_last_turn_is_neither_made_nor_malformed():
    """As with the lab's orchestrators."""
    asks = says("", ("calculator", {"expression": "1 + 1"}))
    episode, _ = played(given(BIG, "calculator", "python"), asks, asks, asks, rounds=2)
    assert episode.counts == {"calculator": 1} and len(episode.turns) == 2
    assert episode.answer is None and episode.num_malformed == 0
    assert isinstance(episode.turns[1].call, call_protocol.Call)


def test_episodes_side_by_side_read_their_own_results():
    works = [item("big", 1, seed) for seed in range(4)]

    def say(messages):
        if messages[-1]["role"] == "tool":
            return says(f"<answer> {messages[-1]['content']} </answer>")
        expression = messages[1]["content"].removesuffix(" = ?")
        return says("", ("calculator", {"expression": expression}))

    pool = Prompted(say=say)
    with ToolEnvironment(pool, CLOCK) as desk:
        assignments = [given(work, "calculator", "python") for work in works]
        episodes = prompted_baseline.roll_out_assignments(desk, "agent", assignments, 3, 0, 0.0)
    assert [episode.correct for episode in episodes] == [1.0] * 4
    assert len({request.seed for request in pool.requests}) == 8


def test_it_reads_the_user_in_a_sentence_and_the_menu_as_schemas_with_prices():
    who = UserPreference(1.0, 0.3, 0.0, ("search",))
    _, pool = played(given(FACT, "search", "lab-large", preference=who), says(RIGHT))
    system, user = pool.messages[0]
    assert who.sentence in system["content"] and user == {"role": "user", "content": FACT.prompt}
    search, model = (schema["function"] for schema in pool.offered[0])
    assert (search["name"], model["name"]) == ("search", "lab-large")
    for function, offer in ((search, offers()["search"]), (model, offers()["lab-large"])):
        assert f"${offer.typical_cost_usd:.2g}" in function["description"]
    assert "chain up to difficulty 6" in model["description"]
    assert list(search["parameters"]["properties"]) == ["query"]


@pytest.mark.parametrize(("work", "has_rule"), [(CHAIN, True), (BIG, False), (FACT, False)])
def test_the_rule_of_chains_stands_before_chains_only(work, has_rule):
    _, pool = played(given(work, "search", "calculator"), says(RIGHT))
    assert ("left to right" in pool.messages[0][0]["content"]) == has_rule


def test_a_lab_model_is_offered_lines_of_words():
    episode, pool = played(
        given(FACT, "lookup", "lab-large"),
        writes(f"<call> lookup {RELATION} {PLACE} </call>"),
        writes(RIGHT),
        backend="lab",
    )
    assert all(
        list(schema["function"]["parameters"]["properties"]) == ["words"]
        for schema in pool.offered[0]
    )
    assert pool.messages[0][0] == {"role": "system", "content": prompted_baseline.LAB_SYSTEM}
    assert episode.turns[0].reply.text == FACT.reference
    *_, turn, result = pool.messages[-1]
    assert turn["content"] == f"<call> lookup {RELATION} {PLACE} </call>"
    assert result["content"] == FACT.reference
