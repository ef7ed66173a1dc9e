"""Decision situations: what is told is enough to decide, and nothing that is told relative moves a choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import config, tasks
from lib.language_models.tokenizer import decode, encode
from lib.language_models.training import build, decision_traces
from lib.language_models.training.decision_traces import (
    LOOKAHEAD,
    STATES,
    TraceSituation,
    make_situation,
    rescale_values,
    scale_to_digits,
)

SHOWN = TraceSituation((9, 3), "low", {"Ana": (62, 10), "Bo": (0, 99)})


def tables(digits: int = 2):
    """Rewards of 2 to 5 policies by 1 to 4 objectives, rounded."""
    sizes = st.tuples(st.integers(2, 5), st.integers(1, 4), st.integers(0, 10**6))
    return sizes.map(lambda s: np.round(np.random.default_rng(s[2]).random(s[:2]), digits))


def test_a_situation_is_told_number_by_number():
    assert SHOWN.prompt == "low Ana 9 6 2 low Ana 3 1 0 low Bo 9 0 0 low Bo 3 9 9"
    assert SHOWN.utilities == {"Ana": 588, "Bo": 297} and SHOWN.ranking == ("Ana", "Bo")


@pytest.mark.parametrize("skin", ["cards", "looks"])
def test_the_answer_follows_from_the_words_alone(skin):
    """Whoever reads the prompt, and nothing else, finds the ranking that is asked for."""
    for item in tasks.draw_items("situation", "test", 60, [2, 3, 6], skin):
        words, scores = item.prompt.split(), {}
        for when, name, weight, tens, ones in zip(*(words[i::5] for i in range(5)), strict=True):
            assert (when == LOOKAHEAD) == (skin == "looks") and when in (LOOKAHEAD, *STATES)
            scores[name] = scores.get(name, 0) + int(weight) * (10 * int(tens) + int(ones))
        assert sorted(scores.values(), reverse=True) == [
            scores[name] for name in item.reference.split()
        ]
        assert len(scores) == item.difficulty and len(set(scores.values())) >= 2
        assert decode(encode(item.prompt)) == item.prompt  # the lab's tokenizer knows every word


@given(tables(), st.integers(0, 10**6))
def test_telling_rewards_relative_to_the_worst_moves_no_choice(rewards, seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(rewards.shape[1]))
    before, after = rewards @ weights, rescale_values(rewards) @ weights
    width = np.ptp(rewards, axis=0).max() or 1.0
    assert (
        before[after.argmax()] >= before.max() - width / 99
    )  # half a hundredth of the widest gap, on both sides
    assert rescale_values(rewards).min() == 0 and rescale_values(rewards).max() in (0, 99)


def test_differences_however_small_fill_two_digits():
    made = make_situation(
        [0.5, 0.5], "high", {"a": (0.500, 0.9), "b": (0.504, 0.9), "c": (0.508, 0.9)}
    )
    assert made == TraceSituation((9, 9), "high", {"a": (0, 0), "b": (50, 0), "c": (99, 0)})


def test_preferences_are_digits_of_which_one_is_nine():
    assert scale_to_digits([0.5, 0.25, 0.25]) == (9, 4, 4) and scale_to_digits([0, 1]) == (0, 9)
    for bad in ([0, 0], [-1, 2], [float("nan"), 1]):
        with pytest.raises(ValueError, match="preferences"):
            scale_to_digits(bad)


def test_names_and_states_are_dealt_anew_and_preferences_of_the_test_are_unseen():
    train, test = (
        tasks.draw_items("situation", split, 200, [3], "cards") for split in ("train", "test")
    )
    assert not {item.id for item in train} & {item.id for item in test}
    first = [item.reference.split()[0] for item in train]
    assert max(first.count(name) for name in set(first)) < 40
    assert {item.prompt.split()[0] for item in train} == set(STATES)
    named = [item.reference.split()[0] == item.prompt.split()[1] for item in train]
    assert 0.2 < np.mean(named) < 0.5  # who is named first is best by chance


def test_only_who_is_taught_situations_depends_on_how_they_are_drawn(monkeypatch):
    settings = config.load("smoke").lab
    before = {name: build.make_recipe(settings, name) for name in settings.models}
    monkeypatch.setattr(decision_traces, "VERSION", decision_traces.VERSION + 1)
    changed = {name for name in before if build.make_recipe(settings, name) != before[name]}
    assert changed == {"lab-orchestrator"}
