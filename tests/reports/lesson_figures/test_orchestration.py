"""Tables and titles of lesson 02 say what the rows say."""

import re

import pandas as pd
import pytest

from lib import stats
from lib.experiment.full_results import FullResults
from lib.language_models.training import smollm_baseline
from lib.orchestration import lesson_estimates, results
from lib.reports.lesson_figures import orchestration
from tests.orchestration import lesson_rows

PARAMS = lesson_rows.make_params()
SETTINGS = PARAMS.orchestration
CLOSED = (("education", "paper"), ("minigrid", "paper"))
NUM_OPEN = 3  # worlds


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return lesson_rows.make_rows(PARAMS, CLOSED)


@pytest.fixture(scope="module")
def contrasts(rows) -> pd.DataFrame:
    return results.estimate_contrasts(rows, SETTINGS)


@pytest.fixture(scope="module")
def questions(contrasts) -> pd.DataFrame:
    return lesson_estimates.arrange_questions(contrasts)


def test_two_runs_are_compared_by_headroom_and_by_ro_minus_baselines(questions):
    keys = lesson_estimates.list_shown_keys(questions)
    comparison = pd.DataFrame({"estimate": ["memory.education.KO.utility", *keys]})
    comparison["this run"] = [f"text {number}" for number in range(len(comparison))]
    table = orchestration.tabulate_comparison(comparison, questions)
    assert table["this run"].tolist() == comparison["this run"].tolist()[1:]
    assert table.loc[("students", "speed", "headroom"), "this run"].startswith("text")
    estimates = set(table.index.get_level_values("estimate"))
    assert estimates == {
        "headroom",
        "RO minus best policy",
        "RO minus random",
        "RO minus greedy",
    }


def test_a_row_of_the_questions_has_three_answers_with_interval_and_verdict(questions):
    table = orchestration.tabulate_questions(questions)
    assert len(table) == 5 * 3
    answer = table.loc[("students", "speed", "RO"), "minus random"]
    assert re.fullmatch(r"\+0\.1\d\d \[\+0\.1\d\d, \+0\.1\d\d\]\*, holds", answer)
    assert table.loc[("rooms", "paper", "KO"), "minus random"].endswith("not open")


def test_the_title_counts_what_is_clearly_above(questions):
    open_questions = questions[questions["verdict"] != "not open"]
    title = orchestration.summarize_questions(open_questions, "M")
    # KO, TO and RO lie above the best policy and random in every open world, and never above the rule.
    expected = "are clearly above best policy in 9 of 9 rows, random in 9 and greedy in 0"
    assert title == f"KO, TO and RO by M {expected}"
    conclusion = orchestration.count_verdicts(open_questions)
    assert "random (above in 9, below in 0)" in conclusion


def test_table_2_has_the_chosen_models_and_all_baselines(rows):
    table = orchestration.tabulate_table_2(rows, SETTINGS, models=["lab-orchestrator"])
    methods = list(table.loc["students"].index)
    assert methods[:4] == ["SO-d1", "SO-d2", "SO-d3", "MO-S"]
    assert methods[-3:] == [f"{system} lab-orchestrator" for system in ("KO", "TO", "RO")]
    assert {"random", "LinUCB"} <= set(methods)
    assert not any("greedy" in method for method in methods)
    assert table.loc[("rooms", "RO lab-orchestrator"), "tokens"].startswith("11")


@pytest.mark.parametrize("domain, heading", [("education", "aptitude"), ("minigrid", "no lava")])
def test_the_complete_table_has_every_objective_too(rows, domain, heading):
    table = orchestration.tabulate_table_2(
        rows, SETTINGS, models=["greedy"], domains=[domain], is_complete=True
    )
    assert {heading, "sparsity", "steps"} <= set(table.columns)


def test_rows_of_a_pretrained_model_come_from_a_current_run_only(rows):
    pretrained = rows[rows["method"] == "KO lab-orchestrator"].assign(model=smollm_baseline.NAME)
    recorded = pd.concat([rows, pretrained])
    current = FullResults(recorded, "make full", 1.0, 1, ())
    outdated = FullResults(recorded, "make full", 1.0, 1, ("a change",))
    assert len(orchestration.select_pretrained_rows(current)) == len(pretrained)
    assert orchestration.select_pretrained_rows(outdated).empty


def test_a_look_ahead_of_one_step_stands_beside_longer_ones_for_every_decider(rows):
    table = orchestration.estimate_lengths_by_depth(rows, SETTINGS, ["lab-orchestrator", "greedy"])
    assert set(table["decider"]) == {"lab-orchestrator", "greedy"}
    assert set(table["depth"]) == {1, SETTINGS.lookahead, *SETTINGS.lookahead_depths}
    one_step = table[(table["depth"] == 1) & (table["world"] == "speed")]
    assert one_step["value"].between(10, 11).all()  # steps of TO
    assert set(table["query"]) == {"asked for all objectives", "asked for mastery"}

    # Longer rollouts are RO's, of 8 steps; one step is TO's 10.
    title = orchestration.summarize_depths(table, "greedy")
    assert re.match(r"With .*, 7 steps ahead instead of 1 change the length by -\d\.\d ", title)


def test_the_title_names_who_ends_highest_for_each_orchestrator_with_its_mark():
    mastery = pd.DataFrame(
        [
            ("KO", "small", 0.4), ("KO", "large", 0.7), ("TO", "small", 0.8), ("TO", "large", 0.6),
        ],
        columns=["orchestrator", "model", "mastery"],
    )  # fmt: skip
    title = orchestration.summarize_final_mastery(mastery, lambda model: f"{model}†")
    assert title == "Mastery ends highest with large† (KO) and small† (TO)"


def test_how_often_to_decide_is_asked_of_ko_and_ro_in_both_environments(rows):
    selected = orchestration.select_decision_intervals(rows, SETTINGS)
    utility = stats.mean(selected, "reward", ["environment", "system", "every"])
    assert set(selected["every"]) == {1, *SETTINGS.decision_intervals}
    title = orchestration.summarize_decision_intervals(utility)
    assert "students" in title and "rooms" in title


def test_further_contrasts_are_those_that_no_question_asks(contrasts):
    table = orchestration.tabulate_further_contrasts(contrasts)
    assert list(table.columns) == ["KO minus LinUCB", "RO minus TO", "TO minus KO"]
    assert table.loc[("rooms", "varied"), "TO minus KO"].startswith("+0.05")


def test_shares_of_choices_sum_to_one_at_every_step(rows):
    of_world = rows[(rows["group"] == "education") & (rows["condition"] == "speed")]
    of_systems = of_world[of_world["model"] == "lab-orchestrator"]
    shares = orchestration.share_choices(of_systems, width=2)
    assert shares.sum(axis=1).round(9).eq(1).all()
    first = shares.loc[("RO lab-orchestrator", 0)]
    assert first["SO-d1"] == 1  # the first two of SO-d1, SO-d1, SO-d2


def test_a_model_without_usable_replies_is_left_out_of_titles_and_conclusions(rows, questions):
    reason = "left out: a model gave no usable reply in 90% of its calls"
    marked = questions.assign(unusable_share=0.9)
    assert orchestration.summarize_questions(marked, "M").endswith(reason)
    assert orchestration.count_verdicts(marked).endswith(reason)
    assert reason in orchestration.summarize_memory(marked, "M")

    is_ro = rows["method"] == "RO lab-orchestrator"
    marked_rows = rows.assign(unusable_share=is_ro * 0.9)
    assert orchestration.summarize_choices(marked_rows, "RO lab-orchestrator").endswith(reason)
