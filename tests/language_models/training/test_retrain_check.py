"""Two zoos side by side: what differs, what is kept of it, and for which weights it still speaks."""

import json

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.language_models.checkpoints import ModelError
from lib.language_models.training import released_weights, retrain_check
from tests.language_models import tiny

LAB = config.load("smoke").lab
CURVE = pd.DataFrame({"step": [1], "loss": [0.5], "accuracy": [0.9]})
SOLVED = {"m": {"chain plain": np.array([1, 1, 0, 0] * 500, bool)}}
LESS = {"m": {"chain plain": np.array([1, 1, 0, 0] * 499 + [0] * 4, bool)}}


@pytest.fixture
def root(tmp_path):
    released_weights.ship(tiny.model(), "m", {"seed": 0}, 0, CURVE, tmp_path)
    return tmp_path


def test_differences_are_taken_item_by_item():
    (row,) = retrain_check.compare_zoos(SOLVED, LESS).to_dict("records")
    assert row["items"] == 2000 and row["shipped"] == 0.5 and row["value"] == pytest.approx(-0.001)
    assert row["ci_low"] < row["value"] < row["ci_high"] < 0.001 and row["alike"]
    (far,) = retrain_check.compare_zoos(
        SOLVED, {"m": {"chain plain": ~SOLVED["m"]["chain plain"]}}
    ).to_dict("records")
    assert far["value"] == 0 and far["ci_high"] > 0.04, "as good on average, on other items"


def test_a_comparison_is_kept_once_for_every_seed(root):
    for seed in (1, 2, 1):
        retrain_check.save_comparison(retrain_check.compare_zoos(SOLVED, LESS), seed, root)
    told = retrain_check.read_comparisons(root)
    assert list(told.columns) == retrain_check.COLUMNS and told["seed"].tolist() == [1, 2]


def test_it_says_nothing_about_other_weights(root):
    retrain_check.save_comparison(retrain_check.compare_zoos(SOLVED, LESS), 1, root)
    released_weights.ship(tiny.model(3), "m", {"seed": 0}, 0, CURVE, root)
    assert retrain_check.read_comparisons(root).empty


def test_a_card_that_is_none_is_named(root):
    (root / retrain_check.CARD).write_text(json.dumps([1, 2]))
    with pytest.raises(ModelError, match="alike.json"):
        retrain_check.read_comparisons(root)


def test_one_model_is_trained_with_what_it_is_made_of():
    told = retrain_check.select_models(LAB, ["lab-team"])
    assert list(told.models) == [n for n in LAB.models if n in ("lab-reader", "lab-team")]
    assert retrain_check.select_models(LAB, []).models == LAB.models
    with pytest.raises(ModelError, match="lab-none is no lab model.*lab-facts"):
        retrain_check.select_models(LAB, ["lab-none"])


def test_the_committed_card_compares_every_shipped_model():
    """With another seed and on another class of processor, on enough items, and alike by family."""
    told = retrain_check.read_comparisons()
    assert set(told["model"]) == set(LAB.models) and (told["items"] >= 2000).all()
    reseeded = told["seed"].ne(LAB.seed)
    for kind in (told[reseeded], told[~reseeded]):
        assert set(kind["model"]) == set(LAB.models)
        family = kind["skill"].str.split().str[0].rename("family")
        apart = kind.groupby(["model", "seed", "machine", family])["value"].mean().abs()
        assert (apart <= retrain_check.MARGIN).all(), apart[apart > retrain_check.MARGIN]
