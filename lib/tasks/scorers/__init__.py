"""Scorers: how good a reply to an item is, in [0, 1].

    scorer = make_scorer("math")
    scores = scorer.score(items, replies)

Every scorer finds the final answer of a reply first (`extraction`) and is as tolerant of its form as the published
evaluators are. `tags` is the strict one of the procedural families. What could not be judged is nan with a failure.
"""

from lib.tasks.scorers.choices import extract_choice
from lib.tasks.scorers.extraction import (
    FinalAnswer,
    extract_final_answer,
    extract_number,
    read_score,
    strip_reasoning,
)
from lib.tasks.scorers.scorer import SCORERS, Score, Scorer, ScorerError, make_scorer

VERSION = 1  # of what the scorers of this package answer
__all__ = [
    "SCORERS", "FinalAnswer", "Score", "Scorer", "ScorerError", "extract_choice", "extract_final_answer",
    "extract_number", "make_scorer", "read_score", "strip_reasoning",
]  # fmt: skip
