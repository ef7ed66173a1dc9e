"""Which strategies of lesson 00 are clearly dominated, and the figure of the student's answers."""

import pandas as pd

from lib.envs.education import OBJECTIVES
from lib.reports.lesson_figures import tour


def make_results(rewards_by_method: dict[str, tuple[float, float, float]]) -> pd.DataFrame:
    """Four seeds with three students each, who differ alike under every strategy."""
    rows = []
    for method, rewards in rewards_by_method.items():
        for seed in range(4):
            for item in range(3):
                shift = 0.1 * seed + 0.01 * item
                means = dict(zip(OBJECTIVES, (reward + shift for reward in rewards), strict=True))
                rows.append({"method": method, "seed": seed, "item": f"{seed}-{item}"} | means)
    return pd.DataFrame(rows)


def test_a_strategy_is_clearly_dominated_where_another_one_is_nowhere_worse_and_better_once():
    results = make_results({"good": (1, 1, 1), "worse": (1, 1, 0.5), "other": (2, 0, 0)})
    assert tour.find_clearly_dominated(results) == ["worse"]
    assert tour.find_clearly_dominated(make_results({"a": (1, 0, 0), "b": (0, 1, 0)})) == []


def test_the_answers_of_a_student_are_told_in_the_alt_text():
    figure = tour.draw_response(pd.Series([0.8, 0.5], index=[0.0, 0.4]), mastery=0.4)
    assert figure.alt_text.endswith("mastery 0.4: 0.80 at difficulty 0.0, 0.50 at difficulty 0.4.")


def test_the_best_action_of_each_objective_has_the_largest_mean_reward():
    results = make_results({"easy": (0, 0, 3), "hard": (2, 0.5, 0)})
    rewards = tour.estimate_reward_by_action(results)
    assert list(tour.find_best_action(rewards).values()) == ["hard", "hard", "easy"]
