"""Query and code writer: a model writes, search and sandbox carry out; absent without a capable model."""

import json

import pytest

from lib import config
from lib.llm.chat_model import Failure, Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.tool_orchestration import plain_prompt, prompted_baseline, writer_tools
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import ToolEnvironment
from lib.tool_orchestration.tool_menu import FUNCTIONS, ToolMenu
from lib.tool_orchestration.writer_tools import CODE_WRITER, QUERY_WRITER
from tests.budgeted_routing.job_helpers import ENDPOINT_MODEL
from tests.budgeted_routing.small_systems import SMOKE_PARAMS, FunctionModel
from tests.tool_orchestration import common
from tests.tool_orchestration.common import item

BIG, FACT = item("big", 2), item("facts", 1)
RELATION, PLACE = FACT.id.split("/")[1:]
MODELS = {QUERY_WRITER: "writer", CODE_WRITER: "writer"}


def settings(**changes) -> config.Params:
    """Parameters with an endpoint among the models."""
    content = SMOKE_PARAMS.model_dump()
    common_settings = config.read_params_file()["llm"]["common"]
    content["llm"]["models"]["hosted"] = common_settings | ENDPOINT_MODEL
    content["tools"] |= changes
    return config.validate_settings(content, config.Params, "a test")


class Writer(common.Singers):
    """A pool with a model that writes what a function of the prompt says, and an agent that calls one tool once."""

    def __init__(self, write, tool: str = "", question: str = "", final: str = "") -> None:
        super().__init__()
        self.requests = []

        def reply_as_writer(name, request):
            self.requests.append(request)
            written = write(request.messages[-1]["content"])
            if isinstance(written, Reply):
                return written
            return Reply(written, name, "endpoint", tokens_in=90, tokens_out=20, cost_usd=2e-5)

        def reply_as_agent(name, request):
            if any(message["role"] == "tool" for message in request.messages):
                return Reply(f"<answer> {final} </answer>", name, "endpoint")
            tool_call = ToolCall("id", tool, json.dumps({"question": question}))
            message = {"role": "assistant", "content": ""}
            return Reply("", name, "endpoint", (tool_call,), message=message)

        self.models = ChatModels(
            {
                "writer": FunctionModel("writer", reply_as_writer),
                "agent": FunctionModel("agent", reply_as_agent),
            }
        )

    def generate(self, model, requests):
        return self.models[model].generate(requests)


def play(work, tool, write, question="question", final="1", factors=(1.0, 1.0)):
    """One episode: a call of the tool with a question, then an answer."""
    llm = settings().llm
    offer = writer_tools.make_writer_offer(tool, llm, "hosted", 50.0).scale_prices(*factors)
    assigned = Assignment(work, ToolMenu((offer, common.offers()["search"])), common.NOBODY)
    pool = Writer(write, tool, question, final)
    with ToolEnvironment(pool, common.CLOCK, writer_models=MODELS) as environment:
        (episode,) = prompted_baseline.roll_out_assignments(
            environment, "agent", [assigned], 4, 0, 0.0
        )
    return episode, pool


def test_what_a_model_writes_is_searched_for_and_the_document_comes_back():
    def write(prompt):
        assert FACT.prompt in prompt
        return f'\nQuery: "{RELATION} of {PLACE}"\nI hope this helps.'

    episode, pool = play(FACT, QUERY_WRITER, write)
    assert episode.replies[0].text.endswith(f"is {FACT.reference} .")
    assert len(pool.requests) == 1 and episode.counts == {QUERY_WRITER: 1}


@pytest.mark.parametrize("fence", ["```python\n{}\n```", "Here it is:\n```\n{}\n```\nDone.", "{}"])
def test_a_program_that_a_model_writes_runs_in_the_sandbox(fence):
    expression = BIG.prompt.removesuffix(" = ?")
    episode, _ = play(
        BIG,
        CODE_WRITER,
        lambda prompt: fence.format(f"print({expression})"),
        final=BIG.reference,
    )
    assert episode.replies[0].text.strip() == BIG.reference and episode.correct == 1.0


@pytest.mark.parametrize(
    ("tool", "written"),
    [
        (CODE_WRITER, "print(1 / 0)"),
        (CODE_WRITER, "open('/etc/passwd').read()"),
        (CODE_WRITER, ""),
        (QUERY_WRITER, "  \n "),
    ],
)
def test_what_cannot_be_carried_out_is_an_error_that_is_paid_for(tool, written):
    episode, _ = play(BIG, tool, lambda prompt: written, "what is it")
    assert episode.replies[0].text == "" and episode.replies[0].tool_error
    assert not episode.failed and episode.cost_usd == pytest.approx(2e-5)


def test_a_call_costs_what_the_model_bills_times_the_factor_of_the_menu():
    episode, _ = play(BIG, CODE_WRITER, lambda prompt: "print(1)", factors=(3.0, 2.0))
    assert episode.cost_usd == pytest.approx(3 * 2e-5)
    assert episode.seconds == pytest.approx(2 * 20 / 50.0)


def test_a_writer_that_the_server_lost_leaves_the_episode_out_of_all_scores():
    lost = Reply("", "writer", "endpoint", failure=Failure("timeout"))
    episode, _ = play(BIG, CODE_WRITER, lambda prompt: lost)
    assert episode.failed


def test_without_a_capable_model_no_writer_is_on_the_menu_and_a_sentence_says_why():
    for changes, reason in (
        ({}, "no model writes for it; name one of llm.models in tools.code_writer"),
        ({"code_writer": "large"}, "large is a lab model"),
        ({"code_writer": "scripted-large"}, "scripted-large is a program"),
    ):
        params = settings(**changes)
        models, sentences = writer_tools.choose_writers(params.llm, params.tools, FUNCTIONS)
        assert models == {} and len(sentences) == 2
        (sentence,) = [s for s in sentences if s.startswith("code_writer is not on the menu")]
        assert reason in sentence


def test_a_hosted_model_puts_its_writer_on_the_menu_where_its_tool_is_of_use():
    params = settings(query_writer="hosted", code_writer="hosted")
    models, sentences = writer_tools.choose_writers(params.llm, params.tools, FUNCTIONS)
    assert models == {QUERY_WRITER: "hosted", CODE_WRITER: "hosted"} and sentences == []
    # The documents of the search are the lab's: for other questions there is nothing to find.
    models, sentences = writer_tools.choose_writers(
        params.llm, params.tools, ("calculator", "python")
    )
    assert models == {CODE_WRITER: "hosted"} and "search knows nothing" in sentences[0]


def test_orchestrators_read_what_a_writer_does_and_costs():
    params = settings()
    offer = writer_tools.make_writer_offer(CODE_WRITER, params.llm, "hosted", 50.0)
    assert offer.typical_cost_usd > 0 and offer.typical_seconds > 0
    assert "writes a program" in plain_prompt.describe_offer(offer)
    assigned = Assignment(BIG, ToolMenu((offer,)), common.NOBODY)
    with ToolEnvironment(Writer(str), common.CLOCK, writer_models=MODELS) as environment:
        (schema,) = prompted_baseline.write_schemas(assigned, environment, False)
    assert "writes a program" in schema["function"]["description"]
    assert list(schema["function"]["parameters"]["properties"]) == ["question"]
