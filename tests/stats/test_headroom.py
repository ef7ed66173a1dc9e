"""Headroom: what choosing per item could win, without credit for noise."""

import numpy as np
import pandas as pd
import pytest

from lib import stats


def table(chances: dict[str, np.ndarray], seed: int) -> pd.DataFrame:
    """Two independent samples of each method, correct with its probability at each item."""
    rng, rows = np.random.default_rng(seed), []
    for method, p in chances.items():
        for t in (0, 1):
            correct = (rng.random(len(p)) < p).astype(float)
            rows += [
                {"method": method, "item": i, "sample": t, "correct": r}
                for i, r in enumerate(correct)
            ]
    return pd.DataFrame(rows)


def estimate_headroom(chances, seed: int = 0) -> pd.Series:
    return stats.headroom(table(chances, seed), table(chances, seed + 1_000), "correct").iloc[0]


def test_over_equal_coins_there_is_nothing_to_be_won():
    n, coins = 400, {f"coin {i}": np.full(400, 0.5) for i in range(3)}
    values = [estimate_headroom(coins, seed) for seed in range(20)]
    assert abs(np.mean([row["value"] for row in values])) < 0.02 and values[0]["num_items"] == n
    table_ = table(coins, 0)
    lucky = table_[table_["sample"] == 0].groupby("item")["correct"].max().mean()
    assert lucky > 0.85, "an oracle that sees the noise would have claimed much"


def test_sure_specialists_leave_what_the_best_of_them_lacks():
    kind = np.arange(300) % 3
    row = estimate_headroom({f"expert {k}": (kind == k).astype(float) for k in range(3)})
    assert row["value"] == pytest.approx(2 / 3) and row["ci_low"] > 0.6


def test_where_one_is_always_best_there_is_nothing_to_be_won():
    row = estimate_headroom({"large": np.ones(200), "small": (np.arange(200) % 2).astype(float)})
    assert row["value"] == row["ci_low"] == row["ci_high"] == 0


def test_the_constant_is_chosen_on_dev():
    """On test the other method is better; nobody could have known."""
    dev, test = (table({"a": np.full(50, a), "b": np.full(50, 1 - a)}, 0) for a in (1.0, 0.0))
    assert stats.headroom(dev, test, "correct")["value"].item() == 1.0


@pytest.mark.parametrize(
    "spoil", [lambda t: t[t["sample"] == 0], lambda t: t[1:]], ids=["one sample", "a hole"]
)
def test_incomplete_tables_are_refused(spoil):
    whole = table({"a": np.full(9, 0.5), "b": np.full(9, 0.5)}, 0)
    with pytest.raises(ValueError, match="every method on every item in two samples"):
        stats.headroom(whole, spoil(whole), "correct")


def test_a_choice_among_methods_of_which_one_gave_too_few_answers_bears_its_mark():
    outcomes = table({"a": np.full(20, 0.5), "b": np.full(20, 0.5)}, 0)
    marked = outcomes.assign(unusable_share=np.where(outcomes["method"] == "b", 0.6, 0.0))
    headroom = stats.headroom(outcomes, marked, "correct")
    assert headroom["unusable_share"].item() == 0.6
    assert stats.verdict(headroom).item() == "untestable"
