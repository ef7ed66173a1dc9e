"""The shipped facts on tau2-bench: they need no package, and say what the lesson says."""

import pytest

from lib.tasks.tau2_bench import DOMAINS, build

COUNTS = build.read_replay_facts()["domains"]


@pytest.mark.parametrize("name", DOMAINS)
def test_every_replay_of_gold_actions_reaches_the_state_that_is_asked_for(name):
    for split in ("all", "base"):
        counts = COUNTS[name][split]
        assert counts["reach_gold_state"] == counts["reward_1"] == counts["tasks"]


def test_eighteen_retail_tasks_have_a_gold_action_that_fails_and_four_of_them_a_change():
    counts = COUNTS["retail"]["all"]
    assert counts["tasks_with_a_failed_gold_action"] == 18
    assert counts["tasks_with_a_failed_change"] == 4


def test_the_example_is_solved_by_all_gold_actions_and_by_the_change_alone():
    example = build.read_example()
    assert example["gold_actions"][-1]["name"] == "exchange_delivered_order_items"
    rewards = {name: verdict["reward"] for name, verdict in example["verdicts"].items()}
    assert rewards == {"all gold actions": 1.0, "all but the last": 0.0, "the last alone": 1.0}


def test_the_provenance_says_what_was_counted():
    text = (build.FOLDER / "PROVENANCE.md").read_text(encoding="utf-8")
    telecom = COUNTS["telecom"]
    assert f"{telecom['all']['tasks']:,} of {telecom['all']['tasks']:,}" in text
    users, actions = telecom["all"]["gold_actions_of_users"], telecom["all"]["gold_actions"]
    assert f"{users:,} of {actions:,} gold actions are the user's" in text
    equal = f"{telecom['all']['equal_databases']} ({telecom['base']['equal_databases']})"
    assert f"only {equal} have them" in text
    solved = {name: COUNTS[name][build.SOLVED_BY_NOTHING] for name in DOMAINS}
    sentence = f"{solved['retail']} of 114 retail, {solved['airline']} of 50 airline and "
    sentence += f"{solved['telecom']} of 114 telecom"
    assert sentence in text
    assert "Permission is hereby granted" in text and "Copyright (c) 2025 Sierra Research" in text
