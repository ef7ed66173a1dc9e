"""Lesson 07's tables and figures say what the rows say; the title of each can be checked against its marks."""

import numpy as np
import pandas as pd
import pytest

from lib import config, stats
from lib.agent_configuration import (
    embeddings,
    estimates,
    results,
    rewards,
    synthetic_estimates,
)
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


def test_methods_are_ordered_by_their_regret():
    metrics = estimates.estimate_oracle(TESTS)
    table = lesson_figures.tabulate_methods(TESTS, metrics, LABELS)
    assert list(table.index)[:1] == ["ORACLE"] and list(table.index)[-1] == "RANDOM"
    assert table.loc["ARC", "all"] == pytest.approx(0.9)
    assert table.loc["RANDOM", "regret"] == pytest.approx(4.0)


def test_the_mean_rewards_of_three_methods_stand_in_the_title():
    title = lesson_figures.draw_rewards(
        stats.mean(TESTS, "reward", "method"), LABELS
    ).get_suptitle()
    assert "ARC 4.40" in title and "BANDIT 2.40" in title and "BY_KIND 2.90" in title


def test_accuracy_and_cost_of_arc_and_of_the_constant_stand_in_the_title():
    rows = TESTS.copy()
    rows.loc[rows["method"] == "by_kind", "cost_usd"] = 2e-6
    rows["cost"] = 1_000 * rows["cost_usd"]
    cost = stats.mean(rows, "cost", "method")
    accuracy = stats.mean(rows, "correct", "method")
    title = lesson_figures.draw_tradeoff(cost, accuracy, LABELS).get_suptitle()
    assert "0.90 for $0.001" in title and "0.60 for $0.002" in title


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
    similarity = table["similarity, hashed words"].astype(float)
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
    assert lesson_figures.list_encoders(["hashing", "recorded:none"], []) == ["hashing"]


def test_a_recorded_encoder_without_the_vectors_of_a_question_is_left_out_and_named(capsys):
    names = ["hashing", "recorded:all-MiniLM-L6-v2"]
    assert lesson_figures.list_encoders(names, ["Is this new ?"]) == ["hashing"]
    assert "Left out: all-MiniLM-L6-v2" in capsys.readouterr().out


def test_the_best_encoder_is_named():
    scores = pd.DataFrame({"overall": [0.4, 0.6]}, index=["hashing", "tfidf"])
    title = lesson_figures.draw_encoders(scores).get_suptitle()
    assert title.startswith("word weights (tf-idf) has")


def test_encoders_and_their_scores_are_named_in_words():
    names = ["lab:lab-team", "recorded:all-MiniLM-L6-v2", "hashing", embeddings.FEATURES]
    scores = pd.DataFrame({"numbers": 5, "complexity": 0.4, "overall": 0.6}, index=names)
    table = lesson_figures.tabulate_encoders(scores)
    labels = ["lab-team (lesson 03)", "all-MiniLM-L6-v2", "hashed words", "five plain features"]
    assert list(table.index) == labels
    assert list(table.columns) == ["length of a vector", "number of steps", "overall"]


def test_the_labels_of_training_questions_come_back_from_the_results_table():
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


# The synthetic environment --------------------------------------------------------------------------


def make_synthetic_rows() -> pd.DataFrame:
    """Three environments with four questions each: every method lacks half a point more than the one before."""
    methods = [
        "optimum", synthetic_estimates.BEST_CONSTANT, synthetic_estimates.ONE_TAU, synthetic_estimates.TAU_PER_KIND,
        "ARC without SFT", "ARC, no discount", "ARC without masks", "flat bandit", "flat autoregressive", "flat MDP",
    ]  # fmt: skip
    rows = []
    for rank, method in enumerate(methods):
        for seed in range(3):
            for item in range(4):
                reward = 5.0 - 0.5 * rank + 0.1 * item + 0.01 * seed * rank
                rows.append(
                    {
                        "method": method, "seed": seed, "item": f"{seed}/{item}", "reward": reward,
                        "drawn": reward - 1.0, "margin": reward - 4.5, "outside": 0.25,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize("method", ["ARC without SFT", "ARC, no discount"])
def test_each_version_of_arc_is_compared_with_the_baselines_that_differ_in_one_thing(method):
    table = lesson_figures.tabulate_synthetic_differences(make_synthetic_rows(), method)
    assert table.index.name == f"{method} minus"
    assert table.loc["flat bandit", "verdict, likeliest choices"] == "holds"
    assert table.loc["best constant", "verdict, likeliest choices"] == "does not hold"
    assert table.loc["best constant", "sampled choices"] == ""  # it samples nothing
    assert ("flat MDP" in table.index) == (method == "ARC without SFT")  # it has the discount


def test_what_the_theorem_promises_has_a_row_for_each_imitation():
    table = lesson_figures.tabulate_theorem_on_networks(make_synthetic_rows())
    assert set(table.index) == set(synthetic_estimates.IMITATIONS)
    assert table.loc[synthetic_estimates.ONE_TAU, "reward minus tau"].value == pytest.approx(-0.33)
    assert table.loc[synthetic_estimates.ONE_TAU, "share outside the elite"].value == 0.25


def test_the_gain_of_choosing_is_drawn_for_one_interaction_with_a_row_for_each_noise():
    rows = []
    for noise in (0.5, 1.0):
        for seed in range(3):
            gap = 2.0 + 0.1 * noise + 0.01 * seed
            environment = {"noise": noise, "seed": seed, "item": f"world {seed}"}
            rows.append(environment | {"gap": gap, "episodes": 128.0, "passed": 1.0})
    rows = pd.DataFrame(rows)
    headroom = stats.mean(rows, "gap", "noise")
    episodes = stats.mean(rows, "episodes", "noise")
    figure = lesson_figures.draw_gain_of_choosing(2.0, headroom, episodes, rows["passed"])
    title = " ".join(figure.get_suptitle().split())
    assert title.startswith("Interaction 2: choosing by the kind of question can gain 2.06 to 2.11")
    assert title.endswith("6 of 6 policies end above the best constant")
    assert "noise 0.5, headroom over the best constant, in reward 2.06" in figure.alt_text


def test_the_rewards_of_extreme_episodes_stand_beside_their_descriptions():
    facts = rewards.derive_reward_facts(rewards.Weights(), 8, 7, 36)
    table = lesson_figures.tabulate_reward_facts(facts)
    assert table.loc["right, one call, no tools", "reward"] == pytest.approx(4.98)
    assert table.loc["wrong, 36 tool calls", "reward"] == facts.wrong_with_most_tool_calls


# What notebooks call --------------------------------------------------------------------------------


def test_methods_are_labelled_once_each():
    settings = config.settings(profile="smoke")
    labels = lesson_figures.label_methods(TESTS, settings)
    assert list(labels) == list(TESTS["method"].unique())
    assert labels["bandit"] == "flat bandit"


def test_an_example_of_every_kind_of_question_is_shown_with_its_answer():
    table = lesson_figures.tabulate_example_questions()
    assert table["kind"].tolist() == [kind.name for kind in KINDS]
    assert (table["answer"] != "").all() and table["for example"].is_unique


def test_the_first_policies_are_those_of_one_seed_on_the_kind_that_they_learned_from():
    columns = ["method", "seed", "only", "group", "model", "prompt"]
    tests = pd.DataFrame(
        [
            ("arc", 0, "chain", "chain", "team", "1 + 1 = ?"),
            ("arc", 0, "chain", "hops", "team", "another kind"),
            ("arc", 1, "chain", "chain", "team", "another seed"),
            ("arc", 0, "chain", "chain", "team-large", "another model"),
            ("bandit", 0, "chain", "chain", "team", "another method"),
        ],
        columns=columns,
    )
    assert lesson_figures.select_first_policies(tests, "team")["item"].tolist() == ["1 + 1 = ?"]


def test_every_family_of_instructions_is_counted():
    table = lesson_figures.tabulate_instruction_families(
        config.settings(profile="smoke").configuration
    )
    assert table["atoms"].sum() == 27
    assert set(table.index) == {"base", *(kind.name for kind in KINDS)}


def test_elites_are_those_of_sft_averaged_over_seeds():
    refined = pd.DataFrame(
        {
            "method": ["arc", "arc", "arc", "bandit"], "how": ["sft", "sft", "dpo", "sft"], "only": "chain",
            "tau": [3.0, 4.0, 9.0, 9.0], "elite": [10, 20, 90, 90], "reward": [5.0, 5.5, 9.0, 9.0],
        }
    )  # fmt: skip
    table = lesson_figures.tabulate_elites(refined)
    assert table.loc["chain"].tolist() == [3.5, 15.0, 5.25]


def test_the_theorem_has_a_row_and_two_metrics_for_each_noise():
    checks = pd.DataFrame(
        [
            {
                "noise": noise, "seed": seed, "item": 0, "tau": 2.0, "after": 4.0 + 0.1 * seed,
                "fresh": 4.0 - 3.0 * noise, "margin": 2.0 - 3.0 * noise, "outside": 0.0,
            }
            for noise in (0.0, 1.0)
            for seed in range(3)
        ]
    )  # fmt: skip
    table = lesson_figures.tabulate_theorem(checks)
    assert table.loc[1.0, "that minus tau"].value == pytest.approx(-1.0)
    metrics = lesson_figures.collect_theorem_metrics(checks)
    assert metrics["theorem.noise_0.margin"]["value"] == pytest.approx(2.0)
    assert set(metrics) == {
        f"theorem.noise_{percent}.{quantity}"
        for percent in (0, 100)
        for quantity in ("margin", "outside")
    }


def test_transfer_is_named_by_both_kinds():
    away = make_tests({"arc": 0.4}, {"arc": 3}).assign(style=results.OTHER)
    away["only"] = np.where(away["group"] == "chain", "hops", "chain")
    home = make_tests({"arc": 0.9}, {"arc": 3})
    gaps = lesson_figures.tabulate_transfer_gaps(pd.concat([home, away], ignore_index=True))
    assert gaps.loc["chain to hops", "value"] == pytest.approx(-0.5)
    assert "hops to chain" in gaps.index


def test_similarity_is_measured_by_the_encoder_of_the_policies_and_the_last_that_is_here():
    settings = config.settings(profile="smoke").configuration
    here = settings.model_copy(update={"encoders": ["hashing", "tfidf", "recorded:none"]})
    assert lesson_figures.choose_similarity_encoders(here) == ["hashing", "tfidf"]
    only_own = settings.model_copy(update={"encoders": ["hashing"]})
    assert lesson_figures.choose_similarity_encoders(only_own) == ["hashing"]


def test_the_score_of_each_encoder_becomes_a_metric():
    scores = pd.DataFrame({"overall": [0.4]}, index=["recorded:all-MiniLM-L6-v2"])
    expected = {"encoders.recorded_all-MiniLM-L6-v2.overall": 0.4}
    assert lesson_figures.collect_encoder_scores(scores) == expected
