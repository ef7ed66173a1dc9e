"""The methods that are compared: what each of them is made from, and how they differ."""

from dataclasses import replace

from lib import config
from lib.orchestration import methods, worlds
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.methods import BEST_POLICY, list_methods
from tests.orchestration.small import make_world


def test_the_best_policy_is_that_of_training_students(monkeypatch):
    """Whoever wins on the students that are judged is not asked."""
    world = make_world("education", "paper")
    rewards = {"SO-d1": 0.1, "SO-d2": 0.5, "SO-d3": 0.3}
    played = []

    def play(episode_set, model, options):
        played.append(episode_set)
        return replace(world.episode_sets["dev"].play(model, options))

    def play_rewarded(episode_set, model, options):
        result = play(episode_set, model, options)
        result.episodes["reward"] = rewards[model.name]
        return result

    monkeypatch.setattr(world, "play", play_rewarded)
    by_name = {method.name: method for method in list_methods(world)}
    assert by_name[BEST_POLICY].model.name == "SO-d2"
    assert played == [world.episode_sets["dev"]] * 3


def test_linucb_and_cards_are_made_from_students_of_their_own(monkeypatch):
    world = make_world("education", "paper")
    watched = []
    watch, average = methods.collect_training_contexts, worlds.average_results_by_situation
    monkeypatch.setattr(
        methods, "collect_training_contexts", lambda c, n: watched.append(c) or watch(c, n)
    )
    monkeypatch.setattr(
        worlds, "average_results_by_situation", lambda c, n: watched.append(c) or average(c, n)
    )
    list_methods(world)
    assert watched == [world.episode_sets["linucb"], world.episode_sets["cards"]]


def test_methods_differ_from_their_neighbours_in_what_their_names_say():
    by_name = {method.name: method for method in list_methods(make_world("education", "varied"))}
    whole = by_name["RO greedy"].options
    assert by_name["RO greedy, every 2"].options == replace(whole, interval=2)
    assert by_name["RO greedy, one copy"].options == whole
    assert (
        by_name["RO greedy, one copy"].num_copies == 1 and by_name["RO greedy"].num_copies is None
    )

    by_name = {method.name: method for method in list_methods(make_world("education", "paper"))}
    assert by_name["RO greedy, 3 steps"].options == replace(whole, rollout_steps=3)
    assert by_name["KO greedy, no short-term"].options.without == ("mem_s",)
    assert by_name["MO-S"].options.policies == ("MO-S",)
    for system in SYSTEMS:
        assert by_name[f"{system} greedy"].options.system == system


def test_the_settings_of_the_lesson_name_known_methods():
    params = config.load("laptop")
    world = make_world("education", "paper")
    names = {method.name for method in list_methods(world)} | set(SYSTEMS) | {BEST_POLICY}
    for contrast in params.orchestration.contrasts:
        assert set(contrast) <= names
