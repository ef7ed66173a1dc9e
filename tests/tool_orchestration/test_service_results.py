"""pass^k and pass@k, and tables of customer service: worked numbers, and trials that are not scored."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tool_orchestration import service_results


def make_rows(outcomes, model="small", group="retail"):
    """A row per trial; outcomes has a list of outcomes for each task."""
    rows = []
    for item, trials in enumerate(outcomes):
        for sample, correct in enumerate(trials):
            failure = "user: timeout" if math.isnan(correct) else ""
            numbers = dict.fromkeys(
                ("cost_usd", "seconds", "expert_cost_usd", "user_cost_usd", "turns", "calls"), 1.0
            )
            rows.append(
                {
                    "item": f"{group}: {item}",
                    "group": group,
                    "model": model,
                    "sample": sample,
                    "correct": correct,
                    "failure": failure,
                    "ending": "" if failure else "user",
                    "expert_calls": 0,
                    **numbers,
                }
            )
    return pd.DataFrame(rows)


def test_passes_of_four_trials_with_two_successes():
    assert service_results.compute_passes(4, 2, 1) == {"pass^1": 0.5}
    # 1 of the 6 pairs succeeds twice, and 1 of them fails twice.
    assert service_results.compute_passes(4, 2, 2) == pytest.approx(
        {"pass^2": 1 / 6, "pass@2": 5 / 6}
    )


@given(st.integers(1, 8), st.data())
def test_more_trials_never_raise_the_chance_of_all_nor_lower_that_of_one(num_trials, data):
    successes = data.draw(st.integers(0, num_trials))
    all_succeed = []
    one_succeeds = []
    for k in range(1, num_trials + 1):
        passes = service_results.compute_passes(num_trials, successes, k)
        all_succeed.append(passes[f"pass^{k}"])
        one_succeeds.append(passes.get(f"pass@{k}", passes.get("pass^1")))
    assert all_succeed == sorted(all_succeed, reverse=True)
    assert one_succeeds == sorted(one_succeeds)


def test_tasks_with_too_few_scored_trials_stand_in_no_number_for_that_k():
    rows = make_rows([[1.0, 1.0], [0.0, math.nan], [1.0, 0.0]])
    passes = service_results.estimate_passes(rows, 2)
    first = passes.loc[("small", "retail", "pass^1")]
    both = passes.loc[("small", "retail", "pass^2")]
    assert first["value"] == pytest.approx((1 + 0 + 0.5) / 3) and first["num_items"] == 3
    assert both["value"] == 0.5 and both["num_items"] == 2
    assert 0 <= first["ci_low"] <= first["value"] <= first["ci_high"] <= 1


def test_an_interval_of_zero_successes_is_not_a_point():
    passes = service_results.estimate_passes(make_rows([[0.0]] * 10), 1)
    estimate = passes.loc[("small", "retail", "pass^1")]
    assert estimate["value"] == 0.0 and estimate["ci_high"] > 0.2


def test_a_summary_counts_what_is_not_scored_and_says_where_nothing_is():
    rows = pd.concat([make_rows([[1.0], [math.nan]]), make_rows([[math.nan]], model="large")])
    summary = service_results.summarize(rows, 1).set_index("team")
    assert summary.loc["small", "not scored"] == 1 and summary.loc["small", "trials"] == 2
    assert summary.loc["large", "pass^1"] == "no trial is scored"
    endings = service_results.count_endings(rows)
    assert endings.loc[("small", "retail"), "not scored, user: timeout"] == 1
