"""The gold actions of all tasks of tau2-bench, through the tools of this package. Skipped without `make tau2`."""

import pytest

from lib.tasks.tau2_bench import DOMAINS, build, explain_absence, load_domain

pytestmark = pytest.mark.skipif(bool(explain_absence()), reason=explain_absence() or "installed")


@pytest.mark.parametrize("name", DOMAINS)
def test_gold_actions_of_all_tasks_lead_to_what_the_facts_say(name):
    domain = load_domain(name)
    counts = build.count_by_split(domain, build.replay_domain(domain))
    facts = build.read_replay_facts()["domains"][name]
    assert counts == {split: facts[split] for split in counts}


def test_tasks_that_ask_for_no_change_are_solved_by_doing_nothing():
    solved = build.count_solved_by_nothing(load_domain("airline"))
    assert solved == build.read_replay_facts()["domains"]["airline"][build.SOLVED_BY_NOTHING]


def test_the_example_is_what_the_package_says():
    facts = build.read_example()
    described = build.describe_example(load_domain(facts["domain"]), facts["task"])
    assert {name: facts[name] for name in described} == described
