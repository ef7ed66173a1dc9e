"""Shares of calls without an answer: counted by method, and rows of models that answer too seldom are marked."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import stats
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm import reply_shares
from lib.llm.failure_policy import MAX_SHARE


def make_calls(*losses: dict, backend: str = "endpoint", method: str = "KO claude") -> pd.DataFrame:
    """A row for each call of one method."""
    rows = [
        {"method": method, "model": "claude", "backend": backend, "calls": 1} | loss
        for loss in losses
    ]
    return pd.DataFrame(rows).fillna(0)


def make_rows(*methods: str) -> pd.DataFrame:
    """Results of ten questions, of which each method answers more than the one before it."""
    return pd.DataFrame(
        {"method": method, "seed": 0, "item": str(item), "correct": float(item < 3 + 6 * number)}
        for number, method in enumerate(methods)
        for item in range(10)
    )


@given(
    num_calls=st.integers(1, 400),
    losses=st.tuples(*[st.integers(0, 400)] * 3),
    backend=st.sampled_from(["endpoint", "hugging_face", "lab", "scripted"]),
)
def test_a_method_is_marked_above_the_limit_unless_its_errors_are_expected(
    num_calls, losses, backend
):
    failed, truncated, unusable = losses
    total = max(num_calls, sum(losses))
    row = {"calls": total, "failed": failed, "truncated": truncated, "unusable": unusable}
    (counts,) = reply_shares.count_replies(make_calls(row, backend=backend)).itertuples()
    assert counts.share_without_answer == pytest.approx(sum(losses) / total)
    is_above = sum(losses) > MAX_SHARE * total
    assert counts.too_many == (is_above and backend in ("endpoint", "hugging_face"))


def test_a_fallback_counts_once_beside_the_replies_that_led_to_it():
    calls = make_calls({"calls": 2, "unusable": 2, "fallback": 1}, *[{}] * 8)
    (counts,) = reply_shares.count_replies(calls).itertuples()
    assert counts.calls == 10 and counts.share_without_answer == 0.2


def test_a_method_that_called_no_model_has_no_row():
    assert reply_shares.count_replies(make_calls({"calls": 0})).empty
    assert reply_shares.count_replies(make_calls({}).iloc[:0]).empty


def test_rows_come_back_as_they_are_where_nothing_is_marked():
    rows = make_rows("KO claude", "random")
    counts = reply_shares.count_replies(make_calls(*[{}] * 20))
    assert reply_shares.mark_rows(rows, counts) is rows


def test_only_the_style_of_a_method_that_its_model_failed_in_is_marked():
    calls = make_calls({"truncated": 1}, {}).assign(style=["larger", "exam"])
    counts = reply_shares.count_replies(calls, keys=["method", "style"])
    rows = make_rows("KO claude", "random").assign(style=["larger", "exam"] * 10)
    marked = reply_shares.mark_rows(rows, counts)
    is_marked = marked[UNUSABLE_SHARE] > 0
    assert (is_marked == ((rows["method"] == "KO claude") & (rows["style"] == "larger"))).all()
    assert set(marked.loc[is_marked, UNUSABLE_SHARE]) == {1.0}


def test_rows_that_are_marked_already_keep_the_larger_mark():
    rows = make_rows("KO claude", "random").assign(**{UNUSABLE_SHARE: [0.9] * 5 + [0.1] * 15})
    calls = make_calls({"truncated": 1}, {})
    marked = reply_shares.mark_rows(rows, reply_shares.count_replies(calls))
    assert marked[UNUSABLE_SHARE].tolist() == [0.9] * 5 + [0.5] * 5 + [0.1] * 10
    assert reply_shares.find_unusable_share(marked) == 0.9
    assert reply_shares.find_unusable_share(make_rows("random")) == 0.0


def test_kinds_of_failures_are_sorted_by_whose_fault_they_are():
    kinds = ["timeout", "truncated", "refusal", "no_object", "truncated"]
    assert reply_shares.count_failure_kinds(kinds) == {"failed": 1, "truncated": 2, "unusable": 2}


def test_a_row_that_several_models_decided_has_the_backend_whose_errors_count():
    assert reply_shares.pick_backend(["lab", "endpoint", "scripted"]) == "endpoint"
    assert reply_shares.pick_backend(["lab", "scripted"]) == "lab"


ESTIMATES = {
    "mean": lambda rows, pair: stats.mean(rows, "correct", "method").loc[["claude"]],
    "difference": lambda rows, pair: stats.paired_difference(rows, "correct", *pair),
    "ratio": lambda rows, pair: stats.ratio(rows, "correct", *pair),
    "change": lambda rows, pair: stats.diff_in_diff(rows, "correct", *pair),
    "gain over a mixture": lambda rows, pair: stats.gain_over_mixture(rows, "correct", "cost_usd", *pair),
    "statistic": lambda rows, pair: stats.statistic(rows, ["correct"], lambda x: x.mean(), "method").loc[["claude"]],
    "success rate": lambda rows, pair: stats.success_rate(rows, "correct", 0.5, "method").loc[["claude"]],
}  # fmt: skip


@pytest.mark.parametrize("name", ESTIMATES)
@pytest.mark.parametrize("num_lost", [0, 2])
def test_every_estimate_that_rests_on_a_marked_row_is_untestable_and_no_other(name, num_lost):
    calls = make_calls(*[{"truncated": 1}] * num_lost, *[{}] * (10 - num_lost), method="claude")
    rows = make_rows("random", "claude", "best").assign(cost_usd=1.0)
    marked = reply_shares.mark_rows(rows, reply_shares.count_replies(calls))
    pair = {"method": "claude"}, {"method": "random"}
    estimate = ESTIMATES[name](marked, pair)
    if num_lost:
        assert estimate[UNUSABLE_SHARE].item() == 0.2
        assert list(stats.verdict(estimate)) == ["untestable"]
    else:
        pd.testing.assert_frame_equal(estimate, ESTIMATES[name](rows, pair))
        assert UNUSABLE_SHARE not in estimate
    untouched = stats.paired_difference(marked, "correct", {"method": "best"}, {"method": "random"})
    assert list(stats.verdict(untouched)) == ["holds"]


def test_a_marked_effect_is_never_significant_and_is_named_as_left_out():
    effects = pd.DataFrame(
        {"value": 1.0, "ci_low": 0.5, "ci_high": 1.5, "p_value": 1e-6, UNUSABLE_SHARE: [0.31, 0.0]},
        index=["claude", "other"],
    )
    assert list(stats.holm(effects)) == [False, True]
    sentence = stats.summary_sentence(effects)
    assert sentence == "clearly above 0: other; left out, too few usable replies: claude."
