"""Min-norm weights of several gradients (Desideri 2009), by quadratic programming.

    min over alpha in the simplex of || sum_i alpha_i g_i ||^2      (policy orchestration, equation 3)

Only the Gram matrix G_ij = g_i . g_j enters, so the problem has as many unknowns as objectives.
"""

import numpy as np
from qpsolvers import solve_qp

VERSION = 1  # of min-norm weights


def min_norm_weights(gram: np.ndarray) -> np.ndarray:
    """Weights alpha (k,) >= 0 with sum 1 that minimise alpha' G alpha.

    gram: (k, k), symmetric positive semi-definite. Raises ValueError if it is not finite. A zero or
    singular matrix is regularised by a billionth of its trace, which picks among equal solutions.
    """
    gram = np.asarray(gram, dtype=np.float64)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not np.isfinite(gram).all():
        raise ValueError(
            f"the Gram matrix of the gradients must be square and finite, got {gram!r}"
        )
    count = len(gram)
    scale = np.trace(gram) / count
    if scale <= 0:  # every gradient is zero: any weights are optimal
        return np.full(count, 1 / count)
    quadratic = (gram + gram.T) / (2 * scale) + 1e-9 * np.eye(count)
    alpha = solve_qp(
        quadratic,
        np.zeros(count),
        A=np.ones((1, count)),
        b=np.ones(1),
        lb=np.zeros(count),
        solver="quadprog",
    )
    if alpha is None:
        raise ValueError(f"no min-norm weights found for the Gram matrix {gram!r}")
    alpha = np.clip(alpha, 0.0, None)
    return alpha / alpha.sum()
