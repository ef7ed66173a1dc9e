"""Scorers of the user's own."""

import math

import numpy as np
import pytest

from lib.tasks.scorers import Score, ScorerError, make_scorer
from tests.tasks.scorers.items import make_item

MODULE = "tests.tasks.scorers.test_custom_scorer"


def share_of_reference(item, reply):
    return len(reply) / len(item.reference)


def is_equal(item, reply):
    return item.reference == reply


def numpy_number(item, reply):
    return np.float32(0.5)


def lost(item, reply):
    return Score(math.nan, failure="timeout: too slow")


def nothing(item, reply):
    return None


def text(item, reply):
    return "0.5"


def not_a_number(item, reply):
    return math.nan


def crash(item, reply):
    raise KeyError("row")


not_callable = 3


@pytest.mark.parametrize(
    "function, value", [("share_of_reference", 0.5), ("is_equal", 0.0), ("numpy_number", 0.5)]
)
def test_a_number_or_a_bool_is_the_score(function, value):
    scorer = make_scorer(f"{MODULE}:{function}")
    [score] = scorer.score([make_item("abcd")], ["ab"])
    assert score.value == value and scorer.name == f"{MODULE}:{function}"


def test_a_score_comes_back_as_it_is():
    [score] = make_scorer(f"{MODULE}:lost").score([make_item("abcd")], ["ab"])
    assert score.lost and score.failure == "timeout: too slow"


@pytest.mark.parametrize("function", ["nothing", "text", "not_a_number"])
def test_what_is_no_number_is_refused(function):
    with pytest.raises(
        ScorerError, match=f"{function} returned .* for item 'item-1'; return a number from 0 to 1"
    ):
        make_scorer(f"{MODULE}:{function}").score([make_item("abcd")], ["ab"])


def test_a_number_above_1_is_refused():
    with pytest.raises(ScorerError, match="returned 2.0 for item 'item-1'"):
        make_scorer(f"{MODULE}:share_of_reference").score([make_item("abcd")], ["abcdabcd"])


def test_an_error_of_the_function_names_the_function_and_the_item():
    with pytest.raises(ScorerError, match="crash failed on item 'item-1' with KeyError: 'row'"):
        make_scorer(f"{MODULE}:crash").score([make_item("abcd")], ["ab"])


def test_a_module_that_does_not_exist_is_named_with_the_remedy():
    with pytest.raises(
        ScorerError, match="'no_such_scores' cannot be imported.*start where no_such_scores.py lies"
    ):
        make_scorer("no_such_scores:score")


@pytest.mark.parametrize("function", ["no_such_function", "not_callable"])
def test_a_function_that_does_not_exist_is_named_with_the_remedy(function):
    with pytest.raises(
        ScorerError, match=rf"has no function '{function}'; define {function}\(item, reply\)"
    ):
        make_scorer(f"{MODULE}:{function}")


def test_a_module_of_the_current_folder_is_imported(tmp_path, monkeypatch):
    (tmp_path / "scores_of_this_folder.py").write_text(
        "def half(item, reply):\n    return 0.5\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert make_scorer("scores_of_this_folder:half").score([make_item("a")], ["b"])[0].value == 0.5


def test_a_module_that_fails_on_import_says_so(tmp_path, monkeypatch):
    (tmp_path / "scores_that_fail.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScorerError, match="ZeroDivisionError"):
        make_scorer("scores_that_fail:half")
