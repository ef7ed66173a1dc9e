"""Ablations: what every part of the five systems is worth, by taking it away.

A module per system runs the variants through the system's own study, so that cells which a lesson has finished are
not run again, and leaves a `Comparison`: the same measures of every variant, paired by seed and by what was tried.
"""
