"""What is a call, what an answer, what neither; what a controller hears; and that the lab has words for all of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import tasks
from lib.models.tokenizer import TAGS, UNK, encode, tokenizer
from lib.routing import arms, protocol, warm
from lib.routing.protocol import Answer, Call, Malformed, digits, heard, instruction, parse
from tests.routing.small import EXPERTS, items

# Turns --------------------------------------------------------------------------------------------

CALLS = {
    "<call> lab-mini <t> 3 + 4 = ? </t> </call>": Call("lab-mini", "3 + 4 = ?"),
    "<think> low 3 </think> <call> lab-nano <t> 3 </t> </call>": Call("lab-nano", "3"),
    "<call>lab-large<t>3</t></call>": Call("lab-large", "3"),
    " <call>\nlab-mini\n<t>\n3   +\t4 = ?\n</t>\n</call>\n": Call("lab-mini", "3 + 4 = ?"),
    "so <call> lab-mini <t> 3 </t> </call>": Call("lab-mini", "3"),
    "<call> lab-mini <t> 3": None,
    "<call> lab-mini <t> 3 </t>": None,
    "<call> lab-mini 3 </call>": None,  # no <t>
    "<call> lab-mini <t> 3 </call>": None,
    "<call> lab-mini 3 </t> </call>": None,
    "<call> <t> 3 </t> </call>": None,  # nobody
    "<call> lab-mini lab-nano <t> 3 </t> </call>": None,
    "<call> lab-mini <t> </t> </call>": None,  # no query
    "<call> lab-mini <t></t></call>": None,
    "<call> lab-mini <t> 3 </t> </call> please": None,  # text behind it
    "<call> lab-mini <t> 3 </t> </call> </call>": None,
    "<call> lab-mini <t> <t> 3 </t> </t> </call>": None,  # nested
    "<call> lab-mini <t> 3 </t> <t> 4 </t> </call>": None,
    "<call> lab-huge <t> 3 </t> </call>": None,  # nobody knows it
    "<call> LAB-MINI <t> 3 </t> </call>": None,
    "</call>": None,
    "</t> </call>": None,
    "<answer> 3": None,
    "3 </answer>": None,
    "<answer> 3 </answer> .": None,
    "": None,
    "3": None,
}


@pytest.mark.parametrize(("text", "expected"), CALLS.items())
def test_a_turn_is_the_call_that_it_ends_in_or_malformed(text, expected):
    turn = parse(text, EXPERTS)
    assert turn == expected if expected else isinstance(turn, Malformed) and turn.why


def test_an_unknown_expert_is_malformed_and_named():
    turn = parse("<call> lab-huge <t> 3 </t> </call>", EXPERTS)
    assert isinstance(turn, Malformed) and "lab-huge" in turn.why
    assert parse("<call> lab-huge <t> 3 </t> </call>", [*EXPERTS, "lab-huge"]) == Call("lab-huge", "3")
    assert isinstance(parse("<call> lab-mini <t> 3 </t> </call>", ()), Malformed)


PIECES = st.sampled_from([*TAGS, *EXPERTS, "lab-huge", "3", "+", "= ?", "\n", " ", "<", "</call>", "</t>"])
GARBAGE = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=16).map(" ".join), st.lists(PIECES).map("".join))


@given(GARBAGE)
@settings(max_examples=250, deadline=None)
def test_whatever_was_written_is_one_of_three_things(text):
    turn = parse(text, EXPERTS)
    assert isinstance(turn, Call | Answer | Malformed)
    if isinstance(turn, Call):
        assert turn.expert in EXPERTS and turn.query == " ".join(turn.query.split()) and turn.query
        assert text.rstrip().endswith("</call>")
    assert isinstance(turn, Answer) == (tasks.answered(text) is not None)


def test_a_long_turn_without_an_end_is_refused_without_delay():
    """A pattern that backtracks would take for ever."""
    for text in (
        "<call> " * 5_000,
        "<call> lab-mini <t> " + "a < " * 5_000,
        "<call> " + "a" * 20_000,
        "<think> " * 5_000,
    ):
        assert isinstance(parse(text, EXPERTS), Malformed) and heard(text)


# What is heard ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> 7", "7"),  # cut off
        ("7 </answer>", "7"),
        ("a </think> 7", "a 7"),
        ("<answer> 7 </answer> .", "7 ."),
        ("7 </response> <answer> 7 </answer> so", "7 7 so"),
        ("<call> lab-large <t> 7 </t> </call>", "lab-large 7"),
        ("<answer>", "error"),
    ],
)
def test_what_is_heard_has_no_tags(text, expected):
    """An expert, which may be any endpoint, cannot close its own response and write the controller's answer."""
    assert heard(text) == expected


@given(GARBAGE)
@settings(max_examples=200, deadline=None)
def test_something_is_always_heard(text):
    said = heard(text)
    assert said and said == " ".join(said.split()) and not any(tag in said for tag in TAGS)


# Prompts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "expected"),
    [(0, "000"), (1, "001"), (7.4, "007"), (7.6, "008"), (40, "040"), (999, "999"), (999.4, "999"), (999.6, "999"),
     (1_000, "999"), (1e9, "999"), (-3, "000"), (0.2, "000")],
)  # fmt: skip
def test_a_budget_in_numbers_has_three_digits_and_ends_at_the_largest(units, expected):
    assert digits(units) == expected


def test_what_is_written_is_read_as_it_was_meant():
    assert parse(f"{protocol.thought('low', 2)} {protocol.call('lab-nano', '3 + 4 = ?')}", EXPERTS) == Call(
        "lab-nano", "3 + 4 = ?"
    )
    assert protocol.thought("040", 1, ["3 + 4 = 7"]) == "<think> 5 1 ; 3 + 4 = 7 </think>"  # 2^5 = 32 is near 40


def test_the_lab_has_a_word_for_everything_that_is_said():
    """No prompt, trace or response holds a token for unknown words."""
    unknown = tokenizer().convert_tokens_to_ids(UNK)
    prompts = [instruction(style, word) for style in ("soft", "hard") for word in protocol.WORDS]
    prompts += [instruction("number", digits(units)) for units in range(1_000)]
    for text in [*prompts, protocol.ERROR, *protocol.RESPONSE, *protocol.STOPS, arms.NEUTRAL, *EXPERTS]:
        assert unknown not in encode(text), text
    rng = np.random.default_rng(0)
    for style in protocol.STYLES:
        for item in items(60, list(range(1, 9)), "train"):
            trace = warm.trace(item, style, warm.drawn_budget(style, rng), EXPERTS, 4, rng)
            assert unknown not in trace.ids
