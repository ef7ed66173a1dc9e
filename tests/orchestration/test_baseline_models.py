"""Decision models without a language model: what each of them computes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from lib.orchestration.baseline_models import (
    ConstantModel,
    GreedyModel,
    LinUCBModel,
    PlanModel,
    RandomModel,
    RoundRobinModel,
    extract_features,
)
from lib.orchestration.contexts import DecisionContext, Query, State, ToolResult
from lib.orchestration.domain_descriptions import EDUCATION
from lib.orchestration.training_episodes import collect_training_contexts
from tests.orchestration.untrained import make_episode_set, make_options

POLICIES = ("SO-d1", "SO-d2", "SO-d3")
NUM_CRITERIA = 4
Shares = st.floats(0, 1, allow_subnormal=False)


def make_context(results, weights=(0.25,) * NUM_CRITERIA, step: int = 1) -> DecisionContext:
    """A state in which every policy was tried, with these results by policy."""
    names = [f"policy {i}" for i in range(len(results))]
    tool_results = tuple(
        ToolResult(name, 1, 8, tuple(row)) for name, row in zip(names, results, strict=True)
    )
    return DecisionContext(
        system="RO",
        domain=EDUCATION,
        policies=tuple(names),
        query=Query(tuple(weights), step, 50),
        state=State({"mastery": 0.5, "failed questions open": 70.0}, {}, ""),
        tool_results=tool_results,
    )


def find_choice(model, context: DecisionContext) -> int:
    (decision,) = model.decide([context])
    assert decision.probabilities.sum() == pytest.approx(1)
    return int(decision.probabilities.argmax())


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(
            st.lists(st.lists(Shares, min_size=4, max_size=4), min_size=n, max_size=n),
            st.lists(Shares, min_size=4, max_size=4),
        )
    )
)
def test_greedy_takes_the_first_of_the_best_weighted_sums(case):
    results, weights = case
    utilities = np.array(results) @ np.array(weights)
    choice = find_choice(GreedyModel(), make_context(results, weights))
    assert choice == np.flatnonzero(utilities == utilities.max())[0]


def test_greedy_follows_the_query():
    results = [(0.4, 0.8, 0, 0), (0.8, 0.1, 0, 0)]
    choices = [
        find_choice(GreedyModel(), make_context(results, weights))
        for weights in ((0.9, 0.1, 0, 0), (0.1, 0.9, 0, 0))
    ]
    assert choices == [1, 0]


@pytest.mark.parametrize("num_policies", [2, 3, 5])
def test_random_gives_every_policy_the_same_probability(num_policies):
    (decision,) = RandomModel().decide([make_context(np.zeros((num_policies, NUM_CRITERIA)))])
    assert decision.probabilities.tolist() == [1 / num_policies] * num_policies
    assert not RandomModel.is_greedy  # or the first one would act all the time


def test_round_robin_takes_turns_by_the_step():
    contexts = [make_context(np.zeros((3, NUM_CRITERIA)), step=step) for step in range(1, 8)]
    choices = [find_choice(RoundRobinModel(), context) for context in contexts]
    assert choices == [0, 1, 2, 0, 1, 2, 0]


def test_a_constant_is_found_by_its_name_wherever_it_stands_on_the_menu():
    context = make_context(np.zeros((3, NUM_CRITERIA)))
    turned = replace(context, policies=context.policies[::-1])
    assert find_choice(ConstantModel("policy 2"), context) == 2
    assert find_choice(ConstantModel("policy 2"), turned) == 0
    with pytest.raises(ValueError):
        ConstantModel("policy 3").decide([context])


# LinUCB -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def watched() -> list[DecisionContext]:
    """What every policy gives in states that random choices reach."""
    return collect_training_contexts(make_episode_set("education", num_episodes=6), num_steps=2)


def test_linucb_is_ridge_regression_of_utilities_on_features(watched):
    model = LinUCBModel(watched)
    features = np.stack([extract_features(context) for context in watched])
    utilities = []
    for context in watched:
        results = np.array([result.results for result in context.tool_results])
        utilities.append(results @ context.query.weights)
    ridge = Ridge(alpha=1.0, fit_intercept=False, solver="cholesky").fit(features, utilities)
    np.testing.assert_allclose(model.theta.T, ridge.coef_, atol=1e-9)
    predicted = ridge.predict(features)
    assert [find_choice(model, context) for context in watched] == predicted.argmax(axis=1).tolist()


def test_linucb_chooses_by_the_context_and_not_by_what_was_tried_there(watched):
    model = LinUCBModel(watched)
    for context in watched[:20]:
        blind = replace(context, system="", tool_results=(), components=frozenset())
        assert find_choice(model, blind) == find_choice(model, context)


def test_features_are_a_constant_the_state_the_time_left_and_the_query():
    context = make_context(np.zeros((3, NUM_CRITERIA)), (0.1, 0.2, 0.3, 0.4), step=26)
    # 70 open questions count as 50, the largest count.
    expected = [1.0, 0.5, 1.0, 0.5, 0.1, 0.2, 0.3, 0.4]
    assert extract_features(context).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_features_stay_between_0_and_1(domain):
    contexts = collect_training_contexts(make_episode_set(domain, num_episodes=6), num_steps=1)
    features = np.stack([extract_features(context) for context in contexts])
    assert features.min() >= 0 and features.max() <= 1


# Plans --------------------------------------------------------------------------------------------


def test_plans_keep_to_one_policy_or_hand_over_once():
    plans = PlanModel(num_steps=5, handover_steps=[2, 4], num_policies=3).plans
    assert plans.shape == (3 + 2 * 3 * 2, 5)
    assert len({tuple(plan) for plan in plans}) == len(plans)
    assert [plan.tolist() for plan in plans[:3]] == [[0] * 5, [1] * 5, [2] * 5]
    for plan in plans[3:]:
        (changes,) = np.nonzero(np.diff(plan))
        assert len(changes) == 1 and changes[0] + 1 in (2, 4)


def test_the_best_plans_first_policy_acts():
    model = PlanModel(num_steps=3, handover_steps=[1], num_policies=3)
    context = make_context(np.zeros((3, NUM_CRITERIA)))
    for number, plan in enumerate(model.plans):
        values = np.zeros(len(model.plans))
        values[number] = 0.5
        assert find_choice(model, replace(context, plan_values=values)) == plan[0]


def test_planning_with_one_step_is_the_look_ahead_of_one_step():
    episode_set = make_episode_set("education", num_episodes=8)
    options = make_options("education", "RO", rollout_steps=1)
    planned = episode_set.play(PlanModel(1, [], 3), options)
    looked = episode_set.play(GreedyModel(), options)
    # Results of a tool call are rounded, plans are not: a near tie may fall differently.
    same = [
        a == b for a, b in zip(planned.episodes["chosen"], looked.episodes["chosen"], strict=True)
    ]
    assert np.mean(same) > 0.8
