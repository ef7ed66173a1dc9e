"""ARC's theorem 3.2, checked with numbers on a table of questions and configurations.

    1. pi_SFT(a | s) > 0  =>  a is in A_elite(s)          2. E[r(s, a)] >= tau for a drawn from pi_SFT

The second holds where r(s, a) is one number, as the proof assumes. An agent that draws its words pays the same
configuration differently each time: then the elite are those that were lucky, and a fresh draw is paid less. And where
a question has no elite row, the theorem says nothing.
"""

import warnings
from dataclasses import asdict, dataclass, fields

import numpy as np
import pandas as pd

from lib.experiment import seeds

NOISES = (0.0, 0.5, 1.0)
BUFFERS = 10
TASK = 5.0  # what being right is paid


@dataclass(frozen=True)
class Checked:
    """tau: the threshold; covered: share of questions with an elite row; outside: the most probability that the
    refined policy has outside the elite; before, after, fresh: mean reward of the buffer, of the elite as it was paid,
    and of the refined policy when its choices are paid once more; kept: share of covered questions whose fresh mean
    reaches tau."""

    tau: float
    covered: float
    outside: float
    before: float
    after: float
    fresh: float
    kept: float


def refined(
    questions: np.ndarray, actions: np.ndarray, elite: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """pi_SFT = n(s, a) / n(s), (questions, actions): what maximum likelihood on the elite gives (lemma 3.1).

    Rows without an elite are all 0. questions, actions: (n,) int of the buffer; elite: (n,) bool.
    """
    counts = np.zeros(shape)
    np.add.at(counts, (questions[elite], actions[elite]), 1)
    return np.divide(
        counts,
        counts.sum(1, keepdims=True),
        out=np.zeros(shape),
        where=counts.sum(1, keepdims=True) > 0,
    )


def check(
    mean: np.ndarray,
    correct: np.ndarray,
    noise: float,
    share: float,
    rows: int,
    rng: np.random.Generator,
) -> Checked:
    """A buffer of random choices, its elite, and the policy that imitates it.

    mean: (questions, actions) expected reward without the task's term; correct: the chance to be right. A choice is
    paid mean + 5 if right, where "right" is drawn anew at every try when noise is 1 and is the rounded chance when it
    is 0 (in between: drawn for that share of tries). share: of the buffer that is elite; rows: its size.
    """
    shape = mean.shape
    questions, actions = rng.integers(shape[0], size=rows), rng.integers(shape[1], size=rows)
    right = _drawn(correct[questions, actions], noise, rng)
    paid = mean[questions, actions] + TASK * right
    tau = float(np.quantile(paid, 1 - share))
    elite = right & (paid >= tau)
    policy = refined(questions, actions, elite, shape)
    covered = policy.sum(1) > 0
    seen = np.zeros(shape, bool)
    seen[questions[elite], actions[elite]] = True
    again = (correct >= 0.5) * (1 - noise) + correct * noise
    fresh = (policy * (mean + TASK * again)).sum(1)[covered]
    return Checked(
        tau,
        float(covered.mean()),
        float(policy[~seen].max(initial=0.0)),
        float(paid.mean()),
        float(paid[elite].mean()),
        float(fresh.mean()),
        float((fresh >= tau - 1e-9).mean()),
    )


def _drawn(chance: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Whether each try is right."""
    random = rng.random(len(chance)) < noise
    return np.where(random, rng.random(len(chance)) < chance, chance >= 0.5)


def tried(searched: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of configurations that were tried on test questions: mean reward without the task's term, and chance of being
    right, (questions, configurations) each. The chance is of few tries, drawn towards the configuration's mean on that
    kind of question. searched: of `study.Results`."""
    rows = searched[searched["split"].isin(("test", "again"))]
    near = rows.groupby(["group", "number"])["correct"].transform("mean")
    rows = rows.assign(rest=rows["reward"] - TASK * rows["correct"], near=near, tries=1.0)
    sums = rows.pivot_table(
        index=["group", "prompt"],
        columns="number",
        values=["correct", "tries", "rest", "near"],
        aggfunc="sum",
    )
    tries = sums["tries"].to_numpy()
    chance = (sums["correct"].to_numpy() + sums["near"].to_numpy() / tries) / (tries + 1)
    return sums["rest"].to_numpy() / tries, chance


def checks(searched: pd.DataFrame, share: float, rows: int) -> pd.DataFrame:
    """`check` at several noises on `BUFFERS` made-up buffers each: noise, seed (of the buffer), item, margin (fresh
    minus tau), and what `Checked` has. Buffers without an elite, about which the theorem says nothing, are left out."""
    (mean, chance), out = tried(searched), []
    for noise in NOISES:
        for seed in range(BUFFERS):
            rng = seeds.rng("configuration", "theorem", str(noise), str(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # means of an elite of nobody
                found = check(mean, chance, noise, share, rows, rng)
            if found.covered:
                out.append(
                    {"noise": noise, "seed": seed, "item": 0, "margin": found.fresh - found.tau}
                    | asdict(found)
                )
    columns = ["noise", "seed", "item", "margin", *(field.name for field in fields(Checked))]
    return pd.DataFrame(out, columns=columns).round(12)
