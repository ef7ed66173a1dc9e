"""Figures that only lesson 00 draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.draw.figures import colour, theme
from lib.envs.education import ACTIONS, OBJECTIVES
from lib.zoo.tour import best_mixture


def response_figure(difficulty: np.ndarray, chance: np.ndarray, mastery: float) -> Figure:
    """Chance of a right answer (n,) against difficulty (n,), with the student's mastery marked."""
    with theme():
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(difficulty, chance, marker="o", color=colour("performance"))
        axes.axvline(mastery, color="0.4", linestyle="--")
        axes.annotate(f"mastery {mastery:.1f}", (mastery, 0.95), xytext=(6, 0), textcoords="offset points")
        for d, p in zip(difficulty, chance, strict=True):
            axes.annotate(f"{p:.2f}", (d, p), xytext=(6, 4), textcoords="offset points")
        axes.set(xlabel="difficulty of the question", ylabel="chance of a right answer", ylim=(0, 1.02))
        axes.set_title("At its mastery level the student tosses a coin")
    return figure


def choice_figure(outcome: pd.DataFrame, settings: Sequence[Sequence[float]]) -> Figure:
    """For each setting of the weights, the share of each action in the best mixed strategy."""
    with theme():
        figure = Figure(figsize=(6.4, 0.9 + 0.75 * len(settings)), layout="constrained")
        axes = figure.add_subplot()
        labels = []
        for row, weights in enumerate(settings):
            best, left = best_mixture(outcome, weights), 0.0
            for action in ACTIONS:
                axes.barh(row, best[action], left=left, color=colour(action), height=0.6)
                if best[action] > 0.1:
                    axes.text(left + best[action] / 2, row, action, ha="center", va="center", color="white")
                left += best[action]
            named = [f"{name} {weight:g}" for name, weight in zip(OBJECTIVES, weights, strict=True) if weight]
            labels.append(", ".join(named) or "nothing")
        axes.set_yticks(range(len(settings)), labels)
        axes.invert_yaxis()
        axes.set(xlabel="probability of the action in the best strategy", xlim=(0, 1))
        axes.set_title("What you care about decides what is best")
    return figure
