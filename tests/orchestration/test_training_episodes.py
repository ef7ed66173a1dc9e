"""What is learned from training students and rooms."""

import numpy as np
import pytest

from lib.orchestration.baseline_models import RandomModel
from lib.orchestration.system_options import SystemOptions
from lib.orchestration.training_episodes import (
    average_results_by_situation,
    collect_training_contexts,
)
from lib.policy_zoo.recipes import SINGLE
from tests.orchestration.untrained import DOMAINS, make_episode_set

PLAIN = SystemOptions()


def test_watching_shows_what_every_policy_would_do_where_random_choices_lead():
    episode_set = make_episode_set("education", num_episodes=5)
    contexts = collect_training_contexts(episode_set, num_steps=2)
    played = episode_set.play(RandomModel(), PLAIN)
    assert len(contexts) == len(played.steps)
    for context in contexts:
        assert set(context.results_by_policy()) == set(SINGLE)
        assert all(result.num_steps == 2 for result in context.tool_results)


@pytest.mark.parametrize("domain", DOMAINS)
def test_cards_average_over_the_states_of_a_situation(domain):
    episode_set = make_episode_set(domain, num_episodes=12)
    averages = average_results_by_situation(episode_set, 2)
    contexts = collect_training_contexts(episode_set, 2)
    situations = {context.state.situation for context in contexts}
    assert set(averages) == set(SINGLE)
    assert all(set(by) == set(episode_set.describer.situations) for by in averages.values())
    for name in SINGLE:
        for situation in episode_set.describer.situations:
            matching = [
                context.results_by_policy()[name]
                for context in contexts
                if context.state.situation == situation or situation not in situations
            ]
            expected = np.mean(matching, axis=0)
            assert averages[name][situation] == pytest.approx(expected.tolist(), abs=1e-3)
