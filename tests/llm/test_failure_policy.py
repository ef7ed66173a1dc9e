"""Counts of replies, and when failures of the infrastructure end a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.llm.chat_model import INFRASTRUCTURE_FAILURES, MODEL_FAILURES, Failure, Reply
from lib.llm.errors import InfrastructureError
from lib.llm.failure_policy import FailureWatch, ReplyCounts, require_reply

GOOD = Reply("7", "mine", "endpoint")


def reply_with(kind: str) -> Reply:
    return Reply("", "mine", "endpoint", failure=Failure(kind, "as it says"))


def test_a_kind_of_failure_is_one_of_those_that_are_declared():
    with pytest.raises(ValueError, match="unknown kind of failure 'odd'"):
        Failure("odd")
    assert not set(MODEL_FAILURES) & set(INFRASTRUCTURE_FAILURES)


@given(st.lists(st.sampled_from([None, "truncated", "empty", "timeout", "moderation"])))
def test_every_reply_is_counted_once_as_what_it_is(kinds):
    counts = ReplyCounts()
    for kind in kinds:
        counts.add(GOOD if kind is None else reply_with(kind))
    assert counts.calls == len(kinds) and counts.truncated == kinds.count("truncated")
    assert counts.unusable == kinds.count("empty")
    assert counts.failed == kinds.count("timeout") + kinds.count("moderation")
    assert counts.share_without_answer <= 1 and (counts + counts).calls == 2 * counts.calls


@pytest.mark.parametrize(("num_bad", "too_many"), [(0, False), (5, False), (6, True)])
def test_a_row_is_marked_above_five_percent_of_replies_without_an_answer(num_bad, too_many):
    counts = ReplyCounts(calls=100, truncated=num_bad)
    assert counts.too_many is too_many


def test_counts_are_told_in_one_line_with_their_shares():
    assert ReplyCounts().describe() == "no calls"
    assert ReplyCounts(calls=20).describe() == "20 calls, all usable"
    counts = ReplyCounts(calls=200, failed=1, truncated=62, fallback=3)
    assert counts.describe() == "200 calls, 1 failed (0.5%), 62 cut off (31.0%), 3 fallback (1.5%)"


def test_the_fifth_failure_in_a_row_ends_the_run():
    watch = FailureWatch("mine")
    for _ in range(100):
        watch.add(GOOD)
    for _ in range(4):
        watch.add(reply_with("server_error"))
    with pytest.raises(InfrastructureError, match=r"mine: 5 of 105 calls failed, 5 in a row"):
        watch.add(reply_with("server_error"))


def test_failures_of_the_model_and_moderated_prompts_end_no_run():
    watch = FailureWatch("mine")
    for kind in [*MODEL_FAILURES, "moderation"] * 20:
        watch.add(reply_with(kind))
    assert watch.counts.failed == 20


@pytest.mark.parametrize("kind", [*MODEL_FAILURES, "moderation"])
def test_what_no_later_run_would_get_stops_no_work(kind):
    require_reply(reply_with(kind), "a choice")
    require_reply(GOOD, "a choice")


@pytest.mark.parametrize("kind", ["timeout", "bad_request", "not_a_reply"])
def test_work_that_needs_a_reply_stops_where_the_server_failed(kind):
    with pytest.raises(InfrastructureError, match=f"mine: a choice could not be asked for .{kind}"):
        require_reply(reply_with(kind), "a choice")


def test_four_failures_among_many_calls_end_no_run():
    watch = FailureWatch("mine")
    for _ in range(4):
        watch.add(reply_with("timeout"))
        watch.add(GOOD)
    assert watch.counts.failed == 4
