"""What lesson 04 measures: contrasts over shared seeds, gates, what rewards know; and the texts that are made of it."""

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.conductor import data, full_run, lesson_estimates, synthetic_methods, variants
from lib.conductor.rewards import COMPONENTS
from lib.experiment import results_table
from lib.reports.lesson_figures import conductor as lesson_tables

SETTINGS = config.load("laptop").conductor
GROUP = SETTINGS.grpo.generations
SEEDS, ITEMS = 4, 6
LEVELS = [  # mean scores
    (variants.BASE, 0.2),
    (variants.EQUAL_WEIGHTS, 0.5),
    (variants.CONDUCTOR, 0.3),
    (variants.NOVER, 0.6),
    (variants.EM, 0.1),
    (variants.ORACLE, 0.8),
]
FIRST = variants.LAYERS[0]


def make_tests(compared, num_seeds: int, rng) -> list[dict]:
    rows = []
    for variant, level in compared:
        for split in ("dev", "test"):
            for seed in range(num_seeds):
                for item in range(ITEMS):
                    rows.append(
                        {
                            "method": variant.label,
                            "seed": seed,
                            "split": split,
                            "group": data_category(item),
                            "item": str(item),
                            "correct": level + rng.uniform(-0.05, 0.05),
                            "tokens_out": 10,
                            **dict.fromkeys([f"w_{name}" for name in COMPONENTS], 0.2),
                        }
                    )
    return rows


def data_category(item: int) -> str:
    return list(data.CATEGORIES)[item % len(data.CATEGORIES)]


def make_rollouts(rng) -> list[dict]:
    """`ppl` is the truth, `fmt` the same for all, the others noise."""
    rows = []
    for variant in (variants.EQUAL_WEIGHTS, variants.CONDUCTOR):
        for seed in range(SEEDS):
            for step in range(3):
                for category in data.CATEGORIES:
                    for sample in range(GROUP):
                        correct = float(sample % 2)
                        row = {"method": variant.label, "seed": seed, "split": "train"}
                        row |= {"step": step, "group": category, "item": category}
                        row |= {"sample": sample, "correct": correct, "tokens_out": 10}
                        row |= {"advantage": rng.normal(), "action": "ppl"}
                        for name in COMPONENTS:
                            measured = {"fmt": 1.0, "ppl": correct}.get(name, rng.random())
                            row |= {name: measured, f"r_{name}": measured, f"w_{name}": 0.2}
                        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    tables = [
        make_tests(LEVELS, SEEDS, rng),
        make_tests([(FIRST, 0.3)], 3, rng),
        make_rollouts(rng),
    ]
    made = pd.DataFrame([row for table in tables for row in table]).assign(role="constant")
    made["step"] = made["step"].fillna(results_table.AFTER).astype(int)
    made["sample"] = made["sample"].fillna(0).astype(int)
    made["action"] = made["action"].fillna("")
    return results_table.make_results("conductor", made)


@pytest.fixture(scope="module")
def estimates(rows):
    return lesson_estimates.collect_estimates(rows, SETTINGS)


def test_contrasts_are_pairs_of_seeds_that_both_have(estimates):
    assert estimates["contrast.conductor_equal.score"]["value"] == pytest.approx(-0.2, abs=0.03)
    assert estimates["contrast.conductor_base.score"]["ci_low"] > 0
    assert estimates["layers.last_minus_first"]["num_runs"] == 3
    assert estimates["category.story.conductor_minus_em"]["value"] == pytest.approx(0.2, abs=0.05)


def test_what_was_not_trained_has_no_key(estimates):
    names = {key.split(".")[1] for key in estimates if key.startswith("contrast.")}
    assert names == {
        f"conductor_{name}" for name in ("base", "equal", "nover", "em", "oracle", "best_static")
    }
    assert not any(key.startswith("losses.") for key in estimates)


def test_the_best_static_mix_is_the_single_reward_that_is_best_on_dev(estimates):
    best, nover = (
        estimates[f"contrast.conductor_{name}.score"] for name in ("best_static", "nover")
    )
    assert best.equals(nover)


def test_the_signal_is_the_smallest_gate_of_the_open_categories(estimates, rows):
    gates = [estimates[f"gate.{category}"]["value"] for category in data.CATEGORIES]
    assert estimates["gate.signal"]["value"] == min(gates)
    assert lesson_estimates.has_open_category(rows, SETTINGS)
    closed = rows.assign(correct=0.5)
    assert not lesson_estimates.has_open_category(closed, SETTINGS)


def test_a_reward_that_all_get_never_differs_and_the_truth_is_recognised(estimates):
    assert estimates["reward.fmt.groups_that_differ"]["value"] == 0
    assert estimates["reward.ppl.groups_that_differ"]["value"] == 1
    assert estimates["reward.ppl.truth"]["value"] == pytest.approx(1)
    assert estimates["reward.fmt.truth"]["value"] == 0


def test_verdicts_test_the_difference(estimates):
    keys = ["contrast.conductor_equal.score", "contrast.conductor_base.score", "contrast.none"]
    table = lesson_estimates.tabulate_contrasts(estimates, keys, 0.03, True)
    assert table["verdict"].to_dict() == {keys[0]: "does not hold", keys[1]: "holds"}
    closed = lesson_estimates.tabulate_contrasts(estimates, keys, 0.03, False)
    assert set(closed["verdict"]) == {"not open"}
    verdicts = lesson_estimates.collect_verdicts(table)
    assert verdicts[f"{keys[0]}_verdict"] == "does not hold" and verdicts[f"{keys[0]}_mde"] > 0
    shown = lesson_tables.arrange_contrasts(table)
    assert list(shown.index) == ["Conductor minus Equal", "Conductor minus Base"]


def test_all_estimates_that_are_compared_with_the_recorded_run_are_collected(estimates):
    assert set(lesson_tables.SHOWN_ESTIMATES) <= set(estimates)


def test_advantages_weights_and_lengths_are_estimated(rows):
    observed = lesson_estimates.estimate_observed(rows, GROUP)
    assert observed["conductor.tokens_minus.equal"]["value"] == 0
    assert observed["conductor.weights.story.ppl"]["value"] == pytest.approx(0.2)
    assert abs(observed["observed.conductor.quality_minus.equal"]["value"]) < 0.5
    setup = lesson_estimates.describe_setup(rows, SETTINGS, 3)
    assert setup["conductor.seeds"] == SEEDS and setup["conductor.steps"] == 3


def test_what_is_kept_of_a_training_counts_the_open_categories(rows):
    kept = lesson_estimates.collect_training_metrics(rows, SETTINGS)
    assert kept["conductor.seeds"] == SEEDS and "conductor.weights.story.ppl" in kept
    assert kept["gate.open"] == len(lesson_estimates.list_open_categories(rows, SETTINGS))
    oracle = variants.ORACLE.label
    nothing_to_learn = rows.copy()
    is_oracle = nothing_to_learn["method"] == oracle
    nothing_to_learn.loc[is_oracle, "correct"] = 0.0
    assert lesson_estimates.collect_training_metrics(nothing_to_learn, SETTINGS)["gate.open"] == 0


QUALITIES = {  # of the methods that are compared in the synthetic environment
    "Equal": 0.5,
    "Random": 0.45,
    "Conductor": 0.1,
    "Anchored 10%": 0.6,
    "quality on 10%": 0.7,
    synthetic_methods.BEST_STATIC: 0.55,
    synthetic_methods.BEST_PROXIES: 0.8,
    synthetic_methods.ORACLE: 0.9,
}


def make_synthetic_rows(rng, num_categories: int = 4) -> pd.DataFrame:
    """The Conductor has half of its weight on the easy reward, and a tenth on the proxy that fits the category."""
    rows = []
    for style in ("centre", "map"):
        for method, quality in QUALITIES.items():
            for seed in range(SEEDS):
                for category in range(num_categories):
                    weights = dict.fromkeys([f"w_{name}" for name in COMPONENTS], 0.0)
                    weights["w_fmt"] = 0.5
                    weights[f"w_{COMPONENTS[1 + category]}"] = 0.1
                    row = {"style": style, "method": method, "role": "constant", "seed": seed}
                    row |= {"group": str(category), "item": str(category)}
                    row |= {"noise": 0.0, "easy_fraction": 1.0, "other_agreement": 0.3}
                    rows.append(row | weights | {"reward": quality + rng.uniform(-0.02, 0.02)})
    return results_table.make_results("conductor_synthetic", pd.DataFrame(rows))


def test_metrics_of_the_synthetic_environment_are_differences_with_verdicts_weights_and_the_map():
    rows = make_synthetic_rows(np.random.default_rng(0))
    metrics = lesson_estimates.collect_synthetic_metrics(rows)
    assert metrics["glass.conductor_minus_equal"]["value"] == pytest.approx(-0.4, abs=0.03)
    assert metrics["glass.conductor_minus_equal_verdict"] == "does not hold"
    assert metrics["glass.anchored_minus_equal_verdict"] == "holds"
    assert metrics["glass.correct_proxy"]["value"] == pytest.approx(0.1)
    assert metrics["glass.easy_weight"]["value"] == pytest.approx(0.5)
    assert metrics["glass.map.holds"] == 0.0
    better = rows["method"].eq("Conductor") & rows["style"].eq("map")
    rows.loc[better, "reward"] += 1.0
    assert lesson_estimates.collect_synthetic_metrics(rows)["glass.map.holds"] == 1.0


def test_titles_say_what_the_rows_say(rows):
    tests = results_table.select(rows, split="test")
    scores = lesson_tables.estimate_scores(rows, tests)
    assert list(scores.index) == [
        "Base",
        variants.NOVER.label,
        variants.EM.label,
        "Equal",
        "Conductor",
        variants.ORACLE.label,
    ]
    assert "The Conductor scores 0.30" in lesson_tables.summarize_scores(scores)
    weights = lesson_tables.list_mean_weights(rows)
    assert set(weights["component"]) == set(COMPONENTS)
    tilted = rows.assign(w_fmt=np.where(rows["group"] == "story", 0.9, 0.0))
    title = lesson_tables.summarize_weights(lesson_tables.list_mean_weights(tilted))
    assert "fmt in story" in title


@pytest.mark.usefixtures("lab_model_files")
def test_the_full_run_has_the_seeds_that_it_promises():
    params = config.load("full")
    seeds_by_variant = {}
    for compared, count in full_run.group_variants(params):
        for variant in compared:
            seeds_by_variant[variant.name] = count
    for name in ("conductor", "equal", "nover", "pref", "anchored", "oracle", "base"):
        assert seeds_by_variant[name] == 8
    for name in ("cot", "sft", "random", "em", "judge"):
        assert seeds_by_variant[name] >= 4
    assert all(seeds_by_variant[variant.name] >= 5 for variant in variants.LAYERS)
    labels = [job.label for job in full_run.list_jobs(params)]
    assert len(labels) == len(set(labels))


def test_the_table_of_facts_keeps_no_texts_and_raw_rewards_of_the_start_alone():
    frame = pd.DataFrame({"method": "a", "reply": "long", "calls": 1, "step": [0, 8, -1]})
    frame = frame.assign(split=["train", "train", "test"], correct=1 / 3, len=0.123456)
    thinned = full_run.thin_columns(frame)
    assert list(thinned) == ["method", "step", "split", "correct", "len"]
    assert thinned["correct"].eq(1 / 3).all()
    assert thinned["len"].isna().tolist() == [False, True, False]
    assert thinned["len"].iloc[0] == pytest.approx(0.123)


def test_methods_with_fewer_seeds_are_in_the_figure_too(rows):
    """As in the recorded run, where the secondary methods have half of the seeds."""
    tests = results_table.select(rows, split="test")
    is_left_out = tests["method"].eq(variants.NOVER.label) & tests["seed"].eq(0)
    whole = lesson_tables.estimate_scores(rows, tests)
    thinned = lesson_tables.estimate_scores(rows, tests[~is_left_out])
    assert list(thinned.index) == list(whole.index)
    kept = tests[tests["method"].eq(variants.NOVER.label) & ~is_left_out]
    assert thinned.loc[variants.NOVER.label, "value"] == pytest.approx(kept["correct"].mean())
