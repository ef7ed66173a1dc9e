"""What is read off choices: how diverse they are, and what a method is called."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import config
from lib.agent_configuration import results
from lib.agent_configuration.variants import UNTRAINED, VARIANTS
from lib.stats.verdicts import FAILS, HOLDS, UNDECIDED

PARAMS = config.load("smoke")


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60))
def test_diversity_is_that_of_the_definitions(choices):
    workflows = np.array(choices)
    shares = pd.Series(choices).value_counts(normalize=True).to_numpy()
    n = len(shares)
    differences = np.abs(shares[:, None] - shares[None]).sum()
    assert results.count_unique(workflows) == n
    assert results.compute_entropy(workflows) == pytest.approx(-(shares * np.log2(shares)).sum())
    assert results.compute_gini(workflows) == pytest.approx(
        differences / (2 * n * n * shares.mean())
    )


def test_a_program_in_place_of_a_model_is_called_scripted():
    assert PARAMS.llm.models[PARAMS.configuration.prompted].backend == "scripted"
    assert results.label("zero_shot", PARAMS) == "LLM as policy (scripted)"
    assert results.label("gepa", PARAMS) == "GEPA (scripted)"
    assert results.label("bandit", PARAMS) == "flat bandit"


def test_every_method_has_a_role_in_figures():
    roles = {name: results.find_role(name) for name in (*UNTRAINED, *(v.name for v in VARIANTS))}
    assert roles["oracle"] == "oracle" and roles["best_constant"] == roles["grid"] == "constant"
    assert roles["arc"] == results.find_role("arc_no_sft") == "paper"
    assert roles["bandit"] == roles["gepa"] == roles["zero_shot"] == "router"


def make_leads(*leads: tuple[str, str, str, float, float]) -> pd.DataFrame:
    """kind, best, other, lead and half-width of its interval"""
    rows = {}
    for kind, best, other_workflow, value, half in leads:
        rows[kind, best, other_workflow] = {
            "value": value,
            "ci_low": value - half,
            "ci_high": value + half,
            "p_value": 1e-6 if value > half else 0.5,
        }
    return pd.DataFrame(rows).T.rename_axis(["group", "best", "other"])


@pytest.mark.parametrize(
    "leads, verdict",
    [
        ([("a", "x", "y", 0.5, 0.1), ("b", "y", "x", 0.5, 0.1)], HOLDS),
        ([("a", "x", "y", 0.5, 0.1), ("b", "x", "y", 0.5, 0.1)], FAILS),
        ([("a", "x", "y", 0.5, 0.1), ("b", "y", "x", 0.1, 0.3)], UNDECIDED),
    ],
)
def test_no_workflow_wins_everywhere_if_each_is_behind_somewhere(leads, verdict):
    assert results.none_wins_everywhere(make_leads(*leads)) == verdict


def test_a_question_of_which_an_answer_was_lost_is_asked_of_nobody():
    rows = pd.DataFrame(
        {
            "split": "test", "method": ["arc", "arc", "random", "random"], "item": ["a", "b", "a", "b"],
            "reward": [1.0, np.nan, 1.0, 2.0],
        }
    )  # fmt: skip
    assert results.drop_lost_questions(rows)["item"].tolist() == ["a", "a"]
