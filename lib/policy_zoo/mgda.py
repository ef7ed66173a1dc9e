"""Min-norm weights of several gradients (Desideri 2009), the core of MGDA, the multiple-gradient descent algorithm.

    alpha = argmin || sum_i alpha_i g_i ||^2   over alpha_i >= 0 with sum_i alpha_i = 1
                                               (policy orchestration, equation 3)

The combination sum_i alpha_i g_i is a direction along which no objective gets worse, or 0 where there is none. Only
the Gram matrix G_ij = g_i . g_j enters, so the problem has as many unknowns as there are objectives, whatever the
number of parameters.
"""

import numpy as np
from qpsolvers import solve_qp

VERSION = 1  # of min-norm weights

RELATIVE_RIDGE = 1e-9  # added to the diagonal of the Gram matrix, whose mean is 1 by then


def compute_min_norm_weights(gram_matrix: np.ndarray) -> np.ndarray:
    """Weights (k,) of the shortest convex combination of k gradients, from their products (k, k).

        minimize alpha' G alpha   subject to   sum_i alpha_i = 1,  alpha_i >= 0

    Args:
        gram_matrix: (k, k) products of the gradients, G_ij = g_i . g_j.

    Returns:
        (k,) the weights alpha; 1 / k each where all gradients are 0.

    Raises:
        ValueError: The matrix is not square or not finite, or the solver finds no weights.

    Example:
        >>> compute_min_norm_weights(np.diag([1.0, 3.0]))  # orthogonal: the shorter gradient weighs more
        array([0.75, 0.25])

    Source: Desideri 2009; policy orchestration, equation 3.
    """
    gram_matrix = np.asarray(gram_matrix, dtype=np.float64)
    is_square = gram_matrix.ndim == 2 and gram_matrix.shape[0] == gram_matrix.shape[1]
    if not is_square or not np.isfinite(gram_matrix).all():
        raise ValueError(
            f"the Gram matrix of the gradients must be square and finite, got {gram_matrix!r}; "
            "look for a loss that overflowed"
        )
    num_objectives = len(gram_matrix)  # k
    mean_square_norm = np.trace(gram_matrix) / num_objectives
    if mean_square_norm <= 0:  # every gradient is 0, so that any weights are optimal
        return np.full(num_objectives, 1 / num_objectives)

    # The solver needs a positive definite matrix. The ridge makes one of any Gram matrix, also where gradients are
    # parallel, and picks among weights that are equally good.
    symmetric = (gram_matrix + gram_matrix.T) / (2 * mean_square_norm)
    quadratic_term = symmetric + RELATIVE_RIDGE * np.eye(num_objectives)

    weights = solve_qp(
        quadratic_term,
        np.zeros(num_objectives),  # no linear term
        A=np.ones((1, num_objectives)),  # sum_i alpha_i = 1
        b=np.ones(1),
        lb=np.zeros(num_objectives),  # alpha_i >= 0
        solver="quadprog",
    )
    if weights is None:
        raise ValueError(f"no min-norm weights found for the Gram matrix {gram_matrix!r}")

    # Rounding may leave a weight just below 0.
    weights = np.clip(weights, 0.0, None)
    return weights / weights.sum()
