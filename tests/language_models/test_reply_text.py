"""Text appears as its tokens come: no character is split, and what is shown is never taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.language_models.reply_text import ReplyText
from tests.language_models.hugging_face_folders import make_tokenizer

TOKENIZER = make_tokenizer()  # a token is a byte


def read(text: str, **options) -> tuple[ReplyText, list[str]]:
    """A whole reply, and the pieces that could be shown while it came."""
    reply = ReplyText(TOKENIZER, **options)
    pieces = []
    for token in TOKENIZER(text)["input_ids"]:
        reply.add_token(token)
        pieces.append(reply.read_new_visible())
        if reply.stopped:
            break
    reply.finish()
    return reply, [piece for piece in pieces if piece]


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_the_text_is_whole_and_no_character_of_it_is_split(text):
    reply, pieces = read(text)
    assert reply.raw == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)


@given(st.lists(st.integers(0, 255), max_size=40))
def test_bytes_that_are_no_text_decode_as_the_tokenizer_decodes_them_at_once(ids):
    reply = ReplyText(TOKENIZER)
    for token in ids:
        reply.add_token(token)
    reply.finish()
    assert reply.raw == TOKENIZER.decode(ids)


def test_a_character_of_four_bytes_comes_in_one_piece():
    _, pieces = read("a🐧b")
    assert pieces == ["a", "🐧", "b"]


_PIECES = ["<think>", "</think>", "<th", "END", "EN", "D", "a", "é", "\n", " ", "<tool_call>"]


@given(
    st.lists(st.sampled_from(_PIECES), max_size=8).map("".join),
    st.lists(st.sampled_from(["END", "a\n", "EN\n"]), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_what_was_shown_begins_what_is_visible_at_last(text, stop, opens, has_tools):
    reply, pieces = read(text, stop=stop, opens_in_reasoning=opens, has_tools=has_tools)
    shown = "".join(pieces)
    assert reply.visible.startswith(shown) and reply.num_shown == len(shown)
    assert not any(end in reply.visible for end in stop)


def test_a_stop_string_is_found_across_tokens_and_is_cut_off():
    reply, pieces = read("one END two", stop=["END", "two"])
    assert reply.stopped and reply.visible == "one " and "".join(pieces) == "one "


def test_the_first_of_several_stop_strings_counts():
    reply, _ = read("abcd", stop=["d", "bc", "c"])
    assert reply.visible == "a"


@pytest.mark.parametrize(
    "text, opens, reasoning, visible",
    [
        ("<think>\n2 + 2, END\n</think>\n\n4", False, "2 + 2, END", "4"),
        ("2 + 2\n</think>\n4", True, "2 + 2", "4"),
        ("<think>still", False, "still", ""),
        ("4 <think>x</think>", False, "", "4 <think>x</think>"),
        ("", True, "", ""),
    ],
)
def test_reasoning_is_taken_off_the_visible_text(text, opens, reasoning, visible):
    reply, pieces = read(text, stop=["END"], opens_in_reasoning=opens)
    assert (reply.reasoning, reply.visible, "".join(pieces)) == (reasoning, visible, visible)


def test_tokens_of_the_reasoning_are_counted_with_its_markers():
    text = "<think>ab</think>"
    reply, _ = read(text + " visible")
    assert reply.num_reasoning_tokens == len(text)  # a token is a byte
    assert read("visible")[0].num_reasoning_tokens == 0
    assert read("<think>ab")[0].num_reasoning_tokens == len("<think>ab")
