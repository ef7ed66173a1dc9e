"""Constants, the oracle and the gate: chosen by what they may see, judged by what they may not, by hand."""

import numpy as np
import pandas as pd
import pytest

from lib.agent_configuration import baselines
from lib.agent_configuration.baselines import BEST_CONSTANT, BEST_PER_KIND, BEST_PER_QUESTION

# Rewards of three configurations by question; the third is the best on training questions, the first on test ones.
TRAIN = {
    "chain": {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 4.0]},
    "hops": {"c": [5.0, 0.0, 4.0], "d": [3.0, 0.0, 2.0]},
}
TEST = {
    "chain": {"e": [5.0, 1.0, 0.0], "f": [5.0, 2.0, 1.0]},
    "hops": {"g": [4.0, 3.0, 2.0], "h": [5.0, 0.0, 1.0]},
}
DEV = {
    "chain": {"i": [0.0, 3.0, 2.0], "j": [4.0, 4.5, 5.0]},
    "hops": {"k": [4.5, 1.0, 4.0], "l": [1.0, 3.0, 2.0]},
}
DEV_AGAIN = {
    "chain": {"i": [1.0, 2.0, 9.0], "j": [1.0, 7.0, 8.0]},
    "hops": {"k": [6.0, 1.0, 2.0], "l": [4.0, 5.0, 3.0]},
}
TABLES = {"train": TRAIN, "test": TEST, "dev": DEV, "dev_again": DEV_AGAIN}


def make_tried() -> pd.DataFrame:
    """A table of all of it; the first two configurations are of the grid."""
    rows = []
    for split, by_kind in TABLES.items():
        for kind, by_question in by_kind.items():
            for question, rewards in by_question.items():
                for number, reward in enumerate(rewards):
                    rows.append(
                        {
                            "split": split,
                            "group": kind,
                            "key": question,
                            "prompt": f"{question} ?",
                            "item": question,
                            "number": number,
                            "set": ("grid", "grid", "sampled")[number],
                            "reward": reward,
                            "cost_usd": 1.0 + number,
                        }
                    )
    return pd.DataFrame(rows)


def read(rows: pd.DataFrame) -> dict[str, tuple[int, float]]:
    """Configuration and reward by question."""
    return {row.key: (row.number, row.reward) for row in rows.itertuples()}


@pytest.mark.parametrize("seed", range(3))
def test_the_constant_is_the_best_on_training_questions_whatever_test_questions_say(seed):
    """Means of training: 2.75, 1.75 and 3.75."""
    tried = make_tried()
    expected = {"e": (2, 0.0), "f": (2, 1.0), "g": (2, 2.0), "h": (2, 1.0)}
    assert read(baselines.select_constant(tried)) == expected
    is_test = tried["split"] != "train"
    tried.loc[is_test, "reward"] = np.random.default_rng(seed).normal(size=is_test.sum())
    assert set(baselines.select_constant(tried)["number"]) == {2}
    assert set(baselines.select_constant(tried, "grid")["number"]) == {0}


def test_each_kind_has_a_constant_of_its_own():
    """Of chains the third one (4.5), of hops the first one (4)."""
    rows = baselines.select_constant_per_kind(make_tried())
    assert read(rows) == {"e": (2, 0.0), "f": (2, 1.0), "g": (0, 4.0), "h": (0, 5.0)}


@pytest.mark.parametrize("seed", range(5))
def test_the_best_per_kind_is_never_below_the_best_constant_on_training_questions(seed):
    tried = make_tried()
    tried["reward"] = np.random.default_rng(seed).normal(size=len(tried))
    constant = baselines.select_constant(tried, split="train")
    per_kind = baselines.select_constant_per_kind(tried, split="train")
    mean_rewards = [rows.groupby("group")["reward"].mean() for rows in (constant, per_kind)]
    assert (mean_rewards[1] >= mean_rewards[0]).all()


def test_the_oracle_has_the_best_of_all_that_was_tried_or_chosen_and_of_equals_the_cheaper():
    tried = make_tried().query("split == 'test'")
    chosen = pd.DataFrame({"key": list("efg"), "reward": [7.0, 5.0, 3.5]})
    chosen = chosen.assign(prompt=chosen["key"] + " ?", number=9, cost_usd=0.5)
    oracle = baselines.select_oracle(tried, chosen)
    assert read(oracle) == {"e": (9, 7.0), "f": (9, 5.0), "g": (0, 4.0), "h": (0, 5.0)}


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_dominates_whatever_it_was_made_from_and_the_check_sees_who_is_above_it(seed):
    rng = np.random.default_rng(seed)
    tried = make_tried().query("split == 'test'").assign(reward=rng.normal(size=12))
    chosen = tried.assign(reward=rng.normal(size=12), number=9)
    oracle = baselines.select_oracle(tried, chosen)
    assert baselines.oracle_dominates(oracle, pd.concat([tried, chosen]))
    above = chosen.assign(reward=chosen["reward"].max() + 1)
    assert not baselines.oracle_dominates(oracle, above)


def test_a_choice_for_each_question_is_made_on_one_sample_and_scored_on_the_other():
    tried = make_tried()
    # Right are rewards of 4 and more: on the first sample of dev j 0, 1, 2, k 0, 2, none on i and l.
    tried["correct"] = (tried["reward"] >= 4).astype(float)
    gate = baselines.make_gate_rows(tried)
    by_method = {
        (method, sample): read(rows)
        for (method, sample), rows in gate.groupby(["method", "sample"])
    }
    assert by_method[BEST_CONSTANT, 0] == {
        "i": (2, 9.0), "j": (2, 8.0), "k": (2, 2.0), "l": (2, 3.0),
    }  # fmt: skip
    assert by_method[BEST_PER_KIND, 1]["k"] == (0, 4.5)
    # Chains prefer 2, then 1; hops 0, then 2: the constant of the kind wherever it was right, or where none was.
    assert by_method[BEST_PER_QUESTION, 0] == {
        "i": (2, 9.0), "j": (2, 8.0), "k": (0, 6.0), "l": (0, 4.0),
    }  # fmt: skip
    # On the second sample 1 and 2 were right on j, 0 on k, 0 and 1 on l, and 2 on i.
    assert by_method[BEST_PER_QUESTION, 1] == {
        "i": (2, 2.0), "j": (2, 5.0), "k": (0, 4.5), "l": (0, 1.0),
    }  # fmt: skip


def test_where_the_constant_was_wrong_another_that_was_right_is_chosen():
    """The most accurate constant is that one too."""
    tried = make_tried()
    tried["correct"] = (tried["number"] == 1).astype(float)
    gate = baselines.make_gate_rows(tried)
    assert set(gate.loc[gate["method"] == baselines.MOST_ACCURATE, "number"]) == {1}
    assert set(gate.loc[gate["method"] == BEST_PER_QUESTION, "number"]) == {1}


def test_between_configurations_that_are_all_alike_choosing_gains_nothing():
    """Two hundred questions, twenty configurations, rewards that are noise alone."""
    index = pd.MultiIndex.from_product(
        [["train", "dev", "dev_again"], map(str, range(200)), range(20)],
        names=["split", "key", "number"],
    )
    tried = index.to_frame(index=False).assign(group="chain", set="grid", cost_usd=1.0)
    correct = np.random.default_rng(0).integers(2, size=len(tried)).astype(float)
    gate = baselines.make_gate_rows(
        tried.assign(prompt=tried["key"], reward=correct, correct=correct)
    )
    mean_rewards = gate.groupby("method")["correct"].mean()
    assert abs(mean_rewards[BEST_PER_QUESTION] - mean_rewards[BEST_CONSTANT]) < 0.1
