"""The command that made the shipped tables: it makes them again, byte for byte, where their sources lie beside."""

import numpy as np
import pytest

from lib.recorded_outcomes import build


def test_reduced_vectors_keep_who_is_near_whom_and_do_not_depend_on_signs():
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(80, 4)) @ draw.normal(size=(4, 20))
    kept, share = build.reduce_dimensions(vectors, dims=4)
    flipped, _ = build.reduce_dimensions(vectors[:, ::-1], dims=4)
    assert (
        kept.dtype == np.int8
        and np.abs(kept).max() == build.MAX_INTEGER
        and share == pytest.approx(1)
    )

    def near(points):
        apart = ((points[:, None] - points[None]) ** 2).sum(2).astype(float)
        np.fill_diagonal(apart, np.inf)
        return apart.argmin(1)

    assert (near(kept.astype(float)) == near(vectors)).mean() > 0.9
    assert (np.abs(kept.astype(int)) == np.abs(flipped.astype(int))).mean() > 0.99
