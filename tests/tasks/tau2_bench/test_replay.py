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


def test_doing_nothing_solves_as_many_tasks_as_the_facts_say():
    domain = load_domain("telecom")
    facts = build.read_replay_facts()["domains"]["telecom"]
    assert build.count_solved_by_nothing(domain) == facts[build.SOLVED_BY_NOTHING]


def test_a_task_without_gold_actions_is_solved_by_doing_nothing_and_one_with_a_change_is_not():
    domain = load_domain("airline")
    tasks = domain.tasks.values()
    refusal = next(task for task in tasks if not task.evaluation_criteria.actions)
    assert build.judge_calls(domain, refusal.id, []).reward == 1.0
    booking = next(
        task
        for task in tasks
        if any(action.name == "book_reservation" for action in task.evaluation_criteria.actions)
    )
    assert build.judge_calls(domain, booking.id, []).reward == 0.0


def test_the_example_is_what_the_package_says():
    facts = build.read_example()
    described = build.describe_example(load_domain(facts["domain"]), facts["task"])
    assert {name: facts[name] for name in described} == described
