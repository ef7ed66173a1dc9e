"""Exercises of agent configuration: a reward, a space, what imitation promises, and a masked choice."""

import numpy as np

from lib.agent_configuration.rewards import Weights, reward
from lib.experiment import seeds
from lib.teaching.exercises_by_lesson import Exercise, Exercises

LEFT = 5 * 16**2 * 3**3 + 4 * 16 * 3**2  # valid structures if `routing` had no second agent


def masked(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Softmax over what is allowed, 0 elsewhere, (n,) and (n,) -> (n,)."""
    weights = np.exp(np.where(allowed, logits, -np.inf) - logits[allowed].max())
    return weights / weights.sum()


def scaled(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The mistake: the softmax of everything, with what is not allowed taken away afterwards and not made up for."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum() * allowed


def _is_masked(answer) -> bool | str:
    """Checks a masked softmax: zeros, sum, ratios and large logits, on random logits and masks.

    Args:
        answer: The student's solution, from logits (9,) and mask (9,) to probabilities (9,).

    Returns:
        True, or what is wrong.
    """
    for seed in range(5):
        rng = seeds.rng("exercise", "mask", seed=seed)
        logits, allowed = rng.normal(size=9), rng.random(9) < 0.5
        allowed[rng.integers(9)] = True  # never a mask that allows nothing
        probabilities = np.asarray(answer(logits, allowed), dtype=float)
        if probabilities.shape != (9,) or (probabilities[~allowed] != 0).any():
            return "nine probabilities, exactly 0 where it is not allowed"
        if abs(probabilities.sum() - 1) > 1e-9:
            return f"probabilities add up to {probabilities.sum():.3f}"
        expected = np.exp(logits[allowed]) / np.exp(logits[allowed]).sum()
        if not np.allclose(probabilities[allowed], expected):
            return "what is allowed keeps its ratios, exp(a) to exp(b)"
        huge = np.where(allowed, logits + 2_000, 5_000)  # exp of these overflows
        if not np.allclose(answer(huge, allowed), probabilities):
            return "large logits, allowed or not, change the probabilities"
    return True


EXERCISES = Exercises(
    Exercise(
        "07.1",
        "easy",
        3,
        r"What is the reward $R$ of this episode, by eq. 3 and 4? The answer is right after 3 calls of agents. They "
        r"wrote 96 tokens, where $T_{\max}$ is 192, and called tools twice. The coefficients are $\alpha = 5$, "
        r"$\beta_s = 0.02$, $\beta_t = 0.03$, $\eta = 1$, $\delta_1 = 0.1$, $\delta_2 = 0.2$ and $\delta_3 = 0.3$.",
        nudge="two parts take away and two add; go through them in the order of the formula",
        hint="eq. 3, and eq. 4 with n > 0",
        answer=float(reward(1, 3, 96, 2, 2, 192, Weights())),
        worked="5 - 0.06 - 0.015 + (0.2 + 0.2): the two calls earn five times what steps and tokens cost.",
        wrong=5.0,
        important=True,
    ),
    Exercise(
        "07.2",
        "medium",
        5,
        "A structure has one of 9 workflows, one of 16 sets of tools for each of two agents, and one of 3 budgets for "
        "each of three agents. Where a workflow has no second agent, the mask leaves one choice for this agent's tools "
        "and one for its budget. Three workflows have none. Suppose that `routing` lost its second reasoner too. How "
        "many structures would be valid?",
        nudge="how many choices of tools and of budget does a mask take away?",
        hint="one workflow fewer has both, one more has neither",
        answer=LEFT,
        worked="Five workflows with 16^2 x 3^3 structures and four with 16 x 3^2.",
        wrong=41_904,
        important=True,
    ),
    Exercise(
        "07.3",
        "medium",
        5,
        "All episodes have the same configuration, which is right in 6 of 10 tries, by luck alone. A right answer is "
        "paid 5, a wrong one 0. The elite are the right episodes. A policy imitates them: it chooses this "
        r"configuration again. What is its mean reward on new tries, and what is $\tau$, the lowest reward in the "
        "elite? Answer with a pair.",
        nudge="the elite was right by luck, which does not carry over to new tries",
        hint="what was tau paid, and what will be paid?",
        answer=(3.0, 5.0),
        worked="Imitation repeats the configuration, not its luck: 0.6 x 5 on new tries, though each of the elite was "
        "paid 5.",
        wrong=(5.0, 5.0),
    ),
    Exercise(
        "07.4",
        "hard",
        15,
        "Write the masked choice of a structure policy with NumPy. Your function gets the logits of a part, (n,), and "
        "whether each choice is allowed, (n,) of `bool`; it returns probabilities, (n,). A choice that is not allowed "
        "has probability exactly 0. The others have the softmax of their logits. Logits of thousands do no harm.",
        nudge="a softmax over some of the logits only",
        hint="set what is not allowed to minus infinity, and take the largest allowed logit away before exp",
        answer=masked,
        worked="Masking before the softmax leaves a distribution; masking after it leaves a hole.",
        wrong=scaled,
        judge=_is_masked,
        start="answer = None  # a function of logits and allowed",
    ),
)
check = EXERCISES.check
