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
NUM_BUFFERS = 10  # at each noise
_ROUNDING_ERROR = 1e-9
TASK_REWARD = 5.0  # of a correct answer


@dataclass(frozen=True)
class Checked:
    """The theorem's quantities on one buffer of episodes.

    Attributes:
        tau: The threshold of the elite.
        covered: Share of questions with an elite episode.
        outside: The most probability that the refined policy has outside the elite.
        before: Mean reward of the buffer.
        after: Mean reward of the elite's episodes as they were.
        fresh: Mean expected reward of the refined policy's choices when they are tried once more.
        kept: Share of covered questions whose fresh reward reaches tau.
    """

    tau: float
    covered: float
    outside: float
    before: float
    after: float
    fresh: float
    kept: float


def fit_refined_policy(
    questions: np.ndarray, actions: np.ndarray, is_elite: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Fit the policy that maximises the likelihood of the elite, pi_SFT = n(s, a) / n(s) (lemma 3.1).

    Args:
        questions: (n,) question of each episode of the buffer.
        actions: (n,) its configuration.
        is_elite: (n,) bool.
        shape: Number of questions and of configurations.

    Returns:
        (questions, configurations) probabilities; 0 in the rows of questions without an elite episode.
    """
    counts = np.zeros(shape)  # n(s, a)
    np.add.at(counts, (questions[is_elite], actions[is_elite]), 1)
    totals = counts.sum(1, keepdims=True)  # n(s)
    return np.divide(counts, totals, out=np.zeros(shape), where=totals > 0)


def check_theorem(
    costs: np.ndarray,
    probability: np.ndarray,
    noise: float,
    share: float,
    num_episodes: int,
    rng: np.random.Generator,
) -> Checked:
    """Check theorem 3.2 on a buffer of random choices, its elite (the best episodes), and the policy that imitates it.

    Args:
        costs: (questions, configurations) expected reward without the task's term.
        probability: (questions, configurations) probability of a correct answer.
        noise: Share of tries whose correctness is drawn anew. The others are correct where the probability is .5 or
            more, so that at noise 0 the reward r(s, a) is one number, as the proof assumes.
        share: Share of the buffer that lies above the threshold.
        num_episodes: Size of the buffer.
        rng: Draws the buffer.

    Returns:
        The quantities of the theorem.
    """
    # A buffer of random choices, and its elite (eq. 5)
    num_questions, num_actions = costs.shape
    questions = rng.integers(num_questions, size=num_episodes)
    actions = rng.integers(num_actions, size=num_episodes)
    is_correct = _sample_correctness(probability[questions, actions], noise, rng)
    rewards = costs[questions, actions] + TASK_REWARD * is_correct
    tau = float(np.quantile(rewards, 1 - share))
    is_elite = is_correct & (rewards >= tau)

    # The policy that imitates the elite, and the reward of its choices when they are tried once more
    policy = fit_refined_policy(questions, actions, is_elite, costs.shape)
    is_covered = policy.sum(1) > 0  # (questions,)
    is_in_elite = np.zeros(costs.shape, bool)
    is_in_elite[questions[is_elite], actions[is_elite]] = True
    expected_correct = (probability >= 0.5) * (1 - noise) + probability * noise
    fresh_rewards = (policy * (costs + TASK_REWARD * expected_correct)).sum(1)[is_covered]
    return Checked(
        tau=tau,
        covered=float(is_covered.mean()),
        outside=float(policy[~is_in_elite].max(initial=0.0)),
        before=float(rewards.mean()),
        after=float(rewards[is_elite].mean()),
        fresh=float(fresh_rewards.mean()),
        kept=float((fresh_rewards >= tau - _ROUNDING_ERROR).mean()),
    )


def _sample_correctness(
    probability: np.ndarray, noise: float, rng: np.random.Generator
) -> np.ndarray:
    """Sample whether each try is correct, (n,) bool: at random in a share `noise` of tries, else by rounding."""
    is_random = rng.random(len(probability)) < noise
    sampled = rng.random(len(probability)) < probability
    return np.where(is_random, sampled, probability >= 0.5)


def estimate_outcomes(outcomes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the outcomes of configurations that were tried on test questions.

    Args:
        outcomes: The table of `experiment.AgentConfigurationResults`, two tries of each.

    Returns:
        (questions, configurations) mean reward without the task's term, and (questions, configurations) probability of
        a correct answer. With so few tries, the probability counts the configuration's mean on that kind of question
        as one try more.
    """
    rows = outcomes[outcomes["split"].isin(("test", "again"))]
    mean_of_kind = rows.groupby(["group", "number"])["correct"].transform("mean")
    rows = rows.assign(
        rest=rows["reward"] - TASK_REWARD * rows["correct"], near=mean_of_kind, tries=1.0
    )
    sums = rows.pivot_table(
        index=["group", "prompt"],
        columns="number",
        values=["correct", "tries", "rest", "near"],
        aggfunc="sum",
    )
    num_tries = sums["tries"].to_numpy()
    mean_of_kind = sums["near"].to_numpy() / num_tries
    probability = (sums["correct"].to_numpy() + mean_of_kind) / (num_tries + 1)
    costs = sums["rest"].to_numpy() / num_tries
    return costs, probability


def checks(outcomes: pd.DataFrame, share: float, num_episodes: int) -> pd.DataFrame:
    """Check theorem 3.2 at several noises, on NUM_BUFFERS random buffers each.

    The theorem: a policy that imitates the elite of a buffer, its episodes with a reward of at least the threshold tau,
    has a mean reward of at least tau. It is checked on fresh episodes of the imitated configurations, because an
    episode can be in the elite by luck.

    Args:
        outcomes: The table of `experiment.AgentConfigurationResults`.
        share: Fraction of a buffer's episodes that are above tau.
        num_episodes: Episodes of a buffer.

    Returns:
        A row for each buffer with an elite (about others the theorem says nothing): noise (of the rewards), seed (of
        the buffer), item (0, for the results table), margin (the mean reward of fresh episodes minus tau), and the
        fields of `Checked`.
    """
    costs, probability = estimate_outcomes(outcomes)
    rows = []
    for noise in NOISES:
        for seed in range(NUM_BUFFERS):
            rng = seeds.rng("configuration", "theorem", str(noise), str(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of an empty elite
                checked = check_theorem(costs, probability, noise, share, num_episodes, rng)
            if checked.covered:
                labels = {"noise": noise, "seed": seed, "item": 0}
                margin = {"margin": checked.fresh - checked.tau}
                rows.append(labels | margin | asdict(checked))
    columns = ["noise", "seed", "item", "margin", *(field.name for field in fields(Checked))]
    return pd.DataFrame(rows, columns=columns).round(12)
