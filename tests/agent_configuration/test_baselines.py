"""Constants and the oracle: chosen by what they may see, judged by what they may not by hand."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from lib.agent_configuration import baselines

# Rewards of three configurations by question; the third is the best on training questions, the first on test ones.
TRAIN = {
    "chain": {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 4.0]},
    "hops": {"c": [5.0, 0.0, 4.0], "d": [3.0, 0.0, 2.0]},
}
TEST = {
    "chain": {"e": [5.0, 1.0, 0.0], "f": [5.0, 2.0, 1.0]},
    "hops": {"g": [4.0, 3.0, 2.0], "h": [5.0, 0.0, 1.0]},
}
AGAIN = {
    "chain": {"e": [0.0, 3.0, 2.0], "f": [4.0, 4.5, 5.0]},
    "hops": {"g": [4.5, 1.0, 4.0], "h": [1.0, 3.0, 2.0]},
}


def searched() -> pd.DataFrame:
    """A table of all of it; the first two configurations are of the grid."""
    return pd.DataFrame(
        [
            {
                "split": split,
                "group": kind,
                "key": question,
                "prompt": f"{question} ?",
                "number": number,
                "set": ("grid", "grid", "sampled")[number],
                "reward": reward,
                "cost_usd": 1.0 + number,
            }
            for split, told in (("train", TRAIN), ("test", TEST), ("again", AGAIN))
            for kind, questions in told.items()
            for question, rewards in questions.items()
            for number, reward in enumerate(rewards)
        ]
    )


def paid(rows: pd.DataFrame) -> dict[str, tuple[int, float]]:
    """Configuration and reward by question."""
    return {row.key: (row.number, row.reward) for row in rows.itertuples()}


# Constants -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_constant_is_the_best_on_training_questions_and_judged_on_test_ones(seed):
    """Means of training: 2.75, 1.75 and 3.75; rewards of the test change nothing about which it is."""
    told = searched()
    rows = baselines.constant(told)
    assert paid(rows) == {"e": (2, 0.0), "f": (2, 1.0), "g": (2, 2.0), "h": (2, 1.0)} and set(
        rows["split"]
    ) == {"test"}
    seen = told["split"] != "train"
    told.loc[seen, "reward"] = np.random.default_rng(seed).normal(size=seen.sum())
    assert set(baselines.constant(told)["number"]) == {2}


def test_each_kind_has_a_constant_of_its_own():
    """Of chains the third one (4.5), of hops the first one (4)."""
    rows = baselines.by_kind(searched())
    assert paid(rows) == {"e": (2, 0.0), "f": (2, 1.0), "g": (0, 4.0), "h": (0, 5.0)} and set(
        rows["split"]
    ) == {"test"}


def test_the_best_constant_is_the_end_of_the_climb_where_that_was_paid_more_in_training():
    """The best of the sets was paid 3.75 on training questions."""
    climbed = on_the_test().query("number == 0")
    assert set(baselines.best_constant(searched(), climbed, 3.8)["number"]) == {0}
    assert set(baselines.best_constant(searched(), climbed, 3.7)["number"]) == {2}
    assert set(baselines.best_constant(searched(), climbed[:0], 9.0)["number"]) == {2}


# The oracle ----------------------------------------------------------------------------------------


def on_the_test() -> pd.DataFrame:
    return searched().query("split == 'test'")


def arms(*rows: tuple[str, str, float]) -> pd.DataFrame:
    """arm, question, reward"""
    told = pd.DataFrame(rows, columns=["method", "key", "reward"])
    return told.assign(prompt=told["key"] + " ?", number=9, cost_usd=0.5)


def test_the_oracle_has_the_best_of_all_that_was_tried_or_chosen():
    """An arm chose what nobody tried: on e it is better, on f as good and cheaper, on g worse."""
    rows = baselines.oracle(
        on_the_test(), arms(("arc", "e", 7.0), ("arc", "f", 5.0), ("arc", "g", 3.5))
    )
    assert paid(rows) == {"e": (9, 7.0), "f": (9, 5.0), "g": (0, 4.0), "h": (0, 5.0)}


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_above_the_oracle(seed):
    rng = np.random.default_rng(seed)
    told = arms(
        *((method, key, rng.normal()) for method in ("arc", "greedy", "random") for key in "efgh")
    )
    bound = baselines.oracle(on_the_test().assign(reward=rng.normal(size=12)), told).set_index(
        "key"
    )["reward"]
    assert (told["reward"] <= told["key"].map(bound)).all()


def test_what_could_be_foreseen_of_a_wording_is_picked_by_one_try_and_judged_by_the_other():
    """Also where two wordings have one key, as in multiple choice."""
    found = baselines.foreseen(searched())
    assert paid(found) == {"e": (1, 1.0), "f": (2, 1.0), "g": (0, 4.0), "h": (1, 0.0)} and set(
        found["split"]
    ) == {"test"}
    alike = baselines.foreseen(searched().replace({"key": {"e": "x", "f": "x"}}))
    told = ["prompt", "number", "reward"]
    assert (
        alike.sort_values("prompt")[told].values.tolist()
        == found.sort_values("prompt")[told].values.tolist()
    )


def test_on_noise_the_oracle_is_all_luck():
    """Twenty configurations that are all alike: the best of twenty tries is far above the mean of fresh ones."""
    places = product(("train", "test", "again"), map(str, range(200)), range(20))
    told = pd.DataFrame(places, columns=["split", "key", "number"]).assign(
        kind="chain", set="grid", cost_usd=1.0
    )
    told = told.assign(prompt=told["key"], reward=np.random.default_rng(0).normal(size=len(told)))
    fresh, hindsight = baselines.foreseen(told), baselines.oracle(told.query("split == 'test'"))
    assert abs(fresh["reward"].mean()) < 0.25
    assert 1.7 < hindsight["reward"].mean() < 2.0  # the mean of the greatest of 20 is 1.87
