"""Chains come with their rule, and no other question does."""

import pytest

from lib import tasks
from lib.tasks.rules import CHAIN_RULE, describe_rules

FAMILIES = ("chain", "big", "facts", "passage", "belief", "story", "translation", "mixed")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("surface_form", ["plain", "any"])
def test_only_chains_of_digits_have_a_rule(family, surface_form):
    for item in tasks.draw_items(family, "train", 60, surface_form=surface_form, seed=5):
        expected = CHAIN_RULE if family == "chain" else ""
        assert describe_rules(item.prompt) == expected, item.prompt


@pytest.mark.parametrize("question", ["47 * 8 = ?", "47 + 3 * 8 = ?", "7 * 38 = ?", "3 + x = ?"])
def test_a_sum_of_longer_numbers_has_no_rule(question):
    assert describe_rules(question) == ""


def test_text_around_a_chain_does_no_harm():
    assert describe_rules("subtask 3 + 4 * 2 = ? evidence 7") == CHAIN_RULE
