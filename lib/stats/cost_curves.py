"""Curves of quality over cost, by which routers between cheap and expensive models are judged.

The hull and AIQ of RouterBench (Hu et al. 2024, section 3), PGR, APGR and CPT of RouteLLM (Ong et al. 2024).
"""

import numpy as np

_ROUNDING = 1e-9  # a smaller fall in quality is rounding error of summed floats


def _validate_curve(costs: np.ndarray, qualities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Checks the points of a cost-quality curve, and converts them to float arrays.

    Args:
        costs: (n,) mean cost of each point.
        qualities: (n,) mean quality of each point.

    Returns:
        Both, (n,) float.

    Raises:
        ValueError: They are empty, of different shapes, or not finite.
    """
    costs = np.asarray(costs, dtype=float)
    qualities = np.asarray(qualities, dtype=float)
    if costs.ndim != 1 or costs.shape != qualities.shape or not len(costs):
        raise ValueError(
            f"a curve needs two equal (n,) arrays, n > 0; got shapes {costs.shape} and {qualities.shape}"
        )
    if not (np.isfinite(costs).all() and np.isfinite(qualities).all()):
        raise ValueError(
            "a curve must be finite; drop the points that hold a nan or an infinite number"
        )
    return costs, qualities


def hull(costs: np.ndarray, qualities: np.ndarray) -> np.ndarray:
    """Finds the points that span the non-decreasing upper concave hull: what random mixtures of routers reach.

    A mixture calls one of two routers at random, without looking at the question, so it reaches every point between
    theirs (RouterBench, Hu et al. 2024, section 3). It is written out here because a general convex hull refuses points
    on one line, which are usual.

    Args:
        costs: (n,) mean cost of each router.
        qualities: (n,) mean quality of each router.

    Returns:
        Indices by rising cost: the cheapest point first (of several the best), then only points that cost more and are
        better, with falling slopes.

    Raises:
        ValueError: If the curve is empty or not finite, or the shapes differ.
    """
    costs, qualities = _validate_curve(costs, qualities)
    corners: list[int] = []
    # From the cheapest point on; of equally cheap points the best one first.
    for i in np.lexsort((-qualities, costs)):
        is_dominated = bool(corners) and qualities[i] <= qualities[corners[-1]]
        if is_dominated:
            continue
        # A corner on or below the line from the corner before it to the new point drops out.
        while len(corners) > 1:
            last_three = [*corners[-2:], i]
            if not _is_middle_below_line(costs[last_three], qualities[last_three]):
                break
            corners.pop()
        corners.append(int(i))
    return np.array(corners)


def _is_middle_below_line(costs: np.ndarray, qualities: np.ndarray) -> bool:
    """Whether the middle of three points lies on or below the line through the outer two; both arrays: (3,)."""
    run_to_middle, run_to_end = costs[1:] - costs[0]
    rise_to_middle, rise_to_end = qualities[1:] - qualities[0]
    return bool(rise_to_middle * run_to_end <= rise_to_end * run_to_middle)


def hull_at(costs: np.ndarray, qualities: np.ndarray, cost: float) -> float:
    """Quality of the best random mixture of routers whose mean cost is at most `cost`.

    It is linear between the points of `hull` and flat beyond the most expensive of them.

    Args:
        costs: (n,) mean cost of each router.
        qualities: (n,) mean quality of each router.
        cost: What may be spent.

    Raises:
        ValueError: If the cost is below that of the cheapest router, so that no mixture is that cheap.
    """
    corners = hull(costs, qualities)
    costs, qualities = _validate_curve(costs, qualities)
    lowest_cost = costs[corners[0]]
    if not cost >= lowest_cost:
        raise ValueError(
            f"no mixture costs as little as {cost:.6g}: the cheapest point costs {lowest_cost:.6g}; ask for that "
            "much or more, or add a cheaper router"
        )
    return float(np.interp(cost, costs[corners], qualities[corners]))


def aiq(costs: np.ndarray, qualities: np.ndarray, min_cost: float, max_cost: float) -> float:
    """Average improvement in quality: the mean height of the hull between two costs (RouterBench, section 3).

        AIQ = 1 / (c_max - c_min) * integral from c_min to c_max of hull_at(c) dc

    Routers are comparable only with equal bounds, so the curve must begin at min_cost or below: no quality is made up
    for costs at which the router cannot work.

    Args:
        costs: (n,) mean cost at each setting of a router.
        qualities: (n,) mean quality at each setting.
        min_cost: Lower bound of the integral.
        max_cost: Upper bound of the integral.

    Raises:
        ValueError: If the curve begins above min_cost, or unless min_cost < max_cost.
    """
    if not min_cost < max_cost < np.inf:
        raise ValueError(f"AIQ needs min_cost < max_cost, got {min_cost!r} and {max_cost!r}")
    corners = hull(costs, qualities)
    costs, qualities = _validate_curve(costs, qualities)
    corner_costs = costs[corners]
    if corner_costs[0] > min_cost:
        raise ValueError(
            f"the curve begins at cost {corner_costs[0]:.6g}, above min_cost = {min_cost:.6g}; "
            "add the cheapest model to it, or raise min_cost for all routers"
        )

    # The hull is linear between its corners, so that trapezoids are exact.
    is_inside = (corner_costs > min_cost) & (corner_costs < max_cost)
    grid = np.array([min_cost, *corner_costs[is_inside], max_cost])
    heights = np.interp(grid, corner_costs, qualities[corners])
    return float(np.trapezoid(heights, grid) / (max_cost - min_cost))


def pgr(quality: np.ndarray | float, weak: float, strong: float) -> np.ndarray | float:
    """Performance gap recovered, (quality - weak) / (strong - weak) (RouteLLM, Ong et al. 2024).

    Args:
        quality: Quality of the router; any shape.
        weak: Quality of the weak model, where PGR is 0.
        strong: Quality of the strong model, where PGR is 1.

    Raises:
        ValueError: Unless strong > weak.
    """
    if not strong > weak:
        raise ValueError(
            f"there is no gap to recover: the strong model scores {strong:.4g}, the weak one {weak:.4g}"
        )
    return (quality - weak) / (strong - weak)


def _average_equal_shares(
    shares: np.ndarray, qualities: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sorts a curve over shares of strong calls, and gives each share the mean quality of its points.

    The mean is fair, because a random choice between points of equal share has that share, too.

    Args:
        shares: (n,) fraction of calls to the strong model.
        qualities: (n,) mean quality at each share.

    Returns:
        Shares without repetition and their qualities, (m,) each.

    Raises:
        ValueError: If a share lies outside [0, 1], or 0 or 1 is missing.
    """
    shares, qualities = _validate_curve(shares, qualities)
    unique_shares, share_indices = np.unique(shares, return_inverse=True)
    lowest = unique_shares[0]
    highest = unique_shares[-1]
    if lowest < 0 or highest > 1:
        raise ValueError(f"shares of calls must lie in [0, 1], got {lowest:.4g} to {highest:.4g}")
    if lowest > 0 or highest < 1:
        raise ValueError(
            f"the curve must hold the shares 0 and 1, got {lowest:.4g} to {highest:.4g}; add the points of the "
            "weak and of the strong model alone"
        )
    mean_qualities = np.bincount(share_indices, weights=qualities) / np.bincount(share_indices)
    return unique_shares, mean_qualities


def apgr(shares: np.ndarray, qualities: np.ndarray, weak: float, strong: float) -> float:
    """Average PGR while the share of calls to the strong model goes from 0 to 1 (RouteLLM).

    It is the area under the curve by trapezoids, without a hull: a router that calls at random scores 0.5.

    Args:
        shares: (n,) fraction of calls to the strong model, in any order, with 0 and 1.
        qualities: (n,) mean quality at each share.
        weak: Quality of the weak model.
        strong: Quality of the strong model.

    Raises:
        ValueError: If share 0 or 1 is missing, or unless strong > weak.
    """
    shares, qualities = _average_equal_shares(shares, qualities)
    return float(np.trapezoid(pgr(qualities, weak, strong), shares))


def cpt(
    shares: np.ndarray, qualities: np.ndarray, weak: float, strong: float, target: float
) -> float:
    """Computes the call-performance threshold: the smallest share of strong calls with PGR >= target (RouteLLM).

    Between the points the curve is linear. Where quality falls with the share, the smallest such share may be a lucky
    point, so that a curve that is not monotone is refused.

    Args:
        shares: (n,) fraction of calls to the strong model, in any order, with 0 and 1.
        qualities: (n,) mean quality at each share.
        weak: Quality of the weak model.
        strong: Quality of the strong model.
        target: The PGR to reach, in [0, 1].

    Raises:
        ValueError: If quality falls (the error names the first fall), the target lies outside [0, 1] or is never
            reached, or as `apgr` does.
    """
    if not 0 <= target <= 1:
        raise ValueError(f"the target of a CPT must lie in [0, 1], got {target!r}")
    shares, qualities = _average_equal_shares(shares, qualities)
    falls = np.flatnonzero(np.diff(qualities) < -_ROUNDING)
    if len(falls):
        i = falls[0]
        raise ValueError(
            f"quality falls by {qualities[i] - qualities[i + 1]:.4g} between the shares {shares[i]:.4g} and "
            f"{shares[i + 1]:.4g}, so no CPT can be read off; measure on more prompts"
        )

    recovered = pgr(qualities, weak, strong)
    sufficient = np.flatnonzero(recovered >= target - _ROUNDING)
    if not len(sufficient):
        raise ValueError(
            f"PGR ends at {recovered[-1]:.4g} and never reaches {target}; ask for less, or check `strong`"
        )
    first = int(sufficient[0])
    if first == 0:
        return float(shares[0])
    # Interpolate between the first point that suffices and the one before it.
    segment = slice(first - 1, first + 1)
    return float(np.interp(target, recovered[segment], shares[segment]))
