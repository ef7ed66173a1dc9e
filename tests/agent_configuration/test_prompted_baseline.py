"""A language model as policy: what it is asked, and what is made of its replies, whatever they are."""

import asyncio
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import config
from lib.agent_configuration import action_space, prompted_baseline
from lib.agent_configuration.action_space import Configuration, SpaceError
from lib.agent_configuration.prompted_baseline import (
    Example,
    PromptedChoice,
    parse_reply,
    to_reply_fields,
    write_messages,
)
from lib.agent_configuration.search import BASE
from lib.llm.chat_model import Failure
from lib.llm.errors import InfrastructureError
from lib.llm.json_replies import LONGEST, InvalidReply
from lib.llm.scripted_model import ScriptedModel
from tests.agent_configuration.small import CHAIN, LONG
from tests.llm.stub_model import StubModel

VERIFY = Configuration((2, 5, 1, 2, 1, 0))
TOLD = {
    "workflow": "verify",
    "tools1": ["calculator", "lookup"],
    "tools2": ["calculator"],
    "budgets": ["high", "medium", "low"],
}
TEXT = json.dumps(TOLD)
STRUCTURE = st.tuples(*(st.integers(0, size - 1) for size in action_space.SIZES)).map(
    action_space.repair_structure
)


# Replies -------------------------------------------------------------------------------------------


def test_a_configuration_is_written_as_a_reply_would_have_it():
    assert to_reply_fields(VERIFY) == TOLD
    assert to_reply_fields(BASE) == {
        "workflow": "direct",
        "tools1": ["calculator", "search", "lookup", "python"],
        "tools2": [],
        "budgets": ["high", "low", "high"],
    }


@settings(deadline=None)
@given(STRUCTURE)
def test_what_is_written_is_read_again(structure):
    assert parse_reply(json.dumps(to_reply_fields(Configuration(structure)))) == Configuration(
        structure
    )


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"I would choose this.\n{TEXT}\nIt is cheap.",
        TEXT.replace('"', "'"),
        TEXT.replace(", ", ",\n").replace("]}", "],}"),
        TEXT.replace('"workflow"', "workflow"),
        TEXT[:-1] + ', "why": "it is long"}',
        TEXT.replace('"lookup"', '"lookup", "calculator"'),
    ],
    ids=[
        "plain",
        "fenced",
        "in a text",
        "single quotes",
        "trailing comma",
        "bare key",
        "more keys",
        "twice the same",
    ],
)
def test_a_reply_is_read_also_where_it_has_to_be_mended(text):
    assert parse_reply(text) == VERIFY


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"workflow": "chaos"}, "no workflow 'chaos'; there are direct, reason"),
        ({"workflow": 2}, "workflow: Input should be a valid string"),
        ({"tools1": ["browser"]}, "no tool 'browser'"),
        ({"tools2": "calculator"}, "tools2: Input should be a valid list"),
        ({"budgets": ["low", "low"]}, "budgets are three of low, medium, high"),
        ({"budgets": ["low", "huge", "low"]}, "budgets are three of low, medium, high"),
        ({"budgets": []}, "budgets are three of low, medium, high"),
        ({"workflow": None}, "workflow: Input should be"),
    ],
)
def test_a_wrong_reply_is_an_error_that_names_what_is_wrong(change, complaint):
    with pytest.raises(SpaceError, match=complaint):
        parse_reply(json.dumps(TOLD | change))


HOPELESS = [
    "",
    "verify, please",
    "{}",
    "}{",
    "[1, 2]",
    "{" * 5_000,
    " " * LONGEST + TEXT,
    "{" + "[" * 1_500 + "}",
]


@pytest.mark.parametrize("text", HOPELESS)
def test_a_reply_without_a_configuration_is_an_error(text):
    with pytest.raises((InvalidReply, SpaceError)):
        parse_reply(text)


@settings(deadline=None)
@given(st.text(alphabet='{}[]":,workfldirectbugshm01 ', max_size=60))
def test_no_reply_breaks_the_reader(text):
    with suppress(InvalidReply, SpaceError):
        assert action_space.check_structure(parse_reply(text).structure)


# Choosing ------------------------------------------------------------------------------------------


def choose(model, items, examples=()):
    """Configurations from a model, and whether each is a fallback."""
    choices = asyncio.run(prompted_baseline.choose_configurations(model, items, examples))
    configurations = [choice.configuration for choice in choices]
    return configurations, [float(choice.is_fallback) for choice in choices]


def test_every_question_gets_its_own_configuration_in_order_and_the_base_where_a_reply_holds_none():
    replies = ["no idea", TEXT, "", json.dumps(to_reply_fields(BASE))]
    items = [CHAIN, LONG, CHAIN, LONG]
    model = StubModel(answer=lambda request: replies[request.seed])
    assert choose(model, items) == ([BASE, VERIFY, BASE, BASE], [1.0, 0.0, 1.0, 0.0])
    requests = sorted(model.requests, key=lambda request: request.seed)
    assert [request.messages for request in requests] == [
        write_messages(item.prompt, []) for item in items
    ]


@pytest.mark.parametrize("kind", ["truncated", "refusal", "moderation"])
def test_the_base_stands_in_for_a_model_that_cannot_answer_and_is_counted(kind):
    assert choose(StubModel(Failure(kind)), [CHAIN]) == ([BASE], [1.0])


@pytest.mark.parametrize("kind, is_lost", [("refusal", False), ("moderation", True)])
def test_a_choice_that_a_filter_stopped_is_lost_and_a_refusal_is_the_models(kind, is_lost):
    (choice,) = asyncio.run(
        prompted_baseline.choose_configurations(StubModel(Failure(kind)), [CHAIN], [])
    )
    assert choice == PromptedChoice(BASE, is_fallback=True, is_lost=is_lost)


def test_a_server_that_fails_is_no_choice_of_the_model():
    with pytest.raises(InfrastructureError, match="stub: a choice could not be asked for .timeout"):
        choose(StubModel(Failure("timeout", "late")), [CHAIN])


@pytest.mark.parametrize("examples", [(), (Example(CHAIN.prompt, VERIFY, 4.5),)])
def test_the_scripted_model_replies_with_a_configuration(examples):
    model = ScriptedModel("scripted-large", config.load("smoke").llm.models["scripted-large"])
    configurations, is_fallback = choose(model, [CHAIN, LONG], examples)
    assert is_fallback == [0.0, 0.0]
    assert configurations[0] != BASE and (configurations[0] == VERIFY) == bool(examples)


def test_what_a_workflow_lacks_is_ignored_and_tools_may_be_left_out():
    assert parse_reply(json.dumps(TOLD | {"workflow": "voting"})) == Configuration(
        (5, 5, 0, 2, 0, 0)
    )
    assert parse_reply(
        '{"workflow": "reason", "budgets": ["low", "low", "high"]}'
    ) == Configuration((1, 0, 0, 0, 0, 2))


def test_the_model_is_told_all_that_there_is_to_choose_from_and_examples_with_their_reward():
    system, user = write_messages("3 + 4 = ?", [])
    assert (system["role"], user) == ("system", {"role": "user", "content": "Question: 3 + 4 = ?"})
    assert (
        system["content"].startswith(prompted_baseline.ASKED) and "Example" not in system["content"]
    )
    for word in (
        *action_space.WORKFLOWS,
        *action_space.TOOLS,
        *action_space.AGENTS,
        *action_space.TIERS,
        *TOLD,
    ):
        assert word in system["content"]
    system, _ = write_messages(
        "3 + 4 = ?", [Example("1 + 1 = ?", VERIFY, 4.25), Example("2 + 2 = ?", BASE, -0.5)]
    )
    lines = system["content"].split("\n")[-4:]
    assert (
        lines[0] == "Example. Question: 1 + 1 = ?"
        and lines[1] == f"Configuration: {TEXT} Reward: 4.25"
    )
    assert lines[2] == "Example. Question: 2 + 2 = ?" and lines[3].endswith(" Reward: -0.50")
