"""The student simulator: its rules by hand, its twin step for step, its conventions."""

from dataclasses import replace

import numpy as np
import pytest
from catsim import irt
from hypothesis import given, settings
from hypothesis import strategies as st

import lib.envs  # noqa: F401 - registers the ids
from lib.config import load
from lib.envs import make_education, make_education_rules
from lib.envs.batched_env import LinearVecReward
from lib.envs.education import (
    CHALLENGE,
    EASY,
    FAILED,
    PENDING,
    QUEUED,
    Education,
    EducationRules,
    answer_probability,
)
from lib.envs.education_batch import EducationBatch
from lib.experiment import seeds

ITEMS = (74, 67, 72, 81, 17, 0)  # linear algebra
RULES = make_education_rules(load().education)

variants = st.fixed_dictionaries(
    {
        "items": st.sampled_from(
            [ITEMS, (10, 12, 10, 10, 0, 0), (9, 19, 10, 13, 9, 0), (1, 1, 1, 1, 1, 1)]
        ),
        "steps_per_level": st.sampled_from([1, 2, 4]),
        "warmup": st.sampled_from(["keep", "measure", "ncc"]),
        "ncc_rule": st.sampled_from(["at_or_above", "exact"]),
        "ncc_scope": st.sampled_from(["episode", "set"]),
        "repeats": st.sampled_from(["everywhere", "not_easy", "failed_only"]),
        "solved": st.sampled_from(["retire", "requeue"]),
        "near_delta": st.sampled_from(["below", "at_most"]),
        "consecutive": st.integers(1, 3),
        "spread": st.sampled_from([0.0, 0.4]),
        "delta": st.sampled_from([0.0, 0.2, 0.4]),
    }
)


def matches(twin_row, single):
    """Whether one row of a transition equals what the single environment returned."""
    return all(np.array_equal(a, b) for a, b in zip(twin_row, single, strict=True))


def run_both(rules, batch, steps, seed):
    """Step a twin and as many single environments with the same random actions and compare everything."""
    twin, singles = EducationBatch(rules, batch, seed), [Education(rules) for _ in range(batch)]
    observation = twin.reset()
    for i, single in enumerate(singles):
        assert np.array_equal(single.reset(seed=seed + i)[0], observation[i])
    actions = np.random.default_rng(seed).integers(0, 3, (steps, batch))
    for row in actions:
        step = twin.advance(row)
        for i, single in enumerate(singles):
            seen, reward, terminated, truncated, info = single.step(int(row[i]))
            ours = (
                step.final_observation[i],
                step.reward[i],
                step.terminated[i],
                step.truncated[i],
            )
            assert matches(ours, (seen, reward, terminated, truncated))
            levels = [level for level in twin.last_set.asked_levels[i] if level >= 0]
            assert levels == [level - 1 for level in info["levels"]]
            if terminated or truncated:
                seen, _ = single.reset()
            assert np.array_equal(seen, step.observation[i])


@given(variants, st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_twin_equals_the_single_environment_under_every_switch(variant, seed):
    run_both(EducationRules(**variant), batch=3, steps=70, seed=seed)


def test_the_twin_equals_the_single_environment_over_thousands_of_steps():
    run_both(RULES, batch=16, steps=400, seed=11)


@pytest.mark.parametrize("near_delta", ["below", "at_most"])
@pytest.mark.parametrize("solved", ["retire", "requeue"])
def test_the_twin_equals_the_single_environment_under_the_newer_switches(near_delta, solved):
    run_both(replace(RULES, near_delta=near_delta, solved=solved), batch=8, steps=120, seed=5)


def test_answers_follow_item_response_theory_as_catsim_has_it():
    for ability in (0.0, 0.3, 0.8):
        for difficulty in (0.0, 0.4, 1.0):
            expected = irt.icc(ability, a=4.0, b=difficulty)
            assert answer_probability(ability, difficulty, 4.0) == pytest.approx(
                expected, abs=1e-12
            )


def test_the_simulated_student_answers_as_often_as_the_response_model_says():
    rules = EducationRules(ITEMS, warmup="keep", horizon=50)
    twin = EducationBatch(rules, 4000, seed=1)
    twin.reset()
    reward = twin.advance(np.full(4000, CHALLENGE)).reward
    expected = answer_probability(
        0.4, 0.8, 4.0
    )  # the first challenge set is all of level 5, less the warm-up's one
    assert reward[:, 2].mean() == pytest.approx(expected, abs=0.01)


def learn(rules, mastery, answers):
    """Mastery steps after the answers [(level, right), ...], starting from `mastery` steps."""
    env = Education(rules)
    env.reset(seed=0)
    env.mastery_steps, env.run = mastery, 0
    env._apply_ncc(
        [(QUEUED, level, 0) for level, _ in answers], [correct for _, correct in answers]
    )
    return env.mastery_steps


@pytest.mark.parametrize(
    ("answers", "rises"),
    [
        ([(2, True), (2, True)], 1),  # two in a row at mastery
        ([(2, True), (2, False), (2, True)], 0),  # broken by a wrong answer
        ([(3, True), (4, True)], 1),  # above mastery counts
        ([(2, True), (0, True), (2, True)], 1),  # an easy question neither counts nor breaks
        ([(2, True), (0, False), (2, True)], 1),
        (
            [(2, True), (2, True), (2, True), (2, True)],
            1,
        ),  # level 2 is below mastery after the rise
        ([(4, True)] * 4, 2),
    ],
)
def test_mastery_rises_by_consecutive_correct_answers_worked_by_hand(answers, rises):
    rules = EducationRules(ITEMS, steps_per_level=1)
    assert learn(rules, 2, answers) == 2 + rises


def test_with_the_exact_rule_harder_questions_never_raise_mastery():
    rules = EducationRules(ITEMS, steps_per_level=1, ncc_rule="exact")
    assert learn(rules, 2, [(4, True)] * 5) == 2
    assert learn(rules, 2, [(2, True)] * 2) == 3


def sets(action, **change):
    """The first set of an action and the student it was made for."""
    env = Education(EducationRules(ITEMS, steps_per_level=1, **change))
    env.reset(seed=4)
    return env, env._recommend(action)


def test_a_challenge_set_is_the_hardest_there_is_above_mastery():
    _, chosen = sets(CHALLENGE)
    assert [level for _, level, _ in chosen] == [4] * 5


def test_an_easy_set_holds_nothing_above_mastery_and_nothing_failed_before():
    env, chosen = sets(EASY, repeats="not_easy")
    assert all(level <= env.mastery_steps and source == QUEUED for source, level, _ in chosen)


def test_a_failed_set_starts_with_open_questions_near_mastery():
    env, _ = sets(EASY, near_delta="at_most")
    env.pending = [[], [], [901], [902], [], []]
    env.mastery_steps = 2
    chosen = env._recommend(FAILED)
    assert [(source, identity) for source, _, identity in chosen[:2]] == [
        (PENDING, 901),
        (PENDING, 902),
    ]
    assert all(source == QUEUED for source, _, _ in chosen[2:])


@pytest.mark.parametrize(
    ("near_delta", "steps_per_level", "levels"),
    [
        ("below", 1, [2, 2]),  # |d - m| = 0.2 is one level, and not below delta
        ("at_most", 1, [2, 2, 1, 3]),
        ("below", 2, [2, 2]),  # the same in half levels: two steps are 0.2
        ("at_most", 2, [2, 2, 1, 3]),
    ],
)
def test_failed_questions_are_near_below_delta_or_up_to_it(near_delta, steps_per_level, levels):
    rules = EducationRules(ITEMS, steps_per_level=steps_per_level, near_delta=near_delta)
    env = Education(rules)
    env.reset(seed=4)
    env.pending = [[900], [901], [902, 903], [904], [905], []]
    env.mastery_steps = 2 * steps_per_level  # mastery 0.4
    near = [level for source, level, _ in env._recommend(FAILED) if source == PENDING]
    assert near == levels


@pytest.mark.parametrize("steps_per_level", range(1, 11))
def test_delta_is_compared_exactly_in_mastery_steps(steps_per_level):
    rules = {
        name: EducationRules(ITEMS, steps_per_level=steps_per_level, near_delta=name)
        for name in ("below", "at_most")
    }
    assert rules["at_most"].near_steps == steps_per_level  # delta 0.2 is one level
    assert rules["below"].near_steps == steps_per_level - 1
    assert rules["below"].hard_steps == rules["at_most"].hard_steps == steps_per_level


def test_every_episode_begins_at_the_initial_mastery_and_the_warm_up_fills_the_accuracies():
    assert RULES.warmup == "keep" and RULES.near_delta == "below"  # what the paper prints
    twin = EducationBatch(RULES, 50, seed=3)
    observation = twin.reset()
    assert np.allclose(observation[:, 0], 0.4)
    assert (twin.asked.sum(axis=1) == RULES.questions).all()
    assert observation[:, 1:7].any(axis=1).mean() > 0.9  # somebody may answer nothing right


def test_a_solved_question_returns_behind_all_others_of_its_level():
    env = Education(EducationRules((1, 1, 7, 1, 1, 0), steps_per_level=1, solved="requeue"))
    env.reset(seed=0)
    env.queue = [[], [], [10, 11, 12], [], [], []]
    env.pending = [[] for _ in range(6)]
    env._ask_questions([(QUEUED, 2, 20), (QUEUED, 2, 21)] * 20)  # some are right, some are not
    assert env.queue[2][:3] == [10, 11, 12]
    assert set(env.queue[2][3:]) <= {20, 21} and env.queue[2][3:]
    assert set(env.pending[2]) <= {20, 21}


def test_a_bank_whose_solved_questions_return_never_runs_dry():
    rules = EducationRules((1, 1, 1, 1, 1, 0), solved="requeue")
    env = Education(rules)
    env.reset(seed=1)
    for _ in range(20):
        _, _, terminated, _, info = env.step(CHALLENGE)
        assert len(info["items"]) == 5
        if terminated:
            break


def test_a_question_answered_right_never_comes_back():
    env = Education(replace(RULES, solved="retire"))
    rng = np.random.default_rng(0)
    for episode in range(5):
        env.reset(seed=episode)
        solved: set[int] = set()
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(int(rng.integers(3)))
            assert solved.isdisjoint(info["items"])
            assert len(set(info["items"])) == len(info["items"])
            solved |= {
                i for i, correct in zip(info["items"], info["correct"], strict=True) if correct
            }
            done = terminated or truncated


def test_rewards_are_the_papers_formulas():
    env = Education(EducationRules(ITEMS, steps_per_level=1))
    env.reset(seed=0)
    chosen = [(QUEUED, 4, 1), (QUEUED, 3, 2), (PENDING, 2, 3), (PENDING, 0, 4), (QUEUED, 2, 5)]
    reward = env._compute_reward(
        chosen, [False, True, True, False, True], mastery_before=2
    )  # m = 0.4
    aptitude = ((0.8 - 0.4) + (0.6 - 0.4)) / (1 - 0.4) / 5
    assert reward == pytest.approx([aptitude, 1 / 5, 3 / 5])
    assert (
        env._compute_reward([(QUEUED, 4, 1)], [True], mastery_before=5)[0] == 0
    )  # at full mastery there is nothing above it


@given(st.integers(0, 10_000), st.lists(st.integers(0, 2), min_size=1, max_size=60))
@settings(max_examples=30, deadline=None)
def test_observations_and_rewards_stay_in_their_spaces(seed, actions):
    env = Education(RULES)
    observation, _ = env.reset(seed=seed)
    for action in actions:
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        assert env.reward_space.contains(reward)
        if terminated or truncated:
            break


def test_an_episode_ends_at_the_goal_or_at_the_horizon():
    twin = EducationBatch(RULES, 500, seed=2)
    twin.reset()
    lengths = np.zeros(500)
    for _ in range(50):
        lengths += 1
        step = twin.advance(np.full(500, EASY))
        if step.done.any():
            assert (
                step.truncated[step.done] == (lengths[step.done] == 50)
            ).all() or step.terminated.any()
            lengths[step.done] = 0
    assert lengths.max() == 0  # nobody goes on past step 50


def test_a_row_copied_many_times_gives_independent_futures():
    twin = EducationBatch(RULES, 3, seed=1)
    twin.reset()
    copies = EducationBatch(twin.rules, 200)
    copies.restore(twin.state(), rows=np.full(200, 1))
    copies.key = seeds.keys("look-ahead", n=200)
    reward = copies.advance(np.full(200, CHALLENGE)).reward
    assert len(np.unique(reward[:, 2])) > 1
    assert np.array_equal(twin.mastery, twin.state()["mastery"])  # the original has not moved


def test_the_linear_view_of_a_twin_is_the_weighted_sum():
    rules = EducationRules(ITEMS)
    plain, linear = (
        EducationBatch(rules, 4, seed=5),
        LinearVecReward(EducationBatch(rules, 4, seed=5), (0.2, 0.3, 0.5)),
    )
    plain.reset(), linear.reset()
    vector = plain.advance(np.array([0, 1, 2, 2])).reward
    _, scalar, _, _ = linear.step(np.array([0, 1, 2, 2]))
    np.testing.assert_allclose(scalar, vector @ [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="3 entries"):
        LinearVecReward(EducationBatch(rules, 4), (1.0, 0.0))


def begun(env):
    env.reset()
    return env


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EducationRules((1, 1, 1, 0, 0, 0)), "full set"),
        (lambda: begun(make_education()).step(7), "failed, easy, challenge"),
        *(
            (
                lambda wrong=wrong: begun(EducationBatch(EducationRules(ITEMS), 3)).advance(
                    np.array(wrong)
                ),
                "actions",
            )
            for wrong in ([0, 1], [0, 1, 3], [-1, 0, 0])
        ),
    ],
)
def test_too_few_questions_and_wrong_actions_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
