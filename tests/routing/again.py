"""What the tests of both studies share: names of cells, models that may be changed, trainings that are killed."""

import shutil
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from lib.routing.logs import Logs
from tests.studies import Killed, dying, of

HOSTED = {"backend": "endpoint", "base_url": "http://localhost:1/v1", "model": "m", "price_in": 1e-6, "price_out": 1e-6}


def digests(study, own, compared, models) -> dict[str, str]:
    """Names and digests of all cells."""
    first = study.first_cells(own, models)
    return {cell.name: cell.digest for cell in [*first, *study.cells(own, compared, first)]}


def apart(models: Path, elsewhere: Path, name: str) -> Path:
    """All models elsewhere, of which one may be changed: its folder."""
    for place in models.iterdir():
        if place.name != name:
            (elsewhere / place.name).symlink_to(place)
    return shutil.copytree(models / name, elsewhere / name)


def resumed(study, own, arm, models, done, killed, elsewhere, monkeypatch) -> list[int]:
    """The updates that are left to a training of one arm that is killed and run again, to the same tables.

    done: results and folder of a study that nothing happened to; killed: what, by class and method, dies at which call.
    """
    (results, runs), (owner, method, at) = done, killed
    for place in runs.glob("*"):
        if not place.name.startswith(arm.name):  # only that is done again
            (elsewhere / place.name).symlink_to(place)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, method, dying(getattr(owner, method), at))
        study.run(own, [arm], models, elsewhere)
    assert list(elsewhere.glob("*/checkpoint.safetensors"))
    with monkeypatch.context() as patch:
        add, left = Logs.add, []

        def watched(logs, name, rows):
            left.extend(rows["update"].unique() if name == "rollouts" else ())
            add(logs, name, rows)

        patch.setattr(Logs, "add", watched)
        again = study.run(own, [arm], models, elsewhere)
    for name in ("rollouts", "learning", "episodes"):
        one, other = (of(getattr(told, name), arm.name) for told in (again, results))
        assert_frame_equal(one, other, check_exact=True)
    return left
