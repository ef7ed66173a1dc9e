"""The episode that a lesson shows is one that is tested, and its prompts are those that a model gets."""

import pytest

from lib.orchestration import examples, experiment, prompts
from lib.orchestration.contexts import SYSTEMS, TABLE_1
from tests.orchestration import small
from tests.orchestration.small import SCRIPTED, trained

__all__ = ["trained"]

PARAMS = small.make_params()


@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_contexts_are_those_of_table_1_with_every_policy_tried(domain, trained):
    contexts = examples.collect_contexts_by_system(PARAMS, domain, trained)
    assert list(contexts) == list(SYSTEMS)
    for system, steps in contexts.items():
        assert steps[0].query.step == 1
        assert steps[0].components == TABLE_1[system]
        assert len(steps[0].tool_results) == (0 if system == "KO" else 3)
        shown = [section.component for section in prompts.render(steps[0])]
        assert set(shown) == TABLE_1[system]


def test_the_episode_is_the_first_that_prompted_models_play(trained, tmp_path):
    _, steps = experiment.run_prompted(
        PARAMS, ["education"], [SCRIPTED], zoo=trained, runs=tmp_path
    )
    decisions = examples.play_by_system(PARAMS, "education", SCRIPTED, trained)
    for system in SYSTEMS:
        method = steps["method"] == f"{system} {SCRIPTED}"
        first = steps[method & (steps["item"] == "0-0")].sort_values("step")
        assert [";".join(decision.calls) for decision in decisions[system]] == list(first["tried"])
        assert [decision.reasoning[:300] for decision in decisions[system]] == list(
            first["reasoning"]
        )


def test_every_decision_has_its_prompts_and_replies(trained):
    decisions = examples.play_by_system(PARAMS, "education", SCRIPTED, trained)
    for decision in decisions["RO"]:
        assert decision.exchanges
        assert decision.exchanges[-1].reply
