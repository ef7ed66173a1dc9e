"""CoRL's synthetic benchmark: training comes near the optimum, and the rows are complete."""

from itertools import product

import pandas as pd
import pytest

from lib import config, stats
from lib.budgeted_routing import synthetic_benchmark
from lib.budgeted_routing.synthetic_environment import KNOBS
from lib.budgeted_routing.synthetic_training import ABLATIONS, VARIANTS
from lib.experiment import results_table
from tests.budgeted_routing.small_systems import SMOKE, change_params
from tests.budgeted_routing.synthetic import CENTRAL


@pytest.fixture(scope="module")
def trained() -> pd.DataFrame:
    """Rows of eight controllers, trained as at laptop at the central grid point."""
    values = config.load("laptop").routing.synthetic.model_dump() | {"seeds": 8}
    settings = change_params(routing={"synthetic": values}).routing
    rows = synthetic_benchmark.train_and_evaluate(settings, [CENTRAL], evaluated_updates=[0, 10])
    return results_table.make_results(synthetic_benchmark.SYSTEM, rows)


def test_training_comes_near_the_optimum_and_above_what_ignores_the_query(trained):
    greedy = results_table.select(trained, temperature=0.0)
    after = results_table.select(greedy, step=results_table.AFTER)
    reward = after.groupby(["method", "seed"])["reward"].mean()
    regret = (reward["optimum"] - reward["CoRL"]).mean()
    assert regret < 0.03  # the lesson expects .02 of 32 controllers

    gain = stats.paired_difference(
        results_table.select(after, condition="medium"),
        "reward",
        {"method": "CoRL"},
        {"method": "best without the query"},
    )
    assert gain["ci_low"].item() > 0.1

    curve = results_table.select(greedy, method="CoRL").groupby("step")["reward"].mean()
    assert curve[0] < curve[10] < curve[results_table.AFTER]


def test_every_method_has_one_row_under_every_budget_in_every_environment(trained):
    after = trained[trained["step"] == results_table.AFTER]
    counts = after.groupby(["method", "temperature"]).size()
    assert set(counts) == {8 * 3}
    assert not after.duplicated(["method", "temperature", "seed", "condition"]).any()
    assert ("CoRL", 0.0) in counts.index
    assert ("CoRL", 1.0) in counts.index
    assert ("start", 1.0) in counts.index
    assert dict(after[["method", "role"]].drop_duplicates().to_numpy()) == {
        "start": "start",
        "controller alone": "constant",
        "specialist 1": "expert",
        "specialist 2": "expert",
        "specialist 3": "expert",
        "generalist": "expert",
        "best constant": "constant",
        "best without the query": "constant",
        "optimum": "oracle",
        "known kind": "oracle",
        "CoRL": "paper",
    }


def test_no_reward_is_above_the_accuracy_and_the_share_within_the_budget(trained):
    assert trained["reward"].between(0, 1).all()
    assert (trained["reward"] <= trained["correct"] + 1e-6).all()
    assert (trained["reward"] <= trained["within"] + 1e-6).all()
    assert (trained["mean_expensive_calls"] <= trained["mean_calls"] + 1e-6).all()


def test_a_run_has_all_variants_at_the_centre_and_corl_on_the_map_and_is_the_same_again():
    settings = change_params(routing={"synthetic": {"updates": 1}}).routing
    first, second = (
        results_table.make_results(synthetic_benchmark.SYSTEM, synthetic_benchmark.run(settings))
        for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, second)

    knobs = list(KNOBS)
    grid_points = set(first[knobs].drop_duplicates().itertuples(index=False, name=None))
    map_points = set(product(*(SMOKE.synthetic.map[knob] for knob in knobs)))
    assert grid_points == map_points | {tuple(CENTRAL[knob] for knob in knobs)}

    central = results_table.select(first, **CENTRAL)
    assert {variant.name for variant in VARIANTS} <= set(central["method"])
    on_map = first.drop(central.index)
    assert not {variant.name for variant in ABLATIONS} & set(on_map["method"])
    assert set(on_map["step"]) == {results_table.AFTER}


def test_the_progress_of_a_run_ends_at_1():
    settings = change_params(routing={"synthetic": {"updates": 1}}).routing
    fractions = []
    synthetic_benchmark.run(settings, fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
