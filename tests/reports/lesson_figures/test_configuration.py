"""Lesson 07's tables and figures say what the rows say; the title of each can be checked against its marks."""

import numpy as np
import pandas as pd
import pytest

from lib.agent_configuration import estimates, results
from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.questions import KINDS
from lib.reports.lesson_figures import configuration as lesson_figures
from tests.agent_configuration.test_estimates import TESTS, make_tests

LABELS = {method: method.upper() for method in TESTS["method"].unique()}


def make_training(split: str) -> pd.DataFrame:
    """Two kinds, two seeds, four updates: chains are learned with `reason`, hops with `voting`."""
    rows = []
    for kind, workflow in (("chain", "reason"), ("hops", "voting")):
        for seed in range(2):
            for step in range(4):
                for chosen in (workflow, "direct"):
                    rows.append(
                        {
                            "split": split, "method": "arc", "seed": seed, "group": kind, "only": kind, "step": step,
                            "workflow": chosen, "calls": 8 * (1 + step) if chosen == workflow else 8,
                            "reward": 1.0 + step, "correct": 0.25 * step, "used": 2.0,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


def test_contrasts_stand_in_one_table_with_verdict_and_detectable_effect():
    table = lesson_figures.tabulate_contrasts(estimates.estimate_contrasts(TESTS), LABELS)
    assert table.loc["RANDOM", "verdict"] == "holds"
    assert table["smallest detectable effect"].min() >= 0
    assert set(table.index) == set(LABELS.values()) - {"ARC"}


def test_methods_are_ordered_by_their_regret():
    metrics = estimates.estimate_oracle(TESTS)
    table = lesson_figures.tabulate_methods(TESTS, metrics, LABELS)
    assert list(table.index)[:1] == ["ORACLE"] and list(table.index)[-1] == "RANDOM"
    assert table.loc["ARC", "all"] == pytest.approx(0.9)
    assert table.loc["RANDOM", "regret"] == pytest.approx(4.0)


def test_the_mean_rewards_of_three_methods_stand_in_the_title():
    title = lesson_figures.draw_rewards(TESTS, LABELS).get_suptitle()
    assert "ARC 4.40" in title and "BANDIT 2.40" in title and "BY_KIND 2.90" in title


def test_accuracy_and_cost_of_arc_and_of_the_constant_stand_in_the_title():
    rows = TESTS.copy()
    rows.loc[rows["method"] == "by_kind", "cost_usd"] = 2e-6
    title = lesson_figures.draw_tradeoff(rows, LABELS).get_suptitle()
    assert "0.90 for $0.001" in title and "0.60 for $0.002" in title


def test_only_estimates_that_are_not_written_yet_are_recorded_again():
    recorded = lesson_figures.collect_recorded({"arc.gain": 1.0, "arc.episodes": 4}, ["arc.gain"])
    assert recorded == {"full.arc.episodes": 4}


def test_training_is_drawn_by_kind_and_its_title_has_the_accuracy_at_the_end():
    figure = lesson_figures.draw_training(make_training(results.TRAIN))
    title = figure.get_suptitle()
    assert "chain 0.75" in title and "hops 0.75" in title


def test_the_workflow_that_is_chosen_most_at_the_end_stands_in_the_title():
    figure = lesson_figures.draw_workflow_shares(make_training(results.SHARES))
    assert "chain reason" in figure.get_suptitle() and "hops voting" in figure.get_suptitle()


def test_rewards_are_drawn_for_every_kind_and_described_by_their_medians():
    random = np.random.default_rng(0)
    rows = []
    for kind in ("chain", "hops"):
        for workflow in WORKFLOWS[:3]:
            for reward in random.normal(size=12):
                rows.append(
                    {
                        "split": "test", "set": "grid", "group": kind, "workflow": workflow,
                        "reward": reward + 4.0 * (workflow == WORKFLOWS[1]),
                    }
                )  # fmt: skip
    figure = lesson_figures.draw_rewards_by_workflow(pd.DataFrame(rows))
    assert [axes.get_title("left") for axes in figure.axes] == ["chain", "hops"]
    assert figure.alt_text.count(f"({WORKFLOWS[1]})") == 2


def test_errors_of_all_methods_and_of_arc_by_kind_have_a_bar_each():
    rows = TESTS.copy()
    wrong = rows.index[(rows["method"] == "arc") & (rows["correct"] == 0)]
    rows.loc[wrong, "error"] = "configuration"
    figure = lesson_figures.draw_errors(rows, LABELS)
    title = figure.get_suptitle()
    assert "ARC policy configuration" in title and "RANDOM reasoning" in title
    by_kind = lesson_figures.draw_arc_errors_by_kind(rows)
    assert by_kind.get_suptitle().startswith("100%")


def test_transfer_stands_beside_the_similarity_of_the_questions():
    away = make_tests({"arc": 0.4}, {"arc": 3}).assign(style=results.OTHER)
    away["only"] = np.where(away["group"] == "chain", "hops", "chain")
    rows = pd.concat([make_tests({"arc": 0.9}, {"arc": 3}), away], ignore_index=True)
    table = lesson_figures.tabulate_transfer(rows, ["hashing"])
    assert table.loc["chain to hops", "at home"] == pytest.approx(0.9)
    assert table.loc["chain to hops", "on the other kind"] == pytest.approx(0.4)
    similarity = table["similarity, hashing"].astype(float)
    assert similarity["chain to hops"] == similarity["hops to chain"]
    assert -1 <= similarity.min() <= similarity.max() < 1


def test_what_larger_agents_change_is_signed_in_the_title():
    arc = make_tests({"arc": 0.9}, {"arc": 3})
    larger = make_tests({"arc": 0.7}, {"arc": 3}).assign(style=results.LARGER)
    metrics = estimates.estimate_larger_agents(pd.concat([arc, larger], ignore_index=True))
    assert "-0.20" in lesson_figures.draw_larger_agents(metrics).get_suptitle()


def test_instructions_are_named_by_agent_and_word():
    estimate = pd.Series({"value": 0.1, "ci_low": 0.0, "ci_high": 0.2})
    metrics = {"atoms.base_verifier_check.effect": estimate, "atoms.idle": 0}
    assert list(lesson_figures.collect_atom_effects(metrics).index) == ["verifier: check"]


def test_instructions_are_counted_by_what_they_clearly_change():
    effects = pd.DataFrame(
        {"value": [0.2, -0.2, 0.0], "ci_low": [0.1, -0.3, -0.1], "ci_high": [0.3, -0.1, 0.1]}
    )
    title = lesson_figures.summarize_atoms(effects, 1)
    assert title == "Of 3 instructions 1 clearly raise accuracy, 1 lower it, and 1 change nothing"


def test_encoders_are_sized_by_the_weights_that_read_a_question():
    assert lesson_figures.count_encoder_weights("hashing") == 0
    assert lesson_figures.count_encoder_weights("tfidf") > 100
    assert lesson_figures.count_encoder_weights("recorded:all-MiniLM-L6-v2") > 2e7
    assert lesson_figures.make_key("recorded:all-MiniLM-L6-v2") == "recorded_all-MiniLM-L6-v2"


def test_a_recorded_encoder_without_its_file_is_left_out():
    assert lesson_figures.list_encoders(["hashing", "recorded:none"]) == ["hashing"]


def test_the_best_encoder_is_named():
    scores = pd.DataFrame({"overall": [0.4, 0.6]}, index=["hashing", "tfidf"])
    assert lesson_figures.draw_encoders(scores).get_suptitle().startswith("tfidf has")


def test_the_labels_of_training_questions_come_back_from_the_results_table():
    from lib.agent_configuration import embeddings
    from lib.agent_configuration.questions import questions

    random = np.random.default_rng(0)
    tried = []
    for number, workflow in enumerate(WORKFLOWS[:3]):
        for kind in KINDS:
            for item in questions(kind.name, "train", 3):
                tried.append(
                    {
                        "split": "train", "set": "sampled", "prompt": item.prompt, "group": kind.name,
                        "workflow": workflow, "allocated": number % 2, "budget1": number, "reward": random.random(),
                    }
                )  # fmt: skip
    tried = pd.DataFrame(tried)
    labels = results.read_labels(results.make_label_rows(tried))
    expected = embeddings.label_questions(tried)[labels.columns]
    pd.testing.assert_frame_equal(labels, expected, check_dtype=False)
