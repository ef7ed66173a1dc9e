"""What lesson 02 measures: differences that were written into a table come out under their keys, and no others."""

import numpy as np
import pandas as pd
import pytest

from lib import stats
from lib.experiment import results_table
from lib.orchestration import lesson_estimates, results
from lib.reports.lesson import METRIC_KEY
from tests.orchestration import lesson_rows

PARAMS = lesson_rows.make_params()
SETTINGS = PARAMS.orchestration.model_copy(update={"episodes": 3})
CLOSED = (("education", "paper"),)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return lesson_rows.make_rows(PARAMS, CLOSED)


@pytest.fixture(scope="module")
def estimates(rows) -> lesson_estimates.Estimates:
    return lesson_estimates.collect_estimates(rows, SETTINGS)


def test_every_key_is_a_key_of_a_metric_and_every_interval_holds_its_value(estimates):
    for key, row in estimates.items():
        assert METRIC_KEY.fullmatch(key), key
        assert row["ci_low"] <= row["value"] <= row["ci_high"], key


@pytest.mark.parametrize(
    "key, value, tolerance",
    [
        ("gate.education.speed.headroom", 0.4, 0.02),
        ("gate.education.paper.headroom", 0.0, 0.02),
        ("contrast.education.speed.RO_random.utility", 0.15, 0.02),
        ("contrast.minigrid.varied.TO_KO.utility", 0.05, 0.02),
        ("contrast.education.varied.RO_RO-greedy.utility", 0.0, 0.02),
        ("length.education.speed.RO_minus.random", -10, 1),
        ("length.education.paper.KO_minus.MO-MGDA", -10, 1),
        ("length.education.paper.random_minus.best-policy", -14, 1),
        ("depth.education.paper.1.length", 10.5, 1),
        ("depth.education.speed.1_minus_3.length", 2, 1),
        ("memory.education.KO.utility", 0.0, 0.02),
        ("reference.minigrid.MO-pseudoS_minus.RO.utility", -0.2, 0.02),
        ("reference.minigrid.MO-pseudoS_minus.KO.gold", 0.0, 0.05),
        ("sparing.minigrid.1.calls", 3, 1e-9),
        ("table2.education.RO.lab-orchestrator.tokens", 11, 1e-9),
        ("table2.minigrid.policy.MO-pseudoS.length", 32.5, 1),
    ],
)
def test_a_difference_of_the_table_is_the_metric(estimates, key, value, tolerance):
    assert estimates[key]["value"] == pytest.approx(value, abs=tolerance)


def test_the_policies_of_table_2_stand_once_and_no_variant_or_bound_does(rows):
    for domain in lesson_estimates.DOMAINS:
        methods = set(lesson_estimates.select_rows_of_table_2(rows, domain)["method"])
        assert {"SO-d1", "random", "LinUCB", "RO greedy", "RO lab-orchestrator"} <= methods
        assert not {"best policy", "plan ahead", "oracle"} & methods
        assert not any("," in method for method in methods)


def test_an_interval_of_a_front_ends_where_a_front_can(estimates):
    fronts = {key: row for key, row in estimates.items() if ".hv_" in key or ".sparsity" in key}
    assert fronts
    for key, row in fronts.items():
        assert row["ci_low"] >= 0, key
        assert row["ci_high"] <= 8 or key.endswith("sparsity"), key


def test_table_2_reads_as_many_episodes_of_every_method(rows, estimates):
    more = SETTINGS.model_copy(update={"episodes": lesson_rows.NUM_ITEMS})
    all_episodes = lesson_estimates.estimate_table_2(rows, more)
    key = "table2.education.policy.SO-d1.aptitude"
    assert estimates[key]["num_items"] == 3 * lesson_rows.NUM_SEEDS
    assert all_episodes[key]["num_items"] == lesson_rows.NUM_ITEMS * lesson_rows.NUM_SEEDS


def test_a_world_in_which_nothing_can_be_won_is_not_open(rows):
    verdicts = lesson_estimates.list_verdicts(rows, SETTINGS)
    assert verdicts["gate.education.paper.headroom_verdict"] == "not open"
    assert verdicts["gate.education.speed.headroom_verdict"] == "open"
    closed = {key: word for key, word in verdicts.items() if "contrast.education.paper" in key}
    assert set(closed.values()) == {"not open"}
    assert verdicts["contrast.education.speed.RO_random.utility_verdict"] == "holds"
    assert verdicts["contrast.education.speed.RO_RO-greedy.utility_verdict"] == "equivalent"


def test_each_question_compares_a_system_with_its_own_context(rows):
    contrasts = results.estimate_contrasts(rows, SETTINGS)
    questions = lesson_estimates.arrange_questions(contrasts)
    for system in ("KO", "TO", "RO"):
        row = questions.loc["education", "speed", system, "greedy"]
        expected = contrasts.loc["education", "speed", f"{system}_{system}-greedy"]
        assert row["value"] == expected["value"]
    assert len(questions) == 5 * 3 * 3  # worlds, systems, questions


def test_what_the_lesson_shows_twice_is_among_the_estimates(rows, estimates):
    questions = lesson_estimates.arrange_questions(results.estimate_contrasts(rows, SETTINGS))
    shown = lesson_estimates.list_shown_keys(questions)
    assert len(shown) == 5 + 5 * 3  # a gate per world, and RO's three questions
    assert set(shown) <= set(estimates)


def test_an_oracle_that_is_passed_once_is_not_best(rows):
    assert lesson_estimates.is_oracle_best(rows)
    passed = rows.copy()
    row = passed.index[passed["method"] == "RO greedy"][0]
    passed.loc[row, "reward"] = 2.0
    assert not lesson_estimates.is_oracle_best(passed)


def test_who_decided_stands_beside_the_rows_of_other_models_only(rows):
    prompted = results_table.select(rows, condition="paper", method="KO lab-orchestrator").assign(
        method="KO scripted-large", model="scripted-large", backend="scripted"
    )
    both = pd.concat([rows, prompted], ignore_index=True)
    backends = lesson_estimates.list_backends_of_table_2(both, SETTINGS)
    assert backends["table2.education.KO.scripted-large.backend"] == "scripted"
    assert not any("lab-orchestrator" in key for key in backends)
    # A recorded model has the same keys under `full.`.
    recorded = lesson_estimates.estimate_recorded_rows(prompted, SETTINGS)
    assert recorded["full.table2.minigrid.KO.scripted-large.backend"] == "scripted"
    assert np.isfinite(recorded["full.table2.education.KO.scripted-large.length"]["value"])


def test_rows_of_table_2_stand_in_the_order_of_the_paper_with_a_models_systems_together():
    methods = ["RO b", "KO b", "random", "KO a", "MO-S", "SO-d2", "RO a"]
    ordered = lesson_estimates.sort_rows_of_table_2(methods)
    assert ordered == ["SO-d2", "MO-S", "random", "KO a", "RO a", "RO b", "KO b"]


def test_looking_one_step_ahead_is_to(rows):
    by_depth = lesson_estimates.name_methods_by_depth("m", SETTINGS)
    assert by_depth[1] == "TO m"
    assert by_depth[SETTINGS.lookahead] == "RO m"
    assert list(by_depth) == sorted([1, SETTINGS.lookahead, *SETTINGS.lookahead_depths])


@pytest.mark.parametrize(
    ("changes", "missing", "left"),
    [
        ({"decision_intervals": [3]}, "sparing.", "depth."),
        ({"lookahead_depths": [9]}, "depth.", "sparing."),
        ({"model": "another-model"}, "contrast.", "gate."),
        ({"contrasts": [["KO", "no such method"]]}, "contrast.", "length."),
    ],
)
def test_a_table_of_other_settings_is_refused_or_estimated_without_what_it_lacks(
    rows, estimates, changes, missing, left
):
    other = SETTINGS.model_copy(update=changes)
    with pytest.raises(stats.NoRowsError):
        lesson_estimates.collect_estimates(rows, other)
    found = lesson_estimates.collect_estimates(rows, other, skip_missing=True)
    assert not any(key.startswith(missing) for key in found)
    kept = [key for key in estimates if key.startswith(left)]
    assert kept and all(found[key]["value"] == estimates[key]["value"] for key in kept)
