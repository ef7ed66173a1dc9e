"""Conversations as tokens: who spoke, what is learned from it, which tools are on offer, what a call is."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import seeds, tasks
from lib.models import agent
from lib.models.corpus import IGNORED, dialogue, tensors
from lib.models.dialogue import call, called, conversation, token, with_tools
from lib.models.tokenizer import BOS, EOS, PAD, ROLES, encode, vocabulary

SYSTEM = {"role": "system", "content": "role worker"}
USER = {"role": "user", "content": "47 * 38 = ?"}
CALLING = {"role": "assistant", "content": "<call> calculator 47 * 38 </call>"}
RESULT = {"role": "tool", "content": "1786"}
ANSWER = {"role": "assistant", "content": "<answer> 1786 </answer>"}
SPOKEN = [SYSTEM, USER, CALLING, RESULT, ANSWER]


# Tokens -------------------------------------------------------------------------------------------


def test_a_conversation_is_each_role_and_its_text_up_to_where_the_assistant_is_to_speak():
    expected = [
        token(BOS),
        token("<system>"), *encode("role worker"),
        token("<user>"), *encode("47 * 38 = ?"),
        token("<assistant>"), *encode("<call> calculator 47 * 38 </call>"), token(EOS),
        token("<tool>"), *encode("1786"),
        token("<assistant>"),
    ]  # fmt: skip
    assert conversation(SPOKEN[:-1]) == expected


@pytest.mark.parametrize("role", ["owner", "Assistant", "", None])
def test_an_unknown_role_is_named(role):
    with pytest.raises(ValueError, match=f"system, user, assistant, tool.*{role!r}"):
        conversation([{"role": role, "content": "1"}])


@pytest.mark.parametrize("content", [None, 7, ["1"]])
def test_content_that_is_no_text_is_refused_with_its_kind(content):
    with pytest.raises(ValueError, match=type(content).__name__):
        conversation([{"role": "user", "content": content}])


# Targets ------------------------------------------------------------------------------------------


def assert_learned(messages, tools=()):
    """Go through the tokens as a reader would: a role token says who speaks from there on."""
    made = dialogue(messages, tools)
    assert len(made.ids) == len(made.targets)
    roles, speaker, learned = {token(name): role for role, name in ROLES.items()}, None, []
    for given_id, target in zip(made.ids, made.targets, strict=True):
        if given_id in roles:
            speaker = roles[given_id]
            assert target == IGNORED
        elif speaker == "assistant":
            assert target == given_id
            learned.append(target)
        else:
            assert target == IGNORED
    said = [m["content"] for m in messages if m["role"] == "assistant"]
    assert learned == [i for text in said for i in [*encode(text), token(EOS)]]


def test_the_assistants_words_and_ends_of_turn_are_learned_and_nothing_else():
    assert_learned(SPOKEN)
    assert_learned(SPOKEN, ["calculator"])
    assert_learned([USER, ANSWER])


def test_a_model_that_is_asked_sees_the_tokens_that_it_was_taught_on():
    ids = dialogue(SPOKEN, ["calculator"]).ids
    for upto in (2, 4):  # before each of its turns
        asked = conversation(SPOKEN[:upto], ["calculator"])
        assert list(ids[: len(asked)]) == asked


def test_a_batch_is_padded_on_the_right_with_tokens_that_nobody_learns():
    short, long = dialogue([USER, ANSWER]), dialogue(SPOKEN)
    ids, targets = tensors([short, long])
    assert ids.shape == targets.shape == (2, len(long.ids))
    n = len(short.ids)
    assert tuple(ids[0, :n].tolist()) == short.ids and tuple(targets[0, :n].tolist()) == short.targets
    assert set(ids[0, n:].tolist()) == {token(PAD)} and set(targets[0, n:].tolist()) == {IGNORED}
    assert tuple(ids[1].tolist()) == long.ids and tuple(targets[1].tolist()) == long.targets


# Tools --------------------------------------------------------------------------------------------


def test_tools_on_offer_are_named_at_the_end_of_the_system_message():
    offered = with_tools(SPOKEN, ["calculator", "search"])
    assert offered[0] == {"role": "system", "content": "role worker tools calculator search"}
    assert offered[1:] == SPOKEN[1:]
    assert SYSTEM["content"] == "role worker"  # the caller's own message is left alone


names = st.sampled_from(["calculator", "search", "lookup", "python"])
arguments = st.lists(st.sampled_from([w[1:] for w in vocabulary() if w[0] == " " and "call>" not in w]), max_size=6)


@settings(max_examples=100, deadline=None)
@given(names, arguments.map(" ".join), st.sampled_from(["", "it is big . ", "<think> a </think> "]))
def test_a_call_is_read_as_it_was_written(name, argument, before):
    assert called(before + call(name, argument)) == (name, argument)
    assert called(before + call(name, argument) + " \n") == (name, argument)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "calculator 47 * 38",
        "<call> </call>",
        "<call></call>",
        "<call> calculator 47 * 38",
        "calculator 47 * 38 </call>",
        "<call> calculator 47 * 38 </call> and more",
        "</call> calculator 47 * 38 <call>",
        "<CALL> calculator 47 * 38 </CALL>",
    ],
)
def test_what_is_no_whole_call_at_the_end_is_no_call(text):
    assert called(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "<call> x" + " " * 20_000,
        "<call> x" + " " * 20_000 + "y </call>",
        "<call>a" * 9_000 + " </call>",
        "<call>" * 9_000,
    ],
    ids=["blanks", "blanks in a call", "names", "starts"],
)
def test_a_long_reply_is_read_in_bounded_time(text):
    began = time.perf_counter()
    called(text)
    assert time.perf_counter() - began < 1


def test_in_every_trace_of_the_agent_too():
    for name in ("chain", "big", "facts", "passage"):
        for number, item in enumerate(tasks.draw(name, "train", 60, skin="any")):
            assert_learned(*agent.trace(item, seeds.rng("test", seed=number)))


def test_where_there_is_no_system_message_one_is_made():
    assert with_tools([USER], ["lookup"]) == [{"role": "system", "content": "tools lookup"}, USER]


def test_a_call_may_have_line_breaks_and_no_argument():
    assert called("<call>\nlookup\nhome Ana\n</call>\n") == ("lookup", "home Ana")
    assert called("<call> search </call>") == ("search", "")


def test_of_several_calls_the_last_one_is_meant():
    assert called(f"{call('search', 'a')} {call('lookup', 'b')}") == ("lookup", "b")
