"""Stop strings: what is shown of an unfinished text stays true."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lib.language_models.serving.chat_completions.stop_strings import (
    cut_at_stop,
    find_stop,
    hold_back,
)

STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def test_the_first_of_several_stop_strings_ends_the_text():
    assert cut_at_stop("one two three", ["three", "two"]) == "one "
    assert find_stop("one", ["two"]) is None


def test_the_beginning_of_a_stop_string_is_held_back():
    assert hold_back("the red k", ["key"]) == "the red "
    assert hold_back("the red kn", ["key"]) == "the red kn"


@given(text=st.text("abc"), stops=STOPS)
def test_what_is_shown_of_an_unfinished_text_is_never_taken_back(text, stops):
    end = cut_at_stop(text, stops)
    shown = [hold_back(text[:length], stops) for length in range(len(text) + 1)]
    for before, after in pairwise(shown):
        assert after.startswith(before)
    lengths = range(len(text) + 1)
    first = next((n for n in lengths if find_stop(text[:n], stops) is not None), len(text))
    assert all(end.startswith(piece) for piece in shown[: first + 1])
