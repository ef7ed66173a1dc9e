"""The report of lesson 07: what there is to choose for a question, who chooses it how, and what that is worth.

Each module makes figures, tables and sentences of one part of the lesson out of `study.Results`.
"""
