"""Figures and tables of lesson 05, each title and alt text made from the numbers that it is about.

Money is in dollars per million questions, which is micro-dollars per question.
"""
