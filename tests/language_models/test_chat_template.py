"""Conversations as tokens: who spoke, what is learned from it, which tools are on offer, what a call is."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.language_models.chat_template import (
    add_tools_to_system_message,
    encode_conversation,
    encode_special,
    format_tool_call,
    parse_tool_call,
)
from lib.language_models.tokenizer import BOS, EOS, PAD, ROLES, TOOLS, encode, list_vocabulary
from lib.language_models.training.training_data import IGNORE_INDEX, collate, tokenize_dialogue
from tests.language_models.traces import traces

SYSTEM = {"role": "system", "content": "role worker"}
USER = {"role": "user", "content": "47 * 38 = ?"}
CALLING = {"role": "assistant", "content": "<call> calculator 47 * 38 </call>"}
RESULT = {"role": "tool", "content": "1786"}
ANSWER = {"role": "assistant", "content": "<answer> 1786 </answer>"}
SPOKEN = [SYSTEM, USER, CALLING, RESULT, ANSWER]


# Tokens -------------------------------------------------------------------------------------------


def test_a_conversation_is_each_role_and_its_text_up_to_where_the_assistant_is_to_speak():
    expected = [
        encode_special(BOS),
        encode_special("<system>"),
        *encode("role worker"),
        encode_special("<user>"),
        *encode("47 * 38 = ?"),
        encode_special("<assistant>"),
        *encode("<call> calculator 47 * 38 </call>"),
        encode_special(EOS),
        encode_special("<tool>"),
        *encode("1786"),
        encode_special("<assistant>"),
    ]
    assert encode_conversation(SPOKEN[:-1]) == expected


@pytest.mark.parametrize(
    ("role", "content", "said"),
    [
        *(
            (role, "1", f"system, user, assistant, tool.*{role!r}")
            for role in ("owner", "Assistant", "", None)
        ),
        *(("user", content, type(content).__name__) for content in (None, 7, ["1"])),
    ],
)
def test_an_unknown_role_is_named_and_content_that_is_no_text_is_refused_with_its_kind(
    role, content, said
):
    with pytest.raises(ValueError, match=said):
        encode_conversation([{"role": role, "content": content}])


# Targets ------------------------------------------------------------------------------------------


def test_the_assistants_words_and_ends_of_turn_are_learned_and_nothing_else():
    """Goes through the tokens as a reader would: a role token says who speaks from there on."""
    roles = {encode_special(name): role for role, name in ROLES.items()}
    whole = [(SPOKEN, ()), (SPOKEN, ["calculator"]), ([USER, ANSWER], ())]
    for messages, tools in [
        *whole,
        *((shown.messages, shown.tools) for shown in traces("agent")[::7]),
    ]:
        made, speaker, learned = tokenize_dialogue(messages, tools), None, []
        for given_id, target in zip(made.ids, made.targets, strict=True):
            if speaker == "assistant" and given_id not in roles:
                assert target == given_id
                learned.append(target)
            else:
                assert target == IGNORE_INDEX
            speaker = roles.get(given_id, speaker)
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        assert learned == [i for text in said for i in [*encode(text), encode_special(EOS)]]


def test_a_model_that_is_asked_sees_the_tokens_that_it_was_taught_on():
    ids = tokenize_dialogue(SPOKEN, ["calculator"]).ids
    for upto in (2, 4):  # before each of its turns
        asked = encode_conversation(SPOKEN[:upto], ["calculator"])
        assert list(ids[: len(asked)]) == asked


def test_a_batch_is_padded_on_the_right_with_tokens_that_nobody_learns():
    short, long = tokenize_dialogue([USER, ANSWER]), tokenize_dialogue(SPOKEN)
    ids, targets = collate([short, long])
    assert ids.shape == targets.shape == (2, len(long.ids))
    n = len(short.ids)
    assert (
        tuple(ids[0, :n].tolist()) == short.ids and tuple(targets[0, :n].tolist()) == short.targets
    )
    assert set(ids[0, n:].tolist()) == {encode_special(PAD)} and set(targets[0, n:].tolist()) == {
        IGNORE_INDEX
    }
    assert tuple(ids[1].tolist()) == long.ids and tuple(targets[1].tolist()) == long.targets


# Tools --------------------------------------------------------------------------------------------


def test_tools_on_offer_are_named_at_the_end_of_the_system_message():
    offered = add_tools_to_system_message(SPOKEN, ["calculator", "search"])
    assert offered[0] == {"role": "system", "content": "role worker tools calculator search"}
    assert offered[1:] == SPOKEN[1:]
    assert SYSTEM["content"] == "role worker"  # the caller's own message is left alone
    assert add_tools_to_system_message([USER], ["lookup"]) == [
        {"role": "system", "content": "tools lookup"},
        USER,
    ]


arguments = st.lists(
    st.sampled_from([w[1:] for w in list_vocabulary() if w[0] == " " and "call>" not in w]),
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(TOOLS),
    arguments.map(" ".join),
    st.sampled_from(["", "it is big . ", "<think> a </think> "]),
)
def test_a_call_is_read_as_it_was_written(name, argument, before):
    assert parse_tool_call(before + format_tool_call(name, argument)) == (name, argument)
    assert parse_tool_call(before + format_tool_call(name, argument) + " \n") == (name, argument)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<call>\nlookup\nhome Ana\n</call>\n", ("lookup", "home Ana")),
        ("<call> search </call>", ("search", "")),
        ("<call> search a </call> <call> lookup b </call>", ("lookup", "b")),
        ("", None),
        ("calculator 47 * 38", None),
        ("<call> </call>", None),
        ("<call></call>", None),
        ("<call> calculator 47 * 38", None),
        ("calculator 47 * 38 </call>", None),
        ("<call> calculator 47 * 38 </call> and more", None),
        ("</call> calculator 47 * 38 <call>", None),
        ("<CALL> calculator 47 * 38 </CALL>", None),
    ],
)
def test_a_reply_calls_what_its_last_whole_call_at_the_end_says(text, expected):
    assert parse_tool_call(text) == expected


def test_a_long_reply_is_read_in_bounded_time():
    blanks = "<call> x" + " " * 20_000
    for text in (blanks, f"{blanks}y </call>", "<call>a" * 9_000 + " </call>", "<call>" * 9_000):
        began = time.perf_counter()
        parse_tool_call(text)
        assert time.perf_counter() - began < 1, text[:20]
