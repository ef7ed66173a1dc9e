"""What a rollout is paid (ToolOrchestra): outcome, cost, latency and calls, weighed by a user's preferences.

A rollout's vector is M = [calls of each tool, outcome, -dollars, -seconds]. In training it is compared with the
other rollouts of its group, in the evaluation with the starting checkpoint on the same example. These are two
different normalisations, and both are here, with the paper's formula beside the line.

`published` is what an implementation in circulation computes instead: it takes the bounds of -dollars and -seconds,
and normalises +dollars and +seconds with them. Of two right rollouts the dearer one is then paid more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

VERSION = 1  # of the rewards and filters of rollouts
LEAST_DEVIATION = (
    0.1  # of a group's rewards; with less there is nothing to tell (ToolOrchestra, filters)
)
MICRO = 1e6  # micro-dollars in a dollar
MILLI = 1e3  # milliseconds in a second


def vectors(
    calls: np.ndarray, correct: np.ndarray, cost_usd: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """M, (n, tools + 3), from calls (n, tools) and outcome, dollars, seconds, (n,) each."""
    return np.column_stack([calls, correct, -np.asarray(cost_usd), -np.asarray(seconds)]).astype(
        float
    )


def normalised(m: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Training: each entry between the least (0) and the most (1) of its group; m: (n, k).

        M_norm[k] = (M[k] - M_min[k]) / (M_max[k] - M_min[k]),    0 where M_max[k] = M_min[k]

    A group holds the rollouts of one example. The paper says "rollout batch"; over different examples the
    cheapest rollout would be that of the easiest question (decision).
    """
    return _between(m, *_bounds(m, groups))


def published(m: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """The error in circulation: bounds of -dollars and -seconds, but +dollars and +seconds between them.

    (c + c_max) / (c_max - c_min): never below 1, and larger for the dearer rollout
    """
    out, (low, high) = normalised(m, groups), _bounds(m[:, -2:], groups)
    out[:, -2:] = _between(-m[:, -2:], low, high)
    return out


def _bounds(m: np.ndarray, groups: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most of each row's group, (n, k) each."""
    _, of = np.unique(np.asarray(groups), return_inverse=True)
    order = np.argsort(of, kind="stable")
    starts = np.flatnonzero(np.diff(of[order], prepend=-1))
    return tuple(least.reduceat(m[order], starts)[of] for least in (np.minimum, np.maximum))


def _between(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    gap = high - low
    return np.divide(
        values - low,
        gap,
        out=np.zeros_like(values, dtype=float),
        where=np.broadcast_to(gap > 0, values.shape),
    )


def against_start(
    m: np.ndarray, start: np.ndarray, units: tuple[float, float] = (MICRO, MILLI)
) -> np.ndarray:
    """Evaluation: against the starting checkpoint on the same examples; m, start: (n, tools + 3).

        M_norm[k] = M_s[k] / max(1, M_0[k])    tools and outcome (1 <= k <= n + 1)
        M_norm[k] = M_0[k] / max(1, M_s[k])    cost and latency

    Read literally, with -dollars and -seconds, max(1, M_s) is always 1 and what the checkpoint spends never
    counts; so does max(1, c) in dollars, where c is far below 1. Hence amounts here, in micro-dollars and
    milliseconds (decision; the lesson shows what other units, per dollar and per second, would say).
    """
    spent, before = (-each[:, -2:] * np.array(units) for each in (m, start))
    counted = m[:, :-2] / np.maximum(1, start[:, :-2])
    return np.hstack([counted, before / np.maximum(1, spent)])


def reward(m_norm: np.ndarray, preferences: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """R, (n,): M_norm . P where the outcome is right, else 0; preferences P: (n, tools + 3), each in [0, 1].

    Raises ValueError for a preference out of range.
    """
    if not ((preferences >= 0) & (preferences <= 1)).all():  # NaN is out of range too
        raise ValueError(
            f"preferences lie in [0, 1], got {preferences.min():g} to {preferences.max():g}"
        )
    return np.where(np.asarray(correct) > 0, (m_norm * preferences).sum(1), 0.0)


Normalise = Callable[[np.ndarray, Sequence[int]], np.ndarray]


@dataclass(frozen=True)
class Kept:
    """rows: indices of rollouts to learn from; and how many were left out: malformed, without an answer, and in
    groups that agree."""

    rows: np.ndarray
    malformed: int
    unanswered: int
    agreeing: int


def kept(
    rewards: np.ndarray,
    groups: Sequence[int],
    malformed: np.ndarray,
    answered: np.ndarray,
    least: float = LEAST_DEVIATION,
) -> Kept:
    """The three filters, in this order: rollouts with malformed calls, rollouts without an answer, and groups whose
    other rollouts' rewards deviate by less than `least`; all arguments (n,)."""
    malformed, answered = np.asarray(malformed, bool), np.asarray(answered, bool)
    fine = ~malformed & answered
    _, of = np.unique(np.asarray(groups), return_inverse=True)

    def mean(values: np.ndarray) -> np.ndarray:
        """Over the fine rollouts of each row's group; nan where there is none."""
        sums, counts = (np.bincount(of, weights) for weights in (np.where(fine, values, 0.0), fine))
        return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)[of]

    agreeing = fine & (np.sqrt(mean((rewards - mean(rewards)) ** 2)) < least)
    return Kept(
        np.flatnonzero(fine & ~agreeing),
        int(malformed.sum()),
        int((~malformed & ~answered).sum()),
        int(agreeing.sum()),
    )


def score(
    m: np.ndarray,
    start: np.ndarray,
    preferences: np.ndarray,
    units: tuple[float, float] = (MICRO, MILLI),
) -> np.ndarray:
    """R^e of every example of the preference benchmark, (n,); its result is their sum (ToolOrchestra, appendix)."""
    return reward(against_start(m, start, units), preferences, m[:, -3])
