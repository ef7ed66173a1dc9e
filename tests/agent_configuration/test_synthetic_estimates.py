"""Estimates of the synthetic environment from rows that are made up so that they can be worked out on paper."""

import pandas as pd
import pytest

from lib.agent_configuration import synthetic_benchmark, synthetic_estimates

REWARDS = {  # of the likeliest choices
    "optimum": 5.0,
    "best constant": 4.0,
    synthetic_benchmark.ARC.name: 3.0,
    synthetic_benchmark.UNDISCOUNTED.name: 3.5,
    "ARC without masks": 2.5,
    "flat bandit": 3.25,
    "flat autoregressive": 2.0,
    "flat MDP": 1.0,
    "SFT, one tau": 3.5,
    "SFT, tau per kind": 3.75,
}


@pytest.fixture
def end() -> pd.DataFrame:
    """Three environments; only the flat MDP does not do the same in all of them."""
    rows = []
    for method, mean_reward in REWARDS.items():
        for seed in range(3):
            for item in range(4):
                reward = mean_reward + 0.1 * item * (1 + (seed - 1) * (method == "flat MDP"))
                rows.append(
                    {
                        "method": method,
                        "seed": seed,
                        "item": f"{seed}/{item}",
                        "reward": reward,
                        "drawn": reward - 1.0,
                        "instructions": 2.0 if method == synthetic_benchmark.ARC.name else 3.0,
                        "margin": reward - 3.0,
                        "outside": 0.25,
                    }
                )
    return pd.DataFrame(rows)


def test_differences_are_those_of_the_rewards(end):
    estimates = synthetic_estimates.estimate_synthetic_metrics(end)
    assert estimates["glass.headroom"]["value"] == pytest.approx(1.0)
    assert estimates["glass.above_constant"]["value"] == pytest.approx(-1.0)
    assert estimates["glass.above_flat.bandit"]["value"] == pytest.approx(-0.25)
    assert estimates["glass.even.above_flat.bandit.drawn"]["value"] == pytest.approx(0.25)
    assert estimates["glass.sft.tau_per_kind"]["value"] == pytest.approx(0.75)
    assert estimates["glass.gamma"]["value"] == pytest.approx(-1.0)


def test_every_variant_of_the_benchmark_is_compared():
    compared = {synthetic_benchmark.ARC.name, synthetic_benchmark.UNDISCOUNTED.name}
    compared |= set(synthetic_estimates.BASELINES)
    assert {variant.name for variant in synthetic_benchmark.VARIANTS} <= compared


def test_nothing_is_said_of_sampled_choices_of_a_constant(end):
    estimates = synthetic_estimates.estimate_synthetic_metrics(end)
    assert "glass.above_constant" in estimates and "glass.above_constant.drawn" not in estimates


def test_arc_without_a_discount_is_compared_with_what_has_none(end):
    estimates = synthetic_estimates.estimate_synthetic_metrics(end)
    assert "glass.even.above_flat.autoregressive" in estimates
    assert not {"glass.even.above_flat.mdp", "glass.even.masks"} & set(estimates)
