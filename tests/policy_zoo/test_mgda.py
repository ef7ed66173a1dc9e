"""Min-norm weights against an independent solver, a closed form and brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torchjd.aggregation import MGDA as TorchJD

from lib.policy_zoo.mgda import min_norm_weights

gradients = arrays(np.float64, (3, 5), elements=st.floats(-5, 5, width=32))


@given(gradients)
@settings(max_examples=60, deadline=None)
def test_the_weights_reach_torchjds_minimum_norm(g):
    if np.linalg.norm(g, axis=1).min() < 1e-2:
        return
    ours = np.linalg.norm(min_norm_weights(g @ g.T) @ g)
    theirs = TorchJD(epsilon=1e-6, max_iters=2000)(torch.from_numpy(g)).norm().item()
    assert ours <= theirs + 1e-3 * np.linalg.norm(g)


@given(arrays(np.float64, (2, 4), elements=st.floats(-3, 3, width=32)))
@settings(deadline=None)
def test_two_gradients_have_the_closed_form(g):
    difference = g[1] - g[0]
    if difference @ difference < 1e-3:
        return
    expected = np.clip((g[1] @ difference) / (difference @ difference), 0, 1)
    assert min_norm_weights(g @ g.T)[0] == pytest.approx(expected, abs=1e-4)


def test_the_combination_is_a_common_descent_direction():
    g = np.random.default_rng(0).normal(size=(3, 40))
    direction = min_norm_weights(g @ g.T) @ g
    assert (g @ direction >= direction @ direction - 1e-6).all()


def test_equal_and_zero_gradients_are_no_trouble():
    assert min_norm_weights(np.zeros((3, 3))) == pytest.approx([1 / 3] * 3)
    assert min_norm_weights(np.ones((3, 3))).sum() == pytest.approx(1)


def test_a_gram_matrix_with_nan_is_refused():
    with pytest.raises(ValueError, match="finite"):
        min_norm_weights(np.full((2, 2), np.nan))
