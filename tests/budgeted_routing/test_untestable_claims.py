"""What makes claims on CoRL's synthetic environment untestable is computed: the set-up decides them, not a training."""

import pytest

from lib.budgeted_routing.synthetic_environment import make_environments
from lib.budgeted_routing.synthetic_strategies import (
    compute_path_outcomes,
    compute_path_rewards,
    evaluate_strategy,
    find_optimum,
)
from lib.scoreboard.claim import Claim, read_claims
from tests.budgeted_routing.synthetic import make_settings, make_test_queries


@pytest.fixture(scope="module")
def central():
    """All environments of the lesson, and what is observed of queries in them."""
    settings = make_settings(seeds=32, queries=120)
    environments = make_environments(settings, [settings.central])
    _, observations = make_test_queries(environments, settings, 120)
    return environments, environments.compute_beliefs(observations)


def find_claim(claim_id: str) -> Claim:
    (claim,) = [claim for claim in read_claims() if claim.id == claim_id]
    return claim


@pytest.mark.parametrize(
    ("claim_id", "quantity"),
    [("corl-synthetic-cost-ordered", "cost_usd"), ("corl-synthetic-calls-ordered", "mean_calls")],
)
def test_the_optimum_of_every_environment_spends_more_under_a_higher_budget(
    central, claim_id, quantity
):
    environments, beliefs = central
    optimum = find_optimum(environments, beliefs)
    means = evaluate_strategy(environments, beliefs, optimum)[quantity].mean(-1)  # (G, B)
    assert (means.diff(dim=1) > 0).all()
    assert "optimum" in find_claim(claim_id).untestable


def test_where_budgets_bind_the_best_controller_that_does_not_know_them_earns_less(central):
    environments, beliefs = central
    optimum = find_optimum(environments, beliefs)
    rewards = evaluate_strategy(environments, beliefs, optimum)["reward"]  # (G, B, n)
    best = rewards[:, :2].mean((1, 2))  # (G,), under the low and the medium budget

    # One choice for both budgets: the path with the best mean reward over them.
    outcomes = compute_path_outcomes(environments, beliefs)
    path_rewards = compute_path_rewards(environments, outcomes)[:, :2].mean(1)  # (G, n, A, 2, A)
    path_rewards[:, :, 0, :, 1:] = -1.0  # after its own answer a controller calls nobody
    best_without_budget = path_rewards.amax(-1).sum(-1).amax(-1).mean(-1)  # (G,)
    assert (best - best_without_budget > 0.05).all()
    assert "optimum" in find_claim("corl-synthetic-budget-in-prompt").untestable
