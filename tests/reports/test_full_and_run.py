"""The recorded run beside the reader's own: the same estimates, whether they agree, and what counts."""

import math

import pandas as pd
import pytest

from lib import stats
from lib.experiment.full_results import FullResults
from lib.reports.full_and_run import (
    collect_recorded_metrics,
    compare_estimates,
    describe_full_run,
    estimates_agree,
)
from lib.reports.lesson import Lesson


def make_rows(gains: list[float]) -> pd.DataFrame:
    """Rewards of two methods on eight items under as many seeds as there are gains."""
    rows = []
    for seed, gain in enumerate(gains):
        for item in range(8):
            for method, bonus in (("CoRL", gain), ("random", 0.0)):
                rows.append(
                    {
                        "method": method,
                        "seed": seed,
                        "item": str(item),
                        "sample": 0,
                        "reward": 0.1 * item + bonus,
                    }
                )
    return pd.DataFrame(rows)


def estimate_gain(rows: pd.DataFrame) -> dict[str, pd.Series]:
    pair = {"method": "CoRL"}, {"method": "random"}
    return {"corl.gain": stats.paired_difference(rows, "reward", *pair).iloc[0]}


def compare(lesson: Lesson, full: FullResults, rows: pd.DataFrame) -> pd.DataFrame:
    this_run = estimate_gain(rows)
    recorded = {} if full.status == "absent" else estimate_gain(full.rows)
    lesson.metrics(collect_recorded_metrics(full, this_run, recorded))
    return compare_estimates(full, this_run, recorded)


def make_full(gains: list[float], changes: tuple[str, ...] = ()) -> FullResults:
    return FullResults(make_rows(gains), "make full LESSON=05", 3600.0, 40, changes)


@pytest.fixture
def lesson(tmp_path):
    return Lesson("05_budgeted_routing", "Budgeted routing", "smoke", {}, tmp_path)


OWN_GAINS = [0.09, 0.11, 0.12, 0.1]


def test_a_current_recorded_run_gives_the_metrics_that_claims_are_tested_on(lesson):
    full = make_full([0.1, 0.12, 0.08, 0.11, 0.09])
    table = compare(lesson, full, make_rows(OWN_GAINS))
    assert table.loc[0, "comparison"] == "they agree"
    assert table.loc[0, "recorded run"].startswith("+0.100 [+0.0")
    assert lesson._metrics["full.corl.gain"] == pytest.approx(0.1)
    assert (
        lesson._metrics["full.corl.gain_ci_low"] < 0.1 < lesson._metrics["full.corl.gain_ci_high"]
    )
    assert lesson._metrics["full.status"] == "current"
    assert describe_full_run(full) == "`make full LESSON=05`, 40 jobs, 1.0 hours of one core"


def test_an_outdated_recorded_run_is_shown_and_leaves_the_verdicts(lesson):
    full = make_full([0.5, 0.52, 0.48, 0.5], changes=("versions.losses 1 -> 2",))
    table = compare(lesson, full, make_rows(OWN_GAINS))
    assert table.loc[0, "comparison"] == "they disagree"
    assert table.loc[0, "recorded run"].startswith("+0.500")
    assert lesson._metrics == {"full.status": "outdated"}
    assert describe_full_run(full).startswith(
        "OUTDATED, not used in verdicts: versions.losses 1 -> 2"
    )


def test_without_a_recorded_run_the_reader_is_told_how_to_make_one(lesson):
    full = FullResults(pd.DataFrame(), "make full LESSON=05", 0.0, 0, ())
    table = compare(lesson, full, make_rows(OWN_GAINS))
    assert table.loc[0, ["recorded run", "comparison"]].tolist() == ["absent", ""]
    assert lesson._metrics == {"full.status": "absent"}
    assert "make one with `make full LESSON=05`" in describe_full_run(full)


@pytest.mark.parametrize(
    ("other", "agree"),
    [
        ((0.3, 0.2, 0.4), False),
        ((0.3, 0.1, 0.5), True),
        ((-0.07, -0.22, 0.08), True),
        ((-0.1, -0.15, -0.05), False),
    ],
)
def test_two_runs_agree_where_their_difference_is_within_both_uncertainties(other, agree):
    first = pd.Series({"value": 0.1, "ci_low": 0.0, "ci_high": 0.2})
    second = pd.Series(dict(zip(("value", "ci_low", "ci_high"), other, strict=True)))
    assert estimates_agree(first, second) == agree
    assert estimates_agree(second, first) == agree


def test_a_run_without_an_interval_adds_no_uncertainty():
    first = pd.Series({"value": 0.1, "ci_low": 0.0, "ci_high": 0.2})
    point = pd.Series({"value": 0.19, "ci_low": math.nan, "ci_high": math.nan})
    assert estimates_agree(first, point)
    assert not estimates_agree(first, point + 0.02)


@pytest.mark.parametrize(("num_seeds", "agree"), [(1, True), (2, False), (3, False)])
def test_a_run_of_few_seeds_is_as_uncertain_as_the_seeds_of_the_other_differ(num_seeds, agree):
    """Nine seeds have a half-width of 0.1: one of them 0.3, two 0.21, three what their own interval says."""
    recorded = pd.Series({"value": 0.0, "ci_low": -0.1, "ci_high": 0.1, "num_runs": 9})
    this_run = pd.Series({"value": 0.3, "ci_low": 0.29, "ci_high": 0.31, "num_runs": num_seeds})
    assert estimates_agree(recorded, this_run) == agree
    assert estimates_agree(this_run, recorded) == agree


@pytest.mark.parametrize(
    ("gains", "shown"),
    [([0.2], "+0.200 (one seed)"), ([0.2, 0.2], "+0.200 (n = 2 seeds)"), ([0.2] * 3, "+0.200 [")],
)
def test_no_interval_of_fewer_than_three_seeds_is_shown(lesson, gains, shown):
    table = compare(lesson, make_full(OWN_GAINS), make_rows(gains))
    assert table.loc[0, "this run"].startswith(shown)


def test_two_runs_without_an_interval_are_not_called_agreeing_or_disagreeing():
    def estimate_without_interval(rows: pd.DataFrame) -> dict[str, pd.Series]:
        mean = rows["reward"].mean()
        return {"reward": pd.Series({"value": mean, "ci_low": math.nan, "ci_high": math.nan})}

    full = make_full([0.5], changes=("versions.losses 1 -> 2",))
    this_run = estimate_without_interval(make_rows([0.1]))
    table = compare_estimates(full, this_run, estimate_without_interval(full.rows))
    assert table.loc[0, "comparison"] == ""


def test_an_estimate_of_a_model_without_usable_replies_agrees_with_nothing(lesson):
    marked = make_rows(OWN_GAINS).assign(unusable_share=0.4)
    table = compare(lesson, make_full(OWN_GAINS), marked)
    assert table.loc[0, "comparison"] == ""
    assert table.loc[0, "this run"] == "left out: a model gave no usable reply in 40% of its calls"


def test_what_the_recorded_run_lacks_is_said_and_becomes_no_metric(lesson):
    this_run = estimate_gain(make_rows([0.1] * 5))
    full = make_full([0.2] * 5)
    table = compare_estimates(full, this_run, recorded={})
    lesson.metrics(collect_recorded_metrics(full, this_run, recorded={}))
    assert list(table["recorded run"]) == ["not in the recorded run"]
    assert list(table["comparison"]) == [""]
    assert lesson._metrics == {"full.status": "current"}
