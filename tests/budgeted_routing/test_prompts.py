"""What a controller that follows instructions is told, by the project or by a file of the user."""

import re

import pytest

from lib.budgeted_routing import prompts
from lib.config import ParamsError
from lib.rl import call_protocol

COSTS = {"lab-nano": 1e-7, "lab-large": 0.0042}
TAGS = ("<think>", "</think>", "<response>", "</response>")


@pytest.mark.parametrize("style", ["soft", "hard"])
def test_the_system_prompt_shows_forms_that_the_parser_understands_and_what_calls_cost(style):
    text = prompts.write_system_prompt(prompts.read_template(style), COSTS)
    assert "lab-nano (about $1e-07 a call), lab-large (about $0.0042 a call)" in text
    forms = re.findall(r"<(?:call|answer)>.*?</(?:call|answer)>", text)
    assert len(forms) == 3
    for form in forms:
        turn = call_protocol.parse_turn(form.replace("EXPERT", "lab-nano"), list(COSTS))
        assert not isinstance(turn, call_protocol.Malformed)
    for word in (*call_protocol.BUDGET_WORDS, *TAGS):
        assert word in text


def test_a_file_of_the_user_takes_the_place_of_the_text_and_may_hold_other_braces(tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("Answer in \\boxed{}. Experts: {experts}\n")
    text = prompts.write_system_prompt(prompts.read_template("soft", file), {"a": 0.5})
    assert text == "Answer in \\boxed{}. Experts: a (about $0.5 a call)"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"no place for them", "write {experts}"), (b"\xff\xfe {experts}", "UTF-8"), (None, "read")],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_name(tmp_path, content, message):
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ParamsError, match=message) as error:
        prompts.read_template("soft", file)
    assert str(file) in str(error.value)
