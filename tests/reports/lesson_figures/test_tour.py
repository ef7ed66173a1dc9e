"""The figure of the student's answers in lesson 00."""

import pandas as pd

from lib.reports.lesson_figures import tour


def test_the_answers_of_a_student_are_told_in_the_alt_text():
    figure = tour.draw_response(pd.Series([0.8, 0.5], index=[0.0, 0.4]), mastery=0.4)
    assert figure.alt_text.endswith("mastery 0.4: 0.80 at difficulty 0.0, 0.50 at difficulty 0.4.")
