"""The student's answers as a figure, and which strategies are clearly dominated: lesson 00."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib import plots, stats
from lib.envs.education import OBJECTIVES

ROUNDING_ERROR = 1e-9  # where two strategies earn the same, their difference is not quite 0
# Weights of aptitude, gap and performance, by what somebody cares about.
WEIGHTS_BY_INTEREST = {
    "aptitude": (1, 0, 0),
    "gap": (0, 1, 0),
    "performance": (0, 0, 1),
    "aptitude and gap": (1, 1, 0),
    "aptitude and performance": (1, 0, 1),
    "gap and performance": (0, 1, 1),
    "all three": (1, 1, 1),
}


def estimate_reward_by_action(rewards: pd.DataFrame) -> pd.DataFrame:
    """Mean reward of each action with its 95 % interval, by action and objective.

    Args:
        rewards: A row for each action (method) and copy of the student, with a column for each objective.
    """
    estimates = {objective: stats.mean(rewards, objective, "method") for objective in OBJECTIVES}
    return pd.concat(estimates, names=["objective"]).swaplevel()


def find_best_action(reward_by_action: pd.DataFrame) -> dict[str, str]:
    """By objective, the action with the largest mean reward; takes what `estimate_reward_by_action` returns."""
    return reward_by_action["value"].unstack("objective")[list(OBJECTIVES)].idxmax().to_dict()


@plots.theme()
def draw_response(probability: pd.Series, mastery: float) -> Figure:
    """Draws how probable a right answer is at every difficulty.

    Args:
        probability: Of a right answer, by difficulty from 0 to 1.
        mastery: Of the student.
    """
    figure = plots.new_figure("At its mastery level the student tosses a coin", 6.4, 3.2)
    axes = sns.lineplot(
        probability, marker="o", color=plots.colour("performance"), ax=figure.subplots()
    )
    axes.axvline(mastery, color=plots.GREY, linestyle="--")
    axes.annotate(f"mastery {mastery:.1f}", (mastery + 0.01, 0.95))
    axes.set(xlabel="difficulty of the question", ylabel="probability of a right answer")
    axes.set_ylim(0, 1.02)
    numbers = ", ".join(f"{p:.2f} at difficulty {d:.1f}" for d, p in probability.items())
    figure.alt_text = f"Probability of a right answer at mastery {mastery:.1f}: {numbers}."
    return figure


def find_clearly_dominated(results: pd.DataFrame) -> list[str]:
    """Finds the strategies that another one clearly dominates.

    Each strategy that is not on the front of means is compared with its closest rival, whose smallest gain over it is
    the largest: the rival is better in one objective and nowhere worse, by the 95 % intervals of the differences,
    paired by student.

    Args:
        results: A row for each strategy (method) and student, with a column for each objective.

    Returns:
        Their names.
    """
    mean_rewards = results.groupby("method", sort=False)[list(OBJECTIVES)].mean()
    is_on_front = stats.pareto_front(mean_rewards.to_numpy())
    dominated = []
    for method in mean_rewards.index[~is_on_front]:
        gains_of_others = mean_rewards.drop(method) - mean_rewards.loc[method]
        rival = gains_of_others.min(axis=1).idxmax()
        pair = {"method": rival}, {"method": method}
        gains = [stats.paired_difference(results, objective, *pair) for objective in OBJECTIVES]
        lower_ends = pd.concat(gains)["ci_low"]  # one for each objective
        if (lower_ends >= -ROUNDING_ERROR).all() and (lower_ends > 0).any():
            dominated.append(method)
    return dominated
