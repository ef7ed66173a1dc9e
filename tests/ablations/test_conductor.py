"""Ablations of MAESTRO: the changes that its tables name, gradients that vanish, and how far weights move."""

import pandas as pd
import pytest

from lib import params
from lib.ablations import conductor
from lib.conductor import study
from lib.conductor.arms import BASE, CONDUCTOR, NAMED
from lib.conductor.rewards import COMPONENTS
from lib.conductor.study import Results

SETTINGS = params.settings(profile="smoke", ablations={"kappas": [0.0, 1.0], "pairwise": 0.25})
K = len(COMPONENTS)
WEIGHTS = [f"w_{name}" for name in COMPONENTS]
SEEDS, ITEMS = 2, 3


def made(weights: dict[str, list[float] | None], scores: dict[str, float] | None = None) -> Results:
    """Two seeds, three items. weights: of each arm's replies, None where it has none; scores: 0 unless told."""
    items, components = [], []
    for arm, settled in weights.items():
        for seed in range(1 if arm == "base" else SEEDS):
            for item in range(ITEMS):
                items.append({"arm": arm, "seed": seed, "item": item, "score": (scores or {}).get(arm, 0.0)})
                told = dict(zip(WEIGHTS, settled or [None] * K, strict=True))
                components.append({"arm": arm, "seed": seed} | told)
    empty = pd.DataFrame()
    return Results(pd.DataFrame(items), pd.DataFrame(components), empty, empty, empty)


def everybody() -> dict[str, list[float] | None]:
    """All arms with equal weights; the start has none."""
    names = [arm.name for arm in (CONDUCTOR, NAMED["equal"], NAMED["random"], *conductor.arms(SETTINGS).values())]
    return {BASE.name: None} | dict.fromkeys(names, [1 / K] * K)


# Arms ---------------------------------------------------------------------------------------------


def test_variants_have_the_changes_that_the_tables_name():
    told = {shown: arm.changes for shown, arm in conductor.arms(SETTINGS).items()}
    assert told == {
        "first layer": {"layer": "first"}, "no entropy": {"entropy": 0.0}, "pairwise": {"pairwise": 0.25},
        "joint": {"joint": True}, "kappa 0": {"kappa": 0.0}, "kappa 1": {"kappa": 1.0},
        "one action per group": {"homogeneous": True},
    }  # fmt: skip
    head = SETTINGS.conductor.head
    for change in told.values():
        assert all(getattr(head, key) != value for key, value in change.items())


def test_a_kappa_that_is_the_lessons_own_is_no_variant():
    own = SETTINGS.conductor.head.kappa
    told = params.settings(profile="smoke", ablations={"kappas": [own, 1.0]})
    assert [name for name in conductor.arms(told) if name.startswith("kappa")] == ["kappa 1"]


def test_the_start_the_conductor_and_static_weights_are_trained_beside_the_variants(monkeypatch):
    asked = {}

    def run(params, compared, **where):
        asked.update(compared=compared, where=where)
        return "trained"

    monkeypatch.setattr(study, "run", run)
    assert conductor.trained(SETTINGS, models="somewhere") == "trained" and asked["where"]["models"] == "somewhere"
    names = [arm.name for arm in asked["compared"]]
    assert names[:4] == ["base", "conductor", "equal", "random"] and len(set(names)) == len(names) == 4 + 7


@pytest.mark.parametrize(
    ("table", "variants"),
    [
        (conductor.table_4, ["first layer"]),
        (conductor.table_5, ["no entropy", "pairwise", "Equal", "Random"]),
        (conductor.table_6, ["joint"]),
        (conductor.kappa, ["kappa 0", "kappa 1"]),
        (conductor.homogeneous, ["one action per group"]),
    ],
)
def test_every_table_holds_its_variants_against_the_conductor(table, variants):
    compared = table(SETTINGS, made(everybody()))
    assert compared.against == dict.fromkeys(variants, "Conductor")
    assert compared.variants == ["start", "Conductor", *variants] and compared.backend == "lab"
    assert compared.main.column == ("moved" if table is conductor.homogeneous else "score")


# How far weights moved ------------------------------------------------------------------------------


def test_weights_moved_is_the_mean_distance_from_equal_ones():
    far = everybody() | {"conductor": [0.4, 0.3, 0.1, 0.1, 0.1]}  # 0.2, 0.1 and thrice 0.1 away
    levels = conductor.table_5(SETTINGS, made(far)).levels
    assert levels["Conductor"]["moved"].value == pytest.approx(0.6 / 5)
    assert levels["start"]["moved"].value == 0
    for static in ("Equal", "Random", "pairwise"):
        assert levels[static]["moved"].value == pytest.approx(0, abs=1e-12)


def test_weights_move_by_the_mean_over_replies_and_no_shift_cancels_another():
    one, other = [0.4, 0.2, 0.2, 0.2, 0.0], [0.0, 0.2, 0.2, 0.2, 0.4]  # equal on average
    results = made(everybody() | {"conductor": one})
    mine = results.components["arm"] == "conductor"
    results.components.loc[mine & (results.components["seed"] == 1), WEIGHTS] = other
    assert conductor.table_6(SETTINGS, results).levels["Conductor"]["moved"].value == pytest.approx(0.4 / 5)


def test_nothing_moved_where_nobody_has_weights():
    results = made(dict.fromkeys(everybody()))
    assert conductor.table_6(SETTINGS, results).levels["joint"]["moved"].value == 0
    none = Results(results.items, results.components.drop(columns=WEIGHTS), *[pd.DataFrame()] * 3)
    assert conductor.table_6(SETTINGS, none).levels["joint"]["moved"].value == 0


def test_scores_are_compared_item_by_item():
    joint = conductor.arms(SETTINGS)["joint"].name
    compared = conductor.table_6(SETTINGS, made(everybody(), {joint: 1.0, "conductor": 0.25}))
    assert compared.gains["joint"]["score"].value == 0.75 and compared.levels["start"]["score"].value == 0


# One action for a group -----------------------------------------------------------------------------


def test_with_one_context_and_one_action_the_gradient_is_rounding():
    """Advantages of a group add up to zero, so that what is left of eq. 5 is what float32 rounds."""
    told = conductor.gradients(SETTINGS).set_index("key")["length"]
    assert told["own"] > 1e-3 and told["one"] < 1e-4 * told["own"]


def test_gradients_are_the_same_every_time():
    assert conductor.gradients(SETTINGS).equals(conductor.gradients(SETTINGS))
