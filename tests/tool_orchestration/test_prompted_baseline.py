"""An orchestrator that is only prompted: the same tools by function schemas, whatever a model makes of them."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from lib.llm.client import Reply
from lib.llm.errors import ReplyError
from lib.rl import call_protocol
from lib.tool_orchestration import prompted_baseline
from lib.tool_orchestration.tool_environment import Desk
from lib.tool_orchestration.tool_menu import UserPreference
from tests.tool_orchestration import common
from tests.tool_orchestration.common import CLOCK, Singers, given, item, offers

BIG, FACT = item("big", 3), item("facts", 1)
RELATION, PLACE = FACT.key.split("/")[1:]
RIGHT = f"<answer> {FACT.answer} </answer>"


def says(text: str = "", *calls: tuple[str, dict | str]) -> Reply:
    told = tuple(
        (name, given if isinstance(given, str) else json.dumps(given)) for name, given in calls
    )
    return Reply(text, 10, 5, 1e-6, 0.0, "stop", "agent", "lab", calls=told)


class Prompted(Singers):
    """A pool with an orchestrator that says its turns one after another. What it was told is kept."""

    def __init__(self, *turns, say: Callable | None = None, backend: str = "endpoint") -> None:
        super().__init__()
        self.say = say or (lambda messages: turns[sum(m["role"] == "tool" for m in messages)])
        about = {"agent": SimpleNamespace(backend=backend)}
        self.client = SimpleNamespace(settings=SimpleNamespace(models=about))
        self.told, self.offered, self.keys = [], [], []

    def converse(self, model, conversations, tools, keys, temperature):
        self.told += [[dict(m) for m in each] for each in conversations]
        self.offered += list(tools)
        self.keys += list(keys)
        return [self.say(each) for each in conversations]


def played(assigned, *turns, rounds: int = 4, backend: str = "endpoint"):
    pool = Prompted(*turns, backend=backend)
    with Desk(pool, CLOCK) as desk:
        (episode,) = prompted_baseline.roll(desk, "agent", [assigned], rounds, 0, 0.0)
    return episode, pool


def test_calls_are_made_at_the_desk_and_replies_told_as_tools():
    assigned = given(FACT, "search", "calculator", "lab-mini", factors=(2.0, 3.0))
    asks = ("search", {"query": f"{RELATION} of {PLACE}"})
    episode, pool = played(assigned, says("let me see", asks), says(RIGHT))
    assert (
        episode.correct == 1.0 and episode.counts == {"search": 1} and episode.answer == FACT.answer
    )
    assert episode.cost_usd == pytest.approx(2 * offers()["search"].cost_usd)
    assert episode.seconds == pytest.approx(3 * offers()["search"].seconds)
    *_, asked, heard = pool.told[-1]
    assert asked["tool_calls"][0]["function"]["name"] == "search" and heard["role"] == "tool"
    assert heard["tool_call_id"] == asked["tool_calls"][0]["id"] and heard["content"].endswith(
        f"is {FACT.answer} ."
    )


def test_an_office_brings_its_functions_and_they_work():
    task = common.office(changes=True)
    function = task.domain.function(task.calls[0][0])
    words = dict(zip(function.parameters, task.calls[0][1:], strict=True))
    episode, pool = played(
        given(task, "search"), says("", (function.name, words)), says("<answer> done </answer>")
    )
    assert episode.correct == 1.0
    offered = [each["function"]["name"] for each in pool.offered[0]]
    assert offered == ["search", *(f.name for f in task.domain.functions)]


@pytest.mark.parametrize(
    "words", [{"relation": RELATION, "subject": PLACE}, {"subject": PLACE, "relation": RELATION}]
)
def test_arguments_are_told_by_name_whatever_their_order(words):
    episode, _ = played(given(FACT, "lookup", "search"), says("", ("lookup", words)), says(RIGHT))
    assert episode.exchanges[0].heard.text == FACT.answer


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
        ReplyError("timeout", "no reply", cost_usd=1e-6),
    ],
)
def test_whatever_else_it_says_is_malformed_and_ends_the_episode(turn):
    episode, pool = played(given(FACT, "search", "calculator"), turn, says(RIGHT))
    assert (
        episode.malformed == 1
        and episode.correct == 0.0
        and episode.counts == {}
        and len(pool.told) == 1
    )


def test_a_call_in_the_last_turn_is_neither_made_nor_malformed():
    """As with the lab's orchestrators."""
    asks = says("", ("calculator", {"expression": "1 + 1"}))
    episode, _ = played(given(BIG, "calculator", "python"), asks, asks, asks, rounds=2)
    assert (
        episode.counts == {"calculator": 1}
        and len(episode.exchanges) == 2
        and episode.answer is None
    )
    assert isinstance(episode.exchanges[1].call, call_protocol.Call) and episode.malformed == 0


def test_episodes_side_by_side_hear_their_own():
    works = [item("big", 1, seed) for seed in range(4)]

    def say(messages):
        if messages[-1]["role"] == "tool":
            return says(f"<answer> {messages[-1]['content']} </answer>")
        return says("", ("calculator", {"expression": messages[1]["content"].removesuffix(" = ?")}))

    with Desk(pool := Prompted(say=say), CLOCK) as desk:
        episodes = prompted_baseline.roll(
            desk, "agent", [given(w, "calculator", "python") for w in works], 3, 0, 0.0
        )
    assert [e.correct for e in episodes] == [1.0] * 4 and len(set(pool.keys)) == 8


def test_it_is_told_the_user_in_a_sentence_and_the_menu_as_schemas_with_prices():
    who = UserPreference(1.0, 0.3, 0.0, ("search",))
    _, pool = played(given(FACT, "search", "lab-large", preference=who), says(RIGHT))
    system, user = pool.told[0]
    assert who.sentence in system["content"] and user == {"role": "user", "content": FACT.prompt}
    search, model = (each["function"] for each in pool.offered[0])
    assert (search["name"], model["name"]) == ("search", "lab-large")
    for function, offer in ((search, offers()["search"]), (model, offers()["lab-large"])):
        assert f"${offer.typical_cost_usd:.2g}" in function["description"]
    assert "chain up to difficulty 6" in model["description"]
    assert list(search["parameters"]["properties"]) == ["query"]


def test_a_lab_model_is_offered_lines_of_words():
    asks = says("", ("lookup", {"words": f"{RELATION} {PLACE}"}))
    episode, pool = played(given(FACT, "lookup", "lab-large"), asks, says(RIGHT), backend="lab")
    assert all(
        list(each["function"]["parameters"]["properties"]) == ["words"] for each in pool.offered[0]
    )
    assert pool.told[0][0] == {"role": "system", "content": prompted_baseline.LAB_SYSTEM}
    assert episode.exchanges[0].heard.text == FACT.answer
