"""Operations by hand, and the clock's table."""

import pandas as pd
import pytest

from lib.conductor import costs


def rollouts():
    return pd.DataFrame(
        {
            "method": ["conductor"] * 2 + ["equal"] * 2,
            "seed": 0,
            "tokens_in": [10, 10, 10, 10],
            "tokens_out": [5, 5, 10, 10],
            "action": ["ppl", "len", "", ""],
        }
    )


def test_operations_are_those_counted_by_hand():
    counted = costs.count_operations(rollouts(), num_weights=100, width=4).set_index("method")
    # generate, read, learn, reference, reward model (2 each), backward (4), and the reference's reading (2)
    assert counted.loc["conductor", "grpo"] == 100 * 16 * 30
    assert counted.loc["equal", "grpo"] == 100 * 16 * 40
    assert counted.loc["conductor", "conductor"] == 2 * (4 + 1) * 5 * 10
    assert counted.loc["equal", "conductor"] == 0


def test_overhead_holds_the_head_and_the_shorter_replies():
    counted = costs.count_operations(rollouts(), num_weights=100, width=4)
    (row,) = costs.compare_operations(counted, "conductor", "equal").to_dict("records")
    assert row["head"] == pytest.approx(500 / 48_000)
    assert row["whole"] == pytest.approx(48_500 / 64_000)


def test_the_clock_counts_trainings_only():
    clock = pd.DataFrame(
        {
            "method": ["a", "a", "base"],
            "steps": [10, 30, float("nan")],
            "training": [4.0, 16.0, float("nan")],
            "weighing": [0.5, 0.5, float("nan")],
            "num_unparsed": [1, 0, float("nan")],
        }
    )
    (row,) = costs.summarize_timings(clock).to_dict("records")
    assert row["seconds per step"] == 0.5
    assert row["weighing over the rest"] == pytest.approx(1 / 19)
    assert row["judgements without a number"] == 1
