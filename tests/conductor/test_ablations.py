"""Ablations of MAESTRO: variants of the glass box held against its Conductor, and gradients that vanish."""

import pytest
import torch

from lib import config
from lib.conductor import ablations
from lib.conductor.rewards import COMPONENTS

SYNTHETIC = {
    "seeds": 3,
    "steps": 6,
    "map_seeds": 2,
    "map": {"other_agreement": [0.3], "noise": [0.0], "easy_fraction": [1.0]},
}
SETTINGS = config.settings(profile="smoke", conductor={"synthetic": SYNTHETIC, "jobs": 1})


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    torch.set_num_threads(1)
    return ablations.run_methods(SETTINGS, runs=tmp_path_factory.mktemp("synthetic"))


@pytest.mark.parametrize(
    ("table", "variants"),
    [
        (ablations.compare_inputs, ["h: prompt", "h: reply", "h: shuffled"]),
        (ablations.compare_losses, ["no entropy", "pairwise", "Equal", "Random"]),
        (ablations.compare_kappas, ["kappa 0", "kappa 1"]),
        (ablations.compare_homogeneous, ["homogeneous"]),
    ],
)
def test_every_table_holds_its_variants_against_the_conductor(rows, table, variants):
    compared = table(SETTINGS, rows)
    assert compared.baselines == dict.fromkeys(variants, "Conductor")
    assert list(compared.levels["score"].index) == ["initial policy", "Conductor", *variants]
    assert compared.main.column == ("moved" if table is ablations.compare_homogeneous else "score")
    for variant in variants:
        level, gain = compared.levels["score"]["value"], compared.gains["score"]["value"][variant]
        assert gain == pytest.approx(level[variant] - level["Conductor"])


def test_weights_moved_is_the_mean_distance_from_equal_ones(rows):
    moved = rows.groupby("variant")["moved"].mean()
    assert moved["Equal"] == pytest.approx(0, abs=1e-6) and moved["Conductor"] > 1e-3
    assert moved["best proxy per category"] == pytest.approx(
        2 * 0.8 / len(COMPONENTS), abs=1e-6
    )  # .8 and four times .2


def test_a_homogeneous_head_moves_less_than_any_other(rows):
    moved = rows.groupby("variant")["moved"].mean()
    assert moved["homogeneous"] < 0.5 * moved["Conductor"]


def test_with_one_context_and_one_action_the_gradient_is_rounding():
    """Advantages of a group add up to zero, so that what is left of eq. 5 is what float32 rounds."""
    told = ablations.measure_meta_gradients(SETTINGS).set_index("key")["length"]
    assert told["own"] > 1e-3 and told["one"] < 1e-4 * told["own"]


def test_joint_training_follows_the_lengths_of_replies_and_nothing_else():
    length = ablations.measure_joint_gradients(SETTINGS).set_index("key")["length"]
    assert length["random"] > 1e-4 and length["equal"] < 1e-4 * length["random"]


def test_gradients_are_the_same_every_time():
    assert ablations.measure_meta_gradients(SETTINGS).equals(
        ablations.measure_meta_gradients(SETTINGS)
    )
