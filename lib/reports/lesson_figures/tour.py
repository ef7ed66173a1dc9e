"""The student's answers as a figure: lesson 00."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib import plots


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
