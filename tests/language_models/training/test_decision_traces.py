"""Decision situations: what stands in the prompt is enough to decide, and rescaling moves no choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import config, tasks
from lib.language_models import tokenizer
from lib.language_models.chat_template import encode_conversation
from lib.language_models.checkpoints import LIMIT
from lib.language_models.tokenizer import decode, encode
from lib.language_models.training import build, decision_traces
from lib.language_models.training.decision_traces import (
    CURRENT_STATE,
    MEMORY,
    RESULT_WEIGHT,
    ROLLOUT,
    STATES,
    SYSTEMS,
    TRIAL,
    ResultRow,
    TraceSituation,
    draw_situation,
    make_situation,
    rescale_values,
    scale_to_digits,
)
from lib.language_models.training.training_data import write_question

RESULTS = {"Ana": (0.6, 0.1), "Bo": (0.0, 1.0)}


def tables(digits: int = 2):
    """Results of 2 to 5 policies by 1 to 4 criteria, rounded."""
    sizes = st.tuples(st.integers(2, 5), st.integers(1, 4), st.integers(0, 10**6))
    return sizes.map(lambda s: np.round(np.random.default_rng(s[2]).random(s[:2]), digits))


def parse_prompt(prompt: str) -> TraceSituation:
    """Read a situation back from its words."""
    marker, state, *words = prompt.split()
    assert marker == CURRENT_STATE
    groups = [words[begin : begin + 5] for begin in range(0, len(words), 5)]
    # The last policy has one row of results: as many groups as there are criteria.
    last_source, last_policy = groups[-1][:2]
    num_criteria = sum(group[:2] == [last_source, last_policy] for group in groups)
    weights = tuple(int(group[2]) for group in groups[:num_criteria])
    rows = []
    for begin in range(0, len(groups), num_criteria):
        row_groups = groups[begin : begin + num_criteria]
        source, policy = row_groups[0][:2]
        values = tuple(10 * int(group[3]) + int(group[4]) for group in row_groups)
        rows.append(ResultRow(source, policy, values))
    return TraceSituation(weights, state, tuple(rows))


def test_a_situation_is_written_number_by_number():
    situation = make_situation([0.75, 0.25], "calm", "calm", RESULTS, [("Bo", (0.6, 0.4))])
    assert situation.prompt == (
        "is calm last Bo 9 6 6 last Bo 3 3 3 calm Ana 9 6 6 calm Ana 3 0 0 "
        "calm Bo 9 0 0 calm Bo 3 9 9"
    )
    bo = (RESULT_WEIGHT * 3 * 99 + 9 * 66 + 3 * 33) / (RESULT_WEIGHT + 1)
    assert situation.estimate_utilities() == {"Ana": 9 * 66, "Bo": pytest.approx(bo)}
    assert situation.ranking == ("Ana", "Bo")


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("has_memory", [False, True])
def test_a_situation_is_read_back_from_its_prompt_and_the_lab_knows_every_word(system, has_memory):
    rng = np.random.default_rng(3)
    for num_policies in (2, 4, 6):
        situation = draw_situation(rng, num_policies, system, has_memory)
        assert parse_prompt(situation.prompt) == situation
        assert decode(encode(situation.prompt)) == situation.prompt
        assert len(situation.ranking) == num_policies


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_reference_follows_from_the_words_alone(system):
    for item in tasks.draw_items("situation", "test", 60, [2, 3, 6], system):
        assert " ".join(parse_prompt(item.prompt).ranking) == item.reference


def test_systems_differ_in_the_source_of_their_rows():
    rng = np.random.default_rng(0)
    for system, source in (("KO", None), ("TO", TRIAL), ("RO", ROLLOUT)):
        situation = draw_situation(rng, 3, system, True)
        sources = {row.source for row in situation.rows}
        assert sources == {MEMORY, source or situation.state} and situation.state in STATES
        without_memory = draw_situation(rng, 3, system, False)
        assert MEMORY not in {row.source for row in without_memory.rows}


def test_cards_of_another_state_than_the_one_at_hand_are_refused():
    with pytest.raises(ValueError, match="the state at hand .calm., step or plan, not 'storm'"):
        make_situation([1, 1], "calm", "storm", RESULTS)


def test_a_past_step_counts_as_one_observation_beside_those_of_a_mean():
    trials = {"Ana": (0.5,), "Bo": (0.6,)}
    once = make_situation([1], "calm", TRIAL, trials, [("Ana", (1.0,))])
    # On the scale of the prompt: .5 is 0, .6 is 20 and 1.0 is 99.
    assert once.prompt == "is calm last Ana 9 9 9 step Ana 9 0 0 step Bo 9 2 0"
    expected = 9 * 99 / (RESULT_WEIGHT + 1)
    assert once.estimate_utilities() == {"Ana": pytest.approx(expected), "Bo": 9 * 20}
    assert once.ranking == ("Bo", "Ana")

    # Three good steps in a row outweigh the trial.
    thrice = make_situation([1], "calm", TRIAL, trials, [("Ana", (1.0,))] * 3)
    expected = 9 * 3 * 99 / (RESULT_WEIGHT + 3)
    assert thrice.estimate_utilities()["Ana"] == pytest.approx(expected)
    assert thrice.ranking == ("Ana", "Bo")


def test_criteria_that_count_nothing_are_left_out():
    situation = make_situation([1, 0, 1e-4], "calm", TRIAL, {"Ana": (1, 0, 0), "Bo": (2, 9, 5)})
    assert situation.weights == (9,)
    assert [row.values for row in situation.rows] == [(0,), (99,)]


@given(tables(), st.integers(0, 10**6))
def test_rescaling_results_moves_no_choice(results, seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(results.shape[1]))
    before, after = results @ weights, rescale_values(results) @ weights
    width = np.ptp(results, axis=0).max() or 1.0
    # Half a hundredth of the widest difference may be lost on both sides.
    assert before[after.argmax()] >= before.max() - width / 99
    assert rescale_values(results).min() == 0 and rescale_values(results).max() in (0, 99)


def test_differences_however_small_fill_two_digits():
    trials = {"Ana": (0.500, 0.9), "Bo": (0.504, 0.9), "Cy": (0.508, 0.9)}
    situation = make_situation([0.5, 0.5], "high", TRIAL, trials)
    assert situation.weights == (9, 9)
    assert [row.values for row in situation.rows] == [(0, 0), (50, 0), (99, 0)]


def test_preferences_are_digits_of_which_one_is_nine():
    assert scale_to_digits([0.5, 0.25, 0.25]) == (9, 4, 4) and scale_to_digits([0, 1]) == (0, 9)
    for bad in ([0, 0], [-1, 2], [float("nan"), 1]):
        with pytest.raises(ValueError, match="preferences"):
            scale_to_digits(bad)


def test_names_and_states_are_dealt_anew_and_preferences_of_the_test_are_unseen():
    train, test = (
        tasks.draw_items("situation", split, 200, [3], "KO") for split in ("train", "test")
    )
    assert not {item.id for item in train} & {item.id for item in test}
    first = [item.reference.split()[0] for item in train]
    assert max(first.count(name) for name in set(first)) < 40
    assert {item.prompt.split()[1] for item in train} == set(STATES)
    # The policy that is named last is best in about a third of the items.
    named_last = [parse_prompt(item.prompt).rows[-1].policy for item in train]
    is_best = np.array(first) == np.array(named_last)
    assert 0.2 < is_best.mean() < 0.5


def test_the_longest_situation_fits_the_window_of_its_model_with_a_reply():
    window = config.load("smoke").lab.models["lab-orchestrator"].window
    items = tasks.draw_items("situation", "test", 300, [6], "KO")
    longest = max(len(encode_conversation(write_question(item))) for item in items)
    assert longest + LIMIT <= window


def test_the_family_adds_no_word_to_the_vocabulary_of_the_lab_models():
    family_words = set(tasks.FAMILIES["situation"].vocabulary)
    other_words = set().union(
        *(family.vocabulary for name, family in tasks.FAMILIES.items() if name != "situation")
    )
    assert not {word for word in family_words - other_words if word not in tokenizer.AGENT_WORDS}


def test_only_a_model_that_is_taught_situations_depends_on_how_they_are_drawn(monkeypatch):
    settings = config.load("smoke").lab
    before = {name: build.make_recipe(settings, name) for name in settings.models}
    monkeypatch.setattr(decision_traces, "VERSION", decision_traces.VERSION + 1)
    changed = {name for name in before if build.make_recipe(settings, name) != before[name]}
    assert changed == {"lab-orchestrator"}
