"""Curves of quality over cost, by which routers between cheap and expensive models are judged.

The hull and AIQ of RouterBench (Hu et al. 2024, section 3), PGR, APGR and CPT of RouteLLM (Ong et al. 2024).
"""

import numpy as np

_ROUNDING = 1e-9  # a fall in quality smaller than this is how floats are summed


def _curve(costs: np.ndarray, qualities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as finite (n,) float arrays, n > 0. Raises ValueError for anything else."""
    costs, qualities = np.asarray(costs, dtype=float), np.asarray(qualities, dtype=float)
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
    """Which points span the non-decreasing upper concave hull: what blind mixtures of routers reach.

    A blind mixture asks one of two routers by a coin, so it reaches every point between theirs (RouterBench,
    Hu et al. 2024, section 3). costs, qualities: (n,). Returns indices by rising cost: the cheapest point first
    (of several the best), then only points that cost more and are better, with falling slopes. Own code: a
    general convex hull refuses points on one line, which here are usual. Raises ValueError for an empty or
    non-finite curve or unequal shapes.
    """
    costs, qualities = _curve(costs, qualities)
    kept: list[int] = []
    for i in np.lexsort((-qualities, costs)):
        if kept and qualities[i] <= qualities[kept[-1]]:
            continue  # costs no less and is no better
        while len(kept) > 1 and _bends_up(costs[[*kept[-2:], i]], qualities[[*kept[-2:], i]]):
            kept.pop()
        kept.append(int(i))
    return np.array(kept)


def _bends_up(costs: np.ndarray, qualities: np.ndarray) -> bool:
    """Whether the middle of three points lies on or below the line through the others."""
    (run, whole), (rise, height) = costs[1:] - costs[0], qualities[1:] - qualities[0]
    return bool(rise * whole <= height * run)


def hull_at(costs: np.ndarray, qualities: np.ndarray, cost: float) -> float:
    """Quality of the best blind mixture of the points whose mean cost is at most `cost`.

    costs, qualities: (n,). Linear between the points of `hull`, flat beyond its dearest. Raises ValueError
    for a cost below the cheapest point, where no mixture is that cheap.
    """
    at = hull(costs, qualities)
    costs, qualities = _curve(costs, qualities)
    if not cost >= costs[at[0]]:
        raise ValueError(
            f"no mixture costs as little as {cost:.6g}: the cheapest point costs {costs[at[0]]:.6g}; ask for that "
            "much or more, or add a cheaper router"
        )
    return float(np.interp(cost, costs[at], qualities[at]))


def aiq(costs: np.ndarray, qualities: np.ndarray, min_cost: float, max_cost: float) -> float:
    """Average improvement in quality: the mean height of the hull between two costs (RouterBench, section 3).

        AIQ = 1 / (c_max - c_min) * integral from c_min to c_max of hull_at(c) dc

    costs, qualities: (n,). Routers are comparable only with equal bounds, so the curve must begin at min_cost
    or below: no quality is made up for costs at which the router cannot work. Raises ValueError where it begins
    above min_cost, or unless min_cost < max_cost.
    """
    if not min_cost < max_cost < np.inf:
        raise ValueError(f"AIQ needs min_cost < max_cost, got {min_cost!r} and {max_cost!r}")
    at = hull(costs, qualities)
    costs, qualities = _curve(costs, qualities)
    if costs[at[0]] > min_cost:
        raise ValueError(
            f"the curve begins at cost {costs[at[0]]:.6g}, above min_cost = {min_cost:.6g}; "
            "add the cheapest model to it, or raise min_cost for all routers"
        )
    inside = costs[at][(costs[at] > min_cost) & (costs[at] < max_cost)]
    grid = np.array([min_cost, *inside, max_cost])
    return float(
        np.trapezoid(np.interp(grid, costs[at], qualities[at]), grid) / (max_cost - min_cost)
    )


def pgr(quality: np.ndarray | float, weak: float, strong: float) -> np.ndarray | float:
    """Performance gap recovered, (quality - weak) / (strong - weak) (RouteLLM, Ong et al. 2024).

    quality: any shape; 0 is the weak model's, 1 the strong one's. Raises ValueError unless strong > weak.
    """
    if not strong > weak:
        raise ValueError(
            f"there is no gap to recover: the strong model scores {strong:.4g}, the weak one {weak:.4g}"
        )
    return (quality - weak) / (strong - weak)


def _by_share(shares: np.ndarray, qualities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve over shares of strong calls, sorted, each share once (with its points' mean quality: a fair coin
    between them has the same share). Raises ValueError for shares outside [0, 1] or without both ends."""
    shares, qualities = _curve(shares, qualities)
    found, place = np.unique(shares, return_inverse=True)
    if found[0] < 0 or found[-1] > 1:
        raise ValueError(
            f"shares of calls must lie in [0, 1], got {found[0]:.4g} to {found[-1]:.4g}"
        )
    if found[0] > 0 or found[-1] < 1:
        raise ValueError(
            f"the curve must hold the shares 0 and 1, got {found[0]:.4g} to {found[-1]:.4g}; add the points of the "
            "weak and of the strong model alone"
        )
    return found, np.bincount(place, weights=qualities) / np.bincount(place)


def apgr(shares: np.ndarray, qualities: np.ndarray, weak: float, strong: float) -> float:
    """Average PGR while the share of calls to the strong model goes from 0 to 1 (RouteLLM).

    shares, qualities: (n,) in any order; trapezoids under the curve as it is given, with no hull: a router
    that throws calls at random scores 0.5. Raises ValueError where share 0 or 1 is missing, or as `pgr` does.
    """
    shares, qualities = _by_share(shares, qualities)
    return float(np.trapezoid(pgr(qualities, weak, strong), shares))


def cpt(
    shares: np.ndarray, qualities: np.ndarray, weak: float, strong: float, target: float
) -> float:
    """Call-performance threshold: the least share of strong calls with PGR >= target (RouteLLM).

    shares, qualities: (n,) in any order, with the shares 0 and 1; linear between them; target in [0, 1]. Where
    quality falls with the share the least such share may be luck of one point, so that a curve that is not
    monotone is refused. Raises ValueError for it (naming the first fall), for a target outside [0, 1] or that
    the curve never reaches, and as `apgr` does.
    """
    if not 0 <= target <= 1:
        raise ValueError(f"the target of a CPT must lie in [0, 1], got {target!r}")
    shares, qualities = _by_share(shares, qualities)
    falls = np.flatnonzero(np.diff(qualities) < -_ROUNDING)
    if len(falls):
        i = falls[0]
        raise ValueError(
            f"quality falls by {qualities[i] - qualities[i + 1]:.4g} between the shares {shares[i]:.4g} and "
            f"{shares[i + 1]:.4g}, so no CPT can be read off; measure on more prompts"
        )
    found = pgr(qualities, weak, strong)
    reached = np.flatnonzero(found >= target - _ROUNDING)
    if not len(reached):
        raise ValueError(
            f"PGR ends at {found[-1]:.4g} and never reaches {target}; ask for less, or check `strong`"
        )
    after = int(reached[0])
    if after == 0:
        return float(shares[0])
    return float(np.interp(target, found[after - 1 : after + 1], shares[after - 1 : after + 1]))
