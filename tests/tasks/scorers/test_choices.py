"""Which option a reply chooses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.scorers.choices import LETTERS, extract_choice, read_choice

COLOURS = ("red", "dark red", "green", "none of these")


@pytest.mark.parametrize(
    "reply, letter",
    [
        ("B", "B"),
        ("b", "B"),
        ("(b)", "B"),
        ("B.", "B"),
        ("option B", "B"),
        ("B) dark red", "B"),
        ("It is dark red, like wine.", "B"),
        ("It is red, like wine.", "A"),
        ("The answer is dark red.", "B"),
        ("(A) is wrong, so it is (B).", "B"),
        ("It is (B), not (A).", "B"),
        ("Rather than (A), I take (B).", "B"),
        ("(A) is wrong. (C) is out.\n\nB", "B"),
        ("I think the answer is C. No:\nThe answer is B.", "B"),
        (r"\boxed{B}", "B"),
        (r"\boxed{\text{dark red}}", "B"),
        ("The answer is D, none of these.", "D"),
        ("The answer is clear from the text.\n\nB", "B"),
    ],
)
def test_a_choice_is_read_in_every_form(reply, letter):
    assert LETTERS[extract_choice(reply, COLOURS)] == letter


@pytest.mark.parametrize(
    "reply",
    ["", "E", "blue", "A or B", "(A) or (B)", "The answer is A or B.", "red or green", "A dog has no colour.",
     r"\boxed{E}", "The answer is not B.", "I do not know."],
)  # fmt: skip
def test_no_choice_or_several_are_none(reply):
    assert extract_choice(reply, COLOURS) is None


def test_options_may_bring_their_letters():
    options = ("A) 2 km", "B) 4 km")
    assert extract_choice("4 km", options) == 1
    assert extract_choice("B) 4 km", options) == 1


def test_equal_options_cannot_be_told_apart_by_their_text():
    assert extract_choice("red", ("red", "red", "green")) is None
    assert extract_choice("B", ("red", "red", "green")) == 1


@given(
    st.integers(0, 9),
    st.sampled_from(
        ["{}", "({})", "{}.", "**{}**", "The answer is {}.", "Answer: ({})", "option {}"]
    ),
)
def test_every_letter_is_read(index, form):
    options = [f"value {number}" for number in range(10)]
    assert extract_choice(form.format(LETTERS[index]), options) == index
    assert extract_choice(form.format(options[index]), options) == index


@given(
    st.text()
    | st.lists(
        st.sampled_from(["A", "B", "(C)", " or ", "not ", "red", ".", "\n", "answer is ", " "])
    ).map("".join)
)
def test_no_text_crashes_and_every_choice_exists(text):
    for choices in ((), COLOURS):
        index = extract_choice(text, choices)
        assert index is None or 0 <= index < (len(choices) or len(LETTERS))
        read_choice(text, choices)
