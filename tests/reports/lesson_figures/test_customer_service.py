"""Tables of the appendix of lesson 06 on customer service: they show the shipped facts, without the package."""

from lib.reports.lesson_figures import customer_service
from lib.tasks.tau2_bench import build

EXAMPLE = build.read_example()


def test_the_scenario_says_what_the_user_wants_and_does_not_know():
    scenario = customer_service.describe_scenario(EXAMPLE)
    assert "mechanical keyboard" in scenario and "unknown_info" in scenario


def test_every_gold_action_is_one_of_the_tools_and_the_last_one_changes_a_record():
    tools = customer_service.make_service_tool_table(EXAMPLE)
    actions = customer_service.make_gold_action_table(EXAMPLE)["gold action"]
    assert len(tools) == 15 and set(actions) <= set(tools.index)
    effects = tools.loc[actions, "effect"].tolist()
    assert effects == ["changes nothing"] * 4 + ["changes a record"]


def test_replays_are_shown_for_each_domain_beside_doing_nothing():
    replays = customer_service.make_replay_table(build.read_replay_facts())
    assert (replays["tasks"] == replays["reach the goal"]).all()
    shares = replays["solved by doing nothing"] / replays["base tasks"]
    assert shares["airline"] > 1 / 3 and shares["telecom"] == 0.0


def test_verdicts_show_that_the_final_state_decides():
    verdicts = customer_service.make_verdict_table(EXAMPLE)
    assert verdicts.loc["the last alone", "reward"] == 1.0
    assert verdicts.loc["all but the last", "reward"] == 0.0
