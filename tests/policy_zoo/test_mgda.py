"""Min-norm weights against an independent solver, a closed form, and what defines them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torchjd.aggregation import MGDA as TorchJD

from lib.policy_zoo.mgda import compute_min_norm_weights


@given(arrays(np.float64, (3, 5), elements=st.floats(-5, 5, width=32)))
@settings(max_examples=60, deadline=None)
def test_the_weights_reach_the_minimum_norm_of_torchjd(gradients):
    if np.linalg.norm(gradients, axis=1).min() < 1e-2:
        return
    weights = compute_min_norm_weights(gradients @ gradients.T)
    norm = np.linalg.norm(weights @ gradients)
    torchjd = TorchJD(epsilon=1e-6, max_iters=2000)
    reference_norm = torchjd(torch.from_numpy(gradients)).norm().item()
    assert norm <= reference_norm + 1e-3 * np.linalg.norm(gradients)


@given(arrays(np.float64, (2, 4), elements=st.floats(-3, 3, width=32)))
@settings(deadline=None)
def test_two_gradients_have_the_closed_form(gradients):
    g_1, g_2 = gradients
    difference = g_2 - g_1
    if difference @ difference < 1e-3:
        return
    # alpha_1 = clip((g_2 . (g_2 - g_1)) / ||g_2 - g_1||^2, 0, 1)
    expected = np.clip((g_2 @ difference) / (difference @ difference), 0, 1)
    weights = compute_min_norm_weights(gradients @ gradients.T)
    assert weights[0] == pytest.approx(expected, abs=1e-4)


def test_along_the_combination_no_objective_gets_worse():
    gradients = np.random.default_rng(0).normal(size=(3, 40))
    direction = compute_min_norm_weights(gradients @ gradients.T) @ gradients
    assert (gradients @ direction >= direction @ direction - 1e-6).all()


def test_gradients_that_are_0_or_equal_have_weights():
    assert compute_min_norm_weights(np.zeros((3, 3))) == pytest.approx([1 / 3] * 3)
    assert compute_min_norm_weights(np.ones((3, 3))).sum() == pytest.approx(1)


def test_a_gram_matrix_with_nan_is_refused():
    with pytest.raises(ValueError, match="finite"):
        compute_min_norm_weights(np.full((2, 2), np.nan))
