"""The methods that a student writes in lesson 03: the solutions pass the checks in the cells, usual mistakes do not."""

import types

import numpy as np
import pandas as pd
import pytest

from lib import stats
from lib.experiment import results_table
from lib.language_models.training.model_cards import TokenPrice
from tests.teaching.notebook_solutions import LessonSolutions

# By function, mistakes that are easily made: tokens of the prompt are free, or take time; the choice is scored on the
# sample it was made on.
MISTAKES = {
    "price_reply": [
        ("(tokens_in + tokens_out) * dollars", "tokens_out * dollars"),
        ("tokens_out * seconds", "(tokens_in + tokens_out) * seconds"),
    ],
    "compute_headroom": [("gain += score_on[item, model]", "gain += choose_on[item, model]")],
}


def make_names() -> dict:
    """What the cells of checks read: one reply, and outcomes of two models on eight items in two samples."""
    lab = types.SimpleNamespace(
        dollars_per_teraflop=1.0, flops_per_second=1e8, seconds_per_token=0.001
    )
    reply = {
        "method": "lab-nano",
        "tokens_in": 10,
        "tokens_out": 4,
        "cost_usd": 14 * 2e-6,  # 2e6 operations per token
        "seconds": 4 * 0.021,
    }
    rng = np.random.default_rng(0)
    rows = []
    for split in ["dev", "test"]:
        for sample in range(2):
            for method, accuracy in [("a", 0.7), ("b", 0.4)]:
                correct = (rng.random(8) < accuracy).astype(float)
                for item in range(8):
                    row = {"split": split, "sample": sample, "method": method, "item": item}
                    rows.append(row | {"correct": correct[item], "seed": 0})
    outcomes = pd.DataFrame(rows)
    return {
        "np": np,
        "stats": stats,
        "settings": types.SimpleNamespace(lab=lab),
        "results_table": results_table,
        "price_by_model": {"lab-nano": TokenPrice(2e6, 2e-6, 0.021)},
        "replies": pd.DataFrame([reply]),
        "dev": outcomes[outcomes["split"] == "dev"],
        "test": outcomes[outcomes["split"] == "test"],
    }


SOLUTIONS = LessonSolutions("03_model_zoo", make_names)


@pytest.mark.parametrize("function", MISTAKES)
def test_a_solution_passes_its_check_and_neither_a_mistake_nor_the_stub_does(function, capsys):
    SOLUTIONS.require_checked(function, MISTAKES[function], capsys)


def test_every_stub_of_the_lesson_has_a_mistake_that_is_tried():
    assert SOLUTIONS.count() == len(MISTAKES)
