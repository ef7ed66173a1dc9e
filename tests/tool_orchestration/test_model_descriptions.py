"""Descriptions of models from measured profiles: by a chat model, or by a rule that is labelled as one."""

import math

import pandas as pd
import pytest

from lib.config import ParamsError
from lib.llm.chat_model import Failure, Reply
from lib.tool_orchestration import model_descriptions, plain_prompt, prompted_baseline
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.model_descriptions import SCRIPTED, Measurement
from lib.tool_orchestration.tool_menu import ToolMenu
from tests.tool_orchestration import common

PROFILES = {
    "able": [Measurement("chain", 0.9, 40), Measurement("facts", 0.1, 20)],
    "middling": [Measurement("chain", 0.5, 12)],
}


def answer_with(*replies: Reply):
    """A writer, and what it was asked."""
    requests = []

    def generate(name, asked):
        requests.extend(asked)
        return list(replies)

    return generate, requests


def test_a_profile_of_outcomes_is_the_share_correct_by_kind_and_lost_replies_are_in_none():
    rows = pd.DataFrame(
        {
            "tool": ["a", "a", "a", "b"],
            "group": ["x", "x", "y", "x"],
            "correct": [1.0, 0.0, math.nan, 1.0],
        }
    )
    assert model_descriptions.profile_outcomes(rows) == {
        "a": [Measurement("x", 0.5, 2)],
        "b": [Measurement("x", 1.0, 1)],
    }


def test_a_profile_of_a_card_counts_its_questions_in_the_usual_wording():
    card = common.card({"chain": 4})
    card["accuracy"].append(
        {"category": "chain", "skin": "words", "difficulty": 1, "accuracy": 0.0, "n": 900}
    )
    (measurement,) = model_descriptions.profile_card(card)
    assert measurement == Measurement("chain", 0.75, 64)


def test_without_a_writer_a_rule_writes_and_says_so():
    descriptions = model_descriptions.write_descriptions(PROFILES, None)
    assert (
        descriptions["able"].text
        == "Strong on chain (90% of 40 tasks); weak on facts (10% of 20 tasks)."
    )
    assert descriptions["middling"].text.startswith("Mixed on chain")
    table = model_descriptions.tabulate_descriptions(descriptions)
    assert table["written by"].str.contains("scripted").all()


def test_a_chat_model_reads_the_measurements_and_its_sentences_are_used():
    generate, requests = answer_with(
        Reply("Good at\n chains.", "w", "endpoint"), Reply("So so.", "w", "endpoint")
    )
    descriptions = model_descriptions.write_descriptions(PROFILES, "w", generate)
    assert descriptions["able"].text == "Good at chains." and descriptions["able"].author == "w"
    prompt = requests[0].messages[0]["content"]
    assert "chain: 90% of 40 tasks" in prompt and "facts: 10% of 20 tasks" in prompt
    assert "able" not in prompt.split("Measurements")[1], "no name that a model may know things of"
    labels = model_descriptions.tabulate_descriptions(descriptions)["written by"]
    assert list(labels) == ["w", "w"]


@pytest.mark.parametrize(
    "bad", [Reply("", "w", "endpoint", failure=Failure("timeout")), Reply(" ", "w", "endpoint")]
)
def test_where_a_reply_cannot_be_used_the_rule_writes_that_one_alone(bad):
    generate, _ = answer_with(bad, Reply("So so.", "w", "endpoint"))
    descriptions = model_descriptions.write_descriptions(PROFILES, "w", generate)
    assert [descriptions[name].author for name in PROFILES] == [SCRIPTED, "w"]


def test_a_file_of_the_user_takes_the_place_of_the_instruction(tmp_path):
    path = tmp_path / "own.md"
    path.write_text("Say {it} briefly:\n{profile}")
    template = model_descriptions.read_template(path)
    generate, requests = answer_with(*[Reply("x", "w", "endpoint")] * 2)
    model_descriptions.write_descriptions(PROFILES, "w", generate, template)
    assert requests[0].messages[0]["content"].startswith("Say {it} briefly:\nchain: 90%")
    path.write_text("no place for it")
    with pytest.raises(ParamsError, match=r"own\.md.*\{profile\}"):
        model_descriptions.read_template(path)
    with pytest.raises(ParamsError, match="cannot be read"):
        model_descriptions.read_template(tmp_path / "missing.md")


def test_orchestrators_read_the_description_in_both_prompts():
    descriptions = model_descriptions.write_descriptions({"lab-mini": PROFILES["able"]}, None)
    offers = model_descriptions.describe_offers(common.offers(), descriptions)
    assert "Strong on chain" in plain_prompt.describe_offer(offers["lab-mini"])
    assert "Strong on" not in plain_prompt.describe_offer(offers["lab-large"])
    assigned = Assignment(
        common.item("chain"), ToolMenu((offers["lab-mini"], offers["lab-large"])), common.NOBODY
    )
    with common.at_work() as environment:
        schemas = prompted_baseline.write_schemas(assigned, environment, False)
    texts = [schema["function"]["description"] for schema in schemas]
    assert texts[0].startswith("A model. Strong on chain") and "About $" in texts[0]
    assert texts[1].startswith("A model. Good at: chain up to difficulty 6")
