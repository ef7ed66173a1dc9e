"""The ladder that later lessons stand on: each expert is reliable up to 2, 4 and 8 operations, and no further."""

import pytest

from lib import tasks
from lib.config import ROOT
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training.pretraining import find_solved_items

RUNGS = [
    ("nano", 2, ">=", 0.75),
    ("nano", 4, "<=", 0.4),
    ("mini", 4, ">=", 0.75),
    ("mini", 6, "<=", 0.4),
    ("large", 8, ">=", 0.9),
]


def holds(value: float, sign: str, bound: float) -> bool:
    return value >= bound if sign == ">=" else value <= bound


@pytest.mark.parametrize(("name", "operations", "sign", "bound"), RUNGS)
def test_the_committed_metrics_show_the_ladder(name, operations, sign, bound):
    metrics = artifacts.read_json(ROOT / "reports/metrics/03_model_zoo.json")
    assert holds(metrics[f"{name}.chain.{operations}.accuracy"], sign, bound)


@pytest.mark.parametrize(("name", "operations", "sign", "bound"), RUNGS)
def test_the_trained_models_stand_on_the_ladder(name, operations, sign, bound):
    place = checkpoints.MODELS / f"lab-{name}"
    settings = ROOT / "data/settings.json"
    if not place.is_dir() or artifacts.read_json(settings)["profile"] == "smoke":
        pytest.skip("no lab models of a laptop run here; `make repro` trains them")
    items = tasks.draw_items("chain", "test", 200, operations, seed=77)  # not those of the lesson
    assert holds(find_solved_items(Forward(checkpoints.load(place)), items).mean(), sign, bound)
