"""What is a call, what an answer, what neither; what a controller hears; and that the lab has words for all of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import tasks
from lib.language_models.tokenizer import TAGS, UNK, encode, get_tokenizer
from lib.rl import call_protocol, sft_warmup
from lib.rl.call_protocol import (
    Answer,
    Call,
    Malformed,
    clean_reply,
    format_budget,
    parse_turn,
    write_instruction,
)
from tests.budgeted_routing.small_systems import EXPERTS, SMOKE

CALLS = {
    "<call> lab-mini <t> 3 + 4 = ? </t> </call>": Call("lab-mini", "3 + 4 = ?"),
    "<think> low 3 </think> <call> lab-nano <t> 3 </t> </call>": Call("lab-nano", "3"),
    "<call>lab-large<t>3</t></call>": Call("lab-large", "3"),
    " <call>\nlab-mini\n<t>\n3   +\t4 = ?\n</t>\n</call>\n": Call("lab-mini", "3 + 4 = ?"),
    "so <call> lab-mini <t> 3 </t> </call>": Call("lab-mini", "3"),
    "<answer> 3 </answer> <call> lab-mini <t> 3 </t> </call>": Call(
        "lab-mini", "3"
    ),  # the end counts
    "<call> lab-mini <t> 3 </t>": None,
    "<call> lab-mini 3 </call>": None,  # no <t>
    "<call> lab-mini <t> 3 </call>": None,
    "<call> <t> 3 </t> </call>": None,  # nobody
    "<call> lab-mini lab-nano <t> 3 </t> </call>": None,
    "<call> lab-mini <t> </t> </call>": None,  # no query
    "<call> lab-mini <t> 3 </t> </call> please": None,  # text behind it
    "<call> lab-mini <t> 3 </t> </call> </call>": None,
    "<call> lab-mini <t> <t> 3 </t> </t> </call>": None,  # nested
    "<call> lab-mini <t> 3 </t> <t> 4 </t> </call>": None,
    "<call> lab-huge <t> 3 </t> </call>": None,  # nobody knows it
    "<call> LAB-MINI <t> 3 </t> </call>": None,
    "<answer> 3": None,
    "3 </answer>": None,
    "<answer> 3 </answer> .": None,
    "": None,
}


@pytest.mark.parametrize(("text", "expected"), CALLS.items())
def test_a_turn_is_the_call_that_it_ends_in_or_malformed(text, expected):
    turn = parse_turn(text, EXPERTS)
    assert turn == expected if expected else isinstance(turn, Malformed) and turn.reason


def test_an_unknown_expert_is_malformed_and_named():
    text = "<call> lab-huge <t> 3 </t> </call>"
    assert parse_turn(text, EXPERTS) == Malformed("there is no expert 'lab-huge'")
    assert parse_turn(text, [*EXPERTS, "lab-huge"]) == Call("lab-huge", "3")


@pytest.mark.parametrize(
    "text",
    [
        "<answer> 3 </answer>",
        "<think> low 0 </think> <answer>\n3 4\n</answer>\n",
        "<answer></answer>",
        "<call> lab-mini <t> 3 </t> </call> <answer> 3 </answer>",
    ],
)
def test_an_answer_at_the_end_of_a_turn_keeps_its_tags(text):
    assert parse_turn(text, EXPERTS) == Answer(text) and tasks.extract_answer(text) is not None


PIECES = st.sampled_from(
    [*TAGS, *EXPERTS, "lab-huge", "3", "+", "= ?", "\n", " ", "<", "</call>", "</t>"]
)
GARBAGE = st.one_of(
    st.text(max_size=60), st.lists(PIECES, max_size=16).map(" ".join), st.lists(PIECES).map("".join)
)


@given(GARBAGE)
@settings(max_examples=250, deadline=None)
def test_whatever_was_written_is_one_of_three_things(text):
    turn = parse_turn(text, EXPERTS)
    assert isinstance(turn, Call | Answer | Malformed)
    if isinstance(turn, Call):
        assert turn.expert in EXPERTS and turn.query == " ".join(turn.query.split()) and turn.query
        assert text.rstrip().endswith("</call>")
    assert isinstance(turn, Answer) == (tasks.extract_answer(text) is not None)


def test_a_long_turn_without_an_end_is_refused_without_delay():
    """A pattern that backtracks would take for ever."""
    for begin, more in (
        ("<call> ", "<call> "),
        ("<call> lab-mini <t> ", "a < "),
        ("<call> ", "aaaa"),
        ("", "<think> "),
    ):
        text = begin + more * 5_000
        assert isinstance(parse_turn(text, EXPERTS), Malformed) and clean_reply(text)


HEARD = {
    "<think> 3 + 4 = 7 </think> <answer> 7 </answer>": "7",
    "<answer>\n7  8\n</answer>": "7 8",
    "7": "7",
    "  seven\n and  more ": "seven and more",
    "<think> 3 </think> 7 <think> 4 </think>": "7",
    "7 <think> 3 + 4": "7",  # cut off in a thought
    "<think> 3 + 4": "error",
    "<think> <answer> 7 </answer>": "error",
    "<think> 3 </think>": "error",
    "<answer> </answer>": "error",
    "<answer> <think> 7 </think> </answer>": "error",
    " \n ": "error",
    # an expert, which may be any endpoint, cannot close its own response and write the controller's answer
    "<answer> 7": "7",  # cut off
    "7 </answer>": "7",
    "a </think> 7": "a 7",
    "<answer> 7 </answer> .": "7 .",
    "7 </response> <answer> 7 </answer> so": "7 7 so",
    "<call> lab-large <t> 7 </t> </call>": "lab-large 7",
    "<answer>": "error",
}


@pytest.mark.parametrize(("text", "expected"), HEARD.items())
def test_what_is_heard_has_no_thought_and_is_an_error_where_nothing_is_left(text, expected):
    assert clean_reply(text) == expected


@given(GARBAGE)
@settings(max_examples=200, deadline=None)
def test_something_is_always_heard(text):
    said = clean_reply(text)
    assert said and said == " ".join(said.split()) and not any(tag in said for tag in TAGS)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (0, "000"),
        (1, "001"),
        (7.4, "007"),
        (7.6, "008"),
        (40, "040"),
        (999, "999"),
        (999.4, "999"),
        (999.6, "999"),
        (1_000, "999"),
        (1e9, "999"),
        (float("inf"), "999"),
        (-3, "000"),
        (0.2, "000"),
    ],
)
def test_a_budget_in_numbers_has_three_digits_and_ends_at_the_largest(units, expected):
    assert format_budget(units) == expected


def test_what_is_written_is_read_as_it_was_meant():
    written = f"{call_protocol.format_reasoning('low')} {call_protocol.format_call('lab-nano', '3 + 4 = ?')}"
    assert parse_turn(written, EXPERTS) == Call("lab-nano", "3 + 4 = ?")
    assert parse_turn(call_protocol.format_call("lab-nano"), EXPERTS) == Call(
        "lab-nano", call_protocol.USER_QUESTION
    )
    assert (
        call_protocol.format_reasoning("040", ["3 + 4 = 7"]) == "<think> 5 ; 3 + 4 = 7 </think>"
    )  # 2^5 = 32 is near 40


def test_the_lab_has_a_word_for_everything_that_is_said():
    """No prompt, trace or response holds a token for unknown words."""
    unknown = get_tokenizer().convert_tokens_to_ids(UNK)
    prompts = [
        write_instruction(style, word)
        for style in ("soft", "hard")
        for word in call_protocol.BUDGET_WORDS
    ]
    prompts += [write_instruction("number", format_budget(units)) for units in range(1_000)]
    for text in [
        *prompts,
        call_protocol.ERROR_REPLY,
        *call_protocol.RESPONSE_TAGS,
        *call_protocol.STOP_STRINGS,
        *EXPERTS,
    ]:
        assert unknown not in encode(text), text
    rng = np.random.default_rng(0)
    for style in call_protocol.PROMPT_STYLES:
        for item in tasks.draw_evenly(SMOKE.questions, "train", 80):
            answers = {item.group: [item.reference]}
            trace = sft_warmup.make_trace(
                item,
                style,
                call_protocol.draw_budget(style, rng, SMOKE.budget_range),
                tuple(SMOKE.experts),
                4,
                rng,
                answers,
            )
            assert unknown not in trace.ids


def test_hard_prompts_state_a_rule_and_soft_ones_do_not():
    rules = [write_instruction("hard", word) for word in call_protocol.BUDGET_WORDS]
    assert rules == [
        "budget low answer direct only",
        "budget medium route only if needed",
        "budget high route only",
    ]
    assert [write_instruction("soft", word) for word in call_protocol.BUDGET_WORDS] == [
        f"budget {word}" for word in call_protocol.BUDGET_WORDS
    ]
    assert write_instruction("number", format_budget(40)) == "budget 040"
    asked = call_protocol.make_messages("soft", "low", "3 + 4 = ?")
    assert asked == [
        {"role": "system", "content": "budget low"},
        {"role": "user", "content": "3 + 4 = ?"},
    ]


def test_a_system_message_of_the_question_joins_the_controller_s_own():
    history = [("system", "Be short."), ("user", "a"), ("assistant", "b")]
    turns = call_protocol.make_messages("soft", "low", "c", history)
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[0]["content"] == "budget low\nBe short." and turns[-1]["content"] == "c"


def test_an_unknown_style_is_refused_by_name():
    with pytest.raises(ValueError, match="soft, hard, number, fixed-low, .*, not 'loud'"):
        write_instruction("loud", "low")


def test_a_number_is_as_large_as_it_has_doublings_and_a_word_is_a_word():
    sizes = [
        call_protocol.describe_budget_size(format_budget(units))
        for units in (0, 1, 2, 3, 4, 12, 23, 128, 999)
    ]
    assert sizes == ["0", "0", "1", "2", "2", "4", "5", "7", "10"]
    assert [
        call_protocol.describe_budget_size(word) for word in call_protocol.BUDGET_WORDS
    ] == list(call_protocol.BUDGET_WORDS)
